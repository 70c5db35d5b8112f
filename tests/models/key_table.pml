/* SPDX-License-Identifier: MIT */
/*
 * A model of the key table (core/shm/key_table.c). Each thread looks for a key in its places and
 * decides by a compare-and-swap if the key is there. Otherwise the thread claims a place, searches
 * again, and commits. Afterwards it may forget the key. The last thread uses another key, which has
 * the same places. Any thread may stop for ever before any step, which is what death is here: no
 * thread waits for it.
 *
 * What is atomic here is one load of a slot or of its id, or one compare-and-swap of it. A search
 * loads all ids of a bucket, and then those slots again that seem to be the key's. What is chosen is
 * left open: a thread takes any place, be it empty, a key's (which is forgotten or evicted then) or
 * only claimed. That may even be a place that its own key has got since the search.
 *
 * RELOAD: the table is tagged, and a reload publishes a later definition (core/keyed/keyed_moved.c)
 * at any time, then walks over all places. A thread that finds a claim by another definition
 * withdraws it. A thread that has claimed looks whether there is a successor, and begins again by
 * that. Both threads and the walk give what they find of the earlier definition the later tag.
 *
 * Checked: no key is ever in two places; no decision on a new key uses a clock that was read before
 * the key was last taken out; no decision is lost or counted twice; no decision by the earlier
 * definition follows one by the later; every living thread comes to an end. Defined from outside:
 * THREADS, OTHERS (how many of them use the other key), PLACES, BUCKET (places in each bucket),
 * ATTEMPTS, RELOAD, FAULT (0: none), each of which must be found; key_table.plan says in which
 * search:
 *   1 a claim is granted without a second search    2 the search sees no claims but its own
 *   3 all nonces are the same                       4 the clock is read before the claim
 *   5 a decision looks at the key alone             6 claims of the same key are not withdrawn
 *   7 a claim of another thread is taken over at first sight
 *   8 a thread that has claimed does not look for a successor
 *   9 a claim by another definition is taken over  10 a decision leaves the tag of an earlier one
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
byte decided[3], recorded[3], removals[3]; /* by key: decisions that were made; what went with keys
                                              that were taken out; how often one was */
bool published; /* there is a later definition */
bool latest[3]; /* by key: of the last decision */

inline leaves(p)
{
    if
    :: IS_ENTRY(id[p]) ->
        recorded[KEY_OF(id[p])] = recorded[KEY_OF(id[p])] + word[p];
        removals[KEY_OF(id[p])]++
    :: else
    fi
}

/* Compares with {x, y} and swaps for {c, d}; `done` says whether. */
inline swap(p, x, y, c, d)
{
    d_step {
        done = (id[p] == (x) && word[p] == (y));
        if
        :: done ->
            if :: !IS_ENTRY(c) || KEY_OF(c) != KEY_OF(x) -> leaves(p) :: else fi;
            id[p] = (c); word[p] = (d)
        :: else
        fi
    }
}

/* A decision is the last one on its key; `found` is the tag that it leaves. */
inline decides(p, d)
{
    assert(!latest[key] || tag);
    latest[key] = tag;
    id[p] = ENTRY_BY(found); word[p] = (d); decided[key]++
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
    :: goto gone /* dies */
    od
}

/* Claims any place, if it is still what it was when it was looked at. */
inline claim()
{
    if
    :: i = 0
    :: i = 1
    :: PLACES > 2 -> i = 2
    fi;
    d_step { a = id[i]; b = word[i]; tries++ };
    swap(i, a, b, CLAIM_BY(tag), (FAULT == 3 -> 0 : 16 * me + tries));
    d_step {
        if
        :: done -> known = i; nonce_known = (FAULT == 3 -> 0 : 16 * me + tries)
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
            assert(before == removals[key]);
            assert(p == 0 || !HAS_KEY(0));
            assert(p == 1 || !HAS_KEY(1));
            assert(PLACES < 3 || p == PLACES - 1 || !HAS_KEY(PLACES - 1))
        :: else
        fi
    }
}

#define IS_VALID (seen == known && nonce == nonce_known && (clear || FAULT == 6))

proctype thread(byte me; byte key)
{
    byte seen, known = NOWHERE, nonce, nonce_known, i, n, matches, a, b, tries, before;
    bool there, found, clear, done, leave, tag;

#if RELOAD
    tag = published;
#endif
    do
    ::  search();
        if
        :: there -> /* decide on what is there */
            if
            :: known != NOWHERE -> swap(known, CLAIM_BY(tag), nonce_known, 0, 0); known = NOWHERE
            :: else
            fi;
            if
            :: found && !tag -> tag = true /* it is of a later definition: again, by that */
            :: else ->
                d_step {
                    done = (id[seen] == ENTRY_BY(found) && (word[seen] == nonce || FAULT == 5));
                    if
                    :: done ->
                        if :: FAULT != 10 -> found = tag :: else fi;
                        decides(seen, nonce + 1)
                    :: else
                    fi
                };
                if
                :: done -> nonce = nonce + 1; break
                :: else
                fi
            fi
        :: !there && seen != NOWHERE && (IS_VALID || FAULT == 7) ->
            if :: FAULT != 4 -> before = removals[key] :: else fi;
            if
            :: published && !tag && FAULT != 8 ->
                swap(seen, CLAIM_BY(found), nonce, 0, 0);
                d_step { known = NOWHERE; tag = true; done = 0 }
            :: !published || tag || FAULT == 8 ->
                commit(seen, nonce);
                if
                :: done -> nonce = 1; break
                :: else -> known = NOWHERE
                fi
            fi
        :: !there && seen != NOWHERE && !IS_VALID && FAULT != 7 ->
            d_step { known = seen; nonce_known = nonce }
        :: !there && seen == NOWHERE ->
            if :: FAULT == 4 -> before = removals[key] :: else fi;
            known = NOWHERE;
            if
            :: tries == ATTEMPTS -> goto gone /* refused */
            :: else
            fi;
            claim();
            if
            :: FAULT == 1 && known != NOWHERE ->
                before = removals[key];
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
    :: swap(seen, ENTRY_BY(tag), nonce, 0, 0)
    :: skip
    fi;
gone:
    seen = 0;
    d_step { known = 0; nonce = 0; nonce_known = 0; i = 0; n = 0; matches = 0; a = 0; b = 0;
        tries = 0; before = 0; there = 0; found = 0; clear = 0; done = 0; leave = 0; tag = 0 }
}

#if RELOAD
/* Claims by the earlier definition go, and its entries become those of the later one. */
proctype reload()
{
    byte i, a, b;
    bool done;

    published = true;
    do
    :: i < PLACES ->
        d_step { a = id[i]; b = word[i] };
        if
        :: a == 0 || TAG_OF(a) -> i++
        :: a != 0 && !TAG_OF(a) && IS_CLAIM(a) -> swap(i, a, b, 0, 0)
        :: a != 0 && !TAG_OF(a) && !IS_CLAIM(a) -> swap(i, a, b, a + 2, b)
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
        :: id[0] = 4; word[0] = 1; decided[1] = 1
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
            leaves(i); i++
        :: else -> break
        od;
        assert(decided[1] == recorded[1] && decided[2] == recorded[2])
    }
}
