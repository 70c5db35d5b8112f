/* SPDX-License-Identifier: MIT */
/* `traceparent` of W3C Trace Context: what is taken, and what counts as none. */
#include "lib/world.h"

#define TRACE  "4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT "00f067aa0ba902b7"

static void a_valid_one_is_read(void **state)
{
    static const uint8_t trace_id[16] = {0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6,
                                         0xa3, 0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x36};
    static const uint8_t parent_id[8] = {0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7};
    struct weir_trace trace = {{0}, {0}, 0};

    (void)state;
    assert_int_equal(weir_trace_parse("00-" TRACE "-" PARENT "-01", &trace), 0);
    assert_memory_equal(trace.trace_id, trace_id, 16);
    assert_memory_equal(trace.parent_id, parent_id, 8);
    assert_int_equal(trace.flags, 1);
    assert_int_equal(weir_trace_parse("00-" TRACE "-" PARENT "-fe", &trace), 0);
    assert_int_equal(trace.flags, 0xfe);
}

/* Of a later version the fields that are known are read, with more behind them or without. */
static void later_versions_may_have_more(void **state)
{
    struct weir_trace trace;

    (void)state;
    assert_int_equal(weir_trace_parse("01-" TRACE "-" PARENT "-01", &trace), 0);
    assert_int_equal(weir_trace_parse("cc-" TRACE "-" PARENT "-01-what follows", &trace), 0);
    assert_int_equal(weir_trace_parse("cc-" TRACE "-" PARENT "-01.more", &trace), -EINVAL);
    assert_int_equal(weir_trace_parse("ff-" TRACE "-" PARENT "-01", &trace), -EINVAL);
}

static void a_malformed_one_changes_nothing(void **state)
{
    static const char *const wrong[] = {
        "",
        "0",
        "00",
        "00-",
        "00-" TRACE,
        "00-" TRACE "-",
        "00-" TRACE "-" PARENT,
        "00-" TRACE "-" PARENT "-",
        "00-" TRACE "-" PARENT "-0",
        "00-" TRACE "-" PARENT "-01-",
        "00-" TRACE "-" PARENT "-01 ",
        "00-" TRACE "-" PARENT "-012",
        " 00-" TRACE "-" PARENT "-01",
        "00_" TRACE "-" PARENT "-01",
        "00-" TRACE "_" PARENT "-01",
        "00-" TRACE "-" PARENT "_01",
        "0g-" TRACE "-" PARENT "-01",
        "00-" TRACE "-" PARENT "-0G",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" PARENT "-01",
        "00-" TRACE "-00F067AA0BA902B7-01",
        "00-00000000000000000000000000000000-" PARENT "-01",
        "00-" TRACE "-0000000000000000-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473-" PARENT "-01",
        "00-" TRACE "0-" PARENT "-01",
    };
    struct weir_trace trace, before;

    (void)state;
    memset(&before, 0x5a, sizeof(before));
    trace = before;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        if (weir_trace_parse(wrong[i], &trace) != -EINVAL)
            fail_msg("`%s` was taken", wrong[i]);
        assert_memory_equal(&trace, &before, sizeof(trace));
    }
    assert_int_equal(weir_trace_parse(NULL, &trace), -EINVAL);
    assert_int_equal(weir_trace_parse("00-" TRACE "-" PARENT "-01", NULL), -EINVAL);
}

/* The text is not read beyond its end: each beginning of a valid one stands right before a byte
 * that a sanitizer guards. */
static void no_byte_behind_the_end_is_read(void **state)
{
    static const char whole[] = "00-" TRACE "-" PARENT "-01";
    struct weir_trace trace;

    (void)state;
    for (size_t n = 0; n < sizeof(whole) - 1; n++) {
        char *text = malloc(n + 1);

        assert_non_null(text);
        memcpy(text, whole, n);
        text[n] = '\0';
        assert_int_equal(weir_trace_parse(text, &trace), -EINVAL);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(a_valid_one_is_read),
        leak_checked_test(later_versions_may_have_more),
        leak_checked_test(a_malformed_one_changes_nothing),
        leak_checked_test(no_byte_behind_the_end_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
