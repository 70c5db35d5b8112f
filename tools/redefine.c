/* SPDX-License-Identifier: MIT */
/* `weir apply` and `weir set`: change the definitions of sets that processes share, on this machine
 * or by an engine, while they use them. */
#include "engine_sets.h"
#include "source.h"
#include "usage.h"
#include "weir.h"
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/segment.h>

static const char apply_help[] =
    "Usage: weir apply [--dry-run] [-d DIR]... [--process-dir DIR] FILE [NAME]...\n"
    "\n"
    "Changes the definitions of the sets that are there to those of a configuration, while\n"
    "processes use them: of shared sets, and of sets that engines keep. Shows first what differs.\n"
    "Nothing changes if any of them cannot be changed. What is held stays held, and what is\n"
    "counted is carried over unless a limit begins anew, as it does by another algorithm. Waiters\n"
    "that can go on do. An engine is asked for 5 s at most, and takes a higher `revision`.\n"
    "\n"
    "  -n, --dry-run           show what differs and check it, and change nothing\n"
    "  -d, --plugin-dir DIR    search this directory for plugins first; may be repeated\n"
    "      --process-dir DIR   where shared sets are\n"
    "  -h, --help              show this text\n"
    "\n"
    "Exit status: 0 fine, also if nothing differs; 1 a set cannot be changed, an engine cannot be\n"
    "asked, or the configuration is wrong; 2 wrong usage; 3 the directory cannot be read.\n";

static const char set_help[] =
    "Usage: weir set [--dry-run] [-d DIR]... [--file FILE] [--process-dir DIR]\n"
    "                NAME LIMIT[.SETTING]=VALUE...\n"
    "\n"
    "Changes settings of limits of a shared set while processes use it. LIMIT is the key of the\n"
    "limit; SETTING is `capacity` unless it is given, or another setting of the limit.\n"
    "\n"
    "  -n, --dry-run           show what differs and check it, and change nothing\n"
    "  -d, --plugin-dir DIR    search this directory for plugins first; may be repeated\n"
    "      --file FILE         a configuration that says where shared sets and plugins are; "
    "default:\n"
    "                          the file that WEIR_CONFIG names\n"
    "      --process-dir DIR   where shared sets are\n"
    "  -h, --help              show this text\n"
    "\n"
    "Exit status: 0 fine, also if nothing differs; 1 the set cannot be changed; 2 wrong usage;\n"
    "3 the directory cannot be read.\n"
    "\n"
    "Processes that open the set later need the new definition: change their configuration, too.\n";

/* ---- one set ---- */

static int show_changes(void *userdata, const struct weir_redefinition *redefinition)
{
    (void)userdata;
    if (redefinition->changes[0] != '\0')
        printf("%s: %s\n", redefinition->name, redefinition->changes);
    else
        printf("%s: - %s\n%s: + %s\n", redefinition->name, redefinition->before, redefinition->name,
               redefinition->after);
    return 0;
}

/* Reports a result that is not fine. Returns whether it is. */
static bool report(const char *title, const char *name, int result, const struct weir_error *error)
{
    if (result >= 0)
        return true;
    if (error->line != 0)
        source_complain(title, error);
    else
        fprintf(stderr, "%s: set `%s`: %s\n", title, name,
                error->message[0] != '\0' ? error->message : strerror(-result));
    return false;
}

/* ---- weir apply ---- */

struct application {
    const char *title;
    struct weir_options options;
    struct engine_sets engines; /* of the configuration, which is opened apart: nothing is shared */
    bool is_dry;
    bool may_lack; /* of a set that is not there nothing is to be done */
};

/* Checks a set that an engine keeps, or changes it. */
static int apply_engine(weir_set *set, bool check, struct weir_error *reterr)
{
    const uint64_t timeout_ns = UINT64_C(5000000000);
    struct weir_set_info info = {.size = sizeof(info)};
    int r = 0;

    weir_set_info(set, &info);
    if (info.subjects_max == 0)
        r = weir_engine_redefine(set, check ? WEIR_REDEFINE_CHECK : 0, timeout_ns,
                                 check ? show_changes : NULL, NULL, reterr);
    else if (check)
        printf("%s: each subject changes when a process with this configuration next asks for it\n",
               weir_set_name(set));
    if (r == -ENOSYS && check)
        printf("%s: changes when a process with this configuration next asks for it\n",
               weir_set_name(set));
    return r == -ENOSYS ? 0 : r;
}

/* Checks or changes a set. Returns false if it cannot, which is reported. */
static bool apply_set(const struct application *application, const char *name, bool check)
{
    struct weir_error error = {0};
    weir_pool *pool = NULL;
    int r = engine_sets_find(&application->engines, name, &pool);

    if (r > 0)
        r = apply_engine(weir_pool_set(pool, 0), check, &error);
    else if (r == 0)
        r = weir_segment_redefine(&application->options, name, check ? WEIR_REDEFINE_CHECK : 0,
                                  check ? show_changes : NULL, NULL, &error);
    weir_pool_close(pool);
    return (r == -ENOENT && application->may_lack) || report(application->title, name, r, &error);
}

/* Checks all, then changes all. What another process changes in between is reported, and the sets
 * before it stay changed. */
static int apply_names(const struct application *application, const char *const *names, int n)
{
    bool is_fine = true;

    for (int i = 0; i < n; i++)
        is_fine &= apply_set(application, names[i], true);
    for (int i = 0; i < n && is_fine && !application->is_dry; i++)
        is_fine = apply_set(application, names[i], false);
    return is_fine ? ENDING_FINE : ENDING_COMPLAINTS;
}

/* Applies all sets of the configuration. */
static int apply_all(const struct application *application)
{
    weir *w = application->engines.w;
    int n = weir_sets(w, NULL, 0), ending = ENDING_SYSTEM;
    const char **names = n >= 0 ? calloc((size_t)n + 1, sizeof(*names)) : NULL;

    if (names) {
        weir_sets(w, names, (size_t)n);
        ending = apply_names(application, names, n);
    } else {
        fprintf(stderr, "%s: out of memory\n", application->title);
    }
    free(names);
    return ending;
}

/* Applies these sets of a configuration; none: all. */
static int apply(const char *title, const struct source *source, const char *const *names, int n,
                 bool is_dry)
{
    struct application application = {
        .title = title, .options = source_options(source), .is_dry = is_dry, .may_lack = n == 0};
    struct source apart = *source;
    int ending;

    apart.flags = WEIR_OPEN_APART;
    if (source_open(&apart, NULL, title, &application.engines.w) < 0)
        return ENDING_COMPLAINTS;
    ending = n == 0 ? apply_all(&application) : apply_names(&application, names, n);
    engine_sets_close(&application.engines);
    return ending;
}

/* Takes an option that both commands have. Returns 0 to go on, or 1 and how the command ends. */
static int take_option(struct source *source, int option, const char *help, bool *is_dry,
                       const char *title, int *ret_ending)
{
    if (option == 'h') {
        *ret_ending = usage_help(help);
        return 1;
    }
    if (option == 'n') {
        *is_dry = true;
        return 0;
    }
    if (source_option(source, option, optarg, title))
        return 0;
    *ret_ending = usage_hint(title);
    return 1;
}

static const struct option redefine_options[] = {
    {"dry-run", no_argument, NULL, 'n'},
    SOURCE_OPTIONS,
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static int stop_at_first(void *userdata, const struct weir_segment *segment)
{
    (void)userdata;
    (void)segment;
    return 1;
}

/* Returns whether the directory of segments can be read; if not, that is reported. */
static bool can_look(const char *title, const struct source *source)
{
    struct weir_options options = source_options(source);
    struct weir_error error = {0};

    if (weir_segments(&options, stop_at_first, NULL, &error) >= 0)
        return true;
    source_complain(title, &error);
    return false;
}

int run_apply(int argc, char **argv)
{
    struct source source = {0};
    bool is_dry = false;
    int option, ending = ENDING_FINE;

    while ((option = getopt_long(argc, argv, "nd:h", redefine_options, NULL)) != -1)
        if (take_option(&source, option, apply_help, &is_dry, argv[0], &ending))
            return ending;
    if (source.file)
        return usage_wrong(argv[0], "the configuration is an argument, not --file ", source.file);
    if (optind == argc)
        return usage_wrong(argv[0], "no configuration is given", "");
    source.file = argv[optind++];
    source_read(&source);
    if (!source_find_plugin_dirs(&source, argv[0]))
        ending = ENDING_COMPLAINTS;
    else if (!can_look(argv[0], &source))
        ending = ENDING_SYSTEM;
    else
        ending =
            apply(argv[0], &source, (const char *const *)(argv + optind), argc - optind, is_dry);
    source_free(&source);
    return ending;
}

/* ---- weir set ---- */

/* Returns the end of a scalar of a definition: a text in quotes, or up to the next sign. */
static const char *scalar_end(const char *at)
{
    if (*at != '"')
        return at + strcspn(at, ":,{}[]");
    for (at++; *at != '\0' && *at != '"'; at++)
        at += *at == '\\' && at[1] != '\0';
    return at + (*at == '"');
}

/* A part of a text. */
struct span {
    const char *at;
    size_t n;
};

static bool span_is(struct span a, const char *at, size_t n)
{
    return a.n == n && memcmp(a.at, at, n) == 0;
}

/* Finds the value of a field in a limit of a definition, which begins at `at`, behind its brace.
 * `*ret_end`: the end of the limit, or of the value. NULL: there is no such field. */
static const char *find_field(const char *at, struct span name, const char **ret_end)
{
    while (*at != '\0' && *at != '}') {
        const char *key_end = scalar_end(at), *value = key_end + strspn(key_end, ": ");

        *ret_end = scalar_end(value);
        if (span_is(name, at, (size_t)(key_end - at)))
            return value;
        if (*ret_end == at)
            break; /* not a definition */
        at = *ret_end + strspn(*ret_end, ", ");
    }
    *ret_end = at;
    return NULL;
}

/* The limits with a key. */
struct found {
    struct span key;
    const char *fields;     /* of the first one; NULL: there is none */
    unsigned first, second; /* which ones, from 1; 0: there is none */
};

static bool limit_has_key(const char *fields, struct span key)
{
    const char *end, *value = find_field(fields, (struct span){"key", 3}, &end);
    size_t is_quoted = value && *value == '"';

    return value && (size_t)(end - value) >= 2 * is_quoted &&
           span_is(key, value + is_quoted, (size_t)(end - value) - 2 * is_quoted);
}

static struct found find_limit(const char *definition, struct span key)
{
    const char *at = strstr(definition, "limits: ["), *end;
    struct found found = {.key = key};

    at = at ? at + strlen("limits: [") : NULL;
    for (unsigned i = 1; at && *at == '{' && !found.second; i++) {
        if (limit_has_key(at + 1, key) && found.first) {
            found.second = i;
        } else if (limit_has_key(at + 1, key)) {
            found.first = i;
            found.fields = at + 1;
        }
        find_field(at + 1, (struct span){"", 0}, &end);
        at = *end == '}' ? end + 1 + strspn(end + 1, ", ") : NULL;
    }
    return found;
}

/* Finds what a change is of: LIMIT, or else, as keys have dots as well, LIMIT.SETTING. Returns
 * where the fields of the limit begin, or NULL, reported. */
static const char *find_target(const char *title, const char *definition, struct span target,
                               struct span *ret_setting)
{
    struct found found = find_limit(definition, target);
    const char *dot = memrchr(target.at, '.', target.n);

    *ret_setting = (struct span){"capacity", strlen("capacity")};
    if (!found.first && dot) {
        *ret_setting = (struct span){dot + 1, target.n - (size_t)(dot + 1 - target.at)};
        found = find_limit(definition, (struct span){target.at, (size_t)(dot - target.at)});
    }
    if (!found.first)
        fprintf(stderr, "%s: the set has no limit for `%.*s`\n", title, (int)target.n, target.at);
    else if (found.second)
        fprintf(stderr, "%s: limits %u and %u have the key `%.*s`; use `weir apply`\n", title,
                found.first, found.second, (int)found.key.n, found.key.at);
    return found.second ? NULL : found.fields;
}

/* Returns the definition with another value of a setting; NULL: out of memory. */
static char *put_setting(const char *definition, const char *limit, struct span setting,
                         const char *new_value)
{
    const size_t room = strlen(definition) + setting.n + strlen(new_value) + strlen(", : ") + 1;
    const char *end, *value = find_field(limit, setting, &end);
    char *changed = malloc(room);

    if (changed && value)
        snprintf(changed, room, "%.*s%s%s", (int)(value - definition), definition, new_value, end);
    else if (changed)
        snprintf(changed, room, "%.*s, %.*s: %s%s", (int)(end - definition), definition,
                 (int)setting.n, setting.at, new_value, end);
    return changed;
}

/* Returns a definition with one setting changed, as LIMIT[.SETTING]=VALUE says; NULL, reported. */
static char *change_setting(const char *title, const char *definition, const char *change)
{
    const char *equals = strrchr(change, '='), *limit;
    struct span setting;
    char *changed;

    if (!equals || equals == change || equals[1] == '\0') {
        fprintf(stderr, "%s: `%s` is not LIMIT[.SETTING]=VALUE\n", title, change);
        return NULL;
    }
    if (equals[1 + strcspn(equals + 1, "\",{}[]:#\n")] != '\0') {
        fprintf(stderr, "%s: `%s`: a value is a number, a duration or a word\n", title, change);
        return NULL;
    }
    limit =
        find_target(title, definition, (struct span){change, (size_t)(equals - change)}, &setting);
    if (!limit)
        return NULL;
    if (strspn(setting.at, "abcdefghijklmnopqrstuvwxyz0123456789_") < setting.n || !setting.n) {
        fprintf(stderr, "%s: `%s`: `%.*s` is not the name of a setting\n", title, change,
                (int)setting.n, setting.at);
        return NULL;
    }
    if (span_is(setting, "key", 3) || span_is(setting, "type", 4)) {
        fprintf(
            stderr,
            "%s: `%s`: `%.*s` makes it another limit, which is for the file, and `weir apply`\n",
            title, change, (int)setting.n, setting.at);
        return NULL;
    }
    changed = put_setting(definition, limit, setting, equals + 1);
    if (!changed)
        fprintf(stderr, "%s: out of memory\n", title);
    return changed;
}

struct wanted {
    const char *name;
    char *before, *directory; /* as they are found; owned; NULL: not found */
    char *after;              /* owned */
    bool is_dry, is_outdated; /* the second: another process has changed the definition meanwhile */
    bool has_no_memory;
};

static int find_wanted(void *userdata, const struct weir_segment *segment)
{
    struct wanted *wanted = userdata;

    if (segment->refusal || strcmp(segment->name, wanted->name) != 0)
        return 0;
    wanted->before = segment->definition ? strdup(segment->definition) : NULL;
    wanted->directory =
        strndup(segment->path, (size_t)(strrchr(segment->path, '/') - segment->path));
    wanted->has_no_memory = (segment->definition && !wanted->before) || !wanted->directory;
    return 1;
}

/* Puts the settings into the definition. Returns false if it cannot, which is reported. */
static bool put_settings(const char *title, struct wanted *wanted, char **changes, int n)
{
    wanted->after = wanted->before ? strdup(wanted->before) : NULL;
    if (wanted->has_no_memory || (wanted->before && !wanted->after)) {
        fprintf(stderr, "%s: out of memory\n", title);
        return false;
    }
    if (!wanted->before)
        fprintf(stderr, "%s: there is no shared set `%s` that can be used\n", title, wanted->name);
    for (int i = 0; i < n && wanted->after; i++) {
        char *changed = change_setting(title, wanted->after, changes[i]);

        free(wanted->after);
        wanted->after = changed;
    }
    return wanted->after != NULL;
}

/* A change that another process has made since the definition was read is not undone. */
static int show_settings(void *userdata, const struct weir_redefinition *redefinition)
{
    struct wanted *wanted = userdata;

    wanted->is_outdated = strcmp(redefinition->before, wanted->before) != 0;
    return wanted->is_outdated || show_changes(NULL, redefinition);
}

static int set_settings_once(const char *title, const struct source *source, struct wanted *wanted,
                             char **changes, int n)
{
    struct weir_options options = source_options(source);
    struct weir_error error = {0};
    int ending = ENDING_COMPLAINTS, r;

    if (weir_segments(&options, find_wanted, wanted, &error) < 0) {
        source_complain(title, &error);
        return ENDING_SYSTEM;
    }
    if (put_settings(title, wanted, changes, n)) {
        options.file = NULL;
        options.text = wanted->after;
        options.text_name = "the new definition";
        options.process_dir = wanted->directory;
        r = weir_segment_redefine(&options, wanted->name, wanted->is_dry ? WEIR_REDEFINE_CHECK : 0,
                                  show_settings, wanted, &error);
        if (wanted->is_outdated || report(title, wanted->name, r, &error))
            ending = ENDING_FINE;
    }
    free(wanted->before);
    free(wanted->after);
    free(wanted->directory);
    return ending;
}

static int set_settings(const char *title, const struct source *source, const char *name,
                        char **changes, int n, bool is_dry)
{
    enum { TRIES = 100 };
    struct wanted wanted;
    int ending = ENDING_COMPLAINTS;

    for (int i = 0; i < TRIES; i++) {
        wanted = (struct wanted){.name = name, .is_dry = is_dry};
        ending = set_settings_once(title, source, &wanted, changes, n);
        if (!wanted.is_outdated)
            return ending;
    }
    fprintf(stderr, "%s: other processes keep changing set `%s`\n", title, name);
    return ENDING_COMPLAINTS;
}

int run_set(int argc, char **argv)
{
    struct source source = {0};
    bool is_dry = false;
    int option, ending = ENDING_FINE;

    while ((option = getopt_long(argc, argv, "nd:h", redefine_options, NULL)) != -1)
        if (take_option(&source, option, set_help, &is_dry, argv[0], &ending))
            return ending;
    if (argc - optind < 2)
        return usage_wrong(argv[0], optind == argc ? "no set is given" : "no setting is given", "");
    source_read(&source);
    if (!source_find_plugin_dirs(&source, argv[0]))
        ending = ENDING_COMPLAINTS;
    else
        ending = set_settings(argv[0], &source, argv[optind], argv + optind + 1, argc - optind - 1,
                              is_dry);
    source_free(&source);
    return ending;
}
