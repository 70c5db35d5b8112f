/* SPDX-License-Identifier: MIT */
/*
 * Requests to pools of several sets: the balancer picks one, which is then asked by the handle of
 * that set alone. A try that was refused may go on to the next choice.
 */
#include "api/acquire.h"
#include "api/pool.h"
#include "api/set_object.h"
#include "base/hash.h"
#include "limit/counters.h"

#include "base/invariant.h"
#include "set/instance_base.h"
#include <errno.h>

/* ---- views; the caller holds the lock of the choice ---- */

static void balance_mark(struct pool_choice *choice, uint32_t index, uint32_t flag)
{
    struct weir_set_view *view = &choice->members[index].view;

    if (!view->flags)
        choice->members[choice->seen_n++].seen = index;
    view->flags |= flag;
    WEIR_INVARIANT(choice->seen_n <= choice->definition->sets_n);
}

/* Forgets what the views said for the pick before. */
static void balance_clear_views(struct pool_choice *choice)
{
    for (; choice->seen_n; choice->seen_n--) {
        struct weir_set_view *view =
            &choice->members[choice->members[choice->seen_n - 1].seen].view;

        *view = (struct weir_set_view){.id = view->id, .weight = view->weight};
    }
}

static uint32_t balance_flags(const struct pool_choice *choice)
{
    return choice->definition->plan.balancer->balancer.flags;
}

void balance_show_views(const struct pool_choice *choice, struct weir_pick *ret)
{
    ret->view_size = sizeof(struct pool_member);
    if (balance_flags(choice) & (WEIR_BALANCER_VIEWS | WEIR_BALANCER_LOOKS))
        ret->views = &choice->members->view;
}

static int balance_look(const struct balance *balance, uint64_t now_ns, uint32_t index)
{
    struct pool_choice *choice = balance->choice;

    balance_mark(choice, index, WEIR_VIEW_LIVE);
    return stats_view(pool_set(choice->definition, index), balance->request, now_ns,
                      &choice->members[index].view);
}

/* Looks at all sets for a balancer that wants that. Returns 0 or -ENOMEM. */
static int balance_look_at_all(const struct balance *balance, uint64_t now_ns)
{
    const struct pool_choice *choice = balance->choice;
    uint32_t flags = balance_flags(choice), n = choice->definition->sets_n;
    int r = 0;

    for (uint32_t i = 0; flags & WEIR_BALANCER_VIEWS && r == 0 && i < n; i++)
        r = balance_look(balance, now_ns, i);
    return r;
}

/* ---- picks; the caller holds the lock of the choice ---- */

/* Asks the balancer, and looks at the sets that it wants to look at. Returns 0 or -ENOMEM, and in
 * `*ret` what it answers in the end. */
static int balance_ask(const struct balance *balance, uint32_t *ret)
{
    struct pool_choice *choice = balance->choice;
    const struct pool_plan *plan = &choice->definition->plan;
    const struct weir_balancer *balancer = &plan->balancer->balancer;
    struct weir_pick pick = {
        .size = sizeof(pick),
        .now_ns = clock_now_ns(&choice->w->clock),
        .random = splitmix64_next(&choice->random_state),
        .route = balance->request->route,
        .worker = choice->worker,
        .sets_n = choice->definition->sets_n,
        .attempt = balance->tried_n,
    };
    int r = balance_look_at_all(balance, pick.now_ns);

    balance_show_views(choice, &pick);
    while (r == 0) {
        uint32_t index = balancer->pick(plan->config, choice->balancer_state, &pick);
        uint32_t wanted = index & ~WEIR_PICK_LOOK;

        *ret = index;
        if (index == wanted || !(balancer->flags & WEIR_BALANCER_LOOKS) || wanted >= pick.sets_n ||
            choice->members[wanted].view.flags & WEIR_VIEW_LIVE)
            break;
        r = balance_look(balance, pick.now_ns, wanted);
    }
    return r;
}

/* Picks a set that was not tried. Returns 0, -ENOMEM, or -EAGAIN (the balancer wants no other), and
 * in `*ret_answer` what it said. */
static int balance_pick(const struct balance *balance, uint32_t *ret, uint32_t *ret_answer)
{
    struct pool_choice *choice = balance->choice;
    uint32_t n = choice->definition->sets_n, index;
    int r = 0;

    WEIR_INVARIANT(balance->tried_n < n);
    *ret_answer = 0;
    balance_clear_views(choice);
    for (uint32_t i = 0; i < balance->tried_n; i++)
        balance_mark(choice, balance->tried[i], WEIR_VIEW_TRIED);
    if (!balance->tried_n || balance_flags(choice) & WEIR_BALANCER_RANKS)
        r = balance_ask(balance, ret_answer);
    else
        *ret_answer = balance->tried[balance->tried_n - 1];
    if (r < 0)
        return r;
    if (*ret_answer == WEIR_PICK_NONE && balance->tried_n)
        return -EAGAIN;
    index = *ret_answer % n;
    while (choice->members[index].view.flags & WEIR_VIEW_TRIED)
        index = index + 1 < n ? index + 1 : 0;
    *ret = index;
    return 0;
}

/* Logs an invalid pick. Without the lock: the log callback may use the pool. */
static void balance_warn_pick(const struct pool_choice *choice, uint32_t index)
{
    const struct pool_plan *plan = &choice->definition->plan;

    log_write(&choice->w->log, WEIR_LOG_ERROR, "pool `%s`: balancer `%s` picked set %u of %u",
              plan->name ? plan->name : "", plan->balancer->info.name, index,
              choice->definition->sets_n);
}

/* Picks the next member to be asked. Returns as balance_pick() does. */
static int balance_step(struct balance *balance)
{
    struct pool_choice *choice = balance->choice;
    uint32_t index = 0, answer;
    bool must_warn;
    int r;

    pthread_mutex_lock(&choice->lock);
    r = balance_pick(balance, &index, &answer);
    must_warn = r == 0 && answer >= choice->definition->sets_n && !choice->pick_warned;
    choice->pick_warned |= must_warn;
    if (r == 0)
        counter_add(&choice->members[index].picks, 1);
    pthread_mutex_unlock(&choice->lock);
    if (must_warn)
        balance_warn_pick(choice, answer);
    if (r < 0)
        return r;
    balance->tried[balance->tried_n++] = index;
    balance->member = &choice->members[index].pool;
    return 0;
}

int balance_begin(struct balance *ret, struct pool_choice *choice,
                  const struct weir_request *request, struct weir_refusal *retref, bool is_try)
{
    ret->choice = choice;
    ret->member = &choice->members->pool;
    ret->retref = retref;
    ret->best = 0;
    ret->tried_n = 0;
    if (instance_is_forked(choice->w))
        return -ECHILD;
    if (instance_is_closed(choice->w))
        return -ESHUTDOWN;
    if (pool_is_removed(choice->definition))
        return -ESTALE;
    ret->request = request_validate(request);
    if (ret->request && request_within(ret->request))
        ret->request = NULL; /* it goes to the set of what it is nested in */
    ret->tries_next = ret->request && is_try && choice->definition->plan.tries_next;
    ret->refused = (struct weir_refusal){.size = sizeof(ret->refused)};
    ret->refusal = ret->tries_next ? &ret->refused : retref;
    return ret->request ? balance_step(ret) : 0;
}

/* ---- after the call ---- */

/* Tells the balancer what became of its pick. */
static void balance_tell(const struct balance *balance, int result)
{
    struct pool_choice *choice = balance->choice;
    const struct pool_plan *plan = &choice->definition->plan;
    const struct weir_refusal *refusal = balance->refusal;
    struct weir_pick_outcome outcome = {.size = sizeof(outcome), .result = result};

    if (!plan->balancer->balancer.outcome)
        return;
    outcome.now_ns = clock_now_ns(&choice->w->clock);
    outcome.index = balance->tried[balance->tried_n - 1];
    if (result == -EAGAIN && refusal && refusal->size >= sizeof(*refusal))
        outcome.retry_after_ns = refusal->retry_after_ns;
    pthread_mutex_lock(&choice->lock);
    plan->balancer->balancer.outcome(plan->config, choice->balancer_state, &outcome);
    pthread_mutex_unlock(&choice->lock);
}

bool balance_is_outdated(const struct balance *balance, int result)
{
    return result == -ESTALE && pool_is_removed(balance->choice->definition);
}

bool balance_may_go_on(int result)
{
    switch (result) {
    case -EAGAIN:
    case -ENOBUFS:
    case -ERANGE:
    case -EHOSTUNREACH:
    case -EUCLEAN:
    case -ESTALE:
        return true;
    default:
        return false;
    }
}

void balance_keep_best(struct balance *balance, int result)
{
    uint64_t after_ns = result == -EAGAIN ? balance->refused.retry_after_ns : WEIR_FOREVER;

    after_ns = after_ns ? after_ns : WEIR_FOREVER - 1; /* 0: no forecast */
    if (balance->best && after_ns >= balance->best_after_ns)
        return;
    balance->best = result;
    balance->best_after_ns = after_ns;
    balance->best_refused = balance->refused;
}

void balance_hand_out(struct weir_refusal *ret, struct weir_refusal *refused)
{
    if (!ret || ret->size < sizeof(*ret) || !refused->key)
        return;
    refused->size = ret->size;
    *ret = *refused;
}

bool balance_again(struct balance *balance, int *result)
{
    int r = -EAGAIN;

    if (!balance->request)
        return false;
    balance_tell(balance, *result);
    if (!balance->tries_next || *result >= 0 || balance_is_outdated(balance, *result))
        return false;
    if (!balance_may_go_on(*result)) {
        balance_hand_out(balance->retref, &balance->refused);
        return false;
    }
    balance_keep_best(balance, *result);
    balance->refused = (struct weir_refusal){.size = sizeof(balance->refused)};
    if (balance->tried_n < BALANCE_TRIES_MAX &&
        balance->tried_n < balance->choice->definition->sets_n)
        r = balance_step(balance);
    if (r == 0)
        return true;
    *result = r == -ENOMEM ? r : balance->best;
    balance_hand_out(balance->retref, &balance->best_refused);
    return false;
}
