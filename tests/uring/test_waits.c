/* SPDX-License-Identifier: MIT */
/* Plain waits: for an acquisition, however it ends, and for a queue. */
#include "ring_world.h"

static void prepare_wait(weir_acquisition *acquisition)
{
    assert_int_equal(
        weir_uring_prep_wait(&world.uring, &world.ring, &world.wait, acquisition, HEAD), 0);
    submit_ring();
}

static void wait_ends_by_a_grant(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    prepare_wait(acquisition);
    expect_nothing();
    grant();
    expect_woken(HEAD);
    expect_nothing();
    assert_int_equal(weir_acquisition_result(acquisition), 0);
    release_unused(acquisition);
}

static void wait_ends_at_once_if_decided(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    grant();
    prepare_wait(acquisition);
    expect_woken(HEAD);
    assert_int_equal(weir_acquisition_result(acquisition), 0);
    release_unused(acquisition);
}

static void wait_ends_by_the_timeout(void **state)
{
    weir_acquisition *acquisition = NULL;

    (void)state;
    assert_int_equal(submit(1, 2, MS, 0, &acquisition), 1);
    prepare_wait(acquisition);
    expect_woken(HEAD);
    assert_int_equal(weir_acquisition_result(acquisition), -ETIMEDOUT);
    release_unused(acquisition);
}

static void wait_ends_by_a_refusal(void **state)
{
    weir_acquisition *acquisition = NULL;

    (void)state;
    assert_int_equal(submit(1, 2, 0, MS, &acquisition), 1);
    prepare_wait(acquisition);
    expect_woken(HEAD);
    assert_int_equal(weir_acquisition_result(acquisition), -EAGAIN);
    release_unused(acquisition);
}

static void wait_ends_by_canceling_the_acquisition(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    prepare_wait(acquisition);
    assert_int_equal(weir_cancel(acquisition), 0);
    expect_woken(HEAD);
    assert_int_equal(weir_acquisition_result(acquisition), -ECANCELED);
    release_unused(acquisition);
}

static void wait_ends_by_the_instance_closing(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    prepare_wait(acquisition);
    world.w = weir_close(world.w);
    expect_woken(HEAD);
    assert_int_equal(weir_acquisition_result(acquisition), -ESHUTDOWN);
    release_unused(acquisition);
}

/* One eventfd for one wait after the other, which is read in between if the kernel does not do
 * that. */
static void waits_share_an_eventfd_of_the_programs(void **state)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    (void)state;
    for (int i = 0; i < 3; i++) {
        weir_acquisition *acquisition = pending();
        eventfd_t count;

        assert_int_equal(weir_acquisition_attach(acquisition, fd), 0);
        prepare_wait(acquisition);
        expect_nothing();
        grant();
        expect_woken(HEAD);
        assert_int_equal(weir_acquisition_result(acquisition), 0);
        if (world.uring.features & WEIR_URING_READ)
            assert_int_equal(world.wait.count, 1);
        else
            assert_int_equal(eventfd_read(fd, &count), 0);
        release_unused(acquisition);
        assert_int_equal(submit(1, 0, 0, 0, &world.holder), 0);
    }
    assert_int_equal(close(fd), 0);
}

static void wait_is_canceled_and_prepared_again(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    prepare_wait(acquisition);
    cancel(HEAD);
    expect_both(CANCEL, 0, HEAD, -ECANCELED);
    assert_int_equal(weir_acquisition_result(acquisition), -EINPROGRESS);
    prepare_wait(acquisition);
    expect_nothing();
    grant();
    expect_woken(HEAD);
    assert_int_equal(weir_acquisition_result(acquisition), 0);
    release_unused(acquisition);
}

/* Queues. */

enum { REAP_MAX = 4, SUBMISSIONS = 23 };

static weir_queue *queue;

static void watch_queue(void)
{
    assert_int_equal(weir_uring_prep_queue(&world.uring, &world.ring, queue, OTHER), 0);
    submit_ring();
}

/* Waits for the queue as the header says. Returns how many completions there were. */
static unsigned await_queue(void)
{
    struct weir_completion done[REAP_MAX];
    struct io_uring_cqe cqe = {0};
    unsigned all = 0;
    bool stays;
    int n;

    assert_int_equal(ring_next(&world.ring, PATIENCE, &cqe), 0);
    assert_int_equal(cqe.user_data, OTHER);
    assert_true(cqe.res > 0 && cqe.res & POLLIN);
    stays = cqe.flags & IORING_CQE_F_MORE;
    assert_int_equal(stays, (world.uring.features & WEIR_URING_MULTISHOT) != 0);
    do {
        n = weir_queue_reap(queue, done, REAP_MAX);
        assert_true(n >= 0);
        for (int i = 0; i < n; i++) {
            assert_int_equal(done[i].result, 0);
            assert_int_equal(weir_release(&done[i].acquisition), 0);
        }
        all += (unsigned)n;
    } while (n == REAP_MAX);
    if (!stays)
        watch_queue();
    return all;
}

static int queue_slot(void)
{
    const struct weir_amount amounts[] = {{"slot", 1}};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = amounts, .amounts_n = 1, .timeout_ns = WEIR_FOREVER};

    return weir_queue_submit(queue, world.pool, &request, 0, NULL, NULL);
}

static void *submit_to_queue(void *n)
{
    for (int i = 0; i < *(const int *)n; i++)
        require(queue_slot() == 0);
    return NULL;
}

/* Wakes that found nothing to reap may still be there. */
static void close_queue(void)
{
    bool watched = true, canceling = true;

    cancel(OTHER);
    while (watched || canceling) {
        struct io_uring_cqe cqe = {0};

        assert_int_equal(ring_next(&world.ring, PATIENCE, &cqe), 0);
        if (cqe.user_data == CANCEL) {
            assert_true(cqe.res == 0 || cqe.res == -ENOENT || cqe.res == -EALREADY);
            canceling = false;
        } else {
            assert_int_equal(cqe.user_data, OTHER);
            assert_true(cqe.res == -ECANCELED || cqe.res > 0);
            watched = cqe.flags & IORING_CQE_F_MORE;
        }
    }
    queue = weir_queue_close(queue);
}

/* Every grant is noticed, one after the other in the wait queue and by each submission. */
static void queue_is_waited_for(void **state)
{
    int n = SUBMISSIONS;
    unsigned done = 0;
    pthread_t thread;

    (void)state;
    assert_int_equal(weir_queue_open(&queue, world.w, 2 * SUBMISSIONS), 0);
    watch_queue();
    expect_nothing();
    submit_to_queue(&n);
    expect_nothing();
    grant();
    while (done < SUBMISSIONS)
        done += await_queue();
    assert_int_equal(pthread_create(&thread, NULL, submit_to_queue, &n), 0);
    while (done < 2 * SUBMISSIONS)
        done += await_queue();
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(done, 2 * SUBMISSIONS);
    close_queue();
}

/* Also of what was there before the wait, and of what time brings. */
static void queue_is_waited_for_late(void **state)
{
    const struct weir_amount amounts[] = {{"slot", 1}};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = amounts, .amounts_n = 1, .timeout_ns = 2 * MS};
    struct weir_completion done;

    (void)state;
    assert_int_equal(weir_queue_open(&queue, world.w, 2), 0);
    assert_int_equal(queue_slot(), 0);
    grant();
    watch_queue();
    assert_int_equal(await_queue(), 1);
    assert_int_equal(submit(1, 0, 0, 0, &world.holder), 0);
    assert_int_equal(weir_queue_submit(queue, world.pool, &request, 7, NULL, NULL), 0);
    do {
        struct io_uring_cqe cqe = {0};

        assert_int_equal(ring_next(&world.ring, PATIENCE, &cqe), 0);
        assert_true(cqe.user_data == OTHER && cqe.res > 0);
        if (!(cqe.flags & IORING_CQE_F_MORE))
            watch_queue();
    } while (weir_queue_reap(queue, &done, 1) == 0);
    assert_int_equal(done.user_data, 7);
    assert_int_equal(done.result, -ETIMEDOUT);
    assert_int_equal(weir_queue_reap(queue, &done, 1), 0);
    close_queue();
}

static void queues_wait_without_multishot(void **state)
{
    world.uring.features &= ~(unsigned)WEIR_URING_MULTISHOT;
    queue_is_waited_for(state);
    assert_int_equal(submit(1, 0, 0, 0, &world.holder), 0);
    queue_is_waited_for_late(state);
}

int main(void)
{
    static const struct ring_case cases[] = {
        WAIT(wait_ends_by_a_grant),
        WAIT(wait_ends_at_once_if_decided),
        WAIT(wait_ends_by_the_timeout),
        WAIT(wait_ends_by_a_refusal),
        WAIT(wait_ends_by_canceling_the_acquisition),
        WAIT(wait_ends_by_the_instance_closing),
        WAIT(waits_share_an_eventfd_of_the_programs),
        WAIT(wait_is_canceled_and_prepared_again),
        TEST(queue_is_waited_for, PER_RING, WEIR_URING_MULTISHOT),
        TEST(queue_is_waited_for_late, PER_RING, WEIR_URING_MULTISHOT),
        TEST(queues_wait_without_multishot, PER_RING, 0),
    };

    return world_run(cases, sizeof(cases) / sizeof(cases[0]));
}
