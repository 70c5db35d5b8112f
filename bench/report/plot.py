# SPDX-License-Identifier: MIT
"""Plots as SVG: bars against their targets, and the times that they come from."""

import math
from xml.sax.saxutils import escape

from .table import METRICS, number
from .targets import MET, MISSED, STRETCH, UNDECIDED, targets_of, verdict_of

WIDTH, NAMES, VALUES, ROW, BAR, TOP = 1000, 325, 195, 24, 13, 58
SPAN = WIDTH - NAMES - VALUES  # of the axis
LETTER, NAME_LETTERS = 13, 42  # their size, and for how many there is room
COLORS = {STRETCH: "#1a7f4b", MET: "#52b788", UNDECIDED: "#e0a100", MISSED: "#c8443c",
          None: "#9aa5b1"}
INK, FAINT, BASELINE = "#1f2933", "#d5dbe1", "#7b8794"
STYLE = (f"text {{ font: {LETTER}px sans-serif; fill: {INK} }} .title {{ font-size: 17px; "
         f"font-weight: bold }} .warning {{ fill: {COLORS[MISSED]} }} "
         ".panel { font-weight: bold } .small { font-size: 11px; fill: "
         f"{BASELINE} }}")


class Drawing:
    """Elements of an SVG, from top to bottom."""

    def __init__(self, title, subtitle, warning):
        self.parts = []
        self.y = TOP
        self.text(12, 24, title, "title")
        self.text(12, 43, subtitle, "small")
        self.text(WIDTH - 12, 24, warning, "warning", "end")

    def text(self, x, y, words, kind="", anchor="start"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">'
                          f"{escape(words)}</text>")

    def name(self, y, words):
        """Writes a name left of the axis, in smaller letters if it is long."""
        size = LETTER * min(1, NAME_LETTERS / len(words))
        self.parts.append(f'<text x="{NAMES - 8}" y="{y:.1f}" text-anchor="end" '
                          f'style="font-size: {size:.1f}px">{escape(words)}</text>')

    def box(self, x, y, width, height, color):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" '
                          f'height="{height:.1f}" fill="{color}"/>')

    def line(self, x1, y1, x2, y2, color, width=1.0, dashes=""):
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
                          f'stroke="{color}" stroke-width="{width}"{dashed}/>')

    def dot(self, x, y, color):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"/>')

    def finish(self):
        height = self.y + 14
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
            f'viewBox="0 0 {WIDTH} {height:.0f}">', f"<style>{STYLE}</style>",
            f'<rect width="{WIDTH}" height="{height:.0f}" fill="white"/>', *self.parts, "</svg>",
            ""])


# ---- axes ----

class Linear:
    """A linear axis from 0, or a lower value, to `high`."""

    def __init__(self, low, high):
        self.step = nice_step((high - min(low, 0)) / 5)
        self.low = math.floor(min(low, 0) / self.step) * self.step
        self.high = math.ceil(high / self.step) * self.step or self.step

    def at(self, value):
        part = (value - self.low) / (self.high - self.low)
        return NAMES + SPAN * min(max(part, 0), 1)

    def marks(self):
        return [self.low + i * self.step
                for i in range(round((self.high - self.low) / self.step) + 1)]


class Logarithmic:
    """A logarithmic axis between whole powers of ten."""

    def __init__(self, low, high):
        self.low = math.floor(math.log10(max(low, 0.1)))
        self.high = math.ceil(math.log10(max(high, 1)) + 1e-9)

    def at(self, value):
        part = (math.log10(max(value, 0.01)) - self.low) / (self.high - self.low)
        return NAMES + SPAN * min(max(part, 0), 1)

    def marks(self):
        return [10.0 ** i for i in range(self.low, self.high + 1)]


def nice_step(step):
    """1, 2 or 5 times a power of ten, no less than `step`."""
    if step <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= step * (1 - 1e-9))


def bar_axis(bars):
    """The end of an axis that shows the targets well; longer bars are cut."""
    targets = [target.target for _figure, target, _series in bars if target]
    ends = sorted(series.high for _figure, _target, series in bars)
    high = max([ends[-1], *targets])
    if targets:
        high = min(high, max(4 * max(targets), 2 * ends[len(ends) // 2]))
    return Linear(min(series.low for _figure, _target, series in bars), high)


def draw_axis(drawing, axis, rows, words):
    bottom = drawing.y + rows * ROW
    for mark in axis.marks():
        x = axis.at(mark)
        drawing.line(x, drawing.y, x, bottom, FAINT)
        drawing.text(x, bottom + 14, words(mark), "small", "middle")


# ---- bars ----

def draw_cut(drawing, x, y):
    """Draws the mark of a bar that is cut."""
    for offset in (-16, -10):
        drawing.line(x + offset - 3, y + BAR + 3, x + offset + 3, y - 3, "white", 3)


def draw_bar(drawing, axis, bar, scale, unit):
    figure, target, series = bar
    verdict = verdict_of(figure, target) if target else None
    y = drawing.y + (ROW - BAR) / 2
    left, right = sorted((axis.at(0), axis.at(series.value)))
    drawing.name(y + BAR - 2, figure.name)
    drawing.box(left, y, right - left, BAR, COLORS[verdict])
    if series.value > axis.high:
        draw_cut(drawing, right, y)
    else:
        middle = y + BAR / 2
        drawing.line(axis.at(series.low), middle, axis.at(series.high), middle, INK, 1.2)
        for end in (series.low, series.high):
            drawing.line(axis.at(end), middle - 3, axis.at(end), middle + 3, INK, 1.2)
    if target:
        x = axis.at(target.target)
        drawing.line(x, y - 4, x, y + BAR + 4, INK, 2.2)
        if target.stretch is not None:
            x = axis.at(target.stretch)
            drawing.line(x, y - 4, x, y + BAR + 4, INK, 1.6, "2 2")
    words = number(series.value * scale) + unit
    if target:
        words += f" of {target.target * scale:g}: {verdict}"
    drawing.text(NAMES + SPAN + 10, y + BAR - 2, words)
    drawing.y += ROW


def draw_bars(drawing, title, bars, scale, unit):
    drawing.text(12, drawing.y + 16, title, "panel")
    drawing.text(WIDTH - 12, drawing.y + 16, LEGEND, "small", "end")
    drawing.y += 26
    axis = bar_axis(bars)
    draw_axis(drawing, axis, len(bars), lambda mark: f"{mark * scale:g}")
    if "ratio" in title:
        drawing.line(axis.at(1), drawing.y, axis.at(1), drawing.y + len(bars) * ROW, BASELINE)
    for bar in bars:
        draw_bar(drawing, axis, bar, scale, unit)
    drawing.y += 34


# ---- times ----

def time(ns):
    """Formats a time in a suitable unit."""
    for size, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"


def draw_times(drawing, figures):
    """Draws minimum, median and 99th percentile."""
    drawing.text(12, drawing.y + 16,
                 "time of an operation: least, median, 99th percentile", "panel")
    drawing.text(WIDTH - 12, drawing.y + 16, "logarithmic; hollow: compared with nothing", "small",
                 "end")
    drawing.y += 26
    axis = Logarithmic(min(figure.low_ns for figure in figures),
                       max(figure.get("p99_ns").value for figure in figures))
    draw_axis(drawing, axis, len(figures), time)
    for figure in figures:
        middle = drawing.y + ROW / 2
        median, p99 = figure.get("median_ns").value, figure.get("p99_ns").value
        color = "#2b6cb0" if figure.baseline else BASELINE
        drawing.name(middle + 4, figure.name)
        drawing.line(axis.at(figure.low_ns), middle, axis.at(p99), middle, color, 2)
        drawing.line(axis.at(p99), middle - 4, axis.at(p99), middle + 4, color, 2)
        drawing.dot(axis.at(median), middle, color)
        if not figure.baseline:
            drawing.parts.append(f'<circle cx="{axis.at(median):.1f}" cy="{middle:.1f}" r="2" '
                                 'fill="white"/>')
        drawing.text(NAMES + SPAN + 10, middle + 4, f"{time(median)}, p99 {time(p99)}")
        drawing.y += ROW
    drawing.y += 34


# ---- a benchmark ----

PANELS = {
    "ratio": "ratio to the baseline",
    "ratio_p99": "ratio of the 99th percentiles",
    "difference_ns": "added to the median of the baseline, µs",
    "median_ns": "time, ns",
    "p99_ns": "99th percentile, ns",
    "value": "",
}
LEGEND = "whiskers: middle half of the rounds; tick: target; dotted: stretch"


def panels_of(figures):
    """Bars that share an axis: title, bars, metric. Ratios are shown of all that have one, other
    metrics where they have a target."""
    panels = {}
    for figure in figures:
        bars = [(target.metric, target) for target in targets_of(figure)]
        if figure.get("ratio") and not any(metric == "ratio" for metric, _target in bars):
            bars.append(("ratio", None))
        if figure.get("value") and not bars:
            bars.append(("value", None))
        for metric, target in bars:
            title = PANELS[metric] or figure.unit
            panels.setdefault((metric, title), []).append((figure, target, figure.get(metric)))
    order = list(PANELS)
    return dict(sorted(panels.items(), key=lambda panel: order.index(panel[0][0])))


def plot(title, subtitle, figures, warning=""):
    """The SVG of a benchmark, as text."""
    drawing = Drawing(title, subtitle, warning)
    for (metric, heading), bars in panels_of(figures).items():
        _name, scale, unit = METRICS[metric]
        draw_bars(drawing, heading, bars, scale, unit.replace("us", "µs"))
    times = [figure for figure in figures if figure.get("median_ns")]
    if times:
        draw_times(drawing, times)
    return drawing.finish()
