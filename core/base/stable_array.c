/* SPDX-License-Identifier: MIT */
/* Growth and release of stable arrays. */
#include "base/stable_array.h"

#include "os/os.h"
#include <errno.h>

int stable_array_reserve(struct stable_array *array, uint32_t n)
{
    uint32_t first = 0;

    for (uint32_t part = 0; first < n; part++) {
        uint32_t size = STABLE_ARRAY_FIRST << part;

        if (part == STABLE_ARRAY_PARTS)
            return -ENOMEM;
        if (!array->parts[part])
            array->parts[part] = os_alloc(size, sizeof(void *));
        if (!array->parts[part])
            return -ENOMEM;
        first += size;
    }
    return 0;
}

void stable_array_free(struct stable_array *array)
{
    for (uint32_t part = 0; part < STABLE_ARRAY_PARTS; part++)
        os_free(array->parts[part]);
    *array = (struct stable_array){0};
}
