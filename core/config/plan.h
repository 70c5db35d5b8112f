/* SPDX-License-Identifier: MIT */
/* A plan: a configuration with names looked up and values checked, ready to become sets and pools.
 * Made by resolve.c, which adds a complaint for every error. */
#ifndef WEIR_CORE_CONFIG_PLAN_H
#define WEIR_CORE_CONFIG_PLAN_H

#include "config/config_ast.h"
#include "limit/limit.h"
#include "plugin/plugin.h"
#include "state/wait_class.h"
#include <weir/clock.h>

struct limit_places;

struct name_value {
    char *name, *value;
};

/* Where the state of a set is. */
enum backend {
    BACKEND_THREAD,  /* in the memory of the process */
    BACKEND_PROCESS, /* in a segment, shared by the processes of a user */
    BACKEND_REMOTE   /* kept by an engine, for processes of any machine */
};

/* What becomes of requests while the engine cannot be asked. */
enum on_failure {
    ON_FAILURE_CLOSED,     /* they are refused */
    ON_FAILURE_OPEN,       /* they are granted */
    ON_FAILURE_WAIT,       /* they wait for it, as long as they may */
    ON_FAILURE_LOCAL_SHARE /* the process decides them, by its part of the limits */
};

/* An engine that keeps sets. */
struct backend_plan {
    char *name;
    const struct plugin *plugin;
    struct weir_setup setup;             /* of the next three */
    struct weir_value *values;           /* of its parameters */
    const struct weir_value **addresses; /* of the values */
    char *texts;                         /* the texts among the values, secrets among them */
    size_t texts_size;
};

/* What an engine is told of a limit: the parameters of its algorithm, by name. */
struct limit_settings {
    struct weir_backend_setting *items;
    uint32_t n;
    uint64_t lease_for_ns; /* units may be taken ahead for so long; 0: they may not */
};

/* Which key is removed for a new one when no key is in its initial state. */
enum evict { EVICT_OLDEST, EVICT_RANDOM, EVICT_NONE };
enum { EVICT_NAMES_N = EVICT_NONE + 1 };

/* The words of a configuration, by enum weir_limit_type (from 1) and by enum evict. */
extern const char *const limit_type_names[WEIR_LIMIT_RESOURCE + 1];
extern const char *const evict_names[EVICT_NAMES_N];

#define KEYED_MEMORY_MIN (UINT64_C(64) << 10)
#define KEYED_MEMORY_MAX (UINT64_C(1) << 40)

struct keyed_plan {
    uint64_t max_keys; /* 0: the set is not keyed */
    uint64_t memory;   /* bytes; 0: what max_keys needs */
    enum evict evict;
};

/* Which requests may be granted before a waiter: any; none; those for other limits. The values of
 * `fair`, in the order of their words. */
enum fairness { FAIR_NO, FAIR_SET, FAIR_PER_LIMIT };

/* Everything that a set is made of. The plan owns strings and arrays until a set takes them. */
struct set_plan {
    char *name;
    struct limit *limits;
    uint32_t limits_n;
    uint32_t state_words;      /* of all limits together, and the classes, in 8-byte words */
    struct name_value *config; /* sorted by name */
    uint32_t config_n;
    uint64_t timeout_ns, max_wait_ns; /* WEIR_FOREVER: none */
    uint32_t max_waiters;             /* 0: no bound */
    struct wait_classes *classes;     /* NULL: none */
    bool strict;
    bool counts_holds; /* hold_histogram */
    enum fairness fair;
    enum backend backend;
    enum on_failure on_failure;
    uint32_t revision;               /* of the definition that its engine keeps */
    char *engine;                    /* name of its backend; NULL: not BACKEND_REMOTE */
    struct limit_settings *settings; /* one for each limit, if it is */
    struct keyed_plan keyed;
    weir_set
        *newest; /* of an earlier definition of a shared set: the set of the newest; else NULL */
    uint32_t definition;               /* number of that earlier one */
    const struct limit_places *places; /* of a shared set in use; NULL: as they are listed */
    bool boottime;                     /* its clock goes on during a suspension */
    bool while_used; /* the segment is removed with the last process that uses it */
};

struct pool_plan {
    char *name;                    /* NULL: cannot be opened by name */
    const struct plugin *balancer; /* NULL: a single set needs none */
    void *config;                  /* of the balancer, aligned to 16 bytes */
    size_t config_size;            /* in bytes */
    uint32_t state_words;          /* of the balancer's state, in 8-byte words */
    uint64_t seed;                 /* 0: the instance's */
    char *wait_class;              /* of requests that name none; NULL: none */
    char **sets;                   /* names of sets of the plan or of the instance */
    uint64_t *weights;             /* of the sets */
    uint32_t sets_n;               /* 0: one empty set */
    bool tries_next;               /* a try that is refused goes to the balancer's next choice */
    bool waits_any;                /* a request waits in all sets */
};

struct plan {
    struct set_plan *sets;
    size_t sets_n;
    struct pool_plan *pools;
    size_t pools_n;
    struct backend_plan *backends;
    size_t backends_n;
    char *process_dir; /* absolute; NULL: not configured */
    enum weir_clock_source clock;
    enum weir_choice publish; /* WEIR_DEFAULT: not configured */
};

/* Words of state that all limits of a set may need together. */
#define SET_STATE_WORDS_MAX (WEIR_STATE_MAX / 8)
/* Words of state that a set of one subject needs besides. */
#define KEYED_STATE_WORDS 4u

/* Returns the class of the version blocks of a set with these limits. */
uint32_t set_plan_block_class(const struct set_plan *plan);

/* Finds out whether the instance has a set or pool of a name. */
struct known_names {
    bool (*find)(void *userdata, const char *name, bool *ret_is_pool); /* NULL: none exists */
    void *userdata;
};

/*
 * Resolves what was read into a config AST with the result `r`, reports all complaints and frees
 * the AST; complaints->first is the first complaint. `known` tells which names are taken and which
 * sets pools may name; NULL: none. Returns 0; -ENOMEM; or the code of the first complaint: -EINVAL
 * or -ENOEXEC, for specifications also -ENOENT and -EEXIST, for options also the error of reading
 * the file. On failure `ret` is empty. A plan of specifications has one pool. Without a
 * configuration the plan is empty, and complaints->file, too.
 */
int plan_resolve(int r, struct config_ast *ast, struct plugin_search *plugins,
                 const struct known_names *known, struct plan *ret);

/* Removes everything but the set of this name, or the pool of this name and its sets. */
void plan_select(struct plan *plan, const char *name);

/*
 * Makes the plan of a private set that grants what one of `nodes` processes may of each limit: a
 * part of its units, rounded down. It can be divided again. Bits of `*ret_empty` are limits with a
 * part of nothing, which is not to be asked of the set. Returns 0, -ENOMEM, or the error of
 * plugin_configure(): the algorithm cannot do with so few units (plan_share.c).
 */
int set_plan_share(const struct set_plan *plan, uint32_t nodes, struct set_plan *ret,
                   uint64_t *ret_empty);
/* Returns whether a limit has units that can be divided. */
bool limit_is_divisible(const struct limit *limit);

void plan_free(struct plan *plan);
void set_plan_free(struct set_plan *plan);
void pool_plan_free(struct pool_plan *plan);
void backend_plan_free(struct backend_plan *plan);
void limit_free(struct limit *limit);

#endif
