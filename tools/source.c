/* SPDX-License-Identifier: MIT */
/* Sources of a command's sets: the configuration, the plugins, the segment directory. */
#include "source.h"
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TEXT_MAX ((size_t)16 << 20) /* bytes; the library reads no more */

/* Returns what is in a file, or NULL: it cannot be read, or is no text. */
static char *read_text(FILE *file)
{
    size_t size = 4096, n = 0;
    char *text = malloc(size), *grown = text;

    while (grown && (n += fread(text + n, 1, size - n, file)) == size && size <= TEXT_MAX) {
        size *= 2;
        grown = realloc(text, size);
        text = grown ? grown : text;
    }
    if (!grown || n == size || ferror(file) || memchr(text, '\0', n)) {
        free(text);
        return NULL;
    }
    text[n] = '\0';
    return text;
}

void source_read(struct source *source)
{
    const char *path = source->file ? source->file : secure_getenv("WEIR_CONFIG");
    FILE *file = path && !source->text ? fopen(path, "re") : NULL;

    if (!file)
        return;
    source->text = read_text(file);
    if (source->text)
        source->file = path;
    fclose(file);
}

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

/* Adds a copy of the directory to a source that has copies only. Returns 0, or 1 if it cannot. */
static int add_copy(void *userdata, const char *directory)
{
    struct source *source = userdata;
    char *copy = strdup(directory);

    if (copy && source_add_plugin_dir(source, copy))
        return 0;
    free(copy);
    return 1;
}

bool source_find_plugin_dirs(struct source *source, const char *command)
{
    struct weir_options options = source_options(source);
    struct source found = {.owns_dirs = true};
    struct weir_error error = {0};
    int r = weir_plugin_dirs(&options, add_copy, &found, &error);

    if (r > found.plugin_dirs_n) {
        source_free(&found);
        fprintf(stderr, "%s: too many plugin directories\n", command);
        return false;
    }
    if (r < 0 && (source->file || !source->process_dir)) {
        source_free(&found);
        source_complain(command, &error);
        return false;
    }
    memcpy(source->plugin_dirs, found.plugin_dirs, sizeof(found.plugin_dirs));
    source->plugin_dirs_n = found.plugin_dirs_n;
    source->owns_dirs = true;
    return true;
}

void source_free(struct source *source)
{
    for (int i = 0; source->owns_dirs && i < source->plugin_dirs_n; i++)
        free((void *)(uintptr_t)source->plugin_dirs[i]);
    free(source->text);
    *source = (struct source){0};
}

bool source_make_process_dir(const struct source *source, const char *command)
{
    const char *path = source->process_dir;

    if (!path || path[0] != '/' || mkdir(path, S_IRWXU) == 0 || errno == EEXIST)
        return true; /* a relative path is for the library to refuse */
    fprintf(stderr, "%s: directory `%s` cannot be made: %s\n", command, path, strerror(errno));
    return false;
}

struct weir_options source_options(const struct source *source)
{
    return (struct weir_options){.size = sizeof(struct weir_options),
                                 .file = source->text ? NULL : source->file,
                                 .text = source->text,
                                 .text_name = source->file,
                                 .plugin_dirs = source->plugin_dirs,
                                 .clock = source->clock,
                                 .process_dir = source->process_dir,
                                 .flags = source->flags | WEIR_OPEN_UNPUBLISHED};
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

void complaint_count_add(struct complaint_count *count, const struct weir_error *complaint)
{
    count->shown++;
    count->all = complaint->complaints;
}

void complaint_count_end(const struct complaint_count *count, const char *what, const char *file)
{
    if (count->all > count->shown)
        fprintf(stderr, "%s: %u more %s are not shown\n", file, count->all - count->shown, what);
}

struct opening {
    const char *command;
    struct complaint_count count;
    char file[sizeof(((struct weir_error *)0)->file)];
    bool waits_for_place, is_quiet;
};

static void on_complaint(void *userdata, const struct weir_error *complaint)
{
    struct opening *opening = userdata;

    if (opening->is_quiet || (complaint->code == -EUSERS && opening->waits_for_place))
        return;
    complaint_count_add(&opening->count, complaint);
    snprintf(opening->file, sizeof(opening->file), "%s", complaint->file);
    source_complain(opening->command, complaint);
}

/* While the command waits, too. `userdata` is for complaints, and is gone by then. */
static void on_log(void *userdata, enum weir_log_level level, const char *message)
{
    (void)userdata;
    if (level == WEIR_LOG_ERROR)
        fprintf(stderr, "weir: %s\n", message);
}

int source_open(const struct source *source, const char *only, const char *command, weir **ret)
{
    struct weir_options options = source_options(source);
    struct opening opening = {.command = command,
                              .waits_for_place = source->waits_for_place,
                              .is_quiet = source->is_quiet};
    const char *log = secure_getenv("WEIR_LOG"); /* then the library writes */
    struct weir_error error = {0};
    int r;

    options.only = only;
    options.log = log && *log ? NULL : on_log;
    if (source->needs_no_config && !source->text && !source->file && !getenv("WEIR_CONFIG"))
        options.text = "version: 1\n";
    options.complaint = on_complaint;
    options.userdata = &opening;
    r = weir_open(ret, &options, &error);
    complaint_count_end(&opening.count, "complaints", opening.file);
    if (r < 0 && opening.count.shown == 0 && !source->is_quiet &&
        !(r == -EUSERS && source->waits_for_place)) {
        error.code = r;
        source_complain(command, &error);
    }
    return r;
}
