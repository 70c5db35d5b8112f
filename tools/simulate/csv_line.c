/* SPDX-License-Identifier: MIT */
/* Lines of comma-separated values (RFC 4180), the first of which is the header. A value does not go
 * on in the next line, and a doubled quote stays doubled. */
#include "line_format.h"
#include <string.h>

/* Takes the next value. Returns false if it is malformed. `*at` is NULL behind the last one. */
static bool take_value(const char **at, const char *end, struct text *ret)
{
    const char *from = *at, *to;

    if (from == end || *from != '"') {
        to = from == end ? NULL : memchr(from, ',', (size_t)(end - from));
        *ret = (struct text){from, (size_t)((to ? to : end) - from)};
        *at = to ? to + 1 : NULL;
        return true;
    }
    to = ++from;
    while ((to = memchr(to, '"', (size_t)(end - to))) && to + 1 < end && to[1] == '"')
        to += 2;
    if (!to || (to + 1 < end && to[1] != ','))
        return false;
    *ret = (struct text){from, (size_t)(to - from)};
    *at = to + 1 < end ? to + 2 : NULL;
    return true;
}

const char *csv_line_open(struct line_format *format, struct text header)
{
    const char *at = header.at, *end = header.at + header.n;
    struct text name;

    memset(format->columns, 0, sizeof(format->columns));
    for (unsigned column = 1; at && column <= COLUMNS_MAX; column++) {
        if (!take_value(&at, end, &name))
            break;
        for (unsigned i = 0; i < format->fields->n; i++) {
            const char *wanted = format->fields->items[i];

            if (format->columns[i] || strlen(wanted) != name.n ||
                memcmp(wanted, name.at, name.n) != 0)
                continue;
            format->columns[i] = column;
            format->columns_n = column;
        }
    }
    for (unsigned i = 0; i < format->fields->n; i++)
        if (!format->columns[i])
            return format->fields->items[i];
    return NULL;
}

bool csv_line_read(const struct line_format *format, struct text line, struct text *ret)
{
    const char *at = line.at, *end = line.at + line.n;

    for (unsigned column = 1; column <= format->columns_n; column++) {
        struct text value;

        if (!at || !take_value(&at, end, &value))
            return false;
        for (unsigned i = 0; i < format->fields->n; i++)
            if (format->columns[i] == column)
                ret[i] = value;
    }
    return true;
}
