"""Releases as a registry has them: windows of the calendar, a device's year, and what cannot be published."""

from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import product
from math import exp
from pathlib import Path

import numpy as np
import pytest

from dither_shared.accounting.composition import of_zcdp, tail_of_zcdp
from dither_shared.compiled import to_document
from dither_shared.errors import RegistryError
from dither_shared.kinds.precision import precision_of
from dither_shared.registry import Registry
from dither_shared.releases import (
    IN_A_YEAR,
    YEAR_DAYS,
    Loss,
    ReleaseNoise,
    last_window,
    losses_within,
    micro_year,
    name_of,
    release_lines,
    reports_in,
    rho_of,
    window_of,
)
from tests.support.aggregators import dither
from tests.support.registries import registry_text
from tests.support.releases import text_registry

YEAR = "publish_epsilon_year = 13.0\n"
PUBLISHED = 'publish = "month"\npublish_epsilon = 1.0\nwhy = "To draw the right one first."'


def asked(color: str = PUBLISHED, head: str = YEAR, **changes: object) -> Registry:
    text = registry_text(color=color, **changes)  # type: ignore[arg-type]
    return Registry.parse(text.replace("[registry]\n", f"[registry]\n{head}"))


@pytest.mark.parametrize("window", IN_A_YEAR)
def test_windows_follow_each_other_and_a_year_holds_the_ends_of_as_many_as_are_said(window: str) -> None:
    first, ends, names = date(2023, 1, 1), set(), set()
    for day in (first + timedelta(days=after) for after in range(6 * 366)):
        begin, end = window_of(window, day)
        assert begin <= day <= end
        assert window_of(window, end + timedelta(days=1))[0] == end + timedelta(days=1)
        ends.add(end)
        names.add(name_of(window, begin))
    assert len(names) == len(ends)
    within = [sum(end <= each < end + timedelta(days=YEAR_DAYS) for each in ends) for end in ends]
    assert max(within) == IN_A_YEAR[window]


@pytest.mark.parametrize(
    ("window", "closed", "found"),
    [
        ("month", date(2026, 11, 29), (date(2026, 10, 1), date(2026, 10, 31))),
        ("month", date(2026, 11, 30), (date(2026, 11, 1), date(2026, 11, 30))),
        ("quarter", date(2027, 1, 1), (date(2026, 10, 1), date(2026, 12, 31))),
        ("week", date(2026, 11, 28), (date(2026, 11, 16), date(2026, 11, 22))),
    ],
)
def test_the_last_window_is_over(window: str, closed: date, found: tuple[date, date]) -> None:
    assert last_window(window, closed) == found


def test_a_device_has_a_report_a_day_and_as_many_as_in_its_life() -> None:
    assert reports_in(31, memoized=False, reports=3) == 3
    assert reports_in(7, memoized=False, reports=300) == 7
    assert reports_in(31, memoized=True, reports=3) == 31


def test_what_is_published_is_no_part_of_a_plan_nor_of_what_a_device_is_given() -> None:
    with_it, without = asked(), asked("", "")
    assert with_it.metrics["color"].plan.digest == without.metrics["color"].plan.digest
    assert to_document(with_it, []) == to_document(without, [])
    assert list(with_it.published) == ["color"]


def test_a_check_says_what_a_year_costs() -> None:
    noise, year = release_lines(asked())
    assert "at most 3 reports: with 20,000 reports standard errors are 1.00 times as wide" in noise
    assert "cost at most 13 of publish_epsilon_year 13.0 (color 13 x 1.0)" in year


@pytest.mark.parametrize(
    ("color", "head", "why"),
    [
        (PUBLISHED, "", "publish_epsilon_year is missing"),
        (PUBLISHED, "publish_epsilon_year = 12.0\n", "a year of releases costs a device 13, more than"),
        ("", YEAR, "publish_epsilon_year is for metrics with publish"),
        ('why = "Because."', "", "is for a metric whose totals are published"),
        (PUBLISHED.replace('why = "To draw the right one first."', ""), YEAR, "why"),
        (PUBLISHED.replace("month", "day"), YEAR, '"week" or "month" or "quarter"'),
    ],
)
def test_a_registry_is_refused_in_words(color: str, head: str, why: str) -> None:
    with pytest.raises(RegistryError, match=why):
        asked(color, head)


@pytest.mark.parametrize(
    ("kind", "more", "why"),
    [
        ("choices", 'ticks_max = 3\nmechanism = "oue"', "many bits, and all of them could be one device's"),
        ("text", "", "needs candidates: the totals of a text are those of a list that the registry names"),
    ],
)
def test_what_cannot_be_published_is_refused_in_words(kind: str, more: str, why: str) -> None:
    color = f"{more}\n{PUBLISHED}"
    text = registry_text(color=color, kind=kind).replace("[registry]\n", f"[registry]\n{YEAR}")
    if kind == "text":
        text = "\n".join(line for line in text.splitlines() if not line.startswith("values"))
    with pytest.raises(RegistryError, match=why):
        Registry.parse(text)


def test_a_public_site_needs_the_issue_behind_each_question(tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    head = registry_text(color=PUBLISHED).replace("[registry]\n", f"[registry]\n{YEAR}")
    path.write_text(head)
    assert dither("metrics", "check", path).returncode == 0
    refused = dither("metrics", "check", path, "--public")
    assert refused.returncode == 2
    assert "metric.color: issue is missing" in refused.stderr
    assert "dark" not in refused.stderr  # which is not published
    path.write_text(head.replace(PUBLISHED, f'{PUBLISHED}\nissue = "https://example.org/issues/12"'))
    assert dither("metrics", "check", path, "--public").returncode == 0
    path.write_text(registry_text())
    assert "no metric says publish" in dither("metrics", "check", path, "--public").stderr


@pytest.mark.parametrize("issue", ["javascript:alert(1)", "12", "https://example.org/a b", "ftp://example.org"])
def test_an_issue_is_an_address_of_the_web(issue: str) -> None:
    with pytest.raises(RegistryError, match="issue must be the https:// address"):
        asked(f'{PUBLISHED}\nissue = "{issue}"')
    with pytest.raises(RegistryError, match="is for a metric whose totals are published"):
        asked('issue = "https://example.org/issues/12"', "")


# With a delta.

DELTA = Decimal("1e-6")
LONG = tuple(f"name {place}" for place in range(60))
"""A list with which one report supports so many texts that Gaussian noise is smaller."""


@pytest.mark.parametrize("micro", [100_000, 500_000, 1_000_000, 4_000_000, 20_000_000])
def test_rho_is_the_largest_of_which_epsilon_follows(micro: int) -> None:
    rho = rho_of(micro, DELTA)
    assert of_zcdp(Fraction(rho, 1_000_000), DELTA) <= micro < of_zcdp(Fraction(rho + 1, 1_000_000), DELTA)


@pytest.mark.parametrize(("micro", "reports"), [(500_000, 1), (1_000_000, 3), (2_000_000, 9), (4_000_000, 1)])
def test_gaussian_noise_is_private_as_its_release_says(micro: int, reports: int) -> None:
    """The exact delta of a count that r reports move, of the law on all integers, is not above what is declared."""
    noise = ReleaseNoise(micro, 1, reports, rho_of(micro, DELTA))
    assert noise.gaussian is not None
    variance = float(noise.gaussian)
    reach = range(-int(12 * variance**0.5) - reports, int(12 * variance**0.5) + reports + 1)
    weights = {k: exp(-k * k / (2 * variance)) for k in reach}
    whole, most = sum(weights.values()), exp(micro / 1e6)
    exact = sum(max(0.0, weight - most * weights.get(k - reports, 0.0)) for k, weight in weights.items()) / whole
    assert exact <= float(DELTA)
    planted = {k: exp(-k * k / variance) for k in reach}  # half of the variance
    spoiled = sum(max(0.0, each - most * planted.get(k - reports, 0.0)) for k, each in planted.items())
    assert spoiled / sum(planted.values()) > float(DELTA)


def test_the_better_law_is_taken() -> None:
    few, many = (text_registry(names=names) for names in (("a",), LONG))
    for asked, gaussian in ((few, False), (many, True)):
        metric = asked.metrics["color"]
        names = precision_of(metric.kind).released_names(metric.asked)
        without, with_it = (ReleaseNoise.of(metric.plan, 1_000_000, 3, names, delta) for delta in (None, DELTA))
        assert not without.rho
        assert bool(with_it.rho) == gaussian
        assert with_it.variance < without.variance if gaussian else with_it == without


def test_losses_of_a_year_add_up_by_the_better_rule() -> None:
    laplace, gaussian = ReleaseNoise(100_000, 1, 1), ReleaseNoise(1_000_000, 20, 1, rho_of(1_000_000, DELTA))
    assert Loss.of(laplace, 53).at(None) == 5_300_000
    many = Loss.of(laplace, 53)
    assert many.at(DELTA) == of_zcdp(Fraction(53, 200), DELTA) < 5_300_000
    assert Loss.of(laplace, 5).at(DELTA) == 500_000
    year = Loss.of(gaussian, 13)
    assert year.at(DELTA) == of_zcdp(Fraction(13 * gaussian.rho, 1_000_000), DELTA) < 5_000_000
    both = year + Loss.of(laplace)
    assert year.at(DELTA) < both.at(DELTA) <= year.at(DELTA) + 100_000
    with pytest.raises(ValueError, match="no epsilon without a delta"):
        both.at(None)


@pytest.mark.parametrize("times", [1, 5])
@pytest.mark.parametrize("micro", [200_000, 1_000_000])
def test_a_loss_exceeds_what_is_said_of_it_with_a_chance_of_delta_at_most(micro: int, times: int) -> None:
    """Exactly, of the law on all integers: of a device, and of one in place of another that move a count apart.

    The epsilon of which (epsilon, delta) follows is exceeded more often, so it must not be told as a chance.
    """
    reports, noise = 2, ReleaseNoise(micro, 1, 2, rho_of(micro, DELTA))
    assert noise.gaussian is not None
    variance = float(noise.gaussian)
    reach = np.arange(-int(12 * variance**0.5), int(12 * variance**0.5) + 1)
    one = np.exp(-(reach**2) / (2 * variance))
    law = np.array([1.0])
    for _ in range(times):
        law = np.convolve(law, one / one.sum())
    sums = np.arange(len(law)) - len(law) // 2
    year = Loss.of(noise, times).at(DELTA)

    def above(loss: int, moved: int) -> float:
        return float(law[(2 * moved * sums + times * moved**2) / (2 * variance) > loss / 1e6].sum())

    taking_part, answers = losses_within(year, DELTA)
    assert above(taking_part, reports) <= float(DELTA) / 2
    assert above(answers, 2 * reports) <= float(DELTA) / 2
    assert above(year, reports) > float(DELTA)
    assert above(2 * year, 2 * reports) > float(DELTA)


def test_no_year_tells_more_than_is_said_of_all_of_its_epsilon() -> None:
    for epsilon, many, few in product((10_000, 100_000, 1_000_000), (0, 1, 5, 53), (0, 1, 13)):
        for rho in (1, 300, 24_000):
            year = Loss.of(ReleaseNoise(epsilon, 1, 1), many) + Loss(0, few * rho)
            own, squares = Fraction(year.rho, 10**6), Fraction(year.squares, 2 * 10**12)
            told = losses_within(year.at(DELTA), DELTA)
            for times, most in zip((1, 2), told, strict=True):
                square, half = times**2, DELTA / 2
                alone = times * year.micro + tail_of_zcdp(square * own, half)
                assert min(alone, tail_of_zcdp(square * (own + squares), half)) <= most
    assert losses_within(700_000, None) == (700_000, 1_400_000)


def test_a_check_says_what_a_year_costs_at_a_delta() -> None:
    asked = text_registry(names=LONG, publish_delta="1e-6", publish_epsilon_year="13.0")
    noise, year = release_lines(asked)
    assert "with epsilon 1.0 (Gaussian noise)" in noise
    assert micro_year(asked) < 10_000_000
    assert "color 53 x 1.0, together at delta 1e-6" in year
    with pytest.raises(RegistryError, match="a year of releases costs a device 53, more than"):
        text_registry(names=LONG, publish_epsilon_year="13.0")
    with pytest.raises(RegistryError, match=r"costs a device 53 at delta 1e-6, more than .* may cost more a year than"):
        text_registry(names=("a",), publish_delta="1e-6", publish_epsilon_year="13.0")


def test_a_check_says_what_a_year_would_cost_by_the_other_law() -> None:
    """Noise is chosen by its variance: a list of one text has Laplace noise, though a year of it costs more."""
    asked = text_registry(names=("a",), publish_delta="1e-6", publish_epsilon_year="53.0")
    noise, note, _ = release_lines(asked)
    plan = asked.metrics["color"].plan
    laplace, gaussian = ReleaseNoise.laws(plan, 1_000_000, 3, ("a", "other"), DELTA)
    assert "(Gaussian noise)" not in noise
    assert laplace.variance < gaussian.variance
    costs = [Loss.of(law, 53).at(DELTA) / 1e6 for law in (laplace, gaussian)]
    assert f"color alone cost {costs[0]:.3g} with Laplace noise" in note
    assert f"with Gaussian noise they would cost {costs[1]:.3g}, and" in note
    wider, _ = precision_of(plan.kind).widened(plan.cells, gaussian, 20_000)
    assert f"standard errors be {wider:.2f} times as wide" in note


@pytest.mark.parametrize(
    ("color", "head", "why"),
    [
        (PUBLISHED, f"{YEAR}publish_delta = 0.1\n", "publish_delta must be from 1e-12 to 1e-5, got 0.1"),
        (PUBLISHED, f"{YEAR}publish_delta = 0\n", "publish_delta must be from"),
        ("", "publish_delta = 1e-6\n", "publish_delta is for metrics with publish"),
    ],
)
def test_a_delta_is_refused_in_words(color: str, head: str, why: str) -> None:
    with pytest.raises(RegistryError, match=why):
        asked(color, head)
