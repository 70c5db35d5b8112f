/* SPDX-License-Identifier: MIT */
/*
 * Direct doorbells: FIFOs that wake a waiter without the wait timer of its process. While an
 * acquisition of a shared set waits, its descriptor may be the end of one that is read
 * (wait/direct_wait.h). The process that grants writes there what an eventfd would be read as.
 *
 * Unlike a doorbell's number that is no hint, as the descriptor becomes readable. A doorbell serves
 * one wait after another, so no late granter of an earlier one may write to it:
 * 1. The owner of a waiting record begins a new turn of its `data`, which counts the granters that
 *    may ring. Then it stores the doorbell's number in the wait target.
 * 2. A granter counts itself, and then loads the number, the turn and the record's word. If the
 *    record is HELD and the turn is the one that it has counted itself in, it notes there that the
 *    doorbell is rung, and rings it.
 * 3. When the wait has ended, the owner takes the number back. Before it lends the doorbell again,
 *    it loads `data`.
 * Either the granter finds no number, or the owner finds the granter, or a later turn. Then the
 * owner throws the doorbell away. No number is given twice, so what is opened later by its name is
 * never another one. A granter that dies leaves its count for this turn only. What is noted as rung
 * is rung no second time, unless the granter that has noted it may not have come to that.
 */
#ifndef WEIR_CORE_SHM_DIRECT_DOORBELL_H
#define WEIR_CORE_SHM_DIRECT_DOORBELL_H

#include <stdbool.h>
#include <stdint.h>

struct acq_record;
struct doorbell_cache;

/* Numbers are above those of all wait timers in the names of doorbells. */
#define DIRECT_DOORBELL_MAX ((UINT32_C(1) << 28) - 1)

struct direct_doorbell {
    uint32_t number;      /* from 1 */
    int fd;               /* both ends */
    uint64_t turn;        /* of the record that it was lent to last */
    struct acq_record *r; /* that record; NULL: none */
};

/* Makes and opens a doorbell, or returns a negative errno. Closing removes its name. `key` is the
 * peer key of the process; the rest is as for doorbell_open(). */
int direct_doorbell_open(int directory_fd, const char *stem, uint32_t key, uint32_t number,
                         struct direct_doorbell *ret);
void direct_doorbell_close(int directory_fd, const char *stem, uint32_t key,
                           const struct direct_doorbell *doorbell);
/* Opens the end that is read. Returns a descriptor or a negative errno. */
int direct_doorbell_open_read_end(int directory_fd, const char *stem, uint32_t key,
                                  const struct direct_doorbell *doorbell);
/* Removes the last ones of a dead process, as doorbell_remove(): those up to `last`. */
int direct_doorbell_remove(int directory_fd, const char *stem, uint32_t key, uint32_t last);

/* Empties the FIFO. Returns false if that fails, or there is more than granters write. */
bool direct_doorbell_empty(const struct direct_doorbell *doorbell);

/* Lends the doorbell to the caller's record, which waits; and ends that. */
void direct_doorbell_lend(struct direct_doorbell *doorbell, struct acq_record *r);
void direct_doorbell_take_back(const struct direct_doorbell *doorbell);
/* Returns whether no granter may ring the doorbell since it was taken back. False in doubt. */
bool direct_doorbell_is_over(const struct direct_doorbell *doorbell);
/* Returns whether the doorbell that is lent to the record was rung, or is about to be. */
bool direct_doorbell_is_rung(const struct acq_record *r);
/* Rings the own doorbell, unless that was done. Returns 0 or a negative errno. */
int direct_doorbell_ring_own(const struct direct_doorbell *doorbell);

/* Rings the doorbell that the record of the process `key` waits with. Returns false if it has none,
 * is not HELD, or that cannot be done: then its wait timer is to be notified. */
bool direct_doorbell_ring(struct doorbell_cache *cache, uint32_t key, struct acq_record *r);

#endif
