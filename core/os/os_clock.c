/* SPDX-License-Identifier: MIT */
/* Clocks and the time stamp counter. */
#include "os/os_internal.h"
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <sys/prctl.h>
#include <x86intrin.h>
#endif

uint64_t os_now_ns(void)
{
    return os_clock_read(CLOCK_MONOTONIC);
}

uint64_t os_now_coarse_ns(void)
{
    return os_clock_read(CLOCK_MONOTONIC_COARSE);
}

uint64_t os_boottime_now_ns(void)
{
    return os_clock_read(CLOCK_BOOTTIME);
}

/* Of several attempts the least counts: the others were interrupted between the two readings. */
enum { BOOTTIME_READINGS = 3 };

uint64_t os_boottime_ahead_ns(void)
{
    uint64_t least = UINT64_MAX;

    for (unsigned i = 0; i < BOOTTIME_READINGS; i++) {
        uint64_t monotonic = os_clock_read(CLOCK_MONOTONIC);
        uint64_t ahead = os_clock_read(CLOCK_BOOTTIME) - monotonic;

        least = ahead < least ? ahead : least;
    }
    return least;
}

/* Readings of the wall clock before and after that of the other one, until no tick is between. */
enum { WALL_READINGS_MAX = 8 };

int64_t os_wall_offset_ns(void)
{
    uint64_t before, after = os_clock_read(CLOCK_REALTIME_COARSE), monotonic;
    unsigned n = 0;

    /* Where the coarse clocks are no coarser than others, the first reading counts: no offset is
     * too large, so nothing that waits for the wall clock is granted early. */
    do {
        before = after;
        monotonic = os_clock_read(CLOCK_MONOTONIC_COARSE);
        after = os_clock_read(CLOCK_REALTIME_COARSE);
    } while (before != after && ++n < WALL_READINGS_MAX);
    return (int64_t)(before - monotonic);
}

#ifdef __x86_64__
uint64_t os_tsc_read(void)
{
    return __rdtsc();
}

/* Returns whether the counter runs at one rate in all power-saving states of the processor. */
static bool os_tsc_is_invariant(void)
{
    unsigned a, b, c, d = 0;

    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & 1u << 8);
}

static int os_tsc_is_clocksource(void)
{
    static const char path[] = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    char name[8] = "";
    int r = os_file_read_part(path, 0, name, sizeof(name) - 1);

    if (r < 0)
        return r;
    return strcmp(name, "tsc\n") == 0 ? 0 : -ENODEV;
}

int os_tsc_check(void)
{
    int allowed = PR_TSC_ENABLE;

    if (!os_tsc_is_invariant())
        return -EOPNOTSUPP;
    if (prctl(PR_GET_TSC, &allowed) == 0 && allowed != PR_TSC_ENABLE)
        return -EPERM;
    return os_tsc_is_clocksource();
}
#else
/* No gain is known elsewhere: on aarch64 the clock costs hardly more than the counter. */
uint64_t os_tsc_read(void)
{
    return 0;
}

int os_tsc_check(void)
{
    return -EOPNOTSUPP;
}
#endif
