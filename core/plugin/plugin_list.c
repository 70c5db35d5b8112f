/* SPDX-License-Identifier: MIT */
/* weir_plugins(): what is found where, for people who wonder. */
#include "config/config_ast.h"
#include "os/os.h"
#include "plugin/plugin_search.h"
#include <errno.h>
#include <limits.h>
#include <string.h>

struct discovery {
    int (*found)(void *userdata, const struct weir_plugin_info *info);
    void *userdata;
    int n; /* plugins found */
};

/* The caller's wish to stop, which is no error. */
enum { STOP = 1 };

static int tell(struct discovery *discovery, const char *path, const struct weir_plugin *plugin,
                const struct weir_error *refusal)
{
    const struct weir_plugin_info info = {sizeof info, path, plugin, refusal};

    if (plugin != NULL && discovery->n < INT_MAX)
        discovery->n++;
    return discovery->found(discovery->userdata, &info) != 0 ? STOP : 0;
}

static int tell_file(void *userdata, const struct plugin_file *file)
{
    int r = 0;

    if (file->refusal.code != 0)
        return tell(userdata, file->path, NULL, &file->refusal);
    for (uint32_t i = 0; i < file->loaded_n && r == 0; i++)
        r = tell(userdata, file->path, &file->loaded[i].info, NULL);
    return r;
}

static int tell_unreadable(void *userdata, const char *dir, int code)
{
    struct weir_error refusal;

    error_set(&refusal, code, "plugin directory `%s` cannot be read: %s", show(dir).text,
              strerrordesc_np(-code));
    return tell(userdata, dir, NULL, &refusal);
}

/* Adds the directories that a configuration names. */
static int configuration_read(struct plugins *plugins, const struct weir_options *options,
                              struct complaints *complaints)
{
    struct definition definition = {0};
    int r = config_find(options, &definition, complaints);

    for (size_t i = 0; i < definition.plugin_dirs_n && r == 0; i++) {
        const struct scalar *dir = &definition.plugin_dirs[i];

        if (dir->text != NULL && dir->text[0] != '/')
            r = complain(complaints, -EINVAL, dir->mark,
                         "`%s` is not an absolute path: begin it with `/`", show(dir->text).text);
        else if (dir->text != NULL)
            r = plugins_add_dirs(plugins, &dir->text, 1);
    }
    definition_free(&definition);
    return r;
}

static int discover(struct plugins *plugins, const struct weir_options *options,
                    struct discovery *discovery, struct weir_error *reterr)
{
    const struct visitor visitor = {tell_file, tell_unreadable, discovery};
    struct complaints complaints = {.hear = options->complaint, .userdata = options->userdata};
    int r = configuration_read(plugins, options, &complaints);
    int told = complaints_tell(&complaints);

    if (told < 0) {
        if (reterr != NULL)
            *reterr = complaints.first;
        return told;
    }
    if (r == 0)
        r = plugins_visit(plugins, &visitor);
    return r < 0 ? error_set(reterr, r, "%s", strerrordesc_np(-r)) : discovery->n;
}

int weir_plugins(const struct weir_options *options,
                 int (*found)(void *userdata, const struct weir_plugin_info *info), void *userdata,
                 struct weir_error *reterr)
{
    static const struct weir_options none = {.size = sizeof none};
    struct discovery discovery = {found, userdata, 0};
    struct plugins *plugins = NULL;
    int r;

    options = options == NULL ? &none : options;
    if (options->size < sizeof *options || found == NULL)
        return error_set(reterr, -EINVAL, "the size of the options is wrong, or nobody listens");
    if (options->file != NULL && options->text != NULL)
        return error_set(reterr, -EINVAL, "the options name both a file and a text");
    r = plugins_new(&plugins, options->plugin_dirs);
    if (r < 0)
        return error_set(reterr, r, "%s", strerrordesc_np(-r));
    r = discover(plugins, options, &discovery, reterr);
    plugins_free(plugins);
    return r;
}
