/* SPDX-License-Identifier: MIT */
/*
 * Out of everything: giving back never fails, whatever is short; asking fails cleanly. Memory that
 * the fake system refuses, and descriptors and addresses that the kernel refuses.
 */
#include "api/instance.h"
#include "lib/child.h"
#include "lib/clock.h"
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/require.h"
#include "whole_set.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

static void no_memory(void)
{
    fake_os_fail_kind_from(1, FAKE_MEMORY, 0);
}

static void memory_again(void)
{
    fake_os_fail_kind_at(0, 0, 0);
}

enum { HELD = 3 };

struct errand {
    struct whole_set world;
    weir_acquisition *acquisitions[HELD];
};

static void in_another_thread(void *(*run)(void *), struct errand *errand)
{
    pthread_t thread;

    require(pthread_create(&thread, NULL, run, errand) == 0);
    require(pthread_join(thread, NULL) == 0);
}

/* A thread that has never called weir before, and can get nothing to do it with. */
static void *release_all(void *argument)
{
    struct errand *errand = argument;

    for (int i = 0; i < HELD; i++)
        require(weir_release(&errand->acquisitions[i]) == 0);
    return NULL;
}

static void *cancel_and_release(void *argument)
{
    struct errand *errand = argument;

    require(weir_cancel(errand->acquisitions[1]) == 0);
    return release_all(argument);
}

static void hold_each(struct errand *errand)
{
    for (int i = 0; i < HELD; i++)
        require(weir_submit(errand->world.pool, &want_db, &errand->acquisitions[i], NULL) == 0);
}

/* One holds everything, the others wait. */
static void hold_and_wait(struct errand *errand)
{
    require(weir_submit(errand->world.pool, &want_every_db, &errand->acquisitions[0], NULL) == 0);
    for (int i = 1; i < HELD; i++)
        require(weir_submit(errand->world.pool, &want_db, &errand->acquisitions[i], NULL) == 1);
}

static void test_a_stranger_releases(void **state)
{
    struct errand errand = {0};

    (void)state;
    world_open(&errand.world);
    for (int round = 0; round < 300; round++) { /* more than what one thread keeps to itself */
        hold_each(&errand);
        no_memory();
        in_another_thread(release_all, &errand);
        memory_again();
    }
    world_check_whole(&errand.world);
    world_close(&errand.world);
}

static void test_a_stranger_hands_over(void **state)
{
    struct errand errand = {0};

    (void)state;
    world_open(&errand.world);
    hold_and_wait(&errand);
    no_memory();
    in_another_thread(release_all, &errand);
    memory_again();
    world_check_whole(&errand.world);
    hold_and_wait(&errand);
    no_memory();
    in_another_thread(cancel_and_release, &errand);
    memory_again();
    world_check_whole(&errand.world);
    world_close(&errand.world);
}

/* The last to let go is a stranger: the instance goes with it. */
static void test_a_stranger_is_the_last(void **state)
{
    struct errand errand = {0};

    (void)state;
    world_open(&errand.world);
    hold_each(&errand);
    weir_close(errand.world.w);
    weir_pool_close(errand.world.pool);
    no_memory();
    in_another_thread(release_all, &errand);
    memory_again();
}

static void *close_instance(void *argument)
{
    struct errand *errand = argument;

    weir_close(errand->world.w);
    return NULL;
}

static void test_a_stranger_closes(void **state)
{
    struct errand errand = {0};

    (void)state;
    world_open(&errand.world);
    hold_and_wait(&errand);
    no_memory();
    in_another_thread(close_instance, &errand);
    require(weir_acquisition_result(errand.acquisitions[0]) == 0);
    require(weir_acquisition_result(errand.acquisitions[1]) == -ESHUTDOWN);
    in_another_thread(release_all, &errand);
    memory_again();
    weir_pool_close(errand.world.pool);
}

/* The timer thread has not done anything yet either. */
static void test_the_timer_thread_needs_no_memory(void **state)
{
    struct weir_request late = want_db, soon = want_tokens;
    struct errand errand = {0};
    int r = -EINPROGRESS;

    (void)state;
    world_open(&errand.world);
    late.timeout_ns = 20 * MS;
    require(weir_acquire(errand.world.pool, &want_every_db, &errand.acquisitions[0], NULL) == 0);
    require(weir_submit(errand.world.pool, &late, &errand.acquisitions[1], NULL) == 1);
    no_memory();
    while (r == -EINPROGRESS) {
        pause_ns(MS);
        r = weir_acquisition_result(errand.acquisitions[1]);
    }
    assert_int_equal(r, -ETIMEDOUT);
    memory_again();
    release_all(&errand);
    require(weir_take(errand.world.pool, &want_every_token, NULL) == 0);
    require(weir_submit(errand.world.pool, &soon, &errand.acquisitions[0], NULL) >= 0);
    no_memory();
    while (weir_acquisition_result(errand.acquisitions[0]) == -EINPROGRESS)
        pause_ns(MS);
    assert_int_equal(weir_acquisition_result(errand.acquisitions[0]), 0);
    memory_again();
    require(weir_release(&errand.acquisitions[0]) == -EPROTO);
    world_check_whole(&errand.world);
    world_close(&errand.world);
}

/* Descriptors. */

static rlim_t limit_descriptors(rlim_t n)
{
    struct rlimit limit;
    rlim_t before;

    require(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    before = limit.rlim_cur;
    limit.rlim_cur = n;
    require(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    return before;
}

static void test_no_descriptors(void **state)
{
    struct whole_set world;
    weir_acquisition *all = NULL, *acquisition = NULL, *own = NULL;
    struct weir_set_stats stats = {.size = sizeof(stats)};
    int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rlim_t before;

    (void)state;
    world_open(&world);
    require(weir_acquire(world.pool, &want_every_db, &all, NULL) == 0);
    before = limit_descriptors(0);
    assert_int_equal(weir_submit(world.pool, &want_db, &acquisition, NULL), -EMFILE);
    assert_null(acquisition);
    require(weir_set_stats(weir_pool_set(world.pool, 0), &stats, NULL, 0) == 3);
    assert_int_equal(stats.waiting, 0);
    /* What blocks needs none. */
    require(weir_take(world.pool, &want_every_token, NULL) == 0);
    require(weir_acquire(world.pool, &want_tokens, &acquisition, NULL) == 0);
    require(weir_release(&acquisition) == -EPROTO);
    limit_descriptors(before);
    require(weir_submit(world.pool, &want_db, &acquisition, NULL) == 1);
    limit_descriptors(0);
    assert_int_equal(weir_acquisition_fd(acquisition), -EMFILE);
    assert_int_equal(weir_acquisition_result(acquisition), -EINPROGRESS);
    require(weir_submit(world.pool, &want_db, &own, NULL) == 1);
    assert_int_equal(weir_acquisition_attach(own, event_fd), 0); /* which needs none */
    require(weir_release(&all) == 0);
    assert_int_equal(weir_acquisition_result(acquisition), 0);
    assert_int_equal(world_await(&world, own), 0);
    require(weir_release(&own) == 0);
    assert_int_equal(weir_acquisition_fd(acquisition), -EMFILE);
    limit_descriptors(before);
    assert_true(weir_acquisition_fd(acquisition) >= 0);
    assert_int_equal(world_await(&world, acquisition), 0);
    require(weir_release(&acquisition) == 0);
    world_check_whole(&world);
    require(close(event_fd) == 0);
    world_close(&world);
}

/* Leaves only so many descriptors that can still be made: the rest of the limit is used up. */

enum { FILLERS = 256 };
static int fillers[FILLERS];
static unsigned fillers_n;
static rlim_t limit_before;

static void leave_descriptors(unsigned n)
{
    limit_before = limit_descriptors(FILLERS);
    for (fillers_n = 0; (fillers[fillers_n] = dup(0)) >= 0; fillers_n++)
        require(fillers_n < FILLERS - 1);
    require(errno == EMFILE && fillers_n >= n);
    while (n-- > 0)
        close(fillers[--fillers_n]);
}

static void descriptors_again(void)
{
    while (fillers_n > 0)
        close(fillers[--fillers_n]);
    limit_descriptors(limit_before);
}

/* A queue takes one descriptor and a timer thread two, or both three where timerfds cannot be rung:
 * with fewer there is neither, and nothing is taken or left behind. */
static void test_too_few_descriptors(void **state)
{
    const unsigned of_a_queue = fake_os_timers_ring() ? 1 : 3;
    const unsigned of_a_timer_thread = fake_os_timers_ring() ? 2 : 3;
    weir_acquisition *all = NULL, *acquisition = NULL;
    weir_queue *queue = NULL;
    struct whole_set world;

    (void)state;
    world_open(&world);
    require(weir_acquire(world.pool, &want_every_db, &all, NULL) == 0);
    for (unsigned n = 0; n < of_a_queue; n++) {
        leave_descriptors(n);
        assert_int_equal(weir_queue_open(&queue, world.w, 4), -EMFILE);
        assert_null(queue);
        descriptors_again();
    }
    for (unsigned n = 0; n < of_a_timer_thread; n++) {
        leave_descriptors(n);
        assert_int_equal(weir_submit(world.pool, &want_db, &acquisition, NULL), -EMFILE);
        assert_null(acquisition);
        descriptors_again();
    }
    leave_descriptors(of_a_timer_thread);
    assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
    assert_int_equal(weir_submit(world.pool, &want_db, &acquisition, NULL), -EMFILE);
    queue = weir_queue_close(queue);
    assert_int_equal(weir_submit(world.pool, &want_db, &acquisition, NULL), 1);
    assert_int_equal(weir_queue_open(&queue, world.w, 4), -EMFILE);
    assert_int_equal(weir_acquisition_fd(acquisition), -EMFILE);
    require(weir_release(&acquisition) == 0);
    descriptors_again();
    require(weir_release(&all) == 0);
    world_check_whole(&world);
    world_close(&world);
}

static void queue_submit(const struct whole_set *world, weir_queue *queue,
                         const struct weir_request *request, uint64_t user_data,
                         weir_acquisition **ret)
{
    require(weir_queue_submit(queue, world->pool, request, user_data, ret, NULL) == 0);
}

/* Waits for the queue's descriptor and takes one completion. */
static weir_acquisition *reap_one(weir_queue *queue, uint64_t user_data, int result)
{
    struct pollfd poll_fd = {.fd = weir_queue_fd(queue), .events = POLLIN};
    struct weir_completion done;
    int n;

    do {
        require(poll(&poll_fd, 1, 10000) == 1);
        n = weir_queue_reap(queue, &done, 1);
    } while (n == 0); /* the timer may be early */
    assert_int_equal(n, 1);
    assert_int_equal(done.user_data, user_data);
    assert_int_equal(done.result, result);
    return done.acquisition;
}

/* Everything about a queue that is open already: grants now, by time and by release; deadlines;
 * cancels. Only a descriptor for one of its acquisitions is not to be had. */
static void test_a_queue_without_descriptors(void **state)
{
    struct weir_request late = want_db;
    weir_acquisition *all = NULL, *first, *second;
    weir_queue *queue = NULL;
    struct whole_set world;

    (void)state;
    world_open(&world);
    assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
    leave_descriptors(0);
    queue_submit(&world, queue, &want_every_db, 1, &all);
    require(reap_one(queue, 1, 0) == all);
    late.timeout_ns = 2 * MS;
    queue_submit(&world, queue, &late, 2, NULL);
    queue_submit(&world, queue, &want_db, 3, NULL);
    queue_submit(&world, queue, &want_db, 4, NULL);
    assert_null(reap_one(queue, 2, -ETIMEDOUT));
    assert_int_equal(weir_queue_cancel(queue, 3), 1);
    assert_null(reap_one(queue, 3, -ECANCELED));
    require(weir_release(&all) == 0);
    first = reap_one(queue, 4, 0);
    queue_submit(&world, queue, &want_every_token, 5, NULL);
    second = reap_one(queue, 5, 0);
    require(weir_update(second, "tokens", TOKENS_BURST) == 0);
    require(weir_release(&second) == 0);
    queue_submit(&world, queue, &want_tokens, 6, NULL);
    second = reap_one(queue, 6, 0);
    require(weir_update(second, "tokens", 1) == 0);
    assert_int_equal(weir_acquisition_fd(first), -EMFILE);
    assert_int_equal(weir_acquisition_grant_fd(first), -EMFILE);
    descriptors_again();
    assert_true(weir_acquisition_fd(first) >= 0);
    require(weir_release(&first) == 0);
    require(weir_release(&second) == 0);
    weir_queue_close(queue);
    world_check_whole(&world);
    world_close(&world);
}

static void *acquire_db(void *argument)
{
    struct errand *errand = argument;

    require(weir_acquire(errand->world.pool, &want_db, &errand->acquisitions[1], NULL) == 0);
    return NULL;
}

/* A thread that blocks needs none, nor does the thread that wakes it. */
static void test_blocking_without_descriptors(void **state)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_request late = want_db;
    struct errand errand = {0};
    weir_acquisition *never = NULL;
    pthread_t thread;

    (void)state;
    world_open(&errand.world);
    require(weir_acquire(errand.world.pool, &want_every_db, &errand.acquisitions[0], NULL) == 0);
    leave_descriptors(0);
    late.timeout_ns = 2 * MS;
    assert_int_equal(weir_acquire(errand.world.pool, &late, &never, NULL), -ETIMEDOUT);
    require(pthread_create(&thread, NULL, acquire_db, &errand) == 0);
    do {
        pause_ns(MS / 10);
        require(weir_set_stats(weir_pool_set(errand.world.pool, 0), &stats, NULL, 0) == 3);
    } while (!stats.waiting);
    require(weir_release(&errand.acquisitions[0]) == 0);
    require(pthread_join(thread, NULL) == 0);
    require(weir_release(&errand.acquisitions[1]) == 0);
    descriptors_again();
    world_check_whole(&errand.world);
    world_close(&errand.world);
}

/* Addresses. A sanitizer takes most of them for itself. */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static rlim_t addresses_used(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages;

    require(file && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

/* In a process of its own: with so many more addresses, an instance works or cannot be opened. */
static int open_with_addresses(size_t more)
{
    struct rlimit limit = {addresses_used() + more, RLIM_INFINITY};
    struct weir_options options = {.size = sizeof(options), .text = world_text};
    struct whole_set world;
    pid_t child = child_fork();
    int r;

    require(child >= 0);
    if (child) {
        int status = child_wait(child);

        require(status >= 0 && WIFEXITED(status));
        return WEXITSTATUS(status);
    }
    require(setrlimit(RLIMIT_AS, &limit) == 0);
    r = weir_open(&world.w, &options, NULL);
    if (r == -ENOMEM)
        _exit(100);
    require(r == 0);
    require(weir_pool_open(&world.pool, world.w, "pool", 0, NULL) == 0);
    for (int i = 0; i < 100; i++) {
        weir_acquisition *acquisition = NULL;

        require(weir_acquire(world.pool, &want_db, &acquisition, NULL) == 0);
        require(weir_release(&acquisition) == 0);
    }
    world_close(&world);
    _exit(0);
}

static void test_few_addresses(void **state)
{
    (void)state;
    if (SANITIZED) {
        print_message("a sanitizer takes most addresses for itself\n");
        skip();
    }
    assert_int_equal(open_with_addresses((size_t)1 << 30), 0);
    assert_int_equal(open_with_addresses((size_t)100 << 20), 0);
    assert_int_equal(open_with_addresses((size_t)8 << 20), 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(test_a_stranger_releases),
        leak_checked_test(test_a_stranger_hands_over),
        leak_checked_test(test_a_stranger_is_the_last),
        leak_checked_test(test_a_stranger_closes),
        leak_checked_test(test_the_timer_thread_needs_no_memory),
        leak_checked_test(test_no_descriptors),
        leak_checked_test(test_too_few_descriptors),
        leak_checked_test(test_a_queue_without_descriptors),
        leak_checked_test(test_blocking_without_descriptors),
        leak_checked_test(test_few_addresses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
