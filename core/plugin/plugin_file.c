/* SPDX-License-Identifier: MIT */
/*
 * Checks and loads one plugin file. The ELF headers are checked before the dynamic linker sees the
 * file, because the linker trusts them: a truncated file ends in SIGBUS, and a file for another
 * machine is reported as "not found".
 */
#include "plugin/plugin_file.h"
#include "base/hash.h"
#include "os/os.h"
#include <elf.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#define ELF_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define ELF_MACHINE EM_AARCH64
#else
#error "weir is for x86-64 and aarch64"
#endif

#define REASON_MAX          300u /* bytes of a reason in a refusal */
#define PATH_TEXT_MAX       128u /* bytes of a path there */
#define PROGRAM_HEADERS_MAX 128u
#define ABI_MAJORS_MAX      99u /* other ABI majors to look for, in a refused file */
#define FILE_SIZE_MAX       ((size_t)1 << 28)

int plugin_file_refuse(struct plugin_file *file, const char *format, ...)
{
    char reason[REASON_MAX];
    size_t length = strlen(file->path);
    bool is_cut = length >= PATH_TEXT_MAX; /* the end of a path is its most specific part */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    return error_set(&file->refusal, -ENOEXEC, "plugin file `%s%s` is refused: %s",
                     is_cut ? "..." : "",
                     is_cut ? file->path + length - PATH_TEXT_MAX + 4 : file->path, reason);
}

/* Checks that no other user may write to the file or directory. A plugin is code that runs in this
 * process. */
static int plugin_file_check_owner(struct plugin_file *file, const char *what,
                                   const struct stat *status)
{
    if (status->st_uid != 0 && status->st_uid != os_user_id())
        return plugin_file_refuse(file,
                                  "%s belongs to user %u; it must belong to root or to user %u",
                                  what, status->st_uid, os_user_id());
    if ((status->st_mode & 022) != 0)
        return plugin_file_refuse(file,
                                  "%s can be written by others (mode %04o); chmod go-w would help",
                                  what, (unsigned)status->st_mode & 07777);
    return 0;
}

static int plugin_file_check_mode(struct plugin_file *file, const struct stat *status)
{
    struct stat parent;
    int r = os_stat(file->dir, &parent);
    if (r == -ENOMEM)
        return r;
    if (r < 0)
        return plugin_file_refuse(file, "its directory cannot be inspected: %s",
                                  strerrordesc_np(-r));
    r = plugin_file_check_owner(file, "its directory", &parent);
    if (r < 0)
        return r;
    if (!S_ISREG(status->st_mode))
        return plugin_file_refuse(file, "it is not a regular file");
    return plugin_file_check_owner(file, "it", status);
}

/* Reads a part of the file completely. */
static int plugin_file_read_part(struct plugin_file *file, uint64_t offset, void *buffer,
                                 size_t size)
{
    int n = os_file_read_part(file->path, offset, buffer, size);
    if (n == -ENOMEM)
        return n;
    if (n < 0)
        return plugin_file_refuse(file, "it cannot be read: %s", strerrordesc_np(-n));
    return (size_t)n == size ? 0 : plugin_file_refuse(file, "it is truncated");
}

static const char *elf_machine_name(unsigned machine)
{
    return machine == EM_X86_64 ? "x86-64" : machine == EM_AARCH64 ? "aarch64" : "another machine";
}

static int elf_check_header(struct plugin_file *file, const struct stat *status, Elf64_Ehdr *header)
{
    size_t size =
        (uint64_t)status->st_size < sizeof(*header) ? (size_t)status->st_size : sizeof(*header);
    int r = plugin_file_read_part(file, 0, header, size);
    if (r < 0)
        return r;
    if (size < SELFMAG || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
        return plugin_file_refuse(file, "it is not an ELF shared object");
    if (size < sizeof(*header))
        return plugin_file_refuse(file, "it is truncated: its header is not complete");
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
        header->e_machine != ELF_MACHINE)
        return plugin_file_refuse(file, "it is built for %s; this program runs on %s",
                                  header->e_ident[EI_CLASS] != ELFCLASS64
                                      ? "a 32-bit machine"
                                      : elf_machine_name(header->e_machine),
                                  elf_machine_name(ELF_MACHINE));
    if (header->e_type != ET_DYN || header->e_phentsize != sizeof(Elf64_Phdr) ||
        header->e_phnum == 0 || header->e_phnum > PROGRAM_HEADERS_MAX)
        return plugin_file_refuse(file, "it is not an ELF shared object");
    return 0;
}

/* Checks that `size` bytes from `offset` lie within the file. */
static int elf_check_range(struct plugin_file *file, uint64_t offset, uint64_t size,
                           const struct stat *status)
{
    uint64_t end;
    if (!__builtin_add_overflow(offset, size, &end) && end <= (uint64_t)status->st_size)
        return 0;
    return plugin_file_refuse(file, "it is truncated: it has %llu bytes",
                              (unsigned long long)status->st_size);
}

/* Checks that the sections and segments announced by the headers are within the file. */
static int elf_check_segments(struct plugin_file *file, const struct stat *status)
{
    Elf64_Ehdr header;
    Elf64_Phdr segments[PROGRAM_HEADERS_MAX];
    int r = elf_check_header(file, status, &header);
    if (r == 0)
        r = elf_check_range(file, header.e_shoff, (uint64_t)header.e_shentsize * header.e_shnum,
                            status);
    if (r == 0)
        r = plugin_file_read_part(file, header.e_phoff, segments,
                                  header.e_phnum * sizeof(segments[0]));
    for (unsigned i = 0; r == 0 && i < header.e_phnum; i++)
        r = elf_check_range(file, segments[i].p_offset, segments[i].p_filesz, status);
    return r;
}

/* Finds the table, or refuses the file. The refusal distinguishes a plugin of another ABI major
 * from a file that is no plugin. */
static int plugin_file_find_table(struct plugin_file *file, void *library,
                                  const struct weir_plugin_table **ret)
{
    char symbol[32];
    *ret = os_dlsym(library, WEIR_PLUGIN_SYMBOL);
    if (*ret)
        return 0;
    for (unsigned major = 0; major <= ABI_MAJORS_MAX; major++) {
        snprintf(symbol, sizeof(symbol), "weir_plugins_v%u", major);
        *ret = os_dlsym(library, symbol);
        if (!*ret)
            continue;
        return plugin_file_refuse(file,
                                  "it is made for version %u of the plugin interface (`%s`); "
                                  "this library needs version %u",
                                  major, symbol, WEIR_PLUGIN_ABI_MAJOR);
    }
    return plugin_file_refuse(file, "it is not a plugin: it does not export `%s`",
                              WEIR_PLUGIN_SYMBOL);
}

/* Gives plugins without an identity that of the file's bytes. */
static int plugin_file_identify(struct plugin_file *file)
{
    char *bytes = NULL;
    size_t size = 0;
    uint32_t i = 0;
    while (i < file->plugins_n && file->plugins[i].info.state_id != 0)
        i++;
    if (i == file->plugins_n)
        return 0;
    int r = os_file_read(file->path, FILE_SIZE_MAX, &bytes, &size);
    if (r == -ENOMEM)
        return r;
    if (r < 0)
        return plugin_file_refuse(file, "it cannot be read: %s", strerrordesc_np(-r));
    uint64_t hash = fnv1a_bytes(FNV1A_INIT, bytes, size);
    os_free(bytes);
    for (; i < file->plugins_n; i++)
        if (file->plugins[i].info.state_id == 0)
            file->plugins[i].info.state_id = hash;
    return 0;
}

static int plugin_file_load_library(struct plugin_file *file)
{
    const struct weir_plugin_table *table = NULL;
    void *library = NULL;
    char reason[REASON_MAX];
    int r = os_dlopen(file->path, &library, reason, sizeof(reason));
    if (r == -ENOMEM)
        return r;
    if (r < 0)
        return plugin_file_refuse(file, "it cannot be loaded: %.200s", reason);
    r = plugin_file_find_table(file, library, &table);
    if (r == 0)
        r = plugin_abi_read(file, table);
    if (r == 0 && plugin_file_identify(file) < 0) {
        plugin_abi_free(file);
        r = file->refusal.code != 0 ? -ENOEXEC : -ENOMEM;
    }
    return r;
}

/* Reads a built-in plugin. It has no file to check, but its table is validated like any other. */
static int builtin_read(struct plugin_file *file)
{
    for (const struct plugin_builtin *builtin = plugin_builtins; builtin->file; builtin++) {
        if (strcmp(builtin->file, file->name) == 0)
            return plugin_abi_read(file, builtin->table);
    }
    return -ENOENT;
}

/* Checks everything that can be wrong, from the outside in, and loads the file. Returns 0, or a
 * negative errno; -ENOEXEC with `refusal` filled. */
static int plugin_file_check(struct plugin_file *file)
{
    struct stat status;
    int r = os_stat(file->path, &status);
    if (r == -ENOENT || r == -ENOTDIR)
        return -ENOENT;
    if (r == -ENOMEM)
        return r;
    if (r < 0)
        return plugin_file_refuse(file, "it cannot be inspected: %s", strerrordesc_np(-r));
    r = plugin_file_check_mode(file, &status);
    if (r == 0)
        r = elf_check_segments(file, &status);
    return r < 0 ? r : plugin_file_load_library(file);
}

int plugin_file_load(struct plugin_file **ret, const char *dir, const char *name)
{
    struct plugin_file *file = os_alloc(1, sizeof(*file));
    size_t size = strlen(dir) + strlen(name) + 2;
    int r = -ENOMEM;
    if (!file)
        return -ENOMEM;
    file->path = os_alloc(size, 1);
    if (file->path) {
        snprintf(file->path, size, "%s/%s", dir, name);
        file->dir = dir;
        file->name = file->path + strlen(dir) + 1;
        r = strcmp(dir, PLUGIN_BUILTIN_DIR) == 0 ? builtin_read(file) : plugin_file_check(file);
    }
    if (r == -ENOMEM || r == -ENOENT) {
        plugin_file_free(file);
        return r;
    }
    *ret = file;
    return 0;
}

void plugin_file_free(struct plugin_file *file)
{
    plugin_abi_free(file);
    os_free(file->path);
    os_free(file);
}
