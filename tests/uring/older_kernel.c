/* SPDX-License-Identifier: MIT */
/*
 * Runs a program as on a kernel before Linux 6.13, which sends no message without a source ring.
 *
 * usage: older_kernel PROGRAM [ARGUMENT]...
 */
#include "sandbox.h"

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    sandbox_forget_direct_messages();
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 2;
}
