/* SPDX-License-Identifier: MIT */
/* Tables by number: every number has a place of its own, which never moves. */
#include "base/stable_array.h"
#include "lib/world.h"

#define NUMBERS 5000u

/* By parts of 16, 32, 64, … entries: the first and the last of each, and the number of the part. */
static void numbers_fill_parts_that_double(void **state)
{
    struct stable_array table = {0};
    uint32_t first = 0;

    (void)state;
    for (uint32_t part = 0, size = STABLE_ARRAY_FIRST; part < 8; part++, size *= 2) {
        assert_null(table.parts[part]);
        assert_int_equal(stable_array_reserve(&table, first + 1), 0);
        assert_non_null(table.parts[part]);
        assert_int_equal(stable_array_reserve(&table, first + size), 0);
        assert_null(table.parts[part + 1]); /* all of them are in this part */
        assert_ptr_equal(stable_array_at(&table, first), table.parts[part]);
        assert_ptr_equal(stable_array_at(&table, first + size - 1),
                         (void **)table.parts[part] + size - 1);
        first += size;
    }
    stable_array_free(&table);
}

static void entries_stay_where_they_are_while_the_table_grows(void **state)
{
    static int things[NUMBERS];
    static void **places[NUMBERS];
    struct stable_array table = {0};

    (void)state;
    for (uint32_t i = 0; i < NUMBERS; i++) {
        assert_int_equal(stable_array_reserve(&table, i + 1), 0);
        places[i] = stable_array_at(&table, i);
        assert_null(*places[i]); /* new, and in no other use */
        *places[i] = &things[i];
    }
    for (uint32_t i = 0; i < NUMBERS; i++) {
        assert_ptr_equal(stable_array_at(&table, i), places[i]);
        assert_ptr_equal(*places[i], &things[i]);
    }
    stable_array_free(&table);
}

static void room_that_is_there_costs_nothing(void **state)
{
    struct stable_array table = {0};
    uint64_t allocs;

    (void)state;
    assert_int_equal(stable_array_reserve(&table, 0), 0);
    assert_int_equal(fake_os_counts().alloc, 0);
    assert_int_equal(stable_array_reserve(&table, 1000), 0);
    allocs = fake_os_counts().alloc;
    for (uint32_t n = 0; n <= 1000; n++)
        assert_int_equal(stable_array_reserve(&table, n), 0);
    assert_int_equal(fake_os_counts().alloc, allocs);
    stable_array_free(&table);
    assert_null(table.parts[0]);
    stable_array_free(&table); /* empty: fine */
}

/* What was there stays, what could be had is kept, and it can be tried again. */
static void without_memory_nothing_is_lost(void **state)
{
    struct stable_array table = {0};
    int thing;

    (void)state;
    assert_int_equal(stable_array_reserve(&table, 1), 0);
    *stable_array_at(&table, 7) = &thing;
    for (uint64_t parts = 0; parts < 3; parts++) { /* one more each time */
        fake_os_fail_kind_at(parts ? 2 : 1, FAKE_MEMORY, 0);
        assert_int_equal(stable_array_reserve(&table, STABLE_ARRAY_FIRST * 15), -ENOMEM);
        fake_os_fail_at(0);
        assert_ptr_equal(*stable_array_at(&table, 7), &thing);
    }
    assert_int_equal(stable_array_reserve(&table, STABLE_ARRAY_FIRST * 15), 0);
    assert_ptr_equal(*stable_array_at(&table, 7), &thing);
    assert_null(*stable_array_at(&table, STABLE_ARRAY_FIRST * 15 - 1));
    stable_array_free(&table);
}

/* Where numbers end: the last part is never asked for by a number that a table may have. */
static void a_number_beyond_all_parts_is_refused(void **state)
{
    struct stable_array table = {0};

    (void)state;
    /* Parts that are there need no memory, so that only the numbers are in question. */
    for (uint32_t part = 0; part < STABLE_ARRAY_PARTS; part++)
        table.parts[part] = (void **)&table;
    assert_int_equal(stable_array_reserve(&table, (STABLE_ARRAY_FIRST << STABLE_ARRAY_PARTS) -
                                                      STABLE_ARRAY_FIRST),
                     0);
    assert_int_equal(stable_array_reserve(&table, (STABLE_ARRAY_FIRST << STABLE_ARRAY_PARTS) -
                                                      STABLE_ARRAY_FIRST + 1),
                     -ENOMEM);
    assert_int_equal(stable_array_reserve(&table, UINT32_MAX), -ENOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(numbers_fill_parts_that_double),
        leak_checked_test(entries_stay_where_they_are_while_the_table_grows),
        leak_checked_test(room_that_is_there_costs_nothing),
        leak_checked_test(without_memory_nothing_is_lost),
        leak_checked_test(a_number_beyond_all_parts_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
