/* SPDX-License-Identifier: MIT */
/* Values of HTTP fields: whole seconds that are never early, names, bounds, buffers of every size.
 */
#include "lib/fixture.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/http.h>

#include <cmocka.h>

#define SECOND UINT64_C(1000000000)

static char text[4 * WEIR_HTTP_LIMIT_MAX];

static const struct weir_remaining calls = {.type = WEIR_LIMIT_CALL,
                                            .key = "call_count",
                                            .capacity = 100,
                                            .window_ns = 60 * SECOND,
                                            .available = 40,
                                            .more_after_ns = 600000000,
                                            .full_after_ns = 36 * SECOND};

static const char *retry_after(uint64_t ns)
{
    int n = weir_http_retry_after(ns, text, WEIR_HTTP_RETRY_AFTER_MAX);

    assert_int_equal(n, strlen(text));
    return text;
}

static const char *policy(const struct weir_remaining *limits, size_t n)
{
    int r = weir_http_ratelimit_policy(limits, n, text, n * WEIR_HTTP_LIMIT_MAX + 1);

    assert_int_equal(r, strlen(text));
    return text;
}

static const char *left(const struct weir_remaining *limits, size_t n, uint64_t retry_after_ns)
{
    int r = weir_http_ratelimit(limits, n, retry_after_ns, text, n * WEIR_HTTP_LIMIT_MAX + 1);

    assert_int_equal(r, strlen(text));
    return text;
}

static void a_client_never_comes_back_early(void **state)
{
    (void)state;
    assert_string_equal(retry_after(0), "1");
    assert_string_equal(retry_after(1), "1");
    assert_string_equal(retry_after(SECOND - 1), "1");
    assert_string_equal(retry_after(SECOND), "1");
    assert_string_equal(retry_after(SECOND + 1), "2");
    assert_string_equal(retry_after(3600 * SECOND), "3600");
    assert_string_equal(retry_after(UINT64_MAX - 2), "18446744074");
    assert_string_equal(retry_after(WEIR_BLOCKED), "");
    assert_string_equal(retry_after(WEIR_FOREVER), "");
}

static void a_policy_has_capacity_and_window(void **state)
{
    struct weir_remaining limits[] = {
        calls,
        {.type = WEIR_LIMIT_RATE, .key = "tokens", .capacity = 90000, .window_ns = SECOND / 2},
        {.type = WEIR_LIMIT_RESOURCE, .key = "slots", .capacity = 4},
        {.type = WEIR_LIMIT_CALL,
         .key = "call_count",
         .capacity = UINT64_MAX,
         .window_ns = UINT64_MAX}};

    (void)state;
    assert_string_equal(policy(limits, 4),
                        "\"call_count\";q=100;w=60, \"tokens\";q=90000;qu=\"tokens\";w=1, "
                        "\"slots\";q=4;qu=\"concurrent-requests\", "
                        "\"call_count#2\";q=999999999999999;w=18446744074");
    assert_string_equal(policy(NULL, 0), "");
}

static void a_limit_has_what_is_left(void **state)
{
    struct weir_remaining limit = calls;

    (void)state;
    assert_string_equal(left(&limit, 1, WEIR_FOREVER), "\"call_count\";r=40;t=1");
    limit.available = 0;
    limit.more_after_ns = 2 * SECOND + 1;
    assert_string_equal(left(&limit, 1, WEIR_FOREVER), "\"call_count\";r=0;t=3");
    limit.available = UINT64_MAX;
    limit.more_after_ns = 0;
    assert_string_equal(left(&limit, 1, WEIR_FOREVER), "\"call_count\";r=999999999999999");
    limit.more_after_ns = WEIR_FOREVER;
    assert_string_equal(left(&limit, 1, WEIR_FOREVER), "\"call_count\";r=999999999999999");
    limit.more_after_ns = WEIR_BLOCKED - 1;
    assert_string_equal(left(&limit, 1, WEIR_FOREVER), "\"call_count\";r=999999999999999;"
                                                       "t=18446744074");
    assert_string_equal(left(NULL, 0, WEIR_FOREVER), "");
}

/* Section 6 of the draft: Retry-After is not earlier than the end of a window that is told. */
static void no_window_ends_after_retry_after(void **state)
{
    struct weir_remaining limits[] = {calls, calls};

    (void)state;
    limits[0].more_after_ns = 5 * SECOND;
    limits[1].key = "daily";
    limits[1].more_after_ns = 5 * SECOND + 1;
    assert_string_equal(left(limits, 2, 4 * SECOND + 1), "\"call_count\";r=40;t=5, \"daily\";r=40");
    assert_string_equal(left(limits, 2, 6 * SECOND), "\"call_count\";r=40;t=5, \"daily\";r=40;t=6");
    limits[0].more_after_ns = SECOND;
    assert_string_equal(left(limits, 2, 0), "\"call_count\";r=40;t=1, \"daily\";r=40");
}

static void names_are_printable_and_differ(void **state)
{
    static const char *const names[][2] = {
        {"a\"b\\c", "a\\\"b\\\\c"},  {"100%", "100%25"},     {"a#2", "a%232"},
        {"\x01\n\x7f", "%01%0A%7F"}, {"\xc3\xa4", "%C3%A4"}, {" ~", " ~"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct weir_remaining limit = {.type = WEIR_LIMIT_CALL, .key = names[i][0], .capacity = 1};
        char expected[64];

        snprintf(expected, sizeof(expected), "\"%s\";q=1", names[i][1]);
        assert_string_equal(policy(&limit, 1), expected);
    }
}

static void every_buffer_is_kept_to(void **state)
{
    struct weir_remaining limits[70];
    char key[256];
    int whole;

    (void)state;
    memset(key, 0xff, sizeof(key) - 1);
    key[255] = '\0';
    for (size_t i = 0; i < 70; i++)
        limits[i] = (struct weir_remaining){.type = WEIR_LIMIT_RATE,
                                            .key = key,
                                            .capacity = UINT64_MAX,
                                            .window_ns = UINT64_MAX,
                                            .available = UINT64_MAX,
                                            .more_after_ns = WEIR_BLOCKED - 1};
    for (size_t n = 0; n < 4; n++) {
        whole = weir_http_ratelimit_policy(limits, n, text, sizeof(text));
        assert_true(whole >= 0 && (size_t)whole < n * WEIR_HTTP_LIMIT_MAX + 1);
        for (size_t size = 1; size <= (size_t)whole + 1; size++) {
            char *exact = malloc(size); /* a sanitizer sees a write behind it */

            assert_non_null(exact);
            assert_int_equal(weir_http_ratelimit_policy(limits, n, exact, size),
                             size > (size_t)whole ? whole : -ENOBUFS);
            assert_int_equal(exact[size > (size_t)whole ? whole : 0], '\0');
            free(exact);
        }
    }
    {
        size_t size = 70 * WEIR_HTTP_LIMIT_MAX;
        char *large = malloc(size);

        assert_non_null(large);
        assert_in_range(weir_http_ratelimit_policy(limits, 70, large, size), 70 * 1500, size - 1);
        assert_in_range(weir_http_ratelimit(limits, 70, WEIR_FOREVER, large, size), 70 * 700,
                        size - 1);
        free(large);
    }
    text[0] = 'x';
    assert_int_equal(weir_http_retry_after(SECOND, text, 0), -ENOBUFS);
    assert_int_equal(weir_http_ratelimit_policy(limits, 1, text, 0), -ENOBUFS);
    assert_int_equal(weir_http_ratelimit(limits, 1, 0, text, 0), -ENOBUFS);
    assert_int_equal(text[0], 'x');
    assert_int_equal(weir_http_retry_after(10 * SECOND, text, 2), -ENOBUFS);
    assert_string_equal(text, "");
    assert_int_equal(weir_http_ratelimit(limits, 1, 0, text, 100), -ENOBUFS);
    assert_string_equal(text, "");
}

static void a_triple_is_of_the_scarcest(void **state)
{
    struct weir_remaining limits[] = {calls, calls, calls};
    struct weir_http_triple triple = {.limit = 77};

    (void)state;
    assert_int_equal(weir_http_triple(limits, 0, &triple), -ENOENT);
    assert_int_equal(triple.limit, 77);
    assert_int_equal(weir_http_triple(limits, 3, &triple), 0);
    assert_int_equal(triple.limit, 100);
    assert_int_equal(triple.remaining, 40);
    assert_int_equal(triple.reset_s, 36);
    limits[1].capacity = UINT64_MAX;
    limits[1].available = UINT64_MAX / 10 * 4; /* a little less than 40 of 100 */
    limits[1].full_after_ns = 1;
    assert_int_equal(weir_http_triple(limits, 3, &triple), 1);
    assert_int_equal(triple.limit, UINT64_MAX);
    assert_int_equal(triple.reset_s, 1);
    limits[2].available = 0;
    limits[2].full_after_ns = WEIR_FOREVER;
    assert_int_equal(weir_http_triple(limits, 3, &triple), 2);
    assert_int_equal(triple.reset_s, UINT64_MAX);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        leak_checked_test(a_client_never_comes_back_early),
        leak_checked_test(a_policy_has_capacity_and_window),
        leak_checked_test(a_limit_has_what_is_left),
        leak_checked_test(no_window_ends_after_retry_after),
        leak_checked_test(names_are_printable_and_differ),
        leak_checked_test(every_buffer_is_kept_to),
        leak_checked_test(a_triple_is_of_the_scarcest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
