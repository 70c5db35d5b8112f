/* SPDX-License-Identifier: MIT */
/* Plugins: what is accepted, every way to be refused, where files are looked for, and failures. */
#include "lib/child.h"
#include "lib/fake_os.h"
#include "lib/fixture.h"
#include "lib/tmpdir.h"
#include "plugin/plugin.h"
#include "plugin/plugin_file.h"
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- temporary directories with files in them ---- */

static void copy_part(const char *from, const char *to, size_t size_max)
{
    static char bytes[8 << 20];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    size_t n;

    assert_non_null(in);
    assert_non_null(out);
    n = fread(bytes, 1, sizeof(bytes) < size_max ? sizeof(bytes) : size_max, in);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(chmod(to, 0644), 0);
}

struct path {
    char text[512];
};

static struct path join(const char *dir, const char *name)
{
    struct path path;
    int n = snprintf(path.text, sizeof(path.text), "%s/%s", dir, name);

    assert_true(n > 0 && (size_t)n < sizeof(path.text));
    return path;
}

static struct path broken(const char *name)
{
    struct path path;

    snprintf(path.text, sizeof(path.text), "%s/%s.so", BROKEN_DIR, name);
    return path;
}

static struct path make_dir(void)
{
    struct path path;

    assert_true(tmpdir_make(path.text, getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp"));
    return path;
}

static void remove_dir(const char *dir)
{
    DIR *directory = opendir(dir);
    const struct dirent *entry;

    assert_non_null(directory);
    while ((entry = readdir(directory))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            assert_int_equal(remove(join(dir, entry->d_name).text), 0);
    }
    closedir(directory);
    assert_int_equal(rmdir(dir), 0);
}

static struct path copy_into(const char *dir, const char *from, const char *as)
{
    struct path path = join(dir, as);

    copy_part(broken(from).text, path.text, SIZE_MAX);
    return path;
}

static struct plugin_search *open_plugins(const char *dir)
{
    const char *dirs[] = {dir, NULL};
    struct plugin_search *plugins = NULL;

    assert_int_equal(plugin_search_new(&plugins, dirs), 0);
    return plugins;
}

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" does not say \"%s\"", text, part);
}

/* Looks for an algorithm in a directory and expects a refusal that says why. */
static void expect_refusal(const char *dir, const char *name, int code, const char *why)
{
    struct plugin_search *plugins = open_plugins(dir);
    const struct plugin *plugin = NULL;
    struct weir_error error = {0};
    int r = plugin_search_find(plugins, WEIR_PLUGIN_ALGORITHM, name, &plugin, &error);

    if (r != code)
        fail_msg("%s: %d instead of %d: %s", name, r, code, error.message);
    assert_null(plugin);
    assert_int_equal(error.code, code);
    assert_contains(error.message, why);
    if (code == -ENOEXEC) {
        assert_contains(error.message, name);
        assert_contains(error.message, ".so` is refused: ");
    }
    plugin_search_free(plugins);
}

static const struct plugin *find(struct plugin_search *plugins, enum weir_plugin_kind kind,
                                 const char *name)
{
    const struct plugin *plugin = NULL;
    struct weir_error error;

    if (plugin_search_find(plugins, kind, name, &plugin, &error) != 0)
        fail_msg("%s", error.message);
    assert_int_equal(plugin->info.kind, kind);
    assert_string_equal(plugin->info.name, name);
    return plugin;
}

/* ---- broken files ---- */

struct broken_case {
    const char *file, *why;
};

static const struct broken_case broken_cases[] = {
    {"no_symbol", "it is not a plugin: it does not export `weir_plugins_v1`"},
    {"major_2", "version 2 of the plugin interface (`weir_plugins_v2`)"},
    {"table_truncated", "its table is truncated: size 16, at least 24 needed"},
    {"table_absurd", "its table has the impossible size 1000000"},
    {"table_odd", "its table has the impossible size 27"},
    {"table_empty", "its table has 0 plugins; 1 to 64 are possible"},
    {"table_too_many", "its table has 65 plugins"},
    {"table_null", "its table has no plugins (NULL)"},
    {"plugin_null", "plugin 1: its description is missing (NULL)"},
    {"plugin_truncated", "plugin 1: its description is truncated: size 48"},
    {"plugin_absurd", "plugin 1: its description has the impossible size 100000"},
    {"plugin_misaligned", "plugin 1: its description is not aligned"},
    {"kind_zero", "plugin `kind_zero`: its kind is 0"},
    {"older_minor", "it was built for version 1.3 of the plugin interface, before the first"},
    {"newer_minor", "it needs a newer weir: version 1."},
    {"newer_table_flags", "it needs a newer weir: its flags 0x10000 are unknown here"},
    {"name_null", "plugin 1: its name is missing (NULL)"},
    {"name_empty", "plugin 1: its name `` is not of the form"},
    {"name_slash", "plugin 1: its name `../evil` is not of the form [a-z0-9_]+"},
    {"name_upper", "plugin 1: its name `Upper` is not of the form"},
    {"name_without_vendor", "plugin 1: its name `.good` is not of the form"},
    {"name_without_end", "plugin 1: its name `acme.` is not of the form"},
    {"name_of_three", "plugin 1: its name `acme.a.b` is not of the form"},
    {"name_long", "is not of the form [a-z0-9_]+ or vendor.name, at most 64 long"},
    {"version_null", "plugin `version_null`: its version is missing (NULL)"},
    {"version_control", "its version has a control character"},
    {"summary_null", "its summary is missing (NULL)"},
    {"summary_empty", "its summary is empty"},
    {"summary_not_utf8", "its summary is not UTF-8"},
    {"summary_long", "its summary is longer than 255 bytes"},
    {"duplicate", "plugin `duplicate`: there are two plugins of this kind and name"},
    {"second_null", "plugin 2: its description is missing (NULL)"},
    {"outside_plugins", "its array of plugins does not lie in the file that exports the table"},
    {"outside_plugin", "plugin 1: its description does not lie in the file"},
    {"outside_name", "plugin 1: its name does not lie in the file"},
    {"outside_version", "its version does not lie in the file"},
    {"outside_doc", "parameter `first`: its doc does not lie in the file"},
    {"outside_parameters", "its parameter does not lie in the file"},
    {"outside_choices", "its array of choices does not lie in the file"},
    {"outside_choice", "its choice does not lie in the file"},
    {"outside_ops", "its struct of operations does not lie in the file"},
    {"outside_function", "operation 4 in its struct is no function of the file"},
    {"outside_outcome", "operation 4 in its struct is no function of the file"},
    {"data_function", "operation 4 in its struct is no function of the file"},
    {"ops_null", "its struct of operations is missing (NULL)"},
    {"ops_truncated", "its struct of operations is truncated: size 40"},
    {"ops_absurd", "its struct of operations has the impossible size 65536"},
    {"no_configure", "its operation `configure` is missing"},
    {"no_ready_at", "its operation `ready_at` is missing"},
    {"no_take", "its operation `take` is missing"},
    {"no_available", "its operation `available` is missing"},
    {"no_types", "it serves no type of limit"},
    {"no_refund", "it says that it refunds, but has no operation `refund`"},
    {"strict_only", "it has `refund_strict`, but no operation `refund`"},
    {"gauges_too_many", "it has 17 gauges; at most 16 are possible"},
    {"gauge_truncated", "its gauge is truncated: size 24, at least 32 needed"},
    {"gauge_of_other_size", "the size 40 of its gauge `limit` is not that of the first"},
    {"gauge_name_bad", "its gauge's name `a-b` is not of the form"},
    {"gauge_doc", "its gauge's doc is missing (NULL)"},
    {"gauge_twice", "its gauge `wait` is declared twice"},
    {"no_observe", "it has gauges, but no operation `observe`"},
    {"no_pick", "its operation `pick` is missing"},
    {"no_balancer_configure", "it has parameters, but no operation `configure`"},
    {"parameters_null", "its parameter is missing (NULL)"},
    {"parameters_too_many", "it has 65 parameters; at most 64 are possible"},
    {"parameter_truncated", "its parameter is truncated: size 32"},
    {"parameter_absurd", "its parameter has the impossible size 8192"},
    {"parameter_name_null", "its parameter's name is missing (NULL)"},
    {"parameter_name_bad", "its parameter's name `a b` is not of the form"},
    {"parameter_twice", "parameter `first`: it is declared twice"},
    {"parameter_doc", "parameter `first`: its doc has a control character"},
    {"range_reversed", "parameter `first`: its least value 11 is above its greatest 10"},
    {"default_above", "parameter `first`: its default 11 is not within 2 and 10"},
    {"default_below", "parameter `first`: its default 1 is not within 2 and 10"},
    {"default_boolean", "its default 2 is not within 0 and 1"},
    {"default_choice", "its default 2 is not within 0 and 1"},
    {"choices_null", "it is a choice without choices"},
    {"choices_empty", "it is a choice without choices"},
    {"choices_twice", "its choice `one` is given twice"},
    {"choices_bad", "its choice `Two words` is not of the form"},
    {"text_default", "its default 1 is not within 0 and 0"},
    {"list_default", "parameter `first`: it is a list, and has a default"},
    {"list_divisible", "parameter `first`: it is a list: not of backends, and not divisible"},
    {"secret_of_algorithm", "parameter `first`: it is a secret: only texts of backends are"},
    {"per_set_of_algorithm", "it is of each set: only of balancers, and not required"},
    {"ratio_default", "its default 11 is not within 2 and 10"},
    {"size_default", "its default 11 is not within 2 and 10"},
    {"no_check", "its operation `check` is missing"},
};

static void test_broken_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(broken_cases) / sizeof(broken_cases[0]); i++)
        expect_refusal(BROKEN_DIR, broken_cases[i].file, -ENOEXEC, broken_cases[i].why);
}

/* ---- plugins that need a newer library ---- */

struct newer_case {
    const char *file;
    enum weir_plugin_kind kind;
    const char *why;
};

static const struct newer_case newer_cases[] = {
    {"newer_flags", WEIR_PLUGIN_ALGORITHM, "its flags 0x80000000 are unknown here"},
    {"newer_algorithm_flags", WEIR_PLUGIN_ALGORITHM, "its flags 0x10000 are unknown here"},
    {"newer_parameter_flags", WEIR_PLUGIN_ALGORITHM,
     "parameter `first`: its flags 0x80000000 are unknown here"},
    {"newer_parameter_type", WEIR_PLUGIN_ALGORITHM,
     "parameter `first`: its type 99 is unknown here"},
    {"newer_gauge_flags", WEIR_PLUGIN_ALGORITHM, "its flags 0x10000 are unknown here"},
    {"newer_gauge_type", WEIR_PLUGIN_ALGORITHM, "the type 4 of its gauge `limit` is unknown here"},
    {"newer_balancer_flags", WEIR_PLUGIN_BALANCER, "its flags 0x10000 are unknown here"},
};

/* Finds the second plugin of a file, of which the first cannot be used. */
static void expect_the_rest(struct plugin_search *plugins, const char *path)
{
    const struct plugin *rest = find(plugins, WEIR_PLUGIN_ALGORITHM, "hidden_inside");

    assert_string_equal(rest->path, path);
    assert_null(rest->skipped);
    assert_non_null(rest->algorithm.take);
}

static void test_newer_plugins(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(newer_cases) / sizeof(newer_cases[0]); i++) {
        const struct newer_case *newer = &newer_cases[i];
        struct path dir = make_dir(), file;
        struct plugin_search *plugins = open_plugins(dir.text);
        const struct plugin *plugin = NULL;
        struct weir_error error = {0};
        char name[128];

        snprintf(name, sizeof(name), "%s.so", newer->file);
        file = copy_into(dir.text, newer->file, name);
        assert_int_equal(plugin_search_find(plugins, newer->kind, newer->file, &plugin, &error),
                         -ENOEXEC);
        assert_null(plugin);
        assert_contains(error.message, newer->file);
        assert_contains(error.message, file.text);
        assert_contains(error.message, " needs a newer weir: ");
        assert_contains(error.message, newer->why);
        expect_the_rest(plugins, file.text);
        plugin_search_free(plugins);
        remove_dir(dir.text);
    }
}

/* No name of a known kind finds it, and nothing else of it is looked at. */
static void test_newer_kinds(void **state)
{
    struct path dir = make_dir(), file = copy_into(dir.text, "newer_kind", "newer_kind.so");
    struct plugin_search *plugins = open_plugins(dir.text);
    const struct plugin *plugin = NULL;

    (void)state;
    assert_int_equal(
        plugin_search_find(plugins, WEIR_PLUGIN_ALGORITHM, "newer_kind", &plugin, NULL), -ENOENT);
    expect_the_rest(plugins, file.text);
    plugin_search_free(plugins);
    remove_dir(dir.text);
}

/* Flags of the other half are ignored. */
static void test_unknown_flags_that_may_be_ignored(void **state)
{
    struct plugin_search *plugins = open_plugins(BROKEN_DIR);

    (void)state;
    assert_non_null(find(plugins, WEIR_PLUGIN_ALGORITHM, "good_flags"));
    plugin_search_free(plugins);
}

/* ---- files that are no plugin files ---- */

/* Changes one byte of a file. */
static void patch(const char *path, long offset, unsigned char byte)
{
    FILE *file = fopen(path, "r+b");

    assert_non_null(file);
    assert_int_equal(fseek(file, offset, SEEK_SET), 0);
    assert_int_equal(fputc(byte, file), byte);
    assert_int_equal(fclose(file), 0);
}

static void test_not_elf(void **state)
{
    struct path dir = make_dir();
    struct path text = join(dir.text, "text.so"), empty = join(dir.text, "empty.so");

    (void)state;
    copy_part("/proc/self/status", text.text, 1000);
    copy_part("/proc/self/status", empty.text, 0);
    expect_refusal(dir.text, "text", -ENOEXEC, "it is not an ELF shared object");
    expect_refusal(dir.text, "empty", -ENOEXEC, "it is not an ELF shared object");
    remove_dir(dir.text);
}

static void test_truncated_at_every_place(void **state)
{
    struct path dir = make_dir(), whole = broken("good");
    struct stat status;

    (void)state;
    assert_int_equal(stat(whole.text, &status), 0);
    for (off_t size = 4; size < status.st_size; size += size < 300 ? 7 : 331) {
        struct path cut = join(dir.text, "good.so");

        copy_part(whole.text, cut.text, (size_t)size);
        expect_refusal(dir.text, "good", -ENOEXEC, "it is truncated");
    }
    remove_dir(dir.text);
}

static void test_other_architectures(void **state)
{
    struct path dir = make_dir(), file;

    (void)state;
    file = copy_into(dir.text, "good", "good.so");
    patch(file.text, offsetof(Elf64_Ehdr, e_machine), EM_RISCV);
    expect_refusal(dir.text, "good", -ENOEXEC, "it is built for another machine");
    file = copy_into(dir.text, "good", "good.so");
    patch(file.text, EI_CLASS, ELFCLASS32);
    expect_refusal(dir.text, "good", -ENOEXEC, "it is built for a 32-bit machine");
    file = copy_into(dir.text, "good", "good.so");
    patch(file.text, EI_DATA, ELFDATA2MSB);
    expect_refusal(dir.text, "good", -ENOEXEC, "it is built for");
    remove_dir(dir.text);
}

static void test_other_elf_files(void **state)
{
    struct path dir = make_dir(), file;

    (void)state;
    file = copy_into(dir.text, "good", "good.so");
    patch(file.text, offsetof(Elf64_Ehdr, e_type), ET_REL);
    expect_refusal(dir.text, "good", -ENOEXEC, "it is not an ELF shared object");
    file = copy_into(dir.text, "good", "good.so");
    patch(file.text, EI_OSABI, 99); /* right as far as weir looks */
    expect_refusal(dir.text, "good", -ENOEXEC, "it cannot be loaded: ");
    file = copy_into(dir.text, "good", "good.so");
    patch(file.text, offsetof(Elf64_Ehdr, e_phoff) + 7, 0xff); /* beyond any file */
    expect_refusal(dir.text, "good", -ENOEXEC, "it cannot be read");
    remove_dir(dir.text);
}

static void test_not_a_regular_file(void **state)
{
    struct path dir = make_dir();

    (void)state;
    assert_int_equal(mkdir(join(dir.text, "directory.so").text, 0755), 0);
    assert_int_equal(mkfifo(join(dir.text, "fifo.so").text, 0644), 0);
    assert_int_equal(symlink("loop.so", join(dir.text, "loop.so").text), 0);
    assert_int_equal(symlink("nowhere", join(dir.text, "dangling.so").text), 0);
    expect_refusal(dir.text, "directory", -ENOEXEC, "it is not a regular file");
    expect_refusal(dir.text, "fifo", -ENOEXEC, "it is not a regular file");
    expect_refusal(dir.text, "loop", -ENOEXEC, "it cannot be inspected: Too many levels");
    expect_refusal(dir.text, "dangling", -ENOENT, "there is no algorithm `dangling`");
    remove_dir(dir.text);
}

/* ---- permissions ---- */

static void test_file_permissions(void **state)
{
    static const mode_t wrong[] = {0664, 0646, 0666, 0777};
    struct path dir = make_dir(), file = copy_into(dir.text, "good", "good.so");

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(chmod(file.text, wrong[i]), 0);
        expect_refusal(dir.text, "good", -ENOEXEC, "it can be written by others (mode 0");
    }
    remove_dir(dir.text);
}

static void test_directory_permissions(void **state)
{
    static const mode_t wrong[] = {0775, 0757, 0777, 01777};
    struct path dir = make_dir();

    (void)state;
    copy_into(dir.text, "good", "good.so");
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(chmod(dir.text, wrong[i]), 0);
        expect_refusal(dir.text, "good", -ENOEXEC, "its directory can be written by others");
    }
    assert_int_equal(chmod(dir.text, 0755), 0);
    remove_dir(dir.text);
}

/* Another user's file or directory: by changing the user that we are, and, as root, the owner of
 * the file. */
static void test_owners(void **state)
{
    struct path dir = make_dir(), file = copy_into(dir.text, "good", "good.so");

    (void)state;
    if (getuid() != 0) {
        fake_os_set_user(getuid() + 1);
        expect_refusal(dir.text, "good", -ENOEXEC, "its directory belongs to user");
        remove_dir(dir.text);
        return;
    }
    assert_int_equal(chown(file.text, 4242, 0), 0);
    expect_refusal(dir.text, "good", -ENOEXEC, "it belongs to user 4242; it must belong to root");
    assert_int_equal(chown(file.text, 0, 0), 0);
    assert_int_equal(chown(dir.text, 4242, 0), 0);
    expect_refusal(dir.text, "good", -ENOEXEC, "its directory belongs to user 4242");
    remove_dir(dir.text);
}

/* A user's own files and root's are both fine, side by side. */
static void test_own_files_are_fine(void **state)
{
    struct path dir = make_dir(), file = copy_into(dir.text, "good", "good.so");
    const struct plugin *plugin = NULL;
    struct plugin_search *plugins;

    (void)state;
    if (getuid() == 0) {
        fake_os_set_user(4242);
        assert_int_equal(chown(file.text, 4242, 0), 0);
    }
    plugins = open_plugins(dir.text);
    assert_int_equal(plugin_search_find(plugins, WEIR_PLUGIN_ALGORITHM, "good", &plugin, NULL), 0);
    plugin_search_free(plugins);
    remove_dir(dir.text);
}

/* Put right, a file is accepted without a new instance. */
static void test_refusals_are_not_kept(void **state)
{
    struct path dir = make_dir(), file = copy_into(dir.text, "good", "good.so");
    struct plugin_search *plugins = open_plugins(dir.text);
    const struct plugin *plugin = NULL;
    struct weir_error error;

    (void)state;
    assert_int_equal(chmod(file.text, 0666), 0);
    assert_int_equal(plugin_search_find(plugins, WEIR_PLUGIN_ALGORITHM, "good", &plugin, &error),
                     -ENOEXEC);
    assert_int_equal(chmod(file.text, 0644), 0);
    assert_int_equal(plugin_search_find(plugins, WEIR_PLUGIN_ALGORITHM, "good", &plugin, &error),
                     0);
    assert_string_equal(plugin->info.name, "good");
    plugin_search_free(plugins);
    remove_dir(dir.text);
}

/* ---- what is accepted ---- */

static void test_a_good_file(void **state)
{
    struct plugin_search *plugins = open_plugins(BROKEN_DIR);
    const struct plugin *good = find(plugins, WEIR_PLUGIN_ALGORITHM, "good");
    const struct weir_parameter *first = &good->parameters[0], *second = &good->parameters[1];

    (void)state;
    assert_string_equal(good->info.version, "2.1");
    assert_string_equal(good->info.summary, "grants everything");
    assert_string_equal(good->path, broken("good").text);
    assert_int_equal(good->info.parameters_n, 2);
    assert_string_equal(first->name, "first");
    assert_int_equal(first->type, WEIR_PARAMETER_AMOUNT);
    assert_int_equal(first->min, 2);
    assert_int_equal(first->max, 10);
    assert_int_equal(first->default_value, 5);
    assert_string_equal(first->doc, "how much");
    assert_string_equal(second->name, "second");
    assert_int_equal(second->type, WEIR_PARAMETER_DURATION);
    assert_string_equal(second->doc, "");
    assert_int_equal(good->algorithm.size, sizeof(good->algorithm));
    assert_non_null(good->algorithm.configure);
    assert_ptr_equal(find(plugins, WEIR_PLUGIN_ALGORITHM, "good"), good);
    plugin_search_free(plugins);
}

/* Operations that a plugin may leave out are absent. */
static void test_missing_operations_are_absent(void **state)
{
    struct plugin_search *plugins = open_plugins(BROKEN_DIR);
    const struct plugin *good = find(plugins, WEIR_PLUGIN_ALGORITHM, "good");
    const struct plugin *balancer = find(plugins, WEIR_PLUGIN_BALANCER, "good_balancer");

    (void)state;
    assert_null(good->algorithm.init);
    assert_null(balancer->balancer.init);
    assert_null(good->algorithm.refund);
    assert_null(good->algorithm.refund_strict);
    assert_null(good->algorithm.release);
    assert_null(balancer->balancer.configure);
    plugin_search_free(plugins);
}

static void test_longer_structs(void **state)
{
    struct plugin_search *plugins = open_plugins(BROKEN_DIR);
    const struct plugin *newer = find(plugins, WEIR_PLUGIN_ALGORITHM, "newer");

    (void)state;
    assert_int_equal(newer->algorithm.size, sizeof(newer->algorithm));
    assert_int_equal(newer->info.parameters_n, 2);
    assert_int_equal(newer->parameters[1].size, sizeof(struct weir_parameter));
    assert_string_equal(newer->parameters[1].name, "second");
    newer = find(plugins, WEIR_PLUGIN_ALGORITHM, "longer_gauges");
    assert_int_equal(newer->algorithm.gauges_n, 2);
    assert_int_equal(newer->algorithm.gauges[1].size, sizeof(struct weir_gauge));
    assert_string_equal(newer->algorithm.gauges[1].name, "limit");
    newer = find(plugins, WEIR_PLUGIN_BALANCER, "longer_balancer");
    assert_int_equal(newer->balancer.size, sizeof(newer->balancer));
    assert_non_null(newer->balancer.pick);
    plugin_search_free(plugins);
}

static void test_shorter_structs(void **state)
{
    struct plugin_search *plugins = open_plugins(BROKEN_DIR);
    const struct plugin *older = find(plugins, WEIR_PLUGIN_ALGORITHM, "older");

    (void)state;
    assert_null(older->algorithm.release); /* it is there in memory, behind the end */
    assert_null(older->algorithm.check);
    assert_null(older->algorithm.try_take);
    assert_int_equal(older->parameters[0].default_value, 0);
    assert_null(older->parameters[0].choices);
    assert_string_equal(older->parameters[0].doc, "");
    assert_string_equal(older->parameters[1].name, "second");
    older = find(plugins, WEIR_PLUGIN_BALANCER, "shorter_balancer");
    assert_null(older->balancer.outcome);
    plugin_search_free(plugins);
}

/* What lies behind the end of a table or a description is not read. */
static void test_tables_and_descriptions_of_other_lengths(void **state)
{
    static const char *const names[] = {"longer_table", "longer_plugin", "shorter_table",
                                        "shorter_plugin"};
    struct plugin_search *plugins = open_plugins(BROKEN_DIR);

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const struct plugin *found = find(plugins, WEIR_PLUGIN_ALGORITHM, names[i]);

        assert_int_equal(found->info.size, sizeof(found->info));
        assert_int_equal(found->info.flags, 0);
        assert_true(found->info.state_id != 0x1234);
    }
    plugin_search_free(plugins);
}

static void test_choices_and_no_default(void **state)
{
    struct plugin_search *plugins = open_plugins(BROKEN_DIR);
    const struct plugin *choice = find(plugins, WEIR_PLUGIN_ALGORITHM, "good_choice");
    const struct plugin *none = find(plugins, WEIR_PLUGIN_ALGORITHM, "good_no_default");

    (void)state;
    assert_string_equal(choice->parameters[0].choices[1], "two");
    assert_null(choice->parameters[0].choices[2]);
    assert_int_equal(choice->parameters[0].default_value, 1);
    assert_int_equal(none->parameters[0].default_value, 0);
    plugin_search_free(plugins);
}

/* ---- names and directories ---- */

static void test_names_are_not_paths(void **state)
{
    static const char long_name[] = "a1234567890123456789012345678901234567890123456789012345"
                                    "678901234";
    static const char *const wrong[] = {"",         "../good", "/good", "a.good.so", "Good",
                                        "a b",      "a-b",     "a\n",   "\xc3\xa4",  ".",
                                        "..",       ".good",   "good.", "a..good",   "a./good",
                                        "a/b.good", long_name};
    struct plugin_search *plugins = open_plugins(BROKEN_DIR);
    const struct plugin *plugin = NULL;
    struct weir_error error;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(
            plugin_search_find(plugins, WEIR_PLUGIN_ALGORITHM, wrong[i], &plugin, &error), -EINVAL);
        assert_contains(error.message, "is not the name of an algorithm");
        assert_int_equal(
            plugin_search_find(plugins, WEIR_PLUGIN_BALANCER, wrong[i], &plugin, &error), -EINVAL);
        assert_contains(error.message, "is not the name of a balancer");
    }
    assert_int_equal(plugin_search_find(plugins, WEIR_PLUGIN_ALGORITHM, "GOOD", &plugin, &error),
                     -EINVAL);
    assert_contains(error.message, "an algorithm (did you mean `good`?)");
    assert_int_equal(plugin_search_find(plugins, WEIR_PLUGIN_ALGORITHM, "Better", &plugin, &error),
                     -EINVAL);
    assert_contains(error.message, "an algorithm: letters");
    plugin_search_free(plugins);
}

static void test_unknown_names(void **state)
{
    struct path dir = make_dir();
    struct plugin_search *plugins = open_plugins(dir.text);
    const struct plugin *plugin = NULL;
    struct weir_error error;

    (void)state;
    copy_into(dir.text, "good", "good.so");
    assert_int_equal(plugin_search_find(plugins, WEIR_PLUGIN_ALGORITHM, "goud", &plugin, &error),
                     -ENOENT);
    assert_contains(error.message, "there is no algorithm `goud` (did you mean `good`?) in ");
    assert_contains(error.message, dir.text);
    assert_null(strstr(error.message, "refused"));
    copy_into(dir.text, "no_take", "no_take.so");
    assert_int_equal(
        plugin_search_find(plugins, WEIR_PLUGIN_ALGORITHM, "wholly_other", &plugin, &error),
        -ENOENT);
    assert_null(strstr(error.message, "did you mean"));
    assert_contains(error.message, "some files are refused there");
    plugin_search_free(plugins);
    remove_dir(dir.text);
}

static void test_kinds_are_apart(void **state)
{
    struct path dir = make_dir();
    struct plugin_search *plugins = open_plugins(dir.text);
    const struct plugin *plugin = NULL;
    struct weir_error error;

    (void)state;
    copy_into(dir.text, "good", "good.so");
    assert_int_equal(plugin_search_find(plugins, WEIR_PLUGIN_BALANCER, "good", &plugin, &error),
                     -ENOENT);
    assert_contains(error.message, "there is no balancer `good`");
    assert_null(plugin);
    find(plugins, WEIR_PLUGIN_ALGORITHM, "good");
    assert_int_equal(plugin_search_find(plugins, WEIR_PLUGIN_BALANCER, "good", &plugin, NULL),
                     -ENOENT);
    plugin_search_free(plugins);
    remove_dir(dir.text);
}

/* A plugin may live in a file of another name; a bad file beside it does not matter. */
static void test_several_plugins_in_a_file(void **state)
{
    struct path dir = make_dir();
    struct plugin_search *plugins = open_plugins(dir.text);
    const struct plugin *hidden;

    (void)state;
    copy_into(dir.text, "no_take", "a_bad_one.so");
    copy_into(dir.text, "good_pair", "good_pair.so");
    hidden = find(plugins, WEIR_PLUGIN_ALGORITHM, "hidden_inside");
    assert_string_equal(hidden->path, join(dir.text, "good_pair.so").text);
    find(plugins, WEIR_PLUGIN_ALGORITHM, "good_pair");
    plugin_search_free(plugins);
    remove_dir(dir.text);
}

/* A name with a vendor is that of a file, too. */
static void test_names_of_vendors(void **state)
{
    struct path dir = make_dir(), file = copy_into(dir.text, "name_vendor", "acme.good.so");
    struct plugin_search *plugins = open_plugins(dir.text);
    const struct plugin *plugin = NULL;

    (void)state;
    copy_into(dir.text, "name_same_1", "other_file.so");
    assert_string_equal(find(plugins, WEIR_PLUGIN_ALGORITHM, "acme.good")->path, file.text);
    assert_int_equal(plugin_search_find(plugins, WEIR_PLUGIN_ALGORITHM, "good", &plugin, NULL),
                     -ENOENT);
    find(plugins, WEIR_PLUGIN_ALGORITHM, "acme.same");
    plugin_search_free(plugins);
    remove_dir(dir.text);
}

static uint64_t state_id_in(const char *dir, const char *name)
{
    struct plugin_search *plugins = open_plugins(dir);
    uint64_t id = find(plugins, WEIR_PLUGIN_ALGORITHM, name)->info.state_id;

    plugin_search_free(plugins);
    return id;
}

/* A plugin has the identity that it states, or that of its file's bytes. */
static void test_identities(void **state)
{
    struct path dir = make_dir(), copy = copy_into(dir.text, "good", "good.so");
    uint64_t id = state_id_in(BROKEN_DIR, "good");
    FILE *file;

    (void)state;
    assert_int_equal(state_id_in(BROKEN_DIR, "good_identity"), 0x1234);
    assert_true(id != 0);
    assert_true(state_id_in(dir.text, "good") == id);
    file = fopen(copy.text, "ab"); /* behind everything that is loaded */
    assert_non_null(file);
    assert_int_equal(fputc('\n', file), '\n');
    assert_int_equal(fclose(file), 0);
    assert_true(state_id_in(dir.text, "good") != id);
    remove_dir(dir.text);
}

/* The order: the program's directories, the configuration's, WEIR_PLUGIN_PATH, the installed. */
static void test_order_of_directories(void **state)
{
    struct path dirs[4] = {make_dir(), make_dir(), make_dir(), make_dir()};
    char path[2048];

    (void)state;
    snprintf(path, sizeof(path), ":%s::%s:%s", dirs[2].text, dirs[3].text, dirs[2].text);
    assert_int_equal(setenv("WEIR_PLUGIN_PATH", path, 1), 0);
    for (int i = 3; i >= 0; i--) {
        struct plugin_search *plugins = open_plugins(dirs[0].text);

        assert_int_equal(plugin_search_add_dir(plugins, dirs[1].text), 0);
        copy_into(dirs[i].text, "good", "good.so");
        assert_string_equal(find(plugins, WEIR_PLUGIN_ALGORITHM, "good")->path,
                            join(dirs[i].text, "good.so").text);
        plugin_search_free(plugins);
    }
    assert_int_equal(unsetenv("WEIR_PLUGIN_PATH"), 0);
    for (int i = 0; i < 4; i++)
        remove_dir(dirs[i].text);
}

/* A refused file is not passed over for one further back: that would hide it. */
static void test_refusal_ends_the_search(void **state)
{
    struct path first = make_dir(), second = make_dir();
    const char *dirs[] = {first.text, second.text, NULL};
    struct plugin_search *plugins = NULL;
    const struct plugin *plugin = NULL;

    (void)state;
    assert_int_equal(chmod(copy_into(first.text, "good", "good.so").text, 0666), 0);
    copy_into(second.text, "good", "good.so");
    assert_int_equal(plugin_search_new(&plugins, dirs), 0);
    assert_int_equal(plugin_search_find(plugins, WEIR_PLUGIN_ALGORITHM, "good", &plugin, NULL),
                     -ENOEXEC);
    plugin_search_free(plugins);
    remove_dir(first.text);
    remove_dir(second.text);
}

/* The path of the environment is not for a program with more rights than its user. */
enum { PRIVILEGED = 100, UNPRIVILEGED = 101 };

static int run_privileged(void)
{
    struct plugin_search *plugins = NULL;
    const struct plugin *plugin = NULL;
    int r = plugin_search_new(&plugins, NULL);

    if (r == 0)
        r = plugin_search_find(plugins, WEIR_PLUGIN_ALGORITHM, "good", &plugin, NULL);
    plugin_search_free(plugins);
    return r == -ENOENT ? PRIVILEGED : r == 0 ? UNPRIVILEGED : EXIT_FAILURE;
}

static void test_environment_of_a_privileged_process(void **state)
{
    struct path dir, program;
    pid_t child;

    (void)state;
    if (getuid() != 0) {
        print_message("only root can make a set-group-id program of another group\n");
        skip();
    }
    if (getenv("MESON_EXE_WRAPPER")) {
        print_message("the kernel cannot execute a program for the emulated machine\n");
        skip();
    }
    dir = make_dir();
    assert_int_equal(chmod(dir.text, 0755), 0);
    program = join(dir.text, "privileged");
    copy_part("/proc/self/exe", program.text, SIZE_MAX);
    for (int privileged = 0; privileged < 2; privileged++) {
        assert_int_equal(chown(program.text, 0, privileged ? 1 : 0), 0);
        assert_int_equal(chmod(program.text, privileged ? 02755 : 0755), 0);
        child = child_fork();
        if (child == 0) {
            setenv("WEIR_PLUGIN_PATH", BROKEN_DIR, 1);
            execl(program.text, program.text, "--privileged", (char *)NULL);
            _exit(3);
        }
        assert_true(child_exited(child_wait(child), privileged ? PRIVILEGED : UNPRIVILEGED));
    }
    remove_dir(dir.text);
}

/* ---- weir_plugins ---- */

struct seen {
    int plugins, refusals, skipped, stop_after;
    char first[64], last_refusal[512], last_path[512];
};

static int see(void *userdata, const struct weir_plugin_info *info)
{
    struct seen *seen = userdata;

    assert_int_equal(info->size, sizeof(*info));
    assert_true((!info->plugin) != (!info->refusal));
    snprintf(seen->last_path, sizeof(seen->last_path), "%s", info->path);
    if (info->plugin && seen->plugins++ == 0)
        snprintf(seen->first, sizeof(seen->first), "%s", info->plugin->name);
    seen->skipped += info->skipped == 1;
    if (info->refusal && !info->skipped) {
        seen->refusals++;
        snprintf(seen->last_refusal, sizeof(seen->last_refusal), "%s", info->refusal->message);
    }
    return seen->stop_after > 0 && --seen->stop_after == 0;
}

static struct weir_options options_of(const char *const *dirs)
{
    return (struct weir_options){.size = sizeof(struct weir_options), .plugin_dirs = dirs};
}

static void test_discovery_of_everything(void **state)
{
    const char *const dirs[] = {BROKEN_DIR, NULL};
    struct weir_options options = options_of(dirs);
    struct seen seen = {0}, stopped = {.stop_after = 3};
    const int broken_n = sizeof(broken_cases) / sizeof(broken_cases[0]);
    const int newer_n = sizeof(newer_cases) / sizeof(newer_cases[0]) + 1; /* and newer_kind */
    struct weir_error error;

    (void)state;
    assert_int_equal(weir_plugins(&options, see, &seen, &error), 24 + newer_n);
    assert_int_equal(seen.plugins, 24 + newer_n);
    assert_int_equal(seen.refusals, broken_n);
    assert_int_equal(seen.skipped, newer_n);
    assert_string_equal(seen.first, "good"); /* in alphabetical order */
    assert_contains(seen.last_refusal, "version_null");
    weir_plugins(&options, see, &stopped, &error);
    assert_int_equal(stopped.plugins + stopped.refusals, 3);
}

static void test_discovery_through_a_configuration(void **state)
{
    struct path dir = make_dir(), file = join(dir.text, "weir.yaml");
    struct weir_options options = options_of(NULL);
    struct seen seen = {0};
    struct weir_error error;
    char text[1024];
    FILE *out;

    (void)state;
    copy_into(dir.text, "good", "good.so");
    snprintf(text, sizeof(text), "version: 1\nplugin_dirs: [%s, /nowhere/at/all]\n", dir.text);
    options.text = text;
    assert_int_equal(weir_plugins(&options, see, &seen, &error), 1);
    assert_string_equal(seen.first, "good");
    assert_int_equal(seen.refusals, 1);
    assert_contains(seen.last_refusal,
                    "plugin directory `/nowhere/at/all` cannot be read: No such");
    assert_string_equal(seen.last_path, "/nowhere/at/all");

    out = fopen(file.text, "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
    options.text = NULL;
    options.file = file.text;
    assert_int_equal(weir_plugins(&options, see, &seen, &error), 1);
    assert_int_equal(setenv("WEIR_CONFIG", file.text, 1), 0);
    assert_int_equal(weir_plugins(NULL, see, &seen, &error), 1);
    assert_int_equal(unsetenv("WEIR_CONFIG"), 0);
    assert_int_equal(weir_plugins(NULL, see, &seen, &error), 0);
    remove_dir(dir.text);
}

static void hear(void *userdata, const struct weir_error *complaint)
{
    (void)complaint;
    ++*(int *)userdata;
}

static void test_discovery_complains(void **state)
{
    struct weir_options options = options_of(NULL);
    struct seen seen = {0};
    struct weir_error error;
    int heard = 0;

    (void)state;
    options.complaint = hear;
    options.userdata = &heard;
    options.text = "version: 1\nplugin_dirs: [relative]\nsetz: {}\n";
    options.text_name = "the text";
    assert_int_equal(weir_plugins(&options, see, &seen, &error), -EINVAL);
    assert_true(heard >= 1);
    assert_string_equal(error.file, "the text");
    options.text = "version: 1\nplugin_dirs: [relative]\n";
    assert_int_equal(weir_plugins(&options, see, &seen, &error), -EINVAL);
    assert_contains(error.message, "`relative` is not an absolute path");
    assert_int_equal(error.line, 2);
    options.file = "/nowhere";
    assert_int_equal(weir_plugins(&options, see, &seen, &error), -EINVAL); /* both */
    options.text = NULL;
    assert_int_equal(weir_plugins(&options, see, &seen, &error), -ENOENT);
    assert_string_equal(error.file, "/nowhere");
    assert_int_equal(weir_plugins(&options, NULL, NULL, &error), -EINVAL);
    options.size = 8;
    assert_int_equal(weir_plugins(&options, see, &seen, &error), -EINVAL);
    assert_int_equal(seen.plugins + seen.refusals, 0);
}

struct named_dirs {
    char names[4][64];
    int n, stop_at;
};

static int see_dir(void *userdata, const char *dir)
{
    struct named_dirs *dirs = userdata;

    assert_true(dirs->n < 4);
    snprintf(dirs->names[dirs->n++], sizeof(dirs->names[0]), "%s", dir);
    return dirs->n == dirs->stop_at;
}

/* The directories of the options, then those of the configuration; nothing is loaded. */
static void test_named_directories(void **state)
{
    const char *const own[] = {"/first", NULL};
    struct weir_options options = options_of(own);
    struct named_dirs dirs = {.stop_at = 0};
    struct weir_error error = {0};

    (void)state;
    options.text = "version: 1\nplugin_dirs: [/second, /third]\n";
    assert_int_equal(weir_plugin_dirs(&options, see_dir, &dirs, &error), 3);
    assert_string_equal(dirs.names[0], "/first");
    assert_string_equal(dirs.names[1], "/second");
    assert_string_equal(dirs.names[2], "/third");
    for (int stop_at = 1; stop_at <= 3; stop_at++) {
        dirs = (struct named_dirs){.stop_at = stop_at};
        assert_int_equal(weir_plugin_dirs(&options, see_dir, &dirs, &error), stop_at);
        assert_int_equal(dirs.n, stop_at);
    }
    dirs.n = dirs.stop_at = 0;
    options.plugin_dirs = NULL;
    options.text = "version: 1\n";
    assert_int_equal(weir_plugin_dirs(&options, see_dir, &dirs, &error), 0);
    options.text = "version: 1\nplugin_dirs: [/fine, relative]\n";
    assert_int_equal(weir_plugin_dirs(&options, see_dir, &dirs, &error), -EINVAL);
    assert_contains(error.message, "`relative` is not an absolute path");
    assert_int_equal(weir_plugin_dirs(&options, NULL, NULL, &error), -EINVAL);
    options.file = "/nowhere";
    assert_int_equal(weir_plugin_dirs(&options, see_dir, &dirs, &error), -EINVAL);
    options.text = NULL;
    assert_int_equal(weir_plugin_dirs(&options, see_dir, &dirs, &error), -ENOENT);
    options.size = 8;
    assert_int_equal(weir_plugin_dirs(&options, see_dir, &dirs, &error), -EINVAL);
}

/* ---- failures ---- */

/* Everything once, with whatever fails failing. */
static int do_everything(const char *dir)
{
    const char *const dirs[] = {dir, NULL}, *const more[] = {"/tmp", "/usr"};
    struct weir_options options = options_of(dirs);
    struct plugin_search *plugins = NULL;
    const struct plugin *plugin = NULL;
    struct seen seen = {0};
    struct weir_error error;
    int r;

    options.text = "version: 1\nplugin_dirs: [/nowhere]\n";
    r = weir_plugins(&options, see, &seen, &error);
    if (r >= 0)
        r = weir_plugin_dirs(&options, see_dir, &(struct named_dirs){0}, &error);
    if (r < 0)
        return r;
    r = plugin_search_new(&plugins, dirs);
    if (r < 0)
        return r;
    r = plugin_search_add_dir(plugins, more[0]);
    if (r == 0)
        r = plugin_search_add_dir(plugins, more[1]);
    if (r == 0)
        r = plugin_search_find(plugins, WEIR_PLUGIN_ALGORITHM, "good", &plugin, &error);
    if (r == 0)
        r = plugin_search_find(plugins, WEIR_PLUGIN_ALGORITHM, "hidden_inside", &plugin, &error);
    if (r < 0) { /* once nothing fails any more, everything is there */
        fake_os_fail_at(0);
        assert_int_equal(plugin_search_add_dir(plugins, more[0]), 0);
        assert_int_equal(plugin_search_add_dir(plugins, more[1]), 0);
        find(plugins, WEIR_PLUGIN_ALGORITHM, "good");
        find(plugins, WEIR_PLUGIN_ALGORITHM, "hidden_inside");
    }
    plugin_search_free(plugins);
    return r;
}

static void test_every_call_fails_once(void **state)
{
    static const unsigned kinds[] = {FAKE_MEMORY, FAKE_FILE};
    struct path dir = make_dir();

    (void)state;
    copy_into(dir.text, "good", "good.so");
    copy_into(dir.text, "good_pair", "good_pair.so");
    copy_into(dir.text, "newer_flags", "newer_flags.so");
    for (size_t kind = 0; kind < 2; kind++) {
        bool failed = true;
        uint64_t n = 0;

        while (failed) {
            int r;

            fake_os_fail_kind_at(++n, kinds[kind], 0);
            r = do_everything(dir.text);
            failed = fake_os_has_failed() || r < 0;
            if (kinds[kind] == FAKE_MEMORY)
                assert_int_equal(r, failed ? -ENOMEM : 0);
            else
                assert_true(r >= 0 || r == -ENOMEM || r == -ENOEXEC || r == -ENOENT);
        }
        assert_true(n > 20);
    }
    remove_dir(dir.text);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(test_broken_files),
        leak_checked_test(test_newer_plugins),
        leak_checked_test(test_newer_kinds),
        leak_checked_test(test_unknown_flags_that_may_be_ignored),
        leak_checked_test(test_not_elf),
        leak_checked_test(test_truncated_at_every_place),
        leak_checked_test(test_other_architectures),
        leak_checked_test(test_other_elf_files),
        leak_checked_test(test_not_a_regular_file),
        leak_checked_test(test_file_permissions),
        leak_checked_test(test_directory_permissions),
        leak_checked_test(test_owners),
        leak_checked_test(test_own_files_are_fine),
        leak_checked_test(test_refusals_are_not_kept),
        leak_checked_test(test_a_good_file),
        leak_checked_test(test_missing_operations_are_absent),
        leak_checked_test(test_longer_structs),
        leak_checked_test(test_shorter_structs),
        leak_checked_test(test_tables_and_descriptions_of_other_lengths),
        leak_checked_test(test_choices_and_no_default),
        leak_checked_test(test_names_are_not_paths),
        leak_checked_test(test_unknown_names),
        leak_checked_test(test_kinds_are_apart),
        leak_checked_test(test_several_plugins_in_a_file),
        leak_checked_test(test_names_of_vendors),
        leak_checked_test(test_identities),
        leak_checked_test(test_order_of_directories),
        leak_checked_test(test_refusal_ends_the_search),
        leak_checked_test(test_environment_of_a_privileged_process),
        leak_checked_test(test_discovery_of_everything),
        leak_checked_test(test_discovery_through_a_configuration),
        leak_checked_test(test_discovery_complains),
        leak_checked_test(test_named_directories),
        leak_checked_test(test_every_call_fails_once),
    };

    if (argc > 1 && strcmp(argv[1], "--privileged") == 0)
        return run_privileged();
    unsetenv("WEIR_PLUGIN_PATH");
    unsetenv("WEIR_CONFIG");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
