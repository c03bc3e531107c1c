"""Kept readings: the same as fresh ones in every kind, never those of other counts, and one that fails is one row."""

import json
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from dither_aggregator.analysis import closed_days, differences, estimands, reading_cache, words
from dither_aggregator.analysis import words as words_reading
from dither_aggregator.analysis.differences import view_of
from dither_aggregator.analysis.estimands import estimand_of, read, read_days
from dither_aggregator.analysis.reading import Reading, View, Window, for_readers
from dither_aggregator.analysis.reading_cache import Computing, Elsewhere, Kept, NotReady
from dither_aggregator.analysis.shares import METHODS
from dither_aggregator.counting import BadTally, fold_cells
from dither_aggregator.health import checks
from dither_aggregator.health.checks import Observed
from dither_aggregator.store import Store, StoredPlan, Tally
from dither_aggregator.store.records import KeptReading
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng
from tests.support.aggregators import operators_app
from tests.support.drawn_tables import alone, draw_table
from tests.support.sites import Site, site_of
from tests.support.soaking import thinned
from tests.test_every_kind import METRICS, draw_answers, registry_text

KINDS = ("flag", "named_ss", "several", "text", "text_fresh", "words", "number", "number_again", "number_mean", "table")
SLOW = {"text", "text_fresh", "words"}
TABLE = """
[metric.table]
kind = "table"
question = "What goes with what?"
rev = 1
epsilon = 4
reports = 1
schedule = "early"
presence = "public"
period = "1d"
owners = ["team@example.org"]
sensitivity = "low"
expires = {expires}
[metric.table.columns]
crashed = ["yes", "no"]
version = ["156", "157", "158"]
"""
SIMULTANEOUS = View(simultaneous=True, days=2)


@pytest.fixture(scope="module", autouse=True)
def _quick_searches() -> Iterator[None]:
    with patch.object(words, "KEPT_MAX", 10), patch.object(words, "LOOKED_AT_MAX", 100):
        yield


@pytest.fixture(scope="module")
def asked() -> Registry:
    text = registry_text([name for name in METRICS if name in KINDS])
    expires = next(line for line in text.splitlines() if line.startswith("expires")).partition(" = ")[2]
    return Registry.parse(text + TABLE.format(expires=expires))


@pytest.fixture(scope="module")
def tallies(asked: Registry) -> dict[str, Tally]:
    """A day's counts of each metric, through the real randomizers; a table's by its law."""
    rng = random.Random(7)
    answers = draw_answers(Registry.parse(registry_text([name for name in METRICS if name in KINDS])), rng)
    drawn = {
        name: counted(asked.metrics[name], each if name.startswith("number") else each[:400], rng)
        for name, each in answers.items()
    }
    shares = alone([0.3, 0.7, 0.0], [0.2, 0.3, 0.5, 0.0])
    plan = asked.metrics["table"].plan
    memo = drawn["number_again"]  # of two days four reports may be of one device: so many devices more
    drawn["number_again"] = Tally(4 * memo.n, 4 * memo.counts)
    return {**drawn, "table": draw_table(plan, [shares], [5_000], np.random.default_rng(3))}


def counted(metric: Metric, answers: Sequence[object], rng: random.Random) -> Tally:
    coins, cells = Rng(rng.getrandbits), metric.cells
    reports: dict[int, list[bytes]] = {}
    for answer in answers:
        cell = rng.randrange(cells.count) if cells.memoized else cells.draw(coins)
        mechanism = cells.mechanism_of(cell)
        report = int(mechanism.randomize(metric.class_of(metric.read(answer), cell, coins), coins))
        reports.setdefault(cell, []).append(mechanism.shape.read_column([mechanism.shape.to_wire(report)]))
    return Tally(len(answers), fold_cells(cells, {cell: b"".join(each) for cell, each in reports.items()}))


@pytest.fixture
def one(asked: Registry, tallies: dict[str, Tally], tmp_path: Path) -> Iterator[Site]:
    """Two sealed days and today, each with the same counts."""
    with site_of(asked, tmp_path) as made:
        for name, tally in tallies.items():
            for days_ago in (0, 1, 2):
                made.hold(asked.metrics[name].plan, tally, days_ago)
        forget()
        yield made


def forget() -> None:
    """Forget what this process has read, as a new one."""
    for cached in (estimands._read_once, estimands._pool_once, closed_days._once, words_reading._proposed):
        assert cached.cache is not None
        cached.cache.clear()


@contextmanager
def keeper(store: Store, made: reading_cache.Keeper | None) -> Iterator[None]:
    with patch.object(store, "keeper", made):
        yield


def computing(store: Store, kept: list[KeptReading] | None = None, *, alone: bool = True) -> Computing:
    def keep(entry: KeptReading) -> None:
        store.keep_readings([entry])
        if kept is not None:
            kept.append(entry)

    return Computing(store, keep, alone=alone)


def stored_of(one: Site, name: str) -> StoredPlan:
    return one.store.plans(name)[0]


def parts(value: Any) -> Any:
    """Return all that a value is made of, its class included, with arrays as lists."""
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.tolist())
    if is_dataclass(value) and not isinstance(value, StoredPlan | type):
        own = {each.name: parts(getattr(value, each.name)) for each in fields(value) if each.name[0] != "_"}
        return (type(value).__name__, own)
    if isinstance(value, dict):
        return {key: parts(each) for key, each in value.items()}
    return tuple(map(parts, value)) if isinstance(value, tuple | list) else value


def views(name: str, days: int = 2) -> list[View]:
    whole = View(simultaneous=name != "flag", days=days)
    normalised = [replace(whole, normalised=method) for method in METHODS if name == "named_ss"]
    return [whole, View(), view_of(days, 0.05), *normalised]


@pytest.mark.parametrize("name", thinned(KINDS, 1, 5, 9))
def test_a_kept_reading_is_the_fresh_one_in_all_its_parts(one: Site, name: str) -> None:
    store, stored, epoch = one.store, stored_of(one, name), one.day(1)

    def each() -> list[Reading]:
        return [read(store, stored, epoch, view) for view in views(name)]

    all_fresh = each()
    forget()
    with keeper(store, computing(store)):
        all_made = each()
    forget()
    with (
        keeper(store, Kept(store)),
        patch.object(estimands, "estimate", side_effect=AssertionError("it is read anew")),
    ):
        all_kept = each()
    for fresh, made, kept in zip(all_fresh, all_made, all_kept, strict=True):
        assert fresh.rows
        assert parts(kept) == parts(made) == parts(fresh)
        assert parts(kept.significance()) == parts(fresh.significance())
        assert list(kept.table(())) == list(fresh.table(()))
        assert json.dumps(kept.to_document()) == json.dumps(fresh.to_document())
        assert kept.change_chances(kept, [row.value for row in kept.distinct]).tolist() == pytest.approx(
            fresh.change_chances(fresh, [row.value for row in fresh.distinct]).tolist(), nan_ok=True, abs=0
        )


def test_what_takes_seconds_is_not_made_by_a_request_and_all_else_is(one: Site) -> None:
    for name in KINDS:
        stored = stored_of(one, name)
        assert estimand_of(stored.plan).slow == (name in SLOW)
        with keeper(one.store, Kept(one.store)):
            if name in SLOW:
                with pytest.raises(NotReady, match="being computed"):
                    read(one.store, stored, one.day(1), SIMULTANEOUS)
                assert reading_cache.keeper_of(one.store).wanted  # type: ignore[union-attr]
            else:
                assert read(one.store, stored, one.day(1), SIMULTANEOUS).rows


def test_counts_of_a_day_that_is_not_over_are_never_kept(one: Site) -> None:
    kept: list[KeptReading] = []
    with keeper(one.store, computing(one.store, kept)):
        for name in ("named_ss", "text_fresh", "number", "table"):
            assert read(one.store, stored_of(one, name), one.day(0), View()).provisional
            assert read(one.store, stored_of(one, name), one.day(0), View(days=2)).provisional
    assert kept == []
    with keeper(one.store, Kept(one.store)), pytest.raises(Elsewhere):
        read(one.store, stored_of(one, "words"), one.day(0), View())


def test_a_kept_reading_is_not_that_of_other_counts_candidates_or_versions(
    one: Site, tallies: dict[str, Tally]
) -> None:
    stored = stored_of(one, "text")
    with keeper(one.store, computing(one.store)):
        before = read(one.store, stored, one.day(1), SIMULTANEOUS)
    others = replace(stored, candidates=("v1", "another one"))
    with keeper(one.store, Kept(one.store)):
        assert parts(read(one.store, stored, one.day(1), SIMULTANEOUS)) == parts(before)
        for asked, version, doubled in ((others, 0, False), (stored, 1, False), (stored, 0, True)):
            if doubled:
                whole = tallies["text"]
                one.hold(stored.plan, Tally(2 * whole.n, 2 * whole.counts), 2)
            with (
                patch.object(reading_cache, "ESTIMATOR_VERSION", reading_cache.ESTIMATOR_VERSION + version),
                pytest.raises(NotReady),
            ):
                read(one.store, asked, one.day(1), SIMULTANEOUS)


def test_a_read_key_is_not_told_the_reading_of_all_counts(one: Site, tallies: dict[str, Tally]) -> None:
    few, stored = tallies["text_fresh"], stored_of(one, "text_fresh")
    store = for_readers(one.store)
    with keeper(one.store, computing(one.store)):
        whole = read(one.store, stored, one.day(1), SIMULTANEOUS)
    assert whole.n == 2 * few.n
    with keeper(one.store, Kept(one.store)), pytest.raises(NotReady):
        read(store, stored, one.day(1), SIMULTANEOUS)
    with keeper(one.store, computing(one.store)):
        told = read(store, stored, one.day(1), SIMULTANEOUS)
    assert told.left_out == 0
    one.store.keep_readings([replace_content(one.store, entry) for entry in entries(one.store)])
    with keeper(one.store, computing(one.store)):
        read(store, stored, one.day(1), replace(SIMULTANEOUS, confidence=0.9))
    with keeper(one.store, Kept(one.store)):  # nothing was left out, so it is everybody's
        assert parts(read(one.store, stored, one.day(1), replace(SIMULTANEOUS, confidence=0.9))) == parts(
            read(store, stored, one.day(1), replace(SIMULTANEOUS, confidence=0.9))
        )


def entries(store: Any) -> list[KeptReading]:
    found: list[KeptReading] = store._readings("NOT open")
    return found


def replace_content(store: Store, entry: KeptReading) -> KeptReading:
    """Return an entry with one bit of its content flipped."""
    at = len(entry.content) // 2
    spoiled = bytearray(entry.content)
    spoiled[at] ^= 1
    return entry._replace(content=bytes(spoiled))


@pytest.mark.parametrize("how", ["flipped", "cut", "nothing", "no text", "another's"])
def test_a_damaged_entry_is_made_anew(one: Site, how: str) -> None:
    stored, kept = stored_of(one, "text"), list[KeptReading]()
    with keeper(one.store, computing(one.store, kept)):
        fresh = read(one.store, stored, one.day(1), SIMULTANEOUS)
    (entry,) = [each for each in kept if not each.open][-1:]
    with keeper(one.store, computing(one.store, kept)):
        read(one.store, stored, one.day(1), replace(SIMULTANEOUS, confidence=0.8))
    other = kept[-1]
    assert not other.open
    content = {
        "flipped": replace_content(one.store, entry).content,
        "cut": entry.content[: len(entry.content) // 2],
        "nothing": b"",
        "no text": b"\xff" * 99,
        "another's": other.content,
    }[how]
    one.store.keep_readings([entry._replace(content=content)])
    with keeper(one.store, Kept(one.store)), pytest.raises(NotReady):
        read(one.store, stored, one.day(1), SIMULTANEOUS)
    one.store.keep_readings([entry._replace(content=content, open=True)])
    with keeper(one.store, Kept(one.store)), pytest.raises(NotReady):
        read(one.store, stored, one.day(1), SIMULTANEOUS)
    with keeper(one.store, computing(one.store)):
        assert parts(read(one.store, stored, one.day(1), SIMULTANEOUS)) == parts(fresh)
    with keeper(one.store, Kept(one.store)):
        assert parts(read(one.store, stored, one.day(1), SIMULTANEOUS)) == parts(fresh)


def test_a_search_of_words_is_made_once_for_all_views_and_processes(one: Site) -> None:
    stored, searched = stored_of(one, "words"), words.search
    with patch.object(words_reading, "search", side_effect=searched) as searching:
        for view in (SIMULTANEOUS, view_of(2, 0.05), view_of(2, 0.01), replace(SIMULTANEOUS, confidence=0.8)):
            forget()  # as when the process that computes was killed, and another one goes on
            with keeper(one.store, computing(one.store)):
                read(one.store, stored, one.day(1), view)
    assert searching.call_count == 1


def test_a_search_says_at_which_level_it_is(one: Site) -> None:
    stored, kept, clock = stored_of(one, "words"), list[KeptReading](), iter(range(100, 10**9))
    with (
        keeper(one.store, computing(one.store, kept)),
        patch.object(reading_cache, "monotonic", lambda: float(next(clock))),
    ):
        read(one.store, stored, one.day(1), SIMULTANEOUS)
    said = [state.words for entry in kept if entry.open and (state := reading_cache.state_of(entry))]
    assert said[0] == "searching words"
    assert list(dict.fromkeys(said[1:])) == [f"searching words, level {level} of 3" for level in (1, 2, 3)]
    one.store.keep_readings([entry for entry in kept if entry.open][-1:])
    with (
        keeper(one.store, Kept(one.store)),
        pytest.raises(NotReady, match="being computed: searching words, level 3 of"),
    ):
        read(one.store, stored, one.day(1), SIMULTANEOUS)


def test_days_are_read_the_newest_first_and_what_is_missing_is_counted(one: Site) -> None:
    stored, kept = stored_of(one, "text_fresh"), list[KeptReading]()
    window, view = Window(one.day(2), one.day(1)), View("population", simultaneous=True, values=("v1",), together=2)
    with keeper(one.store, computing(one.store, kept)):
        list(read_days(one.store, stored, window, view))
    assert [entry.first for entry in kept if not entry.open] == [one.day(1), one.day(2)]
    one.hold(stored.plan, one.tallies[stored.plan.digest, one.day(1)], 3)
    with keeper(one.store, Kept(one.store)), pytest.raises(NotReady, match="2 of 3 days done") as caught:
        list(read_days(one.store, stored, Window(one.day(3), one.day(1)), view))
    assert (caught.value.done, caught.value.of) == (2, 3)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ZeroDivisionError("what nobody foresaw"), "it could not be computed: it failed with ZeroDivisionError; it is"),
        (MemoryError(), "it could not be computed: it takes more memory than is allowed; it is tried again after"),
    ],
)
def test_a_reading_that_fails_is_said_and_tried_again_ever_more_rarely(one: Site, error: Exception, words: str) -> None:
    stored, now = stored_of(one, "words"), 1_000_000.0
    tries, pauses = list[int](), [1, *(2**number - 1 for number in range(1, reading_cache.TRIES_MAX - 1))]
    due = [0, *np.cumsum(pauses).tolist()]
    with (
        patch("time.time", lambda: now),
        patch.object(words_reading, "search_tally", side_effect=error) as searching,
    ):
        for minute in sorted({minute for at in due for minute in (max(at - 1, 0), at)}):  # just before, and then
            now = 1_000_000.0 + 60 * minute
            before = searching.call_count
            with keeper(one.store, computing(one.store)), pytest.raises(NotReady):
                read(one.store, stored, one.day(1), SIMULTANEOUS)
            with keeper(one.store, Kept(one.store)), pytest.raises(NotReady) as caught:
                read(one.store, stored, one.day(1), SIMULTANEOUS)
            assert caught.value.failed
            tries += [minute] * (searching.call_count - before)
            if not minute:
                assert str(caught.value).startswith(words)
    assert tries == due
    assert str(caught.value).endswith("it is not tried again")
    check = checks._readings.find(Observed(asked=one.store))
    assert not check.well
    assert check.value.startswith("words: it ")


def test_a_part_that_fails_is_the_failure_of_its_reading(one: Site) -> None:
    stored = stored_of(one, "text")
    with (
        keeper(one.store, computing(one.store)),
        patch("dither_aggregator.analysis.texts.decode_candidates", side_effect=ZeroDivisionError),
        pytest.raises(NotReady),
    ):
        read(one.store, stored, one.day(1), SIMULTANEOUS)
    with keeper(one.store, Kept(one.store)), pytest.raises(NotReady, match="it failed with ZeroDivisionError"):
        read(one.store, stored, one.day(1), SIMULTANEOUS)


def test_other_metrics_and_days_stand_beside_one_that_fails(one: Site) -> None:
    words = stored_of(one, "words")
    with (
        keeper(one.store, computing(one.store)),
        patch.object(words_reading, "search_tally", side_effect=ZeroDivisionError),
    ):
        one.client.get("/")
        one.client.get("/changes")
    one.client.application.extensions.clear()
    with keeper(one.store, Kept(one.store)):
        with pytest.raises(NotReady):
            read(one.store, words, one.day(1), SIMULTANEOUS)
        for name in set(KINDS) - {"words"}:
            assert read(one.store, stored_of(one, name), one.day(1), View(simultaneous=name != "flag", days=2)).rows


def test_counts_of_no_reports_stay_damaged_and_are_not_called_computed(one: Site) -> None:
    stored = stored_of(one, "text")
    one.hold(stored.plan, Tally(3, np.full(stored.plan.cells.tally_size, -1, dtype=np.int64)), 1)
    for made in (computing(one.store), Kept(one.store)):
        with keeper(one.store, made), pytest.raises(BadTally, match="the tally is not one of"):
            read(one.store, stored, one.day(1), SIMULTANEOUS)


def test_what_another_process_has_begun_is_left_to_it_for_a_minute(one: Site) -> None:
    stored, kept = stored_of(one, "text"), list[KeptReading]()
    with keeper(one.store, computing(one.store, kept)):
        read(one.store, stored, one.day(1), SIMULTANEOUS)
    begun = next(entry for entry in kept if entry.open)
    one.store.keep_readings([begun])
    with keeper(one.store, computing(one.store, alone=False)), pytest.raises(NotReady, match="estimating the cand"):
        read(one.store, stored, one.day(1), SIMULTANEOUS)
    later = time.time() + reading_cache.BEGUN_FOR_S
    with keeper(one.store, computing(one.store, alone=False)), patch("time.time", lambda: later):
        assert read(one.store, stored, one.day(1), SIMULTANEOUS).rows


def test_a_reading_of_a_class_that_is_not_listed_is_read_and_not_kept(one: Site) -> None:
    stored, kept = stored_of(one, "flag"), list[KeptReading]()
    with (
        patch.object(type(estimand_of(stored.plan)), "records", ()),
        keeper(one.store, computing(one.store, kept)),
    ):
        assert isinstance(read(one.store, stored, one.day(1), View()), Reading)
    assert kept == []


# The first page: made ahead, and soon.


def test_the_first_page_is_made_ahead_of_who_asks(one: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words are left out: their search takes as long as all others, and the tests above show that it is kept."""
    others = [each for each in one.store.plans() if each.plan.metric != "words"]
    monkeypatch.setattr(one.store, "plans", lambda name="": [each for each in others if name in ("", each.plan.metric)])
    fresh = first_page(one)
    forget()
    with keeper(one.store, computing(one.store)):
        first_page(one)
    forget()
    with (
        keeper(one.store, Kept(one.store)),
        patch.object(estimands, "estimate", side_effect=AssertionError("it is read anew")),
        patch.object(differences, "differences", side_effect=AssertionError("it is compared anew")),
    ):
        assert first_page(one) == fresh
    forget()
    with (
        keeper(one.store, Kept(one.store)),
        patch.object(estimands, "_dither", lambda: "another version, which may have other words"),
        patch.object(estimands, "once", wraps=reading_cache.once) as making,
    ):
        first_page(one)
    assert {call.args[2] for call in making.call_args_list} >= {"answer", "reading"}


def first_page(one: Site) -> str:
    page = operators_app(one.store).test_client().get("/")
    assert page.status_code == 200, page.text
    return page.text


def test_a_day_that_is_checked_is_kept(one: Site) -> None:
    stored, window = stored_of(one, "words"), Window(one.day(2), one.day(1))
    fresh = list(closed_days.days(one.store, stored, window))
    with keeper(one.store, Kept(one.store)), pytest.raises(NotReady, match="0 of 2 days"):
        list(closed_days.days(one.store, stored, window))
    with keeper(one.store, computing(one.store)):
        list(closed_days.days(one.store, stored, window))
    forget()
    with keeper(one.store, Kept(one.store)):
        assert parts(list(closed_days.days(one.store, stored, window))) == parts(fresh)
    assert timedelta(days=1) == fresh[1].epoch - fresh[0].epoch
