"""Nothing that leaves depends on raw counts but through the noisy ones: two stores, the noise held, byte for byte."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from dither_aggregator.counting import Counts
from dither_aggregator.publishing import releases, site
from dither_aggregator.publishing.releases import PublishedReading, read
from dither_aggregator.publishing.site import publish_to, verify
from dither_aggregator.store import SQLiteStore, Store
from dither_aggregator.store.release_ledger import Release
from tests.support.releases import WEEKLY, Device, published, week_of

REGISTRY = published(keys=WEEKLY, reports=3)
COUNTS = {"enough": (900, 500, 300, 40), "too few": (3, -1, 0, 2)}
"""Noisy counts that are published, whatever the raw ones are."""
NINE: list[Device] = [[(day, symbol)] for day, symbol in zip([0, 1, 2] * 3, [0, 0, 0, 1, 1, 2, 0, 1, 3], strict=True)]
ONE_MORE: Device = [(5, 2), (6, 2)]
PAIRS: dict[str, tuple[list[Device], list[Device]]] = {
    "one device more": (NINE, [*NINE, ONE_MORE]),
    "one device at all": ([], [ONE_MORE]),
    "another order": (NINE, [[(6 - day, symbol) for day, symbol in device] for device in reversed(NINE)]),
}


@dataclass
class Held:
    """The noisy counts that publishing is held to, and the raw ones that it saw, for bugs that tell them."""

    counts: tuple[int, ...] = ()
    raw: dict[str, Counts] = field(default_factory=dict)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    kept, read_raw = Held(), releases._raw

    def seen(store: Store, entry: Release) -> Counts:
        kept.raw[entry.metric] = raw = read_raw(store, entry)
        return raw

    monkeypatch.setattr(SQLiteStore, "signing_secret", lambda self, purpose: b"both stores have it " + purpose)
    monkeypatch.setattr(releases, "noisy", lambda *_: kept.counts)
    monkeypatch.setattr(releases, "_raw", seen)
    return kept


def site_of(directory: Path, devices: Sequence[Device]) -> dict[str, bytes]:
    """Return the files of the site of a week, by name."""
    with week_of(directory / "data", REGISTRY, devices) as store:
        _, refused = publish_to(directory / "site", store, REGISTRY)
    assert not refused
    files = sorted(path for path in (directory / "site").rglob("*") if path.is_file())
    return {path.relative_to(directory / "site").as_posix(): path.read_bytes() for path in files}


def both(tmp_path: Path, pair: str) -> list[dict[str, bytes]]:
    return [site_of(tmp_path / str(place), devices) for place, devices in enumerate(PAIRS[pair])]


@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("pair", PAIRS)
def test_two_stores_with_the_same_noisy_counts_give_the_same_bytes(
    tmp_path: Path, held: Held, pair: str, counts: str
) -> None:
    held.counts = COUNTS[counts]
    one, other = both(tmp_path, pair)
    assert "color/2026-W48.counts.csv" in one
    assert one == other
    assert verify(tmp_path / "0" / "site") == []


def leave_n(held: Held, patch: pytest.MonkeyPatch) -> None:
    """Show the exact number of reports."""
    reread(lambda reading, raw: replace(reading, n=int(raw.sum())), held, patch)


def name_by_raw(held: Held, patch: pytest.MonkeyPatch) -> None:
    """Show the value that has the most raw reports first."""
    reread(lambda reading, raw: replace(reading, rows=reading.rows[:: 1 if raw[2] > 1 else -1]), held, patch)


def too_few_by_raw(held: Held, patch: pytest.MonkeyPatch) -> None:
    """Say that reports are too few where fewer than ten came."""
    reread(lambda reading, raw: replace(reading, rows=reading.rows if raw.sum() >= 10 else ()), held, patch)


def reread(
    changed: Callable[[PublishedReading, Counts], PublishedReading], held: Held, patch: pytest.MonkeyPatch
) -> None:
    patch.setattr(site, "read", lambda release: changed(read(release), held.raw[release.metric]))


def raw_id(held: Held, patch: pytest.MonkeyPatch) -> None:
    """Name the raw reading by its digest."""

    def sealed(store: Store, release: Release) -> dict[str, object]:
        return {**release.published(), "seal": hashlib.sha256(held.raw[release.metric].tobytes()).hexdigest()}

    patch.setattr(site, "sealed", sealed)


def file_named(held: Held, patch: pytest.MonkeyPatch) -> None:
    """Name a file by the raw counts."""
    render = site.render

    def more(*given: object) -> dict[str, bytes]:
        files = render(*given)  # type: ignore[arg-type]
        return {**files, f"color/{int(held.raw['color'].sum())}.csv": b""}

    patch.setattr(site, "render", more)


def not_empty_alone(held: Held, patch: pytest.MonkeyPatch) -> None:
    """Publish a metric that has a report alone."""

    def publish(*given: Any) -> tuple[list[Release], list[str]]:
        found, refused = releases.publish(*given)
        return [each for each in found if held.raw[each.metric].sum()], refused

    patch.setattr(site, "publish", publish)


@pytest.mark.parametrize(
    ("planted", "pair"),
    [
        *((leave_n, "one device more"), (name_by_raw, "one device more"), (too_few_by_raw, "one device more")),
        *((raw_id, "one device more"), (file_named, "one device more"), (not_empty_alone, "one device at all")),
    ],
)
def test_what_tells_raw_counts_is_seen(
    tmp_path: Path,
    held: Held,
    monkeypatch: pytest.MonkeyPatch,
    planted: Callable[[Held, pytest.MonkeyPatch], None],
    pair: str,
) -> None:
    held.counts = COUNTS["enough"]
    planted(held, monkeypatch)
    one, other = both(tmp_path, pair)
    assert one != other
