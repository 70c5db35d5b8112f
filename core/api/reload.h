/* SPDX-License-Identifier: MIT */
/* A reload: what is read, compared with what the instance has (reload_compare.c), and made of it
 * (reload.c). */
#ifndef WEIR_CORE_API_RELOAD_H
#define WEIR_CORE_API_RELOAD_H

#include "api/instance.h"

/* What becomes of a set of the plan. */
struct reload_set {
    weir_set *before; /* of its name; NULL: there is none */
    weir_set *after;  /* NULL: not made */
    bool is_due;      /* it is to be made */
    bool is_variant;  /* of the newest definition: it has other own settings (own_settings.h) */
    bool is_back;     /* `before` was removed by an earlier reload, and has no name */
};

/* What becomes of a pool of the plan. */
struct reload_pool {
    struct instance_pool *before; /* of its name; NULL: there is none */
    struct instance_pool *after;  /* NULL: not made */
    bool is_due;                  /* it is to be made */
};

struct reload {
    weir *w;
    struct plan *plan;
    struct weir_error *reterr;
    struct reload_set *sets;              /* by set of the plan */
    struct reload_pool *pools;            /* by pool of the plan */
    struct str_map set_names, pool_names; /* of the plan, to its parts */
    weir_set **removed;                   /* sets that the plan lacks */
    uint32_t removed_n;
};

/* Finds out what differs; changes nothing. Returns 0, -EEXIST, -EOPNOTSUPP or -ENOMEM, with the
 * reason. The instance's lock is held. */
int reload_compare(struct reload *reload);

#endif
