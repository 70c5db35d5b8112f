/* SPDX-License-Identifier: MIT */
/* Who holds a set, and who waits. */
#include "api/set_holders.h"
#include "peer/peer_cleanup.h"

#include "api/instance.h"
#include "base/mutant.h"
#include "keyed/key_set.h"
#include "os/os.h"
#include "peer/participant.h"
#include "set/txn.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Of a waiter that was not met in line: it joined, or the line changed, meanwhile. */
#define POSITION_UNKNOWN UINT32_MAX

static uint64_t holder_id(uint64_t word, uint32_t record)
{
    return (word >> 8) << LINK_BITS | record;
}

/* ---- records ---- */

/* Whether a record is of an acquisition of nothing, as queues keep them. */
static bool is_of_nothing(const weir_set *set, const struct record *r)
{
    for (uint32_t i = 0; i < set->limits.n; i++)
        if (record_load(&r->amounts[i]))
            return false;
    return true;
}

/* Whether a record says that it is the set's: one region of an instance has the records of many.
 * The lines of a keyed set are those of hidden ones. */
static bool is_of_set(const weir_set *set, uint64_t set_thread)
{
    uint32_t id = (uint32_t)(set_thread >> 32);

    if (set->member)
        return true;
    if (set->keyed && id & HIDDEN_SET && !MUTANT(462))
        return live_of(instance_set(set->w, id))->keyed == set->keyed;
    return id == set->id;
}

/* What a record says if it belongs to the set and holds or waits. */
static bool describe_holder(const weir_set *set, uint32_t record, struct weir_holder *ret)
{
    const struct record *r = record_at(set->region, record);
    uint64_t word = record_load(&r->word), set_thread = record_load(&r->set);
    enum record_state state = record_state(word);

    if ((state != RECORD_HELD && state != RECORD_WAITING) || !is_of_set(set, set_thread))
        return false;
    if (is_of_nothing(set, r) && !MUTANT(147))
        return false;
    *ret = (struct weir_holder){
        .id = holder_id(word, record),
        .since_ns = record_load(state == RECORD_HELD ? &r->granted : &r->since),
        .thread = (uint32_t)set_thread,
        .process = set->member ? member_owner(set->member, record) : 0,
        .waiting = state == RECORD_WAITING,
        .position = state == RECORD_WAITING ? POSITION_UNKNOWN : 0,
    };
    return record_load(&r->word) == word;
}

/* Counts the set's holders and, if `all` is not NULL, stores the first `n`, in order of records. */
static size_t scan_holders(const weir_set *set, struct weir_holder *all, size_t n)
{
    const struct region *region = set->region;
    uint32_t record = 0;
    size_t found = 0;

    while (set->head && (record = region_next_record(region, record))) {
        struct weir_holder holder;

        if (!describe_holder(set, record, &holder))
            continue;
        if (all && found < n)
            all[found] = holder;
        found++;
    }
    return found;
}

uint64_t holders_held(const weir_set *set)
{
    uint32_t record = 0;
    uint64_t held = 0;

    while ((record = region_next_record(set->region, record))) {
        struct weir_holder holder;

        held += describe_holder(set, record, &holder) && !holder.waiting;
    }
    return held;
}

void holders_amounts(const weir_set *set, uint64_t *ret)
{
    uint32_t record = 0;

    while ((record = region_next_record(set->region, record))) {
        const struct record *r = record_at(set->region, record);
        struct weir_holder holder;

        if (describe_holder(set, record, &holder) && !holder.waiting)
            for (uint32_t i = 0; i < set->limits.n; i++)
                ret[i] += record_load(&r->amounts[i]);
    }
}

/* ---- the line ---- */

static int compare_records(const void *a, const void *b)
{
    uint32_t x = link_record(((const struct weir_holder *)a)->id);
    uint32_t y = link_record(((const struct weir_holder *)b)->id);

    return x < y ? -1 : x > y;
}

static struct weir_holder *find_record(struct weir_holder *all, size_t n, uint32_t record)
{
    struct weir_holder wanted = {.id = record};

    return bsearch(&wanted, all, n, sizeof(*all), compare_records);
}

static int compare_holders(const void *a, const void *b)
{
    uint64_t x = ((const struct weir_holder *)a)->since_ns;
    uint64_t y = ((const struct weir_holder *)b)->since_ns;

    return x < y ? -1 : x > y;
}

/* Those that were not met stand behind the others, the longest first. */
static void position_rest(struct weir_holder *all, size_t n, uint32_t position)
{
    for (size_t i = 0; i < n; i++)
        if (all[i].position == POSITION_UNKNOWN)
            all[i].position = ++position;
}

/* Walks the line, as far as it is found among `all`, which are in order of records. Returns how many
 * that were. */
static uint32_t walk_line(const weir_set *set, uint32_t head, struct weir_holder *all, size_t n)
{
    struct weir_holder *holder = NULL;
    uint32_t position = 0;

    while (head && (holder = find_record(all, n, head)) && holder->position == POSITION_UNKNOWN) {
        holder->position = ++position;
        head = line_next(set->region, head);
    }
    return position;
}

/* `all` will be in order of time. */
static void order_holders(const weir_set *set, uint32_t head, struct weir_holder *all, size_t n)
{
    uint32_t position = walk_line(set, head, all, n);

    qsort(all, n, sizeof(*all), compare_holders);
    position_rest(all, n, position);
}

/* The same where each key has a line of its own. */
static void order_by_line(struct actor *actor, weir_set *set, struct weir_holder *all, size_t n)
{
    struct live storage;

    for (uint32_t i = 0; i < lives_n(set->keyed); i++) {
        if (set_snapshot(actor, &live_numbered(set->keyed, i, &storage)->set))
            walk_line(set, (uint32_t)actor->content[CONTENT_ENDS], all, n);
    }
    qsort(all, n, sizeof(*all), compare_holders);
    position_rest(all, n, 0);
}

/* ---- all of them ---- */

static int scan_all(weir_set *set, struct weir_holder **ret)
{
    weir *w = set->w;
    size_t found, stored;

    pthread_mutex_lock(&w->lock);
    found = scan_holders(set, NULL, 0);
    *ret = sys_alloc(found + 1, sizeof(**ret));
    stored = *ret ? scan_holders(set, *ret, found) : 0;
    pthread_mutex_unlock(&w->lock);
    if (!*ret)
        return -ENOMEM;
    stored = stored < found ? stored : found;
    for (size_t i = 0, process = sys_process_id(); i < stored && !set->member; i++)
        (*ret)[i].process = (uint32_t)process;
    return (int)stored;
}

int weir_set_holders(weir_set *set, struct weir_holder *ret, size_t n)
{
    struct weir_holder *all = NULL;
    struct actor *actor;
    int found;

    if (instance_forked(set->w))
        return -ECHILD;
    actor = actor_self(set);
    if (!actor)
        return -ENOMEM;
    if (set->member)
        burial_attend(actor, set); /* the dead neither hold nor wait */
    found = scan_all(set, &all);
    if (set->head)
        set_snapshot(actor, set);
    if (set_is_broken(set)) {
        sys_free(all);
        return -EUCLEAN;
    }
    if (set->keyed && found > 0)
        order_by_line(actor, set, all, (size_t)found);
    else if (found > 0)
        order_holders(set, (uint32_t)actor->content[CONTENT_ENDS], all, (size_t)found);
    for (size_t i = 0; found > 0 && i < (size_t)found && i < n; i++)
        ret[i] = all[i];
    sys_free(all);
    return found;
}

int weir_set_holder_amounts(weir_set *set, const struct weir_holder *holder, uint64_t *ret,
                            size_t n)
{
    const struct record *r;
    uint32_t record;
    bool is_there;
    uint64_t word;

    if (instance_forked(set->w))
        return -ECHILD;
    if (!holder || (n && !ret))
        return -EINVAL;
    record = link_record(holder->id);
    pthread_mutex_lock(&set->w->lock);
    is_there = set->head && region_has_record(set->region, record);
    pthread_mutex_unlock(&set->w->lock);
    if (!is_there)
        return -ESRCH;
    r = record_at(set->region, record);
    word = record_load(&r->word);
    if (holder_id(word, record) != holder->id || !is_of_set(set, record_load(&r->set)) ||
        record_state(word) != (holder->waiting ? RECORD_WAITING : RECORD_HELD))
        return -ESRCH;
    for (size_t i = 0; i < n && i < set->limits.n; i++)
        ret[i] = record_load(&r->amounts[i]);
    return record_load(&r->word) == word ? (int)set->limits.n : -ESRCH;
}
