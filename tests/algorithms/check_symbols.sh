#!/bin/sh
# SPDX-License-Identifier: MIT
# A plugin exports its table and nothing else, and imports nothing but what a toolchain adds of
# itself: memory functions, stack protection, hooks of the loader, and those of the sanitizers.
#
#     check_symbols.sh PLUGIN...
set -eu
nm=${NM:-nm}
allowed='^(mem(cpy|move|set|cmp)|__stack_chk_fail|__stack_chk_guard|__cxa_finalize|__gmon_start__|_ITM_(de)?registerTMCloneTable|__tls_get_addr|__(asan|ubsan|tsan|msan|sanitizer|gcov|llvm)_.*)$'
sanitizer='^__(asan|ubsan|tsan|msan|sanitizer|odr_asan|gcov|llvm|start___|stop___).*$'
failed=0
for plugin in "$@"; do
    exported=$("$nm" -D --defined-only "$plugin" | awk '{print $NF}' | sed 's/@.*//' |
        grep -Ev "$sanitizer" || true)
    if [ "$exported" != weir_plugins_v1 ]; then
        echo "$plugin exports:" $exported
        failed=1
    fi
    imported=$("$nm" -D --undefined-only "$plugin" | awk '{print $NF}' | sed 's/@.*//' |
        grep -Ev "$allowed" || true)
    if [ -n "$imported" ]; then
        echo "$plugin imports:" $imported
        failed=1
    fi
done
exit $failed
