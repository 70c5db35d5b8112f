/* SPDX-License-Identifier: MIT */
/* The heap, address space, and pages that do not outlive a fork. */
#include "os/os.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * The bytes of `n` times `size`, at least 1, because callers would take the NULL that libc may
 * answer to 0 for a failure; or 0 if there is no such number. Left to libc, sanitizers would end
 * the process there.
 */
static size_t bytes_of(size_t n, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(n, size, &bytes))
        return 0;
    return bytes == 0 ? 1 : bytes;
}

void *sys_alloc(size_t n, size_t size)
{
    size_t bytes = bytes_of(n, size);

    return bytes == 0 ? NULL : calloc(bytes, 1);
}

void *sys_alloc_aligned(size_t alignment, size_t size)
{
    void *memory = NULL;

    if (alignment < sizeof(void *))
        alignment = sizeof(void *);
    if (posix_memalign(&memory, alignment, size == 0 ? 1 : size) != 0)
        return NULL;
    return memset(memory, 0, size);
}

void *sys_grow(void *memory, size_t n, size_t size)
{
    size_t bytes = bytes_of(n, size);

    return bytes == 0 ? NULL : realloc(memory, bytes);
}

char *sys_strdup(const char *text)
{
    return strdup(text);
}

void sys_free(void *memory)
{
    free(memory);
}

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t whole_pages(size_t size)
{
    size_t page = page_size();

    return (size + page - 1) / page * page;
}

void *sys_reserve(size_t size)
{
    void *memory = mmap(NULL, whole_pages(size), PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

int sys_commit(void *memory, size_t size)
{
    return mprotect(memory, whole_pages(size), PROT_READ | PROT_WRITE) < 0 ? -errno : 0;
}

void sys_prefer_large_pages(void *memory, size_t size)
{
    (void)madvise(memory, whole_pages(size), MADV_HUGEPAGE);
}

void sys_unreserve(void *memory, size_t size)
{
    if (memory != NULL)
        munmap(memory, whole_pages(size));
}

/*
 * Pages that the kernel does not wipe are wiped by a handler that fork() runs in the child. They
 * are linked through their last word, so keeping them needs no memory and cannot fail.
 */
static pthread_mutex_t wiped_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t wiped_once = PTHREAD_ONCE_INIT;
static int wiped_error;
static unsigned char *wiped_first;

static unsigned char **wiped_next(unsigned char *page)
{
    return (unsigned char **)(void *)(page + page_size() - sizeof(unsigned char *));
}

static void wiped_before_fork(void)
{
    pthread_mutex_lock(&wiped_lock);
}

static void wiped_in_parent(void)
{
    pthread_mutex_unlock(&wiped_lock);
}

static void wiped_in_child(void)
{
    for (unsigned char *page = wiped_first; page != NULL; page = *wiped_next(page))
        memset(page, 0, page_size() - sizeof(unsigned char *));
    pthread_mutex_unlock(&wiped_lock);
}

static void wiped_begin(void)
{
    wiped_error = pthread_atfork(wiped_before_fork, wiped_in_parent, wiped_in_child);
}

static bool wiped_add(unsigned char *page)
{
    pthread_once(&wiped_once, wiped_begin);
    if (wiped_error != 0)
        return false;
    pthread_mutex_lock(&wiped_lock);
    *wiped_next(page) = wiped_first;
    wiped_first = page;
    pthread_mutex_unlock(&wiped_lock);
    return true;
}

static void wiped_remove(unsigned char *page)
{
    pthread_mutex_lock(&wiped_lock);
    for (unsigned char **p = &wiped_first; *p != NULL; p = wiped_next(*p)) {
        if (*p == page) {
            *p = *wiped_next(page);
            break;
        }
    }
    pthread_mutex_unlock(&wiped_lock);
}

/* An emulator that ignores advice says yes to anything: its yes is worth nothing. */
static bool kernel_wipes(void *page)
{
    return madvise(page, page_size(), -1) < 0 && madvise(page, page_size(), MADV_WIPEONFORK) == 0;
}

void *sys_fork_page(void)
{
    void *page =
        mmap(NULL, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED)
        return NULL;
    if (kernel_wipes(page) || wiped_add(page))
        return page;
    munmap(page, page_size());
    return NULL;
}

void sys_fork_page_free(void *page)
{
    if (page == NULL)
        return;
    wiped_remove(page);
    munmap(page, page_size());
}
