/* SPDX-License-Identifier: MIT */
/* What differs between two revisions of a set, one by one, by the names of a configuration. */
#ifndef WEIR_REDIS_DIFFERENCES_H
#define WEIR_REDIS_DIFFERENCES_H

#include <weir/backend.h>

/* Calls how->differs for each difference between what the server has and the set's own definition,
 * which is a later revision of it: redis_revision_compare() has returned 1. If there is none but
 * the revision, the hash of all that the server does not keep is told. */
void redis_differences_tell(const char *own, const char *there,
                            const struct weir_backend_apply *how);

#endif
