/* SPDX-License-Identifier: MIT */
/* Remote sets are opened and closed. */
#include "base/error.h"
#include "config/fingerprint.h"
#include "os/os.h"
#include "remote/remote_lease.h"
#include "set/set_ops.h"
#include <errno.h>
#include <string.h>

static void remote_describe_limit(const struct remote_set *remote, const struct set_plan *plan,
                                  uint32_t i, struct weir_backend_limit *ret, uint32_t *mark)
{
    const struct limit *limit = &remote->set.limits.items[i];

    *ret = (struct weir_backend_limit){.size = sizeof(*ret),
                                       .type = limit->type,
                                       .refund = limit->refund,
                                       .charges = limit->charges,
                                       .key = limit->key,
                                       .algorithm = limit->algorithm_name,
                                       .capacity = limit->capacity,
                                       .settings_n = plan->settings[i].n,
                                       .settings = plan->settings[i].items,
                                       .lease_for_ns = plan->settings[i].lease_for_ns,
                                       .ret_is_decided = mark};
    if (limit->algorithm) {
        ret->state_size = limit->state_words * sizeof(uint64_t);
        ret->state_id = limit->algorithm_state_id;
    }
    ret->identity = fingerprint_of_limit(limit);
    if (ret->lease_for_ns)
        ret->ret_capacity = &remote->leases[i].capacity;
}

/* Describes the set to the backend. */
static int remote_describe(struct remote_set *remote, const struct set_plan *plan,
                           const struct fingerprint *fingerprint, struct weir_backend_limit *limits,
                           struct weir_error *reterr)
{
    void *before = remote->set.origin ? remote_of(remote->set.origin->predecessor)->handle : NULL;
    const struct weir_backend_set definition = {.size = sizeof(definition),
                                                .name = plan->name,
                                                .fingerprint = fingerprint->hash,
                                                .fair = plan->fair != FAIR_NO,
                                                .max_waiters = plan->max_waiters,
                                                .has_subjects = plan->keyed.max_keys != 0,
                                                .limits_n = remote->set.limits.n,
                                                .limits = limits,
                                                .context = remote,
                                                .counts_nodes =
                                                    remote->on_failure == ON_FAILURE_LOCAL_SHARE,
                                                .revision = plan->revision,
                                                .before = before};
    struct weir_reason reason = {.size = sizeof(reason), .parameter = UINT32_MAX};
    const struct remote_engine *engine = remote->engine;
    uint32_t marks[WEIR_LIMITS_MAX] = {0};
    int r;

    if (before && !engine->backend->set_redefine)
        return error_set(reterr, -EOPNOTSUPP, "set `%s`: backend `%s` cannot change definitions",
                         plan->name, plan->engine);
    if (remote->leases && !engine->backend->batch)
        return error_set(reterr, -EINVAL, "set `%s`: backend `%s` has no leases", plan->name,
                         plan->engine);
    for (uint32_t i = 0; i < remote->set.limits.n; i++)
        remote_describe_limit(remote, plan, i, &limits[i], &marks[i]);
    r = engine->backend->set_open(engine->connection, &definition, &remote->handle, &reason);
    if (r >= 0)
        return remote_algorithms_open(remote, marks);
    remote->handle = NULL;
    reason.message[sizeof(reason.message) - 1] = '\0';
    return error_set(reterr, r, "set `%s`, backend `%s`: %s%s", plan->name, plan->engine,
                     r == -EOPNOTSUPP ? "it cannot be changed while it is in use: " : "",
                     *reason.message ? error_text(reason.message).text : strerrordesc_np(-r));
}

static int remote_attach(weir_set *set, const struct set_plan *plan, struct weir_error *reterr)
{
    struct weir_backend_limit *limits = os_alloc(set->limits.n, sizeof(*limits));
    struct fingerprint fingerprint = {0};
    int r = limits ? fingerprint_new(plan, &fingerprint, reterr) : -ENOMEM;

    if (r == 0)
        r = remote_describe(remote_of(set), plan, &fingerprint, limits, reterr);
    fingerprint_free(&fingerprint);
    os_free(limits);
    return r;
}

int remote_set_open(weir_set *set, const struct set_plan *plan, struct weir_error *reterr)
{
    struct remote_set *remote = remote_of(set);
    int r;

    remote->engine = remote_engine_find(set->w, plan->engine);
    remote->on_failure = plan->on_failure;
    remote->subjects_max = plan->keyed.max_keys;
    remote->revision = plan->revision;
    if (!set->limits.n)
        return 0;
    if (!remote->engine) /* of another instance's configuration */
        return error_set(reterr, -ENOENT, "set `%s`: there is no backend `%s`", plan->name,
                         plan->engine);
    pthread_mutex_lock(&remote->engine->lock);
    r = thread_ctx_prepare(remote->engine->ctx, set);
    pthread_mutex_unlock(&remote->engine->lock);
    if (r == 0)
        r = remote_leases_open(remote, plan);
    if (r == 0 && remote->on_failure == ON_FAILURE_LOCAL_SHARE)
        r = set_plan_share(plan, 1, &remote->plan, &(uint64_t){0});
    return r < 0 ? r : remote_attach(set, plan, reterr);
}

void remote_set_close(weir_set *set)
{
    struct remote_set *remote = remote_of(set);

    remote_leases_close(remote);
    if (remote->handle && set_newest(set) == set) /* the newest one is closed last */
        remote->engine->backend->set_close(remote->handle);
    os_free(remote->leases);
    os_free(remote->algorithms);
    remote_share_free(remote);
    if (!remote->engine || !set->limits.n)
        return;
    pthread_mutex_lock(&remote->engine->lock);
    thread_ctx_unprepare(remote->engine->ctx, set->number);
    pthread_mutex_unlock(&remote->engine->lock);
}

bool remote_is_planned(const weir_set *set, const struct set_plan *plan)
{
    const struct remote_set *remote = (const struct remote_set *)set;

    if (strcmp(remote_engine_name(set), plan->engine) != 0 ||
        remote->on_failure != plan->on_failure || remote->subjects_max != plan->keyed.max_keys ||
        remote->revision != plan->revision)
        return false;
    for (uint32_t i = 0; i < plan->limits_n; i++)
        if ((remote->leases ? remote->leases[i].for_ns : 0) != plan->settings[i].lease_for_ns)
            return false;
    return true;
}

uint64_t remote_subjects_max(const weir_set *set)
{
    return ((const struct remote_set *)set)->subjects_max;
}
