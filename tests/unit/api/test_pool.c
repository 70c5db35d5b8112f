/* SPDX-License-Identifier: MIT */
/* The contract on pools and names, sentence by sentence. */
#include "lib/world.h"

/* Three sets without limits, and what is over them. */
#define SETS         "sets: { a: { limits: [] }, b: { limits: [] }, c: { limits: [] } }\n"
#define POOL(fields) "version: 1\n" SETS "pools: { p: { " fields " sets: [a, b, c] } }\n"

/* The name of the set that the next pick goes to: a letter. */
static char picked(weir_pool *pool)
{
    weir_acquisition *a = NULL;
    char name;

    assert_int_equal(weir_try_acquire(pool, NULL, &a, NULL), 0);
    name = weir_acquisition_set(a)[0];
    release(a);
    return name;
}

static void assert_picks(weir_pool *pool, const char *expected)
{
    for (; *expected; expected++)
        assert_int_equal(picked(pool), *expected);
}

static void round_robin_is_the_default(void **state)
{
    (void)state;
    world_open(POOL(""), "p");
    assert_picks(world.pool, "abcabca");
    world_close();
}

static void the_ith_pick_of_worker_w_is_i_plus_w_mod_n(void **state)
{
    static const uint32_t workers[] = {0, 1, 2, 3, 7, UINT32_MAX - 1};

    (void)state;
    world_open(POOL("balancer: round_robin,"), "p");
    for (size_t i = 0; i < sizeof(workers) / sizeof(*workers); i++) {
        weir_pool *pool = pool_open("p", workers[i]);

        for (uint64_t pick = 0; pick < 10; pick++)
            assert_int_equal(picked(pool), "abc"[(pick + workers[i]) % 3]);
        weir_pool_close(pool);
    }
    world_close();
}

static void each_handle_has_a_balancer_of_its_own(void **state)
{
    (void)state;
    world_open(POOL(""), "p");
    weir_pool *other = pool_open("p", 0);
    assert_picks(world.pool, "ab");
    assert_picks(other, "abca");
    assert_picks(world.pool, "cab");
    weir_pool_close(other);
    world_close();
}

static void a_refused_try_counts_as_a_pick(void **state)
{
    weir_acquisition *held[2], *none = NULL;

    (void)state;
    world_open("version: 1\n"
               "sets: { a: { limits: [ { type: resource, key: r, capacity: 1 } ] },\n"
               "        b: { limits: [ { type: resource, key: r, capacity: 1 } ] } }\n"
               "pools: { p: { sets: [a, b] } }\n",
               "p");
    held[0] = granted(NULL);
    held[1] = granted(NULL);
    assert_int_equal(try_acquire(NULL, &none), -EAGAIN);
    assert_string_equal(refusal.set, "a");
    assert_int_equal(try_acquire(NULL, &none), -EAGAIN);
    assert_string_equal(refusal.set, "b");
    assert_int_equal(try_acquire(ASK({"r", 2}), &none), -ERANGE);
    assert_string_equal(refusal.set, "a");
    release(held[1]);
    held[1] = granted(NULL); /* the fifth pick goes to b again */
    assert_string_equal(weir_acquisition_set(held[1]), "b");
    release(held[0]);
    release(held[1]);
    world_close();
}

static void the_picked_set_does_all_the_waiting(void **state)
{
    weir_acquisition *a, *b, *waiter;

    (void)state;
    world_open("version: 1\n"
               "sets: { a: { config: { k: v }, limits: [ { type: resource, key: r, capacity: 1 } ]"
               " },\n        b: { limits: [ { type: resource, key: r, capacity: 1 } ] } }\n"
               "pools: { p: { sets: [a, b] } }\n",
               "p");
    a = granted(NULL);
    b = granted(NULL);
    waiter = pending(NULL);
    assert_string_equal(weir_acquisition_set(waiter), "a");
    assert_string_equal(weir_acquisition_config(waiter, "k"), "v");
    release(b); /* does not help it */
    assert_int_equal(weir_acquisition_result(waiter), -EINPROGRESS);
    release(a);
    assert_int_equal(weir_acquisition_result(waiter), 0);
    release(waiter);
    world_close();
}

static void draw(const char *text, uint32_t worker, char *ret)
{
    weir_pool *pool;

    world_open(text, "p");
    pool = pool_open("p", worker);
    for (int i = 0; i < 64; i++)
        ret[i] = picked(pool);
    weir_pool_close(pool);
    world_close();
}

static void random_is_seedable(void **state)
{
    char first[64], again[64], other_seed[64], other_worker[64];

    (void)state;
    draw(POOL("balancer: random, seed: 42,"), 0, first);
    draw(POOL("balancer: random, seed: 42,"), 0, again);
    draw(POOL("balancer: random, seed: 43,"), 0, other_seed);
    draw(POOL("balancer: random, seed: 42,"), 1, other_worker);
    assert_memory_equal(first, again, 64);
    assert_memory_not_equal(first, other_seed, 64);
    assert_memory_not_equal(first, other_worker, 64);
}

static void random_takes_the_instances_seed_without_its_own(void **state)
{
    char first[64], again[64];

    (void)state;
    draw(POOL("balancer: random,"), 0, first); /* the world's seed is 1 */
    draw(POOL("balancer: random,"), 0, again);
    assert_memory_equal(first, again, 64);
}

static void random_is_uniform(void **state)
{
    unsigned n[3] = {0};

    (void)state;
    world_open(POOL("balancer: random,"), "p");
    for (int i = 0; i < 3000; i++)
        n[picked(world.pool) - 'a']++;
    for (int i = 0; i < 3; i++)
        assert_in_range(n[i], 870, 1130); /* five standard deviations of 1000; the seed is fixed */
    world_close();
}

static void the_worker_index_may_come_from_a_counter_of_the_pool(void **state)
{
    weir_pool *pools[5], *other;

    (void)state;
    world_open("version: 1\n" SETS "pools: { p: { sets: [a, b, c] }, q: { sets: [c, b, a] } }\n",
               "p");
    for (int i = 0; i < 5; i++)
        pools[i] = pool_open("p", WEIR_WORKER_AUTO);
    other = pool_open("q", WEIR_WORKER_AUTO); /* has a counter of its own */
    for (int i = 0; i < 5; i++) {
        assert_int_equal(picked(pools[i]), "abcab"[i]);
        weir_pool_close(pools[i]);
    }
    assert_int_equal(picked(other), 'c');
    weir_pool_close(other);
    world_close();
}

static void sets_of_a_pool_may_have_different_keys(void **state)
{
    const struct weir_request *both = ASK({"x", 1}, {"y", 1});

    (void)state;
    world_open("version: 1\n"
               "sets: { a: { limits: [ { type: resource, key: x, capacity: 1 } ] },\n"
               "        b: { limits: [ { type: resource, key: y, capacity: 1 } ] } }\n"
               "pools: { p: { sets: [a, b] } }\n",
               "p");
    for (int i = 0; i < 4; i++)
        release(granted(both));
    assert_int_equal(world.logged, 2); /* y of a and x of b */
    world_close();
}

static void sets_are_addressed_by_index(void **state)
{
    (void)state;
    world_open(POOL(""), "p");
    assert_int_equal(weir_pool_sets(world.pool), 3);
    assert_string_equal(weir_set_name(weir_pool_set(world.pool, 0)), "a");
    assert_string_equal(weir_set_name(weir_pool_set(world.pool, 2)), "c");
    assert_null(weir_pool_set(world.pool, 3));
    assert_null(weir_pool_set(world.pool, SIZE_MAX));
    world_close();
}

static void a_sets_name_opens_as_a_pool_of_that_set(void **state)
{
    weir_pool *again;

    (void)state;
    world_open(POOL(""), "b");
    assert_int_equal(weir_pool_sets(world.pool), 1);
    assert_picks(world.pool, "bbb");
    again = pool_open("b", 5);
    assert_ptr_equal(weir_pool_set(again, 0), world.set);
    assert_picks(again, "bb");
    weir_pool_close(again);
    again = pool_open("p", 0);
    assert_ptr_equal(weir_pool_set(again, 1), world.set); /* shared with the pool over it */
    weir_pool_close(again);
    world_close();
}

static void an_unknown_name_is_enoent(void **state)
{
    weir_pool *pool = NULL;

    (void)state;
    world_open(POOL(""), "p");
    assert_int_equal(weir_pool_open(&pool, world.w, "d", 0, NULL), -ENOENT);
    assert_int_equal(weir_pool_open(&pool, world.w, "", 0, NULL), -ENOENT);
    assert_int_equal(weir_pool_open(&pool, world.w, NULL, 0, NULL), -EINVAL);
    assert_int_equal(weir_pool_open(&pool, NULL, "p", 0, NULL), -EINVAL);
    assert_int_equal(weir_pool_open(NULL, world.w, "p", 0, NULL), -EINVAL);
    assert_null(pool);
    world_close();
}

static void assert_wrong(const char *text, const char *hint)
{
    struct weir_options options = {.size = sizeof(options), .text = text};
    struct weir_error error = {0};
    weir *w = NULL;

    assert_int_equal(weir_open(&w, &options, &error), -EINVAL);
    assert_null(w);
    if (!strstr(error.message, hint))
        fail_msg("%s", error.message);
}

static void sets_and_pools_share_one_namespace(void **state)
{
    (void)state;
    assert_wrong("version: 1\nsets: { a: { limits: [] } }\npools: { a: { sets: [a] } }\n", "`a`");
}

static void a_pool_that_names_a_missing_set_is_a_configuration_error(void **state)
{
    (void)state;
    assert_wrong("version: 1\nsets: { a: { limits: [] } }\npools: { p: { sets: [a, z] } }\n",
                 "`z`");
}

static void a_pool_without_sets_holds_one_empty_set(void **state)
{
    (void)state;
    world_open("version: 1\npools: { p: { sets: [] } }\n", "p");
    assert_int_equal(weir_pool_sets(world.pool), 1);
    assert_int_equal(weir_set_limits(world.set), 0);
    release(granted(ASK({"anything", 1000000})));
    world_close();
}

static void without_any_configuration_every_name_opens_one_empty_set(void **state)
{
    weir_pool *one = NULL, *two = NULL;
    weir *w = NULL;

    (void)state;
    unsetenv("WEIR_CONFIG");
    assert_int_equal(weir_open(&w, NULL, NULL), 0);
    assert_int_equal(weir_pool_open(&one, w, "whatever", 0, NULL), 0);
    assert_int_equal(weir_pool_open(&two, w, "whatever", 3, NULL), 0);
    assert_ptr_equal(weir_pool_set(one, 0), weir_pool_set(two, 0));
    assert_string_equal(weir_set_name(weir_pool_set(one, 0)), "whatever");
    assert_int_equal(weir_set_limits(weir_pool_set(one, 0)), 0);
    weir_pool_close(one);
    weir_pool_close(two);
    weir_close(w);
}

static void an_empty_set_grants_everything(void **state)
{
    struct weir_request *anything = ASK({"tokens", 1000000}, {"slots", UINT64_MAX});
    weir_acquisition *held[10], *a = NULL;
    uint64_t at = 0;

    (void)state;
    world_set("limits: []");
    assert_int_equal(take(anything), 0);
    assert_int_equal(take(NULL), 0);
    assert_int_equal(submit(anything, &a), 0);
    assert_int_equal(weir_update(a, "tokens", 5), 0);
    assert_true(readable(weir_acquisition_fd(a)));
    assert_int_equal(weir_acquisition_result(a), 0);
    assert_int_equal(weir_cancel(a), -EALREADY);
    release(a);
    assert_int_equal(weir_acquire(world.pool, anything, &a, NULL), 0);
    release(a);
    for (int i = 0; i < 10; i++)
        held[i] = granted(NULL);
    assert_int_equal(stats().held, 10);
    for (int i = 0; i < 10; i++)
        release(held[i]);
    assert_int_equal(weir_set_ready_at(world.set, anything, &at), 0);
    assert_int_equal(at, world.now);
    assert_int_equal(stats().granted, 14);
    assert_int_equal(stats().taken, 2);
    assert_int_equal(stats().released, 12);
    assert_int_equal(stats().held, 0);
    assert_int_equal(weir_set_holders(world.set, NULL, 0), 0);
    world_close();
}

static void a_strict_request_to_an_empty_set_is_enoent(void **state)
{
    weir_acquisition *a = NULL;

    (void)state;
    world_set("limits: []");
    assert_int_equal(try_acquire(strict(ASK({"k", 1})), &a), -ENOENT);
    world_close();
}

/* Balancers of others */

static void a_balancer_that_answers_out_of_range_is_reported_once(void **state)
{
    (void)state;
    world_open(POOL("balancer: wild,"), "p");
    for (int i = 0; i < 5; i++)
        assert_in_range(picked(world.pool), 'a', 'c');
    assert_int_equal(world.logged, 1);
    assert_non_null(strstr(world.log[0], "wild"));
    assert_non_null(strstr(world.log[0], "`p`"));
    world_close();
}

static void a_balancer_sees_holders_and_waiters(void **state)
{
    weir_acquisition *held[4];

    (void)state;
    world_open("version: 1\n"
               "sets: { a: { limits: [ { type: resource, key: r, capacity: 1 } ] },\n"
               "        b: { limits: [ { type: resource, key: r, capacity: 1 } ] } }\n"
               "pools: { p: { balancer: emptiest, sets: [a, b] } }\n",
               "p");
    held[0] = granted(NULL); /* a holds 1 */
    held[1] = granted(NULL); /* b holds 1 */
    held[2] = pending(NULL); /* one waits in a */
    held[3] = pending(NULL); /* one waits in b */
    for (int i = 0; i < 4; i++)
        assert_string_equal(weir_acquisition_set(held[i]), i % 2 ? "b" : "a");
    for (int i = 0; i < 4; i++)
        release(held[i]);
    world_close();
}

static void a_balancer_sees_when_each_set_would_grant(void **state)
{
    (void)state;
    world_open("version: 1\nsets:\n"
               "  a: { limits: [ { type: rate, key: k, algorithm: gcra, capacity: 1, window: 3s } ]"
               " }\n"
               "  b: { limits: [ { type: rate, key: k, algorithm: gcra, capacity: 2, window: 2s } ]"
               " }\npools: { p: { balancer: earliest, sets: [a, b] } }\n",
               "p");
    assert_int_equal(take(ASK({"k", 1})), 0); /* a: ready in 3 s */
    assert_int_equal(take(ASK({"k", 2})), 0); /* b, as a could never grant 2: ready in 1 s */
    assert_int_equal(take(ASK({"k", 1})), -EAGAIN);
    assert_string_equal(refusal.set, "b");
    assert_int_equal(refusal.retry_after_ns, SECOND);
    world_close();
}

static void a_balancer_sees_the_route(void **state)
{
    struct weir_request request = {.size = sizeof(request)};
    weir_acquisition *a;

    (void)state;
    world_open(POOL("balancer: route,"), "p");
    for (request.route = 0; request.route < 7; request.route++) {
        a = granted(&request);
        assert_int_equal(weir_acquisition_set(a)[0], "abc"[request.route % 3]);
        release(a);
    }
    world_close();
}

/* Pools in code */

static const struct weir_limit_spec one_slot = {
    .size = sizeof(one_slot), .type = WEIR_LIMIT_RESOURCE, .key = "r", .capacity = 1};
static const struct weir_set_spec new_set = {
    .size = sizeof(new_set), .name = "d", .limits = &one_slot, .limits_n = 1};

static void a_pool_in_code_has_new_sets_then_existing_ones(void **state)
{
    const char *const existing[] = {"c", "a"};
    struct weir_pool_spec spec = {.size = sizeof(spec),
                                  .name = "q",
                                  .sets = &new_set,
                                  .sets_n = 1,
                                  .set_names = existing,
                                  .set_names_n = 2,
                                  .worker = 1};
    weir_pool *pool = NULL, *again;

    (void)state;
    world_open(POOL(""), "p");
    assert_int_equal(weir_pool_new(&pool, world.w, &spec, NULL), 0);
    assert_int_equal(weir_pool_sets(pool), 3);
    assert_picks(pool, "cadca"); /* worker 1 */
    assert_ptr_equal(weir_pool_set(pool, 2), weir_pool_set(world.pool, 0));
    again = pool_open("q", 0);
    assert_picks(again, "dca");
    weir_pool_close(again);
    again = pool_open("d", 0);
    assert_ptr_equal(weir_pool_set(again, 0), weir_pool_set(pool, 0));
    weir_pool_close(again);
    weir_pool_close(pool);
    again = pool_open("q", 0); /* the definition stays when its handles go */
    weir_pool_close(again);
    world_close();
}

static void a_pool_in_code_without_sets_holds_one_empty_set(void **state)
{
    struct weir_pool_spec spec = {.size = sizeof(spec), .name = "q", .worker = WEIR_WORKER_AUTO};
    weir_pool *pool = NULL;
    weir_acquisition *a;

    (void)state;
    world_open(POOL(""), "p");
    assert_int_equal(weir_pool_new(&pool, world.w, &spec, NULL), 0);
    assert_int_equal(weir_pool_sets(pool), 1);
    assert_int_equal(weir_try_acquire(pool, ASK({"k", 9}), &a, NULL), 0);
    release(a);
    weir_pool_close(pool);
    world_close();
}

static void the_same_pool_in_code_as_in_text(void **state)
{
    static const struct weir_setting burst = {"burst", "2"};
    struct weir_limit_spec limits[] = {
        {.size = sizeof(*limits),
         .type = WEIR_LIMIT_RATE,
         .key = "tokens",
         .algorithm = "gcra",
         .capacity = 10,
         .window_ns = 10 * SECOND,
         .settings = &burst,
         .settings_n = 1,
         .refund = WEIR_NO,
         .charge_overuse = WEIR_YES},
        {.size = sizeof(*limits),
         .type = WEIR_LIMIT_CALL,
         .algorithm = "token_bucket",
         .capacity = 5,
         .window_ns = 5 * SECOND},
    };
    struct weir_set_spec set = {.size = sizeof(set),
                                .name = "d",
                                .limits = limits,
                                .limits_n = 2,
                                .timeout_ns = 7,
                                .max_waiters = 1,
                                .flags = WEIR_SET_STRICT | WEIR_SET_UNFAIR};
    struct weir_pool_spec spec = {.size = sizeof(spec), .sets = &set, .sets_n = 1};
    weir_pool *pool = NULL;
    weir_acquisition *a = NULL, *b = NULL;

    (void)state;
    world_open(POOL(""), "p");
    assert_int_equal(weir_pool_new(&pool, world.w, &spec, NULL), 0);
    weir_pool_close(world.pool);
    world.pool = pool;
    world.set = weir_pool_set(pool, 0);
    assert_int_equal(try_acquire(ASK({"unknown", 1}), &a), -ENOENT);
    assert_int_equal(take(ASK({"tokens", 3})), -ERANGE);
    a = granted(ASK({"tokens", 1}));
    assert_int_equal(weir_update(a, "tokens", 0), 0);
    release(a);
    assert_int_equal(available(0), 1); /* no refund */
    a = pending(ASK({"tokens", 2}));
    assert_int_equal(submit(ASK({"tokens", 2}), &b), -ENOBUFS);
    assert_int_equal(take(ASK({"tokens", 1})), 0); /* barges */
    advance(7);
    assert_int_equal(weir_acquisition_result(a), -ETIMEDOUT);
    release(a);
    world_close();
}

static void defining_a_pool_is_all_or_nothing(void **state)
{
    static const struct weir_limit_spec no_such = {
        .size = sizeof(no_such), .type = WEIR_LIMIT_CALL, .algorithm = "absent", .capacity = 1};
    static const struct weir_limit_spec no_key = {
        .size = sizeof(no_key), .type = WEIR_LIMIT_RESOURCE, .capacity = 1};
    static const struct weir_set_spec bad_plugin[] = {
        {.size = sizeof(*bad_plugin), .name = "d", .limits = &one_slot, .limits_n = 1},
        {.size = sizeof(*bad_plugin), .name = "e", .limits = &no_such, .limits_n = 1}};
    static const struct weir_set_spec bad_limit[] = {
        {.size = sizeof(*bad_limit), .name = "d", .limits = &one_slot, .limits_n = 1},
        {.size = sizeof(*bad_limit), .name = "e", .limits = &no_key, .limits_n = 1}};
    static const struct weir_set_spec taken[] = {
        {.size = sizeof(*taken), .name = "d"},
        {.size = sizeof(*taken), .name = "a"},
    };
    static const char *const missing[] = {"z"};
    const struct weir_pool_spec specs[] = {
        {.size = sizeof(*specs), .name = "q", .sets = bad_plugin, .sets_n = 2},
        {.size = sizeof(*specs), .name = "q", .sets = bad_limit, .sets_n = 2},
        {.size = sizeof(*specs), .name = "q", .sets = taken, .sets_n = 2},
        {.size = sizeof(*specs), .name = "p", .sets = &new_set, .sets_n = 1},
        {.size = sizeof(*specs),
         .name = "q",
         .sets = &new_set,
         .sets_n = 1,
         .set_names = missing,
         .set_names_n = 1},
        {.size = sizeof(*specs), .name = "q", .sets = &new_set, .sets_n = 1, .balancer = "absent"},
        {.size = sizeof(*specs) - 1, .name = "q", .sets = &new_set, .sets_n = 1},
    };
    static const int codes[] = {-ENOENT, -EINVAL, -EEXIST, -EEXIST, -ENOENT, -ENOENT, -EINVAL};
    const struct weir_pool_spec right = {
        .size = sizeof(right), .name = "q", .sets = &new_set, .sets_n = 1};
    weir_pool *pool = NULL;

    (void)state;
    world_open(POOL(""), "p");
    for (size_t i = 0; i < sizeof(specs) / sizeof(*specs); i++) {
        struct weir_error error = {0};

        assert_int_equal(weir_pool_new(&pool, world.w, &specs[i], &error), codes[i]);
        assert_int_equal(error.code, codes[i]);
        assert_true(strlen(error.message) > 0);
        assert_null(pool);
        assert_int_equal(weir_pool_open(&pool, world.w, "q", 0, NULL), -ENOENT);
        assert_int_equal(weir_pool_open(&pool, world.w, "d", 0, NULL), -ENOENT);
        assert_int_equal(weir_pool_open(&pool, world.w, "e", 0, NULL), -ENOENT);
    }
    assert_int_equal(weir_pool_new(&pool, world.w, &right, NULL), 0);
    assert_picks(pool, "dd");
    weir_pool_close(pool);
    pool = NULL;
    assert_int_equal(weir_pool_new(&pool, world.w, NULL, NULL), -EINVAL);
    assert_int_equal(weir_pool_new(&pool, NULL, &right, NULL), -EINVAL);
    assert_int_equal(weir_pool_new(NULL, world.w, &right, NULL), -EINVAL);
    world_close();
}

static void a_pool_handle_may_be_closed_before_its_acquisitions(void **state)
{
    weir_acquisition *a, *b;

    (void)state;
    world_limits("{ type: resource, key: r, capacity: 1 }");
    a = granted(NULL);
    b = pending(NULL);
    world.pool = weir_pool_close(world.pool);
    assert_null(world.pool);
    assert_null(weir_pool_close(NULL));
    release(a);
    assert_int_equal(weir_acquisition_result(b), 0);
    release(b);
    world_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(round_robin_is_the_default),
        leak_checked_test(the_ith_pick_of_worker_w_is_i_plus_w_mod_n),
        leak_checked_test(each_handle_has_a_balancer_of_its_own),
        leak_checked_test(a_refused_try_counts_as_a_pick),
        leak_checked_test(the_picked_set_does_all_the_waiting),
        leak_checked_test(random_is_seedable),
        leak_checked_test(random_takes_the_instances_seed_without_its_own),
        leak_checked_test(random_is_uniform),
        leak_checked_test(the_worker_index_may_come_from_a_counter_of_the_pool),
        leak_checked_test(sets_of_a_pool_may_have_different_keys),
        leak_checked_test(sets_are_addressed_by_index),
        leak_checked_test(a_sets_name_opens_as_a_pool_of_that_set),
        leak_checked_test(an_unknown_name_is_enoent),
        leak_checked_test(sets_and_pools_share_one_namespace),
        leak_checked_test(a_pool_that_names_a_missing_set_is_a_configuration_error),
        leak_checked_test(a_pool_without_sets_holds_one_empty_set),
        leak_checked_test(without_any_configuration_every_name_opens_one_empty_set),
        leak_checked_test(an_empty_set_grants_everything),
        leak_checked_test(a_strict_request_to_an_empty_set_is_enoent),
        leak_checked_test(a_balancer_that_answers_out_of_range_is_reported_once),
        leak_checked_test(a_balancer_sees_holders_and_waiters),
        leak_checked_test(a_balancer_sees_when_each_set_would_grant),
        leak_checked_test(a_balancer_sees_the_route),
        leak_checked_test(a_pool_in_code_has_new_sets_then_existing_ones),
        leak_checked_test(a_pool_in_code_without_sets_holds_one_empty_set),
        leak_checked_test(the_same_pool_in_code_as_in_text),
        leak_checked_test(defining_a_pool_is_all_or_nothing),
        leak_checked_test(a_pool_handle_may_be_closed_before_its_acquisitions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
