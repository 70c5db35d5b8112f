/* SPDX-License-Identifier: MIT */
/* Futexes, private and shared by processes. */
#include "os/os_internal.h"
#include <linux/futex.h>
#include <weir/error.h>

/*
 * `scope` is FUTEX_PRIVATE_FLAG, or 0 for a word in memory shared by processes. With 0 the kernel
 * looks up the page at every wait and wake.
 */
static int os_futex_wait_scope(const uint32_t *word, int scope, uint32_t expected,
                               uint64_t until_ns)
{
    const struct timespec until = os_timespec(until_ns);
    int r;

    /* The deadline is absolute: a retry does not move it. */
    OS_RETRY(r, syscall(SYS_futex, word, FUTEX_WAIT_BITSET | scope, expected,
                        until_ns == WEIR_FOREVER ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY));
    return r;
}

static int os_futex_wake_scope(const uint32_t *word, int scope, int n)
{
    return os_result(syscall(SYS_futex, word, FUTEX_WAKE | scope, n, NULL, NULL, 0));
}

int os_futex_wait(const uint32_t *word, uint32_t expected, uint64_t until_ns)
{
    return os_futex_wait_scope(word, FUTEX_PRIVATE_FLAG, expected, until_ns);
}

int os_futex_wake(const uint32_t *word, int n)
{
    return os_futex_wake_scope(word, FUTEX_PRIVATE_FLAG, n);
}

int os_futex_wait_shared(const uint32_t *word, uint32_t expected, uint64_t until_ns)
{
    return os_futex_wait_scope(word, 0, expected, until_ns);
}

int os_futex_wake_shared(const uint32_t *word, int n)
{
    return os_futex_wake_scope(word, 0, n);
}
