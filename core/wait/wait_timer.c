/* SPDX-License-Identifier: MIT */
/* Keepers: a heap of instants and an alarm each. */
#include "wait/wait_timer.h"

#include "api/acquisition.h"
#include "base/mutant.h"
#include "os/os.h"
#include "peer/stall_check.h"
#include "wait/cq.h"
#include "wait/peer_events.h"
#include "wait/timer_thread.h"
#include "wait/waiter.h"
#include <errno.h>

void keeper_init(struct keeper *keeper, weir *w)
{
    pthread_mutex_init(&keeper->lock, NULL);
    keeper->w = w;
    keeper->heap.region = &w->region;
    alarm_init(&keeper->alarm);
}

void keeper_free(struct keeper *keeper)
{
    heap_free(&keeper->heap);
    pthread_mutex_destroy(&keeper->lock);
}

void keeper_call(struct keeper *keeper)
{
    if (alarm_sound(&keeper->alarm) < 0) {
        pthread_mutex_lock(&keeper->lock);
        alarm_mend(&keeper->alarm);
        pthread_mutex_unlock(&keeper->lock);
    }
    alarm_leave(&keeper->alarm);
}

/* Whoever runs the keeper will try again if that fails. */
static void set_alarm(struct keeper *keeper, uint64_t at_ns)
{
    alarm_set(&keeper->alarm, at_ns);
    if (keeper->alarm.failing && keeper != &keeper->w->keeper)
        timekeeper_call(keeper->w);
}

/* When to wake up for an instant. */
static uint64_t ahead_of(const struct keeper *keeper, uint64_t at_ns)
{
    if (at_ns == WEIR_FOREVER || MUTANT(173))
        return at_ns;
    return at_ns > keeper->advance_ns ? at_ns - keeper->advance_ns : 0;
}

static uint64_t earliest(const struct keeper *keeper)
{
    const struct heap_entry *first = heap_first(&keeper->heap);

    return first ? heap_entry_at(first) : WEIR_FOREVER;
}

/* Only an earlier instant is worth a system call; an alarm that comes too early finds nothing due.
 * Whoever runs the keeper sets it at the end. */
static void rearm(struct keeper *keeper)
{
    uint64_t at_ns = earliest(keeper), wake_ns = ahead_of(keeper, at_ns);

    if (keeper->advance_ns)
        timekeeper_hasten(keeper->w, at_ns);
    if (wake_ns < keeper->alarm.at_ns && !keeper->running && alarm_is_open(&keeper->alarm) &&
        !keeper->w->clock.now_ns)
        set_alarm(keeper, wake_ns);
}

/* The keeper of a record that waits for one. */
static struct keeper *keeper_of(weir *w, const struct record *r)
{
    uint32_t waker = record_waker(r);

    return waker_kind(waker) == RECORD_WAKE_QUEUE ? &queue_at(w, waker_queue(waker))->keeper
                                                  : &w->keeper;
}

/* Nobody will take it out again: its queue has dropped it and it is about to leave the line, or its
 * acquisition is gone, whatever the word in memory that processes share says by then. */
static bool is_forgotten(const struct record *r, uint32_t before)
{
    if (waker_kind(record_waker(r)) == RECORD_WAKE_QUEUE)
        return before & RECORD_DELIVERED && !MUTANT(131);
    return !record_load(&r->data) && !MUTANT(689);
}

void keeper_arm(weir *w, uint32_t record, uint64_t word, uint64_t at_ns)
{
    struct record *r = record_at(&w->region, record);
    struct keeper *keeper = keeper_of(w, r);
    uint32_t before;

    /* Who headed a line that is no longer so may be of nobody by now, and free. */
    if (record_state(word) != RECORD_WAITING && !MUTANT(688))
        return;
    pthread_mutex_lock(&keeper->lock);
    /* Whoever was delayed on the way here may say what is no longer so: never put it off. And where
     * words are others' to write, it may be another's meanwhile though its word is that again. */
    if (kept_still(w, record, word, &before) && keeper_of(w, r) == keeper &&
        !is_forgotten(r, before) && (at_ns < heap_instant(&keeper->heap, record) || MUTANT(93))) {
        heap_put(&keeper->heap, record, at_ns);
        rearm(keeper);
    }
    pthread_mutex_unlock(&keeper->lock);
}

void keeper_watch_locked(struct keeper *keeper, uint32_t record, uint64_t deadline_ns,
                         enum record_state state)
{
    struct record *r = record_at(keeper->heap.region, record);

    record_store(&r->deadline_ns, deadline_ns);
    if (state == RECORD_REFUSED)
        record_set_before(r, record_before(r) | RECORD_REFUSES);
    heap_put_before(&keeper->heap, record, deadline_ns);
    if (deadline_ns < keeper->alarm.at_ns || keeper->advance_ns)
        rearm(keeper);
}

void keeper_watch(weir *w, uint32_t record, uint64_t word, uint64_t deadline_ns,
                  enum record_state state)
{
    const struct record *r = record_at(&w->region, record);
    struct keeper *keeper = keeper_of(w, r);

    pthread_mutex_lock(&keeper->lock);
    /* If it was decided meanwhile, nobody will take it out again before it is due. Of a stand-in that
     * cannot be known: somebody may write into what is shared whatever he likes. */
    if (kept_word(w, record) == word || kept_stands_in(r))
        keeper_watch_locked(keeper, record, deadline_ns, state);
    pthread_mutex_unlock(&keeper->lock);
}

static void wake_acquisition(weir *w, uint32_t record, uint64_t word)
{
    struct record *r = record_at(&w->region, record);

    pthread_mutex_lock(&w->keeper.lock);
    /* Only while its word says so is the acquisition sure to be there: its release takes the lock.
     */
    if (waker_kind(record_waker(r)) == RECORD_WAKE_KEEPER && kept_lives(w, record, word) &&
        record_load(&r->data)) {
        weir_acquisition *acquisition = (weir_acquisition *)(uintptr_t)record_load(&r->data);

        if (!MUTANT(92))
            heap_remove(&w->keeper.heap, record);
        atomic_store_explicit(&acquisition->told, true, memory_order_release);
        acquisition_signal(acquisition);
    }
    pthread_mutex_unlock(&w->keeper.lock);
}

void keeper_wake(weir *w, uint32_t record, uint64_t word)
{
    struct record *r = record_at(&w->region, record);
    uint32_t waker = record_waker(r);

    /* Who headed a line that is no longer so, as above: that it is free is no news. */
    if (record_state(word) == RECORD_FREE && !MUTANT(690))
        return;
    switch (waker_kind(waker)) {
    case RECORD_WAKE_FUTEX:
        sys_futex_wake(record_futex(r), 1);
        break;
    case RECORD_WAKE_KEEPER:
        wake_acquisition(w, record, word);
        break;
    case RECORD_WAKE_QUEUE:
        queue_deliver(queue_at(w, waker_queue(waker)), record, word);
        break;
    }
}

/* A record whose instant has come. */
struct due {
    uint32_t record;
    uint64_t word;
    weir_set *set;
    bool expired; /* its deadline has passed; otherwise it is to be looked at */
    enum record_state end;
};

/* How many waiters this actor has decided for good. */
static uint64_t decided_by(const struct actor *actor, const weir_set *set)
{
    const struct counters *counters = actor_counters(actor, set->number);

    return atomic_load_explicit(&counters->granted_waited, memory_order_relaxed) +
           atomic_load_explicit(&counters->timed_out, memory_order_relaxed) +
           atomic_load_explicit(&counters->refused_max_wait, memory_order_relaxed);
}

/* Somebody may be granted; of a shared set, somebody may also have been stopped midway. */
static void look(struct actor *actor, const struct due *due)
{
    if (!due->set->member) {
        set_serve(actor, due->set);
        return;
    }
    guard_look(actor, due->set, kept_record(due->set->w, due->record), due->word);
    guard_again(actor, due->set, due->record);
}

/* Returns how many waiters it decided. */
static int act(weir *w, const struct due *due)
{
    struct actor *actor = actor_borrow(due->set);
    uint64_t before = decided_by(actor, due->set), decided;

    if (due->expired &&
        set_withdraw(actor, due->set, kept_record(w, due->record), due->word, due->end))
        keeper_wake(w, due->record, record_next_word(due->word, due->end));
    /* In a damaged segment it may wait all the same: a look finds that out. */
    if (!due->expired || due->set->member)
        look(actor, due);
    decided = decided_by(actor, due->set) - before;
    actor_return(actor);
    return (int)decided;
}

/* Whoever reads what a tamperer has written for a moment must not lose sight of a record for that: what
 * is in a segment is looked at again as long as nobody was told that it was decided. */
#define SECOND_LOOK_NS UINT64_C(1000000000)

/* It was due, and what comes next is nobody's but the caller's. */
static void put_off(struct keeper *keeper, uint32_t record, const struct record *r)
{
    if (kept_stands_in(r) && !MUTANT(548))
        heap_put(&keeper->heap, record, keeper->ran_ns + SECOND_LOOK_NS);
    else
        heap_remove(&keeper->heap, record);
}

/* Takes the first record of the heap, which is due: it stays for its deadline after a look. */
static struct due take_first(struct keeper *keeper)
{
    struct heap_entry first = *heap_first(&keeper->heap);
    struct record *r = record_at(keeper->heap.region, first.record);
    struct due due = {.record = first.record, .word = kept_word(keeper->w, first.record)};

    if (record_state(due.word) == RECORD_WAITING) {
        due.set = kept_set(keeper->w, first.record);
        due.expired =
            (MUTANT(140) ? keeper->ran_ns : heap_entry_at(&first)) >= record_load(&r->deadline_ns);
        due.end = record_before(r) & RECORD_REFUSES ? RECORD_REFUSED : RECORD_TIMED_OUT;
    }
    if (due.set && !due.expired && record_load(&r->deadline_ns) != WEIR_FOREVER && !MUTANT(139))
        heap_put(&keeper->heap, first.record, record_load(&r->deadline_ns));
    else
        put_off(keeper, first.record, r);
    return due;
}

/* What comes next is set; or, if the instant has come for nothing, that is taken back. Whoever does
 * not spin is not woken ahead of what is near, for he would come back again and again. */
static void finish_run(struct keeper *keeper, bool spins)
{
    struct alarm *alarm = &keeper->alarm;
    uint64_t at_ns = keeper->w->clock.now_ns ? WEIR_FOREVER : earliest(keeper);
    uint64_t next = ahead_of(keeper, at_ns);

    if (next <= keeper->ran_ns && !spins)
        next = at_ns;
    keeper->running -= !MUTANT(130);
    if (keeper->running || !alarm_is_open(alarm) || MUTANT(94))
        return;
    if (next < alarm->at_ns || (alarm->at_ns <= keeper->ran_ns && !MUTANT(109)) || alarm->failing ||
        MUTANT(170))
        set_alarm(keeper, next);
}

bool keeper_is_failing(struct keeper *keeper)
{
    bool failing;

    pthread_mutex_lock(&keeper->lock);
    failing = keeper->alarm.failing;
    pthread_mutex_unlock(&keeper->lock);
    return failing;
}

/* Nothing is or was to become due, so that a run would do nothing. */
static bool is_idle(const struct keeper *keeper)
{
    return !keeper->heap.n && keeper->alarm.at_ns == WEIR_FOREVER && !keeper->alarm.failing;
}

/* Another process decided, and may have been stopped before it rang. A record that is free is about
 * to be forgotten, and its acquisition with it. */
static bool may_be_untold(const weir *w, const struct due *due)
{
    return kept_stands_in(kept_at(w, due->record)) && record_state(due->word) != RECORD_FREE;
}

/* The alarm comes a moment early. Who is so fast as to notice waits for the instant: it is shorter
 * than to be woken again. Returns what time it is then. */
static uint64_t await_alarm(struct keeper *keeper, uint64_t now)
{
    struct alarm *alarm = &keeper->alarm;
    bool ahead = alarm_is_ahead(alarm, now) && !keeper->w->clock.now_ns && !MUTANT(546);

    alarm_attend(alarm, now);
    if (!ahead)
        return now;
    while (sys_now_ns() < alarm->at_ns)
        ;
    return instance_now_fresh(keeper->w);
}

static int run_until(struct keeper *keeper, uint64_t now, bool spins)
{
    int n = 0;

    now = await_alarm(keeper, now);
    keeper->running++;
    keeper->ran_ns = now > keeper->ran_ns ? now : keeper->ran_ns;
    while (earliest(keeper) <= (MUTANT(39) ? now - 1 : now)) {
        struct due due = take_first(keeper);

        pthread_mutex_unlock(&keeper->lock);
        if (due.set)
            n += act(keeper->w, &due);
        else if (may_be_untold(keeper->w, &due))
            keeper_wake(keeper->w, due.record, due.word);
        pthread_mutex_lock(&keeper->lock);
    }
    finish_run(keeper, spins);
    return n;
}

int keeper_run_locked(struct keeper *keeper, uint64_t injected_ns)
{
    if (is_idle(keeper))
        return 0;
    return run_until(keeper, keeper->w->clock.now_ns ? injected_ns : instance_now_fresh(keeper->w),
                     false);
}

static int run(struct keeper *keeper, bool spins)
{
    uint64_t now;
    int n;

    hearing_attend(keeper);
    now = instance_now_fresh(keeper->w);
    pthread_mutex_lock(&keeper->lock);
    n = run_until(keeper, now, spins);
    pthread_mutex_unlock(&keeper->lock);
    return n;
}

int keeper_run(struct keeper *keeper)
{
    return run(keeper, false);
}

void keeper_run_ahead(struct keeper *keeper)
{
    run(keeper, true);
}

uint64_t keeper_next(struct keeper *keeper)
{
    uint64_t at_ns;

    pthread_mutex_lock(&keeper->lock);
    at_ns = earliest(keeper);
    pthread_mutex_unlock(&keeper->lock);
    return at_ns;
}
