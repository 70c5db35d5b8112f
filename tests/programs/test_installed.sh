#!/bin/bash
# SPDX-License-Identifier: MIT
# Installs weir, both libraries of it, into a prefix of its own and uses it from there as a stranger
# would: by pkg-config and nothing else. Prints one line per test: pass|fail|skip TAB name TAB reason; what the failed
# ones said goes to standard error.
#
# usage: tests/programs/test_installed.sh BUILD_DIRECTORY [MESON_OPTION]...
set -euo pipefail
umask 022 # plugins that others can write to would be refused

source=$(realpath "$(dirname "$0")/../..")
build=$(realpath -m "$1")
options=("${@:2}")
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
    elif [ "$status" -eq 77 ]; then
        printf 'skip\t%s\t%s\n' "installed.$name" "$(tail -n 1 "$scratch/output")"
    else
        printf 'fail\t%s\tstatus %s\n' "installed.$name" "$status"
        { echo "--- installed.$name:" && tail -n 40 "$scratch/output" | sed 's/^/    /'; } >&2
    fi
}

build_and_install()
{
    rm -rf "$build"
    meson setup "$build" "$source" --prefix="$prefix" --werror "${options[@]}" \
        -Ddefault_library=both -Dman=enabled -Dtests=disabled && meson install -C "$build"
}

installed_files()
{
    local file
    for file in "$libdir"/libweir.{so,so.0,a} "$prefix"/include/weir/{weir,uring}.h \
        "$libdir"/pkgconfig/weir{,-uring,-plugin}.pc \
        "$doc"/{LICENSE,README.md,CHANGELOG.md,docs/configuration.md,docs/plugin-abi.md,docs/plugins.md,examples/loops/poll.c,examples/plugin.c} \
        "$plugindir"/{aimd,calendar,fixed_window,gcra,gradient2,leaky_bucket,multi_window,sliding_window,token_bucket,vegas}.so \
        "$plugindir"/{failover,hash,least_loaded,power_of_two,random,round_robin,soonest,weighted}.so "$prefix/bin/weir" \
        "$prefix/share/weir/weir.schema.json" \
        "$prefix"/share/man/{man1/weir.1,man5/weir.yaml.5,man7/libweir.7,man7/weir-uring.7,man7/weir-{plugin,algorithm,balancer}.7} \
        "$prefix"/share/man/man3/weir_{acquire,pools,uring_settle}.3; do
        [ -e "$file" ] || {
            echo "${file#"$prefix/"} was not installed"
            return 1
        }
    done
}

# The public functions, as the headers declare them.
declared()
{
    cat "$prefix"/include/weir/*.h |
        tr '\n' ' ' | grep -o 'WEIR_PUBLIC [^;]*(' | sed 's/ *(.*//' |
        grep -oE 'weir_[a-z_]+$' | sort -u
}

# The library exports what its headers declare, and nothing else.
exports()
{
    nm -D --defined-only "$libdir/libweir.so" | awk '$2 != "A" { sub("@.*", "", $3); print $3 }' |
        sort -u >"$scratch/exported"
    diff <(declared) "$scratch/exported"
}

# So does the static library: no name of the core or of a plugin can clash with one of a program.
static_exports()
{
    nm -g --defined-only "$libdir/libweir.a" | awk 'NF == 3 { print $3 }' | sort -u \
        >"$scratch/exported"
    diff <(declared) "$scratch/exported"
}

# A program needs only the shared library. What is inline in weir/uring.h needs liburing besides.
packages()
{
    pkg-config --print-requires weir >"$scratch/requires"
    [ ! -s "$scratch/requires" ] || {
        echo "weir.pc requires:"
        cat "$scratch/requires"
        return 1
    }
    pkg-config --libs weir | grep -qw -- -lweir || return 1
    ! pkg-config --libs weir | grep -q -- '-luring\|-lfyaml' || return 1
    pkg-config --static --libs weir | grep -w -- -lfyaml | grep -qw -- -luring || return 1
    pkg-config --libs weir-uring | grep -w -- -lweir | grep -qw -- -luring
}

# Every document was installed, and links between them and to the examples lead somewhere. Headers lie
# elsewhere in the installed tree, and so do the man pages.
documents()
{
    local file link wrong=0
    [ -e "$doc/core/README.md" ] || return 1
    diff -r "$source/docs" "$doc/docs" || return 1
    diff "$source/LICENSE" "$doc/LICENSE" || return 1
    while IFS=: read -r file link; do
        link=${link%)}
        link=${link#](}
        case $link in
        http* | '#'* | include/* | */include/* | */man/*) continue ;;
        esac
        [ -e "$(dirname "$file")/${link%%#*}" ] || {
            echo "${file#"$doc/"} links to $link, which was not installed"
            wrong=1
        }
    done < <(grep -oE '\]\([^) ]+\)' -r "$doc" --include='*.md')
    return "$wrong"
}

# An example of the installed ones by its installed package: which, then its source files.
compile_example()
{
    local package=$1 name=$2
    shift 2
    # shellcheck disable=SC2046 # lists
    (cd "$doc/examples" && "${cc[@]}" -D_GNU_SOURCE -std=c17 -Wall -Wextra -Werror -pthread \
        -o "$scratch/example.$name" "$@" $(pkg-config --cflags --libs $package))
}

# Whether a library can be linked with at all; otherwise the test is skipped.
needs()
{
    echo 'int main(void) { return 0; }' |
        "${cc[@]}" -x c -o "$scratch/empty" - -x none "$@" && return 0
    echo "cannot link with $*"
    return 1
}

compile_server()
{
    needs -lhttp_parser || return 77
    compile_example "$1" "$2" "$2.c" http.c notices.c service.c stats.c trace.c -lhttp_parser
}

# With the static library and what it needs as shared libraries, and with nothing shared at all.
compile_static()
{
    mkdir -p "$scratch/static"
    cp "$libdir/libweir.a" "$scratch/static"
    # shellcheck disable=SC2046,SC2086
    "${cc[@]}" $warnings -o "$scratch/static/partly" "$source/tests/programs/static.c" \
        -L"$scratch/static" $(pkg-config --static --cflags --libs weir) &&
        ! readelf -d "$scratch/static/partly" | grep -q 'NEEDED.*weir'
}

# The linker warns of dlopen, which a program without plugin files never calls.
compile_wholly_static()
{
    needs -static -lfyaml -luring || return 77
    # shellcheck disable=SC2046,SC2086
    "${cc[@]}" $warnings -static -o "$scratch/static/wholly" "$source/tests/programs/static.c" \
        $(pkg-config --static --cflags --libs weir)
}

# Runs such a program without any plugin directory.
static_runs()
{
    local status=0
    [ -x "$scratch/static/$1" ] || {
        echo "it was not built"
        return 77
    }
    mv "$plugindir" "$plugindir.away"
    env -i "$scratch/static/$1" >"$scratch/said" || status=$?
    mv "$plugindir.away" "$plugindir"
    [ "$status" -eq 0 ] && diff "$source/tests/programs/static.expected" "$scratch/said"
}

# A file in a directory that is searched stands before the built-in plugin of that name, and this one
# before the installed file.
static_precedence()
{
    mkdir -p "$scratch/files"
    cp "$plugindir/gcra.so" "$scratch/files"
    env -i WEIR_PLUGIN_PATH="$scratch/files" "$scratch/static/partly" --list |
        sed -n 's/: gcra$//p' >"$scratch/said"
    printf '%s\n' "$scratch/files/gcra.so" "<built in>/gcra.so" "$plugindir/gcra.so" |
        diff - "$scratch/said"
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
    "${cc[@]}" $warnings -o "$scratch/$2" "$1" $(pkg-config --cflags --libs weir)
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
    "${cc[@]}" $warnings -fPIC -shared -fvisibility=hidden -o "$scratch/plugins/acme.quota.so" \
        "$doc/examples/plugin.c" $(pkg-config --cflags weir-plugin)
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
    for name in aimd calendar fixed_window gcra gradient2 leaky_bucket multi_window sliding_window token_bucket vegas random \
        round_robin; do
        grep -qw "$name" "$scratch/said" || return 1
    done
}

tool_checks()
{
    tool check "$source/examples/api.yaml"
}

# What `weir plugin new` writes: kind, language, compiler.
kit()
{
    PATH=$prefix/bin:$PATH env -u WEIR_PLUGIN_PATH -u WEIR_CONFIG LD_LIBRARY_PATH="$libdir" \
        "$source/tests/programs/test_kit.sh" "$1" "$2" "$3" "$scratch/kit.$1.$3"
}

# Without a terminal and without complaints.
page_renders()
{
    LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -l "$1" >"$scratch/page" 2>"$scratch/complaints"
    cat "$scratch/complaints"
    [ -s "$scratch/page" ] && [ ! -s "$scratch/complaints" ]
}

# Each call that is exported or inline has a page, and one that leads to another is found by its name.
pages_of_calls()
{
    local man=$prefix/share/man
    python3 "$source/tests/programs/test_man.py" "$source/man/pages.py" "$prefix/include/weir" \
        "$libdir/libweir.so" "$man/man3" "$man/man7" &&
        LC_ALL=C.UTF-8 man -M "$man" 3 weir_pools >"$scratch/page" && grep -q weir_sets "$scratch/page"
}

check install build_and_install
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name weir.pc)")
export PKG_CONFIG_PATH
read -ra cc <<<"${CC:-gcc}"
libdir=$(pkg-config --variable=libdir weir)
plugindir=$(pkg-config --variable=plugindir weir-plugin)
doc=$prefix/share/doc/weir
check files installed_files
check exports exports
check packages packages
check documents documents
check readme.same readme_is_example
check readme.compiles compile "$scratch/readme.c" readme
check readme.runs readme_runs
check plugin.compiles compile_plugin
check program.compiles compile "$source/tests/programs/outside.c" outside
check program.runs plugin_runs
check tool.version tool_version
check tool.plugins tool_finds_plugins
check tool.check tool_checks
for name in readme blocking shared; do
    check "example.$name" compile_example weir $name $name.c
done
for name in poll epoll; do
    check "example.loops.$name" compile_example weir $name loops/$name.c loops/work.c
done
for name in too_many tokens pacing regions tenants; do
    check "example.cookbook.$name" compile_example weir $name cookbook/$name.c
done
check example.cookbook.ring_or_epoll compile_example weir-uring ring_or_epoll cookbook/ring_or_epoll.c
check example.loops.uring compile_example weir-uring uring loops/uring.c loops/work.c
check example.uring_paced_sender compile_example weir-uring uring_paced_sender \
    uring_paced_sender.c receiver.c
check example.uring_proxy compile_example weir-uring uring_proxy uring_proxy.c relay.c proxy.c
check example.epoll_server compile_server weir epoll_server
check example.uring_server compile_server weir-uring uring_server
for kind in algorithm balancer; do
    check "kit.$kind.c" kit $kind c "${cc[*]}"
    check "kit.$kind.g++" kit $kind c++ g++
    check "kit.$kind.clang++" kit $kind c++ clang++
    check "kit.$kind.rust" kit $kind rust cargo
done
check static.exports static_exports
check static.compiles compile_static
check static.runs static_runs partly
check static.precedence static_precedence
check static.wholly.compiles compile_wholly_static
check static.wholly.runs static_runs wholly
check pages.of_calls pages_of_calls
for page in "$prefix"/share/man/man?/{weir.1,weir.yaml.5,libweir.7,weir_open.3}; do
    [ -e "$page" ] || continue
    check "page.${page##*/}" page_renders "$page"
done
