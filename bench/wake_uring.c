/* SPDX-License-Identifier: MIT */
/* Implements the ways of waiting on an io_uring. */
#include "wake.h"

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <weir/uring.h>

enum { ENTRIES = 8 };

/* user_data of the operations. */
enum { WAIT = 1, OPERATION, MESSAGE, SENT };

/* The deadline of a linked wait. */
#define FAR_NS (3600000 * MS)

struct rings {
    struct io_uring waiter, giver;
    bool waiter_open, giver_open;
    struct weir_uring weir;
    struct weir_uring_wait wait;
};

/* ---- rings ---- */

static int rings_new(struct hand *hand)
{
    hand->rings = calloc(1, sizeof(*hand->rings));
    return hand->rings ? 0 : -ENOMEM;
}

/* Opens the kind of ring that wakes its owner most cheaply, if the kernel has it. */
static int ring_open(struct hand *hand)
{
    int r = hand->rings ? 0 : rings_new(hand);

    if (r < 0)
        return r;
    r = io_uring_queue_init(ENTRIES, &hand->rings->waiter,
                            IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
    if (r == -EINVAL)
        r = io_uring_queue_init(ENTRIES, &hand->rings->waiter, 0);
    hand->rings->waiter_open = r == 0;
    return r;
}

static void ring_close(struct hand *hand)
{
    if (!hand->rings)
        return;
    if (hand->rings->waiter_open)
        io_uring_queue_exit(&hand->rings->waiter);
    if (hand->rings->giver_open)
        io_uring_queue_exit(&hand->rings->giver);
    free(hand->rings);
    hand->rings = NULL;
}

static struct io_uring_sqe *ring_sqe(struct io_uring *ring)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

    require(sqe);
    return sqe;
}

/* Content of a CQE. */
struct event {
    uint64_t user_data;
    int res;
    unsigned flags;
};

/* Submits, sleeps for a completion and takes it. */
static struct event ring_wait(struct io_uring *ring)
{
    struct io_uring_cqe *cqe;
    struct event event;
    int r;

    do /* a timeout on the ring ends the wait, perhaps before what is linked to it has completed */
        r = io_uring_submit_and_wait(ring, 1);
    while (r == -EINTR || (r >= 0 && io_uring_peek_cqe(ring, &cqe) == -EAGAIN));
    require(r >= 0);
    event = (struct event){cqe->user_data, cqe->res, cqe->flags};
    io_uring_cqe_seen(ring, cqe);
    return event;
}

/* ---- READ of an eventfd ---- */

static int event_ring_open(struct hand *hand)
{
    int r = event_open(hand);

    return r < 0 ? r : ring_open(hand);
}

static void event_ring_close(struct hand *hand)
{
    ring_close(hand);
    fds_close(hand);
}

static struct io_uring_sqe *read_prepare(struct hand *hand)
{
    struct rings *rings = hand->rings;
    struct io_uring_sqe *sqe = ring_sqe(&rings->waiter);

    io_uring_prep_read(sqe, hand->event_fd, &rings->wait.count, sizeof(rings->wait.count), 0);
    return sqe;
}

static void read_ask(struct hand *hand)
{
    read_prepare(hand);
}

static void read_wait(struct hand *hand)
{
    require(ring_wait(&hand->rings->waiter).res == sizeof(hand->rings->wait.count));
    require(hand->rings->wait.count == 1);
}

static const struct way raw_read = {
    .name = "raw eventfd, io_uring READ",
    .open = event_ring_open,
    .ask = read_ask,
    .wait = read_wait,
    .settle = nothing,
    .close = event_ring_close,
    .hold = nothing,
    .give = event_give,
};

static int weir_ring_open(struct hand *hand)
{
    int r = ring_open(hand);

    return r < 0 ? r : weir_uring_probe(&hand->rings->weir);
}

static void fd_ring_ask(struct hand *hand)
{
    struct rings *rings = hand->rings;

    require(weir_submit(hand->pool, NULL, &hand->got, NULL) >= 0);
    require(weir_uring_prep_wait(&rings->weir, &rings->waiter, &rings->wait, hand->got, WAIT) == 0);
}

static void fd_ring_wait(struct hand *hand)
{
    struct event event = ring_wait(&hand->rings->waiter);

    require(event.user_data == WAIT && event.res > 0);
    require(weir_acquisition_result(hand->got) == 0);
}

static const struct way fd_ring = {
    .name = "acquisition fd, io_uring",
    .baseline = &raw_read,
    .open = weir_ring_open,
    .ask = fd_ring_ask,
    .wait = fd_ring_wait,
    .settle = weir_settle,
    .close = ring_close,
    .hold = weir_hold,
    .give = weir_give,
};

/* ---- multishot poll ---- */

static int event_multishot_open(struct hand *hand)
{
    int r = event_ring_open(hand);

    if (r == 0)
        io_uring_prep_poll_multishot(ring_sqe(&hand->rings->waiter), hand->event_fd, POLLIN);
    return r;
}

static void event_multishot_wait(struct hand *hand)
{
    struct event event = ring_wait(&hand->rings->waiter);

    require(event.res > 0 && event.res & POLLIN && event.flags & IORING_CQE_F_MORE);
    event_drain(hand);
}

static const struct way raw_multishot = {
    .name = "raw eventfd, multishot poll, then read",
    .open = event_multishot_open,
    .ask = nothing,
    .wait = event_multishot_wait,
    .settle = nothing,
    .close = event_ring_close,
    .hold = nothing,
    .give = event_give,
};

static int queue_multishot_prepare(struct hand *hand)
{
    struct rings *rings = hand->rings;

    return weir_uring_prep_queue(&rings->weir, &rings->waiter, hand->queue, WAIT);
}

static int queue_multishot_open(struct hand *hand)
{
    int r = weir_ring_open(hand);

    if (r == 0)
        r = queue_open(hand);
    return r < 0 ? r : queue_multishot_prepare(hand);
}

static void queue_multishot_wait(struct hand *hand)
{
    struct event event;

    do {
        event = ring_wait(&hand->rings->waiter);
        require(event.user_data == WAIT && event.res > 0);
        if (!(event.flags & IORING_CQE_F_MORE))
            require(queue_multishot_prepare(hand) == 0);
    } while (!queue_reap(hand));
}

/* Closes the ring, and with it the poll, before the queue. */
static void queue_multishot_close(struct hand *hand)
{
    ring_close(hand);
    queue_close(hand);
}

const struct way way_queue_multishot = {
    .name = "completion queue, multishot poll",
    .baseline = &raw_multishot,
    .open = queue_multishot_open,
    .ask = queue_ask,
    .wait = queue_multishot_wait,
    .settle = weir_settle,
    .close = queue_multishot_close,
    .hold = weir_hold,
    .give = weir_give,
};

/* ---- a linked wait: from the hand-over the kernel goes on by itself, here to a NOP ---- */

/* Checks support of linked waits, and the clock of absolute timeouts. */
static int link_supported(struct hand *hand)
{
    if (!(hand->rings->waiter.features & IORING_FEAT_CQE_SKIP))
        return -EOPNOTSUPP;
    return weir_uring_probe(&hand->rings->weir);
}

static void set_instant(struct rings *rings, uint64_t at_ns)
{
    weir_uring_set_instant_(&rings->weir, &rings->wait, at_ns);
}

static int link_open(struct hand *hand)
{
    int r = event_ring_open(hand);

    return r < 0 ? r : link_supported(hand);
}

static void link_operation(struct hand *hand)
{
    struct io_uring_sqe *sqe = ring_sqe(&hand->rings->waiter);

    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data64(sqe, OPERATION);
}

static void link_ask(struct hand *hand)
{
    const unsigned flags = IOSQE_IO_LINK | IOSQE_CQE_SKIP_SUCCESS;
    struct rings *rings = hand->rings;
    struct io_uring_sqe *sqe = read_prepare(hand);

    sqe->flags |= flags;
    set_instant(rings, clock_now() + FAR_NS);
    sqe = ring_sqe(&rings->waiter);
    io_uring_prep_link_timeout(sqe, &rings->wait.at, IORING_TIMEOUT_ABS);
    sqe->flags |= flags;
    link_operation(hand);
}

static void link_wait(struct hand *hand)
{
    struct event event = ring_wait(&hand->rings->waiter);

    require(event.user_data == OPERATION && event.res == 0);
}

static const struct way raw_link = {
    .name = "raw eventfd, linked READ",
    .open = link_open,
    .ask = link_ask,
    .wait = link_wait,
    .settle = nothing,
    .close = event_ring_close,
    .hold = nothing,
    .give = event_give,
};

static int weir_link_open(struct hand *hand)
{
    int r = weir_ring_open(hand);

    return r < 0 ? r : link_supported(hand);
}

static void weir_link_ask(struct hand *hand)
{
    struct rings *rings = hand->rings;

    require(weir_submit(hand->pool, NULL, &hand->got, NULL) >= 0);
    require(weir_uring_prep_linked_wait(&rings->weir, &rings->waiter, &rings->wait, hand->got,
                                        clock_now() + FAR_NS, WAIT, 1) == 0);
    link_operation(hand);
}

static void weir_link_wait(struct hand *hand)
{
    link_wait(hand);
    require(weir_uring_settle(&hand->got, true) == 0);
}

static const struct way weir_link = {
    .name = "acquisition, linked wait",
    .baseline = &raw_link,
    .open = weir_link_open,
    .ask = weir_link_ask,
    .wait = weir_link_wait,
    .settle = weir_settle,
    .close = ring_close,
    .hold = weir_hold,
    .give = weir_give,
};

/* ---- a TIMEOUT on the ring, after which the kernel goes on by itself ---- */

static void instant_ask(struct hand *hand)
{
    struct rings *rings = hand->rings;
    struct io_uring_sqe *sqe = ring_sqe(&rings->waiter);

    set_instant(rings, hand->due_ns);
    io_uring_prep_timeout(sqe, &rings->wait.at, 0,
                          IORING_TIMEOUT_ABS | IORING_TIMEOUT_ETIME_SUCCESS);
    sqe->flags |= IOSQE_IO_LINK | IOSQE_CQE_SKIP_SUCCESS;
    link_operation(hand);
}

static int ring_link_open(struct hand *hand)
{
    int r = ring_open(hand);

    return r < 0 ? r : link_supported(hand);
}

const struct way way_raw_instant = {
    .open = ring_link_open,
    .ask = instant_ask,
    .wait = link_wait,
    .settle = nothing,
    .close = ring_close,
};

static void reserve_ask(struct hand *hand)
{
    struct rings *rings = hand->rings;

    require(weir_reserve(hand->pool, NULL, &hand->got, &hand->due_ns, NULL) == 0);
    require(weir_uring_prep_paced(&rings->weir, &rings->waiter, &rings->wait, hand->due_ns, WAIT,
                                  1) == 0);
    link_operation(hand);
}

const struct way way_reservation = {
    .open = weir_link_open,
    .ask = reserve_ask,
    .wait = weir_link_wait,
    .settle = weir_settle,
    .close = ring_close,
};

/* ---- MSG_RING ---- */

static bool ring_knows(struct io_uring *ring, int operation)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    bool knows = probe && io_uring_opcode_supported(probe, operation);

    io_uring_free_probe(probe);
    return knows;
}

static int giver_ring_open(struct hand *hand)
{
    int r = rings_new(hand);

    if (r == 0)
        r = io_uring_queue_init(ENTRIES, &hand->rings->giver, 0);
    if (r < 0)
        return r;
    hand->rings->giver_open = true;
    return ring_knows(&hand->rings->giver, IORING_OP_MSG_RING) ? 0 : -EOPNOTSUPP;
}

static void message_give(struct hand *hand)
{
    struct rings *rings = hand->rings;
    struct io_uring_sqe *sqe = ring_sqe(&rings->giver);

    io_uring_prep_msg_ring(sqe, rings->waiter.ring_fd, 0, MESSAGE, 0);
    sqe->user_data = SENT;
    require(io_uring_submit(&rings->giver) == 1);
}

/* Requires that the previous message was sent. */
static void message_sent(struct hand *hand)
{
    struct io_uring_cqe *cqe;

    while (io_uring_peek_cqe(&hand->rings->giver, &cqe) == 0) {
        require(cqe->user_data == SENT && cqe->res == 0);
        io_uring_cqe_seen(&hand->rings->giver, cqe);
    }
}

static void message_wait(struct hand *hand)
{
    struct event event = ring_wait(&hand->rings->waiter);

    require(event.user_data == MESSAGE && event.res == 0);
}

static const struct way raw_message = {
    .name = "raw MSG_RING",
    .open = ring_open,
    .ask = nothing,
    .wait = message_wait,
    .settle = nothing,
    .close = ring_close,
    .open_giver = giver_ring_open,
    .hold = message_sent,
    .give = message_give,
};

static int attached_open(struct hand *hand)
{
    int r = ring_open(hand);

    if (r == 0)
        r = queue_open(hand);
    if (r == 0)
        r = weir_queue_attach(hand->queue, hand->rings->waiter.ring_fd);
    return r == 1 ? -EOPNOTSUPP : r;
}

static void attached_ask(struct hand *hand)
{
    require(weir_queue_submit(hand->queue, hand->pool, NULL, MESSAGE, &hand->got, NULL) == 0);
}

static void attached_close(struct hand *hand)
{
    if (hand->queue)
        require(weir_queue_detach(hand->queue) == 0);
    ring_close(hand);
    queue_close(hand);
}

const struct way way_attached = {
    .name = "completion queue, attached ring",
    .baseline = &raw_message,
    .open = attached_open,
    .ask = attached_ask,
    .wait = message_wait,
    .settle = weir_settle,
    .close = attached_close,
    .hold = weir_hold,
    .give = weir_give,
};

const struct way *const uring_ways[] = {
    &raw_read,    &fd_ring,      &raw_multishot, &way_queue_multishot, &raw_link, &weir_link,
    &raw_message, &way_attached, NULL,
};
