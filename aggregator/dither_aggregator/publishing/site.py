"""The site: static files, all of them made of a registry's public facts and of releases. No script, no server.

    about.json, METRIC/WINDOW.json --render--> index.html, METRIC/index.html, METRIC/WINDOW.csv, manifest.json

`render` reads nothing else, so whoever has the site can make it again from these documents and compare. The comparison
shows that every figure is what the noisy counts say. It does not show who wrote them: nobody but the store's operator
can tell a site that was made up as a whole.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from dither_aggregator.analysis.released import ReleasedRow
from dither_aggregator.publishing.reading import PublishedReading, read
from dither_aggregator.publishing.releases import SealedRelease
from dither_aggregator.store import StoreError
from dither_aggregator.store.release_ledger import Release, charged_with
from dither_aggregator.web.charts.shares import Plot, draw
from dither_aggregator.web.pages import dress
from dither_shared.accounting.odds import EVEN, percent_above, sure
from dither_shared.errors import ConfigurationError
from dither_shared.exact import exp_of_micro, from_micro, to_micro
from dither_shared.registry import Registry
from dither_shared.releases import YEAR_DAYS, micro_year
from dither_shared.safe_output import to_csv

MANIFEST, ABOUT, STYLE = "manifest.json", "about.json", "style.css"
ROWS_DRAWN_MAX = 30
FILE_BYTES_MAX = 1 << 22
DIGITS = 8
"""Digits of numbers in CSV: beyond them machines may differ."""
COLUMNS = (
    *("metric", "window", "n", "value", "estimate", "std_error"),
    *("lower", "upper", "together_lower", "together_upper", "unit"),
)

Files = dict[str, bytes]
"""By their path below the site's top."""


def about(registry: Registry) -> dict[str, Any]:
    """Return what a site says of a registry: the facts of each published metric, which hold no count."""
    published = registry.published
    assert registry.publish_epsilon_year is not None  # `prove_releases` refuses a registry without it
    return {
        "app": registry.app,
        "dither": version("dither-aggregator"),
        "publish_micro_year": to_micro(registry.publish_epsilon_year),
        "registry_micro_year": micro_year(published),
        "device_micro": to_micro(registry.device_epsilon),
        "metrics": [
            {
                "metric": metric.name,
                "question": metric.question,
                "why": publishing.why,
                "owners": list(metric.owners),
                "sensitivity": metric.sensitivity,
                "expires": metric.expires.isoformat(),
                "presence": metric.presence,
                "values": list(metric.values),
                "mechanism": metric.cells.name,
                "memoized": metric.memoized,
                "report_micro": metric.cells.charge,
                "life_micro": metric.reservation,
                "charges": metric.charges,
                "period_days": metric.period_days,
                "window": publishing.window,
                "release_micro": publishing.micro,
            }
            for metric, publishing in ((registry.metrics[name], each) for name, each in published.items())
        ],
    }


@dataclass(frozen=True)
class PublishedMetricPage:
    """All that the page of a metric shows."""

    metric: str
    question: str
    facts: Mapping[str, Any] | None
    """The registry's facts of it now; None where it is asked no more, or published no more."""
    readings: Sequence[PublishedReading]
    """Its releases, the latest first."""

    @property
    def latest(self) -> PublishedReading | None:
        """The latest release."""
        return self.readings[0] if self.readings else None

    @cached_property
    def shown(self) -> Sequence[ReleasedRow]:
        """The shares of the latest release that are drawn.

        Those that stand out come first, the others in the plan's order. Beside a mean and quantiles all keep their
        order: they are neighbouring ranges.
        """
        if self.latest is None:
            return ()
        first = [each.row for each in self.latest.significant] if not self.numbers else []
        rows = [*first, *(row for row in self.latest.shares if row not in first)]
        return [row for row in rows if isinstance(row, ReleasedRow)][:ROWS_DRAWN_MAX]

    @cached_property
    def numbers(self) -> Sequence[ReleasedRow]:
        """The rows of the latest release that are no shares: a mean, quantiles."""
        return [row for row in self.latest.rows if not row.is_share] if self.latest else ()

    @property
    def plot(self) -> Plot | None:
        """The chart of the latest release."""
        if self.latest is None or not self.shown:
            return None
        return draw(self.shown, self.latest.noise_floor)

    @property
    def headline(self) -> str:
        """A sentence on the latest release: what leads, if anything can be told."""
        if self.latest is None:
            return "Nothing is published yet."
        if self.latest.too_few:
            return f"{self.latest.release.name}: too few reports to tell anything from the noise."
        return f"{self.latest.release.name}: {self.latest.finding}"


def render(facts: Mapping[str, Any], documents: Iterable[SealedRelease]) -> Files:
    """Return all files of a site, from its facts and its releases. Raises StoreError for a release that is none."""
    files = {ABOUT: _json(facts), STYLE: _style()}
    readings = []
    for document in documents:
        release = release_of(document)
        reading = read(release)
        readings.append(reading)
        files[f"{release.metric}/{release.name}.json"] = _json(document)
        files[f"{release.metric}/{release.name}.csv"] = _csv(reading)
    pages = _pages(facts, readings)
    for page in pages:
        files[f"{page.metric}/index.html"] = _html("published_metric.html", facts=facts, page=page, top="../")
    year = max((charged_with(each.release, [one.release for one in readings]) for each in readings), default=0)
    files["index.html"] = _html(
        "published.html", facts=facts, pages=pages, top="", year=from_micro(year), year_days=YEAR_DAYS
    )
    files[MANIFEST] = _json({name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())})
    return files


def release_of(document: SealedRelease) -> Release:
    """Return the release of a site's document; raise StoreError for one that is none, or has no counts."""
    release = Release.from_document({name: value for name, value in document.items() if name != "seal"})
    if release.counts is None:
        raise StoreError(f"{release.document_id} has no counts")
    return release


def _pages(facts: Mapping[str, Any], readings: Sequence[PublishedReading]) -> list[PublishedMetricPage]:
    asked = {each["metric"]: each for each in facts["metrics"]}
    ordered = sorted(readings, key=lambda each: (each.release.last, each.release.first), reverse=True)
    gone = {
        each.release.metric: each.release.question for each in reversed(ordered) if each.release.metric not in asked
    }
    questions = {**{name: each["question"] for name, each in asked.items()}, **dict(sorted(gone.items()))}
    releases = {name: tuple(each for each in ordered if each.release.metric == name) for name in questions}
    return [
        PublishedMetricPage(name, question, asked.get(name), releases[name]) for name, question in questions.items()
    ]


def _json(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=True) + "\n").encode()


def _csv(reading: PublishedReading) -> bytes:
    """Return the estimates of a release, a line a value: its own 95 % interval, and one of those that hold together."""
    window = (reading.release.metric, reading.release.name, reading.n)
    rows = [
        (*window, row.value, *(float(f"{number:.{DIGITS}g}") for number in _numbers(row)), row.unit or "")
        for row in reading.rows
    ]
    return to_csv(COLUMNS, rows).encode()


def _numbers(row: ReleasedRow) -> tuple[float, ...]:
    return (row.estimate, row.std_error, row.own_lower, row.own_upper, row.lower, row.upper)


@cache
def _templates() -> Environment:
    templates = Environment(loader=PackageLoader("dither_aggregator.web"), autoescape=True)
    dress(templates)
    templates.filters.update(epsilon=lambda micro: f"{from_micro(micro):g}", becomes=_becomes)
    return templates


def _becomes(micro: int) -> str:
    """Return how sure a guess of one in two may become by so much, in percent."""
    percent = percent_above(sure(exp_of_micro(micro), EVEN))
    return f"{percent if percent.startswith('above') else f'at most {percent}'}\N{NO-BREAK SPACE}%"


def _html(name: str, **given: object) -> bytes:
    return (_templates().get_template(name).render(**given) + "\n").encode()


@cache
def _style() -> bytes:
    return (Path(__file__).parents[1] / "web" / "static" / "dither.css").read_bytes()


# Reading and writing a directory.


def documents_in(directory: Path) -> list[SealedRelease]:
    """Return the releases that a site has; raise ConfigurationError for a directory that holds something else."""
    if not directory.exists() or not any(directory.iterdir()):
        return []
    if not (directory / MANIFEST).is_file():
        raise ConfigurationError(f"{directory} must be empty or a site that was published there before")
    return [_read(path) for path in sorted(directory.glob("*/*.json"))]


def write(directory: Path, files: Files) -> None:
    """Write a site, its manifest last. A reader sees each file as it was or as it is."""
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.new")
        beside.write_bytes(content)
        beside.replace(path)


def verify(directory: Path) -> list[str]:
    """Return what of a site is not as its noisy counts and facts make it, a sentence each; nothing if all is."""
    try:
        files = render(_read(directory / ABOUT), [_read(path) for path in sorted(directory.glob("*/*.json"))])
    except (StoreError, ConfigurationError) as error:
        return [str(error)]
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        return [f"{ABOUT} is damaged, or of a later dither: {error!r}"]
    there = {path.relative_to(directory).as_posix() for path in directory.rglob("*") if not path.is_dir()}
    found = [f"{name} is missing" for name in sorted(files.keys() - there)]
    found += [f"{name} is no part of it" for name in sorted(there - files.keys())]
    for name in sorted(files.keys() & there):
        if (directory / name).read_bytes() != files[name]:
            found.append(f"{name} is not what the noisy counts and the facts make of it")
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ConfigurationError(f"{path.name} is larger than {FILE_BYTES_MAX:,} bytes")
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{path.name} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path.name} is damaged: {error}") from None
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path.name} is damaged: it must be an object")
    return document
