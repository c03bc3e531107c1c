"""Releases of memoized texts: all symbols of all cohorts, decoded by the registry's list from noisy counts alone."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from dither_aggregator.analysis.released import released_counts
from dither_aggregator.counting.folding import fold_cells
from dither_aggregator.publishing import releases
from dither_aggregator.publishing.releases import PublishedReading, read
from dither_aggregator.publishing.site import publish_to, verify
from dither_aggregator.store import StoreError
from dither_aggregator.store.release_ledger import Release
from dither_shared.domains import OTHER
from dither_shared.errors import RegistryError
from dither_shared.frozen import replaced
from dither_shared.registry import Registry
from dither_shared.releases import ReleaseNoise, counts_of, widened
from tests.support.hashed_memos import DEVICES, LISTED, TEXTS, draw_memos, metric, truth
from tests.support.registries import registry_text
from tests.support.releases import WEEKLY, Device, Neighbours, drawn, week_of
from tests.support.soaking import thinned

ALPHA = 1e-6
DAYS, ROUNDS = 7, 24
NAMES = (*LISTED, OTHER)


def memo_registry(
    epsilon: str = "2.0", permanent: str = "6", names: str = '["red", "green"]', more: str = ""
) -> Registry:
    color = f"candidates = {names}\ncandidates_expected = 20\n{more}\n{WEEKLY}"
    text = registry_text(kind="text", epsilon=epsilon, epsilon_permanent=permanent, color=color, device_epsilon="99")
    return Registry.parse(text.replace("[registry]", "[registry]\npublish_epsilon_year = 53.0"))


def test_all_reports_of_one_device_move_one_count_by_what_its_noise_is_scaled_to() -> None:
    """Every report of every cohort, on every day: a memo is sent again and again, and may come out the same."""
    plan = memo_registry().metrics["color"].plan
    noise, shape = ReleaseNoise.of(plan, 1_000_000, DAYS, ("red", OTHER)), plan.cells.mechanism.shape
    for cell in range(plan.cells.count):
        for report in range(shape.size):
            tally = fold_cells(plan.cells, {cell: report.to_bytes(shape.width, "little") * DAYS})
            moved = released_counts(plan, ("red", OTHER), tally)
            assert len(moved) == counts_of(plan.cells, ("red", OTHER)) == plan.cells.count * shape.size
            assert moved.sum() == moved.max() == noise.scale == DAYS


def reading_of(seed: int, micro: int = 1_000_000, names: tuple[str, ...] = NAMES) -> PublishedReading:
    domain, tally = draw_memos(seed, DAYS)
    plan, rng = replaced(metric().plan, domain=domain), np.random.default_rng(1_000 + seed)
    entry = Release("color", "What?", plan, "week", date(2026, 11, 16), micro, DAYS, DAYS, names=names)
    noise = ReleaseNoise.of(plan, micro, DAYS, names)
    raw = released_counts(plan, names, tally.counts)
    return read(replace(entry, counts=tuple((raw + drawn(noise, len(raw), rng)).tolist())))


@pytest.mark.parametrize("micro", thinned([50_000, 1_000_000], 0))
def test_published_intervals_of_memos_hold(micro: int) -> None:
    """744 intervals of 24 weeks in which every device repeats its memo, and half of the texts are not in the list.

    By the binomial law, as if half of them were new, .88 would be seen once in 3 million runs.
    """
    readings = [reading_of(seed, micro) for seed in range(ROUNDS)]
    held = [
        row.own_lower <= share <= row.own_upper
        for reading in readings
        for row, share in zip(reading.rows, truth(), strict=True)
    ]
    assert len(held) == ROUNDS * len(NAMES)
    assert np.mean(held) > 0.88


def test_a_check_says_how_much_wider_errors_are_at_most() -> None:
    """Releases of devices that repeat a memo on seven days, with noise and nearly without, of the same raw counts.

    With all texts in the list the factor is from 0.8 of what is said to all of it: a mean of four fixed draws, as the
    residuals of one tell its errors roughly. Texts that are not in the list make it less.
    """
    factors = dict[tuple[str, ...], list[float]]()
    for names in (NAMES, (*(f"text {place}" for place in range(TEXTS)), OTHER)):
        for seed in range(4):
            wide, usual = (
                np.array([row.std_error for row in reading_of(seed, micro, names=names).rows])
                for micro in (50_000, 20_000_000)
            )
            factors.setdefault(names, []).append(float(np.median(wide / usual)))
    half, every = (float(np.mean(each)) for each in factors.values())
    noise = ReleaseNoise.of(metric().plan, 50_000, DAYS, NAMES)
    least, most = widened(metric(), noise, DEVICES)
    assert least == most
    assert 0.8 * most <= every <= most
    assert 1.1 <= half <= every


OTHERS: list[Device] = [[(0, 0)], [(1, 9)]]
DEVICE: Device = [(day, 4) for day in range(DAYS)]


def test_a_device_that_repeats_its_memo_each_day_is_covered(tmp_path: Path) -> None:
    found = Neighbours.of(tmp_path, memo_registry(), OTHERS, DEVICE)
    moved = found.with_it - found.without
    assert moved.sum() == moved.max() == found.entry.reports == DAYS
    bound = found.audit(400, ALPHA)
    assert 0 < bound <= found.entry.epsilon


def test_a_site_of_memos_is_what_its_documents_make_of_it(tmp_path: Path) -> None:
    asked = memo_registry()
    with week_of(tmp_path / "data", asked, OTHERS) as store:
        ((release,), refused) = publish_to(tmp_path / "site", store, asked)
        assert not refused
        assert releases.publish(store, asked) == ([release], [])
    assert verify(tmp_path / "site") == []
    (path,) = (tmp_path / "site").glob("color/*.counts.csv")
    lines = path.read_text().splitlines()
    assert lines[0] == "metric,window,symbol,noisy_count"
    assert len(lines) == 1 + len(release.counts or ())
    assert "Looked for are the texts that the registry lists" in (tmp_path / "site/color/index.html").read_text()
    with pytest.raises(StoreError):
        Release.from_document({**release.published(), "counts": [1, 2]})


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"names": "[]"}, "candidates"),
        ({"more": 'mechanism = "rappor"'}, "many bits, and all of them could be one device's"),
    ],
    ids=["no list", "bits"],
)
def test_memos_that_are_not_published_are_refused_in_words(asked: dict[str, str], why: str) -> None:
    with pytest.raises(RegistryError, match=why):
        memo_registry(**asked)
