/* SPDX-License-Identifier: MIT */
/*
 * Finds plugins by name. For the name `x`, the file x.so is tried in each directory in turn,
 * because the plugin is nearly always there. Only then are all files of the directories searched
 * for a plugin of that name. The first match wins. Every file is loaded at most once.
 */
#include "plugin/plugin_search.h"
#include "base/invariant.h"
#include "base/str_map.h"
#include "os/os.h"
#include "plugin/plugin_builtin.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLUGIN_SUFFIX          ".so"
#define PLUGIN_DIR_ENTRIES_MAX 4096u /* files examined per directory */

struct plugin_search {
    char **dirs;
    size_t dirs_n;
    size_t default_dirs_n; /* last directories, searched after those of the configuration */
    struct plugin_file *files;
    struct str_map by_name[PLUGIN_KINDS]; /* loaded plugins that were found before */
};

/* ---- directories ---- */

static bool plugin_dir_is_known(const struct plugin_search *plugins, const char *dir)
{
    for (size_t i = 0; i < plugins->dirs_n; i++) {
        if (strcmp(plugins->dirs[i], dir) == 0)
            return true;
    }
    return false;
}

/* Adds a directory before the last `after_n`, unless it is listed already. */
static int plugin_dir_add(struct plugin_search *plugins, const char *dir, size_t after_n)
{
    char **grown, *copy;
    size_t at = plugins->dirs_n - after_n;

    WEIR_INVARIANT(after_n <= plugins->dirs_n);
    if (dir[0] == '\0' || plugin_dir_is_known(plugins, dir))
        return 0;
    grown = os_realloc(plugins->dirs, plugins->dirs_n + 1, sizeof *grown);
    if (grown == NULL)
        return -ENOMEM;
    plugins->dirs = grown;
    copy = os_strdup(dir);
    if (copy == NULL)
        return -ENOMEM;
    memmove(grown + at + 1, grown + at, after_n * sizeof *grown);
    grown[at] = copy;
    plugins->dirs_n++;
    return 0;
}

/* Adds the directories of a colon-separated list, which is modified. */
static int plugin_path_add(struct plugin_search *plugins, char *path)
{
    char *rest = path;
    int r = 0;

    while (rest != NULL && r == 0)
        r = plugin_dir_add(plugins, strsep(&rest, ":"), 0);
    return r;
}

static int plugin_default_dirs_add(struct plugin_search *plugins)
{
    const char *path = os_getenv("WEIR_PLUGIN_PATH");
    size_t before = plugins->dirs_n;
    int r = 0;

    if (path != NULL) {
        char *copy = os_strdup(path);

        r = copy == NULL ? -ENOMEM : plugin_path_add(plugins, copy);
        os_free(copy);
    }
    if (r == 0 && plugin_builtin_any())
        r = plugin_dir_add(plugins, PLUGIN_BUILTIN_DIR, 0);
    if (r == 0)
        r = plugin_dir_add(plugins, WEIR_PLUGIN_DIR, 0);
    plugins->default_dirs_n = plugins->dirs_n - before;
    return r;
}

int plugin_search_new(struct plugin_search **ret, const char *const *dirs)
{
    struct plugin_search *plugins = os_alloc(1, sizeof *plugins);
    int r = 0;

    if (plugins == NULL)
        return -ENOMEM;
    for (; dirs != NULL && *dirs != NULL && r == 0; dirs++)
        r = plugin_dir_add(plugins, *dirs, 0);
    if (r == 0)
        r = plugin_default_dirs_add(plugins);
    if (r < 0) {
        plugin_search_free(plugins);
        return r;
    }
    *ret = plugins;
    return 0;
}

int plugin_search_add_dirs(struct plugin_search *plugins, const char *const *dirs, size_t n)
{
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++)
        r = plugin_dir_add(plugins, dirs[i], plugins->default_dirs_n);
    return r;
}

void plugin_search_free(struct plugin_search *plugins)
{
    if (plugins == NULL)
        return;
    while (plugins->files != NULL) {
        struct plugin_file *next = plugins->files->next;

        plugin_file_free(plugins->files);
        plugins->files = next;
    }
    for (size_t i = 0; i < plugins->dirs_n; i++)
        os_free(plugins->dirs[i]);
    for (size_t i = 0; i < PLUGIN_KINDS; i++)
        str_map_free(&plugins->by_name[i]);
    os_free(plugins->dirs);
    os_free(plugins);
}

/* ---- files ---- */

static bool plugin_path_matches(const char *path, const char *dir, const char *name)
{
    size_t length = strlen(dir);

    return strncmp(path, dir, length) == 0 && path[length] == '/' &&
           strcmp(path + length + 1, name) == 0;
}

/* Returns the file, loaded on first use. A refused file is checked again: its permissions may have
 * been corrected. Returns 0, -ENOENT or -ENOMEM. */
static int plugin_file_get(struct plugin_search *plugins, const char *dir, const char *name,
                           struct plugin_file **ret)
{
    struct plugin_file **link = &plugins->files, *file;
    int r;

    while (*link != NULL && !plugin_path_matches((*link)->path, dir, name))
        link = &(*link)->next;
    file = *link;
    if (file != NULL && file->refusal.code == 0) {
        *ret = file;
        return 0;
    }
    if (file != NULL) {
        *link = file->next;
        plugin_file_free(file);
    }
    r = plugin_file_load(&file, dir, name);
    if (r < 0)
        return r;
    file->next = plugins->files;
    plugins->files = file;
    *ret = file;
    return 0;
}

/* Names of a directory's files in alphabetical order, because directory order is arbitrary. */
struct dir_entries {
    char **names;
    size_t n;
};

static int dir_entries_add(struct dir_entries *entries, const char *name)
{
    char **grown = os_realloc(entries->names, entries->n + 1, sizeof *grown);

    if (grown == NULL)
        return -ENOMEM;
    entries->names = grown;
    grown[entries->n] = os_strdup(name);
    if (grown[entries->n] == NULL)
        return -ENOMEM;
    entries->n++;
    return 0;
}

static void dir_entries_free(struct dir_entries *entries)
{
    for (size_t i = 0; i < entries->n; i++)
        os_free(entries->names[i]);
    os_free(entries->names);
}

static int dir_entries_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool plugin_has_suffix(const char *name)
{
    size_t length = strlen(name), suffix = strlen(PLUGIN_SUFFIX);

    return length > suffix && strcmp(name + length - suffix, PLUGIN_SUFFIX) == 0;
}

static int entries_read_builtin(struct dir_entries *ret)
{
    int r = 0;

    for (const struct plugin_builtin *builtin = plugin_builtins; builtin->file && r == 0; builtin++)
        r = dir_entries_add(ret, builtin->file);
    return r;
}

/* Lists the files of a directory that may hold plugins. */
static int dir_entries_read(const char *dir, struct dir_entries *ret)
{
    char name[256];
    void *directory = NULL;
    int r;

    if (strcmp(dir, PLUGIN_BUILTIN_DIR) == 0)
        return entries_read_builtin(ret);
    r = os_dir_open(dir, &directory);
    if (r < 0)
        return r;
    while ((r = os_dir_next(directory, name, sizeof name)) > 0) {
        if (!plugin_has_suffix(name))
            continue;
        r = ret->n == PLUGIN_DIR_ENTRIES_MAX ? -E2BIG : dir_entries_add(ret, name);
        if (r < 0)
            break;
    }
    os_dir_close(directory);
    if (r == 0 && ret->n > 1)
        qsort(ret->names, ret->n, sizeof *ret->names, dir_entries_compare);
    return r;
}

/* Visits the files of one directory. A nonzero result of `visit` ends it. */
static int plugin_dir_visit(struct plugin_search *plugins, size_t index,
                            const struct plugin_visitor *visitor)
{
    const char *dir = plugins->dirs[index];
    struct dir_entries entries = {0};
    int r = dir_entries_read(dir, &entries);

    WEIR_INVARIANT(index < plugins->dirs_n && plugins->default_dirs_n <= plugins->dirs_n);
    if (r < 0 && r != -ENOMEM) {
        /* An absent directory is reported only if the program or the configuration named it. */
        bool is_named = r != -ENOENT || index < plugins->dirs_n - plugins->default_dirs_n;

        r = is_named ? visitor->unreadable(visitor->userdata, dir, r) : 0;
    }
    for (size_t i = 0; i < entries.n && r == 0; i++) {
        struct plugin_file *file;

        r = plugin_file_get(plugins, dir, entries.names[i], &file);
        if (r == 0)
            r = visitor->visit(visitor->userdata, file);
        else if (r == -ENOENT) /* a dangling link, or removed meanwhile */
            r = 0;
    }
    dir_entries_free(&entries);
    return r;
}

int plugin_search_visit(struct plugin_search *plugins, const struct plugin_visitor *visitor)
{
    int r = 0;

    for (size_t i = 0; i < plugins->dirs_n && r == 0; i++)
        r = plugin_dir_visit(plugins, i, visitor);
    return r;
}

/* ---- by name ---- */

/* A search for one plugin, and its results. */
struct plugin_query {
    enum weir_plugin_kind kind;
    const char *name;
    struct plugin *plugin;
    const struct plugin_file *refused_file; /* the first refused file */
};

static struct plugin *plugin_file_find(const struct plugin_file *file, enum weir_plugin_kind kind,
                                       const char *name)
{
    for (uint32_t i = 0; i < file->entries_n; i++) {
        struct plugin *plugin = &file->entries[i].plugin;

        if (plugin->kind == kind && strcmp(plugin->name, name) == 0)
            return plugin;
    }
    return NULL;
}

static int plugin_query_file(void *userdata, const struct plugin_file *file)
{
    struct plugin_query *query = userdata;

    query->plugin = plugin_file_find(file, query->kind, query->name);
    if (file->refusal.code != 0 && query->refused_file == NULL)
        query->refused_file = file;
    return query->plugin != NULL;
}

static int plugin_query_skip_dir(void *userdata, const char *dir, int code)
{
    (void)userdata, (void)dir, (void)code;
    return 0;
}

/* Looks for NAME.so. A refused file ends the search: no other plugin is a substitute for it. */
static int plugin_query_by_file_name(struct plugin_search *plugins, struct plugin_query *query)
{
    char name[PLUGIN_NAME_MAX + sizeof PLUGIN_SUFFIX];

    snprintf(name, sizeof name, "%.*s" PLUGIN_SUFFIX, (int)PLUGIN_NAME_MAX, query->name);
    for (size_t i = 0; i < plugins->dirs_n && query->plugin == NULL; i++) {
        struct plugin_file *file;
        int r = plugin_file_get(plugins, plugins->dirs[i], name, &file);

        if (r == -ENOENT)
            continue;
        if (r < 0)
            return r;
        plugin_query_file(query, file);
        if (file->refusal.code != 0)
            return file->refusal.code;
    }
    return query->plugin != NULL ? 0 : -ENOENT;
}

static int plugin_query_all_files(struct plugin_search *plugins, struct plugin_query *query)
{
    const struct plugin_visitor visitor = {plugin_query_file, plugin_query_skip_dir, query};
    int r = plugin_search_visit(plugins, &visitor);

    return r < 0 ? r : query->plugin != NULL ? 0 : -ENOENT;
}

/* Adds the names of all loaded plugins of the kind to `names`, at most `n`. Returns how many. */
static size_t plugin_names_of_kind(const struct plugin_search *plugins, enum weir_plugin_kind kind,
                                   const char **names, size_t n)
{
    size_t found = 0;

    for (const struct plugin_file *file = plugins->files; file != NULL; file = file->next) {
        for (uint32_t i = 0; i < file->entries_n && found < n; i++) {
            if (file->entries[i].plugin.kind == kind)
                names[found++] = file->entries[i].plugin.name;
        }
    }
    return found;
}

static int plugin_unknown_error(const struct plugin_search *plugins,
                                const struct plugin_query *query, struct weir_error *reterr)
{
    const char *names[256];
    size_t n = plugin_names_of_kind(plugins, query->kind, names, sizeof names / sizeof names[0]);
    const char *refused = "";

    if (query->refused_file != NULL)
        refused = "; some files are refused there, and `weir plugins` says why";
    return error_set(
        reterr, -ENOENT, "there is no %s `%s`%s in %.199s%s", plugin_abi_kind_name(query->kind),
        error_text(query->name).text, hint_find(query->name, names, n).text,
        text_join((const char *const *)plugins->dirs, plugins->dirs_n, ":", ":").text, refused);
}

/* Caches the result under its kind and name. */
static int plugin_query_cache(struct plugin_search *plugins, const struct plugin_query *query)
{
    struct str_map *found = &plugins->by_name[query->kind];

    WEIR_INVARIANT(query->plugin && query->plugin->kind == query->kind);
    if (str_map_reserve(found, 1) < 0)
        return -ENOMEM;
    str_map_add(found, query->plugin->name, query->plugin);
    return 0;
}

int plugin_search_find(struct plugin_search *plugins, enum weir_plugin_kind kind, const char *name,
                       const struct plugin **ret, struct weir_error *reterr)
{
    struct plugin_query query = {.kind = kind, .name = name};
    const struct str_map_entry *entry;
    int r;

    if (!plugin_abi_is_name(name))
        return error_set(reterr, -EINVAL,
                         "`%s` is not the name of %s: letters a-z, digits and `_`, never a path",
                         error_text(name).text,
                         kind == WEIR_PLUGIN_ALGORITHM ? "an algorithm" : "a balancer");
    entry = str_map_find(&plugins->by_name[kind], name);
    if (entry != NULL) {
        *ret = entry->value;
        return 0;
    }
    r = plugin_query_by_file_name(plugins, &query);
    if (r == -ENOEXEC) {
        WEIR_INVARIANT(query.refused_file);
        if (reterr != NULL)
            *reterr = query.refused_file->refusal;
        return r;
    }
    if (r == -ENOENT)
        r = plugin_query_all_files(plugins, &query);
    if (r == -ENOENT)
        return plugin_unknown_error(plugins, &query, reterr);
    if (r == 0)
        r = plugin_query_cache(plugins, &query);
    if (r < 0)
        return error_set(reterr, r, "out of memory");
    *ret = query.plugin;
    return 0;
}
