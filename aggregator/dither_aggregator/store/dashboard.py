"""The dashboard: an operator's file beside the registry, which changes without a release of the app.

    [group.browser]                            # names for sets of a metric's values: a list, or patterns with * and ?
    "Chrome" = "Chrome *"
    "Old" = ["Internet Explorer *", "Opera Mini"]

    [group.load_time]                          # and for numbers between two edges
    "slow" = { from = 3, below = 10 }

    [metric.browser]
    tags = ["web"]

    [question]
    "Chrome by week" = 'share(browser in "Chrome *") by week'

Nothing that is counted, and no plan's digest, depends on it. The store keeps it, so that all processes read the same.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from dither_aggregator.store.document_kinds import Document, is_one_line
from dither_shared.domains import NONE, OTHER, Buckets
from dither_shared.errors import ConfigurationError
from dither_shared.files import parse_toml, read_text
from dither_shared.plan import Plan

FILE_NAME = "dashboard.toml"
FILE_BYTES_MAX = 256 * 1024
NAME_CHARACTERS_MAX = 80
_NAMES = re.compile("[a-z][a-z0-9_]*")
ENTRIES_MAX = 1_000
"""The most groups, tags of all metrics, and questions: a page reads them all."""


@dataclass(frozen=True)
class ValueGroup:
    """A name for some values of a metric, or for the numbers between two edges."""

    metric: str
    name: str
    patterns: tuple[str, ...] = ()
    lower: Decimal | None = None
    """For numbers: the least, in the metric's unit; None without one."""
    below: Decimal | None = None
    """All numbers of the group are below it; None without one."""
    late: bool = False
    """Whether it was written when the metric had reports: so it may have been made because of what these showed."""

    def has(self, value: str) -> bool:
        """Tell whether a value is one of it. No pattern means "other" or "none": they have to be named."""
        return value in self.patterns or (
            value not in (OTHER, NONE) and any(fnmatchcase(value, pattern) for pattern in self.patterns)
        )

    def places(self, plan: Plan) -> Sequence[int]:
        """Return which values of a plan it has, or which ranges, by number; raise ConfigurationError where none can be.

        The first range is that below the first edge.
        """
        where = f"group.{self.metric}.{self.name}"
        if isinstance(plan.domain, Buckets):
            if self.patterns:
                raise ConfigurationError(f"{where}: {self.metric} is of numbers: write {{ from = 3, below = 10 }}")
            edges = [Decimal(edge).scaleb(-plan.domain.decimals) for edge in plan.domain.edges]
            for end in (self.lower, self.below):
                if end is not None and end not in edges:
                    raise ConfigurationError(f"{where}: {end} is no edge of {self.metric}: {_listed(map(str, edges))}")
            first = 0 if self.lower is None else edges.index(self.lower) + 1
            return range(first, len(edges) + 1 if self.below is None else edges.index(self.below) + 1)
        if not (plan.values and self.patterns):
            raise ConfigurationError(f"{where}: {self.metric} has no {'list of values' if self.patterns else 'ranges'}")
        places = [place for place, value in enumerate(plan.values) if self.has(value)]
        if not places:
            raise ConfigurationError(f"{where}: {self.metric} has no such value, only {_listed(plan.values)}")
        return places


@dataclass(frozen=True)
class Dashboard(Document):
    """All that the file says."""

    kind = "dashboard"
    most = 1
    public = True
    groups: tuple[ValueGroup, ...] = ()
    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The tags of metrics, by name."""
    questions: Mapping[str, str] = field(default_factory=dict)
    """Saved questions, by title."""
    fixed: tuple[str, ...] = ()
    """Questions that were ever written before the first report of what they name; those that are gone count, too."""
    written: Mapping[str, int] = field(default_factory=dict)
    """How many groups a metric ever had that were written before its first report: those that are gone count, too."""

    @classmethod
    def load(cls, path: Path) -> "Dashboard":
        """Read the file; raise ConfigurationError, which names the place, for one that is wrong."""
        try:
            return cls.parse(read_text(path, FILE_BYTES_MAX))
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{path}: {error}") from None

    @classmethod
    def parse(cls, text: str) -> "Dashboard":
        """Read its text; raise ConfigurationError, which names the place."""
        document = parse_toml(text)
        for name in document:
            if name not in ("group", "metric", "question"):
                raise ConfigurationError(f"there is no table {name}, only group, metric and question")
        groups = tuple(
            _group(metric, name, value)
            for metric, named in _table(document, "group").items()
            for name, value in _table(named, f"group.{metric}", whole=True).items()
        )
        tags = {
            metric: _texts(_only(keys, f"metric.{metric}", "tags").get("tags", []), f"metric.{metric}.tags")
            for metric, keys in _table(document, "metric").items()
        }
        questions = {
            _named(title, "question"): _texts(text, f"question.{title}", characters=2_000)[0]
            for title, text in _table(document, "question").items()
        }
        for what, number in (
            ("groups", len(groups)),
            ("tags", sum(map(len, tags.values()))),
            ("questions", len(questions)),
        ):
            if number > ENTRIES_MAX:
                raise ConfigurationError(f"there may be {ENTRIES_MAX:,} {what} at most, got {number:,}")
        return cls(groups, tags, questions)

    def following(self, before: "Dashboard", with_reports: Sequence[str], asked: Sequence[str] = ()) -> "Dashboard":
        """Return it as it is kept after another one, where some metrics have reports: which groups came late.

        `asked` are names of which a question may know something: those of metrics with reports, and of their columns.
        """
        known = {replace(each, late=False): each for each in before.groups}
        groups = tuple(known.get(each, replace(each, late=each.metric in with_reports)) for each in self.groups)
        written = dict(before.written)
        for each in groups:
            if not each.late and each not in before.groups:
                written[each.metric] = written.get(each.metric, 0) + 1
        known_names = {*with_reports, *asked}
        early = [text for text in self.questions.values() if known_names.isdisjoint(_NAMES.findall(text))]
        fixed = tuple(dict.fromkeys([*before.fixed, *early]))
        return replace(self, groups=groups, written=written, fixed=fixed)

    def groups_of(self, metric: str) -> Sequence[ValueGroup]:
        """Return the groups of a metric, in the order of the file."""
        return [each for each in self.groups if each.metric == metric]

    def check(self, plans: Mapping[str, Plan]) -> None:
        """Raise ConfigurationError for a name that is no metric's, and for a group that has nothing of its metric."""
        for metric in [*(each.metric for each in self.groups), *self.tags]:
            if metric not in plans:
                raise ConfigurationError(f"the registry has no metric {metric}, only {_listed(plans)}")
        for each in self.groups:
            each.places(plans[each.metric])


def _listed(names: Iterable[str], most: int = 8) -> str:
    given = list(names)
    return ", ".join(given[:most]) + f" and {len(given) - most:,} more" * (len(given) > most)


def _table(document: Any, name: str, *, whole: bool = False) -> Mapping[str, Any]:
    found = document if whole else document.get(name, {})
    if not isinstance(found, dict):
        raise ConfigurationError(f"{name} must be a table, [{name}]")
    return found


def _only(document: Any, name: str, *keys: str) -> Mapping[str, Any]:
    found = _table(document, name, whole=True)
    for key in found:
        if key not in keys:
            raise ConfigurationError(f"{name}: there is no key {key}, only {' and '.join(keys)}")
    return found


def _named(name: str, where: str) -> str:
    if not (name.strip() and len(name) <= NAME_CHARACTERS_MAX and is_one_line(name)):
        raise ConfigurationError(
            f"{where}: a name must have 1 to {NAME_CHARACTERS_MAX} characters of one line, got {name!r}"
        )
    return name


def _texts(value: Any, where: str, characters: int = 200) -> tuple[str, ...]:
    """Return one text, or those of a list."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(each, str) and 0 < len(each) <= characters for each in texts):
        raise ConfigurationError(f"{where} must be texts of 1 to {characters:,} characters")
    return tuple(texts)


def _group(metric: str, name: str, value: Any) -> ValueGroup:
    where = f"group.{metric}.{_named(name, f'group.{metric}')}"
    if isinstance(value, dict):
        keys = _only(value, where, "from", "below")
        ends = [_edge(keys.get(key), f"{where}.{key}") for key in ("from", "below")]
        lower, below = ends
        if lower is None and below is None:
            raise ConfigurationError(f"{where} needs from, below, or both")
        if lower is not None and below is not None and lower >= below:
            raise ConfigurationError(f"{where}: from must be less than below, got {lower} and {below}")
        return ValueGroup(metric, name, (), lower, below)
    patterns = _texts(value, where)
    if not patterns:
        raise ConfigurationError(f"{where} must have a value or a pattern")
    return ValueGroup(metric, name, patterns)


def _edge(value: Any, where: str) -> Decimal | None:
    if value is None or (
        isinstance(value, Decimal | int) and not isinstance(value, bool) and Decimal(value).is_finite()
    ):
        return None if value is None else Decimal(value)
    raise ConfigurationError(f"{where} must be a number")
