/* SPDX-License-Identifier: MIT */
/* Times, durations and amounts, as they stand in logs. */
#include "when.h"
#include <string.h>
#include <weir/algorithm.h>

#define NS_PER_S  UINT64_C(1000000000)
#define CLF_SIZE  26 /* 31/Jan/2026:12:00:00 +0100 */
#define YEAR_LAST 2189

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool when_unit_parse(const char *name, enum when_unit *ret)
{
    static const char names[][3] = {[WHEN_S] = "s", [WHEN_MS] = "ms", [WHEN_US] = "us", "ns"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i], name) == 0) {
            *ret = (enum when_unit)i;
            return true;
        }
    }
    return false;
}

/* Adds a digit to a number. Returns false if it does not fit. */
static bool add_digit(uint64_t *number, unsigned digit)
{
    if (*number > (UINT64_MAX - digit) / 10)
        return false;
    *number = *number * 10 + digit;
    return true;
}

/* Parses a number of 10^-digits, of which the text may have fewer or more. */
static bool parse_fixed(struct text text, unsigned digits, uint64_t *ret)
{
    uint64_t number = 0;
    size_t i = 0;

    while (i < text.n && is_digit(text.at[i]))
        if (!add_digit(&number, (unsigned)(text.at[i++] - '0')))
            return false;
    if (i == 0)
        return false;
    if (i < text.n && (text.at[i++] != '.' || i == text.n))
        return false;
    for (; i < text.n; i++) {
        if (!is_digit(text.at[i]))
            return false;
        if (digits > 0) {
            if (!add_digit(&number, (unsigned)(text.at[i] - '0')))
                return false;
            digits--;
        }
    }
    while (digits-- > 0)
        if (!add_digit(&number, 0))
            return false;
    *ret = number;
    return true;
}

static unsigned unit_digits(enum when_unit unit)
{
    return 9 - 3 * (unsigned)unit;
}

/* Parses exactly `n` digits at `at`. */
static bool parse_digits(const char *at, size_t n, unsigned *ret)
{
    *ret = 0;
    for (size_t i = 0; i < n; i++) {
        if (!is_digit(at[i]))
            return false;
        *ret = *ret * 10 + (unsigned)(at[i] - '0');
    }
    return true;
}

struct calendar {
    unsigned year, month, day, hour, minute, second;
};

/* Returns the days since 1970-01-01, by the count of days in years that begin in March. */
static int64_t days_of(const struct calendar *c)
{
    int64_t year = (int64_t)c->year - (c->month <= 2);
    int64_t era = year / 400, of_era = year % 400;
    int64_t of_year = (153 * ((int64_t)c->month + (c->month > 2 ? -3 : 9)) + 2) / 5 + c->day - 1;

    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static bool calendar_is_right(const struct calendar *c)
{
    static const unsigned char days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

    if (c->year < 1970 || c->year > YEAR_LAST || c->month < 1 || c->month > 12)
        return false;
    if (c->day < 1 || c->day > days[c->month - 1])
        return false;
    return c->hour < 24 && c->minute < 60 && c->second <= 60;
}

static bool calendar_ns(const struct calendar *c, int64_t offset_s, uint64_t fraction_ns,
                        uint64_t *ret_ns)
{
    int64_t s;

    if (!calendar_is_right(c))
        return false;
    s = days_of(c) * 86400 + c->hour * 3600 + c->minute * 60 + c->second - offset_s;
    if (s < 0 || (uint64_t)s >= WEIR_CLOCK_MAX / NS_PER_S)
        return false;
    *ret_ns = (uint64_t)s * NS_PER_S + fraction_ns;
    return true;
}

/* Parses +0100, +01:00, +01 or Z; nothing is UTC. */
static bool parse_offset(struct text text, int64_t *ret_s)
{
    unsigned hours, minutes = 0;
    size_t colon = text.n == 6 && text.at[3] == ':';

    *ret_s = 0;
    if (text.n == 0 || (text.n == 1 && text.at[0] == 'Z'))
        return true;
    if (text.n != 3 && text.n != 5 + colon)
        return false;
    if (!parse_digits(text.at + 1, 2, &hours) || hours > 23)
        return false;
    if (text.n > 3 && (!parse_digits(text.at + 3 + colon, 2, &minutes) || minutes > 59))
        return false;
    *ret_s = (int64_t)hours * 3600 + (int64_t)minutes * 60;
    if (text.at[0] == '-')
        *ret_s = -*ret_s;
    return text.at[0] == '-' || text.at[0] == '+';
}

static bool parse_clock(const char *at, struct calendar *ret)
{
    return at[2] == ':' && at[5] == ':' && parse_digits(at, 2, &ret->hour) &&
           parse_digits(at + 3, 2, &ret->minute) && parse_digits(at + 6, 2, &ret->second);
}

static bool parse_month(const char *at, unsigned *ret)
{
    static const char names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

    for (unsigned i = 0; i < 12; i++) {
        if (memcmp(names + (size_t)3 * i, at, 3) == 0) {
            *ret = i + 1;
            return true;
        }
    }
    return false;
}

static bool parse_clf(struct text text, uint64_t *ret_ns)
{
    const char *at = text.at;
    struct calendar c;
    int64_t offset_s;

    if (text.n != CLF_SIZE || at[6] != '/' || at[11] != ':' || at[20] != ' ')
        return false;
    if (!parse_digits(at, 2, &c.day) || !parse_month(at + 3, &c.month))
        return false;
    if (!parse_digits(at + 7, 4, &c.year) || !parse_clock(at + 12, &c))
        return false;
    return parse_offset((struct text){at + 21, 5}, &offset_s) &&
           calendar_ns(&c, offset_s, 0, ret_ns);
}

/* Parses the fraction of a second, if there is one. Returns where it ends, or 0: it is wrong. */
static size_t parse_fraction(struct text text, size_t from, uint64_t *ret_ns)
{
    size_t end = from + 1;

    *ret_ns = 0;
    if (from == text.n || (text.at[from] != '.' && text.at[from] != ','))
        return from;
    while (end < text.n && is_digit(text.at[end]))
        end++;
    for (size_t i = 0; i < 9; i++)
        *ret_ns = *ret_ns * 10 + (from + 1 + i < end ? (unsigned)(text.at[from + 1 + i] - '0') : 0);
    return end > from + 1 ? end : 0;
}

static bool parse_iso(struct text text, uint64_t *ret_ns)
{
    const char *at = text.at;
    struct calendar c;
    uint64_t fraction_ns;
    int64_t offset_s;
    size_t end;

    if (text.n < 19 || at[7] != '-' || (at[10] != 'T' && at[10] != ' '))
        return false;
    if (!parse_digits(at, 4, &c.year) || !parse_digits(at + 5, 2, &c.month))
        return false;
    if (!parse_digits(at + 8, 2, &c.day) || !parse_clock(at + 11, &c))
        return false;
    end = parse_fraction(text, 19, &fraction_ns);
    return end != 0 && parse_offset((struct text){at + end, text.n - end}, &offset_s) &&
           calendar_ns(&c, offset_s, fraction_ns, ret_ns);
}

bool when_parse(struct text text, enum when_unit unit, uint64_t *ret_ns)
{
    uint64_t ns;

    if (!text.at || text.n < 1)
        return false;
    if (text.n > 4 && text.at[4] == '-')
        return parse_iso(text, ret_ns);
    if (text.n > 2 && text.at[2] == '/')
        return parse_clf(text, ret_ns);
    if (!parse_fixed(text, unit_digits(unit), &ns) || ns >= WEIR_CLOCK_MAX)
        return false;
    *ret_ns = ns;
    return true;
}

static bool is_none(struct text text)
{
    return text.n == 1 && text.at[0] == '-';
}

bool when_parse_duration(struct text text, enum when_unit unit, uint64_t *ret_ns)
{
    *ret_ns = 0;
    return text.at && (is_none(text) || parse_fixed(text, unit_digits(unit), ret_ns)) &&
           *ret_ns < WEIR_CLOCK_MAX;
}

bool when_parse_amount(struct text text, uint64_t *ret)
{
    *ret = 0;
    if (!text.at || text.n == 0)
        return false;
    if (is_none(text))
        return true;
    for (size_t i = 0; i < text.n; i++)
        if (!is_digit(text.at[i]) || !add_digit(ret, (unsigned)(text.at[i] - '0')))
            return false;
    return true;
}
