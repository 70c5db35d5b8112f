/* SPDX-License-Identifier: MIT */
/* Which sets of a snapshot are shown, and in which order. */
#ifndef WEIR_TOOLS_SELECTION_H
#define WEIR_TOOLS_SELECTION_H

#include "snapshot.h"

enum selection_order { SELECTION_BY_NAME, SELECTION_BY_WAITING };

/* All zero: all sets, by name. */
struct selection {
    enum selection_order order;
    bool no_idle;
};

/* Options of a selection, and of the part of it that snapshot_take() handles: part of getopt_long's
 * table and of its letters. */
#define SELECTION_LETTERS "s:m:n"
#define SELECTION_OPTIONS                                                                          \
    {"sort", required_argument, NULL, 's'}, {"match", required_argument, NULL, 'm'},               \
    {                                                                                              \
        "no-idle", no_argument, NULL, 'n'                                                          \
    }

/* Takes an option. Returns 1, 0 (it is another one) or -1 (its argument is wrong, reported). */
int selection_option(struct selection *selection, struct snapshot_names *names, int option,
                     const char *argument, const char *command);

/* Orders the sets of a snapshot: first those that are shown. Returns how many these are. */
size_t selection_apply(const struct selection *selection, struct snapshot *snapshot);

/* Returns whether nothing is held, nothing waits, and every limit is whole. */
bool selection_is_idle(const struct snapshot_set *set);

#endif
