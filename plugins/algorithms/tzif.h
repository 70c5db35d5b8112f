/* SPDX-License-Identifier: MIT */
/*
 * Reads a TZif file (RFC 8536): the changes in its data, and those by the rule behind them, which
 * is a TZ string of POSIX, written out until 2262, where the nanoseconds of int64_t end. Nothing of
 * the file is trusted.
 *
 * The library has read it, as operations of algorithms read none. It is a table of changes in the
 * configuration then, so that decisions look an offset up and know no rules.
 */
#ifndef WEIR_PLUGINS_TZIF_H
#define WEIR_PLUGINS_TZIF_H

#include "zone.h"

#define ZONE_YEAR_LAST 2262
#define ZONE_HOUR_S    INT64_C(3600)

/* ---- changes ---- */

/* The changes of a file so far: of the last, and where they are stored, if anywhere. */
struct zone_changes {
    struct zone_change *items; /* NULL: they are only counted */
    uint64_t n;
    int64_t first_offset_s, last_offset_s, before_offset_s; /* before: of the one before the last */
    int64_t last_at_s;
};

/* Adds a change to those before it, or makes it the first offset. What changes nothing is left out.
 * Returns false if there is no room, or the offset cannot be. */
static inline bool zone_add(struct zone_changes *zone, int64_t at_s, int64_t offset_s)
{
    if (offset_s <= -ZONE_OFFSET_MAX_S || offset_s >= ZONE_OFFSET_MAX_S)
        return false;
    if (at_s <= 0) {
        zone->first_offset_s = zone->last_offset_s = offset_s;
        return true;
    }
    if (zone->n > 0 && zone->last_at_s >= at_s) { /* the later one counts */
        zone->n--;
        zone->last_offset_s = zone->before_offset_s;
    }
    if (offset_s == zone->last_offset_s)
        return true;
    if (zone->n == ZONE_CHANGES_MAX)
        return false;
    if (zone->items)
        zone->items[zone->n] = (struct zone_change){at_s, offset_s};
    zone->n++;
    zone->before_offset_s = zone->last_offset_s;
    zone->last_offset_s = offset_s;
    zone->last_at_s = at_s;
    return true;
}

/* ---- the data ---- */

struct zone_reader {
    const unsigned char *at, *end;
};

/* Takes so many bytes. Returns NULL if there are fewer. */
static inline const unsigned char *zone_take(struct zone_reader *reader, uint64_t size)
{
    const unsigned char *taken = reader->at;
    if (size > (uint64_t)(reader->end - reader->at))
        return NULL;
    reader->at += size;
    return taken;
}

static inline int64_t zone_number(const unsigned char *bytes, unsigned size)
{
    uint64_t value = bytes[0] >= 0x80 ? UINT64_MAX : 0;
    for (unsigned i = 0; i < size; i++)
        value = value << 8 | bytes[i];
    return (int64_t)value;
}

/* The numbers of entries in a block: by the header, in its order. */
struct zone_header {
    char version;
    uint64_t is_ut, is_std, leaps, times, types, chars;
};

static inline bool zone_read_header(struct zone_reader *reader, struct zone_header *ret)
{
    const unsigned char *bytes = zone_take(reader, 44);
    if (!bytes || zone_number(bytes, 4) != 0x545a6966)
        return false;
    uint64_t *counts[] = {&ret->is_ut, &ret->is_std, &ret->leaps,
                          &ret->times, &ret->types,  &ret->chars};
    ret->version = (char)bytes[4];
    for (unsigned i = 0; i < 6; i++)
        *counts[i] = (uint64_t)zone_number(bytes + 20 + 4 * i, 4) & UINT32_MAX;
    return true;
}

/* Reads the block with times of 64 bits. */
static inline bool zone_read_block(struct zone_reader *reader, const struct zone_header *header,
                                   struct zone_changes *ret)
{
    const unsigned char *times = zone_take(reader, header->times * 8);
    const unsigned char *indices = zone_take(reader, header->times);
    const unsigned char *types = zone_take(reader, header->types * 6);
    int64_t before = INT64_MIN;
    if (!times || !indices || !types || header->types == 0)
        return false;
    if (header->leaps != 0 || !zone_take(reader, header->chars + header->is_std + header->is_ut))
        return false;
    if (!zone_add(ret, 0, zone_number(types, 4)))
        return false;
    for (uint64_t i = 0; i < header->times; i++) {
        int64_t at_s = zone_number(times + 8 * i, 8);
        if (at_s <= before && i > 0)
            return false;
        before = at_s;
        if (indices[i] >= header->types ||
            !zone_add(ret, at_s, zone_number(types + 6 * indices[i], 4)))
            return false;
    }
    return true;
}

/* ---- the rule ---- */

/* A day of the year: `kind` is 'J' (1 to 365, without February 29), 'D' (0 to 365) or 'M'. */
struct zone_day {
    char kind;
    int64_t day, month, week; /* of 'M': the day of the week, from Sunday; week 5 is the last */
    int64_t time_s;           /* local, after midnight */
};

struct zone_rule {
    int64_t offset_s, summer_offset_s;
    bool has_summer;
    struct zone_day begin, end; /* of summer time */
};

/* The functions below move `*at` on, and return false where the text is not as it must be. */

static inline bool zone_parse_number(const char **at, int64_t most, int64_t *ret)
{
    int64_t value = 0;
    if (**at < '0' || **at > '9')
        return false;
    for (; **at >= '0' && **at <= '9' && value <= most; ++*at)
        value = 10 * value + (**at - '0');
    *ret = value;
    return value <= most;
}

/* Parses a time: hours, and perhaps minutes and seconds, with a sign. */
static inline bool zone_parse_time(const char **at, int64_t *ret_s)
{
    int64_t sign = **at == '-' ? -1 : 1, part, value, unit = ZONE_HOUR_S;
    *at += **at == '-' || **at == '+';
    if (!zone_parse_number(at, 167, &value))
        return false;
    value *= unit;
    for (int i = 0; i < 2 && **at == ':'; i++) {
        ++*at;
        unit /= 60;
        if (!zone_parse_number(at, 59, &part))
            return false;
        value += part * unit;
    }
    *ret_s = sign * value;
    return true;
}

static inline bool zone_parse_name(const char **at)
{
    bool is_quoted = **at == '<';
    const char *begin = *at;
    for (; **at != '\n' && **at != '>'; ++*at)
        if (!is_quoted && (**at < 'A' || **at > 'z'))
            break;
    *at += is_quoted && **at == '>';
    return *at - begin >= 3;
}

/* Parses an offset, which POSIX counts to the west. */
static inline bool zone_parse_offset(const char **at, int64_t *ret_s)
{
    if (!zone_parse_time(at, ret_s))
        return false;
    *ret_s = -*ret_s;
    return true;
}

/* Parses month, week and day of the week. */
static inline bool zone_parse_weekday(const char **at, struct zone_day *ret)
{
    if (!zone_parse_number(at, 12, &ret->month) || ret->month == 0 || *(*at)++ != '.')
        return false;
    if (!zone_parse_number(at, 5, &ret->week) || ret->week == 0 || *(*at)++ != '.')
        return false;
    return zone_parse_number(at, 6, &ret->day);
}

static inline bool zone_parse_day(const char **at, struct zone_day *ret)
{
    *ret = (struct zone_day){.kind = **at == 'M' || **at == 'J' ? **at : 'D',
                             .time_s = 2 * ZONE_HOUR_S};
    *at += ret->kind != 'D';
    if (ret->kind == 'M' ? !zone_parse_weekday(at, ret) : !zone_parse_number(at, 365, &ret->day))
        return false;
    if (**at != '/')
        return true;
    ++*at;
    return zone_parse_time(at, &ret->time_s);
}

/* Parses a TZ string up to a line feed. */
static inline bool zone_parse_rule(const char *at, struct zone_rule *ret)
{
    if (!zone_parse_name(&at) || !zone_parse_offset(&at, &ret->offset_s))
        return false;
    ret->has_summer = *at != '\n';
    if (!ret->has_summer)
        return true;
    ret->summer_offset_s = ret->offset_s + ZONE_HOUR_S;
    if (!zone_parse_name(&at) || (*at != ',' && !zone_parse_offset(&at, &ret->summer_offset_s)))
        return false;
    if (*at++ != ',' || !zone_parse_day(&at, &ret->begin))
        return false;
    return *at++ == ',' && zone_parse_day(&at, &ret->end) && *at == '\n';
}

static inline bool zone_is_leap_year(int64_t year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

/* Returns the days from 1970 to the beginning of a year after it. */
static inline int64_t zone_days_to_year(int64_t year)
{
    int64_t before = year - 1;
    return 365 * (year - 1970) + (before / 4 - before / 100 + before / 400) - 477;
}

/* Returns the day of `day` in a year, from 0. */
static inline int64_t zone_day_in_year(const struct zone_day *day, int64_t year)
{
    static const int64_t before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};
    int64_t leap = zone_is_leap_year(year);
    if (day->kind == 'D')
        return day->day;
    if (day->kind == 'J')
        return day->day - 1 + (leap && day->day >= 60);
    int64_t first = before[day->month - 1] + (leap && day->month > 2);
    int64_t end = before[day->month] + (leap && day->month >= 2);
    int64_t weekday = (zone_days_to_year(year) + first + 4) % 7; /* 1970-01-01 was a Thursday */
    int64_t found = first + (day->day - weekday + 7) % 7 + 7 * (day->week - 1);
    return found < end ? found : found - 7;
}

static inline int64_t zone_day_at(const struct zone_day *day, int64_t year, int64_t offset_s)
{
    return (zone_days_to_year(year) + zone_day_in_year(day, year)) * DAY_S + day->time_s - offset_s;
}

/* Adds what the rule says after `after_s`. The end of one summer may be the beginning of the next:
 * then there is no change. */
static inline bool zone_add_rule(struct zone_changes *zone, const struct zone_rule *rule,
                                 int64_t after_s)
{
    if (!rule->has_summer)
        return zone_add(zone, after_s, rule->offset_s);
    for (int64_t year = 1970; year <= ZONE_YEAR_LAST; year++) {
        struct zone_change two[] = {
            {zone_day_at(&rule->begin, year, rule->offset_s), rule->summer_offset_s},
            {zone_day_at(&rule->end, year, rule->summer_offset_s), rule->offset_s}};
        bool is_north = two[0].at_s < two[1].at_s;
        for (int i = 0; i < 2; i++) {
            const struct zone_change *change = &two[is_north ? i : 1 - i];
            if (change->at_s > after_s && !zone_add(zone, change->at_s, change->offset_s))
                return false;
        }
    }
    return true;
}

/* ---- a file ---- */

/* Reads the rule behind the data, in two lines. It may be empty. */
static inline bool zone_read_rule(struct zone_reader *reader, struct zone_changes *ret)
{
    int64_t after_s = ret->n > 0 ? ret->last_at_s : 0;
    struct zone_rule rule = {0};
    const unsigned char *end = reader->at + 1;
    if (reader->end - reader->at < 2 || reader->at[0] != '\n')
        return false;
    while (end < reader->end && *end != '\n')
        end++;
    if (end == reader->end)
        return false;
    if (reader->at[1] == '\n')
        return true;
    return zone_parse_rule((const char *)reader->at + 1, &rule) &&
           zone_add_rule(ret, &rule, after_s);
}

static inline int zone_parse_file(const void *bytes, size_t size, struct zone_changes *ret)
{
    struct zone_reader reader = {.at = bytes, .end = (const unsigned char *)bytes + size};
    struct zone_header header;
    if (!zone_read_header(&reader, &header) || header.version < '2')
        return -1;
    /* The block with times of 32 bits comes first. */
    if (!zone_take(&reader, header.times * 5 + header.types * 6 + header.chars + header.leaps * 8 +
                                header.is_std + header.is_ut))
        return -1;
    if (!zone_read_header(&reader, &header) || !zone_read_block(&reader, &header, ret) ||
        !zone_read_rule(&reader, ret))
        return -1;
    return 0;
}

#endif
