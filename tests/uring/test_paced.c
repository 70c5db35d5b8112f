/* SPDX-License-Identifier: MIT */
/* Operations that start at an instant, and what was reserved for them. */
#include "ring_world.h"

static void prepare_paced(uint64_t at_ns, unsigned next)
{
    assert_int_equal(
        weir_uring_prep_paced(&world.uring, &world.ring, &world.wait, at_ns, HEAD, next), 0);
}

static void pace_write(uint64_t at_ns)
{
    prepare_paced(at_ns, 1);
    prepare_write(OPERATION);
    submit_ring();
    memset(&world.wait, 0xee, sizeof(world.wait)); /* the kernel has its copy */
}

static void paced_runs_at_its_instant(void **state)
{
    uint64_t at_ns = SOON;

    (void)state;
    pace_write(at_ns);
    expect(OPERATION, 1);
    assert_true(clock_now() >= at_ns);
    expect_nothing();
    assert_int_equal(written(), 1);
}

static void paced_runs_at_once_if_its_instant_has_passed(void **state)
{
    (void)state;
    pace_write(0);
    expect(OPERATION, 1);
    pace_write(LONG_SINCE);
    expect(OPERATION, 1);
    expect_nothing();
    assert_int_equal(written(), 2);
}

static void paced_is_canceled(void **state)
{
    (void)state;
    pace_write(FAR);
    expect_nothing();
    cancel(HEAD);
    expect_both(CANCEL, 0, HEAD, -ECANCELED);
    expect_nothing();
    assert_int_equal(written(), 0);
}

static void several_paced_operations_run_in_order(void **state)
{
    (void)state;
    prepare_paced(SOON, 2);
    prepare_write(OPERATION)->flags |= IOSQE_IO_LINK;
    prepare_write(SECOND_OPERATION);
    submit_ring();
    expect(OPERATION, 1);
    expect(SECOND_OPERATION, 1);
    expect_nothing();
    assert_int_equal(written(), 2);
}

static void malformed_paced_operation_ends_the_chain(void **state)
{
    (void)state;
    prepare_paced(FAR, 1);
    prepare_write(OPERATION)->opcode = 255;
    submit_ring();
    expect(HEAD, -ECANCELED);
    expect_nothing();
}

/* Pacing what was reserved. */

enum { PACED_MAX = 5 };

/* One send per window; and tokens. */
static weir_pool *open_paced(uint64_t window_ns)
{
    const struct weir_setting no_burst = {"burst", "1"};
    const struct weir_limit_spec limits[] = {
        {.size = sizeof(limits[0]),
         .type = WEIR_LIMIT_RATE,
         .key = "sends",
         .algorithm = "gcra",
         .capacity = 1,
         .window_ns = window_ns,
         .settings = &no_burst,
         .settings_n = 1},
        {.size = sizeof(limits[0]),
         .type = WEIR_LIMIT_RATE,
         .key = "tokens",
         .algorithm = "token_bucket",
         .capacity = TOKENS,
         .window_ns = TOKENS * 3600 * SECOND},
    };
    struct weir_set_spec spec = {
        .size = sizeof(spec), .name = "paced", .limits = limits, .limits_n = 2};
    struct weir_pool_spec pool_spec = {.size = sizeof(pool_spec), .sets = &spec, .sets_n = 1};
    weir_pool *paced = NULL;

    assert_int_equal(weir_pool_new(&paced, world.w, &pool_spec, NULL), 0);
    return paced;
}

static weir_acquisition *reserve(weir_pool *paced, uint64_t *ret_at_ns)
{
    const struct weir_amount amounts[] = {{"sends", 1}, {"tokens", 2}};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = amounts, .amounts_n = 2};
    weir_acquisition *acquisition = NULL;

    assert_int_equal(weir_reserve(paced, &request, &acquisition, ret_at_ns, NULL), 0);
    return acquisition;
}

static void close_paced(weir_pool *paced, uint64_t tokens_used)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[2];

    assert_int_equal(weir_set_stats(weir_pool_set(paced, 0), &stats, limits, 2), 2);
    assert_int_equal(stats.held, 0);
    assert_int_equal(stats.granted, stats.released);
    assert_int_equal(stats.missing_update, 0);
    assert_int_equal(limits[1].available, TOKENS - tokens_used);
    weir_pool_close(paced);
}

static void reservations_run_at_their_instants(void **state)
{
    weir_pool *paced = open_paced(3 * MS);
    weir_acquisition *acquisitions[PACED_MAX];
    struct weir_uring_wait waits[PACED_MAX];
    uint64_t at_ns[PACED_MAX];

    (void)state;
    for (unsigned i = 0; i < PACED_MAX; i++) {
        acquisitions[i] = reserve(paced, &at_ns[i]);
        assert_true(i == 0 || at_ns[i] >= at_ns[i - 1] + 3 * MS);
        assert_int_equal(
            weir_uring_prep_paced(&world.uring, &world.ring, &waits[i], at_ns[i], FREE + i, 1), 0);
        prepare_write(FREE + PACED_MAX + i);
    }
    submit_ring();
    for (unsigned i = 0; i < PACED_MAX; i++) {
        expect(FREE + PACED_MAX + i, 1);
        assert_true(clock_now() >= at_ns[i]);
        assert_int_equal(weir_uring_settle(&acquisitions[i], true), 0);
        assert_int_equal(weir_update(acquisitions[i], "sends", 1), 0);
        assert_int_equal(weir_update(acquisitions[i], "tokens", 1), 0);
        assert_int_equal(weir_release(&acquisitions[i]), 0);
    }
    expect_nothing();
    assert_int_equal(written(), PACED_MAX);
    close_paced(paced, PACED_MAX);
}

static void reservation_is_refunded(void **state)
{
    weir_pool *paced = open_paced(60 * SECOND);
    uint64_t at_ns, later_ns;
    weir_acquisition *acquisition = reserve(paced, &at_ns), *later = reserve(paced, &later_ns);

    (void)state;
    assert_true(later_ns >= at_ns + 60 * SECOND);
    pace_write(later_ns);
    expect_nothing();
    cancel(HEAD);
    expect_both(CANCEL, 0, HEAD, -ECANCELED);
    settle_unused(later, -ECANCELED);
    fill_ring(1);
    assert_int_equal(weir_uring_prep_paced(&world.uring, &world.ring, &world.wait, at_ns, HEAD, 1),
                     -EBUSY); /* then it is not sent at all */
    empty_ring();
    settle_unused(acquisition, -ECANCELED);
    close_paced(paced, 0);
}

int main(void)
{
    static const struct ring_case cases[] = {
        PACED(paced_runs_at_its_instant),
        PACED(paced_runs_at_once_if_its_instant_has_passed),
        PACED(paced_is_canceled),
        PACED(several_paced_operations_run_in_order),
        PACED(malformed_paced_operation_ends_the_chain),
        PACED(reservations_run_at_their_instants),
        PACED(reservation_is_refunded),
    };

    return world_run(cases, sizeof(cases) / sizeof(cases[0]));
}
