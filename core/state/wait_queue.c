/* SPDX-License-Identifier: MIT */
/* The line: edits of a private version. Links are read as they are now; if that is no longer the
 * version that was read, the commit fails and nothing of it counts. */
#include "state/wait_queue.h"

#include "base/mutant.h"

static void add_link(struct version *version, const struct region *region, uint32_t record,
                     uint32_t which, uint32_t target)
{
    struct record *r = record_at(region, record);
    uint64_t link = record_load(which == RECORD_NEXT ? &r->next : &r->prev);

    version_add_effect(version, record, which, link, link_next(link, target));
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

    line_prepare(r, word, tail);
    version_add_effect(version, record, RECORD_WORD, word, record_next_word(word, RECORD_WAITING));
    version->effects[version->effects_n - 1].own = MUTANT(485);
    if (tail)
        add_link(version, region, tail, RECORD_NEXT, record);
    line_set_ends(version, head ? head : record, record);
    line_set_counts(version, line_length(version) + 1, line_left(version));
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
    line_set_ends(version, line_head(version), next ? line_tail(version) : prev);
    line_one_leaves(version);
}
