/* SPDX-License-Identifier: MIT */
/*
 * Runs a program in a world without io_uring, as containers and sandboxes have it: every call to
 * set up a ring, and to use one that was handed in, is refused with EPERM.
 *
 * usage: no_uring PROGRAM [ARGUMENT]...
 */
#include "lib/refuse_calls.h"
#include <stddef.h>
#include <sys/syscall.h>

int main(int argc, char **argv)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_enter, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_register, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    const struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

    return argc < 2 ? 2 : refuse_calls_and_run(&program, argv + 1);
}
