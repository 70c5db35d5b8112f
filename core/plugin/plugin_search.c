/* SPDX-License-Identifier: MIT */
/* Finds plugins by name, in the order that README.md describes. A file is loaded at most once. */
#include "base/str_map.h"
#include "configured.h"
#include "os/os.h"
#include "plugin/plugin_file.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLUGIN_SUFFIX          ".so"
#define PLUGIN_DIR_ENTRIES_MAX 4096u /* files examined per directory */

/* An array of texts that grows. */
struct text_array {
    char **items;
    size_t n;
};

struct plugin_search {
    struct text_array dirs;
    size_t default_dirs_n; /* last directories, searched after those of the configuration */
    struct plugin_file *files;
    struct str_map by_name[PLUGIN_KINDS]; /* loaded plugins that were found before */
};

/* Inserts a copy of a text before the last `after_n`. */
static int text_array_insert(struct text_array *array, const char *text, size_t after_n)
{
    char **grown = os_realloc(array->items, array->n + 1, sizeof(*grown)), *copy;
    size_t at = array->n - after_n;
    if (!grown)
        return -ENOMEM;
    array->items = grown;
    copy = os_strdup(text);
    if (!copy)
        return -ENOMEM;
    memmove(grown + at + 1, grown + at, after_n * sizeof(*grown));
    grown[at] = copy;
    array->n++;
    return 0;
}

static void text_array_free(struct text_array *array)
{
    for (size_t i = 0; i < array->n; i++)
        os_free(array->items[i]);
    os_free(array->items);
}

/* ---- directories ---- */

int plugin_search_add_dir(struct plugin_search *plugins, const char *dir)
{
    for (size_t i = 0; i < plugins->dirs.n; i++) {
        if (strcmp(plugins->dirs.items[i], dir) == 0)
            return 0;
    }
    if (dir[0] == '\0')
        return 0;
    return text_array_insert(&plugins->dirs, dir, plugins->default_dirs_n);
}

/* Adds the directories of WEIR_PLUGIN_PATH, a list with colons; the built-in; the installed. */
static int plugin_default_dirs_add(struct plugin_search *plugins)
{
    const char *path = os_getenv("WEIR_PLUGIN_PATH");
    char *copy = os_strdup(path ? path : ""), *rest = copy;
    size_t before = plugins->dirs.n;
    int r = copy ? 0 : -ENOMEM;
    while (rest && r == 0)
        r = plugin_search_add_dir(plugins, strsep(&rest, ":"));
    os_free(copy);
    if (r == 0 && plugin_builtins[0].file)
        r = plugin_search_add_dir(plugins, PLUGIN_BUILTIN_DIR);
    if (r == 0)
        r = plugin_search_add_dir(plugins, WEIR_PLUGIN_DIR);
    plugins->default_dirs_n = plugins->dirs.n - before;
    return r;
}

int plugin_search_new(struct plugin_search **ret, const char *const *dirs)
{
    struct plugin_search *plugins = os_alloc(1, sizeof(*plugins));
    int r = 0;
    if (!plugins)
        return -ENOMEM;
    for (; dirs && *dirs && r == 0; dirs++)
        r = plugin_search_add_dir(plugins, *dirs);
    if (r == 0)
        r = plugin_default_dirs_add(plugins);
    if (r < 0) {
        plugin_search_free(plugins);
        return r;
    }
    *ret = plugins;
    return 0;
}

void plugin_search_free(struct plugin_search *plugins)
{
    if (!plugins)
        return;
    while (plugins->files) {
        struct plugin_file *next = plugins->files->next;
        plugin_file_free(plugins->files);
        plugins->files = next;
    }
    for (size_t i = 0; i < PLUGIN_KINDS; i++)
        str_map_free(&plugins->by_name[i]);
    text_array_free(&plugins->dirs);
    os_free(plugins);
}

/* ---- files ---- */

/* Returns the file, loaded on first use. A refused file is checked again: its permissions may have
 * been corrected. Returns 0, -ENOENT or -ENOMEM. */
static int plugin_file_get(struct plugin_search *plugins, const char *dir, const char *name,
                           struct plugin_file **ret)
{
    struct plugin_file **link = &plugins->files;
    while (*link && ((*link)->dir != dir || strcmp((*link)->name, name) != 0))
        link = &(*link)->next;
    struct plugin_file *file = *link;
    if (file && file->refusal.code != 0) {
        *link = file->next;
        plugin_file_free(file);
        file = NULL;
    }
    if (!file) {
        int r = plugin_file_load(&file, dir, name);
        if (r < 0)
            return r;
        file->next = plugins->files;
        plugins->files = file;
    }
    *ret = file;
    return 0;
}

static int plugin_compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool plugin_has_suffix(const char *name)
{
    size_t length = strlen(name), suffix = strlen(PLUGIN_SUFFIX);
    return length > suffix && strcmp(name + length - suffix, PLUGIN_SUFFIX) == 0;
}

/* Lists the files of a directory that may hold plugins, in alphabetical order, because directory
 * order is arbitrary. */
static int plugin_dir_list(const char *dir, struct text_array *ret)
{
    char name[256];
    void *directory = NULL;
    int r = 0;
    if (strcmp(dir, PLUGIN_BUILTIN_DIR) == 0) {
        for (const struct plugin_builtin *file = plugin_builtins; file->file && r == 0; file++)
            r = text_array_insert(ret, file->file, 0);
        return r;
    }
    r = os_dir_open(AT_FDCWD, dir, &directory);
    if (r < 0)
        return r;
    while ((r = os_dir_next(directory, name, sizeof(name))) > 0) {
        if (!plugin_has_suffix(name))
            continue;
        r = ret->n == PLUGIN_DIR_ENTRIES_MAX ? -E2BIG : text_array_insert(ret, name, 0);
        if (r < 0)
            break;
    }
    os_dir_close(directory);
    if (r == 0 && ret->n > 1)
        qsort(ret->items, ret->n, sizeof(*ret->items), plugin_compare_names);
    return r;
}

/* Visits the files of one directory. A nonzero result of `visit` ends it. */
static int plugin_dir_visit(struct plugin_search *plugins, size_t index,
                            const struct plugin_visitor *visitor)
{
    /* An absent directory is reported only if the program or the configuration named it. */
    bool is_named = index < plugins->dirs.n - plugins->default_dirs_n;
    const char *dir = plugins->dirs.items[index];
    struct text_array entries = {0};
    int r = plugin_dir_list(dir, &entries);
    if (r < 0 && r != -ENOMEM)
        r = visitor->unreadable && (is_named || r != -ENOENT)
                ? visitor->unreadable(visitor->userdata, dir, r)
                : 0;
    for (size_t i = 0; i < entries.n && r == 0; i++) {
        struct plugin_file *file;
        if (visitor->list) {
            r = visitor->list(visitor->userdata, dir, entries.items[i]);
            continue;
        }
        r = plugin_file_get(plugins, dir, entries.items[i], &file);
        if (r == 0)
            r = visitor->visit(visitor->userdata, file);
        else if (r == -ENOENT) /* a dangling link, or removed meanwhile */
            r = 0;
    }
    text_array_free(&entries);
    return r;
}

int plugin_search_visit(struct plugin_search *plugins, const struct plugin_visitor *visitor)
{
    int r = 0;
    for (size_t i = 0; i < plugins->dirs.n && r == 0; i++)
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

/* Looks into one file. Returns whether it has the plugin. */
static int plugin_query_file(void *userdata, const struct plugin_file *file)
{
    struct plugin_query *query = userdata;
    for (uint32_t i = 0; i < file->plugins_n && !query->plugin; i++) {
        struct plugin *plugin = &file->plugins[i];
        if (plugin->info.kind == query->kind && strcmp(plugin->info.name, query->name) == 0)
            query->plugin = plugin;
    }
    if (file->refusal.code != 0 && !query->refused_file)
        query->refused_file = file;
    return query->plugin != NULL;
}

/* Gets the file of a directory that a plugin of this name is best kept in. Returns 0, -ENOENT or
 * -ENOMEM. */
static int plugin_file_get_own(struct plugin_search *plugins, const char *dir, const char *name,
                               struct plugin_file **ret)
{
    char file[PLUGIN_NAME_MAX + sizeof(PLUGIN_SUFFIX)];
    snprintf(file, sizeof(file), "%.*s" PLUGIN_SUFFIX, (int)PLUGIN_NAME_MAX, name);
    return plugin_file_get(plugins, dir, file, ret);
}

/* Looks for NAME.so, then into all files. A refused NAME.so ends the search: no other plugin is a
 * substitute for it. */
static int plugin_query_run(struct plugin_search *plugins, struct plugin_query *query)
{
    const struct plugin_visitor visitor = {.visit = plugin_query_file, .userdata = query};
    int r = 0;
    for (size_t i = 0; i < plugins->dirs.n && !query->plugin; i++) {
        struct plugin_file *file;
        r = plugin_file_get_own(plugins, plugins->dirs.items[i], query->name, &file);
        if (r == -ENOENT)
            continue;
        if (r < 0)
            return r;
        plugin_query_file(query, file);
        if (file->refusal.code != 0)
            return file->refusal.code;
    }
    if (!query->plugin)
        r = plugin_search_visit(plugins, &visitor);
    return r < 0 ? r : query->plugin ? 0 : -ENOENT;
}

/* Says that no plugin has the name, with the closest one among the loaded plugins of the kind. */
static int plugin_unknown_error(const struct plugin_search *plugins,
                                const struct plugin_query *query, struct weir_error *reterr)
{
    const char *names[256], *refused = "";
    size_t n = 0;
    for (const struct plugin_file *file = plugins->files; file; file = file->next) {
        for (uint32_t i = 0; i < file->plugins_n && n < sizeof(names) / sizeof(names[0]); i++) {
            if (file->plugins[i].info.kind == query->kind)
                names[n++] = file->plugins[i].info.name;
        }
    }
    if (query->refused_file)
        refused = "; some files are refused there, and `weir plugins` says why";
    return error_set(
        reterr, -ENOENT, "there is no %s `%s`%s in %.199s%s", plugin_kind_names[query->kind],
        error_text(query->name).text, hint_find(query->name, names, n).text,
        text_join((const char *const *)plugins->dirs.items, plugins->dirs.n, ":", ":").text,
        refused);
}

/* Says that the name cannot be one, and which plugin has it in small letters and with `_`. */
static int plugin_bad_name_error(struct plugin_search *plugins, const struct plugin_query *query,
                                 struct weir_error *reterr)
{
    const char *article = query->kind == WEIR_PLUGIN_ALGORITHM ? "an" : "a";
    const char *kind = plugin_kind_names[query->kind];
    char meant[PLUGIN_NAME_MAX + 1] = "";
    struct plugin_query better = {.kind = query->kind, .name = meant};
    size_t n = strlen(query->name);
    for (size_t i = 0; i < n && n < sizeof(meant); i++) {
        char c = query->name[i];
        meant[i] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c == '-' || c == ' ' ? '_' : c;
    }
    bool is_close = plugin_abi_is_plugin_name(meant) && plugin_query_run(plugins, &better) == 0;
    return error_set(
        reterr, -EINVAL,
        "`%s` is not the name of %s %s%s%s%s: letters a-z, digits and `_`, or `vendor.name`, never "
        "a path",
        error_text(query->name).text, article, kind, is_close ? " (did you mean `" : "",
        is_close ? meant : "", is_close ? "`?)" : "");
}

int plugin_search_find(struct plugin_search *plugins, enum weir_plugin_kind kind, const char *name,
                       const struct plugin **ret, struct weir_error *reterr)
{
    struct plugin_query query = {.kind = kind, .name = name};
    struct str_map *known = &plugins->by_name[kind];
    if (!plugin_abi_is_plugin_name(name))
        return plugin_bad_name_error(plugins, &query, reterr);
    *ret = str_map_find(known, name);
    if (*ret)
        return 0;
    int r = plugin_query_run(plugins, &query);
    if (r == -ENOEXEC)
        return error_set(reterr, r, "%s", query.refused_file->refusal.message);
    if (r == -ENOENT)
        return plugin_unknown_error(plugins, &query, reterr);
    if (r == 0 && query.plugin->skipped)
        return error_set(reterr, -ENOEXEC, "%s", query.plugin->skipped);
    if (r == 0)
        r = str_map_reserve(known, 1);
    if (r < 0)
        return error_set(reterr, r, "out of memory");
    str_map_add(known, query.plugin->info.name, query.plugin);
    *ret = query.plugin;
    return 0;
}

const char *plugin_search_hidden(struct plugin_search *plugins, const struct plugin *plugin)
{
    struct plugin_query query = {.kind = plugin->info.kind, .name = plugin->info.name};
    bool is_behind = false;
    for (size_t i = 0; i < plugins->dirs.n; i++) {
        struct plugin_file *file;
        if (plugin_file_get_own(plugins, plugins->dirs.items[i], query.name, &file) < 0)
            continue;
        query.plugin = NULL;
        plugin_query_file(&query, file);
        if (query.plugin && is_behind &&
            (query.plugin->info.state_id != plugin->info.state_id ||
             strcmp(query.plugin->info.version, plugin->info.version) != 0))
            return query.plugin->path;
        is_behind |= query.plugin == plugin;
    }
    return NULL;
}
