/* SPDX-License-Identifier: MIT */
/* Programs that stop fibers at steps: see stepped.h. */
#include "stepped.h"

#include "crash_world.h"
#include <stdlib.h>

uint64_t argument(int argc, char **argv, int i, uint64_t otherwise)
{
    uint64_t n = i < argc ? strtoull(argv[i], NULL, 10) : otherwise;

    return n ? n : 1;
}

static int begin(bool by_processes)
{
    world_make(INTERVAL_NS);
    world_share(by_processes);
    world_save();
    fibers_begin(NULL);
    return 0;
}

int stepped_setup(void **state)
{
    (void)state;
    return begin(true);
}

int stepped_setup_private(void **state)
{
    (void)state;
    return begin(false);
}

int stepped_teardown(void **state)
{
    (void)state;
    fibers_end();
    world_free();
    return 0;
}
