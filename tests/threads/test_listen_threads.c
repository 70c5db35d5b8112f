/* SPDX-License-Identifier: MIT */
/*
 * Listeners that are replaced while threads acquire, wait and release: a listener that was replaced
 * is not called any more, so that its memory may go, and what one heard that was there all the time
 * adds up. Long form: WEIR_ROUNDS.
 */
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/require.h"
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <weir/weir.h>

#include "lib/clock.h"
#include <cmocka.h>

enum { USERS_N = 3, ROUNDS = 300, CHANGES_MIN = 200 };

static weir *w;
static weir_pool *pool;
static _Atomic bool is_over;
static unsigned rounds = ROUNDS;

struct hearing {
    _Atomic bool is_set; /* it may be called */
    _Atomic uint64_t types[WEIR_EVENT_CANCEL + 1];
};

static void hear(void *userdata, const struct weir_event *event)
{
    struct hearing *hearing = userdata;

    require(atomic_load(&hearing->is_set));
    require(event->amounts_n == 1 && event->amounts[0] == 1);
    atomic_fetch_add(&hearing->types[event->type], 1);
}

static int listen_with(struct hearing *hearing)
{
    return weir_listen(w, hearing ? &(struct weir_listener){.size = sizeof(struct weir_listener),
                                                            .event = hear,
                                                            .userdata = hearing}
                                  : NULL);
}

/* Some wait, some give up, some are refused. */
static void *use(void *argument)
{
    uint64_t *granted = argument;

    for (unsigned i = 0; i < rounds; i++) {
        struct weir_request request = {.size = sizeof(request),
                                       .timeout_ns = i % 5 ? SECOND : 1000,
                                       .traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-"
                                                      "00f067aa0ba902b7-01"};
        weir_acquisition *acquisition = NULL;
        int r = i % 3 ? weir_acquire(pool, &request, &acquisition, NULL)
                      : weir_submit(pool, &request, &acquisition, NULL);

        *granted += r == 0;
        if (r == 1 && weir_acquisition_result(acquisition) == 0)
            ++*granted;
        require(r >= 0 || r == -ETIMEDOUT);
        if (acquisition)
            require(weir_release(&acquisition) == 0);
    }
    return NULL;
}

/* Frees each listener's memory as soon as it is replaced: a sanitizer tells of a use. */
static void *change(void *argument)
{
    unsigned *changes = argument;
    struct hearing *before = NULL;

    while (*changes < CHANGES_MIN || !atomic_load(&is_over)) {
        struct hearing *next = *changes % 4 == 3 ? NULL : calloc(1, sizeof(*next));

        require(*changes % 4 == 3 || next);
        if (next)
            atomic_store(&next->is_set, true);
        require(listen_with(next) == 0);
        if (before)
            atomic_store(&before->is_set, false);
        free(before);
        before = next;
        ++*changes;
    }
    require(listen_with(NULL) == 0);
    free(before);
    return NULL;
}

static void open_set(void)
{
    const struct weir_options options = {
        .size = sizeof(options),
        .text = "version: 1\nsets: { s: { limits: [ { type: resource, key: r, capacity: 1 } ] } }"};

    assert_int_equal(weir_open(&w, &options, NULL), 0);
    assert_int_equal(weir_pool_open(&pool, w, "s", 0, NULL), 0);
    atomic_store(&is_over, false);
}

static uint64_t run_users(void)
{
    pthread_t users[USERS_N];
    uint64_t granted[USERS_N] = {0}, sum = 0;

    for (int i = 0; i < USERS_N; i++)
        assert_int_equal(pthread_create(&users[i], NULL, use, &granted[i]), 0);
    for (int i = 0; i < USERS_N; i++) {
        pthread_join(users[i], NULL);
        sum += granted[i];
    }
    return sum;
}

static void a_replaced_listener_is_left_alone(void **state)
{
    pthread_t changer;
    unsigned changes = 0;

    (void)state;
    open_set();
    assert_int_equal(pthread_create(&changer, NULL, change, &changes), 0);
    run_users();
    atomic_store(&is_over, true);
    pthread_join(changer, NULL);
    assert_true(changes >= CHANGES_MIN);
    weir_pool_close(pool);
    weir_close(w);
}

/* Each request has one end, and each grant one too. */
static void what_is_heard_adds_up(void **state)
{
    struct hearing hearing = {.is_set = true};
    struct weir_set_stats stats = {.size = sizeof(stats)};
    uint64_t *n = (uint64_t *)(uintptr_t)hearing.types, granted;

    (void)state;
    open_set();
    assert_int_equal(listen_with(&hearing), 0);
    granted = run_users();
    assert_int_equal(weir_set_stats(weir_pool_set(pool, 0), &stats, NULL, 0), 1);
    assert_int_equal(n[WEIR_EVENT_REQUEST], (uint64_t)USERS_N * rounds);
    assert_int_equal(n[WEIR_EVENT_GRANT], granted);
    assert_int_equal(n[WEIR_EVENT_RELEASE], granted);
    assert_int_equal(n[WEIR_EVENT_REQUEST], n[WEIR_EVENT_GRANT] + n[WEIR_EVENT_REFUSAL] +
                                                n[WEIR_EVENT_TIMEOUT] + n[WEIR_EVENT_CANCEL]);
    assert_true(n[WEIR_EVENT_WAIT] >= n[WEIR_EVENT_TIMEOUT] + n[WEIR_EVENT_CANCEL]);
    assert_int_equal(n[WEIR_EVENT_REFUSAL], 0);
    assert_int_equal(stats.held, 0);
    weir_pool_close(pool);
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(a_replaced_listener_is_left_alone),
        leak_checked_test(what_is_heard_adds_up),
    };

    if (getenv("WEIR_ROUNDS"))
        rounds = (unsigned)strtoul(getenv("WEIR_ROUNDS"), NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
