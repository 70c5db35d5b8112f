/* SPDX-License-Identifier: MIT */
/*
 * The directory in which the segments of a user lie. It is the user's own and closed to everybody
 * else; one that is not is refused, for whoever can write there could plant what we then trust.
 * Files are named after their set: letters, digits, `-` and `_` stand for themselves, every other
 * byte becomes %XX. So no encoded name contains a dot, and what follows one is ours:
 *   NAME.weir                 the segment
 *   NAME.PLACE.KEEPER.bell    the bell of a keeper of a process that takes part
 */
#ifndef WEIR_CORE_SHM_SEGMENT_DIR_H
#define WEIR_CORE_SHM_SEGMENT_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <weir/error.h>

#define SEGMENT_DIR_STEM_MAX  200u /* bytes of an encoded name */
#define SEGMENT_DIR_FILE_SIZE 256u /* of a buffer for any name of a file */
#define SEGMENT_DIR_PATH_SIZE 40u  /* of a buffer for the default */

#define SEGMENT_SUFFIX  ".weir"
#define DOORBELL_SUFFIX ".bell"

/* "/dev/shm/weir-1000", with the effective user's number. */
void segment_dir_default(char ret[static SEGMENT_DIR_PATH_SIZE]);

/*
 * Opens a directory after checking it; `path` NULL means the default one, which is made if it is
 * not there (with `make`). Returns a descriptor, to be closed with os_close, or -ENOENT, -EPERM (it
 * is a link, or somebody else's, or others may enter it), or what the system says; `reterr` has the
 * reason.
 */
int segment_dir_open(const char *path, bool make, struct weir_error *reterr);

/* The name of a set's files without their suffix: 0, -EINVAL for an empty one, -ENAMETOOLONG. */
int segment_dir_encode(const char *name, char ret[static SEGMENT_DIR_FILE_SIZE]);

/* The name of the set whose segment this file is. False: it is not the name of a segment. */
bool segment_dir_decode(const char *file, char ret[static SEGMENT_DIR_FILE_SIZE]);

/*
 * Calls `found` with each set that has a file in the directory, until it returns something other
 * than 0, which is then returned. Otherwise 0, or a negative errno with the reason. `found` may
 * remove what it is told of.
 */
int segment_dir_list(const char *path, int (*found)(void *userdata, const char *set),
                     void *userdata, struct weir_error *reterr);

/* Removes the bells of a set, as far as that succeeds. */
void segment_dir_remove_doorbells(int directory_fd, const char *stem);

#endif
