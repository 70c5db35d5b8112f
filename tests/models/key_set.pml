/* SPDX-License-Identifier: MIT */
/*
 * A model of key sets (core/keyed/keyed.h): how the state of a key moves from its word in the
 * table to a key set and back, how key sets are bound to one key after another, and what a death
 * leaves behind. Threads ask for one unit of a key, wait in the wait queue of its key set or give
 * up, and give back. key_table.pml models searches and claims of the table, version.pml how a
 * version is published. Atomic here is one look at a key, one reading of a key set's version, one
 * swap of an entry, one commit, or one look whether the thread that binds is dead; and the private
 * steps that follow it.
 *
 *   - Versions never come back. So a commit succeeds exactly if no version was committed since this
 *     one was read: `fresh` has the threads that read the current one. Nothing need be counted.
 *   - States come back. A binding never does, and is what it is in the code: one more each time.
 *   - A thread that needs a key set may try any of them: the stack of unbound ones is only a hint.
 *   - EVICT: states are those of a rate. A key without waiters may be evicted, and units that are
 *     given back to an evicted key are lost. Otherwise states are held units, and a key with any
 *     is not touched.
 *   - FITS: states below it fit a key word. 0: every key needs a key set.
 *   - RELOAD (core/keyed/keyed_moved.c): at any time a later definition is published, by which
 *     states below LATER_FITS fit a word; then all key sets and places are walked over. A word has
 *     the tag of its definition. A thread that finds what is of a later one begins again by that.
 *     A key set moves to the later one in one step here; inline_state.pml has more of that.
 *
 * Checked after every change: the entry of a key has its true state, which is the units taken less
 * the units given back since its last eviction, and 0 without an entry. A word that names a key set
 * names it as of its binding to that key. A waiter is in the wait queue of the key set of its key.
 * A thread begins anew only because another thread has changed something meanwhile, so one of the
 * living threads always gets on. No decision by the earlier definition follows one by the later on
 * the same key, and no thread waits by the earlier one after the walk. At the end, when nothing moves: no thread waits, nothing is held,
 * and every key set can be bound, whichever thread died.
 *
 * A thread that takes has so many ATTEMPTS to find a place and a key set, all in all: otherwise two
* threads with keys that share one key set could take it from each other for ever. A thread that gives
 * back needs no bound.
 *
 * Defined from outside: THREADS, RESCUERS (1: one may die), ROUNDS, SETS, PLACES (1: the keys share
 * one), KEYS (bit i: thread i uses the second key), CAPACITY, FITS, EVICT, ATTEMPTS, LEFT (1: a
 * dead thread left the key set of the first key unbound), RELOAD, LATER_FITS, FAULT (0: none), each
 * of which must be found; key_set.plan says in which search:
 *    1 a key set is called unbound though a dead thread was reviving it
 *    2 bound though a living thread is about to bind it
 *    3 bound though the entry of its last key says that it has its state
 *    4 a key is evicted without unbinding its key set
 *    5 revived as of the same binding          6 unbound with waiters
 *    7 the entry is swapped before the key set is filled
 *    8 a binding thread is dead only while its number is not used again
 *    9 a new waiter does not look at the binding   10 given back where it was granted
 *   11 a key set bound in vain is kept        12 bound as of the same binding
 *   13 a thread that finds a revival waits for it  14 released without looking at the binding
 *   15 released while it is not unbound        16 a claim is not followed by a look for a reload
 *   17 a waiter does not look for one          18 a word is swapped whatever its tag
 *   19 a key set that has moved is used by the earlier definition
 *   20 one that was bound in vain is kept if it has moved
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef RESCUERS
#define RESCUERS 1
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef SETS
#define SETS 1
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
#ifndef RELOAD
#define RELOAD 0
#endif
#ifndef LATER_FITS
#define LATER_FITS FITS
#endif
#ifndef FAULT
#define FAULT 0
#endif
#define NOBODY 255

/* Words of entries: a state, or a key set as of a binding. */
#define ABSENT      255
#define CLAIMED     254
#define BOUND_TO(n, t)  (128 + (n) * 32 + (t))
#define NUMBER(w)   (((w) - 128) / 32)
#define BINDING_OF(w)     ((w) & 31)
#define IS_STATE(w) ((w) < 128)

/* A slot has an id, which is twice the key, and one more if it is claimed for it, and a word: of a
 * claim, the thread that made it. */
#define ENTRY  (2 * k)
#define CLAIM   (2 * k + 1)
#define AT(k)   (PLACES == 1 -> 0 : (k) - 1)
#define SAYS(k) (id[AT(k)] == 2 * (k) -> word[AT(k)] : ABSENT)

byte id[PLACES], word[PLACES];
bool tag[PLACES]; /* by the later definition; matters of states and claims */

/* Phases. */
#define UNBOUND    0
#define BINDING 1
#define BOUND    2

typedef key_set {
    byte phase, key, binding, state, waiters, binder, generation; /* waiters: bits, by thread */
    bool by;                                          /* the later definition */
    byte fresh                                        /* threads that have read this version: bits */
};
key_set sets[SETS];

/* Records. */
#define FREE    0
#define WAITING 1
#define HELD    2
byte record[THREADS], queue_of[THREADS];
byte victim = NOBODY;
byte generation[THREADS + 1];
byte truth[3];
bool published, walked, latest[3]; /* latest: by key, the last decision is by the later definition */
byte looked;                       /* waiters that have looked for a reload: bits */
byte moved = 255; /* threads for which something has changed since they began */

/* What may be given up without a loss, and what may be given up. */
#define CAN_GO(s)  ((s) == 0 || EVICT)
#define FITS_NOW    (def -> LATER_FITS : FITS)
#define CAN_REST(s) ((s) == 0 || (s) < FITS_NOW)
#define IS_OUTDATED (published && !def)

#define KEY_OF(a)  (1 + ((KEYS >> (a)) & 1))
#define IS_FRESH   (sets[n].fresh & (1 << me))
#define HAS_MOVED  (sets[n].by && !def && FAULT != 19)
#define READ       if \
    :: sets[n].by < def -> move_key_set(n) \
    :: else \
    fi; \
    sets[n].fresh = sets[n].fresh | (1 << me)

/* Nothing that was read of the key set by the earlier definition can be committed any more. */
inline move_key_set(m)
{
    sets[m].by = true; sets[m].fresh = 0; moved = 255
}

/* Everything of a key set's version but its key and binding is published at once. */
inline published_version()
{
    moved = 255;
    sets[n].fresh = (1 << me);
    check()
}

inline check_key(q)
{
    c = SAYS(q);
    if
    :: c == ABSENT -> assert(truth[q] == 0)
    :: IS_STATE(c) -> assert(truth[q] == c)
    :: else ->
        assert(sets[NUMBER(c)].key == q && sets[NUMBER(c)].state == truth[q]);
        assert(sets[NUMBER(c)].binding == BINDING_OF(c) ||
               (sets[NUMBER(c)].binding == BINDING_OF(c) + 1 && sets[NUMBER(c)].phase == BINDING))
    fi
}

inline check()
{
    check_key(1);
    check_key(2);
    c = 0;
    do
    :: c < THREADS ->
        assert(record[c] != WAITING || (sets[queue_of[c]].waiters & (1 << c) &&
               SAYS(KEY_OF(c)) == BOUND_TO(queue_of[c], sets[queue_of[c]].binding) &&
               sets[queue_of[c]].phase != UNBOUND));
        assert(!walked || record[c] != WAITING || !(looked & (1 << c)) || sets[queue_of[c]].by);
        c++
    :: else -> break
    od;
    c = 0;
    do
    :: c < SETS -> assert(sets[c].binding < 30); c++
    :: else -> break
    od;
    c = 0
}

/* Swaps the entry of key q from word `a`, which it has to have, to word `b`, or ABSENT. */
inline swap_entry(q, a, b)
{
    done = (SAYS(q) == (a) && (!IS_STATE(a) || tag[AT(q)] == by || FAULT == 18));
    if
    :: done ->
        moved = 255;
        if
        :: (b) == ABSENT -> id[AT(q)] = 0; word[AT(q)] = 0; tag[AT(q)] = 0
        :: else -> word[AT(q)] = (b); tag[AT(q)] = (IS_STATE(b) && def)
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
#define BIND        18
#define INSTALL     19
#define GIVE_BACK   20
#define FULL        21
#define ON_KEY_SET     22
#define PUBLISH     24
#define LEAVE       25
#define LEAVE_IDLE  26
#define RELEASE      27
#define REVIVE      28
#define REVIVE_SWAP 29
#define HELP        30
#define CANCEL      31
#define CANCEL_IT   32
#define CLAIM_LOOK  33
#define WAIT_LOOK   34
#define RENEW       35
#define IN_VAIN     36
#define END         37

#define TAKE 0
#define GIVE 1

/* What record `r` has got or lost is no private matter: it changes with the state. */
inline take() { truth[k]++; record[r] = HELD; assert(truth[k] <= CAPACITY); decided() }
inline give()
{
    if :: truth[k] -> truth[k]-- :: else -> assert(EVICT) fi; record[r] = FREE; decided()
}

inline decided()
{
    assert(!latest[k] || def);
    latest[k] = def
}

/* The steps of an operation of thread `me` for record `r` and key `k`: asks, gives up, or gives
 * back, as the record says. */
inline begin()
{
    def = def || published;
    kind = (record[r] == FREE -> TAKE : GIVE);
    at = (record[r] == WAITING -> CANCEL : FIND)
}

/* What was read is of no use any more. */
inline forget()
{
    sets[0].fresh = sets[0].fresh & ~(1 << me);
#if SETS > 1
    sets[1].fresh = sets[1].fresh & ~(1 << me);
#endif
    swept = 0; w = 0; n = 0; vk = 0; vl = 0; vs = 0; from = 0; i = 0; waits = false; done = false;
    by = false
}

inline finish()
{
    forget();
    moved = moved | (1 << me);
    if :: record[r] == FREE -> turns++ :: else fi;
    at = (turns < ROUNDS -> START : END);
    kind = 0; tries = 0; left = false
}

/* Looks at one key set after the other, beginning with any. */
inline begin_bind()
{
    swept = 0; n = first; at = SWEEP
}

inline find()
{
    forget();
    assert(moved & (1 << me));
    moved = moved & ~(1 << me);
    w = SAYS(k);
    by = (w != ABSENT && IS_STATE(w) && tag[AT(k)]);
    if
    :: w != ABSENT && IS_STATE(w) && by > def -> def = true; moved = moved | (1 << me); at = FIND
    :: w != ABSENT && IS_STATE(w) && by < def ->
        if
        :: CAN_REST(w) -> at = RENEW
        :: !CAN_REST(w) && (tries < ATTEMPTS || kind == GIVE) -> from = w; begin_bind()
        :: else -> finish()
        fi
    :: w == ABSENT && kind == GIVE -> assert(EVICT); record[r] = FREE; finish()
    :: w == ABSENT && kind == TAKE -> at = ON_CLAIM
    :: IS_STATE(w) && by == def && kind == GIVE && w -> at = SWAP_WORD
    :: IS_STATE(w) && by == def && kind == GIVE && !w -> assert(EVICT); record[r] = FREE; finish()
    :: IS_STATE(w) && by == def && kind == TAKE && w < CAPACITY && w + 1 < FITS_NOW -> at = SWAP_WORD
    :: IS_STATE(w) && by == def && kind == TAKE && !(w < CAPACITY && w + 1 < FITS_NOW) ->
        if
        :: tries < ATTEMPTS -> from = w; begin_bind()
        :: else -> finish()
        fi
    :: else -> n = NUMBER(w); at = ON_KEY_SET
    fi;
    if
    :: FAULT == 10 && kind == GIVE && queue_of[r] != NOBODY -> n = queue_of[r]; at = ON_KEY_SET
    :: else
    fi
}

/* The word gets the tag of the later definition. */
inline renew()
{
    swap_entry(k, w, (w == 0 -> ABSENT : w));
    at = FIND;
    check()
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
    i = id[AT(k)]; w = word[AT(k)]; by = tag[AT(k)];
    if
    :: i == ENTRY -> at = FIND
    :: i != ENTRY && i && tries < ATTEMPTS && !(i & 1) && IS_OUTDATED -> finish()
    :: i != ENTRY && tries == ATTEMPTS -> finish()
    :: i != ENTRY && tries < ATTEMPTS && (i == 0 || i & 1) -> at = CLAIM_SWAP
    :: i != ENTRY && tries < ATTEMPTS && i != 0 && !(i & 1) && !IS_OUTDATED && IS_STATE(w) ->
        if :: CAN_GO(w) && by <= def -> at = CLAIM_SWAP :: else -> finish() fi
    :: i != ENTRY && tries < ATTEMPTS && i != 0 && !(i & 1) && !IS_OUTDATED && !IS_STATE(w) ->
        n = NUMBER(w);
        at = JUDGE
    fi
}

inline judge()
{
    READ;
    if
    :: HAS_MOVED || IS_OUTDATED -> finish()
    :: !HAS_MOVED && !IS_OUTDATED && sets[n].binding == BINDING_OF(w) ->
        if
        :: !CAN_GO(sets[n].state) || sets[n].waiters -> finish()
        :: else -> at = (sets[n].phase == UNBOUND || FAULT == 4 -> CLAIM_SWAP : JUDGE_IDLE)
        fi
    :: !HAS_MOVED && !IS_OUTDATED && sets[n].binding == BINDING_OF(w) + 1 && sets[n].phase == BINDING ->
        vk = i / 2; at = HELP
    :: else -> at = FIND
    fi
}

inline go_idle(then)
{
    done = (IS_FRESH != 0);
    if
    :: done ->
        sets[n].phase = UNBOUND; sets[n].binder = 0; sets[n].generation = 0;
        published_version();
        at = then
    :: else
    fi
}

#define IF_NOT(what) if :: !done -> what :: else fi

inline claim()
{
    tries++;
    if
    :: id[AT(k)] == i && word[AT(k)] == w && tag[AT(k)] == by ->
        if :: i && !(i & 1) -> truth[i / 2] = 0 :: else fi;
        moved = 255;
        id[AT(k)] = CLAIM; word[AT(k)] = me; tag[AT(k)] = def;
        from = CLAIMED;
        at = CLAIM_LOOK
    :: else -> at = FIND
    fi;
    check()
}

#define IS_MINE (id[AT(k)] == CLAIM && word[AT(k)] == me && tag[AT(k)] == def)

inline claim_look()
{
    if
    :: IS_OUTDATED && FAULT != 16 ->
        if
        :: IS_MINE -> moved = 255; id[AT(k)] = 0; word[AT(k)] = 0; tag[AT(k)] = 0
        :: else
        fi;
        def = true; moved = moved | (1 << me); at = FIND
    :: else ->
        if :: 1 < FITS_NOW -> at = COMMIT :: else -> begin_bind() fi
    fi
}

inline commit()
{
    if
    :: IS_MINE ->
        moved = 255; id[AT(k)] = ENTRY; word[AT(k)] = 1; tag[AT(k)] = def; take(); finish()
    :: else -> at = FIND
    fi;
    check()
}

/* This one cannot go. */
inline next_one()
{
    swept++;
    n = (n + 1) % SETS;
    if
    :: swept < SETS -> at = SWEEP
    :: else ->
        at = FULL;
        if :: from != CLAIMED -> finish() :: else fi
    fi
}

inline sweep()
{
    READ;
    vk = sets[n].key; vl = sets[n].binding; vs = sets[n].state;
    if
    :: HAS_MOVED -> next_one()
    :: !HAS_MOVED && sets[n].phase == UNBOUND && (vk == 0 || FAULT == 3) -> at = BIND
    :: !HAS_MOVED && sets[n].phase == UNBOUND && vk != 0 && FAULT != 3 -> at = LOOK_IDLE
    :: !HAS_MOVED && sets[n].phase == BINDING -> at = IS_DEAD
    :: !HAS_MOVED && sets[n].phase == BOUND ->
        if
        :: !sets[n].waiters && (CAN_GO(vs) || CAN_REST(vs)) -> at = SWEEP_IDLE
        :: else -> next_one()
        fi
    fi
}

inline proc_stat_is_dead()
{
    if
    :: sets[n].binder == victim && IS_FRESH && (generation[victim] == 0 || FAULT != 8) -> at = LOOK_DEAD
    :: FAULT == 2 -> at = LOOK_DEAD
    :: else -> at = LOOK_ALIVE
    fi
}

inline look_dead()
{
    w = SAYS(vk);
    if
    :: w == BOUND_TO(n, vl) ->
        if :: CAN_GO(vs) || CAN_REST(vs) -> at = SWEEP_IDLE :: else -> next_one() fi
    :: vl && w == BOUND_TO(n, vl - 1) && FAULT != 1 -> at = COMPLETE
    :: else -> at = SWEEP_IDLE
    fi
}

inline look_alive()
{
    if
    :: SAYS(vk) == BOUND_TO(n, vl) && (CAN_GO(vs) || CAN_REST(vs)) -> at = SWEEP_IDLE
    :: else -> next_one()
    fi
}

inline look_idle()
{
    w = SAYS(vk);
    if
    :: w == BOUND_TO(n, vl) ->
        if :: CAN_GO(vs) || CAN_REST(vs) -> at = SWEEP_SWAP :: else -> next_one() fi
    :: else -> at = BIND
    fi
}

/* The word goes back to what it says, or the key is gone. */
inline release()
{
    kept = IS_OUTDATED;
    if
    :: kept -> w = CLAIMED /* by the later definition it may be as new, or fit, or not */
    :: !kept && FAULT == 14 && !IS_STATE(SAYS(vk)) && SAYS(vk) != ABSENT && NUMBER(SAYS(vk)) == n ->
        w = SAYS(vk)
    :: else -> w = BOUND_TO(n, vl)
    fi;
    if
    :: vs != 0 && CAN_REST(vs) -> swap_entry(vk, w, vs)
    :: else ->
        swap_entry(vk, w, ABSENT);
        if :: done && EVICT -> truth[vk] = 0 :: else fi
    fi;
    check()
}

inline bind()
{
    if
    :: FAULT == 7 -> vl = sets[n].binding + 1; at = INSTALL
    :: FAULT != 7 && IS_FRESH ->
        by = (from != CLAIMED && by);
        if :: from == CLAIMED -> sets[n].state = 0 :: else -> sets[n].state = from fi;
        if :: FAULT == 12 && vk -> skip :: else -> sets[n].binding++ fi;
        sets[n].phase = BINDING; sets[n].key = k; sets[n].waiters = 0;
        sets[n].binder = me; sets[n].generation = generation[me];
        if :: from != CLAIMED -> tries++ :: else fi;
        vl = sets[n].binding;
        published_version();
        at = INSTALL
    :: else -> at = FIND
    fi
}

inline install()
{
    if
    :: from == CLAIMED ->
        done = IS_MINE;
        if
        :: done -> moved = 255; id[AT(k)] = ENTRY; word[AT(k)] = BOUND_TO(n, vl); tag[AT(k)] = 0
        :: else
        fi
    :: else -> swap_entry(k, from, BOUND_TO(n, vl))
    fi;
    at = (done -> FIND : (FAULT == 11 -> FIND : GIVE_BACK));
    check()
}

/* It was bound in vain: by the definition that has the key set now, and until it is free. */
inline look_in_vain()
{
    done = (sets[n].by > def);
    if
    :: done && FAULT == 20 -> at = FIND
    :: else ->
        def = def || done;
        READ;
        at = (sets[n].phase == BINDING && sets[n].binding == vl && SAYS(k) != BOUND_TO(n, vl) ->
                  IN_VAIN : FIND)
    fi;
    if :: at == FIND -> moved = moved | (1 << me) :: else fi
}

inline drop()
{
    if
    :: from == CLAIMED && IS_MINE -> moved = 255; id[AT(k)] = 0; word[AT(k)] = 0; tag[AT(k)] = 0
    :: else
    fi;
    finish()
}

#define IS_BOUND (sets[n].phase != UNBOUND && (sets[n].binding == BINDING_OF(w) || FAULT == 9))

inline read_key_set()
{
    READ;
    vk = k; vl = sets[n].binding; vs = sets[n].state;
    if
    :: HAS_MOVED -> def = true; moved = moved | (1 << me); at = FIND
    :: !HAS_MOVED && FAULT == 10 && IS_STATE(w) -> at = PUBLISH
    :: !HAS_MOVED && IS_BOUND && kind == TAKE && (vs == CAPACITY || sets[n].waiters) ->
        waits = true; at = PUBLISH
    :: !HAS_MOVED && IS_BOUND && kind == TAKE && !(vs == CAPACITY || sets[n].waiters) -> at = PUBLISH
    :: !HAS_MOVED && IS_BOUND && kind == GIVE -> at = PUBLISH
    :: !HAS_MOVED && !IS_BOUND && vl == BINDING_OF(w) ->
        at = (CAN_REST(vs) && !IS_OUTDATED -> RELEASE : REVIVE)
    :: !HAS_MOVED && !IS_BOUND && vl == BINDING_OF(w) + 1 && sets[n].phase == BINDING && sets[n].key == k ->
        at = (FAULT == 13 -> FIND : HELP)
    :: else -> at = FIND
    fi
}

/* The first waiter is granted what is given back. */
inline hand_over()
{
    c = 0;
    do
    :: c < THREADS && !(sets[n].waiters & (1 << c)) -> c++
    :: else -> break
    od;
    sets[n].waiters = sets[n].waiters & ~(1 << c);
    record[c] = HELD;
    queue_of[c] = (FAULT == 10 -> n : NOBODY);
    looked = looked & ~(1 << c);
    record[r] = FREE;
    decided();
    c = 0
}

inline stay()
{
    if :: FAULT == 10 -> queue_of[r] = n :: else fi
}

inline publish()
{
    if
    :: IS_FRESH ->
        sets[n].phase = BOUND; sets[n].binder = 0; sets[n].generation = 0;
        if
        :: kind == TAKE && !waits -> sets[n].state++; take(); stay()
        :: kind == TAKE && waits ->
            sets[n].waiters = sets[n].waiters | (1 << r); record[r] = WAITING; queue_of[r] = n
        :: kind == GIVE && sets[n].waiters -> hand_over()
        :: kind == GIVE && !sets[n].waiters ->
            if :: sets[n].state -> sets[n].state-- :: else fi;
            give()
        fi;
        published_version();
        at = (waits && RELOAD -> WAIT_LOOK : LEAVE)
    :: else -> at = FIND
    fi;
    waits = false; vk = 0; vl = 0; vs = 0; w = 0
}

/* The walk finds it, or it finds the reload. */
inline wait_look()
{
    if
    :: published && !def && FAULT != 17 && !sets[n].by -> move_key_set(n)
    :: else
    fi;
    if :: record[r] == WAITING -> looked = looked | (1 << r) :: else fi;
    check();
    at = LEAVE
}

inline leave()
{
    if
    :: (!sets[n].by || def) && !IS_OUTDATED && (!sets[n].waiters || FAULT == 6) && sets[n].phase == BOUND && CAN_REST(sets[n].state) ->
        READ;
        vk = sets[n].key; vl = sets[n].binding; vs = sets[n].state;
        at = (FAULT == 15 -> RELEASE : LEAVE_IDLE);
        left = true
    :: else -> finish()
    fi
}

inline revive()
{
    if
    :: IS_FRESH ->
        sets[n].phase = (FAULT == 5 -> BOUND : BINDING);
        if :: FAULT != 5 -> sets[n].binding++ :: else fi;
        vl = sets[n].binding;
        sets[n].binder = me; sets[n].generation = generation[me];
        published_version();
        at = (FAULT == 5 -> FIND : REVIVE_SWAP)
    :: else -> at = FIND
    fi
}

inline revive_swap()
{
    swap_entry(k, w, BOUND_TO(n, BINDING_OF(w) + 1));
    at = (done || SAYS(k) == BOUND_TO(n, BINDING_OF(w) + 1) -> FIND : GIVE_BACK);
    check()
}

inline cancel()
{
    if
    :: record[r] == WAITING ->
        n = queue_of[r];
        if :: sets[n].by -> def = true :: else fi;
        READ;
        at = CANCEL_IT
    :: else -> finish()
    fi
}

inline cancel_it()
{
    if
    :: IS_FRESH ->
        assert(record[r] == WAITING);
        sets[n].waiters = sets[n].waiters & ~(1 << r); record[r] = FREE; queue_of[r] = NOBODY;
        looked = looked & ~(1 << r);
        published_version();
        at = LEAVE
    :: else -> at = CANCEL
    fi
}

#define STEP(where, what) d_step { at == where -> what }

/* The last one recovers the dead one. Its number is then used again. */
proctype thread(byte me)
{
    byte at, kind, turns, tries, first, swept, r = me, k, w, n, vk, vl, vs, from, i, c;
    bool done, waits, left, def, by, kept;

    if
    :: me == THREADS ->
        victim != NOBODY;
        r = victim;
        turns = ROUNDS - (record[r] != FREE);
        at = (record[r] == FREE -> END : START)
    :: else
    fi;
    k = KEY_OF(r);
#if SETS > 1
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
    :: STEP(CLAIM_LOOK, claim_look())
    :: STEP(COMMIT, commit())
    :: STEP(RENEW, renew())
    :: STEP(WAIT_LOOK, wait_look())
    :: STEP(SWEEP, sweep())
    :: STEP(IS_DEAD, proc_stat_is_dead())
    :: STEP(LOOK_DEAD, look_dead())
    :: STEP(LOOK_ALIVE, look_alive())
    :: STEP(COMPLETE, swap_entry(vk, w, BOUND_TO(n, vl)); at = SWEEP; check())
    :: STEP(SWEEP_IDLE, go_idle(LOOK_IDLE); IF_NOT(next_one()))
    :: STEP(LOOK_IDLE, look_idle())
    :: STEP(SWEEP_SWAP, release(); if :: kept -> next_one() :: else -> at = BIND fi; kept = false)
    :: STEP(BIND, bind())
    :: STEP(INSTALL, install())
    :: STEP(GIVE_BACK, look_in_vain())
    :: STEP(IN_VAIN, go_idle(FIND); IF_NOT(at = GIVE_BACK))
    :: STEP(FULL, drop())
    :: STEP(ON_KEY_SET, read_key_set())
    :: STEP(PUBLISH, publish())
    :: STEP(LEAVE, leave())
    :: STEP(LEAVE_IDLE, go_idle(RELEASE); IF_NOT(finish()))
    :: STEP(RELEASE, release(); kept = false; if :: left -> finish() :: else -> at = FIND fi)
    :: STEP(REVIVE, revive())
    :: STEP(REVIVE_SWAP, revive_swap())
    :: STEP(HELP, swap_entry(vk, w, BOUND_TO(n, BINDING_OF(w) + 1)); at = FIND; check())
    :: STEP(CANCEL, cancel())
    :: STEP(CANCEL_IT, cancel_it())
    :: at == END -> break
#if RESCUERS
    :: atomic { me < THREADS && victim == NOBODY -> victim = me }; break
#endif
    od;
    atomic {
        if :: me == THREADS -> generation[victim] = 1 :: else fi;
        finish();
        turns = 0; at = 0; r = 0; first = 0; def = 0
    }
}

#if RELOAD
proctype reload()
{
    byte n, i, c, k, me = THREADS + RESCUERS;
    bool done, def = true, by;

    d_step { published = true; moved = 255 };
    do
    :: d_step { n < SETS -> if :: !sets[n].by && sets[n].waiters -> move_key_set(n) :: else fi; check(); n++ }
    :: n == SETS -> break
    od;
    n = 0;
    d_step { walked = true; check() };
    do
    :: d_step {
            i < PLACES ->
            if
            :: id[i] & 1 && !tag[i] -> moved = 255; id[i] = 0; word[i] = 0
            :: id[i] && !(id[i] & 1) && !tag[i] && IS_STATE(word[i]) && CAN_REST(word[i]) ->
                moved = 255; tag[i] = true
            :: else
            fi;
            check();
            i++
        }
    :: i == PLACES -> break
    od;
    i = 0;
    d_step { k = 0; me = 0; def = 0; done = 0; by = 0 }
}
#endif

/* Whether a thread that has the time finds that the key set can be bound. */
inline check_bindable(n)
{
    c = SAYS(sets[n].key);
    if
    :: sets[n].key == 0
    :: sets[n].key != 0 && (c == BOUND_TO(n, sets[n].binding) || c == BOUND_TO(n, sets[n].binding - 1)) ->
        assert(CAN_GO(sets[n].state) || CAN_REST(sets[n].state));
        assert(!sets[n].waiters)
    :: else ->
        assert(sets[n].phase == UNBOUND || sets[n].binder == victim);
        assert(sets[n].phase == UNBOUND || (sets[n].phase == BINDING && FAULT != 8))
    fi
}

init {
    byte i, c;
    bool def = published;

    atomic {
        do
        :: i < THREADS -> queue_of[i] = NOBODY; i++
        :: else -> break
        od;
        i = 0;
#if LEFT
        id[0] = 2; word[0] = BOUND_TO(0, 1); truth[1] = 1;
        sets[0].key = 1; sets[0].binding = 1; sets[0].state = 1;
#endif
        do
        :: i < THREADS + RESCUERS -> run thread(i); i++
        :: else -> break
        od;
#if RELOAD
        run reload();
#endif
        i = 0
    };
    timeout;
    def = published;
    d_step {
        check();
        do
        :: i < THREADS -> assert(record[i] == FREE); i++
        :: else -> break
        od;
        assert(EVICT || (truth[1] == 0 && truth[2] == 0));
        i = 0;
        do
        :: i < SETS -> check_bindable(i); i++
        :: else -> break
        od
    }
}
