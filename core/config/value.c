/* SPDX-License-Identifier: MIT */
/* Values: names, choices, booleans, amounts, durations and sizes. */
#include "config/value.h"
#include "base/units.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

bool value_is_invalid(const struct config_value *value)
{
    return value->text == NULL && value->mark.line != 0;
}

bool value_is_given(const struct config_value *value)
{
    return value->text != NULL || value->mark.line != 0;
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
    for (size_t i = 0; wrong == NULL && i < length; i++) {
        if ((unsigned char)name->text[i] < 0x20 || name->text[i] == 0x7f)
            wrong = "must not hold control characters";
    }
    if (wrong != NULL)
        complaint_add(complaints, -EINVAL, name->mark, "%s %s", what, wrong);
    return wrong == NULL;
}

int value_read_choice(struct complaints *complaints, const char *field,
                      const struct config_value *value, const char *const *words, size_t n)
{
    char list[256] = "";
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(value->text, words[i]) == 0)
            return (int)i;
        if (length < sizeof list)
            length += (size_t)snprintf(list + length, sizeof list - length, "%s%s",
                                       i == 0 ? "" : (i + 1 < n ? ", " : " or "), words[i]);
    }
    complaint_add(complaints, -EINVAL, value->mark, "`%s` takes %s, not `%s`%s", field, list,
                  error_text(value->text).text, hint_format(hint_find(value->text, words, n)).text);
    return -1;
}

bool value_read_boolean(struct complaints *complaints, const char *field,
                        const struct config_value *value, bool *ret)
{
    if (value->text == NULL)
        return false;
    if (units_parse_boolean(value->text, ret) == 0)
        return true;
    complaint_add(complaints, -EINVAL, value->mark, "`%s` takes true or false, not `%s`", field,
                  error_text(value->text).text);
    return false;
}

/* What a number can be a number of. */
struct value_unit {
    int (*read)(const char *text, uint64_t *ret);
    const char *(*write)(uint64_t number, char buffer[UNITS_TEXT_MAX]);
    const char *examples;
};

static const struct value_unit amount_unit = {units_parse_amount, units_format_amount,
                                              "a whole amount such as 100, 10k or 1M"};
static const struct value_unit duration_unit = {units_parse_duration, units_format_duration,
                                                "a duration such as 250ms, 60s or 1d"};
static const struct value_unit size_unit = {units_parse_size, units_format_size,
                                            "a size in bytes such as 65536, 256KiB or 64MiB"};

static bool value_read_with_unit(struct complaints *complaints, const char *field,
                                 const struct config_value *value, const struct value_unit *unit,
                                 uint64_t min, uint64_t max, uint64_t *ret)
{
    char low[UNITS_TEXT_MAX], high[UNITS_TEXT_MAX];
    uint64_t number;
    int rc = unit->read(value->text, &number);
    if (rc == -ERANGE)
        number = UINT64_MAX;
    if (rc == -EINVAL)
        complaint_add(complaints, -EINVAL, value->mark, "`%s` takes %s, not `%s`", field,
                      unit->examples, error_text(value->text).text);
    else if (number < min)
        complaint_add(complaints, -EINVAL, value->mark, "`%s` must be at least %s, not %s", field,
                      unit->write(min, low), error_text(value->text).text);
    else if (rc == -ERANGE || number > max)
        complaint_add(complaints, -EINVAL, value->mark, "`%s` must be at most %s, not %s", field,
                      unit->write(max, high), error_text(value->text).text);
    else {
        *ret = number;
        return true;
    }
    return false;
}

bool value_read_number(struct complaints *complaints, const char *field,
                       const struct config_value *value, bool is_duration, uint64_t min,
                       uint64_t max, uint64_t *ret)
{
    return value_read_with_unit(complaints, field, value,
                                is_duration ? &duration_unit : &amount_unit, min, max, ret);
}

bool value_read_size(struct complaints *complaints, const char *field,
                     const struct config_value *value, uint64_t min, uint64_t max, uint64_t *ret)
{
    return value_read_with_unit(complaints, field, value, &size_unit, min, max, ret);
}
