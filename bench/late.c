/* SPDX-License-Identifier: MIT */
/* Measures the ways of waiting for grants that only time makes. */
#include "late.h"

#include "wake.h"
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Time between grants, and the least time that must be left when a wait begins. */
#define WINDOW_NS (500 * US)
#define LEFT_NS   (100 * US)

enum { WARM_UP = 5, TRIES = 100 };

static struct timespec timespec_of(uint64_t at_ns)
{
    return (struct timespec){(time_t)(at_ns / 1000000000u), (long)(at_ns % 1000000000u)};
}

/* ---- bare timers ---- */

static int timer_open(struct hand *hand)
{
    hand->event_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    return hand->event_fd < 0 ? -errno : event_watch(hand);
}

static int timer_nested_open(struct hand *hand)
{
    hand->event_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    return hand->event_fd < 0 ? -errno : event_watch_nested(hand);
}

static void timer_ask(struct hand *hand)
{
    const struct itimerspec at = {.it_value = timespec_of(hand->due_ns)};

    require(timerfd_settime(hand->event_fd, TFD_TIMER_ABSTIME, &at, NULL) == 0);
}

static const struct way raw_timer = {
    .open = timer_open,
    .ask = timer_ask,
    .wait = event_epoll,
    .settle = event_drain,
    .close = fds_close,
};

/* By an epoll in an epoll: the descriptor of a queue where a timerfd cannot be signaled. */
static const struct way raw_timer_nested = {
    .open = timer_nested_open,
    .ask = timer_ask,
    .wait = event_epoll,
    .settle = event_drain,
    .close = fds_close,
};

static int futex_open(struct hand *hand)
{
    hand->word = 0;
    return 0;
}

static void futex_wait(struct hand *hand)
{
    const struct timespec at = timespec_of(hand->due_ns);
    long r;

    do
        r = syscall(SYS_futex, &hand->word, FUTEX_WAIT_BITSET_PRIVATE, 0, &at, NULL,
                    FUTEX_BITSET_MATCH_ANY);
    while (r == 0 || errno == EINTR);
    require(errno == ETIMEDOUT);
}

static const struct way raw_futex = {
    .open = futex_open,
    .ask = nothing,
    .wait = futex_wait,
    .settle = nothing,
    .close = nothing,
};

/* ---- iteration ---- */

struct lane {
    const struct way *way;
    const char *name;
    const struct way *baseline;
    struct bench_figure *figure; /* NULL: not measured */
    bool told;                   /* reported as unavailable */
};

static struct lane lanes[] = {
    {&raw_timer, "late: raw timerfd, epoll", NULL, NULL, false},
    {&raw_timer_nested, "late: raw timerfd, epoll in epoll", &raw_timer, NULL, false},
    {&way_queue_epoll, "late: completion queue, epoll", &raw_timer, NULL, false},
#ifdef WEIR_BENCH_URING
    {&way_queue_multishot, "late: completion queue, multishot poll", &raw_timer, NULL, false},
    {&way_attached, "late: completion queue, attached ring", &raw_timer, NULL, false},
    {&way_raw_instant, "late: raw TIMEOUT, linked", NULL, NULL, false},
    {&way_reservation, "late: reservation, linked", &way_raw_instant, NULL, false},
#endif
    {&way_fd_epoll, "late: acquisition fd, epoll", &raw_timer, NULL, false},
    {&raw_futex, "late: raw futex, deadline", NULL, NULL, false},
    {&way_blocked, "late: weir_acquire", &raw_futex, NULL, false},
};
enum { LANES = sizeof(lanes) / sizeof(lanes[0]) };

static struct {
    weir *w;
    weir_pool *pool; /* of a set with one call per window */
    unsigned samples;
} stage;

/* Returns true if a lane is wanted by itself or as a baseline. */
static bool wanted(const struct bench *bench, const struct lane *lane)
{
    if (bench_wants(bench, lane->name))
        return true;
    for (unsigned i = 0; i < LANES; i++)
        if (lanes[i].baseline == lane->way && bench_wants(bench, lanes[i].name))
            return true;
    return false;
}

static struct bench_figure *figure_of(const struct way *way)
{
    for (unsigned i = 0; i < LANES; i++)
        if (lanes[i].way == way)
            return lanes[i].figure;
    return NULL;
}

static void open_pool(void)
{
    const struct weir_limit_spec limit = {.size = sizeof(limit),
                                          .type = WEIR_LIMIT_CALL,
                                          .algorithm = "gcra",
                                          .capacity = 1,
                                          .window_ns = WINDOW_NS};

    stage.pool = bench_pool(stage.w, "late", &limit, 1);
}

void late_open(struct bench *bench, weir *w)
{
    stage.w = w;
    open_pool();
    for (unsigned i = 0; i < LANES; i++)
        if (wanted(bench, &lanes[i]))
            lanes[i].figure =
                bench_figure(bench, figure_of(lanes[i].baseline), "%s", lanes[i].name);
}

void late_close(void)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};

    require(weir_set_stats(weir_pool_set(stage.pool, 0), &stats, NULL, 0) == 1);
    require(stats.held == 0 && stats.waiting == 0 && stats.canceled == 0);
    weir_pool_close(stage.pool);
}

/* Returns the next time at which a grant or timer is due, by weir's forecast for ways of weir. */
static uint64_t next_due(const struct lane *lane)
{
    uint64_t due = 0;

    if (!lane->baseline || lane->way == &raw_timer_nested)
        return clock_now() + WINDOW_NS;
    require(weir_set_ready_at(weir_pool_set(stage.pool, 0), NULL, &due) == 0);
    return due;
}

/* Uses up the limit, so that the next grant is a window away. A thread that was delayed tries
 * again. */
static void use_up(void)
{
    const struct weir_amount one = {"call_count", 1};
    const struct weir_request request = {.size = sizeof(request), .amounts = &one, .amounts_n = 1};
    int r = weir_take(stage.pool, &request, NULL);

    require(r == 0 || r == -EAGAIN);
}

/* Waits once. Returns false if another program had the processor: there is nothing to measure. */
static bool wait_once(const struct lane *lane, struct hand *hand, uint64_t *ret_late_ns)
{
    const struct way *way = lane->way;
    bool in_time;
    uint64_t now;

    hand->due_ns = next_due(lane);
    if (hand->due_ns < clock_now() + LEFT_NS) {
        use_up();
        return false;
    }
    way->ask(hand); /* a reservation sets its own due_ns */
    in_time = clock_now() + LEFT_NS / 2 < hand->due_ns;
    way->wait(hand);
    now = clock_now();
    require(now >= hand->due_ns); /* never early */
    way->settle(hand);
    *ret_late_ns = now - hand->due_ns;
    return in_time;
}

/* Takes all samples, unless the processor is hardly ever free. */
static void sample(const struct lane *lane, struct hand *hand)
{
    unsigned n = 0, wanted_n = WARM_UP + stage.samples;
    uint64_t late_ns;

    for (unsigned tries = 0; n < wanted_n && tries < TRIES * wanted_n; tries++)
        if (wait_once(lane, hand, &late_ns) && n++ >= WARM_UP)
            bench_add(lane->figure, (double)late_ns);
}

/* Runs in a thread of its own, because some rings belong to their thread. */
static void *measure(void *argument)
{
    struct lane *lane = argument;
    struct hand hand = {
        .w = stage.w, .pool = stage.pool, .event_fd = -1, .epoll_fd = -1, .inner_fd = -1};
    int r;

    r = lane->way->open(&hand);
    if (r == 0)
        sample(lane, &hand);
    lane->way->close(&hand);
    if (r < 0 && !lane->told)
        bench_skip_errno(lane->name, r);
    lane->told |= r < 0;
    return NULL;
}

void late_round(unsigned samples, unsigned processor)
{
    stage.samples = samples;
    for (unsigned i = 0; i < LANES; i++)
        if (lanes[i].figure)
            require(pthread_join(bench_start(processor, measure, &lanes[i]), NULL) == 0);
}
