/* SPDX-License-Identifier: MIT */
/*
 * A call that fails for want of memory, descriptors, threads or files has decided nothing: it gets
 * what it needs before it asks the set. So nothing was granted that would have to go back, which a
 * bucket cannot do as if it had never been. Each call, of sets of threads and of processes, with
 * one fallible call after another failing.
 */
#include "lib/require.h"
#include "lib/world.h"

#define LIMIT "{ type: rate, key: k, algorithm: gcra, capacity: 1, window: 1h, burst: 3 }"

#define CALENDAR                                                                                   \
    "{ type: rate, key: k, algorithm: fixed_window, capacity: 3, window: 10000d, anchor: epoch }"

static const char *const places[] = {
    "limits: [ " LIMIT " ]",
    "limits: [ " CALENDAR " ]",
    "backend: process, lifetime: users, limits: [ " CALENDAR " ]",
    "limits: [ " LIMIT ", { type: call, algorithm: token_bucket, capacity: 9, window: 1s } ]",
    "backend: process, lifetime: users, limits: [ " LIMIT " ]",
    "subjects: { max: 9 }, limits: [ " LIMIT " ]",
    "backend: process, lifetime: users, subjects: { max: 9 }, limits: [ " LIMIT " ]",
};

static struct weir_request *ask(uint64_t amount)
{
    static struct weir_amount amounts[1];
    static struct weir_request request;

    amounts[0] = (struct weir_amount){"k", amount};
    request = (struct weir_request){.size = sizeof(request),
                                    .amounts = amounts,
                                    .amounts_n = 1,
                                    .timeout_ns = MS,
                                    .subject = "s",
                                    .subject_size = 1};
    return &request;
}

static weir_queue *queue;
static weir_acquisition *acquisition;

static int call_take(void)
{
    return weir_take(world.pool, ask(1), NULL);
}

static int call_try(void)
{
    return weir_try_acquire(world.pool, ask(1), &acquisition, NULL);
}

static int call_acquire(void)
{
    return weir_acquire(world.pool, ask(1), &acquisition, NULL);
}

static int call_submit(void)
{
    return weir_submit(world.pool, ask(1), &acquisition, NULL);
}

static int call_reserve(void)
{
    uint64_t at;

    return weir_reserve(world.pool, ask(1), &acquisition, &at, NULL);
}

static int call_queue(void)
{
    return weir_queue_submit(queue, world.pool, ask(1), 7, NULL, NULL);
}

static int call_queue_kept(void)
{
    return weir_queue_submit(queue, world.pool, ask(1), 7, &acquisition, NULL);
}

static int (*const calls[])(void) = {call_take,    call_try,   call_acquire,   call_submit,
                                     call_reserve, call_queue, call_queue_kept};

static void fail_from(uint64_t n)
{
    fake_os_fail_kind_from(n, FAKE_ANY, 0);
}

/* Returns whether a call was made to fail. `used` of three units are used before. */
static bool check_call(const char *fields, int (*call)(void), uint64_t used, void (*arm)(uint64_t),
                       uint64_t n)
{
    struct picture before, after;
    bool failed;
    int r;

    world_real(fields);
    acquisition = NULL;
    assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
    assert_int_equal(weir_take(world.pool, ask(used), NULL), 0);
    before = picture();
    arm(n);
    r = call();
    failed = fake_os_has_failed();
    fake_os_fail_kind_at(0, 0, 0);
    after = picture();
    if (r < 0 && r != -EAGAIN && r != -ETIMEDOUT) {
        assert_true(failed);
        assert_null(acquisition);
        assert_int_equal(after.set.granted, before.set.granted);
        assert_int_equal(after.set.canceled, before.set.canceled);
        assert_int_equal(after.set.waiting, 0);
        assert_same_limits(&before, &after);
    }
    weir_release(&acquisition);
    weir_queue_close(queue);
    world_close();
    return failed;
}

static void each_call(void (*arm)(uint64_t))
{
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        for (size_t j = 0; j < sizeof(calls) / sizeof(calls[0]); j++)
            for (uint64_t used = 2; used <= 3; used++)
                for (uint64_t n = 1; check_call(places[i], calls[j], used, arm, n);)
                    n++;
}

static void a_call_that_fails_once_has_decided_nothing(void **state)
{
    (void)state;
    each_call(fake_os_fail_at);
}

static void a_call_that_fails_on_and_on_has_decided_nothing(void **state)
{
    (void)state;
    each_call(fail_from);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(a_call_that_fails_once_has_decided_nothing),
        leak_checked_test(a_call_that_fails_on_and_on_has_decided_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
