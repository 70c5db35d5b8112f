/* SPDX-License-Identifier: MIT */
/* What the command makes of texts and writes, apart from any terminal, file or set. */
#include "lib/clock.h"
#include "lib/world.h"
#include "limit_option.h"
#include "metrics.h"
#include "process_text.h"
#include "selection.h"
#include "time_text.h"
#include "top_layout.h"
#include "utf8.h"
#include <locale.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <wchar.h>

/* ---- limits, amounts, durations ---- */

struct limit_case {
    const char *text, *key, *algorithm;
    uint64_t capacity, window_ns;
};

static void limits_on_the_command_line(void **state)
{
    static const struct limit_case cases[] = {
        {"slots:4", "slots", NULL, 4, 0},
        {"calls:100/60s", "calls", "gcra", 100, 60 * SECOND},
        {"calls:10k/5m", "calls", "gcra", 10000, 300 * SECOND},
        {"calls:1/1ns", "calls", "gcra", 1, 1},
        {"calls:10/s", "calls", "gcra", 10, SECOND},
        {"calls:10/ms/token_bucket", "calls", "token_bucket", 10, 1000000},
        {"a:b:2M/1h/sliding_window", "a:b", "sliding_window", 2000000, 3600 * SECOND},
        {"a/b:3", "a/b", NULL, 3, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct weir_limit_spec limit = {0};
        struct option_complaint wrong;
        char text[64];

        strcpy(text, cases[i].text);
        assert_true(limit_option_parse(text, &limit, &wrong));
        assert_int_equal(limit.size, sizeof(limit));
        assert_string_equal(limit.key, cases[i].key);
        assert_int_equal(limit.capacity, cases[i].capacity);
        assert_int_equal(limit.window_ns, cases[i].window_ns);
        assert_int_equal(limit.type, cases[i].window_ns ? WEIR_LIMIT_RATE : WEIR_LIMIT_RESOURCE);
        if (cases[i].algorithm)
            assert_string_equal(limit.algorithm, cases[i].algorithm);
        else
            assert_null(limit.algorithm);
    }
}

static void wrong_limits_stay_as_they_are(void **state)
{
    static const struct {
        const char *text, *part; /* of the complaint */
    } cases[] = {
        {"", "KEY:N"},
        {"slots", "KEY:N"},
        {":4", "KEY:N"},
        {"slots:", "whole number"},
        {"slots:0", "whole number"},
        {"slots:-1", "whole number"},
        {"slots:x", "whole number"},
        {"slots:4/", "WINDOW"},
        {"slots:1K", "N is a whole number from 1, like 4, 10k or 2M (did you mean `1k`?)"},
        {"a:1K/s", "did you mean `1k`?"},
        {"a:1/60", "did you mean `60s`?"},
        {"a:1/min", "did you mean `1m`?"},
        {"a:1/5min/gcra", "did you mean `5m`?"},
        {"a:1/sec/", "did you mean `1s`?"},
        {"a:1/week", "or a unit like s"},
        {"a:1/s/", "ALGORITHM"},
        {"a:1/0s", "WINDOW"},
        {"a:1/60s/", "ALGORITHM"},
        {"a:/60s", "whole number"},
        {"a:01/1s", "whole number"},
        {"a:1 /1s", "did you mean `1`?"},
        {"a:1/1s/", "ALGORITHM"},
        {"a:99999999999999999999", "whole number"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct weir_limit_spec limit = {.capacity = 77};
        struct option_complaint wrong;
        char text[64];

        strcpy(text, cases[i].text);
        assert_false(limit_option_parse(text, &limit, &wrong));
        assert_string_equal(text, cases[i].text);
        assert_int_equal(limit.capacity, 77);
        if (!strstr(wrong.text, cases[i].part))
            fail_msg("`%s`: %s", cases[i].text, wrong.text);
    }
}

static void amounts_on_the_command_line(void **state)
{
    struct option_complaint said;
    struct weir_amount amount = {0};
    char good[] = "a=b=10k", zero[] = "k=0", wrong[][8] = {"", "k", "=1", "k=", "k=x", "k=-1"};
    uint64_t ns = 0;

    (void)state;
    assert_true(amount_option_parse(good, &amount, &said));
    assert_string_equal(amount.key, "a=b");
    assert_int_equal(amount.amount, 10000);
    assert_true(amount_option_parse(zero, &amount, &said));
    assert_int_equal(amount.amount, 0);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(amount_option_parse(wrong[i], &amount, &said));
    assert_true(duration_option_parse("forever", &ns, &said));
    assert_true(ns == WEIR_FOREVER);
    assert_true(duration_option_parse("0s", &ns, &said));
    assert_int_equal(ns, 0);
    assert_false(duration_option_parse("1min", &ns, &said));
    assert_string_equal(said.text,
                        "not a duration like 500ms, 60s, 1h or forever (did you mean `1m`?)");
    assert_false(duration_option_parse("", &ns, &said));
}

static void spans_of_time(void **state)
{
    static const struct {
        uint64_t ns;
        const char *seconds, *age;
    } cases[] = {
        {0, "0", "0ms"},
        {1, "0.000000001", "0ms"},
        {250000000, "0.25", "250ms"},
        {999999999, "0.999999999", "999ms"},
        {SECOND, "1", "1.0s"},
        {59 * SECOND + 999999999, "59.999999999", "59.9s"},
        {60 * SECOND, "60", "1m00s"},
        {3599 * SECOND, "3599", "59m59s"},
        {3600 * SECOND, "3600", "1h00m"},
        {86399 * SECOND, "86399", "23h59m"},
        {86400 * SECOND, "86400", "1d"},
        {UINT64_MAX, "18446744073.709551615", "213503d"},
    };
    char text[TIME_TEXT_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_string_equal(time_text_seconds(cases[i].ns, text), cases[i].seconds);
        assert_string_equal(time_text_age(cases[i].ns, text), cases[i].age);
    }
}

/* ---- a snapshot by hand ---- */

static struct snapshot_limit limits[3];
static struct snapshot_holder people[100];
static struct snapshot_set sets[30];
static char names[30][64];

static struct snapshot_limit limit_of(enum weir_limit_type type, char *key, char *algorithm,
                                      uint64_t capacity, uint64_t available)
{
    return (struct snapshot_limit){.stats = {.type = type,
                                             .key = key,
                                             .algorithm = algorithm,
                                             .capacity = capacity,
                                             .available = available,
                                             .held = algorithm ? 0 : capacity - available,
                                             .granted = 500},
                                   .key = key,
                                   .algorithm = algorithm};
}

/* `held` hold, `waiting` wait; `n` sets, of which the first has the limits and the people. */
static struct snapshot make(size_t n, size_t held, size_t waiting)
{
    static char slots[] = "slots", calls[] = "calls", gcra[] = "gcra";
    static struct weir_setting window[] = {{"capacity", "100"}, {"window", "60s"}};

    memset(people, 0, sizeof(people));
    limits[0] = limit_of(WEIR_LIMIT_RESOURCE, slots, NULL, 4, 0);
    limits[1] = limit_of(WEIR_LIMIT_RATE, calls, gcra, 100, 37);
    limits[1].settings = window;
    limits[1].settings_n = 2;
    limits[2] = limit_of(WEIR_LIMIT_RESOURCE, slots, NULL, 1000, 999);
    for (size_t i = 0; i < held + waiting; i++) {
        struct snapshot_holder *holder = &people[i];

        holder->holder.process = 1000 + (uint32_t)i;
        holder->holder.waiting = i >= held;
        holder->holder.position = i >= held ? (uint32_t)(i - held + 1) : 0;
        holder->age_ns = (200 - i) * SECOND;
        holder->amounts[0] = holder->amounts[2] = 1;
        holder->amounts[1] = 7;
        snprintf(holder->command_line, sizeof(holder->command_line), "make -j3 all");
    }
    for (size_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof(names[i]), "set%02zu", i);
        sets[i] = (struct snapshot_set){.name = names[i], .lifetime = "boot", .users = 9};
    }
    sets[0].limits = limits;
    sets[0].limits_n = 3;
    sets[0].holders = people;
    sets[0].held_n = held;
    sets[0].holders_n = held + waiting;
    sets[0].stats.granted = 500;
    sets[0].stats.held = held;
    sets[0].stats.waiting = waiting;
    sets[0].stats.refused_full = 3;
    return (struct snapshot){.at_ns = 100 * SECOND, .sets = sets, .sets_n = n};
}

/* ---- Prometheus ---- */

static char *written;

static int write_piece(void *userdata, const char *text, size_t n)
{
    return fwrite(text, 1, n, userdata) == n ? 0 : -EIO;
}

static const char *prometheus(const struct snapshot *snapshot)
{
    size_t size;
    FILE *out;

    free(written);
    written = NULL;
    out = open_memstream(&written, &size);
    assert_non_null(out);
    assert_int_equal(metrics_write(snapshot, WEIR_METRICS_PROMETHEUS, write_piece, out), 0);
    fclose(out);
    return written;
}

static void assert_has(const char *text, const char *part)
{
    assert_non_null(text);
    if (!strstr(text, part))
        fail_msg("`%s` is missing in:\n%s", part, text);
}

static void metrics_of_a_set(void **state)
{
    struct snapshot snapshot = make(2, 4, 3);
    const char *text;

    (void)state;
    sets[0].stats.wait_histogram[0] = 2;
    sets[0].stats.wait_histogram[10] = 3;
    sets[0].stats.wait_histogram[31] = 1;
    sets[0].stats.wait_ns_sum = 1500000000;
    text = prometheus(&snapshot);
    assert_has(text, "# HELP weir_grants_total Requests that were granted.\n"
                     "# TYPE weir_grants_total counter\n"
                     "weir_grants_total{set=\"set00\"} 500\n"
                     "weir_grants_total{set=\"set01\"} 0\n"
                     "# HELP ");
    assert_has(text, "\nweir_refusals_total{set=\"set00\",reason=\"full\"} 3\n");
    assert_has(text, "\nweir_waiting{set=\"set00\"} 3\n");
    assert_has(text, "\nweir_limit_available{set=\"set00\",limit=\"1\",type=\"rate\","
                     "key=\"calls\",algorithm=\"gcra\"} 37\n");
    assert_has(text, "\nweir_limit_held{set=\"set00\",limit=\"0\",type=\"resource\","
                     "key=\"slots\",algorithm=\"\"} 4\n");
    assert_has(text, "\nweir_wait_seconds_bucket{set=\"set00\",le=\"0.000001\"} 2\n");
    assert_has(text, "\nweir_wait_seconds_bucket{set=\"set00\",le=\"0.001024\"} 5\n");
    assert_has(text, "\nweir_wait_seconds_bucket{set=\"set00\",le=\"1073.741824\"} 5\n");
    assert_has(text, "\nweir_wait_seconds_bucket{set=\"set00\",le=\"+Inf\"} 6\n"
                     "weir_wait_seconds_sum{set=\"set00\"} 1.5\n"
                     "weir_wait_seconds_count{set=\"set00\"} 6\n");
    assert_has(text, "\nweir_wait_queue_age_seconds{set=\"set00\"} 196\n");
    assert_has(text, "\nweir_wait_queue_age_seconds{set=\"set01\"} 0\n");
}

static void metrics_of_subjects(void **state)
{
    struct snapshot snapshot = make(3, 0, 0);
    const char *text;

    (void)state;
    sets[1].has_subjects = true;
    sets[1].subjects = (struct weir_subjects_stats){.known = 1,
                                                    .live = 2,
                                                    .max = 3,
                                                    .room = 4,
                                                    .memory = 5,
                                                    .memory_max = 6,
                                                    .forgotten = 7,
                                                    .evicted = 8,
                                                    .refused = 9};
    text = prometheus(&snapshot);
    assert_has(text, "\n# HELP weir_subjects Subjects of a per-subject set that are known.\n"
                     "# TYPE weir_subjects gauge\n"
                     "weir_subjects{set=\"set01\"} 1\n"
                     "# HELP weir_subjects_live "); /* and of no other set */
    assert_has(text, "\nweir_subjects_live{set=\"set01\"} 2\n");
    assert_has(text, "\nweir_subjects_room{set=\"set01\"} 4\n");
    assert_has(text, "\nweir_subjects_memory_bytes{set=\"set01\"} 5\n");
    assert_has(text, "\nweir_subjects_forgotten_total{set=\"set01\"} 7\n");
    assert_has(text, "\nweir_subjects_evicted_total{set=\"set01\"} 8\n");
    assert_has(text, "\nweir_subjects_refused_total{set=\"set01\"} 9\n");
}

static void labels_are_escaped(void **state)
{
    struct snapshot snapshot = make(1, 0, 0);
    static char name[] = "a\"b\\c\nd\xc3\xa4\xff";

    (void)state;
    sets[0].name = name;
    assert_has(prometheus(&snapshot),
               "\nweir_held{set=\"a\\\"b\\\\c\\nd\xc3\xa4\xef\xbf\xbd\"} 0\n");
    free(written);
    written = NULL;
}

/* ---- weir top ---- */

static struct top_line screen[200];

static void lay_out(const struct snapshot *now, const struct snapshot *before, unsigned rows,
                    unsigned columns, size_t selected)
{
    struct top_view view = {.rows = rows,
                            .columns = columns,
                            .selected = selected,
                            .shown_n = now->sets_n,
                            .interval_ns = SECOND};

    memset(screen, 0xff, sizeof(screen));
    top_layout(now, before, &view, screen);
    for (unsigned i = 0; i < rows; i++) {
        wchar_t wide[2 * TOP_COLUMNS_MAX];
        size_t n = mbstowcs(wide, screen[i].text, 2 * TOP_COLUMNS_MAX);

        assert_true(n != (size_t)-1);
        assert_in_range(wcswidth(wide, n), 0, columns); /* -1: a control character */
    }
    assert_int_equal((unsigned char)screen[rows].text[0], 0xff); /* nothing behind the last */
}

/* The line that begins so, or -1. */
static int line_of(unsigned rows, const char *start)
{
    for (unsigned i = 0; i < rows; i++)
        if (strncmp(screen[i].text, start, strlen(start)) == 0)
            return (int)i;
    return -1;
}

static void a_screen(void **state)
{
    struct snapshot now = make(2, 4, 2);

    (void)state;
    lay_out(&now, NULL, 24, 80, 0);
    assert_has(screen[0].text, "weir top  2 sets  every 1s ");
    assert_has(screen[0].text, "q quit");
    assert_int_equal(screen[0].style, TOP_TITLE);
    assert_string_equal(
        screen[1].text,
        "  SET                                USERS  HELD  WAIT  OLDEST  GRANT/s REFUSE/s");
    assert_string_equal(
        screen[2].text,
        "> set00                                  9     4     2   3m16s        -        -");
    assert_int_equal(screen[2].style, TOP_SELECTED);
    assert_string_equal(
        screen[3].text,
        "  set01                                  9     0     0       -        -        -");
    assert_string_equal(screen[4].text, "");
    assert_string_equal(
        screen[5].text,
        "  slots            resource       [##########] 4/4                          -/s");
    assert_int_equal(screen[5].style, TOP_EXHAUSTED);
    assert_string_equal(
        screen[6].text,
        "  calls            gcra           [######----] 63/100 per 60s               -/s");
    assert_int_equal(screen[6].style, TOP_PLAIN);
    assert_has(screen[7].text, "  slots            resource       [#---------] 1/1000");
    assert_string_equal(screen[8].text, " HOLD     PID  SINCE  AMOUNTS          COMMAND");
    assert_string_equal(screen[9].text, "         1000  3m20s  slots=1 calls=7  make -j3 all");
    assert_string_equal(screen[13].text, " WAIT     PID  SINCE  AMOUNTS          COMMAND");
    assert_string_equal(screen[14].text, "    1    1004  3m16s  slots=1 calls=7  make -j3 all");
    assert_string_equal(screen[15].text, "    2    1005  3m15s  slots=1 calls=7  make -j3 all");
    assert_string_equal(screen[16].text, "");
}

/* Numbers that are too long for their columns are cut to what they nearly are. */
static void large_amounts(void **state)
{
    static const struct {
        uint64_t capacity, available;
        const char *text;
    } cases[] = {
        {99999, 0, "] 99999/99999 "},      {100000, 1, "] 99999/100k "},
        {123456, 0, "] 123.4k/123.4k "},   {1000000, 999, "] 999k/1M "},
        {UINT64_MAX, 0, "] 18.4E/18.4E "}, {UINT64_MAX, UINT64_MAX, "] 0/18.4E "},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct snapshot now = make(1, 0, 0);

        limits[0].stats.capacity = cases[i].capacity;
        limits[0].stats.available = cases[i].available;
        lay_out(&now, NULL, 24, 80, 0);
        assert_has(screen[4].text, cases[i].text);
    }
}

static void rates_come_from_two_looks(void **state)
{
    struct snapshot before = make(2, 1, 0), now;
    struct snapshot_set old[2];
    struct snapshot_limit old_limits[3];

    (void)state;
    memcpy(old, sets, sizeof(old));
    memcpy(old_limits, limits, sizeof(old_limits));
    old[0].limits = old_limits;
    before.sets = old;
    before.at_ns = 98 * SECOND;
    now = make(2, 1, 0);
    sets[0].stats.granted = 525;
    sets[0].stats.timed_out = 4;
    limits[1].stats.granted = 501;
    sets[1].stats.granted = 0;
    old[1].stats.granted = 1; /* made anew in between */
    lay_out(&now, &before, 24, 80, 0);
    assert_has(screen[2].text, "     12.5      2.0");
    assert_has(screen[3].text, "        -      0.0");
    assert_has(screen[6].text, "     0.5/s");
    before.sets_n = 0; /* it was not there */
    lay_out(&now, &before, 24, 80, 0);
    assert_has(screen[2].text, "        -        -");
}

/* Two of a set with shares, and one with priorities only. */
static void add_classes(struct snapshot_set *set, size_t n)
{
    static const char *const class_names[] = {"gold", "silver", "2", "3", "4", "5", "6", "7"};

    for (size_t i = 0; i < n; i++) {
        struct weir_class_stats *class = &set->classes[i];

        *class =
            (struct weir_class_stats){.weight = i < 2 ? 5 - i : 0, .held = i, .waiting = 10 * i};
        snprintf(class->name, sizeof(class->name), "%s", class_names[i]);
    }
    set->classes_n = n;
}

static void classes_stand_below_the_limits(void **state)
{
    struct snapshot before = make(1, 1, 0), now;
    struct snapshot_set old[1];

    (void)state;
    add_classes(&sets[0], 3);
    memcpy(old, sets, sizeof(old));
    before.sets = old;
    before.at_ns = 98 * SECOND;
    now = make(1, 1, 0);
    add_classes(&sets[0], 3);
    sets[0].classes[1].granted = 25;
    sets[0].classes[1].granted_waited = 5;
    sets[0].classes[1].wait_ns_sum = 10 * SECOND;
    sets[0].classes[1].refused = 3;
    sets[0].classes[1].timed_out = 1;
    lay_out(&now, &before, 24, 80, 0);
    assert_string_equal(screen[7].text,
                        "  CLASS                   WEIGHT  HELD  WAIT  GRANT/s REFUSE/s  WAITED");
    assert_int_equal(screen[7].style, TOP_HEADING);
    assert_string_equal(screen[8].text,
                        "  gold                         5     0     0      0.0      0.0       -");
    assert_string_equal(screen[9].text,
                        "  silver                       4     1    10     12.5      2.0    2.0s");
    assert_string_equal(screen[10].text,
                        "  2                            -     2    20      0.0      0.0       -");
    assert_has(screen[11].text, " HOLD");
    lay_out(&now, NULL, 24, 80, 0);
    assert_has(screen[9].text, "    10        -        -    2.0s");
    add_classes(&sets[0], 8);
    lay_out(&now, NULL, 17, 80, 0); /* half of ten lines */
    assert_has(screen[10].text, "  2 ");
    assert_string_equal(screen[11].text, "  and 5 more");
    assert_has(screen[12].text, " HOLD");
    lay_out(&now, NULL, 9, 80, 0); /* one line of two is too few */
    assert_int_equal(line_of(9, "  CLASS"), -1);
}

static void what_does_not_fit_is_counted(void **state)
{
    struct snapshot now = make(1, 40, 60);
    int hold, line;

    (void)state;
    lay_out(&now, NULL, 28, 80, 0); /* 21 rows for both lists, two of them headings */
    hold = line_of(28, " HOLD");
    line = line_of(28, " WAIT");
    assert_int_equal(hold, 7);
    assert_int_equal(line, 17);
    assert_string_equal(screen[line - 1].text, "        and 32 more");
    assert_string_equal(screen[27].text, "        and 51 more");
    now = make(1, 3, 60); /* a column that needs little leaves the rest to the other */
    lay_out(&now, NULL, 28, 80, 0);
    assert_int_equal(line_of(28, " WAIT"), 11);
    assert_string_equal(screen[27].text, "        and 45 more");
    now = make(1, 60, 3);
    lay_out(&now, NULL, 28, 80, 0);
    assert_int_equal(line_of(28, " WAIT"), 24);
    assert_string_equal(screen[23].text, "        and 45 more");
    assert_has(screen[27].text, "    3    1062");
}

static void the_selected_set_is_in_sight(void **state)
{
    struct snapshot now = make(30, 0, 0);

    (void)state;
    for (size_t selected = 0; selected < 30; selected++) {
        char start[16];

        snprintf(start, sizeof(start), "> set%02zu ", selected);
        lay_out(&now, NULL, 24, 80, selected);
        assert_in_range(line_of(24, start), 2, 11);
        assert_string_equal(screen[12].text, "  and 20 more");
    }
}

static void the_title_says_what_is_shown(void **state)
{
    struct snapshot now = make(3, 1, 0);
    struct top_view view = {.rows = 24,
                            .columns = 120,
                            .shown_n = 2,
                            .interval_ns = SECOND,
                            .selection = {SELECTION_BY_WAITING, true},
                            .match = "et",
                            .paused = true};

    (void)state;
    top_layout(&now, NULL, &view, screen);
    assert_has(screen[0].text, "weir top  2 of 3 sets like `et` by waiting  every 1s  paused    ");
    assert_has(screen[0].text, "s sort  i idle  / match  p pause  q quit");
    assert_has(screen[3].text, "  set01 ");
    assert_string_equal(screen[4].text, ""); /* the third is not shown */
    view.is_typing = true;
    top_layout(&now, NULL, &view, screen);
    assert_string_equal(screen[0].text, "weir top  match: et_");
}

/* ---- what is shown ---- */

static void sets_in_order(void **state)
{
    static const char *const by_waiting[] = {"set03", "set01", "set04", "set00", "set02"};
    static const uint64_t waiting[] = {0, 2, 0, 2, 1};
    struct selection selection = {.order = SELECTION_BY_WAITING};
    struct snapshot now = make(5, 0, 0);

    (void)state;
    people[0].age_ns = 5 * SECOND;
    people[1].age_ns = 6 * SECOND;
    for (size_t i = 0; i < 5; i++) {
        sets[i].stats.waiting = waiting[i];
        sets[i].holders = &people[i == 3];
        sets[i].holders_n = waiting[i] != 0;
    }
    assert_int_equal(selection_apply(&selection, &now), 5);
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(now.sets[i].name, by_waiting[i]);
    selection.order = SELECTION_BY_NAME;
    assert_int_equal(selection_apply(&selection, &now), 5);
    assert_string_equal(now.sets[0].name, "set00");
    assert_string_equal(now.sets[4].name, "set04");
    selection.no_idle = true; /* of the first a limit is used; the third is idle */
    assert_int_equal(selection_apply(&selection, &now), 4);
    assert_string_equal(now.sets[0].name, "set00");
    assert_string_equal(now.sets[3].name, "set04");
    assert_string_equal(now.sets[4].name, "set02"); /* and not lost */
}

static void idle_sets(void **state)
{
    struct snapshot_limit limit = {.stats = {.capacity = 5, .available = 5}};
    struct snapshot_set set = {.limits = &limit, .limits_n = 1};

    (void)state;
    assert_true(selection_is_idle(&set));
    limit.stats.available = 4;
    assert_false(selection_is_idle(&set));
    limit.stats.available = 6; /* a burst above the capacity */
    assert_true(selection_is_idle(&set));
    set.stats.waiting = 1;
    assert_false(selection_is_idle(&set));
    set.stats.waiting = 0;
    set.stats.held = 1;
    assert_false(selection_is_idle(&set));
    set.stats.held = 0;
    set.has_subjects = true;
    assert_true(selection_is_idle(&set));
    set.subjects.known = 1;
    assert_false(selection_is_idle(&set));
}

/* ---- command lines of processes ---- */

#define WORDS(text) text, sizeof(text) /* with the last NUL */

static void command_lines(void **state)
{
    static const struct {
        const char *words;
        size_t n;
        const char *text;
    } cases[] = {
        {WORDS("make\0-j3\0all"), "make -j3 all"},
        {WORDS("sleep"), "sleep"},
        {"sleep", 5, "sleep"}, /* cut */
        {WORDS("weir\0exec\0-l\0a:1\0-s\0x\0--\0make\0-j3"), "make -j3"},
        {WORDS("/usr/bin/weir\0exec\0--set=x\0-v\0-E\0"
               "0\0make\0-s"),
         "make -s"},
        {WORDS("weir\0exec\0-s\0x"), "weir exec -s x"}, /* without a command */
        {WORDS("weir\0exec\0--bogus\0x\0make"), "weir exec --bogus x make"},
        {WORDS("weir\0exec\0-s"), "weir exec -s"},
        {WORDS("weir\0exec"), "weir exec"},
        {WORDS("weir\0hold\0--fd\0"
               "9\0-s\0x"),
         "weir hold --fd 9 -s x"},
        {WORDS("weird\0exec\0-s\0x\0make"), "weird exec -s x make"},
        {WORDS("a\0\0b"), "a '' b"},
        {WORDS("\0a\0 b"), "'' a  b"},
        {WORDS("worker: idle   \0\0\0\0\0\0"), "worker: idle"}, /* a title over longer words */
        {WORDS("worker \0 \0\0  "), "worker"},
        {WORDS("\0\0 \0"), ""},
        {WORDS("\033[2J\n\ttwo\177 \xc2\x9b\xff\xc3\xa4"), "?[2J  two? ??\xc3\xa4"},
        {WORDS("a\xe2\x80\xae\xe2\x81\xa6z"), "a??z"}, /* reorder what follows */
        {WORDS(""), ""},
        {"", 0, ""},
    };
    char many[4096], text[PROCESS_TEXT_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char words[256] = "";

        memcpy(words, cases[i].words, cases[i].n);
        process_text_join(words, cases[i].n, text);
        assert_string_equal(text, cases[i].text);
    }
    for (size_t i = 0; i < sizeof(many); i++)
        many[i] = i % 3 == 2 ? '\0' : i % 3 == 0 ? '\xc3' : '\xa4';
    many[sizeof(many) - 1] = '\0';
    process_text_join(many, sizeof(many), text);
    assert_in_range(strlen(text), PROCESS_TEXT_MAX - 3, PROCESS_TEXT_MAX - 1);
    assert_int_not_equal((unsigned char)text[strlen(text) - 1], 0xc3); /* half of a character */
}

/* In any locale: that of a script knows the width of ASCII only. */
static void columns_of_characters(void **state)
{
    static const struct {
        const char *text;
        int columns;
    } cases[] = {
        {"a", 1},
        {"\xc3\xa4", 1},
        {"\xe6\xbc\xa2", 2},     /* an ideograph */
        {"\xef\xbc\xa1", 2},     /* a full-width letter */
        {"\xcc\x81", 0},         /* an accent on the character before */
        {"\xe2\x80\x8b", 0},     /* no space */
        {"\xf0\x9f\x98\x80", 2}, /* a face */
        {"\xf4\x8f\xbf\xbf", 1}, /* no character */
    };

    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        setlocale(LC_ALL, plain ? "C" : "C.UTF-8");
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
            assert_int_equal(
                utf8_columns((const unsigned char *)cases[i].text, strlen(cases[i].text)),
                cases[i].columns);
    }
    setlocale(LC_ALL, "C.UTF-8");
}

static void this_process(void **state)
{
    char text[PROCESS_TEXT_MAX], name[16]; /* "test_tools", or that of valgrind */

    (void)state;
    if (getenv("MESON_EXE_WRAPPER")) {
        print_message("this process is an emulator\n");
        skip();
    }
    assert_true(process_text_read((uint32_t)getpid(), text));
    assert_has(text, "test_tools");
    process_text_name((uint32_t)getpid(), text);
    assert_int_equal(prctl(PR_GET_NAME, name), 0);
    assert_string_equal(text, name);
    assert_false(process_text_read(UINT32_MAX, text));
    assert_string_equal(text, "(gone)");
    assert_false(process_text_read(2, text)); /* a thread of the kernel, or there is none */
    assert_true(text[0] == '[' || text[0] == '(');
    process_text_name(UINT32_MAX, text);
    assert_string_equal(text, "");
}

/* Whatever the size, nothing is written beyond it. */
static void every_size(void **state)
{
    static char strange[] =
        "n\xc3\xa4me \xe2\x82\xac \xff\x01\t\xf0\x9f\x98\x80 "
        "\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2\xe5\xad\x97";
    struct snapshot now = make(9, 40, 60);

    (void)state;
    sets[0].name = limits[1].key = strange;
    snprintf(people[0].command_line, sizeof(people[0].command_line), "%s", strange);
    for (unsigned rows = 0; rows < 60; rows++)
        for (unsigned columns = 0; columns < 150; columns++)
            lay_out(&now, &now, rows, columns, rows % 10);
    lay_out(&now, &now, 24, 2 * TOP_COLUMNS_MAX, 0);
    now.sets_n = 0;
    lay_out(&now, NULL, 24, 80, 0);
    assert_has(screen[0].text, "0 sets");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_on_the_command_line),
        cmocka_unit_test(wrong_limits_stay_as_they_are),
        cmocka_unit_test(amounts_on_the_command_line),
        cmocka_unit_test(spans_of_time),
        cmocka_unit_test(metrics_of_a_set),
        cmocka_unit_test(metrics_of_subjects),
        cmocka_unit_test(labels_are_escaped),
        cmocka_unit_test(a_screen),
        cmocka_unit_test(large_amounts),
        cmocka_unit_test(rates_come_from_two_looks),
        cmocka_unit_test(classes_stand_below_the_limits),
        cmocka_unit_test(what_does_not_fit_is_counted),
        cmocka_unit_test(the_selected_set_is_in_sight),
        cmocka_unit_test(the_title_says_what_is_shown),
        cmocka_unit_test(sets_in_order),
        cmocka_unit_test(idle_sets),
        cmocka_unit_test(command_lines),
        cmocka_unit_test(columns_of_characters),
        cmocka_unit_test(this_process),
        cmocka_unit_test(every_size),
    };

    if (!setlocale(LC_ALL, "C.UTF-8"))
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
