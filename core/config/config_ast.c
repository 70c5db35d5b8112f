/* SPDX-License-Identifier: MIT */
/* The memory of a config AST: chunks that hold many small items and are freed together. */
#include "config/config_ast.h"
#include "base/invariant.h"
#include "os/os.h"
#include <string.h>

struct ast_memory {
    struct ast_memory *next;
    size_t used, size;
    unsigned char bytes[]; /* aligned to 8 */
};

enum { CHUNK_SIZE = 64 << 10, CHUNK_ALIGN = 8 };

static struct ast_memory *ast_memory_new(struct config_ast *ast, size_t size)
{
    struct ast_memory *chunk = os_alloc(1, sizeof(*chunk) + size), **place = &ast->memory;
    if (!chunk)
        return NULL;
    /* A chunk for one large item goes behind the first, which still has room for small ones. */
    if (size != CHUNK_SIZE && ast->memory)
        place = &ast->memory->next;
    chunk->size = size;
    chunk->next = *place;
    *place = chunk;
    return chunk;
}

void *config_ast_alloc(struct config_ast *ast, size_t n, size_t size)
{
    struct ast_memory *chunk = ast->memory;
    size_t wanted;
    if (__builtin_mul_overflow(n, size, &wanted) || wanted > SIZE_MAX / 2) {
        ast->memory_failed = true;
        return NULL;
    }
    wanted = (wanted + CHUNK_ALIGN - 1) / CHUNK_ALIGN * CHUNK_ALIGN;
    if (!chunk || chunk->size - chunk->used < wanted)
        chunk = ast_memory_new(ast, wanted > CHUNK_SIZE / 4 ? wanted : CHUNK_SIZE);
    if (!chunk) {
        ast->memory_failed = true;
        return NULL;
    }
    chunk->used += wanted;
    WEIR_INVARIANT(chunk->used <= chunk->size);
    return chunk->bytes + chunk->used - wanted;
}

char *config_ast_strdup(struct config_ast *ast, const char *text, size_t length)
{
    char *copy = config_ast_alloc(ast, length + 1, 1);
    if (copy && length > 0)
        memcpy(copy, text, length);
    return copy;
}

void *config_ast_append(struct config_ast *ast, void *array, size_t *n, size_t size)
{
    size_t count = *n;
    unsigned char *items;
    memcpy(&items, array, sizeof(items));
    WEIR_INVARIANT(count == 0 || items);
    if ((count & (count - 1)) == 0) { /* 0, 1, 2, 4, … items fill their room: double it */
        unsigned char *larger = config_ast_alloc(ast, count == 0 ? 1 : 2 * count, size);
        if (!larger)
            return NULL;
        if (count > 0)
            memcpy(larger, items, count * size);
        items = larger;
        memcpy(array, &items, sizeof(items));
    }
    *n = count + 1;
    return items + count * size;
}

void config_ast_free(struct config_ast *ast)
{
    while (ast->memory) {
        struct ast_memory *next = ast->memory->next;
        os_free(ast->memory);
        ast->memory = next;
    }
    *ast = (struct config_ast){0};
}
