/* SPDX-License-Identifier: MIT */
/* Scalars as written, read and checked one by one; each mistake becomes a complaint. */
#ifndef WEIR_CORE_CONFIG_VALUE_H
#define WEIR_CORE_CONFIG_VALUE_H

#include "config/config_ast.h"

/* Given in a shape that was complained about when it was read. */
bool value_is_invalid(const struct config_value *value);
bool value_is_given(const struct config_value *value);

/*
 * The rest is for scalars that have a text; a boolean may lack it. False (or -1): it was complained
 * about, now or before, and `*ret` stays. `field` and `what` are for the complaint.
 */

/* Names and keys: what a person can read in a message and type again. */
bool value_check_name(struct complaints *complaints, const char *what,
                      const struct config_value *name);
/* One of `words`. Returns its index. */
int value_read_choice(struct complaints *complaints, const char *field,
                      const struct config_value *value, const char *const *words, size_t n);
bool value_read_boolean(struct complaints *complaints, const char *field,
                        const struct config_value *value, bool *ret);
/* An amount or a duration within [min, max]. */
bool value_read_number(struct complaints *complaints, const char *field,
                       const struct config_value *value, bool is_duration, uint64_t min,
                       uint64_t max, uint64_t *ret);
/* Bytes within [min, max]. */
bool value_read_size(struct complaints *complaints, const char *field,
                     const struct config_value *value, uint64_t min, uint64_t max, uint64_t *ret);

#endif
