"""Attacks on a terminal, and as one document."""

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from dither.attacking.attacks import broken
from dither.attacking.trials import ERROR, Attack, Score, Trial

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
