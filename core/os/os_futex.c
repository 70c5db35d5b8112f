/* SPDX-License-Identifier: MIT */
/* Futexes, private and shared by processes. */
#include "os/os_internal.h"
#include <linux/futex.h>
#include <weir/error.h>

/* The kernel need not look up the page of a private word at every wait and wake. */
static int os_futex_scope(bool shared)
{
    return shared ? 0 : FUTEX_PRIVATE_FLAG;
}

int os_futex_wait(const uint32_t *word, bool shared, uint32_t expected, uint64_t until_ns)
{
    const struct timespec until = os_timespec(until_ns);
    int r;

    /* The deadline is absolute: a retry does not move it. */
    OS_RETRY(r, syscall(SYS_futex, word, FUTEX_WAIT_BITSET | os_futex_scope(shared), expected,
                        until_ns == WEIR_FOREVER ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY));
    return r;
}

int os_futex_wake(const uint32_t *word, bool shared)
{
    return os_result(syscall(SYS_futex, word, FUTEX_WAKE | os_futex_scope(shared), 1));
}
