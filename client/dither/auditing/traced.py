"""Draws: each decision of a device's coins, from `record` to the bytes of an upload, held against the law's code.

A device lives for 90 days or more: it sleeps over midnights, starts again, is killed, is refused once. Each time that
it is asked, all that any `Rng` of the SDK decides is noted, with the integers that it was asked for and the random bits
that it took. The code whose law the audit tells is then run on these decisions. It has to ask for the same integers in
the same order, and make of them the report that left. The law of each decision, over all random bits, has to be that
of its integers: a threshold that is off by one is found. A memo has to be drawn from the same bits whenever its answer
comes, and nothing else may ever take bits that were taken before. None of this is a matter of chance.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

from dither.auditing.claims import Never
from dither.auditing.coins import PRIMITIVES, independent, law_of_coin, law_of_coins, law_of_uniform
from dither.auditing.lives import DAYS
from dither.auditing.plans import NOTHING, inputs_of, read
from dither.auditing.simulated import Reported, Simulated, companion, cut_down, reports_of
from dither.auditing.symbolic_rng import Undecidable
from dither_shared.frozen import frozen, replaced
from dither_shared.registry import Metric, Registry
from dither_shared.rng import COIN_BITS, SCALE, Rng

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
