/* SPDX-License-Identifier: MIT */
/* Writes SVG. */
#include "svg.h"
#include "utf8.h"
#include <stdlib.h>

/* A length, as printf's arguments for SVG_LENGTH. */
#define SVG_LENGTH     "%s%d.%d"
#define SVG_TENTHS(at) (at) < 0 ? "-" : "", abs(at) / 10, abs(at) % 10

void svg_begin(FILE *out, int width, int height)
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\">\n",
            width / 10, height / 10, width / 10, height / 10);
    fprintf(out,
            "<style>text { font: 13px sans-serif; fill: %s } .title { font-size: 17px; "
            "font-weight: bold } .panel { font-weight: bold } .small { font-size: 11px; "
            "fill: %s }</style>\n",
            SVG_INK, SVG_GRAY);
    svg_box(out, 0, 0, width, height, "white");
}

void svg_end(FILE *out)
{
    fputs("</svg>\n", out);
}

/* Writes a text that may hold anything. What XML does not know becomes a question mark. */
static void escape(FILE *out, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;

    while (*at != '\0') {
        size_t n = utf8_sequence(at);

        if (n == 0 || *at < 0x20)
            fputc('?', out);
        else if (*at == '<')
            fputs("&lt;", out);
        else if (*at == '&')
            fputs("&amp;", out);
        else
            fwrite(at, 1, n, out);
        at += n > 0 ? n : 1;
    }
}

void svg_text(FILE *out, int x, int y, const char *kind, enum svg_anchor anchor, const char *text)
{
    static const char *const anchors[] = {"start", "middle", "end"};

    fprintf(out, "<text x=\"" SVG_LENGTH "\" y=\"" SVG_LENGTH "\" class=\"%s\" text-anchor=\"%s\">",
            SVG_TENTHS(x), SVG_TENTHS(y), kind, anchors[anchor]);
    escape(out, text);
    fputs("</text>\n", out);
}

void svg_box(FILE *out, int x, int y, int width, int height, const char *color)
{
    fprintf(out,
            "<rect x=\"" SVG_LENGTH "\" y=\"" SVG_LENGTH "\" width=\"" SVG_LENGTH
            "\" height=\"" SVG_LENGTH "\" fill=\"%s\"/>\n",
            SVG_TENTHS(x), SVG_TENTHS(y), SVG_TENTHS(width), SVG_TENTHS(height), color);
}

void svg_line(FILE *out, int x1, int y1, int x2, int y2, const char *color)
{
    fprintf(out,
            "<line x1=\"" SVG_LENGTH "\" y1=\"" SVG_LENGTH "\" x2=\"" SVG_LENGTH
            "\" y2=\"" SVG_LENGTH "\" stroke=\"%s\"/>\n",
            SVG_TENTHS(x1), SVG_TENTHS(y1), SVG_TENTHS(x2), SVG_TENTHS(y2), color);
}

void svg_path_begin(FILE *out)
{
    fputs("<path d=\"", out);
}

void svg_path_point(FILE *out, int x, int y, int is_first)
{
    fprintf(out, "%c" SVG_LENGTH " " SVG_LENGTH, is_first ? 'M' : 'L', SVG_TENTHS(x),
            SVG_TENTHS(y));
}

void svg_path_end(FILE *out, const char *color, int width)
{
    fprintf(out,
            "\" fill=\"none\" stroke=\"%s\" stroke-width=\"" SVG_LENGTH
            "\" stroke-linejoin=\"round\"/>\n",
            color, SVG_TENTHS(width));
}

void svg_area_end(FILE *out, int first_x, int last_x, int floor, const char *color)
{
    svg_path_point(out, last_x, floor, 0);
    svg_path_point(out, first_x, floor, 0);
    fprintf(out, "Z\" fill=\"%s\"/>\n", color);
}
