/* SPDX-License-Identifier: MIT */
/* Log lines: to the callback of the program, or to the standard error if WEIR_LOG asks for it. */
#include "base/error.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/fixture.h"

/* Opens a sink with this WEIR_LOG, writes a line of each level, and returns what has come to the
 * standard error: NUL-terminated, valid until the next call. */
static const char *heard_on_stderr(const char *variable, const struct weir_options *options)
{
    static char heard[2048];
    struct log_sink log;
    int ends[2], before = dup(STDERR_FILENO);
    ssize_t n;

    assert_true(before >= 0);
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    if (variable)
        setenv("WEIR_LOG", variable, 1);
    else
        unsetenv("WEIR_LOG");
    log_open(&log, options);
    log_write(&log, WEIR_LOG_ERROR, "e %d", 1);
    log_write(&log, WEIR_LOG_WARNING, "w");
    log_write(&log, WEIR_LOG_INFO, "i");
    log_write(&log, WEIR_LOG_DEBUG, "d");
    unsetenv("WEIR_LOG");
    n = read(ends[0], heard, sizeof(heard) - 1);
    assert_true(n >= 0 || errno == EAGAIN);
    heard[n > 0 ? n : 0] = '\0';
    assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
    close(before);
    close(ends[0]);
    close(ends[1]);
    return heard;
}

static void lines_up_to_the_level_go_to_the_standard_error(void **state)
{
    const struct weir_options none = {.size = sizeof(none)};

    (void)state;
    assert_string_equal(heard_on_stderr("error", &none), "weir: error: e 1\n");
    assert_string_equal(heard_on_stderr("warning", &none), "weir: error: e 1\nweir: warning: w\n");
    assert_string_equal(heard_on_stderr("info", &none),
                        "weir: error: e 1\nweir: warning: w\nweir: info: i\n");
    assert_string_equal(heard_on_stderr("debug", &none),
                        "weir: error: e 1\nweir: warning: w\nweir: info: i\nweir: debug: d\n");
}

static void nothing_is_printed_unless_the_environment_asks(void **state)
{
    const struct weir_options none = {.size = sizeof(none)};

    (void)state;
    assert_string_equal(heard_on_stderr(NULL, &none), "");
    assert_string_equal(heard_on_stderr("", &none), "");
}

static void a_level_that_is_none_counts_as_warning(void **state)
{
    const struct weir_options none = {.size = sizeof(none)};

    (void)state;
    assert_string_equal(heard_on_stderr("verb\nose", &none),
                        "weir: warning: WEIR_LOG is `verb?ose`: it takes error, warning, info or "
                        "debug; warning is used\nweir: error: e 1\nweir: warning: w\n");
}

static void count(void *userdata, enum weir_log_level level, const char *message)
{
    unsigned *levels = userdata;

    assert_non_null(message);
    *levels |= 1u << level;
}

static void a_callback_hears_warnings_and_nothing_is_printed(void **state)
{
    unsigned levels = 0;
    const struct weir_options options = {
        .size = sizeof(options), .log = count, .userdata = &levels};

    (void)state;
    assert_string_equal(heard_on_stderr("debug", &options), "");
    assert_int_equal(levels, 1u << WEIR_LOG_ERROR | 1u << WEIR_LOG_WARNING);
}

static void a_long_line_is_cut(void **state)
{
    const struct weir_options none = {.size = sizeof(none)};
    char variable[2000];

    (void)state;
    memset(variable, 'x', sizeof(variable));
    variable[sizeof(variable) - 1] = '\0';
    assert_non_null(strstr(heard_on_stderr(variable, &none), "x…`: it takes"));
}

static volatile sig_atomic_t signals;

static void note_signal(int number)
{
    (void)number;
    signals++;
}

/* A standard error without a reader raises no signal. One that was pending before stays so. */
static void a_broken_pipe_raises_no_signal(void **state)
{
    const struct weir_options none = {.size = sizeof(none)};
    struct sigaction action = {.sa_handler = note_signal}, previous;
    int ends[2], before = dup(STDERR_FILENO);
    struct log_sink log;
    sigset_t set, mask;

    (void)state;
    signals = 0;
    assert_int_equal(sigaction(SIGPIPE, &action, &previous), 0);
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    dup2(ends[1], STDERR_FILENO);
    setenv("WEIR_LOG", "error", 1);
    log_open(&log, &none);
    unsetenv("WEIR_LOG");
    log_write(&log, WEIR_LOG_ERROR, "lost");
    assert_int_equal(signals, 0);

    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, &mask);
    raise(SIGPIPE);
    log_write(&log, WEIR_LOG_ERROR, "lost");
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    assert_int_equal(signals, 1);
    dup2(before, STDERR_FILENO);
    close(before);
    close(ends[1]);
    sigaction(SIGPIPE, &previous, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(lines_up_to_the_level_go_to_the_standard_error),
        leak_checked_test(nothing_is_printed_unless_the_environment_asks),
        leak_checked_test(a_level_that_is_none_counts_as_warning),
        leak_checked_test(a_callback_hears_warnings_and_nothing_is_printed),
        leak_checked_test(a_long_line_is_cut),
        leak_checked_test(a_broken_pipe_raises_no_signal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
