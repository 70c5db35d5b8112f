/* SPDX-License-Identifier: MIT */
/* Segments: made once, attached to by whoever means the same, trusted by nobody. */
#include "../threads/require.h"
#include "fake_sys.h"
#include "fixture.h"
#include "record.h"
#include "segment.h"
#include "sys.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

static char place[] = "/dev/shm/weir-segment-XXXXXX";
static struct weir_error error;
static const uint64_t content[] = {0, 0, 0, 7, 8};

static struct segment_shape shape(void)
{
    return (struct segment_shape){.name = "a set",
                                  .definition = "rate tokens 100/1s gcra",
                                  .definition_hash = 42,
                                  .box_class = box_class_for(30),
                                  .record_units = record_units(1),
                                  .limits_n = 1,
                                  .counters_size = 256,
                                  .content = content,
                                  .content_n = 5};
}

static bool nobody(const struct segment *segment, void *userdata)
{
    (void)segment;
    (void)userdata;
    return false;
}

static void a_segment_is_made_and_attached_to(void **state)
{
    struct segment_shape a = shape();
    struct segment *first = NULL, *second = NULL;

    (void)state;
    assert_int_equal(segment_open(place, &a, &first, &error), 0);
    assert_int_equal(segment_open(place, &a, &second, &error), 0);
    assert_ptr_not_equal(first->base, second->base);
    assert_string_equal(segment_definition(second), a.definition);
    segment_header(first)->registrations = 5;
    assert_int_equal(segment_header(second)->registrations, 5);
    segment_close(first);
    segment_close(second);
    assert_int_equal(segment_remove(place, a.name, true, nobody, NULL, &error), 0);
}

static int group_setup(void **state)
{
    (void)state;
    return mkdtemp(place) ? 0 : -1;
}

/* Fails if a test left anything there. */
static int group_teardown(void **state)
{
    (void)state;
    return rmdir(place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(a_segment_is_made_and_attached_to),
    };

    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
