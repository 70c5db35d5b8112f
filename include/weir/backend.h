/* SPDX-License-Identifier: MIT */
/*
 * Backends: an engine on the network keeps the state of sets, for all processes of all machines
 * that use it. UNSTABLE: this part of the plugin ABI may change with any version, until a second
 * engine uses it.
 *
 * An engine is named at the top of a configuration (`backends: { main: { type: redis, … } }`), and
 * a set names it (`backend: main`). The core calls, in this order:
 * - `open` of a connection; `run`, in a thread of its own, until `stop`;
 * - `set_open` for each set; then `ask`, `wait`, `cancel`, `release`, `return_part`, `batch`,
 *   `unbatch`, `snapshot`, `set_apply`;
 * - `set_close` for each set, and `close`.
 *
 * The engine decides: it has the states of the limits, the wait queue and the clock. The core has a
 * private record for each request, which a `token` names. A backend moves requests to the engine
 * and verdicts back. Unlike other plugins it does I/O and allocates memory, and has locks. It never
 * prints, ends the process, raises or handles signals, forks or starts threads: those that it needs
 * are the host's.
 *
 * Threads: operations on sets come from any thread, at the same time. `run` has a thread of its
 * own. The host's calls about a set may be made with locks of the backend held: they call nothing
 * of the backend. All times are by CLOCK_MONOTONIC, in nanoseconds, and durations are rounded so
 * that nothing is had early.
 *
 * Structs that begin with their size grow at the end, as in plugin.h.
 */
#ifndef WEIR_BACKEND_H
#define WEIR_BACKEND_H

#include <weir/algorithm.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A parameter of a limit's algorithm that was given. Others have their defaults: an `initial` of 0
 * is not one that was left out. */
struct weir_backend_setting {
    const char *name;
    uint64_t value;
};

/* What becomes of units that a release says were not used. */
enum { WEIR_BACKEND_REFUND_NO = 0, WEIR_BACKEND_REFUND = 1, WEIR_BACKEND_REFUND_STRICT = 2 };

struct weir_backend_limit {
    size_t size;      /* distance from one limit to the next */
    uint32_t type;    /* enum weir_limit_type */
    uint32_t refund;  /* WEIR_BACKEND_REFUND* */
    uint32_t charges; /* 1: use beyond the amount becomes debt */
    uint32_t settings_n;
    const char *key;
    const char *algorithm; /* NULL: a counted resource */
    uint64_t capacity;     /* the largest amount that can be granted */
    uint64_t lease_for_ns; /* units may be taken ahead, for so long; 0: they may not */
    const struct weir_backend_setting *settings;
    uint64_t *ret_capacity; /* leased: `set_open` lowers it to what can be granted beside batches */
    uint64_t state_size;    /* of its algorithm, in bytes, a multiple of 8; 0: a resource without */
    uint32_t *ret_is_decided; /* `set_open` makes it 1: the core decides the limit, by `decide` */
    uint64_t state_id;        /* of its algorithm, as in weir_plugin; 0: a resource without. A name
                                 alone does not tell an algorithm: any plugin file may have it */
    uint64_t identity;        /* hash of all that there is to know of it */
};

/* A set, as all that use it must agree on it. */
struct weir_backend_set {
    size_t size;
    const char *name;
    uint64_t fingerprint;
    uint32_t fair;         /* 0: newcomers may pass waiters */
    uint32_t max_waiters;  /* 0: no bound */
    uint32_t has_subjects; /* 1: a state and a wait queue for each subject */
    uint32_t limits_n;     /* 1 .. 64 */
    const struct weir_backend_limit *limits;
    void *context;         /* the set, to the core */
    uint32_t counts_nodes; /* 1: every process that uses it is counted, and `nodes` reports it */
    uint32_t revision;     /* of its definition: a higher one takes the place of a lower one, for
                              all that use the set, and its state goes on; up to INT32_MAX */
    void *before;          /* the set that is to be given this definition, by `set_redefine`, and
                              is used meanwhile; NULL: none */
};

enum weir_backend_mode {
    WEIR_BACKEND_TAKE = 1,   /* granted for good, or refused; no resources, and no hold */
    WEIR_BACKEND_TRY = 2,    /* granted or refused */
    WEIR_BACKEND_WAIT = 3,   /* granted, refused, or queued until it is decided */
    WEIR_BACKEND_RESERVE = 4 /* granted as of an instant to come, or refused */
};

/* Flags of a request. */
enum {
    /* WAIT goes on while the engine cannot be reached. Without it, and in all other modes, the
     * request fails in a time that the backend bounds. */
    WEIR_BACKEND_PATIENT = 1u << 0
};

struct weir_backend_ask {
    size_t size;
    uint64_t token;          /* names the request until it is decided */
    uint32_t mode;           /* enum weir_backend_mode */
    uint32_t flags;          /* WEIR_BACKEND_PATIENT */
    uint64_t timeout_ns;     /* of WAIT: how long from now, at least; UINT64_MAX: no end. Then it is
                                granted no more, also if this process does not run */
    uint64_t max_wait_ns;    /* of WAIT and RESERVE; UINT64_MAX: no bound */
    const uint64_t *amounts; /* one for each limit of the set; not all 0 */
    const void *subject;     /* of a set with subjects */
    size_t subject_size;
};

/* The decision of the engine about a request. */
struct weir_backend_verdict {
    size_t size;
    int32_t result;          /* 0 granted; -EAGAIN, -ENOBUFS, -ERANGE, -ETIMEDOUT: refused by the
                                engine; -ENOTCONN, -ECONNRESET, -ECONNREFUSED, -EHOSTUNREACH: it is
                                away; -EEXIST, -EACCES, -EUCLEAN: the set is defined otherwise
                                there, may not be used, is damaged; other codes: it is not kept */
    uint32_t limit;          /* refused: index of the limit; UINT32_MAX: none */
    uint64_t retry_after_ns; /* refused: when it is worth asking again; UINT64_MAX: not known */
    uint64_t hold;           /* granted, not of TAKE: names the grant; never 0 */
    uint64_t fence;          /* granted, not of TAKE: the fencing token */
    uint64_t delay_ns;       /* of RESERVE: the grant counts in so many ns from now */
    uint32_t waited;         /* granted: 1, out of the wait queue */
    uint32_t is_too_late;    /* refused: 1, it would have been granted after max_wait_ns */
};

/*
 * Units of a limit that the engine has granted ahead of use: a batch. They are used in this process
 * without asking, for `valid_ns` from the call of `batch` on, and count as used by then.
 */
struct weir_backend_batch {
    size_t size;
    uint32_t limit;
    int32_t result;          /* 0 granted; else as of a verdict */
    uint64_t units;          /* granted: at least 1, at most what was wanted */
    uint64_t valid_ns;       /* granted */
    uint64_t at;             /* granted: what `unbatch` is to be told of them */
    uint64_t retry_after_ns; /* refused: when it is worth asking again; UINT64_MAX: not known */
    uint64_t tag;            /* of the call of `batch`: by another definition an earlier one may be
                                on its way still */
};

struct weir_backend_limit_stats {
    uint64_t available, held;
};

/* What is done to states of limits that the core decides. */
enum weir_backend_deed {
    WEIR_BACKEND_BEGIN = 1, /* makes the states those of new limits */
    WEIR_BACKEND_CHECK,     /* sees whether the bytes can be states */
    WEIR_BACKEND_DECIDE,    /* takes all amounts, or nothing */
    WEIR_BACKEND_FORESEE,   /* tells what DECIDE would, and takes nothing */
    WEIR_BACKEND_GIVE_BACK, /* releases amounts, refunds what was not used, charges excess */
    WEIR_BACKEND_LOOK,      /* tells what is available and held */
    WEIR_BACKEND_LAST       /* tells how long the states differ from new ones */
};

/*
 * States of the limits of a set that the core decides, one behind the other, in the order of the
 * limits. A backend keeps them as they are, at the engine, and has what happens to them decided.
 * Amounts of limits that the core does not decide are ignored.
 */
struct weir_backend_decision {
    size_t size;
    uint32_t deed;           /* enum weir_backend_deed */
    uint32_t undo;           /* of GIVE_BACK: 1: the grant was not used at all; `used` is all 0 */
    void *states;            /* aligned to 8. After -EUCLEAN they may be anything */
    struct weir_instant at;  /* by the engine's clock; up to WEIR_CLOCK_MAX */
    const uint64_t *amounts; /* asked for, or to be given back: one for each limit of the set */
    const uint64_t *used;    /* of GIVE_BACK */
    uint64_t granted_ns;     /* of GIVE_BACK, by the engine's clock */
    uint64_t latency_ns;     /* of GIVE_BACK; 0: since it was granted */
    uint32_t outcome;        /* of GIVE_BACK: WEIR_OUTCOME_* */
    uint32_t limit;          /* told by DECIDE: refused by this one */
    uint64_t ready_ns;       /* told by DECIDE: refused until then, or WEIR_BLOCKED, WEIR_NEVER; by
                                LAST: they differ until then, or for ever: WEIR_NEVER */
    struct weir_backend_limit_stats *stats; /* told by LOOK: room for all limits of the set */
};

/* What the core gives to a backend. */
struct weir_backend_host {
    size_t size;
    void *context; /* first argument of the calls */

    /*
     * Reports the decision about a request of a set, once for each request that `ask` took. Returns
     * 0; or 1 if the core no longer waits for it: then a grant is to be given back as unused, by
     * the backend. After a cancel it is called no more, or returns 1.
     * [any thread, changes]
     */
    int (*decided)(void *context, void *set, uint64_t token,
                   const struct weir_backend_verdict *verdict);
    /* Reports that a grant is not held any more, since the session in which it was granted has
     * ended. The token of its request and its hold name it. [any thread, changes] */
    void (*lost)(void *context, void *set, uint64_t token, uint64_t hold);
    /* Reports that the engine cannot be asked for the set (1), or can be again (0). What `ask` was
     * given stays with the backend. [any thread, changes] */
    void (*away)(void *context, void *set, int is_away);
    /* Reports how many processes use a set without subjects, as the engine counts them; at least
     * 1. [any thread, changes] */
    void (*nodes)(void *context, void *set, uint32_t nodes);
    /* Keeps a line for the program's log. level: enum weir_log_level. One line without an end of
     * line; never a password. With any locks. [any thread, changes] */
    void (*log)(void *context, int level, const char *message);
    /* Reports what became of a batch. `spare` is to be called in so many ns; UINT64_MAX: not.
     * [any thread, changes] */
    uint64_t (*batched)(void *context, void *set, const struct weir_backend_batch *batch);
    /* Asks for units of a limit that are to be given back: those of `ret`, with its `at`; 0: none.
     * Returns as `batched`. From the thread of `run`. [one thread, reads] */
    uint64_t (*spare)(void *context, void *set, uint32_t limit, struct weir_backend_batch *ret);
    /* Calls `main` in a thread of its own, for what may block: a name is looked up, a link is made.
     * From the thread of `run`. Returns 0; -EAGAIN: as many as may be at a time are on their way
     * (8); -ENOMEM, or that no thread can be had. After `stop` they are to return soon: `close` is
     * called when all have.
     * [one thread, changes] */
    int (*work)(void *context, void (*main)(void *argument), void *argument);
    /* Has the lines that are kept written, by another thread: the program's callback may call weir,
     * or block. To be called without locks: the thread of `run` does so each time before it sleeps,
     * and wakes up for that after another thread has logged something. [one thread, changes] */
    void (*write_log)(void *context);
    /* Does a deed to states of a set. Takes no longer than the algorithms. Returns 0; -EAGAIN:
     * refused; -EUCLEAN: the bytes are no states, or an algorithm of the set broke its contract.
     * Then no request of the set can be granted, which is logged by the core. With any locks.
     * [any thread, writes arguments] */
    int (*decide)(void *context, void *set, struct weir_backend_decision *decision);
};

/* How a grant is given back. */
struct weir_backend_release {
    size_t size;
    uint64_t hold;
    const uint64_t *used; /* one for each limit */
    uint32_t undo;        /* 1: it was not used at all; `used` is all 0 */
    uint32_t outcome;     /* how the work went: WEIR_OUTCOME_* */
    uint64_t latency_ns;  /* how long it took; 0: since the grant */
};

/* In how long more than is available would be granted of a limit, and all of its capacity. 0: it is
 * whole; UINT64_MAX: not by the passing of time, or not known. */
struct weir_backend_limit_waits {
    uint64_t more_after_ns, full_after_ns;
};

struct weir_backend_snapshot {
    size_t size;
    uint64_t waiting;
    struct weir_backend_limit_stats *limits; /* room for all limits of the set */
    uint64_t held;                           /* grants that are held now, of all processes */
    uint64_t granted; /* grants so far, of all processes; those of TAKE may be left out */
    struct weir_backend_limit_waits *waits; /* room for all limits, as not known; NULL: not asked
                                               for. An earlier version has a struct without it */
};

/* What differs between the definition that the engine has of a set and the one that the set was
 * opened with. Texts live as long as the call. */
struct weir_backend_difference {
    size_t size;
    uint32_t limit;     /* its index; UINT32_MAX: it is one of the set */
    const char *name;   /* of the setting, as in a configuration */
    const char *before; /* at the engine; NULL: not set */
    const char *after;  /* in the set; NULL: not set */
};

/* How a definition is applied. */
struct weir_backend_apply {
    size_t size;
    uint32_t changes;  /* 1: the engine takes the definition; 0: nothing changes */
    uint64_t until_ns; /* it blocks so long at most */
    void *context;     /* first argument of `differs` */
    /* Called for each difference that the engine can tell, without locks; NULL: not asked for.
     * [any thread, changes] */
    void (*differs)(void *context, const struct weir_backend_difference *difference);
};

struct weir_backend {
    size_t size;
    uint32_t flags; /* 0 */
    uint32_t reserved;

    /*
     * Makes a connection from the values of the declared parameters. Does no I/O on the network:
     * `run` connects. Returns 0, -ENOMEM, or -EINVAL with the reason. The host is valid until
     * `close`.
     * [one thread, changes]
     */
    int (*open)(const struct weir_setup *setup, const struct weir_backend_host *host,
                void **ret_connection, struct weir_reason *reterr);
    /* No other call is running, and `run` has returned. All sets are closed.
     * [one thread, changes] */
    void (*close)(void *connection);

    /*
     * Keeps the connection: connects, and again after a failure; reads what the engine says while
     * no thread is in `wait`; keeps sessions alive, and resends. Returns after `stop` was called,
     * when what was to be sent is sent, or as soon as that cannot be done within a second.
     * [one thread, changes]
     */
    void (*run)(void *connection);
    void (*stop)(void *connection);

    /* Describes a set, also of a connection that is in use. Copies what it needs. No I/O on the
     * network. Returns 0, -ENOMEM, or -EINVAL with the reason: the engine cannot keep such a set;
     * or -EOPNOTSUPP with the reason: the set `before` cannot be given this definition.
     * [one thread, changes] */
    int (*set_open)(void *connection, const struct weir_backend_set *set, void **ret_set,
                    struct weir_reason *reterr);
    /* What is held or waits there is given up. No other call about the set is running.
     * [one thread, changes] */
    void (*set_close)(void *set);

    /*
     * Asks. Never blocks on the network. Returns 0: one call of `decided` will follow, maybe before
     * this returns; or -ENOMEM, -ENOBUFS (too much is to be sent already): none will.
     * [any thread, changes]
     */
    int (*ask)(void *set, const struct weir_backend_ask *ask);
    /* Blocks until the engine has answered this request, be it that it is queued, or until
     * `until_ns`. Serves other requests meanwhile. Returns 1: answered; 0: not yet.
     * [any thread, changes] */
    int (*wait)(void *set, uint64_t token, uint64_t until_ns);
    /* Withdraws a request that was not decided. Never fails or blocks. [any thread, changes] */
    void (*cancel)(void *set, uint64_t token);
    /* Gives a grant back. Never fails or blocks; it is sent until the engine has it, or the session
     * is lost. [any thread, changes] */
    void (*release)(void *set, const struct weir_backend_release *how);
    /* Gives a part back: `left` is what stays, one for each limit. Never fails or blocks.
     * [any thread, changes] */
    void (*return_part)(void *set, uint64_t hold, const uint64_t *left);
    /* Looks at the clock: returns 1 if a grant is held at this moment; 0 if its session has ended,
     * which `lost` reports then if it has not yet. Never blocks. [any thread, reads] */
    int (*is_held)(void *set, uint64_t hold);
    /* Fills a snapshot; blocks, until `until_ns` at most: also for a connection that is being made,
     * but not for one that could not be made. Returns 0, -ETIMEDOUT, or a code as in a verdict.
     * [any thread, reads] */
    int (*snapshot)(void *set, const void *subject, size_t subject_size, uint64_t until_ns,
                    struct weir_backend_snapshot *ret);
    /* Sees whether the engine can be reached and used, for `weir check --connect`: blocks, until
     * `until_ns` at most. Returns 0, maybe with a word about the engine in place of a reason, as
     * its version; or a code with the reason, never with a password. [any thread, changes] */
    int (*check)(void *connection, uint64_t until_ns, struct weir_reason *reterr);

    /* These two may be missing: then no limit can be leased. */

    /* Asks for up to so many units of a leased limit, ahead of use. One batch is asked for at a
     * time. Never blocks. Returns 0: one call of `batched` will follow, maybe before this returns,
     * unless the set is closed; or -ENOMEM, -ENOBUFS: none will. What cannot be sent at once is
     * refused: a batch that comes late is of no use. [any thread, changes] */
    int (*batch)(void *set, uint32_t limit, uint64_t wanted, uint64_t tag);
    /* Gives units of a batch back that were not used. Never fails or blocks. It may be lost: they
     * count as used then. [any thread, changes] */
    void (*unbatch)(void *set, uint32_t limit, uint64_t units, uint64_t at);

    /*
     * Gives a set the definition of `next`, which was described with it as `before` and of which
     * nothing was asked; `next` is gone. What is held and waits stays so, and ends as requests of
     * this set do; the host is called with the context of `next` from then on, also for those. An
     * amount that can be granted no more ends with -ERANGE. Never fails or blocks. May be missing:
     * then no definition can change. [any thread, changes]
     */
    void (*set_redefine)(void *set, void *next);

    /*
     * Has the engine go on with the definition of a set without subjects, in one step, if it has an
     * earlier one: what is held and waits there stays so, and waiters that can go on are granted.
     * Makes no set there, and grants and holds nothing for this process. May be made again if it
     * is not known whether it was. Returns
     *   1            it differs: it can be changed, or by `changes` has been
     *   0            the engine has this definition
     *   -ENOENT      it has no such set
     *   -EOPNOTSUPP  it cannot go on with this definition; with the reason, which says what to do
     * -ETIMEDOUT, or another code as in a verdict, with a reason that may be empty. May be missing:
     * then definitions change by requests alone.
     * [any thread, changes]
     */
    int (*set_apply)(void *set, const struct weir_backend_apply *how, struct weir_reason *reterr);
};

#ifdef __cplusplus
}
#endif
#endif
