/* SPDX-License-Identifier: MIT */
/* Reading files, by path and by descriptor, and loading plugins. */
#include "os/os_internal.h"
#include <dlfcn.h>
#include <limits.h>
#include <string.h>

static int os_file_open(const char *path)
{
    return os_open_retry(AT_FDCWD, path, O_RDONLY | O_NOCTTY, 0);
}

/* Doubles the capacity of the text, which has room for a NUL besides. Returns 0 or -ENOMEM. */
static int os_file_grow(char **text, size_t *capacity)
{
    size_t wanted = *capacity ? 2 * *capacity : 4096;
    char *grown = os_realloc(*text, wanted + 1, 1);

    if (!grown)
        return -ENOMEM;
    *text = grown;
    *capacity = wanted;
    return 0;
}

int os_file_read(const char *path, size_t size_max, char **ret, size_t *ret_size)
{
    size_t capacity = 0, size = 0;
    char *text = NULL;
    int fd = os_file_open(path), r;

    if (fd < 0)
        return fd;
    do { /* into a growing buffer: the size of a pipe is not known in advance */
        r = size == capacity ? os_file_grow(&text, &capacity) : 0;
        if (r == 0)
            OS_RETRY(r, syscall(SYS_read, fd, text + size, capacity - size));
        size += r > 0 ? (size_t)r : 0;
    } while (r > 0 && size <= size_max);
    os_close(fd);
    if (r != 0) {
        os_free(text);
        return r < 0 ? r : -EFBIG;
    }
    text[size] = '\0';
    *ret = text;
    *ret_size = size;
    return 0;
}

int os_pread(int fd, uint64_t offset, void *buffer, size_t size)
{
    size_t n = 0;
    int r = 1;

    if (offset > INT64_MAX - size || size > INT_MAX)
        return -EINVAL;
    while (n < size && r > 0) {
        OS_RETRY(r, syscall(SYS_pread64, fd, (char *)buffer + n, size - n, (off_t)(offset + n)));
        n += r > 0 ? (size_t)r : 0;
    }
    return r < 0 ? r : (int)n;
}

int os_file_read_part(const char *path, uint64_t offset, void *buffer, size_t size)
{
    int fd = os_file_open(path), r;

    if (fd < 0)
        return fd;
    r = os_pread(fd, offset, buffer, size);
    os_close(fd);
    return r;
}

int os_stat(const char *path, struct stat *ret)
{
    return os_result(stat(path, ret));
}

int os_dlopen(const char *path, void **ret, char *ret_why, size_t why_size)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *why;

    if (library) {
        *ret = library;
        return 0;
    }
    why = dlerror();
    if (why_size > 0) {
        ret_why[0] = '\0';
        strncat(ret_why, why ? why : "unknown reason", why_size - 1);
    }
    return -ENOEXEC;
}

void *os_dlsym(void *library, const char *name)
{
    return dlsym(library, name);
}
