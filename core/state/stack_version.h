/* SPDX-License-Identifier: MIT */
/*
 * Stack versions: version_read() and version_commit() for the common case, inlined, with the copy
 * on the stack. Such a version is complete, has no waiter to notify, and the number of content
 * words that the reader expects. It has at most one deferred write, to the committing thread's own
 * record. Other readers cannot tell it from any other version.
 *
 * `shared`: users of the set may die one by one, and all of README.md's protocol holds. Otherwise
 * there is no deferred write, and no helper need hand the replaced block to the committing thread.
 * So the block is marked completed before the version is committed.
 */
#ifndef WEIR_CORE_STATE_STACK_VERSION_H
#define WEIR_CORE_STATE_STACK_VERSION_H

#include "base/invariant.h"
#include "base/sched_point.h"
#include "state/contention.h"
#include "state/version.h"
#include "state/version_ops.h"

/* Content words of a stack version. 8 or 16 of them are copied, whatever content_n is; every block
 * has room for 16. */
#define STACK_VERSION_WORDS 16u
_Static_assert(sizeof(struct version_block) + STACK_VERSION_WORDS * sizeof(uint64_t) <=
                   1u << BLOCK_CLASS_MIN,
               "within the smallest box");

struct stack_version {
    struct set_head *head;
    uint32_t block_class;
    uint64_t state_word; /* as read from the set */
    /* The thread's own block. On the fast path it is found before the decision, so that the commit
     * need not wait for it. */
    struct version_block *own;
    _Atomic uint64_t *own_ref;
    uint64_t own_word; /* the reference in `own_ref` */
    uint32_t content_n;
    bool has_write;  /* only in a shared set */
    bool has_header; /* the own block's fields are written */
    struct deferred_write write;
    uint64_t *content; /* STACK_VERSION_WORDS; apart, so that the rest can be in registers */
};

WEIR_ALWAYS_INLINE void stack_version_get_4(uint64_t *to, const _Atomic uint64_t *from)
{
    to[0] = shm_load_relaxed(&from[0]);
    to[1] = shm_load_relaxed(&from[1]);
    to[2] = shm_load_relaxed(&from[2]);
    to[3] = shm_load_relaxed(&from[3]);
}

WEIR_ALWAYS_INLINE void stack_version_put_4(_Atomic uint64_t *to, const uint64_t *from)
{
    shm_store_relaxed(&to[0], from[0]);
    shm_store_relaxed(&to[1], from[1]);
    shm_store_relaxed(&to[2], from[2]);
    shm_store_relaxed(&to[3], from[3]);
}

/* Copies without a loop: most versions have at most 8 words. */
WEIR_ALWAYS_INLINE void stack_version_get_content(uint64_t *to, const struct version_block *block,
                                                  uint32_t n)
{
    stack_version_get_4(to, block->content);
    stack_version_get_4(to + 4, block->content + 4);
    if (n <= 8)
        return;
    stack_version_get_4(to + 8, block->content + 8);
    stack_version_get_4(to + 12, block->content + 12);
}

WEIR_ALWAYS_INLINE void stack_version_put_content(struct version_block *block, const uint64_t *from,
                                                  uint32_t n)
{
    stack_version_put_4(block->content, from);
    stack_version_put_4(block->content + 4, from + 4);
    if (n <= 8)
        return;
    stack_version_put_4(block->content + 8, from + 8);
    stack_version_put_4(block->content + 12, from + 12);
}

/* Returns whether the block holds the complete version that `word` refers to, provided that the
 * state word has not changed since. In private memory no invalid words need be expected. */
WEIR_ALWAYS_INLINE bool stack_version_is_complete(bool shared, const struct region *region,
                                                  const struct version_block *block, uint64_t word,
                                                  uint32_t content_n)
{
    if (block_content_n(shm_load_relaxed(&block->meta)) != content_n || !(word & INFLATED_BIT))
        return false;
    return !shared || !region->segment ||
           (shm_load_relaxed(&block->version) == state_word_version(word) &&
            shm_load_relaxed(&block->notified) == state_word_version(word));
}

WEIR_ALWAYS_INLINE void stack_version_find_own(bool shared, const struct region *region,
                                               uint32_t ctx, struct stack_version *version)
{
    version->own_ref = block_own_ref(shared, region, ctx, version->block_class);
    version->own_word = atomic_load_explicit(version->own_ref, memory_order_acquire);
    version->own = block_at(shared, region, version->block_class, version->own_word);
}

/* Writes the own block's fields before the content. No reader asks for the deferred writes of a
 * version that was completed when committed. */
WEIR_ALWAYS_INLINE void stack_version_write_header(bool shared, const struct region *region,
                                                   uint32_t ctx,
                                                   const struct stack_version *version)
{
    struct version_block *block = version->own;
    uint64_t word = state_word_next(version->own_word);
    bool has_write = shared && version->has_write;

    atomic_thread_fence(memory_order_release);
    if (shared && region->segment) {
        shm_store_relaxed(&block->version, state_word_version(word));
        shm_store_relaxed(&block->notified, state_word_version(word));
    }
    shm_store_relaxed(&block->completed, state_word_version(word) - shared);
    if (shared)
        shm_store_relaxed(&block->predecessor, version->state_word);
    shm_store_relaxed(&block->meta, block_meta(shared ? ctx : 0, version->content_n, has_write));
    if (has_write) {
        shm_store_relaxed(&block->writes[0][0], version->write.expected);
        shm_store_relaxed(&block->writes[0][1], version->write.desired);
        shm_store_relaxed(&block->targets[0], version->write.target);
    }
}

/* Reads a version of `content_n` words. Returns false if it is not fit for the stack, or does not
 * become complete soon. Lock-free. Without `losses` by one attempt, which also begins the own
 * block: no deferred write may follow. */
WEIR_ALWAYS_INLINE bool stack_version_read(bool shared, const struct region *region,
                                           uint32_t set_unit, uint32_t ctx, uint32_t content_n,
                                           unsigned *losses, struct stack_version *version)
{
    struct set_head *set = region_block(region, set_unit);
    uint32_t block_class = block_class_of(shared, region, set);

    WEIR_INVARIANT(content_n <= STACK_VERSION_WORDS);
    version->head = set;
    version->content_n = content_n;
    version->has_header = !losses;
    version->block_class = block_class;
    if (!losses)
        stack_version_find_own(shared, region, ctx, version);
    for (unsigned early = 0; early < HELP_AFTER;
         contention_backoff(region, set_unit, ctx, losses)) {
        uint64_t word = atomic_load_explicit(&set->state_word, memory_order_acquire);
        const struct version_block *block = block_at(shared, region, block_class, word);
        bool done = atomic_load_explicit(&block->completed, memory_order_acquire) ==
                    state_word_version(word);

        if ((shared || losses) &&
            !stack_version_is_complete(shared, region, block, word, content_n))
            return false;
        stack_version_get_content(version->content, block, content_n);
        atomic_thread_fence(memory_order_acquire);
        if (!losses && (!done || shm_load_relaxed(&set->state_word) != word))
            return false;
        if (losses && shm_load_relaxed(&set->state_word) != word)
            continue;
        version->state_word = word;
        if (!losses)
            stack_version_write_header(shared, region, ctx, version);
        if (done)
            return true;
        early++;
    }
    return false;
}

/* Commits the version from the thread's own block. Returns false, and has no effect, if another
 * thread committed first. */
WEIR_ALWAYS_INLINE bool stack_version_commit(bool shared, const struct region *region, uint32_t ctx,
                                             struct stack_version version)
{
    uint64_t word;

    if (!version.has_header) {
        stack_version_find_own(shared, region, ctx, &version);
        stack_version_write_header(shared, region, ctx, &version);
    }
    word = state_word_next(version.own_word);
    WEIR_INVARIANT(region->segment || version_may_replace(version.own_word, version.state_word));
    stack_version_put_content(version.own, version.content, version.content_n);
    /* Sequentially consistent: in one order with the store that closes an instance. */
    if (!shm_cas_seq_cst(&version.head->state_word, version.state_word, word))
        return false;
    if (shared && version.has_write)
        version_apply_write(shared, region, version.write);
    shm_store_relaxed(version.own_ref, block_ref_of_word(version.state_word));
    if (shared)
        shm_store_release(&version.own->completed, state_word_version(word));
    return true;
}

#endif
