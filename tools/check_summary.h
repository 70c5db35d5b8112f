/* SPDX-License-Identifier: MIT */
/* What a configuration means, as `weir check` says it. */
#ifndef WEIR_TOOLS_CHECK_SUMMARY_H
#define WEIR_TOOLS_CHECK_SUMMARY_H

#include "json.h"
#include <weir/weir.h>

/* Writes all sets and pools with their limits and settings, to `json`, or as text if that is NULL.
 * `file` is the name of the configuration. Returns 0 or a negative errno. */
int check_summary(struct json *json, weir *w, const char *file);

/* Writes the names of the sets that processes share, and of pools of such sets, one a line. Returns
 * 0 or a negative errno. */
int check_names(weir *w);

#endif
