/* SPDX-License-Identifier: MIT */
/* Implements weir_plugins(), which lists all plugin files and why files are refused; its two
 * halves, weir_plugin_files() and weir_plugin_file(); and weir_plugin_dirs(), which lists the
 * directories that are named. */
#include "config/value.h"
#include "plugin/plugin_file.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

struct plugin_list {
    int (*found)(void *userdata, const struct weir_plugin_info *info);
    void *userdata;
    int n; /* plugins found, or files if only these are listed */
};

/* A stop requested by the caller, which is not an error. */
enum { PLUGIN_LIST_STOP = 1 };

static int plugin_list_report(struct plugin_list *list, const char *path,
                              const struct weir_plugin *plugin, const struct weir_error *refusal,
                              bool is_skipped)
{
    const struct weir_plugin_info info = {sizeof(info), path, plugin, refusal, is_skipped, 0};

    if ((plugin || !refusal) && list->n < INT_MAX)
        list->n++;
    return list->found(list->userdata, &info) != 0 ? PLUGIN_LIST_STOP : 0;
}

static int plugin_list_report_plugin(struct plugin_list *list, const struct plugin *plugin,
                                     const char *path)
{
    struct weir_error refusal;

    if (!plugin->skipped)
        return plugin_list_report(list, path, &plugin->info, NULL, false);
    error_set(&refusal, -ENOEXEC, "%s", plugin->skipped);
    return plugin_list_report(list, path, NULL, &refusal, true);
}

static int plugin_list_report_file(void *userdata, const struct plugin_file *file)
{
    int r = 0;

    if (file->refusal.code != 0)
        return plugin_list_report(userdata, file->path, NULL, &file->refusal, false);
    for (uint32_t i = 0; i < file->plugins_n && r == 0; i++)
        r = plugin_list_report_plugin(userdata, &file->plugins[i], file->path);
    return r;
}

static int plugin_list_report_dir(void *userdata, const char *dir, int code)
{
    struct weir_error refusal;

    error_set(&refusal, code, "plugin directory `%s` cannot be read: %s", error_text(dir).text,
              strerrordesc_np(-code));
    return plugin_list_report(userdata, dir, NULL, &refusal, false);
}

/* Calls `each` for the directories that a configuration names, until one call fails. */
static int plugin_list_each_dir(const struct weir_options *options, struct complaints *complaints,
                                int (*each)(void *userdata, const char *dir), void *userdata)
{
    struct config_ast ast = {0};
    int r = config_yaml_load(options, &ast, complaints);

    for (size_t i = 0; i < ast.plugin_dirs_n && r == 0; i++) {
        r = value_check_path(complaints, &ast.plugin_dirs[i]);
        if (r == 0)
            r = each(userdata, ast.plugin_dirs[i].text);
    }
    config_ast_free(&ast);
    return r;
}

static int plugin_list_add_dir(void *userdata, const char *dir)
{
    return plugin_search_add_dir(userdata, dir);
}

/* Checks the arguments of both calls. Returns 0, or -EINVAL with the reason. */
static int plugin_list_check(const struct weir_options *options, bool has_callback,
                             struct weir_error *reterr)
{
    if (options->size < sizeof(*options) || !has_callback)
        return error_set(reterr, -EINVAL,
                         "the size of the options is wrong, or there is no callback");
    if (options->file && options->text)
        return error_set(reterr, -EINVAL, "the options name both a file and a text");
    return 0;
}

/* Returns `r`, or `reported`, with its reason in `reterr`. */
static int plugin_list_finish(int r, int reported, const struct complaints *complaints,
                              struct weir_error *reterr)
{
    if (reported < 0 && reterr)
        *reterr = complaints->first;
    if (reported < 0)
        return reported;
    return r < 0 ? error_set(reterr, r, "%s", strerrordesc_np(-r)) : r;
}

/* Goes through the files of a search. Returns 0, PLUGIN_LIST_STOP, or an error with `reterr`. */
static int plugin_list_run(const struct weir_options *options, const struct plugin_visitor *visitor,
                           struct weir_error *reterr)
{
    static const struct weir_options none = {.size = sizeof(none)};
    struct complaints complaints = {0};
    struct plugin_search *plugins = NULL;
    int r, reported;

    options = options ? options : &none;
    r = plugin_list_check(options, ((struct plugin_list *)visitor->userdata)->found, reterr);
    if (r < 0)
        return r;
    complaints.report = options->complaint;
    complaints.userdata = options->userdata;
    r = plugin_search_new(&plugins, options->plugin_dirs);
    if (r == 0)
        r = plugin_list_each_dir(options, &complaints, plugin_list_add_dir, plugins);
    reported = complaints_report(&complaints);
    if (r == 0 && reported == 0)
        r = plugin_search_visit(plugins, visitor);
    plugin_search_free(plugins);
    return plugin_list_finish(r, reported, &complaints, reterr);
}

int weir_plugins(const struct weir_options *options,
                 int (*found)(void *userdata, const struct weir_plugin_info *info), void *userdata,
                 struct weir_error *reterr)
{
    struct plugin_list list = {found, userdata, 0};
    const struct plugin_visitor visitor = {
        .visit = plugin_list_report_file, .unreadable = plugin_list_report_dir, .userdata = &list};
    int r = plugin_list_run(options, &visitor, reterr);

    return r < 0 ? r : list.n;
}

static int plugin_list_report_path(void *userdata, const char *dir, const char *name)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return plugin_list_report(userdata, path, NULL, NULL, false);
}

int weir_plugin_files(const struct weir_options *options,
                      int (*found)(void *userdata, const struct weir_plugin_info *info),
                      void *userdata, struct weir_error *reterr)
{
    struct plugin_list list = {found, userdata, 0};
    const struct plugin_visitor visitor = {
        .list = plugin_list_report_path, .unreadable = plugin_list_report_dir, .userdata = &list};
    int r = plugin_list_run(options, &visitor, reterr);

    return r < 0 ? r : list.n;
}

int weir_plugin_file(const char *path,
                     int (*found)(void *userdata, const struct weir_plugin_info *info),
                     void *userdata, struct weir_error *reterr)
{
    struct plugin_list list = {found, userdata, 0};
    const char *slash = path ? strrchr(path, '/') : NULL;
    struct plugin_file *file = NULL;
    char dir[PATH_MAX] = ".";
    int r = -EINVAL;

    if (path && found && strlen(path) < sizeof(dir)) {
        if (slash) /* of a file of the root, the root itself */
            snprintf(dir, sizeof(dir), "%.*s", slash == path ? 1 : (int)(slash - path), path);
        r = plugin_file_load(&file, dir, slash ? slash + 1 : path);
    }
    if (r < 0)
        return error_set(reterr, r, "%s", strerrordesc_np(-r));
    plugin_list_report_file(&list, file);
    plugin_file_free(file);
    return list.n;
}

struct plugin_dirs {
    int (*found)(void *userdata, const char *dir);
    void *userdata;
    int n; /* calls */
};

static int plugin_dirs_report(void *userdata, const char *dir)
{
    struct plugin_dirs *dirs = userdata;

    dirs->n++;
    return dirs->found(dirs->userdata, dir) != 0 ? PLUGIN_LIST_STOP : 0;
}

int weir_plugin_dirs(const struct weir_options *options,
                     int (*found)(void *userdata, const char *dir), void *userdata,
                     struct weir_error *reterr)
{
    static const struct weir_options none = {.size = sizeof(none)};
    struct plugin_dirs dirs = {found, userdata, 0};
    struct complaints complaints = {0};
    int r, reported;

    options = options ? options : &none;
    r = plugin_list_check(options, found, reterr);
    if (r < 0)
        return r;
    complaints.report = options->complaint;
    complaints.userdata = options->userdata;
    for (size_t i = 0; options->plugin_dirs && options->plugin_dirs[i] && r == 0; i++)
        r = plugin_dirs_report(&dirs, options->plugin_dirs[i]);
    if (r == 0)
        r = plugin_list_each_dir(options, &complaints, plugin_dirs_report, &dirs);
    reported = complaints_report(&complaints);
    r = plugin_list_finish(r, reported, &complaints, reterr);
    return r < 0 ? r : dirs.n;
}
