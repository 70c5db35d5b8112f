/* SPDX-License-Identifier: MIT */
/* Pool handle: one worker's view of a pool, with the balancer's state. */
#ifndef WEIR_CORE_API_POOL_H
#define WEIR_CORE_API_POOL_H

#include "config/plan.h"
#include "set/set.h"
#include <pthread.h>

struct pool_choice;

/* A pool of the instance, as configured; handles (struct weir_pool) refer to it. A reload puts
 * another definition in its place, and it stays until the instance is closed. */
struct instance_pool {
    struct pool_plan plan;
    bool is_configured;           /* defined by a configuration, and not by the program */
    _Atomic bool is_removed;      /* from that; or another definition has replaced it */
    bool has_lost_name;           /* in the reload that is under way; with the instance's lock */
    weir_set *group_set;          /* hidden: of requests that wait in several sets; NULL: none do */
    struct instance_pool *before; /* the definition that this one has replaced, or NULL */
    uint32_t sets_n;              /* at least 1 */
    uint32_t workers;             /* next number for WEIR_WORKER_AUTO; with the instance's lock, */
    struct weir_pool *handles;    /* as all below but `sets` */
    struct pool_choice *choices;  /* made by this definition, of all handles */
    uint64_t *picks;              /* by set, of handles that were closed; behind `sets` */
    uint32_t *places_before;      /* by set: its place in `before`, or POOL_NO_PLACE; behind that */
    _Atomic(weir_set *) sets[];
};

#define POOL_NO_PLACE UINT32_MAX

struct weir_pool {
    weir *w;
    /* The only set of the pool, or of this member, with POOL_* bits; exchanged for its successor by
     * the first request that finds one. One word: what a request exchanges is what it has read. */
    _Atomic(uintptr_t) only_set;
    _Atomic(struct pool_choice *) choice; /* between several sets; NULL: there is an only one */
    _Atomic(struct instance_pool *) definition; /* of a member or an only set: see pool_class() */
    uint32_t worker;
    struct pool_choice *choices;    /* all that it has had, the newest first */
    struct pool_choice *coming;     /* made for a reload that is under way; NULL: none */
    struct weir_pool *next, **link; /* among the handles of its definition */
};

/* Bits of `only_set`; the fast path serves a handle without them. */
#define POOL_SLOW    ((uintptr_t)1) /* it has no fast path */
#define POOL_SEVERAL ((uintptr_t)2) /* there is a choice, and this was the set before; or NULL */
#define POOL_BITS    (POOL_SLOW | POOL_SEVERAL)

/* A set of several. */
struct pool_member {
    struct weir_set_view view; /* for balancers that read views */
    weir_pool pool;            /* a handle of this set alone, which is never closed */
    _Atomic uint64_t picks;    /* written with the lock of the choice */
    uint32_t seen;             /* here, in the order of the looks: index of a view with flags */
};

/* What a handle of several sets needs to pick one. When its pool changes the handle gets another
 * one. Other threads may still be in this one, so it stays until the handle is closed. */
struct pool_choice {
    weir *w;
    struct instance_pool *definition;
    struct pool_choice *older;        /* of the handle */
    struct pool_choice *next, **link; /* of the definition */
    uint32_t worker;
    uint32_t seen_n;          /* views with flags */
    pthread_mutex_t lock;     /* over what follows, but the handles */
    uint64_t random_state;    /* of the generator */
    uint64_t *balancer_state; /* of the balancer, for this worker; behind the members */
    bool pick_warned;         /* an invalid pick was logged */
    weir_pool group_pool;     /* a handle of the group set; without one, of none */
    struct pool_member members[];
};

/* Returns a set of a pool: the newest one of its name. */
static inline weir_set *pool_set(const struct instance_pool *pool, size_t i)
{
    return set_newest(atomic_load_explicit(&pool->sets[i], memory_order_acquire));
}

static inline bool pool_is_removed(const struct instance_pool *pool)
{
    return atomic_load_explicit(&pool->is_removed, memory_order_acquire);
}

static inline struct instance_pool *pool_definition(const weir_pool *pool)
{
    return atomic_load_explicit(&pool->definition, memory_order_acquire);
}

/* Returns what a handle chooses by now; NULL: it has an only set. A call reads it once. */
static inline struct pool_choice *pool_choice(const weir_pool *pool)
{
    return pool ? atomic_load_explicit(&pool->choice, memory_order_acquire) : NULL;
}

static inline weir_set *pool_word_set(uintptr_t word)
{
    return (weir_set *)(word & ~POOL_BITS);
}

/* Returns the only set of a handle, as it is now. */
weir_set *pool_follow(weir_pool *pool);

static inline weir_set *pool_only_set(weir_pool *pool)
{
    weir_set *set = pool_word_set(atomic_load_explicit(&pool->only_set, memory_order_acquire));

    return set_successor(set) ? pool_follow(pool) : set;
}

/* Returns what `only_set` of a handle is. */
uintptr_t pool_word(weir_set *set, uintptr_t several);

/* Has all handles go by the newest of their shared sets, and by what is removed: the fast path does
 * not come upon that. The instance's lock is held. */
void pool_update_handles(struct instance_pool *definition);

/* Makes what a handle chooses by, and tells the balancer of it. NULL: out of memory. */
struct pool_choice *pool_make_choice(const weir_pool *pool, struct instance_pool *definition);
void pool_free_choice(struct pool_choice *choice);
/* Has a handle choose by it from now on. The instance's lock is held. */
void pool_take_choice(weir_pool *pool, struct pool_choice *choice);

/* Returns the class of requests to a set by a handle, which name none; or NULL. */
const char *pool_class(const weir_pool *pool, const weir_set *set);

/* Returns how often a set of a pool was picked by all handles, also by earlier definitions. The
 * instance's lock is held. */
uint64_t pool_picks(const struct instance_pool *pool, uint32_t set);

/* ---- pool_change.c: a pool gets other sets or another balancer. The instance's lock is held ----
 */

/* Tells a definition what it is to replace. Returns 0 or -ENOMEM. */
int pool_follow_on(struct instance_pool *after, struct instance_pool *before);
/* Makes what the handles of `before` need to go on by `after`: all that can fail. */
int pool_prepare_change(struct instance_pool *before, struct instance_pool *after);
/* Undoes that. */
void pool_undo_change(struct instance_pool *before);
/* Has all handles go on by `after`. */
void pool_change(struct instance_pool *before, struct instance_pool *after);

/* ---- balance.c: requests to pools of several sets ---- */

#define BALANCE_TRIES_MAX 64u /* sets that one try asks */

/* A request, on its way to the set that decides it. */
struct balance {
    struct pool_choice *choice;
    weir_pool *member;                  /* the handle of the set that is asked */
    const struct weir_request *request; /* NULL: it is not balanced: it is wrong, or nested */
    struct weir_refusal *retref;        /* the caller's */
    struct weir_refusal *refusal;       /* for the call: the caller's or `refused` */
    struct weir_refusal refused, best_refused; /* of the last set, and of the best one */
    int best;               /* the result that belongs to `best_refused`; 0: none yet */
    uint64_t best_after_ns; /* when that set would grant, from then */
    bool tries_next;        /* after a refusal, another set is asked */
    uint32_t tried_n;       /* sets that were asked, the last of them included */
    uint32_t tried[BALANCE_TRIES_MAX];
};

/* Picks a set for a request. Returns 0, and in `ret->member` what to ask with `ret->refusal`; or
 * -ENOMEM, -ECHILD, -ESHUTDOWN, -ESTALE. */
int balance_begin(struct balance *ret, struct pool_choice *choice,
                  const struct weir_request *request, struct weir_refusal *retref, bool is_try);

/* Shows the views of a pool in a pick, if its balancer reads them. */
void balance_show_views(const struct pool_choice *choice, struct weir_pick *ret);

/* Returns whether another set may grant what one has refused with this result. */
bool balance_may_go_on(int result);

/* Returns whether a set is gone with the definition of the pool that the request goes by: then no
 * other set of that is asked, and the call is made again by the next one. */
bool balance_is_outdated(const struct balance *balance, int result);
/* Keeps the refusal of the set that would grant first. */
void balance_keep_best(struct balance *balance, int result);
/* Hands a refusal out, if the set that was asked has filled it. */
void balance_hand_out(struct weir_refusal *ret, struct weir_refusal *refused);

/* Takes note of the result of that call. True: ask the new `balance->member`. False: `*result` and
 * the caller's refusal are final. */
bool balance_again(struct balance *balance, int *result);

/* Does a call on a pool of several sets: `*ret_` is the result of `call_`, which is done on
 * `balance.member` with `balance.refusal`, for one set or for one after the other. */
#define BALANCE(ret_, choice_, request_, retref_, is_try_, call_)                                  \
    do {                                                                                           \
        struct balance balance;                                                                    \
                                                                                                   \
        *(ret_) = balance_begin(&balance, choice_, request_, retref_, is_try_);                    \
        if (*(ret_) == 0)                                                                          \
            do                                                                                     \
                *(ret_) = (call_);                                                                 \
            while (balance_again(&balance, ret_));                                                 \
    } while (0)

#endif
