#!/bin/bash
# SPDX-License-Identifier: MIT
# Builds weir where liburing cannot be found: pkg-config knows only what weir needs at least, cmocka
# besides, and the header of liburing ends the preprocessor, which runs over every source. Once
# `-During=disabled` is all that is said, once nothing is, for the static library alone. Runs the test
# that shows what is different then, and with --tests those that have to be the same.
#
# usage: tests/programs/test_without_liburing.sh BUILD_DIRECTORY [--tests] [MESON_OPTION]...
set -euo pipefail
umask 022 # plugins that others can write to would be refused

source=$(realpath "$(dirname "$0")/../..")
build=$(realpath -m "$1")
shift
tests=(without_liburing loop_poll)
if [ "${1:-}" = --tests ]; then
    shift
    tests+=(unit_cq readiness interruptions bench_wake_smoke epoll_server)
fi
options=("$@")
rm -rf "$build" "$build"_{plain,disabled}
mkdir -p "$build/pkgconfig" "$build/include"
for name in libfyaml cmocka; do
    ln -s "$(pkg-config --variable=pcfiledir "$name")/$name.pc" "$build/pkgconfig/"
done
echo '#error "there is no liburing"' >"$build/include/liburing.h"

# Sets up a build directory, with further options of meson.
set_up()
{
    PKG_CONFIG_LIBDIR=$build/pkgconfig meson setup "${build}_$1" "$source" --werror \
        "${options[@]}" "${@:2}" >"$build/$1.log" || {
        cat "$build/$1.log"
        return 1
    }
    grep -A 8 '^  Features' "$build/$1.log"
}

# Runs the preprocessor alone over everything that a build directory can compile: tests, too.
preprocess_all()
{
    python3 - "$1" "$build/include" <<'END'
import concurrent.futures, json, pathlib, shlex, subprocess, sys

build = pathlib.Path(sys.argv[1])
seen = set()
for command in json.loads((build / "compile_commands.json").read_text()):
    if not (build / command["file"]).exists():
        continue  # a source that is generated from one of the others
    words = shlex.split(command["command"])
    words = [word for word in words[:words.index("-MD")]
             if not word.endswith(".p")]  # each target's own directory, which is empty
    seen.add((words[0], "-I" + sys.argv[2], *words[1:], "-E", "-o", "/dev/null", command["file"]))


def preprocess(words):
    subprocess.run(words, cwd=build, check=True)


with concurrent.futures.ThreadPoolExecutor(2) as pool:
    list(pool.map(preprocess, seen))
print(len(seen), "compilations need no liburing")
END
}

set_up plain -Dman=disabled -Ddefault_library=static
grep -qE '^ +uring +: no: there is no liburing' "$build/plain.log"
ninja -C "${build}_plain" tools/weir
"${build}_plain/tools/weir" plugins | grep -F '<built in>/gcra.so'

set_up disabled -During=disabled -Dtests=enabled -Dexamples=enabled
grep -qE '^ +uring +: no: -During=disabled' "$build/disabled.log"
ninja -C "${build}_disabled" tools/weir
preprocess_all "${build}_disabled" # generated headers are there
meson test -C "${build}_disabled" --print-errorlogs "${tests[@]}"
