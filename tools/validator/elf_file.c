/* SPDX-License-Identifier: MIT */
/*
 * What a plugin's file shows without being loaded: what it imports and exports, writable data, and
 * functions that run when it is loaded. The file is hostile: each offset is checked.
 */
#include "tests.h"
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weir/plugin.h>

struct elf_file {
    const unsigned char *bytes;
    size_t size;
    const Elf64_Shdr *sections;
    unsigned sections_n;
    const char *names; /* of sections */
    size_t names_size;
    struct file_finding *findings;
    unsigned findings_n, findings_max;
};

static void elf_find(struct elf_file *file, const char *test, const char *what, const char *name)
{
    struct file_finding *finding;

    for (unsigned i = 0; i < file->findings_n; i++) {
        size_t used = strlen(file->findings[i].text);

        if (strcmp(file->findings[i].test, test) != 0)
            continue;
        finding = &file->findings[i];
        snprintf(finding->text + used, sizeof(finding->text) - used, ", %s%s",
                 strncmp(finding->text, what, strlen(what)) == 0 ? "" : what, name);
        return;
    }
    if (file->findings_n == file->findings_max)
        return;
    finding = &file->findings[file->findings_n++];
    finding->test = test;
    snprintf(finding->text, sizeof(finding->text), "%s%s", what, name);
}

/* The bytes of the file from an offset on, or NULL if there are fewer. */
static const void *elf_bytes(const struct elf_file *file, uint64_t at, uint64_t size)
{
    return at <= file->size && size <= file->size - at ? file->bytes + at : NULL;
}

/* A text of a table of texts, or "". */
static const char *elf_text(const char *texts, size_t size, uint64_t at)
{
    return texts && at < size && memchr(texts + at, 0, size - at) ? texts + at : "";
}

static const char *elf_section_name(const struct elf_file *file, const Elf64_Shdr *section)
{
    return elf_text(file->names, file->names_size, section->sh_name);
}

/* Reads the tables. False: it is no shared object of this machine's kind, or has no sections. */
static bool elf_open(struct elf_file *file)
{
    const Elf64_Ehdr *header = elf_bytes(file, 0, sizeof(*header));
    const Elf64_Shdr *names;

    if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
        header->e_type != ET_DYN || header->e_shentsize != sizeof(Elf64_Shdr) ||
        header->e_shoff % 8 != 0)
        return false;
    file->sections_n = header->e_shnum;
    file->sections =
        elf_bytes(file, header->e_shoff, (uint64_t)header->e_shnum * sizeof(Elf64_Shdr));
    if (!file->sections || header->e_shstrndx >= file->sections_n)
        return false;
    names = &file->sections[header->e_shstrndx];
    file->names = elf_bytes(file, names->sh_offset, names->sh_size);
    file->names_size = file->names ? names->sh_size : 0;
    return true;
}

/* ---- symbols ---- */

typedef void symbol_fn(struct elf_file *file, const Elf64_Sym *symbol, const char *name);

static void elf_each_symbol(struct elf_file *file, uint32_t type, symbol_fn *look)
{
    for (unsigned i = 0; i < file->sections_n; i++) {
        const Elf64_Shdr *section = &file->sections[i], *texts;
        const Elf64_Sym *symbols;
        const char *names;

        if (section->sh_type != type || section->sh_link >= file->sections_n ||
            section->sh_offset % 8 != 0)
            continue;
        texts = &file->sections[section->sh_link];
        symbols = elf_bytes(file, section->sh_offset, section->sh_size);
        names = elf_bytes(file, texts->sh_offset, texts->sh_size);
        for (uint64_t j = 1; symbols && j < section->sh_size / sizeof(*symbols); j++)
            look(file, &symbols[j],
                 elf_text(names, names ? texts->sh_size : 0, symbols[j].st_name));
    }
}

static bool elf_begins(const char *name, const char *const *prefixes)
{
    for (size_t i = 0; prefixes[i]; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static bool elf_is(const char *name, const char *const *names)
{
    for (size_t i = 0; names[i]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static const char *const of_sanitizers[] = {"__asan",      "__ubsan",    "__tsan", "__msan",
                                            "__sanitizer", "__odr_asan", "__gcov", "__llvm",
                                            "___asan",     NULL};

/* What a toolchain adds of itself. */
static void elf_look_imported(struct elf_file *file, const Elf64_Sym *symbol, const char *name)
{
    static const char *const allowed[] = {"memcpy",
                                          "memmove",
                                          "memset",
                                          "memcmp",
                                          "bcmp",
                                          "__stack_chk_fail",
                                          "__stack_chk_guard",
                                          "__cxa_finalize",
                                          "__gmon_start__",
                                          "_ITM_registerTMCloneTable",
                                          "_ITM_deregisterTMCloneTable",
                                          "__tls_get_addr",
                                          "",
                                          NULL};

    if (symbol->st_shndx == SHN_UNDEF && !elf_is(name, allowed) && !elf_begins(name, of_sanitizers))
        elf_find(file, "imports", "imports ", name);
}

static void elf_look_exported(struct elf_file *file, const Elf64_Sym *symbol, const char *name)
{
    static const char *const sections[] = {"__start_", "__stop_", NULL};

    if (symbol->st_shndx != SHN_UNDEF && ELF64_ST_BIND(symbol->st_info) != STB_LOCAL &&
        strcmp(name, WEIR_PLUGIN_SYMBOL) != 0 && !elf_begins(name, of_sanitizers) &&
        !elf_begins(name, sections))
        elf_find(file, "exports", "exports more than its table: ", name);
}

static bool elf_is_writable(const struct elf_file *file, const Elf64_Sym *symbol)
{
    /* Read-only after the relocation, or of the loader. */
    static const char *const fixed[] = {
        ".data.rel.ro", ".got", ".dynamic", ".init_array", ".fini_array", ".tm_clone_table", NULL};
    const Elf64_Shdr *section;

    if (symbol->st_shndx >= file->sections_n)
        return false;
    section = &file->sections[symbol->st_shndx];
    return section->sh_flags & SHF_WRITE && section->sh_flags & SHF_ALLOC &&
           !elf_begins(elf_section_name(file, section), fixed);
}

static void elf_look_data(struct elf_file *file, const Elf64_Sym *symbol, const char *name)
{
    static const char *const of_toolchain[] = {"completed", "__dso_handle",          "__TMC_END__",
                                               "_DYNAMIC",  "_GLOBAL_OFFSET_TABLE_", NULL};
    unsigned type = ELF64_ST_TYPE(symbol->st_info);

    if ((type == STT_OBJECT || type == STT_TLS) && symbol->st_size &&
        elf_is_writable(file, symbol) && !elf_begins(name, of_toolchain) &&
        !elf_begins(name, of_sanitizers))
        elf_find(file, "writable-data", "has writable static data: ", name);
}

/* ---- sections ---- */

static void elf_note_sanitizer(struct elf_file *file, const Elf64_Sym *symbol, const char *name)
{
    if (symbol->st_shndx == SHN_UNDEF && elf_begins(name, of_sanitizers))
        file->findings_max = 0; /* the runtime has its own constructors and data */
}

static void elf_look_section(struct elf_file *file, const Elf64_Shdr *section)
{
    const char *name = elf_section_name(file, section);
    /* One entry is that of the toolchain's crtbegin. */
    bool runs = (strcmp(name, ".init_array") == 0 && section->sh_size > 8) ||
                (strcmp(name, ".preinit_array") == 0 && section->sh_size) ||
                (strcmp(name, ".ctors") == 0 && section->sh_size > 16);
    bool ends = (strcmp(name, ".fini_array") == 0 && section->sh_size > 8) ||
                (strcmp(name, ".dtors") == 0 && section->sh_size > 16);
    bool is_tls = section->sh_flags & SHF_TLS && section->sh_size;

    if (runs)
        elf_find(file, "constructors", "runs code when it is loaded: ", name);
    if (ends)
        elf_find(file, "constructors", "runs code when it is unloaded: ", name);
    if (is_tls)
        elf_find(file, "writable-data", "has thread-local data: ", name);
}

static void elf_look(struct elf_file *file)
{
    unsigned max = file->findings_max;

    if (!elf_open(file)) {
        elf_find(file, "file", "is no shared object with sections, for a 64-bit machine", "");
        return;
    }
    elf_each_symbol(file, SHT_DYNSYM, elf_look_imported);
    elf_each_symbol(file, SHT_DYNSYM, elf_look_exported);
    elf_each_symbol(file, SHT_DYNSYM, elf_note_sanitizer);
    elf_each_symbol(file, SHT_SYMTAB, elf_look_data);
    for (unsigned i = 0; i < file->sections_n; i++)
        elf_look_section(file, &file->sections[i]);
    file->findings_max = max;
}

unsigned file_look(const char *path, struct file_finding *ret, unsigned max)
{
    struct elf_file file = {.findings = ret, .findings_max = max};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    void *bytes = MAP_FAILED;

    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0)
        bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED) {
        elf_find(&file, "file", "cannot be read", "");
    } else {
        file.bytes = bytes;
        file.size = (size_t)status.st_size;
        elf_look(&file);
        munmap(bytes, file.size);
    }
    if (fd >= 0)
        close(fd);
    return file.findings_n;
}
