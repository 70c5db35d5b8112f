/* SPDX-License-Identifier: MIT */
/*
 * Limits and amounts on the command line:
 *
 *     KEY:N                     a resource: N may be held at a time
 *     KEY:N/WINDOW              a rate: N per WINDOW, as `gcra` counts
 *     KEY:N/WINDOW/ALGORITHM    the same by another algorithm
 *     KEY=N                     an amount that is asked for
 *
 * N and WINDOW are written as in a configuration: 10k, 60s. A key may hold : and = itself.
 */
#ifndef WEIR_TOOLS_LIMIT_OPTION_H
#define WEIR_TOOLS_LIMIT_OPTION_H

#include <weir/weir.h>

/*
 * Each cuts `text` into the strings that `*ret` then points to. Returns NULL, or what is wrong with
 * it; then `text` is as it was.
 */
const char *limit_option_parse(char *text, struct weir_limit_spec *ret);
const char *amount_option_parse(char *text, struct weir_amount *ret);

/* A duration, or `forever`, which is WEIR_FOREVER. Returns NULL or what is wrong. */
const char *duration_option_parse(const char *text, uint64_t *ret_ns);

#endif
