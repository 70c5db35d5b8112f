/* SPDX-License-Identifier: MIT */
/* Finds the bracket or quote of a YAML text that is never closed. A reader notices it only where
 * the text stops making sense, often many lines below. */
#include "config/yaml_unclosed.h"
#include "config/config_ast.h"
#include <string.h>

/* A scan of a text: a simple lexer of flow style, and of block style as far as it can hold it. */
struct unclosed_scan {
    const char *text;
    size_t length;
    size_t at;
    size_t opened[CONFIG_DEPTH_MAX]; /* brackets that are open */
    size_t depth;
    bool begins;      /* a node can begin here */
    bool is_plain;    /* the last node is plain text, which can go on in the next line */
    bool is_line_new; /* nothing but blanks stands before this in the line */
    size_t line;      /* where the line begins */
    size_t node;      /* block style: the column of the last node, from 0 */
    size_t parent;    /* block style: the column of the key or dash that the node belongs to */
};

static bool unclosed_is_blank(const struct unclosed_scan *scan, size_t at)
{
    return at >= scan->length || strchr(" \t\r\n", scan->text[at]);
}

/* Skips a quoted text. Returns false if it does not end. */
static bool unclosed_skip_quoted(struct unclosed_scan *scan)
{
    char quote = scan->text[scan->at];
    for (size_t at = scan->at + 1; at < scan->length; at++) {
        if (quote == '"' && scan->text[at] == '\\') {
            at++;
        } else if (scan->text[at] == '\n') {
            scan->line = at + 1;
        } else if (scan->text[at] == quote) {
            if (quote == '\'' && at + 1 < scan->length && scan->text[at + 1] == quote) {
                at++; /* two stand for one */
                continue;
            }
            scan->at = at;
            return true;
        }
    }
    return false;
}

/* Closes a bracket. Returns false if the last one that was opened is of the other kind. */
static bool unclosed_close(struct unclosed_scan *scan)
{
    if (scan->depth == 0)
        return true;
    char open = scan->text[scan->at] == ']' ? '[' : '{';
    if (scan->text[scan->opened[scan->depth - 1]] != open)
        return false;
    scan->depth--;
    return true;
}

/* Notes that a node begins. */
static void unclosed_begin_node(struct unclosed_scan *scan, bool is_plain)
{
    scan->begins = false;
    scan->is_plain = is_plain;
    if (scan->depth > 0)
        return;
    scan->node = scan->at - scan->line;
    if (scan->node <= scan->parent) /* the parent is one further out, wherever that is */
        scan->parent = scan->node > 0 ? scan->node - 1 : 0;
}

/* Lets a node begin behind what was read. */
static void unclosed_expect_node(struct unclosed_scan *scan)
{
    scan->begins = true;
    scan->is_plain = false;
}

/* Skips a tag or anchor, up to its last character. */
static void unclosed_skip_property(struct unclosed_scan *scan)
{
    const char *ends = scan->depth > 0 ? " \t\r\n,[]{}" : " \t\r\n";
    while (scan->at + 1 < scan->length && !strchr(ends, scan->text[scan->at + 1]))
        scan->at++;
}

/* Passes a character that is no bracket or quote. */
static void unclosed_pass(struct unclosed_scan *scan)
{
    char byte = scan->text[scan->at];
    bool is_blank = unclosed_is_blank(scan, scan->at + 1);
    /* In JSON nothing need follow the colon of a quoted name. */
    bool is_json = scan->depth > 0 && scan->at > 0 && scan->text[scan->at - 1] == '"';
    if (byte == '\n') {
        scan->is_line_new = true;
        scan->line = scan->at + 1;
    } else if (byte == ':' && (is_blank || is_json)) {
        unclosed_expect_node(scan);
        scan->parent = scan->depth > 0 ? scan->parent : scan->node;
    } else if (byte == ',' && scan->depth > 0) {
        unclosed_expect_node(scan);
    } else if (scan->begins && byte == '-' && is_blank) {
        scan->parent = scan->depth > 0 ? scan->parent : scan->at - scan->line;
    } else if (scan->begins && (byte == '!' || byte == '&')) {
        unclosed_skip_property(scan);
    } else if (scan->begins && !strchr(" \t\r", byte)) {
        unclosed_begin_node(scan, true);
    }
}

/* Takes the first character of a line: a plain text goes on in lines that are indented deeper than
 * what it belongs to. */
static void unclosed_begin_line(struct unclosed_scan *scan)
{
    bool is_deeper = scan->depth > 0 || scan->at - scan->line > scan->parent;
    if (!scan->is_line_new || strchr(" \t\r\n", scan->text[scan->at]))
        return;
    scan->is_line_new = false;
    if (!scan->is_plain || !is_deeper)
        unclosed_expect_node(scan);
    if (scan->at == scan->line && scan->length - scan->at > 3 &&
        memcmp(scan->text + scan->at, "---", 3) == 0)
        scan->at += 3; /* a document begins */
}

static void unclosed_skip_comment(struct unclosed_scan *scan)
{
    const char *end = memchr(scan->text + scan->at, '\n', scan->length - scan->at);
    scan->at = (end ? (size_t)(end - scan->text) : scan->length) - 1;
    unclosed_expect_node(scan);
}

/* Skips a block of text: lines that are indented deeper than what it belongs to. */
static void unclosed_skip_block(struct unclosed_scan *scan)
{
    size_t line, at = scan->at;
    do {
        const char *end = memchr(scan->text + at, '\n', scan->length - at);
        line = end ? (size_t)(end - scan->text) + 1 : scan->length + 1;
        scan->at = line - 2; /* the end of the line comes next */
        for (at = line; at < scan->length && scan->text[at] == ' ';)
            at++;
    } while (at < scan->length && (strchr("\r\n", scan->text[at]) || at - line > scan->parent));
}

/* Takes a bracket or quote. Returns false if the scan ends here: `*ret` is what is not closed, or
 * the length if that is unknown. */
static bool unclosed_take(struct unclosed_scan *scan, size_t *ret)
{
    char byte = scan->text[scan->at];
    if (byte == '\'' || byte == '"') {
        *ret = scan->at;
        unclosed_begin_node(scan, false);
        return unclosed_skip_quoted(scan);
    }
    if (byte == ']' || byte == '}') {
        *ret = scan->depth > 0 ? scan->opened[scan->depth - 1] : scan->length;
        scan->begins = scan->is_plain = false;
        return unclosed_close(scan);
    }
    *ret = scan->length;
    if (byte == '|' || byte == '>') {
        unclosed_begin_node(scan, false);
        unclosed_skip_block(scan);
        return true;
    }
    if (scan->depth == CONFIG_DEPTH_MAX)
        return false;
    scan->opened[scan->depth++] = scan->at;
    unclosed_expect_node(scan);
    return true;
}

/* Returns whether a character is a bracket or quote here, and not a part of a plain text. */
static bool unclosed_is_mark(const struct unclosed_scan *scan)
{
    char byte = scan->text[scan->at];
    if (byte == ']' || byte == '}')
        return scan->depth > 0;
    if (byte == '[' || byte == '{')
        return scan->begins || scan->depth > 0;
    if (byte == '|' || byte == '>')
        return scan->begins && scan->depth == 0;
    return scan->begins && (byte == '\'' || byte == '"');
}

size_t yaml_find_unclosed(const char *text, size_t length)
{
    struct unclosed_scan scan = {.text = text, .length = length, .is_line_new = true};
    size_t found = length;
    for (; scan.at < length; scan.at++) {
        unclosed_begin_line(&scan);
        if (text[scan.at] == '#' && (scan.at == 0 || unclosed_is_blank(&scan, scan.at - 1))) {
            unclosed_skip_comment(&scan);
        } else if (unclosed_is_mark(&scan)) {
            if (!unclosed_take(&scan, &found))
                return found;
        } else {
            unclosed_pass(&scan);
        }
    }
    return scan.depth > 0 ? scan.opened[0] : length;
}
