/* SPDX-License-Identifier: MIT */
/* The line: edits of a private version. Links are read as they are now; if that is no longer the
 * version that was read, the commit fails and nothing of it counts. */
#include "line.h"

#include "mutant.h"
#include "step.h"

static void set_ends(struct version *version, uint32_t head, uint32_t tail)
{
    version->content[CONTENT_ENDS] = (uint64_t)tail << 32 | head;
}

static void set_counts(struct version *version, uint32_t length, uint32_t left)
{
    version->content[CONTENT_COUNT] = (uint64_t)version_flags(version) << FLAGS_SHIFT |
                                      (uint64_t)(left & COUNT_MASK) << LEFT_SHIFT |
                                      (length & COUNT_MASK);
}

static void one_leaves(struct version *version)
{
    set_counts(version, line_length(version) - 1, line_left(version) + 1);
}

void version_add_effect(struct version *version, uint32_t record, uint32_t word, uint64_t before,
                        uint64_t after)
{
    version->effects[version->effects_n++] =
        (struct effect){.place = effect_place(record, word), .before = before, .after = after};
}

void version_add_own_effect(struct version *version, uint32_t record, uint32_t word,
                            uint64_t before, uint64_t after)
{
    version_add_effect(version, record, word, before, after);
    version->effects[version->effects_n - 1].own = true;
}

static void add_link(struct version *version, const struct region *region, uint32_t record,
                     uint32_t which, uint32_t target)
{
    struct record *r = record_at(region, record);
    uint64_t link = record_load(which == RECORD_NEXT ? &r->next : &r->prev);

    version_add_effect(version, record, which, link, link_next(link, target));
}

uint32_t line_next(const struct region *region, uint32_t record)
{
    return link_record(record_load(&record_at(region, record)->next));
}

bool line_has(const struct region *region, const struct version *version, uint32_t record)
{
    uint32_t prev = link_record(record_load(&record_at(region, record)->prev));

    return line_head(version) == record || (prev && line_next(region, prev) == record);
}

void line_push(const struct region *region, struct version *version, uint32_t record)
{
    struct record *r = record_at(region, record);
    uint32_t head = line_head(version), tail = line_tail(version);
    uint64_t word = record_load(&r->word);

    record_store(&r->next, link_next(record_load(&r->next), 0));
    STEP();
    record_store(&r->prev, link_next(record_load(&r->prev), tail));
    STEP();
    record_store(&r->granted, GRANTED_MARKER | word >> 8);
    STEP();
    version_add_effect(version, record, RECORD_WORD, word, record_next_word(word, RECORD_WAITING));
    version->effects[version->effects_n - 1].own = MUTANT(485);
    if (tail)
        add_link(version, region, tail, RECORD_NEXT, record);
    set_ends(version, head ? head : record, record);
    set_counts(version, line_length(version) + 1, line_left(version));
}

void line_pop(const struct region *region, struct version *version)
{
    uint32_t next = line_next(region, line_head(version));

    set_ends(version, next, next ? line_tail(version) : 0);
    one_leaves(version);
}

void line_remove(const struct region *region, struct version *version, uint32_t record)
{
    struct record *r = record_at(region, record);
    uint32_t next = link_record(record_load(&r->next));
    uint32_t prev = link_record(record_load(&r->prev));

    if (line_head(version) == record) {
        line_pop(region, version);
        return;
    }
    /* The head's `prev` means nothing, so only a record behind the head has two neighbors. */
    if (!MUTANT(4))
        add_link(version, region, prev, RECORD_NEXT, next);
    if (next)
        add_link(version, region, next, RECORD_PREV, prev);
    set_ends(version, line_head(version), next ? line_tail(version) : prev);
    one_leaves(version);
}
