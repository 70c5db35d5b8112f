/* SPDX-License-Identifier: MIT */
/* The contract on reloads, sentence by sentence, and what each combination of changes does. */
#include "lib/world.h"
#include "set/set.h"

static struct weir_error error;

static int reload(const char *text)
{
    const struct weir_options options = {.size = sizeof(options), .text = text};

    error = (struct weir_error){0};
    return weir_reload(world.w, &options, &error);
}

/* Reloads the set `main` with these fields. */
static void reload_main(const char *fields)
{
    char text[4096];

    snprintf(text, sizeof(text), "version: 1\nsets: { main: { %s } }\n", fields);
    assert_int_equal(reload(text), 0);
}

static void reload_limits(const char *limits)
{
    char fields[2048];

    snprintf(fields, sizeof(fields), "limits: [ %s ]", limits);
    reload_main(fields);
}

/* The reload is refused in words that include these, and nothing has changed. */
static void assert_refused(const char *text, int code, const char *why)
{
    struct picture before = picture(), after;

    assert_int_equal(reload(text), code);
    assert_int_equal(error.code, code);
    assert_non_null(strstr(error.message, why));
    after = picture();
    assert_same_limits(&before, &after);
    assert_int_equal(before.set.waiting, after.set.waiting);
}

#define SLOTS(n) "{ type: resource, key: slots, capacity: " n " }"
#define RATE(algorithm, n)                                                                         \
    "{ type: rate, key: rate, algorithm: " algorithm ", capacity: " n ", window: 10s }"

/* ---- parameters ---- */

static void what_is_held_stays_held(void **state)
{
    weir_acquisition *held, *none = NULL;

    (void)state;
    world_limits(SLOTS("4"));
    held = granted(ASK({"slots", 3}));
    reload_limits(SLOTS("5"));
    assert_int_equal(limit_stats(0).held, 3);
    assert_int_equal(available(0), 2);
    assert_int_equal(try_acquire(ASK({"slots", 3}), &none), -EAGAIN);
    release(held);
    assert_int_equal(available(0), 5);
    world_close();
}

static void nothing_is_granted_until_it_has_drained(void **state)
{
    weir_acquisition *held[3], *none = NULL;

    (void)state;
    world_limits(SLOTS("3"));
    for (size_t i = 0; i < 3; i++)
        held[i] = granted(NULL);
    reload_limits(SLOTS("2"));
    assert_int_equal(limit_stats(0).held, 3);
    assert_int_equal(available(0), 0);
    release(held[0]);
    assert_int_equal(try_acquire(NULL, &none), -EAGAIN);
    release(held[1]);
    held[1] = granted(NULL);
    assert_int_equal(try_acquire(NULL, &none), -EAGAIN);
    release(held[1]);
    release(held[2]);
    assert_int_equal(limit_stats(0).held, 0);
    world_close();
}

static void a_bucket_keeps_its_level_cut_to_the_new_burst(void **state)
{
    weir_acquisition *none = NULL;

    (void)state;
    world_limits(RATE("token_bucket", "10"));
    release_used(granted(ASK({"rate", 4})), "rate", 4);
    reload_limits(RATE("token_bucket", "20"));
    assert_int_equal(available(0), 6);
    reload_limits(RATE("token_bucket", "5"));
    assert_int_equal(available(0), 5);
    release_used(granted(ASK({"rate", 5})), "rate", 5);
    assert_int_equal(try_acquire(ASK({"rate", 1}), &none), -EAGAIN);
    advance(2 * SECOND);
    assert_int_equal(available(0), 1);
    world_close();
}

#define SPAN(n, window)                                                                            \
    "{ type: rate, key: k, algorithm: token_bucket, capacity: " n ", window: " window " }"

/* The states of those that did not change go nowhere else, wherever they stand now. */
static void limits_of_one_key_are_told_apart(void **state)
{
    weir_acquisition *none = NULL;

    (void)state;
    world_limits(SPAN("10", "1s") "," SPAN("100", "60s"));
    for (int i = 0; i < 10; i++) {
        release_used(granted(ASK({"k", 10})), "k", 10);
        advance(SECOND);
    }
    assert_int_equal(available(0), 10);
    assert_true(available(1) < 20);
    reload_limits(SPAN("1000", "3600s") "," SPAN("10", "1s") "," SPAN("100", "60s"));
    assert_int_equal(available(0), 1000);
    assert_int_equal(available(1), 10);
    assert_true(available(2) < 20);
    reload_limits(SPAN("100", "60s") "," SPAN("10", "1s"));
    assert_int_equal(available(1), 10);
    assert_true(available(0) < 20);
    for (int i = 0; i < 2 && try_acquire(ASK({"k", 10}), &none) == 0; i++) {
        release_used(none, "k", 10);
        none = NULL;
        advance(SECOND);
    }
    assert_int_equal(try_acquire(ASK({"k", 10}), &none), -EAGAIN);
    world_close();
}

static void a_window_keeps_its_count(void **state)
{
    (void)state;
    world_limits(RATE("fixed_window", "10"));
    release_used(granted(ASK({"rate", 4})), "rate", 4);
    reload_limits(RATE("fixed_window", "6"));
    assert_int_equal(available(0), 2);
    world_close();
}

static void another_algorithm_or_type_starts_anew(void **state)
{
    weir_acquisition *held;

    (void)state;
    world_limits(RATE("token_bucket", "10"));
    release_used(granted(ASK({"rate", 4})), "rate", 4);
    reload_limits(RATE("sliding_window", "10"));
    assert_int_equal(available(0), 10);
    held = granted(ASK({"rate", 4}));
    reload_limits("{ type: resource, key: rate, capacity: 10 }");
    assert_int_equal(limit_stats(0).held, 0);
    release_used(held, "rate", 4); /* what it took is not counted any more */
    assert_int_equal(limit_stats(0).held, 0);
    assert_int_equal(available(0), 10);
    world_close();
}

static void limits_come_go_and_change_places(void **state)
{
    weir_acquisition *held, *later;

    (void)state;
    world_limits(SLOTS("4") ", { type: resource, key: b, capacity: 7 }");
    held = granted(ASK({"slots", 3}, {"b", 2}));
    reload_limits("{ type: resource, key: c, capacity: 1 }, { type: resource, key: b, capacity: "
                  "6 }, " SLOTS("5"));
    assert_int_equal(limit_stats(0).held, 0);
    assert_int_equal(limit_stats(1).held, 2);
    assert_int_equal(limit_stats(2).held, 3);
    later = granted(ASK({"slots", 1}, {"b", 1}));
    reload_limits(SLOTS("9"));
    assert_int_equal(limit_stats(0).held, 4);
    release(held);
    assert_int_equal(limit_stats(0).held, 1);
    reload_limits("{ type: resource, key: b, capacity: 6 }, " SLOTS("9"));
    assert_int_equal(limit_stats(0).held, 0); /* it was not there meanwhile */
    release(later);
    assert_int_equal(limit_stats(0).held, 0);
    assert_int_equal(limit_stats(1).held, 0);
    world_close();
}

static void a_set_may_lose_all_limits_and_get_some(void **state)
{
    weir_acquisition *held, *waiting;

    (void)state;
    world_limits(SLOTS("1"));
    held = granted(NULL);
    waiting = pending(NULL);
    reload_main("limits: []");
    assert_int_equal(weir_acquisition_result(waiting), 0);
    release(granted(NULL));
    reload_limits(SLOTS("2"));
    assert_int_equal(limit_stats(0).held, 0);
    release(held);
    release(waiting);
    assert_int_equal(available(0), 2);
    world_close();

    world_set("limits: []");
    held = granted(NULL);
    reload_limits(SLOTS("2"));
    assert_int_equal(available(0), 2);
    release(held);
    assert_int_equal(available(0), 2);
    release(granted(NULL));
    world_close();
}

static void the_fields_of_a_set_change(void **state)
{
    weir_acquisition *held, *waiting, *none = NULL;
    struct weir_set_info info = {.size = sizeof(info)};

    (void)state;
    world_set("limits: [ " SLOTS("1") " ], config: { color: red }");
    held = granted(NULL);
    reload_main("limits: [ " SLOTS("1") " ], max_waiters: 1, strict: true, timeout: 3s, "
                                        "config: { color: blue }");
    assert_int_equal(weir_set_info(world.set, &info), 0);
    assert_int_equal(info.max_waiters, 1);
    assert_int_equal(info.timeout_ns, 3 * SECOND);
    assert_string_equal(weir_set_config(world.set, "color"), "blue");
    assert_string_equal(weir_acquisition_config(held, "color"), "red");
    assert_int_equal(try_acquire(ASK({"other", 1}), &none), -ENOENT);
    waiting = pending(NULL);
    assert_int_equal(submit(NULL, &none), -ENOBUFS);
    advance(3 * SECOND);
    assert_int_equal(weir_acquisition_result(waiting), -ETIMEDOUT);
    release(waiting);
    release(held);
    assert_int_equal(available(0), 1);
    world_close();
}

static void counters_go_on(void **state)
{
    (void)state;
    world_limits("{ type: rate, key: x, algorithm: gcra, capacity: 5, window: 1s }, " SLOTS("2"));
    release(granted(ASK({"slots", 2})));
    reload_limits(SLOTS("3"));
    release(granted(ASK({"slots", 3})));
    reload_limits(SLOTS("4"));
    release(granted(ASK({"slots", 1})));
    assert_int_equal(stats().granted, 3);
    assert_int_equal(stats().released, 3);
    assert_int_equal(stats().held, 0);
    assert_int_equal(limit_stats(0).granted, 6);
    world_close();
}

/* ---- waiters ---- */

static void a_waiter_is_granted_at_once_where_the_new_definition_lets_it(void **state)
{
    weir_acquisition *held, *first, *second;

    (void)state;
    world_limits(SLOTS("1"));
    held = granted(NULL);
    first = pending(NULL);
    second = pending(NULL);
    reload_limits(SLOTS("2"));
    assert_int_equal(weir_acquisition_result(first), 0);
    assert_int_equal(weir_acquisition_result(second), -EINPROGRESS);
    assert_int_equal(stats().waiting, 1);
    release(first); /* granted by the successor */
    assert_int_equal(weir_acquisition_result(second), 0);
    assert_int_equal(limit_stats(0).held, 2);
    release(held);
    release(second);
    assert_int_equal(limit_stats(0).held, 0);
    assert_int_equal(available(0), 2);
    world_close();
}

static void waiters_keep_their_order_and_their_deadlines(void **state)
{
    weir_acquisition *held, *waiting[3], *none = NULL;

    (void)state;
    world_limits(SLOTS("4"));
    held = granted(ASK({"slots", 4}));
    waiting[0] = pending(ASK({"slots", 2}));
    waiting[1] = pending(with_timeout(ASK({"slots", 1}), 2 * SECOND));
    waiting[2] = pending(ASK({"slots", 1}));
    reload_limits(SLOTS("3"));
    reload_limits(SLOTS("5"));
    assert_int_equal(try_acquire(ASK({"slots", 1}), &none), -EAGAIN); /* no overtaking */
    advance(2 * SECOND);
    assert_int_equal(weir_acquisition_result(waiting[0]), -EINPROGRESS);
    assert_int_equal(weir_acquisition_result(waiting[1]), -ETIMEDOUT);
    assert_int_equal(stats().waiting, 2);
    release(held);
    assert_int_equal(weir_acquisition_result(waiting[0]), 0);
    assert_int_equal(weir_acquisition_result(waiting[2]), 0);
    for (size_t i = 0; i < 3; i++)
        release(waiting[i]);
    assert_int_equal(limit_stats(0).held, 0);
    world_close();
}

static void a_waiter_that_can_never_be_granted_ends(void **state)
{
    weir_acquisition *held, *waiting[4];

    (void)state;
    world_limits(SLOTS("4"));
    held = granted(ASK({"slots", 2}));
    waiting[0] = pending(ASK({"slots", 4}));
    waiting[1] = pending(ASK({"slots", 1}));
    waiting[2] = pending(ASK({"slots", 3}));
    waiting[3] = pending(ASK({"slots", 2}));
    reload_limits(SLOTS("2"));
    assert_int_equal(weir_acquisition_result(waiting[0]), -ERANGE);
    assert_int_equal(weir_acquisition_result(waiting[1]), -EINPROGRESS);
    release(held);
    assert_int_equal(weir_acquisition_result(waiting[1]), 0);
    assert_int_equal(weir_acquisition_result(waiting[2]), -ERANGE); /* once it was the head */
    assert_int_equal(weir_acquisition_result(waiting[3]), -EINPROGRESS);
    assert_int_equal(stats().refused_impossible, 2);
    release(waiting[1]);
    assert_int_equal(weir_acquisition_result(waiting[3]), 0);
    release(waiting[0]);
    release(waiting[2]);
    release(waiting[3]);
    assert_int_equal(limit_stats(0).held, 0);
    world_close();
}

static void a_waiter_is_granted_by_the_time_of_the_new_rate(void **state)
{
    weir_acquisition *waiting;

    (void)state;
    world_limits(RATE("token_bucket", "10"));
    release_used(granted(ASK({"rate", 10})), "rate", 10);
    waiting = pending(ASK({"rate", 5}));
    reload_limits(RATE("token_bucket", "100"));
    advance(SECOND / 2 - 1);
    assert_int_equal(weir_acquisition_result(waiting), -EINPROGRESS);
    advance(1);
    assert_int_equal(weir_acquisition_result(waiting), 0);
    release_used(waiting, "rate", 0); /* refunded to the limit that has granted it */
    assert_int_equal(available(0), 5);
    world_close();
}

/* Its record says by which definition it was granted: the state of the limit has begun anew in
 * between. */
static void a_waiter_returns_what_a_later_definition_granted(void **state)
{
    weir_acquisition *held, *waiting;

    (void)state;
    world_limits("{ type: call, key: k, algorithm: fixed_window, capacity: 1, window: 10s }");
    held = granted(NULL);
    waiting = pending(NULL);
    reload_limits("{ type: resource, key: k, capacity: 3 }");
    assert_int_equal(weir_acquisition_result(waiting), 0);
    assert_int_equal(limit_stats(0).held, 1);
    reload_limits("{ type: resource, key: k, capacity: 4 }");
    assert_int_equal(limit_stats(0).held, 1);
    release(held);
    assert_int_equal(limit_stats(0).held, 1);
    release(waiting);
    assert_int_equal(limit_stats(0).held, 0);
    world_close();
}

static void a_part_that_is_returned_goes_to_the_new_definition(void **state)
{
    weir_acquisition *held;

    (void)state;
    world_limits(SLOTS("4"));
    held = granted(ASK({"slots", 4}));
    reload_limits(SLOTS("3"));
    assert_int_equal(weir_return(held, "slots", 3), 0);
    assert_int_equal(limit_stats(0).held, 1);
    release(held);
    assert_int_equal(limit_stats(0).held, 0);
    world_close();
}

static void waiters_that_are_fair_per_limit_go_on(void **state)
{
    weir_acquisition *held[2], *waiting[3];

    (void)state;
    world_set(
        "fair: per_limit, limits: [ " SLOTS("2") ", { type: resource, key: b, capacity: 1 } ]");
    held[0] = granted(ASK({"slots", 2}, {"b", 0}));
    held[1] = granted(ASK({"slots", 0}, {"b", 1}));
    waiting[0] = pending(ASK({"slots", 2}, {"b", 0}));
    waiting[1] = pending(ASK({"slots", 0}, {"b", 1}));
    waiting[2] = pending(ASK({"slots", 1}, {"b", 0}));
    reload_main(
        "fair: per_limit, limits: [ { type: resource, key: b, capacity: 2 }, " SLOTS("1") " ]");
    assert_int_equal(weir_acquisition_result(waiting[0]), -ERANGE);
    assert_int_equal(weir_acquisition_result(waiting[1]), 0);
    assert_int_equal(weir_acquisition_result(waiting[2]), -EINPROGRESS);
    release(held[0]);
    assert_int_equal(weir_acquisition_result(waiting[2]), 0);
    release(held[1]);
    for (size_t i = 0; i < 3; i++)
        release(waiting[i]);
    assert_int_equal(limit_stats(0).held, 0);
    assert_int_equal(limit_stats(1).held, 0);
    world_close();
}

/* Waiters stay in their classes, and new weights hold for the next grants. */
static void waiters_of_classes_go_on(void **state)
{
    static const char *const names[] = {"a", "b"};
    weir_acquisition *held, *waiting[2][4];
    unsigned granted_n[2] = {0};

    (void)state;
    world_set("shares: { a: 1, b: 1 }, limits: [ " SLOTS("1") " ]");
    held = granted(ASK({"slots", 1}));
    for (unsigned i = 0; i < 8; i++) {
        struct weir_request *request = ASK({"slots", 1});

        request->wait_class = names[i % 2];
        waiting[i % 2][i / 2] = pending(request);
    }
    reload_main("shares: { a: 1, b: 3 }, limits: [ " SLOTS("1") " ]");
    release(held);
    for (unsigned grants = 0; grants < 4; grants++) {
        for (unsigned c = 0; c < 2; c++) {
            if (granted_n[c] == 4 || weir_acquisition_result(waiting[c][granted_n[c]]) != 0)
                continue;
            release(waiting[c][granted_n[c]++]);
            break;
        }
    }
    assert_int_equal(granted_n[0], 1);
    assert_int_equal(granted_n[1], 3);
    for (unsigned c = 0; c < 2; c++)
        for (unsigned i = granted_n[c]; i < 4; i++)
            release(waiting[c][i]);
    world_close();
}

static void a_canceled_waiter_leaves_the_line(void **state)
{
    weir_acquisition *held, *first, *second;

    (void)state;
    world_limits(SLOTS("2"));
    held = granted(NULL);
    first = pending(ASK({"slots", 2}));
    second = pending(ASK({"slots", 1}));
    reload_limits(SLOTS("3"));
    assert_int_equal(weir_acquisition_result(first), 0);
    reload_limits(SLOTS("4"));
    assert_int_equal(weir_acquisition_result(second), 0);
    assert_int_equal(weir_cancel(second), -EALREADY);
    release(first);
    first = pending(ASK({"slots", 4}));
    reload_limits(SLOTS("5"));
    assert_int_equal(weir_cancel(first), 0);
    assert_int_equal(stats().waiting, 0);
    release(first);
    release(second);
    release(held);
    assert_int_equal(limit_stats(0).held, 0);
    world_close();
}

static void a_completion_queue_delivers_what_a_reload_grants(void **state)
{
    weir_queue *queue = NULL;
    struct weir_completion done[2];
    weir_acquisition *held;

    (void)state;
    world_limits(SLOTS("1"));
    held = granted(NULL);
    assert_int_equal(weir_queue_open(&queue, world.w, 8), 0);
    assert_int_equal(weir_queue_submit(queue, world.pool, NULL, 7, NULL, NULL), 0);
    reload_limits(SLOTS("2"));
    assert_int_equal(weir_queue_reap(queue, done, 2), 1);
    assert_int_equal(done[0].user_data, 7);
    assert_int_equal(done[0].result, 0);
    release(done[0].acquisition);
    release(held);
    assert_int_equal(limit_stats(0).held, 0);
    weir_queue_close(queue);
    world_close();
}

/* More of the other limit is held than it has now. */
static void what_a_waiter_asks_nothing_of_holds_up_no_hand_over(void **state)
{
    weir_queue *queue = NULL;
    struct weir_completion done[2];
    weir_acquisition *much, *held;

    (void)state;
    world_limits(SLOTS("1") ", { type: resource, key: other, capacity: 4 }");
    much = granted(ASK({"slots", 0}, {"other", 3}));
    reload_limits(SLOTS("1") ", { type: resource, key: other, capacity: 2 }");
    held = granted(ASK({"slots", 1}, {"other", 0}));
    assert_int_equal(weir_queue_open(&queue, world.w, 8), 0);
    assert_int_equal(
        weir_queue_submit(queue, world.pool, ASK({"slots", 1}, {"other", 0}), 7, NULL, NULL), 0);
    assert_int_equal(weir_queue_reap(queue, done, 2), 0);
    release(held);
    assert_int_equal(weir_queue_reap(queue, done, 2), 1);
    assert_int_equal(done[0].result, 0);
    release(done[0].acquisition);
    release(much);
    assert_int_equal(limit_stats(0).held, 0);
    assert_int_equal(limit_stats(1).held, 0);
    weir_queue_close(queue);
    world_close();
}

/* A hand-over reads what the waiter asked for by the definition that it asked by. */
static void a_hand_over_knows_limits_that_changed_places(void **state)
{
    weir_queue *queue = NULL;
    struct weir_completion done[2];
    weir_acquisition *held;

    (void)state;
    world_limits(SLOTS("2") ", { type: resource, key: other, capacity: 4 }");
    held = granted(ASK({"slots", 2}, {"other", 1}));
    assert_int_equal(weir_queue_open(&queue, world.w, 8), 0);
    assert_int_equal(
        weir_queue_submit(queue, world.pool, ASK({"slots", 1}, {"other", 2}), 7, NULL, NULL), 0);
    reload_limits("{ type: resource, key: other, capacity: 4 }, " SLOTS("2"));
    assert_int_equal(weir_queue_reap(queue, done, 2), 0);
    release(held);
    assert_int_equal(weir_queue_reap(queue, done, 2), 1);
    assert_int_equal(done[0].result, 0);
    assert_int_equal(limit_stats(0).held, 2); /* other */
    assert_int_equal(limit_stats(1).held, 1);
    release(done[0].acquisition);
    assert_int_equal(limit_stats(0).held, 0);
    assert_int_equal(limit_stats(1).held, 0);
    weir_queue_close(queue);
    world_close();
}

/* ---- sets and pools ---- */

#define A   "a: { limits: [ { type: resource, key: k, capacity: 1 } ] }"
#define B   "b: { limits: [ { type: resource, key: k, capacity: 2 } ] }"
#define P   "pools: { p: { sets: [a, b] } }\n"
#define AB  "version: 1\nsets: { " A ", " B " }\n"
#define ABP AB P

static void a_removed_set_ends_its_waiters(void **state)
{
    weir_acquisition *held, *waiting, *none = NULL;
    weir_pool *again = NULL;

    (void)state;
    world_open(AB, "a");
    held = granted(NULL);
    waiting = pending(NULL);
    assert_int_equal(reload("version: 1\nsets: { " B " }\n"), 0);
    assert_int_equal(weir_acquisition_result(waiting), -ESHUTDOWN);
    assert_int_equal(try_acquire(NULL, &none), -ESTALE);
    assert_int_equal(submit(NULL, &none), -ESTALE);
    assert_int_equal(weir_pool_open(&again, world.w, "a", 0, NULL), -ENOENT);
    release(waiting);
    release(held);
    assert_int_equal(reload(AB), 0); /* another set of its name */
    assert_int_equal(try_acquire(NULL, &none), -ESTALE);
    again = pool_open("a", 0);
    assert_int_equal(weir_try_acquire(again, NULL, &held, NULL), 0);
    release(held);
    weir_pool_close(again);
    world_close();
}

static void an_inline_set_that_is_removed_grants_nothing(void **state)
{
    weir_acquisition *none = NULL;

    (void)state;
    world_open(AB, "a");
    release(granted(NULL)); /* the thread has one cached */
    assert_int_equal(reload("version: 1\nsets: { " B " }\n"), 0);
    assert_int_equal(try_acquire(NULL, &none), -ESTALE);
    world_close();
}

static void sets_and_pools_are_added_and_pools_removed(void **state)
{
    const char *names[4];
    weir_acquisition *held = NULL;
    weir_pool *pool;

    (void)state;
    world_open("version: 1\nsets: { " A " }\n", "a");
    assert_int_equal(reload(ABP), 0);
    pool = pool_open("p", 0);
    assert_int_equal(weir_pool_sets(pool), 2);
    assert_int_equal(weir_try_acquire(pool, NULL, &held, NULL), 0);
    release(held);
    assert_int_equal(weir_pools(world.w, names, 4), 1);
    assert_int_equal(weir_sets(world.w, names, 4), 2);
    assert_int_equal(reload(AB), 0);
    assert_int_equal(weir_try_acquire(pool, NULL, &held, NULL), -ESTALE);
    assert_int_equal(weir_pools(world.w, names, 4), 0);
    weir_pool_close(pool);
    world_close();
}

static void a_pool_picks_among_sets_with_new_definitions(void **state)
{
    weir_acquisition *held[4] = {NULL};

    (void)state;
    world_open(ABP, "p");
    assert_int_equal(reload("version: 1\nsets: { " B ", a: { limits: [ { type: resource, key: k, "
                            "capacity: 2 } ] } }\n" P),
                     0);
    for (size_t i = 0; i < 4; i++)
        held[i] = granted(NULL);
    assert_string_equal(weir_acquisition_set(held[2]), "a");
    for (size_t i = 0; i < 4; i++)
        release(held[i]);
    world_close();
}

static void what_is_the_same_is_left_alone(void **state)
{
    weir_acquisition *held, *waiting;
    weir_set *set;

    (void)state;
    world_open(ABP, "a");
    held = granted(NULL);
    waiting = pending(NULL);
    set = world.set;
    assert_int_equal(reload("version: 1\nsets:\n  b: { limits: [ { key: k, type: resource, "
                            "capacity: 2 } ] }\n  " A "\n" P),
                     0);
    assert_ptr_equal(weir_pool_set(world.pool, 0), set);
    assert_int_equal(weir_acquisition_result(waiting), -EINPROGRESS);
    release(held);
    assert_int_equal(weir_acquisition_result(waiting), 0);
    release(waiting);
    world_close();
}

static void an_invalid_configuration_changes_nothing(void **state)
{
    weir_acquisition *held, *waiting;

    (void)state;
    world_open(ABP, "a");
    held = granted(NULL);
    waiting = pending(NULL);
    assert_refused("version: 1\nsets: { a: { limits: [ { type: nothing } ] } }\n", -EINVAL,
                   "nothing");
    assert_int_equal(error.line, 2);
    assert_refused("version: 1\nsets: {", -EINVAL, "");
    assert_refused(AB "pools: { p: { sets: [b, c] } }\n", -EINVAL, "there is no set `c`");
    assert_refused("version: 1\nsets: { b: { limits: [] }, a: { subjects: { max: 9 }, limits: [ { "
                   "type: resource, key: k, capacity: 1 } ] } }\n" P,
                   -EOPNOTSUPP, "set `a` cannot be changed");
    assert_refused("version: 1\nsets: { " B ", a: { clock: boottime, limits: [ { type: resource, "
                   "key: k, capacity: 1 } ] } }\n" P,
                   -EOPNOTSUPP, "clock");
    release(held);
    assert_int_equal(weir_acquisition_result(waiting), 0);
    release(waiting);
    world_close();
}

#define KEYED(n)                                                                                   \
    "version: 1\nsets: { k: { subjects: { max: 9 }, limits: [ { type: resource, key: k, "          \
    "capacity: " n " } ] }, a: { limits: [] } }\n"

/* test_keyed_moved.c has what becomes of the subjects. */
static void sets_stay_with_subjects_or_without(void **state)
{
    (void)state;
    world_open(KEYED("1"), "k");
    assert_refused("version: 1\nsets: { k: { limits: [] }, a: { limits: [] } }\n", -EOPNOTSUPP,
                   "set `k` cannot be changed");
    assert_refused(
        "version: 1\nsets: { k: { subjects: { max: 9 }, limits: [ { type: resource, key: "
        "k, capacity: 1 } ] }, a: { subjects: { max: 9 }, limits: [ { type: resource, "
        "key: k, capacity: 1 } ] } }\n",
        -EOPNOTSUPP, "set `a` cannot be changed");
    assert_int_equal(reload(KEYED("2")), 0);
    assert_int_equal(reload("version: 1\nsets: { a: { limits: [] } }\n"), 0);
    world_close();
}

static void what_the_program_defined_stays(void **state)
{
    struct weir_limit_spec limit = {
        .size = sizeof(limit), .type = WEIR_LIMIT_RESOURCE, .key = "k", .capacity = 1};
    struct weir_set_spec set = {
        .size = sizeof(set), .name = "own", .limits = &limit, .limits_n = 1};
    struct weir_pool_spec spec = {.size = sizeof(spec), .sets = &set, .sets_n = 1};
    weir_acquisition *held = NULL;
    weir_pool *pool = NULL;

    (void)state;
    world_open(AB, "a");
    assert_int_equal(weir_pool_new(&pool, world.w, &spec, NULL), 0);
    assert_refused("version: 1\nsets: { own: { limits: [] } }\n", -EEXIST, "`own`");
    assert_int_equal(reload("version: 1\nsets: { " B " }\n"), 0);
    assert_int_equal(weir_try_acquire(pool, NULL, &held, NULL), 0);
    release(held);
    weir_pool_close(pool);
    world_close();
}

static void a_lease_of_the_old_definition_goes_back(void **state)
{
#define LEASED(n) "{ type: call, key: c, algorithm: gcra, capacity: " n ", window: 1h, lease: 4 }"
    (void)state;
    world_limits(LEASED("100"));
    assert_int_equal(take(NULL), 0);
    assert_int_equal(available(0), 96);
    reload_limits(LEASED("50"));
    for (int i = 0; i < 3; i++)
        assert_int_equal(take(NULL), 0); /* they were taken before */
    assert_int_equal(available(0), 50);
    assert_int_equal(take(NULL), 0);
    assert_int_equal(available(0), 46);
    world_close();
#undef LEASED
}

static struct weir_request *of_class(struct weir_request *request, const char *name)
{
    request->wait_class = name;
    return request;
}

static void expect_class(unsigned c, uint64_t granted, uint64_t waited, uint64_t refused)
{
    struct weir_class_stats classes[2];

    assert_int_equal(weir_set_classes(world.set, classes, 2), 2);
    assert_int_equal(classes[c].granted, granted);
    assert_int_equal(classes[c].granted_waited, waited);
    assert_int_equal(classes[c].refused, refused);
    assert_int_equal(classes[0].granted + classes[1].granted, stats().granted);
}

static void counts_of_classes_go_on_with_those_of_the_set(void **state)
{
    weir_acquisition *holder, *waiters[2];

    (void)state;
    world_set("priorities: 2, limits: [ " SLOTS("4") " ]");
    holder = granted(of_class(ASK({"slots", 4}), "0"));
    assert_int_equal(try_acquire(of_class(ASK({"slots", 1}), "1"), &waiters[0]), -EAGAIN);
    waiters[0] = pending(of_class(ASK({"slots", 1}), "1"));
    waiters[1] = pending(of_class(ASK({"slots", 4}), "1"));
    reload_main("priorities: 2, ageing: 5, limits: [ " SLOTS("3") ", " RATE("gcra", "5") " ]");
    expect_class(0, 1, 0, 0);
    expect_class(1, 0, 0, 1);
    release(holder);
    release(waiters[0]);
    assert_int_equal(weir_acquisition_result(waiters[1]), -ERANGE); /* for ever: it is refused */
    release(waiters[1]);
    assert_int_equal(take(of_class(ASK({"slots", 0}, {"rate", 1}), "0")), 0);
    expect_class(0, 2, 0, 0);
    expect_class(1, 1, 1, 2);
    world_close();
}

static void other_names_of_classes_are_refused(void **state)
{
#define NAMED(name) "shares: { a: 1, " name ": 1 }, limits: [ " SLOTS("4") " ]"
    (void)state;
    world_set(NAMED("b"));
    assert_refused("version: 1\nsets: { main: { " NAMED("c") " } }\n", -EOPNOTSUPP,
                   "its requests would be of other classes");
    world_close();
}

static void wrong_arguments_are_refused(void **state)
{
    struct weir_options options = {.size = sizeof(options), .text = AB, .file = "x"};

    (void)state;
    world_open(AB, "a");
    assert_int_equal(weir_reload(NULL, NULL, NULL), -EINVAL);
    assert_int_equal(weir_reload(world.w, &options, &error), -EINVAL);
    options = (struct weir_options){.size = 1, .text = AB};
    assert_int_equal(weir_reload(world.w, &options, &error), -EINVAL);
    options = (struct weir_options){.size = sizeof(options), .file = "/nowhere"};
    assert_int_equal(weir_reload(world.w, &options, &error), -ENOENT);
    assert_int_equal(weir_reload(world.w, NULL, &error), -ENOENT); /* no WEIR_CONFIG */
    world_close();
}

/* Also one that ends by its timeout, by the definition that it was asked of. */
static void a_tick_tells_how_many_it_decided_after_a_reload(void **state)
{
    struct weir_request *request = ASK({"slots", 1}, {"rate", 0});
    weir_acquisition *held, *waits;

    (void)state;
    world_limits(SLOTS("1") "," RATE("gcra", "8"));
    held = granted(request);
    request->timeout_ns = 5 * SECOND;
    waits = pending(request);
    reload_limits(SLOTS("1") "," RATE("gcra", "9"));
    assert_int_equal(advance(5 * SECOND - 1), 0);
    assert_int_equal(advance(1), 1);
    assert_int_equal(weir_acquisition_result(waits), -ETIMEDOUT);
    release(waits);
    release(held);
    world_close();
}

/* Nothing is left that needs the time that passes in suspension, so the set goes by the other
 * clock, which is behind. */
static void the_clock_of_a_set_changes_back(void **state)
{
    weir_acquisition *held;

    (void)state;
    fake_clock_set(1000 * SECOND);
    world_real("clock: boottime, limits: [ " SLOTS("1") "," RATE("gcra", "9") " ]");
    held = granted(ASK({"slots", 1}, {"rate", 0}));
    reload_main("clock: boottime, limits: [ " SLOTS("2") " ]");
    for (int i = 0; i < 3; i++)
        release(granted(NULL));
    release(held);
    world_close();
    fake_os_reset();
}

/* A search for the newest definition does not pass all of them again: a program may reload once a
 * minute for years. */
static void the_newest_definition_is_near(void **state)
{
    const weir_set *first, *at;
    weir_set *newest;

    (void)state;
    world_limits(SLOTS("4"));
    first = world.set;
    for (int i = 0; i < 100; i++)
        reload_limits(i % 2 ? SLOTS("4") : SLOTS("5"));
    assert_int_equal(available(0), 4);
    newest = set_newest(first);
    for (at = first; at != newest; at = set_successor(at)) {
        const struct set_origin *next = set_successor(at)->origin;

        assert_ptr_equal(set_newest(at), newest);
        assert_ptr_equal(atomic_load_explicit(&next->newest, memory_order_relaxed), newest);
    }
    world_close();
}

/* It may call weir, which would hang if a lock were held. */
static void hear_of(void *userdata, const struct weir_error *complaint)
{
    assert_true(weir_now(world.w) < WEIR_FOREVER);
    assert_int_equal(weir_reload(world.w, NULL, NULL), -ENOENT);
    *(uint32_t *)userdata = complaint->line;
}

static void what_is_odd_is_told(void **state)
{
    uint32_t line = 0;
    struct weir_options options = {
        .size = sizeof(options),
        .text = "version: 1\nsets:\n  s: { limits: [ " SLOTS("1") " ] }\n  t: { limits: [] }\n",
        .complaint = hear_of,
        .userdata = &line};

    (void)state;
    unsetenv("WEIR_CONFIG");
    world_limits(SLOTS("1"));
    assert_int_equal(weir_reload(world.w, &options, NULL), 0);
    assert_int_equal(line, 0);
    options.flags = WEIR_OPEN_WARNINGS;
    assert_int_equal(weir_reload(world.w, &options, NULL), 0);
    assert_int_equal(line, 4);
    options.text = "version: 1\nsets: { s: 5, t: { limits: [] } }\n";
    assert_int_equal(weir_reload(world.w, &options, NULL), -EINVAL);
    assert_int_equal(line, 2);
    world_close();
}

#define TWO_A_DAY(algorithm)                                                                       \
    "{ type: call, key: c, algorithm: " algorithm ", capacity: 2, window: 1d }"

/* A waiter that is taken over may depend on the wall clock only from then on. */
static void a_waiter_hears_of_the_wall_clock(void **state)
{
    weir_acquisition *waiting[3];

    (void)state;
    world_limits(TWO_A_DAY("token_bucket"));
    assert_int_equal(take(ASK({"c", 2})), 0);
    for (int i = 0; i < 3; i++)
        waiting[i] = pending(NULL);
    reload_limits(TWO_A_DAY("fixed_window, anchor: epoch"));
    assert_int_equal(weir_acquisition_result(waiting[1]), 0);
    assert_int_equal(weir_acquisition_result(waiting[2]), -EINPROGRESS);
    world.wall += (int64_t)(86400 * SECOND);
    assert_int_equal(weir_tick(world.w), 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weir_acquisition_result(waiting[i]), 0);
        release(waiting[i]);
    }
    world_close();
}

/* Its handles grant everything: they would go on doing so beside the pool. */
static void a_name_opened_without_a_definition_is_no_pool(void **state)
{
    const struct weir_options options = {.size = sizeof(options),
                                         .text = "version: 1\nsets: { s: { limits: [ " SLOTS(
                                             "1") " ] } }\npools: { p: { sets: [s] } }\n"};
    weir_pool *pool;
    weir *w;

    (void)state;
    unsetenv("WEIR_CONFIG");
    assert_int_equal(weir_open(&w, NULL, NULL), 0);
    assert_int_equal(weir_pool_open(&pool, w, "p", 0, NULL), 0);
    error = (struct weir_error){0};
    assert_int_equal(weir_reload(w, &options, &error), -EOPNOTSUPP);
    assert_non_null(strstr(error.message, "has opened that name"));
    assert_int_equal(weir_take(pool, NULL, NULL), 0);
    weir_pool_close(pool);
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(what_is_held_stays_held),
        leak_checked_test(nothing_is_granted_until_it_has_drained),
        leak_checked_test(a_bucket_keeps_its_level_cut_to_the_new_burst),
        leak_checked_test(limits_of_one_key_are_told_apart),
        leak_checked_test(a_waiter_hears_of_the_wall_clock),
        leak_checked_test(what_is_odd_is_told),
        leak_checked_test(the_newest_definition_is_near),
        leak_checked_test(the_clock_of_a_set_changes_back),
        leak_checked_test(a_tick_tells_how_many_it_decided_after_a_reload),
        leak_checked_test(a_name_opened_without_a_definition_is_no_pool),
        leak_checked_test(a_window_keeps_its_count),
        leak_checked_test(another_algorithm_or_type_starts_anew),
        leak_checked_test(limits_come_go_and_change_places),
        leak_checked_test(a_set_may_lose_all_limits_and_get_some),
        leak_checked_test(the_fields_of_a_set_change),
        leak_checked_test(counters_go_on),
        leak_checked_test(a_waiter_is_granted_at_once_where_the_new_definition_lets_it),
        leak_checked_test(waiters_keep_their_order_and_their_deadlines),
        leak_checked_test(a_waiter_that_can_never_be_granted_ends),
        leak_checked_test(a_waiter_is_granted_by_the_time_of_the_new_rate),
        leak_checked_test(a_waiter_returns_what_a_later_definition_granted),
        leak_checked_test(a_part_that_is_returned_goes_to_the_new_definition),
        leak_checked_test(waiters_that_are_fair_per_limit_go_on),
        leak_checked_test(waiters_of_classes_go_on),
        leak_checked_test(a_canceled_waiter_leaves_the_line),
        leak_checked_test(a_completion_queue_delivers_what_a_reload_grants),
        leak_checked_test(what_a_waiter_asks_nothing_of_holds_up_no_hand_over),
        leak_checked_test(a_hand_over_knows_limits_that_changed_places),
        leak_checked_test(a_removed_set_ends_its_waiters),
        leak_checked_test(an_inline_set_that_is_removed_grants_nothing),
        leak_checked_test(sets_and_pools_are_added_and_pools_removed),
        leak_checked_test(a_pool_picks_among_sets_with_new_definitions),
        leak_checked_test(what_is_the_same_is_left_alone),
        leak_checked_test(an_invalid_configuration_changes_nothing),
        leak_checked_test(sets_stay_with_subjects_or_without),
        leak_checked_test(what_the_program_defined_stays),
        leak_checked_test(a_lease_of_the_old_definition_goes_back),
        leak_checked_test(counts_of_classes_go_on_with_those_of_the_set),
        leak_checked_test(other_names_of_classes_are_refused),
        leak_checked_test(wrong_arguments_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
