"""Releases are charged before they are drawn, drawn once, and the same in a store that was restored."""

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dither_aggregator.counting import Counts
from dither_aggregator.publishing import releases
from dither_aggregator.publishing.releases import publish, sealed
from dither_aggregator.store import Store, StoreError
from dither_aggregator.store.release_ledger import NotPublished, Release, charged_with, check_year
from dither_aggregator.store.restoring import restore
from dither_shared.registry import Registry, utc_today
from dither_shared.releases import ReleaseNoise, last_window, rho_of
from tests.aggregator.store.conftest import place_of
from tests.support.registries import registry_text
from tests.support.stores import Place, append, body_of, fold_all, seal_all

PUBLISHED = 'publish = "week"\npublish_epsilon = 0.5\nwhy = "To draw the right one first."'


def published(head: str = "publish_epsilon_year = 26.5", color: str = PUBLISHED, **more: Any) -> Registry:
    text = registry_text(color=color, expires=utc_today() + timedelta(days=300), **more)
    return Registry.parse(text.replace("[registry]\n", f"[registry]\n{head}\n"))


@pytest.fixture
def asked() -> Registry:
    return published()


def report(place: Place, store: Store, asked: Registry, number: int = 30) -> None:
    """Let devices report on the first day, and weeks pass."""
    symbols = [index % 4 for index in range(number)]
    append(store, body_of(asked, {"color": symbols, "dark": [1] * number}))
    fold_all(store)
    for _ in range(2):
        place.travel(7)
        seal_all(store)


@pytest.fixture
def lived(place: Place, store: Store, asked: Registry) -> Store:
    report(place, store, asked)
    return store


@pytest.fixture
def other(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    with closing(place_of("sqlite", tmp_path / "other", request, 1)) as made:
        yield made


def raw(store: Store, release: Release) -> Counts:
    return releases._raw(store, release)


def test_a_release_is_drawn_once(lived: Store, place: Place, asked: Registry) -> None:
    (release,), refused = publish(lived, asked)
    assert not refused
    assert release.last < lived.today()
    assert len(release.counts or ()) == 4
    assert publish(lived, asked) == ([release], [])
    assert publish(place.open(), asked) == ([release], [])
    (charge,) = [entry for entry in lived.journal() if entry.action == "release charge"]
    assert charge.what == f"{release.document_id}, epsilon 0.5"


def test_it_is_charged_before_it_is_drawn(lived: Store, asked: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a power cut")

    monkeypatch.setattr(releases, "noisy", fail)
    with pytest.raises(RuntimeError):
        publish(lived, asked)
    (charged,) = lived.documents(Release)
    assert charged.counts is None
    assert charged.commitment
    monkeypatch.undo()
    ((drawn,), _) = publish(lived, asked)
    assert replace(drawn, counts=None) == charged


def test_what_was_charged_for_other_counts_is_not_drawn(
    lived: Store, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "_draw", lambda *_: None)
    publish(lived, asked)
    monkeypatch.undo()
    true = releases._raw
    monkeypatch.setattr(releases, "_raw", lambda *given: true(*given) + np.eye(4, dtype=np.int64)[0])
    found, (why,) = publish(lived, asked)
    assert not found
    assert "was charged for other counts" in why


def test_a_restored_store_publishes_the_same_bytes(lived: Store, other: Place, asked: Registry) -> None:
    """The backup was made before the release: the charge is not in it, but the noise is that of the same counts."""
    before = list(lived.dump())
    ((release,), _) = publish(lived, asked)
    store = other.begin()
    restore(store, before)
    store.refresh()
    other.travel(14)
    assert store.documents(Release) == []
    ((again,), _) = publish(store, asked)
    assert sealed(store, again) == sealed(lived, release)


def test_noise_is_never_that_of_another_tally(lived: Store, asked: Registry) -> None:
    """One noise for two tallies would tell what differs between them: planted, it is seen."""
    ((release,), _) = publish(lived, asked)
    counts = raw(lived, release)
    seeds = [releases._seed(lived, release, counts), releases._seed(lived, release, counts + 1)]
    noises = [np.array(releases.noisy(counts, release, seed)) - counts for seed in seeds]
    assert (np.array(release.counts) - counts).tolist() == noises[0].tolist()
    assert noises[0].tolist() != noises[1].tolist()
    for changed in (replace(release, micro=400_000), replace(release, reports=4)):
        assert releases._seed(lived, changed, counts) not in seeds


def test_a_site_is_taken_over_before_anything_is_drawn(lived: Store, other: Place, asked: Registry) -> None:
    """The backup has neither the release nor all of its reports, and the release stays what it was."""
    before = list(lived.dump())
    ((release,), _) = publish(lived, asked)
    site = [sealed(lived, release)]
    store = other.begin()
    restore(store, before)
    store.refresh()
    other.travel(14)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(releases, "_raw", lambda *_: np.zeros(4, dtype=np.int64))
        ((kept,), refused) = publish(store, asked, site)
        assert not refused
        assert kept.published() == release.published()
        with pytest.raises(StoreError, match="was not published by this store, or was changed"):
            publish(store, asked, [{**site[0], "counts": [1, 2, 3, 4]}])
    other_counts = replace(release, counts=(1, 2, 3, 4))
    with pytest.raises(StoreError, match="with other counts: a site has it"):
        publish(store, asked, [sealed(store, other_counts)])


def test_releases_come_with_a_backup_and_pass_fsck(lived: Store, other: Place, asked: Registry) -> None:
    ((release,), _) = publish(lived, asked)
    store = other.begin()
    restore(store, lived.dump())
    assert store.documents(Release) == [release]


def entry(release: Release, last: date, micro: int, window: str = "week") -> Release:
    first = last - timedelta(days=6)
    return replace(release, first=first, micro=micro, window=window, counts=None)


def test_a_year_has_no_more_than_its_epsilon(lived: Store, asked: Registry) -> None:
    ((release,), _) = publish(lived, asked)
    sundays = [release.last + timedelta(days=7 * after) for after in range(-120, 120)]
    kept: list[Release] = []
    for sunday in sundays[::3] + sundays[1::3] + sundays[2::3]:
        one = entry(release, sunday, 500_000)
        try:
            check_year(one, kept, 5_000_000)
        except NotPublished:
            continue
        kept.append(one)
    ends = sorted(each.last for each in kept)
    within = [sum(end <= each < end + timedelta(days=366) for each in ends) for end in ends]
    assert max(within) == 10
    assert charged_with(kept[0], kept) == 5_000_000


def test_the_ledger_refuses_what_a_registry_no_longer_does(lived: Store, place: Place, asked: Registry) -> None:
    """Weekly first, then monthly of the same metric, which is asked all the time: both are charged."""
    publish(lived, asked)
    for _ in range(28):  # until a quarter is over in which the plan was loaded from the begin
        place.travel(7)
        seal_all(lived)
    monthly = published("publish_epsilon_year = 0.9", PUBLISHED.replace("week", "quarter").replace("0.5", "0.1"))
    found, refused = publish(lived, monthly)
    assert not refused
    assert charged_with(found[0], found) == 600_000  # the quarter that is over ended within a year of the week
    tight = published("publish_epsilon_year = 0.55", PUBLISHED.replace("week", "month").replace("0.5", "0.04"))
    found, refused = publish(lived, tight)
    assert len(refused) == 1
    assert "releases of 366 days would cost a device" in refused[0]


def test_a_year_at_a_delta_has_more_releases_of_the_same_epsilon(lived: Store, asked: Registry) -> None:
    """Planted beside it: epsilons that are added up as without a delta stop far earlier."""
    ((release,), _) = publish(lived, asked)
    delta, kept = Decimal("1e-6"), list[Release]()
    for after in range(60):
        one = entry(release, release.last + timedelta(days=7 * after), 100_000)
        try:
            check_year(one, kept, 3_000_000, delta)
        except NotPublished:
            break
        kept.append(one)
    assert 30 < len(kept) < 53
    assert charged_with(kept[0], kept, delta) <= 3_000_000 < charged_with(kept[0], kept)
    gaussian = ReleaseNoise(1_000_000, 20, 3, rho_of(1_000_000, delta))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Release, "noise", property(lambda self: gaussian))
        with pytest.raises(NotPublished, match="so the registry must have publish_delta"):
            charged_with(kept[0], kept)
        assert charged_with(kept[0], kept[:13], delta) < 5_000_000


def test_more_reports_than_the_registry_says_now_are_allowed_for(lived: Store, asked: Registry) -> None:
    """Apps in the field have the earlier registry, of the same plan: their devices have that many reports."""
    text = registry_text(color=PUBLISHED, reports=1, expires=utc_today() + timedelta(days=300))
    fewer = Registry.parse(text.replace("[registry]\n", "[registry]\npublish_epsilon_year = 26.5\n"))
    assert fewer.metrics["color"].plan.digest == asked.metrics["color"].plan.digest
    lived.load(fewer)
    stored = lived.stored(fewer.metrics["color"].plan)
    assert releases.device_reports(stored, 7) == 3
    assert releases.device_reports(stored, 2) == 2
    ((release,), _) = publish(lived, fewer)
    assert release.reports == 3


def test_a_registry_that_allows_more_reports_than_any_that_was_loaded_publishes_nothing(
    lived: Store, asked: Registry
) -> None:
    """Reports are no part of a plan, so the store has the plan: but not the r of apps that ship this registry."""
    more = published(reports=7, device_epsilon="100")
    assert more.metrics["color"].plan == asked.metrics["color"].plan
    found, (why,) = publish(lived, more)
    assert found == []
    assert "more reports than the store knows of; `dither metrics load`" in why
    lived.load(more)
    ((release,), _) = publish(lived, more)
    assert release.reports == 7
    lived.load(asked)
    assert publish(lived, more) == ([release], [])  # which was loaded once: apps in the field may have it


def test_a_registry_that_is_no_longer_loaded_takes_no_window(lived: Store, asked: Registry) -> None:
    lived.load(published(rev=2))
    found, (why,) = publish(lived, asked)
    assert found == []
    assert "rev 1 is not what the store asks now" in why


def test_a_window_of_another_rev_is_said_and_stays_as_it_is(lived: Store, asked: Registry) -> None:
    plan, first = published(rev=2).metrics["color"].plan, last_window("week", lived.sealed())[0]
    lived.take_over_release(Release("color", "Which?", plan, "week", first, 500_000, 3, 1, counts=(1, 2, 3, 4)))
    ((release,), (why,)) = publish(lived, asked)
    assert release.plan == plan
    assert "is not published of rev 1: that window is rev 2's" in why


def test_a_rev_that_is_retired_and_taken_back_begins_anew(lived: Store, place: Place, asked: Registry) -> None:
    """Its reports were refused in between: no window is published that lacks those of some of its days."""
    ((release,), _) = publish(lived, asked)
    lived.retire("color", 1)
    place.travel(7)
    seal_all(lived)
    assert publish(lived, asked) == ([release], [])
    lived.retire("color", 1, retired=False)
    back = lived.clock_day()
    found = [release]
    for _ in range(21):
        place.travel(1)
        seal_all(lived)
        found, _ = publish(lived, asked)
    assert len(found) > 1
    assert all(each.first >= back for each in found if each != release)


def test_noise_of_another_seed_than_was_charged_is_never_drawn(
    lived: Store, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "seed_of", lambda *_: os.urandom(32))
    found, (why,) = publish(lived, asked)
    assert not found
    assert "its noise is not drawn" in why
