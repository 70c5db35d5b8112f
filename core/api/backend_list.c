/* SPDX-License-Identifier: MIT */
/* Implements weir_check_backends(), which sees whether the engines of an instance can be used. */
#include "api/instance.h"
#include "remote/remote.h"
#include <errno.h>

int weir_check_backends(weir *w, uint64_t timeout_ns,
                        int (*found)(void *userdata, const struct weir_backend_info *info),
                        void *userdata)
{
    int n = 0;

    if (!w || !found)
        return -EINVAL;
    if (instance_is_forked(w))
        return -ECHILD;
    /* Engines come with the configuration, and stay as long as the instance. */
    for (const struct remote_engine *engine = w->engines; engine; engine = engine->next) {
        struct weir_error said;
        const struct weir_backend_info info = {
            .size = sizeof(info),
            .name = engine->plan.name,
            .type = engine->plan.plugin->info.name,
            .result = remote_engine_check(engine, timeout_ns, &said),
            .message = said.message,
        };

        n++;
        if (found(userdata, &info) != 0)
            break;
    }
    return n;
}
