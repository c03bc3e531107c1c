"""Reading with a parser in C: the same as with Python's, where one of them refuses a value as well."""

import json
from pathlib import Path

import pytest

from dither_aggregator.web.endpoints import parse_json, parse_upload
from dither_shared.wire import reading
from dither_shared.wire.reading import Problem
from tests.fuzz.hostile import finder
from tests.fuzz.properties import REGISTRIES, outcome

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "uploads.json").read_text(encoding="utf-8"))
FIND_PLAN = finder(REGISTRIES)
DARK = REGISTRIES[0].metrics["dark"].plan
ID = "AAECAwQFBgcICQoLDA0ODw"


def group(reports: str, metric: str = "dark") -> str:
    return f'{{"metric": "{metric}", "plan": "{DARK.digest}", "reports": {reports}}}'


def body_of(*groups: str) -> bytes:
    return f'{{"v": 1, "upload": "{ID}", "groups": [{", ".join(groups)}]}}'.encode()


@pytest.mark.parametrize("vector", [*VECTORS["valid"], *VECTORS["spoiled"]], ids=lambda vector: vector["name"])
def test_a_vector_is_read_as_python_reads_it(vector: dict[str, str]) -> None:
    body = vector["body"].encode("latin-1")
    assert outcome(body, FIND_PLAN, parse_upload) == outcome(body, FIND_PLAN, reading.parse_upload)


@pytest.mark.parametrize("value", ['"\\ud800"', '"\\udc00\\ud800"', '"\\ud83dx"', "1E400", "-1e400"])
def test_a_value_that_only_c_refuses_spoils_its_group_alone(value: str) -> None:
    upload = parse_upload(body_of(group(f"[{value}]"), group("[1]")), FIND_PLAN)
    assert [(refusal.group, refusal.reason) for refusal in upload.refused] == [(0, "bad-report")]
    assert [one.reports for one in upload.groups] == [b"\x01"]


@pytest.mark.parametrize(
    "value", ["1.0", "1e0", "1E400", "-0", "true", "null", '"1"', "[1]", "1" * 400, "18446744073709551616"]
)
def test_a_number_is_the_integer_that_python_reads_or_none(value: str) -> None:
    body = body_of(group(f"[{value}]"))
    found = parse_upload(body, FIND_PLAN)
    assert found == reading.parse_upload(body, FIND_PLAN)
    assert [one.reports for one in found.groups] == ([b"\x00"] if value == "-0" else [])


@pytest.mark.parametrize(
    "text",
    [b"NaN", b"[Infinity]", b"[1,]", b"[01]", b"\xef\xbb\xbf[]", b'["\xff"]', b'["\t"]', b"[" * 10_000, b"", b"[] x"],
)
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(Problem) as caught:
        parse_json(text)
    assert caught.value.slug == "malformed"


def test_the_last_of_several_fields_counts() -> None:
    twice = group("[7]")[:-1] + ', "reports": [1], "metric": "dark"}'
    upload = parse_upload(body_of(twice), FIND_PLAN)
    assert [(one.plan.metric, one.reports) for one in upload.groups] == [("dark", b"\x01")]
