/* SPDX-License-Identifier: MIT */
/* Allocation of the memory of a segment's slots, before their first use. */
#include "base/invariant.h"
#include "shm/segment.h"

#include "base/sched_point.h"
#include "os/os.h"
#include <errno.h>

static void segment_raise_high(_Atomic uint64_t *high, uint64_t n)
{
    uint64_t value = atomic_load_explicit(high, memory_order_seq_cst);

    WEIR_INVARIANT(n > 0);
    while (value < n && !atomic_compare_exchange_weak_explicit(
                            high, &value, n, memory_order_seq_cst, memory_order_seq_cst))
        ;
    SCHED_POINT();
}

int segment_alloc_peer(const struct segment *segment, uint32_t i)
{
    const size_t at = SEGMENT_PEERS_AT + i * sizeof(struct peer_slot);
    int r;

    if (i >= SEGMENT_PEERS_MAX)
        return -EINVAL;
    r = os_fallocate(segment->fd, at, sizeof(struct peer_slot));
    if (r == 0)
        segment_raise_high(&segment_header(segment)->peers_high, i + UINT64_C(1));
    return r;
}

/* Initializes a thread context. Neither word is ever 0 again, so a late call changes nothing. */
static void segment_init_thread(const struct segment *segment, uint32_t i)
{
    struct thread_head *head = &segment_thread(segment, i)->head;
    uint64_t none = 0, no_generation = 0;

    atomic_compare_exchange_strong_explicit(
        &head->own_blocks[segment->layout.block_class - BLOCK_CLASS_MIN], &none,
        segment_block_slot(segment, i + 1), memory_order_seq_cst, memory_order_seq_cst);
    SCHED_POINT();
    atomic_compare_exchange_strong_explicit(&head->generation, &no_generation, 1,
                                            memory_order_seq_cst, memory_order_seq_cst);
}

int segment_alloc_thread(const struct segment *segment, uint32_t i)
{
    const struct segment_layout *layout = &segment->layout;
    int r;

    if (i >= layout->threads_n)
        return -EINVAL;
    r = os_fallocate(segment->fd, segment_thread_at(segment, i), layout->thread_stride);
    if (r == 0)
        r = os_fallocate(segment->fd, segment_block_slot(segment, i + 1) << layout->block_class,
                         segment_block_size(layout));
    if (r < 0)
        return r;
    SCHED_POINT();
    segment_init_thread(segment, i);
    SCHED_POINT();
    segment_raise_high(&segment_header(segment)->threads_high, i + UINT64_C(1));
    return 0;
}

int segment_alloc_run(const struct segment *segment, uint32_t run)
{
    int r;

    if (run == 0 || run >= segment->layout.runs_n)
        return -EINVAL;
    r = os_fallocate(segment->fd, SEGMENT_RUN_OWNERS_AT + run * sizeof(uint64_t), sizeof(uint64_t));
    SCHED_POINT();
    if (r == 0)
        r = os_fallocate(segment->fd, segment->layout.records_at + run * SEGMENT_RUN_SIZE,
                         SEGMENT_RUN_SIZE);
    if (r == 0)
        segment_raise_high(&segment_header(segment)->runs_high, run + UINT64_C(1));
    return r;
}

/* Stores the block's slot in the state word, but not the block: zero bytes are an empty version. */
static void segment_init_key_set(const struct segment *segment, uint32_t i)
{
    _Atomic uint64_t *word = &segment_key_set(segment, i)->head.state_word;
    uint64_t none = 0, first = INFLATED_BIT | segment_key_set_slot(segment, i);

    atomic_compare_exchange_strong_explicit(word, &none, first, memory_order_seq_cst,
                                            memory_order_seq_cst);
}

int segment_alloc_key_set(const struct segment *segment, uint32_t i)
{
    const struct segment_layout *layout = &segment->layout;
    int r;

    if (i >= layout->key_sets_max)
        return -EINVAL;
    r = os_fallocate(segment->fd, layout->key_sets_at + i * sizeof(struct segment_key_set),
                     sizeof(struct segment_key_set));
    if (r == 0)
        r = os_fallocate(segment->fd, segment_key_set_slot(segment, i) << layout->block_class,
                         segment_block_size(layout));
    if (r < 0)
        return r;
    SCHED_POINT();
    segment_init_key_set(segment, i);
    SCHED_POINT();
    segment_raise_high(&segment_keyed(segment)->key_sets_high, i + UINT64_C(1));
    return 0;
}
