/* SPDX-License-Identifier: MIT */
/*
 * The others: a process that shares a set with whoever dies or is stopped. It has two members: one
 * holds and has a blocked waiter, the other waits for an acquisition's descriptor and in a queue.
 * It does what it is told, and ends if anything is not as it must be.
 */
#ifndef WEIR_TESTS_OTHERS_H
#define WEIR_TESTS_OTHERS_H

#include "shared.h"

#include <stdbool.h>

/* What they do around whoever is tried. */
struct scene {
    const char *name;
    uint64_t hold; /* they hold so much, first of all */
    const char
        *before; /* who is in line before the tried one comes: b: blocked; k: kept; q: queue */
    const char *after; /* who comes after it */
    uint64_t amount;   /* that each of those wants */
};

enum order {
    ORDER_HOLD,     /* they hold, and those before join the line */
    ORDER_JOIN,     /* those after join the line */
    ORDER_LINE,     /* the line comes to have only those in it that wait for what is held here */
    ORDER_LOOK,     /* whoever can get what he wants gets it, though nobody does anything else */
    ORDER_WAIT,     /* their waiters get what they want, and give it back */
    ORDER_RELEASE,  /* they hold no longer */
    ORDER_NEWCOMER, /* a new member takes what there is */
    ORDER_NEWCOMER_LEAVES, /* and still has it, which is all that is held */
    ORDER_CHECK,           /* nobody is left; everything is there */
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
