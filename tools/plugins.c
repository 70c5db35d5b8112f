/* SPDX-License-Identifier: MIT */
/* `weir plugins`: lists the plugins that are found, with parameters, and the files refused. */
#include "base/units.h"
#include "json.h"
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
    "Usage: weir plugins [--json] [-c FILE] [DIR]...\n"
    "\n"
    "Lists the plugins that a program would find, in the order of the search, DIR before anything\n"
    "else, and the files that are refused, with the reason.\n"
    "\n"
    "  -j, --json             write JSON\n"
    "  -c, --config FILE      also look in the plugin_dirs of this configuration\n"
    "  -d, --plugin-dir DIR   like DIR\n"
    "  -h, --help             show this text\n"
    "\n"
    "Exit status: 0 fine, 1 something is refused, 2 wrong usage, 3 something cannot be read or\n"
    "written.\n";

/* Maxima above this are not printed. */
#define HUGE_VALUE UINT64_C(1000000000000000000)

struct listing {
    bool as_json;
    struct json json;
    unsigned found, refused, skipped;
    char path[4096]; /* of the last file shown */
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
        [WEIR_PARAMETER_TEXT] = "text",
    };

    return names[type];
}

static bool has_range(const struct weir_parameter *parameter)
{
    return parameter->type == WEIR_PARAMETER_AMOUNT || parameter->type == WEIR_PARAMETER_DURATION;
}

/* Returns whether there is a default. 0 is none for amounts, durations and texts; `doc` then
 * explains. */
static bool has_default(const struct weir_parameter *parameter)
{
    return (parameter->flags & WEIR_PARAMETER_REQUIRED) == 0 &&
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
    case WEIR_PARAMETER_BOOLEAN:
        return value != 0 ? "true" : "false";
    default:
        return parameter->choices[value];
    }
}

/* ---- text output ---- */

static void print_parameter(const struct weir_parameter *parameter)
{
    char low[UNITS_TEXT_MAX], high[UNITS_TEXT_MAX];

    printf("    %-12s %s", parameter->name, parameter_type_name(parameter->type));
    if (has_range(parameter) && parameter->max > HUGE_VALUE)
        printf(" from %s", format_value(parameter, parameter->min, low));
    else if (has_range(parameter))
        printf(" %s to %s", format_value(parameter, parameter->min, low),
               format_value(parameter, parameter->max, high));
    for (size_t i = 0; parameter->type == WEIR_PARAMETER_CHOICE && parameter->choices[i]; i++)
        printf("%s%s", i == 0 ? " " : "|", parameter->choices[i]);
    if ((parameter->flags & WEIR_PARAMETER_REQUIRED) != 0)
        printf(", required");
    else if (has_default(parameter))
        printf(", default %s", format_value(parameter, parameter->default_value, low));
    putchar('\n');
    if (parameter->doc[0] != '\0')
        printf("    %-12s %s\n", "", parameter->doc);
}

static void print_plugin(const struct weir_plugin *plugin)
{
    printf("  %s %s %s: %s\n", kind_name(plugin->kind), plugin->name, plugin->version,
           plugin->summary);
    for (uint32_t i = 0; i < plugin->parameters_n; i++)
        print_parameter(&plugin->parameters[i]);
}

/* ---- JSON output ---- */

static void json_parameter(struct json *json, const struct weir_parameter *parameter)
{
    char buffer[UNITS_TEXT_MAX];

    json_object(json, NULL);
    json_text(json, "name", parameter->name);
    json_text(json, "type", parameter_type_name(parameter->type));
    json_boolean(json, "required", (parameter->flags & WEIR_PARAMETER_REQUIRED) != 0);
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

static int on_plugin(void *userdata, const struct weir_plugin_info *info)
{
    struct listing *listing = userdata;

    if (info->plugin)
        listing->found++;
    else if (info->skipped)
        listing->skipped++;
    else
        listing->refused++;
    if (listing->as_json) {
        if (info->plugin)
            json_plugin(&listing->json, info->path, info->plugin);
        else
            json_refusal(&listing->json, info);
        return 0;
    }
    if (strcmp(listing->path, info->path) != 0)
        printf("%s\n", info->path);
    snprintf(listing->path, sizeof(listing->path), "%s", info->path);
    if (info->plugin)
        print_plugin(info->plugin);
    else
        printf("  %s\n", info->refusal->message);
    return 0;
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

static int list(struct listing *listing, const struct source *source)
{
    struct weir_options options = {.size = sizeof(options),
                                   .file = source->file,
                                   .plugin_dirs = source->plugin_dirs,
                                   .complaint = complain};
    struct complaint_count count = {0};
    struct weir_error error = {0};
    int r;

    if (listing->as_json) {
        json_object(&listing->json, NULL);
        json_array(&listing->json, "plugins");
    }
    options.userdata = &count;
    r = weir_plugins(&options, on_plugin, listing, &error);
    complaint_count_end(&count, "complaints", error.file);
    if (listing->as_json) {
        json_end_array(&listing->json);
        json_end_object(&listing->json);
    } else if (r >= 0) {
        printf("%u %s, %u refused", listing->found, listing->found == 1 ? "plugin" : "plugins",
               listing->refused);
        if (listing->skipped > 0)
            printf(", %u skipped", listing->skipped);
        putchar('\n');
    }
    if (r < 0 && error.line == 0) {
        fprintf(stderr, "weir plugins: %s%s%s\n", error.file, error.file[0] != '\0' ? ": " : "",
                error.message);
        return ENDING_SYSTEM;
    }
    return r < 0 || listing->refused > 0 ? ENDING_COMPLAINTS : ENDING_FINE;
}

int run_plugins(int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'},
        {"plugin-dir", required_argument, NULL, 'd'},
        {"config", required_argument, NULL, 'c'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct listing listing = {.json = {.out = stdout}};
    struct source source = {0};
    int option;

    while ((option = getopt_long(argc, argv, "-jd:c:h", options, NULL)) != -1) {
        switch (option) {
        case 'j':
            listing.as_json = true;
            break;
        case 'c':
            source.file = optarg;
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
    return list(&listing, &source);
}
