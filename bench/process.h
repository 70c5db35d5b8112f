/* SPDX-License-Identifier: MIT */
/*
 * What the parts of `process` have in common: processes, and instances that share a directory of
 * segments. What costs what is in process_costs.c, hand-overs from process to process in
 * process_hands.c.
 */
#ifndef WEIR_BENCH_PROCESS_H
#define WEIR_BENCH_PROCESS_H

#include "bench.h"
#include <stdatomic.h>
#include <sys/types.h>

/* Where who is at work. */
enum { HERE = 0, THERE = 1 };

/* The directory of the segments, made by main. */
const char *process_directory(void);

/* An instance on this text; what is wrong ends the process. `flags` as of struct weir_options. */
weir *process_open(const char *text, uint32_t flags);
weir_pool *process_pool(weir *w, const char *name);

/* Zeroed memory that this process and those it forks share, and its end. */
void *process_memory(size_t size);
void process_memory_free(void *memory, size_t size);

/*
 * Runs `run` in a new process, which may use all processors and is killed if this one ends. It has
 * none of this one's instances.
 */
pid_t process_start(void (*run)(void *argument), void *argument);
/* Waits for its end: it must have exited with 0, or been killed by `signal`. */
void process_end(pid_t pid, int signal);

/* Waits until the word has this value; it is another's to set, who may be gone: not for ever. */
void process_await(atomic_uint *word, unsigned value);
void process_say(atomic_uint *word, unsigned value);

/* process_costs.c */
void costs_open(struct bench *bench);
void costs_round(const struct bench *bench);
void costs_close(void);

/* process_hands.c */
void hands_open(struct bench *bench);
void hands_round(const struct bench *bench);
void hands_close(void);

#endif
