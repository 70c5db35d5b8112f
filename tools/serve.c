/* SPDX-License-Identifier: MIT */
/*
 * `weir serve`: answers GET /metrics with the metrics of shared sets, and of those that engines
 * keep. libmicrohttpd serves from one thread of its own; the first one waits for a signal. Each
 * answer is of a snapshot of its own, so nothing is done between requests.
 */
#include "listen_address.h"
#include "metrics.h"
#include "usage.h"
#include "weir.h"
#include <errno.h>
#include <getopt.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What clients may take up. */
#define CONNECTIONS_MAX       16u
#define IDLE_SECONDS          10u
#define CONNECTION_MEMORY_MAX ((size_t)16384)

static const char help[] =
    "Usage: weir serve --metrics ADDRESS [-f FILE] [--process-dir DIR]\n"
    "\n"
    "Answers GET /metrics of Prometheus, and of others that read OpenMetrics, with the metrics of "
    "shared\n"
    "sets, of those that programs publish, and of those of the configuration that engines keep. "
    "Ends\n"
    "with SIGTERM or SIGINT.\n"
    "\n"
    "  -m, --metrics ADDRESS   listen there: PORT (of 127.0.0.1), 127.0.0.1:PORT, [::1]:PORT, or\n"
    "                          `systemd`: the socket that systemd passes. Port 0: any\n"
    "  -f, --file FILE         a configuration that says where shared sets and plugins are, and "
    "which\n"
    "                          sets engines keep; default: the file that WEIR_CONFIG names\n"
    "      --process-dir DIR   where shared sets are\n"
    "  -d, --plugin-dir DIR    look for plugins in DIR first\n"
    "  -h, --help              show this text\n"
    "\n"
    "Exit status: 0 ended by a signal, 2 wrong usage, 3 it cannot listen there.\n";

struct server {
    const char *title;
    const struct source *source;
    struct engine_sets engines;
    unsigned refused; /* sets that could not be inspected, last time */
    unsigned heard;   /* complaints of this snapshot */
};

/* ---- answers ---- */

/* Sets that cannot be inspected are named when their number changes, and not at each scrape. */
static void complain(void *userdata, const struct weir_error *error)
{
    struct server *server = userdata;

    if (++server->heard > server->refused)
        source_complain(server->title, error);
}

static int write_piece(void *userdata, const char *text, size_t n)
{
    return fwrite(text, 1, n, userdata) == n ? 0 : -ENOMEM;
}

/* Writes metrics of now into memory. Returns 0 or a negative errno with the reason. */
static int write_metrics(struct server *server, enum weir_metrics_format format, char **ret,
                         size_t *ret_size, struct weir_error *reterr)
{
    const struct snapshot_names all = {0};
    struct snapshot snapshot;
    FILE *out;
    int r;

    server->heard = 0;
    r = snapshot_take(&snapshot, server->source, &server->engines, &all, complain, server, reterr);
    if (r < 0)
        return r;
    server->refused = server->heard;
    out = open_memstream(ret, ret_size);
    r = out ? metrics_write(&snapshot, format, write_piece, out) : -ENOMEM;
    if (out && fclose(out) != 0)
        r = -ENOMEM;
    snapshot_free(&snapshot);
    if (r < 0) {
        if (out)
            free(*ret);
        *reterr = (struct weir_error){.code = r, .message = "out of memory"};
    }
    return r;
}

/* Answers with a text, which goes with the answer. */
static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, char *text,
                              size_t size, const char *type)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE);
    enum MHD_Result result;

    if (!response) {
        free(text);
        return MHD_NO; /* closes the connection */
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer_words(struct MHD_Connection *connection, unsigned status,
                                    const char *words)
{
    char *text = NULL;
    int n = asprintf(&text, "%s\n", words);

    return n < 0 ? MHD_NO
                 : answer(connection, status, text, (size_t)n, "text/plain; charset=utf-8");
}

static enum MHD_Result answer_metrics(struct server *server, struct MHD_Connection *connection)
{
    const char *accepted =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    bool is_open = accepted && strstr(accepted, "application/openmetrics-text");
    struct weir_error error = {0};
    size_t size = 0;
    char *text = NULL;

    if (write_metrics(server, is_open ? WEIR_METRICS_OPENMETRICS : WEIR_METRICS_PROMETHEUS, &text,
                      &size, &error) < 0)
        return answer_words(connection, MHD_HTTP_SERVICE_UNAVAILABLE, error.message);
    return answer(connection, MHD_HTTP_OK, text, size,
                  is_open ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                          : "text/plain; version=0.0.4; charset=utf-8");
}

/* Called for the head of a request, for each piece of its body, and at its end. */
static enum MHD_Result on_request(void *userdata, struct MHD_Connection *connection,
                                  const char *url, const char *method, const char *version,
                                  const char *body, size_t *body_size, void **state)
{
    static char seen;

    (void)version, (void)body;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return answer_words(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD");
    if (!*state || *body_size > 0) {
        *state = &seen;
        *body_size = 0; /* what is sent is dropped */
        return MHD_YES;
    }
    if (strcmp(url, "/metrics") != 0)
        return answer_words(connection, MHD_HTTP_NOT_FOUND, "only /metrics");
    return answer_metrics(userdata, connection);
}

/* ---- the server ---- */

/* Blocks the signals that end the server, in all threads, and ignores that of a client which is
 * gone. */
static void block_signals(sigset_t *ret)
{
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(ret);
    sigaddset(ret, SIGTERM);
    sigaddset(ret, SIGINT);
    sigprocmask(SIG_BLOCK, ret, NULL);
}

static int serve(struct server *server, int fd)
{
    sigset_t ends;
    struct MHD_Daemon *daemon;
    int which;

    block_signals(&ends);
    daemon =
        MHD_start_daemon(MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, on_request,
                         server, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
                         CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_SECONDS,
                         MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY_MAX, MHD_OPTION_END);
    if (!daemon) {
        fprintf(stderr, "%s: the server cannot be started\n", server->title);
        close(fd);
        return ENDING_SYSTEM;
    }
    listen_address_announce(fd, "/metrics");
    sigwait(&ends, &which);
    MHD_stop_daemon(daemon); /* ends its thread, and closes the socket */
    return ENDING_FINE;
}

int run_serve(int argc, char **argv)
{
    static const struct option options[] = {
        {"metrics", required_argument, NULL, 'm'},
        SOURCE_OPTIONS,
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct source source = {0};
    struct server server = {.title = argv[0], .source = &source};
    const char *address = NULL;
    int option, ending = ENDING_SYSTEM, fd;

    while ((option = getopt_long(argc, argv, "m:h" SOURCE_LETTERS, options, NULL)) != -1) {
        if (option == 'h')
            return usage_help(help);
        if (option == 'm')
            address = optarg;
        else if (!source_option(&source, option, optarg, argv[0]))
            return usage_hint(argv[0]);
    }
    if (optind < argc)
        return usage_wrong(argv[0], "it takes no argument: ", argv[optind]);
    if (!address)
        return usage_wrong(argv[0], "it is not said where to listen: --metrics", "");
    if (!source_find_plugin_dirs(&source, argv[0]))
        return ENDING_SYSTEM;
    fd = listen_address_open(address, argv[0], &ending);
    if (fd >= 0)
        ending = serve(&server, fd);
    engine_sets_close(&server.engines);
    source_free(&source);
    return ending;
}
