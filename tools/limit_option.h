/* SPDX-License-Identifier: MIT */
/*
 * Limits and amounts on the command line:
 *
 *     KEY:N                    a resource: N may be held at a time
 *     KEY:N/WINDOW             a rate: N per WINDOW, with the algorithm `gcra`
 *     KEY:N/WINDOW/ALGORITHM   a rate with another algorithm
 *     KEY=N                    an amount to request
 *
 * N and WINDOW are written as in a configuration: 10k, 60s. A key may contain : and = itself.
 */
#ifndef WEIR_TOOLS_LIMIT_OPTION_H
#define WEIR_TOOLS_LIMIT_OPTION_H

#include <weir/weir.h>

/* Cut `text` into the strings that `*ret` then points to. Return NULL, or what is wrong with it;
 * then `text` is unchanged. */
const char *limit_option_parse(char *text, struct weir_limit_spec *ret);
const char *amount_option_parse(char *text, struct weir_amount *ret);

/* Parses a duration, or `forever`, which is WEIR_FOREVER. Returns NULL or what is wrong. */
const char *duration_option_parse(const char *text, uint64_t *ret_ns);

#endif
