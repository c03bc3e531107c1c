"""New terms each month: a registry that tries to have memos drawn again and again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dither.attacking.guessing import guess, reader_of
from dither.attacking.trials import DEVICE, RANDOMIZER, Attack, Score, Trial, Way, most_sure, percent
from dither.auditing.plans import permanent
from dither.auditing.simulated import EPSILON, Reported, Simulated, cut_down, reports_of
from dither_shared.cells import Cells
from dither_shared.exact import to_micro
from dither_shared.frozen import replaced
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng

MONTH_DAYS = 30
ANSWERED = 7
"""Periods of each month in which a device answers."""
NAME_MAX = 55


def revs(trial: Trial) -> Attack | None:
    """An operator who ships new terms each month, to which the person agrees each time."""
    metric = trial.memoized
    if metric is None:
        return None
    months, each = max(2, trial.days // MONTH_DAYS), range(max(2, trial.days // MONTH_DAYS))
    most = to_micro(trial.registry.device_epsilon)
    revs_ = [replaced(metric, rev=metric.rev + month) for month in each]
    integers = [replaced(metric, asked=replaced(metric.asked, cells=_nudged(metric.cells, month))) for month in each]
    names = [replaced(metric, name=f"{metric.name[:NAME_MAX]}_{month}") for month in each]

    def line(name: str, by: str, rights: Sequence[int], micro: Callable[[int], int]) -> Way:
        points = (Score(month, right, trial.devices, most_sure(micro(month))) for month, right in enumerate(rights, 1))
        return Way(name, by, tuple(points))

    def of_devices(name: str, terms: Sequence[Metric], micro: Callable[[int], int], *, one_memo: bool) -> Way:
        *rights, spoke = _upgraded(trial, terms, one_memo=one_memo)
        speaking.append(spoke)
        return line(name, DEVICE, rights, micro)

    speaking: list[int] = []
    lines = (
        line(
            "the memo drawn anew each month, without an end",
            RANDOMIZER,
            _drawn_anew(trial, metric, months),
            lambda month: month * metric.charge,
        ),
        of_devices("dither: another rev each month", revs_, lambda month: metric.charge, one_memo=True),
        of_devices("dither: another integer each month", integers, lambda month: metric.charge, one_memo=True),
        of_devices(
            "dither: another name each month",
            names,
            lambda month: min(month * metric.reservation, most),
            one_memo=False,
        ),
    )
    anew, rev, integer, name = (percent(each.last.share) for each in lines)
    spoke, n = speaking, trial.devices
    return Attack(
        name="revs",
        title="New terms each month",
        warning=(
            "A promise for each collection is worth little if the collections can be multiplied. An operator who ships "
            "the registry can number it anew each month, and a device that keys its noise or its budget by that number "
            "draws again: memos average like anything else."
        ),
        source="Tang, Korolova, Bai, Wang, Wang 2017, on budgets that are renewed",
        measured=(
            f"Each of {n:,} devices agrees to everything and answers {ANSWERED} times a month. If the memo were drawn "
            f"anew, {anew} would be guessed right after {months} months. Another rev each month: {rev}, and "
            f"{spoke[0]:,} still speak in the last month. Another integer, so that the memo cannot go on: {integer}, "
            f"and {spoke[1]:,} speak. Another name, which is another question: {name}, and {spoke[2]:,} speak."
        ),
        answer=(
            "A memo belongs to name, values and integers, and the budget to the name: a rev redraws nothing and "
            "refreshes nothing. If a memo cannot go on, all that was reserved counts as spent and the metric is "
            "silent. Another name is another question: the person is asked again, and all of them share "
            "`device_epsilon`."
        ),
        left=(
            "An app that ships other code, or another app, has a budget of its own. So has a person who deletes the "
            "device's file."
        ),
        across="months",
        up="devices guessed right",
        lines=lines,
        logarithmic=False,
    )


def _drawn_anew(trial: Trial, metric: Metric, months: int) -> list[int]:
    """Return how many are guessed right if each month has a memo of its own, by the randomizer alone."""
    answers, reader = trial.answers(metric), reader_of(metric, trial.answers(metric))

    def life(rng: Rng) -> Iterator[bool]:
        first = not rng.uniform(2)
        cell, odds = rng.uniform(metric.cells.count), 0.0
        draw, mechanism = permanent(metric, cell), metric.cells.mechanism_of(cell)
        for _ in range(months):
            memo = draw(answers[not first], rng)
            odds += reader.log_odds([Reported(cell, mechanism.repeat(memo, rng)) for _ in range(ANSWERED)])
            yield guess(odds, rng) == first

    return trial.tally(lambda rng: list(life(rng)), months * ANSWERED)


def _upgraded(trial: Trial, terms: Sequence[Metric], *, one_memo: bool) -> list[int]:
    """Return how many whole devices are guessed right after each of these terms, and speak under the last ones.

    `one_memo` says that all terms are of one name, whose reports copy one memo; else each has a memo of its own.
    """
    metric = terms[0]
    answers, reader = trial.answers(metric), reader_of(metric, trial.answers(metric))
    registries = [
        cut_down(trial.registry, [each], EPSILON if one_memo else trial.registry.device_epsilon) for each in terms
    ]

    def life(rng: Rng) -> Iterator[bool]:
        first = not rng.uniform(2)
        kept, reports = list[Reported](), list[Reported]()
        odds = 0.0
        with Simulated(registries[0], rng) as simulated:
            for month, registry in enumerate(registries):
                if month:
                    simulated.upgrade(registry)
                reports = _month(simulated, registry, answers[not first])
                kept = kept + reports if one_memo else reports
                odds = reader.log_odds(kept) + (0.0 if one_memo else odds)
                yield guess(odds, rng) == first
        yield bool(reports)

    return trial.tally(lambda rng: list(life(rng)), len(terms) * ANSWERED)


def _month(simulated: Simulated, registry: Registry, answer: object) -> list[Reported]:
    """Return what a device tells in a month."""
    (asked,) = registry.metrics.values()
    reports: list[Reported] = []
    for _ in range(ANSWERED):
        simulated.device.record(asked, answer)
        reports += (each for upload in simulated.send() for each in reports_of(upload, asked))
        simulated.travel(asked.period_days)
    simulated.travel(max(0, MONTH_DAYS - ANSWERED * asked.period_days))
    return reports


def _nudged(cells: Cells, month: int) -> Cells:
    """Return cells whose permanent parts have a threshold that is lower by so many parts of 2^64: another memo."""
    document: dict[str, Any] = cells.to_document()
    parts = [{**part, "memo": _lowered(part["memo"], month)} for part in document["parts"]]
    return Cells.from_document({**document, "parts": parts})


def _lowered(integers: Mapping[str, int], by: int) -> dict[str, int]:
    name = next(name for name in integers if name.startswith("threshold"))
    return {**integers, name: integers[name] - by}
