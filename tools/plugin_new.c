/* SPDX-License-Identifier: MIT */
/* `weir plugin new`: writes the directory of a new plugin, all of it or nothing. */
#include "plugin.h"
#include "plugin_templates.h"
#include "usage.h"
#include "weir.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help[] =
    "Usage: weir plugin new algorithm|balancer [--language LANGUAGE] [--directory DIR] NAME\n"
    "\n"
    "Writes a plugin to begin with: one that works, with a test against a reference, an example "
    "of\n"
    "a configuration, a Makefile that needs nothing but an installed weir, and a README.md. NAME "
    "is\n"
    "VENDOR.NAME, as acme.quota.\n"
    "\n"
    "  -l, --language LANGUAGE   c (default), c++ or rust\n"
    "  -d, --directory DIR       where; it is missing or empty. Default: a directory NAME here\n"
    "  -h, --help                show this text\n"
    "\n"
    "Exit status: 0 it was written, 2 wrong usage, 3 it cannot be written, and nothing was.\n";

#define NAME_MAX_LENGTH 64u /* of a plugin: weir/plugin.h */

struct plugin_kit {
    const char *name, *directory, *source;
    unsigned kind, language; /* one bit of each: plugin_templates.h */
    uint64_t state_id;
    int directory_fd;
    bool is_made;     /* the directory was not there before */
    size_t written_n; /* templates of which the files are there */
};

struct plugin_word {
    const char *word;
    unsigned value;
    const char *source; /* of a language: the file with the plugin */
};

static const struct plugin_word kinds[] = {
    {"algorithm", TEMPLATE_ALGORITHM, NULL},
    {"balancer", TEMPLATE_BALANCER, NULL},
    {NULL, 0, NULL},
};
static const struct plugin_word languages[] = {
    {"c", TEMPLATE_C, "plugin.c"},
    {"c++", TEMPLATE_CPP, "plugin.cc"},
    {"rust", TEMPLATE_RUST, "plugin.rs"},
    {NULL, 0, NULL},
};

static const struct plugin_word *find_word(const struct plugin_word *words, const char *word)
{
    for (; words->word; words++)
        if (strcmp(words->word, word) == 0)
            return words;
    return NULL;
}

/* Returns what is wrong with the name of a plugin, or NULL: nothing is. */
static const char *name_complaint(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    size_t vendor = strspn(name, allowed);
    size_t rest = name[vendor] == '.' ? strspn(name + vendor + 1, allowed) : 0;

    if (vendor > 0 && !name[vendor])
        return "the name has no vendor. Those without one are weir's own; right would be "
               "VENDOR.NAME, as acme.";
    if (vendor == 0 || rest == 0 || name[vendor + 1 + rest])
        return "the name is to be VENDOR.NAME, each of letters a-z, digits and _, as acme.quota, "
               "not ";
    if (vendor + 1 + rest > NAME_MAX_LENGTH)
        return "the name has more than 64 bytes: ";
    return NULL;
}

/* Says what failed for a file of the directory, or for the directory itself. Returns an exit code.
 */
static int kit_fail(const struct plugin_kit *kit, const char *file, const char *why)
{
    fprintf(stderr, "weir plugin new: %s%s%s: %s\n", kit->directory, file ? "/" : "",
            file ? file : "", why);
    return ENDING_SYSTEM;
}

/* ---- files ---- */

static bool kit_has(const struct plugin_kit *kit, const struct plugin_template *template)
{
    return template->kinds & kit->kind && template->languages & kit->language;
}

/* Returns the size of the placeholder that `text` begins with, and what stands for it; or 0. */
static size_t find_placeholder(const struct plugin_kit *kit, const unsigned char *text, size_t size,
                               const char **ret)
{
    static char state_id[sizeof("0x0123456789abcdef")];
    const struct {
        const char *placeholder, *value;
    } words[] = {{"__NAME__", kit->name}, {"__SOURCE__", kit->source}, {"__STATE_ID__", state_id}};

    snprintf(state_id, sizeof(state_id), "0x%016" PRIx64, kit->state_id);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t length = strlen(words[i].placeholder);

        if (length <= size && memcmp(text, words[i].placeholder, length) == 0) {
            *ret = words[i].value;
            return length;
        }
    }
    return 0;
}

/* Writes a template with the values of its placeholders. */
static void kit_render(const struct plugin_kit *kit, const struct plugin_template *template,
                       FILE *out)
{
    const unsigned char *bytes = template->bytes;
    const char *value;

    for (size_t at = 0, length; at < template->size; at += length) {
        length =
            bytes[at] == '_' ? find_placeholder(kit, bytes + at, template->size - at, &value) : 0;
        if (length) {
            fputs(value, out);
        } else {
            length = 1;
            putc(bytes[at], out);
        }
    }
}

/* Writes one file, which is not there. Returns 0 or a negative errno. */
static int kit_write_file(const struct plugin_kit *kit, const struct plugin_template *template)
{
    int fd = openat(kit->directory_fd, template->file,
                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    int r = 0;

    if (!out) {
        r = -errno;
        if (fd >= 0)
            close(fd);
    } else {
        kit_render(kit, template, out);
        if (fflush(out) != 0 || ferror(out))
            r = errno ? -errno : -EIO;
        if (fclose(out) != 0 && r == 0)
            r = -errno;
    }
    if (r < 0 && fd >= 0)
        unlinkat(kit->directory_fd, template->file, 0);
    return r;
}

/* Removes what was written, and the directory if it was made. */
static void kit_remove(const struct plugin_kit *kit)
{
    for (size_t i = 0; i < kit->written_n; i++)
        if (kit_has(kit, &plugin_templates[i]))
            unlinkat(kit->directory_fd, plugin_templates[i].file, 0);
    if (kit->is_made)
        rmdir(kit->directory);
}

static int kit_write_files(struct plugin_kit *kit)
{
    for (; kit->written_n < plugin_templates_n; kit->written_n++) {
        const struct plugin_template *template = &plugin_templates[kit->written_n];
        int r = kit_has(kit, template) ? kit_write_file(kit, template) : 0;

        if (r == 0)
            continue;
        kit_remove(kit);
        return kit_fail(kit, template->file, strerror(-r));
    }
    return ENDING_FINE;
}

/* ---- the directory ---- */

/* Returns 0 if the directory is empty; -ENOTEMPTY, or why it cannot be read. */
static int kit_see_empty(const struct plugin_kit *kit)
{
    int fd = openat(kit->directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    int r = 0;

    if (!directory) {
        r = -errno;
        if (fd >= 0)
            close(fd);
        return r;
    }
    errno = 0;
    while (r == 0 && (entry = readdir(directory)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            r = -ENOTEMPTY;
    if (r == 0 && errno)
        r = -errno;
    closedir(directory);
    return r;
}

/* Makes the directory, or opens an empty one. A symbolic link in its place is not followed. */
static int kit_open_directory(struct plugin_kit *kit)
{
    int r;

    kit->is_made = mkdir(kit->directory, 0755) == 0;
    if (!kit->is_made && errno != EEXIST)
        return kit_fail(kit, NULL, strerror(errno));
    kit->directory_fd = open(kit->directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (kit->directory_fd < 0) {
        r = errno;
        if (kit->is_made)
            rmdir(kit->directory);
        return kit_fail(kit, NULL,
                        r == ENOTDIR || r == ELOOP ? "is there, and no directory" : strerror(r));
    }
    r = kit->is_made ? 0 : kit_see_empty(kit);
    if (r < 0) {
        close(kit->directory_fd);
        return kit_fail(kit, NULL,
                        r == -ENOTEMPTY ? "is there, and not empty: nothing is overwritten"
                                        : strerror(-r));
    }
    return ENDING_FINE;
}

static int kit_write(struct plugin_kit *kit)
{
    int ending;

    do {
        if (getrandom(&kit->state_id, sizeof(kit->state_id), 0) != sizeof(kit->state_id))
            return kit_fail(kit, NULL, "no random number can be had");
    } while (kit->state_id == 0);
    ending = kit_open_directory(kit);
    if (ending != ENDING_FINE)
        return ending;
    ending = kit_write_files(kit);
    close(kit->directory_fd);
    if (ending == ENDING_FINE)
        printf("%s: written. Next, in it: make check\n", kit->directory);
    return ending;
}

/* ---- the command line ---- */

/* Reads what is no option: kind and name. Returns ENDING_FINE, or after a complaint another one. */
static int kit_read_words(struct plugin_kit *kit, const char *title, char **words)
{
    const struct plugin_word *kind;
    const char *complaint;

    if (!words[0])
        return usage_wrong(title, "no kind is given: algorithm or balancer", "");
    kind = find_word(kinds, words[0]);
    if (!kind)
        return usage_wrong(title, "the kind is algorithm or balancer, not ", words[0]);
    if (!words[1])
        return usage_wrong(title, "no name is given: VENDOR.NAME, as acme.quota", "");
    if (words[2])
        return usage_wrong(title, "one name is enough: what is ", words[2]);
    complaint = name_complaint(words[1]);
    if (complaint)
        return usage_wrong(title, complaint, words[1]);
    kit->kind = kind->value;
    kit->name = words[1];
    if (!kit->directory)
        kit->directory = kit->name;
    return ENDING_FINE;
}

int run_plugin_new(int argc, char **argv)
{
    static const struct option options[] = {
        {"directory", required_argument, NULL, 'd'},
        {"help", no_argument, NULL, 'h'},
        {"language", required_argument, NULL, 'l'},
        {NULL, 0, NULL, 0},
    };
    const struct plugin_word *language = &languages[0];
    struct plugin_kit kit = {.directory_fd = -1};
    int option, ending;

    while ((option = getopt_long(argc, argv, "d:hl:", options, NULL)) != -1) {
        if (option == 'h')
            return usage_help(help);
        if (option == 'd')
            kit.directory = optarg;
        else if (option == 'l' && !(language = find_word(languages, optarg)))
            return usage_wrong(argv[0], "--language takes c, c++ or rust, not ", optarg);
        else if (option == '?')
            return usage_hint(argv[0]);
    }
    kit.language = language->value;
    kit.source = language->source;
    ending = kit_read_words(&kit, argv[0], argv + optind);
    return ending == ENDING_FINE ? kit_write(&kit) : ending;
}
