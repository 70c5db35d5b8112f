/* SPDX-License-Identifier: MIT */
/* Limits in shadow: what a request takes of them, and what its release returns. */
#include "set/shadow.h"

#include "base/hash.h"
#include "base/invariant.h"
#include "limit/counters.h"
#include "set/instance_base.h"
#include "set/set_ops.h"
#include "set/txn.h"
#include <string.h>

uint64_t shadow_number(const struct weir_request *request)
{
    unsigned char route[sizeof(request->route)];
    const void *subject;
    size_t size;

    if (!request)
        return 0;
    subject = request_subject(request, &size);
    if (!subject) {
        for (size_t i = 0; i < sizeof(route); i++)
            route[i] = (unsigned char)(request->route >> 8 * i);
        subject = route;
        size = sizeof(route);
    }
    return fnv1a_bytes(FNV1A_INIT, subject, size) % SHADOW_NUMBERS;
}

void shadow_remove(const weir_set *set, uint64_t number, uint64_t *amounts)
{
    for (uint32_t i = 0; i < set->limits.n; i++)
        if (shadow_covers(&set->limits.items[i], number))
            amounts[i] = 0;
}

/* Returns the word of a record behind its amounts and those of its kind. */
static const _Atomic uint64_t *shadow_word(const weir_set *of, const struct acq_record *r)
{
    return &r->amounts[set_amounts_n(of) + of->ops->record_words];
}

/* Returns the number of the request of a record; 0: the definition `of` that has made it had no
 * limit in shadow. */
static uint64_t shadow_record_number(const weir_set *of, const struct acq_record *r)
{
    return of->limits.has_shadow ? record_load(shadow_word(of, r)) : 0;
}

bool shadow_forecast(struct acquire_op *op, uint32_t record)
{
    const struct acq_record *r = record ? set_record(op->set, record) : NULL;
    uint64_t number = r ? shadow_record_number(op->set, r) : 0, now_ns;
    uint64_t asked = fairness_limits(op->set, op->amounts);

    shadow_remove(op->set, op->request ? shadow_number(op->request) : number, op->amounts);
    if (!asked || fairness_limits(op->set, op->amounts))
        return false;
    now_ns = clock_instant(&op->ctx->w->clock, op->set->limits.clock_needs).now_ns;
    op->decision = (struct decision){.now_ns = now_ns, .forecast_ns = now_ns};
    return true;
}

void shadow_fill_record(const struct acquire_op *op, struct acq_record *r)
{
    record_store(&r->amounts[set_amounts_n(op->set) + op->set->ops->record_words],
                 shadow_number(op->request));
}

/* ---- what a record holds ---- */

const weir_set *shadow_granter(const weir_set *of, const struct acq_record *r, const weir_set *last)
{
    uint64_t owner = record_load(&r->owner);
    const weir_set *next;

    if (set_is_shared(of))
        return of;
    of = set_definition(of);
    last = last ? set_definition(last) : NULL;
    while (of != last && of->id != owner && (next = set_successor(of)) && next != of)
        of = next;
    return of;
}

/* Returns whether covered amounts of a grant by the limits of `granter` were not taken. */
static bool shadow_is_untaken(const weir_set *granter, const struct acq_record *r)
{
    return granter->limits.has_shadow && record_load(&r->granted_ns) >= GRANT_WITHOUT_SHADOW;
}

/* Several limits of the granter may go on for one of `of`. */
void shadow_remove_untaken(const weir_set *of, const struct acq_record *r, uint64_t *amounts)
{
    const weir_set *granter = shadow_granter(of, r, NULL);
    uint64_t number = shadow_record_number(of, r), covered = 0, taken = 0;

    if (!shadow_is_untaken(granter, r))
        return;
    of = set_is_shared(of) ? of : set_definition(of);
    for (uint32_t i = 0; i < granter->limits.n; i++) {
        uint8_t limit = (uint8_t)i;

        for (const weir_set *set = granter; set != of && limit != ORIGIN_NONE;
             set = set->origin->predecessor)
            limit = set->origin->limits[limit].from;
        if (limit == ORIGIN_NONE)
            continue;
        if (shadow_covers(&granter->limits.items[i], number))
            covered |= UINT64_C(1) << limit;
        else
            taken |= UINT64_C(1) << limit;
    }
    for (uint32_t i = 0; i < of->limits.n; i++)
        if ((covered & ~taken) >> i & 1)
            amounts[i] = 0;
}

void shadow_translate_taken(const weir_set *set, const weir_set *of, const struct acq_record *r,
                            uint64_t *amounts)
{
    const weir_set *granter = shadow_granter(of, r, set);
    uint32_t granted_by = (uint32_t)record_load(&r->owner);

    successor_translate(granter, of, granted_by, amounts);
    if (shadow_is_untaken(granter, r))
        shadow_remove(granter, shadow_record_number(of, r), amounts);
    successor_translate(set, granter, granted_by, amounts);
}

void shadow_reduce(const weir_set *set, const struct acq_record *r, uint64_t *amounts)
{
    bool is_held = record_state(record_load(&r->word)) == RECORD_HELD;
    const weir_set *of = set_is_foreign(set, r) ? set_ancestor(set, record_set_number(r)) : set;

    if (!is_held)
        shadow_remove(set, of ? shadow_record_number(of, r) : 0, amounts);
    else if (of == set)
        shadow_remove_untaken(set, r, amounts);
}

void shadow_release_args(const weir_set *set, uint32_t record, const struct release_args *args,
                         struct shadow_release *ret)
{
    size_t size = set->limits.n * sizeof(uint64_t);

    ret->args = *args;
    ret->args.amounts = ret->amounts;
    ret->args.used = ret->used;
    memcpy(ret->amounts, args->amounts, size);
    memcpy(ret->used, args->used, size);
    shadow_remove_untaken(set, set_record(set, record), ret->amounts);
}

/* ---- grants ---- */

/* Returns the limits of `limits` that a waiter ahead of `record` waits for; 0: ahead of a new
 * request. Those in shadow are overtaken by no request. Behind many waiters it is all of them. */
static uint64_t shadow_waited_for(const struct txn *txn, uint32_t record, uint64_t limits)
{
    uint32_t waiter = waitq_head(&txn->version), left = waitq_length(&txn->version);
    uint64_t amounts[WEIR_LIMITS_MAX], waited_for = 0;

    if (!txn->set->fair)
        return 0;
    for (uint32_t i = 0; waiter && waiter != record && left; i++, left--) {
        if (i == FORECAST_QUEUE_MAX)
            return limits;
        fairness_amounts(txn->set, waiter, amounts);
        waited_for |= fairness_limits(txn->set, amounts);
        waiter = waitq_next(txn->set->region, waiter);
    }
    return waited_for & limits;
}

/* Takes all of `amounts`, which are not all 0, or returns the limit that has them not. */
static const struct limit *shadow_try_take(const struct txn *txn, const uint64_t *amounts)
{
    const struct limits *limits = &txn->set->limits;
    const struct limit *limiting = NULL;

    for (uint32_t i = 0; i < limits->n; i++)
        if (amounts[i] > limits->items[i].capacity)
            return &limits->items[i]; /* no algorithm is asked for so much */
    limits_try_take(limits, txn_states(txn), &txn->at, amounts, &limiting);
    return limiting;
}

/* What is taken is of the time of the last reservation. So a request that asks for nothing else
 * takes nothing until then. */
uint64_t shadow_take(struct txn *txn, uint32_t waiter, const uint64_t *asked, uint64_t number)
{
    const struct limits *limits = &txn->set->limits;
    bool is_early = !waiter && txn->at.now_ns > txn->now_ns &&
                    !fairness_limits(txn->set, txn->ctx->granted_amounts);
    uint64_t now_ns = is_early ? txn->now_ns : txn->at.now_ns;
    uint64_t amounts[WEIR_LIMITS_MAX], covered, waited_for;

    for (uint32_t i = 0; i < limits->n; i++)
        amounts[i] = shadow_covers(&limits->items[i], number) ? asked[i] : 0;
    covered = fairness_limits(txn->set, amounts);
    waited_for = covered && !is_early ? shadow_waited_for(txn, waiter, covered) : covered;
    txn->shadow_limiting = NULL;
    if (waited_for)
        txn->shadow_limiting = &limits->items[__builtin_ctzll(waited_for)];
    else if (covered)
        txn->shadow_limiting = shadow_try_take(txn, amounts);
    if (txn->shadow_limiting)
        return GRANT_WITHOUT_SHADOW + (now_ns < GRANT_TIME_MAX ? now_ns : GRANT_TIME_MAX);
    for (uint32_t i = 0; i < limits->n; i++)
        txn->ctx->granted_amounts[i] += amounts[i];
    return now_ns;
}

uint64_t shadow_take_waiter(struct txn *txn, uint32_t record)
{
    const struct acq_record *r = set_record(txn->set, record);
    const weir_set *of = txn->set;
    uint64_t asked[WEIR_LIMITS_MAX];

    forecast_invalidate(txn); /* it knows nothing of what is taken here */
    fairness_asked(txn->set, record, asked);
    if (set_is_foreign(txn->set, r))
        of = set_ancestor(txn->set, record_set_number(r));
    return shadow_take(txn, record, asked, of ? shadow_record_number(of, r) : 0);
}

void shadow_count(const struct txn *txn)
{
    const weir_set *set = txn->set;
    struct counters *counters = thread_ctx_counters(txn->ctx, set->number);

    WEIR_INVARIANT(set->limits.has_shadow);
    if (txn->shadow_limiting)
        counter_add(&counters->limits[txn->shadow_limiting - set->limits.items].would_refuse, 1);
}
