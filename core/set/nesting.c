/* SPDX-License-Identifier: MIT */
/* Finds the circle that a nested request closes. */
#include "set/nesting.h"

#include "os/os.h"
#include "set/instance_base.h"
#include <errno.h>

/* Levels of nesting that are looked at: in a damaged segment there may be a ring. */
enum { NESTING_LEVELS_MAX = 1024 };

/* A nested waiter, or the new request with record 0. */
struct nested_waiter {
    uint32_t record;
    uint32_t outer_at, outer_n; /* its part of nesting.outer */
    bool can_go;                /* it can be granted at some time */
};

/* An acquisition with a request nested in it, at any level, that waits. */
struct nested_holder {
    uint32_t record;
    uint32_t waiters_n; /* such requests that cannot go yet */
};

/* Memory for all of it is one block, behind the waiters. */
struct nesting {
    const struct txn *txn;
    const uint64_t *amounts; /* of the new request */
    struct nested_waiter *waiters;
    struct nested_holder *holders;
    uint32_t *outer; /* of each waiter: indices of the holders that it is nested in */
    uint32_t waiters_n, holders_n, outer_n, outer_max;
    uint64_t held[WEIR_LIMITS_MAX]; /* by the holders that still wait */
};

/* Returns whether a record of the region is of the set. Those of a segment all are. */
static bool nesting_is_of_set(const weir_set *set, const struct acq_record *r)
{
    if (set_is_shared(set))
        return true;
    if (set_is_key_set(set))
        return set_ancestor(set, instance_set(set->w, record_set_number(r))->number);
    return set_ancestor(set, record_set_number(r));
}

/* Returns the record if it is still of the acquisition that a request of `*since_ns` was nested in;
 * 0: that was released, and the record may be of another one, which was asked for later. Then
 * `*since_ns` becomes the time at which the outer one was asked for. */
static uint32_t nesting_held(const weir_set *set, uint32_t record, uint64_t *since_ns)
{
    const struct acq_record *r;
    uint64_t enqueued_ns;

    if (!record)
        return 0;
    r = set_record(set, record);
    enqueued_ns = record_load(&r->enqueued_ns);
    if (record_state(record_load(&r->word)) != RECORD_HELD || !nesting_is_of_set(set, r) ||
        enqueued_ns > *since_ns)
        return 0;
    *since_ns = enqueued_ns;
    return record;
}

/* Calls `each` for all acquisitions that a request nested in `within` is nested in. */
static void nesting_each_outer(struct nesting *nesting, uint32_t within, uint64_t since_ns,
                               void (*each)(struct nesting *nesting, uint32_t record))
{
    const weir_set *set = nesting->txn->set;
    uint32_t record = nesting_held(set, within, &since_ns);

    for (int level = 0; record && level < NESTING_LEVELS_MAX; level++) {
        each(nesting, record);
        record = nesting_held(set, record_held_within(set_record(set, record), record), &since_ns);
    }
}

static void nesting_count_outer(struct nesting *nesting, uint32_t record)
{
    (void)record;
    nesting->outer_max++;
}

/* While the set changes there may be more than were counted: they are left out, as the transaction
 * fails. */
static void nesting_add_outer(struct nesting *nesting, uint32_t record)
{
    uint32_t i = 0;

    if (nesting->outer_n == nesting->outer_max)
        return;
    while (i < nesting->holders_n && nesting->holders[i].record != record)
        i++;
    if (i == nesting->holders_n)
        nesting->holders[nesting->holders_n++] = (struct nested_holder){.record = record};
    nesting->holders[i].waiters_n++;
    nesting->outer[nesting->outer_n++] = i;
}

static void nesting_add_waiter(struct nesting *nesting, uint32_t record, uint32_t within,
                               uint64_t since_ns)
{
    struct nested_waiter *waiter = &nesting->waiters[nesting->waiters_n++];

    *waiter = (struct nested_waiter){.record = record, .outer_at = nesting->outer_n};
    nesting_each_outer(nesting, within, since_ns, nesting_add_outer);
    waiter->outer_n = nesting->outer_n - waiter->outer_at;
}

/* Visits the nested waiters of the queue, at most `n`: counts what they are nested in, or adds
 * them. The new request comes last. */
static void nesting_visit(struct nesting *nesting, uint32_t n, bool add)
{
    const weir_set *set = nesting->txn->set;
    uint32_t record = waitq_head(&nesting->txn->version);

    for (; record && n; n--) {
        const struct acq_record *r = set_record(set, record);
        uint32_t within = record_waits_within(r);

        if (add)
            nesting_add_waiter(nesting, record, within, record_load(&r->enqueued_ns));
        else
            nesting_each_outer(nesting, within, record_load(&r->enqueued_ns), nesting_count_outer);
        record = waitq_next(set->region, record);
    }
    if (add)
        nesting_add_waiter(nesting, 0, nesting->txn->within, WEIR_FOREVER);
    else
        nesting_each_outer(nesting, nesting->txn->within, WEIR_FOREVER, nesting_count_outer);
}

static int nesting_collect(struct nesting *nesting)
{
    uint32_t n;

    fairness_last_nested(nesting->txn->set, &nesting->txn->version, &n);
    nesting_visit(nesting, n, false);
    nesting->waiters = os_alloc(n + UINT64_C(1), sizeof(*nesting->waiters));
    nesting->holders = os_alloc(nesting->outer_max + UINT64_C(1), sizeof(*nesting->holders));
    nesting->outer = os_alloc(nesting->outer_max + UINT64_C(1), sizeof(*nesting->outer));
    if (!nesting->waiters || !nesting->holders || !nesting->outer)
        return -ENOMEM;
    nesting_visit(nesting, n, true);
    return 0;
}

static void nesting_free(const struct nesting *nesting)
{
    os_free(nesting->waiters);
    os_free(nesting->holders);
    os_free(nesting->outer);
}

/* Adds what a holder has of each limit to `held`, or subtracts it. */
static void nesting_count_held(struct nesting *nesting, uint32_t holder, bool add)
{
    uint64_t amounts[WEIR_LIMITS_MAX];

    txn_amounts(nesting->txn, nesting->holders[holder].record, amounts);
    for (uint32_t i = 0; i < nesting->txn->set->limits.n; i++)
        nesting->held[i] += add ? amounts[i] : -amounts[i];
}

static void nesting_amounts(const struct nesting *nesting, const struct nested_waiter *waiter,
                            uint64_t *ret)
{
    if (waiter->record)
        txn_amounts(nesting->txn, waiter->record, ret);
    else
        for (uint32_t i = 0; i < nesting->txn->set->limits.n; i++)
            ret[i] = nesting->amounts[i];
}

/* Returns the resource of which there will not be as much as a waiter needs, as long as the holders
 * wait; NULL: there will be of each. */
static const struct limit *nesting_shortage(const struct nesting *nesting, const uint64_t *amounts)
{
    const struct limits *limits = &nesting->txn->set->limits;

    for (uint32_t i = 0; i < limits->n; i++) {
        const struct limit *limit = &limits->items[i];
        uint64_t left = limit->capacity - nesting->held[i];

        if (limit->type == WEIR_LIMIT_RESOURCE && amounts[i] &&
            (nesting->held[i] > limit->capacity || amounts[i] > left))
            return limit;
    }
    return NULL;
}

/* Its holders do not wait for it any more. */
static void nesting_let_go(struct nesting *nesting, struct nested_waiter *waiter)
{
    waiter->can_go = true;
    for (uint32_t i = 0; i < waiter->outer_n; i++) {
        uint32_t holder = nesting->outer[waiter->outer_at + i];

        if (--nesting->holders[holder].waiters_n == 0)
            nesting_count_held(nesting, holder, false);
    }
}

/* Lets all waiters go that can, in their order. Returns how many did. `*ret_shortage`: of what the
 * first one that cannot is short. */
static uint32_t nesting_round(struct nesting *nesting, const struct limit **ret_shortage)
{
    const weir_set *set = nesting->txn->set;
    uint64_t waited_for = 0, amounts[WEIR_LIMITS_MAX];
    uint32_t gone_n = 0;

    *ret_shortage = NULL;
    for (uint32_t i = 0; i < nesting->waiters_n; i++) {
        struct nested_waiter *waiter = &nesting->waiters[i];
        const struct limit *shortage;
        uint64_t asked;

        if (waiter->can_go)
            continue;
        nesting_amounts(nesting, waiter, amounts);
        asked = set->per_limit ? fairness_limits(set, amounts) : UINT64_MAX;
        shortage = asked & waited_for ? NULL : nesting_shortage(nesting, amounts);
        if (shortage || asked & waited_for) {
            *ret_shortage = *ret_shortage ? *ret_shortage : shortage;
            waited_for |= asked;
            continue;
        }
        nesting_let_go(nesting, waiter);
        gone_n++;
    }
    return gone_n;
}

int nesting_closes_circle(const struct txn *txn, const uint64_t *amounts,
                          const struct limit **ret_limiting)
{
    struct nesting nesting = {.txn = txn, .amounts = amounts};
    const struct limit *shortage = NULL;
    uint32_t left, gone_n;
    int r = nesting_collect(&nesting);

    if (r == 0) {
        for (uint32_t i = 0; i < nesting.holders_n; i++)
            nesting_count_held(&nesting, i, true);
        left = nesting.waiters_n;
        do
            left -= gone_n = nesting_round(&nesting, &shortage);
        while (left && gone_n);
        r = left != 0;
    }
    nesting_free(&nesting);
    if (r == 1)
        *ret_limiting = shortage;
    return r;
}
