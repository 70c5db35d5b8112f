/* SPDX-License-Identifier: MIT */
/*
 * Free records: a magazine per actor, refilled from and emptied into a depot: the instance's, a
 * list through the records' own links, or that of a member. Records are never given back to the
 * system: whoever comes late must find a record where there was one.
 */
#include "kept.h"
#include "member.h"
#include "mutant.h"
#include "sys.h"

/* Stand-ins have a depot of their own, for they stay stand-ins. */
#define STAND_INS 0u

static struct record *at(const weir *w, uint32_t record)
{
    return record_at(&w->region, record);
}

static void depot_put(weir *w, uint32_t depot, uint32_t record)
{
    struct record *r = at(w, record);

    record_store(&r->next, link_next(record_load(&r->next), w->depot[depot]));
    w->depot[depot] = record;
}

static uint32_t depot_get(weir *w, uint32_t depot)
{
    uint32_t record = w->depot[depot];

    if (record && !MUTANT(7))
        w->depot[depot] = link_record(record_load(&at(w, record)->next));
    return record;
}

static void add_run(weir *w, uint32_t depot)
{
    uint32_t units = depot == STAND_INS ? record_units(0) : depot;
    uint32_t run = region_alloc_run(&w->region, units);

    for (uint32_t i = RUN_UNITS / units; run && i-- > 0;)
        depot_put(w, depot, run + i * units);
}

static void refill(weir *w, struct magazine *magazine, uint32_t depot)
{
    pthread_mutex_lock(&w->lock);
    if (!w->depot[depot])
        add_run(w, depot);
    while (w->depot[depot] && magazine->n < MAGAZINE_SIZE / 2)
        magazine->records[magazine->n++] = depot_get(w, depot);
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
    if (!w->depot[STAND_INS])
        add_run(w, STAND_INS);
    kept = depot_get(w, STAND_INS);
    pthread_mutex_unlock(&w->lock);
    return kept;
}

static void stand_in_fill(struct record *r, const weir_set *set, uint32_t record)
{
    record_store(&r->next, link_next(record_load(&r->next), record));
    record_store(&r->set, (uint64_t)set->number << 32);
    record_set_before(r, 0);
    r->after = r->timer = 0;
    r->data = 0;
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
