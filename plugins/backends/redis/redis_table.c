/* SPDX-License-Identifier: MIT */
/* A hash table of things that have an entry in them. */
#include "redis_table.h"

#include <errno.h>
#include <stdlib.h>

#define CHAINS_FIRST 16

static struct redis_entry **redis_table_chain(const struct redis_table *table, uint64_t hash)
{
    return &table->chains[hash & (table->chains_n - 1)];
}

static void redis_table_grow(struct redis_table *table)
{
    struct redis_table larger = {.chains_n = table->chains_n ? 2 * table->chains_n : CHAINS_FIRST};
    larger.chains = calloc(larger.chains_n, sizeof(*larger.chains));
    if (!larger.chains)
        return;
    for (size_t i = 0; i < table->chains_n; i++) {
        for (struct redis_entry *entry = table->chains[i], *next; entry; entry = next) {
            struct redis_entry **chain = redis_table_chain(&larger, entry->hash);
            next = entry->next;
            entry->next = *chain;
            *chain = entry;
        }
    }
    free(table->chains);
    table->chains = larger.chains;
    table->chains_n = larger.chains_n;
}

int redis_table_add(struct redis_table *table, struct redis_entry *entry, uint64_t hash)
{
    if (table->entries_n >= table->chains_n)
        redis_table_grow(table);
    if (!table->chains)
        return -ENOMEM;
    struct redis_entry **chain = redis_table_chain(table, hash);
    entry->hash = hash;
    entry->next = *chain;
    *chain = entry;
    table->entries_n++;
    return 0;
}

void redis_table_remove(struct redis_table *table, struct redis_entry *entry)
{
    struct redis_entry **at = redis_table_chain(table, entry->hash);
    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    table->entries_n--;
}

struct redis_entry *redis_table_first(const struct redis_table *table, uint64_t hash)
{
    struct redis_entry *entry = table->chains ? *redis_table_chain(table, hash) : NULL;
    while (entry && entry->hash != hash)
        entry = entry->next;
    return entry;
}

struct redis_entry *redis_table_next(const struct redis_entry *entry)
{
    struct redis_entry *next = entry->next;
    while (next && next->hash != entry->hash)
        next = next->next;
    return next;
}

void redis_table_free(struct redis_table *table)
{
    free(table->chains);
    *table = (struct redis_table){0};
}

/* The finalizer of splitmix64 (Steele, Lea and Flood, OOPSLA 2014). */
uint64_t redis_hash_number(uint64_t number)
{
    number = (number ^ number >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ number >> 27) * UINT64_C(0x94d049bb133111eb);
    return number ^ number >> 31;
}

/* FNV-1a, mixed, as its low bits alone are weak. */
uint64_t redis_hash_bytes(const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return redis_hash_number(hash);
}
