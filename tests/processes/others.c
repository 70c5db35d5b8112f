/* SPDX-License-Identifier: MIT */
/* The others: see others.h. */
#include "others.h"
#include "lib/child.h"

#include "api/acquisition.h"
#include "look.h"
#include "peer/peer.h"
#include "shm/participant.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define STUCK_NS (20000 * MS)
#define STUCK_MS 20000

struct crowd {
    const char *text;
    uint64_t capacity;
    weir *w[2];
    weir_pool *pools[2];
    weir_acquisition *held, *kept;
    int kept_fd; /* asked for once: that looks, too */
    weir_queue *queue;
    bool queued;

    pthread_t thread;
    sem_t asked, granted;
    uint64_t amount; /* that the thread asks for */
    bool blocked;    /* it was asked, and it is not known to have got it */

    weir *newcomer;
    weir_pool *newcomer_pool;
    weir_acquisition *newcomer_held;
    uint64_t newcomer_amount;
};

static weir_set *set_of(weir_pool *pool)
{
    return weir_pool_set(pool, 0);
}

/* Whether it was granted; the deadline is when they count as stuck. */
static weir_acquisition *acquire(weir_pool *pool, uint64_t amount)
{
    struct shared_request memory;
    weir_acquisition *acquisition = NULL;

    require(weir_acquire(pool, shared_ask(&memory, "slot", amount, STUCK_NS), &acquisition, NULL) ==
            0);
    return acquisition;
}

static bool try_acquire(weir_pool *pool, uint64_t amount, weir_acquisition **ret)
{
    struct shared_request memory;
    int r = weir_try_acquire(pool, shared_ask(&memory, "slot", amount, 0), ret, NULL);

    require(r == 0 || r == -EAGAIN);
    return r == 0;
}

static void *run_blocked(void *argument)
{
    struct crowd *crowd = argument;

    for (;;) {
        weir_acquisition *acquisition;

        require(sem_wait(&crowd->asked) == 0);
        if (!crowd->amount)
            return NULL;
        acquisition = acquire(crowd->pools[0], crowd->amount);
        require(weir_release(&acquisition) == 0);
        require(sem_post(&crowd->granted) == 0);
    }
}

/* ---- what they are told ---- */

/* Until the thread waits in the queue, or has been there, or need not. */
static void ask_thread(struct crowd *crowd, uint64_t amount)
{
    const weir_set *set = set_of(crowd->pools[0]);
    uint32_t joined = look_joined(set);
    uint64_t end = clock_now() + STUCK_NS;
    int granted = 0;

    crowd->amount = amount;
    crowd->blocked = true;
    require(sem_post(&crowd->asked) == 0);
    while (look_joined(set) == joined && granted == 0) {
        require(clock_now() < end);
        pause_ns(MS / 50);
        require(sem_getvalue(&crowd->granted, &granted) == 0);
    }
}

static void join(struct crowd *crowd, char way, uint64_t amount)
{
    struct shared_request memory;
    const struct weir_request *request = shared_ask(&memory, "slot", amount, STUCK_NS);

    if (way == 'b') {
        ask_thread(crowd, amount);
    } else if (way == 'k') {
        require(weir_submit(crowd->pools[1], request, &crowd->kept, NULL) >= 0);
        crowd->kept_fd = weir_acquisition_fd(crowd->kept);
        require(crowd->kept_fd >= 0);
    } else {
        crowd->queued = true;
        require(weir_queue_submit(crowd->queue, crowd->pools[1], request, 1, NULL, NULL) == 0);
    }
}

static void join_all(struct crowd *crowd, const char *ways, uint64_t amount)
{
    for (; *ways; ways++)
        join(crowd, *ways, amount);
}

static void hold(struct crowd *crowd, const struct scene *scene)
{
    if (scene->hold)
        crowd->held = acquire(crowd->pools[0], scene->hold);
    join_all(crowd, scene->before, scene->amount);
}

static void see_line(struct crowd *crowd, const struct scene *scene)
{
    size_t n = strlen(scene->before) + strlen(scene->after);
    struct weir_completion completion;
    uint64_t end = clock_now() + STUCK_NS;

    while (look_line(set_of(crowd->pools[0])) != n) {
        require(clock_now() < end);
        if (crowd->queued) /* a submission is checked when it is reaped */
            require(weir_queue_reap(crowd->queue, &completion, 1) == 0);
        pause_ns(MS / 50);
    }
}

/* The completion of the submission that waits, if there is one. */
static bool reap(struct crowd *crowd)
{
    struct weir_completion completion;
    int n = weir_queue_reap(crowd->queue, &completion, 1);

    require(n == 0 || (n == 1 && completion.result == 0));
    if (n == 0)
        return false;
    require(weir_release(&completion.acquisition) == 0);
    crowd->queued = false;
    return true;
}

static bool is_ready(int fd, int timeout_ms)
{
    struct pollfd item = {fd, POLLIN, 0};

    return poll(&item, 1, timeout_ms) == 1;
}

static void await_kept(struct crowd *crowd)
{
    require(is_ready(crowd->kept_fd, STUCK_MS));
    require(weir_acquisition_result(crowd->kept) == 0);
    require(weir_release(&crowd->kept) == 0);
}

static void await_queued(struct crowd *crowd)
{
    uint64_t end = clock_now() + STUCK_NS;

    while (!reap(crowd)) {
        require(clock_now() < end);
        require(is_ready(weir_queue_fd(crowd->queue), STUCK_MS));
    }
}

static void await(struct crowd *crowd, char way)
{
    if (way == 'k' && crowd->kept) {
        await_kept(crowd);
    } else if (way == 'q' && crowd->queued) {
        await_queued(crowd);
    } else if (way == 'b' && crowd->blocked) {
        require(sem_wait(&crowd->granted) == 0);
        crowd->blocked = false;
    }
}

/* In the order of the wait queue: no waiter needs what a later one has. */
static void await_all(struct crowd *crowd, const struct scene *scene)
{
    for (const char *way = scene->before; *way; way++)
        await(crowd, *way);
    for (const char *way = scene->after; *way; way++)
        await(crowd, *way);
}

/* While any of their requests waits. */
static void see_served(struct crowd *crowd, const struct scene *scene)
{
    uint64_t end = clock_now() + STUCK_NS;

    do {
        require(clock_now() < end);
        if (crowd->kept && is_ready(crowd->kept_fd, 0))
            await_kept(crowd);
        if (crowd->queued && is_ready(weir_queue_fd(crowd->queue), 0))
            reap(crowd);
        pause_ns(MS / 50);
    } while ((crowd->kept || crowd->queued || crowd->blocked) &&
             look_can_serve(set_of(crowd->pools[0])));
    if (look_line(set_of(crowd->pools[0])) == 0)
        await_all(crowd, scene);
}

static void newcomer(struct crowd *crowd)
{
    crowd->newcomer = shared_open(crowd->text);
    crowd->newcomer_pool = shared_pool(crowd->newcomer, "s");
    crowd->newcomer_amount = crowd->capacity;
    while (crowd->newcomer_amount &&
           !try_acquire(crowd->newcomer_pool, crowd->newcomer_amount, &crowd->newcomer_held))
        crowd->newcomer_amount--;
}

/* Its record belongs to its thread's present generation, so a cleanup would find it. */
static void see_owner(const weir_acquisition *acquisition)
{
    const struct region *region = acquisition->set->region;
    uint64_t owner = record_load(&record_at(region, acquisition->record)->owner);
    const struct thread_head *head = region_block(region, (uint32_t)(owner >> 32));

    require((uint32_t)atomic_load(&head->generation) == (uint32_t)owner);
}

static void newcomer_leaves(struct crowd *crowd)
{
    if (crowd->newcomer_held) {
        require(weir_acquisition_result(crowd->newcomer_held) == 0);
        see_owner(crowd->newcomer_held);
    }
    require(shared_held(crowd->newcomer_pool, 0) == crowd->newcomer_amount);
    require(weir_release(&crowd->newcomer_held) == 0);
    weir_pool_close(crowd->newcomer_pool);
    weir_close(crowd->newcomer);
}

/* A slot that was being claimed at a death is noticed when another process attaches. */
static void come_and_go(const struct crowd *crowd)
{
    weir_close(shared_open(crowd->text));
}

/* By ordinary calls: a refused request looks for the dead. */
static void check(struct crowd *crowd)
{
    weir_acquisition *all = NULL, *none = NULL;
    const uint32_t keys[2] = {set_of(crowd->pools[0])->participant->peer_key,
                              set_of(crowd->pools[1])->participant->peer_key};
    uint64_t begin = clock_now();

    while (!try_acquire(crowd->pools[1], crowd->capacity, &all)) {
        require(clock_now() < begin + STUCK_NS);
        pause_ns(MS / 50);
    }
    while (look_places(set_of(crowd->pools[0])) > 2) {
        require(clock_now() < begin + STUCK_NS);
        require(!try_acquire(crowd->pools[0], 1, &none));
        if (clock_now() > begin + 10 * MS)
            come_and_go(crowd);
        pause_ns(MS / 10);
    }
    require(!try_acquire(crowd->pools[0], 1, &none));
    require(weir_release(&all) == 0);
    look_idle(set_of(crowd->pools[0]), keys, 2);
}

/* ---- the process ---- */

static void open_crowd(struct crowd *crowd)
{
    for (int i = 0; i < 2; i++) {
        crowd->w[i] = shared_open(crowd->text);
        crowd->pools[i] = shared_pool(crowd->w[i], "s");
    }
    require(weir_queue_open(&crowd->queue, crowd->w[1], 4) == 0);
    require(sem_init(&crowd->asked, 0, 0) == 0 && sem_init(&crowd->granted, 0, 0) == 0);
    require(pthread_create(&crowd->thread, NULL, run_blocked, crowd) == 0);
}

static void close_crowd(struct crowd *crowd)
{
    crowd->amount = 0;
    require(sem_post(&crowd->asked) == 0);
    require(pthread_join(crowd->thread, NULL) == 0);
    require(!weir_queue_close(crowd->queue));
    for (int i = 0; i < 2; i++) {
        weir_pool_close(crowd->pools[i]);
        weir_close(crowd->w[i]);
    }
}

static void obey(struct crowd *crowd, enum order order, const struct scene *scene)
{
    switch (order) {
    case ORDER_HOLD:
        hold(crowd, scene);
        break;
    case ORDER_JOIN:
        join_all(crowd, scene->after, scene->amount);
        break;
    case ORDER_LINE:
        see_line(crowd, scene);
        break;
    case ORDER_LOOK:
        see_served(crowd, scene);
        break;
    case ORDER_WAIT:
        await_all(crowd, scene);
        break;
    case ORDER_RELEASE:
        require(weir_release(&crowd->held) == 0);
        break;
    case ORDER_NEWCOMER:
        newcomer(crowd);
        break;
    case ORDER_NEWCOMER_LEAVES:
        newcomer_leaves(crowd);
        break;
    case ORDER_CHECK:
        check(crowd);
        break;
    case ORDER_QUIT:
        break;
    }
}

/* Scenes are constants, at the same place in both processes. */
struct message {
    enum order order;
    const struct scene *scene;
};

static _Noreturn void run(struct crowd *crowd, int orders, int answers)
{
    struct message message;

    open_crowd(crowd);
    do {
        if (read(orders, &message, sizeof(message)) != sizeof(message))
            _exit(1); /* no thread is there any more */
        obey(crowd, message.order, message.scene);
        if (message.order == ORDER_QUIT)
            close_crowd(crowd);
        require(write(answers, "!", 1) == 1);
    } while (message.order != ORDER_QUIT);
    _exit(0);
}

struct others others_start(const char *text, uint64_t capacity)
{
    static struct crowd crowd;
    struct shared_pipe orders = shared_pipe(), answers = shared_pipe();
    pid_t pid;

    crowd = (struct crowd){.text = text, .capacity = capacity};
    pid = child_fork();
    require(pid >= 0);
    if (pid == 0) {
        close(orders.fds[1]);
        close(answers.fds[0]);
        run(&crowd, orders.fds[0], answers.fds[1]);
    }
    close(orders.fds[0]);
    close(answers.fds[1]);
    return (struct others){pid, orders.fds[1], answers.fds[0]};
}

bool others_do(const struct others *others, enum order order, const struct scene *scene)
{
    struct message message = {order, scene};
    char answer;

    return write(others->orders, &message, sizeof(message)) == sizeof(message) &&
           read(others->answers, &answer, 1) == 1;
}

void others_stop(const struct others *others)
{
    int status;

    require(kill(others->pid, SIGSTOP) == 0);
    require(waitpid(others->pid, &status, WUNTRACED) == others->pid && WIFSTOPPED(status));
}

void others_continue(const struct others *others)
{
    require(kill(others->pid, SIGCONT) == 0);
}

void others_end(struct others *others)
{
    if (others_do(others, ORDER_QUIT, NULL))
        shared_wait(others->pid, 0);
    close(others->orders);
    close(others->answers);
}
