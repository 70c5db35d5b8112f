/* SPDX-License-Identifier: MIT */
/*
 * The signal of a truncated segment, SIGBUS, and the handlers of a program: the library handles its
 * own faults, and each other fault goes where it would have gone without the library. Each case is
 * a child, as a process has one disposition; the parent opens nothing.
 */
#include "lib/child.h"
#include "shared.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <weir/segment.h>

#include <cmocka.h>

static const char text[] = "version: 1\n"
                           "sets:\n"
                           "  s:\n"
                           "    backend: process\n"
                           "    limits:\n"
                           "      - { type: resource, key: slot, capacity: 2 }\n";

#define FILE_SIZE ((size_t)65536)

/* Runs it in a child, which ends with success or is killed by `signal`. */
static void run(void (*body)(void *argument), void *argument, int signal)
{
    shared_wait(shared_fork(body, argument), signal);
}

/* ---- a set of which the segment is truncated ---- */

static weir *instance;
static weir_pool *pool;

static weir *open_with(uint32_t flags)
{
    const struct weir_options options = {
        .size = sizeof(options), .text = text, .process_dir = shared_directory(), .flags = flags};
    weir *w = NULL;

    require(weir_open(&w, &options, NULL) == 0);
    return w;
}

static int try_slot(weir_acquisition **ret)
{
    struct shared_request memory;

    return weir_try_acquire(pool, shared_ask(&memory, "slot", 1, 0), ret, NULL);
}

static void open_set(uint32_t flags)
{
    weir_acquisition *acquisition = NULL;

    instance = open_with(flags);
    pool = shared_pool(instance, "s");
    require(try_slot(&acquisition) == 0);
    require(weir_release(&acquisition) == 0);
}

static void truncate_segment(void)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/s.weir", shared_directory());
    require(truncate(path, 0) == 0);
}

static void close_set(void)
{
    pool = weir_pool_close(pool);
    instance = weir_close(instance);
}

static void require_broken(void)
{
    weir_acquisition *acquisition = NULL;

    truncate_segment();
    for (int i = 0; i < 3; i++)
        require(try_slot(&acquisition) == -EUCLEAN && !acquisition);
}

/* ---- a fault of the program's own ---- */

static volatile char *own_memory;

static void map_own(void)
{
    char path[128];
    int fd;

    snprintf(path, sizeof(path), "%s/own", shared_directory());
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    require(fd >= 0 && ftruncate(fd, FILE_SIZE) == 0);
    own_memory = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    require(own_memory != MAP_FAILED);
    own_memory[0] = 1;
    require(ftruncate(fd, 0) == 0);
    close(fd);
}

static sigjmp_buf after_fault;
static volatile sig_atomic_t faults, on_own_stack, others_blocked, self_blocked;
static void *volatile fault_at;
static char own_stack[1 << 16];

static void note_mask(void)
{
    sigset_t blocked;
    char here;

    sigprocmask(SIG_BLOCK, NULL, &blocked);
    others_blocked = sigismember(&blocked, SIGUSR1);
    self_blocked = sigismember(&blocked, SIGBUS);
    on_own_stack = &here >= own_stack && &here < own_stack + sizeof(own_stack);
    faults = faults + 1;
}

static void on_siginfo(int signal, siginfo_t *info, void *context)
{
    (void)context;
    require(signal == SIGBUS);
    fault_at = info->si_addr;
    note_mask();
    siglongjmp(after_fault, 1);
}

static void on_signal(int signal)
{
    require(signal == SIGBUS);
    note_mask();
    siglongjmp(after_fault, 1);
}

/* It is the program's, which goes on behind it. */
static void fault_own(void)
{
    sig_atomic_t before = faults;

    if (sigsetjmp(after_fault, 1) == 0)
        own_memory[4096] = 1;
    require(faults == before + 1);
}

/* ---- handlers that were there before ---- */

struct before {
    void (*siginfo)(int signal, siginfo_t *info, void *context);
    void (*plain)(int signal);
    int flags;
    bool blocks_another;
};

static void install(const struct before *before)
{
    struct sigaction action = {.sa_flags = before->flags};
    const stack_t stack = {.ss_sp = own_stack, .ss_size = sizeof(own_stack)};

    sigemptyset(&action.sa_mask);
    if (before->blocks_another)
        sigaddset(&action.sa_mask, SIGUSR1);
    if (before->flags & SA_SIGINFO)
        action.sa_sigaction = before->siginfo;
    else
        action.sa_handler = before->plain;
    require(sigaltstack(&stack, NULL) == 0);
    require(sigaction(SIGBUS, &action, NULL) == 0);
}

static void run_before(void *argument)
{
    const struct before *before = argument;

    install(before);
    open_set(0);
    map_own();
    fault_own();
    require(faults == 1);
    if (before->siginfo)
        require((volatile char *)fault_at == own_memory + 4096);
    require(others_blocked == before->blocks_another);
    require(self_blocked == !(before->flags & SA_NODEFER));
    require(on_own_stack == ((before->flags & SA_ONSTACK) != 0));
    require_broken();
    require(faults == 1);
    fault_own();
    close_set();
    fault_own(); /* the handler stays, and the program's with it */
}

static void test_handler_before(void **state)
{
    struct before befores[] = {
        {.siginfo = on_siginfo, .flags = SA_SIGINFO},
        {.siginfo = on_siginfo, .flags = SA_SIGINFO | SA_ONSTACK, .blocks_another = true},
        {.siginfo = on_siginfo, .flags = SA_SIGINFO | SA_NODEFER},
        {.plain = on_signal},
        {.plain = on_signal, .flags = (int)(SA_ONSTACK | SA_NODEFER | SA_RESTART)},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(befores) / sizeof(befores[0]); i++) {
        run(run_before, &befores[i], 0);
        shared_end();
        shared_begin();
    }
}

/* ---- dispositions that are no handlers ---- */

/* What is to kill the process, with the library's handler installed. */
enum deadly { OWN_FAULT, RAISED, SENT, AFTER_RESET, IGNORED_FAULT };

static void run_deadly(void *argument)
{
    enum deadly deadly = *(enum deadly *)argument;

    if (deadly == AFTER_RESET)
        install(&(struct before){.plain = on_signal, .flags = (int)SA_RESETHAND});
    if (deadly == IGNORED_FAULT)
        require(signal(SIGBUS, SIG_IGN) != SIG_ERR);
    open_set(0);
    require_broken();
    map_own();
    if (deadly == AFTER_RESET)
        fault_own();
    if (deadly == IGNORED_FAULT) /* as it is without a handler */
        require(raise(SIGBUS) == 0 && kill(getpid(), SIGBUS) == 0);
    if (deadly == RAISED)
        raise(SIGBUS);
    else if (deadly == SENT)
        kill(getpid(), SIGBUS);
    else
        own_memory[4096] = 1;
    require(!"the process has ended");
}

static void test_other_faults_kill(void **state)
{
    (void)state;
    for (enum deadly deadly = OWN_FAULT; deadly <= IGNORED_FAULT; deadly++) {
        run(run_deadly, &deadly, SIGBUS);
        shared_end();
        shared_begin();
    }
}

/* ---- handlers that come later ---- */

static struct sigaction saved;

static void ask_library(int signal, siginfo_t *info, void *context)
{
    int before = errno = 4711;

    if (weir_segment_fault(info)) {
        require(errno == before);
        return;
    }
    on_siginfo(signal, info, context);
}

static void ask_saved(int signal, siginfo_t *info, void *context)
{
    if ((volatile char *)info->si_addr >= own_memory &&
        (volatile char *)info->si_addr < own_memory + FILE_SIZE)
        on_siginfo(signal, info, context);
    saved.sa_sigaction(signal, info, context);
}

static void run_after(void *argument)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO};
    bool chains = *(bool *)argument;

    action.sa_sigaction = chains ? ask_saved : ask_library;
    map_own();
    open_set(0);
    require(sigaction(SIGBUS, &action, &saved) == 0);
    require(saved.sa_flags & SA_SIGINFO);
    fault_own();
    require_broken();
    fault_own();
    require(faults == 2);
    close_set();
}

static void test_handler_after(void **state)
{
    (void)state;
    run(run_after, &(bool){false}, 0);
    shared_end();
    shared_begin();
    run(run_after, &(bool){true}, 0);
}

/* ---- no handler ---- */

static void require_handler(bool is_there)
{
    struct sigaction now;

    require(sigaction(SIGBUS, NULL, &now) == 0);
    require((now.sa_handler != SIG_DFL) == is_there);
}

/* Nothing is touched where nothing is shared, nor before. */
static void run_private(void *argument)
{
    weir *w;

    (void)argument;
    if (getenv("ASAN_OPTIONS"))
        signal(SIGBUS, SIG_DFL);
    require_handler(false);
    w = open_with(WEIR_OPEN_APART);
    require_handler(false);
    open_set(0);
    require_handler(true);
    close_set();
    require_handler(true);
    weir_close(w);
}

static void run_without(void *argument)
{
    (void)argument;
    open_set(WEIR_OPEN_NO_HANDLER);
    require_handler(false);
    require(weir_segment_remove(&(struct weir_options){.size = sizeof(struct weir_options),
                                                       .text = "version: 1\n",
                                                       .process_dir = shared_directory(),
                                                       .flags = WEIR_OPEN_NO_HANDLER},
                                "s", 0, NULL) == -EBUSY);
    require_handler(false);
    require_broken();
}

static void run_own_alone(void *argument)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO, .sa_sigaction = ask_library};

    (void)argument;
    require(sigaction(SIGBUS, &action, NULL) == 0);
    open_set(WEIR_OPEN_NO_HANDLER);
    require_broken();
    require(weir_segment_fault(NULL) == 0);
    require(weir_segment_fault(&(siginfo_t){.si_signo = SIGSEGV, .si_code = BUS_ADRERR}) == 0);
    require(faults == 0);
    close_set();
}

static void test_no_handler(void **state)
{
    (void)state;
    run(run_private, NULL, 0);
    run(run_without, NULL, SIGBUS);
    shared_end();
    shared_begin();
    run(run_own_alone, NULL, 0);
}

/* ---- threads, children, limits ---- */

static void *try_blocked(void *argument)
{
    weir_acquisition *acquisition = NULL;
    sigset_t all;

    (void)argument;
    sigfillset(&all);
    require(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
    require(try_slot(&acquisition) == -EUCLEAN);
    return NULL;
}

/* What the header warns of. */
static void run_blocked(void *argument)
{
    pthread_t thread;

    (void)argument;
    open_set(0);
    truncate_segment();
    require(pthread_create(&thread, NULL, try_blocked, NULL) == 0);
    pthread_join(thread, NULL);
}

/* Finds the mapping of the segment, by its inode: it was made without a name. */
static void *segment_address(void)
{
    char line[512], path[128];
    unsigned long begin, inode, found = 0;
    struct stat status;
    FILE *maps = fopen("/proc/self/maps", "re");

    snprintf(path, sizeof(path), "%s/s.weir", shared_directory());
    require(maps && stat(path, &status) == 0);
    while (fgets(line, sizeof(line), maps))
        if (sscanf(line, "%lx-%*x %*s %*s %*s %lu", &begin, &inode) == 2 && inode == status.st_ino)
            found = begin;
    fclose(maps);
    require(found);
    return (void *)(uintptr_t)found; /* NOLINT(performance-no-int-to-ptr): an address in a text */
}

/* A child does not have the mapping: where it was, the child's own faults are. */
static void run_in_child(void *argument)
{
    char path[128];
    int fd;

    snprintf(path, sizeof(path), "%s/other", shared_directory());
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    require(fd >= 0);
    own_memory =
        mmap(argument, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
    require((volatile void *)own_memory == argument);
    own_memory[0] = 1;
}

static void require_child_dies(void *address)
{
    pid_t pid = child_fork();

    require(pid >= 0);
    if (pid == 0) {
        run_in_child(address);
        _exit(0);
    }
    shared_wait(pid, SIGBUS);
}

static void run_parent(void *argument)
{
    void *address;

    (void)argument;
    open_set(0);
    address = segment_address();
    require_child_dies(address);
    require_broken();
    require_child_dies(address);
}

static void test_child_has_its_own_faults(void **state)
{
    (void)state;
    run(run_parent, NULL, 0);
}

static void test_blocked_signal_kills(void **state)
{
    (void)state;
    run(run_blocked, NULL, SIGBUS);
}

static rlim_t data_in_use(void)
{
    char line[256];
    unsigned long kib = 0;
    FILE *status = fopen("/proc/self/status", "re");

    require(status);
    while (fgets(line, sizeof(line), status))
        if (sscanf(line, "VmData: %lu", &kib) == 1)
            break;
    fclose(status);
    require(kib);
    return (rlim_t)kib * 1024;
}

/* Private memory for the whole mapping is more than the limit: then each page is replaced alone. */
static void run_limited(void *argument)
{
    struct rlimit little = {.rlim_max = RLIM_INFINITY};

    (void)argument;
    open_set(0);
    little.rlim_cur = data_in_use() + (1 << 25);
    require(setrlimit(RLIMIT_DATA, &little) == 0);
    require_broken();
    close_set();
}

static void test_little_memory(void **state)
{
    (void)state;
    run(run_limited, NULL, 0);
}

/* More mappings than fit into one list of them, and again after they are closed. */
static void run_many(void *argument)
{
    enum { MANY = 400 };
    static weir *many[MANY];

    (void)argument;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY; i++)
            many[i] = open_with(0);
        open_set(0);
        if (round == 1)
            require_broken();
        close_set();
        for (int i = 0; i < MANY; i++)
            many[i] = weir_close(many[i]);
    }
}

static void test_many_mappings(void **state)
{
    (void)state;
    run(run_many, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        shared_test(test_handler_before),
        shared_test(test_other_faults_kill),
        shared_test(test_handler_after),
        shared_test(test_no_handler),
        shared_test(test_child_has_its_own_faults),
        shared_test(test_blocked_signal_kills),
        shared_test(test_little_memory),
        shared_test(test_many_mappings),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
