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

from dither_shared.exact import from_micro, to_micro
from dither_shared.plan import Plan
from dither_shared.tables import Table, read_metric_name

FLAG_VALUES = ("no", "yes")
OTHER = "other"

VALUES_MAX = 65_535
VALUE_CHARACTERS_MAX = 200
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
    """What an answer can be, in order: a report's value v is `values[v]`. A choice ends with "other"."""
    epsilon: Decimal
    reports: int
    presence: str
    period_days: int
    schedule: str
    owners: tuple[str, ...]
    sensitivity: str
    expires: date

    @cached_property
    def plan(self) -> Plan:
        """What the metric compiles to."""
        return Plan.compile(self.name, self.rev, self.presence, self.values, self.epsilon)

    @property
    def reservation(self) -> int:
        """What the metric may charge one device, ever, in micro-epsilon."""
        return self.reports * self.plan.mechanism.charge

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {value: index for index, value in enumerate(self.values)}

    def index(self, answer: object) -> int:
        """Return which value an answer of the host app is. Never raises: silence would tell what the answer was.

        A flag takes the answer's truth. In a choice everything that is not listed is "other", wrong types included.
        """
        try:
            if self.kind == "flag":
                return int(bool(answer))
            return self._indices[answer] if isinstance(answer, str) else self._indices[OTHER]
        except Exception:
            # Not listed; or the answer's own __bool__ or __hash__ raised, which may be anything.
            return self._indices[FLAG_VALUES[0] if self.kind == "flag" else OTHER]


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
                f"{from_micro(reserved):g} (reports x epsilon: {parts}), got {self.device_epsilon}",
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
    kind = table.one_of("kind", ("flag", "choice"))
    metric = Metric(
        name=name,
        kind=kind,
        rev=table.integer("rev", 1, 1_000_000),
        question=table.text("question", 300),
        values=FLAG_VALUES if kind == "flag" else (*_read_values(table, folder), OTHER),
        epsilon=table.epsilon("epsilon"),
        reports=table.integer("reports", 1, 10_000),
        presence=table.one_of("presence", ("public",)),
        period_days=table.days("period"),
        schedule=table.one_of("schedule", ("spread", "early"), default="spread"),
        owners=table.texts("owners", 20, 200),
        sensitivity=table.one_of("sensitivity", ("low", "medium", "high")),
        expires=table.day("expires"),
    )
    table.done()
    return metric


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
