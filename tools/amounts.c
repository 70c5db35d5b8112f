/* SPDX-License-Identifier: MIT */
/* The amounts that a command requests: 1 of every key, unless the command line says otherwise. */
#include "amounts.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool amounts_has(const struct amounts *amounts, const char *key)
{
    for (size_t i = 0; i < amounts->n; i++)
        if (strcmp(amounts->items[i].key, key) == 0)
            return true;
    return false;
}

int amounts_add(struct amounts *amounts, const char *key, uint64_t amount)
{
    struct weir_amount *grown;

    if (amounts_has(amounts, key))
        return -EEXIST;
    grown = realloc(amounts->items, (amounts->n + 1) * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    amounts->items = grown;
    amounts->items[amounts->n++] = (struct weir_amount){key, amount};
    return 0;
}

/* Adds the keys of a set. Marks those of the first `said_n` amounts that are among them. */
static int amounts_add_set(struct amounts *amounts, weir_set *set, bool *known, size_t given_n)
{
    for (size_t i = 0; i < weir_set_limits(set); i++) {
        const char *key = weir_set_limit_key(set, i);

        if (amounts_add(amounts, key, 1) == -ENOMEM)
            return -ENOMEM;
        for (size_t said = 0; said < given_n; said++)
            if (strcmp(amounts->items[said].key, key) == 0)
                known[said] = true;
    }
    return 0;
}

int amounts_complete(struct amounts *amounts, weir_pool *pool, const char **ret_key)
{
    size_t given_n = amounts->n;
    bool *known = calloc(given_n + 1, sizeof(*known));
    int r = known ? 0 : -ENOMEM;

    amounts->given_n = given_n;
    for (size_t i = 0; i < weir_pool_sets(pool) && r == 0; i++)
        r = amounts_add_set(amounts, weir_pool_set(pool, i), known, given_n);
    for (size_t said = 0; said < given_n && r == 0; said++) {
        if (!known[said]) {
            *ret_key = amounts->items[said].key;
            r = -ENOENT;
        }
    }
    free(known);
    return r;
}

void amounts_forget(struct amounts *amounts)
{
    amounts->n = amounts->given_n;
}

void amounts_free(struct amounts *amounts)
{
    free(amounts->items);
    *amounts = (struct amounts){0};
}
