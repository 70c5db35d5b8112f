/* SPDX-License-Identifier: MIT */
/* What differs between two definitions of one set, for a message. */
#ifndef WEIR_CORE_SHM_DEFINITION_DIFF_H
#define WEIR_CORE_SHM_DEFINITION_DIFF_H

struct definition_diff {
    char text[320]; /* "`capacity` of limit 1 (`slots`) is 4 there, 5 here"; "" if nothing is found
                     */
};

/*
 * Compares two definitions as fingerprint_new() (config/fingerprint.h) writes them, field by field,
 * and describes the first differences. Numbers of one value are the same: 10k and 10000. Reads
 * any text; of one that is no such definition it may find nothing.
 */
struct definition_diff definition_diff(const char *there, const char *here);

/* Describes the same as a change: "`capacity` of limit 1 (`slots`): 4 -> 5". */
struct definition_diff definition_changes(const char *before, const char *after);

/* Appends one change, of the limit of this number and key; 0: of the set. NULL: not set. */
void definition_diff_add(struct definition_diff *diff, unsigned limit, const char *key,
                         const char *name, const char *before, const char *after);

#endif
