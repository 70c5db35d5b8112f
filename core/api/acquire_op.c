/* SPDX-License-Identifier: MIT */
/* What all calls that ask have in common. */
#include "api/acquire_op.h"

#include "api/fast_path.h"
#include "api/pool.h"
#include "base/mutant.h"
#include "base/sched_point.h"
#include "keyed/keyed.h"
#include "peer/peer_cleanup.h"
#include "peer/stall_check.h"
#include "wait/notify.h"
#include "wait/waiter.h"
#include <errno.h>

static void say(struct weir_refusal *ret, const weir_set *set, const char *key,
                uint64_t retry_after_ns)
{
    if (!ret || ret->size < sizeof(*ret))
        return;
    ret->key = key ? key : "";
    ret->set = set_name(set);
    ret->retry_after_ns = retry_after_ns;
}

void asking_say(struct weir_refusal *ret, const weir_set *set, const struct verdict *verdict)
{
    uint64_t wait = WEIR_FOREVER;

    if (verdict->estimate_ns < WEIR_BLOCKED)
        wait = verdict->estimate_ns > verdict->now_ns ? verdict->estimate_ns - verdict->now_ns : 0;
    say(ret, set, verdict->blame ? verdict->blame->key : NULL, wait);
}

static int ask_for_key(struct asking *asking)
{
    asking->acquisition = NULL;
    return keyed_hash(asking->set->keyed, asking->request, &asking->key);
}

/* The request as most are. False: there is more to say. */
static bool resolve_simple(struct asking *asking, enum purpose purpose)
{
    if (asking->set->limits.n == 1)
        return request_resolve_one(asking->set, asking->request, purpose, asking->amounts);
    return request_resolve_simple(asking->set, asking->request, purpose, asking->amounts);
}

/* For every pool and request. Apart from what suffices for most, which needs few registers. */
__attribute__((noinline)) static int begin(struct asking *asking, weir_pool *pool,
                                           enum purpose purpose)
{
    const char *key = NULL;
    int r = pool_pick(pool, asking->request, &asking->set);

    if (r == 0 && asking->set->keyed)
        r = ask_for_key(asking);
    if (r < 0)
        return r;
    if (pool->w->tsc)
        instance_tell_of_clock(pool->w);
    r = request_resolve(asking->set, asking->request, purpose, asking->amounts, &key);
    /* Afterwards: who hears a warning may call weir, and give this thread's actor back. */
    asking->actor = actor_self(asking->set);
    if (!asking->actor)
        return -ENOMEM;
    if (r < 0) {
        set_count_refusal(asking->actor, asking->set, r, key);
        say(asking->retref, asking->set, key, WEIR_FOREVER);
    } else if (instance_closed(asking->set->w)) {
        r = -ESHUTDOWN; /* while a warning was heard */
    }
    return r;
}

int asking_begin(struct asking *asking, weir_pool *pool, const struct weir_request *request,
                 enum purpose purpose, struct weir_refusal *retref)
{
    if (!pool)
        return -EINVAL;
    if (instance_forked(pool->w))
        return -ECHILD;
    if (instance_closed(pool->w))
        return -ESHUTDOWN;
    asking->retref = retref;
    asking->request = request_read(request);
    if (!asking->request)
        return -EINVAL;
    asking->set = pool->only;
    if (!asking->set || instance_has_news(pool->w) ||
        !resolve_simple(asking, MUTANT(403) ? PURPOSE_ACQUIRE : purpose))
        return begin(asking, pool, purpose);
    asking->actor = actor_self(asking->set);
    if (!asking->actor)
        return -ENOMEM;
    return asking->set->keyed ? ask_for_key(asking) : 0;
}

static inline void fill(const struct asking *asking, uint32_t record)
{
    const struct actor *actor = asking->actor;
    const struct region *region = asking->set->region;
    struct record *r = record_at(region, record);
    uint32_t unit = actor_part(actor, asking->set->number)->unit;
    struct actor_head *head = region_box(region, unit);

    for (uint32_t i = 0; i < asking->set->limits.n; i++)
        record_store(&r->amounts[i], asking->amounts[i]);
    STEP();
    record_store(&r->owner, (uint64_t)unit << 32 | (uint32_t)atomic_load_explicit(
                                                       &head->generation, memory_order_relaxed));
    record_store(&r->set, (uint64_t)asking->set->id << 32 | actor->thread);
    if (asking->set->keyed)
        keyed_mark(asking->set, r, &asking->key);
    STEP();
    record_set_waker(r, RECORD_WAKE_FUTEX, 0, false);
    STEP();
    record_set_before(r, 0);
    r->after = r->timer = 0;
    record_store(&r->deadline_ns, WEIR_FOREVER);
}

void asking_fill(const struct asking *asking, uint32_t record)
{
    fill(asking, record);
}

int asking_ask_keyed(struct asking *asking, uint32_t record, enum entry entry, uint64_t max_wait_ns)
{
    return keyed_enter(asking, record, entry, max_wait_ns);
}

static inline int enter(struct asking *asking, uint32_t record, enum entry entry)
{
    int r = asking_ask(asking, record, entry, request_max_wait(asking->set, asking->request));

    /* After a probe the caller comes back to wait, unless there is nothing to wait for. */
    if (r < 0 && (entry != ENTRY_PROBE || r == -ERANGE))
        asking_say(asking->retref, asking->set, &asking->verdict);
    return r;
}

int asking_enter(struct asking *asking, uint32_t record, enum entry entry)
{
    return enter(asking, record, entry);
}

/* Whichever of timeout and max_wait passes first ends the wait; together: the timeout. */
static uint64_t deadline_from(const struct asking *asking, uint64_t now,
                              enum record_state *ret_state)
{
    uint64_t timeout = request_timeout(asking->set, asking->request);
    uint64_t max_wait = request_max_wait(asking->set, asking->request);
    uint64_t wait = timeout <= max_wait ? timeout : max_wait;

    *ret_state = (timeout <= max_wait || MUTANT(30)) ? RECORD_TIMED_OUT : RECORD_REFUSED;
    return wait > WEIR_INSTANT_MAX - now ? WEIR_FOREVER : now + wait;
}

uint64_t asking_deadline(const struct asking *asking, enum record_state *ret_state)
{
    return deadline_from(asking, asking->verdict.now_ns, ret_state);
}

void asking_publish_deadline(const struct asking *asking, uint32_t record)
{
    struct record *r = record_at(asking->set->region, record);
    enum record_state state;
    uint64_t deadline_ns;

    deadline_ns = deadline_from(asking, instance_now(asking->set->w), &state);
    record_set_before(r, state == RECORD_REFUSED ? RECORD_REFUSES : 0);
    if (!MUTANT(322))
        atomic_store_explicit(&r->deadline_ns, deadline_ns, memory_order_release);
}

void asking_stay(struct asking *asking, uint32_t kept, uint64_t word)
{
    weir_set *set = asking->set;
    uint32_t record = kept_record(set->w, kept);

    guard_begin(asking->actor, set, kept, word, &asking->verdict);
    burial_attend(asking->actor, set); /* from now on all are watched who were there before */
    /* weir_close ends who is in line; who joins it meanwhile sees that for himself. */
    if (instance_closed(set->w) && set_withdraw(asking->actor, set, record, word, RECORD_SHUT_DOWN))
        wake_waiter(set, record, record_next_word(word, RECORD_SHUT_DOWN));
}

int asking_start(struct asking *asking, enum entry entry, weir_acquisition **ret)
{
    weir_acquisition *acquisition = acquisition_new(asking->actor, asking->set, asking->amounts);
    int r = 0;

    if (!acquisition)
        return -ENOMEM;
    acquisition->strict = (asking->request->flags & WEIR_STRICT) != 0;
    asking->acquisition = acquisition;
    if (acquisition->record) {
        fill(asking, acquisition->record);
        r = enter(asking, acquisition->record, entry);
    } else {
        count(&actor_counters(asking->actor, asking->set->number)->granted, 1);
    }
    if (r == 0 && entry != ENTRY_RESERVE)
        at_once_begin(asking->actor, acquisition);
    if (r == 0 || (r == -EAGAIN && entry == ENTRY_PROBE)) {
        *ret = acquisition;
        return r;
    }
    if (r != -EAGAIN || !at_once_keep(asking->actor, acquisition))
        acquisition_free(asking->actor, acquisition);
    return r;
}
