/* SPDX-License-Identifier: MIT */
/* The world of the crash tests: see world.h. */
#include "crash_world.h"
#include "api/set_object.h"
#include "config/plan.h"
#include "state/version.h"

#include "base/sched_point.h"
#include "os/os.h"
#include "peer/peer.h"
#include "set/inline_state.h"
#include "set/txn.h"
#include "spaced.h"
#include "system.h"
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAID_MAX 20u
#define USED_MAX (THREADS * SETS * RECORDS + 1u)

struct crash_world world;

void expect(bool truth, const char *format, ...)
{
    va_list arguments;

    if (truth || ++world.failures > SAID_MAX)
        return;
    fprintf(stderr, "%s [%lu %lu %lu %lu]: ", world.what ? world.what : "", world.where[0],
            world.where[1], world.where[2], world.where[3]);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

/* ---- making it ---- */

static void must(bool truth)
{
    if (!truth) {
        fprintf(stderr, "the world could not be made\n");
        abort();
    }
}

static struct limit make_limit(enum weir_limit_type type, uint32_t *state_words)
{
    struct limit limit = {.type = type, .capacity = 2, .state_offset = (*state_words)++};

    limit.key = os_strdup("key");
    limit.state_words = 1;
    if (type != WEIR_LIMIT_RESOURCE) {
        struct spaced *spaced = os_alloc(1, sizeof(*spaced));

        must(spaced != NULL);
        *spaced = (struct spaced){world.interval_ns, 2};
        limit.config = spaced;
        limit.config_size = sizeof(*spaced);
        limit.algorithm = &spaced_algorithm;
        limit.algorithm_name = "spaced";
        limit.refund = REFUND_YES;
    }
    return limit;
}

static weir_set *make_set(const enum weir_limit_type *types, uint32_t n)
{
    struct set_plan plan = {.timeout_ns = UINT64_MAX, .max_wait_ns = UINT64_MAX, .fair = true};
    char name[] = "set-0";
    uint32_t deflated, slots;
    weir_set *set;

    name[4] = (char)('0' + world.w->sets_n);
    plan.name = os_strdup(name);
    plan.limits = os_alloc(n, sizeof(*plan.limits));
    must(plan.name && plan.limits);
    plan.limits_n = n;
    for (uint32_t i = 0; i < n; i++)
        plan.limits[i] = make_limit(types[i], &plan.state_words);
    instance_lock(world.w);
    must(registry_add_set(world.w, &plan, set_ops_for(&plan), &set, NULL) == 0);
    must(set->inline_format == INLINE_NONE ||
         version_add_reserve_block(set->region, set->head_unit) == 0);
    must((deflated = region_alloc_block(set->region, REGION_UNIT_SIZE, REGION_UNIT_SIZE)) != 0);
    must((slots = region_alloc_block(set->region, sizeof(struct announce_slots) + REGION_UNIT_SIZE,
                                     REGION_UNIT_SIZE)) != 0);
    set->deflated_ns = region_block(set->region, deflated); /* all processes have the region only */
    set->announce_slots = region_block(set->region, slots);
    set->deflated_ns =
        (_Atomic uint64_t *)(void *)(set->announce_slots + 1); /* as in a segment, not its own */
    instance_unlock(world.w);
    return set;
}

/* Gives a set that is inline and new the first word of its format, as set_storage.c does; here, and
 * in what world_restore() restores. */
static void mark_state_word(const weir_set *set)
{
    size_t at = set->head_unit * REGION_UNIT_SIZE + offsetof(struct set_head, state_word);
    unsigned char *places[] = {set->region->blocks.base + at,
                               world.image ? world.image + at : NULL};
    uint64_t word, first = set->inline_format == INLINE_DCAS ? DCAS_MARK : 0;

    for (uint32_t i = 0; i < 2 && places[i]; i++) {
        memcpy(&word, places[i], sizeof(word));
        if (!(word & ~DCAS_MARK))
            memcpy(places[i], &first, sizeof(first));
    }
}

void world_share(bool by_processes)
{
    for (uint32_t s = 0; s < SETS; s++) {
        world.sets[s]->is_robust = by_processes;
        world.sets[s]->inline_format = inline_format_for(&world.sets[s]->limits, by_processes);
        mark_state_word(world.sets[s]);
    }
}

static void make_context(uint32_t a)
{
    instance_lock(world.w);
    world.threads[a] = thread_ctx_new(world.w);
    must(world.threads[a] != NULL);
    for (uint32_t s = 0; s < SETS; s++)
        must(thread_ctx_prepare(world.threads[a], world.sets[s]) == 0);
    for (uint32_t s = 0; s < SETS && a != STANDING; s++)
        world.threads[a]->set_ctxs[s].dcas_slot = (uint8_t)(a + 1);
    instance_unlock(world.w);
    for (uint32_t s = 0; s < SETS; s++)
        for (uint32_t i = 0; i < RECORDS; i++)
            must(0 != (world.records[a][s][i] = record_pool_get(world.threads[a], world.sets[s])));
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static uint32_t add_own(const struct thread_ctx *thread, uint64_t *slots, uint32_t n)
{
    struct thread_head *head = region_block(&world.w->region, thread->unit);

    for (uint32_t c = 0; c < BLOCK_CLASSES; c++) {
        uint64_t own = atomic_load(&head->own_blocks[c]);

        if (own && n < SLOTS_MAX)
            slots[n++] = (uint64_t)c << 32 | (own & BLOCK_SLOT_MASK);
    }
    return n;
}

/* All blocks that are owned or current: each exactly once. */
static uint32_t list_slots(uint64_t *slots)
{
    uint32_t n = 0;

    for (const struct thread_ctx *thread = world.w->thread_ctxs; thread; thread = thread->next)
        n = add_own(thread, slots, n);
    for (uint32_t s = 0; s < SETS; s++) {
        struct set_head *head = region_block(&world.w->region, world.sets[s]->head_unit);

        uint64_t word = atomic_load(&head->state_word);

        if (!(word & INFLATED_BIT))
            word = atomic_load(&head->reserve_block);
        slots[n++] =
            (uint64_t)(head->block_class - BLOCK_CLASS_MIN) << 32 | (word & BLOCK_SLOT_MASK);
    }
    qsort(slots, n, sizeof(*slots), compare);
    return n;
}

void world_make(uint64_t interval_ns)
{
    static const enum weir_limit_type types[] = {WEIR_LIMIT_RATE, WEIR_LIMIT_CALL,
                                                 WEIR_LIMIT_RESOURCE};

    world.interval_ns = interval_ns;
    must(system_start());
    must(weir_open(&world.w, NULL, NULL) == 0);
    world.sets[SET_RESOURCE] = make_set(&types[2], 1);
    world.sets[SET_RATE] = make_set(types, 1);
    world.sets[SET_THREE] = make_set(types, 3);
    world_share(true); /* what dies here is recovered */
    for (uint32_t a = 0; a < THREADS; a++)
        make_context(a);
    world.slots_n = list_slots(world.slots);
    world.blocks_size = world.w->region.blocks.used;
    world.records_size = world.w->region.records.used - RUN_SIZE;
    world.image = malloc(world.blocks_size + world.records_size + sizeof(uint64_t));
    must(world.image != NULL);
}

void world_free(void)
{
    free(world.image);
    weir_close(world.w);
    for (uint32_t a = 0; a < THREADS; a++)
        world.threads[a] = NULL;
}

void world_save(void)
{
    uint64_t clock = atomic_load(&shared->clock);

    memcpy(world.image, world.w->region.blocks.base, world.blocks_size);
    memcpy(world.image + world.blocks_size, world.w->region.records.base + RUN_SIZE,
           world.records_size);
    memcpy(world.image + world.blocks_size + world.records_size, &clock, sizeof(clock));
}

void world_restore(void)
{
    uint64_t clock;

    memcpy(world.w->region.blocks.base, world.image, world.blocks_size);
    memcpy(world.w->region.records.base + RUN_SIZE, world.image + world.blocks_size,
           world.records_size);
    memcpy(&clock, world.image + world.blocks_size + world.records_size, sizeof(clock));
    atomic_store(&shared->clock, clock);
    atomic_store(&shared->logged, 0);
}

bool world_changed(void)
{
    return memcmp(world.w->region.blocks.base, world.image, world.blocks_size) != 0 ||
           memcmp(world.w->region.records.base + RUN_SIZE, world.image + world.blocks_size,
                  world.records_size) != 0;
}

/* ---- using it ---- */

static struct acq_record *record_of(uint32_t a, uint32_t s, uint32_t i)
{
    return record_at(&world.w->region, world.records[a][s][i]);
}

enum record_state world_state(uint32_t a, uint32_t s, uint32_t i)
{
    return record_state(record_load(&record_of(a, s, i)->word));
}

void world_pass(uint64_t ns)
{
    atomic_fetch_add(&shared->clock, ns);
}

static uint64_t generation_of(uint32_t a)
{
    struct thread_head *head = region_block(&world.w->region, world.threads[a]->unit);

    return atomic_load(&head->generation);
}

static void fill(uint32_t a, uint32_t s, uint32_t i, uint64_t amount)
{
    struct acq_record *r = record_of(a, s, i);

    for (uint32_t l = 0; l < world.sets[s]->limits.n; l++)
        record_store(&r->amounts[l], amount);
    SCHED_POINT();
    record_store(&r->owner, (uint64_t)world.threads[a]->unit << 32 | (uint32_t)generation_of(a));
    SCHED_POINT();
    record_store(&r->set, (uint64_t)world.sets[s]->number << 32 | a);
    SCHED_POINT();
    record_set_wait_target(r, WAIT_TARGET_FUTEX, 0, 0);
    record_store(&r->deadline_ns, WEIR_FOREVER);
    SCHED_POINT();
}

static void log_grant(uint32_t a, uint32_t s, uint32_t i)
{
    const struct acq_record *r = record_of(a, s, i);
    struct grant *line = &shared->log[atomic_fetch_add(&shared->logged, 1) % LOG_MAX];

    /* `granted` last: an entry that was left half-written by a death does not count. */
    __atomic_store_n(&line->granted, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&line->since, record_load(&r->enqueued_ns), __ATOMIC_RELAXED);
    __atomic_store_n(&line->set, s, __ATOMIC_RELAXED);
    __atomic_store_n(&line->granted, record_load(&r->granted_ns), __ATOMIC_RELEASE);
}

int world_acquire(uint32_t a, uint32_t s, uint32_t i, uint64_t amount, enum wait_mode entry)
{
    struct acquire_op op = {
        .ctx = world.threads[a], .set = world.sets[s], .amounts = {amount, amount, amount}};

    fill(a, s, i, amount);
    return set_acquire(&op, world.records[a][s][i], entry, UINT64_MAX);
}

void world_cancel(uint32_t a, uint32_t s, uint32_t i)
{
    set_cancel_wait(world.threads[a], world.sets[s], world.records[a][s][i], 0, RECORD_CANCELED);
}

static void release_own(struct thread_ctx *thread, uint32_t s, uint32_t record,
                        const struct release_args *args)
{
    weir_set *set = world.sets[s];

    set_release(thread, set, record, record_load(&set_record(set, record)->word), true, args);
}

void world_release(uint32_t a, uint32_t s, uint32_t i, uint64_t used)
{
    struct acq_record *r = record_of(a, s, i);
    uint64_t amounts[LIMITS], useds[LIMITS] = {used, used, used};
    const struct release_args args = {.amounts = amounts, .used = useds};

    if (world_state(a, s, i) == RECORD_WAITING)
        world_cancel(a, s, i);
    for (uint32_t l = 0; l < world.sets[s]->limits.n; l++)
        amounts[l] = record_load(&r->amounts[l]);
    if (world_state(a, s, i) == RECORD_HELD) {
        log_grant(a, s, i);
        release_own(world.threads[a], s, world.records[a][s][i], &args);
    } else if (world_state(a, s, i) != RECORD_FREE) {
        atomic_store(&r->word, record_next_word(record_load(&r->word), RECORD_FREE));
        SCHED_POINT();
    }
}

uint64_t world_word(uint32_t a, uint32_t s, uint32_t i)
{
    return record_load(&record_of(a, s, i)->word);
}

static struct release_args args_of(uint32_t a, uint32_t s, uint32_t i, uint64_t *amounts)
{
    for (uint32_t l = 0; l < world.sets[s]->limits.n; l++)
        amounts[l] = record_load(&record_of(a, s, i)->amounts[l]);
    return (struct release_args){.amounts = amounts, .used = amounts};
}

void world_release_record(uint32_t by, uint32_t a, uint32_t s, uint32_t i)
{
    uint64_t amounts[LIMITS];
    const struct release_args args = args_of(a, s, i, amounts);

    release_own(world.threads[by], s, world.records[a][s][i], &args);
}

void world_release_exact(uint32_t by, uint32_t a, uint32_t s, uint32_t i, uint64_t word)
{
    uint64_t amounts[LIMITS];
    const struct release_args args = args_of(a, s, i, amounts);

    set_release(world.threads[by], world.sets[s], world.records[a][s][i], word, false, &args);
}

void world_wait(uint32_t a, uint32_t s, uint32_t i)
{
    const struct acq_record *r = record_of(a, s, i);

    for (;;) {
        uint64_t word = record_load(&r->word), until;

        SCHED_POINT();
        if (record_state(word) != RECORD_WAITING)
            return;
        until = set_poll_head(world.threads[a], world.sets[s], world.records[a][s][i]);
        if (until)
            os_futex_wait(record_futex(r), true, (uint32_t)word, until);
    }
}

void world_recover(uint32_t by, uint32_t dead)
{
    thread_recovery_run(world.threads[by], &world.w->region, world.threads[dead]->unit,
                        generation_of(dead));
}

/*
 * Granted in advance and taken back: no grant for the log, as another record may have its instant.
 */
static void reserve_in_vain(uint32_t a, uint32_t s, uint32_t i)
{
    const uint64_t amounts[LIMITS] = {2, 2, 2};
    const struct release_args args = {.amounts = amounts, .used = amounts, .return_all = true};

    if (world_acquire(a, s, i, 2, MODE_RESERVE) == 0)
        release_own(world.threads[a], s, world.records[a][s][i], &args);
}

void world_script(uint32_t a, uint32_t s)
{
    struct decision decision;
    uint64_t amounts[LIMITS] = {1, 1, 1};

    world_acquire(a, s, 0, 1, MODE_WAIT);
    world_acquire(a, s, 1, 1, MODE_WAIT);
    world_acquire(a, s, 2, 1, MODE_WAIT);
    world_acquire(a, s, 3, 1, MODE_TRY);
    world_release(a, s, 1, 0);
    world_pass(INTERVAL_NS / 2);
    if (world_state(a, s, 0) == RECORD_WAITING)
        set_poll_head(world.threads[a], world.sets[s], world.records[a][s][0]);
    set_forecast(world.threads[a], world.sets[s], &(struct newcomer){.amounts = amounts},
                 FORECAST_ANY_QUEUE, &decision);
    world_release(a, s, 3, 1);
    world_release(a, s, 0, 0);
    world_pass(INTERVAL_NS);
    set_grant_waiters(world.threads[a], world.sets[s]);
    world_release(a, s, 2, 1);
    if (s == SET_RATE)
        reserve_in_vain(a, s, 3);
}

/* ---- workers ---- */

#define LONG_NS UINT64_C(2000000000)

/* As world_wait(), but checks after a long time whether the record was decided without a wake. */
static void wait_watched(uint32_t a, uint32_t s, uint32_t i)
{
    const struct acq_record *r = record_of(a, s, i);

    for (;;) {
        uint64_t word = record_load(&r->word), limit = os_now_ns() + LONG_NS, until;

        if (record_state(word) != RECORD_WAITING)
            return;
        until = set_poll_head(world.threads[a], world.sets[s], world.records[a][s][i]);
        if (!until)
            continue;
        if (os_futex_wait(record_futex(r), true, (uint32_t)word, until < limit ? until : limit) ==
                -ETIMEDOUT &&
            until > limit && record_load(&r->word) != word)
            atomic_fetch_add(&shared->overslept, 1);
    }
}

void world_turn(uint32_t a, uint64_t *random)
{
    uint32_t s = (uint32_t)random_below(random, SETS), i = random_below(random, RECORDS);
    uint64_t amount = 1 + random_below(random, 2);
    enum wait_mode entry = random_below(random, 8) ? MODE_WAIT : MODE_TRY;

    if (world_acquire(a, s, i, amount, entry) == 1) {
        if (random_below(random, 4))
            wait_watched(a, s, i);
        else
            sched_yield();
    }
    for (volatile uint64_t n = random_below(random, 200); n; n--)
        ;
    world_release(a, s, i, random_below(random, amount + 1));
    atomic_fetch_add(&shared->turns, 1);
}

/* ---- checking it ---- */

static void check_slots(void)
{
    uint64_t slots[SLOTS_MAX];
    uint32_t n = list_slots(slots);

    expect(n == world.slots_n, "%u blocks, of %u", n, world.slots_n);
    for (uint32_t i = 0; i < n && i < world.slots_n; i++)
        expect(slots[i] == world.slots[i], "block %lx where %lx should be: lost, or owned twice",
               slots[i], world.slots[i]);
}

static void check_line(uint32_t s, const struct version *version)
{
    const struct region *region = &world.w->region;
    uint32_t at = waitq_head(version), before = 0, n = 0;

    for (; at && n <= waitq_length(version) && n < SLOTS_MAX; n++) {
        const struct acq_record *r = record_at(region, at);

        expect(record_state(record_load(&r->word)) == RECORD_WAITING,
               "set %u: waiter %u has state %d", s, at, (int)record_state(record_load(&r->word)));
        expect(record_set_number(r) == world.sets[s]->number, "set %u: a waiter of another set", s);
        expect(!before || record_link_target(record_load(&r->prev)) == before,
               "set %u: %u before %u", s, record_link_target(record_load(&r->prev)), at);
        before = at;
        at = waitq_next(region, at);
    }
    expect(n == waitq_length(version), "set %u: %u in the wait queue, counted %u", s, n,
           waitq_length(version));
    expect(waitq_tail(version) == before, "set %u: tail %u, last %u", s, waitq_tail(version),
           before);
}

/* The records that are in use, in one walk: most of them are free, and there are many. */
static uint32_t list_records(uint32_t *used)
{
    uint32_t n = 0;

    for (uint32_t at = 0; (at = region_next_record(&world.w->region, at)) != 0;)
        if (record_state(record_load(&record_at(&world.w->region, at)->word)) != RECORD_FREE &&
            n < USED_MAX)
            used[n++] = at;
    return n;
}

/* What the records say, against what the set says. */
static void check_records(uint32_t s, const struct version *version, const uint32_t *used_records,
                          uint32_t n)
{
    const weir_set *set = world.sets[s];
    uint64_t held[LIMITS] = {0};
    uint32_t waiting = 0;

    for (uint32_t i = 0; i < n; i++) {
        const struct acq_record *r = record_at(&world.w->region, used_records[i]);
        enum record_state state = record_state(record_load(&r->word));

        if (record_set_number(r) != set->number)
            continue;
        waiting += state == RECORD_WAITING;
        for (uint32_t l = 0; state == RECORD_HELD && l < set->limits.n; l++)
            held[l] += record_load(&r->amounts[l]);
    }
    expect(waiting == waitq_length(version), "set %u: %u wait, %u in the wait queue", s, waiting,
           waitq_length(version));
    for (uint32_t l = 0; l < set->limits.n; l++) {
        const struct limit *limit = &set->limits.items[l];
        uint64_t used = version->content[CONTENT_STATES + limit->state_offset];

        if (limit->algorithm)
            continue;
        expect(used == held[l], "set %u: %lu used, %lu held", s, used, held[l]);
        expect(used <= limit->capacity, "set %u: %lu used of %lu", s, used, limit->capacity);
    }
}

static void check_set(uint32_t s, bool empty, const uint32_t *used_records, uint32_t n)
{
    uint64_t content[64];
    const weir_set *set = world.sets[s];
    struct version version = {.content = content,
                              .content_capacity = set_content_max(set),
                              .inline_format = set->inline_format};

    version_read(&world.w->region, set->head_unit, &version);
    check_line(s, &version);
    check_records(s, &version, used_records, n);
    if (!empty)
        return;
    expect(waitq_length(&version) == 0, "set %u: waiters are left", s);
    for (uint32_t l = 0; l < set->limits.n; l++)
        expect(set->limits.items[l].algorithm ||
                   content[CONTENT_STATES + set->limits.items[l].state_offset] == 0,
               "set %u: something is left in use", s);
}

static void check_all(bool empty)
{
    uint32_t used[USED_MAX], n;

    for (uint32_t s = 0; s < SETS; s++)
        version_help(&world.w->region, world.sets[s]->head_unit);
    check_slots();
    n = list_records(used);
    expect(n < USED_MAX, "%u records are in use", n);
    for (uint32_t s = 0; s < SETS; s++)
        check_set(s, empty, used, n);
    for (uint32_t i = 0; empty && i < n; i++)
        expect(false, "record %u is not free", used[i]);
}

void world_check(void)
{
    check_all(false);
}

void world_check_empty(void)
{
    check_all(true);
}

static int compare_grants(const void *a, const void *b)
{
    const struct grant *x = a, *y = b;

    if (x->set != y->set)
        return x->set < y->set ? -1 : 1;
    return x->since < y->since ? -1 : x->since > y->since;
}

/* Every instant of a set belongs to one version alone, so grants must come in the order of joining,
 * too. A request that was granted at once joined at that instant. */
void world_check_log(void)
{
    uint64_t n = atomic_load(&shared->logged), last = 0;
    struct grant *log = malloc(sizeof(shared->log));

    if (!log)
        abort();
    n = n < LOG_MAX ? n : LOG_MAX;
    memcpy(log, shared->log, n * sizeof(*log));
    qsort(log, n, sizeof(*log), compare_grants);
    for (uint64_t i = 0; i < n; i++) {
        if (i && log[i].set != log[i - 1].set)
            last = 0;
        if (!log[i].granted)
            continue;
        expect(log[i].granted > last, "set %u: granted at %lu after %lu, but joined before",
               log[i].set, log[i].granted, last);
        last = log[i].granted;
    }
    free(log);
}
