/* SPDX-License-Identifier: MIT */
/*
 * Key sets: full sets that hold the state of keys for which one word is not enough.
 *
 * A key set is made once and then bound to one key after another. The word of the key names the key
 * set and the binding: 1 | number:24 | binding:39. Behind its states, each version of a key set has
 * its key, binding, phase and binder (the thread that bound it). Binding numbers grow by one and
 * repeat only after 2^39 bindings of one key set. So an operation either takes effect on the state
 * of the intended key, or fails.
 *
 *   PHASE_UNBOUND  bound to no key. If a key's word still names this binding, the states are those
 *                  of that key. The first thread that meets the word restores it: the word
 *                  becomes the state, the key is removed, or the key set is rebound to the key.
 *   PHASE_BINDING  filled for a key; the key's word may or may not name it yet
 *   PHASE_BOUND    used by an operation that came through the key's word
 *
 * Transitions, each by versions and one compare-and-swap of the key's entry:
 *
 *   bind     an unbound key set that its last key's word does not name. (1) Commit a version with
 *            the next binding, BINDING. (2) CAS the key's word to name it. If (2) fails: (3) commit
 *            a version that says UNBOUND.
 *   admit    (1) Read the key's word. (2) Read the version. If it has this binding and is not
 *            UNBOUND, its states are the key's until the commit, which sets BOUND.
 *   unbind   a key set with an empty wait queue. (1) Commit UNBOUND: no operation is admitted any
 *            more. (2) The word becomes the state, or the key is removed; any thread may do this.
 *   rebind   an unbound key set that is still named but does not fit a word. (1) Commit the next
 *            binding, BINDING. (2) CAS the key's word from the old binding to the new one; any
 *            thread does this if the first one was stopped.
 *   evict    Commit UNBOUND before the key's entry is replaced. So no entry disappears while its
 *            key set still admits operations.
 *
 * An acquisition that holds units does not prevent unbinding: its release goes to wherever the
 * key's word points at that time. A waiter does prevent it.
 *
 * No operation waits for another. Any thread can finish what a dead thread left undone. Only a key
 * set that a dead binder left BINDING and unnamed waits for key_set_reclaim(). The stack of unbound
 * key sets is only a hint where to look first.
 */
#ifndef WEIR_CORE_KEYED_KEY_SET_H
#define WEIR_CORE_KEYED_KEY_SET_H

#include "keyed/keyed.h"
#include "set/txn.h"

#define KEY_SET_BIT         (UINT64_C(1) << 63)
#define BINDING_BITS        39
#define BINDING_MASK        ((UINT64_C(1) << BINDING_BITS) - 1)
#define KEY_SET_NUMBER_BITS 24
#define KEY_SETS_MAX        (UINT32_C(1) << KEY_SET_NUMBER_BITS)

struct key_set {
    weir_set set; /* first: see key_set_of(); settings are the template set's */
    struct keyed *keyed;
    uint32_t number;
    _Atomic uint32_t unbound_next,
        unbound_listed; /* of a private key set: as in struct segment_key_set */
};

/* Returns the key set of a set for which set_is_key_set() is true. */
static inline struct key_set *key_set_of(weir_set *set)
{
    return (struct key_set *)set;
}

/* Returns the template set of a key set; any other set itself. */
static inline weir_set *key_set_template(weir_set *set)
{
    return set_is_key_set(set) ? key_set_of(set)->keyed->set : set;
}

/* Returns the approximate memory of one key set, in bytes. */
size_t key_set_size(const weir_set *set);

/* Marks a record, and its proxy record in this process, as belonging to `set`: a key set or its
 * template set. `thread` is the kernel id stored with it. */
void key_set_mark_record(const weir_set *set, uint32_t record, uint32_t thread);
/* Returns the set that a record of `template` names: the template set or one of its key sets.
 * `storage`: see key_set_at(). */
weir_set *key_set_of_record(weir_set *template, const struct acq_record *r,
                            struct key_set *storage);

/* Returns whether a key's word names a key set. */
static inline bool key_word_is_key_set(uint64_t word)
{
    return (word & KEY_SET_BIT) != 0;
}

/* Returns the binding that the word names. */
static inline uint64_t key_word_binding(uint64_t word)
{
    return word & BINDING_MASK;
}

/*
 * Returns the key set that a key's word names. If this process has not met it yet and `storage` is
 * not NULL, `*storage` is initialized and returned; it is valid for one operation. Returns NULL if
 * the word names no key set (in a segment, damage) or, without `storage`, if memory is short.
 */
struct key_set *key_set_at(struct keyed *keyed, uint64_t word, struct key_set *storage);

/*
 * Binds a key set to a key, with these states (NULL: initial states). `ret_word` is the word that
 * the caller must swap into the key's entry. Returns 0; -EINPROGRESS (lost a race, look the key up
 * again); -ENOBUFS (no room for another key set, and none can be reclaimed); -ENOMEM; -ESHUTDOWN;
 * -EUCLEAN; or, in a segment, the error of the system.
 */
int key_set_bind(struct keyed *keyed, struct thread_ctx *ctx, const struct key_digest *key,
                 const uint64_t *states, struct key_set **ret, uint64_t *ret_word);

/* Unbinds a key set again if the caller failed to swap `word` into the key's entry. */
void key_set_unbind(struct key_set *key_set, struct thread_ctx *ctx, uint64_t word);

/*
 * Acquires from a private key set if the wait queue is empty and the amounts are available now. The
 * version must have the binding ctx->binding. Returns 0, or -EINPROGRESS with nothing changed: use
 * set_acquire_inflated().
 */
int key_set_try_take(struct thread_ctx *ctx, struct key_set *key_set, const uint64_t *amounts,
                     uint32_t record, struct decision *ret);
/*
 * Returns units of plain resources to a private key set. The record, if any, is FREE already. The
 * version must have the binding ctx->binding. Returns 1, or -EINPROGRESS with nothing changed: use
 * set_release_key_set().
 */
int key_set_release_now(struct thread_ctx *ctx, struct key_set *key_set, const uint64_t *amounts);

/*
 * Repairs the disagreement of an entry and its key set by finishing another thread's work.
 * Returns -EINPROGRESS (look the key up again) or -EUCLEAN (impossible content; the set is broken).
 */
int key_set_repair(struct thread_ctx *ctx, struct keyed *keyed, const struct key_digest *key,
                   struct key_entry *entry);

/* Forecasts with set_forecast() on the key set. Returns false if it no longer has the binding that
 * `word` names. */
bool key_set_forecast(struct thread_ctx *ctx, struct key_set *key_set, uint64_t word,
                      const uint64_t *amounts, enum forecast_walk forecast_walk,
                      struct decision *ret);

/* Unbinds the key set from its key if the state fits the key's word or is as good as new. A waiter
 * or a reservation prevents that. */
void key_set_unbind_if_idle(struct thread_ctx *ctx, struct key_set *key_set);

/* Returns whether limits with these states decide like new ones, now and later. */
bool key_states_are_new(const struct limits *limits, const uint64_t *states,
                        const struct weir_instant *at);

/* Classifies a key with these states for a key policy. `*ret_instant` is the instant at which all
 * limits will have recovered, for KEY_EVICTABLE. A resource with held units pins the key. */
enum key_use key_states_use(const struct limits *limits, const uint64_t *states,
                            const struct weir_instant *at, uint64_t *ret_instant);
/* Classifies a key that is bound to a key set. Waiters pin the key. */
enum key_use key_set_use(struct thread_ctx *ctx, struct keyed *keyed, uint64_t word,
                         uint64_t *ret_instant);
/* Unbinds the key set of a key that a claim is about to replace, if `use` still permits that. After
 * true no operation is admitted any more, and the caller replaces the entry at once. */
bool key_set_may_remove(struct thread_ctx *ctx, struct keyed *keyed, uint64_t word,
                        enum key_use use);

/* Words of a key set's version, behind the states. */
enum { KEY_SET_WORD_PLACE, KEY_SET_WORD_ID, KEY_SET_WORD_BINDING, KEY_SET_WORD_BINDER };

/* Returns the number of key sets made so far. */
uint32_t key_sets_n(const struct keyed *keyed);
/* Returns the key set of this number. `storage`: see key_set_at(); without it the instance's lock
 * is taken if this process has not met the key set. */
struct key_set *key_set_by_number(struct keyed *keyed, uint32_t number, struct key_set *storage);

void key_sets_free(struct keyed *keyed);

#endif
