/* SPDX-License-Identifier: MIT */
/* Bindings of key sets, as their versions say: key, number, phase, binder; and how they change. */
#include "keyed/keyed_internal.h"
#include "shm/segment.h"

#include "base/invariant.h"
#include "base/sched_point.h"
#include "set/instance_base.h"
#include "shm/participant.h"
#include <string.h>

/* ---- what a version says ---- */

enum key_set_phase { PHASE_UNBOUND, PHASE_BINDING, PHASE_BOUND };

#define PHASE_BITS 2u
#define PHASE_MASK ((UINT64_C(1) << PHASE_BITS) - 1)
/* Of the definition, which matters in a segment only: there are fewer than it has room for. */
#define DEFINITION_SHIFT (BINDING_BITS + PHASE_BITS)

static inline struct key_binding *key_set_words(const struct txn *txn)
{
    WEIR_INVARIANT(txn->set->limits.state_words >= KEY_SET_WORDS);
    return key_binding_behind(txn->set, txn_states(txn));
}

static inline enum key_set_phase key_set_phase_of(const struct txn *txn)
{
    return (enum key_set_phase)(key_set_words(txn)->binding & PHASE_MASK);
}

static uint64_t key_set_binding(const struct txn *txn)
{
    return key_set_words(txn)->binding >> PHASE_BITS & BINDING_MASK;
}

static void key_set_set_binding(const struct txn *txn, uint64_t binding, enum key_set_phase phase)
{
    uint64_t definition = key_set_of(txn->set)->keyed->definition;

    WEIR_INVARIANT((uint64_t)phase <= PHASE_MASK);
    key_set_words(txn)->binding =
        definition << DEFINITION_SHIFT | (binding & BINDING_MASK) << PHASE_BITS | phase;
}

/* Returns the word that names a binding of the key set. */
static uint64_t key_set_word(const struct key_set *key_set, uint64_t binding)
{
    WEIR_INVARIANT(key_set->number < KEY_SETS_MAX);
    return KEY_SET_BIT | (uint64_t)key_set->number << BINDING_BITS | (binding & BINDING_MASK);
}

/* Returns whether the word of the version's key names this binding; then `*ret` is the key's
 * entry. */
static bool key_set_is_named_as(const struct txn *txn, uint64_t binding, struct key_entry *ret)
{
    const struct key_set *key_set = key_set_of(txn->set);

    return binding && key_table_find(&key_set->keyed->table, &key_set_words(txn)->key, ret) &&
           ret->word == key_set_word(key_set, binding);
}

static bool key_set_is_named(const struct txn *txn, struct key_entry *ret)
{
    return key_set_is_named_as(txn, key_set_binding(txn), ret);
}

/* Returns whether the binder has died and was recovered. Always false in a private set: its threads
 * do not die one by one. */
static bool key_set_is_abandoned(const struct txn *txn)
{
    const struct segment *segment = key_set_of(txn->set)->keyed->segment;
    uint64_t binder = key_set_words(txn)->binder;
    uint32_t i;

    if (!segment)
        return false;
    return !segment_thread_of_unit(segment, (uint32_t)(binder >> 32), &i) ||
           (uint32_t)atomic_load_explicit(&segment_thread(segment, i)->head.generation,
                                          memory_order_seq_cst) != (uint32_t)binder;
}

/* Returns whether the version is the last one: the key set of the next definition has its state. */
static inline bool key_set_has_moved(const struct txn *txn)
{
    return (version_flags(&txn->version) & CONTENT_MOVED) != 0;
}

/* ---- reading, with a binding in mind ---- */

/* Completes a rebind of a thread that may have been stopped or have died before the key's word
 * changed. */
static void key_set_help(const struct txn *txn)
{
    uint64_t binding = key_set_binding(txn);
    struct key_entry entry;

    if (key_set_phase_of(txn) == PHASE_BINDING && key_set_is_named_as(txn, binding - 1, &entry))
        key_entry_swap(&entry, key_set_word(key_set_of(txn->set), binding));
}

/* Reads the key set that a word names. Returns false if it no longer has that binding. */
static bool key_set_read(struct txn *txn, struct thread_ctx *ctx, struct keyed *keyed,
                         uint64_t word, struct key_set *storage)
{
    struct key_set *key_set = key_set_at(keyed, word, storage);

    if (!key_set)
        return false;
    txn_begin(txn, ctx, &key_set->set);
    if (set_is_broken(txn->set) || key_set_has_moved(txn))
        return false;
    if (key_set_binding(txn) == key_word_binding(word))
        return true;
    key_set_help(txn);
    return false;
}

weir_set *key_set_owner(const weir_set *set)
{
    WEIR_INVARIANT(set_is_key_set(set));
    return ((const struct key_set *)set)->keyed->set;
}

bool key_set_admits(const struct thread_ctx *ctx, const weir_set *set, uint64_t *content)
{
    uint64_t *word = &key_binding_behind(set, content + CONTENT_STATES)->binding;

    if ((*word >> PHASE_BITS & BINDING_MASK) != ctx->binding ||
        (*word & PHASE_MASK) == PHASE_UNBOUND)
        return false;
    WEIR_INVARIANT(ctx->binding <= BINDING_MASK);
    *word = (*word & ~((UINT64_C(1) << DEFINITION_SHIFT) - 1)) | ctx->binding << PHASE_BITS |
            PHASE_BOUND;
    return true;
}

/* ---- versions of earlier definitions, in a segment ---- */

static const struct keyed *key_set_version_keyed(const weir_set *set, const uint64_t *content)
{
    const struct keyed *keyed = ((const struct key_set *)set)->keyed;
    const uint64_t *words = content + CONTENT_STATES + set->limits.state_words - KEY_SET_WORDS;
    uint64_t number = ((const struct key_binding *)words)->binding >> DEFINITION_SHIFT;

    WEIR_INVARIANT(keyed->segment);
    return number <= keyed->definition ? keyed_before(keyed, keyed->definition - (uint32_t)number)
                                       : NULL;
}

const weir_set *key_set_version_definition(const weir_set *set, const uint64_t *content)
{
    const struct keyed *keyed = key_set_version_keyed(set, content);

    return keyed ? keyed->set : NULL;
}

/* The first version by a definition also grants to the head, or arranges that it is looked at in
 * time, as that of any successor. */
bool key_set_renew(const struct txn *txn)
{
    const struct keyed *keyed = key_set_of(txn->set)->keyed, *of;
    struct txn renewed;

    if (set_is_broken(txn->set) || key_set_has_moved(txn) || !txn->version.content_n)
        return false;
    of = key_set_version_keyed(txn->set, txn->version.content);
    if (of == keyed)
        return false;
    renewed = *txn;
    renewed.within = renewed.wait_class = renewed.forecast_walks = 0;
    keyed_convert(txn->ctx, keyed, of, txn_states(txn), txn->version.content[CONTENT_LAST_NS],
                  txn_states(&renewed));
    key_set_set_binding(&renewed, key_set_binding(txn), key_set_phase_of(txn));
    forecast_invalidate(&renewed);
    txn_grant_waiters(&renewed, HEAD_WATCH_NONE);
    if (txn_commit(&renewed) && renewed.grant_again)
        set_grant_waiters(txn->ctx, txn->set);
    set_end_if_faulty(txn->ctx, txn->set);
    return true;
}

void key_set_take_over(struct thread_ctx *ctx, struct key_set *key_set)
{
    struct txn txn;

    do {
        txn_begin(&txn, ctx, &key_set->set);
        if (set_is_broken(txn.set) || key_set_has_moved(&txn) || txn.version.content_n)
            break;
        limits_init(&txn.set->limits, txn_states(&txn), &txn.at); /* zeros may be no valid state */
        key_set_set_binding(&txn, 0, PHASE_UNBOUND);
    } while (!txn_commit(&txn));
    if (waitq_length(&txn.version))
        set_grant_waiters(ctx, &key_set->set);
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

/* Commits the end of the binding, after which no operation is admitted. Returns false if the key
 * set has changed. */
static bool key_set_end_binding(struct txn *txn)
{
    WEIR_INVARIANT(key_set_phase_of(txn) != PHASE_UNBOUND);
    key_set_set_binding(txn, key_set_binding(txn), PHASE_UNBOUND);
    forecast_invalidate(txn);
    return txn_commit(txn);
}

/* Ends the binding that `word` names if it is still to begin. Returns false if the key set has
 * moved. */
static bool key_set_unbind_here(struct key_set *key_set, struct thread_ctx *ctx, uint64_t word)
{
    struct key_entry entry;
    struct txn txn;

    WEIR_INVARIANT(key_word_is_key_set(word));
    do {
        txn_begin(&txn, ctx, &key_set->set);
        if (set_is_broken(&key_set->set) || key_set_has_moved(&txn))
            return set_is_broken(&key_set->set);
        if (key_set_phase_of(&txn) != PHASE_BINDING ||
            key_set_binding(&txn) != key_word_binding(word) || key_set_is_named(&txn, &entry))
            return true;
    } while (!key_set_end_binding(&txn));
    key_set_push_unbound(key_set->keyed, key_set->number);
    return true;
}

/* Ends a binding for which the key's entry could not take the word: by the definition that has the
 * key set by now. No other thread would. */
static void key_set_unbind(struct key_set *key_set, struct thread_ctx *ctx, uint64_t word)
{
    weir_set *set = &key_set->set, *before = NULL;

    while (set != before) {
        struct thread_ctx *own = moved_borrow_ctx(ctx, set);

        before = set;
        if (!key_set_unbind_here(key_set_of(set), own, word))
            set = set_current(set);
        moved_return_ctx(ctx, own);
    }
}

/* Writes the key, and its state by this definition or, for a claim, the initial states. */
static void key_set_fill(struct txn *txn, const struct keyed_slot *slot)
{
    uint64_t *states = txn_states(txn);
    size_t n = txn->set->limits.state_words - KEY_SET_WORDS;

    WEIR_INVARIANT(CONTENT_STATES + txn->set->limits.state_words <= txn->ctx->content_capacity);
    memset(states, 0, n * sizeof(*states));
    if (slot->is_claim) {
        limits_init(&txn->set->limits, states, &txn->at);
    } else if (keyed_slot_is_foreign(slot)) {
        keyed_convert(txn->ctx, slot->keyed, keyed_definition_of(slot->keyed, slot->entry.id),
                      &slot->entry.word, 0, states);
    } else {
        *states = slot->entry.word;
    }
    key_set_words(txn)->key = *slot->key;
    forecast_invalidate(txn);
}

/* Commits the next binding, then lets the key's word name it. Returns 1; 0 if the key set has
 * changed; -ESTALE if the key has: the binding has ended then. */
static int key_set_commit_binding(struct txn *txn, struct keyed_slot *slot)
{
    struct key_set *key_set = key_set_of(txn->set);
    uint64_t binding = key_set_binding(txn) + 1, word = key_set_word(key_set, binding);
    enum key_swap swap;

    WEIR_INVARIANT(key_set_phase_of(txn) == PHASE_UNBOUND);
    key_set_set_binding(txn, binding, PHASE_BINDING);
    key_set_words(txn)->binder = key_set_binder(txn);
    if (!txn_commit(txn))
        return 0;
    swap = keyed_slot_is_foreign(slot) ? key_entry_retag(&slot->keyed->table, &slot->entry, word)
                                       : keyed_slot_swap(slot, word);
    if (swap == KEY_SWAPPED || slot->entry.word == word) /* another thread may have helped */
        return 1;
    key_set_unbind(key_set, txn->ctx, word);
    return -ESTALE;
}

int key_set_begin(struct keyed_slot *slot, struct key_set *key_set)
{
    struct key_entry entry;
    struct txn txn;

    WEIR_INVARIANT(key_set->keyed == slot->keyed);
    txn_begin(&txn, slot->ctx, &key_set->set);
    if (set_is_broken(&key_set->set))
        return -EUCLEAN;
    if (version_flags(&txn.version) & CONTENT_SHUT_DOWN)
        return -ESHUTDOWN;
    if (key_set_has_moved(&txn))
        return -ESTALE;
    if (key_set_phase_of(&txn) != PHASE_UNBOUND || waitq_length(&txn.version) ||
        key_set_is_named(&txn, &entry))
        return 0;
    key_set_fill(&txn, slot);
    return key_set_commit_binding(&txn, slot);
}

/* ---- keys that do without their key sets ---- */

/* Returns whether the wait queue is empty, no reservation is ahead of the clock, and the set is
 * open and not broken. */
static bool key_set_is_quiet(const struct txn *txn)
{
    return !waitq_length(&txn->version) && !(version_flags(&txn->version) & CONTENT_SHUT_DOWN) &&
           txn->at.now_ns == txn->now_ns && !set_is_broken(txn->set);
}

/* Returns whether the state can be the word of a key. */
static bool key_set_fits_word(const struct txn *txn)
{
    return key_set_of(txn->set)->keyed->fits_inline && !key_word_is_key_set(*txn_states(txn));
}

static bool key_set_is_as_new(const struct txn *txn)
{
    uint64_t instant;

    return key_states_use(txn->set, txn_states(txn), &txn->at, &instant) == KEY_AS_NEW;
}

/* Returns whether the key can do without the key set: no waiter or reservation prevents it, and the
 * state fits the key's word or is as good as new. */
static bool key_set_can_unbind(const struct txn *txn)
{
    return key_set_is_quiet(txn) && (key_set_fits_word(txn) || key_set_is_as_new(txn));
}

/* Restores a key after its binding has ended: its word becomes the state, or the key is removed. If
 * the entry changed, another thread did so. Returns false if the state fits no word. */
static bool key_set_restore_entry(const struct txn *txn, struct key_entry *entry)
{
    const struct keyed *keyed = key_set_of(txn->set)->keyed;
    struct segment_keyed *shared_state = keyed->shared_state;

    WEIR_INVARIANT(key_set_phase_of(txn) == PHASE_UNBOUND);
    /* What is as new now, or fits, is so by the next definition as of the change. */
    if (keyed_is_outdated(keyed))
        return false;
    if (key_set_is_as_new(txn)) {
        keyed_note_removal(keyed, txn->at.now_ns);
        if (key_entry_remove(entry))
            atomic_fetch_add_explicit(&shared_state->forgotten, 1, memory_order_relaxed);
        return true;
    }
    if (!key_set_fits_word(txn))
        return false;
    shm_raise_seq_cst(&shared_state->unbound_ns, txn->at.now_ns);
    key_entry_retag(&keyed->table, entry, *txn_states(txn));
    return true;
}

void key_set_unbind_if_idle(struct thread_ctx *ctx, weir_set *set)
{
    struct key_entry entry;
    struct txn txn;

    WEIR_INVARIANT(ctx->w == set->w);
    if (keyed_is_outdated(key_set_of(set)->keyed) || !thread_ctx_is_prepared(ctx, set->number))
        return;
    txn_begin(&txn, ctx, set);
    if (key_set_has_moved(&txn) || key_set_phase_of(&txn) == PHASE_UNBOUND ||
        !key_set_can_unbind(&txn))
        return;
    if (!key_set_is_named(&txn, &entry))
        return;
    if (!key_set_end_binding(&txn)) /* commits here */
        return;
    if (key_set_restore_entry(&txn, &entry))
        key_set_push_unbound(key_set_of(set)->keyed, key_set_of(set)->number);
}

/* ---- keys that make room for others ---- */

/* An unbound key set has no waiters. */
static enum key_use key_set_use_of(const struct txn *txn, uint64_t *ret_instant)
{
    if (key_set_phase_of(txn) != PHASE_UNBOUND && !key_set_is_quiet(txn))
        return KEY_PINNED;
    return key_states_use(txn->set, txn_states(txn), &txn->at, ret_instant);
}

enum key_use key_set_use(struct thread_ctx *ctx, struct keyed *keyed, uint64_t word,
                         uint64_t *ret_instant)
{
    struct key_set storage;
    struct txn txn;

    if (!key_set_read(&txn, ctx, keyed, word, &storage) || keyed_is_outdated(keyed))
        return KEY_PINNED; /* once there is a successor, the time of the version is too late */
    return key_set_use_of(&txn, ret_instant);
}

bool key_set_may_remove(struct thread_ctx *ctx, struct keyed *keyed, uint64_t word,
                        enum key_use use)
{
    struct key_set storage;
    struct txn txn;
    enum key_use now;
    uint64_t instant;

    WEIR_INVARIANT(use != KEY_PINNED);
    if (!key_set_read(&txn, ctx, keyed, word, &storage) || keyed_is_outdated(keyed))
        return false;
    now = key_set_use_of(&txn, &instant);
    if (now == KEY_PINNED || (use == KEY_AS_NEW && now != use))
        return false;
    if (key_set_phase_of(&txn) != PHASE_UNBOUND && !key_set_end_binding(&txn))
        return false;
    if (keyed_is_outdated(keyed))
        return false; /* the next request binds it again */
    keyed_note_removal(keyed, txn.at.now_ns);
    /* The caller replaces the entry at once. */
    key_set_push_unbound(keyed, key_set_of(txn.set)->number);
    return true;
}

/* Returns whether a key set that no key's word names is unbound now. Ends the binding of a binder
 * that has died; any other binder is still at it. */
static bool key_set_reclaim_unnamed(struct txn *txn, bool abandoned)
{
    if (key_set_phase_of(txn) == PHASE_UNBOUND)
        return true;
    return key_set_phase_of(txn) == PHASE_BINDING && abandoned && key_set_end_binding(txn);
}

enum key_use key_set_reclaim(struct thread_ctx *ctx, struct key_set *key_set,
                             struct key_entry *ret_entry, uint64_t *ret_instant)
{
    struct txn txn;
    bool abandoned;

    txn_begin(&txn, ctx, &key_set->set);
    if (set_is_broken(&key_set->set) || key_set_has_moved(&txn))
        return KEY_PINNED;
    abandoned =
        key_set_is_abandoned(&txn); /* then its CAS of the key's word happened or never will */
    key_set_help(&txn);
    if (!key_set_is_named(&txn, ret_entry))
        return key_set_reclaim_unnamed(&txn, abandoned) ? KEY_AS_NEW : KEY_PINNED;
    if (key_set_phase_of(&txn) == PHASE_UNBOUND && key_set_restore_entry(&txn, ret_entry))
        return KEY_AS_NEW;
    if (key_set_phase_of(&txn) == PHASE_UNBOUND || !key_set_can_unbind(&txn))
        return key_set_use_of(&txn, ret_instant);
    /* The last operation did not unbind it. */
    if (key_set_end_binding(&txn) && key_set_restore_entry(&txn, ret_entry))
        return KEY_AS_NEW;
    return KEY_PINNED;
}

/* ---- repair ---- */

bool key_set_repair(struct keyed_slot *slot)
{
    const weir_set *set = slot->keyed->set;
    struct key_set storage;
    struct txn txn;

    WEIR_INVARIANT(keyed_slot_is_bound(slot));
    if (!key_set_read(&txn, slot->ctx, slot->keyed, slot->entry.word, &storage)) {
        if (set_is_shared(set) && keyed_slot_is_same(slot) && !keyed_is_outdated(slot->keyed))
            participant_mark_broken(set->participant); /* no correct process writes this */
    } else if (key_set_phase_of(&txn) == PHASE_UNBOUND &&
               !key_set_restore_entry(&txn, &slot->entry)) {
        key_set_commit_binding(&txn, slot); /* to the key that still names it */
    }
    return !set_is_broken(set);
}
