/* SPDX-License-Identifier: MIT */
/* What an acquisition tells of itself, and what a set tells of its limits and its `config` map. */
#include "lib/world.h"

#define LIMITS                                                                                     \
    "limits: [ { type: rate, key: tokens, algorithm: token_bucket, capacity: 100, window: 1s }, "  \
    "{ type: call, algorithm: gcra, capacity: 50, window: 1s }, "                                  \
    "{ type: resource, key: slots, capacity: 10 } ]"

static struct weir_request *with_subject(struct weir_request *request)
{
    request->subject = "s";
    request->subject_size = 1;
    return request;
}

static const char *const places[] = {
    LIMITS,
    "backend: process, lifetime: users, " LIMITS,
    "subjects: { max: 9 }, " LIMITS,
    "backend: process, lifetime: users, subjects: { max: 9 }, " LIMITS,
};

#define PLACES_N (sizeof(places) / sizeof(*places))

static uint64_t amount_of(const weir_acquisition *acquisition, const char *key)
{
    uint64_t amount = UINT64_MAX;

    assert_int_equal(weir_acquisition_amount(acquisition, key, &amount), 0);
    return amount;
}

static void a_grant_tells_its_amounts_with_the_defaults(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLACES_N; i++) {
        weir_acquisition *a;
        uint64_t amount = 77;

        world_set(places[i]);
        a = granted(with_subject(ASK({"tokens", 30}, {"slots", 0})));
        assert_int_equal(amount_of(a, "tokens"), 30);
        assert_int_equal(amount_of(a, "call_count"), 1);
        assert_int_equal(amount_of(a, "slots"), 0);
        assert_int_equal(weir_acquisition_amount(a, "nothing", &amount), -ENOENT);
        assert_int_equal(amount, 77);
        /* What was used does not change what it holds. */
        assert_int_equal(weir_update(a, "tokens", 7), 0);
        assert_int_equal(amount_of(a, "tokens"), 30);
        release(a);
        world_close();
    }
}

static void a_waiter_tells_what_it_asked_for_also_after_it_ended(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLACES_N; i++) {
        weir_acquisition *a, *b;
        uint64_t at = 77;

        world_set(places[i]);
        a = granted(with_subject(ASK({"slots", 9})));
        b = pending(with_timeout(with_subject(ASK({"slots", 3}, {"tokens", 4})), SECOND));
        assert_int_equal(amount_of(b, "slots"), 3);
        assert_int_equal(weir_acquisition_granted_ns(b, &at), -EINVAL);
        assert_null(weir_acquisition_missing_update(b));
        advance(SECOND);
        assert_int_equal(weir_acquisition_result(b), -ETIMEDOUT);
        assert_int_equal(amount_of(b, "slots"), 3);
        assert_int_equal(amount_of(b, "tokens"), 4);
        assert_int_equal(weir_acquisition_granted_ns(b, &at), -EINVAL);
        assert_int_equal(at, 77);
        release(b);
        release(a);
        world_close();
    }
}

static uint64_t granted_ns(const weir_acquisition *acquisition)
{
    uint64_t at = 0;

    assert_int_equal(weir_acquisition_granted_ns(acquisition, &at), 0);
    return at;
}

static void a_grant_tells_its_time(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLACES_N; i++) {
        weir_acquisition *a, *b;

        world_set(places[i]);
        a = granted(with_subject(ASK({"slots", 10})));
        assert_int_equal(granted_ns(a), START);
        b = pending(with_subject(ASK({"slots", 3})));
        advance(SECOND);
        release(a);
        advance(SECOND);
        assert_int_equal(weir_acquisition_result(b), 0);
        assert_int_equal(granted_ns(b), START + SECOND);
        release(b);
        world_close();
    }
}

static void a_reservation_tells_the_reserved_time(void **state)
{
    uint64_t at;
    weir_acquisition *a;

    (void)state;
    world_set(LIMITS);
    assert_int_equal(take(ASK({"tokens", 100}, {"slots", 0})), 0);
    assert_int_equal(reserve(ASK({"tokens", 50}, {"slots", 0}), &a, &at), 0);
    assert_int_equal(at, START + SECOND / 2);
    assert_int_equal(granted_ns(a), at);
    release_used(a, "tokens", 50);
    world_close();
}

/* Of an empty set as well: programs run without limits, too. */
static void a_grant_of_nothing_has_a_time(void **state)
{
    weir_acquisition *a, *b;
    uint64_t at;
    weir_queue *queue;

    (void)state;
    world_set("limits: []");
    a = granted(NULL);
    advance(SECOND);
    assert_int_equal(granted_ns(a), START);
    assert_int_equal(weir_acquisition_amount(a, "slots", &at), -ENOENT);
    assert_null(weir_acquisition_missing_update(a));
    release(a);
    assert_int_equal(reserve(NULL, &a, &at), 0);
    assert_int_equal(granted_ns(a), at);
    assert_int_equal(weir_cancel(a), 0);
    assert_int_equal(weir_acquisition_granted_ns(a, &at), -EINVAL);
    release(a);
    world_close();

    world_set(LIMITS);
    a = granted(ASK({"tokens", 0}, {"call_count", 0}, {"slots", 0}));
    assert_int_equal(granted_ns(a), START);
    assert_int_equal(weir_queue_open(&queue, world.w, 4), 0);
    advance(5);
    assert_int_equal(weir_queue_submit(queue, world.pool,
                                       ASK({"tokens", 0}, {"call_count", 0}, {"slots", 0}), 7, &b,
                                       NULL),
                     0);
    assert_int_equal(granted_ns(b), START + 5);
    release(b);
    release(a);
    weir_queue_close(queue);
    world_close();
}

static void the_time_is_of_the_clock_of_the_instance(void **state)
{
    weir_acquisition *a;
    uint64_t at, before;

    (void)state;
    world_real("clock: boottime, " LIMITS);
    before = weir_now(world.w);
    a = granted(ASK({"tokens", 1}));
    at = granted_ns(a);
    assert_true(at >= before - SECOND / 100 && at <= weir_now(world.w) + SECOND / 100);
    release_used(a, "tokens", 1);
    world_close();
}

/* ---- updates that are missing ---- */

static void the_missing_updates_are_named_one_after_another(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLACES_N; i++) {
        weir_acquisition *a;

        world_set(places[i]);
        a = granted(with_subject(ASK({"tokens", 3}, {"call_count", 2}, {"slots", 1})));
        assert_string_equal(weir_acquisition_missing_update(a), "tokens");
        assert_int_equal(weir_update(a, "tokens", 3), 0);
        assert_string_equal(weir_acquisition_missing_update(a), "call_count");
        assert_int_equal(weir_update(a, "call_count", 0), 0);
        assert_null(weir_acquisition_missing_update(a));
        release(a);
        assert_int_equal(world.logged, 0);
        world_close();
    }
}

static void a_release_without_an_update_is_logged_once_for_each_key(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLACES_N; i++) {
        world_set(places[i]);
        /* The first one takes the slow path, the others the fast one where there is one. */
        for (int turn = 0; turn < 3; turn++)
            release_expecting(granted(with_subject(ASK({"tokens", 3}))), -EPROTO);
        assert_int_equal(world.logged, 1);
        assert_string_equal(world.log[0],
                            "set `main`: key `tokens` was released without an update: "
                            "its full amount counts as used");
        release_expecting(granted(with_subject(ASK({"tokens", 3}, {"call_count", 2}))), -EPROTO);
        assert_int_equal(world.logged, 2);
        assert_non_null(strstr(world.log[1], "`call_count`"));
        assert_int_equal(stats().missing_update, 4);
        assert_int_equal(stats().released, 4);
        world_close();
    }
}

/* The release is whole when the callback is called, and it may do what it likes. */
static weir_pool *pool_of_callback;
static int results_of_callback;

static void acquire_in_callback(void *userdata, enum weir_log_level level, const char *message)
{
    weir_acquisition *a;

    (void)userdata;
    assert_int_equal(level, WEIR_LOG_WARNING);
    assert_non_null(strstr(message, "without an update"));
    if (weir_try_acquire(pool_of_callback, ASK({"slots", 1}), &a, NULL) == 0)
        results_of_callback += weir_release(&a) == 0;
}

static void the_log_callback_may_acquire_what_was_released(void **state)
{
    static const char text[] = "version: 1\nsets: { main: { limits: [ "
                               "{ type: resource, key: slots, capacity: 1 }, { type: rate, key: n, "
                               "algorithm: gcra, capacity: 9, window: 1s } ] } }\n";
    const struct weir_options options = {
        .size = sizeof(options), .text = text, .log = acquire_in_callback};
    weir_acquisition *a;
    weir *w;

    (void)state;
    assert_int_equal(weir_open(&w, &options, NULL), 0);
    world.w = w;
    pool_of_callback = pool_open("main", 0);
    results_of_callback = 0;
    assert_int_equal(weir_try_acquire(pool_of_callback, ASK({"slots", 1}, {"n", 1}), &a, NULL), 0);
    assert_int_equal(weir_release(&a), -EPROTO);
    assert_int_equal(results_of_callback, 1);
    weir_pool_close(pool_of_callback);
    weir_close(w);
}

/* ---- limits by key, and the config map ---- */

static void limits_are_found_by_key(void **state)
{
    (void)state;
    world_limits("{ type: rate, key: a, algorithm: gcra, capacity: 1, window: 1s }, "
                 "{ type: resource, key: b, capacity: 2 }, "
                 "{ type: rate, key: a, algorithm: gcra, capacity: 9, window: 1h }");
    assert_int_equal(weir_set_limit_find(world.set, "a", 0), 0);
    assert_int_equal(weir_set_limit_find(world.set, "a", 1), 2);
    assert_int_equal(weir_set_limit_find(world.set, "a", 3), -ENOENT);
    assert_int_equal(weir_set_limit_find(world.set, "a", SIZE_MAX), -ENOENT);
    assert_int_equal(weir_set_limit_find(world.set, "b", 0), 1);
    assert_int_equal(weir_set_limit_find(world.set, "", 0), -ENOENT);
    assert_string_equal(weir_set_limit_key(world.set, 1), "b");
    assert_string_equal(weir_set_limit_key(world.set, 2), "a");
    assert_null(weir_set_limit_key(world.set, 3));
    assert_null(weir_set_limit_key(world.set, SIZE_MAX));
    world_close();
}

static void the_config_map_is_listed_in_order(void **state)
{
    struct weir_setting found[3] = {{0}};
    weir_acquisition *a;

    (void)state;
    world_set(
        "config: { region: eu, host: h }, limits: [ { type: resource, key: r, capacity: 1 } ]");
    a = granted(NULL);
    assert_int_equal(weir_set_config_settings(world.set, NULL, 0), 2);
    assert_int_equal(weir_set_config_settings(world.set, found, 1), 2);
    assert_string_equal(found[0].name, "host");
    assert_null(found[1].name);
    assert_int_equal(weir_acquisition_config_settings(a, found, 3), 2);
    assert_string_equal(found[0].value, "h");
    assert_string_equal(found[1].name, "region");
    assert_string_equal(found[1].value, "eu");
    assert_null(found[2].name);
    world_close();
    /* It lives as long as the acquisition. */
    assert_string_equal(found[1].value, "eu");
    assert_int_equal(weir_acquisition_config_settings(a, found, 3), 2);
    release(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grant_tells_its_amounts_with_the_defaults),
        cmocka_unit_test(a_waiter_tells_what_it_asked_for_also_after_it_ended),
        cmocka_unit_test(a_grant_tells_its_time),
        cmocka_unit_test(a_reservation_tells_the_reserved_time),
        cmocka_unit_test(a_grant_of_nothing_has_a_time),
        cmocka_unit_test(the_time_is_of_the_clock_of_the_instance),
        cmocka_unit_test(the_missing_updates_are_named_one_after_another),
        cmocka_unit_test(a_release_without_an_update_is_logged_once_for_each_key),
        cmocka_unit_test(the_log_callback_may_acquire_what_was_released),
        cmocka_unit_test(limits_are_found_by_key),
        cmocka_unit_test(the_config_map_is_listed_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
