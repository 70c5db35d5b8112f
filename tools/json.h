/* SPDX-License-Identifier: MIT */
/* Writes JSON, one value after the other, indented by two blanks. Keys are NULL within arrays. */
#ifndef WEIR_TOOLS_JSON_H
#define WEIR_TOOLS_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
    FILE *out;
    unsigned depth;
    bool filled; /* the innermost object or array is not empty */
};

void json_object(struct json *json, const char *key);
void json_array(struct json *json, const char *key);
void json_end_object(struct json *json);
void json_end_array(struct json *json);

/* Writes a text in UTF-8; an invalid byte becomes U+FFFD. NULL is null. */
void json_text(struct json *json, const char *key, const char *text);
void json_number(struct json *json, const char *key, uint64_t number);
void json_boolean(struct json *json, const char *key, bool value);
void json_null(struct json *json, const char *key);

/* Writes what another writer, of the same depth, wrote as the first element of its array. */
void json_element(struct json *json, const char *text, size_t size);

#endif
