/* SPDX-License-Identifier: MIT */
/*
 * The system under the crash tests: the real one, except that the region is memory that forked
 * children share, every reading of the clock is later than all before it, in any process, futexes
 * work between processes, and every step of the core can be interrupted.
 */
#ifndef WEIR_TESTS_CRASH_SYSTEM_H
#define WEIR_TESTS_CRASH_SYSTEM_H

/* ThreadSanitizer loses its way when stacks are changed under it, and a step through its own
 * instructions takes for ever. */
#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif
#ifndef UNDER_TSAN
#define UNDER_TSAN 0
#endif

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LOG_MAX 65536u

/* An entry of the log of grants. */
struct grant {
    uint64_t since, granted;
    uint32_t set;
};

/* What all processes of a test share, beside the region. */
struct shared {
    _Atomic uint64_t clock;     /* the last reading, ns */
    _Atomic uint64_t logged;    /* grants, in `log` modulo its size */
    _Atomic uint64_t turns;     /* that workers made */
    _Atomic uint64_t overslept; /* sleepers that no thread woke */
    struct grant log[LOG_MAX];
};

extern struct shared *shared;

/* The clock follows the system's if true; else it moves by 1 ns at each reading. */
extern bool clock_is_real;

/* What SCHED_POINT() does; NULL: nothing. */
extern void (*step_hook)(void);
/* In place of the futex calls, unless NULL. */
extern int (*wait_hook)(const uint32_t *word, uint32_t expected, uint64_t until_ns);
extern void (*wake_hook)(const uint32_t *word);

/* Maps `shared`; before everything else. False: no memory. */
bool system_start(void);

/* The process is sent `signal` at its n-th step from now. 0: never. */
void system_signal_at(uint64_t n, int signal);
#endif
