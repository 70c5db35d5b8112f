/* SPDX-License-Identifier: MIT */
/* Which directory has the segments of an instance. */
#ifndef WEIR_CORE_SHM_SEGMENT_DIR_CHOOSE_H
#define WEIR_CORE_SHM_SEGMENT_DIR_CHOOSE_H

#include "base/error.h"
#include <weir/instance.h>

/*
 * As the options say, or `configured`, or the environment; NULL: the default. Returns 0, -EINVAL (it
 * is no absolute path: a relative one would be another directory in every process) or -ENOMEM.
 * `*ret` goes back with os_free.
 */
int segment_dir_choose(const struct weir_options *options, const char *configured,
                       struct complaints *complaints, char **ret);

#endif
