/* SPDX-License-Identifier: MIT */
/* Directories, files and FIFOs in them. */
#include "os/os_internal.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>

int os_mkdir(const char *path)
{
    return os_result(mkdir(path, S_IRWXU));
}

int os_dir_open_fd(const char *path)
{
    return os_open_retry(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
}

int os_dir_open(int directory_fd, const char *path, void **ret)
{
    int fd = os_open_retry(directory_fd, path, O_RDONLY | O_DIRECTORY, 0), r;
    DIR *directory;

    if (fd < 0)
        return fd;
    directory = fdopendir(fd);
    if (!directory) {
        r = -errno;
        os_close(fd);
        return r;
    }
    *ret = directory;
    return 0;
}

int os_dir_next(void *directory, char *ret_name, size_t size)
{
    const struct dirent *entry;

    do {
        errno = 0;
        entry = readdir(directory);
    } while (entry ? strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0
                   : errno == EINTR);
    if (!entry)
        return -errno;
    if (strlen(entry->d_name) >= size)
        return -ENAMETOOLONG;
    memcpy(ret_name, entry->d_name, strlen(entry->d_name) + 1);
    return 1;
}

void os_dir_close(void *directory)
{
    if (directory)
        closedir(directory);
}

int os_open_at(int directory_fd, const char *name, bool writable)
{
    return os_open_retry(directory_fd, name,
                         (writable ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
}

int os_stat_at(int directory_fd, const char *name, struct stat *ret)
{
    return os_result(fstatat(directory_fd, name, ret, AT_SYMLINK_NOFOLLOW));
}

int os_unlink_at(int directory_fd, const char *name)
{
    return os_result(unlinkat(directory_fd, name, 0));
}

int os_rename_at(int directory_fd, const char *from, const char *to)
{
    return os_result(renameat(directory_fd, from, directory_fd, to));
}

int os_open_tmpfile(int directory_fd)
{
    return os_open_retry(directory_fd, ".", O_TMPFILE | O_RDWR, S_IRUSR | S_IWUSR);
}

/* Tries AT_EMPTY_PATH, which needs a recent kernel or a privilege, then the link in /proc. That of
 * the calling thread: a first thread that has ended has no descriptors. */
int os_link_at(int fd, int directory_fd, const char *name)
{
    char path[40];

    if (linkat(fd, "", directory_fd, name, AT_EMPTY_PATH) == 0)
        return 0;
    if (errno == EEXIST)
        return -EEXIST;
    snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
    return os_result(linkat(AT_FDCWD, path, directory_fd, name, AT_SYMLINK_FOLLOW));
}

int os_fstat(int fd, struct stat *ret)
{
    return os_result(fstat(fd, ret));
}

/* Checks RLIMIT_FSIZE first: exceeding it raises SIGXFSZ. */
int os_ftruncate(int fd, uint64_t size)
{
    struct rlimit limit;
    int r;

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && size > limit.rlim_cur)
        return -EFBIG;
    OS_RETRY(r, ftruncate(fd, (off_t)size));
    return r;
}

/* A file that another process has truncated does not grow again. */
int os_fallocate(int fd, uint64_t offset, uint64_t size)
{
    int r;

    OS_RETRY(r, fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size));
    return r;
}

void os_pause(void)
{
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}

/* Polls instead of blocking in the kernel: a stopped process may hold the lock without end. */
int os_file_lock(int fd)
{
    for (int i = 0; i < 1000; i++) { /* a second */
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        os_pause();
    }
    return -EBUSY;
}

/* Unlocks explicitly: closing is not enough, as a child forked meanwhile shares the lock. */
void os_file_unlock(int fd)
{
    flock(fd, LOCK_UN);
}

int os_fifo_make(int directory_fd, const char *name)
{
    return os_result(mkfifoat(directory_fd, name, S_IRUSR | S_IWUSR));
}

/* A FIFO cannot be opened for writing alone, without blocking, while no process can read it. */
int os_fifo_is_read(int directory_fd, const char *name)
{
    int fd = os_open_retry(directory_fd, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);

    if (fd < 0)
        return fd == -ENXIO ? 0 : fd;
    os_close(fd);
    return 1;
}
