/* SPDX-License-Identifier: MIT */
/* Files of the plot. */
#include "plot.h"
#include <errno.h>
#include <spawn.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int fail(const struct simulation *simulation, const char *path, const char *why)
{
    fprintf(stderr, "%s: %s: %s\n", simulation->command, path, why);
    return -1;
}

int plot_svg(const struct simulation *simulation, const char *path)
{
    FILE *out = fopen(path, "we");
    int failed;

    if (!out)
        return fail(simulation, path, strerror(errno));
    plot_write(out, simulation);
    failed = ferror(out);
    if (fclose(out) != 0 || failed)
        return fail(simulation, path, "cannot be written");
    return 0;
}

/* Starts rsvg-convert, which reads `input` and writes the file: without it no file is made, and one
 * that is there stays. Returns 0 or an errno. */
static int start_converter(FILE *input, const char *path, pid_t *ret)
{
    char *const arguments[] = {(char[]){"rsvg-convert"}, (char[]){"--format=png"},
                               (char[]){"--zoom=1.5"},   (char[]){"--output"},
                               (char *)(uintptr_t)path,  NULL};
    posix_spawn_file_actions_t actions;
    int e = posix_spawn_file_actions_init(&actions);

    if (e != 0)
        return e;
    e = posix_spawn_file_actions_adddup2(&actions, fileno(input), STDIN_FILENO);
    if (e == 0)
        e = posix_spawnp(ret, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return e;
}

int plot_png(const struct simulation *simulation, const char *path)
{
    FILE *plot = tmpfile();
    int status = 0, e;
    pid_t pid;

    if (!plot)
        return fail(simulation, path, strerror(errno));
    plot_write(plot, simulation);
    if (fflush(plot) != 0 || fseek(plot, 0, SEEK_SET) != 0) {
        fclose(plot);
        return fail(simulation, path, "no room for the plot");
    }
    e = start_converter(plot, path, &pid);
    fclose(plot);
    if (e == ENOENT)
        return fail(simulation, path, "a PNG needs rsvg-convert (librsvg2-bin)");
    if (e != 0)
        return fail(simulation, path, strerror(e));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return fail(simulation, path, "rsvg-convert cannot make it");
    return 0;
}
