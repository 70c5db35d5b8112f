/* SPDX-License-Identifier: MIT */
/* Seccomp filters about io_uring: sandboxes, and kernels that know less. */
#ifndef WEIR_TESTS_SANDBOX_H
#define WEIR_TESTS_SANDBOX_H

#include "lib/require.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SANDBOX_SEND_MSG_RING 31 /* opcode of io_uring_register, of Linux 6.13 */

#define SANDBOX_LOAD(field)                                                                        \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, field))
#define SANDBOX_UNLESS(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip)
#define SANDBOX_RETURN(code)        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (code))
#define SANDBOX_ALLOW               BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* For all threads of the process, and its children. */
static inline void sandbox_enter(struct sock_filter *filter, size_t n)
{
    const struct sock_fprog program = {(unsigned short)n, filter};

    require(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    require(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) ==
            0);
}

/* Everything about rings fails with this errno. */
static inline void sandbox_forbid_rings(unsigned code)
{
    struct sock_filter filter[] = {
        SANDBOX_LOAD(nr),     SANDBOX_UNLESS(SYS_io_uring_setup, 1),
        SANDBOX_RETURN(code), SANDBOX_UNLESS(SYS_io_uring_enter, 1),
        SANDBOX_RETURN(code), SANDBOX_UNLESS(SYS_io_uring_register, 1),
        SANDBOX_RETURN(code), SANDBOX_ALLOW,
    };

    sandbox_enter(filter, sizeof(filter) / sizeof(filter[0]));
}

/* Messages need a source ring, as before Linux 6.13. */
static inline void sandbox_forget_direct_messages(void)
{
    struct sock_filter filter[] = {
        SANDBOX_LOAD(nr),       SANDBOX_UNLESS(SYS_io_uring_register, 3),
        SANDBOX_LOAD(args[1]),  SANDBOX_UNLESS(SANDBOX_SEND_MSG_RING, 1),
        SANDBOX_RETURN(EINVAL), SANDBOX_ALLOW,
    };

    sandbox_enter(filter, sizeof(filter) / sizeof(filter[0]));
}

/* And no ring can be made. */
static inline void sandbox_forbid_sending(void)
{
    struct sock_filter filter[] = {
        SANDBOX_LOAD(nr),
        SANDBOX_UNLESS(SYS_io_uring_setup, 1),
        SANDBOX_RETURN(EPERM),
        SANDBOX_ALLOW,
    };

    sandbox_forget_direct_messages();
    sandbox_enter(filter, sizeof(filter) / sizeof(filter[0]));
}

#endif
