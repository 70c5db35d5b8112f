/* SPDX-License-Identifier: MIT */
/* Files and directories by path. */
#include "os/os_internal.h"
#include <dirent.h>
#include <limits.h>
#include <string.h>

static int os_file_open(const char *path)
{
    return os_open_retry(AT_FDCWD, path, O_RDONLY | O_NOCTTY, 0);
}

/* Reads `size` bytes, or fewer if the file ends before. */
static int os_file_read_fully(int fd, char *buffer, size_t size, size_t *ret_n)
{
    size_t n = 0;

    while (n < size) {
        long r = syscall(SYS_read, fd, buffer + n, size - n);

        if (r < 0 && errno != EINTR)
            return -errno;
        if (r == 0)
            break;
        if (r > 0)
            n += (size_t)r;
    }
    *ret_n = n;
    return 0;
}

/* Reads the whole file into a growing buffer: the size of a pipe is not known in advance. Returns
 * -EFBIG if it exceeds `size_max`. */
static int os_file_read_all(int fd, size_t size_max, char **ret, size_t *ret_size)
{
    size_t capacity = 4096, size = 0, n = 0;
    int r = 0;
    char *text = NULL;

    do {
        char *grown = os_realloc(text, capacity + 1, 1);

        if (grown == NULL) {
            r = -ENOMEM;
            break;
        }
        text = grown;
        r = os_file_read_fully(fd, text + size, capacity - size, &n);
        if (r < 0)
            break;
        size += n;
        capacity *= 2;
        if (size > size_max)
            r = -EFBIG;
    } while (r == 0 && size == capacity / 2);
    if (r < 0) {
        os_free(text);
        return r;
    }
    text[size] = '\0';
    *ret = text;
    *ret_size = size;
    return 0;
}

int os_file_read(const char *path, size_t size_max, char **ret, size_t *ret_size)
{
    int fd = os_file_open(path), r;

    if (fd < 0)
        return fd;
    r = os_file_read_all(fd, size_max, ret, ret_size);
    os_close(fd);
    return r;
}

int os_file_read_part(const char *path, uint64_t offset, void *buffer, size_t size)
{
    size_t n = 0;
    int fd, r = 0;

    if (offset > INT64_MAX || size > INT_MAX)
        return -EINVAL;
    fd = os_file_open(path);
    if (fd < 0)
        return fd;
    if (lseek(fd, (off_t)offset, SEEK_SET) < 0)
        r = -errno;
    else
        r = os_file_read_fully(fd, buffer, size, &n);
    os_close(fd);
    return r < 0 ? r : (int)n;
}

int os_stat(const char *path, struct stat *ret)
{
    return os_result(stat(path, ret));
}

int os_dir_open(const char *path, void **ret)
{
    DIR *directory;

    do {
        directory = opendir(path);
    } while (directory == NULL && errno == EINTR);
    if (directory == NULL)
        return -errno;
    *ret = directory;
    return 0;
}

int os_dir_next(void *directory, char *ret_name, size_t size)
{
    const struct dirent *entry;

    do {
        errno = 0;
        entry = readdir(directory);
    } while (entry != NULL ? strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0
                           : errno == EINTR);
    if (entry == NULL)
        return -errno;
    if (strlen(entry->d_name) >= size)
        return -ENAMETOOLONG;
    memcpy(ret_name, entry->d_name, strlen(entry->d_name) + 1);
    return 1;
}

void os_dir_close(void *directory)
{
    if (directory != NULL)
        closedir(directory);
}
