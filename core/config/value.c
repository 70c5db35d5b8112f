/* SPDX-License-Identifier: MIT */
/* Scalars: names, words, booleans, amounts and durations. */
#include "config/value.h"
#include "base/mutant.h"
#include "base/units.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

bool scalar_is_spoilt(const struct scalar *scalar)
{
    return scalar->text == NULL && scalar->mark.line != 0;
}

bool scalar_is_given(const struct scalar *scalar)
{
    return scalar->text != NULL || scalar->mark.line != 0;
}

bool scalar_check_name(struct complaints *complaints, const char *what, const struct scalar *name)
{
    size_t length = strlen(name->text);
    const char *wrong = NULL;
    if (length == 0)
        wrong = "must not be empty";
    else if (length > CONFIG_NAME_MAX)
        wrong = "is longer than 255 bytes";
    else if (utf8_length(name->text, length) != length)
        wrong = "is not UTF-8";
    for (size_t i = 0; wrong == NULL && i < length; i++) {
        if ((unsigned char)name->text[i] < 0x20 || name->text[i] == 0x7f)
            wrong = "must not hold control characters";
    }
    if (wrong != NULL)
        complain(complaints, -EINVAL, name->mark, "%s %s", what, wrong);
    return wrong == NULL;
}

int scalar_read_word(struct complaints *complaints, const char *field, const struct scalar *scalar,
                     const char *const *words, size_t n)
{
    char list[256] = "";
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(scalar->text, words[i]) == 0)
            return (int)i;
        if (length < sizeof list)
            length += (size_t)snprintf(list + length, sizeof list - length, "%s%s",
                                       i == 0 ? "" : (i + 1 < n ? ", " : " or "), words[i]);
    }
    complain(complaints, -EINVAL, scalar->mark, "`%s` takes %s, not `%s`%s", field, list,
             show(scalar->text).text, hint_of(closest_word(scalar->text, words, n)).text);
    return -1;
}

bool scalar_read_boolean(struct complaints *complaints, const char *field,
                         const struct scalar *scalar, bool *ret)
{
    if (scalar->text == NULL)
        return false;
    if (quantity_boolean(scalar->text, ret) == 0)
        return true;
    complain(complaints, -EINVAL, scalar->mark, "`%s` takes true or false, not `%s`", field,
             show(scalar->text).text);
    return false;
}

/* What a number in writing may be of. */
struct quantity {
    int (*read)(const char *text, uint64_t *ret);
    const char *(*write)(uint64_t value, char buffer[QUANTITY_TEXT_MAX]);
    const char *examples;
};

static const struct quantity amounts = {quantity_amount, quantity_write_amount,
                                        "a whole amount such as 100, 10k or 1M"};
static const struct quantity durations = {quantity_duration, quantity_write_duration,
                                          "a duration such as 250ms, 60s or 1d"};
static const struct quantity sizes = {quantity_size, quantity_write_size,
                                      "a size in bytes such as 65536, 256KiB or 64MiB"};

static bool read_quantity(struct complaints *complaints, const char *field,
                          const struct scalar *scalar, const struct quantity *quantity,
                          uint64_t min, uint64_t max, uint64_t *ret)
{
    char low[QUANTITY_TEXT_MAX], high[QUANTITY_TEXT_MAX];
    uint64_t value;
    int rc = quantity->read(scalar->text, &value);
    if (rc == -ERANGE)
        value = UINT64_MAX;
    if (rc == -EINVAL)
        complain(complaints, -EINVAL, scalar->mark, "`%s` takes %s, not `%s`", field,
                 quantity->examples, show(scalar->text).text);
    else if (value < min && !MUTANT(81))
        complain(complaints, -EINVAL, scalar->mark, "`%s` must be at least %s, not %s", field,
                 quantity->write(min, low), show(scalar->text).text);
    else if (rc == -ERANGE || (value > max && !MUTANT(81)))
        complain(complaints, -EINVAL, scalar->mark, "`%s` must be at most %s, not %s", field,
                 quantity->write(max, high), show(scalar->text).text);
    else {
        *ret = value;
        return true;
    }
    return false;
}

bool scalar_read_quantity(struct complaints *complaints, const char *field,
                          const struct scalar *scalar, bool is_duration, uint64_t min, uint64_t max,
                          uint64_t *ret)
{
    return read_quantity(complaints, field, scalar, is_duration ? &durations : &amounts, min, max,
                         ret);
}

bool scalar_read_size(struct complaints *complaints, const char *field, const struct scalar *scalar,
                      uint64_t min, uint64_t max, uint64_t *ret)
{
    return read_quantity(complaints, field, scalar, &sizes, min, max, ret);
}
