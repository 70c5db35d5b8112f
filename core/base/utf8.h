/* SPDX-License-Identifier: MIT */
/* Which texts are well-formed UTF-8. */
#ifndef WEIR_CORE_BASE_UTF8_H
#define WEIR_CORE_BASE_UTF8_H

#include <stddef.h>

/* Returns the offset of the first byte that is not well-formed UTF-8, or `length`. */
size_t utf8_valid_length(const char *text, size_t length);

#endif
