/* SPDX-License-Identifier: MIT */
/*
 * Nested requests: they go before the others, and a circle of holders that wait for each other is
 * found when it is closed. Disjoint requests of a set that is fair per limit. Random histories of
 * both are in test_set_model.c.
 */
#include "lib/blocked.h"
#include "lib/require.h"
#include "lib/world.h"
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOTS(n) "{ type: resource, key: slot, capacity: " #n " }"
#define DISKS    "{ type: resource, key: disk, capacity: 1 }"
#define RATE     "{ type: rate, key: k, algorithm: token_bucket, capacity: 10, window: 10s, burst: 1 }"

static struct weir_request *within(struct weir_request *request, const weir_acquisition *outer)
{
    request->within = outer;
    return request;
}

static weir_acquisition *slots(uint64_t n)
{
    return granted(ASK({"slot", n}));
}

static weir_acquisition *waiting_for(uint64_t n, const weir_acquisition *outer)
{
    return pending(within(ASK({"slot", n}), outer));
}

static void is_deadlock(uint64_t n, const weir_acquisition *outer)
{
    weir_acquisition *acquisition = NULL;
    struct picture before = picture();

    assert_int_equal(submit(within(ASK({"slot", n}), outer), &acquisition), -EDEADLK);
    assert_string_equal(refusal.key, "slot");
    assert_int_equal(refusal.retry_after_ns, WEIR_FOREVER);
    assert_int_equal(weir_acquire(world.pool, within(ASK({"slot", n}), outer), &acquisition, NULL),
                     -EDEADLK);
    assert_null(acquisition);
    assert_int_equal(stats().refused_deadlock, before.set.refused_deadlock + 2);
    assert_int_equal(stats().waiting, before.set.waiting);
    assert_int_equal(stats().held, before.set.held);
}

static bool is_granted(weir_acquisition *acquisition)
{
    return weir_acquisition_result(acquisition) == 0;
}

/* ---- order ---- */

static void nested_requests_go_first(void **state)
{
    weir_acquisition *outer, *other, *ordinary, *first, *second;

    (void)state;
    world_limits(SLOTS(3));
    outer = slots(1);
    other = slots(2);
    ordinary = pending(ASK({"slot", 1}));
    first = waiting_for(1, outer);
    second = waiting_for(1, outer);
    release(other);
    assert_true(is_granted(first));
    assert_true(is_granted(second));
    assert_false(is_granted(ordinary));
    release(first);
    assert_true(is_granted(ordinary));
    release(ordinary);
    release(second);
    release(outer);
    world_close();
}

static void nested_requests_among_themselves_keep_their_order(void **state)
{
    weir_acquisition *outer, *other, *all, *one, *late = NULL;

    (void)state;
    world_limits(SLOTS(4));
    outer = slots(1);
    other = slots(2);
    all = waiting_for(2, outer);
    assert_int_equal(try_acquire(within(ASK({"slot", 1}), outer), &late), -EAGAIN);
    one = waiting_for(1, outer);
    release(other);
    assert_true(is_granted(all));
    assert_true(is_granted(one));
    release(one);
    release(all);
    release(outer);
    world_close();
}

static void what_is_there_is_had_at_once(void **state)
{
    weir_acquisition *outer, *ordinary, *nested;

    (void)state;
    world_limits(SLOTS(3) ", " RATE);
    outer = granted(ASK({"slot", 2}));
    ordinary = pending(ASK({"slot", 2}));
    nested = granted(within(ASK({"slot", 1}), outer));
    assert_int_equal(take(within(ASK({"k", 1}, {"slot", 0}), outer)), 0);
    assert_int_equal(take(ASK({"k", 1}, {"slot", 0})), -EAGAIN);
    release(nested);
    release(outer);
    assert_true(is_granted(ordinary));
    release(ordinary);
    world_close();
}

/* Three wait for a token each; the nested one is next, and the forecast says so. */
static void forecasts_know_the_order(void **state)
{
    weir_acquisition *outer, *first, *second, *nested = NULL;
    uint64_t at = 0;

    (void)state;
    world_limits(SLOTS(9) ", " RATE);
    outer = granted(ASK({"slot", 1}));
    assert_int_equal(take(ASK({"k", 1}, {"slot", 0})), 0);
    first = pending(ASK({"k", 1}));
    second = pending(ASK({"k", 1}));
    assert_int_equal(weir_set_ready_at(world.set, ASK({"k", 1}), &at), 0);
    assert_int_equal(at, world.now + 3 * SECOND);
    assert_int_equal(weir_set_ready_at(world.set, within(ASK({"k", 1}), outer), &at), 0);
    assert_int_equal(at, world.now + SECOND);
    assert_int_equal(submit(within(with_max_wait(ASK({"k", 1}), SECOND - 1), outer), &nested),
                     -EAGAIN);
    assert_int_equal(refusal.retry_after_ns, SECOND);
    assert_int_equal(submit(within(with_max_wait(ASK({"k", 1}), SECOND), outer), &nested), 1);
    assert_int_equal(weir_set_ready_at(world.set, ASK({"k", 1}), &at), 0);
    assert_int_equal(at, world.now + 4 * SECOND);
    advance(SECOND);
    assert_true(is_granted(nested));
    assert_false(is_granted(first));
    advance(SECOND);
    assert_true(is_granted(first));
    advance(SECOND);
    assert_true(is_granted(second));
    release_used(nested, "k", 1);
    release_used(first, "k", 1);
    release_used(second, "k", 1);
    release(outer);
    world_close();
}

/* ---- circles ---- */

static void what_the_holder_itself_holds_is_never_free(void **state)
{
    weir_acquisition *outer;

    (void)state;
    world_limits(SLOTS(1));
    outer = slots(1);
    is_deadlock(1, outer);
    release(outer);
    world_close();
}

static void two_that_wait_for_each_other(void **state)
{
    weir_acquisition *a, *b, *of_a;

    (void)state;
    world_limits(SLOTS(2));
    a = slots(1);
    b = slots(1);
    of_a = waiting_for(1, a);
    is_deadlock(1, b);
    release(b);
    assert_true(is_granted(of_a));
    release(of_a);
    release(a);
    world_close();
}

/* Another holder may give back what is short: that is no circle. */
static void others_may_give_back(void **state)
{
    weir_acquisition *a, *b, *free, *of_a, *of_b;

    (void)state;
    world_limits(SLOTS(3));
    a = slots(1);
    b = slots(1);
    free = slots(1);
    of_a = waiting_for(1, a);
    of_b = waiting_for(1, b);
    is_deadlock(1, free);
    release(free);
    assert_true(is_granted(of_a));
    release(of_a);
    assert_true(is_granted(of_b));
    release(of_b);
    release(a);
    release(b);
    world_close();
}

/* A holder at the third level keeps what the first two levels hold, too. */
static void levels_of_nesting_count(void **state)
{
    weir_acquisition *first, *second, *third, *other, *waiter;

    (void)state;
    world_limits(SLOTS(4));
    first = slots(1);
    second = granted(within(ASK({"slot", 1}), first));
    other = slots(2);
    waiter = waiting_for(2, second);
    release(other);
    assert_true(is_granted(waiter));
    third = waiter;
    is_deadlock(1, third);
    release(third);
    is_deadlock(3, second);
    release(second);
    is_deadlock(4, first);
    release(first);
    world_close();
}

/* One that has waited is nested as well as one that was granted at once. */
static void levels_count_after_a_wait(void **state)
{
    weir_acquisition *first, *second, *other;

    (void)state;
    world_limits(SLOTS(3));
    first = slots(1);
    other = slots(2);
    second = waiting_for(1, first);
    release(other);
    assert_true(is_granted(second));
    is_deadlock(2, second);
    release(second);
    second = slots(1); /* its record was nested before */
    release(first);
    first = slots(1);
    release(waiting_for(2, second)); /* `first` may give back one */
    release(second);
    release(first);
    world_close();
}

static void a_level_of_nothing_counts_as_the_one_before(void **state)
{
    weir_acquisition *outer, *nothing, *other, *nested;

    (void)state;
    world_limits(SLOTS(2));
    outer = slots(1);
    nothing = granted(within(ASK({"slot", 0}), outer));
    is_deadlock(2, nothing);
    other = slots(1);
    nested = waiting_for(1, nothing);
    is_deadlock(1, other);
    release(other);
    assert_true(is_granted(nested));
    release(nested);
    release(nothing);
    release(outer);
    world_close();
}

static void a_rate_closes_no_circle(void **state)
{
    weir_acquisition *outer, *nested;

    (void)state;
    world_limits(SLOTS(2) ", " RATE);
    outer = granted(ASK({"slot", 1}, {"k", 1}));
    nested = pending(within(ASK({"slot", 1}, {"k", 1}), outer));
    advance(SECOND);
    assert_true(is_granted(nested));
    release_used(nested, "k", 1);
    release_used(outer, "k", 1);
    world_close();
}

static void a_circle_ends_with_the_wait(void **state)
{
    weir_acquisition *a, *b, *of_a, *of_b;

    (void)state;
    world_limits(SLOTS(2));
    a = slots(1);
    b = slots(1);
    of_a = pending(within(with_timeout(ASK({"slot", 1}), SECOND), a));
    is_deadlock(1, b);
    advance(SECOND);
    assert_int_equal(weir_acquisition_result(of_a), -ETIMEDOUT);
    of_b = waiting_for(1, b);
    release(of_a);
    release(a);
    assert_true(is_granted(of_b));
    release(of_b);
    release(b);
    world_close();
}

/* ---- what can be named ---- */

static void only_what_is_granted_of_this_set(void **state)
{
    weir_acquisition *held, *second, *waiting, *ended, *nothing, *acquisition = NULL;
    weir_queue *queue = NULL;
    weir_pool *other;

    (void)state;
    world_open("version: 1\n"
               "sets:\n"
               "  a: { limits: [ { type: resource, key: slot, capacity: 1 } ] }\n"
               "  b: { limits: [ { type: resource, key: slot, capacity: 1 } ] }\n"
               "  c: { limits: [ { type: resource, key: slot, capacity: 1 } ] }\n"
               "pools:\n"
               "  p: { sets: [a, b] }\n",
               "p");
    assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
    other = pool_open("c", 0);
    held = slots(1);
    second = slots(1); /* of the other set */
    waiting = pending(ASK_DEFAULTS);
    assert_int_equal(try_acquire(within(ASK_DEFAULTS, waiting), &acquisition), -EINVAL);
    assert_int_equal(weir_try_acquire(other, within(ASK_DEFAULTS, held), &acquisition, NULL),
                     -EINVAL);
    assert_int_equal(
        weir_queue_submit(queue, world.pool, within(ASK_DEFAULTS, held), 1, NULL, NULL), -EINVAL);
    weir_cancel(waiting);
    ended = waiting;
    assert_int_equal(try_acquire(within(ASK_DEFAULTS, ended), &acquisition), -EINVAL);
    for (int i = 0; i < 4; i++) /* whatever would be its turn, the set is that of the other one */
        assert_int_equal(submit(within(ASK_DEFAULTS, held), &acquisition), -EDEADLK);
    nothing = granted(within(ASK({"slot", 0}), held));
    release(nothing);
    assert_int_equal(
        weir_queue_submit(queue, world.pool, within(ASK_DEFAULTS, held), 1, &acquisition, NULL),
        -EDEADLK);
    assert_null(acquisition);
    release(ended);
    release(second);
    release(held);
    weir_pool_close(other);
    weir_queue_close(queue);
    world_close();
}

static struct weir_request *of_subject(struct weir_request *request, const char *subject)
{
    request->subject = subject;
    request->subject_size = 1;
    return request;
}

static void each_subject_has_circles_of_its_own(void **state)
{
    weir_acquisition *x, *y, *more, *acquisition = NULL;

    (void)state;
    world_set("subjects: { max: 10 }, limits: [ " SLOTS(2) " ]");
    x = granted(of_subject(ASK({"slot", 1}), "x"));
    y = granted(of_subject(ASK({"slot", 2}), "y"));
    assert_int_equal(try_acquire(within(of_subject(ASK({"slot", 1}), "y"), x), &acquisition),
                     -EINVAL);
    more = granted(within(of_subject(ASK({"slot", 1}), "x"), x));
    assert_int_equal(submit(within(of_subject(ASK({"slot", 1}), "x"), more), &acquisition),
                     -EDEADLK);
    assert_int_equal(submit(within(of_subject(ASK({"slot", 1}), "y"), y), &acquisition), -EDEADLK);
    release(more);
    release(x);
    release(y);
    world_close();
}

/* A subject of a shared set has the number that the segment gives it, and another one in a process.
 */
static void what_other_processes_ask_for_is_not_mistaken(void **state)
{
    static const char *const others[] = {"a", "b", "c", "d", "e"};
    weir_acquisition *held[5] = {NULL}, *outer, *acquisition = NULL;
    struct twin twin;

    (void)state;
    world_set("backend: process, lifetime: users, subjects: { max: 10 }, limits: [ " SLOTS(2) " ]");
    twin = world_twin("main");
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(
            weir_try_acquire(twin.pool, of_subject(ASK({"slot", 1}), others[i]), &held[i], NULL),
            0);
    outer = granted(of_subject(ASK({"slot", 2}), "x"));
    assert_int_equal(submit(within(of_subject(ASK({"slot", 1}), "x"), outer), &acquisition),
                     -EDEADLK);
    for (size_t i = 0; i < 5; i++)
        weir_release(&held[i]);
    release(outer);
    world_twin_close(&twin);
    world_close();
}

/* ---- by a completion queue, and blocked ---- */

static void a_queue_says_what_is_nested(void **state)
{
    weir_acquisition *outer, *other, *nested = NULL;
    struct weir_completion done;
    weir_queue *queue = NULL;

    (void)state;
    world_limits(SLOTS(3));
    assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
    outer = slots(1);
    assert_int_equal(
        weir_queue_submit(queue, world.pool, within(ASK({"slot", 0}), outer), 1, &nested, NULL), 0);
    assert_int_equal(weir_queue_reap(queue, &done, 1), 1);
    is_deadlock(3, nested); /* of nothing, but within `outer` */
    release(nested);
    nested = NULL;
    other = slots(2);
    assert_int_equal(
        weir_queue_submit(queue, world.pool, within(ASK({"slot", 1}), outer), 1, &nested, NULL), 0);
    release(other);
    assert_int_equal(weir_queue_reap(queue, &done, 1), 1);
    assert_ptr_equal(done.acquisition, nested);
    is_deadlock(2, nested);
    release(nested);
    release(outer);
    weir_queue_close(queue);
    world_close();
}

static void a_blocked_thread_is_nested(void **state)
{
    struct blocked blocked;
    weir_acquisition *outer, *other;

    (void)state;
    world_real("limits: [ " SLOTS(2) " ]");
    outer = slots(1);
    other = slots(1);
    blocked_enqueue(&blocked, within(ASK({"slot", 1}), outer), 1);
    is_deadlock(1, other);
    release(other);
    blocked_join(&blocked, 0);
    release(blocked.acquisition);
    release(outer);
    world_close();
}

/* ---- fair per limit ---- */

static void disjoint_requests_pass(void **state)
{
    weir_acquisition *slot, *waiter, *both, *disk, *second;

    (void)state;
    world_set("fair: per_limit, limits: [ " SLOTS(1) ", " DISKS " ]");
    slot = granted(ASK({"slot", 1}, {"disk", 0}));
    waiter = pending(ASK({"slot", 1}, {"disk", 0}));
    disk = granted(ASK({"slot", 0}, {"disk", 1}));
    both = pending(ASK({"slot", 1}, {"disk", 1}));
    second = pending(ASK({"slot", 0}, {"disk", 1}));
    release(disk);
    assert_false(is_granted(second)); /* behind `both`, which is for the disk, too */
    release(slot);
    assert_true(is_granted(waiter));
    assert_false(is_granted(both));
    release(waiter);
    assert_true(is_granted(both));
    release(both);
    assert_true(is_granted(second));
    release(second);
    world_close();
}

static void a_cancel_in_the_middle_lets_others_go(void **state)
{
    weir_acquisition *slot, *first, *middle, *last;

    (void)state;
    world_set("fair: per_limit, limits: [ " SLOTS(1) ", " DISKS " ]");
    slot = granted(ASK({"slot", 1}, {"disk", 0}));
    first = pending(ASK({"slot", 1}, {"disk", 0}));
    middle = pending(ASK({"slot", 1}, {"disk", 1}));
    last = pending(ASK({"slot", 0}, {"disk", 1}));
    assert_int_equal(weir_cancel(middle), 0);
    assert_true(is_granted(last));
    release(middle);
    release(last);
    release(slot);
    assert_true(is_granted(first));
    release(first);
    world_close();
}

/* Each of them is due at its own time, whichever is the head. */
static void waiters_for_several_rates_are_granted_in_time(void **state)
{
    weir_acquisition *slow, *fast;
    uint64_t at = 0;

    (void)state;
    world_set("fair: per_limit, limits: ["
              "{ type: rate, key: slow, algorithm: gcra, capacity: 1, window: 10s },"
              "{ type: rate, key: fast, algorithm: gcra, capacity: 1, window: 1s } ]");
    assert_int_equal(take(ASK({"slow", 1}, {"fast", 1})), 0);
    slow = pending(ASK({"slow", 1}));
    fast = pending(ASK({"fast", 1}));
    assert_int_equal(weir_set_ready_at(world.set, ASK({"fast", 1}), &at), 0);
    assert_int_equal(at, world.now + 2 * SECOND);
    assert_int_equal(weir_set_ready_at(world.set, ASK({"slow", 1}, {"fast", 1}), &at), 0);
    assert_int_equal(at, world.now + 20 * SECOND);
    assert_int_equal(advance(SECOND), 1);
    assert_true(is_granted(fast));
    assert_int_equal(advance(9 * SECOND), 1);
    assert_true(is_granted(slow));
    release_used(fast, "fast", 1);
    release_used(slow, "slow", 1);
    world_close();
}

struct for_rate {
    struct weir_amount amounts[3];
    int result;
};

static void *block_for_rate(void *argument)
{
    struct for_rate *asked = argument;
    const struct weir_request request = {.size = sizeof(request),
                                         .amounts = asked->amounts,
                                         .amounts_n = 3,
                                         .timeout_ns = 10 * SECOND};
    weir_acquisition *acquisition = NULL;

    asked->result = weir_acquire(world.pool, &request, &acquisition, NULL);
    if (asked->result == 0) {
        require(weir_update(acquisition, asked->amounts[0].key, 1) == 0);
        require(weir_release(&acquisition) == 0);
    }
    return NULL;
}

/* The first is due before the second, until a nested request takes of what it waits for. Then both
 * threads sleep until the other one is due. */
static void blocked_threads_that_change_places_are_granted(void **state)
{
    struct for_rate asked[] = {{.amounts = {{"a", 4}, {"b", 0}, {"slot", 0}}},
                               {.amounts = {{"b", 1}, {"a", 0}, {"slot", 0}}}};
    weir_acquisition *outer;
    pthread_t threads[2];

    (void)state;
    world_real("fair: per_limit, limits: [ " SLOTS(
        1) ", "
           "{ type: rate, key: a, algorithm: gcra, capacity: 10, window: 1s },"
           "{ type: rate, key: b, algorithm: gcra, capacity: 1, window: 300ms } ]");
    outer = slots(1);
    assert_int_equal(take(ASK({"a", 8}, {"b", 1}, {"slot", 0})), 0);
    for (int i = 0; i < 2; i++)
        require(pthread_create(&threads[i], NULL, block_for_rate, &asked[i]) == 0);
    while (stats().waiting < 2 && stats().granted < 4)
        ;
    (void)take(within(ASK({"a", 2}, {"slot", 0}), outer)); /* a busy machine may be late */
    for (int i = 0; i < 2; i++) {
        require(pthread_join(threads[i], NULL) == 0);
        assert_int_equal(asked[i].result, 0);
    }
    release(outer);
    world_close();
}

static int tick_both(const struct twin *twin)
{
    int n = 0;

    for (int i = 0; i < 3; i++) /* what one does may be for the other to see to */
        n += weir_tick(world.w) + weir_tick(twin->w);
    return n;
}

/* The twin's waiter was next, and its timer is set. A nested request goes before it, but behind
 * another waiter, which is next now: its process has to learn that. */
static void another_process_learns_that_its_waiter_is_next(void **state)
{
    static const char fields[] =
        "backend: process, lifetime: users, fair: per_limit, limits: ["
        " { type: rate, key: a, algorithm: token_bucket, capacity: 1, window: 10ms, burst: 1,"
        " overuse: charge },"
        " { type: rate, key: b, algorithm: token_bucket, capacity: 1, window: 12ms, burst: 1 "
        "}, " SLOTS(5) " ]";
    weir_acquisition *outer, *charged, *first, *other = NULL, *nested;
    struct twin twin;

    (void)state;
    world_set(fields);
    twin = world_twin("main");
    outer = granted(ASK({"slot", 1}));
    charged = granted(ASK({"a", 1}, {"slot", 0}));
    assert_int_equal(take(ASK({"b", 1}, {"slot", 0})), 0);
    first = pending(within(ASK({"a", 1}, {"slot", 0}), outer)); /* ready after 10 ms */
    assert_int_equal(weir_submit(twin.pool, ASK({"b", 1}, {"slot", 0}), &other, NULL), 1);
    assert_int_equal(weir_update(charged, "a", 2), 0); /* after 20 ms */
    release(charged);
    world.now += 11 * MS;
    assert_int_equal(tick_both(&twin), 0);
    nested = pending(within(ASK({"a", 1}, {"b", 1}, {"slot", 0}), outer));
    world.now += MS;
    assert_int_equal(tick_both(&twin), 0);
    world.now += 8 * MS;
    assert_int_equal(tick_both(&twin), 1);
    assert_true(is_granted(first));
    weir_release(&other);
    release(nested);
    assert_int_equal(weir_update(first, "a", 1), 0);
    release(first);
    release(outer);
    world_twin_close(&twin);
    world_close();
}

/* Circles of a set that is fair per limit: a waiter for one limit is not in the way of another
 * limit. */
static void circles_per_limit(void **state)
{
    weir_acquisition *slot, *disk, *of_slot, *acquisition = NULL;

    (void)state;
    world_set("fair: per_limit, limits: [ " SLOTS(2) ", " DISKS " ]");
    slot = granted(ASK({"slot", 1}, {"disk", 0}));
    disk = granted(ASK({"slot", 1}, {"disk", 1}));
    of_slot = pending(within(ASK({"slot", 0}, {"disk", 1}), slot));
    assert_int_equal(submit(within(ASK({"slot", 1}, {"disk", 0}), disk), &acquisition), -EDEADLK);
    release(disk);
    assert_true(is_granted(of_slot));
    release(of_slot);
    release(slot);
    world_close();
}

/* ---- nested in what a process holds ---- */

static const char shared_slots[] =
    "backend: process, lifetime: users, limits: [ " SLOTS(2) ", " RATE " ]";

static struct weir_request *within_process(struct weir_request *request, pid_t process)
{
    request->within_process = (uint32_t)process;
    return request;
}

/* A process that this one started, and its end. */
static pid_t start_child(void)
{
    pid_t parent = getpid(), child = fork();

    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == parent)
            pause();
        _exit(0);
    }
    assert_true(child > 0);
    return child;
}

static void end_child(pid_t child)
{
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void would_wait_for_ever(struct weir_request *request)
{
    weir_acquisition *acquisition = NULL;

    assert_int_equal(submit(request, &acquisition), -EDEADLK);
    assert_null(acquisition);
}

/* Sees that it is what `outer` holds that the process's request is nested in. */
static void is_nested_in(pid_t process)
{
    weir_acquisition *outer = granted(ASK({"slot", 1}));

    would_wait_for_ever(within_process(ASK({"slot", 2}), process));
    release(outer);
}

static void a_process_is_nested_in_what_it_or_its_ancestors_hold(void **state)
{
    pid_t child = start_child();
    weir_acquisition *outer;

    (void)state;
    world_set(shared_slots);
    is_nested_in(getpid());
    is_nested_in(child);
    outer = granted(ASK({"slot", 1}));
    release(pending(within_process(ASK({"slot", 2}), getppid())));
    release(outer);
    world_close();
    end_child(child);
}

/* The last grant that holds a resource: the rates of a later one are not waited for. */
static void the_last_grant_with_a_resource_counts(void **state)
{
    weir_acquisition *first, *second, *rate;

    (void)state;
    world_set(shared_slots);
    first = granted(ASK({"slot", 1}));
    world.now += SECOND;
    second = granted(within(ASK({"slot", 1}), first));
    world.now += SECOND;
    rate = granted(ASK({"slot", 0}, {"k", 1}));
    would_wait_for_ever(within_process(ASK({"slot", 1}), getpid()));
    release(second);
    would_wait_for_ever(within_process(ASK({"slot", 2}), getpid()));
    release(first);
    release(granted(within_process(ASK({"slot", 2}), getpid())));
    assert_int_equal(weir_update(rate, "k", 1), 0);
    release(rate);
    world_close();
}

/* The clock moves on at one of its next readings. */
static unsigned readings_left;

static void move_on_once(void)
{
    if (readings_left && !--readings_left)
        world.now += SECOND;
}

/* What is ready between the probe and the enqueue is granted upon the enqueue. Whenever that is,
 * the grant says what it is nested in, though the program has not asked for it. */
static void a_grant_upon_the_enqueue_is_nested(void **state)
{
    weir_acquisition *first, *second;
    int r;

    (void)state;
    for (unsigned reading = 1; reading <= 8; reading++) {
        world_set(shared_slots);
        first = granted(ASK({"slot", 1}, {"k", 1}));
        second = NULL;
        readings_left = reading;
        world.on_now = move_on_once;
        r = submit(within(ASK({"slot", 1}, {"k", 1}), first), &second);
        world.on_now = NULL;
        assert_true(r == 0 || r == 1);
        if (r == 0) {
            would_wait_for_ever(within_process(ASK({"slot", 1}), getpid()));
            release_used(second, "k", 1);
        } else {
            release(second);
        }
        release_used(first, "k", 1);
        world_close();
    }
}

/* Instants may be those of the last tick, and records are used again in any order: the last grant
 * is the one that is nested in the others. */
static void the_last_of_nested_grants_counts(void **state)
{
    weir_acquisition *grants[3], *others[3];

    (void)state;
    for (int order = 0; order < 6; order++) {
        const int first = order % 3, second = (first + 1 + order / 3) % 3;

        world_set("backend: process, lifetime: users, "
                  "limits: [ { type: resource, key: slot, capacity: 3 } ]");
        for (int i = 0; i < 3; i++)
            others[i] = granted(ASK({"slot", 1}));
        release(others[first]);
        release(others[second]);
        release(others[3 - first - second]);
        for (int i = 0; i < 3; i++)
            grants[i] = granted(within_process(ASK({"slot", 1}), getpid()));
        would_wait_for_ever(within_process(ASK({"slot", 1}), getpid()));
        for (int i = 0; i < 3; i++)
            release(grants[i]);
        world_close();
    }
}

/* A process that is gone has no ancestors that the kernel knows. */
static void the_kernel_need_not_tell_the_ancestors(void **state)
{
    pid_t child = start_child();
    weir_acquisition *outer;

    (void)state;
    world_set(shared_slots);
    outer = granted(ASK({"slot", 1}));
    end_child(child);
    release(pending(within_process(ASK({"slot", 2}), child)));
    would_wait_for_ever(within_process(ASK({"slot", 2}), getpid()));
    release(outer);
    world_close();
}

static void what_another_subject_holds_does_not_count(void **state)
{
    weir_acquisition *x, *y;

    (void)state;
    world_set("backend: process, lifetime: users, subjects: { max: 4 }, limits: [ " SLOTS(3) " ]");
    x = granted(of_subject(ASK({"slot", 2}), "x"));
    world.now += SECOND;
    y = granted(of_subject(ASK({"slot", 1}), "y"));
    would_wait_for_ever(within_process(of_subject(ASK({"slot", 2}), "x"), getpid()));
    release(y);
    release(x);
    world_close();
}

static void other_sets_ignore_processes(void **state)
{
    weir_acquisition *outer;

    (void)state;
    world_limits(SLOTS(2));
    outer = slots(1);
    release(pending(within_process(ASK({"slot", 2}), getpid())));
    release(outer);
    world_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(nested_requests_go_first),
        leak_checked_test(nested_requests_among_themselves_keep_their_order),
        leak_checked_test(what_is_there_is_had_at_once),
        leak_checked_test(forecasts_know_the_order),
        leak_checked_test(what_the_holder_itself_holds_is_never_free),
        leak_checked_test(two_that_wait_for_each_other),
        leak_checked_test(others_may_give_back),
        leak_checked_test(levels_of_nesting_count),
        leak_checked_test(levels_count_after_a_wait),
        leak_checked_test(a_level_of_nothing_counts_as_the_one_before),
        leak_checked_test(a_rate_closes_no_circle),
        leak_checked_test(a_circle_ends_with_the_wait),
        leak_checked_test(only_what_is_granted_of_this_set),
        leak_checked_test(each_subject_has_circles_of_its_own),
        leak_checked_test(what_other_processes_ask_for_is_not_mistaken),
        leak_checked_test(a_queue_says_what_is_nested),
        leak_checked_test(a_blocked_thread_is_nested),
        leak_checked_test(disjoint_requests_pass),
        leak_checked_test(a_cancel_in_the_middle_lets_others_go),
        leak_checked_test(waiters_for_several_rates_are_granted_in_time),
        leak_checked_test(blocked_threads_that_change_places_are_granted),
        leak_checked_test(another_process_learns_that_its_waiter_is_next),
        leak_checked_test(circles_per_limit),
        leak_checked_test(a_process_is_nested_in_what_it_or_its_ancestors_hold),
        leak_checked_test(the_last_grant_with_a_resource_counts),
        leak_checked_test(a_grant_upon_the_enqueue_is_nested),
        leak_checked_test(the_last_of_nested_grants_counts),
        leak_checked_test(the_kernel_need_not_tell_the_ancestors),
        leak_checked_test(what_another_subject_holds_does_not_count),
        leak_checked_test(other_sets_ignore_processes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
