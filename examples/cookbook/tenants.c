/* SPDX-License-Identifier: MIT */
/*
 * Limits of each tenant. A tenant that has used up its requests is refused; it takes nothing from
 * the others, and no other waits for it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

/* Returns how many of `n` requests of a tenant are admitted, or a negative errno. */
static int admit(weir_pool *pool, const char *tenant, int n)
{
    const struct weir_request request = {
        .size = sizeof(request), .subject = tenant, .subject_size = strlen(tenant)};
    int admitted = 0;

    for (int i = 0; i < n; i++) {
        int e = weir_take(pool, &request, NULL);

        if (e < 0 && e != -EAGAIN)
            return e;
        admitted += e == 0;
    }
    printf("%s: %d of %d requests\n", tenant, admitted, n);
    return admitted;
}

static int report(weir_pool *pool)
{
    struct weir_subjects_stats subjects = {.size = sizeof(subjects)};
    int e = weir_set_subjects(weir_pool_set(pool, 0), &subjects);

    if (e > 0)
        printf("%" PRIu64 " tenants known, room for %" PRIu64 "\n", subjects.known, subjects.room);
    return e < 0 ? e : 0;
}

int main(void)
{
    const struct weir_options options = {.size = sizeof(options),
                                         .flags = WEIR_OPEN_REQUIRE_CONFIG};
    struct weir_error error = {0};
    weir_pool *pool = NULL;
    weir *w = NULL;
    int e = weir_open(&w, &options, &error);

    if (e == 0)
        e = weir_pool_open(&pool, w, "tenants", 0, &error);
    if (e == 0)
        e = admit(pool, "acme", 5);
    if (e >= 0)
        e = admit(pool, "globex", 2);
    if (e >= 0)
        e = report(pool);
    if (e < 0)
        fprintf(stderr, "tenants: %s\n", error.code ? error.message : strerror(-e));
    weir_pool_close(pool);
    weir_close(w);
    return e == 0 ? 0 : 1;
}
