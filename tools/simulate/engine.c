/* SPDX-License-Identifier: MIT */
/* The engine of a simulation. */
#include "engine.h"
#include "engine_decisions.h"
#include "engine_keys.h"
#include "engine_slots.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PREFETCHED_MAX 4
#define LONG_QUEUE     1024
#define CACHE_LINE     64

/* ---- the passing of time ---- */

/* Prefetches waiters, from the one after `index` on: what has waited for long has left the caches.
 * Those are next in the order in which they came, mostly. */
static void prefetch_waiters(struct engine *engine, uint32_t index)
{
    struct slot *slot = &engine->slots[index];

    if (engine->prefetched_n == 0 || !engine->slots[engine->prefetched].waits) {
        engine->prefetched = index;
        engine->prefetched_n = 1;
    }
    for (engine->prefetched_n--; engine->prefetched_n < PREFETCHED_MAX; engine->prefetched_n++) {
        slot = &engine->slots[engine->prefetched];
        if (!slot->waits || slot->next == ENGINE_NO_SLOT)
            break;
        engine->prefetched = slot->next;
        __builtin_prefetch(&engine->slots[slot->next], 1);
        for (unsigned line = 0; line < 3 && slot->acquisition; line++)
            __builtin_prefetch((const char *)slot->acquisition + line * CACHE_LINE, 1);
    }
}

static int on_completion(struct engine *engine, const struct weir_completion *completion)
{
    uint32_t index = (uint32_t)completion->user_data;
    struct slot *slot = &engine->slots[index];

    if (!slot->waits)
        return 0; /* it was decided by its submission, and counted then */
    engine->waiting_n--;
    prefetch_waiters(engine, index);
    if (completion->result == 0)
        return engine_granted(engine, index);
    if (engine_decision(engine, completion->result) == DECISION_NEVER)
        return engine_fail(engine, slot, completion->result, NULL);
    engine_refused(engine, index, completion->result, &completion->refusal);
    engine_free_slot(engine, index);
    return 0;
}

/* Returns whether requests wait in several sets at once. */
static bool waits_in_all(const struct engine *engine)
{
    return (weir_pool_flags(engine->candidate->pool) & WEIR_POOL_WAIT_ANY) != 0;
}

/* Takes all completions that are there, and lets the library decide what is due. */
static int reap(struct engine *engine)
{
    struct weir_completion done[64];
    int n, r = 0;

    if (!engine->queue || waits_in_all(engine)) /* then a reap does not look at the sets */
        weir_tick(engine->candidate->w);
    do {
        n = engine->queue ? weir_queue_reap(engine->queue, done, 64) : 0;
        for (int i = 0; i < n && r == 0; i++)
            r = on_completion(engine, &done[i]);
    } while (n == 64 && r == 0);
    if (n < 0)
        return engine_fail(engine, NULL, n, NULL);
    engine_free_finished(engine);
    for (uint32_t i = 0; engine->candidate->has_max_hold && i < engine->candidate->sets_n; i++)
        tally_taken(&engine->tally, i, engine->candidate->now_ns); /* less, if it was taken back */
    return r;
}

/* Counts the resources that a slot gives back. */
static void count_released(struct engine *engine, uint32_t index)
{
    const struct candidate *candidate = engine->candidate;
    const struct candidate_set *set = &candidate->sets[engine->slots[index].set];

    for (uint32_t i = set->limits_first; i < set->limits_first + set->limits_n; i++)
        if (candidate->limits[i].type == WEIR_LIMIT_RESOURCE)
            tally_released(&engine->tally, i, engine_amount_of(engine, index, i),
                           candidate->now_ns);
}

static void release(struct engine *engine, uint32_t index)
{
    const struct candidate *candidate = engine->candidate;
    uint32_t set = engine->slots[index].set;

    if (!candidate->is_taken_apart)
        count_released(engine, index);
    engine_report_use(engine, index);
    engine_free_slot(engine, index);
    if (candidate->is_taken_apart)
        tally_taken(&engine->tally, set, candidate->now_ns);
}

/* Returns when the library has something to decide next. */
static uint64_t next_due_ns(struct engine *engine)
{
    if (engine->waiting_n == 0 && !engine->candidate->has_max_hold)
        return WEIR_FOREVER;
    if (!engine->knows_due)
        weir_due_at(engine->candidate->w, &engine->due_ns);
    engine->knows_due = true;
    return engine->due_ns;
}

/* Notes what a request that was submitted changes about that. One that waits behind others, in the
 * order in which they came, has nothing but its deadline, which is no earlier than this. */
static void note_submitted(struct engine *engine, const struct slot *slot)
{
    uint64_t end_ns = engine->candidate->now_ns + engine->wait_ns_max;

    if (!engine->is_in_order || !slot->waits || engine->waiting_n < 2)
        engine->knows_due = false;
    else if (end_ns > engine->wait_ns_max && end_ns < engine->due_ns)
        engine->due_ns = end_ns;
}

/* Moves the clock to `at_ns`, or as far as there is something to do, and stops where something is
 * due or is released. */
static int move_clock(struct engine *engine, uint64_t at_ns)
{
    struct candidate *candidate = engine->candidate;
    bool is_reaped = false; /* then nothing more is due at this time */
    int r = 0;

    while (r == 0) {
        uint64_t due_ns = WEIR_FOREVER, release_ns = release_heap_next_ns(&engine->releases);
        uint64_t next_ns;

        if (!is_reaped || release_ns > candidate->now_ns)
            due_ns = next_due_ns(engine);
        next_ns = due_ns <= release_ns ? due_ns : release_ns;
        if (next_ns > at_ns || next_ns >= WEIR_CLOCK_MAX) /* later than the clock can be: never */
            break;
        if (next_ns > candidate->now_ns)
            candidate->now_ns = next_ns;
        if (due_ns > release_ns)
            release(engine, release_heap_take(&engine->releases));
        if (engine->waiting_n > 0 || candidate->has_max_hold) {
            engine->knows_due = false;
            r = reap(engine);
            is_reaped = !waits_in_all(engine);
        }
    }
    if (at_ns != WEIR_FOREVER && at_ns > candidate->now_ns)
        candidate->now_ns = at_ns;
    return r;
}

/* ---- requests ---- */

static unsigned fill_amounts(const struct engine *engine, const struct event *event,
                             struct weir_amount *ret)
{
    unsigned n = 0;

    for (unsigned i = 0; i < engine->keys_n; i++)
        if (engine->has_key[i])
            ret[n++] = (struct weir_amount){engine->keys[i],
                                            engine_value_of_key(engine, event->values, i)};
    return n;
}

/* Finds the limit that a wait queue waits for: a try of the waiter's request must wait, too, and
 * its refusal says what for. */
static int find_binding(const struct engine *engine, uint32_t set,
                        const struct weir_request *request)
{
    struct weir_refusal refusal = {.size = sizeof(refusal)};
    weir_acquisition *acquisition = NULL;
    int r = weir_try_acquire(engine->candidate->sets[set].pool, request, &acquisition, &refusal);

    weir_release(&acquisition); /* which undoes a grant that no call has reported */
    return r == -EAGAIN ? engine_find_limit(engine, set, refusal.key) : -1;
}

/* Counts what a new waiter waits for, unless that is the first of several sets. A look takes the
 * longer the more there are that wait. So a wait queue is looked at once for each length of it, a
 * long one less often, and the other waiters count with the look. */
static void count_binding(struct engine *engine, const struct slot *slot,
                          const struct weir_request *request)
{
    uint64_t between_n;
    uint32_t set = 0;
    int *binding;

    if (waits_in_all(engine))
        return;
    if (engine->candidate->sets_n > 1)
        set = engine_find_set(engine, weir_acquisition_set(slot->acquisition));
    binding = &engine->bindings[set];
    between_n = (uint64_t)engine->waiting_n * (engine->waiting_n > LONG_QUEUE ? 4 : 1);
    if (*binding < 0 || engine->unlooked_n++ >= between_n) {
        *binding = find_binding(engine, set, request);
        engine->unlooked_n = 0;
    }
    if (*binding >= 0)
        engine->tally.limits[*binding].waited++;
}

static int start_waiting(struct engine *engine, uint32_t index, const struct weir_request *request)
{
    struct slot *slot = &engine->slots[index];

    if (engine->waiting_n > 0 && engine->slots[engine->last_waiter].waits) /* else it is unused */
        engine->slots[engine->last_waiter].next = index;
    engine->last_waiter = index;
    slot->next = ENGINE_NO_SLOT;
    slot->waits = true;
    if (++engine->waiting_n > engine->tally.waiting_most)
        engine->tally.waiting_most = engine->waiting_n;
    count_binding(engine, slot, request);
    return 0;
}

/* Submits to the completion queue. What is decided at once is known here already, so its completion
 * is left where it is until there are some: each emptied queue would cost two system calls. */
static int submit(struct engine *engine, uint32_t index, const struct weir_request *request)
{
    struct slot *slot = &engine->slots[index];
    struct weir_refusal refusal = {.size = sizeof(refusal)};
    int r = weir_queue_submit(engine->queue, engine->candidate->pool, request, index,
                              &slot->acquisition, &refusal);

    if (r == -ENOSPC) {
        fprintf(stderr,
                "%s: %s: event %" PRIu64 ": %u requests wait: a timeout, max_wait or max_waiters "
                "bounds them\n",
                engine->candidate->command, engine->candidate->name, slot->number,
                engine->waiting_n);
        return r;
    }
    if (r < 0 && engine_decision(engine, r) == DECISION_NEVER)
        return engine_fail(engine, slot, r, &refusal);
    if (r == 0)
        r = weir_acquisition_result(slot->acquisition);
    if (r == -EINPROGRESS)
        return start_waiting(engine, index, request);
    if (r == 0)
        return engine_granted(engine, index);
    if (engine_decision(engine, r) == DECISION_NEVER)
        return engine_fail(engine, slot, r, &refusal);
    if (slot->acquisition)
        weir_acquisition_refusal(slot->acquisition, &refusal);
    engine_refused(engine, index, r, &refusal);
    engine_finish_slot(engine, index);
    return 0;
}

/* Makes a request that does not wait. */
static int try_now(struct engine *engine, uint32_t index, const struct weir_request *request)
{
    struct slot *slot = &engine->slots[index];
    struct weir_refusal refusal = {.size = sizeof(refusal)};
    weir_pool *pool = engine->candidate->pool;
    int r = engine->options.mode == ENGINE_TAKE
                ? weir_take(pool, request, &refusal)
                : weir_try_acquire(pool, request, &slot->acquisition, &refusal);

    if (r == 0)
        return engine_granted(engine, index);
    if (engine_decision(engine, r) == DECISION_NEVER)
        return engine_fail(engine, slot, r, &refusal);
    engine_refused(engine, index, r, &refusal);
    engine_finish_slot(engine, index);
    return 0;
}

int engine_feed(struct engine *engine, const struct event *event)
{
    struct weir_amount amounts[ENGINE_KEYS_MAX];
    struct weir_request request = {.size = sizeof(request),
                                   .amounts = amounts,
                                   .amounts_n = fill_amounts(engine, event, amounts),
                                   .timeout_ns = engine->options.timeout_ns,
                                   .max_wait_ns = engine->options.max_wait_ns,
                                   .route = event->route};
    uint32_t index = ENGINE_NO_SLOT;
    int r = move_clock(engine, event->at_ns);

    if (event->subject_size > 0) {
        request.subject = event->subject;
        request.subject_size = event->subject_size;
    }
    if (event->wait_class[0] != '\0')
        request.wait_class = event->wait_class;
    if (r == 0)
        r = engine_take_slot(engine, event, &index);
    if (r < 0)
        return r;
    tally_arrival(&engine->tally, engine->candidate->now_ns);
    r = engine->options.mode == ENGINE_WAIT ? submit(engine, index, &request)
                                            : try_now(engine, index, &request);
    note_submitted(engine, &engine->slots[index]);
    if (r == 0 && engine->finished_n == ENGINE_FINISHED_MAX)
        r = engine->options.mode == ENGINE_WAIT ? reap(engine) : (engine_free_finished(engine), 0);
    return r;
}

/* Counts the requests that wait for ever. */
static void end_waits(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->slots_n && engine->waiting_n > 0; i++) {
        if (!engine->slots[i].waits)
            continue;
        engine->waiting_n--;
        engine_refused(engine, i, -ECANCELED, &(struct weir_refusal){.size = 0});
    }
}

int engine_finish(struct engine *engine)
{
    int r = move_clock(engine, WEIR_FOREVER);

    if (r == 0 && engine->queue)
        r = reap(engine);
    if (r == 0)
        end_waits(engine);
    tally_finish(&engine->tally, engine->candidate->now_ns);
    return r;
}

/* ---- opening ---- */

/* Looks whether requests wait in the order in which they come, and for how long at most. */
static void look_at_order(struct engine *engine)
{
    const struct candidate_set *set = &engine->candidate->sets[0];
    const struct engine_options *options = &engine->options;
    struct weir_set_info info = {.size = sizeof(info)};
    uint64_t timeout_ns, max_wait_ns;

    weir_set_info(set->set, &info);
    timeout_ns = options->timeout_ns > 0 ? options->timeout_ns : info.timeout_ns;
    max_wait_ns = options->max_wait_ns > 0 ? options->max_wait_ns : info.max_wait_ns;
    engine->wait_ns_max = timeout_ns < max_wait_ns ? timeout_ns : max_wait_ns;
    engine->is_in_order = engine->candidate->sets_n == 1 && !set->has_subjects &&
                          !(info.flags & (WEIR_SET_UNFAIR | WEIR_SET_FAIR_PER_LIMIT)) &&
                          weir_set_classes(set->set, NULL, 0) == 0;
}

int engine_open(struct engine *ret, struct candidate *candidate,
                const struct engine_options *options)
{
    int r;

    *ret = (struct engine){.options = *options, .candidate = candidate, .unused = ENGINE_NO_SLOT};
    r = tally_open(&ret->tally, candidate, candidate->now_ns);
    ret->tally.targets = options->targets;
    targets_clear(&ret->tally.targets);
    ret->finished = calloc(ENGINE_FINISHED_MAX, sizeof(*ret->finished));
    if (r == 0 && !ret->finished)
        r = -ENOMEM;
    if (r == 0)
        r = engine_open_keys(ret);
    if (r == 0)
        look_at_order(ret);
    if (r == 0 && options->mode == ENGINE_WAIT)
        r = weir_queue_open(&ret->queue, candidate->w, ENGINE_WAITING_MAX);
    if (r < 0 && r != -EINVAL)
        fprintf(stderr, "%s: %s\n", candidate->command, strerror(-r));
    if (r < 0)
        engine_close(ret);
    return r;
}

void engine_close(struct engine *engine)
{
    weir_queue_close(engine->queue);
    for (uint32_t i = 0; i < engine->slots_n; i++)
        weir_release(&engine->slots[i].acquisition);
    free(engine->slots);
    free(engine->values);
    free(engine->finished);
    free(engine->key_limits);
    free(engine->limit_keys);
    free(engine->bindings);
    release_heap_free(&engine->releases);
    tally_close(&engine->tally);
    *engine = (struct engine){.unused = ENGINE_NO_SLOT};
}
