/* SPDX-License-Identifier: MIT */
/* Warnings about configurations that are right. Needs the project's plugins (WEIR_PLUGIN_PATH). */
#include <errno.h>

#include "lib/fake_os.h"
#include "lib/plans.h"

struct heard {
    char lines[512];
    unsigned n;
};

static void hear(void *userdata, const struct weir_error *warning)
{
    struct heard *heard = userdata;
    size_t at = strlen(heard->lines);

    assert_int_equal(warning->code, 0);
    assert_string_equal(warning->file, "test");
    snprintf(heard->lines + at, sizeof(heard->lines) - at, "%u:%u %s\n", warning->line,
             warning->column, warning->message);
    heard->n++;
}

/* Resolves a text, stores the warnings, and returns the result. */
static int warn(const char *text, struct heard *heard)
{
    struct complaints warnings = {
        .file = "test", .report = hear, .userdata = heard, .are_warnings = true};
    struct complaints complaints = {.file = "test", .warnings = &warnings};
    struct plan plan;
    int r;

    *heard = (struct heard){0};
    r = plan_from_text(text, strlen(text), plugins, &plan, &complaints);
    complaints_report(&warnings);
    plan_free(&plan);
    return r;
}

static void expect_warnings(const char *text, const char *lines)
{
    struct heard heard;

    assert_int_equal(warn(text, &heard), 0);
    assert_string_equal(heard.lines, lines);
}

/* Two limits of one set, and the number of the one that never refuses; 0: none. */
static void expect_implied(const char *first, const char *second, unsigned number)
{
    struct heard heard;
    char text[512], beginning[16];

    snprintf(text, sizeof(text),
             "version: 1\nsets:\n  a:\n    limits:\n      - { %s }\n      - { %s }\n", first,
             second);
    assert_int_equal(warn(text, &heard), 0);
    snprintf(beginning, sizeof(beginning), "%u:9 this", 4 + number);
    if (heard.n != (number != 0) || (number && strncmp(heard.lines, beginning, strlen(beginning))))
        fail_msg("%s%s", text, heard.lines);
}

#define R(numbers) "type: resource, key: r, " numbers
#define C(numbers) "type: call, algorithm: " numbers

static void a_limit_that_never_binds(void **state)
{
    (void)state;
    expect_implied(R("capacity: 4"), R("capacity: 3"), 1);
    expect_implied(R("capacity: 3"), R("capacity: 4"), 2);
    expect_implied(R("capacity: 3"), R("capacity: 3"), 2);
    expect_implied("type: resource, key: q, capacity: 4", R("capacity: 3"), 0);
    expect_implied(C("gcra, capacity: 100, window: 1s"),
                   C("token_bucket, capacity: 10k, window: 60s"), 2);
    expect_implied(C("leaky_bucket, capacity: 100, window: 1s"),
                   C("gcra, capacity: 100, window: 1s, refund: false"), 2);
    expect_implied(C("gcra, capacity: 100, window: 1s"), C("gcra, capacity: 5k, window: 60s"), 0);
    expect_implied(C("gcra, capacity: 100, window: 1s"),
                   C("gcra, capacity: 100, window: 1s, burst: 99"), 1);
    expect_implied(C("gcra, capacity: 100, window: 1s, burst: 5"),
                   C("gcra, capacity: 6000, window: 60s, burst: 5"), 2);
    expect_implied(C("sliding_window, capacity: 10, window: 1s"),
                   C("sliding_window, capacity: 9, window: 2s"), 1);
    expect_implied(C("sliding_window, capacity: 10, window: 1s"),
                   C("sliding_window, capacity: 11, window: 2s"), 0);
    expect_implied(C("fixed_window, capacity: 10, window: 1s"),
                   C("fixed_window, capacity: 11, window: 1s"), 2);
    expect_implied(C("fixed_window, capacity: 10, window: 2s"),
                   C("fixed_window, capacity: 11, window: 1s"), 0);
}

/* Nothing is said where the numbers alone do not decide. */
static void limits_that_cannot_be_compared(void **state)
{
    (void)state;
    expect_implied(C("gcra, capacity: 10, window: 1s"),
                   C("gcra, capacity: 10, window: 1s, initial: 3"), 0);
    expect_implied(C("gcra, capacity: 10, window: 1s"),
                   C("gcra, capacity: 10, window: 1s, refund: false"), 0);
    expect_implied(C("gcra, capacity: 10, window: 1s, refund: strict"),
                   C("gcra, capacity: 20, window: 1s, refund: strict"), 0);
    expect_implied(C("gcra, capacity: 10, window: 1s"),
                   C("sliding_window, capacity: 100, window: 1s"), 0);
    expect_implied(C("gcra, capacity: 10, window: 1s"),
                   C("leaky_bucket, capacity: 10, window: 1s, mode: shaper"), 0);
    expect_implied("type: rate, key: t, algorithm: gcra, capacity: 10, window: 1s",
                   "type: rate, key: t, algorithm: gcra, capacity: 20, window: 1s, overuse: charge",
                   0);
}

static void what_limits_nothing(void **state)
{
    (void)state;
    expect_warnings("version: 1\nsets:\n  a: {}\n",
                    "3:3 set `a` has no limits: it grants everything\n");
    expect_warnings("version: 1\npools:\n  p: {}\n",
                    "3:3 pool `p` has no sets: it grants everything\n");
    expect_warnings("version: 1\n", "");
}

#define LIMITS "limits: [ { " R("capacity: 1") " } ]"

/* The name of a set opens it without a pool. */
static void a_set_without_a_pool(void **state)
{
    (void)state;
    expect_warnings("version: 1\nsets:\n  a: { " LIMITS " }\n  b: { " LIMITS " }\n"
                    "pools: { p: { sets: [b] }, q: { sets: [b] } }\n",
                    "");
}

static void max_wait_above_timeout(void **state)
{
    (void)state;
    expect_warnings(
        "version: 1\nsets:\n  a:\n    timeout: 5s\n    max_wait: 6s\n    " LIMITS "\n",
        "5:15 a request that is to wait longer than `timeout` 5s, but no longer than `max_wait` "
        "6s, waits in vain: set `max_wait` to 5s or less, so that it is refused at once\n");
    expect_warnings("version: 1\nsets:\n  a: { timeout: 5s, max_wait: 5s, " LIMITS " }\n", "");
    expect_warnings("version: 1\nsets:\n  a: { timeout: 5s, max_wait: forever, " LIMITS " }\n", "");
    expect_warnings("version: 1\nsets:\n  a: { max_wait: 5s, " LIMITS " }\n", "");
}

/* A limit, and what is said of its burst; "": nothing. */
static void expect_burst(const char *limit, const char *said)
{
    struct heard heard;
    char text[256], message[256] = "";

    snprintf(text, sizeof(text), "version: 1\nsets: { a: { limits: [ { %s } ] } }\n", limit);
    if (said[0] != '\0')
        snprintf(message, sizeof(message), "2:%zu `burst` %s: all of it can be granted at once\n",
                 (size_t)(strstr(text, "burst: ") + 7 - strchr(text, '\n')), said);
    assert_int_equal(warn(text, &heard), 0);
    assert_string_equal(heard.lines, message);
}

static void a_burst_far_above_the_capacity(void **state)
{
    (void)state;
    expect_burst(C("gcra, capacity: 10, window: 1s, burst: 6k"),
                 "6k is what this rate grants in about 10m");
    expect_burst(C("gcra, capacity: 10, window: 1s, burst: 5999"), "");
    expect_burst(C("gcra, capacity: 1, window: 100ms, burst: 1000"), ""); /* 100 s of 10 per s */
    expect_burst(C("gcra, capacity: 100, window: 1d, burst: 9999"), "");  /* few capacities */
    expect_burst(C("token_bucket, capacity: 90k, window: 60s, burst: 9M, initial: 0"),
                 "9M is what this rate grants in about 100m");
    expect_burst(C("gcra, capacity: 1k, window: 1s, burst: 10M"),
                 "10M is what this rate grants in about 2h");
    expect_burst(C("gcra, capacity: 100, window: 1d, burst: 10k"),
                 "10k is what this rate grants in about 100d");
    expect_burst(C("token_bucket, capacity: 1, window: 1d, burst: 1000"),
                 "1000 is what this rate grants in about 1000d");
}

static void nothing_beside_complaints(void **state)
{
    struct heard heard;

    (void)state;
    assert_int_equal(warn("version: 1\nsets: { a: {}, b: { timeout: 3 } }\n", &heard), -EINVAL);
    assert_int_equal(heard.n, 0);
}

/* A warning that cannot be stored for lack of memory is not just left out. */
static void no_memory(void **state)
{
    const char *text =
        "version: 1\nsets:\n  a: {}\n  b: { " LIMITS " }\n  c: {}\npools: { p: { sets: [b] } }\n";
    struct heard heard;
    int r = -ENOMEM;

    (void)state;
    for (uint64_t n = 1; r != 0; n++) {
        fake_os_fail_at(n);
        r = warn(text, &heard);
        fake_os_fail_at(0);
        assert_true(r == 0 || r == -ENOMEM);
        assert_true(n < 1000);
    }
    assert_int_equal(heard.n, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        plans_test(a_limit_that_never_binds),  plans_test(limits_that_cannot_be_compared),
        plans_test(what_limits_nothing),       plans_test(a_set_without_a_pool),
        plans_test(max_wait_above_timeout),    plans_test(a_burst_far_above_the_capacity),
        plans_test(nothing_beside_complaints), plans_test(no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
