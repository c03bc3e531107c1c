"""The site: static files, all of them made of a registry's public facts and of releases. No script, no server.

    about.json, METRIC/WINDOW.json, audit.html --render--> index.html, feed.xml, manifest.json and of each metric
    index.html, latest.svg, WINDOW.csv (estimates), WINDOW.counts.csv (noisy counts), WINDOW.svg

`render` reads nothing else, so whoever has the site can make it again from these documents and compare. The comparison
shows that every figure is what the noisy counts say. It does not show who wrote them: nobody but the store's operator
can tell a site that was made up as a whole.
"""

import hashlib
import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from jinja2 import Environment, PackageLoader

from dither_aggregator.analysis.estimands import Point
from dither_aggregator.analysis.numbers import MEDIAN, QUANTILES
from dither_aggregator.analysis.reading import Window
from dither_aggregator.analysis.released import ReleasedRow
from dither_aggregator.publishing.releases import (
    PublishedReading,
    SealedRelease,
    first_window,
    missing,
    publish,
    read,
    sealed,
)
from dither_aggregator.store import Store, StoredPlan, StoreError
from dither_aggregator.store.release_ledger import Release, charged_with
from dither_aggregator.web.charts import SHARES, UNITLESS, Across, Measure, SeriesChart, Tick, draw_series
from dither_aggregator.web.forest_plots import Plot, SmallRow, draw, draw_rows
from dither_aggregator.web.pages.days import only_xml
from dither_aggregator.web.pages.presentation import dress
from dither_aggregator.web.public_site import ABOUT, AUDIT, FEED, FILE_BYTES_MAX, MANIFEST, PART, STYLE
from dither_shared.accounting import EVEN, percent_above, sure
from dither_shared.domains import OTHER, Columns, NumberDomain
from dither_shared.errors import ConfigurationError
from dither_shared.exact import exp_of_micro, from_micro, to_micro
from dither_shared.kinds.precision import precision_of
from dither_shared.mechanisms import PureMechanism
from dither_shared.registry import Metric, Registry
from dither_shared.releases import YEAR_DAYS, Publishing, has_supports, losses_within, micro_year, name_of, scientific
from dither_shared.safe_output import to_csv, visible

# The changes of a registry between two publications, in sentences for those who are asked.


CHANGES_MAX = 500
"""The latest changes that a site keeps."""
ALL = "all questions"
"""The name under which changes of the registry itself stand; no metric has such a one."""
NAMED_MAX = 10
"""So many answers are named in a sentence."""
OF_ALL = {
    "publish_micro_year": "the most that releases of 366 days may cost a device",
    "device_micro": "the most that all reports may cost a device",
}
DELTA = {"publish_delta": "the delta at which releases may cost that"}
EPSILONS = {
    "report_micro": "epsilon of a report",
    "life_micro": "epsilon of all reports of a device",
    "release_micro": "epsilon of a release",
    **OF_ALL,
}
FIELDS = {
    "rev": "rev",
    "question": "question",
    "why": "reason",
    "issue": "issue",
    "sensitivity": "sensitivity",
    "expires": "asked until",
    "mechanism": "mechanism",
    "presence": "presence",
    "memoized": "memoized",
    "charges": "reports of a device",
    "period_days": "days between reports",
    "window": "published each",
    "domain": "what is sent",
    "ticks": "values that count of an answer",
    **EPSILONS,
}
"""The facts whose change is said, with the words for each."""
LISTS = {"values": "answers", "names": "texts that are looked for", "edges": "edges of ranges", "owners": "owners"}
"""The lists of which is said what came and what went."""

Facts = Mapping[str, Any]


def changes_between(before: Facts, after: Facts, today: date) -> list[dict[str, str]]:
    """Return all changes that a site knows, the latest first: those of today, and what was said before."""
    was, now = _metrics(before), _metrics(after)
    named = [(ALL, what) for what in _fields(before, after, {**OF_ALL, **DELTA})]
    named += [(name, what) for name in sorted({*was, *now}) for what in _differences(was.get(name), now.get(name))]
    found = [{"day": today.isoformat(), "metric": name, "what": what} for name, what in named]
    return [*found, *before["changes"]][:CHANGES_MAX]


def _metrics(facts: Facts) -> dict[str, tuple[bool, Facts]]:
    """Return each metric by name, with whether its totals are published."""
    published = {each["metric"]: (True, each) for each in facts["metrics"]}
    return {each["metric"]: (False, each) for each in facts["unpublished"]} | published


def _differences(was: tuple[bool, Facts] | None, now: tuple[bool, Facts] | None) -> Iterator[str]:
    if was is None or now is None:
        yield "no longer asked" if now is None else "asked from now on"
        return
    if was[0] != now[0]:
        yield "published from now on" if now[0] else "no longer published"
    old, new = was[1], now[1]
    yield from _fields(old, new, FIELDS)
    for field, words in LISTS.items():
        added = [each for each in new.get(field, old.get(field, ())) if each not in set(old.get(field, ()))]
        gone = [each for each in old.get(field, ()) if each not in set(new.get(field, old.get(field, ())))]
        if field in old and (added or gone):
            yield "; ".join([*_listed(f"new {words}", added), *_listed(f"{words} left out", gone)])


def _fields(old: Facts, new: Facts, fields: Mapping[str, str]) -> Iterator[str]:
    for field, words in fields.items():
        if field in old and field in new and old[field] != new[field]:
            yield f"{words}: {_told(field, new[field])}, before: {_told(field, old[field])}"


def _told(field: str, value: object) -> str:
    if field in EPSILONS and isinstance(value, int):
        return f"{from_micro(value):g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) or "none"


def _listed(words: str, values: Sequence[object]) -> Iterator[str]:
    if values:
        more = f" and {len(values) - NAMED_MAX:,} more" if len(values) > NAMED_MAX else ""
        yield f"{words}: {', '.join(map(str, values[:NAMED_MAX]))}{more}"


ROWS_DRAWN_MAX, PICTURE_ROWS_MAX = 30, 8
PANELS_MAX, POINTS_MAX, DATES_APART = 3, 60, 28.0
"""The history draws so many values and releases; names below it are so far apart, in percent, as a phone needs."""
LINE_CHARACTERS = 88
"""Characters of a line of the picture: half an em each fill its 768 pixels."""
FEED_ENTRIES_MAX = 50
LISTED_MAX = 50
"""So many columns of a table, or texts, are listed in a sentence."""
DIGITS = 8
"""Digits of numbers in CSV: beyond them machines may differ."""
COLUMNS = (
    *("metric", "window", "n", "value", "estimate", "std_error"),
    *("lower", "upper", "together_lower", "together_upper", "unit"),
)

Files = dict[str, bytes]
"""By their path below the site's top."""


def about(
    registry: Registry,
    today: date,
    plans: Iterable[StoredPlan] = (),
    before: Mapping[str, Any] = MappingProxyType({}),
    url: str = "",
    audit: bytes = b"",
) -> dict[str, Any]:
    """Return what a site says of a registry: the facts of each published metric, which hold no count.

    `plans` are those of the store. `before` is what the site said so far: what differs has changed today.
    """
    published, stored = registry.published, list(plans)
    assert registry.publish_epsilon_year is not None  # `prove_releases` refuses a registry without it
    facts: dict[str, Any] = {
        "app": registry.app,
        "url": url,
        "audit": hashlib.sha256(audit).hexdigest() if audit else "",
        "begun": before.get("begun", today.isoformat()),
        "dither": version("dither-aggregator"),
        "publish_micro_year": to_micro(registry.publish_epsilon_year),
        "registry_micro_year": micro_year(registry),
        "device_micro": to_micro(registry.device_epsilon),
        "publish_delta": "" if registry.publish_delta is None else scientific(registry.publish_delta),
        "metrics": [_facts_of(registry.metrics[name], each, stored) for name, each in published.items()],
        "unpublished": [_asked(metric) for name, metric in registry.metrics.items() if name not in published],
    }
    facts["changes"] = changes_between(before, facts, today) if before else []
    return facts


def _asked(metric: Metric) -> dict[str, Any]:
    """Return what is said of every metric, whether or not its totals are published."""
    return {
        "metric": metric.name,
        "rev": metric.rev,
        "question": metric.question,
        "owners": list(metric.owners),
        "sensitivity": metric.sensitivity,
        "expires": metric.expires.isoformat(),
        "life_micro": metric.reservation,
    }


def _facts_of(metric: Metric, publishing: Publishing, plans: Sequence[StoredPlan]) -> dict[str, Any]:
    own = next((each for each in plans if each.plan == metric.plan), None)
    return {
        **_asked(metric),
        "why": publishing.why,
        "issue": publishing.issue,
        "presence": metric.presence,
        "values": list(metric.values),
        "domain": _domain(metric),
        "edges": _edges(metric),
        "names": list(precision_of(metric.kind).released_names(metric.asked)),
        "ticks": (PureMechanism.of(metric.mechanism).ticks or 0) if metric.kind.several else 0,
        "mechanism": metric.cells.name,
        "memoized": metric.memoized,
        "report_micro": metric.cells.charge,
        "charges": metric.charges,
        "period_days": metric.period_days,
        "window": publishing.window,
        "release_micro": publishing.micro,
        "first_window": first_window(own, publishing.window).isoformat() if own and own.since else "",
        "earlier_revs": sorted(
            each.plan.rev
            for each in plans
            if each.plan.metric == metric.name and each.plan.rev < metric.rev and not each.retired
        ),
    }


def _domain(metric: Metric) -> str:
    """Return what is sent of an answer, in the words with which a device asks; "" where its values say it."""
    offer = metric.kind.offer(metric.asked)
    more = f"; and {len(offer.listed) - LISTED_MAX:,} more" if len(offer.listed) > LISTED_MAX else ""
    listed = f"{offer.lead} {'; '.join(offer.listed[:LISTED_MAX])}{more}." if offer.listed else ""
    return "" if metric.values else " ".join(each for each in (*offer.before, listed, *offer.after) if each)


def _edges(metric: Metric) -> list[str]:
    """Return the edges of numbers' ranges, with the column where there are several: a scale is told by nothing else."""
    domain = metric.plan.domain
    named = domain.columns.items() if isinstance(domain, Columns) else [("", domain)]
    numbers = [(name, each) for name, each in named if isinstance(each, NumberDomain)]
    return [f"{name} {each.with_unit(each.in_unit(edge))}".strip() for name, each in numbers for edge in each.edges]


@dataclass(frozen=True)
class PublishedMetricPage:
    """All that the page of a metric shows."""

    metric: str
    question: str
    facts: Mapping[str, Any] | None
    """The registry's facts of it now; None where it is asked no more, or published no more."""
    readings: Sequence[PublishedReading]
    """Its releases, the latest first."""
    still_asked: bool = True
    """Whether the registry asks it, published or not."""

    @property
    def latest(self) -> PublishedReading | None:
        """The latest release."""
        return self.readings[0] if self.readings else None

    @property
    def first_release(self) -> str:
        """The name of the first window that is published, where the store says."""
        first = self.facts["first_window"] if self.facts else ""
        return name_of(self.facts["window"], date.fromisoformat(first)) if self.facts and first else ""

    @cached_property
    def shown(self) -> Sequence[ReleasedRow]:
        """The shares of the latest release that are drawn.

        Shares that stand out come first, the others follow in the plan's order. Shares of neighbouring ranges, which
        stand beside a mean and quantiles, keep their order.
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
            return f"The first release is of {self.first_release}." if self.first_release else "Nothing is there yet."
        return headline(self.latest)

    @cached_property
    def history(self) -> "History | None":
        """The charts over time: of the means of one unit and their median, else of the shares that are shown first.

        None where fewer than two releases of one length tell anything.
        """
        told = [row for row in self.numbers if row.value == MEDIAN or row.value not in QUANTILES]
        alike = [row for row in told if row.unit == told[0].unit]
        return _history(self.readings, (alike or self.shown)[:PANELS_MAX])


@dataclass(frozen=True)
class History:
    """A few values over the releases, as charts and as a table."""

    chart: SeriesChart
    measure: Measure
    values: Sequence[str]
    lines: Sequence[tuple[Release, Sequence[ReleasedRow | None]]]
    """Each release that is drawn, the latest first, with the row of each value; None where there is none: `absent`."""

    def absent(self, release: Release) -> str:
        """Return why a release that is drawn has no row of a value, in words."""
        if release.plan.kind.searched:
            return "not named"
        return "not looked for" if release.plan == self.lines[0][0].plan else "not asked"


def statistic(name: str) -> str:
    """Return the name of a statistic in words: of a quantile how many numbers are below it."""
    part = QUANTILES.get(name, 0.5)
    return name if part == 0.5 else f"{100 * part:.0f} % are below"


def headline(reading: PublishedReading) -> str:
    """Return a sentence on a release: what leads, if anything can be told."""
    name = reading.release.name
    if reading.too_few:
        return f"{name}: too few reports to tell anything from the noise."
    row = reading.leading
    if row is None and reading.release.plan.kind.searched and not reading.searched:
        return f"{name}: the search found no text in the noise: few reports, or no text that many write."
    if row is None:
        return f"{name}: no answer can be told from zero."
    if row.is_share:
        return f"{name}: {row.value} has {SHARES.about(row.estimate, row.lower, row.upper)} of the reports."
    ends = f"{row.in_words(row.lower)} to {row.in_words(row.upper)}"
    return f"{name}: the {row.value} is {row.in_words(row.estimate)} ({ends})."


def _history(readings: Sequence[PublishedReading], shown: Sequence[ReleasedRow]) -> History | None:
    """Return the history of rows of one unit, in releases of the length that the latest one has."""
    if not shown:
        return None
    values, unit = [row.value for row in shown], shown[0].unit
    measure = SHARES if unit is None else Measure(unit or UNITLESS)
    told = [each for each in readings if not each.too_few and each.release.window == readings[0].release.window]
    told = told[:POINTS_MAX]
    rows = [(each, {row.value: row for row in each.rows if row.unit == unit}) for each in told]
    if len(told) < 2 or not any(known.keys() & set(values) for _, known in rows):
        return None
    points = [
        Point(
            *(row.value, row.estimate, row.std_error, row.lower, row.upper, True),
            *(each.release.plan.digest, each.release.plan.rev, each.release.last, each.n, False),
        )
        for value in values
        for each, known in reversed(rows)
        if (row := known.get(value))
    ]
    days = max((each.release.last - each.release.first).days + 1 for each in told)
    window = Window(told[-1].release.last, told[0].release.last)
    chart = draw_series(points, window, measure=measure, joined_days=days)
    across = Across(window, chart.margin)
    dates: list[Tick] = []
    for each in told:
        place = across.x(each.release.last)
        if not dates or dates[-1].x - place >= DATES_APART:
            dates.append(Tick(place, each.release.name, zero=False))
    lines = [(each.release, [known.get(value) for value in values]) for each, known in rows]
    return History(replace(chart, dates=dates), measure, values, lines)


@dataclass(frozen=True)
class Picture:
    """A release as a picture for other sites, with its source below."""

    reading: PublishedReading
    facts: Mapping[str, Any]

    @property
    def rows(self) -> Sequence[SmallRow]:
        """The rows that stand out, on an axis that begins at zero."""
        return draw_rows(self._shown, SHARES, None) if self._shown else ()

    @property
    def _shown(self) -> Sequence[ReleasedRow]:
        rows = [each.row for each in self.reading.significant]
        return [row for row in rows if isinstance(row, ReleasedRow)][:PICTURE_ROWS_MAX]

    @property
    def headline(self) -> str:
        """The value that leads, if anything can be told."""
        return headline(self.reading)

    @property
    def source(self) -> list[str]:
        """The kind of the numbers, and where they are from."""
        release = self.reading.release
        kinds = f"95 % intervals, release epsilon {release.epsilon:g}"
        ends = [f"{row.value} {row.in_words(row.lower)} to {row.in_words(row.upper)}" for row in self._shown]
        more = [row for row in self.reading.shares if row not in self._shown]
        other = ", “other” among them" if any(row.value == OTHER for row in more) else ""
        where = f"{self.facts['url']}{release.metric}/index.html" if self.facts["url"] else "its published totals"
        return [
            *(self.lines(f"Intervals: {'; '.join(ends)}.") if ends else ()),
            *(self.lines(f"Not drawn: {len(more)} of {len(self.reading.shares)} answers{other}.") if more else ()),
            *self.lines(f"{release.first} to {release.last} (UTC): {self.reading.about}; {kinds}."),
            *self.lines(f"Source: {self.facts['app']}, {where}, {release.document_id}."),
        ]

    def lines(self, text: str) -> list[str]:
        """Return a text in lines of the picture."""
        return textwrap.wrap(visible(text), LINE_CHARACTERS)


def render(facts: Mapping[str, Any], documents: Iterable[SealedRelease], audit: bytes = b"") -> Files:
    """Return all files of a site, from its facts, its releases and the page of an audit, if there is one.

    Raises StoreError for a release that is none.
    """
    files = {ABOUT: _json(facts), STYLE: _style(), **({AUDIT: audit} if facts["audit"] else {})}
    readings = []
    for document in documents:
        release = release_of(document)
        reading = read(release)
        readings.append(reading)
        files[f"{release.metric}/{release.name}.json"] = _json(document)
        files[f"{release.metric}/{release.name}.csv"] = _csv(reading)
        files[f"{release.metric}/{release.name}.counts.csv"] = _counts(release)
        files[f"{release.metric}/{release.name}.svg"] = _picture(reading, facts)
    pages = _pages(facts, readings)
    for page in pages:
        files[f"{page.metric}/index.html"] = _html("published_metric.html", facts=facts, page=page, top="../")
        if page.latest:
            files[f"{page.metric}/latest.svg"] = _picture(page.latest, facts)
    files[FEED] = _feed(facts, readings)
    kept = [each.release for each in readings]
    delta = _delta(facts, kept)
    charged = max((charged_with(each, kept, delta) for each in kept), default=0)
    year = max(charged, facts["publish_micro_year"])  # which was larger once, perhaps
    files["index.html"] = _html(
        "published.html",
        facts=facts,
        pages=pages,
        earlier={page.metric for page in pages},
        top="",
        charged=charged,
        delta=delta,
        year=year,
        losses=losses_within(year, delta),
        year_days=YEAR_DAYS,
    )
    files[MANIFEST] = _json({name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())})
    return files


def _delta(facts: Mapping[str, Any], releases: Iterable[Release]) -> Decimal | None:
    """Return the delta at which a site's losses are said: the registry's, or that of earlier Gaussian noise."""
    declared = facts.get("publish_delta")
    earlier = (each.delta for each in releases if each.delta is not None)
    return Decimal(declared) if declared else max(earlier, default=None)


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
    still = {each["metric"] for each in (*facts["metrics"], *facts["unpublished"])}
    return [
        PublishedMetricPage(name, question, asked.get(name), releases[name], name in still)
        for name, question in questions.items()
    ]


def _picture(reading: PublishedReading, facts: Mapping[str, Any]) -> bytes:
    return _xml("published.svg", page=Picture(reading, facts))


def _feed(facts: Mapping[str, Any], readings: Sequence[PublishedReading]) -> bytes:
    """Return the feed: an entry a release, dated the day after its window, and one a change of the registry."""
    entries = [
        FeedEntry(
            f"{each.release.metric}/{each.release.name}",
            each.release.last + timedelta(days=1),
            each.release.question,
            headline(each),
            f"{each.release.metric}/index.html",
        )
        for each in readings
    ]
    for change in facts["changes"]:
        title = f"{change['metric']}: {change['what']}"
        name = f"change/{change['day']}/{title}"
        entries.append(FeedEntry(name, date.fromisoformat(change["day"]), title, title, "index.html"))
    entries.sort(key=lambda each: (each.day, each.name), reverse=True)
    updated = entries[0].day if entries else date.fromisoformat(facts["begun"])
    return _xml("published_feed.xml", facts=facts, entries=entries[:FEED_ENTRIES_MAX], updated=updated, urn=_urn)


@dataclass(frozen=True)
class FeedEntry:
    """A release, or a change of the registry."""

    name: str
    """Its own in this feed, for good."""
    day: date
    title: str
    text: str
    path: str


def _urn(facts: Mapping[str, Any], name: str) -> str:
    """Return the id of a feed or an entry: it says the same wherever the site is."""
    return uuid5(NAMESPACE_URL, f"dither:{facts['app']}/{name}").urn


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


def _counts(release: Release) -> bytes:
    """Return the noisy counts of a release, a line each: of the symbols, or members, that reports have.

    For texts: the reports of each row, in a line without a text, and how many of them support each text.
    """
    assert release.counts is not None
    if has_supports(release.plan.cells, release.names):
        rows = release.plan.cells.parts[-1].cells
        of = [(row, name) for row in range(rows) for name in ("", *release.names)]
        lines = [(release.metric, release.name, *each, count) for each, count in zip(of, release.counts, strict=True)]
        return to_csv(("metric", "window", "row", "text", "noisy_count"), lines).encode()
    columns = ("metric", "window", "symbol", "noisy_count")
    return to_csv(columns, [(release.metric, release.name, *each) for each in enumerate(release.counts)]).encode()


def _numbers(row: ReleasedRow) -> tuple[float, ...]:
    return (row.estimate, row.std_error, row.own_lower, row.own_upper, row.lower, row.upper)


@cache
def _templates() -> Environment:
    templates = Environment(loader=PackageLoader("dither_aggregator.web"), autoescape=True)
    dress(templates)
    templates.filters.update(
        epsilon=lambda micro: f"{from_micro(micro):g}", becomes=_becomes, statistic=statistic, scientific=scientific
    )
    return templates


def _becomes(micro: int) -> str:
    """Return how sure a guess of one in two may become by so much, in percent."""
    percent = percent_above(sure(exp_of_micro(micro), EVEN))
    return f"{percent if percent.startswith('above') else f'at most {percent}'}\N{NO-BREAK SPACE}%"


def _xml(name: str, **given: object) -> bytes:
    return only_xml(_templates().get_template(name).render(**given) + "\n").encode()


def _html(name: str, **given: object) -> bytes:
    return (_templates().get_template(name).render(**given) + "\n").encode()


@cache
def _style() -> bytes:
    return (Path(__file__).parents[1] / "web" / "static" / "dither.css").read_bytes()


# Reading and writing a directory.


def publish_to(
    directory: Path, store: Store, registry: Registry, url: str | None = None, audit: Path | None = None
) -> tuple[list[Release], list[str]]:
    """Publish what is not published yet, and write the site of all that is; return what `publish` does.

    Without `url` or `audit` the site keeps those that it has.
    """
    releases, refused = publish(store, registry, documents_in(directory))
    before, page = facts_in(directory), read_audit(audit) if audit else audit_in(directory)
    where = before.get("url", "") if url is None else url
    facts = about(registry, store.clock_day(), store.plans(), before, where, page)
    facts["missing"] = missing(store, registry, releases)
    write(directory, render(facts, [sealed(store, release) for release in releases], page))
    return releases, refused


def documents_in(directory: Path) -> list[SealedRelease]:
    """Return the releases that a site has; raise ConfigurationError for a directory that holds something else."""
    if directory.exists() and not directory.is_dir():
        raise ConfigurationError(f"{directory} is a file: name a directory, which is new, empty or a site")
    if not directory.exists() or not any(directory.iterdir()):
        return []
    if not (directory / MANIFEST).is_file():
        raise ConfigurationError(f"{directory} must be empty or a site that was published there before")
    return [_read(path) for path in sorted(directory.glob("*/*.json"))]


def facts_in(directory: Path) -> dict[str, Any]:
    """Return what a site says of its registry so far; nothing of one that is new.

    Raises ConfigurationError for facts that nothing could be compared with.
    """
    if not (directory / ABOUT).exists():
        return {}
    facts = _read(directory / ABOUT)
    try:
        for day in (facts["begun"], *(each["day"] for each in facts["changes"])):
            date.fromisoformat(day)
        texts = [facts["url"], *(each[name] for each in facts["changes"] for name in ("metric", "what"))]
        "".join(texts)  # raises TypeError for what is no text
        changes_between(facts, facts, date.min)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError(
            f"{ABOUT} is damaged ({error!r}): delete it, and a new list of changes begins"
        ) from None
    return facts


def audit_in(directory: Path) -> bytes:
    """Return the page of a site's audit; nothing where it has none."""
    return read_audit(directory / AUDIT) if (directory / AUDIT).exists() else b""


def read_audit(path: Path) -> bytes:
    """Return the page of an audit; raise ConfigurationError for a file that is none, or that runs something."""
    try:
        if not path.is_file():  # a pipe would never end
            raise ConfigurationError(f"{path} must be a file")
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ConfigurationError(f"{path} is larger than {FILE_BYTES_MAX:,} bytes")
        content = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    if not content.lower().startswith(b"<!doctype html>") or b"<script" in content.lower():
        raise ConfigurationError(f"{path} must be a page that `dither audit --html` wrote, without a script")
    return content


def write(directory: Path, files: Files) -> None:
    """Write a site, its manifest last, and remove what is no part of it any more.

    A reader sees each file as it was or as it is.
    """
    gone = set(_read(directory / MANIFEST)) - files.keys() if (directory / MANIFEST).exists() else set()
    for name in gone:
        if PART.fullmatch(name):
            path = directory / name
            path.unlink(missing_ok=True)
            if path.parent != directory and path.parent.is_dir() and not any(path.parent.iterdir()):
                path.parent.rmdir()
    for name, content in files.items():
        path = directory / name
        if path.is_file() and path.read_bytes() == content:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.new")
        beside.write_bytes(content)
        beside.replace(path)


def verify(directory: Path) -> list[str]:
    """Return what of a site is not as its noisy counts and facts make it, a sentence each; nothing if all is."""
    try:
        facts, audit = _read(directory / ABOUT), audit_in(directory)
        files = render(facts, [_read(path) for path in sorted(directory.glob("*/*.json"))], audit)
        if facts["audit"] and hashlib.sha256(audit).hexdigest() != facts["audit"]:
            return [f"{AUDIT} is not the page that {ABOUT} names"]
    except (StoreError, ConfigurationError) as error:
        return [str(error)]
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        return [f"{ABOUT} is damaged, or of a later dither: {error!r}"]
    there = {
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*")
        if path.is_symlink() or not path.is_dir() or not any(path.iterdir())
    }
    found = [f"{name} is missing" for name in sorted(files.keys() - there)]
    found += [f"{name} is no part of it" for name in sorted(there - files.keys())]
    for name in sorted(files.keys() & there):
        path = directory / name
        if path.is_symlink() or not path.is_file():
            found.append(f"{name} is no file of its own")
        elif path.read_bytes() != files[name]:
            found.append(f"{name} is not what the noisy counts and the facts make of it")
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise ConfigurationError(f"{path.name} must be a file of its own, and no link")
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
