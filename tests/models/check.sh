#!/bin/sh
# SPDX-License-Identifier: MIT
# Checks a model with spin, exhaustively, and that faults seeded into it are found, as the plan
# beside it says: NAME.plan for NAME.pml.
#
#     check.sh MODEL [long]      or WEIR_MODELS=long
#
# A line of the plan is one of
#
#     pan OPTION...                    how all searches go
#     prove DEFINITION...              a search to the end, which finds nothing
#     find FAULT... : DEFINITION...    a search for each of these faults, which finds it
#
# and what begins with `long` is done only in the long form. A search takes at most 8 GB. Exits with
# 77, after saying so, if there is no spin or no gcc.
set -eu
model=$(realpath "$1")
plan=${model%.pml}.plan
form=${2:-${WEIR_MODELS:-short}}
options=

for tool in spin gcc; do
    if ! command -v "$tool" >/dev/null; then
        echo "SKIPPED: there is no $tool here, so $(basename "$model") was NOT checked" >&2
        exit 77
    fi
done

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"

# search FAULT DEFINITION...: leaves what spin found in `result`. A death cannot be had with
# partial-order reduction. Optimization pays as far as the search takes longer than the compiler:
# fully for minutes of it, and not at all for faults, which are found at once.
search() {
    fault=$1
    shift
    spin -DFAULT="$fault" "$@" -a "$model"
    case "$*" in *RESCUERS=[1-9]*) reduce=-DNOREDUCE ;; *) reduce= ;; esac
    if [ "$fault" -gt 0 ]; then level=0; elif [ "$form" = long ]; then level=2; else level=1; fi
    gcc -O$level -w -DSAFETY $reduce -DCOLLAPSE -DMEMLIM=8000 -o pan pan.c
    ./pan $options >result 2>&1 || true
    grep -q 'State-vector' result || { cat result >&2; exit 1; }
}

prove() {
    search 0 "$@"
    echo "$*"
    grep -E 'errors:|states, stored|error:|assert' result
    grep -q 'errors: 0' result || exit 1
    if grep -Eq 'out of memory|max search depth too small|Search not completed' result; then
        echo "the search was not exhaustive" >&2
        exit 1
    fi
}

# find FAULT... : DEFINITION...
find() {
    faults=
    while [ "$1" != : ]; do
        faults="$faults $1"
        shift
    done
    shift
    for each in $faults; do
        search "$each" "$@"
        grep -q 'errors: 1' result || { echo "fault $each was not found" >&2; exit 1; }
        found=$((found + 1))
    done
}

found=0
while read -r first rest <&3; do
    if [ "$first" = long ]; then
        [ "$form" = long ] || continue
        first=${rest%% *}
        rest=${rest#* }
    fi
    case $first in
        '' | '#'*) ;;
        pan) options=$rest ;;
        prove | find) $first $rest ;;
        *) echo "$plan: there is no $first" >&2; exit 1 ;;
    esac
done 3<"$plan"
[ "$found" -gt 0 ] || { echo "$plan: no fault is looked for" >&2; exit 1; }
echo "$found seeded faults were looked for, and found"
