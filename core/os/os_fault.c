/* SPDX-License-Identifier: MIT */
/*
 * Faults in shared mappings: SIGBUS, because the file was truncated, has no room for a page, or
 * cannot be read.
 *
 * The handler runs in any thread at any instruction, so it takes no lock. It finds the mapping in
 * pages of ranges that are never freed, and that are wiped in a forked child, which has no such
 * mapping. A range is claimed by its flag. Its begin changes only while its end is 0; so a reader
 * that loads the same end before and after the begin has both of one mapping.
 */
#include "os/os_internal.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

typedef _Atomic bool fault_flag;

struct fault_range {
    _Atomic(fault_flag *) lost; /* NULL: free */
    _Atomic uintptr_t begin, end;
};

/* A page that is wiped in a child keeps its last word for itself. */
#define FAULT_PAGE_SIZE (4096 - sizeof(void *))
#define FAULT_RANGES    ((FAULT_PAGE_SIZE - sizeof(void *)) / sizeof(struct fault_range))

struct fault_page {
    _Atomic(struct fault_page *) next;
    struct fault_range ranges[FAULT_RANGES];
};

_Static_assert(sizeof(struct fault_page) <= FAULT_PAGE_SIZE, "fits into a page");

static _Atomic(struct fault_page *) fault_pages;
static _Atomic uintptr_t fault_page_size; /* of the system; set before the first range */

/* The handler that was there before; not changed after its own handler is replaced. */
static struct sigaction fault_previous;
static _Atomic bool fault_previous_is_reset; /* SA_RESETHAND, and it was called */
static pthread_once_t fault_once = PTHREAD_ONCE_INIT;
static int fault_error;

/* ---- ranges ---- */

static bool fault_range_claim(struct fault_range *range, fault_flag *lost)
{
    fault_flag *none = NULL;

    return atomic_compare_exchange_strong_explicit(&range->lost, &none, lost, memory_order_seq_cst,
                                                   memory_order_seq_cst);
}

/* Adds a page, and claims its first range. */
static struct fault_range *fault_page_add(fault_flag *lost)
{
    struct fault_page *page = os_wipe_page_alloc();
    struct fault_page *first = atomic_load_explicit(&fault_pages, memory_order_seq_cst);

    if (!page)
        return NULL;
    atomic_store_explicit(&page->ranges[0].lost, lost, memory_order_seq_cst);
    do
        atomic_store_explicit(&page->next, first, memory_order_seq_cst);
    while (!atomic_compare_exchange_weak_explicit(&fault_pages, &first, page, memory_order_seq_cst,
                                                  memory_order_seq_cst));
    return page->ranges;
}

static struct fault_range *fault_range_new(fault_flag *lost)
{
    struct fault_page *page = atomic_load_explicit(&fault_pages, memory_order_seq_cst);

    for (; page; page = atomic_load_explicit(&page->next, memory_order_seq_cst))
        for (size_t i = 0; i < FAULT_RANGES; i++)
            if (fault_range_claim(&page->ranges[i], lost))
                return &page->ranges[i];
    return fault_page_add(lost);
}

/* Returns whether the range contains the address, and its bounds. */
static bool fault_range_has(const struct fault_range *range, uintptr_t address,
                            uintptr_t *ret_begin, uintptr_t *ret_end)
{
    *ret_end = atomic_load_explicit(&range->end, memory_order_seq_cst);
    *ret_begin = atomic_load_explicit(&range->begin, memory_order_seq_cst);
    return address >= *ret_begin && address < *ret_end &&
           atomic_load_explicit(&range->end, memory_order_seq_cst) == *ret_end;
}

static struct fault_range *fault_range_find(uintptr_t address, uintptr_t *ret_begin,
                                            uintptr_t *ret_end)
{
    struct fault_page *page = atomic_load_explicit(&fault_pages, memory_order_seq_cst);

    for (; page; page = atomic_load_explicit(&page->next, memory_order_seq_cst))
        for (size_t i = 0; i < FAULT_RANGES; i++)
            if (fault_range_has(&page->ranges[i], address, ret_begin, ret_end))
                return &page->ranges[i];
    return NULL;
}

/* ---- mappings ---- */

int os_map_shared(int fd, size_t size, bool writable, _Atomic bool *lost, void **ret)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    struct fault_range *range = fault_range_new(lost);
    void *memory;
    int r;

    if (!range)
        return -ENOMEM;
    memory = mmap(NULL, size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        r = -errno;
        atomic_store_explicit(&range->lost, NULL, memory_order_seq_cst);
        return r;
    }
    (void)madvise(memory, size, MADV_DONTFORK); /* a forked child must not use it anyway */
    atomic_store_explicit(&fault_page_size, page, memory_order_seq_cst);
    atomic_store_explicit(&range->begin, (uintptr_t)memory, memory_order_seq_cst);
    atomic_store_explicit(&range->end, (uintptr_t)memory + (size + page - 1) / page * page,
                          memory_order_seq_cst);
    *ret = memory;
    return 0;
}

void os_unmap_shared(void *memory, size_t size)
{
    uintptr_t begin, end;
    struct fault_range *range = fault_range_find((uintptr_t)memory, &begin, &end);

    if (range) {
        atomic_store_explicit(&range->end, 0, memory_order_seq_cst);
        atomic_store_explicit(&range->lost, NULL, memory_order_seq_cst);
    }
    munmap(memory, size);
}

/* ---- the handler ---- */

/* By system calls, which no sanitizer intercepts: this is a signal handler. */
static bool fault_map_private(uintptr_t begin, uintptr_t end)
{
    if (syscall(SYS_mmap, begin, end - begin, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) < 0)
        return false;
    (void)syscall(SYS_madvise, begin, end - begin, MADV_DONTFORK);
    return true;
}

/*
 * Replaces the mapping; if limits do not allow as much private memory, the one page. Each thread
 * that meets the fault does this itself: none waits for another, which may not get a processor.
 */
static bool fault_replace(uintptr_t address, uintptr_t begin, uintptr_t end)
{
    uintptr_t size = atomic_load_explicit(&fault_page_size, memory_order_seq_cst);
    uintptr_t page = address / size * size;

    return fault_map_private(begin, end) || fault_map_private(page, page + size);
}

bool os_fault_handle(const void *siginfo)
{
    const siginfo_t *info = siginfo;
    uintptr_t begin, end, address = (uintptr_t)info->si_addr;
    struct fault_range *range;
    fault_flag *lost;
    int saved_errno = errno;
    bool handled;

    if (info->si_signo != SIGBUS || (info->si_code != BUS_ADRERR && info->si_code != BUS_MCEERR_AR))
        return false;
    range = fault_range_find(address, &begin, &end);
    lost = range ? atomic_load_explicit(&range->lost, memory_order_seq_cst) : NULL;
    if (!lost)
        return false;
    /* In this order: a thread that finds private memory finds the flag. */
    atomic_store_explicit(lost, true, memory_order_seq_cst);
    handled = fault_replace(address, begin, end);
    errno = saved_errno;
    return handled;
}

/* Returns whether the signal was sent, by a process or as advice of the kernel: then no instruction
 * raises it again. */
static bool fault_was_sent(const siginfo_t *info)
{
    return info->si_code <= 0 || info->si_code == BUS_MCEERR_AO;
}

/* Ends the process as without a handler. A fault recurs at its instruction; a signal that was sent
 * is sent again. */
static void fault_end_process(siginfo_t *info)
{
    const struct sigaction none = {.sa_handler = SIG_DFL};

    sigaction(SIGBUS, &none, NULL);
    if (fault_was_sent(info))
        syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGBUS, info);
}

/* Does what the previous handler would have done. Mask and flags of this handler are its own. */
static void fault_pass_on(int signal, siginfo_t *info, void *context)
{
    bool is_reset = (fault_previous.sa_flags & (int)SA_RESETHAND) &&
                    atomic_exchange_explicit(&fault_previous_is_reset, true, memory_order_seq_cst);

    if (fault_previous.sa_handler == SIG_IGN && fault_was_sent(info))
        return; /* of a fault, it ends the process */
    if (is_reset || fault_previous.sa_handler == SIG_IGN || fault_previous.sa_handler == SIG_DFL)
        fault_end_process(info);
    else if (fault_previous.sa_flags & SA_SIGINFO)
        fault_previous.sa_sigaction(signal, info, context);
    else
        fault_previous.sa_handler(signal);
}

static void fault_on_signal(int signal, siginfo_t *info, void *context)
{
    if (!os_fault_handle(info))
        fault_pass_on(signal, info, context);
}

/* Copies mask and flags of the previous handler, which is called by this one. */
static void fault_install_once(void)
{
    struct sigaction action;
    int kept = (int)(SA_ONSTACK | SA_NODEFER | SA_RESTART);

    fault_error = os_result(sigaction(SIGBUS, NULL, &fault_previous));
    if (fault_error < 0)
        return;
    action = fault_previous;
    if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) {
        sigemptyset(&action.sa_mask);
        action.sa_flags = (int)(SA_ONSTACK | SA_RESTART);
    }
    action.sa_sigaction = fault_on_signal;
    action.sa_flags = SA_SIGINFO | (action.sa_flags & kept);
    fault_error = os_result(sigaction(SIGBUS, &action, &fault_previous));
}

int os_fault_install(void)
{
    pthread_once(&fault_once, fault_install_once);
    return fault_error;
}

void os_fault_unblock(void)
{
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
}
