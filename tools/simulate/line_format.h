/* SPDX-License-Identifier: MIT */
/* Formats of lines: each finds the wanted fields of a line. */
#ifndef WEIR_TOOLS_SIMULATE_LINE_FORMAT_H
#define WEIR_TOOLS_SIMULATE_LINE_FORMAT_H

#include "mapping.h"

#define COLUMNS_MAX 256

enum line_kind { LINE_UNKNOWN, LINE_COMMON, LINE_COMBINED, LINE_JSON, LINE_CSV };

/* How the wanted fields are found in each line. */
struct line_format {
    enum line_kind kind;
    const struct field_names *fields;
    unsigned char parts[MAPPING_FIELDS_MAX]; /* of an access log: enum access_part */
    /* Of access logs and CSV: the column of each field, and how many have to be read. */
    unsigned columns[MAPPING_FIELDS_MAX];
    unsigned columns_n;
};

/* Finds a format by its name: common, combined, json or csv. */
bool line_kind_parse(const char *name, enum line_kind *ret);

/* Returns the format that a first line seems to have. */
enum line_kind line_kind_guess(struct text line);

/* Returns whether the first line is a header, and no event. */
static inline bool line_kind_has_header(enum line_kind kind)
{
    return kind == LINE_CSV;
}

/*
 * Prepares a format, of CSV by its header. Returns NULL, or the wanted field that it does not have.
 * `ret->kind` has been set.
 */
const char *line_format_open(struct line_format *ret, const struct field_names *fields,
                             struct text header);

/* Finds the fields of a line; those that it does not have are NULL. Returns false if the line is
 * not of this format. */
bool line_format_read(const struct line_format *format, struct text line, struct text *ret);

/* ---- the formats: access_log.c, json_line.c, csv_line.c ---- */

const char *access_log_open(struct line_format *format);
bool access_log_read(const struct line_format *format, struct text line, struct text *ret);
bool json_line_read(const struct line_format *format, struct text line, struct text *ret);
const char *csv_line_open(struct line_format *format, struct text header);
bool csv_line_read(const struct line_format *format, struct text line, struct text *ret);

#endif
