/* SPDX-License-Identifier: MIT */
/* A rate algorithm for the tests: see spaced.h. */
#include "spaced.h"

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void init(const void *config, void *state, const struct weir_instant *at)
{
    (void)config;
    *(uint64_t *)state = at->now_ns;
}

static uint64_t ready_at(const void *config, const void *state, const struct weir_instant *at,
                         uint64_t amount)
{
    const struct spaced *spaced = config;
    uint64_t room = spaced->burst * spaced->interval_ns;
    uint64_t end = later(*(const uint64_t *)state, at->now_ns) + amount * spaced->interval_ns;

    if (amount > spaced->burst)
        return WEIR_NEVER;
    return end <= at->now_ns + room ? at->now_ns : end - room;
}

static void take(const void *config, void *state, const struct weir_instant *at, uint64_t amount)
{
    const struct spaced *spaced = config;
    uint64_t *earned = state;

    *earned = later(*earned, at->now_ns) + amount * spaced->interval_ns;
}

static void refund(const void *config, void *state, const struct weir_instant *at, uint64_t amount,
                   uint64_t granted_ns)
{
    const struct spaced *spaced = config;
    uint64_t *earned = state;

    (void)granted_ns;
    *earned = later(*earned - amount * spaced->interval_ns, at->now_ns);
}

static void refund_strict(const void *config, void *state, const struct weir_instant *at,
                          uint64_t amount, uint64_t granted_ns)
{
    const struct spaced *spaced = config;
    uint64_t *earned = state, back = amount * spaced->interval_ns, since = at->now_ns - granted_ns;

    *earned = later(*earned - (back > since ? back - since : 0), at->now_ns);
}

static uint64_t available(const void *config, const void *state, const struct weir_instant *at)
{
    const struct spaced *spaced = config;
    uint64_t owed = later(*(const uint64_t *)state, at->now_ns) - at->now_ns;

    return spaced->burst - (owed + spaced->interval_ns - 1) / spaced->interval_ns;
}

const struct weir_algorithm spaced_algorithm = {
    .size = sizeof(spaced_algorithm),
    .types = 1u << WEIR_LIMIT_RATE | 1u << WEIR_LIMIT_CALL,
    .flags = WEIR_ALGORITHM_REFUNDS | WEIR_ALGORITHM_WORD,
    .init = init,
    .ready_at = ready_at,
    .take = take,
    .refund = refund,
    .available = available,
    .refund_strict = refund_strict,
};
