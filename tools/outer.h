/* SPDX-License-Identifier: MIT */
/* Finds out whether an ancestor of this process holds something of a set. */
#ifndef WEIR_TOOLS_OUTER_H
#define WEIR_TOOLS_OUTER_H

#include <stdint.h>
#include <weir/weir.h>

/* Returns the id of this process if it holds something of a set of the pool, or else of the nearest
 * ancestor that does; 0: none does, or a set of the pool is not shared by processes. */
uint32_t outer_process(weir_pool *pool);

#endif
