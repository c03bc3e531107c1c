"""The page of attacks: a plot and a table each, and what is warned of, measured, done about it and left."""

from collections.abc import Iterator, Sequence

from dither.attacking.plot import STYLE, Axes, Measured, Series, draw_lines, draw_rows
from dither.attacking.tables import HEAD, figures, most, verdict
from dither.attacking.trials import Attack, Trial, Way
from dither.writing.page import Block, Code, Drawing, Fact, FactList, Heading, Page, Paragraph, Quoted, Text, TextTable

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
