"""A report among others in the figures that readers get, and one that is surrounded by an attacker's own."""

from collections.abc import Iterator, Sequence
from math import exp, inf, log

from dither.attacking.guessing import guess, reader_of
from dither.attacking.trials import RANDOMIZER, Attack, Score, Trial, Way, most_sure_of, percent
from dither.auditing.plans import report_of
from dither.auditing.simulated import Reported
from dither_shared.rng import Rng

BATCH = 100
"""So many more reports there are when the figures of a day that is not over change (aggregator: `BATCH_MIN`)."""
OWN = (0, 50, 80, 90, 95, 98, 99)
"""How many of them the attacker sent."""


def surrounding(trial: Trial) -> Attack | None:
    """Somebody who reads figures with one key and uploads with the app's, and takes their own reports out again."""
    metric = trial.fresh
    if metric is None:
        return None
    answers, reader = trial.answers(metric), reader_of(metric, trial.answers(metric))
    draws = [report_of(metric, cell) for cell in range(metric.cells.each)]

    def evidence(answer: object, rng: Rng) -> float:
        """Return how far the report of another device speaks for the first answer."""
        cell = metric.cells.draw(rng)
        return reader.log_odds([Reported(cell, draws[cell](answer, rng))])

    def life(rng: Rng) -> Iterator[bool]:
        for own in OWN:
            first = not rng.uniform(2)
            others = [evidence(answers[rng.uniform(2)], rng) for _ in range(BATCH - own - 1)]
            yield guess(_odds_of_one([evidence(answers[not first], rng), *others]), rng) == first

    bound, counts = most_sure_of(metric.cells.exp_epsilon), trial.tally(lambda rng: list(life(rng)), BATCH)
    points = tuple(Score(own, right, trial.devices, bound) for own, right in zip(OWN, counts, strict=True))
    return Attack(
        name="surrounding",
        title="One report, surrounded by the attacker's own",
        warning=(
            "Figures are sums, and a sum of which all but one report are known tells that report. The app's key is in "
            "every copy of the app: with it anybody can send 99 reports of their own around that of one device, read "
            "the figures before and after, and subtract. A metric that few devices answer needs no such help."
        ),
        source=(
            "Dinur, Nissim 2003, and Dwork, McSherry, Nissim, Smith 2006, on answers to many questions about the same "
            "people"
        ),
        measured=(
            f"In a batch of {BATCH} reports, none of them the attacker's, {percent(points[0].share)} of "
            f"{trial.devices:,} devices are guessed right, where a coin is right of half. If all others are the "
            f"attacker's it is {percent(points[-1].share)}, as if that report had been read alone; the formula allows "
            f"{percent(bound)} at most."
        ),
        answer=(
            "The device adds the noise before anything leaves, so what is left after the subtraction is one noisy "
            "report. Epsilon bounds that, whoever reads it."
        ),
        left=(
            "The subtraction. Batches and cells of at least 20 reports keep a report from a reader who sends nothing, "
            "and from nobody else."
        ),
        across="reports of the attacker's own",
        up="devices guessed right",
        lines=(Way(f"{metric.name}: figures of {BATCH} reports, less the own ones", RANDOMIZER, points),),
        logarithmic=False,
    )


def _odds_of_one(odds: Sequence[float]) -> float:
    """Return ln of the odds of one device's answer, given that one of these is its report, and nobody knows which.

    Each is ln P[report | one answer] / P[report | other answer], and the others' answers are a coin's. Sums of symbols
    tell as much as this; those of subsets and bits less.
    """
    one, other = (sum(_chance(sign * each) for each in odds) for sign in (1, -1))
    return log(one / other) if one and other else inf if one else -inf


def _chance(odds: float) -> float:
    """Return the probability of what has these odds, as ln."""
    return 1 / (1 + exp(-odds)) if odds > 0 else exp(odds) / (1 + exp(odds))
