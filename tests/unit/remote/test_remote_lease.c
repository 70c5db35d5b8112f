/* SPDX-License-Identifier: MIT */
/* Leases of sets that an engine keeps: what is granted from batches, and until when. */
#include "../engine.h"
#include "lib/require.h"
#include "lib/world.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <weir/backend.h>

#define LEASED(key, more)                                                                          \
    "{ type: rate, key: " key                                                                      \
    ", algorithm: gcra, capacity: 1000, window: 1s, lease: { for: 200ms }" more " }"
#define K         LEASED("k", "")
#define LIMITS(x) "limits: [ " x " ]"
#define LIFE      (200 * MS)
/* The last instant of a batch that was asked for at 0: less a microsecond of the engine's, and a
 * part for the drift of clocks. */
#define LAST (LIFE - 1000 - (LIFE - 1000) / 1000 - 2)

static struct engine_control control;

static const char *text_of(const char *fields)
{
    static char text[1024];

    snprintf(text, sizeof(text),
             "version: 1\nbackends: { far: { type: engine, control: \"%p\" } }\n"
             "sets: { main: { backend: far, %s } }\n",
             (void *)&control, fields);
    return text;
}

static void open_far(const char *fields)
{
    control = (struct engine_control){.now_ns = &world.now};
    world_open(text_of(fields), "main");
}

static void close_far(void)
{
    world_close();
    assert_int_equal(control.connections, 0);
    assert_int_equal(control.sets, 0);
    assert_int_equal(control.held[0], 0);
}

static struct weir_lease_stats lease_stats(size_t limit)
{
    struct weir_lease_stats stats = {.size = sizeof(stats)};

    assert_int_equal(weir_set_lease_stats(world.set, limit, &stats), 0);
    return stats;
}

static int take_k(uint64_t n)
{
    return take(ASK({"k", n}));
}

/* Takes n units one by one, and returns for how many the engine was asked. */
static unsigned asks_of(unsigned n)
{
    unsigned before = control.asked;

    for (unsigned i = 0; i < n; i++)
        assert_int_equal(take_k(1), 0);
    return control.asked - before;
}

/* Takes until a batch of so many units, or more, has just come into use, and none is there besides.
 */
static void fill(uint64_t units)
{
    for (unsigned i = 0; i < 10000; i++) {
        assert_int_equal(take_k(1), 0);
        if (control.last_wanted >= units && lease_stats(0).ready == control.last_wanted - 1)
            return;
    }
    fail_msg("no batch of %lu units, only of %lu", (unsigned long)units,
             (unsigned long)control.last_wanted);
}

/* ---- granted from batches ---- */

static void requests_are_served_from_batches(void **state)
{
    struct weir_lease_stats stats;

    (void)state;
    open_far(LIMITS(K));
    assert_int_equal(control.lease_for_ns, LIFE);
    assert_int_equal(asks_of(1), 1);
    assert_int_equal(control.batched, 0); /* one request says nothing of a rate */
    assert_int_equal(asks_of(1), 1);
    assert_int_equal(control.batched, 1);
    assert_int_equal(asks_of(500), 0);
    stats = lease_stats(0);
    assert_int_equal(stats.granted, 500);
    assert_int_equal(stats.taken, control.batched_units);
    assert_int_equal(stats.taken, stats.granted + stats.ready + stats.returned + stats.stranded);
    assert_int_equal(stats.batches, control.batched);
    assert_int_equal(limit_stats(0).granted, 502);
    assert_int_equal(limit_stats(0).leased, stats.ready);
    assert_int_equal(picture().set.granted, 502);
    assert_int_equal(picture().set.taken, 502);
    assert_int_equal(picture().set.held, 0);
    close_far();
}

/* A batch that comes late is as short as it would be if it had come at once. */
static void a_batch_ends_as_of_its_call(void **state)
{
    uint64_t asked_at;

    (void)state;
    open_far(LIMITS(K));
    control.batches_wait = true;
    asks_of(2);
    asked_at = world.now;
    world.now += 50 * MS;
    assert_non_null(control.batches[0].host);
    control.decide_batch(&control, &control.batches[0]);
    world.now += 50 * MS;
    control.deliver_batch(&control, &control.batches[0]);
    world.now = asked_at + LAST;
    assert_int_equal(asks_of(1), 0);
    world.now = asked_at + LAST + 1;
    assert_int_equal(lease_stats(0).ready, 0);
    assert_int_equal(asks_of(1), 1);
    close_far();
}

static void a_batch_that_is_over_is_not_used(void **state)
{
    (void)state;
    open_far(LIMITS(K));
    fill(8);
    control.batches_wait = true; /* from now on */
    control.batched = 0;
    world.now += LAST;
    assert_int_equal(asks_of(1), 0);
    world.now++;
    assert_int_equal(asks_of(1), 1);
    assert_int_equal(lease_stats(0).ready, 0);
    close_far();
}

/* The next batch comes into use when the one before is used up. Its number is another one, so that
 * a thread that has looked at the one before takes nothing of it. */
static void the_next_batch_is_asked_for_ahead(void **state)
{
    uint64_t units, left;

    (void)state;
    open_far(LIMITS(K));
    fill(64);
    control.batches_wait = true;
    control.batched = 0;
    units = control.last_wanted;
    while (control.batched == 0)
        assert_int_equal(asks_of(1), 0);
    assert_int_equal(lease_stats(0).ready, units / 4);
    control.decide_batch(&control, &control.batches[0]);
    control.deliver_batch(&control, &control.batches[0]);
    left = lease_stats(0).ready;
    assert_int_equal(left, units / 4 + control.last_wanted);
    assert_int_equal(asks_of((unsigned)left), 0);
    assert_int_equal(lease_stats(0).returned, 0);
    close_far();
}

/* Few use it, and it is not over yet. */
static void the_next_batch_is_asked_for_before_the_end(void **state)
{
    (void)state;
    open_far(LIMITS(K));
    fill(64);
    control.batches_wait = true;
    control.batched = 0;
    for (int i = 0; i < 8; i++) {
        world.now += LIFE / 10;
        assert_int_equal(asks_of(3), 0);
    }
    assert_int_equal(control.batched, 0);
    world.now += LIFE / 10;
    assert_int_equal(asks_of(1), 0);
    assert_int_equal(control.batched, 1);
    close_far();
}

static void what_is_left_of_a_replaced_batch_goes_back(void **state)
{
    uint64_t left, back;

    (void)state;
    open_far(LIMITS(K));
    fill(64);
    control.batches_wait = true;
    left = lease_stats(0).ready;
    asks_of((unsigned)(left - 3));
    control.decide_batch(&control, &control.batches[0]);
    control.deliver_batch(&control, &control.batches[0]);
    back = lease_stats(0).returned;
    assert_int_equal(take_k(4), 0); /* more than the 3 that are left */
    assert_int_equal(lease_stats(0).returned, back + 3);
    assert_int_equal(control.unbatched_units, back + 3);
    assert_int_equal(lease_stats(0).ready, control.last_wanted - 4);
    close_far();
}

/* What a request does not find in the batch that is there, and the next one is too small, too. */
static void requests_beyond_a_batch_ask(void **state)
{
    (void)state;
    open_far(LIMITS(K));
    fill(8);
    control.batches_wait = true;
    control.asked = 0;
    assert_int_equal(take_k(900), 0);
    assert_int_equal(control.asked, 1);
    assert_int_equal(asks_of(1), 0); /* the batch is still there */
    close_far();
}

static void what_an_engine_never_grants_is_not_asked_for(void **state)
{
    (void)state;
    control = (struct engine_control){.now_ns = &world.now, .leased_capacity = 800};
    world_open(text_of(LIMITS(K)), "main");
    assert_int_equal(take_k(801), -ERANGE);
    assert_string_equal(refusal.key, "k");
    assert_int_equal(control.asked, 0);
    assert_int_equal(take_k(800), 0);
    for (int i = 0; i < 3000; i++)
        assert_int_equal(take_k(800), 0);
    assert_int_equal(control.last_wanted, 800);
    close_far();
}

static void reservations_and_other_limits_ask(void **state)
{
    weir_acquisition *a = NULL;
    uint64_t at = 0;

    (void)state;
    open_far(LIMITS(K ", { type: rate, key: l, algorithm: gcra, capacity: 9, window: 1s }"
                      ", { type: resource, key: slot, capacity: 3 }"));
    for (int i = 0; i < 20; i++)
        assert_int_equal(take(ASK({"k", 1}, {"l", 0}, {"slot", 0})), 0);
    assert_true(lease_stats(0).granted > 0);
    control.asked = 0;
    assert_int_equal(take(ASK({"k", 1}, {"l", 1}, {"slot", 0})), 0);
    assert_int_equal(control.asked, 1);
    a = granted(ASK({"k", 1}, {"l", 0}, {"slot", 1}));
    assert_int_equal(control.asked, 2);
    assert_int_equal(control.held[2], 1);
    assert_int_equal(weir_update(a, "k", 1), 0);
    release(a);
    a = NULL;
    assert_int_equal(reserve(ASK({"k", 1}, {"l", 0}, {"slot", 0}), &a, &at), 0);
    assert_int_equal(control.asked, 3);
    assert_int_equal(weir_update(a, "k", 1), 0);
    release(a);
    assert_int_equal(
        weir_set_lease_stats(world.set, 1,
                             &(struct weir_lease_stats){.size = sizeof(struct weir_lease_stats)}),
        -ENOENT);
    close_far();
}

static void several_leases_grant_all_or_nothing(void **state)
{
    struct weir_lease_stats k, l;

    (void)state;
    open_far(LIMITS(LEASED("k", "") ", " LEASED("l", "")));
    for (int i = 0; i < 40; i++)
        assert_int_equal(take(ASK({"k", 1}, {"l", 2})), 0);
    k = lease_stats(0);
    l = lease_stats(1);
    assert_true(k.granted > 0 && l.granted == 2 * k.granted);
    assert_true(k.ready > 0 && l.ready > 0);
    control.batches_wait = true;
    control.asked = 0;
    world.now += LAST;
    assert_int_equal(take(ASK({"k", 1}, {"l", 1})), 0);
    assert_int_equal(control.asked, 0);
    world.now++; /* they are over */
    assert_int_equal(take(ASK({"k", 1}, {"l", 1})), 0);
    assert_int_equal(control.asked, 1);
    close_far();
}

static atomic_uint readings;
static uint64_t too_many; /* for the batch in use */

static void *replace_batch(void *of)
{
    (void)of;
    assert_int_equal(take(ASK({"k", too_many}, {"l", 0})), 0);
    return NULL;
}

/* As the clock is read, another thread brings the next batch into use. */
static void replace_at_reading(void)
{
    pthread_t thread;

    if (readings++)
        return;
    assert_int_equal(pthread_create(&thread, NULL, replace_batch, NULL), 0);
    pthread_join(thread, NULL);
    readings = 1;
}

/* Units of a batch are used by a reading of the clock that comes after its word was read: otherwise
 * it might be one from before the batch was asked for. */
static void several_leases_read_the_clock_after_the_words(void **state)
{
    (void)state;
    open_far(LIMITS(LEASED("k", "") ", " LEASED("l", "")));
    for (int i = 0; i < 200; i++)
        assert_int_equal(take(ASK({"k", 1}, {"l", 1})), 0);
    control.batches_wait = true;
    while (!control.batches[0].host || control.batches[0].limit != 0) {
        memset(control.batches, 0, sizeof(control.batches));
        assert_int_equal(take(ASK({"k", 1}, {"l", 0})), 0);
    }
    too_many = lease_stats(0).ready + 1;
    control.decide_batch(&control, &control.batches[0]);
    control.deliver_batch(&control, &control.batches[0]);
    readings = 0;
    control.asked = 0;
    world.on_now = replace_at_reading;
    assert_int_equal(take(ASK({"k", 1}, {"l", 1})), 0);
    assert_int_equal(control.asked, 0); /* it was the new batch */
    assert_true(readings > 2);          /* the clock was read again for that */
    world.on_now = NULL;
    close_far();
}

static void a_lease_with_too_little_leaves_the_others(void **state)
{
    struct weir_lease_stats k;

    (void)state;
    open_far(LIMITS(LEASED("k", "") ", " LEASED("l", "")));
    for (int i = 0; i < 40; i++)
        assert_int_equal(take(ASK({"k", 1}, {"l", 2})), 0);
    control.batches_wait = true;
    control.away = -ENOTCONN; /* and nothing is granted but from batches */
    while (take(ASK({"k", 0}, {"l", 1})) == 0)
        ;
    k = lease_stats(0);
    assert_true(k.ready > 0 && lease_stats(1).ready == 0);
    assert_int_equal(take(ASK({"k", 1}, {"l", 1})), -EHOSTUNREACH);
    assert_int_equal(lease_stats(0).ready, k.ready); /* as before */
    assert_int_equal(lease_stats(0).granted, k.granted);
    assert_int_equal(take(ASK({"k", 1}, {"l", 0})), 0);
    close_far();
}

/* ---- acquisitions ---- */

static void a_grant_from_a_batch_holds_nothing_there(void **state)
{
    weir_acquisition *a;
    uint64_t fence = 7;

    (void)state;
    open_far(LIMITS(LEASED("k", ", refund: true")));
    fill(16);
    control.asked = 0;
    a = granted(ASK({"k", 5}));
    assert_int_equal(control.asked, 0);
    assert_int_equal(weir_acquisition_fence(a, &fence), -EOPNOTSUPP);
    assert_int_equal(weir_acquisition_result(a), 0);
    assert_int_equal(picture().set.held, 1);
    assert_int_equal(weir_update(a, "k", 5), 0);
    release(a);
    assert_int_equal(picture().set.held, 0);
    close_far();
}

static void unused_units_go_back_to_their_batch(void **state)
{
    struct weir_lease_stats before;
    weir_acquisition *a, *b;

    (void)state;
    open_far(LIMITS(LEASED("k", ", refund: true")));
    fill(16);
    control.batches_wait = true;
    before = lease_stats(0);
    a = granted(ASK({"k", 5}));
    assert_int_equal(lease_stats(0).ready, before.ready - 5);
    assert_int_equal(weir_update(a, "k", 2), 0);
    release(a);
    assert_int_equal(lease_stats(0).ready, before.ready - 2);
    a = granted(ASK({"k", 5}));
    assert_int_equal(weir_return(a, "k", 4), 0);
    assert_int_equal(lease_stats(0).ready, before.ready - 3);
    assert_int_equal(weir_update(a, "k", 1), 0);
    release(a);
    b = granted(ASK({"k", 3}));
    world.now += LAST + 1; /* the batch is over */
    assert_int_equal(weir_update(b, "k", 0), 0);
    before = lease_stats(0);
    release(b);
    assert_int_equal(lease_stats(0).granted, before.granted);
    close_far();
}

static void unused_units_do_not_go_to_another_batch(void **state)
{
    struct weir_lease_stats before;
    weir_acquisition *a;

    (void)state;
    open_far(LIMITS(LEASED("k", ", refund: true")));
    fill(16);
    a = granted(ASK({"k", 3}));
    asks_of(200); /* several batches later */
    before = lease_stats(0);
    assert_true(before.ready > 0);
    assert_int_equal(weir_update(a, "k", 0), 0);
    release(a);
    assert_int_equal(lease_stats(0).ready, before.ready);
    close_far();
}

static void without_a_refund_nothing_goes_back(void **state)
{
    struct weir_lease_stats before;
    weir_acquisition *a;

    (void)state;
    open_far(LIMITS(LEASED("k", ", refund: false")));
    fill(16);
    a = granted(ASK({"k", 3}));
    before = lease_stats(0);
    assert_int_equal(weir_update(a, "k", 1), 0);
    release(a);
    assert_int_equal(lease_stats(0).ready, before.ready);
    close_far();
}

static void queues_are_served_from_batches(void **state)
{
    struct weir_completion done = {0};
    weir_acquisition *a = NULL;
    weir_queue *queue = NULL;

    (void)state;
    open_far(LIMITS(K));
    fill(16);
    control.asked = 0;
    assert_int_equal(submit(ASK({"k", 1}), &a), 0);
    assert_int_equal(weir_update(a, "k", 1), 0);
    release(a);
    assert_int_equal(weir_queue_open(&queue, world.w, 8), 0);
    assert_int_equal(weir_queue_submit(queue, world.pool, ASK({"k", 1}), 1, NULL, NULL), 0);
    assert_int_equal(weir_queue_reap(queue, &done, 1), 1);
    assert_int_equal(done.result, 0);
    assert_int_equal(control.asked, 0);
    assert_int_equal(weir_update(done.acquisition, "k", 1), 0);
    release(done.acquisition);
    weir_queue_close(queue);
    close_far();
}

/* ---- how many units, and when ---- */

static void batches_grow_with_the_demand(void **state)
{
    uint64_t last = 1;

    (void)state;
    open_far(LIMITS(K));
    for (int i = 0; i < 3000; i++) { /* 3000 at one instant */
        assert_int_equal(take_k(1), 0);
        assert_true(control.last_wanted <= 2 * last || control.last_wanted == last);
        last = control.last_wanted ? control.last_wanted : last;
    }
    assert_int_equal(last, 1000); /* what can be granted at all */
    close_far();
}

static void batches_are_for_the_rate_of_late(void **state)
{
    (void)state;
    open_far(LIMITS(K));
    for (int i = 0; i < 3000; i++) {
        world.now += MS; /* 1000/s: 160 in four fifths of the life */
        assert_int_equal(take_k(1), 0);
    }
    assert_in_range(control.last_wanted, 150, 165);
    control.asked = 0;
    for (int i = 0; i < 3000; i++) {
        world.now += MS;
        assert_int_equal(take_k(1), 0);
    }
    assert_int_equal(control.asked, 0);
    for (int i = 0; i < 400; i++) {
        world.now += 10 * MS; /* 100/s */
        control.run_spares(&control);
        assert_int_equal(take_k(1), 0);
    }
    assert_in_range(control.last_wanted, 14, 18);
    close_far();
}

/* A batch would be there for one request, and mostly be over when that comes. */
static void rare_requests_take_nothing_ahead(void **state)
{
    (void)state;
    open_far(LIMITS(K));
    for (int i = 0; i < 100; i++) {
        world.now += 170 * MS;
        assert_int_equal(take_k(1), 0);
    }
    assert_int_equal(control.asked, 100);
    assert_int_equal(control.batched, 0);
    close_far();
}

/* A request that does not find its units, and then waits, is one request. */
static void a_request_that_waits_counts_once(void **state)
{
    weir_acquisition *a;

    (void)state;
    open_far(LIMITS(K));
    a = granted(ASK({"k", 1}));
    assert_int_equal(control.batched, 0);
    release_used(a, "k", 1);
    world.now += SECOND;
    assert_int_equal(submit(ASK({"k", 1}), &a), 1);
    assert_int_equal(control.batched, 0);
    assert_int_equal(weir_acquisition_result(a), 0);
    release_used(a, "k", 1);
    close_far();
}

static void large_requests_get_large_batches(void **state)
{
    (void)state;
    open_far(LIMITS(K));
    assert_int_equal(take_k(100), 0);
    world.now += 10 * MS;
    assert_int_equal(take_k(100), 0);
    assert_in_range(control.last_wanted, 100, 200);
    control.asked = 0;
    world.now += 10 * MS;
    assert_int_equal(take_k(100), 0);
    assert_int_equal(control.asked, 0);
    close_far();
}

static void a_refusal_says_when_to_ask_again(void **state)
{
    uint64_t batched;

    (void)state;
    open_far(LIMITS(K));
    control.bucket = (struct engine_bucket){
        .capacity = 1000, .window_us = 1000000, .burst = 1000, .delta_us = 200000};
    fill(16);
    while (take_k(1) == 0)
        ;
    batched = control.batched;
    assert_true(control.refused_batches > 0);
    for (int i = 0; i < 50; i++)
        take_k(1);
    assert_int_equal(control.batched, batched);
    world.now += SECOND;
    assert_int_equal(take_k(1), 0);
    assert_int_equal(control.batched, batched + 1);
    close_far();
}

static void a_refusal_of_unknown_length_lasts_for_a_life(void **state)
{
    (void)state;
    open_far(LIMITS(K));
    control.away = -ENOTCONN;
    control.retry_after_ns = UINT64_MAX;
    while (control.batched == 0)
        take_k(1);
    for (int i = 0; i < 100; i++) {
        world.now += LIFE / 100 - 1;
        take_k(1);
    }
    assert_int_equal(control.batched, 1);
    world.now += 100;
    take_k(1);
    assert_int_equal(control.batched, 2);
    close_far();
}

static void a_batch_that_cannot_be_asked_for_is_refused(void **state)
{
    (void)state;
    open_far(LIMITS(K));
    control.fails_batch = -ENOMEM;
    assert_int_equal(asks_of(20), 20);
    assert_int_equal(control.batched, 1);
    control.fails_batch = 0;
    world.now += LIFE;
    asks_of(1);
    assert_int_equal(control.batched, 2);
    close_far();
}

/* ---- units that are not used ---- */

static void idle_units_go_back(void **state)
{
    uint64_t left;

    (void)state;
    open_far(LIMITS(K));
    fill(64);
    left = lease_stats(0).ready;
    world.now += LIFE / 4;
    control.run_spares(&control);
    if (lease_stats(0).ready) { /* a part was used since the batch had come */
        world.now += LIFE / 4;
        control.run_spares(&control);
    }
    assert_int_equal(lease_stats(0).ready, 0);
    assert_int_equal(lease_stats(0).returned, left);
    assert_int_equal(control.unbatched_units, left);
    assert_null(control.spares[0].host); /* nothing is left to look for */
    close_far();
}

static void units_in_use_stay(void **state)
{
    (void)state;
    open_far(LIMITS(K));
    fill(64);
    control.batches_wait = true;
    for (int i = 0; i < 3; i++) {
        world.now += LIFE / 4 - 1;
        asks_of(1);
        world.now++;
        control.run_spares(&control);
    }
    assert_int_equal(lease_stats(0).returned, 0);
    assert_true(lease_stats(0).ready > 0);
    world.now += LIFE / 4;
    control.run_spares(&control);
    assert_int_equal(lease_stats(0).ready, 0);
    assert_true(lease_stats(0).stranded > 0);
    assert_int_equal(lease_stats(0).stranded, control.unbatched_units);
    close_far();
}

static void a_batch_that_comes_too_late_goes_back(void **state)
{
    (void)state;
    open_far(LIMITS(K));
    control.batches_wait = true;
    asks_of(2);
    control.decide_batch(&control, &control.batches[0]);
    world.now += LIFE;
    control.deliver_batch(&control, &control.batches[0]);
    assert_int_equal(asks_of(1), 1);
    world.now += LIFE / 4;
    control.run_spares(&control);
    assert_int_equal(lease_stats(0).stranded, lease_stats(0).taken);
    assert_int_equal(control.unbatched_units, lease_stats(0).taken);
    close_far();
}

static void closing_gives_back(void **state)
{
    uint64_t left;

    (void)state;
    open_far(LIMITS(K));
    fill(64);
    left = lease_stats(0).ready;
    assert_true(left > 0);
    close_far();
    assert_int_equal(control.unbatched_units, left);
}

static void a_batch_on_its_way_is_forgotten(void **state)
{
    (void)state;
    open_far(LIMITS(K));
    control.batches_wait = true;
    asks_of(2);
    assert_non_null(control.batches[0].host);
    close_far();
    assert_null(control.batches[0].host);
}

/* The engine has granted a batch, and the link broke before the reply came: no program uses the
 * units, no counter has them, and for the engine they are used. They come again as any others do.
 */
static void a_batch_that_is_lost_counts_as_used(void **state)
{
    const uint64_t most = 800; /* burst less what comes within a life */
    struct engine_batch *batch = &control.batches[0];
    struct weir_lease_stats stats;
    uint64_t lost, used = 2;

    (void)state;
    open_far(LIMITS(K));
    control.bucket = (struct engine_bucket){.capacity = 1000,
                                            .window_us = 1000000,
                                            .burst = 1000,
                                            .delta_us = 200000,
                                            .last_us = world.now / US};
    control.batches_wait = true;
    asks_of(2);
    control.decide_batch(&control, batch);
    lost = batch->units;
    assert_true(lost > 0);
    batch->result = -ECONNRESET;
    batch->units = 0;
    batch->retry_after_ns = UINT64_MAX;
    control.deliver_batch(&control, batch);
    while (take_k(1) == 0)
        used++;
    assert_int_equal(used + lost, most);
    stats = lease_stats(0);
    assert_int_equal(stats.taken + stats.batches + stats.granted + stats.returned + stats.ready, 0);
    assert_int_equal(control.batched, 1); /* no other one is asked for soon */
    world.now += lost * MS;
    for (uint64_t i = 0; i < lost; i++)
        assert_int_equal(take_k(1), 0);
    assert_int_equal(take_k(1), -EAGAIN);
    close_far();
}

/* ---- an engine that is away, or wrong ---- */

static void what_is_there_is_used_without_the_engine(void **state)
{
    uint64_t left;

    (void)state;
    open_far(LIMITS(K));
    fill(64);
    control.away = -ECONNRESET;
    left = lease_stats(0).ready;
    for (uint64_t i = 0; i < left; i++)
        assert_int_equal(take_k(1), 0);
    assert_int_equal(take_k(1), -EHOSTUNREACH);
    close_far();
}

static void reports_of_no_batch_change_nothing(void **state)
{
    struct weir_backend_batch report = {
        .size = sizeof(report), .units = 9, .valid_ns = SECOND, .at = 1, .tag = UINT64_MAX};
    const struct weir_backend_host *host;

    (void)state;
    open_far(LIMITS(K));
    host = control.host;
    assert_int_equal(host->batched(host->context, control.host_set, &report), UINT64_MAX);
    report.limit = 77;
    assert_int_equal(host->batched(host->context, control.host_set, &report), UINT64_MAX);
    assert_int_equal(lease_stats(0).taken, 0);
    report.limit = 0;
    control.batches_wait = true;
    asks_of(2);
    report.units = UINT64_MAX; /* more than was wanted, and for longer */
    report.valid_ns = UINT64_MAX;
    assert_int_equal(host->batched(host->context, control.host_set, &report), LIFE / 4);
    assert_int_equal(lease_stats(0).taken, control.last_wanted);
    world.now += LIFE;
    assert_int_equal(lease_stats(0).ready, 0);
    close_far();
}

static void a_batch_of_nothing_is_a_refusal(void **state)
{
    const struct weir_backend_batch report = {.size = sizeof(report), .retry_after_ns = UINT64_MAX};
    const struct weir_backend_host *host;

    (void)state;
    open_far(LIMITS(K));
    host = control.host;
    control.batches_wait = true;
    asks_of(2);
    assert_int_equal(host->batched(host->context, control.host_set, &report), UINT64_MAX);
    asks_of(20);
    assert_int_equal(control.batched, 1);
    close_far();
}

static void a_forked_child_has_no_batches(void **state)
{
    int status = 0;
    pid_t child;

    (void)state;
    open_far(LIMITS(K));
    fill(64);
    child = fork();
    if (child == 0)
        _exit(weir_take(world.pool, ASK({"k", 1}), NULL) == -ECHILD ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(asks_of(1), 0);
    close_far();
}

/* ---- threads ---- */

static _Atomic uint64_t granted_n;

static void *take_many(void *unused)
{
    for (int i = 0; i < 20000; i++)
        if (weir_take(world.pool, ASK({"k", 1}), NULL) == 0)
            atomic_fetch_add(&granted_n, 1);
    return unused;
}

static uint64_t frozen_now(void *now)
{
    return atomic_load((_Atomic uint64_t *)now);
}

/* Threads take from batches while these are replaced and given back: no unit is granted twice, and
 * none is lost. */
static void threads_share_batches(void **state)
{
    static _Atomic uint64_t clock_ns = START;
    const struct weir_clock clock = {
        .size = sizeof(clock), .now_ns = frozen_now, .userdata = &clock_ns};
    const struct weir_options options = {
        .size = sizeof(options), .text = text_of(LIMITS(K)), .clock = &clock};
    struct weir_lease_stats stats;
    pthread_t threads[4];

    (void)state;
    control = (struct engine_control){.now_ns = &world.now};
    granted_n = 0;
    assert_int_equal(weir_open(&world.w, &options, NULL), 0);
    assert_int_equal(weir_pool_open(&world.pool, world.w, "main", 0, NULL), 0);
    world.set = weir_pool_set(world.pool, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_many, NULL), 0);
    for (int i = 0; i < 2000; i++) { /* batches end, and are idle */
        const struct weir_backend_host *host = control.host;
        struct weir_backend_batch rest;

        atomic_fetch_add(&clock_ns, LIFE / 8);
        if (host->spare(host->context, control.host_set, 0, &rest) == 0)
            host->spare(host->context, control.host_set, 0, &rest);
        sched_yield();
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    stats = lease_stats(0);
    assert_int_equal(granted_n, 80000);
    assert_int_equal(stats.granted + control.asked, 80000);
    assert_int_equal(stats.taken, control.batched_units);
    close_far();
}

/* ---- configuration ---- */

static void refuses_lease(const char *lease, const char *why)
{
    char fields[512];

    snprintf(
        fields, sizeof(fields),
        "limits: [ { type: rate, key: k, algorithm: gcra, capacity: 9, window: 1s, lease: %s } ]",
        lease);
    world_refused(text_of(fields), why);
}

static void wrong_leases_are_refused(void **state)
{
    (void)state;
    control = (struct engine_control){0};
    refuses_lease("3", "of an engine units");
    refuses_lease("{}", "`lease` needs `for`");
    refuses_lease("{ for: 3 }", "`for`");
    refuses_lease("{ for: 10ns }", "`for`");
    refuses_lease("{ for: 1500ns }", "whole microseconds");
    refuses_lease("{ for: 1ms, at: 3 }", "`at` is not a field of `lease`");
    refuses_lease("[ 1 ]", "`lease`");
    world_refused(text_of(LIMITS("{ type: resource, key: k, capacity: 9, lease: { for: 1ms } }")),
                  "`lease`");
    world_refused(text_of("subjects: { max: 10 }, " LIMITS(K)), "cannot be used with `subjects`");
    world_refused(text_of(LIMITS(LEASED("k", ", overuse: charge"))), "`overuse: charge`");
    world_refused("version: 1\nsets: { main: { " LIMITS(K) " } }\n",
                  "`lease: { for: … }` is for sets that an engine keeps");
    world_refused("version: 1\nbackends: { far: { type: no_leases, control: \"1\" } }\n"
                  "sets: { main: { backend: far, " LIMITS(K) " } }\n",
                  "there is no backend");
}

static void the_lease_is_told(void **state)
{
    struct weir_setting settings[8];
    bool found = false;
    int n;

    (void)state;
    open_far(LIMITS(K));
    n = weir_set_limit_settings(world.set, 0, settings, 8);
    for (int i = 0; i < n; i++)
        found |= !strcmp(settings[i].name, "lease.for") && !strcmp(settings[i].value, "200ms");
    assert_true(found);
    close_far();
}

static void a_failed_opening_leaves_nothing(void **state)
{
    const struct weir_options options = {.size = sizeof(options), .text = text_of(LIMITS(K))};
    bool failed = true;

    (void)state;
    control = (struct engine_control){.now_ns = &world.now};
    for (uint64_t n = 1; failed; n++) {
        weir *w = NULL;
        int r;

        fake_os_fail_kind_at(n, FAKE_ANY, 0);
        r = weir_open(&w, &options, NULL);
        failed = fake_os_has_failed();
        fake_os_fail_kind_at(0, 0, 0);
        assert_true(failed || r == 0);
        weir_close(w);
        assert_int_equal(control.connections, 0);
        assert_int_equal(control.sets, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(requests_are_served_from_batches),
        leak_checked_test(a_batch_ends_as_of_its_call),
        leak_checked_test(a_batch_that_is_over_is_not_used),
        leak_checked_test(the_next_batch_is_asked_for_ahead),
        leak_checked_test(the_next_batch_is_asked_for_before_the_end),
        leak_checked_test(what_is_left_of_a_replaced_batch_goes_back),
        leak_checked_test(requests_beyond_a_batch_ask),
        leak_checked_test(what_an_engine_never_grants_is_not_asked_for),
        leak_checked_test(reservations_and_other_limits_ask),
        leak_checked_test(several_leases_grant_all_or_nothing),
        leak_checked_test(several_leases_read_the_clock_after_the_words),
        leak_checked_test(a_lease_with_too_little_leaves_the_others),
        leak_checked_test(a_grant_from_a_batch_holds_nothing_there),
        leak_checked_test(unused_units_go_back_to_their_batch),
        leak_checked_test(unused_units_do_not_go_to_another_batch),
        leak_checked_test(without_a_refund_nothing_goes_back),
        leak_checked_test(queues_are_served_from_batches),
        leak_checked_test(batches_grow_with_the_demand),
        leak_checked_test(batches_are_for_the_rate_of_late),
        leak_checked_test(rare_requests_take_nothing_ahead),
        leak_checked_test(a_request_that_waits_counts_once),
        leak_checked_test(large_requests_get_large_batches),
        leak_checked_test(a_refusal_says_when_to_ask_again),
        leak_checked_test(a_refusal_of_unknown_length_lasts_for_a_life),
        leak_checked_test(a_batch_that_cannot_be_asked_for_is_refused),
        leak_checked_test(idle_units_go_back),
        leak_checked_test(units_in_use_stay),
        leak_checked_test(a_batch_that_comes_too_late_goes_back),
        leak_checked_test(closing_gives_back),
        leak_checked_test(a_batch_on_its_way_is_forgotten),
        leak_checked_test(a_batch_that_is_lost_counts_as_used),
        leak_checked_test(what_is_there_is_used_without_the_engine),
        leak_checked_test(reports_of_no_batch_change_nothing),
        leak_checked_test(a_batch_of_nothing_is_a_refusal),
        leak_checked_test(a_forked_child_has_no_batches),
        leak_checked_test(threads_share_batches),
        leak_checked_test(wrong_leases_are_refused),
        leak_checked_test(the_lease_is_told),
        leak_checked_test(a_failed_opening_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
