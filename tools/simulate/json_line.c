/* SPDX-License-Identifier: MIT */
/*
 * Lines of JSON: one object each (RFC 8259). A field within an object is named `a.b`. Strings stay
 * as they are written, with their escapes. No value is unfolded into a tree: a line costs no
 * memory.
 */
#include "line_format.h"
#include <string.h>

#define DEPTH_MAX 32

struct json_reader {
    const struct line_format *format;
    const char *at, *end;
    struct text *found;
    unsigned depth;
};

/* What of each wanted name is left to be found in the object that is read; NULL: it is not there.
 */
struct wanted {
    const char *rest[MAPPING_FIELDS_MAX];
    bool any;
};

static bool read_value(struct json_reader *reader, const struct wanted *wanted, struct text *ret);

static void skip_blanks(struct json_reader *reader)
{
    while (reader->at < reader->end &&
           (*reader->at == ' ' || *reader->at == '\t' || *reader->at == '\r'))
        reader->at++;
}

/* Takes a character, after blanks. */
static bool take(struct json_reader *reader, char c)
{
    skip_blanks(reader);
    if (reader->at == reader->end || *reader->at != c)
        return false;
    reader->at++;
    return true;
}

static bool is_hexadecimal(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* Reads what is behind a backslash. */
static bool read_escape(struct json_reader *reader)
{
    char c = '\0';

    if (reader->at < reader->end)
        c = *reader->at++;
    if (c != 'u')
        return c != '\0' && strchr("\"\\/bfnrt", c);
    for (int i = 0; i < 4; i++)
        if (reader->at == reader->end || !is_hexadecimal(*reader->at++))
            return false;
    return true;
}

/* Reads a string, behind its first quote. */
static bool read_string(struct json_reader *reader, struct text *ret)
{
    const char *from = reader->at;

    while (reader->at < reader->end) {
        unsigned char c = (unsigned char)*reader->at++;

        if (c == '"') {
            *ret = (struct text){from, (size_t)(reader->at - 1 - from)};
            return true;
        }
        if (c < 0x20 || (c == '\\' && !read_escape(reader)))
            return false;
    }
    return false;
}

static size_t skip_digits(struct json_reader *reader)
{
    const char *from = reader->at;

    while (reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9')
        reader->at++;
    return (size_t)(reader->at - from);
}

static bool skip_one_of(struct json_reader *reader, const char *characters)
{
    if (reader->at == reader->end || *reader->at == '\0' || !strchr(characters, *reader->at))
        return false;
    reader->at++;
    return true;
}

static bool read_number(struct json_reader *reader, struct text *ret)
{
    const char *from = reader->at, *whole;

    skip_one_of(reader, "-");
    whole = reader->at;
    if (skip_digits(reader) == 0 || (*whole == '0' && reader->at - whole > 1))
        return false;
    if (skip_one_of(reader, ".") && skip_digits(reader) == 0)
        return false;
    if (skip_one_of(reader, "eE")) {
        skip_one_of(reader, "+-");
        if (skip_digits(reader) == 0)
            return false;
    }
    *ret = (struct text){from, (size_t)(reader->at - from)};
    return true;
}

static bool read_word(struct json_reader *reader, struct text *ret)
{
    static const char *const words[] = {"true", "false", "null"};
    size_t left = (size_t)(reader->end - reader->at);

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t n = strlen(words[i]);

        if (left >= n && memcmp(reader->at, words[i], n) == 0) {
            *ret = (struct text){words[i][0] == 'n' ? NULL : reader->at, n};
            reader->at += n;
            return true;
        }
    }
    return false;
}

static bool read_array(struct json_reader *reader)
{
    static const struct wanted nothing = {.any = false};
    struct text ignored;

    if (take(reader, ']'))
        return true;
    do {
        if (!read_value(reader, &nothing, &ignored))
            return false;
    } while (take(reader, ','));
    return take(reader, ']');
}

/* Compares a key with the wanted names. Returns the fields that it is, as bits; `*ret_inside` is
 * what is wanted of its value, if that is an object. */
static uint32_t match_key(const struct json_reader *reader, const struct wanted *wanted,
                          struct text key, struct wanted *ret_inside)
{
    uint32_t is = 0;

    ret_inside->any = false;
    for (unsigned i = 0; wanted->any && i < reader->format->fields->n; i++) {
        const char *rest = wanted->rest[i];

        ret_inside->rest[i] = NULL;
        if (!rest || strncmp(rest, key.at, key.n) != 0 || strnlen(rest, key.n) != key.n)
            continue;
        if (rest[key.n] == '\0')
            is |= UINT32_C(1) << i;
        else if (rest[key.n] == '.')
            ret_inside->rest[i] = rest + key.n + 1;
        ret_inside->any |= ret_inside->rest[i] != NULL;
    }
    return is;
}

static bool read_member(struct json_reader *reader, const struct wanted *wanted)
{
    struct wanted inside;
    struct text key, value = {NULL, 0};
    uint32_t is;

    if (!take(reader, '"') || !read_string(reader, &key) || !take(reader, ':'))
        return false;
    is = match_key(reader, wanted, key, &inside);
    if (!read_value(reader, &inside, &value))
        return false;
    for (unsigned i = 0; is; i++, is >>= 1)
        if (is & 1)
            reader->found[i] = value;
    return true;
}

static bool read_object(struct json_reader *reader, const struct wanted *wanted)
{
    if (take(reader, '}'))
        return true;
    do {
        if (!read_member(reader, wanted))
            return false;
    } while (take(reader, ','));
    return take(reader, '}');
}

/* Reads a value. `*ret` is its text; of an object or array it has none. */
static bool read_value(struct json_reader *reader, const struct wanted *wanted, struct text *ret)
{
    bool is_right;

    *ret = (struct text){NULL, 0};
    if (take(reader, '"'))
        return read_string(reader, ret);
    if (reader->at == reader->end)
        return false;
    if (*reader->at != '{' && *reader->at != '[')
        return *reader->at == '-' || (*reader->at >= '0' && *reader->at <= '9')
                   ? read_number(reader, ret)
                   : read_word(reader, ret);
    if (reader->depth == DEPTH_MAX)
        return false;
    reader->depth++;
    is_right = *reader->at++ == '{' ? read_object(reader, wanted) : read_array(reader);
    reader->depth--;
    return is_right;
}

bool json_line_read(const struct line_format *format, struct text line, struct text *ret)
{
    struct json_reader reader = {format, line.at, line.at + line.n, ret, 0};
    struct wanted wanted = {.any = true};

    for (unsigned i = 0; i < format->fields->n; i++)
        wanted.rest[i] = format->fields->items[i];
    if (!take(&reader, '{') || !read_object(&reader, &wanted))
        return false;
    skip_blanks(&reader);
    return reader.at == reader.end;
}
