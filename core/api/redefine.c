/* SPDX-License-Identifier: MIT */
/* Shared sets get another definition: weir_segment_redefine changes it, and each process that comes
 * upon that makes the successor of its set. set/set.h has the protocol. */
#include "api/instance.h"
#include "api/set_object.h"
#include "base/invariant.h"
#include "config/config_ast.h"
#include "config/fingerprint.h"
#include "keyed/keyed.h"
#include "os/os.h"
#include "set/places.h"
#include "set/set_ops.h"
#include "shm/definition_diff.h"
#include "shm/segment_definition.h"
#include "wait/hold_watch.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <weir/segment.h>

/* ---- the successor of a shared set ---- */

/* Returns what of a limit that stays where it is may not change while processes use it, or NULL. A
 * subject does not say by which algorithm something was taken of it. */
static const char *redefine_limit_obstacle(const weir_set *before, const struct limit *from,
                                           const struct limit *to)
{
    if (strcmp(from->key, to->key) != 0)
        return "another key";
    if (from->type != to->type)
        return "another type";
    if (before->is_keyed ? !limit_can_carry(from, to) : !places_can_go_on(from, to))
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
static int redefine_check_set(const weir_set *before, const struct set_plan *plan,
                              struct weir_error *reterr)
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
    else if (before->is_keyed && plan->limits_n != before->limits.n)
        why = "limits would come or go";
    else if (!plan->limits_n)
        why = "it would have no limits";
    else if (reload_changes_classes(before, plan))
        why = "its classes of requests would have other names, or be others";
    return why ? error_set(reterr, -EOPNOTSUPP,
                           "%s; end the processes that use the set, remove it with `weir rm`, and "
                           "start them with the new definition",
                           why)
               : 0;
}

/* Checks whether limits of a plan can be where they are in it. Returns as redefine_check_set(). */
static int redefine_check_limits(const weir_set *before, const struct set_plan *plan,
                                 struct weir_error *reterr)
{
    for (uint32_t i = 0; i < plan->limits_n; i++) {
        const struct limit *limit =
            places_limit(before, plan->places ? plan->places->of_limit[i] : i);
        const char *what = limit ? redefine_limit_obstacle(before, limit, &plan->limits[i]) : NULL;

        if (what)
            return error_set(reterr, -EOPNOTSUPP,
                             "limit %u (`%s`) would have %s; end the processes that use the set, "
                             "remove it with `weir rm`, and start them with the new definition",
                             i + 1, error_text(limit->key).text, what);
    }
    return 0;
}

static int redefine_copy_config(const weir_set *from, struct set_plan *to)
{
    to->config = from->config_n ? os_alloc(from->config_n, sizeof(*to->config)) : NULL;
    if (from->config_n && !to->config)
        return -ENOMEM;
    for (; to->config_n < from->config_n; to->config_n++) {
        struct name_value *item = &to->config[to->config_n];

        item->name = os_strdup(from->config[to->config_n].name);
        item->value = os_strdup(from->config[to->config_n].value);
        if (!item->name || !item->value) {
            os_free(item->name);
            os_free(item->value);
            return -ENOMEM;
        }
    }
    return 0;
}

/* Lets each process decide for itself what it does, as `before` says. Returns 0 or -ENOMEM. */
static int redefine_settle(const weir_set *before, struct set_plan *plan)
{
    struct set_plan own = {0};

    if (redefine_copy_config(before, &own) < 0) {
        set_plan_free(&own);
        return -ENOMEM;
    }
    set_plan_free(&(struct set_plan){.config = plan->config, .config_n = plan->config_n});
    plan->config = own.config;
    plan->config_n = own.config_n;
    plan->timeout_ns = before->timeout_ns;
    plan->max_wait_ns = before->max_wait_ns;
    plan->strict = before->strict;
    plan->counts_holds = before->limits.counts_holds;
    for (uint32_t i = 0; i < plan->limits_n; i++)
        if (!plan->limits[i].algorithm)
            plan->limits[i].held_max = UINT64_MAX; /* it may have had a greater capacity */
    return 0;
}

/* Makes the successor of a shared set, which no other thread knows yet. The instance's lock is
 * held. */
static int redefine_make(weir_set *before, struct set_plan *plan, weir_set **ret,
                         struct weir_error *reterr)
{
    int r = redefine_check_set(before, plan, reterr);

    if (r == 0)
        r = redefine_check_limits(before, plan, reterr);
    if (r == 0)
        r = redefine_settle(before, plan);
    if (r == 0)
        r = set_new(before->w, before->number, plan, before->ops, before, ret, reterr);
    if (r == 0)
        (*ret)->is_configured = before->is_configured;
    return r == -ENOMEM ? error_set(reterr, r, "out of memory") : r;
}

/* Returns the plan of a shared set in what was resolved, or NULL. */
static struct set_plan *redefine_find(const struct plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->sets_n; i++)
        if (strcmp(plan->sets[i].name, name) == 0)
            return &plan->sets[i];
    return NULL;
}

/* Resolves a configuration. The instance's lock is held. */
static int redefine_resolve(weir *w, const struct weir_options *options, struct plan *ret,
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
    int r = redefine_resolve(set->w, &options, ret_plan, reterr);

    if (r < 0)
        return r;
    *ret = redefine_find(ret_plan, set_own_name(set));
    r = *ret ? fingerprint_new(*ret, &own, reterr)
             : error_set(reterr, -EUCLEAN, "its definition is damaged: it is of another set");
    if (r == 0 && own.hash != copy->hash)
        r = error_set(reterr, -EUCLEAN, "its algorithms are other versions here");
    if (r == 0 && copy->number &&
        !places_are_valid(&copy->places, (*ret)->limits_n, set_amounts_n(set)))
        r = error_set(reterr, -EUCLEAN, "its definition is damaged: limits have no places");
    if (r == 0 && copy->number && !set->is_keyed)
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
    r = redefine_make(set, found, ret, reterr);
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

/* Makes definition `number` of a shared set; NULL `before`: the first one that this process knows.
 */
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
        r = redefine_make(before, found, ret, reterr);
    } else {
        found->newest = newest;
        found->definition = number;
        r = found->keyed.max_keys ? redefine_settle(newest, found) : -EUCLEAN;
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

/* ---- weir_segment_redefine ---- */

struct redefinition {
    const struct weir_options *options;
    const char *name;
    uint32_t flags;
    int (*differs)(void *userdata, const struct weir_redefinition *redefinition);
    void *userdata;
    struct weir_error *reterr;

    char *definition, *directory; /* as they are found; owned */
    int code;                     /* why the segment cannot be used */
    weir *w;
    weir_set *set;
};

/* Takes the definition and the directory of the segment that is looked for. */
static int redefine_found(void *userdata, const struct weir_segment *segment)
{
    struct redefinition *redefinition = userdata;
    char *slash;

    if (strcmp(segment->name, redefinition->name) != 0)
        return 0;
    redefinition->code = segment->refusal ? segment->refusal->code : 0;
    if (segment->refusal && redefinition->reterr)
        *redefinition->reterr = *segment->refusal;
    if (segment->refusal)
        return 0; /* one that was removed in use may be listed besides */
    redefinition->definition = segment->definition ? os_strdup(segment->definition) : NULL;
    redefinition->directory = os_strdup(segment->path);
    slash = redefinition->directory ? strrchr(redefinition->directory, '/') : NULL;
    if (slash)
        *slash = '\0';
    if (!redefinition->definition || !slash)
        redefinition->code = error_set(redefinition->reterr, -ENOMEM, "out of memory");
    return 1;
}

/* Returns whether the segment has another definition by now than the one that was found. */
static bool redefine_is_outdated(const struct redefinition *redefinition)
{
    struct redefinition now = {.name = redefinition->name};
    bool is_outdated;

    (void)weir_segments(redefinition->options, redefine_found, &now, NULL);
    is_outdated = !now.definition || strcmp(now.definition, redefinition->definition) != 0;
    os_free(now.definition);
    os_free(now.directory);
    return is_outdated;
}

/* Opens the set by the definition that its segment has. */
static int redefine_open(struct redefinition *redefinition)
{
    const struct weir_options *wanted = redefinition->options;
    struct weir_options options = {.size = sizeof(options),
                                   .plugin_dirs = wanted->plugin_dirs,
                                   .log = wanted->log,
                                   .userdata = wanted->userdata,
                                   .clock = wanted->clock,
                                   .flags =
                                       WEIR_OPEN_EXISTING | (wanted->flags & WEIR_OPEN_NO_HANDLER)};
    int r;

    redefinition->code = -ENOENT;
    r = weir_segments(wanted, redefine_found, redefinition, redefinition->reterr);
    if (r < 0)
        return r;
    if (redefinition->code == -ENOENT)
        return error_set(redefinition->reterr, -ENOENT, "there is no shared set `%s`",
                         error_text(redefinition->name).text);
    if (redefinition->code < 0)
        return redefinition->code;
    options.text = redefinition->definition;
    options.text_name = "the segment's definition";
    options.process_dir = redefinition->directory;
    r = weir_open(&redefinition->w, &options, redefinition->reterr);
    if (r < 0)
        return r == -EEXIST && redefine_is_outdated(redefinition) ? -ESTALE : r;
    for (uint32_t i = 0; i < atomic_load_explicit(&redefinition->w->sets_n, memory_order_seq_cst);
         i++) {
        weir_set *set = instance_set(redefinition->w, i);

        if (set_is_shared(set) && strcmp(set_own_name(set), redefinition->name) == 0)
            redefinition->set = set_newest(set);
    }
    return redefinition->set ? 0
                             : error_set(redefinition->reterr, -EUCLEAN,
                                         "the segment's definition is of another set");
}

/* Lets the subjects go over that the process left which made the change. */
static void redefine_complete_subjects(weir_set *set)
{
    if (set->is_keyed && keyed_oldest(keyed_of(set)) < keyed_of(set)->definition)
        keyed_take_over(set);
}

/* Completes what another process has begun: it may have been killed after the set had moved, and
 * before the next definition had the state. Returns 0, -ESTALE (there is a newer definition), or
 * an error of set_catch_up(). */
static int redefine_complete(const struct redefinition *redefinition)
{
    struct thread_ctx *ctx;
    int r = set_catch_up(redefinition->set, false);

    if (r < 0)
        return error_set(redefinition->reterr, r,
                         "set `%s` has got a definition that this process "
                         "cannot follow: %s",
                         error_text(redefinition->name).text, strerrordesc_np(-r));
    if (!set_successor(redefinition->set)) {
        redefine_complete_subjects(redefinition->set);
        return 0;
    }
    ctx = thread_ctx_lock_spare(redefinition->set);
    set_grant_waiters(ctx, set_newest(redefinition->set));
    thread_ctx_return_slow(ctx);
    return -ESTALE;
}

static void redefine_close(struct redefinition *redefinition)
{
    weir_close(redefinition->w);
    os_free(redefinition->definition);
    os_free(redefinition->directory);
    redefinition->w = NULL;
    redefinition->set = NULL;
    redefinition->definition = redefinition->directory = NULL;
}

/* Returns whether a set has a limit with this key, but none that the limit can carry on. */
static bool redefine_begins_anew(const weir_set *before, const struct limit *to)
{
    bool has_key = false;

    for (uint32_t k = 0; k < before->limits.n; k++) {
        const struct limit *from = places_limit(before, k);

        if (!from || strcmp(from->key, to->key) != 0)
            continue;
        if (before->is_keyed ? limit_can_carry(from, to) : places_can_carry(from, to))
            return false;
        has_key = true;
    }
    return has_key;
}

/* Appends the names of the limits that begin anew. */
static void redefine_show_anew(const weir_set *before, const struct set_plan *plan, char *text,
                               size_t size)
{
    for (uint32_t i = 0; i < plan->limits_n; i++) {
        size_t length = strlen(text);

        if (redefine_begins_anew(before, &plan->limits[i]))
            snprintf(text + length, size - length, "; limit %u (`%s`) begins anew", i + 1,
                     error_text(plan->limits[i].key).text);
    }
}

/* Shows what differs. Returns 1 (go on), 0 (nothing differs), or -ECANCELED. */
static int redefine_show(const struct redefinition *redefinition, const struct set_plan *plan,
                         const struct fingerprint *after)
{
    struct definition_diff diff = definition_changes(redefinition->definition, after->definition);
    const struct weir_redefinition shown = {.size = sizeof(shown),
                                            .name = redefinition->name,
                                            .before = redefinition->definition,
                                            .after = after->definition,
                                            .changes = diff.text};

    redefine_show_anew(redefinition->set, plan, diff.text, sizeof(diff.text));
    if (redefinition->differs && redefinition->differs(redefinition->userdata, &shown) != 0)
        return error_set(redefinition->reterr, -ECANCELED, "the change was declined");
    return 1;
}

/* Moves the set to its new definition. The commits are made by the spare context, so that none of
 * them needs memory that there may not be. */
static int redefine_commit(const struct redefinition *redefinition, struct set_plan *plan,
                           const struct fingerprint *fingerprint)
{
    weir_set *before = redefinition->set, *after = NULL;
    struct limit_places places;
    struct thread_ctx *ctx;
    int r = redefine_complete(redefinition);

    if (r < 0)
        return r;
    r = redefine_check_set(before, plan, redefinition->reterr);
    if (r < 0)
        return r;
    ctx = thread_ctx_lock_spare(before);
    if (!before->is_keyed) {
        r = places_choose(ctx, before, plan, &places, redefinition->reterr);
        plan->places = &places;
    }
    pthread_mutex_lock(&before->w->lock);
    if (r == 0)
        r = redefine_make(before, plan, &after, redefinition->reterr);
    if (r == 0 && !(redefinition->flags & WEIR_REDEFINE_CHECK)) {
        r = set_redefine(ctx, before, after, fingerprint->definition, fingerprint->hash);
        if (r < 0 && r != -ESTALE)
            error_set(redefinition->reterr, r, "the definition of set `%s` cannot be changed: %s",
                      error_text(redefinition->name).text,
                      r == -EBUSY ? "another process is changing it" : strerrordesc_np(-r));
    }
    if (after && set_successor(before) != after)
        set_free(after);
    pthread_mutex_unlock(&before->w->lock);
    if (set_successor(before))
        set_grant_waiters(ctx, set_newest(before));
    thread_ctx_return_slow(ctx);
    if (set_successor(before))
        redefine_complete_subjects(set_newest(before));
    return r < 0 ? r : 1;
}

/* Returns whether the set has the definition of this hash. */
static bool redefine_is_same(const struct redefinition *redefinition, uint64_t hash)
{
    const struct fingerprint none = {0};
    struct fingerprint before = none;
    struct plan plan;
    const struct weir_options options = {.size = sizeof(options), .text = redefinition->definition};
    const struct set_plan *found;
    bool is_same = false;

    if (redefine_resolve(redefinition->w, &options, &plan, NULL) < 0)
        return false;
    found = redefine_find(&plan, redefinition->name);
    if (found && fingerprint_new(found, &before, NULL) == 0)
        is_same = before.hash == hash;
    fingerprint_free(&before);
    plan_free(&plan);
    return is_same;
}

/* Compares and changes. Returns 1, 0 (it is the same), or a negative errno. */
static int redefine_run(struct redefinition *redefinition)
{
    struct fingerprint after = {0};
    struct set_plan *found = NULL;
    struct plan plan;
    bool is_same = false;
    int r;

    instance_lock(redefinition->w);
    r = redefine_resolve(redefinition->w, redefinition->options, &plan, redefinition->reterr);
    if (r == 0) {
        found = redefine_find(&plan, redefinition->name);
        r = found ? fingerprint_new(found, &after, redefinition->reterr)
                  : error_set(redefinition->reterr, -ENOENT,
                              "the configuration does not define set `%s`",
                              error_text(redefinition->name).text);
    }
    if (r == 0)
        is_same = redefine_is_same(redefinition, after.hash);
    instance_unlock(redefinition->w);
    if (r == 0 && !is_same)
        r = redefine_show(redefinition, found, &after);
    if (r == 1)
        r = redefine_commit(redefinition, found, &after);
    fingerprint_free(&after);
    plan_free(&plan);
    return r;
}

int weir_segment_redefine(const struct weir_options *options, const char *name, uint32_t flags,
                          int (*differs)(void *userdata,
                                         const struct weir_redefinition *redefinition),
                          void *userdata, struct weir_error *reterr)
{
    enum { TRIES = 100 };
    struct redefinition redefinition = {.options = options,
                                        .name = name,
                                        .flags = flags,
                                        .differs = differs,
                                        .userdata = userdata,
                                        .reterr = reterr};
    int r = -ESTALE;

    if (!options || options->size < sizeof(*options) || !name || flags & ~WEIR_REDEFINE_CHECK)
        return error_set(reterr, -EINVAL, "an argument is wrong: options, name or flags");
    for (int i = 0; i < TRIES && r == -ESTALE; i++) {
        r = redefine_open(&redefinition);
        if (r == 0)
            r = redefine_complete(&redefinition);
        if (r == 0)
            r = redefine_run(&redefinition);
        redefine_close(&redefinition);
    }
    return r == -ESTALE ? error_set(reterr, -EBUSY, "other processes keep changing set `%s`",
                                    error_text(name).text)
                        : r;
}
