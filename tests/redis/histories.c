/* SPDX-License-Identifier: MIT */
/*
 * Prints random histories of operations on sets, with what the algorithm plugins decide. The test
 * test_redis_decisions.py repeats them on a Redis server and compares.
 *
 * Time is in microseconds. A plugin counts in nanoseconds, but nothing in it depends on the unit:
 * so half of the sets are decided with one of its nanoseconds for each microsecond, which must give
 * the same to the last digit. The others are decided in nanoseconds proper, with what is answered
 * rounded up to microseconds. (A shaper spaces its units by the unit of the clock, and is compared
 * in the first way only.)
 *
 * Lines: S LIMIT/LIMIT…  a new set; its limits as the protocol writes them
 *        C CLOCK         the server's clock; B CLOCK the same, after a change: it is set back
 *        R               the session has ended, and a new one begins
 *        D LIMIT/LIMIT…  the next revision of the set, which has the same shape
 *        G SLOT SERIAL AMOUNT…: REPLY          acquire        T AMOUNT…: REPLY        take
 *        V SLOT SERIAL MAX_WAIT AMOUNT…: REPLY reserve        L: AVAILABLE WAIT …     snapshot
 *        E SLOT SERIAL HOW USED…: REPLY        release        W SLOT SERIAL LEFT…: REPLY  return
 * REPLY: status 0 granted (V: its instant), 2 refused (reason, limit, wait), 3 gone.
 */
#include "algorithms/cmocka_all.h"
#include "algorithms/subject.h"
#include "lib/random.h"

#include <inttypes.h>
#include <stdio.h>

#define LIMITS      3
#define SLOTS       6
#define AMOUNT_MOST (UINT64_C(1) << 49)
#define WINDOW_MOST (UINT64_C(1) << 51)
#define LOG_MOST    100 /* entries of an exact log: its state is copied at each call */
#define START_US    UINT64_C(1790000000000000)
#define LEASE_US    UINT64_C(86400000000)
#define STEP_US     UINT64_C(1000000) /* a clock set back by no more stands still */

enum { REASON_BUSY = 1, REASON_RANGE = 2, REASON_TOO_LONG = 5 };
enum { REFUND_NONE, REFUND_PLAIN, REFUND_STRICT };

/* What a limit is made of: as the protocol has it. */
struct recipe {
    char letter;
    uint64_t capacity, window, burst, initial, extra, delta;
};

struct limit {
    bool is_resource;
    struct recipe recipe; /* rates */
    struct subject subject;
    uint64_t capacity, used; /* resources */
    uint64_t refund, charge, most;
    uint64_t period; /* of one unit, us, if that is whole, else 0 */
};

struct hold {
    bool is_held;
    uint64_t serial, at, amounts[LIMITS];
};

struct world {
    uint64_t random, scale; /* of the plugins' time: their units in a microsecond */
    uint64_t n, serial;
    struct limit limits[LIMITS];
    struct hold holds[SLOTS];
    uint64_t clock, now, shift, floor;
    uint64_t wait; /* of the last refusal, or 0 */
};

static uint64_t at_least(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t decided_at(const struct world *world)
{
    return at_least(world->now, world->floor);
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

static uint64_t random_capacity(uint64_t *random)
{
    static const uint64_t usual[] = {1, 2, 3, 10, 100, 90000, 999983, 1000000007};

    if (random_chance(random, 40))
        return usual[random_below(random, sizeof(usual) / sizeof(usual[0]))];
    return random_magnitude(random, random_chance(random, 70) ? 100 : AMOUNT_MOST);
}

static uint64_t random_window(uint64_t *random)
{
    static const uint64_t usual[] = {1, 10, 1000, 999983, 1000000, 60000000, 86400000000};

    if (random_chance(random, 50))
        return usual[random_below(random, sizeof(usual) / sizeof(usual[0]))];
    return random_magnitude(random, random_chance(random, 80) ? 10000000 : WINDOW_MOST / 4);
}

/* A burst that takes too long to fill is refused. */
static uint64_t random_burst(uint64_t *random, const struct recipe *recipe)
{
    uint64_t most = (uint64_t)less((uint64_t)-1 >> 1, AMOUNT_MOST);
    __extension__ unsigned __int128 fit = (unsigned __int128)(WINDOW_MOST - 2) * recipe->capacity;

    if (fit / recipe->window < most)
        most = (uint64_t)(fit / recipe->window);
    return random_chance(random, 50) ? less(recipe->capacity, most)
                                     : random_magnitude(random, most);
}

/* Batches of a bucket: a life in which whole units flow in, so that a plugin can be told of the
 * shrunken burst. Of a log: any. */
static void choose_delta(uint64_t *random, struct recipe *recipe)
{
    uint64_t divisor = common_divisor(recipe->capacity, recipe->window);
    uint64_t units = recipe->capacity / divisor, span = recipe->window / divisor;

    if (!random_chance(random, 30))
        return;
    if (recipe->letter == 's')
        recipe->delta = random_magnitude(random, 2 * recipe->window);
    else if ((recipe->letter == 'g' || (recipe->letter == 't' && recipe->extra == 0)) &&
             recipe->burst > units)
        recipe->delta = span * (1 + random_below(random, (recipe->burst - 1) / units));
}

static void choose_extra(uint64_t *random, struct recipe *recipe)
{
    uint64_t divisor = common_divisor(recipe->capacity, recipe->window);

    if (recipe->letter == 't' && random_chance(random, 40)) /* a step of whole units */
        recipe->extra = recipe->window / divisor * random_magnitude(random, 4);
    else if (recipe->letter == 'l')
        recipe->extra = random_below(random, 2);
    else if (recipe->letter == 'f')
        recipe->extra = random_below(random, 3);
    else if (recipe->letter == 's' && (recipe->capacity > LOG_MOST || random_chance(random, 40)))
        recipe->extra = random_magnitude(random, less(LOG_MOST, recipe->window));
}

static struct recipe random_recipe(uint64_t *random)
{
    struct recipe recipe = {.letter = "tglsf"[random_below(random, 5)],
                            .capacity = random_capacity(random),
                            .window = random_window(random)};

    recipe.burst = recipe.capacity;
    if (recipe.letter == 't' || recipe.letter == 'g')
        recipe.burst = random_burst(random, &recipe);
    choose_extra(random, &recipe);
    choose_delta(random, &recipe);
    recipe.initial = recipe.burst;
    if (random_chance(random, 20) && !(recipe.letter == 'l' && recipe.extra == 1))
        recipe.initial = random_below(random, recipe.burst + 1);
    return recipe;
}

static uint64_t flowing_in(const struct recipe *recipe)
{
    __extension__ unsigned __int128 units = (unsigned __int128)recipe->delta * recipe->capacity;

    return (uint64_t)(units / recipe->window);
}

/* Configures the plugin that decides as the recipe says, or returns false: it is refused. */
static bool make_subject(struct world *world, const struct recipe *recipe, struct subject *ret)
{
    static const char *const names[] = {"token_bucket", "gcra", "leaky_bucket", "sliding_window",
                                        "fixed_window"};
    static const char *const extras[] = {"every", NULL, "mode", "segments", "anchor"};
    const size_t kind = (size_t)(strchr("tglsf", recipe->letter) - "tglsf");
    const uint64_t scale = world->scale, late = kind == 3 ? recipe->delta : 0;
    const uint64_t burst = recipe->burst - (kind < 2 ? flowing_in(recipe) : 0);
    struct weir_reason reason;
    struct setting settings[6] = {{"capacity", recipe->capacity},
                                  {"window", (recipe->window + late) * scale}};
    size_t n = 2;

    if (kind < 2)
        settings[n++] = (struct setting){"burst", burst};
    if (!(kind == 2 && recipe->extra == 1))
        settings[n++] = (struct setting){"initial", less(recipe->initial, burst)};
    if (extras[kind])
        settings[n++] = (struct setting){extras[kind], recipe->extra * (kind == 0 ? scale : 1)};
    return subject_try(ret, names[kind], settings, &reason) == 0;
}

/* With segments the sub-windows of a log are parts of the window, not of what is counted. */
static bool is_comparable(const struct recipe *recipe)
{
    if (recipe->letter == 's')
        return recipe->delta == 0 || recipe->extra == 0;
    if (recipe->letter == 'l') /* a bucket that takes too long to drain */
        return recipe->window < WINDOW_MOST;
    return recipe->letter != 't' || recipe->extra < WINDOW_MOST;
}

/* Chooses what else there is to say of a limit with a subject, and prints it. */
static void finish_rate(struct world *world, struct limit *limit, const struct recipe *recipe)
{
    limit->recipe = *recipe;
    if (limit->subject.ops->refund)
        limit->refund = random_below(&world->random, 3);
    if (limit->subject.ops->charge)
        limit->charge = random_below(&world->random, 2);
    limit->most = limit->subject.footprint.amount_max;
    limit->period = recipe->window % recipe->capacity == 0 ? recipe->window / recipe->capacity : 0;
    printf("%c,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
           ",%" PRIu64,
           recipe->letter, recipe->capacity, recipe->window, recipe->burst, recipe->initial,
           recipe->extra, recipe->delta, limit->refund, limit->charge);
}

static void add_rate(struct world *world, struct limit *limit)
{
    struct recipe recipe;

    do
        recipe = random_recipe(&world->random);
    while (!is_comparable(&recipe) ||
           (recipe.letter == 'l' && recipe.extra == 1 && world->scale != 1) ||
           !make_subject(world, &recipe, &limit->subject));
    limit->subject.wall_offset_ns = 0;
    subject_init(&limit->subject, world->now * world->scale);
    finish_rate(world, limit, &recipe);
}

/* Chooses another recipe of the same shape; often one that is close. */
static struct recipe random_change(struct world *world, const struct recipe *before)
{
    uint64_t *random = &world->random;
    struct recipe recipe = random_recipe(random);

    if (random_chance(random, 50)) {
        recipe = *before;
        recipe.capacity = random_magnitude(random, less(2 * before->capacity, AMOUNT_MOST));
        if (random_chance(random, 50))
            recipe.window = random_magnitude(random, less(2 * before->window, WINDOW_MOST / 4));
        recipe.burst =
            strchr("tg", recipe.letter) ? random_burst(random, &recipe) : recipe.capacity;
        recipe.delta = 0;
        recipe.initial = less(recipe.initial, recipe.burst);
        if (recipe.letter == 'f')
            recipe.extra = random_below(random, 3);
    }
    return recipe;
}

static bool is_of_shape(const struct recipe *recipe, const struct recipe *before)
{
    if (recipe->letter != before->letter)
        return false;
    if (recipe->letter == 's' && recipe->extra == 0 && recipe->capacity > LOG_MOST)
        return false;
    if (recipe->letter == 'l')
        return recipe->extra == before->extra &&
               (recipe->extra == 0 || recipe->initial == recipe->capacity);
    return recipe->letter != 't' || !recipe->extra == !before->extra;
}

/* As limits of a set that is reloaded: the state of one that is the same stays. */
static void carry_over(struct world *world, struct subject *from, struct subject *to)
{
    to->wall_offset_ns = from->wall_offset_ns;
    if (to->footprint.config == from->footprint.config &&
        !memcmp(to->config, from->config, to->footprint.config))
        memcpy(to->state, from->state, to->footprint.state);
    else
        subject_reconfigure(to, from, decided_at(world) * world->scale);
}

static void change_rate(struct world *world, struct limit *limit)
{
    struct subject before = limit->subject;
    struct recipe recipe;

    do
        recipe = random_chance(&world->random, 20) ? limit->recipe
                                                   : random_change(world, &limit->recipe);
    while (!is_of_shape(&recipe, &limit->recipe) || !is_comparable(&recipe) ||
           !make_subject(world, &recipe, &limit->subject));
    carry_over(world, &before, &limit->subject);
    subject_free(&before);
    finish_rate(world, limit, &recipe);
}

static void add_resource(struct world *world, struct limit *limit)
{
    limit->is_resource = true;
    limit->capacity = limit->most = random_magnitude(&world->random, 20);
    printf("r,%" PRIu64, limit->capacity);
}

static void begin_set(struct world *world)
{
    *world = (struct world){.random = world->random,
                            .n = 1 + random_below(&world->random, LIMITS),
                            .scale = random_chance(&world->random, 50) ? 1 : 1000};
    world->clock = world->now = START_US + random_below(&world->random, UINT64_C(1) << 40);
    printf("C %" PRIu64 "\nS ", world->clock);
    for (uint64_t i = 0; i < world->n; i++) {
        if (i > 0)
            putchar('/');
        if (random_chance(&world->random, 20))
            add_resource(world, &world->limits[i]);
        else
            add_rate(world, &world->limits[i]);
    }
    putchar('\n');
}

/* Parts of a unit are counted in ticks of the clock's unit, so only the same unit rounds alike. */
static void operate_change(struct world *world)
{
    if (world->scale != 1)
        return;
    printf("D ");
    for (uint64_t i = 0; i < world->n; i++) {
        struct limit *limit = &world->limits[i];

        if (i > 0)
            putchar('/');
        if (!limit->is_resource)
            change_rate(world, limit);
        else
            add_resource(world, limit);
    }
    putchar('\n');
}

static void end_set(struct world *world)
{
    for (uint64_t i = 0; i < world->n; i++)
        if (!world->limits[i].is_resource)
            subject_free(&world->limits[i].subject);
}

/* Returns us from `at` on until the limit grants the amount; UINT64_MAX: not by time. */
static uint64_t wait_of(struct world *world, struct limit *limit, uint64_t at, uint64_t amount)
{
    const uint64_t scale = world->scale;
    uint64_t ready;

    if (limit->is_resource)
        return limit->used + amount <= limit->capacity ? 0 : UINT64_MAX;
    ready = subject_ready_at(&limit->subject, at * scale, amount);
    return (ready - at * scale + scale - 1) / scale;
}

static void take(struct world *world, uint64_t at, const uint64_t *amounts)
{
    for (uint64_t i = 0; i < world->n; i++) {
        struct limit *limit = &world->limits[i];

        if (limit->is_resource)
            limit->used += amounts[i];
        else if (amounts[i] > 0)
            subject_take(&limit->subject, at * world->scale, amounts[i]);
    }
}

static bool are_zero(const struct world *world, const uint64_t *amounts)
{
    for (uint64_t i = 0; i < world->n; i++)
        if (amounts[i] > 0)
            return false;
    return true;
}

static void print_refusal(int reason, uint64_t limiting, uint64_t wait)
{
    printf("2 %d %d %" PRId64 "\n", reason, (int)limiting - 1,
           wait == UINT64_MAX || wait == 0 ? (int64_t)-1 : (int64_t)wait);
}

/* Prints that a request can never be granted, if so. */
static bool is_impossible(const struct world *world, const uint64_t *amounts)
{
    for (uint64_t i = 0; i < world->n; i++)
        if (amounts[i] > world->limits[i].most) {
            print_refusal(REASON_RANGE, i + 1, 0);
            return true;
        }
    return false;
}

/* Returns us until all limits grant, and what determines it: limits count from 1. */
static uint64_t wait_for(struct world *world, const uint64_t *amounts, uint64_t *ret_limiting)
{
    const uint64_t at = decided_at(world);
    uint64_t latest = 0;

    *ret_limiting = 0;
    for (uint64_t i = 0; i < world->n; i++) {
        uint64_t wait = amounts[i] > 0 ? wait_of(world, &world->limits[i], at, amounts[i]) : 0;

        if (wait > latest) {
            latest = wait;
            *ret_limiting = i + 1;
        }
    }
    return latest == UINT64_MAX ? latest : latest + (at - world->now);
}

/* Decides a request of now, and prints it. Returns whether it was granted. */
static bool decide(struct world *world, const uint64_t *amounts)
{
    uint64_t limiting, wait;

    if (is_impossible(world, amounts))
        return false;
    wait = are_zero(world, amounts) ? 0 : wait_for(world, amounts, &limiting);
    if (wait > 0) {
        world->wait = wait == UINT64_MAX ? 0 : wait;
        print_refusal(REASON_BUSY, limiting, wait);
        return false;
    }
    take(world, world->now, amounts);
    printf("0\n");
    return true;
}

static void choose_amounts(struct world *world, uint64_t *ret)
{
    for (uint64_t i = 0; i < world->n; i++) {
        const uint64_t most = world->limits[i].most;

        ret[i] = 0;
        if (random_chance(&world->random, 80))
            ret[i] = random_chance(&world->random, 30) ? less(1, most)
                                                       : random_magnitude(&world->random, most);
        if (random_chance(&world->random, 2))
            ret[i] = most + 1;
    }
}

static void print_amounts(const struct world *world, const uint64_t *amounts)
{
    for (uint64_t i = 0; i < world->n; i++)
        printf(" %" PRIu64, amounts[i]);
    printf(": ");
}

static void operate_acquire(struct world *world)
{
    const uint64_t slot = random_below(&world->random, SLOTS);
    struct hold *hold = &world->holds[slot];
    uint64_t amounts[LIMITS];

    if (hold->is_held)
        return;
    choose_amounts(world, amounts);
    printf("G %" PRIu64 " %" PRIu64, slot, ++world->serial);
    print_amounts(world, amounts);
    if (!decide(world, amounts))
        return;
    *hold = (struct hold){.is_held = true, .serial = world->serial, .at = world->now};
    memcpy(hold->amounts, amounts, sizeof(amounts));
}

static void operate_take(struct world *world)
{
    uint64_t amounts[LIMITS];

    choose_amounts(world, amounts);
    for (uint64_t i = 0; i < world->n; i++)
        if (world->limits[i].is_resource)
            amounts[i] = 0;
    printf("T");
    print_amounts(world, amounts);
    decide(world, amounts);
}

static void reserve(struct world *world, struct hold *hold, const uint64_t *amounts,
                    uint64_t max_wait)
{
    uint64_t limiting = 0, wait;

    if (is_impossible(world, amounts))
        return;
    wait = wait_for(world, amounts, &limiting);
    if (wait > max_wait) {
        print_refusal(REASON_TOO_LONG, limiting, wait);
        return;
    }
    *hold = (struct hold){.is_held = true, .serial = world->serial, .at = world->now + wait};
    memcpy(hold->amounts, amounts, sizeof(hold->amounts));
    take(world, hold->at, amounts);
    if (wait > 0)
        world->floor = hold->at;
    printf("0 %" PRIu64 "\n", hold->at);
}

static void operate_reserve(struct world *world)
{
    const uint64_t slot = random_below(&world->random, SLOTS);
    const uint64_t max_wait = random_magnitude(&world->random, UINT64_C(1) << 34);
    uint64_t amounts[LIMITS];

    if (world->holds[slot].is_held)
        return;
    choose_amounts(world, amounts);
    for (uint64_t i = 0; i < world->n; i++)
        if (world->limits[i].is_resource)
            amounts[i] = 0;
    if (are_zero(world, amounts))
        return;
    printf("V %" PRIu64 " %" PRIu64 " %" PRIu64, slot, ++world->serial, max_wait);
    print_amounts(world, amounts);
    reserve(world, &world->holds[slot], amounts, max_wait);
}

static void give_back(struct world *world, struct limit *limit, const struct hold *hold,
                      uint64_t amount, uint64_t used, bool undo)
{
    const uint64_t scale = world->scale, at = decided_at(world) * scale;
    struct subject *subject = &limit->subject;

    if (limit->is_resource)
        limit->used -= amount;
    else if (used < amount && limit->refund == REFUND_STRICT)
        subject_refund_strictly(subject, at, amount - used, hold->at * scale);
    else if (used < amount && subject->ops->refund && (undo || limit->refund == REFUND_PLAIN))
        subject_refund(subject, at, amount - used, hold->at * scale);
    else if (used > amount && limit->charge)
        subject_charge(subject, at, used - amount);
}

static void operate_release(struct world *world)
{
    const uint64_t slot = random_below(&world->random, SLOTS);
    struct hold *hold = &world->holds[slot];
    const bool undo = random_chance(&world->random, 20);

    if (!hold->is_held && random_chance(&world->random, 90))
        return;
    printf("E %" PRIu64 " %" PRIu64 " %s", slot, at_least(hold->serial, 1), undo ? "undo" : "end");
    for (uint64_t i = 0; i < world->n; i++) {
        uint64_t amount = hold->amounts[i], used = random_below(&world->random, amount + 1);

        if (random_chance(&world->random, 20))
            used = random_magnitude(&world->random, 2 * amount + 1);
        else if (random_chance(&world->random, 10)) /* beyond the deepest debt */
            used = amount + 2 * less(world->limits[i].most, AMOUNT_MOST) + 1;
        if (undo || world->limits[i].is_resource)
            used = undo ? 0 : amount;
        printf(" %" PRIu64, used);
        if (hold->is_held)
            give_back(world, &world->limits[i], hold, amount, used, undo);
    }
    printf(": %d\n", hold->is_held ? 0 : 3);
    hold->is_held = false;
}

static void operate_return(struct world *world)
{
    const uint64_t slot = random_below(&world->random, SLOTS);
    struct hold *hold = &world->holds[slot];

    if (!hold->is_held)
        return;
    printf("W %" PRIu64 " %" PRIu64, slot, hold->serial);
    for (uint64_t i = 0; i < world->n; i++) {
        uint64_t left = random_below(&world->random, hold->amounts[i] + 1);

        printf(" %" PRIu64, left);
        give_back(world, &world->limits[i], hold, hold->amounts[i] - left, 0, false);
        hold->amounts[i] = left;
    }
    printf(": 0\n");
}

/* Prints us from now on until the limit grants the amount. */
static void print_wait(struct world *world, struct limit *limit, uint64_t amount)
{
    const uint64_t at = decided_at(world);
    uint64_t wait = wait_of(world, limit, at, amount);

    printf(" %" PRId64, wait == UINT64_MAX ? -1 : (int64_t)(wait + (at - world->now)));
}

static void operate_look(struct world *world)
{
    const uint64_t at = decided_at(world);

    printf("L:");
    for (uint64_t i = 0; i < world->n; i++) {
        struct limit *limit = &world->limits[i];
        uint64_t available = limit->capacity > limit->used ? limit->capacity - limit->used : 0;
        uint64_t most = limit->most, at_once;

        if (!limit->is_resource)
            available = subject_available(&limit->subject, at * world->scale);
        at_once = at > world->now ? 0 : available;
        printf(" %" PRIu64, available);
        print_wait(world, limit, 1);
        if (at_once < most) {
            print_wait(world, limit, at_once + 1);
            print_wait(world, limit, most);
        } else {
            printf(" 0 0");
        }
    }
    printf("\n");
}

static void set_clock(struct world *world)
{
    for (uint64_t i = 0; i < world->n; i++)
        world->limits[i].subject.wall_offset_ns =
            ((int64_t)world->clock - (int64_t)world->now) * (int64_t)world->scale;
}

/* What a dead session held is lost: all of it counts as used. */
static void end_session(struct world *world)
{
    for (uint64_t slot = 0; slot < SLOTS; slot++) {
        struct hold *hold = &world->holds[slot];

        for (uint64_t i = 0; hold->is_held && i < world->n; i++)
            give_back(world, &world->limits[i], hold, hold->amounts[i], hold->amounts[i], false);
        hold->is_held = false;
    }
    printf("R\n");
}

/* Mostly to where something happens, or one microsecond before. */
static uint64_t choose_advance(struct world *world)
{
    const uint64_t period = world->limits[random_below(&world->random, world->n)].period;

    if (random_chance(&world->random, 10))
        return 0;
    if (period < UINT64_C(1) << 40 && random_chance(&world->random, 30))
        return period * random_below(&world->random, 4);
    if (world->wait > 0 && world->wait < UINT64_C(1) << 50 && random_chance(&world->random, 60))
        return world->wait - random_below(&world->random, 2);
    return random_magnitude(&world->random,
                            random_chance(&world->random, 90) ? 2000000 : UINT64_C(1) << 37);
}

static void operate_advance(struct world *world)
{
    const uint64_t by = choose_advance(world), shifted = world->clock + world->shift + by;

    if (world->now + by > UINT64_C(1) << 52) /* a set that is granted after years ends there */
        return;
    world->wait = 0;
    world->clock += by;
    if (at_least(shifted, world->now) - world->now >= LEASE_US / 4) {
        world->now = at_least(world->now, shifted);
        printf("C %" PRIu64 "\n", world->clock);
        set_clock(world);
        end_session(world);
        return;
    }
    world->now = at_least(world->now, shifted);
    printf("C %" PRIu64 "\n", world->clock);
    set_clock(world);
}

static void operate_step_back(struct world *world)
{
    const uint64_t by = random_magnitude(&world->random, 4 * STEP_US);

    world->clock -= by;
    if (world->clock + world->shift + STEP_US < world->now)
        world->shift = world->now - world->clock;
    printf("B %" PRIu64 "\n", world->clock);
    set_clock(world);
}

static void operate(struct world *world)
{
    const uint64_t choice = random_below(&world->random, 100);

    if (choice < 35)
        operate_acquire(world);
    else if (choice < 45)
        operate_take(world);
    else if (choice < 60)
        operate_release(world);
    else if (choice < 63)
        operate_return(world);
    else if (choice < 65)
        operate_reserve(world);
    else if (choice < 70)
        operate_look(world);
    else if (choice < 97)
        operate_advance(world);
    else if (choice < 99)
        operate_change(world);
    else
        operate_step_back(world);
}

int main(int argc, char **argv)
{
    const uint64_t seed = random_seed_of(argc, argv), operations = random_operations(20000);
    uint64_t done = 0;

    for (uint64_t number = 0; done < operations; number++) {
        struct world world = {.random = random_case(seed, number)};
        const uint64_t length = 1 + random_below(&world.random, 300);

        begin_set(&world);
        for (uint64_t i = 0; i < length; i++)
            operate(&world);
        end_set(&world);
        done += length;
    }
    return 0;
}
