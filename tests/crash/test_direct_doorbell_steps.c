/* SPDX-License-Identifier: MIT */
/*
 * A granter of a direct doorbell that is stopped, or dies, at any of its steps. Meanwhile the wait
 * ends at any other moment, and the record and its doorbell serve further waits. The doorbell of a
 * record that waits is never rung, and what is granted without a stop is always heard.
 *
 * Exits with 77 under ThreadSanitizer.
 */
#include "base/sched_point.h"
#include "fiber.h"
#include "shm/acq_record.h"
#include "shm/direct_doorbell.h"
#include "shm/doorbell_cache.h"
#include "shm/peer_id.h"
#include "system.h"

#include "lib/require.h"
#include "lib/tmpdir.h"
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define STEM "set.0123456789abcdef"
#define KEY  2049u

static char place[TMPDIR_SIZE];
static int directory_fd;
static struct doorbell_cache *cache;
static struct peer_slot peers[PEERS_MAX];
static struct acq_record record;
static struct direct_doorbell doorbell;
static uint32_t last_number, thrown_away;
static struct fiber granter, owner, second;
static bool has_rung;

static bool is_rung(void)
{
    struct pollfd poller = {.fd = doorbell.fd, .events = POLLIN};

    return poll(&poller, 1, 0) == 1;
}

static void open_next(void)
{
    require(direct_doorbell_open(directory_fd, STEM, KEY, ++last_number, &doorbell) == 0);
}

static void become(enum record_state state)
{
    atomic_store(&record.word, record_next_word(atomic_load(&record.word), state));
}

static void look(void)
{
    uint64_t word = atomic_load(&record.word);

    if (record_state(word) == RECORD_WAITING)
        require(!is_rung());
}

static void begin_wait(void)
{
    if (!direct_doorbell_is_over(&doorbell)) {
        direct_doorbell_close(directory_fd, STEM, KEY, &doorbell);
        open_next();
        thrown_away++;
    }
    require(direct_doorbell_empty(&doorbell));
    become(RECORD_WAITING);
    direct_doorbell_lend(&doorbell, &record);
}

/* What is granted and not yet rung this process signals itself. */
static void end_wait(void)
{
    require(direct_doorbell_ring_own(&doorbell) == 0);
    require(is_rung());
    become(RECORD_FREE);
    direct_doorbell_take_back(&doorbell);
}

static void grant(void *unused)
{
    (void)unused;
    has_rung = direct_doorbell_ring(cache, KEY, &record);
}

/* Its waits, one after another, the last of which goes on. */
static void own(void *waits)
{
    for (int i = 0; i < *(const int *)waits; i++) {
        become(RECORD_HELD);
        (void)shm_load_seq_cst(&record.word); /* a step */
        end_wait();
        begin_wait();
    }
}

static uint64_t steps_of(void (*run)(void *), void *argument)
{
    uint64_t before = fiber_steps();

    fiber_start(&owner, run, argument);
    fiber_go(&owner, 0);
    return fiber_steps() - before;
}

/* The last wait is granted without a stop: what it is told is heard. */
static void finish(void)
{
    become(RECORD_HELD);
    fiber_start(&second, grant, NULL);
    require(fiber_go(&second, 0) == FIBER_DONE);
    require(has_rung && is_rung());
    end_wait();
}

/* The granter stops after `i` steps of its own, and again after `j`. Meanwhile the owner makes `k`
 * steps, and then all of its own. */
static void try_stops(uint64_t i, uint64_t k, uint64_t j, bool dies)
{
    static int waits = 3;

    begin_wait();
    become(RECORD_HELD);
    fiber_start(&granter, grant, NULL);
    fiber_go(&granter, i);
    fiber_start(&owner, own, &waits);
    fiber_go(&owner, k);
    if (!dies)
        fiber_go(&granter, j);
    fiber_go(&owner, 0);
    if (!dies)
        fiber_go(&granter, 0);
    look();
    finish();
}

static void a_stop_at_each_step(void **state)
{
    int once = 1;
    uint64_t granting, owning;

    (void)state;
    begin_wait();
    owning = steps_of(own, &once);
    become(RECORD_HELD);
    granting = steps_of(grant, NULL);
    end_wait();
    require(granting > 4 && owning > 4);
    for (uint64_t i = 1; i <= granting; i++)
        for (uint64_t k = 1; k <= 2 * owning; k++)
            for (uint64_t j = 1; i + j <= granting + 1; j++)
                try_stops(i, k, j, false);
    for (uint64_t i = 1; i <= granting; i++)
        for (uint64_t k = 1; k <= 2 * owning; k++)
            try_stops(i, k, 0, true);
    require(thrown_away > 0);
}

static int setup(void **state)
{
    (void)state;
    if (!system_start() || !tmpdir_make(place, NULL))
        return -1;
    directory_fd = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    atomic_store(&peers[KEY % PEERS_MAX].id, peer_id_make(KEY >> PEER_SLOT_BITS, 1, 1));
    cache = doorbell_cache_new(directory_fd, STEM, peers);
    require(directory_fd >= 0 && cache);
    open_next();
    record_set_wait_target(&record, WAIT_TARGET_TIMER, 0, 0);
    fibers_begin(look);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fibers_end();
    direct_doorbell_close(directory_fd, STEM, KEY, &doorbell);
    doorbell_cache_free(cache);
    close(directory_fd);
    return rmdir(place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_stop_at_each_step)};

    if (!fibers_are_possible())
        return FIBERS_SKIPPED;
    return cmocka_run_group_tests(tests, setup, teardown);
}
