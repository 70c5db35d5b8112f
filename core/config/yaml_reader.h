/* SPDX-License-Identifier: MIT */
/* Reads YAML (JSON is a subset) node by node, in the order of the text. libfyaml turns the text
 * into events. A node is a text, or a list or mapping with entries that follow. */
#ifndef WEIR_CORE_CONFIG_YAML_READER_H
#define WEIR_CORE_CONFIG_YAML_READER_H

#include "config/config_ast.h"

/* A text that is being read. Once `r` is set there are no more nodes, and every list ends. */
struct yaml_reader {
    struct fy_parser *parser;
    struct fy_diag *diag;
    struct fy_event *event; /* the current one; NULL once `r` is set */
    struct config_ast *ast; /* owns the texts that are read */
    struct complaints *complaints;
    const char *text;
    size_t length;
    struct mark mark; /* of the last thing read, for things without one */
    unsigned depth;
    int r; /* why the reading ended early: -EBADMSG or -ENOMEM */
};

enum yaml_kind {
    YAML_TEXT,
    YAML_NULL,    /* no value, or null */
    YAML_LIST,    /* items follow, until yaml_item_read() returns false */
    YAML_MAPPING, /* pairs follow, until yaml_pair_read() does */
    YAML_INVALID  /* complained about */
};

struct yaml_node {
    enum yaml_kind kind;
    struct config_value value; /* a text, or only the mark of another node */
    bool is_quoted;
};

/* Opens a reader and reads the root of the only document; nothing is YAML_NULL. Complains about a
 * text that is too large or not plain UTF-8. yaml_reader_close() must be called in any case. */
void yaml_reader_open(struct yaml_reader *yaml, const char *text, size_t length,
                      struct config_ast *ast, struct yaml_node *ret);
/* Complains about a second document. Returns 0, or why the reading ended early. */
int yaml_reader_close(struct yaml_reader *yaml);

/* Ends the reading with the error `r`. */
void yaml_reader_abort(struct yaml_reader *yaml, int r);

/* Returns "a text", "a list" and so on, for complaints. */
const char *yaml_kind_name(enum yaml_kind kind);

/* Reads a text, or the beginning of a list or mapping. */
void yaml_node_read(struct yaml_reader *yaml, struct yaml_node *ret);
/* Skips what is left of a node. */
void yaml_node_skip(struct yaml_reader *yaml, const struct yaml_node *node);
/* Complains about a node that `name` does not take, and skips it. */
void yaml_node_refuse(struct yaml_reader *yaml, const char *name, const char *takes,
                      const struct yaml_node *node);
/* Enters a list or mapping. Returns false for null, which counts as empty, and for any other kind,
 * which is refused. */
bool yaml_node_enter(struct yaml_reader *yaml, const char *name, enum yaml_kind kind,
                     const struct yaml_node *node);

/* Read the next item of a list, or the name of the next pair of a mapping and the beginning of its
 * value. A pair with an unusable name is skipped. Return false, and consume the end, if there are
 * no more. */
bool yaml_item_read(struct yaml_reader *yaml, struct yaml_node *ret);
bool yaml_pair_read(struct yaml_reader *yaml, struct config_value *ret_key,
                    struct yaml_node *ret_value);

#endif
