/* SPDX-License-Identifier: MIT */
/*
 * The fake system: the real one, included under other names, behind wrappers that count and fail.
 * State is atomic, so that the fake adds no order between threads that the real system would not.
 */
#define sys_alloc           real_sys_alloc
#define sys_alloc_aligned   real_sys_alloc_aligned
#define sys_grow            real_sys_grow
#define sys_strdup          real_sys_strdup
#define sys_free            real_sys_free
#define sys_reserve         real_sys_reserve
#define sys_commit          real_sys_commit
#define sys_unreserve       real_sys_unreserve
#define sys_fork_page       real_sys_fork_page
#define sys_fork_page_free  real_sys_fork_page_free
#define sys_now_ns          real_sys_now_ns
#define sys_tick_ns         real_sys_tick_ns
#define sys_wall_offset_ns  real_sys_wall_offset_ns
#define sys_tsc             real_sys_tsc
#define sys_tsc_usable      real_sys_tsc_usable
#define sys_eventfd         real_sys_eventfd
#define sys_timerfd         real_sys_timerfd
#define sys_timerfd_set     real_sys_timerfd_set
#define sys_timerfd_ring    real_sys_timerfd_ring
#define sys_timer_lead      real_sys_timer_lead
#define sys_epoll_create    real_sys_epoll_create
#define sys_epoll_add       real_sys_epoll_add
#define sys_epoll_add_edge  real_sys_epoll_add_edge
#define sys_epoll_remove    real_sys_epoll_remove
#define sys_epoll_wait      real_sys_epoll_wait
#define sys_signal_fd       real_sys_signal_fd
#define sys_probe_fd        real_sys_probe_fd
#define sys_drain_fd        real_sys_drain_fd
#define sys_close           real_sys_close
#define sys_futex_wait      real_sys_futex_wait
#define sys_futex_wake      real_sys_futex_wake
#define sys_thread_start    real_sys_thread_start
#define sys_thread_join     real_sys_thread_join
#define sys_thread_id       real_sys_thread_id
#define sys_read_file       real_sys_read_file
#define sys_read_part       real_sys_read_part
#define sys_stat            real_sys_stat
#define sys_open_directory  real_sys_open_directory
#define sys_next_entry      real_sys_next_entry
#define sys_close_directory real_sys_close_directory
#define sys_load            real_sys_load
#define sys_symbol          real_sys_symbol
#define sys_environment     real_sys_environment
#define sys_user            real_sys_user
#define sys_random          real_sys_random

#define sys_make_directory    real_sys_make_directory
#define sys_open_directory_fd real_sys_open_directory_fd
#define sys_list_directory    real_sys_list_directory
#define sys_open_in           real_sys_open_in
#define sys_stat_in           real_sys_stat_in
#define sys_unlink_in         real_sys_unlink_in
#define sys_open_nameless     real_sys_open_nameless
#define sys_give_name         real_sys_give_name
#define sys_stat_fd           real_sys_stat_fd
#define sys_read_at           real_sys_read_at
#define sys_resize            real_sys_resize
#define sys_allocate          real_sys_allocate
#define sys_lock              real_sys_lock
#define sys_unlock            real_sys_unlock
#define sys_map               real_sys_map
#define sys_unmap             real_sys_unmap
#define sys_boot_id           real_sys_boot_id
#define sys_namespace         real_sys_namespace
#define sys_process_id        real_sys_process_id
#define sys_epoll_look        real_sys_epoll_look
#define sys_futex_wait_shared real_sys_futex_wait_shared
#define sys_futex_wake_shared real_sys_futex_wake_shared
#define sys_pipe_make         real_sys_pipe_make
#define sys_pipe_read         real_sys_pipe_read
#define sys_pipe_write        real_sys_pipe_write
#define sys_process_exists    real_sys_process_exists
#define sys_process_open      real_sys_process_open

#include "../../core/os/os_clock.c"
#include "../../core/os/os_dir.c"
#include "../../core/os/os_dlopen.c"
#include "../../core/os/os_event.c"
#include "../../core/os/os_file.c"
#include "../../core/os/os_futex.c"
#include "../../core/os/os_memory.c"
#include "../../core/os/os_process.c"
#include "../../core/os/os_thread.c"

#undef sys_make_directory
#undef sys_open_directory_fd
#undef sys_list_directory
#undef sys_open_in
#undef sys_stat_in
#undef sys_unlink_in
#undef sys_open_nameless
#undef sys_give_name
#undef sys_stat_fd
#undef sys_read_at
#undef sys_resize
#undef sys_allocate
#undef sys_lock
#undef sys_unlock
#undef sys_map
#undef sys_unmap
#undef sys_boot_id
#undef sys_namespace
#undef sys_process_id
#undef sys_epoll_look
#undef sys_futex_wait_shared
#undef sys_futex_wake_shared
#undef sys_pipe_make
#undef sys_pipe_read
#undef sys_pipe_write
#undef sys_process_exists
#undef sys_process_open

#undef sys_alloc
#undef sys_alloc_aligned
#undef sys_grow
#undef sys_strdup
#undef sys_free
#undef sys_reserve
#undef sys_commit
#undef sys_unreserve
#undef sys_fork_page
#undef sys_fork_page_free
#undef sys_now_ns
#undef sys_tick_ns
#undef sys_wall_offset_ns
#undef sys_tsc
#undef sys_tsc_usable
#undef sys_eventfd
#undef sys_timerfd
#undef sys_timerfd_set
#undef sys_timerfd_ring
#undef sys_timer_lead
#undef sys_epoll_create
#undef sys_epoll_add
#undef sys_epoll_add_edge
#undef sys_epoll_remove
#undef sys_epoll_wait
#undef sys_signal_fd
#undef sys_probe_fd
#undef sys_drain_fd
#undef sys_close
#undef sys_futex_wait
#undef sys_futex_wake
#undef sys_thread_start
#undef sys_thread_join
#undef sys_thread_id
#undef sys_read_file
#undef sys_read_part
#undef sys_stat
#undef sys_open_directory
#undef sys_next_entry
#undef sys_close_directory
#undef sys_load
#undef sys_symbol
#undef sys_environment
#undef sys_user
#undef sys_random
/* The declarations again, under their own names. */
#undef WEIR_CORE_OS_OS_H
#include "../../core/os/os.h"

/* What is under these goes through the fake itself. */
#define sys_ring_open real_sys_ring_open
#define sys_ring_send real_sys_ring_send
#include "../../core/os/os_uring.c"
#undef sys_ring_open
#undef sys_ring_send
int sys_ring_open(struct sys_ring **ret, int ring_fd);
void sys_ring_send(struct sys_ring *ring, struct sys_message *messages, unsigned n);

#include "fake_sys.h"
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>

/* ---- what is counted ---- */

enum call {
    ALLOC,
    FREE,
    RESERVE,
    COMMIT,
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

void fake_sys_fail_at(uint64_t n)
{
    fail(n, FAKE_ANY, 0, false);
}

void fake_sys_fail_kind_at(uint64_t n, unsigned kinds, int code)
{
    fail(n, kinds, code, false);
}

void fake_sys_fail_kind_from(uint64_t n, unsigned kinds, int code)
{
    fail(n, kinds, code, true);
}

uint64_t fake_sys_calls(void)
{
    return atomic_load(&failure.made);
}

bool fake_sys_has_failed(void)
{
    return atomic_load(&failure.failed);
}

struct fake_sys_counts fake_sys_counts(void)
{
    return (struct fake_sys_counts){
        .alloc = calls[ALLOC],
        .free = calls[FREE],
        .reserve = calls[RESERVE],
        .commit = calls[COMMIT],
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

uint64_t fake_sys_system_calls(void)
{
    uint64_t sum = 0;

    for (int call = 0; call < CALLS; call++) {
        if (call != ALLOC && call != FREE && call != NOW && call != TICK && call != WALL)
            sum += atomic_load(&calls[call]);
    }
    return sum;
}

struct fake_sys_live fake_sys_live(void)
{
    return (struct fake_sys_live){live.blocks,      live.bytes,   live.regions,
                                  live.descriptors, live.threads, live.directories};
}

void fake_sys_set_user(uint32_t id)
{
    atomic_store(&user, id);
}

/* ---- memory ---- */

static void *block_made(void *block)
{
    if (block != NULL) {
        atomic_fetch_add(&live.blocks, 1);
        atomic_fetch_add(&live.bytes, malloc_usable_size(block));
    }
    return block;
}

static void block_gone(void *block)
{
    if (block != NULL) {
        atomic_fetch_sub(&live.blocks, 1);
        atomic_fetch_sub(&live.bytes, malloc_usable_size(block));
    }
}

void *sys_alloc(size_t n, size_t size)
{
    return fails(ALLOC, FAKE_MEMORY, -ENOMEM) ? NULL : block_made(real_sys_alloc(n, size));
}

void *sys_alloc_aligned(size_t alignment, size_t size)
{
    return fails(ALLOC, FAKE_MEMORY, -ENOMEM) ? NULL
                                              : block_made(real_sys_alloc_aligned(alignment, size));
}

/* Always moves, so that whoever keeps a pointer to the old place is found out. */
void *sys_grow(void *memory, size_t n, size_t size)
{
    size_t bytes = bytes_of(n, size), old;
    void *grown;

    if (fails(ALLOC, FAKE_MEMORY, -ENOMEM) || bytes == 0)
        return NULL;
    grown = block_made(malloc(bytes));
    if (grown == NULL || memory == NULL)
        return grown;
    old = malloc_usable_size(memory);
    memcpy(grown, memory, old < bytes ? old : bytes);
    block_gone(memory);
    real_sys_free(memory);
    return grown;
}

char *sys_strdup(const char *text)
{
    return fails(ALLOC, FAKE_MEMORY, -ENOMEM) ? NULL : block_made(real_sys_strdup(text));
}

void sys_free(void *memory)
{
    made(FREE);
    block_gone(memory);
    real_sys_free(memory);
}

static void *region_made(void *region)
{
    if (region != NULL)
        atomic_fetch_add(&live.regions, 1);
    return region;
}

#define SMALL_RANGE ((size_t)1 << 28)

void *sys_reserve(size_t size)
{
    /* qemu-user keeps books on every page of a range: there the core gets by with a small one. */
    if (size > SMALL_RANGE && getenv("MESON_EXE_WRAPPER") != NULL)
        return NULL;
    return fails(RESERVE, FAKE_MEMORY, -ENOMEM) ? NULL : region_made(real_sys_reserve(size));
}

int sys_commit(void *memory, size_t size)
{
    int code = fails(COMMIT, FAKE_MEMORY, -ENOMEM);

    return code != 0 ? code : real_sys_commit(memory, size);
}

void sys_unreserve(void *memory, size_t size)
{
    if (memory != NULL)
        atomic_fetch_sub(&live.regions, 1);
    real_sys_unreserve(memory, size);
}

void *sys_fork_page(void)
{
    return fails(RESERVE, FAKE_MEMORY, -ENOMEM) ? NULL : region_made(real_sys_fork_page());
}

void sys_fork_page_free(void *page)
{
    if (page != NULL)
        atomic_fetch_sub(&live.regions, 1);
    real_sys_fork_page_free(page);
}

/* ---- time ---- */

#define CLOCK_REAL UINT64_MAX
#define TIMERS_MAX 64
#define SLICE_NS   UINT64_C(1000000) /* how often a waiter looks at a clock moved by hand */

static _Atomic uint64_t clock_ns = CLOCK_REAL;
static _Atomic int64_t wall_offset_ns;
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
            real_sys_timerfd_set(timers[i].fd, 1);
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

void fake_clock_set_wall_offset(int64_t offset_ns)
{
    atomic_store(&wall_offset_ns, offset_ns);
}

void fake_sys_set_counter(const struct fake_counter *other)
{
    atomic_store(&counter, other);
}

uint64_t sys_tsc(void)
{
    const struct fake_counter *c = atomic_load(&counter);

    return c != NULL ? c->ticks(c->userdata) : real_sys_tsc();
}

int sys_tsc_usable(void)
{
    const struct fake_counter *c = atomic_load(&counter);

    made(FILES);
    return c != NULL ? c->usable : real_sys_tsc_usable();
}

/* The counter whose clock takes the place of the others, or NULL. */
static const struct fake_counter *counter_with_clock(void)
{
    const struct fake_counter *c = atomic_load(&counter);

    return c != NULL && c->now_ns != NULL ? c : NULL;
}

uint64_t sys_now_ns(void)
{
    const struct fake_counter *c = counter_with_clock();
    uint64_t now = atomic_load(&clock_ns);

    made(NOW);
    if (c != NULL)
        return c->now_ns(c->userdata);
    return now == CLOCK_REAL ? real_sys_now_ns() : now;
}

uint64_t sys_tick_ns(void)
{
    uint64_t now = atomic_load(&clock_ns);

    made(TICK);
    return now == CLOCK_REAL ? real_sys_tick_ns() : now - now % FAKE_TICK_NS;
}

int64_t sys_wall_offset_ns(void)
{
    made(WALL);
    return atomic_load(&clock_ns) == CLOCK_REAL ? real_sys_wall_offset_ns()
                                                : atomic_load(&wall_offset_ns);
}

/* The kernel knows nothing of a counter's clock, which may be far ahead of its own or far behind. So
 * each of its deadlines has passed for the kernel, however long the machine has been up. */
static uint64_t kernel_deadline(uint64_t at_ns)
{
    return at_ns != WEIR_FOREVER && counter_with_clock() != NULL ? 1 : at_ns;
}

int sys_timerfd_set(int fd, uint64_t at_ns)
{
    int code = fails(TIMER_SET, FAKE_EVENT, -ENOMEM);

    if (code != 0)
        return code;
    if (atomic_load(&clock_ns) == CLOCK_REAL)
        return real_sys_timerfd_set(fd, kernel_deadline(at_ns));
    timer_forget(fd);
    code = real_sys_timerfd_set(fd, WEIR_FOREVER);
    if (code == 0 && at_ns != WEIR_FOREVER)
        code = timer_keep(fd, at_ns);
    timers_fire(atomic_load(&clock_ns)); /* if it was due already, or became so meanwhile */
    return code;
}

static int fake_futex_wait(int (*wait)(const uint32_t *, uint32_t, uint64_t), const uint32_t *word,
                           uint32_t expected, uint64_t until_ns)
{
    if (fails(FUTEX_WAITS, FAKE_FUTEX, -1))
        return 0;
    if (atomic_load(&clock_ns) == CLOCK_REAL || until_ns == WEIR_FOREVER)
        return wait(word, expected, kernel_deadline(until_ns));
    while (atomic_load(&clock_ns) < until_ns) {
        int r = wait(word, expected, real_sys_now_ns() + SLICE_NS);

        if (r != -ETIMEDOUT)
            return r;
    }
    return -ETIMEDOUT;
}

int sys_futex_wait(const uint32_t *word, uint32_t expected, uint64_t until_ns)
{
    return fake_futex_wait(real_sys_futex_wait, word, expected, until_ns);
}

int sys_futex_wait_shared(const uint32_t *word, uint32_t expected, uint64_t until_ns)
{
    return fake_futex_wait(real_sys_futex_wait_shared, word, expected, until_ns);
}

int sys_futex_wake(const uint32_t *word, int n)
{
    made(FUTEX_WAKES);
    return real_sys_futex_wake(word, n);
}

int sys_futex_wake_shared(const uint32_t *word, int n)
{
    made(FUTEX_WAKES);
    return real_sys_futex_wake_shared(word, n);
}

/* ---- descriptors ---- */

static int descriptor_made(int fd)
{
    if (fd >= 0)
        atomic_fetch_add(&live.descriptors, 1);
    return fd;
}

int sys_eventfd(void)
{
    int code = fails(OPEN, FAKE_DESCRIPTOR, -EMFILE);

    return code != 0 ? code : descriptor_made(real_sys_eventfd());
}

int sys_timerfd(void)
{
    int code = fails(OPEN, FAKE_DESCRIPTOR, -EMFILE);

    return code != 0 ? code : descriptor_made(real_sys_timerfd());
}

void fake_clock_set_lead(uint32_t least_ns, uint32_t most_ns)
{
    atomic_store(&lead_least_ns, least_ns);
    atomic_store(&lead_most_ns, most_ns);
}

void sys_timer_lead(uint32_t *ret_least_ns, uint32_t *ret_most_ns)
{
    const struct fake_counter *by_hand = atomic_load(&counter);

    *ret_least_ns = atomic_load(&lead_least_ns);
    *ret_most_ns = atomic_load(&lead_most_ns);
    if (atomic_load(&clock_ns) == CLOCK_REAL && !(by_hand && by_hand->now_ns))
        real_sys_timer_lead(ret_least_ns, ret_most_ns);
}

static bool without_rings(void)
{
    return getenv("WEIR_WITHOUT_RINGS") != NULL;
}

bool fake_sys_timers_ring(void)
{
    int fd = real_sys_timerfd();
    bool ring = fd >= 0 && !without_rings() && real_sys_timerfd_ring(fd) == 0;

    real_sys_close(fd);
    return ring;
}

int sys_timerfd_ring(int fd)
{
    int code = fails(SIGNAL, FAKE_EVENT, -EPERM);

    if (code == 0 && without_rings())
        code = -ENOTTY;
    return code != 0 ? code : real_sys_timerfd_ring(fd);
}

int sys_epoll_create(void)
{
    int code = fails(OPEN, FAKE_DESCRIPTOR, -EMFILE);

    return code != 0 ? code : descriptor_made(real_sys_epoll_create());
}

int sys_epoll_add(int epoll_fd, int fd, uint64_t data)
{
    int code = fails(EPOLL_ADD, FAKE_DESCRIPTOR, -ENOMEM);

    return code != 0 ? code : real_sys_epoll_add(epoll_fd, fd, data);
}

int sys_epoll_add_edge(int epoll_fd, int fd, uint64_t data)
{
    int code = fails(EPOLL_ADD, FAKE_DESCRIPTOR, -ENOMEM);

    return code != 0 ? code : real_sys_epoll_add_edge(epoll_fd, fd, data);
}

void sys_epoll_remove(int epoll_fd, int fd)
{
    real_sys_epoll_remove(epoll_fd, fd);
}

int sys_epoll_wait(int epoll_fd, uint64_t *ret_data, int n)
{
    int code = fails(EPOLL_WAIT, FAKE_EVENT, -ENOMEM);

    return code != 0 ? code : real_sys_epoll_wait(epoll_fd, ret_data, n);
}

int sys_epoll_look(int epoll_fd, uint64_t *ret_data, int n)
{
    int code = fails(EPOLL_WAIT, FAKE_EVENT, -ENOMEM);

    return code != 0 ? code : real_sys_epoll_look(epoll_fd, ret_data, n);
}

int sys_signal_fd(int fd)
{
    int code = fails(SIGNAL, FAKE_EVENT, -ENOMEM);

    return code != 0 ? code : real_sys_signal_fd(fd);
}

int sys_probe_fd(int fd)
{
    int code = fails(SIGNAL, FAKE_EVENT, -ENOMEM);

    return code != 0 ? code : real_sys_probe_fd(fd);
}

int sys_drain_fd(int fd)
{
    int code = fails(DRAIN, FAKE_EVENT, -ENOMEM);

    return code != 0 ? code : real_sys_drain_fd(fd);
}

void sys_close(int fd)
{
    made(CLOSE);
    if (fd >= 0)
        atomic_fetch_sub(&live.descriptors, 1);
    timer_forget(fd);
    real_sys_close(fd);
}

/* ---- rings ---- */

int sys_ring_open(struct sys_ring **ret, int ring_fd)
{
    int code = fails(RING, FAKE_DESCRIPTOR, -EMFILE);

    return code != 0 ? code : real_sys_ring_open(ret, ring_fd);
}

/* Those before the one that is to fail are sent, and none behind it. */
void sys_ring_send(struct sys_ring *ring, struct sys_message *messages, unsigned n)
{
    unsigned sent = 0;
    int code = 0;

    while (sent < n && (code = fails(MESSAGE, FAKE_MESSAGE, -EOVERFLOW)) == 0)
        sent++;
    if (sent > 0)
        real_sys_ring_send(ring, messages, sent);
    for (unsigned i = sent; i < n; i++)
        messages[i].code = code;
}

/* ---- threads ---- */

int sys_thread_start(struct sys_thread **ret, void (*run)(void *), void *argument, const char *name)
{
    int code = fails(THREAD_START, FAKE_THREAD, -EAGAIN);

    if (code == 0)
        code = real_sys_thread_start(ret, run, argument, name);
    if (code == 0)
        atomic_fetch_add(&live.threads, 1);
    return code;
}

void sys_thread_join(struct sys_thread *thread)
{
    made(THREAD_JOIN);
    if (thread != NULL)
        atomic_fetch_sub(&live.threads, 1);
    real_sys_thread_join(thread);
}

uint32_t sys_thread_id(void)
{
    made(THREAD_ID);
    return real_sys_thread_id();
}

/* ---- files and plugins ---- */

int sys_read_file(const char *path, size_t size_max, char **ret, size_t *ret_size)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    if (code == 0)
        code = real_sys_read_file(path, size_max, ret, ret_size);
    if (code == 0)
        block_made(*ret);
    return code;
}

int sys_read_part(const char *path, uint64_t offset, void *buffer, size_t size)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_sys_read_part(path, offset, buffer, size);
}

int sys_stat(const char *path, struct stat *ret)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_sys_stat(path, ret);
}

int sys_open_directory(const char *path, void **ret)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    if (code == 0)
        code = real_sys_open_directory(path, ret);
    if (code == 0)
        atomic_fetch_add(&live.directories, 1);
    return code;
}

int sys_next_entry(void *directory, char *ret_name, size_t size)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_sys_next_entry(directory, ret_name, size);
}

void sys_close_directory(void *directory)
{
    made(FILES);
    if (directory != NULL)
        atomic_fetch_sub(&live.directories, 1);
    real_sys_close_directory(directory);
}

int sys_load(const char *path, void **ret, char *ret_why, size_t why_size)
{
    int code = fails(FILES, FAKE_FILE, -ENOMEM);

    return code != 0 ? code : real_sys_load(path, ret, ret_why, why_size);
}

void *sys_symbol(void *library, const char *name)
{
    return real_sys_symbol(library, name);
}

/* ---- files in a directory ---- */

static _Atomic uint64_t boot, pid_namespace, time_namespace; /* 0: the real ones */

void fake_sys_set_boot(uint64_t id)
{
    atomic_store(&boot, id);
}

void fake_sys_set_namespaces(uint64_t pid_id, uint64_t time_id)
{
    atomic_store(&pid_namespace, pid_id);
    atomic_store(&time_namespace, time_id);
}

int sys_make_directory(const char *path)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_sys_make_directory(path);
}

int sys_open_directory_fd(const char *path)
{
    int code = fails(OPEN, FAKE_DESCRIPTOR, -EMFILE);

    return code != 0 ? code : descriptor_made(real_sys_open_directory_fd(path));
}

int sys_list_directory(int directory_fd, void **ret)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    if (code == 0)
        code = real_sys_list_directory(directory_fd, ret);
    if (code == 0)
        atomic_fetch_add(&live.directories, 1);
    return code;
}

int sys_open_in(int directory_fd, const char *name, bool writable)
{
    int code = fails(OPEN, FAKE_DESCRIPTOR, -EMFILE);

    return code != 0 ? code : descriptor_made(real_sys_open_in(directory_fd, name, writable));
}

int sys_stat_in(int directory_fd, const char *name, struct stat *ret)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_sys_stat_in(directory_fd, name, ret);
}

int sys_unlink_in(int directory_fd, const char *name)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_sys_unlink_in(directory_fd, name);
}

int sys_open_nameless(int directory_fd)
{
    int code = fails(OPEN, FAKE_DESCRIPTOR, -EMFILE);

    return code != 0 ? code : descriptor_made(real_sys_open_nameless(directory_fd));
}

int sys_give_name(int fd, int directory_fd, const char *name)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_sys_give_name(fd, directory_fd, name);
}

int sys_stat_fd(int fd, struct stat *ret)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_sys_stat_fd(fd, ret);
}

int sys_read_at(int fd, uint64_t offset, void *buffer, size_t size)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_sys_read_at(fd, offset, buffer, size);
}

int sys_resize(int fd, uint64_t size)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_sys_resize(fd, size);
}

int sys_allocate(int fd, uint64_t offset, uint64_t size)
{
    int code = fails(FILES, FAKE_ROOM, -ENOSPC);

    return code != 0 ? code : real_sys_allocate(fd, offset, size);
}

int sys_lock(int fd)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_sys_lock(fd);
}

void sys_unlock(int fd)
{
    made(FILES);
    real_sys_unlock(fd);
}

int sys_map(int fd, size_t size, bool writable, void **ret)
{
    int code = fails(RESERVE, FAKE_MEMORY, -ENOMEM);

    if (code == 0)
        code = real_sys_map(fd, size, writable, ret);
    if (code == 0)
        region_made(*ret);
    return code;
}

void sys_unmap(void *memory, size_t size)
{
    atomic_fetch_sub(&live.regions, 1);
    real_sys_unmap(memory, size);
}

int sys_boot_id(unsigned char ret[16])
{
    int code = fails(FILES, FAKE_FILE, -EIO);
    uint64_t other = atomic_load(&boot);

    if (code == 0)
        code = real_sys_boot_id(ret);
    if (code == 0 && other != 0)
        memcpy(ret, &other, sizeof other);
    return code;
}

int sys_namespace(const char *kind, uint64_t *ret)
{
    int code = fails(FILES, FAKE_FILE, -EIO);
    uint64_t other = atomic_load(strcmp(kind, "pid") == 0 ? &pid_namespace : &time_namespace);

    if (code == 0)
        code = real_sys_namespace(kind, ret);
    if (code == 0 && other != 0)
        *ret = other;
    return code;
}

int sys_pipe_make(int directory_fd, const char *name)
{
    int code = fails(FILES, FAKE_FILE, -EIO);

    return code != 0 ? code : real_sys_pipe_make(directory_fd, name);
}

int sys_pipe_read(int fd, void *buffer, size_t size)
{
    int code = fails(DRAIN, FAKE_EVENT, -ENOMEM);

    return code != 0 ? code : real_sys_pipe_read(fd, buffer, size);
}

int sys_pipe_write(int fd, const void *data, size_t size)
{
    int code = fails(SIGNAL, FAKE_EVENT, -ENOMEM);

    return code != 0 ? code : real_sys_pipe_write(fd, data, size);
}

/* ---- processes ---- */

uint32_t sys_process_id(void)
{
    return real_sys_process_id();
}

int sys_process_exists(uint32_t pid)
{
    int code = fails(PROCESS, FAKE_PROCESS, -EPERM);

    return code != 0 ? code : real_sys_process_exists(pid);
}

int sys_process_open(uint32_t pid)
{
    int code = fails(OPEN, FAKE_DESCRIPTOR, -EMFILE);

    return code != 0 ? code : descriptor_made(real_sys_process_open(pid));
}

/* ---- the process itself ---- */

const char *sys_environment(const char *name)
{
    return real_sys_environment(name);
}

uint32_t sys_user(void)
{
    uint64_t id = atomic_load(&user);

    return id == USER_REAL ? real_sys_user() : (uint32_t)id;
}

uint64_t sys_random(void)
{
    made(RANDOM);
    return real_sys_random();
}

void fake_sys_reset(void)
{
    fail(0, 0, 0, false);
    for (int i = 0; i < CALLS; i++)
        atomic_store(&calls[i], 0);
    atomic_store(&clock_ns, CLOCK_REAL);
    atomic_store(&wall_offset_ns, 0);
    fake_clock_set_lead(0, 0);
    atomic_store(&counter, NULL);
    atomic_store(&user, USER_REAL);
    atomic_store(&boot, 0);
    atomic_store(&pid_namespace, 0);
    atomic_store(&time_namespace, 0);
}
