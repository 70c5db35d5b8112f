/* SPDX-License-Identifier: MIT */
/*
 * Every function of weir/uring.h and every outcome that it promises: which completions come, that
 * no others do, whether the operation ran, and what became of the grant. Each test runs on every
 * kind of ring, and with READ and with POLL_ADD where that makes a difference.
 */
#include "rings.h"

#include "fake_sys.h"
#include "fixture.h"
#include "require.h"
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <weir/weir.h>

#include <cmocka.h>

/* user_data of what a test has on the ring. */
enum { HEAD = 1, OPERATION, SECOND, OTHER, CANCEL, MARK };

#define ENTRIES    16
#define TOKENS     UINT64_C(1000)
#define PATIENCE   (20 * S) /* longer than anything that will happen takes */
#define FAR        (clock_now() + 60 * S)
#define SOON       (clock_now() + 2 * MS)
#define LONG_SINCE 1

struct variant {
    unsigned kind;
    unsigned without; /* features that the test does without */
};

static struct weir_uring probed;
static struct weir_uring uring;
static struct io_uring ring;
static unsigned kind;
static weir *w;
static weir_pool *pool;
static weir_set *set;
static weir_acquisition *holder; /* of the only slot */
static int out[2];               /* the pipe that operations write to */
static struct weir_uring_wait wait_memory, other_memory;

/* The fixture. */

static void open_limits(void)
{
    const struct weir_limit_spec limits[] = {
        {sizeof(limits[0]), WEIR_LIMIT_RESOURCE, "slot", NULL, 1, 0, NULL, 0, WEIR_DEFAULT,
         WEIR_DEFAULT},
        {sizeof(limits[0]), WEIR_LIMIT_RATE, "tokens", "token_bucket", TOKENS, TOKENS * 3600 * S,
         NULL, 0, WEIR_DEFAULT, WEIR_DEFAULT},
    };
    struct weir_set_spec spec = {
        .size = sizeof(spec), .name = "set", .limits = limits, .limits_n = 2};
    struct weir_pool_spec pool_spec = {.size = sizeof(pool_spec), .sets = &spec, .sets_n = 1};
    struct weir_error error = {0};

    require(weir_open(&w, NULL, NULL) == 0);
    if (weir_pool_new(&pool, w, &pool_spec, &error) < 0) {
        fprintf(stderr, "%s\n", error.message);
        require(!"a pool");
    }
    set = weir_pool_set(pool, 0);
}

static int submit(uint64_t slots, uint64_t tokens, uint64_t timeout_ns, uint64_t max_wait_ns,
                  weir_acquisition **ret)
{
    const struct weir_amount amounts[] = {{"slot", slots}, {"tokens", tokens}};
    const struct weir_request request = {.size = sizeof(request),
                                         .amounts = amounts,
                                         .amounts_n = 2,
                                         .timeout_ns = timeout_ns,
                                         .max_wait_ns = max_wait_ns};

    return weir_submit(pool, &request, ret, NULL);
}

static int setup(void **state)
{
    const struct variant *variant = *state;

    fixture_setup(state);
    kind = variant->kind;
    uring.features = probed.features & ~variant->without;
    require(io_uring_queue_init(ENTRIES, &ring, ring_kinds[kind].flags) == 0);
    require(pipe2(out, O_CLOEXEC | O_NONBLOCK) == 0);
    open_limits();
    require(submit(1, 0, 0, 0, &holder) == 0);
    memset(&wait_memory, 0xee, sizeof(wait_memory));
    memset(&other_memory, 0xee, sizeof(other_memory));
    return 0;
}

/* How many bytes operations have written since the last look. */
static int written(void)
{
    char bytes[64];
    ssize_t n = read(out[0], bytes, sizeof(bytes));

    return n < 0 ? 0 : (int)n;
}

static bool missed(bool fine, const char *what)
{
    if (!fine)
        fprintf(stderr, "after the test: %s\n", what);
    return !fine;
}

/* Whether anything is held or missing, or left on the ring. */
static bool anything_left(void)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[2];
    struct io_uring_cqe cqe;
    bool left = missed(ring_next(&ring, 1, &cqe) == -ETIME, "a completion on the ring");

    require(weir_set_stats(set, &stats, limits, 2) == 2);
    left |= missed(stats.held == 0 && stats.waiting == 0, "somebody holds or waits");
    left |= missed(stats.granted == stats.released + stats.taken, "a grant was not released");
    left |= missed(limits[0].available == 1, "the slot is not there");
    left |= missed(limits[1].available == TOKENS, "tokens are missing");
    return left | missed(written() == 0, "an operation ran");
}

static int teardown(void **state)
{
    bool left;

    require(weir_release(&holder) == 0);
    left = anything_left();
    weir_close(w);
    weir_pool_close(pool);
    io_uring_queue_exit(&ring);
    close(out[0]);
    close(out[1]);
    return fixture_teardown(state) != 0 || left ? -1 : 0;
}

/* What tests do. */

/* An acquisition of the slot and two tokens that pends behind the holder. */
static weir_acquisition *pending(void)
{
    weir_acquisition *acquisition = NULL;

    assert_int_equal(submit(1, 2, WEIR_FOREVER, 0, &acquisition), 1);
    return acquisition;
}

/* The holder gives the slot back: what pends is granted. */
static void grant(void)
{
    assert_int_equal(weir_release(&holder), 0);
}

static void submit_ring(void)
{
    unsigned n = io_uring_sq_ready(&ring);

    assert_int_equal(io_uring_submit(&ring), n);
}

/* The next completion is this. */
static void expect(uint64_t user_data, int res)
{
    struct io_uring_cqe cqe = {0};

    assert_int_equal(ring_next(&ring, PATIENCE, &cqe), 0);
    assert_int_equal(cqe.user_data, user_data);
    assert_int_equal(cqe.res, res);
}

/* The next completion is of a wait that has found its descriptor readable. */
static void expect_woken(uint64_t user_data)
{
    expect(user_data, uring.features & WEIR_URING_READ ? 8 : POLLIN);
}

/* Nothing has completed, as of what the kernel had to do before this. */
static void expect_nothing(void)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data64(sqe, MARK);
    submit_ring();
    expect(MARK, 0);
    assert_int_equal(io_uring_cq_ready(&ring), 0);
}

static struct io_uring_sqe *prepare_write(uint64_t user_data)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

    assert_non_null(sqe);
    io_uring_prep_write(sqe, out[1], "x", 1, 0);
    io_uring_sqe_set_data64(sqe, user_data);
    return sqe;
}

static void prepare_linked(weir_acquisition *acquisition, uint64_t deadline_ns, unsigned next)
{
    assert_int_equal(weir_uring_prep_linked_wait(&uring, &ring, &wait_memory, acquisition,
                                                 deadline_ns, HEAD, next),
                     0);
}

/* A chain of one operation, submitted. */
static void link_write(weir_acquisition *acquisition, uint64_t deadline_ns)
{
    prepare_linked(acquisition, deadline_ns, 1);
    prepare_write(OPERATION);
    submit_ring();
}

static void cancel(uint64_t target)
{
    assert_int_equal(weir_uring_prep_cancel(&ring, target, CANCEL), 0);
    submit_ring();
}

/* Two completions in either order. */
static void expect_both(uint64_t user_data, int res, uint64_t other, int other_res)
{
    struct io_uring_cqe cqe = {0};

    assert_int_equal(ring_next(&ring, PATIENCE, &cqe), 0);
    if (cqe.user_data != user_data) {
        assert_int_equal(cqe.user_data, other);
        assert_int_equal(cqe.res, other_res);
        expect(user_data, res);
        return;
    }
    assert_int_equal(cqe.res, res);
    expect(other, other_res);
}

/* The chain has ended with its operation: it ran once and the grant is the program's. */
static void expect_ran(weir_acquisition *acquisition)
{
    expect(OPERATION, 1);
    expect_nothing();
    assert_int_equal(written(), 1);
    assert_int_equal(weir_uring_settle(&acquisition, true), 0);
    assert_non_null(acquisition);
    assert_int_equal(weir_cancel(acquisition), -EALREADY);
    assert_int_equal(weir_update(acquisition, "tokens", 0), 0);
    assert_int_equal(weir_release(&acquisition), 0);
}

/* The chain has ended without its operation, and settling says `code`. */
static void settle_unused(weir_acquisition *acquisition, int code)
{
    expect_nothing();
    assert_int_equal(weir_uring_settle(&acquisition, false), code);
    assert_null(acquisition);
    expect_nothing();
    assert_int_equal(written(), 0);
}

static uint64_t granted_n(void)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};

    require(weir_set_stats(set, &stats, NULL, 0) == 2);
    return stats.granted;
}

/* Waits. */

static void prepare_wait(weir_acquisition *acquisition)
{
    assert_int_equal(weir_uring_prep_wait(&uring, &ring, &wait_memory, acquisition, HEAD), 0);
    submit_ring();
}

static void release_unused(weir_acquisition *acquisition)
{
    if (weir_acquisition_result(acquisition) == 0)
        assert_int_equal(weir_update(acquisition, "tokens", 0), 0);
    assert_int_equal(weir_release(&acquisition), 0);
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
    w = weir_close(w);
    expect_woken(HEAD);
    assert_int_equal(weir_acquisition_result(acquisition), -ESHUTDOWN);
    release_unused(acquisition);
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

/* Linked waits. */

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

/* It has come, its fd is signaled, and nobody was told. */
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
    for (int i = 0; i < 2; i++) {
        weir_acquisition *acquisition = pending();

        (void)state;
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
    w = weir_close(w);
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
    prepare_write(SECOND);
    submit_ring();
    grant();
    expect(OPERATION, 1);
    expect(SECOND, 1);
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
    prepare_write(SECOND);
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
    sqe->fd = out[0]; /* the end to read from */
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
    assert_int_equal(
        weir_uring_prep_linked_wait(&uring, &ring, &other_memory, first, SOON, OTHER, 1), 0);
    prepare_write(SECOND);
    link_write(second, FAR);
    expect(OTHER, -ECANCELED);
    assert_int_equal(weir_uring_settle(&first, false), -ECANCELED);
    expect_nothing();
    grant();
    expect_ran(second);
}

/* Instead of settling: the deadline is put off. */
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
    assert_int_equal(submit(1, 0, 0, 0, &holder), 0);
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
    struct pollfd poll_fd = {.fd = out[0], .events = POLLIN};

    require(weir_release(&holder) == 0);
    atomic_store(&seen, poll(&poll_fd, 1, *(const int *)patience_ms) == 1 ? 1 : -1);
    return NULL;
}

static void linked_runs_while_the_program_computes(void **state)
{
    weir_acquisition *acquisition = pending();
    int patience_ms = kind == DEFER ? 30 : 20000;
    pthread_t thread;

    (void)state;
    atomic_store(&seen, 0);
    link_write(acquisition, FAR);
    assert_int_equal(pthread_create(&thread, NULL, grant_and_watch, &patience_ms), 0);
    while (atomic_load(&seen) == 0)
        continue; /* no system call */
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(&seen), kind == DEFER ? -1 : 1);
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

/* Queues. */

enum { REAP_MAX = 4, SUBMISSIONS = 23 };

static weir_queue *queue;

static void watch_queue(void)
{
    assert_int_equal(weir_uring_prep_queue(&uring, &ring, queue, OTHER), 0);
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

    assert_int_equal(ring_next(&ring, PATIENCE, &cqe), 0);
    assert_int_equal(cqe.user_data, OTHER);
    assert_true(cqe.res > 0 && cqe.res & POLLIN);
    stays = cqe.flags & IORING_CQE_F_MORE;
    assert_int_equal(stays, (uring.features & WEIR_URING_MULTISHOT) != 0);
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

    return weir_queue_submit(queue, pool, &request, 0, NULL, NULL);
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

        assert_int_equal(ring_next(&ring, PATIENCE, &cqe), 0);
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

/* Every grant is heard of, one after the other in the line and whoever submits. */
static void queue_is_waited_for(void **state)
{
    int n = SUBMISSIONS;
    unsigned done = 0;
    pthread_t thread;

    (void)state;
    assert_int_equal(weir_queue_open(&queue, w, 2 * SUBMISSIONS), 0);
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
    assert_int_equal(weir_queue_open(&queue, w, 2), 0);
    assert_int_equal(queue_slot(), 0);
    grant();
    watch_queue();
    assert_int_equal(await_queue(), 1);
    assert_int_equal(submit(1, 0, 0, 0, &holder), 0);
    assert_int_equal(weir_queue_submit(queue, pool, &request, 7, NULL, NULL), 0);
    do {
        struct io_uring_cqe cqe = {0};

        assert_int_equal(ring_next(&ring, PATIENCE, &cqe), 0);
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
    uring.features &= ~(unsigned)WEIR_URING_MULTISHOT;
    queue_is_waited_for(state);
    assert_int_equal(submit(1, 0, 0, 0, &holder), 0);
    queue_is_waited_for_late(state);
}

/* Pacing. */

static void prepare_paced(uint64_t at_ns, unsigned next)
{
    assert_int_equal(weir_uring_prep_paced(&uring, &ring, &wait_memory, at_ns, HEAD, next), 0);
}

static void pace_write(uint64_t at_ns)
{
    prepare_paced(at_ns, 1);
    prepare_write(OPERATION);
    submit_ring();
    memset(&wait_memory, 0xee, sizeof(wait_memory)); /* the kernel has its copy */
}

static void paced_runs_at_its_instant(void **state)
{
    uint64_t at_ns = SOON;

    (void)state;
    pace_write(at_ns);
    expect(OPERATION, 1);
    assert_true(clock_now() >= at_ns);
    expect_nothing();
    assert_int_equal(written(), 1);
}

static void paced_runs_at_once_if_its_instant_has_passed(void **state)
{
    (void)state;
    pace_write(0);
    expect(OPERATION, 1);
    pace_write(LONG_SINCE);
    expect(OPERATION, 1);
    expect_nothing();
    assert_int_equal(written(), 2);
}

static void paced_is_canceled(void **state)
{
    (void)state;
    pace_write(FAR);
    expect_nothing();
    cancel(HEAD);
    expect_both(CANCEL, 0, HEAD, -ECANCELED);
    expect_nothing();
    assert_int_equal(written(), 0);
}

static void several_paced_operations_run_in_order(void **state)
{
    (void)state;
    prepare_paced(SOON, 2);
    prepare_write(OPERATION)->flags |= IOSQE_IO_LINK;
    prepare_write(SECOND);
    submit_ring();
    expect(OPERATION, 1);
    expect(SECOND, 1);
    expect_nothing();
    assert_int_equal(written(), 2);
}

static void malformed_paced_operation_ends_the_chain(void **state)
{
    (void)state;
    prepare_paced(FAR, 1);
    prepare_write(OPERATION)->opcode = 255;
    submit_ring();
    expect(HEAD, -ECANCELED);
    expect_nothing();
}

/* Errors: nothing is prepared. */

/* Leaves room for n SQEs. */
static void fill_ring(unsigned n)
{
    while (io_uring_sq_space_left(&ring) > n) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

        io_uring_prep_nop(sqe);
        io_uring_sqe_set_data64(sqe, MARK);
    }
}

static void empty_ring(void)
{
    unsigned n = io_uring_sq_ready(&ring);

    submit_ring();
    while (n--)
        expect(MARK, 0);
}

static int try_linked(weir_acquisition *acquisition, uint64_t deadline_ns, unsigned next)
{
    unsigned ready = io_uring_sq_ready(&ring);
    int r = weir_uring_prep_linked_wait(&uring, &ring, &wait_memory, acquisition, deadline_ns, HEAD,
                                        next);

    assert_true(r < 0);
    assert_int_equal(io_uring_sq_ready(&ring), ready);
    return r;
}

static int try_paced(uint64_t at_ns, unsigned next)
{
    unsigned ready = io_uring_sq_ready(&ring);
    int r = weir_uring_prep_paced(&uring, &ring, &wait_memory, at_ns, HEAD, next);

    assert_true(r < 0);
    assert_int_equal(io_uring_sq_ready(&ring), ready);
    return r;
}

static void full_ring_prepares_nothing(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    fill_ring(2);
    assert_int_equal(try_linked(acquisition, FAR, 1), -EBUSY);
    assert_int_equal(try_linked(acquisition, WEIR_FOREVER, 2), -EBUSY);
    assert_int_equal(try_paced(FAR, 2), -EBUSY);
    fill_ring(1);
    assert_int_equal(try_linked(acquisition, WEIR_FOREVER, 1), -EBUSY);
    assert_int_equal(try_paced(FAR, 1), -EBUSY);
    fill_ring(0);
    assert_int_equal(weir_uring_prep_wait(&uring, &ring, &wait_memory, acquisition, HEAD), -EBUSY);
    assert_int_equal(weir_uring_prep_cancel(&ring, HEAD, CANCEL), -EBUSY);
    assert_int_equal(weir_queue_open(&queue, w, 1), 0);
    assert_int_equal(weir_uring_prep_queue(&uring, &ring, queue, OTHER), -EBUSY);
    queue = weir_queue_close(queue);
    assert_int_equal(io_uring_sq_ready(&ring), ENTRIES);
    empty_ring();
    fill_ring(3); /* exactly enough */
    prepare_linked(acquisition, FAR, 1);
    prepare_write(OPERATION);
    assert_int_equal(io_uring_sq_space_left(&ring), 0);
    submit_ring();
    for (int i = 0; i < ENTRIES - 3; i++)
        expect(MARK, 0);
    grant();
    expect_ran(acquisition);
}

static void chain_without_deadline_needs_less_room(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    fill_ring(2);
    prepare_linked(acquisition, WEIR_FOREVER, 1);
    prepare_write(OPERATION);
    assert_int_equal(io_uring_sq_space_left(&ring), 0);
    submit_ring();
    for (int i = 0; i < ENTRIES - 2; i++)
        expect(MARK, 0);
    grant();
    expect_ran(acquisition);
}

static void ring_too_small_for_the_chain_is_an_error(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    assert_int_equal(try_linked(acquisition, FAR, ENTRIES - 1), -EINVAL);
    assert_int_equal(try_linked(acquisition, WEIR_FOREVER, ENTRIES), -EINVAL);
    assert_int_equal(try_linked(acquisition, FAR, UINT32_MAX), -EINVAL);
    assert_int_equal(try_linked(acquisition, WEIR_FOREVER, UINT32_MAX), -EINVAL);
    assert_int_equal(try_linked(acquisition, FAR, 0), -EINVAL);
    assert_int_equal(try_paced(FAR, ENTRIES), -EINVAL);
    assert_int_equal(try_paced(FAR, UINT32_MAX), -EINVAL);
    assert_int_equal(try_paced(FAR, 0), -EINVAL);
    assert_int_equal(try_paced(WEIR_FOREVER, 1), -EINVAL);
    fill_ring(ENTRIES - 1); /* too full for what it could hold */
    assert_int_equal(try_linked(acquisition, FAR, ENTRIES - 2), -EBUSY);
    assert_int_equal(try_linked(acquisition, WEIR_FOREVER, ENTRIES - 1), -EBUSY);
    assert_int_equal(try_paced(FAR, ENTRIES - 1), -EBUSY);
    empty_ring();
    assert_int_equal(weir_uring_settle(&acquisition, false), -ECANCELED);
}

static void missing_feature_is_an_error(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    uring.features &= ~(WEIR_URING_LINKED | WEIR_URING_PACED);
    assert_int_equal(try_linked(acquisition, FAR, 1), -EOPNOTSUPP);
    assert_int_equal(try_paced(FAR, 1), -EOPNOTSUPP);
    assert_int_equal(weir_uring_settle(&acquisition, false), -ECANCELED);
}

/* One acquisition cannot be waited for in both ways. */
static void waits_of_two_kinds_are_an_error(void **state)
{
    weir_acquisition *first = pending(), *second = pending();

    (void)state;
    assert_true(weir_acquisition_fd(first) >= 0);
    assert_int_equal(try_linked(first, FAR, 1), -EINVAL);
    assert_true(weir_acquisition_grant_fd(second) >= 0);
    assert_int_equal(weir_uring_prep_wait(&uring, &ring, &wait_memory, second, HEAD), -EINVAL);
    assert_int_equal(io_uring_sq_ready(&ring), 0);
    release_unused(first);
    release_unused(second);
}

static void descriptors_run_out(void **state)
{
    weir_acquisition *acquisition = pending();

    (void)state;
    fake_sys_fail_kind_from(1, FAKE_DESCRIPTOR, -EMFILE);
    assert_int_equal(try_linked(acquisition, FAR, 1), -EMFILE);
    assert_int_equal(weir_uring_prep_wait(&uring, &ring, &wait_memory, acquisition, HEAD), -EMFILE);
    assert_int_equal(io_uring_sq_ready(&ring), 0);
    fake_sys_fail_at(0);
    link_write(acquisition, FAR);
    grant();
    expect_ran(acquisition);
}

/* Probing. */

/* What skips CQEs (5.17) has all that came before. */
static void probe_finds_what_a_kernel_has(void **state)
{
    (void)state;
    assert_true(probed.features & WEIR_URING_READ || !(ring.features & IORING_FEAT_CQE_SKIP));
    assert_true(probed.features & WEIR_URING_MULTISHOT || !(ring.features & IORING_FEAT_CQE_SKIP));
    assert_true(probed.features & WEIR_URING_LINKED || !(ring.features & IORING_FEAT_CQE_SKIP));
    assert_true(probed.features & WEIR_URING_PACED || !(ring.features & IORING_FEAT_CQE_SKIP));
}

static void probe_says_the_same_again(void **state)
{
    struct weir_uring again = {UINT32_MAX};

    (void)state;
    assert_int_equal(weir_uring_probe(&again), 0);
    assert_int_equal(again.features, probed.features);
}

/* Lowers the limit of descriptors so that `n` more can be had. */
static struct rlimit limit_descriptors(unsigned n)
{
    struct rlimit before, lower;
    int lowest = dup(out[0]);

    require(lowest >= 0 && getrlimit(RLIMIT_NOFILE, &before) == 0);
    close(lowest);
    lower = before;
    lower.rlim_cur = (rlim_t)lowest + n;
    require(setrlimit(RLIMIT_NOFILE, &lower) == 0);
    return before;
}

static void probe_without_descriptors_fails(void **state)
{
    struct weir_uring untouched = {12345};

    (void)state;
    for (unsigned n = 0; n < 2; n++) {
        struct rlimit before = limit_descriptors(n);
        int r = weir_uring_probe(&untouched);

        require(setrlimit(RLIMIT_NOFILE, &before) == 0);
        assert_int_equal(r, -EMFILE);
        assert_int_equal(untouched.features, 12345);
    }
}

/* As containers and sandboxes do. */
static int forbid(long call, uint32_t code)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | code),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                   prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0
               ? 0
               : -1;
}

static void probe_where_it_is_forbidden_fails(void **state)
{
    static const struct {
        long call;
        uint32_t code;
    } cases[] = {
        {SYS_io_uring_setup, EPERM}, {SYS_io_uring_setup, ENOSYS}, {SYS_io_uring_enter, EPERM}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct weir_uring untouched = {12345};
        pid_t child = fork();
        int status = -1;

        assert_true(child >= 0);
        if (child == 0) {
            if (forbid(cases[i].call, cases[i].code) != 0)
                _exit(2);
            _exit(weir_uring_probe(&untouched) != -(int)cases[i].code ||
                  untouched.features != 12345);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

/* The tests, and what each needs. */

enum when { ONCE, PER_RING, PER_FORM, PER_FORM_ON_DEFAULT };

#define TEST(function, when, needs)                                                                \
    {                                                                                              \
#function, function, when, needs                                                           \
    }
#define WAIT(function)   TEST(function, PER_FORM, 0)
#define LINKED(function) TEST(function, PER_FORM, WEIR_URING_LINKED)
#define PACED(function)  TEST(function, PER_RING, WEIR_URING_PACED)

static const struct {
    const char *name;
    CMUnitTestFunction function;
    enum when when;
    unsigned needs;
} cases[] = {
    WAIT(wait_ends_by_a_grant),
    WAIT(wait_ends_at_once_if_decided),
    WAIT(wait_ends_by_the_timeout),
    WAIT(wait_ends_by_a_refusal),
    WAIT(wait_ends_by_canceling_the_acquisition),
    WAIT(wait_ends_by_the_instance_closing),
    WAIT(wait_is_canceled_and_prepared_again),
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
    TEST(queue_is_waited_for, PER_RING, WEIR_URING_MULTISHOT),
    TEST(queue_is_waited_for_late, PER_RING, WEIR_URING_MULTISHOT),
    TEST(queues_wait_without_multishot, PER_RING, 0),
    PACED(paced_runs_at_its_instant),
    PACED(paced_runs_at_once_if_its_instant_has_passed),
    PACED(paced_is_canceled),
    PACED(several_paced_operations_run_in_order),
    PACED(malformed_paced_operation_ends_the_chain),
    TEST(full_ring_prepares_nothing, PER_RING, WEIR_URING_LINKED | WEIR_URING_PACED),
    TEST(chain_without_deadline_needs_less_room, PER_RING, WEIR_URING_LINKED),
    TEST(ring_too_small_for_the_chain_is_an_error, PER_RING, WEIR_URING_LINKED | WEIR_URING_PACED),
    TEST(missing_feature_is_an_error, ONCE, 0),
    TEST(waits_of_two_kinds_are_an_error, ONCE, WEIR_URING_LINKED),
    TEST(descriptors_run_out, ONCE, WEIR_URING_LINKED),
    TEST(probe_finds_what_a_kernel_has, ONCE, 0),
    TEST(probe_says_the_same_again, ONCE, 0),
    TEST(probe_without_descriptors_fails, ONCE, 0),
    TEST(probe_where_it_is_forbidden_fails, ONCE, 0),
};
#define CASES_N (sizeof(cases) / sizeof(cases[0]))

static void kernel_lacks_it(void **state)
{
    (void)state;
    print_message("this kernel lacks what it needs\n");
    skip();
}

static struct CMUnitTest tests[CASES_N * RING_KINDS * 2];
static struct variant variants[CASES_N * RING_KINDS * 2];
static char names[CASES_N * RING_KINDS * 2][128];
static size_t tests_n;

/* One test: a case on a kind of ring, with READ or with POLL_ADD. */
static void add(size_t i, unsigned ring_kind, bool with_read)
{
    static const char *const forms[] = {".poll", ".read"};
    unsigned needs = cases[i].needs | (with_read ? WEIR_URING_READ : 0);
    struct variant *variant = &variants[tests_n];
    struct CMUnitTest *test = &tests[tests_n];
    char *name = names[tests_n++];

    *variant = (struct variant){ring_kind, with_read ? 0 : WEIR_URING_READ};
    snprintf(name, sizeof(names[0]), "%s.%s%s", cases[i].name, ring_kinds[ring_kind].name,
             cases[i].when >= PER_FORM ? forms[with_read] : "");
    if (ring_exists(ring_kind) && (probed.features & needs) == needs)
        *test = (struct CMUnitTest){name, cases[i].function, setup, teardown, variant};
    else
        *test = (struct CMUnitTest){name, kernel_lacks_it, NULL, NULL, NULL};
}

static void add_all(unsigned ring_kind)
{
    for (size_t i = 0; i < CASES_N; i++) {
        if (ring_kind != DEFAULT && (cases[i].when == ONCE || cases[i].when == PER_FORM_ON_DEFAULT))
            continue;
        add(i, ring_kind, false);
        if (cases[i].when >= PER_FORM)
            add(i, ring_kind, true);
    }
}

int main(void)
{
    if (!rings_begin(&probed))
        return 77;
    for (unsigned i = 0; i < RING_KINDS; i++)
        add_all(i);
    return _cmocka_run_group_tests("uring", tests, tests_n, NULL, NULL);
}
