/* SPDX-License-Identifier: MIT */
/* Limits, amounts and durations on the command line. */
#include "limit_option.h"
#include "base/units.h"
#include <string.h>

/* Reads a number with a unit that ends at `end`, and restores the character there. */
static int read_until(char *text, char *end, enum units_kind kind, uint64_t *ret)
{
    char kept = *end;
    int r;

    *end = '\0';
    r = units_parse(kind, text, ret);
    *end = kept;
    return r;
}

/* Reads WINDOW or WINDOW/ALGORITHM. */
static const char *parse_window(char *text, struct weir_limit_spec *ret)
{
    char *slash = strchr(text, '/');
    char *end = slash ? slash : text + strlen(text);

    if (read_until(text, end, UNITS_DURATION, &ret->window_ns) < 0 || ret->window_ns == 0)
        return "WINDOW is a duration like 500ms, 60s or 1h";
    if (slash && slash[1] == '\0')
        return "ALGORITHM is the name of a plugin";
    ret->type = WEIR_LIMIT_RATE;
    ret->algorithm = slash ? slash + 1 : "gcra";
    if (slash)
        *slash = '\0';
    return NULL;
}

const char *limit_option_parse(char *text, struct weir_limit_spec *ret)
{
    struct weir_limit_spec limit = {
        .size = sizeof(limit), .type = WEIR_LIMIT_RESOURCE, .key = text};
    char *colon = strrchr(text, ':');
    char *slash = colon ? strchr(colon, '/') : NULL;
    const char *wrong;

    if (!colon || colon == text)
        return "a limit is written KEY:N or KEY:N/WINDOW";
    if (read_until(colon + 1, slash ? slash : colon + strlen(colon), UNITS_AMOUNT,
                   &limit.capacity) < 0 ||
        limit.capacity == 0)
        return "N is a whole number from 1, like 4, 10k or 2M";
    if (slash && (wrong = parse_window(slash + 1, &limit)))
        return wrong;
    *colon = '\0';
    *ret = limit;
    return NULL;
}

const char *amount_option_parse(char *text, struct weir_amount *ret)
{
    char *sign = strrchr(text, '=');

    if (!sign || sign == text)
        return "an amount is written KEY=N";
    if (units_parse(UNITS_AMOUNT, sign + 1, &ret->amount) < 0)
        return "N is a whole number, like 4, 10k or 2M";
    *sign = '\0';
    ret->key = text;
    return NULL;
}

const char *duration_option_parse(const char *text, uint64_t *ret_ns)
{
    if (strcmp(text, "forever") == 0)
        *ret_ns = WEIR_FOREVER;
    else if (units_parse(UNITS_DURATION, text, ret_ns) < 0)
        return "not a duration like 500ms, 60s, 1h or forever";
    return NULL;
}
