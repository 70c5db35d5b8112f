/* SPDX-License-Identifier: MIT */
/* Reading files, by path and by descriptor, and loading plugins. */
#include "os/os_internal.h"
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <string.h>

static int os_file_open(const char *path)
{
    return os_open_retry(AT_FDCWD, path, O_RDONLY | O_NOCTTY, 0);
}

/* Doubles the capacity of the text, which has room for a NUL besides. Returns 0 or -ENOMEM. */
static int os_file_grow(char **text, size_t *capacity)
{
    size_t wanted = *capacity ? 2 * *capacity : 4096;
    char *grown = os_realloc(*text, wanted + 1, 1);

    if (!grown)
        return -ENOMEM;
    *text = grown;
    *capacity = wanted;
    return 0;
}

int os_file_read(const char *path, size_t size_max, char **ret, size_t *ret_size)
{
    size_t capacity = 0, size = 0;
    char *text = NULL;
    int fd = os_file_open(path), r;

    if (fd < 0)
        return fd;
    do { /* into a growing buffer: the size of a pipe is not known in advance */
        r = size == capacity ? os_file_grow(&text, &capacity) : 0;
        if (r == 0)
            OS_RETRY(r, syscall(SYS_read, fd, text + size, capacity - size));
        size += r > 0 ? (size_t)r : 0;
    } while (r > 0 && size <= size_max);
    os_close(fd);
    if (r != 0) {
        os_free(text);
        return r < 0 ? r : -EFBIG;
    }
    text[size] = '\0';
    *ret = text;
    *ret_size = size;
    return 0;
}

int os_pread(int fd, uint64_t offset, void *buffer, size_t size)
{
    size_t n = 0;
    int r = 1;

    if (offset > INT64_MAX - size || size > INT_MAX)
        return -EINVAL;
    while (n < size && r > 0) {
        OS_RETRY(r, syscall(SYS_pread64, fd, (char *)buffer + n, size - n, (off_t)(offset + n)));
        n += r > 0 ? (size_t)r : 0;
    }
    return r < 0 ? r : (int)n;
}

int os_file_read_part(const char *path, uint64_t offset, void *buffer, size_t size)
{
    int fd = os_file_open(path), r;

    if (fd < 0)
        return fd;
    r = os_pread(fd, offset, buffer, size);
    os_close(fd);
    return r;
}

int os_stat(const char *path, struct stat *ret)
{
    return os_result(stat(path, ret));
}

int os_dlopen(const char *path, void **ret, char *ret_why, size_t why_size)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *why;

    if (library) {
        *ret = library;
        return 0;
    }
    why = dlerror();
    if (why_size > 0) {
        ret_why[0] = '\0';
        strncat(ret_why, why ? why : "unknown reason", why_size - 1);
    }
    return -ENOEXEC;
}

void *os_dlsym(void *library, const char *name)
{
    return dlsym(library, name);
}

/* An object that is looked for by an address in it. */
struct os_object_search {
    uintptr_t address;
    void (*found)(void *userdata, uintptr_t begin, uintptr_t end, bool is_readable, bool is_code);
    void *userdata;
};

static bool os_object_has(const struct dl_phdr_info *info, uintptr_t address)
{
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;

        if (info->dlpi_phdr[i].p_type == PT_LOAD && address >= begin &&
            address - begin < info->dlpi_phdr[i].p_memsz)
            return true;
    }
    return false;
}

/* Looks at one object. Returns 1, which ends the search, if it has the address. */
static int os_object_look(struct dl_phdr_info *info, size_t size, void *userdata)
{
    const struct os_object_search *search = userdata;

    (void)size;
    if (!os_object_has(info, search->address))
        return 0;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + header->p_vaddr;

        if (header->p_type == PT_LOAD)
            search->found(search->userdata, begin, begin + header->p_memsz, header->p_flags & PF_R,
                          header->p_flags & PF_X);
    }
    return 1;
}

void os_object_segments(const void *address,
                        void (*found)(void *userdata, uintptr_t begin, uintptr_t end,
                                      bool is_readable, bool is_code),
                        void *userdata)
{
    struct os_object_search search = {(uintptr_t)address, found, userdata};

    dl_iterate_phdr(os_object_look, &search);
}
