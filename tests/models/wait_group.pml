/* SPDX-License-Identifier: MIT */
/*
 * A model of groups (core/api/wait_group.c): requests that wait in several sets, of which the first
 * that is able grants. Each set has one unit, which a holder has at first, and a wait queue. GROUPS
 * requests are submitted to SETS sets each, in different orders, and may be canceled; each member
 * may time out. FAILS: a set may refuse to let a member wait, and then the others may do; or it has
 * got another definition since it was asked, and the group is abandoned: what is asked again is
 * another group. Atomic here is what the code does under the lock of the timer, or what is one change
 * of a set. The delivery of a decision is a step of its own, at any time after the change. So is a
 * withdrawal after it was taken from the list; TAKERS threads try each of them.
 *
 * Checked: when nothing moves any more, each group was decided once, unless no set let it wait, and
 * its program has learned of it, all units are free, and nothing waits. No member is released twice,
 * a winner holds its unit until the program gives it back, and no group is used after it was freed.
 * Defined from outside: SETS, GROUPS, TAKERS, FAILS, FAULT (0: none), each of which must be found:
 *   1 the losers stay in their sets   2 a member that was being enqueued as the group was decided
 *   stays   3 a group is decided again   4 a group may end before all members were submitted
 *   5 a decision before the record was there is lost   6 a surplus grant is not undone
 *   7 what is withdrawn is looked at without being taken
 *   8 an abandoned group withdraws nothing   9 it leaves the member that has won
 *  10 a member that a set has refused counts as one that waits
 */
#ifndef FAULT
#define FAULT 0
#endif
#ifndef SETS
#define SETS 2
#endif
#ifndef GROUPS
#define GROUPS 2
#endif
#ifndef TAKERS
#define TAKERS 2
#endif
#ifndef FAILS
#define FAILS 0
#endif
#define MEMBERS (SETS * GROUPS)
#define M(g, s) ((g) * SETS + (s))
#define NOBODY  255

/* Members in their sets, and groups. */
#define OUT     0
#define WAITING 1
#define HELD    2
#define ENDED   3 /* without a grant */

chan queue[SETS] = [GROUPS] of { byte };
bit is_free[SETS];
byte member[MEMBERS];
bit is_told[MEMBERS];     /* decided, and not delivered yet */
bit in_group[MEMBERS];    /* decisions on it are told to the group */
bit is_added[MEMBERS];    /* the group owns it */
bit is_listed[MEMBERS];   /* to be withdrawn */
bit is_released[MEMBERS];

byte state[GROUPS], winner[GROUPS], undecided[GROUPS], decided_n[GROUPS];
bit is_complete[GROUPS];  /* all members were submitted */
bit is_freed[GROUPS];
byte word[GROUPS];        /* of the record; OUT: none stands for the group yet */
byte done;

/* ---- within an atomic step ---- */

/* Gives the unit of set `s` to the head of its wait queue. */
inline hand_over(s, head) {
    if
    :: nempty(queue[s]) ->
        queue[s]?head;
        member[M(head, s)] = HELD;
        is_told[M(head, s)] = 1;
        head = 0
    :: empty(queue[s]) -> is_free[s] = 1
    fi
}

inline decide(g, m, as, i) {
    assert(as != ENDED || m == NOBODY || is_complete[g]);
    decided_n[g]++;
    state[g] = as;
    winner[g] = m;
    if
    :: m != NOBODY -> in_group[m] = 0; is_added[m] = 0
    :: else
    fi;
    i = 0;
    do
    :: i < SETS && is_added[M(g, i)] ->
        is_added[M(g, i)] = 0;
        in_group[M(g, i)] = 0;
        is_listed[M(g, i)] = (FAULT != 1);
        i++
    :: i < SETS && !is_added[M(g, i)] -> i++
    :: i == SETS -> break
    od;
    i = 0;
    if
    :: word[g] != OUT -> word[g] = as
    :: else
    fi
}

/* Tells the group of a decision on its member. */
inline note(g, m, i) {
    if
    :: !in_group[m] || (state[g] != WAITING && FAULT != 3 && !is_freed[g])
    :: in_group[m] && is_freed[g] -> assert(false)
    :: in_group[m] && !is_freed[g] && (state[g] == WAITING || FAULT == 3) && member[m] == HELD ->
        decide(g, m, HELD, i)
    :: in_group[m] && !is_freed[g] && (state[g] == WAITING || FAULT == 3) && member[m] == ENDED ->
        in_group[m] = 0;
        undecided[g]--;
        winner[g] = m;
        if
        :: undecided[g] == 0 && state[g] == WAITING -> decide(g, m, ENDED, i)
        :: else
        fi
    fi
}

/* ---- processes ---- */

proctype deliver(byte m) {
    byte i;

end:
    do
    :: atomic { is_told[m] -> is_told[m] = 0; note(m / SETS, m, i) }
    od
}

proctype withdraw(byte m) {
    byte head;

end:
    do
    :: atomic { is_listed[m] -> is_listed[m] = (FAULT == 7) };
       atomic {
           is_listed[m] = 0;
           assert(!is_released[m]);
           is_released[m] = 1;
           if
           :: member[m] == WAITING -> queue[m % SETS]??eval(m / SETS)
           :: member[m] == HELD && FAULT != 6 -> hand_over(m % SETS, head)
           :: else
           fi;
           member[m] = OUT
       }
    od
}

/* The deadline of a member. */
proctype expire(byte m) {
end:
    atomic {
        member[m] == WAITING ->
        queue[m % SETS]??eval(m / SETS);
        member[m] = ENDED;
        is_told[m] = 1
    }
}

proctype holder(byte s) {
    byte head;

    atomic { hand_over(s, head) }
}

proctype program(byte g) {
    byte n, s, m, i, head;
    bit at_once, fails;

    do
    :: n < SETS ->
        atomic { /* begins a member */
            s = (g % 2 -> SETS - 1 - n : n);
            m = M(g, s);
            if
            :: state[g] != WAITING -> n = SETS
            :: else -> undecided[g]++; in_group[m] = 1
            fi
        };
        if
        :: n == SETS -> break
        :: else
        fi;
        atomic { /* the set grants it, or enqueues it */
            at_once = is_free[s] && empty(queue[s]);
            if
            :: at_once -> is_free[s] = 0; member[m] = HELD
            :: !at_once -> member[m] = WAITING; queue[s]!g
#if FAILS
            :: fails = 1
#endif
            fi
        };
#if FAILS
        if
        :: fails ->
            atomic { undecided[g] = undecided[g] - (FAULT != 10); in_group[m] = 0; fails = 0 };
            if
            :: n++ /* others may do */
            :: goto abandon
            fi;
            goto next
        :: else
        fi;
#endif
        atomic { /* the group takes it over */
            if
            :: state[g] == WAITING && at_once -> decide(g, m, HELD, i)
            :: state[g] == WAITING && !at_once -> is_added[m] = 1
            :: state[g] != WAITING && winner[g] != m ->
                in_group[m] = 0;
                is_listed[m] = (FAULT != 2)
            :: state[g] != WAITING && winner[g] == m
            fi;
            n++
        }
#if FAILS
        ;
next:   skip
#endif
    :: n == SETS -> break
    od;
    atomic { /* no more follow */
        is_complete[g] = 1;
        if
        :: state[g] == WAITING && FAULT != 4 ->
            undecided[g]--;
            i = 0;
            do
            :: i < SETS && !is_added[M(g, i)] -> i++
            :: else -> break
            od;
            is_freed[g] = (i == SETS); /* no set lets it wait */
            assert(!is_freed[g] || undecided[g] == 0);
            i = 0;
            if
            :: undecided[g] == 0 && !is_freed[g] -> decide(g, winner[g], ENDED, i)
            :: else
            fi
        :: else
        fi
    };
#if FAILS
    if
    :: is_freed[g] -> goto out
    :: else
    fi;
#endif
    atomic { /* a record comes to stand for the group */
        if
        :: state[g] == HELD -> word[g] = HELD
        :: state[g] != HELD && FAULT != 5 -> word[g] = state[g]
        :: state[g] != HELD && FAULT == 5 -> word[g] = WAITING
        fi
    };
    if /* the program waits; it may cancel */
    :: word[g] == HELD || word[g] == ENDED
    :: atomic { word[g] == WAITING && state[g] == WAITING -> decide(g, NOBODY, ENDED, i) }
    fi;
    atomic {
        if
        :: word[g] == HELD ->
            m = winner[g];
            assert(member[m] == HELD && !is_released[m]);
            is_released[m] = 1;
            member[m] = OUT;
            hand_over(m % SETS, head)
        :: word[g] == ENDED && winner[g] != NOBODY -> is_listed[winner[g]] = 1
        :: word[g] == ENDED && winner[g] == NOBODY
        fi;
        done++
    };
#if FAILS
    goto over;
abandon:
    atomic {
        if
        :: state[g] == WAITING && FAULT != 8 -> decide(g, NOBODY, ENDED, i)
        :: state[g] != WAITING && winner[g] != NOBODY -> is_listed[winner[g]] = (FAULT != 9)
        :: else
        fi;
        is_freed[g] = 1
    };
out:
    done++;
over:
    skip
#endif
}

init {
    byte i, j;

    atomic {
        do
        :: i < GROUPS ->
            state[i] = WAITING;
            winner[i] = NOBODY;
            undecided[i] = (FAULT != 4);
            run program(i);
            i++
        :: i == GROUPS -> break
        od;
        i = 0;
        do
        :: i < SETS -> run holder(i); i++
        :: i == SETS -> break
        od;
        i = 0;
        do
        :: i < MEMBERS ->
            run deliver(i);
            run expire(i);
            j = 0;
            do
            :: j < TAKERS -> run withdraw(i); j++
            :: j == TAKERS -> break
            od;
            i++
        :: i == MEMBERS -> break
        od;
        i = 0;
        j = 0
    };
    timeout; /* nothing moves any more */
    assert(done == GROUPS);
    do
    :: i < GROUPS -> assert(decided_n[i] == 1 || (is_freed[i] && !decided_n[i])); i++
    :: i == GROUPS -> break
    od;
    i = 0;
    do
    :: i < SETS -> assert(is_free[i] && empty(queue[i])); i++
    :: i == SETS -> break
    od
}
