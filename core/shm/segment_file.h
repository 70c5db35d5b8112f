/* SPDX-License-Identifier: MIT */
/*
 * Files of segments: found, trusted or refused, and what they say about themselves. Of a file that
 * is not ours alone nothing is read.
 */
#ifndef WEIR_CORE_SHM_SEGMENT_FILE_H
#define WEIR_CORE_SHM_SEGMENT_FILE_H

#include "base/error.h"
#include "shm/segment.h"

/* Where a segment is, and who hears why it cannot be used. */
struct segment_location {
    const char *directory; /* as messages show it */
    int directory_fd;
    char file_stem[SEGMENT_DIR_FILE_SIZE],
        file[SEGMENT_DIR_FILE_SIZE]; /* without and with its suffix */
    char default_directory[SEGMENT_DIR_PATH_SIZE];
    struct weir_error *reterr;
};

/* Fills reterr and returns the code. There is at least one argument after the format. */
#define segment_error(site, code, format, ...)                                                     \
    error_set((site)->reterr, code, "segment `%s` in `%s` " format, error_text((site)->file).text, \
              error_text((site)->directory).text, __VA_ARGS__)

/* Finds the directory (`make`: makes the default one) and the name; segment_location_close afterwards. */
int segment_location_open(const char *directory, const char *name, bool make,
                          struct segment_location *ret, struct weir_error *reterr);
void segment_location_close(struct segment_location *location);

/* A file that is trusted, and a copy of its beginning. */
struct segment_file {
    int fd;
    uint64_t size, real_size;
    struct segment_header header;
    char definition[SEGMENT_DEFINITION_MAX]; /* NUL-terminated */
};

/* Opens and reads the segment: 0, -ENOENT (there is none), -EAGAIN (it was removed at this
 * moment), or a refusal. segment_file_close afterwards, also if it failed. */
int segment_file_open(const struct segment_location *location, bool writable,
                      struct segment_file *file);
void segment_file_close(struct segment_file *file);

/* Takes its name away from the file, unless another has it already; see segment.h. The bells of
 * the set go first. */
int segment_file_unlink(int directory_fd, const char *stem, int fd);

/* The machine and the namespaces of this process. */
struct segment_host {
    unsigned char boot_id[16];
    uint64_t pid_namespace, time_namespace;
};
int segment_host_read(struct segment_host *ret, struct weir_error *reterr);

/* Writes header->identity; shape->definition is in its place already. */
void segment_identity_write(struct segment_header *header, const struct segment_shape *shape,
                            const struct segment_layout *layout, const struct segment_host *host);

/*
 * Whether the segment can be used here and now, whatever its shape: 0, -ESTALE (of an earlier
 * boot), -EXDEV, -EPROTONOSUPPORT, -EUCLEAN.
 */
int segment_file_check_usable(const struct segment_location *location,
                              const struct segment_file *file, const struct segment_host *host);

/* Whether it is the segment of this shape: 0, -EEXIST, -EUCLEAN. */
int segment_file_check_match(const struct segment_location *location,
                             const struct segment_file *file, const struct segment_shape *shape,
                             const struct segment_layout *layout);

/* Maps a file whose size was checked. On success the descriptors of both are the segment's. */
int segment_map(struct segment_location *location, struct segment_file *file,
                const struct segment_layout *layout, bool writable, struct segment **ret);

/* Removes one that can be used, unless it is in use and not `forced`: 1 removed, by this call or
 * meanwhile; 0 in use, of which nothing is told; or an error. */
int segment_file_try_remove(struct segment_location *location, struct segment_file *file,
                            const struct segment_layout *layout, bool force,
                            segment_in_use_fn *in_use, void *userdata);

/* The layout of the shape that a usable one says it has: 0 or -EUCLEAN. */
int segment_file_read_layout(const struct segment_location *location,
                             const struct segment_file *file, struct segment_layout *ret);

#endif
