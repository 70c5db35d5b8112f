/* SPDX-License-Identifier: MIT */
/* Reads a configuration text into a config AST, by schemas: tables of the fields that a mapping may
 * have, in any order. Complains about unknown and repeated fields. */
#include "base/invariant.h"
#include "config/value.h"
#include "config/yaml_reader.h"
#include "os/os.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum field_kind {
    FIELD_VALUE,   /* a text, or if there is a schema, a mapping */
    FIELD_TEXTS,   /* a list of texts, or if there is a schema, of mappings as well */
    FIELD_PAIRS,   /* a mapping of any names to texts */
    FIELD_MAPPING, /* a mapping with a schema */
    FIELD_LIST,    /* a list of mappings with a schema */
    FIELD_NAMED    /* a mapping of any names to mappings with a schema */
};

/* A field of a mapping, and where it goes in the mapping's struct. What is not a single text goes
 * to structs that begin with a struct config_value: their name, or only their mark. */
struct schema_field {
    const char *name;
    enum field_kind kind;
    size_t offset;   /* of the value, the struct, or the pointer to the array of items */
    size_t n_offset; /* of the number of items; of FIELD_VALUE, of the struct of the mapping */
    size_t size;     /* of an item */
    size_t most;     /* items that are possible */
    const struct schema *schema;
};

enum { SCHEMA_FIELDS_MAX = 20 };

struct schema {
    const char *owner;                                 /* what has the fields, in complaints */
    struct schema_field fields[SCHEMA_FIELDS_MAX + 1]; /* the last has no name */
    struct schema_field others;                        /* FIELD_PAIRS; no name: there are none */
};

#define FIELD(owner, field)                                                                        \
    {                                                                                              \
        .name = #field, .kind = FIELD_VALUE, .offset = offsetof(struct owner, field)               \
    }
#define ITEMS(owner, field, of, max, items_schema)                                                 \
    {                                                                                              \
        .name = #field, .kind = (of), .offset = offsetof(struct owner, field),                     \
        .n_offset = offsetof(struct owner, field##_n), .size = sizeof *((struct owner *)0)->field, \
        .most = (max), .schema = (items_schema)                                                    \
    }
#define PAIRS(owner, field, max)                                                                   \
    {                                                                                              \
        .name = #field, .kind = FIELD_PAIRS, .offset = offsetof(struct owner, field.items),        \
        .n_offset = offsetof(struct owner, field.n), .size = sizeof(struct setting), .most = (max) \
    }

static const struct schema lease_schema = {
    .owner = "`lease`",
    .fields = {{.name = "for",
                .kind = FIELD_VALUE,
                .offset = offsetof(struct ast_lease_ahead, span)}},
};

static const struct schema limit_schema = {
    .owner = "a limit",
    .fields = {FIELD(ast_limit, type),
               FIELD(ast_limit, key),
               FIELD(ast_limit, algorithm),
               FIELD(ast_limit, refund),
               FIELD(ast_limit, overuse),
               FIELD(ast_limit, shadow),
               FIELD(ast_limit, enforce),
               FIELD(ast_limit, max_hold),
               FIELD(ast_limit, max_hold_action),
               {.name = "lease",
                .kind = FIELD_VALUE,
                .offset = offsetof(struct ast_limit, lease),
                .n_offset = offsetof(struct ast_limit, lease_ahead),
                .schema = &lease_schema}},
    .others = PAIRS(ast_limit, settings, CONFIG_SETTINGS_MAX),
};

static const struct schema subjects_schema = {
    .owner = "`subjects`",
    .fields = {FIELD(ast_subjects, max), FIELD(ast_subjects, memory), FIELD(ast_subjects, evict)},
};

static const struct schema set_schema = {
    .owner = "a set",
    .fields = {FIELD(ast_set, backend),
               FIELD(ast_set, lifetime),
               FIELD(ast_set, on_failure),
               FIELD(ast_set, revision),
               FIELD(ast_set, timeout),
               FIELD(ast_set, max_wait),
               FIELD(ast_set, max_waiters),
               FIELD(ast_set, strict),
               FIELD(ast_set, fair),
               FIELD(ast_set, clock),
               FIELD(ast_set, hold_histogram),
               FIELD(ast_set, shadow),
               FIELD(ast_set, enforce),
               FIELD(ast_set, priorities),
               FIELD(ast_set, ageing),
               PAIRS(ast_set, shares, CONFIG_SETTINGS_MAX),
               {.name = "subjects",
                .kind = FIELD_MAPPING,
                .offset = offsetof(struct ast_set, subjects),
                .schema = &subjects_schema},
               PAIRS(ast_set, config, CONFIG_ENTRIES_MAX),
               ITEMS(ast_set, limits, FIELD_LIST, CONFIG_ENTRIES_MAX, &limit_schema)},
};

static const struct schema pool_set_schema = {
    .owner = "a set of a pool",
    .fields = {{.name = "name",
                .kind = FIELD_VALUE,
                .offset = offsetof(struct ast_pool_set, named)},
               FIELD(ast_pool_set, weight)},
    .others = PAIRS(ast_pool_set, settings, CONFIG_SETTINGS_MAX),
};

static const struct schema pool_schema = {
    .owner = "a pool",
    .fields = {FIELD(ast_pool, balancer),
               FIELD(ast_pool, seed),
               {.name = "try", .kind = FIELD_VALUE, .offset = offsetof(struct ast_pool, try_)},
               FIELD(ast_pool, wait),
               {.name = "class", .kind = FIELD_VALUE, .offset = offsetof(struct ast_pool, class_)},
               ITEMS(ast_pool, sets, FIELD_TEXTS, CONFIG_SETS_MAX, &pool_set_schema)},
    .others = PAIRS(ast_pool, settings, CONFIG_SETTINGS_MAX),
};

static const struct schema backend_schema = {
    .owner = "a backend",
    .fields = {FIELD(ast_backend, type)},
    .others = PAIRS(ast_backend, settings, CONFIG_SETTINGS_MAX),
};

static const struct schema root_schema = {
    .owner = "a configuration",
    .fields = {FIELD(config_ast, version),
               ITEMS(config_ast, plugin_dirs, FIELD_TEXTS, CONFIG_DIRS_MAX, NULL),
               FIELD(config_ast, process_dir), FIELD(config_ast, clock), FIELD(config_ast, publish),
               ITEMS(config_ast, backends, FIELD_NAMED, CONFIG_BACKENDS_MAX, &backend_schema),
               ITEMS(config_ast, sets, FIELD_NAMED, CONFIG_SETS_MAX, &set_schema),
               ITEMS(config_ast, pools, FIELD_NAMED, CONFIG_SETS_MAX, &pool_schema)},
};

static void *schema_at_offset(void *target, size_t offset)
{
    return (char *)target + offset;
}

/* Appends a zeroed item. Returns it, or NULL if the reading has ended. */
static void *schema_append(struct yaml_reader *yaml, const struct schema_field *field, void *target)
{
    void *item, *array = schema_at_offset(target, field->offset);
    size_t *n = schema_at_offset(target, field->n_offset);
    if (*n == field->most) {
        complain(yaml->complaints, yaml->mark, "more than %zu entries here", field->most);
        yaml_reader_abort(yaml, -EBADMSG);
        return NULL;
    }
    item = config_ast_append(yaml->ast, array, n, field->size);
    if (!item)
        yaml_reader_abort(yaml, -ENOMEM);
    return item;
}

/* Reads a text into `*value`. For anything else, complains and leaves only a mark. */
static void schema_read_value(struct yaml_reader *yaml, const char *name,
                              const struct yaml_node *node, struct config_value *value)
{
    *value = node->value;
    if (node->kind == YAML_NULL)
        complain(yaml->complaints, node->value.mark, "`%s` needs a value", error_text(name).text);
    else if (node->kind != YAML_TEXT)
        yaml_node_refuse(yaml, name, "a single value", node);
}

/* Reads a list as a text, unless it has too many values, or one that is none or has a comma. */
static void schema_read_setting_list(struct yaml_reader *yaml, struct setting *setting)
{
    const char *values[WEIR_LIST_MAX];
    struct yaml_node item;
    size_t n = 0, size = 0, at = 0;
    bool ok = true;
    while (yaml_item_read(yaml, &item)) {
        ok = ok && item.kind == YAML_TEXT && n < WEIR_LIST_MAX && !strchr(item.value.text, ',');
        if (ok) {
            values[n++] = item.value.text;
            size += strlen(item.value.text) + strlen(", ");
        } else {
            yaml_node_skip(yaml, &item);
        }
    }
    char *list = ok ? config_ast_alloc(yaml->ast, size + 1, 1) : NULL;
    for (size_t i = 0; list && i < n; i++)
        at += (size_t)snprintf(list + at, size + 1 - at, "%s%s", i == 0 ? "" : ", ", values[i]);
    setting->list = list;
}

/* Reads the value of a pair of any name. The resolver complains about it, as only that knows the
 * names. */
static void schema_read_setting(struct yaml_reader *yaml, const struct yaml_node *node,
                                struct setting *setting)
{
    if (node->kind == YAML_NULL)
        setting->refusal = "needs a value: `null` and `~` are none, unless in quotes";
    else if (node->kind == YAML_LIST)
        setting->refusal = "takes a single value, not a list";
    else if (node->kind == YAML_MAPPING)
        setting->refusal = "takes a single value, not a mapping";
    setting->value = node->value;
    if (node->kind == YAML_LIST)
        schema_read_setting_list(yaml, setting);
    else
        yaml_node_skip(yaml, node);
}

static void schema_read(struct yaml_reader *yaml, const struct schema *schema, void *target);

/* Reads a pair of a mapping of any names. */
static void schema_read_pair(struct yaml_reader *yaml, const struct schema_field *field,
                             const struct config_value *name, const struct yaml_node *node,
                             void *target)
{
    struct config_value *item = schema_append(yaml, field, target);
    if (!item)
        return;
    *item = *name;
    if (field->kind == FIELD_PAIRS) {
        schema_read_setting(yaml, node, (struct setting *)item);
    } else if (node->kind == YAML_TEXT || node->kind == YAML_LIST) {
        complain(yaml->complaints, node->value.mark, "`%s` is %s here, which is a mapping, not %s",
                 error_text(name->text).text, field->schema->owner, yaml_kind_name(node->kind));
        yaml_node_skip(yaml, node);
    } else if (node->kind == YAML_MAPPING) {
        schema_read(yaml, field->schema, item);
    }
}

static void schema_read_list(struct yaml_reader *yaml, const struct schema_field *field,
                             void *target)
{
    bool texts = field->kind == FIELD_TEXTS;
    struct yaml_node node;
    while (yaml_item_read(yaml, &node)) {
        bool is_mapping = node.kind == YAML_MAPPING && field->schema;
        if (!is_mapping && !(texts && node.kind == YAML_TEXT)) {
            yaml_node_refuse(yaml, field->name, texts ? "a list of texts" : "a list of mappings",
                             &node);
            continue;
        }
        struct config_value *item = schema_append(yaml, field, target);
        if (!item)
            return;
        *item = node.value;
        if (is_mapping)
            schema_read(yaml, field->schema, item);
    }
}

static void schema_read_field(struct yaml_reader *yaml, const struct schema_field *field,
                              const struct yaml_node *node, void *target)
{
    struct config_value name, *value = schema_at_offset(target, field->offset);
    struct yaml_node item;
    switch (field->kind) {
    case FIELD_VALUE:
        if (!field->schema || node->kind != YAML_MAPPING) {
            schema_read_value(yaml, field->name, node, value);
            break;
        }
        value->mark = node->value.mark;
        value = schema_at_offset(target, field->n_offset);
        /* fall through */
    case FIELD_MAPPING:
        /* Null counts as an empty mapping, and lacks what an empty one lacks. */
        if (node->kind == YAML_MAPPING || node->kind == YAML_NULL)
            *value = (struct config_value){field->name, node->value.mark};
        if (yaml_node_enter(yaml, field->name, YAML_MAPPING, node))
            schema_read(yaml, field->schema, value);
        break;
    case FIELD_TEXTS:
    case FIELD_LIST:
        if (yaml_node_enter(yaml, field->name, YAML_LIST, node))
            schema_read_list(yaml, field, target);
        break;
    default:
        if (!yaml_node_enter(yaml, field->name, YAML_MAPPING, node))
            break;
        while (yaml_pair_read(yaml, &name, &item))
            schema_read_pair(yaml, field, &name, &item, target);
    }
}

/* Complains about an unknown field. The one that was perhaps meant counts as given from here on. */
static void schema_complain_unknown(struct yaml_reader *yaml, const struct schema *schema,
                                    const struct config_value *name, void *target)
{
    const char *names[SCHEMA_FIELDS_MAX], *closest;
    size_t n = 0;
    for (; schema->fields[n].name; n++) {
        WEIR_INVARIANT(n < SCHEMA_FIELDS_MAX);
        names[n] = schema->fields[n].name;
    }
    closest = value_complain_similar(yaml->complaints, name, names, n);
    if (!closest)
        complain(yaml->complaints, name->mark, "`%s` is not a field of %s; there are: %s",
                 error_text(name->text).text, schema->owner, text_join(names, n, ", ", ", ").text);
    for (size_t i = 0; closest && i < n; i++) {
        struct config_value *value = schema_at_offset(target, schema->fields[i].offset);
        if (names[i] == closest && schema->fields[i].kind == FIELD_VALUE && !value_is_given(value))
            value->mark = name->mark;
    }
}

/* Returns the mark of an earlier pair that the schema does not name, or 0, 0. */
static struct mark schema_find_other(const struct schema *schema, void *target, const char *name)
{
    const struct settings *settings = schema_at_offset(target, schema->others.offset);
    for (size_t i = 0; schema->others.name && i < settings->n; i++) {
        if (strcmp(settings->items[i].name.text, name) == 0)
            return settings->items[i].name.mark;
    }
    return (struct mark){0, 0};
}

/* Reads the pairs of a mapping that was entered. */
static void schema_read(struct yaml_reader *yaml, const struct schema *schema, void *target)
{
    struct mark seen[SCHEMA_FIELDS_MAX + 1] = {{0}};
    struct config_value name;
    struct yaml_node node;
    while (yaml_pair_read(yaml, &name, &node)) {
        const struct schema_field *field = schema->fields;
        while (field->name && strcmp(field->name, name.text) != 0)
            field++;
        struct mark *earlier = &seen[field - schema->fields];
        if (!field->name)
            *earlier = schema_find_other(schema, target, name.text);
        if (earlier->line != 0) {
            complain(yaml->complaints, name.mark, "`%s` is given twice: first in line %u",
                     error_text(name.text).text, earlier->line);
            yaml_node_skip(yaml, &node);
        } else if (field->name) {
            *earlier = name.mark;
            schema_read_field(yaml, field, &node, target);
        } else if (schema->others.name) {
            schema_read_pair(yaml, &schema->others, &name, &node, target);
        } else {
            schema_complain_unknown(yaml, schema, &name, target);
            yaml_node_skip(yaml, &node);
        }
    }
}

static void config_yaml_check_version(struct yaml_reader *yaml, struct mark mark)
{
    const struct config_value *version = &yaml->ast->version;
    if (!value_is_given(version))
        complain(yaml->complaints, mark, "`version: 1` is missing: a configuration begins with it");
    else if (version->text && strcmp(version->text, "1") != 0)
        complain(yaml->complaints, version->mark,
                 "version `%s` is not known here: this library reads `version: 1`",
                 error_text(version->text).text);
}

/* Reads the root of a document. */
static void config_yaml_read_root(struct yaml_reader *yaml, const struct yaml_node *root)
{
    if (root->kind == YAML_MAPPING)
        schema_read(yaml, &root_schema, yaml->ast);
    else if (root->kind != YAML_NULL && root->kind != YAML_INVALID)
        complain(yaml->complaints, root->value.mark,
                 "a configuration is a mapping that begins with `version: 1`, not %s",
                 yaml_kind_name(root->kind));
    if (yaml->r == 0 && (root->kind == YAML_MAPPING || root->kind == YAML_NULL))
        config_yaml_check_version(yaml, root->value.mark);
    else
        yaml_node_skip(yaml, root);
}

int config_yaml_parse(const char *text, size_t length, struct config_ast *ret,
                      struct complaints *complaints)
{
    uint32_t before = complaints->total;
    struct yaml_reader yaml;
    struct yaml_node root;
    *ret = (struct config_ast){.complaints = complaints};
    yaml_reader_open(&yaml, text, length, ret, &root);
    config_yaml_read_root(&yaml, &root);
    int r = yaml_reader_close(&yaml);
    return r == 0 && complaints->total > before ? -EINVAL : r;
}

int config_yaml_load(const struct weir_options *options, struct config_ast *ret,
                     struct complaints *complaints)
{
    char *text = NULL;
    size_t length = 0;
    *ret = (struct config_ast){.complaints = complaints};
    if (options->text) {
        complaints->file = options->text_name ? options->text_name : "<text>";
        return config_yaml_parse(options->text, strlen(options->text), ret, complaints);
    }
    complaints->file = options->file ? options->file : os_getenv("WEIR_CONFIG");
    if (!complaints->file) {
        complaints->file = "";
        return 0;
    }
    int r = os_file_read(complaints->file, CONFIG_TEXT_MAX, &text, &length);
    if (r < 0)
        return complaint_add(complaints, r, (struct mark){0, 0}, "cannot be read: %s",
                             strerrordesc_np(-r));
    r = config_yaml_parse(text, length, ret, complaints);
    os_free(text);
    return r;
}
