/* SPDX-License-Identifier: MIT */
/* What is to be decided, and the rounds in which that is done. */
#include "redis_decisions.h"

#include "redis_calls.h"
#include "redis_due.h"
#include "redis_round.h"
#include "redis_session.h"
#include "redis_tickets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ENDS_MAX 96                /* of a commit, while requests wait for a decision */
#define PAUSE_NS UINT64_C(1000000) /* too much is on its way, or there is no memory */
/* Decisions are taken by the server for so long, at least: a busy machine is no slow link. */
#define WITHIN_US    UINT64_C(20000)
#define WITHIN_TIMES 4

/* ---- what is to be decided ---- */

static void list_add(struct redis_list *list, struct redis_ticket *ticket)
{
    ticket->list = list;
    ticket->list_next = NULL;
    ticket->list_previous = list->last;
    if (list->last)
        list->last->list_next = ticket;
    else
        list->first = ticket;
    list->last = ticket;
}

static struct redis_decisions *decisions_of(struct redis_session *session)
{
    struct redis_decisions *decisions = session->decisions;
    if (decisions)
        return decisions;
    decisions = calloc(1, sizeof(*decisions));
    if (!decisions)
        return NULL;
    decisions->states = redis_states_new(session->set);
    if (!decisions->states) {
        free(decisions);
        return NULL;
    }
    decisions->session = session;
    decisions->random = redis_boot_ns() ^ (uintptr_t)decisions;
    session->decisions = decisions;
    return decisions;
}

void redis_decisions_free(struct redis_session *session)
{
    if (!session->decisions)
        return;
    redis_states_free(session->decisions->states);
    free(session->decisions);
    session->decisions = NULL;
}

int redis_decisions_have(const struct redis_ticket *ticket)
{
    switch (ticket->state) {
    case REDIS_ASKING:
        return ticket->is_foreign && !ticket->queues && !ticket->unsure;
    case REDIS_HELD:
        return ticket->is_foreign && ticket->returns && !ticket->is_plain;
    case REDIS_RELEASING:
        return ticket->is_foreign && !ticket->is_plain && !ticket->unsure;
    default:
        return 0;
    }
}

int redis_decisions_add(struct redis_ticket *ticket)
{
    struct redis_decisions *decisions = decisions_of(ticket->session);
    if (!decisions)
        return -ENOMEM;
    if (!ticket->list) {
        ticket->version = ++ticket->session->version;
        ticket->is_refused = 0;
        list_add(ticket->state == REDIS_ASKING ? &decisions->asks : &decisions->ends, ticket);
        ticket->session->set->connection->undone_n += ticket->list == &decisions->ends;
    }
    redis_decisions_go(ticket->session);
    return 0;
}

void redis_decisions_drop(struct redis_ticket *ticket)
{
    struct redis_list *list = ticket->list;
    if (!list)
        return;
    ticket->session->set->connection->undone_n -= list == &ticket->session->decisions->ends;
    if (ticket->list_previous)
        ticket->list_previous->list_next = ticket->list_next;
    else
        list->first = ticket->list_next;
    if (ticket->list_next)
        ticket->list_next->list_previous = ticket->list_previous;
    else
        list->last = ticket->list_previous;
    ticket->list = NULL;
}

/* All waiters, as any of them may be the head. Without memory it is decided at a heartbeat. */
void redis_decisions_queue(struct redis_ticket *ticket)
{
    struct redis_decisions *decisions =
        ticket->session->set->states_size > 0 ? decisions_of(ticket->session) : NULL;
    if (decisions)
        list_add(&decisions->queued, ticket);
}

/* What is still to be given back may have been lost there, as far as the text counts it. So the
 * server says what of it is left, and it is given back without its algorithms. */
void redis_decisions_restart(struct redis_session *session)
{
    struct redis_ticket *ticket = session->first;
    for (; ticket; ticket = ticket->next) {
        if (!ticket->is_foreign)
            continue;
        ticket->is_asserted |= ticket->state == REDIS_HELD;
        if (ticket->state != REDIS_RELEASING && (ticket->state != REDIS_HELD || !ticket->returns))
            continue;
        redis_decisions_drop(ticket);
        ticket->is_plain = 1;
        ticket->unsure = 0;
        redis_ticket_set_unsent(ticket);
    }
}

void redis_decisions_forget(struct redis_session *session)
{
    if (session->decisions)
        session->decisions->states->is_known = 0;
}

/* ---- a round ---- */

void redis_round_set_within(struct redis_decisions *decisions, uint64_t age_us)
{
    const struct redis_set *set = decisions->session->set;
    uint64_t most = set->connection->options.definition.session_us;
    uint64_t us = age_us < most ? WITHIN_TIMES * age_us : most;
    decisions->session->server->within_us = us < most ? us : most;
}

/* Returns for how long the next commit is to be taken. */
static uint64_t decisions_within_us(const struct redis_decisions *decisions)
{
    uint64_t us = decisions->session->server->within_us;
    us = us > decisions->within_us ? us : decisions->within_us;
    return us > WITHIN_US ? us : WITHIN_US;
}

void redis_round_pause(struct redis_decisions *decisions, uint64_t ns)
{
    decisions->resume_ns = redis_boot_ns() + ns;
    redis_due_by(decisions->session, decisions->resume_ns);
}

void redis_round_give_up(struct redis_decisions *decisions)
{
    struct redis_ticket *ticket;
    decisions->states->is_known = 0;
    decisions->head_is_due = 0;
    while ((ticket = decisions->asks.first)) {
        redis_decisions_drop(ticket);
        redis_ticket_fail(ticket, -EUCLEAN);
    }
    while ((ticket = decisions->ends.first)) {
        redis_decisions_drop(ticket);
        ticket->is_plain = 1;
        redis_ticket_send(ticket);
    }
    for (struct redis_ticket *next = decisions->queued.first; (ticket = next);) {
        next = ticket->list_next;
        if (ticket->is_foreign)
            redis_ticket_fail(ticket, -EUCLEAN);
    }
}

static void decisions_operate(struct redis_decisions *decisions, enum redis_operation_kind kind,
                              struct redis_ticket *ticket)
{
    decisions->operations[decisions->operations_n++] = (struct redis_operation){
        .kind = kind, .ticket = ticket, .is_head = ticket->state == REDIS_QUEUED};
}

/* What a part leaves that goes back is kept until the server has said that it has it: there may be
 * another part by then. */
static int decisions_return(struct redis_decisions *decisions, struct redis_ticket *ticket)
{
    uint32_t n = ticket->session->set->limits_n;
    uint64_t *left = ticket->before + n;
    memcpy(left, ticket->amounts, n * sizeof(*left));
    decisions_operate(decisions, REDIS_OPERATION_RETURN, ticket);
    return redis_states_return(decisions->states, ticket, left);
}

/* Releases come first: they make room. The head keeps a place in the commit. A ticket may take two.
 */
static int decisions_decide_ends(struct redis_decisions *decisions)
{
    uint32_t most = decisions->asks.first ? ENDS_MAX : REDIS_OPERATIONS_MAX - 1;
    struct redis_ticket *ticket = decisions->ends.first;
    int r = 0;
    for (; ticket && r == 0 && decisions->operations_n < most - 1; ticket = ticket->list_next) {
        if (ticket->returns)
            r = decisions_return(decisions, ticket);
        if (r < 0 || ticket->state != REDIS_RELEASING)
            continue;
        decisions_operate(decisions, REDIS_OPERATION_END, ticket);
        r = redis_states_end(decisions->states, ticket);
    }
    return r;
}

/* If it is not ready yet, it is decided again then, or when the server says so. */
static int decisions_decide_head(struct redis_decisions *decisions)
{
    struct redis_ticket *ticket = decisions->queued.first;
    struct redis_session *session = decisions->session;
    if (!decisions->head_is_due)
        return 0;
    if (!ticket || !ticket->is_foreign || ticket->unsure) {
        decisions->head_is_due = 0;
        return 0;
    }
    int r = redis_states_take(decisions->states, ticket);
    if (r == 0)
        decisions_operate(decisions, REDIS_OPERATION_GRANT, ticket);
    if (r != -EAGAIN)
        return r;
    decisions->head_is_due = 0;
    session->pump_ns = REDIS_NEVER;
    if (ticket->ready_us < REDIS_NEVER) {
        session->pump_ns =
            redis_boot_ns() + (ticket->ready_us - decisions->states->at_us) * REDIS_US;
        redis_due_by(session, session->pump_ns);
    }
    return 0;
}

/* Returns 1 if a request that was refused in the round is to wait, before those that come later. */
static int decisions_will_wait(const struct redis_decisions *decisions,
                               const struct redis_ticket *ticket)
{
    if (ticket->mode != WEIR_BACKEND_WAIT || ticket->is_impossible)
        return 0;
    return ticket->ready_us == REDIS_NEVER ||
           ticket->ready_us - decisions->states->now_us <= ticket->max_wait_ns / REDIS_US;
}

/* Requests are refused in the round only: what of that is proved comes later. */
static int decisions_decide_asks(struct redis_decisions *decisions)
{
    const struct redis_set *set = decisions->session->set;
    int has_head = decisions->operations_n > 0 && decisions->head_is_due;
    int is_known = decisions->states->is_exact && decisions->knows_waiters;
    int must_queue =
        set->is_fair && (is_known ? decisions->has_waiters : decisions->session->waits_n > 0);
    uint32_t most = decisions->most > 0 ? decisions->most : REDIS_OPERATIONS_MAX;
    struct redis_ticket *ticket = decisions->asks.first;
    for (; ticket && decisions->operations_n < most; ticket = ticket->list_next) {
        ticket->is_refused = 0;
        if (has_head && set->is_fair)
            continue; /* the head leaves first */
        int r = must_queue ? redis_states_foresee(decisions->states, ticket)
                           : redis_states_take(decisions->states, ticket);
        if (r < 0 && r != -EAGAIN)
            return r;
        ticket->is_behind = (uint8_t)must_queue;
        ticket->is_refused = must_queue || r == -EAGAIN;
        if (set->is_fair && r == -EAGAIN && decisions_will_wait(decisions, ticket))
            must_queue = 1;
        if (!ticket->is_refused)
            decisions_operate(decisions,
                              ticket->mode == WEIR_BACKEND_TAKE ? REDIS_OPERATION_TAKE
                                                                : REDIS_OPERATION_GRANT,
                              ticket);
    }
    for (; ticket; ticket = ticket->list_next)
        ticket->is_refused = 0; /* not in this round */
    return 0;
}

/* Refuses a request for the limits that are decided here, or has it wait. A full wait queue says so
 * itself. */
static void decisions_refuse(const struct redis_decisions *decisions, struct redis_ticket *ticket,
                             uint64_t us)
{
    int code = ticket->is_impossible ? -ERANGE : -EAGAIN;
    int waits = ticket->mode == WEIR_BACKEND_WAIT && code == -EAGAIN;
    ticket->is_too_late = waits && us < REDIS_NEVER && us > ticket->max_wait_ns / REDIS_US;
    if (ticket->is_too_late && !decisions->knows_waiters)
        return;
    if (waits && (!ticket->is_too_late || decisions->is_full)) {
        ticket->ready_us = us;
        redis_ticket_enqueue(ticket);
        return;
    }
    redis_decisions_drop(ticket);
    redis_ticket_refuse(ticket, code, ticket->limiting, us == REDIS_NEVER ? -1 : (int64_t)us);
}

void redis_round_prove_refusals(struct redis_decisions *decisions)
{
    uint64_t now_us = decisions->states->now_us;
    struct redis_ticket *ticket = decisions->asks.first, *last = decisions->asks.last, *next;
    for (; ticket; ticket = next) {
        next = ticket != last ? ticket->list_next : NULL;
        int is_refused = ticket->is_refused;
        ticket->is_refused = 0;
        if (!is_refused || ticket->version > decisions->version ||
            (ticket->is_behind ? !decisions->knows_waiters : ticket->ready_us <= now_us))
            continue;
        uint64_t us = REDIS_NEVER;
        if (ticket->ready_us < REDIS_NEVER && ticket->ready_us > now_us)
            us = ticket->ready_us - now_us;
        decisions_refuse(decisions, ticket, us);
    }
}

static int decisions_call(struct redis_decisions *decisions, enum redis_call_kind kind)
{
    struct redis_session *session = decisions->session;
    int r = redis_call_end(session->server, &(struct redis_call){.kind = kind,
                                                                 .session = session,
                                                                 .version = session->version,
                                                                 .is_urgent = 1});
    if (r == 0)
        decisions->call = kind;
    return r;
}

static int decisions_call_fetch(struct redis_decisions *decisions)
{
    redis_call_begin(decisions->session, "weir_fetch", 0);
    return decisions_call(decisions, REDIS_CALL_FETCH);
}

static void decisions_add_numbers(struct redis_buffer *outbox, const uint64_t *numbers, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        redis_buffer_number(outbox, (int64_t)numbers[i]);
}

/* A request gets a new serial number each time: those before had no effect. */
static void decisions_add_operation(struct redis_buffer *outbox, struct redis_operation *operation)
{
    static const char *const names[] = {"grant", "take", "end", "return"};
    struct redis_ticket *ticket = operation->ticket;
    uint32_t n = ticket->session->set->limits_n;
    int is_undone = operation->kind == REDIS_OPERATION_END && ticket->undo;
    if (ticket->state == REDIS_ASKING && operation->kind == REDIS_OPERATION_GRANT)
        redis_ticket_name(ticket);
    operation->serial = ticket->serial;
    redis_buffer_text(outbox, is_undone ? "undo" : names[operation->kind]);
    if (operation->kind != REDIS_OPERATION_TAKE) {
        redis_buffer_number(outbox, ticket->slot);
        redis_buffer_number(outbox, (int64_t)ticket->serial);
    }
    if (operation->kind == REDIS_OPERATION_RETURN)
        decisions_add_numbers(outbox, ticket->before, 2 * n);
    else
        decisions_add_numbers(
            outbox, operation->kind == REDIS_OPERATION_END ? ticket->used : ticket->amounts, n);
}

static int decisions_call_commit(struct redis_decisions *decisions)
{
    struct redis_session *session = decisions->session;
    struct redis_states *states = decisions->states;
    struct redis_buffer *outbox = &session->server->outbox;
    uint32_t n = session->set->limits_n;
    size_t words = 6 + n;
    for (uint32_t i = 0; i < decisions->operations_n; i++) {
        uint32_t kind = decisions->operations[i].kind;
        words += kind == REDIS_OPERATION_TAKE     ? 1 + n
                 : kind == REDIS_OPERATION_RETURN ? 3 + 2 * n
                                                  : 3 + n;
    }
    decisions->within_us = decisions_within_us(decisions);
    redis_call_begin(session, "weir_commit", words);
    redis_buffer_word(outbox, "", 0);
    redis_buffer_number(outbox, (int64_t)states->version);
    redis_buffer_number(outbox, (int64_t)states->at_us);
    redis_buffer_number(outbox, (int64_t)decisions->within_us);
    redis_buffer_number(outbox, redis_states_last_us(states));
    redis_buffer_word(outbox, states->work, session->set->states_size);
    decisions_add_numbers(outbox, states->missing, n);
    for (uint32_t i = 0; i < decisions->operations_n; i++)
        decisions_add_operation(outbox, &decisions->operations[i]);
    int r = decisions_call(decisions, REDIS_CALL_COMMIT);
    for (uint32_t i = 0; i < decisions->operations_n && r == 0; i++)
        decisions->operations[i].ticket->calls_n++;
    if (r == 0) {
        decisions->head_is_sent = decisions->head_is_due;
        decisions->head_is_due = 0; /* unless another message comes */
    }
    return r;
}

static int decisions_decide(struct redis_decisions *decisions)
{
    decisions->operations_n = 0;
    int r = redis_states_begin(decisions->states, redis_boot_ns());
    if (r == 0)
        r = decisions_decide_ends(decisions);
    if (r == 0)
        r = decisions_decide_head(decisions);
    return r == 0 ? decisions_decide_asks(decisions) : r;
}

/* One round. Returns 1 if there may be another one at once. */
static int decisions_round(struct redis_decisions *decisions)
{
    struct redis_states *states = decisions->states;
    struct redis_session *session = decisions->session;
    int was_exact = states->is_exact;
    int r = redis_calls_are_full(session->server) ? -ENOBUFS : redis_session_open(session);
    if (r == 0 && !redis_states_are_usable(states, redis_boot_ns())) {
        r = decisions_call_fetch(decisions);
    } else if (r == 0 && decisions_decide(decisions) < 0) {
        redis_round_give_up(decisions);
        return 0;
    } else if (r == 0 && decisions->operations_n > 0) {
        r = decisions_call_commit(decisions);
    } else if (r == 0 && was_exact) {
        states->is_exact = 0;
        decisions->conflicts = 0; /* there is nothing to be committed */
        redis_round_prove_refusals(decisions);
        return 1;
    } else if (r == 0 && decisions->asks.first) {
        r = decisions_call_fetch(decisions);
    }
    states->is_exact = 0;
    if (r < 0)
        redis_round_pause(decisions, PAUSE_NS);
    return 0;
}

static int decisions_may_begin(const struct redis_decisions *decisions)
{
    return decisions->call == 0 && decisions->resume_ns == 0 &&
           redis_session_can_send(decisions->session) &&
           (decisions->ends.first || decisions->asks.first ||
            (decisions->head_is_due && decisions->queued.first));
}

void redis_decisions_go(struct redis_session *session)
{
    struct redis_decisions *decisions = session->decisions;
    if (!decisions || decisions->is_busy)
        return;
    decisions->is_busy = 1;
    while (decisions_may_begin(decisions) && decisions_round(decisions))
        ;
    decisions->is_busy = 0;
}

int redis_decisions_wake(struct redis_session *session)
{
    struct redis_decisions *decisions = session->decisions;
    if (!decisions || !decisions->queued.first || !decisions->queued.first->is_foreign)
        return 0;
    session->pump_ns = REDIS_NEVER;
    decisions->head_is_due = 1;
    redis_decisions_go(session);
    return 1;
}

/* A request that does not wait is not kept waiting by others that are always earlier. */
static uint64_t decisions_expire(struct redis_decisions *decisions, uint64_t now_ns)
{
    uint64_t timeout_ns = decisions->session->set->connection->options.timeout_ns;
    uint64_t next_ns = REDIS_NEVER;
    struct redis_ticket *ticket = decisions->asks.first, *next;
    for (; ticket; ticket = next) {
        next = ticket->list_next;
        if (ticket->mode == WEIR_BACKEND_WAIT)
            continue;
        uint64_t end_ns = ticket->asked_ns + timeout_ns;
        if (end_ns > now_ns) {
            next_ns = end_ns < next_ns ? end_ns : next_ns;
            continue;
        }
        redis_decisions_drop(ticket);
        redis_ticket_fail(ticket, -ENOTCONN);
    }
    return next_ns;
}

uint64_t redis_decisions_tick(struct redis_session *session, uint64_t now_ns)
{
    struct redis_decisions *decisions = session->decisions;
    if (!decisions)
        return REDIS_NEVER;
    uint64_t next_ns = decisions_expire(decisions, now_ns);
    if (decisions->resume_ns <= now_ns)
        decisions->resume_ns = 0;
    redis_decisions_go(session);
    if (decisions->resume_ns > 0 && decisions->resume_ns < next_ns)
        next_ns = decisions->resume_ns;
    return next_ns;
}
