/* SPDX-License-Identifier: MIT */
/*
 * `weir hold`: holds limits of shared sets until the last copy of a descriptor is closed, as
 * `flock 9` does in a shell script:
 *
 *     exec 9>/dev/null
 *     weir hold --fd 9 -s NAME || exit
 *
 * The holder is a process in the background. It has to learn when all processes have
 * closed the descriptor that they inherited. So the descriptor's open file description gets a lock
 * (F_OFD_SETLK) on one byte of the file, far beyond its end, chosen at random. The kernel releases
 * this lock with the last copy of the descriptor, however that comes about. The holder opens the
 * file anew and waits for the same lock; once it has it, the holder ends, and so does the grant.
 *
 *   script         descriptor 9 ─── description with the lock
 *   weir hold      sets the lock, starts the holder, waits for its report, exits
 *   holder         description of its own: waits for the lock, from before it joins the wait queue
 *
 * The end of the holder releases what it holds, but for sets that engines keep: there it gives the
 * grant back before it ends.
 */
#include "engine_grant.h"
#include "grant.h"
#include "holder.h"
#include "usage.h"
#include "weir.h"
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

static const char help_begin[] =
    "Usage:\n"
    "  weir hold --fd N [OPTION]... [-f FILE] -s NAME\n"
    "  weir hold --fd N [OPTION]... --limit LIMIT... --name NAME\n"
    "\n"
    "Waits until the set NAME grants 1 of each of its limits. They are held until all processes\n"
    "have closed descriptor N, which a shell opens before:\n"
    "\n"
    "  exec 9>/dev/null\n"
    "  weir hold --fd 9 -s NAME || exit\n"
    "\n"
    "      --fd N               the descriptor, open for writing: of any file, or of /dev/null\n";
static const char help_end[] =
    "\n"
    "Exit status: 0 granted, 123 refused, 124 timed out, 125 weir itself failed.\n";

/* What the holder and the process that starts it have of the descriptor. */
struct hold {
    int fd;       /* inherited: of the description with the lock */
    int own;      /* another description of the same file */
    int64_t byte; /* offset of the lock */
    int ended;    /* eventfd: readable once the descriptor is closed, of sets that engines keep */
    _Atomic bool of_engine; /* the holder gives back before it ends */
};

static struct flock lock_of(const struct hold *hold)
{
    return (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)hold->byte, .l_len = 1};
}

static int fail_fd(const struct grant *grant, const struct hold *hold, const char *what)
{
    fprintf(stderr, "%s: descriptor %d %s\n", grant->title, hold->fd, what);
    return EXEC_FAILED;
}

/* ---- the lock ---- */

static int check_fd(const struct grant *grant, const struct hold *hold)
{
    int flags = fcntl(hold->fd, F_GETFL);
    struct stat found;

    if (flags < 0 || fstat(hold->fd, &found) < 0)
        return fail_fd(grant, hold, "is not open: open it before, as in `exec 9>/dev/null`");
    if ((flags & O_ACCMODE) == O_RDONLY || (flags & O_PATH) != 0)
        return fail_fd(grant, hold, "is not open for writing");
    if (!S_ISREG(found.st_mode) && !S_ISCHR(found.st_mode))
        return fail_fd(grant, hold, "is neither a file nor a device like /dev/null");
    return 0;
}

/* Opens the descriptor's file anew. */
static int open_again(const struct hold *hold)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", hold->fd);
    return open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
}

/* Sets the lock, and checks that the other description cannot have it meanwhile. */
static int set_lock(const struct grant *grant, struct hold *hold)
{
    uint64_t random = 0;
    struct flock lock;

    if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return grant_fail(grant, -errno);
    hold->byte = (int64_t)(random >> 2) | INT64_C(1) << 60; /* beyond what files have */
    lock = lock_of(hold);
    if (fcntl(hold->fd, F_OFD_SETLK, &lock) < 0)
        return fail_fd(grant, hold, "cannot be locked");
    hold->own = open_again(hold);
    if (hold->own < 0)
        return fail_fd(grant, hold, "cannot be opened again: its file may have become read-only");
    lock = lock_of(hold);
    if (fcntl(hold->own, F_OFD_SETLK, &lock) == 0 || (errno != EAGAIN && errno != EACCES))
        return fail_fd(grant, hold, "is of a file system without locks");
    return 0;
}

/* Returns whether the descriptor is a copy of a standard stream: a lock conflicts with all
 * descriptions of its file but the one that has it. */
static bool is_copy(const struct hold *hold, int stream)
{
    struct flock lock = lock_of(hold);
    struct stat file, other;

    return fstat(hold->fd, &file) == 0 && fstat(stream, &other) == 0 &&
           file.st_dev == other.st_dev && file.st_ino == other.st_ino &&
           fcntl(stream, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

/* Refuses a copy of a standard stream, which has other copies in the script and in its parents: the
 * grant would outlast the script. Needs the lock, and gives it up if it refuses. */
static int refuse_copy(const struct grant *grant, const struct hold *hold)
{
    struct flock none = lock_of(hold);

    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++) {
        if (!is_copy(hold, stream))
            continue;
        none.l_type = F_UNLCK;
        fcntl(hold->fd, F_OFD_SETLK, &none);
        fprintf(stderr,
                "%s: descriptor %d is a copy of descriptor %d, which other processes have as well: "
                "open a file or /dev/null\n",
                grant->title, hold->fd, stream);
        return EXEC_FAILED;
    }
    return 0;
}

/* ---- the holder ---- */

#define WATCH_PAUSE_NS  10000000
#define WATCH_TRIES_MAX 1000 /* ten seconds */

/* Waits for the lock. Returns 0, or an errno if it cannot be waited for. Memory may be lacking for
 * a moment. */
static int wait_for_lock(const struct hold *hold)
{
    const struct timespec pause = {.tv_nsec = WATCH_PAUSE_NS};
    struct flock lock = lock_of(hold);
    int tries = 0;

    while (fcntl(hold->own, F_OFD_SETLKW, &lock) < 0) {
        bool is_lacking = (errno == ENOLCK || errno == ENOMEM) && ++tries < WATCH_TRIES_MAX;

        if (errno != EINTR && errno != EAGAIN && !is_lacking)
            return errno;
        nanosleep(&pause, NULL);
    }
    return 0;
}

/* Ends the process, and the grant with it, as soon as the descriptor is closed everywhere. Without
 * that news the grant would stay for ever, so it ends, too, if the lock cannot be waited for. The
 * system log has the reason as well, because a holder has left the script's standard error. */
static void *watch_descriptor(void *argument)
{
    struct hold *hold = argument;
    int error = wait_for_lock(hold);

    if (error != 0) {
        fprintf(stderr, "weir hold: descriptor %d cannot be watched: %s\n", hold->fd,
                strerror(error));
        syslog(LOG_USER | LOG_ERR, "weir hold: descriptor %d cannot be watched: %s", hold->fd,
               strerror(error));
    }
    if (!atomic_load(&hold->of_engine))
        _exit(EXEC_FAILED);
    eventfd_write(hold->ended, 1);
    return NULL;
}

/* Starts the watch. Signals are for the thread that waits for the grant. */
static int start_watch(struct hold *hold)
{
    sigset_t all, before;
    pthread_t thread;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, NULL, watch_descriptor, hold);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -error;
}

/* From here on the end of the descriptor, of the process that waits for the report, and signals end
 * the wait in order: only the holder can tell an engine. Returns 0 or a negative errno. */
static int prepare_for_engine(struct grant *grant, struct hold *hold, const struct holder *holder)
{
    hold->ended = eventfd(0, EFD_CLOEXEC);
    if (hold->ended < 0)
        return -errno;
    grant->ends.process = holder->starter;
    grant->ends.event = hold->ended;
    atomic_store(&hold->of_engine, true);
    prctl(PR_SET_PDEATHSIG, 0);
    return engine_grant_begin(grant);
}

/* Opens the set and waits. Returns a result of waiting. */
static int acquire(struct grant *grant, struct hold *hold, const struct holder *holder)
{
    int result = grant_open(grant), r;

    if (result == 0 && grant->of_engine && (r = prepare_for_engine(grant, hold, holder)) < 0)
        result = grant_fail(grant, r);
    return result == 0 ? grant_request(grant) : result;
}

/* Acquires; once granted, prepares to stay. Returns a result of waiting. */
static int become_holder(struct grant *grant, struct hold *hold, const struct holder *holder)
{
    int kept[] = {hold->own, holder->report[1], holder->starter};
    int r = holder_close_others(kept, sizeof(kept) / sizeof(kept[0])), result;

    if (r == 0)
        r = start_watch(hold);
    if (r < 0)
        return grant_fail(grant, r);
    result = acquire(grant, hold, holder);
    fflush(stdout);
    if (result != 0)
        return result;
    if (!grant->of_engine)
        grant_detach(grant);
    r = holder_leave(STDIN_FILENO, STDERR_FILENO);
    if (r < 0) {
        grant_return(grant);
        return grant_fail(grant, r);
    }
    prctl(PR_SET_PDEATHSIG, 0);
    return 0;
}

/* Holds what an engine has granted. */
__attribute__((noreturn)) static void hold_of_engine(struct grant *grant)
{
    grant->ends.process = -1; /* it has the report */
    if (engine_grant_hold(grant) == -EOWNERDEAD)
        syslog(LOG_USER | LOG_ERR, "weir hold: `%s`: the session has ended: nothing is held",
               grant->name);
    engine_grant_end(grant, EXEC_FAILED);
}

/* Runs the holder. While it waits it ends with the process that started it, as that one's exit
 * status would be lost. */
__attribute__((noreturn)) static void run_holder(struct grant *grant, struct hold *hold,
                                                 struct holder *holder, pid_t parent)
{
    int result;

    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXEC_FAILED);
    result = become_holder(grant, hold, holder);
    if (result != GRANT_ENDED)
        result = holder_report(holder, result);
    if (result == 0 && grant->of_engine)
        hold_of_engine(grant);
    while (result == 0)
        pause();
    if (grant->of_engine)
        engine_grant_end(grant, EXEC_FAILED);
    grant_free(grant);
    _exit(EXEC_FAILED);
}

/* ---- the process that the script waits for ---- */

/* Starts the holder. The copy of the descriptor here is closed, as nothing else may keep the lock
 * but the script. */
static int start_holder(struct grant *grant, struct hold *hold)
{
    pid_t parent = getpid(), pid;
    struct holder holder;
    int r = holder_begin(&holder), result;

    if (r < 0)
        return grant_fail(grant, r);
    fflush(stdout);
    pid = fork();
    if (pid < 0)
        return grant_fail(grant, -errno);
    if (pid == 0)
        run_holder(grant, hold, &holder, parent);
    close(hold->fd);
    result = holder_read_report(&holder, pid);
    if (result >= 0)
        return result;
    fprintf(stderr,
            "%s: the process that holds has ended: descriptor %d was closed, or it was killed\n",
            grant->title, hold->fd);
    return EXEC_FAILED;
}

/* ---- command line ---- */

static int read_fd(const struct grant *grant, const char *argument, struct hold *hold)
{
    size_t digits = strspn(argument, "0123456789");
    long fd = digits > 0 && digits < 10 && argument[digits] == '\0' ? atol(argument) : -1;

    if (fd < 3 || fd > INT_MAX)
        return grant_fail_usage(grant, "a descriptor is a number from 3, not ", argument);
    hold->fd = (int)fd;
    return 0;
}

static int show_help(void)
{
    usage_help(help_begin);
    usage_help(grant_help);
    return usage_help(help_end);
}

enum { OPTION_FD = 300 };

/* Returns 0, or the exit code and `*ret_ends`. */
static int read_options(struct grant *grant, struct hold *hold, int argc, char **argv,
                        bool *ret_ends)
{
    static const struct option options[] = {
        GRANT_OPTIONS,
        {"fd", required_argument, NULL, OPTION_FD},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int option, result;

    *ret_ends = true;
    while ((option = getopt_long(argc, argv, "h" GRANT_LETTERS, options, NULL)) != -1) {
        if (option == 'h')
            return show_help();
        result = option == OPTION_FD ? read_fd(grant, optarg, hold)
                                     : grant_option(grant, option, optarg);
        if (result != 0)
            return result;
    }
    result = grant_check_options(grant);
    if (result != 0)
        return result;
    if (hold->fd < 0)
        return grant_fail_usage(grant, "no descriptor is given: name it with --fd", "");
    if (optind < argc)
        return grant_fail_usage(grant, "takes no command, not ", argv[optind]);
    *ret_ends = false;
    return 0;
}

static int run(struct grant *grant, int argc, char **argv)
{
    struct hold hold = {.fd = -1, .own = -1, .ended = -1};
    bool ends;
    int result = read_options(grant, &hold, argc, argv, &ends);

    if (ends)
        return result;
    result = check_fd(grant, &hold);
    if (result == 0)
        result = set_lock(grant, &hold);
    if (result == 0)
        result = refuse_copy(grant, &hold);
    return result == 0 ? start_holder(grant, &hold) : result;
}

int run_hold(int argc, char **argv)
{
    struct grant grant = GRANT_NONE(argv[0]);
    int ending = grant_exit_code(&grant, run(&grant, argc, argv));

    grant_free(&grant);
    return ending;
}
