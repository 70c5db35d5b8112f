/* SPDX-License-Identifier: MIT */
/*
 * Access logs in the common and the combined format, as Apache and nginx write them:
 *
 *     host ident user [time] "method path protocol" status bytes "referer" "agent" …
 *
 * What a server appends is named by its column, from 1. Backslashes escape within quotes.
 */
#include "line_format.h"
#include <string.h>

enum access_part { PART_ALL, PART_METHOD, PART_PATH };

static const struct {
    const char *name;
    unsigned char column, part;
    bool only_combined;
} access_fields[] = {
    {"host", 1, PART_ALL, false},    {"ident", 2, PART_ALL, false},
    {"user", 3, PART_ALL, false},    {"time", 4, PART_ALL, false},
    {"request", 5, PART_ALL, false}, {"status", 6, PART_ALL, false},
    {"bytes", 7, PART_ALL, false},   {"referer", 8, PART_ALL, true},
    {"agent", 9, PART_ALL, true},    {"method", 5, PART_METHOD, false},
    {"path", 5, PART_PATH, false},
};

/* Parses the number of a column. */
static bool parse_column(const char *name, unsigned *ret)
{
    uint64_t column;

    if (!when_parse_amount((struct text){name, strlen(name)}, &column) || column < 1 ||
        column > COLUMNS_MAX)
        return false;
    *ret = (unsigned)column;
    return true;
}

static bool find_field(const struct line_format *format, const char *name, unsigned *ret_column,
                       unsigned char *ret_part)
{
    *ret_part = PART_ALL;
    for (size_t i = 0; i < sizeof(access_fields) / sizeof(access_fields[0]); i++) {
        if (strcmp(access_fields[i].name, name) != 0)
            continue;
        *ret_column = access_fields[i].column;
        *ret_part = access_fields[i].part;
        return format->kind == LINE_COMBINED || !access_fields[i].only_combined;
    }
    return parse_column(name, ret_column);
}

const char *access_log_open(struct line_format *format)
{
    for (unsigned i = 0; i < format->fields->n; i++) {
        const char *name = format->fields->items[i];

        if (!find_field(format, name, &format->columns[i], &format->parts[i]))
            return name;
        if (format->columns[i] > format->columns_n)
            format->columns_n = format->columns[i];
    }
    return NULL;
}

/* Returns the end of a quoted column, its closing quote; or NULL. */
static const char *find_quote(const char *at, const char *end)
{
    while ((at = memchr(at, '"', (size_t)(end - at)))) {
        const char *backslash = at;

        while (backslash[-1] == '\\')
            backslash--;
        if ((at - backslash) % 2 == 0)
            return at;
        at++;
    }
    return NULL;
}

/* Takes the next column of a line. Returns false if there is none, or it has no end. */
static bool take_column(const char **at, const char *end, struct text *ret)
{
    const char *from = *at, *to;
    char first;

    if (from == end)
        return false;
    first = *from;
    if (first == '"')
        to = find_quote(++from, end);
    else if (first == '[')
        to = memchr(from, ']', (size_t)(end - from));
    else if (!(to = memchr(from, ' ', (size_t)(end - from))))
        to = end;
    if (!to)
        return false;
    from += first == '[';
    *ret = (struct text){from, (size_t)(to - from)};
    *at = to;
    if (first == '"' || first == '[')
        ++*at;
    if (*at == end)
        return true;
    return *(*at)++ == ' ';
}

/* Returns the method of a request, or its path. */
static struct text request_part(struct text request, unsigned char part)
{
    const char *end = request.at + request.n;
    const char *blank = memchr(request.at, ' ', request.n), *next;

    if (part == PART_METHOD)
        return (struct text){request.at, blank ? (size_t)(blank - request.at) : request.n};
    if (!blank)
        return (struct text){NULL, 0};
    blank++;
    next = memchr(blank, ' ', (size_t)(end - blank));
    return (struct text){blank, (size_t)((next ? next : end) - blank)};
}

bool access_log_read(const struct line_format *format, struct text line, struct text *ret)
{
    const char *at = line.at, *end = line.at + line.n;

    for (unsigned column = 1; column <= format->columns_n; column++) {
        struct text text;

        if (!take_column(&at, end, &text))
            return false;
        for (unsigned i = 0; i < format->fields->n; i++)
            if (format->columns[i] == column)
                ret[i] = format->parts[i] == PART_ALL ? text : request_part(text, format->parts[i]);
    }
    return true;
}
