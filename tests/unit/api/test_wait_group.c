/* SPDX-License-Identifier: MIT */
/*
 * Requests that wait in several sets (`wait: any`): by each way of waiting, the first set that is
 * able grants, and the request leaves the others. In every order of what races.
 */
#include "api/wait_group.h"
#include "lib/blocked.h"
#include "lib/world.h"
#include "unit/mirror.h"
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SETS = 3 };

static const char *const names[SETS] = {"a", "b", "c"};

#define LIMITS(n)                                                                                  \
    "limits: [ { type: resource, key: slots, capacity: " #n " },"                                  \
    " { type: rate, key: calls, algorithm: fixed_window, capacity: 1000, window: 1h,"              \
    " refund: false } ]"
#define POOL(fields)                                                                               \
    "\npools: { p: { sets: [a, b, c], wait: any, balancer: mirror_ranks, " fields " } }\n"
#define THREE(a, b, c)                                                                             \
    "version: 1\nsets: { a: { " LIMITS(1) a " }, b: { " LIMITS(1) b " }, c: { " LIMITS(1) c        \
        " } }" POOL("")

static struct mirror mirror;
static weir_pool *pools[SETS];
static weir_acquisition *holders[SETS];

static struct weir_request request(void)
{
    static const struct weir_amount one = {"calls", 1};

    mirror = (struct mirror){.answers = {0, 1, 2}};
    return (struct weir_request){.size = sizeof(struct weir_request),
                                 .amounts = &one,
                                 .amounts_n = 1,
                                 .route = (uint64_t)(uintptr_t)&mirror};
}

static struct weir_request *ask(void)
{
    static struct weir_request asked;

    asked = request();
    return &asked;
}

static void open_text(const char *text)
{
    world_open(text, "p");
    for (int i = 0; i < SETS; i++)
        pools[i] = pool_open(names[i], 0);
}

static void open_three(void)
{
    open_text(THREE("", "", ""));
}

static void close_three(void)
{
    for (int i = 0; i < SETS; i++)
        pools[i] = weir_pool_close(pools[i]);
    world_close();
}

static struct weir_set_stats look_at(int i, struct weir_limit_stats limits[2])
{
    struct weir_set_stats stats = {.size = sizeof(stats)};

    settle();
    assert_int_equal(weir_set_stats(weir_pool_set(pools[i], 0), &stats, limits, 2), 2);
    return stats;
}

/* So many wait in the set, and so many calls of its rate are used. */
static void expect(int i, uint64_t waiting, uint64_t used)
{
    struct weir_limit_stats limits[2];

    assert_int_equal(look_at(i, limits).waiting, waiting);
    assert_int_equal(limits[1].available, 1000 - used);
}

static void expect_waiting(uint64_t a, uint64_t b, uint64_t c)
{
    const uint64_t waiting[SETS] = {a, b, c};
    struct weir_limit_stats limits[2];

    for (int i = 0; i < SETS; i++)
        assert_int_equal(look_at(i, limits).waiting, waiting[i]);
}

/* Takes the slot of a set, behind the back of the pool. */
static void hold(int i)
{
    struct weir_request asked = request();

    assert_int_equal(weir_try_acquire(pools[i], &asked, &holders[i], NULL), 0);
    settle();
}

static void hold_all(void)
{
    for (int i = 0; i < SETS; i++)
        hold(i);
}

static void let_go(int i)
{
    assert_int_equal(weir_update(holders[i], "calls", 1), 0);
    assert_int_equal(weir_release(&holders[i]), 0);
    settle();
}

static void let_all_go(void)
{
    for (int i = 0; i < SETS; i++)
        if (holders[i])
            let_go(i);
}

/* Does what the timer thread would: withdraws. */
static void tick(void)
{
    assert_true(weir_tick(world.w) >= 0);
    settle();
}

static weir_acquisition *wait_for_any(void)
{
    weir_acquisition *a = NULL;

    assert_int_equal(weir_submit(world.pool, ask(), &a, NULL), 1);
    settle();
    return a;
}

static void release_one(weir_acquisition *a)
{
    assert_int_equal(weir_update(a, "calls", 1), 0);
    assert_int_equal(weir_release(&a), 0);
    settle();
}

/* ---- an acquisition ---- */

static void the_first_that_grants_at_once_takes_it(void **state)
{
    weir_acquisition *a;

    (void)state;
    needs(HAS_OWN_CLOCK); /* engines are asked at one time */
    open_three();
    hold(0);
    a = NULL;
    assert_int_equal(weir_submit(world.pool, ask(), &a, NULL), 0);
    assert_string_equal(weir_acquisition_set(a), "b");
    assert_int_equal(weir_acquisition_result(a), 0);
    expect_waiting(0, 0, 0);
    expect(2, 0, 0);
    release_one(a);
    let_all_go();
    close_three();
}

static void check_winner(int winner)
{
    uint64_t used[SETS] = {1, 1, 1}, amount;
    weir_acquisition *a;

    open_three();
    hold_all();
    a = wait_for_any();
    expect_waiting(1, 1, 1);
    assert_int_equal(weir_acquisition_result(a), -EINPROGRESS);
    assert_string_equal(weir_acquisition_set(a), "p");
    assert_int_equal(weir_acquisition_amount(a, "calls", &amount), -ENOENT);
    assert_int_equal(weir_update(a, "calls", 1), -EINVAL);
    assert_false(readable(weir_acquisition_fd(a)));
    let_go(winner);
    assert_true(readable(weir_acquisition_fd(a)));
    assert_int_equal(weir_acquisition_result(a), 0);
    expect_waiting(0, 0, 0);
    assert_string_equal(weir_acquisition_set(a), names[winner]);
    assert_int_equal(weir_acquisition_amount(a, "calls", &amount), 0);
    assert_int_equal(amount, 1);
    assert_int_equal(weir_acquisition_granted_ns(a, &amount), 0);
    assert_string_equal(weir_acquisition_missing_update(a), "calls");
    assert_int_equal(weir_cancel(a), -EALREADY);
    release_one(a);
    let_all_go();
    for (int i = 0; i < SETS; i++)
        expect(i, 0, used[i] + (i == winner));
    close_three();
}

static void each_may_win(void **state)
{
    (void)state;
    for (int i = 0; i < SETS; i++)
        check_winner(i);
}

/* Both grant before the request could leave the second. */
static void a_surplus_grant_is_undone(void **state)
{
    weir_acquisition *a;
    struct weir_limit_stats limits[2];

    (void)state;
    open_three();
    hold_all();
    a = wait_for_any();
    let_go(1);
    let_go(2);
    if (!backend->is_remote) {
        look_at(2, limits);
        assert_int_equal(limits[0].available, 0); /* for a moment it has units less */
    }
    assert_int_equal(weir_acquisition_result(a), 0);
    assert_string_equal(weir_acquisition_set(a), "b");
    expect_waiting(0, 0, 0);
    look_at(2, limits);
    assert_int_equal(limits[0].available, 1);
    expect(2, 0, 1); /* its holder's: that of the surplus grant came back */
    release_one(a);
    let_all_go();
    close_three();
}

/* Two sets that grant at once, as the request enters their wait queues: what a thread that submits
 * sees only if a unit comes back between the probe and the enqueue. */
static void a_member_that_is_granted_too_late_is_undone(void **state)
{
    struct wait_group *group;
    weir_acquisition *members[2];

    (void)state;
    needs(HAS_OWN_CLOCK);
    open_three();
    group = wait_group_new(world.w, 2);
    for (int i = 0; i < 2; i++) {
        struct weir_request asked = request();

        assert_int_equal(weir_submit(pools[i], &asked, &members[i], NULL), 0);
        assert_true(wait_group_begin_member(group, members[i]));
    }
    for (int i = 0; i < 2; i++)
        wait_group_add_member(group, members[i], 0);
    assert_false(wait_group_begin_member(group, NULL)); /* it is decided */
    assert_true(wait_group_complete(group));
    tick();
    expect(0, 0, 1); /* the winner */
    expect(1, 0, 0);
    wait_group_abandon(group);
    expect(0, 0, 0);
    close_three();
}

/* A tick withdraws as well as the program's own calls do. The next waiters are granted, and count
 * as decided by it. */
static void others_are_withdrawn_by_the_timer(void **state)
{
    weir_acquisition *a, *behind = NULL;
    struct weir_request asked;

    (void)state;
    open_three();
    hold_all();
    a = wait_for_any();
    asked = request();
    assert_int_equal(weir_submit(pools[2], &asked, &behind, NULL), 1);
    settle();
    let_go(0);
    let_go(2);
    if (backend->is_remote)
        tick(); /* the engine decides */
    else
        assert_int_equal(weir_tick(world.w), 1);
    assert_int_equal(weir_tick(world.w), 0);
    assert_int_equal(weir_acquisition_result(behind), 0);
    expect_waiting(0, 0, 0);
    assert_int_equal(weir_acquisition_result(a), 0);
    release_one(behind);
    release_one(a);
    let_all_go();
    close_three();
}

static void a_cancellation_leaves_all(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_three();
    hold_all();
    a = wait_for_any();
    assert_int_equal(weir_cancel(a), 0);
    assert_int_equal(weir_acquisition_result(a), -ECANCELED);
    assert_true(readable(weir_acquisition_fd(a)));
    assert_int_equal(weir_cancel(a), -EALREADY);
    expect_waiting(0, 0, 0);
    release(a);
    let_all_go();
    for (int i = 0; i < SETS; i++)
        expect(i, 0, 1);
    close_three();
}

static void a_cancellation_undoes_a_grant_that_is_not_known(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_three();
    hold_all();
    a = wait_for_any();
    let_go(1);
    assert_int_equal(weir_cancel(a), 0);
    assert_int_equal(weir_acquisition_result(a), -ECANCELED);
    expect_waiting(0, 0, 0);
    expect(1, 0, 1);
    release(a);
    let_all_go();
    close_three();
}

static void an_update_tells_that_the_grant_is_known(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_three();
    hold_all();
    a = wait_for_any();
    let_go(1);
    assert_int_equal(weir_update(a, "calls", 1), 0);
    assert_int_equal(weir_cancel(a), -EALREADY);
    release(a);
    expect(1, 0, 2);
    let_all_go();
    close_three();
}

static void a_release_ends_it_in_any_state(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_three();
    hold_all();
    a = wait_for_any();
    release(a); /* it waits */
    expect_waiting(0, 0, 0);
    a = wait_for_any();
    let_go(2);
    release(a); /* granted, and not known: undone */
    expect(2, 0, 1);
    hold(2);
    a = wait_for_any();
    assert_true(weir_acquisition_fd(a) >= 0);
    let_go(2);
    assert_int_equal(weir_release(&a), -EPROTO); /* the descriptor has told: it counts as used */
    expect(2, 0, 3);
    expect_waiting(0, 0, 0);
    let_all_go();
    close_three();
}

static void the_program_uses_it_as_any_other(void **state)
{
    struct weir_request inner;
    weir_acquisition *a, *nested = NULL, *first;
    int event_fd;

    (void)state;
    needs(HAS_NESTING);
    event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    open_text("version: 1\nsets: { a: { " LIMITS(1) " }, b: { config: { url: here }, " LIMITS(
        2) " }, c: { " LIMITS(1) " } }" POOL(""));
    hold_all();
    first = holders[1];
    hold(1);
    a = wait_for_any();
    assert_int_equal(weir_acquisition_attach(a, event_fd), 0);
    assert_int_equal(weir_acquisition_grant_fd(a), -EINVAL);
    assert_null(weir_acquisition_config(a, "url"));
    let_go(1);
    assert_true(readable(event_fd));
    inner = request();
    inner.within = a;
    assert_int_equal(weir_try_acquire(world.pool, &inner, &nested, NULL), -EAGAIN);
    assert_int_equal(weir_acquisition_result(a), 0);
    assert_string_equal(weir_acquisition_config(a, "url"), "here");
    assert_int_equal(weir_outcome(a, WEIR_OUTCOME_SUCCESS, 5), 0);
    assert_int_equal(weir_acquisition_lost_fd(a), -EOPNOTSUPP);
    assert_int_equal(weir_return(a, "slots", 1), 0);
    assert_int_equal(weir_try_acquire(world.pool, &inner, &nested, NULL), 0);
    assert_string_equal(weir_acquisition_set(nested), "b");
    release_one(nested);
    release_one(a);
    close(event_fd);
    holders[1] = first;
    let_all_go();
    close_three();
}

/* ---- deadlines and refusals ---- */

static void it_times_out_in_all(void **state)
{
    struct weir_request asked;
    struct weir_refusal why = {.size = sizeof(why)};
    weir_acquisition *a = NULL;

    (void)state;
    open_three();
    hold_all();
    asked = request();
    asked.timeout_ns = SECOND;
    assert_int_equal(weir_submit(world.pool, &asked, &a, NULL), 1);
    settle();
    advance(SECOND - 1000);
    assert_int_equal(weir_acquisition_result(a), -EINPROGRESS);
    advance(1000);
    assert_int_equal(weir_acquisition_result(a), -ETIMEDOUT);
    assert_int_equal(weir_acquisition_refusal(a, &why), 0);
    assert_true(strstr("abc", why.set) != NULL);
    expect_waiting(0, 0, 0);
    release(a);
    let_all_go();
    close_three();
}

static void each_set_has_its_own_deadline(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_text(THREE(", timeout: 1s", ", timeout: 3s", ", max_wait: 2s"));
    hold_all();
    a = wait_for_any();
    advance(SECOND);
    expect_waiting(0, 1, 1);
    advance(SECOND);
    expect_waiting(0, 1, 0);
    assert_int_equal(weir_acquisition_result(a), -EINPROGRESS);
    let_go(1);
    assert_int_equal(weir_acquisition_result(a), 0);
    release_one(a);
    hold(1);
    a = wait_for_any();
    advance(3 * SECOND);
    assert_int_equal(weir_acquisition_result(a), -ETIMEDOUT);
    expect_waiting(0, 0, 0);
    release(a);
    let_all_go();
    close_three();
}

static void a_grant_comes_before_the_last_deadline(void **state)
{
    weir_acquisition *a;
    struct weir_request asked;

    (void)state;
    open_three();
    hold_all();
    asked = request();
    asked.timeout_ns = SECOND;
    a = NULL;
    assert_int_equal(weir_submit(world.pool, &asked, &a, NULL), 1);
    settle();
    let_go(0);
    advance(2 * SECOND);
    assert_int_equal(weir_acquisition_result(a), 0);
    expect_waiting(0, 0, 0);
    release_one(a);
    let_all_go();
    close_three();
}

static void sets_that_refuse_are_left_out(void **state)
{
    struct weir_request asked;
    struct weir_refusal why = {.size = sizeof(why)};
    weir_acquisition *a, *b;

    (void)state;
    needs(HAS_OWN_CLOCK); /* engines refuse later */
    open_text(THREE(", max_waiters: 1", "", ", max_waiters: 2"));
    hold_all();
    a = wait_for_any();
    expect_waiting(1, 1, 1);
    b = wait_for_any();
    expect_waiting(1, 2, 2); /* in `a` is no room */
    release(a);
    expect_waiting(0, 1, 1);
    let_go(2);
    assert_int_equal(weir_acquisition_result(b), 0);
    release_one(b);
    /* None ever can: the answer of the first is as good as any. */
    asked = request();
    asked.amounts = (const struct weir_amount[]){{"slots", 7}};
    assert_int_equal(weir_submit(world.pool, &asked, &b, &why), -ERANGE);
    assert_string_equal(why.key, "slots");
    assert_string_equal(why.set, "a");
    let_all_go();
    close_three();
}

static void full_sets_refuse_together(void **state)
{
    struct weir_refusal why = {.size = sizeof(why)};
    weir_acquisition *a, *b = NULL;

    (void)state;
    needs(HAS_OWN_CLOCK);
    open_text(THREE(", max_waiters: 1", ", max_waiters: 1", ", max_waiters: 1"));
    hold_all();
    a = wait_for_any();
    assert_int_equal(weir_submit(world.pool, ask(), &b, &why), -ENOBUFS);
    assert_null(b);
    assert_string_equal(why.set, "a");
    expect_waiting(1, 1, 1);
    release(a);
    let_all_go();
    close_three();
}

/* One set can never grant, another one may. */
static void a_request_that_waits_has_no_refusal(void **state)
{
    struct weir_refusal why = {.size = sizeof(why)};
    struct weir_request asked;
    weir_acquisition *a = NULL;

    (void)state;
    needs(HAS_OWN_CLOCK);
    open_text("version: 1\nsets: { a: { " LIMITS(1) " }, b: { " LIMITS(2) " }, c: { " LIMITS(
        1) " } }" POOL(""));
    hold_all();
    asked = request();
    asked.amounts = (const struct weir_amount[]){{"slots", 2}, {"calls", 1}};
    asked.amounts_n = 2;
    assert_int_equal(weir_submit(world.pool, &asked, &a, &why), 1);
    assert_null(why.key);
    expect_waiting(0, 1, 0);
    let_go(1);
    assert_int_equal(weir_acquisition_result(a), 0);
    release_one(a);
    let_all_go();
    close_three();
}

static void the_soonest_refusal_is_told(void **state)
{
    struct weir_request asked = request();
    struct weir_refusal why = {.size = sizeof(why)};
    weir_acquisition *a = NULL;

    (void)state;
    needs(HAS_OWN_CLOCK | HAS_EXACT_FORECASTS);
    open_text("version: 1\nsets:\n"
              "  a: { limits: [ { type: rate, key: r, capacity: 1, window: 9s, algorithm: "
              "fixed_window } ] }\n"
              "  b: { limits: [ { type: rate, key: r, capacity: 1, window: 5s, algorithm: "
              "fixed_window } ] }\n"
              "  c: { limits: [ { type: rate, key: r, capacity: 1, window: 7s, algorithm: "
              "fixed_window } ] }" POOL(""));
    asked.amounts = (const struct weir_amount[]){{"r", 1}};
    for (int i = 0; i < SETS; i++)
        assert_int_equal(weir_take(pools[i], &asked, NULL), 0);
    asked.max_wait_ns = SECOND / 1000;
    assert_int_equal(weir_submit(world.pool, &asked, &a, &why), -EAGAIN);
    assert_null(a);
    assert_string_equal(why.set, "b");
    assert_true(why.retry_after_ns > 0 && why.retry_after_ns <= 5 * SECOND);
    asked.max_wait_ns = 0;
    mirror = (struct mirror){.answers = {0, 1, 2}};
    assert_int_equal(weir_submit(world.pool, &asked, &a, &why), 1);
    advance(why.retry_after_ns);
    assert_int_equal(weir_acquisition_result(a), 0); /* time alone has granted */
    assert_string_equal(weir_acquisition_set(a), "b");
    assert_int_equal(weir_update(a, "r", 1), 0);
    release(a);
    close_three();
}

/* ---- order ---- */

static void each_queue_stays_first_in_first_out(void **state)
{
    struct weir_request asked;
    weir_acquisition *any, *before = NULL, *behind = NULL;

    (void)state;
    open_three();
    hold_all();
    asked = request();
    assert_int_equal(weir_submit(pools[1], &asked, &before, NULL), 1);
    settle();
    any = wait_for_any();
    assert_int_equal(weir_submit(pools[1], &asked, &behind, NULL), 1);
    settle();
    let_go(1);
    assert_int_equal(weir_acquisition_result(before), 0);
    assert_int_equal(weir_acquisition_result(any), -EINPROGRESS);
    release_one(before);
    assert_int_equal(weir_acquisition_result(any), 0);
    assert_int_equal(weir_acquisition_result(behind), -EINPROGRESS);
    release_one(any);
    assert_int_equal(weir_acquisition_result(behind), 0);
    release_one(behind);
    let_all_go();
    close_three();
}

/* ---- blocked threads ---- */

static void start_blocked(struct blocked *blocked, const struct weir_request *asked)
{
    uint64_t sleeps = fake_os_counts().futex_wait;
    struct weir_limit_stats limits[2];

    blocked_start(blocked, asked);
    while (look_at(2, limits).waiting < 1 || fake_os_counts().futex_wait == sleeps)
        sched_yield();
}

static void a_blocked_thread_is_granted_by_any(void **state)
{
    struct weir_request asked;
    struct blocked blocked;

    (void)state;
    for (int winner = 0; winner < SETS; winner++) {
        open_three();
        hold_all();
        asked = request();
        start_blocked(&blocked, &asked);
        let_go(winner);
        blocked_join(&blocked, 0);
        expect_waiting(0, 0, 0);
        assert_string_equal(weir_acquisition_set(blocked.acquisition), names[winner]);
        release_one(blocked.acquisition);
        let_all_go();
        close_three();
    }
}

static void a_token_ends_a_wait_in_all(void **state)
{
    struct weir_request asked;
    struct blocked blocked;
    weir_token *token;
    weir_acquisition *a = NULL;

    (void)state;
    open_three();
    hold_all();
    assert_int_equal(weir_token_open(&token, world.w), 0);
    asked = request();
    asked.token = token;
    start_blocked(&blocked, &asked);
    assert_int_equal(weir_token_cancel(token), 1);
    blocked_join(&blocked, -ECANCELED);
    expect_waiting(0, 0, 0);
    let_all_go();
    assert_int_equal(weir_acquire(world.pool, &asked, &a, NULL), -ECANCELED);
    assert_null(a);
    weir_token_close(token);
    close_three();
}

static void a_blocked_thread_times_out(void **state)
{
    struct weir_request asked;
    struct blocked blocked;

    (void)state;
    open_three();
    hold_all();
    asked = request();
    asked.timeout_ns = SECOND;
    start_blocked(&blocked, &asked);
    advance(SECOND);
    blocked_join(&blocked, -ETIMEDOUT);
    assert_true(strstr("abc", blocked.refusal.set) != NULL);
    expect_waiting(0, 0, 0);
    let_all_go();
    close_three();
}

static void closing_ends_a_blocked_wait(void **state)
{
    struct weir_request asked;
    struct blocked blocked;

    (void)state;
    open_three();
    hold_all();
    asked = request();
    start_blocked(&blocked, &asked);
    for (int i = 0; i < SETS; i++)
        pools[i] = weir_pool_close(pools[i]);
    world.w = weir_close(world.w);
    blocked_join(&blocked, -ESHUTDOWN);
    for (int i = 0; i < SETS; i++)
        assert_int_equal(weir_release(&holders[i]), -EPROTO);
    world.pool = weir_pool_close(world.pool);
}

/* ---- completion queues ---- */

static struct weir_completion reaped(weir_queue *queue, int n)
{
    struct weir_completion done[4];

    settle();
    assert_int_equal(weir_queue_reap(queue, done, 4), n);
    return done[0];
}

static void check_queue(int winner, bool has_acquisition)
{
    struct weir_completion done;
    weir_acquisition *a = NULL;
    weir_queue *queue;

    open_three();
    assert_int_equal(weir_queue_open(&queue, world.w, 2), 0);
    hold_all();
    assert_int_equal(
        weir_queue_submit(queue, world.pool, ask(), 7, has_acquisition ? &a : NULL, NULL), 0);
    settle();
    expect_waiting(1, 1, 1);
    reaped(queue, 0);
    let_go(winner);
    assert_true(readable(weir_queue_fd(queue)));
    done = reaped(queue, 1);
    assert_int_equal(done.result, 0);
    assert_int_equal(done.user_data, 7);
    assert_true(!has_acquisition || done.acquisition == a);
    assert_string_equal(weir_acquisition_set(done.acquisition), names[winner]);
    tick();
    expect_waiting(0, 0, 0);
    release_one(done.acquisition);
    weir_queue_close(queue);
    let_all_go();
    close_three();
}

static void a_queue_completes_once(void **state)
{
    (void)state;
    for (int i = 0; i < SETS; i++) {
        check_queue(i, false);
        check_queue(i, true);
    }
}

static void a_queue_completes_at_once(void **state)
{
    struct weir_completion done;
    weir_queue *queue;

    (void)state;
    open_three();
    assert_int_equal(weir_queue_open(&queue, world.w, 2), 0);
    hold(0);
    assert_int_equal(weir_queue_submit(queue, world.pool, ask(), 1, NULL, NULL), 0);
    done = reaped(queue, 1);
    tick();
    assert_int_equal(done.result, 0);
    if (!backend->is_remote)
        assert_string_equal(weir_acquisition_set(done.acquisition), "b");
    expect_waiting(0, 0, 0);
    release_one(done.acquisition);
    assert_int_equal(weir_queue_submit(queue, world.pool, ask(), 1, NULL, NULL), 0);
    weir_queue_close(queue); /* undoes it */
    settle();
    tick();
    let_all_go();
    expect(0, 0, 1);
    expect_waiting(0, 0, 0);
    close_three();
}

static void a_queue_cancels_by_user_data(void **state)
{
    struct weir_completion done;
    weir_queue *queue;

    (void)state;
    open_three();
    assert_int_equal(weir_queue_open(&queue, world.w, 2), 0);
    hold_all();
    assert_int_equal(weir_queue_submit(queue, world.pool, ask(), 9, NULL, NULL), 0);
    settle();
    assert_int_equal(weir_queue_cancel(queue, 9), 1);
    done = reaped(queue, 1);
    assert_int_equal(done.result, -ECANCELED);
    expect_waiting(0, 0, 0);
    assert_int_equal(weir_queue_submit(queue, world.pool, ask(), 9, NULL, NULL), 0);
    settle();
    let_go(1);
    assert_int_equal(weir_queue_cancel(queue, 9), 1); /* a grant that was not reaped */
    done = reaped(queue, 1);
    assert_int_equal(done.result, -ECANCELED);
    tick();
    expect(1, 0, 1);
    expect_waiting(0, 0, 0);
    weir_queue_close(queue);
    let_all_go();
    close_three();
}

static void a_queue_cancels_by_acquisition(void **state)
{
    weir_acquisition *a = NULL;
    weir_queue *queue;

    (void)state;
    open_three();
    assert_int_equal(weir_queue_open(&queue, world.w, 2), 0);
    hold_all();
    assert_int_equal(weir_queue_submit(queue, world.pool, ask(), 9, &a, NULL), 0);
    settle();
    expect_waiting(1, 1, 1);
    assert_int_equal(weir_cancel(a), 0);
    expect_waiting(0, 0, 0);
    assert_int_equal(reaped(queue, 1).result, -ECANCELED);
    release(a);
    weir_queue_close(queue);
    let_all_go();
    close_three();
}

/* What a decision has left to a tick is due at once: it may let others be granted. */
static void withdrawals_are_due(void **state)
{
    weir_acquisition *a;
    uint64_t due_ns = 0;

    (void)state;
    open_three();
    hold_all();
    a = wait_for_any();
    assert_int_equal(weir_due_at(world.w, &due_ns), 0);
    assert_true(due_ns > weir_now(world.w));
    let_go(1);
    assert_int_equal(weir_due_at(world.w, &due_ns), 0);
    assert_true(due_ns == weir_now(world.w));
    tick();
    assert_int_equal(weir_due_at(world.w, &due_ns), 0);
    assert_true(due_ns > weir_now(world.w));
    assert_int_equal(weir_acquisition_result(a), 0);
    release_one(a);
    let_all_go();
    close_three();
}

static void a_queue_tells_timeouts(void **state)
{
    struct weir_request asked;
    struct weir_completion done;
    weir_acquisition *a = NULL;
    weir_queue *queue;

    (void)state;
    open_three();
    assert_int_equal(weir_queue_open(&queue, world.w, 1), 0);
    hold_all();
    for (int i = 0; i < 2; i++) {
        asked = request();
        asked.timeout_ns = SECOND;
        assert_int_equal(weir_queue_submit(queue, world.pool, &asked, 9, i ? &a : NULL, NULL), 0);
        asked = request();
        assert_int_equal(weir_queue_submit(queue, world.pool, &asked, 9, NULL, NULL), -ENOSPC);
        settle();
        advance(SECOND);
        done = reaped(queue, 1);
        assert_int_equal(done.result, -ETIMEDOUT);
        assert_true(strstr("abc", done.refusal.set) != NULL);
        expect_waiting(0, 0, 0);
        release(a);
    }
    weir_queue_close(queue);
    let_all_go();
    close_three();
}

static void a_queue_is_closed_while_they_wait(void **state)
{
    weir_acquisition *a = NULL;
    weir_queue *queue;

    (void)state;
    open_three();
    assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
    hold_all();
    for (int i = 0; i < 3; i++)
        assert_int_equal(weir_queue_submit(queue, world.pool, ask(), 9, i == 1 ? &a : NULL, NULL),
                         0);
    settle();
    let_go(2);
    weir_queue_close(queue);
    settle();
    release(a);
    tick();
    expect_waiting(0, 0, 0);
    expect(2, 0, 1);
    let_all_go();
    close_three();
}

/* ---- ends ---- */

static void closing_ends_waits(void **state)
{
    weir_acquisition *a, *granted_one;

    (void)state;
    open_three();
    hold_all();
    granted_one = wait_for_any();
    let_go(1);
    a = wait_for_any();
    weir_tick(world.w);
    for (int i = 0; i < SETS; i++)
        pools[i] = weir_pool_close(pools[i]);
    world.pool = weir_pool_close(world.pool); /* handles may go before what they have granted */
    world_close();
    assert_int_equal(weir_acquisition_result(a), -ESHUTDOWN);
    assert_int_equal(weir_acquisition_result(granted_one), 0);
    assert_int_equal(weir_release(&a), 0);
    assert_int_equal(weir_release(&granted_one), -EPROTO);
    assert_int_equal(weir_release(&holders[0]), -EPROTO);
    assert_int_equal(weir_release(&holders[2]), -EPROTO);
}

static void a_queue_outlives_its_instance(void **state)
{
    struct weir_completion done;
    weir_queue *queue;

    (void)state;
    open_three();
    assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
    hold_all();
    assert_int_equal(weir_queue_submit(queue, world.pool, ask(), 1, NULL, NULL), 0);
    assert_int_equal(weir_queue_submit(queue, world.pool, ask(), 1, NULL, NULL), 0);
    settle();
    let_go(0);
    close_three();
    assert_int_equal(weir_queue_reap(queue, &done, 1), 1);
    assert_int_equal(done.result, 0);
    assert_int_equal(weir_release(&done.acquisition), -EPROTO);
    assert_int_equal(weir_queue_reap(queue, &done, 1), 1);
    assert_int_equal(done.result, -ESHUTDOWN);
    weir_queue_close(queue);
    for (int i = 1; i < SETS; i++)
        assert_int_equal(weir_release(&holders[i]), -EPROTO);
}

static void a_forked_child_has_no_part(void **state)
{
    weir_acquisition *a;
    pid_t child;
    int status;

    (void)state;
    open_three();
    hold_all();
    a = wait_for_any();
    child = fork();
    if (child == 0) {
        bool refused = weir_acquisition_result(a) == -ECHILD && weir_cancel(a) == -ECHILD &&
                       weir_update(a, "calls", 1) == -ECHILD && weir_release(&a) == -ECHILD;

        _exit(refused ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    expect_waiting(1, 1, 1);
    let_go(2);
    assert_int_equal(weir_acquisition_result(a), 0);
    release_one(a);
    let_all_go();
    close_three();
}

/* ---- definitions ---- */

static void sets_of_all_kinds_may_be_mixed(void **state)
{
    struct weir_request asked;
    weir_acquisition *a;

    (void)state;
    needs(HAS_OWN_CLOCK);
    for (int winner = 0; winner < SETS; winner++) {
        open_text("version: 1\nsets: { a: { backend: process, lifetime: users, " LIMITS(
            1) " }, b: { subjects: { max: 8 }, " LIMITS(1) " }, c: { backend: process, lifetime: "
                                                           "users, subjects: { max: 8 }, " LIMITS(
                                                               1) " } }" POOL(""));
        for (int i = 0; i < SETS; i++) {
            asked = request();
            asked.subject = "s";
            asked.subject_size = 1;
            assert_int_equal(weir_try_acquire(pools[i], &asked, &holders[i], NULL), 0);
        }
        a = NULL;
        asked = request();
        asked.subject = "s";
        asked.subject_size = 1;
        assert_int_equal(weir_submit(world.pool, &asked, &a, NULL), 1);
        assert_int_equal(weir_acquisition_result(a), -EINPROGRESS);
        assert_int_equal(weir_update(holders[winner], "calls", 1), 0);
        assert_int_equal(weir_release(&holders[winner]), 0);
        tick();
        assert_int_equal(weir_acquisition_result(a), 0);
        assert_string_equal(weir_acquisition_set(a), names[winner]);
        release_one(a);
        let_all_go();
        close_three();
    }
}

static void a_pool_is_defined_in_code(void **state)
{
    static const char *const of[] = {"a", "b"};
    struct weir_pool_spec spec = {
        .size = sizeof(spec), .set_names = of, .set_names_n = 2, .flags = WEIR_POOL_WAIT_ANY};
    weir_pool *pool;
    weir_acquisition *a = NULL;
    const char *listed[8];
    int n;

    (void)state;
    open_three();
    n = weir_sets(world.w, listed, 8);
    assert_int_equal(n, 3); /* the set that is behind a pool is not one of the program's */
    assert_int_equal(weir_pool_new(&pool, world.w, &spec, NULL), 0);
    assert_int_equal(weir_sets(world.w, listed, 8), n);
    hold_all();
    assert_int_equal(weir_submit(pool, ask(), &a, NULL), 1);
    settle();
    assert_string_equal(weir_acquisition_set(a), "");
    expect_waiting(1, 1, 0);
    assert_int_equal(weir_pool_close(pool) == NULL, 1);
    let_go(1);
    assert_int_equal(weir_acquisition_result(a), 0);
    release_one(a);
    let_all_go();
    close_three();
}

static void one_set_is_as_any_pool_of_one(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_open(
        "version: 1\nsets: { a: { " LIMITS(1) " } }\npools: { p: { sets: [a], wait: any } }\n",
        "p");
    a = granted(ASK({"calls", 1}));
    assert_string_equal(weir_acquisition_set(a), "a");
    release_used(a, "calls", 1);
    world_close();
}

static void reservations_and_tries_pick_one(void **state)
{
    weir_acquisition *a = NULL;
    struct weir_request asked;
    uint64_t at_ns;

    (void)state;
    open_three();
    hold(0);
    assert_int_equal(weir_try_acquire(world.pool, ask(), &a, NULL), -EAGAIN);
    asked = request();
    asked.amounts = (const struct weir_amount[]){{"calls", 1}, {"slots", 0}};
    asked.amounts_n = 2;
    assert_int_equal(weir_reserve(world.pool, &asked, &a, &at_ns, NULL), 0);
    assert_string_equal(weir_acquisition_set(a), "a");
    release_one(a);
    let_all_go();
    close_three();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(the_first_that_grants_at_once_takes_it),
        leak_checked_test(each_may_win),
        leak_checked_test(a_surplus_grant_is_undone),
        leak_checked_test(a_member_that_is_granted_too_late_is_undone),
        leak_checked_test(others_are_withdrawn_by_the_timer),
        leak_checked_test(a_cancellation_leaves_all),
        leak_checked_test(a_cancellation_undoes_a_grant_that_is_not_known),
        leak_checked_test(an_update_tells_that_the_grant_is_known),
        leak_checked_test(a_release_ends_it_in_any_state),
        leak_checked_test(the_program_uses_it_as_any_other),
        leak_checked_test(it_times_out_in_all),
        leak_checked_test(each_set_has_its_own_deadline),
        leak_checked_test(a_grant_comes_before_the_last_deadline),
        leak_checked_test(sets_that_refuse_are_left_out),
        leak_checked_test(full_sets_refuse_together),
        leak_checked_test(a_request_that_waits_has_no_refusal),
        leak_checked_test(the_soonest_refusal_is_told),
        leak_checked_test(each_queue_stays_first_in_first_out),
        leak_checked_test(a_blocked_thread_is_granted_by_any),
        leak_checked_test(a_token_ends_a_wait_in_all),
        leak_checked_test(a_blocked_thread_times_out),
        leak_checked_test(closing_ends_a_blocked_wait),
        leak_checked_test(a_queue_completes_once),
        leak_checked_test(a_queue_completes_at_once),
        leak_checked_test(a_queue_cancels_by_user_data),
        leak_checked_test(a_queue_cancels_by_acquisition),
        leak_checked_test(withdrawals_are_due),
        leak_checked_test(a_queue_tells_timeouts),
        leak_checked_test(a_queue_is_closed_while_they_wait),
        leak_checked_test(closing_ends_waits),
        leak_checked_test(a_queue_outlives_its_instance),
        leak_checked_test(a_forked_child_has_no_part),
        leak_checked_test(sets_of_all_kinds_may_be_mixed),
        leak_checked_test(a_pool_is_defined_in_code),
        leak_checked_test(one_set_is_as_any_pool_of_one),
        leak_checked_test(reservations_and_tries_pick_one),
    };

    backend_choose(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
