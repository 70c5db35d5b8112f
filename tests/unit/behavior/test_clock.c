/* SPDX-License-Identifier: MIT */
/* Which clock an instance uses, which request decides that, and which log callbacks report it, on a
 * machine with a clock and a counter that are moved by hand: each look at one of them takes 5 ns.
 */
#include "api/instance.h"
#include "base/clock.h"
#include "lib/tmpdir.h"
#include "lib/world.h"
#include <stdatomic.h>
#include <unistd.h>

static _Atomic uint64_t hand_ns, ticks_lost;

static uint64_t look_at_clock(void *userdata)
{
    (void)userdata;
    return atomic_fetch_add(&hand_ns, 5);
}

static uint64_t look_at_counter(void *userdata)
{
    (void)userdata;
    return atomic_fetch_add(&hand_ns, 5) * 3 - ticks_lost;
}

static struct fake_counter counter = {.ticks = look_at_counter, .now_ns = look_at_clock};

static struct {
    char message[256];
    unsigned n;
    enum weir_log_level level;
} heard;

static void hear(void *userdata, enum weir_log_level level, const char *message)
{
    (void)userdata;
    snprintf(heard.message, sizeof(heard.message), "%s", message);
    heard.level = level;
    heard.n++;
}

static int setup(void **state)
{
    int r = fixture_setup(state);

    atomic_store(&hand_ns, START);
    atomic_store(&ticks_lost, 0);
    counter.usable = 0;
    heard.n = 0;
    heard.message[0] = '\0';
    fake_os_set_counter(&counter);
    return r;
}

#define clock_test(function) cmocka_unit_test_setup_teardown(function, setup, fixture_teardown)

static weir *opened(const struct weir_options *options)
{
    struct weir_error error = {0};
    weir *w = NULL;

    if (weir_open(&w, options, &error) < 0)
        fail_msg("%s: %s", error.file, error.message);
    return w;
}

static weir *opened_on(enum weir_clock_source source, const char *text)
{
    return opened(&(struct weir_options){
        .size = sizeof(struct weir_options), .text = text, .clock_source = source, .log = hear});
}

/* The decision */

static void assert_clock(enum weir_clock_source source, const char *text,
                         enum weir_clock_source expected)
{
    weir *w = opened_on(source, text);

    assert_int_equal(weir_clock_in_use(w), expected);
    weir_close(w);
}

static void options_come_before_the_configuration(void **state)
{
    static const char silent[] = "version: 1\n", tsc[] = "version: 1\nclock: tsc\n",
                      monotonic[] = "version: 1\nclock: monotonic\n";

    (void)state;
    assert_clock(WEIR_CLOCK_DEFAULT, NULL, WEIR_CLOCK_MONOTONIC);
    assert_clock(WEIR_CLOCK_DEFAULT, silent, WEIR_CLOCK_MONOTONIC);
    assert_clock(WEIR_CLOCK_DEFAULT, monotonic, WEIR_CLOCK_MONOTONIC);
    assert_clock(WEIR_CLOCK_DEFAULT, tsc, WEIR_CLOCK_TSC);
    assert_clock(WEIR_CLOCK_MONOTONIC, tsc, WEIR_CLOCK_MONOTONIC);
    assert_clock(WEIR_CLOCK_TSC, NULL, WEIR_CLOCK_TSC);
    assert_clock(WEIR_CLOCK_TSC, silent, WEIR_CLOCK_TSC);
    assert_clock(WEIR_CLOCK_TSC, monotonic, WEIR_CLOCK_TSC);
    assert_int_equal(heard.n, 0);
}

static uint64_t seventy(void *userdata)
{
    (void)userdata;
    return 70;
}

static void an_injected_clock_comes_before_both(void **state)
{
    static const struct weir_clock clock = {.size = sizeof(clock), .now_ns = seventy};
    struct weir_options options = {
        .size = sizeof(options), .text = "version: 1\nclock: tsc\n", .clock = &clock};
    weir *w = opened(&options);

    (void)state;
    assert_int_equal(weir_clock_in_use(w), WEIR_CLOCK_INJECTED);
    assert_int_equal(weir_now(w), 70);
    weir_close(w);
    w = NULL;
    options.clock_source = WEIR_CLOCK_TSC;
    assert_int_equal(weir_open(&w, &options, NULL), -EINVAL);
    options.clock_source = WEIR_CLOCK_MONOTONIC;
    assert_int_equal(weir_open(&w, &options, NULL), -EINVAL);
    options.clock = NULL;
    for (int source = WEIR_CLOCK_INJECTED; source < 1000; source += 900) {
        options.clock_source = (enum weir_clock_source)source;
        assert_int_equal(weir_open(&w, &options, NULL), -EINVAL);
    }
}

static uint64_t injected_ns;

static uint64_t injected(void *userdata)
{
    (void)userdata;
    return injected_ns;
}

/* Submits to the queue of a set with one unit. Returns whether it waits or is granted. */
static bool is_accepted(weir_queue *queue, weir_pool *pool, uint64_t timeout_ns)
{
    const struct weir_request request = {.size = sizeof(request), .timeout_ns = timeout_ns};
    struct weir_completion done;

    assert_int_equal(weir_queue_submit(queue, pool, &request, timeout_ns, NULL, NULL), 0);
    if (weir_queue_reap(queue, &done, 1) == 0)
        return true;
    weir_release(&done.acquisition);
    return done.result == 0;
}

/* By an injected clock, too, waits of a queue that is not reaped count for max_waiters no longer
 * than their timeout. */
static void overdue_waits_make_room_by_an_injected_clock(void **state)
{
    static const struct weir_clock clock = {.size = sizeof(clock), .now_ns = injected};
    struct weir_options options = {
        .size = sizeof(options),
        .text = "version: 1\nsets: { s: { max_waiters: 2, limits: [ { type: resource, "
                "key: a, capacity: 1 } ] } }\n",
        .clock = &clock};
    const uint64_t second = UINT64_C(1000000000);
    weir_acquisition *holder = NULL;
    weir_queue *queue = NULL, *other = NULL;
    weir_pool *pool = NULL;
    weir *w;

    (void)state;
    injected_ns = second;
    w = opened(&options);
    assert_int_equal(weir_pool_open(&pool, w, "s", 0, NULL), 0);
    assert_int_equal(weir_queue_open(&queue, w, 8), 0);
    assert_int_equal(weir_queue_open(&other, w, 8), 0);
    assert_int_equal(weir_acquire(pool, NULL, &holder, NULL), 0);
    assert_true(is_accepted(queue, pool, 100 * second));
    assert_true(is_accepted(queue, pool, second));
    assert_false(is_accepted(other, pool, 100 * second));
    injected_ns += 2 * second;
    assert_true(is_accepted(other, pool, 100 * second));
    weir_release(&holder);
    weir_queue_close(queue);
    weir_queue_close(other);
    weir_pool_close(pool);
    weir_close(w);
}

/* What cannot be had */

static void what_cannot_be_had_is_said(void **state)
{
    static const struct {
        int error;
        const char *why;
    } refusals[] = {{-EOPNOTSUPP, "processor"},
                    {-EPERM, "may not"},
                    {-ENODEV, "kernel"},
                    {-ENOENT, "No such file"},
                    {-EACCES, "Permission denied"}};

    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
        weir *w;

        counter.usable = refusals[i].error;
        heard.n = 0;
        w = opened_on(WEIR_CLOCK_TSC, NULL);
        assert_int_equal(weir_clock_in_use(w), WEIR_CLOCK_MONOTONIC);
        assert_int_equal(heard.n, 1);
        assert_int_equal(heard.level, WEIR_LOG_WARNING);
        if (!strstr(heard.message, refusals[i].why))
            fail_msg("`%s` does not say `%s`", heard.message, refusals[i].why);
        assert_true(weir_now(w) >= START);
        assert_int_equal(heard.n, 1);
        weir_close(w);
    }
}

static void without_memory_nothing_is_opened(void **state)
{
    const struct weir_options options = {
        .size = sizeof(options), .text = "version: 1\nclock: tsc\n", .log = hear};
    weir *w = NULL;

    (void)state;
    for (uint64_t n = 1;; n++) {
        int r;

        fake_os_fail_kind_at(n, FAKE_MEMORY, 0);
        r = weir_open(&w, &options, NULL);
        if (!fake_os_has_failed())
            break;
        if (r == 0) { /* something that the library can do without */
            assert_int_equal(weir_clock_in_use(w), WEIR_CLOCK_TSC);
            w = weir_close(w);
        } else {
            assert_int_equal(r, -ENOMEM);
            assert_null(w);
        }
    }
    assert_int_equal(heard.n, 0);
    weir_close(w);
}

/* What does not last */

#define RATE "{ type: call, algorithm: gcra, capacity: 1, window: 10us }"
static const char one_in_10us[] =
    "version: 1\nclock: tsc\nsets: { main: { limits: [ " RATE " ] } }\n";

static weir_pool *main_of(weir *w)
{
    weir_pool *pool = NULL;

    assert_int_equal(weir_pool_open(&pool, w, "main", 0, NULL), 0);
    return pool;
}

/* What hears of it may use the library, in the middle of a request of the same thread. */
static struct {
    weir_pool *pool;
    unsigned n;
} asking;

static void ask_again(void *userdata, enum weir_log_level level, const char *message)
{
    hear(userdata, level, message);
    asking.n += weir_take(asking.pool, NULL, NULL) == 0;
}

static void a_counter_that_is_given_up_is_told_once(void **state)
{
    const struct weir_options options = {
        .size = sizeof(options), .text = one_in_10us, .log = ask_again};
    weir *w = opened(&options);
    unsigned granted = 0;

    (void)state;
    asking.pool = main_of(w);
    asking.n = 0;
    assert_int_equal(weir_take(asking.pool, NULL, NULL), 0);
    ticks_lost = 300 * MS;
    hand_ns += 11000;
    for (int i = 0; i < 100; i++) {
        granted += weir_take(asking.pool, NULL, NULL) == 0;
        hand_ns += 10000;
    }
    assert_int_equal(heard.n, 1);
    assert_int_equal(heard.level, WEIR_LOG_WARNING);
    assert_non_null(strstr(heard.message, "went back"));
    assert_int_equal(weir_clock_in_use(w), WEIR_CLOCK_MONOTONIC);
    assert_int_equal(granted + asking.n, 100);
    assert_int_equal(asking.n, 1);
    weir_pool_close(asking.pool);
    weir_close(w);
}

static void sets_that_processes_share_go_by_the_clock_itself(void **state)
{
    static const char text[] = "version: 1\nclock: tsc\nsets: { main: { backend: process,"
                               " lifetime: users, limits: [ " RATE " ] } }\n";
    struct weir_options options = {.size = sizeof(options), .text = text, .log = hear};
    char directory[TMPDIR_SIZE];
    weir_pool *pool;
    weir *w;

    (void)state;
    assert_true(tmpdir_make(directory, NULL));
    options.process_dir = directory;
    w = opened(&options);
    assert_int_equal(weir_clock_in_use(w), WEIR_CLOCK_MONOTONIC);
    assert_int_equal(heard.n, 1);
    assert_non_null(strstr(heard.message, "share"));
    pool = main_of(w);
    assert_int_equal(weir_take(pool, NULL, NULL), 0);
    assert_int_equal(heard.n, 1);
    weir_pool_close(pool);
    weir_close(w);
    options.flags = WEIR_OPEN_APART; /* so it is shared with no other */
    w = opened(&options);
    assert_int_equal(weir_clock_in_use(w), WEIR_CLOCK_TSC);
    weir_close(w);
    rmdir(directory);
}

/* Waiting */

/* A thread that waits until an instant is granted at it, though by a reading that is still fresh
 * enough for all others it has not come. */
static void a_woken_waiter_is_not_late(void **state)
{
    struct weir_request request = {.size = sizeof(request)};
    weir *w = opened_on(WEIR_CLOCK_DEFAULT, one_in_10us);
    weir_pool *pool = main_of(w);
    struct weir_completion done;
    weir_queue *queue = NULL;
    uint64_t from;

    (void)state;
    assert_int_equal(weir_queue_open(&queue, w, 4), 0);
    hand_ns += 5000;
    assert_int_equal(weir_take(pool, NULL, NULL), 0);
    from = weir_now(w);
    assert_int_equal(weir_queue_submit(queue, pool, &request, 1, NULL, NULL), 0);
    assert_int_equal(weir_queue_reap(queue, &done, 1), 0);
    hand_ns = from + 9500;
    assert_in_range(weir_now(w), from + 9500, from + 9600);
    assert_int_equal(weir_queue_reap(queue, &done, 1), 0); /* never early */
    hand_ns = from + 9600;
    assert_in_range(weir_now(w), from + 9500, from + 9620);
    hand_ns = from + 10000;
    assert_int_equal(weir_queue_reap(queue, &done, 1), 1);
    assert_int_equal(done.result, 0);
    assert_in_range(hand_ns, from + 10000, from + 10100); /* at once */
    weir_release(&done.acquisition);
    weir_queue_close(queue);
    weir_pool_close(pool);
    weir_close(w);
}

/* For a blocked caller. Its futex gives up at once: fake_os.h. */
static void a_blocked_caller_is_not_late(void **state)
{
    weir *w = opened_on(WEIR_CLOCK_DEFAULT, one_in_10us);
    weir_acquisition *acquisition = NULL;
    weir_pool *pool = main_of(w);
    uint64_t from;

    (void)state;
    for (uint64_t age = 0; age < 1000; age += 90) {
        hand_ns += 15000;
        assert_int_equal(weir_take(pool, NULL, NULL), 0);
        from = weir_now(w);
        hand_ns = from + 9000 + age; /* so one that is shared ends at each distance */
        weir_now(w);
        assert_int_equal(weir_acquire(pool, NULL, &acquisition, NULL), 0);
        assert_in_range(hand_ns, from + 10000, from + 10100);
        weir_release(&acquisition);
    }
    weir_pool_close(pool);
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        clock_test(options_come_before_the_configuration),
        clock_test(an_injected_clock_comes_before_both),
        clock_test(overdue_waits_make_room_by_an_injected_clock),
        clock_test(what_cannot_be_had_is_said),
        clock_test(without_memory_nothing_is_opened),
        clock_test(a_counter_that_is_given_up_is_told_once),
        clock_test(sets_that_processes_share_go_by_the_clock_itself),
        clock_test(a_woken_waiter_is_not_late),
        clock_test(a_blocked_caller_is_not_late),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
