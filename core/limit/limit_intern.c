/* SPDX-License-Identifier: MIT */
/* Shared limits: a hash table with chains. */
#include "limit/limit_intern.h"

#include "base/mutant.h"
#include "os/os.h"
#include <errno.h>
#include <stddef.h>
#include <string.h>

#define CONFIG_ALIGNMENT ((size_t)16)

struct shared_limits {
    struct shared_limits *next;
    uint64_t hash;
    uint32_t references;
    uint32_t n;
    struct limit limits[];
};

static struct shared_limits *owner_of(struct limit *limits)
{
    return (struct shared_limits *)((char *)limits - offsetof(struct shared_limits, limits));
}

/* ---- what they are ---- */

/* Bytes of a limit's settings as written. */
static size_t written_size(const struct limit *limit)
{
    const char *at = limit->written;

    for (uint32_t i = 0; i < 2 * limit->written_n; i++)
        at += strlen(at) + 1;
    return (size_t)(at - limit->written);
}

/* FNV-1a, further on: of bytes. */
static uint64_t hash_more(uint64_t hash, const void *bytes, size_t size)
{
    const unsigned char *byte = bytes;

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ byte[i]) * UINT64_C(1099511628211);
    return hash;
}

/* Limits are told apart by all of it anyway. */
static uint64_t hash_of(const struct limit *limits, uint32_t n)
{
    uint64_t hash = n;

    for (uint32_t i = 0; i < n; i++) {
        hash = hash_more(hash, limits[i].key, strlen(limits[i].key));
        hash = hash_more(hash, limits[i].written, written_size(&limits[i]));
    }
    return hash;
}

static bool bytes_equal(const void *a, const void *b, size_t size)
{
    return size == 0 || memcmp(a, b, size) == 0;
}

static bool limit_equal(const struct limit *a, const struct limit *b)
{
    size_t size = written_size(a);

    return a->type == b->type && a->refunds == b->refunds && a->charges == b->charges &&
           a->algorithm == b->algorithm && a->algorithm_name == b->algorithm_name &&
           a->algorithm_version == b->algorithm_version && a->capacity == b->capacity &&
           a->lease == b->lease && a->state_at == b->state_at && a->state_words == b->state_words &&
           a->written_n == b->written_n && strcmp(a->key, b->key) == 0 && size == written_size(b) &&
           bytes_equal(a->written, b->written, size) && a->config_size == b->config_size &&
           bytes_equal(a->config, b->config, a->config_size);
}

static bool limits_equal(const struct shared_limits *shared, uint64_t hash,
                         const struct limit *limits, uint32_t n)
{
    if (shared->hash != hash || shared->n != n)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (!limit_equal(&shared->limits[i], &limits[i]))
            return false;
    return true;
}

/* ---- one block ---- */

/* What is laid out one behind the other; `at` NULL: it is only measured. */
struct layout {
    char *base;
    size_t size;
};

static void *put(struct layout *layout, const void *bytes, size_t size, size_t alignment)
{
    size_t at = (layout->size + alignment - 1) & ~(alignment - 1);

    layout->size = at + size;
    if (!layout->base)
        return NULL;
    return size ? memcpy(layout->base + at, bytes, size) : layout->base + at;
}

/* Into `ret`, unless that is only measured. */
static void put_limit(struct layout *layout, const struct limit *limit, struct limit *ret)
{
    struct limit copy = *limit;

    if (limit->config)
        copy.config = put(layout, limit->config, limit->config_size, CONFIG_ALIGNMENT);
    copy.key = put(layout, limit->key, strlen(limit->key) + 1, 1);
    if (limit->written)
        copy.written = put(layout, limit->written, written_size(limit), 1);
    if (ret)
        *ret = copy;
}

static size_t put_limits(const struct limit *limits, uint32_t n, struct shared_limits *ret)
{
    struct layout layout = {(char *)ret, sizeof(struct shared_limits) + n * sizeof(*limits)};

    for (uint32_t i = 0; i < n; i++)
        put_limit(&layout, &limits[i], ret ? &ret->limits[i] : NULL);
    return layout.size;
}

static struct shared_limits *copy_of(const struct limit *limits, uint32_t n)
{
    struct shared_limits *copy = sys_alloc_aligned(CONFIG_ALIGNMENT, put_limits(limits, n, NULL));

    if (copy) {
        put_limits(limits, n, copy);
        copy->n = n;
    }
    return copy;
}

/* ---- the table ---- */

static struct shared_limits **bucket_of(const struct limits_table *table, uint64_t hash)
{
    return &table->buckets[(hash ^ hash >> 32) & (table->capacity - 1)];
}

/* As many buckets as limits. */
static int reserve(struct limits_table *table)
{
    struct limits_table grown = {.n = table->n,
                                 .capacity = table->capacity ? 2 * table->capacity : 4};

    if (table->n < table->capacity)
        return 0;
    grown.buckets = sys_alloc(grown.capacity, sizeof(struct shared_limits *));
    if (!grown.buckets)
        return -ENOMEM;
    for (uint32_t i = 0; i < table->capacity; i++)
        for (struct shared_limits *shared = table->buckets[i], *next; shared; shared = next) {
            struct shared_limits **bucket = bucket_of(&grown, shared->hash);

            next = shared->next;
            shared->next = *bucket;
            *bucket = shared;
        }
    sys_free(table->buckets);
    *table = grown;
    return 0;
}

struct limit *limits_share(struct limits_table *table, const struct limit *limits, uint32_t n)
{
    uint64_t hash = hash_of(limits, n);
    struct shared_limits *shared, **bucket;

    if (reserve(table) < 0)
        return NULL;
    bucket = bucket_of(table, hash);
    for (shared = *bucket; shared; shared = shared->next)
        if (limits_equal(shared, hash, limits, n) && !MUTANT(535)) {
            shared->references += !MUTANT(536);
            return shared->limits;
        }
    shared = copy_of(limits, n);
    if (!shared)
        return NULL;
    shared->hash = hash;
    shared->references = 1;
    shared->next = *bucket;
    *bucket = shared;
    table->n++;
    return shared->limits;
}

void limits_give_back(struct limits_table *table, struct limit *limits)
{
    struct shared_limits *shared = owner_of(limits), **at = bucket_of(table, shared->hash);

    if (--shared->references)
        return;
    while (*at != shared)
        at = &(*at)->next;
    *at = shared->next;
    sys_free(shared);
    table->n--;
}

void limits_table_free(struct limits_table *table)
{
    sys_free(table->buckets);
    *table = (struct limits_table){0};
}
