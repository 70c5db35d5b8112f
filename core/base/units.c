/* SPDX-License-Identifier: MIT */
/* Exact parsing and formatting of numbers with units. */
#include "base/units.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct unit {
    const char *name;
    uint64_t factor;
};

/* The units of each kind in descending order; the factor of the last is 1. */
static const struct unit units_of[][7] = {
    [UNITS_AMOUNT] = {{"G", 1000000000}, {"M", 1000000}, {"k", 1000}, {"", 1}},
    [UNITS_DURATION] = {{"d", UINT64_C(86400000000000)},
                        {"h", UINT64_C(3600000000000)},
                        {"m", UINT64_C(60000000000)},
                        {"s", 1000000000},
                        {"ms", 1000000},
                        {"us", 1000},
                        {"ns", 1}},
    [UNITS_SIZE] = {{"GiB", UINT64_C(1) << 30},
                    {"MiB", UINT64_C(1) << 20},
                    {"KiB", UINT64_C(1) << 10},
                    {"", 1}},
};

/* Reads digits without a leading zero. Returns a pointer behind them, or NULL if there are none.
 * `*r`: 0, or -ERANGE if the number does not fit. */
static const char *units_parse_digits(const char *text, uint64_t *ret, int *r)
{
    uint64_t value = 0;
    const char *at = text;
    *r = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            *r = -ERANGE;
    }
    if (at == text || (text[0] == '0' && at > text + 1))
        return NULL;
    *ret = value;
    return at;
}

int units_parse(enum units_kind kind, const char *text, uint64_t *ret)
{
    const struct unit *at = units_of[kind];
    uint64_t value, product;
    int r;
    const char *name = units_parse_digits(text, &value, &r);
    if (!name)
        return -EINVAL;
    while (strcmp(name, at->name) != 0) {
        if (at->factor == 1)
            return -EINVAL;
        at++;
    }
    if (r != 0)
        return r;
    if (__builtin_mul_overflow(value, at->factor, &product))
        return -ERANGE;
    *ret = product;
    return 0;
}

const char *units_format(enum units_kind kind, uint64_t value, char buffer[UNITS_TEXT_MAX])
{
    const struct unit *at = units_of[kind];
    while (at->factor > 1 && (value == 0 || value % at->factor != 0))
        at++;
    snprintf(buffer, UNITS_TEXT_MAX, "%" PRIu64 "%s", value / at->factor, at->name);
    return buffer;
}
