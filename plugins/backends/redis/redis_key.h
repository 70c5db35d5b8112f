/* SPDX-License-Identifier: MIT */
/*
 * Keys on the server. Each set, and each subject of a set, has one of its own:
 *
 *     PREFIX{SET}      PREFIX{SET:SUBJECT}
 *
 * A colon in the name of a set is escaped, so the first one ends the name. A brace that closes is
 * escaped in both: what stands between the braces is the hash tag of a Redis Cluster, as a whole.
 * An escape is a percent sign and two hexadecimal digits; a percent sign is escaped as well.
 */
#ifndef WEIR_REDIS_KEY_H
#define WEIR_REDIS_KEY_H

#include <stddef.h>

/* Bytes of a key at most, for a name or a subject of `size` bytes: each may be escaped. */
#define REDIS_KEY_NAME_ROOM(prefix_size, size) ((prefix_size) + 3 * (size) + 1)
#define REDIS_KEY_SUBJECT_ROOM(size)           (3 * (size) + 2)

/* Writes the beginning of all keys of a set, PREFIX{SET. Returns its size. The prefix has no brace
 * that opens. */
size_t redis_key_begin(char *ret, const char *prefix, const char *name);

/* Writes the end of the key of a set. Returns its size. */
size_t redis_key_end(char *ret);

/* Writes the end of the key of a subject, which may be any bytes. Returns its size. */
size_t redis_key_end_subject(char *ret, const void *subject, size_t size);

#endif
