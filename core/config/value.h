/* SPDX-License-Identifier: MIT */
/* Scalars as written, read and checked one by one; each mistake becomes a complaint. */
#ifndef WEIR_CORE_CONFIG_VALUE_H
#define WEIR_CORE_CONFIG_VALUE_H

#include "config/config_ast.h"

/* Given in a shape that was complained about when it was read. */
bool scalar_is_spoilt(const struct scalar *scalar);
bool scalar_is_given(const struct scalar *scalar);

/*
 * The rest is for scalars that have a text; a boolean may lack it. False (or -1): it was complained
 * about, now or before, and `*ret` stays. `field` and `what` are for the complaint.
 */

/* Names and keys: what a person can read in a message and type again. */
bool scalar_check_name(struct complaints *complaints, const char *what, const struct scalar *name);
/* One of `words`. Returns its index. */
int scalar_read_word(struct complaints *complaints, const char *field, const struct scalar *scalar,
                     const char *const *words, size_t n);
bool scalar_read_boolean(struct complaints *complaints, const char *field,
                         const struct scalar *scalar, bool *ret);
/* An amount or a duration within [min, max]. */
bool scalar_read_quantity(struct complaints *complaints, const char *field,
                          const struct scalar *scalar, bool is_duration, uint64_t min, uint64_t max,
                          uint64_t *ret);
/* Bytes within [min, max]. */
bool scalar_read_size(struct complaints *complaints, const char *field, const struct scalar *scalar,
                      uint64_t min, uint64_t max, uint64_t *ret);

#endif
