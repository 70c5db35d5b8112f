/* SPDX-License-Identifier: MIT */
/*
 * Errors: what calls return, and where a human finds out why. Every call returns 0 or a positive
 * count, or a negative errno (include <errno.h> to name it), never -EINTR. Where a human needs to
 * know why, the call also fills a struct weir_error.
 *
 * NULL in place of an object, of a text or of room for a result is -EINVAL, and nothing else
 * happens; calls that return no code return NULL or 0 then. Each call says which arguments may be
 * NULL. Flags and values of enums that are not known are -EINVAL as well, and so are sizes of
 * structs that are too small.
 *
 * These codes mean the same wherever a call says no more of them:
 *   -EINVAL           an argument is wrong: NULL, or a value that is not known
 *   -ENOMEM           out of memory
 *   -EMFILE, -ENFILE  the process, or the system, has no more descriptors
 *   -ESHUTDOWN        the instance is closing or closed
 *   -ECHILD           the instance was opened before fork, by the parent
 *   -EUCLEAN          the set is shared by processes, and its segment is damaged; or an algorithm
 *                     of the set broke its contract, as the log says
 *
 * Structs that start with their size may be larger in a later version of the library, which takes
 * what a smaller one lacks for 0; all others never change.
 */
#ifndef WEIR_ERROR_H
#define WEIR_ERROR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_PUBLIC __attribute__((visibility("default")))

/* Of calls that grant or open something: compilers warn if the result is not looked at. */
#ifdef __GNUC__
#define WEIR_MUST_CHECK __attribute__((warn_unused_result))
#else
#define WEIR_MUST_CHECK
#endif

/* An instant or a span that never ends, in every field that is in nanoseconds. */
#define WEIR_FOREVER UINT64_MAX

/*
 * What went wrong, where. `code` is the negative errno that the call returned. `file`, `line` and
 * `column` (from 1) name the place in a configuration, or are empty and 0 where there is none.
 * `message` says what is wrong and what would be right, without the place, in one line.
 */
struct weir_error {
    int code;
    uint32_t line;
    uint32_t column;
    uint32_t complaints; /* how many complaints there were in all; this is the first */
    char file[256];      /* cut if it is longer, as is `message`; always NUL-terminated */
    char message[512];
};

/*
 * Importance of a line of the log. Errors: something does not work as it should, and stays so.
 * Warnings: something that was asked for is not done. Info: what was configured. Debug: which pools
 * are opened. The log callback hears errors and warnings; the others are for WEIR_LOG (instance.h).
 */
enum weir_log_level {
    WEIR_LOG_ERROR = 3,
    WEIR_LOG_WARNING = 4,
    WEIR_LOG_INFO = 6,
    WEIR_LOG_DEBUG = 7
};

#ifdef __cplusplus
}
#endif
#endif
