"""Each kind's releases: how far one device moves them, and how often their intervals hold."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

from dither_aggregator.analysis.channel import law_matrix, places_of
from dither_aggregator.analysis.estimands import estimand_of
from dither_aggregator.analysis.inference import Z, reach_of_noise
from dither_aggregator.analysis.released import ReleasedRow, ReleasedTally
from dither_aggregator.analysis.tables.pairs import QuestionTally
from dither_aggregator.counting import Counts, fold_cells, tables
from dither_aggregator.publishing.releases import PublishedReading, read
from dither_aggregator.publishing.site import about, changes_between, render, verify, write
from dither_aggregator.store import StoreError
from dither_aggregator.store.release_ledger import Release, seal
from dither_aggregator.web import forest_plots as share_charts
from dither_aggregator.web.charts import shorten
from dither_shared.domains import NumberDomain
from dither_shared.frozen import replaced
from dither_shared.kinds.precision import TAILS, precision_of
from dither_shared.mechanisms import PrivSet, one_cell
from dither_shared.plan import Plan
from dither_shared.registry import Registry
from dither_shared.releases import ReleaseNoise, counts_of
from dither_shared.shapes import Subsets
from tests.support.browsing import a_tab, check_looks, check_widths
from tests.support.laws import pure
from tests.support.registries import metrics_text
from tests.support.soaking import thinned
from tests.support.tallies import draw_tally

LIFE = {"reports": 4, "epsilon": 2.0}
PUBLISHED = {"publish": "month", "publish_epsilon": 1.0, "why": "To make it quicker."}
KINDS: Mapping[str, Mapping[str, object]] = {
    "mean": {"kind": "number", "unit": "ms", "low": 0, "high": 100, "asks": ["mean"], **LIFE},
    "buckets": {"kind": "number", "unit": "ms", "low": 0, "high": 64, "buckets": 16, **LIFE},
    "steps": {
        "kind": "number",
        "unit": "ms",
        "low": 0,
        "high": 100,
        "buckets": 2,
        "memoize": True,
        "epsilon": 2.0,
        "epsilon_permanent": 4.0,
    },
    "table": {"kind": "table", "columns": {"crashed": ["no", "yes"], "version": ["1", "2", "3"]}, **LIFE},
    "pairs": {"kind": "table", "columns": {name: ["1", "2", "3", "4", "5", "6"] for name in ("a", "b", "c")}, **LIFE},
    "ticks": {"kind": "choices", "values": ["a", "b", "c", "d"], "ticks_max": 2, "mechanism": "privset", **LIFE},
    "subsets": {"kind": "choice", "values": ["a", "b", "c", "d", "e", "f"], "mechanism": "ss", "reports": 4}
    | {"epsilon": 0.5},
}


def registry_of(*names: str) -> Registry:
    asked = {name: {**KINDS[name], **PUBLISHED} for name in names}
    return Registry.parse(metrics_text(asked, publish_epsilon_year=13.0 * len(names)))


def plan_of(name: str) -> Plan:
    return registry_of(name).metrics[name].plan


def raw_of(plan: Plan, counts: Counts) -> Counts:
    """Return a tally's counts without the numbers of reports: what gets noise."""
    return np.concatenate([table[:, 1:].ravel() for _, table, _ in tables(plan.cells, counts)])


def released(plan: Plan, raw: Counts, rng: np.random.Generator, reports: int = 1) -> Release:
    """Return the release of raw counts, with noise of the ledger's law."""
    release = Release(plan.metric, "What?", plan, "month", date(2026, 10, 1), 1_000_000, reports, 1)
    ends = 1 - np.exp(-1 / float(release.noise.scale))
    noise = rng.geometric(ends, len(raw)) - rng.geometric(ends, len(raw))
    return replace(release, counts=tuple((raw + noise).tolist()))


# How far one device moves the counts.


@pytest.mark.parametrize("name", KINDS)
def test_all_reports_of_one_device_move_the_counts_by_what_the_noise_is_scaled_to(name: str) -> None:
    """Each cell and each possible report, r times: no more than w r in sum, and some of them as much."""
    plan, reports = plan_of(name), 3
    noise, farthest = ReleaseNoise.of(plan, 1_000_000, reports), 0
    for cell in range(plan.cells.count):
        shape = plan.cells.mechanism_of(cell).shape
        outputs = (
            [shape.of(members) for members in combinations(range(shape.size), shape.weight)]
            if isinstance(shape, Subsets)
            else range(shape.size)
        )
        for output in outputs:
            packed = output.to_bytes(shape.width, "little") * reports
            moved = raw_of(plan, fold_cells(plan.cells, {cell: packed}))
            assert len(moved) == counts_of(plan.cells)
            farthest = max(farthest, int(np.abs(moved).sum()))
    assert farthest == noise.width * reports == float(noise.scale)


# How often intervals hold.

Drawn = Callable[[Plan, int, np.random.Generator], tuple[Counts, Mapping[str, tuple[float, float]]]]
"""Raw counts of so many devices, and what is true, as a range: by the name of a row."""


def draw_number(plan: Plan, n: int, rng: np.random.Generator) -> tuple[Counts, Mapping[str, tuple[float, float]]]:
    places = places_of(plan)
    shares = np.exp(-np.arange(places.numbers) / (places.numbers / 3))
    shares /= shares.sum()
    weights = np.repeat([part.weight for part in plan.cells.parts], [part.cells for part in plan.cells.parts])
    sizes, raw = rng.multinomial(n, weights / weights.sum()), []
    for cell, size in enumerate(sizes):
        law = law_matrix(plan.cells.mechanism_of(cell))
        if plan.cells.memoized:
            law = law[:, (np.arange(places.numbers) > cell).astype(int)]
        people = rng.multinomial(size, shares)
        raw.append(np.array([rng.multinomial(each, law[:, place]) for place, each in enumerate(people)]).sum(axis=0))
    low, high = places.mean_lower, places.mean_upper
    domain = NumberDomain.of(plan.domain)
    truth = {"mean": (float(shares @ low), float(shares @ high))}
    if plan.cells.memoized:
        for step in range(domain.size):
            name = f"above a point of {domain.between(domain.edges[step], domain.edges[step + 1])}"
            truth[name] = (float(shares[step + 1 :].sum()),) * 2
    if len(plan.cells.parts) > 1:
        inner = [shares[0] + shares[1], *shares[2:-2], shares[-2] + shares[-1]]
        for bars in (4, 8, 16):
            each = 16 // bars
            for bar in range(bars):
                name = f"{bar * 4 * each} to {domain.with_unit(str((bar + 1) * 4 * each))}"
                truth[name] = (float(sum(inner[bar * each : (bar + 1) * each])),) * 2
    return np.concatenate(raw), truth


def draw_table(plan: Plan, n: int, rng: np.random.Generator) -> tuple[Counts, Mapping[str, tuple[float, float]]]:
    shares = np.array([[0.35, 0.2, 0.1, 0.05], [0.1, 0.1, 0.02, 0.01], [0.02, 0.03, 0.01, 0.01]])
    shares /= shares.sum()
    people = rng.multinomial(n, shares.ravel()).astype(np.int64)
    raw = draw_tally(pure(plan), people, rng)
    crashed, version = (("no", "yes", "other"), ("1", "2", "3", "other"))
    truth = {f"crashed = {name}": share for name, share in zip(crashed, shares.sum(axis=1), strict=True)}
    truth |= {f"version = {name}": share for name, share in zip(version, shares.sum(axis=0), strict=True)}
    truth |= {
        f"crashed = {one} & version = {other}": share
        for (one, other), share in zip(product(crashed, version), shares.ravel(), strict=True)
    }
    return raw, {name: (float(share), float(share)) for name, share in truth.items()}


def draw_pairs(plan: Plan, n: int, rng: np.random.Generator) -> tuple[Counts, Mapping[str, tuple[float, float]]]:
    """Answers of three columns that have nothing to do with each other."""
    one = 1 / np.arange(1, 8)
    one /= one.sum()
    labels, raw = ("1", "2", "3", "4", "5", "6", "other"), []
    truth: dict[str, tuple[float, float]] = {}
    for part, size in zip(plan.cells.parts, rng.multinomial(n, np.full(3, 1 / 3)), strict=True):
        people = rng.multinomial(size, np.outer(one, one).ravel()).astype(np.int64)
        raw.append(draw_tally(pure(replaced(plan, cells=one_cell(part.mechanism))), people, rng))
    for column in "abc":
        truth |= {f"{column} = {label}": (float(share),) * 2 for label, share in zip(labels, one, strict=True)}
    for a, b in combinations("abc", 2):
        for (i, x), (j, y) in product(enumerate(labels), repeat=2):
            truth[f"{a} = {x} & {b} = {y}"] = (float(one[i] * one[j]),) * 2
    return np.concatenate(raw), truth


def draw_ticks(plan: Plan, n: int, rng: np.random.Generator) -> tuple[Counts, Mapping[str, tuple[float, float]]]:
    mechanism = PrivSet.of(plan.mechanism)
    answers: list[Sequence[int]] = [(0,), (0, 1), (1, 2), (3,), ()]
    shares = np.array([0.4, 0.3, 0.15, 0.1, 0.05])
    subsets = list(combinations(range(mechanism.padded), mechanism.weight))
    raw = np.zeros(mechanism.padded, dtype=np.int64)
    for answer, people in zip(answers, rng.multinomial(n, shares), strict=True):
        held = {*answer, *range(mechanism.d, mechanism.padded)[: mechanism.ticks - len(answer)]}
        meets = np.array([bool(held & set(each)) for each in subsets])
        inside = mechanism.threshold / 2**64
        law = np.where(meets, inside / meets.sum(), (1 - inside) / (~meets).sum())
        for subset, times in zip(subsets, rng.multinomial(people, law), strict=True):
            raw[list(subset)] += times
    truth = {
        value: float(sum(share for answer, share in zip(answers, shares, strict=True) if place in answer))
        for place, value in enumerate(plan.values)
    }
    return raw, {name: (share, share) for name, share in truth.items()}


def held(reading: PublishedReading, truth: Mapping[str, tuple[float, float]]) -> list[bool]:
    """Return of each row whose truth is one number whether its own interval holds it."""
    rows = [row for row in reading.rows if row.value in truth]
    assert rows
    ends = [(row, *truth[row.value]) for row in rows]
    return [row.own_lower <= low <= row.own_upper for row, low, high in ends if low == high]


CASES: tuple[tuple[str, Drawn, int, int, int], ...] = (
    ("mean", draw_number, 20_000, 9, 40),
    ("buckets", draw_number, 20_000, 4, 12),
    ("steps", draw_number, 20_000, 9, 25),
    ("table", draw_table, 20_000, 9, 20),
    ("pairs", draw_pairs, 20_000, 4, 6),
    ("ticks", draw_ticks, 20_000, 9, 25),
)


@pytest.mark.parametrize(("name", "draw", "n", "reports", "runs"), CASES)
def test_published_intervals_of_each_kind_hold(name: str, draw: Drawn, n: int, reports: int, runs: int) -> None:
    """A share of .94 to .97 of the 95 % intervals holds, give or take 5 sigma: false alarms are below 1e-6.

    Mean and quantiles of ranges hold more often: ranges leave them open.
    """
    plan, rng = plan_of(name), np.random.default_rng(11)
    found: list[bool] = []
    for _ in range(runs):
        raw, truth = draw(plan, n, rng)
        reading = read(released(plan, raw, rng, reports))
        assert not reading.too_few
        found += held(reading, truth)
    spread = 5 * np.sqrt(0.05 * 0.95 / (len(found) / 3))  # rows of one release go together: as if a third were new
    assert 0.94 - spread <= np.mean(found) <= 0.97 + spread


@pytest.mark.parametrize(
    ("name", "draw"), thinned([(name, draw) for name, draw, *_ in CASES if name != "pairs"], 2, 3, 4)
)
def test_errors_have_what_noise_on_each_count_does(name: str, draw: Drawn) -> None:
    """The variance that noise adds to a share is that of moving each count by itself, n with it.

    Sums of few Laplace numbers have long tails, for which intervals of some kinds take up to 17 % more of it.
    """
    plan, rng, step = plan_of(name), np.random.default_rng(12), 20
    raw, _ = draw(plan, 40_000, rng)
    noise = ReleaseNoise.of(plan, 1_000_000, 9)
    silent = ReleaseNoise.of(plan, 20_000_000, 1)

    def told(counts: Counts, law: ReleaseNoise) -> Mapping[str, ReleasedRow]:
        tally = ReleasedTally.of(plan, counts.tolist(), law, 1)
        rows = estimand_of(plan).released(tally).rows
        return {row.value: row for row in rows if row.is_share or name == "mean"}

    plain, noisy = told(raw, silent), told(raw, noise)
    squares = dict.fromkeys(plain, 0.0)
    for place in range(len(raw)):
        moved = told(raw + step * (np.arange(len(raw)) == place), silent)
        for value in squares:
            squares[value] += ((moved[value].estimate - plain[value].estimate) / step) ** 2
    for value, square in squares.items():
        added = noisy[value].std_error ** 2 - plain[value].std_error ** 2
        assert 0.9 <= added / (noise.variance * square) <= 1.25, value


@pytest.mark.parametrize("reports", thinned([1, 4, 9], 2))
@pytest.mark.parametrize(("name", "draw"), list({name: draw for name, draw, *_ in CASES if name != "ticks"}.items()))
def test_a_check_says_how_much_wider_errors_of_each_kind_are(name: str, draw: Drawn, reports: int) -> None:
    """The error of each share, and of a mean, grows by a factor in the range that is said, within 2 %.

    The share of one column, a sum of a pair's cells, grows by up to 2.5 % more than that of a rare cell.
    """
    plan, n = plan_of(name), 20_000
    raw, _ = draw(plan, n, np.random.default_rng(1))
    noise, silent = ReleaseNoise.of(plan, 1_000_000, reports), ReleaseNoise.of(plan, 20_000_000, 1)

    def errors(law: ReleaseNoise) -> Mapping[str, float]:
        rows = estimand_of(plan).released(ReleasedTally.of(plan, raw.tolist(), law, 1)).rows
        return {row.value: row.std_error for row in rows if row.is_share or row.value == "mean"}

    without, with_it = errors(silent), errors(noise)
    factors = [with_it[value] / without[value] for value in with_it]
    least, most = precision_of(plan.kind).widened(plan.cells, noise, n)
    assert 0.98 * least <= min(factors)
    assert max(factors) <= (1.025 if name == "pairs" else 1.02) * most
    assert most <= 1.25 * max(factors)  # nor is far more said than there is


def test_the_tails_of_planning_are_those_of_intervals() -> None:
    assert pytest.approx((reach_of_noise(1.0, 0.05) / Z) ** 2) == TAILS


@pytest.mark.parametrize("columns", thinned([(0,), (0, 1)], 1))
def test_errors_of_pairs_of_columns_have_what_noise_on_each_point_does(columns: tuple[int, ...]) -> None:
    """The closed forms of variance and covariance are the sums over all points, each moved by itself, n with it."""
    plan = plan_of("pairs")
    raw, _ = draw_pairs(plan, 30_000, np.random.default_rng(15))
    mechanism, noise = pure(replaced(plan, cells=one_cell(plan.cells.parts[0].mechanism))), 50.0
    points = raw[: mechanism.shape.size]
    asked = QuestionTally((0, 1), (7, 7), False, mechanism, points, int(points.sum()))
    plain, noisy = asked.table(columns), replace(asked, count_noise=noise).table(columns)
    moved = np.array(
        [
            replace(asked, counts=points + one, n=asked.n + 1).table(columns).shares - plain.shares
            for one in np.eye(len(points), dtype=np.int64)
        ]
    )
    covariance = noise * moved.T @ moved
    assert noisy.variances - plain.variances == pytest.approx(np.diag(covariance), rel=1e-3)
    weights = np.eye(plain.size)[:3] - np.arange(plain.size) / plain.size
    found = noisy.covariances(weights) - plain.covariances(weights)
    assert found == pytest.approx(weights @ covariance, rel=2e-3, abs=1e-9)


# From noisy counts to a site.


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    drawn = {name: draw for name, draw, _, _, _ in CASES}
    registry, rng, documents = registry_of(*drawn), np.random.default_rng(13), []
    for name, draw in drawn.items():
        plan = registry.metrics[name].plan
        for month, n in ((7, 20_000), (8, 15_000), (9, 100), (10, 20_000)):
            release = replace(released(plan, draw(plan, n, rng)[0], rng), first=date(2026, month, 1))
            documents.append({**release.published(), "seal": seal(release, b"a secret of sixteen bytes")})
    top = tmp_path_factory.mktemp("kinds") / "site"
    write(top, render(about(registry, date(2026, 11, 1)), documents))
    return top


def test_a_site_of_every_kind_is_what_its_documents_make_of_it(site: Path) -> None:
    assert verify(site) == []
    text = (site / "buckets" / "index.html").read_text()
    assert "2026-10: the mean is 1" in text
    assert "2026-09: too few" not in text  # the latest leads
    assert "too few reports" in text
    assert "crashed = no has" in (site / "index.html").read_text()
    page = (site / "mean" / "index.html").read_text()
    assert "<h2>Over time</h2>" in page  # the mean, of the releases that tell one
    assert "The same numbers by release" in page
    assert page.count('<th scope="row">2026-') == 3 + 4  # and all of them in the list
    mean = (site / "mean" / "2026-10.csv").read_text().splitlines()
    assert mean[0].endswith(",unit")
    assert mean[1].endswith(",ms")


def test_pages_can_be_read_from_a_disk_without_script(made: Path, site: Path, browser: Browser) -> None:
    """The index, shares, numbers, and a table: other kinds have rows as these do."""
    with a_tab(browser) as tab:
        for page in (
            made / "index.html",
            made / "color/index.html",
            site / "buckets/index.html",
            site / "pairs/index.html",
        ):
            tab.visit(page.as_uri())
            # Before axe, which would read the style sheet again, as no page of a disk may.
            assert [each for each in tab.complaints if not each.startswith(page.parents[1].as_uri())] == []
            check_looks(tab)
            check_widths(tab)
            assert tab.page.evaluate("() => document.scripts.length") == 0


def test_a_release_of_another_length_is_refused() -> None:
    plan = plan_of("pairs")
    release = released(plan, draw_pairs(plan, 1_000, np.random.default_rng(1))[0], np.random.default_rng(2))
    assert Release.from_document(release.published()).counts == release.counts
    with pytest.raises(StoreError, match="must have 171 counts"):
        Release.from_document({**release.published(), "counts": list(release.counts or ())[:-1]})


def test_a_page_says_to_what_numbers_are_cut_and_what_quantiles_are() -> None:
    plan, rng = plan_of("buckets"), np.random.default_rng(4)
    raw, _ = draw_number(plan, 20_000, rng)
    release = released(plan, raw, rng)
    page = render(about(registry_of("buckets"), date(2026, 11, 27)), [release.published()])[
        "buckets/index.html"
    ].decode()
    assert "Numbers are cut to the range from 0 ms to 64 ms." in page
    assert '<th scope="col">statistic</th>' in page
    assert "<bdi>5 % are below</bdi>" in page
    assert "<bdi>median</bdi>" in page


def test_a_page_says_to_what_numbers_of_a_column_are_cut() -> None:
    columns = {"crashed": ["no", "yes"], "age": {"unit": "a", "low": 0, "high": 90, "buckets": 3}}
    keys = {"kind": "table", "columns": columns, **LIFE, **PUBLISHED}
    plan = Registry.parse(metrics_text({"people": keys}, publish_epsilon_year=13)).metrics["people"].plan
    release = Release(
        "people", "What?", plan, "month", date(2026, 10, 1), 1_000_000, 1, 1, counts=(9,) * counts_of(plan.cells)
    )
    assert read(release).cut == ["Numbers of age are cut to the range from 0 a to 90 a."]


def test_labels_of_a_table_tell_its_rows_apart() -> None:
    long = {"operating_system": ["Windows 10", "Windows 11"], "colour_of_the_theme": ["light", "dark"]}
    keys = {"kind": "table", "columns": long, **LIFE, **PUBLISHED}
    plan = Registry.parse(metrics_text({"looks": keys}, publish_epsilon_year=13)).metrics["looks"].plan
    size = counts_of(plan.cells)
    release = Release(
        *("looks", "What?", plan, "month", date(2026, 10, 1), 1_000_000, 1, 1),
        counts=tuple(range(5_000, 5_000 + 100 * size, 100)),
    )
    rows = read(release).shares
    labels = [mark.label for mark in share_charts.draw(rows, 0.0).marks]
    assert len(rows) > 8
    assert len(set(labels)) == len(rows)
    assert len({shorten(row.value) for row in rows}) < len(rows)  # planted: each cut by itself


def test_inner_edges_and_a_scale_are_told_as_what_they_are() -> None:
    keys = {**KINDS["buckets"], **PUBLISHED, "low": 1}
    before, after = (
        about(Registry.parse(metrics_text({"buckets": each}, publish_epsilon_year=13)), date(2026, 11, 1))
        for each in (keys, {**keys, "scale": "log"})
    )
    changes = [each["what"] for each in changes_between(before, after, date(2026, 11, 2))]
    assert any(what.startswith("new edges of ranges: ") and "edges of ranges left out: " in what for what in changes)
    assert not any("1 ms" in what.split() for what in changes)  # the ends stay
