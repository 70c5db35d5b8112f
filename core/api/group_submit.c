/* SPDX-License-Identifier: MIT */
/*
 * Requests that wait in several sets of a pool. First each set is asked whether it grants at once,
 * in the order in which the balancer ranks them. If none does, the request enters their wait queues
 * in that order, as a group.
 */
#include "api/acquire.h"
#include "api/request_events.h"
#include "api/token.h"
#include "api/wait_group.h"

#include "base/invariant.h"
#include "os/os.h"
#include "set/instance_base.h"
#include "wait/cq.h"
#include <errno.h>

_Static_assert(WEIR_POOL_WAIT_MAX == BALANCE_TRIES_MAX, "a request waits in all sets it has tried");

/* A set that was asked and did not grant: the acquisition to wait with there, not enqueued yet. */
struct group_try {
    struct acquire_op op;
    weir_acquisition *acquisition; /* NULL: the group has it, or it is gone */
};

struct group_submission {
    struct balance balance;
    struct group_try *tries;
    uint32_t tries_n;
};

/* Frees an acquisition that has not been in its set: its record is FREE. */
static void group_free_probe(weir_acquisition *acquisition)
{
    struct thread_ctx *ctx = thread_ctx_borrow(acquisition->set);

    acquisition_free(ctx, acquisition);
    thread_ctx_return(ctx);
}

/* Keeps the acquisition that a probe has made. Returns -EAGAIN, or -ENOMEM and it is freed. */
static int group_keep_try(struct group_submission *submission, const struct acquire_op *op,
                          weir_acquisition *acquisition)
{
    if (!submission->tries)
        submission->tries =
            os_alloc(submission->balance.choice->definition->sets_n, sizeof(*submission->tries));
    if (!submission->tries) {
        group_free_probe(acquisition);
        return -ENOMEM;
    }
    submission->tries[submission->tries_n++] = (struct group_try){*op, acquisition};
    return -EAGAIN;
}

/* Asks a set. Returns 0 and the acquisition if it grants at once; -EAGAIN and a try if the request
 * has to wait there; or an error. */
static int group_probe(struct group_submission *submission, weir_acquisition **ret)
{
    struct balance *balance = &submission->balance;
    weir_acquisition *acquisition = NULL;
    struct acquire_op op;
    int r = acquire_probe(&op, balance->member, balance->request, false, &acquisition,
                          balance->refusal);

    if (r == 0)
        *ret = acquisition;
    return r == -EAGAIN && acquisition ? group_keep_try(submission, &op, acquisition) : r;
}

/* Frees the acquisitions that were not enqueued. */
static void group_free_tries(struct group_submission *submission)
{
    for (uint32_t i = 0; i < submission->tries_n; i++) {
        if (!submission->tries[i].acquisition)
            continue;
        acquire_op_tell_failure(&submission->tries[i].op, -EAGAIN);
        group_free_probe(submission->tries[i].acquisition);
    }
    os_free(submission->tries);
}

/* Enqueues the request in one set. Returns 0 if the group is decided: no more sets are needed; 1 if
 * it waits there; or why it does not. */
static int group_enqueue_try(struct wait_group *group, struct group_try *try_,
                             struct weir_refusal *refusal)
{
    weir_acquisition *acquisition = try_->acquisition;
    struct acquire_op *op = &try_->op;
    int r;

    if (!wait_group_begin_member(group, acquisition))
        return 0;
    op->retref = refusal;
    op->ctx = thread_ctx_get(op->set); /* a log callback may have returned it */
    if (!op->ctx) {
        wait_group_add_member(group, acquisition, -ENOMEM);
        return -ENOMEM;
    }
    try_->acquisition = NULL;
    r = acquire_enqueue(op, acquisition, true);
    wait_group_add_member(group, acquisition, r);
    return r;
}

/* Returns whether the request may wait in other sets than the one that has failed with this result.
 * -EAGAIN is of the kernel if the set has not filled the refusal. */
static bool group_may_go_on(int result, const struct weir_refusal *refusal)
{
    if (result == -EAGAIN)
        return refusal->key != NULL;
    return result == -EDEADLK || balance_may_go_on(result);
}

/* Returns whether the set has got a new definition since it was asked. Then all are asked again. */
static bool group_is_outdated(const struct group_try *try_, int result)
{
    return result == -ESTALE && !set_is_removed(set_newest(try_->op.set));
}

/* Enqueues the request in the sets that were asked. Returns 1, or the error of a set that another
 * one does not make good. */
static int group_enqueue_tries(struct group_submission *submission, struct wait_group *group)
{
    struct balance *balance = &submission->balance;
    int r = 1;

    for (uint32_t i = 0; r != 0 && i < submission->tries_n; i++) {
        balance->refused = (struct weir_refusal){.size = sizeof(balance->refused)};
        r = group_enqueue_try(group, &submission->tries[i], &balance->refused);
        if (r >= 0)
            continue;
        if (group_is_outdated(&submission->tries[i], r) || balance_is_outdated(balance, r))
            return r;
        if (!group_may_go_on(r, &balance->refused))
            return r;
        balance_keep_best(balance, r);
    }
    return 1;
}

/* Makes the group of a request that no set has granted at once. Returns 1, or the refusal of the
 * set that would grant first if none lets it wait. */
static int group_enqueue(struct group_submission *submission, struct wait_group **ret)
{
    struct balance *balance = &submission->balance;
    struct wait_group *group = wait_group_new(balance->choice->w, submission->tries_n);
    int r;

    if (!group)
        return -ENOMEM;
    balance->best = 0; /* probes say less */
    r = group_enqueue_tries(submission, group);
    if (r < 0) {
        wait_group_abandon(group);
        balance_hand_out(balance->retref, &balance->refused);
        return r;
    }
    if (wait_group_complete(group)) {
        *ret = group;
        return 1;
    }
    balance_hand_out(balance->retref, &balance->best_refused);
    return balance->best;
}

/* Asks the sets of a pool, then enqueues. Returns 0 and the acquisition if a set grants at once; 1
 * and the group; or a refusal or an error. `*ret_again`: a set has changed, and has to be asked
 * again. */
static int group_begin_once(struct pool_choice *choice, const struct weir_request *request,
                            struct weir_refusal *retref, weir_acquisition **ret,
                            struct wait_group **ret_group, bool *ret_again)
{
    struct group_submission submission = {.tries = NULL};
    struct balance *balance = &submission.balance;
    struct weir_refusal probed = {.size = sizeof(probed)};
    int r = balance_begin(balance, choice, request, &probed, false);

    *ret_again = false;
    if (r < 0)
        return r;
    WEIR_INVARIANT(balance->request);
    balance->tries_next = true;
    balance->refusal = &balance->refused;
    do
        r = group_probe(&submission, ret);
    while (balance_again(balance, &r));
    balance->retref = retref; /* untouched as long as a set may grant */
    if (r < 0 && balance_may_go_on(r) && submission.tries_n && !balance_is_outdated(balance, r))
        r = group_enqueue(&submission, ret_group);
    else if (r < 0)
        balance_hand_out(retref, &probed);
    for (uint32_t i = 0; i < submission.tries_n && !balance_is_outdated(balance, r); i++)
        *ret_again |= group_is_outdated(&submission.tries[i], r);
    group_free_tries(&submission);
    return r;
}

static int group_begin(struct pool_choice *choice, const struct weir_request *request,
                       struct weir_refusal *retref, weir_acquisition **ret,
                       struct wait_group **ret_group)
{
    bool again;
    int r;

    do
        r = group_begin_once(choice, request, retref, ret, ret_group, &again);
    while (again);
    return r;
}

/* Returns what is asked of the group set. Each member has its own deadline. */
static struct group_request group_ask(struct wait_group *group, const struct weir_request *request)
{
    return (struct group_request){.request = {.size = sizeof(request[0]),
                                              .timeout_ns = WEIR_FOREVER,
                                              .max_wait_ns = WEIR_FOREVER,
                                              .token = request ? request_token(request) : NULL},
                                  .group = group};
}

/* Withdraws a group that no record has come to stand for. Returns `r`. */
static int group_finish(const struct group_request *asked, int r)
{
    if (asked->group)
        wait_group_abandon(asked->group);
    return r;
}

int group_submit(struct pool_choice *choice, const struct weir_request *request,
                 weir_acquisition **ret, struct weir_refusal *retref)
{
    struct group_request asked = group_ask(NULL, request);
    int r = ret ? group_begin(choice, request, retref, ret, &asked.group) : -EINVAL;

    if (r != 1)
        return r;
    return group_finish(&asked, acquire_submit(&choice->group_pool, &asked.request, ret, retref));
}

int group_acquire(struct pool_choice *choice, const struct weir_request *request,
                  weir_acquisition **ret, struct weir_refusal *retref)
{
    struct group_request asked = group_ask(NULL, request);
    int r = ret ? 0 : -EINVAL;

    if (r == 0 && asked.request.token)
        r = token_check(asked.request.token, choice->w);
    if (r == 0)
        r = group_begin(choice, request, retref, ret, &asked.group);
    if (r != 1)
        return r;
    return group_finish(&asked, acquire_and_wait(&choice->group_pool, &asked.request, ret, retref));
}

int group_queue_submit(weir_queue *queue, struct pool_choice *choice,
                       const struct weir_request *request, uint64_t user_data,
                       weir_acquisition **ret, struct weir_refusal *retref)
{
    struct group_request asked = group_ask(NULL, request);
    weir_acquisition *granted;
    int r;

    if (atomic_load_explicit(&queue->pending, memory_order_seq_cst) >= queue->capacity)
        return -ENOSPC; /* before the sets are asked in vain */
    r = group_begin(choice, request, retref, &granted, &asked.group);
    if (r == 0) {
        asked.group = wait_group_of_winner(granted);
        if (!asked.group) {
            acquisition_release(granted);
            return -ENOMEM;
        }
    }
    if (r < 0)
        return r;
    return group_finish(&asked, weir_queue_submit(queue, &choice->group_pool, &asked.request,
                                                  user_data, ret, retref));
}
