/* SPDX-License-Identifier: MIT */
/* The plot of a simulation: what arrived and was granted, how long it waited, and how much of each
 * limit was used, over time; a column for each candidate. */
#ifndef WEIR_TOOLS_SIMULATE_PLOT_H
#define WEIR_TOOLS_SIMULATE_PLOT_H

#include "simulation.h"
#include <stdio.h>

void plot_write(FILE *out, const struct simulation *simulation);

/* Write the plot into a file. A PNG is made by rsvg-convert (Debian's librsvg2-bin). Return 0, or
 * -1 after a message. */
int plot_svg(const struct simulation *simulation, const char *path);
int plot_png(const struct simulation *simulation, const char *path);

#endif
