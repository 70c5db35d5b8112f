/* SPDX-License-Identifier: MIT */
/* Segments: no place is used before there is memory for it. */
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/open_segments.h"
#include "shm/segment.h"
#include "state/version.h"
#include <errno.h>

static void places_get_memory_before_their_use(void **state)
{
    struct segment *segment = open_some();
    const uint32_t last = segment->layout.sizes.threads_n - 1;
    struct stat before, after;

    (void)state;
    assert_int_equal(segment_peers_n(segment), 0);
    assert_int_equal(segment_threads_n(segment), 0);
    assert_int_equal(segment_runs_n(segment), 0);
    assert_int_equal(segment_alloc_peer(segment, 3), 0);
    assert_int_equal(segment_alloc_peer(segment, 1), 0);
    assert_int_equal(segment_peers_n(segment), 4);
    assert_int_equal(segment_alloc_thread(segment, last), 0);
    assert_int_equal(segment_threads_n(segment), last + 1);
    assert_int_equal(segment_alloc_run(segment, SEGMENT_RUNS_MAX - 1), 0);
    assert_int_equal(segment_runs_n(segment), SEGMENT_RUNS_MAX);
    fstat(segment->fd, &before);
    segment_peer(segment, 3)->id = 1;
    segment_thread(segment, last)->peer_key = 2;
    memset(segment_thread_counters(segment, last), 1, 256);
    memset(segment->base +
               (segment_block_slot(segment, last + 1) << segment->layout.sizes.block_class),
           1, (size_t)1 << segment->layout.sizes.block_class);
    atomic_store(segment_run_owner(segment, SEGMENT_RUNS_MAX - 1), 3);
    memset(segment->base + segment->layout.records_at + (SEGMENT_RUNS_MAX - 1) * SEGMENT_RUN_SIZE,
           1, SEGMENT_RUN_SIZE);
    fstat(segment->fd, &after);
    assert_int_equal(before.st_blocks, after.st_blocks); /* it was there */
    assert_int_equal(after.st_size, segment->layout.size);
    segment_close(segment);
    remove_some();
}

static void there_are_no_more_places(void **state)
{
    struct segment *segment = open_some();

    (void)state;
    assert_int_equal(segment_alloc_peer(segment, SEGMENT_PEERS_MAX), -EINVAL);
    assert_int_equal(segment_alloc_peer(segment, UINT32_MAX), -EINVAL);
    assert_int_equal(segment_alloc_thread(segment, segment->layout.sizes.threads_n), -EINVAL);
    assert_int_equal(segment_alloc_thread(segment, UINT32_MAX), -EINVAL);
    assert_int_equal(segment_alloc_run(segment, 0), -EINVAL);
    assert_int_equal(segment_alloc_run(segment, SEGMENT_RUNS_MAX), -EINVAL);
    segment_header(segment)->peers_high = UINT64_MAX; /* nonsense is cut */
    segment_header(segment)->threads_high = UINT64_MAX;
    segment_header(segment)->runs_high = UINT64_MAX;
    assert_int_equal(segment_peers_n(segment), SEGMENT_PEERS_MAX);
    assert_int_equal(segment_threads_n(segment), segment->layout.sizes.threads_n);
    assert_int_equal(segment_runs_n(segment), SEGMENT_RUNS_MAX);
    segment_close(segment);
    remove_some();
}

static void a_thread_context_keeps_the_block_it_has(void **state)
{
    struct segment *segment = open_some();
    struct thread_head *head = &segment_thread(segment, 5)->head;
    _Atomic uint64_t *own = &head->own_blocks[segment->layout.sizes.block_class - BLOCK_CLASS_MIN];

    (void)state;
    assert_int_equal(segment_alloc_thread(segment, 5), 0);
    assert_int_equal(*own, segment_block_slot(segment, 6));
    assert_int_equal(head->generation, 1);
    *own = 99;
    head->generation = 7;
    assert_int_equal(segment_alloc_thread(segment, 5), 0);
    assert_int_equal(*own, 99);
    assert_int_equal(head->generation, 7);
    segment_close(segment);
    remove_some();
}

static void key_sets_get_memory_before_their_use(void **state)
{
    struct segment *segment = open_keyed();
    const uint32_t last = segment->layout.sizes.key_sets_max - 1;
    const size_t block = (size_t)1 << segment->layout.sizes.block_class;
    struct stat before, after;

    (void)state;
    assert_int_equal(segment_key_sets_n(segment), 0);
    assert_int_equal(segment_alloc_key_set(segment, last + 1), -EINVAL);
    assert_int_equal(segment_alloc_key_set(segment, UINT32_MAX), -EINVAL);
    assert_int_equal(segment_key_sets_n(segment), 0);
    assert_int_equal(segment_alloc_key_set(segment, last), 0);
    assert_int_equal(segment_key_sets_n(segment), last + 1);
    assert_int_equal(segment_key_set(segment, last)->head.state_word,
                     INFLATED_BIT | segment_key_set_slot(segment, last));
    fstat(segment->fd, &before);
    memset(segment_key_set(segment, last), 1, sizeof(struct segment_key_set));
    memset(segment->base +
               (segment_key_set_slot(segment, last) << segment->layout.sizes.block_class),
           1, block);
    fstat(segment->fd, &after);
    assert_int_equal(before.st_blocks, after.st_blocks); /* it was there */
    segment_close(segment);
    remove_some();
    segment = open_some();
    assert_int_equal(segment_alloc_key_set(segment, 0), -EINVAL);
    segment_close(segment);
    remove_some();
}

/* It begins without content, once, whichever process comes late with that. */
static void a_key_set_is_begun_once(void **state)
{
    struct segment *first = open_keyed(), *second = open_keyed();
    _Atomic bool broken = false;
    uint64_t words[30];
    struct version version = {.content = words, .content_capacity = 30};
    struct region region, other;
    uint32_t unit = segment_key_set_unit(first, 3);

    (void)state;
    assert_int_equal(region_open_segment(&region, first, &broken), 0);
    assert_int_equal(region_open_segment(&other, second, &broken), 0);
    assert_int_equal(segment_alloc_thread(first, 2), 0);
    assert_int_equal(segment_alloc_key_set(first, 3), 0);
    version_read(&region, unit, &version);
    assert_int_equal(version.content_n, 0);
    assert_false(version.is_mismatch || version.needs_notify);
    for (uint64_t i = 1; i <= 10; i++) {
        version.content_n = 30;
        for (uint32_t k = 0; k < 30; k++)
            words[k] = i * k;
        assert_true(version_commit(&region, segment_thread_unit(first, 2), unit, &version));
        assert_int_equal(segment_alloc_key_set(i % 2 ? first : second, 3), 0);
        version_read(&other, unit, &version);
        assert_int_equal(version.content_n, 30);
        assert_int_equal(words[29], 29 * i);
    }
    assert_int_equal(segment_key_sets_n(second), 4);
    assert_true(has_first_version(second)); /* the set has nothing to do with it */
    assert_false(broken);
    region_close(&region);
    region_close(&other);
    segment_close(first);
    segment_close(second);
    remove_some();
}

static void no_room_for_a_place_is_an_error(void **state)
{
    struct segment *segment = open_some();

    (void)state;
    fake_os_fail_kind_from(1, FAKE_ROOM, 0);
    assert_int_equal(segment_alloc_peer(segment, 0), -ENOSPC);
    assert_int_equal(segment_alloc_thread(segment, 0), -ENOSPC);
    assert_int_equal(segment_alloc_run(segment, 1), -ENOSPC);
    fake_os_fail_kind_at(2, FAKE_ROOM, 0);
    assert_int_equal(segment_alloc_thread(segment, 0), -ENOSPC);
    fake_os_fail_kind_at(2, FAKE_ROOM, 0);
    assert_int_equal(segment_alloc_run(segment, 1), -ENOSPC);
    fake_os_reset();
    assert_int_equal(segment_peers_n(segment), 0);
    assert_int_equal(segment_threads_n(segment), 0);
    assert_int_equal(segment_runs_n(segment), 0);
    segment_close(segment);
    remove_some();
}

static void no_room_for_a_key_set_is_an_error(void **state)
{
    struct segment *segment = open_keyed();

    (void)state;
    for (uint64_t n = 1; n <= 2; n++) {
        fake_os_fail_kind_at(n, FAKE_ROOM, 0);
        assert_int_equal(segment_alloc_key_set(segment, 0), -ENOSPC);
        assert_int_equal(segment_key_sets_n(segment), 0);
        assert_int_equal(segment_key_set(segment, 0)->head.state_word, 0);
    }
    fake_os_reset();
    assert_int_equal(segment_alloc_key_set(segment, 0), 0);
    segment_close(segment);
    remove_some();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(places_get_memory_before_their_use),
        leak_checked_test(there_are_no_more_places),
        leak_checked_test(a_thread_context_keeps_the_block_it_has),
        leak_checked_test(key_sets_get_memory_before_their_use),
        leak_checked_test(a_key_set_is_begun_once),
        leak_checked_test(no_room_for_a_place_is_an_error),
        leak_checked_test(no_room_for_a_key_set_is_an_error),
    };

    return cmocka_run_group_tests(tests, place_setup, place_teardown);
}
