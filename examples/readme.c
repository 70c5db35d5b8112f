/* SPDX-License-Identifier: MIT */
/* The README's example: 90 000 tokens a minute, and four connections at a time. */
#include <stdio.h>
#include <weir/weir.h>

static const char text[] =
    "version: 1\n"
    "sets:\n"
    "  api:\n"
    "    config: { region: us-east-1 }\n"
    "    limits:\n"
    "      - { type: rate, key: tokens, algorithm: token_bucket, capacity: 90k, window: 60s }\n"
    "      - { type: resource, key: connections, capacity: 4 }\n";

int main(void)
{
    struct weir_options options = {.size = sizeof options, .text = text};
    struct weir_amount tokens = {"tokens", 800}; /* and a connection, by default */
    struct weir_request request = {.size = sizeof request, .amounts = &tokens, .amounts_n = 1};
    weir *w = NULL;
    weir_pool *pool = NULL;
    weir_acquisition *a = NULL;

    if (weir_open(&w, &options, NULL) != 0 || weir_pool_open(&pool, w, "api", 0) != 0 ||
        weir_acquire(pool, &request, &a, NULL) != 0) /* waits for its turn */
        return 1;
    printf("go ahead in %s\n", weir_acquisition_config(a, "region"));
    weir_update(a, "tokens", 512); /* the other 288 go back */
    weir_release(&a);
    weir_pool_close(pool);
    weir_close(w);
    return 0;
}
