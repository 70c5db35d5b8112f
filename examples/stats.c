/* SPDX-License-Identifier: MIT */
/* Writes the response to GET /stats: the counters of weir, as JSON. */
#include "service.h"
#include <inttypes.h>
#include <stdlib.h>

/* Returns the bound in µs below which `percent` of the waits were. */
static uint64_t wait_below_us(const struct weir_set_stats *stats, uint64_t percent)
{
    uint64_t total = 0, seen = 0;
    unsigned i = 0;

    for (unsigned j = 0; j < WEIR_WAIT_BUCKETS; j++)
        total += stats->wait_histogram[j];
    if (total == 0)
        return 0;
    for (seen = stats->wait_histogram[0]; seen * 100 < total * percent;)
        seen += stats->wait_histogram[++i];
    return (uint64_t)1 << i;
}

static void print_string(FILE *out, const char *text)
{
    putc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            putc('\\', out);
        if ((unsigned char)*text < ' ')
            fprintf(out, "\\u%04x", (unsigned)*text);
        else
            putc(*text, out);
    }
    putc('"', out);
}

static void print_limit(FILE *out, const struct weir_limit_stats *limit)
{
    fputs("{\"key\":", out);
    print_string(out, limit->key);
    fprintf(out,
            ",\"capacity\":%" PRIu64 ",\"available\":%" PRIu64 ",\"held\":%" PRIu64
            ",\"granted\":%" PRIu64 ",\"refused\":%" PRIu64 ",\"refunded\":%" PRIu64 "}",
            limit->capacity, limit->available, limit->held, limit->granted, limit->refused,
            limit->refunded);
}

static void print_set(FILE *out, weir_set *set)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats limits[WEIR_LIMITS_MAX];
    int n = weir_set_stats(set, &stats, limits, WEIR_LIMITS_MAX);

    fputs("{\"name\":", out);
    print_string(out, weir_set_name(set));
    if (n >= 0)
        fprintf(out,
                ",\"held\":%" PRIu64 ",\"waiting\":%" PRIu64 ",\"granted\":%" PRIu64
                ",\"granted_waited\":%" PRIu64 ",\"refused_max_wait\":%" PRIu64
                ",\"refused_full\":%" PRIu64 ",\"timed_out\":%" PRIu64 ",\"canceled\":%" PRIu64
                ",\"released\":%" PRIu64 ",\"refunded\":%" PRIu64 ",\"missing_update\":%" PRIu64
                ",\"wait_p50_below_us\":%" PRIu64 ",\"wait_p99_below_us\":%" PRIu64,
                stats.held, stats.waiting, stats.granted, stats.granted_waited,
                stats.refused_max_wait, stats.refused_full, stats.timed_out, stats.canceled,
                stats.released, stats.refunded, stats.missing_update, wait_below_us(&stats, 50),
                wait_below_us(&stats, 99));
    fputs(",\"limits\":[", out);
    for (int i = 0; i < n; i++) {
        fputs(i > 0 ? "," : "", out);
        print_limit(out, &limits[i]);
    }
    fputs("]}", out);
}

void answer_stats(struct http_reply *reply, const struct service *service, bool keep_alive)
{
    char *body = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&body, &size);

    if (!out) {
        answer_status(reply, 503);
        return;
    }
    fputs("{\"sets\":[", out);
    for (size_t i = 0; i < weir_pool_sets(service->pool); i++) {
        fputs(i > 0 ? "," : "", out);
        print_set(out, weir_pool_set(service->pool, i));
    }
    fputs("]}\n", out);
    if (fclose(out) == 0)
        http_respond(reply, 200, keep_alive, "Content-Type: application/json\r\n", body);
    else
        answer_status(reply, 503);
    free(body);
}
