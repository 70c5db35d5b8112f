/* SPDX-License-Identifier: MIT */
/* Finds the bracket or quote of a YAML text that is never closed. */
#ifndef WEIR_CORE_CONFIG_YAML_UNCLOSED_H
#define WEIR_CORE_CONFIG_YAML_UNCLOSED_H

#include <stddef.h>

/* Returns the offset of the first `[`, `{` or quote that is never closed, or that another kind of
 * bracket closes; `length` if there is none, or if that cannot be told. For texts with an error of
 * syntax: a text without one may be judged wrongly. */
size_t yaml_find_unclosed(const char *text, size_t length);

#endif
