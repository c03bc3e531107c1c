"""The registry: `metrics.toml`, the questions that an app asks and what each may cost one device.

The app ships the file and the aggregator loads the same one. Reading it checks everything that does not depend on
today's date; a mistake names the file, the metric, the key, what was needed and what came. `shared/README.md` lists
the keys.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Final

from dither_shared.errors import InvalidParameter
from dither_shared.exact import from_micro, to_micro
from dither_shared.mechanisms import MECHANISMS, Memoized, PureMechanism, choose
from dither_shared.plan import Plan
from dither_shared.tables import Table, read_metric_name

FLAG_VALUES = ("no", "yes")
OTHER = "other"

VALUES_MAX = 65_535
VALUE_CHARACTERS_MAX = 200
TICKS_MAX = 64
METRICS_MAX = 1_000
LIFETIME: Final = timedelta(days=366)
"""The longest way from today to `expires`: one year, leap years included."""

RESERVED_NAMES = frozenset({"close", "flush", "forget", "preview", "set_consent", "status"})
"""The methods of the telemetry object, whose attributes are the metrics."""


@dataclass(frozen=True)
class Metric:
    """One question. Everything here is public, checked, and the same on every device."""

    name: str
    rev: int
    kind: str
    question: str
    values: tuple[str, ...]
    """What an answer can hold, in order: value v is `values[v]`. All but a flag's end with "other"."""
    mechanism: PureMechanism
    epsilon: Decimal
    charges: int
    """The most charges in a device's life: its reports, or, memoized, its different answers."""
    presence: str
    period_days: int
    schedule: str
    owners: tuple[str, ...]
    sensitivity: str
    expires: date

    @cached_property
    def plan(self) -> Plan:
        """What the metric compiles to."""
        return Plan(self.name, self.rev, self.presence, self.values, self.mechanism)

    @property
    def memoized(self) -> bool:
        """Whether a repeated answer costs nothing more."""
        return isinstance(self.mechanism, Memoized)

    @property
    def charge(self) -> int:
        """What a report costs, or, memoized, a different answer with all its reports: in micro-epsilon."""
        return self.mechanism.permanent.charge if isinstance(self.mechanism, Memoized) else self.mechanism.charge

    @property
    def reservation(self) -> int:
        """What the metric may charge one device, ever, in micro-epsilon."""
        return self.charges * self.charge

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {value: index for index, value in enumerate(self.values)}

    def indices(self, answer: object) -> tuple[int, ...]:
        """Return which values an answer of the host app holds. Never raises: silence would tell what the answer was.

        A flag takes the answer's truth. A choice takes a text, choices take a list, tuple or set of them, or one text.
        Everything that is not listed is "other", wrong types included.
        """
        try:
            if self.kind == "flag":
                return (int(bool(answer)),)
            if self.kind == "choices" and isinstance(answer, list | tuple | set | frozenset):
                return tuple(sorted({self._index(value) for value in answer}))
            return (self._index(answer),)
        except Exception:
            # The answer's own __bool__, __hash__ or __iter__ raised, which may be anything.
            return (self._indices[FLAG_VALUES[0] if self.kind == "flag" else OTHER],)

    def _index(self, value: object) -> int:
        other = self._indices[OTHER]
        return self._indices.get(value, other) if isinstance(value, str) else other


@dataclass(frozen=True)
class Registry:
    """All the metrics of one app, with the most that they may charge one device together."""

    app: str
    device_epsilon: Decimal
    quiet_days: int
    metrics: Mapping[str, Metric]

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Registry":
        """Read a registry; raise RegistryError with the file, the metric, the key and what was needed."""
        path = Path(path)
        source = str(path)
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise Table.refuse(source, f"cannot be read: {error.strerror or error}") from None
        except UnicodeDecodeError as error:
            raise Table.refuse(source, f"must be UTF-8, which it is not at byte {error.start}") from None
        return cls.parse(text, source, path.parent)

    @classmethod
    def parse(cls, text: str, source: str = "metrics.toml", folder: Path | None = None) -> "Registry":
        """Read a registry from its text. `values_file` is looked for in `folder`."""
        try:
            document = Table(source, "", tomllib.loads(text, parse_float=Decimal))
        except (tomllib.TOMLDecodeError, RecursionError, ValueError, ArithmeticError) as error:
            raise Table.refuse(source, f"must be TOML: {error}") from None
        head = document.table("registry")
        app = head.name("app")
        device_epsilon = head.epsilon("device_epsilon", most=Decimal(1000))
        quiet_days = head.integer("quiet_days", 0, 365, default=1)
        head.done()
        tables = document.tables("metric", METRICS_MAX)
        document.done()
        registry = cls(
            app,
            device_epsilon,
            quiet_days,
            MappingProxyType({name: _read_metric(name, table, folder) for name, table in tables.items()}),
        )
        registry._prove_budget(source)
        return registry

    def _prove_budget(self, source: str) -> None:
        reserved = sum(metric.reservation for metric in self.metrics.values())
        if reserved > to_micro(self.device_epsilon):
            parts = ", ".join(f"{metric.name} {from_micro(metric.reservation):g}" for metric in self.metrics.values())
            raise Table.refuse(
                source,
                f"registry: device_epsilon must be at least the sum of what the metrics reserve, "
                f"{from_micro(reserved):g} (reports x epsilon, or answers x epsilon_permanent: {parts}), "
                f"got {self.device_epsilon}",
            )

    def check_dates(self, today: date, source: str = "metrics.toml") -> None:
        """Refuse a metric that would outlive a year. For reviews and the aggregator: a device never asks."""
        for metric in self.metrics.values():
            if metric.expires > today + LIFETIME:
                raise Table.refuse(
                    source,
                    f"metric.{metric.name}: expires must be at most a year away, by {today + LIFETIME}, "
                    f"got {metric.expires}",
                )


def utc_today() -> date:
    """Return today's date in UTC."""
    return datetime.now(UTC).date()


def _read_metric(name: str, table: Table, folder: Path | None) -> Metric:
    read_metric_name(table, name, RESERVED_NAMES)
    kind = table.one_of("kind", ("flag", "choice", "choices"))
    values = FLAG_VALUES if kind == "flag" else (*_read_values(table, folder), OTHER)
    epsilon = table.epsilon("epsilon")
    memoize = table.boolean("memoize", default=False)
    metric = Metric(
        name=name,
        kind=kind,
        rev=table.integer("rev", 1, 1_000_000),
        question=table.text("question", 300),
        values=values,
        mechanism=_read_mechanism(table, kind, len(values), epsilon, memoize),
        epsilon=epsilon,
        charges=table.integer("answers" if memoize else "reports", 1, 10_000),
        presence=table.one_of("presence", ("public",)),
        period_days=table.days("period"),
        schedule=table.one_of("schedule", ("spread", "early"), default="early" if memoize else "spread"),
        owners=table.texts("owners", 20, 200),
        sensitivity=table.one_of("sensitivity", ("low", "medium", "high")),
        expires=table.day("expires"),
    )
    if memoize and metric.schedule == "spread":
        raise table.error("schedule", 'must not be "spread" where answers are memoized: they are asked in every period')
    table.done()
    return metric


def _read_mechanism(table: Table, kind: str, d: int, epsilon: Decimal, memoize: bool) -> PureMechanism:
    """Return the named mechanism, or the automatic choice."""
    permanent = table.epsilon("epsilon_permanent") if memoize else None
    if permanent is not None and permanent <= epsilon:
        raise table.error("epsilon_permanent", f"must be above epsilon, {epsilon}, got {permanent}")
    for key, why in _FRESH_ONLY.items() if memoize else _MEMOIZED_ONLY.items():
        if table.has(key):
            raise table.error(key, why)
    ticks = table.integer("ticks_max", 2, min(d, TICKS_MAX)) if kind == "choices" else None
    names = tuple(name for name in MECHANISMS if ticks is None or name in ("oue", "sue"))
    name = table.one_of("mechanism", names) if table.has("mechanism") else None
    try:
        return choose(d, epsilon, ticks=ticks, permanent=permanent, name=name)
    except InvalidParameter as error:
        hint = "; ask fewer values, or fresh answers" if memoize else "; leave mechanism out"
        raise table.error("values", f"are too many: {error}{hint}") from None


_FRESH_ONLY = {"reports": "must be left out where answers are memoized: repeating one costs nothing more"}
_MEMOIZED_ONLY = dict.fromkeys(
    ("epsilon_permanent", "answers"), "is for memoized answers: add memoize = true and leave reports out"
)


def _read_values(table: Table, folder: Path | None) -> tuple[str, ...]:
    """Return the listed values, from `values` or from the lines of `values_file`."""
    if table.has("values") == table.has("values_file"):
        raise table.error("values", "or values_file is needed, and not both")
    if table.has("values"):
        values = table.texts("values", VALUES_MAX, VALUE_CHARACTERS_MAX)
    else:
        values = table.lines_of_file("values_file", folder, VALUES_MAX, VALUE_CHARACTERS_MAX)
    if OTHER in values:
        raise table.error("values", 'must leave out "other": it is always there and takes everything else')
    return values
