"""All attacks, by name in the order of the page, and how they are shown."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import log
from textwrap import fill
from typing import Any

from dither.attacking.daily import averaging, plain, redrawn, surrounding
from dither.attacking.memos import change, linking, memo, revs
from dither.attacking.trials import ERROR, Attack, Score, Trial, Way
from dither.writing import Block, Code, Drawing, Fact, FactList, Heading, Page, Paragraph, Quoted, Text, TextTable

ATTACKS: dict[str, Callable[[Trial], Attack | None]] = {
    "plain": plain,
    "redrawn": redrawn,
    "averaging": averaging,
    "memo": memo,
    "change": change,
    "revs": revs,
    "linking": linking,
    "surrounding": surrounding,
}


def attack(trial: Trial, names: Sequence[str], progress: Callable[[str], None] = lambda doing: None) -> list[Attack]:
    """Carry out the named attacks, in order; those that the trial has no metric for are left out."""
    found = []
    for place, name in enumerate(names, 1):
        progress(f"{place} of {len(names)}: {name}")
        done = ATTACKS[name](trial)
        if done:
            found.append(done)
    return found


def broken(attacks: Sequence[Attack]) -> Iterator[tuple[Attack, str]]:
    """Yield each attack with the name of a line that is proved to be above its bound. All verdicts share ERROR."""
    tests = sum(point.bound is not None for each in attacks for line in each.lines for point in line.points)
    for each in attacks:
        for line in each.broken(ERROR / max(1, tests)):
            yield each, line.name


# Attacks on a terminal, and as one document.

WIDTH = 110
HEAD = ("attack", "what the operator has", "after", "right", "95 % interval", "at most")
LEGEND = f"""\
assumed    whoever attacks keeps all reports of a device and knows which are its own, knows the code, and knows that
           its answer is one of two, 1 : 1 before
right      of the devices, measured: guessed 1 : 1 with the likeliest answer, or told, or joined, as the attack says
at most    by the formula of the privacy loss, or R; - where nothing is promised
verdict    attacks on sound mechanisms are above a bound in one of {1 / ERROR:,.0f} runs"""


def table(attacks: Sequence[Attack]) -> str:
    """Return the table, what was measured in words, and what the columns mean."""
    rows = [HEAD, *(row for each in attacks for row in rows_of(each))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    for each in attacks:
        parts = (each.measured, f"Warned of by {each.source}.", each.answer, f"Not prevented: {each.left}")
        lines += ["", f"{each.name}: {each.title}"]
        lines += [fill(part, WIDTH, initial_indent="  ", subsequent_indent="  ") for part in parts]
    return "\n".join([*lines, "", LEGEND, "", verdict(attacks)])


def rows_of(attack: Attack) -> list[tuple[str, ...]]:
    """Return a row for each line of an attack: how it ended."""
    unit = attack.across.split()[0]
    return [(attack.name, line.name, f"{line.last.x:,.0f} {unit}", *figures(line.last)) for line in attack.lines]


def figures(point: Score) -> tuple[str, str, str]:
    """Return a share, its interval and its bound in words."""
    low, high = point.interval
    return f"{100 * point.share:.1f} %", f"{100 * low:.1f} to {100 * high:.1f} %", most(point)


def most(point: Score) -> str:
    """Return a bound in words: never "100 %" for what is less."""
    if point.bound is None:
        return "-"
    return "above 99 %" if point.bound > 0.99 else f"{100 * point.bound:.1f} %"


def verdict(attacks: Sequence[Attack]) -> str:
    """Return the outcome in a sentence."""
    found = [f"{each.name}, {line}" for each, line in broken(attacks)]
    if found:
        return f"above what is promised: {'; '.join(found)}"
    return "no attack did better than its formula allows"


def document(attacks: Sequence[Attack], trial: Trial) -> dict[str, Any]:
    """Return all of it as one JSON document."""
    return {
        "app": trial.registry.app,
        "devices": trial.devices,
        "days": trial.days,
        "error": ERROR,
        "holds": not any(broken(attacks)),
        "attacks": [_document(each) for each in attacks],
    }


def _document(attack: Attack) -> dict[str, Any]:
    words = ("name", "title", "warning", "source", "measured", "answer", "left", "across", "up")
    return {
        **{word: getattr(attack, word) for word in words},
        "lines": [
            {
                "name": line.name,
                "by": line.by,
                "points": [_point(point) for point in line.points],
                "computed": [{"x": x, "share": share} for x, share in line.computed],
            }
            for line in attack.lines
        ],
    }


def _point(point: Score) -> dict[str, Any]:
    low, high = point.interval
    return {
        "x": point.x,
        "right": point.right,
        "devices": point.n,
        "share": point.share,
        "lower": low,
        "upper": high,
        "at_most": point.bound,
    }


# Plots as SVG that scales across and not down, so that its words are as large on a phone as on a desk.
#
# Lengths across are percent, lengths down are pixels. Colours are those of the page's style, and no line is told from
# another by its colour alone: their marks and dashes differ.


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


# The page of attacks: a plot and a table each, and what is warned of, measured, done about it and left.

TICKS = {
    "days": (1, 3, 7, 14, 30, 90, 180, 365, 730),
    "months": tuple(range(1, 25)),
}
OTHER_TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500)


def page(attacks: Sequence[Attack], trial: Trial) -> Page:
    """Return a page to publish."""
    rows = tuple(_short(line) for each in attacks for line in each.lines)
    blocks: list[Block] = [TextTable((HEAD[1], *HEAD[3:]), rows, "all attacks")]
    for each in attacks:
        blocks += _of(each)
    blocks += [Heading(2, ("How to read this",)), *(Paragraph(_text(words)) for words in _reading(trial))]
    lead = (
        f"An operator keeps every report of simulated devices and guesses: {trial.devices:,} devices that run the "
        f"code of the SDK for {trial.days:,} days, with the system's randomness. In short, {verdict(attacks)}."
    )
    return Page(("Attacks on ", Quoted(trial.registry.app)), (lead,), tuple(blocks))


def _short(line: Way) -> tuple[str, ...]:
    """Return how a line ended, in few characters: a phone has no more."""
    low, high = (round(100 * end) for end in line.last.interval)
    at_most = most(line.last).replace("above", "\N{GREATER-THAN SIGN}")
    return line.name, f"{100 * line.last.share:.0f} %", f"{low} to {high}", at_most


def _of(attack: Attack) -> Iterator[Block]:
    yield Heading(2, (attack.title,))
    yield Paragraph(_text(attack.warning))
    yield Drawing(_drawn(attack), STYLE)
    yield FactList(
        (
            Fact("Measured", _text(attack.measured)),
            Fact("Answer of dither", _text(attack.answer)),
            Fact("Not prevented", _text(attack.left)),
            Fact("Warned of by", _text(f"{attack.source}.")),
        )
    )
    for line in attack.lines:
        yield _numbers(attack, line)


def _numbers(attack: Attack, line: Way) -> TextTable:
    """Return all numbers of a line: those that were measured, and those that are computed."""
    measured = {point.x: figures(point) for point in line.points}
    computed = {x: f"{100 * share:.1f} %" for x, share in line.computed}
    head = (attack.across, *HEAD[3:], *(("computed",) if computed else ()))
    rows = []
    for x in sorted({*measured, *computed}):
        row = (f"{x:,.0f}", *measured.get(x, ("", "", "")))
        rows.append((*row, computed.get(x, "")) if computed else row)
    return TextTable(head, tuple(rows), line.name, f"All numbers: {line.name} ({line.by})")


def _drawn(attack: Attack) -> str:
    ticks = TICKS.get(attack.across, OTHER_TICKS)
    about = f"{attack.title}. {attack.measured}"
    axes = Axes(about, attack.across, attack.up.capitalize(), ticks, attack.logarithmic, attack.least)
    series = [_series(line) for line in attack.lines]
    return (draw_lines if any(len(each.marks) > 1 for each in series) else draw_rows)(axes, series)


def _series(line: Way) -> Series:
    marks = tuple(Measured(point.x, point.share, *point.interval) for point in line.points)
    most = tuple((point.x, point.bound) for point in line.points if point.bound is not None)
    # The bound of linking is what should come out, too: one line says both.
    return Series(line.name, marks, () if line.by_formula else most, line.computed)


def _text(words: str) -> Text:
    """Return a text whose parts between backticks are code."""
    return tuple(Code(part) if place % 2 else part for place, part in enumerate(words.split("`")) if part)


def _reading(trial: Trial) -> Iterator[str]:
    yield (
        "Each simulated device has one of two answers, by a coin. The attacker knows the code, its integers and both "
        "answers, believes 1 : 1, and names the answer under which the reports are likelier: nobody can do better. A "
        "share of one half is what a coin does."
    )
    yield (
        "Whole devices run from `record` to the bytes of an upload, in memory, with memo, budget and schedule. The "
        "randomizer alone shows what would come of reports that dither refuses to send."
    )
    yield (
        "Bands are 95 % intervals of what was measured (Clopper and Pearson). Computed numbers come from the integers "
        "that devices compare, and says so. The verdict is wrong in one of a million runs of sound mechanisms."
    )
