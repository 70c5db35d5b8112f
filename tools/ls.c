/* SPDX-License-Identifier: MIT */
/* `weir ls`: the shared sets of a directory, and the files there that are not usable. */
#include "base/units.h"
#include "json.h"
#include "source.h"
#include "time_text.h"
#include "usage.h"
#include "weir.h"
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <weir/segment.h>

static const char help[] =
    "Usage: weir ls [--json | --names] [-f FILE] [--process-dir DIR]\n"
    "\n"
    "Lists shared sets: how many living processes use each, its age, memory, lifetime "
    "and\ncreator; or why it cannot be used.\n"
    "\n"
    "  -j, --json              write JSON\n"
    "  -n, --names             write nothing but names, one a line\n"
    "  -f, --file FILE         a configuration that says where shared sets are; default: the file\n"
    "                          that WEIR_CONFIG names\n"
    "      --process-dir DIR   where shared sets are\n"
    "  -h, --help              show this text\n"
    "\n"
    "Exit status: 0 fine, 2 wrong usage, 3 the directory cannot be read, or the output not be\n"
    "written.\n";

enum format { FORMAT_TEXT, FORMAT_JSON, FORMAT_NAMES };

struct listing {
    enum format format;
    struct json json;
    uint64_t now_ns; /* since 1970 */
    bool begun;
};

/* Returns the word for a segment's state; `refusal` has the reason. */
static const char *segment_state(const struct weir_segment *segment)
{
    if (!segment->refusal)
        return "usable";
    switch (segment->refusal->code) {
    case -ESTALE:
        return "stale";
    case -EXDEV:
        return "foreign";
    case -EIDRM:
        return "nameless";
    case -EPROTONOSUPPORT:
        return "incompatible";
    case -EUCLEAN:
        return "damaged";
    default:
        return "refused";
    }
}

static uint64_t listing_age(const struct listing *listing, const struct weir_segment *segment)
{
    return listing->now_ns > segment->created_ns ? listing->now_ns - segment->created_ns : 0;
}

static void print_segment(struct listing *listing, const struct weir_segment *segment)
{
    char text[TIME_TEXT_MAX];

    if (!listing->begun)
        printf("%-12s  %5s  %6s  %8s  %-8s  %7s  %s\n", "STATE", "USERS", "AGE", "MEMORY",
               "LIFETIME", "CREATOR", "NAME");
    listing->begun = true;
    if (!segment->refusal)
        printf("%-12s  %5" PRIu32 "  %6s  %7" PRIu64 "k  %-8s  %7" PRIu32 "  %s\n",
               segment_state(segment), segment->users,
               time_text_age(listing_age(listing, segment), text), segment->bytes / 1024,
               segment->lifetime, segment->creator, segment->name);
    else
        printf("%-12s  %5s  %6s  %8s  %-8s  %7s  %s: %s\n", segment_state(segment), "-", "-", "-",
               "-", "-", segment->name, segment->refusal->message);
}

static void json_segment(struct listing *listing, const struct weir_segment *segment)
{
    struct json *json = &listing->json;

    json_object(json, NULL);
    json_text(json, "name", segment->name);
    json_text(json, "path", segment->path);
    json_text(json, "state", segment_state(segment));
    if (segment->refusal) {
        json_text(json, "reason", segment->refusal->message);
    } else {
        json_number(json, "users", segment->users);
        json_text(json, "lifetime", segment->lifetime);
        json_number(json, "creator", segment->creator);
        json_number(json, "created_ns", segment->created_ns);
        json_number(json, "bytes", segment->bytes);
        json_text(json, "definition", segment->definition);
    }
    json_end_object(json);
}

static int on_segment(void *userdata, const struct weir_segment *segment)
{
    struct listing *listing = userdata;

    bool is_nameless = segment->refusal && segment->refusal->code == -EIDRM;

    if (listing->format == FORMAT_JSON)
        json_segment(listing, segment);
    else if (listing->format == FORMAT_TEXT)
        print_segment(listing, segment);
    else if (!is_nameless) /* no command finds it by its name */
        puts(segment->name);
    return 0;
}

static int list(const char *title, const struct source *source, enum format format)
{
    struct weir_options options = source_options(source);
    struct listing listing = {.format = format, .json = {.out = stdout}};
    struct weir_error error = {0};
    struct timespec now;
    int r;

    clock_gettime(CLOCK_REALTIME, &now);
    listing.now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    if (format == FORMAT_JSON) {
        json_object(&listing.json, NULL);
        json_array(&listing.json, "segments");
    }
    r = weir_segments(&options, on_segment, &listing, &error);
    if (format == FORMAT_JSON) {
        json_end_array(&listing.json);
        json_end_object(&listing.json);
    }
    if (r < 0)
        source_complain(title, &error);
    return r < 0 ? ENDING_SYSTEM : ENDING_FINE;
}

int run_ls(int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'},
        {"names", no_argument, NULL, 'n'},
        SOURCE_OPTIONS,
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct source source = {0};
    enum format format = FORMAT_TEXT;
    int option;

    while ((option = getopt_long(argc, argv, "jnh" SOURCE_LETTERS, options, NULL)) != -1) {
        switch (option) {
        case 'j':
            format = FORMAT_JSON;
            break;
        case 'n':
            format = FORMAT_NAMES;
            break;
        case 'h':
            return usage_help(help);
        default:
            if (!source_option(&source, option, optarg, argv[0]))
                return usage_hint(argv[0]);
        }
    }
    if (optind < argc)
        return usage_wrong(argv[0], "takes no names, not ", argv[optind]);
    return list(argv[0], &source, format);
}
