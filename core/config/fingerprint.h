/* SPDX-License-Identifier: MIT */
/*
 * The fingerprint of a set: what all processes that share it must agree on. It is a text, for
 * people and for programs that open the set without a configuration of their own, and a hash to
 * compare. Neither has what each process decides for itself: timeout, max_wait, strict,
 * hold_histogram, config.
 */
#ifndef WEIR_CORE_CONFIG_FINGERPRINT_H
#define WEIR_CORE_CONFIG_FINGERPRINT_H

#include "config/plan.h"

/* Bytes of a definition text, with its final NUL. */
#define FINGERPRINT_TEXT_MAX ((size_t)16 << 10)

struct fingerprint {
    /*
     * Definition text: a configuration of this one set on one line, with the given values, in the
     * order of the limits. Reading it gives a set with this fingerprint, if the same plugins are
     * found.
     */
    char *definition;
    /*
     * Hash (FNV-1a) of what the set means, not of how it was written: lifetime, fair, max_waiters,
     * the keyed fields; of each limit type, key, capacity, refund, overuse, lease, shadow, words of
     * state, algorithm, version and state id of its plugin, and the bytes that it made of its
     * settings. It guards against mistakes, not against attackers: a process that may write to a
     * segment needs no collision.
     */
    uint64_t hash;
};

/*
 * Makes the fingerprint of a set. Returns 0; -E2BIG (the definition text is longer than a segment
 * has room for); -EINVAL (the set has bytes that are not UTF-8, which the text cannot hold);
 * -ENOMEM. On failure `ret` is empty; `reterr` may be NULL.
 */
int fingerprint_new(const struct set_plan *plan, struct fingerprint *ret,
                    struct weir_error *reterr);
/* Returns the hash of one limit: what the hash of a set has of it. */
uint64_t fingerprint_of_limit(const struct limit *limit);
void fingerprint_free(struct fingerprint *fingerprint);

#endif
