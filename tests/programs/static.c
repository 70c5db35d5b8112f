/* SPDX-License-Identifier: MIT */
/*
 * A program with libweir.a inside: uses each algorithm and each balancer of the project, and says
 * which plugin files there are. Linked without a prefix of its own, run without plugin directories.
 */
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

/* Each grants three of five. */
static const struct {
    const char *name, *limit;
} algorithms[] = {
    {"aimd", "type: resource, key: slots, capacity: 3"},
    {"calendar", "type: call, capacity: 3"},
    {"fixed_window", "type: call, capacity: 3, window: 1d"},
    {"gcra", "type: call, capacity: 3, window: 1d"},
    {"gradient2", "type: resource, key: slots, capacity: 3"},
    {"leaky_bucket", "type: call, capacity: 3, window: 1d"},
    {"multi_window", "type: call, per_day: 3"},
    {"sliding_window", "type: call, capacity: 3, window: 1d"},
    {"token_bucket", "type: call, capacity: 3, window: 1d"},
    {"vegas", "type: resource, key: slots, capacity: 3"},
};
static const char *const balancers[] = {"failover", "hash",        "least_loaded", "power_of_two",
                                        "random",   "round_robin", "soonest",      "weighted"};

static int complain(const char *what, const struct weir_error *error)
{
    fprintf(stderr, "static: %s: %s\n", what, error->message);
    return 1;
}

/* How many of five requests a pool grants. */
static int use(const char *what, const char *name, const char *text)
{
    struct weir_options options = {.size = sizeof(options), .text = text};
    struct weir_error error = {0};
    weir *w = NULL;
    weir_pool *pool = NULL;
    weir_acquisition *held[5] = {NULL};
    int granted = 0;

    if (weir_open(&w, &options, &error) < 0)
        return complain(name, &error);
    if (weir_pool_open(&pool, w, "trial", 0, NULL) < 0)
        return complain("there is no pool", &error);
    for (int i = 0; i < 5; i++)
        granted += weir_try_acquire(pool, NULL, &held[i], NULL) == 0;
    printf("%s %s: %d granted\n", what, name, granted);
    for (int i = 0; i < 5; i++)
        weir_release(&held[i]);
    weir_pool_close(pool);
    weir_close(w);
    return 0;
}

static int use_algorithm(const char *name, const char *limit)
{
    char text[256];

    snprintf(text, sizeof(text),
             "version: 1\n"
             "sets: { trial: { limits: [ { algorithm: %s, %s } ] } }\n",
             name, limit);
    return use("algorithm", name, text);
}

static int use_balancer(const char *name)
{
    char text[512];

    snprintf(text, sizeof(text),
             "version: 1\n"
             "sets:\n"
             "  one: { limits: [ { type: call, algorithm: gcra, capacity: 5, window: 1d } ] }\n"
             "  two: { limits: [ { type: call, algorithm: gcra, capacity: 5, window: 1d } ] }\n"
             "pools: { trial: { sets: [one, two], balancer: %s } }\n",
             name);
    return use("balancer", name, text);
}

static int show(void *userdata, const struct weir_plugin_info *info)
{
    (void)userdata;
    printf("%s: %s\n", info->path, info->plugin ? info->plugin->name : info->refusal->message);
    return 0;
}

int main(int argc, char **argv)
{
    struct weir_options options = {.size = sizeof(options)};
    int r = 0;

    for (size_t i = 0; i < sizeof(algorithms) / sizeof(algorithms[0]) && r == 0; i++)
        r = use_algorithm(algorithms[i].name, algorithms[i].limit);
    for (size_t i = 0; i < sizeof(balancers) / sizeof(balancers[0]) && r == 0; i++)
        r = use_balancer(balancers[i]);
    if (r == 0 && argc == 2 && strcmp(argv[1], "--list") == 0)
        r = weir_plugins(&options, show, NULL, NULL) < 0;
    return r;
}
