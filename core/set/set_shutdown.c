/* SPDX-License-Identifier: MIT */
/* Sets: everybody in line leaves, and nobody is granted anything any more. */
#include "set/set.h"

#include "api/instance.h"
#include "base/mutant.h"
#include "base/sched_point.h"
#include "keyed/key_set.h"
#include "keyed/keyed.h"
#include "peer/participant.h"
#include "set/txn.h"
#include "wait/notify.h"
#include "wait/wait_timer.h"
#include "wait/waiter.h"

static bool shut_head(struct actor *actor, weir_set *set)
{
    struct operation op;
    uint32_t head;
    uint64_t word, next;

    operation_read(&op, actor, set);
    if (!version_is_boxed(&op.version))
        return true; /* nobody is in line, and whoever joins sees for himself */
    version_set_flags(&op.version, version_flags(&op.version) | CONTENT_SHUT);
    projection_forget(&op);
    head = line_head(&op.version);
    if (head) {
        word = record_load(&set_record(set, head)->word);
        next = record_next_word(word, RECORD_SHUT_DOWN);
        line_pop(set->region, &op.version);
        version_add_effect(&op.version, head, RECORD_WORD, word, next);
        if (!MUTANT(99))
            op.wakes[op.wakes_n++] = (struct wake){head, next};
    }
    return operation_commit(&op) && !head;
}

struct shutting {
    struct actor *actor;
    weir_set *set;
};

/* Of a broken set nobody leaves the line, but all are told. Who reaps a queue hears it there. */
static void shut_kept(void *userdata, uint32_t record, uint32_t kept)
{
    const struct shutting *shutting = userdata;
    const weir *w = shutting->set->w;
    /* In this order: the record may wait anew meanwhile, for another key, but with another word. */
    uint64_t word = kept_word(w, kept);
    weir_set *set = kept_set(w, kept); /* or a live one of it */

    STEP();
    if (MUTANT(631))
        word = kept_word(w, kept);
    if (record_state(word) == RECORD_WAITING &&
        set_withdraw(shutting->actor, set, record, word, RECORD_SHUT_DOWN))
        word = record_next_word(word, RECORD_SHUT_DOWN);
    else if (set_is_broken(set))
        word = kept_word(set->w, kept);
    if (waker_kind(record_waker(kept_at(set->w, kept))) == RECORD_WAKE_KEEPER ||
        record_state(word) == RECORD_SHUT_DOWN)
        keeper_wake(set->w, kept, word);
}

/* Others go on: only who waits in this process leaves the line. */
static void shut_own(struct actor *actor, weir_set *set)
{
    struct shutting shutting = {actor, set};
    struct live storage;
    uint32_t record = 0;

    member_each_kept(set->member, shut_kept, &shutting);
    while ((record = region_next_record(set->region, record)) != 0) {
        uint64_t word = set_word(set, record);

        if (record_state(word) != RECORD_WAITING ||
            (!member_owns(set->member, record) && !MUTANT(327)))
            continue;
        if (set_withdraw(actor, live_marked(set, record_at(set->region, record), &storage), record,
                         word, RECORD_SHUT_DOWN))
            wake_waiter(set, record, record_next_word(word, RECORD_SHUT_DOWN));
    }
}

static void shut_keys(struct actor *actor, weir_set *set)
{
    for (uint32_t i = 0; i < lives_n(set->keyed); i++)
        set_shut(actor, &live_numbered(set->keyed, i, NULL)->set);
}

void set_shut(struct actor *actor, weir_set *set)
{
    if (set->member) {
        shut_own(actor, set);
        return;
    }
    atomic_thread_fence(memory_order_seq_cst);
    if (set->keyed)
        shut_keys(actor, set);
    while (set->head && !shut_head(actor, set))
        ;
}
