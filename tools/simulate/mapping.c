/* SPDX-License-Identifier: MIT */
/* Where the parts of an event come from. */
#include "mapping.h"
#include "base/units.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define HASH_DIGITS 16
#define HOLD_MAX_NS (UINT64_C(36500) * 86400 * 1000000000)

/* ---- the options ---- */

static bool complain(struct option_complaint *ret_wrong, const char *what)
{
    snprintf(ret_wrong->text, sizeof(ret_wrong->text), "%s", what);
    return false;
}

/* Finds or adds a field. */
static bool want_field(struct mapping *mapping, const char *name, unsigned *ret,
                       struct option_complaint *ret_wrong)
{
    struct field_names *fields = &mapping->fields;
    unsigned i = 0;

    if (*name == '\0')
        return complain(ret_wrong, "the name of a field is missing");
    while (i < fields->n && strcmp(fields->items[i], name) != 0)
        i++;
    if (i == MAPPING_FIELDS_MAX)
        return complain(ret_wrong, "too many fields");
    if (i == fields->n)
        fields->items[fields->n++] = name;
    *ret = i;
    return true;
}

/* Cuts the unit off FIELD:UNIT. The name of a field may have colons itself. */
static void cut_unit(char *text, enum when_unit *ret)
{
    char *colon = strrchr(text, ':');

    if (colon && when_unit_parse(colon + 1, ret))
        *colon = '\0';
}

/* Parses FROM-TO. */
static bool parse_range(char *text, enum units_kind kind, struct value_source *ret)
{
    char *dash = strchr(text, '-');

    if (!dash)
        return false;
    *dash = '\0';
    if (units_parse(kind, text, &ret->low) == 0 && units_parse(kind, dash + 1, &ret->high) == 0 &&
        ret->low <= ret->high)
        return true;
    *dash = '-';
    return false;
}

/* Parses a constant or a distribution. Returns false, without a complaint, if it is neither and so
 * the name of a field. */
static bool parse_numbers(char *text, enum units_kind kind, struct value_source *ret,
                          const char **ret_wrong)
{
    *ret_wrong = NULL;
    if (strncmp(text, "exp:", 4) == 0) {
        ret->kind = VALUE_EXPONENTIAL;
        if (units_parse(kind, text + 4, &ret->low) != 0 || ret->low > WEIR_CLOCK_MAX >> 6)
            *ret_wrong = "behind exp: comes the mean";
        return true;
    }
    if (strncmp(text, "uniform:", 8) == 0) {
        ret->kind = VALUE_UNIFORM;
        if (!parse_range(text + 8, kind, ret))
            *ret_wrong = "behind uniform: comes FROM-TO";
        return true;
    }
    ret->kind = VALUE_CONSTANT;
    return units_parse(kind, text, &ret->low) == 0;
}

bool mapping_time(struct mapping *mapping, char *text, struct option_complaint *ret_wrong)
{
    mapping->time.kind = VALUE_FIELD;
    cut_unit(text, &mapping->time.unit);
    return want_field(mapping, text, &mapping->time.field, ret_wrong);
}

bool mapping_hold(struct mapping *mapping, char *text, struct option_complaint *ret_wrong)
{
    const char *wrong;

    if (parse_numbers(text, UNITS_DURATION, &mapping->hold, &wrong)) {
        if (!wrong && (mapping->hold.low > HOLD_MAX_NS || mapping->hold.high > HOLD_MAX_NS))
            wrong = "a hold is at most 36500d";
        return !wrong || complain(ret_wrong, wrong);
    }
    mapping->hold.kind = VALUE_FIELD;
    cut_unit(text, &mapping->hold.unit);
    return want_field(mapping, text, &mapping->hold.field, ret_wrong);
}

/* Adds a value: KEY=SOURCE, at index `at`. */
static bool add_value(struct mapping *mapping, unsigned at, char *text,
                      struct option_complaint *ret_wrong)
{
    char *sign = strrchr(text, '=');
    struct value_source *source = &mapping->values[at];
    const char *wrong;

    if (mapping->values_n == EVENT_VALUES_MAX)
        return complain(ret_wrong, "too many amounts");
    if (!sign || sign == text)
        return complain(ret_wrong, "an amount is written KEY=N or KEY=FIELD");
    *sign = '\0';
    mapping->keys[at] = text;
    mapping->values_n++;
    if (parse_numbers(sign + 1, UNITS_AMOUNT, source, &wrong))
        return !wrong || complain(ret_wrong, wrong);
    source->kind = VALUE_FIELD;
    return want_field(mapping, sign + 1, &source->field, ret_wrong);
}

bool mapping_amount(struct mapping *mapping, char *text, struct option_complaint *ret_wrong)
{
    unsigned at = mapping->amounts_n;

    for (unsigned i = mapping->values_n; i > at && i < EVENT_VALUES_MAX; i--) {
        mapping->values[i] = mapping->values[i - 1];
        mapping->keys[i] = mapping->keys[i - 1];
    }
    if (!add_value(mapping, at, text, ret_wrong))
        return false;
    for (unsigned i = 0; i < at; i++)
        if (strcmp(mapping->keys[i], text) == 0)
            return complain(ret_wrong, "the key has an amount already");
    mapping->amounts_n++;
    return true;
}

bool mapping_used(struct mapping *mapping, char *text, struct option_complaint *ret_wrong)
{
    return add_value(mapping, mapping->values_n, text, ret_wrong);
}

static bool map_word(struct mapping *mapping, char *text, struct value_source *ret,
                     struct option_complaint *ret_wrong)
{
    if (strncmp(text, "uniform:", 8) == 0) {
        ret->kind = VALUE_UNIFORM;
        ret->low = 1;
        if (units_parse(UNITS_AMOUNT, text + 8, &ret->high) == 0 && ret->high > 0)
            return true;
        return complain(ret_wrong, "behind uniform: comes how many there are");
    }
    ret->kind = VALUE_FIELD;
    return want_field(mapping, text, &ret->field, ret_wrong);
}

bool mapping_subject(struct mapping *mapping, char *text, struct option_complaint *ret_wrong)
{
    return map_word(mapping, text, &mapping->subject, ret_wrong);
}

bool mapping_route(struct mapping *mapping, char *text, struct option_complaint *ret_wrong)
{
    return map_word(mapping, text, &mapping->route, ret_wrong);
}

bool mapping_class(struct mapping *mapping, char *text, struct option_complaint *ret_wrong)
{
    mapping->wait_class.kind = VALUE_FIELD;
    return want_field(mapping, text, &mapping->wait_class.field, ret_wrong);
}

bool mapping_complete(struct mapping *mapping)
{
    struct option_complaint ignored;

    if (mapping->time.kind == VALUE_FIELD)
        return true;
    mapping->time.kind = VALUE_FIELD;
    return want_field(mapping, "time", &mapping->time.field, &ignored);
}

/* ---- the events ---- */

static uint64_t hash_text(struct text text)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

    for (size_t i = 0; i < text.n; i++)
        hash = (hash ^ (unsigned char)text.at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static void set_subject(struct event *event, struct text text)
{
    static const char digits[] = "0123456789abcdef";
    size_t n = text.n <= EVENT_SUBJECT_MAX ? text.n : EVENT_SUBJECT_MAX - HASH_DIGITS;
    uint64_t hash;

    memcpy(event->subject, text.at, n);
    event->subject_size = (uint32_t)n;
    if (n == text.n)
        return;
    hash = hash_text((struct text){text.at + n, text.n - n});
    for (; event->subject_size < EVENT_SUBJECT_MAX; hash >>= 4)
        event->subject[event->subject_size++] = digits[hash & 15];
}

/* A line without a class asks without one. Returns false if it cannot be the name of one. */
static bool set_class(struct event *event, struct text text)
{
    if (!text.at || text.n == 0)
        return true;
    if (text.n > EVENT_CLASS_MAX || memchr(text.at, '\0', text.n))
        return false;
    memcpy(event->wait_class, text.at, text.n);
    event->wait_class[text.n] = '\0';
    return true;
}

/* Returns a number that comes from no field. */
static uint64_t draw(const struct value_source *source, struct random *random)
{
    switch (source->kind) {
    case VALUE_CONSTANT:
        return source->low;
    case VALUE_UNIFORM:
        return random_between(random, source->low, source->high);
    case VALUE_EXPONENTIAL: {
        uint64_t part = random_exponential(random);

        return source->low * (part >> 32) + (source->low >> 32) * (part & UINT32_MAX) +
               ((source->low & UINT32_MAX) * (part & UINT32_MAX) >> 32);
    }
    default:
        return 0;
    }
}

/* An amount of 0 would leave the limit out: the least that is drawn is 1. */
static uint64_t draw_amount(const struct value_source *source, struct random *random)
{
    uint64_t amount = draw(source, random);

    return amount == 0 && source->kind == VALUE_EXPONENTIAL ? 1 : amount;
}

static void draw_words(const struct mapping *mapping, struct random *random, struct event *ret)
{
    char name[EVENT_SUBJECT_MAX + 1];

    if (mapping->subject.kind == VALUE_UNIFORM) {
        int n = snprintf(name, sizeof(name), "%" PRIu64, draw(&mapping->subject, random));

        set_subject(ret, (struct text){name, (size_t)n});
    }
    if (mapping->route.kind == VALUE_UNIFORM)
        ret->route = draw(&mapping->route, random);
}

void mapping_generated(const struct mapping *mapping, struct random *random, struct event *ret)
{
    ret->subject_size = 0;
    ret->wait_class[0] = '\0';
    ret->route = 0;
    ret->hold_ns = draw(&mapping->hold, random);
    for (unsigned i = 0; i < mapping->values_n; i++)
        ret->values[i] = draw_amount(&mapping->values[i], random);
    draw_words(mapping, random, ret);
}

/* Fills in what comes from the fields of a line. Returns whether all of it is right; `*ret_field`
 * is the last one that was looked at. */
static bool read_fields(const struct mapping *mapping, const struct text *fields, struct event *ret,
                        unsigned *ret_field)
{
    const struct value_source *source = &mapping->time;

    *ret_field = source->field;
    if (!when_parse(fields[source->field], source->unit, &ret->at_ns))
        return false;
    source = &mapping->hold;
    if (source->kind == VALUE_FIELD) {
        *ret_field = source->field;
        if (!when_parse_duration(fields[source->field], source->unit, &ret->hold_ns))
            return false;
    }
    for (unsigned i = 0; i < mapping->values_n; i++) {
        source = &mapping->values[i];
        *ret_field = source->field;
        if (source->kind == VALUE_FIELD &&
            !when_parse_amount(fields[source->field], &ret->values[i]))
            return false;
    }
    if (mapping->subject.kind == VALUE_FIELD) {
        *ret_field = mapping->subject.field;
        if (!fields[*ret_field].at || fields[*ret_field].n == 0)
            return false;
        set_subject(ret, fields[*ret_field]);
    }
    if (mapping->route.kind == VALUE_FIELD) {
        *ret_field = mapping->route.field;
        if (!fields[*ret_field].at)
            return false;
        ret->route = hash_text(fields[*ret_field]);
    }
    ret->wait_class[0] = '\0';
    if (mapping->wait_class.kind == VALUE_FIELD) {
        *ret_field = mapping->wait_class.field;
        return set_class(ret, fields[*ret_field]);
    }
    return true;
}

const char *mapping_event(const struct mapping *mapping, const struct text *fields,
                          struct random *random, struct event *ret)
{
    unsigned field;

    mapping_generated(mapping, random, ret);
    if (!read_fields(mapping, fields, ret, &field))
        return mapping->fields.items[field];
    if (mapping->ends)
        ret->at_ns -= ret->hold_ns < ret->at_ns ? ret->hold_ns : ret->at_ns;
    return NULL;
}
