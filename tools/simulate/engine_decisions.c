/* SPDX-License-Identifier: MIT */
/* What becomes of the decisions of the library: counts, lines, and what is released later. */
#include "engine_decisions.h"
#include "engine_slots.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* ---- limits ---- */

uint32_t engine_find_set(const struct engine *engine, const char *name)
{
    const struct candidate *candidate = engine->candidate;

    for (uint32_t i = 0; i < candidate->sets_n && name; i++)
        if (candidate->sets[i].name == name || strcmp(candidate->sets[i].name, name) == 0)
            return i;
    return 0;
}

int engine_find_limit(const struct engine *engine, uint32_t set, const char *key)
{
    const struct candidate_set *of = &engine->candidate->sets[set];
    const struct candidate_limit *limits = engine->candidate->limits;
    uint32_t end = of->limits_first + of->limits_n;

    if (!key || *key == '\0')
        return -1;
    for (uint32_t i = of->limits_first; i < end; i++)
        if (limits[i].key == key)
            return (int)i;
    for (uint32_t i = of->limits_first; i < end; i++)
        if (strcmp(limits[i].key, key) == 0)
            return (int)i;
    return -1;
}

uint64_t engine_value_of_key(const struct engine *engine, const uint64_t *values, unsigned key)
{
    return key < engine->options.mapping->amounts_n ? values[key] : 1;
}

uint64_t engine_amount_of(const struct engine *engine, uint32_t slot, uint32_t limit)
{
    int key = engine->limit_keys[limit];

    return key < 0 ? 1
                   : engine_value_of_key(engine, engine_slot_values(engine, slot), (unsigned)key);
}

/* ---- decisions ---- */

/* Writes a value of CSV, in quotes if it needs them. */
static void write_value(FILE *out, const char *text)
{
    if (!strpbrk(text, ",\"")) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

static void write_decision(const struct engine *engine, const struct slot *slot,
                           enum decision decision, uint64_t at_ns, int limit)
{
    const struct candidate *candidate = engine->candidate;
    FILE *out = engine->options.decisions;

    if (!out)
        return;
    fprintf(out, "%" PRIu64 ",%" PRIu64 ",%s,%" PRIu64 ",", slot->number, slot->arrived_ns,
            decision_word(decision), at_ns);
    write_value(out, candidate->sets[slot->set].name);
    fputc(',', out);
    write_value(out, limit >= 0 ? candidate->limits[limit].key : "");
    fputc('\n', out);
}

static uint64_t used_of(const struct engine *engine, const uint64_t *values, unsigned key)
{
    int used = key < engine->options.mapping->amounts_n ? engine->used[key] : -1;

    return used >= 0 ? values[used] : engine_value_of_key(engine, values, key);
}

void engine_report_use(struct engine *engine, uint32_t index)
{
    struct slot *slot = &engine->slots[index];
    const int *limits = &engine->key_limits[(size_t)slot->set * ENGINE_KEYS_MAX];
    const uint64_t *values = engine_slot_values(engine, index);

    for (unsigned key = 0; key < engine->keys_n; key++) {
        uint64_t amount = engine_value_of_key(engine, values, key);
        uint64_t used = used_of(engine, values, key);
        enum weir_limit_type type;

        if (limits[key] < 0 || amount == 0)
            continue;
        type = engine->candidate->limits[limits[key]].type;
        if (type == WEIR_LIMIT_CALL && used > amount)
            used = amount;
        if (type == WEIR_LIMIT_RATE || (type == WEIR_LIMIT_CALL && (amount > 1 || used != amount)))
            weir_update(slot->acquisition, engine->keys[key], used);
    }
}

int engine_granted(struct engine *engine, uint32_t index)
{
    struct slot *slot = &engine->slots[index];
    const struct candidate_set *set;
    uint64_t now_ns = engine->candidate->now_ns;

    if (engine->candidate->sets_n > 1)
        slot->set = engine_find_set(engine, weir_acquisition_set(slot->acquisition));
    set = &engine->candidate->sets[slot->set];
    tally_grant(&engine->tally, now_ns, now_ns - slot->arrived_ns, slot->waits, slot->wait_class);
    if (engine->candidate->is_taken_apart)
        tally_taken(&engine->tally, slot->set, now_ns);
    else
        for (uint32_t i = set->limits_first; i < set->limits_first + set->limits_n; i++)
            tally_units(&engine->tally, i, engine_amount_of(engine, index, i), now_ns);
    write_decision(engine, slot, slot->waits ? DECISION_WAITED : DECISION_AT_ONCE, now_ns, -1);
    slot->waits = false;
    if (!engine->keeps_nothing)
        return release_heap_add(&engine->releases, now_ns + slot->hold_ns, index);
    if (slot->acquisition)
        engine_report_use(engine, index); /* all of it, or the library would warn */
    engine_finish_slot(engine, index);
    return 0;
}

enum decision engine_decision(const struct engine *engine, int result)
{
    switch (result) {
    case -EAGAIN:
        return engine->options.mode == ENGINE_WAIT ? DECISION_MAX_WAIT : DECISION_BUSY;
    case -ENOBUFS:
        return DECISION_FULL;
    case -ERANGE:
        return DECISION_IMPOSSIBLE;
    case -ETIMEDOUT:
        return DECISION_TIMEOUT;
    default:
        return DECISION_NEVER;
    }
}

void engine_refused(struct engine *engine, uint32_t index, int result,
                    const struct weir_refusal *refusal)
{
    struct slot *slot = &engine->slots[index];
    enum decision decision = engine_decision(engine, result);
    int limit;

    slot->set = engine_find_set(engine, refusal->set);
    limit = engine_find_limit(engine, slot->set, refusal->key);
    if (limit >= 0)
        engine->tally.limits[limit].refused++;
    tally_refusal(&engine->tally, engine->candidate->now_ns, decision);
    write_decision(engine, slot, decision, engine->candidate->now_ns, limit);
    slot->waits = false;
}

int engine_fail(const struct engine *engine, const struct slot *slot, int r,
                const struct weir_refusal *refusal)
{
    fprintf(stderr, "%s: %s: event %" PRIu64 ": %s%s%s\n", engine->candidate->command,
            engine->candidate->name, slot ? slot->number : 0, strerror(-r),
            refusal && refusal->reason ? ": " : "",
            refusal && refusal->reason ? refusal->reason : "");
    return r;
}
