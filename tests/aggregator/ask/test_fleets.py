"""The smallest fleet that tells something: it does, and three quarters of it do not."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from dither_aggregator.ask import answering, fleets
from dither_aggregator.ask.answering import Asking
from dither_aggregator.ask.language import BadQuestion, Query, parse
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.domains import Columns
from dither_shared.domains.number_ranges import NumberDomain
from dither_shared.kinds.precision import MEANS_MIN, NUMBERS_MIN
from dither_shared.registry import Registry
from tests.aggregator.ask.test_analyses import METRICS
from tests.aggregator.ask.test_asking import PAGE
from tests.aggregator.ask.test_questions_page import KINDS
from tests.support.aggregators import sqlite_store
from tests.support.drawn_numbers import draw_numbers, places_of
from tests.support.drawn_tables import draw_table, shape_of
from tests.support.laws import pure
from tests.support.registries import metrics_text
from tests.support.soaking import scaled
from tests.support.tallies import draw_tally


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    registry = Registry.parse(metrics_text(METRICS, device_epsilon=400))
    with sqlite_store(registry, tmp_path_factory.mktemp("store")) as store:
        yield Asking(store)


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    """A metric of each kind, and those of the page."""
    with sqlite_store(
        Registry.parse(metrics_text(KINDS, device_epsilon=400)), tmp_path_factory.mktemp("forms")
    ) as store:
        yield Asking(store)


@pytest.mark.parametrize(
    "text",
    [
        'share(browser in "Chrome *")',
        'share(browser in "Chrome *") / share(browser in "Firefox *")',
        'share(crashed = "yes" | version = "157")',
        "top(browser, 3)",
        'regress(crashed on memory = "8 GB")',
        "logistic(up on lang)",
    ],
)
def test_the_smallest_fleet_tells_and_less_does_not(asking: Asking, text: str) -> None:
    question = parse(text)
    reports = fleets.smallest(asking, question, 10)
    assert reports
    widths = []
    for n in (reports, reports * 3 // 4):
        supposed = replace(asking, suppose=partial(fleets.supposed_tally, n))
        told = list(supposed.answers_in(question, asking.windows(question)[0], 10))
        widths.append(max(2.0 if row.lower is None else (row.upper or 0) - row.lower for row in told))
    assert widths[1] >= 1 or widths[1] > widths[0] > 1  # a ratio may be told with an interval of any width
    assert widths[0] < 1 or "/" in text


@pytest.mark.parametrize("text", [line.strip() for line in PAGE.read_text().splitlines() if line.startswith("    ")])
def test_every_form_of_the_page_says_its_smallest_fleet(forms: Asking, text: str) -> None:
    said = fleets.told(forms, parse(text))
    assert re.match(
        r"It (would tell something from about|tells nothing of fewer than|tells a bound from about) [\d,]+ reports",
        said,
    )


def test_a_text_needs_an_interval_that_leaves_something_out(forms: Asking) -> None:
    """Any five reports were said to tell a text: its reading has an interval, which was not asked for."""
    question = parse('share(typed = "one") last 1 days')
    reports = fleets.smallest(forms, question)
    assert reports
    widths = []
    for n in (reports * 3 // 4, reports):
        supposed = replace(forms, suppose=partial(fleets.supposed_tally, n))
        (row,) = supposed.answers_in(question, forms.windows(question)[0], None)
        widths.append((row.upper or 0.0) - (row.lower or 0.0))
    assert widths[1] < 1 < widths[0]


def test_what_cannot_be_asked_has_no_fleet(forms: Asking) -> None:
    with pytest.raises(BadQuestion, match="at character 14: dark has no value"):
        fleets.told(forms, parse('share(dark = "no way")'))


@pytest.mark.parametrize(
    ("text", "reports"),
    [
        ("mean(load_time) last 1 days", NUMBERS_MIN),
        ("mean(age)", MEANS_MIN),  # fresh reports: as many as `dither metrics check` says, whatever the window
        ("1 / mean(age) last 28 days", MEANS_MIN),
        ("mean(age) / mean(load_time)", NUMBERS_MIN),
    ],
)
def test_a_number_needs_as_many_as_its_page(forms: Asking, text: str, reports: int) -> None:
    assert fleets.smallest(forms, parse(text)) == pytest.approx(reports, rel=fleets.FINE - 1)


def test_what_tells_nothing_says_how_many_devices_would(asking: Asking, tmp_path: Path) -> None:
    question = parse('share(browser = "Chrome 100") last 7 days')
    answers = list(asking.answer(question))
    said = fleets.needed(asking, [(question, answers)])[question.text]
    reports, devices = fleets.of_question(asking, question) or (0, 0)
    assert (
        said
        == f"It would tell something from about {reports:,} reports in a window on, which {devices:,} devices send, "
        "if all answers were equally frequent."
    )
    assert reports < devices < 10 * reports  # of 365 days a device answers on 30


def test_the_command_says_the_fleet_and_prints_what_was_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dither.cli import main

    with sqlite_store(Registry.parse(metrics_text(METRICS, device_epsilon=400)), tmp_path):
        pass
    (tmp_path / "questions").write_text('share(crashed = "yes" | version in "15*")\n')
    said = []
    for one in (["--file", str(tmp_path / "questions")], ['share(crashed = "yes" | version in "15*")']):
        assert main(["ask", *one, "--fleet", "--data", str(tmp_path)]) == 0
        said.append(int(re.search(r"about ([\d,]+) reports", capsys.readouterr().out)[1].replace(",", "")))  # type: ignore[index]
    assert said[0] < said[1] / 2, "questions of a file were fixed, and need less"
    question = "regress(crashed on version)"
    assert main(["ask", question, "--fleet", "--data", str(tmp_path)]) == 0
    fleet = capsys.readouterr().out.splitlines()[1]
    assert "It would tell something from about" in fleet
    assert main(["ask", question, "--data", str(tmp_path)]) == 1
    assert fleet in capsys.readouterr().out.splitlines()
    monkeypatch.setattr(answering, "tally_of", lambda _, stored, window: fleets.supposed_tally(10**7, stored))
    assert main(["ask", question, "--queries", "--data", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "  moments: everybody 1, version = 156 0.25" in told
    assert "all coefficients of regressions together" in told
    assert main(["ask", question, "--weights", "--data", str(tmp_path)]) == 0
    weights = capsys.readouterr().out.splitlines()
    assert any(re.fullmatch(r"  intercept, sum: \S+ a number alone", line) for line in weights)
    assert not any(line.endswith(": ") for line in weights)
    assert main(["ask", question, "--json", "--queries", "--data", str(tmp_path)]) == 0
    (answered,) = json.loads(capsys.readouterr().out)["answers"]
    assert [row["name"] for row in answered["rows"]] == ["intercept", "version = 156", "version = 157"]
    assert answered["rows"][0]["queries"][0]["sums"]["everybody"] == 1


# How often few reports are refused.

RUNS = scaled(12, 300)
SELDOM = 0.02
"""Beyond its smallest fleet a form says "cannot be told" more seldom than that, short of it it tells as seldom."""
OTHERWISE_MAX = int(binom.isf(1e-6 / 50, RUNS, SELDOM))
"""More of RUNS are otherwise in less than 1 of 10^6 runs of all forms, at both sizes."""
FORMS = [
    line.strip()
    for line in PAGE.read_text().splitlines()
    if line.startswith("    ") and not line.strip().startswith(("clusters", "count"))
][:: scaled(2, 1)]


def drawn_evenly(stored: StoredPlan, n: int, rng: np.random.Generator) -> Tally:
    """Return what n devices send of which as many have each value, are in each range, or in each cell."""
    plan = stored.plan
    if isinstance(plan.domain, Columns):
        shape, arms = shape_of(plan), plan.cells.public
        return draw_table(plan, [np.full(shape, 1 / np.prod(shape))] * arms, [n // arms] * arms, rng)
    if isinstance(plan.domain, NumberDomain):
        return draw_numbers(plan, np.full(places_of(plan), 1 / places_of(plan)), n, rng)
    devices = rng.multinomial(n, np.full(len(plan.values), 1 / len(plan.values)))
    return Tally(n, np.append(n, draw_tally(pure(plan), devices, rng)))


def told_of(asking: Asking, question: Query, n: int, runs: int) -> int:
    """Return how often n reports tell something, of so many times that they are drawn."""
    rng, window, width = np.random.default_rng(n), asking.windows(question)[0], fleets._width(question)
    drawn = replace(asking, suppose=lambda stored: drawn_evenly(stored, n, rng))
    return sum(
        all(fleets._tells(answer, width) for answer in drawn.answers_in(question, window, None)) for _ in range(runs)
    )


@pytest.mark.parametrize("text", FORMS)
def test_reports_that_are_drawn_tell_from_the_smallest_fleet_on(forms: Asking, text: str) -> None:
    """The fleet is computed of expected counts. Half as many again that are drawn tell, and three quarters do not."""
    question = parse(text)
    fleet = fleets.smallest(forms, question)
    assert fleet
    few, enough = (told_of(forms, question, int(part * fleet), RUNS) for part in (0.75, 1.5))
    assert few <= OTHERWISE_MAX
    assert RUNS - enough <= OTHERWISE_MAX
