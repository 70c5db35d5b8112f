/* SPDX-License-Identifier: MIT */
/* A hash table with chains of interned limits, each entry in one block of memory. */
#include "base/hash.h"
#include "limit/limit.h"

#include "base/invariant.h"
#include "os/os.h"
#include <errno.h>
#include <stddef.h>
#include <string.h>

#define CONFIG_ALIGNMENT ((size_t)16)

struct limit_intern_entry {
    struct limit_intern_entry *next;
    uint64_t hash;
    uint32_t references;
    uint32_t n;
    struct limit limits[];
};

/* ---- comparison ---- */

/* Returns the size of a limit's settings text in bytes. */
static size_t limit_intern_text_size(const struct limit *limit)
{
    const char *at = limit->settings_text;

    for (uint32_t i = 0; i < 2 * limit->settings_n; i++)
        at += strlen(at) + 1;
    return (size_t)(at - limit->settings_text);
}

/* Hashes keys and settings text. Equality compares all fields. */
static uint64_t limit_intern_hash(const struct limit *limits, uint32_t n)
{
    uint64_t hash = n;

    for (uint32_t i = 0; i < n; i++) {
        hash = fnv1a_bytes(hash, limits[i].key, strlen(limits[i].key));
        hash = fnv1a_bytes(hash, limits[i].settings_text, limit_intern_text_size(&limits[i]));
    }
    return hash;
}

static bool limit_intern_bytes_equal(const void *a, const void *b, size_t size)
{
    return size == 0 || memcmp(a, b, size) == 0;
}

static uint64_t limit_held_max(const struct limit *limit)
{
    return limit->held_max ? limit->held_max : limit->capacity;
}

static bool limit_intern_equal_one(const struct limit *a, const struct limit *b)
{
    size_t text_size = limit_intern_text_size(a);

    if (a->type != b->type || a->refund != b->refund || a->charges != b->charges ||
        a->shadow != b->shadow)
        return false;
    if (a->algorithm != b->algorithm || a->algorithm_name != b->algorithm_name ||
        a->algorithm_version != b->algorithm_version)
        return false;
    if (a->capacity != b->capacity || a->lease != b->lease || a->state_offset != b->state_offset ||
        a->state_words != b->state_words)
        return false;
    if (a->max_hold_ns != b->max_hold_ns || a->revokes != b->revokes || a->listed != b->listed ||
        limit_held_max(a) != limit_held_max(b))
        return false;
    if (a->settings_n != b->settings_n || text_size != limit_intern_text_size(b) ||
        a->config_size != b->config_size)
        return false;
    return strcmp(a->key, b->key) == 0 &&
           limit_intern_bytes_equal(a->settings_text, b->settings_text, text_size) &&
           limit_intern_bytes_equal(a->config, b->config, a->config_size);
}

static bool limit_intern_equal(const struct limit_intern_entry *entry, uint64_t hash,
                               const struct limit *limits, uint32_t n)
{
    if (entry->hash != hash || entry->n != n)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (!limit_intern_equal_one(&entry->limits[i], &limits[i]))
            return false;
    return true;
}

/* ---- layout of an entry ---- */

/* Returns the size of an entry with these limits and all that they own. */
static size_t limit_intern_size(const struct limit *limits, uint32_t n)
{
    size_t size = sizeof(struct limit_intern_entry) + n * sizeof(*limits);

    for (uint32_t i = 0; i < n; i++)
        size += CONFIG_ALIGNMENT + limits[i].config_size + strlen(limits[i].key) + 1 +
                limit_intern_text_size(&limits[i]);
    return size;
}

/* Copies bytes to `*at`, which is aligned first, and moves it behind them. */
static void *limit_intern_put(char **at, const void *bytes, size_t size, size_t alignment)
{
    char *to = *at + (-(uintptr_t)*at & (alignment - 1));

    *at = to + size;
    return size ? memcpy(to, bytes, size) : to;
}

/* Copies limits and all that they own into one block. */
static struct limit_intern_entry *limit_intern_copy(const struct limit *limits, uint32_t n)
{
    struct limit_intern_entry *copy =
        os_alloc_aligned(CONFIG_ALIGNMENT, limit_intern_size(limits, n));
    char *at;

    if (!copy)
        return NULL;
    copy->n = n;
    at = (char *)&copy->limits[n];
    for (uint32_t i = 0; i < n; i++) {
        const struct limit *limit = &limits[i];
        struct limit *to = &copy->limits[i];

        *to = *limit;
        to->held_max = limit_held_max(limit);
        if (limit->config)
            to->config = limit_intern_put(&at, limit->config, limit->config_size, CONFIG_ALIGNMENT);
        to->key = limit_intern_put(&at, limit->key, strlen(limit->key) + 1, 1);
        if (limit->settings_text)
            to->settings_text =
                limit_intern_put(&at, limit->settings_text, limit_intern_text_size(limit), 1);
    }
    return copy;
}

/* ---- the table ---- */

static struct limit_intern_entry **limit_intern_bucket(const struct limit_intern_table *table,
                                                       uint64_t hash)
{
    WEIR_INVARIANT(table->capacity && !(table->capacity & (table->capacity - 1)));
    return &table->buckets[(hash ^ hash >> 32) & (table->capacity - 1)];
}

/* Doubles the table when it has as many limits as buckets. Returns 0 or -ENOMEM. */
static int limit_intern_grow(struct limit_intern_table *table)
{
    struct limit_intern_table grown = {.n = table->n,
                                       .capacity = table->capacity ? 2 * table->capacity : 4};

    if (table->n < table->capacity)
        return 0;
    grown.buckets = os_alloc(grown.capacity, sizeof(struct limit_intern_entry *));
    if (!grown.buckets)
        return -ENOMEM;
    for (uint32_t i = 0; i < table->capacity; i++)
        for (struct limit_intern_entry *entry = table->buckets[i], *next; entry; entry = next) {
            struct limit_intern_entry **bucket = limit_intern_bucket(&grown, entry->hash);

            next = entry->next;
            entry->next = *bucket;
            *bucket = entry;
        }
    os_free(table->buckets);
    *table = grown;
    return 0;
}

struct limit *limit_intern(struct limit_intern_table *table, const struct limit *limits, uint32_t n)
{
    uint64_t hash = limit_intern_hash(limits, n);
    struct limit_intern_entry *entry, **bucket;

    if (limit_intern_grow(table) < 0)
        return NULL;
    bucket = limit_intern_bucket(table, hash);
    for (entry = *bucket; entry; entry = entry->next)
        if (limit_intern_equal(entry, hash, limits, n)) {
            WEIR_INVARIANT(entry->references > 0 && entry->references < UINT32_MAX);
            entry->references++;
            return entry->limits;
        }
    entry = limit_intern_copy(limits, n);
    if (!entry)
        return NULL;
    entry->hash = hash;
    entry->references = 1;
    entry->next = *bucket;
    *bucket = entry;
    table->n++;
    WEIR_INVARIANT(table->n <= table->capacity);
    return entry->limits;
}

void limit_intern_release(struct limit_intern_table *table, struct limit *limits)
{
    struct limit_intern_entry *entry =
        (struct limit_intern_entry *)((char *)limits - offsetof(struct limit_intern_entry, limits));
    struct limit_intern_entry **at = limit_intern_bucket(table, entry->hash);

    WEIR_INVARIANT(entry->references > 0 && table->n > 0);
    if (--entry->references)
        return;
    while (*at != entry) {
        WEIR_INVARIANT(*at);
        at = &(*at)->next;
    }
    *at = entry->next;
    os_free(entry);
    table->n--;
}

void limit_intern_free(struct limit_intern_table *table)
{
    WEIR_INVARIANT(table->n == 0);
    os_free(table->buckets);
    *table = (struct limit_intern_table){0};
}
