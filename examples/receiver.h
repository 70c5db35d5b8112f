/* SPDX-License-Identifier: MIT */
/*
 * The other end of the paced sender: a UDP socket whose datagrams the kernel stamps as they come
 * in, so that it does not matter when somebody gets to reading them. A thread does, once every few
 * milliseconds: a reader that woke up for each datagram would disturb what is measured.
 *
 * The kernel stamps by CLOCK_REALTIME, weir's instants are those of CLOCK_MONOTONIC. The two run
 * alike and differ by a constant until somebody sets the clock, so that constant is measured before
 * and after, as the narrowest interval that all readings agree with.
 */
#ifndef WEIR_EXAMPLES_RECEIVER_H
#define WEIR_EXAMPLES_RECEIVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What CLOCK_REALTIME is ahead of CLOCK_MONOTONIC: not less and not more than this. */
struct clock_offset {
    int64_t low_ns, high_ns;
};

struct arrival {
    uint64_t sequence; /* what the datagram says */
    int64_t real_ns;   /* the kernel's stamp */
};

struct receiver {
    int socket;
    int sender;   /* a socket that is connected to it */
    int complete; /* an eventfd, readable once all that are expected have been read */
    unsigned expected;
    atomic_uint n; /* arrivals so far */
    atomic_bool stop;
    struct arrival *arrivals; /* in order; the caller's to look at after receiver_stop */
    struct clock_offset offset;
    pthread_t thread;
    bool running;
};

/*
 * Opens both sockets, makes sure that stamps are the kernel's own, and starts the thread; it takes
 * at most `expected` datagrams of eight bytes. Returns 0 or a negative errno; receiver_close is due
 * either way.
 */
int receiver_open(struct receiver *receiver, unsigned expected);

bool receiver_is_complete(const struct receiver *receiver);

/* Reads what has come in by now and ends the thread. */
void receiver_stop(struct receiver *receiver);
void receiver_close(struct receiver *receiver);

/* Arrivals against the instants they should have been at. */
struct lateness {
    unsigned n;     /* arrivals */
    unsigned early; /* surely before their instant: not even the clocks' difference explains it */
    unsigned repeated;  /* with the number of another */
    unsigned overtaken; /* after one with a higher number */
    int64_t median_ns, p90_ns, max_ns;
};

/* `at_ns[i]` is the instant of the datagram that says i. Returns 0 or -ENOMEM. */
int receiver_compare(const struct receiver *receiver, const uint64_t *at_ns, struct lateness *ret);

/* Whether the clock was set in between: then nothing can be said of any arrival. */
bool receiver_lost_time(const struct receiver *receiver);

#endif
