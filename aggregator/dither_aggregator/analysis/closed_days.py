"""Closed days: what their counts are checked for, and the snapshot that each leaves.

**Quality.** The counts that check one day: their law hardly depends on what devices answer.

    cells       how many reports each cell has: cells are drawn before the answer is looked at
    shares      how many reports support a value, set a bit, or are a symbol: as often as if nobody had it at least, as
                if everybody had it at most. An estimate may lie below zero by noise, and by no more than that
    ones        how many bits are set in all reports: with one value to a report that is known; with several, or Bloom
                bits that may fall together, it lies between the fewest and the most
    unused      projective geometry response has more points than values: how many reports support each of the others,
                which is q whatever is answered, and how many of them all reports support together

The estimates of GRR and of all points of PGR sum to one whatever was sent: that is not looked at. Subsets always have
as many members.

**Snapshots.** An immutable set of estimates with all that reproduces it. Its id is the digest of its content.

The content is canonical JSON: the plan, the epoch, the tally's n and counts, the candidates of a text, the estimates
made of them, the versions of what made them, and a salt, so that counts cannot be tried against the id. The same tally
gives the same counts for ever; other versions of the libraries may give other last digits.

A read key is told a document of its own, made without the cells of a few reports (`reading.py`) and the salt.

A window's snapshot is those of its days, and nothing more is stored of it. Its id says metric and days, and ends in a
digest of the ids of all its days' snapshots. So its counts can be no others; its estimates are made of them when
somebody asks. Days that were chosen, also a single one, pay (`reading.py`): the id also says for how many windows the
intervals held on the page, its digest covers that, and the estimates hold for as many. An id without it, and the
snapshot that every day has, are of days that pay nothing.
"""

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache, cached_property, lru_cache, singledispatch
from importlib.metadata import version
from threading import Condition
from typing import Any, Literal, get_args

import msgspec
import numpy as np
from cachetools import LRUCache, cached
from scipy.special import betainc, rel_entr

from dither_aggregator.analysis.estimands import days_of, each_day, estimate, takes_seconds, tally_of
from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.reading import (
    CELL_MIN,
    Pooled,
    View,
    Window,
    sees_all,
    sizes,
    visible_tally,
    windows_of,
    without_few,
)
from dither_aggregator.analysis.reading_cache import Codec, once, refuse_slow
from dither_aggregator.counting import Counts, hyperplane_sums, hyperplanes_through, support_counts, tables
from dither_aggregator.store import Store, StoredPlan, StoreError, Tally
from dither_aggregator.store.contract import BATCH_MIN
from dither_aggregator.store.records import HEAD_BYTES, Final, add_plain, plain_counts
from dither_shared.frozen import canonical_json
from dither_shared.mechanisms import RAPPOR, Cells, Mechanism, PureMechanism, SquareWave
from dither_shared.mechanisms.pgr import points
from dither_shared.mechanisms.unary import UnaryCode
from dither_shared.plan import Plan
from dither_shared.rng import SCALE

# How rarely honest devices give a count as small or as large: exact laws, or bounds of them, never a normal curve.
#
# A count is of n trials, each with a probability from `low` to `high`, whatever the answers are. So it is
# stochastically at least a binomial count of rate `low`, and at most one of rate `high`: their tails bound it
# (`binomial`), and are its own where both rates are one.
#
# The tails are Chernoff's (`mixed`) where only the mean of the probabilities is known to be from `low` to `high`, and
# where a device may have sent r of the reports, perhaps with the same noise:
#
#     P[count >= k]  <=  exp( - (n / r) KL(k / n | high) )        and so below, with KL(a | b) that of two coins
#
# Proof. Let a device have s <= r trials of one coin, with sum X of mean s p. exp is convex, so E[e^(t X)] is at most 1
# - p + p e^(t s), whose logarithm is convex in s and zero at 0: at most s / r that of r trials. It is concave in p: of
# all devices together at most what the mean of the p gives, (1 - p + p e^(t r))^(n / r). The best t gives the bound.
# Hoeffding 1963 has it with r = 1.
#
# A sum of n bounded terms of known mean, each with a variance of at most v and at most c above its mean, has Bennett's
# tail (1962), with r reports of a device as above:
#
#     P[sum - mean >= x]  <=  exp( - (n v / (r c^2)) h(c x / (n v)) )        h(u) = (1 + u) ln(1 + u) - u


def binomial(counts: Counts, n: Counts | int, low: Floats | float, high: Floats | float) -> Floats:
    """Return two-sided p-values of counts of n >= 1 independent trials that are each from `low` to `high` likely."""
    above = np.where(counts > 0, betainc(np.maximum(counts, 1), n - np.maximum(counts, 1) + 1, high), 1.0)
    rest = n - counts
    below = np.where(rest > 0, betainc(np.maximum(rest, 1), n - np.maximum(rest, 1) + 1, 1 - np.asarray(low)), 1.0)
    return np.asarray(np.minimum(1.0, 2 * np.minimum(above, below)))


def mixed(counts: Counts, n: Counts | int, low: Floats | float, high: Floats | float, repeats: int = 1) -> Floats:
    """Return bounds of the same where the mean of the probabilities is from `low` to `high`."""
    rates = np.asarray(counts / n)
    nearest = np.clip(rates, low, high)
    divergence = rel_entr(rates, nearest) + rel_entr(1 - rates, 1 - nearest)
    return np.asarray(np.minimum(1.0, 2 * np.exp(-n / repeats * divergence)))


def bennett(excess: float, n: int, variance: float, above: float, below: float, repeats: int = 1) -> float:
    """Return a two-sided p-value of a sum of n terms that is `excess` more than its mean.

    A term is at most `above` more than its mean, and at most `below` less.
    """
    reach = above if excess > 0 else below
    if not (variance > 0 and reach > 0):
        return 1.0 if excess == 0 else 0.0
    size = abs(excess) * reach / (n * variance)
    exponent = n * variance / (repeats * reach**2) * ((1 + size) * np.log1p(size) - size)
    return float(min(1.0, 2 * np.exp(-exponent)))


Check = Literal["cells", "shares", "ones", "unused", "unused together"]
ENTRIES_MAX = 1 << 22
"""A tally with more is checked by its cells alone: the transforms of all others would take longer than the page."""
LASTING = 3
"""The most reports of one device in one day: one that was built, one that waited, and that of the day."""


@dataclass(frozen=True)
class Extremes:
    """Counts of one sort: the ones that are farthest off, and how rarely honest devices make each so, two-sided."""

    check: Check
    cell: int
    """The cell that they are of, or the first of them."""
    tests: int
    """How many counts there are."""
    places: Counts
    """The places of `counts` among all of them."""
    counts: Counts
    low: Floats
    """The least that each is expected to be, over all answers."""
    high: Floats
    chances: Floats


def count(cells: Cells, counts: Counts) -> Iterator[Extremes]:
    """Yield all that is counted in a tally of at least one report."""
    yield from _of_cells(cells, counts)
    if cells.tally_size > ENTRIES_MAX:
        return
    for part, table, first in tables(cells, counts):
        repeats = LASTING if part.mechanism.memoized else 1
        there = np.flatnonzero(table[:, 0])
        for row in there.tolist():
            yield from _each(part.mechanism, table[row, 1:], int(table[row, 0]), first + row, repeats)
        if len(there):
            yield from _all(part.mechanism, table[:, 1:].sum(axis=0), int(table[:, 0].sum()), first, repeats)


def _of_cells(cells: Cells, counts: Counts) -> Iterator[Extremes]:
    """Yield the sizes of cells, for each public value that has reports."""
    if cells.each == 1:
        return
    sizes = np.concatenate([table[:, 0] for _, table, _ in tables(cells, counts)]).reshape(cells.public, cells.each)
    weights = np.repeat([part.weight for part in cells.parts], [part.cells for part in cells.parts])
    rates, places = weights / weights.sum(), np.arange(cells.each)
    for arm, (arms, n) in enumerate(zip(sizes, sizes.sum(axis=1).tolist(), strict=True)):
        if n:
            chances = mixed(arms, n, rates, rates, LASTING) if cells.lasting else binomial(arms, n, rates, rates)
            yield Extremes("cells", arm * cells.each, cells.each, places, arms, rates * n, rates * n, chances)


def _farthest(check: Check, cell: int, counts: Counts, n: int, low: float, high: float, repeats: int) -> Extremes:
    """Return the smallest and the largest of counts that have the same law: all others are less far off."""
    places = np.array([counts.argmin(), counts.argmax()])
    chances = binomial(counts[places], n, low, high) if repeats == 1 else mixed(counts[places], n, low, high, repeats)
    ends = np.full(2, low * n), np.full(2, high * n)
    return Extremes(check, cell, len(counts), places, counts[places], *ends, chances)


def _one(check: Check, cell: int, total: int, low: float, high: float, chance: float) -> Extremes:
    """Return a count by itself."""
    return Extremes(
        check, cell, 1, np.array([0]), np.array([total]), np.array([low]), np.array([high]), np.array([chance])
    )


@singledispatch
def _each(mechanism: Mechanism, counts: Counts, n: int, cell: int, repeats: int) -> Iterator[Extremes]:
    """Yield what is counted in one cell."""
    return iter(())


@singledispatch
def _all(mechanism: Mechanism, counts: Counts, n: int, cell: int, repeats: int) -> Iterator[Extremes]:
    """Yield what is counted in all cells of a mechanism together, given the sum of their counts and the first cell."""
    return iter(())


@_each.register
def _(mechanism: PureMechanism, counts: Counts, n: int, cell: int, repeats: int) -> Iterator[Extremes]:
    p, q = float(mechanism.p), float(mechanism.q)
    if mechanism.geometry is None:
        yield _farthest("shares", cell, support_counts(mechanism, counts, n), n, q, p, repeats)
        return
    supports = hyperplane_sums(counts, *mechanism.geometry)
    yield _farthest("shares", cell, supports[: mechanism.d], n, q, p, repeats)
    if len(supports) > mechanism.d:
        yield _farthest("unused", cell, supports[mechanism.d :], n, q, q, repeats)
        yield _together(mechanism, counts, n, cell, repeats)


def _together(mechanism: PureMechanism, counts: Counts, n: int, cell: int, repeats: int) -> Extremes:
    law = _unused_law(mechanism)
    total = int(law.supported @ counts)
    chance = bennett(total - n * law.mean, n, law.variance, law.most - law.mean, law.mean - law.least, repeats)
    return _one("unused together", cell, total, n * law.mean, n * law.mean, chance)


@dataclass(frozen=True)
class _UnusedLaw:
    """How many of the unused values one report supports."""

    supported: Counts
    """By point, int64[K]."""
    mean: float
    """The same for every answer."""
    variance: float
    """The largest over all answers."""
    least: int
    most: int


@lru_cache(maxsize=16)
def _unused_law(mechanism: PureMechanism) -> _UnusedLaw:
    assert mechanism.geometry is not None
    order, dimension, _ = mechanism.geometry
    size, s = mechanism.shape.size, points(order, dimension - 1)
    unused = np.arange(mechanism.d, size)
    supported = hyperplanes_through(*mechanism.geometry, unused)
    squares = supported**2
    on = hyperplane_sums(squares, *mechanism.geometry)[: mechanism.d]
    inside = float(mechanism.p)
    second = inside * on / s + (1 - inside) * (squares.sum() - on) / (size - s)
    mean = len(unused) * float(mechanism.q)
    return _UnusedLaw(supported, mean, float(second.max()) - mean**2, int(supported.min()), int(supported.max()))


@_each.register
def _(mechanism: SquareWave, counts: Counts, n: int, cell: int, repeats: int) -> Iterator[Extremes]:
    inside = mechanism.threshold / SCALE
    low, high = (1 - inside) / (mechanism.outputs - mechanism.width), inside / mechanism.width
    yield _farthest("shares", cell, counts, n, low, high, repeats)


@_each.register
def _(mechanism: RAPPOR, counts: Counts, n: int, cell: int, repeats: int) -> Iterator[Extremes]:
    yield _farthest("shares", cell, counts, n, float(mechanism.p_star), float(mechanism.q_star), repeats)


@_all.register
def _(mechanism: RAPPOR, counts: Counts, n: int, cell: int, repeats: int) -> Iterator[Extremes]:
    """A text has one bit at least and h at most."""
    rates = float(mechanism.p_star), float(mechanism.q_star)
    yield _ones(counts, n, cell, rates, (1, mechanism.h), repeats)


@_all.register
def _(mechanism: UnaryCode, counts: Counts, n: int, cell: int, repeats: int) -> Iterator[Extremes]:
    """An answer holds exactly one value, or none to `ticks` of them."""
    rates, least = (float(mechanism.q), float(mechanism.p)), 1 if mechanism.ticks == 1 else 0
    yield _ones(counts, n, cell, rates, (least, mechanism.ticks), repeats)


def _ones(
    counts: Counts, n: int, cell: int, rates: tuple[float, float], held: tuple[int, int], repeats: int
) -> Extremes:
    """Return the bits set in all reports: a bit that is 0 or 1 before the noise is set at these two rates.

    `held` is how many are 1, at least and at most.
    """
    (zero, one), trials = rates, n * len(counts)
    low, high = (zero + (one - zero) * bits / len(counts) for bits in held)
    (chance,) = mixed(counts.sum(keepdims=True), trials, low, high, repeats).tolist()
    return _one("ones", cell, int(counts.sum()), low * trials, high * trials, chance)


# The verdict on one day: whether its counts are those of devices that randomize as they should.
#
# Each of five checks (`counted`) has a p-value: the smallest of its counts', times how many there are, and times five.
# A day is implausible where one of these is at most ALPHA. So of a sound metric at most one day in a thousand is called
# so, whatever people answer (Bonferroni; each tail is exact or bounded: `laws`). This is the rate of one metric and
# day: somebody who looks at a thousand of them finds one where nothing is wrong.
#
# Days are never checked together. The cohorts of the same devices are the same every day, so that over several days
# their counts would always seem uneven; and memos repeat their noise.
#
# Only what is clumsy is found: reports that no honest device sends so often, such as those of a broken build, of a
# device that sends one report a thousand times, of all ones. Made-up reports that are drawn like honest ones pass, and
# move an estimate all the same: `dither_shared.kinds.precision` says how far.


ALPHA = 0.001
"""At most this part of a sound metric's days is called implausible."""
CHECKS: tuple[Check, ...] = get_args(Check)
SLOW_ENTRIES = 1 << 17
"""A tally with more takes tenths of a second: its checks are made beforehand, and kept."""
DAYS_MAX = 10_000
"""Verdicts that are kept, a few numbers each."""


@dataclass(frozen=True)
class Checked:
    """One check of one day, with the count that is farthest off."""

    check: Check
    tests: int
    """How many counts it looks at."""
    of: str
    """The name of the count, in words that follow a number."""
    observed: int
    low: float
    """The least that is expected, whatever is answered."""
    high: float
    p_value: float
    """The p-value of the worst count, times all counts of the check and the five checks of a day; at most 1."""

    @property
    def implausible(self) -> bool:
        """Whether honest devices hardly ever give such a count."""
        return self.p_value <= ALPHA


@dataclass(frozen=True)
class Quality:
    """One day of one plan."""

    epoch: date
    n: int
    checks: Sequence[Checked]
    """The checks that the plan has."""

    @property
    def worst(self) -> Checked | None:
        """The check that tells surest that something is wrong; None where nothing does."""
        return min((each for each in self.checks if each.implausible), key=lambda each: each.p_value, default=None)


def examine(plan: Plan, tally: Tally) -> Sequence[Checked]:
    """Return the checks of a day's tally; none of a day without reports."""
    found: dict[Check, list[Extremes]] = {}
    for each in count(plan.cells, tally.counts) if tally.n else ():
        if not (tally.left_out and each.check == "cells"):  # which are uneven then
            found.setdefault(each.check, []).append(each)
    return [_checked(plan, check, found[check]) for check in CHECKS if check in found]


def _checked(plan: Plan, check: Check, found: Sequence[Extremes]) -> Checked:
    tests = sum(each.tests for each in found)
    worst = min(found, key=lambda each: float(each.chances.min()))
    at = int(worst.chances.argmin())
    return Checked(
        check,
        tests,
        _named(plan, worst, at),
        int(worst.counts[at]),
        float(worst.low[at]),
        float(worst.high[at]),
        min(1.0, float(worst.chances[at]) * tests * len(CHECKS)),
    )


def _named(plan: Plan, counted: Extremes, at: int) -> str:
    """Return what is counted, in words that follow a number."""
    place, cell = int(counted.places[at]), "cohort" if plan.cells.lasting else "cell"
    if counted.check == "cells":
        return f"reports of {cell} {counted.cell + place}"
    if counted.check == "ones":
        return "bits that are set"
    if counted.check == "shares" and plan.values:
        return f"reports that support “{plan.values[place]}”"
    sentence = {
        "unused": f"reports that support the unused value {place}",
        "unused together": "times that reports support unused values",
    }.get(counted.check, f"reports that support place {place}")
    return f"{sentence} in {cell} {counted.cell}" if plan.cells.several else sentence


def days(store: Store, stored: StoredPlan, window: Window) -> Iterator[Quality]:
    """Yield each closed day of a window that has reports, the earliest first; those no longer kept are left out.

    Raises BadTally, and NotReady where some of them are not checked yet.
    """
    sealed, kept_from, finals = store.sealed(), store.tallies_from(), store.finals(stored.plan)
    closed = [each for each in days_of(store, stored, window, finals) if kept_from <= each[0] <= sealed]
    codec, slow = Codec((Quality, Checked), stored), stored.plan.cells.tally_size > SLOW_ENTRIES

    def check(of_day: tuple[date, str]) -> Quality:
        def made() -> Quality:
            return _once(store, stored, of_day[0])

        return once(store, stored, "quality", [of_day], [], made, codec, slow=slow, noun="checking the counts")

    yield from each_day(closed, check)


def _key(store: Store, stored: StoredPlan, day: date) -> tuple[object, ...]:
    return store.generation, stored.plan.metric, stored.plan.digest, day


@cached(LRUCache(DAYS_MAX), key=_key, condition=Condition())
def _once(store: Store, stored: StoredPlan, day: date) -> Quality:
    """Check a closed day, once: its counts do not change any more."""
    tally = tally_of(store, stored, Window.ending(day, 1))
    return Quality(day, tally.n, examine(stored.plan, tally))


# Snapshots.


FORMAT = 1
WINDOW_DAYS_MAX = 366
DAYS_TO_CHOOSE = tuple(1 << doublings for doublings in range(1, 23))
"""As many days as windows were ever chosen of; a calendar has fewer than 2^22."""
HEX_DIGITS = 64
"""The id of a day's snapshot has so many."""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot as it was taken."""

    id: str
    document: Mapping[str, Any]
    stored: StoredPlan
    """Its plan, with the candidates that were looked for then."""
    window: Window
    """The day that it is of, or the days."""
    tally: Tally
    """Read back from its counts: the digest is computed anew."""
    together: int = 1
    """For how many windows of days its intervals hold at once."""

    @property
    def digest(self) -> str:
        """The part of its id that is a digest."""
        return digest_of(self.id)

    @property
    def estimates(self) -> Mapping[str, Any]:
        """The estimates of then, as `Reading.to_document` gave them."""
        estimates: Mapping[str, Any] = self.document["estimates"]
        return estimates

    @cached_property
    def rows(self) -> Mapping[str, Mapping[str, Any]]:
        """The rows of what was estimated then, by value, without those that were untold."""
        return {row["value"]: row for row in self.estimates["rows"] if "estimate" in row}

    @property
    def is_of_its_tally(self) -> bool:
        """Whether the counts have the digest that stands beside them."""
        return bool(self.tally.digest == self.document["tally"]["digest"])


def take(store: Store, stored: StoredPlan, epoch: date) -> Final:
    """Record a final epoch with its snapshot, unless it is recorded; return what is.

    Raises StoreError when the epoch is not merged in every shard, and when the tally is not the one that was recorded.
    """
    if epoch > store.merged():
        raise StoreError(f"{epoch} is not merged in every shard, so it is not final")
    tally = store.tally(stored.plan, epoch)
    # Without it, counts that are not told could be tried against the id, which everybody may see.
    salt = store.signing_secret(f"snapshot {stored.id} {epoch}".encode()).hex()
    made = canonical_json({**_document(store.app, stored, Window.ending(epoch, 1), tally), "salt": salt})
    final = Final(tally.digest, hashlib.sha256(made).hexdigest())
    recorded = store.finalize(stored.plan, epoch, final, zlib.compress(made))
    # A tally that others recorded and gave up meanwhile reads as nothing.
    if recorded.digest != final.digest and epoch >= store.tallies_from():
        raise StoreError(
            f"the tally of {stored.plan.metric}, plan {stored.plan.digest}, of {epoch} is not the one recorded as "
            "final: run `dither fsck`"
        )
    return recorded


def digest_of(id_: str) -> str:
    """Return the part of a snapshot's id that is a digest: of a day's all of it."""
    return id_.rpartition(".")[2]


def window_snapshot(store: Store, stored: StoredPlan, window: Window, together: int = 1) -> str | None:
    """Return the id of a window's snapshot, whose intervals hold for so many windows at once.

    None until every day of it that has reports is final.
    """
    finals = store.finals(stored.plan, window.first, window.last)
    days = store.epochs(stored.plan, window.first, window.last)
    if window.last > store.sealed() or window.days > WINDOW_DAYS_MAX or not (finals.keys() >= set(days) and days):
        return None
    if window.days == together == 1:
        return finals[window.last].snapshot
    made_of = _made_of(store, stored, window, finals, together)
    paid = f"{together}." if together > 1 else ""
    digest = hashlib.sha256(canonical_json(made_of)).hexdigest()
    return f"{stored.plan.metric}.{window.first}.{window.last}.{paid}{digest}"


def _made_of(
    store: Store, stored: StoredPlan, window: Window, finals: Mapping[date, Final], together: int
) -> dict[str, object]:
    """Return the names of all that a window's snapshot is made of."""
    days = {day.isoformat(): finals[day].snapshot for day in sorted(finals)}
    paid = {"together": together} if together > 1 else {}
    return {"app": store.app, "plan": stored.plan.digest, **window.to_document(), "days": days, **paid}


def kept_snapshot(store: Store, stored: StoredPlan, window: Window, together: int) -> str | None:
    """Return the same id; None also where a day's snapshot was given up, of which the earliest is the first."""
    finals = store.finals(stored.plan, window.first, window.last)
    if not finals or store.snapshot(finals[min(finals)].snapshot) is None:
        return None
    return window_snapshot(store, stored, window, together)


def is_given_up(store: Store, id_: str) -> bool:
    """Whether an id that is read as nothing is that of a snapshot which was kept once."""
    if "." in id_:
        return _found_by_id(store, id_) is not None
    finals = (store.finals(stored.plan).values() for stored in store.plans() if len(id_) == HEX_DIGITS)
    return any(final.snapshot == id_ for each in finals for final in each)


def content(store: Store, id_: str) -> bytes | None:
    """Return a snapshot's canonical JSON, or what a read key is told of it; None where there is none.

    Raises StoreError where it is not its id's.
    """
    if "." in id_:
        of_window = read_snapshot(store, id_)
        return canonical_json(of_window.document) if of_window else None
    made = _content(store, id_)
    visible = read_snapshot(store, id_) if made and not sees_all(store) else None
    return canonical_json(visible.document) if visible and visible.tally.left_out != 0 else made


def _content(store: Store, id_: str) -> bytes | None:
    packed = store.snapshot(id_)
    if packed is None:
        return None
    try:
        unpacked = zlib.decompress(packed)
    except zlib.error:
        unpacked = b""
    if hashlib.sha256(unpacked).hexdigest() != id_:
        raise StoreError(f"the snapshot {id_} is damaged: run `dither fsck`")
    return unpacked


def read_snapshot(store: Store, id_: str) -> Snapshot | None:
    """Return a snapshot, or None where there is none; raise StoreError and BadTally where it cannot be read."""
    return _of_window(store, id_) if "." in id_ else _of_day(store, id_)


class _Counts(msgspec.Struct):
    n: int
    counts: str


class _DayPart(msgspec.Struct):
    """The parts of a day's snapshot of which a window's is made."""

    v: int
    candidates: tuple[str, ...]
    tally: _Counts


def _found_by_id(store: Store, id_: str) -> tuple[StoredPlan, Window, int] | None:
    """Return the plan and the days whose snapshot has an id, and for how many windows its intervals hold."""
    try:
        metric, first, last, *paid, _ = id_.split(".")
        window = Window(date.fromisoformat(first), date.fromisoformat(last))
        together = next(windows_of(days) for days in DAYS_TO_CHOOSE if paid == [str(windows_of(days))]) if paid else 1
        named = (each for each in store.plans(metric) if window_snapshot(store, each, window, together) == id_)
        return next(named), window, together
    except (ValueError, StopIteration):
        return None


def _of_window(store: Store, id_: str) -> Snapshot | None:
    named = _found_by_id(store, id_)
    if named is None:
        return None
    stored, window, together = named
    finals = store.finals(stored.plan, window.first, window.last)
    made = [_content(store, finals[day].snapshot) for day in sorted(finals)]
    parts = [msgspec.json.decode(each, type=_DayPart) for each in made if each]
    if len(parts) < len(made):
        return None
    refuse_slow(store, slow=takes_seconds(stored))
    if any(part.v != FORMAT for part in parts):
        raise StoreError(f"a day of the snapshot {id_} has another format; this dither reads {FORMAT}")
    stored = replace(stored, candidates=parts[-1].candidates)
    tally, left_out = _visible(store, stored, window, [_tally(stored.plan, part.tally) for part in parts])
    document = {**_document(store.app, stored, window, tally, together), **left_out, "snapshot": id_}
    document["of"] = _made_of(store, stored, window, finals, together)
    return Snapshot(id_, document, stored, window, tally, together)


def _tally(plan: Plan, told: _Counts) -> Tally:
    """Return the counts of a day as its snapshot has them."""
    plain = base64.b64decode(told.counts)
    counts = np.zeros(plan.cells.tally_size, dtype=np.int64)
    add_plain(counts, plain[:HEAD_BYTES], plain[HEAD_BYTES:])
    return Tally(told.n, counts)


def _visible(
    store: Store, stored: StoredPlan, window: Window, tallies: Iterable[Tally]
) -> tuple[Tally, dict[str, object]]:
    """Return the counts of some days as far as who asks is told of them, and what a document says of the others."""
    pooled = Pooled.of(stored, window, tallies)
    tally = visible_tally(store, stored, pooled)
    if tally.left_out == 0:
        return tally, {}
    refuse_slow(store, slow=takes_seconds(stored))
    return tally, {"left_out": _left_out(stored, pooled)}


def _of_day(store: Store, id_: str) -> Snapshot | None:
    made = _content(store, id_)
    if made is None:
        return None
    document = json.loads(made)
    if document["v"] != FORMAT:
        raise StoreError(f"the snapshot {id_} has format {document['v']}; this dither reads {FORMAT}")
    plan = Plan.from_document(document["plan"])
    try:
        stored = replace(store.stored(plan), candidates=tuple(document["candidates"]))
    except KeyError:
        raise StoreError(f"the snapshot {id_} is of a plan that the store does not have: run `dither fsck`") from None
    window = Window.ending(date.fromisoformat(document["epoch"]), 1)
    whole = _tally(plan, msgspec.convert(document["tally"], _Counts))
    tally, left_out = _visible(store, stored, window, [whole])
    if left_out:
        document = {**_document(store.app, stored, window, tally), "snapshot": id_, **left_out}
    return Snapshot(id_, document, stored, window, tally)


def _left_out(stored: StoredPlan, pooled: Pooled) -> dict[str, object]:
    """Return how many reports are left out, and which cells are not, so that an admin can compute the same.

    The others are not listed: a cell of a few reports would be told from one without any.
    """
    tally = without_few(stored, pooled)
    kept = np.flatnonzero(sizes(stored.plan.cells, tally.counts)).tolist()
    return {"reports": tally.left_out, "cells_kept": kept, "cell_min": CELL_MIN, "day_min": BATCH_MIN}


def _document(app: str, stored: StoredPlan, window: Window, tally: Tally, together: int = 1) -> dict[str, object]:
    view = View(days=window.days, together=together)
    return {
        "v": FORMAT,
        "app": app,
        "plan": stored.plan.to_document(),
        "candidates": list(stored.candidates),
        **window.to_document(),
        "tally": {
            "n": tally.n,
            "digest": tally.digest,
            "counts": base64.b64encode(b"".join(plain_counts(tally.counts))).decode("ascii"),
        },
        "estimates": estimate(stored, window.last, tally, view).to_document(),
        "made_with": _versions(),
    }


@cache
def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("dither", "numpy", "scipy")}
