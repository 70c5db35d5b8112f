/* SPDX-License-Identifier: MIT */
/* Retired limits, which keep places that records of a shared set know, and the limits beside them.
 */
#include "base/invariant.h"
#include "limit/limit.h"
#include "os/os.h"

static uint64_t retired_ready_at(const void *config, const void *state,
                                 const struct weir_instant *at, uint64_t amount)
{
    (void)state, (void)amount;
    return config ? WEIR_NEVER : at->now_ns; /* of one that has moved */
}

static void retired_take(const void *config, void *state, const struct weir_instant *at,
                         uint64_t amount)
{
    (void)config, (void)state, (void)at, (void)amount;
}

static uint64_t retired_available(const void *config, const void *state,
                                  const struct weir_instant *at)
{
    (void)state, (void)at;
    return config ? 0 : UINT64_MAX;
}

static const struct weir_algorithm retired_algorithm = {
    .size = sizeof(retired_algorithm),
    .flags = WEIR_ALGORITHM_MONOTONE,
    .ready_at = retired_ready_at,
    .take = retired_take,
    .available = retired_available,
};

/* A request for it is for too much, and its key is none of a configuration, as it is not UTF-8. */
static void limit_retire(struct limit *ret, bool has_moved)
{
    static char no_key[] = "\xff";

    *ret = (struct limit){.type = WEIR_LIMIT_RATE,
                          .key = no_key,
                          .algorithm = &retired_algorithm,
                          .config = has_moved ? no_key : NULL,
                          .config_size = has_moved,
                          .is_stateless = true,
                          .listed = LIMIT_RETIRED};
}

struct limit *limits_arrange(const struct limit *limits, uint32_t n, const uint8_t *places,
                             uint64_t moved, uint32_t *ret_n)
{
    struct limit *arranged;
    uint32_t words = 0;
    bool is_listed = !moved;

    *ret_n = moved ? 64 - (uint32_t)__builtin_clzll(moved) : 0;
    for (uint32_t i = 0; i < n; i++) {
        *ret_n = places[i] >= *ret_n ? places[i] + 1u : *ret_n;
        is_listed &= places[i] == i;
    }
    WEIR_INVARIANT(n > 0 && *ret_n <= WEIR_LIMITS_MAX);
    arranged = os_alloc(*ret_n, sizeof(*arranged));
    if (!arranged)
        return NULL;
    for (uint32_t k = 0; k < *ret_n; k++)
        limit_retire(&arranged[k], moved >> k & 1);
    for (uint32_t i = 0; i < n; i++) {
        arranged[places[i]] = limits[i];
        arranged[places[i]].listed = is_listed ? 0 : (uint8_t)i;
    }
    for (uint32_t k = 0; k < *ret_n; k++) {
        arranged[k].state_offset = words;
        words += arranged[k].state_words;
    }
    return arranged;
}
