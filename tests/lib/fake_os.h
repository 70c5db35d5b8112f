/* SPDX-License-Identifier: MIT */
/*
 * A fake in place of core/os/. It does the same by default, and on request makes calls fail,
 * moves the clock by hand, and tells what was done and what is not given back yet. Everything here
 * may be called from any thread; what it tells is exact once no other thread is inside a call.
 */
#ifndef WEIR_TESTS_FAKE_OS_H
#define WEIR_TESTS_FAKE_OS_H

#include <stdbool.h>
#include <stdint.h>

/* Kinds of calls that can fail, and how they do. */
enum fake_kind {
    FAKE_MEMORY = 1u << 0,     /* out of memory */
    FAKE_DESCRIPTOR = 1u << 1, /* making a descriptor: -EMFILE; adding one: -ENOMEM */
    FAKE_THREAD = 1u << 2,     /* starting a thread: -EAGAIN */
    FAKE_FILE = 1u << 3,       /* files and libraries: -EIO; loading: -ENOMEM */
    FAKE_FUTEX = 1u << 4,      /* os_futex_wait returns at once, as if woken for nothing */
    FAKE_EVENT = 1u << 5,      /* arming, signaling, reading, waiting on descriptors: -ENOMEM */
    FAKE_MESSAGE = 1u << 6,    /* a message to a ring: -EOVERFLOW */
    FAKE_ROOM = 1u << 7,       /* giving a file its memory: -ENOSPC */
    FAKE_PROCESS = 1u << 8,    /* asking whether a process exists: -EPERM */
    FAKE_RANDOM = 1u << 9,     /* random numbers that are secret: -EPERM */
    /* What can fail on a healthy system, and is told by an error. */
    FAKE_ANY = FAKE_MEMORY | FAKE_DESCRIPTOR | FAKE_THREAD | FAKE_FILE | FAKE_ROOM
};

/* Calls work, the clock is real, the user is real, and nothing has been counted. What is live
 * stays. */
void fake_os_reset(void);

/* The n-th call (from 1) of FAKE_ANY from now on fails, once. 0: none. */
void fake_os_fail_at(uint64_t n);
/* The same for calls of these kinds, with this negative errno; 0: the kind's own. */
void fake_os_fail_kind_at(uint64_t n, unsigned kinds, int code);
/* The n-th and all later ones. */
void fake_os_fail_kind_from(uint64_t n, unsigned kinds, int code);
/* How many calls of the kinds were made since the last of these three, the failed one included. */
uint64_t fake_os_calls(void);
/* Whether a call was made to fail since then. */
bool fake_os_has_failed(void);

/* How often each call was made since the last reset. */
struct fake_os_counts {
    uint64_t alloc, free;     /* blocks made or grown; blocks freed */
    uint64_t reserve, commit; /* also fork pages */
    uint64_t populate;        /* of more than 16 MiB it has no effect here */
    uint64_t now, tick, wall; /* readings of the clocks */
    uint64_t open, close;     /* descriptors made; closed */
    uint64_t timer_set, epoll_add, epoll_wait;
    uint64_t signal, drain; /* of eventfds, timerfds and pipes */
    uint64_t ring, message; /* rings opened; messages to them, sent or not */
    uint64_t futex_wait, futex_wake;
    uint64_t thread_start, thread_join, thread_id;
    uint64_t file;    /* everything with files and libraries */
    uint64_t process; /* asking whether a process exists */
    uint64_t random;
};
struct fake_os_counts fake_os_counts(void);
/* All of these that enter the kernel: not memory of the heap, not the clocks. */
uint64_t fake_os_system_calls(void);

/* What was obtained through the seam and not given back. */
struct fake_os_live {
    uint64_t blocks, bytes; /* of the heap; bytes as the allocator rounds them */
    uint64_t regions;       /* reserved address ranges and fork pages */
    uint64_t descriptors;
    uint64_t threads; /* started and not joined */
    uint64_t directories;
};
struct fake_os_live fake_os_live(void);

/*
 * The clock by hand, for os_now_ns, os_now_coarse_ns, os_wall_offset_ns, deadlines of futex waits
 * and timerfds. Set it before the instance under test arms anything.
 */
#define FAKE_TICK_NS UINT64_C(4000000)
void fake_clock_set(uint64_t now_ns);
void fake_clock_advance(uint64_t ns);
void fake_clock_set_wall_offset(int64_t offset_ns);
/* The wall clock steps, that of the machine or that by hand, and its listeners hear of it. */
void fake_clock_step_wall(int64_t ns);
/* The machine wakes from a suspension: neither the clock nor that by hand has gone on, but
 * CLOCK_BOOTTIME and the wall clock have. Before the first one CLOCK_BOOTTIME is ahead already. */
#define FAKE_BOOTTIME_AHEAD UINT64_C(500000000000)
void fake_clock_suspend(uint64_t ns);
/* What os_timer_lead says with it: 0, unless this says otherwise. */
void fake_clock_set_lead(uint32_t least_ns, uint32_t most_ns);

/*
 * A time stamp counter by hand, and the clock to go with it. The struct is used until another is
 * set; NULL: the real ones.
 */
struct fake_counter {
    int usable; /* 0, or why it is not */
    uint64_t (*ticks)(void *userdata);
    /* In place of the other clocks; NULL: these go on. What waits until an instant of this clock
     * waits no time at all, and looks at the clock again. */
    uint64_t (*now_ns)(void *userdata);
    void *userdata;
};
void fake_os_set_counter(const struct fake_counter *counter);

/* Whether a timerfd can be rung here. Not with WEIR_WITHOUT_RINGS in the environment: then it is as
 * with kernels that cannot do that. */
bool fake_os_timers_ring(void);

/* What os_user_id() says. */
void fake_os_set_user(uint32_t user);

/* Another boot of the machine, other namespaces of processes and of time; 0: the real ones. */
void fake_os_set_boot(uint64_t id);
void fake_os_set_namespaces(uint64_t pid_id, uint64_t time_id);

#endif
