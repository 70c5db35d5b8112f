/* SPDX-License-Identifier: MIT */
/* What becomes of the decisions of the library. */
#ifndef WEIR_TOOLS_SIMULATE_ENGINE_DECISIONS_H
#define WEIR_TOOLS_SIMULATE_ENGINE_DECISIONS_H

#include "engine.h"

/* Returns the index of a set by the name that the library gave. */
uint32_t engine_find_set(const struct engine *engine, const char *name);

/* Returns the index of the limit that a refusal names, or -1. Limits of one key are told apart by
 * their address. */
int engine_find_limit(const struct engine *engine, uint32_t set, const char *key);

/* Returns how much a request with these amounts asks of a key; a slot of a limit. */
uint64_t engine_value_of_key(const struct engine *engine, const uint64_t *values, unsigned key);
uint64_t engine_amount_of(const struct engine *engine, uint32_t slot, uint32_t limit);

/* Reports what was used, where that is required, or differs. */
void engine_report_use(struct engine *engine, uint32_t index);

/* Counts a grant. What it holds is released later. Returns 0, or -ENOMEM. */
int engine_granted(struct engine *engine, uint32_t index);

/* Counts a refusal. The slot is the caller's to free. */
void engine_refused(struct engine *engine, uint32_t index, int result,
                    const struct weir_refusal *refusal);

/* Returns the decision that a result of the library is; DECISION_NEVER for an error that is none.
 */
enum decision engine_decision(const struct engine *engine, int result);

/* Reports an error of the library that is no decision. `slot` may be NULL. Returns the error. */
int engine_fail(const struct engine *engine, const struct slot *slot, int r,
                const struct weir_refusal *refusal);

#endif
