#!/bin/sh
# SPDX-License-Identifier: MIT
# Checks the model of sets that are one word with spin, exhaustively, and that faults seeded into it
# are found: four of them, with the long form all sixteen.
#
#     word_model.sh MODEL [long]
#
# A minute and 1 GB; the long form takes four times that, and 5 GB. Exits with 77, after saying
# so, if there is no spin or no gcc.
set -eu
model=$(realpath "$1")
long=${2:-}

for tool in spin gcc; do
    if ! command -v "$tool" >/dev/null; then
        echo "SKIPPED: there is no $tool here, so the model of words was NOT checked" >&2
        exit 77
    fi
done

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"

# Searches. A death cannot be had with partial-order reduction.
private='-DWORKERS=3 -DSTART=FULL'
boxed='-DWORKERS=3 -DSTART=BOXED'
death='-DLEDGER=1 -DWORKERS=2 -DRESCUERS=1 -DREUSE=0'
dead='-DLEDGER=1 -DWORKERS=2 -DRESCUERS=1 -DSTART=DEAD'
others='-DLEDGER=1 -DWORKERS=3 -DRESCUERS=1 -DREUSE=0 -DSTART=DEAD'
rescuers='-DLEDGER=1 -DWORKERS=1 -DRESCUERS=2 -DSTART=DEAD'

# search FAULT DEFINITIONS...: leaves what spin found in `result`. Faults are found too soon for
# optimization to pay.
search() {
    fault=$1
    shift
    spin -DFAULT="$fault" "$@" -a "$model"
    reduce=-DNOREDUCE
    case "$*" in *RESCUERS*) ;; *) reduce= ;; esac
    gcc -O$((2 - (fault > 0))) -w -DSAFETY $reduce -DCOLLAPSE -DMEMLIM=8000 -o pan pan.c
    ./pan -E -m30000 -w24 >result 2>&1 || true
    grep -q 'State-vector' result || { cat result >&2; exit 1; }
}

check() {
    search 0 "$@"
    echo "$*"
    grep -E 'errors:|states, stored|error:|assert' result
    grep -q 'errors: 0' result || exit 1
    if grep -Eq 'out of memory|max search depth too small|Search not completed' result; then
        echo "the search was not exhaustive" >&2
        exit 1
    fi
}

# find_faults DEFINITIONS FAULT...
find_faults() {
    definitions=$1
    shift
    for fault; do
        search "$fault" $definitions
        grep -q 'errors: 1' result || { echo "fault $fault was not found" >&2; exit 1; }
    done
}

check $private
check $dead
check $rescuers
if [ "$long" = long ]; then
    check -DWORKERS=3
    check -DLEDGER=1 -DWORKERS=3
    check $death
fi
find_faults "$private" 7
find_faults "$boxed" 2
find_faults "$death" 9
find_faults "$rescuers" 11
if [ "$long" = long ]; then
    find_faults "$private" 1 3 4 5 6 8 10 12 13
    find_faults "$rescuers" 14 15
    find_faults "$others" 16
    echo "each of the 16 seeded faults was found"
else
    echo "4 of the 16 seeded faults were tried, and found; the others with: long"
fi
