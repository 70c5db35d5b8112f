/* SPDX-License-Identifier: MIT */
/* Fingerprints: writes the definition text of a set, and hashes what it means. */
#include "config/fingerprint.h"
#include "base/hash.h"
#include "base/invariant.h"
#include "os/os.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Writes to `to`, or only counts if `to` is NULL. */
struct fingerprint_writer {
    char *to;
    size_t n;
};

static void fingerprint_write(struct fingerprint_writer *writer, const char *text, size_t length)
{
    if (writer->to != NULL)
        memcpy(writer->to + writer->n, text, length);
    writer->n += length;
}

static void fingerprint_write_text(struct fingerprint_writer *writer, const char *text)
{
    fingerprint_write(writer, text, strlen(text));
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
    char escape[16];
    size_t length;
    for (; *text != '\0'; text += length) {
        uint32_t point = utf8_decode(text, &length);
        if (fingerprint_needs_escape(point)) {
            snprintf(escape, sizeof escape, "\\u%04" PRIx32, point);
            fingerprint_write_text(writer, escape);
            continue;
        }
        if (point == '"' || point == '\\')
            fingerprint_write_text(writer, "\\");
        fingerprint_write(writer, text, length);
    }
}

/* Writes a text, quoted as in JSON if necessary; YAML reads that too. */
static void fingerprint_write_value(struct fingerprint_writer *writer, const char *text)
{
    bool plain = fingerprint_needs_no_quotes(text);
    fingerprint_write_text(writer, plain ? "" : "\"");
    if (plain)
        fingerprint_write_text(writer, text);
    else
        fingerprint_write_quoted(writer, text);
    fingerprint_write_text(writer, plain ? "" : "\"");
}

static void fingerprint_write_field(struct fingerprint_writer *writer, const char *before,
                                    const char *name, const char *value)
{
    fingerprint_write_text(writer, before);
    fingerprint_write_value(writer, name);
    fingerprint_write_text(writer, ": ");
    fingerprint_write_value(writer, value);
}

static void fingerprint_write_limit(struct fingerprint_writer *writer, const struct limit *limit)
{
    static const char *const types[] = {"", "rate", "call", "resource"};
    WEIR_INVARIANT(limit->type >= WEIR_LIMIT_RATE && limit->type <= WEIR_LIMIT_RESOURCE);
    fingerprint_write_field(writer, "{", "type", types[limit->type]);
    fingerprint_write_field(writer, ", ", "key", limit->key);
    if (limit->algorithm_name != NULL)
        fingerprint_write_field(writer, ", ", "algorithm", limit->algorithm_name);
    const char *at = limit->settings_text;
    for (uint32_t i = 0; i < limit->settings_n; i++) {
        const char *value = at + strlen(at) + 1;
        fingerprint_write_field(writer, ", ", at, value);
        at = value + strlen(value) + 1;
    }
    fingerprint_write_text(writer, "}");
}

static void fingerprint_write_number(struct fingerprint_writer *writer, const char *before,
                                     uint64_t value)
{
    char number[24];
    snprintf(number, sizeof number, "%" PRIu64, value);
    fingerprint_write_text(writer, before);
    fingerprint_write_text(writer, number);
}

static void fingerprint_write_keyed(struct fingerprint_writer *writer,
                                    const struct keyed_plan *keyed)
{
    static const char *const policies[] = {"oldest", "random", "none"};
    fingerprint_write_number(writer, ", subjects: {max: ", keyed->max_keys);
    if (keyed->memory != 0)
        fingerprint_write_number(writer, ", memory: ", keyed->memory);
    fingerprint_write_field(writer, ", ", "evict", policies[keyed->evict]);
    fingerprint_write_text(writer, "}");
}

static void fingerprint_write_set(struct fingerprint_writer *writer, const struct set_plan *plan)
{
    bool shared = plan->backend == BACKEND_PROCESS;
    fingerprint_write_text(writer, "{version: 1, sets: {");
    fingerprint_write_value(writer, plan->name);
    fingerprint_write_field(writer, ": {", "backend", shared ? "process" : "thread");
    if (shared)
        fingerprint_write_field(writer, ", ", "lifetime", plan->while_used ? "users" : "boot");
    if (!plan->fair)
        fingerprint_write_field(writer, ", ", "fair", "false");
    if (plan->max_waiters != 0)
        fingerprint_write_number(writer, ", max_waiters: ", plan->max_waiters);
    if (plan->keyed.max_keys != 0)
        fingerprint_write_keyed(writer, &plan->keyed);
    fingerprint_write_text(writer, ", limits: [");
    for (uint32_t i = 0; i < plan->limits_n; i++) {
        fingerprint_write_text(writer, i == 0 ? "" : ", ");
        fingerprint_write_limit(writer, &plan->limits[i]);
    }
    fingerprint_write_text(writer, "]}}}");
}

static bool utf8_is_valid(const char *text)
{
    size_t length = strlen(text);
    return utf8_valid_length(text, length) == length;
}

/* Returns whether all texts that the definition text needs are UTF-8. */
static bool fingerprint_is_utf8(const struct set_plan *plan)
{
    if (!utf8_is_valid(plan->name))
        return false;
    for (uint32_t i = 0; i < plan->limits_n; i++) {
        const struct limit *limit = &plan->limits[i];
        const char *at = limit->settings_text;
        if (!utf8_is_valid(limit->key))
            return false;
        for (uint32_t n = 2 * limit->settings_n; n > 0; n--, at += strlen(at) + 1) {
            if (!utf8_is_valid(at))
                return false;
        }
    }
    return true;
}

static uint64_t fingerprint_hash_number(uint64_t hash, uint64_t number)
{
    return fnv1a_bytes(hash, &number, sizeof number);
}

/* The NUL is included, so that two texts do not run into each other. */
static uint64_t fingerprint_hash_string(uint64_t hash, const char *text)
{
    return fnv1a_bytes(hash, text, strlen(text) + 1);
}

static uint64_t fingerprint_hash_limit(uint64_t hash, const struct limit *limit)
{
    hash = fingerprint_hash_number(hash, (uint64_t)limit->type);
    hash = fingerprint_hash_string(hash, limit->key);
    hash = fingerprint_hash_number(hash, limit->capacity);
    hash = fingerprint_hash_number(hash, limit->refunds);
    hash = fingerprint_hash_number(hash, limit->charges);
    hash = fingerprint_hash_number(hash, limit->lease);
    hash = fingerprint_hash_number(hash, limit->state_words);
    hash = fingerprint_hash_number(hash, limit->algorithm_name != NULL);
    if (limit->algorithm_name == NULL)
        return hash;
    hash = fingerprint_hash_string(hash, limit->algorithm_name);
    hash = fingerprint_hash_string(hash, limit->algorithm_version);
    hash = fingerprint_hash_number(hash, limit->config_size);
    return fnv1a_bytes(hash, limit->config, limit->config_size);
}

static uint64_t fingerprint_hash_set(const struct set_plan *plan)
{
    uint64_t hash = FNV1A_INIT;
    hash = fingerprint_hash_number(hash, plan->while_used);
    hash = fingerprint_hash_number(hash, plan->fair);
    hash = fingerprint_hash_number(hash, plan->max_waiters);
    hash = fingerprint_hash_number(hash, plan->keyed.max_keys);
    hash = fingerprint_hash_number(hash, plan->keyed.memory);
    hash = fingerprint_hash_number(hash, plan->keyed.evict);
    hash = fingerprint_hash_number(hash, plan->limits_n);
    for (uint32_t i = 0; i < plan->limits_n; i++)
        hash = fingerprint_hash_limit(hash, &plan->limits[i]);
    return hash;
}

int fingerprint_new(const struct set_plan *plan, struct fingerprint *ret, struct weir_error *reterr)
{
    struct fingerprint_writer writer = {0};
    *ret = (struct fingerprint){0};
    if (!fingerprint_is_utf8(plan))
        return error_set(reterr, -EINVAL, "set `%s`: the definition of a shared set must be UTF-8",
                         error_text(plan->name).text);
    fingerprint_write_set(&writer, plan);
    if (writer.n >= FINGERPRINT_TEXT_MAX)
        return error_set(reterr, -E2BIG,
                         "the definition of set `%s` takes %zu bytes, and that of a shared set at "
                         "most %zu: use shorter keys or fewer limits",
                         error_text(plan->name).text, writer.n, FINGERPRINT_TEXT_MAX - 1);
    ret->definition = os_alloc(writer.n + 1, 1);
    if (ret->definition == NULL)
        return error_set(reterr, -ENOMEM, "out of memory");
    writer = (struct fingerprint_writer){.to = ret->definition};
    fingerprint_write_set(&writer, plan);
    ret->hash = fingerprint_hash_set(plan);
    return 0;
}

void fingerprint_free(struct fingerprint *fingerprint)
{
    os_free(fingerprint->definition);
    *fingerprint = (struct fingerprint){0};
}
