/* SPDX-License-Identifier: MIT */
/* Numbers of a report as text. */
#ifndef WEIR_TOOLS_SIMULATE_FIGURES_H
#define WEIR_TOOLS_SIMULATE_FIGURES_H

#include "candidate.h"
#include <stdint.h>

#define FIGURE_MAX 48

/* All functions write into `buffer` and return it. */

/* Formats a duration with three digits: "0", "12.3ms", "1.50s", "2h05m". */
const char *figure_duration(uint64_t ns, char buffer[FIGURE_MAX]);

/* Formats a count per second: "0", "0.250", "12.3", "4567". */
const char *figure_per_second(uint64_t n, uint64_t length_ns, char buffer[FIGURE_MAX]);

/* Formats thousandths as a percentage: "12.3%"; below 0: "-". */
const char *figure_percent(int64_t thousandths, char buffer[FIGURE_MAX]);

/* Formats a part of a whole as a percentage. */
const char *figure_share(uint64_t part, uint64_t whole, char buffer[FIGURE_MAX]);

/* Formats the capacity of a limit: "90k/1min", "12". */
const char *figure_capacity(const struct candidate_limit *limit, char buffer[FIGURE_MAX]);

/* Formats the name of a limit: its key, with its set if there are several. `buffer` has room for a
 * hundred bytes at least; a longer name is cut. */
const char *figure_limit(const struct candidate *candidate, uint32_t limit, char *buffer,
                         size_t size);

#endif
