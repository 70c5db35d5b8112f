/* SPDX-License-Identifier: MIT */
/* A small world for faults: an instance with one set, and whether that set is whole. */
#ifndef WEIR_TESTS_FAULTS_WHOLE_SET_H
#define WEIR_TESTS_FAULTS_WHOLE_SET_H

#include <weir/weir.h>

/* Capacities of the set "set": a rate of one unit each 2 ms, calls, and a resource. */
enum { TOKENS_BURST = 4, CALLS_CAPACITY = 100, DB_CAPACITY = 3 };

/* The same set as text. */
extern const char world_text[];

struct whole_set {
    weir *w;
    weir_pool *pool;
};

/* Requests: some of everything; resources only; tokens only. */
extern const struct weir_request want_all, want_db, want_every_db, want_tokens, want_every_token;

/* Opens an instance and its set; must not fail. */
void world_open(struct whole_set *world);
/* Closes what is open. */
void world_close(struct whole_set *world);

/* Nothing is held and no thread waits; everything that was granted was released or taken; and the
 * whole capacity can be had and given back: now, after a wait, and by a submission. */
void world_check_whole(const struct whole_set *world);

/* Waits, at most for long, until it is decided; its result. */
int world_await(const struct whole_set *world, weir_acquisition *acquisition);

#endif
