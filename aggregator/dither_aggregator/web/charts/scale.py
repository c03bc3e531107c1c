"""Words and lines of every chart: ticks of an axis, shares as percent, labels that fit."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, floor, log10

LABEL_CHARACTERS = 30
TICKS = 4


@dataclass(frozen=True)
class Tick:
    """A labelled line of the axis."""

    x: float
    label: str
    zero: bool


def ticks(
    low: float, high: float, step: float, x: Callable[[float], float], label: Callable[[float], str] | None = None
) -> tuple[Tick, ...]:
    """Return a tick at each multiple of a step; labels are percent unless told otherwise."""
    return tuple(
        Tick(x(place * step), label(place * step) if label else percent(place * step, _decimals(step)), place == 0)
        for place in range(ceil(low / step), floor(high / step) + 1)
    )


def percent(share: float, decimals: int) -> str:
    """Return a share as percent, with a real minus sign, no minus zero, and a space that does not break."""
    number = f"{round(100 * share, decimals) + 0.0:.{decimals}f}"
    return f"{number}\N{NO-BREAK SPACE}%".replace("-", "\N{MINUS SIGN}")


def precise(share: float, std_error: float) -> str:
    """Return a share as percent with the digits that its standard error leaves it."""
    points = 100 * std_error
    return percent(share, 0 if points >= 5 else 1 if points >= 0.5 else 2 if points >= 0.05 else 3)


def nice_step(step: float) -> float:
    """Return the next larger of 1, 2, 5 times a power of ten."""
    power = 10.0 ** floor(log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step)


def _decimals(step: float) -> int:
    """Return the decimals that a percentage needs to show multiples of `step`."""
    return max(0, -floor(log10(step) + 1e-9) - 2)


def shorten(text: str) -> str:
    """Return a label that a phone's width holds."""
    return text if len(text) <= LABEL_CHARACTERS else text[: LABEL_CHARACTERS - 1] + "…"
