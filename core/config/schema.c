/* SPDX-License-Identifier: MIT */
/* Forms: fields are read in any order; those that are unknown or repeated are complained about. */
#include "config/schema.h"
#include "base/mutant.h"
#include <errno.h>
#include <string.h>

static void *at_offset(void *target, size_t offset)
{
    return (char *)target + offset;
}

/* Reads a text into `*scalar`; leaves only a mark there if it is something else. */
static void scalar_read(struct yaml *yaml, const char *name, const struct node *node,
                        struct scalar *scalar)
{
    *scalar = node->scalar;
    if (node->shape == SHAPE_TEXT)
        return;
    scalar->text = NULL;
    if (node->shape == SHAPE_NOTHING)
        complain(yaml->complaints, -EINVAL, node->scalar.mark, "`%s` needs a value",
                 show(name).text);
    else
        node_refuse(yaml, name, "a single value", node);
}

void *entry_append(struct yaml *yaml, void *items, size_t *n, size_t size, size_t most)
{
    if (*n < most) {
        items = definition_append(yaml->definition, items, n, size);
        if (items != NULL)
            return items;
        yaml_give_up(yaml, -ENOMEM);
    } else {
        complain(yaml->complaints, -EINVAL, yaml->mark, "more than %zu entries here", most);
        yaml_give_up(yaml, -EBADMSG);
    }
    *n = 0;
    return NULL;
}

void setting_append(struct yaml *yaml, const struct scalar *key, const struct node *node,
                    struct settings *settings, size_t most)
{
    settings->items =
        entry_append(yaml, settings->items, &settings->n, sizeof *settings->items, most);
    if (settings->items == NULL)
        return;
    struct setting *setting = &settings->items[settings->n - 1];
    setting->name = *key;
    scalar_read(yaml, key->text, node, &setting->value);
}

static void complain_of_repetition(struct yaml *yaml, const struct scalar *key, struct mark earlier)
{
    complain(yaml->complaints, -EINVAL, key->mark, "`%s` is given twice: first in line %u",
             show(key->text).text, earlier.line);
}

static void complain_of_unknown(struct yaml *yaml, const struct form *form,
                                const struct scalar *key)
{
    const char *names[FIELDS_MAX];
    char list[128] = "";
    for (size_t i = 0; i < form->fields_n; i++) {
        names[i] = form->fields[i].name;
        strcat(strcat(list, i == 0 ? "" : ", "), names[i]);
    }
    const char *closest = closest_word(key->text, names, form->fields_n);
    if (closest != NULL)
        complain(yaml->complaints, -EINVAL, key->mark, "unknown field `%s`%s", show(key->text).text,
                 hint_of(closest).text);
    else
        complain(yaml->complaints, -EINVAL, key->mark, "unknown field `%s`; there are: %s",
                 show(key->text).text, list);
}

/* A field that the form does not name. */
static void other_field_read(struct yaml *yaml, const struct form *form, void *target,
                             const struct scalar *key, const struct node *node)
{
    if (!form->has_settings) {
        complain_of_unknown(yaml, form, key);
        node_skip(yaml, node);
        return;
    }
    struct settings *settings = at_offset(target, form->settings);
    for (size_t i = 0; i < settings->n; i++) {
        if (strcmp(settings->items[i].name.text, key->text) == 0 && !MUTANT(80)) {
            complain_of_repetition(yaml, key, settings->items[i].name.mark);
            node_skip(yaml, node);
            return;
        }
    }
    setting_append(yaml, key, node, settings, CONFIG_SETTINGS_MAX);
}

void form_read(struct yaml *yaml, const struct form *form, void *target)
{
    struct mark seen[FIELDS_MAX] = {{0}};
    while (!mapping_ended(yaml)) {
        struct scalar key;
        struct node value;
        if (!pair_read(yaml, &key, &value))
            continue;
        size_t i = 0;
        while (i < form->fields_n && strcmp(form->fields[i].name, key.text) != 0)
            i++;
        if (i == form->fields_n) {
            other_field_read(yaml, form, target, &key, &value);
            continue;
        }
        const struct field *field = &form->fields[i];
        if (seen[i].line != 0) {
            complain_of_repetition(yaml, &key, seen[i]);
            node_skip(yaml, &value);
            continue;
        }
        seen[i] = key.mark;
        if (field->read != NULL)
            field->read(yaml, field->name, &value, target);
        else
            scalar_read(yaml, field->name, &value, at_offset(target, field->offset));
    }
}

struct scalar *texts_read(struct yaml *yaml, const char *name, size_t *n, size_t most)
{
    struct scalar *texts = NULL;
    while (!list_ended(yaml)) {
        struct node node;
        node_read(yaml, &node);
        if (node.shape != SHAPE_TEXT) {
            node_refuse(yaml, name, "a list of texts", &node);
            continue;
        }
        texts = entry_append(yaml, texts, n, sizeof *texts, most);
        if (texts != NULL)
            texts[*n - 1] = node.scalar;
    }
    return texts;
}
