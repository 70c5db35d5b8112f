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
 * `slot` names the reading process in the file name: callers pass its peer key, which no later
 * process has. `timer` is the number of the wait timer, `stem` the set's file stem.
 */
#ifndef WEIR_CORE_SHM_DOORBELL_H
#define WEIR_CORE_SHM_DOORBELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most numbers that one doorbell_read returns. Even the smallest FIFO of the kernel, two pages,
 * holds more, so a full FIFO always reads as an overflow. */
#define DOORBELL_READ_MAX 1000u

/*
 * Makes and opens a doorbell. Removes an existing one of this name, which is of a dead process.
 * Returns a descriptor that is readable while it contains numbers; -ENAMETOOLONG; -EPERM (it could
 * not be made with mode 0600); or a negative errno of making or opening it (-ENOSPC, -EMFILE …).
 */
int doorbell_open(int directory_fd, const char *stem, uint32_t slot, uint32_t timer);

/* Removes the doorbell, if it exists, and closes `fd` unless it is -1. */
void doorbell_close(int directory_fd, int fd, const char *stem, uint32_t slot, uint32_t timer);

/*
 * Rings a doorbell of another process: writes `record` to the FIFO. Returns 0, also if it is full,
 * because then the reader checks all records; -ENOENT (no such doorbell); -EPERM (not a FIFO, or of
 * another user); or a negative errno (-EMFILE, -ELOOP …). Does not block, raises no signal, is no
 * cancellation point, and takes four system calls.
 */
int doorbell_ring(int directory_fd, const char *stem, uint32_t slot, uint32_t timer,
                  uint32_t record);

/*
 * Reads up to `n` numbers, at most DOORBELL_READ_MAX. Returns their count, or a negative errno, in
 * which case nothing was read. Sets `*ret_overflowed` and empties the FIFO if it contained as many
 * or more, or a broken number; then the caller must check all records.
 */
int doorbell_read(int fd, uint32_t *ret, size_t n, bool *ret_overflowed);

/* Removes all doorbells of the dead process in `*slot`; NULL: of all processes of the set. Returns
 * 0 or the first error, after which it goes on. */
int doorbell_remove_all(int directory_fd, const char *stem, const uint32_t *slot);

#endif
