/* SPDX-License-Identifier: MIT */
/* Error messages, complaints in the order of the text, and hints. */
#include "base/error.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/fixture.h"

struct heard {
    struct weir_error errors[8];
    uint32_t n;
};

static void hear(void *userdata, const struct weir_error *complaint)
{
    struct heard *heard = userdata;
    if (heard->n < 8)
        heard->errors[heard->n] = *complaint;
    heard->n++;
}

static void test_error_set(void **state)
{
    struct weir_error error;
    char long_text[2000];
    (void)state;
    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    memset(&error, 0xff, sizeof(error));
    assert_int_equal(error_set(&error, -EINVAL, "a %d\nb", 7), -EINVAL);
    assert_int_equal(error.code, -EINVAL);
    assert_int_equal(error.complaints, 1);
    assert_int_equal(error.line, 0);
    assert_string_equal(error.file, "");
    assert_string_equal(error.message, "a 7?b");
    error_set(&error, -EINVAL, "%s",
              "\xc2\x80 \xc2\x9b[2J \xc2\xa0 \x7f \xc2"); /* terminals obey some */
    assert_string_equal(error.message, "?? ??[2J \xc2\xa0 ? ?");
    assert_int_equal(error_set(&error, -ENOENT, "%s", long_text), -ENOENT);
    assert_int_equal(strlen(error.message), sizeof(error.message) - 1);
    assert_int_equal(error_set(NULL, -ENOMEM, "there is no callback"), -ENOMEM);
}

/* A message that is cut does not end inside a character. */
static void test_error_cut(void **state)
{
    struct weir_error error;
    char text[1200] = "";
    (void)state;
    for (int i = 0; i < 300; i++)
        strcat(text, "☃");
    for (int shift = 0; shift < 3; shift++) {
        error_set(&error, -EINVAL, "%.*s%s", shift, "ab", text);
        size_t n = strlen(error.message);
        assert_memory_equal(error.message + n - 3, "☃", 3);
        assert_true(n >= sizeof(error.message) - 4);
    }
}

static void test_order(void **state)
{
    struct heard heard = {.n = 0};
    struct complaints complaints = {.file = "f.yaml", .report = hear, .userdata = &heard};
    (void)state;
    assert_int_equal(complaint_add(&complaints, -EINVAL, (struct mark){7, 3}, "third"), -EINVAL);
    complaint_add(&complaints, -EINVAL, (struct mark){7, 3}, "fourth");
    complaint_add(&complaints, -ENOEXEC, (struct mark){2, 9}, "first");
    complaint_add(&complaints, -EINVAL, (struct mark){7, 1}, "second");
    assert_int_equal(heard.n, 0);
    assert_int_equal(complaints_report(&complaints), -ENOEXEC);
    assert_int_equal(heard.n, 4);
    static const char *const order[] = {"first", "second", "third", "fourth"};
    for (uint32_t i = 0; i < 4; i++) {
        assert_string_equal(heard.errors[i].message, order[i]);
        assert_string_equal(heard.errors[i].file, "f.yaml");
        assert_int_equal(heard.errors[i].complaints, 4);
    }
    assert_string_equal(complaints.first.message, "first");
    assert_int_equal(complaints.first.line, 2);
    assert_int_equal(complaints.first.column, 9);
    assert_int_equal(complaints_report(&complaints), 0);
    assert_int_equal(heard.n, 4);
}

static void test_many(void **state)
{
    struct heard heard = {.n = 0};
    struct complaints complaints = {.file = "", .report = hear, .userdata = &heard};
    (void)state;
    for (uint32_t i = 0; i < COMPLAINTS_MAX + 50; i++) {
        assert_int_equal(complaints_full(&complaints), i >= COMPLAINTS_MAX);
        complaint_add(&complaints, -EINVAL, (struct mark){i + 1, 1}, "%u", i);
    }
    assert_int_equal(complaints_report(&complaints), -EINVAL);
    assert_int_equal(heard.n, COMPLAINTS_MAX);
    assert_int_equal(complaints.first.complaints, COMPLAINTS_MAX + 50);
}

static void test_places(void **state)
{
    struct heard heard = {.n = 0};
    struct complaints complaints = {.file = "", .report = hear, .userdata = &heard};
    const struct mark nowhere = {0, 0};
    (void)state;
    complaints.location = (struct spec_location){.set = "x", .limit_number = 2};
    complaint_add(&complaints, -EINVAL, nowhere, "m");
    complaints.location = (struct spec_location){.set_number = 3};
    complaint_add(&complaints, -EINVAL, nowhere, "m");
    complaints.location = (struct spec_location){.pool = "p"};
    complaint_add(&complaints, -EINVAL, nowhere, "m");
    complaints.location = (struct spec_location){0};
    complaint_add(&complaints, -EINVAL, nowhere, "m");
    complaints.location = (struct spec_location){.pool = "p"};
    complaint_add(&complaints, -EINVAL, (struct mark){1, 1}, "m");
    complaints_report(&complaints);
    assert_string_equal(heard.errors[0].message, "set `x`, limit 2: m");
    assert_string_equal(heard.errors[1].message, "set 3: m");
    assert_string_equal(heard.errors[2].message, "pool `p`: m");
    assert_string_equal(heard.errors[3].message, "m");
    assert_string_equal(heard.errors[4].message, "m");
}

static void test_show(void **state)
{
    char text[300] = "";
    (void)state;
    assert_string_equal(error_text("plain").text, "plain");
    assert_string_equal(error_text("a\nb\tc\x7f").text, "a?b?c?");
    assert_string_equal(error_text("\xff\xc3\xa9\xc3(\xe2\x98").text, "?é?(??");
    for (int i = 0; i < 200; i++)
        strcat(text, "y");
    struct error_text shown = error_text(text);
    assert_true(strlen(shown.text) < sizeof(shown.text));
    assert_string_equal(shown.text + strlen(shown.text) - 4, "y…");
    text[0] = '\0';
    for (int i = 0; i < 60; i++)
        strcat(text, "é");
    shown = error_text(text);
    assert_string_equal(shown.text + strlen(shown.text) - 5, "é…");
}

static void test_hints(void **state)
{
    static const char *const words[] = {"capacity", "window", "burst", "initial", "every", "key"};
    static const struct {
        const char *word, *closest;
    } rows[] = {
        {"capcity", "capacity"},
        {"cpaacity", "capacity"},
        {"capacity", "capacity"},
        {"capacityy", "capacity"},
        {"windows", "window"},
        {"wnidow", "window"},
        {"bursts", "burst"},
        {"kye", "key"},
        {"colour", NULL},
        {"", NULL},
        {"k", NULL},
        {"x", NULL},
        {"mode", NULL},
        {"capa", NULL},
        {"evry", "every"},
        {"KEY", "key"},
        {"Every", "every"},
    };
    char long_word[300] = "";
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *closest = hint_find(rows[i].word, words, 6).closest;
        if (!closest || !rows[i].closest)
            assert_ptr_equal(closest, rows[i].closest);
        else
            assert_string_equal(closest, rows[i].closest);
    }
    memset(long_word, 'c', sizeof(long_word) - 1);
    assert_null(hint_find(long_word, words, 6).closest);
    assert_null(hint_find("key", NULL, 0).closest);
    assert_string_equal(hint_find("kye", words, 6).text, " (did you mean `key`?)");
    assert_string_equal(hint_find("colour", words, 6).text, "");
    assert_null(hint_find("shared", (const char *[]){"thread"}, 1).closest); /* half a word */
    assert_null(hint_find("newest", (const char *[]){"oldest"}, 1).closest);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        leak_checked_test(test_error_set), leak_checked_test(test_error_cut),
        leak_checked_test(test_order),     leak_checked_test(test_many),
        leak_checked_test(test_places),    leak_checked_test(test_show),
        leak_checked_test(test_hints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
