/* SPDX-License-Identifier: MIT */
/* Waiting for a completion queue and for an acquisition in a loop of libevent. */
#include "work.h"

#include <errno.h>
#include <event2/event.h>
#include <sys/time.h>

enum { BATCH = 8 };

static struct work work;
static struct event_base *base;
static struct event *queue_event, *alone_event;
static struct hold {
    struct event *timer;
    weir_acquisition *acquisition; /* NULL: this slot is free */
} holds[WORK_SLOTS];

/* libevent does not say why it fails. */
static void check(const char *what, int result)
{
    if (result < 0)
        work_fail(what, -ENOMEM);
}

static void end_if_over(void)
{
    if (work_is_over(&work))
        check("event_base_loopbreak", event_base_loopbreak(base));
}

static void on_timer(evutil_socket_t unused, short events, void *userdata)
{
    struct hold *hold = userdata;

    (void)unused;
    (void)events;
    work_hold_over(&work, hold->acquisition);
    hold->acquisition = NULL;
    end_if_over();
}

static void hold(weir_acquisition *acquisition)
{
    const struct timeval after = {.tv_usec = WORK_HOLD_NS / 1000};
    int i = 0;

    while (holds[i].acquisition)
        i++;
    holds[i].acquisition = acquisition;
    check("evtimer_add", evtimer_add(holds[i].timer, &after));
}

/* Reaps. libevent is level-triggered by default: if completions do not fit in `done`, this is
 * called again. With EV_ET, reap until a call returns fewer than BATCH. */
static void on_queue(evutil_socket_t unused, short events, void *userdata)
{
    struct weir_completion done[BATCH];
    int n = weir_queue_reap(work.queue, done, BATCH);

    (void)unused;
    (void)events;
    (void)userdata;
    if (n < 0)
        work_fail("weir_queue_reap", n);
    for (int i = 0; i < n; i++) {
        weir_acquisition *acquisition = work_completed(&work, &done[i]);

        if (acquisition)
            hold(acquisition);
    }
    work_submit(&work);
    end_if_over();
}

/* Frees the event first: the release closes the descriptor. */
static void on_alone(evutil_socket_t unused, short events, void *userdata)
{
    (void)unused;
    (void)events;
    (void)userdata;
    event_free(alone_event);
    work_alone_decided(&work);
    end_if_over();
}

static struct event *watch(int fd, short events, event_callback_fn callback)
{
    struct event *event;

    if (fd < 0)
        work_fail("a descriptor", fd);
    event = event_new(base, fd, events, callback, NULL);
    check("event_new", event ? 0 : -1);
    check("event_add", event_add(event, NULL));
    return event;
}

int main(void)
{
    base = event_base_new();
    check("event_base_new", base ? 0 : -1);
    for (int i = 0; i < WORK_SLOTS; i++) {
        holds[i].timer = evtimer_new(base, on_timer, &holds[i]);
        check("evtimer_new", holds[i].timer ? 0 : -1);
    }
    work_begin(&work);
    queue_event = watch(weir_queue_fd(work.queue), EV_READ | EV_PERSIST, on_queue);
    alone_event = watch(weir_acquisition_fd(work.alone), EV_READ, on_alone);
    check("event_base_dispatch", event_base_dispatch(base));
    event_free(queue_event);
    for (int i = 0; i < WORK_SLOTS; i++)
        event_free(holds[i].timer);
    event_base_free(base);
    return work_finish(&work);
}
