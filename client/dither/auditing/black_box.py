"""Tests of a claim on samples: what a randomizer does when it runs, whatever its law should be.

Three events are tested, all chosen before the samples are drawn that decide: the best one of the exact laws, and two
that are learned on other samples, for what no law foresees. A learned event is a set of outcomes, as some way of
looking at them sees them: half of the samples to learn from order what is seen, by how much likelier it is under one
input than under another, and the other half says where to cut. The last event is of outcomes that one of two inputs
never had in both halves: it may be rare, and has a bound of its own.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import permutations, product
from math import inf, log, log1p, sqrt
from typing import Any

from dither.auditing.claims import Claim, Exactly, Foreseen, Input
from dither.auditing.laws import Likelier, check_countable, outcome_of
from dither.auditing.samples import (
    Expected,
    Spread,
    expected_bound,
    loss_bound,
    loss_p_value,
    never_bound,
    never_p_value,
    roughly_expected,
)
from dither_shared.frozen import frozen
from dither_shared.rng import Rng

LEARNED_FROM_MAX = 25_000
"""Samples of each input to learn an event from; a quarter of all that are drawn if that is less."""
SEEN_MAX = 2_000_000
"""Looks at samples of one input while learning: of reports of many bits fewer samples are looked at."""
TOGETHER_MAX = 4
"""Ways of looking whose events are tried at once."""
COUNTED_AT_ONCE = 10_000
"""Outcomes that are kept at once, to look at equal ones once."""
EVENTS = 3
"""Tests of a claim, which share its error."""
NEVER = "never on the other side"
"""The name of the event that one of two inputs never had."""
PAIRS_MAX = 60
"""Pairs of inputs that an event is chosen from."""
LEARNED_INPUTS_MAX = 12
"""The first inputs are those to learn from: every one is drawn from as often."""


@frozen
class Tested:
    """The bound that an event has proved."""

    one: str
    other: str
    event: str
    hits: int
    others: int
    n: int
    epsilon: float
    """The loss that it may show."""
    expected: Expected | None = None

    def bound(self, alpha: float) -> float:
        """Return the loss that is proved at 1 - alpha."""
        if self.event != NEVER:
            return loss_bound(self.hits, self.others, self.n, alpha)
        return 0.0 if self.others else never_bound(self.hits, self.n, alpha)

    @property
    def p_value(self) -> float:
        """The least error at which a loss above epsilon is proved."""
        if self.event != NEVER:
            return loss_p_value(self.hits, self.others, self.n, self.epsilon)
        return 1.0 if self.others else never_p_value(self.hits, self.n, self.epsilon)


def tested(claim: Claim, exactly: Exactly | None, n: int, alpha: float, rng: Rng, spread: Spread) -> list[Tested]:
    """Return what the events of a claim have proved, of n samples a side; `alpha` is the error that they share.

    They share the samples, too: that both bounds hold needs no independence.
    """
    share = alpha / EVENTS
    chosen: dict[str, Foreseen] = {}
    foreseen = claim.foresee(n, share) if claim.foresee else best_of_laws(claim, exactly, n, share) if exactly else None
    if foreseen:
        chosen["foreseen"] = foreseen
    chosen |= learn(claim, min(n // 4, LEARNED_FROM_MAX), rng, spread)
    inputs = {each.label: each for event in chosen.values() for each in (event.one, event.other)}
    hits = {label: _hits(claim, each, chosen, n, rng, spread) for label, each in inputs.items()}
    return [
        Tested(
            each.one.label,
            each.other.label,
            event,
            hits[each.one.label][event],
            hits[each.other.label][event],
            n,
            0.0 if each.shows_nothing else log_of(claim.exp_epsilon),
            expected_bound(each.event.p, each.event.q, n, share) if each is foreseen else None,
        )
        for event, each in chosen.items()
    ]


def log_of(ratio: Fraction) -> float:
    """Return the logarithm of a ratio, whose parts may be larger than any float."""
    return log(ratio.numerator) - log(ratio.denominator)


def _hits(claim: Claim, each: Input, chosen: Mapping[str, Foreseen], n: int, rng: Rng, spread: Spread) -> Counter[str]:
    """Return how often each event holds in n samples of an input."""

    def work(share: int) -> Counter[str]:
        hits: Counter[str] = Counter()
        for outcome, count in _counted(claim, each.value, share, rng):
            for name, event in chosen.items():
                hits[name] += count * event.event.holds(outcome)
        return hits

    return sum(spread(work, n), Counter())


def _outcome(claim: Claim, value: Any, rng: Rng) -> Any:
    return outcome_of(lambda rng: claim.draw(value, rng), rng)


def _counted(claim: Claim, value: Any, samples: int, rng: Rng) -> Iterator[tuple[Any, int]]:
    """Draw samples, and yield each outcome with how often it came: what it is seen as is asked once for all of them.

    Outcomes come in the order in which they were first drawn, a part at a time, since all of them may differ. Equal
    outcomes of two types are seen as different.
    """
    for start in range(0, samples, COUNTED_AT_ONCE):
        counts: Counter[tuple[type, Any]] = Counter()
        for _ in range(min(COUNTED_AT_ONCE, samples - start)):
            outcome = _outcome(claim, value, rng)
            check_countable(outcome)
            counts[type(outcome), outcome] += 1
        for (_, outcome), count in counts.items():
            yield outcome, count


def best_of_laws(claim: Claim, exactly: Exactly, n: int, alpha: float) -> Foreseen | None:
    """Return the event of the exact laws of which most is to be expected."""
    best, chosen = 0.0, None
    for one, other in exactly.pairs[:PAIRS_MAX]:
        for event in exactly.laws[one.label].events(exactly.laws[other.label]):
            hoped = roughly_expected(event.p, event.q, n, alpha)
            if hoped > best:
                best, chosen = hoped, Foreseen(one, other, event)
    return chosen


# Learning.


def learn(claim: Claim, samples: int, rng: Rng, spread: Spread) -> dict[str, Foreseen]:
    """Return the event that tells two inputs apart best in so many samples of each, and the one that one never had."""
    inputs = claim.inputs[:LEARNED_INPUTS_MAX]
    ways = max(1, sum(1 for _ in claim.see(_outcome(claim, claim.inputs[0].value, rng))))
    half = max(1, min(samples, SEEN_MAX // ways) // 2)
    halves = {each.label: tuple(_look(claim, each, half, rng, spread) for _ in range(2)) for each in inputs}
    found: dict[tuple[int, int], list[_Held]] = {}
    never: tuple[float, Foreseen | None] = 0.0, None
    for pair in permutations(range(len(inputs)), 2):
        one, other = (inputs[place] for place in pair)
        (order, cut), (order_0, cut_0) = (halves[each.label] for each in (one, other))
        for way in order:
            looks = Counts(order[way], order_0.get(way, {}), cut.get(way, {}), cut_0.get(way, {}))
            score, what = _cut(looks)
            if score > 0:
                found.setdefault(pair, []).append(_Held(score, way, what))
            hits, alone = _alone(looks)
            score = hits * log1p(1 if way in claim.shows_nothing else 1 / claim.exp_epsilon)
            if score > never[0]:
                never = score, _event(claim, one, other, [_Held(score, way, alone)])
    events = {NEVER: never[1]} if never[1] else {}
    if found:
        pair = max(found, key=lambda each: max(held.score for held in found[each]))
        best = sorted(found[pair], key=lambda held: held.score, reverse=True)[:TOGETHER_MAX]
        one, other = (inputs[place] for place in pair)
        together = _together(claim, one, other, best, half, rng, spread) if len(best) > 1 else best
        events["learned"] = _event(claim, one, other, together)
    return events


def _event(claim: Claim, one: Input, other: Input, held: "Sequence[_Held]") -> Foreseen:
    shows_nothing = all(each.way in claim.shows_nothing for each in held)
    return Foreseen(one, other, Likelier(lambda outcome: all(_held(claim, outcome, held)), 0.0, 0.0), shows_nothing)


@frozen
class _Held:
    """The value of an outcome, in one way of looking at it, when the event holds."""

    score: float
    way: Hashable
    what: frozenset[Hashable]


def _held(claim: Claim, outcome: Any, each: Sequence[_Held]) -> tuple[bool, ...]:
    """Tell which of these an outcome is."""
    seen = dict(claim.see(outcome))
    return tuple(held.way in seen and seen[held.way] in held.what for held in each)


def _together(
    claim: Claim, one: Input, other: Input, best: Sequence[_Held], samples: int, rng: Rng, spread: Spread
) -> Sequence[_Held]:
    """Return those of which it tells most that all hold at once: of a subset, that one value is in and another not."""

    def look(value: Any) -> Counter[tuple[bool, ...]]:
        def work(share: int) -> Counter[tuple[bool, ...]]:
            held: Counter[tuple[bool, ...]] = Counter()
            for outcome, count in _counted(claim, value, share, rng):
                held[_held(claim, outcome, best)] += count
            return held

        return sum(spread(work, samples), Counter())

    hits, others = look(one.value), look(other.value)
    scores = {}
    for chosen in product((False, True), repeat=len(best)):
        if any(chosen):
            counts = (
                sum(count for held, count in seen.items() if all(h or not c for h, c in zip(held, chosen, strict=True)))
                for seen in (hits, others)
            )
            scores[chosen] = _score(*counts)
    most = max(scores, key=lambda chosen: scores[chosen])
    return [held for held, is_chosen in zip(best, most, strict=True) if is_chosen]


Looks = dict[Hashable, Counter[Hashable]]
"""How often what was seen, for each way of looking."""


def _look(claim: Claim, each: Input, samples: int, rng: Rng, spread: Spread) -> Looks:
    def look(share: int) -> Looks:
        counts: Looks = defaultdict(Counter)
        for outcome, count in _counted(claim, each.value, share, rng):
            for way, what in claim.see(outcome):
                counts[way][what] += count
        return counts

    total: Looks = {}
    for counts in spread(look, samples):
        for way, seen in counts.items():
            total.setdefault(way, Counter()).update(seen)
    return total


Count = Mapping[Hashable, int]


@frozen
class Counts:
    """How often what was seen in one way: in the first half, and in the second one, each of either input."""

    order: Count
    order_0: Count
    cut: Count
    cut_0: Count


def _cut(seen: Counts) -> tuple[float, frozenset[Hashable]]:
    """Return the best set of what is seen, and about what it would prove of as many samples again."""
    ranked = sorted(seen.order, key=lambda what: (seen.order_0.get(what, 0) + 0.5) / (seen.order[what] + 0.5))
    hits = others = 0
    best, place_of_best = -inf, 0
    for place, what in enumerate(ranked, 1):
        hits += seen.cut.get(what, 0)
        others += seen.cut_0.get(what, 0)
        if (score := _score(hits, others)) > best:
            best, place_of_best = score, place
    return best, frozenset(ranked[:place_of_best])


def _alone(seen: Counts) -> tuple[int, frozenset[Hashable]]:
    """Return what one input alone had in both halves; how often it had in the second what it alone had in the first."""
    in_first = [what for what in seen.order if what not in seen.order_0]
    hits = 0 if any(what in seen.cut_0 for what in in_first) else sum(seen.cut.get(what, 0) for what in in_first)
    both = (*seen.order, *seen.cut)
    return hits, frozenset(what for what in both if what not in seen.order_0 and what not in seen.cut_0)


def _score(hits: int, others: int) -> float:
    """Return about what as many samples again would prove."""
    low, high = hits - 2 * sqrt(hits), others + 2 * sqrt(others) + 3
    return log(low / high) if low > 0 else -inf
