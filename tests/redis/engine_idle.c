/* SPDX-License-Identifier: MIT */
/*
 * A process that holds a unit and waits for another one uses no processor time to speak of: while
 * the server is idle, while it is stopped, and while it is gone.
 *
 *     engine_idle PLUGIN SOCKET PID
 */
#include "engine_user.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#define SECONDS 3
#define CPU_MAX 0.2 /* seconds of processor time; a thread that spins takes them all */

static double cpu_seconds(void)
{
    struct rusage usage;
    require(getrusage(RUSAGE_SELF, &usage) == 0);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void idle(const char *what)
{
    double before = cpu_seconds();
    sleep(SECONDS);
    double used = cpu_seconds() - before;
    printf("%s: %.3f s of %d\n", what, used, SECONDS);
    require(used < CPU_MAX);
}

int main(int argc, char **argv)
{
    static struct request request;
    struct user user = {.is_quiet = 1};
    struct weir_reason reason = {0};
    struct weir_backend_verdict verdict;
    const uint64_t one[] = {1};
    char url[256];
    require(argc == 4);
    pid_t server = (pid_t)strtol(argv[3], NULL, 10);
    snprintf(url, sizeof(url), "unix://%s", argv[2]);
    require(user_open(
                &user, argv[1], &reason,
                (const char *const[]){"url", url, "session", "1000", "timeout", "500", NULL}) == 0);
    void *set = user_open_set(&user, "idle", 1, 0, 0);
    user_start(&user);
    const struct request_args args = {.amounts = one,
                                      .mode = WEIR_BACKEND_WAIT,
                                      .flags = WEIR_BACKEND_PATIENT, /* a busy machine */
                                      .timeout_ns = PATIENCE_NS};
    require(user_acquire(&user, set, &args, &verdict) == 0);
    request_begin(&request);
    const struct weir_backend_ask ask = {.size = sizeof(ask),
                                         .token = (uintptr_t)&request,
                                         .mode = WEIR_BACKEND_WAIT,
                                         .flags = WEIR_BACKEND_PATIENT,
                                         .timeout_ns = UINT64_MAX,
                                         .max_wait_ns = UINT64_MAX,
                                         .amounts = one};
    require(user.backend->ask(set, &ask) == 0);
    idle("the server is idle");
    require(kill(server, SIGSTOP) == 0);
    idle("it is stopped");
    require(atomic_load(&user.losses) == 1);
    require(kill(server, SIGCONT) == 0);
    idle("it goes on");
    require(kill(server, SIGKILL) == 0);
    idle("it is gone");
    user.backend->set_close(set);
    user_close(&user);
    return 0;
}
