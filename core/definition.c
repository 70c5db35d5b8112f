/* SPDX-License-Identifier: MIT */
/* Definitions: their memory, and what counts as text. */
#include "definition.h"
#include "sys.h"
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

/* Bytes of the UTF-8 sequence at `text`, or 0 if there is none (RFC 3629). */
static size_t sequence_length(const unsigned char *text, size_t length)
{
    size_t n = text[0] < 0x80   ? 1
               : text[0] < 0xc2 ? 0
               : text[0] < 0xe0 ? 2
               : text[0] < 0xf0 ? 3
               : text[0] < 0xf5 ? 4
                                : 0;
    if (n > length)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    }
    /* Longer than needed, a surrogate, or beyond U+10FFFF. */
    if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
        (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f))
        return 0;
    return n;
}

size_t utf8_length(const char *text, size_t length)
{
    size_t at = 0;
    while (at < length) {
        size_t n = sequence_length((const unsigned char *)text + at, length - at);
        if (n == 0)
            break;
        at += n;
    }
    return at;
}
