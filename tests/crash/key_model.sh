#!/bin/sh
# SPDX-License-Identifier: MIT
# Checks the model of the table of keys with spin, exhaustively, and that each fault seeded into it
# is found.
#
#     key_model.sh MODEL [ACTORS OTHERS PLACES ATTEMPTS [MEGABYTES]]
#
# Without numbers: three actors of one key in two places, and two beside one of another key in three
# places; seconds. The long form is `3 1 2 3`. Exits with 77, after saying so, if there is no spin or
# no gcc.
set -eu
model=$(realpath "$1")
megabytes=${6:-3000}

for tool in spin gcc; do
    if ! command -v "$tool" >/dev/null; then
        echo "SKIPPED: there is no $tool here, so the model of the table of keys was NOT checked" >&2
        exit 77
    fi
done

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"

# check ACTORS OTHERS PLACES ATTEMPTS FAULT: leaves what spin found in `result`. Faults are found too
# soon for optimization to pay.
check() {
    spin -DACTORS="$1" -DOTHERS="$2" -DPLACES="$3" -DATTEMPTS="$4" -DFAULT="$5" -a "$model"
    gcc -O$((2 - ($5 > 0))) -w -DSAFETY -DCOLLAPSE -DMEMLIM="$megabytes" -o pan pan.c
    ./pan -m100000 >result 2>&1 || true
    grep -q 'State-vector' result || { cat result >&2; exit 1; }
}

# As check, without a fault.
prove() {
    check "$1" "$2" "$3" "$4" 0
    grep -E 'errors:|states, stored|error:|assert' result
    grep -q 'errors: 0' result || exit 1
    if grep -Eq 'out of memory|max search depth too small|Search not completed' result; then
        echo "the search was not exhaustive" >&2
        exit 1
    fi
}

if [ $# -gt 1 ]; then
    prove "$2" "$3" "$4" "$5"
else
    prove 3 0 2 2
    prove 3 1 3 1
fi
for fault in 1 2 3 4 5 6 7; do
    check 3 0 2 2 "$fault"
    grep -q 'errors: 1' result || { echo "fault $fault was not found" >&2; exit 1; }
done
echo "each of the 7 seeded faults was found"
