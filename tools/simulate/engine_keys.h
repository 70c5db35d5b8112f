/* SPDX-License-Identifier: MIT */
/* What the traffic asks of which limit. */
#ifndef WEIR_TOOLS_SIMULATE_ENGINE_KEYS_H
#define WEIR_TOOLS_SIMULATE_ENGINE_KEYS_H

#include "engine.h"

/* Fills the keys of an engine, and what belongs to them. Returns 0, -EINVAL after a message, or
 * -ENOMEM. */
int engine_open_keys(struct engine *engine);

#endif
