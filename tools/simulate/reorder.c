/* SPDX-License-Identifier: MIT */
/* Puts events in the order of their times. */
#include "reorder.h"
#include <errno.h>
#include <stdlib.h>

int reorder_open(struct reorder *ret, uint32_t size)
{
    struct reorder reorder = {.size = size};

    reorder.events = calloc((size_t)size + 1, sizeof(*reorder.events));
    reorder.order = calloc(size, sizeof(*reorder.order));
    reorder.unused = calloc((size_t)size + 1, sizeof(*reorder.unused));
    *ret = reorder;
    if (!reorder.events || !reorder.order || !reorder.unused) {
        reorder_close(ret);
        return -ENOMEM;
    }
    reorder_clear(ret);
    return 0;
}

void reorder_close(struct reorder *reorder)
{
    free(reorder->events);
    free(reorder->order);
    free(reorder->unused);
    *reorder = (struct reorder){0};
}

void reorder_clear(struct reorder *reorder)
{
    reorder->n = reorder->first = reorder->unused_n = 0;
    reorder->has_out = false;
    reorder->last_ns = reorder->late_n = 0;
    while (reorder->unused_n <= reorder->size) {
        reorder->unused[reorder->unused_n] = reorder->unused_n;
        reorder->unused_n++;
    }
}

struct event *reorder_next(struct reorder *reorder)
{
    return &reorder->events[reorder->unused[reorder->unused_n - 1]];
}

static uint32_t ring_at(const struct reorder *reorder, uint32_t i)
{
    i += reorder->first;
    return i < reorder->size ? i : i - reorder->size;
}

void reorder_add(struct reorder *reorder)
{
    uint32_t added = reorder->unused[--reorder->unused_n], i = reorder->n++;
    struct event *event = &reorder->events[added];

    if (event->at_ns < reorder->last_ns) {
        event->at_ns = reorder->last_ns;
        reorder->late_n++;
    }
    for (; i > 0; i--) {
        uint32_t before = reorder->order[ring_at(reorder, i - 1)];

        if (reorder->events[before].at_ns <= event->at_ns)
            break;
        reorder->order[ring_at(reorder, i)] = before;
    }
    reorder->order[ring_at(reorder, i)] = added;
}

const struct event *reorder_take(struct reorder *reorder)
{
    if (reorder->has_out)
        reorder->unused[reorder->unused_n++] = reorder->out;
    reorder->has_out = reorder->n > 0;
    if (!reorder->has_out)
        return NULL;
    reorder->out = reorder->order[reorder->first];
    reorder->first = ring_at(reorder, 1);
    reorder->n--;
    reorder->last_ns = reorder->events[reorder->out].at_ns;
    return &reorder->events[reorder->out];
}
