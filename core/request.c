/* SPDX-License-Identifier: MIT */
/* Requests. */
#include "request.h"

#include "instance.h"
#include "live.h"
#include "mutant.h"
#include "names.h"
#include <errno.h>

const struct weir_request request_of_nothing = {.size = sizeof(request_of_nothing)};

static bool warned_before(weir_set *set, uint64_t hash)
{
    for (uint32_t i = 0; i < set->warned_n; i++)
        if (set->warned[i] == hash)
            return true;
    return false;
}

void request_warn(weir_set *set, const char *key, const char *what)
{
    uint64_t hash = hash_text(key) ^ hash_text(what);
    bool news, last;

    if (set->live)
        set = set->live->keyed->set;
    pthread_mutex_lock(&set->warned_lock);
    news = set->warned_n < WARNED_KEYS_MAX && !warned_before(set, hash);
    if (news)
        set->warned[set->warned_n++] = hash;
    last = news && set->warned_n == WARNED_KEYS_MAX;
    pthread_mutex_unlock(&set->warned_lock);
    if (news)
        instance_log(set->w, WEIR_LOG_WARNING, "set '%s': key '%.100s' %s", set->name, key, what);
    if (last)
        instance_log(set->w, WEIR_LOG_WARNING, "set '%s': no more warnings about keys", set->name);
}

/* Notes one amount of the request for every limit with its key. */
static int ask(weir_set *set, const struct weir_request *request, enum purpose purpose,
               const struct weir_amount *asked, uint64_t *amounts, const char **ret_key)
{
    bool known = false;

    *ret_key = asked->key;
    if (!asked->key)
        return -EINVAL;
    for (uint32_t i = 0; i < set->limits.n; i++) {
        if (!key_equal(set->limits.items[i].key, asked->key))
            continue;
        *ret_key = set->limits.items[i].key;
        if (amounts[i] != REQUEST_NOT_ASKED)
            return -EINVAL;
        if (asked->amount == REQUEST_NOT_ASKED)
            return -ERANGE;
        amounts[i] = asked->amount;
        known = true;
    }
    if (known)
        return 0;
    if ((set->strict && !MUTANT(35)) || (request->flags & WEIR_STRICT))
        return -ENOENT;
    if (purpose != PURPOSE_FORESEE)
        request_warn(set, asked->key, "is unknown and was skipped");
    return 0;
}

/* What was not asked for gets its type's default; what can never be granted is refused. */
static int complete(const weir_set *set, bool nothing_asked, enum purpose purpose,
                    uint64_t *amounts, const char **ret_key)
{
    for (uint32_t i = 0; i < set->limits.n; i++) {
        const struct limit *limit = &set->limits.items[i];

        *ret_key = limit->key;
        if (amounts[i] == REQUEST_NOT_ASKED) {
            if (limit->type == WEIR_LIMIT_RATE && nothing_asked)
                return -EINVAL;
            amounts[i] = limit->type == WEIR_LIMIT_RATE ? 0 : 1;
        }
        if (purpose == PURPOSE_TAKE && amounts[i] && limit->type == WEIR_LIMIT_RESOURCE)
            return -EINVAL;
        if (amounts[i] > limit->capacity && !MUTANT(18))
            return -ERANGE;
    }
    return 0;
}

int request_resolve(weir_set *set, const struct weir_request *request, enum purpose purpose,
                    uint64_t *amounts, const char **ret_key)
{
    for (uint32_t i = 0; i < set->limits.n; i++)
        amounts[i] = REQUEST_NOT_ASKED;
    for (size_t i = 0; i < request->amounts_n; i++) {
        int r = ask(set, request, purpose, &request->amounts[i], amounts, ret_key);

        if (r < 0)
            return r;
    }
    return complete(set, request->amounts_n == 0, purpose, amounts, ret_key);
}
