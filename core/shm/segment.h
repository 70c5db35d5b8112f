/* SPDX-License-Identifier: MIT */
/*
 * Segments: the shared memory of a set with backend `process`, one file per set. segment_layout.h
 * defines its contents, segment_dir.h its location; README.md has the protocol.
 *
 * The identity is checked once, when a process attaches. All other words may change at any time,
 * and other programs of the user may write anything: a number that is read is checked against the
 * bounds below before it is used. If the file is truncated while it is mapped, a flag says so, and
 * private memory takes the place of the mapping, all zero.
 *
 * Any thread may call these functions, but segment_confirm_attach and segment_remove_if_unused only
 * one at a time for one struct segment. A forked child may call segment_close_in_child only: it
 * does not inherit the mapping.
 */
#ifndef WEIR_CORE_SHM_SEGMENT_H
#define WEIR_CORE_SHM_SEGMENT_H

#include "base/invariant.h"
#include "shm/segment_dir.h"
#include "shm/segment_layout.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/error.h>

struct segment;

/* Returns whether a living process is attached. */
typedef bool segment_in_use_fn(const struct segment *segment);

/* What determines a set's segment. */
struct segment_shape {
    const char *name;          /* of the set, 1 … 255 bytes */
    const char *definition;    /* source text, shown if definitions differ */
    uint64_t definition_hash;  /* of its meaning; decides whether two definitions agree */
    bool while_used;           /* lifetime: users */
    bool must_exist;           /* the segment is neither made nor replaced: -ENOENT, -EEXIST */
    bool leaves_sigbus;        /* no handler is installed: the program's own handles faults */
    segment_in_use_fn *in_use; /* allows to replace an unused one that differs; NULL: never */
    _Atomic bool *broken;      /* set if the file is truncated; NULL: one of the segment's own */
    struct segment_sizes sizes;
    uint32_t record_words;         /* of a record, behind its amounts */
    const uint64_t *initial_state; /* first version of the set, used if the segment is made */
    uint32_t initial_state_n;      /* its words */
};

/* Locations of all parts: computed from the shape, never read. Offsets in bytes from the start. */
struct segment_layout {
    size_t thread_stride, definitions_at, blocks_at, records_at, size;
    size_t keyed_at, key_sets_at, keys_at; /* 0: the set is not keyed */
    struct segment_sizes sizes;
    uint64_t definitions_n; /* capacity in later definitions */
    uint64_t blocks_n;
};

/* Whether the file still has its name (nameless.h). */
struct naming {
    _Atomic bool is_nameless; /* when it was last looked at */
    _Atomic bool is_reported;
    _Atomic uint64_t looked_ns; /* time of the last look */
};

/* An open segment. The fields do not change while it is open, but for the flag and the last. */
struct segment {
    unsigned char *base;
    struct segment_layout layout;
    int fd, directory_fd;
    uint32_t definition; /* number of the one by which it was opened (segment_definition.h) */
    bool while_used, leaves_sigbus;
    _Atomic bool *broken, own_broken; /* the first is the second, or the shape's; never reset */
    struct siphash_secret secret;     /* of a keyed set */
    /* The encoded name of the set, the name of the file, and what the names of its doorbells begin
     * with, which no other segment shares. */
    char file_stem[SEGMENT_DIR_FILE_SIZE], file_name[SEGMENT_DIR_FILE_SIZE];
    char doorbell_stem[SEGMENT_DIR_FILE_SIZE];
    struct naming naming;
};

/* Computes the layout. Returns 0; -EINVAL (invalid shape); -E2BIG (counters too large, or more keys
 * or key sets than can be numbered). */
int segment_layout_compute(const struct segment_shape *shape, struct segment_layout *ret);

/*
 * Attaches to the set's segment in `directory` (NULL: the default one), or makes it. Replaces a
 * segment of an earlier boot, and one of lifetime `users` that differs if all its users have died.
 * Returns 0 or
 *   -EINVAL, -E2BIG, -ENAMETOOLONG   invalid shape or name
 *   -ENOENT       there is none, and `must_exist` is set
 *   -EPERM        the directory or file is not the user's alone, or is not a regular file
 *   -EEXIST       the segment has another definition; the message says what differs
 *   -EPROTONOSUPPORT  it was made by another version of weir
 *   -EXDEV        it belongs to another pid or time namespace
 *   -EUCLEAN      it is damaged
 *   -EBUSY        others keep removing it, or one was stopped while doing so
 *   -ENOSPC, -ENOMEM, -EMFILE, …     errors of the system
 */
int segment_open(const char *directory, const struct segment_shape *shape, struct segment **ret,
                 struct weir_error *reterr);

/* Returns whether the file was found truncated, or the user of the flag found damage. Relaxed: a
 * thread that uses memory behind the file's end has set the flag before it goes on. */
static inline bool segment_is_broken(const struct segment *segment)
{
    return atomic_load_explicit(segment->broken, memory_order_relaxed);
}

/* Returns whether the file is shorter now than it was made. */
bool segment_is_truncated(const struct segment *segment);

/* Unmaps the segment. The file stays. NULL: does nothing. */
void segment_close(struct segment *segment);
/* Closes the descriptors that a forked child has inherited. Unmaps nothing: other memory may be
 * mapped there by now. */
void segment_close_in_child(const struct segment *segment);

/*
 * segment_alloc_*() allocate the memory of a slot before its first use, so that no store meets a
 * full file system. They return 0, -ENOSPC, -EINVAL (no such slot), or another error of the system.
 * Calls may be repeated, also by several processes at once. A search for a free slot goes upwards,
 * and allocates each slot from segment_peers_n() (segment_threads_n() …) on before claiming it.
 */
int segment_alloc_peer(const struct segment *segment, uint32_t i);
/* Also gives the thread context its own version block, if it never had one, and generation 1. */
int segment_alloc_thread(const struct segment *segment, uint32_t i);
int segment_alloc_run(const struct segment *segment, uint32_t run); /* not run 0 */
/*
 * Also gives the key set its version block, if it never had one, with an empty version. No commit
 * makes such a version, so it marks a key set that was never used. The state word is the only
 * store, and it is never 0 again because key sets stay inflated. So concurrent, late and
 * interrupted calls do no harm.
 */
int segment_alloc_key_set(const struct segment *segment, uint32_t i);

/*
 * Confirms the attach of a process that has just claimed its peer slot. Returns 0; -ESTALE (the
 * segment was removed before, and its file is unlinked now); or a negative errno of unlinking.
 * After an error the caller frees its slot and closes the segment; after -ESTALE it opens it anew.
 */
int segment_confirm_attach(const struct segment *segment);

/* Returns whether a process in a peer slot is alive; true in doubt. */
bool segment_has_users(const struct segment *segment);

/*
 * Removes the segment unless `in_use` returns true. Returns 1 (removed, by this call or before); 0
 * (in use, or a process that left later has taken over); -EUCLEAN (the segment is broken, and
 * stays); or another negative errno. Called after freeing the own peer slot, if the lifetime is
 * `users`.
 */
int segment_remove_if_unused(const struct segment *segment, segment_in_use_fn *in_use);

enum {
    SEGMENT_REMOVE_FORCE = 1u << 0,        /* also if it is in use, damaged or of another version */
    SEGMENT_REMOVE_LEAVES_SIGBUS = 1u << 1 /* as segment_shape.leaves_sigbus */
};

/*
 * Removes a set's segment by name. With SEGMENT_REMOVE_FORCE its users go on with it, separately
 * from later ones. Returns 0, -ENOENT, -EBUSY (in use), or an error of segment_open.
 */
int segment_remove(const char *directory, const char *name, uint32_t flags,
                   segment_in_use_fn *in_use, struct weir_error *reterr);

/* A definition, copied from a segment. */
struct definition_copy {
    uint32_t number;            /* 0: the first */
    uint64_t hash;              /* of its meaning */
    struct limit_places places; /* of the first: none, its limits are where it lists them */
    char text[SEGMENT_DEFINITION_MAX];
};

/* State of a segment, read without mapping it. */
enum segment_state {
    SEGMENT_USABLE = 0,
    SEGMENT_REMOVED, /* about to be unlinked */
    SEGMENT_STALE,   /* of an earlier boot: replaced when it is opened next */
    SEGMENT_FOREIGN  /* of another pid or time namespace */
};

struct segment_summary {
    enum segment_state state;
    struct segment_identity identity;
    uint64_t real_size;                      /* bytes of the file that are allocated */
    uint32_t peers_n;                        /* peer slots in use, of living and dead processes */
    uint64_t peer_ids[SEGMENT_PEERS_MAX];    /* the first peers_n are valid */
    char definition[SEGMENT_DEFINITION_MAX]; /* the newest */
};

/* Fills `ret`, a large struct. Returns 0, -ENOENT, or an error of segment_open. */
int segment_inspect(const char *directory, const char *name, struct segment_summary *ret,
                    struct weir_error *reterr);

/* Returns whether a header that was read begins like one of this version of weir, with a name. */
bool segment_is_ours(const struct segment_header *header);

/* ---- parts ---- */

static inline size_t segment_block_size(const struct segment_layout *layout)
{
    return (size_t)1 << layout->sizes.block_class;
}

static inline struct segment_header *segment_header(const struct segment *segment)
{
    return (struct segment_header *)(void *)segment->base;
}

/* i < SEGMENT_PEERS_MAX */
static inline struct peer_slot *segment_peer(const struct segment *segment, uint32_t i)
{
    WEIR_INVARIANT(i < SEGMENT_PEERS_MAX);
    return (struct peer_slot *)(void *)(segment->base + SEGMENT_PEERS_AT) + i;
}

/* run < layout.sizes.runs_n */
static inline _Atomic uint64_t *segment_run_owner(const struct segment *segment, uint32_t run)
{
    WEIR_INVARIANT(run < segment->layout.sizes.runs_n);
    return (_Atomic uint64_t *)(void *)(segment->base + SEGMENT_RUN_OWNERS_AT) + run;
}

static inline size_t segment_thread_at(const struct segment *segment, uint32_t i)
{
    WEIR_INVARIANT(i < segment->layout.sizes.threads_n);
    return SEGMENT_THREADS_AT + i * segment->layout.thread_stride;
}

/* i < layout.sizes.threads_n */
static inline struct segment_thread *segment_thread(const struct segment *segment, uint32_t i)
{
    return (struct segment_thread *)(void *)(segment->base + segment_thread_at(segment, i));
}

/* Returns the counters behind the thread context, counters_size bytes. */
static inline void *segment_thread_counters(const struct segment *segment, uint32_t i)
{
    return segment_thread(segment, i) + 1;
}

/* Returns the unit of the set head, in units of 64 bytes, for region_block. */
static inline uint32_t segment_set_head_unit(void)
{
    return (uint32_t)(offsetof(struct segment_header, head) / REGION_UNIT_SIZE);
}

static inline uint32_t segment_thread_unit(const struct segment *segment, uint32_t i)
{
    return (uint32_t)(segment_thread_at(segment, i) / REGION_UNIT_SIZE);
}

/* Finds the index of a unit read from the segment, in a part of `n` entries at `from`. Returns
 * false if no entry begins there. */
static inline bool segment_index_of_unit(uint32_t unit, size_t from, size_t stride, uint32_t n,
                                         uint32_t *ret)
{
    size_t at = (size_t)unit * REGION_UNIT_SIZE - from;

    if (at % stride != 0 || at / stride >= n)
        return false;
    *ret = (uint32_t)(at / stride);
    return true;
}

static inline bool segment_thread_of_unit(const struct segment *segment, uint32_t unit,
                                          uint32_t *ret)
{
    return segment_index_of_unit(unit, SEGMENT_THREADS_AT, segment->layout.thread_stride,
                                 segment->layout.sizes.threads_n, ret);
}

/* Returns the slot of version block `block`, at slot << block_class bytes. Block 0 is initially the
 * set's, followed by one per thread context, later definition and key set. Commits exchange them.
 */
static inline uint64_t segment_block_slot(const struct segment *segment, uint32_t block)
{
    return (segment->layout.blocks_at >> segment->layout.sizes.block_class) + block;
}

/* Returns the slot of a key set's initial version block. */
static inline uint64_t segment_key_set_slot(const struct segment *segment, uint32_t i)
{
    return segment_block_slot(segment, segment->layout.sizes.threads_n + 1 + i) +
           segment->layout.definitions_n;
}

/* Returns whether a slot read from the segment has a version block. */
static inline bool segment_has_block(const struct segment *segment, uint64_t slot)
{
    return slot - segment_block_slot(segment, 0) < segment->layout.blocks_n;
}

/* Returns whether a whole record begins at a unit read from the segment. */
static inline bool segment_has_record(const struct segment *segment, uint32_t record)
{
    uint32_t run = record / SEGMENT_RUN_UNITS, in_run = record % SEGMENT_RUN_UNITS;

    return run > 0 && run < segment->layout.sizes.runs_n &&
           in_run % segment->layout.sizes.record_units == 0 &&
           in_run + segment->layout.sizes.record_units <= SEGMENT_RUN_UNITS;
}

/* Returns the number of slots to scan: all that were ever in use, and never more than exist. */
static inline uint32_t segment_scan_count(const _Atomic uint64_t *high, uint32_t n)
{
    uint64_t value = atomic_load_explicit(high, memory_order_seq_cst);

    return value < n ? (uint32_t)value : n;
}

static inline uint32_t segment_peers_n(const struct segment *segment)
{
    return segment_scan_count(&segment_header(segment)->peers_high, SEGMENT_PEERS_MAX);
}

static inline uint32_t segment_threads_n(const struct segment *segment)
{
    return segment_scan_count(&segment_header(segment)->threads_high,
                              segment->layout.sizes.threads_n);
}

/* Returns the end of the runs to scan. They begin at 1: run 0 is never used. */
static inline uint32_t segment_runs_n(const struct segment *segment)
{
    return segment_scan_count(&segment_header(segment)->runs_high, segment->layout.sizes.runs_n);
}

/* ---- parts of a keyed set ---- */

static inline struct segment_keyed *segment_keyed(const struct segment *segment)
{
    WEIR_INVARIANT(segment->layout.sizes.keys_max > 0);
    return (struct segment_keyed *)(void *)(segment->base + segment->layout.keyed_at);
}

/* Returns the memory of the key table, for layout.sizes.keys_max keys. */
static inline void *segment_key_table(const struct segment *segment)
{
    WEIR_INVARIANT(segment->layout.sizes.keys_max > 0);
    return segment->base + segment->layout.keys_at;
}

/* i < layout.sizes.key_sets_max */
static inline struct segment_key_set *segment_key_set(const struct segment *segment, uint32_t i)
{
    WEIR_INVARIANT(i < segment->layout.sizes.key_sets_max);
    return (struct segment_key_set *)(void *)(segment->base + segment->layout.key_sets_at) + i;
}

/* Returns the unit of a key set's head. */
static inline uint32_t segment_key_set_unit(const struct segment *segment, uint32_t i)
{
    return (uint32_t)((segment->layout.key_sets_at + i * sizeof(struct segment_key_set)) /
                      REGION_UNIT_SIZE);
}

static inline uint32_t segment_key_sets_n(const struct segment *segment)
{
    if (!segment->layout.sizes.key_sets_max)
        return 0;
    return segment_scan_count(&segment_keyed(segment)->key_sets_high,
                              (uint32_t)segment->layout.sizes.key_sets_max);
}

static inline bool segment_key_set_of_unit(const struct segment *segment, uint32_t unit,
                                           uint32_t *ret)
{
    return segment_index_of_unit(unit, segment->layout.key_sets_at, sizeof(struct segment_key_set),
                                 segment_key_sets_n(segment), ret);
}

#endif
