/* SPDX-License-Identifier: MIT */
/* Segments: the files of sets that processes share. These have the backend `process`. The header is
 * for programs that list, watch or remove their segments. */
#ifndef WEIR_SEGMENT_H
#define WEIR_SEGMENT_H

#include <weir/instance.h>
#include <weir/set.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A segment that was found. To look into its set, open an instance with `definition` as the text,
 * the same process_dir and WEIR_OPEN_EXISTING, and open the set by its name. That counts as using
 * it.
 */
struct weir_segment {
    size_t size;            /* sizeof(struct weir_segment), as the library knows it */
    const char *name;       /* name of the set */
    const char *path;       /* of the file, bytes */
    const char *definition; /* a whole configuration with this set alone; NULL if it is not
                               usable, or its configuration has more than 16 KiB */
    const char *lifetime;   /* "boot" or "users"; NULL if it is not usable */
    uint64_t created_ns;    /* since 1970-01-01 UTC; 0 if it is not usable, as are the fields
                               below */
    uint64_t bytes;         /* memory in use */
    uint32_t creator;       /* process id */
    uint32_t users;         /* living processes that are attached; known for -EIDRM, too */

    /*
     * NULL if it is usable, else the reason, with one of these codes: -ESTALE (of an earlier boot:
     * the process that opens the set next replaces it), -EXDEV (of another namespace of processes
     * or time), -EIDRM (it has lost its name: `path` leads to another segment or to none; processes
     * that come now do not share it, and the limits hold in each), -EPROTONOSUPPORT (made by
     * another version of weir), -EUCLEAN (damaged), -EPERM (not the user's alone), or the system's
     * error of opening it.
     */
    const struct weir_error *refusal;
};

/*
 * Lists the segments in the directory that weir_open would use with these options. Calls `found`
 * for each one in the order of their names; and then for those that were there and have lost their
 * names, although processes of this user still have them open. Also removes what dead processes
 * left there. Of the options, which may be NULL, only the choice of the directory matters. The
 * arguments of `found` live as long as the call; it returns 0 to go on, and may remove the segment.
 * Any thread. Returns the number of calls, 0 also if there is no such directory; or -EINVAL (the
 * options or the configuration are wrong), -EPERM (the directory is not the user's alone), -ENOMEM,
 * or the system's error; then `reterr`, if not NULL, says why.
 * [any thread, reads]
 */
WEIR_PUBLIC int weir_segments(const struct weir_options *options,
                              int (*found)(void *userdata, const struct weir_segment *segment),
                              void *userdata, struct weir_error *reterr);

/*
 * Opens the directory of segments. It is the one that weir_open would use with these options, which
 * may be NULL; of them only the choice of the directory matters. `*ret_fd` is close-on-exec, and
 * the caller closes it. Any thread. Returns 0, -ENOENT (there is none yet), -EINVAL (`ret_fd` is
 * NULL), or an error of weir_segments; then `reterr`, if not NULL, says why. [any thread, reads]
 */
WEIR_PUBLIC int weir_segment_dir(const struct weir_options *options, int *ret_fd,
                                 struct weir_error *reterr);

enum {
    WEIR_SEGMENT_FORCE = 1u << 0 /* also if it is in use or cannot be used: its users go on with
                                    it, apart from all later ones */
};

/*
 * Removes the segment of a set, with all its counts. Any thread. Returns 0, -ENOENT (there is
 * none), -EBUSY (a living process uses it), another code of struct weir_segment (it is not usable),
 * or an error of weir_segments.
 * [any thread, changes]
 */
WEIR_PUBLIC int weir_segment_remove(const struct weir_options *options, const char *name,
                                    uint32_t flags, struct weir_error *reterr);

/* Another definition of a set that others use, too, before it comes into force. */
struct weir_redefinition {
    size_t size;                /* sizeof(struct weir_redefinition), as the library knows it */
    const char *name;           /* of the set */
    const char *before, *after; /* definitions, as in struct weir_segment; "" where an engine has
                                   it */
    const char *changes;        /* the first differences and the limits that begin anew, one line */
};

enum {
    WEIR_REDEFINE_CHECK = 1u << 0 /* changes nothing, and says whether it could */
};

/*
 * Changes the definition of a set that processes share, while they use it, to the one that a
 * configuration has. `options`, as of weir_open, name the configuration, the directory of the
 * segments, and the directories of plugins; those in the configuration are not searched. All of the
 * configuration has to be right; sets of other names are not changed.
 *
 * The definition changes at one instant for all processes: what is held stays held, levels and
 * counts of limits are carried over, waiters keep their places, those that can go on are granted,
 * and those that never can end with -ERANGE. Processes notice at their next call, and need nothing
 * for that but memory and the same plugins. One that lacks the plugins says so to its log, and its
 * calls on the set return -EUCLEAN; what it holds comes back when it ends. Want of memory or of
 * descriptors is -ENOMEM, and passes; a release cannot wait for that, and ends as without the
 * plugins. Processes that open the set later need the new definition. What each process decides for
 * itself (timeout, max_wait, strict, config) is not touched.
 *
 * Limits may come and go, and change in all that they are. One goes on as that of its key and type.
 * It begins anew with another type, algorithm, shadow, enforce, lease or max_hold_action, with
 * settings that its algorithm cannot carry over, and if it was gone meanwhile: what it granted
 * before gives nothing back, what is held of it is not counted any more, and requests that wait for
 * it end with -ERANGE, unless it is or was in shadow. (A rate or call without subjects that gets
 * another algorithm is waited for on.) A new limit asks nothing of what is held or waits already.
 * There is room for three limits more than the segment was made with; those that are gone take it
 * as long as something of them is held or waited for. What stays as it is: classes of requests,
 * lifetime and clock; and whether there are subjects. A set with subjects has no more room for them
 * than before, and the state of each, by all limits, has to fit where it is; where each was one
 * word, and needs more, there has to be memory for that.
 *
 * `differs`, unless NULL, is called before the change, if there is any; it returns 0 to go on. Its
 * argument lives as long as the call, which may call it again if another process has changed the
 * set meanwhile. If the process is killed, the set has the old definition or the new one; what was
 * begun is completed by the next call of any process. Each change takes 8 KiB of the segment, more
 * with a text of more than 4 KiB, and the memory of a state, until that is removed; and some
 * hundred bytes of each process that uses it.
 *
 * Any thread. Returns 1 (changed), or with WEIR_REDEFINE_CHECK that it could be; 0 (the set has
 * this definition); -ENOENT (there is no such segment, or the configuration does not define the
 * set); -ECANCELED (`differs` returned another value); -EOPNOTSUPP (something would change that has
 * to stay as it is, or there is no room for its limits); -EEXIST (its plugins are of other versions
 * here); -EBUSY (limits that are gone still take the room that others need; other processes keep
 * changing it, or one was stopped while it did); -ENOSPC (the segment has no room for another
 * definition, of which it has at most 16384, with subjects 2047, or the file system has none);
 * -EINVAL, -ENOEXEC, -EUCLEAN, -ENOMEM, another error of weir_open or weir_segments, or a code of
 * struct weir_segment (it is not usable); then `reterr`, if not NULL, says why.
 * [any thread, changes]
 */
WEIR_PUBLIC int
weir_segment_redefine(const struct weir_options *options, const char *name, uint32_t flags,
                      int (*differs)(void *userdata, const struct weir_redefinition *redefinition),
                      void *userdata, struct weir_error *reterr);

/*
 * Has an engine take the definition that a set has in this instance.
 *
 * It does if its own is an earlier one: of a lower `revision`. A request of any process with that
 * definition does the same; this call grants, holds and counts nothing for itself, and makes no set
 * where there is none. The definition changes in one step, for all that use the set: what is held
 * stays held, waiters keep their places, those that can go on are granted, and those that never can
 * end with -ERANGE.
 *
 * `differs`, unless NULL, is called before the change, as of weir_segment_redefine. Blocks for
 * `timeout_ns` at most for each of the two, and less if the engine is known to be away. A change
 * that was made may be reported as -EHOSTUNREACH, if the answer was lost; to make it again changes
 * nothing more.
 *
 * Any thread. Returns 1 (changed), or with WEIR_REDEFINE_CHECK that it could be; 0 (the engine has
 * this definition); -ENOENT (the engine has no such set, so there is nothing to change); -ECANCELED
 * (`differs` returned another value); -EOPNOTSUPP (the engine has another definition with which the
 * set cannot go on to this one, or one of the same or a higher revision; the set has subjects, each
 * with a definition of its own, which changes by requests; or the functions that the engine has are
 * of an earlier version); -ENOSYS (the backend changes definitions by requests alone);
 * -EHOSTUNREACH (the engine cannot be asked), -EACCES (it refuses the user), -EUCLEAN (the set is
 * damaged there); -EINVAL (`set` is NULL, `flags` has others, or no engine keeps the set), -ENOMEM
 * or -ECHILD; then `reterr`, if not NULL, says why. [any thread, changes]
 */
WEIR_PUBLIC int weir_engine_redefine(weir_set *set, uint32_t flags, uint64_t timeout_ns,
                                     int (*differs)(void *userdata,
                                                    const struct weir_redefinition *redefinition),
                                     void *userdata, struct weir_error *reterr);

/*
 * Lists the living processes that are attached to the segment of a set. These are holders, waiters,
 * and those that only have it open. Writes the ids of at most `n` of them to `ret`, which may be
 * NULL if `n` is 0. Any thread. Returns how many there are in all, -ENOENT (there is no such
 * segment), -EINVAL (there is no name, or no place for the ids), another code of struct
 * weir_segment (it is not usable), or an error of weir_segments; then `reterr`, if not NULL, says
 * why.
 * [any thread, reads]
 */
WEIR_PUBLIC int weir_segment_users(const struct weir_options *options, const char *name,
                                   uint32_t *ret, size_t n, struct weir_error *reterr);

/*
 * Handles a fault in a segment, in the program's own handler of SIGBUS. The kernel sends this
 * signal to a thread that uses memory behind the end of a file: another program of the user may
 * truncate a segment. Where the library handles that, the set is damaged for this process
 * (-EUCLEAN), and the thread goes on; else the process ends.
 *
 * With the first shared set of the process, the library installs a handler. It does this only once,
 * leaves the handler in place, and passes all faults elsewhere to the handler that was there
 * before; that one's mask and SA_* flags stay in force. So this call is for programs that install
 * their own handler later and pass nothing on, or that say WEIR_OPEN_NO_HANDLER. In each thread
 * that uses a shared set SIGBUS must not be blocked: the kernel ends a process for a fault in a
 * thread that blocks it.
 *
 *   static void on_sigbus(int signal, siginfo_t *info, void *context)
 *   {
 *       if (!weir_segment_fault(info))
 *           ... the fault is the program's ...
 *   }
 *
 * `siginfo`: the siginfo_t of a handler with SA_SIGINFO. May be called in a signal handler; keeps
 * errno. Returns
 *   1  the fault was in a segment of this process and is handled: the handler returns
 *   0  it was not
 * [signal handler, changes]
 */
WEIR_PUBLIC int weir_segment_fault(const void *siginfo);

#ifdef __cplusplus
}
#endif
#endif
