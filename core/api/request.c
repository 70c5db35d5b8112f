/* SPDX-License-Identifier: MIT */
/* Requests: resolving keys to amounts, and warnings about unknown keys. */
#include "api/request.h"
#include "api/instance.h"
#include "api/set_object.h"

#include "base/invariant.h"
#include "base/str_map.h"
#include "os/os.h"
#include "set/shadow.h"
#include <errno.h>
#include <string.h>

const struct weir_request request_default = {.size = sizeof(request_default)};

static const char *request_explain_malformed(const struct weir_request *request)
{
    if (!request->size)
        return "the request's `size` is 0: set it to sizeof(struct weir_request)";
    if (!request_size_is_known(request))
        return "the request's `size` is not that of a struct weir_request";
    if (request->amounts_n && !request->amounts)
        return "the request's `amounts` is NULL, and `amounts_n` is not 0";
    return "the request has a flag that is not known, such as one of a newer version";
}

int request_refuse_malformed(weir *w, const struct weir_request *request,
                             struct weir_refusal *retref)
{
    const char *reason = request_explain_malformed(request);

    if (retref && retref->size >= sizeof(*retref))
        *retref = (struct weir_refusal){retref->size, "", "", WEIR_FOREVER, reason, {0}};
    if (!atomic_exchange_explicit(&instance_of(w)->malformed_reported, true, memory_order_seq_cst))
        log_write(&w->log, WEIR_LOG_WARNING, "a request is refused: %s", reason);
    return -EINVAL;
}

const char *request_explain(const struct weir_request *request, const char *key)
{
    size_t named = 0;

    if (!key)
        return "an amount of the request has no key";
    if (!request->amounts_n)
        return "the request names nothing, and a rate has no default";
    for (size_t i = 0; i < request->amounts_n; i++)
        named += request->amounts[i].key && request_key_equal(request->amounts[i].key, key);
    return named > 1 ? "the request names a key twice"
                     : "a resource must be left out of this call, with the amount 0";
}

/* Returns the set's warnings, made if there are none yet. NULL: out of memory. */
static struct warnings *request_warnings(weir_set *set)
{
    struct warnings *warnings = atomic_load_explicit(&set->warnings, memory_order_seq_cst), *made;

    if (warnings)
        return warnings;
    made = os_alloc(1, sizeof(*made));
    if (!made)
        return NULL;
    if (atomic_compare_exchange_strong_explicit(&set->warnings, &warnings, made,
                                                memory_order_seq_cst, memory_order_seq_cst))
        return made;
    os_free(made); /* another thread set them first */
    return warnings;
}

/* Returns the slot of a new hash, or WARNINGS_MAX if it is known or the table is full. */
static uint32_t request_remember(struct warnings *warnings, uint64_t hash)
{
    WEIR_INVARIANT(hash);
    for (uint32_t i = 0; i < WARNINGS_MAX; i++) {
        uint64_t before = 0;

        if (atomic_compare_exchange_strong_explicit(&warnings->hashes[i], &before, hash,
                                                    memory_order_seq_cst, memory_order_seq_cst))
            return i;
        if (before == hash)
            break;
    }
    return WARNINGS_MAX;
}

/* Returns the key of the set that a wrong one was perhaps meant to be. */
static struct hint request_hint(const weir_set *set, const char *key)
{
    const char *keys[WEIR_LIMITS_MAX];
    struct hint hint;

    for (uint32_t i = 0; i < set_listed_n(set); i++)
        keys[i] = set->limits.items[set_listed(set, i)].key;
    hint = hint_find(key, keys, set_listed_n(set));
    return hint.closest && strcmp(hint.closest, key) != 0 ? hint : (struct hint){0};
}

void request_warn(weir_set *set, const char *key, const char *what)
{
    uint64_t hash = fnv1a_text(key) ^ fnv1a_text(what);
    struct warnings *warnings;
    uint32_t place;

    set = instance_set(set->w, set->number); /* the template of a key set */
    warnings = request_warnings(set);
    place = warnings ? request_remember(warnings, hash ? hash : 1) : 0;
    if (place < WARNINGS_MAX)
        log_write(&set->w->log, WEIR_LOG_WARNING, "set `%s`: key `%.100s` %s%s", set_name(set), key,
                  what, request_hint(set, key).text);
    if (place == WARNINGS_MAX - 1)
        log_write(&set->w->log, WEIR_LOG_WARNING, "set `%s`: no more warnings about keys",
                  set_name(set));
}

/* Stores one amount of the request for every limit with its key. */
static int request_add_amount(weir_set *set, const struct weir_request *request,
                              enum purpose purpose, const struct weir_amount *asked,
                              uint64_t *amounts, const char **ret_key)
{
    bool known = false;

    *ret_key = asked->key;
    if (!asked->key)
        return -EINVAL;
    for (uint32_t i = 0; i < set->limits.n; i++) {
        if (!request_key_equal(set->limits.items[i].key, asked->key) ||
            limit_is_retired(&set->limits.items[i]))
            continue;
        *ret_key = set->limits.items[i].key;
        if (amounts[i] != REQUEST_AMOUNT_NONE)
            return -EINVAL;
        if (asked->amount == REQUEST_AMOUNT_NONE)
            return -ERANGE;
        amounts[i] = asked->amount;
        known = true;
    }
    if (known)
        return 0;
    if (set->strict || (request->flags & WEIR_STRICT))
        return -ENOENT;
    if (purpose != PURPOSE_FORECAST)
        request_warn(set, asked->key, "is unknown and was skipped");
    return 0;
}

/* Fills in the defaults. Refuses amounts that can never be granted. */
static int request_apply_defaults(const weir_set *set, const struct weir_request *request,
                                  enum purpose purpose, uint64_t *amounts, const char **ret_key)
{
    for (uint32_t i = 0; i < set->limits.n; i++) {
        const struct limit *limit = &set->limits.items[i];

        *ret_key = limit->key;
        if (amounts[i] == REQUEST_AMOUNT_NONE) {
            if (limit->type == WEIR_LIMIT_RATE && !request->amounts_n && !limit_is_retired(limit))
                return -EINVAL;
            amounts[i] = limit->type == WEIR_LIMIT_RATE ? 0 : 1;
        }
        if (purpose == PURPOSE_TAKE && amounts[i] && limit->type == WEIR_LIMIT_RESOURCE)
            return -EINVAL;
        if (amounts[i] > limit->capacity && !shadow_covers(limit, shadow_number(request)))
            return -ERANGE;
    }
    return 0;
}

bool request_resolve_simple(const weir_set *set, const struct weir_request *request,
                            enum purpose purpose, uint64_t *amounts)
{
    const struct weir_amount *asked = request->amounts;
    bool nothing = !request->amounts_n, known = nothing;

    if (request->amounts_n > 1 || (!nothing && (!asked || !asked->key)))
        return false;
    if (!nothing && asked->amount == REQUEST_AMOUNT_NONE)
        return false;
    for (uint32_t i = 0; i < set->limits.n; i++) {
        const struct limit *limit = &set->limits.items[i];
        uint64_t amount = limit->type != WEIR_LIMIT_RATE || nothing;

        if (!nothing && request_key_equal(limit->key, asked->key)) {
            amount = asked->amount;
            known = !limit_is_retired(limit);
        }
        if (amount > limit->capacity || (nothing && limit->type == WEIR_LIMIT_RATE))
            return false;
        if (purpose == PURPOSE_TAKE && amount && limit->type == WEIR_LIMIT_RESOURCE)
            return false;
        amounts[i] = amount;
    }
    return known;
}

int request_resolve(weir_set *set, const struct weir_request *request, enum purpose purpose,
                    uint64_t *amounts, const char **ret_key)
{
    WEIR_INVARIANT(set->limits.n <= WEIR_LIMITS_MAX);
    if (request_resolve_simple(set, request, purpose, amounts))
        return 0;
    for (uint32_t i = 0; i < set->limits.n; i++)
        amounts[i] = REQUEST_AMOUNT_NONE;
    for (size_t i = 0; i < request->amounts_n; i++) {
        int r = request_add_amount(set, request, purpose, &request->amounts[i], amounts, ret_key);

        if (r < 0)
            return r;
    }
    return request_apply_defaults(set, request, purpose, amounts, ret_key);
}
