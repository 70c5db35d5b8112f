/* SPDX-License-Identifier: MIT */
/* UTF-8, as far as writing out foreign texts needs it. */
#ifndef WEIR_TOOLS_UTF8_H
#define WEIR_TOOLS_UTF8_H

#include <stddef.h>

/* Returns the length of the sequence at `text`, or 0 if it is not well formed. */
size_t utf8_sequence(const unsigned char *text);

#endif
