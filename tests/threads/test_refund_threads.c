/* SPDX-License-Identifier: MIT */
/*
 * Threads that acquire from one limit with strict refunds, hold what they got until the bucket is
 * full again, use some or nothing of it, return parts early, or never look at their grant. What was
 * used keeps the bound of the limit between any two instants, by a clock around the calls: wherever
 * the state is, whatever the clock, and whichever threads meet. Long form: WEIR_ROUNDS.
 */
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/history.h"
#include "lib/random.h"
#include "lib/require.h"
#include "lib/tmpdir.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>
#include <weir/weir.h>

#include "lib/clock.h"
#include <cmocka.h>

enum { THREADS = 4, BURST = 50 };
#define UNIT_NS  (20 * US)
#define ROUND_NS (150 * MS)

#define LIMIT(algorithm)                                                                           \
    "{ type: rate, key: k, algorithm: " algorithm ", capacity: 50, window: 1ms, refund: strict }"
#define SHARED "backend: process, lifetime: users, "

static const struct place {
    const char *clock, *fields;
} places[] = {
    {"monotonic", "limits: [ " LIMIT("gcra") " ]"},
    {"tsc", "limits: [ " LIMIT("gcra") " ]"},
    {"monotonic",
     "limits: [ " LIMIT("token_bucket") ", { type: resource, key: r, capacity: 99 } ]"},
    {"monotonic", SHARED "limits: [ " LIMIT("gcra") " ]"},
    {"monotonic", SHARED "limits: [ " LIMIT("leaky_bucket") " ]"},
    {"monotonic", "subjects: { max: 4 }, limits: [ " LIMIT("gcra") " ]"},
    {"monotonic", SHARED "subjects: { max: 4 }, limits: [ " LIMIT("token_bucket") " ]"},
};

static weir *w;
static weir_pool *pool;
static uint64_t end_ns;

struct worker {
    pthread_t thread;
    uint64_t random;
    struct history history;
};

static struct weir_request ask(const struct weir_amount *amount, struct worker *worker)
{
    return (struct weir_request){.size = sizeof(struct weir_request),
                                 .amounts = amount,
                                 .amounts_n = 1,
                                 .subject = "s",
                                 .subject_size = 1,
                                 .timeout_ns = 1 + random_below(&worker->random, 2 * MS)};
}

/* Never looked at: what was granted of it is all refunded. */
static void ask_and_forget(struct worker *worker, const struct weir_request *request)
{
    weir_acquisition *acquisition = NULL;

    if (weir_submit(pool, request, &acquisition, NULL) < 0)
        return;
    pause_ns(random_below(&worker->random, 2 * MS));
    if (random_chance(&worker->random, 50))
        weir_cancel(acquisition);
    weir_release(&acquisition);
}

static int acquire(struct worker *worker, const struct weir_request *request,
                   weir_acquisition **ret)
{
    return random_chance(&worker->random, 70) ? weir_try_acquire(pool, request, ret, NULL)
                                              : weir_acquire(pool, request, ret, NULL);
}

/* In parts, each as of its own time. Something is left to be updated. */
static void return_some(struct worker *worker, weir_acquisition *acquisition, uint64_t unused)
{
    while (unused > 1) {
        uint64_t n = random_below(&worker->random, unused);

        require(weir_return(acquisition, "k", n) == 0);
        unused -= n;
        if (random_chance(&worker->random, 50))
            return;
        pause_ns(random_below(&worker->random, MS));
    }
}

static void turn(struct worker *worker)
{
    const struct weir_amount amount = {"k", 1 + random_below(&worker->random, BURST)};
    struct weir_request request = ask(&amount, worker);
    struct event event = {.lo = clock_now()};
    weir_acquisition *acquisition = NULL;
    uint64_t used;

    if (random_chance(&worker->random, 10)) {
        ask_and_forget(worker, &request);
        return;
    }
    if (acquire(worker, &request, &acquisition) < 0) {
        if (random_chance(&worker->random, 20))
            pause_ns(random_below(&worker->random, 2 * MS));
        return;
    }
    event.hi = clock_now();
    event.lo = event.lo > 2 * US ? event.lo - 2 * US : 0; /* as late as clock: tsc may be */
    used =
        random_chance(&worker->random, 60) ? 0 : random_below(&worker->random, amount.amount + 1);
    event.amounts[0] = (uint32_t)used;
    if (random_chance(&worker->random, 50))
        pause_ns(random_below(&worker->random, 3 * MS));
    if (random_chance(&worker->random, 30))
        return_some(worker, acquisition, amount.amount - used);
    require(weir_update(acquisition, "k", used) == 0);
    require(weir_release(&acquisition) == 0);
    if (used > 0)
        history_add(&worker->history, &event);
}

static void *work(void *argument)
{
    struct worker *worker = argument;

    while (clock_now() < end_ns)
        turn(worker);
    return NULL;
}

static void open_place(const struct place *place, const char *directory)
{
    char text[512];
    struct weir_error error = {0};
    const struct weir_options options = {
        .size = sizeof(options), .text = text, .process_dir = directory};

    snprintf(text, sizeof(text), "version: 1\nclock: %s\nsets: { main: { %s } }\n", place->clock,
             place->fields);
    if (weir_open(&w, &options, &error) < 0)
        fail_msg("%s", error.message);
    assert_int_equal(weir_pool_open(&pool, w, "main", 0, NULL), 0);
}

static void run_place(const struct place *place, const char *directory, uint64_t seed)
{
    struct worker workers[THREADS] = {0};
    struct history all = {0};

    open_place(place, directory);
    end_ns = clock_now() + ROUND_NS;
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].random = random_case(seed, i);
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        history_merge(&all, &workers[i].history);
    }
    if (!history_keeps_rate(&all, 0, BURST, 1, UNIT_NS))
        fail_msg("clock: %s, %s", place->clock, place->fields);
    history_free(&all);
    weir_pool_close(pool);
    weir_close(w);
}

static void what_is_used_keeps_the_bound(void **state)
{
    char directory[TMPDIR_SIZE];

    (void)state;
    assert_true(tmpdir_make(directory, NULL));
    for (uint64_t round = 0; round < effort_from("WEIR_ROUNDS", 1); round++)
        for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
            run_place(&places[i], directory, random_case(test_seed, round * 100 + i));
    rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {leak_checked_test(what_is_used_keeps_the_bound)};

    seed_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
