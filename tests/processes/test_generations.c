/* SPDX-License-Identifier: MIT */
/* Generations of a segment: those that use one which was removed by force, or has vanished with its
 * directory, go on beside those that came later, and what the dead leave in the directory goes. */
#include "shared.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/segment.h>

#include <cmocka.h>

static const char slots[] = "version: 1\n"
                            "sets:\n"
                            "  s:\n"
                            "    backend: process\n"
                            "    limits:\n"
                            "      - { type: resource, key: slot, capacity: 2 }\n";

/* ---- the directory ---- */

static unsigned files_with(const char *text)
{
    DIR *entries = opendir(shared_directory());
    const struct dirent *entry;
    unsigned n = 0;

    require(entries);
    while ((entry = readdir(entries)))
        n += entry->d_name[0] != '.' && strstr(entry->d_name, text);
    closedir(entries);
    return n;
}

static unsigned doorbells(void)
{
    return files_with(".bell") + files_with(".new");
}

static void remove_by_force(void)
{
    const struct weir_options options = {.size = sizeof(options),
                                         .process_dir = shared_directory()};
    struct weir_error error;

    assert_int_equal(weir_segment_remove(&options, "s", WEIR_SEGMENT_FORCE, &error), 0);
}

static int count(void *userdata, const struct weir_segment *segment)
{
    (void)segment;
    ++*(unsigned *)userdata;
    return 0;
}

static unsigned list(void)
{
    const struct weir_options options = {.size = sizeof(options),
                                         .process_dir = shared_directory()};
    unsigned n = 0;

    assert_true(weir_segments(&options, count, &n, NULL) >= 0);
    return n;
}

/* ---- a generation ---- */

/* Two participants: one holds everything, the other waits in every way but by blocking. */
struct generation {
    weir *w[2];
    weir_pool *pools[2];
    weir_acquisition *held, *pending;
    weir_queue *queue;
};

static weir_acquisition *get(weir_pool *pool, uint64_t n)
{
    struct shared_request memory;
    weir_acquisition *acquisition = NULL;

    assert_int_equal(
        weir_acquire(pool, shared_ask(&memory, "slot", n, 30000 * MS), &acquisition, NULL), 0);
    return acquisition;
}

static void begin(struct generation *generation)
{
    *generation = (struct generation){0};
    for (int i = 0; i < 2; i++) {
        generation->w[i] = shared_open(slots);
        generation->pools[i] = shared_pool(generation->w[i], "s");
    }
    generation->held = get(generation->pools[0], 2);
}

static void wait_for_it(struct generation *generation)
{
    struct shared_request memory;
    const struct weir_request *request = shared_ask(&memory, "slot", 1, WEIR_FOREVER);

    assert_int_equal(weir_submit(generation->pools[1], request, &generation->pending, NULL), 1);
    assert_int_equal(weir_queue_open(&generation->queue, generation->w[1], 4), 0);
    assert_int_equal(
        weir_queue_submit(generation->queue, generation->pools[1], request, 7, NULL, NULL), 0);
    assert_int_equal(shared_stats(generation->pools[0]).waiting, 2);
}

static bool is_pending(const struct generation *generation)
{
    struct weir_completion completion;

    assert_int_equal(weir_queue_reap(generation->queue, &completion, 1), 0);
    return weir_acquisition_result(generation->pending) == -EINPROGRESS;
}

/* A release there is a grant here, of this generation and of no other. */
static void hand_over(struct generation *generation)
{
    struct pollfd fd = {.fd = weir_acquisition_fd(generation->pending), .events = POLLIN};
    struct weir_completion completion;

    assert_true(is_pending(generation));
    assert_int_equal(weir_release(&generation->held), 0);
    assert_int_equal(poll(&fd, 1, 30000), 1);
    assert_int_equal(weir_acquisition_result(generation->pending), 0);
    fd.fd = weir_queue_fd(generation->queue);
    do
        assert_int_equal(poll(&fd, 1, 30000), 1);
    while (weir_queue_reap(generation->queue, &completion, 1) == 0);
    assert_int_equal(completion.user_data, 7);
    assert_int_equal(completion.result, 0);
    assert_int_equal(weir_release(&completion.acquisition), 0);
    assert_int_equal(weir_release(&generation->pending), 0);
    assert_int_equal(shared_held(generation->pools[0], 0), 0);
}

static void end(struct generation *generation)
{
    weir_release(&generation->held);
    if (generation->queue)
        assert_null(weir_queue_close(generation->queue));
    for (int i = 0; i < 2; i++) {
        weir_pool_close(generation->pools[i]);
        weir_close(generation->w[i]);
    }
}

enum { GENERATIONS = 3, DOORBELLS = 2 /* of each: of the timer and of the queue */ };

/* Removed by force while it is in use, and made again, and that again. */
static void all_generations_are_served(void **state)
{
    struct generation generations[GENERATIONS];

    (void)state;
    for (unsigned i = 0; i < GENERATIONS; i++) {
        begin(&generations[i]);
        wait_for_it(&generations[i]);
        assert_true(doorbells() >= DOORBELLS * (i + 1)); /* no generation replaces another's */
        remove_by_force();
        assert_int_equal(files_with(".weir"), 0);
        assert_true(doorbells() >= DOORBELLS * (i + 1));
    }
    for (unsigned i = 0; i < GENERATIONS; i++) {
        hand_over(&generations[(i + 1) % GENERATIONS]);
        for (unsigned k = 0; k < GENERATIONS; k++)
            assert_true(!generations[k].pending || is_pending(&generations[k]));
    }
    for (unsigned i = 0; i < GENERATIONS; i++)
        end(&generations[i]);
    assert_true(shared_is_empty());
}

/* The first wait of the old users comes after the removal, and after that of the new ones. */
static void old_users_begin_to_wait_later(void **state)
{
    struct generation old, new;

    (void)state;
    begin(&old);
    remove_by_force();
    begin(&new);
    wait_for_it(&new);
    wait_for_it(&old);
    hand_over(&new);
    hand_over(&old);
    end(&old);
    end(&new);
    assert_int_equal(doorbells(), 0);
}

/* ---- segments that lose their name ---- */

/* What an instance has said. */
struct heard {
    _Atomic unsigned n;
    char last[512];
};

static void hear(void *userdata, enum weir_log_level level, const char *message)
{
    struct heard *heard = userdata;

    require(level == WEIR_LOG_ERROR);
    snprintf(heard->last, sizeof(heard->last), "%s", message);
    atomic_fetch_add(&heard->n, 1);
}

static weir *open_hearing(struct heard *heard)
{
    const struct weir_options options = {.size = sizeof(options),
                                         .text = slots,
                                         .process_dir = shared_directory(),
                                         .log = hear,
                                         .userdata = heard};
    weir *w = NULL;

    require(weir_open(&w, &options, NULL) == 0);
    return w;
}

/* As systemd-logind does when a user has logged out. */
static void remove_directory(void)
{
    DIR *entries = opendir(shared_directory());
    const struct dirent *entry;

    require(entries);
    while ((entry = readdir(entries)))
        if (entry->d_name[0] != '.')
            require(unlinkat(dirfd(entries), entry->d_name, 0) == 0);
    closedir(entries);
    require(rmdir(shared_directory()) == 0);
}

static void make_directory_again(void)
{
    require(mkdir(shared_directory(), 0700) == 0);
}

static void see_name(weir_pool *pool, const struct heard *heard, bool nameless, unsigned n)
{
    assert_int_equal(shared_stats(pool).nameless, nameless);
    assert_int_equal(heard->n, n);
}

static void a_lost_name_is_told_once(void **state)
{
    struct heard old_heard = {0}, new_heard = {0};
    weir *old = open_hearing(&old_heard), *new;
    weir_pool *old_pool = shared_pool(old, "s"), *new_pool;

    (void)state;
    see_name(old_pool, &old_heard, false, 0);
    remove_directory();
    see_name(old_pool, &old_heard, true, 1);
    assert_non_null(strstr(old_heard.last, "set `s`: the file of its segment is gone"));
    assert_non_null(strstr(old_heard.last, "RemoveIPC"));
    make_directory_again();
    new = open_hearing(&new_heard);
    new_pool = shared_pool(new, "s");
    see_name(new_pool, &new_heard, false, 0);
    remove_by_force();
    see_name(new_pool, &new_heard, true, 1);
    assert_non_null(strstr(new_heard.last, "removed by force"));
    see_name(old_pool, &old_heard, true, 1);
    weir_pool_close(old_pool);
    weir_close(old);
    weir_pool_close(new_pool);
    weir_close(new);
}

static void rename_segment(const char *from, const char *to)
{
    int directory = open(shared_directory(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    require(renameat(directory, from, directory, to) == 0);
    close(directory);
}

/* Another file has its name, or none; and then it has it again. */
static void a_file_that_is_moved_is_noticed(void **state)
{
    struct heard heard = {0};
    weir *w = open_hearing(&heard), *other;
    weir_pool *pool = shared_pool(w, "s");

    (void)state;
    rename_segment("s.weir", "elsewhere");
    see_name(pool, &heard, true, 1);
    other = shared_open(slots);
    see_name(pool, &heard, true, 1);
    weir_close(other);
    rename_segment("elsewhere", "s.weir");
    see_name(pool, &heard, false, 1);
    rename_segment("s.weir", "elsewhere");
    see_name(pool, &heard, true, 1);
    weir_pool_close(pool);
    weir_close(w);
}

/* A process that is refused, or waits, learns of it without asking. */
static void those_that_lack_something_are_told(void **state)
{
    struct shared_request memory;

    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        struct heard heard = {0};
        weir *w = open_hearing(&heard);
        weir_pool *pool = shared_pool(w, "s");
        weir_acquisition *held = get(pool, 2), *other = NULL;

        remove_directory();
        while (!heard.n && !waits)
            assert_int_equal(
                weir_try_acquire(pool, shared_ask(&memory, "slot", 1, 0), &other, NULL), -EAGAIN);
        while (!heard.n && waits)
            assert_int_equal(
                weir_acquire(pool, shared_ask(&memory, "slot", 1, 200 * MS), &other, NULL),
                -ETIMEDOUT);
        assert_int_equal(heard.n, 1);
        make_directory_again();
        weir_release(&held);
        weir_pool_close(pool);
        weir_close(w);
    }
}

/* No other process can ring there: they look for themselves. */
static void in_a_vanished_directory_waits_go_on(void **state)
{
    struct generation old, later, new;

    (void)state;
    begin(&old);
    wait_for_it(&old);
    remove_directory();
    hand_over(&old);
    end(&old);
    make_directory_again();
    begin(&later);
    remove_directory();
    make_directory_again();
    begin(&new);
    wait_for_it(&new);
    wait_for_it(&later); /* for the first time */
    hand_over(&later);
    hand_over(&new);
    end(&later);
    end(&new);
    assert_int_equal(doorbells(), 0);
}

enum { USERS = 6, OLD = 3 };

/* Some have the segment that vanishes, the others the next one. In shared memory. */
struct users {
    struct shared_pipe ready;
    _Atomic unsigned held[2], granted[USERS];
    _Atomic bool stop;
};

static struct users *users;

/* Waits in one of two ways: blocked, or by a descriptor. */
static weir_acquisition *wait_somehow(weir_pool *pool, bool blocked)
{
    struct shared_request memory;
    const struct weir_request *request = shared_ask(&memory, "slot", 1, 30000 * MS);
    weir_acquisition *acquisition = NULL;
    struct pollfd fd = {.events = POLLIN};

    if (blocked) {
        require(weir_acquire(pool, request, &acquisition, NULL) == 0);
        return acquisition;
    }
    require(weir_submit(pool, request, &acquisition, NULL) >= 0);
    fd.fd = weir_acquisition_fd(acquisition);
    require(fd.fd >= 0 && poll(&fd, 1, 40000) == 1);
    require(weir_acquisition_result(acquisition) == 0);
    return acquisition;
}

static void use(void *argument)
{
    const int me = *(const int *)argument;
    struct heard heard = {0};
    weir *w = open_hearing(&heard);
    weir_pool *pool = shared_pool(w, "s");

    shared_tell(&users->ready);
    while (!atomic_load(&users->stop)) {
        weir_acquisition *acquisition =
            wait_somehow(pool, atomic_load(&users->granted[me]) % 2 == 0);

        require(atomic_fetch_add(&users->held[me >= OLD], 1) < 2);
        pause_ns(MS / 10);
        atomic_fetch_sub(&users->held[me >= OLD], 1);
        require(weir_release(&acquisition) == 0);
        atomic_fetch_add(&users->granted[me], 1);
    }
    require(shared_stats(pool).nameless == (me < OLD));
    require(heard.n == (me < OLD));
    weir_pool_close(pool);
    weir_close(w);
}

static void await_grants(int from, int end, unsigned n)
{
    unsigned before[USERS];

    for (int i = from; i < end; i++)
        before[i] = atomic_load(&users->granted[i]);
    for (int i = from; i < end; i++)
        while (atomic_load(&users->granted[i]) < before[i] + n)
            pause_ns(MS);
}

/* All go on, those that are cut off among themselves, and each of these says so. */
static void many_users_survive_their_directory(void **state)
{
    static int numbers[USERS];
    pid_t pids[USERS];

    (void)state;
    users = mmap(NULL, sizeof(*users), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(users != MAP_FAILED);
    users->ready = shared_pipe();
    for (int i = 0; i < USERS; i++) {
        if (i == OLD) {
            await_grants(0, OLD, 5);
            remove_directory();
            make_directory_again();
        }
        numbers[i] = i;
        pids[i] = shared_fork(use, &numbers[i]);
        shared_hear(&users->ready);
    }
    await_grants(0, USERS, 20);
    atomic_store(&users->stop, true);
    for (int i = 0; i < USERS; i++)
        shared_wait(pids[i], 0);
    assert_int_equal(doorbells(), 0);
    shared_pipe_close(&users->ready);
    munmap(users, sizeof(*users));
}

/* ---- the dead ---- */

struct waiter {
    struct shared_pipe ready;
};

static void wait_to_be_killed(void *argument)
{
    struct waiter *waiter = argument;
    weir *w = shared_open(slots);
    weir_pool *pool = shared_pool(w, "s");
    struct shared_request memory;
    weir_acquisition *acquisition = NULL;

    require(weir_submit(pool, shared_ask(&memory, "slot", 2, WEIR_FOREVER), &acquisition, NULL) >=
            0);
    shared_tell(&waiter->ready);
    for (;;)
        pause();
}

static pid_t start_waiter(struct waiter *waiter)
{
    pid_t pid;

    waiter->ready = shared_pipe();
    pid = shared_fork(wait_to_be_killed, waiter);
    shared_hear(&waiter->ready);
    shared_pipe_close(&waiter->ready);
    return pid;
}

static void kill_waiter(pid_t pid)
{
    require(kill(pid, SIGKILL) == 0);
    shared_wait(pid, SIGKILL);
}

/* After the removal, too. */
static void old_users_clean_up_after_their_dead(void **state)
{
    weir *w = shared_open(slots);
    weir_pool *pool = shared_pool(w, "s");
    weir_acquisition *acquisition = get(pool, 1);
    struct waiter waiter;
    pid_t pid = start_waiter(&waiter);
    weir *later;

    (void)state;
    remove_by_force();
    later = shared_open(slots);
    assert_int_equal(doorbells(), 1);
    assert_int_equal(shared_stats(pool).waiting, 1);
    kill_waiter(pid);
    assert_int_equal(shared_stats(pool).waiting, 0);
    assert_int_equal(doorbells(), 0);
    weir_release(&acquisition);
    weir_pool_close(pool);
    weir_close(w);
    weir_close(later);
}

/* None is there to clean up, in either generation. One that attaches, removes or lists does. */
static void a_later_process_sweeps(void **state)
{
    struct waiter waiter;

    (void)state;
    for (int i = 0; i < 4; i++) {
        weir *w = shared_open(slots);
        weir_pool *pool = shared_pool(w, "s");
        weir_acquisition *acquisition = get(pool, 1);
        pid_t pid = start_waiter(&waiter);

        if (i == 1)
            remove_by_force();
        weir_release(&acquisition);
        weir_pool_close(pool);
        weir_close(w);
        kill_waiter(pid);
        assert_int_equal(doorbells(), 1);
        if (i < 2)
            weir_close(shared_open(slots));
        else if (i == 2)
            remove_by_force();
        else
            assert_int_equal(list(), 1);
        assert_int_equal(doorbells(), 0);
    }
}

/* Takes descriptors until there are no more. */
static void use_up(void)
{
    const struct rlimit few = {24, 24};

    require(setrlimit(RLIMIT_NOFILE, &few) == 0);
    while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0)
        ;
}

struct cleaner {
    struct shared_pipe ready, dead, clean;
    uint64_t rounds;
};

/* Cleans up without a descriptor, by asking for what it cannot have. */
static void clean_up(void *argument)
{
    struct cleaner *cleaner = argument;
    weir *w = shared_open(slots);
    weir_pool *pool = shared_pool(w, "s");
    weir_acquisition *held = NULL;
    struct shared_request memory;

    require(weir_acquire(pool, shared_ask(&memory, "slot", 1, 0), &held, NULL) == 0);
    use_up();
    shared_tell(&cleaner->ready);
    for (uint64_t i = 0; i < cleaner->rounds; i++) {
        shared_hear(&cleaner->dead);
        while (shared_stats(pool).waiting)
            pause_ns(MS / 10);
        shared_tell(&cleaner->clean);
    }
    shared_hear(&cleaner->dead);
    weir_release(&held);
    weir_pool_close(pool);
    weir_close(w);
}

static void with_few_descriptors_none_stays(void **state)
{
    enum { AT_ONCE = 5 };
    struct cleaner cleaner = {shared_pipe(), shared_pipe(), shared_pipe(),
                              effort_from("WEIR_ROUNDS", 30)};
    pid_t pid = shared_fork(clean_up, &cleaner), killed[AT_ONCE];
    struct waiter waiter;

    (void)state;
    shared_hear(&cleaner.ready);
    for (uint64_t i = 0; i < cleaner.rounds; i++) {
        for (int k = 0; k < AT_ONCE; k++)
            killed[k] = start_waiter(&waiter);
        assert_int_equal(doorbells(), AT_ONCE);
        for (int k = 0; k < AT_ONCE; k++)
            kill_waiter(killed[k]);
        shared_tell(&cleaner.dead);
        shared_hear(&cleaner.clean);
        assert_int_equal(doorbells(), 0);
    }
    shared_tell(&cleaner.dead);
    shared_wait(pid, 0);
    weir_close(shared_open(slots));
    assert_int_equal(doorbells(), 0);
    shared_pipe_close(&cleaner.ready);
    shared_pipe_close(&cleaner.dead);
    shared_pipe_close(&cleaner.clean);
}

#define generation_test(function) shared_test(function)

int main(void)
{
    const struct CMUnitTest tests[] = {
        generation_test(all_generations_are_served),
        generation_test(old_users_begin_to_wait_later),
        generation_test(a_lost_name_is_told_once),
        generation_test(a_file_that_is_moved_is_noticed),
        generation_test(those_that_lack_something_are_told),
        generation_test(in_a_vanished_directory_waits_go_on),
        generation_test(many_users_survive_their_directory),
        generation_test(old_users_clean_up_after_their_dead),
        generation_test(a_later_process_sweeps),
        generation_test(with_few_descriptors_none_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
