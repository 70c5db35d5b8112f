/* SPDX-License-Identifier: MIT */
/* The screen of `weir top`: a list of all sets; of the selected one the limits, classes, holders
 * and waiters. */
#include "top_layout.h"
#include "limit_type.h"
#include "time_text.h"
#include "utf8.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

/* ---- writing within a width ---- */

/* Output position: the next line, and the column in it. */
struct pen {
    struct top_line *line, *end; /* behind the last line */
    unsigned column, columns;
    size_t size; /* bytes of the line */
};

static bool has_room(const struct pen *pen, unsigned lines)
{
    return (size_t)(pen->end - pen->line) >= lines;
}

static void put(struct pen *pen, const char *bytes, size_t n, unsigned width)
{
    if (pen->column + width > pen->columns || pen->size + n >= sizeof(pen->line->text)) {
        pen->column = pen->columns; /* nothing narrower may follow the cut */
        return;
    }
    memcpy(pen->line->text + pen->size, bytes, n);
    pen->size += n;
    pen->line->text[pen->size] = '\0';
    pen->column += width;
}

/* Writes a text. Characters that cannot be shown become question marks. */
static void put_text(struct pen *pen, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;

    while (*at != '\0' && pen->column < pen->columns) {
        size_t length = utf8_sequence(at);
        int width =
            length == 0 || utf8_is_control(at, length) ? -1 : wcwidth(utf8_decode(at, length));

        if (width < 0 || (length > 1 && MB_CUR_MAX == 1))
            put(pen, "?", 1, 1);
        else
            put(pen, (const char *)at, length, (unsigned)width);
        at += length != 0 ? length : 1;
    }
}

/* Writes a text, up to a column. */
static void put_within(struct pen *pen, const char *text, unsigned column)
{
    unsigned columns = pen->columns;

    if (pen->columns > column)
        pen->columns = column;
    put_text(pen, text);
    pen->columns = columns;
}

__attribute__((format(printf, 2, 3))) static void put_format(struct pen *pen, const char *format,
                                                             ...)
{
    char text[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    put_text(pen, text);
}

/* Writes blanks up to a column, at least one. */
static void put_blanks(struct pen *pen, unsigned column)
{
    do
        put(pen, " ", 1, 1);
    while (pen->column < column && pen->column < pen->columns);
}

static void end_line(struct pen *pen, enum top_style style)
{
    pen->line->style = style;
    pen->line++;
    pen->column = 0;
    pen->size = 0;
}

/* ---- numbers ---- */

/* Writes the growth of a counter per second, in so many columns; "-" if unknown. */
static void put_rate(struct pen *pen, int width, uint64_t now, const uint64_t *before, uint64_t ns)
{
    if (!before || *before > now || ns == 0)
        put_format(pen, "%*s", width, "-");
    else
        put_format(pen, "%*.1f", width, (double)(now - *before) * 1e9 / (double)ns);
}

/* Writes an amount in at most 6 columns: rounded down, with a unit, if it has more digits. */
static void put_amount(struct pen *pen, uint64_t amount)
{
    static const char units[] = " kMGTPE";
    uint64_t divisor = 1, tenths;
    size_t unit = 0;

    if (amount < 100000) {
        put_format(pen, "%" PRIu64, amount);
        return;
    }
    for (; amount / divisor >= 1000; unit++)
        divisor *= 1000;
    tenths = amount / (divisor / 10) % 10;
    if (tenths != 0)
        put_format(pen, "%" PRIu64 ".%" PRIu64 "%c", amount / divisor, tenths, units[unit]);
    else
        put_format(pen, "%" PRIu64 "%c", amount / divisor, units[unit]);
}

static uint64_t refused(const struct weir_set_stats *stats)
{
    return stats->refused_busy + stats->refused_max_wait + stats->refused_full +
           stats->refused_impossible + stats->refused_unknown + stats->refused_deadlock +
           stats->timed_out;
}

static uint64_t since(const struct snapshot *now, const struct snapshot *before)
{
    return before && now->at_ns > before->at_ns ? now->at_ns - before->at_ns : 0;
}

/* ---- the list of sets ---- */

/* Returns the column behind the names of sets: the numbers need 44 columns. */
static unsigned names_end(const struct pen *pen)
{
    return pen->columns < 70 ? 26 : pen->columns < 104 ? pen->columns - 44 : 60;
}

/* Writes the keys at the right end, in the longest form that there is room for. */
static void put_keys(struct pen *pen)
{
    static const char *const forms[] = {"j/k set  s sort  i idle  / match  p pause  q quit",
                                        "s sort  i idle  / match  p pause  q quit", "q quit"};

    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (pen->column + strlen(forms[i]) + 2 > pen->columns)
            continue;
        put_blanks(pen, pen->columns - (unsigned)strlen(forms[i]));
        put_text(pen, forms[i]);
        return;
    }
}

static void put_title(struct pen *pen, const struct snapshot *now, const struct top_view *view)
{
    char text[TIME_TEXT_MAX];

    put_text(pen, "weir top  ");
    if (view->is_typing) {
        put_format(pen, "match: %s_", view->match);
        end_line(pen, TOP_TITLE);
        return;
    }
    if (view->shown_n < now->sets_n)
        put_format(pen, "%zu of ", view->shown_n);
    put_format(pen, "%zu %s", now->sets_n, now->sets_n == 1 ? "set" : "sets");
    if (view->match)
        put_format(pen, " like `%s`", view->match);
    if (view->selection.order == SELECTION_BY_WAITING)
        put_text(pen, " by waiting");
    put_format(pen, "  every %ss%s", time_text_seconds(view->interval_ns, text),
               view->paused ? "  paused" : "");
    if (now->refused != 0)
        put_format(pen, "  %u refused", now->refused);
    put_keys(pen);
    end_line(pen, TOP_TITLE);
}

/* Writes the numbers of a set that an engine keeps: those that it counts. */
static void put_engine_set(struct pen *pen, const struct snapshot_set *set,
                           const struct snapshot_set *old, uint64_t ns)
{
    uint64_t before = old ? snapshot_granted(old) : 0;
    bool has_before = old && !old->is_unknown;

    if (set->is_unknown) {
        put_format(pen, "%5s  %s", "-", set->away != 0 ? snapshot_why_away(set) : "per subject");
        return;
    }
    put_format(pen, "%5s%6" PRIu64 "%6" PRIu64 "%8s", "-", set->stats.engine_held,
               set->stats.waiting, "-");
    put_rate(pen, 9, snapshot_granted(set), has_before ? &before : NULL, ns);
    put_format(pen, "%9s", "-");
}

/* Writes the numbers of a set of this machine, shared or published. */
static void put_local_set(struct pen *pen, const struct snapshot_set *set,
                          const struct snapshot_set *old, uint64_t ns)
{
    uint64_t refused_now = refused(&set->stats), refused_old = old ? refused(&old->stats) : 0;
    char text[TIME_TEXT_MAX];

    if (set->process != 0)
        put_format(pen, "%5s", "-");
    else
        put_format(pen, "%5" PRIu32, set->users);
    put_format(pen, "%6" PRIu64 "%6" PRIu64 "%8s", set->stats.held, set->stats.waiting,
               set->held_n < set->holders_n ? time_text_age(set->holders[set->held_n].age_ns, text)
                                            : "-");
    put_rate(pen, 9, set->stats.granted, old ? &old->stats.granted : NULL, ns);
    put_rate(pen, 9, refused_now, old ? &refused_old : NULL, ns);
}

static void put_set(struct pen *pen, const struct snapshot_set *set, const struct snapshot_set *old,
                    uint64_t ns, bool is_selected)
{
    char process[16];

    put_text(pen, is_selected ? "> " : "  ");
    put_within(pen, set->name, names_end(pen));
    if (set->process != 0)
        snprintf(process, sizeof(process), "pid %" PRIu32, set->process);
    if (set->engine || set->process != 0) {
        put_within(pen, " (", names_end(pen));
        put_within(pen, set->engine ? set->engine : process, names_end(pen));
        put_within(pen, ")", names_end(pen));
    }
    put_blanks(pen, names_end(pen) + 1);
    if (set->engine)
        put_engine_set(pen, set, old, ns);
    else
        put_local_set(pen, set, old, ns);
    end_line(pen, is_selected ? TOP_SELECTED : TOP_PLAIN);
}

/* Returns the same set in the snapshot before, or NULL. */
static const struct snapshot_set *find_before(const struct snapshot *before,
                                              const struct snapshot_set *set)
{
    struct snapshot_id id = snapshot_set_id(set);

    return before ? snapshot_find(before, &id) : NULL;
}

/* Writes at most `rows` lines, with the selected set among them, and then how many others there
 * are. */
static void put_sets(struct pen *pen, const struct snapshot *now, const struct snapshot *before,
                     const struct top_view *view, size_t rows)
{
    size_t n = view->shown_n < rows ? view->shown_n : rows;
    size_t first = view->selected < n ? 0 : view->selected - n + 1;

    for (size_t i = first; i < first + n && i < view->shown_n; i++) {
        const struct snapshot_set *set = &now->sets[i];

        put_set(pen, set, find_before(before, set), since(now, before), i == view->selected);
    }
    if (!has_room(pen, 1))
        return;
    if (n < view->shown_n)
        put_format(pen, "  and %zu more", view->shown_n - n);
    end_line(pen, TOP_PLAIN);
}

/* ---- the selected set ---- */

/* Writes "[#####-----]": full only if nothing is left, empty only if nothing is used. */
static void put_bar(struct pen *pen, uint64_t used, uint64_t capacity, unsigned width)
{
    unsigned filled = 0;

    if (used >= capacity)
        filled = width;
    else if (used != 0)
        filled = 1 + (unsigned)((double)used / (double)capacity * (double)(width - 1));
    if (used < capacity && filled == width)
        filled--;
    put(pen, "[", 1, 1);
    for (unsigned i = 0; i < width; i++)
        put(pen, i < filled ? "#" : "-", 1, 1);
    put(pen, "]", 1, 1);
}

static const char *setting_of(const struct snapshot_limit *limit, const char *name)
{
    for (size_t i = 0; i < limit->settings_n; i++)
        if (strcmp(limit->settings[i].name, name) == 0)
            return limit->settings[i].value;
    return NULL;
}

/* Writes what is used of what: "63/100 per 60s". */
static void put_use(struct pen *pen, const struct snapshot_limit *limit, uint64_t used,
                    bool is_known)
{
    const char *window = setting_of(limit, "window");

    if (is_known)
        put_amount(pen, used);
    else
        put_text(pen, "-");
    put_text(pen, "/");
    put_amount(pen, limit->stats.capacity);
    if (window) {
        put_text(pen, " per ");
        put_text(pen, window);
    }
}

#define WIDE_COLUMNS 110u /* from here on the other settings of a limit have room */

static void put_limit(struct pen *pen, const struct snapshot_limit *limit, bool is_known,
                      const uint64_t *before, uint64_t ns)
{
    const bool is_wide = pen->columns >= WIDE_COLUMNS;
    const uint64_t capacity = limit->stats.capacity;
    uint64_t left =
        is_known && limit->stats.available < capacity ? limit->stats.available : capacity;

    put_text(pen, "  ");
    put_within(pen, limit->key, 18);
    put_blanks(pen, 19);
    put_within(pen, limit->algorithm ? limit->algorithm : limit_type_name(limit->stats.type), 33);
    put_blanks(pen, 34);
    put_bar(pen, capacity - left, capacity, is_wide ? 30 : 10);
    put_text(pen, " ");
    put_use(pen, limit, capacity - left, is_known);
    put_blanks(pen, is_wide ? 88 : 69);
    put_rate(pen, 8, limit->stats.granted, before, ns);
    put_text(pen, "/s");
    for (size_t i = 0; i < limit->settings_n && is_wide; i++)
        if (strcmp(limit->settings[i].name, "capacity") != 0 &&
            strcmp(limit->settings[i].name, "window") != 0)
            put_format(pen, "  %s %s", limit->settings[i].name, limit->settings[i].value);
    if (limit->stats.would_refuse != 0 && is_wide)
        put_format(pen, "  would refuse %" PRIu64, limit->stats.would_refuse);
    end_line(pen, left == 0 ? TOP_EXHAUSTED : TOP_PLAIN);
}

/* `old` is the same class in the snapshot before, or NULL. */
static void put_class(struct pen *pen, const struct weir_class_stats *class,
                      const struct weir_class_stats *old, uint64_t ns)
{
    uint64_t refused_now = class->refused + class->timed_out;
    uint64_t refused_old = old ? old->refused + old->timed_out : 0;
    char text[TIME_TEXT_MAX];

    put_text(pen, "  ");
    put_within(pen, class->name, 25);
    put_blanks(pen, 26);
    if (class->weight != 0)
        put_format(pen, "%6" PRIu64, class->weight);
    else
        put_format(pen, "%6s", "-");
    put_format(pen, "%6" PRIu64 "%6" PRIu64, class->held, class->waiting);
    put_rate(pen, 9, class->granted, old ? &old->granted : NULL, ns);
    put_rate(pen, 9, refused_now, old ? &refused_old : NULL, ns);
    put_format(pen, "%8s",
               class->granted_waited != 0
                   ? time_text_age(class->wait_ns_sum / class->granted_waited, text)
                   : "-");
    end_line(pen, TOP_PLAIN);
}

/* Writes the classes of a set, in at most half of the room that is left. */
static void put_classes(struct pen *pen, const struct snapshot_set *set,
                        const struct snapshot_set *old, uint64_t ns)
{
    size_t room = (size_t)(pen->end - pen->line) / 2, n = set->classes_n;

    if (n == 0 || room < 2)
        return;
    put_text(pen, "  CLASS");
    put_blanks(pen, 26);
    put_text(pen, "WEIGHT  HELD  WAIT  GRANT/s REFUSE/s  WAITED");
    end_line(pen, TOP_HEADING);
    room--;
    if (n > room)
        n = room - 1;
    for (size_t i = 0; i < n; i++)
        put_class(pen, &set->classes[i],
                  old && old->classes_n == set->classes_n ? &old->classes[i] : NULL, ns);
    if (n == set->classes_n)
        return;
    put_format(pen, "  and %zu more", set->classes_n - n);
    end_line(pen, TOP_PLAIN);
}

/* Writes the amounts of a holder, "slots=1 calls=7". */
static void put_amounts(struct pen *pen, const struct snapshot_set *set,
                        const struct snapshot_holder *holder)
{
    bool is_first = true;

    for (size_t i = 0; i < set->limits_n; i++) {
        if (holder->amounts[i] == 0 || !snapshot_is_first_of_key(set, i))
            continue;
        put_text(pen, is_first ? "" : " ");
        put_text(pen, set->limits[i].key);
        put_text(pen, "=");
        put_amount(pen, holder->amounts[i]);
        is_first = false;
    }
}

#define HOLDER_COLUMNS 22u /* in front of the amounts */

/* Returns how many columns the amounts of all holders need, at most three eighths of the screen. */
static unsigned amounts_width(const struct pen *pen, const struct snapshot_set *set)
{
    static const char title[] = "AMOUNTS";
    unsigned most = pen->columns / 8 * 3, width = sizeof(title) - 1;

    for (size_t i = 0; i < set->holders_n && width < most; i++) {
        struct top_line line;
        struct pen measure = {.line = &line, .end = &line + 1, .columns = most};

        put_amounts(&measure, set, &set->holders[i]);
        if (measure.column > width)
            width = measure.column;
    }
    return width;
}

static void put_holder(struct pen *pen, const struct snapshot_set *set,
                       const struct snapshot_holder *holder, unsigned width)
{
    unsigned columns = pen->columns;
    char text[TIME_TEXT_MAX];

    if (holder->holder.waiting)
        put_format(pen, "%5" PRIu32, holder->holder.position);
    else
        put_format(pen, "%5s", "");
    put_format(pen, " %7" PRIu32 " %6s  ", holder->holder.process,
               time_text_age(holder->age_ns, text));
    if (columns > HOLDER_COLUMNS + width)
        pen->columns = HOLDER_COLUMNS + width;
    put_amounts(pen, set, holder);
    pen->columns = columns;
    put_blanks(pen, HOLDER_COLUMNS + width + 2);
    put_text(pen, holder->command_line);
    end_line(pen, TOP_PLAIN);
}

/* Writes a heading and `n` lines, or as many as fit and the number of the others. */
static void put_holders(struct pen *pen, const struct snapshot_set *set, const char *title,
                        size_t first, size_t n, size_t rows)
{
    const unsigned width = amounts_width(pen, set);
    size_t shown = n <= rows ? n : rows > 0 ? rows - 1 : 0;

    if (n == 0 || !has_room(pen, 1))
        return;
    put_format(pen, " %-4s %7s %6s  %-*s  %s", title, "PID", "SINCE", (int)width, "AMOUNTS",
               "COMMAND");
    end_line(pen, TOP_HEADING);
    for (size_t i = first; i < first + shown && has_room(pen, 1); i++)
        put_holder(pen, set, &set->holders[i], width);
    if (shown < n && has_room(pen, 1)) {
        put_format(pen, "        and %zu more", n - shown);
        end_line(pen, TOP_PLAIN);
    }
}

/* Writes holders and waiters. A list that needs less than half of the room leaves the rest to the
 * other one. */
static void put_holders_and_waiters(struct pen *pen, const struct snapshot_set *set)
{
    size_t room = (size_t)(pen->end - pen->line), held = set->held_n;
    size_t waiting = set->holders_n - held, half, held_rows;

    if (room < 3)
        return;
    room -= 2; /* the headings */
    half = room / 2;
    held_rows = waiting <= room - half ? room - waiting : half;
    put_holders(pen, set, "HOLD", 0, held, held_rows);
    put_holders(pen, set, "WAIT", held, waiting,
                held <= held_rows ? room - held : room - held_rows);
}

/* NULL: it is not known. */
static const uint64_t *granted_before(const struct snapshot_set *old, size_t i)
{
    return old && !old->engine && i < old->limits_n ? &old->limits[i].stats.granted : NULL;
}

static void put_details(struct pen *pen, const struct snapshot *now, const struct snapshot *before,
                        const struct snapshot_set *set)
{
    const struct snapshot_set *old = find_before(before, set);

    for (size_t i = 0; i < set->limits_n && has_room(pen, 1); i++)
        put_limit(pen, &set->limits[i], !set->is_unknown, granted_before(old, i),
                  since(now, before));
    put_classes(pen, set, old, since(now, before));
    put_holders_and_waiters(pen, set);
}

/* ---- whole screen ---- */

static void put_message(struct pen *pen, const char *message)
{
    if (!message || !has_room(pen, 1))
        return;
    put_text(pen, message);
    end_line(pen, TOP_HEADING);
}

/* Returns the rows of the list: five twelfths of the screen, at least one. */
static size_t list_rows(const struct top_view *view)
{
    size_t rows = view->rows > 6 ? view->rows * 5 / 12 : 1;

    return view->shown_n < rows ? view->shown_n : rows;
}

void top_layout(const struct snapshot *now, const struct snapshot *before,
                const struct top_view *view, struct top_line *lines)
{
    struct pen pen = {.line = lines, .end = lines + view->rows, .columns = view->columns};

    if (pen.columns > TOP_COLUMNS_MAX)
        pen.columns = TOP_COLUMNS_MAX;
    for (unsigned i = 0; i < view->rows; i++) {
        lines[i].style = TOP_PLAIN;
        lines[i].text[0] = '\0';
    }
    if (has_room(&pen, 1))
        put_title(&pen, now, view);
    put_message(&pen, view->message);
    if (view->shown_n == 0 || !has_room(&pen, 2))
        return;
    put_text(&pen, "  SET");
    put_blanks(&pen, names_end(&pen) + 1);
    put_text(&pen, "USERS  HELD  WAIT  OLDEST  GRANT/s REFUSE/s");
    end_line(&pen, TOP_HEADING);
    put_sets(&pen, now, before, view, list_rows(view));
    if (!has_room(&pen, 1) || view->selected >= view->shown_n)
        return;
    put_details(&pen, now, before, &now->sets[view->selected]);
}
