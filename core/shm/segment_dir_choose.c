/* SPDX-License-Identifier: MIT */
/* Choosing the segment directory from options, configuration and environment. */
#include "shm/segment_dir_choose.h"
#include "os/os.h"
#include "shm/segment.h"
#include <errno.h>

int segment_dir_choose(const struct weir_options *options, const char *configured,
                       struct complaints *complaints, char **ret)
{
    const char *dir = options->process_dir ? options->process_dir : configured;
    const char *what = "options.process_dir";

    *ret = NULL;
    if (!dir) {
        dir = os_getenv("WEIR_PROCESS_DIR");
        what = "WEIR_PROCESS_DIR";
        if (!dir || !dir[0])
            return 0;
    }
    if (dir[0] != '/') {
        complaints->file = "";
        complaint_add(complaints, -EINVAL, (struct mark){0, 0},
                      "%s is `%s`, not an absolute path: begin it with `/`", what,
                      error_text(dir).text);
        return complaints_report(complaints);
    }
    *ret = os_strdup(dir);
    return *ret ? 0 : -ENOMEM;
}
