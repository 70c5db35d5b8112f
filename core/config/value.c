/* SPDX-License-Identifier: MIT */
/* Values: names, choices, booleans, amounts, durations and sizes. */
#include "config/value.h"
#include "base/utf8.h"
#include <string.h>

bool value_is_given(const struct config_value *value)
{
    return value->text || value->mark.line != 0;
}

const char *value_complain_similar(struct complaints *complaints, const struct config_value *field,
                                   const char *const *names, size_t n)
{
    struct hint hint = hint_find(field->text, names, n);
    if (hint.closest)
        complain(complaints, field->mark, "unknown field `%s`%s", error_text(field->text).text,
                 hint.text);
    return hint.closest;
}

bool value_check_name(struct complaints *complaints, const char *what,
                      const struct config_value *name)
{
    size_t length = strlen(name->text);
    const char *wrong = NULL;
    if (length == 0)
        wrong = "must not be empty";
    else if (length > CONFIG_NAME_MAX)
        wrong = "is longer than 255 bytes";
    else if (utf8_valid_length(name->text, length) != length)
        wrong = "is not UTF-8";
    else if (text_has_control(name->text))
        wrong = "must not hold control characters";
    if (wrong)
        complain(complaints, name->mark, "%s %s", what, wrong);
    return !wrong;
}

int value_check_path(struct complaints *complaints, const struct config_value *path)
{
    if (!path->text || path->text[0] == '/')
        return 0;
    return complain(
        complaints, path->mark, "`%s` is not an absolute path: begin it with `/`%s",
        error_text(path->text).text,
        path->text[0] == '~' || path->text[0] == '$' ? "; `~` and variables are not replaced" : "");
}

bool value_read_choice(struct complaints *complaints, const char *field,
                       const struct config_value *value, const char *const *words, size_t n,
                       uint64_t *ret)
{
    if (!value->text)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(value->text, words[i]) == 0) {
            *ret = i;
            return true;
        }
    }
    complain(complaints, value->mark, "`%s` takes %s, not `%s`%s", field,
             text_join(words, n, ", ", " or ").text, error_text(value->text).text,
             hint_find(value->text, words, n).text);
    return false;
}

bool value_read_boolean(struct complaints *complaints, const char *field,
                        const struct config_value *value, bool *ret)
{
    static const char *const words[] = {"true", "false"};
    uint64_t word;
    if (!value_read_choice(complaints, field, value, words, 2, &word))
        return false;
    *ret = word == 0;
    return true;
}

/* Complains of a text that is no number of this kind, with what it was perhaps meant to be. */
static void value_complain_number(struct complaints *complaints, const char *field,
                                  const struct config_value *value, enum units_kind kind,
                                  uint64_t min, uint64_t max)
{
    static const char *const examples[] = {
        [UNITS_AMOUNT] = "a whole amount such as 100, 10k or 1M",
        [UNITS_DURATION] = "a duration such as 250ms, 60s or 1d",
        [UNITS_SIZE] = "a size in bytes such as 65536, 256KiB or 64MiB",
        [UNITS_RATIO] = "a ratio such as 0.25, 1.5 or 12.5%, of at most nine decimals",
    };
    char suggestion[UNITS_TEXT_MAX];
    uint64_t number = 0;
    bool is_close = units_suggest(kind, value->text, suggestion) &&
                    units_parse(kind, suggestion, &number) == 0 && number >= min && number <= max;
    bool is_wait = max == WEIR_FOREVER - 1; /* the greatest duration is written as a word */
    complain(complaints, value->mark, "`%s` takes %s%s, not `%s`%s%s%s", field, examples[kind],
             is_wait ? ", or `forever`" : "", error_text(value->text).text,
             is_close ? " (did you mean `" : "", is_close ? suggestion : "", is_close ? "`?)" : "");
}

bool value_read_number(struct complaints *complaints, const char *field,
                       const struct config_value *value, enum units_kind kind, uint64_t min,
                       uint64_t max, uint64_t *ret)
{
    char bound[UNITS_TEXT_MAX];
    uint64_t number;
    if (!value->text)
        return false;
    int r = units_parse(kind, value->text, &number);
    if (r == -ERANGE)
        number = UINT64_MAX;
    if (r == -EINVAL)
        value_complain_number(complaints, field, value, kind, min, max);
    else if (number < min)
        complain(complaints, value->mark, "`%s` must be at least %s, not %s", field,
                 units_format(kind, min, bound), error_text(value->text).text);
    else if (r == -ERANGE || number > max)
        complain(complaints, value->mark, "`%s` must be at most %s, not %s", field,
                 units_format_about(kind, max, bound), error_text(value->text).text);
    else {
        *ret = number;
        return true;
    }
    return false;
}
