/* SPDX-License-Identifier: MIT */
/* Takes a snapshot of the shared sets of a directory, of those that engines keep, and of those that
 * processes publish. */
#include "snapshot.h"
#include "published.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weir/segment.h>

struct snapshot_request {
    struct snapshot *snapshot;
    const struct source *source;
    struct engine_sets *engines;
    const struct snapshot_names *names;
    bool *found; /* by name */
    void (*refuse)(void *userdata, const struct weir_error *error);
    void *userdata;
    int code; /* reason for stopping, or 0 */
};

/* ---- one set ---- */

static int copy_text(char **ret, const char *text)
{
    *ret = text ? strdup(text) : NULL;
    return text && !*ret ? -ENOMEM : 0;
}

static int copy_settings(struct snapshot_limit *limit, const weir_set *set, size_t number)
{
    int n = weir_set_limit_settings(set, number, NULL, 0);
    int r = 0;

    if (n <= 0)
        return n;
    limit->settings = calloc((size_t)n, sizeof(*limit->settings));
    if (!limit->settings)
        return -ENOMEM;
    r = weir_set_limit_settings(set, number, limit->settings, (size_t)n);
    n = r < n ? r : n; /* its definition may have changed */
    r = 0;
    for (int i = 0; i < n; i++) {
        struct weir_setting borrowed = limit->settings[i];
        char *name = NULL, *value = NULL;

        if (copy_text(&name, borrowed.name) < 0 || copy_text(&value, borrowed.value) < 0)
            r = -ENOMEM;
        limit->settings[i] = (struct weir_setting){name, value};
    }
    limit->settings_n = n > 0 ? (size_t)n : 0;
    return r;
}

/* The gauges of a subject that is new tell nothing, so those of such a set are left out. */
static int copy_gauges(struct snapshot_limit *limit, const struct snapshot_set *of, weir_set *set,
                       size_t number)
{
    struct weir_limit_gauge gauges[WEIR_GAUGES_MAX];
    int n = of->info.subjects_max != 0 || of->away != 0
                ? 0
                : weir_set_limit_gauges(set, number, gauges, WEIR_GAUGES_MAX);
    int r = n < 0 ? n : 0;

    for (int i = 0; i < n && r == 0; i++) {
        char *name = NULL;

        r = copy_text(&name, gauges[i].name);
        if (r == 0)
            limit->gauges[limit->gauges_n++] = (struct weir_limit_gauge){
                .name = name, .value = gauges[i].value, .type = gauges[i].type};
    }
    return r;
}

static int copy_limits(struct snapshot_set *ret, weir_set *set)
{
    struct weir_limit_stats limits[WEIR_LIMITS_MAX];
    int n, r = 0;

    ret->stats.size = sizeof(ret->stats);
    n = weir_set_stats(set, &ret->stats, limits, WEIR_LIMITS_MAX);
    if (n < 0 && n != -ENOMEM && ret->engine) {
        ret->away = n;
        n = (int)weir_set_limits(set);
    }
    if (n <= 0)
        return n;
    ret->limits = calloc((size_t)n, sizeof(*ret->limits));
    if (!ret->limits)
        return -ENOMEM;
    ret->limits_n = (size_t)n;
    for (size_t i = 0; i < ret->limits_n && r == 0; i++) {
        struct snapshot_limit *limit = &ret->limits[i];

        limit->stats = limits[i];
        r = copy_text(&limit->key, limits[i].key);
        if (r == 0)
            r = copy_text(&limit->algorithm, limits[i].algorithm);
        if (r == 0)
            r = copy_settings(limit, set, i);
        if (r == 0)
            r = copy_gauges(limit, ret, set, i);
        limit->stats.key = limit->key;
        limit->stats.algorithm = limit->algorithm;
    }
    return r;
}

/* Describes the process of a holder. Copies what is known of the same process from the one before.
 */
static void describe_process(struct snapshot_holder *holder, const struct snapshot_holder *before)
{
    if (before && before->holder.process == holder->holder.process) {
        memcpy(holder->name, before->name, sizeof(holder->name));
        memcpy(holder->command_line, before->command_line, sizeof(holder->command_line));
        holder->has_command_line = before->has_command_line;
        return;
    }
    process_text_name(holder->holder.process, holder->name);
    holder->has_command_line = process_text_read(holder->holder.process, holder->command_line);
}

/* Orders holders before waiters, the longest first. */
static int compare_holders(const void *a, const void *b)
{
    const struct weir_holder *x = &((const struct snapshot_holder *)a)->holder;
    const struct weir_holder *y = &((const struct snapshot_holder *)b)->holder;

    if (x->waiting != y->waiting)
        return x->waiting < y->waiting ? -1 : 1;
    if (x->waiting && x->position != y->position)
        return x->position < y->position ? -1 : 1;
    return x->since_ns < y->since_ns ? -1 : x->since_ns > y->since_ns;
}

void snapshot_order_holders(struct snapshot_set *set)
{
    for (size_t i = 0; i < set->holders_n; i++)
        describe_process(&set->holders[i], i > 0 ? &set->holders[i - 1] : NULL);
    if (set->holders_n > 0)
        qsort(set->holders, set->holders_n, sizeof(*set->holders), compare_holders);
}

/* Returns the number of the first limit with a key, or UINT32_MAX. */
static uint32_t find_key(const struct snapshot_set *set, const char *key)
{
    for (uint32_t i = 0; i < set->limits_n; i++)
        if (strcmp(set->limits[i].key, key) == 0)
            return i;
    return UINT32_MAX;
}

/* Says what the first of a wait queue waits for. */
static void describe_wait(struct snapshot_holder *holder, const struct snapshot_set *of,
                          weir_set *set)
{
    struct weir_refusal refusal = {.size = sizeof(refusal)};

    /* A look goes through all wait queues of the set. */
    if (holder->holder.position != 1 ||
        weir_set_waiter_refusal(set, &holder->holder, &refusal) != 0)
        return;
    holder->is_next = true;
    holder->limiting = find_key(of, refusal.key);
    holder->retry_after_ns = refusal.retry_after_ns;
}

static void describe_overheld(struct snapshot_holder *holder, const struct snapshot_set *of,
                              weir_set *set, uint64_t now_ns)
{
    struct weir_overheld overheld = {.size = sizeof(overheld)};

    holder->overheld = UINT32_MAX;
    if (weir_set_holder_overheld(set, &holder->holder, &overheld) != 1)
        return;
    holder->overheld = find_key(of, overheld.key);
    holder->overheld_ns = now_ns > overheld.since_ns ? now_ns - overheld.since_ns : 0;
}

/* Describes holders and waiters. Those that go meanwhile are left out. */
static void describe_holders(struct snapshot_set *ret, weir_set *set, const struct weir_holder *all,
                             size_t n, uint64_t now_ns, bool with_waits)
{
    for (size_t i = 0; i < n; i++) {
        struct snapshot_holder *holder = &ret->holders[ret->holders_n];

        holder->holder = all[i];
        if (weir_set_holder_amounts(set, &all[i], holder->amounts, WEIR_LIMITS_MAX) < 0)
            continue;
        holder->age_ns = now_ns > all[i].since_ns ? now_ns - all[i].since_ns : 0;
        describe_overheld(holder, ret, set, now_ns);
        if (with_waits)
            describe_wait(holder, ret, set);
        ret->held_n += !all[i].waiting;
        ret->holders_n++;
    }
    snapshot_order_holders(ret);
}

static int copy_holders(struct snapshot_set *ret, weir *w, weir_set *set, bool with_waits)
{
    int n = weir_set_holders(set, NULL, 0);
    struct weir_holder *all;

    if (n <= 0)
        return n;
    all = calloc((size_t)n, sizeof(*all));
    ret->holders = calloc((size_t)n, sizeof(*ret->holders));
    if (all && ret->holders) {
        int found = weir_set_holders(set, all, (size_t)n);

        if (found > 0) /* may exceed the room by now */
            describe_holders(ret, set, all, (size_t)(found < n ? found : n), weir_now(w),
                             with_waits);
        n = found < 0 ? found : 0;
    } else {
        n = -ENOMEM;
    }
    free(all);
    return n;
}

void snapshot_free_set(struct snapshot_set *set)
{
    for (size_t i = 0; i < set->limits_n; i++) {
        for (size_t k = 0; k < set->limits[i].settings_n; k++) {
            free((void *)(uintptr_t)set->limits[i].settings[k].name);
            free((void *)(uintptr_t)set->limits[i].settings[k].value);
        }
        for (size_t k = 0; k < set->limits[i].gauges_n; k++)
            free((void *)(uintptr_t)set->limits[i].gauges[k].name);
        free(set->limits[i].settings);
        free(set->limits[i].key);
        free(set->limits[i].algorithm);
    }
    free(set->limits);
    free(set->holders);
    free(set->evict);
    free(set->name);
    free(set->engine);
}

static int copy_subjects(struct snapshot_set *ret, weir_set *set)
{
    int r;

    ret->subjects.size = sizeof(ret->subjects);
    r = weir_set_subjects(set, &ret->subjects);
    ret->has_subjects = r == 1;
    return r < 0 ? r : 0;
}

static int copy_classes(struct snapshot_set *ret, weir_set *set)
{
    int r = weir_set_classes(set, ret->classes, WEIR_CLASSES_MAX);

    ret->classes_n = r > 0 ? (size_t)r : 0;
    return r < 0 ? r : 0;
}

static int copy_set(struct snapshot_set *ret, weir *w, const struct weir_segment *segment,
                    bool with_waits)
{
    weir_pool *pool = NULL;
    int r = weir_pool_open(&pool, w, segment->name, 0, NULL);

    if (r == 0)
        r = copy_text(&ret->name, segment->name);
    if (r == 0) {
        weir_set *set = weir_pool_set(pool, 0);

        ret->users = segment->users;
        ret->info.size = sizeof(ret->info);
        weir_set_info(set, &ret->info);
        ret->lifetime = ret->info.lifetime;
        r = copy_limits(ret, set);
        if (r == 0)
            r = copy_subjects(ret, set);
        if (r == 0)
            r = copy_classes(ret, set);
        if (r == 0)
            r = copy_holders(ret, w, set, with_waits);
    }
    weir_pool_close(pool);
    return r;
}

static int copy_engine_set(struct snapshot_set *ret, const char *name, weir_set *set)
{
    int r;

    ret->info.size = sizeof(ret->info);
    weir_set_info(set, &ret->info);
    r = copy_text(&ret->name, name);
    if (r == 0)
        r = copy_text(&ret->engine, ret->info.backend);
    ret->info.backend = ret->engine;
    if (r == 0)
        r = copy_limits(ret, set);
    ret->is_unknown = ret->away != 0 || ret->info.subjects_max != 0;
    return r;
}

/* ---- all sets ---- */

static int add_set(struct snapshot *snapshot, const struct snapshot_set *set)
{
    size_t n = snapshot->sets_n;

    if ((n & (n - 1)) == 0) { /* twice as much room whenever it is full */
        struct snapshot_set *grown = realloc(snapshot->sets, (n ? 2 * n : 1) * sizeof(*grown));

        if (!grown)
            return -ENOMEM;
        snapshot->sets = grown;
    }
    snapshot->sets[snapshot->sets_n++] = *set;
    return 0;
}

static void report_refusal(struct snapshot_request *request, const struct weir_error *error)
{
    request->snapshot->refused++;
    if (request->refuse)
        request->refuse(request->userdata, error);
}

static void refuse_set(struct snapshot_request *request, const char *name, int code,
                       const char *why)
{
    struct weir_error error = {.code = code};

    snprintf(error.message, sizeof(error.message), "`%.200s`: %.250s", name, why);
    report_refusal(request, &error);
}

static int open_segment(const struct snapshot_request *request, const struct weir_segment *segment,
                        weir **ret, struct weir_error *reterr)
{
    struct weir_options options = source_options(request->source);
    char *directory = strdup(segment->path);
    int r = -ENOMEM;

    if (directory) {
        *strrchr(directory, '/') = '\0';
        options.file = NULL;
        options.text = segment->definition;
        options.process_dir = directory;
        options.flags = WEIR_OPEN_EXISTING;
        r = weir_open(ret, &options, reterr);
    }
    free(directory);
    return r;
}

static int read_segment(struct snapshot_request *request, const struct weir_segment *segment)
{
    struct weir_error error = {0};
    struct snapshot_set set = {0};
    weir *w = NULL;
    int r;

    if (segment->refusal || !segment->definition) {
        refuse_set(request, segment->name, -EINVAL,
                   segment->refusal ? segment->refusal->message
                                    : "its definition is too long to be stored in its segment");
        return 0;
    }
    r = open_segment(request, segment, &w, &error);
    if (r == 0)
        r = copy_set(&set, w, segment, request->names->with_waits);
    weir_close(w);
    if (r == 0)
        r = add_set(request->snapshot, &set);
    if (r == -ENOENT) { /* removed just now */
        snapshot_free_set(&set);
        return 0;
    }
    if (r < 0) {
        snapshot_free_set(&set);
        refuse_set(request, segment->name, r,
                   error.message[0] != '\0' ? error.message : strerror(-r));
    }
    return r == -ENOMEM ? r : 0;
}

/* Returns whether a set of this name is wanted, and notes that there is one. */
static bool is_wanted(const struct snapshot_request *request, const char *name)
{
    const struct snapshot_names *names = request->names;
    bool is_named = names->n == 0;

    for (size_t i = 0; i < names->n; i++) {
        if (strcmp(names->items[i], name) == 0) {
            request->found[i] = true;
            is_named = true;
        }
    }
    return is_named && (!names->match || strstr(name, names->match));
}

static int on_segment(void *userdata, const struct weir_segment *segment)
{
    struct snapshot_request *request = userdata;

    if (is_wanted(request, segment->name))
        request->code = read_segment(request, segment);
    return request->code != 0;
}

static int on_engine_set(void *userdata, const char *name, weir_set *set)
{
    struct snapshot_request *request = userdata;
    struct snapshot_set copy = {0};
    int r = is_wanted(request, name) ? copy_engine_set(&copy, name, set) : 0;

    if (copy.name && r == 0)
        r = add_set(request->snapshot, &copy);
    if (r < 0)
        snapshot_free_set(&copy);
    else
        request->snapshot->refused += copy.away != 0;
    return r;
}

/* What is wrong with the configuration is reported; it is no reason for stopping. */
static void read_engines(struct snapshot_request *request)
{
    struct weir_error error = {0};
    int r = engine_sets_open(request->engines, request->source, &error);

    if (r < 0) {
        error.code = r;
        report_refusal(request, &error);
    } else if (request->code == 0) {
        request->code = engine_sets_each(request->engines, on_engine_set, request);
    }
}

static int on_published(void *userdata, struct snapshot_set *set)
{
    struct snapshot_request *request = userdata;
    int r = is_wanted(request, set->name) ? add_set(request->snapshot, set) : -ECANCELED;

    if (r < 0)
        snapshot_free_set(set);
    return r == -ECANCELED ? 0 : r;
}

static void on_silence(void *userdata, const struct weir_error *error)
{
    report_refusal(userdata, error);
}

static int read_sets(struct snapshot_request *request, struct weir_error *reterr)
{
    struct weir_options options = source_options(request->source);
    int r = weir_segments(&options, on_segment, request, reterr);

    if (r >= 0)
        read_engines(request);
    if (r >= 0 && request->code == 0)
        r = published_each(request->source, on_published, on_silence, request, reterr);
    for (size_t i = 0; i < request->names->n && r >= 0; i++)
        if (!request->found[i])
            refuse_set(request, request->names->items[i], -ENOENT, "there is no such set");
    if (r >= 0 && request->code != 0) {
        reterr->code = request->code;
        snprintf(reterr->message, sizeof(reterr->message), "%s", strerror(-request->code));
        r = request->code;
    }
    return r < 0 ? r : 0;
}

int snapshot_take(struct snapshot *ret, const struct source *source, struct engine_sets *engines,
                  const struct snapshot_names *names,
                  void (*refuse)(void *userdata, const struct weir_error *error), void *userdata,
                  struct weir_error *reterr)
{
    struct snapshot_request request = {ret, source, engines, names, NULL, refuse, userdata, 0};
    struct timespec now;
    int r;

    *ret = (struct snapshot){0};
    request.found = calloc(names->n + 1, sizeof(*request.found));
    if (!request.found) {
        *reterr = (struct weir_error){.code = -ENOMEM, .message = "out of memory"};
        return -ENOMEM;
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    ret->at_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    r = read_sets(&request, reterr);
    free(request.found);
    if (r < 0)
        snapshot_free(ret);
    return r;
}

struct snapshot_id snapshot_set_id(const struct snapshot_set *set)
{
    struct snapshot_id id = {
        .of_engine = set->engine != NULL, .process = set->process, .instance = set->instance};

    snprintf(id.name, sizeof(id.name), "%s", set->name);
    return id;
}

const struct snapshot_set *snapshot_find(const struct snapshot *snapshot,
                                         const struct snapshot_id *id)
{
    for (size_t i = 0; i < snapshot->sets_n; i++) {
        const struct snapshot_set *set = &snapshot->sets[i];

        if ((set->engine != NULL) == id->of_engine && set->process == id->process &&
            set->instance == id->instance && strcmp(set->name, id->name) == 0)
            return set;
    }
    return NULL;
}

const char *snapshot_why_away(const struct snapshot_set *set)
{
    switch (set->away) {
    case -EHOSTUNREACH:
        return "the engine cannot be asked";
    case -EEXIST:
        return "the engine has another definition";
    case -EACCES:
        return "the engine does not permit its use";
    default:
        return strerror(-set->away);
    }
}

uint64_t snapshot_granted(const struct snapshot_set *set)
{
    return set->engine ? set->stats.engine_granted : set->stats.granted;
}

uint64_t snapshot_held(const struct snapshot_set *set)
{
    return set->engine ? set->stats.engine_held : set->stats.held;
}

bool snapshot_is_first_of_key(const struct snapshot_set *set, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(set->limits[k].key, set->limits[i].key) == 0)
            return false;
    return true;
}

void snapshot_free(struct snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->sets_n; i++)
        snapshot_free_set(&snapshot->sets[i]);
    free(snapshot->sets);
    *snapshot = (struct snapshot){0};
}
