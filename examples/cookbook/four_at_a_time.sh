#!/bin/sh
# SPDX-License-Identifier: MIT
# Twelve files are converted, four at a time, by whatever shells and programs do it.
set -eu
log=$(mktemp)
trap 'rm -f "$log"' EXIT
convert='echo + >>"$0"; sleep 0.02; echo - >>"$0"' # stands for a converter

for file in 1 2 3 4 5 6 7 8 9 10 11 12; do
    weir exec --name cookbook-convert --limit slots:4 -- sh -c "$convert" "$log" "$file" &
done
wait

awk '{ n += $1 == "+" ? 1 : -1; if (n > most) most = n }
    END { print NR / 2 " files, " (most > 4 ? "up to " most : "never more than 4") " at a time" }' "$log"
