/* SPDX-License-Identifier: MIT */
/* A look at all of a segment: see look.h. */
#include "look.h"
#include "state/version.h"

#include "keyed/keyed.h"
#include "lib/require.h"
#include "shm/key_table.h"
#include "shm/participant.h"
#include "shm/segment.h"
#include "state/wait_queue.h"

#define WORDS_MAX 64u

/* Reads the current version; its deferred writes are complete. */
static void read_version(const weir_set *set, struct version *version, uint64_t *content)
{
    require(set_content_max(set) <= WORDS_MAX);
    *version = (struct version){
        .content = content, .content_capacity = WORDS_MAX, .inline_format = set->inline_format};
    version_read(set->region, set->head_unit, version);
}

/* False: it is not as it must be. Nested waiters come first, by time; and then the others. */
static bool walk(const weir_set *set, const struct version *version)
{
    uint32_t at = waitq_head(version), before = 0, n = 0;
    uint64_t since = 0;
    bool nested = true;

    for (; at && n <= waitq_length(version); n++) {
        const struct acq_record *r = record_at(set->region, at);
        bool is_nested = record_waits_within(r) != 0;

        if (nested && !is_nested)
            since = 0;
        if (record_state(record_load(&r->word)) != RECORD_WAITING || (is_nested && !nested) ||
            record_load(&r->enqueued_ns) < since ||
            (before && record_link_target(record_load(&r->prev)) != before))
            return false;
        since = record_load(&r->enqueued_ns);
        nested = is_nested;
        before = at;
        at = waitq_next(set->region, at);
    }
    return n == waitq_length(version) && before == waitq_tail(version);
}

uint32_t look_line(const weir_set *set)
{
    struct version version;
    uint64_t content[WORDS_MAX];
    bool whole;

    do {
        read_version(set, &version, content);
        whole = walk(set, &version);
    } while (!version_is_current(set->region, set->head_unit, &version));
    require(whole);
    return waitq_length(&version);
}

uint32_t look_joined(const weir_set *set)
{
    struct version version;
    uint64_t content[WORDS_MAX];

    read_version(set, &version, content);
    return (waitq_departures(&version) + waitq_length(&version)) & WAITQ_COUNT_MASK;
}

/* Does not use calls of the library: those would also complete what was left undone in the set. */
bool look_can_serve(const weir_set *set)
{
    const struct limit *limit = &set->limits.items[0];
    struct version version;
    uint64_t content[WORDS_MAX], wanted;

    do {
        read_version(set, &version, content);
        wanted = waitq_head(&version)
                     ? record_load(&record_at(set->region, waitq_head(&version))->amounts[0])
                     : 0;
    } while (!version_is_current(set->region, set->head_unit, &version));
    return wanted && content[CONTENT_STATES + limit->state_offset] + wanted <= limit->capacity;
}

uint32_t look_places(const weir_set *set)
{
    const struct segment *segment = set->participant->segment;
    uint32_t n = 0;

    for (uint32_t i = 0; i < segment_peers_n(segment); i++)
        n += peer_id_pid(atomic_load(&segment_peer(segment, i)->id)) != 0;
    return n;
}

static bool is_one_of(uint64_t key, const uint32_t *keys, uint32_t n)
{
    while (n-- > 0)
        if (keys[n] == key)
            return true;
    return false;
}

static void look_at_records(const weir_set *set, const uint32_t *keys, uint32_t keys_n)
{
    const struct segment *segment = set->participant->segment;

    for (uint32_t run = 1; run < segment_runs_n(segment); run++) {
        uint64_t owner = atomic_load(segment_run_owner(segment, run));

        require(!owner || is_one_of(owner, keys, keys_n));
        for (uint32_t i = 0; i + set->record_units <= SEGMENT_RUN_UNITS; i += set->record_units) {
            const struct acq_record *r = record_at(set->region, run * SEGMENT_RUN_UNITS + i);

            require(record_state(record_load(&r->word)) == RECORD_FREE);
        }
    }
}

/* What names a set's block: its word, or what says which it has while that is its state. */
static uint64_t block_of(const struct set_head *head)
{
    uint64_t word = head->state_word;

    return word & INFLATED_BIT ? word : head->reserve_block;
}

/* The word that names the i-th block in use: of a thread, the set, or a key set. */
static uint64_t inflated_word(const struct segment *segment, uint32_t i)
{
    uint32_t n = segment_threads_n(segment), block_class = segment->layout.sizes.block_class;

    if (i < n)
        return segment_thread(segment, i)->head.own_blocks[block_class - BLOCK_CLASS_MIN];
    return block_of(i == n ? &segment_header(segment)->head
                           : &segment_key_set(segment, i - n - 1)->head);
}

/* Each block belongs to the set, or to a key set, or is the own block of one thread. */
static void look_at_blocks(const weir_set *set)
{
    const struct segment *segment = set->participant->segment;
    uint32_t n = segment_threads_n(segment) + 1, all = n + segment_key_sets_n(segment);
    bool taken[SEGMENT_THREADS_MAX + 1 + LOOK_KEY_SETS_MAX] = {false};

    require(segment_key_sets_n(segment) <= LOOK_KEY_SETS_MAX);
    for (uint32_t i = 0; i < all; i++) {
        uint64_t slot = inflated_word(segment, i) & BLOCK_SLOT_MASK;
        uint64_t block = slot - segment_block_slot(segment, 0);

        if (block >= n) /* there is room for more threads, which have none yet */
            block = slot - segment_key_set_slot(segment, 0) + n;
        require(block < all && !taken[block]);
        taken[block] = true;
    }
}

/* No record waits, and nothing is held. */
static void look_at_key_set(const weir_set *set)
{
    struct version version;
    uint64_t content[WORDS_MAX];

    require(look_line(set) == 0);
    read_version(set, &version, content);
    for (uint32_t i = 0; i < set->limits.n; i++)
        require(set->limits.items[i].algorithm ||
                content[CONTENT_STATES + set->limits.items[i].state_offset] == 0);
}

void look_key_sets(const weir_set *set)
{
    struct keyed *keyed = keyed_of(set);
    uint32_t n = key_sets_n(keyed);
    bool named[LOOK_KEY_SETS_MAX] = {false};
    struct key_entry entry;

    require(n <= LOOK_KEY_SETS_MAX);
    for (uint32_t i = 0; i < n; i++)
        look_at_key_set(&key_set_by_number(keyed, i, NULL)->set);
    for (uint64_t i = 0; i < key_table_slots(&keyed->table); i++) {
        uint32_t number;

        if (!key_table_at(&keyed->table, i, &entry) || !key_word_is_key_set(entry.word))
            continue;
        number = (uint32_t)(entry.word >> BINDING_BITS & (KEY_SETS_MAX - 1));
        require(number < n && !named[number]);
        named[number] = true;
    }
}

void look_idle(const weir_set *set, const uint32_t *keys, uint32_t n)
{
    const struct segment *segment = set->participant->segment;
    struct version version;
    uint64_t content[WORDS_MAX];

    require(look_line(set) == 0);
    read_version(set, &version, content);
    require(!waitq_head(&version) && !waitq_tail(&version));
    for (uint32_t i = 0; i < set->limits.n; i++) /* of resources: what is held */
        require(set->limits.items[i].algorithm ||
                content[CONTENT_STATES + set->limits.items[i].state_offset] == 0);
    require(look_places(set) == n);
    for (uint32_t i = 0; i < segment_threads_n(segment); i++) {
        uint64_t process = atomic_load(&segment_thread(segment, i)->peer_key);

        require(!process || is_one_of(process, keys, n));
    }
    look_at_records(set, keys, n);
    look_at_blocks(set);
}
