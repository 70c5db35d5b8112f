/* SPDX-License-Identifier: MIT */
/* Reads and checks values one by one. Every error becomes a complaint. */
#ifndef WEIR_CORE_CONFIG_VALUE_H
#define WEIR_CORE_CONFIG_VALUE_H

#include "config/config_ast.h"

/* Returns whether the value was of a wrong kind, which was complained about when it was read. */
bool value_is_invalid(const struct config_value *value);
bool value_is_given(const struct config_value *value);

/*
 * The functions below are for values with a text; a boolean may lack it. They return false (or -1),
 * and leave `*ret`, if a complaint was added now or earlier. `field` and `what` name the value in
 * it.
 */

/* Checks that a person can read a name or key in a message and type it again. */
bool value_check_name(struct complaints *complaints, const char *what,
                      const struct config_value *name);
/* Returns the index of the value in `words`. */
int value_read_choice(struct complaints *complaints, const char *field,
                      const struct config_value *value, const char *const *words, size_t n);
bool value_read_boolean(struct complaints *complaints, const char *field,
                        const struct config_value *value, bool *ret);
/* Reads an amount or a duration within [min, max]. */
bool value_read_number(struct complaints *complaints, const char *field,
                       const struct config_value *value, bool is_duration, uint64_t min,
                       uint64_t max, uint64_t *ret);
/* Reads a number of bytes within [min, max]. */
bool value_read_size(struct complaints *complaints, const char *field,
                     const struct config_value *value, uint64_t min, uint64_t max, uint64_t *ret);

#endif
