/* SPDX-License-Identifier: MIT */
/*
 * A model of live sets (core/keyed/key_set.h): how the truth of a key goes from its word in the table to a
 * live set and back, how live sets are lent to one key after another, and what the death of anybody
 * leaves behind. Actors ask for one unit of a key, wait in the line of its live set or give up, and
 * give back. The searches and claims of the table are key_table.pml's matter, and how a version is
 * published version.pml's; what is atomic here is one look at a key, one reading
 * of a live set's version, one swap of an entry, one publication, or one look whether a lender is
 * dead; and what follows it in private.
 *
 *   - Versions never come back, so a publication succeeds exactly if nobody published since the
 *     version was read: `fresh` has those who read the current one. Nothing need be counted.
 *   - States come back; a loan never does, and is what it is in the code: one more each time.
 *   - Any live set may be tried by who borrows: what the stack of idle ones hints at is no matter.
 *   - EVICT: states are those of a rate: any key may be evicted that has no line, and what is given
 *     back to one that was is lost. Else they are held, and a key with any is not touched.
 *   - FITS: states below it can be words. 0: every key needs a live set.
 *
 * Checked after every change: the entry of a key says what is true of it, which is what was taken
 * less what was given back since it was last evicted, and nothing if it has no entry; a word that
 * names a live set names it as of its loan to that key; whoever is in a line is in that of the live
 * set of his key. Whoever begins anew does so because somebody has changed something meanwhile, so
 * that of those who are not dead somebody gets on. At the end, when nothing moves: nobody waits,
 * nothing is held, and every live set can be lent, whoever died.
 *
 * Who takes has so many ATTEMPTS to find a place and a live set, all in all: otherwise two whose
 * keys have but one between them can take it from each other for ever. Who gives back needs no bound.
 *
 * Defined from outside: ACTORS, RESCUERS (1: one may die), ROUNDS, LIVES, PLACES (1: the keys share
 * one), KEYS (bit i: actor i is of the second key), CAPACITY, FITS, EVICT, ATTEMPTS, LEFT (1: the
 * live set of the first key was left idle by somebody who died), FAULT (0: none), each of which must be
 * found; live.plan says in which search:
 *    1 a live set is called idle though its dead lender was reviving it
 *    2 lent though somebody is about to lend it who is not dead
 *    3 lent though the entry of its last key says that it has its state
 *    4 a key is evicted without its live set being made idle
 *    5 revived as of the same loan             6 idle with a line
 *    7 the entry is swapped before the live set is filled
 *    8 a lender is dead only while his number is not used again
 *    9 who enters does not look at the loan   10 given back where it was granted
 *   11 who lent in vain keeps it              12 lent as of the same loan
 *   13 who finds a revival waits for it       14 settled without looking at the loan
 *   15 settled while it is not idle
 */
#ifndef ACTORS
#define ACTORS 2
#endif
#ifndef RESCUERS
#define RESCUERS 1
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef LIVES
#define LIVES 1
#endif
#ifndef PLACES
#define PLACES 1
#endif
#ifndef KEYS
#define KEYS 0
#endif
#ifndef CAPACITY
#define CAPACITY 1
#endif
#ifndef FITS
#define FITS 255
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef LEFT
#define LEFT 0
#endif
#ifndef EVICT
#define EVICT 0
#endif
#ifndef FAULT
#define FAULT 0
#endif
#define NOBODY 255

/* Words of entries: a state, or a live set as of a loan. */
#define ABSENT      255
#define CLAIMED     254
#define LIVE(n, t)  (128 + (n) * 32 + (t))
#define NUMBER(w)   (((w) - 128) / 32)
#define LOAN(w)     ((w) & 31)
#define IS_STATE(w) ((w) < 128)

/* A slot has an id, which is twice the key, and one more if it is claimed for it, and a word; of a
 * claim, who made it. */
#define MEMBER  (2 * k)
#define CLAIM   (2 * k + 1)
#define AT(k)   (PLACES == 1 -> 0 : (k) - 1)
#define SAYS(k) (id[AT(k)] == 2 * (k) -> word[AT(k)] : ABSENT)

byte id[PLACES], word[PLACES];

/* Phases. */
#define IDLE    0
#define LENDING 1
#define LENT    2

typedef live_set {
    byte phase, key, loan, state, line, lender, life; /* line: bits, by actor */
    byte fresh                                        /* who has read this version: bits */
};
live_set lives[LIVES];

/* Records. */
#define FREE    0
#define WAITING 1
#define HELD    2
byte record[ACTORS], line_of[ACTORS];
byte victim = NOBODY;
byte life[ACTORS + 1];
byte truth[3];
byte moved = 255; /* for whom something has changed since they began */

/* What may be given up without a loss, and what may be given up. */
#define CAN_GO(s)  ((s) == 0 || EVICT)
#define CAN_REST(s) ((s) == 0 || (s) < FITS)

#define KEY_OF(a)  (1 + ((KEYS >> (a)) & 1))
#define IS_FRESH   (lives[n].fresh & (1 << me))
#define READ       lives[n].fresh = lives[n].fresh | (1 << me)

/* Everything of a live set's version but its key and loan is published at once. */
inline published()
{
    moved = 255;
    lives[n].fresh = (1 << me);
    check()
}

inline check_key(q)
{
    c = SAYS(q);
    if
    :: c == ABSENT -> assert(truth[q] == 0)
    :: IS_STATE(c) -> assert(truth[q] == c)
    :: else ->
        assert(lives[NUMBER(c)].key == q && lives[NUMBER(c)].state == truth[q]);
        assert(lives[NUMBER(c)].loan == LOAN(c) ||
               (lives[NUMBER(c)].loan == LOAN(c) + 1 && lives[NUMBER(c)].phase == LENDING))
    fi
}

inline check()
{
    check_key(1);
    check_key(2);
    c = 0;
    do
    :: c < ACTORS ->
        assert(record[c] != WAITING || (lives[line_of[c]].line & (1 << c) &&
               SAYS(KEY_OF(c)) == LIVE(line_of[c], lives[line_of[c]].loan) &&
               lives[line_of[c]].phase != IDLE));
        c++
    :: else -> break
    od;
    c = 0;
    do
    :: c < LIVES -> assert(lives[c].loan < 30); c++
    :: else -> break
    od;
    c = 0
}

/* Swaps the entry of key q from word `a`, which it has to have, to word `b`, or ABSENT. */
inline swap_entry(q, a, b)
{
    done = (SAYS(q) == (a));
    if
    :: done ->
        moved = 255;
        if
        :: (b) == ABSENT -> id[AT(q)] = 0; word[AT(q)] = 0
        :: else -> word[AT(q)] = (b)
        fi
    :: else
    fi
}

/* Where an operation is. */
#define START        0
#define FIND         1
#define SWAP_WORD    3
#define ON_CLAIM     4
#define JUDGE        5
#define JUDGE_IDLE   6
#define CLAIM_SWAP   7
#define COMMIT       8
#define SWEEP       10
#define IS_DEAD     11
#define LOOK_DEAD   12
#define LOOK_ALIVE  13
#define COMPLETE    14
#define SWEEP_IDLE  15
#define LOOK_IDLE   16
#define SWEEP_SWAP  17
#define LEND        18
#define INSTALL     19
#define GIVE_BACK   20
#define FULL        21
#define ON_LIVE     22
#define PUBLISH     24
#define LEAVE       25
#define LEAVE_IDLE  26
#define SETTLE      27
#define REVIVE      28
#define REVIVE_SWAP 29
#define HELP        30
#define CANCEL      31
#define CANCEL_IT   32
#define END         33

#define TAKE 0
#define GIVE 1

/* What record `r` has got or lost is no private matter: it changes with the state. */
inline take() { truth[k]++; record[r] = HELD; assert(truth[k] <= CAPACITY) }
inline give() { if :: truth[k] -> truth[k]-- :: else -> assert(EVICT) fi; record[r] = FREE }

/* The steps of an operation of actor `me` for record `r` and key `k`: asks, gives up, or gives
 * back, as the record says. */
inline begin()
{
    kind = (record[r] == FREE -> TAKE : GIVE);
    at = (record[r] == WAITING -> CANCEL : FIND)
}

/* What was read is of no use any more. */
inline forget()
{
    lives[0].fresh = lives[0].fresh & ~(1 << me);
#if LIVES > 1
    lives[1].fresh = lives[1].fresh & ~(1 << me);
#endif
    swept = 0; w = 0; n = 0; vk = 0; vl = 0; vs = 0; from = 0; i = 0; waits = false; done = false
}

inline finish()
{
    forget();
    moved = moved | (1 << me);
    if :: record[r] == FREE -> turns++ :: else fi;
    at = (turns < ROUNDS -> START : END);
    kind = 0; tries = 0; left = false
}

/* Looks at one live set after the other, beginning with any. */
inline borrow()
{
    swept = 0; n = first; at = SWEEP
}

inline find()
{
    forget();
    assert(moved & (1 << me));
    moved = moved & ~(1 << me);
    w = SAYS(k);
    if
    :: w == ABSENT && kind == GIVE -> assert(EVICT); record[r] = FREE; finish()
    :: w == ABSENT && kind == TAKE -> at = ON_CLAIM
    :: IS_STATE(w) && kind == GIVE && w -> at = SWAP_WORD
    :: IS_STATE(w) && kind == GIVE && !w -> assert(EVICT); record[r] = FREE; finish()
    :: IS_STATE(w) && kind == TAKE && w < CAPACITY && w + 1 < FITS -> at = SWAP_WORD
    :: IS_STATE(w) && kind == TAKE && !(w < CAPACITY && w + 1 < FITS) ->
        if
        :: tries < ATTEMPTS -> from = w; borrow()
        :: else -> finish()
        fi
    :: else -> n = NUMBER(w); at = ON_LIVE
    fi;
    if
    :: FAULT == 10 && kind == GIVE && line_of[r] != NOBODY -> n = line_of[r]; at = ON_LIVE
    :: else
    fi
}

inline swap_word()
{
    i = (kind == TAKE -> w + 1 : w - 1);
    swap_entry(k, w, i);
    i = 0;
    if
    :: done && kind == TAKE -> take(); finish()
    :: done && kind == GIVE -> give(); finish()
    :: else -> at = FIND
    fi;
    check()
}

/* The place of the key, which is empty, or claimed, or another key's. */
inline look_at_place()
{
    i = id[AT(k)]; w = word[AT(k)];
    if
    :: i == MEMBER -> at = FIND
    :: i != MEMBER && tries == ATTEMPTS -> finish()
    :: i != MEMBER && tries < ATTEMPTS && (i == 0 || i & 1) -> at = CLAIM_SWAP
    :: i != MEMBER && tries < ATTEMPTS && i != 0 && !(i & 1) && IS_STATE(w) ->
        if :: CAN_GO(w) -> at = CLAIM_SWAP :: else -> finish() fi
    :: i != MEMBER && tries < ATTEMPTS && i != 0 && !(i & 1) && !IS_STATE(w) ->
        n = NUMBER(w);
        at = JUDGE
    fi
}

inline judge()
{
    READ;
    if
    :: lives[n].loan == LOAN(w) ->
        if
        :: !CAN_GO(lives[n].state) || lives[n].line -> finish()
        :: else -> at = (lives[n].phase == IDLE || FAULT == 4 -> CLAIM_SWAP : JUDGE_IDLE)
        fi
    :: lives[n].loan == LOAN(w) + 1 && lives[n].phase == LENDING -> vk = i / 2; at = HELP
    :: else -> at = FIND
    fi
}

inline go_idle(then)
{
    done = (IS_FRESH != 0);
    if
    :: done ->
        lives[n].phase = IDLE; lives[n].lender = 0; lives[n].life = 0;
        published();
        at = then
    :: else
    fi
}

#define IF_NOT(what) if :: !done -> what :: else fi

inline claim()
{
    tries++;
    if
    :: id[AT(k)] == i && word[AT(k)] == w ->
        if :: i && !(i & 1) -> truth[i / 2] = 0 :: else fi;
        moved = 255;
        id[AT(k)] = CLAIM; word[AT(k)] = me;
        from = CLAIMED;
        if :: 1 < FITS -> at = COMMIT :: else -> borrow() fi
    :: else -> at = FIND
    fi;
    check()
}

#define IS_MINE (id[AT(k)] == CLAIM && word[AT(k)] == me)

inline commit()
{
    if
    :: IS_MINE -> moved = 255; id[AT(k)] = MEMBER; word[AT(k)] = 1; take(); finish()
    :: else -> at = FIND
    fi;
    check()
}

/* This one cannot go. */
inline next_one()
{
    swept++;
    n = (n + 1) % LIVES;
    if
    :: swept < LIVES -> at = SWEEP
    :: else ->
        at = FULL;
        if :: from != CLAIMED -> finish() :: else fi
    fi
}

inline sweep()
{
    READ;
    vk = lives[n].key; vl = lives[n].loan; vs = lives[n].state;
    if
    :: lives[n].phase == IDLE && (vk == 0 || FAULT == 3) -> at = LEND
    :: lives[n].phase == IDLE && vk != 0 && FAULT != 3 -> at = LOOK_IDLE
    :: lives[n].phase == LENDING -> at = IS_DEAD
    :: lives[n].phase == LENT ->
        if
        :: !lives[n].line && (CAN_GO(vs) || CAN_REST(vs)) -> at = SWEEP_IDLE
        :: else -> next_one()
        fi
    fi
}

inline proc_stat_is_dead()
{
    if
    :: lives[n].lender == victim && IS_FRESH && (life[victim] == 0 || FAULT != 8) -> at = LOOK_DEAD
    :: FAULT == 2 -> at = LOOK_DEAD
    :: else -> at = LOOK_ALIVE
    fi
}

inline look_dead()
{
    w = SAYS(vk);
    if
    :: w == LIVE(n, vl) ->
        if :: CAN_GO(vs) || CAN_REST(vs) -> at = SWEEP_IDLE :: else -> next_one() fi
    :: vl && w == LIVE(n, vl - 1) && FAULT != 1 -> at = COMPLETE
    :: else -> at = SWEEP_IDLE
    fi
}

inline look_alive()
{
    if
    :: SAYS(vk) == LIVE(n, vl) && (CAN_GO(vs) || CAN_REST(vs)) -> at = SWEEP_IDLE
    :: else -> next_one()
    fi
}

inline look_idle()
{
    w = SAYS(vk);
    if
    :: w == LIVE(n, vl) ->
        if :: CAN_GO(vs) || CAN_REST(vs) -> at = SWEEP_SWAP :: else -> next_one() fi
    :: else -> at = LEND
    fi
}

/* The word goes back to what it says, or the key is gone. */
inline settle()
{
    if
    :: FAULT == 14 && !IS_STATE(SAYS(vk)) && SAYS(vk) != ABSENT && NUMBER(SAYS(vk)) == n ->
        w = SAYS(vk)
    :: else -> w = LIVE(n, vl)
    fi;
    if
    :: vs != 0 && CAN_REST(vs) -> swap_entry(vk, w, vs)
    :: else ->
        swap_entry(vk, w, ABSENT);
        if :: done && EVICT -> truth[vk] = 0 :: else fi
    fi;
    check()
}

inline lend()
{
    if
    :: FAULT == 7 -> vl = lives[n].loan + 1; at = INSTALL
    :: FAULT != 7 && IS_FRESH ->
        if :: from == CLAIMED -> lives[n].state = 0 :: else -> lives[n].state = from fi;
        if :: FAULT == 12 && vk -> skip :: else -> lives[n].loan++ fi;
        lives[n].phase = LENDING; lives[n].key = k; lives[n].line = 0;
        lives[n].lender = me; lives[n].life = life[me];
        if :: from != CLAIMED -> tries++ :: else fi;
        vl = lives[n].loan;
        published();
        at = INSTALL
    :: else -> at = FIND
    fi
}

inline install()
{
    if
    :: from == CLAIMED ->
        done = IS_MINE;
        if :: done -> moved = 255; id[AT(k)] = MEMBER; word[AT(k)] = LIVE(n, vl) :: else fi
    :: else -> swap_entry(k, from, LIVE(n, vl))
    fi;
    at = (done -> FIND : (FAULT == 11 -> FIND : GIVE_BACK));
    check()
}

inline drop()
{
    if
    :: from == CLAIMED && IS_MINE -> moved = 255; id[AT(k)] = 0; word[AT(k)] = 0
    :: else
    fi;
    finish()
}

#define IS_LENT (lives[n].phase != IDLE && (lives[n].loan == LOAN(w) || FAULT == 9))

inline read_live()
{
    READ;
    vk = k; vl = lives[n].loan; vs = lives[n].state;
    if
    :: FAULT == 10 && IS_STATE(w) -> at = PUBLISH
    :: IS_LENT && kind == TAKE && (vs == CAPACITY || lives[n].line) ->
        waits = true; at = PUBLISH
    :: IS_LENT && kind == TAKE && !(vs == CAPACITY || lives[n].line) -> at = PUBLISH
    :: IS_LENT && kind == GIVE -> at = PUBLISH
    :: !IS_LENT && vl == LOAN(w) -> at = (CAN_REST(vs) -> SETTLE : REVIVE)
    :: !IS_LENT && vl == LOAN(w) + 1 && lives[n].phase == LENDING && lives[n].key == k ->
        at = (FAULT == 13 -> FIND : HELP)
    :: else -> at = FIND
    fi
}

/* Of those in line the first is granted what is given back. */
inline hand_over()
{
    c = 0;
    do
    :: c < ACTORS && !(lives[n].line & (1 << c)) -> c++
    :: else -> break
    od;
    lives[n].line = lives[n].line & ~(1 << c);
    record[c] = HELD;
    line_of[c] = (FAULT == 10 -> n : NOBODY);
    record[r] = FREE;
    c = 0
}

inline stay()
{
    if :: FAULT == 10 -> line_of[r] = n :: else fi
}

inline publish()
{
    if
    :: IS_FRESH ->
        lives[n].phase = LENT; lives[n].lender = 0; lives[n].life = 0;
        if
        :: kind == TAKE && !waits -> lives[n].state++; take(); stay()
        :: kind == TAKE && waits ->
            lives[n].line = lives[n].line | (1 << r); record[r] = WAITING; line_of[r] = n
        :: kind == GIVE && lives[n].line -> hand_over()
        :: kind == GIVE && !lives[n].line ->
            if :: lives[n].state -> lives[n].state-- :: else fi;
            give()
        fi;
        published();
        at = LEAVE
    :: else -> at = FIND
    fi;
    waits = false; vk = 0; vl = 0; vs = 0; w = 0
}

inline leave()
{
    if
    :: (!lives[n].line || FAULT == 6) && lives[n].phase == LENT && CAN_REST(lives[n].state) ->
        READ;
        vk = lives[n].key; vl = lives[n].loan; vs = lives[n].state;
        at = (FAULT == 15 -> SETTLE : LEAVE_IDLE);
        left = true
    :: else -> finish()
    fi
}

inline revive()
{
    if
    :: IS_FRESH ->
        lives[n].phase = (FAULT == 5 -> LENT : LENDING);
        if :: FAULT != 5 -> lives[n].loan++ :: else fi;
        lives[n].lender = me; lives[n].life = life[me];
        published();
        at = (FAULT == 5 -> FIND : REVIVE_SWAP)
    :: else -> at = FIND
    fi
}

inline revive_swap()
{
    swap_entry(k, w, LIVE(n, LOAN(w) + 1));
    at = (done || SAYS(k) == LIVE(n, LOAN(w) + 1) -> FIND : GIVE_BACK);
    check()
}

inline cancel()
{
    if
    :: record[r] == WAITING -> n = line_of[r]; READ; at = CANCEL_IT
    :: else -> finish()
    fi
}

inline cancel_it()
{
    if
    :: IS_FRESH ->
        assert(record[r] == WAITING);
        lives[n].line = lives[n].line & ~(1 << r); record[r] = FREE; line_of[r] = NOBODY;
        published();
        at = LEAVE
    :: else -> at = CANCEL
    fi
}

#define STEP(where, what) d_step { at == where -> what }

/* The last one recovers whoever died, whose number is then used again. */
proctype actor(byte me)
{
    byte at, kind, turns, tries, first, swept, r = me, k, w, n, vk, vl, vs, from, i, c;
    bool done, waits, left;

    if
    :: me == ACTORS ->
        victim != NOBODY;
        r = victim;
        turns = ROUNDS - (record[r] != FREE);
        at = (record[r] == FREE -> END : START)
    :: else
    fi;
    k = KEY_OF(r);
#if LIVES > 1
    if :: first = 0 :: first = 1 fi;
#endif
    do
    :: STEP(START, begin())
    :: STEP(FIND, find())
    :: STEP(SWAP_WORD, swap_word())
    :: STEP(ON_CLAIM, look_at_place())
    :: STEP(JUDGE, judge())
    :: STEP(JUDGE_IDLE, go_idle(CLAIM_SWAP); IF_NOT(at = FIND))
    :: STEP(CLAIM_SWAP, claim())
    :: STEP(COMMIT, commit())
    :: STEP(SWEEP, sweep())
    :: STEP(IS_DEAD, proc_stat_is_dead())
    :: STEP(LOOK_DEAD, look_dead())
    :: STEP(LOOK_ALIVE, look_alive())
    :: STEP(COMPLETE, swap_entry(vk, w, LIVE(n, vl)); at = SWEEP; check())
    :: STEP(SWEEP_IDLE, go_idle(LOOK_IDLE); IF_NOT(next_one()))
    :: STEP(LOOK_IDLE, look_idle())
    :: STEP(SWEEP_SWAP, settle(); at = LEND)
    :: STEP(LEND, lend())
    :: STEP(INSTALL, install())
    :: STEP(GIVE_BACK, go_idle(FIND); IF_NOT(at = FIND))
    :: STEP(FULL, drop())
    :: STEP(ON_LIVE, read_live())
    :: STEP(PUBLISH, publish())
    :: STEP(LEAVE, leave())
    :: STEP(LEAVE_IDLE, go_idle(SETTLE); IF_NOT(finish()))
    :: STEP(SETTLE, settle(); if :: left -> finish() :: else -> at = FIND fi)
    :: STEP(REVIVE, revive())
    :: STEP(REVIVE_SWAP, revive_swap())
    :: STEP(HELP, swap_entry(vk, w, LIVE(n, LOAN(w) + 1)); at = FIND; check())
    :: STEP(CANCEL, cancel())
    :: STEP(CANCEL_IT, cancel_it())
    :: at == END -> break
#if RESCUERS
    :: atomic { me < ACTORS && victim == NOBODY -> victim = me }; break
#endif
    od;
    atomic {
        if :: me == ACTORS -> life[victim] = 1 :: else fi;
        finish();
        turns = 0; at = 0; r = 0; first = 0
    }
}

/* Whether somebody finds at his leisure that it can be lent. */
inline check_lendable(n)
{
    c = SAYS(lives[n].key);
    if
    :: lives[n].key == 0
    :: lives[n].key != 0 && (c == LIVE(n, lives[n].loan) || c == LIVE(n, lives[n].loan - 1)) ->
        assert(CAN_GO(lives[n].state) || CAN_REST(lives[n].state));
        assert(!lives[n].line)
    :: else ->
        assert(lives[n].phase == IDLE || lives[n].lender == victim);
        assert(lives[n].phase == IDLE || (lives[n].phase == LENDING && FAULT != 8))
    fi
}

init {
    byte i, c;

    atomic {
        do
        :: i < ACTORS -> line_of[i] = NOBODY; i++
        :: else -> break
        od;
        i = 0;
#if LEFT
        id[0] = 2; word[0] = LIVE(0, 1); truth[1] = 1;
        lives[0].key = 1; lives[0].loan = 1; lives[0].state = 1;
#endif
        do
        :: i < ACTORS + RESCUERS -> run actor(i); i++
        :: else -> break
        od;
        i = 0
    };
    timeout;
    d_step {
        check();
        do
        :: i < ACTORS -> assert(record[i] == FREE); i++
        :: else -> break
        od;
        assert(EVICT || (truth[1] == 0 && truth[2] == 0));
        i = 0;
        do
        :: i < LIVES -> check_lendable(i); i++
        :: else -> break
        od
    }
}
