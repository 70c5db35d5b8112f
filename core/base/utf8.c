/* SPDX-License-Identifier: MIT */
/* Which texts are well-formed UTF-8. */
#include "base/utf8.h"
#include <stdbool.h>

/* Returns whether a sequence of three bytes or more, which begins with these two, is overlong, a
 * surrogate, or beyond U+10FFFF. */
static bool utf8_is_out_of_range(unsigned char first, unsigned char second)
{
    return first == 0xe0   ? second < 0xa0
           : first == 0xed ? second > 0x9f
           : first == 0xf0 ? second < 0x90
                           : first == 0xf4 && second > 0x8f;
}

/* Returns the number of bytes of the UTF-8 sequence at `text`, or 0 if it is invalid (RFC 3629). */
static size_t utf8_sequence_length(const unsigned char *text, size_t length)
{
    size_t n = text[0] < 0x80   ? 1
               : text[0] < 0xc2 ? 0
               : text[0] < 0xe0 ? 2
               : text[0] < 0xf0 ? 3
               : text[0] < 0xf5 ? 4
                                : 0;
    if (n > length)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    }
    return n > 2 && utf8_is_out_of_range(text[0], text[1]) ? 0 : n;
}

size_t utf8_valid_length(const char *text, size_t length)
{
    size_t at = 0;
    while (at < length) {
        size_t n = utf8_sequence_length((const unsigned char *)text + at, length - at);
        if (n == 0)
            break;
        at += n;
    }
    return at;
}
