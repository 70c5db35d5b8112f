/* SPDX-License-Identifier: MIT */
/* Files that processes have open, and that have lost their names. */
#include "os/os_internal.h"
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DELETED_SUFFIX " (deleted)" /* that the kernel adds to the former path */

struct deleted_search {
    char prefix[PATH_MAX + 1]; /* the directory, resolved, with a slash */
    int (*found)(void *userdata, uint32_t pid, const char *path);
    void *userdata;
};

/* Resolves the directory, or only its parent: it may be gone itself. */
static int deleted_resolve(const char *directory, char ret[static PATH_MAX + 1])
{
    char parent[PATH_MAX], resolved[PATH_MAX];
    const char *name = strrchr(directory, '/');
    int n;

    if (realpath(directory, resolved)) {
        n = snprintf(ret, PATH_MAX + 1, "%s/", resolved);
    } else {
        if (!name || strlen(directory) >= sizeof(parent))
            return -ENOENT;
        snprintf(parent, sizeof(parent), "%.*s/", (int)(name - directory), directory);
        if (!realpath(parent, resolved))
            return -errno;
        n = snprintf(ret, PATH_MAX + 1, "%s%s/", resolved, name);
    }
    return n < 0 || n > PATH_MAX ? -ENAMETOOLONG : 0;
}

/* Returns whether a descriptor's link leads to a file that was in the directory itself. */
static bool deleted_is_inside(const char *target, const char *prefix)
{
    const size_t length = strlen(target), prefix_length = strlen(prefix);
    const size_t suffix_length = strlen(DELETED_SUFFIX);

    return length > prefix_length + suffix_length && strncmp(target, prefix, prefix_length) == 0 &&
           strcmp(target + length - suffix_length, DELETED_SUFFIX) == 0 &&
           !strchr(target + prefix_length, '/');
}

/* A tmpfile that was linked later is listed as deleted, too: only its link count tells. */
static int deleted_look_at(const struct deleted_search *search, uint32_t pid, const char *path)
{
    char target[PATH_MAX + sizeof(DELETED_SUFFIX)];
    ssize_t n = readlink(path, target, sizeof(target) - 1);
    struct stat file;

    if (n < 0)
        return 0;
    target[n] = '\0';
    if (!deleted_is_inside(target, search->prefix) || stat(path, &file) < 0)
        return 0;
    return S_ISREG(file.st_mode) && file.st_nlink == 0 ? search->found(search->userdata, pid, path)
                                                       : 0;
}

static int deleted_search_process(const struct deleted_search *search, uint32_t pid)
{
    char path[64], name[32];
    struct stat process;
    void *descriptors;
    int r = 0, more;

    snprintf(path, sizeof(path), "/proc/%" PRIu32 "/fd", pid);
    if (stat(path, &process) < 0 || process.st_uid != geteuid() ||
        os_dir_open(AT_FDCWD, path, &descriptors) < 0)
        return 0; /* of another user, or gone */
    while (r == 0 && (more = os_dir_next(descriptors, name, sizeof(name))) > 0) {
        snprintf(path, sizeof(path), "/proc/%" PRIu32 "/fd/%s", pid, name);
        r = deleted_look_at(search, pid, path);
    }
    os_dir_close(descriptors);
    return r;
}

int os_deleted_files(const char *directory,
                     int (*found)(void *userdata, uint32_t pid, const char *path), void *userdata)
{
    struct deleted_search search = {.found = found, .userdata = userdata};
    int r = deleted_resolve(directory, search.prefix), more = 1;
    char name[64];
    void *processes;

    if (r == 0)
        r = os_dir_open(AT_FDCWD, "/proc", &processes);
    if (r < 0)
        return r;
    while (r == 0 && (more = os_dir_next(processes, name, sizeof(name))) > 0) {
        unsigned long pid = strtoul(name, NULL, 10);

        if (pid > 0 && pid <= UINT32_MAX)
            r = deleted_search_process(&search, (uint32_t)pid);
    }
    os_dir_close(processes);
    return more < 0 ? more : r;
}
