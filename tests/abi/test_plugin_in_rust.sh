#!/bin/sh
# SPDX-License-Identifier: MIT
# A plugin in Rust: a cdylib without link-time optimization exports its table, is listed, and limits.
#
#     test_plugin_in_rust.sh WEIR SOURCE
set -eu

weir=$1 source=$2
command -v rustc > /dev/null || {
    echo "SKIPPED: there is no rustc; no plugin in Rust was tried" >&2
    exit 77
}
umask 022
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
rustc --edition 2021 --crate-type cdylib -O -C panic=abort -A non_upper_case_globals \
    -o "$directory/rusty.so" "$source"
WEIR_PLUGIN_PATH='' "$weir" plugins "$directory" | grep -q '^  algorithm rusty 1.0: so many units in all$' || {
    echo "it is not taken for a plugin:" >&2
    "$weir" plugins "$directory" >&2
    exit 1
}
cat > "$directory/limits.yaml" << END
version: 1
plugin_dirs: [$directory]
sets: { s: { limits: [ { type: call, algorithm: rusty, capacity: 2 } ] } }
END
WEIR_PLUGIN_PATH='' "$weir" check "$directory/limits.yaml" > /dev/null || {
    echo "a configuration with it is refused:" >&2
    WEIR_PLUGIN_PATH='' "$weir" check "$directory/limits.yaml" >&2
    exit 1
}
