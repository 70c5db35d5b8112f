/* SPDX-License-Identifier: MIT */
/*
 * Nested requests that would wait for ever. The holder of an acquisition that waits for a request
 * nested in it gives nothing back until that is granted. So a nested request can be granted only
 * by units that are free, or held by others. If there are too few of those, a circle is closed:
 * each of the holders waits for another one (E. G. Coffman, M. Elphick, A. Shoshani, System
 * deadlocks, Computing Surveys 1971; the search is that of their section on detection).
 */
#ifndef WEIR_CORE_SET_NESTING_H
#define WEIR_CORE_SET_NESTING_H

#include "set/txn.h"

/*
 * Returns whether a circle is closed if the transaction's request waits: 1, and a resource that is
 * short; 0; or -ENOMEM. Only txn_is_current() says whether that is so.
 */
int nesting_closes_circle(const struct txn *txn, const uint64_t *amounts,
                          const struct limit **ret_limiting);

#endif
