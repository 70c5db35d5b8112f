/* SPDX-License-Identifier: MIT */
/*
 * Remote sets with another definition. The engine has one state, one wait queue and one session of
 * this process for all definitions of a set, so a successor goes on with its predecessor's handle:
 * what is held and waits stays where it is, with the record and the set by which it was asked for.
 */
#include "remote/remote_lease.h"

#include "set/instance_base.h"
#include "set/set_ops.h"
#include <errno.h>
#include <string.h>

const char *remote_obstacle(const weir_set *set, const struct set_plan *plan)
{
    if (strcmp(remote_engine_name(set), plan->engine) != 0)
        return "its `backend` would be another one: rename the set";
    if (!remote_subjects_max(set) != !plan->keyed.max_keys)
        return "it would have other states, by `subjects`: rename the set";
    return set->limits.n != plan->limits_n
               ? "there would be another number of limits: rename the set"
               : NULL;
}

void remote_take_over(weir_set *set)
{
    struct remote_set *remote = remote_of(set), *before = remote_of(set->origin->predecessor);
    void *next = remote->handle;

    if (!next) /* it has no limits */
        return;
    remote->before = before;
    remote->handle = before->handle;
    atomic_store_explicit(&remote->nodes,
                          atomic_load_explicit(&before->nodes, memory_order_seq_cst),
                          memory_order_seq_cst);
    remote->engine->backend->set_redefine(remote->handle, next);
    remote_leases_close(before);
}

void remote_drop(struct thread_ctx *ctx, weir_set *set)
{
    for (struct remote_set *remote = remote_of(set); remote; remote = remote->before) {
        remote->set.ops->shut_down(ctx, &remote->set);
        remote_share_end(remote, RECORD_SHUT_DOWN);
    }
    remote_leases_close(remote_of(set));
}

struct remote_set *remote_asked(struct remote_set *remote, uint32_t record)
{
    uint32_t id;

    if (!region_has_record(remote->set.region, record))
        return remote;
    id = record_set_number(set_record(&remote->set, record));
    for (struct remote_set *asked = remote; asked; asked = asked->before)
        if (asked->set.id == id)
            return asked;
    return remote;
}

/* ---- without a request ---- */

struct remote_differences {
    const weir_set *set;
    struct definition_diff *diff;
};

/* As weir_backend_apply.differs. A backend may say anything. */
static void remote_differs(void *context, const struct weir_backend_difference *difference)
{
    const struct remote_differences *differences = context;
    const struct limits *limits = &differences->set->limits;
    bool is_of_limit = difference->limit < limits->n;

    definition_diff_add(differences->diff, is_of_limit ? difference->limit + 1 : 0,
                        is_of_limit ? limits->items[difference->limit].key : NULL, difference->name,
                        difference->before, difference->after);
}

/* Returns the code for the caller, and says what the backend has said. */
static int remote_apply_error(const struct remote_engine *engine, int r, struct weir_reason *reason,
                              struct weir_error *reterr)
{
    int code = r == -ENOMEM || r == -EACCES || r == -EUCLEAN ? r : -EHOSTUNREACH;

    if (r == -EOPNOTSUPP || r == -EEXIST || r == -EINVAL)
        code = -EOPNOTSUPP;

    reason->message[sizeof(reason->message) - 1] = '\0';
    return error_set(reterr, code, "backend `%s`: %s", engine->plan.name,
                     *reason->message ? reason->message : strerrordesc_np(-r));
}

int remote_apply(weir_set *set, bool changes, uint64_t timeout_ns, struct definition_diff *diff,
                 struct weir_error *reterr)
{
    struct remote_set *remote = remote_of(set);
    struct remote_engine *engine = remote->engine;
    struct remote_differences differences = {.set = set, .diff = diff};
    struct weir_reason reason = {.size = sizeof(reason), .parameter = UINT32_MAX};
    struct weir_backend_apply how = {.size = sizeof(how),
                                     .changes = changes,
                                     .until_ns = remote_until_ns(timeout_ns),
                                     .context = &differences,
                                     .differs = diff ? remote_differs : NULL};
    int r;

    if (remote->subjects_max)
        return error_set(reterr, -EOPNOTSUPP,
                         "each subject has a definition of its own: it changes when a process with "
                         "the new one next asks for it");
    if (!remote->handle) /* it has no limits */
        return 0;
    if (!engine->backend->set_apply)
        return error_set(reterr, -ENOSYS, "backend `%s` changes definitions by requests alone",
                         engine->plan.name);
    r = remote_engine_start(engine);
    if (r == 0)
        r = engine->backend->set_apply(remote->handle, &how, &reason);
    remote_count_answer(engine, r);
    if (r == -ENOENT)
        return error_set(reterr, r, "backend `%s` has no such set", engine->plan.name);
    return r < 0 ? remote_apply_error(engine, r, &reason, reterr) : r > 0;
}
