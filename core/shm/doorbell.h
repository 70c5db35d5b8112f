/* SPDX-License-Identifier: MIT */
/*
 * Doorbells: a process notifies a wait timer of another process that a record has changed. The
 * doorbell is a FIFO in the segment directory (segment_dir.h), watched by the wait timer's epoll. A
 * process that changed a record writes the record's number into it.
 *
 * A number is a hint: the record's word is authoritative. A number may be of another record or of
 * none, because the writer may be late and other programs of the user can write, too. It may be
 * missing, because the writer was stopped before.
 *
 * A file name says which wait timer reads the doorbell:
 *   stem   the set and the generation of its segment (doorbell_stem): a segment that was removed by
 *          force shares no doorbell with its successor, and its users go on with theirs;
 *   slot   the process: callers pass its peer key, which no later process has;
 *   timer  the number of the wait timer.
 *
 * From the moment that a doorbell has its name, its reader has it open, and the reader takes the
 * name away before it closes the descriptor. So a named doorbell without a reader belongs to a dead
 * process, and any other may remove it.
 */
#ifndef WEIR_CORE_SHM_DOORBELL_H
#define WEIR_CORE_SHM_DOORBELL_H

#include "shm/segment_dir.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most numbers that one doorbell_read returns. Even the smallest FIFO of the kernel, two pages,
 * holds more, so a full FIFO always reads as an overflow. */
#define DOORBELL_READ_MAX 1000u

/* Most doorbells that doorbell_remove looks for. */
#define DOORBELL_REMOVE_MAX 1024u

/* Writes the stem of the doorbells of one segment. `file_stem` is of at most SEGMENT_DIR_STEM_MAX
 * bytes. */
void doorbell_stem(char ret[static SEGMENT_DIR_FILE_SIZE], const char *file_stem,
                   uint64_t generation);

/*
 * Makes and opens a doorbell. Replaces an existing one of this name, which is of a dead process.
 * Returns a descriptor that is readable while it contains numbers; -ENAMETOOLONG; -EPERM (it could
 * not be made with mode 0600); or a negative errno of making or opening it (-ENOSPC, -EMFILE …). If
 * the directory has been removed, the descriptor never becomes readable, because no process can
 * ring it: waiters then learn of decisions by their stall checks.
 */
int doorbell_open(int directory_fd, const char *stem, uint32_t slot, uint32_t timer);

/* Removes the doorbell, if it exists, and closes `fd` unless it is -1. */
void doorbell_close(int directory_fd, int fd, const char *stem, uint32_t slot, uint32_t timer);

/*
 * Rings a doorbell of another process: writes `record` to the FIFO. Returns 0, also if it is full,
 * because then the reader checks all records; -ENOENT (no such doorbell); -EPERM (not a FIFO, or of
 * another user); or a negative errno (-EMFILE, -ELOOP …). Does not block, raises no signal, is no
 * cancellation point, and takes five system calls.
 */
int doorbell_ring(int directory_fd, const char *stem, uint32_t slot, uint32_t timer,
                  uint32_t record);
/* The first part of it, which returns a descriptor, and the second. */
int doorbell_open_other(int directory_fd, const char *stem, uint32_t slot, uint32_t timer);
int doorbell_write(int fd, uint32_t record);
/* In place of a record: rings a direct doorbell (direct_doorbell.h), with what an eventfd is read
 * as. */
#define DOORBELL_DIRECT UINT32_MAX
/* Opens once more the end of an own doorbell that is read. */
int doorbell_open_read_end(int directory_fd, const char *stem, uint32_t slot, uint32_t timer);

/*
 * Reads up to `n` numbers, at most DOORBELL_READ_MAX. Returns their count, or a negative errno, in
 * which case nothing was read. Sets `*ret_overflowed` and empties the FIFO if it contained as many
 * or more, or a broken number; then the caller must check all records.
 */
int doorbell_read(int fd, uint32_t *ret, size_t n, bool *ret_overflowed);

/*
 * Removes the doorbells of a dead process: those of `timers_n` wait timers from `first`, which may
 * be any number, but of no more than DOORBELL_REMOVE_MAX. doorbell_sweep finds the rest. Needs no
 * descriptor, because the process that cleans up may have none left. Returns 0 or the first error,
 * after which it goes on.
 */
int doorbell_remove(int directory_fd, const char *stem, uint32_t slot, uint32_t first,
                    uint64_t timers_n);

/*
 * Removes the doorbells that have no reader: of one set, in all generations of its segment, or, if
 * `file_stem` is NULL, of all sets. Each belongs to a dead process; an unfinished one is looked at
 * twice. Returns 0 or the first error, after which it goes on; what it could not look at stays.
 */
int doorbell_sweep(int directory_fd, const char *file_stem);

#endif
