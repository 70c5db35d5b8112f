/* SPDX-License-Identifier: MIT */
/*
 * Segments: the shared memory of a set whose backend is `process`, one file per set
 * (segment_layout.h says what is in it, segment_dir.h where it lies).
 *
 * A segment is made by exactly one process, in a file without a name that gets its name when it is
 * complete. Everybody else attaches: opens it without following links, checks that it is a plain
 * file of the same user that nobody else may touch, and that it is what this process would have
 * made itself. Nothing that is read from it is used as an address or a size.
 *
 * What is checked when it is attached to, and never looked at again, is the identity. All the other
 * words may change at any time, also to nonsense if somebody scribbles there: whoever reads a number
 * checks it against the bounds below. Cutting the file short while it is mapped is beyond that: the
 * same user may do it as he may kill the process.
 *
 * No name is taken away except under a lock on the file that has it, after another look whether it
 * still has it: else the successor of a removed segment could be removed in its place.
 *
 * Functions may be called from any thread; segment_confirm_attach and segment_remove_if_unused by one at a time for one
 * struct segment. Not in a forked child, where the mapping is missing.
 */
#ifndef WEIR_CORE_SHM_SEGMENT_H
#define WEIR_CORE_SHM_SEGMENT_H

#include "shm/segment_dir.h"
#include "shm/segment_layout.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/error.h>

struct segment;

/* Whether any process takes part that is alive. */
typedef bool segment_in_use_fn(const struct segment *segment, void *userdata);

/* What a set's segment follows from. */
struct segment_shape {
    const char *name;          /* of the set, 1 … 255 bytes */
    const char *definition;    /* as it was written: shown where definitions differ */
    uint64_t definition_hash;  /* of what it means: decides whether two are the same */
    bool while_used;           /* lifetime: users */
    bool must_exist;           /* it is not made, nor replaced: -ENOENT, -EEXIST */
    segment_in_use_fn *in_use; /* by which one of another definition is replaced; NULL: none is */
    void *userdata;
    uint32_t block_class, record_units, limits_n;
    size_t counters_size;          /* of an actor's counters; a multiple of 8 */
    const uint64_t *initial_state; /* the first version of the set, for whoever makes the segment */
    uint32_t initial_state_n;
    uint64_t keys_max;     /* how many keys there is to be room for; 0: the set is not keyed */
    uint32_t key_sets_max; /* and live sets for them */
};

/* Where everything is: computed, never read. Offsets are in bytes from the beginning. */
struct segment_layout {
    size_t thread_stride, blocks_at, records_at, size;
    size_t keyed_at, key_sets_at, keys_at; /* 0: the set is not keyed */
    uint64_t keys_max;
    uint32_t block_class, record_units, limits_n, counters_size;
    uint32_t threads_n, runs_n, key_sets_max, blocks_n;
};

/* Its fields do not change while it is open. */
struct segment {
    unsigned char *base;
    struct segment_layout layout;
    int fd, directory_fd;
    bool while_used;
    struct siphash_secret secret;          /* of a keyed set */
    char file_stem[SEGMENT_DIR_FILE_SIZE]; /* the set's name as files have it, without a suffix */
};

/* 0, -EINVAL for a shape that cannot be, or -E2BIG: more keys or live sets than can be numbered. */
int segment_layout_compute(const struct segment_shape *shape, struct segment_layout *ret);

/*
 * Attaches to the set's segment in this directory (NULL: the default), or makes it. Returns 0 or
 *   -EINVAL, -E2BIG, -ENAMETOOLONG   the shape or the name
 *   -EPERM        the directory or the file is not the user's alone, or is no plain file
 *   -EEXIST       the set is defined otherwise there; the message shows both definitions.
 *                 One that is there for its users only, all of whom have died, is replaced
 *   -EPROTONOSUPPORT  it was made by another version of weir
 *   -EXDEV        it belongs to another namespace of processes or of time
 *   -EUCLEAN      it is damaged
 *   -EBUSY        others keep removing it, or one was stopped while doing so
 *   -ENOSPC, -ENOMEM, -EMFILE, …     what the system says
 * One of an earlier boot of the machine is replaced.
 */
int segment_open(const char *directory, const struct segment_shape *shape, struct segment **ret,
                 struct weir_error *reterr);

/*
 * For onlookers: maps a segment that is there for reading only, with the shape it says it has. Only
 * reading functions may be called on it. -ENOENT: there is none. Otherwise as above.
 */
int segment_view(const char *directory, const char *name, struct segment **ret,
                 struct weir_error *reterr);

/* Unmaps it. The file stays. NULL: does nothing. */
void segment_close(struct segment *segment);
/* For a forked child, in which nothing is mapped there, or by now something else: closes what it
 * has inherited, and leaves all else to the parent. */
void segment_close_in_child(const struct segment *segment);

/*
 * These give memory to a place before it is used for the first time, so that no store meets a full
 * file system: 0, -ENOSPC, -EINVAL (no such place), or what the system says. They may be called
 * for the same place again, also by several processes at once. Whoever looks for a free place goes
 * up from the first, and calls the one for each from segment_peers_n() (…) on, before
 * claiming it.
 */
int segment_alloc_peer(const struct segment *segment, uint32_t i);
/* The actor gets a box of its own, if it never had one, and a generation other than 0. */
int segment_alloc_thread(const struct segment *segment, uint32_t i);
int segment_alloc_run(const struct segment *segment, uint32_t run); /* not run 0 */
/*
 * The live set gets a box of its own, if it never had one, and an empty version: one without any
 * content, which nobody publishes, so it says that the live set was never used. As neither needs
 * a store but that of the word, and a live set is boxed for ever after, so that its word is never 0
 * again, it does not matter who else does this, how late, or dies meanwhile.
 */
int segment_alloc_key_set(const struct segment *segment, uint32_t i);

/*
 * Called by a process that has just claimed its place in `processes`. 0: it takes part. -ESTALE: the
 * segment was removed before; its name is free now. Then it gives back its place, closes the segment
 * and opens it anew. Another negative errno: the name could not be taken away.
 */
int segment_confirm_attach(const struct segment *segment);

/* As their places and the system say; in doubt they live. */
bool segment_has_users(const struct segment *segment, void *unused);

/*
 * Removes the segment unless `used` says that it is in use: 1 removed, by this call or before; 0
 * used, or another process that left later has taken over; or a negative errno. Called by a process
 * that has just given back its own place, if the set is there for its users only.
 */
int segment_remove_if_unused(const struct segment *segment, segment_in_use_fn *in_use,
                             void *userdata);

/*
 * Removes a set's segment by name. With `force` also if it is in use, damaged or of another version
 * of weir: those who use it go on, apart from everybody who comes later. 0, -ENOENT, -EBUSY (in
 * use), or as segment_open.
 */
int segment_remove(const char *directory, const char *name, bool force, segment_in_use_fn *in_use,
                   void *userdata, struct weir_error *reterr);

/* What is told about a segment without mapping it. */
enum segment_state {
    SEGMENT_USABLE = 0,
    SEGMENT_REMOVED, /* its name is about to go */
    SEGMENT_STALE,   /* of an earlier boot: the next to open it replaces it */
    SEGMENT_FOREIGN  /* of another namespace of processes or of time */
};

struct segment_summary {
    enum segment_state state;
    char name[SEGMENT_NAME_SIZE]; /* of the set */
    uint64_t creator_pid;         /* its process id */
    uint64_t created_ns;          /* by the wall clock */
    uint64_t size, real_size;     /* bytes of the file; bytes that take up room */
    uint32_t limits_n;
    bool while_used;
    uint32_t peers_n;                     /* places in use, whether by the living or by the dead */
    uint64_t peer_ids[SEGMENT_PEERS_MAX]; /* their words, see struct segment_process */
    char definition[SEGMENT_DEFINITION_MAX];
};

/* Fills `ret`, which is large. 0, -ENOENT, or as segment_open, for segments that are unusable. */
int segment_inspect(const char *directory, const char *name, struct segment_summary *ret,
                    struct weir_error *reterr);

/* ---- places ---- */

static inline size_t segment_block_size(const struct segment_layout *layout)
{
    return (size_t)1 << layout->block_class;
}

static inline struct segment_header *segment_header(const struct segment *segment)
{
    return (struct segment_header *)(void *)segment->base;
}

static inline const char *segment_definition(const struct segment *segment)
{
    return (const char *)segment->base + SEGMENT_DEFINITION_AT;
}

/* i < SEGMENT_PEERS_MAX */
static inline struct peer_slot *segment_peer(const struct segment *segment, uint32_t i)
{
    return (struct peer_slot *)(void *)(segment->base + SEGMENT_PEERS_AT) + i;
}

/* run < layout.runs_n */
static inline _Atomic uint64_t *segment_run_owner(const struct segment *segment, uint32_t run)
{
    return (_Atomic uint64_t *)(void *)(segment->base + SEGMENT_RUN_OWNERS_AT) + run;
}

static inline size_t segment_thread_at(const struct segment *segment, uint32_t i)
{
    return SEGMENT_THREADS_AT + i * segment->layout.thread_stride;
}

/* i < layout.actors_n */
static inline struct segment_thread *segment_thread(const struct segment *segment, uint32_t i)
{
    return (struct segment_thread *)(void *)(segment->base + segment_thread_at(segment, i));
}

/* Behind the actor, counters_size bytes. */
static inline void *segment_thread_counters(const struct segment *segment, uint32_t i)
{
    return segment_thread(segment, i) + 1;
}

/* Units of 64 bytes from the beginning, as region_block counts them. */
static inline uint32_t segment_set_head_unit(void)
{
    return (uint32_t)(offsetof(struct segment_header, head) / REGION_UNIT_SIZE);
}

static inline uint32_t segment_thread_unit(const struct segment *segment, uint32_t i)
{
    return (uint32_t)(segment_thread_at(segment, i) / REGION_UNIT_SIZE);
}

/* The actor of a unit; false: there is none. For units that were read from the segment. */
static inline bool segment_thread_of_unit(const struct segment *segment, uint32_t unit,
                                          uint32_t *ret)
{
    size_t at = (size_t)unit * REGION_UNIT_SIZE, i;

    if (at < SEGMENT_THREADS_AT || (at - SEGMENT_THREADS_AT) % segment->layout.thread_stride != 0)
        return false;
    i = (at - SEGMENT_THREADS_AT) / segment->layout.thread_stride;
    if (i >= segment->layout.threads_n)
        return false;
    *ret = (uint32_t)i;
    return true;
}

/* Numbers of boxes, slot << box_class bytes from the beginning: the set's first, then one of each
 * actor, then one of each live set. Later they go from hand to hand. */
static inline uint64_t segment_block_slot(const struct segment *segment, uint32_t block)
{
    return (segment->layout.blocks_at >> segment->layout.block_class) + block;
}

/* That which a live set begins with. */
static inline uint64_t segment_key_set_slot(const struct segment *segment, uint32_t i)
{
    return segment_block_slot(segment, segment->layout.threads_n + 1 + i);
}

/* Whether there is a box of this slot. For slots that were read from the segment. */
static inline bool segment_has_block(const struct segment *segment, uint64_t slot)
{
    return slot - segment_block_slot(segment, 0) < segment->layout.blocks_n;
}

/* Record 0: a region's records.base. Units of 16 bytes from here on, SEGMENT_RUN_UNITS to a run. */
static inline unsigned char *segment_records(const struct segment *segment)
{
    return segment->base + segment->layout.records_at;
}

/* Whether a whole record begins at this unit. For numbers that were read from the segment. */
static inline bool segment_has_record(const struct segment *segment, uint32_t record)
{
    uint32_t run = record / SEGMENT_RUN_UNITS, in_run = record % SEGMENT_RUN_UNITS;

    return run > 0 && run < segment->layout.runs_n && in_run % segment->layout.record_units == 0 &&
           in_run + segment->layout.record_units <= SEGMENT_RUN_UNITS;
}

/* How many places a scan looks at: all that were ever in use, never more than there are. */
static inline uint32_t segment_scan_count(const _Atomic uint64_t *high, uint32_t n)
{
    uint64_t value = atomic_load(high);

    return value < n ? (uint32_t)value : n;
}

static inline uint32_t segment_peers_n(const struct segment *segment)
{
    return segment_scan_count(&segment_header(segment)->peers_high, SEGMENT_PEERS_MAX);
}

static inline uint32_t segment_threads_n(const struct segment *segment)
{
    return segment_scan_count(&segment_header(segment)->threads_high, segment->layout.threads_n);
}

/* From 1, for run 0 is never used. */
static inline uint32_t segment_runs_n(const struct segment *segment)
{
    return segment_scan_count(&segment_header(segment)->runs_high, segment->layout.runs_n);
}

/* ---- of a keyed set ---- */

static inline struct segment_keyed *segment_keyed(const struct segment *segment)
{
    return (struct segment_keyed *)(void *)(segment->base + segment->layout.keyed_at);
}

/* Memory of a table for layout.keys_max keys. */
static inline void *segment_key_table(const struct segment *segment)
{
    return segment->base + segment->layout.keys_at;
}

/* i < layout.keyed_key_sets_max */
static inline struct segment_key_set *segment_key_set(const struct segment *segment, uint32_t i)
{
    return (struct segment_key_set *)(void *)(segment->base + segment->layout.key_sets_at) + i;
}

/* Of its head. */
static inline uint32_t segment_key_set_unit(const struct segment *segment, uint32_t i)
{
    return (uint32_t)((segment->layout.key_sets_at + i * sizeof(struct segment_key_set)) /
                      REGION_UNIT_SIZE);
}

static inline uint32_t segment_key_sets_n(const struct segment *segment)
{
    if (!segment->layout.key_sets_max)
        return 0;
    return segment_scan_count(&segment_keyed(segment)->key_sets_high, segment->layout.key_sets_max);
}

/* The live set of a unit; false: there is none. For units that were read from the segment. */
static inline bool segment_key_set_of_unit(const struct segment *segment, uint32_t unit,
                                           uint32_t *ret)
{
    const uint32_t units = sizeof(struct segment_key_set) / REGION_UNIT_SIZE;
    uint32_t from = unit - (uint32_t)(segment->layout.key_sets_at / REGION_UNIT_SIZE);

    if (from % units != 0 || from / units >= segment_key_sets_n(segment))
        return false;
    *ret = from / units;
    return true;
}

#endif
