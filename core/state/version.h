/* SPDX-License-Identifier: MIT */
/*
 * The version engine: atomic changes of a set's state, for threads and processes that may be
 * stopped or killed between any two instructions. It knows nothing of limits or the wait queue.
 * README.md has the protocol, its invariants and its memory order.
 */
#ifndef WEIR_CORE_STATE_VERSION_H
#define WEIR_CORE_STATE_VERSION_H

#include "base/compiler.h"
#include "base/invariant.h"
#include "base/sched_point.h"
#include "shm/region.h"
#include "shm/set_layout.h"
#include <stdatomic.h>
#include <stdbool.h>

/* Back-offs of a reader, for the committing thread to complete its deferred writes, before it
 * helps. */
#define HELP_AFTER 3u

/* A write that takes effect with a version: to field `target & 7` of record `target >> 3`. */
struct deferred_write {
    uint32_t target;
    /* 1: to the committing thread's own record, so a plain store suffices. Not a bool: compilers
     * keep a version with bytes in it in memory, and not in registers. */
    uint32_t is_exclusive;
    uint64_t expected, desired;
};

/* Index of the state in the content that is made from an inline word; the words before are 0. */
#define INLINE_STATE_AT 3u
/* Index of the toggle bits, behind the state. */
#define DCAS_BITS_AT (INLINE_STATE_AT + 1)

/* A private copy of one version, edited into the next one. */
struct version {
    uint64_t state_word; /* state word of the version */
    uint64_t *content;   /* content_capacity words, owned by the thread context */
    uint32_t content_n, content_capacity;
    /* Words from INLINE_STATE_AT that are not read; the commit copies them from block to block.
     * Filled by the caller; 0, unless the set is private. */
    uint32_t uncopied_n;
    enum inline_format inline_format; /* the set's; filled by the caller */
    bool is_mismatch; /* read: the block is of another version, which no correct process commits */
    /* Read: the thread that committed the version may not have notified the waiters yet. */
    bool needs_notify;
    /* To commit: waiters will be notified, and version_set_notified() called after that. */
    bool will_notify;
    uint32_t writes_n;
    struct deferred_write writes[DEFERRED_WRITES_MAX];
};

/* Makes an inflated set. Returns the unit of its head, or 0 if out of memory. The caller holds the
 * instance's lock. */
uint32_t version_new_set(struct region *region, uint32_t block_class, uint32_t number,
                         const uint64_t *content, size_t content_n);

/* Sets that are yet to be made, by the class of their blocks. */
struct promised_sets {
    uint64_t all, by_class[BLOCK_CLASS_MAX + 1];
};

static inline void version_promise(struct promised_sets *promised, uint32_t block_class,
                                   uint64_t more, uint64_t less)
{
    promised->by_class[block_class] += more - less;
    promised->all += more - less;
}

/* Returns whether the region has room for all of them, in any order, and for what threads may need
 * beside. The caller holds the instance's lock. */
bool version_has_room(const struct region *region, const struct promised_sets *promised);

/* Makes a set with this inline word and no block. Returns the unit of its head, or 0 if out of
 * memory. The caller holds the instance's lock. */
uint32_t version_new_inline_set(struct region *region, uint32_t block_class, uint32_t number,
                                uint64_t word);
/* Gives the set a reserve block unless it has one. Returns 0 or -ENOMEM. Only a set with a reserve
 * block may be inflated. The caller holds the instance's lock. */
int version_add_reserve_block(struct region *region, uint32_t set);
/* Makes a thread head without blocks. Returns its unit, or 0 if out of memory. The caller holds the
 * instance's lock. */
uint32_t version_new_thread(struct region *region);
/* Gives the thread context a block of this class unless it has one. Returns 0 or -ENOMEM. The
 * caller holds the instance's lock. */
int version_add_own_block(struct region *region, uint32_t thread, uint32_t block_class);

/* Stores the set that the thread works on, before it reads the set. Recovery of a dead thread
 * starts there. The load is relaxed: only this thread stores the field. */
static inline void version_set_active(const struct region *region, uint32_t thread, uint32_t set)
{
    struct thread_head *head = region_block(region, thread);

    WEIR_INVARIANT(thread != 0 && set != 0);
    if (atomic_load_explicit(&head->active_set, memory_order_relaxed) != set)
        shm_store_release(&head->active_set, set);
}

/* Copies the current version into `version`, or the state of a word that is inline. Its deferred
 * writes are complete on return. version->content must have room for a full block. Lock-free: it
 * retries only if another thread committed. */
void version_read(const struct region *region, uint32_t set, struct version *version);

/* Fills `version` from a word that is inline, which has no deferred writes. */
void version_from_inline(struct version *version, uint64_t word);

/* Returns the state word, with acquire order. */
static inline uint64_t version_peek_word(const struct region *region, uint32_t set)
{
    const struct set_head *head = region_block(region, set);

    return atomic_load_explicit(&head->state_word, memory_order_acquire);
}

/* Returns word `i` of the current block's content, or 0 if the set is inline. The block may be
 * rewritten meanwhile, so the value is a hint. */
uint64_t version_peek_content(const struct region *region, uint32_t set, uint32_t i);

/* Prefetches the state word for a write. */
static inline void version_prefetch(const struct region *region, uint32_t set)
{
    prefetch_write(region_block(region, set));
}

/* Stores a hint which record heads the wait queue, for a thread that prefetches it. Relaxed:
 * nothing relies on it. */
static inline void version_hint_head(const struct region *region, uint32_t set, uint32_t record)
{
    struct set_head *head = region_block(region, set);

    atomic_store_explicit(&head->recent_head, record, memory_order_relaxed);
}

/* Returns the reserve block; 0: the set has none yet. */
static inline uint64_t version_reserve_block(const struct region *region, uint32_t set)
{
    const struct set_head *head = region_block(region, set);

    return atomic_load_explicit(&head->reserve_block, memory_order_acquire);
}

static inline bool version_is_inflated(const struct version *version)
{
    return (version->state_word & INFLATED_BIT) != 0;
}

/* Swaps the state word of a complete version with an empty wait queue for the inline `word`.
 * Returns false if the set has changed. */
bool version_deflate(const struct region *region, uint32_t set, const struct version *version,
                     uint64_t word);

/* Returns whether the version is still current. If so, all that was read since version_read() is of
 * it. */
bool version_is_current(const struct region *region, uint32_t set, const struct version *version);

/*
 * Commits version->content and version->writes as the successor of version->state_word. Returns
 * true if it took effect: then the deferred writes are complete, and version->state_word is the new
 * word. Returns false if another thread committed first: nothing happened, and the caller reads
 * again.
 */
bool version_commit(const struct region *region, uint32_t thread, uint32_t set,
                    struct version *version);

/* Copies the deferred writes of a version, to repeat the notifications of a thread that was stopped
 * or died after its commit. Returns their number, at most DEFERRED_WRITES_MAX; 0 if the version is
 * not current any more. Several threads may notify; each then calls version_set_notified(). */
uint32_t version_deferred_writes(const struct region *region, uint32_t set,
                                 const struct version *version, struct deferred_write *ret);
void version_set_notified(const struct region *region, uint32_t set, const struct version *version);

/* Completes the deferred writes of the set's current version. */
void version_help(const struct region *region, uint32_t set);

/* Swaps the state word. Of an inline set, that is a whole commit. */
static inline bool version_cas_word(const struct region *region, uint32_t set, uint64_t expected,
                                    uint64_t desired)
{
    struct set_head *head = region_block(region, set);

    /* Sequentially consistent: in one order with the store that closes an instance. */
    return shm_cas_seq_cst(&head->state_word, expected, desired);
}

#endif
