/* SPDX-License-Identifier: MIT */
/* `weir check`: complaints about a configuration, or a summary of what was understood. */
#include "base/units.h"
#include "excerpt.h"
#include "json.h"
#include "limit_type.h"
#include "source.h"
#include "usage.h"
#include "weir.h"
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

static const char help[] =
    "Usage: weir check [--json | --names] [--strict] [--connect] [-d DIR]... [FILE]...\n"
    "\n"
    "Checks configurations, plugins included: writes the complaints about each to the standard\n"
    "error, or a summary of what was understood and warnings. FILE may be - for the standard "
    "input;\n"
    "default: the file that WEIR_CONFIG names.\n"
    "\n"
    "  -j, --json             write JSON\n"
    "  -n, --names            write nothing but the names of the sets that processes share, and "
    "of\n"
    "                         pools of such sets, one a line\n"
    "  -s, --strict           warnings count as complaints in the exit status\n"
    "      --connect          see of each backend whether its engine can be used, in 5 s at most\n"
    "  -d, --plugin-dir DIR   look for plugins in DIR first\n"
    "  -h, --help             show this text\n"
    "\n"
    "Exit status: 0 fine, 1 complaints, 2 wrong usage, 3 something cannot be read or written.\n";

enum format { FORMAT_TEXT, FORMAT_JSON, FORMAT_NAMES };

struct check {
    const char *file;     /* the file, or "-" */
    struct source source; /* plugin directories of the command line */
    enum format format;
    const char *name; /* of the file, in messages */
    struct excerpt excerpt;
    struct json json;
    struct complaint_count complaints, warnings;
    bool is_strict;  /* warnings count in the exit status */
    bool connects;   /* engines are asked */
    bool is_cut_off; /* an engine of the file cannot be used */
};

/* ---- complaints ---- */

static void print_complaint(struct check *check, const struct weir_error *complaint)
{
    fputs(complaint->file, stderr);
    if (complaint->line != 0)
        fprintf(stderr, ":%u:%u", complaint->line, complaint->column);
    fputs(complaint->code == 0 ? ": warning: " : ": ", stderr);
    excerpt_write_text(stderr, complaint->message);
    fputc('\n', stderr);
    excerpt_write(&check->excerpt, stderr, complaint->line, complaint->column);
}

/* Complaints, or warnings: there are no complaints before a warning, and none after it. */
static void on_complaint(void *userdata, const struct weir_error *complaint)
{
    struct check *check = userdata;
    bool is_warning = complaint->code == 0;

    complaint_count_add(is_warning ? &check->warnings : &check->complaints, complaint);
    if (check->format != FORMAT_JSON) {
        print_complaint(check, complaint);
        return;
    }
    if (is_warning && check->warnings.shown == 1) {
        json_end_array(&check->json);
        json_array(&check->json, "warnings");
    }
    json_object(&check->json, NULL);
    json_text(&check->json, "file", complaint->file);
    json_number(&check->json, "line", complaint->line);
    json_number(&check->json, "column", complaint->column);
    json_text(&check->json, "message", complaint->message);
    json_end_object(&check->json);
}

/* Ends the arrays of complaints and warnings. */
static void end_complaints(struct check *check)
{
    const struct complaint_count *count =
        check->warnings.shown != 0 ? &check->warnings : &check->complaints;

    if (check->warnings.shown == 0) {
        json_end_array(&check->json);
        json_array(&check->json, "warnings");
    }
    json_end_array(&check->json);
    json_number(&check->json, "not_shown",
                count->all > count->shown ? count->all - count->shown : 0);
}

/* ---- standard input ---- */

/* Reads all of it, NUL-terminated. At most as much as the library reads of a file. NULL: failed. */
static char *read_input(size_t *ret_n)
{
    const size_t n_max = (size_t)16 << 20;
    char *text = malloc(n_max + 2); /* pages of it that are not used cost nothing */
    size_t n = text ? fread(text, 1, n_max + 1, stdin) : 0;

    if (n > n_max)
        errno = EFBIG;
    if (!text || n > n_max || ferror(stdin)) {
        free(text);
        return NULL;
    }
    text[n] = '\0';
    *ret_n = n;
    return text;
}

/* The library takes a text up to its NUL; one in the middle must not hide the rest. */
static int refuse_nul(struct check *check, const char *text)
{
    struct weir_error error = {.code = -EINVAL, .line = 1, .column = 1, .complaints = 1};

    for (; *text != '\0'; text++) {
        error.column += ((unsigned char)*text & 0xc0) != 0x80; /* columns count characters */
        if (*text == '\n') {
            error.line++;
            error.column = 1;
        }
    }
    snprintf(error.file, sizeof(error.file), "%s", check->name);
    snprintf(error.message, sizeof(error.message), "a NUL byte is not text");
    on_complaint(check, &error);
    return -EINVAL;
}

static int open_input(struct check *check, struct weir_options *options, weir **ret,
                      struct weir_error *error)
{
    size_t n;
    char *text = read_input(&n);
    int r;

    if (!text) {
        error->code = errno != 0 ? -errno : -EIO;
        snprintf(error->file, sizeof(error->file), "%s", check->name);
        snprintf(error->message, sizeof(error->message), "cannot be read: %s",
                 strerror(-error->code));
        return error->code;
    }
    options->text = text;
    options->text_name = check->name;
    excerpt_take(&check->excerpt, text, n);
    r = strlen(text) < n ? refuse_nul(check, text) : weir_open(ret, options, error);
    return r;
}

/* ---- summary ---- */

#define SETTINGS_MAX 80

static void print_limit(const struct weir_limit_stats *limit, const struct weir_setting *settings,
                        int n)
{
    printf("  %-8s  %-16s", limit_type_name(limit->type), limit->key);
    if (limit->algorithm)
        printf("  %s", limit->algorithm);
    for (int i = 0; i < n; i++)
        printf("  %s %s", settings[i].name, settings[i].value);
    putchar('\n');
}

static void json_limit(struct json *json, const struct weir_limit_stats *limit,
                       const struct weir_setting *settings, int n)
{
    json_object(json, NULL);
    json_text(json, "type", limit_type_name(limit->type));
    json_text(json, "key", limit->key);
    json_text(json, "algorithm", limit->algorithm);
    json_number(json, "capacity", limit->capacity);
    json_object(json, "settings");
    for (int i = 0; i < n; i++)
        json_text(json, settings[i].name, settings[i].value);
    json_end_object(json);
    json_end_object(json);
}

/* Prints the defaults of requests and the other settings of the set. */
static void print_defaults(const struct weir_set_info *info)
{
    char text[UNITS_TEXT_MAX];

    if (strcmp(info->backend, "thread") != 0)
        printf("  backend %s", info->backend);
    if (info->lifetime)
        printf("  lifetime %s", info->lifetime);
    if (info->timeout_ns != WEIR_FOREVER)
        printf("  timeout %s", units_format(UNITS_DURATION, info->timeout_ns, text));
    if (info->max_wait_ns != WEIR_FOREVER)
        printf("  max_wait %s", units_format(UNITS_DURATION, info->max_wait_ns, text));
    if (info->max_waiters != 0)
        printf("  max_waiters %u", info->max_waiters);
    if (info->flags & WEIR_SET_STRICT)
        printf("  strict");
    if (info->flags & WEIR_SET_UNFAIR)
        printf("  unfair");
    if (info->flags & WEIR_SET_FAIR_PER_LIMIT)
        printf("  fair per limit");
    if (info->flags & WEIR_SET_BOOTTIME)
        printf("  clock boottime");
    if (info->flags & WEIR_SET_HOLD_HISTOGRAM)
        printf("  hold_histogram");
}

/* Prints the bounds of a per-subject set. */
static void print_subjects(const struct weir_subjects_stats *subjects)
{
    char text[UNITS_TEXT_MAX];

    printf("  subjects  max %s", units_format(UNITS_AMOUNT, subjects->max, text));
    if (subjects->memory_max != 0)
        printf("  memory %s", units_format(UNITS_SIZE, subjects->memory_max, text));
    if (subjects->evict)
        printf("  evict %s", subjects->evict);
}

static void json_subjects(struct json *json, const struct weir_subjects_stats *subjects)
{
    json_object(json, "subjects");
    json_number(json, "max", subjects->max);
    if (subjects->memory_max != 0)
        json_number(json, "memory", subjects->memory_max);
    if (subjects->evict)
        json_text(json, "evict", subjects->evict);
    json_end_object(json);
}

/* Prints the classes of a set: priorities, the most urgent one first, or shares. */
static void print_classes(const struct weir_class_stats *classes, int n)
{
    printf(classes->weight != 0 ? "  shares" : "  priorities");
    for (int i = 0; i < n; i++)
        if (classes->weight != 0)
            printf(" %s: %llu", classes[i].name, (unsigned long long)classes[i].weight);
        else
            printf(" %s", classes[i].name);
}

static void json_classes(struct json *json, const struct weir_class_stats *classes, int n)
{
    json_array(json, "classes");
    for (int i = 0; i < n; i++) {
        json_object(json, NULL);
        json_text(json, "name", classes[i].name);
        if (classes[i].weight != 0)
            json_number(json, "weight", classes[i].weight);
        json_end_object(json);
    }
    json_end_array(json);
}

static void json_defaults(struct json *json, const struct weir_set_info *info)
{
    json_text(json, "backend", info->backend);
    if (info->lifetime)
        json_text(json, "lifetime", info->lifetime);
    if (info->timeout_ns != WEIR_FOREVER)
        json_number(json, "timeout_ns", info->timeout_ns);
    if (info->max_wait_ns != WEIR_FOREVER)
        json_number(json, "max_wait_ns", info->max_wait_ns);
    if (info->max_waiters != 0)
        json_number(json, "max_waiters", info->max_waiters);
    json_boolean(json, "strict", (info->flags & WEIR_SET_STRICT) != 0);
    json_boolean(json, "fair", (info->flags & WEIR_SET_UNFAIR) == 0);
    json_boolean(json, "per_limit", (info->flags & WEIR_SET_FAIR_PER_LIMIT) != 0);
    json_text(json, "clock", info->flags & WEIR_SET_BOOTTIME ? "boottime" : "monotonic");
    json_boolean(json, "hold_histogram", (info->flags & WEIR_SET_HOLD_HISTOGRAM) != 0);
}

/* Describes the set or pool that opens under this name. */
typedef int describe(struct check *check, const char *name, weir_pool *pool);

static void describe_limit(struct check *check, const weir_set *set, int number,
                           const struct weir_limit_stats *limit)
{
    struct weir_setting settings[SETTINGS_MAX];
    int n = weir_set_limit_settings(set, (size_t)number, settings, SETTINGS_MAX);

    n = n < SETTINGS_MAX ? n : SETTINGS_MAX;
    if (check->format == FORMAT_JSON)
        json_limit(&check->json, limit, settings, n);
    else
        print_limit(limit, settings, n);
}

static int describe_set(struct check *check, const char *name, weir_pool *pool)
{
    weir_set *set = weir_pool_set(pool, 0);
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_set_info info = {.size = sizeof(info)};
    struct weir_subjects_stats subjects = {.size = sizeof(subjects)};
    struct weir_limit_stats limits[WEIR_LIMITS_MAX];
    struct weir_class_stats classes[WEIR_CLASSES_MAX];
    int r = weir_set_stats(set, &stats, limits, WEIR_LIMITS_MAX), n = (int)weir_set_limits(set);
    int classes_n;

    if (r < 0 && r != -EHOSTUNREACH) /* no engine is asked */
        return r;
    weir_set_info(set, &info);
    weir_set_subjects(set, &subjects); /* nothing of a set that an engine keeps */
    subjects.max = info.subjects_max;
    classes_n = weir_set_classes(set, classes, WEIR_CLASSES_MAX);
    if (check->format == FORMAT_JSON) {
        json_object(&check->json, NULL);
        json_text(&check->json, "name", name);
        json_defaults(&check->json, &info);
        if (info.subjects_max != 0)
            json_subjects(&check->json, &subjects);
        if (classes_n > 0)
            json_classes(&check->json, classes, classes_n);
        json_array(&check->json, "limits");
    } else {
        printf("set %s%s", name, n == 0 ? ": no limits" : "");
        print_defaults(&info);
        if (info.subjects_max != 0)
            print_subjects(&subjects);
        if (classes_n > 0)
            print_classes(classes, classes_n);
        putchar('\n');
    }
    for (int i = 0; i < n; i++)
        describe_limit(check, set, i, &limits[i]);
    if (check->format == FORMAT_JSON) {
        json_end_array(&check->json);
        json_end_object(&check->json);
    }
    return 0;
}

static int describe_pool(struct check *check, const char *name, weir_pool *pool)
{
    const char *balancer = weir_pool_balancer(pool);
    size_t n = weir_pool_sets(pool);
    uint32_t flags = weir_pool_flags(pool);

    if (check->format != FORMAT_JSON) {
        printf("pool %s%s%s%s%s:", name, balancer ? "  " : "", balancer ? balancer : "",
               flags & WEIR_POOL_TRY_NEXT ? "  try next" : "",
               flags & WEIR_POOL_WAIT_ANY ? "  wait any" : "");
        for (size_t i = 0; i < n; i++)
            printf(" %s", weir_set_name(weir_pool_set(pool, i)));
        putchar('\n');
        return 0;
    }
    json_object(&check->json, NULL);
    json_text(&check->json, "name", name);
    json_text(&check->json, "balancer", balancer);
    json_text(&check->json, "try", flags & WEIR_POOL_TRY_NEXT ? "next" : "one");
    json_text(&check->json, "wait", flags & WEIR_POOL_WAIT_ANY ? "any" : "picked");
    json_array(&check->json, "sets");
    for (size_t i = 0; i < n; i++)
        json_text(&check->json, NULL, weir_set_name(weir_pool_set(pool, i)));
    json_end_array(&check->json);
    json_end_object(&check->json);
    return 0;
}

/* Prints the name if `weir exec` takes it. */
static int name_shared(struct check *check, const char *name, weir_pool *pool)
{
    bool is_shared = true;

    (void)check;
    for (size_t i = 0; i < weir_pool_sets(pool); i++) {
        struct weir_set_info info = {.size = sizeof(info)};

        weir_set_info(weir_pool_set(pool, i), &info);
        is_shared = is_shared && strcmp(info.backend, "thread") != 0;
    }
    if (is_shared)
        puts(name);
    return 0;
}

static int describe_all(struct check *check, weir *w, const char *const *names, int n,
                        const char *key, describe *describe_one)
{
    int r = 0;

    if (check->format == FORMAT_JSON)
        json_array(&check->json, key);
    for (int i = 0; i < n && r == 0; i++) {
        weir_pool *pool = NULL;

        r = weir_pool_open(&pool, w, names[i], 0, NULL);
        if (r == 0)
            r = describe_one(check, names[i], pool);
        weir_pool_close(pool);
    }
    if (check->format == FORMAT_JSON)
        json_end_array(&check->json);
    return r;
}

static int describe_everything(struct check *check, weir *w)
{
    int sets_n = weir_sets(w, NULL, 0), pools_n = weir_pools(w, NULL, 0), r;
    bool is_named = check->format == FORMAT_NAMES;
    const char **names = calloc((size_t)sets_n + (size_t)pools_n + 1, sizeof(*names));

    if (!names)
        return -ENOMEM;
    weir_sets(w, names, (size_t)sets_n);
    weir_pools(w, names + sets_n, (size_t)pools_n);
    if (check->format == FORMAT_TEXT)
        printf("%s: %d %s, %d %s\n", check->name, sets_n, sets_n == 1 ? "set" : "sets", pools_n,
               pools_n == 1 ? "pool" : "pools");
    r = describe_all(check, w, names, sets_n, "sets", is_named ? name_shared : describe_set);
    if (r == 0)
        r = describe_all(check, w, names + sets_n, pools_n, "pools",
                         is_named ? name_shared : describe_pool);
    free(names);
    return r;
}

/* ---- engines ---- */

#define CONNECT_NS UINT64_C(5000000000)

static int on_backend(void *userdata, const struct weir_backend_info *info)
{
    struct check *check = userdata;
    const char *why = info->message[0] != '\0' ? info->message : strerror(-info->result);

    check->is_cut_off = check->is_cut_off || info->result < 0;
    if (check->format == FORMAT_JSON) {
        json_object(&check->json, NULL);
        json_text(&check->json, "name", info->name);
        json_text(&check->json, "type", info->type);
        json_boolean(&check->json, "usable", info->result == 0);
        json_text(&check->json, "message", info->result == 0 ? info->message : why);
        json_end_object(&check->json);
    } else if (info->result < 0) {
        fprintf(stderr, "%s: backend `%s` cannot be used: %s\n", check->name, info->name, why);
    } else if (check->format == FORMAT_TEXT) {
        printf("backend %s  %s  can be used%s%s\n", info->name, info->type,
               info->message[0] != '\0' ? ": " : "", info->message);
    }
    return 0;
}

static void check_backends(struct check *check, weir *w)
{
    if (check->format == FORMAT_JSON)
        json_array(&check->json, "backends");
    weir_check_backends(w, CONNECT_NS, on_backend, check);
    if (check->format == FORMAT_JSON)
        json_end_array(&check->json);
}

/* ---- command ---- */

/* Returns whether the file is wrong, rather than the system around it. */
static bool is_complaint(int code, const struct weir_error *error)
{
    return code == -EINVAL || code == -ENOEXEC || error->line != 0;
}

static enum ending report_result(struct check *check, int r, struct weir_error *error)
{
    if (check->format != FORMAT_JSON)
        complaint_count_end(&check->warnings, "warnings", check->name);
    if (r == 0)
        return check->is_strict && check->warnings.all != 0 ? ENDING_COMPLAINTS : ENDING_FINE;
    if (check->complaints.shown == 0) { /* else it was reported already */
        if (error->file[0] == '\0')
            snprintf(error->file, sizeof(error->file), "%s", check->name);
        on_complaint(check, error);
    }
    if (check->format != FORMAT_JSON)
        complaint_count_end(&check->complaints, "complaints", check->name);
    return is_complaint(r, error) ? ENDING_COMPLAINTS : ENDING_SYSTEM;
}

/* Says what the file means, and whether its engines can be used. Returns the ending, which was this
 * one so far. */
static enum ending describe_file(struct check *check, weir *w, enum ending ending)
{
    int r = describe_everything(check, w);

    if (r < 0) {
        fprintf(stderr, "weir check: %s\n", strerror(-r));
        return ENDING_SYSTEM;
    }
    if (check->connects)
        check_backends(check, w);
    return check->is_cut_off ? ENDING_COMPLAINTS : ending;
}

static int check_file(struct check *check)
{
    struct weir_options options = {.size = sizeof(options),
                                   .plugin_dirs = check->source.plugin_dirs,
                                   .complaint = on_complaint,
                                   .userdata = check,
                                   .flags = WEIR_OPEN_APART | WEIR_OPEN_OFFLINE};
    struct weir_error error = {0};
    enum ending ending;
    weir *w = NULL;
    int r;

    if (check->format != FORMAT_NAMES || check->is_strict)
        options.flags |= WEIR_OPEN_WARNINGS;
    check->complaints = check->warnings = (struct complaint_count){0};
    check->is_cut_off = false;
    check->json = (struct json){.out = stdout};
    if (check->format == FORMAT_JSON) {
        json_object(&check->json, NULL);
        json_text(&check->json, "file", check->file);
        json_array(&check->json, "complaints");
    }
    if (strcmp(check->file, "-") == 0) {
        check->name = "<stdin>";
        r = open_input(check, &options, &w, &error);
    } else {
        options.file = check->file;
        if (check->format == FORMAT_TEXT)
            excerpt_read(&check->excerpt, check->file);
        r = weir_open(&w, &options, &error);
    }
    ending = report_result(check, r, &error);
    excerpt_free(&check->excerpt);
    if (check->format == FORMAT_JSON) {
        end_complaints(check);
        json_boolean(&check->json, "ok", r == 0);
    }
    if (r == 0)
        ending = describe_file(check, w, ending);
    if (check->format == FORMAT_JSON)
        json_end_object(&check->json);
    weir_close(w);
    return (int)ending;
}

/* Checks all files, or that of the environment. Returns the worst ending. */
static int check_all(struct check *check, char **files, int n)
{
    const char *configured = getenv("WEIR_CONFIG");
    int worst = ENDING_FINE;

    if (n == 0) {
        check->file = check->name = configured;
        return check_file(check);
    }
    for (int i = 0; i < n; i++) {
        int ending;

        check->file = check->name = files[i];
        ending = check_file(check);
        worst = ending > worst ? ending : worst;
    }
    return worst;
}

enum { OPTION_CONNECT = 300 };

int run_check(int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'},
        {"names", no_argument, NULL, 'n'},
        {"strict", no_argument, NULL, 's'},
        {"connect", no_argument, NULL, OPTION_CONNECT},
        {"plugin-dir", required_argument, NULL, 'd'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct check check = {0};
    int option;

    while ((option = getopt_long(argc, argv, "jnsd:h", options, NULL)) != -1) {
        switch (option) {
        case 'j':
            check.format = FORMAT_JSON;
            break;
        case 'n':
            check.format = FORMAT_NAMES;
            break;
        case 's':
            check.is_strict = true;
            break;
        case OPTION_CONNECT:
            check.connects = true;
            break;
        case 'd':
            if (!source_add_plugin_dir(&check.source, optarg))
                return usage_wrong(argv[0], "too many plugin directories", "");
            break;
        case 'h':
            return usage_help(help);
        default:
            return usage_hint(argv[0]);
        }
    }
    if (optind == argc && !getenv("WEIR_CONFIG"))
        return usage_wrong(argv[0], "which file? WEIR_CONFIG names none", "");
    return check_all(&check, argv + optind, argc - optind);
}
