/* SPDX-License-Identifier: MIT */
/* The heap of deadlines, against a plain search over all records. */
#include "lib/random.h"
#include "lib/world.h"
#include "wait/deadline_heap.h"

#define RECORDS 200

static struct region region;
static struct deadline_heap heap;
static uint32_t records[RECORDS];
static uint64_t instants[RECORDS]; /* WEIR_FOREVER: not in the heap */
static uint64_t random_state;

static uint64_t any(void)
{
    return random_next(&random_state);
}

static void make(void)
{
    uint32_t units = record_units(1), run;

    assert_int_equal(region_open(&region), 0);
    run = region_alloc_run(&region, units);
    assert_true(run > 0);
    heap = (struct deadline_heap){.region = &region};
    for (uint32_t i = 0; i < RECORDS; i++) {
        records[i] = run + i * units;
        instants[i] = WEIR_FOREVER;
    }
    random_state = 1;
}

static void unmake(void)
{
    for (int i = 0; i < RECORDS; i++)
        deadline_heap_remove(&heap, records[i]); /* fine if it is not there */
    assert_null(deadline_heap_first(&heap));
    deadline_heap_free(&heap);
    region_close(&region);
}

static void put(int i, uint64_t at_ns)
{
    deadline_heap_put(&heap, records[i], at_ns);
    instants[i] = at_ns;
}

static void put_earlier(int i, uint64_t at_ns)
{
    deadline_heap_put_earlier(&heap, records[i], at_ns);
    if (at_ns < instants[i])
        instants[i] = at_ns;
}

static void check(void)
{
    uint64_t first = WEIR_FOREVER;
    size_t n = 0;

    for (int i = 0; i < RECORDS; i++) {
        uint32_t index = record_at(&region, records[i])->heap_index;

        assert_int_equal(index ? deadline_entry_ns(&heap.entries[index - 1]) : WEIR_FOREVER,
                         instants[i]);
        n += instants[i] != WEIR_FOREVER;
        if (instants[i] < first)
            first = instants[i];
    }
    assert_int_equal(heap.n, n);
    assert_int_equal(deadline_heap_first(&heap) != NULL, n > 0);
    if (n)
        assert_int_equal(deadline_entry_ns(deadline_heap_first(&heap)), first);
}

static void the_earliest_is_first_whatever_was_put_moved_and_removed(void **state)
{
    (void)state;
    make();
    assert_int_equal(deadline_heap_reserve(&heap, RECORDS), 0);
    for (int n = 0; n < 20000; n++) {
        int i = (int)(any() % RECORDS);

        uint64_t choice = any() % 4;

        if (choice == 0) {
            put_earlier(i, any() % 50 << any() % 2 * 32);
        } else if (choice < 3) {
            put(i, any() % 50 << any() % 2 * 32);
        } else {
            deadline_heap_remove(&heap, records[i]);
            instants[i] = WEIR_FOREVER;
        }
        check();
    }
    unmake();
}

/* While the heap is used like a queue it is a ring; then anything else is done to it, and it
 * drains. */
static void a_queue_goes_around(void **state)
{
    uint64_t last_ns = 0;

    (void)state;
    make();
    assert_int_equal(deadline_heap_reserve(&heap, 1), 0);
    for (int n = 0, first = 0, waiting = 0; n < 20000; n++) {
        uint64_t choice = any() % 8;

        if (n % 2000 > 1600) /* now and then it drains, and is in order again */
            choice = 7;
        if (choice < 4 && waiting < RECORDS) {
            assert_int_equal(deadline_heap_reserve(&heap, (size_t)waiting + 1), 0);
            put((first + waiting++) % RECORDS, last_ns += any() % 3);
        } else if (waiting > 0 && choice < 5) { /* a recheck of the first one */
            if (instants[first] > 3 && instants[first] != WEIR_FOREVER)
                put_earlier(first, instants[first] - any() % 3);
        } else if (waiting > 0 && (choice < 6 || n % 2000 > 1000)) {
            deadline_heap_remove(&heap, records[first]);
            instants[first] = WEIR_FOREVER;
            first = (first + 1) % RECORDS;
            waiting--;
        } else if (waiting > 0 && any() % 16 == 0) { /* one in the middle is canceled, or moves */
            int i = (first + (int)(any() % (uint64_t)waiting)) % RECORDS;

            if (instants[i] != WEIR_FOREVER && any() % 2)
                put(i, any() % (last_ns + 1));
            deadline_heap_remove(&heap, records[i]);
            instants[i] = WEIR_FOREVER;
        }
        check();
    }
    assert_true(heap.capacity > 16);
    unmake();
}

static void they_come_out_in_order(void **state)
{
    uint64_t last = 0;

    (void)state;
    make();
    assert_int_equal(deadline_heap_reserve(&heap, RECORDS), 0);
    for (int i = 0; i < RECORDS; i++)
        put(i, any() % 1000 * UINT64_C(0x123456789));
    for (int i = 0; i < RECORDS; i++) {
        const struct deadline_entry *first = deadline_heap_first(&heap);

        assert_true(deadline_entry_ns(first) >= last);
        last = deadline_entry_ns(first);
        deadline_heap_remove(&heap, first->record);
    }
    unmake();
}

static void room_is_made_or_nothing_changes(void **state)
{
    (void)state;
    make();
    fake_os_fail_at(1);
    assert_int_equal(deadline_heap_reserve(&heap, 1), -ENOMEM);
    assert_int_equal(deadline_heap_reserve(&heap, 1), 0);
    put(0, 7);
    fake_os_fail_at(1);
    assert_int_equal(deadline_heap_reserve(&heap, 1000), -ENOMEM);
    check();
    assert_int_equal(deadline_heap_reserve(&heap, 1000), 0);
    check();
    unmake();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(the_earliest_is_first_whatever_was_put_moved_and_removed),
        leak_checked_test(a_queue_goes_around),
        leak_checked_test(they_come_out_in_order),
        leak_checked_test(room_is_made_or_nothing_changes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
