/* SPDX-License-Identifier: MIT */
/* The text of limits that the server does not decide. */
#include "redis_states.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* For so long an instant is estimated, at most: clocks differ in speed. */
#define ESTIMATE_NS UINT64_C(1000000000)
/* The estimate is behind by this part: an instant ahead of the server's is of no use. */
#define ESTIMATE_PART 1024
#define INSTANT_MAX   (WEIR_CLOCK_MAX / REDIS_US)

struct redis_states *redis_states_new(const struct redis_set *set)
{
    size_t words = set->states_size / sizeof(uint64_t), n = set->limits_n;
    struct redis_states *states =
        calloc(1, sizeof(*states) + (2 * words + 3 * n) * sizeof(uint64_t));
    if (!states)
        return NULL;
    states->set = set;
    states->known = states->memory;
    states->work = states->known + words;
    states->balances = states->work + words;
    states->missing = states->balances + 2 * n;
    return states;
}

void redis_states_free(struct redis_states *states)
{
    free(states);
}

/* Has the core do something to a text. */
static int states_do(const struct redis_states *states, uint64_t *text, uint32_t deed,
                     struct weir_backend_decision *decision)
{
    const struct weir_backend_host *host = states->set->connection->host;
    decision->size = sizeof(*decision);
    decision->deed = deed;
    decision->states = text;
    decision->at.now_ns = states->at_us * REDIS_US;
    decision->at.wall_offset_ns =
        ((int64_t)states->clock_us - (int64_t)states->now_us) * (int64_t)REDIS_US;
    return host->decide(host->context, states->set->context, decision);
}

static int states_read_balances(struct redis_states *states, const struct redis_reply *reply)
{
    uint32_t n = 2 * states->set->limits_n;
    if (reply->type != REDIS_ARRAY || reply->elements_n != n)
        return -EPROTO;
    for (uint32_t i = 0; i < n; i++) {
        int64_t units = redis_reply_integer(reply, i, 0);
        if (units < 0)
            return -EPROTO;
        states->balances[i] = states->set->returns[i / 2] ? (uint64_t)units : 0;
    }
    return 0;
}

/* No text is that of a new set. */
static int states_read_text(struct redis_states *states, const struct redis_reply *reply)
{
    struct weir_backend_decision decision = {0};
    states->at_us = states->now_us;
    if (reply->size == 0)
        return states_do(states, states->known, WEIR_BACKEND_BEGIN, &decision);
    if (reply->size != states->set->states_size)
        return -EUCLEAN;
    memcpy(states->known, reply->text, reply->size);
    return states_do(states, states->known, WEIR_BACKEND_CHECK, &decision);
}

int redis_states_read(struct redis_states *states, const struct redis_reply *reply,
                      const struct redis_states_place *place)
{
    int64_t version = redis_reply_integer(reply, place->version, 0);
    int64_t now = redis_reply_integer(reply, place->now, 0);
    int64_t clock = redis_reply_integer(reply, place->clock, 0);
    states->is_known = 0;
    if (version < 0 || now < 0 || clock < 0 || now > (int64_t)INSTANT_MAX ||
        clock > (int64_t)INSTANT_MAX || reply->elements_n <= place->text ||
        reply->elements_n <= place->balances || reply->elements[place->text].type != REDIS_TEXT ||
        states_read_balances(states, &reply->elements[place->balances]) < 0)
        return -EPROTO;
    states->version = (uint64_t)version;
    states->now_us = (uint64_t)now;
    states->clock_us = (uint64_t)clock;
    states->received_ns = redis_boot_ns();
    int r = states_read_text(states, &reply->elements[place->text]);
    states->is_known = states->is_exact = r == 0;
    return r;
}

int redis_states_are_usable(const struct redis_states *states, uint64_t now_ns)
{
    return states->is_known && (states->is_exact || now_ns - states->received_ns < ESTIMATE_NS);
}

int redis_states_begin(struct redis_states *states, uint64_t now_ns)
{
    uint64_t passed = now_ns - states->received_ns, owed[REDIS_LIMITS_MAX], n = 0;
    passed -= passed / ESTIMATE_PART;
    states->at_us = states->now_us + (states->is_exact ? 0 : passed / REDIS_US);
    memcpy(states->work, states->known, states->set->states_size);
    for (uint32_t i = 0; i < states->set->limits_n; i++) {
        states->missing[i] = states->balances[2 * i + 1];
        n |= owed[i] = states->balances[2 * i];
    }
    if (n == 0)
        return 0;
    struct weir_backend_decision decision = {.amounts = owed,
                                             .used = owed,
                                             .outcome = WEIR_OUTCOME_DROPPED,
                                             .granted_ns = states->at_us * REDIS_US};
    return states_do(states, states->work, WEIR_BACKEND_GIVE_BACK, &decision);
}

void redis_states_keep(struct redis_states *states)
{
    uint64_t *work = states->work;
    states->work = states->known;
    states->known = work;
    for (uint32_t i = 0; i < states->set->limits_n; i++) {
        states->balances[2 * i] = 0;
        states->balances[2 * i + 1] = states->missing[i];
    }
}

static int states_ask(struct redis_states *states, struct redis_ticket *ticket, uint32_t deed)
{
    struct weir_backend_decision decision = {.amounts = ticket->amounts};
    int r = states_do(states, states->work, deed, &decision);
    ticket->limiting = -1;
    ticket->ready_us = REDIS_NEVER;
    ticket->is_impossible = 0;
    if (r != -EAGAIN)
        return r;
    ticket->limiting = decision.limit;
    ticket->is_impossible = decision.ready_ns == WEIR_NEVER;
    if (decision.ready_ns < WEIR_BLOCKED)
        ticket->ready_us = decision.ready_ns / REDIS_US + (decision.ready_ns % REDIS_US != 0);
    return r;
}

int redis_states_take(struct redis_states *states, struct redis_ticket *ticket)
{
    return states_ask(states, ticket, WEIR_BACKEND_DECIDE);
}

int redis_states_foresee(struct redis_states *states, struct redis_ticket *ticket)
{
    return states_ask(states, ticket, WEIR_BACKEND_FORESEE);
}

/* Releases, refunds or charges. Units of a resource that the text lacks are not in it to be
 * released. */
static int states_give_back(struct redis_states *states, uint64_t *amounts,
                            struct weir_backend_decision *decision)
{
    for (uint32_t i = 0; i < states->set->limits_n; i++) {
        uint64_t lacking = states->set->returns[i] ? states->missing[i] : 0;
        lacking = lacking < amounts[i] ? lacking : amounts[i];
        states->missing[i] -= lacking;
        amounts[i] -= lacking;
    }
    decision->amounts = amounts;
    return states_do(states, states->work, WEIR_BACKEND_GIVE_BACK, decision);
}

/* Of rates, what the text may never have taken is not given back: it counts as used. */
int redis_states_end(struct redis_states *states, const struct redis_ticket *ticket)
{
    uint64_t amounts[REDIS_LIMITS_MAX], used[REDIS_LIMITS_MAX];
    struct weir_backend_decision decision = {.used = used,
                                             .undo = ticket->undo && !ticket->is_asserted,
                                             .granted_ns = ticket->at_us * REDIS_US,
                                             .latency_ns = ticket->latency_ns,
                                             .outcome = ticket->undo ? WEIR_OUTCOME_CANCELED
                                                                     : ticket->outcome};
    for (uint32_t i = 0; i < states->set->limits_n; i++) {
        amounts[i] = ticket->amounts[i];
        used[i] = ticket->used[i];
        if (ticket->is_asserted && used[i] < amounts[i])
            used[i] = amounts[i];
    }
    return states_give_back(states, amounts, &decision);
}

int redis_states_return(struct redis_states *states, const struct redis_ticket *ticket,
                        const uint64_t *left)
{
    static const uint64_t nothing[REDIS_LIMITS_MAX];
    uint64_t amounts[REDIS_LIMITS_MAX];
    struct weir_backend_decision decision = {
        .used = nothing, .granted_ns = ticket->at_us * REDIS_US, .outcome = WEIR_OUTCOME_IGNORED};
    for (uint32_t i = 0; i < states->set->limits_n; i++)
        amounts[i] = ticket->before[i] - left[i];
    return states_give_back(states, amounts, &decision);
}

int64_t redis_states_last_us(struct redis_states *states)
{
    struct weir_backend_decision decision = {0};
    if (states_do(states, states->work, WEIR_BACKEND_LAST, &decision) < 0 ||
        decision.ready_ns > WEIR_CLOCK_MAX)
        return -1;
    return (int64_t)(decision.ready_ns / REDIS_US + 1 - states->at_us);
}

int redis_states_look(struct redis_states *states, struct weir_backend_limit_stats *ret)
{
    struct weir_backend_decision decision = {.stats = ret};
    int r = redis_states_begin(states, states->received_ns);
    return r < 0 ? r : states_do(states, states->work, WEIR_BACKEND_LOOK, &decision);
}

int redis_states_renew(struct redis_states *states, uint64_t now_us)
{
    struct weir_backend_decision decision = {0};
    states->at_us = states->now_us = states->clock_us = now_us;
    return states_do(states, states->known, WEIR_BACKEND_BEGIN, &decision);
}
