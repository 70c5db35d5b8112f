/* SPDX-License-Identifier: MIT */
/* Limits, amounts and durations on the command line. */
#include "limit_option.h"
#include "base/units.h"
#include <stdio.h>
#include <string.h>

/* Writes the complaint. Returns false. */
static bool refuse(struct option_complaint *ret_wrong, const char *what)
{
    snprintf(ret_wrong->text, sizeof(ret_wrong->text), "%s", what);
    return false;
}

/* Parses a number with a unit. Complains with `what` and the number that was perhaps meant. */
static bool parse_number(enum units_kind kind, const char *text, uint64_t *ret, const char *what,
                         struct option_complaint *ret_wrong)
{
    char suggestion[UNITS_TEXT_MAX];

    if (units_parse(kind, text, ret) == 0)
        return true;
    refuse(ret_wrong, what);
    if (units_suggest(kind, text, suggestion)) {
        size_t n = strlen(ret_wrong->text);

        snprintf(ret_wrong->text + n, sizeof(ret_wrong->text) - n, " (did you mean `%s`?)",
                 suggestion);
    }
    return false;
}

/* Parses a number that ends at `end`, and restores the character there. */
static bool parse_until(char *text, char *end, enum units_kind kind, uint64_t *ret,
                        const char *what, struct option_complaint *ret_wrong)
{
    char kept = *end;
    bool is_right;

    *end = '\0';
    is_right = parse_number(kind, text, ret, what, ret_wrong);
    *end = kept;
    return is_right;
}

/* Parses the window of a rate, which ends at `end`: a duration, or a unit of time alone. */
static bool parse_window(char *text, char *end, uint64_t *ret, struct option_complaint *ret_wrong)
{
    static const char what[] = "WINDOW is a duration like 500ms, 60s or 1h, or a unit like s";
    char one[UNITS_TEXT_MAX] = "1";
    size_t length = (size_t)(end - text);

    if (length > 0 && length < sizeof(one) - 1 && (*text < '0' || *text > '9')) {
        memcpy(one + 1, text, length);
        return parse_number(UNITS_DURATION, one, ret, what, ret_wrong);
    }
    if (!parse_until(text, end, UNITS_DURATION, ret, what, ret_wrong))
        return false;
    return *ret != 0 || refuse(ret_wrong, what);
}

/* Parses WINDOW or WINDOW/ALGORITHM. */
static bool parse_rate(char *text, struct weir_limit_spec *ret, struct option_complaint *ret_wrong)
{
    char *slash = strchr(text, '/');
    char *end = slash ? slash : text + strlen(text);

    if (!parse_window(text, end, &ret->window_ns, ret_wrong))
        return false;
    if (slash && slash[1] == '\0')
        return refuse(ret_wrong, "ALGORITHM is the name of a plugin");
    ret->type = WEIR_LIMIT_RATE;
    ret->algorithm = slash ? slash + 1 : "gcra";
    if (slash)
        *slash = '\0';
    return true;
}

bool limit_option_parse(char *text, struct weir_limit_spec *ret, struct option_complaint *ret_wrong)
{
    static const char what[] = "N is a whole number from 1, like 4, 10k or 2M";
    struct weir_limit_spec limit = {
        .size = sizeof(limit), .type = WEIR_LIMIT_RESOURCE, .key = text};
    char *colon = strrchr(text, ':');
    char *slash = colon ? strchr(colon, '/') : NULL;
    char *end = slash ? slash : text + strlen(text);

    if (!colon || colon == text)
        return refuse(ret_wrong, "a limit is written KEY:N or KEY:N/WINDOW");
    if (!parse_until(colon + 1, end, UNITS_AMOUNT, &limit.capacity, what, ret_wrong))
        return false;
    if (limit.capacity == 0)
        return refuse(ret_wrong, what);
    if (slash && !parse_rate(slash + 1, &limit, ret_wrong))
        return false;
    *colon = '\0';
    *ret = limit;
    return true;
}

bool amount_option_parse(char *text, struct weir_amount *ret, struct option_complaint *ret_wrong)
{
    char *sign = strrchr(text, '=');

    if (!sign || sign == text)
        return refuse(ret_wrong, "an amount is written KEY=N");
    if (!parse_number(UNITS_AMOUNT, sign + 1, &ret->amount,
                      "N is a whole number, like 4, 10k or 2M", ret_wrong))
        return false;
    *sign = '\0';
    ret->key = text;
    return true;
}

bool duration_option_parse(const char *text, uint64_t *ret_ns, struct option_complaint *ret_wrong)
{
    if (strcmp(text, "forever") == 0) {
        *ret_ns = WEIR_FOREVER;
        return true;
    }
    return parse_number(UNITS_DURATION, text, ret_ns,
                        "not a duration like 500ms, 60s, 1h or forever", ret_wrong);
}
