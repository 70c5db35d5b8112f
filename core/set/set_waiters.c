/* SPDX-License-Identifier: MIT */
/* Sets: the line is served, looked at by whoever is blocked in it, and left. */
#include "set/set.h"

#include "api/instance.h"
#include "base/mutant.h"
#include "set/txn.h"
#include "wait/notify.h"

/* Serves until the head cannot be granted any more. Each grant is a version of its own; where there
 * is none, nor anything to publish, somebody may have to be told when to look all the same. */
void set_serve(struct actor *actor, weir_set *set)
{
    struct operation op;
    unsigned turn = 0;

    for (;;) {
        operation_read(&op, actor, set);
        if (set_is_broken(set))
            return;
        operation_serve(&op, WATCHED_BY_NOBODY);
        if (!op.version.effects_n)
            break;
        if (!operation_commit(&op))
            publication_back_off(&turn);
        else if (!op.again)
            return;
    }
    if (op.arm_ns != WEIR_FOREVER)
        wake_at(set, op.arm.record, op.arm.word, op.arm_ns);
    for (uint32_t i = 0; i < op.wakes_n && !MUTANT(687); i++)
        wake_waiter(set, op.wakes[i].record, op.wakes[i].word);
}

uint64_t set_look(struct actor *actor, weir_set *set, uint32_t record)
{
    struct operation op;
    unsigned turn = 0;

    for (;;) {
        operation_read(&op, actor, set);
        if (line_head(&op.version) != record || set_is_broken(set))
            return WEIR_FOREVER;
        operation_serve(&op, WATCHED_BY_CALLER);
        if (!op.granted)
            return op.look_ns;
        if (!operation_commit(&op)) {
            publication_back_off(&turn);
            continue;
        }
        if (op.again)
            set_serve(actor, set);
        return 0;
    }
}

static void count_withdrawal(struct actor *actor, weir_set *set, enum record_state state)
{
    struct counters *counters = actor_counters(actor, set->number);

    if (state == RECORD_TIMED_OUT)
        count(&counters->timed_out, 1);
    else if (state == RECORD_REFUSED)
        count(&counters->refused_max_wait, 1);
    else
        count(&counters->canceled, 1);
}

bool set_withdraw(struct actor *actor, weir_set *set, uint32_t record, uint64_t expected,
                  enum record_state state)
{
    struct operation op;
    unsigned turn = 0;

    for (;; publication_back_off(&turn)) {
        uint64_t word;
        bool head;

        operation_read(&op, actor, set);
        word = set_word(set, record);
        if (record_state(word) != RECORD_WAITING || (expected && word != expected))
            return false;
        if (!operation_has(&op, record))
            continue;
        head = line_head(&op.version) == record;
        line_remove(set->region, &op.version, record);
        version_add_effect(&op.version, record, RECORD_WORD, word, record_next_word(word, state));
        projection_forget(&op);
        if (head && !MUTANT(17))
            operation_serve(&op, WATCHED_BY_NOBODY);
        if (operation_commit(&op))
            break;
    }
    count_withdrawal(actor, set, state);
    if (op.again)
        set_serve(actor, set);
    return true;
}
