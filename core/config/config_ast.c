/* SPDX-License-Identifier: MIT */
/* The memory of definitions: many small things that go all at once. */
#include "config/config_ast.h"
#include "os/os.h"
#include <string.h>

/* A piece of memory that many small things share. */
struct chunk {
    struct chunk *next;
    size_t used, size;
    _Alignas(16) unsigned char bytes[];
};

enum { CHUNK_SIZE = 64 << 10, CHUNK_ALIGN = 8 };

static struct chunk *chunk_new(struct definition *definition, size_t size)
{
    struct chunk *chunk = sys_alloc(1, sizeof *chunk + size);
    if (chunk == NULL)
        return NULL;
    chunk->size = size;
    /* One made for a large thing goes behind the first, which still has room for small ones. */
    if (size != CHUNK_SIZE && definition->memory != NULL) {
        chunk->next = definition->memory->next;
        definition->memory->next = chunk;
    } else {
        chunk->next = definition->memory;
        definition->memory = chunk;
    }
    return chunk;
}

void *definition_alloc(struct definition *definition, size_t n, size_t size)
{
    size_t wanted;
    if (__builtin_mul_overflow(n, size, &wanted) || wanted > SIZE_MAX / 2)
        return NULL;
    wanted = (wanted + CHUNK_ALIGN - 1) / CHUNK_ALIGN * CHUNK_ALIGN;
    struct chunk *chunk = definition->memory;
    if (chunk == NULL || chunk->size - chunk->used < wanted) {
        chunk = chunk_new(definition, wanted > CHUNK_SIZE / 4 ? wanted : CHUNK_SIZE);
        if (chunk == NULL)
            return NULL;
    }
    void *memory = chunk->bytes + chunk->used;
    chunk->used += wanted;
    return memory;
}

char *definition_strdup(struct definition *definition, const char *text, size_t length)
{
    char *copy = definition_alloc(definition, length + 1, 1);
    if (copy != NULL && length > 0)
        memcpy(copy, text, length);
    return copy;
}

void *definition_append(struct definition *definition, void *items, size_t *n, size_t size)
{
    size_t count = *n;
    if ((count & (count - 1)) == 0) { /* 0, 1, 2, 4, … items fill their room: double it */
        void *larger = definition_alloc(definition, count == 0 ? 1 : 2 * count, size);
        if (larger == NULL)
            return NULL;
        if (count > 0)
            memcpy(larger, items, count * size);
        items = larger;
    }
    *n = count + 1;
    return items;
}

void definition_free(struct definition *definition)
{
    struct chunk *chunk = definition->memory;
    while (chunk != NULL) {
        struct chunk *next = chunk->next;
        sys_free(chunk);
        chunk = next;
    }
    *definition = (struct definition){0};
}
