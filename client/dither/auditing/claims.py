"""Claims: no outcome tells two inputs apart by more than a factor; their exact loss; those of a metric's report."""

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import permutations
from math import frexp
from typing import Any

from dither.auditing.coins import Undecidable
from dither.auditing.laws import (
    Law,
    Likelier,
    Outcome,
    Paths,
    TableLaw,
    TooMany,
    check_countable,
    law_in_stages,
    law_of,
)
from dither_shared.exact import exp_of_micro, to_micro
from dither_shared.frozen import frozen
from dither_shared.mechanisms import Mechanism
from dither_shared.registry import Metric
from dither_shared.rng import Rng
from dither_shared.shapes import Bits, Subsets

# A claim: that no outcome tells any two inputs apart by more than a declared factor.

GRAINS = 1_075
"""Halvings until any float is whole."""

Categories = Iterable[tuple[Hashable, Hashable]]
"""An outcome seen in several ways: each way with what is seen."""


def seen(outcome: Any) -> Categories:
    """See an outcome as it is, by its type and length, and of a float the last place that it uses.

    Noise of floats betrays its input by the last place: sums lie on other grids than what is added.
    Raises ConfigurationError for one that cannot be counted, which only randomizers of others return.
    """
    check_countable(outcome)
    yield "outcome", outcome
    yield "type", type(outcome).__name__
    if isinstance(outcome, bytes | str | tuple | frozenset):
        yield "length", len(outcome)
    if isinstance(outcome, float):
        mantissa, exponent = frexp(outcome)
        yield "size", (outcome < 0, exponent)
        yield "last place", _last_place(mantissa, exponent)


def _last_place(mantissa: float, exponent: int) -> int:
    """Return the largest power of two that divides a float."""
    whole = int(mantissa * 2**53) if -1 < mantissa < 1 else 0
    return exponent - 53 + ((whole & -whole).bit_length() - 1) if whole else GRAINS


@frozen
class Input:
    """Something that an outcome is drawn of, with a name for people."""

    label: str
    value: Any


@frozen
class Foreseen:
    """An event that the exact laws give, for two inputs."""

    one: Input
    other: Input
    event: Likelier
    shows_nothing: bool = False
    """Whether the event is of what no answer may show in at all."""


@frozen
class Claim:
    """Outcomes tell any two of these inputs apart by `exp_epsilon` at most."""

    subject: str
    part: str
    exp_epsilon: Fraction
    inputs: tuple[Input, ...]
    draw: Callable[[Any, Rng], Outcome]
    exp_own: Fraction | None = None
    """The loss that the part's own integers declare, at most `exp_epsilon`: the exact law has to have just that."""
    law: Callable[[Any, Paths], Law] | None = None
    """Returns the exact law of an input; None where there is none to be had."""
    no_law: str = ""
    """Why there is none, where people should know."""
    foresee: Callable[[int, float], Foreseen | None] | None = None
    """Returns the event to test with so many samples at an error; None: the best one of the laws."""
    see: Callable[[Outcome], Categories] = seen
    shows_nothing: tuple[Hashable, ...] = ()
    """The ways of seeing an outcome that are the same under all inputs, at a loss of 0."""
    of_devices: bool = False
    """Whether each outcome takes a whole device: of these fewer are drawn."""


@frozen
class Repetition:
    """Something that tells of a device, and holds of one with this probability at most.

    Such as that two of its reports are the same: more would be no fresh noise.
    """

    subject: str
    part: str
    probability: Fraction
    draw: Callable[[Rng], int]
    """Returns of how many devices it holds."""
    at_once: int = 1
    """How many devices are drawn at once, and paired with each other."""
    worse: str = "noise comes again"
    """The verdict where it holds of more."""


@frozen
class Never:
    """Something that no life of a device shows. It is no matter of chance: one life that does is a finding."""

    subject: str
    part: str
    look: Callable[[Rng], str]
    """Returns what a new life shows, in words; "" for nothing."""
    takes: int
    """How many usual devices a life takes as long as."""
    least: int = 0
    """So many lives are looked at even where no devices are asked for."""


# The exact privacy loss of a claim: the laws of its inputs, one against another.

PAIRED = 24
"""Inputs that are held against each other one by one, where there is a choice: the first ones."""


@frozen
class Exactly:
    """The verdict of the laws of some inputs."""

    ratio: Fraction | None
    """The largest ratio of an outcome's probabilities; None where it is infinite."""
    pairs: tuple[tuple[Input, Input], ...]
    """Ordered pairs of inputs to choose an event from, all with that ratio."""
    laws: Mapping[str, Law]


def exactly(claim: Claim, paths: Paths | None = None) -> Exactly | str:
    """Return what the laws of as many inputs as the paths suffice for say, of two or more; or why there is none.

    Inputs with the same law as one before add nothing, and are counted all the same.
    """
    if claim.law is None:
        return claim.no_law
    paths = paths or Paths()
    laws: dict[str, Law] = {}
    inputs: list[Input] = []
    for each in claim.inputs:
        try:
            laws[each.label] = claim.law(each.value, paths)
        except (TooMany, Undecidable) as error:
            if len(laws) < 2:
                return str(error)
            break
        inputs.append(each)
    tables = [law for law in laws.values() if isinstance(law, TableLaw)]
    if len(tables) == len(laws) > PAIRED:
        return _by_outcome(inputs, laws)
    return _by_pair(inputs[:PAIRED], laws)


def _by_pair(inputs: Sequence[Input], laws: Mapping[str, Law]) -> Exactly:
    ratios: dict[tuple[int, int], Fraction | None] = {}  # by identity: answers that are read alike share their law

    def ratio(law: Law, other: Law) -> Fraction | None:
        pair = id(law), id(other)
        if pair not in ratios:
            ratios[pair] = law.ratio(other)
        return ratios[pair]

    found = [((one, other), ratio(laws[one.label], laws[other.label])) for one, other in permutations(inputs, 2)]
    finite = [ratio for _, ratio in found if ratio is not None]
    worst = max(finite) if len(finite) == len(found) else None
    return Exactly(worst, tuple(pair for pair, ratio in found if ratio == worst), laws)


def _by_outcome(inputs: Sequence[Input], laws: Mapping[str, Law]) -> Exactly:
    """Compare the greatest and the least probability of each outcome: many inputs make very many pairs."""
    tables = [(each, law.probabilities) for each in inputs if isinstance(law := laws[each.label], TableLaw)]
    outcomes: dict[Outcome, None] = {outcome: None for _, table in tables for outcome in table}
    worst, pair = Fraction(1), (inputs[0], inputs[1])
    for outcome in outcomes:
        least = min(tables, key=lambda each: each[1].get(outcome, 0))
        most = max(tables, key=lambda each: each[1].get(outcome, 0))
        if outcome not in least[1]:
            return Exactly(None, ((most[0], least[0]),), laws)
        if (ratio := most[1][outcome] / least[1][outcome]) > worst:
            worst, pair = ratio, (most[0], least[0])
    near = _by_pair(inputs[:PAIRED], laws)
    return Exactly(worst, near.pairs if near.ratio == worst else (pair,), laws)


# The claims of a metric about one report, by the path that answers take on a device: read, randomized, encoded.
#
# Inputs are answers of an app: those that are asked for, what is none of them, and where presence is hidden nothing.

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
