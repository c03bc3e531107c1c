"""The claims of a metric about one report, by the path that answers take on a device: read, randomized, encoded.

Inputs are answers of an app: those that are asked for, what is none of them, and where presence is hidden nothing.
"""

import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from dither.auditing.claims import Categories, Claim, Input, seen
from dither.auditing.exact import Paths, law_in_stages, law_of
from dither.auditing.laws import Law, Outcome
from dither_shared.exact import exp_of_micro, to_micro
from dither_shared.mechanisms import Mechanism
from dither_shared.registry import Metric
from dither_shared.rng import Rng
from dither_shared.shapes import Bits, Subsets

LABEL_MAX = 40


class Nothing:
    """The answer of a device with nothing to report."""


NOTHING = Nothing()


class Unreadable:
    """An answer whose own methods raise."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("this answer cannot be compared")

    def __hash__(self) -> int:
        raise RuntimeError("this answer has no hash")


STRANGE = (
    Input("None", None),
    Input("an unlisted text", "\N{REPLACEMENT CHARACTER} nobody lists this"),
    Input("a huge number", 10**40),
    Input("an answer that raises", Unreadable()),
)


def inputs_of(metric: Metric) -> tuple[Input, ...]:
    """Return answers to try: first two that lie far apart, then those that are not asked for, then all others."""
    examples = metric.kind.examples(metric.asked)
    own = [Input(_label(answer, place), answer) for place, answer in enumerate(examples)]
    nothing = (Input("nothing", NOTHING),) if metric.hidden else ()
    return (*own[:2], *nothing, *STRANGE, *own[2:])


def _label(answer: object, place: int) -> str:
    """Return a name that no other input has."""
    text = repr(answer) if isinstance(answer, str) else str(answer)
    return text if len(text) <= LABEL_MAX else f"{text[: LABEL_MAX - 8]}... ({place})"


def read(metric: Metric, answer: object) -> Any:
    """Return an answer as a device reads it."""
    return metric.nothing if answer is NOTHING else metric.read(answer)


def stated(metric: Metric) -> Fraction:
    """Return e^epsilon of one report, by the plan's integers; no more than what the registry asks for."""
    return min(metric.cells.exp_epsilon, exp_of_micro(to_micro(metric.epsilon)))


def claims_of(metric: Metric) -> Iterator[Claim]:
    """Yield the claims about a report of each kind of cell, and about the permanent part of a memoized answer."""
    cells = metric.cells
    met: list[Mechanism] = []
    first = 0
    for part in cells.parts:
        mechanism = part.mechanism
        if mechanism not in met:
            met.append(mechanism)
            what = f", cell {first}" if len(cells.parts) > 1 else ""
            inputs = inputs_of(metric)
            yield Claim(
                metric.name,
                f"report{what}",
                stated(metric),
                inputs,
                report_of(metric, first),
                mechanism.exp_epsilon,
                law_of_report(metric, first),
                see=_seen_by(mechanism),
            )
            if metric.memoized:
                yield Claim(
                    metric.name,
                    f"permanent part{what}",
                    max(each.mechanism.first_stage.exp_epsilon for each in cells.parts),
                    inputs,
                    permanent(metric, first),
                    mechanism.first_stage.exp_epsilon,
                    law_of_permanent(metric, first),
                    see=_seen_by(mechanism),
                )
        first += part.cells


def permanent(metric: Metric, cell: int) -> Callable[[Any, Rng], Any]:
    """Return what draws the first stage of an answer: of fresh noise all of it."""
    first_stage = metric.cells.mechanism_of(cell).first_stage
    # As an integer: a device keeps classes so.
    return lambda answer, rng: first_stage.randomize(int(metric.class_of(read(metric, answer), cell, rng)), rng)


def law_of_permanent(metric: Metric, cell: int) -> Callable[[Any, Paths], Law]:
    """Return what tells the exact law of that."""
    draw = permanent(metric, cell)
    return _once(metric, lambda answer, paths: law_of(lambda rng: draw(answer, rng), paths))


def law_of_report(metric: Metric, cell: int) -> Callable[[Any, Paths], Law]:
    """Return what tells the exact law of a report of a cell."""
    draw, mechanism = permanent(metric, cell), metric.cells.mechanism_of(cell)
    return _once(metric, lambda answer, paths: law_in_stages(lambda rng: draw(answer, rng), mechanism.repeat, paths))


def _once(metric: Metric, tell: Callable[[Any, Paths], Law]) -> Callable[[Any, Paths], Law]:
    """Return what tells the law of an answer, once of all that are read as the same: no coin falls before."""
    laws: dict[Any, Law] = {}

    def law(answer: Any, paths: Paths) -> Law:
        try:
            known = laws.get(was_read := read(metric, answer))
        except Exception:  # an outcome like any other, which the law has; or a reading that cannot be looked up
            return tell(answer, paths)
        if known is None:
            known = laws[was_read] = tell(answer, paths)
        return known

    return law


def report_of(metric: Metric, cell: int) -> Callable[[Any, Rng], Any]:
    """Return what draws a report of a cell, on the wire and back; of a memoized answer with a memo of its own."""
    first, mechanism = permanent(metric, cell), metric.cells.mechanism_of(cell)
    shape = mechanism.shape

    def draw(answer: object, rng: Rng) -> Outcome:
        report = mechanism.repeat(first(answer, rng), rng)
        return shape.from_wire(json.loads(json.dumps(shape.to_wire(report))))

    return draw


def _seen_by(mechanism: Mechanism) -> Callable[[Outcome], Categories]:
    """Return how reports are seen: symbols as they are; of longer ones each bit or member, and how many there are."""
    shape = mechanism.shape
    if isinstance(shape, Subsets):
        return lambda report: _members(report, shape.size, shape.members)
    return (lambda report: _members(report, shape.size, _ones)) if isinstance(shape, Bits) else seen


def _ones(report: int) -> list[int]:
    return [place for place in range(report.bit_length()) if report >> place & 1]


def _members(report: Outcome, size: int, members: Callable[[int], list[int]]) -> Categories:
    if not isinstance(report, int):  # it raised
        yield from seen(report)
        return
    yield "outcome", report if size <= WHOLE_BITS_MAX else 0
    held = set(members(report))
    yield "how many", len(held)
    for place in range(size):
        yield place, place in held


WHOLE_BITS_MAX = 16
