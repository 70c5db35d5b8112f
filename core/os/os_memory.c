/* SPDX-License-Identifier: MIT */
/* The heap, reserved address space, and pages that are wiped in a forked child. */
#include "os/os.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * Returns `n` times `size` bytes, at least 1: for 0 libc may return NULL, which callers take for a
 * failure. Returns 0 on overflow; checked here because a sanitizer's calloc would end the process.
 */
static size_t alloc_size(size_t n, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(n, size, &bytes))
        return 0;
    return bytes == 0 ? 1 : bytes;
}

void *os_alloc(size_t n, size_t size)
{
    size_t bytes = alloc_size(n, size);

    return bytes == 0 ? NULL : calloc(bytes, 1);
}

void *os_alloc_aligned(size_t alignment, size_t size)
{
    void *memory = NULL;

    if (alignment < sizeof(void *))
        alignment = sizeof(void *);
    if (posix_memalign(&memory, alignment, size == 0 ? 1 : size) != 0)
        return NULL;
    return memset(memory, 0, size);
}

void *os_realloc(void *memory, size_t n, size_t size)
{
    size_t bytes = alloc_size(n, size);

    return bytes == 0 ? NULL : realloc(memory, bytes);
}

char *os_strdup(const char *text)
{
    return strdup(text);
}

void os_free(void *memory)
{
    free(memory);
}

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t round_to_pages(size_t size)
{
    size_t page = page_size();

    return (size + page - 1) / page * page;
}

void *os_vm_reserve(size_t size)
{
    void *memory = mmap(NULL, round_to_pages(size), PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

int os_vm_commit(void *memory, size_t size)
{
    return mprotect(memory, round_to_pages(size), PROT_READ | PROT_WRITE) < 0 ? -errno : 0;
}

void os_vm_prefer_huge_pages(void *memory, size_t size)
{
    (void)madvise(memory, round_to_pages(size), MADV_HUGEPAGE);
}

/* In steps: while a call lasts, no thread can map memory. */
void os_vm_populate(void *memory, size_t size)
{
#ifdef MADV_POPULATE_WRITE /* Linux 5.14 */
    const size_t end = round_to_pages(size), step = (size_t)1 << 21;
    long free_pages = sysconf(_SC_AVPHYS_PAGES);

    if (free_pages < 0 || end / page_size() > (size_t)free_pages / 4)
        return;
    for (size_t at = 0; at < end; at += step) {
        size_t n = end - at < step ? end - at : step;

        if (madvise((unsigned char *)memory + at, n, MADV_POPULATE_WRITE) < 0)
            return;
    }
#else
    (void)memory;
    (void)size;
#endif
}

void os_vm_free(void *memory, size_t size)
{
    if (memory)
        munmap(memory, round_to_pages(size));
}

/*
 * Pages that the kernel does not wipe are wiped by an atfork handler in the child. They are linked
 * through their last word, so the list needs no memory and adding to it cannot fail.
 */
static pthread_mutex_t wipe_page_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t wipe_page_once = PTHREAD_ONCE_INIT;
static int wipe_page_error;
static unsigned char *wipe_page_list;

static unsigned char **wipe_page_next(unsigned char *page)
{
    return (unsigned char **)(void *)(page + page_size() - sizeof(unsigned char *));
}

static void wipe_page_atfork_prepare(void)
{
    pthread_mutex_lock(&wipe_page_lock);
}

static void wipe_page_atfork_parent(void)
{
    pthread_mutex_unlock(&wipe_page_lock);
}

static void wipe_page_atfork_child(void)
{
    for (unsigned char *page = wipe_page_list; page; page = *wipe_page_next(page))
        memset(page, 0, page_size() - sizeof(unsigned char *));
    pthread_mutex_unlock(&wipe_page_lock);
}

static void wipe_page_register(void)
{
    wipe_page_error =
        pthread_atfork(wipe_page_atfork_prepare, wipe_page_atfork_parent, wipe_page_atfork_child);
}

static bool wipe_page_link(unsigned char *page)
{
    pthread_once(&wipe_page_once, wipe_page_register);
    if (wipe_page_error != 0)
        return false;
    pthread_mutex_lock(&wipe_page_lock);
    *wipe_page_next(page) = wipe_page_list;
    wipe_page_list = page;
    pthread_mutex_unlock(&wipe_page_lock);
    return true;
}

static void wipe_page_unlink(unsigned char *page)
{
    pthread_mutex_lock(&wipe_page_lock);
    for (unsigned char **p = &wipe_page_list; *p; p = wipe_page_next(*p)) {
        if (*p == page) {
            *p = *wipe_page_next(page);
            break;
        }
    }
    pthread_mutex_unlock(&wipe_page_lock);
}

/* Tries MADV_WIPEONFORK. Advice -1 succeeds only in an emulator that ignores madvise(). */
static bool wipe_page_by_kernel(void *page)
{
    return madvise(page, page_size(), -1) < 0 && madvise(page, page_size(), MADV_WIPEONFORK) == 0;
}

void *os_wipe_page_alloc(void)
{
    void *page =
        mmap(NULL, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED)
        return NULL;
    if (wipe_page_by_kernel(page) || wipe_page_link(page))
        return page;
    munmap(page, page_size());
    return NULL;
}

void os_wipe_page_free(void *page)
{
    if (!page)
        return;
    wipe_page_unlink(page);
    munmap(page, page_size());
}
