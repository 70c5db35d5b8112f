/* SPDX-License-Identifier: MIT */
/* The steps of version_read() and version_commit(), inlined there and into the hot paths. */
#ifndef WEIR_CORE_STATE_VERSION_OPS_H
#define WEIR_CORE_STATE_VERSION_OPS_H

#include "base/invariant.h"
#include "base/sched_point.h"
#include "shm/acq_record.h"
#include "shm/region.h"
#include "state/version.h"

/*
 * Addresses of version blocks. If `shared`, other processes may have written any slot or unit, so
 * it is checked against bounds that this process computed. In private memory it is not.
 */

/* Returns the set's block class. In a segment it is the region's own, not that of the shared
 * head. */
WEIR_ALWAYS_INLINE uint32_t block_class_of(bool shared, const struct region *region,
                                           const struct set_head *set)
{
    return shared && region->segment ? region->block_class : set->block_class;
}

/* Returns the block that a state word or block reference refers to. A slot out of bounds marks the
 * region broken, and yields fallback memory. */
WEIR_ALWAYS_INLINE struct version_block *block_at(bool shared, const struct region *region,
                                                  uint32_t block_class, uint64_t word)
{
    uint64_t slot = state_word_slot(word);

    if (shared && slot - region->slot_first >= region->slots_n)
        return region_mark_broken(region);
    return (struct version_block *)(void *)(region->blocks.base + (slot << block_class));
}

/* Returns the reference to the thread's own block of this class. In a segment an invalid unit marks
 * the region broken, and yields fallback memory. */
WEIR_ALWAYS_INLINE _Atomic uint64_t *block_own_ref(bool shared, const struct region *region,
                                                   uint32_t ctx, uint32_t block_class)
{
    struct thread_head *head = region_block(region, ctx);

    WEIR_INVARIANT(block_class >= BLOCK_CLASS_MIN && block_class <= BLOCK_CLASS_MAX);
    if (shared && region->segment && !region_has_thread_unit(region, ctx))
        return region_mark_broken(region);
    return &head->own_blocks[block_class - BLOCK_CLASS_MIN];
}

static inline struct set_head *set_head_at(const struct region *region, uint32_t set)
{
    return region_block(region, set);
}

/* By value: if no address in a version is needed, the version can be in registers. */
WEIR_ALWAYS_INLINE void version_apply_write(bool shared, const struct region *region,
                                            struct deferred_write write)
{
    uint32_t record = write.target >> 3;
    struct acq_record *r = shared ? record_at(region, record) : record_known(region, record);
    _Atomic uint64_t *at = &r->word + (write.target & 7);

    WEIR_INVARIANT(region->segment || (record && (write.target & 7) <= RECORD_FIELD_OWNER));
    if (write.is_exclusive)
        shm_store_release(at, write.desired);
    else
        shm_cas_acq_rel(at, write.expected, write.desired);
}

/* Copies words `i` to `end` of the content. */
WEIR_ALWAYS_INLINE void version_copy_words(const struct version_block *block, uint64_t *content,
                                           uint32_t i, uint32_t end)
{
    for (; i < end; i++) {
        content[i] = shm_load_relaxed(&block->content[i]);
    }
}

WEIR_ALWAYS_INLINE void version_copy_content(const struct version_block *block,
                                             struct version *version)
{
    uint32_t n = block_content_n(shm_load_relaxed(&block->meta));

    if (n > version->content_capacity)
        n = version->content_capacity; /* torn: the caller drops the copy */
    version_copy_words(block, version->content, 0, INLINE_STATE_AT);
    version_copy_words(block, version->content, INLINE_STATE_AT + version->uncopied_n, n);
    version->content_n = n;
}

/* Results of one attempt to read a version. */
enum read_result {
    READ_COMPLETE,
    READ_INLINE,    /* the state word is inline */
    READ_STALE,     /* another thread committed meanwhile */
    READ_INCOMPLETE /* its deferred writes are not complete */
};

/* Checks a block of a segment: whether it is of the version that the state word refers to, and
 * whether that version's waiters have been notified. */
WEIR_ALWAYS_INLINE void version_check_block(const struct version_block *block,
                                            struct version *version)
{
    uint64_t word = version->state_word;

    version->is_mismatch =
        (INFLATED_BIT | block_ref_make(state_word_slot(word), shm_load_relaxed(&block->version))) !=
        word;
    version->needs_notify = shm_load_relaxed(&block->notified) != state_word_version(word);
}

WEIR_ALWAYS_INLINE enum read_result version_read_once(bool shared, const struct region *region,
                                                      const struct set_head *set,
                                                      struct version *version)
{
    uint64_t word = version->state_word = shm_load_acquire(&set->state_word), done;
    const struct version_block *block;

    if (!(word & INFLATED_BIT))
        return READ_INLINE;
    block = block_at(shared, region, block_class_of(shared, region, set), word);
    done = shm_load_acquire(&block->completed);
    version->is_mismatch = version->needs_notify = false;
    if (shared && region->segment)
        version_check_block(block, version);
    version_copy_content(block, version);
    atomic_thread_fence(memory_order_acquire);
    if (shm_load_relaxed(&set->state_word) != word)
        return READ_STALE;
    if (done != state_word_version(word))
        return READ_INCOMPLETE;
    return READ_COMPLETE;
}

/* Completes the deferred writes of the version that `word` refers to (version_ops.c). */
void version_help_word(const struct region *region, struct set_head *set, uint64_t word);

/* Writes the deferred writes; two of them share a word of targets. */
WEIR_ALWAYS_INLINE void version_put_writes(struct version_block *block,
                                           const struct version *version)
{
    uint64_t targets = 0;

    for (uint32_t i = 0; i < version->writes_n; i++) {
        shm_store_relaxed(&block->writes[i][0], version->writes[i].expected);
        shm_store_relaxed(&block->writes[i][1], version->writes[i].desired);
        targets =
            i % 2 ? targets | (uint64_t)version->writes[i].target << 32 : version->writes[i].target;
        shm_store_relaxed(&block->targets[i / 2], targets);
    }
}

WEIR_ALWAYS_INLINE void version_put_words(struct version_block *block, const uint64_t *content,
                                          uint32_t i, uint32_t end)
{
    for (; i < end; i++) {
        shm_store_relaxed(&block->content[i], content[i]);
    }
}

/* Writes the content. Words that were not copied are loaded from the block `read`: it is still
 * current if the commit succeeds. */
WEIR_ALWAYS_INLINE void version_put_content(struct version_block *block,
                                            const struct version_block *read,
                                            const struct version *version)
{
    uint32_t rest = INLINE_STATE_AT + version->uncopied_n;

    version_put_words(block, version->content, 0, INLINE_STATE_AT);
    for (uint32_t i = INLINE_STATE_AT; i < rest; i++) {
        shm_store_relaxed(&block->content[i], shm_load_relaxed(&read->content[i]));
    }
    version_put_words(block, version->content, rest, version->content_n);
}

/* Writes `version` into the thread's own block as the version that `word` refers to. `read`
 * has the words that were not copied. Only readers of a segment ask for `version` and `notified`.
 */
WEIR_ALWAYS_INLINE void version_write_block(bool shared, struct version_block *block, uint32_t ctx,
                                            uint64_t word, const struct version_block *read,
                                            const struct version *version)
{
    atomic_thread_fence(memory_order_release);
    if (shared) {
        shm_store_relaxed(&block->version, state_word_version(word));
        shm_store_relaxed(&block->notified, version->will_notify ? 0 : state_word_version(word));
    }
    /* A stack version that lost its commit may have left this very version marked completed. */
    shm_store_relaxed(&block->completed, state_word_version(word) - 1);
    shm_store_relaxed(&block->predecessor, version->state_word);
    shm_store_relaxed(&block->meta, block_meta(ctx, version->content_n, version->writes_n));
    version_put_writes(block, version);
    version_put_content(block, read, version);
}

/* Completes the committing thread's own version, without a copy of its deferred writes. Its own
 * block reference and its own record need no CAS: only helpers could have written them, with equal
 * values. */
WEIR_ALWAYS_INLINE void version_complete(bool shared, const struct region *region,
                                         _Atomic uint64_t *own_ref, struct version_block *block,
                                         const struct version *version, uint64_t predecessor)
{
    uint32_t writes_n = version->writes_n;

    for (uint32_t i = 0; i < writes_n; i++)
        version_apply_write(shared, region, version->writes[i]);
    shm_store_relaxed(own_ref, predecessor);
    shm_store_release(&block->completed, state_word_version(version->state_word));
}

/* Returns true if the thread has an own block, and that is not the one that it replaces. */
static inline bool version_may_replace(uint64_t own_ref, uint64_t predecessor)
{
    if (!own_ref || !(predecessor & INFLATED_BIT))
        return own_ref != 0;
    return state_word_slot(predecessor) != state_word_slot(own_ref);
}

/* Returns true if all deferred writes of a committed version can be. */
static inline bool version_writes_are_possible(const struct version *version)
{
    for (uint32_t i = 0; i < version->writes_n; i++) {
        const struct deferred_write *write = &version->writes[i];

        if (!deferred_write_is_possible(write->target, write->expected, write->desired))
            return false;
    }
    return true;
}

WEIR_ALWAYS_INLINE bool version_commit_impl(bool shared, const struct region *region, uint32_t ctx,
                                            uint32_t set_unit, struct version *version)
{
    struct set_head *set = set_head_at(region, set_unit);
    uint32_t block_class = block_class_of(shared, region, set);
    _Atomic uint64_t *own_ref = block_own_ref(shared, region, ctx, block_class);
    uint64_t mine = shm_load_acquire(own_ref), expected = version->state_word;
    struct version_block *block = block_at(shared, region, block_class, mine);
    const struct version_block *read =
        version->uncopied_n ? block_at(false, region, block_class, expected) : NULL;
    uint64_t word = state_word_next(mine);

    WEIR_INVARIANT(version->writes_n <= DEFERRED_WRITES_MAX);
    WEIR_INVARIANT(version->content_n <= block_capacity(block_class));
    WEIR_INVARIANT(region->segment || version_may_replace(mine, expected));
    WEIR_INVARIANT(!version->uncopied_n || (!region->segment && (expected & INFLATED_BIT)));
    version_write_block(shared, block, ctx, word, read, version);
    if (!version_cas_word(region, set_unit, expected, word))
        return false;
    WEIR_INVARIANT(region->segment || version_writes_are_possible(version));
    version->state_word = word;
    if (expected & INFLATED_BIT)
        version_complete(shared, region, own_ref, block, version, block_ref_of_word(expected));
    else
        version_help_word(region, set, word); /* others may have changed reserve_block since */
    return true;
}

#endif
