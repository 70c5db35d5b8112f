/* SPDX-License-Identifier: MIT */
/* Limits of resources that adapt: they settle near the best concurrency of a simulated service,
 * follow its changes, and stay within their bounds whatever they are told. */
#include "lib/service_changes.h"
#include "lib/world.h"
#include <inttypes.h>

#define SHARED "backend: process, lifetime: users, "

static const char *const algorithms[] = {"aimd", "gradient2", "vegas"};
#define ALGORITHMS (sizeof(algorithms) / sizeof(*algorithms))

static void open_limit(const char *fields, const char *algorithm, const char *parameters)
{
    char text[256];

    snprintf(text, sizeof(text), "%slimits: [ { type: resource, key: slots, algorithm: %s, %s } ]",
             fields, algorithm, parameters);
    world_set(text);
}

static uint64_t gauge(const char *name)
{
    struct weir_limit_gauge gauges[WEIR_GAUGES_MAX];
    int n = weir_set_limit_gauges(world.set, 0, gauges, WEIR_GAUGES_MAX);

    for (int i = 0; i < n; i++)
        if (strcmp(gauges[i].name, name) == 0)
            return gauges[i].value;
    fail_msg("no gauge %s", name);
    return 0;
}

/* One unit is held for `ns`, and released with this outcome. */
static void work(uint64_t ns, uint32_t outcome)
{
    weir_acquisition *a = granted(ASK({"slots", 1}));

    advance(ns);
    assert_int_equal(weir_outcome(a, outcome, 0), 0);
    release(a);
}

/* As many as the limit has are held, and each is released with this outcome. */
static void work_in_full(uint64_t ns, uint32_t outcome)
{
    weir_acquisition *held[512];
    size_t n = 0;

    while (n < 512 && try_acquire(ASK({"slots", 1}), &held[n]) == 0)
        n++;
    advance(ns);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(weir_acquisition_result(held[i]), 0);
        assert_int_equal(weir_outcome(held[i], outcome, 0), 0);
        release(held[i]);
    }
}

/* ---- a service that changes ---- */

/* What was seen of the second half of a phase. */
struct settled {
    const char *algorithm;
    uint64_t half_ns; /* of a phase */
    uint64_t limits, n, done;
};

static void check_phase(const struct settled *settled, size_t number)
{
    const struct service_phase *phase = &service_changes[number];
    uint64_t limit = settled->limits / settled->n;
    uint64_t possible = phase->servers * settled->half_ns / phase->service_ns;

    if (phase->clients < phase->servers) {
        /* It is not used, and does not grow beyond what it was. */
        assert_in_range(limit, phase->clients, 2 * service_changes[number - 1].servers);
        return;
    }
    if (limit < phase->servers * 4 / 5 || limit > 2 * phase->servers)
        fail_msg("%s, phase %zu: the limit is %" PRIu64 ", and %" PRIu32 " would be best",
                 settled->algorithm, number, limit, phase->servers);
    if (settled->done < possible / 10 * 9)
        fail_msg("%s, phase %zu: %" PRIu64 " done of %" PRIu64, settled->algorithm, number,
                 settled->done, possible);
}

static void see_sample(void *userdata, size_t phase, const struct service_sample *sample)
{
    struct settled *settled = userdata;
    uint64_t phase_ns = 2 * settled->half_ns, into_ns = sample->at_ns - phase * phase_ns;

    if (into_ns <= settled->half_ns)
        return;
    settled->limits += sample->limit;
    settled->done += sample->done;
    settled->n++;
    if (into_ns < phase_ns)
        return;
    check_phase(settled, phase);
    settled->limits = settled->done = settled->n = 0;
}

/* The same on each machine: the service, its clients and the clock are simulated. */
static void they_settle_near_the_best_concurrency_and_follow(void **state)
{
    struct service_phase phases[SERVICE_CHANGES];

    (void)state;
    for (size_t i = 0; i < ALGORITHMS; i++) {
        struct settled settled = {.algorithm = algorithms[i], .half_ns = 10 * SECOND};
        struct service_plan plan = {.phases = phases,
                                    .phases_n = SERVICE_CHANGES,
                                    .seed = 17,
                                    .sample_ns = SECOND / 2,
                                    .key = "slots",
                                    .sample = see_sample,
                                    .userdata = &settled};

        for (size_t k = 0; k < SERVICE_CHANGES; k++) {
            phases[k] = service_changes[k];
            phases[k].for_ns = 2 * settled.half_ns;
        }
        open_limit("", algorithms[i], "capacity: 200");
        assert_int_equal(service_run(&plan, world.pool, &world.now), 0);
        assert_int_equal(gauge("held"), 0);
        world_close();
    }
}

/* ---- bounds ---- */

static void a_limit_that_fell_to_its_floor_recovers(void **state)
{
    static const char *const fields[] = {"", SHARED};

    (void)state;
    for (size_t i = 0; i < ALGORITHMS * 2; i++) {
        open_limit(fields[i / ALGORITHMS], algorithms[i % ALGORITHMS], "capacity: 100, floor: 2");
        for (int k = 0; k < 3000; k++)
            work(10 * MS, WEIR_OUTCOME_OVERLOAD);
        assert_int_equal(gauge("limit"), 2);
        for (int k = 0; k < 1500; k++)
            work_in_full(10 * MS, WEIR_OUTCOME_SUCCESS);
        assert_in_range(gauge("limit"), 20, 100);
        world_close();
    }
}

static void a_limit_grows_no_further_than_its_capacity(void **state)
{
    (void)state;
    for (size_t i = 0; i < ALGORITHMS; i++) {
        open_limit("", algorithms[i], "capacity: 30");
        for (int k = 0; k < 600; k++)
            work_in_full(10 * MS, WEIR_OUTCOME_SUCCESS);
        assert_in_range(gauge("limit"), 15, 30); /* half of it during a probe */
        assert_int_equal(limit_stats(0).capacity, 30);
        world_close();
    }
}

static void a_limit_that_is_not_used_stays(void **state)
{
    (void)state;
    for (size_t i = 0; i < ALGORITHMS; i++) {
        open_limit("", algorithms[i], "capacity: 100, initial: 40");
        for (int k = 0; k < 3000; k++)
            work(10 * MS, WEIR_OUTCOME_SUCCESS);
        assert_true(gauge("limit") == 40 || gauge("limit") == 20);
        world_close();
    }
}

static void only_success_and_overload_say_anything(void **state)
{
    static const uint32_t silent[] = {WEIR_OUTCOME_FAILURE, WEIR_OUTCOME_IGNORED};

    (void)state;
    for (size_t i = 0; i < ALGORITHMS; i++) {
        open_limit("", algorithms[i], "capacity: 100");
        for (int k = 0; k < 200; k++)
            work_in_full(k % 50 * 10 * MS, silent[k % 2]);
        assert_int_equal(gauge("limit"), 20);
        assert_int_equal(gauge("held"), 0);
        world_close();
    }
}

static void an_amount_above_the_limit_is_granted_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < ALGORITHMS; i++) {
        weir_acquisition *one, *many, *next;

        open_limit("", algorithms[i], "capacity: 50, initial: 4");
        one = granted(ASK({"slots", 1}));
        many = pending(ASK({"slots", 30}));
        next = pending(ASK({"slots", 1})); /* no request overtakes it */
        release(one);
        assert_int_equal(weir_acquisition_result(many), 0);
        assert_int_equal(weir_acquisition_result(next), -EINPROGRESS);
        assert_int_equal(gauge("held"), 30);
        assert_int_equal(available(0), 0);
        release(many);
        assert_int_equal(weir_acquisition_result(next), 0);
        release(next);
        assert_int_equal(try_acquire(ASK({"slots", 51}), &one), -ERANGE);
        world_close();
    }
}

static void more_than_one_waiter_is_granted_when_the_limit_grows(void **state)
{
    weir_acquisition *a, *b, *c, *d;

    (void)state;
    open_limit("", "aimd", "capacity: 50, initial: 2, increase: 4");
    a = granted(ASK({"slots", 1}));
    b = granted(ASK({"slots", 1}));
    c = pending(ASK({"slots", 1}));
    d = pending(ASK({"slots", 1}));
    assert_int_equal(weir_acquisition_result(a), 0);
    release(a); /* the limit is 4 then */
    assert_int_equal(weir_acquisition_result(c), 0);
    assert_int_equal(weir_acquisition_result(d), 0);
    assert_int_equal(gauge("limit"), 4);
    assert_int_equal(gauge("held"), 3);
    release(b);
    release(c);
    release(d);
    world_close();
}

/* ---- aimd, step by step ---- */

static void aimd_grows_by_a_unit_in_a_round(void **state)
{
    weir_acquisition *ten;

    (void)state;
    open_limit("", "aimd", "capacity: 100, initial: 20");
    ten = granted(ASK({"slots", 10}));
    for (int k = 0; k < 20; k++)
        work(1 * MS, WEIR_OUTCOME_SUCCESS);
    assert_int_equal(gauge("limit"), 20); /* a twentieth each, less as it grows */
    work(1 * MS, WEIR_OUTCOME_SUCCESS);
    assert_int_equal(gauge("limit"), 21);
    release(ten);
    world_close();
}

static void aimd_falls_once_in_a_round(void **state)
{
    (void)state;
    open_limit("", "aimd", "capacity: 100, initial: 20, backoff: 50, timeout: 10ms");
    work(1 * MS, WEIR_OUTCOME_OVERLOAD);
    assert_int_equal(gauge("limit"), 10);
    for (int k = 0; k < 9; k++)
        work(1 * MS, WEIR_OUTCOME_OVERLOAD);
    assert_int_equal(gauge("limit"), 10);
    work(11 * MS, WEIR_OUTCOME_SUCCESS); /* took too long */
    assert_int_equal(gauge("limit"), 5);
    for (int k = 0; k < 20; k++)
        work(10 * MS, WEIR_OUTCOME_SUCCESS);
    work(11 * MS, WEIR_OUTCOME_FAILURE);
    assert_int_equal(gauge("limit"), 5);
    world_close();
}

/* ---- probes ---- */

static void a_probe_halves_the_limit_and_finds_the_base(void **state)
{
    weir_acquisition *early;

    (void)state;
    open_limit("", "vegas", "capacity: 100, initial: 40, window: 10ms, probe: 1s");
    for (int k = 0; k < 1000 && gauge("limit") != 20; k++)
        work(10 * MS, WEIR_OUTCOME_SUCCESS);
    assert_int_equal(gauge("latency_base"), 10 * MS);
    early = granted(ASK({"slots", 1}));
    for (int k = 0; k < 20; k++) /* until the queue is empty */
        work(30 * MS, WEIR_OUTCOME_SUCCESS);
    assert_int_equal(gauge("limit"), 20);
    assert_int_equal(gauge("latency_base"), 10 * MS);
    release(early); /* was granted before the queue was empty */
    for (int k = 0; k < 100; k++)
        work(25 * MS, WEIR_OUTCOME_SUCCESS);
    assert_int_equal(gauge("latency_base"), 25 * MS);
    assert_int_equal(gauge("limit"), 40);
    world_close();
}

static void a_limit_that_fell_by_half_is_probed_at_once(void **state)
{
    (void)state;
    open_limit("", "vegas", "capacity: 100, initial: 40, window: 10ms, probe: 1d");
    for (int k = 0; k < 20; k++)
        work_in_full(10 * MS, WEIR_OUTCOME_SUCCESS);
    assert_int_equal(gauge("latency_base"), 10 * MS);
    for (int k = 0; k < 300 && gauge("latency_base") == 10 * MS; k++)
        work_in_full(30 * MS, WEIR_OUTCOME_SUCCESS);
    assert_int_equal(gauge("latency_base"), 30 * MS);
    world_close();
}

static void vegas_falls_while_too_many_wait_in_the_service(void **state)
{
    uint64_t before;

    (void)state;
    open_limit("", "vegas", "capacity: 100, window: 10ms, probe: 1d");
    for (int k = 0; k < 20; k++)
        work_in_full(10 * MS, WEIR_OUTCOME_SUCCESS);
    before = gauge("limit");
    for (int k = 0; k < 10; k++) /* half of the limit waits */
        work_in_full(20 * MS, WEIR_OUTCOME_SUCCESS);
    assert_in_range(gauge("limit"), before / 2, before - 5);
    world_close();
}

/* ---- shared ---- */

static void processes_share_what_was_learned(void **state)
{
    (void)state;
    for (size_t i = 0; i < ALGORITHMS; i++) {
        struct twin other;
        weir_acquisition *a = NULL, *b = NULL;

        open_limit(SHARED, algorithms[i], "capacity: 100, initial: 1");
        other = world_twin("main");
        assert_int_equal(weir_try_acquire(other.pool, ASK({"slots", 1}), &a, NULL), 0);
        assert_int_equal(try_acquire(ASK({"slots", 1}), &b), -EAGAIN);
        b = pending(ASK({"slots", 1}));
        assert_int_equal(weir_outcome(a, WEIR_OUTCOME_SUCCESS, 0), 0);
        assert_int_equal(weir_release(&a), 0);
        assert_int_equal(weir_acquisition_result(b), 0);
        release(b);
        for (int k = 0; k < 300; k++) {
            assert_int_equal(weir_try_acquire(other.pool, ASK({"slots", 1}), &a, NULL), 0);
            advance(10 * MS);
            assert_int_equal(weir_outcome(a, WEIR_OUTCOME_SUCCESS, 0), 0);
            assert_int_equal(weir_release(&a), 0);
        }
        assert_in_range(gauge("limit"), 2, 100);
        world_twin_close(&other);
        world_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(they_settle_near_the_best_concurrency_and_follow),
        leak_checked_test(a_limit_that_fell_to_its_floor_recovers),
        leak_checked_test(a_limit_grows_no_further_than_its_capacity),
        leak_checked_test(a_limit_that_is_not_used_stays),
        leak_checked_test(only_success_and_overload_say_anything),
        leak_checked_test(an_amount_above_the_limit_is_granted_alone),
        leak_checked_test(more_than_one_waiter_is_granted_when_the_limit_grows),
        leak_checked_test(aimd_grows_by_a_unit_in_a_round),
        leak_checked_test(aimd_falls_once_in_a_round),
        leak_checked_test(a_probe_halves_the_limit_and_finds_the_base),
        leak_checked_test(a_limit_that_fell_by_half_is_probed_at_once),
        leak_checked_test(vegas_falls_while_too_many_wait_in_the_service),
        leak_checked_test(processes_share_what_was_learned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
