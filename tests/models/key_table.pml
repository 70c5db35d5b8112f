/* SPDX-License-Identifier: MIT */
/*
 * A model of the key table (core/shm/key_table.c). Each thread looks for a key in its places and
 * decides by a compare-and-swap if the key is there. Otherwise the thread claims a place, searches
 * again, and commits. It may also claim an empty place first of all, and then just looks at the ids
 * of all places. Afterwards it may forget the key. The last thread uses another key, which has the
 * same places. Any thread may stop for ever before any step, which is what death is here: no thread
 * waits for it. To the others a dead thread is a slow one, which all orders have; for the end of a
 * run a thread also may leave at each turn.
 *
 * What is atomic here is one load of a slot or of its id, or one compare-and-swap of it. A search
 * loads all ids of a bucket, and then those slots again that seem to be the key's. What is chosen is
 * left open: a thread takes any place, be it empty, a key's (which is forgotten or evicted then) or
 * only claimed. That may even be a place that its own key has got since the search.
 *
 * Each removal has an instant, which is noted before it (core/keyed/keyed_slot.c). Those to come are
 * later, and all are later than what the other threads have read from the clock, as that is the
 * worst case: a new key begins at the last instant that is noted.
 *
 * RELOAD: the table is tagged, and a reload publishes a later definition (core/keyed/keyed_moved.c)
 * at any time, then walks over all places. A thread that finds a claim by another definition
 * withdraws it. A thread that has claimed looks whether there is a successor, and begins again by
 * that. Both threads and the walk give what they find of the earlier definition the later tag, or
 * remove it if it is as new.
 *
 * Checked: no key is ever in two places; no decision on a new key is of an instant before one at
 * which the key was taken out; no decision is lost or counted twice; no decision by the earlier
 * definition follows one by the later; every living thread comes to an end. Defined from outside:
 * THREADS, OTHERS (how many of them use the other key), PLACES, BUCKET (places in each bucket),
 * ATTEMPTS, RELOAD, FAULT (0: none), each of which must be found; key_table.plan says in which
 * search:
 *   1 a claim is granted without a second search    2 the search sees no claims but its own
 *   3 all nonces are the same                       4 what is noted is read before the claim
 *   5 a decision looks at the key alone             6 claims of the same key are not withdrawn
 *   7 a claim of another thread is taken over at first sight
 *   8 a thread that has claimed does not look for a successor
 *   9 a claim by another definition is taken over  10 a decision leaves the tag of an earlier one
 *  11 a removal is noted after it
 */
#ifndef THREADS
#define THREADS 3
#endif
#ifndef OTHERS
#define OTHERS 1
#endif
#ifndef PLACES
#define PLACES 2
#endif
#ifndef BUCKET
#define BUCKET PLACES
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 3
#endif
#ifndef RELOAD
#define RELOAD 0
#endif
#ifndef FAULT
#define FAULT 0
#endif
#define NOWHERE PLACES

/* What a slot says: 0, or four times the key, and two more by the later definition, and one more if
 * it is claimed for the key. */
#define ENTRY_BY(t)  (4 * key + 2 * (t))
#define CLAIM_BY(t)  (4 * key + 2 * (t) + 1)
#define KEY_OF(x)    ((x) / 4)
#define TAG_OF(x)    ((x) >> 1 & 1)
#define IS_CLAIM(x)  ((x) & 1)
#define IS_ENTRY(x)  ((x) && !((x) & 1))
#define HAS_KEY(p)   (KEY_OF(id[p]) == key && IS_ENTRY(id[p]))

byte id[PLACES], word[PLACES];
byte owed[3];    /* by key: decisions that were made, without those that went with keys */
byte removed[3]; /* by key: the last instant at which one was taken out */
byte noted;      /* the last instant of a removal, done or to come */
byte pending;    /* removals to come, and readings of `noted` that are yet to be used */
bool published;  /* there is a later definition */
bool latest[3];  /* by key: of the last decision */

inline leaves(p, instant)
{
    if
    :: IS_ENTRY(id[p]) ->
        owed[KEY_OF(id[p])] = owed[KEY_OF(id[p])] - word[p];
        assert(!owed[KEY_OF(id[p])]);
        if :: removed[KEY_OF(id[p])] < instant -> removed[KEY_OF(id[p])] = instant :: else fi
    :: else
    fi
}

/* A removal or a reading is over. After the last one the instants no longer matter, and are left
 * out of the state. */
inline settle()
{
    pending--;
    if :: pending == 0 -> noted = 0; removed[1] = 0; removed[2] = 0 :: else fi
}

/* Reads what is noted, for a new key. */
inline reach()
{
    d_step {
        if :: !reads -> reads = true; pending++ :: else fi;
        before = noted
    }
}

inline end_reach()
{
    if :: reads -> reads = false; before = 0; settle() :: else fi
}

/* Compares with {x, y} and swaps for {c, d}; `done` says whether. */
inline swap(p, x, y, c, d)
{
    d_step {
        done = (id[p] == (x) && word[p] == (y));
        if
        :: done ->
            if :: !IS_ENTRY(c) || KEY_OF(c) != KEY_OF(x) -> leaves(p, mine) :: else fi;
            id[p] = (c); word[p] = (d)
        :: else
        fi;
        if :: mine && FAULT != 11 -> mine = 0; settle() :: else fi
    }
}

/* Swaps an entry for what is none of its key, after it has noted the instant, which is `mine`. */
inline remove(p, x, y, c, d)
{
    d_step {
        mine = noted + 1; pending++;
        if :: FAULT != 11 -> noted = mine :: else fi
    };
    swap(p, x, y, c, d)
#if FAULT == 11
    ;
    d_step {
        if :: noted < mine -> noted = mine :: else fi;
        mine = 0; settle()
    }
#endif
}

/* A decision is the last one on its key; `found` is the tag that it leaves. */
inline decides(p, d)
{
    assert(!latest[key] || tag);
    latest[key] = tag;
    id[p] = ENTRY_BY(found); word[p] = (d); owed[key]++;
    assert(owed[key] == (d))
}

/* Looks at slot `i` again, which seemed to be the key's. A claim that is to go is left in a and b. */
inline look()
{
    a = id[i]; b = word[i];
    if
    :: KEY_OF(a) == key && IS_ENTRY(a) ->
        seen = i; there = true; nonce = b; found = TAG_OF(a)
    :: KEY_OF(a) == key && IS_CLAIM(a) ->
        if
        :: (seen != NOWHERE || (TAG_OF(a) != tag && FAULT != 9)) && FAULT != 2 && FAULT != 6 ->
            leave = true
        :: seen == NOWHERE && (TAG_OF(a) == tag || FAULT == 9) && (FAULT != 2 || i == known) ->
            seen = i; nonce = b; found = TAG_OF(a)
        :: else
        fi
    :: else
    fi;
    if :: !leave -> a = 0; b = 0; i = 0 :: else fi
}

/* Sees all places: `seen` is where the key is (`there`) or its first claim, with its word. */
inline search()
{
    d_step { seen = NOWHERE; there = false; clear = true; nonce = 0; found = 0; n = 0 };
    do
    :: d_step {
            !there && n < PLACES && (n % BUCKET || !matches) ->
            if :: KEY_OF(id[n]) == key -> matches = matches | 1 << n :: else fi;
            n++
        }
    :: d_step {
            !there && matches && (n % BUCKET == 0 || n == PLACES) && !leave ->
            do :: !(matches >> i & 1) -> i++ :: else -> break od;
            matches = matches & ~(1 << i);
            look()
        }
    :: d_step {
            leave ->
            done = (id[i] == a && word[i] == b);
            if :: done -> id[i] = 0; word[i] = 0 :: else -> clear = false fi;
            leave = false; i = 0; a = 0; b = 0; done = 0
        }
    :: d_step { (there || (n == PLACES && !matches)) && !leave -> matches = 0; n = 0; i = 0 }; break
    od
}

#define NONCE (FAULT == 3 -> 0 : 16 * me + tries)

/* Claims an empty place, if place p is. */
inline take_empty(p)
{
    tries++;
    id[p] = CLAIM_BY(tag); word[p] = NONCE; known = p; nonce_known = NONCE
}

/* Looks at the ids of all places after that. `only` says that one at most is the key's: the claim,
 * or another after the claim was withdrawn, and then the commit fails. */
inline look_at_ids()
{
    do
    :: d_step {
            n < PLACES ->
            if :: KEY_OF(id[n]) == key -> matches = matches | 1 << n :: else fi;
            n++
        }
    :: d_step {
            n == PLACES ->
            if
            :: !(matches & (matches - 1)) ->
                only = true; seen = known; nonce = nonce_known; found = tag; clear = true;
                there = false
            :: else
            fi;
            n = 0; matches = 0
        };
        break
    od
}

/* Claims an empty place, or does not, without a search before. */
inline claim_first()
{
    if
    :: d_step { tries < ATTEMPTS && !id[0] -> take_empty(0) }
    :: d_step { tries < ATTEMPTS && !id[1] -> take_empty(1) }
    :: d_step { PLACES > 2 && tries < ATTEMPTS && !id[PLACES - 1] -> take_empty(PLACES - 1) }
    :: skip
    fi;
    if
    :: known != NOWHERE -> look_at_ids()
    :: else
    fi
}

/* Claims any place, if it is still what it was when it was looked at. */
inline claim()
{
    if
    :: d_step { a = id[0]; b = word[0]; tries++ }
    :: d_step { i = 1; a = id[1]; b = word[1]; tries++ }
    :: d_step { PLACES > 2 -> i = PLACES - 1; a = id[i]; b = word[i]; tries++ }
    fi;
    if
    :: IS_ENTRY(a) -> remove(i, a, b, CLAIM_BY(tag), NONCE)
    :: else -> swap(i, a, b, CLAIM_BY(tag), NONCE)
    fi;
    d_step {
        if
        :: done -> known = i; nonce_known = NONCE
        :: else
        fi;
        i = 0; a = 0; b = 0; done = 0
    }
}

/* Turns the claim at place p with this word into the entry of a new key. */
inline commit(p, w)
{
    d_step {
        done = (id[p] == CLAIM_BY(found) && word[p] == (w));
        if
        :: done ->
            decides(p, 1);
            assert(before >= removed[key]);
            assert(p == 0 || !HAS_KEY(0));
            assert(p == 1 || !HAS_KEY(1));
            assert(PLACES < 3 || p == PLACES - 1 || !HAS_KEY(PLACES - 1))
        :: else
        fi;
        end_reach()
    }
}

#define IS_VALID (seen == known && nonce == nonce_known && (clear || FAULT == 6))

proctype thread(byte me; byte key)
{
    byte seen, known = NOWHERE, nonce, nonce_known, i, n, matches, a, b, tries, before, mine;
    bool there, found, clear, done, leave, tag, only, reads;

#if RELOAD
    tag = published;
#endif
again:
#if FAULT == 4
    reach();
#endif
    claim_first();
    do
    ::  if :: only -> only = false :: else -> search() fi;
        if
        :: there -> /* decide on what is there */
            if
            :: known != NOWHERE -> swap(known, CLAIM_BY(tag), nonce_known, 0, 0);
                d_step { known = NOWHERE; done = false }
            :: else
            fi;
            if
            :: found && !tag -> tag = true /* it is of a later definition: again, by that */
            :: !found && tag && FAULT != 10 -> /* of an earlier one: renewed, or as new by now */
                swap(seen, ENTRY_BY(false), nonce, ENTRY_BY(true), nonce);
                done = false
            :: !found && tag && FAULT != 10 ->
                remove(seen, ENTRY_BY(false), nonce, 0, 0);
                done = false
            :: found == tag || (tag && FAULT == 10) ->
                d_step {
                    done = (id[seen] == ENTRY_BY(found) && (word[seen] == nonce || FAULT == 5));
                    if
                    :: done -> decides(seen, nonce + 1)
                    :: else
                    fi
                };
                if
                :: done -> nonce = nonce + 1; break
                :: else
                fi
            fi
        :: !there && seen != NOWHERE && (IS_VALID || FAULT == 7) ->
#if FAULT != 4
            reach();
#endif
            if
            :: published && !tag && FAULT != 8 ->
                swap(seen, CLAIM_BY(found), nonce, 0, 0);
                d_step { known = NOWHERE; tag = true; done = 0; end_reach() };
                goto again
            :: !published || tag || FAULT == 8 ->
                commit(seen, nonce);
                if
                :: done -> nonce = 1; break
                :: else -> known = NOWHERE; goto again
                fi
            fi
        :: !there && seen != NOWHERE && !IS_VALID && FAULT != 7 ->
            d_step { known = seen; nonce_known = nonce }
        :: !there && seen == NOWHERE ->
#if FAULT == 4
            reach();
#endif
            known = NOWHERE;
            if
            :: tries == ATTEMPTS -> goto gone /* refused */
            :: else
            fi;
            claim();
            if
            :: FAULT == 1 && known != NOWHERE ->
                reach();
                commit(known, nonce_known);
                seen = known; nonce = 1;
                if :: done -> break :: else fi
            :: else
            fi
        fi
    :: goto gone /* dies */
    od;
    /* It may be forgotten. */
    if
    :: remove(seen, ENTRY_BY(tag), nonce, 0, 0)
    :: skip
    fi;
gone:
#if FAULT == 4
    skip;
    d_step { end_reach() };
#endif
    seen = 0;
    d_step { known = 0; nonce = 0; nonce_known = 0; i = 0; n = 0; matches = 0; a = 0; b = 0;
        tries = 0; only = 0; there = 0; found = 0; clear = 0; done = 0; leave = 0; tag = 0 }
}

#if RELOAD
/* Claims by the earlier definition go, and its entries too, or they become those of the later. */
proctype reload()
{
    byte i, a, b, mine;
    bool done;

    published = true;
    do
    :: i < PLACES ->
        d_step { a = id[i]; b = word[i] };
        if
        :: a == 0 || TAG_OF(a) -> i++
        :: a != 0 && !TAG_OF(a) && IS_CLAIM(a) -> swap(i, a, b, 0, 0)
        :: a != 0 && !TAG_OF(a) && !IS_CLAIM(a) -> swap(i, a, b, a + 2, b)
        :: a != 0 && !TAG_OF(a) && !IS_CLAIM(a) -> remove(i, a, b, 0, 0)
        fi;
        d_step { a = 0; b = 0; done = 0 }
    :: i == PLACES -> break
    od;
    i = 0
}
#endif

init {
    byte i;

    atomic {
        do
        :: i < THREADS - OTHERS -> run thread(i, 1); i++
        :: i >= THREADS - OTHERS && i < THREADS -> run thread(i, 2); i++
        :: i == THREADS -> break
        od;
#if RELOAD
        run reload();
        if
        :: id[0] = 4; word[0] = 1; owed[1] = 1
        :: skip
        fi;
#endif
        i = 0
    };
    timeout;
    d_step {
        do
        :: i < PLACES ->
#if RELOAD
            assert(!IS_ENTRY(id[i]) || TAG_OF(id[i]));
#endif
            leaves(i, 0); i++
        :: else -> break
        od;
        assert(!owed[1] && !owed[2])
    }
}
