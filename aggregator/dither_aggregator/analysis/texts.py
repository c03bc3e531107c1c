"""Texts: which of some candidates were said, by how many, and how much of what was said they leave."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import lru_cache
from math import sqrt
from statistics import median
from threading import Lock
from typing import Annotated, Any, NotRequired

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from dither_aggregator.analysis.decoder import FREEDOM_MAX, Candidate, Channel, Decoded, chances, decode
from dither_aggregator.analysis.functional import answers_part, answers_variance
from dither_aggregator.analysis.inference import CONFIDENCE, Floats, devices_reach, effective
from dither_aggregator.analysis.pure import STRANGERS_MIN, HashedShares, Rows, Unlisted
from dither_aggregator.analysis.reading import BadView, Estimand, Lines, Reading, View, reports_max
from dither_aggregator.analysis.reading_cache import part_once
from dither_aggregator.analysis.released import Released, ReleasedRow, ReleasedTally, read_supports
from dither_aggregator.analysis.rows import BINS, Row, Significance, adaptive, bin_estimates, family, holm, rank, says
from dither_aggregator.counting import BadTally, Counts, noisy_support, support_counts, tables
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.domains import Hashed, TextDomain
from dither_shared.errors import InvalidParameter
from dither_shared.hashing import DIGEST_BYTES, bloom_digests, bucket_of
from dither_shared.kinds.precision import ALPHA, memo_of
from dither_shared.mechanisms import PGR, RAPPOR, Mechanism, PureMechanism
from dither_shared.plan import Plan

# Candidates: texts that somebody thinks devices may have said, with the bits or buckets that each would have.


_one_at_a_time = Lock()
"""A decoding takes all the memory and time that a request may: others wait."""


def decode_candidates(
    domain: TextDomain, mechanism: Mechanism, tally: Counts, candidates: tuple[str, ...], *, noisy: bool = False
) -> Decoded:
    """Estimate the share of each candidate from a tally of cohorts, int64[m, 1 + shape]; raise BadTally if it is none.

    At least one candidate is needed. With `noisy`, counts are those of a release, of hashed texts; each cohort must
    have some reports, and supports that no reports can have are cut.
    """
    m = len(tally)
    try:
        with _one_at_a_time:
            if isinstance(domain, Hashed):
                memo = PureMechanism.of(mechanism)
                channel = Channel(domain.buckets, 1, m, float(memo.q), float(memo.p))
                supports = _noisy_supports(memo, tally) if noisy else _supports(memo, tally)
                return decode(supports, candidates, candidate_buckets(candidates, domain, m), channel)
            rappor = RAPPOR.of(mechanism)
            channel = Channel(rappor.k, rappor.h, m, float(rappor.p_star), float(rappor.q_star))
            return decode(tally, candidates, candidate_bits(candidates, rappor.k, rappor.h, m), channel)
    except InvalidParameter as error:
        raise BadTally(str(error)) from None


def _supports(mechanism: PureMechanism, tally: Counts) -> Counts:
    """Return of each cohort the number of its reports and how many of them support each bucket, int64[m, 1 + d]."""
    nobody = np.zeros(mechanism.d, dtype=np.int64)
    rows = [support_counts(mechanism, row[1:], int(row[0])) if row[0] else nobody for row in tally]
    return np.column_stack([tally[:, 0], np.array(rows)])


def _noisy_supports(mechanism: PureMechanism, tally: Counts) -> Counts:
    rows = [np.clip(noisy_support(mechanism, row[1:]), 0, row[0]) for row in tally]
    return np.column_stack([tally[:, 0], np.array(rows)])


@lru_cache(maxsize=4)
def candidate_bits(candidates: tuple[str, ...], k: int, h: int, m: int) -> npt.NDArray[np.int64]:
    """Return int64[S, m, h]: the bit of each hash of each candidate in each cohort."""
    return bits_in(range(m), candidates, k, h)


def bits_in(cohorts: range, values: Sequence[str], k: int, h: int) -> npt.NDArray[np.int64]:
    """Return int64[S, cohorts, h]: what `bloom_bits` says of each value in each cohort, much faster."""
    digests = b"".join([bloom_digests(value, cohorts) for value in values])
    hashes = np.frombuffer(digests, dtype=np.uint8).reshape(len(values), len(cohorts), DIGEST_BYTES)[:, :, :h]
    return hashes.astype(np.int64) % k


@lru_cache(maxsize=4)
def candidate_buckets(candidates: tuple[str, ...], domain: Hashed, m: int) -> npt.NDArray[np.int64]:
    """Return int64[S, m, 1]: the bucket of each candidate in each cohort."""
    numbers = [domain.number(domain.named(candidate)) for candidate in candidates]
    factors = [domain.multiplier(cohort) for cohort in range(m)]
    buckets = [[bucket_of(number, factor, domain.buckets) for factor in factors] for number in numbers]
    return np.array(buckets, dtype=np.int64).reshape(len(candidates), m, 1)


_OF_VALUES = frozenset({"error_of", "normalised"})


UNLISTED = "Strings that are not in the list"
CHANCE_MIN = 1e-300
"""Rarer ones are told as this."""
UNLISTED_REPORTS_MIN = 100
"""The interval of the unlisted mass is a normal one, by the spread of the reports: fewer do not tell that."""


@dataclass(frozen=True)
class TextRow(Row):
    """One candidate: shares of the n reports, not percent."""

    proportion: Annotated[float, says("for a text: the share of a constrained fit; biased")]
    """0 where it was not selected."""
    significant: bool | None
    significant_holm: bool | None
    group: Annotated[str, says('for a text: the candidate with the same bits, "" where there is none')]
    """The two cannot be told apart: their bits are the same in every cohort."""


class TextsFacts(Lines):
    """The fit of texts."""

    false_share: NotRequired[
        Annotated[float, says("for texts: at most such a share of those that stand out is expected to be false")]
    ]
    fit: NotRequired[Annotated[dict[str, Any], says("for texts")]]


@dataclass(frozen=True)
class TextsReading(Reading):
    """The estimated share of each candidate, in the given order."""

    rows: Sequence[TextRow] = ()
    fit: dict[str, Any] | None = None
    """How well the candidates explain the reports, and what they leave."""
    freedom: float = FREEDOM_MAX
    """The degrees of freedom of the estimates' t law (`decoder`)."""
    strangers: dict[str, float] = field(default_factory=dict)
    """How often a text that nobody has gets as much as each candidate, by the hash alone."""

    @property
    def distinct(self) -> Sequence[TextRow]:
        """The candidates without those whose bits are another one's."""
        return [row for row in self.rows if row.group in ("", row.value)]

    def answers_part(self, row: Row) -> float:
        """Return that of a share; which texts look alike is chance."""
        return float(answers_part(row.estimate, row.std_error, self.n, self.repeats))

    def _find_significance(self) -> Significance | None:
        """Return the candidates that are there, with intervals that hold all at once.

        At most the view's share of them is expected to be false (`rows.adaptive`). Intervals hold for all
        candidates at once, as ranks do, so one of a candidate that stands out may hold zero. Candidates that cannot be
        told apart are one.
        """
        if not self.rows:
            return None
        untexts = TextDomain.of(self.stored.plan.domain).untexts
        twins = [row for row in self.rows if row.group not in ("", row.value)]
        unlisted = [row for row in self.rows if row.value in untexts]
        rows = [row for row in self.distinct if row.value not in untexts]
        scores = self._scores(rows)
        chances = ndtr(-scores)
        selected = adaptive(chances, false_share(self.view) / self.view.together) & (not self.provisional)
        shown = (
            rows if self.view.simultaneous else self._with_ends(rows, (1 - self.view.own_confidence) / len(self.rows))
        )
        significant = [row for row, chosen in zip(shown, selected.tolist(), strict=True) if chosen]
        rest = [row for row, chosen in zip(shown, selected.tolist(), strict=True) if not chosen]
        others = scores[~selected]
        edges = np.linspace(min(-4.0, *others, 0.0), max(4.0, *others, 0.0), BINS + 1)
        bins = bin_estimates(others, edges, ndtr) if rest else ()
        return Significance(
            rank(significant, rest),
            unlisted,
            rest,
            bins,
            p_value=family(chances),
            twins=twins,
            scores=True,
            noun="candidate",
            false_share=false_share(self.view),
        )

    def _scores(self, rows: Sequence[TextRow]) -> Floats:
        """Return how many standard errors a normal law passes as rarely as each estimate's passes its own."""
        scores = np.array([row.estimate / row.std_error for row in rows])
        strangers = np.array([self.strangers[row.value] for row in rows])
        low = np.clip(chances(scores, self.freedom, strangers), CHANCE_MIN, 0.5)
        high = np.maximum(stdtr(self.freedom, scores), CHANCE_MIN)
        return np.asarray(np.where(scores > 0, -ndtri(low), ndtri(high)))

    def _with_ends(self, rows: Sequence[TextRow], alpha: float) -> list[TextRow]:
        """Return rows with intervals of confidence 1 - alpha, each on its own."""
        return list(_ended(rows, -float(stdtrit(self.freedom, alpha / 2)), alpha, self.n, self.repeats))

    @property
    def sentences(self) -> Sequence[str]:
        """The fit's sentences on the list as a whole, and one on the part that it leaves unexplained."""
        if self.fit is None:
            return ()
        sentences: Sequence[str] = self.fit["sentences"]
        if any(sentence.startswith(UNLISTED) for sentence in sentences):
            return sentences
        share, low, high = (100 * self.fit[f"unexplained{end}"] for end in ("", "_lower", "_upper"))
        untexts = TextDomain.of(self.stored.plan.domain).untexts
        listed = " and ".join(("the candidates", *(f"“{name}”" for name in untexts)))
        return (
            f"{UNLISTED} hold about {share:.1f} % of the reports (95 % interval: {low:.1f} % to {high:.1f} %); "
            f"{listed} hold all others.",
            *sentences,
        )

    @property
    def nothing_to_show(self) -> str:
        """Say how texts are looked for."""
        return "No text is looked for: list candidates in the registry, or POST them to the estimates of this metric."

    def own_document(self) -> TextsFacts:
        """Return the fit."""
        share: TextsFacts = {"critical_share": None, "detectable_share": None, "false_share": false_share(self.view)}
        return share if self.fit is None else {**share, "fit": self.fit}


@dataclass(frozen=True)
class HashedReading(TextsReading):
    """The estimated share of each candidate among fresh texts, and of the answers that are no text."""

    shares: HashedShares = field(kw_only=True)

    def _places(self, rows: Sequence[TextRow]) -> list[int]:
        places = {name: place for place, name in enumerate(self.shares.names)}
        return [places[row.value] for row in rows]

    def _scores(self, rows: Sequence[TextRow]) -> Floats:
        """Return those that a normal law passes as rarely as strangers get as much, also where all of them do."""
        chances = np.minimum(self.shares.chances[self._places(rows)], 1 - 1 / STRANGERS_MIN)
        return np.asarray(-ndtri(chances))

    def _with_ends(self, rows: Sequence[TextRow], alpha: float) -> list[TextRow]:
        """Return rows with intervals by the law of the counts."""
        lower, upper = (ends[self._places(rows)].tolist() for ends in self.shares.ends(alpha))
        return [replace(row, lower=low, upper=high) for row, low, high in zip(rows, lower, upper, strict=True)]


class Texts(Estimand[TextsReading]):
    """Candidates among texts."""

    name = "texts"
    role = "candidate"
    ranks = True
    slow = True
    names_some_falsely = True
    noun = "estimating the candidates"
    records = (TextsReading, TextRow, HashedReading, HashedShares)

    def check(self, plan: Plan, view: View, asked: frozenset[str]) -> None:
        """Refuse what is for listed values."""
        if asked & _OF_VALUES:
            raise BadView("error_of and normalised are for metrics whose values are listed")

    def released(self, tally: ReleasedTally) -> Released:
        """Return the shares of a release's public list."""
        return _read_memos(tally) if tally.plan.cells.memoized else read_supports(tally)

    def names(self, stored: StoredPlan) -> Sequence[str]:
        """Return the registry's candidates, and what is no text."""
        domain = stored.plan.domain
        return (*stored.candidates, *domain.untexts) if isinstance(domain, Hashed) else stored.candidates

    def read(
        self, stored: StoredPlan, epoch: date, tally: Tally, view: View, *, provisional: bool, snapshot: str | None
    ) -> TextsReading:
        """Estimate the share of every candidate, by default those of the registry."""
        candidates = view.candidates or ()
        if tally.n == 0 or not candidates:
            return TextsReading(stored, epoch, provisional, tally.n, view, snapshot, None, None)
        domain, cells = TextDomain.of(stored.plan.domain), stored.plan.cells
        if isinstance(domain, Hashed) and not cells.memoized:
            view = replace(view, error_of="population")
            return _read_rows(stored, epoch, tally, view, provisional=provisional, snapshot=snapshot)
        ((_, table, _),) = tables(stored.plan.cells, tally.counts)
        if isinstance(domain, Hashed):
            candidates = with_untexts(candidates, domain)
        decoded = part_once(
            "decoding",
            (stored.plan.metric, stored.plan.digest, tally.digest, *candidates),
            lambda: decode_candidates(domain, cells.mechanism, table, candidates),
            (Decoded, Candidate),
        ).named(false_share(view) / view.together)
        rows = tuple(TextRow(**vars(row)) for row in decoded.rows)
        repeats = reports_max(stored, view.days)
        if repeats > 1:
            rows = _repeated(rows, cells.mechanism, tally.n, repeats, decoded)
        if provisional or repeats > 1 or view.together > 1:
            rows = tuple(replace(row, significant=None, significant_holm=None) for row in rows)
        fit = decoded.summary()
        del fit["seconds"], fit["false_share"]  # of whichever request was the first, and told beside the fit
        view = replace(view, error_of="population")
        floor, rows = _floor_of(rows), _shown(rows, view, tally.n, repeats, decoded.error_freedom)
        return TextsReading(
            stored,
            epoch,
            provisional,
            tally.n,
            view,
            snapshot,
            floor,
            "wald",
            rows=rows,
            fit=fit,
            freedom=decoded.error_freedom,
            strangers={row.value: often for row, often in zip(decoded.rows, decoded.strangers, strict=True)},
        )


def false_share(view: View) -> float:
    """Return the share of the candidates that stand out that may be false on average."""
    return round(1 - view.confidence, 12) if view.false_share is None else view.false_share


def _read_rows(
    stored: StoredPlan, epoch: date, tally: Tally, view: View, *, provisional: bool, snapshot: str | None
) -> HashedReading:
    """Look the candidates up in the rows of a fresh text."""
    domain = Hashed.of(stored.plan.domain)
    ((part, table, _),) = tables(stored.plan.cells, tally.counts)
    mechanism, repeats = PGR.of(part.mechanism), reports_max(stored, view.days)
    names = with_untexts(view.candidates or (), domain)
    read = Rows(mechanism, domain, table, repeats)
    shares = read.shares(names)
    devices = effective(float(tally.n), repeats, permanent=stored.plan.cells.memoized)
    fit = _fit_of(read.unlisted(shares), tally.n) if devices >= UNLISTED_REPORTS_MIN else None
    lower, upper = shares.ends(view.alpha(len(names)))
    found = adaptive(shares.chances, false_share(view) / view.together)
    surely = holm(shares.chances, ALPHA / view.together)
    possible = np.where(found, np.clip(shares.estimate, 0.0, 1.0), 0.0)
    possible /= max(float(possible.sum()), 1.0)
    rows = tuple(
        TextRow(
            value=name,
            estimate=float(shares.estimate[at]),
            std_error=float(shares.std_error[at]),
            lower=float(lower[at]),
            upper=float(upper[at]),
            proportion=float(possible[at]),
            significant=None if provisional else bool(found[at]),
            significant_holm=None if provisional else bool(surely[at]),
            group="",
        )
        for at, name in enumerate(names)
        if view.values is None or name in view.values
    )
    return HashedReading(
        stored,
        epoch,
        provisional,
        tally.n,
        view,
        snapshot,
        shares.noise_floor,
        shares.method,
        rows=rows,
        fit=fit,
        shares=shares,
    )


def _read_memos(tally: ReleasedTally) -> Released:
    """Decode the noisy counts of memos: residuals show the noise of the release as they show that of reports."""
    if not tally.is_sure:
        return Released()
    ((part, table, _),) = tables(tally.plan.cells, tally.counts)
    mechanism, n = PureMechanism.of(part.mechanism), tally.n
    decoded = decode_candidates(TextDomain.of(tally.plan.domain), mechanism, table, tally.names, noisy=True)
    each = n / len(table)
    noise = tally.noise.of_share(mechanism, 1) / (each * float(mechanism.noise_variance))
    rows = tuple(TextRow(**vars(row)) for row in decoded.rows)
    rows = _repeated(rows, part.mechanism, n, tally.repeats, decoded, noise)
    own, together = (
        _ended(rows, -float(stdtrit(decoded.error_freedom, alpha / 2)), alpha, n, tally.repeats)
        for alpha in (1 - CONFIDENCE, (1 - CONFIDENCE) / len(rows))
    )
    if not any(row.upper - row.lower < 1 for row in together):
        return Released()
    told = [
        ReleasedRow(row.value, row.estimate, row.std_error, row.lower, row.upper, alone.lower, alone.upper)
        for alone, row in zip(own, together, strict=True)
    ]
    return Released(told, _floor_of(rows))


def with_untexts(candidates: tuple[str, ...], domain: Hashed) -> tuple[str, ...]:
    """Return candidates with the answers that are no text behind them."""
    return (*(name for name in candidates if name not in domain.untexts), *domain.untexts)


def _fit_of(unlisted: Unlisted, n: int) -> dict[str, object]:
    """Return what the list leaves."""
    low, high = unlisted.interval()
    mass = {"unexplained": unlisted.estimate, "unexplained_lower": low, "unexplained_upper": high}
    return {"n": n, **mass, "unexplained_std_error": unlisted.std_error, "sentences": ()}


def _repeated(
    rows: tuple[TextRow, ...], mechanism: Mechanism, n: int, repeats: int, decoded: Decoded, noise: float = 0.0
) -> tuple[TextRow, ...]:
    """Return rows whose errors know that a device may have sent so many of the n reports, all of one memo.

    The permanent noise repeats, as for listed values (`pure`); what the residuals show of it is in the errors already.
    `noise` is the variance that the noise of a release adds, over that of the reports if all are of different devices.
    """
    memo = memo_of(mechanism)
    permanent = float(memo.permanent.noise_variance) / (memo.h if isinstance(memo, RAPPOR) else 1)
    repeated = 1 + (repeats - 1) * permanent / float(memo.noise_variance) + noise
    seen = max(1.0, decoded.chi_square / decoded.degrees_of_freedom) if decoded.degrees_of_freedom > 0 else 1.0
    widened = []
    for row in rows:
        again = (repeats - 1) * float(answers_variance(np.array(row.estimate))) / n
        widened.append(replace(row, std_error=sqrt(row.std_error**2 * max(1.0, repeated / seen) + again)))
    return tuple(widened)


def _ended(rows: Sequence[TextRow], z: float, alpha: float, n: int, repeats: int) -> tuple[TextRow, ...]:
    """Return rows with intervals of confidence 1 - alpha: z standard errors, and exact where devices repeat answers.

    The part of the fewest devices that there may be is then that of their exact interval, as for listed values.
    """
    estimate, error = (np.array([getattr(row, name) for row in rows]) for name in ("estimate", "std_error"))
    below = above = z * error
    if repeats > 1:
        devices = effective(float(n), repeats, permanent=True)
        noise = z * np.sqrt(np.maximum(error**2 - answers_variance(estimate) / devices, 0.0))
        below, above = (np.hypot(noise, part) for part in devices_reach(estimate, devices, alpha))
    ends = zip(rows, (estimate - below).tolist(), (estimate + above).tolist(), strict=True)
    return tuple(replace(row, lower=low, upper=high) for row, low, high in ends)


def _shown(rows: tuple[TextRow, ...], view: View, n: int, repeats: int, freedom: float) -> tuple[TextRow, ...]:
    """Return the rows of a view, with the intervals that it asks for, by the t law: each alone, or all at once."""
    alpha = view.alpha(len(rows))
    rows = _ended(rows, -float(stdtrit(freedom, alpha / 2)), alpha, n, repeats)
    return rows if view.values is None else tuple(row for row in rows if row.value in view.values)


def _floor_of(rows: tuple[TextRow, ...]) -> float:
    """Return the usual standard error of a rare candidate: how much others take of it differs from list to list."""
    middle = median(row.estimate for row in rows)
    return median(row.std_error for row in rows if row.estimate <= middle)
