/* SPDX-License-Identifier: MIT */
/* Counts what becomes of the requests of each class. */
#include "set/class_count.h"
#include "limit/counters.h"
#include "set/instance_base.h"
#include "set/set_ops.h"
#include "state/wait_class.h"
#include <errno.h>

/* Returns the counters of a class, or NULL: another process may have written any class into a
 * record. */
static struct class_counters *class_counters_of(const struct thread_ctx *ctx, const weir_set *set,
                                                uint32_t c)
{
    struct counters *counters = thread_ctx_counters(ctx, set->number);

    WEIR_INVARIANT(c < set->classes->rule.n || set_is_shared(set));
    return c < set->classes->rule.n ? &counters_classes(counters, set_amounts_n(set))[c] : NULL;
}

void class_count(struct thread_ctx *ctx, const weir_set *set, uint32_t c, int code)
{
    struct class_counters *of = class_counters_of(ctx, set, c);

    if (!of)
        return;
    if (code == 0)
        counter_add(&of->granted, 1);
    else if (code == -ETIMEDOUT)
        counter_add(&of->timed_out, 1);
    else if (code == -EAGAIN || code == -ENOBUFS || code == -ERANGE || code == -EDEADLK)
        counter_add(&of->refused, 1);
}

void class_count_waited(struct thread_ctx *ctx, const weir_set *set, uint32_t c, uint64_t wait_ns)
{
    struct class_counters *of = class_counters_of(ctx, set, c);

    if (!of)
        return;
    counter_add(&of->granted, 1);
    counter_add(&of->granted_waited, 1);
    counter_add(&of->wait_ns_sum, wait_ns);
}

int set_acquire_classed(struct acquire_op *op, uint32_t record, enum wait_mode mode,
                        uint64_t max_wait_ns)
{
    int r = set_acquire(op, record, mode, max_wait_ns);

    /* After -EAGAIN of a probe the request comes back to wait; 1: it waits. */
    if (r != 1 && (mode != MODE_PROBE || r != -EAGAIN))
        class_count(op->ctx, op->set, op->wait_class, r);
    return r;
}
