"""The registry: `metrics.toml`, the questions that an app asks and what each may cost one device.

The app ships the file and the aggregator loads the same one. Reading it checks everything that does not depend on
today's date; a mistake names the file, the metric, the key, what was needed and what came. `shared/README.md` lists
the keys.
"""

import tomllib
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Final

from dither_shared.bloom import BITS_MAX, HASHES_MAX
from dither_shared.errors import InvalidParameter
from dither_shared.exact import from_micro, to_micro
from dither_shared.frozen import frozen
from dither_shared.mechanisms import ONE_VALUE, RAPPOR, SEVERAL_VALUES, Mechanism, Memoized, PureMechanism, choose
from dither_shared.mechanisms.rappor import COHORTS_MAX
from dither_shared.plan import Plan, canonical_json
from dither_shared.tables import Table, read_metric_name

FLAG_VALUES = ("no", "yes")
OTHER = "other"
NONE = "none"
"""What a device says that has nothing to say, where whether it has is hidden. Always the last value."""
SENSITIVITIES = ("low", "medium", "high")
"""In rising order."""

VALUES_MAX = 65_535
CANDIDATES_MAX = 100_000
VALUE_CHARACTERS_MAX = 200
TICKS_MAX = 64
METRICS_MAX = 1_000
LIFETIME: Final = timedelta(days=366)
"""The longest way from today to `expires`: one year, leap years included."""

RESERVED_NAMES = frozenset({"close", "flush", "forget", "preview", "recorded", "set_consent", "status", "travel"})
"""The methods of the telemetry object, and of the one for tests: metrics are its other attributes."""


@frozen
class Metric:
    """One question. Everything here is public, checked, and the same on every device."""

    name: str
    rev: int
    kind: str
    question: str
    values: tuple[str, ...]
    """What an answer can hold, in order: value v is `values[v]`. A text has none.

    After those that are listed come "other", but for a flag, and "none", where presence is hidden.
    """
    candidates: tuple[str, ...]
    """Of a text: what to look for by default. No part of the plan: any list can be looked for at any time."""
    candidates_expected: int
    """Of a text: how long such a list may become."""
    mechanism: Mechanism
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
    def d(self) -> int:
        """How many values are told apart: the listed ones, or of a text the candidates."""
        return len(self.values) or max(len(self.candidates), self.candidates_expected)

    @property
    def memoized(self) -> bool:
        """Whether a repeated answer costs nothing more."""
        return isinstance(self.mechanism, Memoized)

    @property
    def charge(self) -> int:
        """What a report costs, or, memoized, a different answer with all its reports: in micro-epsilon."""
        return self.mechanism.first_stage.charge

    @property
    def reservation(self) -> int:
        """What the metric may charge one device, ever, in micro-epsilon."""
        return self.charges * self.charge

    @property
    def hidden(self) -> bool:
        """Whether it is hidden if a device has anything to say: then it says "none" where it has not."""
        return self.presence == "hidden"

    @property
    def nothing(self) -> tuple[int, ...] | str:
        """What a device that has nothing to say has `read`, where presence is hidden."""
        return NONE if self.kind == "text" else (self._indices[NONE],)

    @cached_property
    def values_digest(self) -> str:
        """128 bits of SHA-256, in hex, of the set of values, whatever their order; "" of a text, which has none.

        Presence has its own place in what people agree to: the "none" that it adds is left out.
        """
        if not self.values:
            return ""
        import hashlib  # as in plan.py

        listed = self.values[:-1] if self.hidden else self.values
        return hashlib.sha256(canonical_json(sorted(listed))).hexdigest()[:32]

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {value: index for index, value in enumerate(self.values)}

    def indices(self, answer: object) -> tuple[int, ...]:
        """Return which listed values an answer of the host app holds. Never raises: silence would be an answer.

        A flag takes True and False, numpy's too; everything else is read as False, whatever its truth: it is not
        asked. A choice takes a text, choices take a list, tuple or set of them, or one text. Everything that is not
        listed is "other", wrong types included.
        """
        try:
            if self.kind == "flag":
                return (int(_is_bool(answer) and bool(answer)),)
            if self.kind == "choices" and isinstance(answer, list | tuple | set | frozenset):
                return tuple(sorted({self._index(value) for value in answer}))
            return (self._index(answer),)
        except Exception:
            # The answer's own __hash__ or __iter__ raised, which may be anything.
            return (self._indices[FLAG_VALUES[0] if self.kind == "flag" else OTHER],)

    def takes(self, answer: object) -> bool:
        """Tell whether an answer is one that the metric asks for. Never raises.

        If not, it is read as "other", or by a flag as False.
        """
        try:
            if self.kind == "flag":
                return _is_bool(answer)
            if self.kind == "text":
                return isinstance(answer, str) and str.__len__(answer) <= VALUE_CHARACTERS_MAX
            several = self.kind == "choices" and isinstance(answer, list | tuple | set | frozenset)
            values = list(answer) if several else [answer]  # type: ignore[call-overload]
            return all(isinstance(value, str) and value in self._indices for value in values)
        except Exception:
            return False

    def read(self, answer: object) -> tuple[int, ...] | str:
        """Return the listed values that an answer holds, or its text. Runs code of the answer's own, and never raises.

        What is no text, or has over 200 characters, is the text "other".
        """
        if self.kind != "text":
            return self.indices(answer)
        try:
            return _plain_text(answer)
        except Exception:
            return OTHER

    def class_of(self, read: tuple[int, ...] | str, cohort: int) -> int:
        """Return the class of an answer that was `read`: all that the mechanism sees of it.

        `cohort` is the device's, among those that the mechanism has; of listed values it is ignored.
        """
        if isinstance(read, str):
            assert isinstance(self.mechanism, RAPPOR)
            return self.mechanism.class_of(read, cohort)
        return self.plan.pure.class_of(read)

    def _index(self, value: object) -> int:
        other = self._indices[OTHER]
        return self._indices.get(value, other) if isinstance(value, str) else other


@frozen
class Registry:
    """All the metrics of one app, with the most that they may charge one device together."""

    app: str
    device_epsilon: Decimal
    quiet_days: int
    metrics: Mapping[str, Metric]

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Registry":
        """Read a registry; raise RegistryError with the file, the metric, the key and what was needed."""
        try:
            path = Path(path)
            source = str(path)
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise Table.refuse(source, f"must be UTF-8, which it is not at byte {error.start}") from None
        except (OSError, ValueError, TypeError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise Table.refuse(str(path), f"cannot be read: {why}") from None
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


_NUMPY_BOOLS = {("numpy", "bool"), ("numpy", "bool_")}
"""The type of numpy's True and False, in version 2 and before, by its module and name: numpy is not imported."""


def _is_bool(answer: object) -> bool:
    """Tell whether an answer is True or False, or numpy's. The type says it: `__bool__` is not called."""
    kind = type(answer)
    return kind is bool or (kind.__module__, kind.__name__) in _NUMPY_BOOLS


def _plain_text(answer: object) -> str:
    """Return a text as it is; what is none, or too long, is "other". A lone surrogate becomes a question mark."""
    if not isinstance(answer, str) or str.__len__(answer) > VALUE_CHARACTERS_MAX:
        return OTHER
    return str.encode(answer, "utf-8", "replace").decode("utf-8")


def utc_today() -> date:
    """Return today's date in UTC."""
    return datetime.now(UTC).date()


def _read_metric(name: str, table: Table, folder: Path | None) -> Metric:
    read_metric_name(table, name, RESERVED_NAMES)
    kind = table.one_of("kind", ("flag", "choice", "choices", "text"))
    values: tuple[str, ...] = ()
    presence = table.one_of("presence", ("public", "hidden"))
    unlisted = (NONE,) if presence == "hidden" else ()
    candidates: tuple[str, ...] = ()
    if kind == "flag":
        values = (*FLAG_VALUES, *unlisted)
    elif kind != "text":
        values = (*_read_list(table, "values", folder, OTHER, *unlisted), OTHER, *unlisted)
    elif table.has("candidates") or table.has("candidates_file"):
        candidates = (*_read_list(table, "candidates", folder, *unlisted), *unlisted)
    epsilon = table.epsilon("epsilon")
    memoize = table.boolean("memoize", default=False)
    expected, mechanism = (
        _read_rappor(table, epsilon, memoize)
        if kind == "text"
        else (1, _read_mechanism(table, kind, len(values), epsilon, memoize))
    )
    metric = Metric(
        name=name,
        kind=kind,
        rev=table.integer("rev", 1, 1_000_000),
        question=table.text("question", 300),
        values=values,
        candidates=candidates,
        candidates_expected=expected,
        mechanism=mechanism,
        epsilon=epsilon,
        charges=table.integer("answers" if memoize else "reports", 1, 10_000),
        presence=presence,
        period_days=table.days("period"),
        schedule=table.one_of("schedule", ("spread", "early"), default="early" if memoize else "spread"),
        owners=table.texts("owners", 20, 200),
        sensitivity=table.one_of("sensitivity", SENSITIVITIES),
        expires=table.day("expires"),
    )
    if memoize and metric.schedule == "spread":
        raise table.error("schedule", 'must not be "spread" where answers are memoized: they are asked in every period')
    table.done()
    return metric


def _read_permanent(table: Table, epsilon: Decimal) -> Decimal:
    permanent = table.epsilon("epsilon_permanent")
    if permanent <= epsilon:
        raise table.error("epsilon_permanent", f"must be above epsilon, {epsilon}, got {permanent}")
    return permanent


def _read_rappor(table: Table, epsilon: Decimal, memoize: bool) -> tuple[int, RAPPOR]:
    """Return the expected candidates and the sizes and noise of least error for them.

    Or 1 and the given parameters, whose epsilons must be stated.
    """
    if not memoize:
        raise table.error("memoize", "must be true for a text: its noise is drawn once and repeated")
    if table.has("reports"):
        raise table.error("reports", _FRESH_ONLY["reports"])
    permanent = _read_permanent(table, epsilon)
    if not (table.has("parameter_set") or table.has("parameters")):
        from dither_shared.mechanisms.parameter_sets import choose_rappor  # only for texts

        expected = table.integer("candidates_expected", 1, CANDIDATES_MAX, default=1_000)
        return expected, choose_rappor(epsilon, permanent, expected)
    if table.has("candidates_expected"):
        raise table.error("candidates_expected", "must be left out where the parameters are given: it chooses them")
    mechanism = _read_parameters(table)
    for key, stated, charge in (
        ("epsilon", epsilon, mechanism.charge),
        ("epsilon_permanent", permanent, mechanism.permanent.charge),
    ):
        if to_micro(stated) != charge:
            raise table.error(key, f"must be that of the parameters, {from_micro(charge)}, got {stated}")
    return 1, mechanism


def _read_parameters(table: Table) -> RAPPOR:
    """Return RAPPOR with a published parameter set, or with sizes and probabilities of one's own."""
    if table.has("parameter_set") and table.has("parameters"):
        raise table.error("parameters", "or parameter_set is needed, and not both")
    if table.has("parameter_set"):
        from dither_shared.mechanisms.parameter_sets import PARAMETER_SETS

        return PARAMETER_SETS[table.one_of("parameter_set", tuple(PARAMETER_SETS))].mechanism
    given = table.table("parameters")
    k, h, m = (given.integer(name, 1, most) for name, most in (("k", BITS_MAX), ("h", HASHES_MAX), ("m", COHORTS_MAX)))
    f, p, q = (Fraction(given.probability(name)) for name in ("f", "p", "q"))
    given.done()
    try:
        return RAPPOR.of_probabilities(k, h, m, f, p, q)
    except InvalidParameter as error:
        raise table.error("parameters", f"are not those of a RAPPOR that may be repeated: {error}") from None


def _read_mechanism(table: Table, kind: str, d: int, epsilon: Decimal, memoize: bool) -> PureMechanism:
    """Return the named mechanism, or the automatic choice."""
    permanent = _read_permanent(table, epsilon) if memoize else None
    for key, why in _FRESH_ONLY.items() if memoize else _MEMOIZED_ONLY.items():
        if table.has(key):
            raise table.error(key, why)
    ticks = table.integer("ticks_max", 2, min(d, TICKS_MAX)) if kind == "choices" else None
    names = ONE_VALUE if ticks is None else SEVERAL_VALUES
    name = table.one_of("mechanism", names) if table.has("mechanism") else None
    try:
        return choose(d, epsilon, ticks=ticks, permanent=permanent, name=name)
    except InvalidParameter as error:
        steps = ["ask fewer values"]
        if name is not None:
            steps.append("leave mechanism out")
        if memoize and ticks is None:
            steps.append("ask fresh answers")
        raise table.error("values", f"are too many: {error}; {', or '.join(steps)}") from None


_FRESH_ONLY = {"reports": "must be left out where answers are memoized: repeating one costs nothing more"}
_MEMOIZED_ONLY = dict.fromkeys(
    ("epsilon_permanent", "answers"), "is for memoized answers: add memoize = true and leave reports out"
)


def _read_list(table: Table, key: str, folder: Path | None, *unlisted: str) -> tuple[str, ...]:
    """Return the listed values, from `key` or from the lines of the file that `key`_file names.

    Those that are `unlisted` come to the list by themselves.
    """
    file_key = f"{key}_file"
    if table.has(key) == table.has(file_key):
        raise table.error(key, f"or {file_key} is needed, and not both")
    most = VALUES_MAX if key == "values" else CANDIDATES_MAX
    if table.has(key):
        listed = table.texts(key, most, VALUE_CHARACTERS_MAX)
    else:
        listed = table.lines_of_file(file_key, folder, most, VALUE_CHARACTERS_MAX)
    for value in unlisted:
        if value in listed:
            raise table.error(key, f'must leave out "{value}": {_UNLISTED[value]}')
    return listed


_UNLISTED = {
    OTHER: "it is always there and takes everything else",
    NONE: "presence is hidden, so it is there and said by devices that have nothing to say",
}
