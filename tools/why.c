/* SPDX-License-Identifier: MIT */
/* `weir why`: says what the first waiters of shared sets wait for, and which processes have it. */
#include "json.h"
#include "snapshot.h"
#include "snapshot_json.h"
#include "time_text.h"
#include "usage.h"
#include "weir.h"
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "Usage: weir why [OPTION]... [-f FILE] [--process-dir DIR] NAME...\n"
    "\n"
    "Says of sets that are shared or published which limit the first waiter waits for, until\n"
    "when, and which processes hold it, the longest first; and which have held units for longer\n"
    "than `max_hold`.\n"
    "\n"
    "  -j, --json              write JSON\n"
    "  -f, --file FILE         a configuration that says where shared sets and plugins are;\n"
    "                          default: the file that WEIR_CONFIG names\n"
    "      --process-dir DIR   where shared sets are\n"
    "  -d, --plugin-dir DIR    look for plugins in DIR first\n"
    "  -h, --help              show this text\n"
    "\n"
    "Exit status: 0 fine, 1 a set could not be inspected, 2 wrong usage, 3 the directory cannot "
    "be\n"
    "read, or the output not be written.\n";

/* Of a set that a process publishes the oldest holders and waiters are known, and how many in all.
 */
static uint64_t why_held_n(const struct snapshot_set *set)
{
    return set->process != 0 && set->stats.held > set->held_n ? set->stats.held : set->held_n;
}

static uint64_t why_waiting_n(const struct snapshot_set *set)
{
    size_t listed_n = set->holders_n - set->held_n;

    return set->process != 0 && set->stats.waiting > listed_n ? set->stats.waiting : listed_n;
}

/* ---- text ---- */

/* Writes a holder or waiter: process, age, amounts, whether it is overheld, command line. */
static void why_print_holder(const char *word, const struct snapshot_set *set,
                             const struct snapshot_holder *holder)
{
    char age[TIME_TEXT_MAX];

    printf("%s  pid %-7" PRIu32 "  %6s", word, holder->holder.process,
           time_text_age(holder->age_ns, age));
    for (size_t i = 0; i < set->limits_n; i++)
        if (holder->amounts[i] != 0 && snapshot_is_first_of_key(set, i))
            printf("  %s=%" PRIu64, set->limits[i].key, holder->amounts[i]);
    if (holder->overheld < set->limits_n)
        printf("  overheld: `%s` by %s", set->limits[holder->overheld].key,
               time_text_age(holder->overheld_ns, age));
    printf("  %s\n", holder->command_line);
}

/* Returns whether a holder has units of a key; of NULL: of any. */
static bool why_has_key(const struct snapshot_set *set, const struct snapshot_holder *holder,
                        const char *key)
{
    for (size_t i = 0; i < set->limits_n; i++)
        if (holder->amounts[i] != 0 && set->limits[i].stats.type == WEIR_LIMIT_RESOURCE &&
            (!key || strcmp(set->limits[i].key, key) == 0))
            return true;
    return false;
}

static void why_print_holders(const struct snapshot_set *set, const char *key)
{
    for (size_t i = 0; i < set->held_n; i++)
        if (why_has_key(set, &set->holders[i], key))
            why_print_holder("    holds", set, &set->holders[i]);
}

/* Returns the key of the limit that refuses a waiter, or NULL. */
static const char *why_limiting(const struct snapshot_set *set, const struct snapshot_holder *of)
{
    return of->limiting < set->limits_n ? set->limits[of->limiting].key : NULL;
}

/* Says what keeps the first waiter of a wait queue, and for how long. */
static void why_print_cause(const struct snapshot_set *set, const struct snapshot_holder *waiter)
{
    const char *limiting = why_limiting(set, waiter);
    char after[TIME_TEXT_MAX];

    time_text_age(waiter->retry_after_ns, after);
    if (waiter->retry_after_ns == WEIR_FOREVER) {
        printf("    needs more of `%s` than is free, until it is released\n",
               limiting ? limiting : "the limits");
        why_print_holders(set, limiting);
    } else if (waiter->retry_after_ns == 0) {
        printf("    is being granted\n");
    } else if (limiting) {
        printf("    needs more of `%s` than there is: granted in %s at the earliest\n", limiting,
               after);
    } else {
        printf("    a reservation is ahead: granted in %s at the earliest\n", after);
    }
}

static size_t why_count_overheld(const struct snapshot_set *set)
{
    size_t n = 0;

    for (size_t i = 0; i < set->held_n; i++)
        n += set->holders[i].overheld < set->limits_n;
    return n;
}

static void why_print_set(const struct snapshot_set *set)
{
    uint64_t waiting_n = why_waiting_n(set);

    printf("set %s", set->name);
    if (set->process != 0)
        printf("  pid %" PRIu32, set->process);
    printf("  held by %" PRIu64 "  waiting %" PRIu64, why_held_n(set), waiting_n);
    if (why_count_overheld(set) != 0)
        printf("  overheld %zu", why_count_overheld(set));
    printf("\n");
    for (size_t i = set->held_n; i < set->holders_n; i++) {
        if (!set->holders[i].is_next)
            continue;
        why_print_holder("  next", set, &set->holders[i]);
        why_print_cause(set, &set->holders[i]);
    }
    if (waiting_n == 0)
        why_print_holders(set, NULL);
}

/* ---- JSON ---- */

static void why_json_next(struct json *json, const struct snapshot_set *set,
                          const struct snapshot_holder *waiter)
{
    const char *limiting = why_limiting(set, waiter);

    json_object(json, NULL);
    json_text(json, "limiting", limiting);
    if (waiter->retry_after_ns == WEIR_FOREVER)
        json_null(json, "retry_after_ns");
    else
        json_number(json, "retry_after_ns", waiter->retry_after_ns);
    json_array(json, "waiter");
    snapshot_json_holder(json, set, waiter);
    json_end_array(json);
    json_array(json, "holders");
    for (size_t i = 0; waiter->retry_after_ns == WEIR_FOREVER && i < set->held_n; i++)
        if (why_has_key(set, &set->holders[i], limiting))
            snapshot_json_holder(json, set, &set->holders[i]);
    json_end_array(json);
    json_end_object(json);
}

static void why_json_set(struct json *json, const struct snapshot_set *set)
{
    json_object(json, NULL);
    json_text(json, "name", set->name);
    if (set->process != 0)
        json_number(json, "process", set->process);
    json_number(json, "held", why_held_n(set));
    json_number(json, "waiting", why_waiting_n(set));
    json_array(json, "next");
    for (size_t i = set->held_n; i < set->holders_n; i++)
        if (set->holders[i].is_next)
            why_json_next(json, set, &set->holders[i]);
    json_end_array(json);
    json_array(json, "overheld");
    for (size_t i = 0; i < set->held_n; i++)
        if (set->holders[i].overheld < set->limits_n)
            snapshot_json_holder(json, set, &set->holders[i]);
    json_end_array(json);
    json_end_object(json);
}

/* ---- command ---- */

static void why_complain(void *userdata, const struct weir_error *error)
{
    source_complain(userdata, error);
}

/* Returns whether the processes that hold a set are known; complains if not. */
static bool why_is_known(const char *title, const struct snapshot_set *set)
{
    struct weir_error error = {.code = -EOPNOTSUPP};

    if (!set->engine)
        return true;
    snprintf(error.message, sizeof(error.message),
             "`%.200s`: the engine that keeps it does not tell which processes hold it", set->name);
    source_complain(title, &error);
    return false;
}

static int why_write(char *title, const struct snapshot *snapshot, bool as_json)
{
    struct json json = {.out = stdout};
    bool all_known = true;

    if (as_json) {
        json_object(&json, NULL);
        json_array(&json, "sets");
    }
    for (size_t i = 0; i < snapshot->sets_n; i++) {
        const struct snapshot_set *set = &snapshot->sets[i];

        if (!why_is_known(title, set))
            all_known = false;
        else if (as_json)
            why_json_set(&json, set);
        else
            why_print_set(set);
    }
    if (as_json) {
        json_end_array(&json);
        json_end_object(&json);
    }
    return all_known && snapshot->refused == 0 ? ENDING_FINE : ENDING_COMPLAINTS;
}

static int why_show(char *title, const struct source *source, const struct snapshot_names *names,
                    bool as_json)
{
    struct weir_error error = {0};
    struct engine_sets engines = {0};
    struct snapshot snapshot;
    int ending, r;

    r = snapshot_take(&snapshot, source, &engines, names, why_complain, title, &error);
    engine_sets_close(&engines);
    if (r < 0) {
        source_complain(title, &error);
        return ENDING_SYSTEM;
    }
    ending = why_write(title, &snapshot, as_json);
    snapshot_free(&snapshot);
    return ending;
}

int run_why(int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'},
        SOURCE_OPTIONS,
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct source source = {0};
    struct snapshot_names names;
    bool as_json = false;
    int option, ending;

    while ((option = getopt_long(argc, argv, "jh" SOURCE_LETTERS, options, NULL)) != -1) {
        if (option == 'h')
            return usage_help(help);
        if (option == 'j')
            as_json = true;
        else if (!source_option(&source, option, optarg, argv[0]))
            return usage_hint(argv[0]);
    }
    if (optind == argc)
        return usage_wrong(argv[0], "no set is named", "");
    names = (struct snapshot_names){.items = (const char *const *)argv + optind,
                                    .n = (size_t)(argc - optind),
                                    .with_waits = true};
    if (!source_find_plugin_dirs(&source, argv[0]))
        return ENDING_SYSTEM;
    ending = why_show(argv[0], &source, &names, as_json);
    source_free(&source);
    return ending;
}
