/* SPDX-License-Identifier: MIT */
/*
 * A plugin file that is called `gcra` and is another algorithm, first in the search: its decisions
 * are had on a Redis server too, not those of the server's own. It is the fixed window, from which
 * the next unit comes at its end; from gcra it would come after a sixtieth of that.
 *
 *     remote_shadow PLUGIN SOCKET
 */
#include "lib/require.h"
#include "server_set.h"

#include <errno.h>
#include <stdint.h>
#include <weir/weir.h>

#define SECOND UINT64_C(1000000000)

enum { CAPACITY = 60, WINDOW_S = 3600 };

int main(int argc, char **argv)
{
    struct weir_refusal refusal = {.size = sizeof(refusal)};
    weir *w;
    weir_pool *pool;

    require(argc == 3);
    server_set_open(
        &w, &pool, argv[1], argv[2], "timeout: 60s, session: 60s",
        "limits: [ { type: call, key: k, algorithm: gcra, capacity: 60, window: 1h } ]");
    for (int i = 0; i < CAPACITY; i++)
        require(weir_take(pool, NULL, &refusal) == 0);
    require(weir_take(pool, NULL, &refusal) == -EAGAIN);
    require(refusal.retry_after_ns > WINDOW_S / 2 * SECOND);
    weir_pool_close(pool);
    weir_close(w);
    return 0;
}
