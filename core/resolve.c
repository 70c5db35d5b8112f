/* SPDX-License-Identifier: MIT */
/*
 * From a definition to a plan: names are looked up, values are read and checked against what the
 * plugins declare, and the layout of the sets' states is computed. Every mistake becomes a
 * complaint; functions return 0 whether they complained or not, and -ENOMEM.
 */
#include "mutant.h"
#include "names.h"
#include "plan.h"
#include "quantity.h"
#include "sys.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* Hints to sets' names end here, so that a large and very wrong file is not read for ever. */
#define COMPARISONS_MAX ((size_t)1 << 22)

/* A plugin that was looked for, so that it is looked for once. */
struct found {
    struct found *next;
    const struct plugin *plugin; /* NULL: refused */
    struct weir_error refusal;
};

struct resolver {
    const struct definition *definition;
    struct plugins *plugins;
    const struct known_names *known;
    struct plan *plan;
    struct complaints *complaints;

    struct names names; /* of the plan's sets and pools */
    struct names algorithms, balancers;
    struct found *found;         /* all that `algorithms` and `balancers` name */
    const char **set_candidates; /* names of all sets, once a hint was wanted */
    size_t comparisons;          /* made for such hints */

    /* Values for one call of `configure`, and what else is known of them. */
    struct weir_value *values;
    const struct setting **given; /* NULL: the default is used */
    bool *hinted;                 /* an unknown field was perhaps meant to be this one */
    size_t values_room;
};

/* The owner of parameters: a limit or a pool. */
struct owner {
    struct mark mark;
    const struct settings *settings;
    const char *const *fields; /* what else may be written there */
    size_t fields_n;
    const char *what; /* the algorithm's or balancer's name */
};

#define say(resolver, code, mark, ...)                                                             \
    ((void)complain((resolver)->complaints, code_for((mark), (code)), (mark), __VA_ARGS__))

/* In a text every mistake is one of the configuration; in code it may be about what exists. */
static int code_for(struct mark mark, int code)
{
    return mark.line != 0 && code != -ENOEXEC ? -EINVAL : code;
}

/* Given in a shape that was complained about when it was read. */
static bool is_spoilt(const struct scalar *scalar)
{
    return scalar->text == NULL && scalar->mark.line != 0;
}

static bool is_given(const struct scalar *scalar)
{
    return scalar->text != NULL || scalar->mark.line != 0;
}

static int copy_text(const char *text, char **ret)
{
    *ret = sys_strdup(text);
    return *ret != NULL ? 0 : -ENOMEM;
}

/* ---- single values ---- */

/* Names and keys: what a person can read in a message and type again. */
static bool name_check(struct resolver *resolver, const char *what, const struct scalar *name)
{
    size_t length = strlen(name->text);
    const char *wrong = NULL;
    if (length == 0)
        wrong = "must not be empty";
    else if (length > CONFIG_NAME_MAX)
        wrong = "is longer than 255 bytes";
    else if (utf8_length(name->text, length) != length)
        wrong = "is not UTF-8";
    for (size_t i = 0; wrong == NULL && i < length; i++) {
        if ((unsigned char)name->text[i] < 0x20 || name->text[i] == 0x7f)
            wrong = "must not hold control characters";
    }
    if (wrong != NULL)
        say(resolver, -EINVAL, name->mark, "%s %s", what, wrong);
    return wrong == NULL;
}

/* Reads one of `words`, or complains. Returns its index, or -1. */
static int word_read(struct resolver *resolver, const char *field, const struct scalar *scalar,
                     const char *const *words, size_t n)
{
    char list[256] = "";
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(scalar->text, words[i]) == 0)
            return (int)i;
        if (length < sizeof list)
            length += (size_t)snprintf(list + length, sizeof list - length, "%s%s",
                                       i == 0 ? "" : (i + 1 < n ? ", " : " or "), words[i]);
    }
    say(resolver, -EINVAL, scalar->mark, "`%s` takes %s, not `%s`%s", field, list,
        show(scalar->text).text, hint_of(closest_word(scalar->text, words, n)).text);
    return -1;
}

static void boolean_read(struct resolver *resolver, const char *field, const struct scalar *scalar,
                         bool *ret)
{
    if (scalar->text != NULL && quantity_boolean(scalar->text, ret) < 0)
        say(resolver, -EINVAL, scalar->mark, "`%s` takes true or false, not `%s`", field,
            show(scalar->text).text);
}

typedef int quantity_read(const char *text, uint64_t *ret);
typedef const char *quantity_write(uint64_t value, char buffer[QUANTITY_TEXT_MAX]);

/* An amount or a duration within [min, max]. False: it was complained about. */
static bool quantity_check(struct resolver *resolver, const char *field,
                           const struct scalar *scalar, bool is_duration, uint64_t min,
                           uint64_t max, uint64_t *ret)
{
    quantity_read *read = is_duration ? quantity_duration : quantity_amount;
    quantity_write *write = is_duration ? quantity_write_duration : quantity_write_amount;
    char low[QUANTITY_TEXT_MAX], high[QUANTITY_TEXT_MAX];
    uint64_t value;
    int rc = read(scalar->text, &value);
    if (rc == -ERANGE)
        value = UINT64_MAX;
    if (rc == -EINVAL)
        say(resolver, -EINVAL, scalar->mark, "`%s` takes %s, not `%s`", field,
            is_duration ? "a duration such as 250ms, 60s or 1d"
                        : "a whole amount such as 100, 10k or 1M",
            show(scalar->text).text);
    else if (value < min && !MUTANT(81))
        say(resolver, -EINVAL, scalar->mark, "`%s` must be at least %s, not %s", field,
            write(min, low), show(scalar->text).text);
    else if (rc == -ERANGE || (value > max && !MUTANT(81)))
        say(resolver, -EINVAL, scalar->mark, "`%s` must be at most %s, not %s", field,
            write(max, high), show(scalar->text).text);
    else {
        *ret = value;
        return true;
    }
    return false;
}

/* ---- plugins and their parameters ---- */

/* Finds a plugin, or complains at `mark` and leaves NULL. */
static int plugin_read(struct resolver *resolver, enum weir_plugin_kind kind, const char *name,
                       struct mark mark, const struct plugin **ret)
{
    struct names *cache =
        kind == WEIR_PLUGIN_ALGORITHM ? &resolver->algorithms : &resolver->balancers;
    const struct name_entry *entry = names_find(cache, name);
    struct found *found;
    *ret = NULL;
    if (entry != NULL) {
        found = entry->set;
    } else {
        found = sys_alloc(1, sizeof *found);
        if (found == NULL)
            return -ENOMEM;
        found->next = resolver->found;
        resolver->found = found;
        if (names_reserve(cache, 1) < 0)
            return -ENOMEM;
        int rc = plugins_find(resolver->plugins, kind, name, &found->plugin, &found->refusal);
        if (rc == -ENOMEM)
            return rc;
        found->refusal.code = rc;
        names_add(cache, name, found, NULL);
    }
    if (found->refusal.code < 0)
        say(resolver, found->refusal.code, mark, "%s", found->refusal.message);
    else
        *ret = found->plugin;
    return 0;
}

/* Room for the values of `n` parameters and the hints of `fields_n` other fields. */
static int values_reserve(struct resolver *resolver, size_t n)
{
    if (n > resolver->values_room) {
        sys_free(resolver->values);
        sys_free(resolver->given);
        sys_free(resolver->hinted);
        resolver->values_room = 0;
        resolver->values = sys_alloc(n, sizeof *resolver->values);
        resolver->given = sys_alloc(n, sizeof *resolver->given);
        resolver->hinted = sys_alloc(n, sizeof *resolver->hinted);
        if (resolver->values == NULL || resolver->given == NULL || resolver->hinted == NULL)
            return -ENOMEM;
        resolver->values_room = n;
    }
    for (size_t i = 0; i < n; i++) {
        resolver->given[i] = NULL;
        resolver->hinted[i] = false;
    }
    return 0;
}

/*
 * A field that neither the owner nor its plugin has. The hint, if there is one, marks what it names
 * as hinted: that it is missing need not be said as well. `plugin` NULL: not known, so only what
 * resembles a field of the owner is certainly wrong.
 */
static void complain_of_unknown(struct resolver *resolver, const struct owner *owner,
                                const struct plugin *plugin, const struct setting *setting)
{
    const char *candidates[CONFIG_SETTINGS_MAX + 8] = {NULL};
    size_t parameters_n = plugin != NULL ? plugin->parameters_n : 0, n = 0;
    char list[256] = "";
    size_t length = 0;
    if (parameters_n > CONFIG_SETTINGS_MAX)
        parameters_n = CONFIG_SETTINGS_MAX;
    for (size_t i = 0; i < parameters_n + owner->fields_n; i++) {
        const char *name =
            i < parameters_n ? plugin->parameters[i].name : owner->fields[i - parameters_n];
        candidates[n++] = name;
        if (length < sizeof list)
            length += (size_t)snprintf(list + length, sizeof list - length, "%s%s",
                                       i == 0 ? "" : ", ", name);
    }
    const char *closest = closest_word(setting->name.text, candidates, n);
    for (size_t i = 0; closest != NULL && i < n; i++) {
        if (candidates[i] == closest)
            resolver->hinted[i] = true;
    }
    if (closest != NULL)
        say(resolver, -EINVAL, setting->name.mark, "unknown field `%s`%s",
            show(setting->name.text).text, hint_of(closest).text);
    else if (owner->what != NULL)
        say(resolver, -EINVAL, setting->name.mark, "`%s` is not a field of %s; there are: %s",
            show(setting->name.text).text, owner->what, list);
}

/* Assigns the settings to the plugin's parameters; complains of those that belong to none. */
static int settings_assign(struct resolver *resolver, const struct owner *owner,
                           const struct plugin *plugin)
{
    size_t parameters_n = plugin != NULL ? plugin->parameters_n : 0;
    int rc = values_reserve(resolver, parameters_n + owner->fields_n);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < owner->settings->n; i++) {
        const struct setting *setting = &owner->settings->items[i];
        size_t at = 0;
        while (at < parameters_n && strcmp(plugin->parameters[at].name, setting->name.text) != 0)
            at++;
        if (at < parameters_n && resolver->given[at] != NULL)
            say(resolver, -EINVAL, setting->name.mark, "`%s` is given twice",
                show(setting->name.text).text);
        else if (at < parameters_n)
            resolver->given[at] = setting;
        else if (!MUTANT(84))
            complain_of_unknown(resolver, owner, plugin, setting);
    }
    return 0;
}

/* Reads the value of one parameter. False: it was complained about, now or before. */
static bool parameter_read(struct resolver *resolver, const struct weir_parameter *parameter,
                           const struct setting *setting, uint64_t *ret)
{
    const struct scalar *value = &setting->value;
    bool truth = false;
    int word;
    size_t n = 0;
    if (value->text == NULL)
        return false;
    switch (parameter->type) {
    case WEIR_PARAMETER_AMOUNT:
    case WEIR_PARAMETER_DURATION:
        return quantity_check(resolver, parameter->name, value,
                              parameter->type == WEIR_PARAMETER_DURATION, parameter->min,
                              parameter->max, ret);
    case WEIR_PARAMETER_BOOLEAN:
        boolean_read(resolver, parameter->name, value, &truth);
        *ret = truth;
        return quantity_boolean(value->text, &truth) == 0;
    default:
        while (parameter->choices[n] != NULL)
            n++;
        word = word_read(resolver, parameter->name, value, parameter->choices, n);
        *ret = (uint64_t)word;
        return word >= 0;
    }
}

/* Fills resolver->values. `*ret_ok` false: something was complained about. */
static void values_read(struct resolver *resolver, const struct owner *owner,
                        const struct plugin *plugin, bool *ret_ok)
{
    *ret_ok = true;
    for (uint32_t i = 0; i < plugin->parameters_n; i++) {
        const struct weir_parameter *parameter = &plugin->parameters[i];
        const struct setting *setting = resolver->given[i];
        struct weir_value *value = &resolver->values[i];
        *value = (struct weir_value){.value = parameter->default_value, .given = setting != NULL};
        if (setting != NULL) {
            if (!parameter_read(resolver, parameter, setting, &value->value))
                *ret_ok = false;
        } else if ((parameter->flags & WEIR_PARAMETER_REQUIRED) != 0) {
            *ret_ok = false;
            const char *doc = parameter->doc != NULL ? parameter->doc : "";
            if (!resolver->hinted[i])
                say(resolver, -EINVAL, owner->mark, "%s needs `%s`%s%s", owner->what,
                    parameter->name, doc[0] != '\0' ? ": " : "", doc);
        }
    }
}

/* One call of a plugin's `configure`, with the arguments that its kind has. */
static int configure(struct resolver *resolver, const struct plugin *plugin, uint32_t sets_n,
                     void *config, struct weir_footprint *ret, struct weir_reason *reterr)
{
    *ret = (struct weir_footprint){.size = sizeof *ret};
    *reterr = (struct weir_reason){.parameter = UINT32_MAX};
    int rc = plugin->kind == WEIR_PLUGIN_ALGORITHM
                 ? plugin->algorithm.configure(resolver->values, config, ret, reterr)
                 : plugin->balancer.configure(resolver->values, sets_n, config, ret, reterr);
    reterr->message[sizeof reterr->message - 1] = '\0';
    return rc;
}

/* What the plugin says of its own needs must make sense. */
static bool footprint_is_sane(const struct plugin *plugin, const struct weir_footprint *footprint)
{
    return footprint->config <= WEIR_CONFIG_MAX && footprint->state <= WEIR_STATE_MAX &&
           footprint->state % 8 == 0 &&
           (plugin->kind == WEIR_PLUGIN_BALANCER || footprint->amount_max >= 1);
}

static void complain_of_reason(struct resolver *resolver, const struct owner *owner,
                               const struct plugin *plugin, const struct weir_reason *reason)
{
    struct mark mark = owner->mark;
    if (reason->parameter < plugin->parameters_n && resolver->given[reason->parameter] != NULL)
        mark = resolver->given[reason->parameter]->value.mark;
    say(resolver, -EINVAL, mark, "%s: %s", owner->what, reason->message);
}

/*
 * Lets the plugin make its configuration, in two calls: how large it is, then its bytes. `*ret_ok`
 * false: something was complained about; there is no configuration then.
 */
static int config_make(struct resolver *resolver, const struct owner *owner,
                       const struct plugin *plugin, uint32_t sets_n, void **ret_config,
                       struct weir_footprint *ret, bool *ret_ok)
{
    struct weir_footprint again;
    struct weir_reason reason;
    *ret_ok = false;
    if (configure(resolver, plugin, sets_n, NULL, ret, &reason) != 0) {
        complain_of_reason(resolver, owner, plugin, &reason);
        return 0;
    }
    if (!footprint_is_sane(plugin, ret)) {
        say(resolver, -ENOEXEC, owner->mark, "plugin `%s` asks for impossible memory (%s)",
            plugin->name, plugin->path);
        return 0;
    }
    void *config = sys_alloc_aligned(16, ret->config > 0 ? (size_t)ret->config : 16);
    if (config == NULL)
        return -ENOMEM;
    if (configure(resolver, plugin, sets_n, config, &again, &reason) != 0 ||
        again.config != ret->config || again.state != ret->state ||
        again.amount_max != ret->amount_max) {
        sys_free(config);
        say(resolver, -ENOEXEC, owner->mark, "plugin `%s` contradicts itself when configured (%s)",
            plugin->name, plugin->path);
        return 0;
    }
    *ret_config = config;
    *ret_ok = true;
    return 0;
}

/* ---- limits ---- */

static const char *const limit_fields[] = {"type", "key", "algorithm", "refund", "overuse"};
enum { FIELD_TYPE, FIELD_KEY, FIELD_ALGORITHM };

static const char *const limit_types[] = {"rate", "call", "resource"};

static const char *type_name(enum weir_limit_type type)
{
    return limit_types[type - WEIR_LIMIT_RATE];
}

/* A field is missing, unless a misspelt one was perhaps meant to be it. */
static bool is_missing(const struct resolver *resolver, const struct plugin *plugin,
                       const struct scalar *scalar, size_t field)
{
    size_t parameters_n = plugin != NULL ? plugin->parameters_n : 0;
    return !is_given(scalar) && !resolver->hinted[parameters_n + field];
}

static void limit_type_read(struct resolver *resolver, const struct limit_definition *definition,
                            const struct plugin *plugin, struct limit *limit)
{
    if (is_missing(resolver, plugin, &definition->type, FIELD_TYPE))
        say(resolver, -EINVAL, definition->mark, "a limit needs `type`: rate, call or resource");
    if (definition->type.text == NULL)
        return;
    int type = word_read(resolver, "type", &definition->type, limit_types, LENGTH(limit_types));
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
    if (key == NULL && limit->type == WEIR_LIMIT_CALL && !is_given(&definition->key))
        key = "call_count";
    else if (limit->type != 0 && limit->type != WEIR_LIMIT_CALL &&
             is_missing(resolver, plugin, &definition->key, FIELD_KEY))
        say(resolver, -EINVAL, definition->mark, "a %s needs `key`: the name it is asked for by",
            type_name(limit->type));
    if (definition->key.text != NULL && !name_check(resolver, "`key`", &definition->key))
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
        if (is_given(&definition->refund))
            say(resolver, -EINVAL, definition->refund.mark,
                "`refund` is for rates and calls: a resource always gives everything back");
        return;
    }
    limit->refunds = can && (algorithm->flags & WEIR_ALGORITHM_REFUNDS) != 0;
    boolean_read(resolver, "refund", &definition->refund, &limit->refunds);
    if (limit->refunds && algorithm != NULL && !can && !MUTANT(86))
        say(resolver, -EINVAL, definition->refund.mark, "%s cannot refund: leave `refund` out",
            definition->algorithm.text);
}

static void limit_overuse_read(struct resolver *resolver, const struct limit_definition *definition,
                               struct limit *limit)
{
    static const char *const words[] = {"ignore", "charge"};
    if (!is_given(&definition->overuse))
        return;
    if (limit->type == WEIR_LIMIT_CALL || limit->type == WEIR_LIMIT_RESOURCE) {
        say(resolver, -EINVAL, definition->overuse.mark,
            "`overuse` is for rates: nothing else can be used beyond what was granted");
        return;
    }
    if (definition->overuse.text == NULL)
        return;
    limit->charges =
        word_read(resolver, "overuse", &definition->overuse, words, LENGTH(words)) == 1;
    if (limit->charges && limit->algorithm != NULL && limit->algorithm->charge == NULL)
        say(resolver, -EINVAL, definition->overuse.mark,
            "%s cannot charge what was used beyond the amount: `overuse` can only be ignore",
            definition->algorithm.text);
}

/* Reads the parameters and makes the configuration. `plugin` is NULL, or the stand-in below. */
static int limit_configure(struct resolver *resolver, const struct owner *owner,
                           const struct plugin *plugin, struct limit *limit)
{
    bool ok;
    struct weir_footprint footprint;
    values_read(resolver, owner, plugin, &ok);
    if (!ok)
        return 0;
    if (limit->algorithm == NULL) {
        limit->capacity = resolver->values[0].value;
        limit->state_words = 1;
        return 0;
    }
    int rc = config_make(resolver, owner, plugin, 0, &limit->config, &footprint, &ok);
    if (rc == 0 && ok) {
        limit->capacity = footprint.amount_max;
        limit->state_words = (uint32_t)(footprint.state / 8);
    }
    return rc;
}

static bool is_counted(const struct limit_definition *definition)
{
    return definition->type.text != NULL && strcmp(definition->type.text, "resource") == 0 &&
           !is_given(&definition->algorithm);
}

static int limit_resolve(struct resolver *resolver, const struct limit_definition *definition,
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
        rc = plugin_read(resolver, WEIR_PLUGIN_ALGORITHM, definition->algorithm.text,
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
        rc = settings_assign(resolver, &owner, plugin);
    if (rc < 0)
        return rc;
    if (plugin != NULL && plugin != &counted) {
        limit->algorithm = &plugin->algorithm;
        limit->algorithm_name = plugin->name;
    }
    limit_type_read(resolver, definition, plugin, limit);
    if (limit->type != 0 && plugin == NULL &&
        is_missing(resolver, plugin, &definition->algorithm, FIELD_ALGORITHM))
        say(resolver, -EINVAL, definition->mark,
            "a %s needs `algorithm`: token_bucket, for example", type_name(limit->type));
    limit_refund_read(resolver, definition, limit);
    limit_overuse_read(resolver, definition, limit);
    rc = limit_key_read(resolver, definition, plugin, limit);
    if (rc == 0 && plugin != NULL)
        rc = limit_configure(resolver, &owner, plugin, limit);
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
            i + 1, show(limits[at].key).text, type_name(limits[i].type));
        return;
    }
}

/* ---- sets ---- */

/* A default for requests. Not given: WEIR_FOREVER. */
static void span_read(struct resolver *resolver, const char *field, const struct scalar *scalar,
                      uint64_t *ret_ns)
{
    *ret_ns = WEIR_FOREVER;
    if (scalar->text != NULL && strcmp(scalar->text, "forever") != 0)
        quantity_check(resolver, field, scalar, true, 1, WEIR_FOREVER - 1, ret_ns);
}

static void backend_read(struct resolver *resolver, const struct scalar *backend)
{
    static const char *const backends[] = {"thread", "process", "redis"};
    if (backend->text == NULL)
        return;
    if (word_read(resolver, "backend", backend, backends, LENGTH(backends)) > 0)
        say(resolver, -EINVAL, backend->mark,
            "backend `%s` is not available in this version: use thread", backend->text);
}

static void set_fields_read(struct resolver *resolver, const struct set_definition *definition,
                            struct set_plan *plan)
{
    uint64_t waiters;
    plan->fair = true;
    backend_read(resolver, &definition->backend);
    span_read(resolver, "timeout", &definition->timeout, &plan->timeout_ns);
    span_read(resolver, "max_wait", &definition->max_wait, &plan->max_wait_ns);
    boolean_read(resolver, "strict", &definition->strict, &plan->strict);
    boolean_read(resolver, "fair", &definition->fair, &plan->fair);
    if (definition->max_waiters.text != NULL &&
        quantity_check(resolver, "max_waiters", &definition->max_waiters, false, 1, UINT32_MAX,
                       &waiters))
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
        if (!name_check(resolver, "a name in `config`", &setting->name))
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
        limit_place(resolver, definition, plan, &plan->limits[i]);
    }
    return 0;
}

static int set_resolve(struct resolver *resolver, const struct set_definition *definition,
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

/* ---- pools ---- */

/* Complains of a name that is no set of the plan or the instance. */
static int complain_of_missing_set(struct resolver *resolver, const struct scalar *name,
                                   bool is_pool)
{
    const struct definition *definition = resolver->definition;
    const char *closest = NULL;
    if (is_pool) {
        say(resolver, -EINVAL, name->mark, "`%s` is a pool: a pool is made of sets",
            show(name->text).text);
        return 0;
    }
    resolver->comparisons += definition->sets_n;
    if (!complaints_full(resolver->complaints) && resolver->comparisons <= COMPARISONS_MAX) {
        if (resolver->set_candidates == NULL) {
            resolver->set_candidates = sys_alloc(definition->sets_n, sizeof(char *));
            if (resolver->set_candidates == NULL)
                return -ENOMEM;
            for (size_t i = 0; i < definition->sets_n; i++)
                resolver->set_candidates[i] = definition->sets[i].name.text;
        }
        closest = closest_word(name->text, resolver->set_candidates, definition->sets_n);
    }
    say(resolver, -ENOENT, name->mark, "there is no set `%s`%s", show(name->text).text,
        hint_of(closest).text);
    return 0;
}

static bool is_known(const struct resolver *resolver, const char *name, bool *ret_is_pool)
{
    const struct known_names *known = resolver->known;
    return known != NULL && known->find != NULL && known->find(known->userdata, name, ret_is_pool);
}

/* Complains unless the name is that of a set. */
static int pool_set_check(struct resolver *resolver, const struct scalar *name)
{
    const struct name_entry *entry = names_find(&resolver->names, name->text);
    bool is_pool = entry != NULL && entry->pool != NULL;
    if (MUTANT(82) || (entry != NULL && !is_pool))
        return 0;
    if (entry == NULL && is_known(resolver, name->text, &is_pool) && !is_pool)
        return 0;
    return complain_of_missing_set(resolver, name, is_pool);
}

static int pool_sets_read(struct resolver *resolver, const struct pool_definition *definition,
                          struct pool_plan *plan)
{
    struct names seen = {0};
    int rc = 0;
    if (definition->sets_n == 0)
        return 0;
    plan->sets = sys_alloc(definition->sets_n, sizeof *plan->sets);
    if (plan->sets == NULL || names_reserve(&seen, definition->sets_n) < 0)
        rc = -ENOMEM;
    for (size_t i = 0; i < definition->sets_n && rc == 0; i++) {
        const struct scalar *name = &definition->sets[i];
        if (names_find(&seen, name->text) != NULL) {
            say(resolver, -EINVAL, name->mark, "the set `%s` is named twice here",
                show(name->text).text);
            continue;
        }
        rc = copy_text(name->text, &plan->sets[plan->sets_n]);
        if (rc < 0)
            break;
        names_add(&seen, plan->sets[plan->sets_n], plan->sets, NULL);
        plan->sets_n++;
        rc = pool_set_check(resolver, name);
    }
    names_free(&seen);
    return rc;
}

static int pool_balancer_read(struct resolver *resolver, const struct pool_definition *definition,
                              struct pool_plan *plan)
{
    static const char *const fields[] = {"balancer", "seed", "sets"};
    const struct scalar *name = &definition->balancer;
    const struct plugin *plugin = NULL;
    int rc = 0;
    if (name->text == NULL && definition->settings.n == 0 && definition->sets_n <= 1)
        return 0; /* nothing to choose from */
    if (!is_spoilt(name))
        rc = plugin_read(resolver, WEIR_PLUGIN_BALANCER,
                         name->text != NULL ? name->text : "round_robin",
                         name->text != NULL ? name->mark : definition->name.mark, &plugin);
    const struct owner owner = {.mark = definition->name.mark,
                                .settings = &definition->settings,
                                .fields = fields,
                                .fields_n = LENGTH(fields),
                                .what = plugin != NULL ? plugin->name : NULL};
    if (rc == 0)
        rc = settings_assign(resolver, &owner, plugin);
    if (rc < 0 || plugin == NULL)
        return rc;
    bool ok;
    struct weir_footprint footprint;
    values_read(resolver, &owner, plugin, &ok);
    if (ok && plugin->balancer.configure != NULL) {
        uint32_t sets_n = plan->sets_n > 0 ? plan->sets_n : 1;
        rc = config_make(resolver, &owner, plugin, sets_n, &plan->config, &footprint, &ok);
        if (rc == 0 && ok)
            plan->state_words = (uint32_t)(footprint.state / 8);
    }
    plan->balancer = plugin;
    return rc;
}

static int pool_resolve(struct resolver *resolver, const struct pool_definition *definition,
                        struct pool_plan *plan)
{
    resolver->complaints->place = (struct place){.pool = definition->name.text};
    int rc = 0;
    if (definition->name.text != NULL)
        rc = copy_text(definition->name.text, &plan->name);
    if (rc == 0)
        rc = pool_sets_read(resolver, definition, plan);
    if (rc == 0)
        rc = pool_balancer_read(resolver, definition, plan);
    if (definition->seed.text != NULL)
        quantity_check(resolver, "seed", &definition->seed, false, 1, UINT64_MAX, &plan->seed);
    resolver->complaints->place = (struct place){0};
    return rc;
}

/* ---- all of it ---- */

static void complain_of_taken(struct resolver *resolver, const struct scalar *name, bool is_pool,
                              struct mark earlier)
{
    char line[32] = "";
    if (earlier.line != 0)
        snprintf(line, sizeof line, " (line %u)", earlier.line);
    say(resolver, -EEXIST, name->mark,
        "the name `%s` is already that of a %s%s: sets and pools share their names",
        show(name->text).text, is_pool ? "pool" : "set", line);
}

/* Adds a name to the namespace of sets and pools, or complains that it is taken. */
static void name_register(struct resolver *resolver, const struct scalar *name,
                          struct set_plan *set, struct pool_plan *pool)
{
    bool is_pool = false;
    /* Even a name that will not do is known from here on: a pool that names it is not wrong too. */
    name_check(resolver, set != NULL ? "the name of a set" : "the name of a pool", name);
    const struct name_entry *entry = names_find(&resolver->names, name->text);
    if (entry != NULL) {
        const struct plan *plan = resolver->plan;
        is_pool = entry->pool != NULL;
        size_t at = is_pool ? (size_t)((struct pool_plan *)entry->pool - plan->pools)
                            : (size_t)((struct set_plan *)entry->set - plan->sets);
        complain_of_taken(resolver, name, is_pool,
                          is_pool ? resolver->definition->pools[at].name.mark
                                  : resolver->definition->sets[at].name.mark);
    } else if (is_known(resolver, name->text, &is_pool)) {
        complain_of_taken(resolver, name, is_pool, (struct mark){0, 0});
    } else {
        names_add(&resolver->names, name->text, set, pool);
    }
}

static int names_register(struct resolver *resolver)
{
    const struct definition *definition = resolver->definition;
    struct plan *plan = resolver->plan;
    if (names_reserve(&resolver->names, definition->sets_n + definition->pools_n) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < definition->sets_n; i++)
        name_register(resolver, &definition->sets[i].name, &plan->sets[i], NULL);
    for (size_t i = 0; i < definition->pools_n; i++) {
        if (definition->pools[i].name.text != NULL)
            name_register(resolver, &definition->pools[i].name, NULL, &plan->pools[i]);
    }
    return 0;
}

static int dirs_read(struct resolver *resolver)
{
    const struct definition *definition = resolver->definition;
    const char *dirs[CONFIG_DIRS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < definition->plugin_dirs_n; i++) {
        const struct scalar *dir = &definition->plugin_dirs[i];
        if (dir->text[0] != '/')
            say(resolver, -EINVAL, dir->mark, "`%s` is not an absolute path: begin it with `/`",
                show(dir->text).text);
        else
            dirs[n++] = dir->text;
    }
    return n > 0 ? plugins_add_dirs(resolver->plugins, dirs, n) : 0;
}

static int everything_resolve(struct resolver *resolver)
{
    const struct definition *definition = resolver->definition;
    struct plan *plan = resolver->plan;
    if (definition->sets_n > 0) {
        plan->sets = sys_alloc(definition->sets_n, sizeof *plan->sets);
        if (plan->sets == NULL)
            return -ENOMEM;
        plan->sets_n = definition->sets_n;
    }
    if (definition->pools_n > 0) {
        plan->pools = sys_alloc(definition->pools_n, sizeof *plan->pools);
        if (plan->pools == NULL)
            return -ENOMEM;
        plan->pools_n = definition->pools_n;
    }
    int rc = dirs_read(resolver);
    if (rc == 0)
        rc = names_register(resolver);
    for (size_t i = 0; i < plan->sets_n && rc == 0; i++)
        rc = set_resolve(resolver, &definition->sets[i], &plan->sets[i]);
    for (size_t i = 0; i < plan->pools_n && rc == 0; i++)
        rc = pool_resolve(resolver, &definition->pools[i], &plan->pools[i]);
    return rc;
}

int plan_resolve(const struct definition *definition, struct plugins *plugins,
                 const struct known_names *known, struct plan *ret, struct complaints *complaints)
{
    uint32_t before = complaints->total;
    *ret = (struct plan){0};
    struct resolver resolver = {.definition = definition,
                                .plugins = plugins,
                                .known = known,
                                .plan = ret,
                                .complaints = complaints};
    int rc = everything_resolve(&resolver);
    if (rc == 0 && complaints->total > before)
        rc = -EINVAL;
    if (rc < 0)
        plan_free(ret);
    names_free(&resolver.names);
    names_free(&resolver.algorithms);
    names_free(&resolver.balancers);
    while (resolver.found != NULL) {
        struct found *next = resolver.found->next;
        sys_free(resolver.found);
        resolver.found = next;
    }
    sys_free(resolver.set_candidates);
    sys_free(resolver.values);
    sys_free(resolver.given);
    sys_free(resolver.hinted);
    return rc;
}

/* Resolves what could be understood, and tells what was wrong with all of it. */
static int finish(int rc, struct definition *definition, struct plugins *plugins,
                  const struct known_names *known, struct plan *ret, struct complaints *complaints)
{
    if (rc == 0 || rc == -EINVAL) {
        int resolved = plan_resolve(definition, plugins, known, ret, complaints);
        rc = resolved < 0 ? resolved : rc;
    }
    definition_free(definition);
    if (rc == -ENOMEM)
        complaints->memory_failed = true;
    int told = complaints_tell(complaints);
    rc = told < 0 ? told : rc;
    if (rc < 0)
        plan_free(ret);
    return rc;
}

int plan_from_text(const char *text, size_t length, struct plugins *plugins, struct plan *ret,
                   struct complaints *complaints)
{
    struct definition definition;
    *ret = (struct plan){0};
    int rc = config_parse(text, length, &definition, complaints);
    return finish(rc, &definition, plugins, NULL, ret, complaints);
}

int plan_from_spec(const struct weir_pool_spec *spec, struct plugins *plugins,
                   const struct known_names *known, struct plan *ret, struct complaints *complaints)
{
    struct definition definition;
    *ret = (struct plan){0};
    int rc = spec_define(spec, &definition, complaints);
    return finish(rc, &definition, plugins, known, ret, complaints);
}

void limit_free(struct limit *limit)
{
    char *key;
    memcpy(&key, &limit->key, sizeof key); /* it is ours, though const to everybody else */
    sys_free(key);
    sys_free(limit->config);
    *limit = (struct limit){0};
}

void set_plan_free(struct set_plan *plan)
{
    for (uint32_t i = 0; i < plan->limits_n; i++)
        limit_free(&plan->limits[i]);
    for (uint32_t i = 0; i < plan->config_n; i++) {
        sys_free(plan->config[i].name);
        sys_free(plan->config[i].value);
    }
    sys_free(plan->limits);
    sys_free(plan->config);
    sys_free(plan->name);
    *plan = (struct set_plan){0};
}

void pool_plan_free(struct pool_plan *plan)
{
    for (uint32_t i = 0; i < plan->sets_n; i++)
        sys_free(plan->sets[i]);
    sys_free(plan->sets);
    sys_free(plan->config);
    sys_free(plan->name);
    *plan = (struct pool_plan){0};
}

void plan_free(struct plan *plan)
{
    for (size_t i = 0; i < plan->sets_n; i++)
        set_plan_free(&plan->sets[i]);
    for (size_t i = 0; i < plan->pools_n; i++)
        pool_plan_free(&plan->pools[i]);
    sys_free(plan->sets);
    sys_free(plan->pools);
    *plan = (struct plan){0};
}
