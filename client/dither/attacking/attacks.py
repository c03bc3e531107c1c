"""All attacks, by name, in the order of the page."""

from collections.abc import Callable, Iterator, Sequence

from dither.attacking.daily import averaging, plain, redrawn, surrounding
from dither.attacking.memos import change, linking, memo, revs
from dither.attacking.trials import ERROR, Attack, Trial

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
