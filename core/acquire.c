/* SPDX-License-Identifier: MIT */
/* The calls that ask: take, try, acquire, submit. */
#include "acquisition.h"
#include "instance.h"
#include "mutant.h"
#include "pool.h"
#include "request.h"
#include "sys.h"
#include <errno.h>

/* One call under way. */
struct asking {
    struct weir_request request;
    weir_set *set;
    struct actor *actor;
    uint64_t amounts[WEIR_LIMITS_MAX];
    struct verdict verdict;
    struct weir_refusal *retref;
};

static void say(struct weir_refusal *ret, const weir_set *set, const char *key,
                uint64_t retry_after_ns)
{
    if (!ret || ret->size < sizeof(*ret))
        return;
    ret->key = key ? key : "";
    ret->set = set->name;
    ret->retry_after_ns = retry_after_ns;
}

static void say_verdict(struct weir_refusal *ret, const weir_set *set,
                        const struct verdict *verdict)
{
    uint64_t wait = WEIR_FOREVER;

    if (verdict->estimate_ns < WEIR_BLOCKED)
        wait = verdict->estimate_ns > verdict->now_ns ? verdict->estimate_ns - verdict->now_ns : 0;
    say(ret, set, verdict->blame ? verdict->blame->key : NULL, wait);
}

/* Picks a set and turns keys into amounts. */
static int begin(struct asking *asking, weir_pool *pool, const struct weir_request *request,
                 enum purpose purpose, struct weir_refusal *retref)
{
    weir *w = pool ? pool->w : NULL;
    const char *key = NULL;
    int r;

    if (!w)
        return -EINVAL;
    if (instance_forked(w))
        return -ECHILD;
    if (instance_closed(w))
        return -ESHUTDOWN;
    asking->retref = retref;
    r = request_read(request, &asking->request);
    if (r == 0)
        r = pool_pick(pool, &asking->request, &asking->set);
    if (r < 0)
        return r;
    r = request_resolve(asking->set, &asking->request, purpose, asking->amounts, &key);
    /* Afterwards: who hears a warning may call weir, and give this thread's actor back. */
    asking->actor = actor_self(asking->set);
    if (!asking->actor)
        return -ENOMEM;
    if (r < 0) {
        set_count_refusal(asking->actor, asking->set, r, key);
        say(retref, asking->set, key, WEIR_FOREVER);
    }
    return r;
}

/* Says who waits on the record; only before it joins a line. */
static void set_wake(const struct asking *asking, weir_acquisition *acquisition,
                     enum record_wake wake)
{
    struct record *r = record_at(&asking->set->w->region, acquisition->record);

    record_store(&r->user, (uint64_t)(uintptr_t)acquisition | (uint64_t)wake);
}

static void fill_record(const struct asking *asking, weir_acquisition *acquisition)
{
    const struct actor *actor = asking->actor;
    const struct region *region = &actor->w->region;
    struct record *r = record_at(region, acquisition->record);
    struct actor_head *head = region_box(region, actor->unit);

    for (uint32_t i = 0; i < asking->set->limits.n; i++)
        record_store(&r->amounts[i], asking->amounts[i]);
    record_store(&r->owner,
                 (uint64_t)actor->unit << 32 |
                     (uint32_t)atomic_load_explicit(&head->generation, memory_order_relaxed));
    record_store(&r->set, (uint64_t)asking->set->head << 32 | actor->thread);
    set_wake(asking, acquisition, RECORD_WAKE_FUTEX);
}

static int enter(struct asking *asking, weir_acquisition *acquisition, enum entry entry)
{
    int r = set_enter(asking->actor, asking->set, asking->amounts, acquisition->record, entry,
                      request_max_wait(asking->set, &asking->request), &asking->verdict);

    /* After a probe the caller comes back to wait, unless there is nothing to wait for. */
    if (r < 0 && (entry != ENTRY_PROBE || r == -ERANGE))
        say_verdict(asking->retref, asking->set, &asking->verdict);
    return r;
}

/* A new acquisition that holds what was asked for if that can be had at once: 0. Otherwise, as
 * `entry` says: -EAGAIN after a probe leaves `*ret`, every other failure frees it. */
static int start(struct asking *asking, enum entry entry, weir_acquisition **ret)
{
    weir_acquisition *acquisition = acquisition_new(asking->actor, asking->set, asking->amounts);
    int r = 0;

    if (!acquisition)
        return -ENOMEM;
    acquisition->strict = (asking->request.flags & WEIR_STRICT) != 0;
    if (acquisition->record) {
        fill_record(asking, acquisition);
        r = enter(asking, acquisition, entry);
    } else {
        count(&actor_counters(asking->actor, asking->set->number)->granted, 1);
    }
    if (r == 0 || (r == -EAGAIN && entry == ENTRY_PROBE)) {
        *ret = acquisition;
        return r;
    }
    acquisition_free(asking->actor, acquisition);
    return r;
}

int weir_take(weir_pool *pool, const struct weir_request *request, struct weir_refusal *retref)
{
    struct asking asking;
    int r = begin(&asking, pool, request, PURPOSE_TAKE, retref);

    if (r < 0)
        return r;
    for (uint32_t i = 0; i < asking.set->limits.n; i++)
        if (asking.amounts[i]) {
            r = set_enter(asking.actor, asking.set, asking.amounts, 0, ENTRY_TRY, WEIR_FOREVER,
                          &asking.verdict);
            if (r < 0)
                say_verdict(retref, asking.set, &asking.verdict);
            return r;
        }
    count(&actor_counters(asking.actor, asking.set->number)->granted, 1);
    count(&actor_counters(asking.actor, asking.set->number)->taken, 1);
    return 0;
}

int weir_try_acquire(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                     struct weir_refusal *retref)
{
    struct asking asking;
    int r = ret ? begin(&asking, pool, request, PURPOSE_ACQUIRE, retref) : -EINVAL;

    if (r == 0)
        r = start(&asking, ENTRY_TRY, ret);
    if (r == 0)
        (*ret)->seen = true;
    return r;
}

/* Whichever of timeout and max_wait passes first ends the wait; together: the timeout. */
static uint64_t deadline_of(const struct asking *asking, enum record_state *ret_state)
{
    uint64_t timeout = request_timeout(asking->set, &asking->request);
    uint64_t max_wait = request_max_wait(asking->set, &asking->request);
    uint64_t wait = timeout <= max_wait ? timeout : max_wait;
    uint64_t now = asking->verdict.now_ns;

    *ret_state = (timeout <= max_wait || MUTANT(30)) ? RECORD_TIMED_OUT : RECORD_REFUSED;
    return wait > WEIR_INSTANT_MAX - now ? WEIR_FOREVER : now + wait;
}

/* Joins the line under the keeper's eyes: 0, 1 or a refusal, which frees the acquisition. */
static int enter_kept(struct asking *asking, weir_acquisition *acquisition)
{
    weir *w = asking->set->w;
    struct record *r = record_at(&w->region, acquisition->record);
    struct timer *timer = &acquisition->timer;
    uint64_t deadline;
    int result = keeper_expect(w);

    if (result < 0) {
        acquisition_free(asking->actor, acquisition);
        return result;
    }
    acquisition->kept = true;
    set_wake(asking, acquisition, RECORD_WAKE_KEEPER);
    timer->set = asking->set;
    timer->record = acquisition->record;
    timer->word = record_next_word(record_load(&r->word), RECORD_WAITING);
    result = enter(asking, acquisition, ENTRY_WAIT);
    if (result < 0) {
        keeper_forget(w, timer);
        acquisition_free(asking->actor, acquisition);
        return result;
    }
    deadline = deadline_of(asking, &timer->state);
    if (result == 1 && deadline != WEIR_FOREVER)
        keeper_watch(w, timer, deadline);
    return result;
}

int weir_submit(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                struct weir_refusal *retref)
{
    struct asking asking;
    weir_acquisition *acquisition;
    int r = ret ? begin(&asking, pool, request, PURPOSE_ACQUIRE, retref) : -EINVAL;

    if (r < 0)
        return r;
    r = start(&asking, ENTRY_PROBE, &acquisition);
    if (r == -EAGAIN)
        r = enter_kept(&asking, acquisition);
    if (r < 0)
        return r;
    acquisition->seen = r == 0;
    *ret = acquisition;
    return r;
}

/* Waits on the record's word, keeping time for itself and, at the head, for the line. */
static void wait_self(struct asking *asking, weir_acquisition *acquisition)
{
    weir *w = asking->set->w;
    struct record *r = record_at(&w->region, acquisition->record);
    enum record_state state;
    uint64_t deadline = deadline_of(asking, &state);

    for (;;) {
        uint64_t word = record_load(&r->word), until;

        if (record_state(word) != RECORD_WAITING)
            return;
        if (deadline != WEIR_FOREVER && instance_now(w) >= deadline) {
            set_withdraw(asking->actor, asking->set, acquisition->record, 0, state);
            continue;
        }
        until = set_look(asking->actor, asking->set, acquisition->record);
        if (until)
            sys_futex_wait(record_futex(r), (uint32_t)word, until < deadline ? until : deadline);
    }
}

/* The same when an injected clock keeps the time: the keeper does all of it. */
static void wait_kept(struct asking *asking, weir_acquisition *acquisition)
{
    struct record *r = record_at(&asking->set->w->region, acquisition->record);

    for (;;) {
        uint64_t word = record_load(&r->word);

        if (record_state(word) != RECORD_WAITING)
            return;
        sys_futex_wait(record_futex(r), (uint32_t)word, WEIR_FOREVER);
    }
}

static int wait_in_line(struct asking *asking, weir_acquisition *acquisition,
                        weir_acquisition **ret)
{
    bool injected = asking->set->w->clock.now_ns != NULL;
    int r;

    acquisition->blocked = injected;
    if (injected)
        r = enter_kept(asking, acquisition);
    else if ((r = enter(asking, acquisition, ENTRY_WAIT)) < 0)
        acquisition_free(asking->actor, acquisition);
    if (r < 0)
        return r;
    if (r == 1 && injected)
        wait_kept(asking, acquisition);
    else if (r == 1)
        wait_self(asking, acquisition);
    r = weir_acquisition_result(acquisition);
    if (r == 0) {
        *ret = acquisition;
        return 0;
    }
    if (asking->retref)
        weir_acquisition_refusal(acquisition, asking->retref);
    weir_release(&acquisition);
    return r;
}

static void enter_blocked(weir *w)
{
    instance_hold(w, 1);
    atomic_fetch_add(&w->blocked, 1);
}

/* Once it is not counted any more weir_close comes back, and then the pool may go: hence the hold.
 * Either this sees that the instance is closed, or weir_close sees the count; so no weaker order.
 */
static void leave_blocked(weir *w)
{
    if (atomic_fetch_sub(&w->blocked, 1) == 1 && atomic_load(&w->closed))
        sys_futex_wake((const uint32_t *)(uintptr_t)&w->blocked, 1);
    instance_drop(w, 1);
}

int weir_acquire(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                 struct weir_refusal *retref)
{
    struct asking asking;
    weir_acquisition *acquisition;
    weir *w;
    int r = ret ? begin(&asking, pool, request, PURPOSE_ACQUIRE, retref) : -EINVAL;

    if (r < 0)
        return r;
    w = asking.set->w;
    r = start(&asking, ENTRY_PROBE, &acquisition);
    if (r == 0) {
        acquisition->seen = true;
        *ret = acquisition;
    }
    if (r != -EAGAIN)
        return r;
    enter_blocked(w);
    r = wait_in_line(&asking, acquisition, ret);
    leave_blocked(w);
    return r;
}

int weir_acquisition_refusal(weir_acquisition *acquisition, struct weir_refusal *ret)
{
    weir_set *set = acquisition->set;
    int result = weir_acquisition_result(acquisition);
    struct verdict verdict;
    struct actor *actor;

    if (result == -ECHILD)
        return result;
    if ((result != -EAGAIN && result != -ETIMEDOUT) || !ret || ret->size < sizeof(*ret))
        return -EINVAL;
    actor = actor_self(set);
    if (!actor)
        return -ENOMEM;
    set_estimate(actor, set, acquisition_amounts(acquisition), &verdict);
    say_verdict(ret, set, &verdict);
    return 0;
}

int weir_set_ready_at(weir_set *set, const struct weir_request *request, uint64_t *ret_ns)
{
    struct weir_request read;
    struct actor *actor;
    struct verdict verdict;
    uint64_t amounts[WEIR_LIMITS_MAX];
    const char *key;
    int r;

    if (instance_forked(set->w))
        return -ECHILD;
    r = request_read(request, &read);
    if (r == 0)
        r = request_resolve(set, &read, PURPOSE_FORESEE, amounts, &key);
    if (r < 0)
        return r;
    actor = actor_self(set);
    if (!actor)
        return -ENOMEM;
    if (set->head)
        set_estimate(actor, set, amounts, &verdict);
    *ret_ns = set->head ? verdict.estimate_ns : instance_now(set->w);
    return 0;
}
