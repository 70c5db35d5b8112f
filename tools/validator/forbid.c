/* SPDX-License-Identifier: MIT */
/* A filter of system calls: those that the test itself makes are allowed, others raise SIGSYS. */
#include "trial.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define FORBID_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define FORBID_ARCH AUDIT_ARCH_AARCH64
#endif

/* The sanitizers' runtimes make calls of their own at any time. */
#if defined(FORBID_ARCH) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FORBID_ALLOW(name)                                                                         \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1),                                         \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

bool trial_forbid_system_calls(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FORBID_ARCH, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        FORBID_ALLOW(exit_group),
        FORBID_ALLOW(mmap),
        FORBID_ALLOW(munmap),
        FORBID_ALLOW(mprotect),
        FORBID_ALLOW(brk),
        FORBID_ALLOW(clock_gettime),
        FORBID_ALLOW(prlimit64),
        FORBID_ALLOW(rt_sigreturn),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    const struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}
#else
bool trial_forbid_system_calls(void)
{
    return false;
}
#endif
