/* SPDX-License-Identifier: MIT */
/* Reads and writes the binding in a key set's version: key, number, phase, binder. */
#include "keyed/key_set_internal.h"
#include "shm/segment.h"

#include "base/invariant.h"
#include "shm/participant.h"

static struct key_digest key_set_key(const struct txn *txn)
{
    return (struct key_digest){key_set_words(txn)[KEY_SET_WORD_PLACE],
                               key_set_words(txn)[KEY_SET_WORD_ID]};
}

static void key_set_set_binding(const struct txn *txn, uint64_t binding, enum key_set_phase phase)
{
    key_set_words(txn)[KEY_SET_WORD_BINDING] = (binding & BINDING_MASK) << PHASE_BITS | phase;
}

bool key_set_is_named(const struct keyed *keyed, const struct txn *txn, struct key_entry *ret)
{
    const struct key_digest key = key_set_key(txn);

    return key_set_binding(txn) && key_table_find(&keyed->table, &key, ret) &&
           ret->word == key_set_word(txn, key_set_binding(txn));
}

void key_set_help(const struct keyed *keyed, const struct txn *txn)
{
    const struct key_digest key = key_set_key(txn);
    struct key_entry entry;

    if (key_set_phase_of(txn) == PHASE_BINDING && key_table_find(&keyed->table, &key, &entry) &&
        entry.word == key_set_word(txn, key_set_binding(txn) - 1))
        key_entry_swap(&entry, key_set_word(txn, key_set_binding(txn)));
}

bool key_set_read(struct txn *txn, struct thread_ctx *ctx, struct keyed *keyed, uint64_t word,
                  struct key_set *storage)
{
    struct key_set *key_set = key_set_at(keyed, word, storage);

    if (!key_set)
        return false;
    txn_begin(txn, ctx, &key_set->set);
    if (set_is_broken(txn->set))
        return false;
    if (key_set_word(txn, key_set_binding(txn)) == word)
        return true;
    key_set_help(keyed, txn);
    return false;
}

bool key_set_admits(struct txn *txn)
{
    if (key_set_binding(txn) != txn->ctx->binding || key_set_phase_of(txn) == PHASE_UNBOUND)
        return false;
    key_set_set_binding(txn, txn->ctx->binding, PHASE_BOUND);
    return true;
}

bool key_set_forecast(struct thread_ctx *ctx, struct key_set *key_set, uint64_t word,
                      const uint64_t *amounts, enum forecast_walk forecast_walk,
                      struct decision *ret)
{
    struct set_view view;

    set_forecast_view(ctx, &key_set->set, amounts, forecast_walk, ret, &view);
    return set_is_broken(&key_set->set) ||
           key_set_word_of(key_set, key_set_binding_in(&key_set->set, view.content)) == word;
}

/* ---- start and end of a binding ---- */

/* Identifies the calling thread: its unit and the generation of its thread head. The load is
 * relaxed because the generation changes only after this thread's death. */
static uint64_t key_set_binder(const struct txn *txn)
{
    uint32_t unit = thread_ctx_for_set(txn->ctx, txn->set->number)->unit;
    const struct thread_head *head = region_block(txn->set->region, unit);

    return (uint64_t)unit << 32 |
           (uint32_t)atomic_load_explicit(&head->generation, memory_order_relaxed);
}

uint64_t key_set_begin_binding(const struct txn *txn)
{
    uint64_t binding = key_set_binding(txn) + 1;

    WEIR_INVARIANT(key_set_phase_of(txn) == PHASE_UNBOUND);
    key_set_set_binding(txn, binding, PHASE_BINDING);
    key_set_words(txn)[KEY_SET_WORD_BINDER] = key_set_binder(txn);
    return key_set_word(txn, binding);
}

bool key_set_end_binding(struct txn *txn)
{
    WEIR_INVARIANT(key_set_phase_of(txn) != PHASE_UNBOUND);
    key_set_set_binding(txn, key_set_binding(txn), PHASE_UNBOUND);
    forecast_invalidate(txn);
    return txn_commit(txn);
}

bool key_set_is_abandoned(const struct txn *txn)
{
    const struct segment *segment = key_set_of(txn->set)->keyed->segment;
    uint64_t binder = key_set_words(txn)[KEY_SET_WORD_BINDER];
    uint32_t i;

    if (!segment)
        return false;
    return !segment_thread_of_unit(segment, (uint32_t)(binder >> 32), &i) ||
           (uint32_t)atomic_load_explicit(&segment_thread(segment, i)->head.generation,
                                          memory_order_seq_cst) != (uint32_t)binder;
}
