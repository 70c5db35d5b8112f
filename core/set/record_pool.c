/* SPDX-License-Identifier: MIT */
/*
 * Pools of free records: a magazine per thread context, refilled from and drained into a depot
 * (compare Bonwick and Adams, USENIX 2001). A private set uses the depot of the instance: a list
 * linked through the records, then the unused rest of a run. A shared set uses that of its
 * participant. Records are never unmapped: a late reader must find a record where there was one.
 */
#include "base/invariant.h"
#include "base/sched_point.h"
#include "set/hooks.h"
#include "set/waiter.h"
#include "shm/participant.h"

/* The depot of proxy records, which never become records of another kind. */
#define PROXY_RECORDS 0u

static void record_depot_put(weir *w, uint32_t depot, uint32_t record)
{
    struct acq_record *r = record_at(&w->region, record);

    WEIR_INVARIANT(depot <= RECORD_UNITS_MAX && record && record != w->depot[depot].first);
    WEIR_INVARIANT(record_state(record_load(&r->word)) == RECORD_FREE);
    record_store(&r->next, record_link_next(record_load(&r->next), w->depot[depot].first));
    w->depot[depot].first = record;
}

/* Returns a record that was never used, or 0. Nothing was written to it, so its memory is not yet
 * allocated. */
static uint32_t record_pool_get_unused(weir *w, uint32_t depot)
{
    uint32_t units = depot == PROXY_RECORDS ? record_units(0) : depot;
    struct record_depot *from = &w->depot[depot];
    uint32_t record;

    if (!from->fresh_n) {
        from->fresh = region_alloc_run(&w->region, units);
        if (!from->fresh)
            return 0;
        from->fresh_n = RUN_UNITS / units;
    }
    WEIR_INVARIANT(from->fresh && from->fresh_n <= RUN_UNITS / units);
    record = from->fresh;
    from->fresh += units;
    from->fresh_n--;
    return record;
}

/* Returns a free record, or 0 if out of memory. The caller holds the instance's lock. */
static uint32_t record_depot_get(weir *w, uint32_t depot)
{
    uint32_t record = w->depot[depot].first;

    if (!record)
        return record_pool_get_unused(w, depot);
    w->depot[depot].first = record_link_target(record_load(&record_at(&w->region, record)->next));
    return record;
}

/* Returns a free record for the set: of the instance, or of the segment, where this process owns it
 * then; or 0. The caller holds the lock. */
static uint32_t record_pool_take(const weir_set *set)
{
    return set_is_shared(set) ? participant_get_record(set->participant)
                              : record_depot_get(set->w, set->record_units);
}

/* Fills the magazine to one half. The record that leaves the depot first also leaves the magazine
 * first, so that unused records are used in order of address. */
static bool magazine_fill(const weir_set *set, struct magazine *magazine)
{
    uint32_t records[MAGAZINE_SIZE / 2], n = 0;

    WEIR_INVARIANT(!magazine->n);
    pthread_mutex_lock(&set->w->lock);
    while (n < MAGAZINE_SIZE / 2 && (records[n] = record_pool_take(set)) != 0)
        n++;
    pthread_mutex_unlock(&set->w->lock);
    while (n > 0)
        magazine->records[magazine->n++] = records[--n];
    return magazine->n;
}

/* Dead processes may have the records that a segment lacks. */
bool magazine_refill(struct thread_ctx *ctx, weir_set *set, struct magazine *magazine)
{
    WEIR_INVARIANT(ctx->w == set->w);
    if (magazine_fill(set, magazine))
        return true;
    if (!set_is_shared(set))
        return false;
    peer_make_room(ctx, set);
    return magazine_fill(set, magazine);
}

void magazine_drain(const weir_set *set, struct magazine *magazine)
{
    WEIR_INVARIANT(magazine->n == MAGAZINE_SIZE);
    pthread_mutex_lock(&set->w->lock);
    while (magazine->n > MAGAZINE_SIZE / 2) {
        uint32_t record = magazine->records[--magazine->n];

        if (set_is_shared(set))
            participant_put_record(set->participant, record);
        else
            record_depot_put(set->w, set->record_units, record);
    }
    pthread_mutex_unlock(&set->w->lock);
}

static void proxy_record_init(struct acq_record *r, const weir_set *set, uint32_t record)
{
    record_store(&r->next, record_link_next(record_load(&r->next), record));
    shm_store_release(&r->set, (uint64_t)set->number << 32);
    /* Now: it may be decided before anything waits on it. */
    record_set_wait_target(r, WAIT_TARGET_FUTEX, 0, WAIT_TARGET_PROXY);
    record_set_prev_flags(r, 0);
    r->bucket_next = r->heap_index = 0;
    record_store(&r->data, 0);
    record_store(&r->enqueued_ns, 0); /* of a submission: not yet enqueued */
    record_store(&r->deadline_ns, WEIR_FOREVER);
}

uint32_t proxy_record_acquire(const weir_set *set, uint32_t record)
{
    uint32_t waiter = participant_proxy(set->participant, record);

    WEIR_INVARIANT(!participant_waiter(set->participant, record));
    if (!waiter) {
        /* It refers to this record for ever, so that one word tells the lives of both apart. */
        pthread_mutex_lock(&set->w->lock);
        waiter = record_depot_get(set->w, PROXY_RECORDS);
        pthread_mutex_unlock(&set->w->lock);
    }
    if (!waiter)
        return 0;
    proxy_record_init(waiter_at(set->w, waiter), set, record);
    participant_set_proxy(set->participant, record, waiter, true);
    return waiter;
}

void proxy_record_release(const weir_set *set, uint32_t waiter)
{
    WEIR_INVARIANT(waiter_is_proxy(waiter_at(set->w, waiter)));
    participant_set_proxy(set->participant, waiter_record(set->w, waiter), waiter, false);
}

void proxy_record_set_target(const weir_set *set, uint32_t waiter, enum wait_target_kind wake,
                             uint32_t queue, bool strict)
{
    struct acq_record *r = waiter_at(set->w, waiter);
    uint32_t record = record_link_target(record_load(&r->next));

    record_set_wait_target(record_at(set->region, record), wake, queue, 0);
    SCHED_POINT();
    record_set_wait_target(r, wake, queue, WAIT_TARGET_PROXY | (strict ? WAIT_TARGET_STRICT : 0));
}
