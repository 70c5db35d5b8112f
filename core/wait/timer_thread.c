/* SPDX-License-Identifier: MIT */
/* The timekeeper thread. */
#include "wait/timer_thread.h"

#include "api/instance.h"
#include "base/mutant.h"
#include "os/os.h"
#include "wait/cq.h"
#include "wait/waiter.h"
#include <errno.h>

/* How long the thread rests when the kernel refuses what it has no reason to refuse. */
#define RETRY_NS UINT64_C(10000000)

/* Events at once: the own alarm, whose data is 0, and those of queues. */
enum { EVENTS = 16 };

/* Whether somebody has called, or may have. */
static bool hear(weir *w)
{
    struct keeper *keeper = &w->keeper;
    bool called;

    pthread_mutex_lock(&keeper->lock);
    called = keeper->alarm.rung || (alarm_was_mended(&keeper->alarm) && !MUTANT(684));
    alarm_silence(&keeper->alarm);
    pthread_mutex_unlock(&keeper->lock);
    return called;
}

/* When something becomes due next, of those whose timers have expired. */
static uint64_t next_of(weir *w, const uint64_t *events, int n)
{
    uint64_t next_ns = keeper_next(&w->keeper);

    for (int i = 0; i < n; i++) {
        uint64_t at_ns =
            events[i] ? keeper_next(&queue_at(w, (uint32_t)events[i])->keeper) : WEIR_FOREVER;

        if (at_ns < next_ns)
            next_ns = at_ns;
    }
    return next_ns;
}

void timekeeper_hasten(weir *w, uint64_t at_ns)
{
    uint64_t until = atomic_load(&w->timekeeper_spins_until);

    while (at_ns < until && !(MUTANT(174) && until != WEIR_FOREVER) &&
           !atomic_compare_exchange_weak(&w->timekeeper_spins_until, &until, at_ns))
        ;
}

/* Until the instant has come that a timer was set ahead of, or somebody has to be looked after
 * before. */
static void spin(weir *w)
{
    while (sys_now_ns() < atomic_load(&w->timekeeper_spins_until) &&
           (!atomic_load(&w->timekeeper_ends) || MUTANT(175))) {
        unsigned turn = 0;

        publication_back_off(&turn);
    }
}

/* Returns whether somebody has called. From before it looks, whoever comes hastens the thread. */
static bool hear_and_spin(weir *w, const uint64_t *events, int n)
{
    uint64_t next_ns, now_ns;
    bool called;

    if (!w->timer_advance_ns)
        return hear(w);
    atomic_store(&w->timekeeper_spins_until, WEIR_FOREVER);
    called = hear(w);
    next_ns = next_of(w, events, n);
    now_ns = sys_now_ns();
    if (!called && next_ns > now_ns && next_ns - now_ns <= w->timer_advance_ns) {
        timekeeper_hasten(w, next_ns);
        spin(w);
    }
    atomic_store(&w->timekeeper_spins_until, 0);
    return called;
}

/* Once around. False: a timer could not be set. */
static bool turn(weir *w, const uint64_t *events, int n)
{
    bool called = hear_and_spin(w, events, n), whole;

    if (!w->clock.now_ns)
        keeper_run_ahead(&w->keeper);
    whole = !keeper_is_failing(&w->keeper);
    if (called || n < 0)
        return queues_attend(w) && whole;
    for (int i = 0; i < n; i++)
        if (events[i])
            whole = queue_attend(queue_at(w, (uint32_t)events[i])) && whole;
    return whole;
}

static void run_thread(void *argument)
{
    weir *w = argument;
    const uint32_t *ends = (const uint32_t *)(uintptr_t)&w->timekeeper_ends;
    uint64_t events[EVENTS];

    /* Looked at after each turn, which may have drained the signal to stop. */
    while (!atomic_load(&w->timekeeper_ends)) {
        int n = sys_epoll_wait(alarm_fd(&w->keeper.alarm), events, EVENTS);

        if (!turn(w, events, n) || n < 0)
            sys_futex_wait(ends, 0, sys_now_ns() + RETRY_NS); /* never an injected clock's */
    }
    queues_attend(w); /* what weir_close has decided is posted */
}

static int start(weir *w)
{
    int r = alarm_open(&w->keeper.alarm, true);

    if (r < 0)
        return r;
    r = sys_thread_start(&w->timekeeper, run_thread, w, "weir-keeper");
    if (r < 0)
        alarm_close(&w->keeper.alarm);
    return r;
}

int timekeeper_start(weir *w)
{
    int r = 0;

    pthread_mutex_lock(&w->keeper.lock);
    if (instance_closed(w))
        r = -ESHUTDOWN;
    else if (!w->timekeeper)
        r = start(w);
    pthread_mutex_unlock(&w->keeper.lock);
    return r;
}

bool timekeeper_call(weir *w)
{
    bool called;

    pthread_mutex_lock(&w->keeper.lock);
    if (w->timekeeper)
        alarm_ring(&w->keeper.alarm);
    timekeeper_hasten(w, 0);
    called = w->timekeeper && w->keeper.alarm.rung;
    pthread_mutex_unlock(&w->keeper.lock);
    return called;
}

int timekeeper_expect(weir *w)
{
    struct keeper *keeper = &w->keeper;
    int r = 0;

    pthread_mutex_lock(&keeper->lock);
    if (instance_closed(w))
        r = -ESHUTDOWN;
    else if (heap_reserve(&keeper->heap, w->kept + 1) < 0)
        r = -ENOMEM;
    else if (!w->timekeeper && !w->clock.now_ns)
        r = start(w);
    if (r == 0)
        w->kept++;
    pthread_mutex_unlock(&keeper->lock);
    return r;
}

void timekeeper_forget(weir *w, uint32_t record)
{
    pthread_mutex_lock(&w->keeper.lock);
    heap_remove(&w->keeper.heap, record);
    record_store(&kept_at(w, record)->data,
                 0); /* whatever its word says later, the acquisition is gone */
    w->kept--;
    pthread_mutex_unlock(&w->keeper.lock);
}

static void end_thread(weir *w, struct sys_thread *thread)
{
    struct keeper *keeper = &w->keeper;

    atomic_store(&w->timekeeper_ends, 1);
    pthread_mutex_lock(&keeper->lock);
    alarm_ring(&keeper->alarm);
    pthread_mutex_unlock(&keeper->lock);
    sys_thread_join(thread);
    pthread_mutex_lock(&keeper->lock);
    w->timekeeper = NULL;
    pthread_mutex_unlock(&keeper->lock);
}

void timekeeper_stop(weir *w)
{
    struct sys_thread *thread;

    pthread_mutex_lock(&w->keeper.lock);
    thread = w->timekeeper;
    pthread_mutex_unlock(&w->keeper.lock);
    if (thread)
        end_thread(w, thread);
    queues_end_posting(w);
    pthread_mutex_lock(&w->keeper.lock);
    alarm_close(&w->keeper.alarm);
    pthread_mutex_unlock(&w->keeper.lock);
}
