/* SPDX-License-Identifier: MIT */
/*
 * The other end of the paced sender: a UDP socket. The kernel stamps its datagrams as they come in,
 * so the time of reading does not matter. A thread reads once every few milliseconds: a reader that
 * woke up for each datagram would disturb the measurement.
 *
 * The kernel stamps by CLOCK_REALTIME, weir's times are those of CLOCK_MONOTONIC. The two run alike
 * and differ by a constant unless the clock is set. That constant is measured before and after, as
 * the narrowest interval that all readings agree with.
 */
#ifndef WEIR_EXAMPLES_RECEIVER_H
#define WEIR_EXAMPLES_RECEIVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* CLOCK_REALTIME less CLOCK_MONOTONIC: lower and upper bound. */
struct clock_offset {
    int64_t low_ns, high_ns;
};

struct arrival {
    uint64_t sequence; /* number in the datagram */
    int64_t real_ns;   /* the kernel's stamp */
};

struct receiver {
    int socket;
    int sender;   /* socket connected to the receiver */
    int complete; /* eventfd, readable once all expected datagrams were read */
    unsigned expected;
    atomic_uint n; /* arrivals so far */
    atomic_bool stop;
    struct arrival *arrivals; /* in order; owner: the caller after receiver_stop */
    struct clock_offset offset;
    pthread_t thread;
    bool running;
};

/*
 * Opens both sockets, makes sure that stamps are the kernel's own, and starts the thread, which
 * takes at most `expected` datagrams of eight bytes. Returns 0 or a negative errno. Call
 * receiver_close in either case.
 */
int receiver_open(struct receiver *receiver, unsigned expected);

bool receiver_is_complete(const struct receiver *receiver);

/* Reads the datagrams that have come in so far and ends the thread. */
void receiver_stop(struct receiver *receiver);
void receiver_close(struct receiver *receiver);

/* Arrivals compared with their forecast times. */
struct lateness {
    unsigned n;         /* arrivals */
    unsigned early;     /* before their time, even by the bounds of the clock offset */
    unsigned repeated;  /* arrivals with the number of another one */
    unsigned overtaken; /* arrivals after one with a higher number */
    int64_t median_ns, p90_ns, max_ns;
};

/* Compares arrivals with `at_ns[i]`, the time of the datagram with number i. Returns 0 or -ENOMEM.
 */
int receiver_compare(const struct receiver *receiver, const uint64_t *at_ns, struct lateness *ret);

/* Returns true if the clock was set in between: then no arrival can be judged. */
bool receiver_lost_time(const struct receiver *receiver);

#endif
