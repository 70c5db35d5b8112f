#!/bin/sh
# SPDX-License-Identifier: MIT
# systemd takes the units of examples/systemd, and the command the options that they have.
#
# usage: test_units.sh WEIR UNIT...
set -eu
weir=$(realpath "$1")
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

for unit; do
    sed "s|/usr/bin/weir|$weir|; s|/usr/local/bin/report|/bin/echo|" "$unit" >"$scratch/${unit##*/}"
done
mv "$scratch/weir-report@.service" "$scratch/weir-report@today.service"
if command -v systemd-analyze >/dev/null; then
    status=0
    systemd-analyze verify --man=no "$scratch"/* >"$scratch/said" 2>&1 || status=$?
    cat "$scratch/said"
    [ "$status" -eq 0 ] && [ ! -s "$scratch/said" ] || exit 1
fi

# Without systemd there is no socket: the options are right if that is what it says.
exec_start() { sed -n 's/^ExecStart=//p' "$scratch/$1" | sed "s|/etc/weir.yaml|$scratch/weir.yaml|; s|%i|today|"; }
printf 'version: 1\nprocess_dir: %s\n' "$scratch/sets" >"$scratch/weir.yaml"
mkdir -m 700 "$scratch/sets"
! sh -c "$(exec_start weir-metrics.service)" >"$scratch/said" 2>&1
grep -q 'systemd has not passed one socket' "$scratch/said" || { cat "$scratch/said"; exit 1; }
WEIR_PROCESS_DIR=$scratch/sets sh -c "$(exec_start weir-report@today.service)" >"$scratch/said" 2>&1 || { cat "$scratch/said"; exit 1; }
[ "$(cat "$scratch/said")" = today ]
command -v systemd-analyze >/dev/null || {
    echo "there is no systemd-analyze: what systemd takes was not verified"
    exit 77
}
