/* SPDX-License-Identifier: MIT */
/* What a command asks of a pool: 1 of every key, unless the command line says otherwise. */
#ifndef WEIR_TOOLS_AMOUNTS_H
#define WEIR_TOOLS_AMOUNTS_H

#include <weir/weir.h>

struct amounts {
    struct weir_amount *items; /* owned; keys are borrowed */
    size_t n;
};

/* Says an amount. -EEXIST: of this key one is said already; -ENOMEM. */
int amounts_add(struct amounts *amounts, const char *key, uint64_t amount);

/*
 * Adds 1 of every key of the pool's sets of which nothing is said; the keys live as long as the
 * pool. -ENOENT: what is said of `*ret_key` is of no set's limit; or as weir_set_stats.
 */
int amounts_complete(struct amounts *amounts, weir_pool *pool, const char **ret_key);

void amounts_free(struct amounts *amounts);

#endif
