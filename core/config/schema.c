/* SPDX-License-Identifier: MIT */
/* Reads mappings by schema: fields in any order; complains about unknown and repeated ones. */
#include "config/schema.h"
#include "base/invariant.h"
#include <errno.h>
#include <string.h>

static void *schema_at_offset(void *target, size_t offset)
{
    return (char *)target + offset;
}

/* Reads a text into `*value`. For anything else, complains and leaves only a mark. */
static void schema_read_value(struct yaml_reader *yaml, const char *name,
                              const struct yaml_node *node, struct config_value *value)
{
    *value = node->value;
    if (node->kind == YAML_TEXT)
        return;
    value->text = NULL;
    if (node->kind == YAML_NULL)
        complaint_add(yaml->complaints, -EINVAL, node->value.mark, "`%s` needs a value",
                      error_text(name).text);
    else
        yaml_node_refuse(yaml, name, "a single value", node);
}

void *schema_append_item(struct yaml_reader *yaml, void *items, size_t *n, size_t size, size_t most)
{
    if (*n < most) {
        items = config_ast_append(yaml->ast, items, n, size);
        if (items != NULL)
            return items;
        yaml_reader_abort(yaml, -ENOMEM);
    } else {
        complaint_add(yaml->complaints, -EINVAL, yaml->mark, "more than %zu entries here", most);
        yaml_reader_abort(yaml, -EBADMSG);
    }
    *n = 0;
    return NULL;
}

void schema_append_setting(struct yaml_reader *yaml, const struct config_value *key,
                           const struct yaml_node *node, struct settings *settings, size_t most)
{
    settings->items =
        schema_append_item(yaml, settings->items, &settings->n, sizeof *settings->items, most);
    if (settings->items == NULL)
        return;
    struct setting *setting = &settings->items[settings->n - 1];
    setting->name = *key;
    schema_read_value(yaml, key->text, node, &setting->value);
}

static void schema_complain_repeated(struct yaml_reader *yaml, const struct config_value *key,
                                     struct mark earlier)
{
    complaint_add(yaml->complaints, -EINVAL, key->mark, "`%s` is given twice: first in line %u",
                  error_text(key->text).text, earlier.line);
}

static void schema_complain_unknown(struct yaml_reader *yaml, const struct schema *schema,
                                    const struct config_value *key)
{
    const char *names[SCHEMA_FIELDS_MAX];
    char list[128] = "";
    for (size_t i = 0; i < schema->fields_n; i++) {
        names[i] = schema->fields[i].name;
        strcat(strcat(list, i == 0 ? "" : ", "), names[i]);
    }
    const char *closest = hint_find(key->text, names, schema->fields_n);
    if (closest != NULL)
        complaint_add(yaml->complaints, -EINVAL, key->mark, "unknown field `%s`%s",
                      error_text(key->text).text, hint_format(closest).text);
    else
        complaint_add(yaml->complaints, -EINVAL, key->mark, "unknown field `%s`; there are: %s",
                      error_text(key->text).text, list);
}

/* Reads a field that the schema does not name. */
static void schema_read_other(struct yaml_reader *yaml, const struct schema *schema, void *target,
                              const struct config_value *key, const struct yaml_node *node)
{
    if (!schema->has_settings) {
        schema_complain_unknown(yaml, schema, key);
        yaml_node_skip(yaml, node);
        return;
    }
    struct settings *settings = schema_at_offset(target, schema->settings);
    for (size_t i = 0; i < settings->n; i++) {
        if (strcmp(settings->items[i].name.text, key->text) == 0) {
            schema_complain_repeated(yaml, key, settings->items[i].name.mark);
            yaml_node_skip(yaml, node);
            return;
        }
    }
    schema_append_setting(yaml, key, node, settings, CONFIG_SETTINGS_MAX);
}

void schema_read(struct yaml_reader *yaml, const struct schema *schema, void *target)
{
    struct mark seen[SCHEMA_FIELDS_MAX] = {{0}};
    WEIR_INVARIANT(schema->fields_n <= SCHEMA_FIELDS_MAX);
    while (!yaml_mapping_leave(yaml)) {
        struct config_value key;
        struct yaml_node value;
        if (!yaml_pair_read(yaml, &key, &value))
            continue;
        size_t i = 0;
        while (i < schema->fields_n && strcmp(schema->fields[i].name, key.text) != 0)
            i++;
        if (i == schema->fields_n) {
            schema_read_other(yaml, schema, target, &key, &value);
            continue;
        }
        const struct schema_field *field = &schema->fields[i];
        if (seen[i].line != 0) {
            schema_complain_repeated(yaml, &key, seen[i]);
            yaml_node_skip(yaml, &value);
            continue;
        }
        seen[i] = key.mark;
        if (field->read != NULL)
            field->read(yaml, field->name, &value, target);
        else
            schema_read_value(yaml, field->name, &value, schema_at_offset(target, field->offset));
    }
}

struct config_value *schema_read_texts(struct yaml_reader *yaml, const char *name, size_t *n,
                                       size_t most)
{
    struct config_value *texts = NULL;
    while (!yaml_list_leave(yaml)) {
        struct yaml_node node;
        yaml_node_read(yaml, &node);
        if (node.kind != YAML_TEXT) {
            yaml_node_refuse(yaml, name, "a list of texts", &node);
            continue;
        }
        texts = schema_append_item(yaml, texts, n, sizeof *texts, most);
        if (texts != NULL)
            texts[*n - 1] = node.value;
    }
    return texts;
}
