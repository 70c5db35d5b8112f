/* SPDX-License-Identifier: MIT */
/*
 * Settings of a shared set that each process has for itself: `timeout`, `max_wait`, `strict`,
 * `hold_histogram` and `config`. They are no part of its definition, so a reload in one process
 * changes them for that process alone.
 *
 * Nothing in a weir_set changes after it was made. So the process makes another one, a *variant*:
 * of the same definition, with the same state, number and records. It follows the set as a
 * successor does, but no state moves. Requests that have begun go on by the set that they have
 * read.
 */
#ifndef WEIR_CORE_API_OWN_SETTINGS_H
#define WEIR_CORE_API_OWN_SETTINGS_H

#include "config/plan.h"
#include "set/set.h"

/* Returns whether a set has the own settings of a plan. */
bool own_settings_are(const weir_set *set, const struct set_plan *plan);

/* Gives a set that is made those of its plan, which loses its `config`. */
void own_settings_take(weir_set *set, struct set_plan *plan);

/* Gives a plan those of a set. Returns 0 or -ENOMEM. */
int own_settings_copy(const weir_set *set, struct set_plan *plan);

#endif
