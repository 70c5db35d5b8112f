/* SPDX-License-Identifier: MIT */
/* Sets as the instance holds them: their kinds, made from a plan, named, counted, freed. */
#ifndef WEIR_CORE_API_SET_OBJECT_H
#define WEIR_CORE_API_SET_OBJECT_H

#include "set/instance_base.h"
#include "set/set_ops.h"

struct set_plan;

/* The kinds: sets with one state, private or shared, and per-subject sets. */
extern const struct set_ops plain_set_ops, classed_set_ops, keyed_set_ops;

/* Returns the kind of set that a plan asks for. */
const struct set_ops *set_ops_for(const struct set_plan *plan);

/* Returns the name of the set; of a key set that of its template, which has its number. The string
 * belongs to that set. */
static inline const char *set_name(const weir_set *set)
{
    return set_own_name(instance_set(set->w, set->number));
}

/*
 * Makes a set of this kind from its plan; on success the parts of the plan move into the set. It
 * will succeed `predecessor`, a plain set, unless that is NULL. Returns 0 or a negative errno with
 * the reason in `reterr`. The caller holds the instance's lock.
 */
int set_new(weir *w, uint32_t number, struct set_plan *plan, const struct set_ops *ops,
            weir_set *predecessor, weir_set **ret, struct weir_error *reterr);
void set_free(weir_set *set);

/*
 * Makes a variant of the newest definition of a shared set, with the own settings of a plan
 * (own_settings.h). Nothing in a weir_set changes after it was made, so it is another one: of the
 * same definition, with the same state, number and records. It follows the set as a successor does,
 * but no state moves. Requests that have begun go on by the set that they have read. It is
 * published by set_succeed(), or freed. Returns 0 or -ENOMEM. The instance's lock is held.
 */
int set_new_variant(const weir_set *set, struct set_plan *plan, weir_set **ret);

/* ---- operations of plain sets that per-subject sets share ---- */

int set_plain_observe(struct thread_ctx *ctx, weir_set *set, uint32_t i, uint64_t *ret);
int set_plain_snapshot(struct thread_ctx *ctx, weir_set *set, struct weir_set_stats *ret,
                       struct weir_limit_stats *limits, uint32_t n);
bool set_plain_view_queue(struct thread_ctx *ctx, weir_set *set, uint32_t i, struct set_view *ret);
void set_shutdown(struct thread_ctx *ctx, weir_set *set);

/* ---- stats.c ---- */

/* Returns the value of a name in the config map of this definition of a set, or NULL. */
const char *set_config_value(const weir_set *set, const char *name);

struct weir_set_view;

/* Reads the statistics of a set and of its first `n` limits. Returns as weir_set_stats(). Without
 * `asks_engine` what only an engine knows is 0. */
int stats_read(weir_set *set, struct weir_set_stats *ret, struct weir_limit_stats *retlimits,
               uint32_t n, bool asks_engine);

/* Adds to `ret` what is counted of each class of a set that has classes. */
void stats_add_classes(const weir_set *set, struct weir_class_stats *ret);

/* Looks at a set for a valid request: fills the view but for `id`, `weight` and `flags`. An engine
 * is not asked. `now_ns`: the instance's clock. Returns 0 or -ENOMEM. */
int stats_view(weir_set *set, const struct weir_request *request, uint64_t now_ns,
               struct weir_set_view *ret);

/* ---- fast_path.c ---- */

/* Returns the fast path of a set, if it has inline state or a small version; or NULL. */
const struct fast_path *fast_path_for(const weir_set *set);

/* ---- redefine.c ---- */

/* Makes the earlier definitions of a new shared set by which it may still have subjects. Then
 * `*set` is the first of them, which owns them all. Returns 0, -ENOMEM or -EUCLEAN, with the
 * reason. The instance's lock is held. */
int set_recall(weir_set **set, struct weir_error *reterr);

/* ---- reload.c ---- */

/* Returns whether waiters would be of other classes in a set of this plan. */
bool reload_changes_classes(const weir_set *set, const struct set_plan *plan);

/* Has a successor watch the wall clock and what is held, as its limits need it. No locks held. */
void reload_watch(const weir_set *after);

/* ---- set_holders.c ---- */

/* Returns how many acquisitions of a shared set are held and not empty. Its counters cannot tell: a
 * process that dies between a grant or release and its counting leaves them apart for ever. */
uint64_t set_holders_count(const weir_set *set);

/* Adds what records hold of each limit to `ret`, over all keys of a keyed set. */
void set_holders_add_amounts(const weir_set *set, uint64_t *ret);

/* Lists the `max` oldest holders of a private set, then its `max` oldest waiters, in `ret`, which
 * has room for 4 * max. It is a long look, which takes no lock. Returns how many, or -ENOMEM. */
int set_holders_oldest(weir_set *set, struct weir_holder *ret, size_t max);

#endif
