/* SPDX-License-Identifier: MIT */
/*
 * A plan: a definition whose names were looked up and whose values were checked, ready to become
 * sets and pools. Made by resolve.c, which adds every complaint it finds.
 */
#ifndef WEIR_CORE_PLAN_H
#define WEIR_CORE_PLAN_H

#include "definition.h"
#include "limit.h"
#include "plugin.h"

struct name_value {
    char *name, *value;
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
};

/*
 * Resolves a definition. `known` says whether a set of that name exists already (for pools that
 * name sets of the instance, and for names that are taken); NULL: none does. Returns 0; -EINVAL,
 * -ENOENT, -EEXIST or -ENOEXEC, the code of the first complaint; -ENOMEM. On failure `ret` is
 * empty.
 */
int plan_resolve(const struct definition *definition, struct plugins *plugins,
                 bool (*known)(void *userdata, const char *name, bool *ret_is_pool), void *userdata,
                 struct plan *ret, struct complaints *complaints);
void plan_free(struct plan *plan);
void set_plan_free(struct set_plan *plan);
void pool_plan_free(struct pool_plan *plan);
void limit_free(struct limit *limit);

#endif
