/* SPDX-License-Identifier: MIT */
/* Segments: their places are given memory, before they are used for the first time. */
#include "shm/segment.h"

#include "base/mutant.h"
#include "base/sched_point.h"
#include "os/os.h"
#include <errno.h>

static void raise(_Atomic uint64_t *high, uint64_t n)
{
    uint64_t value = atomic_load(high);

    while (value < n && !atomic_compare_exchange_weak(high, &value, n))
        ;
    STEP();
}

int segment_commit_process(const struct segment *segment, uint32_t i)
{
    const size_t at = SEGMENT_PROCESSES_AT + i * sizeof(struct segment_process);
    int r;

    if (i >= SEGMENT_PROCESSES_MAX)
        return -EINVAL;
    r = sys_allocate(segment->fd, at, sizeof(struct segment_process));
    if (r == 0)
        raise(&segment_header(segment)->processes_high, i + UINT64_C(1));
    return r;
}

/* Neither word is ever 0 again, so it does not matter how late this comes. */
static void begin_actor(const struct segment *segment, uint32_t i)
{
    struct actor_head *head = &segment_actor(segment, i)->head;
    uint64_t none = 0, no_life = 0;

    atomic_compare_exchange_strong(&head->own[segment->layout.box_class - BOX_CLASS_MIN], &none,
                                   segment_box_slot(segment, i + 1));
    STEP();
    atomic_compare_exchange_strong(&head->generation, &no_life, 1);
}

int segment_commit_actor(const struct segment *segment, uint32_t i)
{
    const struct segment_layout *layout = &segment->layout;
    int r;

    if (i >= layout->actors_n)
        return -EINVAL;
    r = sys_allocate(segment->fd, segment_actor_at(segment, i), layout->actor_stride);
    if (r == 0)
        r = sys_allocate(segment->fd, segment_box_slot(segment, i + 1) << layout->box_class,
                         segment_box_size(layout));
    if (r < 0)
        return r;
    STEP();
    begin_actor(segment, i);
    STEP();
    raise(&segment_header(segment)->actors_high, i + UINT64_C(1));
    return 0;
}

int segment_commit_run(const struct segment *segment, uint32_t run)
{
    int r;

    if (run == 0 || run >= segment->layout.runs_n)
        return -EINVAL;
    r = sys_allocate(segment->fd, SEGMENT_RUN_OWNERS_AT + run * sizeof(uint64_t), sizeof(uint64_t));
    STEP();
    if (r == 0)
        r = sys_allocate(segment->fd, segment->layout.records_at + run * SEGMENT_RUN_SIZE,
                         SEGMENT_RUN_SIZE);
    if (r == 0)
        raise(&segment_header(segment)->runs_high, run + UINT64_C(1));
    return r;
}

/* An empty version, as a hole reads: no box is written. */
static void begin_live(const struct segment *segment, uint32_t i)
{
    _Atomic uint64_t *word = &segment_live(segment, i)->head.word;
    uint64_t none = 0, first = WORD_BOXED | segment_live_slot(segment, i);

    if (MUTANT(597))
        atomic_store(word, first);
    else
        atomic_compare_exchange_strong(word, &none, first);
}

int segment_commit_live(const struct segment *segment, uint32_t i)
{
    const struct segment_layout *layout = &segment->layout;
    int r;

    if (i >= layout->lives_max)
        return -EINVAL;
    r = sys_allocate(segment->fd, layout->lives_at + i * sizeof(struct segment_live),
                     sizeof(struct segment_live));
    if (r == 0)
        r = sys_allocate(segment->fd, segment_live_slot(segment, i) << layout->box_class,
                         segment_box_size(layout));
    if (r < 0)
        return r;
    if (MUTANT(598))
        raise(&segment_keyed(segment)->lives_high, i + UINT64_C(1));
    STEP();
    begin_live(segment, i);
    STEP();
    raise(&segment_keyed(segment)->lives_high, i + UINT64_C(1));
    return 0;
}
