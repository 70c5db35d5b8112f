/* SPDX-License-Identifier: MIT */
/* Placement: see placement.h. */
#include "set/set_storage.h"

#include "api/instance.h"
#include "base/clock_tsc.h"
#include "base/mutant.h"
#include "config/fingerprint.h"
#include "keyed/keyed.h"
#include "os/os.h"
#include "peer/participant.h"
#include "state/inline_state.h"
#include <errno.h>

static int join(weir_set *set, const struct set_plan *plan, const uint64_t *content, uint32_t n,
                struct weir_error *reterr)
{
    struct segment_shape shape = {
        .name = plan->name,
        .while_used = plan->while_used,
        .must_exist = set->w->onlooker,
        .used = segment_has_users,
        .box_class = set->box_class,
        .record_units = set->record_units,
        .limits_n = set->limits.n,
        .counters_size = sizeof(struct counters) + set->limits.n * sizeof(struct limit_counters),
        .content = content,
        .content_n = n,
    };
    struct signature signature;
    int r = signature_new(plan, &signature, reterr);

    if (r < 0)
        return r;
    if (set->keyed) {
        shape.keys_max = set->keyed->keys;
        shape.lives_max = set->keyed->lives_max;
    }
    shape.definition = signature.definition;
    shape.definition_hash = signature.hash;
    r = member_open(set->w, set->w->process_dir, &shape, &set->member, reterr);
    signature_free(&signature);
    if (r < 0)
        return r;
    atomic_store(&set->w->shares, true);
    set->region = &set->member->region;
    set->head = segment_head_unit();
    set->unboxed_ns = &segment_header(set->member->segment)->unboxed_ns;
    set->seats = &segment_header(set->member->segment)->seats;
    if (set->w->tsc && !MUTANT(411))
        tsc_give_up(set->w->tsc, TSC_SHARED);
    return 0;
}

static int settle_down(weir_set *set, const struct set_plan *plan, const uint64_t *content,
                       uint32_t n, struct weir_error *reterr)
{
    if (set->backend == BACKEND_PROCESS && !set->w->apart)
        return join(set, plan, content, n, reterr);
    if (set->form != WORD_NONE && !(content[CONTENT_STATES] & WORD_BOXED))
        set->head =
            publication_new_word(set->region, set->box_class, set->number, content[CONTENT_STATES]);
    else
        set->head = publication_new_set(set->region, set->box_class, set->number, content, n);
    return set->head ? 0 : error_set(reterr, -ENOMEM, "out of memory");
}

/* The content begins with no line, and every limit as its algorithm says. */
static int make_content(weir_set *set, const struct set_plan *plan, struct weir_error *reterr)
{
    struct weir_instant at = instance_instant(set->w, true);
    uint32_t n = set_content_min(set);
    uint64_t *content = sys_alloc(n, sizeof(*content));
    int r;

    if (!content)
        return error_set(reterr, -ENOMEM, "out of memory");
    content[CONTENT_LAST] = at.now_ns;
    limits_init(&set->limits, content + CONTENT_STATES, &at);
    r = settle_down(set, plan, content, n, reterr);
    sys_free(content);
    return r;
}

int placement_make(weir_set *set, const struct set_plan *plan, struct weir_error *reterr)
{
    if (!set->limits.n)
        return 0;
    set->mortal = set->backend == BACKEND_PROCESS && !set->w->apart;
    set->form = word_form_for(&set->limits, set->mortal);
    set->unboxed_ns = &set->own_unboxed_ns;
    set->box_class = (uint8_t)box_class_for(set_content_max(set));
    if (!set->box_class)
        return error_set(reterr, -ENOMEM, "out of memory");
    return make_content(set, plan, reterr);
}
