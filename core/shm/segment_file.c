/* SPDX-License-Identifier: MIT */
/* Opening, checking and unlinking segment files. */
#include "shm/segment_file.h"

#include "base/invariant.h"
#include "base/sched_point.h"
#include "os/os.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

int segment_location_open(const char *directory, const char *name, bool make,
                          struct segment_location *ret, struct weir_error *reterr)
{
    int r = segment_dir_encode(name, ret->file_stem);

    ret->directory_fd = -1;
    ret->reterr = reterr;
    if (r == -ENAMETOOLONG)
        return error_set(reterr, r,
                         "the name `%s` is too long for a shared set: at most %u bytes, where each "
                         "byte other than a letter, digit, `-` or `_` counts as three",
                         error_text(name).text, SEGMENT_DIR_STEM_MAX);
    if (r < 0)
        return error_set(reterr, r, "a shared set needs a name");
    snprintf(ret->file, sizeof ret->file, "%.*s" SEGMENT_SUFFIX, (int)SEGMENT_DIR_STEM_MAX,
             ret->file_stem);
    segment_dir_default(ret->default_directory);
    ret->directory = directory == NULL ? ret->default_directory : directory;
    r = segment_dir_open(directory, make, reterr);
    if (r < 0)
        return r;
    ret->directory_fd = r;
    return 0;
}

void segment_location_close(struct segment_location *location)
{
    os_close(location->directory_fd);
    location->directory_fd = -1;
}

static int segment_file_open_error(const struct segment_location *location, int code)
{
    if (code == -ENOENT)
        return error_set(location->reterr, code, "there is no segment `%s` in `%s`",
                         error_text(location->file).text, error_text(location->directory).text);
    if (code == -ELOOP || code == -EISDIR || code == -ENXIO)
        return segment_error(location, -EPERM, "is refused: it is %s",
                             code == -ELOOP    ? "a symbolic link"
                             : code == -EISDIR ? "a directory"
                                               : "not a regular file");
    return segment_error(location, code, "cannot be opened: %s", strerrordesc_np(-code));
}

static int segment_file_check_owner(const struct segment_location *location, int fd,
                                    struct stat *ret)
{
    int r = os_fstat(fd, ret);

    if (r < 0)
        return segment_error(location, r, "cannot be checked: %s", strerrordesc_np(-r));
    if (!S_ISREG(ret->st_mode))
        return segment_error(location, -EPERM, "is refused: it is %s",
                             S_ISDIR(ret->st_mode) ? "a directory" : "not a regular file");
    if (ret->st_uid != os_user_id())
        return segment_error(location, -EPERM, "is refused: it belongs to user %u, not to user %u",
                             ret->st_uid, os_user_id());
    if ((ret->st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return segment_error(location, -EPERM, "is refused: its mode %04o gives other users access",
                             ret->st_mode & 07777);
    if (ret->st_nlink > 1)
        return segment_error(location, -EPERM, "is refused: it has %lu hard links",
                             (long)ret->st_nlink);
    return ret->st_nlink == 0 ? -EAGAIN : 0;
}

static int segment_file_read_header(const struct segment_location *location,
                                    struct segment_file *file)
{
    const size_t header_n = sizeof file->header, definition_n = sizeof file->definition;
    int header = os_pread(file->fd, 0, &file->header, header_n);
    int definition =
        header < 0 ? header
                   : os_pread(file->fd, SEGMENT_DEFINITION_AT, file->definition, definition_n);

    if (definition < 0)
        return segment_error(location, definition, "cannot be read: %s",
                             strerrordesc_np(-definition));
    if ((size_t)header < header_n || (size_t)definition < definition_n)
        return segment_error(location, -EUCLEAN, "is damaged: it is only %llu bytes long",
                             (unsigned long long)file->size);
    file->definition[definition_n - 1] = '\0';
    return 0;
}

int segment_file_open(const struct segment_location *location, bool writable,
                      struct segment_file *file)
{
    struct stat found;
    int r;

    file->fd = os_open_at(location->directory_fd, location->file, writable);
    if (file->fd < 0)
        return segment_file_open_error(location, file->fd);
    r = segment_file_check_owner(location, file->fd, &found);
    if (r < 0)
        return r;
    file->size = (uint64_t)found.st_size;
    file->real_size = (uint64_t)found.st_blocks * 512; /* st_blocks always counts 512 bytes */
    return segment_file_read_header(location, file);
}

void segment_file_close(struct segment_file *file)
{
    os_close(file->fd);
    file->fd = -1;
}

static int segment_file_unlink_locked(int directory_fd, const char *stem, int fd)
{
    char name[SEGMENT_DIR_FILE_SIZE + sizeof SEGMENT_SUFFIX];
    struct stat of_name, of_file;
    int r;

    snprintf(name, sizeof name, "%s" SEGMENT_SUFFIX, stem);
    r = os_stat_at(directory_fd, name, &of_name);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    r = os_fstat(fd, &of_file);
    if (r < 0)
        return r;
    if (of_name.st_dev != of_file.st_dev || of_name.st_ino != of_file.st_ino)
        return 0;
    segment_dir_remove_doorbells(directory_fd, stem);
    SCHED_POINT();
    return os_unlink_at(directory_fd, name);
}

int segment_file_unlink(int directory_fd, const char *stem, int fd)
{
    struct stat found;
    int r = os_fstat(fd, &found);

    WEIR_INVARIANT(fd >= 0 && directory_fd >= 0);
    if (r < 0 || found.st_nlink == 0)
        return r;
    r = os_file_lock(fd);
    if (r < 0)
        return r;
    SCHED_POINT();
    r = segment_file_unlink_locked(directory_fd, stem, fd);
    SCHED_POINT();
    os_file_unlock(fd);
    return r;
}

int segment_visit(const char *directory, const char *name, bool writable, segment_visit_fn *visit,
                  void *userdata, struct weir_error *reterr)
{
    struct segment_location location;
    struct segment_file *file = os_alloc(1, sizeof(*file));
    struct weir_error error;
    int r;

    if (!file)
        return error_set(reterr, -ENOMEM, "out of memory");
    r = segment_location_open(directory, name, false, &location, &error);
    if (r == 0) {
        r = visit(&location, file, segment_file_open(&location, writable, file), userdata);
        segment_file_close(file);
    }
    segment_location_close(&location);
    os_free(file);
    if (r < 0 && r != -EAGAIN && reterr)
        *reterr = error;
    return r;
}
