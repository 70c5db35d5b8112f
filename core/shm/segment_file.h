/* SPDX-License-Identifier: MIT */
/*
 * Segment files: finding, checking, mapping and unlinking them. Nothing is read from a file that is
 * not the user's alone.
 */
#ifndef WEIR_CORE_SHM_SEGMENT_FILE_H
#define WEIR_CORE_SHM_SEGMENT_FILE_H

#include "base/error.h"
#include "shm/segment.h"

/* A segment's file: its place, a copy of its beginning, and the reason why it cannot be used, which
 * each function fills that returns a negative errno. */
struct segment_file {
    struct weir_error error;
    const char *directory; /* for messages */
    char default_directory[SEGMENT_DIR_PATH_SIZE];
    unsigned char boot_id[16];              /* of the machine */
    uint64_t pid_namespace, time_namespace; /* of the calling process */
    struct segment *segment;  /* its `fd` is negative and its `base` NULL until they are opened */
    uint64_t size, real_size; /* from here on: as of segment_file_open */
    struct segment_header header;
    char definition[SEGMENT_DEFINITION_MAX]; /* the first, NUL-terminated */
    struct definition_copy newest;           /* once segment_file_read_newest() has read it */
    struct definition_copy next;             /* memory for that */
};

/* Fills the error and returns the code. Needs at least one argument after the format. */
#define segment_error(file, code, format, ...)                                                     \
    error_set(&(file)->error, code, "segment `%s` in `%s` " format,                                \
              error_text((file)->segment->file_name).text, error_text((file)->directory).text,     \
              __VA_ARGS__)

/* Opens the directory (`make`: makes the default one), and reads the host. Returns 0, after which
 * the caller calls segment_file_finish; or a negative errno and the reason. */
int segment_file_locate(const char *directory, const char *name, bool make,
                        struct segment_file **ret, struct weir_error *reterr);

/* Frees the file and returns `r`. If that is 0 and `ret` is not NULL, the segment becomes the
 * caller's; else it is closed. If `r` is negative, copies the reason. */
int segment_file_finish(struct segment_file *file, int r, struct segment **ret,
                        struct weir_error *reterr);

/* Opens the file, checks owner and mode, and reads its beginning. Returns 0, -ENOENT, -EAGAIN (it
 * was removed at this moment), or another error. */
int segment_file_open(struct segment_file *file, bool writable);
/* Maps a file of checked size, which may be truncated even so. */
int segment_file_map(struct segment_file *file, const struct segment_layout *layout);
/* Returns 0, or -EUCLEAN if the file was truncated since it was mapped, and then used. */
int segment_file_check_whole(struct segment_file *file);
/* Unmaps and closes the file, also after a failure. The directory stays open. */
void segment_file_close(struct segment *segment);

/* Allocates memory of a file. Returns 0 or a negative errno, and then perhaps a part of it. */
int segment_fallocate(int fd, size_t at, size_t size);

/* Unlinks the file, unless another file has its name by now, and sweeps the set's doorbells. Holds
 * the lock of the file meanwhile. */
int segment_file_unlink(const struct segment *segment);

/* Writes the identity and the definition, into the copy. The only function here that gives no
 * reason for its error. */
int segment_file_describe(struct segment_file *file, const struct segment_shape *shape,
                          const struct segment_layout *layout);

/*
 * Checks whether a segment of any shape can be used on this host. Returns 0, -ESTALE (of an earlier
 * boot), -EXDEV, -EPROTONOSUPPORT or -EUCLEAN.
 */
int segment_file_check_usable(struct segment_file *file);

/* Reads the newest definition of a usable segment. Returns 0, -EUCLEAN, or an error of the system.
 */
int segment_file_read_newest(struct segment_file *file);

/* Checks whether a usable segment has this shape. Returns 0, -EEXIST or -EUCLEAN. */
int segment_file_check_match(struct segment_file *file, const struct segment_shape *shape,
                             const struct segment_layout *layout);

/* Checks whether a segment of any shape can be used on this host, and computes the layout from its
 * identity. Returns 0 or an error of segment_file_check_usable. */
int segment_file_read_layout(struct segment_file *file, struct segment_layout *ret);

/* Returns whether a segment was marked as removed when it was opened. */
static inline bool segment_file_is_removed(const struct segment_file *file)
{
    return atomic_load_explicit(&file->header.removal, memory_order_seq_cst) & 1;
}

/* Removes a usable segment unless it is in use and `force` is false. Returns 1 (removed, by this
 * call or another); 0 (in use; there is no reason); -EUCLEAN (it was truncated meanwhile); or
 * another negative errno. */
int segment_file_try_remove(struct segment_file *file, const struct segment_layout *layout,
                            bool force, segment_in_use_fn *in_use);

#endif
