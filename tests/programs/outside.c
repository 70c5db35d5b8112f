/* SPDX-License-Identifier: MIT */
/* A program as a stranger writes one, against the installed library, with a plugin of its own. */
#include <errno.h>
#include <stdio.h>
#include <weir/weir.h>

static const char text[] = "version: 1\n"
                           "sets:\n"
                           "  trial:\n"
                           "    limits:\n"
                           "      - { type: call, algorithm: acme.quota, capacity: 3 }\n"
                           "      - { type: call, algorithm: gcra, capacity: 1M, window: 1s }\n";

int main(int argc, char **argv)
{
    const char *dirs[] = {argc == 2 ? argv[1] : ".", NULL};
    struct weir_options options = {.size = sizeof(options), .text = text, .plugin_dirs = dirs};
    struct weir_error error = {0};
    struct weir_refusal refusal = {.size = sizeof(refusal)};
    weir *w = NULL;
    weir_pool *pool = NULL;
    int granted = 0, r;

    if (weir_open(&w, &options, &error) < 0 || weir_pool_open(&pool, w, "trial", 0, NULL) < 0) {
        fprintf(stderr, "outside: %u:%u: %s\n", error.line, error.column, error.message);
        return 1;
    }
    while ((r = weir_take(pool, NULL, &refusal)) == 0)
        granted++;
    printf("%d granted, then %s\n", granted, r == -EAGAIN ? refusal.key : "something else");
    weir_pool_close(pool);
    weir_close(w);
    return 0;
}
