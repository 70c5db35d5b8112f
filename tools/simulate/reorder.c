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

static uint64_t time_at(const struct reorder *reorder, uint32_t i)
{
    return reorder->events[reorder->order[ring_at(reorder, i)]].at_ns;
}

/* Returns the place of an event behind all those that are no later. */
static uint32_t find_place(const struct reorder *reorder, uint64_t at_ns)
{
    uint32_t low = 0, high = reorder->n;

    if (high == 0 || time_at(reorder, high - 1) <= at_ns)
        return high;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (time_at(reorder, middle) <= at_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The shorter side of the ring makes room: a log that is turned around takes no longer. */
void reorder_add(struct reorder *reorder)
{
    uint32_t added = reorder->unused[--reorder->unused_n], place;
    struct event *event = &reorder->events[added];

    if (event->at_ns < reorder->last_ns) {
        event->at_ns = reorder->last_ns;
        reorder->late_n++;
    }
    place = find_place(reorder, event->at_ns);
    if (place < reorder->n / 2) {
        reorder->first = ring_at(reorder, reorder->size - 1);
        for (uint32_t i = 0; i < place; i++)
            reorder->order[ring_at(reorder, i)] = reorder->order[ring_at(reorder, i + 1)];
    } else {
        for (uint32_t i = reorder->n; i > place; i--)
            reorder->order[ring_at(reorder, i)] = reorder->order[ring_at(reorder, i - 1)];
    }
    reorder->order[ring_at(reorder, place)] = added;
    reorder->n++;
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
