/* SPDX-License-Identifier: MIT */
/* The requests of a simulation that wait or hold something. */
#include "engine_slots.h"
#include <errno.h>
#include <stdlib.h>

uint64_t *engine_slot_values(const struct engine *engine, uint32_t index)
{
    return engine->values ? engine->values + (size_t)index * engine->options.mapping->values_n
                          : NULL;
}

static int grow_slots(struct engine *engine)
{
    uint32_t n = engine->slots_n > 0 ? 2 * engine->slots_n : 1024;
    struct slot *grown = realloc(engine->slots, n * sizeof(*grown));
    unsigned values_n = engine->options.mapping->values_n;
    uint64_t *values = grown && values_n > 0
                           ? realloc(engine->values, (size_t)n * values_n * sizeof(*values))
                           : NULL;

    engine->slots = grown ? grown : engine->slots;
    engine->values = values ? values : engine->values;
    if (!grown || (values_n > 0 && !values))
        return -ENOMEM;
    for (uint32_t i = n; i-- > engine->slots_n;) {
        grown[i] = (struct slot){.next = engine->unused};
        engine->unused = i;
    }
    engine->slots_n = n;
    return 0;
}

int engine_take_slot(struct engine *engine, const struct event *event, uint32_t *ret)
{
    struct slot *slot;
    unsigned wait_class;
    int r = engine->unused == ENGINE_NO_SLOT ? grow_slots(engine) : 0;

    if (r < 0)
        return r;
    *ret = engine->unused;
    slot = &engine->slots[*ret];
    engine->unused = slot->next;
    slot->acquisition = NULL;
    slot->number = event->number;
    slot->arrived_ns = engine->candidate->now_ns;
    slot->hold_ns = event->hold_ns;
    for (unsigned i = 0; i < engine->options.mapping->values_n; i++)
        engine_slot_values(engine, *ret)[i] = event->values[i];
    slot->set = 0;
    slot->waits = false;
    r = tally_class_arrival(&engine->tally, event->wait_class, &wait_class);
    slot->wait_class = (uint8_t)wait_class;
    return r;
}

void engine_free_slot(struct engine *engine, uint32_t index)
{
    struct slot *slot = &engine->slots[index];

    weir_release(&slot->acquisition);
    slot->next = engine->unused;
    engine->unused = index;
}

void engine_free_finished(struct engine *engine)
{
    while (engine->finished_n > 0)
        engine_free_slot(engine, engine->finished[--engine->finished_n]);
}

void engine_finish_slot(struct engine *engine, uint32_t index)
{
    if (engine->finished_n == ENGINE_FINISHED_MAX)
        engine_free_finished(engine);
    engine->finished[engine->finished_n++] = index;
}
