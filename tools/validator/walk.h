/* SPDX-License-Identifier: MIT */
/* A random history of one limit: time passes, and amounts are asked for, taken and released. */
#ifndef WEIR_TOOLS_WALK_H
#define WEIR_TOOLS_WALK_H

#include "subject.h"

#define WALK_STEPS    60u
#define WALK_HELD_MAX 32u

struct walk {
    struct subject *subject;
    uint64_t now;
    uint64_t taken; /* since the beginning, less what was released; stops at UINT64_MAX */
    struct {
        uint64_t amount, granted_ns;
    } held[WALK_HELD_MAX]; /* of a resource: what is not released; of others: the last grants */
    unsigned held_n;
    uint64_t trace[4 * WALK_STEPS]; /* what was answered */
    unsigned trace_n;
};

/* Begins at a random instant, with a new state. */
void walk_begin(struct trial *trial, struct walk *ret, struct subject *subject);
/* One step: lets time pass, maybe releases, and asks for an amount. Returns `ready_at` of it. */
uint64_t walk_ask(struct walk *walk, uint64_t *ret_amount);
/* Takes what was asked for, if it is ready now. Returns whether it was taken. */
bool walk_take(struct walk *walk, uint64_t ready, uint64_t amount);
/* A whole history, with what each call answered in the trace. */
void walk_all(struct trial *trial, struct walk *walk, struct subject *subject);

#endif
