/* SPDX-License-Identifier: MIT */
/* Attaches to shared segments, claims their slots, thread contexts and records, and detaches. */
#include "shm/participant.h"
#include "base/error.h"
#include "base/invariant.h"
#include "shm/segment.h"

#include "base/sched_point.h"
#include "os/os.h"
#include "shm/acq_record.h"
#include "shm/doorbell.h"
#include "shm/nameless.h"
#include "shm/peer_id.h"
#include <errno.h>
#include <string.h>

#define PROXY_ACTIVE           (UINT32_C(1) << 31)
#define PARTICIPANT_OPEN_TRIES 16 /* while the segment is removed repeatedly */
#define PARTICIPANT_SLOT_TRIES 16 /* while others change slots */
/* How long it holds that all slots are in use by living processes. */
#define PARTICIPANT_FULL_NS UINT64_C(100000000)

/* ---- slots ---- */

/* Claims the first free slot. Returns -EUSERS if there is none. */
static int participant_find_free_slot(struct participant *participant, uint64_t self_id)
{
    const struct segment *segment = participant->segment;

    for (uint32_t i = 0; i < SEGMENT_PEERS_MAX; i++) {
        int r = i < segment_peers_n(segment) ? 0 : segment_alloc_peer(segment, i);

        if (r < 0)
            return r;
        participant->slot = i;
        if (peer_slot_claim(segment_peer(segment, i), self_id, &participant->peer_id))
            return 0;
    }
    return -EUSERS;
}

/* Takes slot `i` over if its process is dead, or claims it if it has become free. Returns 1; 0 (the
 * process is alive); or -EAGAIN (another process has changed the slot meanwhile). The doorbells of
 * the dead process go first: they have the name of a process that no other will look for. */
static int participant_take_slot(struct participant *participant, uint32_t i, uint64_t self_id)
{
    const struct segment *segment = participant->segment;
    struct peer_slot *slot = segment_peer(segment, i);
    uint64_t id = atomic_load_explicit(&slot->id, memory_order_seq_cst);

    participant->slot = i;
    if (!peer_id_pid(id))
        return peer_slot_claim(slot, self_id, &participant->peer_id) ? 1 : -EAGAIN;
    if (!peer_id_is_dead(id))
        return 0;
    doorbell_remove(segment->directory_fd, segment->doorbell_stem, peer_key_make(id, i),
                    shm_load_seq_cst(&slot->doorbells));
    SCHED_POINT();
    return peer_slot_take_over(slot, id, self_id, &participant->peer_id) ? 1 : -EAGAIN;
}

/* Returns whether another process has found just now that no slot is of a dead one. The time may be
 * anything in a damaged segment. Relaxed: it is a hint. */
static bool participant_is_known_full(const struct segment *segment, uint64_t now_ns)
{
    uint64_t full_ns = shm_load_relaxed(&segment_header(segment)->full_ns);

    return full_ns <= now_ns && now_ns - full_ns < PARTICIPANT_FULL_NS;
}

/* Takes over the slot of a dead process. Begins anywhere, lest several processes want the same one.
 * Returns 0; -EUSERS (all are alive); or -EAGAIN (slots were changed meanwhile). */
static int participant_take_dead_slot(struct participant *participant, uint64_t self_id)
{
    const struct segment *segment = participant->segment;
    uint32_t n = segment_peers_n(segment), first = (uint32_t)os_random();
    uint64_t now_ns = os_now_ns();
    bool changed = false;

    if (participant_is_known_full(segment, now_ns))
        return -EUSERS;
    for (uint32_t i = 0; i < n; i++) {
        int r = participant_take_slot(participant, (first + i) % n, self_id);

        if (r > 0)
            return 0;
        changed |= r < 0;
    }
    if (changed)
        return -EAGAIN;
    shm_store_relaxed(&segment_header(segment)->full_ns, now_ns); /* a hint */
    return -EUSERS;
}

/* Claims a free slot, or that of a dead process. The latter also if the file system is full. */
static int participant_find_slot(struct participant *participant, uint64_t self_id)
{
    int r = 0, taken = -EAGAIN;

    for (int i = 0; i < PARTICIPANT_SLOT_TRIES && taken == -EAGAIN; i++) {
        r = participant_find_free_slot(participant, self_id);
        taken = r < 0 ? participant_take_dead_slot(participant, self_id) : 0;
    }
    return taken == 0 ? 0 : r;
}

/* Claims a slot and confirms the attach. Returns -ESTALE if the segment was removed meanwhile. */
static int participant_claim_slot(struct participant *participant, uint64_t self_id)
{
    struct segment *segment = participant->segment;
    int r = participant_find_slot(participant, self_id);

    if (r < 0)
        return r;
    participant->peer_key = peer_key_make(participant->peer_id, participant->slot);
    participant->peer_id_at = &segment_peer(segment, participant->slot)->id;
    atomic_store_explicit(&segment_peer(segment, participant->slot)->doorbells, 0,
                          memory_order_seq_cst); /* those of earlier owners are gone */
    atomic_fetch_add_explicit(&segment_header(segment)->registrations, 1, memory_order_seq_cst);
    SCHED_POINT();
    r = segment_confirm_attach(segment);
    if (r == 0 && nameless_segment_is(segment))
        r = -ESTALE; /* removed by another program: later ones make it anew, and so does this one */
    if (r < 0)
        peer_slot_free(segment_peer(segment, participant->slot), participant->peer_id);
    return r;
}

/* Claims a thread context or a run if its owner is 0. Relaxed load: only a filter. */
static bool participant_claim_owner(_Atomic uint64_t *owner, uint32_t peer_key)
{
    WEIR_INVARIANT(peer_key != 0);
    return !shm_load_relaxed(owner) && shm_cas_seq_cst(owner, 0, peer_key);
}

/*
 * Starts a new generation, which no recovering thread can have read under the dead owner:
 * 1. A ends generation g of the dead thread, so g + 1 is current.
 * 2. B reads g + 1 and still finds the dead owner's key.
 * 3. A releases the thread context, and C claims it.
 * 4. B recovers g + 1. Since C uses g + 2, that does nothing to C.
 */
static void participant_begin_generation(struct segment_thread *ctx)
{
    atomic_fetch_add_explicit(&ctx->head.generation, 1, memory_order_seq_cst);
    SCHED_POINT();
}

/* Releases a thread context, run or announcement slot that still has this owner; of a dead process
 * also if the owner was in its slot before. Relaxed load: only a filter. */
static void participant_release_owner(_Atomic uint64_t *owner, uint32_t peer_key, bool is_dead)
{
    uint64_t value = shm_load_relaxed(owner);

    if (value == peer_key || (is_dead && peer_key_is_until((uint32_t)value, peer_key)))
        shm_cas_seq_cst(owner, value, 0);
}

/* Notes that thread context `i` is this participant's. Returns 0 or -EUCLEAN. */
static int participant_note_thread(struct participant *participant, uint32_t i)
{
    uint64_t *own = &participant->own_threads[i / 64], bit = UINT64_C(1) << i % 64;

    if (*own & bit) {
        participant_mark_broken(participant); /* a peer has released it, and perhaps used it */
        return -EUCLEAN;
    }
    *own |= bit;
    return 0;
}

/* Releases a thread context as participant_release_owner(). One that was taken over and not
 * recovered goes back to the dead process. */
static void participant_release_thread(_Atomic uint64_t *owner, uint32_t peer_key, bool is_dead)
{
    uint64_t value = atomic_load_explicit(owner, memory_order_seq_cst);

    if (!is_dead && (uint32_t)value == peer_key && value != peer_key)
        shm_cas_seq_cst(owner, value, value >> 32);
    else
        participant_release_owner(owner, peer_key, is_dead);
}

int participant_claim_thread(struct participant *participant, uint32_t *ret)
{
    const struct segment *segment = participant->segment;

    for (uint32_t i = 0; i < segment->layout.sizes.threads_n; i++) {
        int r = i < segment_threads_n(segment) ? 0 : segment_alloc_thread(segment, i);

        if (r < 0)
            return r;
        if (!participant_claim_owner(&segment_thread(segment, i)->peer_key, participant->peer_key))
            continue;
        r = participant_note_thread(participant, i);
        if (r == 0)
            participant_begin_generation(segment_thread(segment, i));
        *ret = i;
        return r;
    }
    return -ENOSPC;
}

/* Returns whether the process of an owner key is dead, in its slot or replaced in it. */
static bool participant_key_is_dead(const struct segment *segment, uint32_t peer_key)
{
    uint64_t id = peer_slot_find(segment_peer(segment, 0), segment_peers_n(segment), peer_key);
    uint32_t slot = peer_key % SEGMENT_PEERS_MAX;

    if (id)
        return peer_id_is_dead(id);
    id = peer_slot_predecessor(segment_peer(segment, slot));
    return id && peer_key_is_until(peer_key, peer_key_make(id, slot));
}

/* Takes a thread context over from a dead process. Returns 0; -ENOSPC (all are alive); -EAGAIN
 * (contexts were released meanwhile); or -EUCLEAN. */
static int participant_take_dead_thread(struct participant *participant, uint32_t *ret)
{
    const struct segment *segment = participant->segment;
    uint32_t living = participant->peer_key; /* the last one that was found alive */
    bool changed = false;

    for (uint32_t i = 0; i < segment_threads_n(segment); i++) {
        _Atomic uint64_t *owner = &segment_thread(segment, i)->peer_key;
        uint64_t value = shm_load_relaxed(owner); /* only a filter */
        uint32_t peer_key = (uint32_t)value;

        changed |= peer_key == 0;
        if (!peer_key || peer_key == living)
            continue;
        if (!participant_key_is_dead(segment, peer_key)) {
            living = peer_key;
            continue;
        }
        if (shm_cas_seq_cst(owner, value, thread_owner_make(peer_key, participant->peer_key))) {
            *ret = i;
            return participant_note_thread(participant, i);
        }
        changed = true;
    }
    return changed ? -EAGAIN : -ENOSPC;
}

int participant_claim_spare_thread(struct participant *participant, uint32_t *ret,
                                   bool *ret_is_inherited)
{
    int r = 0, taken = -EAGAIN;

    *ret_is_inherited = false;
    for (int i = 0; i < PARTICIPANT_SLOT_TRIES && taken == -EAGAIN; i++) {
        r = participant_claim_thread(participant, ret);
        if (r == 0 || r == -EUCLEAN)
            return r;
        taken = participant_take_dead_thread(participant, ret);
    }
    *ret_is_inherited = taken == 0;
    return taken == 0 || taken == -EUCLEAN ? taken : r;
}

/* The owner first: from then on no other process begins to recover the context. */
void participant_settle_thread(const struct participant *participant, uint32_t i)
{
    struct segment_thread *ctx = segment_thread(participant->segment, i);
    uint64_t value = atomic_load_explicit(&ctx->peer_key, memory_order_seq_cst);

    WEIR_INVARIANT((uint32_t)value == participant->peer_key);
    shm_cas_seq_cst(&ctx->peer_key, value, participant->peer_key);
    SCHED_POINT();
    participant_begin_generation(ctx);
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
    uint32_t timer = wait_target_cq(record_wait_target(record_at(&participant->region, record)));
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
    const struct acq_record *r = record_at(&participant->region, record);
    uint32_t target = record_wait_target(r), peer_key = participant_owner_key(participant, record);

    if (wait_target_kind(target) == WAIT_TARGET_FUTEX)
        os_futex_wake(record_futex(r), true);
    else if (peer_key)
        doorbell_ring(participant->segment->directory_fd, participant->segment->doorbell_stem,
                      peer_key, wait_target_cq(target), record);
}

/* ---- doorbells ---- */

/* The number of the timer is announced first, so that a cleanup after this process knows it. */
int participant_open_doorbell(const struct participant *participant, uint32_t timer)
{
    const struct segment *segment = participant->segment;

    shm_raise_seq_cst(&segment_peer(segment, participant->slot)->doorbells, timer + UINT64_C(1));
    return doorbell_open(segment->directory_fd, segment->doorbell_stem, participant->peer_key,
                         timer);
}

void participant_close_doorbell(const struct participant *participant, uint32_t timer, int fd)
{
    const struct segment *segment = participant->segment;

    doorbell_close(segment->directory_fd, fd, segment->doorbell_stem, participant->peer_key, timer);
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
    participant_release_slots(participant->segment, participant->slot, participant->peer_id, false);
    if (participant->segment->while_used)
        segment_remove_if_unused(participant->segment, segment_has_users);
    for (uint32_t run = 0; run < participant_proxies_end(participant); run++)
        os_free(atomic_load_explicit(&participant->proxies[run], memory_order_seq_cst));
    os_free((void *)(uintptr_t)participant->proxies);
    os_free(participant->free_records);
    peer_watch_close(&participant->peer_watch);
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
    participant->proxies =
        os_alloc(participant->segment->layout.sizes.runs_n, sizeof(*participant->proxies));
    r = peer_watch_open(&participant->peer_watch, self_id, participant->slot);
    if (r == 0)
        r = region_open_segment(&participant->region, participant->segment, &participant->broken);
    if (r == 0 && !participant->proxies)
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
    peer_watch_close(&participant->peer_watch);
    segment_close_in_child(participant->segment);
}
