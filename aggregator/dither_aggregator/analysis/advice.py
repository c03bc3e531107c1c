"""Advice: where other questions, or another schedule, show more for the same price, one line each with its figures.

    spread or early     all installs answer an early metric in the first days after a release, a spread one in a year
    more ranges         where in its range a number lies is left open, which makes the interval of a mean wider
    a table or flags    a share of one half has the variance V by a flag, and another one by a column of a table

        V = 1/4 coth(epsilon / 2)^2     a flag by GRR: s (1 - s) / (p - q)^2 with s = 1/2

Flags of each arm are compared by `dither ask --file`, which adds their errors as if they were opposed: with z for all
columns' questions, and N = n / arms reports of each, a difference of

    (2 z + sqrt(2) z(80 %)) sqrt(V / N)

is told four times in five. A table's is that of `planning`. Flags in place of k columns have a k-th each of the
table's loss for a life, epsilon times reports, in reports of at most its epsilon.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import date
from decimal import ROUND_DOWN, Decimal
from math import ceil, sqrt, tanh
from statistics import NormalDist

from dither_aggregator.analysis.installs import (
    HALF_LOST,
    YEAR_DAYS,
    Outlook,
    PlannedLife,
    Reread,
    outlook_of,
    plain,
    reports_of,
)
from dither_aggregator.analysis.planning import column_variance, effect_of_one, tests_of
from dither_aggregator.analysis.planning_numbers import mean_parts, ranges_alike
from dither_shared.accounting import NEARLY_CERTAIN, sure
from dither_shared.domains import OTHER, Buckets, Columns, NumberDomain, Values
from dither_shared.domains.columns import COLUMNS_MAX, COLUMNS_MIN, symbols_of
from dither_shared.errors import DitherError
from dither_shared.exact import EPSILON_MAX, EPSILON_MIN, exp_of_micro, from_micro
from dither_shared.frozen import replaced
from dither_shared.kinds import TableKind
from dither_shared.kinds.number import BUCKETS_MAX
from dither_shared.kinds.precision import ALPHA, POWER, SIDES
from dither_shared.registry import LINKED_MAX, Metric

WORTH_A_LINE = 0.95
"""Other questions are named if their error is at most this part of the present one."""
_POWER = NormalDist().inv_cdf(POWER)
_CENT = Decimal("0.01")
MEMO_ANSWERS = 2
"""A memoized state that may change once."""
ARM_CHARACTERS_MAX = 20


def advice(now: Outlook, quiet_days: int, reread: Reread, today: date | None = None) -> Iterator[str]:
    """Yield a line for each thing that the metric's owner may want to decide otherwise."""
    if not now.metric.memoized:
        if now.metric.schedule == "spread":
            yield from _of_spread(now, quiet_days, reread, today)
        elif now.installs.stay is not None:
            yield from _of_study(now, quiet_days, today)
        yield from _of_state(now, quiet_days, reread, today)
    if isinstance(now.metric.asked.domain, Columns):
        yield from _of_table(now, now.metric.asked.domain, quiet_days)
    if isinstance(now.metric.asked.domain, Buckets):
        yield from _of_ranges(now, now.metric.asked.domain, reread)


def advice_together(outlooks: Sequence[Outlook]) -> Iterator[str]:
    """Yield a line where a table would tell which flags go together, and one of flags that may be of arms."""
    alike: dict[tuple[object, ...], list[Outlook]] = defaultdict(list)
    for now in outlooks:
        metric = now.metric
        if tuple(metric.values) == ("no", "yes") and not metric.memoized:
            alike[metric.epsilon, metric.charges, metric.schedule, metric.period_days].append(now)
    for found in alike.values():
        metric, names = found[0].metric, [each.metric.name for each in found]
        epsilon, n = metric.epsilon * len(found), found[0].week.reports
        if n >= 1 and (arms := _arms_of(names)):
            told = _difference(len(found) // arms, sqrt(_of_flag(metric.epsilon) / n))
            least = f"a difference of {_points(told)}" if told <= 1 else "no difference"
            yield (
                f"if {', '.join(names)} are of the arms of an experiment, and each is answered by its own arm alone, "
                f"dither ask tells {least} between two arms in a week; --installs are then those of one arm"
            )
        if not (COLUMNS_MIN <= len(found) <= COLUMNS_MAX and epsilon <= EPSILON_MAX and n >= 1) or _arms_of(names):
            continue
        asked = TableKind.asked_of({each.metric.name: Values(("no", "yes", OTHER)) for each in found}, epsilon)
        table, flag = column_variance(Columns.of(asked.domain), asked.cells, 0), _of_flag(metric.epsilon)
        yield (
            f"keep {', '.join(names)} as flags, unless you ask which of them go together or compare arms of an "
            f"experiment: then a table of them with epsilon = {plain(epsilon)} is as private, and a share of one half "
            f"has an interval {_points(SIDES * sqrt(table / n))} wide in it in a week, not "
            f"{_points(SIDES * sqrt(flag / n))}"
        )


def _arms_of(names: Sequence[str]) -> int:
    """Return of how many arms of an experiment flags may be, as `_of_table` names them; 0 if of none."""
    for place in (found.end() for found in re.finditer("_", names[0])):
        arms = {name[place:] for name in names if name.startswith(names[0][:place])}
        columns = {name.removesuffix(arm) for name in names for arm in arms if name.endswith(f"_{arm}")}
        if len(arms) > 1 and {f"{column}{arm}" for column in columns for arm in arms} == set(names):
            return len(arms)
    return 0


def _of_spread(now: Outlook, quiet_days: int, reread: Reread, today: date | None) -> Iterator[str]:
    try:  # of all installs, to which a release comes at once, whoever stays
        metric = reread({"schedule": "early"})
    except DitherError:
        return  # compiled
    early = outlook_of(metric, replaced(now.installs, stay=None), quiet_days, today)
    if now.whole.days < YEAR_DAYS:
        possible = early.whole.reports
        lost = now.whole.reports < HALF_LOST * possible
        yield (
            f"of {possible:,.0f} reports that the devices may send until it expires, {now.whole.reports:,.0f} arrive: "
            f'"spread" draws their days from a whole year'
            + f'; schedule = "early" has them all, and shows {early.whole}, not {now.whole}'
            * lost
        )
        if lost:
            return
    if early.week.shows(now.wanted) and not now.week.shows(now.wanted):
        *_, whole = now.windows
        first = "week after its first period" if now.metric.hidden else "first week after a release"
        yield (
            f'schedule = "early" shows {early.week} in the {first}, "spread" {now.whole} in {whole}, at the same '
            f'price: take "early" for one answer, "spread" to follow it over the year'
        )


def _of_ranges(now: Outlook, domain: Buckets, reread: Reread) -> Iterator[str]:
    n = int(now.week.reports)
    if now.week.told is None or now.week.short > 1:
        return
    whole = (domain.edges[-1] - domain.edges[0]) / 10**domain.decimals

    def parts(ranges: int) -> tuple[float, float]:
        asked = reread({"buckets": ranges})
        return mean_parts(NumberDomain.of(asked.asked.domain), asked.cells, n)

    try:
        before, ranges = mean_parts(domain, now.metric.cells, n), ranges_alike(parts, len(domain.edges) - 1)
        after = parts(ranges)
    except DitherError:
        return  # compiled, or its edges are listed
    if ranges > len(domain.edges) - 1 and sum(after) <= WORTH_A_LINE * sum(before):
        noise, left_open, wide, narrow = (_percent(each / whole) for each in (*before, sum(before), sum(after)))
        yield (
            f"of low to high, ranges leave {left_open} open in the mean and noise {noise} in a week: "
            f"buckets = {ranges} {'makes both alike' if ranges < BUCKETS_MAX else 'is the most there are'}, "
            f"with an interval {narrow} wide, not {wide}, at the same price"
        )


def _of_study(now: Outlook, quiet_days: int, today: date | None) -> Iterator[str]:
    together = outlook_of(now.metric, replaced(now.installs, stay=None), quiet_days, today)
    if now.week.reports < HALF_LOST * together.week.reports:
        yield (
            f"--stay counts installs that come as others go; in a study that all join at once, and just after a first "
            f"release, leave it out: all of them answer at once, and the first week shows {together.week}"
        )


def _of_state(now: Outlook, quiet_days: int, reread: Reread, today: date | None) -> Iterator[str]:
    """Yield a line where devices are asked again and memoized answers of a state would show more for the same loss."""
    metric = now.metric
    if metric.charges < 2 or metric.hidden:
        return
    permanent = metric.epsilon * metric.charges / MEMO_ANSWERS
    epsilon = metric.epsilon if metric.epsilon < permanent else permanent / 2
    asked = {"reports": None, "schedule": None, "memoize": True, "answers": MEMO_ANSWERS}
    try:
        memo = reread({**asked, "epsilon": epsilon, "epsilon_permanent": permanent})
    except DitherError:  # of a kind that has no memos, or compiled
        return
    if (memo.linked or 0) > LINKED_MAX:
        return
    then = outlook_of(memo, now.installs, quiet_days, today)
    if then.week.told and then.week.enough and now.week.told:
        if now.week.enough and then.week.told.part > WORTH_A_LINE * now.week.told.part:
            return
        lines = f"answers = {MEMO_ANSWERS}, epsilon = {plain(epsilon)}, epsilon_permanent = {plain(permanent)}"
        yield (
            f"where it is a state that lasts, such as a theme, memoize = true, {lines} in place of reports and "
            f"schedule show {then.week} in a week, not {now.week}, and a guess becomes no surer; that an answer "
            f"changed is not hidden then, a third different answer is not seen, so it suits no mood, and repeated "
            f"noise links a device's reports"
        )


def _of_table(now: Outlook, domain: Columns, quiet_days: int) -> Iterator[str]:
    metric, n = now.metric, now.week.reports
    flags = all(isinstance(each, Values) and len(each.values) == len(("no", "yes", OTHER)) for each in domain.domains)
    if n < 1 or domain.hidden or not (flags or domain.public):
        return
    columns, arms = len(domain.names), max(len(domain.public) - 1, 1)
    widest = max(range(columns), key=lambda column: symbols_of(domain.domains[column]))
    table = column_variance(domain, metric.cells, widest)

    def flag_error(asked: int) -> tuple[str, float]:
        """Return the keys of a flag for each of so many columns, and the standard error of an arm's share of it."""
        epsilon, life = _shared_out(metric, asked)
        reports = reports_of(life, now.installs, quiet_days, now.week.days)
        return f"epsilon = {epsilon:f}, reports = {life.charges}", sqrt(_of_flag(epsilon) * arms / max(reports, 1))

    if not domain.public:
        keys, error = flag_error(columns)
        if error <= WORTH_A_LINE * sqrt(table / n):
            yield (
                f"keep the table if you ask which answers go together; if not, a flag for each column with {keys} is "
                f"as private, and a share of one half has an interval {_points(SIDES * error)} wide in a week, not "
                f"{_points(SIDES * sqrt(table / n))}"
            )
        return
    effect, arm = effect_of_one(table, arms, tests_of(domain, arms)) / sqrt(n), domain.public[0]
    whole = effect * sqrt(n / now.whole.reports)
    in_all = f", and of {_points(whole)} in {list(now.windows)[-1]}" if whole < WORTH_A_LINE * effect else ""
    if whole > 1:
        yield f"no difference between {arm} and the others is told, however large"
        return
    least = f"a difference of {_points(effect)}" if effect <= 1 else "no difference"
    yield f"{least} between {arm} and the others is told in a week{in_all}"
    together = metric.reservation * len(domain.public[1:])  # the registry counts all arms' flags
    if sure(exp_of_micro(together)) > NEARLY_CERTAIN:
        return
    for asked, whose in ((1, "one of its columns alone"), (columns, "each of its columns")):
        keys, error = flag_error(asked)
        told = _difference(asked, error)
        if flags and told <= WORTH_A_LINE * effect:
            names = ", ".join(f"{domain.names[0]}_{value}" for value in _as_names(domain.public[1:]))
            yield (
                f"keep the table if you ask which answers go together; if not, for {whose} a flag for each {arm} "
                f"({names}, which only its {arm} answers) with {keys} costs a device the same, and dither ask tells a "
                f"difference of {_points(told)} in a week; device_epsilon then holds all arms': "
                f"{from_micro(together):g}"
            )


def _difference(columns: int, error: float) -> float:
    """Return the difference that flags of two arms tell, each with this standard error and as many columns."""
    return (-2 * NormalDist().inv_cdf(ALPHA / 2 / columns) + sqrt(2) * _POWER) * error


def _as_names(arms: Sequence[str]) -> Sequence[str]:
    """Return arms as parts of a metric's name, all different."""
    names = [re.sub("[^a-z0-9]+", "_", arm.lower()).strip("_")[:ARM_CHARACTERS_MAX] for arm in arms]
    plain_ = len(set(names)) == len(names) and all(names)
    return names if plain_ else [f"arm_{number}" for number in range(1, len(arms) + 1)]


def _shared_out(metric: Metric, columns: int) -> tuple[Decimal, PlannedLife]:
    """Return the epsilon and the life of a flag for each column, that together cost a device what the table does."""
    of_each = metric.epsilon * metric.charges / columns
    reports = ceil(of_each / metric.epsilon)
    epsilon = max((of_each / reports).quantize(_CENT, ROUND_DOWN).normalize(), EPSILON_MIN)
    life = PlannedLife(reports, metric.schedule, metric.period_days, memoized=False, expires=metric.expires)
    return epsilon, life


def _of_flag(epsilon: Decimal) -> float:
    """Return n times the variance of a flag's share of one half."""
    return 0.25 / tanh(float(epsilon) / 2) ** 2


def _percent(part: float) -> str:
    return f"{100 * part:.2g} %"


def _points(part: float) -> str:
    return f"{100 * part:.2g} points"
