/* SPDX-License-Identifier: MIT */
/*
 * Messages to io_uring rings, sent in one of two ways:
 *
 * - Since Linux 6.13 a message needs no source ring. Each is one system call, without lasting
 *   effects on the sending thread.
 * - Earlier kernels need a source ring, and record each thread that makes or enters it. When the
 *   ring is freed, the kernel interrupts these threads in whatever call they are. An epoll_wait of
 *   the program would fail with EINTR. So a short-lived thread makes the ring, and one thread of
 *   weir enters it, with many messages at a time.
 */
#include "os/os_uring.h"

#include "configured.h"
#include "os/os_internal.h"

#if WEIR_URING
#include <liburing.h>
#include <string.h>

/* Missing from the oldest headers that weir can be built with. */
#define SEND_MSG_RING 31   /* opcode of io_uring_register: IORING_REGISTER_SEND_MSG_RING, 6.13 */
#define DUPFD_QUERY   1027 /* command of fcntl: F_DUPFD_QUERY, 6.10 */

struct os_uring {
    int fd;            /* weir's duplicate; the program cannot redirect it */
    int user_fd;       /* the program's; once it refers to another file, the ring is closed */
    bool sends_direct; /* without a source ring */
    int failure;
    uint64_t batch;
    struct io_uring source;
};

static bool os_uring_same_inode(int a, int b)
{
    struct stat of_a, of_b;

    return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino; /* each ring has its own inode */
}

static bool os_uring_is_closed(const struct os_uring *ring)
{
    int same = os_result(syscall(SYS_fcntl, ring->user_fd, DUPFD_QUERY, ring->fd));

    if (same == -EINVAL)
        same = os_uring_same_inode(ring->user_fd, ring->fd);
    return same != 1;
}

/* Runs the ring's deferred work, if the calling thread is the ring's. */
static int os_uring_run(int fd)
{
    int r = os_result(syscall(SYS_io_uring_enter, fd, 0, 0, IORING_ENTER_GETEVENTS, NULL, 0));

    switch (r) {
    case -EOPNOTSUPP:
        return -EBADFD;
    case -EINTR: /* these three concern the ring and its program only */
    case -EBUSY:
    case -EBADR:
        return 0;
    default:
        return r < 0 ? r : 0;
    }
}

/* ---- without a source ring ---- */

static int os_uring_send_direct(int fd, const struct os_uring_message *message)
{
    struct io_uring_sqe sqe;

    memset(&sqe, 0, sizeof(sqe));
    io_uring_prep_rw(IORING_OP_MSG_RING, &sqe, fd, NULL, (unsigned)message->result,
                     message->user_data);
    return os_result(syscall(SYS_io_uring_register, -1, SEND_MSG_RING, &sqe, 1));
}

/* Returns whether messages need no source ring (1) or do (0), or a negative errno. Sends one to an
 * eventfd: only a kernel that supports it refuses with -EBADFD. */
static int os_uring_probe_direct(void)
{
    const struct os_uring_message message = {0};
    int fd = os_eventfd(), r;

    if (fd < 0)
        return fd;
    r = os_uring_send_direct(fd, &message);
    os_close(fd);
    return r == -EBADFD;
}

/* ---- with a source ring ---- */

static int os_uring_source_init(struct io_uring *source)
{
    int r = io_uring_queue_init(OS_URING_MESSAGES_MAX, source, 0);
    struct io_uring_probe *probe;

    if (r < 0)
        return r;
    probe = io_uring_get_probe_ring(source);
    if (!probe || !io_uring_opcode_supported(probe, IORING_OP_MSG_RING)) {
        io_uring_queue_exit(source);
        r = -ENOSYS;
    }
    io_uring_free_probe(probe);
    return r;
}

static void os_uring_source_thread(void *argument)
{
    struct os_uring *ring = argument;

    ring->failure = os_uring_source_init(&ring->source);
}

static int os_uring_source_start(struct os_uring *ring)
{
    struct os_thread *thread;
    int r = os_thread_start(&thread, os_uring_source_thread, ring, "weir-ring");

    if (r < 0)
        return r;
    os_thread_join(thread);
    return ring->failure;
}

/* Assigns failures of this batch to its messages. A failure of an earlier batch comes late if the
 * kernel had deferred that message to the thread of its ring. */
static void os_uring_reap_failures(struct os_uring *ring, struct os_uring_message *messages)
{
    struct io_uring_cqe *cqe;

    while (io_uring_peek_cqe(&ring->source, &cqe) == 0) {
        if (cqe->user_data / OS_URING_MESSAGES_MAX == ring->batch)
            messages[cqe->user_data % OS_URING_MESSAGES_MAX].code = cqe->res;
        ring->failure = cqe->res;
        io_uring_cqe_seen(&ring->source, cqe);
    }
}

static void os_uring_send_from_source(struct os_uring *ring, struct os_uring_message *messages,
                                      unsigned n)
{
    int submitted;

    ring->batch++;
    for (unsigned i = 0; i < n; i++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->source);

        io_uring_prep_rw(IORING_OP_MSG_RING, sqe, ring->fd, NULL, (unsigned)messages[i].result,
                         messages[i].user_data);
        sqe->flags = IOSQE_CQE_SKIP_SUCCESS;
        sqe->user_data = ring->batch * OS_URING_MESSAGES_MAX + i;
        messages[i].code = 0;
    }
    submitted = io_uring_submit(&ring->source);
    os_uring_reap_failures(ring, messages);
    /* Messages that the kernel did not take stay on the source ring, which is not entered again. */
    if (submitted != (int)n)
        ring->failure = submitted < 0 ? submitted : -EAGAIN;
    for (unsigned i = submitted < 0 ? 0 : (unsigned)submitted; i < n; i++)
        messages[i].code = ring->failure;
}

/* ---- common ---- */

static int os_uring_prepare(struct os_uring *ring)
{
    int r = os_uring_run(ring->user_fd), direct;

    if (r < 0)
        return r;
    ring->fd = os_result(fcntl(ring->user_fd, F_DUPFD_CLOEXEC, 0));
    if (ring->fd < 0)
        return ring->fd;
    direct = os_uring_probe_direct();
    ring->sends_direct = direct == 1;
    r = direct == 0 ? os_uring_source_start(ring) : direct;
    if (r < 0)
        syscall(SYS_close, ring->fd);
    return r < 0 ? r : 0;
}

int os_uring_open(struct os_uring **ret, int ring_fd)
{
    struct os_uring *ring = os_alloc(1, sizeof(*ring));
    int r;

    if (!ring)
        return -ENOMEM;
    ring->user_fd = ring_fd;
    r = os_uring_prepare(ring);
    if (r < 0)
        os_free(ring);
    else
        *ret = ring;
    return r;
}

bool os_uring_any_thread(const struct os_uring *ring)
{
    return ring->sends_direct;
}

void os_uring_send(struct os_uring *ring, struct os_uring_message *messages, unsigned n)
{
    if (!ring->failure && os_uring_is_closed(ring))
        ring->failure = -EBADF;
    if (!ring->failure && !ring->sends_direct) {
        os_uring_send_from_source(ring, messages, n);
        return;
    }
    for (unsigned i = 0; i < n; i++) {
        if (!ring->failure)
            ring->failure = os_uring_send_direct(ring->fd, &messages[i]);
        messages[i].code = ring->failure;
    }
}

void os_uring_flush(struct os_uring *ring)
{
    if (!os_uring_is_closed(ring))
        os_uring_run(ring->fd);
}

void os_uring_close(struct os_uring *ring)
{
    if (!ring)
        return;
    if (!ring->sends_direct)
        io_uring_queue_exit(&ring->source);
    syscall(SYS_close, ring->fd);
    os_free(ring);
}

#else

int os_uring_open(struct os_uring **ret, int ring_fd)
{
    (void)ret, (void)ring_fd;
    return -ENOSYS;
}

bool os_uring_any_thread(const struct os_uring *ring)
{
    return !ring;
}

void os_uring_send(struct os_uring *ring, struct os_uring_message *messages, unsigned n)
{
    (void)ring;
    for (unsigned i = 0; i < n; i++)
        messages[i].code = -ENOSYS;
}

void os_uring_flush(struct os_uring *ring)
{
    (void)ring;
}

void os_uring_close(struct os_uring *ring)
{
    (void)ring;
}

#endif
