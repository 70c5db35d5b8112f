/* SPDX-License-Identifier: MIT */
/*
 * The seam to the operating system: all allocations, system calls and clock readings of the core go
 * through this header. os_*.c implement it; the tests link tests/lib/fake_os.c instead, which
 * fails the n-th call on request and has a clock that is set by hand. os_uring.h is the part for
 * io_uring.
 * Functions return 0, a descriptor or a count, or a negative errno. -EINTR is retried inside.
 */
#ifndef WEIR_CORE_OS_OS_H
#define WEIR_CORE_OS_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* Memory. Allocations are zeroed; NULL: out of memory. os_realloc keeps the content and does not
 * zero what is added. */
void *os_alloc(size_t n, size_t size);
void *os_alloc_aligned(size_t alignment, size_t size); /* zeroed; alignment: a power of two */
void *os_realloc(void *memory, size_t n, size_t size);
char *os_strdup(const char *text);
void os_free(void *memory);

/* Address space without memory behind it. os_vm_commit makes a prefix of it usable and zeroed. */
void *os_vm_reserve(size_t size);
int os_vm_commit(void *memory, size_t size);
/* Asks the kernel for large pages. The request may have no effect. */
void os_vm_prefer_huge_pages(void *memory, size_t size);
/* Gives it its pages now, zeroed, if they are less than a quarter of the free memory and the kernel
 * can. Otherwise each page comes at its first use. */
void os_vm_populate(void *memory, size_t size);
void os_vm_free(void *memory, size_t size);
/* Allocates a page that the kernel or fork() zeroes in a child. Returns NULL on failure. */
void *os_wipe_page_alloc(void);
void os_wipe_page_free(void *page);

/* Time. */
uint64_t os_now_ns(void); /* CLOCK_MONOTONIC */
uint64_t
os_now_coarse_ns(void); /* CLOCK_MONOTONIC at the kernel's last tick, a few ms ago: cheap */
uint64_t os_boottime_now_ns(void); /* CLOCK_BOOTTIME: CLOCK_MONOTONIC and all suspensions */
/* CLOCK_BOOTTIME - CLOCK_MONOTONIC, or up to two readings more. */
uint64_t os_boottime_ahead_ns(void);
/* CLOCK_REALTIME - CLOCK_MONOTONIC, as of the kernel's last tick: exact, since only a step of the
 * wall clock and a suspension change it. */
int64_t os_wall_offset_ns(void);
/* Reads the time stamp counter, unordered with the instructions before and after it. Returns 0 if
 * the counter is unusable; clock_tsc_new lists the errors of os_tsc_check. */
uint64_t os_tsc_read(void);
int os_tsc_check(void);

/* Descriptors. All are close-on-exec; all but the epoll descriptor are non-blocking. */
int os_eventfd(void);
int os_timerfd(void);
int os_timerfd_set(int fd, uint64_t at_ns); /* absolute; WEIR_FOREVER disarms */
/* Bounds of the least time from the expiry of a timer until the thread that it wakes runs. */
void os_timer_lead(uint32_t *ret_least_ns, uint32_t *ret_most_ns);
int os_timerfd_expire(int fd); /* expires it now; needs a kernel with checkpoint support */
/* A timerfd that becomes readable when the wall clock steps or the machine wakes from suspend, once
 * it is armed. os_wall_timerfd_arm() takes back what made it readable before. */
int os_wall_timerfd(void);
int os_wall_timerfd_arm(int fd);
int os_epoll_create(void);
int os_epoll_add(int epoll_fd, int fd, uint64_t data);
int os_epoll_add_edge(int epoll_fd, int fd, uint64_t data); /* edge-triggered */
void os_epoll_remove(int epoll_fd, int fd);
int os_epoll_wait(int epoll_fd, uint64_t *ret_data, int n, bool blocks); /* how many are ready */
int os_eventfd_add(int fd, uint64_t n); /* -EINVAL: not an eventfd */
/* Read and write eventfds, timerfds and FIFOs. A read returns the number of bytes, 0 if there are
 * none. A write of a few bytes writes all, or returns -EAGAIN if they have no room. */
int os_read(int fd, void *buffer, size_t size);
int os_write(int fd, const void *data, size_t size);
void os_close(int fd);
uint32_t os_descriptors_max(void); /* how many this process may have open at a time */

/* Futex words; `shared`: in memory shared by processes, which is a little slower. os_futex_wait
 * returns 0 (woken, perhaps spuriously), -EAGAIN (the word differs from `expected`) or -ETIMEDOUT.
 * os_futex_wake wakes one thread, and returns how many it woke. */
int os_futex_wait(const uint32_t *word, bool shared, uint32_t expected, uint64_t until_ns);
int os_futex_wake(const uint32_t *word, bool shared);

/* Threads, started with all signals blocked. os_thread_join frees the handle, one allocation. */
struct os_thread;
int os_thread_start(struct os_thread **ret, void (*run)(void *), void *argument, const char *name);
void os_thread_join(struct os_thread *thread);
uint32_t os_thread_id(void);
void os_thread_be_ordinary(void); /* gives up real-time scheduling that the thread inherited */
uint64_t os_thread_cpu_ns(void);  /* processor time that the calling thread has taken */

/* Files and plugins. */
int os_file_read(const char *path, size_t size_max, char **ret, size_t *ret_size); /* adds a NUL */
int os_file_read_part(const char *path, uint64_t offset, void *buffer,
                      size_t size); /* returns the number of bytes read */
int os_stat(const char *path, struct stat *ret);
int os_dir_open(int directory_fd, const char *path, void **ret); /* relative to the directory */
int os_dir_next(void *directory, char *ret_name, size_t size);   /* 1: an entry; 0: the end */
void os_dir_close(void *directory);
/* Finds the regular files that were in a directory, have lost their names, and are open in a
 * process of this user. `found` gets a path that leads to the file, for each descriptor, and
 * returns 0 to go on. Returns what `found` does, 0, or why the processes cannot be read. */
int os_deleted_files(const char *directory,
                     int (*found)(void *userdata, uint32_t pid, const char *path), void *userdata);
int os_dlopen(const char *path, void **ret, char *ret_why, size_t why_size); /* NOW | LOCAL */
void *os_dlsym(void *library, const char *name);
/* Calls `found` for each segment of the loaded object that has the address; `end` is behind it. */
void os_object_segments(const void *address,
                        void (*found)(void *userdata, uintptr_t begin, uintptr_t end,
                                      bool is_readable, bool is_code),
                        void *userdata);

/*
 * Files in an open directory. They are opened close-on-exec, without following links and without
 * blocking. Names contain no slashes.
 */
int os_mkdir(const char *path);       /* mode 0700 */
int os_dir_open_fd(const char *path); /* refuses a symbolic link */
int os_open_at(int directory_fd, const char *name, bool writable);
int os_stat_at(int directory_fd, const char *name, struct stat *ret);
int os_unlink_at(int directory_fd, const char *name);
int os_rename_at(int directory_fd, const char *from, const char *to); /* replaces a file `to` */
int os_fifo_make(int directory_fd, const char *name);    /* mode 0600; os_open_at opens both ends */
int os_fifo_is_read(int directory_fd, const char *name); /* 1, also of a file; or 0 */

/*
 * Stream sockets in an open directory, with mode 0600. os_socket_is_heard: 1, or 0 (no process
 * listens). os_socket_accept also tells the user at the other end. os_socket_send returns how many
 * bytes it took, or -EAGAIN; it raises no signal. os_socket_wait waits until `fd`, which may be -1,
 * can be read or written, and returns 1; 0 once `stop_fd` can be read; or -ETIMEDOUT.
 */
int os_socket_listen(int directory_fd, const char *name);
int os_socket_is_heard(int directory_fd, const char *name);
int os_socket_accept(int fd, uint32_t *ret_user);
int os_socket_send(int fd, const void *data, size_t size);
int os_socket_wait(int fd, bool writes, int stop_fd, uint64_t wait_ns);

int os_open_tmpfile(int directory_fd); /* unnamed, mode 0600; closing deletes it unless linked */
int os_link_at(int fd, int directory_fd, const char *name); /* names an unnamed file */
int os_fstat(int fd, struct stat *ret);
int os_pread(int fd, uint64_t offset, void *buffer, size_t size); /* number of bytes; less: EOF */
int os_ftruncate(int fd, uint64_t size);
/* -ENOSPC now, never at a later store. Does not change the size of the file. */
int os_fallocate(int fd, uint64_t offset, uint64_t size);
void os_pause(void); /* for a millisecond */
/* Takes an exclusive lock on the file. Returns -EBUSY after one second; holders keep it briefly. */
int os_file_lock(int fd);
void os_file_unlock(int fd);
/*
 * Shared memory. Forked children do not inherit the mapping. A page that the file has no longer
 * (another process may truncate it), or that cannot be had, raises SIGBUS where it is used.
 * os_fault_handle() then stores true in `*lost` and replaces the mapping by private memory, all
 * zero, with which the thread goes on. A system call to which such a page is given fails with
 * -EFAULT.
 */
int os_map_shared(int fd, size_t size, bool writable, _Atomic bool *lost, void **ret);
void os_unmap_shared(void *memory, size_t size);

/* Installs a handler of SIGBUS that calls os_fault_handle(), and for all other faults the handler
 * that was there before. Only the first call does so; the handler stays. */
int os_fault_install(void);
/* Handles the signal of a siginfo_t. Returns false if it is not a fault in a mapping of
 * os_map_shared(). May be called in a signal handler. */
bool os_fault_handle(const void *siginfo);
/* Unblocks SIGBUS in this thread: a fault ends the process while the signal is blocked. */
void os_fault_unblock(void);

/* Id of the current boot, and of a namespace of the calling thread ("pid", "time"; 0: the kernel
 * has none of that kind). */
int os_boot_id(unsigned char ret[16]);
int os_namespace_id(const char *kind, uint64_t *ret);

/* Processes. os_process_exists: 0, -ESRCH, or -EPERM (it exists and belongs to another user).
 * os_process_parent: 0, or why the kernel does not tell; `*ret` is 0 if it has none in this
 * namespace.
 * os_pidfd_open: a descriptor that becomes readable when all threads of the process have ended. */
uint32_t os_process_id(void);
int os_process_exists(uint32_t pid);
int os_process_parent(uint32_t pid, uint32_t *ret);
int os_pidfd_open(uint32_t pid);

const char *os_getenv(const char *name); /* NULL in a privileged process */
/* Writes to the standard error, in one piece. An error is ignored, and SIGPIPE is not raised. */
void os_stderr_write(const char *text, size_t length);
uint32_t os_user_id(void); /* effective user */
/* Random numbers of the kernel. os_random_secret() stores `n` of them, or returns why a sandbox
 * withholds them. os_random() then takes clocks for them: its numbers differ, but can be guessed.
 */
int os_random_secret(uint64_t *ret, size_t n);
uint64_t os_random(void);

#endif
