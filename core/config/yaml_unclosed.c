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
    bool begins; /* a node can begin here */
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

/* Returns whether a character ends what stands before a node: the node can begin behind it. */
static bool unclosed_leads(const struct unclosed_scan *scan)
{
    char byte = scan->text[scan->at];
    bool is_blank = unclosed_is_blank(scan, scan->at + 1);
    if (byte == '\n' || (byte == ',' && scan->depth > 0))
        return true;
    if (byte == ':') /* in JSON nothing need follow a quoted name */
        return is_blank || (scan->depth > 0 && scan->at > 0 && scan->text[scan->at - 1] == '"');
    if (byte == '-')
        return scan->begins && is_blank;
    return scan->begins && strchr(" \t\r", byte);
}

static void unclosed_skip_comment(struct unclosed_scan *scan)
{
    const char *end = memchr(scan->text + scan->at, '\n', scan->length - scan->at);
    scan->at = end ? (size_t)(end - scan->text) : scan->length;
    scan->begins = true;
}

/* Takes a bracket or quote. Returns false if the scan ends here: `*ret` is what is not closed, or
 * the length if that is unknown. */
static bool unclosed_take(struct unclosed_scan *scan, size_t *ret)
{
    char byte = scan->text[scan->at];
    if (byte == '\'' || byte == '"') {
        *ret = scan->at;
        scan->begins = false;
        return unclosed_skip_quoted(scan);
    }
    if (byte == ']' || byte == '}') {
        *ret = scan->depth > 0 ? scan->opened[scan->depth - 1] : scan->length;
        scan->begins = false;
        return unclosed_close(scan);
    }
    *ret = scan->length;
    if (scan->depth == CONFIG_DEPTH_MAX || byte == '|' || byte == '>')
        return false; /* a block of text can hold anything */
    scan->opened[scan->depth++] = scan->at;
    scan->begins = true;
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
    struct unclosed_scan scan = {.text = text, .length = length, .begins = true};
    size_t found = length;
    for (; scan.at < length; scan.at++) {
        if (text[scan.at] == '#' && (scan.at == 0 || unclosed_is_blank(&scan, scan.at - 1))) {
            unclosed_skip_comment(&scan);
        } else if (unclosed_is_mark(&scan)) {
            if (!unclosed_take(&scan, &found))
                return found;
        } else {
            scan.begins = unclosed_leads(&scan);
        }
    }
    return scan.depth > 0 ? scan.opened[0] : length;
}
