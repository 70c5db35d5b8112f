/* SPDX-License-Identifier: MIT */
/* The seam to the system, the fake that stands in for it, and the fixture that watches both. */
#include "lib/clock.h"
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/tmpdir.h"
#include "os/os.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <weir/error.h>

#include <cmocka.h>

/* ---- memory ---- */

static void test_memory(void **state)
{
    unsigned char *memory = os_alloc(100, 3), *nothing = os_alloc(0, 8), *grown;

    (void)state;
    assert_non_null(memory);
    assert_non_null(nothing);
    for (int i = 0; i < 300; i++)
        assert_int_equal(memory[i], 0);
    memset(memory, 7, 300);
    grown = os_realloc(memory, 1000, 3);
    assert_non_null(grown);
    for (int i = 0; i < 300; i++)
        assert_int_equal(grown[i], 7);
    assert_null(os_alloc(SIZE_MAX / 2, 4));
    assert_null(os_realloc(grown, SIZE_MAX / 2, 4)); /* and the old block is still there */
    assert_int_equal(grown[299], 7);
    os_free(grown);
    os_free(nothing);
    os_free(NULL);
}

static void test_aligned_memory(void **state)
{
    (void)state;
    for (size_t alignment = 1; alignment <= 4096; alignment *= 2) {
        unsigned char *memory = os_alloc_aligned(alignment, 777);

        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % alignment, 0);
        for (int i = 0; i < 777; i++)
            assert_int_equal(memory[i], 0);
        os_free(memory);
    }
}

static void test_strdup(void **state)
{
    char *copy = os_strdup("text");

    (void)state;
    assert_string_equal(copy, "text");
    os_free(copy);
}

static void test_reserved_memory(void **state)
{
    const size_t size = (size_t)1 << (getenv("MESON_EXE_WRAPPER") ? 28 : 32);
    const size_t part = 10000;
    unsigned char *memory = os_vm_reserve(size);

    (void)state;
    assert_non_null(memory);
    assert_int_equal(os_vm_commit(memory, part), 0);
    for (size_t i = 0; i < part; i++)
        assert_int_equal(memory[i], 0);
    memset(memory, 9, part);
    assert_int_equal(os_vm_commit(memory, 100 * part), 0); /* keeps what is there */
    assert_int_equal(memory[part - 1], 9);
    assert_int_equal(memory[100 * part - 1], 0);
    os_vm_free(memory, size);
    os_vm_free(NULL, size);
}

/* Memory of address space that is not committed cannot be had, which has no effect. */
static void test_populated_memory(void **state)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = 5 << 20;
    unsigned char *memory = os_vm_reserve(size), resident[(5 << 20) / 4096];

    (void)state;
    assert_non_null(memory);
    os_vm_populate(memory, size);
    assert_int_equal(os_vm_commit(memory, size), 0);
    memory[page] = 9;
    if (madvise(memory, page, -1) == 0 || /* an emulator that ignores it */
        madvise(memory, page, 23) < 0 ||  /* MADV_POPULATE_WRITE */
        (size_t)sysconf(_SC_AVPHYS_PAGES) < 40 * (size / page)) {
        os_vm_free(memory, size);
        print_message("the kernel populates no memory, or there is too little\n");
        skip();
    }
    os_vm_populate(memory, size - page + 1);
    assert_int_equal(mincore(memory, size, resident), 0);
    for (size_t i = 0; i < size / page; i++)
        assert_true(resident[i] & 1);
    for (size_t i = 0; i < size; i++)
        assert_int_equal(memory[i], i == page ? 9 : 0);
    os_vm_free(memory, size);
    os_vm_populate(memory, SIZE_MAX / 2); /* more than is free */
}

/* ---- fork pages ---- */

/* What a forked child sees in a page that began with a byte of 1, or -1. */
static int byte_in_child(const unsigned char *page)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0)
        _exit(page[0]);
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

/* 0 if two pages are wiped in a child, stay in the parent, and one does so without the other. */
static int fork_pages_work(void)
{
    unsigned char *first = os_wipe_page_alloc(), *second = os_wipe_page_alloc();

    if (!first || !second)
        return 1;
    first[0] = second[0] = 1;
    if (byte_in_child(first) != 0 || byte_in_child(second) != 0)
        return 2;
    if (first[0] != 1 || second[0] != 1)
        return 3;
    os_wipe_page_free(first);
    if (byte_in_child(second) != 0 || second[0] != 1)
        return 4;
    os_wipe_page_free(second);
    os_wipe_page_free(NULL);
    return 0;
}

static void test_fork_page(void **state)
{
    (void)state;
    assert_int_equal(fork_pages_work(), 0);
}

/* From now on a system call answers with `code` (0: yes, without doing anything) in this process.
 */
static bool disable_call(unsigned number, unsigned code)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | code),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* A kernel that refuses the advice, and an emulator that ignores it: the handler does the work. */
static void test_fork_page_without_the_kernel(void **state)
{
    static const unsigned codes[] = {EINVAL, 0};

    (void)state;
    for (int i = 0; i < 2; i++) {
        int status = 0;
        pid_t child = fork();

        if (child == 0)
            _exit(disable_call(SYS_madvise, codes[i]) ? fork_pages_work() : 77);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 77) {
            print_message("there is no seccomp here\n");
            skip();
        }
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

/* ---- time ---- */

static void test_clocks(void **state)
{
    uint64_t before = os_now_ns(), after;
    struct timespec wall;
    int64_t sum, ns;

    (void)state;
    sum = (int64_t)os_now_ns() + os_wall_offset_ns();
    clock_gettime(CLOCK_REALTIME, &wall);
    after = os_now_ns();
    ns = (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec;
    assert_true(after >= before && before > 0);
    assert_true(llabs(ns - sum) < 1000000000);
}

/* It is that of one tick, not of two readings at different times. Should the clock of the machine
 * step meanwhile, the next turn tells. */
static void test_the_offset_of_the_wall_clock_is_exact(void **state)
{
    int differences = 0;

    (void)state;
    for (int turn = 0; turn < 3; turn++) {
        int64_t first = os_wall_offset_ns();

        differences = 0;
        for (int i = 0; i < 1000; i++) {
            sched_yield();
            differences += os_wall_offset_ns() != first;
        }
        if (differences == 0)
            break;
    }
    assert_int_equal(differences, 0);
}

/* ---- interruptions ---- */

static volatile sig_atomic_t interruptions;

static void on_alarm(int signal)
{
    (void)signal;
    interruptions++;
}

/* A signal every 2 ms, with a handler that does not restart system calls. */
static void interrupt(bool on)
{
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval timer = {{0, on ? 2000 : 0}, {0, on ? 2000 : 0}};

    sigaction(SIGALRM, &action, NULL);
    if (on)
        interruptions = 0;
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* ThreadSanitizer holds signals back until the system call is over: there is nothing to see. */
#if defined(__SANITIZE_THREAD__)
#define SIGNALS_ARE_SEEN false
#elif defined(__has_feature)
#define SIGNALS_ARE_SEEN !__has_feature(thread_sanitizer)
#else
#define SIGNALS_ARE_SEEN true
#endif

static void assert_interrupted(void)
{
    assert_true(!SIGNALS_ARE_SEEN || interruptions > 1);
}

static void test_futex_is_not_interrupted(void **state)
{
    uint64_t until = os_now_ns() + 40 * MS;
    uint32_t word = 5;

    (void)state;
    interrupt(true);
    assert_int_equal(os_futex_wait(&word, false, 5, until), -ETIMEDOUT);
    interrupt(false);
    assert_true(os_now_ns() >= until);
    assert_interrupted();
}

static void test_epoll_is_not_interrupted(void **state)
{
    int epoll = os_epoll_create(), timer = os_timerfd();
    uint64_t until = os_now_ns() + 40 * MS, data = 0;

    (void)state;
    assert_int_equal(os_epoll_add(epoll, timer, UINT64_C(1) << 63 | 7), 0);
    assert_int_equal(os_timerfd_set(timer, until), 0);
    interrupt(true);
    assert_int_equal(os_epoll_wait(epoll, &data, 1, true), 1);
    interrupt(false);
    assert_true(data == (UINT64_C(1) << 63 | 7));
    assert_true(os_now_ns() >= until);
    assert_interrupted();
    os_close(timer);
    os_close(epoll);
}

static void *write_slowly(void *fd)
{
    const struct timespec pause = {0, 10000000};

    for (int i = 0; i < 4; i++) {
        nanosleep(&pause, NULL);
        if (write(*(int *)fd, "word ", 5) != 5)
            break; /* the reader will miss it */
    }
    close(*(int *)fd);
    return NULL;
}

/* Reading a pipe: it comes in pieces, and signals come in between. */
static void test_reading_is_not_interrupted(void **state)
{
    char path[64], *text = NULL;
    sigset_t alarm, before;
    pthread_t writer;
    size_t size = 0;
    int fds[2];

    (void)state;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[0]);
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, &before); /* in the writer, not in the reader */
    assert_int_equal(pthread_create(&writer, NULL, write_slowly, &fds[1]), 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    interrupt(true);
    assert_int_equal(os_file_read(path, 100, &text, &size), 0);
    interrupt(false);
    assert_int_equal(pthread_join(writer, NULL), 0);
    assert_string_equal(text, "word word word word ");
    assert_int_equal(size, 20);
    assert_interrupted();
    os_free(text);
    close(fds[0]);
}

/* ---- descriptors ---- */

static bool is_readable(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    return poll(&poll_fd, 1, 0) == 1;
}

static void assert_flags(int fd, bool nonblocking)
{
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0, nonblocking);
}

/* Reads the count of an eventfd or timerfd. Returns 0 if there is none, or a negative errno. */
static int64_t drain(int fd)
{
    int64_t count = 0;
    int r = os_read(fd, &count, sizeof(count));

    assert_true(r <= 0 || r == sizeof(count));
    return r < 0 ? r : count;
}

static void test_eventfd(void **state)
{
    int fd = os_eventfd();

    (void)state;
    assert_flags(fd, true);
    assert_int_equal(os_eventfd_add(fd, 0), 0);
    assert_false(is_readable(fd));
    assert_int_equal(drain(fd), 0); /* empty is fine */
    assert_int_equal(os_eventfd_add(fd, 1), 0);
    assert_int_equal(os_eventfd_add(fd, 1), 0);
    assert_true(is_readable(fd));
    assert_int_equal(drain(fd), 2);
    assert_false(is_readable(fd));
    os_close(fd);
    assert_int_equal(os_eventfd_add(fd, 1), -EBADF);
    assert_int_equal(drain(fd), -EBADF);
}

static void test_timerfd(void **state)
{
    int fd = os_timerfd();
    uint64_t at = os_now_ns() + 5 * MS;

    (void)state;
    assert_flags(fd, true);
    assert_int_equal(os_timerfd_set(fd, at), 0);
    while (!is_readable(fd))
        assert_true(os_now_ns() < at + 10000 * MS);
    assert_true(os_now_ns() >= at);
    assert_int_equal(drain(fd), 1);
    assert_int_equal(os_timerfd_set(fd, 0), 0); /* long past, not never */
    assert_true(is_readable(fd));
    assert_int_equal(os_timerfd_set(fd, WEIR_FOREVER), 0);
    assert_false(is_readable(fd));
    assert_int_equal(os_timerfd_set(fd, UINT64_MAX / 2), 0); /* centuries */
    assert_false(is_readable(fd));
    os_close(fd);
}

static void test_epoll(void **state)
{
    int epoll = os_epoll_create(), first = os_eventfd(), second = os_eventfd();
    uint64_t data[4] = {0};

    (void)state;
    assert_flags(epoll, false);
    assert_int_equal(os_epoll_add(epoll, first, 1), 0);
    assert_int_equal(os_epoll_add(epoll, second, 2), 0);
    assert_int_equal(os_epoll_add(epoll, second, 2), -EEXIST);
    assert_int_equal(os_epoll_add(epoll, -1, 2), -EBADF);
    assert_int_equal(os_epoll_wait(epoll, data, 4, false), 0);
    os_eventfd_add(second, 1);
    assert_int_equal(os_epoll_wait(epoll, data, 4, true), 1);
    assert_int_equal(data[0], 2);
    os_eventfd_add(first, 1);
    assert_int_equal(os_epoll_wait(epoll, data, 4, true), 2);
    assert_int_equal(data[0] + data[1], 3);
    assert_int_equal(os_epoll_wait(epoll, data, 1, false), 1);
    os_close(first);
    os_close(second);
    os_close(epoll);
    os_close(-1);
}

/* ---- futex words and threads ---- */

static _Alignas(4) _Atomic uint32_t word;

static const uint32_t *futex_word(void)
{
    return (const uint32_t *)(uintptr_t)&word; /* the cast takes _Atomic away */
}

static void wake_later(void *argument)
{
    const struct timespec pause = {0, 5000000};

    (void)argument;
    nanosleep(&pause, NULL);
    atomic_store(&word, 1);
    os_futex_wake(futex_word(), false);
}

static void test_futex(void **state)
{
    struct os_thread *thread = NULL;

    (void)state;
    atomic_store(&word, 0);
    assert_int_equal(os_futex_wake(futex_word(), false), 0);
    assert_int_equal(os_futex_wait(futex_word(), false, 1, WEIR_FOREVER), -EAGAIN);
    assert_int_equal(os_futex_wait(futex_word(), false, 0, 0), -ETIMEDOUT);
    assert_int_equal(os_futex_wait(futex_word(), false, 0, os_now_ns()), -ETIMEDOUT);
    assert_int_equal(os_thread_start(&thread, wake_later, NULL, "waker"), 0);
    while (atomic_load(&word) == 0)
        os_futex_wait(futex_word(), false, 0, WEIR_FOREVER);
    os_thread_join(thread);
}

struct seen {
    char name[32];
    uint32_t id;
    bool all_blocked;
    int argument;
};

static void look_around(void *argument)
{
    struct seen *seen = argument;
    sigset_t mask;

    pthread_getname_np(pthread_self(), seen->name, sizeof(seen->name));
    seen->id = os_thread_id();
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    seen->all_blocked = true;
    for (int signal = 1; signal < SIGSYS; signal++) {
        if (signal != SIGKILL && signal != SIGSTOP && sigismember(&mask, signal) != 1)
            seen->all_blocked = false;
    }
    seen->argument++;
}

static void test_thread(void **state)
{
    struct seen seen = {.argument = 41};
    struct os_thread *thread = NULL;
    sigset_t mask;

    (void)state;
    assert_int_equal(os_thread_start(&thread, look_around, &seen, "a name longer than 15"), 0);
    os_thread_join(thread);
    os_thread_join(NULL);
    assert_string_equal(seen.name, "a name longer t");
    assert_true(seen.all_blocked);
    assert_int_equal(seen.argument, 42);
    assert_true(seen.id != os_thread_id());
    assert_int_equal(os_thread_id(), getpid());
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    assert_int_equal(sigismember(&mask, SIGINT), 0); /* the caller's mask is as it was */
}

/* Process to process: a word in shared memory is the same wherever it is mapped. */
static void test_shared_futex(void **state)
{
    const struct timespec moment = {0, 1000000};
    _Atomic uint32_t *words =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const uint32_t *futex = (const uint32_t *)(uintptr_t)words;
    int woken = 0, status = 1;
    pid_t child;

    (void)state;
    assert_true(words != MAP_FAILED);
    assert_int_equal(os_futex_wake(futex, true), 0);
    assert_int_equal(os_futex_wait(futex, true, 1, WEIR_FOREVER), -EAGAIN);
    assert_int_equal(os_futex_wait(futex, true, 0, os_now_ns() + MS), -ETIMEDOUT);
    child = fork();
    if (child == 0)
        _exit(os_futex_wait(futex, true, 0, os_now_ns() + 10000 * MS) == 0 ? 0 : 1);
    for (int i = 0; i < 10000 && woken == 0; i++) {
        nanosleep(&moment, NULL);
        woken = os_futex_wake(futex, true);
    }
    assert_int_equal(woken, 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    munmap(words, 4096);
}

/* ---- files ---- */

static void write_file(const char *path, size_t size)
{
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    for (size_t i = 0; i < size; i++)
        fputc('a' + (int)(i % 26), file);
    assert_int_equal(fclose(file), 0);
}

static void test_read_file(void **state)
{
    static const size_t sizes[] = {0, 1, 4095, 4096, 4097, 8192, 100000};
    char path[] = "/tmp/weir-sys-XXXXXX", *text = NULL;
    size_t size = 0;
    int fd = mkstemp(path);

    (void)state;
    close(fd);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        write_file(path, sizes[i]);
        assert_int_equal(os_file_read(path, sizes[i], &text, &size), 0);
        assert_int_equal(size, sizes[i]);
        assert_int_equal(text[size], '\0');
        assert_int_equal(strlen(text), size);
        if (size > 0)
            assert_int_equal(text[size - 1], 'a' + (int)((size - 1) % 26));
        os_free(text);
        text = NULL;
        if (sizes[i] > 0) {
            assert_int_equal(os_file_read(path, sizes[i] - 1, &text, &size), -EFBIG);
            assert_null(text);
        }
    }
    unlink(path);
    assert_int_equal(os_file_read(path, 10, &text, &size), -ENOENT);
    assert_int_equal(os_file_read("/tmp", 10, &text, &size), -EISDIR);
}

/* ---- files in a directory ---- */

static char directory_path[TMPDIR_SIZE];

static int open_directory(void)
{
    int fd;

    assert_true(tmpdir_make(directory_path, NULL));
    fd = os_dir_open_fd(directory_path);
    assert_flags(fd, false);
    return fd;
}

static void remove_directory(int fd)
{
    os_close(fd);
    assert_int_equal(rmdir(directory_path), 0);
}

static void test_nameless_files(void **state)
{
    int directory = open_directory(), first = os_open_tmpfile(directory);
    int second = os_open_tmpfile(directory), found;
    struct stat status;
    char text[8] = "";

    (void)state;
    assert_flags(first, false);
    assert_int_equal(write(first, "first", 5), 5);
    assert_int_equal(os_open_at(directory, "name", true), -ENOENT);
    assert_int_equal(os_link_at(first, directory, "name"), 0);
    assert_int_equal(os_link_at(second, directory, "name"), -EEXIST);
    assert_int_equal(os_fstat(second, &status), 0);
    assert_int_equal(status.st_nlink, 0);
    assert_int_equal(os_stat_at(directory, "name", &status), 0);
    assert_int_equal(status.st_mode, S_IFREG | 0600);
    found = os_open_at(directory, "name", false);
    assert_flags(found, true);
    assert_int_equal(os_pread(found, 0, text, 3), 3);
    assert_string_equal(text, "fir");
    assert_int_equal(os_pread(found, 2, text, 8), 3); /* the file ends */
    assert_memory_equal(text, "rst", 3);
    assert_int_equal(os_pread(found, 5, text, 8), 0);
    assert_int_equal(os_pread(found, UINT64_MAX - 3, text, 8), -EINVAL);
    assert_int_equal(write(found, "x", 1), -1); /* not writable */
    assert_int_equal(os_unlink_at(directory, "name"), 0);
    assert_int_equal(os_unlink_at(directory, "name"), -ENOENT);
    assert_int_equal(os_stat_at(directory, "name", &status), -ENOENT);
    os_close(first);
    os_close(second);
    os_close(found);
    remove_directory(directory);
}

static void test_opening_follows_and_waits_for_nothing(void **state)
{
    int directory = open_directory(), fd;

    (void)state;
    assert_int_equal(symlinkat("/etc/passwd", directory, "link"), 0);
    assert_int_equal(mkfifoat(directory, "fifo", 0600), 0);
    assert_int_equal(os_open_at(directory, "link", false), -ELOOP);
    fd = os_open_at(directory, "fifo", false); /* without a writer */
    assert_flags(fd, true);
    os_close(fd);
    os_unlink_at(directory, "link");
    os_unlink_at(directory, "fifo");
    remove_directory(directory);
}

static void test_readers_of_fifos(void **state)
{
    int directory = open_directory(), fd;

    (void)state;
    assert_int_equal(os_fifo_is_read(directory, "fifo"), -ENOENT);
    assert_int_equal(os_fifo_make(directory, "fresh"), 0);
    assert_int_equal(os_rename_at(directory, "fresh", "fifo"), 0);
    assert_int_equal(os_rename_at(directory, "fresh", "fifo"), -ENOENT);
    assert_int_equal(os_fifo_is_read(directory, "fifo"), 0);
    fd = os_open_at(directory, "fifo", true);
    assert_int_equal(os_fifo_is_read(directory, "fifo"), 1);
    os_close(fd);
    assert_int_equal(os_fifo_is_read(directory, "fifo"), 0);
    assert_int_equal(symlinkat("fifo", directory, "link"), 0);
    assert_int_equal(os_fifo_is_read(directory, "link"), -ELOOP);
    os_unlink_at(directory, "link");
    os_unlink_at(directory, "fifo");
    remove_directory(directory);
}

struct deleted {
    unsigned n;
    int r;
    char path[64];
};

static int see_deleted(void *userdata, uint32_t pid, const char *path)
{
    struct deleted *deleted = userdata;

    if (pid != (uint32_t)getpid())
        return 0;
    deleted->n++;
    snprintf(deleted->path, sizeof(deleted->path), "%s", path);
    return deleted->r;
}

/* Files that were linked after they were made, and directories that are gone. */
static void test_files_without_a_name(void **state)
{
    char place[] = "/dev/shm/weir-os-XXXXXX", inside[64];
    struct deleted deleted = {0};
    int directory, fd, other;
    struct stat file, found;

    (void)state;
    assert_non_null(mkdtemp(place));
    snprintf(inside, sizeof(inside), "%s/inside", place);
    assert_int_equal(mkdir(inside, 0700), 0);
    directory = os_dir_open_fd(place);
    fd = os_open_tmpfile(directory);
    assert_int_equal(os_link_at(fd, directory, "file"), 0);
    other = openat(directory, "inside/other", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_int_equal(unlinkat(directory, "inside/other", 0), 0);
    assert_int_equal(os_deleted_files(place, see_deleted, &deleted), 0);
    assert_int_equal(deleted.n, 0);
    assert_int_equal(os_deleted_files(inside, see_deleted, &deleted), 0);
    assert_int_equal(deleted.n, 1);
    assert_int_equal(rmdir(inside), 0);
    os_unlink_at(directory, "file");
    for (int gone = 0; gone < 2; gone++) {
        deleted = (struct deleted){.r = 5};
        assert_int_equal(os_deleted_files(place, see_deleted, &deleted), 5);
        assert_int_equal(deleted.n, 1);
        assert_int_equal(stat(deleted.path, &found), 0);
        assert_int_equal(fstat(fd, &file), 0);
        assert_int_equal(found.st_ino, file.st_ino);
        assert_int_equal(rmdir(place), gone ? -1 : 0);
    }
    assert_int_equal(os_deleted_files("/nonexistent/x", see_deleted, &deleted), -ENOENT);
    os_close(fd);
    close(other);
    os_close(directory);
}

static void test_memory_of_files(void **state)
{
    int directory = open_directory(), fd = os_open_tmpfile(directory);
    unsigned char *writable = NULL, *readable = NULL;
    _Atomic bool lost = false;
    void *map = NULL;
    struct stat status;

    (void)state;
    assert_int_equal(os_ftruncate(fd, 1 << 20), 0);
    assert_int_equal(os_fallocate(fd, 4096, 4096), 0);
    assert_int_equal(os_fstat(fd, &status), 0);
    assert_int_equal(status.st_size, 1 << 20);
    assert_int_equal(os_fallocate(fd, 1 << 20, 4096), 0); /* beyond the end: the size stays */
    assert_int_equal(os_fstat(fd, &status), 0);
    assert_int_equal(status.st_size, 1 << 20);
    assert_true(status.st_blocks > 0 && status.st_blocks < (1 << 20) / 512);
    assert_int_equal(os_map_shared(fd, 1 << 20, true, &lost, &map), 0);
    writable = map;
    assert_int_equal(os_map_shared(fd, 1 << 20, false, &lost, &map), 0);
    readable = map;
    writable[5000] = 7;
    assert_int_equal(readable[5000], 7);
    os_unmap_shared(writable, 1 << 20);
    assert_int_equal(readable[5000], 7);
    os_unmap_shared(readable, 1 << 20);
    assert_false(lost);
    os_close(fd);
    assert_int_equal(os_map_shared(fd, 1 << 20, true, &lost, &map), -EBADF);
    assert_int_equal(os_ftruncate(fd, 1), -EBADF);
    assert_int_equal(os_fallocate(fd, 0, 1), -EBADF);
    remove_directory(directory);
}

/* The thread that holds it may be stopped for ever: none waits as long. */
static void test_lock(void **state)
{
    int directory = open_directory(), fd = os_open_tmpfile(directory), again, status = 0;
    char path[32];
    pid_t child;

    (void)state;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    again = open(path, O_RDWR | O_CLOEXEC);
    assert_true(again >= 0);
    assert_int_equal(os_file_lock(fd), 0);
    child = fork(); /* has the lock too, and keeps it from none once it is given back */
    if (child == 0) {
        pause();
        _exit(0);
    }
    assert_int_equal(os_file_lock(again), -EBUSY);
    os_file_unlock(fd);
    assert_int_equal(os_file_lock(again), 0);
    os_file_unlock(again);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(os_file_lock(fd), 0);
    close(again);
    os_close(fd);
    assert_int_equal(os_file_lock(fd), -EBADF);
    remove_directory(directory);
}

static void test_boot_and_namespaces(void **state)
{
    unsigned char first[16] = {0}, second[16] = {0}, nothing[16] = {0};
    uint64_t pid = 0, same = 1;

    (void)state;
    assert_int_equal(os_boot_id(first), 0);
    assert_int_equal(os_boot_id(second), 0);
    assert_memory_equal(first, second, 16);
    assert_memory_not_equal(first, nothing, 16);
    assert_int_equal(os_namespace_id("pid", &pid), 0);
    assert_int_equal(os_namespace_id("pid", &same), 0);
    assert_true(pid != 0 && pid == same);
    assert_int_equal(os_namespace_id("time", &same), 0);
    assert_true(pid != same);
    assert_int_equal(os_namespace_id("nothing", &same), 0); /* as a kernel that has none */
    assert_int_equal(same, 0);
}

static void test_parent(void **state)
{
    uint32_t parent = 0;

    (void)state;
    prctl(PR_SET_NAME, "a) R 7 (\n b) 8");
    assert_int_equal(os_process_parent(os_process_id(), &parent), 0);
    assert_int_equal(parent, getppid());
    assert_int_equal(os_process_parent(1, &parent), 0);
    assert_int_equal(parent, 0);
    parent = 5;
    assert_int_equal(os_process_parent(UINT32_MAX, &parent), -ENOENT);
    assert_int_equal(parent, 5);
}

/* The time namespace of a process without its first thread. */
static void *namespace_without_first_thread(void *expected)
{
    char line[512] = "";
    uint64_t found = 0;

    while (!strstr(line, ") Z ")) {
        int n = os_file_read_part("/proc/self/stat", 0, line, sizeof(line) - 1);

        line[n > 0 ? n : 0] = '\0';
        usleep(1000);
    }
    _exit(os_namespace_id("time", &found) == 0 && found == *(uint64_t *)expected ? 0 : 1);
}

static void test_namespace_without_first_thread(void **state)
{
    static uint64_t expected;
    pthread_t thread;
    int status = 0;
    pid_t child;

    (void)state;
    if (getenv("MESON_EXE_WRAPPER")) {
        print_message("an emulator answers for /proc/self/stat itself\n");
        skip();
    }
    assert_int_equal(os_namespace_id("time", &expected), 0);
    child = fork();
    if (child == 0) {
        alarm(300);
        if (pthread_create(&thread, NULL, namespace_without_first_thread, &expected) != 0)
            _exit(2);
        syscall(SYS_exit, 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_read_part(void **state)
{
    char path[] = "/tmp/weir-sys-XXXXXX", part[10] = "";
    int fd = mkstemp(path);

    (void)state;
    close(fd);
    write_file(path, 26);
    assert_int_equal(os_file_read_part(path, 0, part, 3), 3);
    assert_memory_equal(part, "abc", 3);
    assert_int_equal(os_file_read_part(path, 24, part, 10), 2);
    assert_memory_equal(part, "yz", 2);
    assert_int_equal(os_file_read_part(path, 1000, part, 10), 0);
    assert_int_equal(os_file_read_part(path, UINT64_MAX, part, 10), -EINVAL);
    unlink(path);
    assert_int_equal(os_file_read_part(path, 0, part, 1), -ENOENT);
}

static void test_directory(void **state)
{
    char path[TMPDIR_SIZE], file[TMPDIR_SIZE + 8], name[64];
    void *directory = NULL;
    struct stat status;

    (void)state;
    assert_true(tmpdir_make(path, "/tmp"));
    snprintf(file, sizeof(file), "%s/entry", path);
    write_file(file, 3);
    assert_int_equal(os_stat(file, &status), 0);
    assert_int_equal(status.st_size, 3);
    assert_int_equal(os_dir_open(AT_FDCWD, path, &directory), 0);
    assert_int_equal(os_dir_next(directory, name, sizeof(name)), 1);
    assert_string_equal(name, "entry");
    assert_int_equal(os_dir_next(directory, name, sizeof(name)), 0);
    os_dir_close(directory);
    assert_int_equal(os_dir_open(AT_FDCWD, path, &directory), 0);
    assert_int_equal(os_dir_next(directory, name, 5), -ENAMETOOLONG);
    os_dir_close(directory);
    os_dir_close(NULL);
    unlink(file);
    rmdir(path);
    assert_int_equal(os_dir_open(AT_FDCWD, path, &directory), -ENOENT);
    assert_int_equal(os_stat(path, &status), -ENOENT);
}

static void test_load(void **state)
{
    char why[16] = "", all[256] = "";
    void *library = NULL;

    (void)state;
    assert_int_equal(os_dlopen("/nowhere/at/all.so", &library, why, sizeof(why)), -ENOEXEC);
    assert_null(library);
    assert_string_equal(why, "/nowhere/at/all"); /* cut, not overrun */
    assert_int_equal(os_dlopen("/nowhere/at/all.so", &library, all, sizeof(all)), -ENOEXEC);
    assert_non_null(strstr(all, "No such file"));
    assert_int_equal(os_dlopen("libm.so.6", &library, all, sizeof(all)), 0);
    assert_non_null(os_dlsym(library, "cos"));
    assert_null(os_dlsym(library, "no_such_symbol_anywhere"));
}

static void test_process(void **state)
{
    (void)state;
    setenv("WEIR_TEST_VARIABLE", "value", 1);
    assert_string_equal(os_getenv("WEIR_TEST_VARIABLE"), "value");
    unsetenv("WEIR_TEST_VARIABLE");
    assert_null(os_getenv("WEIR_TEST_VARIABLE"));
    assert_int_equal(os_user_id(), geteuid());
}

/* 0 if the numbers of a forbidden getrandom() differ, and none is given out as a secret. */
static int randomness_is_lacking(void)
{
    uint64_t secret = 7;

    if (os_random_secret(&secret, 1) != -EPERM || secret != 7)
        return 1;
    return os_random() != os_random() ? 0 : 2;
}

static void test_random(void **state)
{
    uint64_t secrets[2] = {0};
    int status = 0;
    pid_t child;

    (void)state;
    assert_true(os_random() != os_random());
    assert_int_equal(os_random_secret(secrets, 2), 0);
    assert_true(secrets[0] && secrets[1] && secrets[0] != secrets[1]);
    child = fork();
    if (child == 0)
        _exit(disable_call(SYS_getrandom, EPERM) ? randomness_is_lacking() : 77);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) != 77)
        assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- the fake ---- */

static void test_fake_fails_the_nth_call(void **state)
{
    void *first, *third;

    (void)state;
    fake_os_fail_at(2);
    first = os_alloc(1, 1);
    assert_non_null(first);
    assert_false(fake_os_has_failed());
    assert_int_equal(os_eventfd(), -EMFILE); /* counted together */
    assert_true(fake_os_has_failed());
    third = os_strdup("x");
    assert_non_null(third);
    assert_int_equal(fake_os_calls(), 3);

    fake_os_fail_kind_at(1, FAKE_FILE, -ELOOP);
    os_free(os_alloc(1, 1)); /* of another kind */
    assert_int_equal(os_stat("/", &(struct stat){0}), -ELOOP);
    assert_int_equal(os_stat("/", &(struct stat){0}), 0);

    fake_os_fail_kind_from(2, FAKE_MEMORY, 0);
    os_free(first);
    first = os_realloc(third, 10, 1);
    assert_non_null(first);
    assert_null(os_realloc(first, 20, 1));
    assert_null(os_vm_reserve(4096));
    assert_null(os_wipe_page_alloc());
    assert_null(os_alloc_aligned(64, 64));
    fake_os_fail_at(0);
    os_free(first);
    assert_false(fake_os_has_failed());
}

static void test_fake_fails_every_kind(void **state)
{
    struct os_thread *thread = NULL;
    uint64_t data;

    (void)state;
    fake_os_fail_kind_from(1, FAKE_THREAD | FAKE_EVENT | FAKE_FUTEX, 0);
    assert_int_equal(os_thread_start(&thread, look_around, NULL, "x"), -EAGAIN);
    assert_int_equal(os_timerfd_set(-1, 0), -ENOMEM);
    assert_int_equal(os_epoll_wait(-1, &data, 1, true), -ENOMEM);
    atomic_store(&word, 3);
    assert_int_equal(os_futex_wait(futex_word(), false, 3, WEIR_FOREVER), 0); /* for nothing */
}

static void test_fake_counts(void **state)
{
    struct fake_os_counts counts;
    int fd;

    (void)state;
    fake_os_reset();
    os_free(os_alloc(1, 1));
    os_now_ns();
    assert_int_equal(fake_os_system_calls(), 0);
    fd = os_eventfd();
    os_eventfd_add(fd, 1);
    os_eventfd_add(fd, 1);
    os_close(fd);
    os_futex_wake(futex_word(), false);
    counts = fake_os_counts();
    assert_int_equal(counts.alloc, 1);
    assert_int_equal(counts.free, 1);
    assert_int_equal(counts.now, 1);
    assert_int_equal(counts.open, 1);
    assert_int_equal(counts.close, 1);
    assert_int_equal(counts.signal, 2);
    assert_int_equal(counts.futex_wake, 1);
    assert_int_equal(fake_os_system_calls(), 5);
}

static void nothing(void *argument)
{
    (void)argument;
}

static void test_fake_knows_what_is_live(void **state)
{
    struct fake_os_live before = fake_os_live(), now;
    struct os_thread *thread = NULL;
    void *block, *region, *page, *directory = NULL;
    int fd = os_timerfd();

    (void)state;
    block = os_alloc_aligned(64, 100);
    region = os_vm_reserve(1 << 20);
    page = os_wipe_page_alloc();
    assert_int_equal(os_dir_open(AT_FDCWD, "/", &directory), 0);
    assert_int_equal(os_thread_start(&thread, nothing, NULL, "x"), 0);
    now = fake_os_live();
    assert_int_equal(now.blocks - before.blocks, 1);
    assert_true(now.bytes - before.bytes >= 100);
    assert_int_equal(now.regions - before.regions, 2);
    assert_int_equal(now.descriptors - before.descriptors, 1);
    assert_int_equal(now.directories - before.directories, 1);
    assert_int_equal(now.threads - before.threads, 1);
    os_free(block);
    os_vm_free(region, 1 << 20);
    os_wipe_page_free(page);
    os_dir_close(directory);
    os_thread_join(thread);
    os_close(fd);
    now = fake_os_live();
    assert_memory_equal(&now, &before, sizeof(now));
}

static void wait_a_second(void *ret)
{
    *(int *)ret = os_futex_wait(futex_word(), false, 0, 3 * 1000 * MS);
}

static void test_fake_clock(void **state)
{
    struct os_thread *thread = NULL;
    int fd = os_timerfd(), result = 1;

    (void)state;
    fake_clock_set(2 * 1000 * MS);
    fake_clock_set_wall_offset(-5);
    assert_int_equal(os_now_ns(), 2 * 1000 * MS);
    assert_int_equal(os_wall_offset_ns(), -5);
    assert_int_equal(os_timerfd_set(fd, 3 * 1000 * MS), 0);
    assert_false(is_readable(fd));
    atomic_store(&word, 0);
    assert_int_equal(os_thread_start(&thread, wait_a_second, &result, "x"), 0);
    fake_clock_advance(1000 * MS - 1);
    assert_false(is_readable(fd));
    fake_clock_advance(1);
    assert_true(is_readable(fd));
    os_thread_join(thread);
    assert_int_equal(result, -ETIMEDOUT);
    assert_int_equal(os_timerfd_set(fd, 1), 0); /* past already */
    assert_true(is_readable(fd));
    os_close(fd);
}

static void test_steps_of_the_wall_clock_make_a_descriptor_readable(void **state)
{
    int fd = os_wall_timerfd();

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(os_wall_timerfd_arm(fd), 0);
    assert_false(is_readable(fd));
    fake_clock_step_wall(-5);
    assert_true(is_readable(fd));
    assert_int_equal(os_wall_timerfd_arm(fd), 0);
    assert_false(is_readable(fd));
    os_close(fd);
    fake_clock_step_wall(5); /* nothing listens any more */
    assert_true(os_wall_timerfd_arm(fd) < 0);
}

/* ---- the fixture ---- */

/* What the fixture says of a test that leaves `leak` behind. Quiet: it complains on stderr. */
static int judge(void (*leak)(void), void (*clean)(void))
{
    int error = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY | O_CLOEXEC), verdict;

    fixture_setup(NULL);
    leak();
    fflush(stderr);
    dup2(null, STDERR_FILENO);
    verdict = fixture_teardown(NULL);
    fflush(stderr);
    dup2(error, STDERR_FILENO);
    clean();
    close(null);
    close(error);
    return verdict;
}

static void *leaked;
static int leaked_fd;
static pthread_t leaked_thread;
static sem_t leaked_end;

static void leak_nothing(void)
{
    leaked = os_alloc(1, 1);
    os_free(leaked);
}

static void leak_block(void)
{
    leaked = os_alloc(1, 1);
}

static void clean_block(void)
{
    os_free(leaked);
}

static void leak_fd(void)
{
    leaked_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void clean_fd(void)
{
    close(leaked_fd);
}

static void leak_region(void)
{
    leaked = os_vm_reserve(4096);
}

static void clean_region(void)
{
    os_vm_free(leaked, 4096);
}

static void *wait_for_end(void *argument)
{
    sem_wait(argument);
    return NULL;
}

static void leak_thread(void)
{
    sem_init(&leaked_end, 0, 0);
    assert_int_equal(pthread_create(&leaked_thread, NULL, wait_for_end, &leaked_end), 0);
}

static void clean_thread(void)
{
    sem_post(&leaked_end);
    pthread_join(leaked_thread, NULL);
}

static void test_fixture_finds_leaks(void **state)
{
    (void)state;
    assert_int_equal(judge(leak_nothing, leak_nothing), 0);
    assert_int_not_equal(judge(leak_block, clean_block), 0);
    assert_int_not_equal(judge(leak_fd, clean_fd), 0);
    assert_int_not_equal(judge(leak_region, clean_region), 0);
    assert_int_not_equal(judge(leak_thread, clean_thread), 0);
    assert_int_equal(judge(leak_nothing, leak_nothing), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(test_memory),
        leak_checked_test(test_aligned_memory),
        leak_checked_test(test_strdup),
        leak_checked_test(test_reserved_memory),
        leak_checked_test(test_populated_memory),
        leak_checked_test(test_fork_page),
        leak_checked_test(test_fork_page_without_the_kernel),
        leak_checked_test(test_clocks),
        leak_checked_test(test_the_offset_of_the_wall_clock_is_exact),
        leak_checked_test(test_steps_of_the_wall_clock_make_a_descriptor_readable),
        leak_checked_test(test_futex_is_not_interrupted),
        leak_checked_test(test_epoll_is_not_interrupted),
        leak_checked_test(test_reading_is_not_interrupted),
        leak_checked_test(test_eventfd),
        leak_checked_test(test_timerfd),
        leak_checked_test(test_epoll),
        leak_checked_test(test_futex),
        leak_checked_test(test_shared_futex),
        leak_checked_test(test_thread),
        leak_checked_test(test_read_file),
        leak_checked_test(test_read_part),
        leak_checked_test(test_nameless_files),
        leak_checked_test(test_opening_follows_and_waits_for_nothing),
        leak_checked_test(test_readers_of_fifos),
        leak_checked_test(test_files_without_a_name),
        leak_checked_test(test_memory_of_files),
        leak_checked_test(test_lock),
        leak_checked_test(test_boot_and_namespaces),
        leak_checked_test(test_parent),
        leak_checked_test(test_namespace_without_first_thread),
        leak_checked_test(test_directory),
        leak_checked_test(test_load),
        leak_checked_test(test_process),
        leak_checked_test(test_random),
        leak_checked_test(test_fake_fails_the_nth_call),
        leak_checked_test(test_fake_fails_every_kind),
        leak_checked_test(test_fake_counts),
        leak_checked_test(test_fake_knows_what_is_live),
        leak_checked_test(test_fake_clock),
        cmocka_unit_test(test_fixture_finds_leaks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
