/* SPDX-License-Identifier: MIT */
/* Lists the holders and waiters of a set from its records. */
#include "api/acquire.h"
#include "api/set_object.h"
#include "config/plan.h"
#include "peer/peer.h"

#include "api/instance.h"
#include "base/invariant.h"
#include "base/long_look.h"
#include "os/os.h"
#include "set/fairness.h"
#include "set/max_hold.h"
#include "set/set_ops.h"
#include "shm/participant.h"
#include "state/wait_class.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Position of a waiter that the walk missed: it was enqueued, or the queue changed, meanwhile. */
#define POSITION_UNKNOWN UINT32_MAX

static uint64_t set_holder_id(uint64_t word, uint32_t record)
{
    return (word >> 8) << RECORD_LINK_BITS | record;
}

/* ---- records ---- */

/* Returns whether a record holds nothing, as completion queues keep them. */
static bool set_holder_is_empty(const weir_set *set, uint32_t record)
{
    uint64_t amounts[WEIR_LIMITS_MAX];

    if (set_is_shared(set)) { /* also of limits that are gone, the places of which it takes */
        for (uint32_t k = 0; k < set_amounts_n(set); k++)
            if (record_load(&set_record(set, record)->amounts[k]))
                return false;
        return true;
    }
    fairness_asked(set, record, amounts); /* also of what limits in shadow have not granted */
    return request_is_empty(set, amounts);
}

/* Returns whether a record belongs to the set. A private region has the records of many sets; the
 * waiters of a per-subject set belong to its key sets, which have its number. */
static bool set_holder_is_of_set(const weir_set *set, uint64_t set_thread)
{
    const weir_set *of, *stand_in;

    if (set_is_shared(set))
        return true;
    of = set_newest(set_definition(instance_set(set->w, (uint32_t)(set_thread >> 32))));
    for (uint32_t i = 0; (stand_in = set_stand_in(set, i)); i++)
        if (stand_in == of)
            return true;
    return of->number == set->number;
}

/* Describes a record if it belongs to the set and holds or waits. False also if it changed. */
static bool set_holder_describe(const weir_set *set, uint32_t record, struct weir_holder *ret)
{
    const struct acq_record *r = record_at(set->region, record);
    uint64_t word = record_load(&r->word), set_thread = record_load(&r->set);
    enum record_state state = record_state(word);

    if ((state != RECORD_HELD && state != RECORD_WAITING) || !set_holder_is_of_set(set, set_thread))
        return false;
    if (set_holder_is_empty(set, record))
        return false;
    *ret = (struct weir_holder){
        .id = set_holder_id(word, record),
        .since_ns = set_to_instance_ns(
            set, grant_time(record_load(state == RECORD_HELD ? &r->granted_ns : &r->enqueued_ns))),
        .thread = record_thread(r),
        .process = set_is_shared(set) ? participant_owner_pid(set->participant, record) : 0,
        .waiting = state == RECORD_WAITING,
        .position = state == RECORD_WAITING ? POSITION_UNKNOWN : 0,
    };
    return record_load(&r->word) == word;
}

/* Walks take no lock: a run of records has an atomic entry, stays, and begins as zeroes. */

/* Describes the first record of the set from `*at` on that holds or waits, and advances `*at`.
 * Returns the record, or 0. */
static uint32_t set_holders_next(const weir_set *set, uint32_t *at, struct weir_holder *ret)
{
    while (set->limits.n && long_look_goes_on() && (*at = region_next_record(set->region, *at)))
        if (set_holder_describe(set, *at, ret))
            return *at;
    return 0;
}

uint64_t set_holders_count(const weir_set *set)
{
    struct weir_holder holder;
    uint32_t at = 0;
    uint64_t held = 0;

    WEIR_INVARIANT(set->participant);
    while (set_holders_next(set, &at, &holder))
        held += !holder.waiting;
    return held;
}

void set_holders_add_amounts(const weir_set *set, uint64_t *ret)
{
    uint64_t amounts[WEIR_LIMITS_MAX];
    struct weir_holder holder;
    uint32_t at = 0;

    while (set_holders_next(set, &at, &holder)) {
        fairness_amounts(set, at, amounts);
        for (uint32_t i = 0; !holder.waiting && i < set->limits.n; i++)
            ret[i] += amounts[i];
    }
}

/* ---- wait queue ---- */

static int set_holders_cmp_records(const void *a, const void *b)
{
    uint32_t x = record_link_target(((const struct weir_holder *)a)->id);
    uint32_t y = record_link_target(((const struct weir_holder *)b)->id);

    return x < y ? -1 : x > y;
}

static struct weir_holder *set_holders_find_record(struct weir_holder *all, size_t n,
                                                   uint32_t record)
{
    struct weir_holder wanted = {.id = record};

    return bsearch(&wanted, all, n, sizeof(*all), set_holders_cmp_records);
}

static int set_holders_cmp_since(const void *a, const void *b)
{
    uint64_t x = ((const struct weir_holder *)a)->since_ns;
    uint64_t y = ((const struct weir_holder *)b)->since_ns;

    return x < y ? -1 : x > y;
}

/* Walks a wait queue and numbers its waiters that are in `all`, which is sorted by record. Returns
 * the last number. The links change meanwhile. */
static uint32_t set_holders_walk_queue(const weir_set *set, const struct set_view *view,
                                       struct weir_holder *all, size_t n)
{
    uint32_t record = view->head, position = 0;

    while (position < view->length && long_look_goes_on() &&
           region_has_record(set->region, record)) {
        struct weir_holder *holder = set_holders_find_record(all, n, record);

        if (holder && holder->position != POSITION_UNKNOWN)
            break;
        position++;
        if (holder)
            holder->position = position;
        record = waitq_next(set->region, record);
    }
    return position;
}

/* Numbers the waiters of each wait queue and sorts `all` by time. */
static void set_holders_order(struct thread_ctx *ctx, weir_set *set, struct weir_holder *all,
                              size_t n)
{
    struct set_view view;
    uint32_t position = 0;

    for (uint32_t i = 0; long_look_goes_on() && set->ops->view_queue(ctx, set, i, &view); i++) {
        uint32_t last = set_holders_walk_queue(set, &view, all, n);

        position = last > position ? last : position;
    }
    qsort(all, n, sizeof(*all), set_holders_cmp_since);
    /* Those that the walk missed come behind the others, the longest wait first. */
    for (size_t i = 0; i < n; i++)
        if (all[i].position == POSITION_UNKNOWN)
            all[i].position = ++position;
}

/* ---- public calls ---- */

/* Lists all holders and waiters in order of records. Returns how many, or -ENOMEM. */
static int set_holders_list(weir_set *set, struct weir_holder **ret)
{
    uint32_t own_process = set_is_shared(set) ? 0 : (uint32_t)os_process_id(), at = 0;
    size_t found = 0, stored = 0;
    struct weir_holder holder;

    while (set_holders_next(set, &at, &holder))
        found++;
    *ret = os_alloc(found + 1, sizeof(**ret));
    while (*ret && stored < found && set_holders_next(set, &at, &holder)) {
        holder.process |= own_process;
        (*ret)[stored++] = holder;
    }
    return *ret ? (int)stored : -ENOMEM;
}

int weir_set_holders(weir_set *set, struct weir_holder *ret, size_t n)
{
    struct weir_holder *all = NULL;
    struct thread_ctx *ctx;
    int found;

    if (!set || (n && !ret))
        return -EINVAL;
    if (instance_is_forked(set->w))
        return -ECHILD;
    set = set_current(set);
    ctx = thread_ctx_get(set);
    if (!ctx)
        return -ENOMEM;
    if (set_is_shared(set))
        peer_make_room(ctx, set); /* dead peers neither hold nor wait */
    found = set_holders_list(set, &all);
    if (found >= 0 && set->limits.n)
        set_holders_order(ctx, set, all, (size_t)found);
    if (set_is_broken(set)) {
        os_free(all);
        return -EUCLEAN;
    }
    for (size_t i = 0; found > 0 && i < (size_t)found && i < n; i++)
        ret[i] = all[i];
    os_free(all);
    return found;
}

/* Appends to `items`, which has room for 2 * max: once it is full, the `max` oldest stay. */
static void set_holders_keep_oldest(struct weir_holder *items, size_t *n, size_t max,
                                    const struct weir_holder *holder)
{
    if (*n == 2 * max) {
        qsort(items, *n, sizeof(*items), set_holders_cmp_since);
        *n = max;
    }
    items[(*n)++] = *holder;
}

int set_holders_oldest(weir_set *set, struct weir_holder *ret, size_t max)
{
    struct weir_holder *items[] = {ret, ret + 2 * max}, holder;
    struct thread_ctx *ctx;
    uint32_t at = 0;
    size_t n[] = {0, 0};

    WEIR_INVARIANT(!set_is_shared(set));
    set = set_current(set);
    ctx = thread_ctx_get(set);
    if (!ctx)
        return -ENOMEM;
    while (set_holders_next(set, &at, &holder)) {
        holder.process = os_process_id();
        set_holders_keep_oldest(items[holder.waiting], &n[holder.waiting], max, &holder);
    }
    for (size_t i = 0; i < 2; i++) {
        qsort(items[i], n[i], sizeof(holder), set_holders_cmp_since);
        n[i] = n[i] < max ? n[i] : max;
    }
    memmove(ret + n[0], items[1], n[1] * sizeof(holder));
    qsort(ret + n[0], n[1], sizeof(holder), set_holders_cmp_records);
    if (n[1])
        set_holders_order(ctx, set, ret + n[0], n[1]);
    return (int)(n[0] + n[1]);
}

/* Returns whether a record that was listed is still what it was. */
static bool set_holder_is_there(const weir_set *set, const struct weir_holder *holder)
{
    uint32_t record = record_link_target(holder->id);
    const struct acq_record *r;
    uint64_t word;

    if (!set->limits.n || !region_has_record(set->region, record))
        return false;
    r = record_at(set->region, record);
    word = record_load(&r->word);
    return set_holder_id(word, record) == holder->id &&
           set_holder_is_of_set(set, record_load(&r->set)) &&
           record_state(word) == (holder->waiting ? RECORD_WAITING : RECORD_HELD);
}

int weir_set_holder_amounts(weir_set *set, const struct weir_holder *holder, uint64_t *ret,
                            size_t n)
{
    uint64_t amounts[WEIR_LIMITS_MAX];
    uint32_t record;

    if (!set || !holder || (n && !ret))
        return -EINVAL;
    if (instance_is_forked(set->w))
        return -ECHILD;
    set = set_current(set);
    record = record_link_target(holder->id);
    if (!set_holder_is_there(set, holder))
        return -ESRCH;
    fairness_amounts(set, record, amounts);
    for (uint32_t i = 0; i < n && i < set_listed_n(set); i++)
        ret[i] = amounts[set_listed(set, i)];
    return set_holder_id(record_load(&set_record(set, record)->word), record) == holder->id
               ? (int)set_listed_n(set)
               : -ESRCH;
}

int weir_set_holder_overheld(weir_set *set, const struct weir_holder *holder,
                             struct weir_overheld *ret)
{
    struct max_hold hold;
    uint32_t record;
    bool is_limited;

    if (!set || !holder || !ret || ret->size < sizeof(*ret))
        return -EINVAL;
    if (instance_is_forked(set->w))
        return -ECHILD;
    set = set_current(set);
    record = record_link_target(holder->id);
    if (!set_holder_is_there(set, holder))
        return -ESRCH;
    if (holder->waiting)
        return 0;
    is_limited = max_hold_read(set, record, &hold);
    if (set_holder_id(record_load(&set_record(set, record)->word), record) != holder->id)
        return -ESRCH;
    if (!is_limited ||
        hold.overheld_ns > clock_instant(&set->w->clock, set->limits.clock_needs).now_ns)
        return 0;
    *ret = (struct weir_overheld){
        .size = sizeof(*ret),
        .key = hold.limit->key,
        .since_ns = set_to_instance_ns(set, hold.overheld_ns),
        .revoke_ns = hold.revoking ? set_to_instance_ns(set, hold.revoked_ns) : WEIR_FOREVER};
    return 1;
}

int weir_set_classes(weir_set *set, struct weir_class_stats *ret, size_t n)
{
    struct weir_class_stats all[WAIT_CLASSES_MAX] = {{.name = ""}};
    const struct wait_classes *classes;
    struct weir_holder holder;
    uint32_t at = 0;

    if (!set || (n && !ret))
        return -EINVAL;
    if (instance_is_forked(set->w))
        return -ECHILD;
    set = set_current(set);
    classes = set->classes;
    if (!classes)
        return 0;
    for (uint32_t c = 0; c < classes->rule.n; c++) {
        memcpy(all[c].name, classes->names[c], sizeof(classes->names[c]));
        all[c].weight = classes->rule.ageing ? 0 : classes->weights[c];
    }
    while (n && set_holders_next(set, &at, &holder)) {
        uint32_t c = record_wait_class(record_at(set->region, at));

        if (c < classes->rule.n) /* another process may have written anything */
            ++*(holder.waiting ? &all[c].waiting : &all[c].held);
    }
    if (n)
        stats_add_classes(set, all);
    if (set_is_broken(set))
        return -EUCLEAN;
    for (uint32_t c = 0; c < n && c < classes->rule.n; c++)
        ret[c] = all[c];
    return (int)classes->rule.n;
}

/* Finds the wait queue that a record is the head of. Returns whether there is one. */
static bool set_holders_find_queue(struct thread_ctx *ctx, weir_set *set, uint32_t record,
                                   struct set_view *ret)
{
    for (uint32_t i = 0; long_look_goes_on() && set->ops->view_queue(ctx, set, i, ret); i++)
        if (ret->head == record)
            return true;
    return false;
}

int weir_set_waiter_refusal(weir_set *set, const struct weir_holder *waiter,
                            struct weir_refusal *ret)
{
    uint64_t amounts[WEIR_LIMITS_MAX];
    struct decision decision = {0};
    struct weir_instant at;
    struct thread_ctx *ctx;
    struct set_view view;
    uint32_t record;
    int r;

    if (!set || !waiter || !waiter->waiting)
        return -EINVAL;
    if (!ret || ret->size < sizeof(*ret))
        return -EINVAL;
    if (set->backend == BACKEND_REMOTE)
        return -EOPNOTSUPP;
    set = set_current(set);
    record = record_link_target(waiter->id);
    r = weir_set_holder_amounts(set, waiter, NULL, 0);
    if (r < 0)
        return r;
    fairness_amounts(set, record, amounts); /* by places; whether it still waits is seen below */
    ctx = thread_ctx_get(set);
    if (!ctx)
        return -ENOMEM;
    if (!set_holders_find_queue(ctx, set, record, &view))
        return set_is_broken(set) ? -EUCLEAN : 1;
    /* Else the head is a later waiter, with other amounts. */
    if (set_holder_id(record_load(&record_at(set->region, record)->word), record) != waiter->id)
        return -ESRCH;
    at = set_view_instant(set, &view);
    decision.forecast_ns = limits_ready_at(&set->limits, view.content + CONTENT_STATES, &at,
                                           amounts, true, &decision.limiting);
    decision.now_ns = clock_instant(&set->w->clock, set->limits.clock_needs).now_ns;
    if (set_is_broken(set) || set_is_faulty(set))
        return -EUCLEAN;
    acquire_op_fill_refusal(ret, set, -EAGAIN, &decision);
    return 0;
}
