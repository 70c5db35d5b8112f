/* SPDX-License-Identifier: MIT */
/*
 * The part of the seam to the operating system that knows io_uring: messages to a ring that the
 * program made, each of which becomes a CQE on it.
 */
#ifndef WEIR_CORE_OS_OS_URING_H
#define WEIR_CORE_OS_OS_URING_H

#include <stdbool.h>
#include <stdint.h>

struct os_uring;

struct os_uring_message {
    uint64_t user_data;
    int32_t result; /* the CQE's res */
    int32_t code;   /* out: 0, it was sent; or why not */
};
#define OS_URING_MESSAGES_MAX 64u /* in one call */

/*
 * Finds out whether messages can be sent, and takes a descriptor of its own of the ring. Returns 0;
 * -EBADF; -EBADFD (not a ring, or one that is not enabled); -EEXIST (DEFER_TASKRUN, and this is not
 * its thread); -EPERM, -EACCES, -ENOSYS (forbidden here, or this kernel does not know how);
 * -EMFILE, -ENFILE, -ENOMEM, -EAGAIN.
 */
int os_uring_open(struct os_uring **ret, int ring_fd);

/*
 * Whether every thread may send. Otherwise only a thread of weir's own may: a source ring is called
 * from, and when it goes the kernel interrupts whatever call its users are in.
 */
bool os_uring_any_thread(const struct os_uring *ring);

/* At most OS_URING_MESSAGES_MAX, one call at a time. Once a message could not be sent, none is any more.
 */
void os_uring_send(struct os_uring *ring, struct os_uring_message *messages, unsigned n);

/* In the ring's own thread: afterwards everything that was sent is on its CQ. */
void os_uring_flush(struct os_uring *ring);
void os_uring_close(struct os_uring *ring); /* NULL is fine */

#endif
