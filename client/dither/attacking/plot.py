"""Plots as SVG that scales across and not down, so that its words are as large on a phone as on a desk.

Lengths across are percent, lengths down are pixels. Colours are those of the page's style, and no line is told from
another by its colour alone: their marks and dashes differ.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import log

HEIGHT, TOP, FOOT = 268, 8, 46
ROW, ROW_TOP = 46, 4
MOST, COMPUTED = "the most that it may be, computed", "what it should be, computed"
GAP_PERCENT = 5.0
"""Labels of the axis across are at least so far apart."""


@dataclass(frozen=True)
class Measured:
    """A measured share with its interval."""

    x: float
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Series:
    """Measured figures, with the most that they may be and what they should be by formula."""

    label: str
    marks: Sequence[Measured]
    most: Sequence[tuple[float, float]] = ()
    computed: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class Axes:
    """The words and the reach of a plot."""

    about: str
    """Its content in a sentence, for those who do not see it."""
    across: str
    up: str
    ticks: Sequence[float]
    """Candidates for labels of the axis across."""
    logarithmic: bool = False
    least: float = 0.0


def draw_lines(axes: Axes, series: Sequence[Series]) -> str:
    """Return a figure of shares over time."""
    xs = [mark.x for each in series for mark in each.marks]
    x, y = _across(min(xs), max(xs), axes.logarithmic), _down(axes.least)
    lines = "".join(_lines(place, each, x, y) for place, each in enumerate(series))
    dots = "".join(_dots(place, each, x, y) for place, each in enumerate(series))
    return _figure(
        f'<svg role="img" aria-label="{escape(axes.about)}" width="100%" height="{HEIGHT}">\n'
        f"{_grid(axes, x, y, min(xs), max(xs))}"
        f'<svg width="100%" height="{HEIGHT}" viewBox="0 0 100 {HEIGHT}" preserveAspectRatio="none">\n{lines}</svg>\n'
        f"{dots}</svg>\n",
        axes.up,
        _keys(series),
    )


def draw_rows(axes: Axes, series: Sequence[Series]) -> str:
    """Return a figure of single shares, a row each, with their names above."""
    height = ROW_TOP + ROW * len(series) + FOOT - 16
    parts = []
    bottom = height - FOOT + 22
    for share in _shares(0.0):
        at = 100 * share
        for place in range(len(series)):  # beside each mark alone: through the plot they would cross the names
            y = ROW_TOP + ROW * place + 32
            parts.append(f'<line class="grid" x1="{at:.2f}%" x2="{at:.2f}%" y1="{y - 8}" y2="{y + 8}"/>\n')
        parts.append(
            f'<text class="axis" x="{at:.2f}%" y="{bottom + 18}" text-anchor="middle">{_percent(share)}</text>\n'
        )
    for place, each in enumerate(series):
        mark, y = each.marks[-1], ROW_TOP + ROW * place + 32
        parts.append(f'<text class="name" x="0" y="{y - 14}">{escape(each.label)}</text>\n')
        parts.append(
            f'<line class="interval s{place}" x1="{100 * mark.low:.2f}%" x2="{100 * mark.high:.2f}%" '
            f'y1="{y}" y2="{y}"/>\n<circle class="dot s{place}" cx="{100 * mark.share:.2f}%" cy="{y}" r="5"/>\n'
        )
        for _, most in each.most[-1:]:
            parts.append(f'<line class="limit s{place}" x1="{100 * most:.2f}%" x2="{100 * most:.2f}%" '
                         f'y1="{y - 11}" y2="{y + 11}"/>\n')  # fmt: skip
    svg = f'<svg role="img" aria-label="{escape(axes.about)}" width="100%" height="{height}">\n{"".join(parts)}</svg>\n'
    limit = (
        _key('<line class="limit" x1="17" x2="17" y1="0" y2="14"/>', MOST) if any(each.most for each in series) else ""
    )
    return _figure(svg, axes.up, f'<ul class="keys">\n{limit}</ul>\n' if limit else "")


def _figure(svg: str, caption: str, keys: str) -> str:
    return f'<figure>\n<figcaption>{escape(caption)}</figcaption>\n<div class="plot">\n{svg}</div>\n{keys}</figure>'


def _across(low: float, high: float, logarithmic: bool) -> Callable[[float], float]:
    """Return what puts a number across, from 0 to 100."""
    if high <= low:
        return lambda x: 50.0
    if logarithmic:
        return lambda x: 100 * log(x / low) / log(high / low)
    return lambda x: 100 * (x - low) / (high - low)


def _down(least: float) -> Callable[[float], float]:
    """Return what puts a share down, in pixels."""
    return lambda share: TOP + (HEIGHT - TOP - FOOT) * (1 - max(share, least)) / (1 - least)


def _shares(least: float) -> list[float]:
    """Return the shares that have a line: every tenth, or every quarter of a whole axis."""
    return [place / 10 for place in range(round(10 * least), 11)] if least else [place / 4 for place in range(5)]


def _percent(share: float) -> str:
    return f"{100 * share:.0f}\N{NO-BREAK SPACE}%"


def _grid(axes: Axes, x: Callable[[float], float], y: Callable[[float], float], low: float, high: float) -> str:
    parts = []
    for share in _shares(axes.least):
        at = y(share)
        parts.append(f'<line class="grid" x1="0" x2="100%" y1="{at:.1f}" y2="{at:.1f}"/>\n')
        parts.append(f'<text class="axis" x="0" dx="-8" y="{at + 4:.1f}" text-anchor="end">{_percent(share)}</text>\n')
    foot, last = y(axes.least), -GAP_PERCENT
    for tick in axes.ticks:
        if low <= tick <= high and x(tick) - last >= GAP_PERCENT:
            last = x(tick)
            parts.append(f'<line class="grid" x1="{last:.2f}%" x2="{last:.2f}%" y1="{foot}" y2="{foot + 5}"/>\n')
            parts.append(
                f'<text class="axis" x="{last:.2f}%" y="{foot + 19}" text-anchor="middle">{tick:,.0f}</text>\n'
            )
    parts.append(f'<text class="axis" x="100%" y="{foot + 37}" text-anchor="end">{escape(axes.across)}</text>\n')
    return "".join(parts)


def _lines(place: int, each: Series, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    def path(points: Iterator[tuple[float, float]]) -> str:
        return " ".join(f"{x(at):.3f},{y(share):.2f}" for at, share in points)

    band = path((mark.x, mark.high) for mark in each.marks)
    under = path((mark.x, mark.low) for mark in reversed(each.marks))
    parts = [f'<polygon class="band s{place}" points="{band} {under}"/>\n']
    if each.most:
        parts.append(f'<polyline class="most s{place}" points="{path(iter(each.most))}"/>\n')
    if each.computed:
        parts.append(f'<polyline class="computed s{place}" points="{path(iter(each.computed))}"/>\n')
    parts.append(f'<polyline class="line s{place}" points="{path((m.x, m.share) for m in each.marks)}"/>\n')
    return "".join(parts)


def _dots(place: int, each: Series, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    return "".join(_dot(place, f"{x(mark.x):.2f}%", y(mark.share)) for mark in each.marks)


def _dot(place: int, x: str, y: float) -> str:
    """Return a mark whose form is the series' own: filled or hollow, round or square."""
    kind = f'class="dot s{place}{" hollow" if place % 2 else ""}"'
    if place < 2:
        return f'<circle {kind} cx="{x}" cy="{y:.1f}" r="4"/>\n'
    return f'<svg x="{x}" y="{y:.1f}" overflow="visible"><rect {kind} x="-3.5" y="-3.5" width="7" height="7"/></svg>\n'


def _keys(series: Sequence[Series]) -> str:
    """Return what marks and dashes mean."""
    items = [
        _key(f'<line class="line s{place}" x1="0" x2="34" y1="7" y2="7"/>{_dot(place, "17", 7)}', each.label)
        for place, each in enumerate(series)
    ]
    if any(each.most for each in series):
        items.append(_key('<line class="most" x1="0" x2="34" y1="7" y2="7"/>', MOST))
    if any(each.computed for each in series):
        items.append(_key('<line class="computed" x1="0" x2="34" y1="7" y2="7"/>', COMPUTED))
    return f'<ul class="keys">\n{"".join(items)}</ul>\n'


def _key(sample: str, label: str) -> str:
    return f'<li><svg aria-hidden="true" width="34" height="14">{sample}</svg>{escape(label)}</li>\n'


STYLE = """\
:root { --s0: #1f5f99; --s1: #b3441e; --s2: #227a52; --s3: #7d4796; }
@media (prefers-color-scheme: dark) {
  :root { --s0: #74b3ec; --s1: #f2976b; --s2: #6cc79a; --s3: #cb9be3; }
}
.s0 { --ink: var(--s0); } .s1 { --ink: var(--s1); } .s2 { --ink: var(--s2); } .s3 { --ink: var(--s3); }
figure { margin: 1.5rem 0 1rem; }
figcaption { color: var(--quiet); font-size: .875rem; margin-bottom: .5rem; }
.plot { padding: 0 1.25rem 0 3rem; }
figure svg { display: block; overflow: visible; }
.grid { stroke: var(--line); }
.axis { fill: var(--quiet); font-size: 12px; font-variant-numeric: tabular-nums; }
.name { fill: var(--text); font-size: 14px; }
.line, .most, .computed { fill: none; stroke: var(--ink, var(--quiet)); vector-effect: non-scaling-stroke; }
.line { stroke-width: 2; }
.most { stroke-width: 1.5; stroke-dasharray: 7 4; }
.limit { stroke: var(--ink, var(--quiet)); stroke-width: 2; }
.computed { stroke-width: 2; stroke-dasharray: 1 4; stroke-linecap: round; }
.band { fill: var(--ink); fill-opacity: .1; }
.interval { stroke: var(--ink); stroke-width: 3; stroke-opacity: .45; }
.dot { fill: var(--ink); stroke: var(--ink); stroke-width: 1.5; }
.hollow { fill: var(--page); }
.keys { list-style: none; columns: auto; padding: 0; margin: .75rem 0 0; font-size: .875rem; }
.keys li { display: flex; gap: .6rem; align-items: center; margin: .15rem 0; }
.keys svg { flex: none; }
@media (forced-colors: active) { .line, .most, .computed, .dot, .interval { stroke: CanvasText; } }
"""
