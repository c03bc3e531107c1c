"""Releases: noisy counts of a metric's last closed window, charged, drawn once and kept.

    last closed window --charge--> entry of the ledger --draw--> noisy counts, kept --> all that is published

The registry and the calendar alone say which window it is, and of which plan: a metric without a report is
published as well. The ledger is the store's (`store/release_ledger.py`). A backup that is older than a release knows
nothing of it. Two rules hold all the same:

- the noise is a function of the store's secret, which backups have, and of the tally: the same counts are published as
  the same bytes, and no noise is ever drawn anew for them. Words are an exception where another search proposes other
  texts: the second step is drawn anew then, and costs up to its epsilon again, unless ledger or site has the names;
- releases that a site has go into the ledger first, so no window on that site is published a second time from counts
  that the restored store has lost a part of.

If the site is lost, too, and so are reports, the window is published from what is left, with noise of its own: whoever
kept the first release has two of that window, which cost their epsilon each.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import ROUND_UP, Decimal
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np

from dither_aggregator.accounting import epsilon_of_device, law_of, rounded_down
from dither_aggregator.analysis.estimands import estimand_of
from dither_aggregator.analysis.reading import reports_max
from dither_aggregator.analysis.released import ReleasedRow, ReleasedTally, released_counts
from dither_aggregator.analysis.rows import Ranked, rank
from dither_aggregator.analysis.shares import UNLISTED
from dither_aggregator.counting import Counts
from dither_aggregator.store import Store, StoredPlan, StoreError
from dither_aggregator.store.document_kinds import COMMAND_LINE
from dither_aggregator.store.documents import GRACE
from dither_aggregator.store.release_ledger import (
    NotPublished,
    Release,
    commitment_to,
    seal,
    sealed_by,
    seed_of,
)
from dither_shared.domains import Columns, NumberDomain
from dither_shared.exact import digits, to_micro
from dither_shared.kinds.precision import precision_of
from dither_shared.mechanisms import PureMechanism
from dither_shared.registry import Metric, Registry
from dither_shared.releases import ReleaseNoise, last_window, name_of, reports_in, window_of
from dither_shared.rng import Rng, keyed_rng

# Discrete Laplace and Gaussian noise, drawn exactly: every choice is a uniform integer compared with an integer.
#
#     Laplace     P[k] = (1 - a) / (1 + a) a^|k|        a = exp(-s / t), with s and t integers
#     Gaussian    P[k] proportional to exp(-k^2 / (2 V))        V a ratio of integers, about its variance
#
# Canonne, Kamath, Steinke 2020, algorithms 1 to 3. A coin of probability exp(-x) for a rational 0 <= x <= 1 counts how
# long coins of x/1, x/2, x/3, ... come up: P[the first k do] = x^k / k!, so that the number of those that did is even
# with probability 1 - x + x^2/2 - ... = exp(-x).
#
# A geometric number with ratio exp(-1 / t) is u + t v: u uniform below t, kept with probability exp(-u / t), and v the
# number of coins of exp(-1) that come up. Its quotient by s is geometric with ratio exp(-s / t). A sign makes it
# two-sided. Zero has two signs, and would come twice as often as it should: -0 is drawn again.
#
# A Gaussian number is a Laplace one of a whole scale t that is kept with probability exp(-(|k| - V / t)^2 / (2 V)),
# else drawn again: the product of both is exp(-k^2 / (2 V)), times what does not depend on k. Any t gives this law; few
# are drawn again where t is near the square root of V.
#
# Nothing is rounded, so the privacy of a release is that of the formula. A float in its place would not have it: which
# of them can come up tells what they were added to (Mironov 2012). Here the noise and the counts are integers.


def draw_noise(law: ReleaseNoise, rng: Rng) -> int:
    """Return the noise of one count of a release."""
    if law.gaussian is None:
        return discrete_laplace(law.scale, rng)
    return discrete_gaussian(law.gaussian, rng)


def exp_coin(numerator: int, denominator: int, rng: Rng) -> bool:
    """Return True with probability exp(-numerator / denominator), of a ratio of 0 or more: above 1 by a coin a unit."""
    while numerator > denominator:
        if not exp_coin(1, 1, rng):
            return False
        numerator -= denominator
    place = 1
    while rng.uniform(denominator * place) < numerator:
        place += 1
    return place % 2 == 1


def discrete_laplace(scale: Fraction, rng: Rng) -> int:
    """Return an integer k with probability proportional to exp(-|k| / scale); scale is above 0."""
    t, s = scale.numerator, scale.denominator
    while True:
        u = rng.uniform(t)
        if not exp_coin(u, t, rng):
            continue
        v = 0
        while exp_coin(1, 1, rng):
            v += 1
        size = (u + t * v) // s
        negative = rng.uniform(2) == 1
        if size or not negative:
            return -size if negative else size


def discrete_gaussian(variance: Fraction, rng: Rng) -> int:
    """Return an integer k with probability proportional to exp(-k^2 / (2 variance)); variance is above 0."""
    a, b = variance.numerator, variance.denominator
    t = isqrt(a // b) + 1
    while True:
        drawn = discrete_laplace(Fraction(t), rng)
        if exp_coin((abs(drawn) * b * t - a) ** 2, 2 * a * b * t * t, rng):
            return drawn


MISSING_MAX = 53
"""So many windows without a release are named."""
SealedRelease = Mapping[str, Any]
"""A release as a site has it, with the seal of the store that published it."""


def publish(store: Store, registry: Registry, known: Iterable[SealedRelease] = ()) -> tuple[list[Release], list[str]]:
    """Publish the last closed window of each metric that a registry publishes, unless it is.

    Nor is one published that began too early, or after the last report that may come of a question that has expired;
    and none of a rev that is retired, for some of its days have no reports.

    `known` are the releases that a site has. Returns all releases, and why windows are not published, a sentence each:
    what they would cost devices in a year, or counts that are not there. Raises StoreError where nothing can be
    published, and where the site has a release that is not this store's.
    """
    if registry.app != store.app:
        raise StoreError(f"the registry is of app {registry.app}, and the store of {store.app}")
    if registry.publish_epsilon_year is None:
        raise StoreError("no metric of the registry is published: `publish` says so, in metrics.toml")
    refused = []
    _take_over(store, known)
    for name in registry.published:
        metric = registry.metrics[name]
        try:
            _publish(store, store.stored(metric.plan), registry)
        except KeyError:
            refused.append(f"{metric.name} is not published: its plan is not loaded; `dither metrics load` loads it")
        except NotPublished as error:
            refused.append(str(error))
    return [each for each in store.documents(Release) if each.counts is not None], refused


def _publish(store: Store, stored: StoredPlan, registry: Registry) -> None:
    asked = registry.metrics[stored.plan.metric]
    publishing, micro_year, delta = asked.publishing, registry.publish_epsilon_year, registry.publish_delta
    assert publishing is not None  # the caller goes through those that have it
    assert micro_year is not None  # nor is there one without the other: `prove_releases`
    first, last = last_window(publishing.window, store.sealed())
    if stored.retired or first < first_window(stored, publishing.window) or first >= stored.expires + GRACE:
        return
    _check_loaded(asked, stored)
    days = (last - first).days + 1
    metric, names, reports = (
        stored.plan.metric,
        precision_of(asked.kind).released_names(asked.asked),
        device_reports(stored, days),
    )
    noise = ReleaseNoise.of(stored.plan, publishing.micro, reports, names, delta)
    entry = Release(
        metric,
        stored.question,
        stored.plan,
        publishing.window,
        first,
        publishing.micro,
        reports,
        reports_max(stored, days),
        store.clock_day(),
        names=names,
        rho=noise.rho,
        delta=delta if noise.rho else None,
    )
    kept = {each.document_id: each for each in store.documents(Release)}.get(entry.document_id)
    if kept is not None and kept.plan != entry.plan:
        raise NotPublished(
            f"{entry.document_id} is not published of rev {entry.plan.rev}: that window is rev {kept.plan.rev}'s"
        )
    if kept is not None and kept.counts is not None:
        return
    if first < store.tallies_from():
        raise NotPublished(f"{entry.document_id} is not published: its counts are kept from {store.tallies_from()} on")
    if kept is None:
        seed = _seed(store, entry, _raw(store, entry))
        store.note(COMMAND_LINE, "release charge", f"{entry.document_id}, epsilon {entry.epsilon:g}")
        kept = store.charge_release(replace(entry, commitment=commitment_to(seed)), to_micro(micro_year), delta)
    _draw(store, kept)


def _check_loaded(asked: Metric, stored: StoredPlan) -> None:
    """Raise NotPublished where the store has another registry than the one in hand.

    A plan does not say how often a device reports: apps of a registry that allows more reports than any that was loaded
    may be in the field already, and the noise would be too little for them.
    """
    name, load = asked.name, "`dither metrics load` loads this registry"
    if not stored.current:
        raise NotPublished(f"{name} is not published: rev {asked.rev} is not what the store asks now; {load}")
    if asked.reservation > max(stored.reservation, stored.lowered_from):
        raise NotPublished(f"{name} is not published: a device may send more reports than the store knows of; {load}")


def missing(store: Store, registry: Registry, releases: Iterable[Release]) -> dict[str, list[str]]:
    """Return the closed windows of each published metric that no release is of, by name: the latest MISSING_MAX.

    They are those of the plan that is asked now. Calendar, plan and ledger say which: no count does.
    """
    found, kept = dict[str, list[str]](), list(releases)
    for name, publishing in registry.published.items():
        stored = next((each for each in store.plans() if each.plan == registry.metrics[name].plan), None)
        if stored is None or stored.since is None:
            continue
        own = [each for each in kept if each.metric == name]
        first = first_window(stored, publishing.window)
        while (last := window_of(publishing.window, first)[1]) <= store.sealed() and first < stored.expires + GRACE:
            if not any(each.first <= last and first <= each.last for each in own):
                found.setdefault(name, []).append(name_of(publishing.window, first))
            first = last + timedelta(days=1)
    return {name: names[-MISSING_MAX:] for name, names in found.items()}


def first_window(stored: StoredPlan, window: str) -> date:
    """Return the first day of the first window of which the store has been asking under a plan from the begin.

    One that began before has the reports of a part of its days: those of before are of an earlier rev, or of nobody. A
    plan that a registry left out and has again begins anew, and so does one that was retired and taken back. The day on
    which a plan was loaded says so, not the day of its first report, which tells that somebody sent one.
    """
    if stored.since is None:
        return date.min
    first, last = window_of(window, stored.since)
    return first if first == stored.since else last + timedelta(days=1)


def device_reports(stored: StoredPlan, days: int) -> int:
    """Return r: the most reports of one device under a plan in so many days, whichever registry its app ships.

    See `releases.reports_in`, which has the proof.
    """
    cells = stored.plan.cells
    if not stored.plan.once_a_day:
        raise NotPublished(f"{stored.plan.metric}: devices of this plan may send several reports a day; raise its rev")
    most = max(stored.reservation, stored.lowered_from) // cells.charge
    return reports_in(days, memoized=cells.memoized, reports=max(most, 1))


def _draw(store: Store, entry: Release) -> None:
    """Draw the counts of an entry that was charged; raise NotPublished where the tally is another one than then.

    A site shows by that refusal that raw counts changed. These are not drawn in place of the charged ones: a store that
    was restored cannot know that nothing of the charge was published.
    """
    charged = replace(entry, names=()) if entry.plan.kind.searched else entry
    raw = _raw(store, charged)
    seed = _seed(store, charged, raw)
    if commitment_to(seed) != entry.commitment:
        raise NotPublished(
            f"{entry.document_id} was charged for other counts than the store has now: its noise is not drawn"
        )
    if entry.plan.kind.searched:
        if not entry.names:  # kept before they are looked up: what is charged is looked up for one list alone
            entry = store.draw_release(replace(entry, names=found_names(raw, entry, seed)))
        raw = _raw(store, entry)
        seed = _seed(store, entry, raw)  # of the names as well: no two lists have the same noise
    store.draw_release(replace(entry, counts=noisy(raw, entry, seed)))


def found_names(raw: Counts, entry: Release, seed: bytes) -> tuple[str, ...]:
    """Return the names that a search proposes which reads noisy counts alone: of all cells but the last part's.

    `raw` has all counts of the tally. They are so many that neither store nor site keeps the noisy ones.
    """
    *levels, _ = entry.plan.cells.parts
    read, searched = sum(part.cells * part.mechanism.shape.size for part in levels), np.zeros_like(raw)
    searched[:read] = noisy(raw[:read], entry, seed)
    tally = ReleasedTally.of(entry.plan, searched, entry.noise, entry.repeats)
    return estimand_of(entry.plan).found_names(tally)


def noisy(raw: Counts, entry: Release, seed: bytes) -> tuple[int, ...]:
    """Return raw counts with the noise of a seed: of the release's law, on each."""
    rng, law = keyed_rng(seed, b"release"), entry.noise
    return tuple(count + draw_noise(law, rng) for count in raw.tolist())


def _raw(store: Store, entry: Release) -> Counts:
    """Return the counts of a window that get noise: int64[counts_of(cells, names)]."""
    counts = np.zeros(entry.plan.cells.tally_size, dtype=np.int64)
    for epoch in store.epochs(entry.plan, entry.first, entry.last):
        counts += store.tally(entry.plan, epoch).counts
    return released_counts(entry.plan, entry.names, counts)


def _seed(store: Store, entry: Release, raw: Counts) -> bytes:
    return seed_of(entry, raw.astype("<i8").tobytes(), store.signing_secret(b"release noise"))


# Sites, which know what was published when the store does not.


def sealed(store: Store, release: Release) -> dict[str, Any]:
    """Return what a site has of a release."""
    return {**release.published(), "seal": seal(release, store.signing_secret(b"release seal"))}


def _take_over(store: Store, known: Iterable[SealedRelease]) -> None:
    """Put into the ledger what a site has and the ledger has not."""
    secret = store.signing_secret(b"release seal")
    kept = {each.document_id: each for each in store.documents(Release)}
    for document in known:
        tag = document.get("seal")
        release = Release.from_document({name: value for name, value in document.items() if name != "seal"})
        if release.counts is None or not sealed_by(release, tag, secret):
            raise StoreError(f"{release.document_id} on the site was not published by this store, or was changed")
        here = kept.get(release.document_id)
        if here is not None and here.counts is not None:
            if here.published() != release.published():
                raise StoreError(f"{release.document_id} was published before, with other counts: a site has it")
            continue
        store.note(COMMAND_LINE, "release take over", release.document_id)
        store.take_over_release(replace(release, charged=store.clock_day()))


# The reading of a release: everything is computed from its noisy counts and its plan, and from nothing else.
#
# n is the sum of the noisy counts, over w where a report names w values; of texts it is counted by itself. The estimand
# says what noisy counts tell (`Estimand.released`); errors have the variance of the noise as well. Intervals say which
# values stand out, how they rank and whether the reports are too few.


SURE = 5.0
"""So many standard errors fewer reports than the noisy counts say are surely there."""


@dataclass(frozen=True)
class PublishedReading:
    """All that is shown of a release."""

    release: Release
    n: int
    """The sum of the noisy counts: about so many reports. It may be negative."""
    n_error: float
    """The standard error of that, by the noise."""
    rows: Sequence[ReleasedRow]
    """One for each value, in the plan's order, or for each statistic; empty where the reports are too few."""
    noise_floor: float = 0.0
    """The standard error of a value that nobody has, or the usual one of shares of ranges and columns."""

    @property
    def too_few(self) -> bool:
        """Whether nothing can be told: n is not sure, or every interval is wider than all that a share may be."""
        return not self.rows

    @property
    def shares(self) -> Sequence[ReleasedRow]:
        """The rows that are parts of the reports."""
        return [row for row in self.rows if row.is_share]

    @property
    def about(self) -> str:
        """How many reports, in words: about so many, or the most where they are not twice the error."""
        wide = 2 * self.n_error
        if self.n < wide:
            return f"no more than about {max(self.n, 0) + wide:,.0f} reports"
        return f"about {self.n:,} reports, give or take {wide:,.0f}"

    @property
    def cut(self) -> Sequence[str]:
        """The ends to which numbers are cut, a sentence for each number or column of numbers."""
        domain = self.release.plan.domain
        named = domain.columns.items() if isinstance(domain, Columns) else [("", domain)]
        return [_cut(name, each) for name, each in named if isinstance(each, NumberDomain)]

    @property
    def searched(self) -> int:
        """How many texts a search proposed, of those that nobody listed; 0 where nothing is searched."""
        release = self.release
        return len(set(release.names) - set(UNLISTED)) if release.plan.kind.searched else 0

    @property
    def named(self) -> int:
        """How many rows are of listed values, or of texts that were looked up."""
        return sum(row.value not in UNLISTED for row in self.rows)

    @property
    def ticks(self) -> int | None:
        """The most values that count of an answer, those listed first; None where all do."""
        plan = self.release.plan
        ticks = PureMechanism.of(plan.cells.mechanism).ticks if plan.kind.several else None
        return ticks if ticks and ticks < len(plan.values) else None

    @property
    def significant(self) -> Sequence[Ranked]:
        """The listed values whose interval lies above zero, the largest first."""
        listed = [row for row in self.shares if row.value not in UNLISTED]
        return rank([row for row in listed if row.lower > 0], [row for row in listed if row.lower <= 0])

    @property
    def leading(self) -> ReleasedRow | None:
        """The row to begin with: the mean of numbers, or the largest share that stands out; None where none does."""
        numbers = [row for row in self.rows if not row.is_share]
        if numbers:
            return numbers[0]
        first = [each.row for each in self.significant[:1]]
        return next((row for row in first if isinstance(row, ReleasedRow)), None)

    @property
    def blanket(self) -> tuple[int, Decimal] | None:
        """How many reports an answer surely hides among, rounded down, and its epsilon then, rounded up.

        None where there is no figure, or none that is below the epsilon of the reports themselves, or below what the
        noise of the release says of an answer: twice its epsilon.
        """
        release, law = self.release, law_of(self.release.plan.cells)
        n = rounded_down(self.n - SURE * self.n_error)
        if law is None or self.too_few or not n:
            return None
        epsilon = epsilon_of_device(law, n, release.reports)
        if epsilon is None or epsilon >= 2 * release.epsilon:
            return None
        return n, digits(3, ROUND_UP).create_decimal(Decimal(epsilon))


def _cut(name: str, domain: NumberDomain) -> str:
    low, high = (domain.with_unit(domain.in_unit(edge)) for edge in (domain.edges[0], domain.edges[-1]))
    return f"Numbers{f' of {name}' if name else ''} are cut to the range from {low} to {high}."


def read(release: Release) -> PublishedReading:
    """Return what a release tells. A release has counts."""
    assert release.counts is not None
    plan = release.plan
    tally = ReleasedTally.of(plan, release.counts, release.noise, release.repeats, release.names)
    told = estimand_of(plan).released(tally)
    return PublishedReading(release, tally.n, tally.n_error, told.rows, told.noise_floor)
