/* SPDX-License-Identifier: MIT */
/*
 * Death and stops at every step, between real processes: one does something with a set that it
 * shares with others, and is killed, or stopped, at its first step, its second, and so on until it
 * comes to the end. Each time the others go on by what they ordinarily do, get all that the dead had
 * or stood in the way of, and the segment is looked at as a whole.
 *
 * WEIR_ROUNDS: how often all of it; 1 if it is not set.
 */
#include "look.h"
#include "others.h"
#include "stepping.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define CAPACITY  3
#define STEPS_MAX 20000 /* nothing takes so many */

static const char slots[] = "version: 1\n"
                            "sets:\n"
                            "  s:\n"
                            "    backend: process\n"
                            "    limits:\n"
                            "      - { type: resource, key: slot, capacity: 3 }\n";

/* ---- what is tried ---- */

struct tried {
    weir *w;
    weir_pool *pool;
    weir_acquisition *acquisition;
    weir_queue *queue;
};

static void attach(struct tried *tried)
{
    tried->w = shared_open(slots);
    tried->pool = shared_pool(tried->w, "s");
}

/* It has its actor and its run of records, too. */
static void settle_in(struct tried *tried)
{
    weir_acquisition *acquisition = NULL;
    struct shared_request memory;

    attach(tried);
    if (weir_try_acquire(tried->pool, shared_ask(&memory, "slot", 1, 0), &acquisition, NULL) == 0)
        weir_release(&acquisition);
}

static void try_for(struct tried *tried, uint64_t amount)
{
    struct shared_request memory;
    int r = weir_try_acquire(tried->pool, shared_ask(&memory, "slot", amount, 0),
                             &tried->acquisition, NULL);

    require(r == 0 || r == -EAGAIN);
}

static void submit(struct tried *tried, uint64_t amount)
{
    struct shared_request memory;
    int r = weir_submit(tried->pool, shared_ask(&memory, "slot", amount, WEIR_FOREVER),
                        &tried->acquisition, NULL);

    require(r == 0 || r == 1);
}

static void have_two(struct tried *tried)
{
    attach(tried);
    try_for(tried, 2);
    require(tried->acquisition);
}

static void wait_for_two(struct tried *tried)
{
    attach(tried);
    submit(tried, 2);
}

static void wait_for_one(struct tried *tried)
{
    attach(tried);
    submit(tried, 1);
}

static void open_queue(struct tried *tried)
{
    settle_in(tried);
    require(weir_queue_open(&tried->queue, tried->w, 4) == 0);
}

static void do_attach(struct tried *tried)
{
    attach(tried);
    try_for(tried, 1);
}

static void do_try(struct tried *tried)
{
    try_for(tried, 1);
}

static void do_acquire(struct tried *tried)
{
    struct shared_request memory;
    int r = weir_acquire(tried->pool, shared_ask(&memory, "slot", 2, MS / 5), &tried->acquisition,
                         NULL);

    require(r == 0 || r == -ETIMEDOUT);
}

static void do_submit(struct tried *tried)
{
    submit(tried, 2);
    require(weir_release(&tried->acquisition) == 0);
}

/* Whatever has become of it, there is one completion. */
static void do_queue(struct tried *tried)
{
    struct shared_request memory;
    struct weir_completion completion;

    require(weir_queue_submit(tried->queue, tried->pool,
                              shared_ask(&memory, "slot", 2, WEIR_FOREVER), 7, NULL, NULL) == 0);
    weir_queue_cancel(tried->queue, 7);
    for (;;) {
        struct pollfd fd = {weir_queue_fd(tried->queue), POLLIN, 0};
        int n = weir_queue_reap(tried->queue, &completion, 1);

        require(n == 0 || n == 1);
        if (n == 1)
            break;
        require(poll(&fd, 1, 10000) == 1);
    }
    require(completion.result == 0 || completion.result == -ECANCELED);
    weir_release(&completion.acquisition);
}

static void do_release(struct tried *tried)
{
    require(weir_release(&tried->acquisition) == 0);
}

static void do_leave(struct tried *tried)
{
    weir_pool_close(tried->pool);
    weir_close(tried->w);
    tried->pool = NULL;
    tried->w = NULL;
}

static void leave(struct tried *tried)
{
    weir_release(&tried->acquisition);
    if (tried->queue)
        require(!weir_queue_close(tried->queue));
    weir_pool_close(tried->pool);
    weir_close(tried->w);
}

#define SCENES_MAX 8

struct act {
    const char *name;
    void (*prepare)(struct tried *tried);
    void (*run)(struct tried *tried);
    uint64_t stands_for; /* so much it may have before those after it have got anything */
    struct scene scenes[SCENES_MAX];
};

static const struct act acts[] = {
    {"attaching",
     NULL,
     do_attach,
     0,
     {{"nobody", 0, "", "", 0}, {"some are held", 2, "", "", 0}, {"a line", 2, "bkq", "", 2}}},
    {"a grant at once",
     settle_in,
     do_try,
     1,
     {{"nobody", 0, "", "", 0}, {"some are held", 2, "", "", 0}, {"all are held", 3, "", "", 0}}},
    {"a blocked wait that times out",
     settle_in,
     do_acquire,
     0,
     {{"a holder", 2, "", "", 0}, {"a line of one", 2, "q", "", 2}, {"a line", 2, "bkq", "", 2}}},
    {"a wait for a descriptor that is given up",
     settle_in,
     do_submit,
     0,
     {{"a holder", 2, "", "", 0}, {"a line of one", 2, "b", "", 2}, {"a line", 2, "qbk", "", 2}}},
    {"a wait in a queue that is canceled",
     open_queue,
     do_queue,
     0,
     {{"a holder", 2, "", "", 0}, {"a line of one", 2, "k", "", 2}, {"a line", 2, "kqb", "", 2}}},
    {"a release",
     have_two,
     do_release,
     2,
     {{"nobody waits", 1, "", "", 0},
      {"one is blocked", 1, "", "b", 1},
      {"one waits for a descriptor", 1, "", "k", 1},
      {"one waits in a queue", 1, "", "q", 1},
      {"three wait", 1, "", "bkq", 1},
      {"three wait, each for all of it", 1, "", "qkb", 2}}},
    {"leaving the head of the line",
     wait_for_two,
     do_release,
     2,
     {{"nobody behind", 2, "", "", 1},
      {"one behind", 2, "", "b", 1},
      {"three behind", 2, "", "kqb", 1},
      {"three behind who do not fit", 2, "", "qbk", 2}}},
    {"leaving the middle of the line",
     wait_for_one,
     do_release,
     2,
     {{"two behind", 3, "b", "kq", 1}, {"one behind", 3, "kq", "b", 1}}},
    {"going",
     settle_in,
     do_leave,
     0,
     {{"nobody", 0, "", "", 0}, {"some are held", 2, "", "", 0}, {"a line", 2, "bkq", "", 2}}},
};

/* ---- one round ---- */

struct round {
    const struct act *act;
    const struct scene *scene;
    uint64_t n; /* the step */
    int signal; /* at it */
    pid_t pid;
    struct shared_pipe ready, go;
};

static struct others others;

static void live(void *argument)
{
    struct round *round = argument;
    struct tried tried = {0};

    if (round->act->prepare)
        round->act->prepare(&tried);
    shared_tell(&round->ready);
    shared_hear(&round->go);
    stepping_begin(round->n, round->signal, STEPS_OF_CALLER);
    round->act->run(&tried);
    stepping_end();
    leave(&tried);
}

static void tell(const struct round *round, enum order order)
{
    if (others_do(&others, order, round->scene))
        return;
    if (round->pid)
        kill(round->pid, SIGKILL);
    fail_msg("%s, %s, step %lu, %s: the others failed at %d", round->act->name, round->scene->name,
             round->n, strsignal(round->signal), order);
}

/* Whether it was sent the signal: if not, it has come to the end, and must have ended well. */
static bool was_sent(const struct round *round, int flags)
{
    int status;

    require(waitpid(round->pid, &status, flags) == round->pid);
    if (WIFSTOPPED(status) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
        return true;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s, %s, step %lu, %s: ended with %x", round->act->name, round->scene->name,
                 round->n, strsignal(round->signal), status);
    return false;
}

static void begin(struct round *round)
{
    round->pid = 0;
    tell(round, ORDER_HOLD);
    round->pid = shared_fork(live, round);
    shared_hear(&round->ready);
    tell(round, ORDER_JOIN);
    shared_tell(&round->go);
}

/* Whether the waiters go on only when the holder does. */
static bool waits_for_holder(const struct scene *scene)
{
    return scene->amount + scene->hold > CAPACITY;
}

static bool die(struct round *round)
{
    bool later = waits_for_holder(round->scene), died;

    begin(round);
    died = was_sent(round, 0);
    if (later) {
        tell(round, ORDER_LINE);
        tell(round, ORDER_RELEASE);
    }
    tell(round, ORDER_WAIT);
    if (!later)
        tell(round, ORDER_RELEASE);
    tell(round, ORDER_CHECK);
    return died;
}

/* All the others need is there while it is stopped, whatever it has got itself. */
static bool stop(struct round *round)
{
    bool stopped;

    begin(round);
    stopped = was_sent(round, WUNTRACED);
    tell(round, ORDER_RELEASE);
    tell(round, ORDER_WAIT);
    tell(round, ORDER_NEWCOMER);
    if (stopped) {
        require(kill(round->pid, SIGCONT) == 0);
        if (was_sent(round, 0))
            fail_msg("killed");
    }
    tell(round, ORDER_NEWCOMER_LEAVES);
    tell(round, ORDER_CHECK);
    return stopped;
}

static void each_step(const struct act *act, const struct scene *scene, int signal,
                      bool (*run)(struct round *round))
{
    struct round round = {act, scene, 1, signal, 0, shared_pipe(), shared_pipe()};
    uint64_t longest_ns = 0, begin_ns, n = 0;
    bool sent;

    do {
        begin_ns = clock_now();
        sent = run(&round);
        if (clock_now() - begin_ns > longest_ns) {
            longest_ns = clock_now() - begin_ns;
            n = round.n;
        }
        assert_true(++round.n < STEPS_MAX);
    } while (sent);
    print_message("%s, %s: %lu steps, at most %lu ms (step %lu)\n", act->name, scene->name,
                  round.n - 1, longest_ns / MS, n);
    shared_pipe_close(&round.ready);
    shared_pipe_close(&round.go);
}

/* Whether the others can go on while what is tried does not: it may have what they need. */
static bool suits(const struct act *act, const struct scene *scene, int signal)
{
    return signal == SIGKILL || act->stands_for + scene->amount <= CAPACITY;
}

static void each_act(int signal, bool (*run)(struct round *round))
{
    for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++)
        for (size_t s = 0; s < SCENES_MAX && acts[i].scenes[s].name; s++)
            if (suits(&acts[i], &acts[i].scenes[s], signal))
                each_step(&acts[i], &acts[i].scenes[s], signal, run);
}

static void death_at_every_step(void **state)
{
    (void)state;
    for (uint64_t i = number_from("WEIR_ROUNDS", 1); i > 0; i--)
        each_act(SIGKILL, die);
}

static void stop_at_every_step(void **state)
{
    (void)state;
    for (uint64_t i = number_from("WEIR_ROUNDS", 1); i > 0; i--)
        each_act(SIGSTOP, stop);
}

static int setup(void **state)
{
    (void)state;
    shared_begin();
    others = others_start(slots, CAPACITY);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    others_end(&others);
    shared_end();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(death_at_every_step, setup, teardown),
        cmocka_unit_test_setup_teardown(stop_at_every_step, setup, teardown),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
