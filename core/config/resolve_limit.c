/* SPDX-License-Identifier: MIT */
/* Limits of a definition become limits of a plan: type, key, algorithm and its configuration. */
#include "base/mutant.h"
#include "config/resolve.h"
#include "config/value.h"
#include "os/os.h"
#include <string.h>

static const char *const limit_fields[] = {"type",   "key",     "algorithm",
                                           "refund", "overuse", "lease"};
enum { FIELD_TYPE, FIELD_KEY, FIELD_ALGORITHM };

static const char *const limit_types[] = {"rate", "call", "resource"};

static const char *type_name(enum weir_limit_type type)
{
    return limit_types[type - WEIR_LIMIT_RATE];
}

/* A field is missing, unless a misspelled one was perhaps meant to be it. */
static bool is_missing(const struct resolver *resolver, const struct plugin *plugin,
                       const struct scalar *scalar, size_t field)
{
    size_t parameters_n = plugin != NULL ? plugin->parameters_n : 0;
    return !scalar_is_given(scalar) && !resolver->parameters.hinted[parameters_n + field];
}

static void limit_type_read(struct resolver *resolver, const struct limit_definition *definition,
                            const struct plugin *plugin, struct limit *limit)
{
    if (is_missing(resolver, plugin, &definition->type, FIELD_TYPE))
        say(resolver, -EINVAL, definition->mark, "a limit needs `type`: rate, call or resource");
    if (definition->type.text == NULL)
        return;
    int type = scalar_read_word(resolver->complaints, "type", &definition->type, limit_types,
                                LENGTH(limit_types));
    if (type < 0)
        return;
    limit->type = WEIR_LIMIT_RATE + (unsigned)type;
    if (plugin == NULL || (plugin->algorithm.types & (1u << limit->type)) != 0)
        return;
    char list[64] = "";
    for (unsigned i = 0; i < LENGTH(limit_types); i++) {
        if ((plugin->algorithm.types & (1u << (WEIR_LIMIT_RATE + i))) != 0)
            strcat(strcat(list, list[0] == '\0' ? "" : ", "), limit_types[i]);
    }
    say(resolver, -EINVAL, definition->algorithm.mark,
        "%s does not serve limits of type %s, only %s", plugin->name, type_name(limit->type), list);
}

static int limit_key_read(struct resolver *resolver, const struct limit_definition *definition,
                          const struct plugin *plugin, struct limit *limit)
{
    const char *key = definition->key.text;
    if (key == NULL && limit->type == WEIR_LIMIT_CALL && !scalar_is_given(&definition->key))
        key = "call_count";
    else if (limit->type != 0 && limit->type != WEIR_LIMIT_CALL &&
             is_missing(resolver, plugin, &definition->key, FIELD_KEY))
        say(resolver, -EINVAL, definition->mark, "a %s needs `key`: the name it is asked for by",
            type_name(limit->type));
    if (definition->key.text != NULL &&
        !scalar_check_name(resolver->complaints, "`key`", &definition->key))
        return 0;
    if (key == NULL)
        return 0;
    char *copy;
    int rc = copy_text(key, &copy);
    if (rc == 0)
        limit->key = copy;
    return rc;
}

static void limit_refund_read(struct resolver *resolver, const struct limit_definition *definition,
                              struct limit *limit)
{
    const struct weir_algorithm *algorithm = limit->algorithm;
    bool can = algorithm != NULL && algorithm->refund != NULL;
    if (limit->type == WEIR_LIMIT_RESOURCE) {
        if (scalar_is_given(&definition->refund))
            say(resolver, -EINVAL, definition->refund.mark,
                "`refund` is for rates and calls: a resource always gives everything back");
        return;
    }
    limit->refunds = can && (algorithm->flags & WEIR_ALGORITHM_REFUNDS) != 0;
    scalar_read_boolean(resolver->complaints, "refund", &definition->refund, &limit->refunds);
    if (limit->refunds && algorithm != NULL && !can && !MUTANT(86))
        say(resolver, -EINVAL, definition->refund.mark, "%s cannot refund: leave `refund` out",
            definition->algorithm.text);
}

static void limit_overuse_read(struct resolver *resolver, const struct limit_definition *definition,
                               struct limit *limit)
{
    static const char *const words[] = {"ignore", "charge"};
    if (!scalar_is_given(&definition->overuse))
        return;
    if (limit->type == WEIR_LIMIT_CALL || limit->type == WEIR_LIMIT_RESOURCE) {
        say(resolver, -EINVAL, definition->overuse.mark,
            "`overuse` is for rates: nothing else can be used beyond what was granted");
        return;
    }
    if (definition->overuse.text == NULL)
        return;
    limit->charges = scalar_read_word(resolver->complaints, "overuse", &definition->overuse, words,
                                      LENGTH(words)) == 1;
    if (limit->charges && limit->algorithm != NULL && limit->algorithm->charge == NULL)
        say(resolver, -EINVAL, definition->overuse.mark,
            "%s cannot charge what was used beyond the amount: `overuse` can only be ignore",
            definition->algorithm.text);
}

/* Units that are taken ahead of use must lie in one word while nobody waits, and be able to go back. */
static void limit_lease_read(struct resolver *resolver, const struct limit_definition *definition,
                             struct limit *limit)
{
    const struct scalar *lease = &definition->lease;
    const struct weir_algorithm *algorithm = limit->algorithm;
    if (!scalar_is_given(lease))
        return;
    if (limit->type == WEIR_LIMIT_RESOURCE)
        say(resolver, -EINVAL, lease->mark,
            "`lease` is for rates and calls: a resource is held, not used up");
    else if (algorithm == NULL || lease->text == NULL)
        return;
    else if (((algorithm->flags & WEIR_ALGORITHM_WORD) == 0 || algorithm->refund == NULL) &&
             !MUTANT(527))
        say(resolver, -EINVAL, lease->mark,
            "%s cannot lease: `lease` needs one word of state and a refund, as gcra has",
            definition->algorithm.text);
    else if (limit->state_words > 1)
        say(resolver, -EINVAL, lease->mark,
            "`lease` needs one word of state, and %s needs %u with these parameters: let a unit "
            "take a whole number of nanoseconds, and all of the burst less than 36 years",
            definition->algorithm.text, (unsigned)limit->state_words);
    else
        scalar_read_quantity(resolver->complaints, "lease", lease, false, 1,
                             limit->capacity != 0 ? limit->capacity : UINT64_MAX, &limit->lease);
}

/* Reads the parameters and makes the configuration. `plugin` is NULL, or the stand-in below. */
static int limit_configure(struct resolver *resolver, const struct owner *owner,
                           const struct plugin *plugin, struct limit *limit)
{
    bool ok;
    struct weir_footprint footprint;
    parameters_read(&resolver->parameters, owner, plugin, &ok);
    if (!ok)
        return 0;
    if (limit->algorithm == NULL) {
        limit->capacity = resolver->parameters.values[0].value;
        limit->state_words = 1;
        return 0;
    }
    int rc = parameters_configure(&resolver->parameters, owner, plugin, 0, &limit->config,
                                  &footprint, &ok);
    if (rc == 0 && ok) {
        limit->config_size = (size_t)footprint.config;
        limit->capacity = footprint.amount_max;
        limit->state_words = (uint32_t)(footprint.state / 8);
    }
    return rc;
}

static bool is_counted(const struct limit_definition *definition)
{
    return definition->type.text != NULL && strcmp(definition->type.text, "resource") == 0 &&
           !scalar_is_given(&definition->algorithm);
}

/* Appends one setting to what was written, or only measures it: `to` NULL. Returns its size. */
static size_t write_setting(const char *name, const char *value, char *to)
{
    size_t name_size = strlen(name) + 1, value_size = strlen(value) + 1;
    if (to != NULL) {
        memcpy(to, name, name_size);
        memcpy(to + name_size, value, value_size);
    }
    return name_size + value_size;
}

static size_t write_settings(const struct limit_definition *definition, char *to, uint32_t *ret_n)
{
    const struct settings *settings = &definition->settings;
    const struct scalar *fields[] = {&definition->refund, &definition->overuse, &definition->lease};
    static const char *const names[] = {"refund", "overuse", "lease"};
    size_t size = 0;
    *ret_n = 0;
    for (size_t i = 0; i < settings->n + LENGTH(fields); i++) {
        bool more = i >= settings->n;
        const char *name = more ? names[i - settings->n] : settings->items[i].name.text;
        const char *value = more ? fields[i - settings->n]->text : settings->items[i].value.text;
        if (name == NULL || value == NULL)
            continue;
        size += write_setting(name, value, to != NULL ? to + size : NULL);
        ++*ret_n;
    }
    return size;
}

/* Keeps what was written, for whoever looks at the set. */
static int limit_keep_written(const struct limit_definition *definition, struct limit *limit)
{
    size_t size = write_settings(definition, NULL, &limit->written_n);
    if (size == 0)
        return 0;
    limit->written = sys_alloc(size, 1);
    if (limit->written == NULL)
        return -ENOMEM;
    write_settings(definition, limit->written, &limit->written_n);
    return 0;
}

int limit_resolve(struct resolver *resolver, const struct limit_definition *definition,
                  struct limit *limit)
{
    /* What a resource without an algorithm is declared like: its units are just counted. */
    struct weir_parameter capacity = {.name = "capacity",
                                      .type = WEIR_PARAMETER_AMOUNT,
                                      .flags = WEIR_PARAMETER_REQUIRED,
                                      .min = 1,
                                      .max = UINT64_MAX,
                                      .doc = "how many units may be held at once"};
    const struct plugin counted = {.kind = WEIR_PLUGIN_ALGORITHM,
                                   .parameters = &capacity,
                                   .parameters_n = 1,
                                   .algorithm.types = 1u << WEIR_LIMIT_RESOURCE};
    const struct plugin *plugin = is_counted(definition) ? &counted : NULL;
    int rc = 0;
    if (definition->algorithm.text != NULL)
        rc = plugin_resolve(resolver, WEIR_PLUGIN_ALGORITHM, definition->algorithm.text,
                            definition->algorithm.mark, &plugin);
    const struct owner owner = {
        .mark = definition->mark,
        .settings = &definition->settings,
        .fields = limit_fields,
        .fields_n = LENGTH(limit_fields),
        .what = plugin == &counted ? "a counted resource"
                : plugin != NULL   ? plugin->name
                                   : NULL,
    };
    if (rc == 0)
        rc = parameters_assign(&resolver->parameters, &owner, plugin);
    if (rc < 0)
        return rc;
    if (plugin != NULL && plugin != &counted) {
        limit->algorithm = &plugin->algorithm;
        limit->algorithm_name = plugin->name;
        limit->algorithm_version = plugin->version;
    }
    limit_type_read(resolver, definition, plugin, limit);
    if (limit->type != 0 && plugin == NULL &&
        is_missing(resolver, plugin, &definition->algorithm, FIELD_ALGORITHM))
        say(resolver, -EINVAL, definition->mark,
            "a %s needs `algorithm`: token_bucket, for example", type_name(limit->type));
    limit_refund_read(resolver, definition, limit);
    limit_overuse_read(resolver, definition, limit);
    rc = limit_key_read(resolver, definition, plugin, limit);
    if (rc == 0)
        rc = limit_keep_written(definition, limit);
    if (rc == 0 && plugin != NULL)
        rc = limit_configure(resolver, &owner, plugin, limit);
    if (rc == 0)
        limit_lease_read(resolver, definition, limit);
    return rc;
}
