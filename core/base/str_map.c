/* SPDX-License-Identifier: MIT */
/* String maps: open addressing, linear probing, at most three quarters full. */
#include "base/str_map.h"
#include "base/hash.h"

#include "os/os.h"
#include <errno.h>
#include <string.h>

uint64_t fnv1a_text(const char *text)
{
    return fnv1a_bytes(FNV1A_INIT, text, strlen(text));
}

static struct str_map_entry *str_map_probe(const struct str_map *map, const char *name)
{
    size_t i = fnv1a_text(name) & (map->capacity - 1);

    while (map->entries[i].name && strcmp(map->entries[i].name, name) != 0)
        i = (i + 1) & (map->capacity - 1);
    return &map->entries[i];
}

struct str_map_entry *str_map_find(const struct str_map *map, const char *name)
{
    struct str_map_entry *entry = map->capacity ? str_map_probe(map, name) : NULL;

    return entry && entry->name ? entry : NULL;
}

int str_map_reserve(struct str_map *map, size_t more)
{
    struct str_map grown = {.n = map->n, .capacity = map->capacity ? map->capacity : 16};

    while (grown.capacity / 4 * 3 < map->n + more)
        grown.capacity *= 2;
    if (grown.capacity == map->capacity)
        return 0;
    grown.entries = os_alloc(grown.capacity, sizeof(*grown.entries));
    if (!grown.entries)
        return -ENOMEM;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->entries[i].name)
            *str_map_probe(&grown, map->entries[i].name) = map->entries[i];
    os_free(map->entries);
    *map = grown;
    return 0;
}

void str_map_add(struct str_map *map, const char *name, void *value)
{
    *str_map_probe(map, name) = (struct str_map_entry){name, value};
    map->n++;
}

/* Fills the gap with later entries of the cluster, unless one would get before its home slot. */
static void str_map_close_gap(struct str_map *map, size_t gap)
{
    size_t mask = map->capacity - 1;

    for (size_t i = (gap + 1) & mask; map->entries[i].name; i = (i + 1) & mask) {
        size_t home = fnv1a_text(map->entries[i].name) & mask;

        if (((i - home) & mask) >= ((i - gap) & mask)) {
            map->entries[gap] = map->entries[i];
            gap = i;
        }
    }
    map->entries[gap] = (struct str_map_entry){0};
}

void str_map_remove(struct str_map *map, const char *name, const void *value)
{
    struct str_map_entry *entry = str_map_find(map, name);

    if (entry && entry->value == value) {
        str_map_close_gap(map, (size_t)(entry - map->entries));
        map->n--;
    }
}

void str_map_free(struct str_map *map)
{
    os_free(map->entries);
    *map = (struct str_map){0};
}
