/* SPDX-License-Identifier: MIT */
/* `weir plugins`: lists the plugins that are found, with parameters, and the files refused. */
#include "base/units.h"
#include "json.h"
#include "limit_option.h"
#include "plugin_look.h"
#include "source.h"
#include "usage.h"
#include "weir.h"
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <weir/algorithm.h>
#include <weir/plugin.h>
#include <weir/weir.h>

static const char help[] =
    "Usage: weir plugins [--json] [-c FILE] [-t DURATION] [DIR]...\n"
    "\n"
    "Lists the plugins that a program would find, in the order of the search, DIR before anything\n"
    "else, and the files that are refused, with the reason. Each file is loaded in a process of "
    "its\n"
    "own: one that crashes or hangs is refused.\n"
    "\n"
    "  -j, --json             write JSON\n"
    "  -c, --config FILE      also look in the plugin_dirs of this configuration\n"
    "  -d, --plugin-dir DIR   like DIR\n"
    "  -t, --timeout DURATION how long it may take to load a file; default: 5s\n"
    "  -h, --help             show this text\n"
    "\n"
    "Exit status: 0 fine, 1 something is refused, 2 wrong usage, 3 something cannot be read or\n"
    "written.\n";

#define TIMEOUT_NS UINT64_C(5000000000)

/* Maxima above this are not printed. */
#define HUGE_VALUE UINT64_C(1000000000000000000)

struct listing {
    struct looks looks;
    uint64_t timeout_ns; /* of the look at a file */
    int error;           /* a look was not possible, and why */
};

static const char *kind_name(uint32_t kind)
{
    static const char *const names[] = {
        [WEIR_PLUGIN_ALGORITHM] = "algorithm",
        [WEIR_PLUGIN_BALANCER] = "balancer",
        [WEIR_PLUGIN_BACKEND] = "backend",
    };

    return names[kind];
}

static const char *parameter_type_name(uint32_t type)
{
    static const char *const names[] = {
        [WEIR_PARAMETER_AMOUNT] = "amount",   [WEIR_PARAMETER_DURATION] = "duration",
        [WEIR_PARAMETER_BOOLEAN] = "boolean", [WEIR_PARAMETER_CHOICE] = "choice",
        [WEIR_PARAMETER_TEXT] = "text",       [WEIR_PARAMETER_RATIO] = "ratio",
        [WEIR_PARAMETER_SIZE] = "size",       [WEIR_PARAMETER_ZONE] = "zone",
    };

    return names[type];
}

static bool has_range(const struct weir_parameter *parameter)
{
    return parameter->type == WEIR_PARAMETER_AMOUNT || parameter->type == WEIR_PARAMETER_DURATION ||
           parameter->type == WEIR_PARAMETER_RATIO || parameter->type == WEIR_PARAMETER_SIZE;
}

/* Returns whether there is a default. 0 is none for amounts, durations and texts; `doc` then
 * explains. */
static bool has_default(const struct weir_parameter *parameter)
{
    return (parameter->flags & (WEIR_PARAMETER_REQUIRED | WEIR_PARAMETER_LIST)) == 0 &&
           (parameter->default_value != 0 || parameter->type == WEIR_PARAMETER_BOOLEAN ||
            parameter->type == WEIR_PARAMETER_CHOICE);
}

/* Formats a value as in a configuration. */
static const char *format_value(const struct weir_parameter *parameter, uint64_t value,
                                char buffer[UNITS_TEXT_MAX])
{
    switch (parameter->type) {
    case WEIR_PARAMETER_AMOUNT:
        return units_format(UNITS_AMOUNT, value, buffer);
    case WEIR_PARAMETER_DURATION:
        return units_format(UNITS_DURATION, value, buffer);
    case WEIR_PARAMETER_RATIO:
        return units_format(UNITS_RATIO, value, buffer);
    case WEIR_PARAMETER_SIZE:
        return units_format(UNITS_SIZE, value, buffer);
    case WEIR_PARAMETER_BOOLEAN:
        return value != 0 ? "true" : "false";
    default:
        return parameter->choices[value];
    }
}

/* ---- text output ---- */

static void print_parameter(FILE *out, const struct weir_parameter *parameter)
{
    char low[UNITS_TEXT_MAX], high[UNITS_TEXT_MAX];

    fprintf(out, "    %-12s %s%s%s", parameter->name,
            (parameter->flags & WEIR_PARAMETER_LIST) != 0 ? "list of " : "",
            (parameter->flags & WEIR_PARAMETER_SECRET) != 0 ? "secret " : "",
            parameter_type_name(parameter->type));
    if (has_range(parameter) && parameter->max > HUGE_VALUE)
        fprintf(out, " from %s", format_value(parameter, parameter->min, low));
    else if (has_range(parameter))
        fprintf(out, " %s to %s", format_value(parameter, parameter->min, low),
                format_value(parameter, parameter->max, high));
    for (size_t i = 0; parameter->type == WEIR_PARAMETER_CHOICE && parameter->choices[i]; i++)
        fprintf(out, "%s%s", i == 0 ? " " : "|", parameter->choices[i]);
    if ((parameter->flags & WEIR_PARAMETER_REQUIRED) != 0)
        fprintf(out, ", required");
    else if (has_default(parameter))
        fprintf(out, ", default %s", format_value(parameter, parameter->default_value, low));
    fputc('\n', out);
    if (parameter->doc[0] != '\0')
        fprintf(out, "    %-12s %s\n", "", parameter->doc);
}

static void print_plugin(FILE *out, const struct weir_plugin *plugin)
{
    fprintf(out, "  %s %s %s: %s\n", kind_name(plugin->kind), plugin->name, plugin->version,
            plugin->summary);
    for (uint32_t i = 0; i < plugin->parameters_n; i++)
        print_parameter(out, &plugin->parameters[i]);
}

/* ---- JSON output ---- */

static void json_parameter(struct json *json, const struct weir_parameter *parameter)
{
    char buffer[UNITS_TEXT_MAX];

    json_object(json, NULL);
    json_text(json, "name", parameter->name);
    json_text(json, "type", parameter_type_name(parameter->type));
    json_boolean(json, "required", (parameter->flags & WEIR_PARAMETER_REQUIRED) != 0);
    json_boolean(json, "list", (parameter->flags & WEIR_PARAMETER_LIST) != 0);
    json_boolean(json, "secret", (parameter->flags & WEIR_PARAMETER_SECRET) != 0);
    if (has_range(parameter)) {
        json_number(json, "min", parameter->min);
        json_number(json, "max", parameter->max);
    }
    if (parameter->type == WEIR_PARAMETER_CHOICE) {
        json_array(json, "choices");
        for (size_t i = 0; parameter->choices[i]; i++)
            json_text(json, NULL, parameter->choices[i]);
        json_end_array(json);
    }
    if (!has_default(parameter))
        json_null(json, "default");
    else if (has_range(parameter))
        json_number(json, "default", parameter->default_value);
    else if (parameter->type == WEIR_PARAMETER_BOOLEAN)
        json_boolean(json, "default", parameter->default_value != 0);
    else
        json_text(json, "default", format_value(parameter, parameter->default_value, buffer));
    json_text(json, "doc", parameter->doc);
    json_end_object(json);
}

static void json_types(struct json *json, const struct weir_algorithm *algorithm)
{
    json_array(json, "types");
    if ((algorithm->types & 1u << WEIR_LIMIT_RATE) != 0)
        json_text(json, NULL, "rate");
    if ((algorithm->types & 1u << WEIR_LIMIT_CALL) != 0)
        json_text(json, NULL, "call");
    if ((algorithm->types & 1u << WEIR_LIMIT_RESOURCE) != 0)
        json_text(json, NULL, "resource");
    json_end_array(json);
}

static void json_plugin(struct json *json, const char *path, const struct weir_plugin *plugin)
{
    char state_id[17];
    json_object(json, NULL);
    json_text(json, "path", path);
    json_text(json, "kind", kind_name(plugin->kind));
    json_text(json, "name", plugin->name);
    json_text(json, "version", plugin->version);
    snprintf(state_id, sizeof(state_id), "%016" PRIx64, plugin->state_id);
    json_text(json, "state_id", state_id);
    json_text(json, "summary", plugin->summary);
    if (plugin->kind == WEIR_PLUGIN_ALGORITHM)
        json_types(json, plugin->ops);
    json_array(json, "parameters");
    for (uint32_t i = 0; i < plugin->parameters_n; i++)
        json_parameter(json, &plugin->parameters[i]);
    json_end_array(json);
    json_end_object(json);
}

/* ---- command ---- */

static void json_refusal(struct json *json, const struct weir_plugin_info *info)
{
    json_object(json, NULL);
    json_text(json, "path", info->path);
    json_text(json, "refusal", info->refusal->message);
    json_boolean(json, "skipped", info->skipped);
    json_end_object(json);
}

static void render_text(FILE *out, const struct weir_plugin_info *info)
{
    if (info->plugin)
        print_plugin(out, info->plugin);
    else
        fprintf(out, "  %s\n", info->refusal->message);
}

/* An element of the array of plugins. */
static void render_json(FILE *out, const struct weir_plugin_info *info)
{
    struct json json = {.out = out, .depth = 2};

    if (info->plugin)
        json_plugin(&json, info->path, info->plugin);
    else
        json_refusal(&json, info);
}

static int on_file(void *userdata, const struct weir_plugin_info *info)
{
    struct listing *listing = userdata;

    listing->error = info->refusal
                         ? looks_add_refusal(&listing->looks, info->path, info->refusal)
                         : looks_add_file(&listing->looks, info->path, listing->timeout_ns);
    return listing->error;
}

static void write_json(const struct looks *looks)
{
    struct json json = {.out = stdout};

    json_object(&json, NULL);
    json_array(&json, "plugins");
    for (size_t i = 0; i < looks->n; i++)
        json_element(&json, looks->items[i].text, looks->items[i].text_size);
    json_end_array(&json);
    json_array(&json, "hidden");
    for (size_t i = 0; i < looks->n; i++) {
        const struct look *look = &looks->items[i];

        if (look->outcome != LOOK_PLUGIN || !looks_is_hidden(looks, look))
            continue;
        json_object(&json, NULL);
        json_text(&json, "path", look->path);
        json_text(&json, "kind", kind_name(look->kind));
        json_text(&json, "name", look->name);
        json_text(&json, "by", looks_used(looks, look)->path);
        json_end_object(&json);
    }
    json_end_array(&json);
    json_end_object(&json);
}

/* Says which other plugins of its name are not used because of this one. */
static void write_hidden(const struct looks *looks, const struct look *used)
{
    for (size_t i = 0; i < looks->n; i++) {
        const struct look *look = &looks->items[i];

        if (look->outcome == LOOK_PLUGIN && looks_is_hidden(looks, look) &&
            looks_used(looks, look) == used)
            printf("    hides another %s `%s`, that of %s\n", kind_name(look->kind), look->name,
                   look->path);
    }
}

static void write_text(const struct looks *looks, const unsigned n[LOOK_OUTCOMES])
{
    const char *path = "";

    for (size_t i = 0; i < looks->n; i++) {
        const struct look *look = &looks->items[i];

        if (strcmp(path, look->path) != 0)
            printf("%s\n", look->path);
        path = look->path;
        fwrite(look->text, 1, look->text_size, stdout);
        if (look->outcome == LOOK_PLUGIN)
            write_hidden(looks, look);
    }
    printf("%u %s, %u refused", n[LOOK_PLUGIN], n[LOOK_PLUGIN] == 1 ? "plugin" : "plugins",
           n[LOOK_REFUSED]);
    if (n[LOOK_SKIPPED] > 0)
        printf(", %u skipped", n[LOOK_SKIPPED]);
    putchar('\n');
}

/* A complaint without a place concerns reading the file, and is reported in the end. */
static void complain(void *userdata, const struct weir_error *complaint)
{
    complaint_count_add(userdata, complaint);
    if (complaint->line == 0)
        return;
    fprintf(stderr, "%s:%u:%u: %s\n", complaint->file, complaint->line, complaint->column,
            complaint->message);
}

/* Writes what was found, or, if that is an error, only what it was found in as JSON. */
static int show(const struct looks *looks, bool as_json, bool is_error)
{
    unsigned n[LOOK_OUTCOMES] = {0};

    for (size_t i = 0; i < looks->n; i++)
        n[looks->items[i].outcome]++;
    if (as_json)
        write_json(looks);
    else if (!is_error)
        write_text(looks, n);
    return n[LOOK_REFUSED] > 0 ? ENDING_COMPLAINTS : ENDING_FINE;
}

static int list(struct listing *listing, const struct source *source, bool as_json)
{
    struct weir_options options = {.size = sizeof(options),
                                   .file = source->file,
                                   .plugin_dirs = source->plugin_dirs,
                                   .complaint = complain};
    struct complaint_count count = {0};
    struct weir_error error = {0};
    int r, ending;

    listing->looks.render = as_json ? render_json : render_text;
    options.userdata = &count;
    r = weir_plugin_files(&options, on_file, listing, &error);
    complaint_count_end(&count, "complaints", error.file);
    ending = show(&listing->looks, as_json, r < 0 || listing->error < 0);
    looks_free(&listing->looks);
    if (listing->error < 0) {
        fprintf(stderr, "weir plugins: a file cannot be looked at: %s\n",
                strerror(-listing->error));
        return ENDING_SYSTEM;
    }
    if (r < 0 && error.line == 0) {
        fprintf(stderr, "weir plugins: %s%s%s\n", error.file, error.file[0] != '\0' ? ": " : "",
                error.message);
        return ENDING_SYSTEM;
    }
    return r < 0 ? ENDING_COMPLAINTS : ending;
}

int run_plugins(int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'},         {"plugin-dir", required_argument, NULL, 'd'},
        {"config", required_argument, NULL, 'c'}, {"timeout", required_argument, NULL, 't'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
    };
    struct listing listing = {.timeout_ns = TIMEOUT_NS};
    struct option_complaint wrong;
    struct source source = {0};
    bool as_json = false;
    int option;

    while ((option = getopt_long(argc, argv, "-jd:c:t:h", options, NULL)) != -1) {
        switch (option) {
        case 'j':
            as_json = true;
            break;
        case 'c':
            source.file = optarg;
            break;
        case 't':
            if (!duration_option_parse(optarg, &listing.timeout_ns, &wrong))
                return usage_wrong(argv[0], wrong.text, optarg);
            break;
        case 'h':
            return usage_help(help);
        case 'd':
        case 1: /* a DIR among the options; directories are searched in the order given */
            if (!source_add_plugin_dir(&source, optarg))
                return usage_wrong(argv[0], "too many plugin directories", "");
            break;
        default:
            return usage_hint(argv[0]);
        }
    }
    for (; optind < argc; optind++)
        if (!source_add_plugin_dir(&source, argv[optind]))
            return usage_wrong(argv[0], "too many plugin directories", "");
    return list(&listing, &source, as_json);
}
