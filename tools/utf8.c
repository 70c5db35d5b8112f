/* SPDX-License-Identifier: MIT */
/* UTF-8 (RFC 3629), as far as writing out foreign texts needs it. */
#include "utf8.h"
#include <locale.h>
#include <stdint.h>
#include <wchar.h>

size_t utf8_sequence(const unsigned char *text)
{
    static const struct {
        unsigned char low, high, second_low, second_high;
        size_t length;
    } rows[] = {
        {0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };

    for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
        size_t at = 1;

        if (text[0] < rows[row].low || text[0] > rows[row].high)
            continue;
        if (rows[row].length == 1)
            return 1;
        if (text[1] < rows[row].second_low || text[1] > rows[row].second_high)
            return 0;
        while (++at < rows[row].length) { /* a NUL ends this like any other wrong byte */
            if (text[at] < 0x80 || text[at] > 0xbf)
                return 0;
        }
        return rows[row].length;
    }
    return 0;
}

wchar_t utf8_decode(const unsigned char *sequence, size_t length)
{
    uint32_t point = length == 1 ? sequence[0] : sequence[0] & (0x7fu >> length);

    for (size_t i = 1; i < length; i++)
        point = point << 6 | (sequence[i] & 0x3fu);
    return (wchar_t)point;
}

/* The width of a character depends on the locale: in the plain one, of scripts, it is known of
 * ASCII only. Where the C library lacks this locale, each character counts as one column. */
int utf8_columns(const unsigned char *sequence, size_t length)
{
    static locale_t unicode;
    locale_t before;
    int columns;

    if (!unicode)
        unicode = newlocale(LC_CTYPE_MASK, "C.UTF-8", NULL);
    before = unicode ? uselocale(unicode) : NULL;
    columns = wcwidth(utf8_decode(sequence, length));
    if (before)
        uselocale(before);
    return columns < 0 ? 1 : columns;
}

bool utf8_is_control(const unsigned char *sequence, size_t length)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {
        {0x00, 0x1f},     {0x7f, 0x9f},     {0x061c, 0x061c},
        {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x2069},
    };
    uint32_t point = (uint32_t)utf8_decode(sequence, length);

    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (point >= ranges[i].first && point <= ranges[i].last)
            return true;
    return false;
}
