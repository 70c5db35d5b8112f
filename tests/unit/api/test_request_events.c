/* SPDX-License-Identifier: MIT */
/* Events: which call tells what, to the nanosecond of a clock that is moved by hand. */
#include "lib/world.h"
#include "set/events.h"
#include <weir/queue.h>

#define SLOT   "{ type: resource, key: r, capacity: 1 }"
#define RATE   "{ type: rate, key: k, algorithm: gcra, capacity: 10, window: 10s }"
#define PARENT "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

/* What was heard since the last look. */
#define HEARD_MAX 64
static struct heard {
    struct weir_event event;
    struct weir_trace trace;
    uint64_t amounts[8];
    char set[32], key[32];
} heard[HEARD_MAX];
static unsigned heard_n;

static void hear(void *userdata, const struct weir_event *event)
{
    struct heard *h = &heard[heard_n];

    assert_ptr_equal(userdata, &heard_n);
    assert_true(heard_n < HEARD_MAX);
    assert_int_equal(event->size, sizeof(*event));
    h->event = *event;
    snprintf(h->set, sizeof(h->set), "%s", event->set);
    snprintf(h->key, sizeof(h->key), "%s", event->key);
    assert_true(event->amounts_n <= 8);
    memcpy(h->amounts, event->amounts, event->amounts_n * sizeof(uint64_t));
    if (event->trace)
        h->trace = *event->trace;
    heard_n++;
}

static void listen_to(uint32_t types)
{
    heard_n = 0;
    assert_int_equal(
        weir_listen(world.w, &(struct weir_listener){.size = sizeof(struct weir_listener),
                                                     .event = hear,
                                                     .userdata = &heard_n,
                                                     .types = types}),
        0);
}

/* These were heard, in this order, and nothing else. */
#define EXPECT(...)                                                                                \
    expect((const enum weir_event_type[]){__VA_ARGS__},                                            \
           sizeof((const enum weir_event_type[]){__VA_ARGS__}) / sizeof(enum weir_event_type))

#define EXPECT_NONE() expect(NULL, 0)

static void expect(const enum weir_event_type *types, unsigned n)
{
    for (unsigned i = 0; i < n && i < heard_n; i++)
        assert_int_equal(heard[i].event.type, types[i]);
    assert_int_equal(heard_n, n);
    for (unsigned i = 0; i < n; i++) {
        assert_string_equal(heard[i].set, "main");
        if (heard[i].event.type != WEIR_EVENT_REFUSAL)
            assert_int_equal(heard[i].event.result, 0);
    }
    heard_n = 0;
}

#define REQUEST WEIR_EVENT_REQUEST
#define GRANT   WEIR_EVENT_GRANT
#define REFUSAL WEIR_EVENT_REFUSAL
#define WAIT    WEIR_EVENT_WAIT
#define RELEASE WEIR_EVENT_RELEASE
#define TIMEOUT WEIR_EVENT_TIMEOUT
#define CANCEL  WEIR_EVENT_CANCEL

static void a_grant_and_its_release(void **state)
{
    weir_acquisition *a;
    uint64_t id;

    (void)state;
    world_limits(SLOT "," RATE);
    release_used(granted(ASK({"k", 1})), "k", 1); /* from here on the fast path would serve it */
    listen_to(0);
    a = granted(ASK({"k", 3}));
    assert_int_equal(heard_n, 2);
    assert_int_equal(heard[0].event.id, 0);
    assert_int_equal(heard[1].amounts[0], 1);
    assert_int_equal(heard[1].amounts[1], 3);
    assert_int_equal(heard[1].event.amounts_n, 2);
    assert_int_equal(heard[1].event.wait_ns, 0);
    assert_int_equal(heard[1].event.at_ns, world.now);
    assert_null(heard[1].event.trace);
    id = heard[1].event.id;
    assert_true(id != 0);
    EXPECT(REQUEST, GRANT);
    world.now += 12345;
    release_used(a, "k", 3);
    assert_int_equal(heard[0].event.id, id);
    assert_int_equal(heard[0].event.hold_ns, 12345);
    assert_int_equal(heard[0].amounts[1], 3);
    EXPECT(RELEASE);
    assert_int_equal(take(ASK({"k", 2}, {"r", 0})), 0);
    assert_int_equal(heard[1].event.id, 0);
    assert_int_equal(heard[1].amounts[1], 2);
    EXPECT(REQUEST, GRANT);
    world_close();
}

/* A take that touches nothing shared is told like any other. */
static void a_take_from_a_lease_is_told(void **state)
{
    (void)state;
    world_limits("{ type: call, key: k, algorithm: gcra, capacity: 10, window: 10s, lease: 4 }");
    assert_int_equal(take(NULL), 0);
    listen_to(0);
    assert_int_equal(take(NULL), 0);
    assert_int_equal(heard[1].amounts[0], 1);
    EXPECT(REQUEST, GRANT);
    world_close();
}

/* What a fast path would have granted by the last tick is dated by the clock. */
static void a_hold_is_measured_from_its_grant(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_limits(SLOT);
    release(granted(NULL));
    listen_to(1u << RELEASE);
    a = granted(NULL);
    world.now += 777;
    release(a);
    assert_int_equal(heard[0].event.hold_ns, 777);
    EXPECT(RELEASE);
    world_close();
}

static void refusals_say_why(void **state)
{
    weir_acquisition *a, *b = NULL;

    (void)state;
    world_set("max_waiters: 1, limits: [ " SLOT "," RATE " ]");
    a = granted(ASK({"k", 0}));
    listen_to(0);
    assert_int_equal(try_acquire(ASK({"k", 0}), &b), -EAGAIN);
    assert_int_equal(heard[1].event.result, -EAGAIN);
    assert_string_equal(heard[1].key, "r");
    EXPECT(REQUEST, REFUSAL);
    assert_int_equal(take(ASK({"r", 0}, {"k", 11})), -ERANGE);
    assert_int_equal(heard[0].event.result, -ERANGE);
    assert_string_equal(heard[0].key, "k");
    EXPECT(REFUSAL);
    assert_int_equal(try_acquire(strict(ASK({"x", 1})), &b), -ENOENT);
    assert_int_equal(heard[0].event.result, -ENOENT);
    EXPECT(REFUSAL);
    assert_int_equal(submit(with_max_wait(ASK({"r", 0}, {"k", 10}), 1), &b), 0);
    EXPECT(REQUEST, GRANT);
    release_used(b, "k", 10);
    EXPECT(RELEASE);
    assert_int_equal(submit(with_max_wait(ASK({"r", 0}, {"k", 5}), 1000), &b), -EAGAIN);
    assert_int_equal(heard[1].event.result, -EAGAIN);
    assert_string_equal(heard[1].key, "k");
    EXPECT(REQUEST, REFUSAL);
    release(a);
    world_close();
}

static void a_wait_ends_with_a_grant(void **state)
{
    weir_acquisition *a, *b;
    uint64_t id;

    (void)state;
    world_limits(SLOT);
    listen_to(0);
    a = granted(NULL);
    EXPECT(REQUEST, GRANT);
    b = pending(NULL);
    id = heard[1].event.id;
    EXPECT(REQUEST, WAIT);
    world.now += 5000;
    release(a);
    EXPECT(RELEASE);
    world.now += 70;
    assert_int_equal(weir_acquisition_result(b), 0);
    assert_int_equal(heard[0].event.id, id);
    assert_int_equal(heard[0].event.wait_ns, 5000);
    EXPECT(GRANT);
    assert_int_equal(weir_acquisition_result(b), 0); /* it is told once */
    release(b);
    assert_int_equal(heard[0].event.id, id);
    assert_int_equal(heard[0].event.hold_ns, 70);
    EXPECT(RELEASE);
    world_close();
}

static void a_wait_ends_otherwise(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    world_limits(SLOT);
    a = granted(NULL);
    listen_to(0);
    b = pending(with_timeout(ASK_DEFAULTS, 4000));
    EXPECT(REQUEST, WAIT);
    advance(5000);
    assert_int_equal(weir_acquisition_result(b), -ETIMEDOUT);
    assert_true(heard[0].event.wait_ns >= 4000);
    EXPECT(TIMEOUT);
    release(b);
    EXPECT_NONE();
    b = pending(with_max_wait(ASK_DEFAULTS, 4000));
    EXPECT(REQUEST, WAIT);
    advance(5000);
    release(b); /* told here, as nothing told it before */
    assert_int_equal(heard[0].event.result, -EAGAIN);
    EXPECT(REFUSAL);
    b = pending(NULL);
    world.now += 30;
    assert_int_equal(weir_cancel(b), 0);
    assert_int_equal(heard[2].event.wait_ns, 30);
    EXPECT(REQUEST, WAIT, CANCEL);
    release(b);
    EXPECT_NONE();
    b = pending(NULL);
    release(b);
    EXPECT(REQUEST, WAIT, CANCEL);
    b = pending(NULL);
    release(a);
    release(b); /* its grant was not seen, and is undone */
    EXPECT(REQUEST, WAIT, RELEASE, CANCEL);
    assert_int_equal(stats().held, 0);
    world_close();
}

/* A submission is told by the call that submits it and by the one that reaps it; what that hands
 * out goes on with its id. */
static void a_completion_queue_tells_as_it_is_reaped(void **state)
{
    struct weir_completion completions[4];
    weir_acquisition *a, *b = NULL;
    weir_queue *queue;
    uint64_t id;

    (void)state;
    world_limits(SLOT);
    a = granted(NULL);
    assert_int_equal(weir_queue_open(&queue, world.w, 8), 0);
    listen_to(0);
    assert_int_equal(weir_queue_submit(queue, world.pool, NULL, 1, NULL, NULL), 0);
    id = heard[1].event.id;
    EXPECT(REQUEST, WAIT);
    assert_int_equal(
        weir_queue_submit(queue, world.pool, with_timeout(ASK_DEFAULTS, 1000), 2, &b, NULL), 0);
    EXPECT(REQUEST, WAIT);
    world.now += 500;
    release(a);
    EXPECT(RELEASE);
    assert_int_equal(weir_queue_reap(queue, completions, 4), 1);
    assert_int_equal(heard[0].event.id, id);
    assert_int_equal(heard[0].event.wait_ns, 500);
    assert_int_equal(heard[0].amounts[0], 1);
    EXPECT(GRANT);
    world.now += 1000;
    assert_int_equal(weir_queue_reap(queue, completions + 1, 3), 1);
    assert_int_equal(completions[1].result, -ETIMEDOUT);
    EXPECT(TIMEOUT);
    release(b);
    EXPECT_NONE();
    release(completions[0].acquisition);
    assert_int_equal(heard[0].event.id, id);
    EXPECT(RELEASE);

    assert_int_equal(weir_queue_submit(queue, world.pool, NULL, 3, NULL, NULL), 0);
    EXPECT(REQUEST); /* granted, and the program does not know yet */
    assert_int_equal(weir_queue_submit(queue, world.pool, NULL, 4, NULL, NULL), 0);
    EXPECT(REQUEST, WAIT);
    assert_int_equal(weir_queue_cancel(queue, 4), 1);
    assert_int_equal(weir_queue_reap(queue, completions, 4), 2);
    EXPECT(GRANT, CANCEL);
    release(completions[0].acquisition);
    EXPECT(RELEASE);
    assert_int_equal(weir_queue_submit(queue, world.pool, NULL, 5, NULL, NULL), 0);
    heard_n = 0;
    weir_queue_close(queue);
    EXPECT(CANCEL);
    world_close();
}

/* A submission that is refused is told as it is reaped, with the limit, and without a wait. */
static void a_refused_submission_has_not_waited(void **state)
{
    struct weir_completion completion;
    weir_acquisition *a;
    weir_queue *queue;

    (void)state;
    world_set("max_waiters: 1, limits: [ " SLOT " ]");
    a = granted(NULL);
    assert_int_equal(weir_queue_open(&queue, world.w, 8), 0);
    listen_to(0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(weir_queue_submit(queue, world.pool, NULL, 1, NULL, NULL), 0);
    EXPECT(REQUEST, WAIT, REQUEST);
    world.now += 500;
    assert_int_equal(weir_queue_reap(queue, &completion, 1), 1);
    assert_int_equal(heard[0].event.result, -ENOBUFS);
    assert_string_equal(heard[0].key, "r");
    assert_true(heard[0].event.wait_ns <= 500);
    EXPECT(REFUSAL);
    release(a);
    weir_queue_close(queue);
    world_close();
}

static void nothing_is_told_without_a_listener(void **state)
{
    weir_acquisition *a;

    (void)state;
    world_limits(SLOT);
    listen_to(0);
    a = granted(NULL);
    EXPECT(REQUEST, GRANT);
    assert_int_equal(weir_listen(world.w, NULL), 0);
    assert_int_equal(events_are_on(world.w), 0);
    release(a);
    a = granted(NULL);
    EXPECT_NONE();
    listen_to(0);
    world.now += 9;
    release(a); /* granted unheard: its release is told all the same, and nothing else */
    EXPECT(RELEASE);
    world_close();
}

/* The trace and the subject are those of the request in every event of its acquisition. */
static void what_a_request_says_travels_with_it(void **state)
{
    struct weir_request *request = ASK_DEFAULTS;
    struct weir_trace trace;
    weir_acquisition *a, *b;
    uint64_t subject;

    (void)state;
    world_set("subjects: { max: 10 }, limits: [ " SLOT " ]");
    request->subject = "a subject";
    request->subject_size = 9;
    a = granted(request);
    listen_to(0);
    request->traceparent = PARENT;
    assert_int_equal(weir_trace_parse(PARENT, &trace), 0);
    b = pending(request);
    request->traceparent = NULL;
    release(a);
    assert_int_equal(weir_acquisition_result(b), 0);
    release(b);
    subject = heard[0].event.subject;
    assert_true(subject != 0);
    for (unsigned i = 0; i < heard_n; i++) {
        if (i == 2) /* of the other, which was granted unheard */
            continue;
        assert_int_equal(heard[i].event.subject, subject);
        assert_non_null(heard[i].event.trace);
        assert_memory_equal(&heard[i].trace, &trace, sizeof(trace));
    }
    EXPECT(REQUEST, WAIT, RELEASE, GRANT, RELEASE);
    request->subject = "another";
    request->subject_size = 7;
    request->traceparent = "00-malformed";
    a = granted(request); /* a malformed one refuses nothing */
    assert_true(heard[1].event.subject != subject);
    assert_null(heard[1].event.trace);
    EXPECT(REQUEST, GRANT);
    release(a);
    world_close();
}

/* Of earlier versions of the request, what lies behind them is not taken for a trace. */
static void older_requests_have_no_trace(void **state)
{
    static const size_t sizes[] = {offsetof(struct weir_request, subject),
                                   offsetof(struct weir_request, token),
                                   offsetof(struct weir_request, traceparent)};

    (void)state;
    world_limits(SLOT);
    release(granted(NULL));
    for (int listens = 0; listens < 2; listens++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
            struct weir_request request = {.size = sizes[i], .traceparent = PARENT};
            weir_acquisition *a = granted(&request);

            if (listens)
                assert_null(heard[1].event.trace);
            release(a);
            heard_n = 0;
        }
        listen_to(0);
    }
    world_close();
}

/* Without memory for its trace a request goes on, and its later events lack it. */
static void events_cost_no_request(void **state)
{
    struct weir_request *request = ASK_DEFAULTS;
    weir_acquisition *a, *b;

    (void)state;
    world_limits("{ type: resource, key: r, capacity: 2 }");
    release(granted(NULL));
    a = granted(NULL);
    b = granted(NULL);
    release(b);
    listen_to(0);
    request->traceparent = PARENT;
    fake_os_fail_kind_from(1, FAKE_MEMORY, 0);
    b = granted(request);
    fake_os_reset();
    EXPECT(REQUEST, GRANT);
    release(b);
    assert_null(heard[0].event.trace);
    EXPECT(RELEASE);
    release(a);
    world_close();
}

/* Members of a group are told each for itself: the winner, and those that are withdrawn. */
static void a_request_in_several_sets_is_told_of_each(void **state)
{
    weir_acquisition *a, *b, *group = NULL;
    weir_pool *one, *two;

    (void)state;
    world_open("version: 1\nsets:\n  one: { limits: [ " SLOT " ] }\n  two: { limits: [ " SLOT
               " ] }\npools:\n  both: { sets: [one, two], wait: any }\n",
               "both");
    one = pool_open("one", 0);
    two = pool_open("two", 0);
    assert_int_equal(weir_try_acquire(one, NULL, &a, NULL), 0);
    assert_int_equal(weir_try_acquire(two, NULL, &b, NULL), 0);
    listen_to(0);
    assert_int_equal(weir_submit(world.pool, NULL, &group, NULL), 1);
    assert_int_equal(heard_n, 4); /* two requests, two waits */
    assert_string_equal(heard[0].set, "one");
    assert_string_equal(heard[1].set, "two");
    heard_n = 0;
    assert_int_equal(weir_release(&b), 0);
    assert_int_equal(weir_acquisition_result(group), 0);
    for (unsigned i = 0, grants = 0, cancels = 0; i < heard_n; i++) {
        grants += heard[i].event.type == GRANT && strcmp(heard[i].set, "two") == 0;
        cancels += heard[i].event.type == CANCEL && strcmp(heard[i].set, "one") == 0;
        if (i + 1 == heard_n)
            assert_true(grants == 1 && cancels == 1 && heard_n == 3); /* and the release */
    }
    heard_n = 0;
    assert_int_equal(weir_release(&group), 0);
    assert_int_equal(heard_n, 1);
    assert_int_equal(heard[0].event.type, RELEASE);
    assert_string_equal(heard[0].set, "two");
    assert_int_equal(weir_release(&a), 0);
    weir_pool_close(one);
    weir_pool_close(two);
    world_close();
}

/* The sets that are not needed, as another one grants at once, were asked: they say that they did
 * not grant. */
static void sets_that_are_not_needed_refuse(void **state)
{
    weir_acquisition *a, *group = NULL;
    weir_pool *one;

    (void)state;
    world_open("version: 1\nsets:\n  one: { limits: [ " SLOT " ] }\n  two: { limits: [ " SLOT
               " ] }\npools:\n  both: { sets: [one, two], wait: any }\n",
               "both");
    one = pool_open("one", 0);
    assert_int_equal(weir_try_acquire(one, NULL, &a, NULL), 0);
    listen_to(1u << GRANT | 1u << REFUSAL);
    assert_int_equal(weir_submit(world.pool, NULL, &group, NULL), 0);
    assert_int_equal(heard_n, 2);
    for (unsigned i = 0; i < 2; i++) {
        bool is_grant = heard[i].event.type == GRANT;

        assert_string_equal(heard[i].set, is_grant ? "two" : "one");
        assert_int_equal(heard[i].event.result, is_grant ? 0 : -EAGAIN);
    }
    assert_int_equal(weir_release(&group), 0);
    assert_int_equal(weir_release(&a), 0);
    weir_pool_close(one);
    world_close();
}

/* A request that its set never saw has an end, too. */
static void requests_end_before_their_set_is_asked(void **state)
{
    weir_acquisition *a = NULL;
    weir_queue *queue;
    weir_token *token;
    struct weir_request request = {.size = sizeof(request)};

    (void)state;
    world_limits(SLOT);
    assert_int_equal(weir_queue_open(&queue, world.w, 1), 0);
    assert_int_equal(weir_queue_submit(queue, world.pool, NULL, 1, NULL, NULL), 0);
    listen_to(0);
    assert_int_equal(weir_queue_submit(queue, world.pool, NULL, 2, NULL, NULL), -ENOSPC);
    assert_int_equal(heard[1].event.result, -ENOSPC);
    EXPECT(REQUEST, REFUSAL);
    weir_queue_close(queue);
    heard_n = 0;
    assert_int_equal(weir_token_open(&token, world.w), 0);
    assert_int_equal(weir_token_cancel(token), 0);
    request.token = token;
    assert_int_equal(weir_acquire(world.pool, &request, &a, NULL), -ECANCELED);
    assert_int_equal(heard[1].event.result, -ECANCELED);
    EXPECT(REQUEST, REFUSAL);
    weir_token_close(token);
    world_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(a_grant_and_its_release),
        leak_checked_test(a_take_from_a_lease_is_told),
        leak_checked_test(a_hold_is_measured_from_its_grant),
        leak_checked_test(refusals_say_why),
        leak_checked_test(a_wait_ends_with_a_grant),
        leak_checked_test(a_wait_ends_otherwise),
        leak_checked_test(a_completion_queue_tells_as_it_is_reaped),
        leak_checked_test(a_refused_submission_has_not_waited),
        leak_checked_test(nothing_is_told_without_a_listener),
        leak_checked_test(what_a_request_says_travels_with_it),
        leak_checked_test(older_requests_have_no_trace),
        leak_checked_test(events_cost_no_request),
        leak_checked_test(a_request_in_several_sets_is_told_of_each),
        leak_checked_test(sets_that_are_not_needed_refuse),
        leak_checked_test(requests_end_before_their_set_is_asked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
