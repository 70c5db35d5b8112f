/* SPDX-License-Identifier: MIT */
/*
 * Remote sets: an engine keeps their state, for processes of any machine. A backend plugin
 * (weir/backend.h) moves requests to the engine and decisions back.
 *
 * A remote set has private records only, one for each request. A record is WAITING from the moment
 * its request is handed to the backend until it is decided, be the caller blocked or not; a token
 * names it to the backend. So all that waits for records works as for a private set.
 */
#ifndef WEIR_CORE_REMOTE_REMOTE_H
#define WEIR_CORE_REMOTE_REMOTE_H

#include "config/plan.h"
#include "os/os.h"
#include "remote/remote_log.h"
#include "set/set.h"
#include "shm/definition_diff.h"
#include <pthread.h>
#include <weir/backend.h>

struct acquire_op;
struct remote_algorithms;
struct remote_share;

/* Threads of an engine that may block, at most. */
#define REMOTE_WORKERS 8u

struct remote_worker {
    struct os_thread *thread; /* NULL: none */
    void (*main)(void *argument);
    void *argument;
    _Atomic bool is_done;
};

/* A connection to an engine: one for each backend of a configuration. */
struct remote_engine {
    weir *w;
    struct remote_engine *next; /* of the instance */
    struct backend_plan plan;
    struct weir_backend_host host;
    const struct weir_backend *backend; /* of plan.plugin */
    void *connection;
    struct remote_log log;
    _Atomic uint64_t answers_n, errors_n; /* requests that the engine answered, or did not */
    struct thread_ctx *ctx; /* for the counters of what the backend reports, under `lock` */
    /* Every change of a record from WAITING, and losses. Taken with locks of the backend held, so
     * no call of the backend is made with it. */
    pthread_mutex_t lock;
    pthread_mutex_t start_lock;
    struct os_thread *thread; /* in backend->run(); NULL: nothing was asked yet */
    struct remote_worker workers[REMOTE_WORKERS]; /* of that thread */
};

struct remote_set {
    weir_set set; /* first */
    struct remote_engine *engine;
    void *handle; /* the set, to the backend; NULL: none yet. A successor's is the same */
    struct remote_set *before; /* that it has succeeded; NULL: none (remote_successor.c) */
    uint32_t revision;         /* of the definition */
    enum on_failure on_failure;
    uint64_t subjects_max;                /* 0: the set has no subjects */
    struct remote_algorithms *algorithms; /* that the core runs; NULL: none */
    struct remote_lease *leases;   /* one for each limit; NULL: none is leased (remote_lease.h) */
    _Atomic uint64_t batches_n;    /* that have come into use */
    _Atomic bool failure_reported; /* since the engine answered last */
    _Atomic uint64_t waiting;      /* records that wait by WEIR_BACKEND_WAIT */
    _Atomic bool is_away;          /* the backend says so */
    _Atomic uint32_t nodes;        /* that use the set, as the engine said last; 0: never */
    _Atomic uint64_t granted_open; /* on_failure: open */
    /* on_failure: local_share */
    struct set_plan plan;                  /* to be divided */
    _Atomic(struct remote_share *) shares; /* only added to, under the instance's lock */
};

/* Words of a record behind its amounts. */
enum {
    REMOTE_HOLD,    /* granted: names the grant to the backend; 0: it knows of none; waiting: 1 if
                       the wait ends by max_wait; refused: 1 if because of max_wait, or since the
                       engine was away */
    REMOTE_FENCE,   /* granted: its fencing token, or of batches: batches_n before that; refused:
                       when to try again, by the clock */
    REMOTE_LOST,    /* granted: 1: it is not held any more; refused: index of the limit + 1 */
    REMOTE_LOST_FD, /* granted: descriptor that a loss signals, + 1; 0: none; under the lock */
    REMOTE_WORDS
};

static inline struct remote_set *remote_of(weir_set *set)
{
    return (struct remote_set *)set;
}

static inline _Atomic uint64_t *remote_word(const weir_set *set, uint32_t record, int word)
{
    return &set_record(set, record)->amounts[set->limits.n + word];
}

/* A token: the low bits of the sequence in a record's word, and the record. */
static inline uint64_t remote_token(uint32_t record, uint64_t word)
{
    return word >> 8 << RECORD_LINK_BITS | record;
}

/* Makes the connections of a plan, which become the instance's; ends their threads; frees all. The
 * instance's lock is held, or the caller is its only user. */
int remote_engines_add(weir *w, struct plan *plan, struct weir_error *reterr);
void remote_engines_stop(weir *w);
void remote_engines_free(weir *w);
/* Returns the engine of a name, or NULL. */
struct remote_engine *remote_engine_find(const weir *w, const char *name);
/* Returns the name of the backend of a remote set. */
const char *remote_engine_name(const weir_set *set);
/* Returns how many subjects a remote set may have; 0: it has none. */
uint64_t remote_subjects_max(const weir_set *set);
/* Returns whether the engine, the leases and what becomes of requests without it are as planned. */
bool remote_is_planned(const weir_set *set, const struct set_plan *plan);
/* As set_ops.open and set_ops.close. */
int remote_set_open(weir_set *set, const struct set_plan *plan, struct weir_error *reterr);
void remote_set_close(weir_set *set);

/* ---- other definitions (remote_successor.c) ---- */

/* Returns why a set cannot have the definition of a plan while it is used, or NULL. What else there
 * is the backend says when the successor is opened. */
const char *remote_obstacle(const weir_set *set, const struct set_plan *plan);
/* Gives the engine the definition of a set that is about to succeed its predecessor. Cannot fail.
 * The instance's lock is held. */
void remote_take_over(weir_set *set);
/* Ends the waits of this process in a set that was removed, by all definitions, and gives back what
 * is leased. What is held is held until its release. */
void remote_drop(struct thread_ctx *ctx, weir_set *set);
/* Compares the definition of a set without subjects with that of the engine, and appends what
 * differs to `diff`; `changes`: the engine takes it. Returns 1: it differs; 0: it does not;
 * -ENOENT: the engine has no such set; or another code of weir_engine_redefine(). */
int remote_apply(weir_set *set, bool changes, uint64_t timeout_ns, struct definition_diff *diff,
                 struct weir_error *reterr);
/* Returns the set that asked for what a record has: this one, or one that it has succeeded. A
 * record of no set, or of another: this one. */
struct remote_set *remote_asked(struct remote_set *remote, uint32_t record);

/* Starts the thread of an engine, unless it runs. Returns 0 or a negative errno: -EHOSTUNREACH if
 * the instance asks no engine. */
int remote_engine_start(struct remote_engine *engine);
/* Sees whether the engine can be used, in so long. Returns 0 or a negative errno, with the reason
 * or a word about the engine in `*ret`. */
int remote_engine_check(const struct remote_engine *engine, uint64_t timeout_ns,
                        struct weir_error *ret);

/* Returns when a call that begins now has to end. */
static inline uint64_t remote_until_ns(uint64_t timeout_ns)
{
    uint64_t now_ns = os_now_ns(), most_ns = WEIR_INSTANT_MAX - now_ns;

    return now_ns + (timeout_ns < most_ns ? timeout_ns : most_ns);
}

/* Counts what became of a request to the engine (remote_decide.c). */
void remote_count_answer(struct remote_engine *engine, int result);

/* The host's calls about a set (remote_decide.c). */
int remote_decided(void *context, void *set, uint64_t token,
                   const struct weir_backend_verdict *verdict);
void remote_lost(void *context, void *set, uint64_t token, uint64_t hold);

/* Makes a WAITING record `state`, unless it was decided before or has another word than `expected`;
 * 0: any. Returns the word that it had; 0: nothing has changed. */
uint64_t remote_end_wait(struct remote_set *remote, uint32_t record, uint64_t expected,
                         enum record_state state);

void remote_away(void *context, void *set, int is_away);
void remote_nodes(void *context, void *set, uint32_t nodes);

/* ---- limits that this process decides, for all (remote_algorithm.c) ---- */

/* Has the core decide the limits that the backend has marked. Returns 0 or -ENOMEM. */
int remote_algorithms_open(struct remote_set *remote, const uint32_t *marks);
/* Returns whether one of these amounts is of such a limit. */
bool remote_algorithms_decide(const struct remote_set *remote, const uint64_t *amounts);
/* As weir_backend_host.decide. */
int remote_decide(void *context, void *set, struct weir_backend_decision *decision);

/* ---- on_failure: local_share (remote_share.c) ---- */

/* Returns whether requests are decided by the process's share of the limits now. */
static inline bool remote_has_share(const struct remote_set *remote)
{
    return remote->on_failure == ON_FAILURE_LOCAL_SHARE &&
           atomic_load_explicit(&remote->is_away, memory_order_seq_cst);
}

/* Acquires from the share, as set_acquire(); op->set, its acquisition and the record become that
 * set's if it is granted or waits. Also -EHOSTUNREACH: only the engine can decide it. */
int remote_share_acquire(struct acquire_op *op, uint32_t record, enum wait_mode mode,
                         uint64_t max_wait_ns);
/* Ends the waits for the share with this state: the engine is there again, or the set is removed.
 */
void remote_share_end(struct remote_set *remote, enum record_state state);
/* Tells what remains of the share, as set_ops.remaining. */
int remote_share_remaining(struct remote_set *remote, struct weir_remaining *ret, uint32_t n);

/* Tells what is available and held of the share, and waits for it, as set_ops.snapshot. */
int remote_share_snapshot(struct remote_set *remote, struct weir_set_stats *ret,
                          struct weir_limit_stats *limits, uint32_t n);
/* Returns how many requests wait for shares. */
uint64_t remote_share_waiting(const struct remote_set *remote);
/* As set_ops.stand_in. */
weir_set *remote_share_at(const weir_set *set, uint32_t i);
void remote_share_free(struct remote_set *remote);

/* Defined in api/registry.c: adds a private set without a name to the instance. Its lock is held.
 * Returns 0, -ENOMEM, -ESHUTDOWN. */
int registry_add_stand_in(weir *w, struct set_plan *plan, weir_set **ret);

/* As set_ops.watch_loss. */
int remote_watch_loss(const weir_set *set, uint32_t record, int fd);

extern const struct set_ops remote_set_ops;

#endif
