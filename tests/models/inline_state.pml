/* SPDX-License-Identifier: MIT */
/*
 * A model of sets with inline state while no thread waits (core/set/inline_state.h), and of how
 * they are inflated and deflated (core/state/version.h). There is one resource. Each worker asks for
 * it with a record of its own, waits on the record's word as on a futex, may give up, and gives
 * back. version.pml models links and torn copies: here a block is written and copied at once, and
 * the wait queue is a number in it. Atomic beyond that is one load, store or compare-and-swap of
 * the code, and the private steps that follow it.
 *
 *   - The state word is {slot, version} of a block, or {used}, or {used, bits} if DETECTABLE. The
 *     last two come back while other threads are late.
 *   - `spare` (reserve_block in the code) is read after the commit and before the second look at
 *     the word. Deflation changes it before the word. A thread that finds the set inflated, without
 *     waiters or joining threads, deflates it or leaves that to others.
 *   - A publisher completes its own version from its private copy: its own record and its own block
 *     by plain stores. A version over an inline word is completed as by every helper.
 *   - DETECTABLE (core/set/detectable_cas.h): each thread announces its change of the word, and
 *     toggles its bit with it. One worker may die between any two steps. Rescuers do what
 *     core/peer/thread_recovery.c does: they inflate the set, and complete the announced changes
 *     that have happened by the bits in the block. With REUSE the first thread that is done uses
 *     the block, record and announcement slot of the dead one while others are late.
 *   - MOVES (core/set/set_moved.c): at any time the set gets another definition. Its last version
 *     says that it has moved. A successor with another head takes over what is used, waits and is
 *     toggled, by its first version, which any thread commits that finds it without a state. A set
 *     without waiters is moved from its word; if DETECTABLE, it is inflated before.
 *
 * Checked: never more holders than CAPACITY; no thread writes a block that belongs to another one,
 * to the set or to `spare`; when nothing moves any more, no thread sleeps, nothing is held or
 * waits, every record is free, and every block has one owner. Defined from outside: DETECTABLE,
 * WORKERS, RESCUERS (0: no deaths), REUSE, CAPACITY, MOVES, START, FAULT (0: none), each of which
 * must be found; inline_state.plan says in which search:
 *    1 `spare` read before the commit     2 `spare` stored, not swapped
 *    3 superseded while incomplete        4 the word deflated before `spare` is changed
 *    5 help without a second look         6 `spare` taken by a publisher without a second look
 *    7 a place in the wait queue stored, not swapped     8 deflated with waiters
 *    9 a change not announced            10 completed from the block, which may have a new owner
 *   11 a recovered record is freed by a plain store
 *   12 a waiter sleeps without comparing 13 no wake after a hand-over
 *   14 completed without a second look   15 given back for another thread at the word
 *   16 deflated after it has moved       17 the successor has none of the bits
 *   18 announced changes are completed by the bits of a set that has moved
 */
#ifndef DETECTABLE
#define DETECTABLE 0
#endif
#ifndef WORKERS
#define WORKERS 3
#endif
#ifndef RESCUERS
#define RESCUERS 0
#endif
#ifndef REUSE
#define REUSE 1
#endif
#ifndef CAPACITY
#define CAPACITY 1
#endif
#ifndef MOVES
#define MOVES 0
#endif
#ifndef FAULT
#define FAULT 0
#endif
/* The set is inline; or inflated without waiters; or either; or worker 0 has died: it had changed
 * the word, but not its record; or the last worker holds already. */
#define INLINE 0
#define INFLATED  1
#define EITHER 2
#define DEAD   3
#define FULL   4
#ifndef START
#define START INLINE
#endif
#define THREADS (WORKERS + RESCUERS + MOVES)
#define BLOCKS  (THREADS + 1 + MOVES)
#define UNOPENED (THREADS + 1) /* the first block of the successor */
#define NONE   255

/* Words of records: sequence * 4 + state. */
#define FREE       0
#define WAITING    1
#define HELD       2
#define CANCELED   3
#define COMPLETED  4 /* of operations, not of records */
#define MOVED      5
#define STATE(w)   ((w) & 3)
#define NEXT(w, s) ((((w) >> 2) + 1) * 4 + (s))

/* A wait queue: records + 1, the head in the lowest two bits. */
#define HEAD(q) (((q) & 3) - 1)

typedef block {
    byte used, line;                  /* content */
    bool expected;                    /* a thread is about to join the wait queue */
    bool moved;                       /* the last one: the successor has the state */
    byte bits;
    byte n, thread, slot, version;     /* deferred writes; owner; the replaced block, or slot NONE: a word */
    byte place[2], before[2], after[2];
    byte done
};

block blocks[BLOCKS];
byte own_slot[THREADS], own_version[THREADS];

typedef set_head {
    byte slot, version, used, bits;   /* the set's word; slot NONE: inline */
    byte reserve, reserve_version     /* a block */
};
set_head heads[1 + MOVES];            /* the set, and its successor; h: that which is worked on */
#define set_slot      heads[h].slot
#define set_version   heads[h].version
#define set_used      heads[h].used
#define set_bits      heads[h].bits
#define spare_slot    heads[h].reserve
#define spare_version heads[h].reserve_version
#define SUCCESSOR     heads[MOVES]

byte memory[WORKERS];                             /* the words of the records */
bool asleep[WORKERS], inside[WORKERS];
byte announced_record[THREADS], announced_word[THREADS]; /* record + 1; by announcement_slot */
bool announced_bit[THREADS];
bool dead[THREADS];
byte works_on[THREADS]; /* the head that a thread reads */
byte victim = NONE;
bool recovered;

#define SAME (set_slot == s && set_version == v && set_used == u && set_bits == c)

inline load_word()
{
    d_step { s = set_slot; v = set_version; u = set_used; c = set_bits }
}

/* Completes the version named by the word that was read. */
inline help()
{
    if
    :: blocks[s].done != v ->
        d_step {
            dn = blocks[s].n; da = blocks[s].thread; ds = blocks[s].slot; dv = blocks[s].version;
            dp[0] = blocks[s].place[0]; db[0] = blocks[s].before[0]; dw[0] = blocks[s].after[0];
            dp[1] = blocks[s].place[1]; db[1] = blocks[s].before[1]; dw[1] = blocks[s].after[1]
        };
        if
        :: d_step {
                ds == NONE ->
                if
                :: FAULT == 1 && da == me -> ds = es; dv = ev
                :: else -> ds = spare_slot; dv = spare_version
                fi
            }
        :: d_step { ds != NONE -> skip }
        fi;
        if
        :: d_step { SAME || FAULT == 5 -> k = 0 };
            do
            :: d_step {
                    k < dn ->
                    if :: memory[dp[k]] == db[k] -> memory[dp[k]] = dw[k] :: else fi;
                    k++
                }
            :: d_step {
                    k == dn ->
                    if
                    :: own_slot[da] == s && own_version[da] == v - 1 ->
                        own_slot[da] = ds; own_version[da] = dv
                    :: else
                    fi
                };
                break
            od;
            atomic { blocks[s].done = v; clear_debt() }
        :: d_step { !(SAME || FAULT == 5) -> clear_debt() }
        fi
    :: d_step { blocks[s].done == v -> skip }
    fi
}

inline clear_debt()
{
    dn = 0; da = 0; ds = 0; dv = 0; dp[0] = 0; db[0] = 0; dw[0] = 0; dp[1] = 0; db[1] = 0;
    dw[1] = 0; k = 0
}

/* The publisher completes its own version, which is named by s and v and replaced ds and dv, from
 * its private copy: its block may have a new owner already. */
inline complete()
{
    if
    :: ds == NONE && FAULT != 6 -> help()
    :: d_step { ds != NONE || FAULT == 6 -> k = 0 };
        do
        :: d_step {
                k < dn ->
                if
                :: FAULT == 10 ->
                    dp[k] = blocks[s].place[k]; db[k] = blocks[s].before[k]; dw[k] = blocks[s].after[k]
                :: else
                fi;
                if
                :: memory[dp[k]] == db[k] || (k == 0 && plain) -> memory[dp[k]] = dw[k]
                :: else
                fi;
                k++
            }
        :: d_step {
                k == dn ->
                if :: ds == NONE -> ds = spare_slot; dv = spare_version :: else fi;
                own_slot[me] = ds; own_version[me] = dv
            };
            break
        od;
        atomic { blocks[s].done = v; clear_debt() }
    fi
}

/* Completes the announced changes, of record r or of all, that have happened by the version that
 * was read; k is the announcement slot, and less than THREADS afterwards if the set has changed. */
inline complete_announced()
{
    do
    :: k < THREADS ->
        d_step {
            ar = announced_record[k]; aw = announced_word[k]; ab = announced_bit[k];
            if :: kind == FREE && ar != r + 1 -> ar = 0 :: else fi
        };
        if
        :: d_step { !(SAME || FAULT == 14) -> skip }; break
        :: d_step {
                (SAME || FAULT == 14) ->
                if
                :: ar && ab == (blocks[s].bits >> k & 1) -> skip
                :: else -> ar = 0
                fi
            };
            d_step {
                if :: ar && memory[ar - 1] >> 2 == (aw >> 2) - 1 -> memory[ar - 1] = aw :: else fi;
                k++
            }
        fi
    :: k == THREADS -> break
    od;
    atomic { ar = 0; aw = 0; ab = 0 }
}

inline deflate()
{
    do
    ::  d_step { ds = spare_slot; dv = spare_version };
        if
        :: d_step { !SAME -> go = 5 }
        :: d_step { SAME -> go = 0 }
        fi;
        if
        :: go == 5 -> break
        :: d_step {
                go == 0 ->
                if
                :: FAULT == 4 -> go = 2
                :: (spare_slot == ds && spare_version == dv) || FAULT == 2 ->
                    spare_slot = s; spare_version = v; go = 2
                :: ds == s && dv == v -> go = 2
                :: else
                fi
            };
            if
            :: d_step {
                    go == 2 ->
                    if
                    :: SAME ->
                        set_slot = NONE; set_used = blocks[s].used; set_version = 0; set_bits = blocks[s].bits;
                    :: else -> go = 5
                    fi
                };
                if
                :: FAULT == 4 && go == 2 -> d_step { spare_slot = s; spare_version = v }
                :: else
                fi;
                break
            :: go == 0
            fi
        fi
    od;
    atomic { ds = 0; dv = 0; go = 0 }
}

/*
 * Writes the next version into the own block: one or two deferred writes, the hand-over included.
 */
inline version_write_block(p, w)
{
    o = own_slot[me];
    k = 0;
    do
    :: k < THREADS -> assert(k == me || own_slot[k] != o); k++
    :: else -> break
    od;
    k = 0;
    do
    :: k <= MOVES ->
        assert(heads[k].slot != o && (heads[k].slot != NONE || heads[k].reserve != o)); k++
    :: else -> break
    od;
    k = 0;
    blocks[o].n = 0; blocks[o].expected = false; blocks[o].moved = (kind == MOVED);
    blocks[o].place[0] = 0; blocks[o].before[0] = 0; blocks[o].after[0] = 0;
    blocks[o].place[1] = 0; blocks[o].before[1] = 0; blocks[o].after[1] = 0;
    if
    :: p != NONE ->
        blocks[o].place[0] = p; blocks[o].before[0] = memory[p]; blocks[o].after[0] = w; blocks[o].n = 1
    :: else
    fi;
    if
    :: line && used < CAPACITY ->
        g = HEAD(line);
        blocks[o].place[blocks[o].n] = g;
        blocks[o].before[blocks[o].n] = memory[g];
        blocks[o].after[blocks[o].n] = NEXT(memory[g], HELD);
        blocks[o].n++;
        used++;
        line = line >> 2
    :: else
    fi;
    blocks[o].used = used; blocks[o].line = line; blocks[o].thread = me;
    blocks[o].slot = s; blocks[o].version = v;
    if :: s == NONE -> blocks[o].bits = c :: else -> blocks[o].bits = blocks[s].bits fi;
    used = 0; line = 0
}

/* What the word does not suffice for. */
#define FOR_OTHERS (DETECTABLE && ((kind == FREE && !live && FAULT != 15) || kind == COMPLETED))

/* go: 0 read again, 1 nothing to do, 2 publish, 3 change the word inline. */
inline decide_inline()
{
    if
    :: kind == HELD && u < CAPACITY -> go = 3; t = NEXT(memory[r], HELD)
    :: (kind == HELD && u >= CAPACITY) || FOR_OTHERS || kind == MOVED ->
        used = u; go = 2;
        version_write_block(NONE, 0);
        blocks[o].expected = (kind != MOVED || DETECTABLE);
        blocks[o].moved = (kind == MOVED && !DETECTABLE);
        es = spare_slot; ev = spare_version
    :: kind == FREE && !FOR_OTHERS ->
        if :: DETECTABLE && memory[r] != x -> go = 1 :: else -> go = 3; t = NEXT(x, FREE) fi
    :: kind == CANCELED -> assert(memory[r] != x); go = 1
    :: kind == NONE -> go = 1
    fi
}

inline decide_inflated()
{
    used = blocks[s].used; line = blocks[s].line;
    go = 2; plain = 0;
    if
    :: kind == HELD && !line && used < CAPACITY ->
        used++; plain = 1; version_write_block(r, NEXT(memory[r], HELD))
    :: kind == HELD && (line || used >= CAPACITY) ->
        if
        :: !line -> line = r + 1
        :: line && line < 4 -> line = line | (r + 1) << 2
        :: else -> line = line | (r + 1) << 4
        fi;
        plain = (FAULT == 7);
        version_write_block(r, NEXT(memory[r], WAITING))
    :: kind == FREE && DETECTABLE && memory[r] != x -> go = 1
    :: kind == FREE && (!DETECTABLE || memory[r] == x) ->
        used--;
        if
        :: DETECTABLE -> plain = (live || FAULT == 11); version_write_block(r, NEXT(x, FREE))
        :: else -> version_write_block(NONE, 0)
        fi
    :: kind == CANCELED && memory[r] != x -> go = 1
    :: kind == CANCELED && memory[r] == x ->
        if
        :: (line & 3) == r + 1 -> line = line >> 2
        :: (line >> 2 & 3) == r + 1 -> line = (line & 3) | (line >> 4) << 2
        :: else -> assert((line >> 4) == r + 1); line = line & 15
        fi;
        version_write_block(r, NEXT(memory[r], CANCELED))
    :: kind == NONE && line && used < CAPACITY -> version_write_block(NONE, 0)
    :: kind == NONE && !(line && used < CAPACITY) -> go = 1
    :: kind == COMPLETED -> go = (n == THREADS -> 1 : 0)
    :: kind == MOVED -> version_write_block(NONE, 0)
    fi;
    used = 0; line = 0
}

/* The first version of the successor has the state of the last one of the set. */
inline open_successor()
{
    go = 2; plain = 0;
    k = heads[0].slot;
    used = blocks[k].used; line = blocks[k].line;
    version_write_block(NONE, 0);
    blocks[o].moved = false;
    blocks[o].bits = (FAULT == 17 -> 0 : blocks[heads[0].slot].bits);
    used = 0; line = 0
}

#define IS_UNOPENED (MOVES && h == MOVES && s == UNOPENED && v == 1)
#define HAS_MOVED   (MOVES && s != NONE && blocks[s].moved)

/* One operation of thread `me` on record `r`: `kind` is what the record is to become; FREE: a
 * release of what it held by its word x; HELD: an acquire; NONE: grant waiters. `live`: on its own
 * record. */
inline operation()
{
    if /* a plain state: first the record, so that it is done once */
    :: kind == FREE && !DETECTABLE -> memory[r] = NEXT(x, FREE)
    :: else
    fi;
    do
    ::
#if MOVES && RESCUERS
        works_on[me] = h;
#endif
        load_word();
        if
        :: s == NONE ->
            d_step { decide_inline() };
        :: s != NONE && (blocks[s].done == v || FAULT == 3)
        :: s != NONE && !(blocks[s].done == v || FAULT == 3) -> help()
        fi;
        if
        :: s != NONE && FOR_OTHERS && !IS_UNOPENED && (!HAS_MOVED || FAULT == 18) ->
            if :: kind == COMPLETED -> k = n :: else -> k = 0 fi;
            complete_announced();
            d_step { if :: kind == COMPLETED -> n = k :: else fi; k = 0 }
        :: else
        fi;
        if
        :: d_step {
                s != NONE ->
                if
                :: SAME || (kind == COMPLETED && n == THREADS) ->
                    if
                    :: IS_UNOPENED -> open_successor()
                    :: HAS_MOVED && FAULT != 16 -> go = (kind == MOVED -> 1 : 6)
                    :: HAS_MOVED && FAULT == 16 && blocks[s].line -> go = (kind == MOVED -> 1 : 6)
                    :: !IS_UNOPENED && (!HAS_MOVED || (FAULT == 16 && !blocks[s].line)) &&
                            ((blocks[s].line == 0 && !blocks[s].expected) || FAULT == 8) && !FOR_OTHERS && kind != MOVED -> go = 4
                    :: else -> decide_inflated()
                    fi
                :: else -> go = 0
                fi
            }
        :: s == NONE
        fi;
        if
        :: go == 4 -> deflate()
        :: d_step { go == 4 -> go = 0; if :: SAME -> decide_inflated() :: else fi }
        :: d_step { go == 6 -> go = 0; h = MOVES }
        :: go != 4 && go != 6
        fi;
        if
        :: go == 1 -> break
        :: go == 0
        :: go == 3 ->
            if
            :: DETECTABLE -> d_step {
                    if
                    :: FAULT != 9 ->
                        announced_record[me] = r + 1; announced_word[me] = t;
                        announced_bit[me] = 1 - (c >> me & 1)
                    :: else
                    fi
                }
            :: !DETECTABLE
            fi;
            d_step {
                if
                :: SAME ->
                    if :: kind == HELD -> set_used = u + 1 :: else -> set_used = u - 1 fi;
                    if :: DETECTABLE -> set_bits = c ^ (1 << me) :: else fi
                :: else -> go = 0
                fi
            };
            if
            :: d_step {
                    go == 3 ->
                    if
                    :: kind == HELD || DETECTABLE -> memory[r] = t
                    :: else
                    fi
                };
                break
            :: go == 0
            fi
        :: d_step {
                go == 2 ->
                if
                :: SAME ->
                    ds = s; dv = v; inflated = (s == NONE || IS_UNOPENED);
                    s = o; v = own_version[me] + 1; u = 0; c = 0;
                    set_slot = s; set_version = v; set_used = 0; set_bits = 0;
                    dn = blocks[s].n;
                    dp[0] = blocks[s].place[0]; db[0] = blocks[s].before[0]; dw[0] = blocks[s].after[0];
                    dp[1] = blocks[s].place[1]; db[1] = blocks[s].before[1]; dw[1] = blocks[s].after[1]
                :: else -> go = 0; g = NONE
                fi
            };
            if
            :: go == 2 ->
                complete();
                if
                :: inflated -> inflated = false
                :: !inflated ->
                    if :: g != NONE && FAULT != 13 -> asleep[g] = false :: else fi;
                    break
                fi
            :: go == 0
            fi
        fi
    od;
    atomic { go = 0; s = 0; v = 0; u = 0; c = 0; o = 0; g = NONE; t = 0; plain = 0; es = 0; ev = 0 }
}

#define LOCALS byte h, s, v, u, c, o, g = NONE, t, go, k, n, x, used, line, plain, es, ev; \
    byte dn, da, ds, dv; byte dp[2]; byte db[2]; byte dw[2]; byte ar, aw; bool ab

/* Asks, waits, gives back, until the record is free. */
inline live_once()
{
    if
    :: STATE(memory[r]) == FREE -> kind = HELD
    :: else -> kind = NONE
    fi;
    do
    ::  if :: kind != NONE -> operation() :: else fi;
        x = memory[r];
        if
        :: STATE(x) == HELD ->
            d_step {
                inside[r] = true;
                k = 0; n = 0;
                do :: k < WORKERS -> n = n + inside[k]; k++ :: else -> break od;
                assert(n <= CAPACITY);
                k = 0; n = 0
            };
            inside[r] = false;
            kind = FREE
        :: STATE(x) == WAITING ->
            if
            :: r == 1 -> kind = CANCELED /* a timeout, for one of them, or not */
            :: atomic { memory[r] == x || FAULT == 12 -> asleep[r] = true }; !asleep[r]; kind = NONE
            :: memory[r] != x -> kind = NONE
            fi
        :: STATE(x) == CANCELED -> memory[r] = NEXT(x, FREE); break
        :: STATE(x) == FREE -> break
        fi
    od;
    x = 0
}

#if RESCUERS > 0
#define MAY_DIE provided (!dead[me])
#else
#define MAY_DIE /* then the search can be reduced */
#endif

proctype worker(byte me) MAY_DIE
{
    LOCALS;
    byte r = me, kind;
    bool live = true, inflated;

    live_once()
}

#if RESCUERS > 0 && START != DEAD
active proctype killer()
{
    if :: victim = 0 :: victim = 1 :: skip fi;
    if :: victim != NONE -> dead[victim] = true :: else fi
}
#endif

#if RESCUERS > 0
proctype rescuer(byte me)
{
    LOCALS;
    byte r, kind;
    bool live = false, inflated;

    victim != NONE && dead[victim];
    r = victim;
    h = works_on[victim];
    do
    ::  load_word();
        if
        :: s != NONE -> help()
        :: else
        fi;
        if :: SAME -> break :: else fi
    od;
    kind = COMPLETED;
    do
    ::  operation();
        if :: kind == NONE -> break :: else -> n = 0 fi;
        do
        ::  x = memory[r];
            if
            :: recovered || STATE(x) == FREE -> kind = NONE; break
            :: !recovered && STATE(x) == HELD -> inside[r] = false; kind = FREE; break
            :: !recovered && STATE(x) == WAITING -> kind = CANCELED; break
            :: !recovered && STATE(x) == CANCELED ->
                d_step { if :: memory[r] == x -> memory[r] = NEXT(x, FREE) :: else fi }
            fi
        od
    od;
    atomic { k = 0; do :: k < WORKERS -> asleep[k] = false; k++ :: else -> break od; k = 0 };
    d_step { x = 0; if :: !recovered -> recovered = true; me = victim; live = true :: else fi };
#if REUSE
    if :: live -> live_once() :: else fi
#endif
}
#endif

#if MOVES
/* The definition changes at any time. */
proctype mover(byte me)
{
    LOCALS;
    byte r, kind = MOVED;
    bool live = false, inflated;

    operation();
    kind = NONE;
    operation()
}
#endif

init {
    byte i, h;

    d_step {
        do
        :: i < THREADS -> own_slot[i] = i; i++
        :: else -> break
        od;
        set_slot = NONE; spare_slot = THREADS; i = 0;
#if MOVES
        SUCCESSOR.slot = UNOPENED; SUCCESSOR.version = 1; SUCCESSOR.reserve = NONE;
        blocks[UNOPENED].done = 1;
#endif
    };
#if START == INFLATED || START == EITHER
    if
    :: set_slot = THREADS; set_version = 1; blocks[THREADS].done = 1; spare_slot = 0
#if START == EITHER
    :: skip
#endif
    fi;
#elif START == FULL
    memory[WORKERS - 1] = NEXT(FREE, HELD);
    set_used = 1;
#elif START == DEAD
    victim = 0; dead[0] = true; set_used = 1; set_bits = 1;
    announced_record[0] = 1; announced_word[0] = NEXT(FREE, HELD); announced_bit[0] = 1;
#endif
    atomic {
        do
        :: i < WORKERS -> if :: !dead[i] -> run worker(i) :: else fi; i++
        :: else -> break
        od;
#if RESCUERS > 0
        do :: i < THREADS - MOVES -> run rescuer(i); i++ :: else -> break od;
#endif
#if MOVES
        run mover(THREADS - 1);
#endif
        i = 0
    };
    timeout;
    /* Nothing moves any more. */
    d_step {
        h = MOVES;
        if
        :: set_slot == NONE -> assert(!set_used)
        :: else -> assert(!blocks[set_slot].used && !blocks[set_slot].line && !blocks[set_slot].moved)
        fi;
        assert(!MOVES || (set_slot != UNOPENED || set_version > 1) && blocks[heads[0].slot].moved);
        do
        :: i < WORKERS -> assert(STATE(memory[i]) == FREE); i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < THREADS ->
            assert(own_slot[i] != (set_slot == NONE -> spare_slot : set_slot));
            assert(i == 0 || own_slot[i] != own_slot[0]);
            assert(i < 2 || own_slot[i] != own_slot[1]);
            assert(i < 3 || own_slot[i] != own_slot[2]);
            i++
        :: else -> break
        od
    }
}
