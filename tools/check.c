/* SPDX-License-Identifier: MIT */
/* `weir check`: complaints about a configuration, or a summary of what was understood. */
#include "check_summary.h"
#include "excerpt.h"
#include "json.h"
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
    int r = check->format == FORMAT_NAMES
                ? check_names(w)
                : check_summary(check->format == FORMAT_JSON ? &check->json : NULL, w, check->name);

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
