/* SPDX-License-Identifier: MIT */
/* Slow paths of the acquiring calls, for any set. fast_path.c tries the fast path first. */
#ifndef WEIR_CORE_API_ACQUIRE_H
#define WEIR_CORE_API_ACQUIRE_H

#include <weir/acquisition.h>

/* Any of the slow paths below that make an acquisition. */
typedef int slow_path_fn(weir_pool *pool, const struct weir_request *request,
                         weir_acquisition **ret, struct weir_refusal *retref);

/* The contracts are those of weir_take, weir_try_acquire, weir_submit and weir_acquire. */
int acquire_take(weir_pool *pool, const struct weir_request *request, struct weir_refusal *retref);
int acquire_try(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                struct weir_refusal *retref);
int acquire_submit(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                   struct weir_refusal *retref);
int acquire_and_wait(weir_pool *pool, const struct weir_request *request, weir_acquisition **ret,
                     struct weir_refusal *retref);

#endif
