# SPDX-License-Identifier: MIT
"""The report as text: a table for people, lines of JSON for programs."""

from .targets import UNDECIDED, targets_of, verdict_of

# The name of a metric, and the factor between its printed and its measured value.
METRICS = {
    "ratio": ("ratio", 1, ""),
    "ratio_p99": ("p99 ratio", 1, ""),
    "difference_ns": ("added", 1e-3, " us"),
    "median_ns": ("median", 1, " ns"),
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
    limit = f"<= {target.target * scale:g}"
    if target.stretch is not None:
        limit += f" ({target.stretch * scale:g})"
    words = [name, within(series, scale, unit), limit, verdict_of(figure, target)]
    return f"#{target.number} " + " ".join(word for word in words if word)


def ratio_of(figure):
    """`1.07 ±0.02 [1.05 1.10]`: a value with the middle half of its rounds."""
    ratio = figure.get("ratio")
    if not ratio:
        return ""
    return f"{within(ratio)} [{number(ratio.low)} {number(ratio.high)}]"


def rows_of(figure):
    """One line, or more if there is more than one target."""
    if figure.get("value"):
        columns = ["", number(figure.get("value").value), "", figure.unit]
    else:
        times = [figure.low_ns, figure.get("median_ns").value, figure.get("p99_ns").value]
        columns = [*(f"{time:.1f}" for time in times), ratio_of(figure)]
    targets = [words_of(figure, target) for target in targets_of(figure)] or [""]
    rows = [[figure.name, *columns, targets[0]]]
    rows += [["", "", "", "", "", words] for words in targets[1:]]
    return rows


def table_of(figures):
    """All figures of a benchmark."""
    lines = [f"{'ns':<46} {'min':>9} {'median':>9} {'p99':>9}  "
             f"{'ratio [middle half of rounds]':<30} target (stretch)"]
    for figure in figures:
        for name, least, median, p99, ratio, target in rows_of(figure):
            lines.append(f"{name:<46} {least:>9} {median:>9} {p99:>9}  {ratio:<30} {target}".rstrip())
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


def line_of(figure, description):
    """A figure as the fields of a line of JSON."""
    line = {"bench": figure.bench, "name": figure.name, "runs": figure.runs}
    if figure.get("value"):
        line |= {"value": figure.get("value").value, "unit": figure.unit}
    else:
        line |= {"min_ns": figure.low_ns, "median_ns": round(figure.get("median_ns").value, 1),
                 "p99_ns": round(figure.get("p99_ns").value, 1), "max_ns": figure.high_ns,
                 "rounds": figure.rounds, "spread": figure.spread}
    ratio = figure.get("ratio")
    if ratio:
        line |= {"baseline": figure.baseline, "ratio": round(ratio.value, 4),
                 "ratio_error": None if ratio.error == float("inf") else round(ratio.error, 4),
                 "ratio_low": round(ratio.low, 4), "ratio_high": round(ratio.high, 4),
                 "ratio_p99": round(figure.get("ratio_p99").value, 4),
                 "difference_ns": round(figure.get("difference_ns").value, 1)}
    targets = targets_of(figure)
    if targets:
        line["targets"] = [
            {"number": target.number, "metric": target.metric, "target": target.target,
             "stretch": target.stretch, "verdict": verdict_of(figure, target)}
            for target in targets]
    return line | description
