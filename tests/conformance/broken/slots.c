/* SPDX-License-Identifier: MIT */
/*
 * A limit of a resource that keeps its promises, and, by a macro, one of many that break one: of
 * releases, gauges, reloads, versions, and parameters of the richer types. meson.build says which
 * test finds which variant.
 */
#include <string.h>
#include <weir/algorithm.h>

enum { CAPACITY, LABEL, STEPS, SHARE, ZONE };
enum { LABEL_MAX = 16, STEPS_MAX = 4 };

#define PARAMETER(...)                                                                             \
    {                                                                                              \
        .size = sizeof(struct weir_parameter), __VA_ARGS__                                         \
    }
static const struct weir_parameter parameters[] = {
    PARAMETER(.name = "capacity", .type = WEIR_PARAMETER_AMOUNT, .flags = WEIR_PARAMETER_REQUIRED,
              .min = 1, .max = 1000),
    PARAMETER(.name = "label", .type = WEIR_PARAMETER_TEXT, .flags = WEIR_PARAMETER_REQUIRED,
              .max = LABEL_MAX),
    PARAMETER(.name = "steps", .type = WEIR_PARAMETER_AMOUNT, .flags = WEIR_PARAMETER_LIST,
              .min = 1, .max = 9),
    PARAMETER(.name = "share", .type = WEIR_PARAMETER_RATIO, .min = 1, .max = WEIR_RATIO_ONE,
              .default_value = WEIR_RATIO_ONE),
    PARAMETER(.name = "zone", .type = WEIR_PARAMETER_ZONE),
};

struct config {
    uint64_t capacity;
    uint64_t steps[STEPS_MAX];
    uint64_t types_n; /* of local time in its zone */
    char label[LABEL_MAX];
#ifdef BROKEN_KEEPS_TEXT
    const char *text;
#endif
};

struct state {
    uint64_t held;
    uint64_t failures; /* of releases */
#if defined(BROKEN_RECONFIGURE_NOISE) || defined(BROKEN_RECONFIGURE_ADDRESS)
    uint64_t noise;
#endif
};

static uint64_t zone_types(const struct weir_value *zone)
{
    const unsigned char *bytes = zone->zone;
    uint64_t n = 0;

#ifdef BROKEN_ZONE
    for (unsigned i = 36; bytes && i < 40; i++) /* whether there is a header is not asked */
        n = n << 8 | bytes[i];
    for (uint64_t i = 0; i < n; i++)
        n += bytes[44 + i] > 250;
#else
    if (bytes && zone->value >= 44 && memcmp(bytes, "TZif", 4) == 0)
        n = bytes[39];
#endif
    return n;
}

static int configure(const struct weir_setup *setup, void *bytes, struct weir_footprint *ret,
                     struct weir_reason *reterr)
{
    const struct weir_value *label = setup->values[LABEL], *steps = setup->values[STEPS];
    struct config *config = bytes;
    uint32_t steps_n = steps->items_n;

#ifndef BROKEN_LIST
    if (steps_n > STEPS_MAX) {
        reterr->parameter = STEPS;
        memcpy(reterr->message, "too many", sizeof("too many"));
        return -1;
    }
#endif
    ret->config = sizeof(*config);
    ret->state = sizeof(struct state);
    ret->amount_max = setup->values[CAPACITY]->value;
    if (!config)
        return 0;
    config->capacity = setup->values[CAPACITY]->value;
    for (uint32_t i = 0; i < steps_n; i++)
        config->steps[i] = steps->items[i]->value;
    config->types_n = zone_types(setup->values[ZONE]);
#ifdef BROKEN_TEXT
    memcpy(config->label, label->text, label->value + 1 + sizeof(*config)); /* too much */
#else
    memcpy(config->label, label->text, label->value);
#endif
#ifdef BROKEN_KEEPS_TEXT
    config->text = label->text;
#endif
    return 0;
}

static uint64_t available(const void *bytes, const void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    const struct state *state = memory;

    (void)at;
    return state->held < config->capacity ? config->capacity - state->held : 0;
}

static uint64_t ready_at(const void *bytes, const void *memory, const struct weir_instant *at,
                         uint64_t amount)
{
    const struct config *config = bytes;

    if (amount > config->capacity)
        return WEIR_NEVER;
#ifdef BROKEN_RELEASE_STUCK
    if (((const struct state *)memory)->failures)
        return WEIR_BLOCKED;
#endif
    return amount <= available(bytes, memory, at) ? at->now_ns : WEIR_BLOCKED;
}

static void take(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount)
{
    (void)bytes;
    (void)at;
    ((struct state *)memory)->held += amount;
#ifdef BROKEN_TAKE_ENDLESS
    for (volatile uint64_t i = 1; i;)
        i = 1;
#endif
#ifdef BROKEN_TAKE_SLOW
    for (volatile uint64_t i = 0; i < 200000;)
        i++;
#endif
}

static void release(const void *bytes, void *memory, const struct weir_instant *at,
                    const struct weir_release *release)
{
    struct state *state = memory;
    uint64_t amount = release->amount;

    (void)bytes;
    (void)at;
#ifdef BROKEN_RELEASE_LOST
    if (release->outcome == WEIR_OUTCOME_DROPPED)
        return;
#endif
#ifdef BROKEN_RELEASE_PART
    if (release->outcome == WEIR_OUTCOME_IGNORED)
        return;
#endif
#ifdef BROKEN_RELEASE_TWICE
    amount *= 2;
#endif
#ifdef BROKEN_RELEASE_TABLE
    static const uint64_t weights[] = {0, 1, 1, 0, 0, 0};
    state->failures += weights[release->outcome];
#endif
    if (release->outcome == WEIR_OUTCOME_FAILURE && state->failures < UINT64_MAX)
        state->failures++;
#ifdef BROKEN_RELEASE_WRAPS
    state->held -= amount;
#else
    state->held -= amount < state->held ? amount : state->held;
#endif
}

static int check(const void *bytes, const void *memory)
{
    const struct state *state = memory;

    (void)bytes;
#ifdef BROKEN_RECONFIGURE_CHECK
    if (state->held > ((const struct config *)bytes)->capacity)
        return -1;
#endif
    return state->held > 1000 ? -1 : 0;
}

static void reconfigure(const void *old_bytes, const void *old_memory, const void *bytes,
                        void *memory, const struct weir_instant *at)
{
    const struct state *old = old_memory;
    struct state *state = memory;

    (void)old_bytes;
    (void)bytes;
    (void)at;
    state->held = old->held;
    state->failures = old->failures;
#ifdef BROKEN_RECONFIGURE_FORGETS
    state->held = 0;
#endif
#ifdef BROKEN_RECONFIGURE_CUTS
    if (state->held > ((const struct config *)bytes)->capacity)
        state->held = ((const struct config *)bytes)->capacity;
#endif
#ifdef BROKEN_RECONFIGURE_WRITES_OLD
    ((struct state *)(uintptr_t)old_memory)->held = 0;
#endif
#ifdef BROKEN_RECONFIGURE_NOISE
    volatile uint64_t noise[64];
    state->noise = noise[32];
#endif
#ifdef BROKEN_RECONFIGURE_ADDRESS
    state->noise = (uintptr_t)bytes;
#endif
#ifdef BROKEN_RECONFIGURE_BEHIND
    memset(state + 1, 0, 1);
#endif
}

static int migrate(const char *version, const void *old_state, size_t old_size, const void *config,
                   void *memory, const struct weir_instant *at)
{
    struct state *state = memory;

    (void)config;
    (void)at;
#ifdef BROKEN_MIGRATE_RESULT
    return 1;
#endif
#ifndef BROKEN_MIGRATE_SIZE
    if (old_size < sizeof(uint64_t))
        return -1;
#endif
#ifndef BROKEN_MIGRATE_VERSION
    if (version[0] != '0' || version[1] != '.' || version[2] != '9' || version[3])
        return -1;
#endif
    memcpy(&state->held, old_state, sizeof(uint64_t)); /* of 0.9 this was all */
#ifdef BROKEN_MIGRATE_SIZE
    memcpy(state, old_state, sizeof(*state));
#endif
#ifdef BROKEN_MIGRATE_NOISE
    volatile uint64_t noise[64];
    state->failures = noise[32];
#endif
#ifdef BROKEN_MIGRATE_INVALID
    return 0;
#endif
    return check(config, state);
}

static const struct weir_gauge gauges[] = {
    {sizeof(struct weir_gauge), "held", "units held", WEIR_PARAMETER_AMOUNT, 0},
    {sizeof(struct weir_gauge), "limit", "units that may be held", WEIR_PARAMETER_AMOUNT, 0},
};

static void observe(const void *bytes, const void *memory, const struct weir_instant *at,
                    uint64_t *ret)
{
    const struct config *config = bytes;
    const struct state *state = memory;

    (void)at;
    ret[0] = state->held;
#ifndef BROKEN_OBSERVE_LACKS
    ret[1] = config->capacity;
#endif
#ifdef BROKEN_GAUGE_HELD
    ret[0] = state->held + 1;
#endif
#ifdef BROKEN_OBSERVE_BEHIND
    ret[2] = 0;
#endif
#ifdef BROKEN_OBSERVE_WRITES
    ((struct state *)(uintptr_t)memory)->failures = 0;
#endif
}

static const struct weir_algorithm ops = {
    .size = sizeof(ops),
    .types = 1u << WEIR_LIMIT_RESOURCE,
    .flags = WEIR_ALGORITHM_MONOTONE,
    .configure = configure,
    .ready_at = ready_at,
    .take = take,
    .available = available,
#ifndef BROKEN_RELEASE_MISSING
    .release = release,
#endif
    .reconfigure = reconfigure,
    .migrate = migrate,
    .check = check,
    .gauges = gauges,
    .gauges_n = sizeof(gauges) / sizeof(gauges[0]),
    .observe = observe,
};

static const struct weir_plugin plugin = {
    .size = sizeof(plugin),
    .kind = WEIR_PLUGIN_ALGORITHM,
    .parameters_n = sizeof(parameters) / sizeof(parameters[0]),
    .name = "acme.slots",
    .version = "1.0",
    .summary = "slots that are tested",
    .parameters = parameters,
    .ops = &ops,
    .state_id = UINT64_C(0x8c2f4be1a90d7763),
};

static const struct weir_plugin *const plugins[] = {&plugin};

const struct weir_plugin_table weir_plugins_v1 = {
    .size = sizeof(struct weir_plugin_table),
    .abi_minor = WEIR_PLUGIN_ABI_MINOR,
    .plugins_n = 1,
    .plugins = plugins,
};
