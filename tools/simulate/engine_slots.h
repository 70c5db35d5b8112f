/* SPDX-License-Identifier: MIT */
/* The requests of a simulation that wait or hold something, each in a slot. */
#ifndef WEIR_TOOLS_SIMULATE_ENGINE_SLOTS_H
#define WEIR_TOOLS_SIMULATE_ENGINE_SLOTS_H

#include "engine.h"

#define ENGINE_NO_SLOT      UINT32_MAX
#define ENGINE_FINISHED_MAX 256

/* A request that waits or holds something. Its amounts are in `engine->values`. */
struct slot {
    weir_acquisition *acquisition;
    uint64_t number, arrived_ns, hold_ns;
    uint32_t set;
    uint32_t next;      /* unused one; of one that waits: that which began to wait after it */
    uint8_t wait_class; /* as in the tally */
    bool waits;
};

/* Returns the amounts of a slot, as those of its event. */
uint64_t *engine_slot_values(const struct engine *engine, uint32_t index);

/* Takes a slot for the request of an event. Returns 0, or -ENOMEM. */
int engine_take_slot(struct engine *engine, const struct event *event, uint32_t *ret);

/* Releases what a slot holds, and makes it unused. */
void engine_free_slot(struct engine *engine, uint32_t index);

/* Leaves a slot to be freed later, with others. */
void engine_finish_slot(struct engine *engine, uint32_t index);
void engine_free_finished(struct engine *engine);

#endif
