/* SPDX-License-Identifier: MIT */
/* Sources of a command's sets: the configuration, the plugins, the segment directory. */
#ifndef WEIR_TOOLS_SOURCE_H
#define WEIR_TOOLS_SOURCE_H

#include <stdbool.h>
#include <weir/weir.h>

#define SOURCE_DIRS_MAX 64

/* All zero: the file named by WEIR_CONFIG, and its directories. */
struct source {
    const char *file;                             /* a configuration, or NULL */
    char *text;                                   /* what was in it; NULL: it is read when opened */
    const char *process_dir;                      /* segment directory, or NULL */
    const char *plugin_dirs[SOURCE_DIRS_MAX + 1]; /* NULL-terminated */
    int plugin_dirs_n;
    bool owns_dirs;       /* plugin_dirs are copies; see source_free() */
    bool waits_for_place; /* -EUSERS is not reported: the command tries again */
    bool is_quiet;        /* nothing is reported */
    bool needs_no_config; /* the command line defines the set: no configuration is fine, even if the
                             environment requires one */
    uint32_t flags;       /* WEIR_OPEN_* */
    const struct weir_clock *clock; /* borrowed while the instance is opened, or NULL */
};

/* Options of a source: part of getopt_long's table and of its letters. */
#define SOURCE_LETTERS "f:d:"
#define SOURCE_OPTIONS                                                                             \
    {"file", required_argument, NULL, SOURCE_FILE}, {"plugin-dir", required_argument, NULL, 'd'},  \
    {                                                                                              \
        "process-dir", required_argument, NULL, SOURCE_PROCESS_DIR                                 \
    }
enum { SOURCE_FILE = 256, SOURCE_PROCESS_DIR };

/* Takes an option of a source. False: it is another option, or wrong, which is then reported. */
bool source_option(struct source *source, int option, const char *argument, const char *command);

/* Reads the configuration, so that it is not read again: another process may not have it, or it is
 * a pipe. If it cannot be read, that is left for source_open() to report. */
void source_read(struct source *source);

/* Returns false if there is no room. */
bool source_add_plugin_dir(struct source *source, const char *directory);

/*
 * Adds the plugin directories that the configuration names, for sets that are opened by the
 * definition in their segment. Returns false if the configuration cannot be read, which is
 * reported; one that nothing asked for but the environment is not, if it matters for nothing else.
 * End with source_free().
 */
bool source_find_plugin_dirs(struct source *source, const char *command);
void source_free(struct source *source);

/* Makes the segment directory of the command line, mode 0700, if it is missing and its parent is
 * there. Returns false, reported, if it cannot. */
bool source_make_process_dir(const struct source *source, const char *command);

/* Returns the options for weir_open. They borrow from `source`. */
struct weir_options source_options(const struct source *source);

/* Opens an instance with the set or pool `only` of the source's configuration. Every complaint goes
 * to the standard error, with its place or else behind `command`. Returns 0 or a negative errno. */
int source_open(const struct source *source, const char *only, const char *command, weir **ret);

/* Writes an error to the standard error: its place, or else `command`, and the message. */
void source_complain(const char *command, const struct weir_error *error);

/* Complaints about one configuration, as they are reported. All zero at first. */
struct complaint_count {
    unsigned shown;
    unsigned all; /* the library reports no more than 1000 of them */
};

void complaint_count_add(struct complaint_count *count, const struct weir_error *complaint);

/* Writes to the standard error how many complaints (or `what`) about `file` were not shown, if any.
 */
void complaint_count_end(const struct complaint_count *count, const char *what, const char *file);

#endif
