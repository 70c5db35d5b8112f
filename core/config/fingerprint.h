/* SPDX-License-Identifier: MIT */
/*
 * The signature of a set: what all processes that share it must agree on, as a text for people and
 * programs that open the set without a configuration of their own, and as a hash to compare. What
 * is each process's own is in neither: timeout, max_wait, strict, config.
 */
#ifndef WEIR_CORE_CONFIG_FINGERPRINT_H
#define WEIR_CORE_CONFIG_FINGERPRINT_H

#include "config/plan.h"

/* Bytes of a definition, with the NUL at its end. */
#define FINGERPRINT_TEXT_MAX ((size_t)16 << 10)

struct fingerprint {
    /*
     * A configuration of this one set, on one line: what was written, in the order of the limits.
     * Reading it gives a set with this same signature, where the same plugins are found.
     */
    char *definition;
    /*
     * Of what the set means, not of how it was written: lifetime, fair, max_waiters, and of each
     * limit its type, key, capacity, refund, overuse and lease, words of state, the algorithm with the
     * version of its plugin, and the bytes that it made of its settings. FNV-1a, so that nobody
     * gets it wrong by accident; whoever may write to a segment needs no collision.
     */
    uint64_t hash;
};

/*
 * The signature of a set. Returns 0; -E2BIG (its definition is longer than a segment has room for),
 * -EINVAL (it holds bytes that are not UTF-8, so that it cannot be written down), -ENOMEM; `reterr`
 * may be NULL, `ret` is then empty.
 */
int fingerprint_new(const struct set_plan *plan, struct fingerprint *ret,
                    struct weir_error *reterr);
void fingerprint_free(struct fingerprint *fingerprint);

#endif
