/* SPDX-License-Identifier: MIT */
/* A writer of JSON (RFC 8259). */
#include "json.h"
#include "utf8.h"
#include <inttypes.h>
#include <stddef.h>

static void quote(FILE *out, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;

    fputc('"', out);
    while (*at != '\0') {
        size_t length = utf8_sequence(at);

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

/* Writes what precedes a value. */
static void begin(struct json *json, const char *key)
{
    if (json->depth > 0)
        fprintf(json->out, "%s\n%*s", json->filled ? "," : "", (int)(2 * json->depth), "");
    if (key) {
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
    if (!text) {
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

void json_element(struct json *json, const char *text, size_t size)
{
    if (json->filled)
        fputc(',', json->out);
    fwrite(text, 1, size, json->out);
    json->filled = true;
}
