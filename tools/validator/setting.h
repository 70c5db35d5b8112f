/* SPDX-License-Identifier: MIT */
/* Random values for the parameters of a plugin, within their ranges, and in words. */
#ifndef WEIR_TOOLS_SETTING_H
#define WEIR_TOOLS_SETTING_H

#include "trial.h"

#define SETTINGS_MAX       64u   /* parameters of a plugin */
#define SETTINGS_SETS_MAX  64u   /* of a pool */
#define SETTINGS_ITEMS_MAX 256u  /* of all lists together */
#define SETTINGS_TEXTS_MAX 8192u /* bytes of all texts together, with their ends */

/* The values of one list. */
struct settings_list {
    uint32_t first; /* of `items` */
    uint32_t n;
};

/* Copies are bound before they are used, so that each has addresses of its own. */
struct settings {
    const struct weir_plugin *plugin;
    uint32_t items_n, texts_n; /* in use */
    bool is_full;              /* there was no room for what is required */
    size_t text_at[SETTINGS_MAX];
    struct settings_list lists[SETTINGS_MAX];
    struct weir_value values[SETTINGS_MAX], items[SETTINGS_ITEMS_MAX];
    size_t item_text_at[SETTINGS_ITEMS_MAX];
    const struct weir_value *addresses[SETTINGS_MAX], *item_addresses[SETTINGS_ITEMS_MAX];
    char texts[SETTINGS_TEXTS_MAX];
    struct weir_setup setup;
};

/* What the sets of a pool have of their own. Copies are bound, too. */
struct settings_pool {
    uint32_t sets_n;
    uint64_t weights[SETTINGS_SETS_MAX];
    struct weir_value set_values[SETTINGS_SETS_MAX][SETTINGS_MAX];
    const struct weir_value *set_addresses[SETTINGS_SETS_MAX][SETTINGS_MAX];
    char set_names[SETTINGS_SETS_MAX][16];
    struct weir_set_setup sets[SETTINGS_SETS_MAX];
    const struct weir_set_setup *sets_addresses[SETTINGS_SETS_MAX];
};

/* Chooses values, and whether they are given at all. False: what is required has no room. */
bool settings_choose(struct trial *trial, struct settings *ret);
/* Lets addresses lead into this copy. */
void settings_bind(struct settings *settings);
/* Writes them into the report, as in a configuration. */
void settings_describe(const struct trial *trial, const struct settings *settings,
                       const char *prefix);

/* Chooses the sets of a pool, with weights 1 .. `weight_max`. */
void settings_choose_pool(struct trial *trial, struct settings *settings, uint32_t sets_n,
                          uint64_t weight_max, struct settings_pool *ret);
void settings_bind_pool(struct settings *settings, struct settings_pool *pool);
void settings_describe_pool(const struct trial *trial, const struct settings_pool *pool);

/* Bytes for parameters of type zone; NULL: those of a zone with summer time. */
void settings_use_zone(const void *bytes, size_t size);
/* Writes the file of a zone with summer time. Returns its size. */
size_t settings_write_zone(unsigned char ret[256]);
bool settings_have_zone(const struct weir_plugin *plugin);

#endif
