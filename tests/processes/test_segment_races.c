/* SPDX-License-Identifier: MIT */
/*
 * Many processes that open one segment at the same moment, come and go, remove it, and are killed
 * while they do. WEIR_ROUNDS: how often; WEIR_SEED repeats the random choices.
 */
#include "lib/child.h"
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/require.h"
#include "lib/segments.h"
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cmocka.h>

#define PROCESSES 8

/* Between the parent and its children. */
static struct {
    _Atomic unsigned waiting;
    struct {
        uint64_t inode;
        int code;
        char message[512];
    } found[PROCESSES];
} * shared;

static pid_t children[PROCESSES];

/* Until all have come: then they go on at the same moment. */
static void meet(void)
{
    atomic_fetch_add(&shared->waiting, 1);
    while (atomic_load(&shared->waiting) < PROCESSES)
        sched_yield();
}

static uint64_t inode_of_segment(const struct segment *segment)
{
    struct stat found;

    require(fstat(segment->fd, &found) == 0);
    return found.st_ino;
}

static void start(int i, void (*run)(int i))
{
    children[i] = child_fork();
    require(children[i] >= 0);
    if (children[i] == 0) {
        run(i);
        _exit(0);
    }
}

/* Runs it in all at once; each must end well. */
static void run_all(void (*run)(int i))
{
    atomic_store(&shared->waiting, 0);
    for (int i = 0; i < PROCESSES; i++)
        start(i, run);
    for (int i = 0; i < PROCESSES; i++) {
        int status = -1;

        require(waitpid(children[i], &status, 0) == children[i]);
        require(status == 0);
    }
}

static void open_as(int i, const struct segment_shape *shape)
{
    struct segment *segment = NULL;

    meet();
    shared->found[i].code = segment_open(place, shape, &segment, &error);
    memcpy(shared->found[i].message, error.message, sizeof(error.message));
    if (shared->found[i].code == 0) {
        require(has_first_version(segment));
        shared->found[i].inode = inode_of_segment(segment);
    }
    segment_close(segment);
}

static void open_same(int i)
{
    const struct segment_shape shape = some_shape();

    open_as(i, &shape);
}

static void open_one_of_two(int i)
{
    const struct segment_shape shape = i % 2 ? other_shape() : some_shape();

    open_as(i, &shape);
}

static void remove_it(void)
{
    require(segment_remove(place, "set", false, is_in_use, &error) == 0);
    require(files_n() == 0);
}

/* All attach to one, which is the one that has the name. */
static void require_one(void)
{
    uint64_t inode = inode_of(inside(SOME_FILE));

    require(inode != 0 && files_n() == 1);
    for (int i = 0; i < PROCESSES; i++) {
        require(shared->found[i].code == 0);
        require(shared->found[i].inode == inode);
    }
}

static void all_attach_to_one(void **state)
{
    const uint64_t rounds = effort_from("WEIR_ROUNDS", 100);

    (void)state;
    for (uint64_t round = 0; round < rounds; round++) {
        run_all(open_same);
        require_one();
        remove_it();
    }
}

static void all_replace_a_stale_one_with_one(void **state)
{
    const uint64_t rounds = effort_from("WEIR_ROUNDS", 100);
    const struct segment_shape shape = some_shape();

    (void)state;
    for (uint64_t round = 0; round < rounds; round++) {
        struct segment *segment = NULL;

        fake_os_set_boot(1);
        require(segment_open(place, &shape, &segment, &error) == 0);
        fake_os_set_boot(0);
        if (round % 2)
            segment_header(segment)->removal = 1; /* whichever is found first */
        segment_close(segment);
        run_all(open_same);
        require_one();
        remove_it();
    }
}

/* One definition wins; all processes that mean the other one are told what differs. */
static void of_two_definitions_one_wins(void **state)
{
    const uint64_t rounds = effort_from("WEIR_ROUNDS", 100);
    static const char *const texts[] = {"`capacity` is 100 there, 4 here",
                                        "`capacity` is 4 there, 100 here"};

    (void)state;
    for (uint64_t round = 0; round < rounds; round++) {
        int winner;

        run_all(open_one_of_two);
        winner = shared->found[0].code == 0 ? 0 : 1;
        for (int i = 0; i < PROCESSES; i++) {
            if (i % 2 == winner) {
                require(shared->found[i].code == 0);
                continue;
            }
            require(shared->found[i].code == -EEXIST);
            require(strstr(shared->found[i].message, texts[winner]) != NULL);
        }
        remove_it();
    }
}

/* ---- lifetime: users ---- */

/* Takes part once; false: it was removed before. */
static bool take_part(int i)
{
    const struct segment_shape shape = some_shape();
    struct segment *segment = NULL;
    _Atomic uint64_t *peer_id;
    int r;

    require(segment_open(place, &shape, &segment, &error) == 0);
    require(segment_alloc_peer(segment, (uint32_t)i) == 0);
    peer_id = &segment_peer(segment, (uint32_t)i)->id;
    require(atomic_load(peer_id) == 0);
    atomic_store(peer_id, (uint64_t)getpid());
    r = segment_confirm_attach(segment);
    require(r == 0 || r == -ESTALE);
    if (r == 0) {
        for (int turn = 0; turn < 3;
             turn++) { /* while it takes part, every process finds this one */
            require(inode_of(inside(SOME_FILE)) == inode_of_segment(segment));
            require((atomic_load(&segment_header(segment)->removal) & 1) == 0);
            sched_yield();
        }
    }
    atomic_store(peer_id, 0);
    if (r == 0)
        require(segment_remove_if_unused(segment, is_in_use) >= 0);
    segment_close(segment);
    return r == 0;
}

static void come_and_go(int i)
{
    const uint64_t rounds = 10 * effort_from("WEIR_ROUNDS", 100);

    meet();
    for (uint64_t round = 0; round < rounds;)
        round += take_part(i);
}

static void the_last_one_takes_it_away(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        run_all(come_and_go);
        require(files_n() == 0);
    }
}

/* ---- death ---- */

/* Opens and removes for ever. */
static void churn(int i)
{
    const struct segment_shape shape = some_shape();

    fake_os_set_boot((uint64_t)(i / 4)); /* some find the others' stale */
    for (;;) {
        struct segment *segment = NULL;
        int r = segment_open(place, &shape, &segment, &error);

        require(r == 0 || r == -EBUSY);
        if (r == 0)
            require(has_first_version(segment));
        segment_close(segment);
        r = segment_remove(place, "set", i % 2, is_in_use, &error);
        if (r != 0 && r != -ENOENT)
            fprintf(stderr, "%s\n", error.message);
        require(r == 0 || r == -ENOENT);
    }
}

/* Killed at any moment, no process leaves anything half-made, or in the way of the others. */
static void the_killed_leave_it_whole(void **state)
{
    const uint64_t kills = 3 * effort_from("WEIR_ROUNDS", 100);
    const struct segment_shape shape = some_shape();
    struct segment *segment = NULL;
    uint64_t random;
    int status;

    (void)state;
    seed_begin();
    random = test_seed;
    for (int i = 0; i < PROCESSES; i++)
        start(i, churn);
    for (uint64_t n = 0; n < kills; n++) {
        int i = (int)random_below(&random, PROCESSES);

        pause_ns(random_below(&random, 3000000));
        require(waitpid(children[i], &status, WNOHANG) == 0); /* none has ended by itself */
        kill(children[i], SIGKILL);
        require(waitpid(children[i], &status, 0) == children[i]);
        start(i, churn);
    }
    for (int i = 0; i < PROCESSES; i++) {
        kill(children[i], SIGKILL);
        require(waitpid(children[i], &status, 0) == children[i]);
        require(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    require(files_n() <= 1);
    require(segment_open(place, &shape, &segment, &error) == 0);
    require(has_first_version(segment));
    segment_close(segment);
    remove_it();
}

static int setup(void **state)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? -1 : place_setup(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(all_attach_to_one),
        leak_checked_test(all_replace_a_stale_one_with_one),
        leak_checked_test(of_two_definitions_one_wins),
        leak_checked_test(the_last_one_takes_it_away),
        leak_checked_test(the_killed_leave_it_whole),
    };

    return cmocka_run_group_tests(tests, setup, place_teardown);
}
