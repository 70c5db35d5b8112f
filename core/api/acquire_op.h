/* SPDX-License-Identifier: MIT */
/* One call that asks for something, from the caller's request to the set's answer. */
#ifndef WEIR_CORE_API_ACQUIRE_OP_H
#define WEIR_CORE_API_ACQUIRE_OP_H

#include "api/acquisition.h"
#include "api/request.h"

struct asking {
    const struct weir_request *request; /* the caller's, or what stands for none */
    weir_set *set;
    struct actor *actor;
    struct key key;                /* if the set is keyed */
    weir_acquisition *acquisition; /* for it, or NULL: there is none yet, or none at all */
    struct weir_refusal *retref;
    struct verdict verdict;
    uint64_t amounts[WEIR_LIMITS_MAX];
};

/*
 * Picks a set, turns keys into amounts, and finds the thread's actor: 0. Otherwise an error of the
 * request or of the instance, counted, and told to `retref` if a key is to blame.
 */
int asking_begin(struct asking *asking, weir_pool *pool, const struct weir_request *request,
                 enum purpose purpose, struct weir_refusal *retref);

/* Fills a free record for this request, as one that a blocked thread waits on. */
void asking_fill(const struct asking *asking, uint32_t record);

/* asking_ask() of a keyed set. */
int asking_ask_keyed(struct asking *asking, uint32_t record, enum entry entry,
                     uint64_t max_wait_ns);

/* As set_enter(), with all that was asked for; of a keyed set `set` may be another afterwards. */
static inline int asking_ask(struct asking *asking, uint32_t record, enum entry entry,
                             uint64_t max_wait_ns)
{
    if (asking->set->keyed)
        return asking_ask_keyed(asking, record, entry, max_wait_ns);
    return set_enter(asking->actor, asking->set, asking->amounts, record, entry, max_wait_ns,
                     &asking->verdict);
}

/* Asks the set; a refusal is told to the caller, except after a probe, who comes back to wait. */
int asking_enter(struct asking *asking, uint32_t record, enum entry entry);

/*
 * A new acquisition that holds what was asked for if that can be had at once, or in advance: 0.
 * Otherwise, as `entry` says: -EAGAIN after a probe leaves `*ret`, every other failure frees it.
 */
int asking_start(struct asking *asking, enum entry entry, weir_acquisition **ret);

/*
 * The record, kept as `kept`, has joined the line and become `word`. Of a set that processes share
 * it is looked after from here on, whatever they do.
 */
void asking_stay(struct asking *asking, uint32_t kept, uint64_t word);

/*
 * The record is about to join a line: of a set that processes share others see when its wait is to
 * end, should this process be stopped.
 */
void asking_publish_deadline(const struct asking *asking, uint32_t record);

/* Tells a refusal to `ret`, which may be NULL. */
void asking_say(struct weir_refusal *ret, const weir_set *set, const struct verdict *verdict);

/* When a wait that begins at the verdict ends, and what the record becomes then. */
uint64_t asking_deadline(const struct asking *asking, enum record_state *ret_state);

#endif
