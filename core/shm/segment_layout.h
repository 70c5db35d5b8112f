/* SPDX-License-Identifier: MIT */
/*
 * Binary layout of a segment, the file through which processes of one machine and user share a set.
 * README.md lists its parts. Their locations are computed from the set's shape and never read from
 * the file. Any change here changes SEGMENT_LAYOUT.
 */
#ifndef WEIR_CORE_SHM_SEGMENT_LAYOUT_H
#define WEIR_CORE_SHM_SEGMENT_LAYOUT_H

#include "base/siphash.h"
#include "shm/acq_record.h"
#include "shm/peer_id.h"
#include "shm/region.h"
#include "shm/set_layout.h"
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/set.h>

#define SEGMENT_LAYOUT         14u
#define SEGMENT_PAGE           ((size_t)4096) /* alignment of parts, on all machines */
#define SEGMENT_NAME_SIZE      256u
#define SEGMENT_DEFINITION_MAX ((size_t)16384) /* with the NUL; a longer one is truncated */
#define SEGMENT_PEERS_MAX      PEERS_MAX
#define SEGMENT_THREADS_MIN    16u
/* Version blocks of set and threads, bytes; exceeded for SEGMENT_THREADS_MIN. */
#define SEGMENT_BLOCKS_SIZE_MAX ((size_t)1 << 30)
/* Later definitions of the set: as many as there are numbers for, unless their blocks take more. */
#define SEGMENT_DEFINITIONS_MAX 16384u
#define SEGMENT_DEFINITIONS_KEYED                                                                  \
    2047u /* of a set with subjects: no tag comes back (key_table.h) */
#define SEGMENT_DEFINITIONS_MIN   16u
#define SEGMENT_DEFINITION_BLOCKS ((size_t)1 << 28)
#define SEGMENT_RUNS_MAX          65536u /* run 0 is unused: record 0 means none */
#define SEGMENT_RUN_UNITS         256u
#define SEGMENT_RUN_SIZE          (SEGMENT_RUN_UNITS * RECORD_UNIT_SIZE)

/* The numbers from which the locations of all parts follow. */
struct segment_sizes {
    uint32_t block_class, record_units, limits_n;
    uint32_t counters_size;          /* of a thread context's counters, bytes; a multiple of 8 */
    uint32_t threads_n, runs_n;      /* capacities; segment_layout_compute chooses them */
    uint64_t keys_max, key_sets_max; /* capacities in keys and key sets; 0: the set is not keyed */
};

/* Written before the segment is linked, and never again. */
struct segment_identity {
    char magic[8];
    uint32_t layout;           /* SEGMENT_LAYOUT */
    uint32_t header_size;      /* of struct segment_header */
    uint64_t checksum;         /* of the identity behind this field, and of the definition */
    uint64_t abi;              /* hash of the sizes and offsets of all shared structs */
    unsigned char boot_id[16]; /* of the machine's boot */
    uint64_t pid_namespace, time_namespace;
    uint64_t creator_pid;
    uint64_t created_ns; /* wall clock */
    uint64_t size;       /* of the file, bytes */
    uint64_t generation; /* random: of all segments that ever had this name, this one's alone */
    uint64_t definition_hash;
    uint32_t definition_length; /* of the stored text, without the NUL */
    uint32_t while_used;        /* 1: removed with its last user (lifetime: users) */
    struct segment_sizes sizes;
    struct siphash_secret secret; /* for the keys of a keyed set */
    char name[SEGMENT_NAME_SIZE];
};

struct segment_header {
    struct segment_identity identity;

    /* 0: in use. id << 1: tentative, a remover checks for users, and any user may reset it to 0.
     * id << 1 | 1: removed for good; the file may be unlinked. See segment_remove.c. */
    _Alignas(64) _Atomic uint64_t removal;

    _Alignas(64) _Atomic uint64_t registrations; /* number of attaches, ever */
    /* Slots below these numbers have memory. No slot from there on was ever in use. */
    _Atomic uint64_t peers_high, threads_high, runs_high;
    _Atomic uint64_t probed_ns;  /* when a process last probed all that it does not watch */
    _Atomic uint64_t full_ns;    /* when a process last found all slots in use by living ones */
    _Atomic uint64_t definition; /* number of one that has the state, or had it; 0: the first */

    _Alignas(64) struct set_head head;
    _Alignas(64) _Atomic uint64_t deflated_ns; /* time of the last deflation (inline_state.h) */
    _Alignas(64) struct announce_slots announce_slots;
};

/* The places of the limits of a set (set/places.h). */
struct limit_places {
    uint32_t n;
    /* Not 0: the first place does not have the limit any more that the first definition had there.
     * Threads may have leases of that. */
    uint32_t has_lost_first;
    /* Bit of each place that a rate or call has had alone, by an earlier definition: none for a
     * resource (set/places.c). */
    uint64_t lone_rates;
    /* Bit of each place that has no limit any more, as that has begun anew in another one: waits
     * for it end. */
    uint64_t moved;
    uint8_t of_limit[WEIR_LIMITS_MAX]; /* as the definition lists them */
};

/* What was counted at a place before its limit had it: nothing of it is the limit's. */
struct limit_base {
    uint64_t granted, refused, would_refuse, refunded, overused;
};

/*
 * A later definition of the set: from 1, in the order in which they came into force. Its text, of
 * SEGMENT_DEFINITION_MAX bytes, begins with the next page. It is written with the lock of the file,
 * before the version of the one before it that is MOVED, and never after that but for `opened_ns`
 * and `dcas_bits`.
 */
struct segment_definition {
    struct set_head head;       /* first: its unit is that of the whole */
    _Alignas(64) uint64_t hash; /* of its meaning, as segment_identity.definition_hash */
    _Atomic uint64_t checksum; /* of the hash, the places, and the text with its NUL; stored last */
    _Atomic uint64_t opened_ns; /* 0, or nothing was taken by it before (segment_definition.h) */
    _Atomic uint64_t dcas_bits; /* toggle bits of the last DCAS format before (detectable_cas.h) */
    struct limit_places places;
    struct limit_base base[WEIR_LIMITS_MAX]; /* by place */
};

#define SEGMENT_DEFINITION_STRIDE (SEGMENT_PAGE + SEGMENT_DEFINITION_MAX)

/* Thread context in a segment. Its counters follow, segment_identity.counters_size bytes. */
struct segment_thread {
    struct thread_head head; /* first: its unit is that of the whole */
    /* Of the owning process; 0: free; see thread_owner_make(). */
    _Alignas(64) _Atomic uint64_t peer_key;
};

/*
 * The word of a thread context's owner: predecessor:32 | owner:32. A process that has taken the
 * context over from a dead one has the key of that as predecessor, until it has recovered what the
 * dead thread had begun. Until then both are responsible: the death of either is a reason to
 * recover it.
 */
static inline uint64_t thread_owner_make(uint32_t predecessor, uint32_t owner)
{
    return (uint64_t)predecessor << 32 | owner;
}

/* Shared state of a keyed set. Every request reads the first cache line. */
struct segment_keyed {
    /* Key sets below this number have memory and a version. */
    _Atomic uint64_t key_sets_high;

    _Alignas(64) _Atomic uint64_t unbound_ns; /* when a state last returned to a key's word */

    _Alignas(64) _Atomic uint64_t unbound_list; /* first unbound key set: tag:32 | number + 1:32 */

    _Alignas(64) _Atomic uint64_t forgotten, evicted; /* keys */
    _Atomic uint64_t refused;                         /* requests, for lack of room */
    _Atomic uint64_t oldest; /* no word, and no state of a key set, is of an earlier definition */
    _Atomic uint64_t removed_ns; /* no key was removed by a later reading of the clock */
};

/* Link of a key set in the list of unbound ones. */
struct unbound_link {
    _Atomic uint32_t next;      /* number + 1, or 0 */
    _Atomic uint32_t is_listed; /* whether it is in unbound_list */
};

/* Key set: a set that is bound to one key after another. */
struct segment_key_set {
    struct set_head head; /* first: its unit is that of the whole */
    _Alignas(64) struct unbound_link unbound;
};

/*
 * Returns for how many key sets with blocks of this class there is room, besides other sets and the
 * blocks of threads. In a segment key sets are found by their units, behind all version blocks, and
 * share the numbers of these. In the memory of a process each has a unit for its head.
 */
static inline uint32_t key_sets_room(uint32_t block_class, bool in_segment)
{
    const uint64_t block = UINT64_C(1) << block_class, segment_rest = UINT64_C(1) << 34;
    uint64_t end = block_slots_end(block_class), n;

    if (in_segment) {
        n = ((uint64_t)UINT32_MAX * REGION_UNIT_SIZE - segment_rest) /
            (block + sizeof(struct segment_key_set));
        return n < (BLOCK_SLOT_MASK + 1) / 2 ? (uint32_t)n : (uint32_t)(BLOCK_SLOT_MASK + 1) / 2;
    }
    n = (end < BLOCKS_RESERVED_MAX ? end : BLOCKS_RESERVED_MAX) / (block + REGION_UNIT_SIZE);
    return (uint32_t)(n - n / 8);
}

/* Offsets that do not depend on the shape. */
#define SEGMENT_DEFINITION_AT SEGMENT_PAGE
#define SEGMENT_PEERS_AT      (SEGMENT_DEFINITION_AT + SEGMENT_DEFINITION_MAX)
#define SEGMENT_RUN_OWNERS_AT (SEGMENT_PEERS_AT + SEGMENT_PEERS_MAX * sizeof(struct peer_slot))
#define SEGMENT_THREADS_AT    (SEGMENT_RUN_OWNERS_AT + SEGMENT_RUNS_MAX * sizeof(uint64_t))

_Static_assert(sizeof(struct segment_identity) == 424, "no holes");
_Static_assert(offsetof(struct segment_header, removal) == 448, "a line of its own");
_Static_assert(offsetof(struct segment_header, head) == 576, "a line of its own");
_Static_assert(sizeof(struct segment_header) <= SEGMENT_PAGE, "the header is one page");
_Static_assert(sizeof(struct segment_definition) <= SEGMENT_PAGE, "before its text");
_Static_assert(offsetof(struct segment_definition, head) == 0, "found by the number of its unit");
_Static_assert(sizeof(struct segment_thread) == 256, "four lines");
_Static_assert(offsetof(struct segment_thread, head) == 0, "found by the number of its unit");
_Static_assert(sizeof(struct segment_keyed) <= SEGMENT_PAGE, "has a page");
_Static_assert(sizeof(struct segment_key_set) == 128, "two lines");
_Static_assert(offsetof(struct segment_key_set, head) == 0, "found by the number of its unit");
_Static_assert(offsetof(struct segment_key_set, unbound) == 64, "apart from the word");
_Static_assert(SEGMENT_THREADS_AT % SEGMENT_PAGE == 0, "parts begin with a page");

#endif
