/* SPDX-License-Identifier: MIT */
/*
 * The fake system: the real one, included under other names, behind wrappers that count and fail.
 * State is atomic, so that the fake adds no order between threads that the real system would not.
 */
#define os_alloc             real_os_alloc
#define os_alloc_aligned     real_os_alloc_aligned
#define os_realloc           real_os_realloc
#define os_strdup            real_os_strdup
#define os_free              real_os_free
#define os_vm_reserve        real_os_vm_reserve
#define os_vm_commit         real_os_vm_commit
#define os_vm_populate       real_os_vm_populate
#define os_vm_free           real_os_vm_free
#define os_wipe_page_alloc   real_os_wipe_page_alloc
#define os_wipe_page_free    real_os_wipe_page_free
#define os_now_ns            real_os_now_ns
#define os_now_coarse_ns     real_os_now_coarse_ns
#define os_wall_offset_ns    real_os_wall_offset_ns
#define os_tsc_read          real_os_tsc_read
#define os_tsc_check         real_os_tsc_check
#define os_eventfd           real_os_eventfd
#define os_timerfd           real_os_timerfd
#define os_timerfd_set       real_os_timerfd_set
#define os_timerfd_expire    real_os_timerfd_expire
#define os_timer_lead        real_os_timer_lead
#define os_wall_timerfd      real_os_wall_timerfd
#define os_boottime_now_ns   real_os_boottime_now_ns
#define os_boottime_ahead_ns real_os_boottime_ahead_ns
#define os_wall_timerfd_arm  real_os_wall_timerfd_arm
#define os_epoll_create      real_os_epoll_create
#define os_epoll_add         real_os_epoll_add
#define os_epoll_add_edge    real_os_epoll_add_edge
#define os_epoll_remove      real_os_epoll_remove
#define os_epoll_wait        real_os_epoll_wait
#define os_eventfd_add       real_os_eventfd_add
#define os_read              real_os_read
#define os_write             real_os_write
#define os_close             real_os_close
#define os_futex_wait        real_os_futex_wait
#define os_futex_wake        real_os_futex_wake
#define os_thread_start      real_os_thread_start
#define os_thread_join       real_os_thread_join
#define os_thread_id         real_os_thread_id
#define os_file_read         real_os_file_read
#define os_file_read_part    real_os_file_read_part
#define os_stat              real_os_stat
#define os_dir_open          real_os_dir_open
#define os_dir_next          real_os_dir_next
#define os_dir_close         real_os_dir_close
#define os_deleted_files     real_os_deleted_files
#define os_dlopen            real_os_dlopen
#define os_dlsym             real_os_dlsym
#define os_getenv            real_os_getenv
#define os_user_id           real_os_user_id
#define os_random            real_os_random
#define os_random_secret     real_os_random_secret

#define os_mkdir           real_os_mkdir
#define os_dir_open_fd     real_os_dir_open_fd
#define os_open_at         real_os_open_at
#define os_stat_at         real_os_stat_at
#define os_unlink_at       real_os_unlink_at
#define os_rename_at       real_os_rename_at
#define os_open_tmpfile    real_os_open_tmpfile
#define os_link_at         real_os_link_at
#define os_fstat           real_os_fstat
#define os_pread           real_os_pread
#define os_ftruncate       real_os_ftruncate
#define os_fallocate       real_os_fallocate
#define os_file_lock       real_os_file_lock
#define os_file_unlock     real_os_file_unlock
#define os_map_shared      real_os_map_shared
#define os_unmap_shared    real_os_unmap_shared
#define os_fault_install   real_os_fault_install
#define os_fault_handle    real_os_fault_handle
#define os_fault_unblock   real_os_fault_unblock
#define os_boot_id         real_os_boot_id
#define os_namespace_id    real_os_namespace_id
#define os_process_id      real_os_process_id
#define os_fifo_make       real_os_fifo_make
#define os_fifo_is_read    real_os_fifo_is_read
#define os_process_exists  real_os_process_exists
#define os_process_parent  real_os_process_parent
#define os_pidfd_open      real_os_pidfd_open
#define os_socket_listen   real_os_socket_listen
#define os_socket_is_heard real_os_socket_is_heard
#define os_socket_accept   real_os_socket_accept
#define os_socket_send     real_os_socket_send
#define os_socket_wait     real_os_socket_wait

#include "os/os_clock.c"
#include "os/os_deleted.c"
#include "os/os_dir.c"
#include "os/os_event.c"
#include "os/os_fault.c"
#include "os/os_file.c"
#include "os/os_futex.c"
#include "os/os_memory.c"
#include "os/os_process.c"
#include "os/os_socket.c"

#undef os_mkdir
#undef os_dir_open_fd
#undef os_open_at
#undef os_stat_at
#undef os_unlink_at
#undef os_rename_at
#undef os_open_tmpfile
#undef os_link_at
#undef os_fstat
#undef os_pread
#undef os_ftruncate
#undef os_fallocate
#undef os_file_lock
#undef os_file_unlock
#undef os_map_shared
#undef os_unmap_shared
#undef os_fault_install
#undef os_fault_handle
#undef os_fault_unblock
#undef os_boot_id
#undef os_namespace_id
#undef os_process_id
#undef os_fifo_make
#undef os_fifo_is_read
#undef os_process_exists
#undef os_process_parent
#undef os_pidfd_open
#undef os_socket_listen
#undef os_socket_is_heard
#undef os_socket_accept
#undef os_socket_send
#undef os_socket_wait

#undef os_alloc
#undef os_alloc_aligned
#undef os_realloc
#undef os_strdup
#undef os_free
#undef os_vm_reserve
#undef os_vm_commit
#undef os_vm_populate
#undef os_vm_free
#undef os_wipe_page_alloc
#undef os_wipe_page_free
#undef os_now_ns
#undef os_now_coarse_ns
#undef os_wall_offset_ns
#undef os_tsc_read
#undef os_tsc_check
#undef os_eventfd
#undef os_timerfd
#undef os_timerfd_set
#undef os_timerfd_expire
#undef os_timer_lead
#undef os_boottime_now_ns
#undef os_boottime_ahead_ns
#undef os_wall_timerfd
#undef os_wall_timerfd_arm
#undef os_epoll_create
#undef os_epoll_add
#undef os_epoll_add_edge
#undef os_epoll_remove
#undef os_epoll_wait
#undef os_eventfd_add
#undef os_read
#undef os_write
#undef os_close
#undef os_futex_wait
#undef os_futex_wake
#undef os_thread_start
#undef os_thread_join
#undef os_thread_id
#undef os_file_read
#undef os_file_read_part
#undef os_stat
#undef os_dir_open
#undef os_dir_next
#undef os_dir_close
#undef os_deleted_files
#undef os_dlopen
#undef os_dlsym
#undef os_getenv
#undef os_user_id
#undef os_random
#undef os_random_secret
/* The declarations again, under their own names. */
#undef WEIR_CORE_OS_OS_H
#include "os/os.h"

/* What is under these goes through the fake itself. */
#define os_uring_open real_os_uring_open
#define os_uring_send real_os_uring_send
#include "os/os_uring.c"
#undef os_uring_open
#undef os_uring_send
int os_uring_open(struct os_uring **ret, int ring_fd);
void os_uring_send(struct os_uring *ring, struct os_uring_message *messages, unsigned n);

#include "lib/fake_os.h"
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>

/* ---- what is counted ---- */

enum call {
    ALLOC,
    FREE,
    RESERVE,
    COMMIT,
    POPULATE,
    NOW,
    TICK,
    WALL,
    OPEN,
    CLOSE,
    TIMER_SET,
    EPOLL_ADD,
    EPOLL_WAIT,
    SIGNAL,
    DRAIN,
    RING,
    MESSAGE,
    FUTEX_WAITS,
    FUTEX_WAKES,
    THREAD_START,
    THREAD_JOIN,
    THREAD_ID,
    FILES,
    PROCESS,
    RANDOM,
    CALLS
};

static _Atomic uint64_t calls[CALLS];

static struct {
    _Atomic uint64_t blocks, bytes, regions, descriptors, threads, directories;
} live;

static struct {
    _Atomic uint64_t at; /* 0: never */
    _Atomic uint64_t made;
    _Atomic unsigned kinds;
    _Atomic int code;
    _Atomic bool on, failed;
} failure;

#define USER_REAL UINT64_MAX
static _Atomic uint64_t user = USER_REAL;

static void made(enum call call)
{
    atomic_fetch_add_explicit(&calls[call], 1, memory_order_relaxed);
}

/* Counts a call, and says whether it is to fail: 0, or a negative errno. */
static int fails(enum call call, enum fake_kind kind, int code)
{
    uint64_t n, at;

    made(call);
    if ((atomic_load(&failure.kinds) & kind) == 0)
        return 0;
    n = atomic_fetch_add(&failure.made, 1) + 1;
    at = atomic_load(&failure.at);
    if (at == 0 || n < at || (n > at && !atomic_load(&failure.on)))
        return 0;
    atomic_store(&failure.failed, true);
    return atomic_load(&failure.code) != 0 ? atomic_load(&failure.code) : code;
}

static void fail(uint64_t n, unsigned kinds, int code, bool on)
{
    atomic_store(&failure.at, 0);
    atomic_store(&failure.made, 0);
    atomic_store(&failure.failed, false);
    atomic_store(&failure.kinds, kinds);
    atomic_store(&failure.code, code);
    atomic_store(&failure.on, on);
    atomic_store(&failure.at, n);
}

void fake_os_fail_at(uint64_t n)
{
    fail(n, FAKE_ANY, 0, false);
}

void fake_os_fail_kind_at(uint64_t n, unsigned kinds, int code)
{
    fail(n, kinds, code, false);
}

void fake_os_fail_kind_from(uint64_t n, unsigned kinds, int code)
{
    fail(n, kinds, code, true);
}

uint64_t fake_os_calls(void)
{
    return atomic_load(&failure.made);
}

bool fake_os_has_failed(void)
{
    return atomic_load(&failure.failed);
}

struct fake_os_counts fake_os_counts(void)
{
    return (struct fake_os_counts){
        .alloc = calls[ALLOC],
        .free = calls[FREE],
        .reserve = calls[RESERVE],
        .commit = calls[COMMIT],
        .populate = calls[POPULATE],
        .now = calls[NOW],
        .tick = calls[TICK],
        .wall = calls[WALL],
        .open = calls[OPEN],
        .close = calls[CLOSE],
        .timer_set = calls[TIMER_SET],
        .epoll_add = calls[EPOLL_ADD],
        .epoll_wait = calls[EPOLL_WAIT],
        .signal = calls[SIGNAL],
        .drain = calls[DRAIN],
        .ring = calls[RING],
        .message = calls[MESSAGE],
        .futex_wait = calls[FUTEX_WAITS],
        .futex_wake = calls[FUTEX_WAKES],
        .thread_start = calls[THREAD_START],
        .thread_join = calls[THREAD_JOIN],
        .thread_id = calls[THREAD_ID],
        .file = calls[FILES],
        .process = calls[PROCESS],
        .random = calls[RANDOM],
    };
}

uint64_t fake_os_system_calls(void)
{
    uint64_t sum = 0;

    for (int call = 0; call < CALLS; call++) {
        if (call != ALLOC && call != FREE && call != NOW && call != TICK && call != WALL)
            sum += atomic_load(&calls[call]);
    }
    return sum;
}

struct fake_os_live fake_os_live(void)
{
    return (struct fake_os_live){live.blocks,      live.bytes,   live.regions,
                                 live.descriptors, live.threads, live.directories};
}

void fake_os_set_user(uint32_t id)
{
    atomic_store(&user, id);
}

/* ---- memory ---- */

static void *block_made(void *block)
{
    if (block) {
        atomic_fetch_add(&live.blocks, 1);
        atomic_fetch_add(&live.bytes, malloc_usable_size(block));
    }
    return block;
}

static void block_gone(void *block)
{
    if (block) {
        atomic_fetch_sub(&live.blocks, 1);
        atomic_fetch_sub(&live.bytes, malloc_usable_size(block));
    }
}

void *os_alloc(size_t n, size_t size)
{
    return fails(ALLOC, FAKE_MEMORY, -ENOMEM) ? NULL : block_made(real_os_alloc(n, size));
}

void *os_alloc_aligned(size_t alignment, size_t size)
{
    return fails(ALLOC, FAKE_MEMORY, -ENOMEM) ? NULL
                                              : block_made(real_os_alloc_aligned(alignment, size));
}

/* Always moves, so that code that keeps a pointer to the old place is found out. */
void *os_realloc(void *memory, size_t n, size_t size)
{
    size_t bytes = alloc_size(n, size), old;
    void *grown;

    if (fails(ALLOC, FAKE_MEMORY, -ENOMEM) || bytes == 0)
        return NULL;
    grown = block_made(malloc(bytes));
    if (!grown || !memory)
        return grown;
    old = malloc_usable_size(memory);
    memcpy(grown, memory, old < bytes ? old : bytes);
    block_gone(memory);
    real_os_free(memory);
    return grown;
}

char *os_strdup(const char *text)
{
    return fails(ALLOC, FAKE_MEMORY, -ENOMEM) ? NULL : block_made(real_os_strdup(text));
}

void os_free(void *memory)
{
    made(FREE);
    block_gone(memory);
    real_os_free(memory);
}

static void *region_made(void *region)
{
    if (region)
        atomic_fetch_add(&live.regions, 1);
    return region;
}

#define SMALL_RANGE ((size_t)1 << 28)

void *os_vm_reserve(size_t size)
{
    /* qemu-user keeps books on every page of a range: there the core gets by with a small one. */
    if (size > SMALL_RANGE && getenv("MESON_EXE_WRAPPER"))
        return NULL;
    return fails(RESERVE, FAKE_MEMORY, -ENOMEM) ? NULL : region_made(real_os_vm_reserve(size));
}

int os_vm_commit(void *memory, size_t size)
{
    int code = fails(COMMIT, FAKE_MEMORY, -ENOMEM);

    return code != 0 ? code : real_os_vm_commit(memory, size);
}

/* Does not take much of the memory that other tests need. */
void os_vm_populate(void *memory, size_t size)
{
    made(POPULATE);
    if (size <= SMALL_RANGE / 16)
        real_os_vm_populate(memory, size);
}

void os_vm_free(void *memory, size_t size)
{
    if (memory)
        atomic_fetch_sub(&live.regions, 1);
    real_os_vm_free(memory, size);
}

void *os_wipe_page_alloc(void)
{
    return fails(RESERVE, FAKE_MEMORY, -ENOMEM) ? NULL : region_made(real_os_wipe_page_alloc());
}

void os_wipe_page_free(void *page)
{
    if (page)
        atomic_fetch_sub(&live.regions, 1);
    real_os_wipe_page_free(page);
}

/* ---- time ---- */

#define CLOCK_REAL UINT64_MAX
#define TIMERS_MAX 64
#define SLICE_NS   UINT64_C(1000000) /* how often a waiter looks at a clock moved by hand */

static _Atomic uint64_t clock_ns = CLOCK_REAL;
static _Atomic int64_t wall_offset_ns, wall_step_ns;
static _Atomic uint64_t suspended_ns;
static _Atomic uint32_t lead_least_ns, lead_most_ns;
static _Atomic(const struct fake_counter *) counter;

/* Timerfds that are armed by the clock moved by hand. */
static struct {
    int fd;
    uint64_t at_ns;
    bool armed;
} timers[TIMERS_MAX];
static pthread_mutex_t timers_lock = PTHREAD_MUTEX_INITIALIZER;

static void timers_fire(uint64_t now_ns)
{
    pthread_mutex_lock(&timers_lock);
    for (int i = 0; i < TIMERS_MAX; i++) {
        if (timers[i].armed && timers[i].at_ns <= now_ns) {
            timers[i].armed = false;
            real_os_timerfd_set(timers[i].fd, 1);
        }
    }
    pthread_mutex_unlock(&timers_lock);
}

static void timer_forget(int fd)
{
    pthread_mutex_lock(&timers_lock);
    for (int i = 0; i < TIMERS_MAX; i++) {
        if (timers[i].armed && timers[i].fd == fd)
            timers[i].armed = false;
    }
    pthread_mutex_unlock(&timers_lock);
}

static int timer_keep(int fd, uint64_t at_ns)
{
    int r = -ENOSPC;

    pthread_mutex_lock(&timers_lock);
    for (int i = 0; i < TIMERS_MAX && r < 0; i++) {
        if (!timers[i].armed) {
            timers[i].fd = fd;
            timers[i].at_ns = at_ns;
            timers[i].armed = true;
            r = 0;
        }
    }
    pthread_mutex_unlock(&timers_lock);
    return r;
}

void fake_clock_set(uint64_t now_ns)
{
    atomic_store(&clock_ns, now_ns);
    timers_fire(now_ns);
}

void fake_clock_advance(uint64_t ns)
{
    timers_fire(atomic_fetch_add(&clock_ns, ns) + ns);
}

/* Descriptors that listen for steps of the wall clock; 0: none. */
static _Atomic int wall_listeners[TIMERS_MAX];

/* As the kernel cancels them: they become readable. */
static void wall_listeners_fire(void)
{
    const struct itimerspec past = {.it_value = {.tv_nsec = 1}};

    for (int i = 0; i < TIMERS_MAX; i++) {
        int fd = atomic_load(&wall_listeners[i]);

        if (fd > 0)
            timerfd_settime(fd, TFD_TIMER_ABSTIME, &past, NULL);
    }
}

static void wall_listener_replace(int fd, int by)
{
    for (int i = 0; i < TIMERS_MAX; i++) {
        int expected = fd;

        if (atomic_compare_exchange_strong(&wall_listeners[i], &expected, by))
            return;
    }
}

void fake_clock_set_wall_offset(int64_t offset_ns)
{
    atomic_store(&wall_offset_ns, offset_ns);
}

void fake_clock_step_wall(int64_t ns)
{
    atomic_fetch_add(&wall_step_ns, ns);
    wall_listeners_fire();
}

void fake_clock_suspend(uint64_t ns)
{
    atomic_fetch_add(&suspended_ns, ns);
    fake_clock_step_wall((int64_t)ns);
}

void fake_os_set_counter(const struct fake_counter *other)
{
    atomic_store(&counter, other);
}

uint64_t os_tsc_read(void)
{
    const struct fake_counter *c = atomic_load(&counter);

    return c ? c->ticks(c->userdata) : real_os_tsc_read();
}

int os_tsc_check(void)
{
    const struct fake_counter *c = atomic_load(&counter);

    made(FILES);
    return c ? c->usable : real_os_tsc_check();
}

/* The counter that takes the place of the clocks, or NULL. */
static const struct fake_counter *counter_with_clock(void)
{
    const struct fake_counter *c = atomic_load(&counter);

    return c && c->now_ns ? c : NULL;
}

uint64_t os_now_ns(void)
{
    const struct fake_counter *c = counter_with_clock();
    uint64_t now = atomic_load(&clock_ns);

    made(NOW);
    if (c)
        return c->now_ns(c->userdata);
    return now == CLOCK_REAL ? real_os_now_ns() : now;
}

uint64_t os_now_coarse_ns(void)
{
    uint64_t now = atomic_load(&clock_ns);

    made(TICK);
    return now == CLOCK_REAL ? real_os_now_coarse_ns() : now - now % FAKE_TICK_NS;
}

uint64_t os_boottime_ahead_ns(void)
{
    made(WALL);
    return atomic_load(&suspended_ns) + (atomic_load(&clock_ns) == CLOCK_REAL
                                             ? real_os_boottime_ahead_ns()
                                             : FAKE_BOOTTIME_AHEAD);
}

uint64_t os_boottime_now_ns(void)
{
    uint64_t now = atomic_load(&clock_ns);

    made(NOW);
    return atomic_load(&suspended_ns) +
           (now == CLOCK_REAL ? real_os_boottime_now_ns() : now + FAKE_BOOTTIME_AHEAD);
}

int64_t os_wall_offset_ns(void)
{
    made(WALL);
    return atomic_load(&wall_step_ns) + (atomic_load(&clock_ns) == CLOCK_REAL
                                             ? real_os_wall_offset_ns()
                                             : atomic_load(&wall_offset_ns));
}

/* The kernel knows nothing of a counter's clock, which may be far ahead of its own or far behind.
 * So each of its deadlines has passed for the kernel, however long the machine has been up. */
static uint64_t kernel_deadline(uint64_t at_ns)
{
    return at_ns != WEIR_FOREVER && counter_with_clock() ? 1 : at_ns;
}

int os_timerfd_set(int fd, uint64_t at_ns)
{
    int code = fails(TIMER_SET, FAKE_EVENT, -ENOMEM);

    if (code != 0)
        return code;
    if (atomic_load(&clock_ns) == CLOCK_REAL)
        return real_os_timerfd_set(fd, kernel_deadline(at_ns));
    timer_forget(fd);
    code = real_os_timerfd_set(fd, WEIR_FOREVER);
    if (code == 0 && at_ns != WEIR_FOREVER)
        code = timer_keep(fd, at_ns);
    timers_fire(atomic_load(&clock_ns)); /* if it was due already, or became so meanwhile */
    return code;
}

int os_futex_wait(const uint32_t *word, bool is_shared, uint32_t expected, uint64_t until_ns)
{
    if (fails(FUTEX_WAITS, FAKE_FUTEX, -1))
        return 0;
    if (atomic_load(&clock_ns) == CLOCK_REAL || until_ns == WEIR_FOREVER)
        return real_os_futex_wait(word, is_shared, expected, kernel_deadline(until_ns));
    while (atomic_load(&clock_ns) < until_ns) {
        int r = real_os_futex_wait(word, is_shared, expected, real_os_now_ns() + SLICE_NS);

        if (r != -ETIMEDOUT)
            return r;
    }
    return -ETIMEDOUT;
}

int os_futex_wake(const uint32_t *word, bool is_shared)
{
    made(FUTEX_WAKES);
    return real_os_futex_wake(word, is_shared);
}

/* ---- descriptors ---- */

static int descriptor_made(int fd)
{
    if (fd >= 0)
        atomic_fetch_add(&live.descriptors, 1);
    return fd;
}

int os_eventfd(void)
{
    int code = fails(OPEN, FAKE_DESCRIPTOR, -EMFILE);

    return code != 0 ? code : descriptor_made(real_os_eventfd());
}

int os_timerfd(void)
{
    int code = fails(OPEN, FAKE_DESCRIPTOR, -EMFILE);

    return code != 0 ? code : descriptor_made(real_os_timerfd());
}

int os_wall_timerfd(void)
{
    int code = fails(OPEN, FAKE_DESCRIPTOR, -EMFILE);

    code = code != 0 ? code : descriptor_made(real_os_wall_timerfd());
    if (code > 0)
        wall_listener_replace(0, code);
    return code;
}

int os_wall_timerfd_arm(int fd)
{
    int code = fails(TIMER_SET, FAKE_EVENT, -ENOMEM);

    return code != 0 ? code : real_os_wall_timerfd_arm(fd);
}

void fake_clock_set_lead(uint32_t least_ns, uint32_t most_ns)
{
    atomic_store(&lead_least_ns, least_ns);
    atomic_store(&lead_most_ns, most_ns);
}

void os_timer_lead(uint32_t *ret_least_ns, uint32_t *ret_most_ns)
{
    const struct fake_counter *by_hand = atomic_load(&counter);

    *ret_least_ns = atomic_load(&lead_least_ns);
    *ret_most_ns = atomic_load(&lead_most_ns);
    if (atomic_load(&clock_ns) == CLOCK_REAL && !(by_hand && by_hand->now_ns))
        real_os_timer_lead(ret_least_ns, ret_most_ns);
}

static bool without_rings(void)
{
    return getenv("WEIR_WITHOUT_RINGS") != NULL;
}

bool fake_os_timers_ring(void)
{
    int fd = real_os_timerfd();
    bool ring = fd >= 0 && !without_rings() && real_os_timerfd_expire(fd) == 0;

    real_os_close(fd);
    return ring;
}

int os_timerfd_expire(int fd)
{
    int code = fails(SIGNAL, FAKE_EVENT, -EPERM);

    if (code == 0 && without_rings())
        code = -ENOTTY;
    return code != 0 ? code : real_os_timerfd_expire(fd);
}

int os_epoll_create(void)
{
    int code = fails(OPEN, FAKE_DESCRIPTOR, -EMFILE);

    return code != 0 ? code : descriptor_made(real_os_epoll_create());
}

int os_epoll_add(int epoll_fd, int fd, uint64_t data)
{
    int code = fails(EPOLL_ADD, FAKE_DESCRIPTOR, -ENOMEM);

    return code != 0 ? code : real_os_epoll_add(epoll_fd, fd, data);
}

int os_epoll_add_edge(int epoll_fd, int fd, uint64_t data)
{
    int code = fails(EPOLL_ADD, FAKE_DESCRIPTOR, -ENOMEM);

    return code != 0 ? code : real_os_epoll_add_edge(epoll_fd, fd, data);
}

void os_epoll_remove(int epoll_fd, int fd)
{
    real_os_epoll_remove(epoll_fd, fd);
}

int os_epoll_wait(int epoll_fd, uint64_t *ret_data, int n, bool blocks)
{
    int code = fails(EPOLL_WAIT, FAKE_EVENT, -ENOMEM);

    return code != 0 ? code : real_os_epoll_wait(epoll_fd, ret_data, n, blocks);
}

int os_eventfd_add(int fd, uint64_t n)
{
    int code = fails(SIGNAL, FAKE_EVENT, -ENOMEM);

    return code != 0 ? code : real_os_eventfd_add(fd, n);
}

int os_read(int fd, void *buffer, size_t size)
{
    int code = fails(DRAIN, FAKE_EVENT, -ENOMEM);

    return code != 0 ? code : real_os_read(fd, buffer, size);
}

int os_write(int fd, const void *data, size_t size)
{
    int code = fails(SIGNAL, FAKE_EVENT, -ENOMEM);

    return code != 0 ? code : real_os_write(fd, data, size);
}

void os_close(int fd)
{
    made(CLOSE);
    if (fd >= 0)
        atomic_fetch_sub(&live.descriptors, 1);
    timer_forget(fd);
    if (fd > 0)
        wall_listener_replace(fd, 0);
    real_os_close(fd);
}

/* ---- rings ---- */

int os_uring_open(struct os_uring **ret, int ring_fd)
{
    int code = fails(RING, FAKE_DESCRIPTOR, -EMFILE);

    return code != 0 ? code : real_os_uring_open(ret, ring_fd);
}

/* Those before the one that is to fail are sent, and none behind it. */
void os_uring_send(struct os_uring *ring, struct os_uring_message *messages, unsigned n)
{
    unsigned sent = 0;
    int code = 0;

    while (sent < n && (code = fails(MESSAGE, FAKE_MESSAGE, -EOVERFLOW)) == 0)
        sent++;
    if (sent > 0)
        real_os_uring_send(ring, messages, sent);
    for (unsigned i = sent; i < n; i++)
        messages[i].code = code;
}

/* ---- threads ---- */

int os_thread_start(struct os_thread **ret, void (*run)(void *), void *argument, const char *name)
{
    int code = fails(THREAD_START, FAKE_THREAD, -EAGAIN);

    if (code == 0)
        code = real_os_thread_start(ret, run, argument, name);
    if (code == 0)
        atomic_fetch_add(&live.threads, 1);
    return code;
}

void os_thread_join(struct os_thread *thread)
{
    made(THREAD_JOIN);
    if (thread)
        atomic_fetch_sub(&live.threads, 1);
    real_os_thread_join(thread);
}

uint32_t os_thread_id(void)
{
    made(THREAD_ID);
    return real_os_thread_id();
}

/* ---- files and plugins ---- */

int os_file_read(const char *path, size_t size_max, char **ret, size_t *ret_size)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    if (code == 0)
        code = real_os_file_read(path, size_max, ret, ret_size);
    if (code == 0)
        block_made(*ret);
    return code;
}

int os_file_read_part(const char *path, uint64_t offset, void *buffer, size_t size)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_os_file_read_part(path, offset, buffer, size);
}

int os_stat(const char *path, struct stat *ret)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_os_stat(path, ret);
}

int os_dir_open(int directory_fd, const char *path, void **ret)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    if (code == 0)
        code = real_os_dir_open(directory_fd, path, ret);
    if (code == 0)
        atomic_fetch_add(&live.directories, 1);
    return code;
}

int os_dir_next(void *directory, char *ret_name, size_t size)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_os_dir_next(directory, ret_name, size);
}

void os_dir_close(void *directory)
{
    made(FILES);
    if (directory)
        atomic_fetch_sub(&live.directories, 1);
    real_os_dir_close(directory);
}

int os_deleted_files(const char *directory,
                     int (*found)(void *userdata, uint32_t pid, const char *path), void *userdata)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_os_deleted_files(directory, found, userdata);
}

int os_dlopen(const char *path, void **ret, char *ret_why, size_t why_size)
{
    int code = fails(FILES, FAKE_FILE, -ENOMEM);

    return code != 0 ? code : real_os_dlopen(path, ret, ret_why, why_size);
}

void *os_dlsym(void *library, const char *name)
{
    return real_os_dlsym(library, name);
}

/* ---- files in a directory ---- */

static _Atomic uint64_t boot, pid_namespace, time_namespace; /* 0: the real ones */

void fake_os_set_boot(uint64_t id)
{
    atomic_store(&boot, id);
}

void fake_os_set_namespaces(uint64_t pid_id, uint64_t time_id)
{
    atomic_store(&pid_namespace, pid_id);
    atomic_store(&time_namespace, time_id);
}

int os_mkdir(const char *path)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_os_mkdir(path);
}

int os_dir_open_fd(const char *path)
{
    int code = fails(OPEN, FAKE_DESCRIPTOR, -EMFILE);

    return code != 0 ? code : descriptor_made(real_os_dir_open_fd(path));
}

int os_open_at(int directory_fd, const char *name, bool writable)
{
    int code = fails(OPEN, FAKE_DESCRIPTOR, -EMFILE);

    return code != 0 ? code : descriptor_made(real_os_open_at(directory_fd, name, writable));
}

int os_stat_at(int directory_fd, const char *name, struct stat *ret)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_os_stat_at(directory_fd, name, ret);
}

int os_unlink_at(int directory_fd, const char *name)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_os_unlink_at(directory_fd, name);
}

int os_rename_at(int directory_fd, const char *from, const char *to)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_os_rename_at(directory_fd, from, to);
}

int os_open_tmpfile(int directory_fd)
{
    int code = fails(OPEN, FAKE_DESCRIPTOR, -EMFILE);

    return code != 0 ? code : descriptor_made(real_os_open_tmpfile(directory_fd));
}

int os_link_at(int fd, int directory_fd, const char *name)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_os_link_at(fd, directory_fd, name);
}

int os_fstat(int fd, struct stat *ret)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_os_fstat(fd, ret);
}

int os_pread(int fd, uint64_t offset, void *buffer, size_t size)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_os_pread(fd, offset, buffer, size);
}

int os_ftruncate(int fd, uint64_t size)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_os_ftruncate(fd, size);
}

int os_fallocate(int fd, uint64_t offset, uint64_t size)
{
    int code = fails(FILES, FAKE_ROOM, -ENOSPC);

    return code != 0 ? code : real_os_fallocate(fd, offset, size);
}

int os_file_lock(int fd)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_os_file_lock(fd);
}

void os_file_unlock(int fd)
{
    made(FILES);
    real_os_file_unlock(fd);
}

int os_map_shared(int fd, size_t size, bool writable, _Atomic bool *lost, void **ret)
{
    int code = fails(RESERVE, FAKE_MEMORY, -ENOMEM);

    if (code == 0)
        code = real_os_map_shared(fd, size, writable, lost, ret);
    if (code == 0)
        region_made(*ret);
    return code;
}

void os_unmap_shared(void *memory, size_t size)
{
    atomic_fetch_sub(&live.regions, 1);
    real_os_unmap_shared(memory, size);
}

int os_fault_install(void)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_os_fault_install();
}

bool os_fault_handle(const void *siginfo)
{
    return real_os_fault_handle(siginfo);
}

void os_fault_unblock(void)
{
    real_os_fault_unblock();
}

int os_boot_id(unsigned char ret[16])
{
    int code = fails(FILES, FAKE_FILE, -EIO);
    uint64_t other = atomic_load(&boot);

    if (code == 0)
        code = real_os_boot_id(ret);
    if (code == 0 && other != 0)
        memcpy(ret, &other, sizeof(other));
    return code;
}

int os_namespace_id(const char *kind, uint64_t *ret)
{
    int code = fails(FILES, FAKE_FILE, -EIO);
    uint64_t other = atomic_load(strcmp(kind, "pid") == 0 ? &pid_namespace : &time_namespace);

    if (code == 0)
        code = real_os_namespace_id(kind, ret);
    if (code == 0 && other != 0)
        *ret = other;
    return code;
}

int os_fifo_make(int directory_fd, const char *name)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_os_fifo_make(directory_fd, name);
}

int os_fifo_is_read(int directory_fd, const char *name)
{
    int code = fails(OPEN, FAKE_DESCRIPTOR, -EMFILE);

    return code != 0 ? code : real_os_fifo_is_read(directory_fd, name);
}

/* ---- sockets ---- */

int os_socket_listen(int directory_fd, const char *name)
{
    int code = fails(OPEN, FAKE_DESCRIPTOR, -EMFILE);

    return code != 0 ? code : descriptor_made(real_os_socket_listen(directory_fd, name));
}

int os_socket_is_heard(int directory_fd, const char *name)
{
    int code = fails(OPEN, FAKE_DESCRIPTOR, -EMFILE);

    return code != 0 ? code : real_os_socket_is_heard(directory_fd, name);
}

int os_socket_accept(int fd, uint32_t *ret_user)
{
    int code = fails(OPEN, FAKE_DESCRIPTOR, -EMFILE);

    return code != 0 ? code : descriptor_made(real_os_socket_accept(fd, ret_user));
}

int os_socket_send(int fd, const void *data, size_t size)
{
    int code = fails(SIGNAL, FAKE_EVENT, -ENOMEM);

    return code != 0 ? code : real_os_socket_send(fd, data, size);
}

int os_socket_wait(int fd, bool writes, int stop_fd, uint64_t wait_ns)
{
    int code = fails(EPOLL_WAIT, FAKE_EVENT, -ENOMEM);

    return code != 0 ? code : real_os_socket_wait(fd, writes, stop_fd, wait_ns);
}

/* ---- processes ---- */

uint32_t os_process_id(void)
{
    return real_os_process_id();
}

int os_process_exists(uint32_t pid)
{
    int code = fails(PROCESS, FAKE_PROCESS, -EPERM);

    return code != 0 ? code : real_os_process_exists(pid);
}

int os_process_parent(uint32_t pid, uint32_t *ret)
{
    int code = fails(PROCESS, FAKE_PROCESS, -ENOENT);

    return code != 0 ? code : real_os_process_parent(pid, ret);
}

int os_pidfd_open(uint32_t pid)
{
    int code = fails(OPEN, FAKE_DESCRIPTOR, -EMFILE);

    return code != 0 ? code : descriptor_made(real_os_pidfd_open(pid));
}

/* ---- the process itself ---- */

const char *os_getenv(const char *name)
{
    return real_os_getenv(name);
}

uint32_t os_user_id(void)
{
    uint64_t id = atomic_load(&user);

    return id == USER_REAL ? real_os_user_id() : (uint32_t)id;
}

int os_random_secret(uint64_t *ret, size_t n)
{
    int code = fails(RANDOM, FAKE_RANDOM, -EPERM);

    return code != 0 ? code : real_os_random_secret(ret, n);
}

uint64_t os_random(void)
{
    made(RANDOM);
    return real_os_random();
}

void fake_os_reset(void)
{
    fail(0, 0, 0, false);
    for (int i = 0; i < CALLS; i++)
        atomic_store(&calls[i], 0);
    atomic_store(&clock_ns, CLOCK_REAL);
    atomic_store(&wall_offset_ns, 0);
    atomic_store(&wall_step_ns, 0);
    atomic_store(&suspended_ns, 0);
    fake_clock_set_lead(0, 0);
    atomic_store(&counter, NULL);
    atomic_store(&user, USER_REAL);
    atomic_store(&boot, 0);
    atomic_store(&pid_namespace, 0);
    atomic_store(&time_namespace, 0);
}
