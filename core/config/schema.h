/* SPDX-License-Identifier: MIT */
/* Schemas: the fields that a mapping may have, and the struct that they are read into. */
#ifndef WEIR_CORE_CONFIG_SCHEMA_H
#define WEIR_CORE_CONFIG_SCHEMA_H

#include "config/yaml_reader.h"

/* A field of a mapping: a text, stored at `offset`, or something that `read` reads. */
struct schema_field {
    const char *name;
    size_t offset; /* of a struct config_value */
    void (*read)(struct yaml_reader *yaml, const char *name, const struct yaml_node *node,
                 void *target);
};

enum { SCHEMA_FIELDS_MAX = 10 };

/* Other fields go to `settings`, or are unknown. */
struct schema {
    const struct schema_field *fields;
    size_t fields_n;
    bool has_settings;
    size_t settings; /* offset of a struct settings */
};

/* Reads the pairs of a mapping that was entered. */
void schema_read(struct yaml_reader *yaml, const struct schema *schema, void *target);
/* Reads the items of a list that was entered; all must be texts. */
struct config_value *schema_read_texts(struct yaml_reader *yaml, const char *name, size_t *n,
                                       size_t most);
/* Appends a name with a value to `settings`, at most `most` of them. */
void schema_append_setting(struct yaml_reader *yaml, const struct config_value *key,
                           const struct yaml_node *node, struct settings *settings, size_t most);
/* Appends a zeroed item. Returns the array, or NULL with `*n` 0 if the reading has ended. */
void *schema_append_item(struct yaml_reader *yaml, void *items, size_t *n, size_t size,
                         size_t most);

#endif
