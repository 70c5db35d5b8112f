/* SPDX-License-Identifier: MIT */
/*
 * Publication: how a set's state changes, atomically, for threads and processes that may be stopped
 * or killed between any two instructions. Nothing here knows what a limit or a line is.
 *
 * A set has one word. The word names a box and the version in it: 1 | version:41 | slot:22. A box
 * holds the whole state of the set as of one version (the content), and the effects: up to four
 * words elsewhere (in records) that change together with the state, each as {place, old, new}. To
 * change a set, an actor (a thread)
 *
 *   1. copies the content of the current box, and reads the word again: if it moved, starts anew;
 *   2. if the effects of that version are not known to be complete, completes them (help);
 *   3. computes the next content and its effects in private;
 *   4. writes them into a box of its own, with that box's next version;
 *   5. compares-and-swaps the word from the version it read to its own: the only commit point;
 *   6. completes the effects, and receives the replaced box as its own for the next time.
 *
 * Invariants, each of which the tests check:
 *   - A version whose effects are incomplete is never superseded (2 comes before 5).
 *   - A pair of slot and version never comes back, so the compare-and-swap has no ABA.
 *   - Every `old` of an effect is unique in the life of its place (it carries a sequence number, or
 *     is a marker with one), so helping is idempotent and indifferent to delay: of all helpers,
 *     however late, exactly one compare-and-swap succeeds.
 *   - There are exactly as many boxes of a class as sets and actors use; each is the current box of
 *     one set or the own box of one actor. A box is written only by the actor that owns it.
 *
 * `done` may be set back by a helper that comes late, to an older version of the same box: then
 * others help again and find nothing to do.
 *
 * Checked by tests/crash: death, stop and hand-over at every step, and a model of all this
 * (publication.pml) that was searched exhaustively: two workers, a death and a rescuer, 7.3 million
 * states; three workers, 19.8 million. docs/publication.md has the decision and the weak points.
 *
 * All this is for sets of several limits, and for sets with a line. A set whose state is one word
 * keeps it in its own word while nobody is in line, bit 63 being 0 then: inline_state.h has what is done
 * there, by one compare-and-swap each. Both are one word, so nobody has to be told of a change:
 *
 *   boxing    is an ordinary version, whose `replaced` is such a word. There is no replaced box to
 *             receive; its publisher receives the set's spare one instead, which whoever completes
 *             the version reads after the commit and before he looks whether it is still current:
 *             until it is complete nobody changes `spare`.
 *   unboxing  of a complete version without a line: the box becomes the spare one, by a
 *             compare-and-swap from a value that was read before another look at the word; then the
 *             word is changed. Who comes late with the first finds `spare` changed; and if it was
 *             done in vain, the set still has its box and the next who unboxes does it again.
 */
#ifndef WEIR_CORE_STATE_VERSION_H
#define WEIR_CORE_STATE_VERSION_H

#include "base/backoff.h"
#include "base/prefetch.h"
#include "base/sched_point.h"
#include "shm/region.h"
#include "shm/set_layout.h"
#include <stdatomic.h>
#include <stdbool.h>

/* How often a reader waits for the publisher to complete its effects before it helps. */
#define HELP_AFTER 3u

/* A word that changes with a version: word `place & 7` of record `place >> 3`. */
struct deferred_write {
    uint32_t target;
    bool
        is_exclusive; /* of the publisher's own record, which is nobody else's business meanwhile */
    uint64_t expected, desired;
};

/* Where the state is in the content of a version that was read from such a word; 0 is before it. */
#define INLINE_STATE_AT 3u
/* And the bits of a ledger's word: behind it. */
#define DCAS_BITS_AT (INLINE_STATE_AT + 1)

/* A private copy of one version, and what the next one is to be. */
struct version {
    uint64_t state_word; /* the set's word when it was read */
    uint64_t *content;   /* memory of the actor's, content_capacity words */
    uint32_t content_n, content_capacity;
    enum inline_format inline_format; /* the set's; set by the caller */
    bool is_mismatch;  /* read: the box is of another version, which nobody publishes */
    bool needs_notify; /* read: whoever published it may not have woken yet whom it concerns */
    bool
        will_notify; /* to be published: somebody is to be woken; version_set_notified() says when */
    uint32_t writes_n;
    struct deferred_write writes[DEFERRED_WRITES_MAX];
};

/* Makes a set with this first content. Returns the unit of its head, or 0 when out of memory. The
 * caller holds the instance's lock. */
uint32_t version_new_set(struct region *region, uint32_t block_class, uint32_t number,
                         const uint64_t *content, size_t content_n);
/* The same with this state in its word, and no box. */
uint32_t version_new_inline_set(struct region *region, uint32_t block_class, uint32_t number,
                                uint64_t word);
/* The set gets a spare box unless it has one: 0 or -ENOMEM. As above. Only with one may a version be
 * published over a word that is not boxed. */
int version_add_reserve_block(struct region *region, uint32_t set);
/* Makes an actor, without boxes. Returns the unit of its head, or 0. As above. */
uint32_t version_new_thread(struct region *region);
/* Gives the actor a box of this class, once. Returns 0 or -ENOMEM. As above. */
int version_add_own_block(struct region *region, uint32_t thread, uint32_t block_class);

/* Says which set the actor works on, before it reads: whoever recovers a dead actor starts there.
 */
static inline void version_set_active(const struct region *region, uint32_t thread, uint32_t set)
{
    struct thread_head *head = region_block(region, thread);

    if (atomic_load_explicit(&head->active_set, memory_order_relaxed) != set)
        atomic_store_explicit(&head->active_set, set, memory_order_release);
    SCHED_POINT();
}

/*
 * Copies the current version; its effects are complete on return. version->content must have room
 * for a full box. Lock-free: it starts anew only if somebody else committed.
 */
void version_read(const struct region *region, uint32_t set, struct version *version);

/* The same for a word that is not boxed, which owes nothing. */
void version_from_inline(struct version *version, uint64_t word);

/* The set's word as it is. */
static inline uint64_t version_peek_word(const struct region *region, uint32_t set)
{
    const struct set_head *head = region_block(region, set);

    return atomic_load_explicit(&head->state_word, memory_order_acquire);
}

/* A word of what the set's box holds, which may be another's by then; 0 if it is not boxed. */
uint64_t version_peek_content(const struct region *region, uint32_t set, uint32_t i);

/* Says that the set's word is about to be changed. */
static inline void version_prefetch(const struct region *region, uint32_t set)
{
    prefetch_write(region_block(region, set));
}

/* Who heads its line: no more than a guess, for whoever asks for the record early. */
static inline void version_hint_head(const struct region *region, uint32_t set, uint32_t record)
{
    struct set_head *head = region_block(region, set);

    atomic_store_explicit(&head->recent_head, record, memory_order_relaxed);
}

/* The box that it has while it needs none; 0: none yet. */
static inline uint64_t version_reserve_block(const struct region *region, uint32_t set)
{
    const struct set_head *head = region_block(region, set);

    return atomic_load_explicit(&head->reserve_block, memory_order_acquire);
}

static inline bool version_is_inflated(const struct version *version)
{
    return (version->state_word & INFLATED_BIT) != 0;
}

/* Changes the word of a set from that of a complete version without a line to `word`, which is not
 * boxed. False: the set has changed. */
bool version_deflate(const struct region *region, uint32_t set, const struct version *version,
                     uint64_t word);

/* Whether the set's word is still the one that was read: whatever was read in between is of it. */
bool version_is_current(const struct region *region, uint32_t set, const struct version *version);

/*
 * Publishes version->content and version->effects as the successor of version->word. On success
 * the effects are complete, version->word is the new word, and true comes back. False: somebody
 * else committed first and nothing happened; read again.
 */
bool version_commit(const struct region *region, uint32_t thread, uint32_t set,
                    struct version *version);

/*
 * Somebody who is stopped, or dies, between publishing and waking leaves a version untold. Whoever
 * reads it then can do the waking from its effects: at most DEFERRED_WRITES_MAX of them into `ret`, 0 if it
 * is not current any more. After the waking: version_set_notified(). Several may do both.
 */
uint32_t version_deferred_writes(const struct region *region, uint32_t set,
                                 const struct version *version, struct deferred_write *ret);
void version_set_notified(const struct region *region, uint32_t set, const struct version *version);

/* Completes the effects of the set's current version, whoever published it. */
void version_help(const struct region *region, uint32_t set);

/* Changes the set's word if it is still `before`: for what is not boxed, that is all. */
static inline bool version_cas_word(const struct region *region, uint32_t set, uint64_t expected,
                                    uint64_t desired)
{
    struct set_head *head = region_block(region, set);

    /* In one order with what says that the instance is closed: see set_acquire(). */
    return atomic_compare_exchange_strong(&head->state_word, &expected, desired);
}

#endif
