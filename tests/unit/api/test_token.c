/* SPDX-License-Identifier: MIT */
/* Cancellation tokens: what another thread's cancel does to blocked calls, and to later ones. */
#include "lib/blocked.h"
#include "lib/world.h"
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOTS     "limits: [ { type: resource, key: slots, capacity: 2 } ]"
#define BLOCKED_N 3
#define LONG_AFTER                                                                                 \
    (60 * SECOND) /* longer than any test lasts: the call fails, and does not hang                 \
                   */

static const char *const places[] = {
    SLOTS,
    "fair: false, " SLOTS,
    "backend: process, lifetime: users, " SLOTS,
    "subjects: { max: 9 }, " SLOTS,
    "backend: process, lifetime: users, subjects: { max: 9 }, " SLOTS,
};

#define PLACES_N (sizeof(places) / sizeof(*places))

static weir_token *token;

static void open_place(size_t place, bool real)
{
    if (real)
        world_real(places[place]);
    else
        world_set(places[place]);
    assert_int_equal(weir_token_open(&token, world.w), 0);
}

static void close_place(void)
{
    token = weir_token_close(token);
    assert_null(token);
    world_close();
}

static struct weir_request slots(uint64_t n, weir_token *by)
{
    static const struct weir_amount amounts[] = {{"slots", 0}, {"slots", 1}, {"slots", 2}};

    return (struct weir_request){.size = sizeof(struct weir_request),
                                 .amounts = &amounts[n],
                                 .amounts_n = 1,
                                 .timeout_ns = LONG_AFTER,
                                 .subject = "s",
                                 .subject_size = 1,
                                 .token = by};
}

static void start(struct blocked *blocked, struct weir_request request, uint64_t waiting)
{
    blocked_enqueue(blocked, &request, waiting);
}

static void check_all_end(size_t place, bool real)
{
    struct weir_request request = slots(2, NULL);
    struct blocked blocked[BLOCKED_N];
    weir_acquisition *holder;
    int ended_n;

    open_place(place, real);
    holder = granted(&request);
    for (unsigned i = 0; i < BLOCKED_N; i++)
        start(&blocked[i], slots(1 + i % 2, token), i + 1);
    assert_int_equal(weir_token_is_canceled(token), 0);
    ended_n = weir_token_cancel(token);
    /* In a shared set the sleep that blocked_enqueue() has seen may be another waiter's, which
     * wakes up now and then; a thread that does not sleep yet may end its wait itself. */
    assert_true(ended_n >= (strstr(places[place], "process") ? 1 : BLOCKED_N));
    assert_true(ended_n <= BLOCKED_N);
    for (unsigned i = 0; i < BLOCKED_N; i++) {
        blocked_join(&blocked[i], -ECANCELED);
        assert_null(blocked[i].refusal.key);
    }
    assert_int_equal(weir_token_is_canceled(token), 1);
    assert_int_equal(weir_token_cancel(token), 0);
    assert_int_equal(stats().waiting, 0);
    assert_int_equal(stats().canceled, BLOCKED_N);
    assert_int_equal(limit_stats(0).held, 2);
    release(holder);
    assert_int_equal(limit_stats(0).held, 0);
    close_place();
}

static void a_cancel_ends_all_blocked_calls(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLACES_N; i++) {
        check_all_end(i, false);
        check_all_end(i, true);
    }
}

static void of_a_canceled_token_no_call_is_granted(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLACES_N; i++) {
        struct weir_request request;
        weir_acquisition *a = NULL;

        open_place(i, false);
        request = slots(1, token);
        /* Twice: the second time by the fast path, if there is one. */
        for (int turn = 0; turn < 2; turn++) {
            assert_int_equal(weir_acquire(world.pool, &request, &a, NULL), 0);
            release(a);
        }
        a = NULL;
        assert_int_equal(weir_token_cancel(token), 0);
        for (int turn = 0; turn < 2; turn++) {
            refusal.key = "untouched";
            assert_int_equal(weir_acquire(world.pool, &request, &a, &refusal), -ECANCELED);
            assert_string_equal(refusal.key, "untouched");
            assert_null(a);
        }
        assert_int_equal(limit_stats(0).held, 0);
        assert_int_equal(stats().granted, 2);
        assert_int_equal(stats().canceled, 0);
        close_place();
    }
}

static void waiters_behind_move_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLACES_N; i++) {
        struct weir_request request = slots(1, NULL);
        struct blocked head, behind;
        weir_acquisition *holder;

        open_place(i, true);
        holder = granted(&request);
        start(&head, slots(2, token), 1);
        if (strstr(places[i], "fair: false") == NULL) {
            start(&behind, slots(1, NULL), 2);
            assert_int_equal(weir_token_cancel(token), 1);
            blocked_join(&behind, 0);
            release(behind.acquisition);
        } else {
            assert_int_equal(weir_token_cancel(token), 1);
        }
        blocked_join(&head, -ECANCELED);
        release(holder);
        close_place();
    }
}

static void waits_without_the_token_go_on(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLACES_N; i++) {
        struct weir_request request = slots(2, NULL);
        struct blocked none, other;
        weir_token *another;
        weir_acquisition *holder;

        open_place(i, true);
        assert_int_equal(weir_token_open(&another, world.w), 0);
        holder = granted(&request);
        start(&none, slots(1, NULL), 1);
        start(&other, slots(1, another), 2);
        assert_int_equal(weir_token_cancel(token), 0);
        assert_int_equal(stats().waiting, 2);
        release(holder);
        blocked_join(&none, 0);
        blocked_join(&other, 0);
        assert_int_equal(weir_token_is_canceled(another), 0);
        release(none.acquisition);
        release(other.acquisition);
        weir_token_close(another);
        close_place();
    }
}

static void a_grant_that_came_first_stands(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLACES_N; i++) {
        struct weir_request request = slots(2, NULL);
        struct blocked blocked;
        weir_acquisition *holder;

        open_place(i, true);
        holder = granted(&request);
        start(&blocked, slots(1, token), 1);
        release(holder);
        assert_int_equal(stats().waiting, 0);
        assert_int_equal(weir_token_cancel(token), 0);
        blocked_join(&blocked, 0);
        assert_int_equal(limit_stats(0).held, 1);
        release(blocked.acquisition);
        close_place();
    }
}

static void a_timeout_that_comes_first_is_the_result(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLACES_N; i++) {
        struct weir_request all = slots(2, NULL), brief;
        struct blocked blocked;
        weir_acquisition *holder;

        open_place(i, true);
        holder = granted(&all);
        brief = slots(1, token);
        brief.timeout_ns = MS;
        blocked_start(&blocked, &brief);
        blocked_join(&blocked, -ETIMEDOUT);
        assert_string_equal(blocked.refusal.key, "slots");
        assert_int_equal(weir_token_cancel(token), 0);
        release(holder);
        close_place();
    }
}

static void the_other_calls_ignore_it(void **state)
{
    struct weir_request request;
    weir_acquisition *a = NULL, *b;
    uint64_t at;

    (void)state;
    open_place(0, false);
    request = slots(2, token);
    assert_int_equal(weir_token_cancel(token), 0);
    a = granted(&request);
    b = pending(&request);
    assert_int_equal(weir_set_ready_at(world.set, &request, &at), 0);
    release(a);
    assert_int_equal(weir_acquisition_result(b), 0);
    release(b);
    close_place();
}

static void it_serves_the_sets_of_its_instance_only(void **state)
{
    struct weir_request request;
    weir_acquisition *a = NULL;
    struct twin twin;

    (void)state;
    open_place(0, false);
    twin = world_twin("main");
    request = slots(1, token);
    assert_int_equal(weir_acquire(twin.pool, &request, &a, NULL), -EINVAL);
    assert_int_equal(weir_token_cancel(token), 0);
    assert_int_equal(weir_acquire(twin.pool, &request, &a, NULL), -EINVAL);
    assert_null(a);
    world_twin_close(&twin);
    close_place();
}

/* What lies behind an older request is not its token. */
static void an_older_request_has_none(void **state)
{
    struct weir_request request;
    weir_acquisition *a = NULL;

    (void)state;
    open_place(0, false);
    assert_int_equal(weir_token_cancel(token), 0);
    request = slots(1, token);
    request.size = offsetof(struct weir_request, token);
    assert_int_equal(weir_acquire(world.pool, &request, &a, NULL), 0);
    release(a);
    request.size = offsetof(struct weir_request, subject);
    assert_int_equal(weir_acquire(world.pool, &request, &a, NULL), 0);
    release(a);
    request.size = offsetof(struct weir_request, token) + 1;
    assert_int_equal(weir_acquire(world.pool, &request, &a, NULL), -EINVAL);
    close_place();
}

/* Calls of closed instances fail as without a token, and the instance goes with the last of both.
 */
static void it_outlives_the_instance(void **state)
{
    struct weir_request request = slots(2, NULL);
    struct blocked blocked;
    weir_acquisition *holder, *a = NULL;

    (void)state;
    open_place(0, true);
    holder = granted(&request);
    start(&blocked, slots(1, token), 1);
    world.w = weir_close(world.w);
    blocked_join(&blocked, -ESHUTDOWN);
    request = slots(1, token);
    assert_int_equal(weir_acquire(world.pool, &request, &a, NULL), -ESHUTDOWN);
    assert_int_equal(weir_token_cancel(token), 0);
    assert_int_equal(weir_acquire(world.pool, &request, &a, NULL), -ESHUTDOWN);
    weir_release(&holder);
    world_close();
    token = weir_token_close(token);
}

static void it_needs_one_allocation(void **state)
{
    weir_token *none = NULL;

    (void)state;
    world_set(SLOTS);
    fake_os_fail_at(1);
    assert_int_equal(weir_token_open(&none, world.w), -ENOMEM);
    assert_true(fake_os_has_failed());
    assert_null(none);
    fake_os_fail_at(0);
    assert_int_equal(weir_token_open(&none, world.w), 0);
    assert_null(weir_token_close(none));
    assert_null(weir_token_close(NULL));
    world_close();
}

static void in_a_forked_child_it_ends_nothing(void **state)
{
    struct weir_request request = slots(2, NULL);
    struct blocked blocked;
    weir_acquisition *holder;
    int status;
    pid_t child;

    (void)state;
    open_place(0, true);
    holder = granted(&request);
    start(&blocked, slots(1, token), 1);
    child = fork();
    if (child == 0) {
        weir_token *none = NULL;
        bool is_right = weir_token_open(&none, world.w) == -ECHILD && !none &&
                        weir_token_cancel(token) == -ECHILD && weir_token_is_canceled(token) == 0 &&
                        !weir_token_close(token);

        _exit(is_right ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(stats().waiting, 1);
    assert_int_equal(weir_token_cancel(token), 1);
    blocked_join(&blocked, -ECANCELED);
    release(holder);
    close_place();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(a_cancel_ends_all_blocked_calls),
        leak_checked_test(of_a_canceled_token_no_call_is_granted),
        leak_checked_test(waiters_behind_move_up),
        leak_checked_test(waits_without_the_token_go_on),
        leak_checked_test(a_grant_that_came_first_stands),
        leak_checked_test(a_timeout_that_comes_first_is_the_result),
        leak_checked_test(the_other_calls_ignore_it),
        leak_checked_test(it_serves_the_sets_of_its_instance_only),
        leak_checked_test(an_older_request_has_none),
        leak_checked_test(it_outlives_the_instance),
        leak_checked_test(it_needs_one_allocation),
        leak_checked_test(in_a_forked_child_it_ends_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
