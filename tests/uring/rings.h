/* SPDX-License-Identifier: MIT */
/*
 * For tests of weir/uring.h: the three kinds of rings, and reading completions from any of them.
 */
#ifndef WEIR_TESTS_RINGS_H
#define WEIR_TESTS_RINGS_H

#include <weir/uring.h>

#include "lib/clock.h"
#include "lib/require.h"
#include <stdio.h>
#include <string.h>

enum { DEFAULT, SINGLE, DEFER, RING_KINDS };

static const struct {
    const char *name;
    unsigned flags;
} ring_kinds[RING_KINDS] = {
    {"default", 0},
    {"single_issuer", IORING_SETUP_SINGLE_ISSUER},
    {"defer_taskrun", IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN},
};

/* Whether this kernel has rings of a kind. */
static inline bool ring_exists(unsigned kind)
{
    struct io_uring ring;

    if (io_uring_queue_init(2, &ring, ring_kinds[kind].flags) < 0)
        return false;
    io_uring_queue_exit(&ring);
    return true;
}

/* What the kernel can do; or says loudly why nothing is tested, and returns false. */
static inline bool rings_begin(struct weir_uring *ret)
{
    int r = weir_uring_probe(ret);

    if (r == 0)
        return true;
    fprintf(stderr, "SKIPPED: there is no io_uring here (%s): NOTHING OF weir/uring.h WAS TESTED\n",
            strerror(-r));
    return false;
}

/*
 * The next completion, removed; -ETIME if there is none for so long. The kernel ends waits early
 * when any TIMEOUT of the ring fires.
 */
static inline int ring_next(struct io_uring *ring, uint64_t patience_ns, struct io_uring_cqe *ret)
{
    uint64_t until_ns = clock_now() + patience_ns;
    struct io_uring_cqe *cqe = NULL;
    int r;

    do {
        uint64_t now_ns = clock_now(), left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
        struct __kernel_timespec left = {(long long)(left_ns / SECOND),
                                         (long long)(left_ns % SECOND)};

        r = io_uring_wait_cqe_timeout(ring, &cqe, &left);
    } while (r == -EINTR || (r == -ETIME && clock_now() < until_ns));
    if (r < 0)
        return r;
    memcpy(ret, cqe, sizeof(*ret));
    io_uring_cqe_seen(ring, cqe);
    return 0;
}

#endif
