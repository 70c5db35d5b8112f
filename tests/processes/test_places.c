/* SPDX-License-Identifier: MIT */
/*
 * A segment without room: all slots, or all thread contexts, are taken, and some of them by dead
 * processes. The next process takes from these what it needs, and what they held comes back. If it
 * is killed or stopped at any step of that, nothing is lost and no other process is held up. One
 * step in a few is tried, another one each time; WEIR_ROUNDS: how many; WEIR_SEED repeats them.
 * Argument: the weir command.
 */
#include "lib/child.h"
#include "look.h"
#include "shared.h"
#include "shm/participant.h"
#include "shm/segment.h"
#include "stepping.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define CAPACITY 3u

static const char plain[] = "version: 1\n"
                            "sets:\n"
                            "  s:\n"
                            "    backend: process\n"
                            "    limits:\n"
                            "      - { type: resource, key: slot, capacity: 3 }\n"
                            "      - { type: resource, key: other, capacity: 7 }\n";

static const char one_word[] = "version: 1\n"
                               "sets:\n"
                               "  s:\n"
                               "    backend: process\n"
                               "    limits:\n"
                               "      - { type: resource, key: slot, capacity: 3 }\n";

static const char *text;
static weir *w;
static weir_pool *pool;
static weir_set *set;
static uint64_t seed;

static void open_own(const char *of_text)
{
    text = of_text;
    shared_begin();
    w = shared_open(text);
    pool = shared_pool(w, "s");
    set = weir_pool_set(pool, 0);
    assert_int_equal(shared_held(pool, 0), 0); /* prepares the thread */
}

static void close_own(void)
{
    weir_pool_close(pool);
    weir_close(w);
    shared_end();
}

/* ---- a segment without room ---- */

enum lack { LACKS_SLOTS = 1, LACKS_THREADS = 2 };

static struct segment *segment(void)
{
    return set->participant->segment;
}

/* Takes over the dead process's first thread context, its spare one, with which it did nothing. So
 * the next process takes over one that held something. */
static void take_spare_of_the_dead(void)
{
    for (uint32_t i = 0; i < segment_threads_n(segment()); i++) {
        uint64_t owner = atomic_load(&segment_thread(segment(), i)->peer_key);

        if (owner && owner != set->participant->peer_key) {
            shm_cas_seq_cst(&segment_thread(segment(), i)->peer_key, owner,
                            set->participant->peer_key);
            return;
        }
    }
}

/* All that is free is this process's, which lives. */
static void fill(unsigned lack)
{
    uint64_t id = atomic_load(&segment_peer(segment(), set->participant->slot)->id), ignored;

    if (lack & LACKS_THREADS)
        take_spare_of_the_dead();

    for (uint32_t i = 0; i < SEGMENT_PEERS_MAX && (lack & LACKS_SLOTS); i++) {
        require(i < segment_peers_n(segment()) || segment_alloc_peer(segment(), i) == 0);
        peer_slot_claim(segment_peer(segment(), i), id, &ignored);
    }
    for (uint32_t i = 0; i < segment()->layout.sizes.threads_n && (lack & LACKS_THREADS); i++) {
        require(i < segment_threads_n(segment()) || segment_alloc_thread(segment(), i) == 0);
        shm_cas_seq_cst(&segment_thread(segment(), i)->peer_key, 0, set->participant->peer_key);
    }
}

/* Whether this instance has claimed the thread context itself. */
static bool is_own_thread(uint32_t i)
{
    return set->participant->own_threads[i / 64] >> i % 64 & 1;
}

static void empty(void)
{
    uint32_t slot = set->participant->slot;
    uint64_t own = atomic_load(&segment_peer(segment(), slot)->id);

    for (uint32_t i = 0; i < segment_peers_n(segment()); i++) {
        uint64_t id = atomic_load(&segment_peer(segment(), i)->id);

        if (i != slot && peer_id_same_process(id, own))
            require(peer_slot_free(segment_peer(segment(), i), id));
    }
    for (uint32_t i = 0; i < segment_threads_n(segment()); i++)
        if (!is_own_thread(i))
            shm_cas_seq_cst(&segment_thread(segment(), i)->peer_key, set->participant->peer_key, 0);
}

/* ---- the dead ---- */

struct other_holder {
    weir_pool *pool;
    struct shared_pipe ready;
};

static void *run_other_holder(void *argument)
{
    struct other_holder *other = argument;
    struct shared_request memory;
    weir_acquisition *held = NULL;

    require(weir_try_acquire(other->pool, shared_ask(&memory, "slot", 1, 0), &held, NULL) == 0);
    shared_tell(&other->ready);
    pause_ns(60 * SECOND);
    return NULL;
}

/* Two threads hold, so each of two thread contexts has something to recover. */
static void run_holder(void *ready)
{
    weir *mine = shared_open(text);
    weir_pool *of_mine = shared_pool(mine, "s");
    struct other_holder other = {of_mine, shared_pipe()};
    struct shared_request memory;
    weir_acquisition *held = NULL, *waiting = NULL;
    pthread_t thread;

    require(weir_try_acquire(of_mine, shared_ask(&memory, "slot", 1, 0), &held, NULL) == 0);
    require(pthread_create(&thread, NULL, run_other_holder, &other) == 0);
    shared_hear(&other.ready);
    require(weir_submit(of_mine, shared_ask(&memory, "slot", 3, WEIR_FOREVER), &waiting, NULL) ==
            1);
    shared_tell(ready);
    pause_ns(60 * SECOND);
}

/* A process that held some and waited for more, and is not known to be dead. */
static void leave_dead_holder(void)
{
    struct shared_pipe ready = shared_pipe();
    pid_t pid = shared_fork(run_holder, &ready);

    shared_hear(&ready);
    require(kill(pid, SIGKILL) == 0);
    shared_wait(pid, SIGKILL);
    shared_pipe_close(&ready);
}

/* ---- the process that comes ---- */

enum { IS_DONE = 3 };

struct arrival {
    uint64_t step;
    int signal;
};

/* Opens the set, has all of it, and leaves. */
static void run_arrival(void *argument)
{
    const struct arrival *arrival = argument;
    struct shared_request memory;
    weir_acquisition *held = NULL;
    weir_pool *of_mine;
    weir *mine;
    int r;

    stepping_begin(arrival->step, arrival->signal, STEPS_OF_CALLER);
    mine = shared_open(text);
    of_mine = shared_pool(mine, "s");
    r = weir_try_acquire(of_mine, shared_ask(&memory, "slot", CAPACITY, 0), &held, NULL);
    if (r == -EAGAIN) { /* another process may have been looking for the dead just then */
        pause_ns(5 * MS);
        r = weir_try_acquire(of_mine, shared_ask(&memory, "slot", CAPACITY, 0), &held, NULL);
    }
    if (r < 0)
        fprintf(stderr, "weir_try_acquire: %d\n", r);
    require(r == 0);
    require(weir_release(&held) == 0);
    weir_pool_close(of_mine);
    weir_close(mine);
    _exit(stepping_end() ? 0 : IS_DONE);
}

/* Waits until it has stopped or ended. Returns whether it was sent the signal. */
static bool await_signal(pid_t pid, int signal)
{
    int status = 0;

    require(waitpid(pid, &status, WUNTRACED) == pid);
    if (child_exited(status, IS_DONE))
        return false;
    if (signal == SIGSTOP)
        require(WIFSTOPPED(status));
    else
        require(child_was_killed(status, SIGKILL));
    return true;
}

/* Whether all that the dead held is there, though the process that came does nothing more. */
static void require_all_is_back(void)
{
    struct shared_request memory;
    weir_acquisition *held = NULL;

    require(shared_held(pool, 0) <= CAPACITY);
    if (shared_held(pool, 0) == CAPACITY)
        return; /* it has all of it, and is stopped */
    require(shared_held(pool, 0) == 0);
    require(shared_stats(pool).waiting == 0);
    require(weir_try_acquire(pool, shared_ask(&memory, "slot", CAPACITY, 0), &held, NULL) == 0);
    require(weir_release(&held) == 0);
}

/* Returns false if the process that came was done before that step. */
static bool try_step(unsigned lack, uint64_t step, int signal)
{
    const uint32_t key = set->participant->peer_key;
    struct arrival arrival = {step, signal};
    bool was_signaled;
    int status = 0;
    pid_t pid;

    leave_dead_holder();
    fill(lack);
    pid = shared_fork(run_arrival, &arrival);
    was_signaled = await_signal(pid, signal);
    if (was_signaled)
        require_all_is_back();
    if (was_signaled && signal == SIGSTOP) {
        require(kill(pid, SIGCONT) == 0);
        require(waitpid(pid, &status, 0) == pid && child_exited(status, 0));
    }
    empty();
    require(shared_held(pool, 0) == 0);
    look_idle(set, &key, 1);
    require(look_places(set) == 1);
    return was_signaled;
}

static void try_steps(const char *of_text, unsigned lack, int signal)
{
    uint64_t rounds = effort_from("WEIR_ROUNDS", 8), steps = 16;

    open_own(of_text);
    while (try_step(lack, steps, signal))
        steps *= 2;
    for (uint64_t i = 0; i < rounds; i++)
        try_step(lack, 1 + random_below(&seed, i % 2 ? steps : steps / 8), signal);
    close_own();
}

static void killed_while_it_takes_a_slot(void **state)
{
    (void)state;
    try_steps(plain, LACKS_SLOTS, SIGKILL);
    try_steps(one_word, LACKS_SLOTS, SIGKILL);
}

static void stopped_while_it_takes_a_slot(void **state)
{
    (void)state;
    try_steps(plain, LACKS_SLOTS, SIGSTOP);
}

static void killed_while_it_takes_a_thread_context(void **state)
{
    (void)state;
    try_steps(plain, LACKS_THREADS, SIGKILL);
    try_steps(one_word, LACKS_THREADS, SIGKILL);
}

static void stopped_while_it_takes_a_thread_context(void **state)
{
    (void)state;
    try_steps(plain, LACKS_THREADS, SIGSTOP);
}

static void killed_while_it_takes_both(void **state)
{
    (void)state;
    try_steps(plain, LACKS_SLOTS | LACKS_THREADS, SIGKILL);
}

/* A process that is stopped between the two holds nothing up: others recover what it has taken
 * over. Here it is this one. */
static void recovered_while_its_next_owner_is_stopped(void **state)
{
    uint32_t key;

    (void)state;
    open_own(plain);
    key = set->participant->peer_key;
    leave_dead_holder();
    for (uint32_t i = 0; i < segment_threads_n(segment()); i++) {
        uint64_t owner = atomic_load(&segment_thread(segment(), i)->peer_key);

        if (owner && owner != key)
            require(shm_cas_seq_cst(&segment_thread(segment(), i)->peer_key, owner,
                                    thread_owner_make((uint32_t)owner, key)));
    }
    assert_int_equal(shared_held(pool, 0), 0);
    assert_int_equal(shared_stats(pool).waiting, 0);
    for (uint32_t i = 0; i < segment_threads_n(segment()); i++)
        if (!is_own_thread(i))
            atomic_store(&segment_thread(segment(), i)->peer_key, 0);
    look_idle(set, &key, 1);
    assert_int_equal(look_places(set), 1);
    close_own();
}

/* ---- subjects of the dead ---- */

static const char subjects[] = "version: 1\n"
                               "sets:\n"
                               "  s:\n"
                               "    backend: process\n"
                               "    subjects: { max: 8, evict: none }\n"
                               "    limits:\n"
                               "      - { type: resource, key: slot, capacity: 3 }\n";

static int hold_of_subject(weir_pool *of, uint32_t subject, weir_acquisition **ret)
{
    const struct weir_request request = {
        .size = sizeof(request), .subject = &subject, .subject_size = sizeof(subject)};

    return weir_try_acquire(of, &request, ret, NULL);
}

static void run_holder_of_all_subjects(void *ready)
{
    weir_pool *of_mine = shared_pool(shared_open(text), "s");
    weir_acquisition *held;
    uint32_t subject = 0;
    int r;

    do
        r = hold_of_subject(of_mine, subject++, &held);
    while (r == 0);
    require(r == -ENOBUFS && subject > 8);
    shared_tell(ready);
    pause_ns(60 * SECOND);
}

/* There is room for another one as soon as it is asked for. */
static void subjects_of_the_dead_make_room(void **state)
{
    struct shared_pipe ready = shared_pipe();
    weir_acquisition *held = NULL;
    pid_t pid;

    (void)state;
    text = subjects;
    shared_begin();
    w = shared_open(text);
    pool = shared_pool(w, "s");
    pid = shared_fork(run_holder_of_all_subjects, &ready);
    shared_hear(&ready);
    assert_int_equal(hold_of_subject(pool, 1000, &held), -ENOBUFS);
    require(kill(pid, SIGKILL) == 0);
    shared_wait(pid, SIGKILL);
    pause_ns(2 * MS); /* it looks for the dead at most once in a millisecond */
    assert_int_equal(hold_of_subject(pool, 1000, &held), 0);
    assert_int_equal(weir_release(&held), 0);
    shared_pipe_close(&ready);
    close_own();
}

/* ---- all of them are alive ---- */

static void as_many_as_can_share_and_no_more(void **state)
{
    struct weir_error error = {0};
    weir *other = NULL;

    (void)state;
    open_own(plain);
    fill(LACKS_SLOTS);
    assert_int_equal(shared_try_open(&other, text, &error), -EUSERS);
    assert_non_null(strstr(error.message, "1024"));
    assert_int_equal(shared_try_open(&other, text, &error), -EUSERS);
    empty();
    assert_int_equal(shared_try_open(&other, text, &error), 0);
    weir_close(other);
    fill(LACKS_THREADS);
    assert_true(shared_try_open(&other, text, &error) < 0);
    empty();
    assert_int_equal(shared_try_open(&other, text, &error), 0);
    weir_close(other);
    close_own();
}

/* ---- a crowd ---- */

enum { IDLE = 60 };

static void run_idle(void *ready)
{
    for (int i = 0; i < IDLE; i++)
        shared_pool(shared_open(text), "s");
    shared_tell(ready);
    pause_ns(1000 * SECOND);
}

static void run_first_holder(void *ready)
{
    struct shared_request memory;
    weir_acquisition *held = NULL;
    weir_pool *of_mine = shared_pool(shared_open(text), "s");

    require(weir_try_acquire(of_mine, shared_ask(&memory, "slot", 2, 0), &held, NULL) == 0);
    shared_tell(ready);
    pause_ns(1000 * SECOND);
}

/* Whether the kernel reports the death of the process in this slot. */
static bool is_watched(uint32_t slot)
{
    struct participant *participant = set->participant;
    bool watched;

    pthread_mutex_lock(&participant->watch_lock);
    watched = slot < participant->peer_watch.n && participant->peer_watch.entries[slot].fd >= 0;
    require(participant->peer_watch.watched_n <= PEER_WATCH_MAX);
    pthread_mutex_unlock(&participant->watch_lock);
    return watched;
}

/* The holder is in a slot that a watch comes to last. */
static void the_holder_is_watched_in_a_crowd(void **state)
{
    struct shared_pipe ready = shared_pipe();
    struct shared_request memory;
    weir_acquisition *waiting = NULL;
    struct pollfd fd = {.events = POLLIN};
    pid_t holder, idle;

    (void)state;
    open_own(plain);
    holder = shared_fork(run_first_holder, &ready);
    shared_hear(&ready);
    idle = shared_fork(run_idle, &ready);
    shared_hear(&ready);
    assert_int_equal(look_places(set), 2 + IDLE);
    assert_int_equal(
        weir_submit(pool, shared_ask(&memory, "slot", 3, WEIR_FOREVER), &waiting, NULL), 1);
    fd.fd = weir_acquisition_fd(waiting);
    while (!is_watched(1)) /* as soon as it is time for a round of probes */
        pause_ns(MS);
    assert_true(set->participant->peer_watch.polled_n > 0);
    assert_int_equal(kill(holder, SIGKILL), 0);
    assert_int_equal(poll(&fd, 1, 20000), 1);
    assert_int_equal(weir_acquisition_result(waiting), 0);
    weir_release(&waiting);
    shared_wait(holder, SIGKILL);
    assert_int_equal(kill(idle, SIGKILL), 0);
    shared_wait(idle, SIGKILL);
    assert_int_equal(shared_held(pool, 0), 0); /* all are probed */
    assert_int_equal(look_places(set), 1);
    shared_pipe_close(&ready);
    close_own();
}

/* ---- weir exec ---- */

static const char *weir_command;

/* Runs it as `weir exec` with these options, and returns the process. */
static pid_t start_exec(const char *option, const char *argument)
{
    pid_t pid = child_fork();

    require(pid >= 0);
    if (pid > 0)
        return pid;
    execl(weir_command, "weir", "exec", "--process-dir", shared_directory(), "--limit", "slot:3",
          "--limit", "other:7", "--name", "s", option, argument, "--", "true", (char *)NULL);
    _exit(99);
}

static void exec_waits_for_a_place(void **state)
{
    pid_t pid;

    (void)state;
    if (!weir_command) {
        print_message("skipped: no command was given\n");
        skip();
    }
    open_own(plain);
    fill(LACKS_SLOTS);
    assert_true(child_exited(child_wait(start_exec("--timeout", "0s")), 124));
    assert_true(child_exited(child_wait(start_exec("--timeout", "30ms")), 124));
    assert_true(child_exited(child_wait(start_exec("--max-wait", "0s")), 123));
    assert_true(child_exited(child_wait(start_exec("--max-wait", "30ms")), 123));
    pid = start_exec("--timeout", "60s");
    pause_ns(100 * MS);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
    empty();
    assert_true(child_exited(child_wait(pid), 0));
    close_own();
}

/* ---- very many killed at once ---- */

enum { CROWDS = 16, CROWD = SEGMENT_PEERS_MAX / CROWDS };

/* As many participants as there are slots for one process of some; each holds something. */
static void run_crowd(void *ready)
{
    struct shared_request memory;

    for (int i = 0; i < CROWD; i++) {
        weir_acquisition *held = NULL;
        weir_pool *of_mine = shared_pool(shared_open(text), "s");

        require(weir_try_acquire(of_mine, shared_ask(&memory, "n", 1, 0), &held, NULL) == 0);
    }
    shared_tell(ready);
    pause_ns(1000 * SECOND);
}

static void run_next(void *unused)
{
    weir *mine = shared_open(text);
    weir_pool *of_mine = shared_pool(mine, "s");
    struct shared_request memory;
    weir_acquisition *held = NULL;

    (void)unused;
    require(weir_acquire(of_mine, shared_ask(&memory, "n", 1, 30 * SECOND), &held, NULL) == 0);
    require(weir_release(&held) == 0);
    weir_pool_close(of_mine);
    weir_close(mine);
}

static void all_places_of_the_dead_are_free(void **state)
{
    struct shared_pipe ready = shared_pipe();
    pid_t pids[CROWDS], next[4];

    (void)state;
    text = "version: 1\n"
           "sets:\n"
           "  s:\n"
           "    backend: process\n"
           "    limits:\n"
           "      - { type: resource, key: n, capacity: 1024 }\n";
    shared_begin();
    for (int i = 0; i < CROWDS; i++)
        pids[i] = shared_fork(run_crowd, &ready);
    for (int i = 0; i < CROWDS; i++)
        shared_hear(&ready);
    for (int i = 0; i < CROWDS; i++)
        require(kill(pids[i], SIGKILL) == 0);
    for (int i = 0; i < CROWDS; i++)
        shared_wait(pids[i], SIGKILL);
    for (int i = 0; i < 4; i++) /* all of them find a place, though they come at once */
        next[i] = shared_fork(run_next, NULL);
    for (int i = 0; i < 4; i++)
        shared_wait(next[i], 0);
    w = shared_open(text);
    pool = shared_pool(w, "s");
    set = weir_pool_set(pool, 0);
    assert_int_equal(shared_held(pool, 0), 0);
    assert_int_equal(look_places(set), 1);
    look_idle(set, &set->participant->peer_key, 1);
    shared_pipe_close(&ready);
    close_own();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_while_it_takes_a_slot),
        cmocka_unit_test(stopped_while_it_takes_a_slot),
        cmocka_unit_test(killed_while_it_takes_a_thread_context),
        cmocka_unit_test(stopped_while_it_takes_a_thread_context),
        cmocka_unit_test(killed_while_it_takes_both),
        cmocka_unit_test(recovered_while_its_next_owner_is_stopped),
        cmocka_unit_test(subjects_of_the_dead_make_room),
        cmocka_unit_test(as_many_as_can_share_and_no_more),
        cmocka_unit_test(the_holder_is_watched_in_a_crowd),
        cmocka_unit_test(exec_waits_for_a_place),
        cmocka_unit_test(all_places_of_the_dead_are_free),
    };

    weir_command = argc > 1 ? argv[1] : NULL;
    seed_begin();
    seed = test_seed;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
