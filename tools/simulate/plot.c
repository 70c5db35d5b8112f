/* SPDX-License-Identifier: MIT */
/* The plot of a simulation. */
#include "plot.h"
#include "figures.h"
#include "report.h"
#include "svg.h"
#include <inttypes.h>
#include <string.h>

/* Tenths of a pixel. */
#define SPAN        7000 /* of the time axis */
#define SPAN_TWO    5600 /* with two columns */
#define LEFT        720
#define RIGHT       240
#define TOP         620
#define PANEL       1500 /* height of a panel's axes */
#define PANEL_GAP   900
#define LEGEND_LINE 180
#define LETTER      70 /* mean width of a small letter */

#define LIMITS_MAX 10 /* limits with a line */
#define USED_CUT   1500
#define NS_PER_S   UINT64_C(1000000000)
#define LONGEST    "#9aa5b1"
#define GRANTED    "#52b788"
#define REFUSED    "#c8443c"

static const char *const palette[LIMITS_MAX] = {"#2b6cb0", "#c05621", "#2f855a", "#b83280",
                                                "#805ad5", "#b7791f", "#0987a0", "#718096",
                                                "#9b2c2c", "#1a365d"};

/* One panel of a column. */
struct panel {
    FILE *out;
    const struct tally *tally;
    int left, top, span;
    uint64_t high, low; /* of the vertical axis; `low` is not 0 if it is logarithmic */
    uint64_t length_ns; /* of the time axis */
};

/* ---- axes ---- */

static int x_of(const struct panel *panel, uint64_t ns)
{
    if (ns > panel->length_ns)
        ns = panel->length_ns;
    /* in 2^20ths of the length: the product fits */
    return panel->left + (int)((ns / ((panel->length_ns >> 20) + 1)) * (uint64_t)panel->span /
                               (panel->length_ns / ((panel->length_ns >> 20) + 1) + 1));
}

/* Returns the binary logarithm in 1024ths; between powers of two it is a straight line. */
static uint64_t log_of(uint64_t value)
{
    unsigned power = value > 0 ? 63 - (unsigned)__builtin_clzll(value) : 0;
    uint64_t rest = value - (UINT64_C(1) << power);

    if (value == 0)
        return 0;
    return power * 1024u + (power > 10 ? rest >> (power - 10) : rest << (10 - power));
}

static int y_of(const struct panel *panel, uint64_t value)
{
    uint64_t at = value, low = 0, high = panel->high;

    if (panel->low > 0) {
        low = log_of(panel->low);
        high = log_of(panel->high);
        at = value > panel->low ? log_of(value) : low;
    }
    if (at > high)
        at = high;
    while (high > UINT32_MAX) {
        high >>= 1;
        at >>= 1;
        low >>= 1;
    }
    return panel->top + PANEL - (int)((at - low) * PANEL / (high > low ? high - low : 1));
}

/* Returns 1, 2 or 5 times a power of ten, no less than `step`. */
static uint64_t nice_step(uint64_t step)
{
    static const unsigned digits[] = {1, 2, 5};

    for (uint64_t power = 1; power < UINT64_MAX / 50; power *= 10)
        for (size_t i = 0; i < 3; i++)
            if (power * digits[i] >= step)
                return power * digits[i];
    return step;
}

/* Returns a round time, no less than `step`. */
static uint64_t nice_time(uint64_t step)
{
    static const uint64_t seconds[] = {1,     2,     5,     10,    15,     30,     60,
                                       120,   300,   600,   900,   1800,   3600,   7200,
                                       10800, 21600, 43200, 86400, 172800, 432000, 864000};

    if (step <= NS_PER_S / 2)
        return nice_step(step);
    for (size_t i = 0; i < sizeof(seconds) / sizeof(seconds[0]); i++)
        if (seconds[i] * NS_PER_S >= step)
            return seconds[i] * NS_PER_S;
    return nice_step(step / (86400 * NS_PER_S) + 1) * 86400 * NS_PER_S;
}

/* Draws the time axis. */
static void draw_times(const struct panel *panel)
{
    uint64_t step = nice_time(panel->length_ns / 7 + 1);

    for (uint64_t at = 0; at <= panel->length_ns; at += step) {
        int x = x_of(panel, at);
        char text[FIGURE_MAX];

        svg_line(panel->out, x, panel->top, x, panel->top + PANEL, SVG_FAINT);
        svg_text(panel->out, x, panel->top + PANEL + 150, "small", SVG_MIDDLE,
                 figure_duration(at, text));
    }
}

static void draw_mark(const struct panel *panel, uint64_t value, const char *words)
{
    int y = y_of(panel, value);

    svg_line(panel->out, panel->left, y, panel->left + panel->span, y, SVG_FAINT);
    svg_text(panel->out, panel->left - 60, y + 40, "small", SVG_END, words);
}

/* Draws a heading, and words with their colors at the right of it or below. */
struct legend {
    const char *words, *color;
};

static void draw_heading(const struct panel *panel, const char *heading,
                         const struct legend *legend, size_t n)
{
    int x = panel->left + panel->span, width = 0, y = panel->top - 120;
    int heading_width = (int)strlen(heading) * 85;

    for (size_t i = 0; i < n; i++)
        width += 230 + (int)strlen(legend[i].words) * LETTER;
    svg_text(panel->out, panel->left, y, "panel", SVG_START, heading);
    x = width < panel->span - heading_width ? x - width : panel->left + heading_width;
    for (size_t i = 0; i < n; i++) {
        int letters = (int)strlen(legend[i].words) * LETTER;

        if (x + 230 + letters > panel->left + panel->span + RIGHT)
            break; /* no room: the lines have their colors even so */
        svg_box(panel->out, x + 60, y - 80, 100, 80, legend[i].color);
        svg_text(panel->out, x + 190, y, "small", SVG_START, legend[i].words);
        x += 230 + letters;
    }
}

/* ---- lines ---- */

/* What a line shows of an interval. */
typedef uint64_t (*plot_value)(const struct tally *tally, unsigned interval, uint32_t limit);

/* Returns the length of an interval, which the last one may have in part. */
static uint64_t interval_length(const struct tally *tally, unsigned interval)
{
    uint64_t from = (uint64_t)interval << tally->timeline.bits;
    uint64_t whole = UINT64_C(1) << tally->timeline.bits, left = tally_length(tally) - from;

    return tally_length(tally) > from && left < whole ? left : whole;
}

/* Returns a count of an interval per second, in thousandths. */
static uint64_t per_second(const struct tally *tally, unsigned interval, uint64_t n)
{
    __extension__ typedef unsigned __int128 plot_u128;
    plot_u128 rate = (plot_u128)n * 1000 * NS_PER_S / (interval_length(tally, interval) + 1);

    return rate < UINT64_MAX ? (uint64_t)rate : UINT64_MAX;
}

static uint64_t value_arrived(const struct tally *tally, unsigned interval, uint32_t limit)
{
    (void)limit;
    return per_second(tally, interval, tally->timeline.intervals[interval].arrivals);
}

static uint64_t value_decided(const struct tally *tally, unsigned interval, uint32_t limit)
{
    const struct interval *in = &tally->timeline.intervals[interval];

    (void)limit;
    return per_second(tally, interval, in->granted + in->refused);
}

static uint64_t value_granted(const struct tally *tally, unsigned interval, uint32_t limit)
{
    (void)limit;
    return per_second(tally, interval, tally->timeline.intervals[interval].granted);
}

static uint64_t value_p50(const struct tally *tally, unsigned interval, uint32_t limit)
{
    (void)limit;
    return interval_wait(&tally->timeline.intervals[interval], 500000);
}

static uint64_t value_p99(const struct tally *tally, unsigned interval, uint32_t limit)
{
    (void)limit;
    return interval_wait(&tally->timeline.intervals[interval], 990000);
}

static uint64_t value_max(const struct tally *tally, unsigned interval, uint32_t limit)
{
    (void)limit;
    return tally->timeline.intervals[interval].wait_max_ns;
}

static uint64_t value_used(const struct tally *tally, unsigned interval, uint32_t limit)
{
    int64_t used = tally_used(tally, limit, timeline_limit(&tally->timeline, interval, limit),
                              interval_length(tally, interval));

    return used > 0 ? (uint64_t)used : 0;
}

/* Draws a line of steps, one for each interval; or the area below it. */
static void draw_steps(const struct panel *panel, plot_value value, uint32_t limit,
                       const char *color, bool is_area)
{
    const struct timeline *timeline = &panel->tally->timeline;
    int x = panel->left;

    if (timeline->n == 0)
        return;
    svg_path_begin(panel->out);
    for (unsigned i = 0; i < timeline->n; i++) {
        int y = y_of(panel, value(panel->tally, i, limit));

        svg_path_point(panel->out, x, y, i == 0);
        x = x_of(panel, (uint64_t)(i + 1) << timeline->bits);
        svg_path_point(panel->out, x, y, 0);
    }
    if (is_area)
        svg_area_end(panel->out, panel->left, x, panel->top + PANEL, color);
    else
        svg_path_end(panel->out, color, 12);
}

/* ---- panels ---- */

static uint64_t most_of(const struct simulation *simulation, plot_value value)
{
    uint64_t most = 0;

    for (unsigned i = 0; i < simulation->n; i++) {
        const struct tally *tally = &simulation->engines[i].tally;

        for (unsigned k = 0; k < tally->timeline.n; k++)
            if (value(tally, k, 0) > most)
                most = value(tally, k, 0);
    }
    return most;
}

static void draw_traffic(struct panel *panel, const struct simulation *simulation)
{
    static const struct legend legend[] = {
        {"arrived", SVG_INK}, {"granted", GRANTED}, {"refused", REFUSED}};
    uint64_t most = most_of(simulation, value_arrived), step;
    uint64_t decided = most_of(simulation, value_decided);

    step = nice_step((most > decided ? most : decided) / 4 + 1);
    panel->low = 0;
    panel->high = ((most > decided ? most : decided) / step + 1) * step;
    draw_heading(panel, "requests per second", legend, 3);
    draw_times(panel);
    draw_steps(panel, value_decided, 0, REFUSED, true);
    draw_steps(panel, value_granted, 0, GRANTED, true);
    draw_steps(panel, value_arrived, 0, SVG_INK, false);
    for (uint64_t at = 0; at <= panel->high; at += step) {
        char text[FIGURE_MAX];

        snprintf(text, sizeof(text), at % 1000 ? "%" PRIu64 ".%03" PRIu64 : "%" PRIu64, at / 1000,
                 at % 1000);
        draw_mark(panel, at, text);
    }
}

static void draw_waits(struct panel *panel, const struct simulation *simulation)
{
    static const struct legend legend[] = {
        {"maximum", LONGEST}, {"99th percentile", "#c05621"}, {"median", "#2b6cb0"}};
    uint64_t most = most_of(simulation, value_max);
    char text[FIGURE_MAX];

    draw_heading(panel, "waits of those granted", legend, 3);
    panel->low = 100000;
    panel->high = 1000000;
    while (panel->high < most && panel->high < UINT64_MAX / 10)
        panel->high *= 10;
    if (panel->high / panel->low > 100000)
        panel->low = panel->high / 100000;
    draw_times(panel);
    for (uint64_t at = panel->low; at <= panel->high; at *= 10)
        draw_mark(panel, at, at == panel->low ? "less" : figure_duration(at, text));
    draw_steps(panel, value_max, 0, LONGEST, false);
    draw_steps(panel, value_p99, 0, "#c05621", false);
    draw_steps(panel, value_p50, 0, "#2b6cb0", false);
}

static void draw_limits(struct panel *panel)
{
    const struct candidate *candidate = panel->tally->candidate;
    uint32_t n = candidate->limits_n < LIMITS_MAX ? candidate->limits_n : LIMITS_MAX;
    char names[LIMITS_MAX][LIMIT_NAME_MAX];
    struct legend legend[LIMITS_MAX];

    for (uint32_t i = 0; i < n; i++) {
        figure_limit(candidate, i, names[i], sizeof(names[i]));
        legend[i] = (struct legend){names[i], palette[i]};
    }
    panel->low = 0;
    panel->high = USED_CUT;
    draw_heading(panel, "use of limits", legend, n);
    draw_times(panel);
    for (uint64_t at = 0; at <= USED_CUT; at += 250) {
        char text[FIGURE_MAX];

        snprintf(text, sizeof(text), "%" PRIu64 "%%", at / 10);
        if (at % 500 == 0)
            draw_mark(panel, at, text);
    }
    svg_line(panel->out, panel->left, y_of(panel, 1000), panel->left + panel->span,
             y_of(panel, 1000), SVG_GRAY);
    for (uint32_t i = 0; i < n; i++)
        draw_steps(panel, value_used, i, palette[i], false);
}

static void draw_column(FILE *out, const struct simulation *simulation, unsigned index, int left,
                        int span)
{
    const struct candidate *candidate = &simulation->candidates[index];
    struct panel panel = {.out = out,
                          .tally = &simulation->engines[index].tally,
                          .left = left + LEFT,
                          .top = TOP + 250,
                          .span = span};
    char words[256];

    for (unsigned i = 0; i < simulation->n; i++)
        if (tally_length(&simulation->engines[i].tally) > panel.length_ns)
            panel.length_ns = tally_length(&simulation->engines[i].tally);
    snprintf(words, sizeof(words), "%s%.180s: %.60s",
             simulation->n > 1 ? (index == 0 ? "A  " : "B  ") : "", candidate->name,
             candidate->target);
    svg_text(out, panel.left, 260, "title", SVG_START, words);
    draw_traffic(&panel, simulation);
    panel.top += PANEL + PANEL_GAP / 2 + 100;
    draw_waits(&panel, simulation);
    panel.top += PANEL + PANEL_GAP / 2 + 100;
    draw_limits(&panel);
}

static void describe(FILE *out, const struct simulation *simulation)
{
    const struct tally *tally = &simulation->engines[0].tally;
    char words[256], length[FIGURE_MAX];
    const struct traffic *traffic = simulation->traffic;

    snprintf(words, sizeof(words), "%.150s: %" PRIu64 " events in %s, in intervals of ",
             traffic->load.n > 0 ? "generated load" : traffic->options->path, tally->events,
             figure_duration(tally_length(tally), length));
    figure_duration(UINT64_C(1) << tally->timeline.bits, length);
    snprintf(words + strlen(words), sizeof(words) - strlen(words), "%s", length);
    svg_text(out, LEFT, 450, "small", SVG_START, words);
}

void plot_write(FILE *out, const struct simulation *simulation)
{
    int span = simulation->n > 1 ? SPAN_TWO : SPAN, column = LEFT + span + RIGHT;

    svg_begin(out, column * (int)simulation->n,
              TOP + 250 + 3 * PANEL + 2 * (PANEL_GAP / 2 + 100) + 300);
    describe(out, simulation);
    for (unsigned i = 0; i < simulation->n; i++)
        draw_column(out, simulation, i, (int)i * column, span);
    svg_end(out);
}
