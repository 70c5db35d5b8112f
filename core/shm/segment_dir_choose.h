/* SPDX-License-Identifier: MIT */
/* Choice of the segment directory of an instance. */
#ifndef WEIR_CORE_SHM_SEGMENT_DIR_CHOOSE_H
#define WEIR_CORE_SHM_SEGMENT_DIR_CHOOSE_H

#include "base/error.h"
#include <weir/instance.h>

/*
 * Chooses the directory: from the options, else `configured`, else WEIR_PROCESS_DIR, else NULL for
 * the default. Returns 0, -EINVAL (not an absolute path: a relative one differs between processes)
 * or -ENOMEM. The caller frees `*ret` with os_free.
 */
int segment_dir_choose(const struct weir_options *options, const char *configured,
                       struct complaints *complaints, char **ret);

#endif
