/* SPDX-License-Identifier: MIT */
/* Turns libfyaml's events into nodes, with a complaint for every error. */
#include "config/yaml_reader.h"
#include "base/invariant.h"
#include "base/utf8.h"
#include "config/yaml_unclosed.h"
#include <libfyaml.h>
#include <string.h>

/* ---- events ---- */

void yaml_reader_abort(struct yaml_reader *yaml, int r)
{
    if (yaml->r == 0)
        yaml->r = r;
    if (yaml->event)
        fy_parser_event_free(yaml->parser, yaml->event);
    yaml->event = NULL;
}

/* Returns the line and column of a byte; columns count characters. */
static struct mark yaml_mark_at(const char *text, size_t at)
{
    struct mark mark = {1, 1};
    for (size_t i = 0; i < at; i++) {
        if (text[i] == '\n')
            mark = (struct mark){mark.line + 1, 1};
        else if (((unsigned char)text[i] & 0xc0) != 0x80)
            mark.column++;
    }
    return mark;
}

/* Returns what an error of libfyaml comes from, for those that say only how it parses. */
static const char *yaml_explain(const char *error)
{
    static const struct {
        const char *beginning, *meaning;
    } known[] = {
        {"invalid multiline plain key", "this text goes on in the next line, where a `:` follows: "
                                        "`: ` is missing here, or that line is indented too far"},
        {"invalid nested block mapping", "a text with `: ` in it is written in quotes"},
        {"invalid mapping in plain", "this line is indented less than names that go before it"},
        {"missing comma in flow mapping",
         "`,` is missing, or quotes around a text with `: ` in it"},
        {"did not find expected '-'", "this belongs to no item of a list: items begin with `- `"},
        {"did not find expected key", "at this indentation stand names, with `: ` behind them"},
        {"wrongly indented double-quoted",
         "a text in quotes goes on in a line with too little indentation"},
        {"wrongly indented single-quoted",
         "a text in quotes goes on in a line with too little indentation"},
        {"plain scalar cannot start", "a text that begins like this is written in quotes"},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strncmp(error, known[i].beginning, strlen(known[i].beginning)) == 0)
            return known[i].meaning;
    return error;
}

static bool yaml_mark_is_before(struct mark mark, struct mark other)
{
    return mark.line < other.line || (mark.line == other.line && mark.column <= other.column);
}

/* Complains about an error of syntax, where a bracket or quote was opened if that is the cause. Of
 * libfyaml's errors only the first counts: others are often its consequences. */
static void yaml_complain_syntax(struct yaml_reader *yaml)
{
    void *iterator = NULL;
    const struct fy_diag_error *error = fy_diag_errors_iterate(yaml->diag, &iterator);
    struct mark mark = yaml->mark, opened;
    size_t unclosed = yaml_find_unclosed(yaml->text, yaml->length);
    if (error && error->line > 0 && error->column > 0)
        mark = (struct mark){(uint32_t)error->line, (uint32_t)error->column};
    opened = yaml_mark_at(yaml->text, unclosed);
    if (unclosed < yaml->length && yaml_mark_is_before(opened, mark))
        complain(yaml->complaints, opened, "not YAML: this `%c` is never closed",
                 yaml->text[unclosed]);
    else
        complain(yaml->complaints, mark, "not YAML: %s",
                 error && error->msg ? yaml_explain(error->msg)
                                     : "it cannot be read beyond this point");
    yaml_reader_abort(yaml, -EBADMSG);
}

static void yaml_advance(struct yaml_reader *yaml)
{
    if (yaml->r != 0)
        return;
    if (yaml->event)
        fy_parser_event_free(yaml->parser, yaml->event);
    yaml->event = fy_parser_parse(yaml->parser);
    if (!yaml->event) {
        yaml_complain_syntax(yaml);
        return;
    }
    const struct fy_mark *mark = fy_event_start_mark(yaml->event);
    if (!mark)
        return;
    yaml->mark = (struct mark){(uint32_t)mark->line + 1, (uint32_t)mark->column + 1};
    if (yaml->event->type == FYET_ALIAS && mark->column > 0)
        yaml->mark.column--; /* nor does that of an alias count its `*` */
    if (yaml->event->type == FYET_SCALAR) {
        enum fy_scalar_style style = fy_token_scalar_style(yaml->event->scalar.value);
        /* The mark lies behind the opening quote. */
        if ((style == FYSS_SINGLE_QUOTED || style == FYSS_DOUBLE_QUOTED) && mark->column > 0)
            yaml->mark.column--;
    }
}

/* Returns the type of the current event, or FYET_NONE once the reading has ended. */
static enum fy_event_type yaml_peek(const struct yaml_reader *yaml)
{
    return yaml->event ? yaml->event->type : FYET_NONE;
}

/* Skips an event of this type. Returns false if it is of another one, but true if the reading
 * ended. */
static bool yaml_skip_event(struct yaml_reader *yaml, enum fy_event_type type)
{
    if (yaml->r != 0)
        return true;
    if (yaml_peek(yaml) != type)
        return false;
    if (type == FYET_MAPPING_END || type == FYET_SEQUENCE_END) {
        WEIR_INVARIANT(yaml->depth > 0);
        yaml->depth--;
    }
    yaml_advance(yaml);
    return true;
}

/* ---- nodes ---- */

const char *yaml_kind_name(enum yaml_kind kind)
{
    static const char *const names[] = {"a text", "nothing", "a list", "a mapping", ""};
    return names[kind];
}

static bool yaml_is_null(const char *text, size_t length, enum fy_scalar_style style)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    for (size_t i = 0; style == FYSS_PLAIN && i < sizeof(nulls) / sizeof(nulls[0]); i++) {
        if (length == strlen(nulls[i]) && memcmp(text, nulls[i], length) == 0)
            return true;
    }
    return false;
}

static void yaml_node_read_text(struct yaml_reader *yaml, struct yaml_node *ret)
{
    struct fy_token *token = yaml->event->scalar.value;
    size_t length = 0;
    const char *text = fy_token_get_text(token, &length);
    if (!text)
        text = "", length = 0;
    ret->kind = YAML_TEXT;
    ret->is_quoted = fy_token_scalar_style(token) != FYSS_PLAIN;
    if (yaml_is_null(text, length, fy_token_scalar_style(token))) {
        ret->kind = YAML_NULL;
    } else if (memchr(text, '\0', length) || utf8_valid_length(text, length) != length) {
        complain(yaml->complaints, ret->value.mark,
                 "an escape in this text stands for a character that is not allowed");
        ret->kind = YAML_INVALID;
    } else if (fy_event_get_tag_token(yaml->event)) {
        ret->kind = YAML_INVALID; /* what the text means is unknown */
    } else {
        ret->value.text = config_ast_strdup(yaml->ast, text, length);
        if (!ret->value.text)
            yaml_reader_abort(yaml, -ENOMEM);
    }
}

/* Returns where a token begins, `before` characters before its own mark, or else the last mark. */
static struct mark yaml_mark_of(const struct yaml_reader *yaml, struct fy_token *token, int before)
{
    const struct fy_mark *mark = token ? fy_token_start_mark(token) : NULL;
    if (!mark)
        return yaml->mark;
    return (struct mark){(uint32_t)mark->line + 1, (uint32_t)(mark->column + 1 - before)};
}

/* Refuses anchors, aliases and tags. Their nodes are read nevertheless. */
static void yaml_refuse_properties(struct yaml_reader *yaml)
{
    struct fy_token *anchor, *tag;
    if (!yaml->event)
        return;
    anchor = fy_event_get_anchor_token(yaml->event);
    tag = fy_event_get_tag_token(yaml->event);
    if (yaml->event->type == FYET_ALIAS || anchor)
        complain(yaml->complaints, yaml_mark_of(yaml, anchor, 1),
                 "anchors and aliases are not supported: write the value out in each place, or a "
                 "text in quotes");
    if (tag)
        complain(yaml->complaints, yaml_mark_of(yaml, tag, 0),
                 "tags are not supported: leave out the part that begins with `!`, or write a text "
                 "in quotes");
}

/* Enters a list or mapping, down to the greatest depth allowed. */
static void yaml_descend(struct yaml_reader *yaml)
{
    yaml->depth++;
    if (yaml->depth > CONFIG_DEPTH_MAX) {
        complain(yaml->complaints, yaml->mark,
                 "nested deeper than %d levels, more than any configuration needs",
                 CONFIG_DEPTH_MAX);
        yaml_reader_abort(yaml, -EBADMSG);
    }
}

void yaml_node_read(struct yaml_reader *yaml, struct yaml_node *ret)
{
    *ret = (struct yaml_node){.kind = YAML_INVALID, .value.mark = yaml->mark};
    yaml_refuse_properties(yaml);
    switch (yaml_peek(yaml)) {
    case FYET_SCALAR:
        yaml_node_read_text(yaml, ret);
        break;
    case FYET_SEQUENCE_START:
        ret->kind = YAML_LIST;
        yaml_descend(yaml);
        break;
    case FYET_MAPPING_START:
        ret->kind = YAML_MAPPING;
        yaml_descend(yaml);
        break;
    case FYET_ALIAS:
        break;
    default:
        return; /* the reading has ended */
    }
    yaml_advance(yaml);
}

void yaml_node_skip(struct yaml_reader *yaml, const struct yaml_node *node)
{
    if (node->kind != YAML_LIST && node->kind != YAML_MAPPING)
        return;
    unsigned outside = yaml->depth - 1;
    while (yaml->r == 0 && yaml->depth > outside) {
        if (yaml_skip_event(yaml, FYET_MAPPING_END) || yaml_skip_event(yaml, FYET_SEQUENCE_END))
            continue;
        if (yaml_peek(yaml) == FYET_MAPPING_START || yaml_peek(yaml) == FYET_SEQUENCE_START)
            yaml_descend(yaml);
        yaml_advance(yaml);
    }
}

void yaml_node_refuse(struct yaml_reader *yaml, const char *name, const char *takes,
                      const struct yaml_node *node)
{
    bool has_colon = node->kind == YAML_TEXT && node->value.text && strchr(node->value.text, ':') &&
                     strstr(takes, "mapping");
    if (node->kind != YAML_INVALID)
        complain(yaml->complaints, node->value.mark, "`%s` takes %s, not %s%s",
                 error_text(name).text, takes, yaml_kind_name(node->kind),
                 has_colon ? ": a blank is missing behind the `:`" : "");
    yaml_node_skip(yaml, node);
}

bool yaml_node_enter(struct yaml_reader *yaml, const char *name, enum yaml_kind kind,
                     const struct yaml_node *node)
{
    if (node->kind == kind)
        return true;
    if (node->kind != YAML_NULL)
        yaml_node_refuse(yaml, name, yaml_kind_name(kind), node);
    return false;
}

bool yaml_item_read(struct yaml_reader *yaml, struct yaml_node *ret)
{
    if (yaml_skip_event(yaml, FYET_SEQUENCE_END))
        return false;
    yaml_node_read(yaml, ret);
    return true;
}

/* Reads a pair. Returns false if its name is unusable; then it was complained about and skipped. */
static bool yaml_pair_accept(struct yaml_reader *yaml, struct config_value *ret_key,
                             struct yaml_node *ret_value)
{
    struct yaml_node key;
    yaml_node_read(yaml, &key);
    yaml_node_skip(yaml, &key);
    bool merges = key.kind == YAML_TEXT && !key.is_quoted && key.value.text &&
                  strcmp(key.value.text, "<<") == 0;
    if (merges)
        complain(yaml->complaints, key.value.mark,
                 "merge keys (`<<`) are not supported: write the fields out");
    else if (key.kind != YAML_TEXT && key.kind != YAML_INVALID)
        complain(yaml->complaints, key.value.mark, "a name must be a text, not %s%s",
                 yaml_kind_name(key.kind),
                 key.kind == YAML_NULL ? ": write the word null in quotes" : "");
    struct mark key_mark = key.value.mark;
    yaml_node_read(yaml, ret_value);
    if (ret_value->kind == YAML_NULL)
        ret_value->value.mark = key_mark;
    if (yaml->r == 0 && key.kind == YAML_TEXT && !merges) {
        *ret_key = key.value;
        return true;
    }
    yaml_node_skip(yaml, ret_value);
    return false;
}

bool yaml_pair_read(struct yaml_reader *yaml, struct config_value *ret_key,
                    struct yaml_node *ret_value)
{
    while (!yaml_skip_event(yaml, FYET_MAPPING_END)) {
        if (yaml_pair_accept(yaml, ret_key, ret_value))
            return true;
    }
    return false;
}

/* ---- the document ---- */

/* Returns where an explicit key, "? name", may begin, or `length`. Explicit keys are refused before
 * libfyaml sees them: release 0.7.12 frees a part of its parser twice when an error follows one. */
static size_t yaml_find_explicit_key(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (text[i] == '?' && (i == 0 || strchr(" \t\r\n{[,", text[i - 1])) &&
            (i + 1 == length || strchr(" \t\r\n", text[i + 1])))
            return i;
    return length;
}

/* Returns whether a byte is a control character that no plain text has. */
static bool yaml_is_control(char byte)
{
    if (byte == '\t' || byte == '\n' || byte == '\r')
        return false;
    return (unsigned char)byte < 0x20 || byte == 0x7f;
}

/* Checks for bytes at which libfyaml would silently stop, as if the text ended there. Returns 0, or
 * -EINVAL with a complaint. */
static int yaml_check_text(const char *text, size_t length, struct complaints *complaints)
{
    if (length > CONFIG_TEXT_MAX)
        return complain(complaints, yaml_mark_at(text, 0),
                        "larger than %zu MiB, the most that a configuration may be",
                        CONFIG_TEXT_MAX >> 20);
    size_t valid = utf8_valid_length(text, length);
    size_t at = 0;
    while (at < valid && !yaml_is_control(text[at]))
        at++;
    if (at < valid)
        return complain(complaints, yaml_mark_at(text, at),
                        "a control character (0x%02x): a configuration is plain text",
                        (unsigned)(unsigned char)text[at]);
    if (valid < length)
        return complain(complaints, yaml_mark_at(text, valid),
                        "not UTF-8 (byte 0x%02x): save the file in that encoding",
                        (unsigned)(unsigned char)text[valid]);
    at = yaml_find_explicit_key(text, length);
    if (at < length)
        return complain(complaints, yaml_mark_at(text, at),
                        "a `?` by itself begins an explicit key, which is not supported: write "
                        "`name: value`");
    return 0;
}

/* Keeps libfyaml from printing its internal errors. */
static void yaml_discard_output(struct fy_diag *diag, void *user, const char *text, size_t length)
{
    (void)diag;
    (void)user;
    (void)text;
    (void)length;
}

static int yaml_create_parser(struct yaml_reader *yaml, const char *text, size_t length)
{
    struct fy_diag_cfg diag_cfg;
    fy_diag_cfg_default(&diag_cfg);
    diag_cfg.fp = NULL;
    diag_cfg.output_fn = yaml_discard_output;
    diag_cfg.level = FYET_ERROR;
    diag_cfg.colorize = false;
    yaml->diag = fy_diag_create(&diag_cfg);
    if (!yaml->diag)
        return -ENOMEM;
    fy_diag_set_collect_errors(yaml->diag, true);
    const struct fy_parse_cfg cfg = {
        .search_path = "",
        .flags = FYPCF_QUIET | FYPCF_DEFAULT_VERSION_1_2 | FYPCF_JSON_NONE,
        .diag = yaml->diag,
    };
    yaml->parser = fy_parser_create(&cfg);
    if (!yaml->parser || fy_parser_set_string(yaml->parser, text, length) != 0)
        return -ENOMEM;
    return 0;
}

void yaml_reader_open(struct yaml_reader *yaml, const char *text, size_t length,
                      struct config_ast *ast, struct yaml_node *ret)
{
    *yaml = (struct yaml_reader){
        .ast = ast, .complaints = ast->complaints, .text = text, .length = length, .mark = {1, 1}};
    *ret = (struct yaml_node){.kind = YAML_NULL, .value.mark = yaml->mark};
    yaml->r = yaml_check_text(text, length, yaml->complaints) < 0
                  ? -EBADMSG
                  : yaml_create_parser(yaml, text, length);
    yaml_advance(yaml);
    yaml_skip_event(yaml, FYET_STREAM_START);
    if (yaml_skip_event(yaml, FYET_DOCUMENT_START))
        yaml_node_read(yaml, ret);
}

int yaml_reader_close(struct yaml_reader *yaml)
{
    yaml_skip_event(yaml, FYET_DOCUMENT_END);
    if (yaml_peek(yaml) == FYET_DOCUMENT_START)
        complain(yaml->complaints, yaml->mark,
                 "a second document begins here: a configuration is a single one");
    yaml_reader_abort(yaml, yaml_peek(yaml) == FYET_DOCUMENT_START ? -EBADMSG : 0);
    if (yaml->parser)
        fy_parser_destroy(yaml->parser);
    if (yaml->diag)
        fy_diag_destroy(yaml->diag);
    return yaml->r;
}
