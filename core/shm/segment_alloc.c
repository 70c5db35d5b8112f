/* SPDX-License-Identifier: MIT */
/* Allocation of the memory of a segment's slots, before their first use. */
#include "base/sched_point.h"
#include "os/os.h"
#include "shm/segment_file.h"
#include <errno.h>

/* Bytes per fallocate. A signal undoes the progress of a call, so one must end between two. */
#define ALLOCATE_STEP_MAX ((size_t)1 << 20)

int segment_fallocate(int fd, size_t at, size_t size)
{
    int r = 0;

    for (size_t n; size > 0 && r == 0; at += n, size -= n) {
        n = size < ALLOCATE_STEP_MAX ? size : ALLOCATE_STEP_MAX;
        r = os_fallocate(fd, at, n);
        SCHED_POINT();
    }
    return r;
}

/* Allocates two parts of the file. */
static int segment_fallocate_both(const struct segment *segment, size_t at, size_t size,
                                  size_t other_at, size_t other_size)
{
    int r = segment_fallocate(segment->fd, at, size);

    return r < 0 ? r : segment_fallocate(segment->fd, other_at, other_size);
}

int segment_alloc_peer(const struct segment *segment, uint32_t i)
{
    const size_t at = SEGMENT_PEERS_AT + i * sizeof(struct peer_slot);
    int r;

    if (i >= SEGMENT_PEERS_MAX)
        return -EINVAL;
    r = segment_fallocate(segment->fd, at, sizeof(struct peer_slot));
    if (r == 0)
        shm_raise_seq_cst(&segment_header(segment)->peers_high, i + UINT64_C(1));
    return r;
}

/* Neither word of the context that is stored here is ever 0 again, so a late call changes nothing.
 */
int segment_alloc_thread(const struct segment *segment, uint32_t i)
{
    const struct segment_layout *layout = &segment->layout;
    uint64_t slot = segment_block_slot(segment, i + 1);
    struct thread_head *head;
    int r;

    if (i >= layout->sizes.threads_n)
        return -EINVAL;
    r = segment_fallocate_both(segment, segment_thread_at(segment, i), layout->thread_stride,
                               slot << layout->sizes.block_class, segment_block_size(layout));
    if (r < 0)
        return r;
    head = &segment_thread(segment, i)->head;
    shm_cas_seq_cst(&head->own_blocks[layout->sizes.block_class - BLOCK_CLASS_MIN], 0, slot);
    shm_cas_seq_cst(&head->generation, 0, 1);
    shm_raise_seq_cst(&segment_header(segment)->threads_high, i + UINT64_C(1));
    return 0;
}

int segment_alloc_run(const struct segment *segment, uint32_t run)
{
    int r;

    if (run == 0 || run >= segment->layout.sizes.runs_n)
        return -EINVAL;
    r = segment_fallocate_both(
        segment, SEGMENT_RUN_OWNERS_AT + run * sizeof(uint64_t), sizeof(uint64_t),
        segment->layout.records_at + run * SEGMENT_RUN_SIZE, SEGMENT_RUN_SIZE);
    if (r == 0)
        shm_raise_seq_cst(&segment_header(segment)->runs_high, run + UINT64_C(1));
    return r;
}

/* Stores the block's slot in the state word, but not the block: zero bytes are an empty version. */
int segment_alloc_key_set(const struct segment *segment, uint32_t i)
{
    const struct segment_layout *layout = &segment->layout;
    uint64_t slot = segment_key_set_slot(segment, i);
    int r;

    if (i >= layout->sizes.key_sets_max)
        return -EINVAL;
    r = segment_fallocate_both(segment, layout->key_sets_at + i * sizeof(struct segment_key_set),
                               sizeof(struct segment_key_set), slot << layout->sizes.block_class,
                               segment_block_size(layout));
    if (r < 0)
        return r;
    shm_cas_seq_cst(&segment_key_set(segment, i)->head.state_word, 0, INFLATED_BIT | slot);
    shm_raise_seq_cst(&segment_keyed(segment)->key_sets_high, i + UINT64_C(1));
    return 0;
}
