"""A memo: noise that is drawn once for each answer and kept; and a memo whose answer changes."""

from collections.abc import Sequence
from math import log

from dither.attacking.guessing import guess, reader_of, reader_of_copies
from dither.attacking.trials import DEVICE, Attack, Score, Trial, Way, most_sure, most_sure_of, percent
from dither.auditing.exact import Paths
from dither.auditing.laws import BitsLaw, Law, TableLaw
from dither.auditing.memo_likelihood import log_sum
from dither.auditing.plans import law_of_permanent
from dither.auditing.simulated import Reported, Simulated, cut_down, reports_of
from dither_shared.frozen import frozen
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng

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
