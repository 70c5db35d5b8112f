/* SPDX-License-Identifier: MIT */
/* `weir top`: shows shared sets live. top_layout.h makes the text. */
#include "limit_option.h"
#include "snapshot.h"
#include "terminal.h"
#include "top_layout.h"
#include "usage.h"
#include "weir.h"
#include <curses.h>
#include <errno.h>
#include <getopt.h>
#include <locale.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char help[] =
    "Usage: weir top [OPTION]... [-f FILE] [--process-dir DIR] [NAME]...\n"
    "\n"
    "Shows shared sets live, those that programs publish, and those of the configuration that "
    "engines\n"
    "keep: limits, holders, waiters, and rates per second.\n"
    "\n"
    "  -i, --interval DURATION   look again so often; default: 1s\n"
    "  -s, --sort ORDER          sort sets by name (default) or waiting: the most waiters first\n"
    "  -m, --match TEXT          only sets with TEXT in their names\n"
    "  -n, --no-idle             leave out sets of which nothing is held, waited for or used up\n"
    "  -f, --file FILE           a configuration that says where shared sets are, and which sets\n"
    "                            engines keep; default: the file that WEIR_CONFIG names\n"
    "      --process-dir DIR     where shared sets are\n"
    "  -d, --plugin-dir DIR      look for plugins in DIR first\n"
    "  -h, --help                show this text\n"
    "\n"
    "Keys: j, k and the arrows select a set; s sorts by waiting, or by name again; i hides idle\n"
    "sets, or shows them again; / and a text show only sets with it in their names; p pauses;\n"
    "q quits.\n"
    "\n"
    "Exit status: 0 fine, 2 wrong usage, 3 no terminal, or the directory cannot be read.\n";

#define MATCH_MAX       64 /* bytes that can be typed */
#define INTERVAL_MIN_NS UINT64_C(50000000)

struct top {
    const struct source *source;
    struct snapshot_names names;
    struct top_view view;
    struct engine_sets engines;
    struct snapshot now, before;
    struct snapshot_id selected; /* the selected set; its position may change */
    char match[MATCH_MAX + 1];   /* as it was typed */
    bool is_stale;               /* the snapshot is of another match */
    char message[512];           /* first complaint of the latest snapshot */
    struct weir_error error;
};

static uint64_t clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- snapshots ---- */

static void complain(void *userdata, const struct weir_error *error)
{
    struct top *top = userdata;

    if (top->message[0] == '\0')
        snprintf(top->message, sizeof(top->message), "%s", error->message);
}

/* Finds the selected set; if it is gone, selects the one in its place. */
static void find_selected(struct top *top)
{
    const struct snapshot_set *set = snapshot_find(&top->now, &top->selected);

    if (set && (size_t)(set - top->now.sets) < top->view.shown_n)
        top->view.selected = (size_t)(set - top->now.sets);
    else if (top->view.selected >= top->view.shown_n)
        top->view.selected = top->view.shown_n > 0 ? top->view.shown_n - 1 : 0;
}

static void keep_selected(struct top *top)
{
    if (top->view.selected < top->view.shown_n)
        top->selected = snapshot_set_id(&top->now.sets[top->view.selected]);
}

/* Orders the sets anew; the selected one stays selected, if it is shown. */
static void select_sets(struct top *top)
{
    top->view.shown_n = selection_apply(&top->view.selection, &top->now);
    find_selected(top);
    keep_selected(top);
}

static int refresh_snapshot(struct top *top)
{
    struct snapshot snapshot;
    int r;

    top->message[0] = '\0';
    r = snapshot_take(&snapshot, top->source, &top->engines, &top->names, complain, top,
                      &top->error);
    if (r < 0)
        return r;
    snapshot_free(&top->before);
    top->before = top->now;
    top->now = snapshot;
    top->is_stale = false;
    select_sets(top);
    return 0;
}

/* ---- drawing ---- */

static void draw_line(int row, const struct top_line *line)
{
    static const attr_t attributes[] = {
        [TOP_PLAIN] = A_NORMAL,  [TOP_TITLE] = A_REVERSE,      [TOP_HEADING] = A_BOLD,
        [TOP_SELECTED] = A_BOLD, [TOP_EXHAUSTED] = A_STANDOUT,
    };

    move(row, 0);
    attrset(attributes[line->style]);
    addstr(line->text);
    if (line->style == TOP_TITLE)
        for (int column = getcurx(stdscr); column < COLS && getcury(stdscr) == row; column++)
            addch(' ');
    attrset(A_NORMAL);
}

static int draw(struct top *top)
{
    struct top_line *lines;

    top->view.rows = LINES > 0 ? (unsigned)LINES : 1;
    top->view.columns = COLS > 0 ? (unsigned)COLS : 1;
    top->view.match = top->view.is_typing ? top->match : top->names.match;
    top->view.message = top->message[0] != '\0' ? top->message : NULL;
    lines = calloc(top->view.rows, sizeof(*lines));
    if (!lines)
        return -ENOMEM;
    top_layout(&top->now, top->before.at_ns != 0 ? &top->before : NULL, &top->view, lines);
    erase();
    for (unsigned row = 0; row < top->view.rows; row++)
        draw_line((int)row, &lines[row]);
    refresh();
    free(lines);
    return 0;
}

/* ---- keys ---- */

static void end_typing(struct top *top)
{
    top->view.is_typing = false;
    top->names.match = top->match[0] != '\0' ? top->match : NULL;
    top->is_stale = true;
}

/* Removes the last character, with all its bytes. */
static void remove_last(char *text)
{
    size_t n = strlen(text);

    while (n > 0 && ((unsigned char)text[n - 1] & 0xc0) == 0x80)
        n--;
    text[n > 0 ? n - 1 : 0] = '\0';
}

/* Handles a key while the text to match is typed: Enter ends it, Escape clears it. */
static void type_key(struct top *top, int key)
{
    size_t n = strlen(top->match);

    if (key == 27)
        top->match[0] = '\0';
    if (key == 27 || key == '\n' || key == '\r' || key == KEY_ENTER)
        end_typing(top);
    else if (key == KEY_BACKSPACE || key == 127 || key == '\b')
        remove_last(top->match);
    else if (key >= ' ' && key < 256 && n < MATCH_MAX)
        memcpy(top->match + n, (char[]){(char)key, '\0'}, 2);
}

/* Handles a key that changes what is shown. */
static void view_key(struct top *top, int key)
{
    struct top_view *view = &top->view;

    if ((key == 'j' || key == KEY_DOWN) && view->selected + 1 < view->shown_n)
        view->selected++;
    else if ((key == 'k' || key == KEY_UP) && view->selected > 0)
        view->selected--;
    keep_selected(top);
    if (key == 's')
        view->selection.order =
            view->selection.order == SELECTION_BY_NAME ? SELECTION_BY_WAITING : SELECTION_BY_NAME;
    else if (key == 'i')
        view->selection.no_idle = !view->selection.no_idle;
    else if (key == 'p')
        view->paused = !view->paused;
    else if (key == '/')
        view->is_typing = true;
    if (key == '/')
        top->match[0] = '\0';
    if (key == 's' || key == 'i')
        select_sets(top);
}

/* Handles a key. Returns whether to go on. KEY_RESIZE needs nothing: the screen is redrawn anyway.
 */
static bool handle_key(struct top *top, int key)
{
    if (top->view.is_typing)
        type_key(top, key);
    else if (key == 'q' || key == 'Q')
        return false;
    else
        view_key(top, key);
    return true;
}

/* Waits for a key until then. Returns 1 (there may be one), 0 (timeout) or -EIO (no terminal). */
static int wait_for_key(const struct top *top, uint64_t until_ns)
{
    struct pollfd terminal = {.fd = STDIN_FILENO, .events = POLLIN};
    uint64_t now_ns = clock_ns();
    uint64_t ms = until_ns > now_ns ? (until_ns - now_ns + 999999) / 1000000 : 0;
    int r = poll(&terminal, 1, top->view.paused ? -1 : ms < 3600000 ? (int)ms : 3600000);

    if (r < 0)
        return errno == EINTR ? 1 : -errno; /* the window may have been resized */
    if (terminal.revents & (POLLHUP | POLLERR | POLLNVAL))
        return -EIO;
    return r;
}

/* Handles all keys pressed. Returns 1 to quit, 0 to go on, or -EIO: no key will ever come. */
static int handle_keys(struct top *top, bool is_readable)
{
    int key = getch(), r = key == ERR && is_readable ? -EIO : 0;

    for (; key != ERR && r == 0; key = getch())
        r = handle_key(top, key) ? 0 : 1;
    return r;
}

/* Runs the loop. Returns 0 to quit, or a negative errno. */
static int run(struct top *top)
{
    uint64_t due_ns = clock_ns();

    for (;;) {
        int r = 0, ready;

        if (top->is_stale || (!top->view.paused && clock_ns() >= due_ns)) {
            r = refresh_snapshot(top);
            due_ns = clock_ns() + top->view.interval_ns;
        }
        if (r == 0)
            r = draw(top);
        ready = r == 0 ? wait_for_key(top, due_ns) : 0;
        if (ready > 0)
            r = handle_keys(top, false);
        if (r != 0 || ready < 0)
            return r > 0 ? 0 : r < 0 ? r : ready;
    }
}

/* ---- command ---- */

static int show(struct top *top, const char *title)
{
    SCREEN *screen = NULL;
    int r;

    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
        fprintf(stderr, "%s: needs a terminal; see `weir stat`\n", title);
        return ENDING_SYSTEM;
    }
    setlocale(LC_ALL, "");
    if (terminal_is_known())
        screen = newterm(NULL, stdout, stdin);
    if (!screen) {
        fprintf(stderr, "%s: the terminal (TERM) is not known\n", title);
        return ENDING_SYSTEM;
    }
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    curs_set(0);
    r = run(top);
    endwin();
    delscreen(screen);
    if (r < 0) {
        if (top->error.code == 0)
            top->error.code = r;
        source_complain(title, &top->error);
    }
    return r < 0 ? ENDING_SYSTEM : ENDING_FINE;
}

static int read_interval(struct top *top, const char *argument, const char *title)
{
    uint64_t *interval_ns = &top->view.interval_ns;
    struct option_complaint wrong = {"the interval is 50ms to 1h"};

    if (duration_option_parse(argument, interval_ns, &wrong) && *interval_ns >= INTERVAL_MIN_NS &&
        *interval_ns <= UINT64_C(3600000000000))
        return 0;
    fprintf(stderr, "%s: `%s`: %s\n", title, argument, wrong.text);
    return usage_hint(title);
}

/* Returns 0, or the exit code. */
static int read_option(struct top *top, struct source *source, int option, const char *title)
{
    int known;

    if (option == 'i')
        return read_interval(top, optarg, title);
    known = selection_option(&top->view.selection, &top->names, option, optarg, title);
    if (known < 0 || (known == 0 && !source_option(source, option, optarg, title)))
        return usage_hint(title);
    return 0;
}

int run_top(int argc, char **argv)
{
    static const struct option options[] = {
        {"interval", required_argument, NULL, 'i'}, SELECTION_OPTIONS,  SOURCE_OPTIONS,
        {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0},
    };
    struct source source = {0};
    struct top top = {.source = &source, .view.interval_ns = 1000000000};
    int option, ending;

    while ((option = getopt_long(argc, argv, "i:h" SELECTION_LETTERS SOURCE_LETTERS, options,
                                 NULL)) != -1) {
        if (option == 'h')
            return usage_help(help);
        ending = read_option(&top, &source, option, argv[0]);
        if (ending != 0)
            return ending;
    }
    top.names.items = (const char *const *)(argv + optind);
    top.names.n = (size_t)(argc - optind);
    if (!source_find_plugin_dirs(&source, argv[0]))
        return ENDING_SYSTEM;
    ending = show(&top, argv[0]);
    snapshot_free(&top.before);
    snapshot_free(&top.now);
    engine_sets_close(&top.engines);
    source_free(&source);
    return ending;
}
