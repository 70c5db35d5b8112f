/* SPDX-License-Identifier: MIT */
/* A small world for the crash tests: an instance with three sets, a few thread contexts ("threads")
 * with records of their own, ways to use them, and a check of everything that must hold whenever no
 * thread is in the middle of an operation. */
#ifndef WEIR_TESTS_CRASH_CRASH_WORLD_H
#define WEIR_TESTS_CRASH_CRASH_WORLD_H

#include "api/instance.h"
#include "lib/random.h"

enum { SET_RESOURCE, SET_RATE, SET_THREE, SETS };
enum { THREADS = 12, RECORDS = 4, LIMITS = 3 };
enum { STANDING = 3 }; /* a thread without an announcement slot */

#define INTERVAL_NS UINT64_C(100000000) /* of rates: far more than a round has readings */
#define SLOTS_MAX   64u

struct crash_world {
    weir *w;
    weir_set *sets[SETS];
    struct thread_ctx *threads[THREADS];
    uint32_t records[THREADS][SETS][RECORDS];
    uint64_t interval_ns;      /* of the rates, which have a burst of two */
    uint64_t slots[SLOTS_MAX]; /* of all blocks, sorted */
    uint32_t slots_n;
    unsigned char *image; /* of the region, as world_save() saw it */
    size_t blocks_size, records_size;
    uint32_t failures;
    const char *what; /* is being done, for complaints */
    uint64_t where[4];
};

extern struct crash_world world;

/* Makes it. The resources have a capacity of two. */
void world_make(uint64_t interval_ns);
void world_free(void);

/*
 * Whether free sets have inline states as shared sets have them, and their dead threads are
 * recovered.
 */
void world_share(bool by_processes);

/* The state of the region, taken and put back; and whether it has changed since it was taken. */
void world_save(void);
void world_restore(void);
bool world_changed(void);

/* Complains, once in a while, and counts. */
__attribute__((format(printf, 2, 3))) void expect(bool truth, const char *format, ...);

/* Thread `a` asks with its record `i` for `amount` of each limit of set `s`. As set_acquire(). */
int world_acquire(uint32_t a, uint32_t s, uint32_t i, uint64_t amount, enum wait_mode entry);
/* Ends that record, in whatever state it is; logs a grant. `used` of what it has got. */
void world_release(uint32_t a, uint32_t s, uint32_t i, uint64_t used);
void world_cancel(uint32_t a, uint32_t s, uint32_t i);
/* Thread `by` gives back what record `i` of thread `a` holds: as the record's present holder; or
 * for thread `a`, if the record's word is still `word`. */
void world_release_record(uint32_t by, uint32_t a, uint32_t s, uint32_t i);
void world_release_exact(uint32_t by, uint32_t a, uint32_t s, uint32_t i, uint64_t word);
uint64_t world_word(uint32_t a, uint32_t s, uint32_t i);
/* Sleeps until the record is decided, as weir_acquire() does. */
void world_wait(uint32_t a, uint32_t s, uint32_t i);
enum record_state world_state(uint32_t a, uint32_t s, uint32_t i);
/* Time passes. */
void world_pass(uint64_t ns);

/* Thread `by` recovers thread `dead`, whichever generation it is in. */
void world_recover(uint32_t by, uint32_t dead);

/* Everything that a thread does with a set, in one go. */
void world_script(uint32_t a, uint32_t s);

/*
 * One turn of a worker: asks, waits or gives up, holds for a moment, gives back; on the real clock.
 * Counts itself, and sleepers that were decided and not woken.
 */
void world_turn(uint32_t a, uint64_t *random);

/* The invariants of all sets, after completing what the last versions owe. */
void world_check(void);
/* Checks the invariants, and that no record holds or waits. */
void world_check_empty(void);
/* Grants to waiters came in the order in which they joined, and no request overtook. */
void world_check_log(void);

#endif
