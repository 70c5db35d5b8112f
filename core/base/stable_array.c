/* SPDX-License-Identifier: MIT */
/* Tables that never move. */
#include "base/stable_array.h"

#include "os/os.h"
#include <errno.h>

int table_reserve(struct table *table, uint32_t n)
{
    uint32_t first = 0;

    for (uint32_t part = 0; first < n; part++) {
        uint32_t size = TABLE_FIRST << part;

        if (part == TABLE_PARTS)
            return -ENOMEM;
        if (!table->parts[part])
            table->parts[part] = sys_alloc(size, sizeof(void *));
        if (!table->parts[part])
            return -ENOMEM;
        first += size;
    }
    return 0;
}

void table_free(struct table *table)
{
    for (uint32_t part = 0; part < TABLE_PARTS; part++)
        sys_free(table->parts[part]);
    *table = (struct table){0};
}
