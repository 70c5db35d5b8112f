/* SPDX-License-Identifier: MIT */
/*
 * A kind of set of the test's own that keeps its state elsewhere: a number in a struct, as a server
 * would have it. Every public call serves it through its table of operations.
 */
#include "api/instance.h"
#include "api/set_object.h"
#include "lib/plan_from.h"
#include "lib/world.h"
#include "limit/counters.h"
#include "set/instance_base.h"
#include "set/set_ops.h"
#include "set/waiter.h"
#include <pthread.h>

#define QUEUE_MAX 8

/* What the server knows of the set. */
struct far_set {
    weir_set set; /* first */
    uint64_t capacity, held;
    uint32_t queue[QUEUE_MAX]; /* records that wait, the head first */
    uint32_t queue_n;
};

static unsigned opened, closed;
static int open_result;
static pthread_mutex_t server = PTHREAD_MUTEX_INITIALIZER;

static struct far_set *far_of(weir_set *set)
{
    return (struct far_set *)set;
}

static int far_open(weir_set *set, const struct set_plan *plan, struct weir_error *reterr)
{
    opened++;
    far_of(set)->capacity = plan->limits[0].capacity;
    return open_result < 0 ? error_set(reterr, open_result, "no server") : 0;
}

static void far_close(weir_set *set)
{
    assert_int_equal(far_of(set)->held, 0);
    closed++;
}

static uint64_t far_publish(weir_set *set, uint32_t record, enum record_state state)
{
    struct acq_record *r = set_record(set, record);
    uint64_t word = record_next_word(record_load(&r->word), state);

    record_store(state == RECORD_HELD ? &r->granted_ns : &r->enqueued_ns, world.now);
    atomic_store(&r->word, word);
    return word;
}

static bool far_grant(struct thread_ctx *ctx, weir_set *set, uint64_t amount)
{
    if (far_of(set)->held + amount > far_of(set)->capacity)
        return false;
    far_of(set)->held += amount;
    counter_add(&thread_ctx_counters(ctx, set->number)->acquired, 1);
    return true;
}

static int far_acquire_locked(struct acquire_op *op, uint32_t record, enum wait_mode mode,
                              uint64_t max_wait_ns)
{
    struct far_set *far = far_of(op->set);
    bool is_granted = !far->queue_n && far_grant(op->ctx, op->set, op->amounts[0]);

    op->decision = (struct decision){
        .now_ns = world.now, .forecast_ns = world.now + SECOND, .limiting = op->set->limits.items};
    if (is_granted && record)
        far_publish(op->set, record, RECORD_HELD);
    else if (is_granted) /* a take: this server's units come back by themselves */
        far->held -= op->amounts[0];
    if (is_granted)
        return 0;
    if (mode != MODE_WAIT || max_wait_ns < SECOND)
        return -EAGAIN;
    far_publish(op->set, record, RECORD_WAITING);
    far->queue[far->queue_n++] = record;
    return 1;
}

static int far_acquire(struct acquire_op *op, uint32_t record, enum wait_mode mode,
                       uint64_t max_wait_ns)
{
    int r;

    pthread_mutex_lock(&server);
    r = far_acquire_locked(op, record, mode, max_wait_ns);
    pthread_mutex_unlock(&server);
    return r;
}

static void far_dequeue(struct far_set *far, uint32_t i)
{
    far->queue_n--;
    memmove(far->queue + i, far->queue + i + 1, (far->queue_n - i) * sizeof(*far->queue));
}

static void far_serve(struct thread_ctx *ctx, weir_set *set)
{
    struct far_set *far = far_of(set);

    while (far->queue_n) {
        uint32_t head = far->queue[0];

        if (!far_grant(ctx, set, record_load(&set_record(set, head)->amounts[0])))
            break;
        far_dequeue(far, 0);
        notify_waiter(set, head, far_publish(set, head, RECORD_HELD));
    }
}

static void far_grant_waiters(struct thread_ctx *ctx, weir_set *set)
{
    pthread_mutex_lock(&server);
    far_serve(ctx, set);
    pthread_mutex_unlock(&server);
}

static bool far_release(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word,
                        bool is_owner, const struct release_args *args)
{
    (void)is_owner;
    pthread_mutex_lock(&server);
    assert_int_equal(record_load(&set_record(set, record)->word), word);
    far_of(set)->held -= args->amounts[0];
    counter_add(&thread_ctx_counters(ctx, set->number)->released, 1);
    set_free_record(set, record);
    far_serve(ctx, set);
    pthread_mutex_unlock(&server);
    return true;
}

static void far_return_part(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint32_t rest,
                            const struct release_args *args)
{
    (void)record;
    assert_int_equal(rest, 0); /* its records are private */
    pthread_mutex_lock(&server);
    far_of(set)->held -= args->amounts[0];
    far_serve(ctx, set);
    pthread_mutex_unlock(&server);
}

static bool far_withdraw(weir_set *set, uint32_t record, uint64_t expected)
{
    struct far_set *far = far_of(set);

    for (uint32_t i = 0; i < far->queue_n; i++)
        if (far->queue[i] == record &&
            (!expected || expected == record_load(&set_record(set, record)->word))) {
            far_dequeue(far, i);
            return true;
        }
    return false;
}

static bool far_cancel_wait(struct thread_ctx *ctx, weir_set *set, uint32_t record,
                            uint64_t expected, enum record_state state)
{
    bool withdrawn;

    pthread_mutex_lock(&server);
    withdrawn = far_withdraw(set, record, expected);
    if (withdrawn) {
        far_publish(set, record, state);
        counter_add(&thread_ctx_counters(ctx, set->number)->timed_out, state == RECORD_TIMED_OUT);
        far_serve(ctx, set);
    }
    pthread_mutex_unlock(&server);
    return withdrawn;
}

static uint64_t far_poll_head(struct thread_ctx *ctx, weir_set *set, uint32_t record)
{
    (void)ctx, (void)set, (void)record;
    return WEIR_FOREVER; /* the server says when */
}

static void far_shut_down(struct thread_ctx *ctx, weir_set *set)
{
    while (far_of(set)->queue_n) {
        uint32_t record = far_of(set)->queue[0];

        far_cancel_wait(ctx, set, record, 0, RECORD_SHUT_DOWN);
        notify_waiter(set, record, record_load(&set_record(set, record)->word));
    }
}

static void far_forecast(struct acquire_op *op, uint32_t record, enum forecast_walk walk)
{
    (void)record, (void)walk;
    op->decision = (struct decision){.now_ns = world.now, .forecast_ns = world.now + 2 * SECOND};
}

static int far_snapshot(struct thread_ctx *ctx, weir_set *set, struct weir_set_stats *ret,
                        struct weir_limit_stats *limits, uint32_t n)
{
    (void)ctx;
    pthread_mutex_lock(&server);
    ret->waiting = far_of(set)->queue_n;
    if (n) {
        limits[0].held = far_of(set)->held;
        limits[0].available = far_of(set)->capacity - far_of(set)->held;
    }
    pthread_mutex_unlock(&server);
    return 0;
}

static bool far_view_queue(struct thread_ctx *ctx, weir_set *set, uint32_t i, struct set_view *ret)
{
    (void)ctx, (void)set, (void)i, (void)ret;
    return false; /* its links are elsewhere */
}

static const struct set_ops far_ops = {
    .size = sizeof(struct far_set),
    .open = far_open,
    .close = far_close,
    .acquire = far_acquire,
    .release = far_release,
    .return_part = far_return_part,
    .cancel_wait = far_cancel_wait,
    .grant_waiters = far_grant_waiters,
    .poll_head = far_poll_head,
    .shut_down = far_shut_down,
    .forecast = far_forecast,
    .snapshot = far_snapshot,
    .view_queue = far_view_queue,
};

/* Adds the set `far` with these limits to the world's instance. */
static int add(const char *limits, struct weir_error *reterr)
{
    struct complaints complaints = {.file = "far"};
    struct plan plan = {0};
    char text[256];
    weir_set *set;
    int length =
            snprintf(text, sizeof(text), "version: 1\nsets: { far: { limits: [ %s ] } }", limits),
        r;

    assert_int_equal(
        plan_from_text(text, (size_t)length, instance_of(world.w)->plugins, &plan, &complaints), 0);
    instance_lock(world.w);
    r = registry_add_set(world.w, &plan.sets[0], &far_ops, &set, reterr);
    instance_unlock(world.w);
    plan_free(&plan);
    return r;
}

static void far_world(const char *limits)
{
    opened = closed = 0;
    open_result = 0;
    world_limits("{ type: resource, key: near, capacity: 1 }");
    assert_int_equal(add(limits, NULL), 0);
    assert_int_equal(opened, 1);
    weir_pool_close(world.pool);
    world.pool = pool_open("far", 0);
    world.set = weir_pool_set(world.pool, 0);
}

#define SLOTS "{ type: resource, key: slots, capacity: 10 }"
#define CALLS "{ type: call, algorithm: gcra, capacity: 3, window: 3s }"

static void the_set_is_opened_and_closed(void **state)
{
    const char *names[4];
    struct weir_error error;

    (void)state;
    far_world(SLOTS);
    assert_string_equal(weir_set_name(world.set), "far");
    assert_int_equal(weir_sets(world.w, names, 4), 2);
    world_close();
    assert_int_equal(closed, 1);

    opened = closed = 0;
    open_result = -ENOTCONN;
    world_limits(SLOTS);
    assert_int_equal(add(SLOTS, &error), -ENOTCONN);
    assert_string_equal(error.message, "no server");
    assert_int_equal(weir_sets(world.w, names, 4), 1);
    world_close();
    assert_int_equal(opened, 1);
    assert_int_equal(closed, 1);
}

static void a_grant_and_a_refusal_are_the_tables(void **state)
{
    weir_acquisition *a, *refused = NULL;

    (void)state;
    far_world(SLOTS);
    for (int i = 0; i < 3; i++) { /* nothing takes the fast path the second time */
        a = granted(ASK({"slots", 10}));
        assert_int_equal(try_acquire(ASK({"slots", 1}), &refused), -EAGAIN);
        assert_string_equal(refusal.key, "slots");
        assert_string_equal(refusal.set, "far");
        assert_int_equal(refusal.retry_after_ns, SECOND);
        assert_int_equal(stats().held, 1);
        assert_int_equal(limit_stats(0).held, 10);
        assert_int_equal(available(0), 0);
        release(a);
        assert_int_equal(available(0), 10);
    }
    assert_int_equal(stats().granted, 3);
    assert_int_equal(stats().released, 3);
    world_close();
}

static void a_take_is_the_tables(void **state)
{
    (void)state;
    far_world(CALLS);
    assert_int_equal(take(ASK({"call_count", 3})), 0);
    assert_int_equal(take(ASK({"call_count", 4})), -ERANGE); /* of the limit, without the table */
    assert_int_equal(take(ASK({"call_count", 0})), 0);       /* as a take of nothing */
    assert_int_equal(stats().granted, 2);
    world_close();
}

static void a_waiter_is_granted_canceled_or_late(void **state)
{
    weir_acquisition *all, *second, *third, *fourth;
    struct weir_holder holders[8];
    uint64_t ready_at_ns;

    (void)state;
    far_world(SLOTS);
    all = granted(ASK({"slots", 10}));
    second = pending(ASK({"slots", 5}));
    third = pending(ASK({"slots", 5}));
    fourth = pending(with_timeout(ASK({"slots", 5}), SECOND));
    assert_int_equal(stats().waiting, 3);
    assert_int_equal(weir_set_holders(world.set, holders, 8), 4);
    assert_int_equal(weir_set_ready_at(world.set, ASK({"slots", 1}), &ready_at_ns), 0);
    assert_int_equal(ready_at_ns, world.now + 2 * SECOND);
    assert_int_equal(weir_cancel(third), 0);
    assert_int_equal(weir_acquisition_result(third), -ECANCELED);
    assert_int_equal(advance(SECOND), 1);
    assert_int_equal(weir_acquisition_result(fourth), -ETIMEDOUT);
    assert_int_equal(weir_acquisition_refusal(fourth, &refusal), 0);
    assert_int_equal(refusal.retry_after_ns, 2 * SECOND);
    assert_false(readable(weir_acquisition_fd(second)));
    release(all);
    assert_true(readable(weir_acquisition_fd(second)));
    assert_int_equal(weir_acquisition_result(second), 0);
    release(second);
    release(third);
    release(fourth);
    world_close();
}

static void a_part_goes_back_by_the_table(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    far_world(SLOTS);
    a = granted(ASK({"slots", 10}));
    b = pending(ASK({"slots", 2}));
    assert_int_equal(weir_return(a, "slots", 1), 0);
    assert_int_equal(weir_acquisition_result(b), -EINPROGRESS);
    assert_int_equal(weir_return(a, "slots", 1), 0);
    assert_int_equal(weir_acquisition_result(b), 0);
    release(a);
    release(b);
    assert_int_equal(limit_stats(0).held, 0);
    world_close();
}

static void a_completion_queue_serves_it(void **state)
{
    struct weir_completion done[4];
    weir_queue *queue;
    weir_acquisition *all;

    (void)state;
    far_world(SLOTS);
    all = granted(ASK({"slots", 10}));
    assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(weir_queue_submit(queue, world.pool, ASK({"slots", 10}), i, NULL, NULL),
                         0);
    assert_int_equal(weir_queue_cancel(queue, 1), 1);
    release(all);
    assert_int_equal(weir_queue_reap(queue, done, 4), 2);
    assert_int_equal(done[0].result, -ECANCELED);
    assert_int_equal(done[1].result, 0);
    weir_release(&done[1].acquisition);
    assert_int_equal(weir_queue_reap(queue, done, 4), 1);
    assert_int_equal(done[0].user_data, 2);
    weir_release(&done[0].acquisition);
    weir_queue_close(queue);
    world_close();
}

static void *acquire_and_release(void *ret)
{
    weir_acquisition *a = NULL;

    *(int *)ret = weir_acquire(world.pool, ASK({"slots", 10}), &a, NULL);
    weir_release(&a);
    return NULL;
}

static void await_waiters(uint64_t n)
{
    while (stats().waiting != n)
        sched_yield();
}

static void a_blocked_caller_is_woken(void **state)
{
    weir_acquisition *all;
    pthread_t thread;
    int result = 1;

    (void)state;
    far_world(SLOTS);
    all = granted(ASK({"slots", 10}));
    pthread_create(&thread, NULL, acquire_and_release, &result);
    await_waiters(1);
    release(all);
    pthread_join(thread, NULL);
    assert_int_equal(result, 0);
    assert_int_equal(available(0), 10);
    world_close();
}

static void a_close_ends_its_waits(void **state)
{
    weir_acquisition *all, *waiting;

    (void)state;
    far_world(SLOTS);
    all = granted(ASK({"slots", 10}));
    waiting = pending(ASK({"slots", 1}));
    weir_pool_close(world.pool);
    weir_close(world.w);
    assert_int_equal(weir_acquisition_result(waiting), -ESHUTDOWN);
    release_expecting(waiting, 0);
    release(all);
    assert_int_equal(closed, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(the_set_is_opened_and_closed),
        leak_checked_test(a_grant_and_a_refusal_are_the_tables),
        leak_checked_test(a_take_is_the_tables),
        leak_checked_test(a_waiter_is_granted_canceled_or_late),
        leak_checked_test(a_part_goes_back_by_the_table),
        leak_checked_test(a_completion_queue_serves_it),
        leak_checked_test(a_blocked_caller_is_woken),
        leak_checked_test(a_close_ends_its_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
