/* SPDX-License-Identifier: MIT */
/*
 * A plugin file with one algorithm and one parameter, right in every way. Each broken file is this
 * one with one definition changed: see meson.build.
 */
#include <stdlib.h>
#include <weir/algorithm.h>
#include <weir/balancer.h>

#ifndef SYMBOL
#define SYMBOL weir_plugins_v1
#endif
#ifndef TABLE_SIZE
#define TABLE_SIZE sizeof(struct weir_plugin_table)
#endif
#ifndef PLUGINS_N
#define PLUGINS_N 1
#endif
#ifndef PLUGINS
#define PLUGINS plugins
#endif
#ifndef ABI_MINOR
#define ABI_MINOR WEIR_PLUGIN_ABI_MINOR
#endif
#ifndef NEEDS_MINOR
#define NEEDS_MINOR 0
#endif
#ifndef TABLE_FLAGS
#define TABLE_FLAGS 0
#endif
#ifndef PLUGIN_FLAGS
#define PLUGIN_FLAGS 0
#endif
#ifndef STATE_ID
#define STATE_ID 0
#endif
#ifndef PARAMETER_FLAGS
#define PARAMETER_FLAGS 0
#endif
#ifndef FIRST
#define FIRST &plugin
#endif
#ifndef SECOND
#define SECOND NULL
#endif
#ifndef PLUGIN_SIZE
#define PLUGIN_SIZE sizeof(struct weir_plugin)
#endif
#ifndef KIND
#define KIND WEIR_PLUGIN_ALGORITHM
#endif
#ifndef VERSION
#define VERSION "2.1"
#endif
#ifndef SUMMARY
#define SUMMARY "grants everything"
#endif
#ifndef PARAMETERS_N
#define PARAMETERS_N 2
#endif
#ifndef PARAMETERS
#define PARAMETERS (const struct weir_parameter *)(const void *)parameters
#endif
#ifndef PARAMETER_SIZE
#define PARAMETER_SIZE sizeof(parameters[0])
#endif
#ifndef PARAMETER_TYPE
#define PARAMETER_TYPE struct weir_parameter
#endif
#ifndef PARAMETER_REST
#define PARAMETER_REST .default_value = DEFAULT, .choices = CHOICES, .doc = DOC
#endif
#ifndef PARAMETER_NAME
#define PARAMETER_NAME "first"
#endif
#ifndef TYPE
#define TYPE WEIR_PARAMETER_AMOUNT
#endif
#ifndef MIN
#define MIN 2
#endif
#ifndef MAX
#define MAX 10
#endif
#ifndef DEFAULT
#define DEFAULT 5
#endif
#ifndef CHOICES
#define CHOICES NULL
#endif
#ifndef DOC
#define DOC "how much"
#endif
#ifndef OPS
#define OPS &ops
#endif
#ifndef OPS_SIZE
#define OPS_SIZE sizeof(ops)
#endif
#ifndef TYPES
#define TYPES (1u << WEIR_LIMIT_RATE)
#endif
#ifndef FLAGS
#define FLAGS 0
#endif
#ifndef CONFIGURE
#define CONFIGURE configure
#endif
#ifndef INIT
#define INIT NULL
#endif
#ifndef READY_AT
#define READY_AT ready_at
#endif
#ifndef TAKE
#define TAKE take
#endif
#ifndef AVAILABLE
#define AVAILABLE available
#endif
#ifndef REFUND_STRICT
#define REFUND_STRICT NULL
#endif
#ifndef GAUGES_N
#define GAUGES_N 2
#endif
#ifndef GAUGE_SIZE
#define GAUGE_SIZE sizeof(struct weir_gauge)
#endif
#ifndef GAUGE_NAME
#define GAUGE_NAME "limit"
#endif
#ifndef GAUGE_DOC
#define GAUGE_DOC "the most that may be held now"
#endif
#ifndef GAUGE_TYPE
#define GAUGE_TYPE WEIR_PARAMETER_AMOUNT
#endif
#ifndef GAUGE_FLAGS
#define GAUGE_FLAGS 0
#endif
#ifndef OBSERVE
#define OBSERVE observe
#endif
#ifndef PICK
#define PICK pick
#endif
#ifndef OUTCOME
#define OUTCOME NULL
#endif

/* A parameter as the first release of an interface might have had it. */
struct short_parameter {
    size_t size;
    const char *name;
    uint32_t type;
    uint32_t flags;
    uint64_t min, max;
};

/* Structs of a later release, with more at the end. */
struct long_parameter {
    struct weir_parameter parameter;
    uint64_t more[3];
};
struct long_algorithm {
    struct weir_algorithm algorithm;
    void (*more[4])(void);
};
struct long_balancer {
    struct weir_balancer balancer;
    void (*more[4])(void);
};
struct long_gauge {
    struct weir_gauge gauge;
    uint64_t more[2];
};

/* Texts that cannot be shown. */
extern const char two_lines[], not_utf8[];
const char two_lines[] = "two\nlines", not_utf8[] = "\xff\xfe";

/* Words that choices may have. */
extern const char *const words[], *const no_words[], *const same_words[], *const bad_words[];
const char *const words[] = {"one", "two", NULL};
const char *const no_words[] = {NULL};
const char *const same_words[] = {"one", "one", NULL};
const char *const bad_words[] = {"one", "Two words", NULL};
extern const char *const outside_words[];
const char *const outside_words[] = {"one", (const char *)4096, NULL};

typedef void (*take_function)(const void *, void *, const struct weir_instant *, uint64_t);
typedef void (*outcome_function)(const void *, void *, const struct weir_pick_outcome *);

extern const PARAMETER_TYPE parameters[];
const PARAMETER_TYPE parameters[] = {
#ifdef LONG_PARAMETERS
    {{.size = PARAMETER_SIZE, .name = "first", .type = TYPE, .max = MAX, .doc = DOC}, {1, 2, 3}},
    {{.size = PARAMETER_SIZE, .name = "second", .type = TYPE, .max = MAX, .doc = DOC}, {4, 5, 6}},
#else
    {.size = PARAMETER_SIZE,
     .name = PARAMETER_NAME,
     .type = TYPE,
     .flags = PARAMETER_FLAGS,
     .min = MIN,
     .max = MAX,
     PARAMETER_REST},
#ifdef SECOND_NAME
    {.size = sizeof(parameters[0]), .name = SECOND_NAME, .type = WEIR_PARAMETER_AMOUNT, .max = 9},
#else
    {.size = sizeof(parameters[0]), .name = "second", .type = WEIR_PARAMETER_DURATION, .max = 9},
#endif
#endif
};

int configure(const struct weir_setup *setup, void *config, struct weir_footprint *ret,
              struct weir_reason *reterr);
uint64_t ready_at(const void *config, const void *state, const struct weir_instant *at,
                  uint64_t amount);
void take(const void *config, void *state, const struct weir_instant *at, uint64_t amount);
uint64_t available(const void *config, const void *state, const struct weir_instant *at);
void refund_strict(const void *config, void *state, const struct weir_instant *at, uint64_t amount,
                   uint64_t granted_ns);
void observe(const void *config, const void *state, const struct weir_instant *at, uint64_t *ret);
uint32_t pick(const void *config, void *state, const struct weir_pick *request);
void trap(void);

int configure(const struct weir_setup *setup, void *config, struct weir_footprint *ret,
              struct weir_reason *reterr)
{
    (void)setup, (void)config, (void)reterr;
    ret->config = 0;
    ret->state = 8;
    ret->amount_max = 1;
    return 0;
}

uint64_t ready_at(const void *config, const void *state, const struct weir_instant *at,
                  uint64_t amount)
{
    (void)config, (void)state, (void)amount;
    return at->now_ns;
}

void take(const void *config, void *state, const struct weir_instant *at, uint64_t amount)
{
    (void)config, (void)state, (void)at, (void)amount;
}

uint64_t available(const void *config, const void *state, const struct weir_instant *at)
{
    (void)config, (void)state, (void)at;
    return 1;
}

void refund_strict(const void *config, void *state, const struct weir_instant *at, uint64_t amount,
                   uint64_t granted_ns)
{
    (void)config, (void)state, (void)at, (void)amount, (void)granted_ns;
}

void observe(const void *config, const void *state, const struct weir_instant *at, uint64_t *ret)
{
    (void)config, (void)state, (void)at;
    ret[0] = 7;
    ret[1] = 8;
}

#ifdef LONG_GAUGES
extern const struct long_gauge long_gauges[];
const struct long_gauge long_gauges[] = {
    {{sizeof(struct long_gauge), "wait", "the last wait", WEIR_PARAMETER_DURATION, 0}, {1, 2}},
    {{sizeof(struct long_gauge), GAUGE_NAME, GAUGE_DOC, GAUGE_TYPE, 0}, {3, 4}},
};
#define GAUGES ((const struct weir_gauge *)(const void *)long_gauges)
#else
#define GAUGES gauges
#endif
extern const struct weir_gauge gauges[];
const struct weir_gauge gauges[] = {
    {sizeof(struct weir_gauge), "wait", "the last wait", WEIR_PARAMETER_DURATION, 0},
    {GAUGE_SIZE, GAUGE_NAME, GAUGE_DOC, GAUGE_TYPE, GAUGE_FLAGS},
};

uint32_t pick(const void *config, void *state, const struct weir_pick *request)
{
    (void)config, (void)state, (void)request;
    return 0;
}

/* Stands behind the end of a struct: it may not be found. */
void trap(void)
{
    __builtin_trap();
}

#define ALGORITHM                                                                                  \
    {                                                                                              \
        .size = OPS_SIZE, .types = TYPES, .flags = FLAGS, .configure = CONFIGURE, .init = INIT,    \
        .ready_at = READY_AT, .take = TAKE, .available = AVAILABLE,                                \
        .refund_strict = REFUND_STRICT, .gauges = GAUGES, .gauges_n = GAUGES_N, .observe = OBSERVE \
    }

#define BALANCER_OPS                                                                               \
    {                                                                                              \
        .size = OPS_SIZE, .flags = FLAGS, .configure = NULL, .pick = PICK, .outcome = OUTCOME      \
    }

#if defined(BALANCER) && defined(LONG_OPS)
extern const struct long_balancer ops;
const struct long_balancer ops = {BALANCER_OPS, {trap, trap, trap, trap}};
#elif defined(BALANCER)
extern const struct weir_balancer ops;
const struct weir_balancer ops = BALANCER_OPS;
#elif defined(LONG_OPS)
extern const struct long_algorithm ops;
const struct long_algorithm ops = {ALGORITHM, {trap, trap, trap, trap}};
#elif defined(SHORT_OPS)
extern const struct weir_algorithm ops;
const struct weir_algorithm ops = {
    .size = offsetof(struct weir_algorithm, release),
    .types = TYPES,
    .configure = CONFIGURE,
    .ready_at = READY_AT,
    .take = TAKE,
    .available = AVAILABLE,
    .release = (void (*)(const void *, void *, const struct weir_instant *,
                         const struct weir_release *))trap,
};
#else
extern const struct weir_algorithm ops;
const struct weir_algorithm ops = ALGORITHM;
#endif

extern const struct weir_algorithm other_ops;
const struct weir_algorithm other_ops = {
    .size = sizeof(other_ops),
    .types = 1u << WEIR_LIMIT_RATE,
    .configure = configure,
    .ready_at = ready_at,
    .take = take,
    .available = available,
};

extern const struct weir_plugin plugin, same, other;
const struct weir_plugin plugin = {
    .size = PLUGIN_SIZE,
    .kind = KIND,
    .parameters_n = PARAMETERS_N,
    .name = NAME,
    .version = VERSION,
    .summary = SUMMARY,
    .parameters = PARAMETERS,
    .ops = OPS,
    .flags = PLUGIN_FLAGS,
    .state_id = STATE_ID,
};

/* The same name again. */
const struct weir_plugin same = {
    .size = sizeof(same),
    .kind = KIND,
    .name = NAME,
    .version = "1",
    .summary = "the same again",
    .ops = &ops,
};

/* A second plugin that is not found under its file's name. */
const struct weir_plugin other = {
    .size = sizeof(other),
    .kind = WEIR_PLUGIN_ALGORITHM,
    .name = "hidden_inside",
    .version = "1",
    .summary = "is not where its name says",
    .ops = &other_ops,
};

extern const struct weir_plugin *const plugins[];
const struct weir_plugin *const plugins[] = {FIRST, SECOND};

extern const struct weir_plugin_table SYMBOL;
WEIR_PLUGIN_EXPORT const struct weir_plugin_table SYMBOL = {
    .size = TABLE_SIZE,
    .abi_minor = ABI_MINOR,
    .plugins_n = PLUGINS_N,
    .plugins = PLUGINS,
    .needs_minor = NEEDS_MINOR,
    .flags = TABLE_FLAGS,
};
