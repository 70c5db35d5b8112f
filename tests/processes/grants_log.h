/* SPDX-License-Identifier: MIT */
/*
 * A log of grants in shared memory, which stays true whenever a worker dies. Each worker writes
 * into its own account only, after a grant has come and before it goes back. So the log never says
 * that more was granted, or less given back, than really was, and an excess that it shows is real.
 * A worker is marked before it is killed: what it holds from then on does not count, as others may
 * have it back at any moment.
 *
 * One process, the auditor, clears accounts of the dead and checks the bounds.
 */
#ifndef WEIR_TESTS_GRANTS_LOG_H
#define WEIR_TESTS_GRANTS_LOG_H

#include "lib/history.h"
#include <stdatomic.h>
#include <stdint.h>

enum { ACCOUNTS = 8, ACCOUNT_ROOM = 1 << 13 };

/* The limits of the set, in this order. */
enum { TOKENS, BYTES, CALLS, DB, FILES };

/* Five limits, of which there is always too little. With strict refunds if the log says so: then
 * what is used keeps the bounds of the rates, whatever is refunded. */
const char *account_set(void);
extern const char *const account_keys[HISTORY_LIMITS];
extern const uint64_t account_capacities[HISTORY_LIMITS];

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
    struct event events[ACCOUNT_ROOM];
    struct refund refunds[ACCOUNT_ROOM];
    _Atomic uint64_t uses_n,
        uses_read; /* if refunds are strict: grants with what was used of them */
    struct event uses[ACCOUNT_ROOM];
};

struct grants_log {
    _Atomic uint64_t holders; /* a byte per worker: db:3, files:3, 1, doomed:1 */
    _Atomic uint32_t rest;
    _Atomic uint32_t few_descriptors; /* half of the workers that begin have hardly any */
    bool strict;                      /* refunds are; set before there are workers */
    struct account accounts[ACCOUNTS];
};

extern struct grants_log *grants_log;

/* Maps an empty one, which children share. */
void account_begin(bool strict);
void account_end(void);

/* ---- by a worker, of its own account ---- */

/* It holds these amounts of resources; ends the process if that is too much. */
void account_hold(int worker, const uint64_t *amounts);
/* It is about to give them back. */
void account_let_go(int worker, const uint64_t *amounts);
void account_grant(int worker, const struct event *event);
/* A grant is over, and these amounts were used of it. */
void account_use(int worker, const struct event *event);
/* It is about to give back at most these amounts of rates; and has done so, which may count as of
 * an instant that is so much later. */
void account_refund_begin(int worker, const uint64_t *amounts);
void account_refund_end(int worker, uint64_t later_ns);

/* ---- by the auditor ---- */

/* Before a worker is killed. */
void account_doom(int worker);
/* Once it is dead. */
void account_clear(int worker);
/* Takes what is new out of the accounts. */
void accounts_read(void);
/* Checks what was taken out so far, rates and order, and forgets it. */
void accounts_check(void);
/* How many grants were checked. */
uint64_t account_grants(void);

#endif
