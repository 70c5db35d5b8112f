/* SPDX-License-Identifier: MIT */
/*
 * The text of a configuration, as a simulation has it. The document is edited, and not the sets: so
 * pools, balancers and plugins are what the file says, and one instance is opened as always.
 */
#include "candidate_text.h"
#include <inttypes.h>
#include <libfyaml.h>
#include <stdbool.h>
#include <stdio.h>

static struct fy_node *value_of(struct fy_node *mapping, const char *key)
{
    return fy_node_mapping_lookup_value_by_simple_key(mapping, key, FY_NT);
}

static void remove_field(struct fy_node *mapping, const char *key)
{
    struct fy_node_pair *pair = fy_node_mapping_lookup_pair_by_simple_key(mapping, key, FY_NT);

    if (pair)
        fy_node_free(fy_node_mapping_remove_by_key(mapping, fy_node_pair_key(pair)));
}

/* A lease of a time is for limits that an engine keeps. */
static void make_limit_private(struct fy_node *limit)
{
    struct fy_node *lease = value_of(limit, "lease");

    if (lease && fy_node_is_mapping(lease))
        remove_field(limit, "lease");
}

static void make_set_private(struct fy_node *set)
{
    struct fy_node *limits = value_of(set, "limits"), *limit;
    void *iterator = NULL;

    remove_field(set, "backend");
    remove_field(set, "lifetime");
    remove_field(set, "on_failure");
    remove_field(set, "revision");
    while (limits && (limit = fy_node_sequence_iterate(limits, &iterator)))
        make_limit_private(limit);
}

static void make_private(struct fy_node *root)
{
    struct fy_node *sets = value_of(root, "sets");
    struct fy_node_pair *pair;
    void *iterator = NULL;

    remove_field(root, "backends");
    remove_field(root, "process_dir");
    while (sets && (pair = fy_node_mapping_iterate(sets, &iterator)))
        make_set_private(fy_node_pair_value(pair));
}

/* Returns false if there is no memory. */
static bool set_capacity(struct fy_document *document, const struct capacity_edit *edit)
{
    struct fy_node *sets = value_of(fy_document_root(document), "sets");
    struct fy_node *limits = value_of(value_of(sets, edit->set), "limits");
    struct fy_node *limit = fy_node_sequence_get_by_index(limits, (int)edit->limit);
    struct fy_node_pair *pair = fy_node_mapping_lookup_pair_by_simple_key(limit, "capacity", FY_NT);
    struct fy_node *number;
    char text[24];
    int n = snprintf(text, sizeof(text), "%" PRIu64, edit->capacity);

    number = fy_node_create_scalar_copy(document, text, (size_t)n);
    return pair && number && fy_node_pair_set_value(pair, number) == 0;
}

char *candidate_text(const char *text, const struct capacity_edit *edit)
{
    const struct fy_parse_cfg cfg = {.flags = FYPCF_QUIET};
    struct fy_document *document = fy_document_build_from_string(&cfg, text, FY_NT);
    char *edited = NULL;

    if (!document)
        return NULL;
    make_private(fy_document_root(document));
    if (!edit->set || set_capacity(document, edit))
        edited = fy_emit_document_to_string(document, FYECF_MODE_ORIGINAL | FYECF_WIDTH_INF);
    fy_document_destroy(document);
    return edited;
}
