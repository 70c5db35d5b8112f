/* SPDX-License-Identifier: MIT */
/*
 * A configuration text, read from YAML (JSON is a subset) into a definition. libfyaml turns the
 * text into events; this file asks for what it expects, says what is wrong with what it finds
 * instead, steps over that, and reads on. Anchors, aliases, tags and merge keys are refused: a
 * configuration says each thing where it is, and no small text unfolds into a huge one.
 */
#include "definition.h"
#include "mutant.h"
#include <errno.h>
#include <libfyaml.h>
#include <stddef.h>
#include <string.h>

struct reader {
    struct fy_parser *parser;
    struct fy_diag *diag;
    struct fy_event *event; /* the one to be looked at next; NULL once `rc` is set */
    struct definition *definition;
    struct complaints *complaints;
    struct mark mark; /* of the last thing read, for things that have none of their own */
    unsigned depth;
    int rc; /* why the reading ended before the end of the text: -EBADMSG or -ENOMEM */
};

/* ---- events ---- */

/* Ends the reading. */
static void give_up(struct reader *reader, int rc)
{
    if (reader->rc == 0)
        reader->rc = rc;
    if (reader->event != NULL)
        fy_parser_event_free(reader->parser, reader->event);
    reader->event = NULL;
}

/* libfyaml's first complaint becomes ours; what follows is often only a consequence. */
static void complain_of_syntax(struct reader *reader)
{
    void *iterator = NULL;
    const struct fy_diag_error *error = fy_diag_errors_iterate(reader->diag, &iterator);
    struct mark mark = reader->mark;
    if (error != NULL && error->line > 0 && error->column > 0)
        mark = (struct mark){(uint32_t)error->line, (uint32_t)error->column};
    complain(reader->complaints, -EINVAL, mark, "not YAML: %s",
             error != NULL && error->msg != NULL ? error->msg
                                                 : "it cannot be read beyond this point");
    give_up(reader, -EBADMSG);
}

static void advance(struct reader *reader)
{
    if (reader->rc != 0)
        return;
    if (reader->event != NULL)
        fy_parser_event_free(reader->parser, reader->event);
    reader->event = fy_parser_parse(reader->parser);
    if (reader->event == NULL) {
        complain_of_syntax(reader);
        return;
    }
    const struct fy_mark *mark = fy_event_start_mark(reader->event);
    if (mark == NULL)
        return;
    reader->mark = (struct mark){(uint32_t)mark->line + 1, (uint32_t)mark->column + 1};
    if (reader->event->type == FYET_SCALAR) {
        enum fy_scalar_style style = fy_token_scalar_style(reader->event->scalar.value);
        /* The mark lies behind the opening quote. */
        if ((style == FYSS_SINGLE_QUOTED || style == FYSS_DOUBLE_QUOTED) && mark->column > 0)
            reader->mark.column--;
    }
}

/* The type of the event to be looked at; FYET_NONE once the reading has ended. */
static enum fy_event_type peek(const struct reader *reader)
{
    return reader->event != NULL ? reader->event->type : FYET_NONE;
}

/* Steps over an event of this type. False: it is another one. True, too, if the reading ended. */
static bool passed(struct reader *reader, enum fy_event_type type)
{
    if (reader->rc != 0)
        return true;
    if (peek(reader) != type)
        return false;
    if (type == FYET_MAPPING_END || type == FYET_SEQUENCE_END)
        reader->depth--;
    advance(reader);
    return true;
}

/* ---- nodes ---- */

enum shape {
    SHAPE_TEXT,
    SHAPE_NOTHING, /* no value at all, or null */
    SHAPE_LIST,    /* its items follow, up to FYET_SEQUENCE_END */
    SHAPE_MAPPING, /* its pairs follow, up to FYET_MAPPING_END */
    SHAPE_REFUSED  /* was complained about */
};

static const char *const shape_names[] = {"a text", "nothing", "a list", "a mapping", ""};

struct node {
    enum shape shape;
    struct scalar scalar; /* a text, or the mark of whatever it is */
};

static bool is_null(const char *text, size_t length, enum fy_scalar_style style)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    for (size_t i = 0; style == FYSS_PLAIN && i < sizeof nulls / sizeof nulls[0]; i++) {
        if (length == strlen(nulls[i]) && memcmp(text, nulls[i], length) == 0)
            return true;
    }
    return false;
}

static void node_read_scalar(struct reader *reader, struct node *ret)
{
    struct fy_token *token = reader->event->scalar.value;
    size_t length = 0;
    const char *text = fy_token_get_text(token, &length);
    if (text == NULL)
        text = "", length = 0;
    ret->shape = SHAPE_TEXT;
    if (is_null(text, length, fy_token_scalar_style(token))) {
        ret->shape = SHAPE_NOTHING;
    } else if (memchr(text, '\0', length) != NULL || utf8_length(text, length) != length) {
        complain(reader->complaints, -EINVAL, ret->scalar.mark,
                 "an escape in this text stands for a character that no text may hold");
        ret->shape = SHAPE_REFUSED;
    } else {
        ret->scalar.text = definition_strdup(reader->definition, text, length);
        if (ret->scalar.text == NULL)
            give_up(reader, -ENOMEM);
    }
}

static const char no_anchors[] =
    "anchors and aliases are not supported: write the value out wherever it is meant";

/* Anchors and tags are refused, but what they belong to is read all the same. */
static void refuse_properties(struct reader *reader, struct mark mark)
{
    struct fy_token *anchor = NULL, *tag = NULL;
    const struct fy_event *event = reader->event;
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
        complain(reader->complaints, -EINVAL, mark, "%s", no_anchors);
    if (tag != NULL)
        complain(reader->complaints, -EINVAL, mark,
                 "tags are not supported: leave out the part that begins with `!`");
}

/* Goes into a list or mapping. */
static void descend(struct reader *reader)
{
    reader->depth++;
    if (reader->depth > CONFIG_DEPTH_MAX) {
        complain(reader->complaints, -EINVAL, reader->mark,
                 "nested deeper than %d levels, more than any configuration needs",
                 CONFIG_DEPTH_MAX);
        give_up(reader, -EBADMSG);
    }
}

/* Reads a text, or the beginning of a list or mapping. */
static void node_read(struct reader *reader, struct node *ret)
{
    *ret = (struct node){.shape = SHAPE_REFUSED, .scalar.mark = reader->mark};
    refuse_properties(reader, reader->mark);
    switch (peek(reader)) {
    case FYET_SCALAR:
        node_read_scalar(reader, ret);
        break;
    case FYET_SEQUENCE_START:
        ret->shape = SHAPE_LIST;
        descend(reader);
        break;
    case FYET_MAPPING_START:
        ret->shape = SHAPE_MAPPING;
        descend(reader);
        break;
    case FYET_ALIAS:
        complain(reader->complaints, -EINVAL, reader->mark, "%s", no_anchors);
        break;
    default:
        return; /* the reading has ended */
    }
    advance(reader);
}

/* Steps over what is left of a node, whatever it holds. */
static void node_skip(struct reader *reader, const struct node *node)
{
    if (node->shape != SHAPE_LIST && node->shape != SHAPE_MAPPING)
        return;
    unsigned outside = reader->depth - 1;
    while (reader->rc == 0 && reader->depth > outside) {
        if (passed(reader, FYET_MAPPING_END) || passed(reader, FYET_SEQUENCE_END))
            continue;
        if (peek(reader) == FYET_MAPPING_START || peek(reader) == FYET_SEQUENCE_START)
            descend(reader);
        advance(reader);
    }
}

/* Complains of a node that is not what `name` takes, and steps over it. */
static void refuse_shape(struct reader *reader, const char *name, const char *takes,
                         const struct node *node)
{
    if (node->shape != SHAPE_REFUSED)
        complain(reader->complaints, -EINVAL, node->scalar.mark, "`%s` takes %s, not %s",
                 show(name).text, takes, shape_names[node->shape]);
    node_skip(reader, node);
}

/* ---- fields ---- */

/* A field of a mapping: a text that goes to `offset`, or something that `read` reads. */
struct field {
    const char *name;
    size_t offset;
    void (*read)(struct reader *reader, const char *name, const struct node *node, void *target);
};

enum { FIELDS_MAX = 8 };

/* What a mapping may hold. Fields that are not among these go to `settings`, or are unknown. */
struct form {
    const struct field *fields;
    size_t fields_n;
    bool has_settings;
    size_t settings; /* offset of the struct settings */
};

static void *at_offset(void *target, size_t offset)
{
    return (char *)target + offset;
}

/* Reads a text into `*scalar`; leaves only a mark there if it is something else. */
static void scalar_read(struct reader *reader, const char *name, const struct node *node,
                        struct scalar *scalar)
{
    *scalar = node->scalar;
    if (node->shape == SHAPE_TEXT)
        return;
    scalar->text = NULL;
    if (node->shape == SHAPE_NOTHING)
        complain(reader->complaints, -EINVAL, node->scalar.mark, "`%s` needs a value",
                 show(name).text);
    else
        refuse_shape(reader, name, "a single value", node);
}

/* Makes room for one more item. NULL, and none left: the reading has ended. */
static void *append(struct reader *reader, void *items, size_t *n, size_t size, size_t most)
{
    if (*n < most) {
        items = definition_append(reader->definition, items, n, size);
        if (items != NULL)
            return items;
        give_up(reader, -ENOMEM);
    } else {
        complain(reader->complaints, -EINVAL, reader->mark, "more than %zu entries here", most);
        give_up(reader, -EBADMSG);
    }
    *n = 0;
    return NULL;
}

/* Adds a name with a value to `settings`, at most `most` of them. */
static void setting_read(struct reader *reader, const struct scalar *key, const struct node *node,
                         struct settings *settings, size_t most)
{
    settings->items = append(reader, settings->items, &settings->n, sizeof *settings->items, most);
    if (settings->items == NULL)
        return;
    struct setting *setting = &settings->items[settings->n - 1];
    setting->name = *key;
    scalar_read(reader, key->text, node, &setting->value);
}

static void complain_of_repetition(struct reader *reader, const struct scalar *key,
                                   struct mark earlier)
{
    complain(reader->complaints, -EINVAL, key->mark, "`%s` is given twice: first in line %u",
             show(key->text).text, earlier.line);
}

static void complain_of_unknown(struct reader *reader, const struct form *form,
                                const struct scalar *key)
{
    const char *names[FIELDS_MAX];
    char list[128] = "";
    for (size_t i = 0; i < form->fields_n; i++) {
        names[i] = form->fields[i].name;
        strcat(strcat(list, i == 0 ? "" : ", "), names[i]);
    }
    const char *closest = closest_word(key->text, names, form->fields_n);
    if (closest != NULL)
        complain(reader->complaints, -EINVAL, key->mark, "unknown field `%s`%s",
                 show(key->text).text, hint_of(closest).text);
    else
        complain(reader->complaints, -EINVAL, key->mark, "unknown field `%s`; there are: %s",
                 show(key->text).text, list);
}

/* A field that the form does not name. */
static void other_field_read(struct reader *reader, const struct form *form, void *target,
                             const struct scalar *key, const struct node *node)
{
    if (!form->has_settings) {
        complain_of_unknown(reader, form, key);
        node_skip(reader, node);
        return;
    }
    struct settings *settings = at_offset(target, form->settings);
    for (size_t i = 0; i < settings->n; i++) {
        if (strcmp(settings->items[i].name.text, key->text) == 0 && !MUTANT(80)) {
            complain_of_repetition(reader, key, settings->items[i].name.mark);
            node_skip(reader, node);
            return;
        }
    }
    setting_read(reader, key, node, settings, CONFIG_SETTINGS_MAX);
}

/* Reads the name of a pair and the beginning of its value. False: there is no usable name. */
static bool pair_read(struct reader *reader, struct scalar *ret_key, struct node *ret_value)
{
    struct node key;
    node_read(reader, &key);
    node_skip(reader, &key);
    bool merges =
        key.shape == SHAPE_TEXT && key.scalar.text != NULL && strcmp(key.scalar.text, "<<") == 0;
    if (merges)
        complain(reader->complaints, -EINVAL, key.scalar.mark,
                 "merge keys (`<<`) are not supported: write the fields out");
    else if (key.shape != SHAPE_TEXT && key.shape != SHAPE_REFUSED)
        complain(reader->complaints, -EINVAL, key.scalar.mark, "a name must be a text, not %s",
                 shape_names[key.shape]);
    struct mark key_mark = key.scalar.mark;
    node_read(reader, ret_value);
    if (ret_value->shape == SHAPE_NOTHING)
        ret_value->scalar.mark = key_mark;
    if (reader->rc == 0 && key.shape == SHAPE_TEXT && !merges) {
        *ret_key = key.scalar;
        return true;
    }
    node_skip(reader, ret_value);
    return false;
}

/* Reads the pairs of a mapping whose beginning was read. */
static void form_read(struct reader *reader, const struct form *form, void *target)
{
    struct mark seen[FIELDS_MAX] = {{0}};
    while (!passed(reader, FYET_MAPPING_END)) {
        struct scalar key;
        struct node value;
        if (!pair_read(reader, &key, &value))
            continue;
        size_t i = 0;
        while (i < form->fields_n && strcmp(form->fields[i].name, key.text) != 0)
            i++;
        if (i == form->fields_n) {
            other_field_read(reader, form, target, &key, &value);
            continue;
        }
        const struct field *field = &form->fields[i];
        if (seen[i].line != 0) {
            complain_of_repetition(reader, &key, seen[i]);
            node_skip(reader, &value);
            continue;
        }
        seen[i] = key.mark;
        if (field->read != NULL)
            field->read(reader, field->name, &value, target);
        else
            scalar_read(reader, field->name, &value, at_offset(target, field->offset));
    }
}

/* Begins a list or mapping. Nothing at all is an empty one; anything else is refused. */
static bool begins(struct reader *reader, const char *name, enum shape shape,
                   const struct node *node)
{
    if (node->shape == shape)
        return true;
    if (node->shape != SHAPE_NOTHING)
        refuse_shape(reader, name, shape_names[shape], node);
    return false;
}

/* Reads a list of texts. */
static struct scalar *texts_read(struct reader *reader, const char *name, size_t *n, size_t most)
{
    struct scalar *texts = NULL;
    while (!passed(reader, FYET_SEQUENCE_END)) {
        struct node node;
        node_read(reader, &node);
        if (node.shape != SHAPE_TEXT) {
            refuse_shape(reader, name, "a list of texts", &node);
            continue;
        }
        texts = append(reader, texts, n, sizeof *texts, most);
        if (texts != NULL)
            texts[*n - 1] = node.scalar;
    }
    return texts;
}

/* ---- what a configuration holds ---- */

static void config_read(struct reader *reader, const char *name, const struct node *node,
                        void *target)
{
    struct set_definition *set = target;
    if (!begins(reader, name, SHAPE_MAPPING, node))
        return;
    while (!passed(reader, FYET_MAPPING_END)) {
        struct scalar key;
        struct node value;
        if (pair_read(reader, &key, &value))
            setting_read(reader, &key, &value, &set->config, CONFIG_ENTRIES_MAX);
    }
}

static void limits_read(struct reader *reader, const char *name, const struct node *node,
                        void *target)
{
    static const struct field fields[] = {
        {"type", offsetof(struct limit_definition, type), NULL},
        {"key", offsetof(struct limit_definition, key), NULL},
        {"algorithm", offsetof(struct limit_definition, algorithm), NULL},
        {"refund", offsetof(struct limit_definition, refund), NULL},
        {"overuse", offsetof(struct limit_definition, overuse), NULL},
    };
    static const struct form form = {.fields = fields,
                                     .fields_n = sizeof fields / sizeof fields[0],
                                     .has_settings = true,
                                     .settings = offsetof(struct limit_definition, settings)};
    struct set_definition *set = target;
    if (!begins(reader, name, SHAPE_LIST, node))
        return;
    while (!passed(reader, FYET_SEQUENCE_END)) {
        struct node item;
        node_read(reader, &item);
        if (item.shape != SHAPE_MAPPING) {
            refuse_shape(reader, name, "a list of mappings", &item);
            continue;
        }
        set->limits =
            append(reader, set->limits, &set->limits_n, sizeof *set->limits, CONFIG_ENTRIES_MAX);
        if (set->limits == NULL)
            return;
        struct limit_definition *limit = &set->limits[set->limits_n - 1];
        *limit = (struct limit_definition){.mark = item.scalar.mark};
        form_read(reader, &form, limit);
    }
}

static void sets_read(struct reader *reader, const char *name, const struct node *node,
                      void *target)
{
    static const struct field fields[] = {
        {"backend", offsetof(struct set_definition, backend), NULL},
        {"timeout", offsetof(struct set_definition, timeout), NULL},
        {"max_wait", offsetof(struct set_definition, max_wait), NULL},
        {"max_waiters", offsetof(struct set_definition, max_waiters), NULL},
        {"strict", offsetof(struct set_definition, strict), NULL},
        {"fair", offsetof(struct set_definition, fair), NULL},
        {"config", 0, config_read},
        {"limits", 0, limits_read},
    };
    static const struct form form = {.fields = fields,
                                     .fields_n = sizeof fields / sizeof fields[0]};
    struct definition *definition = target;
    if (!begins(reader, name, SHAPE_MAPPING, node))
        return;
    while (!passed(reader, FYET_MAPPING_END)) {
        struct scalar key;
        struct node value;
        if (!pair_read(reader, &key, &value))
            continue;
        definition->sets = append(reader, definition->sets, &definition->sets_n,
                                  sizeof *definition->sets, CONFIG_SETS_MAX);
        if (definition->sets == NULL)
            return;
        struct set_definition *set = &definition->sets[definition->sets_n - 1];
        *set = (struct set_definition){.name = key};
        if (begins(reader, key.text, SHAPE_MAPPING, &value))
            form_read(reader, &form, set);
    }
}

static void pool_sets_read(struct reader *reader, const char *name, const struct node *node,
                           void *target)
{
    struct pool_definition *pool = target;
    if (begins(reader, name, SHAPE_LIST, node))
        pool->sets = texts_read(reader, name, &pool->sets_n, CONFIG_SETS_MAX);
}

static void pools_read(struct reader *reader, const char *name, const struct node *node,
                       void *target)
{
    static const struct field fields[] = {
        {"balancer", offsetof(struct pool_definition, balancer), NULL},
        {"seed", offsetof(struct pool_definition, seed), NULL},
        {"sets", 0, pool_sets_read},
    };
    static const struct form form = {.fields = fields,
                                     .fields_n = sizeof fields / sizeof fields[0],
                                     .has_settings = true,
                                     .settings = offsetof(struct pool_definition, settings)};
    struct definition *definition = target;
    if (!begins(reader, name, SHAPE_MAPPING, node))
        return;
    while (!passed(reader, FYET_MAPPING_END)) {
        struct scalar key;
        struct node value;
        if (!pair_read(reader, &key, &value))
            continue;
        definition->pools = append(reader, definition->pools, &definition->pools_n,
                                   sizeof *definition->pools, CONFIG_SETS_MAX);
        if (definition->pools == NULL)
            return;
        struct pool_definition *pool = &definition->pools[definition->pools_n - 1];
        *pool = (struct pool_definition){.name = key};
        if (begins(reader, key.text, SHAPE_MAPPING, &value))
            form_read(reader, &form, pool);
    }
}

static void dirs_read(struct reader *reader, const char *name, const struct node *node,
                      void *target)
{
    struct definition *definition = target;
    if (begins(reader, name, SHAPE_LIST, node))
        definition->plugin_dirs =
            texts_read(reader, name, &definition->plugin_dirs_n, CONFIG_DIRS_MAX);
}

static void version_check(struct reader *reader, const struct scalar *version, struct mark mark)
{
    if (version->text == NULL && version->mark.line == 0)
        complain(reader->complaints, -EINVAL, mark,
                 "`version: 1` is missing: a configuration begins with it");
    else if (version->text != NULL && strcmp(version->text, "1") != 0)
        complain(reader->complaints, -EINVAL, version->mark,
                 "version `%s` is not known here: this library reads `version: 1`",
                 show(version->text).text);
}

/* The whole document. */
struct root {
    struct definition *definition;
    struct scalar version;
};

static void root_sets_read(struct reader *reader, const char *name, const struct node *node,
                           void *target)
{
    sets_read(reader, name, node, ((struct root *)target)->definition);
}

static void root_pools_read(struct reader *reader, const char *name, const struct node *node,
                            void *target)
{
    pools_read(reader, name, node, ((struct root *)target)->definition);
}

static void root_dirs_read(struct reader *reader, const char *name, const struct node *node,
                           void *target)
{
    dirs_read(reader, name, node, ((struct root *)target)->definition);
}

static void root_read(struct reader *reader)
{
    static const struct field fields[] = {
        {"version", offsetof(struct root, version), NULL},
        {"plugin_dirs", 0, root_dirs_read},
        {"sets", 0, root_sets_read},
        {"pools", 0, root_pools_read},
    };
    static const struct form form = {.fields = fields,
                                     .fields_n = sizeof fields / sizeof fields[0]};
    struct root root = {.definition = reader->definition};
    struct node node;
    node_read(reader, &node);
    if (node.shape == SHAPE_MAPPING) {
        form_read(reader, &form, &root);
    } else if (node.shape != SHAPE_NOTHING) {
        if (node.shape != SHAPE_REFUSED)
            complain(reader->complaints, -EINVAL, node.scalar.mark,
                     "a configuration is a mapping that begins with `version: 1`, not %s",
                     shape_names[node.shape]);
        node_skip(reader, &node);
        return;
    }
    if (reader->rc == 0)
        version_check(reader, &root.version, node.scalar.mark);
}

static void stream_read(struct reader *reader)
{
    advance(reader);
    passed(reader, FYET_STREAM_START);
    if (peek(reader) == FYET_STREAM_END) {
        version_check(reader, &(struct scalar){0}, (struct mark){1, 1});
        return;
    }
    passed(reader, FYET_DOCUMENT_START);
    root_read(reader);
    passed(reader, FYET_DOCUMENT_END);
    if (peek(reader) == FYET_DOCUMENT_START) {
        complain(reader->complaints, -EINVAL, reader->mark,
                 "a second document begins here: a configuration is a single one");
        give_up(reader, -EBADMSG);
    }
}

/* ---- text ---- */

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

static void reader_free(struct reader *reader)
{
    give_up(reader, 0);
    if (reader->parser != NULL)
        fy_parser_destroy(reader->parser);
    if (reader->diag != NULL)
        fy_diag_destroy(reader->diag);
}

static int reader_init(struct reader *reader, const char *text, size_t length)
{
    struct fy_diag_cfg diag_cfg;
    fy_diag_cfg_default(&diag_cfg);
    diag_cfg.fp = NULL;
    diag_cfg.output_fn = hear_nothing;
    diag_cfg.level = FYET_ERROR;
    diag_cfg.colorize = false;
    reader->diag = fy_diag_create(&diag_cfg);
    if (reader->diag == NULL)
        return -ENOMEM;
    fy_diag_set_collect_errors(reader->diag, true);
    const struct fy_parse_cfg cfg = {
        .search_path = "",
        .flags = FYPCF_QUIET | FYPCF_DEFAULT_VERSION_1_2 | FYPCF_JSON_NONE,
        .diag = reader->diag,
    };
    reader->parser = fy_parser_create(&cfg);
    if (reader->parser == NULL || fy_parser_set_string(reader->parser, text, length) != 0)
        return -ENOMEM;
    return 0;
}

int config_parse(const char *text, size_t length, struct definition *ret,
                 struct complaints *complaints)
{
    uint32_t before = complaints->total;
    *ret = (struct definition){0};
    if (text_check(text, length, complaints) < 0)
        return -EBADMSG;
    struct reader reader = {.definition = ret, .complaints = complaints, .mark = {1, 1}};
    int rc = reader_init(&reader, text, length);
    if (rc == 0) {
        stream_read(&reader);
        rc = reader.rc;
    }
    reader_free(&reader);
    if (rc == 0 && complaints->total > before)
        rc = -EINVAL;
    return rc;
}
