/* SPDX-License-Identifier: MIT */
/* `weir stat`: shows shared sets, and those that engines keep or processes publish, as text, as
 * JSON, or as metrics. */
#include "limit_type.h"
#include "metrics.h"
#include "selection.h"
#include "snapshot.h"
#include "snapshot_json.h"
#include "time_text.h"
#include "usage.h"
#include "utf8.h"
#include "weir.h"
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const char help[] =
    "Usage: weir stat [OPTION]... [-f FILE] [--process-dir DIR] [NAME]...\n"
    "\n"
    "Shows the state of shared sets, of those that programs publish, and of those of the "
    "configuration\n"
    "that engines keep, or of those named: limits, holders, waiters and counters.\n"
    "\n"
    "  -j, --json              write JSON\n"
    "  -o, --openmetrics       write OpenMetrics\n"
    "  -p, --prometheus        write the older text format of Prometheus\n"
    "  -s, --sort ORDER        sort sets by name (default) or waiting: the most waiters first\n"
    "  -m, --match TEXT        only sets with TEXT in their names\n"
    "  -n, --no-idle           leave out sets of which nothing is held, waited for or used up\n"
    "  -f, --file FILE         a configuration that says where shared sets and plugins are, and "
    "which\n"
    "                          sets engines keep; default: the file that WEIR_CONFIG names\n"
    "      --process-dir DIR   where shared sets are\n"
    "  -d, --plugin-dir DIR    look for plugins in DIR first\n"
    "  -h, --help              show this text\n"
    "\n"
    "Exit status: 0 fine, 1 a set could not be inspected, 2 wrong usage, 3 the directory cannot "
    "be\n"
    "read, or the output not be written.\n";

/* ---- text output ---- */

#define KEY_COLUMNS 16
#define COLUMNS     80 /* lines are broken before, but for a word that is longer */

/* Column in which the next word of the line begins. */
static int column;

static void end_line(void)
{
    putchar('\n');
    column = 0;
}

/* Returns the columns of the first `size` bytes of a text. */
static int stat_columns(const char *text, size_t size)
{
    int columns = 0;

    for (size_t at = 0, length; at < size; at += length) {
        const unsigned char *sequence = (const unsigned char *)text + at;

        length = utf8_sequence(sequence);
        columns += length != 0 ? utf8_columns(sequence, length) : 1;
        length += length == 0;
    }
    return columns;
}

/* Writes a few words that stay together, two blanks behind what is on the line. */
__attribute__((format(printf, 1, 2))) static void print_words(const char *format, ...)
{
    char text[640];
    va_list arguments;
    int n;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    n = stat_columns(text, strlen(text));
    if (column > 4 && column + 2 + n > COLUMNS) {
        end_line();
        column = printf("  ");
    }
    printf("%s%s", column > 0 ? "  " : "", text);
    column += n + (column > 0 ? 2 : 0);
}

/* Prints which process has the set. */
static void print_publisher(const struct snapshot_set *set)
{
    print_words("backend thread");
    print_words("pid %" PRIu32, set->process);
    if (set->instance != 1)
        print_words("instance %" PRIu32, set->instance);
}

static void print_definition(const struct snapshot_set *set)
{
    print_words("set %s", set->name);
    if (set->engine) {
        print_words("backend %s", set->engine);
    } else if (set->process != 0) {
        print_publisher(set);
    } else {
        print_words("lifetime %s", set->lifetime);
        print_words("users %" PRIu32, set->users);
    }
    if (set->info.max_waiters != 0)
        print_words("max_waiters %u", set->info.max_waiters);
    if (set->info.flags & WEIR_SET_UNFAIR)
        print_words("unfair");
    if (set->info.flags & WEIR_SET_FAIR_PER_LIMIT)
        print_words("fair per limit");
    if (set->info.flags & WEIR_SET_BOOTTIME)
        print_words("clock boottime");
    end_line();
}

/* Begins a line of a set. */
static void begin_line(const char *word)
{
    column = printf("  %s", word);
}

static void print_subjects(const struct weir_subjects_stats *subjects)
{
    begin_line("subjects");
    print_words("known %" PRIu64, subjects->known);
    print_words("live %" PRIu64, subjects->live);
    print_words("room %" PRIu64, subjects->room);
    print_words("memory %" PRIu64, subjects->memory);
    print_words("forgotten %" PRIu64, subjects->forgotten);
    print_words("evicted %" PRIu64, subjects->evicted);
    print_words("refused %" PRIu64, subjects->refused);
    end_line();
}

static void print_counter(const char *name, uint64_t n)
{
    if (n != 0)
        print_words("%s %" PRIu64, name, n);
}

/* What a limit says of itself. */
static void print_gauges(const struct snapshot_limit *limit)
{
    char text[TIME_TEXT_MAX];

    for (size_t i = 0; i < limit->gauges_n; i++) {
        const struct weir_limit_gauge *gauge = &limit->gauges[i];

        if (gauge->type == WEIR_PARAMETER_DURATION)
            print_words("%s %s", gauge->name, time_text_age(gauge->value, text));
        else
            print_words("%s %" PRIu64, gauge->name, gauge->value);
    }
}

static void print_limit(const struct snapshot_set *set, const struct snapshot_limit *limit)
{
    int columns = stat_columns(limit->key, strlen(limit->key));

    printf("  %-8s  %s%*s", limit_type_name(limit->stats.type), limit->key,
           columns < KEY_COLUMNS ? KEY_COLUMNS - columns : 0, "");
    column = 12 + (columns < KEY_COLUMNS ? KEY_COLUMNS : columns);
    if (limit->algorithm)
        print_words("%s", limit->algorithm);
    for (size_t i = 0; i < limit->settings_n; i++)
        print_words("%s %s", limit->settings[i].name, limit->settings[i].value);
    if (!set->is_unknown && !limit->algorithm)
        print_words("held %" PRIu64, limit->stats.held);
    if (!set->is_unknown)
        print_words("available %" PRIu64, limit->stats.available);
    print_counter("would refuse", limit->stats.would_refuse);
    print_gauges(limit);
    end_line();
}

/* Prints how long acquisitions were held, if that was counted. */
static void print_holds(const struct weir_set_stats *stats)
{
    char mean[TIME_TEXT_MAX], most[TIME_TEXT_MAX];
    uint64_t n = 0;

    for (size_t i = 0; i < WEIR_WAIT_BUCKETS; i++)
        n += stats->hold_histogram[i];
    if (n != 0)
        print_words("releases counted %" PRIu64 " (held %s on average, %s at most)", n,
                    time_text_age(stats->hold_ns_sum / n, mean),
                    time_text_age(stats->hold_ns_max, most));
}

static void print_counters(const struct weir_set_stats *stats)
{
    char mean[TIME_TEXT_MAX], most[TIME_TEXT_MAX];

    begin_line("granted");
    column += printf(" %" PRIu64, stats->granted);
    if (stats->granted_waited != 0)
        print_words("after waiting %" PRIu64 " (%s on average, %s at most)", stats->granted_waited,
                    time_text_age(stats->wait_ns_sum / stats->granted_waited, mean),
                    time_text_age(stats->wait_ns_max, most));
    print_holds(stats);
    print_counter("busy", stats->refused_busy);
    print_counter("beyond max_wait", stats->refused_max_wait);
    print_counter("queue full", stats->refused_full);
    print_counter("impossible", stats->refused_impossible);
    print_counter("deadlock", stats->refused_deadlock);
    print_counter("unknown", stats->refused_unknown);
    print_counter("timed out", stats->timed_out);
    print_counter("canceled", stats->canceled);
    print_counter("refunded", stats->refunded);
    print_counter("overused", stats->overused);
    print_counter("missing update", stats->missing_update);
    print_counter("overheld", stats->overheld);
    print_counter("revoked", stats->revoked);
    end_line();
}

/* Prints what an engine says, or why it says nothing. */
static void print_engine(const struct snapshot_set *set)
{
    if (set->away != 0) {
        begin_line("away:");
        column += printf(" %s", snapshot_why_away(set));
    } else if (set->is_unknown) {
        begin_line("subjects");
        print_words("max %" PRIu64, set->info.subjects_max);
    } else {
        begin_line("granted");
        column += printf(" %" PRIu64, set->stats.engine_granted);
        print_words("held %" PRIu64, set->stats.engine_held);
        print_words("waiting %" PRIu64, set->stats.waiting);
    }
    end_line();
}

/* Returns the columns of the terminal; if the output goes elsewhere, any number. */
static int terminal_columns(void)
{
    struct winsize size;

    if (!isatty(STDOUT_FILENO))
        return INT_MAX;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : COLUMNS;
}

/* Writes a command line, on a terminal only what has room on the line. */
static void print_command_line(const char *text)
{
    int room = terminal_columns() - column - 2;
    size_t end = 0, next;

    for (; text[end] != '\0'; end = next) {
        next = end + utf8_sequence((const unsigned char *)text + end);
        if (next == end || stat_columns(text, next) > room)
            break;
    }
    printf("  %.*s", (int)end, text);
}

static void print_amount(const char *key, uint64_t amount)
{
    column += printf("  %s=%" PRIu64, key, amount) - (int)strlen(key);
    column += stat_columns(key, strlen(key));
}

static void print_holder(const struct snapshot_set *set, const struct snapshot_holder *holder)
{
    char text[TIME_TEXT_MAX];

    if (holder->holder.waiting)
        column = printf("  waits %4" PRIu32, holder->holder.position);
    else
        column = printf("  holds     ");
    column += printf("  pid %-7" PRIu32 "  %6s", holder->holder.process,
                     time_text_age(holder->age_ns, text));
    for (size_t i = 0; i < set->limits_n; i++)
        if (holder->amounts[i] != 0 && snapshot_is_first_of_key(set, i))
            print_amount(set->limits[i].key, holder->amounts[i]);
    print_command_line(holder->command_line);
    end_line();
}

/* Prints a line for each class: what waits and is held, and what became of others. */
static void print_classes(const struct snapshot_set *set)
{
    for (size_t i = 0; i < set->classes_n; i++) {
        const struct weir_class_stats *class = &set->classes[i];
        char mean[TIME_TEXT_MAX];

        begin_line("class");
        print_words("%s", class->name);
        if (class->weight != 0)
            print_words("weight %" PRIu64, class->weight);
        print_words("waiting %" PRIu64, class->waiting);
        print_words("held %" PRIu64, class->held);
        print_words("granted %" PRIu64, class->granted);
        if (class->granted_waited != 0)
            print_words("after waiting %" PRIu64 " (%s on average)", class->granted_waited,
                        time_text_age(class->wait_ns_sum / class->granted_waited, mean));
        print_counter("refused", class->refused);
        print_counter("timed out", class->timed_out);
        end_line();
    }
}

static void print_set(const struct snapshot_set *set)
{
    print_definition(set);
    if (set->process != 0) {
        begin_line("process");
        print_command_line(set->command_line);
        end_line();
    }
    if (set->has_subjects)
        print_subjects(&set->subjects);
    for (size_t i = 0; i < set->limits_n; i++)
        print_limit(set, &set->limits[i]);
    if (set->engine)
        print_engine(set);
    else
        print_counters(&set->stats);
    if (set->classes_n != 0)
        print_classes(set);
    for (size_t i = 0; i < set->holders_n; i++)
        print_holder(set, &set->holders[i]);
}

/* ---- command ---- */

enum format { FORMAT_TEXT, FORMAT_JSON, FORMAT_OPENMETRICS, FORMAT_PROMETHEUS };

static void complain(void *userdata, const struct weir_error *error)
{
    source_complain(userdata, error);
}

struct wish {
    enum format format;
    struct selection selection;
    struct snapshot_names names;
};

static int write_piece(void *userdata, const char *text, size_t n)
{
    return fwrite(text, 1, n, userdata) == n ? 0 : -EIO;
}

/* Returns 0 or -ENOMEM. What goes wrong with the standard output is found when it is closed. */
static int write_snapshot(const struct snapshot *snapshot, enum format format)
{
    int r = 0;

    if (format == FORMAT_JSON)
        snapshot_json_write(snapshot, stdout);
    else if (format == FORMAT_TEXT)
        for (size_t i = 0; i < snapshot->sets_n; i++)
            print_set(&snapshot->sets[i]);
    else
        r = metrics_write(snapshot,
                          format == FORMAT_OPENMETRICS ? WEIR_METRICS_OPENMETRICS
                                                       : WEIR_METRICS_PROMETHEUS,
                          write_piece, stdout);
    return r == -ENOMEM ? r : 0;
}

static int show(char *title, const struct source *source, const struct wish *wish)
{
    struct weir_error error = {0};
    struct snapshot snapshot, shown;
    struct engine_sets engines = {0};
    unsigned refused;
    int r = snapshot_take(&snapshot, source, &engines, &wish->names, complain, title, &error);

    engine_sets_close(&engines);
    if (r < 0) {
        source_complain(title, &error);
        return ENDING_SYSTEM;
    }
    shown = snapshot;
    shown.sets_n = selection_apply(&wish->selection, &snapshot);
    r = write_snapshot(&shown, wish->format);
    refused = snapshot.refused;
    snapshot_free(&snapshot);
    if (r < 0) {
        error = (struct weir_error){.code = r, .message = "out of memory"};
        source_complain(title, &error);
        return ENDING_SYSTEM;
    }
    return refused != 0 ? ENDING_COMPLAINTS : ENDING_FINE;
}

/* Takes an option. Returns 0, or the exit code. */
static int read_option(struct wish *wish, struct source *source, int option, const char *title)
{
    int known;

    if (option == 'j' || option == 'o' || option == 'p') {
        wish->format = option == 'j'   ? FORMAT_JSON
                       : option == 'o' ? FORMAT_OPENMETRICS
                                       : FORMAT_PROMETHEUS;
        return 0;
    }
    known = selection_option(&wish->selection, &wish->names, option, optarg, title);
    if (known < 0 || (known == 0 && !source_option(source, option, optarg, title)))
        return usage_hint(title);
    return 0;
}

int run_stat(int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'},
        {"openmetrics", no_argument, NULL, 'o'},
        {"prometheus", no_argument, NULL, 'p'},
        SELECTION_OPTIONS,
        SOURCE_OPTIONS,
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct source source = {0};
    struct wish wish = {.format = FORMAT_TEXT};
    int option, ending;

    while ((option = getopt_long(argc, argv, "joph" SELECTION_LETTERS SOURCE_LETTERS, options,
                                 NULL)) != -1) {
        if (option == 'h')
            return usage_help(help);
        ending = read_option(&wish, &source, option, argv[0]);
        if (ending != 0)
            return ending;
    }
    wish.names.items = (const char *const *)(argv + optind);
    wish.names.n = (size_t)(argc - optind);
    if (!source_find_plugin_dirs(&source, argv[0]))
        return ENDING_SYSTEM;
    ending = show(argv[0], &source, &wish);
    source_free(&source);
    return ending;
}
