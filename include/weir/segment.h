/* SPDX-License-Identifier: MIT */
/* Segments: the files of sets that processes share (backend `process`), for programs that list,
 * watch or remove them. */
#ifndef WEIR_SEGMENT_H
#define WEIR_SEGMENT_H

#include <weir/instance.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A segment that was found. To look into its set, open an instance with `definition` as the text,
 * the same process_dir and WEIR_OPEN_EXISTING, and open the set by its name. That counts as using
 * it.
 */
struct weir_segment {
    size_t size;            /* sizeof(struct weir_segment), as the library knows it */
    const char *name;       /* name of the set */
    const char *path;       /* of the file, bytes */
    const char *definition; /* a whole configuration with this set alone; NULL if it is not
                               usable, or its configuration has more than 16 KiB */
    const char *lifetime;   /* "boot" or "users"; NULL if it is not usable */
    uint64_t created_ns;    /* since 1970-01-01 UTC; 0 if it is not usable, as are the fields
                               below */
    uint64_t bytes;         /* memory in use */
    uint32_t creator;       /* process id */
    uint32_t users;         /* living processes that are attached */

    /*
     * NULL if it is usable, else the reason, with one of these codes: -ESTALE (of an earlier boot:
     * the process that opens the set next replaces it), -EXDEV (of another namespace of processes
     * or time), -EPROTONOSUPPORT (made by another version of weir), -EUCLEAN (damaged), -EPERM (not
     * the user's alone), or the system's error of opening it.
     */
    const struct weir_error *refusal;
};

/*
 * Calls `found` for every segment in the directory that weir_open would use with these options, in
 * the order of their names. Of the options, which may be NULL, only the choice of the directory
 * matters. The arguments of `found` live as long as the call; it returns 0 to go on, and may remove
 * the segment. Any thread. Returns the number of calls, 0 also if there is no such directory; or
 * -EINVAL (the options or the configuration are wrong), -EPERM (the directory is not the user's
 * alone), -ENOMEM, or the system's error; then `reterr`, if not NULL, says why.
 */
WEIR_PUBLIC int weir_segments(const struct weir_options *options,
                              int (*found)(void *userdata, const struct weir_segment *segment),
                              void *userdata, struct weir_error *reterr);

enum {
    WEIR_SEGMENT_FORCE = 1u << 0 /* also if it is in use or cannot be used: its users go on with
                                    it, apart from all later ones */
};

/*
 * Removes the segment of a set, with all its counts. Any thread. Returns 0, -ENOENT (there is
 * none), -EBUSY (a living process uses it), another code of struct weir_segment (it is not usable),
 * or an error of weir_segments.
 */
WEIR_PUBLIC int weir_segment_remove(const struct weir_options *options, const char *name,
                                    uint32_t flags, struct weir_error *reterr);

#ifdef __cplusplus
}
#endif
#endif
