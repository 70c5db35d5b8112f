/* SPDX-License-Identifier: MIT */
/*
 * Numbers with units: amounts `90000`, `10k`, `1M`; durations `250ms`, `60s`, `1d`; sizes `4096`,
 * `64KiB`, `16MiB`; ratios `0.25`, `25%`, which are counted in thousand-millionths. Other numbers
 * are whole. All are exact, without blanks, signs or leading zeros.
 */
#ifndef WEIR_CORE_BASE_UNITS_H
#define WEIR_CORE_BASE_UNITS_H

#include <stdbool.h>
#include <stdint.h>

/* Size of a buffer for any formatted number, with the NUL. */
#define UNITS_TEXT_MAX 24

enum units_kind { UNITS_AMOUNT, UNITS_DURATION, UNITS_SIZE, UNITS_RATIO };

#define UNITS_RATIO_ONE UINT64_C(1000000000)

/* Parses the whole text. Returns 0, -EINVAL (not of this kind) or -ERANGE (does not fit 64 bits).
 */
int units_parse(enum units_kind kind, const char *text, uint64_t *ret);

/* Writes what a text that units_parse() refuses was perhaps meant to be: `1m` for `1min`, `1k` for
 * `1K`. Returns false, and writes nothing, if no correction of the unit makes it valid. */
bool units_suggest(enum units_kind kind, const char *text, char ret[static UNITS_TEXT_MAX]);

/* Writes a number with the largest unit that keeps it whole. Returns `buffer`. */
const char *units_format(enum units_kind kind, uint64_t value, char buffer[UNITS_TEXT_MAX]);

/* Writes a number for people: one of many digits is rounded down, "about 292 years", and a small
 * size is "8 bytes". units_parse() may not understand it. Returns `buffer`. */
const char *units_format_about(enum units_kind kind, uint64_t value, char buffer[UNITS_TEXT_MAX]);

#endif
