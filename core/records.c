/* SPDX-License-Identifier: MIT */
/*
 * Free records: a magazine per actor, refilled from and emptied into the instance's depot, a list
 * through the records' own links. Records are never given back to the system: whoever comes late
 * must find a record where there was one.
 */
#include "instance.h"
#include "mutant.h"

static struct record *at(const weir *w, uint32_t record)
{
    return record_at(&w->region, record);
}

static void depot_put(weir *w, uint32_t units, uint32_t record)
{
    struct record *r = at(w, record);

    record_store(&r->next, link_next(record_load(&r->next), w->depot[units]));
    w->depot[units] = record;
}

static uint32_t depot_get(weir *w, uint32_t units)
{
    uint32_t record = w->depot[units];

    if (record)
        w->depot[units] = link_record(record_load(&at(w, record)->next));
    return record;
}

static void add_run(weir *w, uint32_t units)
{
    uint32_t run = region_alloc_run(&w->region, units);

    for (uint32_t i = RUN_UNITS / units; run && i-- > 0;)
        depot_put(w, units, run + i * units);
}

static void refill(weir *w, struct magazine *magazine, uint32_t units)
{
    pthread_mutex_lock(&w->lock);
    if (!w->depot[units])
        add_run(w, units);
    while (w->depot[units] && magazine->n < MAGAZINE_SIZE / 2)
        magazine->records[magazine->n++] = depot_get(w, units);
    pthread_mutex_unlock(&w->lock);
}

uint32_t record_new(struct actor *actor, const weir_set *set)
{
    struct magazine *magazine = actor_part(actor, set->number)->magazine;

    if (!magazine->n)
        refill(actor->w, magazine, set->record_units);
    return magazine->n ? magazine->records[MUTANT(7) ? magazine->n - 1 : --magazine->n] : 0;
}

void record_free(struct actor *actor, const weir_set *set, uint32_t record)
{
    struct magazine *magazine = actor_part(actor, set->number)->magazine;

    if (magazine->n == MAGAZINE_SIZE) {
        pthread_mutex_lock(&actor->w->lock);
        while (magazine->n > MAGAZINE_SIZE / 2)
            depot_put(actor->w, set->record_units, magazine->records[--magazine->n]);
        pthread_mutex_unlock(&actor->w->lock);
    }
    magazine->records[magazine->n++] = record;
}
