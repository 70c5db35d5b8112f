/* SPDX-License-Identifier: MIT */
/*
 * A plan: a definition whose names were looked up and whose values were checked, ready to become
 * sets and pools. Made by resolve.c, which adds every complaint it finds.
 */
#ifndef WEIR_CORE_CONFIG_PLAN_H
#define WEIR_CORE_CONFIG_PLAN_H

#include "config/config_ast.h"
#include "limit/limit.h"
#include "plugin/plugin.h"
#include <weir/clock.h>

struct name_value {
    char *name, *value;
};

/* Where the state of a set lives. */
enum backend {
    BACKEND_THREAD, /* in the memory of the process */
    BACKEND_PROCESS /* in a segment, shared by the processes of a user */
};

/* Which key gives way to a new one when none can be forgotten. */
enum evict { EVICT_OLDEST, EVICT_RANDOM, EVICT_NONE };

#define KEYED_MEMORY_MIN (UINT64_C(64) << 10)
#define KEYED_MEMORY_MAX (UINT64_C(1) << 40)

struct keyed_plan {
    uint64_t max_keys; /* 0: the set is not keyed */
    uint64_t memory;   /* bytes; 0: what max_keys needs */
    enum evict evict;
};

/* Everything a set is made of. Strings and arrays are owned by the plan until a set takes them. */
struct set_plan {
    char *name;
    struct limit *limits;
    uint32_t limits_n;
    uint32_t state_words;      /* of all limits together, in 8-byte words */
    struct name_value *config; /* sorted by name */
    uint32_t config_n;
    uint64_t timeout_ns, max_wait_ns; /* WEIR_FOREVER: none */
    uint32_t max_waiters;             /* 0: no bound */
    bool strict, fair;
    enum backend backend;
    struct keyed_plan keyed;
    bool while_used; /* its segment vanishes with the last process that uses it */
};

struct pool_plan {
    char *name;                    /* NULL: cannot be opened by name */
    const struct plugin *balancer; /* NULL: a single set needs none */
    void *config;                  /* of the balancer, aligned to 16 */
    uint32_t state_words;          /* of the balancer's state */
    uint64_t seed;                 /* 0: the instance's */
    char **sets;                   /* names; resolved against the plan's and the instance's sets */
    uint32_t sets_n;               /* 0: one empty set */
};

struct plan {
    struct set_plan *sets;
    size_t sets_n;
    struct pool_plan *pools;
    size_t pools_n;
    char *process_dir; /* absolute; NULL: the configuration names none */
    enum weir_clock_source clock;
};

/* Words of state that all limits of one set may need together. */
#define SET_STATE_WORDS_MAX (WEIR_STATE_MAX / 8)

/* Whether a set or pool of that name exists in the instance already. */
struct known_names {
    bool (*find)(void *userdata, const char *name, bool *ret_is_pool); /* NULL: none exists */
    void *userdata;
};

/*
 * Resolves a definition. `known` is about names that are taken, and about sets that pools may name;
 * NULL: there are none. Returns 0, -EINVAL (complaints were added) or -ENOMEM. On failure `ret` is
 * empty.
 */
int plan_resolve(const struct config_ast *ast, struct plugin_search *plugins,
                 const struct known_names *known, struct plan *ret, struct complaints *complaints);

/*
 * All of it: reads a text or specifications, resolves what was read, tells the complaints, and
 * leaves the first in complaints->first. Returns 0, the code of the first complaint (for a text
 * -EINVAL or -ENOEXEC; for specifications also -ENOENT and -EEXIST), or -ENOMEM. `ret` is empty on
 * failure; for specifications it holds one pool.
 */
int plan_from_text(const char *text, size_t length, struct plugin_search *plugins, struct plan *ret,
                   struct complaints *complaints);
int plan_from_spec(const struct weir_pool_spec *spec, struct plugin_search *plugins,
                   const struct known_names *known, struct plan *ret,
                   struct complaints *complaints);

/* Leaves out all but the set of this name, or the pool and its sets. */
void plan_select(struct plan *plan, const char *name);

void plan_free(struct plan *plan);
void set_plan_free(struct set_plan *plan);
void pool_plan_free(struct pool_plan *plan);
void limit_free(struct limit *limit);

#endif
