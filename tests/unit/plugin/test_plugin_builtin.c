/* SPDX-License-Identifier: MIT */
/* Built-in plugins: checked as files are, and searched after all directories but the installed one.
 */
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/tmpdir.h"
#include "plugin/plugin.h"
#include "plugin/plugin_file.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- tables as the static library has them: right, of two plugins, and wrong ---- */

static int configure(const struct weir_setup *setup, void *config, struct weir_footprint *ret,
                     struct weir_reason *reterr)
{
    (void)setup, (void)config, (void)reterr;
    ret->state = 8;
    ret->amount_max = 1;
    return 0;
}

static uint64_t ready_at(const void *config, const void *memory, const struct weir_instant *at,
                         uint64_t amount)
{
    (void)config, (void)memory, (void)amount;
    return at->now_ns;
}

static void take(const void *config, void *memory, const struct weir_instant *at, uint64_t amount)
{
    (void)config, (void)memory, (void)at, (void)amount;
}

static uint64_t available(const void *config, const void *memory, const struct weir_instant *at)
{
    (void)config, (void)memory, (void)at;
    return 1;
}

static const struct weir_algorithm right_ops = {.size = sizeof(right_ops),
                                                .types = 1u << WEIR_LIMIT_RATE,
                                                .configure = configure,
                                                .ready_at = ready_at,
                                                .take = take,
                                                .available = available};
static const struct weir_algorithm wrong_ops = {.size = sizeof(wrong_ops),
                                                .types = 1u << WEIR_LIMIT_RATE,
                                                .configure = configure,
                                                .ready_at = ready_at,
                                                .available = available};

#define PLUGIN(plugin_name, plugin_ops)                                                            \
    {                                                                                              \
        .size = sizeof(struct weir_plugin), .kind = WEIR_PLUGIN_ALGORITHM, .name = plugin_name,    \
        .version = "built in", .summary = "grants everything", .ops = plugin_ops                   \
    }
static const struct weir_plugin good = PLUGIN("good", &right_ops);
static const struct weir_plugin first = PLUGIN("first", &right_ops);
static const struct weir_plugin second = PLUGIN("second", &right_ops);
static const struct weir_plugin no_take = PLUGIN("no_take", &wrong_ops);

static const struct weir_plugin *const good_list[] = {&good};
static const struct weir_plugin *const pair_list[] = {&first, &second};
static const struct weir_plugin *const no_take_list[] = {&no_take};

#define TABLE(list)                                                                                \
    {                                                                                              \
        .size = sizeof(struct weir_plugin_table), .abi_minor = WEIR_PLUGIN_ABI_MINOR,              \
        .plugins_n = sizeof(list) / sizeof((list)[0]), .plugins = list                             \
    }
static const struct weir_plugin_table good_table = TABLE(good_list);
static const struct weir_plugin_table pair_table = TABLE(pair_list);
static const struct weir_plugin_table no_take_table = TABLE(no_take_list);

/* In place of the library's own list. */
const struct plugin_builtin plugin_builtins[] = {
    {"good.so", &good_table},
    {"no_take.so", &no_take_table},
    {"pair.so", &pair_table},
    {NULL, NULL},
};

/* ---- tests ---- */

static const struct plugin *find(struct plugin_search *plugins, const char *name)
{
    const struct plugin *plugin = NULL;
    struct weir_error error = {0};

    if (plugin_search_find(plugins, WEIR_PLUGIN_ALGORITHM, name, &plugin, &error) != 0)
        fail_msg("%s: %s", name, error.message);
    return plugin;
}

static struct plugin_search *open_plugins(const char *dir)
{
    const char *dirs[] = {dir, NULL};
    struct plugin_search *plugins = NULL;

    assert_int_equal(plugin_search_new(&plugins, dirs), 0);
    return plugins;
}

static void test_found_without_a_directory(void **state)
{
    struct plugin_search *plugins = open_plugins(NULL);
    const struct plugin *plugin = find(plugins, "good");

    (void)state;
    assert_string_equal(plugin->path, PLUGIN_BUILTIN_DIR "/good.so");
    assert_string_equal(plugin->info.version, "built in");
    assert_ptr_equal(find(plugins, "good"), plugin);
    assert_string_equal(find(plugins, "second")->path, PLUGIN_BUILTIN_DIR "/pair.so");
    plugin_search_free(plugins);
}

static void test_table_is_checked(void **state)
{
    struct plugin_search *plugins = open_plugins(NULL);
    const struct plugin *plugin = NULL;
    struct weir_error error;

    (void)state;
    assert_int_equal(plugin_search_find(plugins, WEIR_PLUGIN_ALGORITHM, "no_take", &plugin, &error),
                     -ENOEXEC);
    assert_string_equal(error.message,
                        "plugin file `" PLUGIN_BUILTIN_DIR "/no_take.so` is refused: "
                        "plugin `no_take`: its operation `take` is missing");
    plugin_search_free(plugins);
}

/* The message of an unknown name lists what was searched, in order. */
static void test_before_the_installed_directory(void **state)
{
    struct plugin_search *plugins = open_plugins("/program");
    const char *configured = "/configuration";
    const struct plugin *plugin = NULL;
    struct weir_error error;

    (void)state;
    assert_int_equal(plugin_search_add_dir(plugins, configured), 0);
    assert_int_equal(plugin_search_find(plugins, WEIR_PLUGIN_ALGORITHM, "missing", &plugin, &error),
                     -ENOENT);
    assert_non_null(strstr(error.message, "/program:/configuration:" PLUGIN_BUILTIN_DIR ":/"));
    plugin_search_free(plugins);
}

struct path {
    char text[512];
};

/* A directory with a file good.so that holds the plugin `good`. */
static struct path make_dir(mode_t mode)
{
    static char bytes[8 << 20];
    struct path dir, file;
    FILE *in, *out;
    size_t n;

    assert_true(tmpdir_make(dir.text, "/tmp"));
    assert_true(snprintf(file.text, sizeof(file.text), "%s/good.so", dir.text) > 0);
    in = fopen(BROKEN_DIR "/good.so", "rb");
    out = fopen(file.text, "wb");
    assert_true(in && out);
    n = fread(bytes, 1, sizeof(bytes), in);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(chmod(file.text, mode), 0);
    return dir;
}

static void remove_dir(struct path dir)
{
    assert_true(tmpdir_remove(dir.text));
}

static void expect_file(struct plugin_search *plugins, struct path dir)
{
    const char *path = find(plugins, "good")->path;

    assert_memory_equal(path, dir.text, strlen(dir.text));
    assert_string_equal(path + strlen(dir.text), "/good.so");
}

static void test_a_file_wins(void **state)
{
    struct path dir = make_dir(0644);
    const char *configured = dir.text;
    struct plugin_search *plugins = open_plugins(dir.text);

    (void)state;
    expect_file(plugins, dir);
    plugin_search_free(plugins);

    plugins = open_plugins(NULL);
    assert_int_equal(plugin_search_add_dir(plugins, configured), 0);
    expect_file(plugins, dir);
    plugin_search_free(plugins);

    assert_int_equal(setenv("WEIR_PLUGIN_PATH", dir.text, 1), 0);
    plugins = open_plugins(NULL);
    expect_file(plugins, dir);
    plugin_search_free(plugins);
    assert_int_equal(unsetenv("WEIR_PLUGIN_PATH"), 0);
    remove_dir(dir);
}

static void test_a_refused_file_is_not_passed_over(void **state)
{
    struct path dir = make_dir(0666);
    struct plugin_search *plugins = open_plugins(dir.text);
    const struct plugin *plugin = NULL;

    (void)state;
    assert_int_equal(plugin_search_find(plugins, WEIR_PLUGIN_ALGORITHM, "good", &plugin, NULL),
                     -ENOEXEC);
    plugin_search_free(plugins);
    remove_dir(dir);
}

static int see(void *userdata, const struct weir_plugin_info *info)
{
    unsigned *seen = userdata;

    if (strncmp(info->path, PLUGIN_BUILTIN_DIR, strlen(PLUGIN_BUILTIN_DIR)) == 0)
        seen[!info->plugin]++;
    return 0;
}

static void test_listed(void **state)
{
    struct weir_options options = {.size = sizeof(options)};
    unsigned seen[2] = {0};

    (void)state;
    assert_true(weir_plugins(&options, see, seen, NULL) >= 3);
    assert_int_equal(seen[0], 3);
    assert_int_equal(seen[1], 1);
}

static void test_out_of_memory(void **state)
{
    const struct plugin *plugin = NULL;
    bool failed = true;
    uint64_t n = 0;

    (void)state;
    while (failed) {
        struct plugin_search *plugins = NULL;
        int r;

        fake_os_fail_kind_at(++n, FAKE_MEMORY, 0);
        r = plugin_search_new(&plugins, NULL);
        if (r == 0)
            r = plugin_search_find(plugins, WEIR_PLUGIN_ALGORITHM, "second", &plugin, NULL);
        plugin_search_free(plugins);
        failed = fake_os_has_failed() || r < 0;
        assert_int_equal(r, failed ? -ENOMEM : 0);
    }
    assert_true(n > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(test_found_without_a_directory),
        leak_checked_test(test_table_is_checked),
        leak_checked_test(test_before_the_installed_directory),
        leak_checked_test(test_a_file_wins),
        leak_checked_test(test_a_refused_file_is_not_passed_over),
        leak_checked_test(test_listed),
        leak_checked_test(test_out_of_memory),
    };

    unsetenv("WEIR_PLUGIN_PATH");
    unsetenv("WEIR_CONFIG");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
