/* SPDX-License-Identifier: MIT */
/*
 * Death and stops at every step of a user of a set with subjects, while its limits change twice:
 * those that it asks for go, or get another algorithm or type, and then others may come to where
 * they were. And of a process that makes such a change. Each time nothing that was taken of a limit
 * goes back to another one, and in the end all limits have exactly what they should.
 *
 * WEIR_STRIDE: only every so many-th step; 1 if it is not set.
 */
#include "shared.h"
#include "stepping.h"

#include "lib/child.h"
#include "set/set.h"
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/segment.h>

#include <cmocka.h>

enum { LIMITS = 3, DEFINITIONS = 3, STEPS_MAX = 5000 };

#define RATE(type, algorithm, n)                                                                   \
    "{ type: " type ", key: tokens, algorithm: " algorithm ", capacity: " n                        \
    ", window: 1h, refund: true }"
#define SLOTS "{ type: resource, key: slots, capacity: 4 }"
#define DISK  "{ type: resource, key: disk, capacity: 5 }"
#define OTHER "{ type: resource, key: other, capacity: 6 }"
#define OTHERS                                                                                     \
    "{ type: resource, key: other, capacity: 6 }, { type: resource, key: last, capacity: 7 }"
#define TOKENS_N 3 /* that the user takes, of each limit with that key; one of each other */

static const struct {
    const char *name, *limits[DEFINITIONS];
} kinds[] = {
    {"a word by another type",
     {RATE("rate", "gcra", "10"), RATE("call", "gcra", "10"), RATE("rate", "gcra", "9")}},
    {"a word, no word, a word",
     {RATE("rate", "gcra", "10"), RATE("rate", "token_bucket", "10"), RATE("rate", "gcra", "9")}},
    {"a word, several, none of the first",
     {RATE("rate", "gcra", "10"), RATE("rate", "gcra", "10") ", " SLOTS, SLOTS ", " OTHER}},
    {"several, a word, several",
     {RATE("rate", "gcra", "10") ", " SLOTS, RATE("rate", "gcra", "10"),
      OTHER ", " RATE("rate", "gcra", "10")}},
    {"one of several goes, others come",
     {RATE("rate", "token_bucket", "10") ", " DISK ", " SLOTS,
      SLOTS ", " RATE("rate", "token_bucket", "10"), OTHERS ", " SLOTS}},
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static size_t kind;

static const char *text_of(unsigned definition)
{
    static char texts[DEFINITIONS][1024];

    snprintf(texts[definition], sizeof(texts[0]),
             "version: 1\nsets: { s: { backend: process, subjects: { max: 8, evict: none },"
             " limits: [ %s ] } }\n",
             kinds[kind].limits[definition]);
    return texts[definition];
}

static int apply(unsigned definition,
                 int (*differs)(void *userdata, const struct weir_redefinition *redefinition),
                 void *userdata)
{
    const struct weir_options options = {
        .size = sizeof(options), .text = text_of(definition), .process_dir = shared_directory()};
    struct weir_error error = {0};
    int r = weir_segment_redefine(&options, "s", 0, differs, userdata, &error);

    if (r < 0)
        print_message("a change ends with %d: %s\n", r, error.message);
    return r;
}

static struct weir_request ask(const struct weir_amount *amounts, size_t n)
{
    return (struct weir_request){.size = sizeof(struct weir_request),
                                 .amounts = amounts,
                                 .amounts_n = n,
                                 .subject = "one",
                                 .subject_size = 3};
}

/* ---- what the user does ---- */

struct stepped {
    uint64_t n;
    int signal;
    unsigned definition; /* of a change */
    struct shared_pipe ready, go;
};

/* Gives back all that it has taken, also of rates. */
static void give_back(weir_acquisition **acquisition)
{
    (void)weir_update(*acquisition, "tokens", 0); /* which may have gone */
    require(weir_release(acquisition) == 0);
}

static void use(void *argument)
{
    static const struct weir_amount amounts[] = {{"tokens", TOKENS_N}};
    const struct weir_request request = ask(amounts, 1);
    struct stepped *stepped = argument;
    weir *w = shared_open(text_of(0));
    weir_pool *pool = shared_pool(w, "s");
    weir_acquisition *held = NULL;

    require(weir_try_acquire(pool, &request, &held, NULL) == 0);
    give_back(&held); /* the first one has other steps */
    shared_tell(&stepped->ready);
    shared_hear(&stepped->go);
    stepping_begin(stepped->n, stepped->signal, STEPS_OF_CALLER);
    if (weir_try_acquire(pool, &request, &held, NULL) == 0)
        give_back(&held);
    stepping_end();
    weir_pool_close(pool);
    weir_close(w);
}

/* Returns whether the process was sent the signal; if not, it has ended well. */
static bool was_sent(pid_t pid)
{
    int status;

    require(waitpid(pid, &status, WUNTRACED) == pid);
    if (WIFSTOPPED(status) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
        return true;
    require(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return false;
}

/* ---- what there is ---- */

struct taken {
    weir_acquisition *acquisition;
    uint64_t amounts[LIMITS];
};

static size_t look(weir_pool *pool, struct weir_remaining remaining[LIMITS])
{
    const struct weir_request request = ask(NULL, 0);
    int n = weir_set_remaining(weir_pool_set(pool, 0), &request, remaining, LIMITS);

    require(n > 0 && n <= LIMITS);
    return (size_t)n;
}

/* Takes all that there is. */
static void take_all(weir_pool *pool, struct taken *ret)
{
    struct weir_remaining remaining[LIMITS];
    struct weir_amount amounts[LIMITS];
    size_t n = look(pool, remaining);
    const struct weir_request request = ask(amounts, n);

    *ret = (struct taken){0};
    for (size_t i = 0; i < n; i++) {
        ret->amounts[i] = remaining[i].available;
        amounts[i] = (struct weir_amount){remaining[i].key, remaining[i].available};
    }
    require(weir_try_acquire(pool, &request, &ret->acquisition, NULL) == 0);
}

/* Returns whether each limit has what was not taken, but for what the dead has used of a rate. */
static bool is_exact(weir_pool *pool, const struct taken *taken, bool with_dead)
{
    struct weir_remaining remaining[LIMITS];
    size_t n = look(pool, remaining);

    for (size_t i = 0; i < n; i++) {
        bool is_rate = remaining[i].type != WEIR_LIMIT_RESOURCE;
        uint64_t all = remaining[i].available + (taken ? taken->amounts[i] : 0);

        require(all <= remaining[i].capacity);
        if (all != remaining[i].capacity &&
            !(is_rate && with_dead && all + TOKENS_N == remaining[i].capacity))
            return false;
    }
    return true;
}

/* What the dead had may come back a little later. */
static void check_exact(weir_pool *pool, const struct taken *taken, bool with_dead)
{
    uint64_t end = clock_now() + 20000 * MS;

    while (!is_exact(pool, taken, with_dead)) {
        struct weir_set_stats stats = {.size = sizeof(stats)};

        require(clock_now() < end);
        require(weir_set_stats(weir_pool_set(pool, 0), &stats, NULL, 0) > 0); /* finds the dead */
        pause_ns(MS / 5);
    }
}

/* A process that comes later finds the same, by the last definition alone. */
static void check_newcomer(bool with_dead)
{
    weir *w = shared_open(text_of(DEFINITIONS - 1));
    weir_pool *pool = shared_pool(w, "s");
    struct taken taken;

    check_exact(pool, NULL, with_dead);
    take_all(pool, &taken);
    check_exact(pool, &taken, with_dead);
    give_back(&taken.acquisition);
    check_exact(pool, NULL, with_dead);
    weir_pool_close(pool);
    weir_close(w);
}

/* ---- each step ---- */

/* The user is stopped, or dies, between two changes or at the first. */
static bool step_of_a_user(struct stepped *stepped)
{
    bool dies = stepped->signal == SIGKILL, sent;
    struct taken taken;
    weir_pool *pool;
    pid_t pid;
    weir *w;

    shared_begin();
    w = shared_open(text_of(0));
    pool = shared_pool(w, "s");
    pid = shared_fork(use, stepped);
    shared_hear(&stepped->ready);
    shared_tell(&stepped->go);
    sent = was_sent(pid);
    require(apply(1, NULL, NULL) == 1);
    if (stepped->n % 2) { /* it changes its definition */
        take_all(pool, &taken);
        give_back(&taken.acquisition);
    }
    require(apply(2, NULL, NULL) == 1);
    take_all(pool, &taken);
    if (sent && !dies) {
        require(kill(pid, SIGCONT) == 0);
        require(!was_sent(pid));
    }
    check_exact(pool, &taken, dies && sent);
    give_back(&taken.acquisition);
    check_exact(pool, NULL, dies && sent);
    weir_pool_close(pool);
    weir_close(w);
    check_newcomer(dies && sent);
    shared_end();
    return sent;
}

static int begin_steps(void *userdata, const struct weir_redefinition *redefinition)
{
    const struct stepped *stepped = userdata;

    (void)redefinition;
    stepping_begin(stepped->n, stepped->signal, STEPS_OF_CALLER);
    return 0;
}

static void change(void *argument)
{
    struct stepped *stepped = argument;

    require(apply(stepped->definition, begin_steps, argument) >= 0);
    stepping_end();
}

/* A process that changes the set is stopped, or dies, at its first or second change; others use
 * the set, and make the change or the next one. */
static bool step_of_a_change(struct stepped *stepped)
{
    static const struct weir_amount amounts[] = {{"tokens", TOKENS_N}};
    const struct weir_request request = ask(amounts, 1);
    weir_acquisition *held = NULL, *more = NULL;
    bool is_stopped, sent;
    struct taken taken;
    weir_pool *pool;
    pid_t pid;
    weir *w;

    shared_begin();
    w = shared_open(text_of(0));
    pool = shared_pool(w, "s");
    require(weir_try_acquire(pool, &request, &held, NULL) == 0);
    stepped->definition = 1 + (unsigned)(stepped->n % 2);
    if (stepped->definition == 2)
        require(apply(1, NULL, NULL) == 1);
    pid = shared_fork(change, stepped);
    sent = was_sent(pid);
    is_stopped = sent && stepped->signal == SIGSTOP;
    require(weir_try_acquire(pool, &request, &more, NULL) == 0);
    give_back(&held);
    if (is_stopped) {
        require(kill(pid, SIGCONT) == 0);
        require(!was_sent(pid));
    }
    if (stepped->n % 4 < 2)
        give_back(&more);
    require(apply(1, NULL, NULL) >= 0);
    require(apply(2, NULL, NULL) >= 0);
    if (more)
        give_back(&more);
    take_all(pool, &taken);
    check_exact(pool, &taken, false);
    give_back(&taken.acquisition);
    check_exact(pool, NULL, false);
    weir_pool_close(pool);
    weir_close(w);
    check_newcomer(false);
    shared_end();
    return sent;
}

static void each_step(const char *what, int signal, bool (*step)(struct stepped *stepped))
{
    uint64_t stride = effort_from("WEIR_STRIDE", 1);

    for (kind = 0; kind < KINDS; kind++) {
        struct stepped stepped = {
            .n = 1, .signal = signal, .ready = shared_pipe(), .go = shared_pipe()};

        for (; step(&stepped); stepped.n += stride)
            assert_true(stepped.n < STEPS_MAX);
        print_message("%s, %s: %lu steps\n", what, kinds[kind].name, stepped.n - 1);
        assert_true(stepped.n > 2);
        shared_pipe_close(&stepped.ready);
        shared_pipe_close(&stepped.go);
    }
}

static void a_user_is_stopped(void **state)
{
    (void)state;
    each_step("stop of a user", SIGSTOP, step_of_a_user);
}

static void a_user_dies(void **state)
{
    (void)state;
    each_step("death of a user", SIGKILL, step_of_a_user);
}

static void a_change_is_stopped(void **state)
{
    (void)state;
    each_step("stop of a change", SIGSTOP, step_of_a_change);
}

static void a_change_dies(void **state)
{
    (void)state;
    each_step("death of a change", SIGKILL, step_of_a_change);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_user_is_stopped),
        cmocka_unit_test(a_user_dies),
        cmocka_unit_test(a_change_is_stopped),
        cmocka_unit_test(a_change_dies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
