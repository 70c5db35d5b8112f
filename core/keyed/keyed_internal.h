/* SPDX-License-Identifier: MIT */
/* Shared parts of this folder: slots of keys, key sets and their bindings. */
#ifndef WEIR_CORE_KEYED_KEYED_INTERNAL_H
#define WEIR_CORE_KEYED_KEYED_INTERNAL_H

#include "base/invariant.h"
#include "keyed/keyed.h"

/* ---- keyed_slot.c ---- */

/* A key on behalf of a thread, and where its state is: the key's entry in the table, or a claim for
 * a new key. */
struct keyed_slot {
    struct keyed *keyed;
    struct thread_ctx *ctx;
    const struct key_digest *key;
    struct key_entry entry;
    bool is_claim;
};

/* Finds the key. Returns false if it is not in the table. */
static inline bool keyed_slot_find(struct keyed_slot *slot)
{
    slot->is_claim = false;
    return key_table_find(&slot->keyed->table, slot->key, &slot->entry);
}

/* Finds the key if its word is of this definition; keyed_slot_claim() finds it in any case. */
static inline bool keyed_slot_find_own(struct keyed_slot *slot)
{
    slot->is_claim = false;
    return key_table_find_own(&slot->keyed->table, slot->key, &slot->entry);
}

/* Returns whether the key still has the word that was found. */
static inline bool keyed_slot_is_same(const struct keyed_slot *slot)
{
    struct key_entry now;

    return key_table_find(&slot->keyed->table, slot->key, &now) && now.word == slot->entry.word &&
           now.id == slot->entry.id;
}

/* Claims a slot for a key that was not found; or finds it. Returns false if there is no room for
 * the key. If the slot is a claim, raises the instant to that of each removal of the key. */
bool keyed_slot_claim(struct keyed_slot *slot, struct weir_instant *at);

/* Notes that a key is about to be removed that is as new, or may be evicted, at this instant; for
 * claims that do not read the clock again, as they do by another one or with the wall clock. */
void keyed_note_removal(const struct keyed *keyed, uint64_t now_ns);

/* Raises an instant to one that another thread has read from the clock, and noted. */
static inline void keyed_reach(const _Atomic uint64_t *noted_ns, struct weir_instant *at)
{
    uint64_t ns = atomic_load_explicit(noted_ns, memory_order_acquire);

    if (at->now_ns < ns && ns <= WEIR_CLOCK_MAX)
        at->now_ns = ns;
}

/* Returns whether the key is bound to a key set. */
static inline bool keyed_slot_is_bound(const struct keyed_slot *slot)
{
    return !slot->is_claim && key_word_is_key_set(slot->entry.word);
}

/* Returns the state in the word of a key that is not bound; of a new key as of `at`. */
static inline uint64_t keyed_slot_state(const struct keyed_slot *slot,
                                        const struct weir_instant *at)
{
    uint64_t state = slot->is_claim ? 0 : slot->entry.word;

    WEIR_INVARIANT(!keyed_slot_is_bound(slot));
    if (slot->is_claim)
        limits_init(&slot->keyed->set->limits, &state, at);
    return state;
}

/* Returns whether the key's word is of another definition. */
static inline bool keyed_slot_is_foreign(const struct keyed_slot *slot)
{
    const struct key_table *table = &slot->keyed->table;

    return !slot->is_claim && (slot->entry.id & table->tag_mask) != table->tag;
}

/* Replaces the key's word, which is of this definition, as key_entry_swap() does. A claim becomes
 * the key's entry. */
static inline enum key_swap keyed_slot_swap(struct keyed_slot *slot, uint64_t word)
{
    if (!slot->is_claim)
        return key_entry_swap(&slot->entry, word);
    slot->is_claim = !key_claim_commit(&slot->entry, word);
    return slot->is_claim ? KEY_GONE : KEY_SWAPPED;
}

/* Withdraws the slot if it is a claim. */
static inline void keyed_slot_drop(const struct keyed_slot *slot)
{
    if (slot->is_claim)
        key_claim_drop(&slot->entry);
}

/* Returns whether a key's word in a shared set is a valid state, and this process still has its
 * slot. False: the set is broken. */
bool keyed_check_word(const struct keyed *keyed, uint64_t word);

static inline bool keyed_is_valid(const struct keyed *keyed, uint64_t word)
{
    return !set_is_shared(keyed->set) || keyed_check_word(keyed, word);
}

/* Returns the key of a record, which keyed_fill_record() wrote. */
static inline struct key_digest keyed_record_key(const weir_set *set, uint32_t record)
{
    const struct acq_record *r = record_at(set->region, record);
    uint32_t n = set_amounts_n(set);

    WEIR_INVARIANT(set->is_keyed && record);
    return (struct key_digest){record_load(&r->amounts[n]), record_load(&r->amounts[n + 1])};
}

/* Returns whether an algorithm broke its contract: also as keys were looked through for room. Ends
 * the set the first time. */
static inline bool keyed_is_faulty(struct thread_ctx *ctx, weir_set *set)
{
    if (set_is_faulty(set) && !limits_fault_is_reported(&set->limits))
        set_end_faulty(ctx, set);
    return set_is_faulty(set);
}

/* Classifies a key with these states. KEY_AS_NEW: all limits decide like new ones, now and later.
 * `*ret_instant` is the instant at which all of them will have recovered, for KEY_EVICTABLE. A
 * resource with held units pins the key. `set` is the keyed set, or a key set of it. */
enum key_use key_states_use(const weir_set *set, const uint64_t *states,
                            const struct weir_instant *at, uint64_t *ret_instant);

/* ---- keyed_moved.c ---- */

/* Returns whether a later definition has taken over; of a shared set also one that this process has
 * not met yet. Asked after the clock was read, no decision by this definition is of an instant
 * after the change. */
static inline bool keyed_is_outdated(const struct keyed *keyed)
{
    return set_successor(keyed->set) || (keyed->segment && set_is_moved(keyed->set));
}

/* Returns the definition of this many changes before, or NULL if this process knows none. */
const struct keyed *keyed_before(const struct keyed *keyed, uint32_t changes);
/* Returns the definition by which a word of the table is to be read: of this one or an earlier one.
 * NULL: it is of a later one, or in a segment of none that there is. */
const struct keyed *keyed_definition_of(const struct keyed *keyed, uint64_t id);
/* Returns whether a word of a segment that is of no definition up to this one may be of a later
 * one. False: the set is broken. */
bool keyed_may_be_later(const struct keyed *keyed);

/* Gives the template of a shared set its state, which tells processes that attach that this is the
 * definition. */
void keyed_open_template(struct thread_ctx *ctx, struct keyed *keyed);

/* Makes states by definition `to` of those by `from`, the last instant of which was `last_ns`.
 * Returns whether the key decides like a new one now: then the states are those of a new one. */
bool keyed_convert(const struct thread_ctx *ctx, const struct keyed *to, const struct keyed *from,
                   const uint64_t *states, uint64_t last_ns, uint64_t *ret);

/* Gives the waiters of a key set of an earlier definition this one, if memory permits. */
void keyed_take_over_waiters(struct thread_ctx *ctx, struct keyed *keyed, uint32_t number);

/* Gives a key of an earlier definition the one of the slot. Returns 1 or -ESTALE: find the key
 * again; or as key_set_bind() does: then the key has its definition still. */
int keyed_slot_renew(struct keyed_slot *slot);

/* ---- key_set.c ---- */

void key_sets_free(struct keyed_store *store);

/* Binds a key set to the key of a slot as key_set_begin() does. Returns 1; -ESTALE if another
 * thread was faster: find the key again; -ENOBUFS (no room for another key set, and no key gives up
 * its own); -ENOMEM; -ESHUTDOWN; -EUCLEAN; or, in a segment, the error of the system. After an
 * error the claim is withdrawn. */
int key_set_bind(struct keyed_slot *slot);

/* Pushes a key set onto the stack of unbound ones, unless it is listed already. */
void key_set_push_unbound(struct keyed *keyed, uint32_t number);

/* ---- key_set_binding.c: the steps of the protocol ---- */

/* Gives a shared key set its definition, also if it was never used: then no process binds it by an
 * earlier one. Grants to its waiters. */
void key_set_take_over(struct thread_ctx *ctx, struct key_set *key_set);

/* Binds the key set to the key of a slot: to its state, or for a claim to the initial states. Then
 * the key's word names it. Returns 1; 0 (the key set is not available); -ESTALE (the slot is not);
 * -ESHUTDOWN; or -EUCLEAN. */
int key_set_begin(struct keyed_slot *slot, struct key_set *key_set);

/* Unbinds the key set if its key loses nothing. Returns KEY_AS_NEW if it is unbound now. Otherwise
 * returns what key_set_use() does, and its key's entry. */
enum key_use key_set_reclaim(struct thread_ctx *ctx, struct key_set *key_set,
                             struct key_entry *ret_entry, uint64_t *ret_instant);

/* Classifies a key that is bound to a key set. Waiters pin the key. */
enum key_use key_set_use(struct thread_ctx *ctx, struct keyed *keyed, uint64_t word,
                         uint64_t *ret_instant);
/* Unbinds the key set of a key that a claim is about to replace, if `use` still permits that. After
 * true no operation is admitted any more, and the caller replaces the entry at once. */
bool key_set_may_remove(struct thread_ctx *ctx, struct keyed *keyed, uint64_t word,
                        enum key_use use);

/* Repairs the disagreement of an entry and its key set by finishing another thread's work; the
 * caller finds the key again. Returns false if the set is broken: the content was impossible. */
bool key_set_repair(struct keyed_slot *slot);

#endif
