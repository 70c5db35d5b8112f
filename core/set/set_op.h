/* SPDX-License-Identifier: MIT */
/* One call that asks a set for something, as the layers pass it on. */
#ifndef WEIR_CORE_SET_SET_OP_H
#define WEIR_CORE_SET_SET_OP_H

#include "base/siphash.h"
#include "set/set.h"
#include <weir/pool.h>

struct acquire_op {
    const struct weir_request *request; /* the caller's, or request_default */
    weir_set *set;
    struct thread_ctx *ctx;
    struct key_digest key;         /* digest of the subject, if the set is keyed */
    weir_acquisition *acquisition; /* NULL: not made yet, or not needed */
    weir_set **acquisition_set;    /* where that says which set it is of; NULL without one */
    struct weir_refusal *retref;
    struct decision decision;
    uint64_t amounts[WEIR_LIMITS_MAX];
};

#endif
