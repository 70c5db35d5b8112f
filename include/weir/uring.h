/* SPDX-License-Identifier: MIT */
/*
 * Waiting on the io_uring ring of a program, which uses liburing. The kernel can also start
 * operations by itself, when a grant comes or when their instant has come.
 *
 *     weir_uring_probe              first: what this kernel can do; an error: use another loop
 *     weir_uring_prep_wait          one acquisition, however it ends
 *     weir_uring_prep_queue         a completion queue, by one multishot poll: for very many
 *     weir_uring_prep_linked_wait   grant → operations, unless a deadline passes first
 *     weir_uring_prep_paced         instant → operations, without any descriptor
 *     weir_uring_prep_cancel        gives up a wait or a chain
 *     weir_uring_settle             after a chain: keeps the grant, or undoes it
 *
 *     cc … $(pkg-config --cflags --libs weir-uring)   # weir and liburing
 *
 * All of it is inline and only prepares: the ring is the program's, and so is every submission. Any
 * thread that may call io_uring_get_sqe on that ring may call these functions. A function that
 * fails has prepared nothing and taken no SQE.
 *
 * Where io_uring is forbidden or missing, the probe says so, and everything else in weir works:
 * docs/waiting.md has a program that goes on with epoll.
 *
 * A linked wait and a paced one make a chain: a head, which waits, and behind it what the program
 * prepares. A chain ends with exactly one CQE, which says how:
 *
 *     that of the program's operation    the grant (the instant) came and the operation was started
 *     that of the head, -ECANCELED       it did not, and the operation never ran nor ever will: the
 *                                        deadline passed, or the chain was canceled
 *
 * No other CQE follows, except those of further operations that the program links behind its first.
 * A chain with an unknown operation or a malformed SQE ends by the head's CQE at once, without the
 * kind of error. After that one CQE, and not before, weir_uring_settle keeps the grant or undoes
 * it:
 *
 *     weir_submit(pool, &request, &acquisition, NULL);   // timeout_ns: WEIR_FOREVER
 *     weir_uring_prep_linked_wait(&uring, ring, &wait, acquisition, deadline_ns, HEAD, 1);
 *     sqe = io_uring_get_sqe(ring);                      // there is room
 *     io_uring_prep_send(sqe, …), io_uring_sqe_set_data64(sqe, SENT);
 *     io_uring_submit(ring);
 *     …
 *     if (cqe->user_data == HEAD || cqe->user_data == SENT)
 *         if (weir_uring_settle(&acquisition, cqe->user_data == SENT) == 0)
 *             weir_update(acquisition, …), weir_release(&acquisition);
 *
 * What each kind of ring demands:
 *   default         Waits and chains go on by themselves while the program computes, sleeps, or is
 *                   in any call. The kernel does that in the thread that submitted them, so
 *                   blocking calls of that thread (epoll_wait, recv with a timeout, …) may fail
 *                   with EINTR. (With IORING_SETUP_COOP_TASKRUN not before its next system call.)
 *   SINGLE_ISSUER   As default, and only one thread submits, as everywhere on such a ring.
 *   DEFER_TASKRUN   Waits and chains go on only while that thread asks the ring for completions
 *                   (io_uring_submit_and_wait, io_uring_wait_cqe, io_uring_get_events): in between
 *                   no grant starts an operation and no deadline ends a wait. What came first then
 *                   counts: an operation can start after its deadline, by a grant before it.
 *   all             The thread that submits must stay until what it submitted has ended. After its
 *                   exit operations fail (-EFAULT) or their chain does, deadlines may be forgotten,
 *                   and what is left ends surely only if another thread cancels it. A child after
 *                   fork must not touch the ring.
 * IORING_SETUP_IOPOLL rings cannot wait for descriptors. From its first chain on, a ring refuses
 * IOSQE_IO_DRAIN (-EOPNOTSUPP): the kernel cannot order what completes in silence.
 *
 * The `user_data` of a wait or head must be unique among everything in flight on the ring,
 * including the operation behind it. The kernel finds what it cancels, at a deadline too, by that
 * number alone, and would cancel the wrong one.
 *
 * Instants are those of CLOCK_MONOTONIC, which is the instance's clock unless the program injected
 * one: weir_now(w) + 5000000 is in 5 ms. That holds in a time namespace, too. Kernels before 7.1
 * take the instants of a ring there for those of the machine's clock: weir_uring_probe finds out.
 */
#ifndef WEIR_URING_H
#define WEIR_URING_H

#include <liburing.h> /* first: in strict C it must come before libc, or with _GNU_SOURCE defined */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <weir/queue.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Features of this kernel for this process. */
enum {
    WEIR_URING_READ = 1u << 0,      /* READ waits for an eventfd; otherwise POLL_ADD is used */
    WEIR_URING_MULTISHOT = 1u << 1, /* a poll stays; otherwise it is one of a single CQE */
    WEIR_URING_LINKED = 1u << 2,    /* chains behind a grant keep what is promised above */
    WEIR_URING_PACED = 1u << 3      /* chains behind an instant keep it, too */
};

/*
 * Filled by weir_uring_probe, constant from then on: one serves all rings and threads of a process.
 * A program may clear features that it wants to do without.
 */
struct weir_uring {
    uint32_t features; /* WEIR_URING_* */
    int64_t ahead_ns;  /* of the clock by which the kernel takes instants: CLOCK_MONOTONIC as this
                        * process reads it; 0 but in a time namespace. Not to be changed. */
};

/*
 * Memory of one wait or chain, for the kernel; not to be filled. It is the program's and must stay
 * in place until that wait or chain has ended by its CQE.
 */
struct weir_uring_wait {
    uint64_t count;              /* what a READ reads */
    struct __kernel_timespec at; /* the deadline, or the instant */
};

/*
 * Finds out what the kernel does, by trying it on a small ring of its own. When a ring goes, the
 * kernel interrupts the threads that have used it, so the probe runs in a thread that ends as well.
 * All is gone when the call returns, after some 0.2 ms; in a time namespace 5 ms. Returns 0, and on
 * failure leaves `*ret` as it was. A feature that the kernel lacks is not an error; the functions
 * below say what they do without. Any thread. Returns
 *   0                `*ret` says what the kernel does
 *   -EPERM, -EACCES  io_uring is forbidden here (a seccomp filter, kernel.io_uring_disabled)
 *   -ENOSYS          the kernel has none
 *   -ENOMEM, -EAGAIN  out of memory, of threads, or of what RLIMIT_MEMLOCK allows (kernels before
 *                    5.12)
 *   -EMFILE, -ENFILE  out of descriptors; the probe needs two
 * [any thread, changes]
 */
static inline int weir_uring_probe(struct weir_uring *ret);

/*
 * Prepares a wait for an acquisition, pending or not, to be decided: granted, or however else it
 * ends. Its one CQE has `user_data` and res > 0; then read weir_acquisition_result. One wait at a
 * time for an acquisition, and none after one has completed so. Until then the program must not
 * release the acquisition: that closes the descriptor, and the CQE would never come. To give up,
 * weir_cancel: the CQE follows; or weir_uring_prep_cancel: it follows with res -ECANCELED (if
 * nothing was faster), and the acquisition can be waited for again. Uses the acquisition's fd
 * (weir_acquisition_fd), so it cannot be used for a linked wait as well. If that is an eventfd of
 * the program's (weir_acquisition_attach), the wait is for that one: no other acquisition may have
 * it until the CQE, and it must be empty before. With WEIR_URING_READ the wait reads it, else the
 * program has to. Returns
 *   0         prepared; `*wait` must stay until the CQE
 *   -EBUSY    the submission queue is full: submit, then try again
 *   -EINVAL   it was in a linked wait
 *   -EMFILE, -ENFILE, -ENOMEM, -ECHILD, -EBUSY  as weir_acquisition_fd
 * [one thread, changes]
 */
static inline int weir_uring_prep_wait(const struct weir_uring *uring, struct io_uring *ring,
                                       struct weir_uring_wait *wait, weir_acquisition *acquisition,
                                       uint64_t user_data);

/*
 * Prepares a wait for a completion queue to have something to reap. It stays, with one CQE
 * (`user_data`, res > 0) after the other, for as long as they carry IORING_CQE_F_MORE. One without
 * ends it, as happens when completions overflow, and with every CQE if the kernel has no
 * WEIR_URING_MULTISHOT: unless res < 0, prepare it again, before or after the reaping. Events
 * coalesce, so reap until a call returns fewer than it was offered room for; an event may find
 * nothing left to reap.
 *
 *     if (cqe->user_data == QUEUE && cqe->res > 0) {
 *         if (!(cqe->flags & IORING_CQE_F_MORE))
 *             again = weir_uring_prep_queue(&uring, ring, queue, QUEUE);   // -EBUSY: later
 *         do {
 *             n = weir_queue_reap(queue, done, N);
 *             …
 *         } while (n == N);
 *     }
 *
 * Before weir_queue_close end it by weir_uring_prep_cancel, and await the CQE without that flag.
 * While the program does not look at completions (or enter its ring, if that is DEFER_TASKRUN) it
 * does not reap either, and deadlines of the completion queue pass unnoticed. Returns 0, -EBUSY
 * (the submission queue is full), or an error of weir_queue_fd.
 * [one thread, changes]
 */
static inline int weir_uring_prep_queue(const struct weir_uring *uring, struct io_uring *ring,
                                        weir_queue *queue, uint64_t user_data);

/*
 * Prepares the head of a chain that starts operations at the grant of an acquisition. It does not
 * if the grant comes after `deadline_ns` (WEIR_FOREVER: none). `user_data` is the head's. uring.h
 * says at its top which CQEs come. In detail:
 *   - The next `next` SQEs of the ring (1 or more) are the program's operations; there is room for
 *     them. Only the first waits for the grant: link the others (IOSQE_IO_LINK) behind it, and do
 *     not let it skip its own CQE, which says that the chain has ended. They must be prepared
 *     before anything is submitted, else they would start without a grant; and what was prepared
 *     just before the head must not be linked to it.
 *   - If io_uring_submit takes fewer SQEs than were prepared, the kernel was out of memory in the
 *     middle. What remains must not be submitted if it belongs to a chain: close the ring.
 *   - An acquisition that is refused, canceled, times out, or is shut down lets nothing run; nor
 *     does the kernel see it. So leave the time to the chain: submit with timeout_ns WEIR_FOREVER
 *     (and no max_wait_ns), and end chains without a deadline by weir_uring_prep_cancel before
 *     weir_close.
 *   - Until the chain has ended, the acquisition must be neither released nor canceled: weir_cancel
 *     could take back a grant by which an operation runs. Cancel the chain instead. Reading its
 *     result or updating it makes the grant, if there is one, the program's even if the operation
 *     does not run.
 *   - An acquisition that is granted already starts the operation at once, whatever the deadline.
 *   - If the operation did not run, another chain may be prepared for the same acquisition instead
 *     of settling; if it ran, none.
 * Returns
 *   0            prepared; `*wait` must stay until the chain has ended
 *   -EBUSY       the submission queue lacks room for the chain, operations included: submit, then
 *                try again
 *   -EINVAL      it will never have; `next` is 0; or the acquisition has another descriptor
 *                (weir_acquisition_fd, weir_acquisition_attach)
 *   -EOPNOTSUPP  the kernel lacks WEIR_URING_LINKED (before 5.17): use weir_uring_prep_wait and
 *                submit the operation when it completes
 *   -EMFILE, -ENFILE, -ENOMEM, -ECHILD, -EBUSY  as weir_acquisition_grant_fd
 * [one thread, changes]
 */
static inline int weir_uring_prep_linked_wait(const struct weir_uring *uring, struct io_uring *ring,
                                              struct weir_uring_wait *wait,
                                              weir_acquisition *acquisition, uint64_t deadline_ns,
                                              uint64_t user_data, unsigned next);

/*
 * Prepares the head of a chain that starts operations at an instant. It is that of weir_reserve,
 * for the amounts that it has reserved. Nothing starts before, and at once if it has passed. No
 * descriptor is used. `user_data` is the head's. uring.h says at its top which CQEs come. The rules
 * of weir_uring_prep_linked_wait for the operations and for submitting hold here, too. To give up,
 * weir_uring_prep_cancel; then weir_uring_settle(…, false) refunds what was reserved. At the
 * instant the kernel ends any wait on the ring, perhaps before the operation has completed:
 * io_uring_submit_and_wait may return without a CQE, and io_uring_wait_cqe_timeout early (-ETIME).
 * Returns
 *   0            prepared; `*wait` must stay until the chain has ended
 *   -EBUSY       the submission queue lacks room for the chain: submit, then try again
 *   -EINVAL      it will never have; `next` is 0; `at_ns` is WEIR_FOREVER
 *   -EOPNOTSUPP  the kernel lacks WEIR_URING_PACED (before 5.17): wait otherwise
 * [one thread, changes]
 */
static inline int weir_uring_prep_paced(const struct weir_uring *uring, struct io_uring *ring,
                                        struct weir_uring_wait *wait, uint64_t at_ns,
                                        uint64_t user_data, unsigned next);

/*
 * Prepares the canceling of the wait or chain that has `target` as the user_data of its wait or
 * head. It has a CQE of its own with `user_data`: 0, -ENOENT or -EALREADY. The outcome of the
 * target is in the target's own CQE alone, which follows in any case and may have come before. If
 * the grant came first, the operation runs. Must not be submitted before the target. Returns 0 or
 * -EBUSY (the submission queue is full).
 * [one thread, changes]
 */
static inline int weir_uring_prep_cancel(struct io_uring *ring, uint64_t target,
                                         uint64_t user_data);

/*
 * Ends a chain, once it has ended on the ring or if it was never prepared. `ran`: the one CQE was
 * that of the operation. If it did not run, a pending acquisition is canceled, and a grant that
 * came too late is undone, with refunds as acquisition.h says at its top. Returns
 *   0            the grant is the program's, to update if it holds a rate, and to release. It is
 *                also 0 if the operation did not run but the program knew of the grant before:
 *                weir_submit or weir_acquisition_result returned 0. (A reservation is undone unless
 *                it was updated.)
 *   -ECANCELED   this call has undone the grant or canceled the wait. `*acquisition` was released
 *                and is NULL, as in all that follow.
 *   -ETIMEDOUT, -EAGAIN, -ESHUTDOWN, -ECHILD, -EUCLEAN, -EHOSTUNREACH, -EEXIST, -EACCES  so it had
 *                ended before, by itself
 * Only the thread to which the acquisition belongs may call it.
 * [one thread, changes]
 */
static inline int weir_uring_settle(weir_acquisition **acquisition, bool ran);

/* ---- internal to this header, from here on: preparing ---- */

/* Returns 0 if there is room for `n` SQEs, else a negative errno. */
static inline int weir_uring_room_(const struct io_uring *ring, uint64_t n)
{
    if (n > ring->sq.ring_entries)
        return -EINVAL;
    return io_uring_sq_space_left(ring) < n ? -EBUSY : 0;
}

static inline struct __kernel_timespec weir_uring_timespec_(uint64_t ns)
{
    struct __kernel_timespec at;

    at.tv_sec = (long long)(ns / 1000000000u);
    at.tv_nsec = (long long)(ns % 1000000000u);
    return at;
}

/* The instant as the kernel's clock will show it. */
static inline uint64_t weir_uring_kernel_ns_(const struct weir_uring *uring, uint64_t at_ns)
{
    const uint64_t by =
        uring->ahead_ns < 0 ? 0 - (uint64_t)uring->ahead_ns : (uint64_t)uring->ahead_ns;

    if (uring->ahead_ns < 0)
        return at_ns < WEIR_FOREVER - 1 - by ? at_ns + by : WEIR_FOREVER - 1;
    return at_ns > by ? at_ns - by : 0;
}

static inline void weir_uring_set_instant_(const struct weir_uring *uring,
                                           struct weir_uring_wait *wait, uint64_t at_ns)
{
    wait->at = weir_uring_timespec_(weir_uring_kernel_ns_(uring, at_ns));
}

/* An SQE that completes once the eventfd is readable. */
static inline struct io_uring_sqe *weir_uring_await_(const struct weir_uring *uring,
                                                     struct io_uring *ring,
                                                     struct weir_uring_wait *wait, int fd,
                                                     uint64_t user_data)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

    if (uring->features & WEIR_URING_READ)
        io_uring_prep_read(sqe, fd, &wait->count, sizeof(wait->count), 0);
    else
        io_uring_prep_poll_add(sqe, fd, POLLIN);
    io_uring_sqe_set_data64(sqe, user_data);
    return sqe;
}

/*
 * Makes an SQE a link of a chain. If it succeeds it has no CQE; if it fails, those behind it have
 * none. Never a hard link: that goes on after a failure.
 */
static inline void weir_uring_link_(struct io_uring_sqe *sqe)
{
    io_uring_sqe_set_flags(sqe, IOSQE_IO_LINK | IOSQE_CQE_SKIP_SUCCESS);
}

static inline void weir_uring_link_grant_(const struct weir_uring *uring, struct io_uring *ring,
                                          struct weir_uring_wait *wait, int fd,
                                          uint64_t deadline_ns, uint64_t user_data)
{
    struct io_uring_sqe *sqe = weir_uring_await_(uring, ring, wait, fd, user_data);

    weir_uring_link_(sqe);
    if (deadline_ns == WEIR_FOREVER)
        return;
    weir_uring_set_instant_(uring, wait, deadline_ns);
    sqe = io_uring_get_sqe(ring);
    io_uring_prep_link_timeout(sqe, &wait->at, IORING_TIMEOUT_ABS);
    io_uring_sqe_set_data64(sqe, user_data); /* of a CQE that never comes */
    weir_uring_link_(sqe);
}

static inline void weir_uring_link_instant_(const struct weir_uring *uring, struct io_uring *ring,
                                            struct weir_uring_wait *wait, uint64_t at_ns,
                                            uint64_t user_data)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

    weir_uring_set_instant_(uring, wait, at_ns);
    io_uring_prep_timeout(sqe, &wait->at, 0, IORING_TIMEOUT_ABS | IORING_TIMEOUT_ETIME_SUCCESS);
    io_uring_sqe_set_data64(sqe, user_data);
    weir_uring_link_(sqe);
}

/*
 * ---- internal to this header: probing, on a ring of its own ----
 *
 * Only the probe writes to its eventfd. So a READ of it is over when the write is, or never reads
 * after a failure; its memory may be on the stack.
 */

enum { WEIR_URING_HEAD_ = 1, WEIR_URING_OPERATION_, WEIR_URING_LAST_ };

static inline int weir_uring_submit_(struct io_uring *ring)
{
    int r;

    do {
        r = io_uring_submit(ring);
    } while (r == -EINTR);
    if (r < 0)
        return r;
    return io_uring_sq_ready(ring) ? -EAGAIN : 0; /* -EAGAIN: out of memory for the moment */
}

/* Waits for the next CQE and copies it. */
static inline int weir_uring_next_(struct io_uring *ring, uint64_t *ret_user_data, int *ret_res,
                                   unsigned *ret_flags)
{
    struct io_uring_cqe *cqe = NULL;
    int r;

    do {
        r = io_uring_wait_cqe(ring, &cqe);
    } while (r == -EINTR);
    if (r < 0)
        return r;
    *ret_user_data = cqe->user_data;
    *ret_res = cqe->res;
    *ret_flags = cqe->flags;
    io_uring_cqe_seen(ring, cqe);
    return 0;
}

static inline void weir_uring_no_operation_(struct io_uring *ring, uint64_t user_data)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data64(sqe, user_data);
}

/*
 * Submits a chain that was prepared, an operation behind it. Returns 1 if it ends with exactly one
 * CQE, that of `expected`, 0 if it does anything else.
 */
static inline int weir_uring_try_chain_(struct io_uring *ring, uint64_t expected)
{
    uint64_t user_data = 0;
    unsigned flags;
    int res, n = 0, as_expected = 0, r;

    weir_uring_no_operation_(ring, WEIR_URING_OPERATION_);
    r = weir_uring_submit_(ring);
    while (r == 0 && user_data != WEIR_URING_LAST_) {
        r = weir_uring_next_(ring, &user_data, &res, &flags);
        if (r < 0 || user_data == WEIR_URING_LAST_)
            break;
        as_expected += user_data == expected;
        if (++n > 1)
            continue;
        weir_uring_no_operation_(ring, WEIR_URING_LAST_);
        r = weir_uring_submit_(ring);
    }
    return r < 0 ? r : n == 1 && as_expected == 1;
}

/* Returns whether READ waits for an empty, non-blocking eventfd, which is empty afterwards. */
static inline int weir_uring_try_read_(struct io_uring *ring, int fd)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    uint64_t count = 0, user_data;
    unsigned flags;
    int res = 0, waits, r;

    io_uring_prep_read(sqe, fd, &count, sizeof(count), 0);
    io_uring_sqe_set_data64(sqe, WEIR_URING_HEAD_);
    r = weir_uring_submit_(ring);
    if (r < 0)
        return r;
    waits = io_uring_cq_ready(ring) == 0;
    if (waits && eventfd_write(fd, 1) < 0)
        return -errno;
    r = weir_uring_next_(ring, &user_data, &res, &flags);
    return r < 0 ? r : waits && res == (int)sizeof(count);
}

/*
 * Returns whether a deadline cancels a chain and a grant continues it; the eventfd is empty before.
 */
static inline int weir_uring_try_linked_(const struct weir_uring *uring, struct io_uring *ring,
                                         int fd)
{
    struct weir_uring_wait wait;
    int r;

    if (!(ring->features & IORING_FEAT_CQE_SKIP))
        return 0;
    weir_uring_link_grant_(uring, ring, &wait, fd, 1, WEIR_URING_HEAD_);
    r = weir_uring_try_chain_(ring, WEIR_URING_HEAD_);
    if (r <= 0)
        return r;
    if (eventfd_write(fd, 1) < 0)
        return -errno;
    weir_uring_link_grant_(uring, ring, &wait, fd, WEIR_FOREVER - 1, WEIR_URING_HEAD_);
    return weir_uring_try_chain_(ring, WEIR_URING_OPERATION_);
}

/* Returns whether a chain goes on at an instant. */
static inline int weir_uring_try_paced_(const struct weir_uring *uring, struct io_uring *ring)
{
    struct weir_uring_wait wait;

    if (!(ring->features & IORING_FEAT_CQE_SKIP))
        return 0;
    weir_uring_link_instant_(uring, ring, &wait, 1, WEIR_URING_HEAD_);
    return weir_uring_try_chain_(ring, WEIR_URING_OPERATION_);
}

/* Returns whether a poll stays after its first CQE. It does until the ring goes. */
static inline int weir_uring_try_multishot_(struct io_uring *ring, int fd)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    uint64_t user_data;
    unsigned flags = 0;
    int res = 0, r;

    if (eventfd_write(fd, 1) < 0)
        return -errno;
    io_uring_prep_poll_multishot(sqe, fd, POLLIN);
    io_uring_sqe_set_data64(sqe, WEIR_URING_HEAD_);
    r = weir_uring_submit_(ring);
    if (r == 0)
        r = weir_uring_next_(ring, &user_data, &res, &flags);
    return r < 0 ? r : res > 0 && (flags & IORING_CQE_F_MORE);
}

static inline int weir_uring_try_all_(struct weir_uring *uring, struct io_uring *ring, int fd)
{
    int r = weir_uring_try_read_(ring, fd);

    if (r > 0)
        uring->features |= WEIR_URING_READ;
    if (r >= 0)
        r = weir_uring_try_linked_(uring, ring, fd);
    if (r > 0)
        uring->features |= WEIR_URING_LINKED;
    if (r >= 0)
        r = weir_uring_try_paced_(uring, ring);
    if (r > 0)
        uring->features |= WEIR_URING_PACED;
    if (r >= 0)
        r = weir_uring_try_multishot_(ring, fd);
    if (r > 0)
        uring->features |= WEIR_URING_MULTISHOT;
    return r < 0 ? r : 0;
}

/* Opens the clock offsets of the calling thread, which is found by its number. Those of a first
 * thread that has ended are empty. */
static inline int weir_uring_open_offsets_(void)
{
    char task[64] = "", path[128];
    const char *id;

    if (readlink("/proc/thread-self", task, sizeof(task) - 1) < 0)
        task[0] = '\0'; /* an old kernel, or no /proc */
    id = strrchr(task, '/');
    snprintf(path, sizeof(path), "/proc/%s/timens_offsets", id ? id + 1 : "self");
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* Reads by how much CLOCK_MONOTONIC is ahead of the machine's own here; 0 if nothing says so. */
static inline int weir_uring_read_offset_(int64_t *ret_ns)
{
    char text[256];
    long long seconds, ns;
    ssize_t n;
    int fd = weir_uring_open_offsets_();

    *ret_ns = 0;
    if (fd < 0)
        return errno == EMFILE || errno == ENFILE ? -errno : 0;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    if (sscanf(text, "monotonic %lld %lld", &seconds, &ns) == 2)
        *ret_ns = (int64_t)seconds * 1000000000 + (int64_t)ns;
    return 0;
}

/*
 * Returns whether the kernel uses the process's clock. The other clock is `offset_ns` behind it;
 * the test uses an instant between the two.
 */
static inline int weir_uring_try_offset_(struct io_uring *ring, int64_t offset_ns)
{
    struct __kernel_timespec at, moment = weir_uring_timespec_(5000000);
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    struct timespec now;
    uint64_t user_data = 0;
    unsigned flags;
    int res, r;

    clock_gettime(CLOCK_MONOTONIC, &now);
    at = weir_uring_timespec_((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec -
                              (uint64_t)(offset_ns / 2));
    io_uring_prep_timeout(sqe, &at, 0, IORING_TIMEOUT_ABS);
    io_uring_sqe_set_data64(sqe, WEIR_URING_HEAD_);
    sqe = io_uring_get_sqe(ring);
    io_uring_prep_timeout(sqe, &moment, 0, 0);
    io_uring_sqe_set_data64(sqe, WEIR_URING_LAST_);
    r = weir_uring_submit_(ring);
    if (r == 0)
        r = weir_uring_next_(ring, &user_data, &res, &flags);
    return r < 0 ? r : (user_data == WEIR_URING_HEAD_) == (offset_ns > 0);
}

/* On a ring of its own, since one of the two timeouts is left on it. */
static inline int weir_uring_try_clock_(struct weir_uring *uring)
{
    struct io_uring ring;
    int64_t offset_ns;
    int r = weir_uring_read_offset_(&offset_ns);

    if (r < 0 || offset_ns == 0)
        return r;
    r = io_uring_queue_init(2, &ring, 0);
    if (r < 0)
        return r;
    r = weir_uring_try_offset_(&ring, offset_ns);
    io_uring_queue_exit(&ring);
    if (r == 0)
        uring->ahead_ns = offset_ns;
    return r < 0 ? r : 0;
}

/* Argument and result of the probing thread. */
struct weir_uring_probing_ {
    struct weir_uring uring;
    int result;
};

static inline int weir_uring_probe_here_(struct weir_uring *uring)
{
    struct io_uring ring;
    int fd, r;

    fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return -errno;
    r = io_uring_queue_init(8, &ring, 0);
    if (r == 0) {
        r = weir_uring_try_all_(uring, &ring, fd);
        io_uring_queue_exit(&ring);
    }
    close(fd);
    return r < 0 ? r : weir_uring_try_clock_(uring);
}

static inline void *weir_uring_run_probe_(void *argument)
{
    struct weir_uring_probing_ *probing = (struct weir_uring_probing_ *)argument;

    probing->result = weir_uring_probe_here_(&probing->uring);
    return NULL;
}

/* ---- the calls, as declared above ---- */

static inline int weir_uring_probe(struct weir_uring *ret)
{
    struct weir_uring_probing_ probing = {{0, 0}, 0};
    sigset_t all, before;
    pthread_t thread;
    int r;

    if (!ret)
        return -EINVAL;
    sigfillset(&all); /* that thread handles no signals */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = -pthread_create(&thread, NULL, weir_uring_run_probe_, &probing);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r < 0)
        return r;
    pthread_join(thread, NULL);
    if (probing.result == 0)
        *ret = probing.uring;
    return probing.result;
}

static inline int weir_uring_prep_wait(const struct weir_uring *uring, struct io_uring *ring,
                                       struct weir_uring_wait *wait, weir_acquisition *acquisition,
                                       uint64_t user_data)
{
    int fd, r;

    if (!uring || !ring || !wait)
        return -EINVAL;
    r = weir_uring_room_(ring, 1);
    if (r < 0)
        return r;
    fd = weir_acquisition_fd(acquisition);
    if (fd < 0)
        return fd;
    weir_uring_await_(uring, ring, wait, fd, user_data);
    return 0;
}

static inline int weir_uring_prep_queue(const struct weir_uring *uring, struct io_uring *ring,
                                        weir_queue *queue, uint64_t user_data)
{
    struct io_uring_sqe *sqe;
    int fd, r;

    if (!uring || !ring)
        return -EINVAL;
    r = weir_uring_room_(ring, 1);
    if (r < 0)
        return r;
    fd = weir_queue_fd(queue);
    if (fd < 0)
        return fd;
    sqe = io_uring_get_sqe(ring);
    if (uring->features & WEIR_URING_MULTISHOT)
        io_uring_prep_poll_multishot(sqe, fd, POLLIN);
    else
        io_uring_prep_poll_add(sqe, fd, POLLIN);
    io_uring_sqe_set_data64(sqe, user_data);
    return 0;
}

static inline int weir_uring_prep_linked_wait(const struct weir_uring *uring, struct io_uring *ring,
                                              struct weir_uring_wait *wait,
                                              weir_acquisition *acquisition, uint64_t deadline_ns,
                                              uint64_t user_data, unsigned next)
{
    unsigned links = deadline_ns == WEIR_FOREVER ? 1 : 2;
    int fd, r;

    if (!uring || !ring || !wait || !acquisition)
        return -EINVAL;
    if (!(uring->features & WEIR_URING_LINKED))
        return -EOPNOTSUPP;
    if (next == 0)
        return -EINVAL;
    r = weir_uring_room_(ring, (uint64_t)links + next);
    if (r < 0)
        return r;
    fd = weir_acquisition_grant_fd(acquisition);
    if (fd < 0)
        return fd;
    weir_uring_link_grant_(uring, ring, wait, fd, deadline_ns, user_data);
    return 0;
}

static inline int weir_uring_prep_paced(const struct weir_uring *uring, struct io_uring *ring,
                                        struct weir_uring_wait *wait, uint64_t at_ns,
                                        uint64_t user_data, unsigned next)
{
    int r;

    if (!uring || !ring || !wait)
        return -EINVAL;
    if (!(uring->features & WEIR_URING_PACED))
        return -EOPNOTSUPP;
    if (next == 0 || at_ns == WEIR_FOREVER)
        return -EINVAL;
    r = weir_uring_room_(ring, (uint64_t)next + 1);
    if (r < 0)
        return r;
    weir_uring_link_instant_(uring, ring, wait, at_ns, user_data);
    return 0;
}

static inline int weir_uring_prep_cancel(struct io_uring *ring, uint64_t target, uint64_t user_data)
{
    struct io_uring_sqe *sqe;

    if (!ring)
        return -EINVAL;
    if (weir_uring_room_(ring, 1) < 0)
        return -EBUSY;
    sqe = io_uring_get_sqe(ring);
    io_uring_prep_cancel64(sqe, target, 0);
    io_uring_sqe_set_data64(sqe, user_data);
    return 0;
}

static inline int weir_uring_settle(weir_acquisition **acquisition, bool ran)
{
    int r;

    if (!acquisition || !*acquisition)
        return -EINVAL;
    if (!ran)
        weir_cancel(*acquisition);
    r = weir_acquisition_result(*acquisition);
    if (r < 0)
        weir_release(acquisition);
    return r;
}

#ifdef __cplusplus
}
#endif
#endif
