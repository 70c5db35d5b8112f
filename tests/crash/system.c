/* SPDX-License-Identifier: MIT */
/* The system under the crash tests: see system.h. */
#define os_vm_reserve      real_os_vm_reserve
#define os_vm_commit       real_os_vm_commit
#define os_vm_free         real_os_vm_free
#define os_wipe_page_alloc real_os_wipe_page_alloc
#define os_wipe_page_free  real_os_wipe_page_free
#define os_now_ns          real_os_now_ns
#define os_now_coarse_ns   real_os_now_coarse_ns
#define os_futex_wait      real_os_futex_wait
#define os_futex_wake      real_os_futex_wake
#include "os/os_clock.c"
#include "os/os_futex.c"
#include "os/os_memory.c"
#undef os_vm_reserve
#undef os_vm_commit
#undef os_vm_free
#undef os_wipe_page_alloc
#undef os_wipe_page_free
#undef os_now_ns
#undef os_now_coarse_ns
#undef os_futex_wait
#undef os_futex_wake
#include "system.h"
#include <signal.h>

#define REGION_MAX ((size_t)16 << 20)

/* Again, under their own names: the header was included under the others. */
void *os_vm_reserve(size_t size);
int os_vm_commit(void *memory, size_t size);
void os_vm_free(void *memory, size_t size);
void *os_wipe_page_alloc(void);
void os_wipe_page_free(void *page);
uint64_t os_now_ns(void);
uint64_t os_now_coarse_ns(void);
int os_futex_wait(const uint32_t *word, bool shared_word, uint32_t expected, uint64_t until_ns);
int os_futex_wake(const uint32_t *word, bool shared_word);
void sched_point(void);

struct shared *shared;
bool clock_is_real;
void (*step_hook)(void);
int (*wait_hook)(const uint32_t *word, uint32_t expected, uint64_t until_ns);
void (*wake_hook)(const uint32_t *word);

static uint64_t steps, signal_at;
static int signal_number;

static void *map(size_t size)
{
    void *memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

bool system_start(void)
{
    shared = map(sizeof(*shared));
    return shared != NULL;
}

void system_signal_at(uint64_t n, int signal)
{
    steps = 0;
    signal_at = n;
    signal_number = signal;
}

void sched_point(void)
{
    if (signal_at && ++steps == signal_at)
        kill(getpid(), signal_number);
    if (step_hook)
        step_hook();
}

void *os_vm_reserve(size_t size)
{
    return size > REGION_MAX ? NULL : map(size);
}

int os_vm_commit(void *memory, size_t size)
{
    (void)memory;
    return size > REGION_MAX ? -ENOMEM : 0;
}

void os_vm_free(void *memory, size_t size)
{
    munmap(memory, size);
}

/* A page that survives a fork: children are to use what their parent made. */
void *os_wipe_page_alloc(void)
{
    return os_alloc(1, page_size());
}

void os_wipe_page_free(void *page)
{
    os_free(page);
}

uint64_t os_now_ns(void)
{
    uint64_t seen = atomic_load(&shared->clock), now;

    do {
        now = clock_is_real ? real_os_now_ns() : 0;
        now = now > seen ? now : seen + 1;
    } while (!atomic_compare_exchange_weak(&shared->clock, &seen, now));
    return now;
}

/* As exact as the other clock, so that it tells which came first. */
uint64_t os_now_coarse_ns(void)
{
    return os_now_ns();
}

int os_futex_wait(const uint32_t *word, bool shared_word, uint32_t expected, uint64_t until_ns)
{
    struct timespec until = os_timespec(until_ns);
    long r;

    (void)shared_word; /* each is in memory that the tests share */
    if (wait_hook)
        return wait_hook(word, expected, until_ns);
    do {
        r = syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected,
                    until_ns == UINT64_MAX ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
    } while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : 0;
}

int os_futex_wake(const uint32_t *word, bool shared_word)
{
    (void)shared_word;
    if (wake_hook)
        wake_hook(word);
    else
        syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
    return 0;
}
