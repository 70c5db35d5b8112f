/* SPDX-License-Identifier: MIT */
/*
 * Three nodes that take from batches of one bucket, by random schedules: they hoard, burst
 * together, are slow to ask and to hear, lose replies, and let batches end. From any instant to any
 * other all of them use at most burst + rate · time. The bucket of the engine (engine.c) decides as
 * the one of Redis does; what is used is judged by a bucket of the test that knows no batches.
 *
 * WEIR_OPERATIONS: so many uses, about OF_ONE_SCHEDULE in each schedule.
 */
#include "../engine.h"
#include "lib/random.h"
#include "lib/require.h"
#include "lib/world.h"
#include <inttypes.h>
#include <weir/backend.h>

enum { NODES = 3, STEPS = 60, OF_ONE_WORLD = 10, HOARD_MAX = 400 };
enum { OF_ONE_SCHEDULE = 3000 }; /* uses */

static struct engine_control control;
static struct twin twins[NODES - 1];
static uint64_t seed, random_state;

/* What is used, as one bucket would see it that is not leased. */
static struct {
    uint64_t capacity, window_ns, burst, beyond, last_ns; /* `beyond`: in parts, one of window_ns */
    uint64_t uses, units, from_batches, most;             /* most: the largest part that was used */
} reference;

static void reference_use(uint64_t n)
{
    uint64_t now_ns = world.now, span_ns = now_ns - reference.last_ns;
    uint64_t come = span_ns < 100 * SECOND ? reference.capacity * span_ns : UINT64_MAX;

    reference.beyond = reference.beyond > come ? reference.beyond - come : 0;
    reference.beyond += n * reference.window_ns;
    reference.last_ns = now_ns;
    reference.uses++;
    reference.units += n;
    if (reference.beyond > reference.most)
        reference.most = reference.beyond;
    if (reference.beyond > reference.burst * reference.window_ns)
        fail_msg("seed %" PRIu64 ": more was used than burst + rate * time", seed);
}

static weir_pool *pool_of(unsigned node)
{
    return node ? twins[node - 1].pool : world.pool;
}

static bool use(unsigned node, uint64_t n)
{
    unsigned asked = control.asked;
    int r = weir_take(pool_of(node), ASK({"k", n}), NULL);

    assert_true(r == 0 || r == -EAGAIN || r == -ERANGE);
    if (r < 0)
        return false;
    reference.from_batches += control.asked == asked ? n : 0;
    reference_use(n);
    return true;
}

/* Uses one by one whatever there is, so that nothing is left for later. */
static void use_up(unsigned node)
{
    for (unsigned i = 0; i < HOARD_MAX && use(node, 1); i++)
        ;
}

/* The time goes on: by little, by as long as a batch may be used or a microsecond less, by a
 * window.
 */
static void go_on(uint64_t life_ns)
{
    const uint64_t most_us[] = {3, 500, life_ns / 1000, reference.window_ns / 1000};

    if (random_chance(&random_state, 20))
        world.now += life_ns - US * random_below(&random_state, 3);
    else
        world.now += US * random_below(&random_state, most_us[random_below(&random_state, 4)]);
}

/* A call of `batch` arrives at the engine, or its reply at the node, or nowhere. */
static void move_batch(void)
{
    struct engine_batch *batch = &control.batches[random_below(&random_state, ENGINE_BATCHES)];

    if (!batch->host)
        return;
    if (!batch->is_decided)
        control.decide_batch(&control, batch);
    else if (random_chance(&random_state, 95))
        control.deliver_batch(&control, batch);
    else { /* the link was lost */
        batch->result = -ECONNRESET;
        batch->units = 0;
        control.deliver_batch(&control, batch);
    }
}

static void step(uint64_t life_ns)
{
    unsigned node = (unsigned)random_below(&random_state, NODES);

    switch (random_below(&random_state, 8)) {
    case 0:
    case 1:
        use(node, 1 + random_below(&random_state, 5));
        break;
    case 2:
        for (uint64_t n = random_below(&random_state, HOARD_MAX); n > 0 && use(node, 1); n--)
            ;
        break;
    case 3:
        for (unsigned i = 0; i < NODES; i++)
            use_up(i);
        break;
    case 4:
        control.run_spares(&control);
        break;
    case 5:
        control.batches_wait = random_chance(&random_state, 50);
        break;
    case 6:
        go_on(life_ns);
        break;
    default:
        for (uint64_t n = random_below(&random_state, 2 * ENGINE_BATCHES); n > 0; n--)
            move_batch();
    }
}

static void open_nodes(uint64_t *ret_life_ns)
{
    uint64_t window_ms = 1 + random_below(&random_state, 2000);
    uint64_t capacity = 1 + random_below(&random_state, 5000);
    uint64_t life_ms = 1 + random_below(&random_state, window_ms);
    uint64_t burst = capacity * life_ms / window_ms + 2 + random_below(&random_state, capacity);
    char text[512];

    control = (struct engine_control){.now_ns = &world.now};
    control.bucket = (struct engine_bucket){.capacity = capacity,
                                            .window_us = window_ms * 1000,
                                            .burst = burst,
                                            .delta_us = life_ms * 1000};
    control.leased_capacity = burst - (capacity * life_ms + window_ms - 1) / window_ms;
    snprintf(text, sizeof(text),
             "version: 1\nbackends: { far: { type: engine, control: \"%p\" } }\n"
             "sets: { main: { backend: far, limits: [ { type: rate, key: k, algorithm: gcra, "
             "capacity: %" PRIu64 ", window: %" PRIu64 "ms, burst: %" PRIu64
             ", lease: { for: %" PRIu64 "ms } } ] } }\n",
             (void *)&control, capacity, window_ms, burst, life_ms);
    world_open(text, "main");
    for (unsigned i = 0; i < NODES - 1; i++)
        twins[i] = world_twin("main");
    control.bucket.last_us = world.now / 1000;
    reference.capacity = capacity;
    reference.window_ns = window_ms * MS;
    reference.burst = burst;
    reference.beyond = reference.most = 0;
    reference.last_ns = world.now;
    *ret_life_ns = life_ms * MS;
}

static void close_nodes(void)
{
    for (unsigned i = 0; i < NODES - 1; i++)
        world_twin_close(&twins[i]);
    world_close();
    assert_int_equal(control.connections, 0);
}

static void what_all_nodes_use_keeps_the_bound(void **state)
{
    uint64_t schedules = 1 + random_operations(60000) / OF_ONE_SCHEDULE, life_ns = 0, fullest = 0;

    (void)state;
    for (uint64_t i = 0; i < schedules; i++) {
        seed = random_case(random_state, i);
        if (i % OF_ONE_WORLD == 0)
            open_nodes(&life_ns);
        for (unsigned j = 0; j < STEPS; j++)
            step(life_ns);
        world.now += reference.window_ns / 1000 * US;
        if ((i + 1) % OF_ONE_WORLD && i + 1 < schedules)
            continue;
        fullest += reference.most > (reference.burst - 1) * reference.window_ns;
        close_nodes();
    }
    printf("%" PRIu64 " schedules, %" PRIu64 " uses, %" PRIu64 " units, %" PRIu64
           " of them from batches; in %" PRIu64 " of %" PRIu64
           " worlds all but a unit of the burst\n",
           schedules, reference.uses, reference.units, reference.from_batches, fullest,
           (schedules + OF_ONE_WORLD - 1) / OF_ONE_WORLD);
    assert_true(reference.from_batches > reference.units / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(what_all_nodes_use_keeps_the_bound),
    };

    random_state = random_seed();
    printf("WEIR_SEED=%" PRIu64 "\n", random_state);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
