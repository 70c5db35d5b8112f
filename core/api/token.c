/* SPDX-License-Identifier: MIT */
/*
 * Cancellation tokens. A token has a list of the waits that blocked threads are in. The thread that
 * cancels it takes one wait after another from the list, and cancels each without a lock, since the
 * log callback may run then. Meanwhile the wait is busy, and its thread stays: the record belongs
 * to this wait, and not to the next use.
 */
#include "api/token.h"

#include "base/sched_point.h"
#include "os/os.h"
#include "set/hooks.h"
#include "set/set_ops.h"
#include "set/waiter.h"
#include <errno.h>
#include <pthread.h>

struct weir_token {
    weir *w;
    pthread_mutex_t lock;
    _Atomic bool is_canceled; /* only ever set, with the lock held */
    struct token_wait *waits; /* owner: the lock */
};

int weir_token_open(weir_token **ret, weir *w)
{
    weir_token *token;

    if (!ret || !w)
        return -EINVAL;
    if (instance_is_forked(w))
        return -ECHILD;
    token = os_alloc(1, sizeof(*token));
    if (!token)
        return -ENOMEM;
    token->w = w;
    pthread_mutex_init(&token->lock, NULL);
    instance_ref(w, 1);
    *ret = token;
    return 0;
}

weir_token *weir_token_close(weir_token *token)
{
    weir *w = token ? token->w : NULL;

    if (!token)
        return NULL;
    if (!instance_is_forked(w)) {
        WEIR_INVARIANT(!token->waits);
        pthread_mutex_destroy(&token->lock);
        instance_unref(w, 1);
    }
    os_free(token);
    return NULL;
}

int weir_token_is_canceled(const weir_token *token)
{
    if (!token)
        return -EINVAL;
    return atomic_load_explicit(&token->is_canceled, memory_order_seq_cst);
}

int token_check(const weir_token *token, const weir *w)
{
    if (token->w != w)
        return -EINVAL;
    return weir_token_is_canceled(token) ? -ECANCELED : 0;
}

/* ---- the list; the caller holds the lock ---- */

static void token_link(weir_token *token, struct token_wait *wait)
{
    wait->prev = NULL;
    wait->next = token->waits;
    if (wait->next)
        wait->next->prev = wait;
    token->waits = wait;
}

static void token_unlink(weir_token *token, struct token_wait *wait)
{
    WEIR_INVARIANT(token->waits);
    if (wait->prev)
        wait->prev->next = wait->next;
    else
        token->waits = wait->next;
    if (wait->next)
        wait->next->prev = wait->prev;
    wait->prev = wait->next = NULL;
}

static bool token_is_linked(const weir_token *token, const struct token_wait *wait)
{
    return wait->prev || token->waits == wait;
}

/* ---- blocked threads ---- */

bool token_enter(weir_token *token, struct token_wait *wait)
{
    bool is_canceled;

    WEIR_INVARIANT(wait->record && wait->set->w == token->w);
    pthread_mutex_lock(&token->lock);
    is_canceled = atomic_load_explicit(&token->is_canceled, memory_order_seq_cst);
    if (!is_canceled)
        token_link(token, wait);
    pthread_mutex_unlock(&token->lock);
    return !is_canceled;
}

void token_leave(weir_token *token, struct token_wait *wait)
{
    pthread_mutex_lock(&token->lock);
    while (atomic_load_explicit(&wait->is_busy, memory_order_seq_cst)) {
        pthread_mutex_unlock(&token->lock);
        os_futex_wait((const uint32_t *)(uintptr_t)&wait->is_busy, false, 1, WEIR_FOREVER);
        pthread_mutex_lock(&token->lock);
    }
    if (token_is_linked(token, wait))
        token_unlink(token, wait);
    pthread_mutex_unlock(&token->lock);
}

/* ---- the thread that cancels ---- */

/* Takes a wait out of the list. Its thread does not leave before token_finish_wait(). */
static struct token_wait *token_begin_wait(weir_token *token)
{
    struct token_wait *wait;

    pthread_mutex_lock(&token->lock);
    atomic_store_explicit(&token->is_canceled, true, memory_order_seq_cst);
    wait = token->waits;
    if (wait) {
        token_unlink(token, wait);
        atomic_store_explicit(&wait->is_busy, 1, memory_order_seq_cst);
    }
    pthread_mutex_unlock(&token->lock);
    return wait;
}

/* Cancels a wait and wakes its thread. Returns false if it was decided before. */
static bool token_cancel_wait(const struct token_wait *wait)
{
    weir_set *set = wait->set;
    struct thread_ctx *ctx = thread_ctx_borrow(set);
    bool is_ended = set->ops->cancel_wait(ctx, set, wait->record, 0, RECORD_CANCELED);

    if (is_ended)
        notify_waiter(set, wait->record, set_record_word(set, wait->record));
    thread_ctx_return(ctx);
    return is_ended;
}

/* Lets the thread of the wait leave. With the lock, so that the wait is there for the wake-up. */
static void token_finish_wait(weir_token *token, struct token_wait *wait)
{
    pthread_mutex_lock(&token->lock);
    atomic_store_explicit(&wait->is_busy, 0, memory_order_seq_cst);
    os_futex_wake((const uint32_t *)(uintptr_t)&wait->is_busy, false);
    pthread_mutex_unlock(&token->lock);
}

int weir_token_cancel(weir_token *token)
{
    struct token_wait *wait;
    int ended_n = 0;

    if (!token)
        return -EINVAL;
    if (instance_is_forked(token->w))
        return -ECHILD;
    while ((wait = token_begin_wait(token))) {
        SCHED_POINT();
        ended_n += token_cancel_wait(wait);
        token_finish_wait(token, wait);
    }
    return ended_n;
}
