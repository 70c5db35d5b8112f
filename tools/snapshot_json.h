/* SPDX-License-Identifier: MIT */
/* Snapshots as JSON, as man/weir.1.scd says. */
#ifndef WEIR_TOOLS_SNAPSHOT_JSON_H
#define WEIR_TOOLS_SNAPSHOT_JSON_H

#include "json.h"
#include "snapshot.h"
#include <stdio.h>

/* Writes a holder or waiter of the set as an object in an array. */
void snapshot_json_holder(struct json *json, const struct snapshot_set *set,
                          const struct snapshot_holder *holder);

/* Writes a snapshot as an object. */
void snapshot_json_write(const struct snapshot *snapshot, FILE *out);

#endif
