/* SPDX-License-Identifier: MIT */
/* The real system behind the seam: thin wrappers, none longer than what the call needs. */
#include "sys.h"
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#include <weir/error.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <sys/prctl.h>
#include <x86intrin.h>
#endif

#define NS_PER_S UINT64_C(1000000000)

/* Memory. */

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

/* Time. */

static uint64_t read_clock(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

uint64_t sys_now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t sys_wall_offset_ns(void)
{
    return (int64_t)(read_clock(CLOCK_REALTIME) - read_clock(CLOCK_MONOTONIC));
}

#ifdef __x86_64__
uint64_t sys_tsc(void)
{
    return __rdtsc();
}

/* Runs at one rate whatever the processor does, in all states that save power. */
static bool tsc_is_invariant(void)
{
    unsigned a, b, c, d = 0;

    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & 1u << 8);
}

static int tsc_is_clocksource(void)
{
    static const char path[] = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    char name[8] = "";
    int r = sys_read_part(path, 0, name, sizeof name - 1);

    if (r < 0)
        return r;
    return strcmp(name, "tsc\n") == 0 ? 0 : -ENODEV;
}

int sys_tsc_usable(void)
{
    int allowed = PR_TSC_ENABLE;

    if (!tsc_is_invariant())
        return -EOPNOTSUPP;
    if (prctl(PR_GET_TSC, &allowed) == 0 && allowed != PR_TSC_ENABLE)
        return -EPERM;
    return tsc_is_clocksource();
}
#else
/* Elsewhere nothing is known to be gained: on aarch64 the clock itself is hardly more than reading
 * the counter. */
uint64_t sys_tsc(void)
{
    return 0;
}

int sys_tsc_usable(void)
{
    return -EOPNOTSUPP;
}
#endif

/* Descriptors. */

static int or_errno(int result)
{
    return result < 0 ? -errno : result;
}

int sys_eventfd(void)
{
    return or_errno(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

int sys_timerfd(void)
{
    return or_errno(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
}

int sys_timerfd_set(int fd, uint64_t at_ns)
{
    struct itimerspec timer = {0};

    if (at_ns != WEIR_FOREVER) /* all zero disarms, so instant 0 is the next one */
        timer.it_value = timespec_of(at_ns == 0 ? 1 : at_ns);
    return or_errno(timerfd_settime(fd, TFD_TIMER_ABSTIME, &timer, NULL));
}

int sys_epoll_create(void)
{
    return or_errno(epoll_create1(EPOLL_CLOEXEC));
}

int sys_epoll_add(int epoll_fd, int fd, uint64_t data)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = data};

    return or_errno(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event));
}

void sys_epoll_remove(int epoll_fd, int fd)
{
    struct epoll_event unused = {0};

    epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, &unused);
}

static int events_within(int epoll_fd, uint64_t *ret_data, int n, int timeout_ms)
{
    enum { AT_ONCE = 16 };
    struct epoll_event events[AT_ONCE];
    int ready;

    do {
        ready = epoll_wait(epoll_fd, events, n < AT_ONCE ? n : AT_ONCE, timeout_ms);
    } while (ready < 0 && errno == EINTR);
    for (int i = 0; i < ready; i++)
        ret_data[i] = events[i].data.u64;
    return or_errno(ready);
}

int sys_epoll_wait(int epoll_fd, uint64_t *ret_data, int n)
{
    return events_within(epoll_fd, ret_data, n, -1);
}

int sys_epoll_look(int epoll_fd, uint64_t *ret_data, int n)
{
    return events_within(epoll_fd, ret_data, n, 0);
}

/*
 * What is called under locks or on the way of a release must not be a point where a thread can be
 * canceled, as open(), read(), write() and close() are: it asks the kernel itself.
 */
int sys_signal_fd(int fd)
{
    const uint64_t one = 1;
    long r;

    do {
        r = syscall(SYS_write, fd, &one, sizeof one);
    } while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : 0;
}

int sys_drain_fd(int fd)
{
    uint64_t count;
    long r;

    do {
        r = syscall(SYS_read, fd, &count, sizeof count);
    } while (r < 0 && errno == EINTR);
    if (r < 0)
        return errno == EAGAIN ? 0 : -errno;
    return count < INT_MAX ? (int)count : INT_MAX;
}

void sys_close(int fd)
{
    if (fd >= 0)
        syscall(SYS_close, fd); /* Linux frees the number even when a signal interrupts */
}

/*
 * `scope` is FUTEX_PRIVATE_FLAG or, for words in memory that processes share, 0: then the kernel
 * looks up the page at every call, wait and wake.
 */
static int futex_wait(const uint32_t *word, int scope, uint32_t expected, uint64_t until_ns)
{
    const struct timespec until = timespec_of(until_ns);
    long r;

    do { /* the deadline is absolute, so starting anew does not move it */
        r = syscall(SYS_futex, word, FUTEX_WAIT_BITSET | scope, expected,
                    until_ns == WEIR_FOREVER ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
    } while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : 0;
}

static int futex_wake(const uint32_t *word, int scope, int n)
{
    return or_errno((int)syscall(SYS_futex, word, FUTEX_WAKE | scope, n, NULL, NULL, 0));
}

int sys_futex_wait(const uint32_t *word, uint32_t expected, uint64_t until_ns)
{
    return futex_wait(word, FUTEX_PRIVATE_FLAG, expected, until_ns);
}

int sys_futex_wake(const uint32_t *word, int n)
{
    return futex_wake(word, FUTEX_PRIVATE_FLAG, n);
}

int sys_futex_wait_shared(const uint32_t *word, uint32_t expected, uint64_t until_ns)
{
    return futex_wait(word, 0, expected, until_ns);
}

int sys_futex_wake_shared(const uint32_t *word, int n)
{
    return futex_wake(word, 0, n);
}

/* Threads. */

struct sys_thread {
    pthread_t thread;
    void (*run)(void *);
    void *argument;
    char name[16]; /* the kernel's bound */
};

static void *thread_main(void *argument)
{
    struct sys_thread *thread = argument;

    pthread_setname_np(pthread_self(), thread->name);
    thread->run(thread->argument);
    return NULL;
}

int sys_thread_start(struct sys_thread **ret, void (*run)(void *), void *argument, const char *name)
{
    struct sys_thread *thread = sys_alloc(1, sizeof *thread);
    sigset_t all, before;
    int r;

    if (thread == NULL)
        return -ENOMEM;
    thread->run = run;
    thread->argument = argument;
    strncpy(thread->name, name, sizeof thread->name - 1);
    /* A thread inherits the mask: this way there is no moment in which it can get a signal. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&thread->thread, NULL, thread_main, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r != 0) {
        sys_free(thread);
        return -r;
    }
    *ret = thread;
    return 0;
}

void sys_thread_join(struct sys_thread *thread)
{
    if (thread == NULL)
        return;
    pthread_join(thread->thread, NULL);
    sys_free(thread);
}

uint32_t sys_thread_id(void)
{
    return (uint32_t)gettid();
}

/* Files. */

/* Nor are these points where a thread can be canceled: whoever waits may look who has died. */
static int open_retrying(int directory_fd, const char *name, int flags, mode_t mode)
{
    int fd;

    do {
        fd = (int)syscall(SYS_openat, directory_fd, name, flags | O_CLOEXEC, mode);
    } while (fd < 0 && errno == EINTR);
    return or_errno(fd);
}

static int open_file(const char *path)
{
    return open_retrying(AT_FDCWD, path, O_RDONLY | O_NOCTTY, 0);
}

/* Reads until `size` bytes are there or the file ends. */
static int read_fully(int fd, char *buffer, size_t size, size_t *ret_n)
{
    size_t n = 0;

    while (n < size) {
        long r = syscall(SYS_read, fd, buffer + n, size - n);

        if (r < 0 && errno != EINTR)
            return -errno;
        if (r == 0)
            break;
        if (r > 0)
            n += (size_t)r;
    }
    *ret_n = n;
    return 0;
}

/* `ret` grows as the file is read: its size is not known in advance if it is a pipe. */
static int read_all(int fd, size_t size_max, char **ret, size_t *ret_size)
{
    size_t capacity = 4096, size = 0, n = 0;
    int r = 0;
    char *text = NULL;

    do {
        char *grown = sys_grow(text, capacity + 1, 1);

        if (grown == NULL) {
            r = -ENOMEM;
            break;
        }
        text = grown;
        r = read_fully(fd, text + size, capacity - size, &n);
        if (r < 0)
            break;
        size += n;
        capacity *= 2;
        if (size > size_max)
            r = -EFBIG;
    } while (r == 0 && size == capacity / 2);
    if (r < 0) {
        sys_free(text);
        return r;
    }
    text[size] = '\0';
    *ret = text;
    *ret_size = size;
    return 0;
}

int sys_read_file(const char *path, size_t size_max, char **ret, size_t *ret_size)
{
    int fd = open_file(path), r;

    if (fd < 0)
        return fd;
    r = read_all(fd, size_max, ret, ret_size);
    sys_close(fd);
    return r;
}

int sys_read_part(const char *path, uint64_t offset, void *buffer, size_t size)
{
    size_t n = 0;
    int fd, r = 0;

    if (offset > INT64_MAX || size > INT_MAX)
        return -EINVAL;
    fd = open_file(path);
    if (fd < 0)
        return fd;
    if (lseek(fd, (off_t)offset, SEEK_SET) < 0)
        r = -errno;
    else
        r = read_fully(fd, buffer, size, &n);
    sys_close(fd);
    return r < 0 ? r : (int)n;
}

int sys_stat(const char *path, struct stat *ret)
{
    return or_errno(stat(path, ret));
}

int sys_open_directory(const char *path, void **ret)
{
    DIR *directory;

    do {
        directory = opendir(path);
    } while (directory == NULL && errno == EINTR);
    if (directory == NULL)
        return -errno;
    *ret = directory;
    return 0;
}

int sys_next_entry(void *directory, char *ret_name, size_t size)
{
    const struct dirent *entry;

    do {
        errno = 0;
        entry = readdir(directory);
    } while (entry != NULL ? strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0
                           : errno == EINTR);
    if (entry == NULL)
        return -errno;
    if (strlen(entry->d_name) >= size)
        return -ENAMETOOLONG;
    memcpy(ret_name, entry->d_name, strlen(entry->d_name) + 1);
    return 1;
}

void sys_close_directory(void *directory)
{
    if (directory != NULL)
        closedir(directory);
}

/* Files in a directory. */

int sys_make_directory(const char *path)
{
    return or_errno(mkdir(path, S_IRWXU));
}

int sys_open_directory_fd(const char *path)
{
    return open_retrying(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
}

int sys_list_directory(int directory_fd, void **ret)
{
    int fd = open_retrying(directory_fd, ".", O_RDONLY | O_DIRECTORY, 0), code;
    DIR *directory;

    if (fd < 0)
        return fd;
    directory = fdopendir(fd);
    if (directory == NULL) {
        code = -errno;
        sys_close(fd);
        return code;
    }
    *ret = directory;
    return 0;
}

int sys_open_in(int directory_fd, const char *name, bool writable)
{
    return open_retrying(directory_fd, name,
                         (writable ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
}

int sys_stat_in(int directory_fd, const char *name, struct stat *ret)
{
    return or_errno(fstatat(directory_fd, name, ret, AT_SYMLINK_NOFOLLOW));
}

int sys_unlink_in(int directory_fd, const char *name)
{
    return or_errno(unlinkat(directory_fd, name, 0));
}

int sys_open_nameless(int directory_fd)
{
    return open_retrying(directory_fd, ".", O_TMPFILE | O_RDWR, S_IRUSR | S_IWUSR);
}

/* Straight from the descriptor needs a new kernel or a privilege; its name in /proc needs /proc. */
int sys_give_name(int fd, int directory_fd, const char *name)
{
    char path[32];

    if (linkat(fd, "", directory_fd, name, AT_EMPTY_PATH) == 0)
        return 0;
    if (errno == EEXIST)
        return -EEXIST;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return or_errno(linkat(AT_FDCWD, path, directory_fd, name, AT_SYMLINK_FOLLOW));
}

int sys_stat_fd(int fd, struct stat *ret)
{
    return or_errno(fstat(fd, ret));
}

int sys_read_at(int fd, uint64_t offset, void *buffer, size_t size)
{
    size_t n = 0;

    if (offset > INT64_MAX - size || size > INT_MAX)
        return -EINVAL;
    while (n < size) {
        ssize_t r = pread(fd, (char *)buffer + n, size - n, (off_t)(offset + n));

        if (r < 0 && errno != EINTR)
            return -errno;
        if (r == 0)
            break;
        if (r > 0)
            n += (size_t)r;
    }
    return (int)n;
}

/* Beyond the limit of the process there would be a signal. */
int sys_resize(int fd, uint64_t size)
{
    struct rlimit limit;
    int r;

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && size > limit.rlim_cur)
        return -EFBIG;
    do {
        r = ftruncate(fd, (off_t)size);
    } while (r < 0 && errno == EINTR);
    return or_errno(r);
}

int sys_allocate(int fd, uint64_t offset, uint64_t size)
{
    int r;

    do {
        r = fallocate(fd, 0, (off_t)offset, (off_t)size);
    } while (r < 0 && errno == EINTR);
    return or_errno(r);
}

/* Not a wait in the kernel: a process that was stopped while it holds the lock has no end. */
int sys_lock(int fd)
{
    enum { TRIES = 1000 };
    const struct timespec pause = {0, 1000000};

    for (int i = 0; i < TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        nanosleep(&pause, NULL);
    }
    return -EBUSY;
}

/* By name, not by closing: a child that was forked meanwhile has the same lock. */
void sys_unlock(int fd)
{
    flock(fd, LOCK_UN);
}

int sys_map(int fd, size_t size, bool writable, void **ret)
{
    void *memory = mmap(NULL, size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);

    if (memory == MAP_FAILED)
        return -errno;
    (void)madvise(memory, size, MADV_DONTFORK); /* whoever is forked must not use it anyway */
    *ret = memory;
    return 0;
}

void sys_unmap(void *memory, size_t size)
{
    munmap(memory, size);
}

static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;

    return at != NULL ? (int)(at - digits) : -1;
}

int sys_boot_id(unsigned char ret[16])
{
    char text[40] = "";
    unsigned char id[16] = {0};
    int n = sys_read_part("/proc/sys/kernel/random/boot_id", 0, text, sizeof text - 1);
    unsigned digits = 0;

    if (n < 0)
        return n;
    for (const char *c = text; *c != '\0' && digits < 32; c++) {
        int digit = hex_digit(*c);

        if (digit >= 0) {
            id[digits / 2] = (unsigned char)(id[digits / 2] << 4 | digit);
            digits++;
        }
    }
    if (digits < 32)
        return -EIO;
    memcpy(ret, id, sizeof id);
    return 0;
}

int sys_namespace(const char *kind, uint64_t *ret)
{
    char path[48];
    struct stat found;

    snprintf(path, sizeof path, "/proc/self/ns/%s", kind);
    if (stat(path, &found) == 0) {
        *ret = found.st_ino;
        return 0;
    }
    if (errno != ENOENT || stat("/proc/self/ns", &found) < 0)
        return -errno;
    *ret = 0; /* there is /proc, and this kernel has no such namespaces */
    return 0;
}

/* Named pipes. */

int sys_pipe_make(int directory_fd, const char *name)
{
    return or_errno(mkfifoat(directory_fd, name, S_IRUSR | S_IWUSR));
}

int sys_pipe_read(int fd, void *buffer, size_t size)
{
    long r;

    do {
        r = syscall(SYS_read, fd, buffer, size);
    } while (r < 0 && errno == EINTR);
    if (r < 0)
        return errno == EAGAIN ? 0 : -errno;
    return (int)r;
}

int sys_pipe_write(int fd, const void *data, size_t size)
{
    long r;

    do {
        r = syscall(SYS_write, fd, data, size);
    } while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : 0;
}

/* Processes. */

uint32_t sys_process_id(void)
{
    return (uint32_t)getpid();
}

int sys_process_exists(uint32_t pid)
{
    return or_errno(kill((pid_t)pid, 0));
}

int sys_process_open(uint32_t pid)
{
    return or_errno((int)syscall(SYS_pidfd_open, (pid_t)pid, 0)); /* always close-on-exec */
}

/* Plugins. */

int sys_load(const char *path, void **ret, char *ret_why, size_t why_size)
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

void *sys_symbol(void *library, const char *name)
{
    return dlsym(library, name);
}

/* The process. */

const char *sys_environment(const char *name)
{
    return secure_getenv(name);
}

uint32_t sys_user(void)
{
    return (uint32_t)geteuid();
}

uint64_t sys_random(void)
{
    uint64_t random;
    ssize_t n;

    do {
        n = getrandom(&random, sizeof random, 0);
    } while (n < 0 && errno == EINTR);
    if (n == (ssize_t)sizeof random)
        return random;
    /* Refused, as in some sandboxes. This seeds balancers and hides nothing: instants will do. */
    random = read_clock(CLOCK_REALTIME) * UINT64_C(0x9e3779b97f4a7c15);
    return random ^ read_clock(CLOCK_MONOTONIC) ^ ((uint64_t)getpid() << 32);
}
