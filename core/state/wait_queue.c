/* SPDX-License-Identifier: MIT */
/*
 * Edits of the wait queue in a private copy of a version. Links are read as they are now; if they
 * are not of the version that was read, the commit fails and the edit has no effect.
 */
#include "state/wait_queue.h"
#include "base/invariant.h"

static void waitq_defer_link(struct version *version, const struct region *region, uint32_t record,
                             uint32_t which, uint32_t target)
{
    struct acq_record *r = record_at(region, record);
    uint64_t link = record_load(which == RECORD_FIELD_NEXT ? &r->next : &r->prev);

    version_defer_write(version, record, which, link, record_link_next(link, target));
}

bool waitq_contains(const struct region *region, const struct version *version, uint32_t record)
{
    uint32_t prev = record_link_target(record_load(&record_at(region, record)->prev));

    return waitq_head(version) == record || (prev && waitq_next(region, prev) == record);
}

void waitq_enqueue(const struct region *region, struct version *version, uint32_t record)
{
    struct acq_record *r = record_at(region, record);
    uint32_t head = waitq_head(version), tail = waitq_tail(version);
    uint64_t word = record_load(&r->word);

    WEIR_INVARIANT(waitq_is_consistent(version));
    WEIR_INVARIANT(region->segment || waitq_length(version) < WAITQ_COUNT_MASK);
    WEIR_INVARIANT(record && (region->segment || record != tail));
    WEIR_INVARIANT(region->segment || record_state(word) == RECORD_FREE);
    waitq_prepare(r, word, tail);
    version_defer_write(version, record, RECORD_FIELD_WORD, word,
                        record_next_word(word, RECORD_WAITING));
    version->writes[version->writes_n - 1].is_exclusive = false;
    if (tail)
        waitq_defer_link(version, region, tail, RECORD_FIELD_NEXT, record);
    waitq_set_ends(version, head ? head : record, record);
    waitq_set_counts(version, waitq_length(version) + 1, waitq_departures(version));
}

void waitq_remove(const struct region *region, struct version *version, uint32_t record)
{
    struct acq_record *r = record_at(region, record);
    uint32_t next = record_link_target(record_load(&r->next));
    uint32_t prev = record_link_target(record_load(&r->prev));

    WEIR_INVARIANT(record && waitq_is_consistent(version));
    if (waitq_head(version) == record) {
        waitq_dequeue(region, version);
        return;
    }
    /* The head's `prev` is meaningless, so only a record behind the head has two neighbors. */
    waitq_defer_link(version, region, prev, RECORD_FIELD_NEXT, next);
    if (next)
        waitq_defer_link(version, region, next, RECORD_FIELD_PREV, prev);
    waitq_set_ends(version, waitq_head(version), next ? waitq_tail(version) : prev);
    waitq_count_departure(version);
}
