/* SPDX-License-Identifier: MIT */
/*
 * Cancellation tokens: ending blocked weir_acquire calls from another thread. They are what a
 * Context of Go and a CancellationToken of .NET are there.
 *
 *     one thread:  request.token = token; r = weir_acquire(pool, &request, &acquisition, &refusal);
 *     another one: weir_token_cancel(token);              r is -ECANCELED, unless it was granted
 *
 * One token serves any number of calls at the same time, by any threads, on all pools and sets of
 * its instance. It stays canceled: for the next round of work the program opens another one.
 */
#ifndef WEIR_TOKEN_H
#define WEIR_TOKEN_H

#include <weir/instance.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_token weir_token;

/*
 * Makes a token of this instance. `*ret` is closed with weir_token_close. Any thread. Returns 0;
 * -EINVAL (an argument is NULL), -ENOMEM, -ECHILD (the instance was opened before fork, by the
 * parent).
 * [any thread, changes]
 */
WEIR_PUBLIC WEIR_MUST_CHECK int weir_token_open(weir_token **ret, weir *w);

/*
 * Cancels the token: all blocked weir_acquire calls that have it return -ECANCELED. Those that come
 * later return it at once, even if they could be granted. A call that is granted first returns
 * 0 and has its grant. The waits are ended in no particular order; waiters behind them move up.
 * Another call is harmless. Any thread, but not a signal handler: a handler that has to cancel
 * wakes a thread that does (sem_post, a write to an eventfd). Returns how many waits it ended;
 * -EINVAL (`token` is NULL), -ECHILD.
 * [any thread, changes]
 */
WEIR_PUBLIC int weir_token_cancel(weir_token *token);

/* Returns 1 if the token was canceled, 0 if not; -EINVAL (`token` is NULL). Any thread, also in a
 * signal handler. [signal handler, reads] */
WEIR_PUBLIC int weir_token_is_canceled(const weir_token *token);

/*
 * Closes a token, canceled or not. No call that has it may be running, neither weir_acquire nor
 * weir_token_cancel. NULL is fine. Always returns NULL.
 * [one thread, changes]
 */
WEIR_PUBLIC weir_token *weir_token_close(weir_token *token);

#ifdef __cplusplus
}
#endif
#endif
