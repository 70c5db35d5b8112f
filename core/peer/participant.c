/* SPDX-License-Identifier: MIT */
/* Members: see member.h. */
#include "peer/participant.h"

#include "api/instance.h"
#include "base/mutant.h"
#include "base/sched_point.h"
#include "os/os.h"
#include "shm/doorbell.h"
#include "shm/peer_id.h"
#include "state/acq_record.h"
#include "state/detectable_cas.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define KEPT  (UINT32_C(1) << 31)
#define TRIES 16 /* at a segment that is being removed again and again */

/* ---- places in the segment ---- */

/* The first free place. -EUSERS: there is none. */
static int find_place(struct member *member, uint64_t self)
{
    struct segment *segment = member->segment;

    for (uint32_t n = segment_processes_n(segment) + !segment_processes_n(segment);
         n <= SEGMENT_PROCESSES_MAX; n++) {
        int r = segment_commit_process(segment, n - 1);

        if (r < 0)
            return r;
        STEP();
        r = process_claim(segment_process(segment, 0), n, self, &member->slot, &member->life);
        if (r != -ENOSPC)
            return r;
    }
    return -EUSERS;
}

/* Claims a place among the processes. -ESTALE: the segment is gone meanwhile. */
static int claim_place(struct member *member, uint64_t self)
{
    struct segment *segment = member->segment;
    int r = find_place(member, self);

    if (r < 0)
        return r;
    member->key = process_key(member->life, member->slot);
    member->life_at = &segment_process(segment, member->slot)->life;
    atomic_fetch_add(&segment_header(segment)->registrations, 1);
    STEP();
    r = segment_admit(segment);
    if (r < 0)
        process_release(segment_process(segment, member->slot), member->life);
    return r;
}

/* Whose key is in a word that says who owns something; 0: nobody's. */
static bool claim(_Atomic uint64_t *owner, uint32_t key)
{
    uint64_t nobody = 0;

    if (atomic_load_explicit(owner, memory_order_relaxed))
        return false;
    STEP();
    return atomic_compare_exchange_strong(owner, &nobody, key);
}

/*
 * It begins a life of its own, which no recoverer can have read while the actor was still that of
 * the dead: one may have ended the life before, and another be about to recover what came after it.
 */
static void begin_life(struct segment_actor *actor)
{
    STEP();
    atomic_fetch_add(&actor->head.generation, !MUTANT(340));
    STEP();
}

static void give_back(_Atomic uint64_t *owner, uint32_t key)
{
    uint64_t mine = key;

    if (atomic_load_explicit(owner, memory_order_relaxed) == key)
        atomic_compare_exchange_strong(owner, &mine, 0);
    STEP();
}

/* What is ours was free: somebody has given it back, and may have it, too. */
static int lose(struct member *member)
{
    member_break(member);
    return -EUCLEAN;
}

int member_claim_actor(struct member *member, uint32_t *ret_unit, struct counters **ret_counters)
{
    const struct segment *segment = member->segment;

    for (uint32_t i = 0; i < segment->layout.actors_n; i++) {
        int r = i < segment_actors_n(segment) ? 0 : segment_commit_actor(segment, i);

        if (r < 0)
            return r;
        if (!claim(&segment_actor(segment, i)->process, member->key))
            continue;
        if (member->actors[i / 64] >> i % 64 & 1)
            return lose(member);
        member->actors[i / 64] |= UINT64_C(1) << i % 64;
        begin_life(segment_actor(segment, i));
        *ret_unit = segment_actor_unit(segment, i);
        *ret_counters = segment_actor_counters(segment, i);
        return 0;
    }
    return -ENOSPC;
}

/* Room for the records of one more run. */
static int make_room(struct member *member, uint32_t n)
{
    uint32_t capacity = member->free_capacity + n;
    uint32_t *grown = sys_grow(member->free, capacity, sizeof(*grown));

    if (!grown)
        return -ENOMEM;
    member->free = grown;
    member->free_capacity = capacity;
    return 0;
}

/* The run is ours from here on: room for the stand-ins of its records. */
static int make_places(struct member *member, uint32_t run, uint32_t n)
{
    _Atomic uint32_t *kept = sys_alloc(n, sizeof(*kept));

    if (!kept)
        return -ENOMEM;
    atomic_store_explicit(&member->kept[run], kept, memory_order_release);
    if (run >= member->kept_end)
        member->kept_end = run + 1;
    return 0;
}

/* What a record was before does not matter, but that it is free. */
static void add_records(struct member *member, uint32_t run)
{
    uint32_t units = member->segment->layout.record_units;

    for (uint32_t at = SEGMENT_RUN_UNITS / units; at-- > 0;) {
        uint32_t record = run * SEGMENT_RUN_UNITS + at * units;
        const struct record *r = record_at(&member->region, record);

        if (record_state(record_load(&r->word)) == RECORD_FREE)
            member->free[member->free_n++] = record;
    }
}

static int claim_run(struct member *member)
{
    const struct segment *segment = member->segment;
    uint32_t n = SEGMENT_RUN_UNITS / segment->layout.record_units;

    for (uint32_t run = 1; run < segment->layout.runs_n; run++) {
        _Atomic uint64_t *owner = segment_run_owner(segment, run);
        int r = run < segment_runs_n(segment) ? 0 : segment_commit_run(segment, run);

        if (r < 0)
            return r;
        if (atomic_load_explicit(owner, memory_order_relaxed))
            continue; /* also if it is given back right now: there may be no room for it */
        r = make_room(member, n);
        if (r < 0)
            return r;
        if (!claim(owner, member->key))
            continue;
        STEP();
        if (atomic_load(&member->kept[run]))
            return lose(member);
        r = make_places(member, run, n);
        if (r < 0) {
            give_back(owner, member->key);
            return r;
        }
        add_records(member, run);
        return 0;
    }
    return -ENOSPC;
}

uint32_t member_get_record(struct member *member)
{
    while (!member->free_n)
        if (claim_run(member) < 0)
            return 0;
    return member->free[--member->free_n];
}

void member_put_record(struct member *member, uint32_t record)
{
    member->free[member->free_n++] = record;
}

/* The key of the process whose record it is; 0: nobody's. */
static uint32_t owner_key(const struct member *member, uint32_t record)
{
    const struct segment *segment = member->segment;
    uint32_t run = record / SEGMENT_RUN_UNITS;

    if (run >= segment->layout.runs_n)
        return 0;
    return (uint32_t)atomic_load_explicit(segment_run_owner(segment, run), memory_order_acquire);
}

bool member_owns(const struct member *member, uint32_t record)
{
    return owner_key(member, record) == member->key;
}

uint32_t member_owner(const struct member *member, uint32_t record)
{
    const struct segment *segment = member->segment;
    uint32_t key = owner_key(member, record);

    if (!key)
        return 0;
    return process_pid(
        process_find(segment_process(segment, 0), segment_processes_n(segment), key));
}

/* A wake is a hint: what was decided is in the segment. Whoever is not there does not wait. */
void member_call(const struct member *member, uint32_t record)
{
    const struct record *r = record_at(&member->region, record);
    uint32_t waker = record_waker(r), key = owner_key(member, record);

    if (waker_kind(waker) == RECORD_WAKE_FUTEX)
        sys_futex_wake_shared(record_futex(r), 1);
    else if (key)
        bell_ring(member->segment->directory_fd, member->segment->encoded, key, waker_queue(waker),
                  record);
}

void member_break(struct member *member)
{
    atomic_store(&member->broken, true);
}

void member_tell_broken(struct member *member)
{
    if (!atomic_load(&member->told) && !atomic_exchange(&member->told, true))
        instance_log(member->w, WEIR_LOG_ERROR,
                     "the segment of set `%s` is damaged: remove it with `weir rm`",
                     member->segment->encoded);
}

/* ---- stand-ins ---- */

static _Atomic uint32_t *kept_place(const struct member *member, uint32_t record)
{
    _Atomic uint32_t *places;

    if (!segment_has_record(member->segment, record))
        return NULL;
    places = atomic_load_explicit(&member->kept[record / SEGMENT_RUN_UNITS], memory_order_acquire);
    return places ? &places[record % SEGMENT_RUN_UNITS / member->segment->layout.record_units]
                  : NULL;
}

static uint32_t load_place(const _Atomic uint32_t *place)
{
    return place ? atomic_load_explicit(place, memory_order_acquire) : 0;
}

uint32_t member_stand_in(const struct member *member, uint32_t record)
{
    return load_place(kept_place(member, record)) & ~KEPT;
}

uint32_t member_kept(const struct member *member, uint32_t record)
{
    uint32_t place = load_place(kept_place(member, record));

    return place & KEPT ? place & ~KEPT : 0;
}

void member_set_kept(struct member *member, uint32_t record, uint32_t stand_in, bool kept)
{
    atomic_store_explicit(kept_place(member, record), stand_in | (kept ? KEPT : 0),
                          memory_order_release);
}

void member_each_kept(const struct member *member,
                      void (*each)(void *userdata, uint32_t record, uint32_t kept), void *userdata)
{
    const struct segment *segment = member->segment;
    uint32_t units = segment->layout.record_units;

    for (uint32_t run = 1; run < member->kept_end; run++) {
        _Atomic uint32_t *places = atomic_load(&member->kept[run]);

        for (uint32_t i = 0; places && i < SEGMENT_RUN_UNITS / units; i++) {
            uint32_t place = load_place(&places[i]);

            if (place & KEPT)
                each(userdata, run * SEGMENT_RUN_UNITS + i * units, place & ~KEPT);
        }
    }
}

/* ---- coming and going ---- */

static void free_parts(struct member *member)
{
    for (uint32_t run = 0; run < member->kept_end; run++)
        sys_free(atomic_load(&member->kept[run]));
    sys_free((void *)(uintptr_t)member->kept);
    sys_free(member->free);
    watch_close(&member->watch);
    pthread_mutex_destroy(&member->watch_lock);
    if (member->region.segment)
        region_close(&member->region);
    segment_close(member->segment);
    sys_free(member);
}

static int open_once(struct member *member, const char *directory,
                     const struct segment_shape *shape, uint64_t self, struct weir_error *reterr)
{
    int r = segment_open(directory, shape, &member->segment, reterr);

    if (r < 0)
        return r;
    r = claim_place(member, self);
    if (r == 0)
        return 0;
    segment_close(member->segment);
    member->segment = NULL;
    if (r == -ESTALE)
        return r;
    if (r == -EUSERS)
        return error_set(reterr, r, "set `%s`: no more than %u processes can share it, and %s",
                         shape->name, SEGMENT_PROCESSES_MAX, "so many do");
    return error_set(reterr, r, "set `%s`: its segment cannot be entered: %s", shape->name,
                     strerrordesc_np(-r));
}

static int enter(struct member *member, const char *directory, const struct segment_shape *shape,
                 uint64_t *ret_self, struct weir_error *reterr)
{
    int r = process_self(ret_self);

    if (r < 0)
        return error_set(reterr, r, "set `%s`: this process cannot be told from others: %s",
                         shape->name, strerrordesc_np(-r));
    for (int i = 0; i < TRIES; i++) {
        r = open_once(member, directory, shape, *ret_self, reterr);
        if (r != -ESTALE)
            return r;
    }
    return error_set(reterr, -EBUSY, "set `%s`: its segment is removed again and again",
                     shape->name);
}

static void leave(struct member *member);

int member_open(weir *w, const char *directory, const struct segment_shape *shape,
                struct member **ret, struct weir_error *reterr)
{
    struct member *member = sys_alloc(1, sizeof(*member));
    uint64_t self;
    int r;

    if (!member)
        return error_set(reterr, -ENOMEM, "out of memory");
    member->w = w;
    r = enter(member, directory, shape, &self, reterr);
    if (r < 0) {
        sys_free(member);
        return r;
    }
    pthread_mutex_init(&member->watch_lock, NULL);
    r = watch_open(&member->watch, self);
    if (r == 0)
        r = region_of_segment(&member->region, member->segment, &member->broken);
    if (r == 0) {
        member->kept = sys_alloc(member->segment->layout.runs_n, sizeof(*member->kept));
        r = member->kept ? 0 : -ENOMEM;
    }
    if (r < 0) {
        leave(member);
        free_parts(member);
        return error_set(reterr, r, "set `%s`: %s", shape->name, strerrordesc_np(-r));
    }
    *ret = member;
    return 0;
}

void member_release_places(const struct segment *segment, uint32_t slot, uint64_t life)
{
    uint32_t key = process_key(life, slot);

    for (uint32_t run = 1; run < segment_runs_n(segment) && !MUTANT(321); run++)
        give_back(segment_run_owner(segment, run), key);
    for (uint32_t i = 0; i < segment_actors_n(segment); i++)
        give_back(&segment_actor(segment, i)->process, key);
    if (!MUTANT(574))
        ledger_release_seats(&segment_header(segment)->seats, key);
    process_release(segment_process(segment, slot), life);
    STEP();
}

/* The last one out removes what is there for its users only. */
static void leave(struct member *member)
{
    member_release_places(member->segment, member->slot, member->life);
    if (member->segment->while_used && !MUTANT(331))
        segment_retire(member->segment, segment_has_users, NULL);
}

void member_close(struct member *member)
{
    if (!member)
        return;
    leave(member);
    free_parts(member);
}

void member_close_in_child(struct member *member)
{
    watch_close(&member->watch);
    sys_close(member->segment->fd);
    sys_close(member->segment->directory_fd);
}
