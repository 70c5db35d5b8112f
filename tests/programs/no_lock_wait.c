/* SPDX-License-Identifier: MIT */
/*
 * Runs a program in a world in which no thread can wait for a lock of an open file description, as
 * on some network file systems: it fails with an errno.
 *
 * usage: no_lock_wait ERRNO PROGRAM [ARGUMENT]...
 */
#include "lib/refuse_calls.h"
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>

int main(int argc, char **argv)
{
    unsigned error = argc > 1 ? (unsigned)atoi(argv[1]) & SECCOMP_RET_DATA : 0;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_OFD_SETLKW, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
    };
    const struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

    return argc < 3 ? 2 : refuse_calls_and_run(&program, argv + 2);
}
