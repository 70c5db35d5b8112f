/* SPDX-License-Identifier: MIT */
/*
 * Generic cell rate algorithm, in its virtual scheduling form: ITU-T Recommendation I.371, annex A.
 * One unit is expected every T = W/C; TAT is the theoretical arrival time of the next one. Amounts
 * may arrive ahead of it by at most τ = B·T:
 *
 *     n is granted at t iff max(TAT, t) + n·T - t ≤ τ; then TAT = max(TAT, t) + n·T.
 *
 * All values are in ticks (exact.h): T is `unit` ticks, τ is `full`, and `ahead` is max(TAT, t) -
 * t. The state has two forms.
 *
 * One word, if a tick is a nanosecond (T whole) and τ is at most 2^60: TAT itself. At the end of
 * the clock, WEIR_CLOCK_MAX, it is at most 2τ ≤ 2^61 ahead, so its top bit is always clear, and a
 * limit may be idle for as long as the clock can run. A forecast may go on beyond that end. There a
 * grant is refused if its TAT would need the top bit. There is no room for the latest instant. An
 * earlier clock reading is answered as of that reading, which grants no more and gives the same
 * instants.
 *
 * Wide, otherwise: TAT in ticks in two words, and the latest instant.
 */
#include "declare.h"

enum { BURST = WINDOW + 1, INITIAL };

static const struct weir_parameter parameters[] = {
    PARAMETERS_CAPACITY_AND_WINDOW,
    PARAMETER_UNITS("burst", 1, "units that may come at once; default: the capacity"),
    PARAMETER_UNITS("initial", 0, "units available at the start; default: the burst"),
};

#define TOP_BIT    (UINT64_C(1) << 63)
#define WORD_DEPTH (UINT64_C(1) << 60) /* largest τ of the one-word form */
_Static_assert(WEIR_CLOCK_MAX + 2 * WORD_DEPTH < TOP_BIT, "one word has every TAT of the clock");

struct config {
    struct bucket_depth depth;
    uint64_t units; /* ticks per ns */
    uint64_t initial;
    uint64_t is_word; /* form of the state: 1 for one word, else 0 */
    uint64_t unused;  /* 0, in place of padding */
};

struct wide_state {
    uint64_t tat[2]; /* ticks */
    uint64_t last;
};

static int configure(const struct weir_setup *setup, void *bytes, struct weir_footprint *ret,
                     struct weir_reason *reterr)
{
    uint64_t burst =
        setup->values[BURST]->given ? setup->values[BURST]->value : setup->values[CAPACITY]->value;
    uint64_t initial;
    if (read_initial(setup, INITIAL, burst, &initial, reterr) < 0)
        return -1;
    struct rate rate = rate_reduce(setup->values[CAPACITY]->value, setup->values[WINDOW]->value);
    struct config made = {
        .depth = bucket_depth_of(burst, rate.span), .units = rate.units, .initial = initial};
    made.is_word = made.units == 1 && made.depth.full <= WORD_DEPTH;
    ret->config = sizeof(made);
    ret->state = made.is_word ? sizeof(uint64_t) : sizeof(struct wide_state);
    ret->amount_max = burst;
    if (bytes)
        *(struct config *)bytes = made;
    return 0;
}

/* Returns the instant to decide by. Only the wide form knows the latest instant seen. */
static uint64_t effective_now(const struct config *config, const void *memory,
                              const struct weir_instant *at)
{
    if (config->is_word)
        return at->now_ns;
    const struct wide_state *state = memory;
    return max_u64(at->now_ns, state->last);
}

static uint64_t word_ahead(uint64_t tat, uint64_t now)
{
    return tat > now ? tat - now : 0;
}

/* Returns whether a TAT `ahead` < 2^63 of `now` needs the top bit. */
static int is_beyond_word(uint64_t now, uint64_t ahead)
{
    return ((now | (now + ahead)) & TOP_BIT) != 0;
}

static uint64_t word_of(uint64_t now, uint64_t ahead)
{
    return is_beyond_word(now, ahead) ? ~TOP_BIT : now + ahead;
}

static u128 ahead_at(const struct config *config, const void *memory, uint64_t now)
{
    if (config->is_word)
        return word_ahead(*(const uint64_t *)memory, now);
    const struct wide_state *state = memory;
    return sub_or_zero(u128_load(state->tat), (u128)config->units * now);
}

static void store_ahead(const struct config *config, void *memory, uint64_t now, u128 ahead)
{
    if (config->is_word) {
        *(uint64_t *)memory = word_of(now, (uint64_t)ahead);
        return;
    }
    struct wide_state *state = memory;
    u128_store(state->tat, (u128)config->units * now + ahead);
    state->last = now;
}

static void init(const void *bytes, void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    u128 ahead = (u128)(config->depth.units - config->initial) * config->depth.unit;
    store_ahead(config, memory, at->now_ns, ahead);
}

/*
 * Returns how far ahead one word would be after a grant of `amount`, at most the burst. A sum above
 * the burst may be above 2^63, but not above 2^64, whatever the word is.
 */
static uint64_t word_grown(const struct config *config, uint64_t tat, uint64_t now, uint64_t amount)
{
    return word_ahead(tat, now) + amount * config->depth.unit;
}

/* Returns when a grant is ready if its TAT does not fit into one word: at the end of time. */
static uint64_t beyond_word(uint64_t now)
{
    return instant_after(now, WEIR_INSTANT_MAX);
}

/* The wide form is a separate function, so that the one-word form needs few registers. */
__attribute__((noinline)) static uint64_t wide_ready_at(const struct config *config,
                                                        const void *memory,
                                                        const struct weir_instant *at,
                                                        uint64_t amount)
{
    uint64_t now = effective_now(config, memory, at);
    u128 ahead = ahead_at(config, memory, now) + (u128)amount * config->depth.unit;
    u128 full = config->depth.full + 0;
    return ahead <= full ? at->now_ns : instant_after(now, ceil_div(ahead - full, config->units));
}

static uint64_t ready_at(const void *bytes, const void *memory, const struct weir_instant *at,
                         uint64_t amount)
{
    const struct config *config = bytes;
    if (amount == 0)
        return at->now_ns;
    if (amount > config->depth.units)
        return WEIR_NEVER;
    if (!config->is_word)
        return wide_ready_at(config, memory, at, amount);
    uint64_t full = (uint64_t)config->depth.full;
    uint64_t ahead = word_grown(config, *(const uint64_t *)memory, at->now_ns, amount);
    if (ahead > full)
        return instant_after(at->now_ns, ahead - full);
    return is_beyond_word(at->now_ns, ahead) ? beyond_word(at->now_ns) : at->now_ns;
}

/* Charges what was used beyond the grant, however much: the debt is at most τ. */
__attribute__((noinline)) static void charge(const void *bytes, void *memory,
                                             const struct weir_instant *at, uint64_t amount)
{
    const struct config *config = bytes;
    if (amount == 0)
        return;
    uint64_t now = effective_now(config, memory, at);
    u128 ahead = ahead_at(config, memory, now), most = 2 * config->depth.full;
    if (ahead > most)
        return; /* an earlier reading, in the one-word form: the debt stays */
    ahead += (u128)amount * config->depth.unit;
    store_ahead(config, memory, now, ahead < most ? ahead : most);
}

static void take(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount)
{
    const struct config *config = bytes;
    uint64_t *tat = memory;
    if (config->is_word && amount != 0 && amount <= config->depth.units)
        *tat = word_of(at->now_ns, word_grown(config, *tat, at->now_ns, amount));
    else
        charge(bytes, memory, at, amount);
}

__attribute__((noinline)) static uint64_t wide_try_take(const struct config *config, void *memory,
                                                        const struct weir_instant *at,
                                                        uint64_t amount)
{
    uint64_t now = effective_now(config, memory, at);
    u128 ahead = ahead_at(config, memory, now) + (u128)amount * config->depth.unit;
    if (ahead > config->depth.full)
        return instant_after(now, ceil_div(ahead - config->depth.full, config->units));
    store_ahead(config, memory, now, ahead);
    return at->now_ns;
}

static uint64_t try_take(const void *bytes, void *memory, const struct weir_instant *at,
                         uint64_t amount)
{
    const struct config *config = bytes;
    uint64_t now = at->now_ns, *tat = memory;
    if (amount == 0)
        return now;
    if (amount > config->depth.units)
        return WEIR_NEVER;
    if (!config->is_word)
        return wide_try_take(config, memory, at, amount);
    uint64_t full = (uint64_t)config->depth.full;
    uint64_t ahead = word_grown(config, *tat, now, amount);
    if (ahead > full) {
        uint64_t wait = ahead - full;
        return (now | wait) >> 62 == 0 ? now + wait : instant_after(now, wait);
    }
    if (is_beyond_word(now, ahead))
        return beyond_word(now);
    *tat = now + ahead;
    return now;
}

static void give_back(const struct config *config, void *memory, uint64_t now, u128 back)
{
    store_ahead(config, memory, now, sub_or_zero(ahead_at(config, memory, now), back));
}

static void refund(const void *bytes, void *memory, const struct weir_instant *at, uint64_t amount,
                   uint64_t granted_ns)
{
    const struct config *config = bytes;
    (void)granted_ns;
    uint64_t now = effective_now(config, memory, at);
    give_back(config, memory, now, (u128)amount * config->depth.unit);
}

static void refund_strict(const void *bytes, void *memory, const struct weir_instant *at,
                          uint64_t amount, uint64_t granted_ns)
{
    const struct config *config = bytes;
    uint64_t now = effective_now(config, memory, at);
    u128 back = (u128)amount * config->depth.unit;
    give_back(config, memory, now, strict_back(back, config->units, granted_ns, now));
}

static uint64_t available(const void *bytes, const void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    u128 ahead = ahead_at(config, memory, effective_now(config, memory, at));
    return (uint64_t)(sub_or_zero(config->depth.full, ahead) / config->depth.unit);
}

static void reconfigure(const void *old_bytes, const void *old_memory, const void *bytes,
                        void *memory, const struct weir_instant *at)
{
    const struct config *old = old_bytes, *config = bytes;
    uint64_t now = effective_now(old, old_memory, at);
    u128 ahead = ahead_at(old, old_memory, now);
    store_ahead(config, memory, now, carry_missing(&old->depth, ahead, &config->depth));
}

static int check(const void *bytes, const void *memory)
{
    const struct config *config = bytes;
    if (config->is_word)
        return (*(const uint64_t *)memory & TOP_BIT) == 0 ? 0 : -1;
    const struct wide_state *state = memory;
    u128 furthest = (u128)config->units * state->last + 2 * config->depth.full;
    return u128_load(state->tat) <= furthest ? 0 : -1;
}

static int is_new(const void *bytes, const void *memory, const struct weir_instant *at)
{
    const struct config *config = bytes;
    uint64_t now = effective_now(config, memory, at);

    /* A limit that does not start full is new at one instant only. */
    return config->initial == config->depth.units && now == at->now_ns &&
           ahead_at(config, memory, now) == 0;
}

static const struct weir_algorithm algorithm = {
    .size = sizeof(algorithm),
    .types = TYPES_OF_RATES,
    .flags = WEIR_ALGORITHM_REFUNDS | WEIR_ALGORITHM_WORD | WEIR_ALGORITHM_MONOTONE,
    .configure = configure,
    .init = init,
    .ready_at = ready_at,
    .take = take,
    .refund = refund,
    .charge = charge,
    .available = available,
    .reconfigure = reconfigure,
    .check = check,
    .try_take = try_take,
    .is_new = is_new,
    .refund_strict = refund_strict,
};

PLUGIN_TABLE("gcra", UINT64_C(0xe0523881fe18ae4b),
             "virtual scheduling: decides as token_bucket does, often on one word of state");
