/* SPDX-License-Identifier: MIT */
/* Signatures: a set's definition written down, and the hash of what it means. */
#include "config/fingerprint.h"
#include "base/mutant.h"
#include "os/os.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Writes into `to`, or only measures: `to` NULL. */
struct writer {
    char *to;
    size_t n;
};

static void put(struct writer *writer, const char *text, size_t length)
{
    if (writer->to != NULL)
        memcpy(writer->to + writer->n, text, length);
    writer->n += length;
}

static void put_text(struct writer *writer, const char *text)
{
    put(writer, text, strlen(text));
}

/* Whether a text means itself without quotes. */
static bool is_plain(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    size_t length = strlen(text);
    return length > 0 && strspn(text, letters) == length && strcmp(text, "null") != 0 &&
           strcmp(text, "Null") != 0 && strcmp(text, "NULL") != 0;
}

/* The code point at `text`, which is well-formed UTF-8, and its length in bytes. */
static uint32_t code_point(const char *text, size_t *ret_length)
{
    const unsigned char *byte = (const unsigned char *)text;
    size_t length = byte[0] < 0x80 ? 1 : byte[0] < 0xe0 ? 2 : byte[0] < 0xf0 ? 3 : 4;
    uint32_t point = length == 1 ? byte[0] : byte[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++)
        point = point << 6 | (byte[i] & 0x3fu);
    *ret_length = length;
    return point;
}

/*
 * What YAML does not allow as it is, what ends a line for some of its readers, and what would be
 * taken for an explicit key wherever it stands (yaml.c).
 */
static bool is_special(uint32_t point)
{
    return point == '?' || point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0x2028 ||
           point == 0x2029 || point == 0xfeff || point == 0xfffe || point == 0xffff;
}

static void put_quoted(struct writer *writer, const char *text)
{
    char escape[16];
    size_t length;
    for (; *text != '\0'; text += length) {
        uint32_t point = code_point(text, &length);
        if (is_special(point) && !MUTANT(260)) {
            snprintf(escape, sizeof escape, "\\u%04" PRIx32, point);
            put_text(writer, escape);
            continue;
        }
        if (point == '"' || point == '\\')
            put_text(writer, "\\");
        put(writer, text, length);
    }
}

/* A text, quoted if need be as JSON does, which YAML reads too. */
static void put_scalar(struct writer *writer, const char *text)
{
    bool plain = is_plain(text);
    put_text(writer, plain ? "" : "\"");
    if (plain)
        put_text(writer, text);
    else
        put_quoted(writer, text);
    put_text(writer, plain ? "" : "\"");
}

static void put_field(struct writer *writer, const char *before, const char *name,
                      const char *value)
{
    put_text(writer, before);
    put_scalar(writer, name);
    put_text(writer, ": ");
    put_scalar(writer, value);
}

static void put_limit(struct writer *writer, const struct limit *limit)
{
    static const char *const types[] = {"", "rate", "call", "resource"};
    put_field(writer, "{", "type", types[limit->type]);
    put_field(writer, ", ", "key", limit->key);
    if (limit->algorithm_name != NULL)
        put_field(writer, ", ", "algorithm", limit->algorithm_name);
    const char *at = limit->written;
    for (uint32_t i = 0; i < limit->written_n; i++) {
        const char *value = at + strlen(at) + 1;
        put_field(writer, ", ", at, value);
        at = value + strlen(value) + 1;
    }
    put_text(writer, "}");
}

static void put_number(struct writer *writer, const char *before, uint64_t value)
{
    char number[24];
    snprintf(number, sizeof number, "%" PRIu64, value);
    put_text(writer, before);
    put_text(writer, number);
}

static void put_keyed(struct writer *writer, const struct keyed_plan *keyed)
{
    static const char *const policies[] = {"oldest", "random", "none"};
    put_number(writer, ", keyed: {max_keys: ", keyed->max_keys);
    if (keyed->memory != 0)
        put_number(writer, ", memory: ", keyed->memory);
    put_field(writer, ", ", "evict", policies[keyed->evict]);
    put_text(writer, "}");
}

static void put_set(struct writer *writer, const struct set_plan *plan)
{
    bool shared = plan->backend == BACKEND_PROCESS;
    put_text(writer, "{version: 1, sets: {");
    put_scalar(writer, plan->name);
    put_field(writer, ": {", "backend", shared ? "process" : "thread");
    if (shared)
        put_field(writer, ", ", "lifetime", plan->while_used ? "users" : "boot");
    if (!plan->fair)
        put_field(writer, ", ", "fair", "false");
    if (plan->max_waiters != 0)
        put_number(writer, ", max_waiters: ", plan->max_waiters);
    if (plan->keyed.max_keys != 0)
        put_keyed(writer, &plan->keyed);
    put_text(writer, ", limits: [");
    for (uint32_t i = 0; i < plan->limits_n; i++) {
        put_text(writer, i == 0 ? "" : ", ");
        put_limit(writer, &plan->limits[i]);
    }
    put_text(writer, "]}}}");
}

static bool is_utf8(const char *text)
{
    size_t length = strlen(text);
    return utf8_length(text, length) == length;
}

/* Whether all that was written can be written down again; names and keys were checked already. */
static bool is_text(const struct set_plan *plan)
{
    if (!is_utf8(plan->name))
        return false;
    for (uint32_t i = 0; i < plan->limits_n; i++) {
        const struct limit *limit = &plan->limits[i];
        const char *at = limit->written;
        if (!is_utf8(limit->key))
            return false;
        for (uint32_t n = 2 * limit->written_n; n > 0; n--, at += strlen(at) + 1) {
            if (!is_utf8(at))
                return false;
        }
    }
    return true;
}

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *byte = bytes;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ byte[i]) * UINT64_C(1099511628211);
    return hash;
}

static uint64_t hash_number(uint64_t hash, uint64_t number)
{
    return hash_bytes(hash, &number, sizeof number);
}

/* With its NUL, so that two texts do not run into each other. */
static uint64_t hash_string(uint64_t hash, const char *text)
{
    return hash_bytes(hash, text, strlen(text) + 1);
}

static uint64_t hash_limit(uint64_t hash, const struct limit *limit)
{
    hash = hash_number(hash, (uint64_t)limit->type);
    hash = hash_string(hash, limit->key);
    hash = hash_number(hash, limit->capacity);
    hash = hash_number(hash, limit->refunds);
    hash = hash_number(hash, limit->charges);
    hash = hash_number(hash, MUTANT(528) ? 0 : limit->lease);
    hash = hash_number(hash, limit->state_words);
    hash = hash_number(hash, limit->algorithm_name != NULL);
    if (limit->algorithm_name == NULL)
        return hash;
    hash = hash_string(hash, limit->algorithm_name);
    hash = hash_string(hash, limit->algorithm_version);
    hash = hash_number(hash, limit->config_size);
    return MUTANT(261) ? hash : hash_bytes(hash, limit->config, limit->config_size);
}

static uint64_t hash_set(const struct set_plan *plan)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    hash = hash_number(hash, plan->while_used);
    hash = hash_number(hash, plan->fair);
    hash = hash_number(hash, plan->max_waiters);
    hash = hash_number(hash, plan->keyed.max_keys);
    hash = hash_number(hash, plan->keyed.memory);
    hash = hash_number(hash, plan->keyed.evict);
    hash = hash_number(hash, plan->limits_n);
    for (uint32_t i = 0; i < plan->limits_n; i++)
        hash = hash_limit(hash, &plan->limits[i]);
    return hash;
}

int signature_new(const struct set_plan *plan, struct signature *ret, struct weir_error *reterr)
{
    struct writer writer = {0};
    *ret = (struct signature){0};
    if (!is_text(plan))
        return error_set(reterr, -EINVAL,
                         "set `%s`: what is not UTF-8 cannot be shared by processes",
                         show(plan->name).text);
    put_set(&writer, plan);
    if (writer.n >= SIGNATURE_TEXT_MAX)
        return error_set(reterr, -E2BIG,
                         "the definition of set `%s` takes %zu bytes: one that processes share may "
                         "take %zu; use shorter keys or fewer limits",
                         show(plan->name).text, writer.n, SIGNATURE_TEXT_MAX - 1);
    ret->definition = sys_alloc(writer.n + 1, 1);
    if (ret->definition == NULL)
        return error_set(reterr, -ENOMEM, "out of memory");
    writer = (struct writer){.to = ret->definition};
    put_set(&writer, plan);
    ret->hash = hash_set(plan);
    return 0;
}

void signature_free(struct signature *signature)
{
    sys_free(signature->definition);
    *signature = (struct signature){0};
}
