/* SPDX-License-Identifier: MIT */
/* Live sets: when all are in use, one that can go is looked for. */
#include "keyed/key_set_internal.h"

#include "base/mutant.h"
#include <errno.h>

/* The best of those looked at. */
struct candidate {
    struct live *live;
    struct key_entry entry;
    uint64_t instant;
};

static void consider(struct candidate *best, const struct keyed *keyed, struct live *live,
                     const struct key_entry *entry, uint64_t instant)
{
    if (!best->live || (keyed->eviction == KEY_EVICT_OLDEST && instant < best->instant))
        *best = (struct candidate){live, *entry, instant};
}

/* Whether it is in nobody's hands from now on, without anybody's loss; else it may be a candidate. */
static bool frees(const struct wish *wish, struct live *live, struct candidate *best)
{
    struct keyed *keyed = wish->keyed;
    struct key_entry entry;
    struct operation op;
    uint64_t instant;
    bool abandoned;

    operation_read(&op, wish->actor, &live->set);
    if (set_is_broken(&live->set))
        return false;
    abandoned = live_is_abandoned(&op); /* then he has done to the key's word what he has */
    live_help(keyed, &op);
    if (!live_is_named(keyed, &op, &entry))
        return phase_of(&op) == LIVE_IDLE ||
               (phase_of(&op) == LIVE_LENDING && abandoned && live_end_loan(&op));
    if (phase_of(&op) == LIVE_IDLE && live_end_name(keyed, &op, &entry))
        return true;
    if (is_word(keyed, &op) && is_quiet(&op) &&
        !MUTANT(611)) /* whoever left last did not come to it */
        return live_end_loan(&op) && live_end_name(keyed, &op, &entry);
    switch (live_use_of(&op, &instant)) {
    case KEY_AS_NEW:
        return (MUTANT(609) || live_end_loan(&op)) &&
               live_forget(&entry, &keyed->common->forgotten);
    case KEY_LIVE:
        consider(best, keyed, live, &entry, instant);
        return false;
    default:
        return false;
    }
}

/* Somebody else was faster, with whom there is room as before. */
static int taken(void)
{
    return MUTANT(695) ? -ENOBUFS : -EINPROGRESS;
}

int live_sweep(struct wish *wish)
{
    struct keyed *keyed = wish->keyed;
    uint32_t all = lives_n(keyed), n = all < SWEEP_MAX ? all : SWEEP_MAX;
    struct candidate best = {0};
    int r;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t hand = atomic_fetch_add_explicit(&keyed->hand, 1, memory_order_relaxed);
        struct live *live = live_numbered(keyed, hand % all, NULL);

        if (live && frees(wish, live, &best) && (r = live_lend(wish, live)) != 0)
            return r < 0 ? r : 0;
    }
    if (!best.live || keyed->eviction == KEY_EVICT_NONE)
        return -ENOBUFS;
    if (!live_let_go(wish->actor, keyed, best.entry.word, KEY_LIVE) ||
        !live_forget(&best.entry, &keyed->common->evicted))
        return taken();
    r = live_lend(wish, best.live);
    return r == 1 ? 0 : r < 0 ? r : taken();
}
