/* SPDX-License-Identifier: MIT */
/* Reports of a simulation: tables for people, and JSON. */
#ifndef WEIR_TOOLS_SIMULATE_REPORT_H
#define WEIR_TOOLS_SIMULATE_REPORT_H

#include "suggest.h"

/* A limit's name is cut to so many bytes. */
#define LIMIT_NAME_MAX 128

/* `suggestion` may be NULL. Both write to the standard output. */
void report_text(const struct simulation *simulation, const struct suggestion *suggestion);
void report_json(const struct simulation *simulation, const struct suggestion *suggestion);

#endif
