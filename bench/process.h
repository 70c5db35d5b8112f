/* SPDX-License-Identifier: MIT */
/*
 * Common declarations of `process`: processes, and instances that share a segment directory.
 * process_costs.c measures operations, process_hands.c hand-overs from process to process.
 */
#ifndef WEIR_BENCH_PROCESS_H
#define WEIR_BENCH_PROCESS_H

#include "bench.h"
#include <stdatomic.h>
#include <sys/types.h>

/* Processors of the two participants. */
enum { HERE = 0, THERE = 1 };

/* Returns the segment directory, made by main. */
const char *process_directory(void);

/* Opens an instance with this configuration text; an error ends the process. `flags`: those of
 * struct weir_options. */
weir *process_open(const char *text, uint32_t flags);
weir_pool *process_pool(weir *w, const char *name);

/* Allocates and frees zeroed memory that this process and its children share. */
void *process_memory(size_t size);
void process_memory_free(void *memory, size_t size);

/*
 * Runs `run` in a new process, which may use all processors and is killed if this one ends. It
 * cannot use the instances of this process.
 */
pid_t process_start(void (*run)(void *argument), void *argument);
/* Waits for the end of a process: it must have exited with 0, or been killed by `signal`. */
void process_end(pid_t pid, int signal);

/* Waits until another process has set the word to this value; not for ever, as it may have died. */
void process_await(atomic_uint *word, unsigned value);
void process_say(atomic_uint *word, unsigned value);

/* Costs of operations (process_costs.c). */
void costs_open(struct bench *bench);
void costs_round(const struct bench *bench);
void costs_close(void);

/* Hand-overs (process_hands.c). */
void hands_open(struct bench *bench);
void hands_round(const struct bench *bench);
void hands_close(void);

#endif
