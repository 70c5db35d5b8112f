/* SPDX-License-Identifier: MIT */
/* Makes the successors of shared sets, as their segments define them, where another process has
 * changed the definition, and earlier definitions that subjects are of. set/set.h has the protocol.
 */
#include "api/follow.h"
#include "api/instance.h"
#include "api/own_settings.h"
#include "api/set_object.h"
#include "base/invariant.h"
#include "config/config_ast.h"
#include "config/fingerprint.h"
#include "keyed/keyed.h"
#include "os/os.h"
#include "set/places.h"
#include "set/set_ops.h"
#include "shm/segment_definition.h"
#include "wait/hold_watch.h"
#include <errno.h>
#include <string.h>

/* ---- the successor of a shared set ---- */

/* Returns what of a limit that stays where it is may not change while processes use it, or NULL. */
static const char *follow_limit_obstacle(const weir_set *before, const struct limit *from,
                                         const struct limit *to)
{
    if (strcmp(from->key, to->key) != 0)
        return "another key";
    if (from->type != to->type)
        return "another type";
    if (before->is_keyed ? !places_can_carry(from, to) : !places_can_go_on(from, to))
        return from->algorithm == to->algorithm
                   ? "other settings, and its algorithm cannot take its state over"
                   : "another algorithm";
    if (from->lease != to->lease)
        return "another lease";
    if (from->shadow != to->shadow)
        return "another `shadow` or `enforce`";
    if (from->revokes != to->revokes)
        return "another `max_hold_action`";
    return NULL;
}

/* Checks whether a plan can succeed a shared set, but for its limits. Returns 0, or -EOPNOTSUPP and
 * the reason. */
int follow_check_set(const weir_set *before, const struct set_plan *plan, struct weir_error *reterr)
{
    const char *why = NULL;

    if (before->is_keyed != (plan->keyed.max_keys != 0))
        why = before->is_keyed ? "it has a state for each subject"
                               : "it would have a state for each subject";
    else if (plan->backend != BACKEND_PROCESS)
        why = "it would have another backend";
    else if (plan->while_used != before->while_used)
        why = "it would have another lifetime";
    else if (plan->boottime != before->boottime)
        why = "its times are by the other clock";
    else if (!plan->limits_n)
        why = "it would have no limits";
    else if (reload_changes_classes(before, plan))
        why = "its classes of requests would have other names, or be others";
    return why ? error_set(reterr, -EOPNOTSUPP, "%s; " START_ANEW, why) : 0;
}

/* Checks whether limits of a plan can be where they are in it. Returns as follow_check_set(). */
static int follow_check_limits(const weir_set *before, const struct set_plan *plan,
                               struct weir_error *reterr)
{
    for (uint32_t i = 0; i < plan->limits_n; i++) {
        const struct limit *limit =
            places_limit(before, plan->places ? plan->places->of_limit[i] : i);
        const char *what = limit ? follow_limit_obstacle(before, limit, &plan->limits[i]) : NULL;

        if (what)
            return error_set(reterr, -EOPNOTSUPP, "limit %u (`%s`) would have %s; " START_ANEW,
                             i + 1, error_text(limit->key).text, what);
    }
    return 0;
}

/* Lets each process decide for itself what it does, as `before` says. Returns 0 or -ENOMEM. */
static int follow_settle(const weir_set *before, struct set_plan *plan)
{
    int r = own_settings_copy(before, plan);

    for (uint32_t i = 0; i < plan->limits_n; i++)
        if (!plan->limits[i].algorithm)
            plan->limits[i].held_max = UINT64_MAX; /* it may have had a greater capacity */
    return r;
}

/* Makes the successor of a shared set, which no other thread knows yet. The instance's lock is
 * held. */
int follow_new_successor(weir_set *before, struct set_plan *plan, weir_set **ret,
                         struct weir_error *reterr)
{
    int r = follow_check_set(before, plan, reterr);

    if (r == 0)
        r = follow_check_limits(before, plan, reterr);
    if (r == 0)
        r = follow_settle(before, plan);
    if (r == 0)
        r = set_new(before->w, before->number, plan, before->ops, before, ret, reterr);
    if (r == 0)
        (*ret)->is_configured = before->is_configured;
    return r == -ENOMEM ? error_set(reterr, r, "out of memory") : r;
}

/* Returns the plan of a shared set in what was resolved, or NULL. */
struct set_plan *follow_find_plan(const struct plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->sets_n; i++)
        if (strcmp(plan->sets[i].name, name) == 0)
            return &plan->sets[i];
    return NULL;
}

/* Resolves a configuration. The instance's lock is held. */
int follow_resolve_options(weir *w, const struct weir_options *options, struct plan *ret,
                           struct weir_error *reterr)
{
    struct complaints complaints = {.file = ""};
    struct config_ast ast;
    int r = config_yaml_load(options, &ast, &complaints);

    r = plan_resolve(r, &ast, instance_of(w)->plugins, NULL, ret);
    if (r < 0 && reterr)
        *reterr = complaints.first;
    return r;
}

/* ---- following ---- */

/* Resolves a definition in a segment. The text says what the hash means, if this process has the
 * same plugins. */
static int follow_resolve(const weir_set *set, const struct definition_copy *copy,
                          struct plan *ret_plan, struct set_plan **ret, struct weir_error *reterr)
{
    const struct weir_options options = {.size = sizeof(options), .text = copy->text};
    struct fingerprint own = {0};
    int r = follow_resolve_options(set->w, &options, ret_plan, reterr);

    if (r < 0)
        return r;
    *ret = follow_find_plan(ret_plan, set_own_name(set));
    r = *ret ? fingerprint_new(*ret, &own, reterr)
             : error_set(reterr, -EUCLEAN, "its definition is damaged: it is of another set");
    if (r == 0 && own.hash != copy->hash)
        r = error_set(reterr, -EUCLEAN, "its algorithms are other versions here");
    if (r == 0 && copy->number &&
        !places_are_valid(&copy->places, (*ret)->limits_n, set_amounts_n(set)))
        r = error_set(reterr, -EUCLEAN, "its definition is damaged: limits have no places");
    if (r == 0 && copy->number)
        (*ret)->places = &copy->places;
    fingerprint_free(&own);
    if (r < 0)
        plan_free(ret_plan);
    return r;
}

static int follow_make(weir_set *set, const struct definition_copy *copy, weir_set **ret,
                       struct weir_error *reterr)
{
    struct set_plan *found;
    struct plan plan;
    int r = follow_resolve(set, copy, &plan, &found, reterr);

    if (r < 0)
        return r;
    r = follow_new_successor(set, found, ret, reterr);
    plan_free(&plan);
    return r;
}

static int follow_locked(weir_set *set, struct weir_error *reterr)
{
    const struct segment *segment = set->participant->segment;
    struct definition_copy *copy = set->participant->following;
    weir_set *after = NULL;
    uint32_t number;
    int r = -EUCLEAN;

    if (set_successor(set))
        return 0;
    if (segment_definition_of_unit(segment, set->head_unit, &number))
        r = segment_definition_read(segment->fd, &segment->layout, number + UINT64_C(1), copy);
    if (r < 0)
        return error_set(reterr, r, "its definition cannot be read: %s", strerrordesc_np(-r));
    r = follow_make(set, copy, &after, reterr);
    if (r == 0)
        set_succeed(set, after);
    return r;
}

/* Returns whether an error says nothing about the definition. */
static bool follow_may_succeed_later(int r)
{
    return r == -ENOMEM || r == -EMFILE || r == -ENFILE || r == -EIO;
}

int set_follow(weir_set *set, bool must)
{
    struct weir_error error = {0};
    int r;

    WEIR_INVARIANT(set_is_shared(set) && !set_is_key_set(set));
    pthread_mutex_lock(&set->w->lock);
    r = follow_locked(set, &error);
    pthread_mutex_unlock(&set->w->lock);
    if (r == 0 && !instance_is_closed(set->w)) {
        reload_watch(set_successor(set));
        hold_watch_look_now(set->w);
    }
    if (r == 0)
        return 0;
    if (!must && follow_may_succeed_later(r))
        return -ENOMEM;
    if (!atomic_exchange_explicit(&set->participant->broken_reported, true, memory_order_seq_cst))
        log_write(&set->w->log, WEIR_LOG_ERROR,
                  "set `%s`: its definition was changed, and this process cannot follow: %s; it "
                  "grants nothing here any more",
                  set_own_name(set), error.message[0] ? error.message : strerrordesc_np(-r));
    atomic_store_explicit(&set->participant->is_outdated, true, memory_order_seq_cst);
    participant_mark_broken(set->participant);
    return -EUCLEAN;
}

/* ---- earlier definitions ---- */

/* Makes definition `number` of a shared set; NULL `before`: the first one known here. */
static int recall_make(weir_set *newest, uint32_t number, weir_set *before, weir_set **ret,
                       struct weir_error *reterr)
{
    const struct segment *segment = newest->participant->segment;
    struct definition_copy *copy = newest->participant->following;
    struct set_plan *found;
    struct plan plan;
    int r = segment_definition_read(segment->fd, &segment->layout, number, copy);

    if (r < 0)
        return r;
    r = follow_resolve(newest, copy, &plan, &found, reterr);
    if (r < 0)
        return r;
    if (before) {
        r = follow_new_successor(before, found, ret, reterr);
    } else {
        found->newest = newest;
        found->definition = number;
        r = found->keyed.max_keys ? follow_settle(newest, found) : -EUCLEAN;
        if (r == 0)
            r = set_new(newest->w, newest->number, found, newest->ops, NULL, ret, reterr);
    }
    plan_free(&plan);
    return r;
}

static int recall_error(const weir_set *newest, uint32_t number, int r,
                        const struct weir_error *why, struct weir_error *reterr)
{
    const char *what = r == -EUCLEAN ? "it is damaged" : strerrordesc_np(-r);

    return error_set(
        reterr, follow_may_succeed_later(r) ? r : -EUCLEAN,
        "set `%s` has subjects by its definition number %u, which cannot be used here: "
        "%s",
        set_own_name(newest), number, why->message[0] ? why->message : what);
}

/* Lets the newest definition succeed the one before it. */
static int recall_connect(weir_set *before, weir_set *newest)
{
    const struct segment_layout *layout = &newest->participant->segment->layout;

    newest->origin = set_origin_new(before, &newest->limits);
    if (!newest->origin)
        return -ENOMEM;
    newest->origin->unopened_word =
        segment_definition_unopened(layout, keyed_of(newest)->definition);
    set_succeed(before, newest);
    return 0;
}

int set_recall(weir_set **set, struct weir_error *reterr)
{
    weir_set *newest = *set, *first = NULL, *last = NULL, *made;
    struct weir_error why = {0};
    uint32_t number, end;
    int r = 0;

    if (!set_is_shared(newest) || !newest->is_keyed)
        return 0;
    end = keyed_of(newest)->definition;
    for (number = keyed_oldest(keyed_of(newest)); r == 0 && number < end; number++) {
        r = recall_make(newest, number, last, &made, &why);
        if (r < 0)
            r = recall_error(newest, number, r, &why, reterr);
        else if (last)
            atomic_store_explicit(&last->successor, made, memory_order_seq_cst);
        else
            first = made;
        last = r == 0 ? made : last;
    }
    if (r == 0 && last)
        r = recall_connect(last, newest);
    if (r == 0 && first) {
        first->has_joined = true;
        newest->has_joined = false;
        *set = first;
    } else if (first) {
        set_free(first);
    }
    return r;
}
