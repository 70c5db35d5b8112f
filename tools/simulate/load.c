/* SPDX-License-Identifier: MIT */
/* Generated load. */
#include "load.h"
#include "base/units.h"
#include <stdio.h>
#include <string.h>

#define AMOUNT_MAX   UINT64_C(1000000000)
#define DURATION_MAX (UINT64_C(3660) * 86400 * 1000000000)
#define HOUR_NS      (UINT64_C(3600) * 1000000000)
#define STEP_NS      (UINT64_C(60) * 1000000000) /* in which the rate of a day is constant */

__extension__ typedef unsigned __int128 load_u128;

/* The rate at each full hour of a day, thousandths of the peak: a night's rest, a morning's rise,
 * and an evening. In between it is interpolated. */
static const unsigned short day_curve[25] = {420, 310, 230,  180, 150, 160, 220, 340, 520,
                                             700, 820, 880,  900, 890, 870, 880, 890, 900,
                                             930, 970, 1000, 980, 830, 600, 420};

/* ---- the options ---- */

static bool complain(struct option_complaint *ret_wrong, const char *what)
{
    snprintf(ret_wrong->text, sizeof(ret_wrong->text), "%s", what);
    return false;
}

static bool parse_kind(const char *text, enum load_kind *ret)
{
    static const char *const names[] = {"even", "poisson", "day", "burst"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i], text) == 0) {
            *ret = (enum load_kind)i;
            return true;
        }
    }
    return false;
}

/* Parses a duration, or a unit of time alone. */
static bool parse_window(const char *text, uint64_t *ret)
{
    char one[UNITS_TEXT_MAX];

    if (*text >= '0' && *text <= '9')
        return units_parse(UNITS_DURATION, text, ret) == 0;
    snprintf(one, sizeof(one), "1%s", text);
    return units_parse(UNITS_DURATION, one, ret) == 0;
}

bool load_add(struct load *load, char *text, struct option_complaint *ret_wrong)
{
    char *rate = strchr(text, ':'), *duration = rate ? strchr(rate + 1, ':') : NULL;
    char *window = rate ? strchr(rate + 1, '/') : NULL;
    struct load_stream stream = {0};

    if (!duration || !window || window > duration)
        return complain(ret_wrong, "a load is written KIND:N/WINDOW:DURATION");
    if (load->n == LOAD_STREAMS_MAX)
        return complain(ret_wrong, "too many loads");
    *rate++ = *window++ = *duration++ = '\0';
    if (!parse_kind(text, &stream.kind))
        return complain(ret_wrong, "KIND is even, poisson, day or burst");
    if (units_parse(UNITS_AMOUNT, rate, &stream.amount) != 0 || stream.amount == 0 ||
        stream.amount > AMOUNT_MAX)
        return complain(ret_wrong, "N is a whole number from 1 to 1G");
    if (!parse_window(window, &stream.window_ns) || stream.window_ns == 0 ||
        stream.window_ns > DURATION_MAX)
        return complain(ret_wrong, "WINDOW is a duration like 500ms or 1h, or a unit like s");
    if (units_parse(UNITS_DURATION, duration, &stream.duration_ns) != 0 ||
        stream.duration_ns > DURATION_MAX)
        return complain(ret_wrong, "DURATION is a duration like 60s, at most 3660d");
    if (stream.duration_ns > load->duration_ns)
        load->duration_ns = stream.duration_ns;
    load->streams[load->n++] = stream;
    return true;
}

/* ---- the streams ---- */

/* Returns the rate of a day at a time, thousandths of the peak. */
static uint64_t day_factor(uint64_t at_ns)
{
    uint64_t of_day = at_ns % (24 * HOUR_NS);
    size_t hour = (size_t)(of_day / HOUR_NS);
    uint64_t part = of_day % HOUR_NS / STEP_NS, steps = HOUR_NS / STEP_NS;

    return (day_curve[hour] * (steps - part) + day_curve[hour + 1] * part) / steps;
}

/* Moves a stream on by so many expected arrivals, in units of 2^-32, at a rate that changes with
 * the hours. */
static void move_by_day(struct load_stream *stream, uint64_t arrivals)
{
    load_u128 left = (load_u128)arrivals * 1000 * stream->window_ns;

    while (stream->next_ns < stream->duration_ns) {
        uint64_t rest_ns = STEP_NS - stream->next_ns % STEP_NS;
        load_u128 rate = (load_u128)day_factor(stream->next_ns) * stream->amount << 32;

        if (left < rate * rest_ns) {
            stream->next_ns += (uint64_t)(left / rate);
            return;
        }
        left -= rate * rest_ns;
        stream->next_ns += rest_ns;
    }
}

static void move_on(struct load_stream *stream)
{
    load_u128 window = stream->window_ns;

    switch (stream->kind) {
    case LOAD_EVEN:
        stream->next_ns = (uint64_t)(window * stream->done_n / stream->amount);
        break;
    case LOAD_POISSON:
        stream->next_ns += (uint64_t)(window * random_exponential(&stream->random) /
                                      ((load_u128)stream->amount << 32));
        break;
    case LOAD_DAY:
        move_by_day(stream, random_exponential(&stream->random));
        break;
    case LOAD_BURST:
        stream->next_ns = stream->done_n / stream->amount * stream->window_ns;
        break;
    }
}

void load_start(struct load *load, uint64_t seed)
{
    for (unsigned i = 0; i < load->n; i++) {
        struct load_stream *stream = &load->streams[i];

        stream->random = random_start(seed, i + 1);
        stream->done_n = stream->next_ns = 0;
        if (stream->kind == LOAD_POISSON || stream->kind == LOAD_DAY)
            move_on(stream);
    }
}

bool load_next(struct load *load, uint64_t *ret_ns)
{
    struct load_stream *first = NULL;

    for (unsigned i = 0; i < load->n; i++) {
        struct load_stream *stream = &load->streams[i];

        if (stream->next_ns < stream->duration_ns && (!first || stream->next_ns < first->next_ns))
            first = stream;
    }
    if (!first)
        return false;
    *ret_ns = LOAD_START_NS + first->next_ns;
    first->done_n++;
    move_on(first);
    return true;
}
