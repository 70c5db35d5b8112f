/* SPDX-License-Identifier: MIT */
/* For tests of segments: a directory of their own, a small shape, and a look at the files. */
#ifndef WEIR_TESTS_SEGMENTS_H
#define WEIR_TESTS_SEGMENTS_H

#include "lib/tmpdir.h"
#include "shm/acq_record.h"
#include "shm/segment.h"
#include "state/version.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char place[TMPDIR_SIZE];
static struct weir_error error;

/* A path in the directory; the last two stay valid. */
static inline const char *inside(const char *name)
{
    static char path[2][320];
    static int turn;

    turn = !turn;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", place, name);
    return path[turn];
}

static inline struct segment_shape some_shape(void)
{
    static const uint64_t content[] = {0, 0, 0, 7, 8};

    return (struct segment_shape){.name = "set",
                                  .definition = "{rate: tokens, capacity: 100}",
                                  .definition_hash = 42,
                                  .sizes = {.block_class = block_class_for(30),
                                            .record_units = record_units(1),
                                            .limits_n = 1,
                                            .counters_size = 256},
                                  .initial_state = content,
                                  .initial_state_n = 5};
}

#define SOME_FILE "set.weir"

/* Another meaning of the same name. */
static inline struct segment_shape other_shape(void)
{
    struct segment_shape shape = some_shape();

    shape.definition = "{resource: slots, capacity: 4}";
    shape.definition_hash = 43;
    return shape;
}

/* A segment that exists for its users only; `is_in_use` says whether it has any. */
static inline bool is_in_use(const struct segment *segment);

static inline struct segment_shape brief(struct segment_shape shape)
{
    shape.while_used = true;
    shape.in_use = is_in_use;
    return shape;
}

/* A keyed one. */
static inline struct segment_shape keyed_shape(void)
{
    struct segment_shape shape = some_shape();

    shape.sizes.keys_max = 300;
    shape.sizes.key_sets_max = 20;
    return shape;
}

static inline uint64_t inode_of(const char *path)
{
    struct stat found;

    return lstat(path, &found) == 0 ? found.st_ino : 0;
}

/* How many files are in the directory. */
static inline unsigned files_n(void)
{
    DIR *directory = opendir(place);
    unsigned n = 0;

    while (directory && readdir(directory))
        n++;
    if (directory)
        closedir(directory);
    return n - 2;
}

/* Whether the first version of the set is where the segment says. */
static inline bool has_first_version(const struct segment *segment)
{
    _Atomic bool broken = false;
    uint64_t words[30] = {0};
    struct version version = {.content = words, .content_capacity = 30};
    struct region region;

    if (region_open_segment(&region, segment, &broken) < 0)
        return false;
    version_read(&region, segment_set_head_unit(), &version);
    region_close(&region);
    return !broken && version.content_n == 5 && words[3] == 7 && words[4] == 8;
}

static inline bool is_in_use(const struct segment *segment)
{
    for (uint32_t i = 0; i < segment_peers_n(segment); i++)
        if (peer_id_pid(atomic_load(&segment_peer(segment, i)->id)))
            return true;
    return false;
}

static inline int place_setup(void **state)
{
    (void)state;
    return tmpdir_make(place, "/dev/shm") ? 0 : -1;
}

/* Fails if a test left anything there. */
static inline int place_teardown(void **state)
{
    (void)state;
    return rmdir(place);
}

#endif
