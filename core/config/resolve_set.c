/* SPDX-License-Identifier: MIT */
/* Sets of a definition become sets of a plan; their limits must go together. */
#include "base/mutant.h"
#include "config/resolve.h"
#include "config/value.h"
#include "os/os.h"
#include <stdlib.h>
#include <string.h>

/* A default for requests. Not given: WEIR_FOREVER. */
static void span_read(struct resolver *resolver, const char *field, const struct scalar *scalar,
                      uint64_t *ret_ns)
{
    *ret_ns = WEIR_FOREVER;
    if (scalar->text != NULL && strcmp(scalar->text, "forever") != 0)
        scalar_read_quantity(resolver->complaints, field, scalar, true, 1, WEIR_FOREVER - 1,
                             ret_ns);
}

/* Where the set lives, and until when. */
static void backend_read(struct resolver *resolver, const struct set_definition *definition,
                         struct set_plan *plan)
{
    static const char *const backends[] = {"thread", "process"};
    static const char *const lifetimes[] = {"boot", "users"};
    const struct scalar *backend = &definition->backend, *lifetime = &definition->lifetime;
    bool known = !scalar_is_given(backend);
    if (backend->text != NULL) {
        int i =
            scalar_read_word(resolver->complaints, "backend", backend, backends, LENGTH(backends));
        known = i >= 0;
        plan->backend = i == BACKEND_PROCESS ? BACKEND_PROCESS : BACKEND_THREAD;
    }
    if (known && plan->backend == BACKEND_THREAD && scalar_is_given(lifetime))
        say(resolver, -EINVAL, lifetime->mark,
            "`lifetime` is for sets that processes share: it needs `backend: process`");
    else if (lifetime->text != NULL)
        plan->while_used = scalar_read_word(resolver->complaints, "lifetime", lifetime, lifetimes,
                                            LENGTH(lifetimes)) == 1;
}

/* A key of its own for each subject. Whether it is one: what its limits are is not known yet. */
static void keyed_read(struct resolver *resolver, const struct set_definition *definition,
                       struct set_plan *plan)
{
    static const char *const policies[] = {"oldest", "random", "none"};
    const struct keyed_definition *keyed = &definition->keyed;
    int i;
    if (!keyed->given)
        return;
    if (!scalar_is_given(&keyed->max_keys))
        say(resolver, -EINVAL, keyed->mark,
            "`max_keys` is missing: how many keys the set may know at a time");
    else if (keyed->max_keys.text != NULL)
        scalar_read_quantity(resolver->complaints, "max_keys", &keyed->max_keys, false, 1,
                             WEIR_KEYS_MAX, &plan->keyed.max_keys);
    if (keyed->memory.text != NULL)
        scalar_read_size(resolver->complaints, "memory", &keyed->memory, KEYED_MEMORY_MIN,
                         KEYED_MEMORY_MAX, &plan->keyed.memory);
    if (keyed->evict.text != NULL) {
        i = scalar_read_word(resolver->complaints, "evict", &keyed->evict, policies,
                             LENGTH(policies));
        plan->keyed.evict = i < 0 ? EVICT_OLDEST : (enum evict)i;
    }
    if (definition->limits_n == 0 && !MUTANT(450))
        say(resolver, -EINVAL, keyed->mark,
            "`keyed` is for sets with limits: without them there is nothing to know of a key");
}

static void set_fields_read(struct resolver *resolver, const struct set_definition *definition,
                            struct set_plan *plan)
{
    uint64_t waiters;
    plan->fair = true;
    backend_read(resolver, definition, plan);
    keyed_read(resolver, definition, plan);
    span_read(resolver, "timeout", &definition->timeout, &plan->timeout_ns);
    span_read(resolver, "max_wait", &definition->max_wait, &plan->max_wait_ns);
    scalar_read_boolean(resolver->complaints, "strict", &definition->strict, &plan->strict);
    scalar_read_boolean(resolver->complaints, "fair", &definition->fair, &plan->fair);
    if (definition->max_waiters.text != NULL &&
        scalar_read_quantity(resolver->complaints, "max_waiters", &definition->max_waiters, false,
                             1, UINT32_MAX, &waiters))
        plan->max_waiters = (uint32_t)waiters;
}

/* By name; those of one name stay in the order of the text. */
static int by_name(const void *left, const void *right)
{
    const struct setting *a = *(const struct setting *const *)left;
    const struct setting *b = *(const struct setting *const *)right;
    int order = strcmp(a->name.text, b->name.text);
    return order != 0 ? order : a < b ? -1 : 1;
}

static int set_config_fill(struct resolver *resolver, const struct setting **sorted, size_t n,
                           struct set_plan *plan)
{
    for (size_t i = 0; i < n; i++) {
        const struct setting *setting = sorted[i];
        if (!scalar_check_name(resolver->complaints, "a name in `config`", &setting->name))
            continue;
        if (i > 0 && strcmp(sorted[i - 1]->name.text, setting->name.text) == 0) {
            say(resolver, -EINVAL, setting->name.mark, "`%s` is given twice in `config`",
                show(setting->name.text).text);
            continue;
        }
        if (setting->value.text == NULL)
            continue;
        struct name_value *item = &plan->config[plan->config_n];
        plan->config_n++;
        if (copy_text(setting->name.text, &item->name) < 0 ||
            copy_text(setting->value.text, &item->value) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int set_config_read(struct resolver *resolver, const struct settings *config,
                           struct set_plan *plan)
{
    if (config->n == 0)
        return 0;
    plan->config = sys_alloc(config->n, sizeof *plan->config);
    const struct setting **sorted = sys_alloc(config->n, sizeof *sorted);
    int rc = -ENOMEM;
    if (plan->config != NULL && sorted != NULL) {
        for (size_t i = 0; i < config->n; i++)
            sorted[i] = &config->items[i];
        qsort(sorted, config->n, sizeof *sorted, by_name);
        rc = set_config_fill(resolver, sorted, config->n, plan);
    }
    sys_free(sorted);
    return rc;
}

/* An amount is asked for by key: limits with one key must mean the same by it. */
static void limit_key_compare(struct resolver *resolver, const struct set_definition *definition,
                              const struct limit *limits, size_t at)
{
    for (size_t i = 0; i < at; i++) {
        if (limits[i].key == NULL || limits[at].key == NULL || limits[i].type == 0 ||
            limits[at].type == 0 || limits[i].type == limits[at].type ||
            strcmp(limits[i].key, limits[at].key) != 0 || MUTANT(85))
            continue;
        const struct limit_definition *limit = &definition->limits[at];
        say(resolver, -EINVAL, limit->key.mark.line != 0 ? limit->key.mark : limit->mark,
            "limit %zu of this set has the key `%s` too, but is a %s: limits with one key must be "
            "of one type",
            i + 1, show(limits[at].key).text, definition->limits[i].type.text);
        return;
    }
}

/* Places a limit's state behind those of the limits before it. */
static void limit_place(struct resolver *resolver, const struct set_definition *definition,
                        struct set_plan *plan, struct limit *limit)
{
    limit->state_at = plan->state_words;
    if (limit->state_words > SET_STATE_WORDS_MAX - plan->state_words)
        say(resolver, -EINVAL, definition->limits[limit - plan->limits].mark,
            "the limits of this set need more than %u MiB together",
            (unsigned)(WEIR_STATE_MAX >> 20));
    else if (!MUTANT(89))
        plan->state_words += limit->state_words;
}

/* What was taken ahead of one limit would be held back from the others. */
static void limit_lease_alone(struct resolver *resolver, const struct set_definition *definition,
                              size_t at)
{
    if (definition->limits[at].lease.text == NULL || MUTANT(526))
        return;
    if (definition->keyed.given)
        say(resolver, -EINVAL, definition->limits[at].lease.mark,
            "`lease` is for sets that are not keyed: a thread keeps units of one set, not of keys");
    if (definition->limits_n > 1)
        say(resolver, -EINVAL, definition->limits[at].lease.mark,
            "`lease` needs a set of this one limit, not of %zu", definition->limits_n);
}

static int set_limits_read(struct resolver *resolver, const struct set_definition *definition,
                           struct set_plan *plan)
{
    size_t n = definition->limits_n;
    if (n > WEIR_LIMITS_MAX) {
        say(resolver, -EINVAL, definition->limits[WEIR_LIMITS_MAX].mark,
            "a set has at most %d limits, not %zu", WEIR_LIMITS_MAX, n);
        n = WEIR_LIMITS_MAX;
    }
    if (n == 0)
        return 0;
    plan->limits = sys_alloc(n, sizeof *plan->limits);
    if (plan->limits == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        resolver->complaints->place.limit_number = (uint32_t)i + 1;
        plan->limits_n = (uint32_t)i + 1;
        int rc = limit_resolve(resolver, &definition->limits[i], &plan->limits[i]);
        if (rc < 0)
            return rc;
        limit_key_compare(resolver, definition, plan->limits, i);
        limit_lease_alone(resolver, definition, i);
        limit_place(resolver, definition, plan, &plan->limits[i]);
    }
    return 0;
}

int set_resolve(struct resolver *resolver, const struct set_definition *definition,
                struct set_plan *plan)
{
    resolver->complaints->place = (struct place){.set = definition->name.text};
    int rc = copy_text(definition->name.text, &plan->name);
    if (rc < 0)
        return rc;
    set_fields_read(resolver, definition, plan);
    rc = set_config_read(resolver, &definition->config, plan);
    if (rc == 0)
        rc = set_limits_read(resolver, definition, plan);
    resolver->complaints->place = (struct place){0};
    return rc;
}
