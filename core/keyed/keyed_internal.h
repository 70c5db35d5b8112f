/* SPDX-License-Identifier: MIT */
/* Shared parts of the keyed*.c modules, which README.md lists. */
#ifndef WEIR_CORE_KEYED_KEYED_INTERNAL_H
#define WEIR_CORE_KEYED_KEYED_INTERNAL_H

#include "base/invariant.h"
#include "keyed/keyed.h"

struct key_set;

/* Returns the key of a record, which keyed_write_key() wrote. */
static inline struct key_digest keyed_record_key(const weir_set *set, uint32_t record)
{
    const struct acq_record *r = record_at(set->region, record);

    WEIR_INVARIANT(set->keyed && record);
    return (struct key_digest){record_load(&r->amounts[set->limits.n]),
                               record_load(&r->amounts[set->limits.n + 1])};
}

/* Returns whether a key's word in a shared set is a valid state, and this process still has its
 * slot. False: the set is broken. */
bool keyed_check_word(const struct keyed *keyed, uint64_t word);

static inline bool keyed_is_valid(const struct keyed *keyed, uint64_t word)
{
    return !set_is_shared(keyed->set) || keyed_check_word(keyed, word);
}

/* Claims a slot with key_table_claim(), with a key policy for these limits at this instant. Updates
 * the counters. */
enum key_claim keyed_claim(struct keyed *keyed, struct thread_ctx *ctx,
                           const struct key_digest *key, const struct weir_instant *at,
                           struct key_entry *ret);

/*
 * Binds a key set with these states to the key of an entry, for a state that fits no word. `states`
 * NULL: the entry is a claim, and the key is new. Returns 0; -EINPROGRESS (look the key up again);
 * or an error of key_set_bind(), after which a claim still stands.
 */
int keyed_promote(struct keyed *keyed, struct thread_ctx *ctx, const struct key_digest *key,
                  struct key_entry *entry, const uint64_t *states, struct key_set **ret);

#endif
