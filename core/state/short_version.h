/* SPDX-License-Identifier: MIT */
/*
 * Short versions: version_read() and version_commit() of what most versions are: complete,
 * with nobody to be woken, at most one effect, which is on the publisher's own record, and as many
 * words of content as whoever reads it expects. They are versions as any others, but they fit onto the
 * stack, and what is done to them into the caller: it is done most often.
 *
 * Where those who use the set can die one by one (`mortal`), all is as version.h says. Where they
 * cannot, there is no effect, and nobody else need see to it that the publisher gets the box that was
 * replaced: then the version says that it is complete before it is published.
 */
#ifndef WEIR_CORE_STATE_SHORT_VERSION_H
#define WEIR_CORE_STATE_SHORT_VERSION_H

#include "base/sched_point.h"
#include "state/contention.h"
#include "state/version.h"
#include "state/version_block.h"

/* Half of them are copied, or all, with some that nobody looks at. Every box has room for so many. */
#define STACK_VERSION_WORDS 16u
_Static_assert(sizeof(struct version_block) + STACK_VERSION_WORDS * sizeof(uint64_t) <=
                   1u << BLOCK_CLASS_MIN,
               "within the smallest box");

struct stack_version {
    struct set_head *head;
    uint32_t block_class;
    uint32_t content_n;
    uint64_t state_word; /* the set's word when it was read */
    bool has_write;      /* only of the mortal */
    struct deferred_write write;
    uint64_t content[STACK_VERSION_WORDS];
};

WEIR_ALWAYS_INLINE void stack_version_store(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
    SCHED_POINT();
}

WEIR_ALWAYS_INLINE uint64_t stack_version_load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

WEIR_ALWAYS_INLINE void stack_version_get(uint64_t *to, const _Atomic uint64_t *from)
{
    *to = stack_version_load(from);
    SCHED_POINT();
}

WEIR_ALWAYS_INLINE void stack_version_get_4(uint64_t *to, const _Atomic uint64_t *from)
{
    stack_version_get(&to[0], &from[0]);
    stack_version_get(&to[1], &from[1]);
    stack_version_get(&to[2], &from[2]);
    stack_version_get(&to[3], &from[3]);
}

WEIR_ALWAYS_INLINE void stack_version_put_4(_Atomic uint64_t *to, const uint64_t *from)
{
    stack_version_store(&to[0], from[0]);
    stack_version_store(&to[1], from[1]);
    stack_version_store(&to[2], from[2]);
    stack_version_store(&to[3], from[3]);
}

/* Without a loop: most have eight words at most. */
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

/* Whether the box is all of the version that `word` names, as far as can be said before another look
 * at the word. In private memory nobody has written anything else. */
WEIR_ALWAYS_INLINE bool stack_version_is_complete(bool shared, const struct region *region,
                                                  const struct version_block *block, uint64_t word,
                                                  uint32_t content_n)
{
    if (block_content_n(stack_version_load(&block->meta)) != content_n || !(word & INFLATED_BIT))
        return false;
    return !shared || !region->segment ||
           (stack_version_load(&block->version) == state_word_version(word) &&
            stack_version_load(&block->notified) == state_word_version(word));
}

/* Somebody was faster: waits a while. `*turn` begins at 0. */
WEIR_ALWAYS_INLINE void stack_version_backoff(bool shared, struct set_head *set, unsigned *turn)
{
    if (shared)
        spin_backoff(turn);
    else
        contention_backoff(set, turn);
}

/* Of so many words of content. False: it is not short, or not complete, and is not soon. */
WEIR_ALWAYS_INLINE bool stack_version_read(bool shared, const struct region *region,
                                           uint32_t set_unit, uint32_t content_n, unsigned *turn,
                                           struct stack_version *version)
{
    struct set_head *set = region_block(region, set_unit);
    uint32_t block_class = block_class_of(shared, region, set);

    version->head = set;
    version->block_class = block_class;
    version->content_n = content_n;
    for (unsigned early = 0; early < HELP_AFTER; stack_version_backoff(shared, set, turn)) {
        uint64_t word = atomic_load_explicit(&set->state_word, memory_order_acquire);
        const struct version_block *block = block_at(shared, region, block_class, word);
        bool done = atomic_load_explicit(&block->completed, memory_order_acquire) ==
                    state_word_version(word);

        if (!stack_version_is_complete(shared, region, block, word, content_n))
            return false;
        stack_version_get_content(version->content, block, content_n);
        atomic_thread_fence(memory_order_acquire);
        if (stack_version_load(&set->state_word) != word)
            continue;
        version->state_word = word;
        if (done)
            return true;
        early++;
    }
    return false;
}

/* What goes before the content, of a version that `word` names. Of one that is complete when it is
 * published nobody asks what it owes. */
WEIR_ALWAYS_INLINE void stack_version_write_header(bool shared, const struct region *region,
                                                   uint32_t ctx, struct version_block *block,
                                                   uint64_t word,
                                                   const struct stack_version *version)
{
    bool has_write = shared && version->has_write;

    atomic_thread_fence(memory_order_release);
    if (shared && region->segment) {
        stack_version_store(&block->version, state_word_version(word));
        stack_version_store(&block->notified, state_word_version(word));
    }
    stack_version_store(&block->completed, state_word_version(word) - shared);
    if (shared)
        stack_version_store(&block->predecessor, version->state_word);
    stack_version_store(&block->meta, block_meta(shared ? ctx : 0, version->content_n, has_write));
    if (has_write) {
        stack_version_store(&block->writes[0][0], version->write.expected);
        stack_version_store(&block->writes[0][1], version->write.desired);
        stack_version_store(&block->targets[0], version->write.target);
    }
}

/* The publisher completes his own version. */
WEIR_ALWAYS_INLINE void stack_version_complete(const struct region *region,
                                               const struct deferred_write *write)
{
    _Atomic uint64_t *at = region_record(region, write->target >> 3);
    uint64_t expected = write->expected;

    at += write->target & 7;
    if (write->is_exclusive)
        atomic_store_explicit(at, write->desired, memory_order_release);
    else
        atomic_compare_exchange_strong(at, &expected, write->desired);
    SCHED_POINT();
}

/* As version_commit(). */
WEIR_ALWAYS_INLINE bool stack_version_commit(bool shared, const struct region *region, uint32_t ctx,
                                             unsigned turn, const struct stack_version *version)
{
    _Atomic uint64_t *own_ref = block_own_ref(shared, region, ctx, version->block_class);
    uint64_t mine = atomic_load_explicit(own_ref, memory_order_acquire),
             expected = version->state_word;
    struct version_block *block = block_at(shared, region, version->block_class, mine);
    uint64_t word = state_word_next(mine);

    stack_version_write_header(shared, region, ctx, block, word, version);
    stack_version_put_content(block, version->content, version->content_n);
    /* In one order with what says that the instance is closed: see set_acquire(). */
    if (!atomic_compare_exchange_strong(&version->head->state_word, &expected, word))
        return false;
    SCHED_POINT();
    if (shared && version->has_write)
        stack_version_complete(region, &version->write);
    stack_version_store(own_ref, block_ref_of_word(version->state_word));
    if (!shared)
        contention_clear(version->head, turn);
    if (shared) {
        atomic_store_explicit(&block->completed, state_word_version(word), memory_order_release);
        SCHED_POINT();
    }
    return true;
}

#endif
