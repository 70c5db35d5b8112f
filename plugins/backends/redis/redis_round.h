/* SPDX-License-Identifier: MIT */
/* A round of decisions of a session, between the files that it is made of: redis_decisions.c begins
 * it, redis_outcomes.c ends it. The caller of each function has the connection's lock. */
#ifndef WEIR_REDIS_ROUND_H
#define WEIR_REDIS_ROUND_H

#include "redis_connection.h"
#include "redis_states.h"

#define REDIS_OPERATIONS_MAX 128

enum redis_operation_kind {
    REDIS_OPERATION_GRANT,
    REDIS_OPERATION_TAKE,
    REDIS_OPERATION_END,
    REDIS_OPERATION_RETURN
};

struct redis_operation {
    uint32_t kind;
    struct redis_ticket *ticket;
    uint64_t serial; /* as it was sent with */
    uint8_t is_head; /* it is about the head of the wait queue, as it was sent */
};

struct redis_decisions {
    struct redis_session *session;
    struct redis_list ends;   /* releases, and parts that go back */
    struct redis_list asks;   /* requests */
    struct redis_list queued; /* waiters of the server, in their order */
    uint32_t call;            /* that is on its way: REDIS_CALL_FETCH, REDIS_CALL_COMMIT, or 0 */
    uint32_t conflicts;       /* in a row */
    uint32_t operations_n;
    uint32_t most;         /* operations up to the requests of the next round; 0: as many as fit */
    uint8_t is_busy;       /* in a round, or in what follows from a reply */
    uint8_t head_is_due;   /* the first waiter is to be decided */
    uint8_t head_is_sent;  /* it is granted by the commit */
    uint8_t has_waiters;   /* the server has some: requests have to queue */
    uint8_t is_full;       /* there may not be more */
    uint8_t knows_waiters; /* as of the exact instant; otherwise by those of this process */
    uint64_t version;      /* of the session, as of the call by which the instant is known */
    uint64_t resume_ns;    /* until then there is a pause; 0: none */
    uint64_t within_us;    /* of the commit that was sent, or is the least of the next; see below */
    uint64_t random;
    struct redis_states *states;
    struct redis_operation operations[REDIS_OPERATIONS_MAX]; /* of the commit */
};

/* The server takes decisions for so long after their instant that links which are slow are no
 * hindrance: for some times the `age_us` of one that it took, or not; and not beyond a session. It
 * is learned of each server, as others may be nearer. What was learned by a decision that was too
 * late holds until the server has taken one of this session: the texts of others may be shorter. */
void redis_round_set_within(struct redis_decisions *decisions, uint64_t age_us);
/* Begins no round for so long. */
void redis_round_pause(struct redis_decisions *decisions, uint64_t ns);
/* The text cannot be decided by: what was to be decided fails, what is held ends without it. */
void redis_round_give_up(struct redis_decisions *decisions);
/* Refuses what was refused in the round, is not ready at the instant, and was there when the call
 * was sent by which that is known. */
void redis_round_prove_refusals(struct redis_decisions *decisions);

#endif
