/* SPDX-License-Identifier: MIT */
/* Requests: from keys and amounts to one amount per limit of a set. */
#ifndef WEIR_CORE_REQUEST_H
#define WEIR_CORE_REQUEST_H

#include "set.h"
#include <string.h>
#include <weir/acquisition.h>

/* What NULL stands for: every limit with its default. */
extern const struct weir_request request_of_nothing;

/* The caller's request, or what NULL stands for; NULL: it is malformed. */
static inline const struct weir_request *request_read(const struct weir_request *request)
{
    if (!request)
        return &request_of_nothing;
    if (request->size < sizeof(*request) || request->flags & ~(uint32_t)WEIR_STRICT ||
        request->reserved || (request->amounts_n && !request->amounts))
        return NULL;
    return request;
}

enum purpose {
    PURPOSE_ACQUIRE,
    PURPOSE_TAKE,   /* of rates and calls: a resource must be left out */
    PURPOSE_FORESEE /* nothing will be done, so nothing is worth a warning */
};

/*
 * Fills `amounts`, one per limit of the set. Returns 0; -EINVAL, -ERANGE or -ENOENT with `*ret_key`
 * the key to blame.
 */
int request_resolve(weir_set *set, const struct weir_request *request, enum purpose purpose,
                    uint64_t *amounts, const char **ret_key);

/* Whether these amounts are nothing at all, which is granted without asking the set. */
static inline bool request_is_empty(const weir_set *set, const uint64_t *amounts)
{
    uint64_t any = 0;

    for (uint32_t i = 0; i < set->limits.n; i++)
        any |= amounts[i];
    return !any;
}

/* Warns once per key and set; `what` says what the matter is. */
void request_warn(weir_set *set, const char *key, const char *what);

/* The timeout and max_wait that hold for a request. */
static inline uint64_t request_timeout(const weir_set *set, const struct weir_request *request)
{
    return request->timeout_ns ? request->timeout_ns : set->timeout_ns;
}

static inline uint64_t request_max_wait(const weir_set *set, const struct weir_request *request)
{
    return request->max_wait_ns ? request->max_wait_ns : set->max_wait_ns;
}

/* Whether two keys are the same: by address, then by content. */
static inline bool key_equal(const char *a, const char *b)
{
    return a == b || (*a == *b && strcmp(a, b) == 0);
}

#endif
