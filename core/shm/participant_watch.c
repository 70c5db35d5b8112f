/* SPDX-License-Identifier: MIT */
/*
 * Which processes an instance watches, and when it probes those that it does not.
 *
 * In a crowd not all can be watched. A waiter depends on those that hold something, and on the head
 * of the wait queue: these come first, and a round of probes has all of them that are not watched.
 * Of the others a round has a few, in turn. They are watched by the processes in the slots behind
 * them if these wait, too.
 *
 * One process probes for all of them, the first that finds that it is time. It says so in the
 * segment. If it is stopped then, or has no descriptor to probe with, another does it after the
 * next interval.
 */
#include "shm/participant.h"
#include "shm/segment.h"

#include "base/sched_point.h"
#include "os/os.h"
#include "shm/acq_record.h"
#include "shm/doorbell_cache.h"
#include <pthread.h>
#include <string.h>

/* Least time between two rounds of probes, for each process that is probed. A probe takes about ten
 * microseconds. */
#define PROBE_INTERVAL_NS UINT64_C(150000)

/* Probes in a round of processes that neither hold anything nor are the head of the wait queue. */
#define PROBE_OTHERS_MAX 64u

/* Runs of records that are looked at to find the processes that hold something or wait. */
#define RUNS_LOOKED_AT_MAX 2048u

static bool participant_run_matters(const struct participant *participant, uint32_t run,
                                    bool is_keyed)
{
    uint32_t units = participant->segment->layout.sizes.record_units;

    for (uint32_t i = 0; i < SEGMENT_RUN_UNITS / units; i++) {
        const struct acq_record *r =
            record_at(&participant->region, run * SEGMENT_RUN_UNITS + i * units);
        enum record_state state = record_state(record_load(&r->word));

        if (state != RECORD_FREE && (is_keyed || state != RECORD_WAITING))
            return true;
    }
    return false;
}

/* Marks the slots of the processes that a waiter may depend on. A keyed set has many wait queues:
 * there all that wait are among them. The owners are hints. */
static void participant_find_preferred(const struct participant *participant,
                                       const struct probe_plan *plan, uint64_t *ret)
{
    const struct segment *segment = participant->segment;
    uint32_t end = segment_runs_n(segment), head_run = plan->head / SEGMENT_RUN_UNITS,
             looked_at = 0;

    memset(ret, 0, SEGMENT_PEERS_MAX / 8);
    for (uint32_t run = 1; run < end && looked_at < RUNS_LOOKED_AT_MAX; run++) {
        uint64_t owner = shm_load_relaxed(segment_run_owner(segment, run));
        uint32_t slot = (uint32_t)owner % SEGMENT_PEERS_MAX;

        if (!owner || (ret[slot / 64] >> slot % 64 & 1))
            continue;
        looked_at++;
        if (run == head_run || participant_run_matters(participant, run, plan->is_keyed))
            ret[slot / 64] |= UINT64_C(1) << slot % 64;
    }
}

/* Returns whether it is time for a round of `n` probes, which is the caller's then. The time in the
 * segment is a hint, so the load is relaxed; it may be anything if the segment is damaged. */
static bool participant_claim_probes(const struct participant *participant, uint32_t n)
{
    _Atomic uint64_t *probed_ns = &segment_header(participant->segment)->probed_ns;
    uint64_t interval_ns = n * PROBE_INTERVAL_NS;
    uint64_t before = shm_load_relaxed(probed_ns), now_ns = os_now_ns();

    if (before <= now_ns && now_ns - before < interval_ns)
        return false;
    return shm_cas_seq_cst(probed_ns, before, now_ns);
}

/* Makes it time for a round of probes again. */
static void participant_disclaim_probes(const struct participant *participant)
{
    atomic_store_explicit(&segment_header(participant->segment)->probed_ns, 0,
                          memory_order_seq_cst);
}

/* Returns whether a round of probes begins. */
static bool participant_begins_probes(const struct participant *participant, enum probe_round round,
                                      uint32_t peers_n)
{
    const struct peer_watch *watch = &participant->peer_watch;
    uint32_t others_n = watch->n ? watch->polled_n : peers_n; /* before it knows any */

    if (others_n > PROBE_OTHERS_MAX)
        others_n = PROBE_OTHERS_MAX;
    return round == PROBE_NOW ||
           (round == PROBE_IF_DUE && others_n &&
            participant_claim_probes(participant, watch->preferred_n + others_n));
}

int participant_next_dead(struct participant *participant, const struct probe_plan *plan,
                          uint32_t *ret_slot, uint64_t *ret_id)
{
    const struct segment *segment = participant->segment;
    struct peer_watch *watch = &participant->peer_watch;
    struct peer_census census = {.peers = segment_peer(segment, 0)};
    uint64_t preferred[SEGMENT_PEERS_MAX / 64];
    bool begins;
    int r;

    census.registrations =
        atomic_load_explicit(&segment_header(segment)->registrations, memory_order_seq_cst);
    census.n = segment_peers_n(segment);
    if (census.registrations != participant->pruned_at &&
        doorbell_cache_prune(participant->doorbells))
        participant->pruned_at = census.registrations;
    begins = participant_begins_probes(participant, plan->round, census.n);
    if ((begins || !watch->n) && census.n > peer_watch_limit()) {
        participant_find_preferred(participant, plan, preferred);
        census.preferred = preferred;
    }
    peer_watch_sync(watch, &census);
    if (begins)
        peer_watch_begin_probes(watch, plan->round == PROBE_NOW ? UINT32_MAX : PROBE_OTHERS_MAX);
    r = peer_watch_next(watch, ret_slot, ret_id);
    if (r == 0 && watch->is_blind)
        participant_disclaim_probes(participant);
    watch->is_blind = watch->is_blind && r > 0;
    return r;
}
