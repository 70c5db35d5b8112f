/* SPDX-License-Identifier: MIT */
/*
 * An instance of weir: a configuration, the sets it defines, the plugins it loaded, and at most one
 * thread, the timekeeper, that keeps time for waiters that are not blocked in a call, and hears of
 * the other processes while anybody waits on a set that they share.
 */
#ifndef WEIR_INSTANCE_H
#define WEIR_INSTANCE_H

#include <weir/clock.h>
#include <weir/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The most that options.timer_advance_ns may be. */
#define WEIR_TIMER_ADVANCE_MAX_NS 1000000u

/* How an instance is opened. Zero everything, set `size`, then what is wanted. */
struct weir_options {
    size_t size;           /* sizeof(struct weir_options) */
    const char *file;      /* configuration file; at most one of `file` and `text` */
    const char *text;      /* configuration text, NUL-terminated */
    const char *text_name; /* what error messages call `text`; NULL: "<text>" */

    /* Searched for plugins before those of the configuration; NULL-terminated, or NULL. */
    const char *const *plugin_dirs;

    const struct weir_clock *clock; /* copied; NULL: see clock_source */
    uint64_t seed;                  /* of the balancers' randomness; 0: from the kernel */

    /*
     * For grants that time makes and that shall not be late: the timekeeper's timer is set so much
     * earlier, and the thread spins until the instant has come, which it then does not miss by as
     * long as a sleeping thread takes to run; never early. The price is a processor, for up to so
     * long per instant, so all the time if instants are no further apart. Concerns what the
     * timekeeper does: acquisitions that are not of a queue, and attached queues, whose descriptor
     * may wake its loop so much early, in vain. 0, or up to WEIR_TIMER_ADVANCE_MAX_NS; 0: off. Of
     * no effect with an injected clock.
     */
    uint64_t timer_advance_ns;

    /*
     * Hears warnings. Called from any thread that uses the instance and from its timekeeper, with
     * no lock of weir's held that a call of weir's would need; must not call weir_close or
     * weir_queue_close. The message is one line without a newline. NULL: nobody.
     */
    void (*log)(void *userdata, enum weir_log_level level, const char *message);

    /*
     * Hears every complaint about a configuration, at most 1000, in the order of the file, from
     * within the call that reads it. NULL: nobody.
     */
    void (*complaint)(void *userdata, const struct weir_error *complaint);

    void *userdata; /* for `log` and `complaint` */

    /*
     * Where the sets that processes share have their segments: an absolute path of a directory that
     * belongs to the user alone. NULL: `process_dir` of the configuration; or the environment
     * variable WEIR_PROCESS_DIR (ignored in a privileged process); or weir-UID below /dev/shm.
     */
    const char *process_dir;

    uint32_t flags; /* WEIR_OPEN_* */

    /*
     * The name of the only set or pool of the configuration that is wanted: all else there is
     * checked and then left out, as if it were not defined, so that nothing is shared that is not
     * used. If it is a pool, its sets are there, too; if it is neither, nothing is. NULL: all.
     */
    const char *only;

    /* Of WEIR_CLOCK_*, but not INJECTED; DEFAULT: as the configuration says. Not with `clock`. */
    enum weir_clock_source clock_source;
};

/* Flags of weir_options. */
enum {
    WEIR_OPEN_APART = 1u << 0,   /* nothing is shared: sets of the backend `process` are made as if
                                    theirs were `thread`, and no segment is touched */
    WEIR_OPEN_EXISTING = 1u << 1 /* no segment is made: a set of the backend `process` that has none
                                    yet is -ENOENT. For programs that look at what others do */
};

/*
 * Opens an instance. `options` may be NULL, or name neither `file` nor `text`: then the file named
 * by the environment variable WEIR_CONFIG is read (ignored in a privileged process), or, if that
 * is not set either, there is no configuration and every name opens one empty set, which grants
 * everything. All strings are copied. `*ret` goes back with weir_close. Any thread.
 * Returns 0; -EINVAL (options or configuration are wrong), -ENOENT, -EACCES, … (the file cannot be
 * read), -EFBIG (it is larger than 16 MiB), -ENOEXEC (a plugin file is refused), -ENOMEM, or
 * another negative errno. `reterr` may be NULL; it holds the first complaint.
 *
 * An instance takes part in all the sets of its configuration that processes share, from here on.
 * That can fail with -EEXIST (the others define the set otherwise; the message shows both
 * definitions), -EPERM (the directory or the file of the set is not the user's alone), -EXDEV (it
 * belongs to another pid or time namespace), -EPROTONOSUPPORT (to another version of weir),
 * -EUCLEAN (it is damaged), -EUSERS (1024 take part), -EBUSY (others keep removing it), -ENOENT
 * (WEIR_OPEN_EXISTING, and there is none), or what the system says (-ENOSPC, -EMFILE, …).
 */
WEIR_PUBLIC int weir_open(weir **ret, const struct weir_options *options,
                          struct weir_error *reterr);

/*
 * Closes an instance: its pending waiters end with -ESHUTDOWN (those of other processes go on), and
 * the call waits until no thread is blocked inside weir on its behalf. `w` must not be used
 * afterwards, nor may another thread be in a call that is given `w` itself. Pools and acquisitions
 * stay valid, answer -ESHUTDOWN to new requests, and must still be closed and released; the memory
 * goes with the last of them, and of the threads that used the instance. Only then does its part in
 * sets that processes share end. NULL is fine. In a forked child only the child's copies of the
 * descriptors are closed: other threads of the parent may have been at work on the memory. Always
 * returns NULL.
 */
WEIR_PUBLIC weir *weir_close(weir *w);

/*
 * The names of the sets (or pools) that can be opened, in the order in which they were defined: at
 * most `n` of them into `ret`, which may be NULL if `n` is 0. The strings live as long as the
 * instance. Any thread. Returns how many there are in all, or -ECHILD.
 */
WEIR_PUBLIC int weir_sets(weir *w, const char **ret, size_t n);
WEIR_PUBLIC int weir_pools(weir *w, const char **ret, size_t n);

/* The library's version, "0.1.0". */
WEIR_PUBLIC const char *weir_version(void);

/*
 * A plugin as found in a directory. Those inside a static library are shown as files of a directory
 * "<built in>". Everything lives as long as the call to `found`.
 */
struct weir_plugin_info {
    size_t size;                      /* sizeof(struct weir_plugin_info), as the library knows it */
    const char *path;                 /* of the file, or of a directory that cannot be read */
    const struct weir_plugin *plugin; /* NULL if the file is refused; complete, whatever its age */
    const struct weir_error *refusal; /* why, or NULL */
};

/*
 * Calls `found` for every plugin in the directories that weir_open would search with these options,
 * in the order of the search, and for every file and directory there that is refused. The files are
 * loaded. `found` returns 0 to go on. Any thread. Returns how many plugins were told of; or -EINVAL
 * (the options or the configuration's plugin_dirs are wrong), -ENOENT, -EACCES, … (the
 * configuration cannot be read), -ENOMEM; then `reterr`, if not NULL, holds the first complaint.
 */
WEIR_PUBLIC int weir_plugins(const struct weir_options *options,
                             int (*found)(void *userdata, const struct weir_plugin_info *info),
                             void *userdata, struct weir_error *reterr);

#ifdef __cplusplus
}
#endif
#endif
