/* SPDX-License-Identifier: MIT */
/*
 * A limit: its type, key, algorithm, configuration, and where its state lies in the set's state.
 * All functions are pure functions over those words; callers synchronize. A limit does not change
 * once made.
 */
#ifndef WEIR_CORE_LIMIT_LIMIT_H
#define WEIR_CORE_LIMIT_LIMIT_H

#include "base/compiler.h"
#include "base/invariant.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <weir/set.h>

/* What is refunded of the unused amounts of a rate or call. REFUND_STRICT: what leaves the bound of
 * the limit as without refunds (algorithm.h); also where a grant is undone. */
enum limit_refund { REFUND_NO = 0, REFUND_YES = 1, REFUND_STRICT = 2 };

struct limit {
    enum weir_limit_type type;
    uint8_t refund;    /* enum limit_refund, of a rate or call */
    bool charges;      /* usage beyond the amount becomes debt */
    uint8_t shadow;    /* percent of the requests that it does not refuse */
    bool ignores_wall; /* as configured, whatever the algorithm's flags say */
    bool revokes;      /* what is held too long is taken back */
    bool is_stateless; /* the algorithm keeps no state: its word is unused */
    uint8_t listed;    /* number in the definition, of limits in another order */
    const char *key;   /* owned */
    const struct weir_algorithm *algorithm; /* NULL: a counted resource */
    const char *algorithm_name;             /* NULL for a counted resource, like the next */
    const char *algorithm_version;          /* the plugin's, like the next */
    uint64_t algorithm_state_id;            /* identity of configuration and state */
    char *settings_text; /* owned; settings text: name NUL value NUL, and so on */
    uint32_t settings_n; /* number of settings */
    void *config;        /* owned; the algorithm's configuration, aligned to 16 */
    size_t config_size;  /* in bytes */
    uint64_t capacity;   /* the largest amount that can be granted */
    /* Units of a counted resource that can be held, the capacity, or more where a definition with a
     * greater one may have granted them. Of limits that are not interned 0: the capacity. */
    uint64_t held_max;
    uint32_t state_offset; /* offset of its state in that of the set, in 8-byte words */
    uint32_t state_words;  /* counted resource: 1, the units held */
    uint64_t lease;        /* units that a thread takes at once as a lease; 0: no lease */
    uint64_t max_hold_ns;  /* of a resource: how long its units may be held; 0: for ever */
};

/*
 * A retired limit holds the place of one that the definition of a shared set has no more: records
 * may still have amounts of it. It takes anything, keeps no state, and has no name by which a
 * request could ask it. It grants anything, or nothing ever again if the former limit has begun
 * anew in another place: a waiter asks nothing of that, and must not be granted for nothing.
 */
#define LIMIT_RETIRED UINT8_MAX /* in place of its listed number */

static inline bool limit_is_retired(const struct limit *limit)
{
    return limit->listed == LIMIT_RETIRED;
}

/* Returns new limits, in which limit `i` of `limits` is at places[i], and retired ones are at all
 * other places before the last one of these, and at those of `moved`, bit k for place k, from which
 * a limit has moved; how many there are in `*ret_n`. NULL: out of memory. They share all that
 * limits own, and are freed by os_free(). */
struct limit *limits_arrange(const struct limit *limits, uint32_t n, const uint8_t *places,
                             uint64_t moved, uint32_t *ret_n);

/* The range of `max_hold`. */
#define LIMIT_MAX_HOLD_MIN_NS UINT64_C(1000000)
#define LIMIT_MAX_HOLD_MAX_NS (UINT64_C(3650) * 86400 * 1000000000)

/* Decide about one limit on its own words of state; resources without an algorithm included.
 * limit_ready_at() returns the first time at which `amount` would be granted. */
uint64_t limit_ready_at(const struct limit *limit, const uint64_t *state,
                        const struct weir_instant *at, uint64_t amount);
void limit_take(const struct limit *limit, uint64_t *state, const struct weir_instant *at,
                uint64_t amount);
uint64_t limit_take_if_ready(const struct limit *limit, uint64_t *state,
                             const struct weir_instant *at, uint64_t amount);
/* limit_try_take() of a counted resource. */
WEIR_ALWAYS_INLINE uint64_t limit_try_count(const struct limit *limit, uint64_t *state,
                                            const struct weir_instant *at, uint64_t amount)
{
    WEIR_INVARIANT(!limit->algorithm);
    if (amount > limit->capacity)
        return WEIR_NEVER;
    if (*state > limit->capacity - amount)
        return WEIR_BLOCKED;
    *state += amount;
    return at->now_ns;
}

/* Takes `amount` if it is ready now. Returns what limit_ready_at() would; nothing was taken if that
 * is later than now. If it is earlier, the algorithm broke its contract. */
WEIR_ALWAYS_INLINE uint64_t limit_try_take(const struct limit *limit, uint64_t *state,
                                           const struct weir_instant *at, uint64_t amount)
{
    if (limit->algorithm)
        return limit->algorithm->try_take
                   ? limit->algorithm->try_take(limit->config, state, at, amount)
                   : limit_take_if_ready(limit, state, at, amount);
    return limit_try_count(limit, state, at, amount);
}
/* Releases units of a resource with an algorithm. */
void limit_release(const struct limit *limit, uint64_t *state, const struct weir_instant *at,
                   const struct weir_release *release);
/* Refunds units that were granted at `granted_ns`, or fewer: as the algorithm does, strictly for
 * REFUND_STRICT. Both return false if more is available then than was given back, or more than
 * before the charge; of most calls that is not looked at. */
bool limit_refund(const struct limit *limit, uint64_t *state, const struct weir_instant *at,
                  uint64_t amount, uint64_t granted_ns);
bool limit_charge(const struct limit *limit, uint64_t *state, const struct weir_instant *at,
                  uint64_t amount);
uint64_t limit_available(const struct limit *limit, const uint64_t *state,
                         const struct weir_instant *at);

/* Fills in what remains of the limit, of which nothing is granted before `at`. `now_ns`: the time
 * that its times count from, not later. */
void limit_remaining(const struct limit *limit, const uint64_t *state,
                     const struct weir_instant *at, uint64_t now_ns, struct weir_remaining *ret);

/* Fills `ret`, of WEIR_GAUGES_MAX values, with those of the gauges of the limit. Returns how many
 * there are. */
uint32_t limit_observe(const struct limit *limit, const uint64_t *state,
                       const struct weir_instant *at, uint64_t *ret);
/* Returns the units of a resource that are held, or 0 if its algorithm does not tell. */
uint64_t limit_held(const struct limit *limit, const uint64_t *state,
                    const struct weir_instant *at);

/* Returns whether the limit decides as a new one would, now and later. False if not known. */
bool limit_is_new(const struct limit *limit, const uint64_t *state, const struct weir_instant *at);
/* Returns whether as much is available as of a new limit. Of a resource with a large state true. */
bool limit_has_all(const struct limit *limit, const uint64_t *state, const struct weir_instant *at);

/* Returns whether a state of the limit fits into a word that has a use for its top bit. */
static inline bool limit_fits_word(const struct limit *limit)
{
    return limit->state_words == 1 &&
           (!limit->algorithm || limit->algorithm->flags & WEIR_ALGORITHM_WORD);
}

/* Returns whether a word cannot be the state of a limit that says that it fits one. */
static inline bool limit_is_unfit(const struct limit *limit, uint64_t word)
{
    return word >> 63 && limit->algorithm && limit_fits_word(limit);
}

/* The limits of a set; the state of each begins at its state_offset in `states`. */
struct limits {
    struct limit *items;
    uint32_t state_words;          /* of a version */
    uint32_t own_words;            /* those that the limits use, from the first */
    uint8_t n;                     /* at most WEIR_LIMITS_MAX */
    bool has_resources : 1;        /* any of type resource */
    bool has_waits : 1;            /* any rate or call: only their waits can be forecast */
    bool has_opaque_resources : 1; /* any resource with an algorithm */
    /* Several rates or calls, where a late grant may let another request in earlier than
     * forecast. */
    bool has_anomalies : 1;
    bool has_lease : 1;      /* the only limit has a lease (lease.h) */
    bool reads_wall : 1;     /* any algorithm that wants the wall-clock offset */
    bool has_shadow : 1;     /* any limit with `shadow` (set/shadow.h); there is no fast path */
    bool has_classes : 1;    /* requests have classes (set/class_count.h); there is no fast path */
    bool counts_holds : 1;   /* how long acquisitions are held is counted; there is no fast path */
    bool has_max_hold : 1;   /* any limit with `max_hold` (set/max_hold.h); there is no fast path */
    bool revokes : 1;        /* any limit with `max_hold_action: revoke` */
    bool is_arranged : 1;    /* limits are not where they are listed (set/places.h) */
    bool has_lost_first : 1; /* see struct limit_places */
    bool heeds_releases : 1; /* counts_holds, revokes, or set_ops.wants_releases */
    uint8_t clock_needs;     /* CLOCK_NEEDS_* (base/clock.h), for the whole set */
    /* Number, from 1, of a limit with an algorithm that broke its contract (algorithm.h); 0: none.
     */
    _Atomic uint8_t fault;
};

#define LIMITS_FAULT_REPORTED 0x80u /* besides the number: the log says it */

/* Returns the places from which limits have moved: bit i is place i. */
static inline uint64_t limits_moved(const struct limits *limits)
{
    uint64_t moved = 0;

    for (uint32_t i = 0; i < limits->n; i++)
        moved |= (uint64_t)(limit_is_retired(&limits->items[i]) && limits->items[i].config_size)
                 << i;
    return moved;
}

/* Returns the limits that are not retired: bit i is limit i. There is at least one. */
static inline uint64_t limits_present(const struct limits *limits)
{
    uint64_t present = UINT64_MAX >> (64 - limits->n);

    for (uint32_t i = 0; limits->is_arranged && i < limits->n; i++)
        present &= ~((uint64_t)limit_is_retired(&limits->items[i]) << i);
    return present;
}

/* Returns the limit with an algorithm that broke its contract, or NULL. */
static inline const struct limit *limits_faulty(const struct limits *limits)
{
    uint8_t fault = atomic_load_explicit(&limits->fault, memory_order_relaxed);

    return fault ? &limits->items[(fault & ~LIMITS_FAULT_REPORTED) - 1] : NULL;
}

static inline bool limits_fault_is_reported(const struct limits *limits)
{
    return atomic_load_explicit(&limits->fault, memory_order_relaxed) & LIMITS_FAULT_REPORTED;
}

/* Notes that the algorithm of limit `i` broke its contract, unless another did before. A decision
 * changes nothing else of the limits. */
void limits_note_fault(const struct limits *limits, uint32_t i);

void limits_describe(struct limits *limits);
void limits_init(const struct limits *limits, uint64_t *states, const struct weir_instant *at);

/* Returns 0 if the words can be states of these limits, otherwise -1. They may be anything, but in
 * a private copy. After 0 all functions above may be called on them: none crashes, hangs or leaves
 * its words. */
int limits_check(const struct limits *limits, const uint64_t *states);
/* Returns 0 if the words can be a state of this limit, otherwise -1. */
WEIR_ALWAYS_INLINE int limit_check(const struct limit *limit, const uint64_t *state)
{
    if (limit->algorithm)
        return limit->algorithm->check ? limit->algorithm->check(limit->config, state) : 0;
    return state[0] <= limit->held_max ? 0 : -1;
}

/* Returns the first time at which all of `amounts` would be granted; at->now_ns: now.
 * `*ret_limiting` is the limit that determines it, untouched if it is now. Without `with_resources`
 * resources count as available. WEIR_BLOCKED also if an algorithm breaks its contract, which is
 * noted. */
uint64_t limits_ready_at(const struct limits *limits, const uint64_t *states,
                         const struct weir_instant *at, const uint64_t *amounts,
                         bool with_resources, const struct limit **ret_limiting);
/* Returns the limit with an algorithm that moves the time of a grant away for ever, or takes it
 * back, though nothing else happens; or NULL. `ready` is when it would be granted, to come. */
const struct limit *limits_find_receding(const struct limits *limits, const uint64_t *states,
                                         const struct weir_instant *at, const uint64_t *amounts,
                                         uint64_t ready);
void limits_take(const struct limits *limits, uint64_t *states, const struct weir_instant *at,
                 const uint64_t *amounts, bool with_resources);
/* limits_try_take() for any limits. */
uint64_t limits_try_take_many(const struct limits *limits, uint64_t *states,
                              const struct weir_instant *at, const uint64_t *amounts,
                              const struct limit **ret_limiting);
/* Takes all of `amounts`, with resources, if they are ready now, and returns at->now_ns. Otherwise
 * takes nothing and returns as limits_ready_at() does. Cheaper than the two calls. `states` is a
 * private copy, which is clobbered if an algorithm breaks its contract. There may be no limits, as
 * in a set that a reload has left none. */
static inline uint64_t limits_try_take(const struct limits *limits, uint64_t *states,
                                       const struct weir_instant *at, const uint64_t *amounts,
                                       const struct limit **ret_limiting)
{
    uint64_t ready;

    if (limits->n != 1 || !amounts[0] || limits->items->algorithm)
        return limits_try_take_many(limits, states, at, amounts, ret_limiting);
    ready = limit_try_take(limits->items, states + limits->items->state_offset, at, amounts[0]);
    if (ready <= at->now_ns)
        return at->now_ns;
    *ret_limiting = limits->items;
    return ready;
}
/* Returns true if the units held of each resource without an algorithm are at least `amounts`. */
static inline bool limits_hold(const struct limits *limits, const uint64_t *states,
                               const uint64_t *amounts)
{
    for (uint32_t i = 0; i < limits->n; i++) {
        const struct limit *limit = &limits->items[i];

        if (limit->type != WEIR_LIMIT_RESOURCE || limit->algorithm)
            continue;
        if (states[limit->state_offset] < amounts[i])
            return false;
    }
    return true;
}

/* Takes all of `amounts` if they are ready now. If not, returns false and leaves `states`
 * clobbered: some amounts are taken, and the caller drops the copy. */
WEIR_ALWAYS_INLINE bool limits_take_or_clobber(const struct limits *limits, uint64_t *states,
                                               const struct weir_instant *at,
                                               const uint64_t *amounts)
{
    for (uint32_t i = 0; i < limits->n; i++) {
        const struct limit *limit = &limits->items[i];
        uint64_t *state = states + limit->state_offset;

        WEIR_INVARIANT(limit->state_offset + limit->state_words <= limits->state_words);
        if (amounts[i] && limit_try_take(limit, state, at, amounts[i]) != at->now_ns)
            return false;
    }
    return true;
}

/* Returns true if each algorithm that was asked to take has changed its state, and fits its word.
 * False: it may have broken its contract, and limits_take() finds out. */
bool limits_are_taken(const struct limits *limits, const uint64_t *before, const uint64_t *states,
                      const uint64_t *amounts);

/*
 * Interned limits of an instance, by content: sets with equal limits share one copy. Ten thousand
 * sets seldom have as many kinds of limits, while settings text and configuration are most of a
 * set's memory. The caller of each function holds the instance's lock, or is its only user.
 */
struct limit_intern_table {
    struct limit_intern_entry **buckets;
    uint32_t n, capacity; /* a power of two, or 0 */
};

/* Returns interned limits equal to these `n`, at least one, with an equal layout of state; NULL:
 * out of memory. They belong to the table, must not be written to, and stay until
 * limit_intern_release() was called once for each call. */
struct limit *limit_intern(struct limit_intern_table *table, const struct limit *limits,
                           uint32_t n);
void limit_intern_release(struct limit_intern_table *table, struct limit *limits);
/* Frees the table. All limits have been released. */
void limit_intern_free(struct limit_intern_table *table);

#endif
