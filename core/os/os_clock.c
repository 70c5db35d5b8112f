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

int64_t os_wall_offset_ns(void)
{
    return (int64_t)(os_clock_read(CLOCK_REALTIME) - os_clock_read(CLOCK_MONOTONIC));
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
