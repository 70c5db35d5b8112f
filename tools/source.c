/* SPDX-License-Identifier: MIT */
/* Sources of a command's sets: the configuration, the plugins, the segment directory. */
#include "source.h"
#include <stdio.h>
#include <string.h>

bool source_add_plugin_dir(struct source *source, const char *directory)
{
    if (source->plugin_dirs_n == SOURCE_DIRS_MAX)
        return false;
    source->plugin_dirs[source->plugin_dirs_n++] = directory;
    return true;
}

bool source_option(struct source *source, int option, const char *argument, const char *command)
{
    if (option == SOURCE_FILE || option == 'f') {
        source->file = argument;
    } else if (option == SOURCE_PROCESS_DIR) {
        source->process_dir = argument;
    } else if (option != 'd') {
        return false;
    } else if (!source_add_plugin_dir(source, argument)) {
        fprintf(stderr, "%s: too many plugin directories\n", command);
        return false;
    }
    return true;
}

struct weir_options source_options(const struct source *source)
{
    return (struct weir_options){.size = sizeof(struct weir_options),
                                 .file = source->file,
                                 .plugin_dirs = source->plugin_dirs,
                                 .process_dir = source->process_dir};
}

void source_complain(const char *command, const struct weir_error *error)
{
    const char *message = error->message[0] != '\0' ? error->message : strerror(-error->code);

    if (error->line != 0)
        fprintf(stderr, "%s:%u:%u: %s\n", error->file, error->line, error->column, message);
    else if (error->file[0] != '\0')
        fprintf(stderr, "%s: %s: %s\n", command, error->file, message);
    else
        fprintf(stderr, "%s: %s\n", command, message);
}

struct complaint_count {
    const char *command;
    unsigned n;
};

static void on_complaint(void *userdata, const struct weir_error *complaint)
{
    struct complaint_count *count = userdata;

    count->n++;
    source_complain(count->command, complaint);
}

int source_open(const struct source *source, const char *only, const char *command, weir **ret)
{
    struct weir_options options = source_options(source);
    struct complaint_count count = {.command = command};
    struct weir_error error = {0};
    int r;

    options.only = only;
    options.complaint = on_complaint;
    options.userdata = &count;
    r = weir_open(ret, &options, &error);
    if (r < 0 && count.n == 0) {
        error.code = r;
        source_complain(command, &error);
    }
    return r;
}
