/* SPDX-License-Identifier: MIT */
/*
 * The largest sets that a configuration may define: a version has their states twice, the second
 * time as a forecast, and must be able to count its words. 4194294 entries of a log take
 * WEIR_STATE_MAX bytes. One entry more is refused.
 */
#include "lib/world.h"

#include "lib/tmpdir.h"
#include "set/set.h"

#define LARGEST 4194294

static void opened(const char *keeper, const char *more, unsigned capacity)
{
    char text[512];

    snprintf(text, sizeof(text),
             "version: 1\nsets: { main: { %s%s limits: [ { type: call, algorithm: sliding_window, "
             "capacity: %u, window: 1h } ] } }\n",
             keeper, more, capacity);
    world_open(text, "main");
}

static struct weir_request *ask(uint64_t amount)
{
    static struct weir_amount amounts;
    static struct weir_request request;

    amounts = (struct weir_amount){"call_count", amount};
    request = (struct weir_request){.size = sizeof(request),
                                    .amounts = &amounts,
                                    .amounts_n = 1,
                                    .subject = "subject",
                                    .subject_size = 7};
    return &request;
}

/* All at once, then waiters with a forecast, then what changes and discards it. */
static void everything_happens(void)
{
    weir_acquisition *first, *second, *third;
    uint64_t at = 0;

    assert_int_equal(take(ask(LARGEST)), 0);
    first = pending(ask(1));
    second = pending(ask(LARGEST));
    third = pending(ask(3));
    assert_int_equal(weir_set_ready_at(world.set, ask(1), &at), 0);
    assert_int_equal(at, START + 2 * 3600 * SECOND + 3600 * SECOND);
    assert_int_equal(weir_cancel(third), 0);
    release(third);
    assert_int_equal(advance(3600 * SECOND), 1);
    assert_int_equal(weir_acquisition_result(first), 0);
    assert_int_equal(weir_acquisition_result(second), -EINPROGRESS);
    release(first);
    assert_int_equal(advance(3600 * SECOND), 1);
    assert_int_equal(weir_acquisition_result(second), 0);
    assert_int_equal(weir_update(second, "call_count", LARGEST), 0);
    release(second);
    assert_int_equal(take(ask(1)), -EAGAIN);
    assert_int_equal(stats().held, 0);
    assert_int_equal(world.logged, 0);
}

static void the_largest_set_works(void **state)
{
    (void)state;
    opened("", "", LARGEST);
    assert_int_equal(8 * (uint64_t)world.set->limits.state_words, WEIR_STATE_MAX);
    everything_happens();
    world_close();
}

static void the_largest_shared_set_works(void **state)
{
    (void)state;
    opened("backend: process, lifetime: users,", "", LARGEST);
    everything_happens();
    world_close();
}

static void the_largest_set_per_subject_works(void **state)
{
    (void)state;
    opened("", "subjects: { max: 3 },", LARGEST);
    everything_happens();
    world_close();
}

static void the_largest_shared_set_per_subject_works(void **state)
{
    (void)state;
    opened("backend: process, lifetime: users,", "subjects: { max: 3 },", LARGEST);
    everything_happens();
    world_close();
}

/* Expects that these limits are refused on line 4, with these words. */
static void refused(const char *limits, const char *words)
{
    char text[1024];
    struct weir_error error = {0};
    struct weir_options options = {.size = sizeof(options), .text = text};
    weir *w = NULL;

    snprintf(text, sizeof(text), "version: 1\nsets:\n  main: { limits: [\n    %s ] }\n", limits);
    assert_int_equal(weir_open(&w, &options, &error), -EINVAL);
    assert_null(w);
    assert_int_equal(error.line, 4);
    if (!strstr(error.message, words))
        fail_msg("`%s` says nothing of `%s`", error.message, words);
}

static void a_larger_one_is_refused(void **state)
{
    (void)state;
    refused("{ type: call, algorithm: sliding_window, capacity: 4194295, window: 1h }",
            "at most 4194294");
    refused("{ type: call, algorithm: sliding_window, capacity: 4194294, window: 1h }, { type: "
            "resource, key: r, capacity: 1 }",
            "this limit needs 8 bytes of state, and those before it 67108736");
    refused("{ type: call, algorithm: sliding_window, capacity: 2097146, window: 1h }, { type: "
            "rate, key: r, algorithm: sliding_window, capacity: 2097147, window: 1h }",
            "of a set can have 67108736 together");
}

/* The boundary of the words of a version. */
static void a_version_counts_its_words(void **state)
{
    (void)state;
    assert_true(block_class_for(BLOCK_CONTENT_MAX) > 0);
    assert_int_equal(block_class_for((size_t)BLOCK_CONTENT_MAX + 1), 0);
    assert_int_equal(block_class_for(SIZE_MAX), 0);
    assert_int_equal(block_content_n(block_meta(UINT32_MAX, BLOCK_CONTENT_MAX, 4)),
                     BLOCK_CONTENT_MAX);
    assert_int_equal(block_class_for(block_capacity(27)), 27);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(the_largest_set_works),
        leak_checked_test(the_largest_shared_set_works),
        leak_checked_test(the_largest_set_per_subject_works),
        leak_checked_test(the_largest_shared_set_per_subject_works),
        leak_checked_test(a_larger_one_is_refused),
        leak_checked_test(a_version_counts_its_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
