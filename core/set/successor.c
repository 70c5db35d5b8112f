/* SPDX-License-Identifier: MIT */
/* Which limit of a set goes on as which of its successor's; amounts of one as amounts of the other.
 */
#include "base/invariant.h"
#include "os/os.h"
#include "set/instance_base.h"
#include "set/places.h"
#include "set/shadow.h"
#include "shm/participant.h"
#include "shm/segment_definition.h"
#include <string.h>

bool limit_is_same(const struct limit *a, const struct limit *b)
{
    if (a->capacity != b->capacity || a->state_words != b->state_words ||
        a->config_size != b->config_size)
        return false;
    return !a->config_size || memcmp(a->config, b->config, a->config_size) == 0;
}

bool limit_can_carry(const struct limit *from, const struct limit *to)
{
    if (from->type != to->type || from->algorithm != to->algorithm)
        return false;
    return !to->algorithm || to->algorithm->reconfigure || limit_is_same(from, to);
}

bool limit_is_unchanged(const struct limit *from, const struct limit *to)
{
    return limit_can_carry(from, to) && limit_is_same(from, to);
}

/* Connects each limit that is not connected yet with one of its key that is not either, and that
 * can. */
static void origin_connect(struct set_origin *origin, const struct limits *limits,
                           uint64_t *carried,
                           bool (*can)(const struct limit *from, const struct limit *to))
{
    const struct limits *before = &origin->predecessor->limits;

    for (uint32_t i = 0; i < limits->n; i++) {
        struct origin_limit *link = &origin->limits[i];

        for (uint32_t k = 0; k < before->n && !link->is_carried; k++) {
            if (strcmp(before->items[k].key, limits->items[i].key) != 0)
                continue;
            link->is_carried = !(*carried >> k & 1) && can(&before->items[k], &limits->items[i]);
            if (link->is_carried || link->from == ORIGIN_NONE)
                link->from = (uint8_t)k;
        }
        if (link->is_carried)
            *carried |= UINT64_C(1) << link->from;
    }
}

/* Connects each limit of a shared set with the one that had its place (places.h). */
static void origin_connect_shared(struct set_origin *origin, const struct limits *limits)
{
    const weir_set *before = origin->predecessor;

    for (uint32_t i = 0; i < limits->n; i++) {
        const struct limit *from = places_limit(before, i), *to = &limits->items[i];

        if (!from || limit_is_retired(to)) {
            origin->limits[i].from = ORIGIN_NONE;
            continue;
        }
        origin->limits[i] =
            (struct origin_limit){.from = (uint8_t)i,
                                  .is_carried = limit_can_carry(from, to),
                                  .began = before->origin ? before->origin->limits[i].began : 0};
    }
}

/* A grant of an inline rate, also in the word of a subject, may be stored late, when another rate
 * has the place. */
void successor_set_began(weir_set *set)
{
    for (uint32_t i = 0; i < set->limits.n; i++)
        if (!set->origin->limits[i].is_carried)
            set->origin->limits[i].began = set->head_unit;
}

/* Limits of one key are told apart by what they are, then by their order. One that can carry no
 * state is connected with the first one of its key. */
struct set_origin *set_origin_new(weir_set *predecessor, const struct limits *limits)
{
    struct set_origin *origin =
        os_alloc(1, sizeof(*origin) + limits->n * sizeof(struct origin_limit));
    uint64_t carried = 0;

    if (!origin)
        return NULL;
    origin->predecessor = predecessor;
    if (set_is_shared(predecessor)) {
        origin_connect_shared(origin, limits);
        return origin;
    }
    for (uint32_t i = 0; i < limits->n; i++)
        origin->limits[i].from = ORIGIN_NONE;
    origin_connect(origin, limits, &carried, limit_is_unchanged);
    origin_connect(origin, limits, &carried, limit_can_carry);
    return origin;
}

/* Each search notes what it has found, so that the next one need not pass all definitions again. */
weir_set *set_find_newest(const weir_set *set)
{
    weir_set *next = set_successor(set), *newest, *known;
    struct set_origin *origin;

    if (!next || next == set)
        return (weir_set *)(uintptr_t)set;
    if (set_is_shared(set) && !set_is_key_set(set))
        return atomic_load_explicit(&set->participant->newest, memory_order_acquire);
    origin = next->origin; /* NULL: of a key set in a segment */
    known = origin ? atomic_load_explicit(&origin->newest, memory_order_acquire) : NULL;
    newest = known ? known : next;
    while ((next = set_successor(newest)) && next != newest)
        newest = next;
    if (origin && newest != known)
        atomic_store_explicit(&origin->newest, newest, memory_order_release);
    return newest;
}

void set_succeed(weir_set *before, weir_set *after)
{
    WEIR_INVARIANT(set_is_shared(before) && !set_successor(before));
    atomic_store_explicit(&before->participant->newest, after, memory_order_seq_cst);
    atomic_store_explicit(&before->successor, after, memory_order_seq_cst);
}

/* Amounts of a shared set are by places. Those of limits that had one before others are dropped. It
 * goes from the later definition back: another thread may be about to store what succeeds the
 * earlier one. Variants of a definition have one head. */
static void successor_translate_shared(const weir_set *set, const weir_set *of, uint64_t *amounts)
{
    const weir_set *at = set;

    while (at->head_unit != of->head_unit && at->origin)
        at = at->origin->predecessor;
    if (at->head_unit != of->head_unit)
        return; /* `of` is later: what it has no limit for is 0 */
    for (; set->head_unit != of->head_unit; set = set->origin->predecessor)
        for (uint32_t i = 0; i < set->limits.n; i++)
            if (set->origin->limits[i].from == ORIGIN_NONE)
                amounts[i] = 0;
}

void successor_translate(const weir_set *set, const weir_set *of, uint32_t granted_by,
                         uint64_t *amounts)
{
    set = set_definition(set);
    of = set_definition(of);
    if (set_is_shared(set)) {
        successor_translate_shared(set, of, amounts);
        return;
    }
    while (of != set) {
        const weir_set *next = set_successor(of);
        uint64_t before[WEIR_LIMITS_MAX];

        WEIR_INVARIANT(next && next != of);
        memcpy(before, amounts, of->limits.n * sizeof(*amounts));
        for (uint32_t i = 0; i < next->limits.n; i++) {
            const struct origin_limit *link = &next->origin->limits[i];
            bool goes_on = link->is_carried || of->number < granted_by;

            amounts[i] = link->from != ORIGIN_NONE && goes_on ? before[link->from] : 0;
        }
        of = next;
    }
}

bool successor_began_after(const weir_set *set, uint32_t i, uint64_t granted_ns)
{
    const struct set_origin *origin = set_definition(set)->origin;
    uint32_t began = origin ? origin->limits[i].began : 0;

    return began && granted_ns < segment_definition_opened_ns(set->participant->segment, began);
}

const weir_set *set_ancestor(const weir_set *set, uint32_t id)
{
    if (id & KEY_SET_ID_BIT)
        id = set_definition(instance_set(set->w, id))->id;
    set = set_definition(set);
    while (set && set->id != id)
        set = set->origin ? set->origin->predecessor : NULL;
    return set;
}

void successor_amounts(const weir_set *set, uint32_t record, uint64_t *ret)
{
    const struct acq_record *r = set_record(set, record);
    const weir_set *of = set_ancestor(set, record_set_number(r));
    bool is_held = record_state(record_load(&r->word)) == RECORD_HELD;

    if (!of) { /* the record was reused, and no commit relies on it */
        memset(ret, 0, set->limits.n * sizeof(*ret));
        return;
    }
    for (uint32_t i = 0; i < of->limits.n; i++)
        ret[i] = atomic_load_explicit(&r->amounts[i], memory_order_relaxed);
    if (is_held)
        shadow_translate_taken(set, of, r, ret);
    else
        successor_translate(set, of, UINT32_MAX, ret);
}
