/* SPDX-License-Identifier: MIT */
/*
 * Limits with algorithms that the engine does not have: this process runs them on states that the
 * backend fetches and stores. A state may be anything: it comes from the network.
 */
#include "remote/remote.h"

#include "limit/limit.h"
#include "os/os.h"
#include "set/instance_base.h"
#include "set/set_ops.h"
#include <errno.h>
#include <string.h>

/* Spans of time after which states are looked at again: from 66 ms, each four times as long. */
#define LAST_FIRST_NS (UINT64_C(1) << 26)
#define LAST_MAX_NS   (UINT64_C(1) << 60)

/* The limits as if they were a set of their own: their states lie together. */
struct remote_algorithms {
    struct limits limits;
    uint8_t numbers[WEIR_LIMITS_MAX]; /* of each, in the set */
    struct limit items[];
};

int remote_algorithms_open(struct remote_set *remote, const uint32_t *marks)
{
    const struct limits *all = &remote->set.limits;
    struct remote_algorithms *algorithms;
    struct limits *limits;
    uint32_t n = 0;

    for (uint32_t i = 0; i < all->n; i++)
        n += marks[i] != 0;
    if (!n)
        return 0;
    algorithms = os_alloc(1, sizeof(*algorithms) + n * sizeof(struct limit));
    if (!algorithms)
        return -ENOMEM;
    limits = &algorithms->limits;
    limits->items = algorithms->items;
    for (uint32_t i = 0; i < all->n; i++) {
        struct limit *limit = &limits->items[limits->n];

        if (!marks[i])
            continue;
        *limit = all->items[i];
        limit->state_offset = limits->state_words;
        limits->state_words += limit->state_words;
        algorithms->numbers[limits->n++] = (uint8_t)i;
    }
    limits_describe(limits);
    remote->algorithms = algorithms;
    return 0;
}

bool remote_algorithms_decide(const struct remote_set *remote, const uint64_t *amounts)
{
    const struct remote_algorithms *algorithms = remote->algorithms;

    for (uint32_t i = 0; algorithms && i < algorithms->limits.n; i++)
        if (amounts[algorithms->numbers[i]])
            return true;
    return false;
}

/* Notes in the set what its algorithms have broken. Returns whether one has, and reports it once.
 */
static bool remote_note_fault(struct remote_set *remote)
{
    const struct remote_algorithms *algorithms = remote->algorithms;
    struct limits *all = &remote->set.limits;
    const struct limit *limit = limits_faulty(&algorithms->limits);

    if (limit)
        limits_note_fault(all, algorithms->numbers[limit - algorithms->limits.items]);
    limit = limits_faulty(all);
    if (!limit)
        return false;
    if (atomic_fetch_or_explicit(&all->fault, LIMITS_FAULT_REPORTED, memory_order_seq_cst) &
        LIMITS_FAULT_REPORTED)
        return true;
    remote_log_add(&remote->engine->log, WEIR_LOG_ERROR,
                   "set `%s`, limit `%s`: the algorithm `%s` %s broke the contract of plugins, or "
                   "the state at backend `%s` is damaged; the set grants nothing any more",
                   set_own_name(&remote->set), limit->key, limit->algorithm_name,
                   limit->algorithm_version, remote->engine->plan.name);
    return true;
}

static int remote_check_states(const struct limits *limits, const uint64_t *states)
{
    for (uint32_t i = 0; i < limits->n; i++)
        if (limit_is_unfit(&limits->items[i], states[limits->items[i].state_offset]))
            return -EUCLEAN;
    return limits_check(limits, states) < 0 ? -EUCLEAN : 0;
}

static int remote_take_decided(const struct remote_algorithms *algorithms,
                               struct weir_backend_decision *decision)
{
    const struct limits *limits = &algorithms->limits;
    const struct limit *limiting = NULL, *receding;
    uint64_t amounts[WEIR_LIMITS_MAX], ready;

    for (uint32_t i = 0; i < limits->n; i++)
        amounts[i] = decision->amounts[algorithms->numbers[i]];
    ready =
        decision->deed == WEIR_BACKEND_DECIDE
            ? limits_try_take(limits, decision->states, &decision->at, amounts, &limiting)
            : limits_ready_at(limits, decision->states, &decision->at, amounts, true, &limiting);
    if (ready <= decision->at.now_ns)
        return 0;
    receding = limits_find_receding(limits, decision->states, &decision->at, amounts, ready);
    if (receding)
        limits_note_fault(limits, (uint32_t)(receding - limits->items));
    decision->ready_ns = ready;
    decision->limit = algorithms->numbers[limiting - limits->items];
    return -EAGAIN;
}

static void remote_give_back(struct remote_set *remote, const struct weir_backend_decision *from)
{
    const struct remote_algorithms *algorithms = remote->algorithms;
    const struct release_args args = {.amounts = from->amounts,
                                      .used = from->used,
                                      .return_all = from->undo != 0,
                                      .outcome = (uint8_t)from->outcome,
                                      .latency_ns = from->latency_ns};

    for (uint32_t i = 0; i < algorithms->limits.n; i++)
        set_release_limit(&remote->set, algorithms->numbers[i],
                          (uint64_t *)from->states + algorithms->limits.items[i].state_offset,
                          &from->at, &args, from->granted_ns);
}

static void remote_look(const struct remote_algorithms *algorithms,
                        const struct weir_backend_decision *decision)
{
    for (uint32_t i = 0; i < algorithms->limits.n; i++) {
        const struct limit *limit = &algorithms->limits.items[i];
        const uint64_t *state = (const uint64_t *)decision->states + limit->state_offset;

        decision->stats[algorithms->numbers[i]] = (struct weir_backend_limit_stats){
            limit_available(limit, state, &decision->at), limit_held(limit, state, &decision->at)};
    }
}

/* Returns an instant at which all states are as new, by which they may have been for a while. */
static uint64_t remote_last(const struct limits *limits, const struct weir_backend_decision *from)
{
    struct weir_instant at = from->at;
    uint64_t span = LAST_FIRST_NS;

    for (uint32_t i = 0; i < limits->n; i++) {
        const struct limit *limit = &limits->items[i];
        const uint64_t *state = (const uint64_t *)from->states + limit->state_offset;

        if (!limit->algorithm->is_new)
            return WEIR_NEVER;
        for (;; span *= 4) {
            at.now_ns = from->at.now_ns + span;
            if (at.now_ns > WEIR_CLOCK_MAX || span > LAST_MAX_NS)
                return WEIR_NEVER;
            if (limit_is_new(limit, state, &at))
                break;
        }
    }
    return from->at.now_ns + span;
}

int remote_decide(void *context, void *argument, struct weir_backend_decision *decision)
{
    struct remote_set *remote = argument;
    struct remote_algorithms *algorithms = remote->algorithms;
    int r = 0;

    (void)context;
    if (!algorithms || set_is_faulty(&remote->set) || decision->at.now_ns > WEIR_CLOCK_MAX)
        return -EUCLEAN;
    switch (decision->deed) {
    case WEIR_BACKEND_BEGIN:
        memset(decision->states, 0, algorithms->limits.state_words * sizeof(uint64_t));
        limits_init(&algorithms->limits, decision->states, &decision->at);
        break;
    case WEIR_BACKEND_CHECK:
        return remote_check_states(&algorithms->limits, decision->states);
    case WEIR_BACKEND_DECIDE:
    case WEIR_BACKEND_FORESEE:
        r = remote_take_decided(algorithms, decision);
        break;
    case WEIR_BACKEND_GIVE_BACK:
        remote_give_back(remote, decision);
        break;
    case WEIR_BACKEND_LOOK:
        remote_look(algorithms, decision);
        break;
    case WEIR_BACKEND_LAST:
        decision->ready_ns = remote_last(&algorithms->limits, decision);
        break;
    default:
        return -EUCLEAN;
    }
    return remote_note_fault(remote) ? -EUCLEAN : r;
}
