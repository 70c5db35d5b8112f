/* SPDX-License-Identifier: MIT */
/* The others: a process that shares a set with the process that dies or is stopped. It has two
 * participants: one holds and has a blocked waiter; the other waits for an acquisition's descriptor
 * and in a completion queue. It does what it is told, and ends if anything is not as it must be. */
#ifndef WEIR_TESTS_OTHERS_H
#define WEIR_TESTS_OTHERS_H

#include "shared.h"

#include <stdbool.h>

/* What they do around the tried process. */
struct scene {
    const char *name;
    uint64_t hold; /* they hold so much, first of all */
    const char
        *before; /* waiters before the tried one: b: blocked; k: with a descriptor; q: submitted */
    const char *after; /* waiters after it */
    uint64_t amount;   /* that each of those wants */
};

enum order {
    ORDER_HOLD, /* they hold, and those before join the wait queue */
    ORDER_JOIN, /* those after join the wait queue */
    ORDER_LINE, /* only those that wait for what is held here stay in the wait queue */
    ORDER_LOOK, /* requests that can be granted are granted, though no other process does anything
                 */
    ORDER_WAIT, /* their waiters get what they want, and give it back */
    ORDER_RELEASE,         /* they hold no longer */
    ORDER_NEWCOMER,        /* a new participant takes what there is */
    ORDER_NEWCOMER_LEAVES, /* and still has it, which is all that is held */
    ORDER_CHECK,           /* all are gone; everything is there */
    ORDER_QUIT
};

struct others {
    pid_t pid;
    int orders, answers;
};

/* Their set is `s` of this text, with a resource `slot` of this capacity. */
struct others others_start(const char *text, uint64_t capacity);
/* False: they have ended, and said why. */
bool others_do(const struct others *others, enum order order, const struct scene *scene);
void others_stop(const struct others *others);
void others_continue(const struct others *others);
void others_end(struct others *others);

#endif
