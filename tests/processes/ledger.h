/* SPDX-License-Identifier: MIT */
/*
 * A ledger of grants in memory that processes share, which stays true whoever dies when: a worker
 * writes into its own account only, after a grant has come and before it goes back. So it never
 * says that more was granted, or less given back, than really was, and what it finds to be too much
 * is too much. Who is about to be killed is marked before: what it holds from then on counts no
 * more, for others may have it back at any moment.
 *
 * One process, the auditor, clears accounts of the dead and checks the bounds.
 */
#ifndef WEIR_TESTS_LEDGER_H
#define WEIR_TESTS_LEDGER_H

#include "lib/history.h"
#include <stdatomic.h>
#include <stdint.h>

enum { LEDGER_WORKERS = 8, LEDGER_ROOM = 1 << 13 };

/* The limits of the set, in this order. */
enum { TOKENS, BYTES, CALLS, DB, FILES };

/* Five limits, of which there is always too little. */
extern const char ledger_set[];
extern const char *const ledger_keys[HISTORY_LIMITS];
extern const uint64_t ledger_capacities[HISTORY_LIMITS];

struct account {
    _Atomic int pid;
    _Atomic uint64_t progress;            /* steps done */
    _Atomic uint32_t doing;               /* the step under way */
    _Atomic uint32_t resting;             /* it has seen that it should, and holds nothing */
    _Atomic uint64_t events_n, refunds_n; /* ever */
    _Atomic uint64_t events_lost;         /* there was no room for them */
    _Atomic uint64_t events_read, refunds_read;
    _Atomic bool refunding; /* `refund` may be under way */
    struct refund refund;
    struct event events[LEDGER_ROOM];
    struct refund refunds[LEDGER_ROOM];
};

struct ledger {
    _Atomic uint64_t holders; /* a byte per worker: db:3, files:3, 1, doomed:1 */
    _Atomic uint32_t rest;
    struct account accounts[LEDGER_WORKERS];
};

extern struct ledger *ledger;

/* Maps an empty one, which children share. */
void ledger_begin(void);
void ledger_end(void);

/* ---- by a worker, of its own account ---- */

/* It holds these amounts of resources; ends the process if that is too much. */
void ledger_hold(int worker, const uint64_t *amounts);
/* It is about to give them back. */
void ledger_let_go(int worker, const uint64_t *amounts);
void ledger_grant(int worker, const struct event *event);
/* It is about to give back at most these amounts of rates; and has done so, which may count as of
 * an instant that is so much later. */
void ledger_refund_begin(int worker, const uint64_t *amounts);
void ledger_refund_end(int worker, uint64_t later_ns);

/* ---- by the auditor ---- */

/* Before a worker is killed. */
void ledger_doom(int worker);
/* Once it is dead. */
void ledger_bury(int worker);
/* Takes what is new out of the accounts. */
void ledger_read(void);
/* Checks what was taken out so far, rates and order, and forgets it. */
void ledger_check(void);
/* How many grants were checked. */
uint64_t ledger_grants(void);

#endif
