/* SPDX-License-Identifier: MIT */
/*
 * Threads on one set, by the real clock, in every way there is to ask and to give back; what they
 * did is written down. Resources are never held beyond their capacity, rates and windows keep their
 * bounds in any span of time, every count adds up, and in the end nothing is held and none waits.
 * WEIR_SEED and WEIR_OPERATIONS (of each thread) override the seed and how much is done.
 */
#include "lib/history.h"
#include "lib/require.h"
#include "lib/world.h"
#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 6, STEPS = 100, TOKENS = 0, CALLS, SLOTS, LIMITS };

#define BURST    40u
#define RATE     4000u /* per second */
#define WINDOW   15u   /* per 5 ms */
#define CAPACITY 3u

static const char *const keys[LIMITS] = {"tokens", "call_count", "slots"};
static atomic_uint held;

struct worker {
    pthread_t thread;
    uint64_t random, steps;
    struct history history;
    uint64_t granted, taken;
};

struct want {
    struct weir_amount items[LIMITS];
    struct weir_request request;
};

static void choose(struct worker *me, bool is_final, struct want *ret)
{
    *ret = (struct want){.request = {.size = sizeof(ret->request), .amounts_n = LIMITS}};
    for (int i = 0; i < LIMITS; i++)
        ret->items[i] =
            (struct weir_amount){keys[i], random_below(&me->random, i == TOKENS ? 9 : 3)};
    if (is_final)
        ret->items[SLOTS].amount = 0;
    ret->request.amounts = ret->items;
    ret->request.timeout_ns = 1 + random_below(&me->random, 20 * MS);
}

static void note_grant(struct worker *me, const struct want *want, uint64_t since)
{
    struct event event = {.lo = since, .hi = clock_now()};

    for (int i = 0; i < LIMITS; i++)
        event.amounts[i] = (uint32_t)want->items[i].amount;
    history_add(&me->history, &event);
}

/* What is refunded may come back at any time after `since`. */
static void note_refund(struct worker *me, uint64_t tokens, uint64_t since)
{
    struct refund refund = {.lo = since, .hi = UINT64_MAX};

    refund.amounts[TOKENS] = (uint32_t)tokens;
    history_add_refund(&me->history, &refund);
}

static void give_back(struct worker *me, const struct want *want, weir_acquisition *acquisition)
{
    uint64_t tokens = want->items[TOKENS].amount, calls = want->items[CALLS].amount;
    uint64_t used = random_below(&me->random, tokens + 1);

    if (tokens)
        require(weir_update(acquisition, "tokens", used) == 0);
    if (calls > 1)
        require(weir_update(acquisition, "call_count", calls) == 0);
    note_refund(me, tokens - used, clock_now());
    atomic_fetch_sub(&held, (unsigned)want->items[SLOTS].amount);
    require(weir_release(&acquisition) == 0);
}

static void use(struct worker *me, const struct want *want, weir_acquisition *acquisition,
                uint64_t since)
{
    unsigned slots = (unsigned)want->items[SLOTS].amount;

    note_grant(me, want, since);
    me->granted++;
    require(atomic_fetch_add(&held, slots) + slots <= CAPACITY);
    if (random_below(&me->random, 4) == 0)
        pause_ns(random_below(&me->random, 200 * US));
    give_back(me, want, acquisition);
}

/* Asks, looks for a while, and cancels what was not granted by then. */
static void submit_and_cancel(struct worker *me, const struct want *want, uint64_t since)
{
    weir_acquisition *acquisition = NULL;
    int r = weir_submit(world.pool, &want->request, &acquisition, NULL);

    require(r == 0 || r == 1);
    if (r == 1)
        pause_ns(random_below(&me->random, 2 * MS));
    r = weir_acquisition_result(acquisition);
    if (r == 0) {
        use(me, want, acquisition, since);
        return;
    }
    require(r == -EINPROGRESS || r == -ETIMEDOUT);
    note_refund(me, want->items[TOKENS].amount, since); /* if it was granted meanwhile */
    r = weir_cancel(acquisition);
    require(r == 0 || r == -EALREADY); /* decided meanwhile: then it goes back unseen */
    require(weir_release(&acquisition) == 0);
}

static void step(struct worker *me)
{
    uint64_t how = random_below(&me->random, 4), since;
    weir_acquisition *acquisition = NULL;
    struct want want;
    int r = 0;

    choose(me, how == 0, &want);
    since = clock_now();
    if (how == 0)
        r = weir_take(world.pool, &want.request, NULL);
    else if (how == 1)
        r = weir_try_acquire(world.pool, &want.request, &acquisition, NULL);
    else if (how == 2)
        r = weir_acquire(world.pool, &want.request, &acquisition, NULL);
    else
        submit_and_cancel(me, &want, since);
    require(r == 0 || r == -EAGAIN || (how == 2 && r == -ETIMEDOUT));
    if (how == 0 && r == 0) {
        note_grant(me, &want, since);
        me->taken++;
    }
    if (acquisition)
        use(me, &want, acquisition, since);
}

static void *work(void *argument)
{
    struct worker *me = argument;

    for (uint64_t i = 0; i < me->steps; i++)
        step(me);
    return NULL;
}

static void check_counts(uint64_t granted, uint64_t taken)
{
    struct weir_set_stats all;

    settle();
    all = stats();
    assert_int_equal(all.taken, taken);
    assert_true(all.granted >= granted + taken); /* and what was canceled after its grant */
    assert_int_equal(all.granted, all.taken + all.released);
    assert_int_equal(all.missing_update, 0);
    assert_int_equal(all.held, 0);
    assert_int_equal(all.waiting, 0);
    assert_int_equal(weir_set_holders(world.set, NULL, 0), 0);
    assert_int_equal(limit_stats(SLOTS).held, 0);
    assert_int_equal(available(SLOTS), CAPACITY);
}

static void histories_keep_what_is_promised(void **state)
{
    static struct worker workers[THREADS];
    struct history history = {0};
    uint64_t granted = 0, taken = 0;

    (void)state;
    seed_begin();
    world_real("limits: [ { type: rate, key: tokens, algorithm: token_bucket, capacity: 4000,"
               " window: 1s, burst: 40 }, { type: call, algorithm: sliding_window, capacity: 15,"
               " window: 5ms }, { type: resource, key: slots, capacity: 3 } ]");
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.random = random_case(test_seed, i),
                                     .steps = effort_from("WEIR_OPERATIONS", STEPS)};
        require(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        require(pthread_join(workers[i].thread, NULL) == 0);
        granted += workers[i].granted;
        taken += workers[i].taken;
        history_merge(&history, &workers[i].history);
    }
    require(granted > 0 && taken > 0);
    if (backend->is_foreign)
        history_date_by_replies(&history, 1u << TOKENS | 1u << CALLS);
    require(history_keeps_rate(&history, TOKENS, BURST, RATE, SECOND));
    require(history_keeps_window(&history, CALLS, WINDOW, 5 * MS));
    check_counts(granted, taken);
    print_message("%" PRIu64 " grants, %" PRIu64 " takes\n", granted, taken);
    history_free(&history);
    world_close();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {leak_checked_test(histories_keep_what_is_promised)};

    backend_choose(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
