/* SPDX-License-Identifier: MIT */
/*
 * A configuration text, read from YAML into a definition: what the document, a set, a limit and a
 * pool may hold, and where each of their fields goes.
 */
#include "config/schema.h"
#include "os/os.h"
#include <errno.h>
#include <stddef.h>
#include <string.h>

static void config_read(struct yaml *yaml, const char *name, const struct node *node, void *target)
{
    struct set_definition *set = target;
    if (!node_begins(yaml, name, SHAPE_MAPPING, node))
        return;
    while (!mapping_ended(yaml)) {
        struct scalar key;
        struct node value;
        if (pair_read(yaml, &key, &value))
            setting_append(yaml, &key, &value, &set->config, CONFIG_ENTRIES_MAX);
    }
}

static void limits_read(struct yaml *yaml, const char *name, const struct node *node, void *target)
{
    static const struct field fields[] = {
        {"type", offsetof(struct limit_definition, type), NULL},
        {"key", offsetof(struct limit_definition, key), NULL},
        {"algorithm", offsetof(struct limit_definition, algorithm), NULL},
        {"refund", offsetof(struct limit_definition, refund), NULL},
        {"overuse", offsetof(struct limit_definition, overuse), NULL},
        {"lease", offsetof(struct limit_definition, lease), NULL},
    };
    static const struct form form = {.fields = fields,
                                     .fields_n = sizeof fields / sizeof fields[0],
                                     .has_settings = true,
                                     .settings = offsetof(struct limit_definition, settings)};
    struct set_definition *set = target;
    if (!node_begins(yaml, name, SHAPE_LIST, node))
        return;
    while (!list_ended(yaml)) {
        struct node item;
        node_read(yaml, &item);
        if (item.shape != SHAPE_MAPPING) {
            node_refuse(yaml, name, "a list of mappings", &item);
            continue;
        }
        set->limits = entry_append(yaml, set->limits, &set->limits_n, sizeof *set->limits,
                                   CONFIG_ENTRIES_MAX);
        if (set->limits == NULL)
            return;
        struct limit_definition *limit = &set->limits[set->limits_n - 1];
        *limit = (struct limit_definition){.mark = item.scalar.mark};
        form_read(yaml, &form, limit);
    }
}

static void keyed_read(struct yaml *yaml, const char *name, const struct node *node, void *target)
{
    static const struct field fields[] = {
        {"max_keys", offsetof(struct keyed_definition, max_keys), NULL},
        {"memory", offsetof(struct keyed_definition, memory), NULL},
        {"evict", offsetof(struct keyed_definition, evict), NULL},
    };
    static const struct form form = {.fields = fields,
                                     .fields_n = sizeof fields / sizeof fields[0]};
    struct set_definition *set = target;
    bool begins = node_begins(yaml, name, SHAPE_MAPPING, node);
    /* Nothing is an empty mapping, and lacks what an empty one does. */
    set->keyed = (struct keyed_definition){.mark = node->scalar.mark,
                                           .given = begins || node->shape == SHAPE_NOTHING};
    if (begins)
        form_read(yaml, &form, &set->keyed);
}

static void sets_read(struct yaml *yaml, const char *name, const struct node *node, void *target)
{
    static const struct field fields[] = {
        {"backend", offsetof(struct set_definition, backend), NULL},
        {"lifetime", offsetof(struct set_definition, lifetime), NULL},
        {"timeout", offsetof(struct set_definition, timeout), NULL},
        {"max_wait", offsetof(struct set_definition, max_wait), NULL},
        {"max_waiters", offsetof(struct set_definition, max_waiters), NULL},
        {"strict", offsetof(struct set_definition, strict), NULL},
        {"fair", offsetof(struct set_definition, fair), NULL},
        {"keyed", 0, keyed_read},
        {"config", 0, config_read},
        {"limits", 0, limits_read},
    };
    static const struct form form = {.fields = fields,
                                     .fields_n = sizeof fields / sizeof fields[0]};
    struct definition *definition = target;
    if (!node_begins(yaml, name, SHAPE_MAPPING, node))
        return;
    while (!mapping_ended(yaml)) {
        struct scalar key;
        struct node value;
        if (!pair_read(yaml, &key, &value))
            continue;
        definition->sets = entry_append(yaml, definition->sets, &definition->sets_n,
                                        sizeof *definition->sets, CONFIG_SETS_MAX);
        if (definition->sets == NULL)
            return;
        struct set_definition *set = &definition->sets[definition->sets_n - 1];
        *set = (struct set_definition){.name = key};
        if (node_begins(yaml, key.text, SHAPE_MAPPING, &value))
            form_read(yaml, &form, set);
    }
}

static void pool_sets_read(struct yaml *yaml, const char *name, const struct node *node,
                           void *target)
{
    struct pool_definition *pool = target;
    if (node_begins(yaml, name, SHAPE_LIST, node))
        pool->sets = texts_read(yaml, name, &pool->sets_n, CONFIG_SETS_MAX);
}

static void pools_read(struct yaml *yaml, const char *name, const struct node *node, void *target)
{
    static const struct field fields[] = {
        {"balancer", offsetof(struct pool_definition, balancer), NULL},
        {"seed", offsetof(struct pool_definition, seed), NULL},
        {"sets", 0, pool_sets_read},
    };
    static const struct form form = {.fields = fields,
                                     .fields_n = sizeof fields / sizeof fields[0],
                                     .has_settings = true,
                                     .settings = offsetof(struct pool_definition, settings)};
    struct definition *definition = target;
    if (!node_begins(yaml, name, SHAPE_MAPPING, node))
        return;
    while (!mapping_ended(yaml)) {
        struct scalar key;
        struct node value;
        if (!pair_read(yaml, &key, &value))
            continue;
        definition->pools = entry_append(yaml, definition->pools, &definition->pools_n,
                                         sizeof *definition->pools, CONFIG_SETS_MAX);
        if (definition->pools == NULL)
            return;
        struct pool_definition *pool = &definition->pools[definition->pools_n - 1];
        *pool = (struct pool_definition){.name = key};
        if (node_begins(yaml, key.text, SHAPE_MAPPING, &value))
            form_read(yaml, &form, pool);
    }
}

static void dirs_read(struct yaml *yaml, const char *name, const struct node *node, void *target)
{
    struct definition *definition = target;
    if (node_begins(yaml, name, SHAPE_LIST, node))
        definition->plugin_dirs =
            texts_read(yaml, name, &definition->plugin_dirs_n, CONFIG_DIRS_MAX);
}

static void version_check(struct yaml *yaml, const struct scalar *version, struct mark mark)
{
    if (version->text == NULL && version->mark.line == 0)
        complain(yaml->complaints, -EINVAL, mark,
                 "`version: 1` is missing: a configuration begins with it");
    else if (version->text != NULL && strcmp(version->text, "1") != 0)
        complain(yaml->complaints, -EINVAL, version->mark,
                 "version `%s` is not known here: this library reads `version: 1`",
                 show(version->text).text);
}

/* The whole document. */
struct root {
    struct definition *definition;
    struct scalar version, process_dir, clock;
};

static void root_sets_read(struct yaml *yaml, const char *name, const struct node *node,
                           void *target)
{
    sets_read(yaml, name, node, ((struct root *)target)->definition);
}

static void root_pools_read(struct yaml *yaml, const char *name, const struct node *node,
                            void *target)
{
    pools_read(yaml, name, node, ((struct root *)target)->definition);
}

static void root_dirs_read(struct yaml *yaml, const char *name, const struct node *node,
                           void *target)
{
    dirs_read(yaml, name, node, ((struct root *)target)->definition);
}

static void root_read(struct yaml *yaml)
{
    static const struct field fields[] = {
        {"version", offsetof(struct root, version), NULL},
        {"plugin_dirs", 0, root_dirs_read},
        {"process_dir", offsetof(struct root, process_dir), NULL},
        {"clock", offsetof(struct root, clock), NULL},
        {"sets", 0, root_sets_read},
        {"pools", 0, root_pools_read},
    };
    static const struct form form = {.fields = fields,
                                     .fields_n = sizeof fields / sizeof fields[0]};
    struct root root = {.definition = yaml->definition};
    struct node node;
    node_read(yaml, &node);
    if (node.shape == SHAPE_MAPPING) {
        form_read(yaml, &form, &root);
        yaml->definition->process_dir = root.process_dir;
        yaml->definition->clock = root.clock;
    } else if (node.shape != SHAPE_NOTHING) {
        if (node.shape != SHAPE_REFUSED)
            complain(yaml->complaints, -EINVAL, node.scalar.mark,
                     "a configuration is a mapping that begins with `version: 1`, not %s",
                     shape_name(node.shape));
        node_skip(yaml, &node);
        return;
    }
    if (yaml->rc == 0)
        version_check(yaml, &root.version, node.scalar.mark);
}

static void document_read(struct yaml *yaml)
{
    if (!document_begins(yaml)) {
        version_check(yaml, &(struct scalar){0}, (struct mark){1, 1});
        return;
    }
    root_read(yaml);
    document_end(yaml);
}

int config_parse(const char *text, size_t length, struct definition *ret,
                 struct complaints *complaints)
{
    uint32_t before = complaints->total;
    struct yaml yaml;
    *ret = (struct definition){0};
    int rc = yaml_open(&yaml, text, length, ret, complaints);
    if (rc == 0) {
        document_read(&yaml);
        rc = yaml.rc;
    }
    yaml_close(&yaml);
    if (rc == 0 && complaints->total > before)
        rc = -EINVAL;
    return rc;
}

int config_find(const struct weir_options *options, struct definition *ret,
                struct complaints *complaints)
{
    char *text = NULL;
    size_t length = 0;
    int r;

    *ret = (struct definition){0};
    if (options->text != NULL) {
        complaints->file = options->text_name != NULL ? options->text_name : "<text>";
        return config_parse(options->text, strlen(options->text), ret, complaints);
    }
    complaints->file = options->file != NULL ? options->file : sys_environment("WEIR_CONFIG");
    if (complaints->file == NULL) {
        complaints->file = "";
        return 0;
    }
    r = sys_read_file(complaints->file, CONFIG_TEXT_MAX, &text, &length);
    if (r < 0)
        return complain(complaints, r, (struct mark){0, 0}, "cannot be read: %s",
                        strerrordesc_np(-r));
    r = config_parse(text, length, ret, complaints);
    sys_free(text);
    return r;
}
