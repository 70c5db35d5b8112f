/* SPDX-License-Identifier: MIT */
/* Opening and checking segment directories, and the names of their files. */
#include "shm/segment_dir.h"

#include "base/error.h"
#include "base/sched_point.h"
#include "os/os.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char literal_chars[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
static const char hex_digits[] = "0123456789ABCDEF";

void segment_dir_default(char ret[static SEGMENT_DIR_PATH_SIZE])
{
    snprintf(ret, SEGMENT_DIR_PATH_SIZE, "/dev/shm/weir-%u", os_user_id());
}

/* Removes trailing slashes: with one, open() follows a symbolic link. */
static int segment_dir_strip_slashes(const char *path, char ret[static PATH_MAX])
{
    size_t length = strlen(path);

    while (length > 1 && path[length - 1] == '/')
        length--;
    if (length >= PATH_MAX)
        return -ENAMETOOLONG;
    memcpy(ret, path, length);
    ret[length] = '\0';
    return 0;
}

static int segment_dir_check_owner(int fd, const char *path, struct weir_error *reterr)
{
    struct stat found;
    int r = os_fstat(fd, &found);

    if (r < 0)
        return error_set(reterr, r, "directory `%s` cannot be checked: %s", error_text(path).text,
                         strerrordesc_np(-r));
    if (found.st_uid != os_user_id())
        return error_set(reterr, -EPERM,
                         "directory `%s` is refused: it belongs to user %u, not to user %u",
                         error_text(path).text, found.st_uid, os_user_id());
    if ((found.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return error_set(
            reterr, -EPERM,
            "directory `%s` is refused: its mode %04o gives other users access: make it 0700",
            error_text(path).text, found.st_mode & 07777);
    return 0;
}

static int segment_dir_open_error(const char *path, int code, struct weir_error *reterr)
{
    if (code == -ENOTDIR || code == -ELOOP)
        return error_set(reterr, -EPERM,
                         "directory `%s` is refused: it is a symbolic link or not a directory",
                         error_text(path).text);
    return error_set(reterr, code, "directory `%s` cannot be opened: %s", error_text(path).text,
                     strerrordesc_np(-code));
}

int segment_dir_open(const char *path, bool make, struct weir_error *reterr)
{
    char default_path[SEGMENT_DIR_PATH_SIZE], clean[PATH_MAX];
    int r = 0, fd;

    segment_dir_default(default_path);
    if (!path && make)
        r = os_mkdir(default_path);
    if (r < 0 && r != -EEXIST)
        return error_set(reterr, r, "directory `%s` cannot be created: %s", default_path,
                         strerrordesc_np(-r));
    r = segment_dir_strip_slashes(!path ? default_path : path, clean);
    if (r < 0)
        return segment_dir_open_error(path, r, reterr);
    fd = os_dir_open_fd(clean);
    if (fd < 0)
        return segment_dir_open_error(clean, fd, reterr);
    r = segment_dir_check_owner(fd, clean, reterr);
    if (r < 0) {
        os_close(fd);
        return r;
    }
    return fd;
}

int segment_dir_encode(const char *name, char ret[static SEGMENT_DIR_FILE_SIZE])
{
    char stem[SEGMENT_DIR_STEM_MAX + 3];
    size_t n = 0;

    if (name[0] == '\0')
        return -EINVAL;
    for (const char *c = name; *c != '\0'; c++) {
        if (strchr(literal_chars, *c)) {
            stem[n++] = *c;
        } else {
            stem[n++] = '%';
            stem[n++] = hex_digits[(unsigned char)*c >> 4];
            stem[n++] = hex_digits[(unsigned char)*c & 15];
        }
        if (n > SEGMENT_DIR_STEM_MAX)
            return -ENAMETOOLONG;
    }
    memcpy(ret, stem, n);
    ret[n] = '\0';
    return 0;
}

bool segment_dir_decode(const char *file, char ret[static SEGMENT_DIR_FILE_SIZE])
{
    const char *end = strchr(file, '.'); /* a stem contains no dot */
    size_t length = end ? (size_t)(end - file) : 0, n = 0;
    char name[SEGMENT_DIR_FILE_SIZE], stem[SEGMENT_DIR_FILE_SIZE];

    if (!length || length >= sizeof(name) || strcmp(end, SEGMENT_SUFFIX) != 0)
        return false;
    for (const char *c = file; c < end; c += *c == '%' ? 3 : 1) {
        unsigned byte = (unsigned char)*c;

        if (*c == '%' && sscanf(c, "%%%2X", &byte) != 1)
            return false;
        name[n++] = (char)byte;
    }
    name[n] = '\0';
    /* Accepts only what segment_dir_encode produces. */
    if (segment_dir_encode(name, stem) < 0 || strlen(stem) != length ||
        memcmp(stem, file, length) != 0)
        return false;
    memcpy(ret, name, n + 1);
    return true;
}

int segment_dir_list(const char *path, int (*found)(void *userdata, const char *set),
                     void *userdata, struct weir_error *reterr)
{
    char file[SEGMENT_DIR_FILE_SIZE], set[SEGMENT_DIR_FILE_SIZE];
    void *directory = NULL;
    int fd = segment_dir_open(path, false, reterr), r = 0, more;

    if (fd < 0)
        return fd;
    more = os_dir_open(fd, ".", &directory);
    os_close(fd);
    if (more == 0) {
        while (r == 0 && (more = os_dir_next(directory, file, sizeof(file))) > 0)
            if (segment_dir_decode(file, set))
                r = found(userdata, set);
        os_dir_close(directory);
    }
    if (more < 0)
        return error_set(reterr, more, "the directory of segments cannot be read: %s",
                         strerrordesc_np(-more));
    return r;
}

static int segment_dir_sweep_file(int directory_fd, const char *name, int is_used)
{
    int r;

    SCHED_POINT();
    r = is_used == 0 ? os_unlink_at(directory_fd, name) : is_used;
    return r < 0 && r != -ENOENT ? r : 0;
}

int segment_dir_sweep(int directory_fd, const char *file_stem,
                      int (*is_used)(int directory_fd, const char *name, const char *file_stem))
{
    char name[SEGMENT_DIR_FILE_SIZE];
    void *list;
    int r = os_dir_open(directory_fd, ".", &list), error = 0, file;

    if (r < 0)
        return r;
    while ((r = os_dir_next(list, name, sizeof(name))) > 0) {
        int used = is_used(directory_fd, name, file_stem);

        if (used == 0 && strstr(name, FRESH_SUFFIX)) {
            SCHED_POINT();
            os_pause();
            used = is_used(directory_fd, name, file_stem);
        }
        file = segment_dir_sweep_file(directory_fd, name, used);
        error = error ? error : file;
    }
    os_dir_close(list);
    return r < 0 ? r : error;
}

int segment_dir_choose(const struct weir_options *options, const char *configured,
                       struct complaints *complaints, char **ret)
{
    const char *dir = options->process_dir ? options->process_dir : configured;
    const char *what = "options.process_dir";

    *ret = NULL;
    if (!dir) {
        dir = os_getenv("WEIR_PROCESS_DIR");
        what = "WEIR_PROCESS_DIR";
        if (!dir || !dir[0])
            return 0;
    }
    if (dir[0] != '/') {
        complaints->file = "";
        complaint_add(complaints, -EINVAL, (struct mark){0, 0},
                      "%s is `%s`, not an absolute path: begin it with `/`", what,
                      error_text(dir).text);
        return complaints_report(complaints);
    }
    *ret = os_strdup(dir);
    return *ret ? 0 : -ENOMEM;
}
