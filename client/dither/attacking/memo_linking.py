"""Linking: who is recognised among devices with the same answer, by the noise that they repeat."""

from collections.abc import Sequence

from dither.attacking.trials import DEVICE, Attack, Score, Trial, Way, percent
from dither.auditing.linking import BEFORE, POPULATION, TOGETHER, Crowd, Trace, linkable, paired
from dither_shared.accounting.linking import linked_share
from dither_shared.rng import Rng

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
