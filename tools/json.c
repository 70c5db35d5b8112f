/* SPDX-License-Identifier: MIT */
/* A writer of JSON (RFC 8259). */
#include "json.h"
#include <inttypes.h>
#include <stddef.h>

/* Length of the UTF-8 sequence at `text`, or 0 if there is none that is well formed. */
static size_t sequence(const unsigned char *text)
{
    static const struct {
        unsigned char low, high, second_low, second_high;
        size_t length;
    } rows[] = {
        {0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };

    for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
        size_t at = 1;

        if (text[0] < rows[row].low || text[0] > rows[row].high)
            continue;
        if (rows[row].length == 1)
            return 1;
        if (text[1] < rows[row].second_low || text[1] > rows[row].second_high)
            return 0;
        while (++at < rows[row].length) { /* a NUL ends this as any other wrong byte does */
            if (text[at] < 0x80 || text[at] > 0xbf)
                return 0;
        }
        return rows[row].length;
    }
    return 0;
}

static void quote(FILE *out, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;

    fputc('"', out);
    while (*at != '\0') {
        size_t length = sequence(at);

        if (length == 0) {
            fputs("\\ufffd", out);
            length = 1;
        } else if (*at == '"' || *at == '\\') {
            fprintf(out, "\\%c", *at);
        } else if (*at < 0x20 || *at == 0x7f) {
            fprintf(out, "\\u%04x", (unsigned)*at);
        } else {
            fwrite(at, 1, length, out);
        }
        at += length;
    }
    fputc('"', out);
}

/* Everything that stands before a value. */
static void begin(struct json *json, const char *key)
{
    if (json->depth > 0)
        fprintf(json->out, "%s\n%*s", json->filled ? "," : "", (int)(2 * json->depth), "");
    if (key != NULL) {
        quote(json->out, key);
        fputs(": ", json->out);
    }
    json->filled = true;
}

static void open_bracket(struct json *json, const char *key, char bracket)
{
    begin(json, key);
    fputc(bracket, json->out);
    json->depth++;
    json->filled = false;
}

static void close_bracket(struct json *json, char bracket)
{
    json->depth--;
    if (json->filled)
        fprintf(json->out, "\n%*s", (int)(2 * json->depth), "");
    fputc(bracket, json->out);
    if (json->depth == 0)
        fputc('\n', json->out);
    json->filled = true;
}

void json_object(struct json *json, const char *key)
{
    open_bracket(json, key, '{');
}

void json_array(struct json *json, const char *key)
{
    open_bracket(json, key, '[');
}

void json_end_object(struct json *json)
{
    close_bracket(json, '}');
}

void json_end_array(struct json *json)
{
    close_bracket(json, ']');
}

void json_text(struct json *json, const char *key, const char *text)
{
    if (text == NULL) {
        json_null(json, key);
        return;
    }
    begin(json, key);
    quote(json->out, text);
}

void json_number(struct json *json, const char *key, uint64_t number)
{
    begin(json, key);
    fprintf(json->out, "%" PRIu64, number);
}

void json_boolean(struct json *json, const char *key, bool value)
{
    begin(json, key);
    fputs(value ? "true" : "false", json->out);
}

void json_null(struct json *json, const char *key)
{
    begin(json, key);
    fputs("null", json->out);
}
