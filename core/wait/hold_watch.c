/* SPDX-License-Identifier: MIT */
/*
 * Looks for acquisitions that are held too long (set/max_hold.h): those of the private sets, and
 * those of all processes in shared sets.
 *
 * A look walks over all records, and finds when the next one is due. What is granted after its
 * beginning is due a `max_hold` after that, at the earliest. So a grant needs no look of its own:
 * it makes sure that there is one by then.
 * 1. A look notes when it begins, says that none is scheduled, and walks.
 * 2. A grant makes its record HELD, then compares what is scheduled with that time.
 * 3. The look schedules the next one.
 * Either the walk finds the record, or the grant finds that none is scheduled. A waiter counts as
 * granted now. A record that is exchanged is noted as well, with the time of its grant.
 */
#include "wait/hold_watch.h"

#include "base/error.h"
#include "base/sched_point.h"
#include "keyed/keyed.h"
#include "limit/counters.h"
#include "os/os.h"
#include "set/events.h"
#include "set/fairness.h"
#include "set/max_hold.h"
#include "set/waiter.h"
#include "shm/participant.h"
#include "wait/wait_timer.h"
#include <errno.h>
#include <inttypes.h>

/* A descriptor that is signaled when the record is REVOKED. */
struct loss_watch {
    struct loss_watch *next;
    const weir_set *set;
    uint32_t record;
    int fd;
};

/* A look over more records rests so long for each of them before the next. */
#define HOLD_LOOK_REST_NS UINT64_C(128)
#define HOLD_LOOK_SMALL   4096u
/* What a look could not do, since the definition changes or cannot be read, is tried again then. */
#define HOLD_LOOK_RETRY_NS UINT64_C(1000000000)

struct hold_look {
    weir *w;
    uint64_t next_ns; /* of the next look, by the instance's clock; WEIR_FOREVER: none */
    uint64_t records_n;
    int decided; /* waiters */
};

/* ---- lost holdings ---- */

static bool loss_watch_is_due(const struct loss_watch *watch)
{
    uint64_t word = record_load(&set_record(watch->set, watch->record)->word);

    return record_state(word) == RECORD_REVOKED || set_is_broken(watch->set);
}

/* Signals the descriptors of what is lost. A descriptor that cannot be signaled is tried again. */
static void loss_watch_signal(weir *w)
{
    struct instance_wait *iw = instance_wait(w);

    lock_take(&iw->timer.lock);
    for (struct loss_watch **at = &iw->loss_watches, *watch; (watch = *at);) {
        if (!loss_watch_is_due(watch) || os_eventfd_add(watch->fd, 1) < 0) {
            at = &watch->next;
            continue;
        }
        *at = watch->next;
        os_free(watch);
    }
    lock_release(&iw->timer.lock);
}

/* Removes the watch of a record, if there is one. The timer's lock is held. */
static void loss_watch_remove(struct instance_wait *iw, const weir_set *set, uint32_t record)
{
    struct loss_watch **at = &iw->loss_watches, *watch;

    while (*at && ((*at)->record != record || (*at)->set != set))
        at = &(*at)->next;
    watch = *at;
    if (!watch)
        return;
    *at = watch->next;
    os_free(watch);
}

int hold_watch_loss(const weir_set *set, uint32_t record, int fd)
{
    struct instance_wait *iw = instance_wait(set->w);
    struct loss_watch *watch = NULL;

    if (fd >= 0 && !set->limits.revokes)
        return -EOPNOTSUPP;
    if (fd >= 0 && !(watch = os_alloc(1, sizeof(*watch))))
        return -ENOMEM;
    lock_take(&iw->timer.lock);
    loss_watch_remove(iw, set, record);
    if (watch) {
        *watch =
            (struct loss_watch){.next = iw->loss_watches, .set = set, .record = record, .fd = fd};
        iw->loss_watches = watch;
    }
    lock_release(&iw->timer.lock);
    if (watch)
        loss_watch_signal(set->w); /* it may just have been revoked */
    return 0;
}

void hold_watch_move_loss(const weir_set *set, uint32_t from, uint32_t to)
{
    struct instance_wait *iw = instance_wait(set->w);

    lock_take(&iw->timer.lock);
    for (struct loss_watch *watch = iw->loss_watches; watch; watch = watch->next)
        if (watch->record == from && watch->set == set)
            watch->record = to;
    lock_release(&iw->timer.lock);
    loss_watch_signal(set->w); /* a look may have revoked it before */
}

/* ---- one record ---- */

/* Returns the shortest `max_hold` of a set that has one. */
static uint64_t hold_shortest_ns(const weir_set *set)
{
    uint64_t ns = WEIR_FOREVER;

    for (uint32_t i = 0; i < set->limits.n; i++)
        if (set->limits.items[i].max_hold_ns - 1 < ns - 1) /* 0: none */
            ns = set->limits.items[i].max_hold_ns;
    return ns;
}

static uint64_t hold_look_now(const struct hold_look *look, const weir_set *set)
{
    return clock_instant(&look->w->clock, set->limits.clock_needs).now_ns;
}

/* Has the next look take place at `at_ns`, by the clock of the set, or earlier. */
static void hold_look_at(struct hold_look *look, const weir_set *set, uint64_t at_ns)
{
    uint64_t by_instance_ns = set_to_instance_ns(set, at_ns);

    if (by_instance_ns < look->next_ns)
        look->next_ns = by_instance_ns;
}

/* What is told of a record, as it was read while it had its word. `of` is its own definition. */
struct hold_notice {
    struct weir_event event;
    struct event_tag tag;
    uint64_t amounts[WEIR_LIMITS_MAX];
};

static void hold_notice_read(const weir_set *set, const weir_set *of, uint32_t record,
                             uint64_t hold_ns, struct hold_notice *ret)
{
    const struct acq_record *r = set_record(set, record);

    ret->tag = (struct event_tag){.subject = keyed_record_subject(of, record)};
    ret->event = (struct weir_event){.type = WEIR_EVENT_OVERHELD,
                                     .id = event_id(set, record),
                                     .amounts = ret->amounts,
                                     .hold_ns = hold_ns,
                                     .thread = record_thread(r)};
    ret->event.process =
        set_is_shared(set) ? participant_owner_pid(set->participant, record) : os_process_id();
    fairness_amounts(set, record, ret->amounts);
}

static void hold_notice_tell(const weir_set *set, struct hold_notice *notice, const char *key,
                             bool is_revoked)
{
    notice->event.key = key;
    notice->event.result = is_revoked ? -EOWNERDEAD : 0;
    log_write(&set->w->log, WEIR_LOG_WARNING,
              "set `%s`: limit `%s` has been held for %" PRIu64 " ms by process %" PRIu32
              ", thread %" PRIu32 ", longer than max_hold%s",
              error_text(set_own_name(instance_set(set->w, set->number))).text,
              error_text(key).text, notice->event.hold_ns / 1000000, notice->event.process,
              notice->event.thread, is_revoked ? ": it was revoked" : "");
    if (events_are_on(set->w))
        event_tell(set, &notice->event, &notice->tag);
}

/* Tells and revokes what is due of a HELD record. `of`: its definition, as in max_hold_revoke(). */
static void hold_look_act(struct hold_look *look, weir_set *set, weir_set *of, uint32_t record,
                          uint64_t word, const struct max_hold *hold, uint64_t now_ns)
{
    bool is_revoked = false, is_first;
    struct thread_ctx *ctx = thread_ctx_borrow(of);
    uint64_t decided = thread_ctx_decided(ctx, of, set);
    struct hold_notice notice;

    hold_notice_read(set, of, record, now_ns - hold->granted_ns, &notice);
    is_first = max_hold_claim_notice(set_record(set, record), word);
    if (is_first)
        counter_add(&thread_ctx_counters(ctx, of->number)->overheld, 1);
    if (hold->revoked_ns <= now_ns)
        is_revoked = max_hold_revoke(ctx, set, of, record, word);
    look->decided += (int)(thread_ctx_decided(ctx, of, set) - decided);
    thread_ctx_return(ctx);
    if (is_revoked)
        hold_notice_tell(set, &notice, hold->revoking->key, true);
    else if (is_first)
        hold_notice_tell(set, &notice, hold->limit->key, false);
}

/* Looks at a record of `set`, the newest definition of `of`. `word`: what it had before anything
 * else of it was read. A revocation that found a newer definition is decided again. */
static void hold_look_record(struct hold_look *look, weir_set *set, weir_set *of, uint32_t record,
                             uint64_t word)
{
    const struct acq_record *r = set_record(set, record);
    uint64_t now_ns;
    struct max_hold hold;

    if (record_state(word) != RECORD_HELD && record_state(word) != RECORD_WAITING)
        return;
    now_ns = hold_look_now(look, set);
    if (record_state(word) == RECORD_WAITING) {
        hold_look_at(look, set, now_ns + hold_shortest_ns(set));
        return;
    }
    if (!max_hold_read(set, record, &hold) || record_load(&r->word) != word)
        return;
    if (hold.revoked_ns <= now_ns || (hold.overheld_ns <= now_ns && !max_hold_is_told(r)))
        hold_look_act(look, set, of, record, word, &hold, now_ns);
    if (hold.overheld_ns > now_ns)
        hold_look_at(look, set, hold.overheld_ns);
    else if (hold.revoking && record_load(&r->word) == word && !set_is_broken(of))
        hold_look_at(look, set,
                     hold.revoked_ns > now_ns ? hold.revoked_ns : now_ns + HOLD_LOOK_RETRY_NS);
}

/* ---- all records ---- */

static void hold_look_private(struct hold_look *look)
{
    weir *w = look->w;

    for (uint32_t at = 0; (at = region_next_record(&w->region, at)) != 0; look->records_n++) {
        const struct acq_record *r = record_at(&w->region, at);
        uint64_t word = shm_load_acquire(&r->word);
        weir_set *of, *newest;

        if (record_state(word) == RECORD_FREE || waiter_is_proxy(r))
            continue;
        of = instance_set(w, record_set_number(r));
        newest = set_newest(set_definition(of));
        if (newest->limits.has_max_hold)
            hold_look_record(look, newest, of, at, word);
    }
}

/* Returns set number `i` if it is a shared one that this process has used, else NULL. */
static weir_set *hold_look_find_shared(weir *w, uint32_t i)
{
    weir_set *set = NULL;

    pthread_mutex_lock(&w->lock); /* a set that is made meanwhile may be removed again */
    if (i < atomic_load_explicit(&w->sets_n, memory_order_seq_cst))
        set = instance_set(w, i);
    if (set &&
        (!set_is_shared(set) || !atomic_load_explicit(&set->spare_prepared, memory_order_seq_cst)))
        set = NULL;
    pthread_mutex_unlock(&w->lock);
    return set;
}

/* By the newest definition: an older one may permit less. */
static void hold_look_shared(struct hold_look *look, weir_set *set)
{
    if (set_catch_up(set, false) == -ENOMEM) {
        hold_look_at(look, set, hold_look_now(look, set) + HOLD_LOOK_RETRY_NS);
        return;
    }
    set = set_newest(set);
    if (!set->limits.has_max_hold)
        return;
    for (uint32_t at = 0; !set_is_broken(set) && (at = region_next_record(set->region, at)) != 0;
         look->records_n++)
        hold_look_record(look, set, set, at, record_load(&set_record(set, at)->word));
}

static int hold_look_run(weir *w)
{
    struct instance_wait *iw = instance_wait(w);
    struct hold_look look = {.w = w, .next_ns = WEIR_FOREVER};
    uint64_t rest_ns = 0;

    /* A grant that does not see that a look is due any more is seen by this one. */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&iw->holds_private, memory_order_seq_cst))
        hold_look_private(&look);
    for (uint32_t i = 0, n = atomic_load_explicit(&w->sets_n, memory_order_seq_cst); i < n; i++) {
        weir_set *set = hold_look_find_shared(w, i);

        if (set)
            hold_look_shared(&look, set);
    }
    loss_watch_signal(w);
    if (look.records_n > HOLD_LOOK_SMALL)
        rest_ns = clock_now_ns(&w->clock) + look.records_n * HOLD_LOOK_REST_NS;
    atomic_store_explicit(&iw->hold_rest_ns, rest_ns, memory_order_seq_cst);
    timer_arm_hold_look(&iw->timer, look.next_ns > rest_ns ? look.next_ns : rest_ns);
    return look.decided;
}

int hold_watch_run(weir *w)
{
    struct instance_wait *iw = instance_wait(w);
    uint64_t now_ns;
    int decided;

    if (atomic_load_explicit(&iw->timer.hold_look_ns, memory_order_seq_cst) == WEIR_FOREVER)
        return 0;
    now_ns = clock_now_fresh(&w->clock);
    if (atomic_load_explicit(&iw->timer.hold_look_ns, memory_order_seq_cst) > now_ns ||
        atomic_exchange_explicit(&iw->is_looking, true, memory_order_seq_cst))
        return 0;
    atomic_store_explicit(&iw->hold_looked_ns, now_ns, memory_order_seq_cst);
    atomic_store_explicit(&iw->timer.hold_look_ns, WEIR_FOREVER, memory_order_seq_cst);
    decided = hold_look_run(w);
    atomic_store_explicit(&iw->is_looking, false, memory_order_seq_cst);
    return decided;
}

/* ---- what a grant does ---- */

int hold_watch_begin(const weir_set *set)
{
    struct instance_wait *iw = instance_wait(set->w);
    int r = 0;

    if (!atomic_load_explicit(&iw->holds_are_watched, memory_order_acquire)) {
        if (!set->w->clock.injected.now_ns)
            r = timer_thread_start(set->w);
        if (r < 0)
            return r == -EAGAIN ? -ENOMEM : r; /* the former says that a request is refused */
        atomic_store_explicit(&iw->holds_are_watched, true, memory_order_release);
    }
    if (!set_is_shared(set) && !atomic_load_explicit(&iw->holds_private, memory_order_acquire))
        atomic_store_explicit(&iw->holds_private, true, memory_order_seq_cst);
    return 0;
}

/* Has a look take place at `due_ns`, by the instance's clock, but not while looks rest. */
static void hold_watch_schedule(struct instance_wait *iw, uint64_t due_ns)
{
    uint64_t rest_ns = atomic_load_explicit(&iw->hold_rest_ns, memory_order_seq_cst);

    due_ns = due_ns > rest_ns ? due_ns : rest_ns;
    if (atomic_load_explicit(&iw->timer.hold_look_ns, memory_order_seq_cst) > due_ns)
        timer_arm_hold_look(&iw->timer, due_ns);
}

void hold_watch_note(const weir_set *set)
{
    struct instance_wait *iw = instance_wait(set->w);
    const weir_set *newest = set_newest(set_definition(set));

    atomic_thread_fence(memory_order_seq_cst); /* between the record and what is scheduled */
    if (newest->limits.has_max_hold)
        hold_watch_schedule(iw,
                            hold_shortest_ns(newest) +
                                atomic_load_explicit(&iw->hold_looked_ns, memory_order_seq_cst));
}

/* A look may have passed by the record before it was HELD, and by the former one after that. */
void hold_watch_note_rest(const weir_set *set, uint32_t record)
{
    uint64_t granted_ns = grant_time(record_load(&set_record(set, record)->granted_ns));
    const weir_set *newest = set_newest(set_definition(set));

    if (!newest->limits.has_max_hold)
        return;
    atomic_thread_fence(memory_order_seq_cst); /* as above */
    if (granted_ns <= CLOCK_MAX_NS)
        hold_watch_schedule(instance_wait(set->w),
                            set_to_instance_ns(newest, granted_ns + hold_shortest_ns(newest)));
}

void hold_watch_look_now(weir *w)
{
    struct instance_wait *iw = instance_wait(w);

    if (atomic_load_explicit(&iw->holds_are_watched, memory_order_acquire))
        timer_arm_hold_look(&iw->timer, clock_now_ns(&w->clock));
}
