/* SPDX-License-Identifier: MIT */
/* The memory of a config AST: chunks that hold many small items and are freed together. */
#include "config/config_ast.h"
#include "base/invariant.h"
#include "os/os.h"
#include <string.h>

/* A chunk of memory that many small items share. */
struct ast_chunk {
    struct ast_chunk *next;
    size_t used, size;
    _Alignas(16) unsigned char bytes[];
};

enum { AST_CHUNK_SIZE = 64 << 10, AST_CHUNK_ALIGN = 8 };

static struct ast_chunk *ast_chunk_new(struct config_ast *ast, size_t size)
{
    struct ast_chunk *chunk = os_alloc(1, sizeof(*chunk) + size);
    if (!chunk)
        return NULL;
    chunk->size = size;
    /* A chunk for one large item goes behind the first, which still has room for small ones. */
    if (size != AST_CHUNK_SIZE && ast->memory) {
        chunk->next = ast->memory->next;
        ast->memory->next = chunk;
    } else {
        chunk->next = ast->memory;
        ast->memory = chunk;
    }
    return chunk;
}

void *config_ast_alloc(struct config_ast *ast, size_t n, size_t size)
{
    size_t wanted;
    if (__builtin_mul_overflow(n, size, &wanted) || wanted > SIZE_MAX / 2)
        return NULL;
    wanted = (wanted + AST_CHUNK_ALIGN - 1) / AST_CHUNK_ALIGN * AST_CHUNK_ALIGN;
    struct ast_chunk *chunk = ast->memory;
    if (!chunk || chunk->size - chunk->used < wanted) {
        chunk = ast_chunk_new(ast, wanted > AST_CHUNK_SIZE / 4 ? wanted : AST_CHUNK_SIZE);
        if (!chunk)
            return NULL;
    }
    void *memory = chunk->bytes + chunk->used;
    chunk->used += wanted;
    WEIR_INVARIANT(chunk->used <= chunk->size);
    return memory;
}

char *config_ast_strdup(struct config_ast *ast, const char *text, size_t length)
{
    char *copy = config_ast_alloc(ast, length + 1, 1);
    if (copy && length > 0)
        memcpy(copy, text, length);
    return copy;
}

void *config_ast_append(struct config_ast *ast, void *items, size_t *n, size_t size)
{
    size_t count = *n;
    WEIR_INVARIANT(count == 0 || items);
    if ((count & (count - 1)) == 0) { /* 0, 1, 2, 4, … items fill their room: double it */
        void *larger = config_ast_alloc(ast, count == 0 ? 1 : 2 * count, size);
        if (!larger)
            return NULL;
        if (count > 0)
            memcpy(larger, items, count * size);
        items = larger;
    }
    *n = count + 1;
    return items;
}

void config_ast_free(struct config_ast *ast)
{
    struct ast_chunk *chunk = ast->memory;
    while (chunk) {
        struct ast_chunk *next = chunk->next;
        os_free(chunk);
        chunk = next;
    }
    *ast = (struct config_ast){0};
}
