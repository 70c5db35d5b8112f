#!/bin/sh
# SPDX-License-Identifier: MIT
# A plugin in C++ by the recipe of weir/plugin.h exports its table though everything else is hidden,
# and so does one that declares the table itself.
#
#     test_plugin_in_cpp.sh WEIR INCLUDE_DIRECTORY SOURCE
set -eu

weir=$1 include=$2 source=$3
compilers=
for compiler in ${CXX:-g++ clang++}; do
    if command -v "$compiler" > /dev/null; then
        compilers="$compilers $compiler"
    else
        echo "there is no $compiler: no plugin was compiled by it" >&2
    fi
done
[ -n "$compilers" ] || {
    echo "SKIPPED: no plugin in C++ was tried" >&2
    exit 77
}
umask 022
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
{
    echo '#include <weir/plugin.h>'
    echo 'extern "C" { extern const struct weir_plugin_table weir_plugins_v1; }'
    cat "$source"
} > "$directory/declared.cc"
try() {
    "$1" -std=c++17 -O2 -Wall -Wextra -Wpedantic -Werror -fvisibility=hidden \
        -fvisibility-inlines-hidden -fPIC -shared -I"$include" -o "$directory/hidden.so" "$2"
    WEIR_PLUGIN_PATH='' "$weir" plugins "$directory" | grep -q '^  algorithm hidden 1.0: grants everything$' || {
        echo "$2, compiled by $1, is not taken for a plugin:" >&2
        "$weir" plugins "$directory" >&2
        exit 1
    }
}
for compiler in $compilers; do
    try "$compiler" "$source"
    try "$compiler" "$directory/declared.cc"
done
