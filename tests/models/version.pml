/* SPDX-License-Identifier: MIT */
/*
 * A model of the version engine (core/state/version.h) with the wait queue above it. There is one
 * resource of capacity 1. Each worker asks for it once with a record of its own, waits on the
 * record's word as on a futex, may give up, and gives back. One of them may die between any two
 * steps; then rescuers do what core/peer/thread_recovery.c does. Atomic here is one load or store
 * of a word of the code, or a group of them in an order that no other process can tell:
 *
 *   - a block is written in two parts and read in two parts, so a reader may see one of each;
 *   - each deferred write {place, old, new} is one compare-and-swap, the exchange of blocks one
 *     more, the store of `done` (completed in the code) one more: a late helper may set it back;
 *   - words and links carry sequence numbers; the head's word also changes from waiting to waiting.
 *
 * Checked: never two holders; when nothing moves any more, no thread sleeps, nothing is held or
 * waits, every record is free, and every block has one owner. Defined from outside: WORKERS,
 * RESCUERS (0: no deaths), FAULT (0: none), each of which must be found:
 *   1 commit without help   2 deferred writes by plain store    3 help without a second look
 *   4 `done` before the deferred writes   5 wakes not sent again by the rescuer
 *
 * PRIVATE: there are no deaths, and there are short versions, which have no deferred writes and are
 * complete from the start: without waiters a grant or a release may be one. Its owner alone writes
 * the record's word then: HELD after the grant, FREE before the release. Its faults:
 *   6 a block written in vain as a short version still says complete when it is written again
 *   7 the publisher of a short version keeps its block
 */
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef RESCUERS
#define RESCUERS 1
#endif
#ifndef PRIVATE
#define PRIVATE 0
#endif
#ifndef FAULT
#define FAULT 0
#endif
#define ACTORS (WORKERS + RESCUERS)
#define BLOCKS  (ACTORS + 1)
#define NONE   255

/* Words: sequence * 4 + state. Links: sequence * 8 + record + 1. */
#define FREE        0
#define WAITING     1
#define HELD        2
#define CANCELED    3
#define STATE(w)    ((w) & 3)
#define NEXT(w, s)  ((((w) >> 2) + 1) * 4 + (s))
#define TARGET(l)   ((l) & 7)
#define LINK(l, t)  ((((l) >> 3) + 1) * 8 + (t))
#define WORD(r)     (r)
#define FORTH(r)    (WORKERS + (r))
#define BACK(r)     (2 * WORKERS + (r))

typedef block {
    byte used, head, tail, length; /* content; head and tail: record + 1, 0: none */
    byte n, thread, slot, version;  /* deferred writes; owner; the replaced block */
    byte place[3], before[3], after[3];
    byte done
};

block blocks[BLOCKS];
byte own_slot[ACTORS], own_version[ACTORS];
byte set_slot, set_version;       /* the set's word */
byte memory[3 * WORKERS];         /* of the records: words, links forth, links back */
bool asleep[WORKERS], inside[WORKERS];
bool dead[ACTORS];
byte victim = NONE;

/* Completes version v of block s. */
inline help(s, v)
{
    if
    :: blocks[s].done != v ->
        d_step {
            dn = blocks[s].n; da = blocks[s].thread; ds = blocks[s].slot; dv = blocks[s].version;
            dp[0] = blocks[s].place[0]; db[0] = blocks[s].before[0]; dw[0] = blocks[s].after[0]
        };
        d_step {
            dp[1] = blocks[s].place[1]; db[1] = blocks[s].before[1]; dw[1] = blocks[s].after[1];
            dp[2] = blocks[s].place[2]; db[2] = blocks[s].before[2]; dw[2] = blocks[s].after[2]
        };
        if
        :: (set_slot == s && set_version == v) || FAULT == 3 ->
            if :: FAULT == 4 -> blocks[s].done = v :: else fi;
            k = 0;
            do
            :: k < dn ->
                d_step {
                    if
                    :: memory[dp[k]] == db[k] || FAULT == 2 -> memory[dp[k]] = dw[k]
                    :: else
                    fi;
                    k++
                }
            :: else -> break
            od;
            k = 0;
            d_step {
                if
                :: own_slot[da] == s && own_version[da] == v - 1 ->
                    own_slot[da] = ds; own_version[da] = dv
                :: else
                fi
            };
            blocks[s].done = v
        :: else
        fi;
        d_step { dn = 0; da = 0; ds = 0; dv = 0; k = 0; dp[0] = 0; db[0] = 0; dw[0] = 0;
            dp[1] = 0; db[1] = 0; dw[1] = 0; dp[2] = 0; db[2] = 0; dw[2] = 0 }
    :: else
    fi
}

inline add_write(p, b, w)
{
    ep[n] = p; eb[n] = b; ew[n] = w; n++
}

/* The head is granted if it can be, else called: it keeps its own time. */
inline serve()
{
    if
    :: head && !used ->
        g = head - 1; used = 1;
        add_write(WORD(g), memory[WORD(g)], NEXT(memory[WORD(g)], HELD));
        head = TARGET(memory[FORTH(g)]);
        if :: !head -> tail = 0 :: else fi;
        length--
    :: head && used && kind == CANCELED ->
        g = head - 1;
        add_write(WORD(g), memory[WORD(g)], NEXT(memory[WORD(g)], WAITING))
    :: else
    fi
}

/* kind: what the record is to become; FREE: a release; HELD: enter; NONE: serve. */
inline decide()
{
    n = 0; g = NONE; stop = 0; plain = 0;
    if
#if PRIVATE
    :: kind == HELD && !length && !used -> used = 1; plain = 1
    :: kind == FREE && !length -> used = 0; plain = 1
    :: kind == FREE -> used = 0; serve()
#endif
    :: kind == HELD && !length && !used ->
        used = 1; add_write(WORD(r), memory[WORD(r)], NEXT(memory[WORD(r)], HELD))
    :: kind == HELD && (length || used) ->
        memory[FORTH(r)] = LINK(memory[FORTH(r)], 0);
        memory[BACK(r)] = LINK(memory[BACK(r)], tail);
        add_write(WORD(r), memory[WORD(r)], NEXT(memory[WORD(r)], WAITING));
        if
        :: tail -> add_write(FORTH(tail - 1), memory[FORTH(tail - 1)], LINK(memory[FORTH(tail - 1)], r + 1))
        :: else -> head = r + 1
        fi;
        tail = r + 1; length++
    :: kind == FREE && !PRIVATE ->
        if
        :: memory[WORD(r)] != x -> stop = 1
        :: else -> used = 0; add_write(WORD(r), x, NEXT(x, FREE)); serve()
        fi
    :: kind == CANCELED ->
        if
        :: STATE(memory[WORD(r)]) != WAITING -> stop = 1
        :: else ->
            add_write(WORD(r), memory[WORD(r)], NEXT(memory[WORD(r)], CANCELED));
            t = TARGET(memory[FORTH(r)]); b = TARGET(memory[BACK(r)]);
            length--;
            if
            :: head == r + 1 -> head = t; if :: !t -> tail = 0 :: else fi; serve()
            :: else ->
                add_write(FORTH(b - 1), memory[FORTH(b - 1)], LINK(memory[FORTH(b - 1)], t));
                if
                :: t -> add_write(BACK(t - 1), memory[BACK(t - 1)], LINK(memory[BACK(t - 1)], b))
                :: else -> tail = b
                fi
            fi;
            t = 0; b = 0
        fi
    :: kind == NONE -> serve(); stop = (n == 0)
    fi
}

/* One operation of thread `me` on record `r`: read, help, decide, write, swap, help, wake. */
inline operation()
{
    do
    ::  d_step { s = set_slot; v = set_version };
        d_step { d = blocks[s].done; used = blocks[s].used; head = blocks[s].head };
        d_step { tail = blocks[s].tail; length = blocks[s].length };
        if
        :: set_slot == s && set_version == v ->
            if :: d != v && FAULT != 1 -> help(s, v) :: else fi;
            /* What is read of records now counts only if the word is still the same. */
            d_step {
                if
                :: (set_slot == s && set_version == v) || FAULT == 1 -> decide()
                :: else -> stop = 2
                fi
            };
            if
            :: stop == 1 -> break
            :: stop == 2
            :: stop == 0 ->
                d_step {
                    o = own_slot[me];
                    if
                    :: plain -> blocks[o].done = own_version[me] + 1
                    :: else -> if :: FAULT != 6 -> blocks[o].done = own_version[me] :: else fi
                    fi;
                    blocks[o].used = used; blocks[o].head = head;
                    blocks[o].n = n; blocks[o].thread = me; blocks[o].slot = s; blocks[o].version = v;
                    blocks[o].place[0] = ep[0]; blocks[o].before[0] = eb[0]; blocks[o].after[0] = ew[0]
                };
                d_step {
                    blocks[o].tail = tail; blocks[o].length = length;
                    blocks[o].place[1] = ep[1]; blocks[o].before[1] = eb[1]; blocks[o].after[1] = ew[1];
                    blocks[o].place[2] = ep[2]; blocks[o].before[2] = eb[2]; blocks[o].after[2] = ew[2]
                };
                d_step {
                    if
                    :: set_slot == s && set_version == v ->
                        d = own_version[me] + 1; set_slot = o; set_version = d; stop = 3
                    :: else
                    fi
                };
                if
                :: stop == 3 && plain ->
                    d_step {
                        if
                        :: FAULT != 7 -> own_slot[me] = s; own_version[me] = v
                        :: else -> own_version[me]++
                        fi
                    };
                    if :: kind == HELD -> memory[WORD(r)] = NEXT(memory[WORD(r)], HELD) :: else fi;
                    break
                :: stop == 3 && !plain ->
                    s = o; v = d;
                    help(s, v);
                    if :: g != NONE -> asleep[g] = false :: else fi;
                    break
                :: else
                fi
            fi
        :: else
        fi
    od;
    stop = 0; plain = 0;
    d_step { s = 0; v = 0; d = 0; used = 0; head = 0; tail = 0; length = 0; o = 0; n = 0; g = 0;
        ep[0] = 0; eb[0] = 0; ew[0] = 0; ep[1] = 0; eb[1] = 0; ew[1] = 0; ep[2] = 0;
        eb[2] = 0; ew[2] = 0 }
}

#define LOCALS byte s, v, d, used, head, tail, length, o, n, g, stop, plain, k, x, t, b; \
    byte dn, da, ds, dv; byte dp[3]; byte db[3]; byte dw[3]; byte ep[3]; byte eb[3]; byte ew[3]

#if RESCUERS > 0
#define MAY_DIE provided (!dead[me])
#else
#define MAY_DIE /* then the search can be reduced */
#endif

proctype worker(byte me) MAY_DIE
{
    LOCALS;
    byte r = me, kind = HELD;

    operation();
    do
    ::  x = memory[WORD(r)];
        if
        :: STATE(x) == HELD ->
            d_step { inside[r] = true; assert(inside[0] + inside[1] + (WORKERS > 2 && inside[WORKERS - 1]) == 1) };
            inside[r] = false;
            kind = FREE
        :: STATE(x) == WAITING ->
            if
            :: me == 1 -> kind = CANCELED /* a timeout, for one of them, or not */
            :: atomic { memory[WORD(r)] == x -> asleep[r] = true }; !asleep[r]; kind = NONE
            :: memory[WORD(r)] != x -> kind = NONE
            fi
        :: STATE(x) == CANCELED -> memory[WORD(r)] = NEXT(x, FREE); break
        :: STATE(x) == FREE -> break
        fi;
#if PRIVATE
        if :: kind == FREE -> memory[WORD(r)] = NEXT(x, FREE) :: else fi;
#endif
        if :: kind != NONE -> operation() :: else fi
    od
}

#if RESCUERS > 0
active proctype killer()
{
    if :: victim = 0 :: victim = 1 :: skip fi;
    if :: victim != NONE -> dead[victim] = true :: else fi
}

proctype rescuer(byte me)
{
    LOCALS;
    byte r, kind;

    victim != NONE && dead[victim];
    r = victim;
    d_step { s = set_slot; v = set_version };
    do
    ::  help(s, v);
        if
        :: set_slot == s && set_version == v -> break
        :: else -> d_step { s = set_slot; v = set_version }
        fi
    od;
    do
    ::  x = memory[WORD(r)];
        if
        :: STATE(x) == HELD -> inside[r] = false; kind = FREE; operation()
        :: STATE(x) == WAITING -> kind = CANCELED; operation()
        :: STATE(x) == CANCELED ->
            d_step { if :: memory[WORD(r)] == x -> memory[WORD(r)] = NEXT(x, FREE) :: else fi }
        :: STATE(x) == FREE -> break
        fi
    od;
    kind = NONE;
    operation();
    if
    :: FAULT != 5 -> atomic { k = 0; do :: k < WORKERS -> asleep[k] = false; k++ :: else -> break od; k = 0 }
    :: else
    fi
}
#endif

init {
    byte i;

    d_step {
        do
        :: i < ACTORS -> own_slot[i] = i; i++
        :: else -> break
        od;
        set_slot = ACTORS; set_version = 1; blocks[ACTORS].done = 1; i = 0
    };
    atomic {
        do :: i < WORKERS -> run worker(i); i++ :: else -> break od;
#if RESCUERS > 0
        do :: i < ACTORS -> run rescuer(i); i++ :: else -> break od;
#endif
        i = 0
    };
    timeout;
    /* Nothing moves any more. */
    d_step {
        do /* `done` may have been set back, but nothing is owed */
        :: i < blocks[set_slot].n ->
            assert(memory[blocks[set_slot].place[i]] != blocks[set_slot].before[i]); i++
        :: else -> break
        od;
        i = 0;
        assert(!blocks[set_slot].used && !blocks[set_slot].head && !blocks[set_slot].tail && !blocks[set_slot].length);
        do
        :: i < WORKERS -> assert(STATE(memory[WORD(i)]) == FREE); i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < ACTORS ->
            assert(own_slot[i] != set_slot);
            assert(i == 0 || own_slot[i] != own_slot[0]);
            assert(i < 2 || own_slot[i] != own_slot[1]);
            assert(i < 3 || own_slot[i] != own_slot[2]);
            i++
        :: else -> break
        od
    }
}
