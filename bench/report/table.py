# SPDX-License-Identifier: MIT
"""The report as text: a table for people, lines of JSON for programs."""

from .targets import UNDECIDED, targets_of, verdict_of

# The name of a metric, and the factor between its printed and its measured value.
METRICS = {
    "ratio": ("ratio", 1, ""),
    "ratio_p99": ("p99 ratio", 1, ""),
    "difference_ns": ("added", 1e-3, " us"),
    "median_ns": ("median", 1, " ns"),
    "p99_ns": ("p99", 1, " ns"),
    "value": ("", 1, ""),
}
LOUD = 0.10  # greatest width of the middle half of the rounds of a baseline


def number(value):
    """Formats three digits, or more before the point."""
    return f"{value:#.3g}".rstrip(".") if 0.001 <= abs(value) < 999.5 else f"{value:.0f}"


def within(series, scale=1, unit=""):
    """A value and its precision, which is unknown for a single run."""
    sure = "" if series.error == float("inf") else f" ±{number(series.error * scale)}"
    return f"{number(series.value * scale)}{sure}{unit}"


def words_of(figure, target):
    """A target and its verdict: `ratio 1.07 ±0.02 <= 1.3 met`."""
    name, scale, unit = METRICS[target.metric]
    series = figure.get(target.metric)
    limit = f"{'>=' if target.at_least else '<='} {target.target * scale:g}"
    if target.stretch is not None:
        limit += f" ({target.stretch * scale:g})"
    words = [name, within(series, scale, unit), limit, verdict_of(figure, target)]
    return f"#{target.number} " + " ".join(word for word in words if word)


def unit_of(figure):
    """What a value counts; of a time, its ratio with the middle half of its rounds, as in
    `1.07 ±0.02 [1.05 1.10]`."""
    ratio = figure.get("ratio")
    if not ratio:
        return figure.unit if figure.get("value") else ""
    return f"{within(ratio)} [{number(ratio.low)} {number(ratio.high)}]"


def times_of(figure):
    """Least, median and 99th percentile; of what is not a time, the value in the middle."""
    if figure is None:
        return ["", "", ""]
    if figure.get("value"):
        return ["", number(figure.get("value").value), ""]
    times = [figure.low_ns, figure.get("median_ns").value, figure.get("p99_ns").value]
    return [f"{time:.1f}" for time in times]


def beside_of(figure):
    """Times of the other build, and its ratio."""
    ratio = figure.get("ratio") if figure else None
    least, median, p99 = times_of(figure)
    return f"{least:>9} {median:>9} {p99:>9}  {number(ratio.value) if ratio else '':<6} "


def table_of(figures):
    """All figures of a benchmark; beside them those of another build, if there are any."""
    compared = any(figure.beside for figure in figures)
    other = f"{'its min':>9} {'median':>9} {'p99':>9}  {'ratio':<6} " if compared else ""
    lines = [f"{'ns':<46} {'min':>9} {'median':>9} {'p99':>9}  "
             f"{'ratio [middle half of rounds]':<30} {other}target (stretch)"]
    for figure in figures:
        least, median, p99 = times_of(figure)
        shown = f"{figure.name:<46} {least:>9} {median:>9} {p99:>9}  {unit_of(figure):<30} "
        shown += beside_of(figure.beside) if compared else ""
        targets = [words_of(figure, target) for target in targets_of(figure)] or [""]
        lines.append(f"{shown}{targets[0]}".rstrip())
        lines += [f"{'':<{len(shown)}}{words}" for words in targets[1:]]
    return "\n".join(lines)


def undecided(figures):
    """Names of the figures with undecided targets."""
    return [figure.name for figure in figures
            if any(verdict_of(figure, target) == UNDECIDED
                   for target in targets_of(figure))]


def loud_baselines(figures):
    """Names of baselines with times that differ from round to round."""
    names = {figure.baseline for figure in figures}
    return [f"`{figure.name}` ({figure.spread:.0%})" for figure in figures
            if figure.name in names and figure.spread > LOUD]


def fields_of(figure):
    """What was measured, as fields of JSON."""
    if figure.get("value"):
        fields = {"value": figure.get("value").value, "unit": figure.unit}
    else:
        fields = {"min_ns": figure.low_ns, "median_ns": round(figure.get("median_ns").value, 1),
                  "p99_ns": round(figure.get("p99_ns").value, 1), "max_ns": figure.high_ns,
                  "rounds": figure.rounds, "spread": figure.spread}
    ratio = figure.get("ratio")
    if ratio:
        fields |= {"baseline": figure.baseline, "ratio": round(ratio.value, 4),
                   "ratio_error": None if ratio.error == float("inf") else round(ratio.error, 4),
                   "ratio_low": round(ratio.low, 4), "ratio_high": round(ratio.high, 4),
                   "ratio_p99": round(figure.get("ratio_p99").value, 4),
                   "difference_ns": round(figure.get("difference_ns").value, 1)}
    return fields


def line_of(figure, description):
    """A figure as the fields of a line of JSON."""
    line = {"bench": figure.bench, "name": figure.name, "runs": figure.runs} | fields_of(figure)
    targets = targets_of(figure)
    if targets:
        line["targets"] = [
            {"number": target.number, "metric": target.metric, "target": target.target,
             "stretch": target.stretch, "at_least": target.at_least,
             "verdict": verdict_of(figure, target)}
            for target in targets]
    if figure.beside:
        line["beside"] = fields_of(figure.beside)
    return line | description
