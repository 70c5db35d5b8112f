/* SPDX-License-Identifier: MIT */
/*
 * The io_uring part of the seam to the operating system: messages to a ring of the program, each of
 * which becomes a CQE there.
 */
#ifndef WEIR_CORE_OS_OS_URING_H
#define WEIR_CORE_OS_OS_URING_H

#include <stdbool.h>
#include <stdint.h>

struct os_uring;

struct os_uring_message {
    uint64_t user_data;
    int32_t result; /* the CQE's res */
    int32_t code;   /* out: 0 (sent) or a negative errno */
};
#define OS_URING_MESSAGES_MAX 64u /* per call */

/*
 * Checks that messages can be sent, and duplicates the ring's descriptor. Returns 0; -EBADF;
 * -EBADFD (not a ring, or not enabled); -EEXIST (DEFER_TASKRUN, and the caller is not the ring's
 * thread); -EPERM, -EACCES, -ENOSYS (forbidden, or not supported by this kernel); -EMFILE, -ENFILE,
 * -ENOMEM, -EAGAIN.
 */
int os_uring_open(struct os_uring **ret, int ring_fd);

/*
 * Returns whether any thread may send. If not, only a thread of weir may: sending enters a source
 * ring, and freeing that interrupts the calls of all threads that entered it.
 */
bool os_uring_any_thread(const struct os_uring *ring);

/* Sends `n` messages, at most OS_URING_MESSAGES_MAX. One call at a time. After a failure all later
 * messages fail, too. */
void os_uring_send(struct os_uring *ring, struct os_uring_message *messages, unsigned n);

/* Puts all messages sent so far on the ring's CQ. Called in the ring's own thread. */
void os_uring_flush(struct os_uring *ring);
void os_uring_close(struct os_uring *ring); /* NULL: does nothing */

#endif
