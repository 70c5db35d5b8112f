/* SPDX-License-Identifier: MIT */
/*
 * The one seam to the operating system: every allocation, system call and clock reading of the core
 * goes through here. sys_*.c are the real one; the tests link tests/support/fake_sys.c in their
 * place, which can make the n-th call fail and moves the clock by hand. What concerns io_uring is in
 * os_uring.h.
 * Functions return 0, a descriptor or a count, or a negative errno; -EINTR is retried inside.
 */
#ifndef WEIR_CORE_OS_OS_H
#define WEIR_CORE_OS_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* Memory. Zeroed; NULL when there is none. os_realloc keeps the content and zeroes nothing. */
void *os_alloc(size_t n, size_t size);
void *os_alloc_aligned(size_t alignment, size_t size); /* zeroed; alignment a power of two */
void *os_realloc(void *memory, size_t n, size_t size);
char *os_strdup(const char *text);
void os_free(void *memory);

/* Address space without memory behind it; os_vm_commit makes a prefix usable, zeroed. */
void *os_vm_reserve(size_t size);
int os_vm_commit(void *memory, size_t size);
/* Asks for large pages, which may come or not. */
void os_vm_prefer_huge_pages(void *memory, size_t size);
void os_vm_free(void *memory, size_t size);
/* A page whose bytes become zero in a forked child; NULL if that cannot be had. */
void *os_wipe_page_alloc(void);
void os_wipe_page_free(void *page);

/* Time. */
uint64_t os_now_ns(void);        /* CLOCK_MONOTONIC */
uint64_t os_now_coarse_ns(void); /* the same when the kernel last counted, a few ms ago: cheap */
int64_t os_wall_offset_ns(void); /* CLOCK_REALTIME - CLOCK_MONOTONIC */
/* The processor's time stamp counter, not ordered with what is before and after it in the program.
 * Only if it is usable: 0, or see clock_tsc_new. */
uint64_t os_tsc_read(void);
int os_tsc_check(void);

/* Descriptors: all close-on-exec, all but the epoll fd non-blocking. */
int os_eventfd(void);
int os_timerfd(void);
int os_timerfd_set(int fd, uint64_t at_ns); /* absolute; WEIR_FOREVER disarms */
/* How long it takes at least from a timer to whoever it wakes, between these. */
void os_timer_lead(uint32_t *ret_least_ns, uint32_t *ret_most_ns);
int os_timerfd_expire(int fd); /* makes it readable; only kernels that can checkpoint do that */
int os_epoll_create(void);
int os_epoll_add(int epoll_fd, int fd, uint64_t data);
int os_epoll_add_edge(int epoll_fd, int fd, uint64_t data); /* edge-triggered */
void os_epoll_remove(int epoll_fd, int fd);
int os_epoll_wait(int epoll_fd, uint64_t *ret_data, int n); /* blocks; returns how many */
int os_epoll_poll(int epoll_fd, uint64_t *ret_data, int n); /* the same, does not block */
int os_eventfd_signal(int fd);                              /* adds 1 to an eventfd */
int os_eventfd_probe(int fd);                               /* adds 0 to one; -EINVAL: it is none */
int os_fd_drain(int fd); /* reads an eventfd or timerfd empty; returns its count */
void os_close(int fd);

/* Futex words. os_futex_wait: 0 woken (perhaps for nothing), -EAGAIN differs, -ETIMEDOUT. */
int os_futex_wait(const uint32_t *word, uint32_t expected, uint64_t until_ns);
int os_futex_wake(const uint32_t *word, int n);
/* The same for a word in memory that processes share: a little slower. */
int os_futex_wait_shared(const uint32_t *word, uint32_t expected, uint64_t until_ns);
int os_futex_wake_shared(const uint32_t *word, int n);

/* Threads: with all signals blocked. The handle is one allocation, freed by join. */
struct os_thread;
int os_thread_start(struct os_thread **ret, void (*run)(void *), void *argument, const char *name);
void os_thread_join(struct os_thread *thread);
uint32_t os_thread_id(void);

/* Files and plugins. */
int os_file_read(const char *path, size_t size_max, char **ret, size_t *ret_size);   /* NUL added */
int os_file_read_part(const char *path, uint64_t offset, void *buffer, size_t size); /* how many */
int os_stat(const char *path, struct stat *ret);
int os_dir_open(const char *path, void **ret);
int os_dir_next(void *directory, char *ret_name, size_t size); /* 1 an entry, 0 the end */
void os_dir_close(void *directory);
int os_dlopen(const char *path, void **ret, char *ret_why, size_t why_size); /* dlopen NOW|LOCAL */
void *os_dlsym(void *library, const char *name);

/*
 * Files in a directory that is open. They are opened without following a link, waiting for nobody,
 * close-on-exec; names have no slashes. os_pread says how many bytes there were.
 */
int os_mkdir(const char *path);                     /* 0700 */
int os_dir_open_fd(const char *path);               /* not a link */
int os_dir_open_list(int directory_fd, void **ret); /* for os_dir_next */
int os_open_at(int directory_fd, const char *name, bool writable);
int os_stat_at(int directory_fd, const char *name, struct stat *ret);
int os_unlink_at(int directory_fd, const char *name);
int os_open_tmpfile(int directory_fd); /* a new file, 0600, gone when closed … */
int os_link_at(int fd, int directory_fd, const char *name); /* … unless it gets a name */
int os_fstat(int fd, struct stat *ret);
int os_pread(int fd, uint64_t offset, void *buffer, size_t size);
int os_ftruncate(int fd, uint64_t size);
int os_fallocate(int fd, uint64_t offset, uint64_t size); /* -ENOSPC now, or never */
/* Waits at most a second: -EBUSY. Whoever holds it does nothing long under it. */
int os_file_lock(int fd);
void os_file_unlock(int fd);
/* Shared memory; not there in forked children. */
int os_map_shared(int fd, size_t size, bool writable, void **ret);
void os_unmap_shared(void *memory, size_t size);

/* The machine since it was started, and the namespaces of the process ("pid", "time"; 0: none). */
int os_boot_id(unsigned char ret[16]);
int os_namespace_id(const char *kind, uint64_t *ret);

/* Named pipes in a directory that is open; os_open_at opens both ends of one. */
int os_fifo_make(int directory_fd, const char *name);     /* 0600 */
int os_fifo_read(int fd, void *buffer, size_t size);      /* how many bytes; 0: it is empty */
int os_fifo_write(int fd, const void *data, size_t size); /* all of a few, or -EAGAIN: it is full */

/* Processes: this one's id; whether there is such a one (0, -ESRCH, or -EPERM: it is not ours to
 * ask); a descriptor that becomes readable when all threads of one have ended. */
uint32_t os_process_id(void);
int os_process_exists(uint32_t pid);
int os_pidfd_open(uint32_t pid);

const char *os_getenv(const char *name); /* NULL in a privileged process */
uint32_t os_user_id(void);
uint64_t os_random(void);

#endif
