/* SPDX-License-Identifier: MIT */
/*
 * Algorithms that break the contract of weir/algorithm.h, most of them once two units are taken:
 * each in one way that would make a limit unlimited, or leave a waiter stuck. `hesitant` comes as
 * near to that as is allowed.
 */
#include <string.h>
#include <weir/algorithm.h>

#define ALGORITHM(name_, ...)                                                                      \
    static const struct weir_algorithm name_##_ops = {.size = sizeof(name_##_ops), __VA_ARGS__};   \
    static const struct weir_plugin name_##_plugin = {.size = sizeof(name_##_plugin),              \
                                                      .kind = WEIR_PLUGIN_ALGORITHM,               \
                                                      .name = #name_,                              \
                                                      .version = "1",                              \
                                                      .summary = "for tests",                      \
                                                      .ops = &name_##_ops}

static int configure_stock(const struct weir_setup *setup, void *config, struct weir_footprint *ret,
                           struct weir_reason *reterr)
{
    (void)setup, (void)config, (void)reterr;
    ret->config = 0;
    ret->state = sizeof(uint64_t);
    ret->amount_max = 10;
    return 0;
}

static uint64_t ready_stock(const void *config, const void *state, const struct weir_instant *at,
                            uint64_t amount)
{
    const uint64_t *taken = state;
    (void)config;
    return *taken + amount <= 10 ? at->now_ns : WEIR_BLOCKED;
}

static void take_stock(const void *config, void *state, const struct weir_instant *at,
                       uint64_t amount)
{
    uint64_t *taken = state;
    (void)config, (void)at;
    *taken += amount;
}

static uint64_t available_stock(const void *config, const void *state,
                                const struct weir_instant *at)
{
    const uint64_t *taken = state;
    (void)config, (void)at;
    return *taken < 10 ? 10 - *taken : 0;
}

/* ---- what is asked for ---- */

static uint64_t ready_past(const void *config, const void *state, const struct weir_instant *at,
                           uint64_t amount)
{
    const uint64_t *taken = state;
    (void)config, (void)amount;
    return *taken < 2 ? at->now_ns : at->now_ns - 1;
}

static uint64_t try_past(const void *config, void *state, const struct weir_instant *at,
                         uint64_t amount)
{
    uint64_t *taken = state;
    (void)config;
    if (*taken >= 2)
        return 0;
    *taken += amount;
    return at->now_ns;
}

static uint64_t ready_ever(const void *config, const void *state, const struct weir_instant *at,
                           uint64_t amount)
{
    (void)config, (void)state, (void)amount;
    return at->now_ns;
}

static void take_frozen(const void *config, void *state, const struct weir_instant *at,
                        uint64_t amount)
{
    uint64_t *taken = state;
    (void)config, (void)at;
    if (*taken < 2)
        *taken += amount;
}

static uint64_t try_frozen(const void *config, void *state, const struct weir_instant *at,
                           uint64_t amount)
{
    take_frozen(config, state, at, amount);
    return at->now_ns;
}

static void take_topped(const void *config, void *state, const struct weir_instant *at,
                        uint64_t amount)
{
    uint64_t *taken = state;
    (void)config, (void)at;
    *taken = *taken < 2 ? *taken + amount : (*taken + amount) | UINT64_C(1) << 63;
}

static int configure_wide(const struct weir_setup *setup, void *config, struct weir_footprint *ret,
                          struct weir_reason *reterr)
{
    configure_stock(setup, config, ret, reterr);
    ret->state = 4 * sizeof(uint64_t);
    return 0;
}

/* The time of the third unit moves away, and is never reached. */
static uint64_t ready_receding(const void *config, const void *state, const struct weir_instant *at,
                               uint64_t amount)
{
    const uint64_t *taken = state;
    (void)config, (void)amount;
    return *taken < 2 ? at->now_ns : at->now_ns + 1000000000;
}

/* The third unit is announced for the next whole second, and then it is not there. */
static uint64_t ready_retracted(const void *config, const void *state,
                                const struct weir_instant *at, uint64_t amount)
{
    const uint64_t second = 1000000000, *taken = state;
    (void)config, (void)amount;
    if (*taken < 2)
        return at->now_ns;
    return at->now_ns % second == 0 ? WEIR_BLOCKED : at->now_ns - at->now_ns % second + second;
}

/* The third unit is there from 100 s of the clock on. That is said a second at a time, in the 32
 * seconds before: no fault, as the time is reached. */
static uint64_t ready_hesitant(const void *config, const void *state, const struct weir_instant *at,
                               uint64_t amount)
{
    const uint64_t second = 1000000000, *taken = state;
    (void)config, (void)amount;
    if (*taken < 2 || at->now_ns >= 100 * second)
        return at->now_ns;
    return at->now_ns < 68 * second ? 68 * second : at->now_ns + second;
}

/* Each time that is said is twice as far away as the one before. */
static uint64_t ready_doubling(const void *config, const void *state, const struct weir_instant *at,
                               uint64_t amount)
{
    const uint64_t *taken = state;
    (void)config, (void)amount;
    return *taken < 2 ? at->now_ns : 2 * at->now_ns + 1;
}

/* The top bit belongs to the library from the beginning. */
static void init_topped(const void *config, void *state, const struct weir_instant *at)
{
    uint64_t *taken = state;
    (void)config, (void)at;
    *taken = UINT64_C(1) << 63;
}

static uint64_t ready_masked(const void *config, const void *state, const struct weir_instant *at,
                             uint64_t amount)
{
    const uint64_t *taken = state;
    (void)config, (void)amount;
    return *taken << 1 >> 1 < 10 ? at->now_ns : WEIR_BLOCKED;
}

/* ---- what goes back ---- */

static void refund_all(const void *config, void *state, const struct weir_instant *at,
                       uint64_t amount, uint64_t granted_ns)
{
    (void)config, (void)at, (void)amount, (void)granted_ns;
    memset(state, 0, sizeof(uint64_t));
}

static void charge_nothing(const void *config, void *state, const struct weir_instant *at,
                           uint64_t amount)
{
    (void)config, (void)at, (void)amount;
    memset(state, 0, sizeof(uint64_t));
}

/* ---- what is forgotten ---- */

static int is_new_always(const void *config, const void *state, const struct weir_instant *at)
{
    (void)config, (void)state, (void)at;
    return 1;
}

/* Larger than what is compared with a new state. */
static int configure_large(const struct weir_setup *setup, void *config, struct weir_footprint *ret,
                           struct weir_reason *reterr)
{
    configure_stock(setup, config, ret, reterr);
    ret->state = 64 * sizeof(uint64_t);
    return 0;
}

#define FAULTY(name_, flags_, configure_, ready_, take_, try_)                                     \
    ALGORITHM(name_, .types = 1u << WEIR_LIMIT_RATE, .flags = flags_, .configure = configure_,     \
              .ready_at = ready_, .take = take_, .available = available_stock, .try_take = try_)

FAULTY(past, WEIR_ALGORITHM_WORD, configure_stock, ready_past, take_stock, NULL);
FAULTY(past_try, WEIR_ALGORITHM_WORD, configure_stock, ready_past, take_stock, try_past);
FAULTY(past_wide, 0, configure_wide, ready_past, take_stock, NULL);
FAULTY(frozen, WEIR_ALGORITHM_WORD, configure_stock, ready_ever, take_frozen, NULL);
FAULTY(frozen_try, WEIR_ALGORITHM_WORD, configure_stock, ready_ever, take_frozen, try_frozen);
FAULTY(frozen_wide, 0, configure_wide, ready_ever, take_frozen, NULL);
FAULTY(topped, WEIR_ALGORITHM_WORD, configure_stock, ready_ever, take_topped, NULL);
FAULTY(receding, WEIR_ALGORITHM_WORD, configure_stock, ready_receding, take_stock, NULL);
FAULTY(receding_wide, 0, configure_wide, ready_receding, take_stock, NULL);
FAULTY(retracted, WEIR_ALGORITHM_WORD, configure_stock, ready_retracted, take_stock, NULL);
FAULTY(hesitant, WEIR_ALGORITHM_WORD, configure_stock, ready_hesitant, take_stock, NULL);
FAULTY(doubling, WEIR_ALGORITHM_WORD, configure_stock, ready_doubling, take_stock, NULL);
ALGORITHM(topped_init, .types = 1u << WEIR_LIMIT_RATE, .flags = WEIR_ALGORITHM_WORD,
          .configure = configure_stock, .init = init_topped, .ready_at = ready_masked,
          .take = take_stock, .available = available_stock);
#define GENEROUS(name_, configure_)                                                                \
    ALGORITHM(name_, .types = 1u << WEIR_LIMIT_RATE,                                               \
              .flags = WEIR_ALGORITHM_REFUNDS | WEIR_ALGORITHM_WORD, .configure = configure_,      \
              .ready_at = ready_stock, .take = take_stock, .refund = refund_all,                   \
              .charge = charge_nothing, .available = available_stock)
GENEROUS(generous, configure_stock);
GENEROUS(generous_wide, configure_wide);
#define FORGETFUL(name_, type_, configure_)                                                        \
    ALGORITHM(name_, .types = 1u << (type_), .flags = WEIR_ALGORITHM_WORD,                         \
              .configure = configure_, .ready_at = ready_stock, .take = take_stock,                \
              .available = available_stock, .is_new = is_new_always)
FORGETFUL(forgetful, WEIR_LIMIT_RATE, configure_stock);
FORGETFUL(forgetful_wide, WEIR_LIMIT_RATE, configure_wide);
FORGETFUL(forgetful_large, WEIR_LIMIT_RATE, configure_large);
FORGETFUL(forgetful_resource, WEIR_LIMIT_RESOURCE, configure_stock);

static const struct weir_plugin *const plugins[] = {
    &past_plugin,
    &past_try_plugin,
    &past_wide_plugin,
    &frozen_plugin,
    &frozen_try_plugin,
    &frozen_wide_plugin,
    &topped_plugin,
    &receding_plugin,
    &receding_wide_plugin,
    &retracted_plugin,
    &hesitant_plugin,
    &doubling_plugin,
    &topped_init_plugin,
    &generous_plugin,
    &generous_wide_plugin,
    &forgetful_plugin,
    &forgetful_wide_plugin,
    &forgetful_large_plugin,
    &forgetful_resource_plugin,
};

const struct weir_plugin_table weir_plugins_v1 = {
    .size = sizeof(weir_plugins_v1),
    .abi_minor = WEIR_PLUGIN_ABI_MINOR,
    .plugins_n = sizeof(plugins) / sizeof(*plugins),
    .plugins = plugins,
};
