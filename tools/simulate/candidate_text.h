/* SPDX-License-Identifier: MIT */
/* The text of a configuration, as a simulation has it: with private sets, and a capacity that is
 * tried. */
#ifndef WEIR_TOOLS_SIMULATE_CANDIDATE_TEXT_H
#define WEIR_TOOLS_SIMULATE_CANDIDATE_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* A capacity in place of the one that is written; `set` is NULL: none. */
struct capacity_edit {
    const char *set;
    size_t limit; /* its number in the set, from 0 */
    uint64_t capacity;
};

/*
 * Returns the text with all sets private: nothing says that processes share them or that an engine
 * keeps them. The text is one that the library takes. The caller frees it. NULL: no memory.
 */
char *candidate_text(const char *text, const struct capacity_edit *edit);

#endif
