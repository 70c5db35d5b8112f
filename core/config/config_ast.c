/* SPDX-License-Identifier: MIT */
/* The memory of a config AST: items of any size that are freed together. */
#include "config/config_ast.h"
#include "base/invariant.h"
#include "os/os.h"
#include <string.h>

struct ast_memory {
    struct ast_memory *next;
    unsigned char bytes[]; /* aligned to 8 */
};

void *config_ast_alloc(struct config_ast *ast, size_t n, size_t size)
{
    struct ast_memory *memory = NULL;
    size_t wanted;
    if (!__builtin_mul_overflow(n, size, &wanted) &&
        !__builtin_add_overflow(wanted, sizeof(*memory), &wanted))
        memory = os_alloc(1, wanted);
    if (!memory) {
        ast->memory_failed = true;
        return NULL;
    }
    memory->next = ast->memory;
    ast->memory = memory;
    return memory->bytes;
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
