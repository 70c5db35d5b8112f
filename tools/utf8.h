/* SPDX-License-Identifier: MIT */
/* UTF-8, as far as writing out foreign texts needs it. */
#ifndef WEIR_TOOLS_UTF8_H
#define WEIR_TOOLS_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the length of the sequence at `text`, or 0 if it is not well formed. */
size_t utf8_sequence(const unsigned char *text);

/* Returns the code point of a well-formed sequence. */
wchar_t utf8_decode(const unsigned char *sequence, size_t length);

/* Returns how many columns of a terminal such a sequence takes, whatever the locale of the process:
 * 2 for an ideograph, 0 for an accent on the character before. */
int utf8_columns(const unsigned char *sequence, size_t length);

/* Returns whether such a sequence could do more to a terminal than be seen: a control character, or
 * one that breaks or reorders the line around it. */
bool utf8_is_control(const unsigned char *sequence, size_t length);

#endif
