/* SPDX-License-Identifier: MIT */
/* A fleet: all of it is in one shared mapping, which forked workers have at the same address. */
#include "fleet.h"
#include "lib/child.h"

#include "lib/require.h"
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum worker_state { WORKER_NONE, WORKER_RUNNING, WORKER_STOPPED };

struct seat {
    /* Written by the worker. */
    _Alignas(64) _Atomic uint64_t stepped_ns;
    _Atomic uint64_t steps;
    const char *_Atomic where;
    /* Of the process that made the fleet. */
    pid_t pid;
    uint32_t lives;
    enum worker_state state;
};

struct fleet {
    struct fleet_plan plan;
    size_t size;
    uint64_t random;
    _Atomic uint32_t ready;
    _Atomic bool go, ends;
    struct seat seats[FLEET_WORKERS_MAX];
    _Atomic uint64_t events_n;
    struct fleet_event events[];
};

static void complain(const struct fleet *fleet, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void complain(const struct fleet *fleet, const char *format, ...)
{
    FILE *out = fleet->plan.complaints ? fleet->plan.complaints : stderr;
    va_list arguments;

    va_start(arguments, format);
    fputs("fleet: ", out);
    vfprintf(out, format, arguments);
    fprintf(out, " (seed %" PRIu64 ")\n", fleet->plan.seed);
    va_end(arguments);
    fflush(out);
}

struct fleet *fleet_new(const struct fleet_plan *plan)
{
    size_t size = sizeof(struct fleet) + plan->events_max * sizeof(struct fleet_event);
    struct fleet *fleet =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (fleet == MAP_FAILED || plan->workers > FLEET_WORKERS_MAX)
        return NULL;
    fleet->plan = *plan;
    fleet->size = size;
    fleet->random = plan->seed;
    return fleet;
}

void fleet_free(struct fleet *fleet)
{
    for (uint32_t i = 0; i < fleet->plan.workers; i++) {
        if (fleet->seats[i].state != WORKER_NONE) {
            kill(fleet->seats[i].pid, SIGKILL);
            waitpid(fleet->seats[i].pid, NULL, 0);
        }
    }
    munmap(fleet, fleet->size);
}

/* ---- the log ---- */

static void append(struct fleet *fleet, uint32_t kind, uint32_t worker, pid_t pid, uint64_t what,
                   uint64_t more)
{
    uint64_t at_ns = clock_now(), place = atomic_fetch_add(&fleet->events_n, 1);
    struct fleet_event *event = &fleet->events[place];

    if (place >= fleet->plan.events_max)
        return;
    event->at_ns = at_ns;
    event->kind = kind;
    event->worker = worker;
    event->pid = pid;
    event->what = what;
    event->more = more;
    atomic_store(&event->seq, place + 1);
}

static void append_about(struct fleet *fleet, uint32_t kind, uint32_t worker)
{
    append(fleet, kind, worker, fleet->seats[worker].pid, fleet->seats[worker].lives, 0);
}

size_t fleet_events(const struct fleet *fleet, const struct fleet_event **ret)
{
    uint64_t n = atomic_load(&fleet->events_n);

    *ret = fleet->events;
    return n < fleet->plan.events_max ? (size_t)n : fleet->plan.events_max;
}

bool fleet_log_is_whole(const struct fleet *fleet)
{
    return atomic_load(&fleet->events_n) <= fleet->plan.events_max;
}

/* ---- workers ---- */

void fleet_log(struct fleet_worker *me, uint32_t kind, uint64_t what, uint64_t more)
{
    append(me->fleet, kind, me->number, getpid(), what, more);
}

void fleet_step(struct fleet_worker *me, const char *where)
{
    struct seat *seat = &me->fleet->seats[me->number];

    atomic_store(&seat->where, where);
    atomic_store(&seat->stepped_ns, clock_now());
    atomic_fetch_add(&seat->steps, 1);
}

bool fleet_goes_on(const struct fleet_worker *me)
{
    return !atomic_load(&me->fleet->ends);
}

/* No cleaning up of what the test has: that is the test's. */
static _Noreturn void be_worker(struct fleet *fleet, uint32_t number, pid_t parent)
{
    struct fleet_worker me = {.fleet = fleet,
                              .number = number,
                              .life = fleet->seats[number].lives,
                              .argument = fleet->plan.argument};

    child_ends_with(parent);
    me.random = random_case(random_case(fleet->plan.seed, number), me.life);
    fleet_step(&me, "waiting for the others");
    fleet_log(&me, FLEET_BORN, me.life, 0);
    atomic_fetch_add(&fleet->ready, 1);
    while (!atomic_load(&fleet->go))
        pause_ns(50000);
    fleet->plan.run(&me);
    fflush(NULL);
    _exit(0);
}

bool fleet_respawn(struct fleet *fleet, uint32_t worker)
{
    struct seat *seat = &fleet->seats[worker];
    pid_t parent = getpid(), pid;

    seat->lives++;
    atomic_store(&seat->where, "forked");
    atomic_store(&seat->stepped_ns, clock_now());
    fflush(NULL);
    pid = fork();
    if (pid == 0)
        be_worker(fleet, worker, parent);
    if (pid < 0) {
        complain(fleet, "fork: %s", strerror(errno));
        return false;
    }
    seat->pid = pid;
    seat->state = WORKER_RUNNING;
    return true;
}

/* The state letter that /proc has for it. */
static char letter_of(pid_t pid)
{
    char path[64], text[1024] = "", *end;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "r");
    if (!file)
        return '-';
    end = fgets(text, sizeof(text), file) ? strrchr(text, ')') : NULL;
    fclose(file);
    return end && end[1] ? end[2] : '-';
}

static void describe(const struct fleet *fleet, uint32_t worker, const char *what)
{
    const struct seat *seat = &fleet->seats[worker];

    complain(fleet,
             "worker %u %s: pid %d, life %u, state %c, %" PRIu64 " steps, the last %" PRIu64
             " ms ago: %s",
             worker, what, (int)seat->pid, seat->lives, letter_of(seat->pid),
             atomic_load(&seat->steps), (clock_now() - atomic_load(&seat->stepped_ns)) / 1000000,
             atomic_load(&seat->where));
}

/* It has ended with this status. False: not as it should. */
static bool ended(struct fleet *fleet, uint32_t worker, int status)
{
    struct seat *seat = &fleet->seats[worker];

    append_about(fleet, FLEET_ENDED, worker);
    seat->state = WORKER_NONE;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    describe(fleet, worker, WIFSIGNALED(status) ? "crashed" : "failed");
    complain(fleet, "its status: %s %d", WIFSIGNALED(status) ? "signal" : "exit",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return false;
}

static pid_t wait_for(pid_t pid, int *ret_status, int options)
{
    pid_t r;

    do {
        r = waitpid(pid, ret_status, options);
    } while (r < 0 && errno == EINTR);
    return r;
}

bool fleet_start(struct fleet *fleet)
{
    int status;

    for (uint32_t i = 0; i < fleet->plan.workers; i++)
        if (!fleet_respawn(fleet, i))
            return false;
    while (atomic_load(&fleet->ready) < fleet->plan.workers) {
        for (uint32_t i = 0; i < fleet->plan.workers; i++)
            if (wait_for(fleet->seats[i].pid, &status, WNOHANG) != 0)
                return ended(fleet, i, status) && false;
        pause_ns(50000);
    }
    atomic_store(&fleet->go, true);
    return true;
}

/* ---- what is done to them ---- */

uint64_t fleet_random(struct fleet *fleet)
{
    return random_next(&fleet->random);
}

bool fleet_pick(struct fleet *fleet, bool running, uint32_t *ret_worker)
{
    uint32_t n = fleet->plan.workers, first = (uint32_t)(fleet_random(fleet) % n);

    for (uint32_t i = 0; i < n; i++) {
        uint32_t worker = (first + i) % n;

        if ((fleet->seats[worker].state == WORKER_RUNNING) != running)
            continue;
        *ret_worker = worker;
        return true;
    }
    return false;
}

bool fleet_kill(struct fleet *fleet, uint32_t worker)
{
    struct seat *seat = &fleet->seats[worker];
    int status = 0;

    append_about(fleet, FLEET_KILLING, worker);
    kill(seat->pid, SIGKILL);
    wait_for(seat->pid, &status, 0);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
        ended(fleet, worker, status);
        return false;
    }
    append_about(fleet, FLEET_KILLED, worker);
    seat->state = WORKER_NONE;
    return true;
}

bool fleet_stop(struct fleet *fleet, uint32_t worker)
{
    struct seat *seat = &fleet->seats[worker];
    int status = 0;

    kill(seat->pid, SIGSTOP);
    wait_for(seat->pid, &status, WUNTRACED);
    if (!WIFSTOPPED(status)) {
        ended(fleet, worker, status);
        return false;
    }
    append_about(fleet, FLEET_STOPPED, worker);
    seat->state = WORKER_STOPPED;
    return true;
}

void fleet_continue(struct fleet *fleet, uint32_t worker)
{
    struct seat *seat = &fleet->seats[worker];

    if (seat->state != WORKER_STOPPED)
        return;
    append_about(fleet, FLEET_CONTINUED, worker);
    atomic_store(&seat->stepped_ns, clock_now()); /* it was not its fault */
    seat->state = WORKER_RUNNING;
    kill(seat->pid, SIGCONT);
}

bool fleet_revive(struct fleet *fleet, uint32_t worker)
{
    fleet_continue(fleet, worker);
    return fleet->seats[worker].state != WORKER_NONE || fleet_respawn(fleet, worker);
}

bool fleet_is_moving(struct fleet *fleet, uint64_t within_ns)
{
    bool moving = true;

    for (uint32_t i = 0; i < fleet->plan.workers; i++) {
        uint64_t stepped_ns = atomic_load(&fleet->seats[i].stepped_ns), now = clock_now();

        if (fleet->seats[i].state != WORKER_RUNNING || now < stepped_ns + within_ns)
            continue;
        describe(fleet, i, "is stuck");
        moving = false;
    }
    return moving;
}

/* Records which workers have ended. Returns how many have not. */
static uint32_t collect(struct fleet *fleet, bool *ret_well)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < fleet->plan.workers; i++) {
        int status = 0;

        if (fleet->seats[i].state == WORKER_NONE)
            continue;
        if (wait_for(fleet->seats[i].pid, &status, WNOHANG) == 0)
            left++;
        else if (!ended(fleet, i, status))
            *ret_well = false;
    }
    return left;
}

bool fleet_end(struct fleet *fleet, uint64_t timeout_ns)
{
    uint64_t until_ns = clock_now() + timeout_ns;
    bool well = true;

    atomic_store(&fleet->ends, true);
    for (uint32_t i = 0; i < fleet->plan.workers; i++)
        fleet_continue(fleet, i);
    while (collect(fleet, &well) > 0 && clock_now() < until_ns)
        pause_ns(500000);
    for (uint32_t i = 0; i < fleet->plan.workers; i++) {
        if (fleet->seats[i].state == WORKER_NONE)
            continue;
        describe(fleet, i, "is stuck");
        fleet_kill(fleet, i);
        well = false;
    }
    return well;
}
