/* SPDX-License-Identifier: MIT */
/*
 * Plugins by name. `x` is looked for as x.so in each directory in turn, because that is where it
 * nearly always is; only then are all files of the directories looked through for one that holds it
 * under another name. The first found wins. Every file is loaded at most once.
 */
#include "plugin/plugin_search.h"
#include "base/mutant.h"
#include "base/str_map.h"
#include "os/os.h"
#include "plugin/plugin_builtin.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUFFIX            ".so"
#define ENTRIES_MAX       4096u /* files of one directory that are looked at */
#define KINDS             (WEIR_PLUGIN_BALANCER + 1)
#define SEARCHED_TEXT_MAX 200u

struct plugins {
    char **dirs;
    size_t dirs_n;
    size_t tail_n; /* how many of these come after those of the configuration */
    struct plugin_file *files;
    struct names found[KINDS]; /* loaded plugins that were asked for */
};

/* ---- directories ---- */

static bool dir_is_known(const struct plugins *plugins, const char *dir)
{
    for (size_t i = 0; i < plugins->dirs_n; i++) {
        if (strcmp(plugins->dirs[i], dir) == 0)
            return true;
    }
    return false;
}

/* Adds a directory before the last `tail_n`, if it is not there already. */
static int dir_add(struct plugins *plugins, const char *dir, size_t tail_n)
{
    char **grown, *copy;
    size_t at = plugins->dirs_n - tail_n;

    if (dir[0] == '\0' || dir_is_known(plugins, dir))
        return 0;
    grown = sys_grow(plugins->dirs, plugins->dirs_n + 1, sizeof *grown);
    if (grown == NULL)
        return -ENOMEM;
    plugins->dirs = grown;
    copy = sys_strdup(dir);
    if (copy == NULL)
        return -ENOMEM;
    memmove(grown + at + 1, grown + at, tail_n * sizeof *grown);
    grown[at] = copy;
    plugins->dirs_n++;
    return 0;
}

/* Adds the directories of a list with colons in between, which is cut up. */
static int path_add(struct plugins *plugins, char *path)
{
    char *rest = path;
    int r = 0;

    while (rest != NULL && r == 0)
        r = dir_add(plugins, strsep(&rest, ":"), 0);
    return r;
}

static int tail_add(struct plugins *plugins)
{
    const char *path = sys_environment("WEIR_PLUGIN_PATH");
    size_t before = plugins->dirs_n;
    int r = 0;

    if (path != NULL) {
        char *copy = sys_strdup(path);

        r = copy == NULL ? -ENOMEM : path_add(plugins, copy);
        sys_free(copy);
    }
    if (r == 0 && plugin_builtin_any())
        r = dir_add(plugins, PLUGIN_BUILTIN_DIR, 0);
    if (r == 0)
        r = dir_add(plugins, WEIR_PLUGIN_DIR, 0);
    plugins->tail_n = plugins->dirs_n - before;
    return r;
}

int plugins_new(struct plugins **ret, const char *const *dirs)
{
    struct plugins *plugins = sys_alloc(1, sizeof *plugins);
    int r = 0;

    if (plugins == NULL)
        return -ENOMEM;
    for (; dirs != NULL && *dirs != NULL && r == 0; dirs++)
        r = dir_add(plugins, *dirs, 0);
    if (r == 0)
        r = tail_add(plugins);
    if (r < 0) {
        plugins_free(plugins);
        return r;
    }
    *ret = plugins;
    return 0;
}

int plugins_add_dirs(struct plugins *plugins, const char *const *dirs, size_t n)
{
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++)
        r = dir_add(plugins, dirs[i], MUTANT(53) ? 0 : plugins->tail_n);
    return r;
}

void plugins_free(struct plugins *plugins)
{
    if (plugins == NULL)
        return;
    while (plugins->files != NULL) {
        struct plugin_file *next = plugins->files->next;

        plugin_file_free(plugins->files);
        plugins->files = next;
    }
    for (size_t i = 0; i < plugins->dirs_n; i++)
        sys_free(plugins->dirs[i]);
    for (size_t i = 0; i < KINDS; i++)
        names_free(&plugins->found[i]);
    sys_free(plugins->dirs);
    sys_free(plugins);
}

/* ---- files ---- */

static bool is_path_of(const char *path, const char *dir, const char *name)
{
    size_t length = strlen(dir);

    return strncmp(path, dir, length) == 0 && path[length] == '/' &&
           strcmp(path + length + 1, name) == 0;
}

/*
 * The file, loaded at the first time. One that was refused is looked at again: its permissions may
 * have been put right. 0, -ENOENT or -ENOMEM.
 */
static int file_get(struct plugins *plugins, const char *dir, const char *name,
                    struct plugin_file **ret)
{
    struct plugin_file **link = &plugins->files, *file;
    int r;

    while (*link != NULL && !is_path_of((*link)->path, dir, name))
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

/* Names of a directory's files, in alphabetical order: the order of a directory is chance. */
struct entries {
    char **names;
    size_t n;
};

static int entries_add(struct entries *entries, const char *name)
{
    char **grown = sys_grow(entries->names, entries->n + 1, sizeof *grown);

    if (grown == NULL)
        return -ENOMEM;
    entries->names = grown;
    grown[entries->n] = sys_strdup(name);
    if (grown[entries->n] == NULL)
        return -ENOMEM;
    entries->n++;
    return 0;
}

static void entries_free(struct entries *entries)
{
    for (size_t i = 0; i < entries->n; i++)
        sys_free(entries->names[i]);
    sys_free(entries->names);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool has_suffix(const char *name)
{
    size_t length = strlen(name), suffix = strlen(SUFFIX);

    return length > suffix && strcmp(name + length - suffix, SUFFIX) == 0;
}

static int entries_read_builtin(struct entries *ret)
{
    int r = 0;

    for (const struct plugin_builtin *builtin = plugin_builtins; builtin->file && r == 0; builtin++)
        r = entries_add(ret, builtin->file);
    return r;
}

/* Lists the files of a directory that may hold plugins. */
static int entries_read(const char *dir, struct entries *ret)
{
    char name[256];
    void *directory = NULL;
    int r;

    if (strcmp(dir, PLUGIN_BUILTIN_DIR) == 0)
        return entries_read_builtin(ret);
    r = sys_open_directory(dir, &directory);
    if (r < 0)
        return r;
    while ((r = sys_next_entry(directory, name, sizeof name)) > 0) {
        if (!has_suffix(name))
            continue;
        r = ret->n == ENTRIES_MAX ? -E2BIG : entries_add(ret, name);
        if (r < 0)
            break;
    }
    sys_close_directory(directory);
    if (r == 0 && ret->n > 1)
        qsort(ret->names, ret->n, sizeof *ret->names, compare_names);
    return r;
}

/* Visits the files of one directory. A positive answer of `visit` ends it. */
static int dir_visit(struct plugins *plugins, size_t index, const struct visitor *visitor)
{
    const char *dir = plugins->dirs[index];
    struct entries entries = {0};
    int r = entries_read(dir, &entries);

    if (r < 0 && r != -ENOMEM) {
        /* An absent directory is worth a word if somebody asked for it here. */
        bool asked = r != -ENOENT || index < plugins->dirs_n - plugins->tail_n;

        r = asked ? visitor->unreadable(visitor->userdata, dir, r) : 0;
    }
    for (size_t i = 0; i < entries.n && r == 0; i++) {
        struct plugin_file *file;

        r = file_get(plugins, dir, entries.names[i], &file);
        if (r == 0)
            r = visitor->visit(visitor->userdata, file);
        else if (r == -ENOENT) /* a dangling link, or gone meanwhile */
            r = 0;
    }
    entries_free(&entries);
    return r;
}

int plugins_visit(struct plugins *plugins, const struct visitor *visitor)
{
    int r = 0;

    for (size_t i = 0; i < plugins->dirs_n && r == 0; i++)
        r = dir_visit(plugins, i, visitor);
    return r;
}

/* ---- by name ---- */

/* What is looked for, and what was seen on the way. */
struct search {
    enum weir_plugin_kind kind;
    const char *name;
    struct plugin *found;
    const struct plugin_file *refused; /* the first */
};

static struct plugin *plugin_in(const struct plugin_file *file, enum weir_plugin_kind kind,
                                const char *name)
{
    for (uint32_t i = 0; i < file->loaded_n; i++) {
        struct plugin *plugin = &file->loaded[i].plugin;

        if ((plugin->kind == kind || MUTANT(57)) && strcmp(plugin->name, name) == 0)
            return plugin;
    }
    return NULL;
}

static int search_file(void *userdata, const struct plugin_file *file)
{
    struct search *search = userdata;

    search->found = plugin_in(file, search->kind, search->name);
    if (file->refusal.code != 0 && search->refused == NULL)
        search->refused = file;
    return search->found != NULL;
}

static int search_no_directory(void *userdata, const char *dir, int code)
{
    (void)userdata, (void)dir, (void)code;
    return 0;
}

/* Looks for NAME.so. A refused one ends the search: nobody wants another in its place. */
static int find_by_file_name(struct plugins *plugins, struct search *search)
{
    char name[PLUGIN_NAME_MAX + sizeof SUFFIX];

    snprintf(name, sizeof name, "%.*s" SUFFIX, (int)PLUGIN_NAME_MAX, search->name);
    for (size_t i = 0; i < plugins->dirs_n && search->found == NULL; i++) {
        struct plugin_file *file;
        int r = file_get(plugins, plugins->dirs[i], name, &file);

        if (r == -ENOENT)
            continue;
        if (r < 0)
            return r;
        search_file(search, file);
        if (file->refusal.code != 0)
            return file->refusal.code;
    }
    return search->found != NULL ? 0 : -ENOENT;
}

static int find_in_any_file(struct plugins *plugins, struct search *search)
{
    const struct visitor visitor = {search_file, search_no_directory, search};
    int r = MUTANT(55) ? 0 : plugins_visit(plugins, &visitor);

    return r < 0 ? r : search->found != NULL ? 0 : -ENOENT;
}

/* Adds the name of every loaded plugin of the kind to `names`, at most `n`; returns how many. */
static size_t names_of_kind(const struct plugins *plugins, enum weir_plugin_kind kind,
                            const char **names, size_t n)
{
    size_t found = 0;

    for (const struct plugin_file *file = plugins->files; file != NULL; file = file->next) {
        for (uint32_t i = 0; i < file->loaded_n && found < n; i++) {
            if (file->loaded[i].plugin.kind == kind)
                names[found++] = file->loaded[i].plugin.name;
        }
    }
    return found;
}

static int unknown(const struct plugins *plugins, const struct search *search,
                   struct weir_error *reterr)
{
    const char *names[256];
    size_t n = names_of_kind(plugins, search->kind, names, sizeof names / sizeof names[0]);
    struct hint hint = hint_of(closest_word(search->name, names, n));
    char searched[SEARCHED_TEXT_MAX] = "";
    const char *refused = "";

    for (size_t i = 0, length = 0; i < plugins->dirs_n && length < sizeof searched; i++)
        length += (size_t)snprintf(searched + length, sizeof searched - length, "%s%s",
                                   i == 0 ? "" : ":", plugins->dirs[i]);
    if (search->refused != NULL)
        refused = "; some files are refused there, and `weir plugins` says why";
    return error_set(reterr, -ENOENT, "there is no %s `%s`%s in %s%s",
                     plugin_kind_name(search->kind), show(search->name).text, hint.text, searched,
                     refused);
}

/* Remembers what was found, under its kind and name. */
static int remember(struct plugins *plugins, const struct search *search)
{
    struct names *found = &plugins->found[search->kind];

    if (names_reserve(found, 1) < 0)
        return -ENOMEM;
    names_add(found, search->found->name, search->found);
    return 0;
}

int plugins_find(struct plugins *plugins, enum weir_plugin_kind kind, const char *name,
                 const struct plugin **ret, struct weir_error *reterr)
{
    struct search search = {.kind = kind, .name = name};
    const struct name_entry *known;
    int r;

    if (!plugin_is_name(name))
        return error_set(reterr, -EINVAL,
                         "`%s` is not the name of %s: letters a-z, digits and `_`, never a path",
                         show(name).text,
                         kind == WEIR_PLUGIN_ALGORITHM ? "an algorithm" : "a balancer");
    known = names_find(&plugins->found[kind], name);
    if (known != NULL) {
        *ret = known->what;
        return 0;
    }
    r = find_by_file_name(plugins, &search);
    if (r == -ENOEXEC) {
        if (reterr != NULL)
            *reterr = search.refused->refusal;
        return r;
    }
    if (r == -ENOENT)
        r = find_in_any_file(plugins, &search);
    if (r == -ENOENT)
        return unknown(plugins, &search, reterr);
    if (r == 0)
        r = remember(plugins, &search);
    if (r < 0)
        return error_set(reterr, r, "out of memory");
    *ret = search.found;
    return 0;
}
