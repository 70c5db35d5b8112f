/* SPDX-License-Identifier: MIT */
/* The traffic of a simulation. */
#include "traffic.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_MAX 5 /* wrong lines that are reported one by one */

static const char *traffic_name(const struct traffic *traffic)
{
    return strcmp(traffic->options->path, "-") == 0 ? "<stdin>" : traffic->options->path;
}

/* Reports an error of the system. Returns -EIO. */
static int fail(const struct traffic *traffic, int r)
{
    fprintf(stderr, "%s: %s: %s\n", traffic->command, traffic_name(traffic), strerror(-r));
    return -EIO;
}

/* Counts a wrong line, and reports it if it is one of the first. Returns 0, or -EINVAL: the input
 * is wrong. */
static int wrong_line(struct traffic *traffic, const char *what, const char *which)
{
    traffic->wrong_n++;
    if (!traffic->is_quiet && (traffic->wrong_n <= SHOWN_MAX || traffic->options->strict))
        fprintf(stderr, "%s:%" PRIu64 ": %s%s\n", traffic_name(traffic), traffic->lines.number,
                what, which);
    return traffic->options->strict ? -EINVAL : 0;
}

/* Reads what tells the format: the first line. It stays to be read if it is no header. */
static int open_format(struct traffic *traffic)
{
    struct line_format *format = &traffic->format;
    const char *missing;
    struct text line = {"", 0};
    struct lines start;
    int r;

    format->kind = traffic->options->kind;
    r = lines_next(&traffic->lines, &line);
    if (r < 0)
        return fail(traffic, r);
    if (r == 0)
        return 0; /* there is nothing to be read */
    if (format->kind == LINE_UNKNOWN)
        format->kind = line_kind_guess(line);
    missing = line_format_open(format, &traffic->options->mapping.fields, line);
    if (missing) {
        fprintf(stderr, "%s: %s: there is no field `%s`\n", traffic->command, traffic_name(traffic),
                missing);
        return -EINVAL;
    }
    start = traffic->lines;
    if (!line_kind_has_header(format->kind)) {
        start.from = 0;
        start.number = 0;
        start.is_cut = start.has_rest = false;
    }
    traffic->lines = start;
    return 0;
}

int traffic_open(struct traffic *ret, const struct traffic_options *options, const char *command)
{
    int r;

    *ret = (struct traffic){.options = options, .command = command, .load = options->load};
    ret->lines.fd = -1;
    ret->random = random_start(options->seed, 0);
    if (options->load.n > 0) {
        load_start(&ret->load, options->seed);
        return 0;
    }
    r = lines_open(&ret->lines, options->path);
    if (r < 0)
        return fail(ret, r);
    r = reorder_open(&ret->reorder, options->reorder);
    r = r < 0 ? fail(ret, r) : open_format(ret);
    if (r < 0)
        traffic_close(ret);
    return r;
}

void traffic_stop(struct traffic *traffic)
{
    read_ahead_stop(&traffic->ahead);
}

void traffic_close(struct traffic *traffic)
{
    traffic_stop(traffic);
    lines_close(&traffic->lines);
    reorder_close(&traffic->reorder);
}

int traffic_rewind(struct traffic *traffic)
{
    int r;

    traffic_stop(traffic);
    if (traffic->events_n == 0)
        return 0; /* nothing was read */
    traffic->random = random_start(traffic->options->seed, 0);
    traffic->made_n = traffic->events_n = traffic->wrong_n = 0;
    traffic->is_quiet = true;
    if (traffic->load.n > 0) {
        load_start(&traffic->load, traffic->options->seed);
        return 0;
    }
    r = lines_rewind(&traffic->lines);
    if (r < 0)
        return fail(traffic, r);
    reorder_clear(&traffic->reorder);
    return open_format(traffic);
}

/* Reads a line into the window of events. Returns 1, 0 at the end, or a negative errno. */
static int read_line(struct traffic *traffic)
{
    struct text line, fields[MAPPING_FIELDS_MAX] = {{NULL, 0}};
    struct event *event = reorder_next(&traffic->reorder);
    const char *wrong;
    int r = lines_next(&traffic->lines, &line);

    if (r < 0)
        return fail(traffic, r);
    if (r == 0 || line.n == 0)
        return r;
    if (traffic->lines.is_cut)
        r = wrong_line(traffic, "the line is too long", "");
    else if (!line_format_read(&traffic->format, line, fields))
        r = wrong_line(traffic, "the line is malformed", "");
    else if ((wrong = mapping_event(&traffic->options->mapping, fields, &traffic->random, event)))
        r = wrong_line(traffic, "missing or wrong: ", wrong);
    else {
        event->number = traffic->lines.number;
        reorder_add(&traffic->reorder);
    }
    return r < 0 ? r : 1;
}

static int next_of_trace(struct traffic *traffic, const struct event **ret)
{
    int r = 1;

    while (r > 0 && !reorder_is_full(&traffic->reorder))
        r = read_line(traffic);
    if (r < 0)
        return r;
    *ret = reorder_take(&traffic->reorder);
    return *ret != NULL;
}

static int next_of_load(struct traffic *traffic, const struct event **ret)
{
    struct event *event = &traffic->event;

    if (!load_next(&traffic->load, &event->at_ns))
        return 0;
    mapping_generated(&traffic->options->mapping, &traffic->random, event);
    event->number = ++traffic->made_n;
    *ret = event;
    return 1;
}

static int make_event(void *of, const struct event **ret)
{
    struct traffic *traffic = of;

    return traffic->load.n > 0 ? next_of_load(traffic, ret) : next_of_trace(traffic, ret);
}

static int progress_of_source(const void *of)
{
    const struct traffic *traffic = of;
    uint64_t done = traffic->lines.read_n - (traffic->lines.to - traffic->lines.from);
    uint64_t all = traffic->lines.size;

    if (traffic->load.n > 0) {
        done = traffic->event.at_ns > LOAD_START_NS ? traffic->event.at_ns - LOAD_START_NS : 0;
        all = traffic->load.duration_ns;
    }
    if (all == 0)
        return -1;
    all = all / 1000 + 1;
    return done / all < 1000 ? (int)(done / all) : 1000;
}

int traffic_next(struct traffic *traffic, const struct event **ret)
{
    const struct event_source source = {traffic, make_event, progress_of_source};
    int r = 0;

    if (!traffic->ahead.is_running)
        r = read_ahead_start(&traffic->ahead, &source);
    if (r < 0) {
        fprintf(stderr, "%s: a thread cannot be started: %s\n", traffic->command, strerror(-r));
        return -EIO;
    }
    r = read_ahead_next(&traffic->ahead, ret);
    if (r > 0 && traffic->events_n++ == 0)
        traffic->first_ns = (*ret)->at_ns;
    return r;
}

int traffic_progress(const struct traffic *traffic)
{
    return read_ahead_progress(&traffic->ahead);
}
