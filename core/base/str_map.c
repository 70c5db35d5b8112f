/* SPDX-License-Identifier: MIT */
/* String maps: open addressing, linear probing, at most three quarters full. */
#include "base/str_map.h"
#include "base/hash.h"

#include "base/invariant.h"
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

    WEIR_INVARIANT(map->capacity && !(map->capacity & (map->capacity - 1)));
    WEIR_INVARIANT(map->n < map->capacity);
    while (map->entries[i].name && strcmp(map->entries[i].name, name) != 0)
        i = (i + 1) & (map->capacity - 1);
    return &map->entries[i];
}

void *str_map_find(const struct str_map *map, const char *name)
{
    return map->capacity ? str_map_probe(map, name)->value : NULL;
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
    struct str_map_entry *entry = str_map_probe(map, name);

    WEIR_INVARIANT(!entry->name && value);
    *entry = (struct str_map_entry){name, value};
    map->n++;
    WEIR_INVARIANT(map->n <= map->capacity / 4 * 3);
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
    if (!value || str_map_find(map, name) != value)
        return;
    WEIR_INVARIANT(map->n > 0);
    str_map_close_gap(map, (size_t)(str_map_probe(map, name) - map->entries));
    map->n--;
}

void str_map_free(struct str_map *map)
{
    os_free(map->entries);
    *map = (struct str_map){0};
}
