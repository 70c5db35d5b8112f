/* SPDX-License-Identifier: MIT */
/* Acquisitions of shared sets that wait with a direct doorbell as their descriptor: signaled once
 * for each decision, never without one, whatever fails or rings. Two instances are two
 * participants. */
#include "lib/child.h"
#include "lib/clock.h"
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/tmpdir.h"
#include "set/waiter.h"
#include "shm/direct_doorbell.h"
#include "wait/acquisition_handle.h"
#include "wait/direct_wait.h"
#include "wait/wait_timer.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/weir.h>

#include <cmocka.h>

#define SLOTS "limits: [ { type: resource, key: slot, capacity: 2 } ]"

static char directory[TMPDIR_SIZE];

struct user {
    weir *w;
    weir_pool *pool;
};

static struct user user_open(void)
{
    const struct weir_options options = {.size = sizeof(options),
                                         .text = "version: 1\nsets: { s: { backend: process, " SLOTS
                                                 " } }\n",
                                         .process_dir = directory};
    struct user user = {0};

    assert_int_equal(weir_open(&user.w, &options, NULL), 0);
    assert_int_equal(weir_pool_open(&user.pool, user.w, "s", 0, NULL), 0);
    return user;
}

static void user_close(struct user *user)
{
    weir_pool_close(user->pool);
    weir_close(user->w);
}

static struct weir_set_stats stats_of(const struct user *user)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};

    assert_int_equal(weir_set_stats(weir_pool_set(user->pool, 0), &stats, NULL, 0), 1);
    return stats;
}

static const struct weir_request *ask(uint64_t timeout_ns)
{
    static const struct weir_amount amount = {.key = "slot", .amount = 2};
    static struct weir_request request = {
        .size = sizeof(request), .amounts = &amount, .amounts_n = 1};

    request.timeout_ns = timeout_ns;
    return &request;
}

static weir_acquisition *have(const struct user *user)
{
    weir_acquisition *acquisition = NULL;

    assert_int_equal(weir_try_acquire(user->pool, ask(0), &acquisition, NULL), 0);
    return acquisition;
}

static weir_acquisition *wait_within(const struct user *user, uint64_t timeout_ns)
{
    weir_acquisition *acquisition = NULL;

    assert_int_equal(weir_submit(user->pool, ask(timeout_ns), &acquisition, NULL), 1);
    return acquisition;
}

/* Waits with a descriptor, which has a direct doorbell. */
static weir_acquisition *wait_directly(const struct user *user)
{
    weir_acquisition *acquisition = wait_within(user, WEIR_FOREVER);

    assert_true(weir_acquisition_fd(acquisition) >= 0);
    assert_true(acquisition->direct);
    return acquisition;
}

static bool is_readable(int fd, int ms)
{
    struct pollfd poller = {fd, POLLIN, 0};

    return poll(&poller, 1, ms) == 1;
}

/* How often it was signaled since the last look, as an eventfd is read. */
static uint64_t signals_at(int fd)
{
    uint64_t all = 0, n;

    while (read(fd, &n, sizeof(n)) == sizeof(n))
        all += n;
    return all;
}

static uint64_t signals(weir_acquisition *acquisition)
{
    return signals_at(weir_acquisition_fd(acquisition)); /* which notes a decision, too */
}

static void release(weir_acquisition *acquisition)
{
    assert_int_equal(weir_release(&acquisition), 0);
}

static void be_granted(weir_acquisition *acquisition)
{
    assert_true(is_readable(weir_acquisition_fd(acquisition), 20000));
    assert_int_equal(weir_acquisition_result(acquisition), 0);
}

/* Longer than the interval of stall checks. */
static void pass_stall_checks(void)
{
    pause_ns(100 * MS);
}

static int place_setup(void **state)
{
    return tmpdir_make(directory, NULL) ? fixture_setup(state) : -1;
}

static int place_teardown(void **state)
{
    int r = fixture_teardown(state);

    return tmpdir_remove(directory) ? r : -1;
}

#define place_test(function) cmocka_unit_test_setup_teardown(function, place_setup, place_teardown)

/* The timer thread of the waiter cannot do anything. */
static void no_thread_runs_in_between(void **state)
{
    struct user a = user_open(), b = user_open();
    weir_acquisition *held = have(&a), *waiting = wait_directly(&b);
    struct lock *lock = &instance_wait(b.w)->timer.lock;
    int fd = weir_acquisition_fd(waiting);

    (void)state;
    lock_take(lock);
    assert_false(is_readable(fd, 0));
    release(held);
    assert_true(is_readable(fd, 0));
    lock_release(lock);
    be_granted(waiting);
    assert_int_equal(signals(waiting), 1);
    release(waiting);
    user_close(&a);
    user_close(&b);
}

/* Whatever notifies the waiter again. */
static void it_is_signaled_once(void **state)
{
    struct user a = user_open(), b = user_open();
    weir_acquisition *held = have(&a), *waiting = wait_directly(&b);
    weir_set *set = weir_pool_set(a.pool, 0);

    (void)state;
    release(held);
    notify_waiter(set, waiting->record, set_record_word(set, waiting->record));
    assert_int_equal(signals(waiting), 1);
    timer_notify(b.w, waiting->waiter, waiter_word(b.w, waiting->waiter));
    pass_stall_checks();
    assert_int_equal(signals(waiting), 0);
    assert_int_equal(weir_acquisition_result(waiting), 0);
    notify_waiter(set, waiting->record, set_record_word(set, waiting->record));
    pass_stall_checks();
    assert_int_equal(signals(waiting), 0);
    release(waiting);
    user_close(&a);
    user_close(&b);
}

/* The program sees the grant before the process that granted has rung. */
static void a_grant_that_is_seen_first_is_signaled(void **state)
{
    struct user a = user_open(), b = user_open();
    weir_acquisition *held = have(&b), *waiting = wait_directly(&b);

    (void)state;
    release(held); /* this process's own, which signals as it would itself */
    assert_int_equal(weir_acquisition_result(waiting), 0);
    assert_int_equal(signals(waiting), 1);
    release(waiting);
    user_close(&a);
    user_close(&b);
}

/* The result finds that another process has rung. */
static void a_grant_that_is_asked_for_is_signaled_once(void **state)
{
    struct user a = user_open(), b = user_open();
    weir_acquisition *held = have(&a), *waiting = wait_directly(&b);
    int fd = weir_acquisition_fd(waiting);

    (void)state;
    release(held);
    assert_int_equal(weir_acquisition_result(waiting), 0);
    assert_int_equal(signals_at(fd), 1);
    release(waiting);
    user_close(&a);
    user_close(&b);
}

/* An acquisition that has ended, and was not released. */
static void one_with_an_open_descriptor_serves_no_other(void **state)
{
    struct user a = user_open(), b = user_open();
    weir_acquisition *held = have(&a), *canceled = wait_directly(&b), *waiting;
    int fd = weir_acquisition_fd(canceled);

    (void)state;
    assert_int_equal(weir_cancel(canceled), 0);
    assert_int_equal(signals_at(fd), 1);
    waiting = wait_directly(&b);
    release(held);
    assert_true(is_readable(weir_acquisition_fd(waiting), 20000));
    assert_false(is_readable(fd, 0));
    be_granted(waiting);
    release(waiting);
    release(canceled);
    user_close(&a);
    user_close(&b);
}

static void other_ends_are_signaled_once(void **state)
{
    struct user a = user_open(), b = user_open();
    weir_acquisition *held = have(&a), *canceled = wait_directly(&b),
                     *late = wait_within(&b, 20 * MS);

    (void)state;
    assert_int_equal(weir_cancel(canceled), 0);
    assert_int_equal(signals(canceled), 1);
    assert_int_equal(weir_acquisition_result(canceled), -ECANCELED);
    release(canceled);
    assert_true(is_readable(weir_acquisition_fd(late), 20000));
    pass_stall_checks();
    assert_int_equal(signals(late), 1);
    assert_int_equal(weir_acquisition_result(late), -ETIMEDOUT);
    release(late);
    release(held);
    user_close(&a);
    user_close(&b);
}

/* A grant that the program was told of, and did not ask for, was used. */
static void a_signal_is_notice(void **state)
{
    struct user a = user_open(), b = user_open();
    weir_acquisition *held = have(&a), *waiting = wait_directly(&b);
    int fd = weir_acquisition_fd(waiting);

    (void)state;
    release(held);
    assert_true(is_readable(fd, 0));
    release(waiting);
    assert_int_equal(stats_of(&b).canceled, 0);
    held = have(&a);
    waiting = wait_directly(&b);
    release(waiting);
    assert_int_equal(stats_of(&b).canceled, 1);
    release(held);
    user_close(&a);
    user_close(&b);
}

/* Waits by turns use one doorbell, also after one that ended with its release. */
static void a_doorbell_serves_one_wait_after_another(void **state)
{
    struct user a = user_open(), b = user_open();

    (void)state;
    for (int i = 0; i < 100; i++) {
        weir_acquisition *held = have(&a), *waiting = wait_directly(&b);

        if (i % 3 == 2) {
            release(waiting);
            waiting = wait_directly(&b);
        }
        assert_int_equal(waiting->direct, 1);
        assert_false(is_readable(weir_acquisition_fd(waiting), 0));
        release(held);
        be_granted(waiting);
        release(waiting);
    }
    assert_int_equal(wait_target_direct(record_wait_target(
                         record_at(&weir_pool_set(b.pool, 0)->participant->region, 1))),
                     0);
    user_close(&a);
    user_close(&b);
}

static uint32_t number_of(const struct user *user, const weir_acquisition *acquisition)
{
    return wait_target_direct(
        record_wait_target(set_record(weir_pool_set(user->pool, 0), acquisition->record)));
}

/* A granter that has counted itself is stopped, or dead. */
static void one_that_may_be_rung_yet_is_thrown_away(void **state)
{
    struct user a = user_open(), b = user_open();
    weir_acquisition *held = have(&a), *waiting = wait_directly(&b);
    uint32_t number = number_of(&b, waiting);

    (void)state;
    assert_true(number);
    atomic_fetch_add(&set_record(weir_pool_set(b.pool, 0), waiting->record)->data, 1);
    release(held);
    be_granted(waiting);
    release(waiting);
    for (int i = 0; i < 3; i++) { /* its count stands in the way of no later one */
        held = have(&a);
        waiting = wait_directly(&b);
        assert_int_equal(number_of(&b, waiting), number + 1);
        release(held);
        be_granted(waiting);
        release(waiting);
    }
    user_close(&a);
    user_close(&b);
}

static void ring_by_name(void)
{
    char name[128], path[TMPDIR_SIZE + 128];
    int fd;

    /* The only doorbell of a number so large. */
    assert_true(tmpdir_find(directory, ".268435456.bell", name));
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    assert_int_equal(write(fd, "ring", 4), 4);
    close(fd);
}

/* Any program of the user can write to it. */
static void a_ring_without_a_decision_loses_none(void **state)
{
    struct user a = user_open(), b = user_open();
    weir_acquisition *held = have(&a), *waiting = wait_directly(&b);

    (void)state;
    ring_by_name();
    assert_true(is_readable(weir_acquisition_fd(waiting), 0));
    assert_int_equal(weir_acquisition_result(waiting), -EINPROGRESS);
    assert_false(is_readable(weir_acquisition_fd(waiting), 0));
    release(held);
    be_granted(waiting);
    assert_int_equal(signals(waiting), 1);
    release(waiting);
    held = have(&a);
    ring_by_name(); /* not heard by the next wait */
    waiting = wait_directly(&b);
    assert_false(is_readable(weir_acquisition_fd(waiting), 20));
    release(held);
    be_granted(waiting);
    release(waiting);
    user_close(&a);
    user_close(&b);
}

enum { MANY = 2 * DIRECT_WAITS_MAX + 3 };

static void those_beyond_the_bound_wait_for_the_timer(void **state)
{
    struct user a = user_open(), b = user_open();
    weir_acquisition *held = have(&a), *waiting[MANY];

    (void)state;
    for (uint32_t i = 0; i < MANY; i++) {
        waiting[i] = wait_within(&b, WEIR_FOREVER);
        assert_true(weir_acquisition_fd(waiting[i]) >= 0);
        assert_int_equal(waiting[i]->direct != 0, i < DIRECT_WAITS_MAX);
    }
    release(held);
    for (uint32_t i = 0; i < MANY; i++) {
        be_granted(waiting[i]);
        for (uint32_t k = i + 1; k < MANY; k++)
            assert_false(is_readable(weir_acquisition_fd(waiting[k]), 0));
        release(waiting[i]);
    }
    user_close(&a);
    user_close(&b);
}

/* They may stay unsignaled, or are the program's. */
static void other_descriptors_are_eventfds(void **state)
{
    struct user a = user_open(), b = user_open();
    weir_acquisition *held = have(&a), *for_grants = wait_within(&b, WEIR_FOREVER),
                     *attached = wait_within(&b, WEIR_FOREVER);
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    (void)state;
    assert_true(weir_acquisition_grant_fd(for_grants) >= 0);
    assert_int_equal(weir_acquisition_attach(attached, fd), 0);
    assert_false(for_grants->direct || attached->direct);
    release(for_grants);
    release(held);
    assert_true(is_readable(fd, 20000));
    release(attached);
    close(fd);
    held = have(&a);
    release(held);
    user_close(&a);
    user_close(&b);
}

/* It has copies of the descriptors. */
static void a_forked_child_leaves_it_alone(void **state)
{
    struct user a = user_open(), b = user_open();
    weir_acquisition *held = have(&a), *waiting = wait_directly(&b);
    pid_t child = fork();
    int status = -1;

    (void)state;
    if (child == 0) {
        struct user own;

        weir_pool_close(b.pool);
        weir_close(b.w);
        weir_release(&waiting);
        own = user_open();
        waiting = wait_directly(&own);
        _exit(is_readable(weir_acquisition_fd(waiting), 0));
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
    assert_false(is_readable(weir_acquisition_fd(waiting), 0));
    release(held);
    be_granted(waiting);
    assert_int_equal(signals(waiting), 1);
    release(waiting);
    user_close(&a);
    user_close(&b);
}

/* It is still held when the instance is closed. */
static void it_outlives_its_instance(void **state)
{
    struct user a = user_open(), b = user_open();
    weir_acquisition *held = have(&a), *waiting = wait_directly(&b);

    (void)state;
    weir_pool_close(b.pool);
    weir_close(b.w);
    assert_int_equal(signals(waiting), 1);
    assert_int_equal(weir_acquisition_result(waiting), -ESHUTDOWN);
    release(waiting);
    release(held);
    user_close(&a);
}

/* With each call of the wait and of its end failing, for all that follow, too. */
static void whatever_fails_the_grant_is_signaled(void **state)
{
    const unsigned kinds = FAKE_ANY | FAKE_EVENT;
    bool has_failed = true;

    (void)state;
    for (uint64_t n = 1; has_failed && n < 60; n++) {
        for (int follows = 0; follows < 2; follows++) {
            struct user a = user_open(), b = user_open();
            weir_acquisition *held = have(&a), *waiting = wait_within(&b, WEIR_FOREVER);
            int fd;

            if (follows)
                fake_os_fail_kind_from(n, kinds, 0);
            else
                fake_os_fail_kind_at(n, kinds, 0);
            fd = weir_acquisition_fd(waiting);
            has_failed = fake_os_has_failed();
            fake_os_fail_kind_at(0, 0, 0);
            if (fd < 0)
                fd = weir_acquisition_fd(waiting);
            assert_false(is_readable(fd, 0));
            release(held);
            be_granted(waiting);
            release(waiting);
            held = have(&a);
            waiting = wait_within(&b, WEIR_FOREVER);
            fd = weir_acquisition_fd(waiting);
            assert_false(is_readable(fd, 0));
            release(held);
            be_granted(waiting);
            release(waiting);
            user_close(&a);
            user_close(&b);
        }
    }
    assert_false(has_failed);
}

/* Then the process that grants notifies the wait timer. */
static void a_ring_that_fails_is_made_up_for(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < 12; n++) {
        struct user a = user_open(), b = user_open();
        weir_acquisition *held = have(&a), *waiting = wait_directly(&b);

        fake_os_fail_kind_at(n, FAKE_ANY | FAKE_EVENT, -EMFILE);
        release(held);
        fake_os_fail_kind_at(0, 0, 0);
        be_granted(waiting);
        assert_int_equal(signals(waiting), 1);
        release(waiting);
        user_close(&a);
        user_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        place_test(no_thread_runs_in_between),
        place_test(it_is_signaled_once),
        place_test(a_grant_that_is_seen_first_is_signaled),
        place_test(a_grant_that_is_asked_for_is_signaled_once),
        place_test(one_with_an_open_descriptor_serves_no_other),
        place_test(other_ends_are_signaled_once),
        place_test(a_signal_is_notice),
        place_test(a_doorbell_serves_one_wait_after_another),
        place_test(one_that_may_be_rung_yet_is_thrown_away),
        place_test(a_ring_without_a_decision_loses_none),
        place_test(those_beyond_the_bound_wait_for_the_timer),
        place_test(other_descriptors_are_eventfds),
        place_test(a_forked_child_leaves_it_alone),
        place_test(it_outlives_its_instance),
        place_test(whatever_fails_the_grant_is_signaled),
        place_test(a_ring_that_fails_is_made_up_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
