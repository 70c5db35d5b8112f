/* SPDX-License-Identifier: MIT */
/* Requests: from keys and amounts to one amount per limit of a set. */
#ifndef WEIR_CORE_REQUEST_H
#define WEIR_CORE_REQUEST_H

#include "set.h"
#include <weir/acquisition.h>

/* The caller's request with every field there is, defaults of a NULL request included. */
int request_read(const struct weir_request *request, struct weir_request *ret);

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
bool request_is_empty(const weir_set *set, const uint64_t *amounts);

/* Warns once per key and set; `what` says what the matter is. */
void request_warn(weir_set *set, const char *key, const char *what);

/* The timeout and max_wait that hold for a request. */
uint64_t request_timeout(const weir_set *set, const struct weir_request *request);
uint64_t request_max_wait(const weir_set *set, const struct weir_request *request);

/* Whether two keys are the same: by address, then by content. */
bool key_equal(const char *a, const char *b);

#endif
