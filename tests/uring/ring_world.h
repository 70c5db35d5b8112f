/* SPDX-License-Identifier: MIT */
/*
 * A world for tests of weir/uring.h: a ring of some kind, a slot that is held, tokens, and a pipe
 * that operations write to. Afterwards nothing may be held, missing or left on the ring.
 */
#ifndef WEIR_TESTS_URING_RING_WORLD_H
#define WEIR_TESTS_URING_RING_WORLD_H

#include "rings.h"

#include "lib/fixture.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <weir/weir.h>

#include <cmocka.h>

/* user_data of what a test has on the ring. */
enum { HEAD = 1, OPERATION, SECOND_OPERATION, OTHER, CANCEL, MARK, FREE };

#define ENTRIES    16
#define TOKENS     UINT64_C(1000)
#define PATIENCE   (20 * SECOND) /* longer than anything that will happen takes */
#define FAR        (clock_now() + 60 * SECOND)
#define SOON       (clock_now() + 2 * MS)
#define LONG_SINCE 1

struct ring_world {
    struct weir_uring probed; /* what the kernel can do */
    struct weir_uring uring;  /* and what the test makes use of */
    struct io_uring ring;
    unsigned kind;
    weir *w;
    weir_pool *pool;
    weir_set *set;
    weir_acquisition *holder; /* of the only slot */
    int out[2];               /* the pipe */
    struct weir_uring_wait wait, other_wait;
};
extern struct ring_world world;

/* A test, how often it is run, and which features it cannot do without. */
enum when { ONCE, PER_RING, PER_FORM /* READ and POLL_ADD */, PER_FORM_ON_DEFAULT };

struct ring_case {
    const char *name;
    CMUnitTestFunction function;
    enum when when;
    unsigned needs;
};

#define TEST(function, when, needs)                                                                \
    {                                                                                              \
#function, function, when, needs                                                           \
    }
#define WAIT(function)   TEST(function, PER_FORM, 0)
#define LINKED(function) TEST(function, PER_FORM, WEIR_URING_LINKED)
#define PACED(function)  TEST(function, PER_RING, WEIR_URING_PACED)

/* Runs them. Returns the exit status of the program: 77 if there is no io_uring. */
int world_run(const struct ring_case *cases, size_t n);

/* As weir_submit. */
int submit(uint64_t slots, uint64_t tokens, uint64_t timeout_ns, uint64_t max_wait_ns,
           weir_acquisition **ret);
/* How many bytes operations have written since the last look. */
int written(void);
/* An acquisition of the slot and two tokens that pends behind the holder. */
weir_acquisition *pending(void);
/* The holder gives the slot back: what pends is granted. */
void grant(void);
/* Submits what was prepared. */
void submit_ring(void);
/* The next completion is this. */
void expect(uint64_t user_data, int res);
/* The next completion is of a wait that has found its descriptor readable. */
void expect_woken(uint64_t user_data);
/* Nothing has completed, as of what the kernel had to do before this. */
void expect_nothing(void);
/* An operation that writes one byte to the pipe. */
struct io_uring_sqe *prepare_write(uint64_t user_data);
/* The head of a chain, in world.wait. */
void prepare_linked(weir_acquisition *acquisition, uint64_t deadline_ns, unsigned next);
/* A chain of one operation, submitted. */
void link_write(weir_acquisition *acquisition, uint64_t deadline_ns);
/* Cancels on the ring. */
void cancel(uint64_t target);
/* Two completions in either order. */
void expect_both(uint64_t user_data, int res, uint64_t other, int other_res);
/* The chain has ended with its operation: it ran once and the grant is the program's. */
void expect_ran(weir_acquisition *acquisition);
/* The chain has ended without its operation, and weir_uring_settle returns `code`. */
void settle_unused(weir_acquisition *acquisition, int code);
/* Nothing was used, if there was a grant at all. */
void release_unused(weir_acquisition *acquisition);
/* How often the set has granted. */
uint64_t granted_n(void);
/* Leaves room for n SQEs. */
void fill_ring(unsigned n);
/* Submits what that has left and awaits it. */
void empty_ring(void);

#endif
