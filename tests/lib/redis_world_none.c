/* SPDX-License-Identifier: MIT */
/* Where there is no plugin for sets on a Redis server. */
#include "lib/redis_world.h"
#include <stdlib.h>

bool redis_world_begin(void)
{
    return false;
}

const char *redis_world_section(void)
{
    return "";
}

void redis_world_open(uint64_t now_ns)
{
    (void)now_ns;
}

void redis_world_open_real(void)
{
}

void redis_world_set_clock(uint64_t now_ns, int64_t wall_ns)
{
    (void)now_ns;
    (void)wall_ns;
}

void redis_world_pump(void)
{
}

struct redis_world_tickets redis_world_tickets(void)
{
    abort();
}

bool redis_world_is_quiet(void)
{
    abort();
}
