/* SPDX-License-Identifier: MIT */
/*
 * Linked waits: which completions come, that no others do, whether the operation ran, and what
 * became of the grant.
 */
#include "ring_world.h"

#include <stdatomic.h>

static void linked_runs_at_the_grant(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    link_write(acquisition, FAR);
    expect_nothing();
    assert_int_equal(written(), 0);
    grant();
    expect_ran(acquisition);
}

static void linked_runs_at_the_grant_without_deadline(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    link_write(acquisition, WEIR_FOREVER);
    expect_nothing();
    grant();
    expect_ran(acquisition);
}

static void linked_runs_at_once_if_granted(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    grant();
    link_write(acquisition, FAR);
    expect_ran(acquisition);
}

static void linked_runs_at_once_if_granted_whatever_the_deadline(void **state)
{
    weir_acquisition *acquisition = NULL;

    (void)state;
    grant();
    assert_int_equal(submit(1, 2, WEIR_FOREVER, 0, &acquisition), 0);
    link_write(acquisition, LONG_SINCE);
    expect_ran(acquisition);
}

static void linked_is_ended_by_its_deadline(void **state)
{
    weir_acquisition *acquisition = pending();
    uint64_t deadline_ns = SOON;

    (void)state;
    link_write(acquisition, deadline_ns);
    expect(HEAD, -ECANCELED);
    assert_true(clock_now() >= deadline_ns);
    settle_unused(acquisition, -ECANCELED);
}

static void linked_is_ended_at_once_by_a_deadline_passed(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    link_write(acquisition, LONG_SINCE);
    expect(HEAD, -ECANCELED);
    settle_unused(acquisition, -ECANCELED);
}

/* It has come, its fd is signaled, and no thread was notified. */
static void grant_after_the_deadline_is_taken_back(void **state)
{
    weir_acquisition *acquisition = pending();
    uint64_t granted = granted_n();

    (void)state;
    link_write(acquisition, SOON);
    expect(HEAD, -ECANCELED);
    grant();
    assert_int_equal(granted_n(), granted + 1);
    settle_unused(acquisition, -ECANCELED);
}

static void linked_is_canceled(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        weir_acquisition *acquisition = pending();

        link_write(acquisition, i ? FAR : WEIR_FOREVER);
        cancel(HEAD);
        expect_both(CANCEL, 0, HEAD, -ECANCELED);
        settle_unused(acquisition, -ECANCELED);
    }
}

static void linked_is_canceled_in_the_same_submission(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    prepare_linked(acquisition, FAR, 1);
    prepare_write(OPERATION);
    cancel(HEAD);
    expect_both(CANCEL, 0, HEAD, -ECANCELED);
    settle_unused(acquisition, -ECANCELED);
}

static void grant_after_canceling_is_taken_back(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    link_write(acquisition, FAR);
    cancel(HEAD);
    expect_both(CANCEL, 0, HEAD, -ECANCELED);
    grant();
    settle_unused(acquisition, -ECANCELED);
}

static void canceling_too_late_changes_nothing(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    link_write(acquisition, FAR);
    grant();
    expect(OPERATION, 1);
    cancel(HEAD);
    expect(CANCEL, -ENOENT);
    expect_nothing();
    assert_int_equal(written(), 1);
    assert_int_equal(weir_uring_settle(&acquisition, true), 0);
    release_unused(acquisition);
}

/* The kernel does not learn of what is not a grant: such a chain stays until it is canceled. */
static void lets_nothing_run(weir_acquisition *acquisition, int code)
{
    link_write(acquisition, WEIR_FOREVER);
    while (weir_acquisition_result(acquisition) == -EINPROGRESS)
        pause_ns(MS);
    expect_nothing();
    cancel(HEAD);
    expect_both(CANCEL, 0, HEAD, -ECANCELED);
    settle_unused(acquisition, code);
}

static void timed_out_acquisition_lets_nothing_run(void **state)
{
    weir_acquisition *acquisition = NULL;

    (void)state;
    assert_int_equal(submit(1, 2, MS, 0, &acquisition), 1);
    lets_nothing_run(acquisition, -ETIMEDOUT);
}

static void refused_acquisition_lets_nothing_run(void **state)
{
    weir_acquisition *acquisition = NULL;

    (void)state;
    assert_int_equal(submit(1, 2, 0, MS, &acquisition), 1);
    lets_nothing_run(acquisition, -EAGAIN);
}

static void canceled_acquisition_lets_nothing_run(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    assert_int_equal(weir_cancel(acquisition), 0);
    link_write(acquisition, WEIR_FOREVER);
    grant();
    expect_nothing();
    cancel(HEAD);
    expect_both(CANCEL, 0, HEAD, -ECANCELED);
    settle_unused(acquisition, -ECANCELED);
}

static void shut_down_acquisition_lets_nothing_run(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    link_write(acquisition, WEIR_FOREVER);
    world.w = weir_close(world.w);
    grant();
    expect_nothing();
    cancel(HEAD);
    expect_both(CANCEL, 0, HEAD, -ECANCELED);
    settle_unused(acquisition, -ESHUTDOWN);
}

static void several_operations_run_in_order(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    prepare_linked(acquisition, FAR, 2);
    prepare_write(OPERATION)->flags |= IOSQE_IO_LINK;
    prepare_write(SECOND_OPERATION);
    submit_ring();
    grant();
    expect(OPERATION, 1);
    expect(SECOND_OPERATION, 1);
    expect_nothing();
    assert_int_equal(written(), 2);
    assert_int_equal(weir_uring_settle(&acquisition, true), 0);
    release_unused(acquisition);
}

static void several_operations_are_canceled_with_the_head(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    prepare_linked(acquisition, SOON, 2);
    prepare_write(OPERATION)->flags |= IOSQE_IO_LINK;
    prepare_write(SECOND_OPERATION);
    submit_ring();
    expect(HEAD, -ECANCELED);
    settle_unused(acquisition, -ECANCELED);
}

/* It has run, in the sense that matters: the grant was for it. */
static void operation_that_fails_has_run(void **state)
{
    weir_acquisition *acquisition = pending();
    struct io_uring_sqe *sqe;

    (void)state;
    prepare_linked(acquisition, FAR, 1);
    sqe = prepare_write(OPERATION);
    sqe->fd = world.out[0]; /* the end to read from */
    submit_ring();
    grant();
    expect(OPERATION, -EBADF);
    expect_nothing();
    assert_int_equal(weir_uring_settle(&acquisition, true), 0);
    release_unused(acquisition);
}

static void malformed_operation_ends_the_chain(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    for (int granted = 0; granted < 2; granted++) {
        if (granted)
            grant();
        prepare_linked(acquisition, FAR, 1);
        prepare_write(OPERATION)->opcode = 255;
        submit_ring();
        expect(HEAD, -ECANCELED);
        expect_nothing();
    }
    settle_unused(acquisition, -ECANCELED);
}

/* The end of one chain leaves the others alone. */
static void chains_do_not_disturb_each_other(void **state)
{
    weir_acquisition *first = pending(), *second = pending();

    (void)state;
    assert_int_equal(weir_uring_prep_linked_wait(&world.uring, &world.ring, &world.other_wait,
                                                 first, SOON, OTHER, 1),
                     0);
    prepare_write(SECOND_OPERATION);
    link_write(second, FAR);
    expect(OTHER, -ECANCELED);
    assert_int_equal(weir_uring_settle(&first, false), -ECANCELED);
    expect_nothing();
    grant();
    expect_ran(second);
}

/* Instead of weir_uring_settle: the deadline is put off. */
static void chain_follows_a_chain_that_did_not_run(void **state)
{
    weir_acquisition *first = pending(), *second;

    (void)state;
    link_write(first, SOON);
    expect(HEAD, -ECANCELED);
    link_write(first, FAR);
    expect_nothing();
    grant();
    expect_ran(first);
    assert_int_equal(submit(1, 0, 0, 0, &world.holder), 0);
    second = pending();
    link_write(second, SOON);
    expect(HEAD, -ECANCELED);
    grant(); /* between the two */
    link_write(second, FAR);
    expect_ran(second);
}

/* A program that knew of the grant keeps it, also if the operation did not run. */
static void known_grant_is_kept(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    link_write(acquisition, SOON);
    expect(HEAD, -ECANCELED);
    grant();
    assert_int_equal(weir_acquisition_result(acquisition), 0);
    assert_int_equal(weir_uring_settle(&acquisition, false), 0);
    assert_non_null(acquisition);
    release_unused(acquisition);
}

static atomic_int seen;

/* Grants; then whether the operation ran within the time that it may take. */
static void *grant_and_watch(void *patience_ms)
{
    struct pollfd poll_fd = {.fd = world.out[0], .events = POLLIN};

    require(weir_release(&world.holder) == 0);
    atomic_store(&seen, poll(&poll_fd, 1, *(const int *)patience_ms) == 1 ? 1 : -1);
    return NULL;
}

static void linked_runs_while_the_program_computes(void **state)
{
    weir_acquisition *acquisition = pending();
    int patience_ms = world.kind == DEFER ? 30 : 20000;
    pthread_t thread;

    (void)state;
    atomic_store(&seen, 0);
    link_write(acquisition, FAR);
    assert_int_equal(pthread_create(&thread, NULL, grant_and_watch, &patience_ms), 0);
    while (atomic_load(&seen) == 0)
        continue; /* no system call */
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(&seen), world.kind == DEFER ? -1 : 1);
    expect_ran(acquisition);
}

static void *link_and_leave(void *acquisition)
{
    link_write(acquisition, FAR);
    return NULL;
}

/*
 * Whatever the kernel makes of it, nothing runs for a thread that is not there, nor is lost. Only a
 * default ring takes submissions of several threads.
 */
static void linked_does_not_run_after_its_thread(void **state)
{
    (void)state;
    for (int granted = 0; granted < 2; granted++) {
        weir_acquisition *acquisition = pending();
        pthread_t thread;

        assert_int_equal(pthread_create(&thread, NULL, link_and_leave, acquisition), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        if (granted) {
            grant();
            expect(HEAD, -ECANCELED);
        } else {
            cancel(HEAD);
            expect_both(CANCEL, 0, HEAD, -ECANCELED);
        }
        settle_unused(acquisition, -ECANCELED);
    }
}

int main(void)
{
    static const struct ring_case cases[] = {
        LINKED(linked_runs_at_the_grant),
        LINKED(linked_runs_at_the_grant_without_deadline),
        LINKED(linked_runs_at_once_if_granted),
        LINKED(linked_runs_at_once_if_granted_whatever_the_deadline),
        LINKED(linked_is_ended_by_its_deadline),
        LINKED(linked_is_ended_at_once_by_a_deadline_passed),
        LINKED(grant_after_the_deadline_is_taken_back),
        LINKED(linked_is_canceled),
        LINKED(linked_is_canceled_in_the_same_submission),
        LINKED(grant_after_canceling_is_taken_back),
        LINKED(canceling_too_late_changes_nothing),
        LINKED(timed_out_acquisition_lets_nothing_run),
        LINKED(refused_acquisition_lets_nothing_run),
        LINKED(canceled_acquisition_lets_nothing_run),
        LINKED(shut_down_acquisition_lets_nothing_run),
        LINKED(several_operations_run_in_order),
        LINKED(several_operations_are_canceled_with_the_head),
        LINKED(operation_that_fails_has_run),
        LINKED(malformed_operation_ends_the_chain),
        LINKED(chains_do_not_disturb_each_other),
        LINKED(chain_follows_a_chain_that_did_not_run),
        LINKED(known_grant_is_kept),
        LINKED(linked_runs_while_the_program_computes),
        TEST(linked_does_not_run_after_its_thread, PER_FORM_ON_DEFAULT, WEIR_URING_LINKED),
    };

    return world_run(cases, sizeof(cases) / sizeof(cases[0]));
}
