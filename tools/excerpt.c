/* SPDX-License-Identifier: MIT */
/* Excerpts: the line of a text that a complaint is about, with a caret below its place. */
#include "excerpt.h"
#include "utf8.h"
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The most characters that are shown before the caret, and in all: 80 columns hold them. */
enum { EXCERPT_BEFORE = 48, EXCERPT_MAX = 69 };
/* The library reads no larger configuration. */
#define EXCERPT_TEXT_MAX ((off_t)16 << 20)

void excerpt_take(struct excerpt *excerpt, char *text, size_t length)
{
    *excerpt = (struct excerpt){.text = text, .length = length, .line = 1, .column = 1};
}

/* Reads up to `size` bytes. Returns how many there are. */
static size_t read_all(int fd, char *text, size_t size)
{
    size_t length = 0;
    ssize_t n;

    while (length < size && (n = read(fd, text + length, size - length)) > 0)
        length += (size_t)n;
    return length;
}

void excerpt_read(struct excerpt *excerpt, const char *path)
{
    struct stat file;
    char *text = NULL;
    int fd;

    *excerpt = (struct excerpt){0};
    if (stat(path, &file) < 0 || !S_ISREG(file.st_mode) || file.st_size > EXCERPT_TEXT_MAX)
        return; /* a FIFO must not even be opened: the library is its reader */
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return;
    text = malloc((size_t)file.st_size + 1); /* utf8.h needs a NUL */
    if (text) {
        excerpt_take(excerpt, text, read_all(fd, text, (size_t)file.st_size));
        text[excerpt->length] = '\0';
    }
    close(fd);
}

void excerpt_free(struct excerpt *excerpt)
{
    free(excerpt->text);
    *excerpt = (struct excerpt){0};
}

/* Returns whether a byte continues a character. */
static bool is_continuation(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

/* Moves on to the place. Returns whether the text has it: the end of a line counts. */
static bool find(struct excerpt *excerpt, unsigned line, unsigned column)
{
    if (line < excerpt->line || (line == excerpt->line && column < excerpt->column)) {
        excerpt->at = 0;
        excerpt->line = excerpt->column = 1;
    }
    while (excerpt->line < line || excerpt->column < column) {
        bool ends = excerpt->at == excerpt->length,
             breaks = !ends && excerpt->text[excerpt->at] == '\n';

        if (ends || (breaks && excerpt->line == line))
            return false;
        excerpt->line += breaks;
        excerpt->column = breaks ? 1 : excerpt->column + 1;
        do
            excerpt->at++;
        while (!breaks && excerpt->at < excerpt->length &&
               is_continuation(excerpt->text[excerpt->at]));
    }
    return true;
}

/* Returns the place before this one, which is not at the beginning of a line. */
static size_t step_back(const struct excerpt *excerpt, size_t at)
{
    for (int n = 0; n < 4; n++) {
        at--;
        if (!is_continuation(excerpt->text[at]) || at == 0 || excerpt->text[at - 1] == '\n')
            break;
    }
    return at;
}

/* Returns where what is shown begins. */
static size_t find_begin(const struct excerpt *excerpt)
{
    size_t at = excerpt->at;

    for (int n = 0; n < EXCERPT_BEFORE && at > 0 && excerpt->text[at - 1] != '\n'; n++)
        at = step_back(excerpt, at);
    return at;
}

/* Returns whether a line ends here. */
static bool ends_line(const struct excerpt *excerpt, size_t at)
{
    const char *text = excerpt->text + at;

    return at == excerpt->length || text[0] == '\n' || (text[0] == '\r' && text[1] == '\n');
}

/* Writes a character as itself, or `?` if it could do more to a terminal than be seen. Returns its
 * length. */
static size_t write_character(FILE *out, const char *text)
{
    const unsigned char *bytes = (const unsigned char *)text;
    size_t n = utf8_sequence(bytes);
    bool is_control = bytes[0] < 0x20 || bytes[0] == 0x7f ||
                      (bytes[0] == 0xc2 && bytes[1] < 0xa0); /* U+0080 … U+009F */

    if (n == 0 || (is_control && bytes[0] != '\t'))
        fputc('?', out);
    else
        fwrite(text, 1, n, out);
    return n > 0 ? n : 1;
}

/* Writes the line from `begin` on, up to its end or to EXCERPT_MAX characters. */
static void write_line(const struct excerpt *excerpt, FILE *out, size_t begin)
{
    size_t n = 0;

    for (size_t at = begin; !ends_line(excerpt, at);) {
        if (n++ == EXCERPT_MAX) {
            fputs("…", out);
            break;
        }
        at += write_character(out, excerpt->text + at);
    }
    fputc('\n', out);
}

void excerpt_write(struct excerpt *excerpt, FILE *out, unsigned line, unsigned column)
{
    bool is_cut;
    size_t begin;

    if (!excerpt->text || line == 0 || column == 0 || !find(excerpt, line, column))
        return;
    begin = find_begin(excerpt);
    is_cut = begin > 0 && excerpt->text[begin - 1] != '\n';
    fprintf(out, "%6u | %s", line, is_cut ? "…" : "");
    write_line(excerpt, out, begin);
    fprintf(out, "       | %s", is_cut ? " " : "");
    for (size_t at = begin; at < excerpt->at;) {
        size_t n = utf8_sequence((const unsigned char *)excerpt->text + at);

        fputc(excerpt->text[at] == '\t' ? '\t' : ' ', out);
        at += n > 0 ? n : 1;
    }
    fputs("^\n", out);
}
