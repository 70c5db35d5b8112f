/* SPDX-License-Identifier: MIT */
/* Regions: what is allocated is zeroed, aligned, apart from all else, and stays where it is. */
#include "lib/world.h"
#include "shm/acq_record.h"
#include "shm/region.h"

static void blocks_are_zeroed_aligned_and_apart(void **state)
{
    struct region region;
    uint32_t units[100];

    (void)state;
    assert_int_equal(region_open(&region), 0);
    for (size_t i = 0; i < 100; i++) {
        size_t size = (size_t)64 << i % 8;
        unsigned char *block;

        units[i] = region_alloc_block(&region, size, size);
        assert_true(units[i] > 0);
        block = region_block(&region, units[i]);
        assert_int_equal((size_t)(block - region.blocks.base) % size, 0);
        for (size_t j = 0; j < size; j++)
            assert_int_equal(block[j], 0);
        memset(block, (int)i + 1, size);
    }
    for (size_t i = 0; i < 100; i++) {
        const unsigned char *block = region_block(&region, units[i]);

        for (size_t j = 0; j < (size_t)64 << i % 8; j++)
            assert_int_equal(block[j], i + 1);
    }
    region_close(&region);
}

static void runs_of_records_remember_their_size(void **state)
{
    struct region region;

    (void)state;
    assert_int_equal(region_open(&region), 0);
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t units = 1 + i % RECORD_UNITS_MAX, run = region_alloc_run(&region, units);

        assert_int_equal(run, (i + 1) * RUN_UNITS); /* run 0 has no records: 0 means none */
        assert_int_equal(record_load(&record_at(&region, run)->word), 0);
        record_store(&record_at(&region, run + RUN_UNITS - 1)->word, UINT64_MAX);
    }
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t units = 1 + i % RECORD_UNITS_MAX, run = (i + 1) * RUN_UNITS, last;

        last = run + (RUN_UNITS / units - 1) * units;
        assert_true(region_has_record(&region, run));
        assert_true(region_has_record(&region, last));
        assert_int_equal(region_has_record(&region, run + 1), units == 1);
        assert_int_equal(region_next_record(&region, run), run + units);
        assert_int_equal(region_next_record(&region, last), i == 199 ? 0 : run + RUN_UNITS);
    }
    region_close(&region);
}

/* Such numbers may come from outside. Nothing is read there. */
static void numbers_of_no_record_are_told_apart(void **state)
{
    struct region region;

    (void)state;
    assert_int_equal(region_open(&region), 0);
    assert_false(region_has_record(&region, RUN_UNITS));
    assert_int_equal(region_next_record(&region, 0), 0);
    assert_int_equal(region_alloc_run(&region, 7), RUN_UNITS);
    assert_int_equal(region_next_record(&region, 0), RUN_UNITS);
    assert_false(region_has_record(&region, 0));
    assert_false(region_has_record(&region, 7));
    assert_false(region_has_record(&region, RUN_UNITS + RUN_UNITS / 7 * 7)); /* there is no room */
    assert_false(region_has_record(&region, 2 * RUN_UNITS));
    for (uint32_t bit = 13; bit < 32; bit++)
        assert_false(region_has_record(&region, UINT32_C(1) << bit));
    assert_false(region_has_record(&region, UINT32_MAX));
    region_close(&region);
}

static void without_memory_there_is_no_region_and_no_block(void **state)
{
    struct region region;

    (void)state;
    fake_os_fail_kind_from(1, FAKE_MEMORY, 0);
    assert_int_equal(region_open(&region), -ENOMEM);
    fake_os_reset();
    assert_int_equal(region_open(&region), 0);
    fake_os_fail_kind_at(1, FAKE_MEMORY, 0);
    assert_int_equal(region_alloc_block(&region, 64, 64), 0);
    fake_os_fail_kind_at(1, FAKE_MEMORY, 0);
    while (region_alloc_run(&region, 1))
        continue;
    assert_true(region_alloc_block(&region, 64, 64) > 0);
    assert_true(region_alloc_run(&region, 1) > 0);
    region_close(&region);
}

static void a_block_too_large_for_the_region_is_refused(void **state)
{
    struct region region;

    (void)state;
    assert_int_equal(region_open(&region), 0);
    assert_int_equal(region_alloc_block(&region, region.blocks.reserved + 1, 64), 0);
    assert_int_equal(region_alloc_block(&region, SIZE_MAX - 4096, 64), 0);
    assert_true(region_alloc_block(&region, 64, 64) > 0);
    region_close(&region);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(blocks_are_zeroed_aligned_and_apart),
        leak_checked_test(runs_of_records_remember_their_size),
        leak_checked_test(numbers_of_no_record_are_told_apart),
        leak_checked_test(without_memory_there_is_no_region_and_no_block),
        leak_checked_test(a_block_too_large_for_the_region_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
