/* SPDX-License-Identifier: MIT */
/* Implements weir_engine_redefine(), which has an engine take the definition of a set. */
#include "api/instance.h"
#include "api/set_object.h"
#include "remote/remote.h"
#include <errno.h>
#include <weir/segment.h>

/* Sees what differs. Returns 1 (go on), 0 (nothing differs), or a negative errno. */
static int engine_redefine_check(weir_set *set, uint64_t timeout_ns,
                                 int (*differs)(void *userdata,
                                                const struct weir_redefinition *redefinition),
                                 void *userdata, struct weir_error *reterr)
{
    struct definition_diff diff = {""};
    const struct weir_redefinition shown = {.size = sizeof(shown),
                                            .name = set_own_name(set),
                                            .before = "",
                                            .after = "",
                                            .changes = diff.text};
    int r = remote_apply(set, false, timeout_ns, &diff, reterr);

    if (r == 1 && differs && differs(userdata, &shown) != 0)
        return error_set(reterr, -ECANCELED, "the change was declined");
    return r;
}

int weir_engine_redefine(weir_set *set, uint32_t flags, uint64_t timeout_ns,
                         int (*differs)(void *userdata,
                                        const struct weir_redefinition *redefinition),
                         void *userdata, struct weir_error *reterr)
{
    int r;

    if (!set || flags & ~WEIR_REDEFINE_CHECK)
        return error_set(reterr, -EINVAL, "an argument is wrong: set or flags");
    if (instance_is_forked(set->w))
        return error_set(reterr, -ECHILD, "the instance is of the process that has forked");
    set = set_current(set);
    if (set->backend != BACKEND_REMOTE)
        return error_set(reterr, -EINVAL, "no engine keeps the set");
    r = engine_redefine_check(set, timeout_ns, differs, userdata, reterr);
    if (r != 1 || flags & WEIR_REDEFINE_CHECK)
        return r;
    r = remote_apply(set, true, timeout_ns, NULL, reterr);
    return r == 0 ? 1 : r; /* the answer to a first attempt may have been lost */
}
