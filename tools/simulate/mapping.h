/* SPDX-License-Identifier: MIT */
/* Where the parts of an event come from: fields of a line, constants, or random numbers. */
#ifndef WEIR_TOOLS_SIMULATE_MAPPING_H
#define WEIR_TOOLS_SIMULATE_MAPPING_H

#include "event.h"
#include "limit_option.h"
#include "random.h"
#include "when.h"

#define MAPPING_FIELDS_MAX 24

enum value_kind { VALUE_NONE, VALUE_CONSTANT, VALUE_FIELD, VALUE_EXPONENTIAL, VALUE_UNIFORM };

/* One part of an event. */
struct value_source {
    enum value_kind kind;
    enum when_unit unit; /* of the numbers of a field that is a time or duration */
    unsigned field;      /* index into the fields of the mapping */
    uint64_t low, high;  /* of a constant, or the mean: `low` */
};

/* The fields that are wanted of each line, by name. The names are borrowed. */
struct field_names {
    const char *items[MAPPING_FIELDS_MAX];
    unsigned n;
};

/* All zero: the time is in the field `time`, and there is nothing else. */
struct mapping {
    struct field_names fields;
    struct value_source time, hold, subject, route, wait_class;
    const char *keys[EVENT_VALUES_MAX]; /* of the values */
    struct value_source values[EVENT_VALUES_MAX];
    unsigned amounts_n; /* values requested, the first ones */
    unsigned values_n;  /* of them and of those used, behind them */
    bool ends;          /* the times are those of the releases */
};

/*
 * Take the argument of an option, which they cut, and which must live as long as the mapping:
 *
 *     time     FIELD[:UNIT]
 *     hold     a duration, exp:DURATION, uniform:FROM-TO, or FIELD[:UNIT]
 *     amount   KEY=N, KEY=exp:N, KEY=uniform:FROM-TO, or KEY=FIELD
 *     subject, route    uniform:N, or FIELD
 *     class    FIELD
 *
 * Return false and what is wrong. Amounts that are used come after all that are requested.
 */
bool mapping_time(struct mapping *mapping, char *text, struct option_complaint *ret_wrong);
bool mapping_hold(struct mapping *mapping, char *text, struct option_complaint *ret_wrong);
bool mapping_amount(struct mapping *mapping, char *text, struct option_complaint *ret_wrong);
bool mapping_used(struct mapping *mapping, char *text, struct option_complaint *ret_wrong);
bool mapping_subject(struct mapping *mapping, char *text, struct option_complaint *ret_wrong);
bool mapping_route(struct mapping *mapping, char *text, struct option_complaint *ret_wrong);
bool mapping_class(struct mapping *mapping, char *text, struct option_complaint *ret_wrong);

/* Completes the mapping of a trace with the field of the time, unless an option has named it.
 * Returns false if there are too many fields. */
bool mapping_complete(struct mapping *mapping);

/*
 * Fill in an event but for its number: from the fields of a line, or for a generated event from its
 * time. mapping_event() returns NULL, or the name of the field that is missing or is not what it
 * has to be.
 */
const char *mapping_event(const struct mapping *mapping, const struct text *fields,
                          struct random *random, struct event *ret);
void mapping_generated(const struct mapping *mapping, struct random *random, struct event *ret);

#endif
