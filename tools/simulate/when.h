/* SPDX-License-Identifier: MIT */
/* Times, durations and amounts, as they stand in logs. */
#ifndef WEIR_TOOLS_SIMULATE_WHEN_H
#define WEIR_TOOLS_SIMULATE_WHEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A part of a line; `at` is NULL if there is none. */
struct text {
    const char *at;
    size_t n;
};

/* The unit of numbers of a field that are a time or a duration. */
enum when_unit { WHEN_S, WHEN_MS, WHEN_US, WHEN_NS };

/* Finds a unit by its name: s, ms, us or ns. */
bool when_unit_parse(const char *name, enum when_unit *ret);

/*
 * Parses a time: a number of units since 1970, with or without a fraction; ISO 8601
 * (2026-01-31T12:00:00.5Z, with an offset, or without, which is UTC); or as in access logs
 * (31/Jan/2026:12:00:00 +0100). Digits beyond the nanosecond are dropped. Returns false if it is
 * none of these, before 1970, or beyond 2189.
 */
bool when_parse(struct text text, enum when_unit unit, uint64_t *ret_ns);

/* Parses a number of units, with or without a fraction. `-` is 0. */
bool when_parse_duration(struct text text, enum when_unit unit, uint64_t *ret_ns);

/* Parses a whole number. `-` is 0. */
bool when_parse_amount(struct text text, uint64_t *ret);

#endif
