/* SPDX-License-Identifier: MIT */
/*
 * The definition of a set, as every call carries it: see PROTOCOL.md.
 *
 *     F00D/-/100/5000000/r,10/g,100,1000000,100,100,0,0,0,0
 *     F11D.1.5AFE/-/100/5000000/r,20/g,200,1000000,200,200,0,0,0,0
 */
#ifndef WEIR_REDIS_DEFINITION_H
#define WEIR_REDIS_DEFINITION_H

#include <weir/backend.h>

#define REDIS_DEFINITION_MAX 4096
#define REDIS_AMOUNT_MAX     (UINT64_C(1) << 49) /* units of a limit, and of a request */
#define REDIS_WAITERS_MAX    (UINT64_C(1) << 20) /* where a set has no bound */

/* How a connection has its sets defined. */
struct redis_definition_options {
    uint64_t session_us;
    int drains; /* every limit is drained after a loss of data */
};

/*
 * Writes the definition. Returns its length, or -EINVAL with the reason: the library of the server
 * cannot keep such a set.
 */
int redis_definition_write(const struct weir_backend_set *set,
                           const struct redis_definition_options *options,
                           char ret[REDIS_DEFINITION_MAX + 1], struct weir_reason *reterr);

/* Returns the hash of what all revisions of a set have in common, besides what the text tells. */
uint64_t redis_definition_shape(const struct weir_backend_set *set);
/* Returns how many requests may wait. */
uint64_t redis_definition_waiters(const struct weir_backend_set *set);
/* Returns 1 if the library does not have the algorithm of the limit, by its name and its state_id:
 * nodes decide it. */
int redis_definition_is_foreign(const struct weir_backend_limit *limit);
/* Returns the units that are there in a limit that is new. */
uint64_t redis_definition_initial(const struct weir_backend_limit *limit);

#endif
