/* SPDX-License-Identifier: MIT */
/* Decisions of limits: calls of their algorithms, or counting for a plain resource. */
#include "limit/limit.h"
#include "base/clock.h"
#include "base/invariant.h"
#include <string.h>

#define UNDO_WORDS 16u /* words of state that are copied to save a second call of each limit */
/* An algorithm that names the first instant is asked once at that. One that comes nearer in more
 * steps is tolerated, up to so many. */
#define READY_STEPS_MAX 64u
/* One in so many refunds and charges is checked: 2 to this power. */
#define BACK_CHECK_BITS 6u

uint64_t limit_ready_at(const struct limit *limit, const uint64_t *state,
                        const struct weir_instant *at, uint64_t amount)
{
    if (limit->algorithm)
        return limit->algorithm->ready_at(limit->config, state, at, amount);
    if (amount > limit->capacity)
        return WEIR_NEVER;
    return state[0] <= limit->capacity - amount ? at->now_ns : WEIR_BLOCKED;
}

void limit_take(const struct limit *limit, uint64_t *state, const struct weir_instant *at,
                uint64_t amount)
{
    WEIR_INVARIANT(limit->algorithm ||
                   (amount <= limit->capacity && state[0] <= limit->capacity - amount));
    if (limit->algorithm)
        limit->algorithm->take(limit->config, state, at, amount);
    else
        state[0] += amount;
}

uint64_t limit_take_if_ready(const struct limit *limit, uint64_t *state,
                             const struct weir_instant *at, uint64_t amount)
{
    uint64_t ready = limit_ready_at(limit, state, at, amount);

    if (ready == at->now_ns)
        limit_take(limit, state, at, amount);
    return ready;
}

void limits_note_fault(const struct limits *limits, uint32_t i)
{
    struct limits *noted = (struct limits *)(uintptr_t)limits;
    uint8_t none = 0;

    WEIR_INVARIANT(i < limits->n && limits->items[i].algorithm);
    atomic_compare_exchange_strong_explicit(&noted->fault, &none, (uint8_t)(i + 1),
                                            memory_order_seq_cst, memory_order_relaxed);
}

void limit_release(const struct limit *limit, uint64_t *state, const struct weir_instant *at,
                   const struct weir_release *release)
{
    WEIR_INVARIANT(limit->type == WEIR_LIMIT_RESOURCE && limit->algorithm);
    if (limit->algorithm->release)
        limit->algorithm->release(limit->config, state, at, release);
}

/* Chooses what is checked by the hashed instant, which needs no counter. */
static bool limit_is_checked(const struct weir_instant *at)
{
    return !(at->now_ns * UINT64_C(0x9e3779b97f4a7c15) >> (64 - BACK_CHECK_BITS));
}

bool limit_refund(const struct limit *limit, uint64_t *state, const struct weir_instant *at,
                  uint64_t amount, uint64_t granted_ns)
{
    bool is_checked = limit_is_checked(at);
    uint64_t before;

    WEIR_INVARIANT(limit->type != WEIR_LIMIT_RESOURCE && amount > 0);
    if (!limit->algorithm || !limit->algorithm->refund)
        return true;
    before = is_checked ? limit_available(limit, state, at) : 0;
    if (limit->refund == REFUND_STRICT)
        limit->algorithm->refund_strict(limit->config, state, at, amount, granted_ns);
    else
        limit->algorithm->refund(limit->config, state, at, amount, granted_ns);
    return !is_checked || amount > UINT64_MAX - before ||
           limit_available(limit, state, at) <= before + amount;
}

bool limit_charge(const struct limit *limit, uint64_t *state, const struct weir_instant *at,
                  uint64_t amount)
{
    bool is_checked = limit_is_checked(at);
    uint64_t before;

    WEIR_INVARIANT(limit->type != WEIR_LIMIT_RESOURCE && amount > 0);
    if (!limit->algorithm || !limit->algorithm->charge)
        return true;
    before = is_checked ? limit_available(limit, state, at) : 0;
    limit->algorithm->charge(limit->config, state, at, amount);
    return !is_checked || limit_available(limit, state, at) <= before;
}

uint64_t limit_available(const struct limit *limit, const uint64_t *state,
                         const struct weir_instant *at)
{
    if (limit->algorithm)
        return limit->algorithm->available(limit->config, state, at);
    return state[0] < limit->capacity ? limit->capacity - state[0] : 0;
}

/* Returns in how long from `now_ns` an amount would be granted; WEIR_FOREVER: not by time. */
static uint64_t limit_after(const struct limit *limit, const uint64_t *state,
                            const struct weir_instant *at, uint64_t now_ns, uint64_t amount)
{
    uint64_t ready = limit_ready_at(limit, state, at, amount);

    if (ready >= WEIR_BLOCKED)
        return WEIR_FOREVER;
    return (ready > at->now_ns ? ready : at->now_ns) - now_ns;
}

void limit_remaining(const struct limit *limit, const uint64_t *state,
                     const struct weir_instant *at, uint64_t now_ns, struct weir_remaining *ret)
{
    bool is_reserved = at->now_ns > now_ns;
    uint64_t available = limit_available(limit, state, at);

    WEIR_INVARIANT(at->now_ns >= now_ns);
    ret->available = is_reserved ? 0 : available;
    ret->more_after_ns = ret->full_after_ns = 0;
    if (is_reserved || available < limit->capacity) {
        ret->more_after_ns = limit_after(limit, state, at, now_ns, ret->available + 1);
        ret->full_after_ns = limit_after(limit, state, at, now_ns, limit->capacity);
    }
}

uint32_t limit_observe(const struct limit *limit, const uint64_t *state,
                       const struct weir_instant *at, uint64_t *ret)
{
    if (!limit->algorithm || !limit->algorithm->gauges_n)
        return 0;
    limit->algorithm->observe(limit->config, state, at, ret);
    return limit->algorithm->gauges_n;
}

uint64_t limit_held(const struct limit *limit, const uint64_t *state, const struct weir_instant *at)
{
    uint64_t values[WEIR_GAUGES_MAX] = {0};

    if (limit->type != WEIR_LIMIT_RESOURCE)
        return 0;
    if (!limit->algorithm)
        return state[0];
    for (uint32_t i = 0, n = limit_observe(limit, state, at, values); i < n; i++)
        if (strcmp(limit->algorithm->gauges[i].name, "held") == 0)
            return values[i];
    return 0;
}

bool limit_is_new(const struct limit *limit, const uint64_t *state, const struct weir_instant *at)
{
    if (!limit->algorithm)
        return !state[0];
    return limit->algorithm->is_new && limit->algorithm->is_new(limit->config, state, at) == 1;
}

bool limit_has_all(const struct limit *limit, const uint64_t *state, const struct weir_instant *at)
{
    uint64_t made[UNDO_WORDS] = {0}, available = limit_available(limit, state, at);

    if (limit->state_words > UNDO_WORDS)
        return limit->type == WEIR_LIMIT_RESOURCE || available >= limit->capacity;
    if (limit->algorithm && limit->algorithm->init)
        limit->algorithm->init(limit->config, made, at);
    return available == limit_available(limit, made, at);
}

void limits_describe(struct limits *limits)
{
    uint32_t waits = 0;
    bool monotone = true;

    WEIR_INVARIANT(limits->items || !limits->n);
    limits->has_lease = limits->n == 1 && limits->items->lease;
    for (uint32_t i = 0; i < limits->n; i++) {
        const struct limit *limit = &limits->items[i];

        WEIR_INVARIANT(limit->algorithm || limit->type == WEIR_LIMIT_RESOURCE);
        WEIR_INVARIANT(limit->algorithm || limit->state_words == 1);
        WEIR_INVARIANT(limit->state_offset + limit->state_words <= limits->state_words);
        limits->own_words = limit->state_offset + limit->state_words;
        if (limit_is_retired(limit))
            continue;
        if (limit->shadow)
            limits->has_shadow = true;
        if (limit->max_hold_ns)
            limits->has_max_hold = true;
        if (limit->revokes)
            limits->revokes = true;
        if (limit->type == WEIR_LIMIT_RESOURCE)
            limits->has_resources = true;
        if (limit->type == WEIR_LIMIT_RESOURCE && limit->algorithm)
            limits->has_opaque_resources = true;
        if (limit->type != WEIR_LIMIT_RESOURCE) {
            limits->has_waits = true;
            waits++;
            monotone &= (limit->algorithm->flags & WEIR_ALGORITHM_MONOTONE) != 0;
        }
        if (limit->algorithm && (limit->algorithm->flags & WEIR_ALGORITHM_WALL) &&
            !limit->ignores_wall)
            limits->reads_wall = true;
    }
    limits->has_anomalies = !monotone && waits > 1;
    limits->clock_needs = limits->reads_wall ? CLOCK_NEEDS_WALL : 0;
}

void limits_init(const struct limits *limits, uint64_t *states, const struct weir_instant *at)
{
    for (uint32_t i = 0; i < limits->n; i++) {
        const struct limit *limit = &limits->items[i];

        if (limit->algorithm && limit->algorithm->init)
            limit->algorithm->init(limit->config, states + limit->state_offset, at);
    }
}

int limits_check(const struct limits *limits, const uint64_t *states)
{
    for (uint32_t i = 0; i < limits->n; i++) {
        const struct limit *limit = &limits->items[i];

        if (limit_check(limit, states + limit->state_offset) < 0)
            return -1;
    }
    return 0;
}

uint64_t limits_ready_at(const struct limits *limits, const uint64_t *states,
                         const struct weir_instant *at, const uint64_t *amounts,
                         bool with_resources, const struct limit **ret_limiting)
{
    uint64_t latest = at->now_ns;

    for (uint32_t i = 0; i < limits->n; i++) {
        const struct limit *limit = &limits->items[i];
        uint64_t ready;

        if (!amounts[i] || (!with_resources && limit->type == WEIR_LIMIT_RESOURCE))
            continue;
        ready = limit_ready_at(limit, states + limit->state_offset, at, amounts[i]);
        if (ready < at->now_ns) {
            limits_note_fault(limits, i);
            ready = WEIR_BLOCKED;
        }
        if (ready > latest) {
            latest = ready;
            *ret_limiting = limit;
        }
    }
    return latest;
}

const struct limit *limits_find_receding(const struct limits *limits, const uint64_t *states,
                                         const struct weir_instant *at, const uint64_t *amounts,
                                         uint64_t ready)
{
    struct weir_instant then = *at;
    const struct limit *limiting = NULL;

    for (unsigned i = 0; i < READY_STEPS_MAX; i++) {
        if (ready <= then.now_ns || (!i && ready > WEIR_CLOCK_MAX))
            return NULL;
        if (ready > WEIR_CLOCK_MAX)
            break; /* it has moved away to where nothing is granted */
        then.now_ns = ready;
        ready = limits_ready_at(limits, states, &then, amounts, true, &limiting);
        if (ready >= WEIR_BLOCKED)
            break;
    }
    return limiting && limiting->algorithm ? limiting : NULL;
}

/* Takes. Returns false, and notes it, if nothing was taken or the state is none that it can be. Of
 * a large state only the first words are looked at, and what is available. */
static bool limits_take_one(const struct limits *limits, uint32_t number, uint64_t *states,
                            const struct weir_instant *at, uint64_t amount)
{
    const struct limit *limit = &limits->items[number];
    uint64_t *state = states + limit->state_offset;
    bool is_large = limit->state_words > UNDO_WORDS;
    uint64_t before[UNDO_WORDS], available = 0, changed = limit->is_stateless;
    uint32_t n = is_large ? UNDO_WORDS : limit->state_words;

    for (uint32_t i = 0; i < n; i++)
        before[i] = state[i];
    if (is_large)
        available = limit_available(limit, state, at);
    limit_take(limit, state, at, amount);
    for (uint32_t i = 0; i < n; i++)
        changed |= state[i] ^ before[i];
    if (!changed && is_large)
        changed = limit_available(limit, state, at) < available;
    if (changed && !limit_is_unfit(limit, state[0]))
        return true;
    limits_note_fault(limits, number);
    return false;
}

bool limits_are_taken(const struct limits *limits, const uint64_t *before, const uint64_t *states,
                      const uint64_t *amounts)
{
    for (uint32_t i = 0; i < limits->n; i++) {
        const struct limit *limit = &limits->items[i];
        uint32_t at = limit->state_offset, end = at + limit->state_words;

        if (!amounts[i] || !limit->algorithm || limit->is_stateless)
            continue;
        while (at < end && states[at] == before[at])
            at++;
        if (at == end || limit_is_unfit(limit, states[limit->state_offset]))
            return false;
    }
    return true;
}

void limits_take(const struct limits *limits, uint64_t *states, const struct weir_instant *at,
                 const uint64_t *amounts, bool with_resources)
{
    for (uint32_t i = 0; i < limits->n; i++) {
        const struct limit *limit = &limits->items[i];

        if (amounts[i] && (with_resources || limit->type != WEIR_LIMIT_RESOURCE))
            limits_take_one(limits, i, states, at, amounts[i]);
    }
}

uint64_t limits_try_take_many(const struct limits *limits, uint64_t *states,
                              const struct weir_instant *at, const uint64_t *amounts,
                              const struct limit **ret_limiting)
{
    uint64_t saved[UNDO_WORDS], ready;
    bool can_undo = limits->own_words <= UNDO_WORDS;

    /* Each limit takes at once until one refuses; then the states are restored. */
    for (uint32_t i = 0; can_undo && i < limits->own_words; i++)
        saved[i] = states[i];
    if (can_undo && limits_take_or_clobber(limits, states, at, amounts) &&
        limits_are_taken(limits, saved, states, amounts))
        return at->now_ns;
    for (uint32_t i = 0; can_undo && i < limits->own_words; i++)
        states[i] = saved[i];
    ready = limits_ready_at(limits, states, at, amounts, true, ret_limiting);
    for (uint32_t i = 0; i < limits->n && ready == at->now_ns; i++)
        if (amounts[i] && !limits_take_one(limits, i, states, at, amounts[i])) {
            *ret_limiting = &limits->items[i];
            ready = WEIR_BLOCKED;
        }
    return ready;
}
