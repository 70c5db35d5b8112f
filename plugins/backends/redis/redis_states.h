/* SPDX-License-Identifier: MIT */
/*
 * The text of a set with limits that the server does not decide: states of these limits, which mean
 * something to the core only. The text as the server had it last, and a copy that is decided by.
 *
 * The caller of each function has the connection's lock.
 */
#ifndef WEIR_REDIS_STATES_H
#define WEIR_REDIS_STATES_H

#include "redis_connection.h"
#include "redis_reply.h"

/* The text of a reply. */
struct redis_states_place {
    uint32_t version, now, clock, text, balances; /* elements */
};

struct redis_states {
    const struct redis_set *set;
    uint64_t version, now_us, clock_us;
    uint64_t received_ns; /* by CLOCK_BOOTTIME; `now_us` was the instant then, or before */
    uint64_t at_us;       /* the instant that is decided by */
    uint8_t is_known;
    uint8_t is_exact;   /* `now_us` is the instant: the reply has just come */
    uint64_t *known;    /* as the server has it */
    uint64_t *work;     /* as it is to be, aligned */
    uint64_t *balances; /* for each limit, of resources: units that the text counts too much as
                           held, and units that it lacks */
    uint64_t *missing;  /* units that `work` lacks */
    uint64_t memory[];
};

/* Returns NULL if there is no memory. */
struct redis_states *redis_states_new(const struct redis_set *set);
void redis_states_free(struct redis_states *states);

/* Takes what a reply says. Returns 0; -EPROTO; or -EUCLEAN: the text is none of these limits. */
int redis_states_read(struct redis_states *states, const struct redis_reply *reply,
                      const struct redis_states_place *place);
/* Returns 1 if it can be decided by what is known: the instant is not estimated from long ago. */
int redis_states_are_usable(const struct redis_states *states, uint64_t now_ns);
/* What is decided next is decided by what is known. Returns 0 or -EUCLEAN. */
int redis_states_begin(struct redis_states *states, uint64_t now_ns);
/* What was decided is known: the server has it. */
void redis_states_keep(struct redis_states *states);

/* Takes what a ticket asks for. Returns 0; -EAGAIN: the ticket has the limit and the instant, in
 * us, rounded up; -EUCLEAN. */
int redis_states_take(struct redis_states *states, struct redis_ticket *ticket);
/* Tells what that would say, and takes nothing. */
int redis_states_foresee(struct redis_states *states, struct redis_ticket *ticket);
/* Gives back what a ticket holds; or a part of it: all but `left`. Returns 0 or -EUCLEAN. */
int redis_states_end(struct redis_states *states, const struct redis_ticket *ticket);
int redis_states_return(struct redis_states *states, const struct redis_ticket *ticket,
                        const uint64_t *left);
/* Returns us for which the text differs from a new one; -1: for ever. */
int64_t redis_states_last_us(struct redis_states *states);
/* Fills what is available and held. Returns 0 or -EUCLEAN. */
int redis_states_look(struct redis_states *states, struct weir_backend_limit_stats *ret);
/* Has it be that of a set that is new at this instant. Returns 0 or -EUCLEAN. */
int redis_states_renew(struct redis_states *states, uint64_t now_us);

#endif
