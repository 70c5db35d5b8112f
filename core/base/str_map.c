/* SPDX-License-Identifier: MIT */
/* Names: open addressing, linear probing, at most three quarters full. */
#include "base/str_map.h"

#include "os/os.h"
#include <errno.h>
#include <string.h>

uint64_t hash_text(const char *text)
{
    uint64_t hash = UINT64_C(14695981039346656037);

    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return hash;
}

static struct name_entry *slot_of(const struct names *names, const char *name)
{
    size_t i = hash_text(name) & (names->capacity - 1);

    while (names->entries[i].name && strcmp(names->entries[i].name, name) != 0)
        i = (i + 1) & (names->capacity - 1);
    return &names->entries[i];
}

struct name_entry *names_find(const struct names *names, const char *name)
{
    struct name_entry *entry = names->capacity ? slot_of(names, name) : NULL;

    return entry && entry->name ? entry : NULL;
}

int names_reserve(struct names *names, size_t more)
{
    struct names grown = {.n = names->n, .capacity = names->capacity ? names->capacity : 16};

    while (grown.capacity / 4 * 3 < names->n + more)
        grown.capacity *= 2;
    if (grown.capacity == names->capacity)
        return 0;
    grown.entries = sys_alloc(grown.capacity, sizeof(*grown.entries));
    if (!grown.entries)
        return -ENOMEM;
    for (size_t i = 0; i < names->capacity; i++)
        if (names->entries[i].name)
            *slot_of(&grown, names->entries[i].name) = names->entries[i];
    sys_free(names->entries);
    *names = grown;
    return 0;
}

void names_add(struct names *names, const char *name, void *what)
{
    *slot_of(names, name) = (struct name_entry){name, what};
    names->n++;
}

/* Fills the gap: entries behind it move up, unless they would land ahead of where they hash to. */
static void close_gap(struct names *names, size_t gap)
{
    size_t mask = names->capacity - 1;

    for (size_t i = (gap + 1) & mask; names->entries[i].name; i = (i + 1) & mask) {
        size_t home = hash_text(names->entries[i].name) & mask;

        if (((i - home) & mask) >= ((i - gap) & mask)) {
            names->entries[gap] = names->entries[i];
            gap = i;
        }
    }
    names->entries[gap] = (struct name_entry){0};
}

void names_remove(struct names *names, const char *name, const void *what)
{
    struct name_entry *entry = names_find(names, name);

    if (entry && entry->what == what) {
        close_gap(names, (size_t)(entry - names->entries));
        names->n--;
    }
}

void names_free(struct names *names)
{
    sys_free(names->entries);
    *names = (struct names){0};
}
