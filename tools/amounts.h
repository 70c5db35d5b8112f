/* SPDX-License-Identifier: MIT */
/* The amounts that a command requests: 1 of every key, unless the command line says otherwise. */
#ifndef WEIR_TOOLS_AMOUNTS_H
#define WEIR_TOOLS_AMOUNTS_H

#include <weir/weir.h>

struct amounts {
    struct weir_amount *items; /* owned; keys are borrowed */
    size_t n;
    size_t
        given_n; /* of them, the first ones: those of the command line; since amounts_complete() */
};

/* Adds an amount. Returns 0, -EEXIST (the key has one already) or -ENOMEM. */
int amounts_add(struct amounts *amounts, const char *key, uint64_t amount);

/* Adds 1 of every other key of the pool's sets; these keys live as long as the pool. Returns 0,
 * -ENOENT (no set has a limit with `*ret_key`) or -ENOMEM. */
int amounts_complete(struct amounts *amounts, weir_pool *pool, const char **ret_key);

/* Takes away what amounts_complete() has added: the pool is closed. */
void amounts_forget(struct amounts *amounts);

void amounts_free(struct amounts *amounts);

#endif
