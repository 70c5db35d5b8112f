/* SPDX-License-Identifier: MIT */
/* Sets: enter, settle, withdraw, serve. Each is a loop of read, decide, publish. */
#include "set.h"

#include "acquisition.h"
#include "burial.h"
#include "instance.h"
#include "keeper.h"
#include "kept.h"
#include "keyed.h"
#include "live.h"
#include "member.h"
#include "mutant.h"
#include "operation.h"
#include "placement.h"
#include "step.h"
#include "sys.h"
#include "wake.h"
#include "word.h"
#include <errno.h>
#include <string.h>

static struct record *record_of(const weir_set *set, uint32_t record)
{
    return record_at(set->region, record);
}

static void count_refusal(struct actor *actor, weir_set *set, int code, enum entry entry,
                          const struct verdict *verdict)
{
    struct counters *counters = actor_counters(actor, set->number);

    if (code == -ENOBUFS)
        count(&counters->refused_full, 1);
    else if (entry == ENTRY_WAIT)
        count(&counters->refused_max_wait, 1);
    else
        count(&counters->refused_busy, 1);
    if (verdict->blame)
        count(&counters->limits[verdict->blame - set->limits.items].refused, 1);
}

void set_count_refusal(struct actor *actor, weir_set *set, int code, const char *key)
{
    struct counters *counters = actor_counters(actor, set->number);

    if (code == -ENOENT)
        count(&counters->refused_unknown, 1);
    if (code != -ERANGE)
        return;
    count(&counters->refused_impossible, 1);
    for (uint32_t i = 0; i < set->limits.n; i++)
        if (set->limits.items[i].key == key)
            count(&counters->limits[i].refused, 1);
}

static void count_entry(struct actor *actor, const weir_set *set, const uint64_t *amounts,
                        uint32_t record)
{
    struct counters *counters = actor_counters(actor, set->number);

    count(&counters->granted, 1);
    if (!record)
        count(&counters->taken, 1);
    for (uint32_t i = 0; i < set->limits.n; i++)
        count(&counters->limits[i].granted, amounts[i]);
}

void set_count_busy(struct actor *actor, const weir_set *set, const struct limit *blame)
{
    struct counters *counters = actor_counters(actor, set->number);

    count(&counters->refused_busy, 1);
    count(&counters->limits[blame - set->limits.items].refused, 1);
}

/* Whoever does not wait asks with a record that nobody else knows of. */
static void hold(struct operation *op, uint32_t record, enum entry entry)
{
    struct record *r = record_of(op->set, record);
    uint64_t word = record_load(&r->word);

    record_store(&r->granted, MUTANT(116) ? op->now_ns : op->at.now_ns);
    STEP();
    record_store(&r->since, op->now_ns);
    STEP();
    if (entry == ENTRY_PROBE || entry == ENTRY_TRY)
        version_add_own_effect(&op->version, record, RECORD_WORD, word,
                               record_next_word(word, RECORD_HELD));
    else
        version_add_effect(&op->version, record, RECORD_WORD, word,
                           record_next_word(word, RECORD_HELD));
}

/* Grants to a newcomer what was taken: 0, or -EINPROGRESS when somebody else was faster. */
static int enter_now(struct operation *op, const uint64_t *amounts, uint32_t record,
                     enum entry entry)
{
    projection_forget(op); /* whoever barges takes what those in line were foreseen to get */
    if (record)
        hold(op, record, entry);
    if (!operation_commit(op))
        return -EINPROGRESS;
    count_entry(op->actor, op->set, amounts, record);
    return 0;
}

/* Joins the line, as the projection knows: 1, or -EINPROGRESS. */
static int enter_line(struct operation *op, uint32_t record, uint64_t ready, struct verdict *ret)
{
    struct record *r = record_of(op->set, record);
    bool first = line_length(&op->version) == 0;
    uint64_t word = record_next_word(record_load(&r->word), RECORD_WAITING);

    record_store(&r->since, MUTANT(119) ? op->at.now_ns : op->now_ns);
    STEP();
    ret->ticket = line_left(&op->version) + line_length(&op->version);
    line_push(op->set->region, &op->version, record);
    if (first && ready < WEIR_BLOCKED && waker_kind(record_waker(r)) != RECORD_WAKE_FUTEX) {
        op->arm_ns = ready;
        op->arm = (struct wake){record, word};
    }
    return operation_commit(op) ? 1 : -EINPROGRESS;
}

/* Whether it joins the line whatever there is, because others are before it; unless it can never be
 * granted, which the projection finds out. */
static bool stands_behind(const struct operation *op, enum entry entry, uint64_t max_wait_ns)
{
    const weir_set *set = op->set;
    uint32_t length = line_length(&op->version);

    return entry == ENTRY_WAIT && max_wait_ns == WEIR_FOREVER && length && set->fair &&
           (!set->max_waiters || length < set->max_waiters) && !set->limits.has_unforeseen &&
           (!set->limits.has_waits || projection_is_valid(op)) && !MUTANT(14);
}

static int enter_refused(struct operation *op, const uint64_t *amounts, int code, enum entry entry,
                         struct verdict *ret)
{
    if (!projection_estimate(op, amounts, ret))
        return -EINPROGRESS;
    count_refusal(op->actor, op->set, code, entry, ret);
    return code;
}

static bool beyond(struct operation *op, const uint64_t *amounts, uint64_t max_wait_ns,
                   struct verdict *ret)
{
    if (max_wait_ns == WEIR_FOREVER || !projection_estimate(op, amounts, ret))
        return false;
    return ret->estimate_ns - op->now_ns > max_wait_ns;
}

/*
 * Grants in advance, as of `ready`: 0, -EAGAIN, or -EINPROGRESS. The set is moved to that instant,
 * and nothing is granted before the clock gets there. Whoever is in line comes first.
 */
static int enter_later(struct operation *op, const uint64_t *amounts, uint32_t record,
                       uint64_t ready, uint64_t max_wait_ns, struct verdict *ret)
{
    if ((line_length(&op->version) && !MUTANT(113)) || ready >= GRANTED_MARKER)
        return enter_refused(op, amounts, -EAGAIN, ENTRY_TRY, ret);
    if (ready - op->now_ns - MUTANT(117) > max_wait_ns)
        return enter_refused(op, amounts, -EAGAIN, ENTRY_WAIT, ret);
    op->at.now_ns = ready;
    limits_take(&op->set->limits, operation_states(op), &op->at, amounts, true);
    return enter_now(op, amounts, record, ENTRY_RESERVE);
}

/* When the limits allow it; if that is now, and nothing is reserved, they are taken. */
static uint64_t ask_limits(const struct operation *op, const uint64_t *amounts, bool takes,
                           struct verdict *ret)
{
    const struct limits *limits = &op->set->limits;

    ret->estimate_ns =
        takes ? limits_try_take(limits, operation_states(op), &op->at, amounts, &ret->blame)
              : limits_ready_at(limits, operation_states(op), &op->at, amounts, true, &ret->blame);
    return ret->estimate_ns;
}

static int enter_once(struct operation *op, const uint64_t *amounts, uint32_t record,
                      enum entry entry, uint64_t max_wait_ns, struct verdict *ret)
{
    weir_set *set = op->set;
    uint32_t length = line_length(&op->version);
    bool enters = !length || !set->fair || MUTANT(14);
    uint64_t ready;

    *ret = (struct verdict){.now_ns = op->now_ns, .estimate_ns = WEIR_NEVER};
    if (set_is_broken(set))
        return -EUCLEAN;
    if (version_flags(&op->version) & CONTENT_SHUT)
        return -ESHUTDOWN;
    if (stands_behind(op, entry, max_wait_ns) && (projection_push(op, amounts) || MUTANT(176)))
        return enter_line(op, record, WEIR_BLOCKED, ret);
    ready = ask_limits(op, amounts, enters && (op->at.now_ns == op->now_ns || MUTANT(110)), ret);
    if (enters && (operation_is_due(op, ready) || (MUTANT(110) && ready <= op->at.now_ns)))
        return enter_now(op, amounts, record, entry);
    /* What is short may be held by the dead. */
    if (set->member && !MUTANT(330) && burial_attend_rarely(op->actor, set, op->now_ns))
        return -EINPROGRESS;
    if (ready == WEIR_NEVER) {
        set_count_refusal(op->actor, set, -ERANGE, ret->blame->key);
        return -ERANGE;
    }
    if (entry == ENTRY_PROBE)
        return -EAGAIN;
    if (entry == ENTRY_TRY)
        return enter_refused(op, amounts, -EAGAIN, entry, ret);
    if (entry == ENTRY_RESERVE)
        return enter_later(op, amounts, record, ready, max_wait_ns, ret);
    if (set->max_waiters && length >= set->max_waiters && !MUTANT(15))
        return enter_refused(op, amounts, -ENOBUFS, entry, ret);
    if (beyond(op, amounts, max_wait_ns, ret))
        return enter_refused(op, amounts, -EAGAIN, entry, ret);
    projection_push(op, amounts);
    return enter_line(op, record, ready, ret);
}

/*
 * Who joins the line of a private set after set_shut() has seen that there was none sees himself that
 * the instance is closed: the commit, and the store that closed it, are in one order.
 */
static int stay_in_line(struct actor *actor, weir_set *set, uint32_t record)
{
    if (set->member || !atomic_load(&set->w->closed) ||
        !set_withdraw(actor, set, record, 0, RECORD_SHUT_DOWN))
        return 1;
    acquisition_free_word(set, record);
    return -ESHUTDOWN;
}

int set_enter_boxed(struct actor *actor, weir_set *set, const uint64_t *amounts, uint32_t record,
                    enum entry entry, uint64_t max_wait_ns, struct verdict *ret)
{
    struct operation op;
    unsigned turn = 0;
    int r;

    op.walks = 0;
    for (;; publication_back_off(&turn)) {
        operation_read(&op, actor, set);
        if (!set_is_broken(set) && (!version_is_boxed(&op.version) || word_unbox(&op)))
            r = word_enter(actor, set, amounts, record, entry, ret);
        else
            r = enter_once(&op, amounts, record, entry, max_wait_ns, ret);
        if (r != -EINPROGRESS)
            break;
    }
    return r == 1 ? stay_in_line(actor, set, record) : r;
}

int set_lease(struct actor *actor, weir_set *set, uint64_t amount, uint64_t lease,
              struct verdict *ret)
{
    struct operation op;
    unsigned turn = 0;
    int r = word_lease(actor, set, amount, lease, ret);

    op.walks = 0;
    for (; r == -EINPROGRESS; publication_back_off(&turn)) {
        operation_read(&op, actor, set);
        if (!set_is_broken(set) && (!version_is_boxed(&op.version) || word_unbox(&op)))
            r = word_lease(actor, set, amount, lease, ret);
        else
            r = enter_once(&op, &amount, 0, ENTRY_TRY, WEIR_FOREVER, ret);
    }
    return r;
}

/* Serves until the head cannot be granted any more. Each grant is a version of its own. */
void set_serve(struct actor *actor, weir_set *set)
{
    struct operation op;
    unsigned turn = 0;

    for (;;) {
        operation_read(&op, actor, set);
        if (set_is_broken(set))
            return;
        operation_serve(&op, 0);
        if (!op.version.effects_n)
            break;
        if (!operation_commit(&op))
            publication_back_off(&turn);
        else if (!op.again)
            return;
    }
    if (op.arm_ns != WEIR_FOREVER)
        wake_at(set, op.arm.record, op.arm.word, op.arm_ns);
}

uint64_t set_look(struct actor *actor, weir_set *set, uint32_t record)
{
    struct operation op;
    unsigned turn = 0;

    for (;;) {
        operation_read(&op, actor, set);
        if (line_head(&op.version) != record || set_is_broken(set))
            return WEIR_FOREVER;
        operation_serve(&op, WEIR_FOREVER);
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

bool set_settle_limit(const weir_set *set, uint32_t i, uint64_t *state,
                      const struct weir_instant *at, const struct settlement *settlement,
                      uint64_t granted_ns)
{
    const struct limit *limit = &set->limits.items[i];
    uint64_t amount = settlement->amounts[i], used = settlement->used[i];

    if (!amount)
        return false;
    if (limit->type == WEIR_LIMIT_RESOURCE) {
        limit_release(limit, state, at, amount, granted_ns);
        return false;
    }
    if (settlement->unused)
        used = 0;
    if (used < amount && (limit->refunds || settlement->unused))
        limit_refund(limit, state, at, amount - used, granted_ns);
    else if (used > amount && limit->charges && !MUTANT(31))
        limit_charge(limit, state, at, used - amount);
    else
        return false;
    return true;
}

void set_count_settlement(struct actor *actor, const weir_set *set,
                          const struct settlement *settlement)
{
    struct counters *counters = actor_counters(actor, set->number);
    uint64_t refunded = 0, overused = 0;

    for (uint32_t i = 0; i < set->limits.n; i++) {
        const struct limit *limit = &set->limits.items[i];
        uint64_t amount = settlement->amounts[i];
        uint64_t used = settlement->unused ? 0 : settlement->used[i];

        if (!amount || limit->type == WEIR_LIMIT_RESOURCE)
            continue;
        if (used < amount && (limit->refunds || settlement->unused) && limit->algorithm->refund) {
            count(&counters->limits[i].refunded, amount - used);
            refunded = 1;
        } else if (used > amount) {
            count(&counters->limits[i].overused, used - amount);
            overused = 1;
        }
    }
    count(&counters->released, 1);
    if (settlement->unused)
        count(&counters->canceled, 1);
    if (refunded | overused) {
        count(&counters->refunded, refunded);
        count(&counters->overused, overused);
    }
}

/*
 * One attempt with the whole of the set: 1 done, 0 somebody else did it, or -EINPROGRESS. `op->again`
 * once it is done: the line is to be served on. `claimed`: the record is FREE already.
 */
static int settle_once(struct operation *op, uint32_t record, uint64_t word, bool own,
                       const struct settlement *settlement, bool claimed)
{
    const weir_set *set = op->set;
    uint64_t granted_ns = set_granted_ns(set, record, settlement);
    uint64_t watched_ns = operation_head_ready(op), free_word = record_next_word(word, RECORD_FREE);
    bool changed = false;

    if (!claimed && record_load(&record_of(set, record)->word) != word && !MUTANT(25))
        return 0;
    for (uint32_t i = 0; i < set->limits.n; i++)
        changed |= set_settle_limit(set, i, operation_states(op) + set->limits.items[i].state_at,
                                    &op->at, settlement, granted_ns);
    if (!claimed && own)
        version_add_own_effect(&op->version, record, RECORD_WORD, word, free_word);
    else if (!claimed)
        version_add_effect(&op->version, record, RECORD_WORD, word, free_word);
    if (!MUTANT(16))
        operation_serve(op, watched_ns);
    if (changed || op->granted)
        projection_forget(op);
    return operation_commit(op) ? 1 : -EINPROGRESS;
}

/* Whether an algorithm is asked what a settlement does to it. */
static bool asks(const weir_set *set, const struct settlement *settlement)
{
    for (uint32_t i = 0; i < set->limits.n; i++)
        if (settlement->amounts[i] && set->limits.items[i].algorithm &&
            (set->limits.items[i].type == WEIR_LIMIT_RESOURCE || settlement->unused ||
             settlement->used[i] != settlement->amounts[i]))
            return true;
    return set->form != WORD_NONE; /* which can only be put there at an instant */
}

/* With the whole of the set, until that can be in its word. 1 done, 0 somebody else did it. */
static int settle_boxed(struct actor *actor, weir_set *set, uint32_t record, uint64_t word,
                        bool own, const struct settlement *settlement, bool claimed)
{
    struct operation op;
    bool timed = asks(set, settlement);
    unsigned turn = 0;
    int r;

    op.again = false;
    for (;; publication_back_off(&turn)) {
        if (timed)
            operation_read(&op, actor, set);
        else
            operation_read_untimed(&op, actor, set);
        if (set_is_broken(set))
            return 1; /* there is nothing that it could be given back to */
        if (!version_is_boxed(&op.version) || word_unbox(&op))
            r = word_settle(actor, set, record, word, own, settlement, &claimed);
        else
            r = settle_once(&op, record, word, own, settlement, claimed);
        if (r != -EINPROGRESS)
            break;
    }
    if (r == 1 && op.again)
        set_serve(actor, set);
    return r;
}

/* `own`: by whoever holds it, so that nobody else settles the record, or uses it again meanwhile. */
static bool settle(struct actor *actor, weir_set *set, uint32_t record, uint64_t word, bool own,
                   const struct settlement *settlement)
{
    bool claimed = false;
    int r = -EINPROGRESS;

    if (set->keyed)
        return keyed_settle(actor, set, record, word, settlement);
    if (set->form != WORD_NONE)
        r = word_settle(actor, set, record, word, own, settlement, &claimed);
    if (r == -EINPROGRESS)
        r = settle_boxed(actor, set, record, word, own, settlement, claimed);
    if (r == 0)
        return false;
    if (!set_is_broken(set))
        set_count_settlement(actor, set, settlement);
    if (MUTANT(97))
        sys_futex_wake(record_futex(record_of(set, record)), 1);
    return true;
}

void set_settle(struct actor *actor, weir_set *set, uint32_t record,
                const struct settlement *settlement)
{
    settle(actor, set, record, record_load(&record_of(set, record)->word), true, settlement);
}

bool set_settle_exactly(struct actor *actor, weir_set *set, uint32_t record, uint64_t word,
                        const struct settlement *settlement)
{
    return settle(actor, set, record, word, MUTANT(484), settlement);
}

void set_give_back(struct actor *actor, weir_set *set, const struct settlement *settlement)
{
    bool claimed = true;

    if (word_settle(actor, set, 0, 0, true, settlement, &claimed) == -EINPROGRESS)
        settle_boxed(actor, set, 0, 0, true, settlement, true);
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
            operation_serve(&op, 0);
        if (operation_commit(&op))
            break;
    }
    count_withdrawal(actor, set, state);
    if (op.again)
        set_serve(actor, set);
    return true;
}

bool set_is_broken(const weir_set *set)
{
    return set->member && member_is_broken(set->member);
}

uint64_t set_word(const weir_set *set, uint32_t record)
{
    uint64_t word = record_load(&record_of(set, record)->word);

    if (set->member && (member_is_broken(set->member) || (word & 0xff) >= RECORD_BROKEN))
        return record_next_word(word, RECORD_BROKEN);
    return word;
}

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
        word = record_load(&record_of(set, head)->word);
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
    weir_set *set = shutting->set;
    uint64_t word = kept_word(set->w, kept);

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
    uint32_t record = 0;

    member_each_kept(set->member, shut_kept, &shutting);
    while ((record = region_next_record(set->region, record)) != 0) {
        uint64_t word = set_word(set, record);

        if (record_state(word) != RECORD_WAITING ||
            (!member_owns(set->member, record) && !MUTANT(327)))
            continue;
        if (set_withdraw(actor, set, record, word, RECORD_SHUT_DOWN))
            wake_waiter(set, record, record_next_word(word, RECORD_SHUT_DOWN));
    }
}

void set_shut(struct actor *actor, weir_set *set)
{
    if (set->member) {
        shut_own(actor, set);
        return;
    }
    atomic_thread_fence(memory_order_seq_cst);
    if (set->keyed)
        keyed_shut(actor, set);
    while (set->head && !shut_head(actor, set))
        ;
}

void set_estimate(struct actor *actor, weir_set *set, const uint64_t *amounts, enum walk walk,
                  struct verdict *ret)
{
    struct operation op;

    op.walks = 0;
    do {
        ret->blame = NULL;
        operation_read(&op, actor, set);
        if (set_is_broken(set)) {
            *ret = (struct verdict){.now_ns = op.now_ns, .estimate_ns = WEIR_NEVER};
            return;
        }
        if (walk == SHORT_LINE && line_length(&op.version) > SHORT_LINE_MAX)
            op.walks = WALKS_MAX;
        /* If only a resource is short, that is what is to blame, though nothing can be foreseen. */
        limits_ready_at(&set->limits, operation_states(&op), &op.at, amounts, true, &ret->blame);
    } while (!projection_estimate(&op, amounts, ret));
}

uint32_t set_snapshot(struct actor *actor, weir_set *set)
{
    struct operation op;

    operation_read(&op, actor, set);
    return line_length(&op.version);
}

const char *set_name(const weir_set *set)
{
    if (set_is_hidden(set))
        return set_name(live_of(instance_set(set->w, set->id))->keyed->set);
    return (const char *)(set + 1);
}

/* With its name behind it, and its limits. */
static weir_set *begin(weir *w, const struct set_plan *plan)
{
    size_t name_size = strlen(plan->name) + 1;
    weir_set *set = sys_alloc(1, sizeof(*set) + name_size);
    struct limit *limits = NULL;

    if (set && plan->limits_n)
        limits = limits_share(&w->limits, plan->limits, plan->limits_n);
    if (set && plan->limits_n && !limits) {
        sys_free(set);
        return NULL;
    }
    if (set) {
        set->limits = (struct limits){
            .items = limits, .n = (uint16_t)plan->limits_n, .state_words = plan->state_words};
        memcpy(set + 1, plan->name, name_size);
    }
    return set;
}

static void end(weir_set *set)
{
    if (set->limits.n)
        limits_give_back(&set->w->limits, set->limits.items);
    sys_free(set);
}

int set_new(weir *w, uint32_t number, struct set_plan *plan, weir_set **ret,
            struct weir_error *reterr)
{
    weir_set *set = begin(w, plan);
    int r;

    if (!set)
        return -ENOMEM;
    set->w = w;
    set->region = &w->region;
    set->number = set->id = number;
    set->record_units =
        (uint8_t)record_units(set->limits.n + (plan->keyed.max_keys ? KEYED_RECORD_WORDS : 0));
    if (MUTANT(162) && !set->limits.n)
        set->record_units = 1;
    limits_describe(&set->limits);
    set->backend = plan->backend;
    set->while_used = plan->while_used;
    r = placement_make(set, plan, reterr);
    if (r == 0 && plan->keyed.max_keys)
        r = keyed_new(set, plan, reterr);
    if (r < 0) {
        end(set);
        return r;
    }
    set->config = plan->config;
    set->config_n = (uint16_t)plan->config_n;
    plan->config = NULL;
    plan->config_n = 0;
    set->timeout_ns = plan->timeout_ns;
    set->max_wait_ns = plan->max_wait_ns;
    set->max_waiters = plan->max_waiters;
    set->strict = plan->strict;
    set->fair = plan->fair;
    set_plan_free(plan);
    *ret = set;
    return 0;
}

void set_free(weir_set *set)
{
    keyed_free(set->keyed);
    member_close(set->member);
    for (uint32_t i = 0; i < set->config_n; i++) {
        sys_free(set->config[i].name);
        sys_free(set->config[i].value);
    }
    sys_free(set->config);
    sys_free(atomic_load(&set->warnings));
    end(set);
}
