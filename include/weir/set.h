/* SPDX-License-Identifier: MIT */
/*
 * A set: limits that are acquired together, all or nothing, with one FIFO line of waiters. Sets are
 * shared by all pools of an instance and may be used from any thread; those of the backend
 * `process` are shared by processes as well (docs/processes.md).
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

enum weir_choice { WEIR_DEFAULT = 0, WEIR_YES = 1, WEIR_NO = 2 };

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
     * What weir_take takes at once, for the thread to use bit by bit: units, at most the burst; 0:
     * what is asked for. Of a rate or call whose state is one word, in a set of this one limit.
     */
    uint64_t lease;
};

enum {
    WEIR_SET_STRICT = 1u << 0, /* unknown keys are errors */
    WEIR_SET_UNFAIR = 1u << 1  /* newcomers may barge (`fair: false`) */
};

/*
 * Makes a set keyed: each subject of requests (a client, a tenant, an address) has the set's limits
 * for itself. The other settings of the set hold for each subject alone: its line, max_waiters.
 * A subject whose limits have recovered is forgotten and decides as a new one.
 */
struct weir_keyed_spec {
    size_t size;       /* sizeof(struct weir_keyed_spec) */
    uint64_t max_keys; /* required, 1 .. WEIR_KEYS_MAX: there is room for so many subjects, and for
                          hardly twice as many */
    uint64_t memory;   /* bytes that they may take, at least 64 KiB; 0: what max_keys needs */
    const char *evict; /* who gives way to a new subject if none can be forgotten: "oldest",
                          "random", or "none": then the new one is refused. NULL: "oldest" */
};
#define WEIR_KEYS_MAX UINT64_C(100000000)

/*
 * A set, defined in code. Its backend and lifetime say where it lives, and until when.
 *
 * "thread": in the memory of the process, for all its threads, as long as the instance. "process":
 * in a segment, a file of the user's that all processes share that define a set of this name, alike
 * but for what is each one's own: timeout_ns, max_wait_ns, WEIR_SET_STRICT and config. What differs
 * in anything else is refused. Lifetime "boot": the segment stays, and what it counted with it,
 * until it is removed or the machine is started again. "users": it vanishes when the last process
 * that uses it closes its instance.
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
    const char *lifetime;                /* of backend "process": "boot" or "users"; NULL: "boot" */
    const struct weir_keyed_spec *keyed; /* NULL: it is not keyed */
};
#define WEIR_LIMITS_MAX 64

/*
 * Wait times are counted in buckets: bucket i holds waits below 2^i µs (and not below 2^(i-1) µs),
 * the last all others.
 */
#define WEIR_WAIT_BUCKETS 32

struct weir_limit_stats {
    enum weir_limit_type type;
    const char *key;       /* lives as long as the set */
    const char *algorithm; /* NULL for a resource */
    uint64_t capacity;     /* the largest amount that can be granted */
    uint64_t available;    /* now; while a reservation is ahead, at its instant: until then none */
    uint64_t held;         /* units of a counted resource that are held now, else 0 */
    uint64_t granted;      /* units */
    uint64_t refused;      /* requests refused because of this limit */
    uint64_t refunded;     /* units */
    uint64_t overused;     /* units used beyond what was granted */
    uint64_t leased;       /* units that threads have taken and not granted yet, now */
};

/*
 * Counters since the set was made; exact once nobody is inside a call, but that each process that
 * was killed inside one may have left out what it did last. What is there now, is.
 */
struct weir_set_stats {
    size_t size;                 /* in: sizeof(struct weir_set_stats) */
    uint64_t granted;            /* requests */
    uint64_t taken;              /* of those granted, by weir_take: nothing to release */
    uint64_t granted_waited;     /* of those granted, after standing in line */
    uint64_t refused_busy;       /* -EAGAIN: try, take, and reserve behind a line */
    uint64_t refused_max_wait;   /* -EAGAIN: would wait, or has waited, longer than max_wait */
    uint64_t refused_full;       /* -ENOBUFS: the line is full */
    uint64_t refused_impossible; /* -ERANGE */
    uint64_t refused_unknown;    /* -ENOENT */
    uint64_t timed_out;
    uint64_t canceled;
    uint64_t released;
    uint64_t refunded;       /* releases that gave something back to a rate or call */
    uint64_t overused;       /* updates beyond the amount granted */
    uint64_t missing_update; /* releases without a required update */
    uint64_t waiting;        /* now */
    uint64_t held;           /* acquisitions granted and not released, now; of a set that processes
                                share, those of something */
    uint64_t wait_histogram[WEIR_WAIT_BUCKETS];
    uint64_t wait_ns_sum; /* over granted_waited */
    uint64_t wait_ns_max;
};

/* One acquisition that is held or waits. */
struct weir_holder {
    uint64_t id;       /* unique while it lives */
    uint64_t since_ns; /* granted, or joined the line, at this instant of the instance's clock; of a
                          reservation that can lie ahead; of a counted resource that was granted at
                          once, up to 10 ms before */
    uint32_t thread;   /* kernel id of the thread that asked */
    uint32_t waiting;  /* 1: waits; 0: holds */
    uint32_t process;  /* id of the process that asked; 0: it is just gone */
    uint32_t position; /* in line, from 1; 0: holds */
};

/* The name of a set; lives as long as the set. Any thread. */
WEIR_PUBLIC const char *weir_set_name(const weir_set *set);

/* A value of the set's `config` map, or NULL; lives as long as the set. Any thread. */
WEIR_PUBLIC const char *weir_set_config(const weir_set *set, const char *name);

/* How many limits the set has. Any thread. */
WEIR_PUBLIC size_t weir_set_limits(const weir_set *set);

/* What a set says of itself, besides its limits. */
struct weir_set_info {
    size_t size;          /* in: sizeof(struct weir_set_info) */
    uint64_t timeout_ns;  /* default of requests; WEIR_FOREVER: none */
    uint64_t max_wait_ns; /* as above */
    uint32_t max_waiters; /* 0: no bound */
    uint32_t flags;       /* WEIR_SET_* */
    const char *backend;  /* "thread" or "process"; static, as is the next */
    const char *lifetime; /* "boot" or "users"; NULL: the backend is "thread" */
};

/* The set's definition. Any thread. Returns 0 or -EINVAL (ret->size is too small). */
WEIR_PUBLIC int weir_set_info(const weir_set *set, struct weir_set_info *ret);

/*
 * The settings of limit number `limit` (from 0), as written (capacity, window, burst, …, refund,
 * overuse, lease): the first `n` of them into `ret`, which may be NULL if `n` is 0. The strings live as
 * long as the set. Any thread. Returns how many there are in all, or -EINVAL (there is no such
 * limit).
 */
WEIR_PUBLIC int weir_set_limit_settings(const weir_set *set, size_t limit, struct weir_setting *ret,
                                        size_t n);

/* What a keyed set says of its keys: how many there are now, and what became of others. */
struct weir_keyed_stats {
    size_t size;       /* in: sizeof(struct weir_keyed_stats) */
    uint64_t keys;     /* known now; those that would be forgotten are among them until they are */
    uint64_t live;     /* of these, those with a line, or with limits of more than a word */
    uint64_t max_keys; /* as configured */
    uint64_t room;     /* for so many there is room: max_keys, or what the memory allows */
    uint64_t memory; /* bytes that it may be using: of the table, and of all live keys there were */
    uint64_t memory_max; /* as configured; 0: what max_keys needs */
    const char *evict;   /* "oldest", "random" or "none"; static */
    uint64_t forgotten;  /* keys whose limits had recovered; without a trace */
    uint64_t evicted;    /* keys that were given up while they mattered */
    uint64_t refused;    /* requests for which there was no room: -ENOBUFS */
};

/*
 * Whether a set is keyed, and if so how its keys are, which takes a look at all of them. Any
 * thread. Returns 1, 0 (it is not keyed; `ret` is untouched), -EINVAL (ret->size is too small) or
 * -ECHILD.
 */
WEIR_PUBLIC int weir_set_keyed(weir_set *set, struct weir_keyed_stats *ret);

/*
 * Counters of a set, and of its first `limits_n` limits into `retlimits`, which may be NULL if that
 * is 0. Of a set that processes share they are those of all; of a keyed set, those of all keys, and
 * what is available is so for a new one. Any thread. Returns the number of
 * limits of the set, -EINVAL (ret->size is too small), -ENOMEM, -EUCLEAN (its segment is damaged)
 * or -ECHILD.
 */
WEIR_PUBLIC int weir_set_stats(weir_set *set, struct weir_set_stats *ret,
                               struct weir_limit_stats *retlimits, size_t limits_n);

/*
 * Who holds and who waits, the longest first, at most `n` of them into `ret`, which may be NULL if
 * `n` is 0. Acquisitions of nothing, as from an empty set, are not among them; those of all
 * processes that share the set are. A snapshot taken one by one, not at one instant. Any thread.
 * Returns how many there are in all, -ECHILD, -ENOMEM or -EUCLEAN (as above).
 */
WEIR_PUBLIC int weir_set_holders(weir_set *set, struct weir_holder *ret, size_t n);

/*
 * The amounts of one that weir_set_holders told of, by limit, of the first `n` limits. Any thread.
 * Returns the number of limits of the set, -ESRCH (it does not hold or wait any more, or waited
 * then and holds now), -EINVAL or -ECHILD; then `ret` means nothing.
 */
WEIR_PUBLIC int weir_set_holder_amounts(weir_set *set, const struct weir_holder *holder,
                                        uint64_t *ret, size_t n);

#ifdef __cplusplus
}
#endif
#endif
