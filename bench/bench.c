/* SPDX-License-Identifier: MIT */
/* Measures figures over rounds, and reports them. */
#include "bench.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* Least number of rounds before a figure counts as stable, and its tolerance. */
#define ROUNDS_MIN  9
#define ERROR_MAX   0.005
#define SPREAD_LOUD 0.10

/* ---- processors ---- */

static cpu_set_t allowed;
static unsigned processors;

static void look_at_processors(void)
{
    require(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
    processors = (unsigned)CPU_COUNT(&allowed);
}

unsigned bench_processors(void)
{
    return processors;
}

static cpu_set_t only(unsigned processor)
{
    unsigned left = processor < processors ? processor : processors - 1;
    cpu_set_t set;

    CPU_ZERO(&set);
    for (unsigned i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &allowed) && left-- == 0) {
            CPU_SET(i, &set);
            break;
        }
    return set;
}

void bench_pin(unsigned processor)
{
    cpu_set_t set = only(processor);

    require(sched_setaffinity(0, sizeof(set), &set) == 0);
}

void bench_unpin(void)
{
    require(sched_setaffinity(0, sizeof(allowed), &allowed) == 0);
}

pthread_t bench_start(unsigned processor, void *(*run)(void *argument), void *argument)
{
    cpu_set_t set = only(processor);
    pthread_attr_t attributes;
    pthread_t thread;

    require(pthread_attr_init(&attributes) == 0);
    require(pthread_attr_setaffinity_np(&attributes, sizeof(set), &set) == 0);
    require(pthread_create(&thread, &attributes, run, argument) == 0);
    pthread_attr_destroy(&attributes);
    return thread;
}

void bench_spin(uint64_t ns)
{
    uint64_t until = clock_now() + ns;

    if (processors < 2)
        nanosleep(&(struct timespec){0, (long)ns}, NULL);
    while (clock_now() < until)
        ;
}

void bench_yield(void)
{
    if (processors < 2)
        sched_yield();
}

/* Runs a second thread: with only one, the C library leaves out locked instructions. */
static void *sleep_on(void *started)
{
    atomic_store((atomic_bool *)started, true);
    for (;;)
        pause();
    return NULL;
}

/* Starts a second thread and waits for its start. A fork before that could leave a lock held in the
 * child for ever: with the address sanitizer, that of the allocator. */
static void have_threads(void)
{
    static atomic_bool started;

    require(pthread_detach(bench_start(0, sleep_on, &started)) == 0);
    while (!atomic_load(&started))
        sched_yield();
}

/* ---- the command line ---- */

static _Noreturn void usage(const struct bench *bench)
{
    fprintf(stderr,
            "usage: %s [--seconds S] [--rounds N] [--samples N] [--only TEXT] [--lines FILE] ...\n",
            bench->name);
    exit(2);
}

static double number(const struct bench *bench, const char *text)
{
    char *end;
    double value = text ? strtod(text, &end) : 0;

    if (!text || end == text || *end || !(value > 0))
        usage(bench);
    return value;
}

static FILE *open_lines(const char *path)
{
    FILE *file = fopen(path, "w");

    if (file)
        return file;
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    exit(2);
}

static void read_options(struct bench *bench, int argc, char **argv)
{
    int i = 1;

    for (; i < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;

        if (strcmp(argv[i], "--seconds") == 0)
            bench->seconds = number(bench, value);
        else if (strcmp(argv[i], "--rounds") == 0)
            bench->rounds_max = (unsigned)fmin(number(bench, value), BENCH_ROUNDS);
        else if (strcmp(argv[i], "--samples") == 0)
            bench->samples = (unsigned)fmin(number(bench, value), 1e6);
        else if (strcmp(argv[i], "--only") == 0 && value)
            bench->only = value;
        else if (strcmp(argv[i], "--lines") == 0 && value && !bench->lines)
            bench->lines = open_lines(value);
        else
            usage(bench);
    }
    bench->argc = argc - i;
    bench->argv = argv + i;
}

void bench_open(struct bench *bench, const char *name, double seconds, int argc, char **argv)
{
    *bench = (struct bench){.name = name, .seconds = seconds, .rounds_max = BENCH_ROUNDS};
    look_at_processors();
    have_threads();
    read_options(bench, argc, argv);
    setvbuf(stdout, NULL, _IOLBF, 0);
    bench->start_ns = clock_now();
}

/* ---- measuring ---- */

bool bench_wants(const struct bench *bench, const char *name)
{
    return !bench->only || strstr(name, bench->only);
}

struct bench_figure *bench_figure(struct bench *bench, const struct bench_figure *baseline,
                                  const char *name, ...)
{
    struct bench_figure *figure = calloc(1, sizeof(*figure));
    va_list arguments;

    require(figure && bench->figures_n < BENCH_FIGURES);
    va_start(arguments, name);
    vsnprintf(figure->name, sizeof(figure->name), name, arguments);
    va_end(arguments);
    figure->baseline = baseline;
    bench->figures[bench->figures_n++] = figure;
    return figure;
}

unsigned bench_samples(const struct bench *bench, unsigned otherwise)
{
    return bench->samples ? bench->samples : otherwise;
}

void bench_add(struct bench_figure *figure, double ns)
{
    if (figure->samples_n == figure->samples_room) {
        figure->samples_room = figure->samples_room ? figure->samples_room * 2 : 1024;
        figure->samples = realloc(figure->samples, figure->samples_room * sizeof(double));
        require(figure->samples);
    }
    figure->samples[figure->samples_n++] = ns;
}

void bench_value(struct bench *bench, double value, const char *unit, const char *name, ...)
{
    struct bench_value *at = &bench->values[bench->values_n];
    va_list arguments;

    require(bench->values_n++ < BENCH_FIGURES);
    va_start(arguments, name);
    vsnprintf(at->name, sizeof(at->name), name, arguments);
    va_end(arguments);
    at->value = value;
    at->unit = unit;
}

void bench_skip(const char *name, const char *why)
{
    printf("skipped: %s: %s\n", name, why);
}

void bench_skip_errno(const char *name, int error)
{
    bench_skip(name, strerror(-error));
}

static _Noreturn void fail_by(const struct weir_error *error)
{
    fprintf(stderr, "%s\n", error->message);
    fflush(NULL);
    _Exit(1);
}

weir *bench_instance(const struct weir_options *options)
{
    struct weir_error error = {0};
    weir *w;

    if (weir_open(&w, options, &error) < 0)
        fail_by(&error);
    return w;
}

weir_pool *bench_pool_of(weir *w, const struct weir_set_spec *set)
{
    const struct weir_pool_spec spec = {.size = sizeof(spec), .sets = set, .sets_n = 1};
    struct weir_error error = {0};
    weir_pool *pool;

    if (weir_pool_new(&pool, w, &spec, &error) < 0)
        fail_by(&error);
    return pool;
}

weir_pool *bench_pool(weir *w, const char *name, const struct weir_limit_spec *limits, size_t n)
{
    const struct weir_set_spec set = {
        .size = sizeof(set), .name = name, .limits = limits, .limits_n = n};

    return bench_pool_of(w, &set);
}

/* ---- sums ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Returns a quantile of sorted numbers; `part` is from 0 to 1. */
static double quantile(const double *sorted, size_t n, double part)
{
    size_t i = n ? (size_t)ceil(part * (double)n) : 0;

    return n ? sorted[i ? i - 1 : 0] : 0;
}

static void sum_up(struct bench_figure *figure, unsigned round)
{
    size_t n = figure->samples_n;

    qsort(figure->samples, n, sizeof(double), compare);
    figure->rounds[round] = (struct bench_sums){
        .min = quantile(figure->samples, n, 0),
        .median = quantile(figure->samples, n, 0.5),
        .p99 = quantile(figure->samples, n, 0.99),
        .max = quantile(figure->samples, n, 1),
    };
    figure->samples_n = 0;
}

/* Sums of one figure over all rounds. */
struct sums {
    double min, median, p99, max;
    double spread;                       /* of the medians of the rounds */
    double ratio, ratio_p99, difference; /* to the baseline, if any */
    double ratio_spread;
    unsigned rounds;
};

enum column { MEDIAN, P99, RATIO, RATIO_P99, DIFFERENCE, COLUMNS };

/* Returns a number of a round, or NaN if the round did not measure it. */
static double of_round(const struct bench_figure *figure, unsigned round, enum column column)
{
    const struct bench_sums *own = &figure->rounds[round];
    const struct bench_sums *other = figure->baseline ? &figure->baseline->rounds[round] : NULL;

    if (!(own->median > 0) || (column >= RATIO && (!other || !(other->median > 0))))
        return (double)NAN;
    switch (column) {
    case MEDIAN:
        return own->median;
    case P99:
        return own->p99;
    case RATIO:
        return own->median / other->median;
    case RATIO_P99:
        return own->p99 / other->p99;
    default:
        return own->median - other->median;
    }
}

/* Numbers of all rounds, sorted. */
struct column_sums {
    double values[BENCH_ROUNDS];
    unsigned n;
};

static void gather(const struct bench *bench, const struct bench_figure *figure, enum column column,
                   struct column_sums *ret)
{
    ret->n = 0;
    for (unsigned i = 0; i < bench->rounds; i++) {
        double value = of_round(figure, i, column);

        if (!isnan(value))
            ret->values[ret->n++] = value;
    }
    qsort(ret->values, ret->n, sizeof(double), compare);
}

static double middle(const struct column_sums *sums)
{
    return quantile(sums->values, sums->n, 0.5);
}

/* Returns the width of the middle half, as part of the median. */
static double spread_of(const struct column_sums *sums)
{
    double low = quantile(sums->values, sums->n, 0.25);
    double high = quantile(sums->values, sums->n, 0.75);

    return sums->n ? (high - low) / middle(sums) : 0;
}

static struct sums sums_of(const struct bench *bench, const struct bench_figure *figure)
{
    struct column_sums columns[COLUMNS];
    struct sums sums = {.min = INFINITY};

    for (int i = 0; i < COLUMNS; i++)
        gather(bench, figure, (enum column)i, &columns[i]);
    for (unsigned i = 0; i < bench->rounds; i++)
        if (figure->rounds[i].median > 0) {
            sums.min = fmin(sums.min, figure->rounds[i].min);
            sums.max = fmax(sums.max, figure->rounds[i].max);
        }
    sums.rounds = columns[MEDIAN].n;
    sums.median = middle(&columns[MEDIAN]);
    sums.spread = spread_of(&columns[MEDIAN]);
    sums.p99 = middle(&columns[P99]);
    sums.ratio = middle(&columns[RATIO]);
    sums.ratio_spread = spread_of(&columns[RATIO]);
    sums.ratio_p99 = middle(&columns[RATIO_P99]);
    sums.difference = middle(&columns[DIFFERENCE]);
    return sums;
}

static bool is_baseline(const struct bench *bench, const struct bench_figure *figure)
{
    for (unsigned i = 0; i < bench->figures_n; i++)
        if (bench->figures[i]->baseline == figure)
            return true;
    return false;
}

/* Returns true if more rounds would hardly change the ratio, or, without a baseline, the median. */
static bool stands_still(const struct bench *bench)
{
    if (bench->rounds < ROUNDS_MIN)
        return false;
    for (unsigned i = 0; i < bench->figures_n; i++) {
        const struct bench_figure *figure = bench->figures[i];
        struct sums sums = sums_of(bench, figure);
        double spread = figure->baseline ? sums.ratio_spread : sums.spread;

        if (!is_baseline(bench, figure) && spread / sqrt(bench->rounds) > ERROR_MAX)
            return false;
    }
    return true;
}

bool bench_round(struct bench *bench)
{
    double spent = (double)(clock_now() - bench->start_ns) / 1e9;

    if (!bench->begun) {
        bench->begun = true;
        return true;
    }
    for (unsigned i = 0; i < bench->figures_n; i++)
        sum_up(bench->figures[i], bench->rounds);
    bench->rounds++;
    return bench->rounds < bench->rounds_max && spent + spent / bench->rounds <= bench->seconds &&
           !stands_still(bench);
}

/* ---- the report ---- */

static void print_row(const struct bench_figure *figure, const struct sums *sums)
{
    printf("%-46s %9.1f %9.1f %9.1f", figure->name, sums->min, sums->median, sums->p99);
    if (sums->ratio > 0)
        printf("  %6.3f %6.3f %+9.1f  %s", sums->ratio, sums->ratio_p99, sums->difference,
               figure->baseline->name);
    putchar('\n');
}

static void print_rounds(const struct bench *bench, const struct bench_figure *figure, FILE *file)
{
    static const char *const names[COLUMNS] = {"median_ns", "p99_ns", "ratio", "ratio_p99",
                                               "difference_ns"};

    fputs(", \"each\": {", file);
    for (int i = 0; i < (figure->baseline ? COLUMNS : RATIO); i++) {
        const char *comma = "";

        fprintf(file, "%s\"%s\": [", i ? ", " : "", names[i]);
        for (unsigned j = 0; j < bench->rounds; j++) {
            double value = of_round(figure, j, (enum column)i);

            if (!isnan(value)) {
                fprintf(file, "%s%.5g", comma, value);
                comma = ", ";
            }
        }
        fputs("]", file);
    }
    fputs("}", file);
}

static void print_json(const struct bench *bench, const struct bench_figure *figure,
                       const struct sums *sums, FILE *file)
{
    fprintf(file,
            "{\"bench\": \"%s\", \"name\": \"%s\", \"min_ns\": %.1f, \"median_ns\": %.1f, "
            "\"p99_ns\": %.1f, \"max_ns\": %.1f, \"spread\": %.3f, \"rounds\": %u",
            bench->name, figure->name, sums->min, sums->median, sums->p99, sums->max, sums->spread,
            sums->rounds);
    if (sums->ratio > 0)
        fprintf(file,
                ", \"baseline\": \"%s\", \"ratio\": %.3f, \"ratio_p99\": %.3f, "
                "\"ratio_spread\": %.3f, \"difference_ns\": %.1f",
                figure->baseline->name, sums->ratio, sums->ratio_p99, sums->ratio_spread,
                sums->difference);
    if (bench->lines)
        print_rounds(bench, figure, file);
    fputs("}\n", file);
}

/* Reports noisy baselines. Their work is equal in every round: differences come from other
 * programs. */
static void print_noise(const struct bench *bench)
{
    for (unsigned i = 0; i < bench->figures_n; i++) {
        struct sums sums = sums_of(bench, bench->figures[i]);

        if (is_baseline(bench, bench->figures[i]) && sums.spread > SPREAD_LOUD)
            printf("noisy: the medians of `%s` lie %.0f %% apart from round to round: trust the "
                   "ratios, not the times\n",
                   bench->figures[i]->name, sums.spread * 100);
    }
}

static void print_table(const struct bench *bench)
{
    printf("\n%s: %u rounds, %.1f s, %u processors\n", bench->name, bench->rounds,
           (double)(clock_now() - bench->start_ns) / 1e9, processors);
    printf("%-46s %9s %9s %9s  %6s %6s %9s\n", "ns", "min", "median", "p99", "ratio", "p99",
           "differ.");
    for (unsigned i = 0; i < bench->figures_n; i++) {
        struct sums sums = sums_of(bench, bench->figures[i]);

        if (sums.rounds)
            print_row(bench->figures[i], &sums);
    }
    for (unsigned i = 0; i < bench->values_n; i++)
        printf("%-46s %9.1f %s\n", bench->values[i].name, bench->values[i].value,
               bench->values[i].unit);
    print_noise(bench);
}

static void print_lines(const struct bench *bench, FILE *file)
{
    for (unsigned i = 0; i < bench->figures_n; i++) {
        struct sums sums = sums_of(bench, bench->figures[i]);

        if (sums.rounds)
            print_json(bench, bench->figures[i], &sums, file);
    }
    for (unsigned i = 0; i < bench->values_n; i++)
        fprintf(file, "{\"bench\": \"%s\", \"name\": \"%s\", \"value\": %.1f, \"unit\": \"%s\"}\n",
                bench->name, bench->values[i].name, bench->values[i].value, bench->values[i].unit);
}

int bench_close(struct bench *bench)
{
    int status = 0;

    print_table(bench);
    print_lines(bench, bench->lines ? bench->lines : stdout);
    if (bench->lines && fclose(bench->lines) != 0)
        status = 1;
    for (unsigned i = 0; i < bench->figures_n; i++) {
        free(bench->figures[i]->samples);
        free(bench->figures[i]);
    }
    return fflush(stdout) == 0 ? status : 1;
}
