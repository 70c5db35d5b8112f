/* SPDX-License-Identifier: MIT */
/* Requests: from keys and amounts to one amount per limit of a set. */
#ifndef WEIR_CORE_API_REQUEST_H
#define WEIR_CORE_API_REQUEST_H

#include "set/set.h"
#include <weir/acquisition.h>

/* No amount. */
#define REQUEST_AMOUNT_NONE UINT64_MAX

/* The request that NULL stands for: every limit with its default. */
extern const struct weir_request request_default;

/* Sizes of requests of earlier versions: without a subject, without token and `within`, without a
 * trace, without a class. */
#define REQUEST_SIZE_NO_SUBJECT offsetof(struct weir_request, subject)
#define REQUEST_SIZE_NO_TOKEN   offsetof(struct weir_request, token)
#define REQUEST_SIZE_NO_TRACE   offsetof(struct weir_request, traceparent)
#define REQUEST_SIZE_NO_CLASS   offsetof(struct weir_request, wait_class)

static inline bool request_size_is_known(const struct weir_request *request)
{
    if (request->size >= REQUEST_SIZE_NO_CLASS)
        return request->size >= sizeof(*request) || request->size == REQUEST_SIZE_NO_CLASS;
    return request->size == REQUEST_SIZE_NO_SUBJECT || request->size == REQUEST_SIZE_NO_TOKEN ||
           request->size == REQUEST_SIZE_NO_TRACE;
}

/* Returns the `traceparent` of a valid request, or NULL. */
static inline const char *request_traceparent(const struct weir_request *request)
{
    return request->size >= REQUEST_SIZE_NO_CLASS ? request->traceparent : NULL;
}

/* Returns the acquisition that a valid request is nested in; NULL: none. */
static inline const weir_acquisition *request_within(const struct weir_request *request)
{
    return request->size >= REQUEST_SIZE_NO_TRACE ? request->within : NULL;
}

static inline bool request_is_nested(const struct weir_request *request)
{
    return request->within_process || request_within(request);
}

/* Returns the caller's request, request_default for NULL, or NULL if it is malformed. */
static inline const struct weir_request *request_validate(const struct weir_request *request)
{
    if (!request)
        return &request_default;
    if (!request_size_is_known(request))
        return NULL;
    if (request->flags & ~(uint32_t)WEIR_STRICT || (request->amounts_n && !request->amounts))
        return NULL;
    return request;
}

/* Returns the caller's request, request_default for NULL, or NULL if it is malformed, but for its
 * amounts, or nested: the fast path leaves nested requests to the slow one. One pass over the
 * request: calls of the two above take up to a twentieth more instructions. */
WEIR_ALWAYS_INLINE const struct weir_request *
request_validate_plain(const struct weir_request *request)
{
    if (!request)
        return &request_default;
    if (request->size < sizeof(*request)) {
        if (!request_size_is_known(request) || request_within(request))
            return NULL;
    } else if (request->within) {
        return NULL;
    }
    /* One comparison of both: neither another flag nor `within_process`. */
    if (((uint64_t)request->within_process << 32 | request->flags) > WEIR_STRICT)
        return NULL;
    return request;
}

/* Returns the class that a valid request names, or NULL. */
static inline const char *request_wait_class(const struct weir_request *request)
{
    return request->size >= sizeof(*request) ? request->wait_class : NULL;
}

/* Finds the class of a request to a set with classes: that of its name, or of its pool's, or the
 * last. Returns 0 or -ENOENT, and fills the refusal. */
struct acquire_op;
int request_find_class(struct acquire_op *op);

/* Returns the token of a request, or NULL. */
static inline weir_token *request_token(const struct weir_request *request)
{
    return request->size >= REQUEST_SIZE_NO_TRACE ? request->token : NULL;
}

/* Refuses a malformed request: says why in `retref`, and in the log once. Returns -EINVAL. */
int request_refuse_malformed(weir *w, const struct weir_request *request,
                             struct weir_refusal *retref);

enum purpose {
    PURPOSE_ACQUIRE,
    PURPOSE_TAKE,    /* resources are refused */
    PURPOSE_FORECAST /* without warnings: nothing is acquired */
};

/* Compares keys by address, then by content. Inline: keys are short, and strcmp() is a call. A loop
 * over single letters takes longer, and ends where processors do not expect it. */
WEIR_ALWAYS_INLINE bool request_key_equal(const char *a, const char *b)
{
#define REQUEST_COMPARE(i)                                                                         \
    do {                                                                                           \
        if (a[i] != b[i])                                                                          \
            return false;                                                                          \
        if (!a[i])                                                                                 \
            return true;                                                                           \
    } while (0)

    if (a == b)
        return true;
    for (;; a += 4, b += 4) {
        REQUEST_COMPARE(0);
        REQUEST_COMPARE(1);
        REQUEST_COMPARE(2);
        REQUEST_COMPARE(3);
    }
}

/* Returns the limits with this key: bit i is limit i. */
static inline uint64_t request_limits_named(const struct limits *limits, const char *key)
{
    uint64_t named = 0;

    for (uint32_t i = 0; i < limits->n; i++)
        named |= (uint64_t)(request_key_equal(limits->items[i].key, key) &&
                            !limit_is_retired(&limits->items[i]))
                 << i;
    return named;
}

/* Fills `amounts`, one per limit of the set. Returns 0; or -EINVAL, -ERANGE or -ENOENT and in
 * `*ret_key` the key at fault. */
int request_resolve(weir_set *set, const struct weir_request *request, enum purpose purpose,
                    uint64_t *amounts, const char **ret_key);

/* Returns why request_resolve() returned -EINVAL with this key. */
const char *request_explain(const struct weir_request *request, const char *key);

/* Resolves a valid request with at most one key. False: request_resolve() has to look at it. */
bool request_resolve_simple(const weir_set *set, const struct weir_request *request,
                            enum purpose purpose, uint64_t *amounts);

/* Resolves a valid request to a set of one limit; the amount is not 0, and REQUEST_AMOUNT_NONE only
 * with such a capacity. False: request_resolve() has to look at it. */
WEIR_ALWAYS_INLINE bool request_resolve_one(const weir_set *set, const struct weir_request *request,
                                            enum purpose purpose, uint64_t *ret_amount)
{
    const struct weir_amount *asked = request->amounts;
    const struct limit *limit = set->limits.items;
    uint64_t amount = 1;

    WEIR_INVARIANT(set->limits.n == 1);
    if (request->amounts_n == 1 && asked && asked->key && request_key_equal(limit->key, asked->key))
        amount = asked->amount;
    else if (request->amounts_n || limit->type == WEIR_LIMIT_RATE)
        return false;
    *ret_amount = amount;
    return amount - 1 < limit->capacity &&
           (purpose != PURPOSE_TAKE || limit->type != WEIR_LIMIT_RESOURCE);
}

/* Returns whether all amounts are 0: the set need not be asked. */
static inline bool request_is_empty(const weir_set *set, const uint64_t *amounts)
{
    uint64_t any = 0;

    for (uint32_t i = 0; i < set->limits.n; i++)
        any |= amounts[i];
    return !any;
}

/* Warnings that a set has given; made with the first. */
#define WARNINGS_MAX 64u

struct warnings {
    _Atomic uint64_t hashes[WARNINGS_MAX]; /* of key and text; 0: free */
};

/* Warns once per key, set and text. `what` completes the sentence. May warn again if there is no
 * memory to remember it. */
void request_warn(weir_set *set, const char *key, const char *what);

#endif
