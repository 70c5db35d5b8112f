/* SPDX-License-Identifier: MIT */
/*
 * A model of direct doorbells (core/shm/direct_doorbell.h): a process waits WAITS times with one
 * record, each time with the descriptor of a FIFO. GRANTERS threads of other processes grant, and
 * notify at any time afterwards; each may notify of what another one has granted. Atomic here is one
 * access to a word that processes share, or to the FIFO. CANCELS: a wait may end otherwise. DEATHS: a
 * granter may die at any step, and then a thread that recovers what it held notifies in its place.
 *
 * Checked: a FIFO that is open for a wait is never readable before that is decided, and each wait
 * that is decided ends, as its descriptor is signaled.
 *
 * Defined from outside: WAITS, GRANTERS, CANCELS, DEATHS, FAULT (0: none), each of which must be
 * found: 1 a granter does not count itself   2 it does not look whether the turn is still its own
 *   3 a FIFO is used again without a look for granters   4 its number is not taken back
 *   5 a granter rings for a record that waits   6 what is noted as rung is never rung by another one
 *   7 a FIFO is used again as it was left
 */
#ifndef FAULT
#define FAULT 0
#endif
#ifndef WAITS
#define WAITS 3
#endif
#ifndef GRANTERS
#define GRANTERS 1
#endif
#ifndef CANCELS
#define CANCELS 0
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#define NUMBERS (WAITS + 1)

#define FREE     0
#define WAITING  1
#define HELD     2
#define CANCELED 3

byte word = FREE;   /* state of the record */
byte number;        /* in its wait target; 0: its wait timer is to be notified */
byte turn, count;   /* in its data */
bit rung;
bit timer;          /* the wait timer was notified */
bit fifo[NUMBERS];  /* readable */
byte opened;        /* number of the FIFO with a descriptor for this wait; 0: none */
bit is_over;        /* the owner has done all its waits */
byte died;

/* A granter that has counted itself writes only for what it has found HELD. */
inline write(n)
{
    assert(!(opened == n && word == WAITING));
    fifo[n] = 1
}

inline die()
{
    if
    :: atomic { DEATHS && !died -> died = 1 }
        goto dead
    :: true
    fi
}

/* direct_doorbell_ring(), and the wait timer's doorbell if that returns false. */
inline notify(n, mine, must)
{
    n = number;
    if
    :: n ->
        atomic {
            mine = turn;
            count = count + (FAULT != 1)
        }
        die();
        n = number;
        die();
        if
        :: turn != mine && FAULT != 2 -> n = 0
        :: else
        fi;
        if
        :: word != HELD && FAULT != 5 -> n = 0
        :: else
        fi;
        die();
        if
        :: n ->
            atomic {
                must = !rung || (count > 1 && FAULT != 6);
                rung = (turn == mine -> 1 : rung)
            }
            die();
            if
            :: must -> atomic { write(n) }
            :: else
            fi;
            die()
        :: else
        fi;
        atomic {
            if
            :: turn == mine && FAULT != 1 -> count--
            :: else
            fi
        }
    :: else
    fi;
    if
    :: !n -> timer = 1
    :: else
    fi
}

proctype granter()
{
    byte n, mine, told;
    bit must;
    do
    :: atomic { word == WAITING -> word = HELD }
        die();
        notify(n, mine, must)
    :: word == HELD && told < WAITS -> /* another one has granted, and may be dead */
        told++;
        notify(n, mine, must)
    :: is_over -> break
    od;
dead:
    skip
}

/* Notifies of what the dead granter has decided. */
proctype rescuer()
{
    do
    :: died && (word == HELD || word == CANCELED) -> timer = 1; break
    :: is_over -> break
    od
}

/* direct_doorbell_ring_own() and direct_doorbell_take_back(). */
inline signal(bell, must)
{
    atomic {
        must = !rung || (count > 0 && FAULT != 6);
        rung = 1
    }
    if
    :: must -> atomic { write(bell) }
    :: else
    fi;
    take_back(bell)
}

inline take_back(bell)
{
    if
    :: FAULT != 4 && number == bell -> number = 0
    :: else
    fi
}

active proctype owner()
{
    byte bell, last, lent, i;
    bit must;

    do
    :: i < WAITS ->
        i++;
        word = WAITING;
        if
        :: !bell || (FAULT != 3 && (lent != turn || count)) -> /* none, or thrown away */
            last++;
            bell = last
        :: else -> fifo[bell] = (FAULT == 7 -> fifo[bell] : 0)
        fi;
        atomic { /* the descriptor is not given to the program before it is lent */
            turn++;
            lent = turn;
            rung = 0;
            count = 0
        }
        number = bell;
        atomic {
            opened = bell;
            assert(word != WAITING || !fifo[bell])
        }
        do
        :: fifo[bell] -> break
        :: timer ->
            timer = 0;
            if
            :: word != WAITING -> signal(bell, must)
            :: else
            fi
        :: CANCELS && word == WAITING ->
            atomic {
                if
                :: word == WAITING -> word = CANCELED
                :: else
                fi
            }
            signal(bell, must)
        od;
        assert(word != WAITING);
        take_back(bell);
        atomic {
            opened = 0;
            word = FREE
        }
    :: else -> break
    od;
    is_over = 1
}

init
{
    byte i;

    atomic {
        do
        :: i < GRANTERS -> run granter(); i++
        :: i == GRANTERS -> break
        od;
        if
        :: DEATHS -> run rescuer()
        :: else
        fi
    };
    timeout; /* nothing moves any more */
    assert(is_over)
}
