/* SPDX-License-Identifier: MIT */
/*
 * An algorithm that keeps its promises, and, by a macro, one of many that break one. It is GCRA
 * with a whole number of nanoseconds for each unit. broken.toml says which test finds which
 * variant.
 */
#include <string.h>
#include <weir/algorithm.h>
#ifdef HAS_INCLUDES
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#endif

#ifdef HAS_IMPORT
#include HAS_IMPORT
#endif

enum { CAPACITY, WINDOW };

static const struct weir_parameter parameters[] = {
    {.size = sizeof(struct weir_parameter),
     .name = "capacity",
     .type = WEIR_PARAMETER_AMOUNT,
     .flags = WEIR_PARAMETER_REQUIRED,
     .min = 1,
     .max = 1000000},
    {.size = sizeof(struct weir_parameter),
     .name = "window",
     .type = WEIR_PARAMETER_DURATION,
#ifdef BROKEN_DEFAULT_OUT_OF_RANGE
     .default_value = UINT64_C(2000000000000000),
#else
     .default_value = 1000000000,
#endif
#ifdef BROKEN_RANGE
     .min = 1,
#else
     .min = 1000000,
#endif
     .max = UINT64_C(1000000000000000)},
};

struct config {
    uint64_t capacity;
    uint64_t interval; /* ns of a unit */
    uint64_t depth;    /* ns of all */
#ifdef BROKEN_CONFIG_POINTER
    const void *self;
#endif
#ifdef BROKEN_CONFIG_PADDING
    uint64_t noise;
#endif
};

struct state {
    uint64_t full; /* instant at which all is available again */
#ifndef IS_WORD
    uint64_t last; /* instant last seen */
#endif
#ifdef BROKEN_STATE_POINTER
    uintptr_t self;
#endif
#ifdef BROKEN_STATE_NOISE
    uint64_t noise;
#endif
#ifdef IS_CHANCE
    uint64_t chance; /* of a SplitMix64 generator */
#endif
};

#ifdef BROKEN_STATIC
static uint64_t counted;
#endif
#ifdef BROKEN_THREAD_LOCAL
static _Thread_local uint64_t counted;
#endif
#if defined(BROKEN_STATIC) || defined(BROKEN_THREAD_LOCAL)
#define COUNT() (counted++)
#else
#define COUNT() ((void)0)
#endif

#ifdef BROKEN_CONSTRUCTOR
__attribute__((constructor)) static void begin(void)
{
    __asm__ volatile("");
}
#endif
#ifdef BROKEN_DESTRUCTOR
__attribute__((destructor)) static void end(void)
{
    __asm__ volatile("");
}
#endif
#ifdef BROKEN_CRASH_AT_LOAD
__attribute__((constructor)) static void begin(void)
{
    __builtin_trap();
}
#endif
#ifdef BROKEN_HANG_AT_LOAD
__attribute__((constructor)) static void begin(void)
{
    for (volatile int i = 0;;)
        i = 1;
}
#endif
#ifdef BROKEN_EXPORTS
WEIR_PLUGIN_EXPORT int helper(void);
int helper(void)
{
    return 1;
}
#endif

/* An operation that the compiler does not see through. */
#define OPAQUE(value) __asm__ volatile("" : "+r"(value))

/* Not by strlen(), which is an import where the compiler does not know the length. */
static int refuse(struct weir_reason *reterr, uint32_t parameter, const char *message, size_t size)
{
    reterr->parameter = parameter;
    memcpy(reterr->message, message, size);
    return -1;
}
#define REFUSE(parameter, message) refuse(reterr, parameter, message, sizeof(message))

static int configure(const struct weir_setup *setup, void *bytes, struct weir_footprint *ret,
                     struct weir_reason *reterr)
{
    uint64_t capacity = setup->values[CAPACITY]->value, window = setup->values[WINDOW]->value;
    struct config *config = bytes;

#ifdef BROKEN_REFUSES_ALL
    return REFUSE(CAPACITY, "not today");
#endif
#ifdef BROKEN_NO_REASON
    return REFUSE(CAPACITY, "");
#endif
#ifdef BROKEN_BLAMES_UNKNOWN
    return REFUSE(17, "this one");
#endif
#ifdef BROKEN_RESULT
    return 1;
#endif
#ifdef BROKEN_CONFIGURE_ENDLESS
    for (uint64_t i = 1; i != 0;)
        OPAQUE(i);
#endif
#ifndef BROKEN_RANGE
    if (capacity > window)
        return REFUSE(CAPACITY, "more than one unit in each ns of the window");
#endif
    ret->config = sizeof(*config);
    ret->state = sizeof(struct state);
    ret->amount_max = capacity;
#ifdef BROKEN_FOOTPRINT_DIFFERS
    ret->state += config ? 8 : 0;
#endif
#ifdef BROKEN_FOOTPRINT_NEWER
    ret->flags = UINT32_C(1) << 16;
#endif
#ifdef BROKEN_FOOTPRINT_ODD
    ret->state += 4;
#endif
#ifdef BROKEN_FOOTPRINT_HUGE
    ret->state = UINT64_C(1) << 40;
#endif
#ifdef BROKEN_CONFIG_HUGE
    ret->config = UINT64_C(1) << 40;
#endif
#ifdef BROKEN_AMOUNT_MAX_ZERO
    ret->amount_max = 0;
#endif
#ifdef BROKEN_SIZE_CHANGED
    ret->size = 4096;
#endif
#ifdef BROKEN_NEVER_GRANTS_MAX
    ret->amount_max = capacity + 1;
#endif
#ifdef BROKEN_REFUSES_SECOND
    if (config)
        return REFUSE(CAPACITY, "on second thought");
#endif
    if (!config)
        return 0;
    config->capacity = capacity;
    config->interval = window / capacity;
    config->depth = config->interval * capacity;
#ifdef BROKEN_CONFIG_POINTER
    config->self = config;
#endif
#ifdef BROKEN_CONFIG_PADDING
    volatile uint64_t noise[64];
    config->noise = noise[32];
#endif
#ifdef BROKEN_CONFIG_OVERRUN
    config[1].capacity = 1;
#endif
    return 0;
}

static uint64_t seen(const struct state *state, uint64_t now)
{
#ifdef IS_WORD
    (void)state;
    return now;
#else
    return now > state->last ? now : state->last;
#endif
}

static void see(struct state *state, uint64_t now)
{
#ifdef IS_WORD
    (void)state;
    (void)now;
#else
    state->last = now;
#endif
}

static uint64_t latest(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t available(const void *bytes, const void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    uint64_t now = seen(state, at->now_ns), full = latest(state->full, now);
    uint64_t left =
        full - now > config->depth ? 0 : (config->depth - (full - now)) / config->interval;

#ifdef BROKEN_AVAILABLE_WRITES
    ((struct state *)(uintptr_t)memory)->last = now;
#endif
#ifdef BROKEN_AVAILABLE_LOW
    return left / 2;
#endif
#ifdef BROKEN_AVAILABLE_HIGH
    return left + 1;
#endif
    return left > config->capacity ? config->capacity : left;
}

static uint64_t ready_at(const void *bytes, const void *memory, const struct weir_instant *at,
                         uint64_t amount)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    uint64_t now = seen(state, at->now_ns), need, ready;

    COUNT();
#ifdef HAS_IMPORT_CALL
    HAS_IMPORT_CALL;
#endif
#ifdef BROKEN_READY_WRITES
    ((struct state *)(uintptr_t)memory)->last = now;
#endif
#ifdef BROKEN_CONFIG_WRITTEN
    ((struct config *)(uintptr_t)bytes)->capacity++;
#endif
#ifdef BROKEN_ENDLESS
    for (uint64_t i = amount; i != 0;)
        OPAQUE(i);
#endif
#ifdef BROKEN_SLOW
    for (uint64_t i = 0; i < 200000; i++)
        OPAQUE(i);
#endif
#ifdef BROKEN_DIVIDES
    uint64_t zero = 0;
    OPAQUE(zero);
    return now / zero;
#endif
#ifdef BROKEN_SYSTEM_CALL
    long call = 39;
    __asm__ volatile("syscall" : "+a"(call) : : "rcx", "r11", "memory");
#endif
#ifdef BROKEN_EXIT
    long call = 231;
    __asm__ volatile("syscall" : "+a"(call) : "D"(0) : "rcx", "r11", "memory");
#endif
#ifdef BROKEN_WALL
    now += (uint64_t)(at->wall_offset_ns & 0xfffff);
#endif
#ifdef BROKEN_HIDDEN
    static uint64_t turns;
    amount = ++turns % 7 == 0 && amount > 1 ? amount - 1 : amount;
#endif
#ifdef BROKEN_UNINITIALIZED
    volatile uint64_t noise[64];
    if (noise[32] & 1)
        return at->now_ns + 1;
#endif
    if (amount > config->capacity)
        return WEIR_NEVER;
    need = amount * config->interval;
    ready = latest(state->full, now) + need;
#ifdef BROKEN_WRAPS
    ready = (ready << 1) >> 1 > UINT64_C(1) << 62 ? 5 : ready;
#endif
    ready = ready > config->depth ? latest(now, ready - config->depth) : now;
    if (ready == now)
        ready = at->now_ns;
#ifdef BROKEN_READY_PAST
    return ready == at->now_ns && ready ? ready - 1 : ready;
#endif
#ifdef BROKEN_READY_EARLY
    return ready > at->now_ns + 1 ? ready - 1 : ready;
#endif
#ifdef BROKEN_READY_LATE
    return ready > at->now_ns ? ready + 1 : ready;
#endif
#ifdef BROKEN_LAPSES
    return now % 3 == 0 && ready == at->now_ns ? now + 1 : ready;
#endif
    return ready;
}

#ifdef IS_CHANCE
static void init(const void *bytes, void *memory, const struct weir_instant *at)
{
    (void)bytes;
    ((struct state *)memory)->chance = at->now_ns;
}

static uint64_t chance(struct state *state)
{
    uint64_t x = state->chance += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}
#endif

static void take(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount)
{
    const struct config *config = bytes;
    struct state *state = memory;
    uint64_t now = seen(state, at->now_ns);

#ifdef BROKEN_NULL
    volatile uint64_t *null = NULL;
    *null = amount;
#endif
#ifdef BROKEN_BEHIND_STATE
    memcpy((unsigned char *)memory + sizeof(*state), &amount, 1);
#endif
#ifdef BROKEN_BEFORE_STATE
    memcpy((unsigned char *)memory - 1, &amount, 1);
#endif
#ifdef BROKEN_STATE_POINTER
    if (state->self && state->self != (uintptr_t)memory)
        amount++;
    state->self = (uintptr_t)memory;
#endif
#ifdef BROKEN_STATE_NOISE
    volatile uint64_t noise[64];
    state->noise = noise[32];
#endif
#ifdef BROKEN_TAKES_NOTHING
    return;
#endif
#ifdef BROKEN_UNLIMITED
    state->last++;
    return;
#endif
    see(state, now);
#ifdef BROKEN_TAKE_GIVES
    state->full = now > config->depth ? now - config->depth : 0;
    state->last = now + 1;
    return;
#endif
    state->full = latest(state->full, now) + amount * config->interval;
#ifdef IS_CHANCE
    state->full += chance(state) % config->interval;
#endif
#ifdef BROKEN_TOP_BIT
    state->full |= UINT64_C(1) << 63;
#endif
}

static uint64_t try_take(const void *bytes, void *memory, const struct weir_instant *at,
                         uint64_t amount)
{
    uint64_t ready = ready_at(bytes, memory, at, amount);

    if (ready == at->now_ns)
        take(bytes, memory, at, amount);
#ifdef BROKEN_TRY_TAKE_LEAVES
    else
        ((struct state *)memory)->last = seen(memory, at->now_ns);
#endif
#ifdef BROKEN_TRY_TAKE_OTHER
    if (ready == at->now_ns)
        ((struct state *)memory)->full++;
#endif
#ifdef BROKEN_TRY_TAKE_ANSWER
    return ready == at->now_ns ? ready : ready + 1;
#endif
    return ready;
}

static void refund(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount,
                   uint64_t granted_ns)
{
    const struct config *config = bytes;
    struct state *state = memory;
    uint64_t now = seen(state, at->now_ns), most;

    (void)granted_ns;
    see(state, now);
    if (state->full <= now)
        return;
    amount = amount > config->capacity ? config->capacity : amount;
#ifdef BROKEN_REFUND_OLDER
    amount *= granted_ns < now ? 2 : 1;
#endif
    most = (state->full - now) / config->interval;
#ifdef BROKEN_REFUND_MORE
    amount++;
#endif
    amount = amount < most ? amount : most;
    state->full -= amount * config->interval;
#ifdef BROKEN_REFUND_FILLS
    state->full = 0;
#endif
}

static void refund_strict(const void *bytes, void *memory, const struct weir_instant *at,
                          uint64_t amount, uint64_t granted_ns)
{
#ifdef BROKEN_REFUND_STRICT
    ((struct state *)memory)->full = 0;
#endif
    refund(bytes, memory, at, amount, granted_ns);
}

static void charge(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount)
{
    const struct config *config = bytes;
    struct state *state = memory;
    uint64_t now = seen(state, at->now_ns), most = now + 2 * config->depth;

    see(state, now);
#ifndef BROKEN_CHARGE_WRAPS
    amount = amount > config->capacity ? config->capacity : amount;
#endif
    state->full = latest(state->full, now) + amount * config->interval;
    state->full = state->full < most ? state->full : most;
#ifdef BROKEN_CHARGE_GIVES
    state->full = 0;
#endif
}

static int check(const void *bytes, const void *memory)
{
    const struct state *state = memory;

    (void)bytes;
#ifdef BROKEN_CHECK_STRICT
    if (state->full % 2)
        return -1;
#endif
#ifdef BROKEN_CHECK_LAX
    return 0;
#endif
#ifndef IS_WORD
    if (state->last > WEIR_CLOCK_MAX)
        return -1;
#endif
    return state->full > WEIR_CLOCK_MAX + UINT64_C(3000000000000000) ? -1 : 0;
}

static int is_new(const void *bytes, const void *memory, const struct weir_instant *at)
{
    const struct state *state = memory;

    (void)bytes;
#ifdef IS_CHANCE
    return 0; /* a new state would have other chances */
#endif
#ifdef BROKEN_IS_NEW
    return 1;
#endif
#ifdef BROKEN_IS_NEW_TWO
    return 2;
#endif
    return state->full <= seen(state, at->now_ns) && seen(state, at->now_ns) == at->now_ns;
}

#ifdef BROKEN_CORRUPT_INDEX
static uint64_t available_by_table(const void *bytes, const void *memory,
                                   const struct weir_instant *at)
{
    const unsigned char *table = memory;
    const struct state *state = memory;
    volatile unsigned char read = table[state->full > WEIR_CLOCK_MAX ? state->full : 0];

    (void)read;
    return available(bytes, memory, at);
}
#define AVAILABLE available_by_table
#endif
#ifdef BROKEN_CORRUPT_LOOP
static uint64_t available_by_steps(const void *bytes, const void *memory,
                                   const struct weir_instant *at)
{
    const struct state *state = memory;

    for (uint64_t i = WEIR_CLOCK_MAX; i < state->full; i++)
        OPAQUE(i);
    return available(bytes, memory, at);
}
#define AVAILABLE available_by_steps
#endif

#ifdef BROKEN_NOT_MONOTONE
/* Windows that begin at an odd instant are twice as long. */
static uint64_t ready_by_window(const void *bytes, const void *memory,
                                const struct weir_instant *at, uint64_t amount)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    uint64_t length = state->full % 2 ? 2 * config->depth : config->depth / 2;

    if (amount > config->capacity)
        return WEIR_NEVER;
    if (!state->full || at->now_ns >= state->full + length)
        return at->now_ns;
    return state->full + length;
}
static void take_by_window(const void *bytes, void *memory, const struct weir_instant *at,
                           uint64_t amount)
{
    (void)bytes;
    (void)amount;
    ((struct state *)memory)->full = at->now_ns;
}
#define READY_AT ready_by_window
#define TAKE     take_by_window
#endif

#ifdef BROKEN_TIME_BACK
/* One grant in each window: another window than the last one is new, even if it is an earlier one.
 */
static uint64_t ready_in_window(const void *bytes, const void *memory,
                                const struct weir_instant *at, uint64_t amount)
{
    const struct config *config = bytes;
    const struct state *state = memory;
    uint64_t window = at->now_ns / config->depth;

    if (amount > config->capacity)
        return WEIR_NEVER;
    return state->full == window + 1 ? (window + 1) * config->depth : at->now_ns;
}
static void take_in_window(const void *bytes, void *memory, const struct weir_instant *at,
                           uint64_t amount)
{
    const struct config *config = bytes;

    (void)amount;
    ((struct state *)memory)->full = at->now_ns / config->depth + 1;
}
#define READY_AT ready_in_window
#define TAKE     take_in_window
#endif

#ifndef READY_AT
#define READY_AT ready_at
#define TAKE     take
#endif
#ifndef AVAILABLE
#define AVAILABLE available
#endif

static const struct weir_algorithm ops = {
    .size = sizeof(ops),
    .types = 1u << WEIR_LIMIT_RATE | 1u << WEIR_LIMIT_CALL,
    .flags = WEIR_ALGORITHM_REFUNDS
#ifdef IS_WORD
             | WEIR_ALGORITHM_WORD
#endif
#ifdef BROKEN_NEEDS_FLAG
             | UINT32_C(1) << 16
#endif
             | WEIR_ALGORITHM_MONOTONE,
    .configure = configure,
#ifndef BROKEN_LACKS_READY_AT
    .ready_at = READY_AT,
#endif
#ifdef IS_CHANCE
    .init = init,
#endif
    .take = TAKE,
    .refund = refund,
    .charge = charge,
    .available = AVAILABLE,
    .check = check,
    .try_take = try_take,
    .is_new = is_new,
    .refund_strict = refund_strict,
};

static const struct weir_plugin plugin = {
    .size = sizeof(plugin),
    .kind = WEIR_PLUGIN_ALGORITHM,
    .parameters_n = sizeof(parameters) / sizeof(parameters[0]),
#ifdef BROKEN_NAME
    .name = "Acme Quota!",
#else
    .name = "acme.quota",
#endif
    .version = "1.0",
    .summary = "a quota that is tested",
    .parameters = parameters,
    .ops = &ops,
    .state_id = UINT64_C(0x5a5f0c9c3f2d71b3),
};

static const struct weir_plugin *const plugins[] = {&plugin};

#ifdef BROKEN_NO_TABLE
extern const struct weir_plugin_table other_table;
WEIR_PLUGIN_EXPORT const struct weir_plugin_table other_table = {
#else
const struct weir_plugin_table weir_plugins_v1 = {
#endif
    .size = sizeof(struct weir_plugin_table),
    .abi_minor = WEIR_PLUGIN_ABI_MINOR,
    .plugins_n = 1,
    .plugins = plugins,
#ifdef BROKEN_NEEDS_NEWER
    .needs_minor = WEIR_PLUGIN_ABI_MINOR + 1,
#endif
};
