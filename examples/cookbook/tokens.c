/* SPDX-License-Identifier: MIT */
/*
 * Tokens of a language model per minute. How many a request takes is known only afterwards: ask for
 * the most that it can be, report what it was, and the release refunds the rest for others.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

#define ANSWER_MAX 1024 /* max_tokens of the request */

/* Stands for the request to the model. Returns how many tokens it took, or a negative errno. */
static int64_t complete(uint64_t prompt)
{
    return (int64_t)prompt + 300;
}

static int ask(weir_pool *pool, uint64_t prompt)
{
    const struct weir_amount tokens = {"tokens", prompt + ANSWER_MAX};
    const struct weir_request request = {
        .size = sizeof(request), .amounts = &tokens, .amounts_n = 1};
    weir_acquisition *acquisition = NULL;
    int e = weir_acquire(pool, &request, &acquisition, NULL); /* with a request and a connection */
    int64_t used;

    if (e < 0)
        return e;
    used = complete(prompt);
    e = weir_update(acquisition, "tokens", used < 0 ? 0 : (uint64_t)used);
    if (e < 0)
        fprintf(stderr, "tokens: %s\n", strerror(-e));
    return weir_release(&acquisition); /* -EPROTO: without an update all would count as used */
}

static int report(weir_pool *pool)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_limit_stats tokens;
    int e = weir_set_stats(weir_pool_set(pool, 0), &stats, &tokens, 1);

    if (e < 0)
        return e;
    printf("%" PRIu64 " requests asked for %" PRIu64 " tokens, used %" PRIu64 ", got %" PRIu64
           " back\n",
           stats.granted, tokens.granted, tokens.granted - tokens.refunded, tokens.refunded);
    return 0;
}

int main(void)
{
    static const uint64_t prompts[] = {200, 1500, 40};
    const struct weir_options options = {.size = sizeof(options),
                                         .flags = WEIR_OPEN_REQUIRE_CONFIG};
    struct weir_error error = {0};
    weir_pool *pool = NULL;
    weir *w = NULL;
    int e = weir_open(&w, &options, &error);

    if (e == 0)
        e = weir_pool_open(&pool, w, "model", 0, &error);
    for (size_t i = 0; e == 0 && i < sizeof(prompts) / sizeof(prompts[0]); i++)
        e = ask(pool, prompts[i]);
    if (e == 0)
        e = report(pool);
    if (e < 0)
        fprintf(stderr, "tokens: %s\n", error.code ? error.message : strerror(-e));
    weir_pool_close(pool);
    weir_close(w);
    return e == 0 ? 0 : 1;
}
