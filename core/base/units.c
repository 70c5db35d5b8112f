/* SPDX-License-Identifier: MIT */
/* Exact parsing and formatting of numbers with units. */
#include "base/units.h"
#include "base/invariant.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct unit {
    const char *name;
    uint64_t factor;
};

/* Units in descending order; the factor of the last is 1. */
static const struct unit amount_units[] = {
    {"G", 1000000000},
    {"M", 1000000},
    {"k", 1000},
    {"", 1},
};
static const struct unit duration_units[] = {
    {"d", UINT64_C(86400000000000)},
    {"h", UINT64_C(3600000000000)},
    {"m", UINT64_C(60000000000)},
    {"s", 1000000000},
    {"ms", 1000000},
    {"us", 1000},
    {"ns", 1},
};
static const struct unit size_units[] = {
    {"GiB", UINT64_C(1) << 30},
    {"MiB", UINT64_C(1) << 20},
    {"KiB", UINT64_C(1) << 10},
    {"", 1},
};
#define UNIT_TABLE(units) (units), sizeof(units) / sizeof((units)[0])

/* Reads digits without a leading zero. Returns a pointer behind them, or NULL if there are none.
 * `*rc`: 0, or -ERANGE if the number does not fit. */
static const char *units_parse_digits(const char *text, uint64_t *ret, int *rc)
{
    uint64_t value = 0;
    const char *at = text;
    *rc = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            *rc = -ERANGE;
    }
    if (at == text || (text[0] == '0' && at > text + 1))
        return NULL;
    *ret = value;
    return at;
}

static int units_parse(const char *text, const struct unit *units, size_t n, uint64_t *ret)
{
    uint64_t value, product;
    int rc;
    const char *unit = units_parse_digits(text, &value, &rc);
    if (unit == NULL)
        return -EINVAL;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(unit, units[i].name) != 0)
            continue;
        if (rc != 0)
            return rc;
        if (__builtin_mul_overflow(value, units[i].factor, &product))
            return -ERANGE;
        *ret = product;
        return 0;
    }
    return -EINVAL;
}

int units_parse_amount(const char *text, uint64_t *ret)
{
    return units_parse(text, UNIT_TABLE(amount_units), ret);
}

int units_parse_duration(const char *text, uint64_t *ret_ns)
{
    return units_parse(text, UNIT_TABLE(duration_units), ret_ns);
}

int units_parse_size(const char *text, uint64_t *ret)
{
    return units_parse(text, UNIT_TABLE(size_units), ret);
}

int units_parse_boolean(const char *text, bool *ret)
{
    if (strcmp(text, "true") == 0)
        *ret = true;
    else if (strcmp(text, "false") == 0)
        *ret = false;
    else
        return -EINVAL;
    return 0;
}

static const char *units_format(uint64_t value, const struct unit *units, size_t n, char *buffer)
{
    size_t i = 0;
    WEIR_INVARIANT(units[n - 1].factor == 1);
    while (i + 1 < n && (value == 0 || value % units[i].factor != 0))
        i++;
    snprintf(buffer, UNITS_TEXT_MAX, "%" PRIu64 "%s", value / units[i].factor, units[i].name);
    return buffer;
}

const char *units_format_amount(uint64_t amount, char buffer[UNITS_TEXT_MAX])
{
    return units_format(amount, UNIT_TABLE(amount_units), buffer);
}

const char *units_format_duration(uint64_t ns, char buffer[UNITS_TEXT_MAX])
{
    return units_format(ns, UNIT_TABLE(duration_units), buffer);
}

const char *units_format_size(uint64_t bytes, char buffer[UNITS_TEXT_MAX])
{
    return units_format(bytes, UNIT_TABLE(size_units), buffer);
}
