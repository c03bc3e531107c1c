"""The terms that the person agreed to, and the metrics that they refused. All within a transaction.

Agreeing keeps the terms of every metric of the registry. A later registry that goes beyond them finds its metric held
back until the person agrees again; the others go on. If all metrics together link a device more than was agreed to, the
agreement holds back those whose own noise links it more. Refusing keeps what was agreed to, so that toggling refreshes
nothing.

Terms that were kept before they said how far a memo links hold for the memo that the device has: one that goes on asks
nothing, and one of another permanent part asks again. A registry that is `linkable` does, too, if such a memo is new.

A refusal that could not be written into the file, as on a full disk, is an empty file beside it: that needs no room on
most file systems. The next process that uses the device first writes the refusal into its file.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import date

from dither.device.file import DeviceFile
from dither.device.schema import FILE_NAME
from dither_shared.files import NO_LINK, StrPath
from dither_shared.frozen import frozen, replaced
from dither_shared.registry import LINKED_MAX, Metric, Registry
from dither_shared.terms import DeviceTerms, Terms

EVERYTHING = ""
"""In place of a metric's name: the person refuses the whole app."""
REFUSED_NAME = f"{FILE_NAME}-refused"
"""The file that says that the whole app is refused; for a metric, its name follows."""


class Refusals:
    """The refusals that are still to be written."""

    def __init__(self, directory: StrPath | None) -> None:
        self._directory = directory
        self._unmarked: set[str] = set()  # that hold in this process alone
        self.pending: set[str] = set()
        self.look()

    def look(self) -> None:
        """Take note of those that there are by now: another process may have left, written or taken back one."""
        names: list[str] = []
        with suppress(
            OSError, ValueError
        ):  # of a directory that may not be entered the file cannot be used either, and says so
            if self._directory:
                names = os.listdir(self._directory)
        self.pending = self._unmarked | {
            name[len(REFUSED_NAME) + 1 :] for name in names if name.startswith(REFUSED_NAME)
        }

    def of(self, metric: str) -> bool:
        """Tell whether a pending refusal covers a metric."""
        return not self.pending.isdisjoint({EVERYTHING, metric})

    def note(self, metric: str) -> bool:
        """Let a refusal hold in this process from now on; tell whether the next start will know, too."""
        self.pending.add(metric)
        try:
            if self._directory:
                os.close(os.open(self._mark(metric), os.O_CREAT | os.O_WRONLY | NO_LINK, 0o600))
        except OSError:
            self._unmarked.add(metric)
            return False
        return True

    def clear(self, *metrics: str) -> None:
        """Take these off: they are written, or the person has changed their mind."""
        for metric in metrics:
            self.pending.discard(metric)
            self._unmarked.discard(metric)
            if self._directory:
                with suppress(FileNotFoundError):
                    os.unlink(self._mark(metric))

    def _mark(self, metric: str) -> str:
        return f"{self._directory}/{REFUSED_NAME}" + (f"-{metric}" if metric else "")


@frozen
class AgreedPlan:
    """The plan of a metric as far as the file knows it."""

    digest: str
    memo_key: str


@frozen
class AgreedMetric:
    """A metric as far as the file knows it, without the app's registry: by the terms that were agreed to."""

    name: str
    terms: str
    """The terms as they are kept; "" where it was only refused."""
    schedule: str
    charges: int
    period_days: int
    expires: date
    presence: str
    memoized: bool
    reservation: int
    plan: AgreedPlan

    @property
    def hidden(self) -> bool:
        """Whether its presence is hidden."""
        return self.presence == "hidden"

    @property
    def charge(self) -> int:
        """The micro-epsilon of a report; of a memo, of all its answers together."""
        return self.reservation if self.memoized else self.reservation // self.charges


Asked = Metric | AgreedMetric
"""A metric of the registry, or of the file alone."""


def agreed_metrics(file: DeviceFile) -> list[AgreedMetric]:
    """Return the metrics that were ever agreed to or refused; within a transaction.

    By what the metric's budget was last prepared for, or else by what was agreed to.
    """
    sql = (
        "SELECT a.metric, a.terms, m.terms, m.memo_key, m.reserved, "
        "COALESCE((SELECT plan FROM retired WHERE metric = a.metric), s.plan, '') FROM agreement AS a "
        "LEFT JOIN metric AS m ON m.name = a.metric LEFT JOIN slot AS s ON s.metric = a.metric ORDER BY a.metric"
    )
    return [_agreed_metric(*row) for row in file.execute(sql).fetchall()]


def _agreed_metric(
    name: str, text: str, prepared_for: str | None, memo_key: str | None, reserved: int | None, digest: str
) -> AgreedMetric:
    plan = AgreedPlan(digest, memo_key or "")
    if not text:
        return AgreedMetric(name, "", "", 1, 1, date.max, "public", memoized=False, reservation=0, plan=plan)
    terms = Terms.from_json(text)
    schedule, charges, period_days, expires = "", terms.charges, terms.period_days, terms.expires
    if prepared_for:
        schedule, *counts, expires = prepared_for.split()
        charges, period_days = map(int, counts)
    return AgreedMetric(
        name=name,
        terms=text,
        schedule=schedule,
        charges=charges,
        period_days=period_days,
        expires=date.fromisoformat(expires),
        presence=terms.presence,
        memoized=terms.memoized,
        reservation=terms.lifetime if reserved is None else reserved,
        plan=plan,
    )


class Agreement:
    """The agreement in a device's file: the table of that name, and some of the state."""

    def __init__(
        self, file: DeviceFile, registry: Registry, refusals: Refusals, before: Agreement | None = None
    ) -> None:
        """Make it. `before` is another device's, whose terms are known if they are of the same registry."""
        self._file = file
        self._refusals = refusals
        self._registry = registry
        self._terms: dict[str, str] = {}  # of the registry's metrics, each since it was needed
        if before and before._registry is registry:
            self._terms = before._terms

    def choice(self) -> bool | None:
        """Return what the person chose for the whole app, or None if they did not choose."""
        chosen = self._file.state.get("consent")
        return None if chosen is None else bool(chosen)

    def choose(self, given: bool) -> None:
        """Keep the person's choice for the whole app."""
        self._file.set("consent", int(given))

    def agreed(self) -> bool:
        """Tell whether anything was ever agreed to."""
        return self._file.state.get("agreed_epsilon") is not None

    def agree(self) -> None:
        """Keep the terms of the whole registry as agreed to."""
        whole = DeviceTerms.of(self._registry)
        for term, value in (("epsilon", whole.epsilon), ("linked", whole.linked), ("linkable", int(whole.linkable))):
            self._file.set(f"agreed_{term}", value)
        for name, metric in self._registry.metrics.items():
            self._file.execute(
                "INSERT INTO agreement (metric, terms) VALUES (?, ?) "
                "ON CONFLICT (metric) DO UPDATE SET terms = excluded.terms",
                (name, self._terms_of(metric)),
            )

    def refuse(self, metric: str, refused: bool) -> None:
        """Keep whether the person refuses one metric."""
        self._file.execute(
            "INSERT INTO agreement (metric, refused) VALUES (?, ?) "
            "ON CONFLICT (metric) DO UPDATE SET refused = excluded.refused",
            (metric, int(refused)),
        )

    def refused(self) -> list[str]:
        """Return the metrics that the person refuses."""
        return [row[0] for row in self._file.execute("SELECT metric FROM agreement WHERE refused ORDER BY metric")]

    def epsilon(self) -> int:
        """Return the most that this device may be charged, in micro-epsilon: what was agreed to, and no more."""
        agreed = self._file.state.get("agreed_epsilon")
        return 0 if agreed is None else int(agreed)

    def allows(self, metric: Metric) -> bool:
        """Tell whether the person's choices let a metric speak."""
        row = self._file.execute("SELECT terms, refused FROM agreement WHERE metric = ?", (metric.name,)).fetchone()
        return not self.refuses(metric.name, bool(row and row[1])) and self.covers(metric, row[0] if row else "")

    def refuses(self, metric: str, kept: bool) -> bool:
        """Tell whether the person refuses a metric, which may be `kept` in its row, or everything."""
        return kept or self.choice() is False or self._refusals.of(metric)

    def covers(self, metric: Asked, agreed: str) -> bool:
        """Tell whether the terms that were agreed to, as they were kept, cover those of a metric."""
        if not agreed or isinstance(metric, AgreedMetric):
            return bool(agreed)
        if agreed == self._terms_of(metric):
            return True
        covered: bool | None = self._file.known(("covers", metric.name))
        if covered is None:
            covered = not self._asks(metric, agreed)
            self._file.learn(("covers", metric.name), covered)
        return covered

    def _terms_of(self, metric: Metric) -> str:
        # Each when it is needed: most of a registry is not, at most starts.
        if metric.name not in self._terms:
            self._terms[metric.name] = Terms.of(metric).to_json()
        return self._terms[metric.name]

    def asks(self) -> dict[str, list[str]]:
        """Return what goes beyond the agreement, by metric, and by "" for the whole device."""
        agreed = dict(self._file.execute("SELECT metric, terms FROM agreement").fetchall())
        found = {name: self._asks(metric, agreed.get(name, "")) for name, metric in self._registry.metrics.items()}
        found[""] = DeviceTerms.of(self._registry).asks(self._agreed_whole())
        return {name: asks for name, asks in found.items() if asks}

    def _asks(self, metric: Metric, agreed: str) -> list[str]:
        terms, before = Terms.of(metric), self._read(metric, agreed)
        asks = terms.asks(before)
        if before and not asks and terms.linked > before.linked:
            asks = DeviceTerms.of(self._registry).links(self._agreed_whole())
        return asks

    def _read(self, metric: Metric, agreed: str) -> Terms | None:
        """Return the terms that were agreed to; None where they cannot be read: those were not agreed to."""
        try:
            terms = Terms.from_json(agreed) if agreed else None
        except (ValueError, TypeError):
            return None
        if terms and not terms.linked and self._lasts_as_before(metric, terms):
            return replaced(terms, linked=Terms.of(metric).linked)
        return terms

    def _lasts_as_before(self, metric: Metric, agreed: Terms) -> bool:
        """Tell whether what lasts of a metric's reports is what was agreed to before terms said how far it links."""
        if not agreed.memoized:  # cells and a public column alone, of which the other terms tell a change
            return not metric.memoized
        sql = "SELECT 1 FROM metric WHERE name = ? AND memo_key = ?"
        return self._file.execute(sql, (metric.name, metric.plan.memo_key)).fetchone() is not None

    def _agreed_whole(self) -> DeviceTerms:
        """Return what was agreed to for the whole device.

        Before terms said how far it links, that was the memos which go on, or what needs no `linkable`.
        """
        linked = self._file.state.get("agreed_linked")
        if linked is not None:
            return DeviceTerms(self.epsilon(), int(linked), bool(self._file.state.get("agreed_linkable")))
        if self._links_more():
            return DeviceTerms(self.epsilon(), round(10_000 * LINKED_MAX))
        return replaced(DeviceTerms.of(self._registry), epsilon=self.epsilon())

    def _links_more(self) -> bool:
        """Tell whether anything that lasts is new, or links more than what was agreed to of its metric."""
        agreed = dict(self._file.execute("SELECT metric, terms FROM agreement").fetchall())
        for name, metric in self._registry.metrics.items():
            before = self._read(metric, agreed.get(name, ""))
            if Terms.of(metric).linked > (before.linked if before else 0):
                return True
        return False
