/* SPDX-License-Identifier: MIT */
/* Waiting for a completion queue and for an acquisition in a loop of libuv. */
#include "work.h"

#include <errno.h>
#include <uv.h>

enum { BATCH = 8 };

static struct work work;
static uv_loop_t loop;
static uv_poll_t queue_poll, alone_poll;
static struct hold {
    uv_timer_t timer;
    weir_acquisition *acquisition; /* NULL: this slot is free */
} holds[WORK_SLOTS];

/* libuv's errors are negative errnos on Linux. */
static void check(const char *what, int code)
{
    if (code < 0)
        work_fail(what, code);
}

/* Closes the handles if there is nothing left to wait for; the loop ends with its last handle. */
static void end_if_over(void)
{
    if (!work_is_over(&work))
        return;
    uv_close((uv_handle_t *)&queue_poll, NULL);
    for (int i = 0; i < WORK_SLOTS; i++)
        uv_close((uv_handle_t *)&holds[i].timer, NULL);
}

static void on_timer(uv_timer_t *timer)
{
    struct hold *hold = timer->data;

    work_hold_over(&work, hold->acquisition);
    hold->acquisition = NULL;
    end_if_over();
}

static void hold(weir_acquisition *acquisition)
{
    int i = 0;

    while (holds[i].acquisition)
        i++;
    holds[i].acquisition = acquisition;
    uv_update_time(&loop);
    check("uv_timer_start", uv_timer_start(&holds[i].timer, on_timer, WORK_HOLD_NS / 1000000, 0));
}

/* Reaps. libuv is level-triggered: if completions do not fit in `done`, this is called again. */
static void on_queue(uv_poll_t *unused, int status, int events)
{
    struct weir_completion done[BATCH];
    int n;

    (void)unused;
    (void)events;
    check("the poll of the completion queue", status);
    n = weir_queue_reap(work.queue, done, BATCH);
    check("weir_queue_reap", n);
    for (int i = 0; i < n; i++) {
        weir_acquisition *acquisition = work_completed(&work, &done[i]);

        if (acquisition)
            hold(acquisition);
    }
    work_submit(&work);
    end_if_over();
}

/* Stops the watch first: the release closes the descriptor, which libuv must not watch then. */
static void on_alone(uv_poll_t *poll, int status, int events)
{
    (void)events;
    check("the poll of the acquisition", status);
    uv_close((uv_handle_t *)poll, NULL);
    work_alone_decided(&work);
    end_if_over();
}

static void watch(uv_poll_t *poll, int fd, uv_poll_cb callback)
{
    check("a descriptor", fd);
    check("uv_poll_init", uv_poll_init(&loop, poll, fd));
    check("uv_poll_start", uv_poll_start(poll, UV_READABLE, callback));
}

int main(void)
{
    check("uv_loop_init", uv_loop_init(&loop));
    for (int i = 0; i < WORK_SLOTS; i++) {
        check("uv_timer_init", uv_timer_init(&loop, &holds[i].timer));
        holds[i].timer.data = &holds[i];
    }
    work_begin(&work);
    watch(&queue_poll, weir_queue_fd(work.queue), on_queue);
    watch(&alone_poll, weir_acquisition_fd(work.alone), on_alone);
    check("uv_run", uv_run(&loop, UV_RUN_DEFAULT));
    check("uv_loop_close", uv_loop_close(&loop));
    return work_finish(&work);
}
