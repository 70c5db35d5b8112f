/* SPDX-License-Identifier: MIT */
/*
 * Numbers with units: amounts `90000`, `10k`, `1M`; durations `250ms`, `60s`, `1d`; sizes `4096`,
 * `64KiB`, `16MiB`; also booleans `true`, `false`. Whole numbers only, exact, without blanks, signs
 * or leading zeros.
 */
#ifndef WEIR_CORE_BASE_UNITS_H
#define WEIR_CORE_BASE_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Size of a buffer for any formatted number, with the NUL. */
#define UNITS_TEXT_MAX 24

/* Parse the whole text. Return 0, -EINVAL (not of this kind) or -ERANGE (does not fit 64 bits). */
int units_parse_amount(const char *text, uint64_t *ret);
int units_parse_duration(const char *text, uint64_t *ret_ns);
int units_parse_size(const char *text, uint64_t *ret);
int units_parse_boolean(const char *text, bool *ret);

/* Write a number with the largest unit that keeps it whole. Return `buffer`. */
const char *units_format_amount(uint64_t amount, char buffer[UNITS_TEXT_MAX]);
const char *units_format_duration(uint64_t ns, char buffer[UNITS_TEXT_MAX]);
const char *units_format_size(uint64_t bytes, char buffer[UNITS_TEXT_MAX]);

#endif
