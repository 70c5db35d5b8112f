/* SPDX-License-Identifier: MIT */
/* Writes SVG: texts, rectangles and lines. Lengths are in tenths of a pixel. */
#ifndef WEIR_TOOLS_SIMULATE_SVG_H
#define WEIR_TOOLS_SIMULATE_SVG_H

#include <stdint.h>
#include <stdio.h>

/* Colors, as those of the benchmarks' plots. */
#define SVG_INK   "#1f2933"
#define SVG_FAINT "#d5dbe1"
#define SVG_GRAY  "#7b8794"

enum svg_anchor { SVG_START, SVG_MIDDLE, SVG_END };

void svg_begin(FILE *out, int width, int height);
void svg_end(FILE *out);

/* Writes a text. `kind` is one of the classes title, panel and small, or "". */
void svg_text(FILE *out, int x, int y, const char *kind, enum svg_anchor anchor, const char *text);
void svg_box(FILE *out, int x, int y, int width, int height, const char *color);
void svg_line(FILE *out, int x1, int y1, int x2, int y2, const char *color);

/* A line through points, or the area below it down to `floor`. svg_path_end() ends it. */
void svg_path_begin(FILE *out);
void svg_path_point(FILE *out, int x, int y, int is_first);
void svg_path_end(FILE *out, const char *color, int width);
void svg_area_end(FILE *out, int first_x, int last_x, int floor, const char *color);

#endif
