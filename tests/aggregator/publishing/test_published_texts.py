"""Releases of fresh texts: supports of a public list, how far one device moves them, and how often intervals hold."""

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from dither_aggregator.analysis import released
from dither_aggregator.analysis.released import released_counts
from dither_aggregator.counting import Counts, fold_cells, hyperplanes_through
from dither_aggregator.publishing import releases
from dither_aggregator.publishing import site as site_module
from dither_aggregator.publishing.releases import PublishedReading, read
from dither_aggregator.publishing.site import publish_to, verify
from dither_aggregator.store import SQLiteStore, StoreError
from dither_aggregator.store.release_ledger import Release, seed_of
from dither_shared import releases as shared
from dither_shared.domains import OTHER, Hashed
from dither_shared.kinds.precision import precision_of
from dither_shared.mechanisms import PGR, choose
from dither_shared.plan import Plan
from dither_shared.releases import ReleaseNoise, counts_of, most_supported, width_of
from tests.support.released_texts import (
    DEVICES,
    FEW,
    NAMES,
    REGISTRY,
    ROWS,
    reading_of,
    release_of,
    share_held,
    small,
    texts,
    worst,
)
from tests.support.releases import ANSWERS, WEEKLY, Device, Neighbours, drawn, text_registry, week_of
from tests.support.soaking import scaled, thinned

ALPHA = 1e-6
DELTA = Decimal("1e-6")


# How far one device moves the counts.


@pytest.mark.parametrize(("buckets", "epsilon", "number"), [(40, "1", 30), (57, "2", 6)])
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


ROUNDS = 12


@pytest.mark.parametrize(
    ("names", "reports", "delta"),
    thinned([(NAMES[1:], 1, None), (NAMES, 4, DELTA), (NAMES, 1, None), (NAMES, 4, None)], 0, 1),
    ids=["a heavy text is not listed", "Gaussian", "all", "r = 4"][: scaled(2, 4)],
)
def test_published_intervals_of_texts_hold(names: tuple[str, ...], reports: int, delta: Decimal | None) -> None:
    """A share of .94 to .97 holds, give or take 5 sigma of tallies whose texts share their noise: as if half were new.

    One without the heavy text in the list has three tenths of all reports in one bucket of each row.
    """
    held, told = share_held([(seed, reading_of(seed, names, reports=reports, delta=delta)) for seed in range(ROUNDS)])
    assert told == ROUNDS * len(names)
    spread = 5 * np.sqrt(0.05 * 0.95 / (told / 2))
    assert 0.94 - spread <= held / told <= 0.97 + spread


def test_a_heavy_text_beside_the_list_is_found_in_no_row() -> None:
    """Without the test of rows it would: listed texts that nobody has would stand out where they meet it."""
    one, rng = texts(0), np.random.default_rng(5)
    heavy = next(place for place in range(10**6) if one.plan and _meets(one.plan, f"new {place}"))
    names = (f"new {heavy}", *NAMES[1:])  # it has the first text's bucket in the first row, and the first is unlisted
    raw = released_counts(one.plan, names, one.tally)
    law = ReleaseNoise.of(one.plan, 1_000_000, 1, names)
    reading = read(release_of(one.plan, raw + drawn(law, len(raw), rng), names))
    row = reading.rows[0]
    assert row.lower <= 0 <= row.upper
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(released, "FAR", 1e9)
        assert read(reading.release).rows[0].lower > 0.02


def _meets(plan: Plan, name: str) -> bool:
    domain = Hashed.of(plan.domain)
    return domain.bucket(name, 0) == domain.bucket("text 0", 0)


@pytest.mark.parametrize(("reports", "delta"), [(1, None), (9, DELTA)])
def test_a_check_says_how_much_wider_errors_are(reports: int, delta: Decimal | None) -> None:
    """Here a text has as many buckets as a registry gives it, and nobody has it."""
    plan, names = REGISTRY.metrics["color"].plan, (*ANSWERS, OTHER)
    law = ReleaseNoise.of(plan, 1_000_000, reports, names, delta)
    rate = float(PGR.of(plan.cells.mechanism).q)
    counts = ROWS * [DEVICES // ROWS, *[round(rate * DEVICES / ROWS)] * len(names)]
    told = read(release_of(plan, counts, names, reports=reports, delta=delta)).rows[0].std_error
    told /= read(release_of(plan, counts, names, micro=20_000_000)).rows[0].std_error
    assert told > (1.005 if reports == 1 else 1.2)
    assert precision_of(plan.kind).widened(plan.cells, law, DEVICES) == pytest.approx((told, told), rel=0.02)


def test_two_names_of_one_bucket_are_told_apart_by_other_rows() -> None:
    names = next(
        (f"a {one}", f"a {other}")
        for one in range(60)
        for other in range(one)
        if _share_rows(small(), f"a {one}", f"a {other}") == 1
    )
    alone = released._alone(Hashed.of(small().domain), names, ROWS)
    assert alone.sum(axis=0).tolist() == [ROWS - 1, ROWS - 1]


def _share_rows(plan: Plan, one: str, other: str) -> int:
    domain = Hashed.of(plan.domain)
    return sum(domain.bucket(one, row) == domain.bucket(other, row) for row in range(ROWS))


# From a store to a site.


OTHERS: list[Device] = [[(0, 0)], [(1, 100_000)]]


@pytest.fixture(scope="module")
def neighbours(tmp_path_factory: pytest.TempPathFactory) -> Neighbours:
    return Neighbours.of(tmp_path_factory.mktemp("texts"), FEW, OTHERS, worst()[1])


def test_a_device_is_told_by_no_more_than_epsilon(neighbours: Neighbours) -> None:
    assert (neighbours.with_it - neighbours.without).sum() == 3 * (1 + worst()[0])
    assert neighbours.entry.names == ("red", OTHER)
    bound = neighbours.audit(3_000, ALPHA)
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
        for each in (entry, replace(entry, names=entry.names[::-1]), replace(entry, rho=24_355, delta=DELTA))
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
    assert "is counted as a report, and never by name" in page
    path.write_text(json.dumps({**document, "names": [*ANSWERS[::-1], OTHER]}))
    assert verify(site) != []


def test_a_site_with_gaussian_noise_says_its_delta(tmp_path: Path) -> None:
    names = tuple(f"name {place}" for place in range(60))
    registry = text_registry(names=names, publish_delta="1e-6", publish_epsilon_year="13.0")
    with week_of(tmp_path / "data", registry, OTHERS) as store:
        ((release,), refused) = publish_to(tmp_path / "site", store, registry)
        assert not refused
        assert release.noise.rho
        assert releases.publish(store, registry) == ([release], [])
    assert verify(tmp_path / "site") == []
    with pytest.raises(StoreError, match="must not cost more than it says"):
        Release.from_document({**release.published(), "rho": release.rho + 100})
    assert Release.from_document(release.published()) == replace(release, charged=None, commitment="")
    assert "epsilon 1 at a delta of 1e-6" in (tmp_path / "site" / "color" / "index.html").read_text()
    assert "each but for a chance of 1e-6" in (tmp_path / "site" / "index.html").read_text()


@pytest.mark.parametrize(
    "names", [["a", "a"], [1], ["a"] * 1_024, "ab"], ids=["twice", "no text", "too many", "no list"]
)
def test_a_release_with_other_names_is_refused(neighbours: Neighbours, names: object) -> None:
    document = neighbours.entry.published()
    with pytest.raises(StoreError):
        Release.from_document({**document, "names": names})


def test_too_few_reports_tell_nothing() -> None:
    plan = small()
    width = counts_of(plan.cells, NAMES)
    assert read(release_of(plan, [3] * width, NAMES)).too_few
    assert read(release_of(plan, [-3] * width, NAMES)).too_few


@pytest.mark.parametrize("planted", [False, True], ids=["sound", "texts are named by raw counts"])
def test_two_stores_with_the_same_noisy_counts_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: bool
) -> None:
    raw: list[Counts] = []
    noisy = tuple(ROWS * [5_000, 900, 700, 600, 500, 600])

    def seen(counts: Counts, *_: object) -> tuple[int, ...]:
        raw.append(counts)
        return noisy

    def named_by_raw(release: Release) -> PublishedReading:
        reading = read(release)
        return replace(reading, rows=[row for row in reading.rows if row.value != "red" or raw[-1][1] > 2])

    monkeypatch.setattr(SQLiteStore, "signing_secret", lambda self, purpose: b"both stores have it " + purpose)
    monkeypatch.setattr(releases, "noisy", seen)
    if planted:
        monkeypatch.setattr(site_module, "read", named_by_raw)
    sites = []
    for name, devices in (("without", OTHERS), ("with", [*OTHERS, worst()[1]])):
        with week_of(tmp_path / name / "data", REGISTRY, devices) as store:
            publish_to(tmp_path / name / "site", store, REGISTRY)
        top = tmp_path / name / "site"
        sites.append({path.relative_to(top): path.read_bytes() for path in top.rglob("*") if path.is_file()})
    assert (raw[0] != raw[1]).any()
    assert (sites[0] != sites[1]) == planted


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
