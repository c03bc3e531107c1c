"""Kinds, a mechanism, a domain and an estimand from outside, made of public classes alone: from registry to page.

The weekday is a kind of listed values with a mechanism of its own. The level is a number: rounded by coins to steps
from a domain of its own, randomized by one of two mechanisms with unequal shares, and read as a mean.
"""

import csv
import importlib.metadata
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from math import sqrt
from pathlib import Path
from typing import Annotated, Any, TypedDict, cast

import pytest
import requests

from dither.cli import main
from dither.sending.transport import HttpTransport
from dither.session import Settings
from dither.telemetry import HANDLES, Handle, Telemetry
from dither_aggregator.analysis.estimands import ESTIMANDS
from dither_aggregator.analysis.planning import Design, Planned, Question
from dither_aggregator.analysis.reading import COLUMNS, Estimand, Reading, View
from dither_aggregator.analysis.rows import Row, says
from dither_aggregator.counting import support_counts, tables
from dither_aggregator.ingest.service import Service, WholeService
from dither_aggregator.operations import maintenance
from dither_aggregator.operations.registry_process import READ_WITHIN_S, document_of
from dither_aggregator.store import Store, StoredPlan, Tally
from dither_aggregator.store.document_kinds import ADMIN, READ
from dither_aggregator.store.invariants import check
from dither_aggregator.web.addresses import ADDRESSES, EMBED
from dither_aggregator.web.api import administering
from dither_aggregator.web.embed_links import EmbedLink
from dither_aggregator.web.pages.planning import PLANNERS, Planner
from dither_aggregator.web.pages.presentation import PRESENTATIONS, RowsShown
from dither_aggregator.web.query_parameters import QueryParameters
from dither_shared.domains import DOMAINS, OTHER, Domain, Values
from dither_shared.errors import ConfigurationError
from dither_shared.exact import exp_below
from dither_shared.frozen import as_dict, frozen
from dither_shared.installed import Installed
from dither_shared.kinds import KINDS, Asked, Kind, Offer
from dither_shared.kinds.kind import read_epsilon
from dither_shared.kinds.listed import Listed
from dither_shared.kinds.precision import PRECISIONS, KindPrecision, ListedPrecision, precision_of
from dither_shared.mechanisms import MECHANISMS, OUE, Cells, MechanismRequest, Part, PureMechanism, one_cell
from dither_shared.plan import Plan
from dither_shared.registry import Registry, utc_today
from dither_shared.rng import SCALE, Rng
from dither_shared.shapes import Symbols
from dither_shared.terms import Terms
from dither_shared.toml_tables import TomlTable
from dither_shared.wire import encode_upload, new_upload_id
from tests.support.aggregators import ENVIRONMENT, http_server, serve, start_afresh, web_app
from tests.support.keys import bearer, write_key
from tests.support.laws import pure
from tests.support.reading_api import faults
from tests.support.redis_servers import running_redis
from tests.support.soaking import scaled, thinned
from tests.support.stores import Place, RedisPlace, SQLitePlace, append, fold_all
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
SATURDAY = date(2026, 11, 21)
DEVICES = scaled(75, 150)
ANSWER_S = 120
"""By then a reader has answered, the first time too, which loads programs before it."""


@frozen
class Half(PureMechanism):
    """Send the answer with probability 1/2, else any value: p = 1/2 + 1/(2 d), q = 1/(2 d)."""

    name = "half"
    ticks = 1
    serves_one = True
    d: int

    @classmethod
    def designs(cls, request: MechanismRequest) -> Iterator["Half"]:
        if request.permanent is None and cls(request.d).exp_epsilon <= exp_below(request.epsilon):
            yield cls(request.d)

    def parameters(self) -> dict[str, int]:
        return as_dict(self)

    @property
    def p(self) -> Fraction:
        return Fraction(1, 2) + self.q

    @property
    def q(self) -> Fraction:
        return Fraction(1, 2 * self.d)

    @property
    def exp_epsilon(self) -> Fraction:
        return self.p / self.q

    @property
    def shape(self) -> Symbols:
        return Symbols(self.d)

    def class_of(self, values: object) -> int:
        (value,) = cast("tuple[int]", values)
        return value

    def randomize(self, answer: int, rng: Rng) -> int:
        keep, other = rng.coin(SCALE // 2), rng.uniform(self.d)
        return answer if keep else other


class Weekday(Listed):
    """The day of the week of a date."""

    name = "weekday"
    meaning = "for a day of the week"

    def _values(self, table: TomlTable, directory: str | None, unlisted: tuple[str, ...]) -> tuple[str, ...]:
        return (*DAYS, OTHER, *unlisted)

    def takes(self, answer: object, domain: Values) -> bool:
        return isinstance(answer, date)

    def read(self, answer: object, domain: Values) -> tuple[int, ...]:
        return (answer.weekday() if isinstance(answer, date) else domain.index(OTHER),)

    def offer(self, asked: Asked) -> Offer:
        return Offer(("A day of the week.",))


class WeekdayHandle(Handle):
    def record(self, day: date) -> None:
        self._record(self.metric, day)


@frozen
class Steps(Domain):
    """The numbers from 0 to `last`."""

    name = "steps"
    unit = "steps"
    last: int

    def to_document(self) -> dict[str, object]:
        return {"domain": self.name, "last": self.last}

    def agreed(self, *, hidden: bool) -> object:
        return self.last


class Level(Kind[Steps, tuple[int, int]]):
    """A number from 0 to `last`: coins round it to a step, so that its mean stays."""

    name = "level"
    meaning = "for a number of which only the mean is asked"
    estimand = "mean"

    def read_table(self, table: TomlTable, directory: str | None, *, metric: str, hidden: bool) -> Asked:
        last = table.integer("last", 1, 100)
        parts = Part(Half(last + 1), weight=3), Part(OUE.for_epsilon(last + 1, read_epsilon(table)), 2, 1)
        return Asked(Steps(last), Cells(parts))

    def takes(self, answer: object, domain: Steps) -> bool:
        return isinstance(answer, Fraction) and 0 <= answer <= domain.last

    def read(self, answer: object, domain: Steps) -> tuple[int, int]:
        number = answer if isinstance(answer, Fraction) else Fraction(0)
        return int(number), int((number - int(number)) * SCALE)

    def unreadable(self, domain: Steps) -> tuple[int, int]:
        return 0, 0

    def nothing(self, domain: Steps) -> tuple[int, int]:
        return 0, 0

    def class_of(self, read: tuple[int, int], domain: Steps, cells: Cells, cell: int, rng: Rng) -> int:
        step, rest = read
        return PureMechanism.of(cells.mechanism_of(cell)).class_of([step + rng.coin(rest)])

    def names(self, read: tuple[int, int], domain: Steps) -> tuple[str, ...]:
        step, rest = read
        return (f"{step + rest / SCALE:g}",)

    def offer(self, asked: Asked) -> Offer:
        return Offer(("A number.",))


class LevelPrecision(KindPrecision[Steps]):
    def noise_variance(self, cells: Cells) -> Fraction:
        return max(PureMechanism.of(part.mechanism).noise_variance for part in cells.parts)


class LevelHandle(Handle):
    def record(self, level: Fraction) -> None:
        self._record(self.metric, level)


@dataclass(frozen=True)
class MeanRow(Row):
    cells: Annotated[int, says("how many cells the reports are of")]


class MeanFacts(TypedDict):
    mean_of: int


@dataclass(frozen=True)
class MeanReading(Reading):
    rows: tuple[MeanRow, ...] = ()

    def own_document(self) -> MeanFacts:
        return {"mean_of": len(self.rows)}


class Mean(Estimand[MeanReading]):
    """The mean of a level, in steps: of each cell by itself, weighted by its reports."""

    name = "mean"
    role = "statistic"

    def check(self, plan: Plan, view: View, asked: frozenset[str]) -> None:
        """Every view fits."""

    def names(self, stored: StoredPlan) -> tuple[str, ...]:
        return ("mean",)

    def read(
        self, stored: StoredPlan, epoch: date, tally: Tally, view: View, *, provisional: bool, snapshot: str | None
    ) -> MeanReading:
        cells, domain = stored.plan.cells, Steps.of(stored.plan.domain)
        total, variance, squares = 0.0, 0.0, sum(step**2 for step in range(domain.last + 1))
        for part, table, _ in tables(cells, tally.counts):
            mechanism = PureMechanism.of(part.mechanism)
            p, q = float(mechanism.p), float(mechanism.q)
            for row in table[table[:, 0] > 0]:
                n = int(row[0])
                support = support_counts(mechanism, row[1:], n)
                total += sum(step * (count / n - q) / (p - q) for step, count in enumerate(support)) * n
                variance += n * squares * max(p * (1 - p), q * (1 - q)) / (p - q) ** 2
        mean, error = total / max(tally.n, 1), sqrt(variance) / max(tally.n, 1)
        rows = (MeanRow("mean", mean, error, mean - 2 * error, mean + 2 * error, cells.count),) if tally.n else ()
        return MeanReading(stored, epoch, provisional, tally.n, view, snapshot, error, "wald", rows)


class MeanShown(RowsShown[MeanReading]):
    """The mean in words of its own."""

    noun = "level"

    def headline(self, reading: MeanReading) -> str:
        (row,) = reading.rows
        return f"The level is about {self.measure.precise(row.estimate, row.std_error)}."


class BareLevel(Level):
    """The same level, of whose estimand pages know nothing."""

    name = "bare"
    estimand = "bare mean"


class BareMean(Mean):
    """The same mean."""

    name = "bare mean"


class HalfDesign(Design["HalfQuestion"]):
    """The share that reports by `Half` tell."""

    def figures(self, n: int) -> dict[str, float | None]:
        return {"detectable_share": 3 * sqrt(Half(self.question.d).noise_variance / n)}

    def n_about(self, wanted: float) -> float:
        return float(9 * Half(self.question.d).noise_variance) / wanted**2


class HalfQuestion(Question):
    """A share of d values, by `Half`."""

    target_name = "share"
    target_figure = "detectable_share"
    too_small = "so small a share"

    def _compiled(self, epsilon: Decimal) -> HalfDesign:
        return HalfDesign(self, one_cell(Half(self.d)))

    def answers(self) -> list[str]:
        return [f"last = {self.d - 1}"] if self.kind == Level.name else ['mechanism = "half"']


class HalfPlanner(Planner[HalfQuestion]):
    """Plans either toy."""

    def question(self, asked: QueryParameters) -> HalfQuestion:
        return HalfQuestion(asked["kind"], asked["d"])

    def shows(self, answer: Planned[HalfQuestion]) -> str:
        return f"a share of {answer.target:.2f} is told from noise."


COMMON = f"""\
rev = 1
reports = 1
schedule = "early"
presence = "public"
period = "1d"
owners = ["team@example.org"]
sensitivity = "low"
expires = {utc_today() + timedelta(days=100)}
"""
REGISTRY = f"""\
[registry]
app = "toys"
device_epsilon = 10
quiet_days = 0

[metric.day]
kind = "weekday"
question = "On which day do people start a week?"
mechanism = "half"
epsilon = 2.2
{COMMON}
[metric.level]
kind = "level"
question = "How high is the level?"
last = 2
epsilon = 2.5
{COMMON}"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Registry:
    toys: list[tuple[object, str, object]] = [
        (KINDS, Weekday.name, Weekday()),
        (KINDS, Level.name, Level()),
        (PRECISIONS, Weekday.name, ListedPrecision),
        (PRECISIONS, Level.name, LevelPrecision),
        (HANDLES, Weekday.name, WeekdayHandle),
        (HANDLES, Level.name, LevelHandle),
        (MECHANISMS, Half.name, Half),
        (DOMAINS, Steps.name, Steps),
        (KINDS, BareLevel.name, BareLevel()),
        (PRECISIONS, BareLevel.name, LevelPrecision),
        (HANDLES, BareLevel.name, LevelHandle),
        (ESTIMANDS, Mean.name, Mean()),
        (ESTIMANDS, BareMean.name, BareMean()),
        (PRESENTATIONS, Mean.name, MeanShown),
        (PLANNERS, Weekday.name, HalfPlanner()),
        (PLANNERS, Level.name, HalfPlanner()),
    ]
    for mapping, name, toy in toys:
        monkeypatch.setitem(cast("dict[str, object]", mapping), name, toy)
    return Registry.parse(REGISTRY)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        with closing(SQLitePlace(tmp_path / "store")) as place:
            yield place
    else:
        with running_redis(tmp_path / "redis") as server, closing(RedisPlace(server)) as place:
            yield place


def answers_of(asked: Registry, url: str, key: str) -> dict[str, float]:
    """Let each device answer; return the shares of the days and the mean level, before any noise."""
    rng = random.Random(5)
    truth = dict.fromkeys((*DAYS, OTHER, "level"), 0.0)
    for _ in range(DEVICES):
        answer: object = SATURDAY if rng.random() < 0.6 else SATURDAY + timedelta(days=rng.randrange(7))
        level = Fraction(rng.randrange(150, 201), 100)
        with closing(Telemetry(Settings(asked, HttpTransport(url, key), None, consent=True))) as telemetry:
            telemetry.day.record(answer)
            telemetry.level.record(level)
            assert telemetry.flush(20).sent == 2
        (said,) = asked.metrics["day"].names(answer)
        truth[said] += 1 / DEVICES
        truth["level"] += float(level) / DEVICES
    return truth


Shown = tuple[dict[str, Any], list[dict[str, str]], str]
"""The API's answer, the rows of its CSV, and the page."""


def fetched(url: str, metric: str) -> Shown:
    """Return what the API, its CSV and the pages of estimates and of privacy show of a metric."""
    address = f"{url}/v1/metrics/{metric}/estimates?window=today"
    reading = requests.get(address, timeout=ANSWER_S).json()
    table = list(csv.DictReader(io.StringIO(requests.get(f"{address}&format=csv", timeout=ANSWER_S).text)))
    pages = [
        requests.get(f"{url}/metrics/{each}?window=today", timeout=ANSWER_S) for each in (metric, f"{metric}/privacy")
    ]
    return reading, table, "".join(page.text for page in pages)


@pytest.mark.parametrize("place", thinned(["redis", "sqlite"], 0), indirect=True)  # the other one has every page
def test_toys_from_outside_work_from_the_registry_to_the_page(asked: Registry, place: Place) -> None:
    """None of 9 estimates and 3 numbers is 6 standard deviations off: by exact laws a false alarm of 1e-7 a run."""
    store = place.make(asked, "toys")
    with WholeService(store) as service:
        server = http_server(web_app(service))
        with server.in_background():
            truth = answers_of(asked, server.url, write_key(store))
            wait_until(lambda: not store.backlog())
            day, level = fetched(server.url, "day"), fetched(server.url, "level")
    check_days(asked, store.tally(asked.metrics["day"].plan, store.today()), truth, day)
    check_level(asked, store.tally(asked.metrics["level"].plan, store.today()), truth, level)
    assert list(check(store)) == []
    with closing(place.open()) as again:
        assert [stored.plan for stored in again.plans()] == [metric.plan for metric in asked.metrics.values()]


def check_days(asked: Registry, tally: Tally, truth: dict[str, float], shown: Shown) -> None:
    reading, table, page = shown
    mechanism = pure(asked.metrics["day"].plan)
    p, q = float(mechanism.p), float(mechanism.q)
    assert (reading["meta"]["n"], tally.n, int(tally.counts[0])) == (DEVICES, DEVICES, DEVICES)
    assert [row["value"] for row in reading["rows"]] == [row["value"] for row in table] == [*DAYS, OTHER]
    for row, count in zip(reading["rows"], tally.counts[1:].tolist(), strict=True):
        assert row["estimate"] == pytest.approx((count / DEVICES - q) / (p - q))
        assert abs(row["estimate"] - truth[row["value"]]) < 6 * sqrt(p * (1 - p) / DEVICES) / (p - q)
    assert "On which day do people start a week?" in page
    assert "saturday" in page
    assert "half" in page


def check_level(asked: Registry, tally: Tally, truth: dict[str, float], shown: Shown) -> None:
    reading, table, page = shown
    cells = asked.metrics["level"].plan.cells
    numbers = [int(row[0]) for _, rows, _ in tables(cells, tally.counts) for row in rows]
    assert sum(numbers) == tally.n == reading["meta"]["n"] == DEVICES
    # Cells of 3/5, 1/5 and 1/5 of the reports, each at 6 standard deviations.
    for number, share in zip(numbers, (0.6, 0.2, 0.2), strict=True):
        assert abs(number - share * DEVICES) < 6 * sqrt(share * (1 - share) * DEVICES)
    (row,) = reading["rows"]
    assert (row["value"], row["cells"], reading["meta"]["mean_of"]) == ("mean", 3, 1)
    assert abs(row["estimate"] - truth["level"]) < 6 * row["std_error"]
    assert [list(line) for line in table] == [[*COLUMNS, "cells"]]
    assert "How high is the level?" in page
    assert "half and oue" in page


def test_the_commands_know_toys(asked: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, longer = tmp_path / "metrics.toml", tmp_path / "longer.toml"
    path.write_text(REGISTRY, encoding="utf-8")
    longer.write_text(REGISTRY.replace("last = 2", "last = 3"), encoding="utf-8")

    def said(*command: str) -> str:
        main(["metrics", *command] if command[0] != "privacy" else list(command))
        return capsys.readouterr().out

    assert "level: " in said("check", str(path))
    assert "How high is the level?" in said("docs", str(path))
    stub = said("types", str(path))
    assert "class LevelHandle(tests.test_toys.LevelHandle)" in stub
    assert "import tests.test_toys\n" in stub
    assert "level" in said("diff", str(path), str(longer))
    day, level = json.loads(said("privacy", str(path), "--json"))
    assert (day["mechanism"], day["cells"]) == ("half", 1)
    assert (level["mechanism"], level["cells"], level["parameters"]["1.weight"]) == ("half and oue", 3, 3)
    assert level["epsilon_report"] == pytest.approx(2.5, abs=1e-5)
    assert "half and oue" in said("privacy", str(path))


def test_a_wider_domain_of_a_toy_asks_the_person_again(asked: Registry) -> None:
    wider = Registry.parse(REGISTRY.replace("last = 2", "last = 3")).metrics["level"]
    assert Terms.of(wider).asks(Terms.of(asked.metrics["level"]))
    assert Terms.of(wider).asks(Terms.of(wider)) == []


# Toys of another distribution.

INSTALLED = """\
from dither_shared.mechanisms import MECHANISMS
from tests import test_toys as toys

MECHANISMS[toys.Half.name] = toys.Half
weekday, level, mean, planner = toys.Weekday(), toys.Level(), toys.Mean(), toys.HalfPlanner()
"""
ENTRY_POINTS = """\
[dither.kinds]
weekday = installed_toys:weekday
level = installed_toys:level
[dither.precisions]
weekday = installed_toys:toys.ListedPrecision
level = installed_toys:toys.LevelPrecision
[dither.domains]
steps = installed_toys:toys.Steps
[dither.handles]
weekday = installed_toys:toys.WeekdayHandle
level = installed_toys:toys.LevelHandle
[dither.estimands]
mean = installed_toys:mean
[dither.presentations]
mean = installed_toys:toys.MeanShown
[dither.planners]
level = installed_toys:planner
"""
APP = """\
import sys
from datetime import date
from fractions import Fraction
import dither
path, url, key, n = sys.argv[1:]
for _ in range(int(n)):
    with dither.start(path, endpoint=url, key=key, data_dir=":memory:", consent=True, development=True) as telemetry:
        telemetry.day.record(date(2026, 11, 21))
        telemetry.level.record(Fraction(2))
        assert telemetry.flush(timeout=20).sent == 2
"""


def test_a_kind_whose_precision_nobody_brings_is_told_so() -> None:
    with pytest.raises(ConfigurationError, match=r"the kind level needs a class in dither\.precisions"):
        precision_of(Level())


def install(place: Path, entry_points: str = ENTRY_POINTS) -> None:
    """Install a distribution with toys below a directory."""
    (place / "installed_toys.py").write_text(INSTALLED, encoding="utf-8")
    about = place / "installed_toys-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: installed-toys\nVersion: 1\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(entry_points, encoding="utf-8")


def test_toys_of_another_distribution_work_in_every_process(tmp_path: Path) -> None:
    """In the app, the server, the process that reads registries, and the readers that make pages."""
    install(tmp_path)
    path = tmp_path / "metrics.toml"
    path.write_text(REGISTRY, encoding="utf-8")
    where = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ENVIRONMENT['PYTHONPATH']}"}
    with serve(path, tmp_path / "data", starting=partial(start_afresh, **where)) as served:
        arguments = [sys.executable, "-c", APP, str(path), served.url, served.key, "5"]
        subprocess.run(arguments, env={**ENVIRONMENT, **where}, check=True, timeout=120)
        counted = f"{served.url}/v1/metrics/level/estimates?window=today"
        wait_until(lambda: requests.get(counted, timeout=ANSWER_S).json()["meta"]["n"] == 5)
        path.write_text(REGISTRY.replace("How high is the level?", "How high is it now?"), encoding="utf-8")
        served.process.send_signal(signal.SIGHUP)  # it is read in a process of its own
        # Beside busy programs that takes up to READ_WITHIN_S, and a page after it.
        listed = f"{served.url}/v1/metrics"
        wait_until(lambda: "How high is it now?" in requests.get(listed, timeout=ANSWER_S).text, 2 * READ_WITHIN_S)
        reading, table, page = fetched(served.url, "level")
        assert [row["value"] for row in reading["rows"]] == [row["value"] for row in table] == ["mean"]
        assert "The level is about" in page
        assert "How high is it now?" in page
        assert "half" in fetched(served.url, "day")[2]
        planned = requests.get(f"{served.url}/plan?kind=level&n=2000&epsilon=2", timeout=30)
        assert "at epsilon 2, a share of 0." in planned.text


def test_what_is_installed_is_looked_at_only_for_an_unknown_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk over distributions takes longer than a start."""
    looked: list[str] = []

    def entry_points(group: str) -> list[object]:
        looked.append(group)
        return []

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    listed = Installed("dither.kinds", {"ours": 1})
    assert listed["ours"] == 1
    assert "ours" in listed
    assert next(iter(listed)) == "ours"
    assert looked == []
    assert "theirs" not in listed
    assert [*listed] == ["ours"]
    assert listed.get("theirs") is None
    assert looked == ["dither.kinds"]


def test_ours_keep_their_names_and_one_that_cannot_be_loaded_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "[dither.kinds]\nours = json:loads\ntheirs = json:dumps\nbroken = json:there_is_none\n")
    monkeypatch.syspath_prepend(tmp_path)
    listed = Installed[object]("dither.kinds", {"ours": 1})
    assert [*listed] == ["ours", "theirs", "broken"]
    assert len(listed) == 3
    assert (listed["ours"], listed["theirs"]) == (1, json.dumps)
    with pytest.raises(ConfigurationError, match=r"broken of dither\.kinds, json:there_is_none, cannot be loaded"):
        listed["broken"]


# Every page, and every operation.

OF_ALL = (
    "/",
    "/changes",
    "/people",
    "/compare",
    "/ask",
    "/plan",
    "/pipeline",
    "/metrics/{metric}/share",
    "/help/reading",
    "/login",
    "/static/dither.css",
)
OF_EACH = (
    *("/metrics/{metric}", "/metrics/{metric}?window=today", "/metrics/{metric}?search=a&level=80"),
    *(
        "/metrics/{metric}/time",
        "/metrics/{metric}/privacy",
        "/compare?metric={metric}",
        "/plan?kind={kind}&n=2000&epsilon=2",
    ),
    *("/s/{id_}", "/s/{id_}.csv", "/s/{id_}.svg", "/embed/{link}", "/embed/{link}.svg"),
)
OPERATIONS_OF_EACH = (
    *("metrics", "estimates", "marks", "changes", "people/active", "people/retention", "people/newcomers"),
    "people/stickiness",
    *("snapshots/{id_}", "plan?kind={kind}&n=2000&epsilon=2"),
    *(f"metrics/{{metric}}/{each}" for each in ("values", "estimates", "groups", "snapshots", "series", "quality")),
    *(f"metrics/{{metric}}/estimates?{each}" for each in ("window=today", "intervals=each", "level=80")),
    *(
        "compare?metric={metric}",
        'query?q=share({metric} in ("saturday", "mean"))',
        "admin/quarantine",
        "admin/keys",
        "admin/journal",
    ),
)
OF_TOYS = {"day": "weekday", "level": "level", "bare": "level"}
"""The kind that is planned, by metric."""
BARE = f"""
[metric.bare]
kind = "bare"
question = "How high is the other level?"
last = 2
epsilon = 2.5
{COMMON}"""


def put_day(store: Store, asked: Registry, n: int) -> None:
    """Let n devices report each toy today, and count them."""
    rng = random.Random(n)
    coins = Rng(rng.getrandbits)
    for name, metric in asked.metrics.items():
        cells, reports = metric.plan.cells, dict[int, list[int | str]]()
        for _ in range(n):
            answer = SATURDAY if name == "day" else Fraction(rng.randrange(150, 201), 100)
            cell = cells.draw(coins)
            mechanism = cells.mechanism_of(cell)
            report = mechanism.randomize(metric.class_of(metric.read(answer), cell, coins), coins)
            reports.setdefault(cell, []).append(mechanism.shape.to_wire(report))
        for cell, same in reports.items():
            group = name, metric.plan.digest, same, cell if cells.several else None
            append(store, encode_upload(new_upload_id(rng.getrandbits), [group]))
    fold_all(store)


def bodies(day: date, key_id: str) -> dict[str, object]:
    """Return the bodies of all operations that have one, but for uploads."""
    mark = {"day": day.isoformat(), "text": "a release"}
    return {
        "metrics/{metric}/estimates": {"candidates": ["a text"]},
        "admin/registry/load": {"registry": REGISTRY + BARE},
        "admin/plans/retire": {"metric": "level", "rev": 1, "undo": True},
        "admin/quarantine/replay": {"ids": ["0-1"]},
        "admin/quarantine/drop": {"ids": ["0-1"]},
        "admin/marks/add": mark,
        "admin/marks/remove": mark,
        "admin/keys/create": {"scope": "read", "label": "a reader"},
        "admin/keys/revoke": {"id": key_id},
    }


@dataclass
class Walk:
    """A walk along the addresses of an aggregator, with a key."""

    url: str
    key: str
    described: dict[str, Any]
    ids: Mapping[str, str]
    """The id of a snapshot, by metric."""
    links: Mapping[str, str]
    """The signed part of a link for other sites, by metric."""
    seen: set[tuple[str, str]] = field(default_factory=set)
    """Methods and addresses that were answered with what was asked for, as the description has them."""

    def ask(self, pattern: str, metric: str, method: str = "get", body: object = None) -> requests.Response:
        """Return the answer of an address. It is no failure of the server, and as it is described."""
        names = {"metric": metric, "id_": self.ids[metric], "kind": OF_TOYS[metric], "link": self.links[metric]}
        url = self.url + pattern.format(**names)
        answer = requests.request(method, url, json=body, headers=bearer(self.key), timeout=30)
        assert answer.status_code < 500, (url, answer.text)
        path = pattern.partition("?")[0]
        if answer.ok:
            self.seen.add((method, path))
            if path in self.described["paths"] and answer.headers["Content-Type"] == "application/json":
                assert faults(self.described, path, method, answer.json()) == [], url
        return answer


@pytest.mark.parametrize("place", thinned(["sqlite", "redis"], 0), indirect=True)  # another test has the other
def test_toys_are_on_every_page_and_in_every_operation(
    asked: Registry, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With days that are final, each with its snapshot, and one that is not over."""
    # A registry is read in a process of its own, which has none of this test's kinds.
    monkeypatch.setattr(
        administering, "read_apart", lambda body, _: document_of(Registry.parse(json.loads(body)["registry"]))
    )
    asked = Registry.parse(REGISTRY + BARE)
    store = place.make(asked, "toys")
    for n in (150, 200):
        put_day(store, asked, n)
        place.travel(1)
        for shard in range(store.shards):
            maintenance.maintain(store, shard)
    for metric in asked.metrics:
        assert maintenance.finalize(store, metric) == 2
    put_day(store, asked, 100)
    ids = {metric: max(store.finals(asked.metrics[metric].plan).items())[1].snapshot for metric in asked.metrics}
    key = store.create_key(ADMIN, "of the test")[1]
    with Service(store) as service:
        server = http_server(web_app(service))
        with server.in_background():
            described = requests.get(f"{server.url}/openapi.json", headers=bearer(key), timeout=30).json()
            behind = store.create_key(READ, "of links")[0].id
            paths = {metric: EmbedLink(metric, store.today(), 7).path(store, behind) for metric in ids}
            links = {metric: path.removeprefix(EMBED) for metric, path in paths.items()}
            walk = Walk(server.url, key, described, ids, links)
            pages = {(each, metric): walk.ask(each, metric) for each in (*OF_ALL, *OF_EACH) for metric in ids}
            reader = Walk(server.url, store.create_key(READ, "who is told less")[1], described, ids, links)
            assert [each for each in OF_EACH for metric in ids if not reader.ask(each, metric).ok] == []
            for each in OPERATIONS_OF_EACH:
                for metric in ids:
                    assert walk.ask(f"/v1/{each}", metric).ok, (each, metric)
                    walk.ask(f"/v1/{each}{'&' if '?' in each else '?'}format=csv", metric)
            compared = walk.ask("/v1/compare?metric={metric}", "level").json()
            walk.ask("/v1/questions", "level")
            walk.ask("/v1/query", "level", "post", {"questions": ["mean(level)"]})
            for each, body in bodies(store.today(), store.create_key(READ, "")[0].id).items():
                for metric in ids:
                    walk.ask(f"/v1/{each}", metric, "post", body)
    operations = {(method, path) for path, has in described["paths"].items() for method in has}
    assert {each for each in operations - walk.seen if each[0] != "parameters"} == {("post", "/v1/reports")}
    assert [about for about, page in pages.items() if not page.ok] == []
    for metric, told in (("day", "saturday"), ("level", "The level is about"), ("bare", "mean: 1.")):
        for each in ("/metrics/{metric}", "/s/{id_}"):
            assert told in pages[each, metric].text
            assert "quantile" not in pages[each, metric].text
    # A unit says nothing of this: the reading has a floor of changes, and its presentation more than a few rows.
    assert compared["meta"]["detectable_difference"] > 0
    assert 'name="search"' in pages["/compare?metric={metric}", "level"].text
    assert "None of 1 level can be told to have moved." in pages["/compare?metric={metric}", "level"].text
    assert "at epsilon 2, a share of 0." in pages["/plan?kind={kind}&n=2000&epsilon=2", "level"].text
    walked = {re.sub("{.*?}|(?<=/static/).*", "<>", path) for _, path in walk.seen}
    assert set(ADDRESSES) - walked == {"/v1/reports", "/logout", "/openapi.json"}
