/* SPDX-License-Identifier: MIT */
/* The command line of another process. What /proc says of it is the process's own text: anything.
 */
#include "process_text.h"
#include "grant.h"
#include "utf8.h"
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BYTES_MAX 8192 /* of a command line that is longer, the beginning */
#define WORDS_MAX 512

/* Appends a word, cut before the first character that has no room. */
static void append_word(char ret[static PROCESS_TEXT_MAX], const char *word)
{
    const unsigned char *at = (const unsigned char *)word;
    size_t n = strlen(ret);

    if (n > 0 && n + 1 < PROCESS_TEXT_MAX)
        ret[n++] = ' ';
    while (*at != '\0') {
        size_t length = utf8_sequence(at);

        if (n + (length > 0 ? length : 1) >= PROCESS_TEXT_MAX)
            break;
        if (length == 0 || utf8_is_control(at, length))
            ret[n++] = *at == '\t' || *at == '\n' ? ' ' : '?';
        else
            memcpy(ret + n, at, length), n += length;
        at += length > 0 ? length : 1;
    }
    ret[n] = '\0';
}

/* Returns where the command of `weir exec` begins among the words, or 0: it is another program, or
 * cannot be understood. Leaves getopt as it was. */
static int find_command(int n, char **words)
{
    static const struct option options[] = {
        GRANT_OPTIONS,
        {NULL, 0, NULL, 0},
    };
    const char *slash = strrchr(words[0], '/');
    int kept_index = optind, kept_errors = opterr, option, at;

    if (n < 3 || strcmp(slash ? slash + 1 : words[0], "weir") != 0 || strcmp(words[1], "exec") != 0)
        return 0;
    optind = 0; /* begins anew */
    opterr = 0;
    do
        option = getopt_long(n - 1, words + 1, "+" GRANT_LETTERS, options, NULL);
    while (option != -1 && option != '?');
    at = option == -1 && optind < n - 1 ? optind + 1 : 0;
    optind = kept_index;
    opterr = kept_errors;
    return at;
}

/* Returns the length without the zero bytes and blanks at the end: what a process has left of its
 * words after it wrote a title over them. */
static size_t trim(const char *bytes, size_t n)
{
    while (n > 0 && (bytes[n - 1] == '\0' || bytes[n - 1] == ' '))
        n--;
    return n;
}

void process_text_join(char *bytes, size_t n, char ret[static PROCESS_TEXT_MAX])
{
    char *words[WORDS_MAX + 1];
    size_t kept = trim(bytes, n);
    int words_n = 0;

    ret[0] = '\0';
    if (kept < n)
        bytes[kept] = '\0';
    n = kept;
    for (size_t at = 0; at < n && words_n < WORDS_MAX; at += strlen(bytes + at) + 1)
        words[words_n++] = bytes + at;
    words[words_n] = NULL;
    for (int i = words_n > 0 ? find_command(words_n, words) : 0; i < words_n; i++)
        append_word(ret, words[i][0] != '\0' ? words[i] : "''");
}

/* Reads a file of /proc, with a NUL behind it. Returns the number of bytes or a negative errno. */
static ssize_t read_file(uint32_t process, const char *name, char *ret, size_t size)
{
    char path[40];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%" PRIu32 "/%s", process, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    n = read(fd, ret, size - 1);
    if (n < 0)
        n = -errno;
    else
        ret[n] = '\0';
    close(fd);
    return n;
}

void process_text_name(uint32_t process, char ret[static PROCESS_TEXT_MAX])
{
    char name[32];

    ret[0] = '\0';
    if (read_file(process, "comm", name, sizeof(name)) <= 0)
        return;
    name[strcspn(name, "\n")] = '\0';
    append_word(ret, name);
}

/* Returns whether there is such a process, as far as this one may know. */
static bool is_alive(uint32_t process)
{
    return process > 0 && process <= INT32_MAX && (kill((pid_t)process, 0) == 0 || errno == EPERM);
}

/* Of a process that has no command line, a zombie for one, its name. */
bool process_text_read(uint32_t process, char ret[static PROCESS_TEXT_MAX])
{
    char bytes[BYTES_MAX], name[PROCESS_TEXT_MAX];
    ssize_t n = read_file(process, "cmdline", bytes, sizeof(bytes));

    if (n > 0)
        process_text_join(bytes, (size_t)n, ret);
    if (n > 0 && ret[0] != '\0')
        return true;
    process_text_name(process, name);
    if (name[0] != '\0')
        snprintf(ret, PROCESS_TEXT_MAX, "[%.32s]", name);
    else if (n < 0 && is_alive(process))
        snprintf(ret, PROCESS_TEXT_MAX, "(cannot be read: %s)",
                 n == -ENOENT ? "hidden" : strerror((int)-n));
    else
        snprintf(ret, PROCESS_TEXT_MAX, "(gone)");
    return false;
}
