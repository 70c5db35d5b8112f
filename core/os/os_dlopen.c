/* SPDX-License-Identifier: MIT */
/* Loading of plugins: dlopen and dlsym. */
#include "os/os.h"
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

int os_dlopen(const char *path, void **ret, char *ret_why, size_t why_size)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *why;

    if (library != NULL) {
        *ret = library;
        return 0;
    }
    why = dlerror();
    if (why_size > 0) {
        ret_why[0] = '\0';
        strncat(ret_why, why == NULL ? "unknown reason" : why, why_size - 1);
    }
    return -ENOEXEC;
}

void *os_dlsym(void *library, const char *name)
{
    return dlsym(library, name);
}
