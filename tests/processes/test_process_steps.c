/* SPDX-License-Identifier: MIT */
/*
 * Death and stops at every step, between real processes: one does something with a set that it
 * shares with others, and is killed, or stopped, at its first step, its second, and so on until it
 * comes to the end. Each time the others go on by what they ordinarily do, get all that the dead
 * had or stood in the way of, and the segment is looked at as a whole.
 *
 * WEIR_ROUNDS: how often all of it; 1 if it is not set. WEIR_STRIDE: only every so many-th step, in
 * each scene from another one on; 1 if it is not set. Exits with 77 under ThreadSanitizer.
 */
#include "crash/system.h"
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
#include <weir/segment.h>

#include <cmocka.h>

#define CAPACITY      3
#define CLEANUP_STEPS 130   /* are enough */
#define STEPS_MAX     20000 /* nothing takes so many */

/* The rate is there to be waited for. */
static const char both[] =
    "version: 1\n"
    "sets:\n"
    "  s:\n"
    "    backend: process\n"
    "    limits:\n"
    "      - { type: resource, key: slot, capacity: 3 }\n"
    "      - { type: rate, key: n, algorithm: gcra, capacity: 1, window: 5ms }\n";

/* It goes with its last user. */
static const char passing[] = "version: 1\n"
                              "sets:\n"
                              "  s:\n"
                              "    backend: process\n"
                              "    lifetime: users\n"
                              "    limits:\n"
                              "      - { type: resource, key: slot, capacity: 3 }\n";

/* It is inline while no thread waits. */
static const char one[] = "version: 1\n"
                          "sets:\n"
                          "  s:\n"
                          "    backend: process\n"
                          "    limits:\n"
                          "      - { type: resource, key: slot, capacity: 3 }\n";

/* Waiters for the one limit are not in the way of those for the other. */
static const char disjoint[] =
    "version: 1\n"
    "sets:\n"
    "  s:\n"
    "    backend: process\n"
    "    fair: per_limit\n"
    "    limits:\n"
    "      - { type: resource, key: slot, capacity: 3 }\n"
    "      - { type: rate, key: n, algorithm: gcra, capacity: 1, window: 5ms }\n";

/* ---- what is tried ---- */

static const char *text = both;

struct tried {
    weir *w;
    weir_pool *pool;
    weir_acquisition *acquisition, *other;
    weir_queue *queue;
};

static void attach_to(struct tried *tried, const char *of)
{
    tried->w = shared_open(of);
    tried->pool = shared_pool(tried->w, "s");
}

static void attach(struct tried *tried)
{
    attach_to(tried, text);
}

/* It has its thread context and its run of records, too. */
static void release_in(struct tried *tried)
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

/* By the fast path: with what it has had before. */
static void have_two_again(struct tried *tried)
{
    release_in(tried);
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
    release_in(tried);
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

/* One of two, and then the other. */
static void do_return(struct tried *tried)
{
    require(weir_return(tried->acquisition, "slot", 1) == 0);
    require(weir_return(tried->acquisition, "slot", 2) == -ERANGE);
}

/* Of what was waited for, with a timer thread that knows the record. */
static void have_two_after_a_wait(struct tried *tried)
{
    weir_acquisition *waited = NULL;
    struct shared_request memory;
    struct pollfd fd = {.events = POLLIN};

    release_in(tried);
    try_for(tried, 1);
    require(tried->acquisition);
    require(weir_submit(tried->pool, shared_ask(&memory, "slot", 2, WEIR_FOREVER), &waited, NULL) >=
            0);
    fd.fd = weir_acquisition_fd(waited);
    require(weir_release(&tried->acquisition) == 0);
    require(poll(&fd, 1, 10000) == 1);
    tried->acquisition = waited;
}

static void do_try_and_release(struct tried *tried)
{
    do_try(tried);
    if (tried->acquisition)
        do_release(tried);
}

static void used(weir_acquisition **acquisition)
{
    require(weir_update(*acquisition, "n", 1) == 0);
    require(weir_release(acquisition) == 0);
}

/* For what time alone brings; of the resource nothing. */
static const struct weir_request *ask_time(struct shared_request *memory)
{
    shared_ask(memory, "n", 1, WEIR_FOREVER);
    memory->amounts[1] = (struct weir_amount){"slot", 0};
    memory->request.amounts_n = 2;
    return &memory->request;
}

/* The next that wants it waits for it. It may be used up from the round before. */
static void use_up(struct tried *tried)
{
    struct shared_request memory;
    weir_acquisition *acquisition = NULL;
    int r = weir_try_acquire(tried->pool, ask_time(&memory), &acquisition, NULL);

    require(r == 0 || r == -EAGAIN);
    if (r == 0)
        used(&acquisition);
}

static void head_until_time(struct tried *tried)
{
    struct shared_request memory;

    release_in(tried);
    use_up(tried);
    require(weir_submit(tried->pool, ask_time(&memory), &tried->acquisition, NULL) >= 0);
}

/* Its timer thread serves it, and those behind. */
static void do_wait(struct tried *tried)
{
    struct pollfd fd = {weir_acquisition_fd(tried->acquisition), POLLIN, 0};

    require(poll(&fd, 1, 10000) == 1);
    require(weir_acquisition_result(tried->acquisition) == 0);
    used(&tried->acquisition);
}

static void head_of_queue(struct tried *tried)
{
    struct shared_request memory;

    open_queue(tried);
    use_up(tried);
    require(weir_queue_submit(tried->queue, tried->pool, ask_time(&memory), 7, NULL, NULL) == 0);
}

/* A reap grants waiters. */
static void do_reap(struct tried *tried)
{
    struct weir_completion completion;
    struct pollfd fd = {weir_queue_fd(tried->queue), POLLIN, 0};

    while (weir_queue_reap(tried->queue, &completion, 1) == 0)
        require(poll(&fd, 1, 10000) == 1);
    require(completion.result == 0);
    used(&completion.acquisition);
}

/* It waits for what no other process wants, so others are granted from behind it. */
static void have_two_and_wait(struct tried *tried)
{
    struct shared_request memory;

    have_two(tried);
    use_up(tried);
    require(weir_submit(tried->pool, ask_time(&memory), &tried->other, NULL) >= 0);
}

static void have_one(struct tried *tried)
{
    release_in(tried);
    try_for(tried, 1);
    require(tried->acquisition);
}

/* In front of all that wait; then it gives up, or gives back. */
static void do_nest(struct tried *tried)
{
    struct shared_request memory;
    struct weir_request request = *shared_ask(&memory, "slot", 1, WEIR_FOREVER);

    request.within = tried->acquisition;
    require(weir_submit(tried->pool, &request, &tried->other, NULL) >= 0);
    require(weir_release(&tried->other) == 0);
}

/* One acquisition stays, the other is taken back, unless a request waits. */
static void do_reserve(struct tried *tried)
{
    struct shared_request memory;
    const struct weir_request *request = ask_time(&memory);
    uint64_t at_ns;

    if (weir_reserve(tried->pool, request, &tried->acquisition, &at_ns, NULL) == 0)
        used(&tried->acquisition);
    if (weir_reserve(tried->pool, request, &tried->acquisition, &at_ns, NULL) == 0)
        require(weir_cancel(tried->acquisition) == 0);
    weir_release(&tried->acquisition);
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
    weir_release(&tried->other);
    weir_release(&tried->acquisition);
    if (tried->queue)
        require(!weir_queue_close(tried->queue));
    weir_pool_close(tried->pool);
    weir_close(tried->w);
}

/* Finds the dead, while it is at it. It looks at most once in a millisecond. */
static void do_clean_up(struct tried *tried)
{
    pause_ns(MS + MS / 10);
    try_for(tried, CAPACITY);
}

#define SCENES_MAX 8
#define DEAD_MAX   2

/* What a process has done before, and what it does step by step. */
struct deed {
    void (*prepare)(struct tried *tried);
    void (*run)(struct tried *tried);
    enum stepper stepper; /* does it */
};

struct act {
    const char *name;
    struct deed deed;
    uint64_t stands_for; /* so much it may have before those after it have got anything */
    struct scene scenes[SCENES_MAX];
    struct deed dead[DEAD_MAX]; /* they have died before, each at one of its steps */
};

static const struct act acts[] = {
    {.name = "attaching",
     .deed = {NULL, do_attach, STEPS_OF_CALLER},
     .scenes = {{"an idle set", 0, "", "", 0},
                {"some are held", 2, "", "", 0},
                {"three wait", 2, "bkq", "", 2}}},
    {.name = "a grant at once",
     .deed = {release_in, do_try, STEPS_OF_CALLER},
     .stands_for = 1,
     .scenes = {{"an idle set", 0, "", "", 0},
                {"some are held", 2, "", "", 0},
                {"all are held", 3, "", "", 0}}},
    {.name = "a blocked wait that times out",
     .deed = {release_in, do_acquire, STEPS_OF_CALLER},
     .scenes = {{"a holder", 2, "", "", 0},
                {"one waits", 2, "q", "", 2},
                {"three wait", 2, "bkq", "", 2}}},
    {.name = "a wait for a descriptor that is given up",
     .deed = {release_in, do_submit, STEPS_OF_CALLER},
     .scenes = {{"a holder", 2, "", "", 0},
                {"one waits", 2, "b", "", 2},
                {"three wait", 2, "qbk", "", 2}}},
    {.name = "a wait in a queue that is canceled",
     .deed = {open_queue, do_queue, STEPS_OF_CALLER},
     .scenes = {{"a holder", 2, "", "", 0},
                {"one waits", 2, "k", "", 2},
                {"three wait", 2, "kqb", "", 2}}},
    {.name = "a release",
     .deed = {have_two, do_release, STEPS_OF_CALLER},
     .stands_for = 2,
     .scenes = {{"none waits", 1, "", "", 0},
                {"one is blocked", 1, "", "b", 1},
                {"one waits for a descriptor", 1, "", "k", 1},
                {"one waits in a queue", 1, "", "q", 1},
                {"three wait", 1, "", "bkq", 1},
                {"three wait, each for all of it", 1, "", "qkb", 2}}},
    {.name = "a part that is returned early",
     .deed = {have_two, do_return, STEPS_OF_CALLER},
     .stands_for = 2,
     .scenes = {{"none waits", 1, "", "", 0},
                {"one is blocked", 1, "", "b", 1},
                {"three wait", 1, "", "kqb", 1},
                {"three wait, each for all of it", 1, "", "bkq", 2}}},
    {.name = "leaving the head of the wait queue",
     .deed = {wait_for_two, do_release, STEPS_OF_CALLER},
     .stands_for = 2,
     .scenes = {{"none behind", 2, "", "", 1},
                {"one behind", 2, "", "b", 1},
                {"three behind", 2, "", "kqb", 1},
                {"three behind that do not fit", 2, "", "qbk", 2}}},
    {.name = "leaving the middle of the wait queue",
     .deed = {wait_for_one, do_release, STEPS_OF_CALLER},
     .stands_for = 2,
     .scenes = {{"two behind", 3, "b", "kq", 1}, {"one behind", 3, "kq", "b", 1}}},
    {.name = "heading the wait queue until a timer thread grants",
     .deed = {head_until_time, do_wait, STEPS_OF_OTHER_THREADS},
     .scenes = {{"none behind", 0, "", "", 0}, {"three behind", 2, "", "bkq", 1}}},
    {.name = "heading the wait queue until a reaper grants",
     .deed = {head_of_queue, do_reap, STEPS_OF_CALLER},
     .scenes = {{"none behind", 0, "", "", 0}, {"three behind", 2, "", "qkb", 1}}},
    {.name = "a nested request that is given up",
     .deed = {have_one, do_nest, STEPS_OF_CALLER},
     .stands_for = 2,
     .scenes = {{"none waits", 2, "", "", 0}, {"three wait", 2, "", "bkq", 1}}},
    {.name = "a reservation",
     .deed = {release_in, do_reserve, STEPS_OF_CALLER},
     .scenes = {{"an idle set", 0, "", "", 0}, {"some are held", 2, "", "", 0}}},
    {.name = "going",
     .deed = {release_in, do_leave, STEPS_OF_CALLER},
     .scenes = {{"an idle set", 0, "", "", 0},
                {"some are held", 2, "", "", 0},
                {"three wait", 2, "bkq", "", 2}}},
    {.name = "cleaning up after a holder",
     .deed = {release_in, do_clean_up, STEPS_OF_CALLER},
     .scenes = {{"none waits", 1, "", "", 0},
                {"three wait", 1, "", "bkq", 1},
                {"three wait", 1, "", "qkb", 2}},
     .dead = {{have_two, do_release, STEPS_OF_CALLER}}},
    {.name = "cleaning up after a waiter",
     .deed = {release_in, do_clean_up, STEPS_OF_CALLER},
     .scenes = {{"none behind", 2, "", "", 0}, {"three behind", 2, "", "kqb", 1}},
     .dead = {{wait_for_two, do_release, STEPS_OF_CALLER}}},
    {.name = "cleaning up after a cleaner",
     .deed = {release_in, do_clean_up, STEPS_OF_CALLER},
     .scenes = {{"none waits", 1, "", "", 0}, {"three wait", 1, "", "bkq", 1}},
     .dead = {{have_two, do_release, STEPS_OF_CALLER}, {release_in, do_clean_up, STEPS_OF_CALLER}}},
};

static const struct act acts_of_one[] = {
    {.name = "a grant at once by a state word",
     .deed = {release_in, do_try, STEPS_OF_CALLER},
     .stands_for = 1,
     .scenes = {{"an idle set", 0, "", "", 0}, {"all are held", 3, "", "", 0}}},
    {.name = "a grant and its release by a state word",
     .deed = {release_in, do_try_and_release, STEPS_OF_CALLER},
     .stands_for = 1,
     .scenes = {{"some are held", 2, "", "", 0}}},
    {.name = "a release by a state word",
     .deed = {have_two_again, do_release, STEPS_OF_CALLER},
     .stands_for = 2,
     .scenes = {{"none waits", 1, "", "", 0}, {"three wait", 1, "", "bkq", 1}}},
    {.name = "a part of what a state word says that is returned early",
     .deed = {have_two_again, do_return, STEPS_OF_CALLER},
     .stands_for = 2,
     .scenes = {{"none waits", 1, "", "", 0}, {"two wait", 1, "", "kb", 1}}},
    {.name = "a part of what was waited for that is returned early",
     .deed = {have_two_after_a_wait, do_return, STEPS_OF_CALLER},
     .stands_for = 2,
     .scenes = {{"none waits", 1, "", "", 0}}},
};

static const struct act acts_of_disjoint[] = {
    {.name = "a release that grants from the middle",
     .deed = {have_two_and_wait, do_release, STEPS_OF_CALLER},
     .stands_for = 2,
     .scenes = {{"one waits", 1, "", "b", 1}, {"three wait", 1, "", "kqb", 1}}},
    {.name = "leaving the middle of the wait queue, if waiters are fair per limit",
     .deed = {wait_for_one, do_release, STEPS_OF_CALLER},
     .stands_for = 2,
     .scenes = {{"two behind", 3, "b", "kq", 1}}},
    {.name = "waiting until a timer thread grants, if waiters are fair per limit",
     .deed = {head_until_time, do_wait, STEPS_OF_OTHER_THREADS},
     .scenes = {{"three behind", 2, "", "bkq", 1}}},
    {.name = "cleaning up after a holder, if waiters are fair per limit",
     .deed = {release_in, do_clean_up, STEPS_OF_CALLER},
     .scenes = {{"three wait", 1, "", "bkq", 1}},
     .dead = {{have_two_and_wait, do_release, STEPS_OF_CALLER}}},
};

/* ---- one round ---- */

struct stepped {
    struct deed deed;
    uint64_t n; /* the step */
    int signal; /* at it */
    pid_t pid;
    struct shared_pipe ready, go;
};

struct round {
    const struct act *act;
    const struct scene *scene;
    struct stepped tried;
    struct stepped dead[DEAD_MAX];
    bool at_step; /* the tried one was sent its signal */
};

static struct others others;
static uint64_t repetition; /* of all of it */
static uint64_t delayed;    /* others, by a process that was stopped */
static uint64_t stride;     /* from one step that is tried to the next */
static uint64_t scenes;     /* that have been played */

static void live(void *argument)
{
    struct stepped *stepped = argument;
    struct tried tried = {0};

    if (stepped->deed.prepare)
        stepped->deed.prepare(&tried);
    shared_tell(&stepped->ready);
    shared_hear(&stepped->go);
    stepping_begin(stepped->n, stepped->signal, stepped->deed.stepper);
    stepped->deed.run(&tried);
    stepping_end();
    leave(&tried);
}

static void start(struct stepped *stepped)
{
    struct pollfd fd = {stepped->ready.fds[0], POLLIN, 0};

    if (!stepped->deed.run)
        return;
    stepped->pid = shared_fork(live, stepped);
    require(poll(&fd, 1, 20000) == 1);
    shared_hear(&stepped->ready);
}

static _Noreturn void give_up(const struct round *round, const char *what, int number)
{
    if (round->tried.pid)
        kill(round->tried.pid, SIGKILL);
    others_continue(&others);
    fail_msg("%s, %s, step %lu, %s (the dead: %lu, %lu): %s %x", round->act->name,
             round->scene->name, round->tried.n, strsignal(round->tried.signal), round->dead[0].n,
             round->dead[1].n, what, number);
    abort();
}

static void tell(const struct round *round, enum order order)
{
    if (!others_do(&others, order, round->scene))
        give_up(round, "the others failed at", order);
}

/* Whether it was sent the signal: if not, it has come to the end, and must have ended well. */
static bool was_sent(const struct round *round, const struct stepped *stepped, int flags)
{
    int status;

    require(waitpid(stepped->pid, &status, flags) == stepped->pid);
    if (WIFSTOPPED(status) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
        return true;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        give_up(round, "ended with", status);
    return false;
}

/* The others know nothing of it. False: another one had done it before. */
static bool let_die(const struct round *round)
{
    bool all = true;

    others_stop(&others);
    for (int i = 0; i < DEAD_MAX && round->dead[i].deed.run; i++) {
        shared_tell(&round->dead[i].go);
        all &= was_sent(round, &round->dead[i], 0);
    }
    return all;
}

static void set_up(struct round *round)
{
    round->tried.pid = 0;
    tell(round, ORDER_HOLD);
    for (int i = 0; i < DEAD_MAX; i++)
        start(&round->dead[i]);
    start(&round->tried);
    tell(round, ORDER_JOIN);
}

/* Whether it was sent the signal, or the dead had left nothing to do. */
static bool begin(struct round *round)
{
    bool sent = false;

    set_up(round);
    if (round->dead[0].deed.run)
        sent = !let_die(round);
    shared_tell(&round->tried.go);
    round->at_step = was_sent(round, &round->tried, WUNTRACED);
    others_continue(&others);
    return sent || round->at_step;
}

/* Whether the waiters go on only when the holder does. */
static bool waits_for_holder(const struct scene *scene)
{
    return scene->amount + scene->hold > CAPACITY;
}

static bool die(struct round *round)
{
    bool later = waits_for_holder(round->scene), more = begin(round);

    if (later) {
        tell(round, ORDER_LINE);
        tell(round, ORDER_RELEASE);
    }
    tell(round, ORDER_WAIT);
    if (!later)
        tell(round, ORDER_RELEASE);
    tell(round, ORDER_CHECK);
    return more;
}

static void go_on(const struct round *round, const struct stepped *stepped)
{
    require(kill(stepped->pid, SIGCONT) == 0);
    if (was_sent(round, stepped, 0))
        give_up(round, "was killed", 0);
}

/* All the others need is there while it is stopped, whatever it has got itself. */
static bool stop(struct round *round)
{
    bool more = begin(round);

    tell(round, ORDER_LOOK);
    tell(round, ORDER_RELEASE);
    tell(round, ORDER_WAIT);
    tell(round, ORDER_NEWCOMER);
    if (round->at_step)
        go_on(round, &round->tried);
    tell(round, ORDER_NEWCOMER_LEAVES);
    tell(round, ORDER_CHECK);
    return more;
}

/* Two processes clean up after the same dead one. The first stops at some step, the second at
 * another; then the first comes to the end, and what the dead one had belongs to another when the
 * second goes on. */
static bool interleave(struct round *round)
{
    bool first;

    set_up(round);
    others_stop(&others);
    shared_tell(&round->dead[0].go);
    was_sent(round, &round->dead[0], 0);
    shared_tell(&round->dead[1].go);
    first = was_sent(round, &round->dead[1], WUNTRACED);
    shared_tell(&round->tried.go);
    round->at_step = was_sent(round, &round->tried, WUNTRACED);
    if (first)
        go_on(round, &round->dead[1]);
    others_continue(&others);
    tell(round, ORDER_LOOK);
    tell(round, ORDER_RELEASE);
    tell(round, ORDER_WAIT);
    tell(round, ORDER_NEWCOMER);
    if (round->at_step)
        go_on(round, &round->tried);
    tell(round, ORDER_NEWCOMER_LEAVES);
    tell(round, ORDER_CHECK);
    return round->tried.n <
           CLEANUP_STEPS; /* how many it makes depends on what the first has done */
}

static struct stepped stepped_of(struct deed deed)
{
    return (struct stepped){.deed = deed, .ready = shared_pipe(), .go = shared_pipe()};
}

static void forget(struct stepped *stepped)
{
    shared_pipe_close(&stepped->ready);
    shared_pipe_close(&stepped->go);
}

/* The dead have died at this step or that: another each time, so that many are tried. */
static void set_steps(struct round *round, uint64_t n)
{
    round->tried.n = n;
    round->dead[0].n = 1 + n * 17 % 31;
    round->dead[1].n = 1 + (n * 29 + repetition) % 149;
}

static void each_step(const struct act *act, const struct scene *scene, int signal,
                      bool (*run)(struct round *round))
{
    struct round round = {.act = act,
                          .scene = scene,
                          .tried = stepped_of(act->deed),
                          .dead = {stepped_of(act->dead[0]), stepped_of(act->dead[1])}};
    uint64_t longest_ns = 0, longest = 0, n = 1 + scenes++ % stride, begin_ns;
    bool sent;

    round.tried.signal = signal;
    round.dead[0].signal = SIGKILL;
    round.dead[1].signal = run == interleave ? SIGSTOP : SIGKILL;
    do {
        set_steps(&round, n);
        begin_ns = clock_now();
        sent = run(&round);
        if (clock_now() - begin_ns > longest_ns) {
            longest_ns = clock_now() - begin_ns;
            longest = n;
        }
        n += stride;
        assert_true(n < STEPS_MAX);
    } while (sent);
    print_message("%s, %s: less than %lu steps, at most %lu ms (step %lu)\n", act->name,
                  scene->name, n - stride, longest_ns / MS, longest);
    forget(&round.tried);
    forget(&round.dead[0]);
    forget(&round.dead[1]);
}

/* Whether the others can go on while what is tried does not: it may have what they need. */
static bool suits(const struct act *act, const struct scene *scene, int signal)
{
    return signal == SIGKILL || act->stands_for + scene->amount <= CAPACITY;
}

static void each_of(const struct act *of, size_t n, int signal, bool (*run)(struct round *round))
{
    for (size_t i = 0; i < n; i++)
        for (size_t s = 0; s < SCENES_MAX && of[i].scenes[s].name; s++)
            if (suits(&of[i], &of[i].scenes[s], signal))
                each_step(&of[i], &of[i].scenes[s], signal, run);
}

static void each_act(int signal, bool (*run)(struct round *round))
{
    if (text == one)
        each_of(acts_of_one, sizeof(acts_of_one) / sizeof(acts_of_one[0]), signal, run);
    else if (text == disjoint)
        each_of(acts_of_disjoint, sizeof(acts_of_disjoint) / sizeof(acts_of_disjoint[0]), signal,
                run);
    else
        each_of(acts, sizeof(acts) / sizeof(acts[0]), signal, run);
}

static void death_at_every_step(void **state)
{
    (void)state;
    for (repetition = 0; repetition < effort_from("WEIR_ROUNDS", 1); repetition++)
        each_act(SIGKILL, die);
}

static void stop_at_every_step(void **state)
{
    (void)state;
    for (repetition = 0; repetition < effort_from("WEIR_ROUNDS", 1); repetition++)
        each_act(SIGSTOP, stop);
}

/* The acts with two that die before, of which the second cleans up after the first. */
static void recoverers_interleaved(void **state)
{
    uint64_t n = 3 * effort_from("WEIR_ROUNDS", 1);

    (void)state;
    for (repetition = 0; repetition < n; repetition++)
        for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++)
            for (size_t s = 0; acts[i].dead[1].run && acts[i].scenes[s].name; s++)
                each_step(&acts[i], &acts[i].scenes[s], SIGSTOP, interleave);
}

/* ---- the dead and a refused request ---- */

static void die_holding(void *unused)
{
    struct tried tried = {0};

    (void)unused;
    attach(&tried);
    try_for(&tried, CAPACITY);
    kill(getpid(), SIGKILL);
}

/* It was not notified: it looks for itself. */
static void a_refusal_by_a_state_word_looks_for_the_dead(void **state)
{
    struct tried tried = {0};
    uint64_t end = clock_now() + 10000 * MS;

    (void)state;
    text = one;
    release_in(&tried);
    shared_wait(shared_fork(die_holding, NULL), SIGKILL);
    while (!tried.acquisition) {
        require(clock_now() < end);
        try_for(&tried, 1);
    }
    do_release(&tried);
    do_leave(&tried);
    text = both;
}

/* ---- from the making of a segment to its removal ---- */

static void live_once(struct tried *tried)
{
    attach_to(tried, passing);
    try_for(tried, 1);
    weir_release(&tried->acquisition);
    do_leave(tried);
}

/* Another process, at that moment or later: the dead one has left two at least. */
static void live_again(void *unused)
{
    struct tried tried = {0};
    uint64_t end = clock_now() + 10000 * MS;

    (void)unused;
    attach_to(&tried, passing);
    for (;;) {
        try_for(&tried, 2);
        if (tried.acquisition)
            break;
        require(clock_now() < end);
        pause_ns(MS / 10);
    }
    look_line(weir_pool_set(tried.pool, 0));
    weir_release(&tried.acquisition);
    do_leave(&tried);
}

/* A process that is held up looks for the lock of the name again and again, and sleeps in between:
 * a thousand times, then it gives up. One that is not sleeps some ten times, however busy the
 * machine is. */
#define HELD_UP_SLEEPS 300u

static unsigned long sleeps_of(pid_t pid)
{
    unsigned long n = 0;
    char path[64], line[256];
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file))
        sscanf(line, "voluntary_ctxt_switches: %lu", &n);
    if (file)
        fclose(file);
    return n;
}

/* Returns whether a process ends, and is not held up. */
static bool ends(pid_t pid)
{
    siginfo_t info = {0};
    uint64_t end = clock_now() + 20000 * MS; /* one that sleeps for ever at one place */

    do {
        require(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0);
        if (info.si_pid == pid)
            return true;
        pause_ns(MS / 20);
    } while (sleeps_of(pid) < HELD_UP_SLEEPS && clock_now() < end);
    return false;
}

/* No process waits for a stopped one, unless it wants the name that the stopped one is removing. */
static bool come_and_go(struct stepped *stepped, uint64_t n, int signal)
{
    bool sent;
    pid_t pid;
    int status;

    stepped->n = n;
    stepped->signal = signal;
    start(stepped);
    shared_tell(&stepped->go);
    require(waitpid(stepped->pid, &status, WUNTRACED) == stepped->pid);
    sent = !WIFEXITED(status);
    require(sent || WEXITSTATUS(status) == 0);
    pid = shared_fork(live_again, NULL);
    if (WIFSTOPPED(status)) {
        delayed += !ends(pid);
        require(kill(stepped->pid, SIGCONT) == 0);
        shared_wait(stepped->pid, 0);
    }
    shared_wait(pid, 0);
    if (!shared_is_empty())
        fail_msg("step %lu, %s: something is left", n, strsignal(signal));
    return sent;
}

static void a_segment_comes_and_goes(void **state)
{
    static const int signals[] = {SIGKILL, SIGSTOP};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct stepped tried = stepped_of((struct deed){NULL, live_once, STEPS_OF_CALLER});
        uint64_t n = 1;

        delayed = 0;
        while (come_and_go(&tried, n, signals[i]))
            assert_true(++n < STEPS_MAX);
        print_message("%s: %lu steps, %lu of them held up another process\n", strsignal(signals[i]),
                      n - 1, delayed);
        assert_true(delayed <= 6); /* under the lock of the name */
        forget(&tried);
    }
}

static void count_complaint(void *userdata, const struct weir_error *complaint)
{
    fprintf(stderr, "%s\n", complaint->message);
    ++*(unsigned *)userdata;
}

static void remove_segment(void *removed)
{
    const struct weir_options options = {.size = sizeof(options),
                                         .process_dir = shared_directory()};

    *(int *)removed = weir_segment_remove(&options, "s", WEIR_SEGMENT_FORCE, NULL);
}

/* False: there were not so many steps. */
static bool attach_to_what_goes(uint64_t n)
{
    unsigned complaints = 0;
    const struct weir_options options = {.size = sizeof(options),
                                         .text = one,
                                         .process_dir = shared_directory(),
                                         .complaint = count_complaint,
                                         .userdata = &complaints};
    struct weir_error error = {.code = 77};
    weir *before = shared_open(one), *w = NULL;
    int removed = 1, r;
    bool had_step;

    stepping_call(n, remove_segment, &removed);
    r = weir_open(&w, &options, &error);
    had_step = stepping_end();
    if (r < 0)
        fail_msg("step %lu: %d, %s", n, r, error.message);
    assert_int_equal(removed, had_step ? 0 : 1);
    assert_int_equal(error.code, 77);
    assert_int_equal(complaints, 0);
    weir_close(w);
    weir_close(before);
    return had_step;
}

/* The next try succeeds, and no error is left of the first one. */
static void what_was_removed_while_it_was_attached_is_made_anew(void **state)
{
    uint64_t n = 1;

    (void)state;
    while (attach_to_what_goes(n))
        assert_true(++n < STEPS_MAX);
    print_message("%lu steps\n", n - 1);
    assert_true(n > 2);
}

static void unlink_segment(void *unlinked)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/s.weir", shared_directory());
    *(int *)unlinked = unlink(path);
}

/* Returns whether the participant has a segment that later ones do not find. */
static bool attach_to_what_vanishes(uint64_t n, bool *ret_had_step)
{
    weir *before = shared_open(one), *w;
    weir_pool *pool;
    int unlinked = 1;
    bool nameless;

    stepping_call(n, unlink_segment, &unlinked);
    w = shared_open(one);
    *ret_had_step = stepping_end();
    assert_int_equal(unlinked, *ret_had_step ? 0 : 1);
    pool = shared_pool(w, "s");
    nameless = shared_stats(pool).nameless;
    weir_pool_close(pool);
    weir_close(w);
    weir_close(before);
    return nameless;
}

/* Another program removes the file: only after its last look does a process not notice. */
static void what_vanished_while_it_was_attached_is_made_anew(void **state)
{
    unsigned nameless = 0;
    bool had_step = true;
    uint64_t n;

    (void)state;
    for (n = 1; had_step; n++) {
        nameless += attach_to_what_vanishes(n, &had_step);
        assert_true(n < STEPS_MAX);
    }
    print_message("%u of %lu steps after the last look\n", nameless, n);
    assert_true(nameless <= 12);
}

/* ---- seats ---- */

static void die_with_slot(void *unused)
{
    struct tried tried = {0};

    (void)unused;
    attach_to(&tried, passing);
    try_for(&tried, 1);
    weir_release(&tried.acquisition);
    kill(getpid(), SIGKILL);
}

/* After the cleanup the dead one has no announcement slot; the process that cleaned up keeps its
 * own. */
static void announcement_slots_of_the_dead_are_free(void **state)
{
    struct tried tried = {0}, refused = {0};
    uint64_t end = clock_now() + 10000 * MS;
    const weir_set *set;
    uint32_t own = 0;

    (void)state;
    attach_to(&tried, passing);
    set = weir_pool_set(tried.pool, 0);
    shared_wait(shared_fork(die_with_slot, NULL), SIGKILL);
    try_for(&tried, CAPACITY);
    refused = (struct tried){.w = tried.w, .pool = tried.pool};
    while (look_places(set) > 1) { /* a refused request looks for the dead */
        require(clock_now() < end);
        try_for(&refused, 1);
        assert_null(refused.acquisition);
        pause_ns(MS);
    }
    for (uint32_t i = 0; i < DCAS_SLOTS; i++) {
        uint64_t owner = atomic_load(&set->announce_slots->owners[i]);

        assert_true(owner == 0 || owner == set->participant->peer_key);
        own += owner != 0;
    }
    assert_int_equal(own, 1);
    weir_release(&tried.acquisition);
    do_leave(&tried);
}

static const char spent[] =
    "version: 1\n"
    "sets:\n"
    "  s:\n"
    "    backend: process\n"
    "    lifetime: users\n"
    "    limits:\n"
    "      - { type: rate, key: n, algorithm: gcra, capacity: 3, window: 3000s }\n";

/* A request of two keys is not for the fast path. */
static int take_one(const struct tried *tried)
{
    struct shared_request memory;

    shared_ask(&memory, "n", 1, 0);
    memory.amounts[1] = (struct weir_amount){"unknown", 1};
    memory.request.amounts_n = 2;
    return weir_take(tried->pool, &memory.request, NULL);
}

static void take_and_die(void *unused)
{
    struct tried tried = {0};

    (void)unused;
    attach_to(&tried, spent);
    require(take_one(&tried) == 0);
    kill(getpid(), SIGKILL);
}

/* The refused request that cleans up does not wait. */
static void after_a_cleanup_a_refusal_leaves_the_set_inline(void **state)
{
    struct tried tried = {0};
    uint64_t end = clock_now() + 10000 * MS;
    const weir_set *set;

    (void)state;
    attach_to(&tried, spent);
    set = weir_pool_set(tried.pool, 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(take_one(&tried), 0);
    shared_wait(shared_fork(take_and_die, NULL), SIGKILL);
    while (look_places(set) > 1) {
        require(clock_now() < end);
        assert_int_equal(take_one(&tried), -EAGAIN);
        assert_false(version_peek_word(set->region, set->head_unit) & INFLATED_BIT);
        pause_ns(MS);
    }
    do_leave(&tried);
}

/* ---- a state that cannot be read ---- */

struct spoiled {
    weir_set *set;
    _Atomic uint64_t *word; /* the set's state */
    uint64_t before;
    bool is_back; /* has been restored */
};

static void restore(void *argument)
{
    struct spoiled *spoiled = argument;

    atomic_store(spoiled->word, spoiled->before);
    spoiled->is_back = true;
}

/* For two steps the set is inflated, as if a waiter came and went. */
static void spoil(void *argument)
{
    struct spoiled *spoiled = argument;

    spoiled->before = atomic_exchange(spoiled->word, INFLATED_BIT);
    stepping_call(2, restore, spoiled);
}

/* False: there were not so many steps. */
static bool take_of_what_changes(uint64_t n, unsigned *ret_granted)
{
    struct spoiled spoiled = {.is_back = false};
    struct tried tried = {0};
    struct set_head *head;
    int r;

    attach_to(&tried, spent);
    spoiled.set = weir_pool_set(tried.pool, 0);
    head = region_block(spoiled.set->region, spoiled.set->head_unit);
    spoiled.word = &head->state_word;
    require(take_one(&tried) == 0);
    stepping_call(n, spoil, &spoiled);
    r = take_one(&tried);
    stepping_end();
    assert_true(r == 0 || r == -EUCLEAN);
    if (!spoiled.is_back && spoiled.before)
        restore(&spoiled); /* after the call */
    else if (r == 0)
        assert_false(atomic_load(spoiled.word) & INFLATED_BIT);
    *ret_granted += r == 0;
    do_leave(&tried);
    return spoiled.before;
}

/* The compare-and-swap is lost, and then no state is read that the set could be inflated with. */
static void a_state_that_was_not_read_is_not_inflated(void **state)
{
    unsigned granted = 0;
    uint64_t n = 1;

    (void)state;
    while (take_of_what_changes(n, &granted))
        assert_true(++n < STEPS_MAX);
    print_message("%lu steps, granted %u times\n", n - 1, granted);
    assert_true(granted > 0);
}

static int setup_empty(void **state)
{
    (void)state;
    shared_begin();
    return 0;
}

static int teardown_empty(void **state)
{
    (void)state;
    shared_end();
    return 0;
}

static int setup(void **state)
{
    (void)state;
    shared_begin();
    others = others_start(text, CAPACITY);
    return 0;
}

static int setup_one(void **state)
{
    text = one;
    return setup(state);
}

static int setup_disjoint(void **state)
{
    text = disjoint;
    return setup(state);
}

static int teardown(void **state)
{
    (void)state;
    others_end(&others);
    shared_end();
    text = both;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(death_at_every_step, setup, teardown),
        cmocka_unit_test_setup_teardown(stop_at_every_step, setup, teardown),
        cmocka_unit_test_setup_teardown(recoverers_interleaved, setup, teardown),
        cmocka_unit_test_setup_teardown(death_at_every_step, setup_one, teardown),
        cmocka_unit_test_setup_teardown(stop_at_every_step, setup_one, teardown),
        cmocka_unit_test_setup_teardown(death_at_every_step, setup_disjoint, teardown),
        cmocka_unit_test_setup_teardown(stop_at_every_step, setup_disjoint, teardown),
        cmocka_unit_test_setup_teardown(a_refusal_by_a_state_word_looks_for_the_dead, setup_empty,
                                        teardown_empty),
        cmocka_unit_test_setup_teardown(a_segment_comes_and_goes, setup_empty, teardown_empty),
        cmocka_unit_test_setup_teardown(what_vanished_while_it_was_attached_is_made_anew,
                                        setup_empty, teardown_empty),
        cmocka_unit_test_setup_teardown(what_was_removed_while_it_was_attached_is_made_anew,
                                        setup_empty, teardown_empty),
        cmocka_unit_test_setup_teardown(after_a_cleanup_a_refusal_leaves_the_set_inline,
                                        setup_empty, teardown_empty),
        cmocka_unit_test_setup_teardown(a_state_that_was_not_read_is_not_inflated, setup_empty,
                                        teardown_empty),
        cmocka_unit_test_setup_teardown(announcement_slots_of_the_dead_are_free, setup_empty,
                                        teardown_empty),
    };

    if (UNDER_TSAN) {
        print_message("ThreadSanitizer sees nothing of other processes, and takes a directory's "
                      "descriptor for the last one of its number: SKIPPED\n");
        return 77;
    }
    stride = number_from("WEIR_STRIDE", 1);
    stride = stride ? stride : 1;
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
