import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest

from dither_aggregator.analysis import words as reading_module
from dither_aggregator.analysis.estimands import estimand_of, estimate
from dither_aggregator.analysis.reading import BadView, View
from dither_aggregator.analysis.words import (
    Level,
    Progress,
    Proposed,
    Wanted,
    WordRow,
    WordsReading,
    search,
    search_tally,
)
from dither_aggregator.counting import fold_cells
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.domains import Coded
from dither_shared.kinds import words as words_kind
from dither_shared.registry import Metric
from dither_shared.rng import Rng
from dither_shared.safe_output import is_visible
from dither_shared.words import code
from dither_shared.words.alphabets import Alphabet
from dither_shared.words.code import KEPT_MAX
from tests.support.registries import registry
from tests.support.soaking import scaled

DAY = date(2026, 11, 23)
Shares = Mapping[str | None, float]
SHARES: Shares = {"firefox": 0.4, "other": 0.2, "https://example.org/a-long-way": 0.2, None: 0.1}
"""The devices' answers; the rest say texts that nobody else says."""


def words(**keys: object) -> Metric:
    return registry(kind="words", reports=1, epsilon="4", color="", **keys).metrics["color"]


def tally_of(metric: Metric, n: int, shares: Shares = SHARES, seed: int = 1) -> Tally:
    """Return the tally of n devices, through the real randomizer."""
    chance = random.Random(seed)
    rng = Rng(chance.getrandbits)
    said = chance.choices([*shares, ...], [*shares.values(), max(1 - sum(shares.values()), 0.0)], k=n)
    reports: dict[int, list[int]] = {}
    for device, answer in enumerate(said):
        read = metric.read(f"{device}" if answer is ... else answer)
        cell = metric.cells.draw(rng)
        seen = metric.class_of(read, cell, rng)
        reports.setdefault(cell, []).append(metric.cells.mechanism_of(cell).randomize(seen, rng))
    packed = {
        cell: np.array(each, dtype=f"<u{metric.cells.mechanism_of(cell).shape.width}").tobytes()
        for cell, each in reports.items()
    }
    return Tally(n, fold_cells(metric.cells, packed))


@pytest.fixture(scope="module", autouse=True)
def _continuations_of_noise() -> Iterator[None]:
    """Let searches keep fewer prefixes and read fewer continuations than a reader's do: those of noise come last."""
    with (
        patch.object(reading_module, "KEPT_MAX", scaled(100, KEPT_MAX)),
        patch.object(reading_module, "LOOKED_AT_MAX", scaled(1_000, reading_module.LOOKED_AT_MAX)),
    ):
        yield


@pytest.fixture
def few_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give words fewer buckets, which take less time to decode: no test that uses this depends on their number."""
    for module in (words_kind, code):
        monkeypatch.setattr(module, "BUCKETS", scaled(1 << 12, code.BUCKETS))


@cache
def usual_tally() -> Tally:
    """The tally of 12,000 devices: what is found in it, and what is looked up."""
    return tally_of(words(), 12_000)


@pytest.fixture(scope="module")
def reading() -> WordsReading:
    metric = words()
    found = estimate(stored(metric), DAY, usual_tally())
    assert isinstance(found, WordsReading)
    return found


def stored(metric: Metric) -> StoredPlan:
    return StoredPlan(1, metric.plan, metric.question, (), metric.reservation, metric.expires, current=True)


@pytest.mark.slow
def test_real_reports_show_words_the_start_of_longer_ones_and_what_is_no_text(reading: WordsReading) -> None:
    """12,000 devices at epsilon 4: shares of a fifth are 12 standard errors, and 5.5 of the smallest level."""
    named = {row.value: row for row in reading.rows if row.named and row.whole}
    assert {"firefox", "“other”", "other"} <= set(named) <= {"firefox", "“other”", "other", "none"}
    for value, share in (("firefox", 0.4), ("“other”", 0.2), ("other", 0.1)):
        assert named[value].lower < share < named[value].upper
    (longer,) = [row for row in reading.rows if not row.whole]
    assert longer.value.endswith("…")
    assert "https://example.org/a-long-way".startswith(longer.value[:-1])
    assert longer.lower < 0.2 < longer.upper


@pytest.mark.slow
def test_words_that_are_named_are_the_head_and_what_is_no_text_stands_apart(reading: WordsReading) -> None:
    significance = reading.significance()
    assert significance is not None
    assert [each.row.value for each in significance.significant][:1] == ["firefox"]
    assert significance.significant[0].rank_lower == 1
    assert [row.value for row in significance.unlisted] == ["other"]
    assert {row.value for row in significance.rest} == {row.value for row in reading.rows if not row.named} - {"other"}
    assert significance.p_value < 1e-9


@pytest.mark.slow
def test_while_more_may_come_nothing_is_named() -> None:
    """The tally is one in which words are named once no more may come."""
    found = estimate(stored(words()), DAY, usual_tally(), provisional=True)
    assert isinstance(found, WordsReading)
    assert {row.named for row in found.rows} <= {None}


def test_without_reports_there_are_no_rows_and_what_is_shown_says_so() -> None:
    metric = words()
    found = estimate(stored(metric), DAY, Tally(0, np.zeros(metric.cells.tally_size, dtype=np.int64)))
    assert list(found.rows) == []
    assert found.significance() is None
    assert "No word stands out" in found.nothing_to_show


@pytest.mark.slow
@pytest.mark.usefixtures("few_buckets")
def test_a_tally_is_searched_once_whatever_is_asked_of_it_and_progress_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading_module, "LOOKED_AT_MAX", 500)
    searched: list[Proposed] = []
    told: list[float] = []

    def noted(
        levels: Sequence[Level], progress: Progress, alphabet: Alphabet | None, known: Sequence[bytes]
    ) -> Proposed:
        searched.append(
            searched[0] if searched else search(levels, progress, alphabet, known)
        )  # it takes half a second
        return searched[-1]

    monkeypatch.setattr(reading_module, "search", noted)
    metric = words(rev=7)
    tally = tally_of(metric, 300)
    first, again, wider = (
        search_tally(metric.plan, tally, Wanted(confidence), told.append) for confidence in (0.95, 0.95, 0.99)
    )
    assert len(searched) == 1
    assert told
    assert told == sorted(told)
    assert first == again
    (narrow, *_), (wide, *_) = first[1].proposed, wider[1].proposed
    assert wide.upper > narrow.upper
    search_tally(words(rev=8).plan, tally, Wanted())
    assert len(searched) == 2


def test_candidates_in_the_body_of_a_request_are_refused() -> None:
    plan = words().plan
    with pytest.raises(BadView, match="candidates"):
        estimand_of(plan).check(plan, View(candidates=("firefox",)), frozenset())


@pytest.mark.slow
def test_names_that_devices_take_for_one_text_have_one_row() -> None:
    """1,000 devices with one text: its estimate is 15 standard errors above a half."""
    metric = registry(kind="words", reports=1, epsilon="4", color="casefold = true").metrics["color"]
    names = ("Firefox ", "FIREFOX", "chrome")
    asked = estimate(stored(metric), DAY, tally_of(metric, 1_000, {"fireFox": 1.0}), View(values=names))
    found = {row.value: row.estimate for row in asked.rows}
    assert set(found) == {"Firefox ", "chrome"}
    assert found["Firefox "] > 0.5 > found["chrome"]


@pytest.mark.slow
@pytest.mark.parametrize(("casefold", "proposes"), [(True, False), (False, True)])
def test_texts_that_no_device_says_are_not_proposed(
    casefold: bool, proposes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 devices at epsilon 1 say nothing of any level, so the search proposes what noise makes, capitals too."""
    metric = registry(kind="words", reports=1, epsilon="1", color=f"casefold = {str(casefold).lower()}").metrics[
        "color"
    ]
    monkeypatch.setattr(reading_module, "LOOKED_AT_MAX", scaled(300, reading_module.LOOKED_AT_MAX))
    proposed: set[str] = set()
    for seed in range(scaled(2, 3)):
        found = estimate(stored(metric), DAY, tally_of(metric, 300 + seed))
        proposed |= {row.value for row in found.rows}
    domain = metric.plan.domain
    assert isinstance(domain, Coded)
    assert any(name != name.casefold() for name in proposed) is proposes
    assert len(proposed) > 10


@pytest.mark.slow
def test_a_word_that_controls_a_terminal_or_turns_round_is_in_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices that lie say three of them, the last one longer than all levels: shares of a fifth, as above.

    An honest device's answer is "other" in their place, and one that is written with a joiner is a word.
    """
    metric = words()
    hostile = ("\x1b[7mfree", "a\u202eb", "https://\u2066example.org/a-long-way")
    with monkeypatch.context() as lying:
        lying.setattr(type(metric.kind), "takes", lambda kind, answer, domain: isinstance(answer, str))
        shares: Shares = {**dict.fromkeys(hostile, 0.2), "\u0646\u200c\u0645": 0.2, "firefox": 0.2}
        tally = tally_of(metric, 12_000, shares)
    found = estimate(stored(metric), DAY, tally)
    assert isinstance(found, WordsReading)
    assert {row.value for row in found.rows if row.named} == {"firefox", "https://…", "\u0646…"}
    assert all(is_visible(row.value) for row in found.rows)
    assert [metric.names(each) for each in (*hostile, "\u0646\u200c\u0645")] == [("other",)] * 3 + [
        ("\u0646\u200c\u0645",)
    ]


@pytest.mark.parametrize("option", ["error_of", "normalised", "candidates", "simultaneous"])
def test_options_of_lists_are_refused(option: str) -> None:
    plan = words().plan
    with pytest.raises(BadView, match=option):
        estimand_of(plan).check(plan, View(), frozenset({option}))


@pytest.mark.slow
@pytest.mark.usefixtures("few_buckets")
def test_what_is_none_is_shown_where_presence_is_hidden() -> None:
    metric = words(presence="hidden")
    found = estimate(stored(metric), DAY, tally_of(metric, 500))
    assert {"other", "none"} <= {row.value for row in found.rows}


@pytest.mark.slow
def test_words_that_somebody_names_are_looked_up_whether_or_not_they_were_found(reading: WordsReading) -> None:
    """None of four estimates is 6 standard errors off: a false alarm of 1e-8, and the seed is fixed."""
    metric, names = words(), ("firefox", "“other”", "other", "nobody says so", "https://exa…")
    asked = estimate(stored(metric), DAY, usual_tally(), View(values=names))
    found = {row.value: row for row in asked.rows}
    assert set(found) == set(names[:-1])
    for name, share in zip(names[:-1], (0.4, 0.2, 0.1, 0.0), strict=True):
        assert abs(found[name].estimate - share) < 6 * found[name].std_error
        assert found[name].lower <= share <= found[name].upper
    estimand = estimand_of(metric.plan)
    assert [estimand.knows(stored(metric), name) for name in names] == [True, True, True, True, False]


@pytest.mark.slow
def test_what_is_found_is_told_by_more_reports_than_what_is_looked_up(reading: WordsReading) -> None:
    """Groups of 12,000 reports are within 200 of what is expected: 4 sigma, and the seed is fixed."""
    asked = estimate(stored(words()), DAY, usual_tally(), View(values=("firefox",)))
    (looked_up,) = asked.rows
    assert isinstance(looked_up, WordRow)
    found = {row.value: row for row in reading.rows}
    assert looked_up.judged_by == pytest.approx(12_000 * 0.30, abs=200)
    assert found["firefox"].judged_by == pytest.approx(12_000 * 0.42, abs=220)  # 34 bits, by the third level as well
    assert found["other"].judged_by == pytest.approx(12_000 * 0.42, abs=220)
    (longer,) = [row for row in reading.rows if not row.whole]
    assert longer.judged_by == pytest.approx(12_000 * 0.12, abs=200)
    assert found["firefox"].std_error < 0.9 * looked_up.std_error
    assert found["firefox"].upper - found["firefox"].lower < 0.9 * (looked_up.upper - looked_up.lower)
    assert reading.noise_floor == asked.noise_floor
    assert 0 < reading.answers_part(found["firefox"]) < 1


@pytest.mark.parametrize("name", ["other", "none", "“other”", "“none”", "“”", "a", "", "“quoted”", "é"])
def test_a_shown_text_is_that_text_again(name: str) -> None:
    for hidden in (False, True):
        domain = Coded("site", (18, 34, 50), hidden=hidden)
        assert domain.shown(domain.typed_of(name)) == name or (name == "“none”" and not hidden)
