"""Attacks on fresh noise: answers that stay and are told every day, and a report among others in published figures."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from math import exp, inf, log

from dither.attacking.trials import (
    DEVICE,
    NOTHING_BETWEEN,
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
)  # fmt: skip
from dither.auditing.claims import law_of_report, report_of
from dither.auditing.laws import Law, Paths, TableLaw
from dither.auditing.simulated import Reported, Simulated, cut_down, reports_of
from dither_shared.registry import Metric
from dither_shared.rng import Rng

# Answers that stay, told every day: without noise, and under noise that is drawn anew each time.

REPORTS = 200
"""The most reports that `averaging` follows."""
STATES_MAX = 20_000
"""A sum of more values is not followed exactly."""
NEARLY_ALL = 0.95


def plain(trial: Trial) -> Attack | None:
    """An operator who keeps answers without noise."""
    metric = trial.fresh or trial.memoized
    if metric is None:
        return None
    one, other = trial.answers(metric)

    def life(rng: Rng) -> Sequence[bool]:
        answer = (one, other)[rng.uniform(2)]
        kept = answer  # all that there is between a device and its operator
        return [kept == answer for _ in steps]

    steps = trial.steps(metric)
    points = _points(metric, steps, trial.tally(life, 1), trial.devices)
    return Attack(
        name="plain",
        title="No noise at all",
        warning=(
            "Telemetry as it mostly is: answers are sent as they are, beside an address and often an identifier. The "
            "promise is a policy. Anyone who runs the server, breaks into it or compels its owner reads every answer."
        ),
        source="Warner 1965, on answers that people will not give away as they are",
        measured=f"One report is enough: {percent(points[0].share)} of {trial.devices:,} devices on the first day.",
        answer=(
            "Each device randomizes its answer before anything leaves. The server has no answer that it could give "
            "away."
        ),
        left="That a device runs the app, its address, and when it uploads are as visible as with any other telemetry.",
        across="days",
        up="devices guessed right",
        lines=(Way("answers as they are", NOTHING_BETWEEN, points),),
    )


def redrawn(trial: Trial) -> Attack | None:
    """An operator who keeps a year of reports, each under fresh noise."""
    metric = trial.fresh
    if metric is None:
        return None
    steps, charge = trial.steps(metric), metric.charge
    endless = _points(metric, steps, _by_randomizer(trial, metric, steps), trial.devices, lambda step: step * charge)
    capped = _points(
        metric, steps, _by_devices(trial, metric, steps), trial.devices, lambda step: min(step, metric.charges) * charge
    )
    return Attack(
        name="redrawn",
        title="Noise that is drawn anew each day",
        warning=(
            "Noise averages away. An early deployment renewed its budget every day, so that what could be lost grew "
            "with the days since a person opted in, without an end, though each report kept its promise."
        ),
        source="Tang, Korolova, Bai, Wang, Wang 2017, on macOS 10.12",
        measured=(
            f"Without an end, the operator guesses {percent(endless[-1].share)} of {trial.devices:,} devices right "
            f"after {trial.days} days. Devices of dither have {_reports(metric)} of {metric.name}: "
            f"{percent(capped[-1].share)}, and the formula allows {percent(capped[-1].bound or 1)} at most."
        ),
        answer=(
            "A metric says how many reports a device has for its whole life, and the device counts them in its own "
            "file, before the first byte of each leaves. No server, rev or new owner refreshes the count. Afterwards "
            "the device is silent."
        ),
        left=(
            "Up to that number the odds multiply: two reports tell twice epsilon. A cleared or copied device file has "
            "a budget of its own."
        ),
        across="days",
        up="devices guessed right",
        lines=(
            Way("noise redrawn each day, without an end", RANDOMIZER, endless),
            Way(f"dither: {_reports(metric)}, then silence", DEVICE, capped),
        ),
    )


def averaging(trial: Trial) -> Attack | None:
    """How fast fresh noise averages away, beside the exact law and the bound."""
    metric = trial.fresh
    if metric is None:
        return None
    steps = [step for step in (1, 2, 3, 4, 5, 7, 10, 14, 20, 30, 50, 100, REPORTS) if step <= trial.days]
    counts = _by_randomizer(trial, metric, steps)
    points = tuple(
        Score(step, right, trial.devices, most_sure(step * metric.charge) if step > 1 else _of_one(metric))
        for step, right in zip(steps, counts, strict=True)
    )
    computed = tuple(_computed(trial, metric, steps))
    enough = next((point for point in points if point.share >= NEARLY_ALL), None)
    found = (
        f"{enough.x:.0f} reports are enough to guess {percent(NEARLY_ALL)} of the devices right"
        if enough
        else f"{steps[-1]} reports are not enough to guess {percent(NEARLY_ALL)} of the devices right"
    )
    return Attack(
        name="averaging",
        title="Averaging, report by report",
        warning=(
            "If an answer stays and its noise does not, the average of the reports comes to the answer. The number of "
            "reports that it takes is small: it falls with the square of epsilon."
        ),
        source="Erlingsson, Pihur, Korolova 2014, who draw noise once and keep it, for this reason",
        measured=(
            f"At epsilon {metric.epsilon} a report, {found}. The first one alone: {percent(points[0].share)}. A device "
            f"of dither sends {_reports(metric)} of {metric.name} in its life: the rest is what would come of more."
        ),
        answer=(
            "Reports are few and counted, or they copy one memo. `dither metrics check` refuses a registry whose "
            "metrics could spend more than the device's epsilon."
        ),
        left=(
            "Nothing of this is hidden by more devices: it is about one device, and the guess is as good for each of "
            "them."
        ),
        across="reports kept of each device",
        up="devices guessed right",
        lines=(
            Way(f"{metric.name}: as if a device sent so many, not {_reports(metric)}", RANDOMIZER, points, computed),
        ),
    )


def _reports(metric: Metric) -> str:
    return "1 report" if metric.charges == 1 else f"{metric.charges:,} reports"


def _of_one(metric: Metric) -> float:
    return most_sure_of(metric.cells.exp_epsilon)


def _points(
    metric: Metric,
    steps: Sequence[int],
    counts: Sequence[int],
    n: int,
    micro: Callable[[int], int] | None = None,
) -> tuple[Score, ...]:
    """Return points over days, with the bound that so many micro-epsilon set."""
    return tuple(
        Score(step * metric.period_days, right, n, most_sure(micro(step)) if micro else None)
        for step, right in zip(steps, counts, strict=True)
    )


def _by_randomizer(trial: Trial, metric: Metric, steps: Sequence[int]) -> list[int]:
    """Return how many devices are guessed right, whose randomizer never falls silent."""
    answers, reader = trial.answers(metric), reader_of(metric, trial.answers(metric))
    draws = [report_of(metric, cell) for cell in range(metric.cells.each)]

    def life(rng: Rng) -> Iterator[bool]:
        first = not rng.uniform(2)
        answer, reports = answers[not first], list[Reported]()
        for step in range(1, steps[-1] + 1):
            cell = metric.cells.draw(rng)
            reports.append(Reported(cell, draws[cell](answer, rng)))
            if step in steps:
                yield guess(reader.log_odds(reports), rng) == first

    return trial.tally(lambda rng: list(life(rng)), steps[-1])


def _by_devices(trial: Trial, metric: Metric, steps: Sequence[int]) -> list[int]:
    """Return how many whole devices are guessed right."""
    answers, reader = trial.answers(metric), reader_of(metric, trial.answers(metric))
    registry = cut_down(trial.registry, [metric])
    asked = registry.metrics[metric.name]

    def life(rng: Rng) -> Iterator[bool]:
        first = not rng.uniform(2)
        answer, reports = answers[not first], list[Reported]()
        with Simulated(registry, rng) as simulated:
            for step in range(1, steps[-1] + 1):
                simulated.device.record(asked, answer)
                reports += (each for upload in simulated.send() for each in reports_of(upload, asked))
                simulated.travel(asked.period_days)
                if step in steps:
                    yield guess(reader.log_odds(reports), rng) == first

    return trial.tally(lambda rng: list(life(rng)), steps[-1])


# The exact law.


def _computed(trial: Trial, metric: Metric, steps: Sequence[int]) -> Iterator[tuple[float, float]]:
    """Yield the exact share that is guessed right, while the sum of log-likelihoods takes few values."""
    if metric.cells.several:
        return
    one, other = (law_of_report(metric, 0)(answer, Paths()) for answer in trial.answers(metric))
    levels = _levels(one, other)
    if levels is None:
        return
    laws: dict[int, tuple[float, float]] = {0: (1.0, 1.0)}
    for step in range(1, steps[-1] + 1):
        laws = _added(laws, levels)
        if len(laws) > STATES_MAX:
            return
        if step in steps:
            yield step, sum(max(pair) for pair in laws.values()) / 2


GRAIN = 10**9
"""Log-likelihoods are the same if they are so in so many parts of one."""


def _levels(one: Law, other: Law) -> dict[int, tuple[float, float]] | None:
    """Return the probabilities, under either answer, of each log-likelihood that a report can have."""
    if not (isinstance(one, TableLaw) and isinstance(other, TableLaw)):
        return None
    pairs = Counter((p, other.probabilities[report]) for report, p in one.probabilities.items())
    levels: defaultdict[int, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for (p, q), count in pairs.items():
        key = round(GRAIN * log(p / q))
        levels[key] = levels[key][0] + count * float(p), levels[key][1] + count * float(q)
    return dict(levels)


def _added(
    laws: dict[int, tuple[float, float]], levels: dict[int, tuple[float, float]]
) -> dict[int, tuple[float, float]]:
    """Return the law of a sum with one more report."""
    total: defaultdict[int, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for place, (p, q) in laws.items():
        for level, (a, b) in levels.items():
            before = total[place + level]
            total[place + level] = before[0] + p * a, before[1] + q * b
    return dict(total)


# A report among others in the figures that readers get, and one that is surrounded by an attacker's own.

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
