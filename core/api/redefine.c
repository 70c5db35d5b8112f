/* SPDX-License-Identifier: MIT */
/* weir_segment_redefine(): changes the definition of a set while processes share it. */
#include "api/follow.h"
#include "api/instance.h"
#include "api/set_object.h"
#include "config/fingerprint.h"
#include "keyed/keyed.h"
#include "os/os.h"
#include "peer/peer.h"
#include "set/places.h"
#include "set/set_ops.h"
#include "shm/definition_diff.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <weir/segment.h>

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
        if (places_can_carry(from, to))
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
    r = follow_check_set(before, plan, redefinition->reterr);
    if (r < 0)
        return r;
    peer_make_room(NULL, before); /* what dead processes hold would keep places of limits */
    ctx = thread_ctx_lock_spare(before);
    r = places_choose(ctx, before, plan, &places, redefinition->reterr);
    plan->places = &places;
    pthread_mutex_lock(&before->w->lock);
    if (r == 0)
        r = follow_new_successor(before, plan, &after, redefinition->reterr);
    if (r == 0 && !(redefinition->flags & WEIR_REDEFINE_CHECK)) {
        r = set_redefine(ctx, before, after, &places, fingerprint->definition, fingerprint->hash);
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

    if (follow_resolve_options(redefinition->w, &options, &plan, NULL) < 0)
        return false;
    found = follow_find_plan(&plan, redefinition->name);
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
    r = follow_resolve_options(redefinition->w, redefinition->options, &plan, redefinition->reterr);
    if (r == 0) {
        found = follow_find_plan(&plan, redefinition->name);
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
