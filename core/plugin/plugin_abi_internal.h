/* SPDX-License-Identifier: MIT */
/* Parts of the validation of a table: where it stands, its primitives, and what operations ask. */
#ifndef WEIR_CORE_PLUGIN_PLUGIN_ABI_INTERNAL_H
#define WEIR_CORE_PLUGIN_PLUGIN_ABI_INTERNAL_H

#include "plugin/plugin_file.h"

#define ABI_SEGMENTS_MAX 32u /* of a file; what lies in others does not count as its own */

/* Size that a struct must have to contain the field. */
#define FIELD_END(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))

/* Current position in the table, for messages. */
struct plugin_abi_reader {
    struct plugin_file *file;
    struct {
        uintptr_t begin, end; /* behind it */
        bool is_readable, is_code;
    } segments[ABI_SEGMENTS_MAX]; /* of the object that exports the table */
    size_t segments_n;
    uint32_t number;       /* of the plugin, from 1; 0: the table */
    const char *plugin;    /* name of the plugin; NULL: not known yet */
    const char *parameter; /* name of the parameter, or NULL */
};

enum { ABI_SKIPPED = 1 }; /* the result for a plugin that cannot be used */

/* ---- plugin_abi.c: all return 0, -ENOEXEC (the file is refused) or as said ---- */

__attribute__((format(printf, 2, 3))) int plugin_abi_refuse(const struct plugin_abi_reader *reader,
                                                            const char *format, ...);
/* Skips the plugin that is read. Returns ABI_SKIPPED or -ENOMEM. */
__attribute__((format(printf, 2, 3))) int plugin_abi_skip(const struct plugin_abi_reader *reader,
                                                          const char *format, ...);
/* Skips the plugin if flags must be understood that are not in `known`. */
int plugin_abi_check_flags(const struct plugin_abi_reader *reader, uint32_t flags, uint32_t known);
/* Reads a struct: copies the fields that exist, and zeroes the rest of `ret`. Both begin with their
 * size. Refuses a struct that may not be read: NULL, not aligned, or of no plausible size. */
int plugin_abi_read_struct(const struct plugin_abi_reader *reader, const char *what,
                           const void *data, size_t least, void *ret, size_t ret_size);
/* Checks that a text can be displayed unchanged: one line of valid UTF-8 without control
 * characters. */
int plugin_abi_check_text(const struct plugin_abi_reader *reader, const char *what,
                          const char *text);
int plugin_abi_check_name(const struct plugin_abi_reader *reader, const char *what,
                          const char *name);
/* Returns whether an address is one of the object's code. */
bool plugin_abi_is_code(const struct plugin_abi_reader *reader, uintptr_t function);

/* ---- plugin_abi_ops.c ---- */

/* Reads the operations of a plugin with a known kind, and its gauges. Returns 0, ABI_SKIPPED,
 * -ENOEXEC or -ENOMEM. */
int plugin_abi_read_operations(const struct plugin_abi_reader *reader, struct plugin *plugin);

#endif
