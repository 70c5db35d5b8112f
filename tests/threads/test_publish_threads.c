/* SPDX-License-Identifier: MIT */
/*
 * A process publishes its sets while threads use them, come and go, and the sets are reloaded: with
 * classes, with holders that are overheld, with subjects. Readers ask all the while; one of them
 * hangs up early.
 *
 * Each answer that is whole has every set once, and has counted of each class what threads have
 * got, no more than they have asked for, and no less than the answer before.
 * Usage: test_publish_threads [seed]. WEIR_ROUNDS is the number of whole answers of each reader.
 */
#include "api/published.h"
#include "lib/random.h"
#include "lib/require.h"
#include "lib/tmpdir.h"
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <weir/weir.h>

enum { THREADS = 3, READERS = 2, CLASSES = 2, SUBJECTS = 40, ANSWER_MAX = 1 << 20 };

#define CONFIG                                                                                     \
    "version: 1\npublish: true\nsets:\n"                                                           \
    "  c: { priorities: 2, ageing: %u, limits: [ { type: resource, key: slots, capacity: %u, "     \
    "max_hold: 1ms } ] }\n"                                                                        \
    "  per: { subjects: { max: 64 }, limits: [ { type: resource, key: slots, capacity: 1 }, "      \
    "{ type: call, algorithm: gcra, capacity: %u, window: 1s } ] }\n"

static char place[TMPDIR_SIZE];
static weir *w;
static _Atomic bool is_over;
static _Atomic uint64_t asked[CLASSES], granted[CLASSES]; /* of the set `c` */

static void make_config(char *text, size_t size, unsigned turn)
{
    snprintf(text, size, CONFIG, 2 + turn % 5, 1 + turn % 2, 1000 + turn);
}

/* ---- use ---- */

static void use_class(weir_pool *pool, uint64_t *random)
{
    static const char *const names[CLASSES] = {"0", "1"};
    struct weir_request request = {.size = sizeof(request), .timeout_ns = 20000000};
    unsigned c = (unsigned)random_below(random, CLASSES);
    weir_acquisition *acquisition = NULL;
    int r;

    request.wait_class = names[c];
    atomic_fetch_add(&asked[c], 1);
    r = random_below(random, 2) ? weir_acquire(pool, &request, &acquisition, NULL)
                                : weir_try_acquire(pool, &request, &acquisition, NULL);
    require(r == 0 || r == -ETIMEDOUT || r == -EAGAIN);
    if (r < 0)
        return;
    atomic_fetch_add(&granted[c], 1);
    if (random_below(random, 20) == 0)
        usleep(1500); /* too long */
    require(weir_release(&acquisition) == 0);
}

static void use_subject(weir_pool *pool, uint64_t *random)
{
    unsigned subject = (unsigned)random_below(random, SUBJECTS);
    struct weir_request request = {.size = sizeof(request),
                                   .subject = &subject,
                                   .subject_size = sizeof(subject),
                                   .timeout_ns = 5000000};
    weir_acquisition *acquisition = NULL;
    int r = weir_acquire(pool, &request, &acquisition, NULL);

    require(r == 0 || r == -ETIMEDOUT || r == -EAGAIN || r == -ENOBUFS);
    require(weir_release(&acquisition) == 0);
}

/* A thread that ends soon. */
static void *work(void *argument)
{
    uint64_t random = *(uint64_t *)argument;
    weir_pool *c, *per;

    require(weir_pool_open(&c, w, "c", 0, NULL) == 0);
    require(weir_pool_open(&per, w, "per", 0, NULL) == 0);
    for (unsigned i = 0; i < 300 && !atomic_load(&is_over); i++)
        if (random_below(&random, 2))
            use_class(c, &random);
        else
            use_subject(per, &random);
    weir_pool_close(c);
    weir_pool_close(per);
    return NULL;
}

static void *keep_working(void *argument)
{
    uint64_t *random = argument, seed;

    while (!atomic_load(&is_over)) {
        pthread_t thread;

        seed = random_next(random);
        require(pthread_create(&thread, NULL, work, &seed) == 0);
        require(pthread_join(thread, NULL) == 0);
    }
    return NULL;
}

/* The room for states of subjects is used up some day; then the reload is refused. */
static void *keep_reloading(void *unused)
{
    char text[1024];

    (void)unused;
    for (unsigned turn = 1; !atomic_load(&is_over); turn++) {
        const struct weir_options options = {.size = sizeof(options), .text = text};
        struct weir_error error = {0};
        int r;

        make_config(text, sizeof(text), turn);
        r = weir_reload(w, &options, &error);
        require(r == 0 || strstr(error.message, "room"));
        usleep(20000);
    }
    return NULL;
}

/* ---- readers ---- */

static struct sockaddr_un address = {.sun_family = AF_UNIX};

/* Before there are readers: a thread sanitizer knows nothing of descriptors that the core closes.
 */
static void find_socket(void)
{
    DIR *list = opendir(place);

    require(list);
    for (const struct dirent *entry; (entry = readdir(list));)
        if (strstr(entry->d_name, ".sock"))
            snprintf(address.sun_path, sizeof(address.sun_path), "%.66s/%.40s", place,
                     entry->d_name);
    closedir(list);
    require(address.sun_path[0]);
}

static int connected(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    require(fd >= 0);
    require(connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
    return fd;
}

struct reader {
    unsigned rounds;
    unsigned char *bytes;
    size_t n;
    uint64_t counted[CLASSES]; /* by the last whole answer */
};

/* Reads until the process hangs up. */
static void read_answer(struct reader *reader)
{
    int fd = connected();
    ssize_t n;

    reader->n = 0;
    while ((n = read(fd, reader->bytes + reader->n, ANSWER_MAX - reader->n)) > 0)
        reader->n += (size_t)n;
    close(fd);
}

/* Returns whether the answer is whole, and what it says of the classes. */
static bool look_at_answer(const struct reader *reader, uint64_t ret[static CLASSES])
{
    size_t at = sizeof(struct published_head);
    unsigned sets = 0, classes = 0;

    while (at + sizeof(struct published_item) <= reader->n) {
        struct published_item item;
        struct weir_class_stats class;

        memcpy(&item, reader->bytes + at, sizeof(item));
        at += sizeof(item);
        if (item.kind == PUBLISHED_END) {
            require(at == reader->n && sets == 2 && classes == CLASSES);
            return true;
        }
        if (item.size > reader->n - at)
            return false;
        sets += item.kind == PUBLISHED_SET;
        if (item.kind == PUBLISHED_CLASS) {
            require(item.size == sizeof(class) && classes < CLASSES);
            memcpy(&class, reader->bytes + at, sizeof(class));
            ret[classes++] = class.granted;
        }
        at += (item.size + 7u) / 8 * 8;
    }
    return false;
}

/* A thread that grants to another one has counted that a moment later. */
static void *keep_reading(void *argument)
{
    struct reader *reader = argument;
    unsigned whole = 0;

    while (whole < reader->rounds) {
        uint64_t least[CLASSES], found[CLASSES];

        for (unsigned c = 0; c < CLASSES; c++)
            least[c] = atomic_load(&granted[c]);
        read_answer(reader);
        if (!look_at_answer(reader, found))
            continue;
        for (unsigned c = 0; c < CLASSES; c++) {
            require(found[c] + THREADS >= least[c] && found[c] <= atomic_load(&asked[c]));
            require(found[c] >= reader->counted[c]);
            reader->counted[c] = found[c];
        }
        whole++;
    }
    return NULL;
}

static void *keep_hanging_up(void *unused)
{
    unsigned char byte;

    (void)unused;
    while (!atomic_load(&is_over)) {
        int fd = connected();

        require(read(fd, &byte, 1) >= 0);
        close(fd);
        usleep(5000);
    }
    return NULL;
}

/* What is counted in the end is exact. */
static void check_end(void)
{
    struct weir_set_stats stats = {.size = sizeof(stats)};
    struct weir_class_stats classes[CLASSES];
    weir_pool *pool;

    require(weir_pool_open(&pool, w, "c", 0, NULL) == 0);
    require(weir_set_stats(weir_pool_set(pool, 0), &stats, NULL, 0) == 1);
    require(weir_set_classes(weir_pool_set(pool, 0), classes, CLASSES) == CLASSES);
    for (unsigned c = 0; c < CLASSES; c++) {
        require(classes[c].granted >= granted[c] && classes[c].granted <= asked[c]);
        require(classes[c].granted + classes[c].refused + classes[c].timed_out >= asked[c]);
        require(classes[c].held == 0 && classes[c].waiting == 0);
    }
    require(classes[0].granted + classes[1].granted == stats.granted);
    require(stats.held == 0);
    weir_pool_close(pool);
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : random_seed(), seeds[THREADS];
    pthread_t workers[THREADS], readers[READERS], reloader, other;
    struct reader reading[READERS] = {{0}};
    char text[1024];
    struct weir_options options = {.size = sizeof(options), .text = text, .process_dir = place};

    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    require(tmpdir_make(place, NULL));
    make_config(text, sizeof(text), 0);
    require(weir_open(&w, &options, NULL) == 0);
    find_socket();
    for (unsigned i = 0; i < THREADS; i++) {
        seeds[i] = random_case(seed, i);
        require(pthread_create(&workers[i], NULL, keep_working, &seeds[i]) == 0);
    }
    require(pthread_create(&reloader, NULL, keep_reloading, NULL) == 0);
    require(pthread_create(&other, NULL, keep_hanging_up, NULL) == 0);
    for (unsigned i = 0; i < READERS; i++) {
        const char *rounds = getenv("WEIR_ROUNDS");

        reading[i].rounds = rounds ? (unsigned)strtoul(rounds, NULL, 10) : 15;
        reading[i].bytes = malloc(ANSWER_MAX);
        require(reading[i].bytes);
        require(pthread_create(&readers[i], NULL, keep_reading, &reading[i]) == 0);
    }
    for (unsigned i = 0; i < READERS; i++) {
        require(pthread_join(readers[i], NULL) == 0);
        free(reading[i].bytes);
    }
    atomic_store(&is_over, true);
    for (unsigned i = 0; i < THREADS; i++)
        require(pthread_join(workers[i], NULL) == 0);
    require(pthread_join(reloader, NULL) == 0);
    require(pthread_join(other, NULL) == 0);
    check_end();
    weir_close(w);
    require(tmpdir_remove(place));
    return 0;
}
