/* SPDX-License-Identifier: MIT */
/* Requests: from keys and amounts to one amount per limit of a set. */
#ifndef WEIR_CORE_API_REQUEST_H
#define WEIR_CORE_API_REQUEST_H

#include "set/set.h"
#include <string.h>
#include <weir/acquisition.h>

/* An amount that is none. */
#define REQUEST_AMOUNT_NONE UINT64_MAX

/* What NULL stands for: every limit with its default. */
extern const struct weir_request request_default;

/* What was the size of a request before there were subjects. */
#define REQUEST_SIZE_NO_SUBJECT offsetof(struct weir_request, subject)

/* The caller's request, or what NULL stands for; NULL: it is malformed. */
static inline const struct weir_request *request_validate(const struct weir_request *request)
{
    if (!request)
        return &request_default;
    if ((request->size < sizeof(*request) && request->size != REQUEST_SIZE_NO_SUBJECT) ||
        request->flags & ~(uint32_t)WEIR_STRICT || request->reserved ||
        (request->amounts_n && !request->amounts))
        return NULL;
    return request;
}

enum purpose {
    PURPOSE_ACQUIRE,
    PURPOSE_TAKE,    /* of rates and calls: a resource must be left out */
    PURPOSE_FORECAST /* nothing will be done, so nothing is worth a warning */
};

/* Whether two keys are the same: by address, then by content. They are short: strcmp() is at its
 * best with others, and takes a call. */
static inline bool request_key_equal(const char *a, const char *b)
{
    if (a == b)
        return true;
    for (; *a == *b; a++, b++)
        if (!*a)
            return true;
    return false;
}

/*
 * Fills `amounts`, one per limit of the set. Returns 0; -EINVAL, -ERANGE or -ENOENT with `*ret_key`
 * the key to blame.
 */
int request_resolve(weir_set *set, const struct weir_request *request, enum purpose purpose,
                    uint64_t *amounts, const char **ret_key);

/* The same in one go of a request that names one key, or none, if nothing is wrong with it; otherwise
 * false. */
bool request_resolve_simple(const weir_set *set, const struct weir_request *request,
                            enum purpose purpose, uint64_t *amounts);

/*
 * The same of a set of one limit, if nothing is wrong with the request, as with most. False: it is
 * another set or request, and there is more to say.
 */
static inline bool request_resolve_one(const weir_set *set, const struct weir_request *request,
                                       enum purpose purpose, uint64_t *ret_amount)
{
    const struct weir_amount *asked = request->amounts;
    const struct limit *limit = set->limits.items;
    uint64_t amount = 1;

    if (set->limits.n != 1)
        return false;
    if (request->amounts_n == 1 && asked->key && request_key_equal(limit->key, asked->key))
        amount = asked->amount;
    else if (request->amounts_n || limit->type == WEIR_LIMIT_RATE)
        return false;
    *ret_amount = amount;
    return amount <= limit->capacity && amount != REQUEST_AMOUNT_NONE &&
           (purpose != PURPOSE_TAKE || limit->type != WEIR_LIMIT_RESOURCE);
}

/* Whether these amounts are nothing at all, which is granted without asking the set. */
static inline bool request_is_empty(const weir_set *set, const uint64_t *amounts)
{
    uint64_t any = 0;

    for (uint32_t i = 0; i < set->limits.n; i++)
        any |= amounts[i];
    return !any;
}

/* What a set has warned about: made with the first. */
#define WARNINGS_MAX 64u

struct warnings {
    _Atomic uint64_t hashes[WARNINGS_MAX]; /* of a key and what the matter was; 0: none */
};

/* Warns once per key and set; `what` says what the matter is. Without memory to remember it by, it
 * may be said again. */
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

#endif
