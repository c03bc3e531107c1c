"""The ledger of releases: what was charged for each published window, and its noisy counts, once and for good.

An entry is stored before its noise is drawn, with a commitment to the noise, and stored again with the counts. A second
request gets the same. `publish_epsilon_year`, at `publish_delta` where one is declared, is checked in the same step as
the entry is stored, over all metrics: several processes that publish at once charge no more than one.
"""

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Self

from dither_aggregator.store.document_kinds import Document
from dither_aggregator.store.records import StoreError
from dither_shared.accounting.composition import of_zcdp
from dither_shared.domains import TypedTexts
from dither_shared.exact import MICRO, from_micro
from dither_shared.frozen import canonical_json
from dither_shared.plan import Plan
from dither_shared.releases import (
    COUNTS_MAX,
    DELTA_MAX,
    DELTA_MIN,
    IN_A_YEAR,
    RHO_MAX,
    YEAR_DAYS,
    Loss,
    ReleaseNoise,
    at_delta,
    counts_of,
    name_of,
    scientific,
    width_of,
    window_of,
)

RELEASES_MAX = 5_000
COUNT_MAX = 1 << 53
"""Beyond this a count in JSON is not one number for every reader."""


class NotPublished(StoreError):
    """A window that is not published, and why."""


@dataclass(frozen=True)
class Release(Document):
    """One window of a metric, as it is published."""

    kind = "releases"
    most = RELEASES_MAX
    metric: str
    question: str
    plan: Plan
    window: str
    """Its length: a key of IN_A_YEAR."""
    first: date
    micro: int
    """Its cost for each device, in micro-epsilon."""
    reports: int
    """r: the most reports of one device, by which the noise is scaled."""
    repeats: int
    """How many of the reports one device may usually have sent, by which errors are computed."""
    charged: date | None = None
    """The day, by the store's clock, on which it was charged or taken over. It is not published."""
    commitment: str = ""
    """SHA-256 of the noise's seed, in hex; "" of one that was taken over from a site. It is not published."""
    counts: tuple[int, ...] | None = None
    """The noisy counts; None until they are drawn."""
    names: tuple[str, ...] = ()
    """The texts whose supports are counted, in each row after its number of reports; () where all symbols are.

    A release of words finds its texts after the charge, and keeps them before their counts are drawn.
    """
    rho: int = 0
    """rho of Gaussian noise, in millionths; 0 of Laplace noise."""
    delta: Decimal | None = None
    """The delta at which the cost follows of rho; None of Laplace noise, whose cost holds for certain."""

    @property
    def document_id(self) -> str:
        """The metric and the window's name. A week and the month around it have two, and are charged both."""
        return f"{self.metric} {self.name}"

    @property
    def name(self) -> str:
        """The window's name: 2026-W48, 2026-11 or 2026-Q4."""
        return name_of(self.window, self.first)

    @property
    def last(self) -> date:
        """The last day of the window."""
        return window_of(self.window, self.first)[1]

    @property
    def noise(self) -> ReleaseNoise:
        """The law of the noise."""
        return ReleaseNoise(self.micro, width_of(self.plan, self.names), self.reports, self.rho)

    @property
    def _to_be_searched(self) -> bool:
        """Whether its names are not found yet: it was charged, and nothing was drawn."""
        return self.plan.kind.searched and not self.names

    @property
    def epsilon(self) -> float:
        """Its cost for each device."""
        return from_micro(self.micro)

    def published(self) -> dict[str, Any]:
        """Return the part that leaves the house: nothing in it depends on the counts but through the noisy ones."""
        return {name: value for name, value in self.to_document().items() if name not in ("commitment", "charged")}

    def to_document(self) -> Mapping[str, Any]:
        """Return all of it by name."""
        return {
            "metric": self.metric,
            "question": self.question,
            "plan": self.plan.to_document(),
            "window": self.window,
            "first": self.first.isoformat(),
            "micro": self.micro,
            "reports": self.reports,
            "repeats": self.repeats,
            "charged": self.charged and self.charged.isoformat(),
            "commitment": self.commitment,
            "counts": None if self.counts is None else list(self.counts),
            **({"names": list(self.names)} if self.names else {}),
            **({} if self.delta is None else {"rho": self.rho, "delta": str(self.delta)}),
        }

    @classmethod
    def _of(cls, fields: Mapping[str, Any]) -> Self:
        counts, charged, names = fields["counts"], fields.get("charged"), fields.get("names", [])
        if not isinstance(names, list):
            raise TypeError("names must be a list")
        release = cls(
            fields["metric"],
            fields["question"],
            Plan.from_document(fields["plan"]),
            fields["window"],
            date.fromisoformat(fields["first"]),
            fields["micro"],
            fields["reports"],
            fields["repeats"],
            None if charged is None else date.fromisoformat(charged),
            fields.get("commitment", ""),
            None if counts is None else tuple(counts),
            tuple(names),
            fields.get("rho", 0),
            Decimal(fields["delta"]) if "delta" in fields else None,
        )
        if set(fields) - set(release.to_document()):
            raise ValueError("a release has a field that none has")
        return release._checked()

    def _checked(self) -> Self:
        """Return this if each field is of its kind, as on a site that anybody may have changed."""
        numbers = (self.micro, self.reports, self.repeats)
        if not all(type(number) is int and 0 < number < 1 << 40 for number in numbers):
            raise ValueError(f"an epsilon and numbers of reports must be numbers above 0, got {numbers}")
        if self.window not in IN_A_YEAR or window_of(self.window, self.first)[0] != self.first:
            raise ValueError(f"a release must begin with a week, month or quarter, got {self.window} {self.first}")
        if (
            not all(isinstance(text, str) for text in (self.question, self.commitment))
            or self.plan.metric != self.metric
        ):
            raise ValueError("a question and a commitment must be texts, and the plan the metric's")
        cells = self.plan.cells
        size, shapes = counts_of(cells, self.names), [part.mechanism.shape for part in cells.parts]
        if any(shape.raises is None for shape in shapes) or not self.plan.kind.published:
            raise ValueError("a release is of symbols or subsets")
        if self._to_be_searched and self.counts is not None:
            raise ValueError("a release of words names those that were looked up")
        if size > COUNTS_MAX and not self._to_be_searched:
            raise ValueError(f"a release is of at most {COUNTS_MAX:,} counts")
        if self.names and not (
            isinstance(self.plan.domain, TypedTexts)
            and all(isinstance(name, str) for name in self.names)
            and len(set(self.names)) == len(self.names)
        ):
            raise ValueError("names are different texts, of a plan of hashed ones")
        if self.delta is not None and not (self.delta.is_finite() and DELTA_MIN <= self.delta <= DELTA_MAX):
            raise ValueError(
                f"a delta must be from {scientific(DELTA_MIN)} to {scientific(DELTA_MAX)}, got {self.delta}"
            )
        if type(self.rho) is not int or not 0 <= self.rho < RHO_MAX or bool(self.rho) != (self.delta is not None):
            raise ValueError("a release with a delta must have a rho, and no other one")
        if self.delta is not None and of_zcdp(Fraction(self.rho, MICRO), self.delta) > self.micro + 1:
            raise ValueError("the rho of a release must not cost more than it says")
        if self.counts is not None and not (
            len(self.counts) == size
            and all(type(count) is int and -COUNT_MAX < count < COUNT_MAX for count in self.counts)
        ):
            raise ValueError(f"a release of this plan must have {size:,} counts")
        return self

    @classmethod
    def faults(cls, kept: Sequence[Self]) -> Iterator[str]:
        """Yield nothing: what is damaged cannot be read."""
        return iter(())


def seal(release: Release, secret: bytes) -> str:
    """Return 128 bits, in hex, by which the store that published a release knows it again."""
    text = canonical_json(release.published())
    return hashlib.blake2b(text, key=secret, digest_size=16, person=b"dither release").hexdigest()


def sealed_by(release: Release, tag: object, secret: bytes) -> bool:
    """Tell whether a store with this secret published a release."""
    return isinstance(tag, str) and hmac.compare_digest(seal(release, secret).encode(), tag.encode())


def seed_of(release: Release, tally: bytes, secret: bytes) -> bytes:
    """Return the seed of a release's noise, 32 bytes: a function of the store's secret, the release and the raw tally.

    The same release of the same tally has the same noise, whenever and wherever it is drawn, in a store that was
    restored as well. Another tally has another noise, independent to whoever lacks the secret: two releases
    with one noise would tell the exact difference of their tallies.
    """
    facts: list[object] = [release.document_id, release.plan.digest, release.micro, release.reports]
    if release.names or release.rho:
        facts += [list(release.names), release.rho]
    context = canonical_json(facts) + hashlib.sha256(tally).digest()
    return hashlib.blake2b(context, key=secret, digest_size=32, person=b"dither noise").digest()


def commitment_to(seed: bytes) -> str:
    """Return what an entry keeps of a seed before anything is drawn from it."""
    return hashlib.sha256(b"commitment " + seed).hexdigest()


def charged_with(entry: Release, kept: Iterable[Release], delta: Decimal | None = None) -> int:
    """Return the most that releases cost a device in YEAR_DAYS in a row, in micro-epsilon, `entry` among them.

    It holds at a delta, or for certain. A release counts on the last day of its window. Raises NotPublished where one
    of them has Gaussian noise and no delta is allowed.
    """
    ends = [(each.last, Loss.of(each.noise)) for each in kept if each.document_id != entry.document_id]
    ends.append((entry.last, Loss.of(entry.noise)))
    most = 0
    for end in {last for last, _ in ends if entry.last <= last < entry.last + timedelta(days=YEAR_DAYS)}:
        first = end - timedelta(days=YEAR_DAYS - 1)
        year = sum((loss for last, loss in ends if first <= last <= end), Loss())
        if year.rho and delta is None:
            raise NotPublished(
                f"{entry.document_id} is not published: releases of the same {YEAR_DAYS} days have Gaussian noise, so "
                f"the registry must have publish_delta"
            )
        most = max(most, year.at(delta))
    return most


def check_year(entry: Release, kept: Iterable[Release], micro_year: int, delta: Decimal | None = None) -> None:
    """Raise NotPublished where an entry would charge devices more than a year allows."""
    charged = charged_with(entry, kept, delta)
    if charged > micro_year:
        raise NotPublished(
            f"{entry.document_id} is not published: releases of {YEAR_DAYS} days would cost a device "
            f"{from_micro(charged):g}{at_delta(delta)}, more than publish_epsilon_year, {from_micro(micro_year):g}"
        )
