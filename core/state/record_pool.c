/* SPDX-License-Identifier: MIT */
/*
 * Free records: a magazine per actor, refilled from and emptied into a depot: the instance's, a
 * list through the records' own links and then what was never used of a run, or that of a member.
 * Records are never given back to the system: whoever comes late must find a record where there was
 * one.
 */
#include "base/mutant.h"
#include "os/os.h"
#include "peer/participant.h"
#include "wait/waiter.h"

/* Stand-ins have a depot of their own, for they stay stand-ins. */
#define STAND_INS 0u

static struct record *at(const weir *w, uint32_t record)
{
    return record_at(&w->region, record);
}

static void depot_put(weir *w, uint32_t depot, uint32_t record)
{
    struct record *r = at(w, record);

    record_store(&r->next, link_next(record_load(&r->next), w->depot[depot].first));
    w->depot[depot].first = record;
}

static bool add_run(weir *w, uint32_t depot, uint32_t units)
{
    uint32_t run = region_alloc_run(&w->region, units);

    if (!run)
        return false;
    w->depot[depot].fresh = run;
    w->depot[depot].fresh_n = RUN_UNITS / units;
    return true;
}

/* One that was never used. Nothing is written there before, so it takes no memory until then. */
static uint32_t get_fresh(weir *w, uint32_t depot)
{
    uint32_t units = depot == STAND_INS ? record_units(0) : depot;
    struct depot *from = &w->depot[depot];
    uint32_t record;

    if (!from->fresh_n && !add_run(w, depot, units))
        return 0;
    record = from->fresh;
    from->fresh += units;
    from->fresh_n--;
    return record;
}

/* 0: out of memory. */
static uint32_t depot_get(weir *w, uint32_t depot)
{
    uint32_t record = w->depot[depot].first;

    if (!record)
        return get_fresh(w, depot);
    if (!MUTANT(7))
        w->depot[depot].first = link_record(record_load(&at(w, record)->next));
    return record;
}

/* The first one that comes from the depot is the first to be used: what was never used is then used in
 * the order in which it lies in memory. */
static void refill(weir *w, struct magazine *magazine, uint32_t depot)
{
    uint32_t records[MAGAZINE_SIZE / 2], n = 0;

    pthread_mutex_lock(&w->lock);
    while (magazine->n + n < MAGAZINE_SIZE / 2 && (records[n] = depot_get(w, depot)) != 0)
        n++;
    while (n > 0)
        magazine->records[magazine->n++] = records[--n];
    pthread_mutex_unlock(&w->lock);
}

static void empty(weir *w, struct magazine *magazine, uint32_t depot)
{
    pthread_mutex_lock(&w->lock);
    while (magazine->n > MAGAZINE_SIZE / 2)
        depot_put(w, depot, magazine->records[--magazine->n]);
    pthread_mutex_unlock(&w->lock);
}

/* The same with the records of a segment that are ours. */
static void refill_shared(weir *w, struct magazine *magazine, struct member *member)
{
    uint32_t record;

    pthread_mutex_lock(&w->lock);
    while (magazine->n < MAGAZINE_SIZE / 2 && (record = member_get_record(member)) != 0)
        magazine->records[magazine->n++] = record;
    pthread_mutex_unlock(&w->lock);
}

static void empty_shared(weir *w, struct magazine *magazine, struct member *member)
{
    pthread_mutex_lock(&w->lock);
    while (magazine->n > MAGAZINE_SIZE / 2)
        member_put_record(member, magazine->records[--magazine->n]);
    pthread_mutex_unlock(&w->lock);
}

bool magazine_refill(const weir_set *set, struct magazine *magazine)
{
    if (set->member)
        refill_shared(set->w, magazine, set->member);
    else
        refill(set->w, magazine, set->record_units);
    return magazine->n;
}

void magazine_empty(const weir_set *set, struct magazine *magazine)
{
    if (set->member)
        empty_shared(set->w, magazine, set->member);
    else
        empty(set->w, magazine, set->record_units);
}

/* A new stand-in, or 0. It is of one shared record for ever: so their words tell its lives apart. */
static uint32_t stand_in_new(weir *w)
{
    uint32_t kept;

    pthread_mutex_lock(&w->lock);
    kept = depot_get(w, STAND_INS);
    pthread_mutex_unlock(&w->lock);
    return kept;
}

static void stand_in_fill(struct record *r, const weir_set *set, uint32_t record)
{
    record_store(&r->next, link_next(record_load(&r->next), record));
    record_store(&r->set, (uint64_t)set->number << 32);
    record_set_stand_in(r, RECORD_WAKE_FUTEX, 0, false); /* it may end before anybody waits on it */
    record_set_before(r, 0);
    r->after = r->timer = 0;
    record_store(&r->data, 0);
    record_store(&r->since, 0); /* of a submission: it has not entered its set */
    record_store(&r->deadline_ns, WEIR_FOREVER);
}

uint32_t stand_in_begin(const weir_set *set, uint32_t record)
{
    uint32_t kept = member_stand_in(set->member, record);

    if (!kept)
        kept = stand_in_new(set->w);
    if (!kept)
        return 0;
    stand_in_fill(kept_at(set->w, kept), set, record);
    member_set_kept(set->member, record, kept, true);
    return kept;
}

void stand_in_end(const weir_set *set, uint32_t kept)
{
    member_set_kept(set->member, kept_record(set->w, kept), kept, false);
}
