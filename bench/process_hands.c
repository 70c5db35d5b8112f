/* SPDX-License-Identifier: MIT */
/*
 * Measures hand-overs from process to process. The waiter is another process than the giver,
 * asleep, on another processor. The giver releases the units, or kills a third process that holds
 * them. A hand-over is timed from just before the release, the kill, or the bare call, until the
 * waiter knows of its grant.
 */
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WARM_UP = 5, RELEASES = 200, KILLS = 40 };

static const char text[] = "version: 1\n"
                           "sets:\n"
                           "  one:\n"
                           "    backend: process\n"
                           "    lifetime: users\n"
                           "    limits: [ { type: resource, key: one, capacity: 1 } ]\n";

struct way;

/* One run of a way; the processes share it. Hand-overs are counted from 1. */
struct hand {
    const struct way *way;
    unsigned n;
    /* Written by the giver. */
    _Alignas(64) atomic_uint held;
    atomic_uint given;
    uint64_t given_ns;
    uint32_t holder; /* pid of the process that is killed */
    /* Written by the waiter. */
    _Alignas(64) atomic_uint opened;
    atomic_uint asked, had;
    uint64_t had_ns;
    /* Written by the holder. */
    _Alignas(64) atomic_uint holds;
    /* Futex of the bare way. */
    _Alignas(64) uint32_t word;
};

struct way {
    const char *name;
    const struct way *baseline; /* bare primitive; NULL: this is one */
    unsigned samples;

    /* Called by the giver. */
    void (*hold)(struct hand *hand); /* before `ask` */
    void (*give)(struct hand *hand);

    /* Called by the waiter. */
    void (*ask)(struct hand *hand);
    void (*wait)(struct hand *hand);
    void (*settle)(struct hand *hand); /* not timed */
};

/* Instance of this process. */
static weir *w;
static weir_pool *pool;
static weir_queue *queue;
static weir_acquisition *held, *got;
static int bell_fd = -1, epoll_fd = -1, process_fd = -1;

static void nothing(struct hand *hand)
{
    (void)hand;
}

/* ---- bare ---- */

static void futex_ask(struct hand *hand)
{
    __atomic_store_n(&hand->word, 0, __ATOMIC_RELEASE);
}

static void futex_wait(struct hand *hand)
{
    while (__atomic_load_n(&hand->word, __ATOMIC_ACQUIRE) == 0)
        syscall(SYS_futex, &hand->word, FUTEX_WAIT, 0, NULL);
}

static void futex_give(struct hand *hand)
{
    __atomic_store_n(&hand->word, 1, __ATOMIC_RELEASE);
    require(syscall(SYS_futex, &hand->word, FUTEX_WAKE, 1) >= 0);
}

static const struct way raw_futex = {
    .name = "raw shared futex",
    .samples = RELEASES,
    .hold = nothing,
    .give = futex_give,
    .ask = futex_ask,
    .wait = futex_wait,
    .settle = nothing,
};

static void epoll_for(int fd)
{
    struct epoll_event event;
    int n;

    do
        n = epoll_wait(fd, &event, 1, -1);
    while (n < 0 && errno == EINTR);
    require(n == 1 && event.events == EPOLLIN);
}

static void poll_for(int fd)
{
    struct pollfd pollfd = {fd, POLLIN, 0};
    int n;

    do
        n = poll(&pollfd, 1, -1);
    while (n < 0 && errno == EINTR);
    require(n == 1 && pollfd.revents & POLLIN); /* and POLLHUP after the process was reaped */
}

static void bell_give(struct hand *hand)
{
    require(write(bell_fd, &hand->n, sizeof(hand->n)) == sizeof(hand->n));
}

static void bell_wait(struct hand *hand)
{
    unsigned n;

    epoll_for(epoll_fd);
    require(read(bell_fd, &n, sizeof(n)) == sizeof(n) && n == hand->n);
}

static const struct way raw_bell = {
    .name = "raw FIFO, epoll, then read",
    .samples = RELEASES,
    .hold = nothing,
    .give = bell_give,
    .ask = nothing,
    .wait = bell_wait,
    .settle = nothing,
};

/* ---- the holder, which is killed ---- */

static void hold_in(struct hand *hand, uint32_t flags)
{
    weir *own = process_open(text, flags);
    weir_acquisition *acquisition;

    require(weir_acquire(process_pool(own, "one"), NULL, &acquisition, NULL) == 0);
    process_say(&hand->holds, atomic_load(&hand->held) + 1);
    for (;;)
        pause();
}

static void hold_shared(void *argument)
{
    hold_in(argument, 0);
}

/* Runs a holder of a set without waiters. */
static void hold_apart(void *argument)
{
    hold_in(argument, WEIR_OPEN_APART);
}

static void start_holder(struct hand *hand)
{
    hand->holder = (uint32_t)process_start(hold_shared, hand);
    process_await(&hand->holds, atomic_load(&hand->held) + 1);
}

static void start_bystander(struct hand *hand)
{
    hand->holder = (uint32_t)process_start(hold_apart, hand);
    process_await(&hand->holds, atomic_load(&hand->held) + 1);
}

/* Kills the holder. Sleeps until it is over, to leave the processor to the dying process. */
static void kill_holder(struct hand *hand)
{
    require(kill((pid_t)hand->holder, SIGKILL) == 0);
    process_end((pid_t)hand->holder, SIGKILL);
}

static void process_ask(struct hand *hand)
{
    process_fd = (int)syscall(SYS_pidfd_open, hand->holder, 0);
    require(process_fd >= 0);
}

static void process_wait(struct hand *hand)
{
    (void)hand;
    poll_for(process_fd);
}

static void process_settle(struct hand *hand)
{
    (void)hand;
    close(process_fd);
}

static const struct way raw_process = {
    .name = "raw pidfd, poll",
    .samples = KILLS,
    .hold = start_bystander,
    .give = kill_holder,
    .ask = process_ask,
    .wait = process_wait,
    .settle = process_settle,
};

/* ---- weir ---- */

static void hold(struct hand *hand)
{
    (void)hand;
    require(weir_try_acquire(pool, NULL, &held, NULL) == 0);
}

static void give(struct hand *hand)
{
    (void)hand;
    require(weir_release(&held) == 0);
}

static void settle(struct hand *hand)
{
    (void)hand;
    require(weir_release(&got) == 0);
}

static void blocked_wait(struct hand *hand)
{
    (void)hand;
    require(weir_acquire(pool, NULL, &got, NULL) == 0);
}

static void fd_ask(struct hand *hand)
{
    (void)hand;
    require(weir_submit(pool, NULL, &got, NULL) == 1);
    require(weir_acquisition_fd(got) >= 0);
}

static void fd_wait(struct hand *hand)
{
    (void)hand;
    poll_for(weir_acquisition_fd(got));
    require(weir_acquisition_result(got) == 0);
}

static void queue_ask(struct hand *hand)
{
    (void)hand;
    require(weir_queue_submit(queue, pool, NULL, 1, NULL, NULL) == 0);
}

static void queue_wait(struct hand *hand)
{
    struct weir_completion completion;

    (void)hand;
    do
        epoll_for(weir_queue_fd(queue)); /* may be a stall check, without a completion */
    while (weir_queue_reap(queue, &completion, 1) == 0);
    require(completion.user_data == 1 && completion.result == 0);
    got = completion.acquisition;
}

static const struct way released[] = {
    {"release: blocked", &raw_futex, RELEASES, hold, give, nothing, blocked_wait, settle},
    {"release: acquisition fd, poll", &raw_bell, RELEASES, hold, give, fd_ask, fd_wait, settle},
    {"release: completion queue, epoll", &raw_bell, RELEASES, hold, give, queue_ask, queue_wait,
     settle},
};

static const struct way killed[] = {
    {"kill: blocked", &raw_process, KILLS, start_holder, kill_holder, nothing, blocked_wait,
     settle},
    {"kill: acquisition fd, poll", &raw_process, KILLS, start_holder, kill_holder, fd_ask, fd_wait,
     settle},
    {"kill: completion queue, epoll", &raw_process, KILLS, start_holder, kill_holder, queue_ask,
     queue_wait, settle},
};

static const struct way *const ways[] = {&raw_futex,   &raw_bell,    &released[0],
                                         &released[1], &released[2], &raw_process,
                                         &killed[0],   &killed[1],   &killed[2]};

enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

/* ---- the waiter ---- */

static void path_of_bell(char ret[static 64])
{
    snprintf(ret, 64, "%s/raw", process_directory());
}

static void open_bell(void)
{
    char path[64];

    path_of_bell(path);
    bell_fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    require(bell_fd >= 0);
}

static void watch_bell(void)
{
    struct epoll_event event = {.events = EPOLLIN};

    open_bell();
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    require(epoll_fd >= 0 && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, bell_fd, &event) == 0);
}

/* Starts the timer thread, which inherits its processors, before the waiter is bound to one. */
static void start_keeper(void)
{
    weir_acquisition *pending;

    require(weir_acquire(pool, NULL, &got, NULL) == 0);
    require(weir_submit(pool, NULL, &pending, NULL) == 1);
    require(weir_release(&pending) == 0);
    require(weir_release(&got) == 0);
}

static void take_one(struct hand *hand, unsigned i)
{
    const struct way *way = hand->way;
    uint64_t now;

    process_await(&hand->held, i);
    way->ask(hand);
    process_say(&hand->asked, i);
    way->wait(hand);
    now = clock_now();
    require(atomic_load(&hand->given) == i && now >= hand->given_ns); /* never early */
    hand->had_ns = now;
    way->settle(hand);
    process_say(&hand->had, i);
}

static void wait_all(void *argument)
{
    struct hand *hand = argument;

    w = process_open(text, 0);
    pool = process_pool(w, "one");
    require(weir_queue_open(&queue, w, 1) == 0);
    watch_bell();
    start_keeper();
    bench_pin(THERE);
    process_say(&hand->opened, 1);
    for (unsigned i = 1; i <= hand->n; i++)
        take_one(hand, i);
    process_await(&hand->held, hand->n + 1); /* the giver has finished the last one, too */
    weir_queue_close(queue);
    weir_pool_close(pool);
    weir_close(w);
}

/* ---- the giver ---- */

/* Waits until the waiter sleeps by the kernel. The kernel reports that a moment before it is off
 * its processor, hence the pause, which differs each time. */
static void await_sleep(int stat_fd)
{
    static uint64_t random = 1;
    char line[256];
    const char *state;

    do {
        ssize_t n = pread(stat_fd, line, sizeof(line) - 1, 0);

        require(n > 0);
        line[n] = 0;
        state = strrchr(line, ')');
        require(state && state[1] == ' ' && state[2] != 'Z');
    } while (state[2] != 'S');
    random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    bench_spin(20 * US + (random >> 33) % (40 * US));
}

/* Makes one hand-over. Returns its time, ns. */
static uint64_t give_one(struct hand *hand, unsigned i, int stat_fd)
{
    hand->way->hold(hand);
    process_say(&hand->held, i);
    process_await(&hand->asked, i);
    await_sleep(stat_fd);
    hand->given_ns = clock_now();
    process_say(&hand->given, i);
    hand->way->give(hand);
    process_await(&hand->had, i);
    return hand->had_ns - hand->given_ns;
}

static int open_stat(pid_t pid)
{
    char path[64];
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    require(fd >= 0);
    return fd;
}

static void run_way(const struct way *way, struct bench_figure *figure, unsigned n)
{
    struct hand *hand = process_memory(sizeof(*hand));
    pid_t waiter;
    int stat_fd;

    hand->way = way;
    hand->n = WARM_UP + n;
    waiter = process_start(wait_all, hand);
    process_await(&hand->opened, 1);
    stat_fd = open_stat(waiter);
    for (unsigned i = 1; i <= hand->n; i++) {
        uint64_t ns = give_one(hand, i, stat_fd);

        if (i > WARM_UP)
            bench_add(figure, (double)ns);
    }
    process_say(&hand->held, hand->n + 1);
    close(stat_fd);
    process_end(waiter, 0);
    process_memory_free(hand, sizeof(*hand));
}

/* ---- public calls ---- */

static struct bench_figure *figures[WAYS]; /* NULL: not measured */

/* Returns true if a way is wanted by itself or as a baseline. */
static bool wanted(const struct bench *bench, const struct way *way)
{
    if (bench_wants(bench, way->name))
        return true;
    for (int i = 0; i < WAYS; i++)
        if (ways[i]->baseline == way && bench_wants(bench, ways[i]->name))
            return true;
    return false;
}

static const struct bench_figure *figure_of(const struct way *way)
{
    for (int i = 0; i < WAYS; i++)
        if (ways[i] == way)
            return figures[i];
    return NULL;
}

void hands_open(struct bench *bench)
{
    char path[64];

    path_of_bell(path);
    require(mkfifo(path, S_IRUSR | S_IWUSR) == 0);
    open_bell();
    w = process_open(text, 0);
    pool = process_pool(w, "one");
    for (int i = 0; i < WAYS; i++)
        if (wanted(bench, ways[i]))
            figures[i] = bench_figure(bench, figure_of(ways[i]->baseline), "%s", ways[i]->name);
}

void hands_round(const struct bench *bench)
{
    for (int i = 0; i < WAYS; i++)
        if (figures[i])
            run_way(ways[i], figures[i], bench_samples(bench, ways[i]->samples));
}

/* Closes everything; requires that nothing is held and no waiter is left. */
void hands_close(void)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    char path[64];

    require(weir_set_stats(weir_pool_set(pool, 0), &stats, NULL, 0) == 1);
    require(stats.held == 0 && stats.waiting == 0 && stats.released == stats.granted);
    weir_pool_close(pool);
    weir_close(w);
    close(bell_fd);
    path_of_bell(path);
    require(unlink(path) == 0);
}
