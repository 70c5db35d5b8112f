/* SPDX-License-Identifier: MIT */
/* Durations as text. */
#ifndef WEIR_TOOLS_TIME_TEXT_H
#define WEIR_TOOLS_TIME_TEXT_H

#include <stdint.h>

#define TIME_TEXT_MAX 32

/* Both functions write into `buffer` and return it. */

/* Formats seconds, exact to the nanosecond, without zeros at the end: "0.25", "12". */
const char *time_text_seconds(uint64_t ns, char buffer[TIME_TEXT_MAX]);

/* Formats a duration, rounded down, in at most six characters: "350ms", "12.3s", "3m05s", "2h07m",
 * "41d". */
const char *time_text_age(uint64_t ns, char buffer[TIME_TEXT_MAX]);

#endif
