/* SPDX-License-Identifier: MIT */
/* Metrics of an instance: what is counted is written, once and in either format, or nothing is. */
#include "../engine.h"
#include "lib/require.h"
#include "lib/world.h"
#include "set/set.h"
#include "shm/participant.h"
#include <weir/backend.h>

static struct text {
    char bytes[1 << 20];
    size_t n;
    unsigned calls, fails_at; /* 0: it does not */
} text;

static int keep(void *userdata, const char *piece, size_t n)
{
    assert_ptr_equal(userdata, &text);
    if (++text.calls == text.fails_at)
        return 77;
    require(n > 0 && n <= 512 && n < sizeof(text.bytes) - text.n);
    memcpy(text.bytes + text.n, piece, n);
    text.n += n;
    text.bytes[text.n] = '\0';
    return 0;
}

static const char *metrics(enum weir_metrics_format format)
{
    text = (struct text){.n = 0};
    assert_int_equal(weir_metrics_write(world.w, format, keep, &text), 0);
    return text.bytes;
}

/* The text has this line, and once. */
static void assert_line(const char *in, const char *line)
{
    char whole[512];
    const char *found;

    snprintf(whole, sizeof(whole), "\n%s\n", line);
    found = strstr(in, whole);
    if (!found)
        fail_msg("`%s` is missing in:\n%s", line, in);
    assert_null(strstr(found + 1, whole));
}

static void assert_none(const char *in, const char *part)
{
    if (strstr(in, part))
        fail_msg("`%s` is in:\n%s", part, in);
}

#define SETS                                                                                       \
    "version: 1\n"                                                                                 \
    "sets:\n"                                                                                      \
    "  a: { max_waiters: 1, limits: [ { type: rate, key: \"k\\\"1\", algorithm: token_bucket,"     \
    " capacity: 10, window: 10s, overuse: charge }, { type: resource, key: r, capacity: 2 } ] }\n" \
    "  b: { subjects: { max: 10 }, limits: [ { type: call, algorithm: gcra, capacity: 6,"          \
    " window: 6s } ] }\n"                                                                          \
    "pools:\n"                                                                                     \
    "  p: { sets: [a, b] }\n"

static void what_happened_is_counted(void **state)
{
    weir_acquisition *a, *b, *waits, *full = NULL;
    const char *now;

    (void)state;
    world_open(SETS, "a");
    a = granted(ASK({"k\"1", 10}));
    b = granted(ASK({"k\"1", 0}));
    waits = pending(ASK({"k\"1", 2}));
    assert_int_equal(submit(ASK({"k\"1", 1}), &full), -ENOBUFS);
    assert_int_equal(take(ASK({"k\"1", 1}, {"r", 0})), -EAGAIN);
    assert_int_equal(take(ASK({"k\"1", 11}, {"r", 0})), -ERANGE);
    now = metrics(WEIR_METRICS_OPENMETRICS);
    assert_line(now, "weir_grants_total{set=\"a\",backend=\"thread\"} 2");
    assert_line(now, "weir_waiting{set=\"a\",backend=\"thread\"} 1");
    assert_line(now, "weir_held{set=\"a\",backend=\"thread\"} 2");
    assert_line(now, "weir_refusals_total{set=\"a\",backend=\"thread\",reason=\"full\"} 1");
    assert_line(now, "weir_refusals_total{set=\"a\",backend=\"thread\",reason=\"busy\"} 1");
    assert_line(now, "weir_refusals_total{set=\"a\",backend=\"thread\",reason=\"impossible\"} 1");
    assert_line(now, "weir_limit_held{set=\"a\",backend=\"thread\",limit=\"1\",type=\"resource\","
                     "key=\"r\",algorithm=\"\"} 2");
    assert_line(now, "weir_limit_available{set=\"a\",backend=\"thread\",limit=\"0\","
                     "type=\"rate\",key=\"k\\\"1\",algorithm=\"token_bucket\"} 0");
    release_used(a, "k\"1", 12);
    advance(5 * SECOND);
    assert_int_equal(weir_acquisition_result(waits), 0);
    release_used(waits, "k\"1", 1);
    release(b);
    now = metrics(WEIR_METRICS_OPENMETRICS);
    assert_line(now, "weir_grants_waited_total{set=\"a\",backend=\"thread\"} 1");
    assert_line(now, "weir_releases_total{set=\"a\",backend=\"thread\"} 3");
    assert_line(now, "weir_refunds_total{set=\"a\",backend=\"thread\"} 1");
    assert_line(now, "weir_overuses_total{set=\"a\",backend=\"thread\"} 1");
    assert_line(now, "weir_limit_overused_total{set=\"a\",backend=\"thread\",limit=\"0\","
                     "type=\"rate\",key=\"k\\\"1\",algorithm=\"token_bucket\"} 2");
    assert_line(now, "weir_wait_seconds_count{set=\"a\",backend=\"thread\"} 1");
    assert_line(now, "weir_wait_seconds_sum{set=\"a\",backend=\"thread\"} 5");
    assert_line(now, "weir_wait_seconds_bucket{set=\"a\",backend=\"thread\",le=\"4.194304\"} 0");
    assert_line(now, "weir_wait_seconds_bucket{set=\"a\",backend=\"thread\",le=\"8.388608\"} 1");
    assert_line(now, "weir_wait_seconds_bucket{set=\"a\",backend=\"thread\",le=\"+Inf\"} 1");
    world_close();
}

/* Holds appear with the first that was counted. */
static void holds_are_written_where_they_are_counted(void **state)
{
    weir_acquisition *a;
    const char *now;

    (void)state;
    world_open(
        "version: 1\nsets:\n"
        "  a: { hold_histogram: true, limits: [ { type: resource, key: r, capacity: 2 } ] }\n"
        "  b: { limits: [ { type: resource, key: r, capacity: 2 } ] }\n",
        "a");
    a = granted(NULL);
    assert_none(metrics(WEIR_METRICS_OPENMETRICS), "weir_hold_seconds_count");
    world.now += 5 * SECOND;
    release(a);
    now = metrics(WEIR_METRICS_OPENMETRICS);
    assert_line(now, "weir_hold_seconds_count{set=\"a\",backend=\"thread\"} 1");
    assert_line(now, "weir_hold_seconds_sum{set=\"a\",backend=\"thread\"} 5");
    assert_line(now, "weir_hold_seconds_bucket{set=\"a\",backend=\"thread\",le=\"4.194304\"} 0");
    assert_line(now, "weir_hold_seconds_bucket{set=\"a\",backend=\"thread\",le=\"8.388608\"} 1");
    assert_line(now, "weir_wait_seconds_count{set=\"b\",backend=\"thread\"} 0");
    assert_none(now, "weir_hold_seconds_count{set=\"b\"");
    world_close();
}

static void subjects_are_summed(void **state)
{
    struct weir_request *request = ASK({"call_count", 2});
    const char *now;

    (void)state;
    world_open(SETS, "b");
    request->subject = "s";
    request->subject_size = 1;
    assert_int_equal(take(request), 0);
    request->subject = "t";
    assert_int_equal(take(request), 0);
    now = metrics(WEIR_METRICS_PROMETHEUS);
    assert_line(now, "weir_subjects{set=\"b\",backend=\"thread\"} 2");
    assert_line(now, "weir_limit_granted_total{set=\"b\",backend=\"thread\",limit=\"0\","
                     "type=\"call\",key=\"call_count\",algorithm=\"gcra\"} 4");
    assert_none(now, "weir_subjects{set=\"a\"");
    world_close();
}

/* Picks of handles that are closed stay. */
static void picks_are_of_all_handles(void **state)
{
    weir_pool *second;
    struct weir_request *request = ASK({"k\"1", 1}, {"r", 0});
    const char *now;

    (void)state;
    world_open(SETS, "p");
    request->subject = "s";
    request->subject_size = 1;
    second = pool_open("p", 0);
    assert_int_equal(weir_take(world.pool, request, NULL), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(weir_take(second, request, NULL), 0);
    now = metrics(WEIR_METRICS_OPENMETRICS);
    assert_line(now, "weir_pool_picks_total{pool=\"p\",set=\"a\"} 3");
    assert_line(now, "weir_pool_picks_total{pool=\"p\",set=\"b\"} 1");
    second = weir_pool_close(second);
    now = metrics(WEIR_METRICS_OPENMETRICS);
    assert_line(now, "weir_pool_picks_total{pool=\"p\",set=\"a\"} 3");
    assert_line(now, "weir_pool_picks_total{pool=\"p\",set=\"b\"} 1");
    world_close();
}

/* An engine is not asked for what it knows. */
static void an_engine_is_counted_and_not_asked(void **state)
{
    static struct engine_control control;
    char config[512];
    weir_acquisition *a, *b = NULL;
    const char *now;

    (void)state;
    control = (struct engine_control){0};
    snprintf(config, sizeof(config),
             "version: 1\nbackends: { far: { type: engine, control: \"%p\" } }\nsets: { main: "
             "{ backend: far, limits: [ { type: resource, key: slot, capacity: 3 } ] } }\n",
             (void *)&control);
    world_open(config, "main");
    a = granted(ASK({"slot", 2}));
    assert_int_equal(try_acquire(ASK({"slot", 2}), &b), -EAGAIN);
    control.away = -ECONNREFUSED;
    assert_int_equal(try_acquire(ASK({"slot", 1}), &b), -EHOSTUNREACH);
    control.away = 0;
    now = metrics(WEIR_METRICS_OPENMETRICS);
    assert_int_equal(control.snapshots, 0);
    assert_line(now, "weir_backend_round_trips_total{backend=\"far\"} 2");
    assert_line(now, "weir_backend_errors_total{backend=\"far\"} 1");
    assert_line(now, "weir_grants_total{set=\"main\",backend=\"far\"} 1");
    assert_line(now, "weir_held{set=\"main\",backend=\"far\"} 1");
    assert_none(now, "weir_limit_available{set=\"main\"");
    assert_none(now, "weir_limit_held{set=\"main\"");
    release(a);
    settle();
    world_close();
}

/* Counts lines that begin like that. */
static unsigned lines(const char *in, const char *begin)
{
    unsigned n = 0;

    for (const char *at = in; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        n += strncmp(at, begin, strlen(begin)) == 0;
    }
    return n;
}

static void both_formats_say_the_same(void **state)
{
    static char open[1 << 20];
    const char *old;

    (void)state;
    world_open(SETS, "a");
    assert_int_equal(take(ASK({"k\"1", 3}, {"r", 0})), 0);
    strcpy(open, metrics(WEIR_METRICS_OPENMETRICS));
    old = metrics(WEIR_METRICS_PROMETHEUS);
    assert_int_equal(lines(open, "weir_"), lines(old, "weir_"));
    assert_int_equal(lines(open, "# TYPE "), lines(old, "# TYPE "));
    assert_int_equal(lines(open, "# HELP "), lines(open, "# TYPE "));
    assert_string_equal(open + strlen(open) - 6, "# EOF\n");
    assert_none(old, "# EOF");
    assert_none(old, "# UNIT");
    assert_line(open, "# TYPE weir_releases counter");
    assert_line(old, "# TYPE weir_releases_total counter");
    assert_line(open, "# UNIT weir_wait_seconds seconds");
    /* No metric comes twice, and none without a sample of any kind is left out. */
    for (const char *at = open; (at = strstr(at, "\n# TYPE ")); at++) {
        char line[256];

        snprintf(line, sizeof(line), "%.*s", (int)strcspn(at + 1, "\n"), at + 1);
        assert_line(open, line);
    }
    world_close();
}

/* Counts of 0 would look like those of a new set. */
static void a_damaged_set_is_left_out(void **state)
{
    weir_pool *other;

    (void)state;
    world_open("version: 1\nsets: { a: { backend: process, limits: [ { type: resource, key: k, "
               "capacity: 1 } ] }, b: { limits: [ { type: resource, key: k, capacity: 1 } ] } }",
               "a");
    other = pool_open("b", 0);
    metrics(WEIR_METRICS_OPENMETRICS);
    assert_non_null(strstr(text.bytes, "set=\"a\""));
    participant_mark_broken(world.set->participant);
    metrics(WEIR_METRICS_OPENMETRICS);
    assert_none(text.bytes, "set=\"a\"");
    assert_non_null(strstr(text.bytes, "set=\"b\""));
    weir_pool_close(other);
    world_close();
}

static void a_failure_ends_the_text(void **state)
{
    unsigned calls;

    (void)state;
    world_open(SETS, "a");
    metrics(WEIR_METRICS_OPENMETRICS);
    calls = text.calls;
    assert_true(calls > 10);
    for (unsigned i = 1; i <= calls; i++) {
        text = (struct text){.fails_at = i};
        assert_int_equal(weir_metrics_write(world.w, WEIR_METRICS_OPENMETRICS, keep, &text), 77);
        assert_int_equal(text.calls, i);
    }
    assert_int_equal(weir_metrics_write(world.w, (enum weir_metrics_format)2, keep, &text),
                     -EINVAL);
    world_close();
}

/* Each allocation fails once: then nothing is written, and nothing is left. */
static void without_memory_nothing_is_written(void **state)
{
    int r = -ENOMEM;

    (void)state;
    world_open(SETS, "p");
    metrics(WEIR_METRICS_OPENMETRICS); /* what a thread has once */
    for (unsigned i = 1; r == -ENOMEM; i++) {
        text = (struct text){.n = 0};
        fake_os_fail_at(i);
        r = weir_metrics_write(world.w, WEIR_METRICS_OPENMETRICS, keep, &text);
        fake_os_fail_at(0);
        assert_true(r == 0 || (r == -ENOMEM && text.n == 0));
        assert_true(i < 100);
        assert_true(r == -ENOMEM || i > 3);
    }
    world_close();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        leak_checked_test(what_happened_is_counted),
        leak_checked_test(holds_are_written_where_they_are_counted),
        leak_checked_test(subjects_are_summed),
        leak_checked_test(picks_are_of_all_handles),
        leak_checked_test(an_engine_is_counted_and_not_asked),
        leak_checked_test(both_formats_say_the_same),
        leak_checked_test(a_damaged_set_is_left_out),
        leak_checked_test(a_failure_ends_the_text),
        leak_checked_test(without_memory_nothing_is_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
