/* SPDX-License-Identifier: MIT */
/* Directories of segments: checked when they are opened, and how their files are named. */
#include "shm/segment_dir.h"

#include "base/error.h"
#include "os/os.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
static const char digits[] = "0123456789ABCDEF";

void directory_default(char ret[static DIRECTORY_PATH_SIZE])
{
    snprintf(ret, DIRECTORY_PATH_SIZE, "/dev/shm/weir-%u", sys_user());
}

/* Behind a slash at the end a link would be followed. */
static int without_slashes(const char *path, char ret[static PATH_MAX])
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

static int check(int fd, const char *path, struct weir_error *reterr)
{
    struct stat found;
    int r = sys_stat_fd(fd, &found);

    if (r < 0)
        return error_set(reterr, r, "directory `%s` cannot be checked: %s", show(path).text,
                         strerrordesc_np(-r));
    if (found.st_uid != sys_user())
        return error_set(reterr, -EPERM,
                         "directory `%s` is refused: it belongs to user %u, not to user %u",
                         show(path).text, found.st_uid, sys_user());
    if ((found.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return error_set(reterr, -EPERM,
                         "directory `%s` is refused: its mode %04o lets others in, make it 0700",
                         show(path).text, found.st_mode & 07777);
    return 0;
}

static int cannot_open(const char *path, int code, struct weir_error *reterr)
{
    if (code == -ENOTDIR || code == -ELOOP)
        return error_set(reterr, -EPERM,
                         "directory `%s` is refused: it is a symbolic link or no directory",
                         show(path).text);
    return error_set(reterr, code, "directory `%s` cannot be opened: %s", show(path).text,
                     strerrordesc_np(-code));
}

int directory_open(const char *path, bool make, struct weir_error *reterr)
{
    char own[DIRECTORY_PATH_SIZE], clean[PATH_MAX];
    int r = 0, fd;

    directory_default(own);
    if (path == NULL && make)
        r = sys_make_directory(own);
    if (r < 0 && r != -EEXIST)
        return error_set(reterr, r, "directory `%s` cannot be made: %s", own, strerrordesc_np(-r));
    r = without_slashes(path == NULL ? own : path, clean);
    if (r < 0)
        return cannot_open(path, r, reterr);
    fd = sys_open_directory_fd(clean);
    if (fd < 0)
        return cannot_open(clean, fd, reterr);
    r = check(fd, clean, reterr);
    if (r < 0) {
        sys_close(fd);
        return r;
    }
    return fd;
}

int directory_encode(const char *name, char ret[static DIRECTORY_FILE_SIZE])
{
    char encoded[DIRECTORY_ENCODED_MAX + 3];
    size_t n = 0;

    if (name[0] == '\0')
        return -EINVAL;
    for (const char *c = name; *c != '\0'; c++) {
        if (strchr(plain, *c) != NULL) {
            encoded[n++] = *c;
        } else {
            encoded[n++] = '%';
            encoded[n++] = digits[(unsigned char)*c >> 4];
            encoded[n++] = digits[(unsigned char)*c & 15];
        }
        if (n > DIRECTORY_ENCODED_MAX)
            return -ENAMETOOLONG;
    }
    memcpy(ret, encoded, n);
    ret[n] = '\0';
    return 0;
}

/* The byte at `*text`, which moves behind it; 0: there is none, or a broken one. */
static char decode_byte(const char **text)
{
    const char *at = *text, *high, *low;

    if (*at != '%') {
        *text += *at != '\0';
        return *at;
    }
    if (at[1] == '\0' || at[2] == '\0')
        return '\0';
    high = strchr(digits, at[1]);
    low = strchr(digits, at[2]);
    if (high == NULL || low == NULL)
        return '\0';
    *text += 3;
    return (char)(unsigned char)((high - digits) << 4 | (low - digits));
}

bool directory_decode(const char *file, char ret[static DIRECTORY_FILE_SIZE])
{
    const size_t length = strlen(file), suffix = sizeof SEGMENT_SUFFIX - 1;
    char stem[DIRECTORY_FILE_SIZE], name[DIRECTORY_FILE_SIZE], again[DIRECTORY_FILE_SIZE];
    const char *at = stem;
    size_t n = 0;

    if (length <= suffix || length >= sizeof stem ||
        strcmp(file + length - suffix, SEGMENT_SUFFIX) != 0)
        return false;
    memcpy(stem, file, length - suffix);
    stem[length - suffix] = '\0';
    while ((name[n] = decode_byte(&at)) != '\0')
        n++;
    /* Only what we would have written ourselves. */
    if (directory_encode(name, again) < 0 || strcmp(again, stem) != 0)
        return false;
    memcpy(ret, name, n + 1);
    return true;
}

static int list(void *directory, int (*found)(void *userdata, const char *set), void *userdata,
                struct weir_error *reterr)
{
    char file[DIRECTORY_FILE_SIZE], set[DIRECTORY_FILE_SIZE];
    int r = 0;

    while (r == 0) {
        int more = sys_next_entry(directory, file, sizeof file);

        if (more < 0)
            return error_set(reterr, more, "the directory of segments cannot be read: %s",
                             strerrordesc_np(-more));
        if (more == 0)
            return 0;
        if (directory_decode(file, set))
            r = found(userdata, set);
    }
    return r;
}

int directory_list(const char *path, int (*found)(void *userdata, const char *set), void *userdata,
                   struct weir_error *reterr)
{
    void *directory = NULL;
    int fd = directory_open(path, false, reterr), r;

    if (fd < 0)
        return fd;
    r = sys_list_directory(fd, &directory);
    sys_close(fd);
    if (r < 0)
        return error_set(reterr, r, "the directory of segments cannot be read: %s",
                         strerrordesc_np(-r));
    r = list(directory, found, userdata, reterr);
    sys_close_directory(directory);
    return r;
}

static bool is_bell(const char *file, const char *encoded)
{
    size_t length = strlen(encoded), file_length = strlen(file);

    return file_length > length + sizeof BELL_SUFFIX && strncmp(file, encoded, length) == 0 &&
           file[length] == '.' &&
           strcmp(file + file_length + 1 - sizeof BELL_SUFFIX, BELL_SUFFIX) == 0;
}

void directory_remove_bells(int directory_fd, const char *encoded)
{
    char file[DIRECTORY_FILE_SIZE];
    void *directory = NULL;

    if (sys_list_directory(directory_fd, &directory) < 0)
        return;
    while (sys_next_entry(directory, file, sizeof file) > 0)
        if (is_bell(file, encoded))
            (void)sys_unlink_in(directory_fd, file); /* one that stays is merely in the way */
    sys_close_directory(directory);
}
