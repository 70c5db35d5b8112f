/* SPDX-License-Identifier: MIT */
/*
 * Segments: the shared memory of a set whose backend is `process`, one file per set
 * (segment_layout.h says what is in it, directory.h where it lies).
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
 * Functions may be called from any thread; segment_admit and segment_retire by one at a time for one
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
typedef bool segment_used_fn(const struct segment *segment, void *userdata);

/* What a set's segment follows from. */
struct segment_shape {
    const char *name;         /* of the set, 1 … 255 bytes */
    const char *definition;   /* as it was written: shown where definitions differ */
    uint64_t definition_hash; /* of what it means: decides whether two are the same */
    bool while_used;          /* lifetime: users */
    bool must_exist;          /* it is not made, nor replaced: -ENOENT, -EEXIST */
    segment_used_fn *used;    /* by which one of another definition is replaced; NULL: none is */
    void *userdata;
    uint32_t box_class, record_units, limits_n;
    size_t counters_size;    /* of an actor's counters; a multiple of 8 */
    const uint64_t *content; /* the first version of the set, for whoever makes the segment */
    uint32_t content_n;
    uint64_t keys_max;  /* how many keys there is to be room for; 0: the set is not keyed */
    uint32_t lives_max; /* and live sets for them */
};

/* Where everything is: computed, never read. Offsets are in bytes from the beginning. */
struct segment_layout {
    size_t actor_stride, boxes_at, records_at, size;
    size_t keyed_at, lives_at, keys_at; /* 0: the set is not keyed */
    uint64_t keys_max;
    uint32_t box_class, record_units, limits_n, counters_size;
    uint32_t actors_n, runs_n, lives_max, boxes_n;
};

/* Its fields do not change while it is open. */
struct segment {
    unsigned char *base;
    struct segment_layout layout;
    int fd, directory_fd;
    bool while_used;
    struct key_secret secret;          /* of a keyed set */
    char encoded[DIRECTORY_FILE_SIZE]; /* the set's name as files have it, without a suffix */
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
void segment_abandon(const struct segment *segment);

/*
 * These give memory to a place before it is used for the first time, so that no store meets a full
 * file system: 0, -ENOSPC, -EINVAL (no such place), or what the system says. They may be called
 * for the same place again, also by several processes at once. Whoever looks for a free place goes
 * up from the first, and calls the one for each from segment_processes_n() (…) on, before
 * claiming it.
 */
int segment_commit_process(const struct segment *segment, uint32_t i);
/* The actor gets a box of its own, if it never had one, and a generation other than 0. */
int segment_commit_actor(const struct segment *segment, uint32_t i);
int segment_commit_run(const struct segment *segment, uint32_t run); /* not run 0 */
/*
 * The live set gets a box of its own, if it never had one, and an empty version: one without any
 * content, which nobody publishes, so it says that the live set was never used. As neither needs
 * a store but that of the word, and a live set is boxed for ever after, so that its word is never 0
 * again, it does not matter who else does this, how late, or dies meanwhile.
 */
int segment_commit_live(const struct segment *segment, uint32_t i);

/*
 * Called by a process that has just claimed its place in `processes`. 0: it takes part. -ESTALE: the
 * segment was removed before; its name is free now. Then it gives back its place, closes the segment
 * and opens it anew. Another negative errno: the name could not be taken away.
 */
int segment_admit(const struct segment *segment);

/* As their places and the system say; in doubt they live. */
bool segment_has_users(const struct segment *segment, void *unused);

/*
 * Removes the segment unless `used` says that it is in use: 1 removed, by this call or before; 0
 * used, or another process that left later has taken over; or a negative errno. Called by a process
 * that has just given back its own place, if the set is there for its users only.
 */
int segment_retire(const struct segment *segment, segment_used_fn *used, void *userdata);

/*
 * Removes a set's segment by name. With `force` also if it is in use, damaged or of another version
 * of weir: those who use it go on, apart from everybody who comes later. 0, -ENOENT, -EBUSY (in
 * use), or as segment_open.
 */
int segment_remove(const char *directory, const char *name, bool force, segment_used_fn *used,
                   void *userdata, struct weir_error *reterr);

/* What is told about a segment without mapping it. */
enum segment_state {
    SEGMENT_USABLE = 0,
    SEGMENT_REMOVED,  /* its name is about to go */
    SEGMENT_STALE,    /* of an earlier boot: the next to open it replaces it */
    SEGMENT_ELSEWHERE /* of another namespace of processes or of time */
};

struct segment_summary {
    enum segment_state state;
    char name[SEGMENT_NAME_SIZE]; /* of the set */
    uint64_t creator;             /* its process id */
    uint64_t created_ns;          /* by the wall clock */
    uint64_t size, real_size;     /* bytes of the file; bytes that take up room */
    uint32_t limits_n;
    bool while_used;
    uint32_t lives_n;                      /* places in use, whether by the living or by the dead */
    uint64_t lives[SEGMENT_PROCESSES_MAX]; /* their words, see struct segment_process */
    char definition[SEGMENT_DEFINITION_MAX];
};

/* Fills `ret`, which is large. 0, -ENOENT, or as segment_open, for segments that are unusable. */
int segment_inspect(const char *directory, const char *name, struct segment_summary *ret,
                    struct weir_error *reterr);

/* ---- places ---- */

static inline size_t segment_box_size(const struct segment_layout *layout)
{
    return (size_t)1 << layout->box_class;
}

static inline struct segment_header *segment_header(const struct segment *segment)
{
    return (struct segment_header *)(void *)segment->base;
}

static inline const char *segment_definition(const struct segment *segment)
{
    return (const char *)segment->base + SEGMENT_DEFINITION_AT;
}

/* i < SEGMENT_PROCESSES_MAX */
static inline struct segment_process *segment_process(const struct segment *segment, uint32_t i)
{
    return (struct segment_process *)(void *)(segment->base + SEGMENT_PROCESSES_AT) + i;
}

/* run < layout.runs_n */
static inline _Atomic uint64_t *segment_run_owner(const struct segment *segment, uint32_t run)
{
    return (_Atomic uint64_t *)(void *)(segment->base + SEGMENT_RUN_OWNERS_AT) + run;
}

static inline size_t segment_actor_at(const struct segment *segment, uint32_t i)
{
    return SEGMENT_ACTORS_AT + i * segment->layout.actor_stride;
}

/* i < layout.actors_n */
static inline struct segment_actor *segment_actor(const struct segment *segment, uint32_t i)
{
    return (struct segment_actor *)(void *)(segment->base + segment_actor_at(segment, i));
}

/* Behind the actor, counters_size bytes. */
static inline void *segment_actor_counters(const struct segment *segment, uint32_t i)
{
    return segment_actor(segment, i) + 1;
}

/* Units of 64 bytes from the beginning, as region_box counts them. */
static inline uint32_t segment_head_unit(void)
{
    return (uint32_t)(offsetof(struct segment_header, head) / UNIT_SIZE);
}

static inline uint32_t segment_actor_unit(const struct segment *segment, uint32_t i)
{
    return (uint32_t)(segment_actor_at(segment, i) / UNIT_SIZE);
}

/* The actor of a unit; false: there is none. For units that were read from the segment. */
static inline bool segment_actor_of(const struct segment *segment, uint32_t unit, uint32_t *ret)
{
    size_t at = (size_t)unit * UNIT_SIZE, i;

    if (at < SEGMENT_ACTORS_AT || (at - SEGMENT_ACTORS_AT) % segment->layout.actor_stride != 0)
        return false;
    i = (at - SEGMENT_ACTORS_AT) / segment->layout.actor_stride;
    if (i >= segment->layout.actors_n)
        return false;
    *ret = (uint32_t)i;
    return true;
}

/* Numbers of boxes, slot << box_class bytes from the beginning: the set's first, then one of each
 * actor, then one of each live set. Later they go from hand to hand. */
static inline uint64_t segment_box_slot(const struct segment *segment, uint32_t box)
{
    return (segment->layout.boxes_at >> segment->layout.box_class) + box;
}

/* That which a live set begins with. */
static inline uint64_t segment_live_slot(const struct segment *segment, uint32_t i)
{
    return segment_box_slot(segment, segment->layout.actors_n + 1 + i);
}

/* Whether there is a box of this slot. For slots that were read from the segment. */
static inline bool segment_has_slot(const struct segment *segment, uint64_t slot)
{
    return slot - segment_box_slot(segment, 0) < segment->layout.boxes_n;
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
static inline uint32_t segment_below(const _Atomic uint64_t *high, uint32_t n)
{
    uint64_t value = atomic_load(high);

    return value < n ? (uint32_t)value : n;
}

static inline uint32_t segment_processes_n(const struct segment *segment)
{
    return segment_below(&segment_header(segment)->processes_high, SEGMENT_PROCESSES_MAX);
}

static inline uint32_t segment_actors_n(const struct segment *segment)
{
    return segment_below(&segment_header(segment)->actors_high, segment->layout.actors_n);
}

/* From 1, for run 0 is never used. */
static inline uint32_t segment_runs_n(const struct segment *segment)
{
    return segment_below(&segment_header(segment)->runs_high, segment->layout.runs_n);
}

/* ---- of a keyed set ---- */

static inline struct segment_keyed *segment_keyed(const struct segment *segment)
{
    return (struct segment_keyed *)(void *)(segment->base + segment->layout.keyed_at);
}

/* Memory of a table for layout.keys_max keys. */
static inline void *segment_keys(const struct segment *segment)
{
    return segment->base + segment->layout.keys_at;
}

/* i < layout.lives_max */
static inline struct segment_live *segment_live(const struct segment *segment, uint32_t i)
{
    return (struct segment_live *)(void *)(segment->base + segment->layout.lives_at) + i;
}

/* Of its head. */
static inline uint32_t segment_live_unit(const struct segment *segment, uint32_t i)
{
    return (uint32_t)((segment->layout.lives_at + i * sizeof(struct segment_live)) / UNIT_SIZE);
}

static inline uint32_t segment_lives_n(const struct segment *segment)
{
    if (!segment->layout.lives_max)
        return 0;
    return segment_below(&segment_keyed(segment)->lives_high, segment->layout.lives_max);
}

/* The live set of a unit; false: there is none. For units that were read from the segment. */
static inline bool segment_live_of(const struct segment *segment, uint32_t unit, uint32_t *ret)
{
    const uint32_t units = sizeof(struct segment_live) / UNIT_SIZE;
    uint32_t from = unit - (uint32_t)(segment->layout.lives_at / UNIT_SIZE);

    if (from % units != 0 || from / units >= segment_lives_n(segment))
        return false;
    *ret = from / units;
    return true;
}

#endif
