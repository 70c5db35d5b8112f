/* SPDX-License-Identifier: MIT */
/*
 * SCHED_POINT() marks each schedule point: a place between two stores to shared memory. It is
 * empty, except in the crash tests. They compile the core with WEIR_STEPS and stop or kill a
 * process there.
 */
#ifndef WEIR_CORE_BASE_SCHED_POINT_H
#define WEIR_CORE_BASE_SCHED_POINT_H

#ifdef WEIR_STEPS
void sched_point(void);
#define SCHED_POINT() sched_point()
#else
#define SCHED_POINT() ((void)0)
#endif

#endif
