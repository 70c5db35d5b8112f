/* SPDX-License-Identifier: MIT */
/*
 * A set: limits that are acquired together, all or nothing, with one FIFO wait queue. All pools of
 * an instance share its sets, and any thread may use them. Sets with the backend `process`, called
 * shared sets, are shared by processes as well (docs/processes.md).
 */
#ifndef WEIR_SET_H
#define WEIR_SET_H

#include <weir/algorithm.h> /* enum weir_limit_type */
#include <weir/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_set weir_set;

/* A name with a value, both as written in a configuration: { "burst", "10k" }. */
struct weir_setting {
    const char *name;
    const char *value;
};

enum weir_choice {
    WEIR_DEFAULT = 0,
    WEIR_YES = 1,
    WEIR_NO = 2,
    WEIR_STRICTLY = 3 /* of `refund` only: what leaves the bound of the limit as without refunds */
};

/* A limit, defined in code. The same fields as in a configuration file. */
struct weir_limit_spec {
    size_t size;               /* sizeof(struct weir_limit_spec) */
    enum weir_limit_type type; /* required */
    const char *key;           /* 1 .. 255 bytes; NULL: "call_count", for calls only */
    const char *algorithm;     /* plugin name; NULL: a resource that is only counted */
    uint64_t capacity;  /* units per window, or units that may be held; 0: given in settings */
    uint64_t window_ns; /* 0: given in settings, or none */
    const struct weir_setting *settings; /* further parameters of the algorithm */
    size_t settings_n;                   /* at most 64 */
    enum weir_choice refund;             /* of rates and calls; default: what the algorithm does */
    enum weir_choice charge_overuse;     /* of rates; default: no */
    /*
     * Lease: units that weir_take takes at once, for the thread to use bit by bit; at most the
     * burst. 0: the amount requested. Only for a rate or call with one word of state that is the
     * set's only limit.
     */
    uint64_t lease;
    /*
     * The part of the requests that the limit may refuse or delay, in whole percent, as "10%".
     * "0%": it decides and counts, but refuses none. NULL: all. docs/configuration.md says which
     * requests these are. Not with a lease.
     */
    const char *enforce;
    /*
     * How long an acquisition may hold units of a resource, 1 ms .. 3650 days; 0: as long as it
     * likes. One that holds them longer is overheld: the log and the listener hear of it once
     * (WEIR_EVENT_OVERHELD), and it is counted. Each grant and each release of the set reads the
     * clock then, and neither takes the fastest path. Not for rates, calls, and sets that engines
     * keep.
     */
    uint64_t max_hold_ns;
    /*
     * "warn": that is all. "revoke": the acquisition is revoked, besides. All that it holds goes
     * back to its limits, and waiters get it; rates and calls count as used. From then on every
     * call on the acquisition says -EOWNERDEAD, its release as well, which gives nothing back a
     * second time. The holder is not stopped: revoke where the resource itself turns a late holder
     * away. NULL: "warn".
     */
    const char *max_hold_action;
};

enum {
    WEIR_SET_STRICT = 1u << 0, /* unknown keys are errors */
    WEIR_SET_UNFAIR = 1u << 1, /* newcomers may overtake waiters (`fair: false`) */
    /*
     * Windows and rates go on while the machine is suspended (`clock: boottime`): the set goes by
     * CLOCK_BOOTTIME in place of the instance's clock. Timeouts, and all times that are given or
     * returned, are of the instance's clock even so; max_wait and retry_after_ns are computed as if
     * the machine stayed awake. An injected clock knows no suspension: the flag has no effect.
     */
    WEIR_SET_BOOTTIME = 1u << 3,
    /*
     * A request may be granted before waiters that ask for none of its limits; those that ask for
     * the same limit stay in order (`fair: per_limit`). Not with WEIR_SET_UNFAIR. Each decision on
     * such a set looks at its waiters one by one, and the wait queue has no forecast that is kept:
     * so it is for short wait queues.
     */
    WEIR_SET_FAIR_PER_LIMIT = 1u << 4,
    /*
     * How long acquisitions are held is counted (`hold_histogram: true`): hold_histogram and what
     * is beside it in weir_set_stats. Each grant and each release of the set reads the clock then,
     * and neither takes the fastest path.
     */
    WEIR_SET_HOLD_HISTOGRAM = 1u << 5
};

/*
 * Makes a set a per-subject set: each subject of requests (a client, a tenant, an address) has
 * limits of its own. The other settings of the set hold for each subject alone: its wait queue,
 * max_waiters. A subject is forgotten once its limits have recovered, and then decides as a new
 * one.
 */
struct weir_subjects_spec {
    size_t size;  /* sizeof(struct weir_subjects_spec) */
    uint64_t max; /* required, 1 .. WEIR_SUBJECTS_MAX: room for this many subjects, and hardly for
                     twice as many */
    uint64_t memory;   /* bytes that they may take, at least 64 KiB; 0: what max needs */
    const char *evict; /* the subject that gives way to a new one if none can be forgotten:
                          "oldest", "random", or "none" (the new one is refused). NULL: "oldest" */
};
#define WEIR_SUBJECTS_MAX UINT64_C(100000000)

/*
 * A set, defined in code. Its backend and lifetime say where it lives, and until when.
 *
 * "thread": in the memory of the process, for all its threads, as long as the instance.
 *
 * "process": in a segment, a file of the user. All processes that define a set of this name share
 * it. Their definitions must be equal except for timeout_ns, max_wait_ns, WEIR_SET_STRICT,
 * WEIR_SET_HOLD_HISTOGRAM and config, which each process has for itself; any other difference is
 * refused. Lifetime "boot": the segment stays, with its counts, until it is removed or the machine
 * is restarted. "users": it vanishes when the last process that uses it closes its instance.
 */
struct weir_set_spec {
    size_t size;                          /* sizeof(struct weir_set_spec) */
    const char *name;                     /* required, 1 .. 255 bytes of UTF-8 */
    const struct weir_limit_spec *limits; /* an array of structs of limits[0].size bytes */
    size_t limits_n;                      /* at most WEIR_LIMITS_MAX; 0: grants everything */
    const struct weir_setting *config;    /* the map that travels with acquisitions */
    size_t config_n;                      /* at most 4096 */
    uint64_t timeout_ns;                  /* default of requests; 0: WEIR_FOREVER */
    uint64_t max_wait_ns;                 /* default of requests; 0: WEIR_FOREVER */
    uint32_t max_waiters;                 /* 0: no bound */
    uint32_t flags;                       /* WEIR_SET_* */
    const char *backend;                  /* "thread" or "process"; NULL: "thread" */
    const char *lifetime; /* of backend "process": "boot" or "users"; NULL: "boot" */
    const struct weir_subjects_spec *subjects; /* limits per subject; NULL: none */
    /*
     * Classes of requests (weir_request.wait_class), which order the wait queue; docs/waiting.md
     * says how. Either priorities, 2 .. 8: how many there are; 0: none. `ageing`, 1 .. 1000000: how
     * many grants pass over a waiting class before it comes before others; 0: 100. Or shares, 2 to
     * 8: names of classes, with their weights. Not with subjects, a lease, WEIR_SET_UNFAIR or
     * WEIR_SET_FAIR_PER_LIMIT, nor with a backend that keeps sets on the network.
     */
    uint32_t priorities;
    uint32_t ageing;
    const struct weir_setting *shares;
    size_t shares_n;
};
#define WEIR_LIMITS_MAX     64
#define WEIR_CLASS_NAME_MAX 31 /* bytes of the name of a class */

/*
 * Times of waits and holds are counted in buckets: bucket i has those below 2^i µs (and not below
 * 2^(i-1) µs), the last all others.
 */
#define WEIR_WAIT_BUCKETS 32

struct weir_limit_stats {
    enum weir_limit_type type;
    const char *key;       /* lives as long as the set */
    const char *algorithm; /* NULL for a resource */
    uint64_t capacity;     /* the largest amount that can be granted */
    uint64_t available;    /* now; while a reservation is ahead, at its instant: until then none */
    uint64_t held;         /* units of a resource that are held now; 0 if its algorithm does not
                              tell (gauge `held`), and of a rate or call */
    uint64_t granted;      /* units */
    uint64_t refused;      /* requests refused because of this limit */
    /* Units that were not used. A strict refund gave them back in part, and a refund of what was
     * taken before the limit got another algorithm gave back none. */
    uint64_t refunded;
    uint64_t overused; /* units used beyond what was granted */
    uint64_t leased;   /* units leased by threads, or taken ahead from an engine, and not granted
                          yet, now */
    uint64_t would_refuse; /* requests granted that this limit would have refused or delayed, but
                              for `shadow` or `enforce` */
};

/* The lease of a limit of a set that an engine keeps (`lease: { for: … }`), in this process. */
struct weir_lease_stats {
    size_t size;       /* in: sizeof(struct weir_lease_stats) */
    uint64_t batches;  /* that the engine has granted */
    uint64_t taken;    /* units of them: the sum of those below, but for batches that are over */
    uint64_t granted;  /* units: to requests that did not ask the engine */
    uint64_t returned; /* units that were given back before the end of their batch */
    uint64_t stranded; /* units that were not used when their batch ended */
    uint64_t ready;    /* units, now: to be granted */
};

/*
 * Counters since the set was made. They are exact while no thread is inside a call, but a process
 * that was killed inside one may have left out its last change. Values marked "now" are always
 * true.
 */
struct weir_set_stats {
    size_t size;                 /* in: sizeof(struct weir_set_stats) */
    uint64_t granted;            /* requests */
    uint64_t taken;              /* of those granted, by weir_take: nothing to release */
    uint64_t granted_waited;     /* of those granted, after waiting */
    uint64_t refused_busy;       /* -EAGAIN: try, take, and reserve behind waiters */
    uint64_t refused_max_wait;   /* -EAGAIN: would wait, or has waited, longer than max_wait */
    uint64_t refused_full;       /* -ENOBUFS: the wait queue is full */
    uint64_t refused_impossible; /* -ERANGE */
    uint64_t refused_unknown;    /* -ENOENT */
    uint64_t timed_out;
    uint64_t canceled;
    uint64_t released;
    uint64_t refunded;       /* releases that returned units to a rate or call */
    uint64_t overused;       /* updates beyond the amount granted */
    uint64_t missing_update; /* releases without a required update */
    uint64_t waiting;        /* now */
    uint64_t held;           /* acquisitions granted and not released, now; of a shared set only
                                those that are not empty */
    uint64_t wait_histogram[WEIR_WAIT_BUCKETS];
    uint64_t wait_ns_sum; /* over granted_waited */
    uint64_t wait_ns_max;
    uint64_t nameless; /* now, of a shared set: 1, its file is gone although it is in use, so that
                          processes which come later make another one, and the limits hold in each;
                          0 if all is well (docs/processes.md) */
    uint64_t refused_deadlock; /* -EDEADLK */
    uint64_t engine_held; /* now, of a set that an engine keeps: acquisitions of all processes that
                             hold something there; else 0 */
    uint64_t engine_granted; /* of such a set: requests that the engine granted, of all processes,
                                without those of weir_take; else 0 */
    uint64_t granted_alone;  /* of those granted, by this process alone, as the engine that keeps
                                the set was away (on_failure: open, local_share) */
    /*
     * How long acquisitions were held, from the grant to weir_release: of those that were released
     * with WEIR_SET_HOLD_HISTOGRAM. The sum of the buckets is how many. Undone grants are not
     * among them, nor are what weir_take took, acquisitions of nothing, and what a process held
     * that ended without a release. A reservation is held from its time on. What weir_return left
     * counts once, from the grant to its release.
     */
    uint64_t hold_histogram[WEIR_WAIT_BUCKETS];
    uint64_t hold_ns_sum;
    uint64_t hold_ns_max;
    uint64_t overheld; /* acquisitions held longer than the `max_hold` of a limit; each counts once,
                          in the process that noticed */
    uint64_t revoked;  /* of these: taken back (`max_hold_action: revoke`); they are among
                          `released` */
};

/*
 * A class of requests, of a set with `priorities` or `shares`. What is counted has been counted
 * since the set was made, with the counters of the set: the classes together have as many grants,
 * but for one of each thread of a shared set that was killed.
 */
struct weir_class_stats {
    char name[WEIR_CLASS_NAME_MAX + 1]; /* of a priority its number: "0" is the most urgent */
    uint64_t weight;                    /* of a share; 0: it is a priority */
    uint64_t waiting, held;  /* requests that wait, and acquisitions that are held, now */
    uint64_t granted;        /* requests */
    uint64_t granted_waited; /* of those granted, after waiting */
    uint64_t refused;        /* requests: all that the set counts as refused_*, but for -ENOENT */
    uint64_t timed_out;
    uint64_t wait_ns_sum; /* over granted_waited */
};
#define WEIR_CLASSES_MAX 8

/* One acquisition that is held or waits. */
struct weir_holder {
    uint64_t id;       /* unique while it lives */
    uint64_t since_ns; /* granted, or enqueued, at this time of the instance's clock; later than
                          now for a reservation; up to 10 ms early for a counted resource that
                          was granted at once */
    uint32_t thread;   /* kernel id of the requesting thread */
    uint32_t waiting;  /* 1: waits; 0: holds */
    uint32_t process;  /* id of the requesting process; 0: it has just ended */
    uint32_t position; /* in the wait queue, from 1; 0: holds */
};

/* Returns the name of a set. It lives as long as the set. Any thread. [any thread, reads] */
WEIR_PUBLIC const char *weir_set_name(const weir_set *set);

/* Returns a value of the set's `config` map. It is NULL if there is none, and lives as long as the
 * set. Any thread. [any thread, reads] */
WEIR_PUBLIC const char *weir_set_config(const weir_set *set, const char *name);

/*
 * Lists the set's `config` map, sorted by name. Stores the first `n` entries in `ret`, which may be
 * NULL if `n` is 0. The strings live as long as the set. Any thread. Returns how many there are in
 * all, or -EINVAL (an argument is NULL).
 * [any thread, reads]
 */
WEIR_PUBLIC int weir_set_config_settings(const weir_set *set, struct weir_setting *ret, size_t n);

/* Returns how many limits the set has. It is 0 if `set` is NULL. Any thread. [any thread, reads] */
WEIR_PUBLIC size_t weir_set_limits(const weir_set *set);

/* Returns the key of a limit. `limit` is its number in the set, from 0; NULL if there is no such
 * limit. Lives as long as the set. An amount that names its limit by this address is found without
 * a comparison of texts, which spares about 2 ns. Any thread. [any thread, reads] */
WEIR_PUBLIC const char *weir_set_limit_key(const weir_set *set, size_t limit);

/*
 * Finds a limit by its key. Several limits may have one key: looks from number `from` on. Any
 * thread. Returns the number of the first one; -ENOENT (none has the key) or -EINVAL (an argument
 * is NULL).
 * [any thread, reads]
 */
WEIR_PUBLIC int weir_set_limit_find(const weir_set *set, const char *key, size_t from);

/* The definition of a set, without its limits. */
struct weir_set_info {
    size_t size;           /* in: sizeof(struct weir_set_info) */
    uint64_t timeout_ns;   /* default of requests; WEIR_FOREVER: none */
    uint64_t max_wait_ns;  /* default of requests; WEIR_FOREVER: none */
    uint32_t max_waiters;  /* 0: no bound */
    uint32_t flags;        /* WEIR_SET_* */
    const char *backend;   /* "thread", "process", or the name of the backend that keeps the set; as
                              long as the set */
    const char *lifetime;  /* "boot" or "users", static; NULL: the backend is another */
    uint64_t subjects_max; /* of a per-subject set, as configured; else 0 */
};

/* Tells how a set is defined. Its limits are told by weir_set_stats and weir_set_limit_settings.
 * Any thread. Returns 0 or -EINVAL (ret->size is too small). [any thread, reads] */
WEIR_PUBLIC int weir_set_info(const weir_set *set, struct weir_set_info *ret);

/*
 * Lists the settings of a limit, as written (capacity, window, burst, …, refund, overuse, lease).
 * `limit` is its number in the set, from 0. Stores the first `n` settings in `ret`, which may be
 * NULL if `n` is 0. The strings live as long as the set. Any thread. Returns how many there are in
 * all, or -EINVAL (no such limit).
 * [any thread, reads]
 */
WEIR_PUBLIC int weir_set_limit_settings(const weir_set *set, size_t limit, struct weir_setting *ret,
                                        size_t n);

/* Statistics of the subjects of a per-subject set. */
struct weir_subjects_stats {
    size_t size;     /* in: sizeof(struct weir_subjects_stats) */
    uint64_t known;  /* subjects known now, including those that can be forgotten */
    uint64_t live;   /* of these, those with a wait queue, or with limits of more than one word */
    uint64_t max;    /* as configured */
    uint64_t room;   /* room for subjects: max, or what the memory allows; no reload lessens it */
    uint64_t memory; /* bytes in use at most: the table, and all sets ever made for subjects */
    uint64_t memory_max; /* as configured; 0: what max needs */
    const char *evict;   /* "oldest", "random" or "none"; static */
    uint64_t forgotten;  /* removed subjects with recovered limits; leaves no trace */
    uint64_t evicted;    /* subjects that were removed although their limits had not recovered */
    uint64_t refused;    /* requests for which there was no room: -ENOBUFS */
};

/*
 * Tells whether a set is a per-subject set, with statistics of its subjects. It looks at all of
 * them. Any thread. Returns 1, 0 (it is not; `ret` is untouched), -EINVAL (ret->size is too small)
 * or -ECHILD.
 * [any thread, reads]
 */
WEIR_PUBLIC int weir_set_subjects(weir_set *set, struct weir_subjects_stats *ret);

/*
 * Returns the counters of a set and of its limits. Those of the first `limits_n` limits are stored
 * in `retlimits`, which may be NULL if that is 0. Of a shared set they cover all processes; of a
 * per-subject set all subjects, and `available` is that of a new subject. Any thread. Returns the
 * number of limits of the set, -EINVAL (ret->size is too small), -ENOMEM, -EUCLEAN (its segment is
 * damaged) or -ECHILD. Of a set that an engine keeps, what waits and what is available and held of
 * each limit is asked of it, in a second at most; of one with subjects it is left 0. While the
 * process decides by its share of the limits (on_failure: local_share), it is that of the share.
 * The other counters are of this process. If it could not be asked all else is filled:
 * -EHOSTUNREACH, -EEXIST, -EACCES or -EUCLEAN (as weir_acquire).
 * [any thread, reads]
 */
WEIR_PUBLIC int weir_set_stats(weir_set *set, struct weir_set_stats *ret,
                               struct weir_limit_stats *retlimits, size_t limits_n);

/* What remains of a limit, for one subject of a per-subject set, else for all: weir_set_remaining
 * (acquisition.h). */
struct weir_remaining {
    enum weir_limit_type type;
    const char *key;    /* lives as long as the set */
    uint64_t capacity;  /* the largest amount that can be granted */
    uint64_t window_ns; /* the setting `window`; 0: there is none */
    uint64_t available; /* now; 0 while a reservation is ahead */
    /*
     * Times from now, as if nothing else happened and nothing waited: until more than `available`
     * could be granted, and until all of `capacity` could be. 0: the limit is whole. WEIR_FOREVER:
     * not by the passing of time, as with a resource; or the engine that keeps the set cannot tell.
     */
    uint64_t more_after_ns;
    uint64_t full_after_ns;
};

/* A gauge of a limit (algorithm.h). The strings live as long as the set. */
struct weir_limit_gauge {
    const char *name;
    const char *doc;
    uint64_t value;
    uint32_t type; /* WEIR_PARAMETER_AMOUNT, or WEIR_PARAMETER_DURATION: ns */
    uint32_t reserved;
};

/*
 * Tells the gauges of a limit, now. They are what its algorithm says of itself, as what is held and
 * the present limit of one that adapts. `limit` is its number in the set, from 0. Stores the first
 * `n` in `ret`, which may be NULL if `n` is 0. Those of a per-subject set are of a new subject; a
 * set that an engine keeps has none. Any thread. Returns how many there are in all, -EINVAL (no
 * such limit), -ENOMEM, -EUCLEAN (the set's segment is damaged) or -ECHILD.
 * [any thread, reads]
 */
WEIR_PUBLIC int weir_set_limit_gauges(weir_set *set, size_t limit, struct weir_limit_gauge *ret,
                                      size_t n);

/* Tells of the lease of a limit, by its number, of a set that an engine keeps. Asks nothing of the
 * engine. Returns 0; -EINVAL; -ENOENT: the limit has none; -ECHILD. [any thread, reads] */
WEIR_PUBLIC int weir_set_lease_stats(weir_set *set, size_t limit, struct weir_lease_stats *ret);

/*
 * Lists the classes of a set, in the order of the configuration; of priorities the most urgent one
 * first. Stores the first `n` in `ret`, which may be NULL if `n` is 0. Goes through all records, so
 * it takes as long as weir_set_holders. Any thread. Returns how many there are in all; 0: the set
 * has no classes; -EINVAL, -EUCLEAN (the set's segment is damaged) or -ECHILD.
 * [any thread, reads]
 */
WEIR_PUBLIC int weir_set_classes(weir_set *set, struct weir_class_stats *ret, size_t n);

/*
 * Lists holders and waiters, the longest first. Stores at most `n` of them in `ret`, which may be
 * NULL if `n` is 0. Includes those of all processes that share the set; excludes acquisitions of
 * nothing, as from an empty set. The list is taken one by one, not at one time. Any thread. Returns
 * how many there are in all, or -ECHILD, -ENOMEM or -EUCLEAN (the set's segment is damaged).
 * [any thread, reads]
 */
WEIR_PUBLIC int weir_set_holders(weir_set *set, struct weir_holder *ret, size_t n);

/*
 * Returns the amounts of a holder or waiter listed by weir_set_holders. Stores those of the first
 * `n` limits in `ret`. Any thread. Returns the number of limits of the set, -ESRCH (it neither
 * holds nor waits any more, or waited then and holds now), -EINVAL or -ECHILD; on an error `ret` is
 * undefined.
 * [any thread, reads]
 */
WEIR_PUBLIC int weir_set_holder_amounts(weir_set *set, const struct weir_holder *holder,
                                        uint64_t *ret, size_t n);

/* A holder that is overheld. */
struct weir_overheld {
    size_t size;        /* sizeof(struct weir_overheld) */
    const char *key;    /* the limit with the `max_hold` that passed first; lives as long as the
                           set */
    uint64_t since_ns;  /* when that passed, by the instance's clock */
    uint64_t revoke_ns; /* when it is revoked; WEIR_FOREVER: never */
};

/*
 * Tells whether a holder is overheld. That is one listed by weir_set_holders which has held units
 * for longer than the `max_hold` of their limit. Any thread. Returns 1 and fills `ret`; 0 if it is
 * not, or waits, which leaves `ret` untouched; -ESRCH (it neither holds nor waits any more),
 * -EINVAL or -ECHILD. [any thread, reads]
 */
WEIR_PUBLIC int weir_set_holder_overheld(weir_set *set, const struct weir_holder *holder,
                                         struct weir_overheld *ret);

#ifdef __cplusplus
}
#endif
#endif
