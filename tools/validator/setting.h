/* SPDX-License-Identifier: MIT */
/* Random values for the parameters of a plugin, within their ranges, and in words. */
#ifndef WEIR_TOOLS_SETTING_H
#define WEIR_TOOLS_SETTING_H

#include "trial.h"

#define SETTINGS_MAX 64u

struct settings {
    struct weir_value values[SETTINGS_MAX];
    const struct weir_value *addresses[SETTINGS_MAX];
    struct weir_setup setup;
};

/* Chooses values, and whether they are given at all. */
void settings_choose(struct trial *trial, struct settings *ret);
/* Writes them into the report, as in a configuration. */
void settings_describe(const struct trial *trial, const struct settings *settings,
                       const char *prefix);

#endif
