#!/bin/bash
# SPDX-License-Identifier: MIT
# Installs weir into a prefix of its own and uses it from there as a stranger would: by pkg-config
# and nothing else. Prints one line per test: pass|fail|skip TAB name TAB reason; what the failed
# ones said goes to standard error.
#
# usage: tests/programs/test_installed.sh BUILD_DIRECTORY
set -euo pipefail
umask 022 # plugins that others can write to would be refused

source=$(realpath "$(dirname "$0")/../..")
build=$(realpath -m "$1")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/prefix
warnings='-std=c17 -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Werror'

# Runs a command as a test of this name.
check()
{
    local name=$1 status=0
    shift
    "$@" >"$scratch/output" 2>&1 || status=$?
    if [ "$status" -eq 0 ]; then
        printf 'pass\t%s\t\n' "installed.$name"
    else
        printf 'fail\t%s\tstatus %s\n' "installed.$name" "$status"
        { echo "--- installed.$name:" && tail -n 40 "$scratch/output" | sed 's/^/    /'; } >&2
    fi
}

build_and_install()
{
    rm -rf "$build"
    meson setup "$build" "$source" --prefix="$prefix" --buildtype=release -Dtests=false \
        -Dexamples=false && meson install -C "$build"
}

installed_files()
{
    local file
    for file in "$libdir/libweir.so" "$libdir/libweir.so.0" "$prefix"/include/weir/{weir,uring}.h \
        "$plugindir"/{fixed_window,gcra,leaky_bucket,sliding_window,token_bucket}.so \
        "$plugindir"/{random,round_robin}.so "$prefix/bin/weir" \
        "$prefix"/share/man/{man1/weir.1,man5/weir.yaml.5,man7/libweir.7}; do
        [ -e "$file" ] || {
            echo "${file#"$prefix/"} was not installed"
            return 1
        }
    done
}

# The library exports what its headers declare, and nothing else.
exports()
{
    nm -D --defined-only "$libdir/libweir.so" | awk '$2 != "A" { sub("@.*", "", $3); print $3 }' |
        sort -u >"$scratch/exported"
    cat "$prefix"/include/weir/*.h |
        tr '\n' ' ' | grep -o 'WEIR_PUBLIC [^;]*(' | sed 's/ *(.*//' |
        grep -oE 'weir_[a-z_]+$' | sort -u >"$scratch/declared"
    diff "$scratch/declared" "$scratch/exported"
}

# The README shows examples/readme.c, word for word.
readme_is_example()
{
    sed -n '/^```c$/,/^```$/p' "$source/README.md" | sed '/^```/d' >"$scratch/readme.c"
    diff "$scratch/readme.c" "$source/examples/readme.c"
}

compile()
{
    # shellcheck disable=SC2046,SC2086 # lists
    "$cc" $warnings -o "$scratch/$2" "$1" $(pkg-config --cflags --libs weir)
}

readme_runs()
{
    WEIR_CONFIG=$source/examples/readme.yaml LD_LIBRARY_PATH=$libdir "$scratch/readme" \
        >"$scratch/said" &&
        diff "$source/tests/programs/readme.expected" "$scratch/said"
}

compile_plugin()
{
    mkdir -p "$scratch/plugins"
    # shellcheck disable=SC2046,SC2086
    "$cc" $warnings -fPIC -shared -fvisibility=hidden -o "$scratch/plugins/quota.so" \
        "$source/tests/programs/outside_plugin.c" $(pkg-config --cflags weir-plugin)
}

plugin_runs()
{
    LD_LIBRARY_PATH=$libdir "$scratch/outside" "$scratch/plugins" >"$scratch/said" &&
        [ "$(cat "$scratch/said")" = "3 granted, then call_count" ] || {
        cat "$scratch/said"
        return 1
    }
}

tool()
{
    env -u WEIR_PLUGIN_PATH -u WEIR_CONFIG LD_LIBRARY_PATH="$libdir" "$prefix/bin/weir" "$@"
}

tool_version()
{
    tool --version | tee /dev/stderr | grep -qF "$(pkg-config --modversion weir)"
}

tool_finds_plugins()
{
    local name
    tool plugins >"$scratch/said" || return 1
    cat "$scratch/said"
    for name in fixed_window gcra leaky_bucket sliding_window token_bucket random round_robin; do
        grep -qw "$name" "$scratch/said" || return 1
    done
}

tool_checks()
{
    tool check "$source/examples/api.yaml"
}

# Without a terminal and without complaints.
page_renders()
{
    LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -l "$1" >"$scratch/page" 2>"$scratch/complaints"
    cat "$scratch/complaints"
    [ -s "$scratch/page" ] && [ ! -s "$scratch/complaints" ]
}

check install build_and_install
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name weir.pc)")
export PKG_CONFIG_PATH
cc=${CC:-gcc}
libdir=$(pkg-config --variable=libdir weir)
plugindir=$(pkg-config --variable=plugindir weir-plugin)
check files installed_files
check exports exports
check readme.same readme_is_example
check readme.compiles compile "$scratch/readme.c" readme
check readme.runs readme_runs
check plugin.compiles compile_plugin
check program.compiles compile "$source/tests/programs/outside.c" outside
check program.runs plugin_runs
check tool.version tool_version
check tool.plugins tool_finds_plugins
check tool.check tool_checks
for page in "$prefix"/share/man/man?/*; do
    check "page.${page##*/}" page_renders "$page"
done
