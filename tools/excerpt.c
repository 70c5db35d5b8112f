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

/* The most columns that are shown before the caret, and in all: 80 columns hold them. */
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

/* Returns the length of a character, or of a byte that belongs to none. */
static size_t count_bytes(const char *text)
{
    size_t length = utf8_sequence((const unsigned char *)text);

    return length > 0 ? length : 1;
}

/* Returns the length of a character that is shown as itself, or 0: as `?`, since it is not well
 * formed, or could do more to a terminal than be seen. */
static size_t shown_length(const char *text)
{
    const unsigned char *sequence = (const unsigned char *)text;
    size_t length = utf8_sequence(sequence);

    return *text != '\t' && length > 0 && utf8_is_control(sequence, length) ? 0 : length;
}

/* Returns how many columns a character takes; a tab counts as one. */
static size_t count_columns(const char *text)
{
    size_t length = shown_length(text);

    return length > 0 ? (size_t)utf8_columns((const unsigned char *)text, length) : 1;
}

/* Returns where what is shown begins. */
static size_t find_begin(const struct excerpt *excerpt)
{
    size_t at = excerpt->at, columns = 0;

    while (at > 0 && excerpt->text[at - 1] != '\n') {
        size_t before = step_back(excerpt, at);

        columns += count_columns(excerpt->text + before);
        if (columns > EXCERPT_BEFORE)
            break;
        at = before;
    }
    return at;
}

/* Returns whether a line ends here. */
static bool ends_line(const struct excerpt *excerpt, size_t at)
{
    const char *text = excerpt->text + at;

    return at == excerpt->length || text[0] == '\n' || (text[0] == '\r' && text[1] == '\n');
}

/* Writes a character as itself or as `?`. Returns its length. */
static size_t write_character(FILE *out, const char *text)
{
    size_t length = shown_length(text);

    if (length > 0)
        fwrite(text, 1, length, out);
    else
        fputc('?', out);
    return count_bytes(text);
}

void excerpt_write_text(FILE *out, const char *text)
{
    while (*text != '\0')
        text += write_character(out, text);
}

/* Writes the line from `begin` on, up to its end or to EXCERPT_MAX columns. */
static void write_line(const struct excerpt *excerpt, FILE *out, size_t begin)
{
    size_t columns = 0;

    for (size_t at = begin; !ends_line(excerpt, at);) {
        columns += count_columns(excerpt->text + at);
        if (columns > EXCERPT_MAX) {
            fputs("…", out);
            break;
        }
        at += write_character(out, excerpt->text + at);
    }
    fputc('\n', out);
}

/* Writes blanks below what stands before the place, and the caret. */
static void write_caret(const struct excerpt *excerpt, FILE *out, size_t begin)
{
    for (size_t at = begin; at < excerpt->at;) {
        const char *text = excerpt->text + at;

        if (*text == '\t')
            fputc('\t', out);
        else
            fprintf(out, "%*s", (int)count_columns(text), "");
        at += count_bytes(text);
    }
    fputs("^\n", out);
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
    write_caret(excerpt, out, begin);
}
