/* SPDX-License-Identifier: MIT */
/* The calls that ask, of any set: fast_path.c, where they begin, knows a shorter way for most. */
#ifndef WEIR_CORE_API_ACQUIRE_H
#define WEIR_CORE_API_ACQUIRE_H

#include <weir/acquisition.h>

/* Those of the following that make acquisitions. */
typedef int slow_path_fn(weir_pool *pool, const struct weir_request *request,
                         weir_acquisition **ret, struct weir_refusal *retref);

/* weir_take(), weir_try_acquire(), weir_submit(), weir_acquire(). */
int acquire_take(weir_pool *pool, const struct weir_request *request, struct weir_refusal *retref);
int acquire_try(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                struct weir_refusal *retref);
int acquire_submit(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                   struct weir_refusal *retref);
int acquire_and_wait(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                     struct weir_refusal *retref);

#endif
