/* SPDX-License-Identifier: MIT */
/* A hash table from names to what they name. Names belong to what they name, which outlives it. */
#ifndef WEIR_CORE_BASE_STR_MAP_H
#define WEIR_CORE_BASE_STR_MAP_H

#include <stddef.h>
#include <stdint.h>

struct name_entry {
    const char *name; /* NULL: empty */
    void *what;
};

struct names {
    struct name_entry *entries;
    size_t n, capacity; /* a power of two, or 0 */
};

struct name_entry *names_find(const struct names *names, const char *name); /* or NULL */
int names_reserve(struct names *names, size_t more);                        /* 0 or -ENOMEM */
/* Adds a name that is not there; room was reserved. */
void names_add(struct names *names, const char *name, void *what);
void names_remove(struct names *names, const char *name, const void *what); /* if it names that */
void names_free(struct names *names);
uint64_t hash_text(const char *text); /* FNV-1a, 64 bits */

#endif
