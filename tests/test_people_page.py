"""The page of people in a browser: with devices that are counted, and without a metric that counts them."""

from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.browsing import Tab, check_state, served
from tests.support.measured import measured
from tests.support.sites import site_of
from tests.support.used_fleets import World, live, people_site


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    fleet = live(World(installs=600, weeks=46), np.random.default_rng(1))
    with people_site(tmp_path_factory.mktemp("people"), fleet, 12) as one, served(one) as url:
        yield url


@pytest.fixture(scope="module")
def uncounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with site_of(measured("theme"), tmp_path_factory.mktemp("nobody")) as one, served(one) as url:
        yield url


def test_the_page_of_people_is_accessible_fits_and_says_how_many_are_used(tab: Tab, counted: str) -> None:
    check_state(tab, f"{counted}/people", "devices were used in the week to 2026-11-18")


def test_the_page_without_such_a_metric_does_too(tab: Tab, uncounted: str) -> None:
    check_state(tab, f"{uncounted}/people", "No metric of this registry counts devices")
