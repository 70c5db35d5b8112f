/* SPDX-License-Identifier: MIT */
/*
 * Parts of the plugin for Redis, apart from a server: replies that are torn at every byte, cut,
 * damaged or out of all proportion; addresses; keys and their slots; definitions; what is due.
 */
#include "../../plugins/backends/redis/redis_calls.h"
#include "../../plugins/backends/redis/redis_definition.h"
#include "../../plugins/backends/redis/redis_differences.h"
#include "../../plugins/backends/redis/redis_due.h"
#include "../../plugins/backends/redis/redis_key.h"
#include "../../plugins/backends/redis/redis_reply.h"
#include "../../plugins/backends/redis/redis_revision.h"
#include "../../plugins/backends/redis/redis_slot.h"
#include "../../plugins/backends/redis/redis_table.h"
#include "../../plugins/backends/redis/redis_url.h"
#include "lib/require.h"

static const char replies_text[] = "*3\r\n:0\r\n:-1\r\n:9007199254740991\r\n"
                                   "-NOSESSION it has ended\r\n"
                                   "+OK\r\n"
                                   "$-1\r\n"
                                   "*2\r\n*1\r\n$5\r\na\r\nbc\r\n*0\r\n"
                                   "$0\r\n\r\n";

/* Checks the n-th of the replies above. */
static void check_reply(size_t n, const struct redis_reply *reply)
{
    switch (n) {
    case 0:
        require(redis_reply_integer(reply, 0, 0) == 0 && redis_reply_integer(reply, 1, -1) == -1);
        require(redis_reply_integer(reply, 1, 0) == -EPROTO);
        require(redis_reply_integer(reply, 2, 0) == INT64_C(9007199254740991));
        require(redis_reply_integer(reply, 3, 0) == -EPROTO);
        break;
    case 1:
        require(redis_reply_is_error(reply, "NOSESSION") && !redis_reply_is_error(reply, "NOSE"));
        break;
    case 2:
        require(reply->type == REDIS_TEXT && !strcmp(reply->text, "OK"));
        break;
    case 3:
        require(reply->type == REDIS_NIL && redis_reply_integer(reply, 0, 0) == -EPROTO);
        break;
    case 4:
        require(reply->type == REDIS_ARRAY && reply->elements_n == 2);
        require(reply->elements[0].elements[0].size == 5);
        require(reply->elements[1].elements_n == 0);
        break;
    default:
        require(n == 5 && reply->type == REDIS_TEXT && reply->size == 0);
    }
}

/* Feeds the replies in pieces of this size. */
static void test_pieces(size_t piece)
{
    struct redis_replies *replies = redis_replies_new(0);
    const struct redis_reply *reply;
    size_t n = 0, size = sizeof(replies_text) - 1;
    require(replies);
    for (size_t at = 0; at < size; at += piece) {
        size_t part = size - at < piece ? size - at : piece;
        require(redis_replies_feed(replies, replies_text + at, part) == 0);
        while (redis_replies_next(replies, &reply) > 0)
            check_reply(n++, reply);
    }
    require(n == 6);
    redis_replies_free(replies);
}

/* Feeds bytes, and takes what comes of it, up to an error. Returns the last result. */
static int feed(const char *bytes, size_t size)
{
    struct redis_replies *replies = redis_replies_new(0);
    const struct redis_reply *reply;
    require(replies);
    int r = redis_replies_feed(replies, bytes, size);
    while (r == 0 && (r = redis_replies_next(replies, &reply)) > 0) {
        for (uint32_t i = 0; i < 4; i++)
            (void)redis_reply_integer(reply, i, -1);
        r = 0;
        if (reply->type == REDIS_ERROR)
            (void)redis_reply_is_error(reply, "ERR");
        if (reply->type == REDIS_TEXT)
            require(strlen(reply->text) <= reply->size);
    }
    redis_replies_free(replies);
    return r;
}

static void test_damage(void)
{
    uint64_t random = test_seed;
    for (size_t i = 0; i < 20000; i++) {
        char bytes[sizeof(replies_text)];
        memcpy(bytes, replies_text, sizeof(bytes));
        for (size_t k = 0; k < 1 + i % 4; k++) {
            random = redis_hash_number(random + 1);
            bytes[random % (sizeof(bytes) - 1)] = (char)(random >> 32);
        }
        (void)feed(bytes, random >> 8 & 1 ? sizeof(bytes) - 1 : random % sizeof(bytes));
    }
}

static void test_proportions(void)
{
    static const char deep[] = "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n";
    static const char *const wrong[] = {"*2147483647\r\n:1\r\n", "*4000000000\r\n", "hello\r\n",
                                        "*3000\r\n", deep};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        require(feed(wrong[i], strlen(wrong[i])) < 0);
    size_t size = 1 << 20;
    char *large = malloc(size);
    require(large);
    memset(large, 'x', size);
    memcpy(large, "$900000\r\n", 9);
    require(feed(large, size) == -EPROTO);
    free(large);
}

/* Many replies that have come at once are not one that is too long. */
static void test_many_replies(void)
{
    static const char text[] = "+0123456789012345678901234567890123456789\r\n";
    const size_t n = 20000;
    struct redis_replies *replies = redis_replies_new(0);
    const struct redis_reply *reply;
    require(replies);
    for (size_t i = 0; i < n; i++)
        require(redis_replies_feed(replies, text, sizeof(text) - 1) == 0);
    for (size_t i = 0; i < n; i++)
        require(redis_replies_next(replies, &reply) == 1 && reply->size == sizeof(text) - 4);
    require(redis_replies_next(replies, &reply) == 0);
    redis_replies_free(replies);
}

static void test_urls(void)
{
    static const char *const wrong[] = {"",
                                        "redis:",
                                        "http://x",
                                        "redis://",
                                        "redis://:pw@host",
                                        "redis://u:pw@host",
                                        "redis://host:0",
                                        "redis://host:65536",
                                        "redis://host:x",
                                        "redis://host/x",
                                        "redis://host/65536",
                                        "redis://[::1",
                                        "redis://[::1]x",
                                        "redis://host?db=1",
                                        "unix://",
                                        "unix://x",
                                        "unix:///x?db=",
                                        "unix:///x?x",
                                        "redis://ho st",
                                        "redis://host:123456789",
                                        "redis://a,,b",
                                        "redis://,a",
                                        "redis://a,",
                                        "redis://a,b:0",
                                        "redis://a/0,b/0",
                                        "redis://a@b,c@d",
                                        "redis://a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a"};
    struct redis_url urls[REDIS_URLS_MAX], url;
    struct weir_reason reason;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        reason.message[0] = '\0';
        require(redis_url_read(wrong[i], 6379, urls, &reason) == -EINVAL && reason.message[0]);
    }
    require(redis_url_read("redis://me@host:7000/3", 6379, urls, &reason) == 1);
    url = urls[0];
    require(!strcmp(url.user, "me") && !strcmp(url.host, "host") && !strcmp(url.port, "7000"));
    require(url.db == 3 && !url.is_unix && !url.has_tls);
    require(redis_url_read("rediss://[::1]", 6379, urls, &reason) == 1 && urls[0].has_tls);
    require(!strcmp(urls[0].host, "::1") && !strcmp(urls[0].port, "6379"));
    require(redis_url_read("unix:///run/redis.sock?db=2", 6379, urls, &reason) == 1);
    require(urls[0].is_unix && !strcmp(urls[0].host, "/run/redis.sock") && urls[0].db == 2);
    require(redis_url_read("unix://me@/run/redis.sock", 6379, urls, &reason) == 1);
    require(!strcmp(urls[0].host, "/run/redis.sock") && !strcmp(urls[0].user, "me"));
}

static void test_several_hosts(void)
{
    struct redis_url urls[REDIS_URLS_MAX];
    struct weir_reason reason;
    require(redis_url_read("rediss://me@a:1,[::2]:2,c/4", 26379, urls, &reason) == 3);
    require(!strcmp(urls[0].host, "a") && !strcmp(urls[0].port, "1"));
    require(!strcmp(urls[1].host, "::2") && !strcmp(urls[1].port, "2"));
    require(!strcmp(urls[2].host, "c") && !strcmp(urls[2].port, "26379"));
    for (size_t i = 0; i < 3; i++)
        require(urls[i].has_tls && urls[i].db == 4 && !strcmp(urls[i].user, "me"));
}

/* What a server says of another one. */
static void test_named_hosts(void)
{
    static const char *const wrong[] = {"", "?", "a b", "a\n", "[::1]", "a/b", "a,b"};
    struct redis_url url = {.host = "before", .port = "1"};
    char large[300];
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        require(redis_url_set_host(&url, wrong[i], strlen(wrong[i]), 7000) == -EINVAL);
    memset(large, 'a', sizeof(large));
    require(redis_url_set_host(&url, large, sizeof(large), 7000) == -EINVAL);
    require(redis_url_set_host(&url, "a", 1, 0) == -EINVAL);
    require(redis_url_set_host(&url, "a", 1, 65536) == -EINVAL);
    require(!strcmp(url.host, "before") && !strcmp(url.port, "1"));
    require(redis_url_set_host(&url, "::1:7000", 3, 7000) == 0);
    require(!strcmp(url.host, "::1") && !strcmp(url.port, "7000"));
    url.is_unix = 1; /* the server that names it is at a socket; a path is at most 107 bytes */
    require(redis_url_set_host(&url, "a", 1, 7000) == 0 && !url.is_unix);
}

/* As CLUSTER KEYSLOT says. */
static void test_slots(void)
{
    static const struct {
        const char *key;
        uint16_t slot;
    } keys[] = {{"", 0},
                {"123456789", 12739},
                {"foo", 12182},
                {"a{foo}b", 12182},
                {"{foo}{bar}", 12182},
                {"{}foo", 9500},
                {"a{foo", 113},
                {"\xff{\x80}", 4488}};
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        require(redis_slot(keys[i].key, strlen(keys[i].key)) == keys[i].slot);
}

/* Each slot has a tag, which is that of a key whatever stands around it. */
static void test_tags(void)
{
    char tag[REDIS_TAG_SIZE + 1], key[64];
    for (uint32_t slot = 0; slot < REDIS_SLOTS; slot++) {
        redis_slot_tag((uint16_t)slot, tag);
        require(strlen(tag) == REDIS_TAG_SIZE && strspn(tag, "@ABCDEFGHIJKLMNO") == strlen(tag));
        int n = snprintf(key, sizeof(key), "weir:inbox:1}2:{%s}", tag);
        require(redis_slot(key, (size_t)n) == slot);
    }
}

#define KEY_PREFIX   "w}r:"
#define KEY_PART_MAX 6

/* What a key is of. */
struct key_parts {
    char name[KEY_PART_MAX + 1], subject[KEY_PART_MAX];
    size_t subject_size;
    int has_subject;
};

static size_t key_write(const struct key_parts *parts, char *ret)
{
    size_t room = REDIS_KEY_NAME_ROOM(strlen(KEY_PREFIX), strlen(parts->name));
    size_t n = redis_key_begin(ret, KEY_PREFIX, parts->name), more;
    require(n <= room);
    if (!parts->has_subject)
        return n + redis_key_end(ret + n);
    more = redis_key_end_subject(ret + n, parts->subject, parts->subject_size);
    require(more <= REDIS_KEY_SUBJECT_ROOM(parts->subject_size));
    return n + more;
}

/* Reads a byte of a part, which ends at a brace, or at a colon if that is `end`. Returns -1 there.
 */
static int key_read_byte(const char **at, char end)
{
    unsigned byte;
    if (**at == '}' || (end && **at == end))
        return -1;
    if (*(*at)++ != '%')
        return (unsigned char)(*at)[-1];
    require(sscanf(*at, "%2X", &byte) == 1);
    *at += 2;
    return (int)byte;
}

/* Reads back what a key is of, all of it. */
static void key_read(const char *key, size_t size, struct key_parts *ret)
{
    const char *at = key + strlen(KEY_PREFIX) + 1;
    size_t n = 0;
    int byte;
    memset(ret, 0, sizeof(*ret));
    while ((byte = key_read_byte(&at, ':')) >= 0)
        ret->name[n++] = (char)byte;
    ret->has_subject = *at == ':';
    at += ret->has_subject;
    while (ret->has_subject && (byte = key_read_byte(&at, 0)) >= 0)
        ret->subject[ret->subject_size++] = (char)byte;
    require(at == key + size - 1 && *at == '}');
}

/* A key tells what it is of: so two of them never meet. And its hash tag is all of that. */
static void test_keys(void)
{
    static const char bytes[] = "\0a:{}%2357AD\xff";
    uint64_t random = random_case(test_seed, 2);
    for (size_t i = 0; i < 20000; i++) {
        struct key_parts parts = {.has_subject = random_below(&random, 3) > 0}, read;
        char key[128], inner[128];
        size_t name_size = 1 + random_below(&random, KEY_PART_MAX);
        for (size_t k = 0; k < name_size; k++)
            parts.name[k] = bytes[1 + random_below(&random, sizeof(bytes) - 2)];
        parts.subject_size = parts.has_subject ? random_below(&random, KEY_PART_MAX + 1) : 0;
        for (size_t k = 0; k < parts.subject_size; k++)
            parts.subject[k] = bytes[random_below(&random, sizeof(bytes) - 1)];
        size_t n = key_write(&parts, key), begin = strlen(KEY_PREFIX) + 1;
        key[n] = '\0';
        key_read(key, n, &read);
        require(memcmp(&parts, &read, sizeof(parts)) == 0);
        memcpy(inner, key + begin, n - begin - 1);
        require(redis_slot(key, n) == redis_slot(inner, n - begin - 1));
    }
}

static void test_plain_keys(void)
{
    static const struct {
        const char *name, *subject, *key;
    } keys[] = {{"api", NULL, "weir:{api}"},
                {"api", "::1", "weir:{api:::1}"},
                {"api", "", "weir:{api:}"},
                {"a:b", NULL, "weir:{a%3Ab}"},
                {"a", "b", "weir:{a:b}"},
                {"a", "{b}", "weir:{a:{b%7D}"},
                {"a}", "100%", "weir:{a%7D:100%25}"}};
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
        const char *subject = keys[i].subject;
        char key[128];
        size_t n = redis_key_begin(key, "weir:", keys[i].name);
        n += subject ? redis_key_end_subject(key + n, subject, strlen(subject))
                     : redis_key_end(key + n);
        require(n == strlen(keys[i].key) && !memcmp(key, keys[i].key, n));
    }
}

static uint64_t leased_capacity;

/* Returns the state_id of a plugin of the project; of another one any. */
static uint64_t state_id_of(const char *algorithm)
{
    static const struct {
        const char *name;
        uint64_t id;
    } ids[] = {{"token_bucket", UINT64_C(0x2842883cf3aa332f)},
               {"gcra", UINT64_C(0xe0523881fe18ae4b)},
               {"leaky_bucket", UINT64_C(0x29e0040b825d8ead)},
               {"sliding_window", UINT64_C(0x11d0232e4869e5ef)},
               {"fixed_window", UINT64_C(0x2127feb9f4472599)}};
    for (size_t i = 0; algorithm && i < sizeof(ids) / sizeof(*ids); i++)
        if (!strcmp(ids[i].name, algorithm))
            return ids[i].id;
    return algorithm ? 1 : 0;
}

/* A limit without a state_id gets that of its algorithm. */
static int define(struct weir_backend_limit limit, char *text)
{
    struct weir_reason reason;
    limit.ret_capacity = &leased_capacity;
    const struct redis_definition_options options = {.session_us = 5000000};
    limit.size = limit.size ? limit.size : sizeof(limit);
    limit.state_id = limit.state_id ? limit.state_id : state_id_of(limit.algorithm);
    limit.key = "k";
    const struct weir_backend_set set = {
        .size = sizeof(set), .name = "s", .fingerprint = 0xf, .limits_n = 1, .limits = &limit};
    return redis_definition_write(&set, &options, text, &reason);
}

static void test_definitions(void)
{
    char text[REDIS_DEFINITION_MAX + 1];
    const struct weir_backend_setting bucket[] = {
        {"capacity", 10}, {"window", 1000000}, {"burst", 20}, {"every", 100000}};
    const struct weir_backend_setting odd[] = {{"capacity", 10}, {"window", 1001}};
    require(define((struct weir_backend_limit){.capacity = 7}, text) > 0);
    require(!strcmp(text, "000000000000000f/b/1048576/5000000/r,7"));
    require(define(
                (struct weir_backend_limit){
                    .algorithm = "token_bucket", .settings = bucket, .settings_n = 4, .refund = 1},
                text) > 0);
    require(!strcmp(text, "000000000000000f/b/1048576/5000000/t,10,1000,20,20,100,0,1,0"));
    require(
        define((struct weir_backend_limit){.algorithm = "gcra", .settings = odd, .settings_n = 2},
               text) == -EINVAL);
    require(
        define(
            (struct weir_backend_limit){.algorithm = "mine", .capacity = 8, .lease_for_ns = 1000},
            text) == -EINVAL);
    require(define((struct weir_backend_limit){.algorithm = "mine", .capacity = UINT64_MAX}, text) >
            0);
    require(!strcmp(text, "000000000000000f/b/1048576/5000000/x,562949953421312,0"));
    require(define((struct weir_backend_limit){.algorithm = "mine",
                                               .capacity = 8,
                                               .type = WEIR_LIMIT_RESOURCE},
                   text) > 0);
    require(!strcmp(text, "000000000000000f/b/1048576/5000000/x,8,1"));
    require(define((struct weir_backend_limit){.capacity = UINT64_MAX}, text) == -EINVAL);
}

/* ---- revisions ---- */

/* The hash of the keys, and of all about limits that nodes decide. */
static void test_revised_texts(void)
{
    const struct redis_definition_options options = {.session_us = 5000000};
    struct weir_backend_limit limits[] = {
        {.size = sizeof(limits[0]), .key = "a", .capacity = 7, .identity = 1},
        {.size = sizeof(limits[0]), .key = "b", .algorithm = "mine", .capacity = 8, .identity = 2}};
    struct weir_backend_set set = {.size = sizeof(set),
                                   .name = "s",
                                   .fingerprint = 0xf,
                                   .limits_n = 2,
                                   .limits = limits,
                                   .revision = 3};
    char text[REDIS_DEFINITION_MAX + 1];
    struct weir_reason reason;
    uint64_t shape = redis_definition_shape(&set);
    require(redis_definition_write(&set, &options, text, &reason) > 0);
    require(!strncmp(text, "000000000000000f.3.", 19) &&
            !strcmp(text + 35, "/b/1048576/5000000/r,7/x,8,0"));
    require(strtoull(text + 19, NULL, 16) == shape);
    limits[0].capacity = 9;
    limits[0].identity = 5;
    require(redis_definition_shape(&set) == shape);
    limits[1].identity = 5;
    require(redis_definition_shape(&set) != shape);
    limits[1].identity = 2;
    limits[0].key = "c";
    require(redis_definition_shape(&set) != shape);
    limits[0].key = "a";
    require(redis_definition_shape(&set) == shape);
}

/* Whether a set can go from one definition to the other, either way. */
static int is_alike(const char *a, const char *b)
{
    char words[2][REDIS_REVISION_WORDS];
    const char *why = redis_revision_obstacle(a, b, words[0]);
    require(!why == !redis_revision_obstacle(b, a, words[1]));
    return !why;
}

static void test_shapes(void)
{
    static const char *const equal[][2] = {
        {"f/-/1/9/r,1", "f.1.a/b/2/9/r,2"},
        {"f.2.a/-/1/9/t,1,2,3,3,0,0,0,0", "f.1.a/-/1/9/t,2,2,9,1,0,5,1,1"},
        {"f.2.a/-/1/9/t,1,2,3,3,1,0,0,0", "f.1.a/-/1/9/t,2,2,9,1,20,5,1,1"},
        {"f/-/1/9/s,1,2,1,1,1,0,0,0", "f.1.a/-/1/9/s,1,2,1,1,0,0,0,0"},
        {"f/-/1/9/f,1,2,1,1,1,0,0,0/r,3", "f.1.a/-/1/9/f,1,2,1,1,2,0,0,0/r,4"},
        {"f.1.a/-/1/9/x,1,0", "f.2147483647.a/-/1/9/x,1,0"},
    };
    static const char *const other[][2] = {
        {"f.1.a/-/1/9/r,1", "f.2.a/-/1/9/r,1/r,1"},
        {"f.1.a/-/1/9/r,1", "f.2.b/-/1/9/r,1"},
        {"f.1.a/-/1/9/r,1", "f.2.aa/-/1/9/r,1"},
        {"f.1.a/-/1/9/r,1", "f.2.a/-/1/8/r,1"},
        {"f.1.a/-/1/9/t,1,2,3,3,0,0,0,0", "f.2.a/-/1/9/g,1,2,3,3,0,0,0,0"},
        {"f.1.a/-/1/9/t,1,2,3,3,0,0,0,0", "f.2.a/-/1/9/t,1,2,3,3,1,0,0,0"},
        {"f.1.a/-/1/9/l,1,2,1,1,0,0,0,0", "f.2.a/-/1/9/l,1,2,1,1,1,0,0,0"},
        {"f.1.a/-/1/9/x,1,0", "f.2.a/-/1/9/x,2,0"},
        {"f/-/1/9/x,1,0", "f.2.a/-/1/9/x,1,0"},
    };
    for (size_t i = 0; i < sizeof(equal) / sizeof(*equal); i++)
        require(is_alike(equal[i][0], equal[i][1]));
    for (size_t i = 0; i < sizeof(other) / sizeof(*other); i++)
        require(!is_alike(other[i][0], other[i][1]));
    require(redis_revision_of("f/-/1/9/r,1") == 0 && redis_revision_of("f.7.a/-/1/9/r,1") == 7);
}

static void add_difference(void *to, const struct weir_backend_difference *difference)
{
    char *text = to;
    size_t n = strlen(text);
    require(difference->size == sizeof(*difference));
    snprintf(text + n, 512 - n, "%d %s: %s -> %s; ", (int32_t)difference->limit, difference->name,
             difference->before ? difference->before : "-",
             difference->after ? difference->after : "-");
}

/* What a server says may be anything. */
static void test_no_definitions(void)
{
    static const char own[] = "f.1.a/-/1/9/r,1/t,1,2,3,3,0,0,0,0";
    static const char *const none[] = {"",
                                       "f",
                                       "f/",
                                       "f/-/1",
                                       "f/-/1/9",
                                       "f.0.a/-/1/9/r,1",
                                       "f.1/-/1/9/r,1",
                                       "f.2147483648.a/-/1/9/r,1",
                                       "f..a/-/1/9/r,1",
                                       "f.99999999999999999999999.a/-/1/9/r,1"};
    static const char later[] = "f.2.a/-/1/9/r,1/t,1,2,3,3,0,0,0,0";
    char words[200], text[sizeof(own)], told[512];
    const struct weir_backend_apply how = {
        .size = sizeof(how), .context = told, .differs = add_difference};
    unsigned told_n = 0;
    uint64_t random = test_seed;
    for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++) {
        require(redis_revision_of(none[i]) == -1 && !is_alike(own, none[i]));
        redis_revision_explain(own, none[i], words, sizeof(words));
        require(strstr(words, "rename the set"));
    }
    for (int i = 0; i < 20000; i++) {
        memcpy(text, own, sizeof(own));
        for (int k = 0; k < 3; k++) {
            random = redis_hash_number(random + 1);
            text[random % (sizeof(own) - 1)] = "/.,0x\x1\0\xff"[random >> 32 & 7];
        }
        (void)is_alike(own, text);
        redis_revision_explain(own, text, words, sizeof(words));
        require(words[0]);
        told[0] = '\0';
        if (redis_revision_compare(later, text, words, sizeof(words)) == 1)
            redis_differences_tell(later, text, &how);
        told_n += told[0] != '\0';
    }
    require(told_n > 0);
    redis_revision_explain(own, "f.1.a/-/1/9/r,2/t,1,2,3,3,0,0,0,0", words, sizeof(words));
    require(strstr(words, "same `revision`, 1: raise it"));
    redis_revision_explain(own, "f.4.a/-/1/9/r,2", words, sizeof(words));
    require(strstr(words, "revision 4: there is another number of limits: rename the set"));
}

static void test_comparisons(void)
{
    static const char own[] = "f.3.a/-/1/9/r,1";
    static const struct {
        const char *there;
        int result;
        const char *words;
    } rows[] = {
        {"f.3.a/-/1/9/r,1", 0, ""},
        {"g.2.a/-/1/9/r,2", 1, ""},
        {"g/-/1/9/r,2", 1, ""},
        {"f.4.a/-/1/9/r,1", -ESTALE, ""},
        {"f.3.a/-/1/9/r,2", -EEXIST, "same `revision`, 3"},
        {"f.2.b/-/1/9/r,1", -EEXIST, "as revision 2: limits have other keys"},
        {"f.4.a/-/1/9/r,1/r,1", -EEXIST, "as revision 4: there is another number of limits"},
        {"", -EEXIST, "it is none that this version of weir knows"},
    };
    char words[200];
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        words[0] = '\0';
        require(redis_revision_compare(own, rows[i].there, words, sizeof(words)) == rows[i].result);
        require(rows[i].words[0] ? strstr(words, rows[i].words) != NULL : !words[0]);
    }
    redis_revision_explain_earlier(4, words, sizeof(words));
    require(!strcmp(words, "`revision` is 4 now: raise it, also to go back to what was before"));
}

static void test_differences(void)
{
    static const struct {
        const char *before, *after, *told;
    } rows[] = {
        {"f/-/1/9/r,1", "g.2.a/-/1/9/r,2", "-1 revision: - -> 2; 0 capacity: 1 -> 2; "},
        {"f.1.a/-/7/9/r,1", "g.2.a/bd/1048576/9/r,1",
         "-1 revision: 1 -> 2; -1 fair: true -> false; -1 drain_after_loss: false -> true; "
         "-1 max_waiters: 7 -> -; "},
        {"f.1.a/bd/1048576/9/r,1", "g.2.a/-/7/9/r,1",
         "-1 revision: 1 -> 2; -1 fair: false -> true; -1 drain_after_loss: true -> false; "
         "-1 max_waiters: - -> 7; "},
        {"f.1.a/-/1/9/r,1/g,9,1000000,9,9,0,0,1,0", "g.2.a/-/1/9/r,1/g,8,60000000,8,8,0,0,1,0",
         "-1 revision: 1 -> 2; 1 capacity: 9 -> 8; 1 window: 1s -> 1m; "},
        {"f.1.a/-/1/9/g,9,3600000000,9,9,0,0,1,0", "g.2.a/-/1/9/g,9,5400000000,20,9,0,1500,2,1",
         "-1 revision: 1 -> 2; 0 window: 1h -> 90m; 0 burst: 9 -> 20; "
         "0 lease: - -> 1500us; 0 refund: true -> strict; 0 overuse: ignore -> charge; "},
        {"f.1.a/-/1/9/t,9,1001,9,4,20,20000,0,1", "g.2.a/-/1/9/t,9,1000,9,3,30,0,1,0",
         "-1 revision: 1 -> 2; 0 window: 1001us -> 1ms; 0 initial: 4 -> 3; 0 every: 20us -> 30us; "
         "0 lease: 20ms -> -; 0 refund: false -> true; 0 overuse: charge -> ignore; "},
        {"f.1.a/-/1/9/s,9,1,9,9,10,0,1,0", "g.2.a/-/1/9/s,9,1,9,9,0,0,2,0",
         "-1 revision: 1 -> 2; 0 segments: 10 -> 0; 0 refund: true -> strict; "},
        {"f.1.a/-/1/9/f,9,1,9,9,0,0,1,0", "g.2.a/-/1/9/f,9,1,9,9,2,0,1,0",
         "-1 revision: 1 -> 2; 0 anchor: first_use -> epoch; "},
        {"f.1.a/-/1/9/x,1,0", "g.2.a/-/1/9/x,1,0", "-1 revision: 1 -> 2; -1 hash: f -> g; "},
        {"f.1.a/-/1/9/r,1", "f.2.a/-/1/9/r,1", "-1 revision: 1 -> 2; "},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char told[512] = "", words[200];
        const struct weir_backend_apply how = {
            .size = sizeof(how), .context = told, .differs = add_difference};
        require(redis_revision_compare(rows[i].after, rows[i].before, words, sizeof(words)) == 1);
        redis_differences_tell(rows[i].after, rows[i].before, &how);
        if (strcmp(told, rows[i].told) != 0)
            fprintf(stderr, "%s\n%s\n", told, rows[i].told);
        require(!strcmp(told, rows[i].told));
    }
}

/* A plugin file may have any name, so the state_id tells as well whether the server decides. A core
 * from before the state_id leaves it out. */
static void test_names_are_not_enough(void)
{
    static const char *const names[] = {"token_bucket", "gcra", "leaky_bucket", "sliding_window",
                                        "fixed_window"};
    const struct weir_backend_setting settings[] = {{"capacity", 10}, {"window", 1000000}};
    char text[REDIS_DEFINITION_MAX + 1];
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct weir_backend_limit limit = {
            .algorithm = names[i], .capacity = 10, .settings = settings, .settings_n = 2};
        require(define(limit, text) > 0 && !strstr(text, "/x,"));
        limit.state_id = state_id_of(names[(i + 1) % (sizeof(names) / sizeof(*names))]);
        require(define(limit, text) > 0);
        require(!strcmp(text, "000000000000000f/b/1048576/5000000/x,10,0"));
        limit.state_id = 0;
        limit.size = offsetof(struct weir_backend_limit, state_id);
        require(define(limit, text) > 0);
        require(!strcmp(text, "000000000000000f/b/1048576/5000000/x,10,0"));
    }
}

/* Returns what can be granted beside batches of a lease of so many us; 0: it is refused. */
static uint64_t lease(const char *algorithm, const struct weir_backend_setting *settings,
                      uint64_t us)
{
    char text[REDIS_DEFINITION_MAX + 1], delta[32];
    uint32_t n = 0;
    while (settings[n].name)
        n++;
    leased_capacity = 0;
    if (define((struct weir_backend_limit){.algorithm = algorithm,
                                           .settings = settings,
                                           .settings_n = n,
                                           .lease_for_ns = us * 1000},
               text) < 0)
        return 0;
    snprintf(delta, sizeof(delta), ",%" PRIu64 ",0,0", us);
    require(!strcmp(text + strlen(text) - strlen(delta), delta));
    return leased_capacity;
}

/* As buckets.lua and windows.lua compute p.max. */
static void test_leases(void)
{
    const struct weir_backend_setting bucket[] = {
        {"capacity", 1000}, {"window", 1000000000}, {"burst", 100}, {NULL, 0}};
    const struct weir_backend_setting steps[] = {
        {"capacity", 10}, {"window", 1000000}, {"burst", 20}, {"every", 100000}, {NULL, 0}};
    const struct weir_backend_setting meter[] = {{"capacity", 10}, {"window", 1000000}, {NULL, 0}};
    const struct weir_backend_setting shaper[] = {
        {"capacity", 10}, {"window", 1000000}, {"mode", 1}, {NULL, 0}};
    require(lease("gcra", bucket, 50000) == 50 && lease("gcra", bucket, 50001) == 49);
    require(lease("gcra", bucket, 99000) == 1 && lease("gcra", bucket, 99001) == 0);
    require(lease("token_bucket", bucket, 50000) == 50);
    require(lease("token_bucket", steps, 250) == 17 && lease("token_bucket", steps, 1) == 20);
    require(lease("token_bucket", steps, 2) == 19 && lease("token_bucket", steps, 2000) == 0);
    require(lease("leaky_bucket", meter, 500) == 5 && lease("leaky_bucket", shaper, 500) == 0);
    require(lease("sliding_window", meter, 500) == 10 && lease("fixed_window", meter, 500) == 10);
    require(lease("gcra", bucket, UINT64_C(1) << 53) == 0);
}

/* ---- what is due ---- */

static uint64_t woken_for;

/* In the place of that of redis_calls.c. */
void redis_calls_wake_by(struct redis_connection *connection, uint64_t at_ns)
{
    (void)connection;
    woken_for = at_ns;
}

#define DUE_SESSIONS 200

static struct redis_connection due_connection;
static struct redis_session *due_sessions[DUE_SESSIONS]; /* NULL: it is not there */

static void check_first(void)
{
    const struct redis_session *first = redis_due_first(&due_connection);
    uint64_t least = REDIS_NEVER;
    size_t n = 0;
    for (size_t i = 0; i < DUE_SESSIONS; i++) {
        if (due_sessions[i] && due_sessions[i]->due_ns < least)
            least = due_sessions[i]->due_ns;
        n += due_sessions[i] != NULL;
    }
    require(due_connection.due_n == n && (first != NULL) == (n > 0));
    require(!first || first->due_ns == least);
}

/* The first one is the first of all, whatever comes, goes, and moves. */
static void test_due(void)
{
    static struct redis_set set = {.connection = &due_connection};
    uint64_t random = random_case(test_seed, 1);
    for (uint64_t step = 0; step < 20000; step++) {
        size_t i = random_below(&random, DUE_SESSIONS);
        struct redis_session *session = due_sessions[i];
        uint64_t at = random_below(&random, 1000), before = session ? session->due_ns : 0;
        if (!session) {
            due_sessions[i] = calloc(1, sizeof(*session));
            require(due_sessions[i]);
            due_sessions[i]->set = &set;
            require(redis_due_add(due_sessions[i]) == 0 && due_sessions[i]->due_ns == REDIS_NEVER);
        } else if (random_below(&random, 4) == 0) {
            redis_due_remove(session);
            free(session);
            due_sessions[i] = NULL;
        } else if (random_below(&random, 2) == 0) {
            redis_due_set(session, at);
            require(session->due_ns == at);
        } else {
            woken_for = REDIS_NEVER;
            redis_due_by(session, at);
            require(session->due_ns == (at < before ? at : before));
            require(woken_for == (at < before ? at : REDIS_NEVER));
        }
        check_first();
    }
    for (size_t i = 0; i < DUE_SESSIONS; i++)
        free(due_sessions[i]);
    free(due_connection.due);
}

int main(void)
{
    seed_begin();
    for (size_t piece = 1; piece < sizeof(replies_text); piece++)
        test_pieces(piece);
    test_damage();
    test_proportions();
    test_many_replies();
    test_urls();
    test_several_hosts();
    test_slots();
    test_tags();
    test_keys();
    test_plain_keys();
    test_named_hosts();
    test_definitions();
    test_shapes();
    test_no_definitions();
    test_comparisons();
    test_differences();
    test_revised_texts();
    test_names_are_not_enough();
    test_leases();
    test_due();
    return 0;
}
