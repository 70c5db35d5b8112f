/* SPDX-License-Identifier: MIT */
/* Calls of the plugin that fail. */
#include "failing_calls.h"

#include "lib/require.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

#define PLACES_MAX 1024
#define SHORT      (-1) /* comes out, but with the first byte only */
#define END        (-2) /* the other side has closed it */

struct place {
    const char *function;
    const void *at; /* the caller */
    int code;       /* errno; SHORT, END */
    char name[96];
};

static struct {
    pthread_mutex_t lock;
    struct place places[PLACES_MAX];
    size_t places_n, chosen;
    unsigned after; /* meetings of the chosen one */
    bool has_failed;
} calls = {.lock = PTHREAD_MUTEX_INITIALIZER, .chosen = SIZE_MAX};

static _Atomic int64_t live;
static _Thread_local bool takes_part;

void failing_calls_begin(void)
{
    takes_part = true;
}

void failing_calls_end(void)
{
    takes_part = false;
}

void failing_calls_choose(size_t place, unsigned after)
{
    pthread_mutex_lock(&calls.lock);
    calls.chosen = place;
    calls.after = after;
    calls.has_failed = false;
    pthread_mutex_unlock(&calls.lock);
}

int failing_calls_has_failed(void)
{
    pthread_mutex_lock(&calls.lock);
    int ret = calls.has_failed;
    pthread_mutex_unlock(&calls.lock);
    return ret;
}

size_t failing_places(void)
{
    pthread_mutex_lock(&calls.lock);
    size_t ret = calls.places_n;
    pthread_mutex_unlock(&calls.lock);
    return ret;
}

const char *failing_place_name(size_t place)
{
    return calls.places[place].name;
}

int64_t failing_calls_live(void)
{
    return atomic_load(&live);
}

/* As addr2line wants it. */
static size_t offset_of(const void *at)
{
    Dl_info info;
    return dladdr(at, &info) ? (size_t)((const char *)at - (const char *)info.dli_fbase) : 0;
}

/* Notes a place. Returns whether it is to fail now. The lock is held. */
static bool note_place(const char *function, const void *at, int code)
{
    size_t i = 0;
    while (i < calls.places_n && (calls.places[i].function != function ||
                                  calls.places[i].at != at || calls.places[i].code != code))
        i++;
    if (i == calls.places_n) {
        require(i < PLACES_MAX);
        struct place *place = &calls.places[calls.places_n++];
        *place = (struct place){.function = function, .at = at, .code = code};
        snprintf(place->name, sizeof(place->name), "%s at 0x%zx: %s", function + strlen("__wrap_"),
                 offset_of(at),
                 code == SHORT ? "one byte"
                 : code == END ? "the end"
                               : strerror(code));
    }
    if (i != calls.chosen || calls.has_failed || calls.after-- > 0)
        return false;
    calls.has_failed = true;
    return true;
}

/* Returns how this call comes out: 0 as usual, or one of the codes, which end with 0. */
static int fate(const char *function, const void *at, const int *codes)
{
    int ret = 0;
    if (!takes_part)
        return 0;
    pthread_mutex_lock(&calls.lock);
    for (; *codes; codes++)
        if (note_place(function, at, *codes))
            ret = *codes;
    pthread_mutex_unlock(&calls.lock);
    return ret;
}

#define FATE(...) fate(__func__, __builtin_return_address(0), (const int[]){__VA_ARGS__, 0})

/* Counts what a call has brought, if any. */
static void count(bool has_come)
{
    if (has_come)
        atomic_fetch_add(&live, 1);
}

/* A call that fails with this code, if there is one. */
#define FAIL(code, result)                                                                         \
    do {                                                                                           \
        int code_ = (code);                                                                        \
        if (code_) {                                                                               \
            errno = code_;                                                                         \
            return result;                                                                         \
        }                                                                                          \
    } while (0)

/* The real call, and the one in its place. */
#define WRAPPED(type, name, ...)                                                                   \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

int __wrap_work(void)
{
    return -FATE(EAGAIN, ENOMEM);
}

/* ---- memory ---- */

WRAPPED(void *, malloc, size_t size)
{
    FAIL(FATE(ENOMEM), NULL);
    void *ret = __real_malloc(size);
    count(ret);
    return ret;
}

WRAPPED(void *, calloc, size_t n, size_t size)
{
    FAIL(FATE(ENOMEM), NULL);
    void *ret = __real_calloc(n, size);
    count(ret);
    return ret;
}

WRAPPED(void *, realloc, void *block, size_t size)
{
    FAIL(FATE(ENOMEM), NULL);
    void *ret = __real_realloc(block, size);
    count(!block && ret);
    return ret;
}

WRAPPED(char *, strdup, const char *text)
{
    FAIL(FATE(ENOMEM), NULL);
    char *ret = __real_strdup(text);
    count(ret);
    return ret;
}

WRAPPED(void, free, void *block)
{
    atomic_fetch_sub(&live, block != NULL);
    __real_free(block);
}

WRAPPED(int, pthread_mutex_init, pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
    int code = FATE(ENOMEM);
    return code ? code : __real_pthread_mutex_init(mutex, attributes);
}

WRAPPED(int, pthread_cond_init, pthread_cond_t *condition, const pthread_condattr_t *attributes)
{
    int code = FATE(EAGAIN);
    return code ? code : __real_pthread_cond_init(condition, attributes);
}

WRAPPED(int, pthread_condattr_init, pthread_condattr_t *attributes)
{
    int code = FATE(ENOMEM);
    return code ? code : __real_pthread_condattr_init(attributes);
}

WRAPPED(redisReader *, redisReaderCreateWithFunctions, redisReplyObjectFunctions *functions)
{
    FAIL(FATE(ENOMEM), NULL);
    redisReader *ret = __real_redisReaderCreateWithFunctions(functions);
    count(ret);
    return ret;
}

WRAPPED(void, redisReaderFree, redisReader *reader)
{
    atomic_fetch_sub(&live, reader != NULL);
    __real_redisReaderFree(reader);
}

WRAPPED(int, redisReaderFeed, redisReader *reader, const char *bytes, size_t n)
{
    return FATE(ENOMEM) ? REDIS_ERR : __real_redisReaderFeed(reader, bytes, n);
}

WRAPPED(int, redisReaderGetReply, redisReader *reader, void **ret)
{
    return FATE(ENOMEM) ? REDIS_ERR : __real_redisReaderGetReply(reader, ret);
}

/* ---- descriptors ---- */

WRAPPED(int, socket, int domain, int type, int protocol)
{
    FAIL(FATE(EMFILE, ENOBUFS), -1);
    int ret = __real_socket(domain, type, protocol);
    count(ret >= 0);
    return ret;
}

WRAPPED(int, epoll_create1, int flags)
{
    FAIL(FATE(EMFILE), -1);
    int ret = __real_epoll_create1(flags);
    count(ret >= 0);
    return ret;
}

WRAPPED(int, eventfd, unsigned value, int flags)
{
    FAIL(FATE(EMFILE), -1);
    int ret = __real_eventfd(value, flags);
    count(ret >= 0);
    return ret;
}

WRAPPED(int, timerfd_create, int clock, int flags)
{
    FAIL(FATE(EMFILE), -1);
    int ret = __real_timerfd_create(clock, flags);
    count(ret >= 0);
    return ret;
}

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...)
{
    FAIL(FATE(EMFILE), -1);
    int ret = __real_open64(path, flags);
    count(ret >= 0);
    return ret;
}

WRAPPED(int, close, int fd)
{
    atomic_fetch_sub(&live, 1);
    return __real_close(fd);
}

/* What the kernel refuses is to watch one more; it changes and forgets what it watches. */
WRAPPED(int, epoll_ctl, int epoll, int operation, int fd, struct epoll_event *event)
{
    if (operation == EPOLL_CTL_ADD)
        FAIL(FATE(ENOMEM), -1);
    return __real_epoll_ctl(epoll, operation, fd, event);
}

WRAPPED(int, epoll_wait, int epoll, struct epoll_event *events, int n, int timeout)
{
    FAIL(FATE(EINTR), -1);
    return __real_epoll_wait(epoll, events, n, timeout);
}

WRAPPED(int, poll, struct pollfd *fds, nfds_t n, int timeout)
{
    FAIL(FATE(EINTR), -1);
    return __real_poll(fds, n, timeout);
}

WRAPPED(int, ppoll, struct pollfd *fds, nfds_t n, const struct timespec *timeout,
        const sigset_t *signals)
{
    FAIL(FATE(EINTR, ENOMEM), -1);
    return __real_ppoll(fds, n, timeout, signals);
}

WRAPPED(ssize_t, read, int fd, void *bytes, size_t n)
{
    FAIL(FATE(EINTR, EIO), -1);
    return __real_read(fd, bytes, n);
}

WRAPPED(ssize_t, write, int fd, const void *bytes, size_t n)
{
    FAIL(FATE(EINTR), -1);
    return __real_write(fd, bytes, n);
}

/* ---- the network ---- */

WRAPPED(int, getaddrinfo, const char *host, const char *port, const struct addrinfo *hints,
        struct addrinfo **ret)
{
    if (FATE(EAGAIN))
        return EAI_AGAIN;
    if (FATE(ENOMEM))
        return EAI_MEMORY;
    int r = __real_getaddrinfo(host, port, hints, ret);
    count(r == 0);
    return r;
}

WRAPPED(void, freeaddrinfo, struct addrinfo *list)
{
    atomic_fetch_sub(&live, 1);
    __real_freeaddrinfo(list);
}

WRAPPED(int, setsockopt, int fd, int level, int name, const void *value, socklen_t size)
{
    FAIL(FATE(ENOBUFS), -1);
    return __real_setsockopt(fd, level, name, value, size);
}

WRAPPED(int, getsockopt, int fd, int level, int name, void *value, socklen_t *size)
{
    FAIL(FATE(ENOBUFS), -1);
    return __real_getsockopt(fd, level, name, value, size);
}

WRAPPED(int, connect, int fd, const struct sockaddr *address, socklen_t size)
{
    FAIL(FATE(ECONNREFUSED, ENETUNREACH, EAGAIN), -1);
    return __real_connect(fd, address, size);
}

WRAPPED(ssize_t, send, int fd, const void *bytes, size_t n, int flags)
{
    int code = FATE(EINTR, EAGAIN, ECONNRESET, EPIPE, SHORT);
    if (code == SHORT)
        return __real_send(fd, bytes, n > 0, flags);
    FAIL(code, -1);
    return __real_send(fd, bytes, n, flags);
}

WRAPPED(ssize_t, recv, int fd, void *bytes, size_t n, int flags)
{
    int code = FATE(EINTR, EAGAIN, ECONNRESET, END, SHORT);
    if (code == SHORT)
        return __real_recv(fd, bytes, n > 0, flags);
    if (code == END)
        return 0;
    FAIL(code, -1);
    return __real_recv(fd, bytes, n, flags);
}

WRAPPED(ssize_t, getrandom, void *bytes, size_t n, unsigned flags)
{
    FAIL(FATE(EINTR, ENOSYS), -1);
    return __real_getrandom(bytes, n, flags);
}

/* ---- TLS: what it sends and receives goes through send() and recv() ---- */

#ifdef WEIR_TESTS_TLS
#include <openssl/ssl.h>

WRAPPED(SSL_CTX *, SSL_CTX_new, const SSL_METHOD *method)
{
    FAIL(FATE(ENOMEM), NULL);
    return __real_SSL_CTX_new(method);
}

WRAPPED(SSL *, SSL_new, SSL_CTX *context)
{
    FAIL(FATE(ENOMEM), NULL);
    return __real_SSL_new(context);
}

WRAPPED(BIO_METHOD *, BIO_meth_new, int type, const char *name)
{
    FAIL(FATE(ENOMEM), NULL);
    return __real_BIO_meth_new(type, name);
}

WRAPPED(BIO *, BIO_new, const BIO_METHOD *method)
{
    FAIL(FATE(ENOMEM), NULL);
    return __real_BIO_new(method);
}
#endif
