/* SPDX-License-Identifier: MIT */
/*
 * Cancellation tokens and everything that they race with: calls that are about to block, grants,
 * timeouts, other calls of weir_token_cancel. Each blocked call returns, with a grant or with the
 * reason, and nothing is held or waits in the end. Long form: WEIR_ROUNDS.
 */
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/random.h"
#include "lib/require.h"
#include "lib/tmpdir.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>
#include <weir/weir.h>

#include "lib/clock.h"
#include <cmocka.h>

enum { BLOCKED_N = 3, CANCELERS_N = 2 };
#define ROUNDS     200
#define LONG_AFTER (20 * SECOND) /* a call that nothing ends fails then */

#define SLOTS  "limits: [ { type: resource, key: slots, capacity: 1 } ]"
#define SHARED "backend: process, lifetime: users, "

static const char *const places[] = {
    SLOTS,
    "limits: [ { type: resource, key: slots, capacity: 1 }, { type: rate, key: k, algorithm: gcra, "
    "capacity: 9, window: 1s } ]",
    "subjects: { max: 4 }, " SLOTS,
    SHARED SLOTS,
    SHARED "subjects: { max: 4 }, " SLOTS,
};

static weir *w;
static weir_pool *pool;
static weir_token *token;
static pthread_barrier_t barrier;
static _Atomic unsigned canceled_n, granted_n, ended_n;

static int acquire(weir_token *by, uint64_t timeout_ns, weir_acquisition **ret)
{
    const struct weir_request request = {.size = sizeof(request),
                                         .amounts = &(struct weir_amount){"slots", 1},
                                         .amounts_n = 1,
                                         .subject = "s",
                                         .subject_size = 1,
                                         .timeout_ns = timeout_ns,
                                         .token = by};

    return weir_acquire(pool, &request, ret, NULL);
}

/* Some of them have a deadline at about the time of the cancel. */
static void *block(void *argument)
{
    uint64_t random = *(uint64_t *)argument;
    uint64_t timeout_ns =
        random_below(&random, 4) == 0 ? 1 + random_below(&random, 200 * US) : LONG_AFTER;
    weir_acquisition *a = NULL;
    int r;

    pthread_barrier_wait(&barrier);
    r = acquire(token, timeout_ns, &a);
    require(r == 0 || r == -ECANCELED || (r == -ETIMEDOUT && timeout_ns < LONG_AFTER));
    require((r == 0) == (a != NULL));
    atomic_fetch_add(&canceled_n, r == -ECANCELED);
    atomic_fetch_add(&granted_n, r == 0);
    require(weir_release(&a) == 0);
    require(r == 0 || weir_token_is_canceled(token) || r == -ETIMEDOUT);
    return NULL;
}

static void *cancel(void *argument)
{
    uint64_t random = *(uint64_t *)argument;
    uint64_t spins = random_below(&random, 20000);
    int r;

    pthread_barrier_wait(&barrier);
    for (volatile uint64_t i = 0; i < spins; i++)
        ;
    r = weir_token_cancel(token);
    require(r >= 0);
    atomic_fetch_add(&ended_n, (unsigned)r);
    require(acquire(token, LONG_AFTER, NULL) == -EINVAL);
    return NULL;
}

/* A holder releases at about the time of the cancel, so that the head is granted. */
static void play(uint64_t *random)
{
    uint64_t seeds[BLOCKED_N + CANCELERS_N], spins = random_below(random, 20000);
    pthread_t threads[BLOCKED_N + CANCELERS_N];
    weir_acquisition *holder = NULL;

    require(weir_token_open(&token, w) == 0);
    require(acquire(NULL, LONG_AFTER, &holder) == 0);
    for (unsigned i = 0; i < BLOCKED_N + CANCELERS_N; i++) {
        seeds[i] = random_next(random);
        require(pthread_create(&threads[i], NULL, i < BLOCKED_N ? block : cancel, &seeds[i]) == 0);
    }
    pthread_barrier_wait(&barrier);
    for (volatile uint64_t i = 0; i < spins; i++)
        ;
    if (random_below(random, 2))
        require(weir_release(&holder) == 0);
    for (unsigned i = 0; i < BLOCKED_N + CANCELERS_N; i++)
        pthread_join(threads[i], NULL);
    require(weir_release(&holder) == 0);
    token = weir_token_close(token);
}

static void open_place(const char *fields, const char *directory)
{
    char text[1024];
    struct weir_options options = {.size = sizeof(options), .text = text, .process_dir = directory};
    struct weir_error error = {0};

    snprintf(text, sizeof(text), "version: 1\nsets: { main: { %s } }\n", fields);
    if (weir_open(&w, &options, &error) < 0)
        fail_msg("%s", error.message);
    assert_int_equal(weir_pool_open(&pool, w, "main", 0, NULL), 0);
}

static void every_blocked_call_returns(void **state)
{
    char directory[TMPDIR_SIZE];
    uint64_t random;

    (void)state;
    seed_begin();
    random = test_seed;
    assert_true(tmpdir_make(directory, NULL));
    pthread_barrier_init(&barrier, NULL, BLOCKED_N + CANCELERS_N + 1);
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        struct weir_set_stats stats = {.size = sizeof(stats)};
        struct weir_limit_stats limit;

        open_place(places[i], directory);
        canceled_n = granted_n = ended_n = 0;
        /* On a busy machine most rounds may end one way: both ends are waited for. */
        for (uint64_t left = effort_from("WEIR_ROUNDS", 1) * ROUNDS;
             left > 0 || !canceled_n || !granted_n; left -= left > 0)
            play(&random);
        assert_true(weir_set_stats(weir_pool_set(pool, 0), &stats, &limit, 1) > 0);
        assert_int_equal(stats.waiting, 0);
        assert_int_equal(limit.held, 0);
        assert_true(stats.canceled <= canceled_n && ended_n <= stats.canceled);
        weir_pool_close(pool);
        weir_close(w);
    }
    pthread_barrier_destroy(&barrier);
    rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(every_blocked_call_returns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
