/* SPDX-License-Identifier: MIT */
/*
 * An instance of weir: a configuration, the sets it defines, and the plugins it loaded. It has a
 * timer thread at most, besides those of backends and the one that publishes (`publish: true`). The
 * timer thread handles deadlines of waiters that are not blocked in a call, and looks for what is
 * held too long. It receives events of other processes while a shared set has waiters, and steps of
 * the wall clock for those that depend on it.
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
     * Spin time of the timer thread, for grants by the passing of time that must not be late. Its
     * timer expires so much earlier, and the thread then spins until the time has come; it is never
     * early. The price is a processor for up to so long per deadline. Applies to acquisitions
     * outside of completion queues, and to attached completion queues: their descriptor may wake
     * its loop so much early and spuriously. 0: off; at most WEIR_TIMER_ADVANCE_MAX_NS. Without
     * effect with an injected clock.
     */
    uint64_t timer_advance_ns;

    /*
     * Receives errors and warnings, one line each. Called from any thread that uses the instance
     * and from those of weir, without a lock that a call of weir would need. Must not call
     * weir_close or weir_queue_close. The message is one line without a newline. NULL: if the
     * environment variable WEIR_LOG is error, warning, info or debug, lines of this level and of
     * greater importance go to the standard error, each in one write, which may block (ignored in a
     * privileged process); else there is no log.
     * [any thread, changes]
     */
    void (*log)(void *userdata, enum weir_log_level level, const char *message);

    /* Receives every complaint about a configuration, at most 1000, in the order of the file, from
     * within the call that reads it; `complaints` of each says how many there are in all. NULL: no
     * callback. [one thread, changes] */
    void (*complaint)(void *userdata, const struct weir_error *complaint);

    void *userdata; /* for `log` and `complaint` */

    /*
     * Directory of the segments of shared sets: an absolute path of a directory that belongs to the
     * user alone. NULL: `process_dir` of the configuration; or the environment variable
     * WEIR_PROCESS_DIR (ignored in a privileged process); or weir-UID below /dev/shm, which
     * systemd-logind may remove when the user logs out (docs/processes.md).
     */
    const char *process_dir;

    uint32_t flags; /* WEIR_OPEN_* */

    /*
     * The only set or pool of the configuration that is wanted. All else is checked and then left
     * out, as if it were not defined, so that nothing is shared that is not used. A pool brings its
     * sets; an unknown name leaves nothing. NULL: all.
     */
    const char *only;

    /* WEIR_CLOCK_*, but not INJECTED; DEFAULT: as the configuration says. Not with `clock`. */
    enum weir_clock_source clock_source;
};

/* Flags of weir_options. */
enum {
    WEIR_OPEN_APART = 1u << 0,      /* nothing is shared: sets of the backend `process` are made as
                                       with `thread`, and no segment is touched */
    WEIR_OPEN_EXISTING = 1u << 1,   /* no segment is made: a set of the backend `process` without a
                                       segment is -ENOENT. For programs that observe others */
    WEIR_OPEN_NO_HANDLER = 1u << 2, /* no handler of SIGBUS is installed for shared sets: the
                                       program's own calls weir_segment_fault (weir/segment.h) */
    WEIR_OPEN_REQUIRE_CONFIG = 1u << 3, /* without a configuration weir_open is -ENOENT. So it is
                                           with the environment variable WEIR_REQUIRE_CONFIG=1 (0 or
                                           empty: no effect; ignored in a privileged process) */
    WEIR_OPEN_WARNINGS = 1u << 4,       /* `complaint` also receives warnings: what is right and
                                           probably not meant, as a set without limits. Their
                                           `code` is 0. There are none if the configuration is
                                           wrong; what fails later (a shared set that others
                                           define otherwise) is a complaint behind them */
    WEIR_OPEN_OFFLINE = 1u << 5,        /* no engine is asked: requests of sets that one keeps
                                           are -EHOSTUNREACH, whatever `on_failure` says */
    WEIR_OPEN_UNPUBLISHED = 1u << 6     /* sets are not published, whatever the configuration
                                           (`publish: true`) and the environment (WEIR_PUBLISH=1)
                                           say. WEIR_OPEN_APART and WEIR_OPEN_EXISTING imply it */
};

/*
 * Opens an instance. `options` may be NULL, or name neither `file` nor `text`. Then the file named
 * by the environment variable WEIR_CONFIG is read (ignored in a privileged process). If that is not
 * set either, there is no configuration, and every name opens one empty set, which grants
 * everything: the log warns of each, and WEIR_OPEN_REQUIRE_CONFIG refuses it. All strings are
 * copied. `*ret` is closed with weir_close. Any thread. Returns 0;
 * -EINVAL (options or configuration are wrong), -ENOENT, -EACCES, … (the file cannot be read, or a
 * configuration is required and there is none), -EFBIG (it is larger than 16 MiB), -ENOEXEC (a
 * plugin file is refused), -ENOMEM, or another negative errno. `reterr` may be NULL; it holds the
 * first complaint.
 *
 * An instance attaches to all shared sets of its configuration here. That can fail with -EEXIST
 * (the other processes define the set otherwise; the message shows both definitions), -EPERM (the
 * directory or the file of the set is not the user's alone), -EXDEV (it belongs to another pid or
 * time namespace), -EPROTONOSUPPORT (it belongs to another version of weir), -EUCLEAN (it is
 * damaged), -EUSERS (1024 instances of living processes are attached; dead ones are replaced),
 * -EBUSY (other processes keep removing it), -ENOENT (WEIR_OPEN_EXISTING, and there is none), or
 * the system's error (-ENOSPC, -EMFILE, …).
 * [any thread, changes]
 */
WEIR_PUBLIC WEIR_MUST_CHECK int weir_open(weir **ret, const struct weir_options *options,
                                          struct weir_error *reterr);

/*
 * Reads a configuration again and changes the sets of the instance to it, while they are used. All
 * or nothing: after an error nothing has changed. Of `options`, which may be NULL, `file`, `text`,
 * `text_name`, `complaint`, `userdata`, `only` and the flag WEIR_OPEN_WARNINGS are used as
 * weir_open uses them, but warnings are lost if memory is short for them. The rest was decided when
 * the instance was opened, as were `plugin_dirs`, `process_dir`, `clock`, `publish` and `backends`
 * of the configuration. Pools and acquisitions of the program stay valid.
 *
 * Sets and pools are compared by name. What is the same is left alone. A set with another
 * definition changes at one instant for all threads: a limit of the same key, type and algorithm
 * goes on with its state, another one begins anew; what is held stays held, and nothing is granted
 * of a resource until less than its capacity is held; waiters keep their places, and those that can
 * never be granted any more end with -ERANGE. An acquisition keeps the config map that it was asked
 * for with. A set that the configuration lacks is removed: its waiters end with -ESHUTDOWN, and
 * requests by handles of it are -ESTALE from then on. So are those by handles of a pool of several
 * sets that it lacks; a handle of a pool of one set goes on with that set. What the program has
 * defined by weir_pool_new stays.
 *
 * Each subject of a set with subjects changes as such a set does, as of the reload. One that is as
 * good as new begins anew. The room for subjects may grow; if less is configured, it stays. A
 * request for a subject that waited may be -ENOMEM until there is memory for its new definition;
 * until then waiters are granted by the former one.
 *
 * A set that processes share has one definition for all of them (weir_segment_redefine). What each
 * process has for itself changes for this one: `timeout`, `max_wait`, `strict`, `hold_histogram`
 * and `config`. If the configuration lacks such a set, or one that an engine keeps, the process
 * drops it: its own waiters end with -ESHUTDOWN and its requests are -ESTALE; what it holds is held
 * until it is released, and others notice nothing. If a later reload brings the set back, handles
 * that are open go on with it.
 *
 * A pool with other sets, another balancer or other fields changes for all its handles: the next
 * request by each goes by the new definition, and none fails because of the change. The balancer
 * begins anew. Requests that wait stay in the sets where they wait, whether these are still of the
 * pool or not.
 *
 * Any thread, also several at once. Returns 0; -EINVAL, -ENOENT, -EFBIG, -ENOEXEC, -ENOMEM or
 * another error of reading a configuration, as weir_open; -EEXIST (the configuration defines a name
 * that the program has defined); -EOPNOTSUPP (a set that processes share would have another
 * definition; it changes one that an engine keeps otherwise than by a higher `revision` with limits
 * of the same keys and algorithms; it adds one of a backend that weir_open did not open; it changes
 * the clock, the backend or the classes of requests of a set, or whether it has subjects; it
 * defines a pool by a name that the program opened before there was any configuration; a subject
 * was not asked for since its set has changed 2047 times; or former definitions of sets with
 * subjects have used up the room for states); an error of weir_open for a shared set that is added;
 * -ESHUTDOWN (the instance is closed); -ECHILD. `reterr` may be NULL; it holds the first complaint.
 *
 * Each definition of a set that was in use takes some hundred bytes, and as many for each thread
 * that used it, until the instance is closed; each change of a pool of several sets about 160 bytes
 * for each set and open handle, until the handle is closed.
 * [any thread, changes]
 */
WEIR_PUBLIC WEIR_MUST_CHECK int weir_reload(weir *w, const struct weir_options *options,
                                            struct weir_error *reterr);

/*
 * Closes an instance. Its pending waiters end with -ESHUTDOWN (those of other processes go on), and
 * the call waits until no thread is blocked inside weir on its behalf. `w` must not be used
 * afterwards, nor may another thread be in a call that is given `w` itself. Pools and acquisitions
 * stay valid, answer -ESHUTDOWN to new requests, and must still be closed and released. The memory
 * goes with the last of them and of the threads that used the instance; only then does the instance
 * detach from its shared sets. NULL is fine. In a forked child only the child's copies of the
 * descriptors are closed: other threads of the parent may have been writing to the memory. Always
 * returns NULL.
 * [one thread, changes]
 */
WEIR_PUBLIC weir *weir_close(weir *w);

/*
 * Lists the names of the sets (or pools) that can be opened, in the order of their definitions.
 * Stores at most `n` of them in `ret`, which may be NULL if `n` is 0. The strings live as long as
 * the instance. Any thread. Returns how many there are in all, or -ECHILD.
 * [any thread, reads]
 */
WEIR_PUBLIC int weir_sets(weir *w, const char **ret, size_t n);
WEIR_PUBLIC int weir_pools(weir *w, const char **ret, size_t n);

/* A backend of the configuration: a connection to an engine. Everything lives as long as the call
 * to `found`. */
struct weir_backend_info {
    size_t size;         /* sizeof(struct weir_backend_info), as the library knows it */
    const char *name;    /* in the configuration */
    const char *type;    /* the plugin */
    int result;          /* 0: the engine can be used; or a negative errno */
    const char *message; /* why it cannot be used, or a word about it, as its version; may be "" */
};

/*
 * Sees of each backend of the configuration whether its engine can be reached and used. Calls
 * `found` for each one, in the order of the configuration, and blocks for `timeout_ns` at most
 * before each call. It uses connections of its own. `found` returns 0 to go on. Any thread. Returns
 * the number of calls; -EINVAL (`w` or `found` is NULL) or -ECHILD.
 * [any thread, changes]
 */
WEIR_PUBLIC int weir_check_backends(weir *w, uint64_t timeout_ns,
                                    int (*found)(void *userdata,
                                                 const struct weir_backend_info *info),
                                    void *userdata);

/* Returns the library's version. It is a string such as "0.1.0", for ever. Any thread.
 * [any thread, reads] */
WEIR_PUBLIC const char *weir_version(void);

/* A plugin found in a directory. Plugins linked into a static library appear as files of a
 * directory "<built in>". Everything lives as long as the call to `found`. */
struct weir_plugin_info {
    size_t size;                      /* sizeof(struct weir_plugin_info), as the library knows it */
    const char *path;                 /* of the file, or of a directory that cannot be read */
    const struct weir_plugin *plugin; /* NULL if the file is refused; complete, whatever its age */
    const struct weir_error *refusal; /* why, or NULL */
    uint32_t skipped;                 /* 1: the refusal is of one plugin; others of the file can be
                                         used */
    uint32_t reserved;
};

/*
 * Lists the plugins that an instance with these options would find. Calls `found` for each one in
 * the order of the search, and for every file, plugin and directory there that is refused. The
 * files are loaded. `found` returns 0 to go on. Any thread. Returns the number of calls; or -EINVAL
 * (the options or the configuration's plugin_dirs are wrong), -ENOENT, -EACCES, … (the
 * configuration cannot be read), -ENOMEM; then `reterr`, if not NULL, holds the first complaint.
 * [any thread, changes]
 */
WEIR_PUBLIC int weir_plugins(const struct weir_options *options,
                             int (*found)(void *userdata, const struct weir_plugin_info *info),
                             void *userdata, struct weir_error *reterr);

/*
 * Lists the files in which an instance with these options would look for plugins. No file is
 * loaded. Calls `found` for each one in the order of the search, with no `plugin` and no `refusal`,
 * and for every directory there that cannot be read. `found` returns 0 to go on. Any thread.
 * Returns the number of files, or an error of weir_plugins, with `reterr`.
 * [any thread, reads]
 */
WEIR_PUBLIC int weir_plugin_files(const struct weir_options *options,
                                  int (*found)(void *userdata, const struct weir_plugin_info *info),
                                  void *userdata, struct weir_error *reterr);

/*
 * Lists the plugins of one file, which is loaded. Calls `found` for each one, and for the file or
 * plugin that is refused. `found` returns 0 to go on. A program that does not trust the file calls
 * this in a process of its own, as `weir plugins` does. `path` is as weir_plugin_files says it. Any
 * thread. Returns the number of plugins; -EINVAL (`path` or `found` is NULL), -ENOENT (there is no
 * such file), or -ENOMEM.
 * [any thread, changes]
 */
WEIR_PUBLIC int weir_plugin_file(const char *path,
                                 int (*found)(void *userdata, const struct weir_plugin_info *info),
                                 void *userdata, struct weir_error *reterr);

/*
 * Lists the directories of plugins that these options and the configuration name. Calls `found` for
 * each one in the order of the search: for programs that open a set by its definition alone
 * (segment.h), which does not say where its plugins are. `dir` lives as long as the call. `found`
 * returns 0 to go on. Any thread. Returns the number of calls, or an error of weir_plugins, with
 * `reterr`.
 * [any thread, reads]
 */
WEIR_PUBLIC int weir_plugin_dirs(const struct weir_options *options,
                                 int (*found)(void *userdata, const char *dir), void *userdata,
                                 struct weir_error *reterr);

#ifdef __cplusplus
}
#endif
#endif
