/* SPDX-License-Identifier: MIT */
/*
 * Rate algorithms: the decision of one limit, as pure functions over flat state.
 *
 * State is `footprint.state` bytes, a multiple of 8, aligned to 8, all zero before `init`. It may
 * be copied, moved to another address, placed in shared memory or stored by a remote engine between
 * any two calls. No pointers, no padding with undefined content, nothing outside it. Configuration
 * is `footprint.config` bytes, aligned to 16, written once by `configure` and then read-only. Equal
 * configurations must have equal bytes in every process, or the processes cannot share a set: no
 * pointers, no padding with undefined content.
 *
 * Every function may be called from any thread, on copies of one state at the same time; none may
 * block, allocate, or read a clock: time is an argument. `at->now_ns` never goes back between two
 * calls on one state; if it does, the algorithm must treat it as the last instant seen. Amounts are
 * from 1 to `footprint.amount_max`. Decisions are exact: equal to rational arithmetic, for every
 * configuration accepted.
 *
 * Where the library sees that an algorithm breaks its contract, nothing is granted any more: the
 * set refuses with -EUCLEAN, its waits end, and the log says once which plugin it was. It sees that
 * `ready_at` or `try_take` answers with an instant before `at`, that `ready_at` moves the instant
 * of a grant away without end, that `take` takes nothing, that a state of WEIR_ALGORITHM_WORD has
 * the top bit set, that after a refund `available` says more than was given back, or after a charge
 * more than before, and that `is_new` says so of a state with less available than a new one.
 */
#ifndef WEIR_ALGORITHM_H
#define WEIR_ALGORITHM_H

#include <weir/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a limit limits. The values are part of the ABI. */
enum weir_limit_type { WEIR_LIMIT_RATE = 1, WEIR_LIMIT_CALL = 2, WEIR_LIMIT_RESOURCE = 3 };

/* ready_at: never, whatever happens. */
#define WEIR_NEVER UINT64_MAX
/* ready_at: not by the passing of time, only by a release. */
#define WEIR_BLOCKED (UINT64_MAX - 1)
/* The last instant an algorithm may return. An instant that would lie beyond it is this one. */
#define WEIR_INSTANT_MAX (UINT64_MAX - 2)

/*
 * The end of an instance's clock, after 219 years: 2^63 less 2^61. Whatever takes effect does so at
 * an instant up to this one. Forecasts may go on beyond it, up to WEIR_INSTANT_MAX.
 */
#define WEIR_CLOCK_MAX ((UINT64_C(3) << 61) - 1)

/*
 * When an operation is called, and what else it is told about the call. This struct grows at its
 * end, and has no size: that would be one more store for each decision. Instead, a field after
 * these two is there only for limits with the flag of the footprint that names the field. Such a
 * flag must be understood (WEIR_FLAGS_NEEDED); `abi_minor` tells `configure` whether it will be.
 * An algorithm reads fields of the struct, and never copies it whole.
 */
struct weir_instant {
    uint64_t now_ns;        /* the set's clock, which never goes back */
    int64_t wall_offset_ns; /* now_ns + wall_offset_ns = nanoseconds since 1970-01-01 UTC */
};

/*
 * How the work went for which a resource was held. New ones may be added: an algorithm treats one
 * that it does not know as ignored.
 */
enum weir_outcomes {
    WEIR_OUTCOME_SUCCESS = 0,  /* it was done; also where the program said nothing */
    WEIR_OUTCOME_OVERLOAD = 1, /* it was refused, or not done in time, for too much load */
    WEIR_OUTCOME_FAILURE = 2,  /* it failed for another reason */
    WEIR_OUTCOME_IGNORED = 3,  /* it says nothing about the load: a cache, a part that goes back */
    WEIR_OUTCOME_DROPPED = 4,  /* by the library: the process ended without a release */
    WEIR_OUTCOME_CANCELED = 5  /* by the library: the grant was undone before it was seen */
};

/* What an algorithm is told of a release. */
struct weir_release {
    size_t size;         /* set by the core; fields beyond it do not exist there */
    uint64_t amount;     /* units that are released */
    uint64_t granted_ns; /* held since, by the same clock; in a shared set, where any process may
                            have written it, a hint */
    uint64_t latency_ns; /* as the program said, or the time since granted_ns */
    uint32_t outcome;    /* WEIR_OUTCOME_* */
    uint32_t reserved;
};

/* A gauge: a number that a limit tells of itself, for people and for monitoring. */
struct weir_gauge {
    size_t size;      /* sizeof(struct weir_gauge) */
    const char *name; /* [a-z0-9_]+, at most 64 bytes, once for each algorithm. What is held is
                         called `held`, and the most that may be held at present `limit` */
    const char *doc;  /* one line of at most 255 bytes */
    uint32_t type;    /* WEIR_PARAMETER_AMOUNT, or WEIR_PARAMETER_DURATION: nanoseconds */
    uint32_t flags;   /* none yet */
};
#define WEIR_GAUGES_MAX 16

/* Flags of an algorithm. */
enum {
    WEIR_ALGORITHM_REFUNDS = 1u << 0, /* refunds, unless the configuration says otherwise */
    /*
     * Reads wall_offset_ns, unless the footprint says WEIR_FOOTPRINT_NO_WALL; without it that may
     * be 0. When the wall clock steps, the algorithm is asked again for every request that waits.
     */
    WEIR_ALGORITHM_WALL = 1u << 1,
    /*
     * Where the footprint says 8 bytes of state, the top bit of that word is always clear. Then a
     * set of one such limit is decided by a single compare-and-swap, and it may see earlier
     * instants more often than otherwise. An algorithm that sets the bit broke its contract.
     */
    WEIR_ALGORITHM_WORD = 1u << 2,
    /*
     * Taking later never makes room earlier: a later request is granted no sooner than if the
     * amount had been taken before. This does not hold for a window that lasts from its first grant
     * on: one that begins later ends later, and may grant at once what would have belonged to the
     * next. Without this flag, the forecast for waiters is recomputed after each grant where
     * several limits decide together. That takes longer, and the forecast is never later than the
     * grant. A limit that is alone in its set is assumed to be monotone.
     */
    WEIR_ALGORITHM_MONOTONE = 1u << 3
};

/* configure, ready_at, take and available are required; other functions may be NULL. */
struct weir_algorithm {
    size_t size;    /* sizeof(struct weir_algorithm) */
    uint32_t types; /* bit (1 << enum weir_limit_type) for each limit type served */
    uint32_t flags; /* WEIR_ALGORITHM_* */

    /*
     * Checks the values of `setup`, each already within its own range or its default, and fills
     * `ret`, all but its size. If `config` is not NULL it has the bytes that the first call
     * announced, zeroed, and is filled. Called twice: first with NULL; both must say the same.
     * Returns 0, or -1 with `reterr` filled.
     * [any thread, writes arguments]
     */
    int (*configure)(const struct weir_setup *setup, void *config, struct weir_footprint *ret,
                     struct weir_reason *reterr);

    /* Fills the zeroed state of a new limit. NULL: zeroes are fine.
     * [any thread, writes arguments] */
    void (*init)(const void *config, void *state, const struct weir_instant *at);

    /*
     * The first instant, not before `at`, at which `amount` would be granted if nothing else
     * happened; `at->now_ns` itself means now. WEIR_NEVER, WEIR_BLOCKED. Does not change the state.
     * If granted at t, it must be granted at every later instant too until something is taken.
     * [any thread, pure]
     */
    uint64_t (*ready_at)(const void *config, const void *state, const struct weir_instant *at,
                         uint64_t amount);

    /*
     * Takes `amount`. Called only when ready_at(at, amount) says now; cannot fail. Changes the
     * state, if there is any: an algorithm that grants and takes nothing breaks its contract. Of a
     * state larger than 128 bytes the first 128 change, or `available` says less than before.
     * [any thread, writes arguments]
     */
    void (*take)(const void *config, void *state, const struct weir_instant *at, uint64_t amount);

    /*
     * Refunds `amount` of what was taken at `granted_ns` (by the same clock; a hint in a shared
     * set, where any process may have written it). Never more than was taken. Also called, whatever
     * the configuration says, for grants that were undone. NULL: this algorithm cannot refund.
     * [any thread, writes arguments]
     */
    void (*refund)(const void *config, void *state, const struct weir_instant *at, uint64_t amount,
                   uint64_t granted_ns);

    /*
     * Charges `amount` used beyond what was granted, as debt, however large it is; the balance
     * never falls below minus the burst. NULL: this algorithm cannot charge.
     * [any thread, writes arguments]
     */
    void (*charge)(const void *config, void *state, const struct weir_instant *at, uint64_t amount);

    /* The largest amount that would be granted at `at`. [any thread, pure] */
    uint64_t (*available)(const void *config, const void *state, const struct weir_instant *at);

    /*
     * For limits of type resource: units are released, after work that went as `release` says. What
     * was acquired at once may be released in parts, all but the last of them as ignored. NULL:
     * releases are not observed.
     * [any thread, writes arguments]
     */
    void (*release)(const void *config, void *state, const struct weir_instant *at,
                    const struct weir_release *release);

    /*
     * Carries `old_state`, made under `old_config`, over to a new configuration of this algorithm:
     * a bucket keeps its level, cut to the new burst; a window keeps its count. `state` is zeroed.
     * NULL: the limit starts anew.
     * [any thread, writes arguments]
     */
    void (*reconfigure)(const void *old_config, const void *old_state, const void *config,
                        void *state, const struct weir_instant *at);

    /*
     * Turns the state of an older version of this plugin (`version` as that plugin stated it) into
     * one of this version. Returns 0, or -1 if it cannot. NULL: it cannot. This version of the
     * library does not call it: a reload loads no other version of a plugin.
     * [any thread, writes arguments]
     */
    int (*migrate)(const char *version, const void *old_state, size_t old_size, const void *config,
                   void *state, const struct weir_instant *at);

    /*
     * Returns whether the bytes of `state` can be a state under `config`: 0 yes, -1 no. The bytes
     * may be anything: in a shared set any process may have written there. After a yes every other
     * function must stay within the state, end soon and do nothing undefined, though its result may
     * be wrong. Called before every operation on such a set, so it should take no longer than one.
     * NULL: the other functions are safe on any bytes.
     * [any thread, pure]
     */
    int (*check)(const void *config, const void *state);

    /*
     * ready_at and take in one: returns what ready_at would return and, only if that is
     * `at->now_ns` itself, has also done what take would do; otherwise the state is unchanged. For
     * algorithms that can do this for less than both. NULL: the library calls ready_at, then take.
     * [any thread, writes arguments]
     */
    uint64_t (*try_take)(const void *config, void *state, const struct weir_instant *at,
                         uint64_t amount);

    /*
     * Returns 1 if this state decides at `at`, and ever after, exactly as one that `init` makes at
     * `at` or at any later instant; else 0. So a state that does not begin with its full amount is
     * never new: its time runs from its start. A per-subject set forgets a subject once all its
     * limits return 1. NULL: never; then subjects can only be evicted.
     * [any thread, pure]
     */
    int (*is_new)(const void *config, const void *state, const struct weir_instant *at);

    /*
     * What `refund` does, for `refund: strict`: gives back no more than leaves every bound of the
     * algorithm as if nothing was ever refunded, counting what was not refunded at the instant of
     * its grant. For a bucket that is `amount` less what has flowed in since `granted_ns`, because
     * that much may have overflowed meanwhile for want of room. An algorithm with plain refunds
     * that keep this bound has one function for both. Only together with `refund`. NULL: `refund:
     * strict` is an error of the configuration.
     * [any thread, writes arguments]
     */
    void (*refund_strict)(const void *config, void *state, const struct weir_instant *at,
                          uint64_t amount, uint64_t granted_ns);

    const struct weir_gauge *gauges; /* what `observe` tells; NULL if there are none */
    uint32_t gauges_n;               /* 0 .. WEIR_GAUGES_MAX */
    uint32_t reserved;

    /* Fills `ret` with the value of each gauge at `at`, in the order of `gauges`. Does not change
     * the state. Required if there are gauges. [any thread, pure] */
    void (*observe)(const void *config, const void *state, const struct weir_instant *at,
                    uint64_t *ret);
};

#ifdef __cplusplus
}
#endif
#endif
