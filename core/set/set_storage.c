/* SPDX-License-Identifier: MIT */
/* Places a set's first version in private memory or in a segment. */
#include "limit/counters.h"
#include "set/set_ops.h"
#include "shm/segment_definition.h"

#include "base/clock.h"
#include "base/invariant.h"
#include "config/fingerprint.h"
#include "os/os.h"
#include "set/inline_state.h"
#include "set/instance_base.h"
#include "set/places.h"
#include "shm/participant.h"
#include <errno.h>
#include <string.h>

/* Gives the versions of a shared set with subjects as many words of state as its blocks have room
 * for, beside a forecast, by every definition: so the bindings of key sets have one place. */
static void set_storage_pad(weir_set *set)
{
    if (set->is_keyed)
        set->limits.state_words =
            ((uint32_t)block_capacity(set->block_class) - CONTENT_STATES - 2) / 2;
}

/* Moves the limits of a shared set to where they are by the last definition, which is its own. */
static int set_storage_arrange(weir_set *set, struct weir_error *reterr)
{
    const struct segment *segment = set->participant->segment;
    struct definition_copy *copy = set->participant->following;
    uint8_t clock_needs = set->limits.clock_needs;
    int r = segment_definition_read(segment->fd, &segment->layout, segment->definition, copy);

    if (r == 0 && !places_are_valid(&copy->places, set->limits.n, set_amounts_n(set)))
        r = -EUCLEAN;
    if (r < 0)
        return error_set(reterr, r, "set `%s`: its definition cannot be read: %s",
                         set_own_name(set), r == -EUCLEAN ? "it is damaged" : strerrordesc_np(-r));
    if (places_apply(set, &copy->places) < 0)
        return error_set(reterr, -ENOMEM, "out of memory");
    places_describe(set);
    set->limits.clock_needs = clock_needs;
    set->inline_format = inline_format_for(&set->limits, true);
    return 0;
}

static int set_storage_attach(weir_set *set, const struct set_storage_plan *storage,
                              const uint64_t *content, uint32_t n, struct weir_error *reterr)
{
    uint32_t words = set->ops->record_words + 1u; /* a later definition may need that of shadow.h */
    uint32_t room = places_room(set->limits.n, words);
    struct segment_shape shape = {
        .name = storage->plan->name,
        .while_used = storage->plan->while_used,
        .must_exist = set->w->observer_only,
        .leaves_sigbus = set->w->leaves_sigbus,
        .in_use = segment_has_users,
        .sizes = {.block_class = set->block_class,
                  .record_units = set->record_units,
                  .limits_n = room,
                  .counters_size = (uint32_t)counters_size(
                      room, true, storage->plan->classes ? storage->plan->classes->rule.n : 0),
                  .keys_max = storage->keys_max,
                  .key_sets_max = storage->key_sets_max},
        .record_words = words,
        .initial_state = content,
        .initial_state_n = n,
    };
    struct fingerprint signature;
    int r = fingerprint_new(storage->plan, &signature, reterr);

    if (r < 0)
        return r;
    shape.definition = signature.definition;
    shape.definition_hash = signature.hash;
    r = participant_open(&set->w->log, set->w->process_dir, &shape, &set->participant, reterr);
    fingerprint_free(&signature);
    if (r < 0)
        return r;
    set->has_joined = true;
    atomic_store_explicit(&set->w->has_shared_sets, true, memory_order_seq_cst);
    set->region = &set->participant->region;
    set->block_class = (uint8_t)set->participant->segment->layout.sizes.block_class;
    set_storage_pad(set);
    set->head_unit =
        segment_definition_unit(set->participant->segment, set->participant->segment->definition);
    set->deflated_ns = &segment_header(set->participant->segment)->deflated_ns;
    set->announce_slots = &segment_header(set->participant->segment)->announce_slots;
    if (set->w->clock.tsc)
        clock_tsc_disable(set->w->clock.tsc, TSC_SHARED);
    set->record_units = (uint8_t)set->participant->segment->layout.sizes.record_units;
    set->is_later = set->participant->segment->definition != 0;
    return set->is_later ? set_storage_arrange(set, reterr) : 0;
}

/* Gives a set the state of definition `number` in the segment of `of`, another one of it. Returns
 * whether it has room for that. */
static bool set_storage_join(weir_set *set, const weir_set *of, uint32_t number)
{
    if (set->block_class <= of->block_class)
        set->block_class = of->block_class;
    set_storage_pad(set);
    set->record_units = of->record_units;
    set->is_later = number != 0;
    set->participant = of->participant;
    set->region = of->region;
    set->head_unit = segment_definition_unit(of->participant->segment, number);
    set->deflated_ns = of->deflated_ns;
    set->announce_slots = of->announce_slots;
    return set->block_class == of->block_class;
}

/* Finds the place of a shared set's next definition in the segment. It is written when the set is
 * moved, and was before if that has happened. */
static int set_storage_follow(weir_set *set, struct weir_error *reterr)
{
    weir_set *before = set->origin->predecessor;
    const struct segment *segment = before->participant->segment;
    uint32_t number;

    if (!segment_definition_of_unit(segment, before->head_unit, &number) ||
        number >= segment->layout.definitions_n)
        return error_set(reterr, -ENOSPC, "its segment has no room for another definition");
    if (!set_storage_join(set, before, number + 1))
        return error_set(reterr, -EOPNOTSUPP,
                         "the state of the set would need %zu bytes, and its segment has room for "
                         "%zu; " START_ANEW,
                         set_content_max(set) * sizeof(uint64_t),
                         block_capacity(before->block_class) * sizeof(uint64_t));
    if ((set->limits.clock_needs ^ before->limits.clock_needs) & CLOCK_NEEDS_BOOTTIME)
        return error_set(reterr, -EOPNOTSUPP,
                         "its times would be by another clock, as only rates, calls and "
                         "algorithms need `clock: boottime`; " START_ANEW);
    set->origin->unopened_word = segment_definition_unopened(&segment->layout, number + 1);
    successor_set_began(set);
    return 0;
}

static int set_storage_place(weir_set *set, const struct set_storage_plan *storage,
                             const uint64_t *content, uint32_t n, struct weir_error *reterr)
{
    if (storage->plan && storage->plan->newest)
        return set_storage_join(set, storage->plan->newest, storage->plan->definition)
                   ? 0
                   : error_set(reterr, -EUCLEAN, "its state has another size");
    if (set->origin && set_is_shared(set->origin->predecessor))
        return set_storage_follow(set, reterr);
    if (set->backend == BACKEND_PROCESS && !set->w->private_only)
        return set_storage_attach(set, storage, content, n, reterr);
    if (!set->origin && set->inline_format != INLINE_NONE &&
        !(content[CONTENT_STATES] & INFLATED_BIT))
        set->head_unit = version_new_inline_set(set->region, set->block_class, set->number,
                                                content[CONTENT_STATES]);
    else
        set->head_unit = version_new_set(set->region, set->block_class, set->number, content, n);
    if (!set->head_unit)
        return error_set(reterr, -ENOMEM, "out of memory");
    if (set->origin)
        set->origin->unopened_word = version_peek_word(set->region, set->head_unit);
    return 0;
}

/* Starts with an empty wait queue and the initial state of each algorithm. A successor gets its
 * state later (set.h), and admits nothing until then. */
static int set_storage_init(weir_set *set, const struct set_storage_plan *storage,
                            struct weir_error *reterr)
{
    struct weir_instant at = clock_instant(&set->w->clock, set->limits.clock_needs);
    uint32_t n = set_content_min(set);
    uint64_t *content = os_alloc(n, sizeof(*content));
    int r;

    if (!content)
        return error_set(reterr, -ENOMEM, "out of memory");
    content[CONTENT_LAST_NS] = at.now_ns;
    WEIR_INVARIANT(CONTENT_STATES + set->limits.state_words <= n);
    if (set->origin)
        set_fill_unopened(set, content);
    else
        limits_init(&set->limits, content + CONTENT_STATES, &at);
    if (set->inline_format == INLINE_DCAS)
        content[DCAS_BITS_AT] = DCAS_MARK;
    r = set_storage_place(set, storage, content, n, reterr);
    set->head = r == 0 ? region_block(set->region, set->head_unit) : NULL;
    os_free(content);
    return r;
}

int set_storage_make(weir_set *set, const struct set_storage_plan *storage,
                     struct weir_error *reterr)
{
    /* A set without limits has no state, unless it takes over waiters. */
    if (!set->limits.n && !(set->origin && set->origin->predecessor->head_unit))
        return 0;
    WEIR_INVARIANT(set->limits.n <= WEIR_LIMITS_MAX && !set->head_unit);
    set->is_robust = set->backend == BACKEND_PROCESS && !set->w->private_only;
    set->inline_format = inline_format_for(&set->limits, set->is_robust);
    set->deflated_ns = &set->own_deflated_ns;
    set->block_class = (uint8_t)block_class_for(set_content_max(set));
    if (!set->block_class)
        return error_set(reterr, -ENOMEM, "out of memory");
    if (set->is_robust && set->block_class < storage->block_class_min)
        set->block_class = (uint8_t)storage->block_class_min;
    if (set->is_robust)
        set_storage_pad(set);
    WEIR_INVARIANT(block_capacity(set->block_class) >= set_content_max(set));
    WEIR_INVARIANT(set->inline_format == INLINE_NONE || set->limits.state_words == 1);
    return set_storage_init(set, storage, reterr);
}
