/* SPDX-License-Identifier: MIT */
/*
 * A program with sets of its own. usage: publishing FILE [fork]
 *
 * It holds both slots of the set `api`, and waits for another one. It says "ready", and ends when
 * its standard input does. With `fork` it says the id of a child first, which ends as it does, but
 * knows nothing of weir.
 */
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#include <weir/weir.h>

static void print_warning(void *userdata, enum weir_log_level level, const char *message)
{
    (void)userdata;
    if (level <= WEIR_LOG_WARNING)
        fprintf(stderr, "%s\n", message);
}

static void await_end(void)
{
    char byte;

    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
}

static int run(weir *w)
{
    const struct weir_amount two[] = {{"slots", 2}, {"tokens", 5}}, one[] = {{"slots", 1}};
    const struct weir_request first = {.size = sizeof(first), .amounts = two, .amounts_n = 2};
    const struct weir_request second = {.size = sizeof(second), .amounts = one, .amounts_n = 1};
    weir_acquisition *held = NULL, *waits = NULL;
    weir_pool *pool = NULL;

    if (weir_pool_open(&pool, w, "api", 0, NULL) < 0 ||
        weir_submit(pool, &first, &held, NULL) != 0 ||
        weir_submit(pool, &second, &waits, NULL) != 1)
        return 1;
    puts("ready");
    fflush(stdout);
    await_end();
    weir_update(held, "tokens", 5);
    weir_release(&waits);
    weir_release(&held);
    weir_pool_close(pool);
    return 0;
}

int main(int argc, char **argv)
{
    const struct weir_options options = {
        .size = sizeof(options), .file = argv[1], .log = print_warning};
    struct weir_error error = {0};
    weir *w = NULL;
    int ending;

    if (weir_open(&w, &options, &error) < 0) {
        fprintf(stderr, "%s\n", error.message);
        return 2;
    }
    if (argc > 2 && strcmp(argv[2], "fork") == 0) {
        pid_t pid = fork();

        if (pid == 0) {
            await_end();
            _exit(0);
        }
        printf("%d\n", (int)pid);
    }
    ending = run(w);
    weir_close(w);
    return ending;
}
