/* SPDX-License-Identifier: MIT */
/*
 * A Redis server for a world: one for the program, on a socket of its own, with the test's clock
 * for its time of day. The plugin loads its library of functions into it, as everywhere.
 */
#ifndef WEIR_TESTS_REDIS_WORLD_H
#define WEIR_TESTS_REDIS_WORLD_H

#include <stdbool.h>
#include <stdint.h>

/* Starts the server, which ends with the program. Returns whether there is one. */
bool redis_world_begin(void);
/* Returns the part of a configuration that names the server, as the backend `redis`. */
const char *redis_world_section(void);

/* Makes the server empty, for a world that begins at `now_ns` of its clock; some midnight was at 0.
 */
void redis_world_open(uint64_t now_ns);
/* Makes the server empty, and its clock go on by itself, until the next world is opened. */
void redis_world_open_real(void);
/* Moves the server's time of day to what the world's clock shows, and so much beside it; forth or
 * back. */
void redis_world_set_clock(uint64_t now_ns, int64_t wall_ns);
/* Has every set of the server grant what can be granted by now. */
void redis_world_pump(void);

/* What the server has, of all sets: requests of something, that wait or hold. */
struct redis_world_tickets {
    uint64_t waiting, held;
    uint64_t commits; /* so many have changed the states that instances decide by */
};
struct redis_world_tickets redis_world_tickets(void);
/* Returns whether instances have acted on every message that the server has pushed. */
bool redis_world_is_quiet(void);

#endif
