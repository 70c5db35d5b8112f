/* SPDX-License-Identifier: MIT */
/*
 * Sets on a Redis server.
 *
 *     backends: { main: { type: redis, url: "redis://weir@cache.example:6379/0",
 *                         password_file: /etc/weir/redis-password } }
 *
 *     backends: { main: { type: redis, url: "redis://sentinel-1,sentinel-2", sentinel: mymaster } }
 *     backends: { main: { type: redis, url: "redis://node-1:7000,node-2:7000" } }      # a cluster
 *
 * The server decides: by a library of functions, in Lua, which this plugin loads into it.
 * PROTOCOL.md has the calls; redis_connection.h says what this side consists of, and its threads.
 */
#include "redis_apply.h"
#include "redis_batches.h"
#include "redis_calls.h"
#include "redis_run.h"
#include "redis_server.h"
#include "redis_set.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MS            UINT64_C(1000000)
#define DAY           (86400 * 1000 * MS)
#define SESSION       (5000 * MS)
#define SESSION_MIN   (20 * MS)
#define TIMEOUT       (1000 * MS)
#define PREFIX        "weir:"
#define PASSWORD_MAX  1024
#define USER_MAX      127
#define SERVER_PORT   6379
#define SENTINEL_PORT 26379

enum {
    URL,
    PASSWORD_FILE,
    PASSWORD_ENV,
    SESSION_LENGTH,
    TIMEOUT_LENGTH,
    KEY_PREFIX,
    DRAINS,
    CA_FILE,
    CERT_FILE,
    KEY_FILE,
    SENTINEL,
    SENTINEL_USER,
    SENTINEL_PASSWORD_FILE,
    SENTINEL_PASSWORD_ENV
};

#define PARAMETER_TEXT(name_, flags_, max_, doc_)                                                  \
    {                                                                                              \
        .size = sizeof(struct weir_parameter), .name = (name_), .type = WEIR_PARAMETER_TEXT,       \
        .flags = (flags_), .min = 1, .max = (max_), .doc = (doc_)                                  \
    }

static const struct weir_parameter parameters[] = {
    [URL] = PARAMETER_TEXT(
        "url", WEIR_PARAMETER_REQUIRED, 512,
        "redis://[USER@]HOST[:PORT][/DB], rediss:// for TLS, or unix:///PATH[?db=N]; several hosts "
        "of a cluster, or Sentinels, with commas"),
    [PASSWORD_FILE] = PARAMETER_TEXT("password_file", 0, 4096, "a file with the user's password"),
    [PASSWORD_ENV] =
        PARAMETER_TEXT("password_env", 0, 255, "an environment variable with the user's password"),
    [SESSION_LENGTH] = {.size = sizeof(struct weir_parameter),
                        .name = "session",
                        .type = WEIR_PARAMETER_DURATION,
                        .min = SESSION_MIN,
                        .max = DAY,
                        .default_value = SESSION,
                        .doc = "for so long what a process holds outlives the process"},
    [TIMEOUT_LENGTH] = {.size = sizeof(struct weir_parameter),
                        .name = "timeout",
                        .type = WEIR_PARAMETER_DURATION,
                        .min = MS,
                        .max = DAY,
                        .default_value = TIMEOUT,
                        .doc = "of an attempt to connect, and of an answer"},
    [KEY_PREFIX] =
        PARAMETER_TEXT("prefix", 0, REDIS_PREFIX_MAX, "what all keys begin with; default: weir:"),
    [DRAINS] = {.size = sizeof(struct weir_parameter),
                .name = "drain_after_loss",
                .type = WEIR_PARAMETER_BOOLEAN,
                .doc = "if the server lost data, rates begin with nothing available, not in full"},
    [CA_FILE] = PARAMETER_TEXT("ca_file", 0, 4096,
                               "TLS: certificates of authorities; default: those of the system"),
    [CERT_FILE] = PARAMETER_TEXT("cert_file", 0, 4096, "TLS: a certificate for the server to see"),
    [KEY_FILE] = PARAMETER_TEXT("key_file", 0, 4096, "TLS: the key of cert_file"),
    [SENTINEL] =
        PARAMETER_TEXT("sentinel", 0, 255,
                       "the URL has Sentinels, which know the address of this master; port: 26379"),
    [SENTINEL_USER] = PARAMETER_TEXT("sentinel_user", 0, USER_MAX, "a user of the Sentinels"),
    [SENTINEL_PASSWORD_FILE] = PARAMETER_TEXT("sentinel_password_file", 0, 4096,
                                              "a file with the password for the Sentinels"),
    [SENTINEL_PASSWORD_ENV] =
        PARAMETER_TEXT("sentinel_password_env", 0, 255,
                       "an environment variable with the password for the Sentinels"),
};

static int plugin_refuse(struct weir_reason *reterr, uint32_t parameter, const char *what, int code)
{
    reterr->parameter = parameter;
    snprintf(reterr->message, sizeof(reterr->message), "%s%s%s", what, code ? ": " : "",
             code ? strerror(code) : "");
    return -EINVAL;
}

static const char *plugin_text(const struct weir_value *value)
{
    return value->given ? value->text : NULL;
}

/* Reads a password up to the end of the line. Returns 0, or -EINVAL with the reason. */
static int plugin_read_file(const char *path, uint32_t parameter, char password[PASSWORD_MAX],
                            struct weir_reason *reterr)
{
    size_t n = 0;
    ssize_t r = 1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return plugin_refuse(reterr, parameter, "the file cannot be read", errno);
    while (n < PASSWORD_MAX && (r = read(fd, password + n, PASSWORD_MAX - n)) > 0)
        n += (size_t)r;
    int error = errno;
    close(fd);
    if (r < 0)
        return plugin_refuse(reterr, parameter, "the file cannot be read", error);
    if (n == PASSWORD_MAX)
        return plugin_refuse(reterr, parameter, "a password has at most 1023 bytes", 0);
    password[n] = '\0';
    password[strcspn(password, "\r\n")] = '\0';
    return 0;
}

/* Reads the password out of the file or the environment variable that these parameters name, if one
 * does. Returns 0, -ENOMEM, or -EINVAL with the reason. */
static int plugin_read_password(const struct weir_value *const *values, uint32_t file_parameter,
                                uint32_t env_parameter, char **ret, struct weir_reason *reterr)
{
    const char *file = plugin_text(values[file_parameter]);
    const char *name = plugin_text(values[env_parameter]);
    const char *found = name ? getenv(name) : NULL;
    char password[PASSWORD_MAX];
    int r = 0;
    if (file && name)
        return plugin_refuse(reterr, env_parameter, "a file with the password is named already", 0);
    if (name && !found)
        return plugin_refuse(reterr, env_parameter, "there is no such environment variable", 0);
    if (!file && !name)
        return 0;
    if (file)
        r = plugin_read_file(file, file_parameter, password, reterr);
    if (r == 0) {
        *ret = strdup(file ? password : found);
        r = *ret ? 0 : -ENOMEM;
    }
    explicit_bzero(password, sizeof(password));
    return r;
}

static int plugin_read_passwords(const struct weir_value *const *values,
                                 struct redis_options *options, struct weir_reason *reterr)
{
    int r = plugin_read_password(values, PASSWORD_FILE, PASSWORD_ENV, &options->password, reterr);
    if (r == 0)
        r = plugin_read_password(values, SENTINEL_PASSWORD_FILE, SENTINEL_PASSWORD_ENV,
                                 &options->sentinel_password, reterr);
    if (r < 0)
        return r;
    if (options->urls[0].user[0] && !options->password)
        return plugin_refuse(reterr, URL, "a user needs password_file or password_env", 0);
    if (options->sentinel_user[0] && !options->sentinel_password)
        return plugin_refuse(reterr, SENTINEL_USER,
                             "a user needs sentinel_password_file or sentinel_password_env", 0);
    return 0;
}

/* Reads the addresses, of servers or Sentinels. */
static int plugin_read_urls(const struct weir_value *const *values, struct redis_options *options,
                            struct weir_reason *reterr)
{
    const char *name = plugin_text(values[SENTINEL]);
    const char *user = plugin_text(values[SENTINEL_USER]);
    reterr->parameter = URL;
    int n = redis_url_read(values[URL]->text, name ? SENTINEL_PORT : SERVER_PORT, options->urls,
                           reterr);
    if (n < 0)
        return n;
    options->urls_n = (uint32_t)n;
    if (!name && (user || plugin_text(values[SENTINEL_PASSWORD_FILE]) ||
                  plugin_text(values[SENTINEL_PASSWORD_ENV])))
        return plugin_refuse(reterr, SENTINEL, "it has to name the master", 0);
    if (!name)
        return 0;
    if (options->urls[0].is_unix)
        return plugin_refuse(reterr, SENTINEL, "Sentinels are named by redis:// or rediss://", 0);
    if (user)
        snprintf(options->sentinel_user, sizeof(options->sentinel_user), "%s", user);
    options->sentinel = strdup(name);
    return options->sentinel ? 0 : -ENOMEM;
}

static int plugin_read_tls(const struct weir_value *const *values, struct redis_options *options,
                           struct weir_reason *reterr)
{
    const char *ca_file = plugin_text(values[CA_FILE]);
    const char *cert_file = plugin_text(values[CERT_FILE]);
    const char *key_file = plugin_text(values[KEY_FILE]);
    if (!cert_file != !key_file)
        return plugin_refuse(reterr, CERT_FILE, "cert_file and key_file go together", 0);
    if (!options->urls[0].has_tls)
        return ca_file || cert_file ? plugin_refuse(reterr, URL, "TLS needs rediss://", 0) : 0;
    return redis_tls_context_new(ca_file, cert_file, key_file, &options->tls, reterr);
}

static int plugin_read_options(const struct weir_value *const *values,
                               struct redis_options *options, struct weir_reason *reterr)
{
    const char *prefix = plugin_text(values[KEY_PREFIX]);
    int r = plugin_read_urls(values, options, reterr);
    if (r < 0)
        return r;
    r = plugin_read_tls(values, options, reterr);
    if (r < 0)
        return r;
    if (prefix && strpbrk(prefix, "{} \r\n"))
        return plugin_refuse(reterr, KEY_PREFIX, "neither braces nor spaces may be in it", 0);
    options->session_ns = values[SESSION_LENGTH]->value;
    options->timeout_ns = values[TIMEOUT_LENGTH]->value;
    if (options->session_ns % REDIS_US)
        return plugin_refuse(reterr, SESSION_LENGTH, "a session is whole microseconds", 0);
    options->definition.session_us = options->session_ns / REDIS_US;
    options->definition.drains = values[DRAINS]->value != 0;
    options->prefix = strdup(prefix ? prefix : PREFIX);
    return options->prefix ? plugin_read_passwords(values, options, reterr) : -ENOMEM;
}

static void plugin_wipe(char *password)
{
    if (password)
        explicit_bzero(password, strlen(password));
    free(password);
}

/* Makes the servers that the URL names; with Sentinels one, which they name. */
static int plugin_make_servers(struct redis_connection *connection)
{
    const struct redis_options *options = &connection->options;
    for (uint32_t i = 0; i < options->urls_n && (i == 0 || !options->sentinel); i++) {
        struct redis_server *server = redis_server_new(connection, &options->urls[i]);
        if (!server)
            return -ENOMEM;
        server->is_seed = 1;
    }
    connection->home = connection->servers;
    return 0;
}

static void plugin_free(struct redis_connection *connection)
{
    plugin_wipe(connection->options.password);
    plugin_wipe(connection->options.sentinel_password);
    free(connection->options.sentinel);
    free(connection->options.prefix);
    redis_tls_context_free(connection->options.tls);
    redis_table_free(&connection->keys);
    free(connection->due);
    free(connection);
}

static int plugin_open(const struct weir_setup *setup, const struct weir_backend_host *host,
                       void **ret_connection, struct weir_reason *reterr)
{
    struct redis_connection *connection = calloc(1, sizeof(*connection));
    if (!connection)
        return -ENOMEM;
    connection->host = host;
    connection->epoll = connection->event = connection->timer = -1;
    int r = plugin_read_options(setup->values, &connection->options, reterr);
    if (r == 0)
        r = plugin_make_servers(connection);
    if (r == 0 && pthread_mutex_init(&connection->lock, NULL))
        r = -ENOMEM;
    if (r < 0) {
        redis_run_end(connection);
        plugin_free(connection);
        return r == -ENOMEM ? r : -EINVAL;
    }
    *ret_connection = connection;
    return 0;
}

static void plugin_close(void *of)
{
    struct redis_connection *connection = of;
    redis_run_end(connection);
    pthread_mutex_destroy(&connection->lock);
    plugin_free(connection);
}

static void plugin_run(void *connection)
{
    redis_run(connection);
}

static void plugin_stop(void *connection)
{
    redis_run_stop(connection);
}

static int plugin_check(void *connection, uint64_t until_ns, struct weir_reason *reterr)
{
    return redis_run_check(connection, until_ns, reterr);
}

void redis_log(const struct redis_server *server, int level, const char *format, ...)
{
    const struct weir_backend_host *host = server->connection->host;
    char message[512];
    int n = snprintf(message, sizeof(message), "redis %s%s%s: ", server->url.host,
                     server->url.is_unix ? "" : ":", server->url.port);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message + n, sizeof(message) - (size_t)n, format, arguments);
    va_end(arguments);
    for (char *c = message; *c; c++)
        *c = (unsigned char)*c < ' ' ? ' ' : *c;
    host->log(host->context, level, message);
    redis_calls_wake_by(server->connection, 0);
}

static const struct weir_backend backend = {
    .size = sizeof(backend),
    .open = plugin_open,
    .close = plugin_close,
    .run = plugin_run,
    .stop = plugin_stop,
    .set_open = redis_set_open,
    .set_close = redis_set_close,
    .ask = redis_set_ask,
    .wait = redis_set_wait,
    .cancel = redis_set_cancel,
    .release = redis_set_release,
    .return_part = redis_set_return_part,
    .is_held = redis_set_is_held,
    .snapshot = redis_set_snapshot,
    .check = plugin_check,
    .batch = redis_batches_ask,
    .unbatch = redis_batches_give_back,
    .set_redefine = redis_set_redefine,
    .set_apply = redis_apply,
};

static const struct weir_plugin plugin = {
    .size = sizeof(plugin),
    .kind = WEIR_PLUGIN_BACKEND,
    .parameters_n = sizeof(parameters) / sizeof(parameters[0]),
    .name = "redis",
    .version = "1.0",
    .summary = "sets on a Redis server, version 7.0 or later",
    .parameters = parameters,
    .ops = &backend,
    .state_id = UINT64_C(0x7c1e5d0a96b2f348),
};
static const struct weir_plugin *const plugins[] = {&plugin};
const struct weir_plugin_table weir_plugins_v1 = {
    .size = sizeof(weir_plugins_v1),
    .abi_minor = WEIR_PLUGIN_ABI_MINOR,
    .plugins_n = 1,
    .plugins = plugins,
};
