/* SPDX-License-Identifier: MIT */
/* Cancellation tokens: the waits of blocked threads that another thread may end together. */
#ifndef WEIR_CORE_API_TOKEN_H
#define WEIR_CORE_API_TOKEN_H

#include "set/set.h"
#include <weir/token.h>

/* A wait of a blocked thread, on its stack. Owner: the token's lock. */
struct token_wait {
    weir_set *set;
    uint32_t record;          /* WAITING, in this set; the thread keeps it until token_leave() */
    _Atomic uint32_t is_busy; /* futex: 1 while another thread cancels the wait */
    struct token_wait *prev, *next;
};

/* Returns 0 if a request to an instance may begin with this token; -EINVAL (it is of another
 * instance), -ECANCELED. */
int token_check(const weir_token *token, const weir *w);
/* Adds a wait to those that the token ends. Returns false if the token is canceled already: then
 * the caller ends the wait itself. */
bool token_enter(weir_token *token, struct token_wait *wait);
/* Ends what token_enter() began. From here on no other thread uses the wait and its record. */
void token_leave(weir_token *token, struct token_wait *wait);

#endif
