/* SPDX-License-Identifier: MIT */
/* The Redis server of a world. */
#include "lib/redis_world.h"
#include "lib/backends.h"
#include "lib/child.h"
#include "lib/clock.h"
#include "lib/require.h"
#include "lib/server_clock.h"
#include "lib/tmpdir.h"
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <sys/mman.h>

#define PATIENCE (60 * SECOND)
#define DAY_US   UINT64_C(86400000000)
#define FIRST_US (11574 * DAY_US)

static struct {
    char directory[TMPDIR_SIZE], section[512];
    struct server_clock *clock;
    redisContext *link;
    char run_id[64];
    pid_t owner;
    uint64_t world_ns, server_us; /* the same instant */
} server;

static void remove_directory(void)
{
    if (server.owner != getpid())
        return; /* a child of the test */
    if (server.link)
        redisFree(server.link);
    tmpdir_remove(server.directory);
}

/* The path of a file in the server's directory. */
static const char *path_of(const char *name)
{
    static char path[TMPDIR_SIZE + 16];

    snprintf(path, sizeof(path), "%s/%s", server.directory, name);
    return path;
}

static bool map_clock(void)
{
    int fd = open(path_of("clock"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0 || ftruncate(fd, sizeof(*server.clock)) < 0)
        return false;
    server.clock = mmap(NULL, sizeof(*server.clock), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (server.clock == MAP_FAILED)
        return false;
    atomic_store(&server.clock->us, FIRST_US);
    return true;
}

/* In the child. */
static _Noreturn void run_server(void)
{
    char socket[TMPDIR_SIZE + 16];
    int null = open("/dev/null", O_RDWR);

    snprintf(socket, sizeof(socket), "%s", path_of("socket"));
    dup2(null, 0);
    dup2(null, 1);
    setenv(SERVER_CLOCK_FILE, path_of("clock"), 1);
    setenv("LD_PRELOAD", getenv("WEIR_TEST_FAKE_TIME"), 1);
    execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", socket, "--dir",
           server.directory, "--save", "", "--daemonize", "no", (char *)NULL);
    _exit(97);
}

static bool connect_to(void)
{
    uint64_t end = clock_now() + PATIENCE;

    while (clock_now() < end) {
        server.link = redisConnectUnix(path_of("socket"));
        if (server.link && !server.link->err)
            return true;
        if (server.link)
            redisFree(server.link);
        server.link = NULL;
        pause_ns(5 * MS);
    }
    return false;
}

/* A command, each word an argument; the reply is to be freed. */
static redisReply *ask(const char *const *words, int n)
{
    redisReply *reply = redisCommandArgv(server.link, n, (const char **)(uintptr_t)words, NULL);

    if (!reply || reply->type == REDIS_REPLY_ERROR)
        fprintf(stderr, "%s: %s\n", words[0], reply ? reply->str : server.link->errstr);
    require(reply && reply->type != REDIS_REPLY_ERROR);
    return reply;
}

#define ASK_SERVER(...)                                                                            \
    ask((const char *const[]){__VA_ARGS__},                                                        \
        sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

static void read_run_id(void)
{
    redisReply *reply = ASK_SERVER("INFO", "server");
    const char *at = strstr(reply->str, "run_id:");

    require(at && sscanf(at, "run_id:%63[0-9a-f]", server.run_id) == 1);
    freeReplyObject(reply);
}

/* Not where the preloaded clock cannot be used: on an emulator, or with a static server. */
static bool goes_by_clock(void)
{
    redisReply *reply = ASK_SERVER("TIME");
    bool ret = reply->type == REDIS_REPLY_ARRAY &&
               strtoull(reply->element[0]->str, NULL, 10) == FIRST_US / 1000000;

    freeReplyObject(reply);
    return ret;
}

static bool is_installed(void)
{
    pid_t pid = child_fork();

    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);

        dup2(null, 1);
        execlp("redis-server", "redis-server", "--version", (char *)NULL);
        _exit(97);
    }
    return pid > 0 && child_exited(child_wait(pid), 0);
}

bool redis_world_begin(void)
{
    pid_t pid;

    if (!getenv("WEIR_TEST_FAKE_TIME") || !is_installed() || !tmpdir_make(server.directory, NULL))
        return false;
    server.owner = getpid();
    require(atexit(remove_directory) == 0);
    require(map_clock());
    pid = child_fork();
    if (pid == 0)
        run_server();
    require(pid > 0 && connect_to());
    if (!goes_by_clock())
        return false;
    read_run_id();
    snprintf(server.section, sizeof(server.section),
             "backends: { redis: { type: redis, url: \"unix://%s\", session: 1d, timeout: 60s } "
             "}\n",
             path_of("socket"));
    return true;
}

const char *redis_world_section(void)
{
    return server.section;
}

/* The server is not young, so that it has no grace for a set that is new. */
void redis_world_open(uint64_t now_ns)
{
    server.server_us = FIRST_US + 3 * DAY_US + now_ns / 1000 % DAY_US;
    server.world_ns = now_ns;
    atomic_store(&server.clock->since_ns, 0);
    atomic_store(&server.clock->us, server.server_us);
    freeReplyObject(ASK_SERVER("FLUSHALL"));
}

void redis_world_open_real(void)
{
    redis_world_open(0);
    atomic_store(&server.clock->since_ns, clock_now());
}

/* As if another node had committed what was there: then no instance goes on by its own clock. The
 * version of the text is the 19th number of the head. */
static const char touch_texts[] =
    "for _, key in ipairs(redis.call('KEYS', 'weir:{*')) do\n"
    "  local head = redis.call('HGET', key, 'H')\n"
    "  if head then\n"
    "    local version = struct.unpack('<d', string.sub(head, 145, 152))\n"
    "    redis.call('HSET', key, 'H', string.sub(head, 1, 144) .. struct.pack('<d', version + 1) "
    ".. string.sub(head, 153))\n"
    "  end\n"
    "end\n"
    "return 1\n";

void redis_world_set_clock(uint64_t now_ns, int64_t wall_ns)
{
    int64_t us = ((int64_t)(now_ns - server.world_ns) + wall_ns) / 1000;
    uint64_t at_us = server.server_us + (uint64_t)us;

    if (atomic_load(&server.clock->since_ns) != 0 || atomic_load(&server.clock->us) == at_us)
        return;
    atomic_store(&server.clock->us, at_us);
    if (backend->is_foreign)
        freeReplyObject(ASK_SERVER("EVAL", touch_texts, "0"));
}

static uint64_t limits_of(const char *definition)
{
    uint64_t slashes = 0;

    for (; *definition; definition++)
        slashes += *definition == '/';
    return slashes - 3;
}

/* A take of nothing: it changes nothing, but grants to those that wait, as every call does. */
static void pump(const char *key)
{
    const char *words[8 + 64] = {"FCALL", "weir_take", "1", key, server.run_id, NULL, ""};
    redisReply *definition = ASK_SERVER("HGET", key, "D");
    int n = 7;

    if (definition->type == REDIS_REPLY_STRING) {
        words[5] = definition->str;
        for (uint64_t i = 0; i < limits_of(definition->str); i++)
            words[n++] = "0";
        freeReplyObject(ask(words, n));
    }
    freeReplyObject(definition);
}

void redis_world_pump(void)
{
    redisReply *keys = ASK_SERVER("KEYS", "weir:{*");

    for (size_t i = 0; i < keys->elements; i++)
        pump(keys->element[i]->str);
    freeReplyObject(keys);
}

/* Tickets are the fields `t<node>.<slot>`: serial, kind (1: waits), fence, instant, amounts. */
static const char count_tickets[] =
    "local waiting, held, versions = 0, 0, 0\n"
    "for _, key in ipairs(redis.call('KEYS', 'weir:{*')) do\n"
    "  local all, head = redis.call('HGETALL', key), redis.call('HGET', key, 'H')\n"
    "  if head then versions = versions + struct.unpack('<d', string.sub(head, 145, 152)) end\n"
    "  for i = 1, #all, 2 do\n"
    "    if string.sub(all[i], 1, 1) == 't' then\n"
    "      local n = {struct.unpack('<' .. string.rep('d', #all[i + 1] / 8), all[i + 1])}\n"
    "      local sum = 0\n"
    "      for j = 5, #n - 1 do sum = sum + n[j] end\n"
    "      if sum > 0 and n[2] == 1 then waiting = waiting + 1 end\n"
    "      if sum > 0 and n[2] == 2 then held = held + 1 end\n"
    "    end\n"
    "  end\n"
    "end\n"
    "return {waiting, held, versions}\n";

struct redis_world_tickets redis_world_tickets(void)
{
    redisReply *reply = ASK_SERVER("EVAL", count_tickets, "0");
    struct redis_world_tickets ret;

    require(reply->type == REDIS_REPLY_ARRAY && reply->elements == 3);
    ret = (struct redis_world_tickets){(uint64_t)reply->element[0]->integer,
                                       (uint64_t)reply->element[1]->integer,
                                       (uint64_t)reply->element[2]->integer};
    freeReplyObject(reply);
    return ret;
}

/* An instance asks for its messages in advance, and again once it has acted on one: all that is
 * asked for stands in the buffer of its link. */
bool redis_world_is_quiet(void)
{
    static const char count[] = "local n = 0\n"
                                "for _, key in ipairs(redis.call('KEYS', 'weir:inbox*')) do n = n "
                                "+ redis.call('LLEN', key) "
                                "end\n"
                                "return n\n";
    static size_t full;
    redisReply *reply = ASK_SERVER("EVAL", count, "0");
    bool ret = reply->integer == 0;

    freeReplyObject(reply);
    reply = ASK_SERVER("CLIENT", "LIST");
    for (const char *line = reply->str; ret && line && *line; line = strchr(line + 1, '\n')) {
        const char *end = strchr(line + 1, '\n'), *at = strstr(line + 1, " qbuf=");
        const char *command = strstr(line + 1, " cmd=blpop");
        size_t asked = at ? strtoull(at + strlen(" qbuf="), NULL, 10) : 0;

        if (!command || (end && command > end))
            continue;
        full = asked > full ? asked : full;
        ret &= asked == full;
    }
    freeReplyObject(reply);
    return ret;
}
