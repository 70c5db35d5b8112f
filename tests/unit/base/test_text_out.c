/* SPDX-License-Identifier: MIT */
/* Text in pieces: it arrives whole and in order, whatever the pieces, and stops at a failure. */
#include "base/text_out.h"
#include "lib/world.h"

static struct sink {
    char text[4096];
    size_t n;
    unsigned calls, fails_at; /* 0: it does not */
} sink;

static int take_text(void *userdata, const char *text, size_t n)
{
    assert_ptr_equal(userdata, &sink);
    if (++sink.calls == sink.fails_at)
        return -EPIPE;
    assert_true(n > 0 && n <= sizeof(sink.text) - sink.n);
    memcpy(sink.text + sink.n, text, n);
    sink.n += n;
    return 0;
}

static void pieces_arrive_in_order(void **state)
{
    struct text_out out = {.write = take_text, .userdata = &sink};
    char expected[4096] = "";
    size_t n = 0;

    (void)state;
    sink = (struct sink){.n = 0};
    for (unsigned i = 0; i < 600; i++) {
        text_out_number(&out, i);
        text_out_string(&out, i % 3 ? "" : ", ");
        text_out_char(&out, (char)('a' + i % 26));
        n += (size_t)snprintf(expected + n, sizeof(expected) - n, "%u%s%c", i, i % 3 ? "" : ", ",
                              'a' + i % 26);
    }
    assert_int_equal(text_out_end(&out), 0);
    assert_int_equal(sink.n, n);
    assert_memory_equal(sink.text, expected, n);
    assert_int_equal(sink.calls, (n + sizeof(out.bytes) - 1) / sizeof(out.bytes));
    assert_int_equal(text_out_end(&out), 0); /* nothing is written twice */
    assert_int_equal(sink.n, n);
}

static void numbers_are_whole(void **state)
{
    char text[32];
    struct text_buffer buffer = {text, sizeof(text), 0};
    struct text_out out = {.write = text_buffer_write, .userdata = &buffer};

    (void)state;
    text_out_number(&out, 0);
    text_out_char(&out, ' ');
    text_out_number(&out, UINT64_MAX);
    assert_int_equal(text_buffer_end(&out), 22);
    assert_string_equal(text, "0 18446744073709551615");
}

static void a_failure_ends_it(void **state)
{
    struct text_out out = {.write = take_text, .userdata = &sink};

    (void)state;
    sink = (struct sink){.fails_at = 2};
    for (unsigned i = 0; i < 5000; i++)
        text_out_char(&out, 'x');
    assert_int_equal(text_out_end(&out), -EPIPE);
    assert_int_equal(sink.calls, 2);
    assert_int_equal(sink.n, sizeof(out.bytes));
}

static void a_buffer_has_room_for_the_end(void **state)
{
    (void)state;
    for (size_t length = 0; length < 1200; length++) {
        for (size_t size = length < 2 ? 1 : length - 1; size < length + 3; size++) {
            char text[1300];
            struct text_buffer buffer = {text, size, 0};
            struct text_out out = {.write = text_buffer_write, .userdata = &buffer};

            memset(text, '!', sizeof(text));
            for (size_t i = 0; i < length; i++)
                text_out_char(&out, 'x');
            assert_int_equal(text_buffer_end(&out), size > length ? (int)length : -ENOBUFS);
            assert_int_equal(strlen(text), size > length ? length : 0);
            assert_int_equal(text[size], '!');
        }
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        leak_checked_test(pieces_arrive_in_order),
        leak_checked_test(numbers_are_whole),
        leak_checked_test(a_failure_ends_it),
        leak_checked_test(a_buffer_has_room_for_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
