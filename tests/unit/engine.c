/* SPDX-License-Identifier: MIT */
/*
 * A backend plugin, and its engine: it counts resources, with one queue for each set, first come,
 * first served. Rates are granted up to their capacity, for ever, but the first limit can be a
 * bucket. It does what struct engine_control says.
 */
#include "engine.h"
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weir/backend.h>

/* For a plugin that is not complete. */
#ifndef ENGINE_NAME
#define ENGINE_NAME "engine"
#endif
#ifndef ENGINE_CHECK
#define ENGINE_CHECK engine_check
#endif
#ifndef ENGINE_REDEFINE
#define ENGINE_REDEFINE engine_set_redefine
#endif
#ifndef ENGINE_APPLY
#define ENGINE_APPLY engine_set_apply
#endif
#ifndef ENGINE_SIZE
#define ENGINE_SIZE sizeof(struct weir_backend)
#endif
#ifndef ENGINE_BATCH
#define ENGINE_BATCH engine_batch
#endif

struct engine {
    struct engine_control *control;
    const struct weir_backend_host *host;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stops;
    uint64_t holds_n; /* grants so far: they name holds */
    struct engine_set *sets;
};

struct engine_request {
    uint64_t token, amounts[ENGINE_LIMITS];
    uint32_t mode;
    bool is_new; /* not looked at yet */
};

struct engine_hold {
    uint64_t hold, amounts[ENGINE_LIMITS];
};

struct engine_set {
    struct engine *engine;
    struct engine_set *next;
    void *context;
    const struct engine_set *before; /* the set that is to get this definition; NULL: none */
    uint64_t fingerprint;
    uint32_t revision;
    uint32_t limits_n;
    uint64_t capacity[ENGINE_LIMITS];
    bool is_resource[ENGINE_LIMITS];
    struct engine_request queue[ENGINE_QUEUE_MAX];
    uint32_t queue_n;
    struct engine_hold holds[ENGINE_QUEUE_MAX];
    uint32_t holds_n;
};

/* ---- deciding; the lock is held ---- */

static bool report(struct engine_set *set, uint64_t token,
                   const struct weir_backend_verdict *verdict)
{
    bool wanted =
        set->engine->host->decided(set->engine->host->context, set->context, token, verdict) == 0;

    set->engine->control->unwanted += !wanted;
    return wanted;
}

static void refuse(struct engine_set *set, uint64_t token, int code, uint32_t limit)
{
    const struct weir_backend_verdict verdict = {.size = sizeof(verdict),
                                                 .result = code,
                                                 .limit = limit,
                                                 .retry_after_ns =
                                                     set->engine->control->retry_after_ns,
                                                 .is_too_late = set->engine->control->is_too_late};

    report(set, token, &verdict);
}

/* ---- the bucket ---- */

static uint64_t bucket_now_us(const struct engine_control *control)
{
    return *control->now_ns / 1000;
}

static uint64_t bucket_most(const struct engine_bucket *bucket)
{
    return bucket->burst * bucket->window_us - bucket->capacity * bucket->delta_us;
}

/* Brings what is missing up to date. */
static void bucket_flow(struct engine_control *control)
{
    struct engine_bucket *bucket = &control->bucket;
    uint64_t now_us = bucket_now_us(control);
    uint64_t come = bucket->capacity * (now_us - bucket->last_us);

    bucket->beyond = bucket->beyond > come ? bucket->beyond - come : 0;
    bucket->last_us = now_us;
}

static uint64_t bucket_available(struct engine_control *control)
{
    bucket_flow(control);
    return (bucket_most(&control->bucket) - control->bucket.beyond) / control->bucket.window_us;
}

static void bucket_take(struct engine_control *control, uint64_t n)
{
    bucket_flow(control);
    control->bucket.beyond += n * control->bucket.window_us;
}

/* Gives units back that were taken then, less what has flowed in since. */
static void bucket_give_back(struct engine_control *control, uint64_t n, uint64_t at_us)
{
    struct engine_bucket *bucket = &control->bucket;
    uint64_t back = n * bucket->window_us, come;

    bucket_flow(control);
    come = bucket->capacity * (bucket->last_us - at_us);
    back = back > come ? back - come : 0;
    bucket->beyond = bucket->beyond > back ? bucket->beyond - back : 0;
}

/* Returns ns until so many are there. */
static uint64_t bucket_wait_ns(struct engine_control *control, uint64_t n)
{
    const struct engine_bucket *bucket = &control->bucket;
    uint64_t lack = bucket->beyond + n * bucket->window_us - bucket_most(bucket);

    return (lack + bucket->capacity - 1) / bucket->capacity * 1000;
}

/* Returns the first limit without room; limits_n: there is none. */
static uint32_t full_limit(const struct engine_set *set, const uint64_t *amounts)
{
    struct engine_control *control = set->engine->control;
    uint32_t i = 0;

    if (control->bucket.window_us && bucket_available(control) < amounts[0])
        return 0;
    while (i < set->limits_n && control->held[i] + amounts[i] <= set->capacity[i])
        i++;
    return i;
}

static void add_held(struct engine_set *set, const uint64_t *amounts, bool add)
{
    for (uint32_t i = 0; i < set->limits_n; i++)
        if (set->is_resource[i])
            set->engine->control->held[i] += add ? amounts[i] : -amounts[i];
}

static void grant(struct engine_set *set, const struct engine_request *request)
{
    struct engine *engine = set->engine;
    const struct weir_backend_verdict verdict = {
        .size = sizeof(verdict),
        .limit = UINT32_MAX,
        .hold = ++engine->holds_n,
        .fence = 1000 + engine->holds_n,
        .delay_ns = request->mode == WEIR_BACKEND_RESERVE ? 5000000 : 0,
        .waited = !request->is_new};
    struct engine_hold *hold = &set->holds[set->holds_n];

    if (engine->control->bucket.window_us)
        bucket_take(engine->control, request->amounts[0]);
    if (!report(set, request->token, &verdict) || request->mode == WEIR_BACKEND_TAKE)
        return;
    set->holds_n++;
    engine->control->holds++;
    engine->control->last_token = request->token;
    engine->control->last_hold = verdict.hold;
    hold->hold = verdict.hold;
    memcpy(hold->amounts, request->amounts, sizeof(hold->amounts));
    add_held(set, hold->amounts, true);
}

/* Decides about a request that no other one is ahead of. Returns false if it has to wait. */
static bool decide(struct engine_set *set, const struct engine_request *request)
{
    uint32_t full = full_limit(set, request->amounts);

    if (set->engine->control->refuses) {
        refuse(set, request->token, set->engine->control->refuses, 0);
        return true;
    }
    if (full < set->limits_n && request->mode == WEIR_BACKEND_WAIT)
        return false;
    if (full < set->limits_n)
        refuse(set, request->token, -EAGAIN, full);
    else
        grant(set, request);
    return true;
}

static void remove_request(struct engine_set *set, uint32_t i)
{
    set->queue_n--;
    set->engine->control->waiting--;
    memmove(set->queue + i, set->queue + i + 1, (set->queue_n - i) * sizeof(*set->queue));
}

/* Serves the queue, from its head to the first one that has to wait. */
static void serve(struct engine_set *set)
{
    while (set->queue_n && decide(set, &set->queue[0]))
        remove_request(set, 0);
    for (uint32_t i = 0; i < set->queue_n; i++)
        if (set->queue[i].is_new && set->queue[i].mode != WEIR_BACKEND_WAIT) {
            refuse(set, set->queue[i].token, -EAGAIN, UINT32_MAX);
            remove_request(set, i--);
        }
    for (uint32_t i = 0; i < set->queue_n; i++)
        set->queue[i].is_new = false;
}

static bool is_idle(const struct engine *engine)
{
    return engine->control->away || engine->control->is_stuck;
}

static void serve_all(struct engine *engine)
{
    for (struct engine_set *set = engine->sets; set; set = set->next)
        if (!is_idle(engine))
            serve(set);
}

/* ---- connections ---- */

static int engine_open(const struct weir_setup *setup, const struct weir_backend_host *host,
                       void **ret_connection, struct weir_reason *reterr)
{
    struct engine_control *control;
    struct engine *engine;
    void *address;

    if (sscanf(setup->values[0]->text, "%p", &address) != 1)
        return -EINVAL;
    control = address;
    if (control->fails_open) {
        snprintf(reterr->message, sizeof(reterr->message), "no engine today");
        return control->fails_open;
    }
    engine = calloc(1, sizeof(*engine));
    if (!engine)
        return -ENOMEM;
    engine->control = control;
    engine->host = host;
    control->host = host;
    pthread_mutex_init(&engine->lock, NULL);
    control->lock = &engine->lock;
    pthread_cond_init(&engine->changed, NULL);
    control->connections++;
    *ret_connection = engine;
    return 0;
}

static void engine_close(void *connection)
{
    struct engine *engine = connection;

    engine->control->connections--;
    pthread_mutex_destroy(&engine->lock);
    pthread_cond_destroy(&engine->changed);
    free(engine);
}

static void engine_run(void *connection)
{
    struct engine *engine = connection;

    pthread_mutex_lock(&engine->lock);
    engine->control->threads++;
    while (!engine->stops) {
        pthread_cond_wait(&engine->changed, &engine->lock);
        if (!engine->control->thread_rests)
            serve_all(engine);
    }
    engine->control->threads--;
    pthread_mutex_unlock(&engine->lock);
}

static void engine_stop(void *connection)
{
    struct engine *engine = connection;

    pthread_mutex_lock(&engine->lock);
    engine->stops = true;
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
}

__attribute__((unused)) static int engine_check(void *connection, uint64_t until_ns,
                                                struct weir_reason *reterr)
{
    struct engine_control *control = ((struct engine *)connection)->control;
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    control->checked_ns = until_ns - ((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
    if (control->says)
        snprintf(reterr->message, sizeof(reterr->message), "%s", control->says);
    return control->fails_check;
}

/* ---- batches ---- */

static void decide_batch(struct engine_control *control, struct engine_batch *batch)
{
    uint64_t half = (batch->wanted + 1) / 2, available = batch->wanted;

    if (control->bucket.window_us)
        available = bucket_available(control);
    batch->is_decided = true;
    batch->retry_after_ns = control->retry_after_ns;
    batch->result = control->away ? control->away : available < half ? -EAGAIN : 0;
    if (control->away)
        return;
    if (available < half) {
        batch->retry_after_ns = bucket_wait_ns(control, half);
        return;
    }
    batch->units = available < batch->wanted ? available : batch->wanted;
    batch->valid_ns = control->lease_for_ns - 1000;
    batch->at = bucket_now_us(control);
    if (control->bucket.window_us)
        bucket_take(control, batch->units);
}

static void note_spare(struct engine_control *control, const struct engine_batch *batch,
                       uint64_t due_ns)
{
    struct engine_spare *free_one = NULL;

    for (int i = 0; i < ENGINE_BATCHES; i++) {
        struct engine_spare *spare = &control->spares[i];

        if (!spare->host && !free_one)
            free_one = spare;
        if (spare->host == batch->host && spare->set == batch->set && spare->limit == batch->limit)
            return; /* it is looked for already */
    }
    if (due_ns == UINT64_MAX || !free_one)
        return;
    *free_one = (struct engine_spare){.host = batch->host,
                                      .set = batch->set,
                                      .limit = batch->limit,
                                      .due_ns = *control->now_ns + due_ns};
}

static void deliver_batch(struct engine_control *control, struct engine_batch *batch)
{
    const struct weir_backend_host *host = batch->host;
    const struct weir_backend_batch report = {.size = sizeof(report),
                                              .limit = batch->limit,
                                              .tag = batch->tag,
                                              .result = batch->result,
                                              .units = batch->units,
                                              .valid_ns = batch->valid_ns,
                                              .at = batch->at,
                                              .retry_after_ns = batch->retry_after_ns};
    struct engine_batch was = *batch;

    batch->host = NULL;
    control->refused_batches += report.result < 0;
    control->batched_units += report.units;
    note_spare(control, &was, host->batched(host->context, was.set, &report));
}

static void give_back(struct engine_control *control, uint64_t units, uint64_t at)
{
    control->unbatched_units += units;
    if (control->bucket.window_us)
        bucket_give_back(control, units, at);
}

static void run_spares(struct engine_control *control)
{
    for (int i = 0; i < ENGINE_BATCHES; i++) {
        struct engine_spare *spare = &control->spares[i];
        const struct weir_backend_host *host = spare->host;
        struct weir_backend_batch rest;
        uint64_t in_ns;

        while (spare->host && spare->due_ns <= *control->now_ns) {
            in_ns = host->spare(host->context, spare->set, spare->limit, &rest);
            if (rest.units)
                give_back(control, rest.units, rest.at);
            spare->due_ns = *control->now_ns + in_ns;
            if (in_ns == UINT64_MAX)
                spare->host = NULL;
        }
    }
}

__attribute__((unused)) static int engine_batch(void *handle, uint32_t limit, uint64_t wanted,
                                                uint64_t tag)
{
    struct engine_set *set = handle;
    struct engine_control *control = set->engine->control;
    struct engine_batch now, *batch = control->batches_wait ? NULL : &now;

    pthread_mutex_lock(&set->engine->lock);
    for (int i = 0; i < ENGINE_BATCHES && !batch; i++)
        if (!control->batches[i].host)
            batch = &control->batches[i];
    control->batched++;
    control->last_wanted = wanted;
    if (batch && !control->fails_batch) {
        *batch = (struct engine_batch){.host = set->engine->host,
                                       .set = set->context,
                                       .limit = limit,
                                       .wanted = wanted,
                                       .tag = tag};
        if (!control->batches_wait) {
            decide_batch(control, batch);
            deliver_batch(control, batch);
        }
    }
    pthread_mutex_unlock(&set->engine->lock);
    return control->fails_batch ? control->fails_batch : batch ? 0 : -ENOBUFS;
}

static void engine_unbatch(void *handle, uint32_t limit, uint64_t units, uint64_t at)
{
    struct engine_set *set = handle;

    (void)limit;
    pthread_mutex_lock(&set->engine->lock);
    give_back(set->engine->control, units, at);
    pthread_mutex_unlock(&set->engine->lock);
}

/* Forgets what is on its way to a set. */
static void forget_batches(struct engine_control *control, const void *set)
{
    for (int i = 0; i < ENGINE_BATCHES; i++) {
        if (control->batches[i].set == set)
            control->batches[i].host = NULL;
        if (control->spares[i].set == set)
            control->spares[i].host = NULL;
    }
}

/* ---- sets ---- */

static int engine_set_open(void *connection, const struct weir_backend_set *definition,
                           void **ret_set, struct weir_reason *reterr)
{
    struct engine *engine = connection;
    struct engine_control *control = engine->control;
    const struct engine_set *before = definition->before;
    struct engine_set *set;

    if (before && definition->fingerprint != before->fingerprint &&
        definition->revision <= before->revision) {
        snprintf(reterr->message, sizeof(reterr->message), "raise `revision`");
        return -EOPNOTSUPP;
    }
    if (control->fails_set_open || definition->limits_n > ENGINE_LIMITS) {
        snprintf(reterr->message, sizeof(reterr->message), "such a set cannot be kept");
        return control->fails_set_open ? control->fails_set_open : -EINVAL;
    }
    set = calloc(1, sizeof(*set));
    if (!set)
        return -ENOMEM;
    *set = (struct engine_set){.engine = engine,
                               .next = before ? NULL : engine->sets,
                               .context = definition->context,
                               .before = before,
                               .fingerprint = definition->fingerprint,
                               .revision = definition->revision,
                               .limits_n = definition->limits_n};
    for (uint32_t i = 0; i < definition->limits_n; i++) {
        const struct weir_backend_limit *limit = &definition->limits[i];

        set->capacity[i] = limit->capacity;
        set->is_resource[i] = limit->type == WEIR_LIMIT_RESOURCE;
        snprintf(control->last_algorithm, sizeof(control->last_algorithm), "%s",
                 limit->algorithm ? limit->algorithm : "");
        if (limit->settings_n)
            control->last_setting = limit->settings[0].value;
        control->last_settings_n = limit->settings_n;
        control->state_sizes[i] = limit->state_size;
        control->state_ids[i] = limit->state_id;
        if (control->decides >> i & 1)
            *limit->ret_is_decided = 1;
        if (limit->lease_for_ns) {
            control->lease_for_ns = limit->lease_for_ns;
            *limit->ret_capacity =
                control->leased_capacity ? control->leased_capacity : *limit->ret_capacity;
        }
    }
    control->decide_batch = decide_batch;
    control->deliver_batch = deliver_batch;
    control->run_spares = run_spares;
    control->counts_nodes = definition->counts_nodes;
    control->sets++;
    *ret_set = set;
    if (before)
        return 0;
    control->fingerprint = definition->fingerprint;
    control->host_set = definition->context;
    control->revision = definition->revision;
    engine->sets = set;
    return 0;
}

/* Waiters for more than there can be end as they are the head: at once, here. */
static void engine_set_redefine(void *handle, void *of_next)
{
    struct engine_set *set = handle, *next = of_next;
    struct engine_control *control = set->engine->control;

    pthread_mutex_lock(&set->engine->lock);
    for (int i = 0; i < ENGINE_BATCHES; i++) { /* what is on its way is reported to the new one */
        if (control->batches[i].set == set->context)
            control->batches[i].set = next->context;
        if (control->spares[i].set == set->context)
            control->spares[i].set = next->context;
    }
    set->context = control->host_set = next->context;
    set->fingerprint = control->fingerprint = next->fingerprint;
    set->revision = control->revision = next->revision;
    memcpy(set->capacity, next->capacity, sizeof(set->capacity));
    while (set->queue_n && set->queue[0].amounts[0] > set->capacity[0]) {
        refuse(set, set->queue[0].token, -ERANGE, 0);
        remove_request(set, 0);
    }
    if (!is_idle(set->engine))
        serve(set);
    control->redefined++;
    control->sets--;
    pthread_mutex_unlock(&set->engine->lock);
    free(next);
}

static void engine_set_close(void *handle)
{
    struct engine_set *set = handle, **at = &set->engine->sets;

    if (set->before) {
        set->engine->control->sets--;
        free(set);
        return;
    }
    while (*at != set)
        at = &(*at)->next;
    *at = set->next;
    forget_batches(set->engine->control, set->context);
    set->engine->control->sets--;
    set->engine->control->waiting -= set->queue_n;
    free(set);
}

/* Says what no request is about: none at all, no record, another one, and earlier and later uses of
 * the same record. Speaks of limits that are not there, and that are not leased. */
static void be_hostile(struct engine_set *set, uint64_t token)
{
    const struct weir_backend_host *host = set->engine->host;
    struct weir_backend_batch batch;

    for (uint32_t limit = 0; limit <= 3 * ENGINE_LIMITS; limit++) {
        batch = (struct weir_backend_batch){
            .size = sizeof(batch), .limit = limit, .units = 5, .valid_ns = UINT64_MAX};
        host->batched(host->context, set->context, &batch);
        host->spare(host->context, set->context, limit, &batch);
    }
    for (int bit = 0; bit < 28; bit++) {
        const struct weir_backend_verdict grant = {.size = sizeof(grant), .hold = 1};

        report(set, token ^ UINT64_C(1) << bit, &grant);
        host->lost(host->context, set->context, token ^ UINT64_C(1) << bit, UINT64_MAX);
    }
    for (uint64_t i = 1; i <= 64; i++) {
        const struct weir_backend_verdict verdict = {.size = sizeof(verdict),
                                                     .result = i % 3 ? 0 : -EAGAIN,
                                                     .limit = (uint32_t)i,
                                                     .retry_after_ns = UINT64_MAX - i,
                                                     .delay_ns = UINT64_MAX - i,
                                                     .hold = i};

        report(set, i == 1 ? 0 : token ^ i << 28, &verdict);
    }
}

static int engine_ask(void *handle, const struct weir_backend_ask *ask)
{
    struct engine_set *set = handle;
    struct engine *engine = set->engine;
    struct engine_control *control = engine->control;
    struct engine_request *request;
    int r = control->fails_ask;

    pthread_mutex_lock(&engine->lock);
    if (control->is_hostile)
        be_hostile(set, ask->token);
    if (control->closes)
        *control->closes = control->closed;
    if (control->ends_failed)
        refuse(set, ask->token, control->ends_failed, UINT32_MAX);
    if (r == 0 && set->queue_n == ENGINE_QUEUE_MAX)
        r = -ENOBUFS;
    if (r == 0) {
        control->asked++;
        control->last_timeout_ns = ask->timeout_ns;
        control->patient += (ask->flags & WEIR_BACKEND_PATIENT) != 0;
        snprintf(control->last_subject, sizeof(control->last_subject), "%.*s",
                 (int)ask->subject_size, ask->subject ? (const char *)ask->subject : "");
    }
    if (r == 0 && control->away && !(ask->flags & WEIR_BACKEND_PATIENT)) {
        refuse(set, ask->token, control->away, UINT32_MAX);
    } else if (r == 0) {
        request = &set->queue[set->queue_n++];
        control->waiting++;
        *request = (struct engine_request){.token = ask->token, .mode = ask->mode, .is_new = true};
        memcpy(request->amounts, ask->amounts, set->limits_n * sizeof(*ask->amounts));
        if (!control->is_slow && !is_idle(engine))
            serve(set);
        pthread_cond_broadcast(&engine->changed);
    }
    pthread_mutex_unlock(&engine->lock);
    return r;
}

static int engine_wait(void *handle, uint64_t token, uint64_t until_ns)
{
    struct engine_set *set = handle;
    struct engine *engine = set->engine;

    (void)token, (void)until_ns; /* it answers at once, or the engine's thread does */
    pthread_mutex_lock(&engine->lock);
    engine->control->waits++;
    if (!is_idle(engine))
        serve(set);
    pthread_mutex_unlock(&engine->lock);
    sched_yield();
    return 1;
}

static void engine_cancel(void *handle, uint64_t token)
{
    struct engine_set *set = handle;

    pthread_mutex_lock(&set->engine->lock);
    for (uint32_t i = 0; i < set->queue_n && !set->engine->control->is_deaf; i++)
        if (set->queue[i].token == token)
            remove_request(set, i--);
    if (!is_idle(set->engine))
        serve(set);
    pthread_mutex_unlock(&set->engine->lock);
}

static struct engine_hold *find_hold(struct engine_set *set, uint64_t hold)
{
    for (uint32_t i = 0; i < set->holds_n; i++)
        if (set->holds[i].hold == hold)
            return &set->holds[i];
    abort(); /* the core names what it was granted, once */
}

static void engine_release(void *handle, const struct weir_backend_release *how)
{
    struct engine_set *set = handle;
    struct engine_hold *hold;

    pthread_mutex_lock(&set->engine->lock);
    hold = find_hold(set, how->hold);
    add_held(set, hold->amounts, false);
    for (uint32_t i = 0; i < set->limits_n; i++)
        set->engine->control->used[i] = how->used[i];
    set->engine->control->undone += how->undo;
    set->engine->control->holds--;
    *hold = set->holds[--set->holds_n];
    if (!set->engine->control->away)
        serve(set);
    pthread_mutex_unlock(&set->engine->lock);
}

static int engine_is_held(void *handle, uint64_t hold)
{
    struct engine_set *set = handle;

    pthread_mutex_lock(&set->engine->lock);
    find_hold(set, hold);
    pthread_mutex_unlock(&set->engine->lock);
    return !set->engine->control->is_over;
}

static void engine_return_part(void *handle, uint64_t hold, const uint64_t *left)
{
    struct engine_set *set = handle;
    struct engine_hold *found;

    pthread_mutex_lock(&set->engine->lock);
    found = find_hold(set, hold);
    add_held(set, found->amounts, false);
    memcpy(found->amounts, left, set->limits_n * sizeof(*left));
    add_held(set, found->amounts, true);
    serve(set);
    pthread_mutex_unlock(&set->engine->lock);
}

static int engine_snapshot(void *handle, const void *subject, size_t subject_size,
                           uint64_t until_ns, struct weir_backend_snapshot *ret)
{
    struct engine_set *set = handle;
    int r;

    (void)subject, (void)subject_size, (void)until_ns;
    pthread_mutex_lock(&set->engine->lock);
    set->engine->control->snapshots++;
    r = set->engine->control->away;
    ret->waiting = set->queue_n;
    ret->held = set->holds_n;
    ret->granted = set->engine->holds_n;
    for (uint32_t i = 0; i < set->limits_n; i++)
        ret->limits[i] = (struct weir_backend_limit_stats){
            set->capacity[i] - set->engine->control->held[i], set->engine->control->held[i]};
    pthread_mutex_unlock(&set->engine->lock);
    return r;
}

static void tell_difference(const struct weir_backend_apply *how, uint32_t limit, const char *name,
                            const char *before, const char *after)
{
    how->differs(how->context,
                 &(struct weir_backend_difference){.size = sizeof(struct weir_backend_difference),
                                                   .limit = limit,
                                                   .name = name,
                                                   .before = before,
                                                   .after = after});
}

__attribute__((unused)) static int
engine_set_apply(void *handle, const struct weir_backend_apply *how, struct weir_reason *reterr)
{
    struct engine_control *control = ((struct engine_set *)handle)->engine->control;
    struct timespec now;
    int r = control->applies;

    clock_gettime(CLOCK_MONOTONIC, &now);
    control->apply_ns = how->until_ns - ((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
    if (r < 0 && control->says)
        snprintf(reterr->message, sizeof(reterr->message), "%s", control->says);
    if (r == 1 && how->differs) {
        tell_difference(how, UINT32_MAX, "revision", NULL, "1");
        tell_difference(how, 0, "capacity", "1", "2");
    }
    if (r == 1 && how->differs && control->applies_nonsense)
        tell_difference(how, 7, "what\n", "\x1b", "");
    control->applied += r == 1 && how->changes;
    return r;
}

static const struct weir_backend operations = {
    .size = ENGINE_SIZE,
    .open = engine_open,
    .close = engine_close,
    .run = engine_run,
    .stop = engine_stop,
    .set_open = engine_set_open,
    .set_close = engine_set_close,
    .ask = engine_ask,
    .wait = engine_wait,
    .cancel = engine_cancel,
    .release = engine_release,
    .return_part = engine_return_part,
    .is_held = engine_is_held,
    .snapshot = engine_snapshot,
    .check = ENGINE_CHECK,
    .batch = ENGINE_BATCH,
    .unbatch = engine_unbatch,
    .set_redefine = ENGINE_REDEFINE,
    .set_apply = ENGINE_APPLY,
};

static const struct weir_parameter parameters[] = {
    {.size = sizeof(struct weir_parameter),
     .name = "control",
     .type = WEIR_PARAMETER_TEXT,
     .flags = WEIR_PARAMETER_REQUIRED,
     .min = 1,
     .max = 100,
     .doc = "address of a struct of the test"},
    {.size = sizeof(struct weir_parameter),
     .name = "note",
     .type = WEIR_PARAMETER_TEXT,
     .max = 5,
     .doc = "not looked at"},
    {.size = sizeof(struct weir_parameter),
     .name = "key",
     .type = WEIR_PARAMETER_TEXT,
     .flags = WEIR_PARAMETER_SECRET,
     .min = 1,
     .max = 9,
     .doc = "not looked at"},
};

static const struct weir_plugin plugin = {
    .size = sizeof(plugin),
    .kind = WEIR_PLUGIN_BACKEND,
    .name = ENGINE_NAME,
    .version = "1",
    .summary = "an engine of the tests",
    .parameters_n = 3,
    .parameters = parameters,
    .ops = &operations,
};

static const struct weir_plugin *const plugins[] = {&plugin};

const struct weir_plugin_table weir_plugins_v1 = {.size = sizeof(weir_plugins_v1),
                                                  .abi_minor = WEIR_PLUGIN_ABI_MINOR,
                                                  .plugins_n = 1,
                                                  .plugins = plugins};
