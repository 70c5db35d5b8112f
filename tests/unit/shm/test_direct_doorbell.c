/* SPDX-License-Identifier: MIT */
/* Direct doorbells: one is rung for the record that it is lent to, once that is HELD, and never for
 * a later one by a granter that is late. */
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/tmpdir.h"
#include "os/os.h"
#include "shm/acq_record.h"
#include "shm/direct_doorbell.h"
#include "shm/doorbell_cache.h"
#include "shm/peer_id.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <unistd.h>

#include <cmocka.h>

#define STEM "set.0123456789abcdef"
#define KEY  2049u

static char directory[TMPDIR_SIZE];
static int directory_fd;
static struct doorbell_cache *cache;
static struct peer_slot peers[PEERS_MAX];
static struct acq_record record;

static int setup(void **state)
{
    if (!tmpdir_make(directory, "/tmp"))
        return -1;
    directory_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory_fd < 0 || fixture_setup(state) < 0)
        return -1;
    atomic_store(&peers[KEY % PEERS_MAX].id, peer_id_make(KEY >> PEER_SLOT_BITS, 1, 1));
    cache = doorbell_cache_new(directory_fd, STEM, peers);
    atomic_store(&record.word, RECORD_FREE);
    atomic_store(&record.data, 0);
    record_set_wait_target(&record, WAIT_TARGET_TIMER, 0, 0);
    return cache ? 0 : -1;
}

/* Fails if a descriptor, or a doorbell, is left. */
static int teardown(void **state)
{
    int r;

    doorbell_cache_free(cache);
    r = fixture_teardown(state);
    close(directory_fd);
    return rmdir(directory) < 0 ? -1 : r;
}

#define bell_test(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

static struct direct_doorbell make(uint32_t number)
{
    struct direct_doorbell doorbell;

    assert_int_equal(direct_doorbell_open(directory_fd, STEM, KEY, number, &doorbell), 0);
    return doorbell;
}

static void unmake(const struct direct_doorbell *doorbell)
{
    direct_doorbell_close(directory_fd, STEM, KEY, doorbell);
}

static void become(enum record_state state)
{
    atomic_store(&record.word, record_next_word(atomic_load(&record.word), state));
}

static bool ring(void)
{
    return direct_doorbell_ring(cache, KEY, &record);
}

static bool is_rung(const struct direct_doorbell *doorbell)
{
    struct pollfd poller = {.fd = doorbell->fd, .events = POLLIN};

    return poll(&poller, 1, 0) == 1;
}

/* As an eventfd is read. */
static uint64_t ring_sum(const struct direct_doorbell *doorbell)
{
    uint64_t all = 0, n;

    while (read(doorbell->fd, &n, sizeof(n)) == sizeof(n))
        all += n;
    return all;
}

static void a_held_record_is_rung_for(void **state)
{
    struct direct_doorbell doorbell = make(1);

    (void)state;
    become(RECORD_WAITING);
    assert_false(ring()); /* it has none */
    direct_doorbell_lend(&doorbell, &record);
    assert_false(ring()); /* it waits */
    assert_false(is_rung(&doorbell));
    become(RECORD_HELD);
    assert_true(ring());
    assert_true(is_rung(&doorbell));
    assert_int_equal(ring_sum(&doorbell), 1);
    assert_true(ring()); /* that was done */
    assert_int_equal(direct_doorbell_ring_own(&doorbell), 0);
    assert_int_equal(ring_sum(&doorbell), 0);
    direct_doorbell_take_back(&doorbell);
    assert_true(direct_doorbell_is_over(&doorbell));
    assert_false(ring());
    assert_false(is_rung(&doorbell));
    unmake(&doorbell);
}

/* All but a grant goes to the wait timer, as what is to be done is more. */
static void other_states_are_not_rung_for(void **state)
{
    struct direct_doorbell doorbell = make(1);

    (void)state;
    for (int i = RECORD_FREE; i <= RECORD_REVOKED; i++) {
        become(RECORD_WAITING);
        direct_doorbell_lend(&doorbell, &record);
        become((enum record_state)i);
        assert_int_equal(ring(), i == RECORD_HELD);
        assert_int_equal(is_rung(&doorbell), i == RECORD_HELD);
        direct_doorbell_take_back(&doorbell);
        assert_true(direct_doorbell_is_over(&doorbell) && direct_doorbell_empty(&doorbell));
    }
    unmake(&doorbell);
}

/* It may have noted that it rings, and be dead. */
static void what_may_not_have_been_rung_is_rung_again(void **state)
{
    struct direct_doorbell doorbell = make(1);

    (void)state;
    become(RECORD_WAITING);
    direct_doorbell_lend(&doorbell, &record);
    become(RECORD_HELD);
    atomic_fetch_add(&record.data, 1 | UINT64_C(1) << 31);
    assert_true(direct_doorbell_is_rung(&record));
    assert_true(ring());
    assert_int_equal(ring_sum(&doorbell), 1);
    assert_int_equal(direct_doorbell_ring_own(&doorbell), 0);
    assert_int_equal(ring_sum(&doorbell), 1);
    unmake(&doorbell);
}

/* Whatever its count was, and whichever turn it has counted itself in. */
static void a_granter_that_is_counted_is_found(void **state)
{
    static const uint64_t counts[] = {0, 1, 7, UINT32_MAX, UINT64_MAX, UINT64_MAX << 32};
    struct direct_doorbell doorbell = make(1);

    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        become(RECORD_WAITING);
        atomic_store(&record.data, counts[i]);
        direct_doorbell_lend(&doorbell, &record);
        become(RECORD_HELD);
        atomic_fetch_add(&record.data, 1);
        direct_doorbell_take_back(&doorbell);
        assert_false(direct_doorbell_is_over(&doorbell));
        become(RECORD_FREE);
        become(RECORD_WAITING);
        direct_doorbell_lend(&doorbell, &record); /* the next turn */
        become(RECORD_HELD);
        assert_true(ring());
        assert_int_equal(ring_sum(&doorbell), 1);
        direct_doorbell_take_back(&doorbell);
        assert_true(direct_doorbell_is_over(&doorbell));
        become(RECORD_FREE);
    }
    unmake(&doorbell);
}

/* The record has gone to another process, which waits in its own way. */
static void the_wait_target_of_another_stays(void **state)
{
    struct direct_doorbell doorbell = make(1);

    (void)state;
    become(RECORD_WAITING);
    direct_doorbell_lend(&doorbell, &record);
    record_set_wait_target(&record, WAIT_TARGET_CQ, 5, 0);
    direct_doorbell_take_back(&doorbell);
    assert_int_equal(wait_target_timer(record_wait_target(&record)), 5);
    assert_int_equal(wait_target_direct(record_wait_target(&record)), 0);
    unmake(&doorbell);
}

/* The process that grants rings the wait timer then, and whatever rings next does so. */
static void one_that_cannot_be_rung_is_rung_by_others(void **state)
{
    struct direct_doorbell doorbell = make(1);

    (void)state;
    become(RECORD_WAITING);
    direct_doorbell_lend(&doorbell, &record);
    become(RECORD_HELD);
    fake_os_fail_kind_from(1, FAKE_ANY | FAKE_EVENT, -EMFILE);
    assert_false(ring());
    fake_os_fail_kind_at(0, 0, 0);
    assert_false(is_rung(&doorbell));
    assert_int_equal(direct_doorbell_ring_own(&doorbell), 0);
    assert_int_equal(ring_sum(&doorbell), 1);
    direct_doorbell_take_back(&doorbell);
    assert_false(direct_doorbell_is_over(&doorbell));
    unmake(&doorbell);
}

static void a_flood_is_not_emptied(void **state)
{
    struct direct_doorbell doorbell = make(1);
    char flood[1000] = {0};

    (void)state;
    assert_int_equal(write(doorbell.fd, flood, sizeof(flood)), sizeof(flood));
    assert_false(direct_doorbell_empty(&doorbell));
    unmake(&doorbell);
}

static void those_of_the_dead_go(void **state)
{
    static const uint32_t numbers[] = {1, 2, 5000, DIRECT_DOORBELL_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        struct direct_doorbell doorbell = make(numbers[i]);

        assert_int_equal(direct_doorbell_remove(directory_fd, STEM, KEY, numbers[i] - 1), 0);
        assert_int_equal(direct_doorbell_remove(directory_fd, STEM, KEY + 1, numbers[i]), 0);
        assert_true(os_fifo_is_read(directory_fd, STEM ".2049.268435456.bell") >= 0 || i > 0);
        assert_int_equal(direct_doorbell_remove(directory_fd, STEM, KEY, numbers[i]), 0);
        os_close(doorbell.fd);
        assert_int_equal(rmdir(directory), 0); /* there is none */
        assert_int_equal(mkdir(directory, 0700), 0);
        close(directory_fd);
        directory_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        cache->directory_fd = directory_fd;
    }
    assert_int_equal(direct_doorbell_remove(directory_fd, STEM, KEY, 0), 0);
    assert_int_equal(direct_doorbell_remove(directory_fd, STEM, KEY, UINT32_MAX), 0);
}

static void what_cannot_be_opened_leaves_nothing(void **state)
{
    struct direct_doorbell doorbell;
    uint64_t n = 0;
    int r;

    (void)state;
    do {
        fake_os_fail_kind_at(++n, FAKE_ANY | FAKE_EVENT, -EMFILE);
        r = direct_doorbell_open(directory_fd, STEM, KEY, 3, &doorbell);
        assert_true(r == 0 || r == -EMFILE);
    } while (r < 0);
    fake_os_fail_kind_at(0, 0, 0);
    assert_true(n > 3);
    unmake(&doorbell);
}

/* ---- granters at any time ---- */

enum { GRANTERS = 3, WAITS = 1500 };

static atomic_bool is_over;

static void *grant(void *rung)
{
    while (!atomic_load(&is_over))
        if (ring())
            atomic_fetch_add((atomic_uint *)rung, 1);
    return NULL;
}

/* Nothing is ever in the doorbell of a record that waits. */
static void late_granters_ring_no_later_wait(void **state)
{
    pthread_t threads[GRANTERS];
    atomic_uint rung = 0;
    uint32_t number = 1;
    struct direct_doorbell doorbell = make(number);

    (void)state;
    atomic_store(&is_over, false);
    for (int i = 0; i < GRANTERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, grant, &rung), 0);
    for (int i = 0; i < WAITS || !rung; i++) {
        if (!direct_doorbell_is_over(&doorbell) || !direct_doorbell_empty(&doorbell)) {
            unmake(&doorbell);
            doorbell = make(++number);
        }
        become(RECORD_WAITING);
        direct_doorbell_lend(&doorbell, &record);
        sched_yield();
        assert_false(is_rung(&doorbell));
        become(RECORD_HELD);
        if (i % 8 == 0)
            sched_yield();
        become(RECORD_FREE);
        direct_doorbell_take_back(&doorbell);
    }
    atomic_store(&is_over, true);
    for (int i = 0; i < GRANTERS; i++)
        pthread_join(threads[i], NULL);
    unmake(&doorbell);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        bell_test(a_held_record_is_rung_for),
        bell_test(other_states_are_not_rung_for),
        bell_test(what_may_not_have_been_rung_is_rung_again),
        bell_test(a_granter_that_is_counted_is_found),
        bell_test(the_wait_target_of_another_stays),
        bell_test(one_that_cannot_be_rung_is_rung_by_others),
        bell_test(a_flood_is_not_emptied),
        bell_test(those_of_the_dead_go),
        bell_test(what_cannot_be_opened_leaves_nothing),
        bell_test(late_granters_ring_no_later_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
