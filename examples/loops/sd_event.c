/* SPDX-License-Identifier: MIT */
/*
 * Waiting for a completion queue and for an acquisition in a loop of sd-event; systemd need not
 * run.
 */
#include "work.h"

#include <errno.h>
#include <systemd/sd-event.h>
#include <time.h>

enum { BATCH = 8 };

static struct work work;
static sd_event *event;
static sd_event_source *queue_source, *alone_source;
static struct hold {
    sd_event_source *timer;        /* disabled after it has fired once */
    weir_acquisition *acquisition; /* NULL: this slot is free */
} holds[WORK_SLOTS];

static void check(const char *what, int code)
{
    if (code < 0)
        work_fail(what, code);
}

static void end_if_over(void)
{
    if (work_is_over(&work))
        check("sd_event_exit", sd_event_exit(event, 0));
}

static int on_timer(sd_event_source *unused, uint64_t at_us, void *userdata)
{
    struct hold *hold = userdata;

    (void)unused;
    (void)at_us;
    work_hold_over(&work, hold->acquisition);
    hold->acquisition = NULL;
    end_if_over();
    return 0;
}

static void hold(weir_acquisition *acquisition)
{
    int i = 0;

    while (holds[i].acquisition)
        i++;
    holds[i].acquisition = acquisition;
    check("sd_event_source_set_time_relative",
          sd_event_source_set_time_relative(holds[i].timer, WORK_HOLD_NS / 1000));
    check("sd_event_source_set_enabled",
          sd_event_source_set_enabled(holds[i].timer, SD_EVENT_ONESHOT));
}

/* Reaps. sd-event is level-triggered: if completions do not fit in `done`, this is called again. */
static int on_queue(sd_event_source *unused, int fd, uint32_t events, void *userdata)
{
    struct weir_completion done[BATCH];
    int n = weir_queue_reap(work.queue, done, BATCH);

    (void)unused;
    (void)fd;
    (void)events;
    (void)userdata;
    check("weir_queue_reap", n);
    for (int i = 0; i < n; i++) {
        weir_acquisition *acquisition = work_completed(&work, &done[i]);

        if (acquisition)
            hold(acquisition);
    }
    work_submit(&work);
    end_if_over();
    return 0;
}

/* Drops the source first: the release closes the descriptor. */
static int on_alone(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    (void)fd;
    (void)events;
    (void)userdata;
    alone_source = sd_event_source_disable_unref(source);
    work_alone_decided(&work);
    end_if_over();
    return 0;
}

/* Creates timers with an accuracy of 1 µs: the default, written as 0, is 250 ms. */
static void open_timers(void)
{
    for (int i = 0; i < WORK_SLOTS; i++) {
        check("sd_event_add_time", sd_event_add_time(event, &holds[i].timer, CLOCK_MONOTONIC, 0, 1,
                                                     on_timer, &holds[i]));
        check("sd_event_source_set_enabled",
              sd_event_source_set_enabled(holds[i].timer, SD_EVENT_OFF));
    }
}

static void watch(sd_event_source **ret, int fd, sd_event_io_handler_t callback)
{
    check("a descriptor", fd);
    check("sd_event_add_io", sd_event_add_io(event, ret, fd, EPOLLIN, callback, NULL));
}

int main(void)
{
    check("sd_event_new", sd_event_new(&event));
    open_timers();
    work_begin(&work);
    watch(&queue_source, weir_queue_fd(work.queue), on_queue);
    watch(&alone_source, weir_acquisition_fd(work.alone), on_alone);
    check("sd_event_loop", sd_event_loop(event));
    sd_event_source_disable_unref(queue_source);
    for (int i = 0; i < WORK_SLOTS; i++)
        sd_event_source_disable_unref(holds[i].timer);
    sd_event_unref(event);
    return work_finish(&work);
}
