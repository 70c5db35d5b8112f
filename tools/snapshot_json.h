/* SPDX-License-Identifier: MIT */
/* A holder or waiter of a snapshot as JSON. */
#ifndef WEIR_TOOLS_SNAPSHOT_JSON_H
#define WEIR_TOOLS_SNAPSHOT_JSON_H

#include "json.h"
#include "snapshot.h"

/* Writes a holder or waiter of the set as an object in an array. */
void snapshot_json_holder(struct json *json, const struct snapshot_set *set,
                          const struct snapshot_holder *holder);

#endif
