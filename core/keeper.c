/* SPDX-License-Identifier: MIT */
/* The keeper: one heap, one timer, at most one thread. */
#include "keeper.h"

#include "acquisition.h"
#include "instance.h"
#include "mutant.h"
#include "sys.h"
#include <errno.h>

/* How long the thread rests when the kernel refuses what it has no reason to refuse. */
#define RETRY_NS UINT64_C(10000000)

void keeper_init(struct keeper *keeper)
{
    pthread_mutex_init(&keeper->lock, NULL);
    keeper->armed_ns = WEIR_FOREVER;
    keeper->epoll_fd = keeper->timer_fd = keeper->stop_fd = -1;
}

void keeper_free(struct keeper *keeper)
{
    heap_free(&keeper->heap);
    pthread_mutex_destroy(&keeper->lock);
}

/* Only an earlier deadline is worth a system call; a timer that comes too early finds nothing due.
 */
static void rearm(struct keeper *keeper)
{
    struct heap_node *first = heap_first(&keeper->heap);

    if (!first || first->at_ns >= keeper->armed_ns || !keeper->thread)
        return;
    keeper->failing = sys_timerfd_set(keeper->timer_fd, first->at_ns) < 0;
    if (keeper->failing)
        sys_signal_fd(keeper->stop_fd); /* the thread tries again */
    else
        keeper->armed_ns = first->at_ns;
}

static void add(struct keeper *keeper, struct timer *timer, uint64_t at_ns)
{
    heap_remove(&keeper->heap, &timer->node);
    heap_add(&keeper->heap, &timer->node, at_ns);
    rearm(keeper);
}

void keeper_arm(struct keeper *keeper, weir_set *set, uint64_t at_ns)
{
    pthread_mutex_lock(&keeper->lock);
    set->timer.set = set;
    /* Whoever was delayed on the way here may say what is no longer so: never put it off. */
    if (!set->timer.node.index || at_ns < set->timer.node.at_ns || MUTANT(93))
        add(keeper, &set->timer, at_ns);
    pthread_mutex_unlock(&keeper->lock);
}

void keeper_watch(weir *w, struct timer *timer, uint64_t at_ns)
{
    struct record *r = record_at(&w->region, timer->record);

    pthread_mutex_lock(&w->keeper.lock);
    /* If it was decided meanwhile, nobody will take it out again before it is due. */
    if (record_load(&r->word) == timer->word)
        add(&w->keeper, timer, at_ns);
    pthread_mutex_unlock(&w->keeper.lock);
}

void keeper_wake(weir *w, uint32_t record, uint64_t word)
{
    struct record *r = record_at(&w->region, record);
    uint64_t user = record_load(&r->user);

    if ((user & 7) == RECORD_WAKE_FUTEX) {
        sys_futex_wake(record_futex(r), 1);
        return;
    }
    pthread_mutex_lock(&w->keeper.lock);
    /* Only while its word says so is the acquisition sure to be there: its release takes the lock.
     */
    if (record_load(&r->word) == word) {
        weir_acquisition *acquisition = (weir_acquisition *)(uintptr_t)(user & ~UINT64_C(7));

        if (!MUTANT(92))
            heap_remove(&w->keeper.heap, &acquisition->timer.node);
        acquisition_signal(acquisition);
    }
    pthread_mutex_unlock(&w->keeper.lock);
}

/* How many waiters this actor has decided for good. */
static uint64_t decided_by(const struct actor *actor, const weir_set *set)
{
    const struct counters *counters = actor_counters(actor, set->number);

    return atomic_load_explicit(&counters->granted_waited, memory_order_relaxed) +
           atomic_load_explicit(&counters->timed_out, memory_order_relaxed) +
           atomic_load_explicit(&counters->refused_max_wait, memory_order_relaxed);
}

/* Returns how many waiters it decided. */
static int run_timer(weir *w, const struct timer *timer)
{
    struct actor *actor = actor_borrow(timer->set);
    uint64_t before = decided_by(actor, timer->set), decided;

    if (!timer->record)
        set_serve(actor, timer->set);
    else if (set_withdraw(actor, timer->set, timer->record, timer->word, timer->state))
        keeper_wake(w, timer->record, record_next_word(timer->word, timer->state));
    decided = decided_by(actor, timer->set) - before;
    actor_return(actor);
    return (int)decided;
}

int keeper_run(weir *w)
{
    struct keeper *keeper = &w->keeper;
    uint64_t now = instance_now(w);
    int n = 0;

    pthread_mutex_lock(&keeper->lock);
    for (;;) {
        struct heap_node *first = heap_first(&keeper->heap);
        struct timer timer;

        if (!first || first->at_ns + MUTANT(39) > now)
            break;
        heap_remove(&keeper->heap, first);
        timer = *(struct timer *)(void *)first;
        pthread_mutex_unlock(&keeper->lock);
        n += run_timer(w, &timer);
        pthread_mutex_lock(&keeper->lock);
    }
    pthread_mutex_unlock(&keeper->lock);
    return n;
}

/* Once around: what is due is done, what is next is armed. False: that failed. */
static bool turn(weir *w)
{
    struct keeper *keeper = &w->keeper;
    bool failing;

    sys_drain_fd(keeper->timer_fd);
    pthread_mutex_lock(&keeper->lock);
    keeper->armed_ns = WEIR_FOREVER;
    failing = keeper->failing;
    keeper->failing = false;
    pthread_mutex_unlock(&keeper->lock);
    if (failing)
        sys_drain_fd(keeper->stop_fd);
    keeper_run(w);
    pthread_mutex_lock(&keeper->lock);
    if (!MUTANT(94))
        rearm(keeper);
    failing = keeper->failing;
    pthread_mutex_unlock(&keeper->lock);
    return !failing;
}

static void run_thread(void *argument)
{
    weir *w = argument;
    const uint32_t *closed = (const uint32_t *)(uintptr_t)&w->closed;
    uint64_t events[2];

    /* Looked at after each turn, which may have drained the signal to stop. */
    while (!instance_closed(w)) {
        int n = sys_epoll_wait(w->keeper.epoll_fd, events, 2);

        if (!turn(w) || n < 0)
            sys_futex_wait(closed, 0, instance_now(w) + RETRY_NS);
    }
}

static void close_fds(struct keeper *keeper)
{
    int *fds[] = {&keeper->epoll_fd, &keeper->timer_fd, &keeper->stop_fd};

    for (int i = 0; i < 3; i++) {
        if (*fds[i] >= 0)
            sys_close(*fds[i]);
        *fds[i] = -1;
    }
}

static int open_fds(struct keeper *keeper)
{
    int r;

    if ((r = keeper->epoll_fd = sys_epoll_create()) < 0 ||
        (r = keeper->timer_fd = sys_timerfd()) < 0 || (r = keeper->stop_fd = sys_eventfd()) < 0 ||
        (r = sys_epoll_add(keeper->epoll_fd, keeper->timer_fd, 0)) < 0 ||
        (r = sys_epoll_add(keeper->epoll_fd, keeper->stop_fd, 0)) < 0)
        return r;
    return 0;
}

static int start(weir *w)
{
    struct keeper *keeper = &w->keeper;
    int r = open_fds(keeper);

    if (r == 0)
        r = sys_thread_start(&keeper->thread, run_thread, w, "weir-keeper");
    if (r < 0)
        close_fds(keeper);
    return r;
}

int keeper_expect(weir *w)
{
    struct keeper *keeper = &w->keeper;
    int r = 0;

    pthread_mutex_lock(&keeper->lock);
    if (instance_closed(w))
        r = -ESHUTDOWN;
    else if (heap_reserve(&keeper->heap, keeper->acquisitions + 1 + w->sets_n) < 0)
        r = -ENOMEM;
    else if (!keeper->thread && !w->clock.now_ns)
        r = start(w);
    if (r == 0)
        keeper->acquisitions++;
    pthread_mutex_unlock(&keeper->lock);
    return r;
}

void keeper_forget(weir *w, struct timer *timer)
{
    pthread_mutex_lock(&w->keeper.lock);
    heap_remove(&w->keeper.heap, &timer->node);
    w->keeper.acquisitions--;
    pthread_mutex_unlock(&w->keeper.lock);
}

void keeper_stop(weir *w)
{
    struct keeper *keeper = &w->keeper;
    struct sys_thread *thread;

    pthread_mutex_lock(&keeper->lock);
    thread = keeper->thread;
    pthread_mutex_unlock(&keeper->lock);
    if (!thread)
        return;
    if (sys_signal_fd(keeper->stop_fd) < 0)
        sys_timerfd_set(keeper->timer_fd, 0);
    sys_thread_join(thread);
    pthread_mutex_lock(&keeper->lock);
    keeper->thread = NULL;
    close_fds(keeper);
    pthread_mutex_unlock(&keeper->lock);
}
