/* SPDX-License-Identifier: MIT */
/*
 * Three nodes that take from batches of one bucket, by random schedules: they hoard, burst
 * together, are slow to ask and to hear, lose replies, and let batches end. From any instant to any
 * other all of them use at most burst + rate · time. The bucket of the engine (engine.c) decides as
 * the one of Redis does; what is used is judged by a bucket of the test that knows no batches.
 *
 * Chance alone stays far below the bound. So some steps do what reaches it: nodes take over a full
 * bucket in batches, keep these until just before their end, and use them then together with all
 * that has come to the bucket meanwhile.
 *
 * WEIR_OPERATIONS: so many uses, about OF_ONE_SCHEDULE in each schedule.
 */
#include "../engine.h"
#include "lib/random.h"
#include "lib/require.h"
#include "lib/world.h"
#include <inttypes.h>
#include <weir/backend.h>

enum { NODES = 3, STEPS = 40, OF_ONE_WORLD = 10, HOARD_MAX = 100 };
enum { OF_ONE_SCHEDULE = 100 };             /* uses */
enum { SCHEDULES = 200, SURE_FROM = 1000 }; /* of SURE_FROM, a few per cent reach the bound */

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

/* Uses whatever there is, so that nothing is left for later. */
static void use_up(unsigned node)
{
    for (uint64_t n = control.leased_capacity; n > 0; n /= 2)
        while (use(node, n))
            ;
}

/* All nodes together, in any order. */
static void burst(void)
{
    unsigned first = (unsigned)random_below(&random_state, NODES);

    for (unsigned i = 0; i < NODES; i++)
        use_up((first + i) % NODES);
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

/* ---- the worst that nodes can do ---- */

static uint64_t missing_parts(void)
{
    uint64_t come = control.bucket.capacity * (world.now / US - control.bucket.last_us);

    return control.bucket.beyond > come ? control.bucket.beyond - come : 0;
}

/* Everything on its way arrives. */
static void land_batches(void)
{
    for (unsigned i = 0; i < ENGINE_BATCHES; i++) {
        struct engine_batch *batch = &control.batches[i];

        if (batch->host && !batch->is_decided)
            control.decide_batch(&control, batch);
        if (batch->host)
            control.deliver_batch(&control, batch);
    }
}

/* A node without units learns how fast it needs them, and asks for a batch. */
static void ask_for_batch(unsigned node, uint64_t n)
{
    use(node, n);
    world.now += US;
    use(node, n);
}

/* The engine refuses the requests, as it does while others wait: what is there goes into batches.
 * The last node gets what the others leave. */
static void hoard(void)
{
    unsigned first = (unsigned)random_below(&random_state, NODES);
    unsigned last = (unsigned)random_below(&random_state, NODES);

    control.batches_wait = true;
    control.refuses = -EAGAIN;
    for (unsigned i = 0; i < last; i++)
        ask_for_batch((first + i) % NODES,
                      1 + random_below(&random_state, control.leased_capacity / (4 * NODES) + 1));
    ask_for_batch((first + last) % NODES, control.leased_capacity);
    control.refuses = 0;
    for (unsigned i = 0; i < ENGINE_BATCHES; i++)
        if (control.batches[i].host)
            control.decide_batch(&control, &control.batches[i]);
}

/* When to use it all: mostly just before the node sees the end of its batches, else about when the
 * engine does, or later. */
static uint64_t end_of(uint64_t asked_ns, uint64_t life_ns)
{
    uint64_t drift_ns = life_ns / 1000, early_ns = US * random_below(&random_state, 5);

    switch (random_below(&random_state, 6)) {
    case 0:
        return asked_ns + life_ns + drift_ns - early_ns;
    case 1:
        return asked_ns + life_ns + random_below(&random_state, life_ns);
    default:
        return asked_ns + life_ns - drift_ns - early_ns;
    }
}

/* Moves the time on to an instant, a whole microsecond, unless it has passed. */
static void go_on_to(uint64_t ns)
{
    ns -= ns % US;
    world.now = world.now > ns ? world.now : ns;
}

static void hoard_and_burst(uint64_t life_ns)
{
    uint64_t full_us, end_ns;

    if (random_chance(&random_state, 50))
        burst();
    land_batches();
    if (random_chance(&random_state, 80))
        world.now += life_ns;
    full_us = missing_parts() / control.bucket.capacity;
    world.now += US * (random_chance(&random_state, 80) ? full_us
                                                        : random_below(&random_state, full_us + 1));
    end_ns = end_of(world.now, life_ns);
    hoard();
    if (random_chance(&random_state, 30)) /* the replies are slow */
        go_on_to(world.now + random_below(&random_state, life_ns));
    land_batches();
    control.batches_wait = random_chance(&random_state, 50);
    go_on_to(end_ns);
    burst();
}

static void step(uint64_t life_ns)
{
    unsigned node = (unsigned)random_below(&random_state, NODES);

    switch (random_below(&random_state, 9)) {
    case 0:
    case 1:
        use(node, 1 + random_below(&random_state, 5));
        break;
    case 2:
        for (uint64_t n = random_below(&random_state, HOARD_MAX); n > 0 && use(node, 1); n--)
            ;
        break;
    case 3:
        burst();
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
    case 7:
        hoard_and_burst(life_ns);
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

/* So much of the burst a schedule has not used at least, if it came as close to the bound as can
 * be: batches end earlier by what clocks may drift, and asking takes microseconds and a few units.
 */
static uint64_t unused_at_best(uint64_t life_ns)
{
    return (reference.capacity * (life_ns / 1000 + 10 * US) / reference.window_ns + 4) *
           reference.window_ns;
}

static void what_all_nodes_use_keeps_the_bound(void **state)
{
    uint64_t schedules = 1 + random_operations(SCHEDULES * OF_ONE_SCHEDULE) / OF_ONE_SCHEDULE;
    uint64_t life_ns = 0, full = 0, tight = 0;

    (void)state;
    for (uint64_t i = 0; i < schedules; i++) {
        uint64_t unused;

        seed = random_case(random_state, i);
        if (i % OF_ONE_WORLD == 0)
            open_nodes(&life_ns);
        reference.most = 0;
        for (unsigned j = 0; j < STEPS; j++)
            step(life_ns);
        world.now += reference.window_ns / 1000 * US;
        unused = reference.burst * reference.window_ns - reference.most;
        full += unused < reference.window_ns;
        tight += unused < unused_at_best(life_ns);
        if ((i + 1) % OF_ONE_WORLD == 0 || i + 1 == schedules)
            close_nodes();
    }
    printf("%" PRIu64 " schedules, %" PRIu64 " uses, %" PRIu64 " units, %" PRIu64
           " of them from batches; in %" PRIu64 " the burst was used as far as can be, in %" PRIu64
           " to the last unit\n",
           schedules, reference.uses, reference.units, reference.from_batches, tight, full);
    assert_true(reference.from_batches > reference.units / 10);
    assert_true(schedules < SURE_FROM || (tight > schedules / 10 && full > schedules / 50));
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
