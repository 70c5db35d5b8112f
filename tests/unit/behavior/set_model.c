/* SPDX-License-Identifier: MIT */
/* The plain model of a set. */
#include "set_model.h"
#include <errno.h>
#include <string.h>

static i128 least(i128 a, i128 b)
{
    return a < b ? a : b;
}

static i128 most(i128 a, i128 b)
{
    return a > b ? a : b;
}

/* The first whole number not below a / b. */
static uint64_t up(i128 a, i128 b)
{
    return a <= 0 ? 0 : (uint64_t)((a + b - 1) / b);
}

/* The limits, by the table of the contract. C = capacity, W = window, B = burst. */

static i128 bucket_level(const struct model_limit *l, const struct model_state *s, uint64_t now)
{
    return least((i128)l->burst * l->window, s->level + (i128)l->capacity * (now - s->last));
}

static i128 gcra_tat(const struct model_limit *l, const struct model_state *s, uint64_t now)
{
    return most(s->level, (i128)l->capacity * now);
}

static i128 leaky_level(const struct model_limit *l, const struct model_state *s, uint64_t now)
{
    return most(0, s->level - (i128)l->capacity * (now - s->last));
}

static bool entry_counts(const struct model_limit *l, uint64_t at, uint64_t now)
{
    return now < l->window || at > now - l->window;
}

static uint64_t sliding_ready(const struct model_limit *l, const struct model_state *s,
                              uint64_t now, uint64_t n)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < s->log_n; i++)
        if (entry_counts(l, s->log[i].at, now))
            sum += s->log[i].n;
    if (sum + n <= l->capacity)
        return now;
    for (unsigned i = 0; i < s->log_n; i++) {
        if (!entry_counts(l, s->log[i].at, now))
            continue;
        sum -= s->log[i].n;
        if (sum + n <= l->capacity)
            return s->log[i].at + l->window;
    }
    return UINT64_MAX;
}

static bool window_is_open(const struct model_limit *l, const struct model_state *s, uint64_t now)
{
    return s->started && now - s->start < l->window;
}

uint64_t model_limit_ready(const struct model_limit *l, const struct model_state *s, uint64_t now,
                           uint64_t n)
{
    i128 amount = (i128)n * l->window, excess;

    switch (l->algorithm) {
    case MODEL_BUCKET:
        return now + up(amount - bucket_level(l, s, now), l->capacity);
    case MODEL_GCRA:
        excess = gcra_tat(l, s, now) + amount - (i128)l->capacity * now;
        return now + up(excess - (i128)l->burst * l->window, l->capacity);
    case MODEL_LEAKY:
        excess = leaky_level(l, s, now) + amount - (i128)l->capacity * l->window;
        return now + up(excess, l->capacity);
    case MODEL_SLIDING:
        return sliding_ready(l, s, now, n);
    case MODEL_FIXED:
        if (!window_is_open(l, s, now) || s->count + n <= l->capacity)
            return now;
        return s->start + l->window;
    default:
        return (uint64_t)s->level + n <= l->capacity ? now : MODEL_BLOCKED;
    }
}

static void sliding_take(struct model_state *s, const struct model_limit *l, uint64_t now,
                         uint64_t n)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < s->log_n; i++)
        if (entry_counts(l, s->log[i].at, now) && s->log[i].n)
            s->log[kept++] = s->log[i];
    s->log_n = kept;
    s->log[s->log_n].at = now;
    s->log[s->log_n++].n = n;
}

static void fixed_take(struct model_state *s, const struct model_limit *l, uint64_t now, uint64_t n)
{
    if (!window_is_open(l, s, now)) {
        s->started = true;
        s->start = now;
        s->count = 0;
    }
    s->count += n;
}

static void limit_take(const struct model_limit *l, struct model_state *s, uint64_t now, uint64_t n)
{
    i128 amount = (i128)n * l->window;

    if (l->algorithm == MODEL_BUCKET)
        s->level = bucket_level(l, s, now) - amount;
    else if (l->algorithm == MODEL_GCRA)
        s->level = gcra_tat(l, s, now) + amount;
    else if (l->algorithm == MODEL_LEAKY)
        s->level = leaky_level(l, s, now) + amount;
    else if (l->algorithm == MODEL_SLIDING)
        sliding_take(s, l, now, n);
    else if (l->algorithm == MODEL_FIXED)
        fixed_take(s, l, now, n);
    else
        s->level += n;
    s->last = now;
}

/* What was taken at `then` shrinks by n. Several grants of one instant are one entry. */
static void sliding_refund(struct model_state *s, uint64_t then, uint64_t n)
{
    for (unsigned i = 0; i < s->log_n && n; i++) {
        uint64_t back = s->log[i].n < n ? s->log[i].n : n;

        if (s->log[i].at != then)
            continue;
        s->log[i].n -= back;
        n -= back;
    }
}

static void limit_refund(const struct model_limit *l, struct model_state *s, uint64_t now,
                         uint64_t n, uint64_t then)
{
    i128 amount = (i128)n * l->window;

    if (l->strict)
        amount = most(0, amount - (i128)l->capacity * (now - then));
    if (l->algorithm == MODEL_BUCKET)
        s->level = least((i128)l->burst * l->window, bucket_level(l, s, now) + amount);
    else if (l->algorithm == MODEL_GCRA)
        s->level = most((i128)l->capacity * now, gcra_tat(l, s, now) - amount);
    else if (l->algorithm == MODEL_LEAKY)
        s->level = most(0, leaky_level(l, s, now) - amount);
    else if (l->algorithm == MODEL_SLIDING)
        sliding_refund(s, then, n);
    else if (l->algorithm == MODEL_FIXED && window_is_open(l, s, now) && then >= s->start)
        s->count -= n;
    s->last = now;
}

/* Debt, never deeper than the burst. Only buckets charge. */
static void limit_charge(const struct model_limit *l, struct model_state *s, uint64_t now,
                         uint64_t n)
{
    i128 amount = (i128)n * l->window, deepest = (i128)l->burst * l->window;

    if (l->algorithm == MODEL_BUCKET)
        s->level = most(-deepest, bucket_level(l, s, now) - amount);
    else
        s->level = least((i128)l->capacity * now + 2 * deepest, gcra_tat(l, s, now) + amount);
    s->last = now;
}

uint64_t model_available(const struct model_limit *l, uint64_t now)
{
    bool burst = l->algorithm == MODEL_BUCKET || l->algorithm == MODEL_GCRA;
    uint64_t n = burst ? l->burst : l->capacity;

    while (n && model_limit_ready(l, &l->state, now, n) != now)
        n--;
    return n;
}

/* The set */

static uint64_t ready_of(const struct model *m, const struct model_state *states, uint64_t now,
                         const uint64_t *amounts, bool with_resources)
{
    uint64_t latest = now;

    for (unsigned i = 0; i < m->limits_n; i++) {
        const struct model_limit *l = &m->limits[i];

        if (!amounts[i] || (l->algorithm == MODEL_RESOURCE && !with_resources))
            continue;
        if (model_limit_ready(l, &states[i], now, amounts[i]) > latest)
            latest = model_limit_ready(l, &states[i], now, amounts[i]);
    }
    return latest;
}

static void copy_states(const struct model *m, struct model_state *states)
{
    for (unsigned i = 0; i < m->limits_n; i++)
        states[i] = m->limits[i].state;
}

static bool is_nothing(const struct model *m, const uint64_t *amounts)
{
    for (unsigned i = 0; i < m->limits_n; i++)
        if (amounts[i])
            return false;
    return true;
}

/* What of a request's amounts is not in shadow: a request with number `number` is enforced by a
 * limit if that is below the part that is enforced. */
static const uint64_t *counted(const struct model *m, const uint64_t *amounts, uint64_t *to)
{
    for (unsigned i = 0; i < m->limits_n; i++)
        to[i] = m->number < 100 - m->limits[i].shadow ? amounts[i] : 0;
    return to;
}

uint64_t model_part(const struct model_asker *asker, unsigned i)
{
    bool is_left_out = asker->phase == MODEL_WAITING || asker->untaken;

    return is_left_out ? asker->counted[i] : asker->amounts[i];
}

uint64_t model_instant(const struct model *m)
{
    return m->now > m->reserved ? m->now : m->reserved;
}

/* When amounts that count would be granted. */
static uint64_t ready_now(const struct model *m, const uint64_t *amounts)
{
    struct model_state states[MODEL_LIMITS];

    copy_states(m, states);
    return ready_of(m, states, model_instant(m), amounts, true);
}

uint64_t model_ready(const struct model *m, const uint64_t *amounts, bool with_resources)
{
    struct model_state states[MODEL_LIMITS];
    uint64_t part[MODEL_LIMITS];

    copy_states(m, states);
    return ready_of(m, states, model_instant(m), counted(m, amounts, part), with_resources);
}

static bool shares(const struct model *m, const uint64_t *a, const uint64_t *b)
{
    for (unsigned i = 0; i < m->limits_n; i++)
        if (a[i] && b[i])
            return true;
    return false;
}

/* Whether waiter w is granted before a request that comes behind it in the line. */
static bool goes_before(const struct model *m, const struct model_asker *w, const uint64_t *amounts)
{
    return !m->per_limit || shares(m, w->counted, amounts);
}

/* When these amounts are granted behind others, each limit of which is free from its `after`. */
static uint64_t foresee(const struct model *m, const struct model_state *states,
                        const uint64_t *after, const uint64_t *amounts)
{
    uint64_t now = model_instant(m);

    for (unsigned i = 0; i < m->limits_n; i++)
        if ((amounts[i] || !m->per_limit) && after[i] > now)
            now = after[i];
    return ready_of(m, states, now, amounts, false);
}

uint64_t model_forecast(const struct model *m, const uint64_t *asked)
{
    struct model_state states[MODEL_LIMITS];
    uint64_t after[MODEL_LIMITS] = {0}, part[MODEL_LIMITS];
    const uint64_t *amounts = counted(m, asked, part);

    if (is_nothing(m, amounts) && !is_nothing(m, asked))
        return m->now;
    copy_states(m, states);
    for (unsigned w = 0; w < m->line_n; w++) {
        const uint64_t *of_waiter = m->line[w]->counted;
        uint64_t at = foresee(m, states, after, of_waiter);

        if (m->nested && !m->line[w]->nested)
            break;
        for (unsigned i = 0; i < m->limits_n; i++) {
            if (of_waiter[i] || !m->per_limit)
                after[i] = at;
            if (of_waiter[i] && m->limits[i].algorithm != MODEL_RESOURCE)
                limit_take(&m->limits[i], &states[i], at, of_waiter[i]);
        }
    }
    return foresee(m, states, after, amounts);
}

static void begin(struct model *m, const uint64_t *amounts, struct model_asker *asker,
                  enum model_phase phase)
{
    *asker = (struct model_asker){.phase = phase,
                                  .pended = phase == MODEL_WAITING,
                                  .seen = phase == MODEL_HELD,
                                  .result = phase == MODEL_HELD ? 0 : -EINPROGRESS,
                                  .since = m->now,
                                  .granted_at = m->now,
                                  .number = m->number,
                                  .nested = m->nested,
                                  .within = m->within,
                                  .deadline = UINT64_MAX};
    memcpy(asker->amounts, amounts, sizeof(asker->amounts));
    memcpy(asker->used, amounts, sizeof(asker->used));
    counted(m, amounts, asker->counted);
}

static void take(struct model *m, const uint64_t *amounts, uint64_t at)
{
    for (unsigned i = 0; i < m->limits_n; i++) {
        m->limits[i].granted += amounts[i];
        if (amounts[i])
            limit_take(&m->limits[i], &m->limits[i].state, at, amounts[i]);
    }
}

static uint64_t largest_of(const struct model_limit *l)
{
    return l->algorithm == MODEL_BUCKET || l->algorithm == MODEL_GCRA ? l->burst : l->capacity;
}

/* Takes what is in shadow, if all of it is there. Returns whether it was not, which counts for the
 * limit that would be ready last; for the first one of which too much is asked. */
static bool take_shadow(struct model *m, const struct model_asker *asker, const uint64_t *amounts,
                        const uint64_t *part, uint64_t at)
{
    uint64_t shadow[MODEL_LIMITS], latest = at;
    struct model_limit *last = NULL;

    for (unsigned i = 0; i < m->limits_n; i++)
        shadow[i] = amounts[i] - part[i];
    /* Not before the time of a reservation. */
    for (unsigned i = 0; i < m->limits_n && at > m->now && is_nothing(m, part) && !last; i++)
        if (shadow[i])
            last = &m->limits[i];
    /* Nor what others wait for. */
    for (unsigned i = 0; i < m->limits_n && m->fair && !last; i++)
        for (unsigned w = 0; w < m->line_n && m->line[w] != asker && shadow[i]; w++)
            if (m->line[w]->counted[i])
                last = &m->limits[i];
    for (unsigned i = 0; i < m->limits_n && !last; i++)
        if (shadow[i] > largest_of(&m->limits[i]))
            last = &m->limits[i];
    if (!last) {
        struct model_state states[MODEL_LIMITS];

        copy_states(m, states);
        latest = ready_of(m, states, at, shadow, true);
        for (unsigned i = 0; i < m->limits_n && latest > at && !last; i++)
            if (shadow[i] && model_limit_ready(&m->limits[i], &states[i], at, shadow[i]) == latest)
                last = &m->limits[i];
    }
    if (last)
        last->would_refuse++;
    else
        take(m, shadow, at);
    return last != NULL;
}

/* Returns whether what is in shadow was not taken. */
static bool take_all(struct model *m, const uint64_t *amounts, uint64_t at)
{
    uint64_t part[MODEL_LIMITS];

    m->stats.granted++;
    take(m, counted(m, amounts, part), at);
    return take_shadow(m, NULL, amounts, part, at);
}

/* Whether nothing stands in the way of the request but the limits. */
static bool is_first(const struct model *m, const uint64_t *amounts)
{
    for (unsigned w = 0; w < m->line_n && m->fair; w++)
        if (!(m->nested && !m->line[w]->nested) && goes_before(m, m->line[w], amounts))
            return false;
    return true;
}

static bool can_be_now(const struct model *m, const uint64_t *asked)
{
    uint64_t part[MODEL_LIMITS];
    const uint64_t *amounts = counted(m, asked, part);

    return is_nothing(m, amounts) || (is_first(m, amounts) && ready_now(m, amounts) <= m->now);
}

int model_try(struct model *m, const uint64_t *amounts, struct model_asker *asker)
{
    bool untaken;

    if (!can_be_now(m, amounts))
        return -EAGAIN;
    untaken = take_all(m, amounts, model_instant(m));
    if (asker) {
        begin(m, amounts, asker, MODEL_HELD);
        asker->untaken = untaken;
        asker->granted_at = is_nothing(m, asker->counted) ? m->now : model_instant(m);
        m->stats.held++;
    } else {
        m->stats.taken++;
    }
    return 0;
}

/* One that is nested and would wait: what it asks for, and in what it is nested. */
struct inner {
    const uint64_t *amounts;
    const struct model_asker *within;
    bool gone;
};

/* Whether `outer` waits for one of the `n` that have not gone. */
static bool is_waiting(const struct inner *inners, unsigned n, const struct model_asker *outer)
{
    for (unsigned i = 0; i < n; i++)
        for (const struct model_asker *a = inners[i].within; a && !inners[i].gone; a = a->within)
            if (a == outer)
                return true;
    return false;
}

/* What all that wait hold of one limit, each of them once. */
static uint64_t held_by_waiting(const struct inner *inners, unsigned n, unsigned limit)
{
    const struct model_asker *counted[MODEL_ASKERS];
    unsigned counted_n = 0;
    uint64_t sum = 0;

    for (unsigned i = 0; i < n; i++)
        for (const struct model_asker *a = inners[i].within; a; a = a->within) {
            bool again = !is_waiting(inners, n, a);

            for (unsigned c = 0; c < counted_n; c++)
                again |= counted[c] == a;
            if (again)
                continue;
            counted[counted_n++] = a;
            sum += model_part(a, limit);
        }
    return sum;
}

static bool can_ever_go(const struct model *m, const struct inner *inners, unsigned n, unsigned i)
{
    for (unsigned j = 0; j < i; j++)
        if (!inners[j].gone && (!m->per_limit || shares(m, inners[j].amounts, inners[i].amounts)))
            return false;
    for (unsigned l = 0; l < m->limits_n; l++)
        if (m->limits[l].algorithm == MODEL_RESOURCE && inners[i].amounts[l] &&
            held_by_waiting(inners, n, l) + inners[i].amounts[l] > m->limits[l].capacity)
            return false;
    return true;
}

bool model_deadlocks(const struct model *m, const uint64_t *asked)
{
    struct inner inners[MODEL_ASKERS + 1];
    uint64_t part[MODEL_LIMITS];
    const uint64_t *amounts = counted(m, asked, part);
    unsigned n = 0, left;

    if (!m->nested || can_be_now(m, asked))
        return false;
    for (unsigned w = 0; w < m->line_n; w++)
        if (m->line[w]->nested)
            inners[n++] = (struct inner){m->line[w]->counted, m->line[w]->within, false};
    inners[n++] = (struct inner){amounts, m->within, false};
    left = n;
    for (unsigned i = 0; i < n; i++)
        if (!inners[i].gone && can_ever_go(m, inners, n, i)) {
            inners[i].gone = true;
            left--;
            i = UINT32_MAX; /* from the first one */
        }
    return left > 0;
}

int model_submit(struct model *m, const uint64_t *amounts, struct model_asker *asker)
{
    if (model_try(m, amounts, asker) == 0)
        return 0;
    if (model_deadlocks(m, amounts)) {
        m->stats.refused_deadlock++;
        return -EDEADLK;
    }
    return m->max_waiters && m->line_n >= m->max_waiters ? -ENOBUFS : 1;
}

int model_reserve(struct model *m, const uint64_t *amounts, uint64_t max_wait,
                  struct model_asker *asker, uint64_t *ret_at, bool *ret_busy)
{
    bool untaken;

    *ret_at = m->now;
    *ret_busy = m->line_n != 0;
    if (model_try(m, amounts, asker) < 0) {
        *ret_at = model_ready(m, amounts, true);
        if (*ret_busy || *ret_at - m->now > max_wait)
            return -EAGAIN;
        untaken = take_all(m, amounts, *ret_at);
        begin(m, amounts, asker, MODEL_HELD);
        asker->untaken = untaken;
        m->stats.held++;
        m->reserved = *ret_at;
    } else {
        *ret_at = asker->granted_at;
    }
    asker->granted_at = *ret_at;
    asker->reserved = true;
    asker->seen = false;
    return 0;
}

void model_join(struct model *m, const uint64_t *amounts, struct model_asker *asker)
{
    unsigned at = m->line_n;

    begin(m, amounts, asker, MODEL_WAITING);
    while (asker->nested && at > 0 && !m->line[at - 1]->nested)
        at--;
    memmove(&m->line[at + 1], &m->line[at], (m->line_n - at) * sizeof(m->line[0]));
    m->line[at] = asker;
    m->line_n++;
}

static void leave(struct model *m, const struct model_asker *asker)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < m->line_n; i++)
        if (m->line[i] != asker)
            m->line[kept++] = m->line[i];
    m->line_n = kept;
}

static void end(struct model *m, struct model_asker *asker, int result)
{
    leave(m, asker);
    asker->phase = MODEL_ENDED;
    asker->result = result;
}

void model_expire(struct model *m, struct model_asker *asker)
{
    end(m, asker, asker->deadline_result);
    if (asker->result == -ETIMEDOUT)
        m->stats.timed_out++;
    else
        m->stats.refused_max_wait++;
}

/* Whether waiter number w waits for no other one. */
static bool is_next(const struct model *m, unsigned w)
{
    for (unsigned before = 0; before < w; before++)
        if (goes_before(m, m->line[before], m->line[w]->counted))
            return false;
    return true;
}

struct model_asker *model_ready_waiter(const struct model *m)
{
    for (unsigned w = 0; w < m->line_n; w++)
        if (is_next(m, w) && ready_now(m, m->line[w]->counted) <= m->now)
            return m->line[w];
    return NULL;
}

static unsigned bucket_of(uint64_t wait_ns)
{
    unsigned bucket = 0;

    while (bucket < WEIR_WAIT_BUCKETS - 1 && wait_ns >= UINT64_C(1000) << bucket)
        bucket++;
    return bucket;
}

void model_grant(struct model *m, struct model_asker *asker)
{
    uint64_t wait = (m->now - asker->since) * m->tick_ns;

    m->stats.granted++;
    take(m, asker->counted, m->now);
    asker->untaken = take_shadow(m, asker, asker->amounts, asker->counted, m->now);
    leave(m, asker);
    asker->phase = MODEL_HELD;
    asker->result = 0;
    asker->granted_at = m->now;
    m->stats.held++;
    m->stats.granted_waited++;
    m->stats.wait_ns_sum += wait;
    m->stats.wait_ns_max = wait > m->stats.wait_ns_max ? wait : m->stats.wait_ns_max;
    m->stats.wait_histogram[bucket_of(wait)]++;
}

void model_serve(struct model *m)
{
    struct model_asker *asker;

    while ((asker = model_ready_waiter(m)))
        model_grant(m, asker);
}

uint64_t model_next(const struct model *m)
{
    uint64_t next = UINT64_MAX;

    for (unsigned i = 0; i < m->line_n; i++) {
        uint64_t ready = is_next(m, i) ? ready_now(m, m->line[i]->counted) : UINT64_MAX;

        next = ready < next ? ready : next;
        next = m->line[i]->deadline < next ? m->line[i]->deadline : next;
    }
    return next < MODEL_BLOCKED ? next : UINT64_MAX;
}

int model_update(struct model *m, struct model_asker *asker, unsigned i, uint64_t used)
{
    const struct model_limit *l = &m->limits[i];
    uint64_t amount = asker->amounts[i];

    if (asker->phase != MODEL_HELD || l->type == WEIR_LIMIT_RESOURCE || !amount)
        return -EINVAL;
    if (l->type == WEIR_LIMIT_CALL && (used > amount || (amount == 1 && used != 1)))
        return -ERANGE;
    asker->used[i] = used;
    asker->updated[i] = true;
    asker->seen = true;
    return 0;
}

/* Gives back what one limit gets; tells what happened by bits: 1 refunded, 2 overused. */
static unsigned settle_limit(struct model *m, struct model_limit *l, uint64_t amount, uint64_t used,
                             uint64_t then, bool everything)
{
    if (!amount)
        return 0;
    if (l->algorithm == MODEL_RESOURCE) {
        l->state.level -= amount;
        return 0;
    }
    if (used < amount && (l->refunds || everything)) {
        limit_refund(l, &l->state, model_instant(m), amount - used, then);
        l->refunded += amount - used;
        return 1;
    }
    if (used <= amount)
        return 0;
    l->overused += used - amount;
    if (l->charges)
        limit_charge(l, &l->state, model_instant(m), used - amount);
    return 2;
}

int model_return(struct model *m, struct model_asker *asker, unsigned i, uint64_t n)
{
    uint64_t amount = asker->amounts[i], most = amount;

    if (asker->queued)
        return -EBUSY;
    if (asker->phase != MODEL_HELD)
        return -EINVAL;
    if (asker->updated[i])
        most = asker->used[i] < amount ? amount - asker->used[i] : 0;
    if (n > most)
        return -ERANGE;
    asker->seen = true;
    asker->amounts[i] -= n;
    if (!asker->updated[i])
        asker->used[i] = asker->amounts[i];
    if (model_part(asker, i) || !asker->untaken)
        m->stats.refunded += settle_limit(m, &m->limits[i], n, 0, asker->granted_at, false);
    asker->counted[i] = asker->counted[i] ? asker->amounts[i] : 0;
    model_serve(m);
    return 0;
}

static void settle(struct model *m, struct model_asker *asker, bool everything)
{
    unsigned what = 0;

    for (unsigned i = 0; i < m->limits_n; i++)
        what |= settle_limit(m, &m->limits[i], model_part(asker, i),
                             everything ? 0 : asker->used[i], asker->granted_at, everything);
    m->stats.refunded += (what & 1) != 0;
    m->stats.overused += (what & 2) != 0;
    m->stats.released++;
    m->stats.held--;
    m->stats.canceled += everything;
    model_serve(m);
}

static bool is_missing(const struct model *m, const struct model_asker *asker)
{
    for (unsigned i = 0; i < m->limits_n; i++) {
        uint64_t free_of_update = m->limits[i].type == WEIR_LIMIT_RATE ? 0 : 1;

        if (m->limits[i].type != WEIR_LIMIT_RESOURCE && asker->amounts[i] > free_of_update &&
            !asker->updated[i])
            return true;
    }
    return false;
}

int model_cancel(struct model *m, struct model_asker *asker)
{
    if (asker->phase == MODEL_WAITING) {
        end(m, asker, -ECANCELED);
        m->stats.canceled++;
        model_serve(m);
        return 0;
    }
    if (asker->phase == MODEL_ENDED || asker->seen || !(asker->pended || asker->reserved))
        return -EALREADY;
    asker->phase = MODEL_ENDED;
    asker->result = -ECANCELED;
    settle(m, asker, true);
    return 0;
}

int model_release(struct model *m, struct model_asker *asker)
{
    bool known = asker->seen || asker->listening || asker->reserved, missing = false;

    if (asker->phase == MODEL_WAITING) {
        (void)model_cancel(m, asker);
    } else if (asker->phase == MODEL_HELD) {
        missing = known && is_missing(m, asker);
        settle(m, asker, !known);
    }
    m->stats.missing_update += missing;
    return missing ? -EPROTO : 0;
}
