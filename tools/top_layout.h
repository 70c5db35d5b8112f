/* SPDX-License-Identifier: MIT */
/* The screen of `weir top` as lines of text: a pure function of snapshots and the view. */
#ifndef WEIR_TOOLS_TOP_LAYOUT_H
#define WEIR_TOOLS_TOP_LAYOUT_H

#include "selection.h"
#include "snapshot.h"

#define TOP_COLUMNS_MAX 512u

enum top_style { TOP_PLAIN, TOP_TITLE, TOP_HEADING, TOP_SELECTED, TOP_EXHAUSTED };

struct top_line {
    enum top_style style;
    char text[4 * TOP_COLUMNS_MAX +
              1]; /* in the encoding of the locale, without control characters */
};

struct top_view {
    unsigned rows, columns;
    size_t shown_n;  /* sets that are shown, the first of the snapshot: see selection_apply() */
    size_t selected; /* index of one of them */
    struct selection selection;
    const char *match; /* only sets with this text in their names are in the snapshot, or NULL */
    bool is_typing;    /* `match` is being typed */
    uint64_t interval_ns;
    bool paused;
    const char *message; /* to be shown, or NULL */
};

/* Fills `rows` lines, none wider than `columns` (at most TOP_COLUMNS_MAX are used). `before` is an
 * earlier snapshot to compute rates from, or NULL. A line says how much did not fit. */
void top_layout(const struct snapshot *now, const struct snapshot *before,
                const struct top_view *view, struct top_line *lines);

#endif
