"""Groups of the dashboard in questions: they mean what pages mean by them, and are refused in words."""

from collections.abc import Iterator

import numpy as np
import pytest

from dither_aggregator.analysis import differences as groups_module
from dither_aggregator.analysis.differences import read_groups
from dither_aggregator.analysis.reading import default_window
from dither_aggregator.ask import answering
from dither_aggregator.ask.answering import Asking
from dither_aggregator.ask.language import BadQuestion, parse
from dither_aggregator.operations.administration import Administration
from dither_aggregator.store import Tally
from dither_aggregator.store.document_kinds import Dashboard
from dither_shared.registry import Registry
from tests.aggregator.ask.test_asking import METRICS
from tests.support.aggregators import sqlite_store
from tests.support.laws import pure
from tests.support.registries import metrics_text
from tests.support.tallies import draw_tally

DASHBOARD = """
[group.browser]
"Chrome" = "Chrome *"
"Two" = ["Firefox 100", "Safari 10?"]
"All" = "*"
"With other" = ["*", "other"]
"Either" = "Chrome 10[12]"
"Chrome 100" = "Firefox *"

[group.load_time]
"slow" = { from = 3 }
"quick" = { below = 2 }
"between" = { from = 1, below = 5 }
"""


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    registry = Registry.parse(metrics_text(METRICS, device_epsilon=400))
    with sqlite_store(registry, tmp_path_factory.mktemp("store")) as store:
        Administration(store).show(Dashboard.parse(DASHBOARD))
        yield Asking(store)


@pytest.fixture
def tally(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> Tally:
    """The counts of every window: 20,000 devices, of which each sixteenth has no listed browser."""
    rng = np.random.default_rng(44)
    counts = draw_tally(pure(asking.plans["browser"].plan), rng.multinomial(20_000, np.full(16, 1 / 16)), rng)
    drawn = Tally(20_000, np.append(20_000, counts))
    for module in (answering, groups_module):
        monkeypatch.setattr(module, "tally_of", lambda *_: drawn)
    return drawn


def test_a_question_means_by_a_group_what_pages_mean_by_it(asking: Asking, tally: Tally) -> None:
    """ "other" is in no pattern of a group, and brackets are a set of characters there."""
    stored = asking.plans["browser"]
    shown = {
        each.group.name: each for each in read_groups(asking.store, stored, default_window(asking.store, stored), 0.95)
    }
    assert len(shown) == 6
    for name, group in shown.items():
        question = parse(f'share(browser in group "{name}")', asking.groups)
        (answer,) = asking.answer(question)
        assert group.row
        assert answer.estimate == pytest.approx(group.row.estimate), name
        ((_, figure),) = question.expression.sum.terms
        assert asking.resolve(figure).names(figure)[0] == tuple(group.members)
        assert answer.family == "free", name  # none of them is one value alone


def test_a_group_that_is_named_like_a_value_is_the_group(asking: Asking) -> None:
    value, group = (
        parse(f"share(browser {how})", asking.groups) for how in ('= "Chrome 100"', 'in group "Chrome 100"')
    )
    ((_, one),), ((_, other),) = value.expression.sum.terms, group.expression.sum.terms
    assert asking.resolve(one).names(one)[0] == ("Chrome 100",)
    assert all(name.startswith("Firefox ") for name in asking.resolve(other).names(other)[0])


def test_a_group_of_numbers_is_one_side_of_its_edge(asking: Asking) -> None:
    for name, side in {"slow": "> 3", "quick": "< 2"}.items():
        group, written = (
            parse(f"share(load_time {how})", asking.groups).expression for how in (f'in group "{name}"', side)
        )
        assert group == written
        asking.check(group.asked[0])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('share(browser in group "New")', "browser has no saved group 'New'; it has All, Chrome, Chrome 100, Either, "),
        ('share(dark in group "Chrome")', "dark has no saved group 'Chrome'; it has none"),
        ('share(load_time in group "between")', "ask share(load_time > 1) - share(load_time > 5)"),
        ('share(crashed in group "Chrome")', "crashed has no saved group"),
    ],
)
def test_a_group_that_is_none_is_refused_with_its_place(asking: Asking, text: str, says: str) -> None:
    with pytest.raises(BadQuestion) as refused:
        parse(f'share(dark = "yes") + {text}', asking.groups)
    assert refused.value.text[refused.value.at or 0 :] == text[text.index('"') :]
    assert says in str(refused.value)


def test_groups_are_ranked_beside_each_other(asking: Asking, tally: Tally) -> None:
    rows = list(asking.answer(parse("top(browser group by saved, 9)", asking.groups)))
    assert {row.name for row in rows} == {"Chrome", "Two", "All", "With other", "Either", "Chrome 100"}
    assert rows[0].name in ("All", "With other")
    with pytest.raises(BadQuestion, match="is not of listed values"):
        list(asking.answer(parse("top(load_time group by saved, 9)", asking.groups)))
