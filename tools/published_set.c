/* SPDX-License-Identifier: MIT */
/* Reads what a process says of the sets that it publishes. */
#include "published_set.h"
#include "api/published.h"
#include "utf8.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ITEM_MAX      ((size_t)65536)
#define SETTINGS_MAX  64u
#define NAME_MAX_SIZE ((size_t)255) /* of a set, a key or a gauge, as configurations have them */
#define INFO_LEAST    40u           /* bytes, in whatever release */
#define STATS_LEAST   256u
#define CLASS_LEAST   96u

/* An item in an answer. */
struct item {
    uint32_t kind;
    size_t size;
    const unsigned char *data;
};

/* A set that is being read, and what is read of it. */
struct reading {
    struct snapshot_set set;
    struct snapshot_set begun;      /* what each set begins with: the process */
    struct snapshot_limit *limit;   /* the last one, or NULL */
    struct snapshot_holder *holder; /* the last one, or NULL */
    struct snapshot_set *sets;      /* those before it */
    size_t sets_n;
    const struct published_answer *of;
    bool has_set, has_info, has_stats;
};

/* ---- items ---- */

/* Reads the item at `*at`, and passes on. Returns 1, 0 (it has not come in full), or -EBADMSG. */
static int item_next(const struct published_answer *answer, size_t *at, struct item *ret)
{
    struct published_item head;
    size_t left = answer->n - *at, size;

    if (left < sizeof(head))
        return 0;
    memcpy(&head, answer->bytes + *at, sizeof(head));
    if (head.size > ITEM_MAX)
        return -EBADMSG;
    size = sizeof(head) + (((size_t)head.size + 7) & ~(size_t)7);
    if (left < size)
        return 0;
    *ret = (struct item){head.kind, head.size, answer->bytes + *at + sizeof(head)};
    *at += size;
    return 1;
}

int published_answer_scan(struct published_answer *answer)
{
    struct published_head head;
    struct item item;
    int r = 1;

    if (answer->scanned == 0) {
        if (answer->n < sizeof(head))
            return 0;
        memcpy(&head, answer->bytes, sizeof(head));
        if (memcmp(head.magic, PUBLISHED_MAGIC, sizeof(head.magic)) != 0)
            return -EBADMSG;
        if (head.version != PUBLISHED_VERSION)
            return -EPROTONOSUPPORT;
        answer->scanned = sizeof(head);
    }
    while (!answer->is_whole && (r = item_next(answer, &answer->scanned, &item)) > 0)
        answer->is_whole = item.kind == PUBLISHED_END;
    return r < 0 ? r : 0;
}

/* Copies a struct, of which the process may know less, or more. Returns 0, or -EBADMSG: it has less
 * than there ever was of it. */
static int item_struct(const struct item *item, size_t least, void *ret, size_t size)
{
    memset(ret, 0, size);
    memcpy(ret, item->data, item->size < size ? item->size : size);
    return item->size < least ? -EBADMSG : 0;
}

/* What is no UTF-8, or could do something to a terminal, becomes `?`. */
static void text_make_harmless(char *text, size_t size)
{
    for (size_t at = 0; at < size;) {
        const unsigned char *sequence = (const unsigned char *)text + at;
        size_t length = utf8_sequence(sequence);

        if (length == 0 || *sequence == '\0' || utf8_is_control(sequence, length)) {
            length = length != 0 ? length : 1;
            memset(text + at, '?', length);
        }
        at += length;
    }
}

/* Copies a text, in place of an older one. */
static int item_text(const struct item *item, char **ret)
{
    char *text;
    size_t size = item->size < PUBLISHED_TEXT_MAX ? item->size : PUBLISHED_TEXT_MAX;

    text = calloc(size + 1, 1);
    if (!text)
        return -ENOMEM;
    memcpy(text, item->data, size);
    text_make_harmless(text, size);
    free(*ret);
    *ret = text;
    return 0;
}

/* Copies a text that names something: names are not cut, so that different ones stay different. */
static int item_name(const struct item *item, char **ret)
{
    return item->size == 0 || item->size > NAME_MAX_SIZE ? -EBADMSG : item_text(item, ret);
}

static int item_setting_text(const struct item *item, const char **ret)
{
    char *text = (char *)(uintptr_t)*ret;
    int r = item_text(item, &text);

    if (r == 0)
        *ret = text;
    return r;
}

/* ---- parts of a set ---- */

static int begin_limit(struct reading *reading, const struct item *item)
{
    struct snapshot_set *set = &reading->set;
    struct snapshot_limit *limits;
    struct weir_limit_stats stats;
    uint32_t type;

    if (item_struct(item, sizeof(stats), &stats, sizeof(stats)) < 0)
        return -EBADMSG;
    memcpy(&type, &stats, sizeof(type));
    if (set->limits_n >= WEIR_LIMITS_MAX || set->holders_n != 0 ||
        (type != WEIR_LIMIT_RATE && type != WEIR_LIMIT_CALL && type != WEIR_LIMIT_RESOURCE))
        return -EBADMSG;
    limits = realloc(set->limits, (set->limits_n + 1) * sizeof(*limits));
    if (!limits)
        return -ENOMEM;
    set->limits = limits;
    reading->limit = &limits[set->limits_n++];
    *reading->limit = (struct snapshot_limit){.stats = stats};
    reading->limit->stats.key = reading->limit->stats.algorithm = NULL;
    return 0;
}

static int begin_setting(struct snapshot_limit *limit, const struct item *item)
{
    struct weir_setting *settings;

    if (limit->settings_n >= SETTINGS_MAX)
        return -EBADMSG;
    settings = realloc(limit->settings, (limit->settings_n + 1) * sizeof(*settings));
    if (!settings)
        return -ENOMEM;
    limit->settings = settings;
    settings[limit->settings_n] = (struct weir_setting){NULL, NULL};
    return item_setting_text(item, &settings[limit->settings_n++].name);
}

static int begin_gauge(struct snapshot_limit *limit, const struct item *item)
{
    struct weir_limit_gauge *gauge = &limit->gauges[limit->gauges_n];

    if (limit->gauges_n >= WEIR_GAUGES_MAX ||
        item_struct(item, sizeof(*gauge), gauge, sizeof(*gauge)) < 0)
        return -EBADMSG;
    gauge->name = gauge->doc = NULL;
    limit->gauges_n++;
    return 0;
}

/* Reads a part of the last limit. */
static int read_limit(struct snapshot_limit *limit, const struct item *item)
{
    switch (item->kind) {
    case PUBLISHED_KEY:
        return item_name(item, &limit->key);
    case PUBLISHED_ALGORITHM:
        return item_text(item, &limit->algorithm);
    case PUBLISHED_SETTING:
        return begin_setting(limit, item);
    case PUBLISHED_VALUE:
        return limit->settings_n == 0
                   ? -EBADMSG
                   : item_setting_text(item, &limit->settings[limit->settings_n - 1].value);
    case PUBLISHED_GAUGE:
        return begin_gauge(limit, item);
    default:
        return limit->gauges_n == 0
                   ? -EBADMSG
                   : item_setting_text(item, &limit->gauges[limit->gauges_n - 1].name);
    }
}

/* The process is the one that was asked, whatever it says. */
static int begin_holder(struct reading *reading, const struct item *item)
{
    struct snapshot_set *set = &reading->set;
    struct published_holder said;
    struct snapshot_holder *holder;

    if (item_struct(item, sizeof(said.holder), &said, sizeof(said)) < 0 ||
        set->holders_n >= PUBLISHED_HOLDERS_MAX || said.holder.waiting > 1)
        return -EBADMSG;
    if (reading->of->budget->holders == 0)
        return -EFBIG;
    reading->of->budget->holders--;
    holder = realloc(set->holders, (set->holders_n + 1) * sizeof(*holder));
    if (!holder)
        return -ENOMEM;
    set->holders = holder;
    holder += set->holders_n++;
    *holder = (struct snapshot_holder){.holder = said.holder};
    holder->holder.process = reading->of->process;
    holder->age_ns = said.age_ns;
    holder->is_next = said.is_next != 0 && said.holder.waiting != 0;
    holder->retry_after_ns = said.retry_after_ns;
    holder->limiting = said.limiting < set->limits_n ? said.limiting : UINT32_MAX;
    holder->overheld = UINT32_MAX; /* of a release before this was told, too */
    if (!said.holder.waiting && said.overheld > 0 && said.overheld <= set->limits_n)
        holder->overheld = (uint32_t)said.overheld - 1;
    holder->overheld_ns = said.overheld_ns;
    set->held_n += !said.holder.waiting;
    reading->holder = holder;
    return 0;
}

/* A name of a class is a label of metrics: each is there once. What could do something to a
 * terminal is no part of one. */
static int read_class(struct snapshot_set *set, const struct item *item)
{
    struct weir_class_stats *class = &set->classes[set->classes_n];
    size_t length;

    if (set->classes_n >= WEIR_CLASSES_MAX ||
        item_struct(item, CLASS_LEAST, class, sizeof(*class)) < 0)
        return -EBADMSG;
    length = strnlen(class->name, sizeof(class->name));
    if (length == 0 || length == sizeof(class->name))
        return -EBADMSG;
    text_make_harmless(class->name, length);
    for (size_t i = 0; i < set->classes_n; i++)
        if (strcmp(set->classes[i].name, class->name) == 0)
            return -EBADMSG;
    set->classes_n++;
    return 0;
}

/* Reads a part of a set that is none of a limit's. */
static int read_part(struct reading *reading, const struct item *item)
{
    struct snapshot_set *set = &reading->set;
    int r;

    switch (item->kind) {
    case PUBLISHED_INFO:
        reading->has_info = true;
        r = item_struct(item, INFO_LEAST, &set->info, sizeof(set->info));
        set->info.backend = set->info.lifetime = NULL;
        return r;
    case PUBLISHED_STATS:
        reading->has_stats = true;
        return item_struct(item, STATS_LEAST, &set->stats, sizeof(set->stats));
    case PUBLISHED_SUBJECTS:
        set->has_subjects = true;
        r = item_struct(item, INFO_LEAST, &set->subjects, sizeof(set->subjects));
        set->subjects.evict = NULL;
        return r;
    case PUBLISHED_EVICT:
        return item_text(item, &set->evict);
    case PUBLISHED_LIMIT:
        return begin_limit(reading, item);
    case PUBLISHED_HOLDER:
        return begin_holder(reading, item);
    case PUBLISHED_AMOUNTS:
        if (!reading->holder)
            return -EBADMSG;
        return item_struct(item, 0, reading->holder->amounts, sizeof(reading->holder->amounts));
    case PUBLISHED_CLASS:
        return read_class(set, item);
    default:
        return 0; /* of a later version */
    }
}

/* ---- sets ---- */

/* Says whether each gauge has a name of its own: it is a label of metrics. */
static bool gauges_have_names(const struct snapshot_limit *limit)
{
    for (size_t i = 0; i < limit->gauges_n; i++) {
        if (!limit->gauges[i].name)
            return false;
        for (size_t k = 0; k < i; k++)
            if (strcmp(limit->gauges[i].name, limit->gauges[k].name) == 0)
                return false;
    }
    return true;
}

/* Says whether a set has all that is shown of it. */
static bool set_is_whole(const struct snapshot_set *set)
{
    for (size_t i = 0; i < set->limits_n; i++) {
        const struct snapshot_limit *limit = &set->limits[i];

        for (size_t k = 0; k < limit->settings_n; k++)
            if (!limit->settings[k].value)
                return false;
        if (!gauges_have_names(limit))
            return false;
        if (!limit->key)
            return false;
    }
    return !set->has_subjects || set->evict;
}

static int end_set(struct reading *reading)
{
    struct snapshot_set *set = &reading->set, *sets;

    if (!reading->has_set)
        return 0;
    if (!reading->has_info || !reading->has_stats || !set_is_whole(set))
        return -EBADMSG;
    for (size_t i = 0; i < set->limits_n; i++) {
        set->limits[i].stats.key = set->limits[i].key;
        set->limits[i].stats.algorithm = set->limits[i].algorithm;
    }
    set->subjects.evict = set->evict;
    snapshot_order_holders(set);
    sets = realloc(reading->sets, (reading->sets_n + 1) * sizeof(*sets));
    if (!sets)
        return -ENOMEM;
    reading->sets = sets;
    sets[reading->sets_n++] = *set;
    reading->has_set = false;
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct snapshot_set *)a)->name, ((const struct snapshot_set *)b)->name);
}

/* Says whether each set has a name of its own: nothing else tells the metrics of two apart. */
static bool sets_have_names(struct reading *reading)
{
    if (reading->sets_n > 1)
        qsort(reading->sets, reading->sets_n, sizeof(*reading->sets), compare_names);
    for (size_t i = 1; i < reading->sets_n; i++)
        if (compare_names(&reading->sets[i - 1], &reading->sets[i]) == 0)
            return false;
    return true;
}

static int begin_set(struct reading *reading, const struct item *item)
{
    struct snapshot_set *set = &reading->set;

    if (reading->of->budget->sets == 0)
        return -EFBIG;
    reading->of->budget->sets--;
    reading->set = reading->begun;
    reading->limit = NULL;
    reading->holder = NULL;
    reading->has_set = true;
    reading->has_info = reading->has_stats = false;
    return item_name(item, &set->name);
}

static int read_item(struct reading *reading, const struct item *item)
{
    if (!reading->has_set)
        return -EBADMSG;
    if (item->kind >= PUBLISHED_KEY && item->kind <= PUBLISHED_GAUGE_NAME)
        return reading->limit && !reading->holder ? read_limit(reading->limit, item) : -EBADMSG;
    return read_part(reading, item);
}

int published_answer_read(const struct published_answer *answer,
                          int (*found)(void *userdata, struct snapshot_set *set), void *userdata)
{
    struct reading reading = {.of = answer};
    struct snapshot_set *begun = &reading.begun;
    size_t at = sizeof(struct published_head);
    struct item item = {.kind = PUBLISHED_SET};
    int r = 0;

    begun->process = answer->process;
    begun->instance = answer->number;
    begun->has_command_line = process_text_read(begun->process, begun->command_line);
    process_text_name(begun->process, begun->process_name);
    while (r == 0 && item.kind != PUBLISHED_END && item_next(answer, &at, &item) > 0) {
        if (item.kind == PUBLISHED_SET || item.kind == PUBLISHED_END)
            r = end_set(&reading);
        if (r == 0 && item.kind == PUBLISHED_SET)
            r = begin_set(&reading, &item);
        else if (r == 0 && item.kind != PUBLISHED_END)
            r = read_item(&reading, &item);
    }
    if (r == 0 && !sets_have_names(&reading))
        r = -EBADMSG;
    if (reading.has_set)
        snapshot_free_set(&reading.set);
    for (size_t i = 0; i < reading.sets_n; i++) {
        if (r == 0)
            r = found(userdata, &reading.sets[i]);
        else
            snapshot_free_set(&reading.sets[i]);
    }
    free(reading.sets);
    return r;
}
