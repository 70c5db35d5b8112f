/* SPDX-License-Identifier: MIT */
/*
 * Revisions: whether a set can go from one definition to another while it is used. The library of
 * the server decides the same (definition.lua); here it is told in words.
 */
#ifndef WEIR_REDIS_REVISION_H
#define WEIR_REDIS_REVISION_H

#include "redis_connection.h"

#define REDIS_REVISION_MAX   INT32_MAX
#define REDIS_REVISION_WORDS 128

/* Returns the revision of a definition; -1: it is none. */
int64_t redis_revision_of(const char *text);
/* Returns why a set with one definition cannot go on with the other, whichever has the higher
 * revision; NULL: it can. May write to `words`. */
const char *redis_revision_obstacle(const char *a, const char *b, char words[REDIS_REVISION_WORDS]);
/* Returns why a set cannot be given the definition of `next`, in a whole sentence that says what to
 * do; NULL: it can. May write to `words`. */
const char *redis_revision_refusal(const struct redis_set *set, const struct redis_set *next,
                                   char words[2 * REDIS_REVISION_WORDS]);
/* Says what to do about a definition that the server has in place of this one. */
void redis_revision_explain(const char *own, const char *there, char *ret, size_t size);
/* Says what to do where a set already has this revision, which is higher. */
void redis_revision_explain_earlier(int64_t revision, char *ret, size_t size);
/*
 * Compares a definition with the one that the server has. Returns 0: they are the same; 1: it is a
 * later one, with which the set can go on; -ESTALE: it is an earlier one; -EEXIST: it is another
 * one, and `words` say what to do about that.
 */
int redis_revision_compare(const char *own, const char *there, char *words, size_t size);

/* Return the bytes of a part of a definition, up to a slash or the end; and the part after it, or
 * NULL. */
size_t redis_revision_part_size(const char *part);
const char *redis_revision_next(const char *part);

#endif
