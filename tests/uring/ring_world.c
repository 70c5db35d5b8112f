/* SPDX-License-Identifier: MIT */
/* The world of a test: made, looked at, and checked when it goes. */
#include "ring_world.h"

#include <fcntl.h>

struct ring_world world;

struct variant {
    unsigned kind;
    unsigned without; /* features that the test does without */
};

static void open_limits(void)
{
    const struct weir_limit_spec limits[] = {
        {.size = sizeof(limits[0]), .type = WEIR_LIMIT_RESOURCE, .key = "slot", .capacity = 1},
        {.size = sizeof(limits[0]),
         .type = WEIR_LIMIT_RATE,
         .key = "tokens",
         .algorithm = "token_bucket",
         .capacity = TOKENS,
         .window_ns = TOKENS * 3600 * SECOND},
    };
    struct weir_set_spec spec = {
        .size = sizeof(spec), .name = "set", .limits = limits, .limits_n = 2};
    struct weir_pool_spec pool_spec = {.size = sizeof(pool_spec), .sets = &spec, .sets_n = 1};
    struct weir_error error = {0};

    require(weir_open(&world.w, NULL, NULL) == 0);
    if (weir_pool_new(&world.pool, world.w, &pool_spec, &error) < 0) {
        fprintf(stderr, "%s\n", error.message);
        require(!"a pool");
    }
    world.set = weir_pool_set(world.pool, 0);
}

int submit(uint64_t slots, uint64_t tokens, uint64_t timeout_ns, uint64_t max_wait_ns,
           weir_acquisition **ret)
{
    const struct weir_amount amounts[] = {{"slot", slots}, {"tokens", tokens}};
    const struct weir_request request = {.size = sizeof(request),
                                         .amounts = amounts,
                                         .amounts_n = 2,
                                         .timeout_ns = timeout_ns,
                                         .max_wait_ns = max_wait_ns};

    return weir_submit(world.pool, &request, ret, NULL);
}

static int setup(void **state)
{
    const struct variant *variant = *state;

    fixture_setup(state);
    world.kind = variant->kind;
    world.uring = world.probed;
    world.uring.features &= ~variant->without;
    require(io_uring_queue_init(ENTRIES, &world.ring, ring_kinds[world.kind].flags) == 0);
    require(pipe2(world.out, O_CLOEXEC | O_NONBLOCK) == 0);
    open_limits();
    require(submit(1, 0, 0, 0, &world.holder) == 0);
    memset(&world.wait, 0xee, sizeof(world.wait));
    memset(&world.other_wait, 0xee, sizeof(world.other_wait));
    return 0;
}

int written(void)
{
    char bytes[64];
    ssize_t n = read(world.out[0], bytes, sizeof(bytes));

    return n < 0 ? 0 : (int)n;
}

static bool missed(bool fine, const char *what)
{
    if (!fine)
        fprintf(stderr, "after the test: %s\n", what);
    return !fine;
}

/* Whether anything is held or missing, or left on the ring. */
static bool anything_left(void)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[2];
    struct io_uring_cqe cqe;
    bool left = missed(ring_next(&world.ring, 1, &cqe) == -ETIME, "a completion on the ring");

    require(weir_set_stats(world.set, &stats, limits, 2) == 2);
    left |= missed(stats.held == 0 && stats.waiting == 0, "a request holds or waits");
    left |= missed(stats.granted == stats.released + stats.taken, "a grant was not released");
    left |= missed(limits[0].available == 1, "the slot is not there");
    left |= missed(limits[1].available == TOKENS, "tokens are missing");
    return left | missed(written() == 0, "an operation ran");
}

static int teardown(void **state)
{
    bool left;

    require(weir_release(&world.holder) == 0);
    left = anything_left();
    weir_close(world.w);
    weir_pool_close(world.pool);
    io_uring_queue_exit(&world.ring);
    close(world.out[0]);
    close(world.out[1]);
    return fixture_teardown(state) != 0 || left ? -1 : 0;
}

weir_acquisition *pending(void)
{
    weir_acquisition *acquisition = NULL;

    assert_int_equal(submit(1, 2, WEIR_FOREVER, 0, &acquisition), 1);
    return acquisition;
}

void grant(void)
{
    assert_int_equal(weir_release(&world.holder), 0);
}

void submit_ring(void)
{
    unsigned n = io_uring_sq_ready(&world.ring);

    assert_int_equal(io_uring_submit(&world.ring), n);
}

void expect(uint64_t user_data, int res)
{
    struct io_uring_cqe cqe = {0};

    assert_int_equal(ring_next(&world.ring, PATIENCE, &cqe), 0);
    assert_int_equal(cqe.user_data, user_data);
    assert_int_equal(cqe.res, res);
}

void expect_woken(uint64_t user_data)
{
    expect(user_data, world.uring.features & WEIR_URING_READ ? 8 : POLLIN);
}

void expect_nothing(void)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&world.ring);

    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data64(sqe, MARK);
    submit_ring();
    expect(MARK, 0);
    assert_int_equal(io_uring_cq_ready(&world.ring), 0);
}

struct io_uring_sqe *prepare_write(uint64_t user_data)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&world.ring);

    assert_non_null(sqe);
    io_uring_prep_write(sqe, world.out[1], "x", 1, 0);
    io_uring_sqe_set_data64(sqe, user_data);
    return sqe;
}

void prepare_linked(weir_acquisition *acquisition, uint64_t deadline_ns, unsigned next)
{
    assert_int_equal(weir_uring_prep_linked_wait(&world.uring, &world.ring, &world.wait,
                                                 acquisition, deadline_ns, HEAD, next),
                     0);
}

void link_write(weir_acquisition *acquisition, uint64_t deadline_ns)
{
    prepare_linked(acquisition, deadline_ns, 1);
    prepare_write(OPERATION);
    submit_ring();
}

void cancel(uint64_t target)
{
    assert_int_equal(weir_uring_prep_cancel(&world.ring, target, CANCEL), 0);
    submit_ring();
}

void expect_both(uint64_t user_data, int res, uint64_t other, int other_res)
{
    struct io_uring_cqe cqe = {0};

    assert_int_equal(ring_next(&world.ring, PATIENCE, &cqe), 0);
    if (cqe.user_data != user_data) {
        assert_int_equal(cqe.user_data, other);
        assert_int_equal(cqe.res, other_res);
        expect(user_data, res);
        return;
    }
    assert_int_equal(cqe.res, res);
    expect(other, other_res);
}

void expect_ran(weir_acquisition *acquisition)
{
    expect(OPERATION, 1);
    expect_nothing();
    assert_int_equal(written(), 1);
    assert_int_equal(weir_uring_settle(&acquisition, true), 0);
    assert_non_null(acquisition);
    assert_int_equal(weir_cancel(acquisition), -EALREADY);
    assert_int_equal(weir_update(acquisition, "tokens", 0), 0);
    assert_int_equal(weir_release(&acquisition), 0);
}

void settle_unused(weir_acquisition *acquisition, int code)
{
    expect_nothing();
    assert_int_equal(weir_uring_settle(&acquisition, false), code);
    assert_null(acquisition);
    expect_nothing();
    assert_int_equal(written(), 0);
}

void release_unused(weir_acquisition *acquisition)
{
    if (weir_acquisition_result(acquisition) == 0)
        assert_int_equal(weir_update(acquisition, "tokens", 0), 0);
    assert_int_equal(weir_release(&acquisition), 0);
}

uint64_t granted_n(void)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};

    require(weir_set_stats(world.set, &stats, NULL, 0) == 2);
    return stats.granted;
}

void fill_ring(unsigned n)
{
    while (io_uring_sq_space_left(&world.ring) > n) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&world.ring);

        io_uring_prep_nop(sqe);
        io_uring_sqe_set_data64(sqe, MARK);
    }
}

void empty_ring(void)
{
    unsigned n = io_uring_sq_ready(&world.ring);

    submit_ring();
    while (n--)
        expect(MARK, 0);
}

static void kernel_lacks_it(void **state)
{
    (void)state;
    print_message("this kernel lacks what it needs\n");
    skip();
}

enum { VARIANTS_MAX = 2 * RING_KINDS, NAME_SIZE = 128 };

/* One of the tests that come of a case: on a kind of ring, with READ or with POLL_ADD. */
static void make_test(const struct ring_case *from, const struct variant *variant, char *name,
                      struct CMUnitTest *ret)
{
    bool with_read = !(variant->without & WEIR_URING_READ);
    unsigned needs = from->needs | (with_read ? WEIR_URING_READ : 0);
    bool can = ring_exists(variant->kind) && (world.probed.features & needs) == needs;

    snprintf(name, NAME_SIZE, "%s%s%s%s", from->name, from->when == ONCE ? "" : ".",
             from->when == ONCE ? "" : ring_kinds[variant->kind].name,
             from->when < PER_FORM ? ""
             : with_read           ? ".read"
                                   : ".poll");
    *ret = (struct CMUnitTest){name, can ? from->function : kernel_lacks_it, can ? setup : NULL,
                               can ? teardown : NULL, (void *)(uintptr_t)variant};
}

/* Whether a case is to be run on this variant. */
static bool wanted(const struct ring_case *from, const struct variant *variant)
{
    if (from->when < PER_FORM && !variant->without)
        return false;
    return variant->kind == DEFAULT || from->when == PER_RING || from->when == PER_FORM;
}

int world_run(const struct ring_case *cases, size_t n)
{
    static struct variant variants[VARIANTS_MAX];
    struct CMUnitTest *tests;
    char(*names)[NAME_SIZE];
    size_t tests_n = 0;
    int failed;

    if (!rings_begin(&world.probed))
        return 77;
    tests = calloc(n * VARIANTS_MAX, sizeof(*tests));
    names = calloc(n * VARIANTS_MAX, sizeof(*names));
    require(tests && names);
    for (unsigned i = 0; i < VARIANTS_MAX; i++) {
        variants[i] = (struct variant){i / 2, i % 2 ? 0 : WEIR_URING_READ};
        for (size_t j = 0; j < n; j++) {
            if (!wanted(&cases[j], &variants[i]))
                continue;
            make_test(&cases[j], &variants[i], names[tests_n], &tests[tests_n]);
            tests_n++;
        }
    }
    failed = _cmocka_run_group_tests("uring", tests, tests_n, NULL, NULL);
    free(tests);
    free(names);
    return failed != 0;
}
