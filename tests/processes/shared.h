/* SPDX-License-Identifier: MIT */
/* For tests of sets that processes share: a directory of segments of their own, and short calls. */
#ifndef WEIR_TESTS_SHARED_H
#define WEIR_TESTS_SHARED_H

#include "lib/clock.h"
#include "lib/require.h"
#include <stdbool.h>
#include <string.h>
#include <sys/types.h>
#include <weir/weir.h>

/* A new directory, in WEIR_TEST_DIRECTORY if that is given, and its removal with all that is in it.
 */
void shared_begin(void);
void shared_end(void);
/* Both as fixtures of cmocka. */
int shared_setup(void **state);
int shared_teardown(void **state);
#define shared_test(function)                                                                      \
    cmocka_unit_test_setup_teardown(function, shared_setup, shared_teardown)
const char *shared_directory(void);
bool shared_is_empty(void);

/* Opens an instance on this configuration text in the directory; ends the process if it cannot. */
weir *shared_open(const char *text);
int shared_try_open(weir **ret, const char *text, struct weir_error *reterr);
weir_pool *shared_pool(weir *w, const char *name);

/* A request for `n` of one key; at most two of them. */
struct shared_request {
    struct weir_amount amounts[2];
    struct weir_request request;
};
const struct weir_request *shared_ask(struct shared_request *memory, const char *key, uint64_t n,
                                      uint64_t timeout_ns);

/* Returns what is held, and how many wait, in the first set of a pool. */
struct weir_set_stats shared_stats(weir_pool *pool);
uint64_t shared_held(weir_pool *pool, size_t limit);

/* Runs `body` in a child, which exits 0 unless it fails, and dies with its parent. */
pid_t shared_fork(void (*body)(void *argument), void *argument);
/* Ends the test, and says why, if a child has failed or crashed that was not waited for. */
void shared_check_children(void);
/* Pauses for a millisecond while the test waits for what a child is to do. */
void shared_pause(void);
/* Waits for it; it must have exited with 0, or been killed by `signal`. */
void shared_wait(pid_t pid, int signal);

/* A pipe to tell one another something. */
struct shared_pipe {
    int fds[2];
};
struct shared_pipe shared_pipe(void);
void shared_tell(const struct shared_pipe *pipe);
void shared_hear(const struct shared_pipe *pipe);
void shared_pipe_close(struct shared_pipe *pipe);

#endif
