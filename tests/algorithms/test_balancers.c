/* SPDX-License-Identifier: MIT */
/* round_robin follows its formula; random is uniform; the others, by views made up here. */
#include "cmocka_all.h"
#include "lib/random.h"
#include "subject.h"
#include <errno.h>

static const struct weir_balancer *balancer(const char *name)
{
    return plugin_load(name)->ops;
}

static uint32_t pick(const struct weir_balancer *ops, uint64_t *state, uint32_t sets_n,
                     uint32_t worker, uint64_t bits)
{
    struct weir_pick request = {
        .size = sizeof(request), .random = bits, .worker = worker, .sets_n = sets_n};
    uint32_t index = ops->pick(NULL, state, &request);
    assert_true(index < sets_n);
    return index;
}

static void test_round_robin_sequence(void **state)
{
    (void)state;
    const struct weir_balancer *ops = balancer("round_robin");
    struct weir_footprint footprint = {.size = sizeof(footprint)};
    struct weir_reason reason = {.size = sizeof(reason)};
    const struct weir_setup setup = {
        .size = sizeof(setup), .abi_minor = WEIR_PLUGIN_ABI_MINOR, .sets_n = 3};
    assert_int_equal(ops->configure(&setup, NULL, &footprint, &reason), 0);
    assert_int_equal(footprint.config, 0);
    assert_int_equal(footprint.state, 8);
    static const uint32_t workers[] = {0, 1, 2, 7, 4294967295};
    for (size_t w = 0; w < sizeof(workers) / sizeof(workers[0]); w++)
        for (uint32_t n = 1; n < 20; n++) {
            uint64_t memory = 0;
            for (uint64_t i = 0; i < 100; i++)
                assert_int_equal(pick(ops, &memory, n, workers[w], 99), (i + workers[w]) % n);
        }
}

static void test_random_covers_the_range(void **state)
{
    (void)state;
    const struct weir_balancer *ops = balancer("random");
    assert_null(ops->configure);
    for (uint32_t n = 1; n < 100; n++) {
        assert_int_equal(pick(ops, NULL, n, 0, 0), 0);
        assert_int_equal(pick(ops, NULL, n, 0, UINT64_MAX), n - 1);
    }
    assert_int_equal(pick(ops, NULL, 2, 0, (UINT64_C(1) << 63) - 1), 0);
    assert_int_equal(pick(ops, NULL, 2, 0, UINT64_C(1) << 63), 1);
    assert_int_equal(pick(ops, NULL, UINT32_MAX, 0, UINT64_MAX), UINT32_MAX - 1);
}

/* Chi-square with 9 degrees of freedom: above 27.9 once in 1000 seeds; this one is fixed. */
static void test_random_is_uniform(void **state)
{
    (void)state;
    enum { SETS = 10, PICKS = 100000, EACH = PICKS / SETS };
    const struct weir_balancer *ops = balancer("random");
    uint64_t rng = 20260101;
    int64_t counts[SETS] = {0}, squares = 0;
    for (int i = 0; i < PICKS; i++)
        counts[pick(ops, NULL, SETS, 0, random_next(&rng))]++;
    for (int i = 0; i < SETS; i++)
        squares += (counts[i] - EACH) * (counts[i] - EACH);
    assert_true(squares < (int64_t)28 * EACH);
}

/* ---- balancers that look ---- */

enum { SETS_MAX = 8, NOW = 1000 };

/* A pool of sets as a balancer sees it: looks fill `views` from `truth`. */
struct scene {
    const struct weir_balancer *ops;
    void *config;
    uint64_t state[SETS_MAX];
    uint32_t n, attempt, looks_n;
    uint64_t random, route;
    struct weir_set_view truth[SETS_MAX], views[SETS_MAX];
};

static struct weir_pick scene_pick(const struct scene *scene)
{
    return (struct weir_pick){.size = sizeof(struct weir_pick),
                              .now_ns = NOW,
                              .random = scene->random,
                              .route = scene->route,
                              .sets_n = scene->n,
                              .views = scene->views,
                              .view_size = sizeof(scene->views[0]),
                              .attempt = scene->attempt};
}

/* Sets without load. */
static struct scene scene_of(const char *name, uint32_t n)
{
    struct scene scene = {.ops = balancer(name), .n = n};
    for (uint32_t i = 0; i < n; i++)
        scene.truth[i] = (struct weir_set_view){.id = i * UINT64_C(7919) + 1,
                                                .weight = 1,
                                                .ready_at_ns = NOW,
                                                .capacity = 10,
                                                .available = 10};
    return scene;
}

/* One pick, as the core does it. */
static uint32_t scene_ask(struct scene *scene)
{
    struct weir_pick pick = scene_pick(scene);
    uint32_t index, all = scene->ops->flags & WEIR_BALANCER_VIEWS ? WEIR_VIEW_LIVE : 0;
    scene->looks_n = 0;
    for (uint32_t i = 0; i < scene->n; i++) {
        scene->views[i] = (struct weir_set_view){.id = scene->truth[i].id,
                                                 .weight = scene->truth[i].weight,
                                                 .flags = scene->truth[i].flags};
        if (all)
            scene->views[i] = scene->truth[i];
        scene->views[i].flags |= all;
    }
    while ((index = scene->ops->pick(scene->config, scene->state, &pick)) & WEIR_PICK_LOOK) {
        index &= ~WEIR_PICK_LOOK;
        assert_true(index < scene->n && !(scene->views[index].flags & WEIR_VIEW_LIVE));
        scene->views[index] = scene->truth[index];
        scene->views[index].flags |= WEIR_VIEW_LIVE;
        scene->looks_n++;
    }
    assert_true(index < scene->n);
    return index;
}

/* After `tried` sets have refused, the next ones are others, each once. */
static void assert_ranks_all(struct scene *scene, uint64_t *rng)
{
    for (scene->attempt = 0; scene->attempt < scene->n; scene->attempt++) {
        scene->random = random_next(rng);
        uint32_t index = scene_ask(scene);
        assert_false(scene->truth[index].flags & WEIR_VIEW_TRIED);
        scene->truth[index].flags |= WEIR_VIEW_TRIED;
    }
}

static void test_all_are_ranked(void **state)
{
    static const char *const names[] = {"least_loaded", "power_of_two", "soonest", "weighted",
                                        "hash"};
    uint64_t rng = 7;
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        for (int turn = 0; turn < 50; turn++) {
            struct scene scene = scene_of(names[i], 1 + (uint32_t)turn % SETS_MAX);
            scene.route = random_next(&rng);
            assert_ranks_all(&scene, &rng);
        }
}

static void test_weighted_spreads_evenly(void **state)
{
    struct scene scene = scene_of("weighted", 3);
    char got[15] = {0};
    (void)state;
    scene.truth[0].weight = 5;
    for (int i = 0; i < 14; i++) /* as nginx does */
        got[i] = (char)('a' + scene_ask(&scene));
    assert_string_equal(got, "aabacaaaabacaa");
    assert_int_equal(scene.looks_n, 0);
    scene.attempt = 1; /* another choice leaves the sequence as it is */
    scene.truth[0].flags = WEIR_VIEW_TRIED;
    scene_ask(&scene);
    scene.attempt = 0;
    scene.truth[0].flags = 0;
    for (int i = 0; i < 14; i++)
        got[i] = (char)('a' + scene_ask(&scene));
    assert_string_equal(got, "aabacaaaabacaa");
}

/* Any run of `total` picks has each set as often as its weight. */
static void test_weighted_is_exact(void **state)
{
    uint64_t rng = 3;
    (void)state;
    for (int turn = 0; turn < 100; turn++) {
        struct scene scene = scene_of("weighted", 1 + (uint32_t)(random_next(&rng) % SETS_MAX));
        uint64_t total = 0, got[SETS_MAX] = {0};
        for (uint32_t i = 0; i < scene.n; i++)
            total += scene.truth[i].weight = 1 + random_next(&rng) % 20;
        for (uint64_t i = 0; i < 3 * total; i++)
            got[scene_ask(&scene)]++;
        for (uint32_t i = 0; i < scene.n; i++)
            assert_int_equal(got[i], 3 * scene.truth[i].weight);
    }
}

static void test_workers_start_apart(void **state)
{
    (void)state;
    for (uint32_t worker = 0; worker < 6; worker++) {
        struct scene scene = scene_of("weighted", 3);
        for (uint32_t i = 0; i < 3; i++)
            scene.views[i] = scene.truth[i];
        struct weir_pick first = scene_pick(&scene);
        first.worker = worker;
        scene.ops->init(NULL, scene.state, &first);
        assert_int_equal(scene_ask(&scene), worker % 3);
    }
}

static void test_least_loaded_compares_parts(void **state)
{
    struct scene scene = scene_of("least_loaded", 4);
    uint64_t rng = 1;
    (void)state;
    scene.truth[0].available = 4;                /* of 10 */
    scene.truth[1].capacity = UINT64_C(1) << 60; /* three quarters are free */
    scene.truth[1].available = UINT64_C(3) << 58;
    scene.truth[2].capacity = scene.truth[2].available = 1;
    scene.truth[2].ready_at_ns = WEIR_BLOCKED; /* free, but there are waiters */
    scene.truth[3].ready_at_ns = WEIR_NEVER;
    for (int i = 0; i < 20; i++) {
        scene.random = random_next(&rng);
        assert_int_equal(scene_ask(&scene), 1);
    }
    scene.truth[0].weight = 3; /* 6/10 of a third of the size is less than 1/4 */
    assert_int_equal(scene_ask(&scene), 0);
    scene.truth[0].ready_at_ns = scene.truth[1].ready_at_ns = WEIR_BLOCKED;
    scene.truth[0].waiting = 2;
    scene.truth[1].waiting = 1;
    scene.truth[2].waiting = 3;
    assert_int_equal(scene_ask(&scene), 0); /* 2 waiters at a weight of 3 */
    scene.truth[0].weight = 1;
    assert_int_equal(scene_ask(&scene), 1);
}

static void test_equal_sets_are_equally_likely(void **state)
{
    static const char *const names[] = {"least_loaded", "power_of_two", "soonest"};
    uint64_t rng = 20260101;
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct scene scene = scene_of(names[i], 5);
        int got[5] = {0};
        for (int pick = 0; pick < 5000; pick++) {
            scene.random = random_next(&rng);
            got[scene_ask(&scene)]++;
        }
        for (int set = 0; set < 5; set++) /* five standard deviations; the seed is fixed */
            assert_in_range(got[set], 860, 1140);
    }
}

static void test_power_of_two_looks_at_two(void **state)
{
    uint64_t rng = 5;
    uint32_t pairs = 0;
    (void)state;
    for (int turn = 0; turn < 500; turn++) {
        struct scene scene = scene_of("power_of_two", 4);
        uint32_t seen = 0;
        for (uint32_t i = 0; i < 4; i++)
            scene.truth[i].available = i; /* the last one is the least loaded */
        scene.random = random_next(&rng);
        uint32_t index = scene_ask(&scene);
        assert_int_equal(scene.looks_n, 2);
        for (uint32_t i = 0; i < 4; i++)
            seen |= (uint32_t)((scene.views[i].flags & WEIR_VIEW_LIVE) != 0) << i;
        assert_int_equal(index, 31 - __builtin_clz(seen));
        pairs |= 1u << seen;
    }
    assert_int_equal(__builtin_popcount(pairs), 6); /* all pairs of four */
}

static void test_soonest(void **state)
{
    struct scene scene = scene_of("soonest", 4);
    (void)state;
    scene.truth[0].ready_at_ns = NOW + 5;
    scene.truth[1].ready_at_ns = NOW + 2;
    scene.truth[2].ready_at_ns = WEIR_BLOCKED;
    scene.truth[3].ready_at_ns = NOW + 2;
    scene.truth[3].waiting = 1;
    for (uint64_t i = 0; i < 8; i++) {
        scene.random = i << 29;
        assert_int_equal(scene_ask(&scene), 1);
    }
}

/* ---- failover ---- */

struct failover {
    uint64_t patience_ns, rest_ns; /* as the balancer's configuration has them */
};

static void failover_configure(struct scene *scene, struct failover *memory, uint64_t patience_ns,
                               uint64_t rest_ns)
{
    const struct weir_value patience = {.size = sizeof(patience), .value = patience_ns};
    const struct weir_value rest = {.size = sizeof(rest), .value = rest_ns};
    const struct weir_value *const values[] = {&patience, &rest};
    const struct weir_setup setup = {.size = sizeof(setup), .sets_n = scene->n, .values = values};
    struct weir_footprint footprint = {.size = sizeof(footprint)};
    struct weir_reason reason = {.size = sizeof(reason)};
    assert_int_equal(scene->ops->configure(&setup, memory, &footprint, &reason), 0);
    assert_int_equal(footprint.config, sizeof(*memory));
    assert_int_equal(footprint.state, scene->n * sizeof(uint64_t));
    scene->config = memory;
}

static void test_failover_keeps_the_order(void **state)
{
    struct scene scene = scene_of("failover", 3);
    struct failover config;
    uint64_t rng = 2;
    (void)state;
    failover_configure(&scene, &config, 0, 0);
    assert_int_equal(scene_ask(&scene), 0);
    assert_int_equal(scene.looks_n, 1); /* no further than it has to */
    scene.truth[0].ready_at_ns = NOW + 1;
    assert_int_equal(scene_ask(&scene), 1);
    assert_int_equal(scene.looks_n, 2);
    scene.truth[1].ready_at_ns = WEIR_BLOCKED;
    scene.truth[2].ready_at_ns = NOW + 3;
    assert_int_equal(scene_ask(&scene), 0); /* none is ready: the soonest */
    scene.truth[0].ready_at_ns = NOW + 4;
    assert_int_equal(scene_ask(&scene), 2);
    failover_configure(&scene, &config, 4, 0);
    assert_int_equal(scene_ask(&scene), 0); /* not too far */
    scene.truth[0].ready_at_ns = NOW + 5;
    assert_int_equal(scene_ask(&scene), 2);
    failover_configure(&scene, &config, WEIR_CLOCK_MAX, 0);
    scene.truth[0].ready_at_ns = WEIR_BLOCKED;
    assert_int_equal(scene_ask(&scene), 2);
    assert_ranks_all(&scene, &rng);
}

static void test_failover_lets_a_broken_set_rest(void **state)
{
    struct scene scene = scene_of("failover", 3);
    struct failover config;
    struct weir_pick_outcome outcome = {
        .size = sizeof(outcome), .now_ns = NOW - 5, .result = -EAGAIN};
    (void)state;
    failover_configure(&scene, &config, 0, 6);
    scene.ops->outcome(&config, scene.state, &outcome); /* it is only short */
    assert_int_equal(scene_ask(&scene), 0);
    outcome.result = -EHOSTUNREACH;
    scene.ops->outcome(&config, scene.state, &outcome);
    assert_int_equal(scene_ask(&scene), 1);
    for (outcome.index = 1; outcome.index < 3; outcome.index++)
        scene.ops->outcome(&config, scene.state, &outcome);
    assert_int_equal(scene_ask(&scene), 0); /* all rest: the first */
    outcome.now_ns = NOW - 6;
    outcome.index = 1;
    scene.ops->outcome(&config, scene.state, &outcome);
    assert_int_equal(scene_ask(&scene), 1); /* it has rested */
}

/* ---- hash ---- */

static void test_hash_moves_no_other_route(void **state)
{
    enum { ROUTES = 4000 };
    struct scene five = scene_of("hash", 5), four = scene_of("hash", 5);
    uint32_t moved = 0;
    uint64_t rng = 11;
    (void)state;
    four.n = 4;
    four.truth[2] = four.truth[4]; /* the third set went; the last one has its place now */
    for (int i = 0; i < ROUTES; i++) {
        five.route = four.route = random_next(&rng) | 1;
        uint32_t before = scene_ask(&five), after = scene_ask(&four);
        assert_int_equal(scene_ask(&five), before);
        if (before == 2)
            moved++;
        else
            assert_int_equal(four.truth[after].id, five.truth[before].id);
    }
    assert_in_range(moved, ROUTES / 5 - 130, ROUTES / 5 + 130); /* five standard deviations */
}

static void test_hash_follows_weights(void **state)
{
    enum { ROUTES = 60000 };
    struct scene scene = scene_of("hash", 4);
    uint64_t got[4] = {0}, rng = 12;
    static const uint64_t weights[4] = {1, 2, 3, 6};
    (void)state;
    for (int i = 0; i < 4; i++)
        scene.truth[i].weight = weights[i];
    for (int i = 0; i < ROUTES; i++) {
        scene.route = i % 2 ? random_next(&rng) | 1 : 0; /* without a route: by the randomness */
        scene.random = random_next(&rng);
        got[scene_ask(&scene)]++;
    }
    for (int i = 0; i < 4; i++) /* about five standard deviations, at most 122 */
        assert_in_range(got[i], ROUTES / 12 * weights[i] - 600, ROUTES / 12 * weights[i] + 600);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_robin_sequence),
        cmocka_unit_test(test_random_covers_the_range),
        cmocka_unit_test(test_random_is_uniform),
        cmocka_unit_test(test_all_are_ranked),
        cmocka_unit_test(test_weighted_spreads_evenly),
        cmocka_unit_test(test_weighted_is_exact),
        cmocka_unit_test(test_workers_start_apart),
        cmocka_unit_test(test_least_loaded_compares_parts),
        cmocka_unit_test(test_equal_sets_are_equally_likely),
        cmocka_unit_test(test_power_of_two_looks_at_two),
        cmocka_unit_test(test_soonest),
        cmocka_unit_test(test_failover_keeps_the_order),
        cmocka_unit_test(test_failover_lets_a_broken_set_rest),
        cmocka_unit_test(test_hash_moves_no_other_route),
        cmocka_unit_test(test_hash_follows_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
