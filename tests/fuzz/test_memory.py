"""Hostile uploads are read in bounded memory."""

import json
import tracemalloc
from collections.abc import Callable
from functools import partial

import pytest

from dither_shared import wire
from dither_shared.wire import reading
from dither_shared.wire.reading import Problem, inflate, parse_upload
from tests.fuzz import hostile
from tests.fuzz.hostile import bomb, finder
from tests.fuzz.properties import REGISTRIES

FIND_PLAN = finder(REGISTRIES)


def peak(work: Callable[[], object]) -> int:
    """Return the most memory that work held at once, in bytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refused(work: Callable[[], object]) -> None:
    with pytest.raises(Problem):
        work()


@pytest.mark.parametrize("megabytes", [2, 200, 1024])
def test_a_bomb_is_refused_in_a_few_megabytes(megabytes: int) -> None:
    body = bomb(megabytes)
    assert len(body) < megabytes * 1_100
    assert peak(lambda: refused(lambda: inflate(body))) < 3 * (wire.INFLATED_BYTES_MAX + len(body))


SMALL_ITEMS = (
    "[],",
    "{},",
    '{"a":0},',
    "[[]],",
    "257,",
    "1e9,",
    '"ab",',
    '"\\u0100",',
    '"\U0001f600",',
    "[1e9,{}],",
    "0,",
)


@pytest.mark.parametrize("item", SMALL_ITEMS)
def test_a_body_takes_memory_in_proportion_to_its_length(item: str) -> None:
    marks = sum(map(item.count, ",[{"))
    items = (item * ((reading.VALUES_MAX - 20) // marks))[:-1]
    color = REGISTRIES[3].metrics["color"].plan
    document = {"v": 1, "upload": "A" * 22, "groups": [{"metric": "color", "plan": color.digest, "reports": [1]}]}
    body = hostile.put_fragment(document, ("groups", 0, "reports"), f"[{items}]")
    assert sum(map(body.count, (b",", b"[", b"{"))) > reading.VALUES_MAX - 20
    assert peak(lambda: refused(lambda: parse_upload(body, FIND_PLAN))) < 50 * len(body)


@pytest.mark.parametrize("item", SMALL_ITEMS)
def test_a_body_of_too_many_values_is_not_even_parsed(item: str) -> None:
    body = (item * (wire.INFLATED_BYTES_MAX // len(item.encode()))).encode()
    assert peak(lambda: refused(lambda: parse_upload(body, FIND_PLAN))) < 100_000


def test_two_thousand_texts_that_are_no_reports_take_little_memory() -> None:
    color = REGISTRIES[3].metrics["color"].plan
    for text in ("A" * 500, "\u0100" * 160, "\U0001f600" * 80):
        document = {
            "v": 1,
            "upload": "A" * 22,
            "groups": [{"metric": "color", "plan": color.digest, "reports": [text] * 2_000}],
        }
        body = json.dumps(document).encode()
        assert peak(partial(parse_upload, body, FIND_PLAN)) < 20 * len(body)
        assert not parse_upload(body, FIND_PLAN).groups
