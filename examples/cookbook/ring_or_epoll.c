/* SPDX-License-Identifier: MIT */
/*
 * Completions on the program's own io_uring ring; and by epoll where the kernel or a sandbox does
 * not let the program have one.
 */
#include <weir/uring.h> /* before other headers: see there */

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <weir/weir.h>

#define JOBS  8
#define QUEUE UINT64_C(1) /* user_data of the poll of the completion queue; no job lies there */

struct job {
    weir_acquisition *acquisition;
};

struct loop {
    weir_queue *queue;
    struct weir_uring uring;
    struct io_uring ring;
    bool on_ring;
    int epoll;
    int pending, granted;
};

static void finish(struct loop *loop, struct job *job, int result)
{
    loop->pending--;
    loop->granted += result == 0;
    weir_release(&job->acquisition); /* the next waiter has its slot */
}

static void reap(struct loop *loop)
{
    struct weir_completion done[4];
    int n;

    do {
        n = weir_queue_reap(loop->queue, done, 4);
        for (int i = 0; i < n; i++)
            finish(loop, (struct job *)(uintptr_t)done[i].user_data, done[i].result);
    } while (n == 4);
}

/* Attaches the completion queue to a ring. Whatever fails, the program goes on without. */
static int open_ring(struct loop *loop)
{
    int r = weir_uring_probe(&loop->uring);

    if (r == 0)
        r = io_uring_queue_init(64, &loop->ring, 0);
    if (r < 0)
        return r;
    r = weir_queue_attach(loop->queue, loop->ring.ring_fd); /* 1: this kernel cannot post */
    if (r == 0) /* and what is not posted is reaped, should posting end by itself */
        r = weir_uring_prep_queue(&loop->uring, &loop->ring, loop->queue, QUEUE);
    loop->on_ring = r == 0;
    if (r == 0)
        return 0;
    weir_queue_detach(loop->queue);
    io_uring_queue_exit(&loop->ring);
    return r < 0 ? r : -ENOSYS;
}

static int open_epoll(struct loop *loop)
{
    struct epoll_event event = {.events = EPOLLIN};

    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll < 0)
        return -errno;
    return epoll_ctl(loop->epoll, EPOLL_CTL_ADD, weir_queue_fd(loop->queue), &event) < 0 ? -errno
                                                                                         : 0;
}

static int turn_ring(struct loop *loop)
{
    struct io_uring_cqe *cqe;
    int r = io_uring_submit_and_wait(&loop->ring, 1);

    while (r >= 0 && io_uring_peek_cqe(&loop->ring, &cqe) == 0) {
        const struct io_uring_cqe at = *cqe;

        io_uring_cqe_seen(&loop->ring, cqe);
        if (at.user_data != QUEUE) {
            finish(loop, (struct job *)(uintptr_t)at.user_data, at.res);
            continue;
        }
        if (at.res > 0 && !(at.flags & IORING_CQE_F_MORE))
            r = weir_uring_prep_queue(&loop->uring, &loop->ring, loop->queue, QUEUE);
        reap(loop);
    }
    return r == -EINTR || r > 0 ? 0 : r;
}

static int turn_epoll(struct loop *loop)
{
    struct epoll_event event;

    if (epoll_wait(loop->epoll, &event, 1, -1) < 0)
        return errno == EINTR ? 0 : -errno;
    reap(loop);
    return 0;
}

static int run(struct loop *loop, weir_pool *pool)
{
    struct job jobs[JOBS] = {{NULL}};
    int e = 0;

    for (int i = 0; e == 0 && i < JOBS; i++) {
        e = weir_queue_submit(loop->queue, pool, NULL, (uintptr_t)&jobs[i], &jobs[i].acquisition,
                              NULL);
        loop->pending += e == 0;
    }
    while (e == 0 && loop->pending > 0)
        e = loop->on_ring ? turn_ring(loop) : turn_epoll(loop);
    for (int i = 0; i < JOBS; i++)
        weir_release(&jobs[i].acquisition); /* after an error; else NULL */
    return e;
}

int main(void)
{
    const struct weir_options options = {.size = sizeof(options),
                                         .flags = WEIR_OPEN_REQUIRE_CONFIG};
    struct weir_error error = {0};
    struct loop loop = {.epoll = -1};
    weir_pool *pool = NULL;
    weir *w = NULL;
    int e = weir_open(&w, &options, &error);

    if (e == 0)
        e = weir_pool_open(&pool, w, "api", 0, &error);
    if (e == 0)
        e = weir_queue_open(&loop.queue, w, JOBS);
    if (e == 0 && open_ring(&loop) < 0)
        e = open_epoll(&loop);
    if (e == 0) {
        fprintf(stderr, "completions come by %s\n", loop.on_ring ? "the ring" : "epoll");
        e = run(&loop, pool);
    }
    if (e == 0)
        printf("%d of %d granted\n", loop.granted, JOBS);
    else
        fprintf(stderr, "ring_or_epoll: %s\n", error.code ? error.message : strerror(-e));
    weir_queue_detach(loop.queue); /* before the ring goes */
    if (loop.on_ring)
        io_uring_queue_exit(&loop.ring);
    if (loop.epoll >= 0)
        close(loop.epoll);
    weir_queue_close(loop.queue);
    weir_pool_close(pool);
    weir_close(w);
    return e == 0 ? 0 : 1;
}
