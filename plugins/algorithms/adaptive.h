/* SPDX-License-Identifier: MIT */
/*
 * What algorithms have in common that adapt how much of a resource may be held at once: bounds, and
 * the units held under a limit that moves between them.
 *
 * A limit is kept in 1/65536 of a unit, so that it can move by less than a unit; its whole units
 * count. All arithmetic is on integers: products that do not fit 64 bits are made in 128, and what
 * a division leaves is dropped. Limits stay below 2^31 units and latencies below 2^40 ns (18
 * minutes, and longer ones count as that).
 *
 * An amount above the limit is granted while nothing is held: otherwise it would wait for ever
 * where the limit has fallen below it, and a limit that grants nothing learns nothing. For the same
 * reason the limit never falls below `floor`, which is at least 1.
 */
#ifndef WEIR_PLUGINS_ADAPTIVE_H
#define WEIR_PLUGINS_ADAPTIVE_H

#include "declare.h"

#define ADAPTIVE_ONE         (UINT64_C(1) << 16) /* one unit of a limit */
#define ADAPTIVE_UNITS_MAX   ((UINT64_C(1) << 31) - 1)
#define ADAPTIVE_LATENCY_MAX (UINT64_C(1) << 40)
#define ADAPTIVE_START       20 /* units, if `initial` is not given */

/* Indices of the first parameters of each such algorithm; the first is CAPACITY. */
enum { FLOOR = CAPACITY + 1, ADAPTIVE_INITIAL, ADAPTIVE_PARAMETERS };

#define PARAMETERS_ADAPTIVE                                                                        \
    {.size = sizeof(struct weir_parameter),                                                        \
     .name = "capacity",                                                                           \
     .type = WEIR_PARAMETER_AMOUNT,                                                                \
     .flags = WEIR_PARAMETER_REQUIRED | WEIR_PARAMETER_DIVISIBLE,                                  \
     .min = 1,                                                                                     \
     .max = ADAPTIVE_UNITS_MAX,                                                                    \
     .doc = "the most that is ever held: the limit grows no further"},                             \
        {.size = sizeof(struct weir_parameter),                                                    \
         .name = "floor",                                                                          \
         .type = WEIR_PARAMETER_AMOUNT,                                                            \
         .flags = WEIR_PARAMETER_DIVISIBLE,                                                        \
         .min = 1,                                                                                 \
         .max = ADAPTIVE_UNITS_MAX,                                                                \
         .default_value = 1,                                                                       \
         .doc = "the limit falls no further; default 1"},                                          \
    {                                                                                              \
        .size = sizeof(struct weir_parameter), .name = "initial", .type = WEIR_PARAMETER_AMOUNT,   \
        .flags = WEIR_PARAMETER_DIVISIBLE, .min = 1, .max = ADAPTIVE_UNITS_MAX,                    \
        .doc = "the limit at first; default 20, within floor and capacity"                         \
    }

struct bounds {
    uint64_t capacity, floor, initial; /* units */
};

/* The beginning of each such state. */
struct load {
    uint64_t held;  /* units */
    uint64_t limit; /* in 1/65536 units, from the floor to the capacity */
};

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Reads the bounds. Returns 0, or -1 with the reason. */
static inline int bounds_read(const struct weir_setup *setup, struct bounds *ret,
                              struct weir_reason *reterr)
{
    uint64_t start = ADAPTIVE_START;
    ret->capacity = setup->values[CAPACITY]->value;
    ret->floor = setup->values[FLOOR]->value;
    if (ret->floor > ret->capacity)
        return refuse_parameter(reterr, FLOOR, "more than the capacity");
    if (start < ret->floor)
        start = ret->floor;
    ret->initial = setup->values[ADAPTIVE_INITIAL]->given ? setup->values[ADAPTIVE_INITIAL]->value
                                                          : min_u64(start, ret->capacity);
    if (ret->initial < ret->floor || ret->initial > ret->capacity)
        return refuse_parameter(reterr, ADAPTIVE_INITIAL, "not within the floor and the capacity");
    return 0;
}

/* Returns a limit, in 1/65536 units, within the bounds. */
static inline uint64_t bounds_clamp(const struct bounds *bounds, u128 limit)
{
    uint64_t least = bounds->floor * ADAPTIVE_ONE, most = bounds->capacity * ADAPTIVE_ONE;
    return limit < least ? least : limit > most ? most : (uint64_t)limit;
}

static inline void load_init(struct load *load, const struct bounds *bounds)
{
    load->held = 0;
    load->limit = bounds->initial * ADAPTIVE_ONE;
}

/* Returns when `amount` would be granted under a limit of so many whole units. */
static inline uint64_t load_ready_at(const struct load *load, const struct bounds *bounds,
                                     uint64_t limit, const struct weir_instant *at, uint64_t amount)
{
    if (amount > bounds->capacity)
        return WEIR_NEVER;
    if (load->held == 0 || (load->held <= limit && amount <= limit - load->held))
        return at->now_ns;
    return WEIR_BLOCKED;
}

static inline uint64_t load_available(const struct load *load, const struct bounds *bounds,
                                      uint64_t limit)
{
    if (load->held == 0)
        return bounds->capacity;
    return load->held < limit ? limit - load->held : 0;
}

/* Returns the units that were held until now. */
static inline uint64_t load_release(struct load *load, uint64_t amount)
{
    uint64_t held = load->held;
    load->held -= min_u64(amount, held);
    return held;
}

static inline void load_take(struct load *load, uint64_t amount)
{
    load->held = min_u64(load->held, ADAPTIVE_UNITS_MAX) + amount;
}

/* Returns whether the limit bounds the load: at least half of it was held. While it does not, it
 * says nothing about a higher one. */
static inline bool load_is_used(const struct load *load, uint64_t held)
{
    return 2 * held >= load->limit / ADAPTIVE_ONE;
}

/* What is held stays; the limit is brought within other bounds. */
static inline void load_carry(struct load *load, const struct bounds *bounds,
                              const struct load *old)
{
    load->held = old->held;
    load->limit = bounds_clamp(bounds, old->limit);
}

static inline int load_check(const struct load *load, const struct bounds *bounds)
{
    if (load->limit < bounds->floor * ADAPTIVE_ONE || load->limit > bounds->capacity * ADAPTIVE_ONE)
        return -1;
    return load->held <= ADAPTIVE_UNITS_MAX ? 0 : -1;
}

static inline bool load_is_new(const struct load *load, const struct bounds *bounds)
{
    return load->held == 0 && load->limit == bounds->initial * ADAPTIVE_ONE;
}

#define GAUGE(name_, type_, doc_)                                                                  \
    {                                                                                              \
        sizeof(struct weir_gauge), (name_), (doc_), (type_), 0                                     \
    }
#define GAUGES_ADAPTIVE                                                                            \
    GAUGE("held", WEIR_PARAMETER_AMOUNT, "units that are held"),                                   \
        GAUGE("limit", WEIR_PARAMETER_AMOUNT, "the most that may be held at present")

#endif
