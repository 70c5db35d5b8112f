/* SPDX-License-Identifier: MIT */
/*
 * STEP() marks every place between two stores to memory that is shared. It is nothing, except in
 * the crash tests, which compile the core with WEIR_STEPS and stop or kill a process at each.
 */
#ifndef WEIR_CORE_BASE_SCHED_POINT_H
#define WEIR_CORE_BASE_SCHED_POINT_H

#ifdef WEIR_STEPS
void step(void);
#define STEP() step()
#else
#define STEP() ((void)0)
#endif

#endif
