/* SPDX-License-Identifier: MIT */
/* Releases to wherever the key's word points at that time. */
#include "base/backoff.h"
#include "keyed/keyed_internal.h"
#include "set/try_now.h"

#include "base/invariant.h"
#include "base/sched_point.h"
#include "set/instance_base.h"
#include "set/shadow.h"
#include <errno.h>

/* A release. Its record may become free before the key's state changes. */
struct keyed_release_op {
    struct keyed_slot slot;
    weir_set *set; /* the template set */
    uint32_t record;
    uint64_t word; /* of the record while it is HELD */
    uint32_t rest; /* as in struct release_op; only in a key set */
    struct release_args args;
    bool record_freed; /* the record is free; only the key's state is still to be changed */
};

enum release_result {
    RELEASE_DONE,
    RELEASE_LOST, /* another thread released the record */
    RELEASE_AGAIN /* the key has changed: find it again */
};

/* Ends the record, and makes the one with the rest HELD. Of several threads that try, one succeeds;
 * false: another one did. */
static bool keyed_claim_record(struct keyed_release_op *rel)
{
    struct acq_record *r = record_at(rel->set->region, rel->record), *rest;

    WEIR_INVARIANT(rel->set->is_robust || record_state(rel->word) == RECORD_HELD);
    if (rel->record_freed)
        return true;
    rel->record_freed = shm_cas_seq_cst(&r->word, rel->word,
                                        record_next_word(rel->word, release_end_state(&rel->args)));
    if (rel->record_freed && rel->rest) { /* no other thread knows of it yet */
        rest = record_at(rel->set->region, rel->rest);
        shm_store_release(&rest->word, record_next_word(record_load(&rest->word), RECORD_HELD));
    }
    return rel->record_freed;
}

/* Releases to the state in the key's word. */
static enum release_result keyed_release_word(struct keyed_release_op *rel)
{
    struct keyed_slot *slot = &rel->slot;
    const weir_set *set = rel->set;
    struct weir_instant at = {0};
    uint64_t before, state;

    if (!keyed_claim_record(rel))
        return RELEASE_LOST;
    if (set->limits.items[0].algorithm)
        at = clock_instant(&set->w->clock, set->limits.clock_needs);
    before = state = keyed_slot_state(slot, &at);
    if (!keyed_is_valid(keyed_of(set), state))
        return RELEASE_DONE; /* no state to release to */
    set_release_limit(set, 0, &state, &at, &rel->args, rel->args.granted_ns);
    if (keyed_is_faulty(slot->ctx, rel->set)) {
        keyed_slot_drop(slot);
        return RELEASE_DONE; /* the algorithm broke its contract: the state may be none */
    }
    if (state == before && !slot->is_claim)
        return RELEASE_DONE;
    return keyed_slot_swap(slot, state) == KEY_SWAPPED ? RELEASE_DONE : RELEASE_AGAIN;
}

/* Releases to a key set, as set_release_inflated(). In a private set the record may be freed first,
 * because threads do not die one by one. In one that revokes it has to be: a key may have its state
 * in its word when it is revoked, and in a key set when it is released, and its word needs that. */
static int keyed_release_to_key_set(struct keyed_release_op *rel, weir_set *set)
{
    bool is_claimed = !set->is_robust && set->limits.revokes;
    struct release_op op = {.args = &rel->args,
                            .record = rel->record,
                            .record_word = rel->word,
                            .is_owner = rel->rest != 0 && !set->limits.revokes,
                            .rest = is_claimed ? 0 : rel->rest};

    if (is_claimed && !keyed_claim_record(rel))
        return TRY_REFUSED;
    op.record_freed = rel->record_freed;
    if (!set->is_robust && !set_release_uses_algorithm(set, &rel->args)) {
        enum try_result r = try_now_release(rel->slot.ctx, set, &op);

        rel->record_freed = op.record_freed;
        if (r != TRY_SLOW)
            return r;
    }
    op.use_algorithm = true;
    if (op.record_freed)
        op.record = 0;
    return set_release_inflated(rel->slot.ctx, set, &op);
}

/* Releases to the key set that the key's word names. */
static enum release_result keyed_release_bound(struct keyed_release_op *rel)
{
    struct thread_ctx *ctx = rel->slot.ctx;
    uint64_t word = rel->slot.entry.word;
    struct key_set storage, *key_set = key_set_at(rel->slot.keyed, word, &storage);
    uint64_t outer_binding = ctx->binding; /* of an acquisition that is reaping dead peers now */
    int r = -ESTALE;

    ctx->binding = key_word_binding(word);
    if (key_set)
        r = keyed_release_to_key_set(rel, &key_set->set);
    ctx->binding = outer_binding;
    if (r == -ESTALE)
        return key_set_repair(&rel->slot) ? RELEASE_AGAIN : RELEASE_DONE;
    key_set_unbind_if_idle(ctx, &key_set->set);
    return r == TRY_REFUSED ? RELEASE_LOST : RELEASE_DONE;
}

/* Returns whether the release charges beyond the grant. Then a missing key must be created, since
 * its removal must not be observable. Returning units to a new key makes no difference. */
static bool keyed_release_charges(const weir_set *set, const struct release_args *args)
{
    bool charges = false;

    for (uint32_t i = 0; i < set->limits.n; i++)
        charges |=
            set->limits.items[i].charges && args->amounts[i] && args->used[i] > args->amounts[i];
    return charges && !args->return_all;
}

/* Finds the key, or claims a slot for it if it is missing and must pay. Without room for the key
 * the charge is dropped. */
static bool keyed_release_find(struct keyed_release_op *rel)
{
    struct weir_instant at;

    if (keyed_slot_find(&rel->slot))
        return true;
    if (rel->rest || !keyed_claim_record(rel) || !keyed_release_charges(rel->set, &rel->args))
        return false;
    at = clock_instant(&rel->set->w->clock, rel->set->limits.clock_needs);
    return keyed_slot_claim(&rel->slot, &at);
}

static enum release_result keyed_release_once(struct keyed_release_op *rel)
{
    int r;

    if (!keyed_release_find(rel))
        return rel->record_freed ? RELEASE_DONE : RELEASE_LOST;
    if (keyed_slot_is_bound(&rel->slot))
        return keyed_release_bound(rel);
    if (rel->rest && rel->set->is_robust) /* held units bind a key, unless there is damage */
        return RELEASE_LOST;
    if (!rel->slot.is_claim || keyed_of(rel->set)->fits_inline)
        return keyed_release_word(rel);
    r = key_set_bind(&rel->slot);
    return r == 1 || r == -ESTALE ? RELEASE_AGAIN : RELEASE_DONE;
}

/* Releases until the key does not change meanwhile. Returns RELEASE_DONE or RELEASE_LOST. */
static enum release_result keyed_release_run(struct keyed_release_op *rel)
{
    enum release_result result;
    unsigned turn = 0;

    while ((result = keyed_release_once(rel)) == RELEASE_AGAIN)
        spin_backoff(&turn);
    return result;
}

bool keyed_release(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word,
                   bool is_owner, const struct release_args *args)
{
    weir_set *template = key_set_template(set);
    const struct key_digest key = keyed_record_key(template, record);
    struct keyed_release_op rel = {.slot = {.keyed = keyed_of(template), .ctx = ctx, .key = &key},
                                   .set = template,
                                   .record = record,
                                   .word = word,
                                   .args = *args};
    struct shadow_release taken;

    (void)is_owner; /* the record's word is claimed in any case */
    if (template->limits.has_shadow) {
        shadow_release_args(template, record, args, &taken);
        rel.args = taken.args;
    }
    rel.args.granted_ns = grant_time(record_load(&record_at(set->region, record)->granted_ns));
    if (keyed_release_run(&rel) == RELEASE_LOST)
        return false;
    if (!set_is_broken(template))
        set_count_release(ctx, template, &rel.args);
    return true;
}

void keyed_return_part(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint32_t rest,
                       const struct release_args *args)
{
    weir_set *template = key_set_template(set);
    const struct key_digest key = keyed_record_key(template, record);
    struct keyed_release_op rel = {.slot = {.keyed = keyed_of(template), .ctx = ctx, .key = &key},
                                   .set = template,
                                   .record = record,
                                   .word = record_load(&record_at(set->region, record)->word),
                                   .rest = rest,
                                   .args = *args,
                                   .record_freed = !rest};
    struct shadow_release taken;

    if (template->limits.has_shadow) {
        shadow_release_args(template, record, args, &taken);
        rel.args = taken.args;
    }
    WEIR_INVARIANT(!rest || set_exchanges_records(template));
    if (rest && record_state(rel.word) != RECORD_HELD)
        return; /* it was revoked */
    if (keyed_release_run(&rel) == RELEASE_DONE && !set_is_broken(template))
        set_count_return(ctx, template, &rel.args);
}
