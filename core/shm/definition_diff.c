/* SPDX-License-Identifier: MIT */
/* Compares the texts of two definitions. A definition is a mapping of YAML on one line; its fields
 * have names of their own, but for those of limits, which are told apart by the limit's number. */
#include "shm/definition_diff.h"

#include "base/error.h"
#include "base/units.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <weir/set.h>

struct definition_span {
    const char *at;
    size_t n;
};

struct definition_field {
    struct definition_span key, value;
    unsigned limit; /* from 1; 0: of the set */
};

struct definition_reader {
    const char *at;
    unsigned limits_n; /* begun so far */
    bool in_list;
};

/* Reads a name or a value: a text in quotes, or up to the next sign of the mapping. */
static struct definition_span definition_scalar(struct definition_reader *reader)
{
    struct definition_span span = {.at = reader->at};
    bool is_quoted = *reader->at == '"';

    if (!is_quoted)
        reader->at += strcspn(reader->at, ":,{}[]");
    for (reader->at += is_quoted; is_quoted && *reader->at != '\0'; reader->at++) {
        if (*reader->at == '"')
            break;
        reader->at += *reader->at == '\\' && reader->at[1] != '\0';
    }
    reader->at += is_quoted && *reader->at == '"';
    span.n = (size_t)(reader->at - span.at);
    return span;
}

/* Skips signs between fields, and counts the limits. */
static void definition_skip(struct definition_reader *reader)
{
    for (; *reader->at != '\0' && strchr(" ,{}[]:", *reader->at); reader->at++) {
        if (*reader->at == '[')
            reader->in_list = true;
        else if (*reader->at == ']')
            reader->in_list = false;
        else if (*reader->at == '{')
            reader->limits_n += reader->in_list;
    }
}

/* Reads the next field with a single value. Returns false at the end. */
static bool definition_next(struct definition_reader *reader, struct definition_field *ret)
{
    for (;;) {
        definition_skip(reader);
        if (*reader->at == '\0')
            return false;
        ret->key = definition_scalar(reader);
        if (reader->at[0] != ':' || reader->at[1] != ' ' || strchr("{[", reader->at[2]))
            continue;
        reader->at += 2;
        ret->value = definition_scalar(reader);
        ret->limit = reader->in_list ? reader->limits_n : 0;
        return true;
    }
}

static bool definition_span_equal(struct definition_span a, struct definition_span b)
{
    return a.n == b.n && memcmp(a.at, b.at, a.n) == 0;
}

static const struct definition_span definition_key_name = {"key", 3};

/* Finds a field of this limit; 0: of the set. */
static bool definition_find(const char *definition, unsigned limit, struct definition_span key,
                            struct definition_field *ret)
{
    struct definition_reader reader = {.at = definition};

    while (definition_next(&reader, ret))
        if (ret->limit == limit && definition_span_equal(ret->key, key))
            return true;
    return false;
}

/* The keys of the limits of a definition. Of a text that has more limits than there can be, the
 * first ones. */
struct definition_limits {
    unsigned n;
    struct definition_span keys[WEIR_LIMITS_MAX]; /* without one: empty */
};

static struct definition_limits definition_limits(const char *definition)
{
    struct definition_reader reader = {.at = definition};
    struct definition_limits limits = {0};
    struct definition_field field;

    while (definition_next(&reader, &field) && field.limit <= WEIR_LIMITS_MAX)
        if (field.limit && definition_span_equal(field.key, definition_key_name))
            limits.keys[field.limit - 1] = field.value;
    limits.n = reader.limits_n < WEIR_LIMITS_MAX ? reader.limits_n : WEIR_LIMITS_MAX;
    return limits;
}

/* Two definitions, and which limit of the second one is limit i of the first one, from 1: limits of
 * one key are told apart by their order. 0: none is. */
struct definition_pair {
    const char *text, *other;
    unsigned n, counterparts[WEIR_LIMITS_MAX];
};

static struct definition_pair definition_pair(const char *text, const char *other)
{
    const struct definition_limits from = definition_limits(text), to = definition_limits(other);
    struct definition_pair pair = {.text = text, .other = other, .n = from.n};
    uint64_t taken = 0;

    for (unsigned i = 0; i < from.n; i++)
        for (unsigned k = 0; k < to.n && !pair.counterparts[i]; k++)
            if (!(taken >> k & 1) && from.keys[i].n &&
                definition_span_equal(from.keys[i], to.keys[k])) {
                pair.counterparts[i] = k + 1;
                taken |= UINT64_C(1) << k;
            }
    return pair;
}

static unsigned definition_counterpart(const struct definition_pair *pair, unsigned limit)
{
    return limit && limit <= pair->n ? pair->counterparts[limit - 1] : 0;
}

/* Finds the field of the other definition that is this one of the first. */
static bool definition_find_other(const struct definition_pair *pair,
                                  const struct definition_field *field,
                                  struct definition_field *ret)
{
    unsigned limit = definition_counterpart(pair, field->limit);

    return (limit || !field->limit) && definition_find(pair->other, limit, field->key, ret);
}

static bool definition_parse(enum units_kind kind, struct definition_span value, uint64_t *ret)
{
    char text[UNITS_TEXT_MAX];

    if (value.n >= sizeof(text))
        return false;
    memcpy(text, value.at, value.n);
    text[value.n] = '\0';
    return units_parse(kind, text, ret) == 0;
}

static bool definition_same_value(struct definition_span a, struct definition_span b)
{
    static const enum units_kind kinds[] = {UNITS_AMOUNT, UNITS_DURATION, UNITS_SIZE};
    uint64_t x, y;

    if (definition_span_equal(a, b))
        return true;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (definition_parse(kinds[i], a, &x) && definition_parse(kinds[i], b, &y))
            return x == y;
    return false;
}

/* A span for a message, cut if it is long. */
struct definition_text {
    char text[40];
};

static struct definition_text definition_text(struct definition_span span)
{
    enum { SHOWN_MAX = 32 };
    struct definition_text ret;
    size_t n = span.n;

    if (n > SHOWN_MAX)
        for (n = SHOWN_MAX; n > 0 && ((unsigned char)span.at[n] & 0xc0) == 0x80; n--)
            ;
    snprintf(ret.text, sizeof(ret.text), "%.*s%s", (int)n, span.at, n < span.n ? "…" : "");
    return ret;
}

/* Appends a difference. One that has no room is left out, unless it is the first. */
__attribute__((format(printf, 2, 3))) static void definition_append(struct definition_diff *diff,
                                                                    const char *format, ...)
{
    struct definition_diff grown = *diff;
    char text[sizeof(grown.text)];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    text_append(grown.text, sizeof(grown.text), "%s%s", diff->text[0] != '\0' ? "; " : "", text);
    if (strlen(grown.text) < sizeof(grown.text) - 1 || diff->text[0] == '\0')
        *diff = grown;
}

static const char *definition_or_unset(const char *value)
{
    return value ? value : "not set";
}

/* Appends a setting, of limit `limit` unless that is 0. NULL: it is not set. */
static void definition_append_setting(struct definition_diff *diff, bool is_change, unsigned limit,
                                      const char *key, const char *name, const char *there,
                                      const char *here)
{
    char where[80] = "";

    if (limit != 0 && key)
        snprintf(where, sizeof(where), " of limit %u (`%s`)", limit, key);
    definition_append(diff, is_change ? "`%s`%s: %s -> %s" : "`%s`%s is %s there, %s here", name,
                      where, definition_or_unset(there), definition_or_unset(here));
}

/* Describes a field that is `there` in one definition and `here`, with another value or as NULL, in
 * the other one. */
static void definition_append_field(struct definition_diff *diff, bool is_change,
                                    const char *definition, const struct definition_field *there,
                                    const struct definition_field *here)
{
    const struct definition_field *field = there ? there : here;
    struct definition_field key;
    bool has_key = definition_find(definition, field->limit, definition_key_name, &key);

    definition_append_setting(
        diff, is_change, field->limit, has_key ? definition_text(key.value).text : NULL,
        definition_text(field->key).text, there ? definition_text(there->value).text : NULL,
        here ? definition_text(here->value).text : NULL);
}

/* Describes what only the first definition of the pair has: a limit once, by its key. */
static void definition_append_only(struct definition_diff *diff, bool is_change,
                                   const struct definition_pair *pair,
                                   const struct definition_field *field, bool is_there)
{
    if (!field->limit || definition_counterpart(pair, field->limit))
        definition_append_field(diff, is_change, pair->text, is_there ? field : NULL,
                                is_there ? NULL : field);
    else if (definition_span_equal(field->key, definition_key_name))
        definition_append(diff, is_change ? "limit %u (`%s`) %s" : "limit %u (`%s`) is %s only",
                          field->limit, definition_text(field->value).text,
                          is_change  ? is_there ? "goes" : "comes"
                          : is_there ? "there"
                                     : "here");
}

static bool definition_is_reordered(const struct definition_pair *pair)
{
    for (unsigned i = 0; i < pair->n; i++)
        if (pair->counterparts[i] != i + 1)
            return true;
    return false;
}

static struct definition_diff definition_compare(const char *there, const char *here,
                                                 bool is_change)
{
    const struct definition_pair pair = definition_pair(there, here),
                                 back = definition_pair(here, there);
    struct definition_reader reader = {.at = there};
    struct definition_diff diff = {""};
    struct definition_field field, other;

    while (definition_next(&reader, &field)) {
        if (!definition_find_other(&pair, &field, &other))
            definition_append_only(&diff, is_change, &pair, &field, true);
        else if (!definition_same_value(field.value, other.value))
            definition_append_field(&diff, is_change, there, &field, &other);
    }
    for (reader = (struct definition_reader){.at = here}; definition_next(&reader, &field);)
        if (!definition_find_other(&back, &field, &other))
            definition_append_only(&diff, is_change, &back, &field, false);
    if (diff.text[0] == '\0' && definition_is_reordered(&pair))
        definition_append(&diff, is_change ? "limits get another order"
                                           : "limits are in another order there");
    return diff;
}

struct definition_diff definition_diff(const char *there, const char *here)
{
    return definition_compare(there, here, false);
}

struct definition_diff definition_changes(const char *before, const char *after)
{
    return definition_compare(before, after, true);
}

/* Returns any text as one of a message. */
static struct definition_text definition_any_text(const char *text)
{
    struct error_text clean = error_text(text);

    return definition_text((struct definition_span){clean.text, strlen(clean.text)});
}

void definition_diff_add(struct definition_diff *diff, unsigned limit, const char *key,
                         const char *name, const char *before, const char *after)
{
    definition_append_setting(diff, true, limit, key ? definition_any_text(key).text : NULL,
                              definition_any_text(name).text,
                              before ? definition_any_text(before).text : NULL,
                              after ? definition_any_text(after).text : NULL);
}
