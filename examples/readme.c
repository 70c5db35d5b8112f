/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

static int run(weir_pool *pool)
{
    struct weir_amount tokens = {"tokens", 800}; /* and a connection, by default */
    struct weir_request request = {.size = sizeof(request), .amounts = &tokens, .amounts_n = 1};
    weir_acquisition *a = NULL;
    const char *region;
    int e = weir_acquire(pool, &request, &a, NULL); /* waits for its turn */

    if (e < 0)
        return e;
    region = weir_acquisition_config(a, "region");
    printf("go ahead in %s\n", region ? region : "any region");
    e = weir_update(a, "tokens", 512); /* the release refunds the other 288 */
    weir_release(&a);
    return e;
}

int main(void)
{
    struct weir_options options = {.size = sizeof(options), .flags = WEIR_OPEN_REQUIRE_CONFIG};
    struct weir_error error = {0};
    weir_pool *pool = NULL;
    weir *w = NULL;
    int e = weir_open(&w, &options, &error); /* the file that WEIR_CONFIG names */

    if (e == 0)
        e = weir_pool_open(&pool, w, "api", 0, &error);
    if (e == 0)
        e = run(pool);
    if (e < 0)
        fprintf(stderr, "readme: %s\n", error.code ? error.message : strerror(-e));
    weir_pool_close(pool);
    weir_close(w);
    return e == 0 ? 0 : 1;
}
