/* SPDX-License-Identifier: MIT */
/*
 * A model of the key table (core/shm/key_table.c). Each thread looks for a key in its places and
 * decides by a compare-and-swap if the key is there. Otherwise the thread claims a place, searches
 * again, and commits; or it claims a place first of all. Afterwards it may forget the key. The last thread uses another key, which has
 * the same places. Any thread may stop for ever before any step, which is what death is here: no
 * thread waits for it.
 *
 * What is atomic here is one load of a slot, or one compare-and-swap of it. What is chosen is left
 * open: a thread takes any place that is not its own key's, be it empty, another key's (which is
 * forgotten or evicted then) or only claimed for another.
 *
 * Each removal has an instant, which is noted before it. Those to come are later, and all are later
 * than what the other threads have read from the clock, as that is the worst case.
 *
 * Checked: no key is ever in two places; no decision on a new key is of an instant before one at
 * which the key was taken out; no decision is lost or counted twice; every living thread comes to an
 * end. Defined from outside: THREADS, OTHERS (how many of them use the other key), PLACES,
 * ATTEMPTS, FAULT (0: none), each of which must be found:
 *   1 a claim is granted without a second search    2 the search sees no claims but its own
 *   3 all nonces are the same                       4 what is noted is read before the claim
 *   5 a decision looks at the key alone             6 claims of the same key are not withdrawn
 *   7 a claim of another thread is taken over at first sight
 *   8 a removal is noted after it
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
#ifndef ATTEMPTS
#define ATTEMPTS 3
#endif
#ifndef FAULT
#define FAULT 0
#endif
#define NOWHERE PLACES

/* What a slot says: 0, or twice the key, and one more if it is claimed for it. */
#define ENTRY  (2 * key)
#define CLAIMED (2 * key + 1)

byte id[PLACES], word[PLACES];
byte decided[3], recorded[3], removed[3]; /* by key: decisions that were made; what went with keys
                                             that were taken out; the last instant of that */
byte noted; /* the last instant of a removal, done or to come */

inline leaves(p, instant)
{
    if
    :: id[p] && !(id[p] & 1) ->
        recorded[id[p] / 2] = recorded[id[p] / 2] + word[p];
        if :: removed[id[p] / 2] < instant -> removed[id[p] / 2] = instant :: else fi
    :: else
    fi
}

/* Notes the instant of a removal. */
inline note()
{
    d_step {
        mine = noted + 1;
        if :: FAULT != 8 -> noted = mine :: else fi
    }
}

/* Compares with {a, b} and swaps for {c, d}; `done` says whether. */
inline swap(p, a, b, c, d)
{
    d_step {
        done = (id[p] == (a) && word[p] == (b));
        if
        :: done ->
            if :: (c) != (a) && (c) / 2 != (a) / 2 -> leaves(p, mine) :: else fi;
            id[p] = (c); word[p] = (d)
        :: else
        fi
    }
}

/* Sees all places: `seen` is where the key is (`there`) or its first claim, with its word. */
inline search()
{
    d_step { seen = NOWHERE; there = false; clear = true; nonce = 0; i = 0 };
    do
    :: i == PLACES || there -> break
    :: i < PLACES && !there ->
        d_step { a = id[i]; b = word[i] };
        if
        :: a == ENTRY -> seen = i; there = true; nonce = b
        :: a == CLAIMED && seen != NOWHERE && FAULT != 2 ->
            if
            :: FAULT != 6 -> swap(i, a, b, 0, 0); clear = clear && done
            :: else
            fi
        :: a == CLAIMED && seen == NOWHERE && (FAULT != 2 || i == known) -> seen = i; nonce = b
        :: else
        fi;
        i++
    :: goto gone /* dies */
    od;
    i = 0;
    d_step { a = 0; b = 0; done = 0 }
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
    if
    :: a / 2 != key ->
        if :: a && !(a & 1) -> note() :: else fi;
        swap(i, a, b, CLAIMED, (FAULT == 3 -> 0 : 16 * me + tries));
        if
        :: done -> known = i; nonce_known = (FAULT == 3 -> 0 : 16 * me + tries)
        :: else
        fi;
        if :: FAULT == 8 && noted < mine -> noted = mine :: else fi
    :: else
    fi;
    d_step { i = 0; a = 0; b = 0; done = 0; mine = 0 }
}

proctype thread(byte me; byte key)
{
    byte seen, known = NOWHERE, nonce, nonce_known, i, a, b, tries, before, mine;
    bool there, clear, done;

    if
    :: FAULT == 4 -> before = noted
    :: else
    fi;
    if
    :: claim()
    :: skip
    fi;
    do
    ::  search();
        if
        :: there -> /* decide on what is there */
            if :: known != NOWHERE -> swap(known, CLAIMED, nonce_known, 0, 0); known = NOWHERE :: else fi;
            if
            :: FAULT == 5 ->
                d_step {
                    done = (id[seen] == ENTRY);
                    if :: done -> word[seen] = nonce + 1; decided[key]++ :: else fi
                }
            :: else ->
                d_step {
                    done = (id[seen] == ENTRY && word[seen] == nonce);
                    if :: done -> word[seen] = nonce + 1; decided[key]++ :: else fi
                }
            fi;
            if
            :: done -> nonce = nonce + 1; break
            :: else -> known = NOWHERE
            fi
        :: !there && seen != NOWHERE && ((seen == known && nonce == nonce_known && (clear || FAULT == 6)) || FAULT == 7) ->
            if :: FAULT != 4 -> before = noted :: else fi;
            d_step {
                done = (id[seen] == CLAIMED && word[seen] == nonce);
                if
                :: done ->
                    id[seen] = ENTRY; word[seen] = 1; decided[key]++;
                    assert(before >= removed[key]);
                    assert(seen == 0 || id[0] != ENTRY);
                    assert(seen == 1 || id[1] != ENTRY);
                    assert(PLACES < 3 || seen == PLACES - 1 || id[PLACES - 1] != ENTRY)
                :: else
                fi
            };
            if
            :: done -> nonce = 1; before = 0; break
            :: else -> known = NOWHERE; before = 0
            fi
        :: !there && seen != NOWHERE && !(seen == known && nonce == nonce_known && (clear || FAULT == 6)) && FAULT != 7 ->
            d_step { known = seen; nonce_known = nonce }
        :: !there && seen == NOWHERE ->
            if :: FAULT == 4 -> before = noted :: else fi;
            known = NOWHERE;
            if
            :: tries == ATTEMPTS -> goto gone /* refused */
            :: else
            fi;
            claim();
            if
            :: FAULT == 1 && known != NOWHERE ->
                d_step {
                    done = (id[known] == CLAIMED && word[known] == nonce_known);
                    if
                    :: done ->
                        id[known] = ENTRY; word[known] = 1; decided[key]++;
                        assert(known == 0 || id[0] != ENTRY);
                        assert(known == 1 || id[1] != ENTRY)
                    :: else
                    fi
                };
                seen = known; nonce = 1;
                if :: done -> break :: else fi
            :: else
            fi
        fi
    :: goto gone /* dies */
    od;
    /* It may be forgotten. */
    if
    :: note(); swap(seen, ENTRY, nonce, 0, 0)
    :: skip
    fi;
gone:
    seen = 0;
    d_step { known = 0; nonce = 0; nonce_known = 0; i = 0; a = 0; b = 0; tries = 0;
        before = 0; mine = 0; there = 0; clear = 0; done = 0 }
}

init {
    byte i;

    atomic {
        do
        :: i < THREADS - OTHERS -> run thread(i, 1); i++
        :: i >= THREADS - OTHERS && i < THREADS -> run thread(i, 2); i++
        :: i == THREADS -> break
        od;
        i = 0
    };
    timeout;
    d_step {
        do
        :: i < PLACES -> leaves(i, 0); i++
        :: else -> break
        od;
        assert(decided[1] == recorded[1] && decided[2] == recorded[2])
    }
}
