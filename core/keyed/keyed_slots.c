/* SPDX-License-Identifier: MIT */
/* Finds slots for new keys, and key sets for known ones. */
#include "keyed/keyed_internal.h"
#include "shm/segment.h"

#include "keyed/key_set.h"
#include "shm/participant.h"
#include <errno.h>

/* Returns whether a word can be a state. It may be another key's word if it was loaded separately
 * from the id, and in a segment it may be anything. */
static bool keyed_is_state(const struct keyed *keyed, uint64_t word)
{
    return keyed->fits_inline && limits_check(&keyed->set->limits, &word) == 0;
}

bool keyed_check_word(const struct keyed *keyed, uint64_t word)
{
    struct participant *participant = keyed->set->participant;

    if (!participant_has_slot(participant) || !keyed_is_state(keyed, word))
        participant_mark_broken(participant);
    if (participant_is_broken(participant))
        participant_report_broken(participant);
    return !participant_is_broken(participant);
}

struct key_policy_args {
    struct thread_ctx *ctx;
    struct keyed *keyed;
    struct weir_instant at;
};

static enum key_use keyed_key_use(const void *userdata, uint64_t word, uint64_t *ret_instant)
{
    const struct key_policy_args *args = userdata;

    if (key_word_is_key_set(word))
        return key_set_use(args->ctx, args->keyed, word, ret_instant);
    if (!keyed_is_state(args->keyed, word))
        return KEY_PINNED; /* the word may be another key's */
    return key_states_use(&args->keyed->set->limits, &word, &args->at, ret_instant);
}

static bool keyed_may_remove(const void *userdata, uint64_t word, enum key_use use)
{
    const struct key_policy_args *args = userdata;

    return !key_word_is_key_set(word) || key_set_may_remove(args->ctx, args->keyed, word, use);
}

static void keyed_add_stats(struct keyed *keyed, const struct probe_stats *stats)
{
    if (stats->forgotten)
        atomic_fetch_add_explicit(&keyed->shared_state->forgotten, stats->forgotten,
                                  memory_order_relaxed);
    if (stats->evicted)
        atomic_fetch_add_explicit(&keyed->shared_state->evicted, stats->evicted,
                                  memory_order_relaxed);
}

enum key_claim keyed_claim(struct keyed *keyed, struct thread_ctx *ctx,
                           const struct key_digest *key, const struct weir_instant *at,
                           struct key_entry *ret)
{
    const struct key_policy_args args = {ctx, keyed, *at};
    const struct key_policy keys = {keyed_key_use, &args, keyed->eviction, keyed_may_remove};
    struct probe_stats stats = {0};
    enum key_claim claimed =
        key_table_claim(&keyed->table, key, &keys, &ctx->nonce_source, ret, &stats);

    keyed_add_stats(keyed, &stats);
    return claimed;
}

int keyed_promote(struct keyed *keyed, struct thread_ctx *ctx, const struct key_digest *key,
                  struct key_entry *entry, const uint64_t *states, struct key_set **ret)
{
    uint64_t word;
    int r = key_set_bind(keyed, ctx, key, states, ret, &word);

    if (r < 0)
        return r;
    if (states ? key_entry_swap(entry, word) == KEY_SWAPPED : key_claim_commit(entry, word))
        return 0;
    key_set_unbind(*ret, ctx, word);
    return -EINPROGRESS;
}
