/* SPDX-License-Identifier: MIT */
/* Reads a configuration text into a config AST: the schemas of the document, its sets, limits and
 * pools. */
#include "config/schema.h"
#include "os/os.h"
#include <errno.h>
#include <stddef.h>
#include <string.h>

static void config_yaml_read_config(struct yaml_reader *yaml, const char *name,
                                    const struct yaml_node *node, void *target)
{
    struct ast_set *set = target;
    if (!yaml_node_enter(yaml, name, YAML_MAPPING, node))
        return;
    while (!yaml_mapping_leave(yaml)) {
        struct config_value key;
        struct yaml_node value;
        if (yaml_pair_read(yaml, &key, &value))
            schema_append_setting(yaml, &key, &value, &set->config, CONFIG_ENTRIES_MAX);
    }
}

static void config_yaml_read_limits(struct yaml_reader *yaml, const char *name,
                                    const struct yaml_node *node, void *target)
{
    static const struct schema_field fields[] = {
        {"type", offsetof(struct ast_limit, type), NULL},
        {"key", offsetof(struct ast_limit, key), NULL},
        {"algorithm", offsetof(struct ast_limit, algorithm), NULL},
        {"refund", offsetof(struct ast_limit, refund), NULL},
        {"overuse", offsetof(struct ast_limit, overuse), NULL},
        {"lease", offsetof(struct ast_limit, lease), NULL},
    };
    static const struct schema schema = {.fields = fields,
                                         .fields_n = sizeof fields / sizeof fields[0],
                                         .has_settings = true,
                                         .settings = offsetof(struct ast_limit, settings)};
    struct ast_set *set = target;
    if (!yaml_node_enter(yaml, name, YAML_LIST, node))
        return;
    while (!yaml_list_leave(yaml)) {
        struct yaml_node item;
        yaml_node_read(yaml, &item);
        if (item.kind != YAML_MAPPING) {
            yaml_node_refuse(yaml, name, "a list of mappings", &item);
            continue;
        }
        set->limits = schema_append_item(yaml, set->limits, &set->limits_n, sizeof *set->limits,
                                         CONFIG_ENTRIES_MAX);
        if (set->limits == NULL)
            return;
        struct ast_limit *limit = &set->limits[set->limits_n - 1];
        *limit = (struct ast_limit){.mark = item.value.mark};
        schema_read(yaml, &schema, limit);
    }
}

static void config_yaml_read_keyed(struct yaml_reader *yaml, const char *name,
                                   const struct yaml_node *node, void *target)
{
    static const struct schema_field fields[] = {
        {"max", offsetof(struct ast_keyed, max_keys), NULL},
        {"memory", offsetof(struct ast_keyed, memory), NULL},
        {"evict", offsetof(struct ast_keyed, evict), NULL},
    };
    static const struct schema schema = {.fields = fields,
                                         .fields_n = sizeof fields / sizeof fields[0]};
    struct ast_set *set = target;
    bool is_mapping = yaml_node_enter(yaml, name, YAML_MAPPING, node);
    /* Null counts as an empty mapping, and lacks what an empty one lacks. */
    set->keyed = (struct ast_keyed){.mark = node->value.mark,
                                    .given = is_mapping || node->kind == YAML_NULL};
    if (is_mapping)
        schema_read(yaml, &schema, &set->keyed);
}

static void config_yaml_read_sets(struct yaml_reader *yaml, const char *name,
                                  const struct yaml_node *node, void *target)
{
    static const struct schema_field fields[] = {
        {"backend", offsetof(struct ast_set, backend), NULL},
        {"lifetime", offsetof(struct ast_set, lifetime), NULL},
        {"timeout", offsetof(struct ast_set, timeout), NULL},
        {"max_wait", offsetof(struct ast_set, max_wait), NULL},
        {"max_waiters", offsetof(struct ast_set, max_waiters), NULL},
        {"strict", offsetof(struct ast_set, strict), NULL},
        {"fair", offsetof(struct ast_set, fair), NULL},
        {"subjects", 0, config_yaml_read_keyed},
        {"config", 0, config_yaml_read_config},
        {"limits", 0, config_yaml_read_limits},
    };
    static const struct schema schema = {.fields = fields,
                                         .fields_n = sizeof fields / sizeof fields[0]};
    struct config_ast *ast = target;
    if (!yaml_node_enter(yaml, name, YAML_MAPPING, node))
        return;
    while (!yaml_mapping_leave(yaml)) {
        struct config_value key;
        struct yaml_node value;
        if (!yaml_pair_read(yaml, &key, &value))
            continue;
        ast->sets =
            schema_append_item(yaml, ast->sets, &ast->sets_n, sizeof *ast->sets, CONFIG_SETS_MAX);
        if (ast->sets == NULL)
            return;
        struct ast_set *set = &ast->sets[ast->sets_n - 1];
        *set = (struct ast_set){.name = key};
        if (yaml_node_enter(yaml, key.text, YAML_MAPPING, &value))
            schema_read(yaml, &schema, set);
    }
}

static void config_yaml_read_pool_sets(struct yaml_reader *yaml, const char *name,
                                       const struct yaml_node *node, void *target)
{
    struct ast_pool *pool = target;
    if (yaml_node_enter(yaml, name, YAML_LIST, node))
        pool->sets = schema_read_texts(yaml, name, &pool->sets_n, CONFIG_SETS_MAX);
}

static void config_yaml_read_pools(struct yaml_reader *yaml, const char *name,
                                   const struct yaml_node *node, void *target)
{
    static const struct schema_field fields[] = {
        {"balancer", offsetof(struct ast_pool, balancer), NULL},
        {"seed", offsetof(struct ast_pool, seed), NULL},
        {"sets", 0, config_yaml_read_pool_sets},
    };
    static const struct schema schema = {.fields = fields,
                                         .fields_n = sizeof fields / sizeof fields[0],
                                         .has_settings = true,
                                         .settings = offsetof(struct ast_pool, settings)};
    struct config_ast *ast = target;
    if (!yaml_node_enter(yaml, name, YAML_MAPPING, node))
        return;
    while (!yaml_mapping_leave(yaml)) {
        struct config_value key;
        struct yaml_node value;
        if (!yaml_pair_read(yaml, &key, &value))
            continue;
        ast->pools = schema_append_item(yaml, ast->pools, &ast->pools_n, sizeof *ast->pools,
                                        CONFIG_SETS_MAX);
        if (ast->pools == NULL)
            return;
        struct ast_pool *pool = &ast->pools[ast->pools_n - 1];
        *pool = (struct ast_pool){.name = key};
        if (yaml_node_enter(yaml, key.text, YAML_MAPPING, &value))
            schema_read(yaml, &schema, pool);
    }
}

static void config_yaml_read_dirs(struct yaml_reader *yaml, const char *name,
                                  const struct yaml_node *node, void *target)
{
    struct config_ast *ast = target;
    if (yaml_node_enter(yaml, name, YAML_LIST, node))
        ast->plugin_dirs = schema_read_texts(yaml, name, &ast->plugin_dirs_n, CONFIG_DIRS_MAX);
}

static void config_yaml_check_version(struct yaml_reader *yaml, const struct config_value *version,
                                      struct mark mark)
{
    if (version->text == NULL && version->mark.line == 0)
        complaint_add(yaml->complaints, -EINVAL, mark,
                      "`version: 1` is missing: a configuration begins with it");
    else if (version->text != NULL && strcmp(version->text, "1") != 0)
        complaint_add(yaml->complaints, -EINVAL, version->mark,
                      "version `%s` is not known here: this library reads `version: 1`",
                      error_text(version->text).text);
}

/* The document as a whole. */
struct config_root {
    struct config_ast *ast;
    struct config_value version, process_dir, clock;
};

static void config_root_read_sets(struct yaml_reader *yaml, const char *name,
                                  const struct yaml_node *node, void *target)
{
    config_yaml_read_sets(yaml, name, node, ((struct config_root *)target)->ast);
}

static void config_root_read_pools(struct yaml_reader *yaml, const char *name,
                                   const struct yaml_node *node, void *target)
{
    config_yaml_read_pools(yaml, name, node, ((struct config_root *)target)->ast);
}

static void config_root_read_dirs(struct yaml_reader *yaml, const char *name,
                                  const struct yaml_node *node, void *target)
{
    config_yaml_read_dirs(yaml, name, node, ((struct config_root *)target)->ast);
}

static void config_root_read(struct yaml_reader *yaml)
{
    static const struct schema_field fields[] = {
        {"version", offsetof(struct config_root, version), NULL},
        {"plugin_dirs", 0, config_root_read_dirs},
        {"process_dir", offsetof(struct config_root, process_dir), NULL},
        {"clock", offsetof(struct config_root, clock), NULL},
        {"sets", 0, config_root_read_sets},
        {"pools", 0, config_root_read_pools},
    };
    static const struct schema schema = {.fields = fields,
                                         .fields_n = sizeof fields / sizeof fields[0]};
    struct config_root root = {.ast = yaml->ast};
    struct yaml_node node;
    yaml_node_read(yaml, &node);
    if (node.kind == YAML_MAPPING) {
        schema_read(yaml, &schema, &root);
        yaml->ast->process_dir = root.process_dir;
        yaml->ast->clock = root.clock;
    } else if (node.kind != YAML_NULL) {
        if (node.kind != YAML_INVALID)
            complaint_add(yaml->complaints, -EINVAL, node.value.mark,
                          "a configuration is a mapping that begins with `version: 1`, not %s",
                          yaml_kind_name(node.kind));
        yaml_node_skip(yaml, &node);
        return;
    }
    if (yaml->rc == 0)
        config_yaml_check_version(yaml, &root.version, node.value.mark);
}

static void config_yaml_read_document(struct yaml_reader *yaml)
{
    if (!yaml_document_begin(yaml)) {
        config_yaml_check_version(yaml, &(struct config_value){0}, (struct mark){1, 1});
        return;
    }
    config_root_read(yaml);
    yaml_document_end(yaml);
}

int config_yaml_parse(const char *text, size_t length, struct config_ast *ret,
                      struct complaints *complaints)
{
    uint32_t before = complaints->total;
    struct yaml_reader yaml;
    *ret = (struct config_ast){0};
    int rc = yaml_reader_open(&yaml, text, length, ret, complaints);
    if (rc == 0) {
        config_yaml_read_document(&yaml);
        rc = yaml.rc;
    }
    yaml_reader_close(&yaml);
    if (rc == 0 && complaints->total > before)
        rc = -EINVAL;
    return rc;
}

int config_yaml_load(const struct weir_options *options, struct config_ast *ret,
                     struct complaints *complaints)
{
    char *text = NULL;
    size_t length = 0;
    int r;

    *ret = (struct config_ast){0};
    if (options->text != NULL) {
        complaints->file = options->text_name != NULL ? options->text_name : "<text>";
        return config_yaml_parse(options->text, strlen(options->text), ret, complaints);
    }
    complaints->file = options->file != NULL ? options->file : os_getenv("WEIR_CONFIG");
    if (complaints->file == NULL) {
        complaints->file = "";
        return 0;
    }
    r = os_file_read(complaints->file, CONFIG_TEXT_MAX, &text, &length);
    if (r < 0)
        return complaint_add(complaints, r, (struct mark){0, 0}, "cannot be read: %s",
                             strerrordesc_np(-r));
    r = config_yaml_parse(text, length, ret, complaints);
    os_free(text);
    return r;
}
