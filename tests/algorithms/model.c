/* SPDX-License-Identifier: MIT */
/* The reference; see model.h. */
#include "model.h"
#include <stdlib.h>

static uint64_t clamped(const struct model *model, uint64_t now)
{
    return now > model->last ? now : model->last;
}

/* Buckets and the meter: level · W, filling or draining by C per ns. */

static u128 steps(const struct model *model, uint64_t now)
{
    return (now - model->created) / model->every;
}

static struct wide flow_between(const struct model *model, uint64_t from, uint64_t to)
{
    if (model->kind != STEPS)
        return wide_product(to - from, model->capacity);
    u128 n = steps(model, to) - steps(model, from);
    return wide_multiply(wide_product(n, model->capacity), model->every);
}

/* What has come or gone since a grant, for strict refunds. No grant is before the creation. */
static struct wide flow_since(const struct model *model, uint64_t granted_ns, uint64_t now)
{
    if (model->kind == STEPS && granted_ns < model->created)
        granted_ns = model->created;
    return granted_ns < now ? flow_between(model, granted_ns, now) : wide_of(0);
}

static struct wide level_at(const struct model *model, uint64_t now)
{
    struct wide flow = flow_between(model, model->last, now);
    if (model->kind == METER)
        return wide_most(wide_of(0), wide_subtract(model->level, flow));
    return wide_least(wide_product(model->burst, model->window), wide_add(model->level, flow));
}

static void level_change(struct model *model, uint64_t now, struct wide by)
{
    struct wide full = wide_product(model->burst, model->window);
    struct wide level = wide_add(level_at(model, now), by);
    struct wide lowest = model->kind == METER ? wide_of(0) : wide_negative(full);
    model->level = wide_most(lowest, wide_least(full, level));
}

static bool level_grants(const struct model *model, uint64_t now, uint64_t amount)
{
    struct wide level = level_at(model, now), units = wide_product(amount, model->window);
    if (model->kind != METER)
        return wide_compare(level, units) >= 0;
    return wide_compare(wide_add(level, units), wide_product(model->capacity, model->window)) <= 0;
}

/* The queue: unit k of those that wait since `base` leaves at base + k · W/C. */

static bool left_by(const struct model *model, u128 k, uint64_t now)
{
    return wide_compare(wide_product(k, model->window),
                        wide_product(now - model->base, model->capacity)) <= 0;
}

static void queue_take(struct model *model, uint64_t now, uint64_t amount)
{
    if (now > model->base && left_by(model, model->line, now - 1)) {
        model->base = now;
        model->line = 0;
    }
    model->line += amount;
    model->granted = now;
}

/* Takes back the last waiting units, as long as they have not left. */
static void queue_refund(struct model *model, uint64_t now, uint64_t amount, uint64_t granted_ns)
{
    if (granted_ns != model->granted || left_by(model, model->line, now))
        return;
    u128 low = 0, high = model->line; /* unit `low` has left, unit `high` has not */
    while (high - low > 1) {
        u128 middle = low + (high - low) / 2;
        if (left_by(model, middle, now))
            low = middle;
        else
            high = middle;
    }
    u128 waiting = model->line - high;
    model->line -= waiting < amount ? waiting : amount;
}

/* The windows: a list of all grants that may still count. */

static u128 segment_of(const struct model *model, uint64_t instant)
{
    u128 scaled = (u128)instant * model->segments;
    return scaled / model->window + (scaled % model->window != 0);
}

static bool live(const struct model *model, const struct model_grant *grant, uint64_t now)
{
    if (now < model->window)
        return true;
    uint64_t gone = now - model->window;
    if (model->kind == SEGMENTS) /* gone when the end of its sub-window, number · W/N, is */
        return grant->number * model->window > (u128)gone * model->segments;
    return grant->instant > gone;
}

static u128 window_at(const struct model *model, uint64_t now, int64_t wall_offset_ns)
{
    if (model->kind == CREATION)
        return (now - model->created) / model->window;
    if (model->kind == EPOCH) {
        i128 wall = (i128)now + wall_offset_ns;
        u128 number = wall > 0 ? (u128)wall / model->window : 0;
        return number > model->number ? number : model->number;
    }
    return model->number + (model->number == 0 || now - model->start >= model->window);
}

static bool is_window(const struct model *model)
{
    return model->kind >= FIRST_USE;
}

static bool counts(const struct model *model, const struct model_grant *grant, uint64_t now,
                   u128 window)
{
    return is_window(model) ? grant->number == window : live(model, grant, now);
}

static u128 counted(const struct model *model, uint64_t now, int64_t wall_offset_ns)
{
    u128 sum = 0, window = window_at(model, now, wall_offset_ns);
    for (size_t i = 0; i < model->grants_n; i++)
        if (counts(model, &model->grants[i], now, window))
            sum += model->grants[i].amount;
    return sum;
}

/* Forgets what does not count any more. */
static void prune(struct model *model, uint64_t now, u128 window)
{
    size_t kept = 0;
    for (size_t i = 0; i < model->grants_n; i++)
        if (counts(model, &model->grants[i], now, window))
            model->grants[kept++] = model->grants[i];
    model->grants_n = kept;
}

/* A wall clock that steps may divide an instant between two windows. What was granted at it then
 * counts as of the earlier one, or more than C could be granted in the later one. */
static bool is_divided(const struct model *model, uint64_t now)
{
    u128 sum = 0;
    for (size_t i = 0; i < model->grants_n; i++)
        if (model->grants[i].number == model->number)
            sum += model->grants[i].amount;
    return model->last == now && (sum > 0 || model->start > now);
}

static void enter_window(struct model *model, uint64_t now, u128 window)
{
    if (model->kind == FIRST_USE || model->kind == EPOCH) {
        if (model->number != window)
            model->start = now + (model->kind == EPOCH && is_divided(model, now));
        model->number = window;
    }
}

/* A window of the epoch begins with the first grant that counts in it. One that has counted
 * nothing, or has got everything back, is as a new one. */
static void begin_window(struct model *model, uint64_t now, int64_t wall_offset_ns)
{
    if (model->kind == EPOCH && now > model->start && counted(model, now, wall_offset_ns) == 0)
        model->start = now;
}

static void list_take(struct model *model, uint64_t now, int64_t wall_offset_ns, uint64_t amount)
{
    u128 window = is_window(model) ? window_at(model, now, wall_offset_ns) : 0;
    enter_window(model, now, window);
    prune(model, now, window);
    begin_window(model, now, wall_offset_ns);
    if (model->grants_n == model->grants_size) {
        model->grants_size = 2 * model->grants_size + 16;
        model->grants = realloc(model->grants, model->grants_size * sizeof(*model->grants));
        if (!model->grants)
            abort();
    }
    u128 number = model->kind == SEGMENTS ? segment_of(model, now) : window;
    model->grants[model->grants_n++] =
        (struct model_grant){.instant = now, .amount = amount, .number = number};
}

static bool same_entry(const struct model *model, const struct model_grant *grant,
                       uint64_t granted_ns)
{
    if (model->kind == LOG)
        return grant->instant == granted_ns;
    if (model->kind == SEGMENTS)
        return grant->number == segment_of(model, granted_ns);
    return grant->number == model->number;
}

static void list_refund(struct model *model, uint64_t now, int64_t wall_offset_ns, uint64_t amount,
                        uint64_t granted_ns)
{
    if (model->kind == CREATION) {
        model->number = window_at(model, now, wall_offset_ns);
        if (granted_ns < model->created ||
            (granted_ns - model->created) / model->window != model->number)
            return;
    }
    if (model->kind == FIRST_USE &&
        (now - model->start >= model->window || granted_ns < model->start))
        return;
    if (model->kind == EPOCH) {
        enter_window(model, now, window_at(model, now, wall_offset_ns));
        if (granted_ns < model->start)
            return;
    }
    for (size_t i = 0; i < model->grants_n; i++) {
        struct model_grant *grant = &model->grants[i];
        if (!same_entry(model, grant, granted_ns))
            continue;
        uint64_t back = amount < grant->amount ? amount : grant->amount;
        grant->amount -= back;
        amount -= back;
    }
}

void model_init(struct model *model, uint64_t now, int64_t wall_offset_ns)
{
    model->created = model->last = model->start = model->base = model->granted = now;
    model->grants_n = 0;
    uint64_t used = model->burst - model->initial;
    uint64_t level = model->kind == METER ? used : model->initial;
    model->level = wide_product(level, model->window);
    if (model->kind == EPOCH)
        model->number = window_at(model, now, wall_offset_ns);
    if (used > 0 && model->kind >= LOG)
        list_take(model, now, wall_offset_ns, used);
}

void model_free(struct model *model)
{
    free(model->grants);
}

bool model_grants(const struct model *model, uint64_t now, int64_t wall_offset_ns, uint64_t amount)
{
    now = clamped(model, now);
    if (amount > model->burst)
        return false;
    if (model->kind <= METER)
        return level_grants(model, now, amount);
    if (model->kind == QUEUE)
        return left_by(model, model->line, now);
    return counted(model, now, wall_offset_ns) + amount <= model->capacity;
}

void model_take(struct model *model, uint64_t now, int64_t wall_offset_ns, uint64_t amount)
{
    now = clamped(model, now);
    struct wide units = wide_product(amount, model->window);
    if (model->kind <= METER)
        level_change(model, now, model->kind == METER ? units : wide_negative(units));
    else if (model->kind == QUEUE)
        queue_take(model, now, amount);
    else
        list_take(model, now, wall_offset_ns, amount);
    model->last = now;
}

void model_refund(struct model *model, uint64_t now, int64_t wall_offset_ns, uint64_t amount,
                  uint64_t granted_ns)
{
    now = clamped(model, now);
    struct wide units = wide_product(amount, model->window);
    if (model->strict && model->kind <= METER)
        units = wide_most(wide_of(0), wide_subtract(units, flow_since(model, granted_ns, now)));
    if (model->kind <= METER)
        level_change(model, now, model->kind == METER ? wide_negative(units) : units);
    else if (model->kind == QUEUE)
        queue_refund(model, now, amount, granted_ns);
    else
        list_refund(model, now, wall_offset_ns, amount, granted_ns);
    model->last = now;
}

void model_charge(struct model *model, uint64_t now, uint64_t amount)
{
    now = clamped(model, now);
    level_change(model, now, wide_negative(wide_product(amount, model->window)));
    model->last = now;
}
