/* SPDX-License-Identifier: MIT */
/*
 * The one seam to the operating system: every allocation, system call and clock reading of the core
 * goes through here. sys_*.c are the real one; the tests link tests/support/fake_sys.c in their
 * place, which can make the n-th call fail and moves the clock by hand. What concerns io_uring is in
 * sys_ring.h.
 * Functions return 0, a descriptor or a count, or a negative errno; -EINTR is retried inside.
 */
#ifndef WEIR_CORE_OS_OS_H
#define WEIR_CORE_OS_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* Memory. Zeroed; NULL when there is none. sys_grow keeps the content and zeroes nothing. */
void *sys_alloc(size_t n, size_t size);
void *sys_alloc_aligned(size_t alignment, size_t size); /* zeroed; alignment a power of two */
void *sys_grow(void *memory, size_t n, size_t size);
char *sys_strdup(const char *text);
void sys_free(void *memory);

/* Address space without memory behind it; sys_commit makes a prefix usable, zeroed. */
void *sys_reserve(size_t size);
int sys_commit(void *memory, size_t size);
/* Asks for large pages, which may come or not. */
void sys_prefer_large_pages(void *memory, size_t size);
void sys_unreserve(void *memory, size_t size);
/* A page whose bytes become zero in a forked child; NULL if that cannot be had. */
void *sys_fork_page(void);
void sys_fork_page_free(void *page);

/* Time. */
uint64_t sys_now_ns(void);        /* CLOCK_MONOTONIC */
uint64_t sys_tick_ns(void);       /* the same when the kernel last counted, a few ms ago: cheap */
int64_t sys_wall_offset_ns(void); /* CLOCK_REALTIME - CLOCK_MONOTONIC */
/* The processor's time stamp counter, not ordered with what is before and after it in the program.
 * Only if it is usable: 0, or see tsc_new. */
uint64_t sys_tsc(void);
int sys_tsc_usable(void);

/* Descriptors: all close-on-exec, all but the epoll fd non-blocking. */
int sys_eventfd(void);
int sys_timerfd(void);
int sys_timerfd_set(int fd, uint64_t at_ns); /* absolute; WEIR_FOREVER disarms */
/* How long it takes at least from a timer to whoever it wakes, between these. */
void sys_timer_lead(uint32_t *ret_least_ns, uint32_t *ret_most_ns);
int sys_timerfd_ring(int fd); /* makes it readable; only kernels that can checkpoint do that */
int sys_epoll_create(void);
int sys_epoll_add(int epoll_fd, int fd, uint64_t data);
int sys_epoll_add_edge(int epoll_fd, int fd, uint64_t data); /* edge-triggered */
void sys_epoll_remove(int epoll_fd, int fd);
int sys_epoll_wait(int epoll_fd, uint64_t *ret_data, int n); /* blocks; returns how many */
int sys_epoll_look(int epoll_fd, uint64_t *ret_data, int n); /* the same, does not block */
int sys_signal_fd(int fd);                                   /* adds 1 to an eventfd */
int sys_probe_fd(int fd); /* adds 0 to one; -EINVAL: it is none */
int sys_drain_fd(int fd); /* reads an eventfd or timerfd empty; returns its count */
void sys_close(int fd);

/* Futex words. sys_futex_wait: 0 woken (perhaps for nothing), -EAGAIN differs, -ETIMEDOUT. */
int sys_futex_wait(const uint32_t *word, uint32_t expected, uint64_t until_ns);
int sys_futex_wake(const uint32_t *word, int n);
/* The same for a word in memory that processes share: a little slower. */
int sys_futex_wait_shared(const uint32_t *word, uint32_t expected, uint64_t until_ns);
int sys_futex_wake_shared(const uint32_t *word, int n);

/* Threads: with all signals blocked. The handle is one allocation, freed by join. */
struct sys_thread;
int sys_thread_start(struct sys_thread **ret, void (*run)(void *), void *argument,
                     const char *name);
void sys_thread_join(struct sys_thread *thread);
uint32_t sys_thread_id(void);

/* Files and plugins. */
int sys_read_file(const char *path, size_t size_max, char **ret, size_t *ret_size); /* NUL added */
int sys_read_part(const char *path, uint64_t offset, void *buffer, size_t size);    /* how many */
int sys_stat(const char *path, struct stat *ret);
int sys_open_directory(const char *path, void **ret);
int sys_next_entry(void *directory, char *ret_name, size_t size); /* 1 an entry, 0 the end */
void sys_close_directory(void *directory);
int sys_load(const char *path, void **ret, char *ret_why, size_t why_size); /* dlopen NOW|LOCAL */
void *sys_symbol(void *library, const char *name);

/*
 * Files in a directory that is open. They are opened without following a link, waiting for nobody,
 * close-on-exec; names have no slashes. sys_read_at says how many bytes there were.
 */
int sys_make_directory(const char *path);             /* 0700 */
int sys_open_directory_fd(const char *path);          /* not a link */
int sys_list_directory(int directory_fd, void **ret); /* for sys_next_entry */
int sys_open_in(int directory_fd, const char *name, bool writable);
int sys_stat_in(int directory_fd, const char *name, struct stat *ret);
int sys_unlink_in(int directory_fd, const char *name);
int sys_open_nameless(int directory_fd); /* a new file, 0600, gone when closed … */
int sys_give_name(int fd, int directory_fd, const char *name); /* … unless it gets a name */
int sys_stat_fd(int fd, struct stat *ret);
int sys_read_at(int fd, uint64_t offset, void *buffer, size_t size);
int sys_resize(int fd, uint64_t size);
int sys_allocate(int fd, uint64_t offset, uint64_t size); /* -ENOSPC now, or never */
/* Waits at most a second: -EBUSY. Whoever holds it does nothing long under it. */
int sys_lock(int fd);
void sys_unlock(int fd);
/* Shared memory; not there in forked children. */
int sys_map(int fd, size_t size, bool writable, void **ret);
void sys_unmap(void *memory, size_t size);

/* The machine since it was started, and the namespaces of the process ("pid", "time"; 0: none). */
int sys_boot_id(unsigned char ret[16]);
int sys_namespace(const char *kind, uint64_t *ret);

/* Named pipes in a directory that is open; sys_open_in opens both ends of one. */
int sys_pipe_make(int directory_fd, const char *name); /* 0600 */
int sys_pipe_read(int fd, void *buffer, size_t size);  /* how many bytes; 0: it is empty */
int sys_pipe_write(int fd, const void *data,
                   size_t size); /* all of a few, or -EAGAIN: it is full */

/* Processes: this one's id; whether there is such a one (0, -ESRCH, or -EPERM: it is not ours to
 * ask); a descriptor that becomes readable when all threads of one have ended. */
uint32_t sys_process_id(void);
int sys_process_exists(uint32_t pid);
int sys_process_open(uint32_t pid);

const char *sys_environment(const char *name); /* NULL in a privileged process */
uint32_t sys_user(void);
uint64_t sys_random(void);

#endif
