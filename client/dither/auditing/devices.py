"""The claims of a metric about whole devices: each draw of their coins, and all that leaves one in some periods."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from itertools import combinations
from math import prod
from typing import Any

from dither.auditing.claims import (
    NOTHING,
    STRANGE,
    Categories,
    Claim,
    Foreseen,
    Input,
    Never,
    Repetition,
    inputs_of,
    law_of_permanent,
    law_of_report,
    read,
    stated,
)
from dither.auditing.coins import PRIMITIVES, Undecidable, independent, law_of_coin, law_of_coins, law_of_uniform
from dither.auditing.laws import BitsLaw, Likelier, Paths, TableLaw, TooMany, law_of
from dither.auditing.memos import Telling, sent_as_one, telling
from dither.auditing.simulated import DAYS, Reported, Simulated, companion, cut_down, groups_of, life_claim, reports_of
from dither.device import BuiltUpload
from dither_shared.frozen import frozen, replaced
from dither_shared.mechanisms import Cells
from dither_shared.registry import Metric, Registry
from dither_shared.rng import COIN_BITS, SCALE, Rng

# Draws: each decision of a device's coins, from `record` to the bytes of an upload, held against the law's code.
#
# A device lives for 90 days or more: it sleeps over midnights, starts again, is killed, is refused once. Each time that
# it is asked, all that any `Rng` of the SDK decides is noted, with the integers that it was asked for and the random
# bits that it took. The code whose law the audit tells is then run on these decisions. It has to ask for the same
# integers in the same order, and make of them the report that left. The law of each decision, over all random bits, has
# to be that of its integers: a threshold that is off by one is found. A memo has to be drawn from the same bits
# whenever its answer comes, and nothing else may ever take bits that were taken before. None of this is a matter of
# chance.


LIVES, LIVES_TAKE = 4, 100
ANSWERS_MAX = 8
TIMES = 2
"""Times that each answer comes in a life, or more."""
BITS_MIN = 64
"""Fewer random bits may be the same by chance."""

OFF = "a coin is not that of its threshold"
BOUND = "coins depend on each other"
OTHERWISE = "a device draws otherwise than its law"
ANEW = "a memo is drawn anew"
AGAIN = "noise comes again"
SHARED = "memos share their coins"
FEW = "a device sends less than it draws"


@frozen
class Draw:
    """One decision: what it was asked for, what came, and the random bits that it took."""

    name: str
    integers: tuple[int, ...]
    outcome: int
    bits: tuple[tuple[int, int], ...]
    """Numbers of bits, each with what they were."""


@contextmanager
def traced() -> Iterator[list[Draw]]:
    """Note all that any `Rng` of this process decides: a device has its own, and makes one for each memo."""
    draws: list[Draw] = []
    own = {name: vars(Rng)[name] for name in PRIMITIVES}

    def noting(name: str) -> Any:
        def decide(self: Rng, *integers: int) -> Any:
            bits: list[tuple[int, int]] = []

            def randbits(count: int) -> int:
                drawn = self.randbits(count)
                bits.append((count, drawn))
                return drawn

            outcome = own[name](Rng(randbits, self.coin_bits), *integers)
            draws.append(Draw(name, integers, outcome, tuple(bits)))
            return outcome

        return decide

    try:
        for name in PRIMITIVES:
            setattr(Rng, name, noting(name))
        yield draws
    finally:
        for name, decide in own.items():
            setattr(Rng, name, decide)


class _Otherwise(Exception):
    """The law's code asks for something else than the device asked for."""


class _Replaying(Rng):
    """Decides as a device's coins did."""

    draws: Sequence[Draw]

    def __init__(self, draws: Sequence[Draw]) -> None:
        self.__dict__.update(randbits=self._no_bits, coin_bits=COIN_BITS, draws=draws, taken=[0])

    taken: list[int]

    @staticmethod
    def _no_bits(count: int) -> int:
        raise _Otherwise

    def _next(self, name: str, *integers: int) -> Any:
        place = self.taken[0]
        if place == len(self.draws) or (self.draws[place].name, self.draws[place].integers) != (name, integers):
            raise _Otherwise
        self.taken[0] += 1
        return self.draws[place].outcome

    def coin(self, threshold: int) -> Any:
        """Return what came."""
        return self._next("coin", threshold)

    def coins(self, threshold: int, count: int) -> Any:
        """Return what came."""
        return self._next("coins", threshold, count)

    def uniform(self, size: int) -> Any:
        """Return what came."""
        return self._next("uniform", size)


@frozen
class Made:
    """The report that the law's code makes of a device's draws, the class that it saw, and its own draws."""

    report: int
    key: int
    memo: tuple[Draw, ...]
    """The draws of the memo, if there is one."""
    fresh: tuple[Draw, ...]


def made(metric: Metric, answer: Any, cell: int, draws: Sequence[Draw]) -> Made | None:
    """Return what the law's code makes of draws; None if it asks for others, or does not take all of them.

    The cell that a report draws may have been drawn before its answer came.
    """
    cells = metric.cells
    mechanism = cells.mechanism_of(cell)
    for draws_cell in (False, True):
        rng = _Replaying(draws)
        try:
            if draws_cell and cells.draw(rng, cell // cells.each) != cell:
                continue
            # As an integer: a device keeps classes so.
            key = int(metric.class_of(read(metric, answer), cell, rng))
            first = rng.taken[0]
            memo = mechanism.first_stage.randomize(key, rng)
            second = rng.taken[0]
            report = mechanism.repeat(memo, rng)
        except _Otherwise:
            continue
        if rng.taken[0] == len(draws):
            lasting = slice(first, second) if metric.memoized else slice(0)
            return Made(report, key, tuple(draws[lasting]), tuple(draws[second if metric.memoized else 0 :]))
    return None


_Asked = tuple[int | None, Any, list[Draw]]
"""The place of an answer, the answer, and what was drawn when it was recorded."""


class _Taken:
    """The random bits that some devices have taken, and what for."""

    def __init__(self) -> None:
        self._memos: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._owners: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def fault(self, owner: tuple[Any, ...], answer: int, found: Made) -> str:
        """Take note of a report's bits; return what is wrong with them, or ""."""
        memo = tuple(draw.bits for draw in found.memo)
        if found.memo and self._memos.setdefault((*owner, answer), (found.key, memo)) != (found.key, memo):
            return ANEW
        if self._is_anothers(memo, (*owner, found.key)):
            return SHARED
        fresh = (*owner, found.key, len(self._owners))  # nobody else's
        return AGAIN if any(self._is_anothers((draw.bits,), fresh) for draw in found.fresh) else ""

    def _is_anothers(self, bits: tuple[Any, ...], owner: tuple[Any, ...]) -> bool:
        if sum(count for draw in bits for count, _ in draw) < BITS_MIN:
            return False
        return self._owners.setdefault(bits, owner) != owner


def fault_of(draw: Draw) -> str:
    """Return what is wrong with the code that made a decision, by its law over all random bits, or ""."""
    threshold = draw.integers[0]
    try:
        if draw.name == "coin":
            right = law_of_coin(Rng.coin, threshold) == Fraction(min(max(threshold, 0), SCALE), SCALE)
        elif draw.name == "coins":
            right = law_of_coins(Rng.coins, *draw.integers) == threshold
        else:
            right = law_of_uniform(Rng.uniform, threshold) is None
        if not right:
            return OFF
        return "" if independent(Rng.coin, Rng.uniform) else BOUND
    except Undecidable as error:
        return str(error)


def draws_claim(registry: Registry, metric: Metric) -> Never:
    """Return the claim that all draws of a device are those of its law."""
    asked = {
        each.name: [one.value for one in inputs_of(each) if one.value is not NOTHING][:ANSWERS_MAX]
        for each in (metric, companion(registry, metric))
        if each
    }
    periods = TIMES * max(map(len, asked.values())) + 1  # after the first one
    metrics = [replaced(registry.metrics[name], charges=periods) for name in asked]
    cut = cut_down(registry, metrics)
    longest = max(each.period_days for each in metrics)
    days = -(-DAYS // (periods * longest)) * longest

    def look(rng: Rng) -> str:
        bits = _Taken()
        return _lived(cut, asked, periods, days, rng, bits) or _lived(cut, asked, periods, days, rng, bits)

    return Never(metric.name, "device, draws", look, LIVES_TAKE, LIVES)


def _lived(registry: Registry, asked: dict[str, list[Any]], periods: int, days: int, rng: Rng, bits: _Taken) -> str:
    """Let a device live; return what is wrong with its draws, or ""."""
    waiting: dict[str, list[_Asked]] = {name: [] for name in asked}
    left = dict.fromkeys(asked, 0)
    device = rng.randbits(BITS_MIN)
    with Simulated(registry, rng) as simulated:
        for period in range(periods):
            for name, answers in asked.items():
                place = period % len(answers)
                with traced() as draws:
                    simulated.device.record(registry.metrics[name], answers[place])
                # The first draws are those of the device, too: its cohort, of all its metrics.
                waiting[name].append((place if period else None, answers[place], draws))
            for upload in simulated.send():
                for name in asked:
                    metric = registry.metrics[name]
                    for reported in reports_of(upload, metric):
                        left[name] += 1
                        if fault := _fault(metric, reported, waiting[name], bits, device):
                            return fault
            _pass(simulated, period, days)
    return "" if all(2 * count >= periods - 1 for count in left.values()) else FEW


def _fault(metric: Metric, reported: Reported, waiting: list[_Asked], bits: _Taken, device: int) -> str:
    """Return what is wrong with a report. It is of the first draws that it can be of: one before may have been lost."""
    while waiting:
        place, answer, draws = waiting.pop(0)
        for draw in draws:
            if fault := fault_of(draw):
                return fault
        if place is None:
            return ""
        found = made(metric, answer, reported.cell, draws)
        if found and found.report == reported.report:
            return bits.fault((device, metric.name), place, found)
    return OTHERWISE


def _pass(simulated: Simulated, period: int, days: int) -> None:
    """Let time pass until the next period: with a look at midnight, or asleep until the app starts again."""
    what = period % 4
    if what == 1:
        simulated.device.stopped("401")
    if what == 0:
        simulated.travel(days)
        return
    simulated.sleep(days)
    if what == 3 and (upload := simulated.device.next_upload()):
        simulated.device.charge(upload.id)  # and it is killed
    simulated.restart()


# The claims of a metric about whole devices: all that leaves a device in some periods, from `record` to bytes.
#
# Each device is new, in memory, and answers beside one other metric, so that uploads have groups to put in order. It
# answers in each of its periods, whatever the metric's schedule: on other days it would say nothing, for any answer.
# Seen are whether an attempt was planned when it had answered, and of each upload its length, its groups in order, the
# metric's cell and reports, and those of the other metric: noise that both share would betray what the answers have in
# common. A device that answers often has its key refused in the middle, and its app sleeps over midnights until it
# starts again, so that the last answer comes 90 days after the first one or later.

REPEATS = 14
"""Periods in which a memoized answer is repeated."""
UNTIL = 7
"""Periods until an answer changes, and as many after it."""


@frozen
class Seen:
    """The view that somebody has of one device."""

    form: tuple[Any, ...]
    """For each period whether an attempt was planned, and of each upload its length and its groups in order."""
    reports: tuple[Reported, ...]
    """As often as the metric was told."""
    beside: tuple[Reported, ...]
    """As often as the metric beside it was told, of which the answer is always the same."""


@frozen
class Scene:
    """A registry cut down to the metric that is audited and one that is answered beside it."""

    registry: Registry
    metric: Metric
    beside: tuple[Metric, Any] | None

    @classmethod
    def of(cls, registry: Registry, metric: Metric) -> "Scene":
        """Cut a registry down."""
        other = companion(registry, metric)
        cut = cut_down(registry, [each for each in (metric, other) if each])
        beside = (cut.metrics[other.name], other.kind.examples(other.asked)[0]) if other else None
        return cls(cut, cut.metrics[metric.name], beside)

    def live(self, answers: Sequence[Any], rng: Rng) -> Seen:
        """Return what is seen of a new device that answers so, period after period; NOTHING records nothing.

        Hidden answers leave in the period after.
        """
        metric = self.metric
        form: list[Any] = []
        reports: list[Reported] = []
        reports_beside: list[Reported] = []
        with Simulated(self.registry, rng) as simulated:
            device = simulated.device
            for place, answer in enumerate((*answers, *((NOTHING,) if metric.hidden else ())), 1):
                if answer is not NOTHING:
                    device.record(metric, answer)
                planned = device.sending().next is not None
                if self.beside:
                    device.record(*self.beside)
                uploads = list(simulated.send())
                form.append((planned, *((len(upload.body), _groups(upload)) for upload in uploads)))
                reports += (each for upload in uploads for each in reports_of(upload, metric))
                if self.beside:
                    reports_beside += (each for upload in uploads for each in reports_of(upload, self.beside[0]))
                if place == UNTIL and len(answers) > UNTIL:
                    _long_sleep(simulated, metric, len(answers))
                else:
                    simulated.travel(metric.period_days)
        return Seen(tuple(form), tuple(reports), tuple(reports_beside))


def _long_sleep(simulated: Simulated, metric: Metric, periods: int) -> None:
    """Have the key refused, and let the app sleep until it starts again, so late that it answers for 90 days."""
    days = max(1, -(-DAYS // metric.period_days) - periods + 2) * metric.period_days
    simulated.device.stopped("401")
    simulated.sleep(days)
    simulated.restart()


def _groups(upload: BuiltUpload) -> tuple[str, ...]:
    return tuple(group["metric"] for group in groups_of(upload))


# Claims.


def device_claims(registry: Registry, metric: Metric) -> Iterator[Claim | Repetition | Never]:
    """Yield the claims about whole devices with a metric."""
    stage, cells = Scene.of(registry, metric), metric.cells
    one, other, *_ = inputs = inputs_of(metric)
    pair = (one, other)

    def claim(part: str, exp_epsilon: Fraction, *histories: Input, at: int = 0, foreseen: Any = None) -> Claim:
        return Claim(
            metric.name,
            part,
            exp_epsilon,
            histories,
            lambda answers, rng: stage.live(answers, rng),
            foresee=lambda n, alpha: _foreseen(metric, histories[:2], at, n, alpha),
            see=_see,
            shows_nothing=("form", "cells", "beside"),
            of_devices=True,
        )

    def once(each: Input) -> Input:
        return Input(each.label, (each.value,))

    yield draws_claim(registry, metric)
    yield life_claim(registry, metric)
    yield claim("device", stated(metric), once(one), once(other), once(STRANGE[-1]))
    if metric.hidden:
        nothing = next(each for each in inputs if each.value is NOTHING)
        yield claim("device, presence", stated(metric), once(one), once(nothing))
    if metric.memoized:
        lasting = max(part.mechanism.first_stage.exp_epsilon for part in cells.parts)
        repeated = [Input(f"{each.label} {REPEATS} times", (each.value,) * REPEATS) for each in pair]
        yield claim("device, repeated", lasting, *repeated)
        if changes := _changes(metric, inputs):
            before, *after = changes
            histories = [
                Input(f"{before.label}, then {each.label}", (before.value,) * UNTIL + (each.value,) * UNTIL)
                for each in after
            ]
            yield claim("device, changed", lasting, *histories, at=UNTIL)
    if metric.memoized or metric.charges > 1:
        probability = _repeating(metric, one)
        if probability is not None:
            answers = (one.value,) * 2
            yield Repetition(
                metric.name, "device, noise again", probability, lambda rng: _says_the_same(stage.live(answers, rng))
            )


def _says_the_same(seen: Seen) -> bool:
    return len(seen.reports) > 1 and seen.reports[0] == seen.reports[1]


def _see(outcome: Any) -> Categories:
    """See a device by the form of its uploads, by cells, by what it says, and by what it says most often."""
    if not isinstance(outcome, Seen):  # it raised
        yield "outcome", outcome
        return
    yield "form", outcome.form
    yield "cells", tuple(each.cell for each in outcome.reports)
    yield "beside", outcome.beside
    if len(outcome.reports) <= 1:
        yield "told", outcome.reports
        yield "both", (outcome.reports, outcome.beside)
        return
    yield "different", len(set(outcome.reports))
    middle = len(outcome.reports) // 2
    halves = tuple(Counter(half).most_common(1)[0][0] for half in (outcome.reports[:middle], outcome.reports[middle:]))
    yield "most often", halves
    yield "how often", (Counter(outcome.reports).most_common(1)[0][1], halves[0])
    if outcome.beside:
        beside = Counter(outcome.beside).most_common(1)[0][0]
        yield "most often beside", (halves, beside)
        yield "alike", tuple(half == beside for half in halves)


def _foreseen(metric: Metric, histories: Sequence[Input], at: int, n: int, alpha: float) -> Foreseen | None:
    """Return the event of the exact laws of each cell, as far as these can be told: what is told from `at` on."""
    one, other = histories
    reports = len(one.value) - at
    tellings: dict[int, Telling] = {}
    paths, p, q = Paths(), 0.0, 0.0
    for cell, weight in _weights(metric.cells):
        try:
            found = telling(metric, cell, (one.value[-1], other.value[-1]), reports, n, alpha, paths)
        except (TooMany, Undecidable):
            break
        if found:
            tellings[cell] = found
            p, q = p + weight * found.p, q + weight * found.q

    def holds(seen: Any) -> bool:
        last = seen.reports[at:] if isinstance(seen, Seen) else ()
        return bool(last) and last[0].cell in tellings and tellings[last[0].cell].holds([each.report for each in last])

    return Foreseen(one, other, Likelier(holds, min(p, 1.0), min(q, 1.0))) if tellings else None


def _weights(cells: Cells) -> Iterator[tuple[int, float]]:
    """Yield the cells of a device with the first public value, and how likely each is."""
    yield from enumerate(part.weight / cells.weights for part in cells.parts for _ in range(part.cells))


def _changes(metric: Metric, inputs: Sequence[Input]) -> tuple[Input, Input, Input] | None:
    """Return three answers of which each is another class in every cell; None where there are none, or no two are paid.

    That an answer changes is not hidden, so histories must change alike.
    """
    if metric.charges < 2 or metric.kind.rounds:  # a number has two classes, by coins of its device
        return None
    classes = {
        each.label: [
            metric.class_of(read(metric, each.value), cell, Rng(_no_bits)) for cell in range(metric.cells.count)
        ]
        for each in inputs[:8]
    }
    for chosen in combinations(inputs[:8], 3):
        rows = zip(*(classes[each.label] for each in chosen), strict=True)
        if all(len(set(row)) == len(chosen) for row in rows):
            return chosen[0], chosen[1], chosen[2]
    return None


def _no_bits(count: int) -> int:
    raise Undecidable("a class that is kept needs no coins")


def _repeating(metric: Metric, answer: Input) -> Fraction | None:
    """Return P[two reports of a device are the same, in the same cell]; None where the laws are too large."""
    cells, paths, total = metric.cells, Paths(), Fraction(0)
    for cell, weight in _weights(cells):
        mechanism = cells.mechanism_of(cell)
        try:
            if not metric.memoized:
                same = law_of_report(metric, cell)(answer.value, paths).repeats
                total += Fraction(weight) ** 2 * same
                continue
            law = law_of_permanent(metric, cell)(answer.value, paths)
            if isinstance(law, BitsLaw):
                sent = [sent_as_one(mechanism, memo) for memo in (0, (1 << len(law.ones)) - 1)]
                alike = Counter(zip(law.ones, *sent, strict=True))  # bits have few different laws
                same = prod(
                    ((one * _twice(b) + (1 - one) * _twice(a)) ** bits for (one, a, b), bits in alike.items()),
                    start=Fraction(1),
                )
            else:
                assert isinstance(law, TableLaw)
                memo: Any = next(iter(law.probabilities))
                same = law_of(lambda rng: mechanism.repeat(memo, rng), paths).repeats  # noqa: B023
            total += Fraction(weight) * same
        except (TooMany, Undecidable):
            return None
    return total


def _twice(p: Fraction) -> Fraction:
    return p * p + (1 - p) ** 2
