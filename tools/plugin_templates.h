/* SPDX-License-Identifier: MIT */
/* The files of new plugins, tools/templates/, inside the command: it needs no other file to write
 * them. */
#ifndef WEIR_TOOLS_PLUGIN_TEMPLATES_H
#define WEIR_TOOLS_PLUGIN_TEMPLATES_H

#include <stddef.h>

enum plugin_template_kind { TEMPLATE_ALGORITHM = 1 << 0, TEMPLATE_BALANCER = 1 << 1 };
enum plugin_template_language {
    TEMPLATE_C = 1 << 0,
    TEMPLATE_CPP = 1 << 1,
    TEMPLATE_RUST = 1 << 2
};

struct plugin_template {
    const char *file;          /* its name in the new directory */
    unsigned kinds, languages; /* of plugins that have the file */
    const unsigned char *bytes;
    size_t size;
};

extern const struct plugin_template plugin_templates[];
extern const size_t plugin_templates_n;

#endif
