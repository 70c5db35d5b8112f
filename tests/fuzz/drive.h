/* SPDX-License-Identifier: MIT */
/*
 * Drives a fuzz target. With clang's -fsanitize=fuzzer (WEIR_LIBFUZZER) libFuzzer does. Otherwise
 * fuzz_drive() runs the given files and directories once, and the inputs of the target, then
 * mutates them for the given number of seconds, or for WEIR_FUZZ_SECONDS.
 *
 *     TARGET SECONDS SEED FILE|DIRECTORY...        SEED 0: from the clock, and printed
 */
#ifndef WEIR_TESTS_FUZZ_DRIVE_H
#define WEIR_TESTS_FUZZ_DRIVE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* Of the target. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Bytes that are put into inputs. */
struct fuzz_piece {
    const void *bytes;
    size_t n;
};
#define FUZZ_TEXT(text)                                                                            \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }

struct fuzz {
    const char *suffix; /* of the files that are read of a directory */
    const struct fuzz_piece *pieces;
    size_t pieces_n;
    const struct fuzz_piece *inputs; /* besides the files */
    size_t inputs_n;
    size_t aligned; /* mutations begin at multiples of it, mostly; 0: anywhere */
};

/* Returns the status to exit with. */
int fuzz_drive(const struct fuzz *fuzz, int argc, char **argv);

#endif
