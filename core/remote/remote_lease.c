/* SPDX-License-Identifier: MIT */
/* Leases of remote sets: batches of units that are granted without asking the engine. */
#include "remote/remote_lease.h"

#include "base/invariant.h"
#include "config/plan.h"
#include "os/os.h"
#include "set/instance_base.h"
#include <errno.h>

/* The clocks of two machines differ in speed by less than this part. */
#define LEASE_DRIFT(ns) ((ns) / 1000 + 1)
/* A batch is meant to be used up in this part of its life. The next one is asked for when a quarter
 * of its units or an eighth of its life is left, so that it comes before that. */
#define LEASE_LIFE_USED(ns) ((ns) / 5 * 4)
#define LEASE_UNITS_LOW(n)  ((n) / 4 + 1)
#define LEASE_LIFE_LOW(ns)  ((ns) / 8)
/* Units that were not used for so long go back. */
#define LEASE_IDLE(ns) ((ns) / 4)

__extension__ typedef unsigned __int128 lease_u128;

/* ---- the word ---- */

static uint32_t remote_lease_number(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

static uint64_t remote_lease_left(uint64_t word)
{
    return word & UINT32_MAX;
}

static uint64_t remote_lease_word(const struct remote_lease *lease)
{
    return atomic_load_explicit(&lease->word, memory_order_acquire);
}

static void remote_lease_attend_from(struct remote_lease *lease, uint64_t units, uint64_t at_ns)
{
    atomic_store_explicit(&lease->attend_units, units, memory_order_relaxed);
    atomic_store_explicit(&lease->attend_ns, at_ns, memory_order_relaxed);
}

/* Takes units of the batch with the number in `word`, which was valid at `now_ns`, unless it was
 * replaced or has fewer. */
static bool remote_lease_exchange(struct remote_lease *lease, uint64_t *word, uint64_t amount,
                                  uint64_t now_ns, bool *ret_attend)
{
    uint32_t number = remote_lease_number(*word);

    while (remote_lease_number(*word) == number && remote_lease_left(*word) >= amount) {
        if (!atomic_compare_exchange_weak_explicit(&lease->word, word, *word - amount,
                                                   memory_order_acq_rel, memory_order_acquire))
            continue;
        *ret_attend = remote_lease_left(*word) - amount <
                          atomic_load_explicit(&lease->attend_units, memory_order_relaxed) ||
                      now_ns >= atomic_load_explicit(&lease->attend_ns, memory_order_relaxed);
        return true;
    }
    return false;
}

static bool remote_lease_is_valid(const struct remote_lease *lease, uint64_t word, uint64_t now_ns)
{
    return now_ns < atomic_load_explicit(&lease->deadlines[remote_lease_number(word) & 1],
                                         memory_order_acquire);
}

/*
 * Takes units of the batch in use. The word is read first and the clock next, and the exchange
 * fails if the batch was replaced since: so the units are of a batch that was not over. If the
 * deadline was that of a later batch, the word has changed, too.
 */
static bool remote_lease_take(struct remote_lease *lease, struct clock *clock, uint64_t amount,
                              bool *ret_attend)
{
    uint64_t word = remote_lease_word(lease), now_ns;

    while (remote_lease_left(word) >= amount) {
        now_ns = clock_boottime_ns(clock);
        if (!remote_lease_is_valid(lease, word, now_ns))
            return false;
        if (remote_lease_exchange(lease, &word, amount, now_ns, ret_attend))
            return true;
    }
    return false;
}

/* ---- under the engine's lock ---- */

/* Counts units that are not used any more. */
static void remote_lease_count_back(struct remote_lease *lease, const struct remote_batch *rest,
                                    uint64_t now_ns)
{
    *(rest->deadline_ns > now_ns ? &lease->returned : &lease->stranded) += rest->units;
}

/* Withdraws what is left of the batch in use. */
static struct remote_batch remote_lease_withdraw(struct remote_lease *lease, uint64_t now_ns)
{
    uint64_t word = remote_lease_word(lease);
    struct remote_batch rest = lease->current;

    while (!atomic_compare_exchange_weak_explicit(&lease->word, &word, word & ~(uint64_t)UINT32_MAX,
                                                  memory_order_acq_rel, memory_order_acquire))
        ;
    rest.units = remote_lease_left(word);
    remote_lease_count_back(lease, &rest, now_ns);
    return rest;
}

/* Withdraws the batch that is not in use yet. */
static struct remote_batch remote_lease_withdraw_next(struct remote_lease *lease, uint64_t now_ns)
{
    struct remote_batch rest = lease->next;

    lease->next.units = 0;
    remote_lease_count_back(lease, &rest, now_ns);
    return rest;
}

/* Brings the next batch into use. Returns what is left of the one before. */
static struct remote_batch remote_lease_replace(struct remote_set *remote,
                                                struct remote_lease *lease, uint64_t now_ns)
{
    struct remote_batch rest = remote_lease_withdraw(lease, now_ns);
    uint32_t number = remote_lease_number(remote_lease_word(lease)) + 1;

    WEIR_INVARIANT(lease->next.units && lease->next.units <= UINT32_MAX);
    lease->current = lease->next;
    lease->next.units = 0;
    atomic_store_explicit(&lease->deadlines[number & 1], lease->current.deadline_ns,
                          memory_order_release);
    atomic_store_explicit(&lease->word, (uint64_t)number << 32 | lease->current.units,
                          memory_order_release);
    lease->current.place =
        atomic_fetch_add_explicit(&remote->batches_n, 1, memory_order_seq_cst) + 1;
    remote_lease_attend_from(lease, LEASE_UNITS_LOW(lease->current.units),
                             lease->current.deadline_ns - LEASE_LIFE_LOW(lease->for_ns));
    return rest;
}

/* Returns the units that were granted from batches. */
static uint64_t remote_lease_granted(const struct remote_lease *lease)
{
    return lease->taken - lease->returned - lease->stranded - lease->next.units -
           remote_lease_left(remote_lease_word(lease));
}

/* Returns how many units the demand of late would use of a batch; starts to count anew. */
static uint64_t remote_lease_estimate(struct remote_lease *lease, uint64_t now_ns)
{
    uint64_t granted = remote_lease_granted(lease);
    uint64_t elapsed_ns = now_ns > lease->since_ns ? now_ns - lease->since_ns : 1;
    uint64_t demand = lease->missed + (granted > lease->counted ? granted - lease->counted : 0);
    lease_u128 estimate = (lease_u128)demand * LEASE_LIFE_USED(lease->for_ns);

    estimate /= elapsed_ns;
    if (!lease->since_ns)
        estimate = 0;
    if (!estimate && lease->since_ns && elapsed_ns < lease->for_ns)
        return 0; /* not enough was seen yet */
    lease->since_ns = now_ns;
    lease->counted = granted;
    lease->missed = 0;
    return estimate < UINT32_MAX ? (uint64_t)estimate : UINT32_MAX;
}

/*
 * Decides whether to ask for a batch, and of how many units: what the demand of late would use of
 * it, but at most twice and at least half of the last one. Returns 0 if it would not serve one
 * request of `amount`: then the engine is asked for each. Or one has been asked for, is there, or
 * has been refused.
 */
static uint64_t remote_lease_decide(struct remote_lease *lease, uint64_t amount, uint64_t now_ns)
{
    uint64_t size = lease->size > amount ? lease->size : amount, wanted;

    lease->missed += amount;
    if (lease->wanted || lease->next.units || now_ns < lease->not_before_ns)
        return 0;
    wanted = remote_lease_estimate(lease, now_ns);
    if (!wanted || wanted < amount) {
        lease->size /= 2;
        remote_lease_attend_from(lease, 0, now_ns + LEASE_LIFE_LOW(lease->for_ns));
        return 0;
    }
    size = size ? size : 1;
    wanted = wanted > 2 * size ? 2 * size : wanted < size / 2 ? size / 2 : wanted;
    wanted = wanted < lease->capacity ? wanted : lease->capacity;
    wanted = wanted < UINT32_MAX ? wanted : UINT32_MAX;
    lease->asked_ns = now_ns;
    lease->wanted = wanted;
    remote_lease_attend_from(lease, 0, WEIR_NEVER);
    return wanted;
}

/* ---- without the lock ---- */

static struct remote_lease *remote_lease_of(const struct remote_set *remote, uint32_t i)
{
    WEIR_INVARIANT(i < remote->set.limits.n && remote->leases[i].for_ns);
    return &remote->leases[i];
}

static void remote_lease_give_back(struct remote_set *remote, uint32_t i,
                                   const struct remote_batch *rest)
{
    if (rest->units)
        remote->engine->backend->unbatch(remote->handle, i, rest->units, rest->at);
}

/* Sees to the next batch; `missed`: what a request has just not found here. */
static void remote_lease_attend(struct remote_set *remote, uint32_t i, uint64_t missed)
{
    struct remote_engine *engine = remote->engine;
    uint64_t now_ns = clock_boottime_ns(&remote->set.w->clock), wanted;
    struct weir_backend_batch refused = {
        .size = sizeof(refused), .limit = i, .retry_after_ns = WEIR_NEVER};

    pthread_mutex_lock(&engine->lock);
    wanted = remote_lease_decide(remote_lease_of(remote, i), missed, now_ns);
    pthread_mutex_unlock(&engine->lock);
    if (!wanted)
        return;
    refused.result = remote_engine_start(engine);
    if (refused.result == 0)
        refused.result = engine->backend->batch(remote->handle, i, wanted, now_ns);
    if (refused.result < 0)
        remote_batched(engine, remote, &refused);
}

/* Brings the batch into use that came meanwhile, if the one in use does not serve this amount.
 * Returns whether it is worth trying again. */
static bool remote_lease_renew(struct remote_set *remote, uint32_t i, uint64_t amount)
{
    struct remote_lease *lease = remote_lease_of(remote, i);
    struct remote_batch rest = {0};
    uint64_t now_ns = clock_boottime_ns(&remote->set.w->clock);
    bool serves;

    pthread_mutex_lock(&remote->engine->lock);
    serves = remote_lease_left(remote_lease_word(lease)) >= amount &&
             lease->current.deadline_ns > now_ns;
    if (!serves && lease->next.units >= amount && lease->next.deadline_ns > now_ns) {
        rest = remote_lease_replace(remote, lease, now_ns);
        serves = true;
    } else if (!serves && lease->next.units && lease->next.deadline_ns <= now_ns) {
        rest = remote_lease_withdraw_next(lease, now_ns);
    }
    pthread_mutex_unlock(&remote->engine->lock);
    remote_lease_give_back(remote, i, &rest);
    return serves;
}

static bool remote_leases_take_one(struct remote_set *remote, uint32_t i, uint64_t amount,
                                   bool counts)
{
    struct clock *clock = &remote->set.w->clock;
    bool attend;

    do {
        if (remote_lease_take(remote_lease_of(remote, i), clock, amount, &attend)) {
            if (attend)
                remote_lease_attend(remote, i, 0);
            return true;
        }
    } while (remote_lease_renew(remote, i, amount));
    if (counts)
        remote_lease_attend(remote, i, amount);
    return false;
}

/* Takes from several batches. With the lock no batch is replaced, so what was taken of some can go
 * back to them if another one has not enough. The words are read first and the clock next, as for
 * one batch; and before the lock, as a clock of the program's own is read. */
static bool remote_leases_take_locked(struct remote_set *remote, const uint64_t *amounts,
                                      uint64_t *ret_attend)
{
    uint64_t words[WEIR_LIMITS_MAX], now_ns;
    uint32_t n = remote->set.limits.n, i;
    bool is_taken = true;

    for (i = 0; i < n; i++)
        words[i] = remote_lease_word(&remote->leases[i]);
    now_ns = clock_boottime_ns(&remote->set.w->clock);
    pthread_mutex_lock(&remote->engine->lock);
    for (i = 0; i < n && is_taken; i++) {
        bool attend = false;

        is_taken = !amounts[i] || (remote_lease_is_valid(&remote->leases[i], words[i], now_ns) &&
                                   remote_lease_exchange(&remote->leases[i], &words[i], amounts[i],
                                                         now_ns, &attend));
        *ret_attend |= (uint64_t)attend << i;
    }
    for (i = is_taken ? 0 : i - 1; i > 0; i--)
        if (amounts[i - 1])
            atomic_fetch_add_explicit(&remote->leases[i - 1].word, amounts[i - 1],
                                      memory_order_acq_rel);
    pthread_mutex_unlock(&remote->engine->lock);
    return is_taken;
}

static bool remote_leases_take_all(struct remote_set *remote, const uint64_t *amounts, bool counts)
{
    uint64_t attend = 0;
    bool is_taken = remote_leases_take_locked(remote, amounts, &attend), serves = !is_taken;

    for (uint32_t i = 0; i < remote->set.limits.n && serves; i++)
        serves = !amounts[i] || remote_lease_renew(remote, i, amounts[i]);
    if (serves)
        is_taken = remote_leases_take_locked(remote, amounts, &attend);
    for (uint32_t i = 0; i < remote->set.limits.n; i++)
        if (amounts[i] && (attend >> i & 1 || (!is_taken && counts)))
            remote_lease_attend(remote, i, is_taken ? 0 : amounts[i]);
    return is_taken;
}

bool remote_leases_take(struct remote_set *remote, const uint64_t *amounts, bool counts,
                        uint64_t *ret_place)
{
    uint32_t n = 0, last = 0;

    for (uint32_t i = 0; i < remote->set.limits.n; i++) {
        if (!amounts[i])
            continue;
        if (!remote->leases[i].for_ns)
            return false;
        last = i;
        n++;
    }
    *ret_place = atomic_load_explicit(&remote->batches_n, memory_order_seq_cst);
    return n == 1 ? remote_leases_take_one(remote, last, amounts[last], counts)
                  : remote_leases_take_all(remote, amounts, counts);
}

/* Returns what a release gives back of limit `i`. */
static uint64_t remote_leases_unused(const struct remote_set *remote,
                                     const struct release_args *args, uint32_t i)
{
    uint64_t used = args->return_all ? 0 : args->used[i];

    if (!args->return_all && remote->set.limits.items[i].refund == REFUND_NO)
        return 0;
    return used < args->amounts[i] ? args->amounts[i] - used : 0;
}

/* Returns whether units of a grant from batches can go back: a batch that was in use before the
 * grant, and is so now, is the one that they are of. */
static bool remote_lease_has_batch(const struct remote_lease *lease, uint64_t place,
                                   uint64_t now_ns)
{
    return lease->current.units && lease->current.place <= place &&
           lease->current.deadline_ns > now_ns;
}

void remote_leases_put(struct remote_set *remote, const struct release_args *args, uint64_t place)
{
    uint64_t now_ns = clock_boottime_ns(&remote->set.w->clock);

    pthread_mutex_lock(&remote->engine->lock);
    for (uint32_t i = 0; i < remote->set.limits.n; i++) {
        struct remote_lease *lease = &remote->leases[i];

        if (args->amounts[i] && remote_lease_has_batch(lease, place, now_ns))
            atomic_fetch_add_explicit(&lease->word, remote_leases_unused(remote, args, i),
                                      memory_order_acq_rel);
        WEIR_INVARIANT(remote_lease_left(remote_lease_word(lease)) <= lease->current.units);
    }
    pthread_mutex_unlock(&remote->engine->lock);
}

/* ---- the host's calls ---- */

static void remote_lease_store_refusal(struct remote_lease *lease, uint64_t retry_ns,
                                       uint64_t now_ns)
{
    if (retry_ns == WEIR_NEVER)
        retry_ns = lease->for_ns;
    lease->not_before_ns = retry_ns < WEIR_INSTANT_MAX - now_ns ? now_ns + retry_ns : WEIR_NEVER;
    lease->size = lease->wanted / 4;
    remote_lease_attend_from(lease, 0, lease->not_before_ns);
}

static void remote_lease_store_batch(struct remote_lease *lease,
                                     const struct weir_backend_batch *batch)
{
    uint64_t valid_ns = batch->valid_ns < lease->for_ns ? batch->valid_ns : lease->for_ns;
    uint64_t margin_ns = LEASE_DRIFT(valid_ns);
    uint64_t asked_ns = batch->tag < lease->asked_ns ? batch->tag : lease->asked_ns;

    lease->next = (struct remote_batch){
        .units = batch->units < lease->wanted ? batch->units : lease->wanted,
        .deadline_ns = asked_ns + (valid_ns > margin_ns ? valid_ns - margin_ns : 0),
        .at = batch->at};
    lease->size = lease->next.units;
    lease->taken += lease->next.units;
    lease->batches++;
    lease->seen_word = remote_lease_word(lease);
}

/* Returns whether the number that a backend gave is that of a leased limit. */
static bool remote_is_leased(const struct remote_set *remote, uint32_t limit)
{
    return remote->leases && limit < remote->set.limits.n && remote->leases[limit].for_ns;
}

uint64_t remote_batched(void *context, void *set, const struct weir_backend_batch *batch)
{
    struct remote_engine *engine = context;
    struct remote_set *remote = set;
    uint64_t now_ns = clock_boottime_ns(&remote->set.w->clock), due_ns = WEIR_NEVER;
    struct remote_lease *lease;

    if (!remote_is_leased(remote, batch->limit))
        return WEIR_NEVER;
    lease = remote_lease_of(remote, batch->limit);
    pthread_mutex_lock(&engine->lock);
    if (lease->wanted && (batch->result < 0 || !batch->units)) {
        remote_lease_store_refusal(lease, batch->retry_after_ns, now_ns);
    } else if (lease->wanted) {
        remote_lease_store_batch(lease, batch);
        due_ns = LEASE_IDLE(lease->for_ns);
    }
    lease->wanted = 0;
    pthread_mutex_unlock(&engine->lock);
    remote_count_answer(engine, batch->result);
    return due_ns;
}

/* Looks for units that are not needed: none were taken since the last look, as of a batch that has
 * ended. */
uint64_t remote_spare(void *context, void *set, uint32_t limit, struct weir_backend_batch *ret)
{
    struct remote_engine *engine = context;
    struct remote_set *remote = set;
    struct remote_lease *lease;
    uint64_t now_ns = clock_boottime_ns(&remote->set.w->clock), word, due_ns;
    struct remote_batch rest = {0};
    bool is_idle;

    *ret = (struct weir_backend_batch){.size = sizeof(*ret), .limit = limit};
    if (!remote_is_leased(remote, limit))
        return WEIR_NEVER;
    lease = remote_lease_of(remote, limit);
    pthread_mutex_lock(&engine->lock);
    word = remote_lease_word(lease);
    is_idle = word == lease->seen_word;
    if (is_idle && remote_lease_left(word))
        rest = remote_lease_withdraw(lease, now_ns);
    else if (is_idle && lease->next.units)
        rest = remote_lease_withdraw_next(lease, now_ns);
    lease->seen_word = remote_lease_word(lease);
    due_ns = rest.units && lease->next.units                            ? 0
             : remote_lease_left(lease->seen_word) || lease->next.units ? LEASE_IDLE(lease->for_ns)
                                                                        : WEIR_NEVER;
    pthread_mutex_unlock(&engine->lock);
    ret->units = rest.units;
    ret->at = rest.at;
    return due_ns;
}

/* ---- opening and closing; statistics ---- */

int remote_leases_open(struct remote_set *remote, const struct set_plan *plan)
{
    uint32_t n = remote->set.limits.n;
    bool has_leases = false;

    for (uint32_t i = 0; i < n; i++)
        has_leases |= plan->settings[i].lease_for_ns != 0;
    if (!has_leases)
        return 0;
    remote->leases = os_alloc_aligned(_Alignof(struct remote_lease), n * sizeof(*remote->leases));
    if (!remote->leases)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        remote->leases[i].for_ns = plan->settings[i].lease_for_ns;
        remote->leases[i].capacity = remote->set.limits.items[i].capacity;
    }
    return 0;
}

void remote_leases_close(struct remote_set *remote)
{
    uint64_t now_ns = clock_boottime_ns(&remote->set.w->clock);

    for (uint32_t i = 0; remote->leases && remote->handle && i < remote->set.limits.n; i++) {
        struct remote_lease *lease = &remote->leases[i];
        struct remote_batch rests[2];

        if (!lease->for_ns)
            continue;
        pthread_mutex_lock(&remote->engine->lock);
        rests[0] = remote_lease_withdraw(lease, now_ns);
        rests[1] = remote_lease_withdraw_next(lease, now_ns);
        lease->wanted = 0; /* what comes now is late */
        lease->not_before_ns = WEIR_NEVER;
        pthread_mutex_unlock(&remote->engine->lock);
        remote_lease_give_back(remote, i, &rests[0]);
        remote_lease_give_back(remote, i, &rests[1]);
    }
}

uint64_t remote_leases_ready(struct remote_set *remote, uint32_t i)
{
    struct weir_lease_stats stats = {.size = sizeof(stats)};

    return remote_leases_stats(&remote->set, i, &stats) == 0 ? stats.ready : 0;
}

/* Adds what is known of a lease; the engine's lock is held. */
static void remote_lease_add_stats(const struct remote_lease *lease, uint64_t now_ns,
                                   struct weir_lease_stats *ret)
{
    ret->batches += lease->batches;
    ret->taken += lease->taken;
    ret->granted += remote_lease_granted(lease);
    ret->returned += lease->returned;
    ret->stranded += lease->stranded;
    if (lease->current.deadline_ns > now_ns)
        ret->ready += remote_lease_left(remote_lease_word(lease));
    if (lease->next.deadline_ns > now_ns)
        ret->ready += lease->next.units;
}

int remote_leases_stats(weir_set *set, uint32_t i, struct weir_lease_stats *ret)
{
    struct remote_set *remote = remote_of(set);
    uint64_t now_ns = clock_boottime_ns(&set->w->clock);
    struct weir_lease_stats sum = {.size = sizeof(sum)};

    if (set->backend != BACKEND_REMOTE || !remote_is_leased(remote, i))
        return -ENOENT;
    pthread_mutex_lock(&remote->engine->lock);
    for (const struct remote_set *asked = remote; asked; asked = asked->before)
        if (remote_is_leased(asked, i))
            remote_lease_add_stats(&asked->leases[i], now_ns, &sum);
    pthread_mutex_unlock(&remote->engine->lock);
    *ret = sum;
    return 0;
}
