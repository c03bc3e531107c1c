"""The parser answers anything with an upload or a problem of the sender's; in what memory, test_memory.py asks."""

import inspect
import json
import os
import platform
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice, product
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dither_aggregator.web import endpoints as aggregator_reading
from dither_shared import shapes, wire
from dither_shared.registry import Registry
from dither_shared.shapes import BadReport, Bits, ReportShape, Subsets, Symbols
from dither_shared.wire import reading
from dither_shared.wire.reading import Problem, Upload, inflate
from tests.fuzz import hostile, model
from tests.fuzz.hostile import (
    close_to_reports,
    draw_document,
    draw_group,
    draw_report,
    finder,
    hostile_uploads,
    mutate,
    spoiled_report,
)
from tests.fuzz.properties import (
    REGISTRIES,
    Parse,
    check_again,
    check_column,
    check_column_is,
    check_inflated,
    check_upload,
    model_of_column,
    outcome,
)
from tests.support.aggregators import ENVIRONMENT
from tests.support.soaking import SOAK, scaled, thinned

PLANS = [metric.plan for asked in REGISTRIES for metric in asked.metrics.values()]
FIND_PLAN = finder(REGISTRIES)
VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "uploads.json").read_text(encoding="utf-8"))
SHAPES: list[ReportShape] = [
    *(Symbols(size) for size in (2, 255, 256, 257, 65_536, 65_537, 2**32, 2**32 + 1, 2**63)),
    *(Bits(size) for size in (1, 2, 7, 8, 9, 16, 23, 24, 25, 41, 48, 128, 130, 4096)),
    # as bits
    *(Subsets(size, weight) for size, weight in ((2, 1), (5, 2), (16, 4), (24, 3), (40, 5), (64, 63), (96, 20))),
    # by their members
    *(Subsets(size, weight) for size, weight in ((9, 1), (128, 2), (200, 24), (256, 2), (300, 3), (600, 2))),
    Subsets(70_000, 2),
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


def name_of(asked: Registry) -> str:
    """Return the shape that a registry is there for."""
    return str(asked.metrics["color"].plan.mechanism.shape)


# A column of reports.


@st.composite
def columns(draw: st.DrawFn) -> tuple[ReportShape, list[Any]]:
    """Return a shape and reports of it, most of the time with one or two that are none."""
    shape, rng = draw(st.sampled_from(SHAPES)), draw(st.randoms(use_true_random=False))
    values: list[Any] = [draw_report(rng, shape) for _ in range(draw(st.integers(1, 5)))]
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(values) - 1))
        values[place] = draw(
            st.just(shape.size)
            | st.text(model.BASE64URL, max_size=2 * len(str(values[place])))
            | st.builds(spoiled_report, st.just(rng), st.just(draw_report(rng, shape)))
            | json_values
        )
    return shape, values


@settings(max_examples=scaled(20, 20_000), deadline=None, derandomize=not SOAK)
@given(columns())
def test_a_column_is_read_as_its_reports_are_one_by_one(column: tuple[ReportShape, list[Any]]) -> None:
    check_column(*column)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_long_column_is_read_as_its_reports_are_one_by_one(shape: ReportShape) -> None:
    rng = random.Random(1)
    values: list[Any] = [draw_report(rng, shape) for _ in range(30)]
    packed = check_column(shape, values)
    assert packed is not None
    assert len(packed) == 30 * shape.width
    others: list[Any] = [
        None,
        True,
        1.5,
        "",
        [],
        {},
        -1,
        shape.size,
        2**64,
        10**5_000,
        "A" * len(str(values[0])),
        "\ud800",
    ]
    for place in thinned((15, 0, 29), 0):
        for other in others:
            check_column(shape, [*values[:place], other, *values[place + 1 :]])
        for _ in range(10):
            check_column(shape, [*values[:place], spoiled_report(rng, values[place]), *values[place + 1 :]])


@pytest.mark.parametrize("shape", [*map(Bits, thinned((1, 7, 8, 12, 16), 1)), Subsets(8, 3), Subsets(9, 1)], ids=str)
def test_of_all_texts_exactly_the_reports_are_read(shape: ReportShape) -> None:
    accepted = 0
    for text in map("".join, product(model.BASE64URL, repeat=len(str(shape.to_wire(0))))):
        try:
            accepted += shape.to_wire(int.from_bytes(shape.read_column([text]), "little")) == text
        except BadReport:
            continue
    expected = {Subsets(8, 3): 56, Subsets(9, 1): 9}
    assert accepted == expected.get(shape, 2**shape.size)  # type: ignore[call-overload]


# A whole upload.


@settings(max_examples=scaled(30, 20_000), deadline=None, derandomize=not SOAK)
@given(st.randoms(use_true_random=False), st.sampled_from(REGISTRIES), st.data())
def test_a_document_with_anything_anywhere_is_read_as_the_model_says(
    rng: random.Random, asked: Registry, data: st.DataObject
) -> None:
    document = draw_document(rng, [metric.plan for metric in asked.metrics.values()])
    for _ in range(data.draw(st.integers(0, 3))):
        places = hostile.places(document)
        document = hostile.put(document, data.draw(st.sampled_from(places)), data.draw(json_values))
    check_upload(json.dumps(document).encode(), FIND_PLAN)


@settings(max_examples=scaled(20, 20_000), deadline=None, derandomize=not SOAK)
@given(st.binary(max_size=300) | json_values.map(lambda value: json.dumps(value).encode()))
def test_garbage_is_malformed(body: bytes) -> None:
    assert check_upload(body, FIND_PLAN) == "malformed"
    with pytest.raises(Problem) as caught:
        inflate(body)
    assert caught.value.slug == "malformed"


def wrong_values(asked: Registry) -> Iterator[bytes]:
    """Every fragment in every place of an upload with a report of each metric."""
    rng = random.Random(1)
    document = draw_document(rng, [])
    document["groups"] = [draw_group(rng, metric.plan) for metric in asked.metrics.values()]
    for place in hostile.places(document):
        for fragment in hostile.FRAGMENTS:
            yield hostile.put_fragment(document, place, fragment)


@pytest.mark.parametrize("asked", thinned(REGISTRIES, 0), ids=name_of)
def test_a_wrong_value_anywhere_is_read_as_the_model_says(asked: Registry) -> None:
    """In `make test` every third of a registry: the hunt below has all of another, and most places are alike in all."""
    for body in islice(wrong_values(asked), 0, None, scaled(3, 1)):
        check_upload(body, FIND_PLAN)


def vector_bodies() -> Iterator[bytes]:
    for vector in VECTORS["valid"]:
        yield vector["body"].encode()
    for vector in VECTORS["spoiled"]:
        yield vector["body"].encode("latin-1")
    for vector in VECTORS["spoiled groups"]:
        yield json.dumps({"v": 1, "upload": "AAECAwQFBgcICQoLDA0ODw", "groups": [vector["group"]]}).encode()


def test_the_vectors_changed_byte_by_byte_are_read_as_the_model_says() -> None:
    rng, outcomes = random.Random(1), Counter[str]()
    for body in vector_bodies():
        step = scaled(12 if len(body) < 400 else len(body) // 10, 1)
        for place in range(0, len(body), step):
            found = [
                check_upload(body[:place] + instead + body[place + 1 :], FIND_PLAN)
                for instead in rng.sample([b"", b"\x00", b"\xff", b'"', b"0", b"A", b"]", b"\xc3\xa4"], scaled(1, 8))
            ]
            found.append(check_upload(mutate(rng, body), FIND_PLAN))
            outcomes.update(one if isinstance(one, str) else "upload" for one in found)
    assert outcomes["malformed"] > 150
    assert outcomes["upload"] > 150


@pytest.mark.parametrize("asked", REGISTRIES, ids=name_of)
def test_no_hostile_upload_is_accepted(asked: Registry) -> None:
    find_plan = finder([asked])
    for headers, body in islice(hostile_uploads(1, asked), scaled(1, 200) * len(hostile.damages(PLANS))):
        inflated = check_inflated(body) if headers == hostile.GZIP else body
        if isinstance(inflated, bytes) and headers in (hostile.GZIP, hostile.JSON):
            found = check_upload(inflated, find_plan)
            assert isinstance(found, str) or not found.groups or len(body) > wire.WIRE_BYTES_MAX


def test_hostile_uploads_come_from_their_seed_and_in_every_kind() -> None:
    pairs = list(islice(hostile_uploads(7, REGISTRIES[0]), 250))
    assert pairs == list(islice(hostile_uploads(7, REGISTRIES[0]), len(pairs)))
    assert pairs[:10] != list(islice(hostile_uploads(8, REGISTRIES[0]), 10))
    slugs = Counter[str]()
    for headers, body in pairs:
        try:
            found = outcome(model.read_body(headers, body), FIND_PLAN)
        except model.Refused as refused:
            found = str(refused)
        slugs.update([found] if isinstance(found, str) else {refusal.reason for refusal in found.refused})
    assert {"malformed", "too-large", "unsupported-media-type", "unknown-plan", "unknown-metric", "bad-report"} <= set(
        slugs
    )


def test_uploads_at_the_limits_are_read() -> None:
    rng = random.Random(1)
    every = {plan.mechanism.shape: plan for plan in PLANS}
    for shape, plan in thinned([*every.items()], 0, 5, 7):  # symbols, bits, members
        group: dict[str, Any] = {"metric": plan.metric, "plan": plan.digest}
        if plan.cells.several:
            group["cell"] = 0
        column = [draw_report(rng, shape) for _ in range(2_000)]
        whole = [{**group, "reports": column}]
        parts = [{**group, "reports": column[40 * part : 40 * part + 40]} for part in range(50)]
        for groups, problem in (
            (whole, ""),
            (parts, ""),
            ([{**group, "reports": column + column[:1]}], "too-large"),
            ([*parts[1:], {**group, "reports": column[:41]}], "too-large"),
            ([*parts, {**group, "reports": []}], "malformed"),
        ):
            found = check_upload(hostile.encode({"v": 1, "upload": "A" * 22, "groups": groups}), FIND_PLAN)
            assert found == problem if problem else isinstance(found, Upload) and not found.refused


# Guided by coverage.

where_atheris_is = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64" or sys.version_info >= (3, 15),
    reason="atheris has wheels for Linux on x86-64 alone: where pyproject.toml asks for it, these must run",
)


if SOAK:  # else it is the same fuzzer that finds a planted bug, below

    @where_atheris_is
    def test_the_guided_fuzzer_finds_nothing(tmp_path: Path) -> None:
        done = run_fuzzer(tmp_path, "-runs=15000", "-seed=1")
        assert done.returncode == 0, done.stderr[-4_000:]
        runs = re.search(r"number_of_executed_units: (\d+)", done.stderr)
        assert runs is not None
        assert int(runs[1]) >= 15_000


@pytest.mark.slow
@where_atheris_is
def test_the_guided_fuzzer_finds_a_planted_bug(tmp_path: Path) -> None:
    shutil.copytree(Path(wire.__file__).parent.parent, tmp_path / "dither_shared")
    source = Path(reading.__file__).read_text(encoding="utf-8")
    spoiled = source.replace("0 <= cell < cells.count", "0 <= cell <= cells.count")
    assert spoiled != source
    (tmp_path / "dither_shared" / "wire" / "reading.py").write_text(spoiled, encoding="utf-8")
    done = run_fuzzer(tmp_path, "-runs=200000", "-seed=1", f"-artifact_prefix={tmp_path}/")
    assert done.returncode != 0
    assert "IndexError: there is no such cell" in done.stdout
    assert list(tmp_path.glob("crash-*"))


def run_fuzzer(first: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run it on what `first` holds of our modules, and on the usual ones."""
    path = os.pathsep.join([str(first), ENVIRONMENT["PYTHONPATH"]])
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz.atheris_upload", *options],
        cwd=Path(__file__).parents[2],
        env={**ENVIRONMENT, "PYTHONPATH": path, "TMPDIR": str(first)},
        capture_output=True,
        text=True,
        timeout=120,
    )


# Bugs that would be caught.

PLANTED_IN_REPORTS = {
    "a bool is a symbol": ("if set(map(type, values)) != {int}:", "if set(map(type, values)) - {int, bool}:"),
    "a float is a symbol": (
        "if set(map(type, values)) != {int}:",
        "values = [int(value) if type(value) is float and value == value else value for value in values]\n"
        "        if set(map(type, values)) != {int}:",
    ),
    "a symbol too many": ("max(values) >= self.size", "max(values) > self.size"),
    "a negative symbol": ("min(values) < 0 or ", ""),
    "the wrong byte order": ('struct.pack(f"<{', 'struct.pack(f">{'),
    "spare characters are lost": ("!= bytes(count)", "is None"),
    "plain base64": ('maketrans(b"-_+/=", b"+/!!!")', 'maketrans(b"-_", b"+/")'),
    "what is no base64 is skipped": ("strict_mode=True", "strict_mode=False"),
    "texts may be of any length": ("len(text) != count * step", "False"),
    "only the first row is looked at": ("!= bytes(count)", "[:1] != bytes(1)"),
    "what is no text is an error": ("except (TypeError, UnicodeEncodeError):", "except UnicodeEncodeError:"),
    "one text that is none is an error": ("type(value) is not str or", ""),
    "spare characters of one report": ("if row[self.width]:", "if False:"),
    "one text may be of any length": ("len(value) != self.wire_length", "False"),
    "a byte of one report's fill": ("return row[: self.width]", "return row[: self.width + 1]"),
    "one subset may be larger": ('"little").bit_count() == self.weight', '"little").bit_count() >= self.weight'),
    "anything beyond ASCII is lost": ('.encode("ascii")', '.encode("ascii", "ignore")'),
    "bits beyond the last": ("return self.size % 8 != 0 and", "return False and"),
    "a bit beyond the last": (">> self.size % 8 != 0", ">> self.size % 8 + 1 != 0"),
    "a bit too few": (">> self.size % 8 != 0", ">> self.size % 8 - 1 != 0"),
    "a subset may be smaller": ("weights == {self.weight}", "max(weights) <= self.weight"),
    "a subset of bits beyond the last": ("and not self.beyond(packed)", ""),
    "a member twice": ("from operator import lt", "from operator import le as lt"),
    "reports must ascend too": ("del ascends[", "ascends["),
    "a member too many": ("max(members) < self.size", "max(members) <= self.size"),
    "the wrong end of a row goes": ("del table[column :: column + 1]", "del table[0 :: column + 1]"),
}
PLANTED_IN_WIRE = {
    "a version that is true": ('type(document["v"]) is not int or ', ""),
    "an id of any end": ("{21}[AQgw]", "{22}"),
    "an id with a line behind it": ("_ID.fullmatch(upload_id)", 're.match(_ID.pattern + "$", upload_id)'),
    "a plan in capitals": ("[0-9a-f]{16}", "[0-9a-fA-F]{16}"),
    "a group too many": ("<= GROUPS_MAX", "<= GROUPS_MAX + 1"),
    "a report too many": ("_count, items)) > REPORTS_MAX", "_count, items)) > REPORTS_MAX + 1"),
    "reports that are not counted": ("if commas + len(items) > REPORTS_MAX and", "if commas > 2 * REPORTS_MAX and"),
    "values without end": ("> VALUES_MAX", "> 1 << 30"),
    "a value too many": ("> VALUES_MAX", "> VALUES_MAX + 1"),
    "a cell too many": ("0 <= cell < cells.count", "0 <= cell <= cells.count"),
    "a cell that is true": ("type(cell) is not int or", "not isinstance(cell, int) or"),
    "a cell where there is none": ("elif len(item) > 3:", "elif False:"),
    "another cell": ("_new(Group, (plan, cell,", "_new(Group, (plan, cell ^ cells.several,"),
    "the first of two fields": (
        "JSONDecoder(parse_constant",
        "JSONDecoder(object_pairs_hook=lambda pairs: dict(reversed(pairs)), parse_constant",
    ),
    "no number": ("parse_constant=_no_constants", "parse_constant=lambda name: 0"),
    "a byte order mark": ('body.decode("utf-8")', 'body.decode("utf-8-sig")'),
    "bytes that are no text": ('body.decode("utf-8")', 'body.decode("utf-8", "replace")'),
    "depth": ("except (ValueError, RecursionError):", "except ValueError:"),
    "a field too many": ('len(item) != 3 + ("cell" in item)', "False"),
    "names that are not looked at": ("not METRIC_NAME.fullmatch(metric) or not _PLAN.fullmatch(digest)", "False"),
    "a refused group is forgotten": ("refused.append(Refusal(place, reason, _count(item), _metric(item)))", "pass"),
    "a refused group's count": ("Refusal(place, reason, _count(item), ", "Refusal(place, reason, 1, "),
    "a neighbour is lost": ("except (GroupRefused, BadReport) as error:", "except GroupRefused as error:"),
    "no reports are a group": ("is not list or not reports", "is not list"),
}


PLANTED_IN_C = {
    "what C refuses is malformed": (
        "return reading.parse_json(body)",
        'raise reading.Problem("malformed", "") from None',
    ),
    "a text of no Unicode is an error": ("UnicodeDecodeError, ", ""),
    "depth": (", RecursionError", ""),
    "a float is a symbol": ("Decoder()", "Decoder(float_hook=lambda text: round(float(text)))"),
}


def planted(module: ModuleType, old: str, new: str) -> dict[str, Any]:
    """Return what a module has with a bug in it; what others know it by stays the same."""
    source = inspect.getsource(module)
    assert old in source
    made: dict[str, Any] = {"__name__": "planted"}
    exec(source.replace(old, new), made)
    shared = ("BadReport", "Problem", "GroupRefused", "Group", "Refusal", "Upload")
    made.update((name, vars(module)[name]) for name in shared if name in vars(module))
    return made


@contextmanager
def planted_in_reports(old: str, new: str) -> Iterator[None]:
    """Make the shapes read columns with a bug."""
    made = planted(shapes, old, new)
    with ExitStack() as stack:
        for name in ("Symbols", "Packed", "Bits", "Subsets"):
            for method in ("read_column", "_decode", "_decode_table", "check_column", "beyond"):
                if name in made and made[name].__module__ == "planted" and method in vars(made[name]):
                    stack.enter_context(patch.object(vars(shapes)[name], method, vars(made[name])[method]))
        yield


Column = tuple[bytes | None, ReportShape, list[Any]]
"""The packed reports that the model reads, or None; their shape; the values that they are read from."""


@pytest.fixture(scope="module")
def columns_read() -> list[Column]:
    """A short version of the tests above, with nothing but seeds: columns, read by the model once for all bugs."""
    rng = random.Random(1)
    hunted: list[Column] = []
    for shape in SHAPES:
        for other in [
            *close_to_reports(shape),
            *(spoiled_report(rng, draw_report(rng, shape)) for _ in range(scaled(15, 40))),
        ]:
            values: list[Any] = [draw_report(rng, shape) for _ in range(rng.randint(1, 3))]
            for column in (values, [other, *values], [*values, other], [other]):
                hunted.append((model_of_column(shape, column), shape, column))
    return hunted


def hunted_bodies() -> Iterator[bytes]:
    """The same of whole uploads: what takes least first."""
    for depth in (16_000, 16_001):
        yield b"[" * depth
    yield from wrong_values(REGISTRIES[-1])
    rng = random.Random(1)
    for asked in REGISTRIES:
        plans = [metric.plan for metric in asked.metrics.values()]
        yield hostile.encode(draw_document(rng, plans))
        for damage in hostile.damages(plans) * scaled(2, 10):
            headers, body = damage(rng, draw_document(rng, plans))
            if headers == hostile.JSON:
                yield body


@pytest.fixture(scope="module")
def uploads_read() -> list[tuple[bytes, Upload | str]]:
    """Give those bodies as all our ways of reading agree on them: read once, while no bug is planted."""
    return [(body, check_upload(body, FIND_PLAN)) for body in hunted_bodies()]


def hunt_in_columns(columns: list[Column]) -> None:
    """Hold the shapes against the model."""
    for column in columns:
        check_column_is(*column)


def hunt_with(parse: Parse, uploads: list[tuple[bytes, Upload | str]]) -> None:
    """Hold a parser against what is agreed."""
    for body, agreed in uploads:
        assert outcome(body, FIND_PLAN, parse) == agreed
        if isinstance(agreed, Upload):
            check_again(agreed, FIND_PLAN, parse)


def test_the_hunt_finds_nothing(columns_read: list[Column], uploads_read: list[tuple[bytes, Upload | str]]) -> None:
    hunt_in_columns(columns_read)
    for parse in (reading.parse_upload, aggregator_reading.parse_upload):
        hunt_with(parse, uploads_read)


@pytest.mark.parametrize("name", thinned([*PLANTED_IN_REPORTS], *range(0, 26, 3)))
def test_a_bug_planted_in_the_reports_is_caught(name: str, columns_read: list[Column]) -> None:
    with planted_in_reports(*PLANTED_IN_REPORTS[name]), pytest.raises(Exception):  # noqa: B017, PT011
        hunt_in_columns(columns_read)


@pytest.mark.parametrize("name", thinned([*PLANTED_IN_WIRE], *range(0, 24, 3)))
def test_a_bug_planted_in_the_wire_is_caught(name: str, uploads_read: list[tuple[bytes, Upload | str]]) -> None:
    made = planted(reading, *PLANTED_IN_WIRE[name])
    with pytest.raises(Exception):  # noqa: B017, PT011
        hunt_with(made["parse_upload"], uploads_read)


@pytest.mark.parametrize("name", thinned([*PLANTED_IN_C], 0, 2))
def test_a_bug_planted_beside_the_parser_in_c_is_caught(
    name: str, uploads_read: list[tuple[bytes, Upload | str]]
) -> None:
    made = planted(aggregator_reading, *PLANTED_IN_C[name])
    with pytest.raises(Exception):  # noqa: B017, PT011
        hunt_with(made["parse_upload"], uploads_read)
