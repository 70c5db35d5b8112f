/* SPDX-License-Identifier: MIT */
/*
 * A small world for tests: one instance with a clock that is moved by hand, one pool, its first
 * set, and what was logged. Nothing in it sleeps; time passes with advance().
 */
#ifndef WEIR_TESTS_WORLD_H
#define WEIR_TESTS_WORLD_H

#include "lib/backends.h"
#include "lib/clock.h"
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#include <cmocka.h>

#define START (1000 * SECOND) /* the clock's first reading */

#define LOG_MAX 16

struct world {
    weir *w;
    weir_pool *pool;
    weir_set *set;
    _Atomic uint64_t now; /* the thread of an engine reads it as well */
    int64_t wall;
    unsigned logged; /* complaints */
    char log[LOG_MAX][256];
    void (*on_log)(void); /* what the program's callback does; NULL: nothing */
    void (*on_now)(void); /* what it does as the clock is read */
};
extern struct world world;
extern uint64_t world_start; /* START, unless a test sets it before it opens a world */

/* Opens an instance with this configuration text, and its pool or set `name`. The sets are kept by
 * the backend in use (backends.h), unless the text names one. */
void world_open(const char *text, const char *name);
/* The same with one set, `main`, of these fields in YAML's flow style. */
void world_set(const char *fields);
/* The same with these limits only. */
void world_limits(const char *limits);
/* On the system's clock: a timer thread, futexes with deadlines. */
void world_real(const char *fields);
/* Where sets are that processes share: a directory of this process alone. */
const char *world_directory(void);
void world_close(void);

/* Another instance on the same text and clock, as another process would have it; and its end. */
struct twin {
    weir *w;
    weir_pool *pool;
    weir_set *set;
};
struct twin world_twin(const char *name);
void world_twin_close(struct twin *twin);

struct weir_error;

/* Gives the shared set `name` the definition of this configuration text, as a process beside it
 * does. Returns as weir_segment_redefine(). */
int world_redefine(const char *text, const char *name, uint32_t flags, struct weir_error *reterr);

/* An instance of this configuration text is refused, in words that include these. */
void world_refused(const char *text, const char *why);

weir_pool *pool_open(const char *name, uint32_t worker);

/* Moves the clock on and does what is due. Returns how many waiters were decided. */
int advance(uint64_t ns);
/* Waits until everything is known here that an engine has decided; and back. What the calls below
 * do they do with that; a test that calls the library itself does it before it looks at others. */
void settle(void);

/* A request for these amounts: ASK({"key", 3}, {"other", 0}). */
#define ASK(...)                                                                                   \
    (&(struct weir_request){.size = sizeof(struct weir_request),                                   \
                            .amounts = (const struct weir_amount[]){__VA_ARGS__},                  \
                            .amounts_n = sizeof((const struct weir_amount[]){__VA_ARGS__}) /       \
                                         sizeof(struct weir_amount)})
/* A request for nothing in particular. */
#define ASK_DEFAULTS (&(struct weir_request){.size = sizeof(struct weir_request)})

struct weir_request *with_timeout(struct weir_request *request, uint64_t timeout_ns);
struct weir_request *with_max_wait(struct weir_request *request, uint64_t max_wait_ns);
struct weir_request *strict(struct weir_request *request);

/* The calls on world.pool; `refusal` holds what the last one said. */
extern struct weir_refusal refusal;
int take(const struct weir_request *request);
int try_acquire(const struct weir_request *request, weir_acquisition **ret);
int submit(const struct weir_request *request, weir_acquisition **ret);
int reserve(const struct weir_request *request, weir_acquisition **ret, uint64_t *ret_at_ns);
/* They must be granted at once, or pend. */
weir_acquisition *granted(const struct weir_request *request);
weir_acquisition *pending(const struct weir_request *request);
/* Releases what must come back with this result. */
void release_expecting(weir_acquisition *acquisition, int result);
void release(weir_acquisition *acquisition);
/* Releases a grant after it was updated. */
void release_used(weir_acquisition *acquisition, const char *key, uint64_t used);

/* The last refusal forecasts so long a wait, for this limit. Where forecasts are lower bounds it
 * may say less, of another limit or of none. */
void assert_forecast(const char *key, uint64_t retry_after_ns);
/* The forecast of a request is this instant, or an earlier one where forecasts are lower bounds. */
void assert_ready_at(const struct weir_request *request, uint64_t ns);

struct weir_set_stats stats(void);
struct weir_limit_stats limit_stats(size_t limit);
uint64_t available(size_t limit);

/* Everything that can be seen of world.set. */
struct picture {
    struct weir_set_stats set;
    struct weir_limit_stats limits[8];
};
struct picture picture(void);
/* No limit has changed between the two: neither state nor what was granted, held, given back. */
void assert_same_limits(const struct picture *before, const struct picture *after);

/* Whether the acquisition's descriptor is readable. */
bool readable(int fd);

#endif
