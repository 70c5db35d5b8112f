/* SPDX-License-Identifier: MIT */
/* Asks all processes that publish sets at once, and waits for their answers. */
#include "published.h"
#include "published_set.h"
#include "shm/segment_dir.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <weir/segment.h>

#define ANSWER_MAX  ((size_t)32 << 20) /* bytes of one process */
#define ANSWERS_MAX ((size_t)64 << 20) /* and of all */
#define SETS_MAX    ((size_t)16384)
#define HOLDERS_MAX ((size_t)65536)
/* For all answers together. A process gives another client before this one a second, rests for
 * another one, and takes its time. */
#define PATIENCE_NS UINT64_C(2500000000)

struct publishers {
    struct published_answer *items;
    size_t n;
    size_t bytes; /* of all answers */
    struct published_budget budget;
    void (*refuse)(void *userdata, const struct weir_error *error);
    void *userdata;
    int code; /* reason for stopping, or 0 */
};

static uint64_t published_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void refuse_process(const struct publishers *publishers, uint32_t process, int code)
{
    struct weir_error error = {.code = code};
    const char *why =
        code == -ETIMEDOUT         ? "it does not answer, as if it were stopped"
        : code == -EPROTONOSUPPORT ? "its library is of a release that this one does not understand"
        : code == -EFBIG           ? "it says too much, or all together do"
        : code == -ECONNRESET ? "its answer ends before it is whole: it has ended, or there is "
                                "too much to tell in a second"
        : code == -EBADMSG    ? "what it says is not whole, or not in order"
        : code == -EXDEV      ? "it is in another pid namespace"
                              : strerror(-code);

    snprintf(error.message, sizeof(error.message),
             "the sets that process %" PRIu32 " publishes: %s", process, why);
    publishers->refuse(publishers->userdata, &error);
}

/* Connects to a socket, and asks the kernel for the process at its other end. Returns a descriptor,
 * or a negative errno. */
static int connect_to(int directory, const char *name, struct ucred *ret)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t size = sizeof(*ret);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), r = 0;

    if (fd < 0)
        return -errno;
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%.64s", directory, name);
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret, &size) < 0)
        r = -errno;
    else if (ret->uid != geteuid() && ret->uid != 0)
        r = -EPERM;
    else if (ret->pid == 0)
        r = -EXDEV;
    /* A child of the process that made it still has it, and nothing will ever answer. */
    if (r == 0 && kill(ret->pid, 0) < 0 && errno == ESRCH)
        r = -ECONNREFUSED;
    if (r == 0)
        return fd;
    close(fd);
    return r == -EAGAIN ? -ETIMEDOUT : r; /* too many clients wait already */
}

/* Returns the number of an instance, or another one if an instance of the process has it: two
 * copies of the library count on their own. */
static uint32_t free_number(const struct publishers *publishers, uint32_t process, uint32_t number)
{
    uint32_t last = 0;
    bool is_taken = false;

    for (size_t i = 0; i < publishers->n; i++) {
        const struct published_answer *other = &publishers->items[i];

        if (other->process == process && other->number > last)
            last = other->number;
        is_taken = is_taken || (other->process == process && other->number == number);
    }
    return is_taken ? last + 1 : number;
}

/* Asks the process of a socket. What is left of one that has ended is removed. */
static int ask(struct publishers *publishers, int directory, const char *name, uint32_t process,
               uint32_t number)
{
    struct published_answer *grown;
    struct ucred peer;
    int fd = connect_to(directory, name, &peer);

    if (fd == -ECONNREFUSED)
        unlinkat(directory, name, 0);
    else if (fd < 0 && fd != -ENOENT)
        refuse_process(publishers, process, fd);
    if (fd < 0)
        return 0;
    grown = realloc(publishers->items, (publishers->n + 1) * sizeof(*grown));
    if (!grown) {
        close(fd);
        return -ENOMEM;
    }
    publishers->items = grown;
    number = free_number(publishers, (uint32_t)peer.pid, number);
    grown[publishers->n++] = (struct published_answer){
        .fd = fd, .process = (uint32_t)peer.pid, .number = number, .budget = &publishers->budget};
    return 0;
}

/* Asks all processes that have sockets in the directory, which it closes. */
static int ask_all(struct publishers *publishers, int directory)
{
    int copy = fcntl(directory, F_DUPFD_CLOEXEC, 0), r = copy < 0 ? -errno : 0;
    DIR *list = copy >= 0 ? fdopendir(copy) : NULL;
    const struct dirent *entry;

    if (!list && copy >= 0) {
        r = -errno;
        close(copy);
    }
    while (r == 0 && (entry = readdir(list))) {
        uint32_t process, number;
        int end = 0;

        if (sscanf(entry->d_name, "%9" SCNu32 ".%9" SCNu32 ".%*16[0-9a-f]" PUBLISH_SUFFIX "%n",
                   &process, &number, &end) == 2 &&
            end != 0 && entry->d_name[end] == '\0')
            r = ask(publishers, directory, entry->d_name, process, number);
    }
    if (list)
        closedir(list);
    close(directory);
    return r;
}

static void end_answer(struct published_answer *answer)
{
    close(answer->fd);
    answer->fd = -1;
}

/* Makes room for more of an answer. Returns 0, -ENOMEM, or -EFBIG: it has more than it may. */
static int grow_answer(struct publishers *publishers, struct published_answer *answer)
{
    size_t room = answer->room != 0 ? 2 * answer->room : 16384;
    unsigned char *bytes;

    if (room > ANSWER_MAX || publishers->bytes + room - answer->room > ANSWERS_MAX)
        return -EFBIG;
    bytes = realloc(answer->bytes, room);
    if (!bytes)
        return -ENOMEM;
    publishers->bytes += room - answer->room;
    answer->bytes = bytes;
    answer->room = room;
    return 0;
}

/* Reads what has come of an answer. */
static void read_answer(struct publishers *publishers, struct published_answer *answer)
{
    int r = answer->n == answer->room ? grow_answer(publishers, answer) : 0;
    ssize_t n = 0;

    if (r == 0) {
        n = read(answer->fd, answer->bytes + answer->n, answer->room - answer->n);
        r = n < 0 && errno != EAGAIN && errno != EINTR ? -errno : 0;
    }
    if (n > 0) {
        answer->n += (size_t)n;
        r = published_answer_scan(answer);
    }
    answer->code = r;
    if (r != 0) { /* others may have its room */
        publishers->bytes -= answer->room;
        free(answer->bytes);
        answer->bytes = NULL;
        answer->n = answer->room = 0;
    }
    if (r != 0 || n == 0 || answer->is_whole)
        end_answer(answer);
    if (r == -ENOMEM)
        publishers->code = r;
}

/* Polls those that have not ended. Returns how many these are, or a negative errno. */
static int poll_answers(struct publishers *publishers, struct pollfd *fds, uint64_t until_ns)
{
    uint64_t now_ns = published_now_ns();
    int open_n = 0;

    for (size_t i = 0; i < publishers->n; i++) {
        fds[i] = (struct pollfd){.fd = publishers->items[i].fd, .events = POLLIN};
        open_n += fds[i].fd >= 0;
    }
    if (open_n == 0 || now_ns >= until_ns)
        return 0;
    if (poll(fds, publishers->n, (int)((until_ns - now_ns) / 1000000 + 1)) < 0 && errno != EINTR)
        return -errno;
    for (size_t i = 0; i < publishers->n && publishers->code == 0; i++)
        if (fds[i].fd >= 0 && fds[i].revents != 0)
            read_answer(publishers, &publishers->items[i]);
    return publishers->code != 0 ? publishers->code : open_n;
}

static int await_answers(struct publishers *publishers)
{
    struct pollfd *fds = calloc(publishers->n + 1, sizeof(*fds));
    uint64_t until_ns = published_now_ns() + PATIENCE_NS;
    int r = fds ? 1 : -ENOMEM;

    while (r > 0)
        r = poll_answers(publishers, fds, until_ns);
    free(fds);
    return r;
}

/* Says why an answer is not one, or 0. */
static int check_answer(const struct published_answer *answer)
{
    if (answer->code != 0)
        return answer->code;
    if (answer->is_whole)
        return 0;
    return answer->fd >= 0 ? -ETIMEDOUT : -ECONNRESET;
}

int published_each(const struct source *source,
                   int (*found)(void *userdata, struct snapshot_set *set),
                   void (*refuse)(void *userdata, const struct weir_error *error), void *userdata,
                   struct weir_error *reterr)
{
    struct weir_options options = source_options(source);
    struct publishers publishers = {
        .refuse = refuse, .userdata = userdata, .budget = {SETS_MAX, HOLDERS_MAX}};
    int directory, r = weir_segment_dir(&options, &directory, reterr);

    if (r == -ENOENT) /* no process has made it yet */
        return 0;
    if (r == 0)
        r = ask_all(&publishers, directory);
    if (r == 0)
        r = await_answers(&publishers);
    for (size_t i = 0; i < publishers.n; i++) {
        struct published_answer *answer = &publishers.items[i];
        int code = r < 0 ? 0 : check_answer(answer);

        if (r == 0 && code == 0)
            r = published_answer_read(answer, found, userdata);
        if (r == -EBADMSG || r == -EFBIG) {
            code = r;
            r = 0;
        }
        if (code != 0)
            refuse_process(&publishers, answer->process, code);
        if (answer->fd >= 0)
            close(answer->fd);
        free(answer->bytes);
    }
    free(publishers.items);
    return r;
}
