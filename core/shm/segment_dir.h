/* SPDX-License-Identifier: MIT */
/*
 * Segment directory: contains the segments and doorbells of a user. A directory that does not
 * belong to the user or is accessible to others is refused: another user could plant a segment
 * there. Files are named after their set: letters, digits, `-` and `_` stay, every other byte
 * becomes %XX. So an encoded name, the file stem, contains no dot:
 *   STEM.weir                          the segment
 *   STEM.GENERATION.KEY.TIMER.bell     the doorbell of a wait timer of the process with this peer
 *                                      key, in the segment with this generation
 *   PROCESS.NUMBER.RANDOM.sock         where a process tells its sets (publish_socket.h)
 * What is being made has the suffix `.new` in place of `.bell`, or behind `.sock`.
 */
#ifndef WEIR_CORE_SHM_SEGMENT_DIR_H
#define WEIR_CORE_SHM_SEGMENT_DIR_H

#include <stdbool.h>
#include <weir/instance.h>

struct complaints;

#define SEGMENT_DIR_STEM_MAX  200u /* bytes of a file stem */
#define SEGMENT_DIR_FILE_SIZE 256u /* buffer for any file name */
#define SEGMENT_DIR_PATH_SIZE 40u  /* buffer for the default directory */

#define SEGMENT_SUFFIX  ".weir"
#define DOORBELL_SUFFIX ".bell"
#define PUBLISH_SUFFIX  ".sock"
#define FRESH_SUFFIX    ".new"

/* Writes the default directory: "/dev/shm/weir-1000", with the effective user id. */
void segment_dir_default(char ret[static SEGMENT_DIR_PATH_SIZE]);

/*
 * Opens a directory and checks it. `path` NULL: the default one, which is made if it is missing and
 * `make` is true. Returns a descriptor for os_close; -ENOENT; -EPERM (a link, of another user, or
 * accessible to others); or an error of the system. `reterr` has the reason.
 */
int segment_dir_open(const char *path, bool make, struct weir_error *reterr);

/* Encodes a set's name as a file stem. Returns 0, -EINVAL (empty) or -ENAMETOOLONG. */
int segment_dir_encode(const char *name, char ret[static SEGMENT_DIR_FILE_SIZE]);

/* Decodes the set's name from a segment's file name. Returns false if it is not one. */
bool segment_dir_decode(const char *file, char ret[static SEGMENT_DIR_FILE_SIZE]);

/*
 * Calls `found` for each set with a segment in the directory, until it returns a value other than
 * 0. Returns that value, 0, or a negative errno with the reason in `reterr`. `found` may remove the
 * segment.
 */
int segment_dir_list(const char *path, int (*found)(void *userdata, const char *set),
                     void *userdata, struct weir_error *reterr);

/*
 * Removes the files of the dead. `is_used` says of a name 0 (no process has it open), 1 (one has,
 * or it is of another kind) or a negative errno. What is being made is looked at twice: sweeps that
 * keep pace would take it at each try. `file_stem` is passed on. Returns 0 or the first error,
 * after which it goes on; what it could not look at stays.
 */
int segment_dir_sweep(int directory_fd, const char *file_stem,
                      int (*is_used)(int directory_fd, const char *name, const char *file_stem));

/*
 * Chooses the directory of an instance: from the options, else `configured`, else WEIR_PROCESS_DIR,
 * else NULL for the default. Returns 0, -EINVAL (not an absolute path: a relative one differs
 * between processes) or -ENOMEM. The caller frees `*ret` with os_free.
 */
int segment_dir_choose(const struct weir_options *options, const char *configured,
                       struct complaints *complaints, char **ret);

#endif
