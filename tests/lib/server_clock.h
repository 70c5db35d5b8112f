/* SPDX-License-Identifier: MIT */
/*
 * What a test and its Redis server have in common: a file that both map. It says what the time of
 * day is for the server, which takes it from there (fake_time.c).
 */
#ifndef WEIR_TESTS_SERVER_CLOCK_H
#define WEIR_TESTS_SERVER_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>

#define SERVER_CLOCK_FILE "WEIR_TEST_CLOCK" /* environment: its path */

struct server_clock {
    _Atomic uint64_t us;       /* since 1970 */
    _Atomic uint64_t since_ns; /* it goes on from here, of CLOCK_MONOTONIC; 0: it stands */
};

#endif
