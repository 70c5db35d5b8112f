/* SPDX-License-Identifier: MIT */
/* Directories of a test's own. scripts/faults says with WEIR_TEST_DIRECTORY where they are to be.
 */
#ifndef WEIR_TESTS_TMPDIR_H
#define WEIR_TESTS_TMPDIR_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TMPDIR_SIZE = 128 };

/* Makes a new one in `parent`; NULL: in WEIR_TEST_DIRECTORY, or else in memory. Whether there is
 * one now. */
static inline bool tmpdir_make(char ret_path[static TMPDIR_SIZE], const char *parent)
{
    const char *in = parent ? parent : getenv("WEIR_TEST_DIRECTORY");
    int n = snprintf(ret_path, TMPDIR_SIZE, "%s/weir-test-XXXXXX", in ? in : "/dev/shm");

    if (n <= 0 || n >= TMPDIR_SIZE)
        return false;
    if (mkdtemp(ret_path))
        return true;
    perror(ret_path);
    return false;
}

/* Finds a file with a name that ends so. */
static inline bool tmpdir_find(const char *path, const char *end, char ret_name[static 128])
{
    DIR *entries = opendir(path);
    const struct dirent *entry;
    bool found = false;

    while (entries && !found && (entry = readdir(entries))) {
        size_t n = strlen(entry->d_name);

        found = n >= strlen(end) && n < 128 && strcmp(entry->d_name + n - strlen(end), end) == 0;
        if (found)
            memcpy(ret_name, entry->d_name, n + 1);
    }
    if (entries)
        closedir(entries);
    return found;
}

/* Removes it with the files in it. Whether it is gone. */
static inline bool tmpdir_remove(const char *path)
{
    DIR *entries = opendir(path);
    const struct dirent *entry;

    if (!entries)
        return false;
    while ((entry = readdir(entries)))
        unlinkat(dirfd(entries), entry->d_name, 0);
    closedir(entries);
    return rmdir(path) == 0;
}

#endif
