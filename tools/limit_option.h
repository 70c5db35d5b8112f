/* SPDX-License-Identifier: MIT */
/*
 * Limits and amounts on the command line:
 *
 *     KEY:N                    a resource: N may be held at a time
 *     KEY:N/WINDOW             a rate: N per WINDOW, with the algorithm `gcra`
 *     KEY:N/s                  a rate: N per 1s; any unit of time
 *     KEY:N/WINDOW/ALGORITHM   a rate with another algorithm
 *     KEY=N                    an amount to request
 *
 * N and WINDOW are written as in a configuration: 10k, 60s. A key may contain : and = itself.
 */
#ifndef WEIR_TOOLS_LIMIT_OPTION_H
#define WEIR_TOOLS_LIMIT_OPTION_H

#include <stdbool.h>
#include <weir/weir.h>

/* What is wrong with an argument: a sentence without its period. */
struct option_complaint {
    char text[160];
};

/* Cut `text` into the strings that `*ret` then points to. Return true; or false and the reason,
 * with what was perhaps meant, and `text` unchanged. */
bool limit_option_parse(char *text, struct weir_limit_spec *ret,
                        struct option_complaint *ret_wrong);
bool amount_option_parse(char *text, struct weir_amount *ret, struct option_complaint *ret_wrong);

/* Parses a duration, or `forever`, which is WEIR_FOREVER. Returns false and the reason if it is
 * neither. */
bool duration_option_parse(const char *text, uint64_t *ret_ns, struct option_complaint *ret_wrong);

#endif
