#!/bin/sh
# SPDX-License-Identifier: MIT
# What `weir plugin new` writes is built against the installed weir, tested by its own `make check` (the
# validator; by name from YAML, in one program, between processes and per subject, against a reference), and
# installed. A plugin that decides otherwise is found by its test. The weir that is used is that of
# pkg-config, PATH and LD_LIBRARY_PATH.
#
#     test_kit.sh algorithm|balancer c|c++|rust COMPILER DIRECTORY
set -eu

kind=$1 language=$2 compiler=$3 directory=$4
name=acme.$kind
command -v "${compiler%% *}" >/dev/null || {
    echo "there is no $compiler: no $kind in $language was built"
    exit 77
}
umask 002 # the files are fit for use all the same
case $language in
c) set -- "CC=$compiler" "CFLAGS=-O2 -Wall -Wextra -Wpedantic -Wshadow -Werror" ;;
c++) set -- "CXX=$compiler" "CXXFLAGS=-O2 -Wall -Wextra -Wpedantic -Wshadow -Werror" ;;
rust) set -- "CARGO=$compiler" ;;
esac

fail()
{
    echo "$*"
    exit 1
}

# Expects a test of the directory to fail, with these words.
expect()
{
    words=$1
    shift
    if "$@" >"$directory/said" 2>&1; then
        fail "this finds nothing: $*"
    fi
    grep -q "$words" "$directory/said" || {
        cat "$directory/said"
        fail "this does not say \"$words\": $*"
    }
}

weir plugin new "$kind" --language "$language" --directory "$directory" "$name"
make -C "$directory" "$@" check
make -C "$directory" "$@" DESTDIR="$directory/root" install
[ -f "$directory/root$(pkg-config --variable=plugindir weir-plugin)/$name.so" ] || fail "it was not installed"
git -C "$directory" init -q
git -C "$directory" ls-files --others --exclude-standard >"$directory/root/files"
! grep -v '^[A-Za-z]*\.[a-z]*$\|^\.gitignore$\|^Makefile$\|^Cargo.lock$\|^root/' "$directory/root/files" ||
    fail "this is built, and not ignored"

# Faults that look alike in all languages.
sed -i -E 's/gap_ns\);$/gap_ns \/ 2);/; s/(ready_at_ns <= request(\.|->)now_ns)/\1 + 100/' "$directory"/plugin.*
make -C "$directory" "$@" "$name.so"
case $kind in
algorithm) expect 'it grants too early\|it foresees another instant' "$directory/test" "$directory" ;;
balancer) expect 'a cheaper set\|was not picked\|grants too early' "$directory/test" "$directory" ;;
esac

# Another layout than that of the headers.
[ "$language" = rust ] || exit 0
sed -i 's/pub route: u64/pub route: u32/' "$directory/weir.rs"
expect '^> weir_pick.route 24 4$' make -C "$directory" "$@" layout
