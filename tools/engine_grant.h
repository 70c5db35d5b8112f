/* SPDX-License-Identifier: MIT */
/*
 * Grants of sets that engines keep, in a process that holds them for another one. Such a grant
 * lasts as long as this process keeps its session up, and is given back by a message: so signals
 * that would end the process, and the end of what it holds for, are waited for together with the
 * engine.
 */
#ifndef WEIR_TOOLS_ENGINE_GRANT_H
#define WEIR_TOOLS_ENGINE_GRANT_H

#include "grant.h"

/* Blocks the signals that would end this process, other than ignored ones. Until engine_grant_end()
 * they are read from `grant->ends.signals`. Returns 0 or a negative errno. */
int engine_grant_begin(struct grant *grant);

/* Waits for the grant of a request, but no longer than `grant->ends` allows. Returns what
 * weir_acquire does, or -ECANCELED: it is not wanted any more. */
int engine_grant_wait(struct grant *grant, const struct weir_request *request,
                      struct weir_refusal *refusal);

/* Holds a grant until `grant->ends` says that it ends. Returns 0, or -EOWNERDEAD: the session was
 * lost. */
int engine_grant_hold(struct grant *grant);

/* Reports that the session was lost while the command goes on. */
void engine_grant_report_loss(const struct grant *grant);

/* Gives the grant back, if there is one, closes all, and ends the process: by the signal that came,
 * or with this exit status. */
__attribute__((noreturn)) void engine_grant_end(struct grant *grant, int status);

#endif
