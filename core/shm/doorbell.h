/* SPDX-License-Identifier: MIT */
/*
 * Bells: how a process tells a keeper of another one that a record has changed. A keeper has a
 * named pipe in the directory of the segments (segment_dir.h); it is read by the keeper's epoll, and
 * whoever has changed a record writes the record's number into it.
 *
 * What is heard is a hint. A number may be of any record or of none, because whoever rings may be
 * late, and the user's other programs can write there, too; and it may be missing, because a stopped
 * process has not rung yet. The record's word says what is so.
 */
#ifndef WEIR_CORE_SHM_DOORBELL_H
#define WEIR_CORE_SHM_DOORBELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers to ask doorbell_read for. Even a pipe of two pages, the least that the kernel makes, is full
 * only when there are more in it: so a loss is always noticed. */
#define DOORBELL_READ_MAX 1000u

/*
 * Makes and opens the bell of a keeper of the process in `slot`; one of that name that is there is
 * of a dead process, and is removed. `encoded` is the set's name as files have it. Returns a
 * descriptor that is readable while there are numbers in it; or -ENAMETOOLONG, or a negative errno
 * of making or opening it (-ENOSPC, -EMFILE …), or -EPERM: it could not be made with mode 0600.
 */
int doorbell_open(int directory_fd, const char *stem, uint32_t slot, uint32_t timer);

/* Closes and removes it. fd -1: only removes it, if it is there. */
void doorbell_close(int directory_fd, int fd, const char *stem, uint32_t slot, uint32_t timer);

/*
 * Rings the bell of another process's keeper. Never blocks, raises no signal, and is no point where
 * a thread can be canceled. Returns 0, also if the pipe is full, for then its reader looks at all
 * records anyway; -ENOENT: there is no such bell; -EPERM: there is something else, or a bell of
 * somebody else; or a negative errno (-EMFILE, -ELOOP …). Takes four system calls.
 */
int doorbell_ring(int directory_fd, const char *stem, uint32_t slot, uint32_t timer,
                  uint32_t record);

/*
 * Reads up to `n` numbers, at most DOORBELL_READ_MAX, and returns how many. *ret_overflowed: there were
 * as many or more, or they were in disorder, and the bell has been emptied: look at all records.
 * Or a negative errno; then nothing was read.
 */
int doorbell_read(int fd, uint32_t *ret, size_t n, bool *ret_overflowed);

/* Removes all bells of the process in `slot`, which is dead. Returns 0, or the first negative errno;
 * it goes on behind it. */
int doorbell_remove_all(int directory_fd, const char *stem, uint32_t slot);

#endif
