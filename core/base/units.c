/* SPDX-License-Identifier: MIT */
/* Exact parsing and formatting of numbers with units. */
#include "base/units.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

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
    [UNITS_RATIO] = {{"", 1}},
};

/* Other spellings of units, in small letters. A unit in letters of the wrong case needs no row. */
static const struct {
    enum units_kind kind;
    const char *spelling, *name;
} unit_spellings[] = {
    {UNITS_DURATION, "", "s"},         {UNITS_DURATION, "sec", "s"},
    {UNITS_DURATION, "secs", "s"},     {UNITS_DURATION, "second", "s"},
    {UNITS_DURATION, "seconds", "s"},  {UNITS_DURATION, "min", "m"},
    {UNITS_DURATION, "mins", "m"},     {UNITS_DURATION, "minute", "m"},
    {UNITS_DURATION, "minutes", "m"},  {UNITS_DURATION, "hr", "h"},
    {UNITS_DURATION, "hrs", "h"},      {UNITS_DURATION, "hour", "h"},
    {UNITS_DURATION, "hours", "h"},    {UNITS_DURATION, "day", "d"},
    {UNITS_DURATION, "days", "d"},     {UNITS_DURATION, "msec", "ms"},
    {UNITS_DURATION, "millis", "ms"},  {UNITS_DURATION, "usec", "us"},
    {UNITS_DURATION, "\u00b5s", "us"}, {UNITS_DURATION, "\u03bcs", "us"},
    {UNITS_DURATION, "nsec", "ns"},    {UNITS_SIZE, "b", ""},
    {UNITS_SIZE, "k", "KiB"},          {UNITS_SIZE, "kb", "KiB"},
    {UNITS_SIZE, "m", "MiB"},          {UNITS_SIZE, "mb", "MiB"},
    {UNITS_SIZE, "g", "GiB"},          {UNITS_SIZE, "gb", "GiB"},
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

/* Reads the decimals of a ratio, at most nine. Returns a pointer behind them, or NULL. */
static const char *units_parse_decimals(const char *text, uint64_t *ret)
{
    uint64_t place = UNITS_RATIO_ONE, value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        place /= 10;
        if (place == 0)
            return NULL;
        value += (uint64_t)(*at - '0') * place;
    }
    *ret = value;
    return at > text ? at : NULL;
}

/* What is finer than a thousand-millionth is no ratio. */
static int units_parse_ratio(const char *text, uint64_t *ret)
{
    uint64_t whole, part = 0, value;
    int r;
    const char *at = units_parse_digits(text, &whole, &r);
    if (at && *at == '.')
        at = units_parse_decimals(at + 1, &part);
    bool is_percent = at && *at == '%';
    if (!at || at[is_percent] != '\0')
        return -EINVAL;
    if (r < 0 || __builtin_mul_overflow(whole, UNITS_RATIO_ONE, &value) ||
        __builtin_add_overflow(value, part, &value))
        return -ERANGE;
    if (is_percent && value % 100 != 0)
        return -EINVAL;
    *ret = is_percent ? value / 100 : value;
    return 0;
}

int units_parse(enum units_kind kind, const char *text, uint64_t *ret)
{
    const struct unit *at = units_of[kind];
    uint64_t value, product;
    int r;
    if (kind == UNITS_RATIO)
        return units_parse_ratio(text, ret);
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

/* Returns the name of the unit that is spelled otherwise, or NULL. */
static const char *units_find_spelling(enum units_kind kind, const char *spelling)
{
    for (size_t i = 0; i < sizeof(unit_spellings) / sizeof(unit_spellings[0]); i++)
        if (unit_spellings[i].kind == kind && strcasecmp(unit_spellings[i].spelling, spelling) == 0)
            return unit_spellings[i].name;
    for (const struct unit *at = units_of[kind];; at++) {
        if (strcasecmp(at->name, spelling) == 0)
            return at->name;
        if (at->factor == 1)
            return NULL;
    }
}

bool units_suggest(enum units_kind kind, const char *text, char ret[static UNITS_TEXT_MAX])
{
    size_t digits = strspn(text, "0123456789");
    const char *name = units_find_spelling(kind, text + digits + strspn(text + digits, " "));
    char suggestion[UNITS_TEXT_MAX];
    uint64_t number;
    int size;
    if (kind == UNITS_RATIO || digits == 0 || digits >= sizeof(suggestion) || !name)
        return false;
    size = snprintf(suggestion, sizeof(suggestion), "%.*s%s", (int)digits, text, name);
    if (size >= (int)sizeof(suggestion) || units_parse(kind, suggestion, &number) < 0)
        return false;
    memcpy(ret, suggestion, (size_t)size + 1);
    return true;
}

static const char *units_format_ratio(uint64_t value, char buffer[UNITS_TEXT_MAX])
{
    uint64_t part = value % UNITS_RATIO_ONE;
    int places = 9;
    for (; part != 0 && part % 10 == 0; part /= 10)
        places--;
    if (part == 0)
        snprintf(buffer, UNITS_TEXT_MAX, "%" PRIu64, value / UNITS_RATIO_ONE);
    else
        snprintf(buffer, UNITS_TEXT_MAX, "%" PRIu64 ".%0*" PRIu64, value / UNITS_RATIO_ONE, places,
                 part);
    return buffer;
}

const char *units_format(enum units_kind kind, uint64_t value, char buffer[UNITS_TEXT_MAX])
{
    const struct unit *at = units_of[kind];
    if (kind == UNITS_RATIO)
        return units_format_ratio(value, buffer);
    while (at->factor > 1 && (value == 0 || value % at->factor != 0))
        at++;
    snprintf(buffer, UNITS_TEXT_MAX, "%" PRIu64 "%s", value / at->factor, at->name);
    return buffer;
}

/* More digits than these are not read as a number. */
enum { UNITS_DIGITS_MAX = 7 };

/* Writes "about 9.2 × 10^18". */
static void units_format_power(uint64_t value, char buffer[UNITS_TEXT_MAX])
{
    unsigned exponent = 1;
    for (; value >= 100; value /= 10)
        exponent++;
    snprintf(buffer, UNITS_TEXT_MAX, "about %u.%u × 10^%u", (unsigned)(value / 10),
             (unsigned)(value % 10), exponent);
}

const char *units_format_about(enum units_kind kind, uint64_t value, char buffer[UNITS_TEXT_MAX])
{
    const uint64_t year = UINT64_C(31556952) * 1000000000; /* the mean one of the calendar */
    const struct unit *at = units_of[kind];
    units_format(kind, value, buffer);
    if (kind == UNITS_RATIO || strspn(buffer, "0123456789") <= UNITS_DIGITS_MAX) {
        if (kind == UNITS_SIZE && value % 1024 != 0)
            strcat(buffer, " bytes");
        return buffer;
    }
    while (at->factor > value)
        at++;
    if (kind == UNITS_DURATION && value >= year)
        snprintf(buffer, UNITS_TEXT_MAX, "about %" PRIu64 " years", value / year);
    else if (value / at->factor < 10000)
        snprintf(buffer, UNITS_TEXT_MAX, "about %u.%u%s", (unsigned)(value / at->factor),
                 (unsigned)(value % at->factor * 10 / at->factor), at->name);
    else
        units_format_power(value, buffer);
    return buffer;
}
