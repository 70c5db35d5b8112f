/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <weir/weir.h>

int main(void)
{
    struct weir_amount tokens = {"tokens", 800}; /* and a connection, by default */
    struct weir_request request = {.size = sizeof(request), .amounts = &tokens, .amounts_n = 1};
    weir_acquisition *a = NULL;
    weir_pool *pool = NULL;
    weir *w = NULL;

    if (weir_open(&w, NULL, NULL) == 0 && weir_pool_open(&pool, w, "api", 0, NULL) == 0 &&
        weir_acquire(pool, &request, &a, NULL) == 0) { /* waits for its turn */
        printf("go ahead in %s\n", weir_acquisition_config(a, "region"));
        weir_update(a, "tokens", 512); /* the other 288 are refunded */
    }
    weir_release(&a);
    weir_pool_close(pool);
    weir_close(w);
}
