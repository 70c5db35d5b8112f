/* SPDX-License-Identifier: MIT */
/*
 * One plugin file. The dynamic linker believes what a file says of itself: it maps a truncated one
 * and dies of SIGBUS, and calls one for another machine "not found". So the headers are read first.
 */
#include "plugin/plugin_file.h"
#include "base/mutant.h"
#include "os/os.h"
#include "plugin/plugin_builtin.h"
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#else
#error "weir is for x86-64 and aarch64"
#endif

#define PROGRAM_HEADERS_MAX 128u
#define MAJORS_MAX          99u /* of other ABIs that are looked for */

/* The end of a path, which tells the most, in one line. */
struct shown_path {
    char text[128];
};

static struct shown_path show_path(const char *path)
{
    struct shown_path shown;
    size_t length = strlen(path);
    bool cut = length >= sizeof shown.text;

    snprintf(shown.text, sizeof shown.text, "%s%s", cut ? "..." : "",
             cut ? path + length - sizeof shown.text + 4 : path);
    return shown;
}

__attribute__((format(printf, 2, 3))) static int refuse(struct plugin_file *file,
                                                        const char *format, ...)
{
    struct cause cause;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(cause.text, sizeof cause.text, format, arguments);
    va_end(arguments);
    return error_set(&file->refusal, -ENOEXEC, "plugin file `%s` is refused: %s",
                     show_path(file->path).text, cause.text);
}

/* Whoever can write to it could make this process run anything. */
static int owner_check(struct plugin_file *file, const char *what, const struct stat *status)
{
    bool directory = S_ISDIR(status->st_mode);

    if (status->st_uid != 0 && status->st_uid != sys_user() && !MUTANT(50))
        return refuse(file, "%s belongs to user %u; it must belong to root or to user %u", what,
                      status->st_uid, sys_user());
    if ((status->st_mode & 022) != 0 && !(MUTANT(41) && !directory) && !(MUTANT(46) && directory))
        return refuse(file, "%s can be written by others (mode %04o); chmod go-w would help", what,
                      (unsigned)status->st_mode & 07777);
    return 0;
}

static int permission_check(struct plugin_file *file, const char *directory,
                            const struct stat *status)
{
    struct stat parent;
    int r = sys_stat(directory, &parent);

    if (r == -ENOMEM)
        return r;
    if (r < 0)
        return refuse(file, "its directory cannot be looked at: %s", strerrordesc_np(-r));
    r = owner_check(file, "its directory", &parent);
    if (r < 0)
        return r;
    if (!S_ISREG(status->st_mode))
        return refuse(file, "it is not a regular file");
    return owner_check(file, "it", status);
}

/* Whether `size` bytes from `offset` lie within the file. */
static bool is_within(uint64_t offset, uint64_t size, const struct stat *status)
{
    uint64_t end;

    return !__builtin_add_overflow(offset, size, &end) && end <= (uint64_t)status->st_size;
}

/* Reads a part of the file, all of it. */
static int part_read(struct plugin_file *file, uint64_t offset, void *buffer, size_t size)
{
    int n = sys_read_part(file->path, offset, buffer, size);

    if (n == -ENOMEM)
        return n;
    if (n < 0)
        return refuse(file, "it cannot be read: %s", strerrordesc_np(-n));
    return (size_t)n == size ? 0 : refuse(file, "it is truncated");
}

static const char *machine_name(unsigned machine)
{
    return machine == EM_X86_64 ? "x86-64" : machine == EM_AARCH64 ? "aarch64" : "another machine";
}

static int header_check(struct plugin_file *file, const struct stat *status, Elf64_Ehdr *header)
{
    size_t size =
        (uint64_t)status->st_size < sizeof *header ? (size_t)status->st_size : sizeof *header;
    int r = part_read(file, 0, header, size);

    if (r < 0)
        return r;
    if (size < SELFMAG || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
        return refuse(file, "it is not an ELF shared object");
    if (size < sizeof *header)
        return refuse(file, "it is truncated: its header is not complete");
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
        header->e_machine != MACHINE)
        return refuse(file, "it is built for %s; this program runs on %s",
                      header->e_ident[EI_CLASS] != ELFCLASS64 ? "a 32-bit machine"
                                                              : machine_name(header->e_machine),
                      machine_name(MACHINE));
    if (header->e_type != ET_DYN || header->e_phentsize != sizeof(Elf64_Phdr) ||
        header->e_phnum == 0 || header->e_phnum > PROGRAM_HEADERS_MAX)
        return refuse(file, "it is not an ELF shared object");
    return 0;
}

/* Whether all that the headers promise is there. */
static int elf_check(struct plugin_file *file, const struct stat *status)
{
    Elf64_Ehdr header;
    Elf64_Phdr segments[PROGRAM_HEADERS_MAX];
    int r = header_check(file, status, &header);

    if (r < 0 || MUTANT(52))
        return r;
    if (!is_within(header.e_shoff, (uint64_t)header.e_shentsize * header.e_shnum, status))
        return refuse(file, "it is truncated: it has %llu bytes",
                      (unsigned long long)status->st_size);
    r = part_read(file, header.e_phoff, segments, header.e_phnum * sizeof segments[0]);
    if (r < 0)
        return r;
    for (unsigned i = 0; i < header.e_phnum; i++) {
        if (!is_within(segments[i].p_offset, segments[i].p_filesz, status))
            return refuse(file, "it is truncated: it has %llu bytes",
                          (unsigned long long)status->st_size);
    }
    return 0;
}

/* The table, or a refusal that tells a plugin of another time from what is no plugin at all. */
static int table_find(struct plugin_file *file, void *library, const struct weir_plugin_table **ret)
{
    char symbol[32];

    *ret = sys_symbol(library, WEIR_PLUGIN_SYMBOL);
    if (*ret != NULL)
        return 0;
    for (unsigned major = 0; major <= MAJORS_MAX; major++) {
        snprintf(symbol, sizeof symbol, "weir_plugins_v%u", major);
        *ret = sys_symbol(library, symbol);
        if (*ret == NULL)
            continue;
        return MUTANT(43) ? 0
                          : refuse(file,
                                   "it is made for version %u of the plugin interface (`%s`); "
                                   "this library needs version %u",
                                   major, symbol, WEIR_PLUGIN_ABI_MAJOR);
    }
    return refuse(file, "it is not a plugin: it does not export `%s`", WEIR_PLUGIN_SYMBOL);
}

/* Takes what a table has, or refuses the file. */
static int table_accept(struct plugin_file *file, const struct weir_plugin_table *table)
{
    struct cause cause;
    int r = plugin_table_read(table, file->path, &file->loaded, &file->loaded_n, &cause);

    return r == -ENOEXEC ? refuse(file, "%s", cause.text) : r;
}

static int library_load(struct plugin_file *file)
{
    const struct weir_plugin_table *table = NULL;
    void *library = NULL;
    struct cause cause;
    int r = sys_load(file->path, &library, cause.text, sizeof cause.text);

    if (r == -ENOMEM)
        return r;
    if (r < 0)
        return refuse(file, "it cannot be loaded: %.200s", cause.text);
    r = table_find(file, library, &table);
    return r < 0 ? r : table_accept(file, table);
}

/* A built-in plugin has no file to distrust. Its table is checked as that of a file. */
static int builtin_read(struct plugin_file *file, const char *name)
{
    for (const struct plugin_builtin *builtin = plugin_builtins; builtin->file != NULL; builtin++) {
        if (strcmp(builtin->file, name) == 0)
            return table_accept(file, builtin->table);
    }
    return -ENOENT;
}

/* Everything that can be wrong, from the outside in. 0, or a code with `refusal` filled. */
static int file_read(struct plugin_file *file, const char *directory)
{
    struct stat status;
    int r = sys_stat(file->path, &status);

    if (r == -ENOENT || r == -ENOTDIR)
        return -ENOENT;
    if (r == -ENOMEM)
        return r;
    if (r < 0)
        return refuse(file, "it cannot be looked at: %s", strerrordesc_np(-r));
    r = permission_check(file, directory, &status);
    if (r == 0)
        r = elf_check(file, &status);
    return r < 0 ? r : library_load(file);
}

int plugin_file_load(struct plugin_file **ret, const char *directory, const char *name)
{
    struct plugin_file *file = sys_alloc(1, sizeof *file);
    size_t size = strlen(directory) + strlen(name) + 2;
    int r;

    if (file == NULL)
        return -ENOMEM;
    file->path = sys_alloc(size, 1);
    if (file->path == NULL) {
        plugin_file_free(file);
        return -ENOMEM;
    }
    snprintf(file->path, size, "%s/%s", directory, name);
    r = strcmp(directory, PLUGIN_BUILTIN_DIR) == 0 ? builtin_read(file, name)
                                                   : file_read(file, directory);
    if (r == -ENOMEM || r == -ENOENT) {
        plugin_file_free(file);
        return r;
    }
    *ret = file;
    return 0;
}

void plugin_file_free(struct plugin_file *file)
{
    if (file == NULL)
        return;
    plugin_table_free(file->loaded, file->loaded_n);
    sys_free(file->path);
    sys_free(file);
}
