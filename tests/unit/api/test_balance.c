/* SPDX-License-Identifier: MIT */
/* What balancers see of the sets and hear of their picks, and tries that go on to the next set. */
#include "lib/world.h"
#include "unit/mirror.h"
#include <weir/algorithm.h>

/* Three sets of a resource each, and a pool over them with these fields. */
#define SLOTS(n) "{ limits: [ { type: resource, key: r, capacity: " #n " } ] }"
#define THREE(a, b, c, fields)                                                                     \
    "version: 1\nsets: { a: " SLOTS(a) ", b: " SLOTS(b) ", c: " SLOTS(                             \
        c) " }\npools: { p: { sets: [a, b, c], " fields " } }\n"

static struct mirror mirror;

static struct weir_request *mirrored(struct weir_request *request)
{
    request->route = (uint64_t)(uintptr_t)&mirror;
    return request;
}

/* Has the mirror answer this from now on, call after call. */
#define ANSWERS(...)                                                                               \
    do {                                                                                           \
        mirror = (struct mirror){.answers = {__VA_ARGS__}};                                        \
    } while (0)

/* Takes a unit of one set behind the back of the pool. */
static weir_acquisition *hold(const char *set, uint64_t amount)
{
    weir_pool *pool = pool_open(set, 0);
    weir_acquisition *a = NULL;

    assert_int_equal(weir_try_acquire(pool, ASK({"r", amount}), &a, NULL), 0);
    settle();
    weir_pool_close(pool);
    return a;
}

/* ---- views ---- */

static void a_view_says_what_a_resource_has(void **state)
{
    static const uint64_t capacities[] = {4, 2, 8};
    weir_acquisition *held;

    (void)state;
    world_open(THREE(4, 2, 8, "balancer: mirror_views"), "p");
    held = hold("a", 3);
    ANSWERS(2);
    release(granted(mirrored(ASK({"r", 1}))));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(mirror.views[i].flags, WEIR_VIEW_LIVE);
        assert_int_equal(mirror.views[i].weight, 1);
        assert_int_equal(mirror.views[i].capacity, capacities[i]);
        assert_int_equal(mirror.views[i].waiting, 0);
        assert_int_equal(mirror.views[i].ready_at_ns, mirror.pick.now_ns);
    }
    if (!backend->is_remote)
        assert_int_equal(mirror.views[0].held, 3);
    assert_int_equal(mirror.views[0].available + mirror.views[0].held, 4);
    assert_int_equal(mirror.views[1].held, 0);
    assert_int_equal(mirror.views[1].available, 2);
    release(held);
    world_close();
}

static void a_resource_that_is_short_reads_blocked(void **state)
{
    weir_acquisition *held;

    (void)state;
    if (backend->is_remote)
        skip_because("a look asks no engine");
    world_open(THREE(4, 2, 8, "balancer: mirror_views"), "p");
    held = hold("a", 3);
    ANSWERS(2, 2, 2);
    release(granted(mirrored(ASK({"r", 2}))));
    assert_int_equal(mirror.views[0].ready_at_ns, WEIR_BLOCKED);
    assert_int_equal(mirror.views[1].ready_at_ns, mirror.pick.now_ns);
    release(granted(mirrored(ASK({"r", 3}))));
    assert_int_equal(mirror.views[1].ready_at_ns, WEIR_NEVER); /* it has 2 */
    assert_int_equal(mirror.views[1].available, 0);
    release(held);
    release(granted(mirrored(ASK({"r", 2}))));
    assert_int_equal(mirror.views[0].ready_at_ns, mirror.pick.now_ns);
    world_close();
}

static void what_waits_ahead_blocks(void **state)
{
    weir_acquisition *held, *waiter;

    (void)state;
    if (backend->is_remote)
        skip_because("a look asks no engine");
    world_open(THREE(4, 2, 8, "balancer: mirror_views"), "p");
    held = hold("a", 3);
    ANSWERS(0, 2, 2);
    waiter = pending(mirrored(ASK({"r", 2})));
    release(granted(mirrored(ASK({"r", 1}))));
    assert_int_equal(mirror.views[0].waiting, 1);
    assert_int_equal(mirror.views[0].available, 1); /* but the waiter is first */
    assert_int_equal(mirror.views[0].ready_at_ns, WEIR_BLOCKED);
    release(granted(mirrored(ASK({"r", 0}))));
    assert_int_equal(mirror.views[0].ready_at_ns, mirror.pick.now_ns); /* nothing need not wait */
    assert_true(mirror.views[0].capacity == UINT64_MAX);
    release(waiter);
    release(held);
    world_close();
}

#define RATE(n)                                                                                    \
    "{ limits: [ { type: rate, key: k, algorithm: gcra, capacity: " #n ", window: 10s } ] }"

static void a_rate_is_never_ready_before_now(void **state)
{
    (void)state;
    if (backend->is_remote)
        skip_because("a look asks no engine");
    world_open("version: 1\nsets: { a: " RATE(10) ", b: " RATE(
                   5) " }\npools: { p: { sets: [a, b], balancer: mirror_views } }\n",
               "p");
    for (int turn = 0; turn < 3; turn++) {
        ANSWERS(0, 1);
        assert_int_equal(take(mirrored(ASK({"k", 10}))), 0);
        assert_int_equal(take(mirrored(ASK({"k", 1}))), 0);
        assert_int_equal(mirror.views[0].ready_at_ns, mirror.pick.now_ns + SECOND);
        assert_int_equal(mirror.views[0].available, 0);
        assert_int_equal(mirror.views[0].held, 0);
        assert_int_equal(mirror.views[0].capacity, 10);
        assert_int_equal(mirror.views[1].ready_at_ns, mirror.pick.now_ns);
        advance(15 * SECOND);
    }
    world_close();
}

static void a_view_is_of_the_scarcest_limit_that_is_asked_for(void **state)
{
    weir_acquisition *held;

    (void)state;
    if (backend->is_remote)
        skip_because("a look asks no engine");
    world_open("version: 1\nsets: { a: { limits: [\n"
               "  { type: resource, key: r, capacity: 10 },\n"
               "  { type: resource, key: s, capacity: 4 },\n"
               "  { type: resource, key: t, capacity: 2 } ] }, b: {} }\n"
               "pools: { p: { sets: [a, b], balancer: mirror_views } }\n",
               "p");
    ANSWERS(0);
    held = granted(mirrored(ASK({"r", 5}, {"s", 3}, {"t", 2})));
    release(granted(mirrored(ASK({"r", 1}, {"s", 1}, {"t", 0}))));
    assert_int_equal(mirror.views[0].capacity, 4);
    assert_int_equal(mirror.views[0].held, 3);
    assert_int_equal(mirror.views[0].available, 1);
    assert_true(mirror.views[1].capacity == UINT64_MAX && mirror.views[1].available == UINT64_MAX);
    assert_int_equal(mirror.views[1].ready_at_ns, mirror.pick.now_ns);
    release(held);
    world_close();
}

/* `a` by its limits in shadow is full, and would grant at once; `b` is also full by another one. */
static void a_view_sees_limits_in_shadow(void **state)
{
    weir_acquisition *held, *other;

    (void)state;
    if (backend->is_remote)
        skip_because("there are no limits in shadow");
    world_open("version: 1\nsets: { a: { limits: [\n"
               "  { type: resource, key: r, capacity: 4, shadow: true } ] }, b: { limits: [\n"
               "  { type: resource, key: r, capacity: 4, shadow: true },\n"
               "  { type: resource, key: s, capacity: 1 } ] } }\n"
               "pools: { p: { sets: [a, b], balancer: mirror_views } }\n",
               "p");
    ANSWERS(0, 1, 0);
    held = granted(mirrored(ASK({"r", 4}, {"s", 1})));
    other = granted(mirrored(ASK({"r", 3}, {"s", 1})));
    release(granted(mirrored(ASK({"r", 1}, {"s", 1}))));
    assert_int_equal(mirror.views[0].capacity, 4);
    assert_int_equal(mirror.views[0].held, 4);
    assert_int_equal(mirror.views[0].available, 0);
    assert_int_equal(mirror.views[0].ready_at_ns, mirror.pick.now_ns);
    assert_int_equal(mirror.views[1].capacity, 1);
    assert_int_equal(mirror.views[1].available, 0);
    assert_int_equal(mirror.views[1].ready_at_ns, WEIR_BLOCKED);
    release(other);
    release(held);
    world_close();
}

static void ids_are_of_names(void **state)
{
    (void)state;
    world_open(THREE(1, 1, 1, "balancer: mirror_looks"), "p");
    ANSWERS(0);
    release(granted(mirrored(ASK_DEFAULTS)));
    /* Written down: they are the same in each process, and stay the same from version to version.
     */
    assert_true(mirror.views[0].id == UINT64_C(0x5f29c2aadd9b8527));
    assert_true(mirror.views[1].id == UINT64_C(0x56f6a47e30923664));
    world_close();
}

/* ---- looks ---- */

static void only_what_is_asked_for_is_looked_at(void **state)
{
    (void)state;
    world_open(THREE(4, 2, 8, "balancer: mirror_looks"), "p");
    ANSWERS(1 | WEIR_PICK_LOOK, 2 | WEIR_PICK_LOOK, 2, 0);
    release(granted(mirrored(ASK_DEFAULTS)));
    assert_int_equal(mirror.picks_n, 3);
    assert_int_equal(mirror.views[0].flags, 0);
    assert_int_equal(mirror.views[0].capacity, 0);
    assert_int_equal(mirror.views[0].weight, 1);
    assert_int_equal(mirror.views[1].flags, WEIR_VIEW_LIVE);
    assert_int_equal(mirror.views[1].capacity, 2);
    assert_int_equal(mirror.views[2].capacity, 8);
    release(granted(mirrored(ASK_DEFAULTS)));
    for (int i = 0; i < 3; i++) { /* what was seen is forgotten */
        assert_int_equal(mirror.views[i].flags, 0);
        assert_int_equal(mirror.views[i].capacity + mirror.views[i].held, 0);
    }
    world_close();
}

static void looks_stay_of_one_pick(void **state)
{
    uint64_t random;

    (void)state;
    world_open(THREE(4, 2, 8, "balancer: mirror_looks"), "p");
    ANSWERS(1 | WEIR_PICK_LOOK, 1, 0);
    release(granted(mirrored(ASK_DEFAULTS)));
    random = mirror.pick.random;
    mirror.picks_n = 0;
    mirror.answers[0] = 0;
    release(granted(mirrored(ASK_DEFAULTS)));
    assert_true(random != mirror.pick.random);
    world_close();
}

static void a_look_that_cannot_be_is_an_invalid_pick(void **state)
{
    static const char *const balancers[] = {"mirror_looks", "mirror_looks", "mirror_blind",
                                            "mirror_views"};
    static const uint32_t looks[] = {3 | WEIR_PICK_LOOK, WEIR_PICK_NONE, WEIR_PICK_LOOK,
                                     WEIR_PICK_LOOK};
    char text[512];

    (void)state;
    for (int i = 0; i < 4; i++) {
        snprintf(text, sizeof(text), THREE(4, 2, 8, "balancer: %s"), balancers[i]);
        world_open(text, "p");
        ANSWERS(looks[i], looks[i]);
        release(granted(mirrored(ASK_DEFAULTS)));
        assert_int_equal(mirror.picks_n, 1);
        assert_int_equal(world.logged, 1);
        release(granted(mirrored(ASK_DEFAULTS)));
        assert_int_equal(world.logged, 1);
        world_close();
    }
    world_open(THREE(4, 2, 8, "balancer: mirror_looks"), "p");
    ANSWERS(1 | WEIR_PICK_LOOK, 1 | WEIR_PICK_LOOK, 0); /* twice */
    release(granted(mirrored(ASK_DEFAULTS)));
    assert_int_equal(mirror.picks_n, 2);
    assert_int_equal(world.logged, 1);
    world_close();
}

/* ---- outcomes ---- */

static void assert_outcome(uint32_t i, uint32_t index, int result)
{
    assert_true(i < mirror.outcomes_n);
    assert_int_equal(mirror.outcomes[i].size, sizeof(mirror.outcomes[i]));
    assert_int_equal(mirror.outcomes[i].index, index);
    assert_int_equal(mirror.outcomes[i].result, result);
}

static void a_balancer_hears_of_its_picks(void **state)
{
    weir_acquisition *held, *none = NULL, *waiter;

    (void)state;
    world_open(THREE(1, 2, 8, "balancer: mirror_blind"), "p");
    ANSWERS(0, 0, 1, 0);
    held = granted(mirrored(ASK_DEFAULTS));
    assert_int_equal(try_acquire(mirrored(ASK_DEFAULTS), &none), -EAGAIN);
    assert_int_equal(try_acquire(mirrored(ASK({"r", 3})), &none), -ERANGE);
    waiter = pending(mirrored(ASK_DEFAULTS));
    assert_int_equal(mirror.outcomes_n, 4);
    assert_outcome(0, 0, 0);
    assert_outcome(1, 0, -EAGAIN);
    assert_outcome(2, 1, -ERANGE);
    assert_outcome(3, 0, 1);
    release(waiter);
    release(held);
    world_close();
}

/* ---- try: next ---- */

static const char *granted_by(struct weir_request *request)
{
    static char name[8];
    weir_acquisition *a = granted(request);

    snprintf(name, sizeof(name), "%s", weir_acquisition_set(a));
    release(a);
    return name;
}

static void a_try_goes_on_to_the_next_choice(void **state)
{
    weir_acquisition *a, *b, *none = NULL;

    (void)state;
    world_open(THREE(1, 1, 2, "balancer: mirror_ranks, try: next"), "p");
    a = hold("a", 1);
    b = hold("b", 1);
    ANSWERS(1, 0, 2);
    assert_string_equal(granted_by(mirrored(ASK_DEFAULTS)), "c");
    assert_int_equal(mirror.pick.attempt, 2);
    assert_int_equal(mirror.views[0].flags, WEIR_VIEW_TRIED);
    assert_int_equal(mirror.views[1].flags, WEIR_VIEW_TRIED);
    assert_int_equal(mirror.views[2].flags, 0);
    assert_outcome(0, 1, -EAGAIN);
    assert_outcome(1, 0, -EAGAIN);
    assert_outcome(2, 2, 0);
    ANSWERS(1, WEIR_PICK_NONE, 2); /* it wants no other */
    assert_int_equal(try_acquire(mirrored(ASK_DEFAULTS), &none), -EAGAIN);
    assert_int_equal(mirror.picks_n, 2);
    assert_string_equal(refusal.set, "b");
    ANSWERS(1, 1, 1); /* what was tried is replaced by the set behind it that was not */
    assert_string_equal(granted_by(mirrored(ASK_DEFAULTS)), "c");
    assert_int_equal(world.logged, 0);
    release(a);
    release(b);
    world_close();
}

static void others_follow_in_their_order_where_the_balancer_does_not_rank(void **state)
{
    weir_acquisition *a, *b, *c;

    (void)state;
    world_open(THREE(1, 1, 1, "try: next"), "p"); /* round_robin */
    b = hold("b", 1);
    c = hold("c", 1);
    assert_string_equal(granted_by(ASK_DEFAULTS), "a");
    assert_string_equal(granted_by(ASK_DEFAULTS), "a"); /* b, c, a */
    assert_string_equal(granted_by(ASK_DEFAULTS), "a"); /* c, a */
    release(b);
    a = hold("a", 1);
    assert_string_equal(granted_by(ASK_DEFAULTS), "b"); /* a, b: each request was one pick */
    release(a);
    release(c);
    world_close();
}

static void what_does_not_wait_for_a_grant_is_not_tried_again(void **state)
{
    weir_acquisition *a, *waiter, *none = NULL;

    (void)state;
    world_open(THREE(1, 1, 1, "balancer: mirror_ranks, try: next"), "p");
    a = hold("a", 1);
    ANSWERS(0, 1);
    waiter = pending(mirrored(ASK_DEFAULTS)); /* a submission waits where it was picked */
    assert_int_equal(mirror.picks_n, 1);
    assert_int_equal(try_acquire(strict(mirrored(ASK({"x", 1}))), &none), -ENOENT);
    assert_int_equal(mirror.picks_n, 2); /* an error of the request is one of all sets */
    release(waiter);
    release(a);
    world_close();
}

static void the_refusal_is_of_the_set_that_would_grant_first(void **state)
{
    (void)state;
    needs(HAS_EXACT_FORECASTS);
    world_open("version: 1\nsets: { a: " RATE(2) ", b: " RATE(10) ", c: " RATE(
                   5) " }\npools: { p: { sets: [a, b, c], try: next } }\n",
               "p");
    assert_int_equal(take(ASK({"k", 2})), 0);
    assert_int_equal(take(ASK({"k", 10})), 0);
    assert_int_equal(take(ASK({"k", 5})), 0);
    for (int i = 0; i < 3; i++) {
        refusal = (struct weir_refusal){.size = sizeof(refusal)};
        assert_int_equal(take(ASK({"k", 1})), -EAGAIN);
        assert_string_equal(refusal.set, "b");
        assert_int_equal(refusal.retry_after_ns, SECOND);
        assert_int_equal(refusal.size, sizeof(refusal));
    }
    assert_int_equal(take(ASK({"k", 9})), -EAGAIN); /* the others can never */
    assert_string_equal(refusal.set, "b");
    assert_int_equal(weir_take(world.pool, ASK({"k", 9}), NULL), -EAGAIN);
    assert_int_equal(take(ASK({"k", 11})), -ERANGE);
    advance(SECOND);
    assert_int_equal(take(ASK({"k", 1})), 0);
    world_close();
}

/* ---- the project's balancers ---- */

static void weights_are_those_of_the_pool(void **state)
{
    char picked[9] = {0};

    (void)state;
    world_open("version: 1\nsets: { a: {}, b: {} }\n"
               "pools: { p: { balancer: weighted, sets: [a, { name: b, weight: 3 }] } }\n",
               "p");
    for (int i = 0; i < 8; i++)
        picked[i] = *granted_by(ASK_DEFAULTS);
    assert_string_equal(picked, "babbbabb");
    world_close();
}

/* Capacities of 10, 10 and 2: all of 22 tries are granted. */
static void grants_all(const char *fields)
{
    weir_acquisition *held[22], *none = NULL;
    char text[512];

    snprintf(text, sizeof(text), THREE(10, 10, 2, "%s"), fields);
    for (int turn = backend->is_shared ? 2 : 0; turn < 3; turn++) {
        world_open(text, "p");
        for (int i = 0; i < 22; i++)
            held[i] = granted(ASK_DEFAULTS);
        assert_int_equal(try_acquire(ASK_DEFAULTS, &none), -EAGAIN);
        for (int i = 0; i < 22; i++)
            release(held[i]);
        world_close();
    }
}

static void all_capacity_is_found(void **state)
{
    (void)state;
    if (!backend->is_remote) { /* where a look sees what others hold */
        grants_all("balancer: least_loaded");
        grants_all("balancer: failover");
        grants_all("balancer: soonest");
    }
    grants_all("balancer: least_loaded, try: next");
    grants_all("balancer: power_of_two, try: next");
    grants_all("balancer: failover, try: next");
    grants_all("balancer: soonest, try: next");
    grants_all("balancer: weighted, try: next");
    grants_all("balancer: hash, try: next");
    grants_all("balancer: random, try: next");
    grants_all("try: next");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(a_view_says_what_a_resource_has),
        leak_checked_test(a_resource_that_is_short_reads_blocked),
        leak_checked_test(what_waits_ahead_blocks),
        leak_checked_test(a_rate_is_never_ready_before_now),
        leak_checked_test(a_view_is_of_the_scarcest_limit_that_is_asked_for),
        leak_checked_test(a_view_sees_limits_in_shadow),
        leak_checked_test(ids_are_of_names),
        leak_checked_test(only_what_is_asked_for_is_looked_at),
        leak_checked_test(looks_stay_of_one_pick),
        leak_checked_test(a_look_that_cannot_be_is_an_invalid_pick),
        leak_checked_test(a_balancer_hears_of_its_picks),
        leak_checked_test(a_try_goes_on_to_the_next_choice),
        leak_checked_test(others_follow_in_their_order_where_the_balancer_does_not_rank),
        leak_checked_test(what_does_not_wait_for_a_grant_is_not_tried_again),
        leak_checked_test(the_refusal_is_of_the_set_that_would_grant_first),
        leak_checked_test(weights_are_those_of_the_pool),
        leak_checked_test(all_capacity_is_found),
    };

    backend_choose(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
