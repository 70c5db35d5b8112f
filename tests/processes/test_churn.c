/* SPDX-License-Identifier: MIT */
/*
 * Processes that come and go all the time: open, take what they can, close, or just end, or fork. A
 * set that goes with its last user is made anew by the next process, at that very moment. There is
 * never more than one of it, so never more is granted than it has; and when the last has closed it,
 * nothing is left. Also if they disagree on its definition, and some are killed: then a process
 * that finds no living one makes the set as it means it. WEIR_ROUNDS: how often each comes;
 * WEIR_SEED repeats the random choices.
 */
#include "api/instance.h"
#include "grants_log.h"
#include "shared.h"
#include "shm/participant.h"
#include "shm/segment.h"
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>

#include <cmocka.h>

#define TEXT(lifetime, rest)                                                                       \
    "version: 1\n"                                                                                 \
    "sets:\n"                                                                                      \
    "  s:\n"                                                                                       \
    "    backend: process\n"                                                                       \
    "    lifetime: " lifetime "\n" rest "    limits:\n"                                            \
    "      - { type: resource, key: db, capacity: 5 }\n"                                           \
    "      - { type: resource, key: files, capacity: 4 }\n"

static const char users[] = TEXT("users", ""), boot[] = TEXT("boot", "");
static const char others[] = TEXT("users", "    max_waiters: 100\n");

static const char *text;
static uint64_t rounds;

struct plugin_visitor {
    int number;
    uint64_t random;
};

static uint64_t below(struct plugin_visitor *me, uint64_t n)
{
    return random_below(&me->random, n);
}

static void acquire(struct plugin_visitor *me, weir_pool *pool)
{
    const uint64_t amounts[HISTORY_LIMITS] = {[DB] = 1 + below(me, 4), [FILES] = 1 + below(me, 3)};
    const struct weir_amount asked[] = {{"db", amounts[DB]}, {"files", amounts[FILES]}};
    const struct weir_request request = {.size = sizeof(request),
                                         .amounts = asked,
                                         .amounts_n = 2,
                                         .timeout_ns = below(me, 4) ? WEIR_FOREVER : 2 * MS};
    weir_acquisition *acquisition = NULL;
    int r = below(me, 3) ? weir_acquire(pool, &request, &acquisition, NULL)
                         : weir_try_acquire(pool, &request, &acquisition, NULL);

    if (r != 0 && r != -ETIMEDOUT && r != -EAGAIN)
        fprintf(stderr, "it got %d\n", r);
    require(r == 0 || r == -ETIMEDOUT || r == -EAGAIN);
    if (r < 0)
        return;
    account_hold(me->number, amounts);
    if (below(me, 4) == 0)
        pause_ns(below(me, 200000));
    account_let_go(me->number, amounts);
    require(weir_release(&acquisition) == 0);
}

/* On this definition. */
static void visit_on(struct plugin_visitor *me, weir *w)
{
    weir_pool *pool = shared_pool(w, "s");

    for (uint64_t n = below(me, 4); n > 0; n--)
        acquire(me, pool);
    if (below(me, 8) == 0) { /* no process closes anything */
        fflush(NULL);
        _exit(0);
    }
    weir_pool_close(pool);
    weir_close(w);
}

static void visit(struct plugin_visitor *me)
{
    visit_on(me, shared_open(text));
}

static void come_and_go(void *argument)
{
    struct plugin_visitor *me = argument;

    for (uint64_t n = 1 + below(me, 8); n > 0; n--)
        visit(me);
}

/* Unless the present users mean something else. */
static void come_with_two_minds(void *argument)
{
    struct plugin_visitor *me = argument;

    for (uint64_t n = 1 + below(me, 8); n > 0; n--) {
        struct weir_error error;
        weir *w = NULL;
        int r = shared_try_open(&w, below(me, 2) ? users : others, &error);

        if (r != 0 && r != -EEXIST)
            fprintf(stderr, "opening came to %d: %s\n", r, error.message);
        require(r == 0 || r == -EEXIST);
        if (r == 0)
            visit_on(me, w);
    }
}

/* The parent of a process that it forks while it has the set open and others may ask. */
static void fork_in_between(void *argument)
{
    struct plugin_visitor *me = argument;
    weir *w = shared_open(text);
    weir_pool *pool = shared_pool(w, "s");
    struct shared_request memory;
    pid_t child;

    acquire(me, pool);
    fflush(NULL);
    child = fork();
    require(child >= 0);
    if (child == 0) {
        alarm(300);
        me->number++; /* an account of its own */
        require(weir_take(pool, shared_ask(&memory, "db", 1, 0), NULL) == -ECHILD);
        if (below(me, 2)) {
            weir_pool_close(pool);
            weir_close(w);
        }
        visit(me);
        visit(me);
        fflush(NULL);
        _exit(0);
    }
    for (int i = 0; i < 4; i++)
        acquire(me, pool);
    shared_wait(child, 0);
    acquire(me, pool);
    weir_pool_close(pool);
    weir_close(w);
}

/* ---- many at a time ---- */

struct crowd {
    void (*body)(void *visitor);
    struct plugin_visitor visitors[ACCOUNTS];
    pid_t pids[ACCOUNTS];
    uint64_t random;
};

static void start(struct crowd *crowd, int i)
{
    crowd->visitors[i] = (struct plugin_visitor){i, random_next(&crowd->random)};
    crowd->pids[i] = shared_fork(crowd->body, &crowd->visitors[i]);
}

/* Its process has ended, as it should. */
static int wait_for_any(const struct crowd *crowd)
{
    int status, i = 0;
    pid_t pid = wait(&status);

    require(pid > 0);
    if (status)
        fprintf(stderr, "process %d ended with status %x\n", pid, (unsigned)status);
    require(status == 0);
    while (i < ACCOUNTS && crowd->pids[i] != pid)
        i++;
    require(i < ACCOUNTS);
    return i;
}

/* One process for every `step`-th account; for each that ends another comes, until that is enough.
 */
static void crowd_in(void (*body)(void *visitor), int step)
{
    struct crowd crowd = {.body = body, .random = test_seed};
    int running = 0;

    for (int i = 0; i < ACCOUNTS; i += step, running++)
        start(&crowd, i);
    for (uint64_t left = rounds; running > 0;) {
        int i = wait_for_any(&crowd);

        if (left > 0) {
            start(&crowd, i);
            left--;
        } else {
            running--;
        }
    }
}

static unsigned files(void)
{
    DIR *entries = opendir(shared_directory());
    const struct dirent *entry;
    unsigned n = 0;

    require(entries);
    while ((entry = readdir(entries)))
        n += entry->d_name[0] != '.';
    closedir(entries);
    return n;
}

/* ---- what is left ---- */

/* As any other user would find it: all of it free. If need be this is the last one out. */
static void require_free(void)
{
    weir *w = shared_open(text);
    weir_pool *pool = shared_pool(w, "s");
    const struct segment *segment = weir_pool_set(pool, 0)->participant->segment;
    const struct weir_amount asked[] = {{"db", 5}, {"files", 4}};
    const struct weir_request request = {.size = sizeof(request), .amounts = asked, .amounts_n = 2};
    weir_acquisition *acquisition = NULL;

    assert_int_equal(weir_try_acquire(pool, &request, &acquisition, NULL), 0);
    assert_int_equal(weir_release(&acquisition), 0);
    assert_int_equal(shared_stats(pool).waiting, 0);
    assert_int_equal(shared_stats(pool).held, 0);
    assert_int_equal(shared_held(pool, 0), 0);
    /* However many there were, never more than so many at a time, and some dead ones. */
    assert_in_range(segment_peers_n(segment), 1, 4 * ACCOUNTS);
    assert_in_range(segment_threads_n(segment), 1, 12 * ACCOUNTS);
    assert_in_range(segment_runs_n(segment), 1, 12 * ACCOUNTS);
    weir_pool_close(pool);
    weir_close(w);
}

static void they_make_it_anew(void **state)
{
    (void)state;
    text = users;
    crowd_in(come_and_go, 1);
    require_free();
    assert_int_equal(files(), 0);
}

static void they_find_it_there(void **state)
{
    (void)state;
    text = boot;
    crowd_in(come_and_go, 1);
    require_free();
    assert_int_equal(files(), 1);
}

static void they_change_what_it_is(void **state)
{
    (void)state;
    crowd_in(come_with_two_minds, 1);
    for (int i = 0; i < 2; i++) { /* no process is there */
        text = i ? users : others;
        require_free();
        assert_int_equal(files(), 0);
    }
}

/* The next process replaces a set if its users were killed; not one with living users. */
static void end_at_once(void *unused)
{
    (void)unused;
    shared_open(others);
    raise(SIGKILL);
}

static void one_of_the_killed_is_replaced(void **state)
{
    struct weir_error error;
    weir *w, *none = NULL;

    (void)state;
    for (int i = 0; i < 3; i++)
        shared_wait(shared_fork(end_at_once, NULL), SIGKILL);
    assert_int_equal(files(), 1);
    w = shared_open(users);
    assert_int_equal(shared_try_open(&none, others, &error), -EEXIST);
    assert_non_null(strstr(error.message, "max_waiters"));
    weir_close(w);
    assert_int_equal(files(), 0);
}

/* The address sanitizer's own locks are not ready for a fork beside other threads. */
#if defined(__SANITIZE_ADDRESS__)
#define FORKS_SAFELY false
#elif defined(__has_feature)
#define FORKS_SAFELY (!__has_feature(address_sanitizer))
#else
#define FORKS_SAFELY true
#endif

static void they_fork(void **state)
{
    (void)state;
    if (!FORKS_SAFELY) {
        print_message("skipped: not with the address sanitizer\n");
        skip();
    }
    for (int i = 0; i < 2; i++) {
        text = i ? boot : users;
        crowd_in(fork_in_between, 2);
        require_free();
        assert_int_equal(files(), i);
    }
}

static int setup(void **state)
{
    (void)state;
    shared_begin();
    account_begin(false);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    account_end();
    shared_end();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(they_make_it_anew, setup, teardown),
        cmocka_unit_test_setup_teardown(they_find_it_there, setup, teardown),
        cmocka_unit_test_setup_teardown(one_of_the_killed_is_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(they_change_what_it_is, setup, teardown),
        cmocka_unit_test_setup_teardown(they_fork, setup, teardown),
    };

    seed_begin();
    print_message("seed %" PRIu64 "\n", test_seed);
    rounds = effort_from("WEIR_ROUNDS", 100);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
