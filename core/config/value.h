/* SPDX-License-Identifier: MIT */
/* Reads and checks values one by one. Every error becomes a complaint. */
#ifndef WEIR_CORE_CONFIG_VALUE_H
#define WEIR_CORE_CONFIG_VALUE_H

#include "base/units.h"
#include "config/config_ast.h"

/* Returns whether the value was given, be it of a wrong kind. */
bool value_is_given(const struct config_value *value);

/* Adds a complaint about an unknown field that resembles one of `names`. Returns that, or NULL. */
const char *value_complain_similar(struct complaints *complaints, const struct config_value *field,
                                   const char *const *names, size_t n);

/*
 * The functions below return false, and leave `*ret`, if a complaint was added now or earlier, or
 * if the value has no text. `field` and `what` name the value in a complaint.
 */

/* Checks that a person can read a name or key in a message and type it. It must have a text. */
bool value_check_name(struct complaints *complaints, const char *what,
                      const struct config_value *name);
/* Checks that a path is absolute: another one would differ from process to process. Returns 0, also
 * without a text, or -EINVAL. */
int value_check_path(struct complaints *complaints, const struct config_value *path);
/* Reads a word as its index in `words`. */
bool value_read_choice(struct complaints *complaints, const char *field,
                       const struct config_value *value, const char *const *words, size_t n,
                       uint64_t *ret);
bool value_read_boolean(struct complaints *complaints, const char *field,
                        const struct config_value *value, bool *ret);
/* Reads a number within [min, max]. */
bool value_read_number(struct complaints *complaints, const char *field,
                       const struct config_value *value, enum units_kind kind, uint64_t min,
                       uint64_t max, uint64_t *ret);

#endif
