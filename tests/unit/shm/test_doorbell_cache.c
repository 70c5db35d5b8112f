/* SPDX-License-Identifier: MIT */
/* Doorbells that stay open: each ring is heard by the doorbell that has the name now, whatever was
 * open, and with whatever descriptors there are. */
#include "lib/child.h"
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/random.h"
#include "lib/tmpdir.h"
#include "os/os.h"
#include "shm/doorbell.h"
#include "shm/doorbell_cache.h"
#include "shm/peer_id.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#define STEM "set.0123456789abcdef"
#define SLOT 2049u /* a peer key */
#define ANY  (FAKE_ANY | FAKE_EVENT)

static char directory[TMPDIR_SIZE];
static int directory_fd;
static struct doorbell_cache *cache;
static struct peer_slot peers[PEERS_MAX];

/* The process of this peer key is attached, and has opened and closed doorbells so often. */
static void attach(uint32_t slot, uint64_t changed_n)
{
    struct peer_slot *peer = &peers[slot % PEERS_MAX];

    atomic_store(&peer->id, peer_id_make(slot >> PEER_SLOT_BITS, 1, 1));
    atomic_store(&peer->doorbells_changed, changed_n);
}

static void detach(uint32_t slot)
{
    atomic_store(&peers[slot % PEERS_MAX].id, peer_id_make(slot >> PEER_SLOT_BITS, 0, 0));
}

static int setup(void **state)
{
    if (!tmpdir_make(directory, "/tmp"))
        return -1;
    directory_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory_fd < 0 || fixture_setup(state) < 0)
        return -1;
    cache = doorbell_cache_new(directory_fd, STEM, peers);
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

#define cache_test(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

static int make(uint32_t slot, uint32_t timer)
{
    int fd = doorbell_open(directory_fd, STEM, slot, timer);

    assert_true(fd >= 0);
    return fd;
}

static void unmake(int fd, uint32_t slot, uint32_t timer)
{
    doorbell_close(directory_fd, fd, STEM, slot, timer);
}

/* Requires that exactly this number is in it. */
static void assert_hears(int fd, uint32_t record)
{
    uint32_t heard[8];
    bool overflowed = false;

    assert_int_equal(doorbell_read(fd, heard, 8, &overflowed), 1);
    assert_false(overflowed);
    assert_int_equal(heard[0], record);
}

static void assert_silent(int fd)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};

    assert_int_equal(poll(&poller, 1, 0), 0);
}

static int ring(uint32_t slot, uint32_t timer, uint64_t changed_n, uint32_t record)
{
    attach(slot, changed_n);
    return doorbell_cache_ring(cache, slot, timer, record);
}

static void renew(void)
{
    doorbell_cache_free(cache);
    cache = doorbell_cache_new(directory_fd, STEM, peers);
    assert_non_null(cache);
}

static int kept(void)
{
    int n = 0;

    for (uint32_t i = 0; i < DOORBELL_CACHE_SIZE; i++)
        n += cache->entries[i].fd >= 0;
    return n;
}

/* How many system calls that may fail a ring makes. */
static uint64_t calls_of_ring(uint32_t slot, uint32_t timer, uint64_t changed_n, int fd)
{
    uint64_t n;

    fake_os_fail_kind_at(0, ANY, 0);
    assert_int_equal(ring(slot, timer, changed_n, 7), 0);
    n = fake_os_calls();
    assert_hears(fd, 7);
    return n;
}

static void later_rings_are_one_call(void **state)
{
    int fd = make(SLOT, 0);

    (void)state;
    assert_true(calls_of_ring(SLOT, 0, 0, fd) > 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(calls_of_ring(SLOT, 0, 0, fd), 1);
    assert_int_equal(kept(), 1);
    unmake(fd, SLOT, 0);
}

/* Neighbors in the table, and those that meet in one place of it. */
static void each_is_rung_alone(void **state)
{
    static const uint32_t places[][2] = {
        {SLOT, 0}, {SLOT, 1}, {SLOT + 1, 0}, {SLOT, DOORBELL_CACHE_SIZE}, {SLOT + 1024, 0}};
    enum { PLACES = sizeof(places) / sizeof(places[0]) };
    int fds[PLACES];

    (void)state;
    for (int i = 0; i < PLACES; i++)
        fds[i] = make(places[i][0], places[i][1]);
    for (uint32_t turn = 0; turn < 4 * PLACES; turn++) {
        uint32_t at = turn * 3 % PLACES;

        assert_int_equal(ring(places[at][0], places[at][1], 0, turn), 0);
        for (uint32_t i = 0; i < PLACES; i++) {
            if (i == at)
                assert_hears(fds[i], turn);
            assert_silent(fds[i]);
        }
    }
    assert_int_equal(kept(), 2);
    for (int i = 0; i < PLACES; i++)
        unmake(fds[i], places[i][0], places[i][1]);
}

/* A timer that was closed and opened again has another doorbell of the same name. */
static void a_successor_is_rung(void **state)
{
    int old = make(SLOT, 3), fd;

    (void)state;
    assert_int_equal(ring(SLOT, 3, 0, 1), 0);
    assert_hears(old, 1);
    unmake(old, SLOT, 3);
    fd = make(SLOT, 3);
    assert_int_equal(ring(SLOT, 3, 1, 2), 0);
    assert_hears(fd, 2);
    assert_int_equal(kept(), 1);
    unmake(fd, SLOT, 3);
    assert_int_equal(ring(SLOT, 3, 2, 3), -ENOENT);
    assert_int_equal(kept(), 0);
}

/* As at each point between the removal and the count: the number is lost, and nothing else. */
static void a_closed_one_is_rung_for_nothing(void **state)
{
    int fd = make(SLOT, 0);

    (void)state;
    assert_int_equal(ring(SLOT, 0, 0, 1), 0);
    unmake(fd, SLOT, 0);
    for (uint32_t i = 0; i < 20000; i++) /* more than it has room for */
        assert_int_equal(ring(SLOT, 0, 0, i), 0);
}

static void those_of_the_dead_are_closed(void **state)
{
    int fds[3] = {make(SLOT, 0), make(SLOT, 1), make(SLOT + 5, 0)};

    (void)state;
    assert_int_equal(ring(SLOT, 0, 0, 1) | ring(SLOT, 1, 0, 1) | ring(SLOT + 5, 0, 0, 1), 0);
    assert_int_equal(kept(), 3);
    doorbell_cache_forget(cache, SLOT);
    assert_int_equal(kept(), 1);
    assert_int_equal(ring(SLOT + 5, 0, 0, 2), 0);
    pthread_mutex_lock(&cache->lock); /* another thread rings */
    doorbell_cache_forget(cache, SLOT + 5);
    pthread_mutex_unlock(&cache->lock);
    assert_int_equal(kept(), 1);
    unmake(fds[0], SLOT, 0);
    unmake(fds[1], SLOT, 1);
    unmake(fds[2], SLOT + 5, 0);
}

/* They have left, or another process has cleaned up after them, or closed one, or opened it anew.
 */
static void those_that_are_not_the_ones_to_ring_are_closed(void **state)
{
    int fds[4];

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        fds[i] = make(SLOT + i, 0);
        assert_int_equal(ring(SLOT + i, 0, i, 1), 0);
    }
    assert_true(doorbell_cache_prune(cache));
    assert_int_equal(kept(), 4);
    detach(SLOT);
    attach(SLOT + 1 + PEERS_MAX, 1); /* the slot's next process */
    attach(SLOT + 2, 3);
    pthread_mutex_lock(&cache->lock); /* another thread rings */
    assert_false(doorbell_cache_prune(cache));
    pthread_mutex_unlock(&cache->lock);
    assert_int_equal(kept(), 4);
    assert_true(doorbell_cache_prune(cache));
    assert_int_equal(kept(), 1);
    for (uint32_t i = 0; i < 4; i++)
        unmake(fds[i], SLOT + i, 0);
}

/* It would wait for ever otherwise. */
static void a_ring_waits_for_no_other(void **state)
{
    int fd = make(SLOT, 0);

    (void)state;
    pthread_mutex_lock(&cache->lock);
    assert_int_equal(ring(SLOT, 0, 0, 1), 0);
    pthread_mutex_unlock(&cache->lock);
    assert_hears(fd, 1);
    assert_int_equal(kept(), 0);
    unmake(fd, SLOT, 0);
}

enum { RINGERS = 4, RINGS = 600, BELLS = 3 };

static void *ring_all(void *failures)
{
    for (uint32_t i = 0; i < RINGS; i++)
        if (ring(SLOT, i % BELLS * DOORBELL_CACHE_SIZE, 0, i) != 0) /* all in one place */
            atomic_fetch_add((atomic_int *)failures, 1);
    return NULL;
}

static void threads_that_ring_at_once_lose_nothing(void **state)
{
    static uint32_t heard[DOORBELL_READ_MAX];
    pthread_t threads[RINGERS];
    atomic_int failures = 0;
    int fds[BELLS];

    (void)state;
    for (uint32_t i = 0; i < BELLS; i++)
        fds[i] = make(SLOT, i * DOORBELL_CACHE_SIZE);
    for (int i = 0; i < RINGERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ring_all, &failures), 0);
    for (int i = 0; i < 1000; i++)
        doorbell_cache_forget(cache, SLOT);
    for (int i = 0; i < RINGERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(failures, 0);
    for (uint32_t i = 0; i < BELLS; i++) {
        bool overflowed = false;

        assert_int_equal(doorbell_read(fds[i], heard, DOORBELL_READ_MAX, &overflowed),
                         RINGERS * RINGS / BELLS);
        assert_false(overflowed);
        unmake(fds[i], SLOT, i * DOORBELL_CACHE_SIZE);
    }
}

/* An eighth of what the process may have. */
static void with_few_descriptors_none_or_few_are_kept(void **state)
{
    struct rlimit before, few;
    int fds[4];

    (void)state;
    getrlimit(RLIMIT_NOFILE, &before);
    for (uint32_t i = 0; i < 4; i++)
        fds[i] = make(SLOT + i, 0);
    for (rlim_t most = 0; most < 4; most++) {
        few = (struct rlimit){8 * most + 7, before.rlim_max};
        renew();
        for (uint32_t i = 0; i < 4; i++) {
            /* The limit is of new descriptors, and the opened ones are of higher numbers. */
            setrlimit(RLIMIT_NOFILE, &few);
            (void)ring(SLOT + i, 0, 0, 1);
            setrlimit(RLIMIT_NOFILE, &before);
            assert_true((rlim_t)kept() <= most);
        }
    }
    renew();
    for (uint32_t i = 0; i < 4; i++)
        unmake(fds[i], SLOT + i, 0);
}

static void of_all_sets_together_few_are_kept(void **state)
{
    struct doorbell_cache *caches[8];
    struct rlimit before, few;
    int fd = make(SLOT, 0), n = 0;

    (void)state;
    getrlimit(RLIMIT_NOFILE, &before);
    few = (struct rlimit){40, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    for (int i = 0; i < 8; i++) {
        caches[i] = doorbell_cache_new(directory_fd, STEM, peers);
        assert_non_null(caches[i]);
        assert_int_equal(doorbell_cache_ring(caches[i], SLOT, 0, 7), 0);
        assert_hears(fd, 7); /* kept or not */
        n += caches[i]->entries[SLOT % DOORBELL_CACHE_SIZE].fd >= 0;
    }
    assert_int_equal(n, 5);
    doorbell_cache_free(caches[0]);
    assert_int_equal(doorbell_cache_ring(caches[7], SLOT, 0, 8), 0); /* has its place */
    assert_true(caches[7]->entries[SLOT % DOORBELL_CACHE_SIZE].fd >= 0);
    assert_hears(fd, 8);
    for (int i = 1; i < 8; i++)
        doorbell_cache_free(caches[i]);
    setrlimit(RLIMIT_NOFILE, &before);
    unmake(fd, SLOT, 0);
}

/* So many may be kept then, and so many descriptors be open. */
enum { FEW_KEPT = 7, FEW = 8 * FEW_KEPT + 7 };

/* Makes as many and one more, and keeps the first `n`. */
static void make_few(int fds[static FEW_KEPT + 1], uint32_t n)
{
    for (uint32_t i = 0; i <= FEW_KEPT; i++) {
        fds[i] = make(SLOT + i, 0);
        if (i >= n)
            continue;
        assert_int_equal(ring(SLOT + i, 0, 0, 1), 0);
        assert_hears(fds[i], 1);
    }
    assert_int_equal(kept(), n);
}

static void unmake_few(const int fds[static FEW_KEPT + 1])
{
    for (uint32_t i = 0; i <= FEW_KEPT; i++)
        unmake(fds[i], SLOT + i, 0);
}

static struct rlimit limit_descriptors(rlim_t most)
{
    struct rlimit before, limit;

    getrlimit(RLIMIT_NOFILE, &before);
    limit = (struct rlimit){most, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return before;
}

/* Those of processes that have left make room for those of living ones. */
static void what_is_left_takes_no_room(void **state)
{
    struct rlimit before = limit_descriptors(FEW);
    int fds[FEW_KEPT + 1];

    (void)state;
    make_few(fds, FEW_KEPT);
    assert_true(calls_of_ring(SLOT + FEW_KEPT, 0, 0, fds[FEW_KEPT]) > 1);
    assert_true(calls_of_ring(SLOT + FEW_KEPT, 0, 0, fds[FEW_KEPT]) > 1); /* not kept */
    detach(SLOT);
    attach(SLOT + 1, 1);
    assert_true(calls_of_ring(SLOT + FEW_KEPT, 0, 0, fds[FEW_KEPT]) > 1);
    assert_int_equal(calls_of_ring(SLOT + FEW_KEPT, 0, 0, fds[FEW_KEPT]), 1);
    assert_int_equal(kept(), FEW_KEPT - 1);
    setrlimit(RLIMIT_NOFILE, &before);
    unmake_few(fds);
}

/* Whether or not there may be more of them. */
static void without_a_descriptor_those_that_are_kept_are_given_up(void **state)
{
    struct rlimit before = limit_descriptors(FEW);

    (void)state;
    for (uint32_t n = 0; n <= FEW_KEPT; n++) {
        int fds[FEW_KEPT + 1], others[FEW], others_n = 0;

        renew();
        make_few(fds, n);
        while ((others[others_n] = dup(directory_fd)) >= 0)
            others_n++;
        assert_int_equal(ring(SLOT + FEW_KEPT, 0, 0, 2), n > 0 ? 0 : -EMFILE);
        if (n > 0)
            assert_hears(fds[FEW_KEPT], 2);
        assert_int_equal(kept(), 0);
        while (others_n > 0)
            close(others[--others_n]);
        unmake_few(fds);
    }
    setrlimit(RLIMIT_NOFILE, &before);
}

/* ---- forks ---- */

static atomic_bool stops;

/* Two doorbells that take each other's place. */
static void *ring_in_turn(void *unused)
{
    (void)unused;
    for (uint32_t i = 0; !atomic_load(&stops); i++)
        (void)doorbell_cache_ring(cache, SLOT, i % 2 * DOORBELL_CACHE_SIZE, i);
    return NULL;
}

/* Returns whether none of the program's descriptors is among those that a child would close. It
 * does not close them: a thread of the parent may have a lock of the fake. */
static bool child_closes_no_other(void)
{
    int own[4], status;
    pid_t child;

    for (int i = 0; i < 4; i++)
        own[i] = dup(directory_fd);
    child = child_fork();
    if (child == 0) {
        bool lost = false;

        for (int i = 0; i < 4 * (int)DOORBELL_CACHE_SIZE; i++)
            lost |= cache->entries[i / 4].fd == own[i % 4];
        _exit(lost);
    }
    status = child > 0 ? child_wait(child) : -1;
    for (int i = 0; i < 4; i++)
        close(own[i]);
    return child_exited(status, 0);
}

/* A thread of the parent is anywhere in a ring when the child is made. */
static void a_child_closes_nothing_of_the_program(void **state)
{
    const uint64_t forks = effort_from("WEIR_FORKS", 2000);
    int fds[] = {make(SLOT, 0), make(SLOT, DOORBELL_CACHE_SIZE)};
    uint64_t kept_n = 0;
    pthread_t thread;

    (void)state;
    attach(SLOT, 0);
    atomic_store(&stops, false);
    assert_int_equal(pthread_create(&thread, NULL, ring_in_turn, NULL), 0);
    while (kept_n < forks && child_closes_no_other())
        kept_n++;
    atomic_store(&stops, true);
    pthread_join(thread, NULL);
    unmake(fds[0], SLOT, 0);
    unmake(fds[1], SLOT, DOORBELL_CACHE_SIZE);
    assert_int_equal(kept_n, forks);
}

/* It has the room for others that it has given up, also if a ring was under way. */
static void a_child_keeps_doorbells_itself(void **state)
{
    static const struct doorbell_cache *lost; /* to the child, as all that it may not free */
    struct rlimit before = limit_descriptors(FEW);
    int fds[FEW_KEPT + 1];
    pid_t child;

    (void)state;
    make_few(fds, FEW_KEPT);
    pthread_mutex_lock(&cache->lock);
    child = child_fork();
    if (child == 0) {
        int failures = 0;

        doorbell_cache_close_in_child(cache);
        doorbell_cache_close_in_child(cache);
        lost = cache;
        cache = doorbell_cache_new(directory_fd, STEM, peers);
        for (uint32_t i = 0; i <= FEW_KEPT; i++)
            failures += ring(SLOT + i, 0, 0, 2) != 0;
        _exit(failures == 0 && kept() == FEW_KEPT && lost ? 0 : 1);
    }
    pthread_mutex_unlock(&cache->lock);
    assert_true(child > 0);
    assert_true(child_exited(child_wait(child), 0));
    for (uint32_t i = 0; i <= FEW_KEPT; i++)
        assert_hears(fds[i], 2);
    assert_int_equal(kept(), FEW_KEPT);
    setrlimit(RLIMIT_NOFILE, &before);
    unmake_few(fds);
}

/* Whichever call of it fails, by a sandbox say, the number arrives or the ring says why not, and
 * the next one arrives. */
static void a_ring_that_fails_spoils_nothing(void **state)
{
    int fd = make(SLOT, 0);

    (void)state;
    for (int is_kept = 0; is_kept < 2; is_kept++) {
        bool has_failed = true;

        for (uint64_t n = 1; has_failed; n++) {
            int r;

            renew();
            if (is_kept)
                assert_int_equal(calls_of_ring(SLOT, 0, 0, fd) > 1, true);
            fake_os_fail_kind_at(n, ANY, -EPERM);
            r = ring(SLOT, 0, 0, 1);
            has_failed = fake_os_has_failed();
            fake_os_fail_kind_at(0, ANY, 0);
            assert_int_equal(r, 0); /* by the other way */
            assert_hears(fd, 1);
            assert_true(n < 10);
        }
        fake_os_fail_kind_from(1, ANY, -EPERM);
        assert_int_equal(ring(SLOT, 0, 0, 1), -EPERM);
        fake_os_fail_kind_at(0, ANY, 0);
        assert_silent(fd);
        assert_int_equal(kept(), 0);
    }
    unmake(fd, SLOT, 0);
}

/* The program has closed a descriptor that is not its own. */
static void a_descriptor_that_is_gone_is_opened_again(void **state)
{
    int fd = make(SLOT, 0);

    (void)state;
    assert_int_equal(calls_of_ring(SLOT, 0, 0, fd) > 1, true);
    close(cache->entries[SLOT % DOORBELL_CACHE_SIZE].fd);
    assert_int_equal(ring(SLOT, 0, 0, 1), 0);
    assert_hears(fd, 1);
    assert_int_equal(calls_of_ring(SLOT, 0, 0, fd) > 1, true);
    assert_int_equal(calls_of_ring(SLOT, 0, 0, fd), 1);
    unmake(fd, SLOT, 0);
}

/* What is not the user's FIFO alone is neither rung nor kept. */
static void only_a_doorbell_is_kept(void **state)
{
    char name[64], planted[4];
    int fd;

    (void)state;
    snprintf(name, sizeof(name), STEM ".%u.0" DOORBELL_SUFFIX, SLOT);
    fd = openat(directory_fd, name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ring(SLOT, 0, 0, 1), -EPERM);
    assert_int_equal(read(fd, planted, sizeof(planted)), 0);
    assert_int_equal(kept(), 0);
    close(fd);
    unmake(-1, SLOT, 0);
}

/* A program that this one executes has none of them. */
static void they_are_closed_on_exec(void **state)
{
    int fd = make(SLOT, 0);

    (void)state;
    assert_int_equal(calls_of_ring(SLOT, 0, 0, fd) > 1, true);
    assert_int_equal(fcntl(cache->entries[SLOT % DOORBELL_CACHE_SIZE].fd, F_GETFD), FD_CLOEXEC);
    unmake(fd, SLOT, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cache_test(later_rings_are_one_call),
        cache_test(each_is_rung_alone),
        cache_test(a_successor_is_rung),
        cache_test(a_closed_one_is_rung_for_nothing),
        cache_test(those_of_the_dead_are_closed),
        cache_test(those_that_are_not_the_ones_to_ring_are_closed),
        cache_test(a_ring_waits_for_no_other),
        cache_test(threads_that_ring_at_once_lose_nothing),
        cache_test(with_few_descriptors_none_or_few_are_kept),
        cache_test(of_all_sets_together_few_are_kept),
        cache_test(what_is_left_takes_no_room),
        cache_test(without_a_descriptor_those_that_are_kept_are_given_up),
        cache_test(a_child_closes_nothing_of_the_program),
        cache_test(a_child_keeps_doorbells_itself),
        cache_test(a_ring_that_fails_spoils_nothing),
        cache_test(a_descriptor_that_is_gone_is_opened_again),
        cache_test(only_a_doorbell_is_kept),
        cache_test(they_are_closed_on_exec),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
