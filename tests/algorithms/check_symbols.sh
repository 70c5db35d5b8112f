#!/bin/sh
# SPDX-License-Identifier: MIT
# A plugin exports its table and nothing else. An algorithm or a balancer imports nothing but what a
# toolchain adds of itself: memory functions, stack protection, hooks of the loader, and those of the
# sanitizers. A backend, in a folder `backends`, may do I/O and allocate; but it does not print, end
# the process, start threads or processes, or change what happens at signals.
#
#     check_symbols.sh PLUGIN...
set -eu
nm=${NM:-nm}
allowed='^(mem(cpy|move|set|cmp)|__stack_chk_fail|__stack_chk_guard|__cxa_finalize|__gmon_start__|_ITM_(de)?registerTMCloneTable|__tls_get_addr|__(asan|ubsan|tsan|msan|sanitizer|gcov|llvm)_.*)$'
never='^(v?f?printf|__v?f?printf_chk|f?puts|f?putc|putchar|fwrite|perror|v?syslog|std(out|err)|_?exit|_Exit|quick_exit|abort|__assert_fail|v?fork|clone|posix_spawnp?|exec[a-z]+|system|popen|pthread_create|thrd_create|kill|raise|signal|sigaction|pthread_sigmask|sigprocmask|atexit|at_quick_exit|pthread_atfork)$'
sanitizer='^__(asan|ubsan|tsan|msan|sanitizer|odr_asan|gcov|llvm|start___|stop___).*$'
failed=0
for plugin in "$@"; do
    exported=$("$nm" -D --defined-only "$plugin" | awk '{print $NF}' | sed 's/@.*//' |
        grep -Ev "$sanitizer" || true)
    if [ "$exported" != weir_plugins_v1 ]; then
        echo "$plugin exports:" $exported
        failed=1
    fi
    imported=$("$nm" -D --undefined-only "$plugin" | awk '{print $NF}' | sed 's/@.*//')
    case $plugin in
    */backends/*) imported=$(echo "$imported" | grep -E "$never" || true) ;;
    *) imported=$(echo "$imported" | grep -Ev "$allowed" || true) ;;
    esac
    if [ -n "$imported" ]; then
        echo "$plugin imports:" $imported
        failed=1
    fi
done
exit $failed
