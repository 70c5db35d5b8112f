/* SPDX-License-Identifier: MIT */
/* Types of limits, as a configuration has them. */
#ifndef WEIR_TOOLS_LIMIT_TYPE_H
#define WEIR_TOOLS_LIMIT_TYPE_H

#include <weir/algorithm.h>

static inline const char *limit_type_name(enum weir_limit_type type)
{
    return type == WEIR_LIMIT_RATE ? "rate" : type == WEIR_LIMIT_CALL ? "call" : "resource";
}

#endif
