#!/bin/sh
# SPDX-License-Identifier: MIT
# Checks the model of publication with spin, exhaustively, and that each fault seeded into it is
# found.
#
#     model.sh MODEL [WORKERS RESCUERS [MEGABYTES]]
#
# Without numbers: two workers, one of which may die, and one rescuer; about a minute. The long form
# is `3 0 8000`: three workers. The same number of workers is tried once more for private sets. Exits
set -eu
model=$(realpath "$1")
workers=${2:-2}
rescuers=${3:-1}
megabytes=${4:-3000}

for tool in spin gcc; do
    if ! command -v "$tool" >/dev/null; then
        echo "SKIPPED: there is no $tool here, so the model of publication was NOT checked" >&2
        exit 77
    fi
done

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"

# check WORKERS RESCUERS PRIVATE FAULT: leaves what spin found in `result`. Faults are found too soon
# for optimization to pay.
check() {
    spin -DWORKERS="$1" -DRESCUERS="$2" -DPRIVATE="$3" -DFAULT="$4" -a "$model"
    gcc -O$((2 - ($4 > 0))) -w -DSAFETY $([ "$2" -eq 0 ] || echo -DNOREDUCE) -DCOLLAPSE -DMEMLIM="$megabytes" -o pan pan.c
    ./pan -E -m1000000 >result 2>&1 || true
    grep -q 'State-vector' result || { cat result >&2; exit 1; }
}

# search WORKERS RESCUERS PRIVATE: exits unless all of it was searched and nothing was found.
search() {
    check "$1" "$2" "$3" 0
    grep -E 'errors:|states, stored|error:|assert' result
    grep -q 'errors: 0' result || exit 1
    if grep -Eq 'out of memory|max search depth too small|Search not completed' result; then
        echo "the search was not exhaustive" >&2
        exit 1
    fi
}

# find RESCUERS PRIVATE FAULT
find() {
    check 2 "$1" "$2" "$3"
    grep -q 'errors: 1' result || { echo "fault $3 was not found" >&2; exit 1; }
}

search "$workers" "$rescuers" 0
search "$workers" 0 1
for fault in 1 2 3 4 5; do
    find 1 0 "$fault"
done
for fault in 6 7; do
    find 0 1 "$fault"
done
echo "each of the 7 seeded faults was found"
