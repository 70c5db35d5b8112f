/* SPDX-License-Identifier: MIT */
/*
 * A doorbell that is made while another process sweeps. The maker is stopped at any of its steps,
 * then the sweeper at any of its own; the maker goes on, or is dead; and the sweeper goes on.
 * Before every step, what has a name has a reader. In the end the doorbell can be rung, or has
 * gone.
 *
 * Exits with 77 under ThreadSanitizer.
 */
#include "fiber.h"
#include "shm/doorbell.h"
#include "system.h"

#include "lib/require.h"
#include "lib/tmpdir.h"
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define STEM "set.0123456789abcdef"

static char place[TMPDIR_SIZE];
static int directory_fd, doorbell_fd;
static struct fiber maker, sweeper;
static bool maker_is_dead;

static bool is_empty(void)
{
    DIR *entries = opendir(place);
    const struct dirent *entry;
    bool empty = true;

    require(entries);
    while ((entry = readdir(entries)))
        empty &= entry->d_name[0] == '.';
    closedir(entries);
    return empty;
}

static bool is_there(void)
{
    return faccessat(directory_fd, STEM ".1.0" DOORBELL_SUFFIX, F_OK, 0) == 0;
}

static void look(void)
{
    int fd;

    if (maker_is_dead || !is_there())
        return;
    fd = openat(directory_fd, STEM ".1.0" DOORBELL_SUFFIX, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    require(fd >= 0);
    close(fd);
}

static void make(void *unused)
{
    (void)unused;
    doorbell_fd = doorbell_open(directory_fd, STEM, 1, 0);
    require(doorbell_fd >= 0);
}

static void sweep(void *unused)
{
    (void)unused;
    require(doorbell_sweep(directory_fd, "set") == 0);
}

static void ring(void)
{
    struct pollfd poller = {.fd = doorbell_fd, .events = POLLIN};

    require(is_there());
    require(doorbell_ring(directory_fd, STEM, 1, 0, 7) == 0);
    require(poll(&poller, 1, 0) == 1);
    doorbell_close(directory_fd, doorbell_fd, STEM, 1, 0);
}

static uint64_t count_steps(struct fiber *fiber, void (*run)(void *))
{
    uint64_t before = fiber_steps();

    fiber_start(fiber, run, NULL);
    fiber_go(fiber, 0);
    return fiber_steps() - before;
}

static void begin(uint64_t maker_steps, uint64_t sweeper_steps)
{
    maker_is_dead = false;
    fiber_start(&maker, make, NULL);
    fiber_go(&maker, maker_steps);
    fiber_start(&sweeper, sweep, NULL);
    fiber_go(&sweeper, sweeper_steps);
}

/* One step more than there are without the other: they may have to try again. */
static void it_can_be_rung_whenever_one_sweeps(void **state)
{
    uint64_t making = count_steps(&maker, make), sweeping = count_steps(&sweeper, sweep);

    (void)state;
    require(making > 1 && sweeping > 0);
    ring();
    for (uint64_t i = 1; i <= making + 1; i++) {
        for (uint64_t k = 1; k <= sweeping + 2; k++) {
            begin(i, k);
            fiber_go(&maker, 0);
            fiber_go(&sweeper, 0);
            ring();
            require(is_empty());
        }
    }
}

/* A sweep begins each time that a doorbell is made and not open yet, and pauses for the maker. */
static void sweeps_do_not_keep_up_with_it(void **state)
{
    (void)state;
    maker_is_dead = false;
    fiber_start(&maker, make, NULL);
    while (fiber_go(&maker, 1) != FIBER_DONE) {
        fiber_start(&sweeper, sweep, NULL);
        fiber_go(&sweeper, 1);
        fiber_go(&maker, 1);
        fiber_go(&sweeper, 0);
    }
    ring();
    require(is_empty());
}

/* Its descriptor is closed as the kernel closes it. What it had made goes with the next sweep, or
 * when it is cleaned up after. */
static void one_that_died_leaves_nothing(void **state)
{
    uint64_t making = count_steps(&maker, make);

    (void)state;
    ring();
    for (uint64_t i = 1; i <= making; i++) {
        for (int swept = 0; swept < 2; swept++) {
            int before = open("/dev/null", O_RDONLY | O_CLOEXEC);

            close(before); /* the next descriptor is the maker's */
            fiber_start(&maker, make, NULL);
            fiber_go(&maker, i);
            maker_is_dead = true;
            close(before);
            if (swept)
                require(doorbell_sweep(directory_fd, NULL) == 0);
            else
                require(doorbell_remove(directory_fd, STEM, 1, 0, 1) == 0);
            require(is_empty());
            maker_is_dead = false;
        }
    }
}

static int setup(void **state)
{
    (void)state;
    if (!system_start() || !tmpdir_make(place, NULL))
        return -1;
    directory_fd = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fibers_begin(look);
    return directory_fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
    fibers_end();
    close(directory_fd);
    (void)state;
    return rmdir(place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_can_be_rung_whenever_one_sweeps),
        cmocka_unit_test(sweeps_do_not_keep_up_with_it),
        cmocka_unit_test(one_that_died_leaves_nothing),
    };

    if (!fibers_are_possible())
        return FIBERS_SKIPPED;
    return cmocka_run_group_tests(tests, setup, teardown);
}
