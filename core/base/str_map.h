/* SPDX-License-Identifier: MIT */
/* String map: hash table from names to values. The name belongs to the value. */
#ifndef WEIR_CORE_BASE_STR_MAP_H
#define WEIR_CORE_BASE_STR_MAP_H

#include <stddef.h>
#include <stdint.h>

struct str_map_entry {
    const char *name; /* NULL: empty */
    void *value;
};

struct str_map {
    struct str_map_entry *entries;
    size_t n, capacity; /* a power of two, or 0 */
};

void *str_map_find(const struct str_map *map, const char *name); /* the value, or NULL */
int str_map_reserve(struct str_map *map, size_t more);           /* 0 or -ENOMEM */
/* Adds a name that is not in the map, with a value that is not NULL. Room must be reserved. */
void str_map_add(struct str_map *map, const char *name, void *value);
void str_map_remove(struct str_map *map, const char *name,
                    const void *value); /* only if the name has this value */
void str_map_free(struct str_map *map);
uint64_t fnv1a_text(const char *text); /* FNV-1a, 64 bits */

#endif
