"""The registry: `metrics.toml`, the questions that an app asks and what each may cost one device.

The app ships the file, or its compiled form (`compiled`), and the aggregator loads the same one. Reading it checks
everything that does not depend on today's date; a mistake names the file, the metric, the key, what was needed and what
came. `shared/registry.md` lists the keys.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType

from dither_shared.domains import VALUE_CHARACTERS_MAX
from dither_shared.errors import ConfigurationError, InvalidParameter, refusal_of
from dither_shared.exact import exp_of_micro, from_micro, to_micro
from dither_shared.files import BYTE_ORDER_MARK, StrPath, parse_toml, read_text
from dither_shared.frozen import frozen, sha256
from dither_shared.installed import load
from dither_shared.kinds import KINDS, Answer, Asked, Kind, PublicColumn
from dither_shared.kinds.kind import CANDIDATES_MAX, read_epsilon, read_memoize
from dither_shared.light_typing import TYPE_CHECKING, Any, Final
from dither_shared.mechanisms import DEVICES, PUBLIC_MAX, Cells, Mechanism
from dither_shared.plan import Plan
from dither_shared.rng import Rng

if TYPE_CHECKING:
    from dither_shared.kinds.precision import KindPrecision, Told, Worth
    from dither_shared.releases import Publishing
    from dither_shared.toml_tables import Mistakes, TomlTable, ValueList

SENSITIVITIES = ("low", "medium", "high")
"""In rising order."""

METRICS_MAX = 1_000
REPORTS_MAX = 10_000
DEVICE_EPSILON_MAX = Decimal(1000)
OWNER_CHARACTERS_MAX = 200
REGISTRY_BYTES_MAX = 32 * 1024 * 1024
"""Above the 100,000 candidates of a text that are listed in the registry itself, each of 200 characters in ASCII."""
LINKED_MAX = 0.25
"""The R(200) of a registry above which it must say that it is linkable."""
LIFETIME: Final = timedelta(days=366)
"""The longest way from today to `expires`: one year, leap years included."""

PUBLISHED = frozenset({"publish", "publish_epsilon", "why", "issue"})
"""The keys that say how a metric's totals are published: no part of its plan."""

RESERVED_NAMES = frozenset(
    {
        "active",
        "close",
        "flush",
        "flush_async",
        "forget",
        "preview",
        "recorded",
        "session",
        "set_consent",
        "status",
        "terms",
        "travel",
    }
)
"""The methods of the telemetry object, and of the one for tests: metrics are its other attributes."""


@frozen
class Metric:
    """One question. Everything here is public, checked, and the same on every device."""

    name: str
    rev: int
    kind: Kind[Any, Answer]
    question: str
    asked: Asked
    """The part that its kind has read: the domain, the cells, and what words to look for."""
    epsilon: Decimal
    charges: int
    """The most charges in a device's life: its reports, or, memoized, its different answers."""
    presence: str
    period_days: int
    schedule: str
    owners: tuple[str, ...]
    sensitivity: str
    expires: date
    publishing: Publishing | None = None
    """How its totals are published; None where they are not, and in a registry that is compiled: no device asks."""
    measures: str = ""
    """The measure of its own use that the device answers with (`measures`); "" where the app records the answer."""

    @cached_property
    def plan(self) -> Plan:
        """The plan that the metric compiles to."""
        asked = self.asked
        return Plan(self.name, self.rev, self.presence, self.kind, asked.domain, asked.cells, once_a_day=True)

    @property
    def values(self) -> tuple[str, ...]:
        """The values that an answer can hold, in order: value v is `values[v]`. A text has none.

        After those that are listed come "other", but for a flag, and "none", where presence is hidden.
        """
        return self.asked.domain.values

    @cached_property
    def cells(self) -> Cells:
        """The cells: how answers are randomized, and the public part of a report."""
        return self.asked.cells

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism of all cells; raises TypeError if they have several."""
        return self.cells.mechanism

    @property
    def _precision(self) -> KindPrecision[Any]:
        try:
            from dither_shared.kinds.precision import precision_of  # no device asks
        except ModuleNotFoundError:
            raise ConfigurationError("install dither-aggregator, which knows how precise it is") from None

        return precision_of(self.kind)

    @property
    def noise_variance(self) -> Fraction:
        """The variance of an estimated share of zero, times n."""
        return self._precision.noise_variance(self.cells)

    def std_errors(self, n: int) -> Mapping[str, float]:
        """Return those of what n reports tell besides shares, in the unit of a number: about, and for planning."""
        return self._precision.std_errors(self.asked, n)

    def tells(self, n: int) -> Told:
        """Return the least that n reports tell of what the kind asks for: for planning."""
        from dither_shared.kinds.precision import DETECTABLE, Told, detectable_share

        return self._precision.tells(self.asked, n) or Told(DETECTABLE, detectable_share(self, self.d, n))

    @property
    def poisoning(self) -> Sequence[Worth]:
        """The worth of a made-up report in each estimate."""
        return self._precision.poisoning(self.asked.domain, self.cells)

    @property
    def unit(self) -> str:
        """The unit of a number; "" for everything else."""
        return self.asked.domain.unit

    @property
    def d(self) -> int:
        """How many answers are told apart: listed values, ranges of numbers, or of a text the candidates."""
        return self.asked.domain.size or max(len(self.asked.candidates), self.asked.candidates_expected)

    @cached_property
    def memoized(self) -> bool:
        """Whether a repeated answer costs nothing more."""
        return self.cells.memoized

    @cached_property
    def charge(self) -> int:
        """The cost of a report or, memoized, of a different answer with all its reports, in micro-epsilon."""
        return self.cells.first_charge

    @cached_property
    def reservation(self) -> int:
        """The most that the metric may ever charge one device, in micro-epsilon."""
        return self.charges * self.charge

    @cached_property
    def linked(self) -> float | None:
        """R(200) of all that a device sends for good of this metric alone; None where nothing lasts."""
        from dither_shared.accounting import linked_share  # a registry that is compiled says it

        return linked_share((self.cells,))

    @cached_property
    def hidden(self) -> bool:
        """Whether it is hidden if a device has anything to say: then it says "none" where it has not."""
        return self.presence == "hidden"

    @property
    def nothing(self) -> Answer:
        """The answer, as it is read, of a device with nothing to say, when presence is hidden."""
        return self.kind.nothing(self.asked.domain)

    @cached_property
    def domain_digest(self) -> str:
        """128 bits of SHA-256, in hex, of what a person sees of the domain: listed values, whatever their order.

        "" of a text, of which there is nothing to see.
        """
        agreed = self.asked.domain.agreed(hidden=self.hidden)
        return "" if agreed is None else sha256(agreed)[:32]

    def takes(self, answer: object) -> bool:
        """Tell whether an answer is one that the metric asks for. Never raises.

        If not, it is read as "other", or by a flag as False.
        """
        try:
            return self.kind.takes(answer, self.asked.domain)
        except Exception:
            # The answer's own __hash__ or __iter__ raised, which may be anything.
            return False

    def misplaced(self, answer: object) -> str:
        """Return which part of an answer is not taken, where it has several, in words that quote none of it."""
        try:
            return self.kind.misplaced(answer, self.asked.domain)
        except Exception:
            return ""

    def read(self, answer: object) -> Answer:
        """Return the listed values that an answer holds, or its text. Runs code of the answer's own, and never raises.

        Any answer that is not asked for is "other", or "no" for a flag.
        """
        try:
            return self.kind.read(answer, self.asked.domain)
        except Exception:
            return self.kind.unreadable(self.asked.domain)

    def names(self, answer: object) -> tuple[str, ...]:
        """Return what an answer is read as, in words: the values that it holds, or its text."""
        return self.kind.names(self.read(answer), self.asked.domain)

    def class_of(self, read: Answer, cell: int, rng: Rng) -> int:
        """Return the class of an answer that was `read`: all that the mechanism of a cell sees of it."""
        return self.kind.class_of(read, self.asked.domain, self.cells, cell, rng)


@frozen
class Registry:
    """All the metrics of one app, with the most that they may charge one device together."""

    app: str
    device_epsilon: Decimal
    quiet_days: int
    metrics: Mapping[str, Metric]
    public: PublicColumn | None = None
    """The fact that the app sets of each device and that reports of tables say in the clear."""
    linkable: bool = False
    """Whether reviewers know that whoever keeps all reports can join those of many devices over time."""
    nearly_certain: bool = False
    """Whether reviewers know that a device's reports may make a guess at its answers nearly certain."""
    unused: tuple[str, ...] = ()
    """The shared lists of values that nothing names."""
    evicted: bool = False
    """Whether reviewers know that browsers may make new devices of one person, and people are told so."""
    publish_epsilon_year: Decimal | None = None
    """The most that releases may cost a device in a year; None where there are none, and where it is compiled."""
    publish_delta: Decimal | None = None
    """The delta at which that holds; None where it holds for certain, and where it is compiled."""

    @classmethod
    def load(cls, path: StrPath) -> Registry:
        """Read a registry, in TOML or compiled.

        Raises RegistryError with the file, the metric, the key and what was needed; for one that is compiled, with the
        next step.
        """
        try:
            source = os.path.join("", path)
            text = read_text(source, REGISTRY_BYTES_MAX)
        except UnicodeDecodeError as error:
            raise refusal_of(source, f"must be UTF-8, which it is not at byte {error.start}") from None
        except (OSError, ValueError, TypeError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            # An app may be started anywhere: a name alone does not say where the file was looked for.
            missing = isinstance(error, FileNotFoundError) and not os.path.isabs(path)
            raise refusal_of(str(path), f"cannot be read: {reason}{_looked_for() if missing else ''}") from None
        if source.endswith(".json") or text.lstrip(f"{BYTE_ORDER_MARK} \t\n").startswith("{"):  # no TOML does
            compiled: Registry = load("dither_shared.compiled:read")(text, source)
            return compiled
        return cls.parse(text, source, os.path.dirname(source))

    @classmethod
    def parse(cls, text: str, source: str = "metrics.toml", directory: StrPath | None = None) -> Registry:
        """Read a registry from its text. Files that it names are looked for in `directory`, and refused without one."""
        try:
            data = parse_toml(text)
        except ValueError as error:
            raise refusal_of(source, f"must be TOML: {error}") from None
        return cls._of_toml(data, text, source, None if directory is None else os.fspath(directory))

    @classmethod
    def reread(cls, path: StrPath, metric: str, changes: Mapping[str, object]) -> Metric:
        """Return a metric of a registry in TOML with some keys changed, whatever it may then cost a device.

        A key whose value is None is left out.

        Raises RegistryError, for a registry that is compiled, too.
        """
        source = os.path.join("", path)
        text = read_text(source, REGISTRY_BYTES_MAX)
        if text.lstrip(f"{BYTE_ORDER_MARK} \t\n").startswith("{"):
            raise refusal_of(source, "is compiled: only metrics.toml can be read with changes")
        return cls.changed(text, metric, changes, os.path.dirname(source))

    @classmethod
    def changed(cls, text: str, metric: str, changes: Mapping[str, object], directory: str | None = None) -> Metric:
        """Return the same of a registry's text."""
        data = parse_toml(text)
        asked = {**data["metric"][metric], **changes}
        table = {key: value for key, value in asked.items() if value is not None and key not in PUBLISHED}
        head = {**data["registry"], "device_epsilon": DEVICE_EPSILON_MAX}
        for key in ("publish_epsilon_year", "publish_delta"):
            head.pop(key, None)
        if not KINDS[table["kind"]].takes_public:
            head.pop("public", None)
        data = {**data, "registry": head, "metric": {metric: table}}
        return cls._of_toml(data, text, "metrics.toml", directory).metrics[metric]

    @classmethod
    def _of_toml(cls, data: dict[str, Any], text: str, source: str, directory: str | None) -> Registry:
        from dither_shared.toml_tables import MISTAKES_MAX, Mistakes, TomlTable  # not for one that is compiled

        mistakes = Mistakes()
        document = TomlTable(source, "", data, text, mistakes=mistakes)
        document.lists = _read_lists(document, directory)
        head: dict[str, Any] = {}
        with mistakes.noted():
            head = _read_head(document.table("registry"))
        metrics: dict[str, Metric] = {}
        with mistakes.noted():
            for name, table in document.tables("metric", METRICS_MAX).items():
                with mistakes.noted():
                    metric = _read_metric(name, table, directory, head.get("public"), mistakes)
                    metrics.update({name: metric} if metric else {})
                if len(mistakes) > MISTAKES_MAX:
                    break
        document.done()
        mistakes.check()
        unused = tuple(name for name in document.lists if name not in document.named)
        registry = cls(metrics=MappingProxyType(metrics), unused=unused, **head)
        if registry.public and not any(metric.kind.takes_public for metric in metrics.values()):
            raise refusal_of(source, "registry: public is for tables, and there is none")
        prove_budget(registry, source)
        if (registry.published or registry.publish_epsilon_year or registry.publish_delta) and _releases_are_there():
            from dither_shared.releases import prove_releases

            prove_releases(registry, source)
        return registry

    @property
    def published(self) -> Mapping[str, Publishing]:
        """How totals are published, by metric; of those that are."""
        return {name: metric.publishing for name, metric in self.metrics.items() if metric.publishing}

    def check_dates(self, today: date, source: str = "metrics.toml") -> None:
        """Refuse metrics that would outlive a year. For reviews and the aggregator: a device never asks."""
        from dither_shared.toml_tables import Mistakes

        mistakes, last = Mistakes(), today + LIFETIME
        for metric in self.metrics.values():
            if metric.expires > last:
                needed = f"must be at most a year away, by {last}, got {metric.expires}"
                mistakes.note(refusal_of(source, f"metric.{metric.name}: expires {needed}"))
        mistakes.check()

    @cached_property
    def linked(self) -> float | None:
        """R(200) of all that one device sends for good, for all metrics; None where nothing lasts."""
        from dither_shared.accounting import linked_share  # a registry that is compiled says it

        return linked_share(tuple(metric.cells for metric in self.metrics.values()))

    def check_linked(self, source: str = "metrics.toml") -> None:
        """Refuse lasting noise that tells many devices apart. For reviews: devices and the aggregator never ask."""
        if self.linkable or (self.linked or 0) <= LINKED_MAX:
            return
        from dither_shared.accounting import hundredths

        each = {name: metric.linked for name, metric in self.metrics.items()}
        parts = ", ".join(f"{name} {hundredths(linked)}" for name, linked in each.items() if linked is not None)
        raise refusal_of(
            source,
            f"registry: R({DEVICES}) must be at most {LINKED_MAX}, got {hundredths(self.linked)}: of {DEVICES} devices "
            f"with the same answers, this share can be told apart by whoever keeps their reports over time ({parts}); "
            f"memoize fewer metrics, ask fewer values (`dither privacy` says what that gives), or say linkable = true",
        )


def prove_budget(registry: Registry, source: str) -> None:
    """Refuse a registry whose metrics could charge a device more than it allows."""
    metrics = registry.metrics.values()
    reserved = sum(metric.reservation for metric in metrics)
    allowed = to_micro(registry.device_epsilon)
    if reserved > allowed:
        from dither_shared.accounting import percent_above, sure

        now, then = (percent_above(sure(exp_of_micro(micro))) for micro in (allowed, reserved))
        parts = ", ".join(f"{metric.name} {from_micro(metric.reservation):g}" for metric in metrics)
        raise refusal_of(
            source,
            f"registry: the metrics reserve more of a device than device_epsilon, {registry.device_epsilon}, allows "
            f"(reports x epsilon, or answers x epsilon_permanent: {parts}): ask fewer reports, or a smaller epsilon. "
            f"To raise device_epsilon is to promise each device less: after all its reports the odds of a guess may "
            f"then rise by e^{from_micro(reserved):g}, of an even one to {then} % sure, not by "
            f"e^{from_micro(allowed):g}, to {now} %. It would have to be at least {from_micro(reserved):g}",
        )


def utc_today() -> date:
    """Return today's date in UTC."""
    return datetime.now(UTC).date()


def _read_head(head: TomlTable) -> dict[str, Any]:
    """Return all that a registry says of the whole app."""
    read = {
        "app": head.name("app"),
        "device_epsilon": head.epsilon("device_epsilon", most=DEVICE_EPSILON_MAX),
        "quiet_days": head.integer("quiet_days", 0, 365, default=1),
        "public": _read_public(head),
        "linkable": head.boolean("linkable", default=False),
        "nearly_certain": head.boolean("nearly_certain", default=False),
        "evicted": head.boolean("evicted", default=False),
    }
    if head.has("publish_epsilon_year"):
        read["publish_epsilon_year"] = head.epsilon("publish_epsilon_year", DEVICE_EPSILON_MAX)
    if head.has("publish_delta"):
        read["publish_delta"] = head.probability("publish_delta")
    head.done()
    return read


def _read_public(head: TomlTable) -> PublicColumn | None:
    if not head.has("public"):
        return None
    inner = head.table("public")
    names = inner.names()
    if len(names) != 1:
        raise head.error("public", f"must name one column, got {len(names)}")
    values = inner.list_or_name(names[0], PUBLIC_MAX, VALUE_CHARACTERS_MAX).values
    if len(values) == 1:
        raise inner.error(names[0], "must have two values or more: one tells nothing")
    inner.done()
    return PublicColumn(names[0], values)


def _read_lists(document: TomlTable, directory: str | None) -> Mapping[str, ValueList]:
    """Return the lists [values.NAME], which any other list may name in its place."""
    if not document.has("values"):
        return {}
    document.table("values").names()
    tables = document.tables("values", METRICS_MAX)
    lists = {
        name: table.list_or_file("values", directory, CANDIDATES_MAX, VALUE_CHARACTERS_MAX)
        for name, table in tables.items()
    }
    for table in tables.values():
        table.done()
    return lists


def _looked_for() -> str:
    """Say in which directory a relative path was looked for, if there still is one."""
    try:
        return f" in {os.getcwd()}"
    except OSError:
        return ""


def _read_metric(
    name: str, table: TomlTable, directory: str | None, public: PublicColumn | None, mistakes: Mistakes
) -> Metric | None:
    """Return a metric; None, and its mistakes noted, where its kind's own keys make none."""
    table.check_metric_name(name, RESERVED_NAMES)
    if not table.has("kind"):
        meanings = ", ".join(f'"{kind.name}" {kind.meaning}' for kind in KINDS.values())
        raise table.error("kind", f"is missing: {meanings}")
    noted = len(mistakes)
    meant = {}
    if not table.is_one_of("kind", KINDS):  # else only those that are asked for are loaded
        meant = {alias: each.name for each in KINDS.values() for alias in each.aliases}
    kind = KINDS[table.one_of("kind", KINDS, meant=meant)]
    known = len(mistakes) == noted or table.is_one_of("kind", meant)
    presence = table.one_of("presence", ("public", "hidden"))
    asked = None
    if table.has("measures"):
        from dither_shared.measures import check_kind, read_measures  # most registries have none

        check_kind(table, kind.name)
    if known:
        with mistakes.noted():
            asked = kind.read_table(table, directory, metric=name, hidden=presence == "hidden")
            if public and kind.takes_public:
                asked = _beside(kind, asked, public, table, presence)
    memoize = read_memoize(table)
    facts: dict[str, Any] = {
        "rev": table.integer("rev", 1, 1_000_000),
        "question": table.text("question", 300),
        "epsilon": read_epsilon(table),
        "charges": asked and (asked.answers or table.integer("answers" if memoize else "reports", 1, REPORTS_MAX)),
        "period_days": table.days("period"),
        "schedule": table.one_of("schedule", ("spread", "early"), default="early" if memoize else "spread"),
        "owners": table.texts("owners", 20, OWNER_CHARACTERS_MAX),
        "sensitivity": table.one_of("sensitivity", SENSITIVITIES),
        "expires": table.day("expires"),
    }
    if table.has("publish"):
        facts["publishing"] = _read_publishing(table, kind, asked)
    else:
        for key in ("publish_epsilon", "why", "issue"):
            if table.has(key):
                raise table.error(key, "is for a metric whose totals are published: say publish, too")
    if asked is None:
        return None
    if memoize and facts["schedule"] == "spread":
        raise table.error("schedule", 'must not be "spread" where answers are memoized: they are asked in every period')
    if table.has("measures"):
        how = {key: facts[key] for key in ("charges", "period_days", "schedule")}
        facts["measures"] = read_measures(table, asked.domain, memoize=memoize, **how)
    table.done()
    return Metric(name=name, kind=kind, asked=asked, presence=presence, **facts)


def _releases_are_there() -> bool:
    """Whether `releases` is: dither-aggregator brings it, and a device does nothing differently without it."""
    from importlib.util import find_spec

    return find_spec("dither_shared.releases") is not None


def _read_publishing(table: TomlTable, kind: Kind[Any, Answer], asked: Asked | None) -> Publishing | None:
    if not _releases_are_there():
        _ = [table.has(key) for key in PUBLISHED]  # or they would be keys that nobody knows
        return None
    from dither_shared.releases import read_publishing

    return read_publishing(table, kind, asked)


def _beside(kind: Kind[Any, Answer], asked: Asked, public: PublicColumn, table: TomlTable, presence: str) -> Asked:
    if presence == "hidden":
        raise table.error("presence", f'must be "public" beside the public column {public.name}')
    try:
        return kind.beside(asked, public)
    except InvalidParameter as error:
        raise table.error("columns", f"must fit beside the public column {public.name}: {error}") from None
