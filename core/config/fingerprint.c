/* SPDX-License-Identifier: MIT */
/* Fingerprints: writes the definition text of a set, and hashes what it means. */
#include "config/fingerprint.h"
#include "base/hash.h"
#include "base/invariant.h"
#include "base/utf8.h"
#include "os/os.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct fingerprint_writer {
    char *to;      /* FINGERPRINT_TEXT_MAX bytes */
    size_t n;      /* bytes written; what has no room is only counted */
    bool not_utf8; /* a text was left out because it is not UTF-8 */
};

__attribute__((format(printf, 2, 3))) static void
fingerprint_write(struct fingerprint_writer *writer, const char *format, ...)
{
    size_t at = writer->n < FINGERPRINT_TEXT_MAX ? writer->n : FINGERPRINT_TEXT_MAX;
    va_list arguments;
    va_start(arguments, format);
    writer->n += (size_t)vsnprintf(writer->to + at, FINGERPRINT_TEXT_MAX - at, format, arguments);
    va_end(arguments);
}

/* Returns whether YAML reads the text as itself without quotes. */
static bool fingerprint_needs_no_quotes(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    size_t length = strlen(text);
    if (length == 0 || strspn(text, letters) != length)
        return false;
    return strcmp(text, "null") != 0 && strcmp(text, "Null") != 0 && strcmp(text, "NULL") != 0;
}

/* Decodes the code point at `text`, which is valid UTF-8, and its length in bytes. */
static uint32_t utf8_decode(const char *text, size_t *ret_length)
{
    const unsigned char *byte = (const unsigned char *)text;
    size_t length = byte[0] < 0x80 ? 1 : byte[0] < 0xe0 ? 2 : byte[0] < 0xf0 ? 3 : 4;
    uint32_t point = length == 1 ? byte[0] : byte[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++)
        point = point << 6 | (byte[i] & 0x3fu);
    *ret_length = length;
    return point;
}

/* Returns whether a character must be escaped: YAML forbids it, some readers end a line at it, or
 * it would be taken for an explicit key (yaml_reader.c). */
static bool fingerprint_needs_escape(uint32_t point)
{
    bool is_control = point < 0x20 || (point >= 0x7f && point < 0xa0);
    bool is_line_end = point == 0x2028 || point == 0x2029;
    bool is_forbidden = point == 0xfeff || point == 0xfffe || point == 0xffff;
    return point == '?' || is_control || is_line_end || is_forbidden;
}

static void fingerprint_write_quoted(struct fingerprint_writer *writer, const char *text)
{
    size_t length;
    fingerprint_write(writer, "\"");
    for (; *text != '\0'; text += length) {
        uint32_t point = utf8_decode(text, &length);
        if (fingerprint_needs_escape(point))
            fingerprint_write(writer, "\\u%04" PRIx32, point);
        else
            fingerprint_write(writer, "%s%.*s", point == '"' || point == '\\' ? "\\" : "",
                              (int)length, text);
    }
    fingerprint_write(writer, "\"");
}

/* Writes a text, quoted as in JSON if necessary; YAML reads that too. */
static void fingerprint_write_value(struct fingerprint_writer *writer, const char *text)
{
    size_t length = strlen(text);
    if (utf8_valid_length(text, length) != length)
        writer->not_utf8 = true;
    else if (fingerprint_needs_no_quotes(text))
        fingerprint_write(writer, "%s", text);
    else
        fingerprint_write_quoted(writer, text);
}

static void fingerprint_write_field(struct fingerprint_writer *writer, const char *name,
                                    const char *value)
{
    fingerprint_write(writer, ", ");
    fingerprint_write_value(writer, name);
    fingerprint_write(writer, ": ");
    fingerprint_write_value(writer, value);
}

static void fingerprint_write_limit(struct fingerprint_writer *writer, const struct limit *limit)
{
    WEIR_INVARIANT(limit->type >= WEIR_LIMIT_RATE && limit->type <= WEIR_LIMIT_RESOURCE);
    fingerprint_write(writer, "{type: %s, key: ", limit_type_names[limit->type]);
    fingerprint_write_value(writer, limit->key);
    if (limit->algorithm_name)
        fingerprint_write_field(writer, "algorithm", limit->algorithm_name);
    const char *at = limit->settings_text;
    for (uint32_t i = 0; i < limit->settings_n; i++) {
        const char *value = at + strlen(at) + 1;
        fingerprint_write_field(writer, at, value);
        at = value + strlen(value) + 1;
    }
    fingerprint_write(writer, "}");
}

static void fingerprint_write_classes(struct fingerprint_writer *writer,
                                      const struct wait_classes *classes)
{
    if (classes->rule.ageing) {
        fingerprint_write(writer, ", priorities: %" PRIu32 ", ageing: %" PRIu32, classes->rule.n,
                          classes->rule.ageing);
        return;
    }
    fingerprint_write(writer, ", shares: {");
    for (uint32_t c = 0; c < classes->rule.n; c++) {
        fingerprint_write(writer, c == 0 ? "" : ", ");
        fingerprint_write_value(writer, classes->names[c]);
        fingerprint_write(writer, ": %" PRIu32, classes->weights[c]);
    }
    fingerprint_write(writer, "}");
}

static void fingerprint_write_set(struct fingerprint_writer *writer, const struct set_plan *plan)
{
    bool shared = plan->backend == BACKEND_PROCESS;
    fingerprint_write(writer, "{version: 1, sets: {");
    fingerprint_write_value(writer, plan->name);
    fingerprint_write(writer, ": {backend: %s", shared ? "process" : "thread");
    if (shared)
        fingerprint_write(writer, ", lifetime: %s", plan->while_used ? "users" : "boot");
    if (plan->fair != FAIR_SET)
        fingerprint_write(writer, ", fair: %s", plan->fair == FAIR_NO ? "false" : "per_limit");
    if (plan->boottime)
        fingerprint_write(writer, ", clock: boottime");
    if (plan->max_waiters != 0)
        fingerprint_write(writer, ", max_waiters: %" PRIu32, plan->max_waiters);
    if (plan->classes)
        fingerprint_write_classes(writer, plan->classes);
    if (plan->keyed.max_keys != 0) {
        fingerprint_write(writer, ", subjects: {max: %" PRIu64, plan->keyed.max_keys);
        if (plan->keyed.memory != 0)
            fingerprint_write(writer, ", memory: %" PRIu64, plan->keyed.memory);
        fingerprint_write(writer, ", evict: %s}", evict_names[plan->keyed.evict]);
    }
    fingerprint_write(writer, ", limits: [");
    for (uint32_t i = 0; i < plan->limits_n; i++) {
        fingerprint_write(writer, i == 0 ? "" : ", ");
        fingerprint_write_limit(writer, &plan->limits[i]);
    }
    fingerprint_write(writer, "]}}}");
}

/* The NUL is included, so that two texts do not run into each other. */
static uint64_t fingerprint_hash_string(uint64_t hash, const char *text)
{
    return fnv1a_bytes(hash, text, strlen(text) + 1);
}

static uint64_t fingerprint_hash_limit(uint64_t hash, const struct limit *limit)
{
    const uint64_t type = limit->type, config_size = limit->config_size;
    const uint64_t numbers[] = {limit->capacity, limit->refund,      limit->charges,
                                limit->lease,    limit->state_words, limit->algorithm_name != NULL,
                                limit->shadow};
    hash = fnv1a_bytes(hash, &type, sizeof(type));
    hash = fingerprint_hash_string(hash, limit->key);
    hash = fnv1a_bytes(hash, numbers, sizeof(numbers));
    if (!limit->algorithm_name)
        return hash;
    hash = fingerprint_hash_string(hash, limit->algorithm_name);
    hash = fingerprint_hash_string(hash, limit->algorithm_version);
    hash = fnv1a_bytes(hash, &limit->algorithm_state_id, sizeof(limit->algorithm_state_id));
    hash = fnv1a_bytes(hash, &config_size, sizeof(config_size));
    return fnv1a_bytes(hash, limit->config, limit->config_size);
}

uint64_t fingerprint_of_limit(const struct limit *limit)
{
    return fingerprint_hash_limit(FNV1A_INIT, limit);
}

static uint64_t fingerprint_hash_set(const struct set_plan *plan)
{
    const uint64_t numbers[] = {plan->while_used,     plan->fair,         plan->max_waiters,
                                plan->keyed.max_keys, plan->keyed.memory, plan->keyed.evict,
                                plan->limits_n,       plan->boottime};
    uint64_t hash = fnv1a_bytes(FNV1A_INIT, numbers, sizeof(numbers));
    if (plan->classes) {
        hash = fnv1a_bytes(hash, &plan->classes->rule, sizeof(plan->classes->rule));
        hash = fnv1a_bytes(hash, plan->classes->names, sizeof(plan->classes->names));
    }
    for (uint32_t i = 0; i < plan->limits_n; i++)
        hash = fingerprint_hash_limit(hash, &plan->limits[i]);
    return hash;
}

int fingerprint_new(const struct set_plan *plan, struct fingerprint *ret, struct weir_error *reterr)
{
    struct fingerprint_writer writer = {.to = os_alloc(FINGERPRINT_TEXT_MAX, 1)};
    int r = 0;
    *ret = (struct fingerprint){.definition = writer.to};
    if (!writer.to)
        return error_set(reterr, -ENOMEM, "out of memory");
    fingerprint_write_set(&writer, plan);
    ret->hash = fingerprint_hash_set(plan);
    if (writer.not_utf8)
        r = error_set(reterr, -EINVAL, "set `%s`: the definition of a shared set must be UTF-8",
                      error_text(plan->name).text);
    else if (writer.n >= FINGERPRINT_TEXT_MAX)
        r = error_set(reterr, -E2BIG,
                      "the definition of set `%s` takes %zu bytes, and that of a shared set at "
                      "most %zu: use shorter keys or fewer limits",
                      error_text(plan->name).text, writer.n, FINGERPRINT_TEXT_MAX - 1);
    if (r < 0)
        fingerprint_free(ret);
    return r;
}

void fingerprint_free(struct fingerprint *fingerprint)
{
    os_free(fingerprint->definition);
    *fingerprint = (struct fingerprint){0};
}
