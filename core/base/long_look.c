/* SPDX-License-Identifier: MIT */
/* The question of each thread that is asked in long looks. */
#include "base/long_look.h"

_Thread_local struct long_look *long_look_self __attribute__((tls_model("initial-exec")));
