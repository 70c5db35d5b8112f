/* SPDX-License-Identifier: MIT */
/* Releases to wherever the key's word points at that time. */
#include "base/backoff.h"
#include "keyed/keyed_internal.h"
#include "set/try_now.h"

#include "base/invariant.h"
#include "base/sched_point.h"
#include "set/instance_base.h"
#include "set/places.h"
#include "set/shadow.h"
#include <errno.h>
#include <string.h>

/* The key, and what is released: all but `shadow` is that once there is a successor. */
struct keyed_release_amounts {
    struct key_digest key;
    struct shadow_release shadow;
    struct release_args taken;                                        /* by the template set */
    uint64_t granted[WEIR_LIMITS_MAX], granted_used[WEIR_LIMITS_MAX]; /* by the granter */
    uint64_t amounts[WEIR_LIMITS_MAX], used[WEIR_LIMITS_MAX];         /* by the slot's definition */
};

/* A release. Its record may become free before the key's state changes. */
struct keyed_release_op {
    struct keyed_slot slot; /* its definition is the one by which the key is released to */
    weir_set *set;          /* the template set */
    struct thread_ctx *ctx; /* prepared for it */
    uint32_t record;
    uint64_t word; /* of the record while it is HELD */
    uint32_t rest; /* as in struct release_op; only in a key set */
    struct release_args args;
    bool record_freed; /* the record is free; only the key's state is still to be changed */

    const weir_set *granter; /* the definition that has granted, once there is a successor */
    struct keyed_release_amounts *moved;
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
    if (rel->args.revoker && set_newest(rel->set) != rel->args.revoker)
        return false; /* it may be held for longer by the newest definition */
    rel->record_freed = shm_cas_seq_cst(&r->word, rel->word,
                                        record_next_word(rel->word, release_end_state(&rel->args)));
    if (rel->record_freed && rel->rest) { /* no other thread knows of it yet */
        rest = record_at(rel->set->region, rel->rest);
        shm_store_release(&rest->word, record_next_word(record_load(&rest->word), RECORD_HELD));
    }
    return rel->record_freed;
}

/* ---- definitions ---- */

/* Notes what was taken: by the first definition, if there was no other one before the record was
 * freed, which may be another grant's by now. */
static void keyed_release_note_grant(struct keyed_release_op *rel, bool is_first)
{
    const struct acq_record *r = record_at(rel->set->region, rel->record);
    const size_t size = rel->set->limits.n * sizeof(uint64_t);
    struct keyed_release_amounts *moved = rel->moved;

    moved->taken = rel->args;
    rel->granter = is_first ? shadow_granter(rel->set, r, NULL) : rel->set;
    memcpy(moved->granted, rel->args.amounts, size);
    memcpy(moved->granted_used, rel->args.used, size);
    if (is_first)
        shadow_translate_taken(rel->granter, rel->set, r, moved->granted);
    successor_translate(rel->granter, rel->set, rel->granter->number, moved->granted_used);
}

/* Turns what is released into amounts by the slot's definition, which is not before the one that
 * has granted. The rest holds, or waits for, nothing of limits that this does not have. */
static void keyed_release_translate(struct keyed_release_op *rel)
{
    const weir_set *set = rel->slot.keyed->set, *granter = rel->granter;
    struct keyed_release_amounts *moved = rel->moved;

    memcpy(moved->amounts, moved->granted, granter->limits.n * sizeof(*moved->amounts));
    memcpy(moved->used, moved->granted_used, granter->limits.n * sizeof(*moved->used));
    successor_translate(set, granter, granter->number, moved->amounts);
    successor_translate(set, granter, granter->number, moved->used);
    rel->args.amounts = moved->amounts;
    rel->args.used = moved->used;
    if (rel->rest && set_is_shared(set))
        places_translate_record(set, rel->set, rel->rest);
}

/* Returns whether the record is claimed first: it is of another definition than the key, which
 * knows nothing of it, or may be revoked meanwhile, and is read only after that. A shared one
 * changes with the state: its amounts are by places. */
static bool keyed_release_claims(const struct keyed_release_op *rel)
{
    return !rel->set->is_robust && (rel->slot.keyed->set != rel->set || rel->set->limits.revokes);
}

/* Releases to the state in the key's word. */
static enum release_result keyed_release_word(struct keyed_release_op *rel)
{
    struct keyed_slot *slot = &rel->slot;
    weir_set *set = slot->keyed->set;
    struct weir_instant at = {0};
    uint32_t place = set_listed(set, 0);
    uint64_t before, state;

    if (!keyed_claim_record(rel))
        return RELEASE_LOST;
    if (rel->granter)
        keyed_release_translate(rel);
    if (set->limits.items[place].algorithm)
        at = clock_instant(&set->w->clock, set->limits.clock_needs);
    before = state = keyed_slot_state(slot, &at);
    if (!keyed_is_valid(keyed_of(set), state))
        return RELEASE_DONE; /* no state to release to */
    set_release_limit(set, place, &state, &at, &rel->args, rel->args.granted_ns);
    if (keyed_is_faulty(slot->ctx, set)) {
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

/* Releases by a definition, with a context that is prepared for it. */
static enum release_result
keyed_release_by(struct keyed_release_op *rel, weir_set *set,
                 enum release_result (*release)(struct keyed_release_op *rel))
{
    bool is_own = set == rel->set;
    struct thread_ctx *outer = rel->slot.ctx; /* maybe the spare one, for a later definition */
    struct thread_ctx *ctx = is_own ? rel->ctx : moved_borrow_ctx(outer, set);
    enum release_result result;

    rel->slot.keyed = keyed_of(set);
    rel->slot.ctx = ctx;
    result = release(rel);
    if (!is_own)
        moved_return_ctx(outer, ctx);
    rel->slot.ctx = outer;
    return result;
}

static enum release_result keyed_release_bound(struct keyed_release_op *rel);

/* Releases to a key set of an earlier definition if there is no memory for that of the slot's, and
 * no other reason: a definition that has come meanwhile is to be taken note of first. */
static enum release_result keyed_release_bound_before(struct keyed_release_op *rel)
{
    uint32_t number = (uint32_t)(rel->slot.entry.word >> BINDING_BITS & (KEY_SETS_MAX - 1));
    const struct key_set *key_set = key_set_known(rel->slot.keyed, number);

    WEIR_INVARIANT(key_set);
    if (key_set->keyed->definition >= rel->slot.keyed->definition || !rel->granter)
        return RELEASE_AGAIN;
    return keyed_release_by(rel, key_set->keyed->set, keyed_release_bound);
}

/* Releases to the key set of the slot's definition that the key's word names. */
static enum release_result keyed_release_bound(struct keyed_release_op *rel)
{
    struct thread_ctx *ctx = rel->slot.ctx;
    uint64_t word = rel->slot.entry.word;
    struct key_set storage, *key_set = key_set_at(rel->slot.keyed, word, &storage);
    uint64_t outer_binding = ctx->binding; /* of an acquisition that is reaping dead peers now */
    int r = -ESTALE;

    if (!key_set && !set_is_shared(rel->set))
        return keyed_release_bound_before(rel);
    if (keyed_release_claims(rel) && !keyed_claim_record(rel))
        return RELEASE_LOST;
    if (rel->granter)
        keyed_release_translate(rel);
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
    const weir_set *set = rel->slot.keyed->set;
    struct weir_instant at;

    if (keyed_slot_find(&rel->slot))
        return true;
    if (rel->rest || !keyed_claim_record(rel))
        return false;
    if (rel->granter)
        keyed_release_translate(rel);
    if (!keyed_release_charges(set, &rel->args))
        return false;
    at = clock_instant(&set->w->clock, set->limits.clock_needs);
    return keyed_slot_claim(&rel->slot, &at);
}

/* Releases to the key that was found, by its definition: the latest one, unless there was no memory
 * for that. */
static enum release_result keyed_release_found(struct keyed_release_op *rel)
{
    struct keyed_slot *slot = &rel->slot;

    if (keyed_slot_is_bound(slot))
        return keyed_release_bound(rel);
    if (rel->rest && rel->set->is_robust) /* held units bind a key, unless their limit is gone */
        return RELEASE_LOST;
    return keyed_release_word(rel);
}

/* Returns whether a later definition is to be released by. */
static bool keyed_release_goes_on(const struct keyed *keyed)
{
    return set_newest(keyed->set) != keyed->set ||
           (keyed->segment && set_is_moved(keyed->set) && !set_is_broken(keyed->set));
}

/* Makes one attempt, by the latest definition. */
static enum release_result keyed_release_newest(struct keyed_release_op *rel)
{
    struct keyed_slot *slot = &rel->slot;
    int r;

    if (!keyed_release_find(rel)) {
        if (keyed_release_goes_on(slot->keyed))
            return RELEASE_AGAIN; /* the successor may know it, or be where it has to pay */
        return rel->record_freed ? RELEASE_DONE : RELEASE_LOST;
    }
    if (slot->is_claim && !slot->keyed->fits_inline) {
        r = key_set_bind(slot);
        return r == 1 || r == -ESTALE || keyed_release_goes_on(slot->keyed) ? RELEASE_AGAIN
                                                                            : RELEASE_DONE;
    }
    if (!keyed_slot_is_foreign(slot))
        return keyed_release_found(rel);
    r = keyed_slot_renew(slot);
    if (r == 1 || r == -ESTALE)
        return RELEASE_AGAIN;
    if (r == -EUCLEAN)
        return RELEASE_DONE;
    return keyed_release_by(rel, keyed_definition_of(slot->keyed, slot->entry.id)->set,
                            keyed_release_found);
}

/* Returns the newest definition. A shared set that cannot be followed is broken; NULL: a revocation
 * does not break it, and is decided again. */
static weir_set *keyed_release_follow(const struct keyed_release_op *rel)
{
    bool must = !rel->args.revoker || rel->record_freed;

    if (set_is_shared(rel->set) && set_catch_up(rel->set, must) < 0 && !must)
        return NULL;
    return set_newest(rel->set);
}

/* Releases until the key does not change meanwhile. Returns RELEASE_DONE or RELEASE_LOST, with the
 * arguments as they were. */
static enum release_result keyed_release_run(struct keyed_release_op *rel)
{
    enum release_result result;
    unsigned turn = 0;

    for (bool is_first = true;; is_first = false) {
        weir_set *newest = keyed_release_follow(rel);

        if (!newest || (rel->args.revoker && !rel->record_freed && newest != rel->args.revoker))
            return RELEASE_LOST; /* it may be held for longer by the newest definition */
        if (newest != rel->set && !rel->granter)
            keyed_release_note_grant(rel, is_first);
        result = newest == rel->set ? keyed_release_newest(rel)
                                    : keyed_release_by(rel, newest, keyed_release_newest);
        if (result != RELEASE_AGAIN)
            break;
        spin_backoff(&turn);
    }
    if (rel->granter)
        rel->args = rel->moved->taken;
    return result;
}

/* Begins a release of a record with the amounts in `*moved`. By a call it would be made in one
 * place and copied to another. */
WEIR_ALWAYS_INLINE void keyed_release_begin(struct thread_ctx *ctx, weir_set *set, uint32_t record,
                                            uint64_t word, const struct release_args *args,
                                            struct keyed_release_amounts *moved,
                                            struct keyed_release_op *ret)
{
    weir_set *template = key_set_template(set);

    *ret = (struct keyed_release_op){
        .slot = {.keyed = keyed_of(template), .ctx = ctx, .key = &moved->key},
        .set = template,
        .ctx = ctx,
        .record = record,
        .word = word,
        .args = *args,
        .moved = moved};
    moved->key = keyed_record_key(template, record);
    if (template->limits.has_shadow) {
        shadow_release_args(template, record, args, &moved->shadow);
        ret->args = moved->shadow.args;
    }
}

bool keyed_release(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint64_t word,
                   bool is_owner, const struct release_args *args)
{
    struct keyed_release_amounts moved;
    struct keyed_release_op rel;

    keyed_release_begin(ctx, set, record, word, args, &moved, &rel);
    (void)is_owner; /* the record's word is claimed in any case */
    rel.args.granted_ns = grant_time(record_load(&record_at(set->region, record)->granted_ns));
    if (keyed_release_run(&rel) == RELEASE_LOST)
        return false;
    if (!set_is_broken(rel.set))
        set_count_release(ctx, rel.set, &rel.args);
    return true;
}

void keyed_return_part(struct thread_ctx *ctx, weir_set *set, uint32_t record, uint32_t rest,
                       const struct release_args *args)
{
    struct keyed_release_amounts moved;
    struct keyed_release_op rel;
    uint64_t word = record_load(&record_at(set->region, record)->word);

    keyed_release_begin(ctx, set, record, word, args, &moved, &rel);
    WEIR_INVARIANT(!rest || set_exchanges_records(rel.set));
    rel.rest = rest;
    rel.record_freed = !rest;
    if (rest && record_state(rel.word) != RECORD_HELD)
        return; /* it was revoked */
    if (keyed_release_run(&rel) == RELEASE_DONE && !set_is_broken(rel.set))
        set_count_return(ctx, rel.set, &rel.args);
}
