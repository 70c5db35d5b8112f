/* SPDX-License-Identifier: MIT */
/* Error messages: one at a time, or collected as complaints about a configuration. */
#include "base/error.h"
#include "base/mutant.h"
#include "os/os.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct complaint {
    struct mark mark;
    uint32_t order; /* of arrival: equal places stay in it */
    int code;
    char message[sizeof(((struct weir_error *)0)->message)];
};

/* Bytes of the UTF-8 sequence at `text`, or 0 if there is none (RFC 3629). */
static size_t sequence_length(const unsigned char *text, size_t length)
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
    /* Longer than needed, a surrogate, or beyond U+10FFFF. */
    if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
        (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f))
        return 0;
    return n;
}

size_t utf8_length(const char *text, size_t length)
{
    size_t at = 0;
    while (at < length) {
        size_t n = sequence_length((const unsigned char *)text + at, length - at);
        if (n == 0)
            break;
        at += n;
    }
    return at;
}

/* A message is one line of UTF-8 whatever it quotes, and does not end inside a character. */
static void tidy(char *message, size_t size)
{
    size_t length = strlen(message);
    if (length + 1 == size) { /* it was cut, perhaps inside a UTF-8 sequence */
        while (length > 0 && ((unsigned char)message[length - 1] & 0xc0) == 0x80)
            length--;
        if (length > 0 && (unsigned char)message[length - 1] >= 0xc0)
            length--;
        message[length] = '\0';
    }
    for (size_t valid = 0; (valid += utf8_length(message + valid, length - valid)) < length;)
        message[valid] = '?';
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)message[i] < 0x20 || message[i] == 0x7f)
            message[i] = '?';
    }
}

int error_set(struct weir_error *reterr, int code, const char *format, ...)
{
    if (reterr != NULL) {
        va_list arguments;
        *reterr = (struct weir_error){.code = code, .complaints = 1};
        va_start(arguments, format);
        vsnprintf(reterr->message, sizeof reterr->message, format, arguments);
        va_end(arguments);
        tidy(reterr->message, sizeof reterr->message);
    }
    return code;
}

/* Writes "set `x`, limit 2: " and returns its length. */
static size_t place_write(const struct place *place, char *message, size_t size)
{
    int n = 0;
    if (place->set != NULL)
        n = snprintf(message, size, "set `%s`", show(place->set).text);
    else if (place->set_number != 0)
        n = snprintf(message, size, "set %u", place->set_number);
    else if (place->pool != NULL)
        n = snprintf(message, size, "pool `%s`", show(place->pool).text);
    if (n == 0)
        return 0;
    if (place->limit_number != 0)
        n += snprintf(message + n, size - (size_t)n, ", limit %u", place->limit_number);
    n += snprintf(message + n, size - (size_t)n, ": ");
    return (size_t)n;
}

bool complaints_full(const struct complaints *complaints)
{
    return complaints->items_n == COMPLAINTS_MAX;
}

/* Makes room for one more complaint: the array doubles at powers of two. */
static struct complaint *complaint_new(struct complaints *complaints)
{
    uint32_t n = complaints->items_n;
    if ((n & (n - 1)) == 0) {
        struct complaint *items =
            sys_grow(complaints->items, n == 0 ? 1 : 2 * (size_t)n, sizeof *items);
        if (items == NULL)
            return NULL;
        complaints->items = items;
    }
    complaints->items_n = n + 1;
    return &complaints->items[n];
}

int complain(struct complaints *complaints, int code, struct mark mark, const char *format, ...)
{
    complaints->total++;
    if (complaints_full(complaints))
        return code;
    struct complaint *complaint = complaint_new(complaints);
    if (complaint == NULL) {
        complaints->memory_failed = true;
        return code;
    }
    complaint->mark = mark;
    complaint->order = complaints->items_n;
    complaint->code = code;

    size_t at = 0;
    if (mark.line == 0)
        at = place_write(&complaints->place, complaint->message, sizeof complaint->message);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(complaint->message + at, sizeof complaint->message - at, format, arguments);
    va_end(arguments);
    tidy(complaint->message, sizeof complaint->message);
    return code;
}

static int by_place(const void *left, const void *right)
{
    const struct complaint *a = left, *b = right;
    if (MUTANT(87)) /* complaints come in the order they were found, not in that of the text */
        return a->order < b->order ? -1 : 1;
    if (a->mark.line != b->mark.line)
        return a->mark.line < b->mark.line ? -1 : 1;
    if (a->mark.column != b->mark.column)
        return a->mark.column < b->mark.column ? -1 : 1;
    return a->order < b->order ? -1 : 1;
}

int complaints_tell(struct complaints *complaints)
{
    int code = 0;
    if (complaints->items_n > 1)
        qsort(complaints->items, complaints->items_n, sizeof *complaints->items, by_place);
    for (uint32_t i = 0; i < complaints->items_n; i++) {
        const struct complaint *complaint = &complaints->items[i];
        struct weir_error error = {.code = complaint->code,
                                   .line = complaint->mark.line,
                                   .column = complaint->mark.column,
                                   .complaints = complaints->total};
        snprintf(error.file, sizeof error.file, "%s", complaints->file);
        memcpy(error.message, complaint->message, sizeof error.message);
        if (i == 0) {
            complaints->first = error;
            code = error.code;
        }
        if (complaints->hear != NULL)
            complaints->hear(complaints->userdata, &error);
    }
    if (complaints->memory_failed)
        code = error_set(&complaints->first, -ENOMEM, "out of memory");
    sys_free(complaints->items);
    complaints->items = NULL;
    complaints->items_n = complaints->total = 0;
    complaints->memory_failed = false;
    return code;
}

struct shown show(const char *text)
{
    struct shown shown;
    const size_t room = sizeof shown.text - sizeof "…" + 1;
    size_t length = strlen(text);
    if (length < sizeof shown.text) {
        memcpy(shown.text, text, length + 1);
    } else {
        memcpy(shown.text, text, room - 1);
        shown.text[room - 1] = '\0';
        tidy(shown.text, room);
        strcat(shown.text, "…");
    }
    tidy(shown.text, sizeof shown.text + 1);
    return shown;
}

struct hint hint_of(const char *closest)
{
    struct hint hint = {""};
    if (closest != NULL)
        snprintf(hint.text, sizeof hint.text, " (did you mean `%s`?)", show(closest).text);
    return hint;
}

enum { WORD_MAX = 64 }; /* longer words get no hint */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/*
 * Edits (insert, delete, replace, swap neighbors) that turn `a` into `b`: the "optimal string
 * alignment" distance, row by row. Ends early, with a number above `limit`, once it must exceed it.
 */
static size_t edits(const char *a, size_t a_n, const char *b, size_t b_n, size_t limit)
{
    uint8_t rows[3][WORD_MAX + 1];
    uint8_t *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b_n; j++)
        above[j] = (uint8_t)j;
    for (size_t i = 1; i <= a_n; i++) {
        size_t smallest = row[0] = (uint8_t)i;
        for (size_t j = 1; j <= b_n; j++) {
            size_t n = above[j - 1] + (a[i - 1] != b[j - 1]);
            n = least(n, least(above[j], row[j - 1]) + (size_t)1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                n = least(n, before[j - 2] + (size_t)1);
            row[j] = (uint8_t)n;
            smallest = least(smallest, n);
        }
        if (smallest > limit)
            return smallest;
        uint8_t *spare = before;
        before = above, above = row, row = spare;
    }
    return above[b_n];
}

const char *closest_word(const char *word, const char *const *candidates, size_t n)
{
    const char *closest = NULL;
    size_t length = strlen(word);
    if (length > WORD_MAX)
        return NULL;
    size_t limit = length < 3 ? 1 : length < 6 ? 2 : 3;
    for (size_t i = 0; i < n && limit > 0; i++) {
        size_t candidate_length = strlen(candidates[i]);
        if (candidate_length > WORD_MAX || candidate_length > length + limit ||
            length > candidate_length + limit)
            continue;
        size_t distance = edits(word, length, candidates[i], candidate_length, limit);
        /* As many edits as the shorter word is long would turn anything into anything. */
        if (distance <= limit && distance < least(length, candidate_length)) {
            closest = candidates[i];
            limit = distance == 0 ? 0 : distance - 1; /* only a closer one from here on */
        }
    }
    return closest;
}
