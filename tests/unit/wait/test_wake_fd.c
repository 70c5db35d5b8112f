/* SPDX-License-Identifier: MIT */
/* Wake-up descriptors in each of their forms: when one is readable, and that no ring and no instant
 * is lost. */
#include "wait/wake_fd.h"

#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "os/os.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <weir/error.h>

#include <cmocka.h>

#define NOW UINT64_C(1000000)

static struct wake_fd alarm_;

/* As it is here, gathering others as well, and where a timerfd cannot be rung. */
enum form { ALONE, GATHERING, WITHOUT_RINGS, FORMS };

static void make(enum form form)
{
    fake_clock_set(NOW);
    fake_os_reset();
    fake_clock_set(NOW);
    memset(&alarm_, 0, sizeof(alarm_));
    wake_fd_init(&alarm_);
    assert_false(wake_fd_is_open(&alarm_));
    if (form == WITHOUT_RINGS)
        fake_os_fail_kind_at(1, FAKE_EVENT, -ENOTTY);
    assert_int_equal(wake_fd_open(&alarm_, form == GATHERING), 0);
    assert_true(wake_fd_is_open(&alarm_));
    wake_fd_watch(&alarm_);
}

static void unmake(void)
{
    wake_fd_close(&alarm_);
    assert_false(wake_fd_is_open(&alarm_));
}

static bool readable(void)
{
    struct pollfd fd = {wake_fd_pollable(&alarm_), POLLIN, 0};

    return poll(&fd, 1, 0) == 1;
}

/* Whether an edge-triggered epoll would be woken. */
static bool edge(int epoll_fd)
{
    struct epoll_event event;

    return epoll_wait(epoll_fd, &event, 1, 0) == 1;
}

static void each_form(void (*test)(void))
{
    for (enum form form = 0; form < FORMS; form++) {
        make(form);
        test();
        unmake();
    }
}

static void ring_and_silence(void)
{
    uint64_t signals = fake_os_counts().signal, drains = fake_os_counts().drain;

    assert_false(readable());
    wake_fd_signal(&alarm_);
    wake_fd_signal(&alarm_);
    assert_true(readable());
    assert_int_equal(fake_os_counts().signal, signals + 1);
    wake_fd_clear(&alarm_);
    wake_fd_clear(&alarm_);
    assert_false(readable());
    assert_int_equal(fake_os_counts().drain, drains + 1);
}

static void it_is_readable_from_a_signal_until_cleared(void **state)
{
    (void)state;
    each_form(ring_and_silence);
}

static void unwatched(void)
{
    uint64_t signals, drains;

    wake_fd_close(&alarm_);
    assert_int_equal(wake_fd_open(&alarm_, false), 0);
    signals = fake_os_counts().signal; /* the probe rings */
    drains = fake_os_counts().drain;
    wake_fd_signal(&alarm_);
    assert_false(readable());
    wake_fd_clear(&alarm_);
    assert_int_equal(fake_os_counts().signal, signals);
    assert_int_equal(fake_os_counts().drain, drains);
    wake_fd_watch(&alarm_);
    ring_and_silence();
}

static void none_is_signaled_that_nothing_waits_for(void **state)
{
    (void)state;
    each_form(unwatched);
}

static void instants(void)
{
    wake_fd_set_timer(&alarm_, NOW + 10);
    fake_clock_advance(9);
    assert_false(readable());
    fake_clock_advance(1);
    assert_true(readable());
    wake_fd_set_timer(&alarm_, NOW + 20);
    assert_false(readable());
    wake_fd_set_timer(&alarm_, WEIR_FOREVER);
    fake_clock_advance(20);
    assert_false(readable());
    wake_fd_set_timer(&alarm_, NOW); /* which has been */
    assert_true(readable());
    wake_fd_set_timer(&alarm_, WEIR_FOREVER);
    assert_false(readable());
}

static void it_is_readable_from_its_instant_until_another_is_set(void **state)
{
    (void)state;
    each_form(instants);
}

static void both(void)
{
    wake_fd_set_timer(&alarm_, NOW + 10);
    wake_fd_signal(&alarm_);
    wake_fd_set_timer(&alarm_, NOW + 20); /* takes nothing back but the instant */
    assert_true(readable());
    wake_fd_clear(&alarm_);
    assert_false(readable());
    fake_clock_advance(20);
    assert_true(readable());
    wake_fd_signal(&alarm_);
    wake_fd_clear(&alarm_); /* the instant has come all the same */
    assert_true(readable());
    wake_fd_set_timer(&alarm_, WEIR_FOREVER);
    assert_false(readable());
}

static void neither_a_signal_nor_an_instant_takes_the_other_back(void **state)
{
    (void)state;
    each_form(both);
}

/* Between the claim and the sound of a ring. */
static void late_ring(void)
{
    assert_true(wake_fd_claim(&alarm_));
    assert_false(wake_fd_claim(&alarm_)); /* one is enough */
    wake_fd_clear(&alarm_);
    assert_int_equal(wake_fd_write(&alarm_), 0);
    wake_fd_leave(&alarm_);
    assert_true(readable());
    wake_fd_clear(&alarm_);
    assert_false(readable());

    assert_true(wake_fd_claim(&alarm_));
    wake_fd_set_timer(&alarm_, NOW + 10);
    assert_int_equal(wake_fd_write(&alarm_), 0);
    wake_fd_leave(&alarm_);
    assert_true(readable());
    wake_fd_clear(&alarm_);
    assert_false(readable());
}

static void a_signal_that_comes_late_is_noticed_and_cleared(void **state)
{
    (void)state;
    each_form(late_ring);
}

/* A thread runs so long after the descriptor has become readable. */
static void wake_after(uint64_t ns)
{
    uint64_t at_ns = os_now_ns() + 1000, expires_ns = at_ns - alarm_.lead_ns;

    wake_fd_set_timer(&alarm_, at_ns);
    fake_clock_advance(expires_ns - 1 - os_now_ns());
    assert_false(readable());
    assert_false(wake_fd_is_ahead(&alarm_, os_now_ns()));
    wake_fd_adapt_lead(&alarm_, os_now_ns()); /* of this nothing is learned */
    assert_int_equal(at_ns - alarm_.lead_ns, expires_ns);
    fake_clock_advance(1);
    assert_true(readable());
    assert_int_equal(wake_fd_is_ahead(&alarm_, os_now_ns()), expires_ns < at_ns);
    fake_clock_advance(ns);
    wake_fd_adapt_lead(&alarm_, os_now_ns());
    wake_fd_set_timer(&alarm_, WEIR_FOREVER);
}

static void leads(void)
{
    fake_clock_set_lead(20, 80);
    wake_fd_close(&alarm_);
    assert_int_equal(wake_fd_open(&alarm_, false), 0);
    assert_int_equal(alarm_.lead_ns, 20);
    wake_after(36);
    assert_int_equal(alarm_.lead_ns, 21);
    for (int i = 0; i < 100; i++)
        wake_after(36);
    assert_int_equal(alarm_.lead_ns, 36); /* so none is early, nor later than it must be */
    for (int i = 0; i < 200; i++)
        wake_after(500);
    assert_int_equal(alarm_.lead_ns, 80);
    wake_after(50);
    assert_int_equal(alarm_.lead_ns, 50);
    wake_after(0);
    assert_int_equal(alarm_.lead_ns, 20);
    wake_fd_adapt_lead(&alarm_, os_now_ns()); /* no instant was set */
    assert_int_equal(alarm_.lead_ns, 20);
}

static void it_comes_so_much_early_as_it_takes_to_wake_up(void **state)
{
    (void)state;
    each_form(leads);
}

static void attended(void)
{
    alarm_.reader_active = true;
    wake_fd_signal(&alarm_);
    assert_false(wake_fd_claim(&alarm_));
    assert_false(readable());
    alarm_.reader_active = false;
    wake_fd_signal(&alarm_);
    assert_true(readable());
    alarm_.reader_active =
        true; /* a signal is repeated if need be, by the thread that attends to it */
    wake_fd_set_timer(&alarm_, NOW + 10);
    alarm_.reader_active = false;
    wake_fd_signal(&alarm_);
    assert_true(readable());
}

static void a_thread_that_attends_to_it_is_not_signaled(void **state)
{
    (void)state;
    each_form(attended);
}

static void edges(void)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);

    assert_int_equal(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, wake_fd_pollable(&alarm_), &event), 0);
    assert_false(edge(epoll_fd));
    wake_fd_signal(&alarm_);
    assert_true(edge(epoll_fd));
    assert_false(edge(epoll_fd));
    wake_fd_signal(&alarm_);
    assert_false(edge(epoll_fd));
    wake_fd_signal_again(&alarm_);
    assert_true(edge(epoll_fd));
    wake_fd_clear(&alarm_);
    edge(epoll_fd); /* there may be one of what is no longer */
    wake_fd_signal(&alarm_);
    assert_true(edge(epoll_fd));
    close(epoll_fd);
}

static void an_edge_triggered_loop_is_woken_by_each_signal(void **state)
{
    (void)state;
    each_form(edges);
}

/* As when a sandbox closes in. */
static void ring_fails(void)
{
    fake_os_fail_kind_at(1, FAKE_EVENT, -EPERM);
    wake_fd_signal(&alarm_);
    assert_true(readable());
    assert_int_equal(alarm_.at_ns, 0); /* so the thread that looks sets it anew */
    wake_fd_set_timer(&alarm_, WEIR_FOREVER);
    assert_false(readable());

    assert_true(wake_fd_claim(&alarm_));
    fake_os_fail_kind_at(1, FAKE_EVENT, -EPERM);
    assert_int_equal(wake_fd_write(&alarm_), -EPERM);
    wake_fd_fall_back(&alarm_);
    wake_fd_leave(&alarm_);
    assert_true(readable());
    wake_fd_set_timer(&alarm_, WEIR_FOREVER);
    assert_false(readable());
    wake_fd_signal(&alarm_);
    assert_true(readable());
}

static void a_signal_that_fails_wakes_all_the_same(void **state)
{
    (void)state;
    each_form(ring_fails);
}

static void instant_fails(void)
{
    fake_os_fail_kind_at(1, FAKE_EVENT, -ENOMEM);
    wake_fd_set_timer(&alarm_, NOW + 10);
    assert_true(alarm_.failing);
    assert_int_equal(alarm_.at_ns, WEIR_FOREVER);
    assert_true(readable());
    wake_fd_set_timer(&alarm_, NOW + 10);
    assert_false(alarm_.failing);
    assert_int_equal(alarm_.at_ns, NOW + 10);
    wake_fd_clear(&alarm_);
    assert_false(readable());
    fake_clock_advance(10);
    assert_true(readable());
}

static void an_instant_that_cannot_be_set_signals(void **state)
{
    (void)state;
    each_form(instant_fails);
}

static void drain_fails(void)
{
    wake_fd_signal(&alarm_);
    fake_os_fail_kind_at(1, FAKE_EVENT, -ENOMEM);
    wake_fd_clear(&alarm_);
    assert_true(readable());
    wake_fd_clear(&alarm_);
    assert_false(readable());
}

static void what_could_not_be_cleared_is_cleared_the_next_time(void **state)
{
    (void)state;
    each_form(drain_fails);
}

static void opening_succeeds_or_leaves_nothing(void **state)
{
    (void)state;
    for (int gathers = 0; gathers < 2; gathers++) {
        for (uint64_t n = 1;; n++) {
            int r;

            wake_fd_init(&alarm_);
            fake_os_fail_kind_at(n, FAKE_DESCRIPTOR | FAKE_EVENT, -EMFILE);
            r = wake_fd_open(&alarm_, gathers);
            wake_fd_watch(&alarm_);
            if (!fake_os_has_failed())
                break;
            fake_os_fail_kind_at(0, 0, 0);
            if (r == 0) { /* it does without */
                ring_and_silence();
                wake_fd_close(&alarm_);
            }
            assert_int_equal(fake_os_live().descriptors, 0);
        }
        assert_int_equal(fake_os_live().descriptors, fake_os_timers_ring() ? 1 + gathers : 3);
        wake_fd_close(&alarm_);
    }
}

static void others_can_be_gathered(void **state)
{
    uint64_t count;
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    (void)state;
    make(GATHERING);
    assert_int_equal(os_epoll_add(wake_fd_pollable(&alarm_), fd, 7), 0);
    assert_false(readable());
    assert_int_equal(eventfd_write(fd, 1), 0);
    assert_true(readable());
    assert_int_equal(eventfd_read(fd, &count), 0);
    assert_false(readable());
    unmake();
    close(fd);
}

static void *leave_later(void *unused)
{
    (void)unused;
    while (!atomic_load(&alarm_.closing))
        sched_yield();
    assert_false(wake_fd_enter(&alarm_)); /* it is too late for others */
    wake_fd_leave(&alarm_);
    return NULL;
}

static void it_is_closed_when_the_last_user_has_left(void **state)
{
    pthread_t thread;

    (void)state;
    make(ALONE);
    assert_true(wake_fd_enter(&alarm_));
    assert_int_equal(pthread_create(&thread, NULL, leave_later, NULL), 0);
    wake_fd_await_users(&alarm_);
    assert_int_equal(alarm_.users, 0);
    pthread_join(thread, NULL);
    unmake();
    make(ALONE); /* and is open for all again */
    assert_true(wake_fd_enter(&alarm_));
    wake_fd_leave(&alarm_);
    unmake();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(it_is_readable_from_a_signal_until_cleared),
        leak_checked_test(none_is_signaled_that_nothing_waits_for),
        leak_checked_test(it_is_readable_from_its_instant_until_another_is_set),
        leak_checked_test(neither_a_signal_nor_an_instant_takes_the_other_back),
        leak_checked_test(a_signal_that_comes_late_is_noticed_and_cleared),
        leak_checked_test(it_comes_so_much_early_as_it_takes_to_wake_up),
        leak_checked_test(a_thread_that_attends_to_it_is_not_signaled),
        leak_checked_test(an_edge_triggered_loop_is_woken_by_each_signal),
        leak_checked_test(a_signal_that_fails_wakes_all_the_same),
        leak_checked_test(an_instant_that_cannot_be_set_signals),
        leak_checked_test(what_could_not_be_cleared_is_cleared_the_next_time),
        leak_checked_test(opening_succeeds_or_leaves_nothing),
        leak_checked_test(others_can_be_gathered),
        leak_checked_test(it_is_closed_when_the_last_user_has_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
