/* SPDX-License-Identifier: MIT */
/* Opening, checking and unlinking segment files. */
#include "shm/segment_file.h"

#include "base/invariant.h"
#include "base/sched_point.h"
#include "os/os.h"
#include "shm/doorbell.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int segment_file_read_host(struct segment_file *file)
{
    int r = os_boot_id(file->boot_id);

    if (r == 0)
        r = os_namespace_id("pid", &file->pid_namespace);
    if (r == 0)
        r = os_namespace_id("time", &file->time_namespace);
    return r < 0 ? error_set(&file->error, r, "a shared set needs /proc: %s", strerrordesc_np(-r))
                 : 0;
}

/* Sets the names. */
static int segment_file_name(struct segment_file *file, const char *directory, const char *name)
{
    struct segment *segment = file->segment;
    int r = segment_dir_encode(name, segment->file_stem);

    if (r == -ENAMETOOLONG)
        return error_set(&file->error, r,
                         "the name `%s` is too long for a shared set: at most %u bytes, where each "
                         "byte other than a letter, digit, `-` or `_` counts as three",
                         error_text(name).text, SEGMENT_DIR_STEM_MAX);
    if (r < 0)
        return error_set(&file->error, r, "a shared set needs a name");
    snprintf(segment->file_name, sizeof(segment->file_name), "%.*s" SEGMENT_SUFFIX,
             (int)SEGMENT_DIR_STEM_MAX, segment->file_stem);
    segment_dir_default(file->default_directory);
    file->directory = directory ? directory : file->default_directory;
    return 0;
}

int segment_file_locate(const char *directory, const char *name, bool make,
                        struct segment_file **ret, struct weir_error *reterr)
{
    struct segment_file *file = os_alloc(1, sizeof(*file));
    struct segment *segment = os_alloc(1, sizeof(*segment));
    int r;

    if (!file || !segment) {
        os_free(file);
        os_free(segment);
        return error_set(reterr, -ENOMEM, "out of memory");
    }
    segment->fd = segment->directory_fd = -1;
    segment->broken = &segment->own_broken;
    file->segment = segment;
    r = segment_file_name(file, directory, name);
    if (r == 0)
        r = segment->directory_fd = segment_dir_open(directory, make, &file->error);
    if (r >= 0)
        r = segment_file_read_host(file);
    if (r < 0)
        return segment_file_finish(file, r, NULL, reterr);
    *ret = file;
    return 0;
}

int segment_file_finish(struct segment_file *file, int r, struct segment **ret,
                        struct weir_error *reterr)
{
    if (r == 0 && ret)
        *ret = file->segment;
    else
        segment_close(file->segment);
    if (r < 0 && reterr)
        *reterr = file->error;
    os_free(file);
    return r;
}

static int segment_file_open_error(struct segment_file *file, int code)
{
    if (code == -ENOENT)
        return error_set(&file->error, code, "there is no segment `%s` in `%s`",
                         error_text(file->segment->file_name).text,
                         error_text(file->directory).text);
    if (code == -ELOOP || code == -EISDIR || code == -ENXIO)
        return segment_error(file, -EPERM, "is refused: it is %s",
                             code == -ELOOP    ? "a symbolic link"
                             : code == -EISDIR ? "a directory"
                                               : "not a regular file");
    return segment_error(file, code, "cannot be opened: %s", strerrordesc_np(-code));
}

static int segment_file_check_owner(struct segment_file *file, struct stat *ret)
{
    int r = os_fstat(file->segment->fd, ret);

    if (r < 0)
        return segment_error(file, r, "cannot be checked: %s", strerrordesc_np(-r));
    if (!S_ISREG(ret->st_mode))
        return segment_error(file, -EPERM, "is refused: it is %s",
                             S_ISDIR(ret->st_mode) ? "a directory" : "not a regular file");
    if (ret->st_uid != os_user_id())
        return segment_error(file, -EPERM, "is refused: it belongs to user %u, not to user %u",
                             ret->st_uid, os_user_id());
    if ((ret->st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return segment_error(file, -EPERM, "is refused: its mode %04o gives other users access",
                             ret->st_mode & 07777);
    if (ret->st_nlink > 1)
        return segment_error(file, -EPERM, "is refused: it has %lu hard links",
                             (long)ret->st_nlink);
    return ret->st_nlink == 0 ? -EAGAIN : 0;
}

static int segment_file_read_header(struct segment_file *file)
{
    const size_t header_n = sizeof(file->header), definition_n = sizeof(file->definition);
    int fd = file->segment->fd, header = os_pread(fd, 0, &file->header, header_n);
    int definition =
        header < 0 ? header : os_pread(fd, SEGMENT_DEFINITION_AT, file->definition, definition_n);

    if (definition < 0)
        return segment_error(file, definition, "cannot be read: %s", strerrordesc_np(-definition));
    if ((size_t)header < header_n || (size_t)definition < definition_n)
        return segment_error(file, -EUCLEAN, "is damaged: it is only %llu bytes long",
                             (unsigned long long)file->size);
    file->definition[definition_n - 1] = '\0';
    return 0;
}

int segment_file_open(struct segment_file *file, bool writable)
{
    struct segment *segment = file->segment;
    struct stat found;
    int r;

    segment->fd = os_open_at(segment->directory_fd, segment->file_name, writable);
    if (segment->fd < 0)
        return segment_file_open_error(file, segment->fd);
    r = segment_file_check_owner(file, &found);
    if (r < 0)
        return r;
    file->size = (uint64_t)found.st_size;
    file->real_size = (uint64_t)found.st_blocks * 512; /* st_blocks always counts 512 bytes */
    return segment_file_read_header(file);
}

int segment_file_map(struct segment_file *file, const struct segment_layout *layout)
{
    struct segment *segment = file->segment;
    void *base = NULL;
    int r;

    WEIR_INVARIANT(segment->fd >= 0 && segment->directory_fd >= 0 && !segment->base);
    r = segment->leaves_sigbus ? 0 : os_fault_install();
    if (r == 0)
        r = os_map_shared(segment->fd, layout->size, true, segment->broken, &base);
    if (r < 0)
        return segment_error(file, r, "cannot be mapped: %s", strerrordesc_np(-r));
    segment->base = base;
    segment->layout = *layout;
    segment->while_used = file->header.identity.while_used;
    segment->secret = file->header.identity.secret;
    doorbell_stem(segment->doorbell_stem, segment->file_stem, file->header.identity.generation);
    return 0;
}

int segment_file_check_whole(struct segment_file *file)
{
    if (!segment_is_broken(file->segment))
        return 0;
    return segment_error(file, -EUCLEAN, "is damaged: %s; remove it with `weir rm -f`",
                         "it was truncated while it was opened");
}

bool segment_is_truncated(const struct segment *segment)
{
    struct stat found;

    return os_fstat(segment->fd, &found) == 0 &&
           (uint64_t)found.st_size < (uint64_t)segment->layout.size;
}

void segment_file_close(struct segment *segment)
{
    if (segment->base)
        os_unmap_shared(segment->base, segment->layout.size);
    os_close(segment->fd);
    segment->base = NULL;
    segment->fd = -1;
}

void segment_close(struct segment *segment)
{
    if (!segment)
        return;
    segment_file_close(segment);
    os_close(segment->directory_fd);
    os_free(segment);
}

void segment_close_in_child(const struct segment *segment)
{
    os_close(segment->fd);
    os_close(segment->directory_fd);
}

static int segment_file_unlink_locked(const struct segment *segment)
{
    struct stat of_name, of_file;
    int r = os_stat_at(segment->directory_fd, segment->file_name, &of_name);

    if (r < 0)
        return r == -ENOENT ? 0 : r;
    r = os_fstat(segment->fd, &of_file);
    if (r < 0)
        return r;
    if (of_name.st_dev != of_file.st_dev || of_name.st_ino != of_file.st_ino)
        return 0;
    /* A doorbell that stays does no harm. Those of users that go on after a forced removal do. */
    (void)doorbell_sweep(segment->directory_fd, segment->file_stem);
    SCHED_POINT();
    return os_unlink_at(segment->directory_fd, segment->file_name);
}

int segment_file_unlink(const struct segment *segment)
{
    struct stat found;
    int r = os_fstat(segment->fd, &found);

    WEIR_INVARIANT(segment->fd >= 0 && segment->directory_fd >= 0);
    if (r < 0 || found.st_nlink == 0)
        return r;
    r = os_file_lock(segment->fd);
    if (r < 0)
        return r;
    SCHED_POINT();
    r = segment_file_unlink_locked(segment);
    SCHED_POINT();
    os_file_unlock(segment->fd);
    return r;
}
