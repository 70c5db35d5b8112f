/* SPDX-License-Identifier: MIT */
/*
 * A revocation and what its holder does at the same time, step by step: each of the two takes place
 * at every step of the other one. A revoking process and a releasing one are killed at each step,
 * too. Whatever happens, units go back exactly once, and a waiter gets them.
 */
#include "api/acquisition.h"
#include "api/instance.h"
#include "set/max_hold.h"
#include "set/set_ops.h"
#include "shared.h"
#include "stepping.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/segment.h>

#include <cmocka.h>

#define CAPACITY  3
#define STEPS_MAX 5000

#define SLOT                 "{ type: resource, key: slot, capacity: 3, max_hold: 1h, max_hold_action: revoke }"
#define OTHER                ", { type: resource, key: other, capacity: 9 }"
#define RATE                 ", { type: rate, key: n, algorithm: gcra, capacity: 1k, window: 1s }"
#define TEXT(fields, limits) "version: 1\nsets: { s: { " fields "limits: [ " limits " ] } }\n"

static const struct kind {
    const char *text;
    bool is_shared, is_keyed;
} kinds[] = {
    {TEXT("", SLOT), false, false},
    {TEXT("", SLOT OTHER RATE), false, false},
    {TEXT("fair: per_limit, ", SLOT), false, false},
    {TEXT("priorities: 2, ", SLOT), false, false},
    {TEXT("subjects: { max: 4 }, ", SLOT), false, true},
    {TEXT("backend: process, ", SLOT), true, false},
    {TEXT("backend: process, ", SLOT OTHER RATE), true, false},
    {TEXT("backend: process, subjects: { max: 4 }, ", SLOT), true, true},
};

static const struct kind *kind;

/* ---- one set, and another thread of it ---- */

static weir *w;
static weir_pool *pool, *second; /* the latter of another set; NULL: there is none */
static weir_acquisition *held;   /* two of three */
static uint32_t record;
static uint64_t word;

static const struct weir_request *ask(uint64_t n, uint64_t timeout_ns)
{
    static struct shared_request memory;

    shared_ask(&memory, "slot", n, timeout_ns);
    if (kind->is_keyed) {
        memory.request.subject = "s";
        memory.request.subject_size = 1;
    }
    return &memory.request;
}

static weir_set *set_of(void)
{
    return weir_pool_set(pool, 0);
}

static void open_all(void)
{
    shared_begin();
    w = shared_open(kind->text);
    pool = shared_pool(w, "s");
}

static void hold_two(void)
{
    require(weir_try_acquire(pool, ask(2, 0), &held, NULL) == 0);
    record = held->record;
    word = record_load(&set_record(held->set, record)->word);
    require(record_state(word) == RECORD_HELD);
}

/* All that there is can be had, and no more. */
static void check_and_close(void)
{
    weir_acquisition *all = NULL, *more = NULL;
    struct weir_set_stats stats;

    require(shared_held(pool, 0) == 0);
    require(weir_try_acquire(pool, ask(CAPACITY, 0), &all, NULL) == 0);
    require(weir_try_acquire(pool, ask(1, 0), &more, NULL) == -EAGAIN);
    require(weir_release(&all) == 0);
    stats = shared_stats(pool);
    require(stats.held == 0 && stats.waiting == 0);
    weir_pool_close(pool);
    weir_close(w);
    shared_end();
}

/* As a look does: by a thread that has used the set. */
static bool revoke_it(void)
{
    weir_set *set = set_of(), *of = set;
    struct thread_ctx *ctx;
    bool is_revoked;

    if (!set_is_shared(set))
        of = instance_set(w, record_set_number(set_record(set, record)));
    ctx = thread_ctx_get(of);
    require(ctx);
    is_revoked = max_hold_revoke(ctx, set, of, record, word);
    thread_ctx_return(ctx);
    return is_revoked;
}

static bool was_revoked;
static int result; /* of what the holder did */

static void revoke_now(void)
{
    was_revoked = revoke_it();
}

static void release_it(void)
{
    result = weir_release(&held);
}

static void return_one(void)
{
    result = weir_return(held, "slot", 1);
}

/* Another thread, which does one thing when it is told to. */
struct other {
    pthread_t thread;
    sem_t go, done;
    void (*act)(void);
};

static void *other_main(void *argument)
{
    struct other *other = argument;
    weir_acquisition *acquisition = NULL;

    /* It has its context, and takes no lock for that later. */
    if (weir_try_acquire(pool, ask(1, 0), &acquisition, NULL) == 0)
        require(weir_release(&acquisition) == 0);
    if (second && weir_try_acquire(second, ask(1, 0), &acquisition, NULL) == 0)
        require(weir_release(&acquisition) == 0);
    sem_post(&other->done);
    sem_wait(&other->go);
    other->act();
    sem_post(&other->done);
    return NULL;
}

static void let_other_act(void *argument)
{
    struct other *other = argument;

    sem_post(&other->go);
    sem_wait(&other->done);
}

/* Starts the other thread, which has used the set. */
static void start_other(struct other *other)
{
    sem_init(&other->go, 0, 0);
    sem_init(&other->done, 0, 0);
    require(pthread_create(&other->thread, NULL, other_main, other) == 0);
    sem_wait(&other->done);
}

/* Does `first`, and at its n-th step, or after it, what the other thread does. False: it has no
 * such step. */
static bool do_both(uint64_t n, void (*first)(void), struct other *other)
{
    bool has_met;

    stepping_call(n, let_other_act, other);
    first();
    has_met = stepping_end();
    if (!has_met)
        let_other_act(other);
    require(pthread_join(other->thread, NULL) == 0);
    return has_met;
}

/* Does `first`, and at its n-th step `then` in another thread. False: it has no such step. */
static bool meet(uint64_t n, void (*first)(void), void (*then)(void), bool with_waiter)
{
    struct other other = {.act = then};
    weir_acquisition *waiter = NULL;
    bool has_met;

    open_all();
    hold_two();
    start_other(&other);
    if (with_waiter)
        require(weir_submit(pool, ask(2, WEIR_FOREVER), &waiter, NULL) == 1);
    has_met = do_both(n, first, &other);

    /* One of them has given it back. */
    require(result == 0 || result == -EOWNERDEAD);
    if (!held) {
        require(was_revoked == (result == -EOWNERDEAD));
    } else { /* a part was returned: before the revocation, which found another word, or not */
        require(was_revoked == (result == -EOWNERDEAD));
        require(shared_held(pool, 0) == (was_revoked ? 0u : 1u) + (with_waiter ? 2u : 0u));
        require(weir_release(&held) == (was_revoked ? -EOWNERDEAD : 0));
    }
    if (with_waiter) {
        require(weir_acquisition_result(waiter) == 0);
        require(shared_held(pool, 0) == 2);
        require(weir_release(&waiter) == 0);
    }
    check_and_close();
    return has_met;
}

static void meet_at_each_step(void (*first)(void), void (*then)(void))
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        uint64_t n[2];

        kind = &kinds[i];
        for (int with_waiter = 0; with_waiter < 2; with_waiter++)
            for (n[with_waiter] = 1; meet(n[with_waiter], first, then, with_waiter);)
                require(++n[with_waiter] < STEPS_MAX);
        printf("%s: %d and %d steps\n", kind->text + 20, (int)n[0] - 1, (int)n[1] - 1);
        require(n[0] > 3 && n[1] > 3);
    }
}

static void a_revocation_at_each_step_of_a_release(void **state)
{
    (void)state;
    meet_at_each_step(release_it, revoke_now);
}

static void a_release_at_each_step_of_a_revocation(void **state)
{
    (void)state;
    meet_at_each_step(revoke_now, release_it);
}

static void a_revocation_at_each_step_of_a_return(void **state)
{
    (void)state;
    meet_at_each_step(return_one, revoke_now);
}

static void a_return_at_each_step_of_a_revocation(void **state)
{
    (void)state;
    meet_at_each_step(revoke_now, return_one);
}

/* ---- looks, by a clock that is moved by hand ---- */

static _Atomic uint64_t now_ns;
static bool is_late; /* the look comes when the holding is due */

static uint64_t read_now(void *userdata)
{
    (void)userdata;
    return atomic_load(&now_ns);
}

static void open_clocked(const char *text)
{
    const struct weir_clock clock = {.size = sizeof(clock), .now_ns = read_now};
    const struct weir_options options = {
        .size = sizeof(options), .text = text, .process_dir = shared_directory(), .clock = &clock};

    atomic_store(&now_ns, UINT64_C(1000000000) * SECOND); /* ahead of the system's */
    require(weir_open(&w, &options, NULL) == 0);
    pool = shared_pool(w, "s");
}

static void look(void)
{
    if (is_late)
        atomic_fetch_add(&now_ns, 7200 * SECOND);
    weir_tick(w);
}

static bool is_readable(int fd)
{
    struct pollfd polled = {fd, POLLIN, 0};

    return poll(&polled, 1, 0) == 1;
}

/* The descriptor is that of what is left, and tells of it if it is revoked. */
static bool look_at_what_is_left(uint64_t n)
{
    struct other other = {.act = look};
    bool has_met;
    int lost;

    shared_begin();
    open_clocked(kind->text);
    hold_two();
    lost = weir_acquisition_lost_fd(held);
    require(lost >= 0);
    start_other(&other);
    has_met = do_both(n, return_one, &other);
    if (is_late) {
        if (weir_acquisition_result(held) == -EOWNERDEAD)
            require(is_readable(lost)); /* whichever record the look has found */
        look();                         /* there is an instant at which it is between two records */
        require(result == 0 || result == -EOWNERDEAD);
        require(is_readable(lost));
        require(shared_stats(pool).revoked == 1);
        require(weir_acquisition_result(held) == -EOWNERDEAD);
        require(weir_release(&held) == -EOWNERDEAD);
    } else {
        require(result == 0);
        require(!is_readable(lost));
        require(shared_held(pool, 0) == 1);
        require(weir_release(&held) == 0);
    }
    check_and_close();
    return has_met;
}

static void a_look_at_each_step_of_a_return(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * sizeof(kinds) / sizeof(kinds[0]); i++) {
        uint64_t n = 1;

        kind = &kinds[i / 2];
        is_late = i % 2;
        while (look_at_what_is_left(n))
            require(++n < STEPS_MAX);
        printf("%s: %d steps%s\n", kind->text + 20, (int)n - 1, is_late ? ", late" : "");
        require(n > 3);
    }
}

static void take_two(void)
{
    result = weir_try_acquire(pool, ask(2, 0), &held, NULL);
}

/* Another request completes what the grant has begun to write. */
static void use_and_look(void)
{
    weir_acquisition *acquisition = NULL;

    if (weir_try_acquire(pool, ask(1, 0), &acquisition, NULL) == 0)
        require(weir_release(&acquisition) == 0);
    look();
}

/* It is revoked as soon as it is held, and stays revoked. */
static bool look_at_a_grant(uint64_t n)
{
    struct other other = {.act = use_and_look};
    bool has_met;

    shared_begin();
    open_clocked(kind->text);
    hold_two(); /* the thread has its context, and takes no lock for that later */
    require(weir_release(&held) == 0);
    start_other(&other);
    has_met = do_both(n, take_two, &other);
    look();
    require(result == 0);
    require(shared_stats(pool).revoked == 1);
    require(weir_acquisition_result(held) == -EOWNERDEAD);
    require(weir_release(&held) == -EOWNERDEAD);
    check_and_close();
    return has_met;
}

static void a_look_at_each_step_of_a_grant(void **state)
{
    (void)state;
    is_late = true;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        uint64_t n = 1;

        kind = &kinds[i];
        while (look_at_a_grant(n))
            require(++n < STEPS_MAX);
        require(n > 3);
    }
}

/* The record is another set's at once, and held as long by the clock. */
static weir_acquisition *reusing;

static void reuse_the_record(void)
{
    require(weir_release(&held) == 0);
    require(weir_try_acquire(second, ask(2, 0), &reusing, NULL) == 0);
    require(reusing->record == record);
    atomic_fetch_add(&now_ns, 7200 * SECOND);
}

static bool reuse_at(uint64_t n)
{
    struct other other = {.act = reuse_the_record};
    bool has_met;

    shared_begin();
    open_clocked("version: 1\nsets: { s: { limits: [ " SLOT
                 " ] }, t: { limits: [ { type: resource, "
                 "key: slot, capacity: 3, max_hold: 9h, max_hold_action: revoke } ] } }\n");
    second = shared_pool(w, "t");
    hold_two();
    start_other(&other);
    is_late = false;
    has_met = do_both(n, look, &other);
    require(weir_acquisition_result(reusing) == 0);
    require(shared_held(second, 0) == 2);
    require(weir_release(&reusing) == 0);
    second = weir_pool_close(second);
    check_and_close();
    return has_met;
}

static void a_record_that_is_reused_at_each_step_of_a_look(void **state)
{
    uint64_t n = 1;

    (void)state;
    kind = &kinds[0];
    while (reuse_at(n))
        require(++n < STEPS_MAX);
    require(n > 1);
}

/* ---- a longer time, by a definition that comes meanwhile ---- */

/* The first text of `kind` with another time. */
static const char *text_of_a_day(void)
{
    static char text[512];
    const char *time = strstr(kind->text, "1h");

    snprintf(text, sizeof(text), "%.*s1d%s", (int)(time - kind->text), kind->text, time + 2);
    return text;
}

static void change_to_a_day(void)
{
    const struct weir_options options = {
        .size = sizeof(options), .text = text_of_a_day(), .process_dir = shared_directory()};

    if (kind->is_shared)
        require(weir_segment_redefine(&options, "s", 0, NULL, NULL, NULL) == 1);
    else
        require(weir_reload(w, &options, NULL) == 0);
    was_revoked = weir_acquisition_result(held) == -EOWNERDEAD;
}

/* What is held when the new definition counts stays held. */
static bool change_at(uint64_t n)
{
    struct other other = {.act = change_to_a_day};
    bool has_met;

    shared_begin();
    open_clocked(kind->text);
    hold_two();
    start_other(&other);
    is_late = true;
    has_met = do_both(n, look, &other);
    is_late = false;
    for (int i = 0; i < 3; i++)
        look();
    require(weir_acquisition_result(held) == (was_revoked ? -EOWNERDEAD : 0));
    require(shared_held(pool, 0) == (was_revoked ? 0 : 2));
    require(weir_release(&held) == (was_revoked ? -EOWNERDEAD : 0));
    check_and_close();
    return has_met;
}

static void a_change_at_each_step_of_a_look(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        uint64_t n = 1;

        kind = &kinds[i];
        if (kind->is_keyed)
            continue;
        while (change_at(n))
            require(++n < STEPS_MAX);
        printf("%s: %d steps\n", kind->text + 20, (int)n - 1);
        require(n > 3);
    }
}

/* ---- processes that die over it ---- */

struct death {
    struct shared_pipe begin;
    int fds[2];  /* which record, and its word */
    uint64_t n;  /* step at which it dies */
    bool is_own; /* the record is its own, and it releases it */
};

/* Exits with 0 if it has no such step. */
static void die_over_it(void *argument)
{
    const struct death *death = argument;
    uint64_t about[2];

    shared_hear(&death->begin);
    w = shared_open(kind->text);
    pool = shared_pool(w, "s");
    if (death->is_own) {
        hold_two();
        stepping_begin(death->n, SIGKILL, STEPS_OF_CALLER);
        release_it();
        require(!stepping_end());
        return;
    }
    require(read(death->fds[0], about, sizeof(about)) == sizeof(about));
    record = (uint32_t)about[0];
    word = about[1];
    require(thread_ctx_get(set_of()));
    stepping_begin(death->n, SIGKILL, STEPS_OF_CALLER);
    require(revoke_it());
    require(!stepping_end());
}

static bool wait_for_death(pid_t pid)
{
    int status;

    require(waitpid(pid, &status, 0) == pid);
    require(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status);
}

/* The waiter gets what is released, whatever has become of the process. */
static void expect_grant(weir_acquisition *waiter)
{
    struct pollfd fd = {weir_acquisition_fd(waiter), POLLIN, 0};

    require(poll(&fd, 1, 20000) == 1);
    require(weir_acquisition_result(waiter) == 0);
    require(weir_release(&waiter) == 0);
}

static bool revoke_and_die(uint64_t n)
{
    struct death death = {.begin = shared_pipe(), .n = n};
    weir_acquisition *waiter = NULL;
    uint64_t about[2];
    pid_t pid;
    bool died;
    int r;

    require(pipe(death.fds) == 0);
    shared_begin();
    pid = shared_fork(die_over_it, &death);
    w = shared_open(kind->text);
    pool = shared_pool(w, "s");
    hold_two();
    require(weir_submit(pool, ask(2, WEIR_FOREVER), &waiter, NULL) == 1);
    about[0] = record;
    about[1] = word;
    require(write(death.fds[1], about, sizeof(about)) == sizeof(about));
    shared_tell(&death.begin);
    died = wait_for_death(pid);
    r = weir_release(&held);
    require(r == 0 || r == -EOWNERDEAD);
    require(died || r == -EOWNERDEAD);
    expect_grant(waiter);
    check_and_close();
    shared_pipe_close(&death.begin);
    close(death.fds[0]);
    close(death.fds[1]);
    return died;
}

static bool release_and_die(uint64_t n)
{
    struct death death = {.begin = shared_pipe(), .n = n, .is_own = true};
    weir_acquisition *waiter = NULL;
    pid_t pid;
    bool died;

    shared_begin();
    pid = shared_fork(die_over_it, &death);
    w = shared_open(kind->text);
    pool = shared_pool(w, "s");
    shared_tell(&death.begin);
    died = wait_for_death(pid);
    require(weir_submit(pool, ask(2, WEIR_FOREVER), &waiter, NULL) >= 0);
    expect_grant(waiter);
    check_and_close();
    shared_pipe_close(&death.begin);
    return died;
}

static void die_at_each_step(bool (*deed)(uint64_t n))
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        uint64_t n = 1;

        kind = &kinds[i];
        if (!kind->is_shared)
            continue;
        while (deed(n))
            require(++n < STEPS_MAX);
        printf("%s: %d deaths\n", kind->text + 20, (int)n - 1);
        require(n > 3);
    }
}

static void a_death_at_each_step_of_a_revocation(void **state)
{
    (void)state;
    die_at_each_step(revoke_and_die);
}

static void a_death_at_each_step_of_a_release(void **state)
{
    (void)state;
    die_at_each_step(release_and_die);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_revocation_at_each_step_of_a_release),
        cmocka_unit_test(a_release_at_each_step_of_a_revocation),
        cmocka_unit_test(a_revocation_at_each_step_of_a_return),
        cmocka_unit_test(a_return_at_each_step_of_a_revocation),
        cmocka_unit_test(a_look_at_each_step_of_a_return),
        cmocka_unit_test(a_look_at_each_step_of_a_grant),
        cmocka_unit_test(a_record_that_is_reused_at_each_step_of_a_look),
        cmocka_unit_test(a_change_at_each_step_of_a_look),
        cmocka_unit_test(a_death_at_each_step_of_a_revocation),
        cmocka_unit_test(a_death_at_each_step_of_a_release),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
