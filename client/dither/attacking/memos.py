"""Attacks on memos: to read one, to have it drawn again under new terms, and to recognise a device by its noise."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import log
from typing import Any

from dither.attacking.trials import (
    DEVICE,
    RANDOMIZER,
    Attack,
    Score,
    Trial,
    Way,
    guess,
    most_sure,
    most_sure_of,
    percent,
    reader_of,
    reader_of_copies,
)
from dither.auditing.claims import law_of_permanent, permanent
from dither.auditing.laws import BitsLaw, Law, Paths, TableLaw
from dither.auditing.memos import BEFORE, POPULATION, TOGETHER, Crowd, Trace, linkable, log_sum, paired
from dither.auditing.simulated import EPSILON, Reported, Simulated, cut_down, reports_of
from dither_shared.accounting import linked_share
from dither_shared.exact import to_micro
from dither_shared.frozen import frozen, replaced
from dither_shared.mechanisms import Cells
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng

# A memo: noise that is drawn once for each answer and kept; and a memo whose answer changes.

NEAR = 3
"""A day of change is told if the guess is so many periods off at most."""
PERIODS_LEAST, PERIODS_MAX = 8, 120
"""How long a device is watched: in the middle half of these periods an answer changes, if it does."""


def memo(trial: Trial) -> Attack | None:
    """An operator who keeps a year of reports that copy one memo."""
    metric = trial.memoized
    if metric is None:
        return None
    answers, reader = trial.answers(metric), reader_of(metric, trial.answers(metric))
    registry, steps = cut_down(trial.registry, [metric]), trial.steps(metric)

    def life(rng: Rng) -> list[bool]:
        first = not rng.uniform(2)
        reports = lived(registry, metric, [answers[not first]] * steps[-1], rng)
        return [guess(reader.log_odds(reports[:step]), rng) == first for step in steps]

    points = tuple(
        Score(step * metric.period_days, right, trial.devices, bound_of(metric, step))
        for step, right in zip(steps, trial.tally(life, steps[-1]), strict=True)
    )
    known = _of_the_memo_itself(metric, answers)
    computed = tuple((point.x, known) for point in (points[0], points[-1])) if known else ()
    best = f" Somebody who read the memo itself would be right in {percent(known)}." if known else ""
    return Attack(
        name="memo",
        title="A memo: noise that is drawn once and kept",
        warning=(
            "If each day's report has fresh noise, the days average. So the noise of an answer is drawn once, kept, "
            "and repeated, under a second noise of each day. All days together then tell no more than the one kept "
            "draw."
        ),
        source="Erlingsson, Pihur, Korolova 2014; Ding, Kulkarni, Yekhanin 2017",
        measured=(
            f"After {trial.days} days the operator guesses {percent(points[-1].share)} of {trial.devices:,} devices "
            f"right, and the formula allows {percent(points[-1].bound or 1)} at most.{best}"
        ),
        answer=(
            "A metric with `memoize = true` draws its memo from the device's secret, and states what all reports of "
            "one answer tell together, `epsilon_permanent`, beside epsilon of a report. `dither audit` checks both."
        ),
        left="The memo is a mark of the device (linking), and the time of a change shows (change).",
        across="days",
        up="devices guessed right",
        lines=(Way(f"{metric.name}: all reports of one memo", DEVICE, points, computed),),
    )


def bound_of(metric: Metric, reports: int) -> float:
    """Return what a guess of 1 : 1 can become at most: by the first report, and by any number of copies."""
    return most_sure_of(metric.cells.exp_epsilon) if reports == 1 else most_sure(metric.charge)


def lived(registry: Registry, metric: Metric, answers: Sequence[object], rng: Rng) -> list[Reported]:
    """Return what a new device tells of a metric that gives these answers, period after period."""
    reports: list[Reported] = []
    asked = registry.metrics[metric.name]
    with Simulated(registry, rng) as simulated:
        for period in range(len(answers) + 1):
            if period < len(answers):  # what is hidden leaves in the period after
                simulated.device.record(asked, answers[period])
            reports += (each for upload in simulated.send() for each in reports_of(upload, asked))
            simulated.travel(asked.period_days)
    return reports[: len(answers)]


def _of_the_memo_itself(metric: Metric, answers: tuple[object, object]) -> float | None:
    """Return the share that is guessed right by whoever knows the memo; None where cells differ."""
    if len(metric.cells.parts) > 1 or metric.cells.several:
        return None
    paths = Paths()
    one, other = (law_of_permanent(metric, 0)(answer, paths) for answer in answers)
    return (1 + max((event.p - event.q for event in one.events(other)), default=0.0)) / 2


# A value that changes.


def change(trial: Trial) -> Attack | None:
    """An operator who looks for the day on which an answer changed."""
    metric = trial.memoized
    if metric is None:
        return None
    periods = min(PERIODS_MAX, trial.days // metric.period_days)
    if periods < PERIODS_LEAST:
        return None
    answers = trial.answers(metric)
    registry, watcher = cut_down(trial.registry, [metric]), _Watcher(metric, answers, periods)

    def life(rng: Rng) -> list[bool]:
        changes, first = bool(rng.uniform(2)), not rng.uniform(2)
        when = watcher.days[rng.uniform(len(watcher.days))]
        before, after = answers[not first], answers[first]
        reports = lived(registry, metric, [before] * when + [after if changes else before] * (periods - when), rng)
        seen = watcher.watch(reports)
        # The last guess is told when it was, and that it was: the promise holds all the same.
        order = watcher.log_odds(reports[:when]) - (watcher.log_odds(reports[when:]) if changes else 0.0)
        found_day = abs(seen.when - when) <= NEAR
        return [seen.changed == changes, changes, changes and found_day, guess(order, rng) == first]

    whether, changed, near, value = trial.tally(life, periods)
    days, n = periods * metric.period_days, trial.devices
    bound = most_sure(min(2, metric.charges) * metric.charge)
    visible = _differs(metric, answers)
    seldom = f" In {percent(1 - visible)} of all changes both memos are the same, and nothing shows." if visible else ""
    lines = [
        Way(f"whether it changed, in {days} days", DEVICE, (Score(days, whether, n),)),
        Way(f"the day, within {NEAR}, of those that changed", DEVICE, (Score(days, near, changed),)),
        Way("which answer came first", DEVICE, (Score(days, value, n, bound),)),
    ]
    return Attack(
        name="change",
        title="An answer that changes",
        warning=(
            "A memo is repeated while its answer stays. When the answer changes, another memo takes its place, and "
            "from that day on the reports have another law. So the day shows, though neither answer does: a move has "
            "a date, and so has a diagnosis."
        ),
        source="Ding, Kulkarni, Yekhanin 2017, on answers that change; Naor, Vexler 2020, on telling when",
        measured=(
            f"Half of {n:,} devices change their answer once in {days} days. The operator tells rightly for "
            f"{percent(whether / n)} of all whether it changed, and for {percent(near / max(1, changed))} of those "
            f"that changed the day, within {NEAR} periods. It guesses the answer that came first rightly for "
            f"{percent(value / n)}, and the formula allows {percent(bound)} at most.{seldom}"
        ),
        answer=(
            "Each different answer is charged once, at most `answers` of them. A further one repeats the last, so that "
            "no silence tells of it. README and `dither privacy --scenario year` say that times of change are not "
            "hidden."
        ),
        left=(
            "The day itself. A metric whose change is the secret must not memoize: ask it under fresh noise, few times."
        ),
        across="days",
        up="told rightly",
        lines=tuple(line for line in lines if line.last.n),
        least=0.0,
    )


def _differs(metric: Metric, answers: tuple[object, object]) -> float | None:
    """Return how often two answers have different memos; None where cells differ."""
    if metric.cells.several or metric.charges < 2:
        return None
    one, other = (law_of_permanent(metric, 0)(answer, Paths()) for answer in answers)
    return 1.0 - _meet(one, other)


def _meet(one: Law, other: Law) -> float:
    if isinstance(one, BitsLaw) and isinstance(other, BitsLaw):
        total = 1.0
        for p, q in zip(one.ones, other.ones, strict=True):
            total *= float(p * q + (1 - p) * (1 - q))
        return total
    assert isinstance(one, TableLaw)
    assert isinstance(other, TableLaw)
    return float(sum(p * other.probabilities.get(memo, 0) for memo, p in one.probabilities.items()))


@frozen
class _Seen:
    """The watcher's verdict on a device: whether its answer changed, and after how many periods if it did."""

    changed: bool
    when: int


class _Watcher:
    """Somebody who weighs, for each day, one memo against one before that day and another one from it on."""

    def __init__(self, metric: Metric, answers: tuple[object, object], periods: int) -> None:
        self._reader = reader_of_copies(metric, answers)
        self.log_odds = self._reader.log_odds
        self.days = range(periods // 4, periods - periods // 4)
        """Numbers of periods after which answers change, equally likely."""

    def watch(self, seen: Sequence[Reported]) -> _Seen:
        """Return whether a change is likelier than none, and its likeliest day. Beforehand both are 1 : 1."""
        one, other = self._reader.learn(seen[0].cell)
        reports = [each.report for each in seen]

        def of(kept: Sequence[int]) -> tuple[float, float]:
            summary = one.summary(kept)
            return one.likelihood(summary), other.likelihood(summary)

        stays = log_sum(list(of(reports)))
        changes = []
        for when in self.days:
            (a, b), (c, d) = of(reports[:when]), of(reports[when:])
            changes.append(log_sum([a + d, b + c]))
        when = self.days[changes.index(max(changes))]
        return _Seen(log_sum(changes) - log(len(changes)) > stays, when)


# New terms each month: a registry that tries to have memos drawn again and again.

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


# Linking: who is recognised among devices with the same answer, by the noise that they repeat.

SIZES = (2, 5, 10, 20, 40, 100, 200)
"""How many devices have the same answer. All are parts of POPULATION."""
CROWDS = 5
EXACT = (2, 3, 5, 8, 12, 20, 30, 45, 70, 100, 140, 200)


def linking(trial: Trial) -> Attack | None:
    """An operator who joins uploads of before and of after."""
    groups = linkable(list(trial.registry.metrics.values()))
    if not groups:
        return None
    metrics = max((metrics for _, metrics in groups), key=len)
    crowd = Crowd(trial.registry, metrics)
    places = [[metrics.index(metric) for metric in group] for _, group in groups]

    def work(share: int) -> list[list[int]]:
        return [_joined(crowd, places, trial.rng) for _ in range(share)]

    rows = [row for share in trial.spread(work, CROWDS, POPULATION) for row in share]
    rights = iter([sum(column) for column in zip(*rows, strict=True)])
    lines = []
    for name, group in groups:
        cells = tuple(metric.cells for metric in group)
        r = {size: linked_share(cells, size) or 0.0 for size in {*SIZES, *EXACT}}
        points = tuple(Score(size, next(rights), CROWDS * POPULATION, min(1.0, r[size]), paired=True) for size in SIZES)
        lines.append(Way(_by_what(name), DEVICE, points, tuple((size, r[size]) for size in EXACT), by_formula=True))
    last = lines[-1].last
    return Attack(
        name="linking",
        title="Recognising a device by its noise",
        warning=(
            "Noise that is kept is a mark. An operator who keeps all reports can join those of one device, across "
            "addresses and days, though its answers stay hidden. A cohort, and several memos of one device, make the "
            "mark sharper."
        ),
        source=(
            "Naor, Vexler 2020, on tracking by memoized noise; Erlingsson, Pihur, Korolova 2014, on kept noise as an "
            "identifier"
        ),
        measured=(
            f"{CROWDS} groups of {POPULATION} devices answer alike for {BEFORE} periods and {BEFORE} more. Each device "
            "of before is paired with the likeliest of after. "
            f"By {'all memos together' if len(groups) > 1 else 'the memo'} {percent(last.share)} are joined rightly "
            f"among {POPULATION}, by the formula {percent(last.bound or 0)}."
        ),
        answer=(
            "One cohort for all metrics, few symbols for a memo, and the share R(200) in `dither privacy`, on pages "
            "and in audits, so that whoever writes a registry sees what it costs."
        ),
        left=(
            "The mark itself: each memo adds to it. Addresses join uploads better than any noise: put a proxy in front "
            "that drops them."
        ),
        across="devices with the same answer",
        up="devices joined rightly",
        lines=tuple(lines),
        least=0.0,
    )


def _by_what(name: str) -> str:
    return "recognised by all of them together" if name == TOGETHER else f"recognised by {name}"


def _joined(crowd: Crowd, places: Sequence[Sequence[int]], rng: Rng) -> list[int]:
    """Return how many of a new crowd are paired rightly, by each group of metrics among so many alike."""
    before, after = crowd.lives(rng)
    found = []
    for chosen in places:
        ones, others = (_by(traces, chosen) for traces in (before, after))
        for size in SIZES:
            starts = range(0, POPULATION, size)
            found.append(sum(paired(ones[at : at + size], others[at : at + size], rng) for at in starts))
    return found


def _by(traces: Sequence[Trace], places: Sequence[int]) -> list[Trace]:
    return [tuple(trace[place] for place in places) for trace in traces]
