"""Marks: days that the operator gave a few words, on both stores; a store that has none is as it was."""

from collections.abc import Callable
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from dither_aggregator.store import SQLiteStore, Store, StoreError, StoreUnavailable
from dither_aggregator.store.document_kinds import DayMark
from dither_aggregator.store.dump import DocumentsRecord
from dither_aggregator.store.invariants import check
from dither_aggregator.store.redis import RedisStore
from dither_aggregator.store.restoring import restore
from dither_shared.registry import Registry
from tests.support.stores import Place, SQLitePlace, append, balance, body_of, fold_all

RELEASE = DayMark(date(2026, 11, 20), "version 158")
LATER = DayMark(date(2026, 12, 1), "\N{SNOWMAN} a fair, in Köln")
SAME_DAY = DayMark(date(2026, 11, 20), "a fair")
HOSTILE = DayMark(date(1, 1, 1), "<script>alert('1 2')</script>\N{RIGHT-TO-LEFT OVERRIDE}; DROP TABLE mark")
FULL = DayMark(date.max, "\N{GRINNING FACE}" * 80)


def test_marks_are_kept_by_day_once_each_and_so_many(
    place: Place, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DayMark, "most", 4)
    assert not store.remove(RELEASE)
    assert all(store.put(mark) for mark in (LATER, RELEASE, HOSTILE, SAME_DAY))
    assert not store.put(DayMark(RELEASE.day, RELEASE.text))
    assert place.open().documents(DayMark) == store.documents(DayMark) == [HOSTILE, SAME_DAY, RELEASE, LATER]
    with pytest.raises(StoreError, match="keeps at most 4 marks; `dither mark remove DAY` makes room"):
        store.put(FULL)
    assert store.remove(RELEASE)
    assert not store.remove(RELEASE)
    assert store.put(FULL)
    assert store.documents(DayMark) == [HOSTILE, SAME_DAY, LATER, FULL]


@pytest.mark.parametrize("text", ["", "   ", "a" * 81, "two\nlines", "a\x1b[2J", "\x00", "\x85", "\udcff", "a\u2028b"])
def test_a_text_that_cannot_be_shown_is_refused(store: Store, text: str) -> None:
    with pytest.raises(StoreError, match="a mark's text must") as caught:
        store.put(DayMark(RELEASE.day, text))
    assert not isinstance(caught.value, StoreUnavailable)
    assert store.documents(DayMark) == []


def test_reports_are_counted_as_if_there_were_no_marks(store: Store, asked: Registry) -> None:
    append(store, body_of(asked, {"color": [1, 0]}))
    store.put(RELEASE)
    fold_all(store)
    store.remove(RELEASE)
    append(store, body_of(asked, {"dark": [1]}))
    assert balance(store) == (3, 2, 1, 0)
    assert list(check(store)) == []


def test_a_backup_with_a_text_that_cannot_be_shown_is_refused(store: Store, tmp_path: Path) -> None:
    bad = DocumentsRecord(DayMark, (DayMark(RELEASE.day, "a\x1b[2J"),))
    with closing(SQLitePlace(tmp_path / "other")) as target:
        with pytest.raises(StoreError, match="without control characters"):
            restore(target.begin(), [*store.dump(), bad])
        with pytest.raises(StoreError, match="not filled to its end"):
            target.open()


def test_one_that_only_reads_adds_none(tmp_path: Path) -> None:
    with (
        closing(SQLiteStore.create(tmp_path, "example")) as store,
        closing(SQLiteStore(tmp_path, read_only=True)) as reader,
    ):
        assert reader.documents(DayMark) == []
        assert store.put(RELEASE)
        assert reader.documents(DayMark) == [RELEASE]
        with pytest.raises(StoreUnavailable, match="cannot be written"):
            reader.put(LATER)


# Bugs that the first test catches.


@pytest.mark.parametrize(
    ("method", "spoiled"),
    [
        ("_save", lambda *arguments: True),
        ("documents", lambda store, kind: []),
        ("remove", lambda store, mark: True),
    ],
    ids=["adds nothing", "reads nothing", "removes nothing"],
)
def test_a_planted_bug_is_caught(
    method: str, spoiled: Callable[..., object], place: Place, asked: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (SQLiteStore, RedisStore):
        monkeypatch.setattr(kind, method, spoiled)
    with pytest.raises(AssertionError):
        test_marks_are_kept_by_day_once_each_and_so_many(place, place.make(asked), monkeypatch)
