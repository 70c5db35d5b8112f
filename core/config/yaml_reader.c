/* SPDX-License-Identifier: MIT */
/* YAML: from libfyaml's events to nodes, with a complaint wherever something is wrong. */
#include "config/yaml_reader.h"
#include <errno.h>
#include <libfyaml.h>
#include <string.h>

/* ---- events ---- */

void yaml_give_up(struct yaml *yaml, int rc)
{
    if (yaml->rc == 0)
        yaml->rc = rc;
    if (yaml->event != NULL)
        fy_parser_event_free(yaml->parser, yaml->event);
    yaml->event = NULL;
}

/* libfyaml's first complaint becomes ours; what follows is often only a consequence. */
static void complain_of_syntax(struct yaml *yaml)
{
    void *iterator = NULL;
    const struct fy_diag_error *error = fy_diag_errors_iterate(yaml->diag, &iterator);
    struct mark mark = yaml->mark;
    if (error != NULL && error->line > 0 && error->column > 0)
        mark = (struct mark){(uint32_t)error->line, (uint32_t)error->column};
    complain(yaml->complaints, -EINVAL, mark, "not YAML: %s",
             error != NULL && error->msg != NULL ? error->msg
                                                 : "it cannot be read beyond this point");
    yaml_give_up(yaml, -EBADMSG);
}

static void advance(struct yaml *yaml)
{
    if (yaml->rc != 0)
        return;
    if (yaml->event != NULL)
        fy_parser_event_free(yaml->parser, yaml->event);
    yaml->event = fy_parser_parse(yaml->parser);
    if (yaml->event == NULL) {
        complain_of_syntax(yaml);
        return;
    }
    const struct fy_mark *mark = fy_event_start_mark(yaml->event);
    if (mark == NULL)
        return;
    yaml->mark = (struct mark){(uint32_t)mark->line + 1, (uint32_t)mark->column + 1};
    if (yaml->event->type == FYET_SCALAR) {
        enum fy_scalar_style style = fy_token_scalar_style(yaml->event->scalar.value);
        /* The mark lies behind the opening quote. */
        if ((style == FYSS_SINGLE_QUOTED || style == FYSS_DOUBLE_QUOTED) && mark->column > 0)
            yaml->mark.column--;
    }
}

/* The type of the event to be looked at; FYET_NONE once the reading has ended. */
static enum fy_event_type peek(const struct yaml *yaml)
{
    return yaml->event != NULL ? yaml->event->type : FYET_NONE;
}

/* Steps over an event of this type. False: it is another one. True, too, if the reading ended. */
static bool passed(struct yaml *yaml, enum fy_event_type type)
{
    if (yaml->rc != 0)
        return true;
    if (peek(yaml) != type)
        return false;
    if (type == FYET_MAPPING_END || type == FYET_SEQUENCE_END)
        yaml->depth--;
    advance(yaml);
    return true;
}

/* ---- nodes ---- */

const char *shape_name(enum shape shape)
{
    static const char *const names[] = {"a text", "nothing", "a list", "a mapping", ""};
    return names[shape];
}

static bool is_null(const char *text, size_t length, enum fy_scalar_style style)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    for (size_t i = 0; style == FYSS_PLAIN && i < sizeof nulls / sizeof nulls[0]; i++) {
        if (length == strlen(nulls[i]) && memcmp(text, nulls[i], length) == 0)
            return true;
    }
    return false;
}

static void node_read_scalar(struct yaml *yaml, struct node *ret)
{
    struct fy_token *token = yaml->event->scalar.value;
    size_t length = 0;
    const char *text = fy_token_get_text(token, &length);
    if (text == NULL)
        text = "", length = 0;
    ret->shape = SHAPE_TEXT;
    ret->is_quoted = fy_token_scalar_style(token) != FYSS_PLAIN;
    if (is_null(text, length, fy_token_scalar_style(token))) {
        ret->shape = SHAPE_NOTHING;
    } else if (memchr(text, '\0', length) != NULL || utf8_length(text, length) != length) {
        complain(yaml->complaints, -EINVAL, ret->scalar.mark,
                 "an escape in this text stands for a character that no text may hold");
        ret->shape = SHAPE_REFUSED;
    } else {
        ret->scalar.text = definition_strdup(yaml->definition, text, length);
        if (ret->scalar.text == NULL)
            yaml_give_up(yaml, -ENOMEM);
    }
}

static const char no_anchors[] =
    "anchors and aliases are not supported: write the value out wherever it is meant";

/* Anchors and tags are refused, but what they belong to is read all the same. */
static void refuse_properties(struct yaml *yaml, struct mark mark)
{
    struct fy_token *anchor = NULL, *tag = NULL;
    const struct fy_event *event = yaml->event;
    if (event == NULL)
        return;
    if (event->type == FYET_SCALAR) {
        anchor = event->scalar.anchor;
        tag = event->scalar.tag;
    } else if (event->type == FYET_SEQUENCE_START) {
        anchor = event->sequence_start.anchor;
        tag = event->sequence_start.tag;
    } else if (event->type == FYET_MAPPING_START) {
        anchor = event->mapping_start.anchor;
        tag = event->mapping_start.tag;
    }
    if (anchor != NULL)
        complain(yaml->complaints, -EINVAL, mark, "%s", no_anchors);
    if (tag != NULL)
        complain(yaml->complaints, -EINVAL, mark,
                 "tags are not supported: leave out the part that begins with `!`");
}

/* Goes into a list or mapping. */
static void descend(struct yaml *yaml)
{
    yaml->depth++;
    if (yaml->depth > CONFIG_DEPTH_MAX) {
        complain(yaml->complaints, -EINVAL, yaml->mark,
                 "nested deeper than %d levels, more than any configuration needs",
                 CONFIG_DEPTH_MAX);
        yaml_give_up(yaml, -EBADMSG);
    }
}

void node_read(struct yaml *yaml, struct node *ret)
{
    *ret = (struct node){.shape = SHAPE_REFUSED, .scalar.mark = yaml->mark};
    refuse_properties(yaml, yaml->mark);
    switch (peek(yaml)) {
    case FYET_SCALAR:
        node_read_scalar(yaml, ret);
        break;
    case FYET_SEQUENCE_START:
        ret->shape = SHAPE_LIST;
        descend(yaml);
        break;
    case FYET_MAPPING_START:
        ret->shape = SHAPE_MAPPING;
        descend(yaml);
        break;
    case FYET_ALIAS:
        complain(yaml->complaints, -EINVAL, yaml->mark, "%s", no_anchors);
        break;
    default:
        return; /* the reading has ended */
    }
    advance(yaml);
}

void node_skip(struct yaml *yaml, const struct node *node)
{
    if (node->shape != SHAPE_LIST && node->shape != SHAPE_MAPPING)
        return;
    unsigned outside = yaml->depth - 1;
    while (yaml->rc == 0 && yaml->depth > outside) {
        if (passed(yaml, FYET_MAPPING_END) || passed(yaml, FYET_SEQUENCE_END))
            continue;
        if (peek(yaml) == FYET_MAPPING_START || peek(yaml) == FYET_SEQUENCE_START)
            descend(yaml);
        advance(yaml);
    }
}

void node_refuse(struct yaml *yaml, const char *name, const char *takes, const struct node *node)
{
    if (node->shape != SHAPE_REFUSED)
        complain(yaml->complaints, -EINVAL, node->scalar.mark, "`%s` takes %s, not %s",
                 show(name).text, takes, shape_name(node->shape));
    node_skip(yaml, node);
}

bool node_begins(struct yaml *yaml, const char *name, enum shape shape, const struct node *node)
{
    if (node->shape == shape)
        return true;
    if (node->shape != SHAPE_NOTHING)
        node_refuse(yaml, name, shape_name(shape), node);
    return false;
}

bool list_ended(struct yaml *yaml)
{
    return passed(yaml, FYET_SEQUENCE_END);
}

bool mapping_ended(struct yaml *yaml)
{
    return passed(yaml, FYET_MAPPING_END);
}

bool pair_read(struct yaml *yaml, struct scalar *ret_key, struct node *ret_value)
{
    struct node key;
    node_read(yaml, &key);
    node_skip(yaml, &key);
    bool merges = key.shape == SHAPE_TEXT && !key.is_quoted && key.scalar.text != NULL &&
                  strcmp(key.scalar.text, "<<") == 0;
    if (merges)
        complain(yaml->complaints, -EINVAL, key.scalar.mark,
                 "merge keys (`<<`) are not supported: write the fields out");
    else if (key.shape != SHAPE_TEXT && key.shape != SHAPE_REFUSED)
        complain(yaml->complaints, -EINVAL, key.scalar.mark, "a name must be a text, not %s",
                 shape_name(key.shape));
    struct mark key_mark = key.scalar.mark;
    node_read(yaml, ret_value);
    if (ret_value->shape == SHAPE_NOTHING)
        ret_value->scalar.mark = key_mark;
    if (yaml->rc == 0 && key.shape == SHAPE_TEXT && !merges) {
        *ret_key = key.scalar;
        return true;
    }
    node_skip(yaml, ret_value);
    return false;
}

/* ---- the document ---- */

bool document_begins(struct yaml *yaml)
{
    advance(yaml);
    passed(yaml, FYET_STREAM_START);
    if (peek(yaml) == FYET_STREAM_END)
        return false;
    passed(yaml, FYET_DOCUMENT_START);
    return true;
}

void document_end(struct yaml *yaml)
{
    passed(yaml, FYET_DOCUMENT_END);
    if (peek(yaml) == FYET_DOCUMENT_START) {
        complain(yaml->complaints, -EINVAL, yaml->mark,
                 "a second document begins here: a configuration is a single one");
        yaml_give_up(yaml, -EBADMSG);
    }
}

/* The place of a byte: lines, and characters within the line. */
static struct mark mark_of(const char *text, size_t at)
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

/* What libfyaml would pass over in silence: it stops at such bytes as if the text ended there. */
/*
 * Where an explicit key, "? name", may begin; `length` if nowhere. They are refused before libfyaml
 * sees them: release 0.7.12 frees a part of its parser twice when an error follows one.
 */
static size_t explicit_key_find(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (text[i] == '?' && (i == 0 || strchr(" \t\r\n{[,", text[i - 1]) != NULL) &&
            (i + 1 == length || strchr(" \t\r\n", text[i + 1]) != NULL))
            return i;
    return length;
}

static int text_check(const char *text, size_t length, struct complaints *complaints)
{
    if (length > CONFIG_TEXT_MAX)
        return complain(complaints, -EINVAL, (struct mark){1, 1},
                        "larger than %zu MiB, the most that a configuration may be",
                        CONFIG_TEXT_MAX >> 20);
    size_t valid = utf8_length(text, length);
    size_t at = 0;
    while (at < valid && text[at] != 0x7f &&
           ((unsigned char)text[at] >= 0x20 || strchr("\t\n\r", text[at]) != NULL) &&
           text[at] != '\0')
        at++;
    if (at < valid)
        return complain(complaints, -EINVAL, mark_of(text, at),
                        "a control character (0x%02x): a configuration is plain text",
                        (unsigned)(unsigned char)text[at]);
    if (valid < length)
        return complain(complaints, -EINVAL, mark_of(text, valid),
                        "not UTF-8 (byte 0x%02x): save the file in that encoding",
                        (unsigned)(unsigned char)text[valid]);
    at = explicit_key_find(text, length);
    if (at < length)
        return complain(complaints, -EINVAL, mark_of(text, at),
                        "a `?` by itself begins an explicit key, which is not supported: write "
                        "`name: value`");
    return 0;
}

/* libfyaml prints what goes wrong inside it, unless somebody listens. */
static void hear_nothing(struct fy_diag *diag, void *user, const char *text, size_t length)
{
    (void)diag;
    (void)user;
    (void)text;
    (void)length;
}

static int parser_new(struct yaml *yaml, const char *text, size_t length)
{
    struct fy_diag_cfg diag_cfg;
    fy_diag_cfg_default(&diag_cfg);
    diag_cfg.fp = NULL;
    diag_cfg.output_fn = hear_nothing;
    diag_cfg.level = FYET_ERROR;
    diag_cfg.colorize = false;
    yaml->diag = fy_diag_create(&diag_cfg);
    if (yaml->diag == NULL)
        return -ENOMEM;
    fy_diag_set_collect_errors(yaml->diag, true);
    const struct fy_parse_cfg cfg = {
        .search_path = "",
        .flags = FYPCF_QUIET | FYPCF_DEFAULT_VERSION_1_2 | FYPCF_JSON_NONE,
        .diag = yaml->diag,
    };
    yaml->parser = fy_parser_create(&cfg);
    if (yaml->parser == NULL || fy_parser_set_string(yaml->parser, text, length) != 0)
        return -ENOMEM;
    return 0;
}

int yaml_open(struct yaml *yaml, const char *text, size_t length, struct definition *definition,
              struct complaints *complaints)
{
    *yaml = (struct yaml){.definition = definition, .complaints = complaints, .mark = {1, 1}};
    if (text_check(text, length, complaints) < 0)
        return -EBADMSG;
    return parser_new(yaml, text, length);
}

void yaml_close(struct yaml *yaml)
{
    yaml_give_up(yaml, 0);
    if (yaml->parser != NULL)
        fy_parser_destroy(yaml->parser);
    if (yaml->diag != NULL)
        fy_diag_destroy(yaml->diag);
}
