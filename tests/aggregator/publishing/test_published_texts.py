"""Releases of fresh texts: supports of a public list, how far one device moves them, and how often intervals hold."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

from dither_aggregator.analysis import released_texts
from dither_aggregator.analysis.released import released_counts
from dither_aggregator.counting.folding import Counts, fold_cells
from dither_aggregator.counting.supports import hyperplanes_through
from dither_aggregator.publishing import releases
from dither_aggregator.publishing.reading import PublishedReading, read
from dither_aggregator.publishing.site import publish_to, verify
from dither_aggregator.store import StoreError
from dither_aggregator.store.release_ledger import Release, seed_of
from dither_shared import releases as shared
from dither_shared.cells import Cells, Part
from dither_shared.domains import OTHER, Hashed
from dither_shared.frozen import replaced
from dither_shared.mechanisms import PGR, choose
from dither_shared.plan import Plan
from dither_shared.releases import ReleaseNoise, counts_of, most_supported, width_of
from tests.support.browsing import a_tab, check_looks
from tests.support.points import draw_points
from tests.support.releases import ANSWERS, WEEKLY, Device, Neighbours, drawn, text_registry, week_of

ROWS, BUCKETS = 4, 1_024
TEXTS, DEVICES = 400, 100_000
HEAVY = 0.3
NAMES = (*(f"text {place}" for place in range(0, TEXTS, 8)), OTHER)
"""The list has one text in eight, and half of the mass."""
REGISTRY, FEW = text_registry(), text_registry(names=("red",))
ALPHA = 1e-6
DELTA = Decimal("1e-6")


def small(buckets: int = BUCKETS, epsilon: str = "2") -> Plan:
    """Return the plan of a text with few buckets."""
    mechanism = choose(buckets, Decimal(epsilon), name="pgr")
    plan = REGISTRY.metrics["color"].plan
    return replaced(plan, domain=Hashed("color", buckets), cells=Cells((Part(mechanism, ROWS),)))


def release_of(plan: Plan, counts: Counts | Sequence[int], names: tuple[str, ...], **changes: object) -> Release:
    entry = Release("color", "What?", plan, "month", date(2026, 10, 1), 1_000_000, 1, 1, names=names)
    return replace(entry, counts=tuple(int(count) for count in counts), **changes)  # type: ignore[arg-type]


# How far one device moves the counts.


@pytest.mark.parametrize(("buckets", "epsilon", "number"), [(40, "1", 30), (57, "2", 6), (57, "2", 1), (57, "2", 30)])
def test_all_reports_of_one_device_move_the_counts_by_what_the_noise_is_scaled_to(
    buckets: int, epsilon: str, number: int
) -> None:
    """Every report of every row, r times: no more than w r in sum, w r^2 in squares, and some of them as much."""
    plan, reports = small(buckets, epsilon), 3
    names = tuple(f"name {place}" for place in range(number))
    noise, shape = ReleaseNoise.of(plan, 1_000_000, reports, names), plan.cells.mechanism.shape
    moved = np.array(
        [
            released_counts(
                plan, names, fold_cells(plan.cells, {cell: report.to_bytes(shape.width, "little") * reports})
            )
            for cell in range(ROWS)
            for report in range(shape.size)
        ]
    )
    assert moved.shape[1] == counts_of(plan.cells, names)
    assert moved.sum(axis=1).max() == noise.width * reports == noise.scale
    assert (moved**2).sum(axis=1).max() == noise.width * reports**2
    assert noise.width <= 1 + number


@pytest.mark.parametrize("epsilon", ["1", "2", "4", "6"])
def test_the_most_texts_that_one_report_supports_are_counted_exactly(epsilon: str) -> None:
    """A transform counts the same, of the buckets that a registry's texts have."""
    mechanism = PGR.of(choose(1 << 17, Decimal(epsilon), name="pgr"))
    values = np.unique(np.random.default_rng(1).integers(0, 1 << 17, 40))
    assert most_supported(mechanism, values.tolist()) == hyperplanes_through(*mechanism.geometry, values).max()
    assert most_supported(mechanism, [5, 5, 5]) == 3


# How often intervals hold.


@dataclass(frozen=True)
class Texts:
    """The raw counts of a release, and the true shares of its names."""

    plan: Plan
    counts: Counts
    truth: dict[str, float]


@cache
def texts(seed: int, heavy: float = HEAVY) -> Texts:
    """Draw devices' texts, rows and reports, under another hash for each seed: one heavy text, others by Zipf's law."""
    rng = np.random.default_rng(seed)
    domain, plan = Hashed(f"site {seed}", BUCKETS), small()
    plan = replaced(plan, domain=domain)
    shares = 1 / np.arange(1, TEXTS + 1)
    shares[1:] *= (1 - heavy) / shares[1:].sum()
    shares[0] = heavy
    rows = []
    for row, devices in enumerate(rng.multinomial(DEVICES, [1 / ROWS] * ROWS).tolist()):
        places = np.array([domain.bucket(f"text {place}", row) for place in range(TEXTS)])
        values = np.repeat(places, rng.multinomial(devices, shares))
        mechanism = PGR.of(plan.cells.mechanism)
        rows += [devices, *draw_points(mechanism, np.bincount(values, minlength=mechanism.d), rng).tolist()]
    counts = released_counts(plan, NAMES, np.array(rows))
    truth = {f"text {place}": float(share) for place, share in enumerate(shares)} | {OTHER: 0.0}
    return Texts(plan, counts, truth)


def reading_of(seed: int, *, reports: int = 1, delta: Decimal | None = None, heavy: float = HEAVY) -> PublishedReading:
    one, rng = texts(seed, heavy), np.random.default_rng(1_000 + seed)
    law = ReleaseNoise.of(one.plan, 1_000_000, reports, NAMES, delta)
    return read(
        release_of(one.plan, one.counts + drawn(law, len(one.counts), rng), NAMES, reports=reports, delta=delta)
    )


ROUNDS = 12


@pytest.mark.parametrize(("reports", "delta"), [(1, None), (4, None), (4, DELTA)])
def test_published_intervals_of_texts_hold(reports: int, delta: Decimal | None) -> None:
    """A share of .94 to .97 holds, give or take 5 sigma of tallies whose texts share their noise: as if half were new.

    A text beside the list has three tenths of all: rows in which it meets a listed one are left out.
    """
    found = []
    for seed in range(ROUNDS):
        reading = reading_of(seed, reports=reports, delta=delta)
        truth = texts(seed).truth
        found += [row.own_lower <= truth[row.value] <= row.own_upper for row in reading.rows]
    assert len(found) == ROUNDS * len(NAMES)
    spread = 5 * np.sqrt(0.05 * 0.95 / (len(found) / 2))
    assert 0.94 - spread <= np.mean(found) <= 0.97 + spread


def test_without_the_noise_in_the_errors_intervals_would_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    monkeypatch.setattr(released_texts._Supports, "of_noise", np.zeros(len(NAMES)))
    for seed in range(3):
        truth = texts(seed).truth
        found += [row.own_lower <= truth[row.value] <= row.own_upper for row in reading_of(seed, reports=9).rows]
    assert np.mean(found) < 0.85


def test_a_heavy_text_beside_the_list_is_found_in_no_row() -> None:
    """Without the test of rows it would: listed texts that nobody has would stand out where they meet it."""
    one, rng = texts(0), np.random.default_rng(5)
    heavy = next(place for place in range(10**6) if one.plan and _meets(one.plan, f"new {place}"))
    names = (f"new {heavy}", *NAMES[1:])  # it has the first text's bucket in the first row, and the first is unlisted
    raw = released_counts(one.plan, names, _tally(0))
    law = ReleaseNoise.of(one.plan, 1_000_000, 1, names)
    reading = read(release_of(one.plan, raw + drawn(law, len(raw), rng), names))
    row = reading.rows[0]
    assert row.lower <= 0 <= row.upper
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(released_texts, "FAR", 1e9)
        assert read(reading.release).rows[0].lower > 0.02


def _meets(plan: Plan, name: str) -> bool:
    domain = Hashed.of(plan.domain)
    return domain.bucket(name, 0) == domain.bucket("text 0", 0)


@cache
def _tally(seed: int) -> Counts:
    """Return the tally behind the counts: the same draws once more."""
    rng, plan = np.random.default_rng(seed), texts(seed).plan
    domain, mechanism, rows = Hashed.of(plan.domain), PGR.of(plan.cells.mechanism), []
    shares = np.array([texts(seed).truth[f"text {place}"] for place in range(TEXTS)])
    for row, devices in enumerate(rng.multinomial(DEVICES, [1 / ROWS] * ROWS).tolist()):
        places = np.array([domain.bucket(f"text {place}", row) for place in range(TEXTS)])
        values = np.repeat(places, rng.multinomial(devices, shares))
        rows += [devices, *draw_points(mechanism, np.bincount(values, minlength=mechanism.d), rng).tolist()]
    return np.array(rows)


@pytest.mark.parametrize(("reports", "delta"), [(1, None), (9, None), (9, DELTA)])
def test_a_check_says_how_much_wider_errors_are(reports: int, delta: Decimal | None) -> None:
    """Of the buckets that a registry's texts have, and a text that nobody has."""
    plan, names = REGISTRY.metrics["color"].plan, (*ANSWERS, OTHER)
    law = ReleaseNoise.of(plan, 1_000_000, reports, names, delta)
    rate = float(PGR.of(plan.cells.mechanism).q)
    counts = ROWS * [DEVICES // ROWS, *[round(rate * DEVICES / ROWS)] * len(names)]
    told = read(release_of(plan, counts, names, reports=reports, delta=delta)).rows[0].std_error
    told /= read(release_of(plan, counts, names, micro=20_000_000)).rows[0].std_error
    assert told > (1.005 if reports == 1 else 1.2)
    assert plan.kind.widened(plan.cells, law, DEVICES) == pytest.approx((told, told), rel=0.02)


def test_too_few_reports_tell_nothing() -> None:
    plan = small()
    width = counts_of(plan.cells, NAMES)
    assert read(release_of(plan, [3] * width, NAMES)).too_few
    assert read(release_of(plan, [-3] * width, NAMES)).too_few


def test_two_names_of_one_bucket_are_told_apart_by_other_rows() -> None:
    names = next(
        (f"a {one}", f"a {other}")
        for one in range(60)
        for other in range(one)
        if _share_rows(small(), f"a {one}", f"a {other}") == 1
    )
    alone = released_texts._alone(Hashed.of(small().domain), names, ROWS)
    assert alone.sum(axis=0).tolist() == [ROWS - 1, ROWS - 1]


def _share_rows(plan: Plan, one: str, other: str) -> int:
    domain = Hashed.of(plan.domain)
    return sum(domain.bucket(one, row) == domain.bucket(other, row) for row in range(ROWS))


# From a store to a site.


def worst() -> tuple[int, Device]:
    """Return how many texts a report supports that supports the most, and a device that sends it on three days."""
    plan = FEW.metrics["color"].plan
    domain, mechanism = Hashed.of(plan.domain), PGR.of(plan.cells.mechanism)
    values = np.array([domain.bucket(domain.named(name), 0) for name in ("red", OTHER)])
    met = hyperplanes_through(*mechanism.geometry, values)
    point = int(met.argmax())
    return int(met[point]), [(0, point), (2, point), (5, point)]


OTHERS: list[Device] = [[(0, 0)], [(1, 100_000)]]


@pytest.fixture(scope="module")
def neighbours(tmp_path_factory: pytest.TempPathFactory) -> Neighbours:
    return Neighbours.of(tmp_path_factory.mktemp("texts"), FEW, OTHERS, worst()[1])


def test_a_device_is_told_by_no_more_than_epsilon(neighbours: Neighbours) -> None:
    assert (neighbours.with_it - neighbours.without).sum() == 3 * (1 + worst()[0])
    assert neighbours.entry.names == ("red", OTHER)
    bound = neighbours.audit(6_000, ALPHA)
    assert 0.3 * neighbours.entry.epsilon <= bound <= neighbours.entry.epsilon


def test_noise_for_one_count_alone_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a report of a text moves several counts, and the noise is scaled as if it moved one."""
    monkeypatch.setattr(shared, "most_named", lambda plan, names: 0)
    found = Neighbours.of(tmp_path, FEW, OTHERS, worst()[1])
    assert found.audit(2_000, ALPHA) > 1.5 * found.entry.epsilon


def test_the_list_is_part_of_what_noise_is_drawn_for(neighbours: Neighbours) -> None:
    """Else the noise of two lists would be the same, and their difference exact."""
    entry, tally = neighbours.entry, neighbours.without.astype("<i8").tobytes()
    seeds = {
        seed_of(each, tally, b"a secret of sixteen bytes")
        for each in (entry, replace(entry, names=entry.names[::-1]), replace(entry, delta=DELTA))
    }
    assert len(seeds) == 3


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("site")
    devices: list[Device] = [[(day, 1_000 * device + day)] for device in range(40) for day in range(3)]
    with week_of(top / "data", REGISTRY, devices) as store:
        found, refused = publish_to(top / "site", store, REGISTRY)
    assert not refused
    assert len(found) == 1
    return top / "site"


def test_a_site_of_texts_is_what_its_documents_make_of_it(site: Path) -> None:
    assert verify(site) == []
    (path,) = site.glob("color/*W*.json")
    document = json.loads(path.read_bytes())
    assert document["names"] == [*ANSWERS, OTHER]
    counts = path.with_suffix("").with_suffix(".counts.csv").read_text().splitlines()
    assert counts[0] == "metric,window,row,text,noisy_count"
    assert len(counts) == 1 + ROWS * (2 + len(ANSWERS))
    page = (site / "color" / "index.html").read_text()
    assert "Looked for are the texts that the registry lists" in page
    path.write_text(json.dumps({**document, "names": [*ANSWERS[::-1], OTHER]}))
    assert verify(site) != []


def test_a_page_of_texts_can_be_read(site: Path, browser: Browser) -> None:
    with a_tab(browser) as tab:
        tab.visit((site / "color" / "index.html").as_uri())
        check_looks(tab, [(1280, "light"), (390, "dark")])


def test_a_site_with_gaussian_noise_says_its_delta(tmp_path: Path) -> None:
    names = tuple(f"name {place}" for place in range(60))
    registry = text_registry(names=names, publish_delta="1e-6", publish_epsilon_year="13.0")
    with week_of(tmp_path / "data", registry, OTHERS) as store:
        ((release,), refused) = publish_to(tmp_path / "site", store, registry)
        assert not refused
        assert release.noise.rho
        assert releases.publish(store, registry) == ([release], [])
    assert verify(tmp_path / "site") == []
    assert Release.from_document(release.published()) == replace(release, charged=None, commitment="")
    assert "epsilon 1 at a delta of 0.000001" in (tmp_path / "site" / "color" / "index.html").read_text()
    assert "but for a chance of 0.000001" in (tmp_path / "site" / "index.html").read_text()


@pytest.mark.parametrize(
    "names", [["a", "a"], [1], ["a"] * 1_024, "ab"], ids=["twice", "no text", "too many", "no list"]
)
def test_a_release_with_other_names_is_refused(neighbours: Neighbours, names: object) -> None:
    document = neighbours.entry.published()
    with pytest.raises(StoreError):
        Release.from_document({**document, "names": names})


def test_a_list_that_changes_after_the_charge_is_not_what_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer = text_registry(WEEKLY, (*ANSWERS, "violet"))
    with week_of(tmp_path, REGISTRY, OTHERS) as store:
        with monkeypatch.context() as patch:
            patch.setattr(releases, "_draw", lambda *_: None)
            releases.publish(store, REGISTRY)
        ((release,), _) = releases.publish(store, longer)
    assert release.names == (*ANSWERS, OTHER)
    assert len(release.counts or ()) == counts_of(release.plan.cells, release.names)
    assert width_of(release.plan, release.names) == release.noise.width
