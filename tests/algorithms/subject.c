/* SPDX-License-Identifier: MIT */
/* Loading, configuring and calling an algorithm, watched; see subject.h. */
#include "subject.h"
#include "cmocka_all.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD UINT64_C(0xfeedfacecafebeef)

const struct weir_plugin *plugin_load(const char *name)
{
    const char *dirs = getenv("WEIR_PLUGIN_PATH");
    while (dirs && *dirs != '\0') {
        size_t length = strcspn(dirs, ":");
        char path[4096];
        snprintf(path, sizeof(path), "%.*s/%s.so", (int)length, dirs, name);
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        const struct weir_plugin_table *table = library ? dlsym(library, WEIR_PLUGIN_SYMBOL) : NULL;
        if (table && table->plugins_n == 1 && strcmp(table->plugins[0]->name, name) == 0)
            return table->plugins[0];
        dirs += length + (dirs[length] == ':');
    }
    fprintf(stderr, "no usable %s.so in WEIR_PLUGIN_PATH\n", name);
    exit(2);
}

/* The values of all parameters, each within its range, as the core would hand them over. */
static struct weir_value *read_settings(const struct weir_plugin *plugin,
                                        const struct setting *settings)
{
    struct weir_value *values = calloc(plugin->parameters_n + 1, sizeof(*values));
    assert_non_null(values);
    for (uint32_t i = 0; i < plugin->parameters_n; i++)
        values[i] = (struct weir_value){.size = sizeof(*values),
                                        .value = plugin->parameters[i].default_value};
    for (; settings->name; settings++) {
        uint32_t i = 0;
        while (i < plugin->parameters_n && strcmp(plugin->parameters[i].name, settings->name) != 0)
            i++;
        if (i == plugin->parameters_n)
            fail_msg("%s has no parameter %s", plugin->name, settings->name);
        const struct weir_parameter *parameter = &plugin->parameters[i];
        bool is_zone = parameter->type == WEIR_PARAMETER_ZONE;
        if (parameter->type != WEIR_PARAMETER_CHOICE && !is_zone)
            assert_in_range(settings->value, parameter->min, parameter->max);
        values[i] = (struct weir_value){.size = sizeof(*values), .given = 1};
        if (is_zone)
            values[i] = *(const struct weir_value *)(uintptr_t)settings->value;
        else
            values[i].value = settings->value;
    }
    return values;
}

static void *filled(size_t size, int byte)
{
    void *memory = aligned_alloc(16, (size + 16) / 16 * 16);
    assert_non_null(memory);
    memset(memory, byte, size);
    return memory;
}

int subject_try(struct subject *ret, const char *algorithm, const struct setting *settings,
                struct weir_reason *reterr)
{
    const struct weir_plugin *plugin = plugin_load(algorithm);
    const struct weir_algorithm *ops = plugin->ops;
    struct weir_value *values = read_settings(plugin, settings);
    const struct weir_value **addresses = calloc(plugin->parameters_n + 1, sizeof(*addresses));
    assert_non_null(addresses);
    for (uint32_t i = 0; i < plugin->parameters_n; i++)
        addresses[i] = &values[i];
    const struct weir_setup setup = {
        .size = sizeof(setup),
        .abi_minor = WEIR_PLUGIN_ABI_MINOR,
        .values_n = plugin->parameters_n,
        .limit_type = ops->types & 1u << WEIR_LIMIT_CALL ? WEIR_LIMIT_CALL : WEIR_LIMIT_RESOURCE,
        .values = addresses};
    struct subject made = {.ops = ops, .footprint.size = sizeof(made.footprint)};
    struct weir_footprint again = made.footprint;
    int result = ops->configure(&setup, NULL, &made.footprint, reterr);
    if (result == 0) {
        size_t size = made.footprint.config;
        made.config = filled(size, 0x00);
        made.config_copy = filled(size, 0xff);
        assert_int_equal(ops->configure(&setup, made.config, &again, reterr), 0);
        assert_int_equal(ops->configure(&setup, made.config_copy, &again, reterr), 0);
        assert_memory_equal(&again, &made.footprint, sizeof(again));
        assert_memory_equal(made.config, made.config_copy, size);
        assert_true(size <= WEIR_CONFIG_MAX && made.footprint.state <= WEIR_STATE_MAX);
        assert_true(made.footprint.state % 8 == 0 && made.footprint.amount_max >= 1);
        for (int i = 0; i < 2; i++) {
            made.memory[i] = calloc(1, made.footprint.state + 16);
            assert_non_null(made.memory[i]);
        }
        made.tried = calloc(1, made.footprint.state + 16);
        assert_non_null(made.tried);
        made.state = made.memory[0] + 1;
        *ret = made;
    }
    free(addresses);
    free(values);
    return result;
}

void subject_free(struct subject *subject)
{
    free(subject->config);
    free(subject->config_copy);
    free(subject->memory[0]);
    free(subject->memory[1]);
    free(subject->tried);
}

static size_t words_of(const struct subject *subject)
{
    return subject->footprint.state / 8;
}

static struct weir_instant instant_of(const struct subject *subject, uint64_t now)
{
    return (struct weir_instant){.now_ns = now, .wall_offset_ns = subject->wall_offset_ns};
}

/* Moves the state; the old place is wiped, so that a pointer into it would be noticed. */
static uint64_t *relocate(struct subject *subject)
{
    uint64_t *from = subject->state - 1;
    uint64_t *to = from == subject->memory[0] ? subject->memory[1] : subject->memory[0];
    memcpy(to + 1, from + 1, subject->footprint.state);
    memset(from, 0xa5, subject->footprint.state + 16);
    to[0] = to[words_of(subject) + 1] = GUARD;
    subject->state = to + 1;
    return subject->state;
}

static void check_guards(const struct subject *subject)
{
    if (subject->state[-1] != GUARD || subject->state[words_of(subject)] != GUARD)
        fail_msg("wrote outside the state");
    if (memcmp(subject->config, subject->config_copy, subject->footprint.config) != 0)
        fail_msg("wrote to the configuration");
}

/* For calls that must not change the state: a copy is left where the state was. */
static void copy_back(struct subject *subject)
{
    uint64_t *other =
        subject->state - 1 == subject->memory[0] ? subject->memory[1] : subject->memory[0];
    memcpy(other + 1, subject->state, subject->footprint.state);
}

static void check_unchanged(const struct subject *subject)
{
    const uint64_t *other =
        subject->state - 1 == subject->memory[0] ? subject->memory[1] : subject->memory[0];
    if (memcmp(other + 1, subject->state, subject->footprint.state) != 0)
        fail_msg("changed the state by looking at it");
    check_guards(subject);
}

void subject_init(struct subject *subject, uint64_t now)
{
    struct weir_instant at = instant_of(subject, now);
    memset(subject->state, 0, subject->footprint.state);
    if (subject->ops->init)
        subject->ops->init(subject->config, relocate(subject), &at);
    check_guards(subject);
}

/* The state was copied back: there ready_at, which said `ready`, is followed by take. */
static void check_try_take(struct subject *subject, const struct weir_instant *at, uint64_t amount,
                           uint64_t ready)
{
    uint64_t *tried = subject->tried, n = words_of(subject);
    uint64_t *other =
        subject->state - 1 == subject->memory[0] ? subject->memory[1] : subject->memory[0];
    memcpy(tried + 1, subject->state, subject->footprint.state);
    tried[0] = tried[n + 1] = GUARD;
    if (ready == at->now_ns)
        subject->ops->take(subject->config, other + 1, at, amount);
    if (subject->ops->try_take(subject->config, tried + 1, at, amount) != ready)
        fail_msg("try_take does not answer as ready_at");
    if (tried[0] != GUARD || tried[n + 1] != GUARD)
        fail_msg("try_take wrote outside the state");
    if (memcmp(tried + 1, other + 1, subject->footprint.state) != 0)
        fail_msg("try_take does not do what %s does",
                 ready == at->now_ns ? "take" : "ready_at, nothing");
    check_guards(subject);
}

uint64_t subject_ready_at(struct subject *subject, uint64_t now, uint64_t amount)
{
    struct weir_instant at = instant_of(subject, now);
    const uint64_t *state = relocate(subject);
    copy_back(subject);
    uint64_t ready = subject->ops->ready_at(subject->config, state, &at, amount);
    check_unchanged(subject);
    if (subject->ops->try_take)
        check_try_take(subject, &at, amount, ready);
    return ready;
}

uint64_t subject_available(struct subject *subject, uint64_t now)
{
    struct weir_instant at = instant_of(subject, now);
    const uint64_t *state = relocate(subject);
    copy_back(subject);
    uint64_t available = subject->ops->available(subject->config, state, &at);
    check_unchanged(subject);
    return available;
}

int subject_check(struct subject *subject)
{
    const uint64_t *state = relocate(subject);
    copy_back(subject);
    int result = subject->ops->check(subject->config, state);
    check_unchanged(subject);
    return result;
}

bool subject_is_new(struct subject *subject, uint64_t now)
{
    struct weir_instant at = instant_of(subject, now);
    const uint64_t *state = relocate(subject);
    copy_back(subject);
    int result = subject->ops->is_new(subject->config, state, &at);
    check_unchanged(subject);
    assert_in_range(result, 0, 1);
    return result == 1;
}

void subject_take(struct subject *subject, uint64_t now, uint64_t amount)
{
    struct weir_instant at = instant_of(subject, now);
    subject->ops->take(subject->config, relocate(subject), &at, amount);
    check_guards(subject);
}

void subject_refund(struct subject *subject, uint64_t now, uint64_t amount, uint64_t granted_ns)
{
    struct weir_instant at = instant_of(subject, now);
    subject->ops->refund(subject->config, relocate(subject), &at, amount, granted_ns);
    check_guards(subject);
}

void subject_refund_strictly(struct subject *subject, uint64_t now, uint64_t amount,
                             uint64_t granted_ns)
{
    struct weir_instant at = instant_of(subject, now);
    subject->ops->refund_strict(subject->config, relocate(subject), &at, amount, granted_ns);
    check_guards(subject);
}

void subject_release(struct subject *subject, uint64_t now, struct weir_release release)
{
    struct weir_instant at = instant_of(subject, now);
    subject->ops->release(subject->config, relocate(subject), &at, &release);
    check_guards(subject);
}

void subject_charge(struct subject *subject, uint64_t now, uint64_t amount)
{
    struct weir_instant at = instant_of(subject, now);
    subject->ops->charge(subject->config, relocate(subject), &at, amount);
    check_guards(subject);
}

void subject_reconfigure(struct subject *to, struct subject *from, uint64_t now)
{
    struct weir_instant at = instant_of(from, now);
    memset(to->state, 0, to->footprint.state);
    const uint64_t *old_state = relocate(from);
    copy_back(from);
    to->ops->reconfigure(from->config, old_state, to->config, relocate(to), &at);
    check_unchanged(from);
    check_guards(to);
    assert_int_equal(subject_check(to), 0);
}

bool subject_request(struct subject *subject, uint64_t now, uint64_t amount)
{
    if (subject_ready_at(subject, now, amount) != now)
        return false;
    subject_take(subject, now, amount);
    return true;
}

void refused(const char *algorithm, const struct setting *settings, const char *parameter,
             const char *words)
{
    struct subject subject;
    struct weir_reason reason = {sizeof(reason), UINT32_MAX, ""};
    const struct weir_plugin *plugin = plugin_load(algorithm);
    if (subject_try(&subject, algorithm, settings, &reason) == 0)
        fail_msg("%s accepted it", algorithm);
    assert_in_range(reason.parameter, 0, plugin->parameters_n - 1);
    assert_string_equal(plugin->parameters[reason.parameter].name, parameter);
    if (!strstr(reason.message, words))
        fail_msg("expected \"%s\" in: %s", words, reason.message);
}
