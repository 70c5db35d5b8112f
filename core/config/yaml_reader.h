/* SPDX-License-Identifier: MIT */
/*
 * YAML (JSON is a subset), node by node. libfyaml turns the text into events; what they come to is
 * asked for here, in the order of the text: a text, or a list or mapping whose entries follow.
 * Anchors, aliases, tags and merge keys are refused: a configuration says each thing where it is,
 * and no small text unfolds into a huge one.
 */
#ifndef WEIR_CORE_CONFIG_YAML_READER_H
#define WEIR_CORE_CONFIG_YAML_READER_H

#include "config/config_ast.h"

/* A text that is being read. Once `rc` is set there are no more nodes, and every list ends. */
struct yaml_reader {
    struct fy_parser *parser;
    struct fy_diag *diag;
    struct fy_event *event; /* the one to be looked at next; NULL once `rc` is set */
    struct config_ast *ast; /* the texts that are read live in its memory */
    struct complaints *complaints;
    struct mark mark; /* of the last thing read, for things that have none of their own */
    unsigned depth;
    int rc; /* why the reading ended before the end of the text: -EBADMSG or -ENOMEM */
};

enum yaml_kind {
    YAML_TEXT,
    YAML_NULL,    /* no value at all, or null */
    YAML_LIST,    /* its items follow, until yaml_list_leave() */
    YAML_MAPPING, /* its pairs follow, until yaml_mapping_leave() */
    YAML_INVALID  /* was complained about */
};

struct yaml_node {
    enum yaml_kind kind;
    struct config_value value; /* a text, or the mark of whatever it is */
    bool is_quoted;
};

/*
 * Begins to read. Returns 0; -EBADMSG (the text is too large or not plain UTF-8: complained about);
 * -ENOMEM. yaml_reader_close() must be called whatever is returned.
 */
int yaml_reader_open(struct yaml_reader *yaml, const char *text, size_t length,
                     struct config_ast *ast, struct complaints *complaints);
void yaml_reader_close(struct yaml_reader *yaml);

/* Around the nodes of the only document. yaml_document_begin() is false if the text is empty. */
bool yaml_document_begin(struct yaml_reader *yaml);
void yaml_document_end(struct yaml_reader *yaml);

/* Ends the reading. */
void yaml_reader_abort(struct yaml_reader *yaml, int rc);

/* "a text", "a list" and so on, for complaints. */
const char *yaml_kind_name(enum yaml_kind kind);

/* Reads a text, or the beginning of a list or mapping. */
void yaml_node_read(struct yaml_reader *yaml, struct yaml_node *ret);
/* Steps over what is left of a node, whatever it holds. */
void yaml_node_skip(struct yaml_reader *yaml, const struct yaml_node *node);
/* Complains of a node that is not what `name` takes, and steps over it. */
void yaml_node_refuse(struct yaml_reader *yaml, const char *name, const char *takes,
                      const struct yaml_node *node);
/* Begins a list or mapping. Nothing at all is an empty one; anything else is refused. */
bool yaml_node_enter(struct yaml_reader *yaml, const char *name, enum yaml_kind kind,
                     const struct yaml_node *node);

/* Whether the list or mapping has no more entries; its end is then stepped over. */
bool yaml_list_leave(struct yaml_reader *yaml);
bool yaml_mapping_leave(struct yaml_reader *yaml);
/* Reads the name of a pair and the beginning of its value. False: there is no usable name. */
bool yaml_pair_read(struct yaml_reader *yaml, struct config_value *ret_key,
                    struct yaml_node *ret_value);

#endif
