/* SPDX-License-Identifier: MIT */
/* Slots of keys: finds them, claims them for new keys, and says which keys may make room. */
#include "keyed/keyed_internal.h"

#include "base/invariant.h"
#include "set/instance_base.h"
#include "shm/participant.h"

/* Returns whether a word can be a state. It may be another key's word if it was loaded separately
 * from the id, and in a segment it may be anything. */
static bool keyed_is_state(const struct keyed *keyed, uint64_t word)
{
    return keyed->fits_inline && limits_check(&keyed->set->limits, &word) == 0;
}

bool keyed_check_word(const struct keyed *keyed, uint64_t word)
{
    struct participant *participant = keyed->set->participant;

    WEIR_INVARIANT(participant);
    if (!participant_has_slot(participant) || !keyed_is_state(keyed, word))
        participant_mark_broken(participant);
    if (participant_is_broken(participant))
        participant_report_broken(participant);
    return !participant_is_broken(participant);
}

/* ---- keys that may make room ---- */

/* Returns whether the limit is as new. An algorithm that says so of a limit from which something
 * was taken has broken its contract, which is noted: the subject would have its units again. */
static bool key_limit_is_new(const weir_set *set, uint32_t i, const uint64_t *state,
                             const struct weir_instant *at)
{
    const weir_set *owner = set_is_key_set(set) ? key_set_owner(set) : set;

    if (!limit_is_new(&set->limits.items[i], state, at))
        return false;
    if (limit_has_all(&set->limits.items[i], state, at))
        return true;
    limits_note_fault(&owner->limits, i);
    return false;
}

enum key_use key_states_use(const weir_set *set, const uint64_t *states,
                            const struct weir_instant *at, uint64_t *ret_instant)
{
    bool is_new = true;

    *ret_instant = at->now_ns;
    for (uint32_t i = 0; i < set->limits.n; i++) {
        const struct limit *limit = &set->limits.items[i];
        uint64_t ready;

        if (limit_is_retired(limit) || key_limit_is_new(set, i, states + limit->state_offset, at))
            continue;
        if (limit->type == WEIR_LIMIT_RESOURCE)
            return KEY_PINNED;
        is_new = false;
        ready = limit_ready_at(limit, states + limit->state_offset, at, limit->capacity);
        *ret_instant = ready > *ret_instant ? ready : *ret_instant;
    }
    return is_new ? KEY_AS_NEW : KEY_EVICTABLE;
}

struct key_policy_args {
    struct thread_ctx *ctx;
    struct keyed *keyed;
    struct weir_instant at;
};

static enum key_use keyed_key_use(const void *userdata, uint64_t id, uint64_t word,
                                  uint64_t *ret_instant)
{
    const struct key_policy_args *args = userdata;
    const struct keyed *keyed = args->keyed, *of = keyed_definition_of(keyed, id);
    uint64_t *states = args->ctx->content;

    if (key_word_is_key_set(word))
        return key_set_use(args->ctx, args->keyed, word, ret_instant);
    if (!of || !keyed_is_state(of, word))
        return KEY_PINNED; /* the word may be another key's */
    if (of == keyed)
        return key_states_use(keyed->set, &word, &args->at, ret_instant);
    keyed_convert(args->ctx, keyed, of, &word, 0, states);
    return key_states_use(keyed->set, states, &args->at, ret_instant);
}

static bool keyed_may_remove(const void *userdata, uint64_t word, enum key_use use)
{
    const struct key_policy_args *args = userdata;

    if (keyed_is_outdated(args->keyed))
        return false; /* whether it is as new was decided by this definition, and maybe too late */
    if (key_word_is_key_set(word))
        return key_set_may_remove(args->ctx, args->keyed, word, use);
    keyed_note_removal(args->keyed, args->at.now_ns);
    return true;
}

void keyed_note_removal(const struct keyed *keyed, uint64_t now_ns)
{
    if (!keyed->set->limits.clock_needs)
        shm_raise_seq_cst(&keyed->shared_state->removed_ns, now_ns);
}

bool keyed_slot_claim(struct keyed_slot *slot, struct weir_instant *at)
{
    struct keyed *keyed = slot->keyed;
    const struct key_policy_args args = {slot->ctx, keyed, *at};
    const struct key_policy policy = {keyed_key_use, &args, keyed->eviction, keyed_may_remove};
    struct probe_stats stats = {0};
    enum key_claim claim = key_table_claim(&keyed->table, slot->key, &policy,
                                           &slot->ctx->nonce_state, &slot->entry, &stats);

    if (stats.forgotten)
        atomic_fetch_add_explicit(&keyed->shared_state->forgotten, stats.forgotten,
                                  memory_order_relaxed);
    if (stats.evicted)
        atomic_fetch_add_explicit(&keyed->shared_state->evicted, stats.evicted,
                                  memory_order_relaxed);
    /* The claim, or the sight of it, comes before the load: a claim that misses the successor is
     * seen by all requests of that, which withdraw it before they claim. */
    atomic128_fence();
    slot->is_claim = claim == KEY_CLAIMED;
    if (!slot->is_claim)
        return claim == KEY_FOUND;
    if (keyed->set->limits.clock_needs)
        *at = clock_instant(&keyed->set->w->clock, keyed->set->limits.clock_needs);
    else
        keyed_reach(&keyed->shared_state->removed_ns, at);
    if (!keyed_is_outdated(keyed))
        return true;
    key_claim_drop(&slot->entry);
    return slot->is_claim = false;
}
