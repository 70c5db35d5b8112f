/* SPDX-License-Identifier: MIT */
/*
 * A hash table of things that have an entry in them. It grows as it is filled. If there is no
 * memory to grow, its chains become longer.
 *
 *     for (entry = redis_table_first(table, hash); entry; entry = redis_table_next(entry)) …
 */
#ifndef WEIR_REDIS_TABLE_H
#define WEIR_REDIS_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct redis_entry {
    struct redis_entry *next;
    uint64_t hash;
};

struct redis_table {
    struct redis_entry **chains; /* NULL before the first one is added */
    size_t chains_n, entries_n;  /* chains_n: a power of 2 */
};

/* Adds an entry. Returns 0, or -ENOMEM if there is no table at all. */
int redis_table_add(struct redis_table *table, struct redis_entry *entry, uint64_t hash);
/* Takes out an entry that is in the table. */
void redis_table_remove(struct redis_table *table, struct redis_entry *entry);
/* Returns the first entry with this hash, or NULL, and the next one. */
struct redis_entry *redis_table_first(const struct redis_table *table, uint64_t hash);
struct redis_entry *redis_table_next(const struct redis_entry *entry);
void redis_table_free(struct redis_table *table);

uint64_t redis_hash_number(uint64_t number);
uint64_t redis_hash_bytes(const void *bytes, size_t n);

#endif
