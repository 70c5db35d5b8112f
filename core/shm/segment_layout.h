/* SPDX-License-Identifier: MIT */
/*
 * The bytes of a segment, the file in which the processes of one machine and user share a set:
 *
 *   header      4096 bytes: what the segment is, written once, and the words that change
 *   definition  the set's definition as text, NUL-terminated
 *   processes   who takes part
 *   run owners  by run: the key of the process whose records they are; 0: nobody's
 *   actors      one per thread that takes part
 *   boxes       of one size, at a multiple of it: the set's first, then one per actor
 *   records     in runs of 4 KiB
 *
 * and of a keyed set
 *
 *   keyed       what all its keys have in common
 *   live sets   those of keys that need more than a word; their boxes follow those of the actors
 *   keys        the table of keys (key_table.h), which is made real as a whole
 *
 * Where each part begins follows from the shape of the set and from nothing that is read from the
 * file. All but the first and last parts is sparse: pages are made real when they are first needed.
 * Whatever changes here changes the number of the layout.
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

#define SEGMENT_LAYOUT          4u
#define SEGMENT_PAGE            ((size_t)4096) /* parts begin at multiples, whatever the machine's */
#define SEGMENT_NAME_SIZE       256u
#define SEGMENT_DEFINITION_MAX  ((size_t)16384) /* with the NUL; of a longer one the beginning */
#define SEGMENT_PEERS_MAX       PEERS_MAX
#define SEGMENT_THREADS_MAX     4096u
#define SEGMENT_THREADS_MIN     16u
#define SEGMENT_BLOCKS_SIZE_MAX ((size_t)1 << 30) /* unless that is less than ACTORS_MIN boxes */
#define SEGMENT_RUNS_MAX        65536u            /* run 0 is never used: record 0 means none */
#define SEGMENT_RUN_UNITS       256u
#define SEGMENT_RUN_SIZE        (SEGMENT_RUN_UNITS * RECORD_UNIT_SIZE)

/* Written before the segment can be found, and never again. */
struct segment_identity {
    char magic[8];
    uint32_t layout;           /* SEGMENT_LAYOUT */
    uint32_t header_size;      /* of struct segment_header */
    uint64_t checksum;         /* of the rest of the identity, and of the definition */
    uint64_t abi;              /* hash of the sizes and places of all that is shared */
    unsigned char boot_id[16]; /* the machine's boot id */
    uint64_t pid_namespace, time_namespace;
    uint64_t creator_pid; /* its process id */
    uint64_t created_ns;  /* by the wall clock */
    uint64_t size;        /* of the file */
    uint64_t definition_hash;
    uint32_t definition_length; /* of the text as it is kept, without the NUL */
    uint32_t while_used;        /* 1: it goes with its last user */
    uint32_t block_class, record_units, limits_n, counters_size;
    uint32_t threads_n, runs_n;      /* how many there is room for */
    uint64_t keys_max, key_sets_max; /* of a keyed set; else 0 */
    struct siphash_secret secret;    /* by which its keys are hashed */
    char name[SEGMENT_NAME_SIZE];
};

struct segment_header {
    struct segment_identity identity;

    /* 0: in use; id << 1: somebody looks whether it is, and any user may say so by making it 0;
     * id << 1 | 1: gone for ever, the name is free. */
    _Alignas(64) _Atomic uint64_t removal;

    _Alignas(64) _Atomic uint64_t registrations; /* claims of places in `processes`, ever */
    /* Places below these numbers have memory behind them. None from there on was ever in use. */
    _Atomic uint64_t peers_high, threads_high, runs_high;

    _Alignas(64) struct set_head head;
    _Alignas(64) _Atomic uint64_t deflated_ns; /* when the set was last boxed (inline_state.h) */
    _Alignas(64) struct announce_slots announce_slots;
};

/* Its counters follow, segment_identity.counters_size bytes. */
struct segment_thread {
    struct thread_head head;   /* first: its unit is that of the whole */
    _Atomic uint64_t peer_key; /* key of the process that it works for; 0: free */
};

/* Of a keyed set. Every request reads the first line. */
struct segment_keyed {
    /* Live sets below this number have memory behind them, and a version. */
    _Atomic uint64_t key_sets_high;

    _Alignas(64) _Atomic uint64_t unbound_ns; /* when a state last went back to the word of a key */

    _Alignas(64) _Atomic uint64_t
        unbound_list; /* the first live set in no use: tag:32 | number + 1:32 */

    _Alignas(64) _Atomic uint64_t forgotten, evicted; /* keys */
    _Atomic uint64_t refused;                         /* requests, for want of room */
};

/* A set of its own, lent to one key after another. */
struct segment_key_set {
    struct set_head head;                       /* first: its unit is that of the whole */
    _Alignas(64) _Atomic uint32_t unbound_next; /* that is idle: number + 1, or 0 */
    _Atomic uint32_t unbound_listed;            /* whether it is among the idle */
};

/* Places that do not depend on the shape. */
#define SEGMENT_DEFINITION_AT SEGMENT_PAGE
#define SEGMENT_PEERS_AT      (SEGMENT_DEFINITION_AT + SEGMENT_DEFINITION_MAX)
#define SEGMENT_RUN_OWNERS_AT (SEGMENT_PEERS_AT + SEGMENT_PEERS_MAX * sizeof(struct peer_slot))
#define SEGMENT_THREADS_AT    (SEGMENT_RUN_OWNERS_AT + SEGMENT_RUNS_MAX * sizeof(uint64_t))

_Static_assert(sizeof(struct segment_identity) == 416, "no holes");
_Static_assert(offsetof(struct segment_header, removal) == 448, "a line of its own");
_Static_assert(offsetof(struct segment_header, head) == 576, "a line of its own");
_Static_assert(sizeof(struct segment_header) <= SEGMENT_PAGE, "the header is one page");
_Static_assert(sizeof(struct segment_thread) == 192, "three lines, no holes");
_Static_assert(offsetof(struct segment_thread, head) == 0, "found by the number of its unit");
_Static_assert(sizeof(struct segment_keyed) <= SEGMENT_PAGE, "has a page");
_Static_assert(sizeof(struct segment_key_set) == 128, "two lines");
_Static_assert(offsetof(struct segment_key_set, head) == 0, "found by the number of its unit");
_Static_assert(offsetof(struct segment_key_set, unbound_next) == 64, "apart from the word");
_Static_assert(SEGMENT_THREADS_AT % SEGMENT_PAGE == 0, "parts begin with a page");

#endif
