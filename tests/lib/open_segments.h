/* SPDX-License-Identifier: MIT */
/* For tests of segments: opened and removed, or else the test fails. */
#ifndef WEIR_TESTS_OPEN_SEGMENTS_H
#define WEIR_TESTS_OPEN_SEGMENTS_H

#include "lib/segments.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static inline struct segment *open_shape(const struct segment_shape *shape)
{
    struct segment *segment = NULL;
    int r = segment_open(place, shape, &segment, &error);

    if (r < 0)
        fail_msg("%s", error.message);
    return segment;
}

static inline struct segment *open_some(void)
{
    const struct segment_shape shape = some_shape();

    return open_shape(&shape);
}

static inline struct segment *open_keyed(void)
{
    const struct segment_shape shape = keyed_shape();

    return open_shape(&shape);
}

static inline void remove_some(void)
{
    if (segment_remove(place, "set", true, is_in_use, &error) < 0)
        fail_msg("%s", error.message);
    assert_int_equal(files_n(), 0);
}

#endif
