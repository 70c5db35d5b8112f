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
struct yaml {
    struct fy_parser *parser;
    struct fy_diag *diag;
    struct fy_event *event;        /* the one to be looked at next; NULL once `rc` is set */
    struct definition *definition; /* the texts that are read live in its memory */
    struct complaints *complaints;
    struct mark mark; /* of the last thing read, for things that have none of their own */
    unsigned depth;
    int rc; /* why the reading ended before the end of the text: -EBADMSG or -ENOMEM */
};

enum shape {
    SHAPE_TEXT,
    SHAPE_NOTHING, /* no value at all, or null */
    SHAPE_LIST,    /* its items follow, until list_ended() */
    SHAPE_MAPPING, /* its pairs follow, until mapping_ended() */
    SHAPE_REFUSED  /* was complained about */
};

struct node {
    enum shape shape;
    struct scalar scalar; /* a text, or the mark of whatever it is */
    bool is_quoted;
};

/*
 * Begins to read. Returns 0; -EBADMSG (the text is too large or not plain UTF-8: complained about);
 * -ENOMEM. yaml_close() must be called whatever is returned.
 */
int yaml_open(struct yaml *yaml, const char *text, size_t length, struct definition *definition,
              struct complaints *complaints);
void yaml_close(struct yaml *yaml);

/* Around the nodes of the only document. document_begins() is false if the text is empty. */
bool document_begins(struct yaml *yaml);
void document_end(struct yaml *yaml);

/* Ends the reading. */
void yaml_give_up(struct yaml *yaml, int rc);

/* "a text", "a list" and so on, for complaints. */
const char *shape_name(enum shape shape);

/* Reads a text, or the beginning of a list or mapping. */
void node_read(struct yaml *yaml, struct node *ret);
/* Steps over what is left of a node, whatever it holds. */
void node_skip(struct yaml *yaml, const struct node *node);
/* Complains of a node that is not what `name` takes, and steps over it. */
void node_refuse(struct yaml *yaml, const char *name, const char *takes, const struct node *node);
/* Begins a list or mapping. Nothing at all is an empty one; anything else is refused. */
bool node_begins(struct yaml *yaml, const char *name, enum shape shape, const struct node *node);

/* Whether the list or mapping has no more entries; its end is then stepped over. */
bool list_ended(struct yaml *yaml);
bool mapping_ended(struct yaml *yaml);
/* Reads the name of a pair and the beginning of its value. False: there is no usable name. */
bool pair_read(struct yaml *yaml, struct scalar *ret_key, struct node *ret_value);

#endif
