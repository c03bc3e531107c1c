"""Questions of tables: conditions on several columns, rates, means and arms, whose intervals hold."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import hypot
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.reading import Window
from dither_aggregator.analysis.tables.pairs import CellSums
from dither_aggregator.ask.answering import Asking
from dither_aggregator.ask.language import BadQuestion, parse
from dither_aggregator.ask.resolving import CountedAt
from dither_aggregator.store import StoredPlan, Tally
from dither_aggregator.store.document_kinds import ValueGroup
from dither_shared.registry import Registry
from tests.support.aggregators import sqlite_store
from tests.support.drawn_tables import draw_table
from tests.support.registries import metrics_text
from tests.support.soaking import SOAK, scaled

TABLE: dict[str, object] = {"kind": "table", "epsilon": 2, "reports": 30}
STABILITY: dict[str, object] = {
    **TABLE,
    "columns": {
        "crashed": ["no", "yes"],
        "version": ["155", "156", "157"],
        "memory": {"edges": [2, 4, 8], "unit": "GB"},
        "minutes": {"low": 0, "high": 60, "asks": ["mean"], "unit": "min"},
    },
}
QUIET: dict[str, object] = {
    **TABLE,
    "columns": {"bell": ["no", "yes"], "place": ["home", "work"]},
    "presence": "hidden",
}
TRIAL: dict[str, object] = {**TABLE, "columns": {"stayed": ["no", "yes"], "often": ["no", "yes"]}}
THEME: dict[str, object] = {"kind": "choice", "values": ["dark", "light"], "epsilon": 2, "reports": 30}
ARMS = ["blue", "green"]
N, RUNS, ALARM = 30_000, scaled(30, 1_000), 1e-6
SILENT = 0.25
rng = np.random.default_rng(44)
STABLE, BELLS, *TRIED = (rng.dirichlet(np.full(size, 2.0)) for size in (3 * 4 * 5 * 3, 9, 9, 9))
STABLE = STABLE.reshape(3, 4, 5, 3)


@contextmanager
def asked(directory: Path, metrics: dict[str, dict[str, object]], **head: object) -> Iterator[Asking]:
    with sqlite_store(Registry.parse(metrics_text(metrics, **head)), directory) as store:
        yield Asking(store)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    with asked(
        tmp_path_factory.mktemp("plain"), {"stability": STABILITY, "quiet": QUIET, "theme": THEME, "trial": TRIAL}
    ) as asking:
        yield asking


@pytest.fixture(scope="module")
def arms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    with asked(tmp_path_factory.mktemp("arms"), {"trial": TRIAL}, public={"arm": ARMS}) as asking:
        yield asking


def tally_of(stored: StoredPlan, drawing: np.random.Generator) -> Tally:
    if stored.plan.metric == "trial":
        return draw_table(stored.plan, [each.reshape(3, 3) for each in TRIED], [N, N // 2], drawing)
    truth = np.append((1 - SILENT) * BELLS, SILENT) if stored.plan.metric == "quiet" else STABLE
    return draw_table(stored.plan, [truth], [N], drawing)


def supposed(asking: Asking, tally: Tally) -> Asking:
    return replace(asking, suppose=lambda _: tally)


def coverage(asking: Asking, metric: str, truths: dict[str, float]) -> None:
    """Each question's intervals of one day hold in 95 % of the runs; of many runs, all together in 94 % of these."""
    held, drawing = dict.fromkeys(truths, 0), np.random.default_rng(1)
    questions = {text: parse(f"{text} last 1 days") for text in truths}
    for _ in range(RUNS):
        tally = tally_of(asking.plans[metric], drawing)
        supposing = supposed(asking, tally)
        for text, truth in truths.items():
            (answer,) = supposing.answer(questions[text], alone=1)
            assert answer.lower is not None, answer.untold
            assert answer.upper is not None
            held[text] += answer.lower <= truth <= answer.upper
    assert binom.isf(1 - ALARM / len(truths), RUNS, 0.95) <= min(held.values()), held
    assert sum(held.values()) < RUNS * len(truths), "intervals that always hold are too wide"
    assert not SOAK or sum(held.values()) >= 0.94 * RUNS * len(truths), held


def share(*places: int | slice | list[int]) -> float:
    places_of_columns: tuple[Any, ...] = places
    return float(STABLE[places_of_columns].sum())


EVERY = slice(None)


def test_intervals_of_cells_rates_and_means_hold(plain: Asking) -> None:
    rates = [share(1, version) / share(EVERY, version) for version in (2, 1)]
    newest, spent = share(EVERY, 2), STABLE[:, 2].sum(axis=(0, 1))
    truths = {
        'share(crashed = "yes" and version = "157")': share(1, 2),
        'share(crashed = "yes" and version in ("156", "157"))': share(1, [1, 2]),
        'share(version in "15*")': share(EVERY, [0, 1, 2]),
        'share(memory > 4 GB | crashed = "yes")': share(1, EVERY, [2, 3]) / share(1),
        'share(crashed = "yes" | version = "157") - share(crashed = "yes" | version = "156")': rates[0] - rates[1],
        'share(crashed = "yes" and version = "157") / share(version = "157")': share(1, 2) / newest,
        'share(crashed = "yes" | version = "157") + 2 * share(crashed = "yes")': rates[0] + 2 * share(1),
        'mean(minutes | version = "157")': 60 * spent[1] / spent[:2].sum(),
        'share(crashed = "yes") - share(version = "157")': share(1) - newest,
    }
    coverage(plain, "stability", truths)


def test_intervals_of_devices_that_say_anything_hold(plain: Asking) -> None:
    bells = BELLS.reshape(3, 3)
    coverage(
        plain,
        "quiet",
        {
            'share(bell = "yes")': bells[1].sum(),
            'share(bell = "yes" and place = "home")': bells[1, 0],
            'share(bell = "yes" | place = "home")': bells[1, 0] / bells[:, 0].sum(),
        },
    )


def test_arms_are_devices_of_their_own(arms: Asking) -> None:
    """Their difference has the error of both, and no more: it does not always hold."""
    blue, green = (each.reshape(3, 3)[1].sum() for each in TRIED)
    each = [f'share(stayed = "yes" | arm = "{arm}")' for arm in ARMS]
    coverage(arms, "trial", {each[0]: blue, f"{each[0]} - {each[1]}": blue - green, 'share(often = "yes")': _of_both()})
    tally = tally_of(arms.plans["trial"], np.random.default_rng(2))
    supposing = supposed(arms, tally)
    (answer,) = supposing.answer(parse(f"{each[0]} - {each[1]}"), alone=1)
    parts = [next(supposing.answer(parse(one), alone=1)) for one in each]
    widths = [(part.upper or 0) - (part.lower or 0) for part in parts]
    assert (answer.upper or 0) - (answer.lower or 0) == pytest.approx(hypot(*widths), rel=0.05)


def _of_both() -> float:
    often: list[Floats] = [each.reshape(3, 3)[:, 1] for each in TRIED]
    return float((N * often[0].sum() + N // 2 * often[1].sum()) / (N + N // 2))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            'share(crashed = "yes" | theme = "dark")',
            "crashed and theme were never asked together: a table of both would",
        ),
        (
            'share(theme = "dark" | version = "157")',
            'columns = { theme = ["dark", "light"], version = ["155", "156", "157"] }',
        ),
        (
            'share(crashed = "yes" and version = "157" and memory > 4)',
            "crashed, version and memory were never asked together: a table of these 3",
        ),
        ('share(crashed = "yes" and version = "157" and memory > 4)', 'memory = { edges = [2, 4, 8], unit = "GB" }'),
        (
            'mean(minutes | theme = "dark")',
            'minutes = { low = 0, high = 60, asks = ["mean"], unit = "min" }, theme = ["dark", "light"]',
        ),
        ('mean(memory | theme = "dark")', 'memory = { low = 2, high = 8, asks = ["mean"], unit = "GB" }'),
        (
            'quantile(memory, .5 | theme = "dark")',
            "tables have no quantiles: ask quantile(memory, ...) of all, or mean",
        ),
        ('share(crashed = "perhaps")', "crashed has no value that"),
        ("share(memory > 3 GB)", "memory is told apart at 2, 4, 8"),
        ("share(memory > 4 MB)", "memory is in GB, not in MB"),
        ("share(crashed > 4)", "crashed is told by its values"),
        *(
            (asked, 'only its mean is told: minutes = { edges = [0, 30, 60], unit = "min" } in its place would')
            for asked in (
                *('share(minutes = "60 min")', "share(minutes > 30 min)", "top(minutes, 1)"),
                *("regress(minutes on version)", 'regress(crashed = "yes" on minutes)'),
                'logistic(crashed = "yes" on minutes)',
            )
        ),
        ('regress(stayed = "yes" on minutes)', 'minutes = { edges = [0, 30, 60], unit = "min" }'),
        ('share(theme = "dark" | minutes > 30)', 'minutes = { edges = [0, 30, 60], unit = "min" }'),
        (
            "mean(stability.memory)",
            'no mean is measured: memory = { low = 2, high = 8, asks = ["mean"], unit = "GB" } in its place would',
        ),
        ("mean(crashed)", "of which no mean is measured"),
        ("quantile(memory, .5)", "no quantile is measured: a metric of its own with edges would"),
        ('share(theme = "dark" | theme in "*")', "is written as share(theme ...) / share(theme ...)"),
    ],
)
def test_what_was_not_asked_is_refused_with_the_lines_that_would(plain: Asking, text: str, says: str) -> None:
    with pytest.raises(BadQuestion) as refused:
        list(plain.answer(parse(text)))
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        'share(crashed = "yes" and version = ^"158")',
        'share(crashed = "yes" | version in (^"x", "z*"))',
        "share(memory > ^3 GB)",
        "share(memory > 4 ^MB)",
        'share(version = "155" and crashed > ^3)',
        "share(^minutes > 3)",
        'share(version = "155" and ^version = "156")',
        'share(stability.crashed = "yes" | ^other.version = "157")',
        'share(stability.crashed = "yes" and ^quiet.version = "157")',
        'regress(crashed = "yes" on version = ^"158")',
        'regress(crashed = "yes" on ^other.version)',
        "top(^minutes, 2)",
    ],
)
def test_errors_point_at_the_place_in_a_table(plain: Asking, text: str) -> None:
    with pytest.raises(BadQuestion) as refused:
        plain.windows(parse(text.replace("^", "")))
    assert refused.value.at == text.index("^"), str(refused.value)


def test_the_public_column_only_makes_groups(arms: Asking) -> None:
    for text, says in (
        ('share(arm = "blue")', "arm is sent in the clear"),
        ('share(stayed = "yes" | arm = "red")', "arm is asked for one value: blue, green"),
        ('share(stayed = "yes" | arm in "*")', "arm is asked for one value"),
        ("top(trial.arm, 3)", "arm is sent in the clear: it may only stand behind"),
        ("mean(trial.arm)", "arm is sent in the clear"),
        ('mean(trial.arm | stayed = "yes")', "arm is sent in the clear"),
        (
            'regress(stayed = "yes" on arm)',
            r'arm is sent in the clear: groups of it are compared by share\(stayed \.\.\. \| arm = "blue"\) - '
            r'share\(stayed \.\.\. \| arm = "green"\)',
        ),
        ('logistic(stayed = "yes" on often, arm)', "arm is sent in the clear: groups of it"),
    ):
        with pytest.raises(BadQuestion, match=says):
            list(arms.answer(parse(text)))


def test_two_single_values_are_a_name_and_more_are_free(plain: Asking) -> None:
    """Several names are free sums, too: what is planned to be narrower is taken."""
    families = {
        'share(crashed = "yes" and version = "157")': "single",
        'share(crashed = "yes" | version = "157") - share(crashed = "yes" | version = "156")': "free",
        'share(crashed = "yes" | version = "157") - share(theme = "dark")': "single",
        'mean(minutes | version = "157")': "single",
        'mean(minutes | version = "157" and version in "15*")': "free",
        'share(crashed = "yes" and version in "15*")': "free",
        'share(crashed = "yes" and version in ("156", "157")) / share(version in ("156", "157"))': "free",
    }
    for text, family in families.items():
        assert plain.guard(parse(text).expression, None).family == family, text


def test_saved_groups_are_values_by_a_name(plain: Asking) -> None:
    groups = {"version": {"New ones": ValueGroup("version", "New ones", ("156", "157"))}}
    by_name, by_list = (
        parse(f'share(version in {values} | crashed = "yes")', groups)
        for values in ('group "New ones"', '("156", "157")')
    )
    (one,), (other,) = by_name.expression.asked, by_list.expression.asked
    assert plain.resolve(one).names(one) == plain.resolve(other).names(other)
    assert plain.guard(by_name.expression, None).family == "free"
    with pytest.raises(BadQuestion, match="version has no saved group 'Old'; it has New ones"):
        parse('share(version in group "Old")', groups)


def test_weights_of_rates_means_and_analyses_make_their_answers(plain: Asking, arms: Asking) -> None:
    """Each weight stands before a cell that can be asked itself, and rates are sums over sums of them."""
    for asking, text in (
        (plain, 'share(crashed = "yes" | version = "157") - 2 * share(crashed = "yes" | version in ("155", "156"))'),
        (plain, 'mean(minutes | version = "157") + 1'),
        (arms, 'share(stayed = "yes" | arm = "blue") - share(stayed = "yes")'),
    ):
        metric = asking.asked_plans(parse(text))[0].plan.metric
        supposing = supposed(asking, tally_of(asking.plans[metric], np.random.default_rng(3)))
        (answer,) = supposing.answer(parse(text), alone=1)
        sums: dict[tuple[int, str], float] = {}
        for weight in asking.weights(parse(text)):
            place = weight.ratio, weight.part
            sums[place] = sums.get(place, 0.0) + weight.weight * estimated(supposing, metric, weight.value)
        ratios = {ratio for ratio, _ in sums if ratio}
        made = sums.get((0, "sum"), 0.0) + sum(
            sums[ratio, "numerator"] / sums[ratio, "denominator"] for ratio in ratios
        )
        assert answer.estimate == pytest.approx(made), text
    stability = plain.plans["stability"]
    supposing = supposed(plain, tally_of(stability, np.random.default_rng(3)))
    for text in ("top(version, 2)", 'regress(crashed = "yes" on version = "157")'):
        question = parse(text)
        answers = list(supposing.answer(question, alone=1))
        weights = list(supposing.weights(question, answers))
        assert {weight.name for weight in weights} == {answer.name for answer in answers}
        assert {weight.metric for weight in weights if weight.value} == {"stability"}
        assert all(not weight.metric for weight in weights if not weight.value), "a number alone is of no metric"


def estimated(asking: Asking, metric: str, name: str) -> float:
    """Return the estimate of a cell by its name, of the questions that ask for all of its columns; of "" it is 1."""
    if not name:
        return 1.0
    cell, _, arm = name.partition(" | ")
    table, window = asking.tables[metric], Window.ending(asking.store.sealed(), 7)
    sums = asking.sums(CountedAt(metric, window, arm.removeprefix("arm = ")))
    assert isinstance(sums, CellSums)
    sides = dict(each.split(" = ") for each in cell.split(" & "))
    labels = {column: table.domain.labels(table.column(column)) for column in sides}
    weights = sums.of(
        {table.column(column): np.eye(len(labels[column]))[labels[column].index(sides[column])] for column in sides}
    )
    assert weights is not None
    return sums.estimate(weights)
