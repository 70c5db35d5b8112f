/* SPDX-License-Identifier: MIT */
/* Excerpts: the line of a text that a complaint is about, with a caret below its place. */
#ifndef WEIR_TOOLS_EXCERPT_H
#define WEIR_TOOLS_EXCERPT_H

#include <stdio.h>

/* A text, and a place in it that was found before. All zero: no text, and no excerpts. */
struct excerpt {
    char *text;
    size_t length;
    size_t at; /* the byte of `line` and `column`, from 1; columns count characters */
    unsigned line, column;
};

/* Takes a text of `length` bytes, which excerpt_free() frees. */
void excerpt_take(struct excerpt *excerpt, char *text, size_t length);
/* Reads a file, if it is a regular one: others cannot be read twice. */
void excerpt_read(struct excerpt *excerpt, const char *path);
void excerpt_free(struct excerpt *excerpt);

/* Writes a text with `?` in place of characters that could do more to a terminal than be seen. */
void excerpt_write_text(FILE *out, const char *text);
/* Writes two lines: a part of the line, and the caret. Nothing if the text has no such place. Fast
 * if places come in the order of the text. */
void excerpt_write(struct excerpt *excerpt, FILE *out, unsigned line, unsigned column);

#endif
