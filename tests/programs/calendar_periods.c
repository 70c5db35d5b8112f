/* SPDX-License-Identifier: MIT */
/*
 * Prints when the periods of a time zone begin, as a limit says: it takes all of a period, and is
 * told how long to wait for the next.
 *
 *     calendar_periods ZONE day|week|month FROM TO
 *
 * FROM and TO are seconds since 1970, as what is printed.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#define SECOND UINT64_C(1000000000)

static _Atomic uint64_t periods_now;

static uint64_t read_now(void *userdata)
{
    (void)userdata;
    return periods_now;
}

/* Prints the beginnings up to `to`. Returns 0, or an error of weir. */
static int print_periods(weir_pool *pool, uint64_t to)
{
    const struct weir_request request = {.size = sizeof(request)};

    while (periods_now <= to) {
        struct weir_refusal refusal = {.size = sizeof(refusal)};
        int r = weir_take(pool, &request, &refusal);

        if (r < 0)
            return r;
        r = weir_take(pool, &request, &refusal);
        if (r != -EAGAIN)
            return r < 0 ? r : -EPROTO;
        periods_now += refusal.retry_after_ns;
        if (periods_now <= to)
            printf("%" PRIu64 "%s\n", periods_now / SECOND, periods_now % SECOND ? ".?" : "");
    }
    return 0;
}

int main(int argc, char **argv)
{
    char text[256];
    struct weir_clock clock = {.size = sizeof(clock), .now_ns = read_now};
    struct weir_options options = {.size = sizeof(options), .text = text, .clock = &clock};
    struct weir_error error = {0};
    weir *w = NULL;
    weir_pool *pool = NULL;
    int r;

    if (argc != 5)
        return 2;
    periods_now = strtoull(argv[3], NULL, 10) * SECOND;
    snprintf(text, sizeof(text),
             "version: 1\n"
             "sets: { main: { limits: [ { type: call, algorithm: calendar, capacity: 1, "
             "period: %.20s, zone: %.80s } ] } }\n",
             argv[2], argv[1]);
    r = weir_open(&w, &options, &error);
    if (r == 0)
        r = weir_pool_open(&pool, w, "main", 0, &error);
    if (r == 0)
        r = print_periods(pool, strtoull(argv[4], NULL, 10) * SECOND);
    if (r < 0)
        fprintf(stderr, "calendar_periods: %s\n", error.code ? error.message : strerror(-r));
    weir_pool_close(pool);
    weir_close(w);
    return r < 0;
}
