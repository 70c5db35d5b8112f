/* SPDX-License-Identifier: MIT */
/* Makes events ahead of their use. */
#include "read_ahead.h"
#include <errno.h>
#include <stdlib.h>

#define BATCH_EVENTS 1024

static struct event_batch *batch_at(struct read_ahead *ahead, uint64_t number)
{
    return &ahead->batches[number % READ_AHEAD_BATCHES];
}

static void fill(const struct event_source *source, struct event_batch *batch)
{
    const struct event *event;

    batch->n = 0;
    do {
        batch->result = source->next(source->of, &event);
        if (batch->result > 0)
            batch->events[batch->n++] = *event;
    } while (batch->result > 0 && batch->n < BATCH_EVENTS);
    batch->progress = source->progress(source->of);
}

/* Waits for a batch that is not in use. Returns false if the thread is to stop. */
static bool await_unused(struct read_ahead *ahead)
{
    bool goes_on;

    pthread_mutex_lock(&ahead->lock);
    while (!ahead->is_to_stop && ahead->filled_n - ahead->used_n == READ_AHEAD_BATCHES)
        pthread_cond_wait(&ahead->changed, &ahead->lock);
    goes_on = !ahead->is_to_stop;
    pthread_mutex_unlock(&ahead->lock);
    return goes_on;
}

/* Counts one batch more that was filled or used. */
static void count(struct read_ahead *ahead, uint64_t *counted)
{
    pthread_mutex_lock(&ahead->lock);
    (*counted)++;
    pthread_cond_signal(&ahead->changed);
    pthread_mutex_unlock(&ahead->lock);
}

static void *fill_all(void *argument)
{
    struct read_ahead *ahead = argument;
    int result = 1;

    for (uint64_t number = 0; result > 0 && await_unused(ahead); number++) {
        struct event_batch *batch = batch_at(ahead, number);

        fill(&ahead->source, batch);
        result = batch->result;
        count(ahead, &ahead->filled_n);
    }
    return NULL;
}

static void free_batches(struct read_ahead *ahead)
{
    for (unsigned i = 0; i < READ_AHEAD_BATCHES; i++) {
        free(ahead->batches[i].events);
        ahead->batches[i] = (struct event_batch){.events = NULL};
    }
}

int read_ahead_start(struct read_ahead *ret, const struct event_source *source)
{
    int r = 0;

    *ret = (struct read_ahead){.source = *source};
    for (unsigned i = 0; i < READ_AHEAD_BATCHES && r == 0; i++) {
        ret->batches[i].events = calloc(BATCH_EVENTS, sizeof(*ret->batches[i].events));
        r = ret->batches[i].events ? 0 : -ENOMEM;
    }
    if (r < 0) {
        free_batches(ret);
        return r;
    }
    pthread_mutex_init(&ret->lock, NULL);
    pthread_cond_init(&ret->changed, NULL);
    r = -pthread_create(&ret->thread, NULL, fill_all, ret);
    ret->is_running = r == 0;
    if (r < 0) {
        pthread_cond_destroy(&ret->changed);
        pthread_mutex_destroy(&ret->lock);
        free_batches(ret);
    }
    return r;
}

/* Returns the batch in use, once it is there. */
static struct event_batch *await_filled(struct read_ahead *ahead)
{
    pthread_mutex_lock(&ahead->lock);
    while (ahead->filled_n == ahead->used_n)
        pthread_cond_wait(&ahead->changed, &ahead->lock);
    pthread_mutex_unlock(&ahead->lock);
    return batch_at(ahead, ahead->used_n); /* which this thread alone changes */
}

int read_ahead_next(struct read_ahead *ahead, const struct event **ret)
{
    struct event_batch *batch = batch_at(ahead, ahead->used_n);
    int result;

    if (ahead->at == 0)
        batch = await_filled(ahead);
    while (ahead->at == batch->n && batch->result > 0) {
        ahead->at = 0;
        count(ahead, &ahead->used_n);
        batch = await_filled(ahead);
    }
    if (ahead->at < batch->n) {
        __builtin_prefetch(&batch->events[ahead->at + 2 < batch->n ? ahead->at + 2 : ahead->at]);
        *ret = &batch->events[ahead->at++];
        return 1;
    }
    result = batch->result;
    read_ahead_stop(ahead);
    return result;
}

int read_ahead_progress(const struct read_ahead *ahead)
{
    return ahead->batches[ahead->used_n % READ_AHEAD_BATCHES].progress;
}

void read_ahead_stop(struct read_ahead *ahead)
{
    if (!ahead->is_running)
        return;
    pthread_mutex_lock(&ahead->lock);
    ahead->is_to_stop = true;
    pthread_cond_signal(&ahead->changed);
    pthread_mutex_unlock(&ahead->lock);
    pthread_join(ahead->thread, NULL);
    pthread_cond_destroy(&ahead->changed);
    pthread_mutex_destroy(&ahead->lock);
    free_batches(ahead);
    ahead->is_running = false;
}
