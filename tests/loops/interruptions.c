/* SPDX-License-Identifier: MIT */
/*
 * No spurious EINTR: threads that have submitted requests sit in epoll_wait, in recv with a timeout
 * and in sigtimedwait while the requests are granted, in every way there is. Nothing that weir does
 * may interrupt them. That the threads would notice is seen first, by a real signal.
 *
 * WEIR_GRANTS: how many grants in each way.
 */
#ifdef WEIR_TEST_URING
#include <weir/uring.h> /* first, as it says */
#endif

#include "lib/clock.h"
#include "lib/require.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <weir/weir.h>

enum { SITTERS = 3, PER_SITTER = 33, ROUND = SITTERS * PER_SITTER, PATIENCE_S = 60 };

static weir *w;
static weir_pool *calls, *slots; /* one in 20 µs; ROUND at a time */
static weir_queue *queue;
static pthread_barrier_t barrier;
static _Atomic bool over;

/* ---- sitting ---- */

struct sitter {
    const char *name;
    int (*sit)(const struct sitter *);     /* 0: was told to get up; -EINTR, -EAGAIN: patience */
    void (*get_up)(const struct sitter *); /* by another thread */
    pthread_t thread;
    pid_t tid;
    _Atomic bool sitting, got_up;
    int result;
    int event_fd, epoll_fd, sockets[2];
    weir_acquisition *acquisitions[PER_SITTER];
#ifdef WEIR_TEST_URING
    struct ring {
        struct io_uring ring;
        weir_queue *queue; /* attached to it; NULL: there is no ring yet */
    } rings[2];
#endif
};

/* Other descriptors may wake it, but nothing may interrupt it. */
static int sit_in_epoll(const struct sitter *sitter)
{
    struct epoll_event event;
    int n;

    do {
        n = epoll_wait(sitter->epoll_fd, &event, 1, PATIENCE_S * 1000);
    } while (n == 1 && event.data.fd != sitter->event_fd);
    if (n < 0)
        return -errno;
    return n == 1 && eventfd_read(sitter->event_fd, &(eventfd_t){0}) == 0 ? 0 : -EAGAIN;
}

static void get_up_from_epoll(const struct sitter *sitter)
{
    require(eventfd_write(sitter->event_fd, 1) == 0);
}

static int sit_in_recv(const struct sitter *sitter)
{
    char byte;

    return recv(sitter->sockets[0], &byte, 1, 0) == 1 ? 0 : -errno;
}

static void get_up_from_recv(const struct sitter *sitter)
{
    require(send(sitter->sockets[1], "", 1, 0) == 1);
}

static int sit_in_sigtimedwait(const struct sitter *sitter)
{
    const struct timespec patience = {PATIENCE_S, 0};
    sigset_t set;

    (void)sitter;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    return sigtimedwait(&set, NULL, &patience) == SIGUSR1 ? 0 : -errno;
}

static void get_up_from_sigtimedwait(const struct sitter *sitter)
{
    require(pthread_kill(sitter->thread, SIGUSR1) == 0);
}

static struct sitter sitters[SITTERS] = {
    {.name = "epoll_wait", .sit = sit_in_epoll, .get_up = get_up_from_epoll},
    {.name = "recv", .sit = sit_in_recv, .get_up = get_up_from_recv},
    {.name = "sigtimedwait", .sit = sit_in_sigtimedwait, .get_up = get_up_from_sigtimedwait},
};

/* ---- ways of being granted ---- */

/* What a sitter submits before it sits, what makes that granted while it sits, and what it does
 * when it gets up. */
struct way {
    const char *name;
    void (*submit)(struct sitter *);
    void (*grant)(void);
    void (*finish)(struct sitter *);
    unsigned ring; /* kind of the sitters' rings */
};

static const struct way *way;
static weir_acquisition *all; /* every slot */

static void watch(const struct sitter *sitter, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.fd = fd};

    require(epoll_ctl(sitter->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void submit_acquisitions(struct sitter *sitter, weir_pool *pool)
{
    for (int i = 0; i < PER_SITTER; i++) {
        int fd;

        require(weir_submit(pool, NULL, &sitter->acquisitions[i], NULL) >= 0);
        fd = weir_acquisition_fd(sitter->acquisitions[i]);
        require(fd >= 0);
        watch(sitter, fd, EPOLLIN | EPOLLET);
    }
}

static void submit_for_calls(struct sitter *sitter)
{
    submit_acquisitions(sitter, calls);
}

static void submit_for_slots(struct sitter *sitter)
{
    submit_acquisitions(sitter, slots);
}

static void queue_requests(weir_pool *pool)
{
    for (int i = 0; i < PER_SITTER; i++)
        require(weir_queue_submit(queue, pool, NULL, 0, NULL, NULL) == 0);
}

static void queue_for_calls(struct sitter *sitter)
{
    (void)sitter;
    queue_requests(calls);
}

static void queue_for_slots(struct sitter *sitter)
{
    (void)sitter;
    queue_requests(slots);
}

static void release_acquisitions(struct sitter *sitter)
{
    for (int i = 0; i < PER_SITTER; i++) {
        require(weir_acquisition_result(sitter->acquisitions[i]) == 0);
        require(weir_release(&sitter->acquisitions[i]) == 0);
    }
}

static void submit_nothing(struct sitter *sitter)
{
    (void)sitter;
}

static uint64_t waiting(weir_pool *pool)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};

    require(weir_set_stats(weir_pool_set(pool, 0), &stats, NULL, 0) == 1);
    return stats.waiting;
}

static void hold_all_slots(void)
{
    const struct weir_amount amount = {"slot", ROUND};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = &amount, .amounts_n = 1, .timeout_ns = WEIR_FOREVER};

    require(weir_acquire(slots, &request, &all, NULL) == 0);
}

/* The timer thread grants. */
static void let_time_pass(void)
{
    while (waiting(calls))
        pause_ns(MS / 10);
}

static void hand_over(void)
{
    require(waiting(slots) == ROUND);
    require(weir_release(&all) == 0);
    require(waiting(slots) == 0);
}

static void reap_round(void)
{
    struct weir_completion done[16];

    for (int left = ROUND; left > 0;) {
        struct pollfd fd = {weir_queue_fd(queue), POLLIN, 0};
        int n;

        require(poll(&fd, 1, PATIENCE_S * 1000) == 1);
        n = weir_queue_reap(queue, done, 16);
        require(n >= 0);
        for (int i = 0; i < n; i++)
            require(done[i].result == 0 && weir_release(&done[i].acquisition) == 0);
        left -= n;
    }
}

static void hand_over_and_reap(void)
{
    hand_over();
    reap_round();
}

static void block_for_calls(void)
{
    for (int i = 0; i < ROUND; i++) {
        weir_acquisition *acquisition = NULL;

        require(weir_acquire(calls, NULL, &acquisition, NULL) == 0);
        require(weir_release(&acquisition) == 0);
    }
}

static _Atomic bool enough;

static void *block_for_slots(void *unused)
{
    while (!atomic_load(&enough)) {
        weir_acquisition *acquisition = NULL;

        require(weir_acquire(slots, NULL, &acquisition, NULL) == 0);
        require(weir_release(&acquisition) == 0);
    }
    return unused;
}

/* Another thread blocks for each, and is woken by each release. */
static void hand_over_to_the_blocked(void)
{
    pthread_t thread;

    atomic_store(&enough, false);
    require(pthread_create(&thread, NULL, block_for_slots, NULL) == 0);
    for (int i = 0; i < ROUND; i++) {
        while (!waiting(slots))
            pause_ns(1);
        atomic_store(&enough, i == ROUND - 1);
        require(weir_release(&all) == 0);
        if (i < ROUND - 1)
            hold_all_slots();
    }
    require(pthread_join(thread, NULL) == 0);
}

#ifdef WEIR_TEST_URING

/* CQEs of an attached queue, on a ring of the sitter's own. It keeps its rings to the end, because
 * the kernel interrupts threads that have used a ring which goes. */

enum { DEFAULT_RING, DEFER_RING, RINGS_N };

static const unsigned ring_flags[RINGS_N] = {0, IORING_SETUP_SINGLE_ISSUER |
                                                    IORING_SETUP_DEFER_TASKRUN};

/* 0, or 1 if there is nothing of the kind here. */
static int attach_ring(struct ring *ring, unsigned kind)
{
    int r;

    if (io_uring_queue_init(PER_SITTER, &ring->ring, ring_flags[kind]) < 0)
        return 1;
    require(weir_queue_open(&ring->queue, w, PER_SITTER) == 0);
    r = weir_queue_attach(ring->queue, ring->ring.ring_fd);
    require(r == 0 || r == 1);
    return r;
}

static void close_ring(struct ring *ring)
{
    if (!ring->queue)
        return;
    require(weir_queue_detach(ring->queue) == 0);
    ring->queue = weir_queue_close(ring->queue);
    io_uring_queue_exit(&ring->ring);
}

static void close_rings(struct sitter *sitter)
{
    for (int kind = 0; kind < RINGS_N; kind++)
        close_ring(&sitter->rings[kind]);
}

static void submit_with_ring(struct sitter *sitter, weir_pool *pool)
{
    struct ring *ring = &sitter->rings[way->ring];

    if (!ring->queue)
        require(attach_ring(ring, way->ring) == 0);
    for (uint64_t i = 0; i < PER_SITTER; i++)
        require(weir_queue_submit(ring->queue, pool, NULL, i, &sitter->acquisitions[i], NULL) == 0);
}

static void ring_for_calls(struct sitter *sitter)
{
    submit_with_ring(sitter, calls);
}

static void ring_for_slots(struct sitter *sitter)
{
    submit_with_ring(sitter, slots);
}

static void take_cqes(struct sitter *sitter)
{
    struct io_uring *ring = &sitter->rings[way->ring].ring;

    for (uint64_t i = 0; i < PER_SITTER; i++) {
        struct io_uring_cqe *cqe;

        require(io_uring_wait_cqe(ring, &cqe) == 0);
        require(cqe->user_data == i && cqe->res == 0);
        io_uring_cqe_seen(ring, cqe);
    }
    release_acquisitions(sitter);
}

static void probe_features(struct sitter *sitter)
{
    struct weir_uring uring;

    (void)sitter;
    require(weir_uring_probe(&uring) == 0);
}

/* What a ring has left behind comes at once or not at all. */
static void wait_a_little(void)
{
    pause_ns(MS);
}

static void *probe(void *kind)
{
    struct ring ring = {.queue = NULL};
    int r = attach_ring(&ring, *(const unsigned *)kind);

    close_ring(&ring);
    return r == 0 ? kind : NULL;
}

/* Whether queues can be attached to such rings here. */
static bool can_be_played(const struct way *what)
{
    unsigned kind = what->ring;
    void *result = NULL;
    pthread_t thread;

    if (what->finish != take_cqes && what->submit != probe_features)
        return true;
    require(pthread_create(&thread, NULL, probe, &kind) == 0);
    require(pthread_join(thread, &result) == 0);
    return result != NULL;
}

#else

static void close_rings(struct sitter *sitter)
{
    (void)sitter;
}

static bool can_be_played(const struct way *what)
{
    (void)what;
    return true;
}

#endif

static const struct way ways[] = {
    {"acquisitions, by time", submit_for_calls, let_time_pass, release_acquisitions, 0},
    {"acquisitions, handed over", submit_for_slots, hand_over, release_acquisitions, 0},
    {"queue, by time", queue_for_calls, reap_round, NULL, 0},
    {"queue, handed over", queue_for_slots, hand_over_and_reap, NULL, 0},
    {"blocked threads, by time", submit_nothing, block_for_calls, NULL, 0},
    {"blocked threads, handed over", submit_nothing, hand_over_to_the_blocked, NULL, 0},
#ifdef WEIR_TEST_URING
    {"default ring, by time", ring_for_calls, let_time_pass, take_cqes, DEFAULT_RING},
    {"default ring, handed over", ring_for_slots, hand_over, take_cqes, DEFAULT_RING},
    {"after weir_uring_probe", probe_features, wait_a_little, NULL, DEFAULT_RING},
    {"DEFER_TASKRUN ring, by time", ring_for_calls, let_time_pass, take_cqes, DEFER_RING},
    {"DEFER_TASKRUN ring, handed over", ring_for_slots, hand_over, take_cqes, DEFER_RING},
#endif
};

/* ---- rounds ---- */

static void *run_sitter(void *argument)
{
    struct sitter *sitter = argument;

    sitter->tid = gettid();
    for (;;) {
        pthread_barrier_wait(&barrier);
        if (atomic_load(&over))
            break;
        way->submit(sitter);
        atomic_store(&sitter->sitting, true);
        sitter->result = sitter->sit(sitter);
        atomic_store(&sitter->got_up, true);
        if (way->finish)
            way->finish(sitter);
        pthread_barrier_wait(&barrier);
    }
    close_rings(sitter);
    return NULL;
}

static char state_of(pid_t tid)
{
    char path[64], line[256], state = '?';
    FILE *file;

    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
    file = fopen(path, "re");
    require(file && fgets(line, sizeof(line), file) && strrchr(line, ')'));
    state = strrchr(line, ')')[2];
    fclose(file);
    return state;
}

/* Once it says so it sleeps nowhere else but where it sits, unless it got up before its time. */
static bool sits(struct sitter *sitter)
{
    return atomic_load(&sitter->got_up) ||
           (atomic_load(&sitter->sitting) && state_of(sitter->tid) == 'S');
}

static void await_all_sitting(void)
{
    for (int i = 0; i < SITTERS; i++)
        while (!sits(&sitters[i]))
            pause_ns(1);
}

static void play_round(const struct way *what)
{
    way = what;
    for (int i = 0; i < SITTERS; i++) {
        atomic_store(&sitters[i].sitting, false);
        atomic_store(&sitters[i].got_up, false);
    }
    pthread_barrier_wait(&barrier);
    await_all_sitting();
    way->grant();
    for (int i = 0; i < SITTERS; i++)
        sitters[i].get_up(&sitters[i]);
    pthread_barrier_wait(&barrier);
}

static void play(const struct way *what, uint64_t grants)
{
    if (!can_be_played(what)) {
        printf("%s: SKIPPED, a queue cannot be attached to such a ring here\n", what->name);
        return;
    }
    for (uint64_t n = 0; n < grants; n += ROUND) {
        if (what->grant != let_time_pass && what->grant != block_for_calls)
            hold_all_slots();
        play_round(what);
        for (int i = 0; i < SITTERS; i++) {
            if (sitters[i].result < 0)
                fprintf(stderr, "%s: %s: %s\n", what->name, sitters[i].name,
                        strerror(-sitters[i].result));
            require(sitters[i].result == 0);
        }
        if (all)
            require(weir_release(&all) == 0);
    }
    printf("%s: %" PRIu64 " grants, no call interrupted\n", what->name, grants);
}

/* The waits do end: a signal interrupts each of them. No wake is needed. */
static void interrupt_all(void)
{
    for (int i = 0; i < SITTERS; i++)
        require(pthread_kill(sitters[i].thread, SIGUSR2) == 0);
    for (int i = 0; i < SITTERS; i++)
        while (!atomic_load(&sitters[i].got_up))
            pause_ns(1);
}

static void play_control(void)
{
    static const struct way control = {"control", submit_nothing, interrupt_all, NULL, 0};

    play_round(&control);
    for (int i = 0; i < SITTERS; i++)
        require(sitters[i].result == -EINTR);
    /* They were told all the same; the next time they sit they get up at once. */
    way = &(const struct way){"after the control", submit_nothing, NULL, NULL, 0};
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < SITTERS; i++)
        require(sitters[i].result == 0);
}

/* ---- the world ---- */

static void do_nothing(int unused)
{
    (void)unused;
}

static void prepare_signals(void)
{
    const struct sigaction action = {.sa_handler = do_nothing};
    sigset_t set;

    require(sigaction(SIGUSR2, &action, NULL) == 0);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    require(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
}

static void start_sitter(struct sitter *sitter)
{
    const struct timeval patience = {PATIENCE_S, 0};

    sitter->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sitter->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    require(sitter->event_fd >= 0 && sitter->epoll_fd >= 0);
    watch(sitter, sitter->event_fd, EPOLLIN);
    watch(sitter, weir_queue_fd(queue), EPOLLIN | EPOLLET);
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sitter->sockets) == 0);
    require(setsockopt(sitter->sockets[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) ==
            0);
    require(pthread_create(&sitter->thread, NULL, run_sitter, sitter) == 0);
}

static void stop_sitter(struct sitter *sitter)
{
    require(pthread_join(sitter->thread, NULL) == 0);
    close(sitter->event_fd);
    close(sitter->epoll_fd);
    close(sitter->sockets[0]);
    close(sitter->sockets[1]);
}

static void open_weir(void)
{
    const struct weir_options options = {
        .size = sizeof(options),
        .text = "version: 1\n"
                "sets:\n"
                "  calls: { limits: [{ type: call, algorithm: gcra, capacity: 50k, window: 1s,\n"
                "                      burst: 1 }] }\n"
                "  slots: { limits: [{ type: resource, key: slot, capacity: 99 }] }\n"};

    require(weir_open(&w, &options, NULL) == 0);
    require(weir_pool_open(&calls, w, "calls", 0, NULL) == 0);
    require(weir_pool_open(&slots, w, "slots", 0, NULL) == 0);
    require(weir_queue_open(&queue, w, ROUND) == 0);
}

int main(void)
{
    uint64_t grants = effort_from("WEIR_GRANTS", 10000);

    setvbuf(stdout, NULL, _IOLBF, 0);
    prepare_signals();
    open_weir();
    require(pthread_barrier_init(&barrier, NULL, SITTERS + 1) == 0);
    for (int i = 0; i < SITTERS; i++)
        start_sitter(&sitters[i]);
    play_control();
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        play(&ways[i], grants);
    atomic_store(&over, true);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < SITTERS; i++)
        stop_sitter(&sitters[i]);
    pthread_barrier_destroy(&barrier);
    queue = weir_queue_close(queue);
    calls = weir_pool_close(calls);
    slots = weir_pool_close(slots);
    w = weir_close(w);
    return 0;
}
