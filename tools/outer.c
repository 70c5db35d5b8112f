/* SPDX-License-Identifier: MIT */
/* Ancestors that hold something of a set. The command that `weir exec` runs is the holder, so this
 * process may be one itself: another program ran in it before. */
#include "outer.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STAT_MAX 1024

/* Returns the parent of a process, from its line in /proc: `pid (name) state parent ...`. The name
 * may have any bytes. 0: it has none that can be seen. */
static uint32_t parent_of(uint32_t process)
{
    char path[64], text[STAT_MAX];
    const char *name_end;
    unsigned parent = 0;
    size_t n;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%u/stat", process);
    file = fopen(path, "re");
    if (!file)
        return 0;
    n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    name_end = strrchr(text, ')');
    if (!name_end || sscanf(name_end + 1, " %*c %u", &parent) != 1)
        return 0;
    return parent;
}

/* Fills `ret` with holders of a set, to be freed. Returns how many. */
static size_t holders_of(weir_set *set, struct weir_holder **ret)
{
    int n = weir_set_holders(set, NULL, 0), found = 0;

    *ret = n > 0 ? calloc((size_t)n, sizeof(**ret)) : NULL;
    if (*ret)
        found = weir_set_holders(set, *ret, (size_t)n);
    return found < 0 ? 0 : (size_t)(found < n ? found : n);
}

static bool is_among(uint32_t process, const struct weir_holder *holders, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!holders[i].waiting && holders[i].process == process)
            return true;
    return false;
}

/* Returns how many processes the nearest one that holds something is away, and which it is. */
static unsigned search_ancestors(weir_set *set, uint32_t *ret)
{
    struct weir_holder *holders;
    size_t n = holders_of(set, &holders);
    uint32_t process = (uint32_t)getpid();
    unsigned distance = 0;

    while (n > 0 && process > 0 && !is_among(process, holders, n)) {
        process = parent_of(process);
        distance++;
    }
    free(holders);
    *ret = n > 0 ? process : 0;
    return distance;
}

static bool is_shared(const weir_set *set)
{
    struct weir_set_info info = {.size = sizeof(info)};

    return weir_set_info(set, &info) == 0 && strcmp(info.backend, "process") == 0;
}

uint32_t outer_process(weir_pool *pool)
{
    uint32_t nearest = 0, process;
    unsigned least = 0;

    for (size_t i = 0; i < weir_pool_sets(pool); i++) {
        unsigned distance;

        if (!is_shared(weir_pool_set(pool, i)))
            return 0;
        distance = search_ancestors(weir_pool_set(pool, i), &process);
        if (process > 0 && (nearest == 0 || distance < least)) {
            nearest = process;
            least = distance;
        }
    }
    return nearest;
}
