/* SPDX-License-Identifier: MIT */
/* Attaches to shared segments, claims records of them, and detaches. */
#include "shm/participant_internal.h"

#include "base/error.h"
#include "base/invariant.h"
#include "base/sched_point.h"
#include "os/os.h"
#include "shm/acq_record.h"
#include "shm/direct_doorbell.h"
#include "shm/doorbell.h"
#include "shm/doorbell_cache.h"
#include "shm/nameless.h"
#include "shm/peer_id.h"
#include "shm/segment.h"
#include <errno.h>
#include <string.h>

#define PROXY_ACTIVE           (UINT32_C(1) << 31)
#define PARTICIPANT_OPEN_TRIES 16 /* while the segment is removed repeatedly */

/* ---- records ---- */

uint32_t participant_amounts_n(const struct participant *participant)
{
    return participant->segment->layout.sizes.limits_n;
}

/* Returns the end of the runs that may have proxies. Sequentially consistent: a thread that sees
 * the end sees the entries below. */
static uint32_t participant_proxies_end(const struct participant *participant)
{
    return atomic_load_explicit(&participant->proxies_end, memory_order_seq_cst);
}

/* Makes room in free_records for the `n` records of a run that has just been claimed, and makes
 * their proxy entries. */
static int participant_reserve_run(struct participant *participant, uint32_t run, uint32_t n)
{
    uint32_t *grown =
        os_realloc(participant->free_records, participant->free_capacity + n, sizeof(*grown));
    _Atomic uint32_t *entries;

    if (!grown)
        return -ENOMEM;
    participant->free_records = grown;
    entries = os_alloc(n, sizeof(*entries));
    if (!entries)
        return -ENOMEM;
    participant->free_capacity += n;
    atomic_store_explicit(&participant->proxies[run], entries, memory_order_release);
    if (run >= participant_proxies_end(participant))
        atomic_store_explicit(&participant->proxies_end, run + 1, memory_order_seq_cst);
    return 0;
}

/* Adds the FREE records of a run. Their former use does not matter. */
static void participant_add_records(struct participant *participant, uint32_t run)
{
    uint32_t units = participant->segment->layout.sizes.record_units;

    for (uint32_t at = SEGMENT_RUN_UNITS / units; at-- > 0;) {
        uint32_t record = run * SEGMENT_RUN_UNITS + at * units;
        const struct acq_record *r = record_at(&participant->region, record);

        if (record_state(record_load(&r->word)) == RECORD_FREE)
            participant_put_record(participant, record);
    }
}

static int participant_claim_run(struct participant *participant)
{
    const struct segment *segment = participant->segment;

    for (uint32_t run = 1; run < segment->layout.sizes.runs_n; run++) {
        _Atomic uint64_t *owner = segment_run_owner(segment, run);
        int r = run < segment_runs_n(segment) ? 0 : segment_alloc_run(segment, run);

        if (r < 0)
            return r;
        if (!participant_claim_owner(owner, participant->peer_key))
            continue;
        if (atomic_load_explicit(&participant->proxies[run], memory_order_seq_cst)) {
            participant_mark_broken(participant); /* a peer has released it, and perhaps used it */
            return -EUCLEAN;
        }
        r = participant_reserve_run(participant, run,
                                    SEGMENT_RUN_UNITS / segment->layout.sizes.record_units);
        if (r < 0)
            participant_release_owner(owner, participant->peer_key, false);
        else
            participant_add_records(participant, run);
        return r;
    }
    return -ENOSPC;
}

uint32_t participant_get_record(struct participant *participant)
{
    while (!participant->free_n)
        if (participant_claim_run(participant) < 0)
            return 0;
    return participant->free_records[--participant->free_n];
}

void participant_put_record(struct participant *participant, uint32_t record)
{
    WEIR_INVARIANT(segment_has_record(participant->segment, record));
    WEIR_INVARIANT(participant->free_n < participant->free_capacity);
    participant->free_records[participant->free_n++] = record;
}

/* Returns the peer key of the record's owner, or 0 if it has none. */
static uint32_t participant_owner_key(const struct participant *participant, uint32_t record)
{
    const struct segment *segment = participant->segment;
    uint32_t run = record / SEGMENT_RUN_UNITS;

    if (run >= segment->layout.sizes.runs_n)
        return 0;
    return (uint32_t)atomic_load_explicit(segment_run_owner(segment, run), memory_order_acquire);
}

bool participant_owns(const struct participant *participant, uint32_t record)
{
    return participant_owner_key(participant, record) == participant->peer_key;
}

uint32_t participant_owner_pid(const struct participant *participant, uint32_t record)
{
    const struct segment *segment = participant->segment;
    uint32_t peer_key = participant_owner_key(participant, record);

    if (!peer_key)
        return 0;
    return peer_id_pid(
        peer_slot_find(segment_peer(segment, 0), segment_peers_n(segment), peer_key));
}

/* Relaxed: a beat is a hint when others look more closely. */
void participant_beat(const struct participant *participant, uint32_t timer, uint64_t now_ns)
{
    struct peer_slot *slot = segment_peer(participant->segment, participant->slot);

    atomic_store_explicit(&slot->beats[timer % PEER_BEATS], (uint32_t)(now_ns >> PEER_BEAT_SHIFT),
                          memory_order_relaxed);
}

/* Relaxed: see participant_beat(). */
bool participant_is_stalled(const struct participant *participant, uint32_t record, uint64_t now_ns)
{
    const struct segment *segment = participant->segment;
    uint32_t timer = wait_target_timer(record_wait_target(record_at(&participant->region, record)));
    uint32_t i = participant_owner_key(participant, record) % PEERS_MAX;
    uint32_t beat = 0;

    if (i < segment_peers_n(segment))
        beat = atomic_load_explicit(&segment_peer(segment, i)->beats[timer % PEER_BEATS],
                                    memory_order_relaxed);
    return (int32_t)((uint32_t)(now_ns >> PEER_BEAT_SHIFT) - beat) > PEER_STALL_BEATS;
}

/* A notification is a hint, as the decision is in the segment. A dead process does not wait. */
void participant_notify_owner(const struct participant *participant, uint32_t record)
{
    struct acq_record *r = record_at(&participant->region, record);
    uint32_t target = record_wait_target(r), peer_key = participant_owner_key(participant, record);

    if (wait_target_kind(target) == WAIT_TARGET_FUTEX)
        os_futex_wake(record_futex(r), true);
    else if (peer_key && peer_key % PEERS_MAX < segment_peers_n(participant->segment) &&
             !direct_doorbell_ring(participant->doorbells, peer_key, r))
        doorbell_cache_ring(participant->doorbells, peer_key, wait_target_timer(target), record);
}

/* ---- doorbells ---- */

/* Tells those that have a doorbell of this process open that it may not be the one to ring: after
 * each change of a name, and before the timer waits with the doorbell. */
static void participant_doorbells_change(const struct participant *participant)
{
    atomic_fetch_add_explicit(
        &segment_peer(participant->segment, participant->slot)->doorbells_changed, 1,
        memory_order_seq_cst);
}

/* The number of the timer is announced first, so that a cleanup after this process knows it. */
int participant_open_doorbell(const struct participant *participant, uint32_t timer)
{
    const struct segment *segment = participant->segment;
    int r;

    shm_raise_seq_cst(&segment_peer(segment, participant->slot)->doorbells, timer + UINT64_C(1));
    r = doorbell_open(segment->directory_fd, segment->doorbell_stem, participant->peer_key, timer);
    participant_doorbells_change(participant);
    return r;
}

void participant_close_doorbell(const struct participant *participant, uint32_t timer, int fd)
{
    const struct segment *segment = participant->segment;

    doorbell_close(segment->directory_fd, fd, segment->doorbell_stem, participant->peer_key, timer);
    participant_doorbells_change(participant);
}

int participant_open_direct(const struct participant *participant, uint32_t number,
                            struct direct_doorbell *ret)
{
    const struct segment *segment = participant->segment;

    atomic_store_explicit(&segment_peer(segment, participant->slot)->direct_doorbells, number,
                          memory_order_seq_cst);
    return direct_doorbell_open(segment->directory_fd, segment->doorbell_stem,
                                participant->peer_key, number, ret);
}

int participant_open_read_end(const struct participant *participant,
                              const struct direct_doorbell *doorbell)
{
    const struct segment *segment = participant->segment;

    return direct_doorbell_open_read_end(segment->directory_fd, segment->doorbell_stem,
                                         participant->peer_key, doorbell);
}

void participant_close_direct(const struct participant *participant,
                              const struct direct_doorbell *doorbell)
{
    const struct segment *segment = participant->segment;

    direct_doorbell_close(segment->directory_fd, segment->doorbell_stem, participant->peer_key,
                          doorbell);
    participant_doorbells_change(participant);
}

void participant_remove_doorbells(const struct segment *segment, uint32_t slot, uint64_t peer_id)
{
    const struct peer_slot *peer = segment_peer(segment, slot);
    uint32_t peer_key = peer_key_make(peer_id, slot);

    doorbell_remove(segment->directory_fd, segment->doorbell_stem, peer_key, 0,
                    shm_load_seq_cst(&peer->doorbells));
    direct_doorbell_remove(segment->directory_fd, segment->doorbell_stem, peer_key,
                           atomic_load_explicit(&peer->direct_doorbells, memory_order_seq_cst));
}

void participant_mark_broken(struct participant *participant)
{
    atomic_store_explicit(&participant->broken, true, memory_order_seq_cst);
}

void participant_report_broken(struct participant *participant)
{
    if (!atomic_load_explicit(&participant->broken_reported, memory_order_seq_cst) &&
        !atomic_exchange_explicit(&participant->broken_reported, true, memory_order_seq_cst))
        log_write(participant->log, WEIR_LOG_ERROR,
                  "the segment of set `%s` is damaged%s: remove it with `weir rm -f`",
                  participant->segment->file_stem,
                  segment_is_truncated(participant->segment) ? " (its file was truncated)" : "");
}

bool participant_check_name(struct participant *participant, bool now)
{
    return nameless_check(participant->segment, participant->log, now);
}

bool participant_is_nameless(const struct participant *participant)
{
    return atomic_load_explicit(&participant->segment->naming.is_nameless, memory_order_seq_cst);
}

/* ---- proxy records ---- */

static _Atomic uint32_t *participant_proxy_entry(const struct participant *participant,
                                                 uint32_t record)
{
    _Atomic uint32_t *entries;

    if (!segment_has_record(participant->segment, record))
        return NULL;
    entries = atomic_load_explicit(&participant->proxies[record / SEGMENT_RUN_UNITS],
                                   memory_order_acquire);
    return entries ? &entries[record % SEGMENT_RUN_UNITS /
                              participant->segment->layout.sizes.record_units]
                   : NULL;
}

/* Returns the entry of a record of this participant, or 0. */
static uint32_t participant_load_proxy(const struct participant *participant, uint32_t record)
{
    const _Atomic uint32_t *entry = participant_proxy_entry(participant, record);

    return entry ? atomic_load_explicit(entry, memory_order_acquire) : 0;
}

uint32_t participant_proxy(const struct participant *participant, uint32_t record)
{
    return participant_load_proxy(participant, record) & ~PROXY_ACTIVE;
}

uint32_t participant_waiter(const struct participant *participant, uint32_t record)
{
    uint32_t entry = participant_load_proxy(participant, record);

    return entry & PROXY_ACTIVE ? entry & ~PROXY_ACTIVE : 0;
}

void participant_set_proxy(struct participant *participant, uint32_t record, uint32_t proxy,
                           bool kept)
{
    WEIR_INVARIANT(participant_proxy_entry(participant, record));
    WEIR_INVARIANT(proxy != 0 && !(proxy & PROXY_ACTIVE));
    atomic_store_explicit(participant_proxy_entry(participant, record),
                          proxy | (kept ? PROXY_ACTIVE : 0), memory_order_release);
}

void participant_each_waiter(const struct participant *participant,
                             void (*each)(void *userdata, uint32_t record, uint32_t waiter),
                             void *userdata)
{
    uint32_t units = participant->segment->layout.sizes.record_units;

    for (uint32_t run = 1; run < participant_proxies_end(participant); run++) {
        if (!atomic_load_explicit(&participant->proxies[run], memory_order_seq_cst))
            continue;
        for (uint32_t i = 0; i < SEGMENT_RUN_UNITS / units; i++) {
            uint32_t record = run * SEGMENT_RUN_UNITS + i * units;
            uint32_t waiter = participant_waiter(participant, record);

            if (waiter)
                each(userdata, record, waiter);
        }
    }
}

/* ---- attach and detach ---- */

/* Attaches once. Returns -ESTALE if the segment was removed meanwhile. */
static int participant_attach(struct participant *participant, const char *directory,
                              const struct segment_shape *shape, uint64_t self_id,
                              struct weir_error *reterr)
{
    struct segment_shape flagged = *shape;
    int r;

    flagged.broken = &participant->broken;
    r = segment_open(directory, &flagged, &participant->segment, reterr);
    if (r < 0)
        return r;
    r = participant_claim_slot(participant, self_id);
    if (r == 0 && participant_is_broken(participant))
        r = -EUCLEAN; /* truncated since; the slot goes with the memory */
    if (r == 0)
        return 0;
    segment_close(participant->segment);
    if (r == -ESTALE)
        return r; /* participant_enter() tries again */
    if (r == -EUSERS)
        return error_set(reterr, r,
                         "set `%s`: %u processes share it already, the greatest number possible",
                         shape->name, SEGMENT_PEERS_MAX);
    return error_set(reterr, r, "set `%s`: its segment cannot be attached: %s", shape->name,
                     strerrordesc_np(-r));
}

static int participant_enter(struct participant *participant, const char *directory,
                             const struct segment_shape *shape, uint64_t *ret_self,
                             struct weir_error *reterr)
{
    int r = peer_id_self(ret_self);

    if (r < 0)
        return error_set(reterr, r, "set `%s`: this process cannot be identified: %s", shape->name,
                         strerrordesc_np(-r));
    for (int i = 0; i < PARTICIPANT_OPEN_TRIES; i++) {
        r = participant_attach(participant, directory, shape, *ret_self, reterr);
        if (r != -ESTALE)
            return r;
    }
    return error_set(reterr, -EBUSY, "set `%s`: its segment is removed repeatedly", shape->name);
}

void participant_release_slots(const struct segment *segment, uint32_t slot, uint64_t peer_id,
                               bool is_dead)
{
    uint32_t peer_key = peer_key_make(peer_id, slot);
    struct announce_slots *slots = &segment_header(segment)->announce_slots;

    for (uint32_t run = 1; run < segment_runs_n(segment); run++)
        participant_release_owner(segment_run_owner(segment, run), peer_key, is_dead);
    for (uint32_t i = 0; i < segment_threads_n(segment); i++)
        participant_release_thread(&segment_thread(segment, i)->peer_key, peer_key, is_dead);
    for (uint32_t i = 0; i < DCAS_SLOTS; i++)
        participant_release_owner(&slots->owners[i], peer_key, is_dead);
    if (is_dead)
        peer_slot_forget_predecessor(segment_peer(segment, slot), peer_id);
    peer_slot_free(segment_peer(segment, slot), peer_id);
}

void participant_close(struct participant *participant)
{
    if (!participant)
        return;
    if (!atomic_load_explicit(&participant->is_outdated, memory_order_seq_cst))
        participant_release_slots(participant->segment, participant->slot, participant->peer_id,
                                  false);
    if (participant->segment->while_used)
        segment_remove_if_unused(participant->segment, segment_has_users);
    for (uint32_t run = 0; run < participant_proxies_end(participant); run++)
        os_free(atomic_load_explicit(&participant->proxies[run], memory_order_seq_cst));
    os_free((void *)(uintptr_t)participant->proxies);
    os_free(participant->free_records);
    os_free(participant->following);
    peer_watch_close(&participant->peer_watch);
    doorbell_cache_free(participant->doorbells);
    pthread_mutex_destroy(&participant->watch_lock);
    if (participant->region.segment)
        region_close(&participant->region);
    segment_close(participant->segment);
    os_free(participant);
}

int participant_open(const struct log_sink *log, const char *directory,
                     const struct segment_shape *shape, struct participant **ret,
                     struct weir_error *reterr)
{
    struct participant *participant = os_alloc(1, sizeof(*participant));
    uint64_t self_id;
    int r;

    if (!participant)
        return error_set(reterr, -ENOMEM, "out of memory");
    participant->log = log;
    r = participant_enter(participant, directory, shape, &self_id, reterr);
    if (r < 0) {
        os_free(participant);
        return r;
    }
    /* Of processes that died when no other was there to clean up. What cannot be swept may stay. */
    (void)doorbell_sweep(participant->segment->directory_fd, participant->segment->file_stem);
    pthread_mutex_init(&participant->watch_lock, NULL);
    participant->doorbells =
        doorbell_cache_new(participant->segment->directory_fd, participant->segment->doorbell_stem,
                           segment_peer(participant->segment, 0));
    participant->proxies =
        os_alloc(participant->segment->layout.sizes.runs_n, sizeof(*participant->proxies));
    participant->following = os_alloc(1, sizeof(*participant->following));
    r = peer_watch_open(&participant->peer_watch, self_id, participant->slot);
    if (r == 0)
        r = region_open_segment(&participant->region, participant->segment, &participant->broken);
    if (r == 0 && (!participant->proxies || !participant->following || !participant->doorbells))
        r = -ENOMEM;
    if (r < 0) {
        participant_close(participant);
        return error_set(reterr, r, "set `%s`: %s", shape->name, strerrordesc_np(-r));
    }
    *ret = participant;
    return 0;
}

void participant_close_in_child(struct participant *participant)
{
    struct doorbell_cache *doorbells = participant->doorbells;

    participant->doorbells = NULL;
    peer_watch_close(&participant->peer_watch);
    doorbell_cache_close_in_child(doorbells);
    segment_close_in_child(participant->segment);
}
