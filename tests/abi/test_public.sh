#!/bin/sh
# SPDX-License-Identifier: MIT
# The public headers have the calls and structs of the recorded interface, by abidiff: what programs and
# plugins that exist were compiled with. Calls and structs may be added. Then the check itself is tried: it
# has to see a field that changes its size.
#
#     test_public.sh CC INCLUDE_DIRECTORY PUBLIC_CALLS.PY PUBLIC.ABI [--record]
set -eu

compiler=$1 include=$2 script=$3 recorded=$4 record=${5:-}
command -v abidiff > /dev/null || {
    echo "SKIPPED: there is no abidiff (package abigail-tools)" >&2
    exit 77
}
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

compile() {
    python3 "$script" "$1" > "$directory/public.c"
    # shellcheck disable=SC2086 # a compiler may be several words
    (cd "$directory" && $compiler -std=c17 -g -fPIC -shared -fdebug-prefix-map="$directory"=. -I"$1" -o public.so public.c)
}
compare() {
    abidiff --harmless --no-added-syms "$recorded" "$directory/public.so" > "$directory/changes"
}

compile "$include"
if [ "$record" = --record ]; then
    abidw --no-corpus-path --no-comp-dir-path --no-show-locs --out-file "$recorded" "$directory/public.so"
    exit
fi
compare || {
    cat "$directory/changes"
    echo "the public interface is not the recorded one. If docs/plugin-abi.md and CONTRIBUTING.md allow the"
    echo "change, as a struct that grows at its end: ninja -C BUILD record-abi"
    exit 1
}
cp -r "$include" "$directory/changed"
sed -i 's/^    uint64_t state_id;/    uint32_t state_id;/' "$directory/changed/weir/plugin.h"
! cmp -s "$include/weir/plugin.h" "$directory/changed/weir/plugin.h"
compile "$directory/changed"
! compare || {
    echo "a field of another size is not noticed"
    exit 1
}
