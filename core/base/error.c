/* SPDX-License-Identifier: MIT */
/* Error messages: one at a time, or collected as complaints about a configuration. */
#include "base/error.h"
#include "base/invariant.h"
#include "base/utf8.h"
#include "os/os.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct complaint {
    struct weir_error error; /* without `file` and `complaints` */
    uint32_t order;          /* of arrival: sorts complaints at equal locations */
};

/* Returns how many bytes a control character has at the beginning of a text; 0: there is none.
 * Those of two bytes are U+0080 to U+009F; terminals obey them, too. */
static size_t text_control_length(const char *text)
{
    unsigned char first = (unsigned char)text[0], second = first ? (unsigned char)text[1] : 0;

    if (first == 0xc2 && second >= 0x80 && second <= 0x9f)
        return 2;
    return (first != 0 && first < 0x20) || first == 0x7f;
}

bool text_has_control(const char *text)
{
    for (; *text != '\0'; text++)
        if (text_control_length(text) > 0)
            return true;
    return false;
}

void text_append(char *text, size_t size, const char *format, ...)
{
    size_t length = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + length, size - length, format, arguments);
    va_end(arguments);
}

struct text_list text_join(const char *const *items, size_t n, const char *between,
                           const char *before_last)
{
    struct text_list list = {""};
    for (size_t i = 0; i < n; i++)
        text_append(list.text, sizeof(list.text), "%s%s",
                    i == 0       ? ""
                    : i + 1 == n ? before_last
                                 : between,
                    items[i]);
    return list;
}

void error_sanitize(char *message, size_t size)
{
    size_t length = strlen(message);
    if (length + 1 == size) { /* truncated, perhaps inside a UTF-8 sequence */
        while (length > 0 && ((unsigned char)message[length - 1] & 0xc0) == 0x80)
            length--;
        if (length > 0 && (unsigned char)message[length - 1] >= 0xc0)
            length--;
        message[length] = '\0';
    }
    for (size_t valid = 0; (valid += utf8_valid_length(message + valid, length - valid)) < length;)
        message[valid] = '?';
    for (size_t i = 0; i < length; i++)
        memset(message + i, '?', text_control_length(message + i));
}

int error_set(struct weir_error *reterr, int code, const char *format, ...)
{
    if (reterr) {
        va_list arguments;
        *reterr = (struct weir_error){.code = code, .complaints = 1};
        va_start(arguments, format);
        vsnprintf(reterr->message, sizeof(reterr->message), format, arguments);
        va_end(arguments);
        error_sanitize(reterr->message, sizeof(reterr->message));
    }
    return code;
}

/* Writes "set `x`, limit 2: ". */
static void spec_location_write(const struct spec_location *location, char *message, size_t size)
{
    if (location->set)
        text_append(message, size, "set `%s`", error_text(location->set).text);
    else if (location->set_number != 0)
        text_append(message, size, "set %u", location->set_number);
    else if (location->pool)
        text_append(message, size, "pool `%s`", error_text(location->pool).text);
    else
        return;
    if (location->limit_number != 0)
        text_append(message, size, ", limit %u", location->limit_number);
    text_append(message, size, ": ");
}

bool complaints_none(const struct complaints *complaints)
{
    return complaints->total == 0 && !complaints->memory_failed;
}

bool complaints_full(const struct complaints *complaints)
{
    return complaints->items_n == COMPLAINTS_MAX;
}

/* Adds a complaint to the array, which doubles at powers of two. NULL: out of memory. */
static struct complaint *complaint_new(struct complaints *complaints)
{
    uint32_t n = complaints->items_n;
    WEIR_INVARIANT(n < COMPLAINTS_MAX);
    if ((n & (n - 1)) == 0) {
        struct complaint *items =
            os_realloc(complaints->items, n == 0 ? 1 : 2 * (size_t)n, sizeof(*items));
        if (!items)
            return NULL;
        complaints->items = items;
    }
    complaints->items_n = n + 1;
    return &complaints->items[n];
}

int complaint_add(struct complaints *complaints, int code, struct mark mark, const char *format,
                  ...)
{
    complaints->total++;
    if (complaints_full(complaints))
        return code;
    struct complaint *complaint = complaint_new(complaints);
    if (!complaint) {
        complaints->memory_failed = true;
        return code;
    }
    struct weir_error *error = &complaint->error;
    *error = (struct weir_error){.code = code, .line = mark.line, .column = mark.column};
    complaint->order = complaints->items_n;
    if (mark.line == 0)
        spec_location_write(&complaints->location, error->message, sizeof(error->message));
    else if (code != -ENOEXEC)
        error->code = -EINVAL;
    if (complaints->are_warnings)
        error->code = 0;
    size_t at = strlen(error->message);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message + at, sizeof(error->message) - at, format, arguments);
    va_end(arguments);
    error_sanitize(error->message, sizeof(error->message));
    return code;
}

static int complaint_compare(const void *left, const void *right)
{
    const struct complaint *a = left, *b = right;
    if (a->error.line != b->error.line)
        return a->error.line < b->error.line ? -1 : 1;
    if (a->error.column != b->error.column)
        return a->error.column < b->error.column ? -1 : 1;
    return a->order < b->order ? -1 : 1;
}

int complaints_report(struct complaints *complaints)
{
    int code = 0;
    if (complaints->items_n > 0)
        qsort(complaints->items, complaints->items_n, sizeof(*complaints->items),
              complaint_compare);
    for (uint32_t i = 0; i < complaints->items_n; i++) {
        struct weir_error *error = &complaints->items[i].error;
        error->complaints = complaints->total;
        snprintf(error->file, sizeof(error->file), "%s", complaints->file);
        if (i == 0)
            complaints->first = *error;
        if (complaints->report)
            complaints->report(complaints->userdata, error);
    }
    if (complaints->items_n > 0)
        code = complaints->first.code;
    if (complaints->memory_failed)
        code = error_set(&complaints->first, -ENOMEM, "out of memory");
    os_free(complaints->items);
    complaints->items = NULL;
    complaints->items_n = complaints->total = 0;
    complaints->memory_failed = false;
    return code;
}

struct error_text error_text(const char *text)
{
    struct error_text ret;
    const size_t room = sizeof(ret.text) - sizeof "…" + 1;
    if (snprintf(ret.text, sizeof(ret.text), "%s", text) >= (int)sizeof(ret.text)) {
        ret.text[room - 1] = '\0';
        error_sanitize(ret.text, room);
        strcat(ret.text, "…");
    }
    error_sanitize(ret.text, sizeof(ret.text) + 1);
    return ret;
}

enum { HINT_WORD_MAX = 64 }; /* longer words get no hint */

static size_t size_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

/*
 * Returns the number of edits (insert, delete, replace, swap neighbors) that turn `a` into `b`: the
 * "optimal string alignment" distance, computed by rows. Stops early with a number above `limit`
 * once the result must exceed it.
 */
static size_t hint_edit_distance(const char *a, size_t a_n, const char *b, size_t b_n, size_t limit)
{
    uint8_t rows[3][HINT_WORD_MAX + 1];
    WEIR_INVARIANT(a_n <= HINT_WORD_MAX && b_n <= HINT_WORD_MAX);
    for (size_t j = 0; j <= b_n; j++)
        rows[0][j] = (uint8_t)j;
    for (size_t i = 1; i <= a_n; i++) {
        uint8_t *row = rows[i % 3], *above = rows[(i - 1) % 3], *before = rows[(i + 1) % 3];
        size_t smallest = row[0] = (uint8_t)i;
        for (size_t j = 1; j <= b_n; j++) {
            size_t n = above[j - 1] + (a[i - 1] != b[j - 1]);
            n = size_min(n, size_min(above[j], row[j - 1]) + (size_t)1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                n = size_min(n, before[j - 2] + (size_t)1);
            row[j] = (uint8_t)n;
            smallest = size_min(smallest, n);
        }
        if (smallest > limit)
            return smallest;
    }
    return rows[a_n % 3][b_n];
}

struct hint hint_find(const char *word, const char *const *candidates, size_t n)
{
    struct hint hint = {0};
    size_t length = strlen(word);
    /* With more edits it is rather another word: `shared` is no misspelled `thread`. */
    size_t limit = length > HINT_WORD_MAX ? 0 : length < 5 ? 1 : length < 8 ? 2 : 3;
    for (size_t i = 0; i < n && limit > 0; i++) {
        size_t candidate_length = strlen(candidates[i]);
        if (candidate_length > HINT_WORD_MAX || candidate_length > length + limit ||
            length > candidate_length + limit)
            continue;
        size_t distance =
            strcasecmp(word, candidates[i]) == 0
                ? 0
                : hint_edit_distance(word, length, candidates[i], candidate_length, limit);
        /* With as many edits as the shorter word has bytes any two words match. */
        if (distance <= limit && distance < size_min(length, candidate_length)) {
            hint.closest = candidates[i];
            limit = distance == 0 ? 0 : distance - 1; /* from here on only closer ones */
        }
    }
    if (hint.closest)
        snprintf(hint.text, sizeof(hint.text), " (did you mean `%s`?)",
                 error_text(hint.closest).text);
    return hint;
}
