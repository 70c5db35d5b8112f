/* SPDX-License-Identifier: MIT */
/* Files of segments: opened without trust, closed again unless they are the user's alone. */
#include "shm/segment_file.h"

#include "base/sched_point.h"
#include "os/os.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

int site_open(const char *directory, const char *name, bool make, struct segment_site *ret,
              struct weir_error *reterr)
{
    int r = directory_encode(name, ret->encoded);

    ret->directory_fd = -1;
    ret->reterr = reterr;
    if (r == -ENAMETOOLONG)
        return error_set(reterr, r,
                         "the name `%s` is too long for a set of processes: at most %u "
                         "bytes, three for each that is no letter, digit, `-` or `_`",
                         show(name).text, DIRECTORY_ENCODED_MAX);
    if (r < 0)
        return error_set(reterr, r, "a set of processes needs a name");
    snprintf(ret->file, sizeof ret->file, "%.*s" SEGMENT_SUFFIX, (int)DIRECTORY_ENCODED_MAX,
             ret->encoded);
    directory_default(ret->own);
    ret->directory = directory == NULL ? ret->own : directory;
    r = directory_open(directory, make, reterr);
    if (r < 0)
        return r;
    ret->directory_fd = r;
    return 0;
}

void site_close(struct segment_site *site)
{
    sys_close(site->directory_fd);
    site->directory_fd = -1;
}

static int cannot_open(const struct segment_site *site, int code)
{
    if (code == -ENOENT)
        return error_set(site->reterr, code, "there is no segment `%s` in `%s`",
                         show(site->file).text, show(site->directory).text);
    if (code == -ELOOP || code == -EISDIR || code == -ENXIO)
        return site_error(site, -EPERM, "is refused: it is %s",
                          code == -ELOOP    ? "a symbolic link"
                          : code == -EISDIR ? "a directory"
                                            : "no plain file");
    return site_error(site, code, "cannot be opened: %s", strerrordesc_np(-code));
}

static int check(const struct segment_site *site, int fd, struct stat *ret)
{
    int r = sys_stat_fd(fd, ret);

    if (r < 0)
        return site_error(site, r, "cannot be checked: %s", strerrordesc_np(-r));
    if (!S_ISREG(ret->st_mode))
        return site_error(site, -EPERM, "is refused: it is %s",
                          S_ISDIR(ret->st_mode) ? "a directory" : "no plain file");
    if (ret->st_uid != sys_user())
        return site_error(site, -EPERM, "is refused: it belongs to user %u, not to user %u",
                          ret->st_uid, sys_user());
    if ((ret->st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return site_error(site, -EPERM, "is refused: its mode %04o lets others in",
                          ret->st_mode & 07777);
    if (ret->st_nlink > 1)
        return site_error(site, -EPERM, "is refused: it has %lu names", (long)ret->st_nlink);
    return ret->st_nlink == 0 ? -EAGAIN : 0;
}

static int read_beginning(const struct segment_site *site, struct segment_file *file)
{
    const size_t header_n = sizeof file->header, definition_n = sizeof file->definition;
    int header = sys_read_at(file->fd, 0, &file->header, header_n);
    int definition =
        header < 0 ? header
                   : sys_read_at(file->fd, SEGMENT_DEFINITION_AT, file->definition, definition_n);

    if (definition < 0)
        return site_error(site, definition, "cannot be read: %s", strerrordesc_np(-definition));
    if ((size_t)header < header_n || (size_t)definition < definition_n)
        return site_error(site, -EUCLEAN, "is damaged: it is only %llu bytes long",
                          (unsigned long long)file->size);
    file->definition[definition_n - 1] = '\0';
    return 0;
}

int segment_file_open(const struct segment_site *site, bool writable, struct segment_file *file)
{
    struct stat found;
    int r;

    file->fd = sys_open_in(site->directory_fd, site->file, writable);
    if (file->fd < 0)
        return cannot_open(site, file->fd);
    r = check(site, file->fd, &found);
    if (r < 0)
        return r;
    file->size = (uint64_t)found.st_size;
    file->real_size =
        (uint64_t)found.st_blocks * 512; /* whatever the size of the system's blocks */
    return read_beginning(site, file);
}

void segment_file_close(struct segment_file *file)
{
    sys_close(file->fd);
    file->fd = -1;
}

static int take_name_locked(int directory_fd, const char *encoded, int fd)
{
    char name[DIRECTORY_FILE_SIZE + sizeof SEGMENT_SUFFIX];
    struct stat of_name, of_file;
    int r;

    snprintf(name, sizeof name, "%s" SEGMENT_SUFFIX, encoded);
    r = sys_stat_in(directory_fd, name, &of_name);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    r = sys_stat_fd(fd, &of_file);
    if (r < 0)
        return r;
    if (of_name.st_dev != of_file.st_dev || of_name.st_ino != of_file.st_ino)
        return 0;
    STEP();
    directory_remove_bells(directory_fd, encoded);
    STEP();
    return sys_unlink_in(directory_fd, name);
}

int segment_file_take_name(int directory_fd, const char *encoded, int fd)
{
    struct stat found;
    int r = sys_stat_fd(fd, &found);

    if (r < 0 || found.st_nlink == 0)
        return r;
    r = sys_lock(fd);
    if (r < 0)
        return r;
    STEP();
    r = take_name_locked(directory_fd, encoded, fd);
    STEP();
    sys_unlock(fd);
    return r;
}
