/* SPDX-License-Identifier: MIT */
/* Chooses the places of the limits of a shared set, and moves its limits there. */
#include "set/places.h"

#include "base/invariant.h"
#include "config/plan.h"
#include "limit/counters.h"
#include "os/os.h"
#include "set/detectable_cas.h"
#include "set/instance_base.h"
#include "set/set_ops.h"
#include "shm/segment_definition.h"
#include <errno.h>
#include <string.h>

_Static_assert(WEIR_LIMITS_MAX <= 64, "places are bits of a word");

uint32_t places_room(uint32_t limits_n, uint32_t words)
{
    uint32_t units = record_units(limits_n + PLACES_SPARE + words);
    uint32_t room =
        (uint32_t)((units * RECORD_UNIT_SIZE - sizeof(struct acq_record)) / sizeof(uint64_t)) -
        words;

    return room < WEIR_LIMITS_MAX ? room : WEIR_LIMITS_MAX;
}

bool places_are_valid(const struct limit_places *places, uint32_t n, uint32_t room)
{
    uint64_t taken = places->moved;

    if (places->n != n || n > WEIR_LIMITS_MAX || (room < 64 && places->moved >> room))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t place = places->of_limit[i];

        if (place >= room || taken >> place & 1)
            return false;
        taken |= UINT64_C(1) << place;
    }
    return true;
}

/* Of a later definition units of a resource may be held beyond its capacity. */
static void places_raise_held(struct limit *limits, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!limits[i].algorithm)
            limits[i].held_max = UINT64_MAX;
}

int places_apply(weir_set *set, const struct limit_places *places)
{
    uint32_t n, listed_n = set->limits.n;
    struct limit *arranged =
        limits_arrange(set->limits.items, listed_n, places->of_limit, places->moved, &n);
    struct limit *interned = NULL;

    WEIR_INVARIANT(places->n == listed_n && !set->limits.is_arranged);
    if (arranged) {
        places_raise_held(arranged, n);
        interned = limit_intern(&set->w->limits, arranged, n);
    }
    os_free(arranged);
    if (!interned)
        return -ENOMEM;
    limit_intern_release(&set->w->limits, set->limits.items);
    set->limits.items = interned;
    set->limits.n = (uint8_t)n;
    set->limits.is_arranged = places->moved != 0;
    for (uint32_t i = 0; i < listed_n; i++)
        set->limits.is_arranged |= places->of_limit[i] != i;
    set->limits.has_lost_first = places->has_lost_first;
    return 0;
}

void places_describe(weir_set *set)
{
    limits_describe(&set->limits);
    if (set->limits.has_lost_first)
        set->limits.has_lease = false;
}

void places_apply_costs(weir_set *set)
{
    uint64_t listed[WEIR_LIMITS_MAX], *costs = set->classes->unit_costs;

    memcpy(listed, costs, set_listed_n(set) * sizeof(*costs));
    memset(costs, 0, set->limits.n * sizeof(*costs));
    for (uint32_t i = 0; i < set_listed_n(set); i++)
        costs[set_listed(set, i)] = listed[i];
}

/* ---- choosing ---- */

/* A record does not say by which definition it was granted. So what decides what a release returns,
 * and whether another thread may end the record, is the same as long as a place has its limit. */
static bool places_are_alike(const struct limit *from, const struct limit *to)
{
    return from->lease == to->lease && from->shadow == to->shadow && from->revokes == to->revokes;
}

bool places_can_carry(const struct limit *from, const struct limit *to)
{
    return places_are_alike(from, to) && limit_can_carry(from, to);
}

/* What is held of a resource with an algorithm is in a state that only that algorithm knows. */
bool places_can_go_on(const struct limit *from, const struct limit *to)
{
    if (from->type == WEIR_LIMIT_RESOURCE)
        return places_can_carry(from, to);
    return from->type == to->type && places_are_alike(from, to);
}

static bool places_are_same(const struct limit *from, const struct limit *to)
{
    return places_are_alike(from, to) && limit_is_unchanged(from, to);
}

struct places_choice {
    const weir_set *before;
    const struct set_plan *plan;
    struct limit_places *places;
    uint64_t chosen; /* limits of the plan that have a place */
    uint64_t taken;  /* places that have a limit of the plan */
};

static void places_take(struct places_choice *choice, uint32_t i, uint32_t place)
{
    choice->places->of_limit[i] = (uint8_t)place;
    choice->chosen |= UINT64_C(1) << i;
    choice->taken |= UINT64_C(1) << place;
}

typedef bool places_match(const struct limit *from, const struct limit *to);

/* Leaves limit `i` of the plan at place `k`, if it can go on there in this way. */
static void places_try(struct places_choice *choice, uint32_t i, uint32_t k, places_match *can)
{
    const struct limit *from = places_limit(choice->before, k), *to = &choice->plan->limits[i];

    if (!from || choice->chosen >> i & 1 || choice->taken >> k & 1)
        return;
    if (strcmp(from->key, to->key) == 0 && can(from, to))
        places_take(choice, i, k);
}

/* Leaves limits where they are that can go on in this way: first those that are listed where they
 * were. */
static void places_keep(struct places_choice *choice, places_match *can)
{
    const weir_set *before = choice->before;

    for (uint32_t i = 0; i < choice->plan->limits_n && i < set_listed_n(before); i++)
        places_try(choice, i, set_listed(before, i), can);
    for (uint32_t i = 0; i < choice->plan->limits_n; i++)
        for (uint32_t k = 0; k < before->limits.n; k++)
            places_try(choice, i, k, can);
}

/* Returns the places of which a record has an amount that holds or waits. */
static uint64_t places_of_records(const weir_set *set)
{
    uint64_t in_use = 0;

    for (uint32_t at = 0; (at = region_next_record(set->region, at)) != 0;) {
        const struct acq_record *r = set_record(set, at);
        enum record_state state = record_state(record_load(&r->word));

        if (state != RECORD_HELD && state != RECORD_WAITING)
            continue;
        for (uint32_t k = 0; k < set_amounts_n(set); k++)
            in_use |= (uint64_t)(record_load(&r->amounts[k]) != 0) << k;
    }
    return in_use;
}

/* Returns the places that a definition has no limit at. */
static uint64_t places_without(const weir_set *set)
{
    uint64_t places = UINT64_MAX >> (64 - set_amounts_n(set));

    for (uint32_t k = 0; k < set->limits.n; k++)
        if (places_limit(set, k))
            places &= ~(UINT64_C(1) << k);
    return places;
}

/* Returns the definition before this one, if there may still be a subject of it; or NULL. */
static const weir_set *places_before(const weir_set *set)
{
    const struct segment *segment = set->participant->segment;
    uint32_t number;

    if (!set->is_keyed || !set->origin ||
        !segment_definition_of_unit(segment, set->head_unit, &number))
        return NULL;
    return atomic_load_explicit(&segment_keyed(segment)->oldest, memory_order_seq_cst) < number
               ? set->origin->predecessor
               : NULL;
}

/* Returns in `*ret` the places that no limit has, and of which no record has an amount: the records
 * come last, as none can get an amount there any more. -ESTALE: there is a later definition. */
static int places_find_free(struct thread_ctx *ctx, weir_set *before, uint64_t *ret)
{
    int r = dcas_complete_all(ctx, before); /* what was announced by any definition is held */

    *ret = UINT64_MAX;
    for (const weir_set *set = before; set; set = places_before(set))
        *ret &= places_without(set);
    *ret &= ~places_of_records(before);
    if (r == 0 && set_is_broken(before))
        return -EUCLEAN;
    return r == 0 && (set_successor(before) || set_is_moved(before)) ? -ESTALE : r;
}

/* Returns a bit for each place that a rate or call has alone, or had by an earlier definition of
 * the shared set. A thread that was stopped after such a grant stores that its record is HELD at
 * any time. What that says of a rate is never returned, but units of a resource would be. */
static uint64_t places_of_lone_rates(const weir_set *set)
{
    const struct segment *segment = set->participant->segment;
    uint32_t number, place = set_listed(set, 0);
    uint64_t places = 0;
    bool is_word;

    if (segment_definition_of_unit(segment, set->head_unit, &number) && number)
        places = segment_definition(segment, number)->places.lone_rates;
    is_word = set->is_keyed ? limit_fits_word(&set->limits.items[place])
                            : set->inline_format == INLINE_STATE;
    if (set_listed_n(set) == 1 && is_word && set->limits.items[place].type != WEIR_LIMIT_RESOURCE)
        places |= UINT64_C(1) << place;
    return places;
}

/* Returns those of `places` that limit `i` of the plan may get: a rate rather those that a resource
 * may not. */
static uint64_t places_for(const struct places_choice *choice, uint32_t i, uint64_t places)
{
    uint64_t lone = places & choice->places->lone_rates;

    if (choice->plan->limits[i].type == WEIR_LIMIT_RESOURCE)
        return places & ~lone;
    return lone ? lone : places;
}

/* Says that limit `i` of the plan has no place. */
static int places_refuse(const struct places_choice *choice, uint32_t i, struct weir_error *reterr)
{
    uint32_t room = set_amounts_n(choice->before);
    bool is_busy = places_for(choice, i, places_without(choice->before) & ~choice->taken) != 0;
    const char *what = "; " START_ANEW;

    if (is_busy && places_before(choice->before))
        what =
            ", those that are gone among them as long as something of them is held, or a subject "
            "that has taken of them was not asked for since; try again later";
    else if (is_busy)
        what = ", those that are gone among them as long as something of them is held; try again "
               "when it was released";
    else if (choice->plan->limits_n <=
             room - (uint32_t)__builtin_popcountll(choice->places->lone_rates))
        what = ", those that would go among them: change it twice, first to a definition without "
               "these; or " START_ANEW;
    return error_set(reterr, is_busy ? -EBUSY : -EOPNOTSUPP,
                     "there is no room for limit %u (`%s`)%s: its segment has room for %u%s", i + 1,
                     error_text(choice->plan->limits[i].key).text, is_busy ? " now" : "", room,
                     what);
}

/* Notes from where a limit that has a new place has moved. A request asks all limits with a key.
 * One in shadow is not waited for. */
static void places_note_moved(struct places_choice *choice, const struct limit *to)
{
    for (uint32_t k = 0; k < choice->before->limits.n; k++) {
        const struct limit *from = places_limit(choice->before, k);

        if (from && !from->shadow && !to->shadow && strcmp(from->key, to->key) == 0)
            choice->places->moved |= UINT64_C(1) << k;
    }
}

static int places_add(struct places_choice *choice, uint64_t free_places, struct weir_error *reterr)
{
    for (uint32_t i = 0; i < choice->plan->limits_n; i++) {
        uint64_t places = places_for(choice, i, free_places);

        if (choice->chosen >> i & 1)
            continue;
        if (!places)
            return places_refuse(choice, i, reterr);
        places_take(choice, i, (uint32_t)__builtin_ctzll(places));
        places_note_moved(choice, &choice->plan->limits[i]);
        free_places &= ~choice->taken;
    }
    choice->places->moved &= ~choice->taken;
    return 0;
}

int places_choose(struct thread_ctx *ctx, weir_set *before, const struct set_plan *plan,
                  struct limit_places *ret, struct weir_error *reterr)
{
    struct places_choice choice = {.before = before, .plan = plan, .places = ret};
    uint64_t free_places;
    int r;

    WEIR_INVARIANT(set_is_shared(before) && plan->limits_n <= WEIR_LIMITS_MAX);
    *ret = (struct limit_places){.n = plan->limits_n, .moved = limits_moved(&before->limits)};
    places_keep(&choice, places_are_same);
    places_keep(&choice, places_can_carry);
    if (!before->is_keyed)
        places_keep(&choice, places_can_go_on);
    ret->has_lost_first = before->limits.has_lost_first || !(choice.taken & 1);
    ret->lone_rates = places_of_lone_rates(before);
    if (__builtin_popcountll(choice.chosen) == (int)plan->limits_n)
        return 0; /* and no place of a retired limit was taken */
    r = places_find_free(ctx, before, &free_places);
    if (r == -ESTALE)
        return r;
    if (r < 0)
        return error_set(reterr, r, "set `%s` cannot be read: %s", set_own_name(before),
                         r == -EUCLEAN ? "it is damaged" : strerrordesc_np(-r));
    ret->moved &= ~free_places; /* nothing waits there any more */
    return places_add(&choice, free_places, reterr);
}

void places_translate_record(const weir_set *set, const weir_set *of, uint32_t record)
{
    uint64_t amounts[WEIR_LIMITS_MAX];
    struct acq_record *r = set_record(set, record);
    uint32_t n = set_amounts_n(set);

    for (uint32_t k = 0; k < n; k++)
        amounts[k] = record_load(&r->amounts[k]);
    successor_translate(set, of, 0, amounts);
    for (uint32_t k = 0; k < n; k++)
        record_store(&r->amounts[k], places_limit(set, k) ? amounts[k] : 0);
}

void places_count_base(const weir_set *set, struct limit_base *ret)
{
    const weir_set *before = set->origin->predecessor;
    const struct segment *segment = set->participant->segment;
    const struct limit_base *base = segment_definition_base(segment, before->head_unit);
    struct weir_limit_stats sums[WEIR_LIMITS_MAX] = {{0}};
    struct weir_set_stats totals = {0};

    memset(ret, 0, WEIR_LIMITS_MAX * sizeof(*ret));
    for (uint32_t i = 0; i < segment_threads_n(segment); i++)
        counters_sum(segment_thread_counters(segment, i), &totals, sums, set->limits.n);
    for (uint32_t k = 0; k < set->limits.n; k++) {
        if (set->origin->limits[k].from == ORIGIN_NONE)
            ret[k] = (struct limit_base){.granted = sums[k].granted,
                                         .refused = sums[k].refused,
                                         .would_refuse = sums[k].would_refuse,
                                         .refunded = sums[k].refunded,
                                         .overused = sums[k].overused};
        else if (base)
            ret[k] = base[k];
    }
}
