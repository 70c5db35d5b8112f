/* SPDX-License-Identifier: MIT */
/* The server and the bare connections of the benchmark `redis`. */
#include "redis_raw.h"

#include "lib/child.h"
#include "lib/clock.h"
#include "lib/require.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_MAX (60 * SECOND)

static _Noreturn void server_run(const struct raw_server *server)
{
    int null = open("/dev/null", O_RDWR);

    require(null >= 0 && dup2(null, 0) == 0 && dup2(null, 1) == 1 && dup2(null, 2) == 2);
    execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", server->socket, "--dir",
           server->directory, "--save", "", "--daemonize", "no", (char *)NULL);
    _exit(127);
}

static int try_connect(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    require(fd >= 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    close(fd);
    return -1;
}

bool raw_server_start(struct raw_server *server)
{
    uint64_t until = clock_now() + START_MAX;
    int fd, status;

    snprintf(server->directory, sizeof(server->directory), "/tmp/weir-bench-XXXXXX");
    require(mkdtemp(server->directory));
    snprintf(server->socket, sizeof(server->socket), "%s/socket", server->directory);
    server->pid = child_fork();
    require(server->pid >= 0);
    if (server->pid == 0)
        server_run(server);
    while ((fd = try_connect(server->socket)) < 0) {
        if (waitpid(server->pid, &status, WNOHANG) == server->pid) {
            require(rmdir(server->directory) == 0);
            return false;
        }
        require(clock_now() < until);
        pause_ns(10 * MS);
    }
    close(fd);
    return true;
}

void raw_server_stop(struct raw_server *server)
{
    require(kill(server->pid, SIGKILL) == 0);
    require(waitpid(server->pid, NULL, 0) == server->pid);
    require(unlink(server->socket) == 0);
    require(rmdir(server->directory) == 0);
}

struct raw *raw_open(const char *socket)
{
    struct raw *raw = calloc(1, sizeof(*raw));

    require(raw);
    raw->fd = try_connect(socket);
    require(raw->fd >= 0);
    return raw;
}

void raw_close(struct raw *raw)
{
    close(raw->fd);
    free(raw);
}

void raw_add(struct raw *raw, const char *const *words)
{
    size_t n = 0, room = RAW_OUT;

    while (words[n])
        n++;
    raw->out_n += (size_t)snprintf(raw->out + raw->out_n, room - raw->out_n, "*%zu\r\n", n);
    for (size_t i = 0; i < n; i++) {
        require(raw->out_n < room);
        raw->out_n += (size_t)snprintf(raw->out + raw->out_n, room - raw->out_n, "$%zu\r\n%s\r\n",
                                       strlen(words[i]), words[i]);
    }
    require(raw->out_n < room);
    raw->calls_n++;
}

/* Returns the end of a reply that begins at `at`, or NULL if it is not whole yet. */
static const char *reply_end(const char *at)
{
    const char *line = strstr(at, "\r\n");
    long n;

    if (!line)
        return NULL;
    line += 2;
    require(*at != '-');
    if (*at != '$' && *at != '*')
        return line;
    n = strtol(at + 1, NULL, 10);
    if (*at == '$')
        return n < 0 ? line : strlen(line) >= (size_t)n + 2 ? line + n + 2 : NULL;
    for (; n > 0 && line; n--)
        line = reply_end(line);
    return line;
}

const char *raw_send(struct raw *raw)
{
    const char *at = raw->in;
    size_t n = 0, calls = 0;

    require(write(raw->fd, raw->out, raw->out_n) == (ssize_t)raw->out_n);
    while (calls < raw->calls_n) {
        ssize_t r = read(raw->fd, raw->in + n, RAW_IN - 1 - n);

        require(r > 0);
        n += (size_t)r;
        raw->in[n] = '\0';
        for (const char *end; calls < raw->calls_n && (end = reply_end(at)); calls++)
            at = end;
    }
    raw->out_n = raw->calls_n = 0;
    return raw->in;
}
