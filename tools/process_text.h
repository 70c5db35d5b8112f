/* SPDX-License-Identifier: MIT */
/* The command line of another process, for people to read. */
#ifndef WEIR_TOOLS_PROCESS_TEXT_H
#define WEIR_TOOLS_PROCESS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROCESS_TEXT_MAX 256

/*
 * Writes the command line of a process; of `weir exec` that of the command that it waits to run.
 * It is cut to what fits, UTF-8, without control characters, and without padding at its end. A word
 * that is empty is shown as ''. Returns false, with the reason in parentheses or the kernel's name
 * of the process in brackets instead, if there is none that can be read.
 */
bool process_text_read(uint32_t process, char ret[static PROCESS_TEXT_MAX]);

/* Writes the kernel's name of a process, of at most 15 bytes; empty if it is gone. */
void process_text_name(uint32_t process, char ret[static PROCESS_TEXT_MAX]);

/* Writes the words of a command line, which are `n` bytes with a NUL behind each word. May write
 * into the words. */
void process_text_join(char *words, size_t n, char ret[static PROCESS_TEXT_MAX]);

#endif
