/* SPDX-License-Identifier: MIT */
/*
 * A limit: data. Its type, key, algorithm, configuration, and where its state lies in the set's
 * state. It synchronizes nothing and never changes once made.
 */
#ifndef WEIR_CORE_LIMIT_LIMIT_H
#define WEIR_CORE_LIMIT_LIMIT_H

#include "base/compiler.h"
#include <stdbool.h>
#include <weir/algorithm.h>

struct limit {
    enum weir_limit_type type;
    bool refunds;                           /* unused amounts of a rate or call go back */
    bool charges;                           /* usage beyond the amount becomes debt */
    const char *key;                        /* owned */
    const struct weir_algorithm *algorithm; /* NULL: a counted resource */
    const char *algorithm_name;             /* NULL for a counted resource, as is the next */
    const char *algorithm_version;          /* of its plugin */
    char *settings_text;   /* owned; its settings as written: name NUL value NUL, and so on */
    uint32_t settings_n;   /* how many */
    void *config;          /* owned; the algorithm's, aligned to 16 */
    size_t config_size;    /* in bytes */
    uint64_t capacity;     /* the largest amount that can be granted */
    uint32_t state_offset; /* where its state begins, in 8-byte words from that of the set */
    uint32_t state_words;  /* of a counted resource: 1, the units held */
    uint64_t lease;        /* what a thread takes at once, to use it bit by bit; 0: what it needs */
};

/* The decision of one limit about its own words of state; resources without an algorithm included.
 */
uint64_t limit_ready_at(const struct limit *limit, const uint64_t *state,
                        const struct weir_instant *at, uint64_t amount);
void limit_take(const struct limit *limit, uint64_t *state, const struct weir_instant *at,
                uint64_t amount);
uint64_t limit_take_if_ready(const struct limit *limit, uint64_t *state,
                             const struct weir_instant *at, uint64_t amount);
/* Both in one: what limit_ready_at returns; if that is now, it was taken, otherwise nothing was. */
static inline uint64_t limit_try_take(const struct limit *limit, uint64_t *state,
                                      const struct weir_instant *at, uint64_t amount)
{
    if (limit->algorithm && limit->algorithm->try_take)
        return limit->algorithm->try_take(limit->config, state, at, amount);
    if (!limit->algorithm && amount <= limit->capacity && *state <= limit->capacity - amount) {
        *state += amount;
        return at->now_ns;
    }
    return limit_take_if_ready(limit, state, at, amount);
}
/* A resource gives back what was held since `granted_ns`. */
void limit_release(const struct limit *limit, uint64_t *state, const struct weir_instant *at,
                   uint64_t amount, uint64_t granted_ns);
void limit_refund(const struct limit *limit, uint64_t *state, const struct weir_instant *at,
                  uint64_t amount, uint64_t granted_ns);
void limit_charge(const struct limit *limit, uint64_t *state, const struct weir_instant *at,
                  uint64_t amount);
uint64_t limit_available(const struct limit *limit, const uint64_t *state,
                         const struct weir_instant *at);

/* Whether it decides as a new one would, now and later. False: not so, or nobody knows. */
bool limit_is_new(const struct limit *limit, const uint64_t *state, const struct weir_instant *at);

/* The limits of a set together; each state lies at limit->state_at of `states`. */
struct limits {
    struct limit *items;
    uint32_t state_words;
    uint16_t n;                    /* at most WEIR_LIMITS_MAX */
    bool has_resources : 1;        /* of type resource */
    bool has_waits : 1;            /* rates or calls: the only ones whose waits can be foreseen */
    bool has_opaque_resources : 1; /* resources that an algorithm decides about */
    /* Several rates or calls, and whoever is served late may let others in earlier than foreseen. */
    bool has_anomalies : 1;
    bool has_lease : 1;  /* the only limit is leased (lease.h) */
    bool reads_wall : 1; /* some algorithm wants the wall-clock offset */
};

void limits_describe(struct limits *limits);
void limits_init(const struct limits *limits, uint64_t *states, const struct weir_instant *at);

/*
 * Whether the words can be states of these limits: 0 or -1. They may be anything, but must be a
 * copy that nobody else writes to. After 0 all of the above may be called on them: none crashes,
 * hangs or leaves its words.
 */
int limits_check(const struct limits *limits, const uint64_t *states);
/* The same of one limit, and the words of its state. */
WEIR_ALWAYS_INLINE int limit_check(const struct limit *limit, const uint64_t *state)
{
    if (limit->algorithm)
        return limit->algorithm->check ? limit->algorithm->check(limit->config, state) : 0;
    return state[0] <= limit->capacity ? 0 : -1;
}

/*
 * The first instant at which all of `amounts` would be granted; at->now_ns: now. `*ret_blame` is
 * the limit that says so, untouched if now. Without `with_resources` resources count as available.
 */
uint64_t limits_ready_at(const struct limits *limits, const uint64_t *states,
                         const struct weir_instant *at, const uint64_t *amounts,
                         bool with_resources, const struct limit **ret_limiting);
void limits_take(const struct limits *limits, uint64_t *states, const struct weir_instant *at,
                 const uint64_t *amounts, bool with_resources);
/* limits_try_take() of any number of them. */
uint64_t limits_try_take_many(const struct limits *limits, uint64_t *states,
                              const struct weir_instant *at, const uint64_t *amounts,
                              const struct limit **ret_limiting);
/*
 * Both in one, with resources, and cheaper: takes all of `amounts` if they can be had now, and returns
 * at->now_ns then. Otherwise nothing is taken, and it is as limits_ready_at. On states that nobody
 * else reads meanwhile.
 */
static inline uint64_t limits_try_take(const struct limits *limits, uint64_t *states,
                                       const struct weir_instant *at, const uint64_t *amounts,
                                       const struct limit **ret_limiting)
{
    uint64_t ready;

    if (limits->n != 1 || !amounts[0])
        return limits_try_take_many(limits, states, at, amounts, ret_limiting);
    ready = limit_try_take(limits->items, states + limits->items->state_offset, at, amounts[0]);
    if (ready <= at->now_ns)
        return at->now_ns;
    *ret_limiting = limits->items;
    return ready;
}
/*
 * The same, but on states that are thrown away if not all can be had: then false, and of some the
 * amounts are taken.
 */
WEIR_ALWAYS_INLINE bool limits_take_or_clobber(const struct limits *limits, uint64_t *states,
                                               const struct weir_instant *at,
                                               const uint64_t *amounts)
{
    for (uint32_t i = 0; i < limits->n; i++) {
        const struct limit *limit = &limits->items[i];
        uint64_t *state = states + limit->state_offset;

        if (!amounts[i])
            continue;
        if (limit->algorithm) {
            if (limit_try_take(limit, state, at, amounts[i]) > at->now_ns)
                return false;
        } else {
            if (amounts[i] > limit->capacity || *state > limit->capacity - amounts[i])
                return false;
            *state += amounts[i];
        }
    }
    return true;
}

#endif
