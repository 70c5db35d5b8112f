/* SPDX-License-Identifier: MIT */
/* Thread contexts: their nonces are random, so that those of one key table are never the same. */
#include "api/instance.h"
#include "base/hash.h"
#include "lib/world.h"
#include <stdlib.h>

enum { INSTANCES = 3, CONTEXTS = 5, NONCES = 1000, ALL = INSTANCES * CONTEXTS * NONCES };

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* As those of processes that start alike, with one seed for their random choices. */
static void no_two_contexts_have_a_nonce_in_common(void **state)
{
    static uint64_t nonces[ALL];
    const struct weir_options options = {.size = sizeof(options), .seed = 1};
    size_t n = 0;

    (void)state;
    for (unsigned i = 0; i < INSTANCES; i++) {
        weir *w;

        assert_int_equal(weir_open(&w, &options, NULL), 0);
        for (unsigned c = 0; c < CONTEXTS; c++) {
            struct thread_ctx *ctx = thread_ctx_new(w);

            assert_non_null(ctx);
            for (unsigned k = 0; k < NONCES; k++)
                nonces[n++] = splitmix64_next(&ctx->nonce_state);
        }
        weir_close(w);
    }
    assert_int_equal(n, ALL);
    qsort(nonces, n, sizeof(*nonces), compare);
    for (size_t i = 1; i < n; i++)
        assert_true(nonces[i - 1] != nonces[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(no_two_contexts_have_a_nonce_in_common),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
