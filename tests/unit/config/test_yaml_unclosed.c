/* SPDX-License-Identifier: MIT */
/* The bracket or quote that a text never closes: `^` stands below it, or at the end if there is
 * none. */
#include "config/yaml_unclosed.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lib/fixture.h"

static void finds(void **state)
{
    static const char *const rows[][2] = {
        {"a: [", "   ^"},
        {"a: { b: [ 1 }", "        ^"},
        {"a: { b: [ 1, 2 ] ", "   ^"},
        {"a: { b: { c: 1 }", "   ^"},
        {"a: \"b\nc: d", "   ^"},
        {"a: 'it''s", "   ^"},
        {"a: \"b\\\"", "   ^"},
        {"{\"a\":[\"b\"", "^"},
        {"- [ a", "  ^"},
        {"a: [ # ]\n", "   ^"},
        {"a: { b: 'x]}' ", "   ^"},
        {"a: !t {", "      ^"},
        {"a: &x {", "      ^"},
        {"a: !t &x [", "         ^"},
        {"a: !<t[> 'b", "         ^"},
        {"- !t { a", "     ^"},
        {"a: [ !t \"b ]", "        ^"},
        {"a: [ &x[ 1 ]", "   ^"},
        {"a: !t\n  {", "        ^"},
        {"a: b\n  { c\nd: {", "              ^"},
        {"a: b\n\n  'c\nd: {", "              ^"},
        {"a:\n  b\n  [ c\nd: [", "                ^"},
        {"- b\n  { c\n- {", "            ^"},
        {"- a: b\n   { c\n  d: {", "                   ^"},
        {"[ a\n'b ]\n- [", "           ^"},
        {"a: b\n{", "     ^"},
        {"- a: b\n  {", "         ^"},
        {"a: b # c\n  {", "           ^"},
        {"a: 'b\n  c'\nd: {", "              ^"},
        {"a: |\n  [ {\n\n  '\nb: [", "                   ^"},
        {"- a: >-\n   {\n  b: {", "                  ^"},
        {"a: !t |\n [\n  \"\n\nb: '", "                   ^"},
        {"- >\n \"\n- 'x", "         ^"},
        {"---\n  {", "      ^"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t at = yaml_find_unclosed(rows[i][0], strlen(rows[i][0]));

        if (at != strlen(rows[i][1]) - 1)
            fail_msg("%s: %zu", rows[i][0], at);
    }
}

static void finds_nothing(void **state)
{
    static const char *const rows[] = {
        "",
        "a: {}",
        "a: it's {",       /* a plain text */
        "a: x[1",          /* another one */
        "a: b # [ { \" '", /* a comment */
        "a: ]",            /* the reader complains of it */
        "a: |\n  [ {\n",   /* a block of text */
        "a: b\n  { c",     /* a plain text that goes on */
        "a: b\n\n  'c",
        "a: !t b {",
        "a: !t |\n  [",
        "a: [ b\"c ]",
        "[[[[[[[[[[[[[[[[[[[[", /* deeper than any configuration */
        "a: { b: \"\\\\\" }",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (yaml_find_unclosed(rows[i], strlen(rows[i])) != strlen(rows[i]))
            fail_msg("%s", rows[i]);
}

/* Whatever the text is, the result is within it: sanitizers look for reads beyond its end. */
static void any_text(void **state)
{
    static const char bytes[] = "[]{}'\"\\:,-#| \na!&>";
    uint64_t number = 1;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        char text[12];
        size_t n = (size_t)round % (sizeof(text) + 1);
        size_t at;

        for (size_t i = 0; i < n; i++) {
            number = number * UINT64_C(6364136223846793005) + 1442695040888963407;
            text[i] = bytes[(number >> 33) % (sizeof(bytes) - 1)];
        }
        at = yaml_find_unclosed(text, n);
        assert_true(at <= n);
        assert_true(at == n || strchr("[{'\"", text[at]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(finds),
        leak_checked_test(finds_nothing),
        leak_checked_test(any_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
