/* SPDX-License-Identifier: MIT */
/*
 * Waiting for a completion queue and for an acquisition in a loop over io_uring, on the three kinds
 * of rings. One multishot poll serves for the whole completion queue. Exits with 69 where there is
 * no such ring.
 *
 * usage: uring default|single_issuer|defer_taskrun
 */
#include <weir/uring.h>

#include "work.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

enum { ENTRIES = 16, BATCH = 8 };

/* user_data of a CQE: the timer of a slot by its number, and these. */
enum { QUEUE = WORK_SLOTS, ALONE, CANCEL };

static struct work work;
static struct weir_uring uring;
static struct io_uring ring;
static struct weir_uring_wait alone_wait;
static weir_acquisition *holds[WORK_SLOTS]; /* NULL: this slot is free */
static bool queue_is_watched;               /* the multishot poll has not ended */

static const struct {
    const char *name;
    unsigned flags;
} kinds[] = {
    {"default", 0},
    {"single_issuer", IORING_SETUP_SINGLE_ISSUER},
    {"defer_taskrun", IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN},
};

static void check(const char *what, int code)
{
    if (code < 0)
        work_fail(what, code);
}

/* Sets the timer of a slot. The ring has more entries than there are operations to prepare. */
static void hold(weir_acquisition *acquisition)
{
    static struct __kernel_timespec hold_time = {.tv_nsec = WORK_HOLD_NS};
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
    unsigned i = 0;

    check("io_uring_get_sqe", sqe ? 0 : -EBUSY);
    while (holds[i])
        i++;
    holds[i] = acquisition;
    io_uring_prep_timeout(sqe, &hold_time, 0, 0);
    io_uring_sqe_set_data64(sqe, i);
}

static void on_timer(uint64_t i, int res)
{
    if (res != -ETIME)
        work_fail("a timeout", res);
    work_hold_over(&work, holds[i]);
    holds[i] = NULL;
}

static void watch_queue(void)
{
    check("weir_uring_prep_queue", weir_uring_prep_queue(&uring, &ring, work.queue, QUEUE));
    queue_is_watched = true;
}

/* Reaps everything: notifications coalesce. */
static void on_queue(void)
{
    struct weir_completion done[BATCH];
    int n;

    do {
        n = weir_queue_reap(work.queue, done, BATCH);
        check("weir_queue_reap", n);
        for (int i = 0; i < n; i++) {
            weir_acquisition *acquisition = work_completed(&work, &done[i]);

            if (acquisition)
                hold(acquisition);
        }
    } while (n == BATCH);
    work_submit(&work);
}

static void on_cqe(uint64_t what, int res, unsigned flags)
{
    if (what == QUEUE) {
        queue_is_watched = (flags & IORING_CQE_F_MORE) != 0;
        if (res == -ECANCELED)
            return;
        check("the poll of the completion queue", res);
        if (!queue_is_watched)
            watch_queue();
        on_queue();
    } else if (what == ALONE) {
        check("the wait for the acquisition", res);
        work_alone_decided(&work);
    } else if (what < QUEUE) {
        on_timer(what, res);
    }
}

/* Submits the prepared operations, waits, and handles the completions. */
static void turn(void)
{
    struct io_uring_cqe *cqe;
    int r = io_uring_submit_and_wait(&ring, 1);

    if (r < 0 && r != -EINTR)
        work_fail("io_uring_submit_and_wait", r);
    while (io_uring_peek_cqe(&ring, &cqe) == 0) {
        uint64_t what = cqe->user_data;
        int res = cqe->res;
        unsigned flags = cqe->flags;

        io_uring_cqe_seen(&ring, cqe);
        on_cqe(what, res, flags);
    }
}

/* Ends the poll of the completion queue: the kernel must not watch it when it is closed. */
static void stop_watching_queue(void)
{
    check("weir_uring_prep_cancel", weir_uring_prep_cancel(&ring, QUEUE, CANCEL));
    while (queue_is_watched)
        turn();
}

static void open_ring(unsigned flags)
{
    int r = weir_uring_probe(&uring);

    if (r == 0)
        r = io_uring_queue_init(ENTRIES, &ring, flags);
    if (r == 0)
        return;
    fprintf(stderr, "there is no such ring here: %s\n", strerror(-r));
    exit(r == -EPERM || r == -EACCES || r == -ENOSYS || r == -EINVAL ? EX_UNAVAILABLE
                                                                     : EXIT_FAILURE);
}

int main(int argc, char **argv)
{
    size_t kind = 0, kinds_n = sizeof(kinds) / sizeof(kinds[0]);

    while (argc == 2 && kind < kinds_n && strcmp(argv[1], kinds[kind].name) != 0)
        kind++;
    if (argc != 2 || kind == kinds_n) {
        fprintf(stderr, "usage: uring default|single_issuer|defer_taskrun\n");
        return 2;
    }
    open_ring(kinds[kind].flags);
    work_begin(&work);
    watch_queue();
    check("weir_uring_prep_wait",
          weir_uring_prep_wait(&uring, &ring, &alone_wait, work.alone, ALONE));
    while (!work_is_over(&work))
        turn();
    stop_watching_queue();
    io_uring_queue_exit(&ring);
    return work_finish(&work);
}
