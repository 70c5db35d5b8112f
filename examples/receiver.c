/* SPDX-License-Identifier: MIT */
/* Receives UDP datagrams with the kernel's stamps, and compares these with the clock. */
#include "receiver.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S         INT64_C(1000000000)
#define READ_EVERY_NS    5000000
#define BUFFER_BYTES     (1 << 20)
#define OFFSET_READINGS  1000
#define WARM_UP_TRIES    500
#define WARM_UP_SLEEP_NS 2000000

/* ---- clocks ---- */

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* Narrows the interval by readings of one clock between two of the other. */
static void measure_offset(struct clock_offset *offset)
{
    for (int i = 0; i < OFFSET_READINGS; i++) {
        int64_t before = clock_ns(CLOCK_MONOTONIC);
        int64_t real = clock_ns(CLOCK_REALTIME);
        int64_t after = clock_ns(CLOCK_MONOTONIC);

        if (real - after > offset->low_ns)
            offset->low_ns = real - after;
        if (real - before < offset->high_ns)
            offset->high_ns = real - before;
    }
}

bool receiver_lost_time(const struct receiver *r)
{
    return r->offset.low_ns > r->offset.high_ns;
}

/* ---- sockets ---- */

static void pause_ns(long ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* Reads one datagram if there is one. Returns its length, or a negative errno. */
static ssize_t read_one(int socket, struct arrival *ret)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(struct timespec))];
    } control;
    struct iovec bytes = {&ret->sequence, sizeof(ret->sequence)};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(socket, &message, MSG_DONTWAIT);
    struct timespec stamp;

    if (n < 0)
        return -errno;
    if (n != sizeof(ret->sequence))
        ret->sequence = UINT64_MAX;
    ret->real_ns = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
            memcpy(&stamp, CMSG_DATA(c), sizeof(stamp));
            ret->real_ns = (int64_t)stamp.tv_sec * NS_PER_S + stamp.tv_nsec;
        }
    return n;
}

/*
 * Waits until the kernel stamps on arrival, which begins some time after the request. Until then a
 * datagram is stamped when it is read; here that is well after its arrival, so it shows.
 */
static int warm_up(struct receiver *r)
{
    const uint64_t nothing = UINT64_MAX; /* not the number of a packet */

    for (int i = 0; i < WARM_UP_TRIES; i++) {
        int64_t sent_ns = clock_ns(CLOCK_REALTIME);
        struct arrival arrival;
        ssize_t n;

        if (send(r->sender, &nothing, sizeof(nothing), 0) < 0)
            return -errno;
        pause_ns(WARM_UP_SLEEP_NS);
        n = read_one(r->socket, &arrival);
        if (n < 0 && n != -EAGAIN)
            return (int)n;
        if (n >= 0 && arrival.real_ns != 0 && arrival.real_ns - sent_ns < WARM_UP_SLEEP_NS / 2)
            return 0;
    }
    return -EPROTO;
}

static int open_sockets(struct receiver *r)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int bytes = BUFFER_BYTES; /* the system may allow less */

    r->socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    r->sender = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    r->complete = eventfd(0, EFD_CLOEXEC);
    if (r->socket < 0 || r->sender < 0 || r->complete < 0 ||
        setsockopt(r->socket, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) != 0 ||
        setsockopt(r->socket, SOL_SOCKET, SO_TIMESTAMPNS, &(int){1}, sizeof(int)) != 0 ||
        bind(r->socket, (struct sockaddr *)&address, length) != 0 ||
        getsockname(r->socket, (struct sockaddr *)&address, &length) != 0 ||
        connect(r->sender, (struct sockaddr *)&address, length) != 0)
        return -errno;
    return 0;
}

/* ---- the thread ---- */

/* Reads all datagrams, also one more than expected, which is an error. */
static void read_all(struct receiver *r)
{
    unsigned n = atomic_load_explicit(&r->n, memory_order_relaxed);

    while (n <= r->expected && read_one(r->socket, &r->arrivals[n]) >= 0)
        if (r->arrivals[n].sequence < r->expected) /* other numbers are not from the sender */
            n++;
    atomic_store_explicit(&r->n, n, memory_order_release);
}

static void *receive(void *argument)
{
    struct receiver *r = argument;

    while (!receiver_is_complete(r) && !atomic_load(&r->stop)) {
        pause_ns(READ_EVERY_NS);
        read_all(r);
    }
    eventfd_write(r->complete, 1);
    return NULL;
}

bool receiver_is_complete(const struct receiver *r)
{
    return atomic_load_explicit(&r->n, memory_order_acquire) >= r->expected;
}

int receiver_open(struct receiver *r, unsigned expected)
{
    int e;

    *r = (struct receiver){.socket = -1, .sender = -1, .complete = -1, .expected = expected};
    r->offset = (struct clock_offset){INT64_MIN, INT64_MAX};
    r->arrivals = calloc((size_t)expected + 1, sizeof(*r->arrivals));
    if (!r->arrivals)
        return -ENOMEM;
    e = open_sockets(r);
    if (e == 0)
        e = warm_up(r);
    if (e < 0)
        return e;
    measure_offset(&r->offset);
    e = -pthread_create(&r->thread, NULL, receive, r);
    r->running = e == 0;
    return e;
}

void receiver_stop(struct receiver *r)
{
    if (!r->running)
        return;
    atomic_store(&r->stop, true);
    pthread_join(r->thread, NULL);
    r->running = false;
    read_all(r); /* datagrams since the last read of the thread */
    measure_offset(&r->offset);
}

void receiver_close(struct receiver *r)
{
    const int fds[] = {r->socket, r->sender, r->complete};

    receiver_stop(r);
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(r->arrivals);
}

/* ---- figures ---- */

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

int receiver_compare(const struct receiver *r, const uint64_t *at_ns, struct lateness *ret)
{
    unsigned n = atomic_load(&r->n);
    int64_t *late_ns = calloc((size_t)n + 1, sizeof(*late_ns));
    bool *seen = calloc(r->expected, sizeof(*seen));
    int64_t width_ns = r->offset.high_ns - r->offset.low_ns;

    if (!late_ns || !seen) {
        free(late_ns);
        free(seen);
        return -ENOMEM;
    }
    *ret = (struct lateness){.n = n};
    for (unsigned i = 0; i < n; i++) {
        const struct arrival *a = &r->arrivals[i];
        int64_t at_most_ns = a->real_ns - r->offset.low_ns - (int64_t)at_ns[a->sequence];

        late_ns[i] = at_most_ns - width_ns / 2;
        ret->early += at_most_ns < 0;
        ret->repeated += seen[a->sequence];
        ret->overtaken += i > 0 && a->sequence < a[-1].sequence;
        seen[a->sequence] = true;
    }
    qsort(late_ns, n, sizeof(*late_ns), compare);
    if (n > 0) {
        ret->median_ns = late_ns[n / 2];
        ret->p90_ns = late_ns[n * 9 / 10];
        ret->max_ns = late_ns[n - 1];
    }
    free(late_ns);
    free(seen);
    return 0;
}
