#!/bin/sh
# SPDX-License-Identifier: MIT
# Counts the system calls of `idle` between its two lines, of all its threads; there must be none
# but the sleep of its first thread.
#
#     idle.sh PROGRAM alone | waiters [SECONDS] | queue [SECONDS]
set -eu

program=$1
mode=$2
seconds=${3:-3}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

if ! strace -f -o /dev/null true 2>/dev/null; then
    echo "SKIPPED: strace is missing or may not trace here; idle waiters were not watched" >&2
    exit 77
fi

case $mode in
alone)
    sleeps=0
    set -- alone
    ;;
waiters)
    sleeps=2 # begun, resumed
    set -- waiters "$seconds"
    ;;
queue)
    sleeps=1 # there is no other thread
    set -- queue "$seconds"
    ;;
esac
strace -f -qq -o "$log" "$program" "$@"

# strace puts the thread's number first; its own remarks begin with +++ or ---.
awk -v sleeps="$sleeps" '
    /write\(1, "begin/ { watching = 1; begun = 1; next }
    /write\(1, "end/ { watching = 0; ended = 1 }
    !watching { next }
    /clock_nanosleep|epoll_p?wait/ && sleeps-- > 0 { next }
    { print "a system call: " $0; calls++ }
    END {
        if (!begun || !ended) { print "the program did not get there"; exit 1 }
        print calls + 0, "system calls"
        exit calls > 0
    }' "$log"
