/* SPDX-License-Identifier: MIT */
/*
 * Segment files: finding, checking, mapping and unlinking them. Nothing is read from a file that is
 * not the user's alone.
 */
#ifndef WEIR_CORE_SHM_SEGMENT_FILE_H
#define WEIR_CORE_SHM_SEGMENT_FILE_H

#include "base/error.h"
#include "shm/segment.h"

/* Location of a segment, and the receiver of the reason why it cannot be used. */
struct segment_location {
    const char *directory; /* for messages */
    int directory_fd;
    char file_stem[SEGMENT_DIR_FILE_SIZE],
        file[SEGMENT_DIR_FILE_SIZE]; /* without and with the suffix */
    char default_directory[SEGMENT_DIR_PATH_SIZE];
    struct weir_error *reterr;
};

/* Fills reterr and returns the code. Needs at least one argument after the format. */
#define segment_error(site, code, format, ...)                                                     \
    error_set((site)->reterr, code, "segment `%s` in `%s` " format, error_text((site)->file).text, \
              error_text((site)->directory).text, __VA_ARGS__)

/* Opens the directory (`make`: makes the default one) and encodes the name. Returns 0 or a negative
 * errno; the caller calls segment_location_close in either case. */
int segment_location_open(const char *directory, const char *name, bool make,
                          struct segment_location *ret, struct weir_error *reterr);
void segment_location_close(struct segment_location *location);

/* A file of checked owner and mode, and a copy of its beginning. */
struct segment_file {
    int fd;
    uint64_t size, real_size;
    struct segment_header header;
    char definition[SEGMENT_DEFINITION_MAX]; /* NUL-terminated */
};

/* Opens and reads a segment. Returns 0, -ENOENT, -EAGAIN (it was removed at this moment), or
 * another error. The caller calls segment_file_close, also after a failure. */
int segment_file_open(const struct segment_location *location, bool writable,
                      struct segment_file *file);
void segment_file_close(struct segment_file *file);

/*
 * Opens the segment of a set, calls `visit` with what segment_file_open() returned, and closes it.
 * Returns what `visit` returned, or why the directory cannot be opened. `reterr` is filled then,
 * except after -EAGAIN: the segment was removed at this moment.
 */
typedef int segment_visit_fn(struct segment_location *location, struct segment_file *file,
                             int opened, void *userdata);
int segment_visit(const char *directory, const char *name, bool writable, segment_visit_fn *visit,
                  void *userdata, struct weir_error *reterr);

/* Allocates memory of a file. Returns 0 or a negative errno, and then perhaps a part of it. */
int segment_fallocate(int fd, size_t at, size_t size);

/* Removes the set's doorbells and unlinks the file, unless another file has its name by now. Holds
 * the lock of the file meanwhile. */
int segment_file_unlink(int directory_fd, const char *stem, int fd);

/* The host: the boot of the machine, and the namespaces of the calling process. */
struct segment_host {
    unsigned char boot_id[16];
    uint64_t pid_namespace, time_namespace;
};
int segment_host_read(struct segment_host *ret, struct weir_error *reterr);

/* Writes header->identity. The definition must be in the segment already. */
void segment_identity_write(struct segment_header *header, const struct segment_shape *shape,
                            const struct segment_layout *layout, const struct segment_host *host);

/*
 * Checks whether a segment of any shape can be used on this host. Returns 0, -ESTALE (of an earlier
 * boot), -EXDEV, -EPROTONOSUPPORT or -EUCLEAN.
 */
int segment_file_check_usable(const struct segment_location *location,
                              const struct segment_file *file, const struct segment_host *host);

/* Checks whether the segment has this shape. Returns 0, -EEXIST or -EUCLEAN. */
int segment_file_check_match(const struct segment_location *location,
                             const struct segment_file *file, const struct segment_shape *shape,
                             const struct segment_layout *layout);

/* Maps a file of checked size. On success the segment owns the descriptors of both arguments. */
int segment_map(struct segment_location *location, struct segment_file *file,
                const struct segment_layout *layout, bool writable, struct segment **ret);

/* Removes a usable segment unless it is in use and `force` is false. Returns 1 (removed, by this
 * call or another); 0 (in use; `reterr` is not filled); or a negative errno. */
int segment_file_try_remove(struct segment_location *location, struct segment_file *file,
                            const struct segment_layout *layout, bool force,
                            segment_in_use_fn *in_use, void *userdata);

/* Computes the layout from a usable segment's identity. Returns 0 or -EUCLEAN. */
int segment_file_read_layout(const struct segment_location *location,
                             const struct segment_file *file, struct segment_layout *ret);

#endif
