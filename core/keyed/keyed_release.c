/* SPDX-License-Identifier: MIT */
/* Releases to wherever the key's word points at that time. */
#include "base/backoff.h"
#include "keyed/keyed_internal.h"

#include "base/invariant.h"
#include "base/sched_point.h"
#include "keyed/key_set.h"
#include "set/instance_base.h"
#include <errno.h>

/* A release. Its record may become free before the key's state changes. */
struct keyed_release_op {
    struct thread_ctx *ctx;
    weir_set *set; /* the template set */
    struct key_digest key;
    uint32_t record;
    uint64_t word; /* of the record while it is HELD */
    struct release_args args;
    bool record_freed; /* the record is free; only the key's state is still to be changed */
};

/* Frees the record. Of several threads that try, one succeeds; false: another one did. */
static bool keyed_claim_record(struct keyed_release_op *rel)
{
    struct acq_record *r = record_at(rel->set->region, rel->record);
    uint64_t word = rel->word;

    WEIR_INVARIANT(rel->record);
    WEIR_INVARIANT(rel->set->is_robust || record_state(rel->word) == RECORD_HELD);
    if (!rel->record_freed)
        rel->record_freed = atomic_compare_exchange_strong_explicit(
            &r->word, &word, record_next_word(rel->word, RECORD_FREE), memory_order_seq_cst,
            memory_order_seq_cst);
    SCHED_POINT();
    return rel->record_freed;
}

/* Binds a key set with these states to the key. Returns -EINPROGRESS, or 1 if there is no room for
 * one: then nothing is released. */
static int keyed_release_promote(const struct keyed_release_op *rel, struct key_entry *entry,
                                 const uint64_t *states)
{
    struct key_set *key_set;
    int r = keyed_promote(rel->set->keyed, rel->ctx, &rel->key, entry, states, &key_set);

    return r == 0 || r == -EINPROGRESS ? -EINPROGRESS : 1;
}

/* Releases to the state in a key's word: 1 done, 0 another thread did it, or -EINPROGRESS. */
static int keyed_release_word(struct keyed_release_op *rel, struct key_entry *entry)
{
    const weir_set *set = rel->set;
    struct weir_instant at = {0};
    uint64_t state = entry->word;

    if (!keyed_claim_record(rel))
        return 0;
    if (!keyed_is_valid(set->keyed, state))
        return 1; /* no state to release to */
    if (set->limits.items[0].algorithm)
        at = clock_instant(&set->w->clock, set->limits.reads_wall);
    set_release_limit(set, 0, &state, &at, &rel->args, rel->args.granted_ns);
    if (key_word_is_key_set(state))
        return 1; /* the algorithm set the top bit, against its contract */
    return state == entry->word || key_entry_swap(entry, state) == KEY_SWAPPED ? 1 : -EINPROGRESS;
}

/* Returns whether plain resources are returned exactly as granted, in a private set. Then no
 * algorithm is called. The record may be freed first, because threads do not die one by one. */
static bool keyed_release_is_simple(const struct keyed_release_op *rel)
{
    const struct release_args *args = &rel->args;
    uint64_t different = 0;

    for (uint32_t i = 0; i < rel->set->limits.n; i++)
        different |= args->used[i] ^ args->amounts[i];
    return !rel->set->is_robust && !args->return_all && !different &&
           !rel->set->limits.has_opaque_resources;
}

/* Releases to a key set: 1 done, 0 another thread did it, -ESTALE (another binding). */
static int keyed_release_to_key_set(struct keyed_release_op *rel, struct key_set *key_set)
{
    int r = -EINPROGRESS;

    if (keyed_release_is_simple(rel)) {
        if (!keyed_claim_record(rel))
            return 0;
        r = key_set_release_now(rel->ctx, key_set, rel->args.amounts);
    }
    if (r == -EINPROGRESS)
        r = set_release_key_set(rel->ctx, &key_set->set, rel->record, rel->word, &rel->args,
                                rel->record_freed);
    return r;
}

static int keyed_release_bound(struct keyed_release_op *rel, struct key_entry *entry)
{
    struct keyed *keyed = rel->set->keyed;
    struct key_set storage, *key_set = key_set_at(keyed, entry->word, &storage);
    uint64_t outer_binding =
        rel->ctx->binding; /* of an acquisition that is reaping dead peers now */
    int r = -ESTALE;

    rel->ctx->binding = key_word_binding(entry->word);
    if (key_set)
        r = keyed_release_to_key_set(rel, key_set);
    rel->ctx->binding = outer_binding;
    if (r == -ESTALE)
        return key_set_repair(rel->ctx, keyed, &rel->key, entry) == -EUCLEAN ? 1 : -EINPROGRESS;
    key_set_unbind_if_idle(rel->ctx, key_set);
    return r;
}

/* Returns whether the release charges beyond the grant. Then a missing key must be created, since
 * its removal must not be observable. Returning units to a new key makes no difference. */
static bool keyed_release_charges(const weir_set *set, const struct release_args *args)
{
    bool charges = false;

    for (uint32_t i = 0; i < set->limits.n; i++)
        charges |= set->limits.items[i].charges && args->used[i] > args->amounts[i];
    return charges && !args->return_all;
}

/* Charges a new key: 1, or -EINPROGRESS. Without room for the key the charge is dropped. */
static int keyed_charge_new(const struct keyed_release_op *rel)
{
    weir_set *set = rel->set;
    struct weir_instant at = clock_instant(&set->w->clock, set->limits.reads_wall);
    struct key_entry entry;
    uint64_t state = 0;
    int r;

    WEIR_INVARIANT(rel->record_freed);
    switch (keyed_claim(set->keyed, rel->ctx, &rel->key, &at, &entry)) {
    case KEY_FOUND:
        return -EINPROGRESS;
    case KEY_FULL:
        return 1;
    default:
        break;
    }
    if (set->keyed->fits_inline) {
        at = clock_instant(&set->w->clock, set->limits.reads_wall);
        limits_init(&set->limits, &state, &at);
        set_release_limit(set, 0, &state, &at, &rel->args, rel->args.granted_ns);
        if (!key_word_is_key_set(state))
            return key_claim_commit(&entry, state) ? 1 : -EINPROGRESS;
    }
    r = keyed_release_promote(rel, &entry, NULL);
    if (r == 1)
        key_claim_drop(&entry);
    return r;
}

static int keyed_release_once(struct keyed_release_op *rel)
{
    struct keyed *keyed = rel->set->keyed;
    struct key_entry entry;

    if (key_table_find(&keyed->table, &rel->key, &entry))
        return key_word_is_key_set(entry.word) ? keyed_release_bound(rel, &entry)
                                               : keyed_release_word(rel, &entry);
    if (!keyed_claim_record(rel))
        return 0;
    return keyed_release_charges(rel->set, &rel->args) ? keyed_charge_new(rel) : 1;
}

bool keyed_release(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word,
                   const struct release_args *args)
{
    struct keyed_release_op rel = {.ctx = ctx,
                                   .set = set,
                                   .key = keyed_record_key(set, record),
                                   .record = record,
                                   .word = word,
                                   .args = *args};
    unsigned turn = 0;
    int r;

    WEIR_INVARIANT(set->keyed && record);
    WEIR_INVARIANT(set->is_robust || record_state(word) == RECORD_HELD);
    rel.args.granted_ns = record_load(&record_at(set->region, record)->granted_ns);
    for (; (r = keyed_release_once(&rel)) == -EINPROGRESS; spin_backoff(&turn))
        ;
    if (r == 0)
        return false;
    if (!set_is_broken(set))
        set_count_release(ctx, set, args);
    return true;
}

bool keyed_release_exact(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word,
                         const struct release_args *args)
{
    return keyed_release(ctx, key_set_template(set), record, word, args);
}
