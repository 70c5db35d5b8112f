/* SPDX-License-Identifier: MIT */
/*
 * What the parts of keyed sets have in common:
 *
 *   keyed.c           made and freed; subjects become keys
 *   keyed_slots.c     places for new keys, and live sets for known ones
 *   keyed_acquire.c     somebody asks for what a key has
 *   keyed_release.c    what was granted is given back
 *   keyed_forecast.c  when it could be granted
 *   keyed_stats.c     what is told of all keys together
 */
#ifndef WEIR_CORE_KEYED_KEYED_INTERNAL_H
#define WEIR_CORE_KEYED_KEYED_INTERNAL_H

#include "keyed/keyed.h"

struct key_set;

/* The key of a record, as keyed_write_key() wrote it. */
static inline struct key_digest keyed_record_key(const weir_set *set, uint32_t record)
{
    const struct acq_record *r = record_at(set->region, record);

    return (struct key_digest){record_load(&r->amounts[set->limits.n]),
                               record_load(&r->amounts[set->limits.n + 1])};
}

/* Whether the word of a key, which is a state, can be one, in a set that processes share; and that
 * this process may go by it. False: the set is broken. */
bool keyed_check_word(const struct keyed *keyed, uint64_t word);

static inline bool keyed_is_valid(const struct keyed *keyed, uint64_t word)
{
    return !keyed->set->participant || keyed_check_word(keyed, word);
}

/* As key_table_claim(), by what limits say of other keys at this instant; counts them. */
enum key_claim keyed_claim(struct keyed *keyed, struct thread_ctx *ctx,
                           const struct key_digest *key, const struct weir_instant *at,
                           struct key_entry *ret);

/*
 * The key of an entry gets a live set, for what no word can be, with these states; NULL: the entry is
 * a place that was claimed, and the key new. 0; -EINPROGRESS: look again; or as key_set_bind(), and
 * a claim stays.
 */
int keyed_promote(struct keyed *keyed, struct thread_ctx *ctx, const struct key_digest *key,
                  struct key_entry *entry, const uint64_t *states, struct key_set **ret);

#endif
