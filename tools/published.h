/* SPDX-License-Identifier: MIT */
/*
 * The sets that processes publish: asks each process, and reads what it says. That is input: it is
 * bounded in size and time, and nothing in it is believed.
 */
#ifndef WEIR_TOOLS_PUBLISHED_H
#define WEIR_TOOLS_PUBLISHED_H

#include "snapshot.h"

/*
 * Calls `found` for each set that is published in the source's directory; it takes the set over,
 * and returns 0 or a negative errno, which ends the calls. Calls `refuse` for each process that
 * does not answer within two and a half seconds, or not as it should. Returns 0, what `found`
 * returned, -ENOMEM, or an error of weir_segment_dir() with the reason.
 */
int published_each(const struct source *source,
                   int (*found)(void *userdata, struct snapshot_set *set),
                   void (*refuse)(void *userdata, const struct weir_error *error), void *userdata,
                   struct weir_error *reterr);

#endif
