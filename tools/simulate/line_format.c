/* SPDX-License-Identifier: MIT */
/* Formats of lines. */
#include "line_format.h"
#include <string.h>

bool line_kind_parse(const char *name, enum line_kind *ret)
{
    static const char *const names[] = {NULL, "common", "combined", "json", "csv"};

    for (size_t i = 1; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i], name) == 0) {
            *ret = (enum line_kind)i;
            return true;
        }
    }
    return false;
}

enum line_kind line_kind_guess(struct text line)
{
    const char *bracket = line.n > 0 ? memchr(line.at, '[', line.n) : NULL;
    size_t left = bracket ? line.n - (size_t)(bracket - line.at) : 0;

    if (line.n > 0 && line.at[0] == '{')
        return LINE_JSON;
    if (left > 4 && bracket[3] == '/')
        return LINE_COMBINED;
    return LINE_CSV;
}

const char *line_format_open(struct line_format *ret, const struct field_names *fields,
                             struct text header)
{
    ret->fields = fields;
    ret->columns_n = 0;
    switch (ret->kind) {
    case LINE_COMMON:
    case LINE_COMBINED:
        return access_log_open(ret);
    case LINE_CSV:
        return csv_line_open(ret, header);
    default:
        return NULL;
    }
}

bool line_format_read(const struct line_format *format, struct text line, struct text *ret)
{
    switch (format->kind) {
    case LINE_COMMON:
    case LINE_COMBINED:
        return access_log_read(format, line, ret);
    case LINE_CSV:
        return csv_line_read(format, line, ret);
    default:
        return json_line_read(format, line, ret);
    }
}
