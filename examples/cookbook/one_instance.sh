#!/bin/sh
# SPDX-License-Identifier: MIT
# A job of which there is one at a time, here with a job that lasts.
set -eu
backup='weir exec --name cookbook-backup --limit running:1 --timeout 0s --'
started=$(mktemp -u)
mkfifo "$started"
trap 'rm -f "$started"' EXIT

$backup sh -c 'echo "the first backup runs" >"$0"; exec sleep 60' "$started" &
first=$!
cat "$started"

$backup echo "the second backup runs" || echo "the second backup: exit status $?"

kill -9 "$first"
wait "$first" 2>/dev/null || true
$backup echo "the third backup runs"
